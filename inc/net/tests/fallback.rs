//! Ranks without switches on loopback: their own programs reduce, until switches come, and when they go.
#![forbid(unsafe_code)]

use std::sync::{Barrier, Mutex};
use std::time::Duration;

use inc::edge::EdgeAttributes;
use inc::element::Operator;
use inc::host::Reducers;
use inc::member::OperationError;
use inc_net::group::{CollectiveError, CommunicatorCfg};
use inc_world::{Network, RANKS, each_rank, wait_until};

const SILENCE: Duration = Duration::from_secs(5);

#[test]
fn sums_have_the_same_bits_without_switches_with_them_and_after_them() {
    let network = Network(44, 11);
    let controller = network.start_controller(SILENCE);
    let switches = Mutex::new(Vec::new());
    let all_are_here = Barrier::new(RANKS.into());
    let sums = each_rank(|rank| {
        let group = network.join(controller.hosts(), rank);
        let communicator = group.communicator(CommunicatorCfg::default()).unwrap();
        // Thirds are rounded otherwise in another order.
        let mine: Vec<f64> =
            (0..3000).map(|at| f64::from(at * 7 + i32::from(rank)) / 3.0).collect();
        let reduced_by = |reducers: Reducers| {
            wait_until("other reducers", || communicator.reducers() == reducers);
            let sum = communicator.allreduce(&mine, Operator::Sum).unwrap();
            assert_eq!(communicator.why().is_some(), reducers == Reducers::Members);
            all_are_here.wait();
            sum
        };
        let before = reduced_by(Reducers::Members);
        let why = communicator.why().unwrap();
        assert!(why.starts_with("no switch that is in service joins rank 0"), "{why}");
        all_are_here.wait();
        if rank == 0 {
            *switches.lock().unwrap() = network.start_switches(controller.switches());
        }
        let with = reduced_by(Reducers::Switches);
        if rank == 0 {
            switches.lock().unwrap().clear();
        }
        [before, with, reduced_by(Reducers::Members)]
    });
    let bits = |sum: &Vec<f64>| sum.iter().map(|value| value.to_bits()).collect::<Vec<_>>();
    for [before, with, after] in &sums {
        for sum in [before, with, after] {
            assert!(bits(sum) == bits(&sums[0][0]), "the same bits on each rank, by each way");
        }
    }
}

#[test]
fn who_wants_no_fallback_waits_for_switches_and_learns_why_there_are_none() {
    let network = Network(44, 12);
    let controller = network.start_controller(SILENCE);
    let attributes = EdgeAttributes { fallback: false, ..EdgeAttributes::DEFAULT };
    let cfg = CommunicatorCfg { attributes, bound: Duration::from_millis(300) };
    let errors = each_rank(|rank| {
        let group = network.join(controller.hosts(), rank);
        let communicator = group.communicator(cfg).unwrap();
        let error = communicator.allreduce(&[1_i32], Operator::Sum).unwrap_err();
        assert_eq!(communicator.reducers(), Reducers::None);
        error
    });
    for error in errors {
        let CollectiveError::Operation { error, why } = &error else { panic!("{error}") };
        assert!(matches!(error, OperationError::Timeout(_)), "{error}");
        assert!(why.starts_with("no switch that is in service joins rank 0"), "{why}");
    }
}
