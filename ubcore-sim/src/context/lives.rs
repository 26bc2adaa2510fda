//! Lives of a number that queues or JFCs have one after the other.
//!
//! *Owns*: one word, odd while an object has the number. *Gives*: the present life, and whether it is
//! still the one seen before. *Must not*: repeat a life.

use urma_mem::sync::{AtomicU64, Ordering};

/// Count of beginnings and ends.
#[derive(Debug, Default)]
pub(crate) struct Lives(AtomicU64);

impl Lives {
    /// An object has the number from now on; everything of it is stored.
    pub(crate) fn begin(&self) {
        self.0.store(self.now() | 1, Ordering::SeqCst);
    }

    /// No object has it any more; without one nothing changes.
    pub(crate) fn end(&self) {
        let now = self.now();
        self.0.store(now + (now & 1), Ordering::SeqCst);
    }

    /// The present life; `None`: no object has the number.
    pub(crate) fn seen(&self) -> Option<u64> {
        Some(self.now()).filter(|life| life & 1 == 1)
    }

    /// Whether the life that was seen goes on.
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
    use super::Lives;

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
