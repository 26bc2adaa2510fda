//! Fingerprints of the handles that left lately, 16 bits each, in buckets of one cache line: both FIFOs' at one place;
//! two rules of choosing a victim, compared by how often their victims return.
//!
//! - owns: buckets of a fixed size; evictions and returns by rule. takes: handles that leave and that return. gives:
//!   whether
//!   and how one left; the rule of the next victim.
//! - must not: grow.

/// Number of fingerprints of either FIFO that a bucket holds.
const WAYS: usize = 16;
/// Bits of a fingerprint of the main FIFO that say how its handle left.
const HIT: u16 = 1;
const OLDEST: u16 = 2;
const MARKS: u16 = HIT | OLDEST;

/// How a handle left the main FIFO.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct MainLeave {
    /// The rule that chose it.
    pub(super) rule: VictimRule,
    /// Whether it was hit between its insertion and its end.
    pub(super) was_hit: bool,
}

/// What is known of a handle that missed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct LeftLately {
    /// Whether it left the small FIFO lately.
    pub(super) small: bool,
    /// How it left the main FIFO, if it did lately.
    pub(super) main: Option<MainLeave>,
}

/// Fingerprints of one FIFO, the newest first; 0 is an empty place.
///
/// Four words instead of an array of 16: all places of a word are compared at once.
#[derive(Clone, Copy, Default, Debug)]
struct PrintRow([u64; 4]);

/// The lowest bit, and the highest one, of each place of a word.
const LOWEST: u64 = 0x0001_0001_0001_0001;
const HIGHEST: u64 = LOWEST << 15;

impl PrintRow {
    /// The bit of the first place that holds a fingerprint, by word; `marks` are bits that are not compared.
    #[inline]
    fn find(&self, print: u16, marks: u16) -> Option<(usize, u32)> {
        let (wanted, ignored) = (LOWEST * u64::from(print), LOWEST * u64::from(marks));
        // The lowest place of a word that is equal has its highest bit set, and no lower place has.
        let equal = self.0.map(|word| {
            let differs = (word ^ wanted) & !ignored;
            differs.wrapping_sub(LOWEST) & !differs & HIGHEST
        });
        if equal[0] | equal[1] | equal[2] | equal[3] == 0 {
            return None;
        }
        // Without a branch per word: which one it is cannot be predicted.
        let low = usize::from(equal[0] == 0);
        let high = 2 + usize::from(equal[2] == 0);
        let word = if equal[0] | equal[1] == 0 { high } else { low };
        Some((word, equal[word].trailing_zeros() & !15))
    }

    /// The fingerprint of a place that `find` returned.
    #[expect(clippy::cast_possible_truncation, reason = "a place of a word")]
    const fn at(&self, (word, bit): (usize, u32)) -> u16 {
        (self.0[word] >> bit) as u16
    }

    /// Takes a fingerprint out; whether it was there.
    fn take(&mut self, print: u16, marks: u16) -> bool {
        let Some((word, bit)) = self.find(print, marks) else { return false };
        let newer = (1 << bit) - 1;
        let older = (self.0[word] >> 16) & !newer;
        self.0[word] = self.0[word] & newer | older;
        for word in word..3 {
            self.0[word] |= self.0[word + 1] << 48;
            self.0[word + 1] >>= 16;
        }
        true
    }

    /// Puts a fingerprint as the newest; whether there is one more than before.
    #[inline]
    fn put(&mut self, print: u16) -> bool {
        let [a, b, c, d] = self.0;
        self.0 =
            [a << 16 | u64::from(print), b << 16 | a >> 48, c << 16 | b >> 48, d << 16 | c >> 48];
        d >> 48 == 0
    }
}

/// Fingerprints of both FIFOs.
#[derive(Clone, Copy, Default, Debug)]
#[repr(align(64))]
struct PrintBucket {
    small: PrintRow,
    main: PrintRow,
}

/// About as many fingerprints of either FIFO as the cache has slots. Of handles that never left, one of some 4,000 is taken
/// for one that left the small FIFO, and one of some 1,000 for one that left the main FIFO.
#[derive(Clone, Debug)]
pub(super) struct Prints {
    buckets: Vec<PrintBucket>,
    small: u32,
    main: u32,
}

impl Prints {
    pub(super) fn new(capacity: u32) -> Self {
        let buckets = vec![PrintBucket::default(); (capacity as usize).div_ceil(WAYS)];
        Self { buckets, small: 0, main: 0 }
    }

    /// Bucket of a scattered handle, its fingerprint, and that with room for marks.
    #[expect(
        clippy::cast_possible_truncation,
        reason = "a remainder of the number of buckets, 16 bits"
    )]
    #[inline]
    fn place(&self, scattered: u32) -> (usize, u16, u16) {
        let bucket = (u64::from(scattered) * self.buckets.len() as u64) >> 32;
        let print = scattered as u16;
        (bucket as usize, print.max(1), (print & !MARKS).max(MARKS + 1))
    }

    /// Whether and how a handle left lately.
    #[inline]
    pub(super) fn find(&self, scattered: u32) -> LeftLately {
        let (bucket, small, main) = self.place(scattered);
        let bucket = &self.buckets[bucket];
        let left = bucket.main.find(main, MARKS).map(|at| {
            let marks = bucket.main.at(at);
            let rule = if marks & OLDEST == 0 { VictimRule::LeastUsed } else { VictimRule::Oldest };
            MainLeave { rule, was_hit: marks & HIT != 0 }
        });
        LeftLately { small: bucket.small.find(small, 0).is_some(), main: left }
    }

    /// Takes a handle out of both.
    #[inline]
    pub(super) fn take(&mut self, scattered: u32) {
        let (bucket, small, main) = self.place(scattered);
        let bucket = &mut self.buckets[bucket];
        self.small -= u32::from(bucket.small.take(small, 0));
        self.main -= u32::from(bucket.main.take(main, MARKS));
    }

    /// Puts a handle that leaves the small FIFO.
    #[inline]
    pub(super) fn put_small(&mut self, scattered: u32) {
        let (bucket, print, _) = self.place(scattered);
        self.small += u32::from(self.buckets[bucket].small.put(print));
    }

    /// Puts a handle that leaves the main FIFO.
    #[inline]
    pub(super) fn put_main(&mut self, scattered: u32, leave: MainLeave) {
        let (bucket, _, print) = self.place(scattered);
        let oldest = if leave.rule == VictimRule::Oldest { OLDEST } else { 0 };
        let marks = oldest | if leave.was_hit { HIT } else { 0 };
        self.main += u32::from(self.buckets[bucket].main.put(print | marks));
    }

    /// Number of fingerprints of the small FIFO.
    pub(super) const fn small_len(&self) -> u32 {
        self.small
    }

    /// Number of fingerprints of the main FIFO.
    pub(super) const fn main_len(&self) -> u32 {
        self.main
    }
}

/// One of so many victims is chosen by the rule that is worse now.
const PROBE: u32 = 16;
/// Counts are halved after so many evictions times the capacity.
const MEMORY: u32 = 2;

/// How a victim is chosen from the oldest slots of the main FIFO.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub(super) enum VictimRule {
    /// The least used one of several.
    #[default]
    LeastUsed,
    /// The oldest one of the queue.
    Oldest,
}

/// Evictions and returns of both rules, halved from time to time.
#[derive(Clone, Debug)]
pub(super) struct RuleDuel {
    evicted: [u32; 2],
    returned: [u32; 2],
    period: u32,
    turn: u32,
}

impl RuleDuel {
    pub(super) const fn new(capacity: u32) -> Self {
        Self { evicted: [0; 2], returned: [0; 2], period: MEMORY * capacity, turn: 0 }
    }

    /// The rule of the next victim: that whose victims return less, or in its turn the other one.
    #[inline]
    pub(super) fn next(&mut self) -> VictimRule {
        self.turn = self.turn.wrapping_add(1);
        let cost = |own: usize, other: usize| {
            u64::from(self.returned[own]) * u64::from(self.evicted[other] + 1)
        };
        let is_least_used = (cost(0, 1) <= cost(1, 0)) ^ self.turn.is_multiple_of(PROBE);
        if is_least_used { VictimRule::LeastUsed } else { VictimRule::Oldest }
    }

    /// A victim of a rule left.
    #[inline]
    pub(super) fn evicted(&mut self, rule: VictimRule) {
        self.evicted[rule as usize] += 1;
        if self.evicted[0] + self.evicted[1] > self.period {
            self.evicted = self.evicted.map(|count| count / 2);
            self.returned = self.returned.map(|count| count / 2);
        }
    }

    /// A victim of a rule returned while its fingerprint was there.
    #[inline]
    pub(super) const fn returned(&mut self, rule: VictimRule) {
        self.returned[rule as usize] += 1;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::handle::scatter;

    #[test]
    fn what_left_lately_is_there_once_and_what_left_long_ago_is_not() {
        let mut prints = Prints::new(1000);
        (0..100_000).for_each(|handle| prints.put_small(scatter(handle)));
        assert!(prints.small_len() <= 1008 && prints.main_len() == 0, "{}", prints.small_len());
        let is_there = |handle: &u32| prints.find(scatter(*handle)).small;
        let lately = (99_900..100_000).filter(is_there).count();
        let long_ago = (0..50_000).filter(is_there).count();
        assert_eq!(lately, 100);
        assert!(long_ago < 50, "{long_ago}");
        let len = prints.small_len();
        prints.take(scatter(99_999));
        assert!(!prints.find(scatter(99_999)).small && prints.small_len() == len - 1);
    }

    /// A row against a vector.
    #[test]
    fn a_row_does_what_a_vector_does() {
        let (mut row, mut model) = (PrintRow::default(), Vec::new());
        for at in 0..20_000_u64 {
            let drawn = crate::handle::mix(at);
            let [print, marks, which, ..] = drawn.to_le_bytes();
            let print = (u16::from(print % 40) + 1) << 2;
            let place = model.iter().position(|other: &u16| other & !3 == print);
            assert_eq!(row.find(print, 3).map(|at| row.at(at)), place.map(|at| model[at]));
            if which.is_multiple_of(3) {
                assert_eq!(row.take(print, 3), place.is_some());
                place.map(|at| model.remove(at));
            } else {
                let print = print | u16::from(marks % 4);
                assert_eq!(row.put(print), model.len() < WAYS);
                model.insert(0, print);
                model.truncate(WAYS);
            }
        }
    }

    #[test]
    fn how_a_handle_left_is_found_again() {
        let mut prints = Prints::new(1000);
        let leave = |handle: u32| MainLeave {
            rule: if handle.is_multiple_of(2) { VictimRule::LeastUsed } else { VictimRule::Oldest },
            was_hit: handle.is_multiple_of(3),
        };
        (0..200).for_each(|handle| prints.put_main(scatter(handle), leave(handle)));
        let found = |handle: &u32| prints.find(scatter(*handle)).main == Some(leave(*handle));
        assert!((0..200).filter(found).count() >= 199);
        assert_eq!(prints.main_len(), 200);
        (0..200).for_each(|handle| prints.take(scatter(handle)));
        assert_eq!(prints.main_len(), 0);
    }

    #[test]
    fn the_rule_whose_victims_return_less_chooses_most_victims() {
        let mut duel = RuleDuel::new(1000);
        let mut chosen = [0; 2];
        for at in 0..40_000_u32 {
            let rule = duel.next();
            duel.evicted(rule);
            chosen[rule as usize] += 1;
            // One of two victims returns under one rule, one of four under the other; they change places once.
            let worse = if at < 20_000 { VictimRule::LeastUsed } else { VictimRule::Oldest };
            if at.is_multiple_of(if rule == worse { 2 } else { 4 }) {
                duel.returned(rule);
            }
            if at == 19_999 {
                assert!(chosen[0] < 2_000 && chosen[1] > 18_000, "{chosen:?}");
            }
        }
        assert!(chosen[0] > 18_000, "{chosen:?}");
        assert!(chosen[1] > 18_000, "{chosen:?}");
    }
}
