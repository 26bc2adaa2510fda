//! Groups with a real controller and real switches on loopback: what programs call.
#![forbid(unsafe_code)]
#![expect(clippy::unwrap_used, reason = "a test fails by it")]

use std::sync::Mutex;
use std::time::Duration;

use inc::edge::{EdgeAttributes, MessageMode, Reliability};
use inc::element::Operator;
use inc::member::OperationError;
use inc::wire::{AbortReason, Rank};
use inc_control::ControllerServer;
use inc_net::group::{CollectiveError, Communicator, CommunicatorCfg};
use inc_net::switch::ControlledSwitch;
use inc_world::{Network, each_rank, wait_until};

const SILENCE: Duration = Duration::from_secs(5);

/// Runs a program in each rank; what each returns.
fn ranks<T: Send>(
    network: Network,
    controller: &ControllerServer,
    cfg: CommunicatorCfg,
    program: impl Fn(&Communicator) -> T + Sync,
) -> Vec<T> {
    each_rank(|rank| {
        let group = network.join(controller.hosts(), rank);
        program(&group.communicator(cfg).unwrap())
    })
}

fn values(rank: Rank, count: u16) -> Vec<f64> {
    (0..count).map(|at| f64::from(at) * 0.7 + f64::from(rank.0) / 3.0).collect()
}

#[test]
fn every_collective_gives_its_result_in_each_mode() {
    let network = Network(44, 1);
    let controller = network.start_controller(SILENCE);
    let switches = network.start_switches(controller.switches());
    let small = EdgeAttributes { path_mtu: 1024, packets: 4, ..EdgeAttributes::DEFAULT };
    let attributes = [
        EdgeAttributes::DEFAULT,
        EdgeAttributes { mode: MessageMode::Write, reliability: Reliability::Unreliable, ..small },
    ];
    for attributes in attributes {
        let cfg = CommunicatorCfg { attributes, ..CommunicatorCfg::default() };
        let all = ranks(network, &controller, cfg, |communicator| {
            let rank = communicator.rank();
            let sum = communicator.allreduce(&values(rank, 5000), Operator::Sum).unwrap();
            communicator.barrier().unwrap();
            let whole: Vec<i32> = vec![i32::from(rank.0), 10, -1];
            let reduced = communicator.reduce(&whole, Operator::Max, Rank(2)).unwrap();
            assert_eq!(reduced, if rank == Rank(2) { vec![3, 10, -1] } else { Vec::new() });
            let from_one = communicator.broadcast(&[rank.0, 7], Rank(1)).unwrap();
            assert_eq!(from_one, [1, 7]);
            let gathered = communicator.allgather(&[rank.0; 3]).unwrap();
            assert_eq!(gathered, [0, 0, 0, 1, 1, 1, 2, 2, 2, 3, 3, 3]);
            let blocks: Vec<u64> = (0..8).map(|at| at * 10 + u64::from(rank.0)).collect();
            let scattered = communicator.reduce_scatter(&blocks, Operator::Sum).unwrap();
            let first = u64::from(rank.0) * 2;
            assert_eq!(scattered, [first * 40 + 6, first * 40 + 46]);
            sum
        });
        let near = |at: u16| f64::from(at) * 0.7 * 4.0 + 2.0;
        for sum in &all {
            assert_eq!(sum, &all[0], "the same bits on all ranks");
            assert!((0..5000).zip(sum).all(|(at, found)| (found - near(at)).abs() < 1e-9));
        }
    }
    // Nothing is left when all have gone.
    for switch in switches.iter().flatten() {
        wait_until("a switch gives everything back", || {
            let view = switch.switch().view();
            (view.memory, view.edges) == (0, 0)
        });
    }
}

#[test]
fn ranks_whose_sizes_differ_learn_both_sizes() {
    let network = Network(44, 2);
    let controller = network.start_controller(SILENCE);
    let _switches = network.start_switches(controller.switches());
    let errors = ranks(network, &controller, CommunicatorCfg::default(), |communicator| {
        let count = if communicator.rank() == Rank(3) { 101 } else { 100 };
        communicator.allreduce(&vec![1_i32; count], Operator::Sum).unwrap_err()
    });
    for error in errors {
        let CollectiveError::Operation { error, why } = &error else { panic!("{error}") };
        assert_eq!(*error, OperationError::Aborted(AbortReason::Contradiction));
        assert!(["rank 3", "101", "100"].iter().all(|part| why.contains(part)), "{why}");
    }
}

#[test]
fn a_switch_that_is_lost_midway_changes_no_result() {
    let network = Network(44, 3);
    let controller = network.start_controller(SILENCE);
    let switches = Mutex::new(network.start_switches(controller.switches()));
    // Which ones are in the tree is the controller's business.
    let lose_one = || {
        let used = |switch: &ControlledSwitch| switch.switch().view().edges != 0;
        let mut all = switches.lock().unwrap();
        let at = all.iter().position(|switch| switch.as_ref().is_some_and(used)).unwrap();
        drop(all[at].take());
    };
    let all = ranks(network, &controller, CommunicatorCfg::default(), |communicator| {
        let mut last = Vec::new();
        for round in 0..200_u16 {
            if round == 100 && communicator.rank() == Rank(0) {
                lose_one();
            }
            last = communicator
                .allreduce(&values(communicator.rank(), 500 + round), Operator::Sum)
                .unwrap();
            assert_eq!(last.len(), usize::from(500 + round));
        }
        last
    });
    assert!(all.iter().all(|last| *last == all[0]), "the same bits on all ranks");
}
