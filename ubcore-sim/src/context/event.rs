//! Event queues: completion events of JFCs, and the asynchronous events of the device.
//!
//! *Owns*: producer side of one ring. *Takes*: events from any thread. *Gives*: entries and
//! interrupts, in the same order. *Must not*: overwrite an entry; lose an event (a full queue refuses, the caller keeps
//! it pending); raise its vector for an entry that the driver cannot see yet.

use std::sync::Arc;

use udma_abi::{Eqe, eqe::EQE_LEN};
use urma_mem::sync::AtomicU32;
use urma_mem::{Region, event::EventWriter};

use super::FunctionId;
use crate::ports::Interrupt;

/// One event ring with its vector.
#[derive(Debug)]
pub(crate) struct EventQueue {
    ring: Region,
    depth: u64,
    pub(crate) owner: FunctionId,
    vector: u16,
    interrupt: Arc<dyn Interrupt>,
    writer: EventWriter,
    /// Number of JFCs that use this queue.
    pub(crate) users: AtomicU32,
}

impl EventQueue {
    /// `ring` holds at least `depth` (a power of two) entries.
    pub(crate) fn new(
        ring: Region,
        depth: u64,
        (owner, vector): (FunctionId, u16),
        interrupt: Arc<dyn Interrupt>,
    ) -> Self {
        let (writer, users) = (EventWriter::new(depth), AtomicU32::new(0));
        Self { ring, depth, owner, vector, interrupt, writer, users }
    }

    /// Writes an event, and raises the vector for it as soon as all before it are written; `false` when the ring is full.
    pub(crate) fn push(&self, event: Eqe) -> bool {
        let Some(at) = self.writer.claim() else { return false };
        self.write(at, event);
        true
    }

    /// Keeps entries and interrupts in the same order.
    pub(crate) fn writer(&self) -> &EventWriter {
        &self.writer
    }

    /// Writes an event to a place that was claimed from the writer.
    pub(crate) fn write(&self, at: u64, event: Eqe) {
        let words = event.encode(self.writer.owner(at));
        let offset = usize::try_from(at % self.depth).unwrap_or(0) * EQE_LEN;
        // The ring's length was checked when it was created.
        let _ = self.ring.store_block_last(offset, &words, 0);
        self.writer.on_stored(at, || self.interrupt.raise(self.vector));
    }

    /// Takes the consumer index (free running, 32 bits). `None`: it is impossible. `Some(true)`: events were refused
    /// before and may fit now.
    pub(crate) fn on_consumed(&self, ci: u32) -> Option<bool> {
        self.writer.on_consumed(ci)
    }
}

#[cfg(test)]
mod tests {
    use urma_mem::sync::{AtomicU64, Ordering};

    use super::*;

    #[derive(Debug, Default)]
    struct Count(AtomicU64);
    impl Interrupt for Count {
        fn raise(&self, _vector: u16) {
            self.0.fetch_add(1, Ordering::Relaxed);
        }
    }

    #[test]
    fn a_full_queue_refuses_and_says_when_to_try_again() {
        let ring = Region::private(64).unwrap();
        let count = Arc::new(Count::default());
        let eq =
            EventQueue::new(ring.clone(), 4, (FunctionId::FIRST, 1), Arc::<Count>::clone(&count));
        for jfcn in 0..4 {
            assert!(eq.push(Eqe::Completion { jfcn }));
        }
        assert!(!eq.push(Eqe::Completion { jfcn: 4 }));
        assert_eq!(count.0.load(Ordering::Relaxed), 4);
        assert_eq!(eq.on_consumed(5), None, "more than was produced");
        assert_eq!(eq.on_consumed(1), Some(true));
        assert!(eq.push(Eqe::Completion { jfcn: 4 }));
        let words = ring.load_block::<2>(0).unwrap();
        assert!(!udma_abi::eqe::owner_of(words[0]), "second pass");
        assert_eq!(Eqe::decode(words), Eqe::Completion { jfcn: 4 });
    }
}
