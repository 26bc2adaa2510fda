//! Our policy as linear scans: queues of handles, fingerprints and counts in plain lists.

use crate::naive::Naive;

/// A slot of the cache with what it holds.
#[derive(Clone, Copy)]
struct Place {
    slot: usize,
    handle: u32,
    hits: u32,
    was_hit: bool,
}

/// A fingerprint of the main queue: the handle's part, whether the oldest slot was taken, whether it was hit.
type MainPrint = (u16, bool, bool);

/// Lists are newest first.
pub(crate) struct NaiveOurs {
    capacity: usize,
    small: Vec<Place>,
    main: Vec<Place>,
    empty: Vec<usize>,
    small_left: Vec<Vec<u16>>,
    main_left: Vec<Vec<MainPrint>>,
    /// Rows of 16 counters.
    counters: Vec<[u8; 16]>,
    counted: usize,
    /// Target size of the small queue in sixteenths of a slot.
    target: usize,
    evicted_by: [u64; 2],
    returned_by: [u64; 2],
    turn: u64,
    hit_left: u64,
    hit_returned: u64,
    evicted: bool,
}

fn scatter(handle: u32) -> u32 {
    let once = (handle ^ (handle >> 16)).wrapping_mul(0x7feb_352d);
    let twice = (once ^ (once >> 15)).wrapping_mul(0x846c_a68b);
    twice ^ (twice >> 16)
}

fn small_print(handle: u32) -> u16 {
    u16::try_from(scatter(handle) % 65536).expect("16 bits").max(1)
}

fn main_print(handle: u32) -> u16 {
    (small_print(handle) / 4 * 4).max(4)
}

impl NaiveOurs {
    pub(crate) fn new(capacity: usize) -> Self {
        let buckets = capacity.div_ceil(16);
        let rows = (16 * capacity).next_power_of_two().max(64) / 16;
        Self {
            capacity,
            small: Vec::new(),
            main: Vec::new(),
            empty: (0..capacity).rev().collect(),
            small_left: vec![Vec::new(); buckets],
            main_left: vec![Vec::new(); buckets],
            counters: vec![[0; 16]; rows],
            counted: 0,
            target: (capacity * 16 / 10).max(16),
            evicted_by: [0; 2],
            returned_by: [0; 2],
            turn: 0,
            hit_left: 1,
            hit_returned: 0,
            evicted: false,
        }
    }

    fn bucket(&self, handle: u32) -> usize {
        usize::try_from((u64::from(scatter(handle)) * self.small_left.len() as u64) >> 32)
            .expect("an index")
    }

    /// The row of a handle, and which four of its counters are its own.
    fn counters_of(&self, handle: u32) -> (usize, [usize; 4]) {
        let scattered = scatter(handle) as usize;
        let own = [0, 1, 2, 3].map(|four| 4 * four + (scattered >> (24 + 2 * four)) % 4);
        (scattered % self.counters.len(), own)
    }

    fn uses(&self, handle: u32) -> u8 {
        let (row, own) = self.counters_of(handle);
        own.into_iter().map(|at| self.counters[row][at]).min().expect("four")
    }

    fn use_once(&mut self, handle: u32) {
        let ((row, own), least) = (self.counters_of(handle), self.uses(handle));
        for at in own {
            if self.counters[row][at] == least && least < 15 {
                self.counters[row][at] += 1;
            }
        }
        self.counted += 1;
        if self.counted == 20 * self.capacity {
            self.counted = 0;
            self.counters.iter_mut().flatten().for_each(|counter| *counter /= 2);
        }
    }

    /// Whether a handle left the small queue, and how it left the main one.
    fn left(&self, handle: u32) -> (bool, Option<MainPrint>) {
        let bucket = self.bucket(handle);
        let main = self.main_left[bucket].iter().find(|print| print.0 == main_print(handle));
        (self.small_left[bucket].contains(&small_print(handle)), main.copied())
    }

    fn forget_left(&mut self, handle: u32) {
        let bucket = self.bucket(handle);
        let (small, main) = (&mut self.small_left[bucket], &mut self.main_left[bucket]);
        if let Some(at) = small.iter().position(|print| *print == small_print(handle)) {
            small.remove(at);
        }
        if let Some(at) = main.iter().position(|print| print.0 == main_print(handle)) {
            main.remove(at);
        }
    }

    fn move_border(&mut self, handle: u32) {
        let (from_small, from_main) = self.left(handle);
        let small: usize = self.small_left.iter().map(Vec::len).sum();
        let main: usize = self.main_left.iter().map(Vec::len).sum();
        if from_small {
            let most = (16 * self.capacity * 4 / 5).max(16);
            self.target = (self.target + (12 * main / small.max(1)).clamp(12, 64)).min(most);
        } else if from_main.is_some() {
            let least = (16 * self.capacity / 100).max(16);
            let step = (12 * small / main.max(1)).clamp(12, 64);
            self.target = self.target.saturating_sub(step).max(least);
        }
    }

    /// The oldest place of the main queue whose hits are used up; up to 256 lose a hit on the way.
    fn next_of_main(&mut self) -> Place {
        for _ in 0..256 {
            let mut oldest = *self.main.last().expect("a place");
            if oldest.hits == 0 {
                break;
            }
            oldest.hits -= 1;
            self.main.pop();
            self.main.insert(0, oldest);
        }
        let mut place = self.main.pop().expect("a place");
        place.hits = 0;
        place
    }

    fn evict_from_main(&mut self) -> usize {
        self.turn += 1;
        let costs = [0, 1].map(|own| self.returned_by[own] * (self.evicted_by[1 - own] + 1));
        let worse = usize::from(costs[0] <= costs[1]);
        let rule = if self.turn.is_multiple_of(16) { worse } else { 1 - worse };
        let candidates = if rule == 0 { self.main.len().min(4) } else { 1 };
        let mut victim = self.next_of_main();
        for _ in 1..candidates {
            let other = self.next_of_main();
            let is_less = self.uses(other.handle) < self.uses(victim.handle);
            let kept = if is_less { std::mem::replace(&mut victim, other) } else { other };
            self.main.insert(0, kept);
        }
        let bucket = self.bucket(victim.handle);
        self.main_left[bucket].insert(0, (main_print(victim.handle), rule == 1, victim.was_hit));
        self.main_left[bucket].truncate(16);
        self.evicted_by[rule] += 1;
        if self.evicted_by[0] + self.evicted_by[1] > 2 * self.capacity as u64 {
            self.evicted_by = self.evicted_by.map(|count| count / 2);
            self.returned_by = self.returned_by.map(|count| count / 2);
        }
        self.hit_left += u64::from(victim.was_hit);
        if self.hit_left > self.capacity as u64 + 8 {
            self.hit_left /= 2;
            self.hit_returned /= 2;
        }
        victim.slot
    }

    fn evict(&mut self) -> usize {
        loop {
            let is_full = 16 * self.small.len() >= self.target;
            if self.small.is_empty() || (!self.main.is_empty() && !is_full) {
                return self.evict_from_main();
            }
            let mut oldest = self.small.pop().expect("a place");
            if oldest.hits < 2 {
                let bucket = self.bucket(oldest.handle);
                self.small_left[bucket].insert(0, small_print(oldest.handle));
                self.small_left[bucket].truncate(16);
                return oldest.slot;
            }
            oldest.hits = 0;
            self.main.insert(0, oldest);
        }
    }

    fn miss(&mut self, handle: u32) {
        self.use_once(handle);
        self.move_border(handle);
        let (from_small, from_main) = self.left(handle);
        if let Some((_, oldest, was_hit)) = from_main {
            self.returned_by[usize::from(oldest)] += 1;
            self.hit_returned += u64::from(was_hit);
        }
        let is_too_small = 4 * self.hit_returned > 3 * self.hit_left;
        let is_used_again =
            from_small || from_main.is_some_and(|(.., was_hit)| was_hit || !is_too_small);
        self.forget_left(handle);
        let slot = self.empty.pop().unwrap_or_else(|| {
            let slot = self.evict();
            self.evicted = true;
            slot
        });
        let new = Place { slot, handle, hits: 0, was_hit: false };
        let destroyed = self.small.iter_mut().chain(&mut self.main);
        if let Some(place) = destroyed.into_iter().find(|place| place.slot == slot) {
            *place = new;
            return;
        }
        let fills = !self.evicted && 16 * self.small.len() >= self.target;
        if is_used_again || fills { &mut self.main } else { &mut self.small }.insert(0, new);
    }
}

impl Naive for NaiveOurs {
    fn access(&mut self, handle: u32) -> bool {
        let is_held = |place: &&mut Place| place.handle == handle;
        let empty = &self.empty;
        let held = |place: &&mut Place| is_held(place) && !empty.contains(&place.slot);
        if let Some(place) = self.small.iter_mut().find(held) {
            (place.hits, place.was_hit) = ((place.hits + 1).min(3), true);
            return true;
        }
        if let Some(place) = self.main.iter_mut().find(held) {
            let is_first = place.hits == 0;
            (place.hits, place.was_hit) = ((place.hits + 1).min(3), true);
            if is_first {
                self.use_once(handle);
            }
            return true;
        }
        self.miss(handle);
        false
    }

    /// The place stays where it is, without hits, until another handle gets it.
    fn destroy(&mut self, handle: u32) {
        let empty = &self.empty;
        let mut places = self.small.iter_mut().chain(&mut self.main);
        let held = places.find(|place| place.handle == handle && !empty.contains(&place.slot));
        if let Some(place) = held {
            place.hits = 0;
            let slot = place.slot;
            self.empty.push(slot);
        }
    }
}
