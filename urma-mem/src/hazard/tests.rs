//! Tests of hazard slots. The model: `RUSTFLAGS="--cfg loom" cargo test -p urma-mem --release loom_`.

#[cfg(not(loom))]
mod plain {
    use crate::hazard::{DrainResult, Generation, HazardSlot, Revoked, drain};
    use crate::region::Region;
    use crate::sync::{AtomicBool, Ordering};

    #[test]
    fn a_generation_lives_while_odd_and_never_repeats() {
        let region = Region::private(4096).unwrap();
        let generation = Generation::new(&region, 64).unwrap();
        assert!(!generation.is_live());
        assert_eq!(generation.revive(), Ok(1));
        assert_eq!(generation.revive(), Ok(3));
        generation.kill().unwrap();
        generation.kill().unwrap();
        assert_eq!(generation.load(), 4);
        assert_eq!(generation.revive(), Ok(5));
        assert!(Generation::new(&region, 4092).is_err());
    }

    #[test]
    fn a_killed_generation_stops_checks_and_waits_for_the_announced() {
        let region = Region::private(4096).unwrap();
        let generation = Generation::new(&region, 64).unwrap();
        let mut slot = HazardSlot::new(&region, 128).unwrap();
        let seen = HazardSlot::new(&region, 128).unwrap();
        let imported = generation.revive().unwrap();
        let announced = slot.announce(9).unwrap();
        assert_eq!(announced.check(&generation, imported), Ok(()));
        generation.kill().unwrap();
        assert_eq!(announced.check(&generation, imported), Err(Revoked));
        let mut looks = 3;
        let drained = drain(
            [&seen],
            |claim| claim == 9,
            || {
                looks -= 1;
                looks > 0
            },
        );
        assert_eq!((drained, looks), (DrainResult::TimedOut, 0));
        assert_eq!(drain([&seen], |claim| claim == 8, || false), DrainResult::Clear);
        assert_eq!(announced.finish(&generation, imported), Err(Revoked));
        assert_eq!(drain([&seen], |claim| claim == 9, || false), DrainResult::Clear);
    }

    #[test]
    #[ignore = "measures; run with --release --ignored --nocapture"]
    #[expect(clippy::disallowed_methods, reason = "a measurement owns its clock")]
    fn measure() {
        let region = Region::private(4096).expect("memory");
        let generation = Generation::new(&region, 64).expect("a word");
        let mut slot = HazardSlot::new(&region, 128).expect("a slot");
        let imported = generation.revive().expect("writable");
        let start = std::time::Instant::now();
        for value in 0..10_000_000 {
            let announced = slot.announce(1).expect("writable");
            announced.check(&generation, imported).expect("live");
            region.store_u64_release(256, value).expect("inside");
            announced.finish(&generation, imported).expect("live");
        }
        println!("{:5.1} ns per guarded store", start.elapsed().as_secs_f64() * 1e9 / 1e7);
    }

    /// A writer hammers while the owner revokes: no store is seen after a clear drain.
    #[test]
    fn no_store_comes_after_a_clear_drain() {
        let region = Region::private(4096).unwrap();
        let generation = Generation::new(&region, 64).unwrap();
        let seen = HazardSlot::new(&region, 128).unwrap();
        let stop = AtomicBool::new(false);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                let mut slot = HazardSlot::new(&region, 128).unwrap();
                let mut value = 0;
                while !stop.load(Ordering::Relaxed) {
                    let imported = generation.load();
                    let announced = slot.announce(1).unwrap();
                    if announced.check(&generation, imported).is_ok() {
                        value += 1;
                        region.store_u64(256, value).unwrap();
                    }
                    let _ = announced.finish(&generation, imported);
                }
            });
            for _ in 0..2000 {
                generation.revive().unwrap();
                std::thread::yield_now();
                generation.kill().unwrap();
                assert_eq!(drain([&seen], |claim| claim == 1, || true), DrainResult::Clear);
                let before = region.load_u64(256).unwrap();
                for _ in 0..50 {
                    assert_eq!(region.load_u64(256), Ok(before));
                }
            }
            stop.store(true, Ordering::Relaxed);
        });
    }
}

#[cfg(loom)]
mod model {
    use std::sync::Arc;

    use crate::hazard::{DrainResult, Generation, HazardSlot, drain};
    use crate::words::model::{Fault, ModelWords};
    use loom::cell::UnsafeCell;

    #[expect(clippy::arc_with_non_send_sync, reason = "the model's cell checks what Sync promises")]
    fn shared_memory() -> Arc<UnsafeCell<u64>> {
        Arc::new(UnsafeCell::new(0))
    }

    /// The memory is a cell whose concurrent use loom reports: the initiator touches it while announced
    /// and checked, the owner after a clear drain.
    fn revocation(fault: Fault, checks: bool, drains: bool) {
        loom::model(move || {
            let table = ModelWords::new(1, fault);
            let half = ModelWords::new(1, fault);
            let generation = Generation::new(&table, 0).unwrap();
            let imported = generation.revive().unwrap();
            let seen = HazardSlot::new(&half, 0).unwrap();
            let memory = shared_memory();
            let (mut slot, theirs, target) =
                (seen.clone(), generation.clone(), Arc::clone(&memory));
            let initiator = loom::thread::spawn(move || {
                for _ in 0..2 {
                    let announced = slot.announce(7).unwrap();
                    if !checks || announced.check(&theirs, imported).is_ok() {
                        target.with_mut(|_| ());
                    }
                    let _ = announced.finish(&theirs, imported);
                }
            });
            generation.kill().unwrap();
            let mut looks = 2;
            let drained = drain(
                [&seen],
                |claim| claim == 7,
                || {
                    looks -= 1;
                    looks > 0
                },
            );
            if drained == DrainResult::Clear || !drains {
                memory.with_mut(|_| ());
            }
            initiator.join().unwrap();
        });
    }

    #[test]
    fn loom_no_store_after_a_clear_drain() {
        revocation(Fault::None, true, true);
    }

    #[test]
    #[should_panic(expected = "Causality violation")]
    fn loom_catches_a_swap_that_orders_nothing() {
        revocation(Fault::SwapNotFenced, true, true);
    }

    #[test]
    #[should_panic(expected = "Causality violation")]
    fn loom_catches_the_missing_check() {
        revocation(Fault::None, false, true);
    }

    #[test]
    #[should_panic(expected = "Causality violation")]
    fn loom_catches_a_revocation_that_does_not_wait() {
        revocation(Fault::None, true, false);
    }
}
