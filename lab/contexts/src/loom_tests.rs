//! Models of directory entry and slot under every order of memory operations.

use loom::thread;
use urma_mem::sync::{Arc, AtomicU64, Ordering};

use crate::{
    directory::{ContextPlace, DirectoryEntry},
    l1::SlotWord,
    token::SmallOp,
};

/// A context with the value 7 in L2, a slot that another context's 99 was in.
struct MovingContext {
    entry: DirectoryEntry,
    slot: SlotWord,
    l2: AtomicU64,
}

const VALUE: u64 = 7;
const STALE: u64 = 99;

fn scene() -> Arc<MovingContext> {
    let entry = DirectoryEntry::new();
    let absent = entry.read();
    assert!(entry.exchange(absent, absent.moved(ContextPlace::L2, 0, 0)));
    Arc::new(MovingContext { entry, slot: SlotWord::new(STALE), l2: AtomicU64::new(VALUE) })
}

impl MovingContext {
    /// A migration from L2 to the slot; the L2 place is used again afterwards.
    fn migrate(&self) {
        let word = self.entry.read();
        let moving = word.leaving(ContextPlace::ToL1);
        if word.place() != ContextPlace::L2 || !self.entry.exchange(word, moving) {
            return;
        }
        self.slot.install(self.l2.load(Ordering::Acquire));
        // A destroy meanwhile moved the version: what was fetched is dropped.
        if self.entry.exchange(moving, moving.moved(ContextPlace::L1, 0, 0)) {
            self.l2.store(STALE, Ordering::Release);
        }
    }

    fn destroy(&self) {
        loop {
            let word = self.entry.read();
            if self.entry.exchange(word, word.moved(ContextPlace::Absent, 0, 0)) {
                break;
            }
        }
        self.l2.store(STALE, Ordering::Release);
    }

    /// Reads the place that the entry names, and looks at the version again if `looks_again`.
    fn read(&self, looks_again: bool) -> Option<u64> {
        let word = self.entry.read();
        let small = match word.place() {
            ContextPlace::L1 => self.slot.read(),
            ContextPlace::L2 | ContextPlace::ToL1 => self.l2.load(Ordering::Acquire),
            _ => return None,
        };
        let after = self.entry.read();
        (!looks_again || after.version() == word.version()).then_some(small)
    }
}

fn race(looks_again: bool) {
    loom::model(move || {
        let scene = scene();
        let (mover, destroyer) = (Arc::clone(&scene), Arc::clone(&scene));
        let moves = thread::spawn(move || mover.migrate());
        let destroys = thread::spawn(move || destroyer.destroy());
        if let Some(small) = scene.read(looks_again) {
            assert_eq!(small, VALUE, "what is read is the context's own");
        }
        moves.join().unwrap();
        destroys.join().unwrap();
        assert_eq!(scene.entry.read().place(), ContextPlace::Absent);
    });
}

#[test]
fn a_reader_beside_a_migration_and_a_destroy_reads_its_own_context() {
    race(true);
}

#[test]
#[should_panic(expected = "what is read is the context's own")]
fn without_the_second_look_a_reader_reads_another_context() {
    race(false);
}

#[test]
fn updates_of_two_engines_are_both_counted() {
    loom::model(|| {
        let slot = Arc::new(SlotWord::new(0));
        let other = Arc::clone(&slot);
        let adds = thread::spawn(move || other.update(SmallOp::Add(1), || ()).0.is_some());
        let mine = slot.update(SmallOp::Add(2), || ()).0.is_some();
        let others = adds.join().unwrap();
        assert!(mine && others, "four tries are enough for two engines");
        assert_eq!(slot.read(), 3);
    });
}
