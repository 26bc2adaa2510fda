//! Tests of the leases of threads. The model: `RUSTFLAGS="--cfg loom" cargo test -p urma-mem --release loom_`.

use super::*;

#[cfg(not(loom))]
mod plain {
    use super::*;
    use crate::RunResult;

    /// A value that this thread has leased; `None`: the kernel has no barrier for it.
    fn leased<T>(value: T) -> Option<Serial<T>> {
        if !asymmetric::is_available() {
            urma_skip::skip("the kernel has no membarrier for a process");
            return None;
        }
        let serial = Serial::new(value);
        lease(&serial);
        Some(serial)
    }

    /// Gives this thread a lease, which it has not yet.
    fn lease<T>(serial: &Serial<T>) {
        assert!(serial.visit_blocking().lease_to(ThisThread::now()).is_ok());
    }

    /// A visit by the lease of this thread; an entry that lost it is given up.
    fn enter<T>(serial: &Serial<T>) -> Option<ThreadVisit<'_, T>> {
        match serial.try_leased(ThisThread::now()) {
            OwnerEntry::Visit(visit) => Some(visit),
            OwnerEntry::Refused => None,
            OwnerEntry::Taken(entry) => {
                // No thread marks these values.
                let _ = entry.finish();
                None
            }
        }
    }

    /// Runs `f` in another thread, which ends.
    fn elsewhere<R: Send>(f: impl FnOnce() -> R + Send) -> R {
        std::thread::scope(|scope| scope.spawn(f).join().unwrap())
    }

    #[test]
    fn each_thread_has_a_number_of_its_own() {
        let here = ThisThread::now().number();
        assert_eq!(ThisThread::now().number(), here);
        assert_ne!(elsewhere(|| ThisThread::now().number()), here);
        assert!(here != 0 && here & LOW_BITS == 0, "{here:#x}");
    }

    #[test]
    fn a_thread_enters_by_its_lease_until_another_one_takes_it() {
        let Some(serial) = leased(0) else { return };
        for _ in 0..3 {
            let mut held = enter(&serial).unwrap();
            held.with(|value| *value += 1);
            assert!(enter(&serial).is_none(), "a visit within a visit");
            assert!(held.end().is_ok());
        }
        assert!(serial.try_visit().is_none(), "it is held all the time");
        elsewhere(|| {
            assert!(enter(&serial).is_none(), "the lease is of another thread");
            serial.visit_blocking().with(|value| *value += 1);
        });
        assert!(enter(&serial).is_none() && !serial.is_leased());
        lease(&serial);
        drop(enter(&serial).unwrap());
        // It takes its own lease, too.
        let held = serial.visit_blocking();
        assert!(enter(&serial).is_none());
        drop(held);
        assert_eq!(serial.into_inner(), 4);
    }

    #[test]
    fn any_thread_may_follow_as_long_as_there_are_terms() {
        let Some(serial) = leased(0) else { return };
        let is_leased = |serial: &Serial<i32>| {
            lease(serial);
            enter(serial).is_some()
        };
        for _ in 0..100 {
            assert!(is_leased(&serial), "the same thread needs no other term");
        }
        let (there, back) = (elsewhere(|| is_leased(&serial)), is_leased(&serial));
        assert!(there && back);
        let mut all = (0..TERMS).map(|_| {
            let there = elsewhere(|| is_leased(&serial));
            there && is_leased(&serial)
        });
        assert!(!all.all(|leased| leased), "an announcement is shared");
        assert!(serial.visit_blocking().end().is_ok(), "it goes on without leases");
    }

    #[test]
    fn a_value_that_was_claimed_is_leased_to_no_thread() {
        if !asymmetric::is_available() {
            return urma_skip::skip("the kernel has no membarrier for a process");
        }
        let serial = Serial::new(0);
        let owner = serial.claim().unwrap();
        lease(&serial);
        assert!(enter(&serial).is_none() && !serial.is_leased());
        serial.disown(&owner);
        lease(&serial);
        assert!(enter(&serial).is_some() && serial.claim().is_none());
    }

    #[test]
    fn a_mark_under_a_lease_is_the_threads_when_it_leaves() {
        let Some(serial) = leased(0) else { return };
        let held = enter(&serial).unwrap();
        elsewhere(|| assert_eq!(serial.run(|_| panic!("held")), RunResult::HandedOver));
        let Err(end) = held.end() else { panic!("the mark is not seen") };
        assert!(end.finish());
        // A mark refuses the lease.
        let held = serial.visit_blocking();
        elsewhere(|| assert!(serial.mark()));
        assert!(held.lease_to(ThisThread::now()).is_err_and(VisitEnd::finish));
        assert!(enter(&serial).is_none());
        assert_eq!(serial.run(|value| *value += 1), RunResult::Done);
    }

    /// Threads that use the value in turn and at once, each with leases as it gets them.
    #[test]
    fn threads_that_lease_a_value_count_every_visit() {
        let Some(serial) = leased(0_u64) else { return };
        const VISITS: u64 = 50_000;
        std::thread::scope(|scope| {
            for _ in 0..3 {
                scope.spawn(|| {
                    for visit in 0..VISITS {
                        if let Some(mut held) = enter(&serial) {
                            held.with(|count| *count += 1);
                            continue;
                        }
                        let mut held = serial.visit_blocking();
                        held.with(|count| *count += 1);
                        let is_due = visit % 16 == 0;
                        let end =
                            if is_due { held.lease_to(ThisThread::now()) } else { held.end() };
                        if let Err(end) = end {
                            let _ = end.finish();
                        }
                    }
                });
            }
        });
        assert_eq!(serial.into_inner(), 3 * VISITS);
    }
}

#[cfg(loom)]
mod model {
    use super::*;
    use crate::serial::{HELD, LEASED, PASSED, TERM_STEP};
    use std::sync::Arc;

    const FIRST: ThisThread = ThisThread::of_number(TERM_STEP);
    const NEXT: ThisThread = ThisThread::of_number(2 * TERM_STEP);

    /// A mistake of the model.
    #[derive(Clone, Copy, PartialEq, Eq)]
    enum Planted {
        None,
        /// A thread does not look at the owner again behind its announcement.
        NoLook,
        /// The next owner has the term of the first one.
        SameTerm,
        /// A late thread keeps what was passed on to the owner of a later term.
        Keeps,
        /// The owner is not shown that its lease is taken.
        Unseen,
    }

    impl Serial<u32> {
        fn try_leased_with(
            &self,
            thread: ThisThread,
            planted: Planted,
        ) -> OwnerEntry<'_, u32, ThreadVisit<'_, u32>> {
            if planted != Planted::NoLook {
                return self.try_leased(thread);
            }
            let owner = self.owner.load(Ordering::Relaxed);
            let Some(term) = leased_term(owner, thread) else { return OwnerEntry::Refused };
            self.inside_of(term).store(1, Ordering::Relaxed);
            asymmetric::light();
            OwnerEntry::Visit(ThreadVisit { serial: self, term })
        }

        /// A visit by a lease, if there is one.
        fn enter(&self, thread: ThisThread, planted: Planted) {
            match self.try_leased_with(thread, planted) {
                OwnerEntry::Visit(mut held) => {
                    held.with(|count| *count += 1);
                    if planted != Planted::Keeps {
                        return;
                    }
                    let term = held.term;
                    core::mem::forget(held);
                    if !self.leave_term(term) {
                        self.keep();
                    }
                }
                OwnerEntry::Refused => {}
                OwnerEntry::Taken(TakenEntry { term, .. }) if planted == Planted::Keeps => {
                    self.inside_of(term).store(0, Ordering::Release);
                    self.keep();
                }
                OwnerEntry::Taken(entry) => {
                    // No thread marks the value.
                    let _ = entry.finish();
                }
            }
        }

        /// Takes over what was passed on to any owner, works, and lets go.
        fn keep(&self) {
            crate::sync::fence(Ordering::SeqCst);
            if self.state.load(Ordering::Acquire) & PASSED != 0 && self.clears_passed() {
                self.visit(|count| *count += 1);
                let _ = self.let_go();
            }
        }

        /// A visit if the value is free or leased and its owner outside; whether it was.
        fn take(&self, planted: Planted, work: impl FnOnce(SerialVisit<'_, u32>)) -> bool {
            let before = self.state.fetch_or(HELD, Ordering::AcqRel);
            let is_held = before & HELD == 0
                || before & LEASED != 0 && {
                    if planted == Planted::Unseen { self.take_unseen() } else { self.take_lease() }
                };
            if is_held {
                work(SerialVisit { serial: self, is_leased: false });
            }
            is_held
        }

        fn take_unseen(&self) -> bool {
            if self.state.fetch_and(!LEASED, Ordering::AcqRel) & LEASED == 0 {
                return false;
            }
            asymmetric::heavy();
            self.holds_or_passes()
        }
    }

    /// The first owner visits its lease; the next one takes it, gets one itself and visits that; a third thread takes what
    /// there is. No two of them are inside at once, and afterwards the value is free or leased.
    fn owners_follow_each_other(planted: Planted, preemptions: usize) {
        let mut model = loom::model::Builder::new();
        model.preemption_bound = Some(preemptions);
        model.check(move || {
            let serial = Arc::new(Serial::new(0_u32));
            assert!(serial.try_visit().unwrap().lease_to(FIRST).is_ok());
            let (next, third) = (Arc::clone(&serial), Arc::clone(&serial));
            let next = loom::thread::spawn(move || {
                let is_leased = next.take(planted, |mut held| {
                    held.with(|count| *count += 1);
                    if planted == Planted::SameTerm {
                        next.owner.store(NEXT.number | 1, Ordering::Relaxed);
                        assert!(held.grant().is_ok());
                        return;
                    }
                    assert!(held.lease_to(NEXT).is_ok());
                });
                if is_leased {
                    next.enter(NEXT, planted);
                }
            });
            let third = loom::thread::spawn(move || {
                third.take(planted, |mut held| held.with(|count| *count += 1));
            });
            serial.enter(FIRST, planted);
            next.join().unwrap();
            third.join().unwrap();
            let is_free = serial.take(Planted::None, |held| drop(held));
            assert!(is_free, "a thread holds the value that is gone");
        });
    }

    #[test]
    fn loom_owners_that_follow_each_other_enter_one_by_one() {
        owners_follow_each_other(Planted::None, 5);
    }

    #[test]
    #[should_panic]
    fn loom_catches_a_thread_that_does_not_look_at_the_owner_again() {
        owners_follow_each_other(Planted::NoLook, 3);
    }

    #[test]
    #[should_panic]
    fn loom_catches_owners_with_one_announcement() {
        owners_follow_each_other(Planted::SameTerm, 4);
    }

    #[test]
    #[should_panic]
    fn loom_catches_a_late_thread_that_keeps_what_was_passed_on() {
        owners_follow_each_other(Planted::Keeps, 4);
    }

    #[test]
    #[should_panic]
    fn loom_catches_a_lease_that_is_taken_unseen() {
        owners_follow_each_other(Planted::Unseen, 3);
    }
}
