//! Bytes: what memory may look like while requests are under traffic.
//!
//! *Owns*: one initiator's area at one target: the state that is known, the changes outstanding in
//! posting order. *Takes*: what is posted, what completed, what memory holds. *Gives*: a complaint
//! for any byte that no prefix of the changes explains. *Must not*: depend on paths or packets.
//!
//! Order is kept per (jetty, target), and each jetty has an area of its own at each target. So
//! memory is at any time: all changes up to some one, and of the next one some bytes; its last 8
//! only when all others are there. One freedom remains to the device: an answer may be gathered
//! late, so what changes bytes that a read outstanding asked for carries a fence (UB Base
//! Specification 2.0.1, 7.3).

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::ops::Range;

/// Bytes of the area that one jetty owns at one target.
pub(super) const AREA_LEN: usize = 16 << 10;
/// 8-byte words at the front of an area that atomics and notifications use.
pub(super) const WORDS: usize = 16;
/// Bytes at the end of a message that become visible last.
const TAIL: usize = 8;
/// Changes that are remembered for telling what went wrong.
const STORY: usize = 64;

/// What a request does to its area.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum Effect {
    Write {
        at: usize,
        bytes: Vec<u8>,
    },
    /// Changes a word as a whole.
    Word {
        word: usize,
        op: WordOp,
    },
    Read(Range<usize>),
}

/// A change of an 8-byte word.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum WordOp {
    Add(u64),
    Xor(u64),
    Set(u64),
    /// Stores `swap` over `compare`.
    Cas {
        compare: u64,
        swap: u64,
    },
}

impl WordOp {
    const fn apply(self, old: u64) -> u64 {
        match self {
            Self::Add(value) => old.wrapping_add(value),
            Self::Xor(value) => old ^ value,
            Self::Set(value) => value,
            Self::Cas { compare, swap } => {
                if old == compare {
                    swap
                } else {
                    old
                }
            }
        }
    }
}

impl Effect {
    /// Whether it changes nothing.
    pub(super) const fn is_read(&self) -> bool {
        matches!(self, Self::Read(_))
    }

    /// Bytes that it touches.
    pub(super) fn range(&self) -> Range<usize> {
        match self {
            Self::Write { at, bytes } => *at..at + bytes.len(),
            Self::Word { word, .. } => word * 8..word * 8 + 8,
            Self::Read(range) => range.clone(),
        }
    }
}

/// One jetty's view of one target.
#[derive(Clone, Debug)]
pub(super) struct Area {
    /// Everything before `steps` is done, nothing of them but part of the first one.
    state: Vec<u8>,
    /// Outstanding: request and effect.
    steps: VecDeque<(u64, Effect)>,
    /// Steps that their target may refuse: from some one of them on, it refuses all.
    refusable: BTreeSet<u64>,
    /// What requests up to here bring back.
    brought: BTreeMap<u64, Vec<u8>>,
    /// The last steps done.
    story: VecDeque<(u64, Range<usize>)>,
}

impl Default for Area {
    fn default() -> Self {
        Self {
            state: vec![0; AREA_LEN],
            steps: VecDeque::new(),
            refusable: BTreeSet::new(),
            brought: BTreeMap::new(),
            story: VecDeque::new(),
        }
    }
}

impl Area {
    /// Request `number` will do this, after all before it.
    pub(super) fn push(&mut self, number: u64, effect: Effect) {
        self.steps.push_back((number, effect));
    }

    /// Whether anything is under traffic.
    pub(super) fn is_busy(&self) -> bool {
        !self.steps.is_empty()
    }

    /// The value of `word` once everything outstanding is done.
    pub(super) fn word(&self, word: usize) -> u64 {
        let mut area = self.clone();
        while area.advance() {}
        area.load(word)
    }

    /// What request `number`, which completed, has to bring back.
    pub(super) fn take_brought(&mut self, number: u64) -> Option<Vec<u8>> {
        let found = self.brought.remove(&number);
        // Those before it will not be asked for any more.
        self.brought = self.brought.split_off(&number);
        found
    }

    /// Their receiver is gone: from some one of `numbers` on, the target refuses these, and not what stands
    /// between them.
    pub(super) fn may_refuse(&mut self, numbers: impl IntoIterator<Item = u64>) {
        self.refusable.extend(numbers);
    }

    /// Memory holds `found`; every request up to `done` is placed.
    ///
    /// # Errors
    /// No prefix of the steps explains it.
    pub(super) fn observe(&mut self, found: &[u8], done: u64) -> Result<(), String> {
        let refusable = self.steps.iter().map(|(number, _)| *number);
        let first_refused: Vec<_> = refusable.filter(|n| self.refusable.contains(n)).collect();
        for first in first_refused {
            let mut without = self.clone();
            without.steps.retain(|(n, _)| *n < first || !self.refusable.contains(n));
            if without.observe_prefix(found, done).is_ok() {
                return Ok(());
            }
        }
        self.observe_prefix(found, done)
    }

    /// [`Area::observe`], with nothing refused.
    fn observe_prefix(&mut self, found: &[u8], done: u64) -> Result<(), String> {
        loop {
            let is_due = self.steps.front().is_some_and(|(number, _)| *number <= done);
            if is_due {
                self.advance();
                continue;
            }
            if found == self.state {
                return Ok(());
            }
            match self.steps.front() {
                Some((_, Effect::Write { at, bytes })) if self.is_part(found, *at, bytes) => {
                    return Ok(());
                }
                Some(_) => self.advance(),
                None => return Err(self.complaint(found)),
            };
        }
    }

    /// Nothing outstanding will change anything any more: memory is what it is.
    pub(super) fn fix(&mut self, found: &[u8]) {
        self.state.copy_from_slice(found);
        self.steps.clear();
        self.refusable.clear();
        self.brought.clear();
    }

    /// Does the next step; whether there was one.
    fn advance(&mut self) -> bool {
        let Some((number, effect)) = self.steps.pop_front() else { return false };
        let range = effect.range();
        match effect {
            Effect::Write { bytes, .. } => self.state[range.clone()].copy_from_slice(&bytes),
            Effect::Read(_) => {
                self.brought.insert(number, self.state[range.clone()].to_vec());
            }
            Effect::Word { word, op } => {
                let old = self.load(word);
                self.brought.insert(number, old.to_le_bytes().to_vec());
                self.state[range.clone()].copy_from_slice(&op.apply(old).to_le_bytes());
            }
        }
        if self.story.len() == STORY {
            self.story.pop_front();
        }
        self.story.push_back((number, range));
        true
    }

    /// Whether `found` is the state with some bytes of a write, but not its last ones too early.
    fn is_part(&self, found: &[u8], at: usize, bytes: &[u8]) -> bool {
        let end = at + bytes.len();
        let outside = found[..at] == self.state[..at] && found[end..] == self.state[end..];
        let (old, found) = (&self.state[at..end], &found[at..end]);
        let tail = bytes.len().saturating_sub(TAIL);
        let known = |i: usize| found[i] == old[i] || found[i] == bytes[i];
        let ended = found[tail..] != old[tail..];
        outside && (0..bytes.len()).all(known) && (!ended || found[..tail] == bytes[..tail])
    }

    fn load(&self, word: usize) -> u64 {
        let mut bytes = [0; 8];
        bytes.copy_from_slice(&self.state[word * 8..word * 8 + 8]);
        u64::from_le_bytes(bytes)
    }

    fn complaint(&self, found: &[u8]) -> String {
        let at = found.iter().zip(&self.state).position(|(a, b)| a != b).unwrap_or(0);
        let touched = self.story.iter().filter(|(_, range)| range.contains(&at));
        let lines = touched.map(|(number, range)| format!("  {number} {range:?}\n"));
        format!(
            "byte {at} is not as any prefix of the requests left it\n{}",
            lines.collect::<String>()
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn area() -> Area {
        let mut area = Area::default();
        area.push(1, Effect::Write { at: 200, bytes: vec![1; 20] });
        area.push(2, Effect::Read(200..204));
        area.push(3, Effect::Word { word: 0, op: WordOp::Add(5) });
        area.push(4, Effect::Write { at: 210, bytes: vec![2; 20] });
        area
    }

    fn memory(parts: &[(Range<usize>, u8)]) -> Vec<u8> {
        let mut bytes = vec![0; AREA_LEN];
        for (range, value) in parts {
            bytes[range.clone()].fill(*value);
        }
        bytes
    }

    #[test]
    fn every_prefix_is_right() {
        let prefixes: [&[(Range<usize>, u8)]; 5] = [
            &[],
            &[(200..207, 1)],
            &[(200..220, 1)],
            &[(200..220, 1), (0..1, 5)],
            &[(200..220, 1), (0..1, 5), (210..230, 2)],
        ];
        let mut all = area();
        for prefix in prefixes {
            assert_eq!(all.observe(&memory(prefix), 0), Ok(()), "{prefix:?}");
        }
        assert_eq!(all.take_brought(2), Some(vec![1; 4]));
    }

    #[test]
    fn what_no_prefix_explains_is_seen() {
        let wrong: [&[(Range<usize>, u8)]; 8] = [
            &[(219..220, 1)],
            &[(200..201, 9)],
            &[(500..501, 1)],
            &[(199..201, 1)],
            &[(200..221, 1)],
            &[(210..230, 2)],
            &[(200..219, 1), (0..1, 5)],
            &[(200..220, 1), (0..1, 4)],
        ];
        for parts in wrong {
            let text = area().observe(&memory(parts), 0).expect_err("no prefix");
            assert!(text.contains("is not as any prefix"), "{parts:?}: {text}");
        }
        // The message names the requests that touched the byte.
        let text = area().observe(&memory(&[(200..219, 1)]), 4).expect_err("no prefix");
        assert!(text.starts_with("byte 0 ") && text.contains("  3 0..8"), "{text}");
    }

    #[test]
    fn what_completed_must_be_there_and_stays() {
        assert!(area().observe(&memory(&[]), 1).is_err());
        let mut done = area();
        assert_eq!(done.observe(&memory(&[(200..220, 1)]), 2), Ok(()));
        assert!(done.observe(&memory(&[]), 0).is_err(), "it was there before");
    }

    #[test]
    fn what_requests_bring_is_as_it_was_in_their_turn() {
        let ops = [
            (WordOp::Add(u64::MAX), 7 - 1),
            (WordOp::Xor(5), 7 ^ 5),
            (WordOp::Set(9), 9),
            (WordOp::Cas { compare: 7, swap: 3 }, 3),
            (WordOp::Cas { compare: 8, swap: 3 }, 7),
        ];
        for (op, after) in ops {
            let mut area = Area::default();
            area.push(1, Effect::Word { word: 2, op: WordOp::Set(7) });
            area.push(2, Effect::Word { word: 2, op });
            area.push(3, Effect::Read(16..17));
            assert_eq!(area.word(2), after, "{op:?}");
            let found = memory(&[(16..17, u8::try_from(after).expect("small"))]);
            assert_eq!(area.observe(&found, 3), Ok(()), "{op:?}");
            assert_eq!(area.take_brought(2), Some(vec![7, 0, 0, 0, 0, 0, 0, 0]), "{op:?}");
            assert_eq!(area.take_brought(3), Some(found[16..17].to_vec()), "{op:?}");
            assert_eq!(area.take_brought(1), None, "a later one was asked for");
        }
    }

    #[test]
    fn from_some_one_on_those_whose_receiver_is_gone_may_be_missing() {
        let later = [(0..1, 5), (210..230, 2)];
        assert!(area().observe(&memory(&later), 0).is_err());
        let mut refused = area();
        refused.may_refuse([1]);
        assert_eq!(refused.observe(&memory(&later), 0), Ok(()));
        assert_eq!(refused.observe(&memory(&[(200..207, 1)]), 0), Ok(()), "or not");
        assert!(
            refused.observe(&memory(&[(210..230, 2)]), 0).is_err(),
            "what is no message is there"
        );
        let mut both = area();
        both.may_refuse([1, 4]);
        assert_eq!(both.observe(&memory(&later[..1]), 0), Ok(()));
        assert!(both.observe(&memory(&later), 0).is_err(), "none after the first that is refused");
        both.fix(&memory(&later));
        both.push(1, Effect::Write { at: 300, bytes: vec![1; 20] });
        assert!(both.observe(&memory(&later), 1).is_err(), "all are known again");
    }

    #[test]
    fn what_is_fixed_stays() {
        let mut broken = area();
        let found = memory(&[(205..206, 3)]);
        broken.fix(&found);
        assert!(!broken.is_busy());
        assert_eq!(broken.observe(&found, 9), Ok(()));
        assert!(broken.observe(&memory(&[(200..220, 1)]), 0).is_err(), "none moves any more");
        assert_eq!(broken.take_brought(2), None);
    }
}
