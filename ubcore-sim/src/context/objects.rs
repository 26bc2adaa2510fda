//! The objects of the driver: numbers in use, and dependencies between objects.
//!
//! *Owns*: the records of the control plane. *Takes*: creations and destructions. *Gives*: free numbers, "in use"
//! answers. *Must not*: be read on the data path.

use std::collections::{BTreeMap, BTreeSet, btree_map::Entry};

use udma_abi::cmd::{CmdQueueKind, Mode};

use super::function::FunctionId;
use crate::limits;
use crate::share::{PULL_SLOT, SEGMENTS, SLOTS};

/// Numbers of one kind.
#[derive(Debug)]
pub(crate) struct IdPool {
    first: u32,
    end: u32,
    next: u32,
    /// Function that owns each number.
    taken: BTreeMap<u32, FunctionId>,
}

impl IdPool {
    /// Numbers from `first` up to and without `end`.
    pub(crate) fn new(first: u32, end: u32) -> Self {
        Self { first, end, next: first, taken: BTreeMap::new() }
    }

    /// Allocates a free number for a function; avoids one that was freed just now if possible.
    pub(crate) fn take(&mut self, owner: FunctionId) -> Option<u32> {
        for _ in self.first..self.end {
            let number = self.next;
            self.next = if number + 1 == self.end { self.first } else { number + 1 };
            if self.claim(number, owner) {
                return Some(number);
            }
        }
        None
    }

    /// Allocates the lowest free number: for indices that should stay dense.
    pub(crate) fn take_lowest(&mut self, owner: FunctionId) -> Option<u32> {
        let free = (self.first..self.end).find(|n| !self.taken.contains_key(n))?;
        self.claim(free, owner).then_some(free)
    }

    /// Allocates this number; `false`: it is taken.
    pub(crate) fn claim(&mut self, number: u32, owner: FunctionId) -> bool {
        match self.taken.entry(number) {
            Entry::Vacant(free) => {
                free.insert(owner);
                true
            }
            Entry::Occupied(_) => false,
        }
    }

    pub(crate) fn give_back(&mut self, number: u32) -> bool {
        self.taken.remove(&number).is_some()
    }

    /// Whether a function owns the number.
    pub(crate) fn is_of(&self, number: u32, owner: FunctionId) -> bool {
        self.taken.get(&number) == Some(&owner)
    }

    /// The numbers that a function owns.
    pub(crate) fn all_of(&self, owner: FunctionId) -> Vec<u32> {
        self.taken.iter().filter(|(_, of)| **of == owner).map(|(number, _)| *number).collect()
    }

    #[cfg(test)]
    pub(crate) fn len(&self) -> usize {
        self.taken.len()
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = u32> + '_ {
        self.taken.keys().copied()
    }
}

/// State of a queue in the control plane.
#[derive(Clone, Debug)]
pub(crate) struct QueueRecord {
    pub(crate) owner: FunctionId,
    pub(crate) kind: CmdQueueKind,
    pub(crate) mode: Mode,
    /// JFCs of which it has a port.
    pub(crate) jfcs: Vec<u32>,
    pub(crate) sends: bool,
    /// It has a receiving side.
    pub(crate) receives: bool,
    pub(crate) shared_jfr: Option<u32>,
    pub(crate) group: Option<u32>,
    /// Index of its hazard slot.
    pub(crate) slot: Option<u32>,
    /// Requests that it may have outstanding, as charged to the quota.
    pub(crate) work: u64,
    /// Number of jetties that use its receives.
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
    /// Number of queues of a kind.
    pub(crate) fn count_of(&self, kind: CmdQueueKind) -> usize {
        self.queues.values().filter(|q| q.kind == kind).count()
    }

    /// Allocates the wanted id, or any; `None`: it is taken, or none is left.
    pub(crate) fn take_id(&mut self, wanted: u32, owner: FunctionId) -> Option<u32> {
        if wanted == 0 {
            return self.ids.take(owner);
        }
        self.ids.claim(wanted, owner).then_some(wanted)
    }
}

#[cfg(test)]
mod tests {
    use super::{FunctionId, IdPool};

    const A: FunctionId = FunctionId::FIRST;
    const B: FunctionId = FunctionId::new(1);

    #[test]
    fn numbers_rotate_and_run_out() {
        let mut numbers = IdPool::new(1, 4);
        assert_eq!(numbers.take(A), Some(1));
        assert!(numbers.give_back(1));
        assert_eq!(numbers.take(A), Some(2), "not the one given back just now");
        assert!(numbers.claim(1, B));
        assert!(!numbers.claim(1, B));
        assert_eq!(numbers.take_lowest(A), Some(3));
        assert_eq!(numbers.take(A), None);
        assert_eq!(numbers.len(), 3);
        assert_eq!((numbers.all_of(A), numbers.all_of(B)), (vec![2, 3], vec![1]));
        assert!(numbers.is_of(1, B) && !numbers.is_of(1, A) && !numbers.is_of(4, A));
    }
}
