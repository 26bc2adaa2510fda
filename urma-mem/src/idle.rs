//! Idle polls skip the device: they compare a snapshot of two counts and of the words at which peers write.
//!
//! A poller reads the counts, then steps the device. If the step found nothing, and both counts and those words are
//! unchanged, another step would find nothing either. A change is stored first and counted then: a poller that sees
//! the count sees the change; one that does not sees it in a later poll.

use crate::region::Region;
use crate::spsc::NextPlace;
use crate::sync::{Arc, AtomicU64, Ordering};

/// Most words of peers that an idle snapshot has; with more of them polls step the device.
const PLACES_MAX: usize = 64;

/// Counts that tell pollers that a step may find something.
#[derive(Debug, Default)]
#[repr(align(128))]
pub struct WorkSign {
    /// Changes by any thread.
    raised: AtomicU64,
    /// Visits of the shared part of the device.
    visits: AtomicU64,
}

/// Value of the count of changes, read before a step.
#[derive(Clone, Copy, Debug)]
pub struct RaisedCount(u64);

impl WorkSign {
    /// Counts a change, which was stored before.
    #[inline]
    pub fn raise(&self) {
        self.raised.fetch_add(1, Ordering::Release);
    }

    /// The present count, to be read before a step.
    #[inline]
    #[must_use]
    pub fn raised(&self) -> RaisedCount {
        RaisedCount(self.raised.load(Ordering::Acquire))
    }

    /// Counts a visit, by the thread that holds what is visited.
    #[inline(always)]
    pub fn count_visit(&self) {
        let next = self.visits.load(Ordering::Relaxed).wrapping_add(1);
        self.visits.store(next, Ordering::Release);
    }
}

/// Result of comparing an idle snapshot with the present.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum IdleLook {
    /// A step would find nothing.
    Holds,
    /// A peer wrote an entry, and nothing else changed.
    PeerWrote,
    /// It was ended or never begun, or something changed.
    Over,
}

/// What a poller saw when a step found nothing.
#[derive(Debug, Default)]
pub struct IdleSnapshot {
    is_on: bool,
    /// No step begins it: its poller keeps nothing.
    is_never: bool,
    sign: Option<Arc<WorkSign>>,
    raised: u64,
    visits: u64,
    /// Where the next entry of each peer comes.
    places: Vec<NextPlace>,
}

impl IdleSnapshot {
    /// One that never begins, of a poller that keeps nothing: it notes no places, and so allocates nothing.
    #[must_use]
    pub fn never() -> Self {
        Self { is_never: true, ..Self::default() }
    }

    /// Whether it was begun and not ended.
    #[inline(always)]
    #[must_use]
    pub fn is_on(&self) -> bool {
        self.is_on
    }

    /// Whether it goes on: a step would find nothing.
    #[inline(always)]
    #[must_use]
    pub fn holds(&self) -> bool {
        self.look() == IdleLook::Holds
    }

    /// Whether it goes on, and by what it ended if not.
    #[inline(always)]
    #[must_use]
    pub fn look(&self) -> IdleLook {
        let Some(sign) = self.sign.as_ref().filter(|_| self.is_on) else { return IdleLook::Over };
        let is_same = sign.raised.load(Ordering::Acquire) == self.raised
            && sign.visits.load(Ordering::Acquire) == self.visits;
        match is_same {
            true if self.places.iter().any(NextPlace::is_written) => IdleLook::PeerWrote,
            true => IdleLook::Holds,
            false => IdleLook::Over,
        }
    }

    /// Ends it: the next poll takes a step.
    #[inline(always)]
    pub fn end(&mut self) {
        self.is_on = false;
    }

    /// Notes the count of visits and the places of a step that found nothing, by the thread that holds what is
    /// visited. Whether there are not too many.
    #[inline]
    #[expect(single_use_lifetimes, reason = "an elided one is not allowed there")]
    pub fn note<'p>(
        &mut self,
        sign: &WorkSign,
        places: impl Iterator<Item = (&'p Region, usize)>,
    ) -> bool {
        if self.is_never {
            return false;
        }
        self.visits = sign.visits.load(Ordering::Relaxed);
        let mut count = 0;
        for place in places {
            match self.places.get_mut(count) {
                Some(noted) => noted.move_to(place),
                None if count == PLACES_MAX => return false,
                None => self.places.push(NextPlace::new(place)),
            }
            count += 1;
        }
        self.places.truncate(count);
        true
    }

    /// Begins it after a noted step, before which `raised` was read.
    #[inline]
    pub fn begin(&mut self, sign: &Arc<WorkSign>, RaisedCount(raised): RaisedCount) {
        if !self.sign.as_ref().is_some_and(|mine| Arc::ptr_eq(mine, sign)) {
            self.sign = Some(Arc::clone(sign));
        }
        (self.raised, self.is_on) = (raised, true);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[cfg(not(loom))]
    fn begun(sign: &Arc<WorkSign>, places: &[(&Region, usize)]) -> IdleSnapshot {
        let mut idle = IdleSnapshot::default();
        let raised = sign.raised();
        assert!(idle.note(sign, places.iter().copied()));
        assert!(!idle.holds(), "it was not begun");
        idle.begin(sign, raised);
        idle
    }

    #[cfg(not(loom))]
    #[test]
    fn it_ends_with_a_change_a_visit_or_an_entry_of_a_peer() {
        let sign = Arc::new(WorkSign::default());
        let memory = Region::private(4096).unwrap();
        let places = [(&memory, 0), (&memory, 64)];
        let idle = begun(&sign, &places);
        assert!(idle.holds() && idle.holds());
        sign.raise();
        assert!(!idle.holds());
        let idle = begun(&sign, &places);
        sign.count_visit();
        assert!(!idle.holds());
        let idle = begun(&sign, &places);
        memory.store_u64(64, 1).unwrap();
        assert_eq!(idle.look(), IdleLook::PeerWrote);
        sign.raise();
        assert_eq!(idle.look(), IdleLook::Over, "another change too");
        memory.store_u64(64, 0).unwrap();
        let mut idle = begun(&sign, &places);
        assert_eq!(idle.look(), IdleLook::Holds);
        idle.end();
        assert_eq!(idle.look(), IdleLook::Over);
    }

    #[cfg(not(loom))]
    #[test]
    fn one_that_never_begins_notes_nothing() {
        let (sign, memory) = (WorkSign::default(), Region::private(4096).unwrap());
        let mut idle = IdleSnapshot::never();
        assert!(!idle.note(&sign, [(&memory, 0)].into_iter()));
        assert_eq!(idle.places.capacity(), 0);
    }

    #[cfg(not(loom))]
    #[test]
    fn it_looks_at_the_places_noted_last_and_at_a_bounded_number() {
        let sign = Arc::new(WorkSign::default());
        let memory = Region::private(1 << 14).unwrap();
        let mut idle = begun(&sign, &[(&memory, 0), (&memory, 64)]);
        memory.store_u64(0, 1).unwrap();
        assert!(idle.note(&sign, [(&memory, 128)].into_iter()));
        assert!(idle.holds(), "the first place is not its own any more");
        memory.store_u64(128, 1).unwrap();
        assert!(!idle.holds());
        let many = |count: usize| (0..count).map(|at| (&memory, 64 * at));
        assert!(idle.note(&sign, many(PLACES_MAX)));
        assert!(!idle.note(&sign, many(PLACES_MAX + 1)));
    }

    #[cfg(loom)]
    mod model {
        use super::*;
        use crate::Serial;
        use crate::sync::AtomicBool;

        /// A mistake of the model.
        #[derive(Clone, Copy, PartialEq, Eq)]
        enum Planted {
            None,
            /// The poller reads the count after its step.
            ReadLate,
            /// The other thread counts before it stores.
            RaisedEarly,
            /// A visit is not counted.
            VisitUncounted,
        }

        /// A step of the poller, unless an idle snapshot holds. Whether it found the work.
        fn poll(
            planted: Planted,
            (sign, work, serial): (&Arc<WorkSign>, &AtomicBool, &Serial<bool>),
            idle: &mut IdleSnapshot,
        ) -> bool {
            if idle.holds() {
                return false;
            }
            idle.end();
            let before = sign.raised();
            let is_listed = work.load(Ordering::Relaxed);
            let visited = serial.try_with(|left| {
                idle.note(sign, std::iter::empty());
                std::mem::take(left)
            });
            let Some(visited) = visited else { return is_listed };
            let is_found = is_listed || visited.value;
            if !is_found {
                let late = sign.raised();
                idle.begin(sign, if planted == Planted::ReadLate { late } else { before });
            }
            is_found
        }

        fn polls_find_all(planted: Planted) {
            loom::model(move || {
                let sign = Arc::new(WorkSign::default());
                let work = Arc::new(AtomicBool::new(false));
                let serial = Arc::new(Serial::new(false));
                let other = {
                    let (sign, work) = (sign.clone(), work.clone());
                    loom::thread::spawn(move || {
                        if planted == Planted::RaisedEarly {
                            sign.raise();
                            work.store(true, Ordering::Relaxed);
                        } else {
                            work.store(true, Ordering::Relaxed);
                            sign.raise();
                        }
                    })
                };
                let at = (&sign, &*work, &*serial);
                let mut idle = IdleSnapshot::default();
                let mut is_found = poll(planted, at, &mut idle);
                other.join().unwrap();
                is_found |= poll(planted, at, &mut idle);
                assert!(is_found, "work is left and the idle holds");
            });
        }

        fn polls_find_what_a_visit_left(planted: Planted) {
            loom::model(move || {
                let sign = Arc::new(WorkSign::default());
                let work = Arc::new(AtomicBool::new(false));
                let serial = Arc::new(Serial::new(false));
                let other = {
                    let (sign, serial) = (sign.clone(), serial.clone());
                    loom::thread::spawn(move || {
                        let _ = serial.with_blocking(|left| {
                            if planted != Planted::VisitUncounted {
                                sign.count_visit();
                            }
                            *left = true;
                        });
                    })
                };
                let at = (&sign, &*work, &*serial);
                let mut idle = IdleSnapshot::default();
                let mut is_found = poll(planted, at, &mut idle);
                other.join().unwrap();
                is_found |= poll(planted, at, &mut idle);
                assert!(is_found, "work is left and the idle holds");
            });
        }

        #[test]
        fn loom_polls_find_every_change() {
            polls_find_all(Planted::None);
            polls_find_what_a_visit_left(Planted::None);
        }

        #[test]
        #[should_panic(expected = "the idle holds")]
        fn loom_catches_a_count_read_after_the_step() {
            polls_find_all(Planted::ReadLate);
        }

        #[test]
        #[should_panic(expected = "the idle holds")]
        fn loom_catches_a_count_before_the_change() {
            polls_find_all(Planted::RaisedEarly);
        }

        #[test]
        #[should_panic(expected = "the idle holds")]
        fn loom_catches_a_visit_without_a_count() {
            polls_find_what_a_visit_left(Planted::VisitUncounted);
        }
    }
}
