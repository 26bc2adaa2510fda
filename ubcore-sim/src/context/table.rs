//! A table by 20-bit id, and the lives of an id that objects have one after the other.
//!
//! Entries, once created, stay until the device goes: nothing is freed before, so a lookup takes two loads and no
//! lock.

use std::sync::OnceLock;

use urma_mem::sync::{AtomicU64, Ordering};

const BLOCK: usize = 256;
const BLOCKS: usize = (1 << 20) / BLOCK;

/// Entries of type `T` by id, created on first use.
#[derive(Debug)]
pub(crate) struct IdTable<T> {
    blocks: Box<[OnceLock<Block<T>>]>,
}

/// Adjacent ids, created together on the first use of one of them.
type Block<T> = Box<[OnceLock<T>]>;

impl<T> IdTable<T> {
    pub(crate) fn new() -> Self {
        Self { blocks: (0..BLOCKS).map(|_| OnceLock::new()).collect() }
    }

    /// The entry, if it was ever created.
    #[inline]
    pub(crate) fn get(&self, id: u32) -> Option<&T> {
        let id = id as usize;
        self.blocks.get(id / BLOCK)?.get()?.get(id % BLOCK)?.get()
    }

    /// The entry, created now if need be; `None` for an id beyond 20 bits.
    pub(crate) fn get_or_make(&self, id: u32, make: impl FnOnce() -> T) -> Option<&T> {
        let id = id as usize;
        let block = self
            .blocks
            .get(id / BLOCK)?
            .get_or_init(|| (0..BLOCK).map(|_| OnceLock::new()).collect());
        Some(block.get(id % BLOCK)?.get_or_init(make))
    }

    /// All entries that were ever created.
    pub(crate) fn iter(&self) -> impl Iterator<Item = &T> {
        self.blocks.iter().filter_map(OnceLock::get).flatten().filter_map(OnceLock::get)
    }
}

/// Count of beginnings and ends.
///
/// Odd while an object has the number. A life never comes again, so that who saw one can tell whether it still lasts.
#[derive(Debug, Default)]
pub(crate) struct Lives(AtomicU64);

impl Lives {
    /// Begins a life, after everything of the object is stored.
    pub(crate) fn begin(&self) {
        self.0.store(self.now() | 1, Ordering::SeqCst);
    }

    /// Ends the life; does nothing if there is none.
    pub(crate) fn end(&self) {
        let now = self.now();
        self.0.store(now + (now & 1), Ordering::SeqCst);
    }

    /// The current life; `None`: no object has the number.
    pub(crate) fn seen(&self) -> Option<u64> {
        Some(self.now()).filter(|life| life & 1 == 1)
    }

    /// Whether the life `seen` still lasts.
    #[inline]
    pub(crate) fn is_still(&self, seen: u64) -> bool {
        self.now() == seen
    }

    /// Whether an object has the number.
    #[inline]
    pub(crate) fn is_on(&self) -> bool {
        self.now() & 1 == 1
    }

    #[inline]
    fn now(&self) -> u64 {
        self.0.load(Ordering::Acquire)
    }
}

#[cfg(test)]
mod tests {

    use super::{IdTable, Lives};

    #[test]
    fn entries_appear_once_and_stay() {
        let table = IdTable::new();
        assert!(table.get(1024).is_none());
        assert_eq!(table.get_or_make(1024, || 7), Some(&7));
        assert_eq!(table.get_or_make(1024, || 8), Some(&7));
        assert_eq!(table.get_or_make((1 << 20) - 1, || 9), Some(&9));
        assert_eq!(table.get_or_make(1 << 20, || 9), None);
        assert_eq!(table.iter().copied().collect::<Vec<_>>(), [7, 9]);
    }

    #[test]
    fn every_life_is_another_one() {
        let lives = Lives::default();
        let mut seen = Vec::new();
        for _ in 0..3 {
            lives.begin();
            let life = lives.seen().unwrap();
            assert!(lives.is_on() && lives.is_still(life));
            lives.end();
            lives.end();
            assert!(!lives.is_on() && !lives.is_still(life));
            assert_eq!(lives.seen(), None);
            seen.push(life);
        }
        assert_eq!(seen, [1, 3, 5]);
    }
}
