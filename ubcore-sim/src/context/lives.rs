//! Lives of a number that one queue or JFC has after the other.
//!
//! *Owns*: one word, odd while an object has the number. *Gives*: the current life, and whether it is still the one
//! seen before. *Must not*: repeat a life.

use urma_mem::sync::{AtomicU64, Ordering};

/// Count of beginnings and ends.
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
