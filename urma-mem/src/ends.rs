//! An epoch: invalidation bumps one count, so that caches compare it instead of a flag of each object.
//!
//! An object that ends stores its flag first and bumps the count then. While the count is the one read before the
//! flags, all flags are as they were read. When it changed, the flags must be read again.

use crate::sync::{AtomicU64, Ordering};

/// Number of objects that ended so far.
#[derive(Debug, Default)]
pub struct EndCount(AtomicU64);

/// The count when the flags were last read, or none.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct SeenEnds(u64);

impl SeenEnds {
    /// The flags were never read: differs from every count.
    pub const NONE: Self = Self(u64::MAX);
}

impl EndCount {
    /// Nothing ended yet; for a count of the process.
    #[cfg(not(loom))]
    #[must_use]
    pub const fn new() -> Self {
        Self(AtomicU64::new(0))
    }

    /// As [`EndCount::seen`], in the one order of ends and of taking a lock: of an end that is counted before its lock is
    /// looked at, and a lock that is taken before this, one side sees the other.
    #[inline(always)]
    #[must_use]
    pub fn seen_in_order(&self) -> SeenEnds {
        SeenEnds(self.0.load(Ordering::SeqCst))
    }

    /// Counts an object whose end is stored.
    #[inline]
    pub fn count(&self) {
        self.0.fetch_add(1, Ordering::SeqCst);
    }

    /// The count now: to be read before the flags are looked at. As long as it stays, so do they.
    #[inline(always)]
    #[must_use]
    pub fn seen(&self) -> SeenEnds {
        SeenEnds(self.0.load(Ordering::Acquire))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[cfg(not(loom))]
    #[test]
    fn every_end_changes_what_was_seen() {
        let ends = EndCount::default();
        let first = ends.seen();
        assert_eq!(first, ends.seen());
        ends.count();
        assert_ne!(first, ends.seen());
        assert_ne!(SeenEnds::NONE, ends.seen());
    }

    #[cfg(loom)]
    mod model {
        use super::*;
        use crate::Serial;
        use crate::sync::{Arc, AtomicBool};

        /// A mistake of the model.
        #[derive(Clone, Copy, PartialEq, Eq)]
        enum Planted {
            None,
            /// The count is read after the flag.
            ReadLate,
            /// The end is counted after the user was visited.
            CountedLate,
        }

        /// The owner of an object ends it, and visits the user, who must not use it after that.
        fn nothing_is_used_after_the_visit(planted: Planted) {
            loom::model(move || {
                let ends = Arc::new(EndCount::default());
                let is_live = Arc::new(AtomicBool::new(true));
                // What the user remembers; the owner's visit leaves a mark in it.
                let user = Arc::new(Serial::new((SeenEnds::NONE, false)));
                let owner = {
                    let (ends, is_live, user) = (ends.clone(), is_live.clone(), user.clone());
                    loom::thread::spawn(move || {
                        is_live.store(false, Ordering::Relaxed);
                        if planted != Planted::CountedLate {
                            ends.count();
                        }
                        let _ = user.with_blocking(|(_, is_visited)| *is_visited = true);
                        if planted == Planted::CountedLate {
                            ends.count();
                        }
                    })
                };
                for _ in 0..2 {
                    let _ = user.try_with(|(seen, is_visited)| {
                        let now = ends.seen();
                        let mut may_use = now == *seen;
                        if !may_use && is_live.load(Ordering::Relaxed) {
                            *seen = if planted == Planted::ReadLate { ends.seen() } else { now };
                            may_use = true;
                        }
                        assert!(!(may_use && *is_visited), "it is used after the visit");
                    });
                }
                owner.join().unwrap();
                let _ = user.try_with(|(seen, _)| {
                    assert!(ends.seen() != *seen, "it is used after the visit");
                });
            });
        }

        #[test]
        fn loom_nothing_is_used_after_its_end() {
            nothing_is_used_after_the_visit(Planted::None);
        }

        #[test]
        #[should_panic(expected = "after the visit")]
        fn loom_catches_a_count_read_after_the_flag() {
            nothing_is_used_after_the_visit(Planted::ReadLate);
        }

        #[test]
        #[should_panic(expected = "after the visit")]
        fn loom_catches_an_end_counted_after_the_visit() {
            nothing_is_used_after_the_visit(Planted::CountedLate);
        }
    }
}
