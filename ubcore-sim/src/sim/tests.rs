//! Tests of the fabric itself; the simulation of the whole stack tests the devices on it.

use udma_abi::{DeviceBacking, regs};

use super::*;

fn fabric(seed: u64) -> std::sync::Arc<Fabric> {
    Fabric::new(FabricCfg::new(seed, 3, HostSharing::Mixed)).expect("memory")
}

#[test]
fn time_moves_only_by_steps_and_the_same_way_for_a_seed() {
    let times = |seed| {
        let fabric = fabric(seed);
        let before = fabric.now();
        assert_eq!(fabric.now(), before);
        (0..100)
            .map(|_| {
                fabric.step_nodes();
                fabric.now()
            })
            .collect::<Vec<_>>()
    };
    assert_eq!(times(1), times(1));
    assert!(times(1).windows(2).all(|pair| pair[0] < pair[1]));
}

#[test]
fn waiting_ends_at_its_bound() {
    let fabric = fabric(1);
    let start = fabric.now();
    assert!(!fabric.run_until(50_000_000, || false));
    let took = fabric.now() - start;
    assert!((50_000_000..52_000_000).contains(&took), "{took}");
    assert!(fabric.run_until(1, || true));
}

#[test]
fn time_does_not_jump_while_programs_work() {
    let fabric = fabric(1);
    let step = |is_busy| {
        let before = fabric.now();
        fabric.set_programs_work(is_busy);
        fabric.step_nodes();
        fabric.now() - before
    };
    while step(false) < 1_000_000 {}
    assert!((0..50).all(|_| step(true) <= 500));
    assert_eq!(step(false), 1_000_000);
}

#[test]
fn a_killed_node_answers_like_one_that_was_pulled_out() {
    let fabric = fabric(1);
    let backing = fabric.backing(1);
    fabric.kill(1);
    assert_eq!(backing.registers().read(regs::ID), u64::MAX);
    assert!(backing.interrupt(0).is_err());
    fabric.restart(1).expect("memory");
    // The old handle stays dead: it belongs to the earlier incarnation.
    assert_eq!(backing.registers().read(regs::ID), u64::MAX);
    assert!(fabric.backing(1).interrupt(0).is_ok());
    assert_eq!(fabric.device(1).cfg().incarnation, 2);
}

#[test]
fn notes_count_in_the_hash() {
    let [a, b] = [fabric(1), fabric(1)];
    assert_eq!(a.log_hash(), b.log_hash());
    a.note(format_args!("only here"));
    assert_ne!(a.log_hash(), b.log_hash());
    assert!(a.log_text().contains("note only here"));
}

#[test]
fn a_dropped_fabric_leaves_nothing() {
    let fabric = fabric(1);
    let device = std::sync::Arc::downgrade(&fabric.device(0));
    let backing = fabric.backing(0);
    drop((fabric, backing));
    assert!(device.upgrade().is_none());
}
