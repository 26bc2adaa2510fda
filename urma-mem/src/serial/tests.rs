//! Tests of `Serial`. The model: `RUSTFLAGS="--cfg loom" cargo test -p urma-mem --release loom_`.

#[cfg(not(loom))]
mod plain {
    use crate::serial::{ROUNDS_MAX, RunResult, Serial};

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
}

#[cfg(loom)]
mod model {
    use crate::serial::{RunResult, Serial};
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

    /// A brief visit, and a run where it was refused or left a mark.
    #[test]
    fn loom_a_brief_visit_loses_no_mark() {
        posts_are_seen(|serial, visit| match serial.try_brief(&mut *visit) {
            Some(held) if !held.marked => RunResult::Done,
            _ => serial.run(visit),
        });
    }

    #[test]
    #[should_panic(expected = "a mark was")]
    fn loom_catches_a_brief_visit_whose_mark_is_left() {
        posts_are_seen(|serial, visit| match serial.try_brief(&mut *visit) {
            Some(_) => RunResult::Done,
            None => serial.run(visit),
        });
    }

    /// As a brief visit, of one that is ended by hand.
    #[test]
    fn loom_a_visit_by_hand_loses_no_mark() {
        posts_are_seen(|serial, visit| {
            let Some(mut held) = serial.try_visit() else { return serial.run(visit) };
            held.with(&mut *visit);
            match held.end() {
                Ok(()) => RunResult::Done,
                Err(held) => match held.leave() {
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
}
