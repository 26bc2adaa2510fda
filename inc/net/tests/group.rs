//! Groups with a real controller and real switches on loopback: what programs call.
#![forbid(unsafe_code)]
#![expect(clippy::unwrap_used, reason = "a test fails by it")]

use std::net::{Ipv4Addr, SocketAddr};
use std::thread;
use std::time::Duration;

use inc::controller::ControllerCfg;
use inc::document::read_map;
use inc::edge::{EdgeAttributes, MessageMode, Reliability};
use inc::element::Operator;
use inc::member::OperationError;
use inc::switch::SwitchLimits;
use inc::wire::{AbortReason, Rank};
use inc_control::{ControllerServer, ControllerServerCfg, MemoryStore};
use inc_net::group::{CollectiveError, Communicator, CommunicatorCfg, IncGroup, IncGroupCfg};
use inc_net::switch::{ControlledSwitch, ControlledSwitchCfg};

const LIMITS: SwitchLimits = SwitchLimits { memory: 1 << 28, communicators: 100 };
const RANKS: u16 = 4;

/// A controller, three switches and places for four hosts.
struct World {
    net: u8,
    controller: ControllerServer,
    switches: Vec<Option<ControlledSwitch>>,
}

fn at(net: u8, host: u16) -> SocketAddr {
    SocketAddr::from(([127, 44, net, u8::try_from(host).unwrap()], 4791))
}

impl World {
    fn new(net: u8) -> Self {
        let address = |host| at(net, host).ip();
        let mut map = String::from("nodes:\n");
        for (index, name) in (1..).zip(["root", "left", "right"]) {
            let address = address(index);
            map += &format!("  - {{name: {name}, kind: switch, address: {address}}}\n");
        }
        for rank in 0..RANKS {
            let address = address(100 + rank);
            map += &format!("  - {{name: h{rank}, kind: host, address: {address}}}\n");
        }
        map += "links:\n  - ends: [root, left]\n  - ends: [root, right]\n  - ends: [left, right]\n";
        for rank in 0..RANKS {
            // Two ways to each host, so that a leaf may be lost.
            map += &format!("  - ends: [left, h{rank}]\n  - ends: [right, h{rank}]\n");
        }
        let any = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
        let controller = ControllerServer::start(ControllerServerCfg {
            controller: ControllerCfg { silence_ns: 3_000_000_000, ..ControllerCfg::default() },
            map: read_map(&map).unwrap(),
            hosts: any,
            switches: any,
            store: Box::new(MemoryStore),
            tls: None,
        })
        .unwrap();
        let mut world = Self { net, controller, switches: Vec::new() };
        world.switches = (1..4).map(|host| Some(world.switch(host))).collect();
        world
    }

    fn switch(&self, host: u16) -> ControlledSwitch {
        ControlledSwitch::start(ControlledSwitchCfg {
            address: at(self.net, host),
            limits: LIMITS,
            controller: self.controller.switches(),
            others: Vec::new(),
            name: None,
            tls: None,
        })
        .unwrap()
    }

    /// Runs a program in each rank; what each returns.
    fn ranks<T: Send>(
        &self,
        cfg: CommunicatorCfg,
        program: impl Fn(&Communicator) -> T + Sync,
    ) -> Vec<T> {
        thread::scope(|scope| {
            let mut ranks = Vec::new();
            for rank in 0..RANKS {
                let (program, hosts) = (&program, self.controller.hosts());
                ranks.push(scope.spawn(move || {
                    let group = IncGroup::join(IncGroupCfg {
                        controller: hosts,
                        address: Some(at(self.net, 100 + rank).ip()),
                        ..IncGroupCfg::new(hosts.ip(), RANKS, rank)
                    });
                    let group = group.unwrap();
                    let communicator = group.communicator(cfg).unwrap();
                    program(&communicator)
                }));
            }
            ranks.into_iter().map(|rank| rank.join().unwrap()).collect()
        })
    }
}

fn values(rank: Rank, count: u16) -> Vec<f64> {
    (0..count).map(|at| f64::from(at) * 0.7 + f64::from(rank.0) / 3.0).collect()
}

#[test]
fn every_collective_gives_its_result_in_each_mode() {
    let world = World::new(1);
    let small = EdgeAttributes { path_mtu: 1024, packets: 4, ..EdgeAttributes::DEFAULT };
    let attributes = [
        EdgeAttributes::DEFAULT,
        EdgeAttributes { mode: MessageMode::Write, reliability: Reliability::Unreliable, ..small },
    ];
    for attributes in attributes {
        let cfg = CommunicatorCfg { attributes, ..CommunicatorCfg::default() };
        let all = world.ranks(cfg, |communicator| {
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
    for switch in world.switches.iter().flatten() {
        let mut view = switch.switch().view();
        for _ in 0..500 {
            if view.edges == 0 {
                break;
            }
            thread::park_timeout(Duration::from_millis(10));
            view = switch.switch().view();
        }
        assert_eq!((view.memory, view.edges), (0, 0));
    }
}

#[test]
fn ranks_whose_sizes_differ_learn_both_sizes() {
    let world = World::new(2);
    let errors = world.ranks(CommunicatorCfg::default(), |communicator| {
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
    let mut world = World::new(3);
    // The tree needs one leaf alone: which one it is, is the controller's business.
    let lost: Vec<_> = [1, 2].map(|at| world.switches[at].take()).into();
    let busy = std::sync::Mutex::new(lost);
    world.switches.truncate(1);
    let again = || {
        let used = |switch: &ControlledSwitch| switch.switch().view().edges != 0;
        let mut all = busy.lock().unwrap();
        let at = all.iter().position(|switch| switch.as_ref().is_some_and(used)).unwrap();
        drop(all[at].take());
    };
    let all = world.ranks(CommunicatorCfg::default(), |communicator| {
        let mut last = Vec::new();
        for round in 0..200_u16 {
            if round == 100 && communicator.rank() == Rank(0) {
                again();
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
