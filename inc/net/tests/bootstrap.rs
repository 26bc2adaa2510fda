//! Ranks that find their group by rank 0, with a real controller on loopback.
#![forbid(unsafe_code)]

use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use inc::element::Operator;
use inc_net::bootstrap::BOOTSTRAP_PORT;
use inc_net::group::{CommunicatorCfg, GroupError, IncGroup, IncGroupCfg};
use inc_world::{Network, RANKS, each_rank, wait_until};

const SILENCE: Duration = Duration::from_secs(5);

/// A rank that knows an address; at the port for controllers there is none, unless it is the controller's.
fn rank(network: Network, knows: SocketAddr, rank: u8) -> IncGroupCfg {
    IncGroupCfg {
        controller: knows,
        address: Some(network.host(rank)),
        bootstrap: Some(BOOTSTRAP_PORT),
        ..IncGroupCfg::new(knows.ip(), RANKS.into(), rank.into())
    }
}

fn rank_zero(network: Network) -> SocketAddr {
    SocketAddr::new(network.host(0), 1)
}

#[test]
fn ranks_that_know_rank_0_alone_join_its_group_in_any_order() {
    let network = Network(44, 21);
    let controller = network.start_controller(SILENCE);
    let is_open = || TcpStream::connect((network.host(0), BOOTSTRAP_PORT)).is_ok();
    let sums = each_rank(|number| {
        let cfg = match number {
            0 => {
                // The others are here before it.
                std::thread::park_timeout(Duration::from_millis(200));
                let name = "a name that rank 0 alone knows".to_owned();
                IncGroupCfg { name, ..rank(network, controller.hosts(), 0) }
            }
            // It has the controller's address, and the name.
            1 => {
                let name = "a name that rank 0 alone knows".to_owned();
                IncGroupCfg { name, ..rank(network, controller.hosts(), 1) }
            }
            number => rank(network, rank_zero(network), number),
        };
        let group = IncGroup::join(cfg).unwrap();
        let communicator = group.communicator(CommunicatorCfg::default()).unwrap();
        communicator.allreduce(&[i32::from(number), 1], Operator::Sum).unwrap()
    });
    assert_eq!(sums, vec![vec![6, 4]; RANKS.into()]);
    assert!(!is_open(), "rank 0 listens though all have joined");
}

#[test]
fn what_is_wrong_is_named_and_who_never_comes_is_at_the_deadline() {
    let network = Network(44, 22);
    let controller = network.start_controller(SILENCE);
    let wait = Duration::from_secs(3);
    let error = |cfg| IncGroup::join(IncGroupCfg { wait, ..cfg }).unwrap_err().to_string();
    let errors = each_rank(|number| match number {
        0 => error(rank(network, controller.hosts(), 0)),
        1 => error(rank(network, rank_zero(network), 1)),
        2 => {
            let cfg = rank(network, rank_zero(network), 2);
            let error = IncGroup::join(IncGroupCfg { world_size: 5, wait, ..cfg }).unwrap_err();
            // It does not get as far as the controller, to which it might be the first one, and the others wrong.
            assert!(matches!(error, GroupError::Bootstrap(_)), "{error:?}");
            error.to_string()
        }
        // The second one that says it is rank 1.
        _ => {
            wait_until("rank 0 and rank 1 are here", || {
                let list = inc_control::ControllerTool::connect(controller.hosts(), None);
                let groups = list.unwrap().list(None).unwrap().groups;
                groups.iter().any(|group| group.members.len() == 2)
            });
            let cfg = rank(network, rank_zero(network), 3);
            error(IncGroupCfg { rank: 1, ..cfg })
        }
    });
    let missing = "ranks 2, 3 of group inccl did not come in time";
    assert_eq!(errors[0], missing);
    assert_eq!(errors[1], missing);
    assert_eq!(errors[2], "rank 2 says world size 5 of group inccl, rank 0 said 4");
    let first = network.host(1);
    assert_eq!(errors[3], format!("rank 1 of group inccl has joined before, from {first}"));
    // Rank 0 never comes, and no controller is there.
    let short = Duration::from_millis(300);
    let alone = IncGroupCfg { wait: short, ..rank(network, rank_zero(network), 1) };
    let error = IncGroup::join(alone).unwrap_err();
    assert!(matches!(&error, GroupError::Bootstrap(_)), "{error:?}");
    let [zero, none] = [BOOTSTRAP_PORT, 1].map(|port| SocketAddr::new(network.host(0), port));
    let text = error.to_string();
    assert!(text.starts_with(&format!("rank 0 did not come in time: at {zero} ")), "{text}");
    assert!(text.contains(&format!("nor is there a controller at {none}: ")), "{text}");
}
