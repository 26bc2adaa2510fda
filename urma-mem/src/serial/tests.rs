//! Tests of `Serial`. The model: `RUSTFLAGS="--cfg loom" cargo test -p urma-mem --release loom_`.

#[cfg(not(loom))]
mod plain {
    use crate::serial::{
        OwnerEntry, ROUNDS_MAX, RunResult, Serial, SerialOwner, SerialVisit, VisitEnd,
    };

    #[test]
    fn work_runs_at_once_when_no_thread_holds() {
        let serial = Serial::new(0);
        assert_eq!(serial.run(|value| *value += 1), RunResult::Done);
        assert_eq!(serial.into_inner(), 1);
    }

    #[test]
    fn a_mark_made_while_held_runs_before_the_holder_lets_go() {
        let serial = Serial::new(0);
        let mut first = true;
        let run = serial.run(|value| {
            *value += 1;
            if core::mem::take(&mut first) {
                assert_eq!(serial.run(|_| panic!("held")), RunResult::HandedOver);
            }
        });
        assert_eq!(run, RunResult::Done);
        assert_eq!(serial.into_inner(), 2);
    }

    #[test]
    fn a_look_decides_unless_there_is_a_mark() {
        let serial = Serial::new(0);
        assert_eq!(serial.run_if(|_| false, |_| panic!("not wanted")), RunResult::Done);
        assert_eq!(serial.run_if(|_| true, |value| *value += 1), RunResult::Done);
        assert!(!serial.mark());
        let run = serial.run_if(|_| panic!("there is a mark"), |value| *value += 1);
        assert_eq!((run, serial.is_marked()), (RunResult::Done, false));
        // A mark of the time of the look.
        let look = |_: &mut _| {
            assert_eq!(serial.run_if(|_| true, |_| panic!("held")), RunResult::HandedOver);
            false
        };
        assert_eq!(serial.run_if(look, |value| *value += 1), RunResult::Done);
        assert_eq!(serial.into_inner(), 3);
    }

    #[test]
    fn a_try_leaves_no_mark_and_does_what_was_marked_meanwhile() {
        let serial = Serial::new(0);
        let first = |value: &mut u32| {
            assert_eq!(serial.try_run(|_| (), |_| panic!("held")), None);
            assert!(serial.mark());
            *value += 1;
            7
        };
        assert_eq!(serial.try_run(first, |value| *value += 1), Some((RunResult::Done, 7)));
        assert!(!serial.mark());
        assert_eq!(serial.try_run(|_| (), |_| panic!("there is a mark")), None);
        assert_eq!(serial.into_inner(), 2);
    }

    #[test]
    fn a_split_run_does_the_rest_once_for_each_mark() {
        let serial = Serial::new(0);
        let run = serial.run_split(|value| *value, |_, _| panic!("there is no mark"));
        assert_eq!(run, (RunResult::Done, Some(0)));
        let first = |value: &mut u32| {
            *value += 1;
            assert_eq!(serial.run_split(|_| (), |_, ()| panic!("held")).0, RunResult::HandedOver);
            0
        };
        let rest = |value: &mut u32, rounds: &mut u32| {
            *value += 1;
            *rounds += 1;
            if *rounds < 3 {
                assert!(serial.mark());
            }
        };
        assert_eq!(serial.run_split(first, rest), (RunResult::Done, Some(3)));
        let endless = |_: &mut u32, rounds: &mut u32| {
            *rounds += 1;
            assert!(serial.mark());
        };
        assert!(!serial.mark());
        let run = serial.run_split(|_| assert!(serial.mark()), |_, ()| assert!(serial.mark()));
        assert_eq!((run.0, serial.is_marked()), (RunResult::WorkLeft, true));
        let first = |_: &mut u32| {
            assert!(serial.mark());
            1
        };
        assert_eq!(serial.run_split(first, endless), (RunResult::WorkLeft, Some(ROUNDS_MAX)));
        assert_eq!(serial.into_inner(), 4);
    }

    #[test]
    fn rounds_are_bounded_and_the_mark_stays() {
        let serial = Serial::new(0);
        let run = serial.run(|value| {
            *value += 1;
            assert!(serial.mark());
        });
        assert_eq!(run, RunResult::WorkLeft);
        assert!(serial.is_marked());
        assert_eq!(serial.run(|value| assert_eq!(*value, ROUNDS_MAX)), RunResult::Done);
        assert!(!serial.is_marked());
    }

    #[test]
    fn a_visit_reports_the_mark_it_found_or_got() {
        let serial = Serial::new(());
        assert!(!serial.try_with(|()| ()).unwrap().marked);
        let held = serial.try_with(|()| assert!(serial.try_with(|()| ()).is_none())).unwrap();
        assert!(!held.marked);
        assert!(serial.try_with(|()| assert!(serial.mark())).unwrap().marked);
        assert!(serial.with_blocking(|()| ()).marked);
    }

    #[test]
    fn a_panicking_visit_lets_go() {
        let serial = Serial::new(());
        let visit = std::panic::AssertUnwindSafe(|| serial.run(|()| panic!("inside")));
        assert!(std::panic::catch_unwind(visit).is_err());
        assert!(serial.try_with(|()| ()).is_some());
    }

    #[test]
    fn all_marks_of_many_threads_are_worked_off() {
        use crate::sync::{AtomicU64, Ordering};
        let (serial, posted) = (Serial::new(0_u64), AtomicU64::new(0));
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    for _ in 0..20_000 {
                        posted.fetch_add(1, Ordering::Relaxed);
                        let _ = serial.run(|seen| *seen = posted.load(Ordering::Relaxed));
                    }
                });
            }
        });
        if serial.is_marked() {
            let _ = serial.run(|seen| *seen = posted.load(Ordering::Relaxed));
        }
        assert_eq!(serial.into_inner(), 80_000);
    }

    /// A visit of the owner; an entry that lost its lease is given up.
    fn visit_of<'s, T>(serial: &'s Serial<T>, owner: &SerialOwner) -> Option<SerialVisit<'s, T>> {
        match serial.try_visit_as(owner) {
            OwnerEntry::Visit(visit) => Some(visit),
            OwnerEntry::Refused => None,
            OwnerEntry::Taken(entry) => {
                // A mark stays.
                let _ = entry.finish();
                None
            }
        }
    }

    /// A value that `owner` has leased; `None`: the kernel has no barrier for it.
    fn leased<T>(value: T) -> Option<(Serial<T>, SerialOwner)> {
        let serial = Serial::new(value);
        let Some(owner) = serial.claim() else {
            urma_skip::skip("the kernel has no membarrier for a process");
            return None;
        };
        assert!(visit_of(&serial, &owner).unwrap().lease(&owner).is_ok());
        assert_eq!(owner.leases(), 1);
        Some((serial, owner))
    }

    #[test]
    fn an_owner_enters_by_its_lease_until_another_one_takes_it() {
        let Some((serial, owner)) = leased(0) else { return };
        for _ in 0..3 {
            let mut held = visit_of(&serial, &owner).unwrap();
            assert!(held.is_leased());
            held.with(|value| *value += 1);
            assert!(visit_of(&serial, &owner).is_none(), "a visit within a visit");
            assert!(held.end().is_ok());
        }
        // What asks for nothing but a free value gets none; a run takes the lease.
        assert!(serial.try_visit().is_none() && serial.is_leased());
        assert_eq!(serial.run(|value| *value += 1), RunResult::Done);
        let held = visit_of(&serial, &owner).unwrap();
        assert!(!held.is_leased());
        assert!(held.lease(&owner).is_ok());
        assert_eq!(owner.leases(), 2);
        assert_eq!(serial.into_inner(), 4);
    }

    #[test]
    fn each_way_to_a_leased_value_takes_the_lease() {
        let ways: [fn(&Serial<u32>); 6] = [
            |serial| assert_eq!(serial.run(|_| ()), RunResult::Done),
            |serial| assert_eq!(serial.run_if(|_| true, |_| ()), RunResult::Done),
            |serial| assert_eq!(serial.run_split(|_| (), |_, ()| ()).0, RunResult::Done),
            |serial| assert!(serial.try_with(|_| ()).is_some()),
            |serial| assert!(!serial.with_blocking(|_| ()).marked),
            |serial| {
                assert!(!serial.mark() && serial.is_marked(), "no thread will see it");
                assert_eq!(serial.run(|_| ()), RunResult::Done);
            },
        ];
        for way in ways {
            let Some((serial, owner)) = leased(0) else { return };
            way(&serial);
            assert!(!serial.is_leased() && !visit_of(&serial, &owner).unwrap().is_leased());
        }
    }

    #[test]
    fn a_mark_under_a_lease_is_the_owners_when_it_leaves() {
        let Some((serial, owner)) = leased(0) else { return };
        let held = visit_of(&serial, &owner).unwrap();
        assert_eq!(serial.run(|_| panic!("held")), RunResult::HandedOver);
        assert!(serial.try_with(|_| ()).is_none());
        let Err(end) = held.end() else { panic!("the mark is not seen") };
        assert!(end.finish());
        assert_eq!(serial.run(|value| *value += 1), RunResult::Done);
        // Without a mark it is free.
        assert!(visit_of(&serial, &owner).unwrap().lease(&owner).is_ok());
        let held = visit_of(&serial, &owner).unwrap();
        assert!(serial.try_with(|_| ()).is_none());
        drop(held);
        assert!(serial.try_visit().is_some());
    }

    #[test]
    fn one_owner_at_a_time_has_leases() {
        let Some((serial, owner)) = leased(0) else { return };
        assert!(serial.claim().is_none());
        let other = Serial::new(0).claim().unwrap();
        assert!(visit_of(&serial, &other).is_none(), "the lease is of another owner");
        serial.disown(&other);
        assert!(serial.claim().is_none());
        serial.disown(&owner);
        let next = serial.claim().unwrap();
        assert!(visit_of(&serial, &owner).is_none(), "it is the owner no more");
        assert!(visit_of(&serial, &next).unwrap().is_leased());
        assert_eq!(serial.run(|_| ()), RunResult::Done);
        let held = visit_of(&serial, &owner).unwrap();
        assert!(held.lease(&owner).is_ok());
        assert!(!visit_of(&serial, &next).unwrap().is_leased(), "who is no owner gets none");
    }

    #[test]
    fn marks_of_many_threads_and_visits_of_an_owner_are_all_worked_off() {
        use crate::sync::{AtomicU64, Ordering};
        let Some((serial, owner)) = leased((0_u64, 0_u64)) else { return };
        let posted = AtomicU64::new(0);
        let see = |seen: &mut (u64, u64)| seen.1 = posted.load(Ordering::Relaxed);
        std::thread::scope(|scope| {
            for _ in 0..2 {
                scope.spawn(|| {
                    for _ in 0..5_000 {
                        posted.fetch_add(1, Ordering::Relaxed);
                        let _ = serial.run(see);
                    }
                });
            }
            let mut visits = 0;
            while visits < 200_000 {
                let Some(mut held) = visit_of(&serial, &owner) else {
                    // Of an entry that was given up, and no other thread may come.
                    if serial.is_marked() {
                        let _ = serial.run(see);
                    }
                    continue;
                };
                held.with(|(count, _)| *count += 1);
                visits += 1;
                if held.lease(&owner).is_err_and(VisitEnd::finish) {
                    let _ = serial.run(see);
                }
            }
        });
        if serial.is_marked() {
            let _ = serial.run(see);
        }
        assert_eq!(serial.into_inner(), (200_000, 10_000));
    }
}

#[cfg(loom)]
mod model {
    use crate::serial::{
        HELD, LEASED, MARKED, OwnerEntry, RunResult, Serial, SerialOwner, SerialVisit,
    };
    use crate::sync::{AtomicU32, Ordering};
    use std::sync::Arc;

    type Visit<'a> = &'a mut dyn FnMut(&mut u32);

    /// Two threads post and run; afterwards all posts were seen by a visit of either thread.
    fn posts_are_seen(run: fn(&Serial<u32>, Visit<'_>) -> RunResult) {
        loom::model(move || {
            let serial = Arc::new(Serial::new(0_u32));
            let posted = Arc::new(AtomicU32::new(0));
            let post = move |serial: &Serial<u32>, posted: &AtomicU32| {
                posted.fetch_add(1, Ordering::Relaxed);
                run(serial, &mut |seen| *seen = posted.load(Ordering::Relaxed))
            };
            let (other_serial, other_posted) = (Arc::clone(&serial), Arc::clone(&posted));
            let other = loom::thread::spawn(move || post(&other_serial, &other_posted));
            let mine = post(&serial, &posted);
            let theirs = other.join().unwrap();
            assert!(
                mine != RunResult::HandedOver || theirs != RunResult::HandedOver,
                "no thread works"
            );
            if mine != RunResult::WorkLeft && theirs != RunResult::WorkLeft {
                assert!(!serial.is_marked(), "a mark was left behind and not handed over");
                let held = serial.try_with(|seen| *seen).expect("no thread holds");
                assert_eq!(held.value, 2, "a mark was lost");
            }
        });
    }

    #[test]
    fn loom_a_mark_is_never_lost() {
        posts_are_seen(|serial, visit| serial.run(visit));
    }

    #[test]
    fn loom_a_split_run_loses_no_mark() {
        posts_are_seen(|serial, visit| {
            let visit = core::cell::RefCell::new(visit);
            let look = |value: &mut u32| (visit.borrow_mut())(value);
            serial.run_split(look, |value, ()| look(value)).0
        });
    }

    /// A visit that is ended by hand, and a run where it was refused or left a mark.
    #[test]
    fn loom_a_visit_by_hand_loses_no_mark() {
        posts_are_seen(|serial, visit| {
            let Some(mut held) = serial.try_visit() else { return serial.run(visit) };
            held.with(&mut *visit);
            match held.end() {
                Ok(()) => RunResult::Done,
                Err(end) => match end.finish() {
                    true => serial.run(visit),
                    false => RunResult::Done,
                },
            }
        });
    }

    #[test]
    #[should_panic(expected = "a mark was")]
    fn loom_catches_a_visit_by_hand_whose_mark_is_left() {
        posts_are_seen(|serial, visit| {
            let Some(mut held) = serial.try_visit() else { return serial.run(visit) };
            held.with(visit);
            let _ = held.leave();
            RunResult::Done
        });
    }

    /// A look that finds nothing does not lose the mark of a thread that posts meanwhile.
    #[test]
    fn loom_a_look_loses_no_mark() {
        loom::model(|| {
            let serial = Arc::new(Serial::new(0_u32));
            let posted = Arc::new(AtomicU32::new(0));
            let (other, post) = (Arc::clone(&serial), Arc::clone(&posted));
            let poster = loom::thread::spawn(move || {
                post.fetch_add(1, Ordering::Relaxed);
                other.run(|seen| *seen = post.load(Ordering::Relaxed))
            });
            let _ = serial.run_if(|_| false, |seen| *seen = posted.load(Ordering::Relaxed));
            let _ = poster.join().unwrap();
            let held = serial.try_with(|seen| *seen).expect("no thread holds");
            assert!(!held.marked, "a mark was left behind");
            assert_eq!(held.value, 1, "a mark was lost");
        });
    }

    #[test]
    #[should_panic(expected = "a mark was")]
    fn loom_catches_a_holder_that_does_not_look_again() {
        posts_are_seen(|serial, visit| serial.run_without_last_look(visit));
    }

    /// A visit that is not a run passes the mark on.
    #[test]
    fn loom_a_visitor_learns_of_the_mark() {
        loom::model(|| {
            let serial = Arc::new(Serial::new(0_u32));
            let other = Arc::clone(&serial);
            let poster = loom::thread::spawn(move || other.run(|worked| *worked += 1));
            let visit = serial.try_with(|_| ());
            let posted = poster.join().unwrap();
            let was_marked = visit.is_some_and(|held| held.marked);
            let worked = serial.try_with(|worked| *worked).expect("no thread holds").value;
            assert!(worked == 1 || (was_marked && posted == RunResult::HandedOver));
        });
    }

    /// The visit of an owner that is inside; an entry that lost its lease is given up.
    fn entered(entry: OwnerEntry<'_, u32>) -> Option<SerialVisit<'_, u32>> {
        match entry {
            OwnerEntry::Visit(visit) => Some(visit),
            OwnerEntry::Refused => None,
            OwnerEntry::Taken(entry) => {
                // A mark stays.
                let _ = entry.finish();
                None
            }
        }
    }

    /// How an owner visits and leaves; whether a mark is left to it.
    type OwnerVisit = fn(&Serial<u32>, &SerialOwner, &mut dyn FnMut(&mut u32)) -> Option<bool>;

    fn visit_as(
        serial: &Serial<u32>,
        owner: &SerialOwner,
        visit: &mut dyn FnMut(&mut u32),
    ) -> Option<bool> {
        let mut held = entered(serial.try_visit_as(owner))?;
        held.with(|value| visit(value));
        Some(held.leave())
    }

    /// An owner that has a lease posts and visits `visits` times; another thread posts and runs, by `take` where it finds
    /// a lease. Afterwards all posts were seen.
    fn posts_under_a_lease_are_seen(
        visits: u32,
        visit_as: OwnerVisit,
        take: fn(&Serial<u32>) -> bool,
    ) {
        let mut model = loom::model::Builder::new();
        model.preemption_bound = Some(4);
        model.check(move || {
            let serial = Arc::new(Serial::new(0_u32));
            let posted = Arc::new(AtomicU32::new(0));
            let owner = serial.claim().expect("the model has barriers");
            assert!(entered(serial.try_visit_as(&owner)).unwrap().lease(&owner).is_ok());
            let (other, post) = (Arc::clone(&serial), Arc::clone(&posted));
            let poster = loom::thread::spawn(move || {
                post.fetch_add(1, Ordering::Relaxed);
                run_taking(&other, |seen| *seen = post.load(Ordering::Relaxed), take)
            });
            let mut is_left = false;
            for _ in 0..visits {
                posted.fetch_add(1, Ordering::Relaxed);
                let mut see = |seen: &mut u32| *seen = posted.load(Ordering::Relaxed);
                match visit_as(&serial, &owner, &mut see) {
                    Some(false) => {}
                    Some(true) | None => is_left |= serial.run(see) == RunResult::HandedOver,
                }
            }
            let theirs = poster.join().unwrap();
            assert!(!serial.is_marked(), "a mark was left behind and not handed over");
            assert!(!(is_left && theirs == RunResult::HandedOver), "no thread works");
            let held = serial.try_with(|seen| *seen).expect("no thread holds");
            assert_eq!(held.value, visits + 1, "a mark was lost");
        });
    }

    /// [`Serial::run`], with `take` instead of [`Serial::take_lease`].
    fn run_taking(
        serial: &Serial<u32>,
        mut visit: impl FnMut(&mut u32),
        take: fn(&Serial<u32>) -> bool,
    ) -> RunResult {
        let before = serial.state.fetch_or(HELD | MARKED, Ordering::AcqRel);
        if before & HELD != 0 && !(before & LEASED != 0 && take(serial)) {
            return RunResult::HandedOver;
        }
        serial.state.fetch_and(!MARKED, Ordering::AcqRel);
        serial.visit(&mut visit);
        if serial.let_go() { RunResult::Done } else { serial.work_on(visit) }
    }

    #[test]
    fn loom_a_lease_loses_no_mark_and_lets_one_in() {
        posts_under_a_lease_are_seen(1, visit_as, Serial::take_lease);
    }

    #[test]
    fn loom_an_owner_that_visits_twice_loses_no_mark() {
        posts_under_a_lease_are_seen(2, visit_as, Serial::take_lease);
    }

    #[test]
    #[should_panic]
    fn loom_catches_a_lease_taken_without_a_barrier() {
        posts_under_a_lease_are_seen(1, visit_as, Serial::take_lease_without_barrier);
    }

    #[test]
    #[should_panic]
    fn loom_catches_a_value_passed_to_an_owner_that_left() {
        posts_under_a_lease_are_seen(1, visit_as, Serial::take_lease_without_last_look);
    }

    #[test]
    #[should_panic]
    fn loom_catches_an_owner_that_does_not_look_for_its_lease() {
        let blind: OwnerVisit = |serial, _, visit| {
            let mut held = entered(serial.try_visit_without_look())?;
            held.with(|value| visit(value));
            Some(held.leave())
        };
        posts_under_a_lease_are_seen(1, blind, Serial::take_lease);
    }

    #[test]
    #[should_panic]
    fn loom_catches_an_owner_that_does_not_take_over() {
        let careless: OwnerVisit = |serial, owner, visit| {
            let mut held = entered(serial.try_visit_as(owner))?;
            held.with(|value| visit(value));
            if held.is_leased() {
                serial.leave_without_taking_over(held);
                return Some(false);
            }
            Some(held.leave())
        };
        posts_under_a_lease_are_seen(1, careless, Serial::take_lease);
    }

    /// Two threads and an owner that visits a leased value: one thread takes the lease; the other one took an earlier lease,
    /// found the owner outside, and goes on by `go_on` only now.
    fn late_takers_let_one_in(go_on: fn(&Serial<u32>) -> bool) {
        let mut model = loom::model::Builder::new();
        model.preemption_bound = Some(3);
        model.check(move || {
            let serial = Arc::new(Serial::new(0_u32));
            let owner = serial.claim().expect("the model has barriers");
            assert!(entered(serial.try_visit_as(&owner)).unwrap().lease(&owner).is_ok());
            let (late, other) = (Arc::clone(&serial), Arc::clone(&serial));
            let late = loom::thread::spawn(move || {
                if go_on(&late) {
                    late.visit(|seen| *seen += 1);
                    // A mark stays for the run at the end.
                    let _ = late.let_go() || late.let_go_marked();
                }
            });
            let other = loom::thread::spawn(move || {
                run_taking(&other, |seen| *seen += 1, Serial::take_lease)
            });
            if visit_as(&serial, &owner, &mut |seen| *seen += 1) != Some(false) {
                let _ = serial.run(|seen| *seen += 1);
            }
            late.join().unwrap();
            let _ = other.join().unwrap();
            let _ = serial.run(|seen| *seen += 1);
            assert!(serial.try_with(|_| ()).is_some(), "a thread holds");
        });
    }

    #[test]
    fn loom_a_late_taker_does_not_enter_beside_an_owner() {
        late_takers_let_one_in(|serial| serial.clears_passed() && serial.holds_or_passes());
    }

    #[test]
    #[should_panic]
    fn loom_catches_a_late_taker_that_does_not_look_again() {
        late_takers_let_one_in(Serial::clears_passed);
    }
}
