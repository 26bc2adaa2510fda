//! Tests of `Serial`. The model: `RUSTFLAGS="--cfg loom" cargo test -p urma-mem --release loom_`.

#[cfg(not(loom))]
mod plain {
    use crate::serial::{ROUNDS_MAX, Run, Serial};

    #[test]
    fn work_runs_at_once_when_nobody_holds() {
        let serial = Serial::new(0);
        assert_eq!(serial.run(|value| *value += 1), Run::Done);
        assert_eq!(serial.into_inner(), 1);
    }

    #[test]
    fn a_mark_made_while_held_runs_before_the_holder_lets_go() {
        let serial = Serial::new(0);
        let mut first = true;
        let run = serial.run(|value| {
            *value += 1;
            if core::mem::take(&mut first) {
                assert_eq!(serial.run(|_| panic!("held")), Run::HandedOver);
            }
        });
        assert_eq!(run, Run::Done);
        assert_eq!(serial.into_inner(), 2);
    }

    #[test]
    fn rounds_are_bounded_and_the_mark_stays() {
        let serial = Serial::new(0);
        let run = serial.run(|value| {
            *value += 1;
            assert!(serial.mark());
        });
        assert_eq!(run, Run::WorkLeft);
        assert!(serial.is_marked());
        assert_eq!(serial.run(|value| assert_eq!(*value, ROUNDS_MAX)), Run::Done);
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
