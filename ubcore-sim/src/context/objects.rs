//! What the driver has made: numbers given out, and which object depends on which.
//!
//! *Owns*: the books of the control plane. *Takes*: creations and destructions. *Gives*: free
//! numbers, "in use" answers. *Must not*: be looked at on the data path.

use std::collections::{BTreeMap, BTreeSet};

use udma_abi::cmd::{CmdQueueKind, Mode};

use crate::limits;
use crate::share::layout::{PULL_SLOT, SEGMENTS, SLOTS};

/// Numbers of one kind.
#[derive(Debug)]
pub(crate) struct IdPool {
    first: u32,
    end: u32,
    next: u32,
    taken: BTreeSet<u32>,
}

impl IdPool {
    /// Numbers from `first` up to and without `end`.
    pub(crate) fn new(first: u32, end: u32) -> Self {
        Self { first, end, next: first, taken: BTreeSet::new() }
    }

    /// A free number, not one that was given back just now if that can be helped.
    pub(crate) fn take(&mut self) -> Option<u32> {
        for _ in self.first..self.end {
            let number = self.next;
            self.next = if number + 1 == self.end { self.first } else { number + 1 };
            if self.taken.insert(number) {
                return Some(number);
            }
        }
        None
    }

    /// The lowest free number: for indices that should stay dense.
    pub(crate) fn take_lowest(&mut self) -> Option<u32> {
        let free = (self.first..self.end).find(|n| !self.taken.contains(n))?;
        self.taken.insert(free);
        Some(free)
    }

    /// This very number; `false` when it is taken.
    pub(crate) fn claim(&mut self, number: u32) -> bool {
        self.taken.insert(number)
    }

    pub(crate) fn give_back(&mut self, number: u32) -> bool {
        self.taken.remove(&number)
    }

    pub(crate) fn contains(&self, number: u32) -> bool {
        self.taken.contains(&number)
    }

    #[cfg(test)]
    pub(crate) fn len(&self) -> usize {
        self.taken.len()
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = u32> + '_ {
        self.taken.iter().copied()
    }
}

/// State of a queue in the control plane.
#[derive(Clone, Debug)]
pub(crate) struct QueueRecord {
    pub(crate) kind: CmdQueueKind,
    pub(crate) mode: Mode,
    /// JFCs that it holds a port of.
    pub(crate) jfcs: Vec<u32>,
    pub(crate) sends: bool,
    /// It has a receiving side.
    pub(crate) receives: bool,
    pub(crate) shared_jfr: Option<u32>,
    pub(crate) group: Option<u32>,
    /// Index of its hazard slot.
    pub(crate) slot: Option<u32>,
    /// Jetties that take their receives from it.
    pub(crate) users: u32,
    /// It is being destroyed.
    pub(crate) leaving: bool,
}

/// Objects of the device by number, and what depends on what.
#[derive(Debug)]
pub(crate) struct Objects {
    pub(crate) jfcs: IdPool,
    pub(crate) eqs: IdPool,
    /// Token indices (tid); the value is whether a segment has it.
    pub(crate) tids: IdPool,
    pub(crate) segments: BTreeSet<u32>,
    /// Queue and group ids: one space.
    pub(crate) ids: IdPool,
    pub(crate) queues: BTreeMap<u32, QueueRecord>,
    /// Members of each group.
    pub(crate) groups: BTreeMap<u32, BTreeSet<u32>>,
    pub(crate) slots: IdPool,
}

impl Default for Objects {
    fn default() -> Self {
        let count = |n: usize| u32::try_from(n).unwrap_or(u32::MAX);
        Self {
            jfcs: IdPool::new(0, count(limits::JFC)),
            eqs: IdPool::new(0, count(limits::EQ)),
            tids: IdPool::new(1, count(SEGMENTS)),
            segments: BTreeSet::new(),
            ids: IdPool::new(limits::RESERVED_IDS.1 + 1, 1 << 20),
            queues: BTreeMap::new(),
            groups: BTreeMap::new(),
            // Those of send queues; the first one is the exchange's.
            slots: IdPool::new(count(PULL_SLOT) + 1, count(SLOTS)),
        }
    }
}

impl Objects {
    /// How many queues of a kind there are.
    pub(crate) fn count_of(&self, kind: CmdQueueKind) -> usize {
        self.queues.values().filter(|q| q.kind == kind).count()
    }

    /// The id asked for, or any; `None` when it is taken or none is left.
    pub(crate) fn take_id(&mut self, wanted: u32) -> Option<u32> {
        if wanted == 0 {
            return self.ids.take();
        }
        self.ids.claim(wanted).then_some(wanted)
    }
}

#[cfg(test)]
mod tests {
    use super::IdPool;

    #[test]
    fn numbers_rotate_and_run_out() {
        let mut numbers = IdPool::new(1, 4);
        assert_eq!(numbers.take(), Some(1));
        assert!(numbers.give_back(1));
        assert_eq!(numbers.take(), Some(2), "not the one given back just now");
        assert!(numbers.claim(1));
        assert!(!numbers.claim(1));
        assert_eq!(numbers.take_lowest(), Some(3));
        assert_eq!(numbers.take(), None);
        assert_eq!(numbers.len(), 3);
    }
}
