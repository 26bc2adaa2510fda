//! Ranks that open URMA nodes at their addresses, beside ranks with sockets, as processes: they reduce while their nodes
//! answer pings.
#![forbid(unsafe_code)]

use std::process::Command;
use std::time::Duration;

use inc_world::{Network, Program, RANKS, ping_nodes};

const SILENCE: Duration = Duration::from_secs(5);

#[test]
fn ranks_reduce_at_nodes_that_answer_pings_meanwhile() {
    let network = Network(47, 5);
    let controller = network.start_controller(SILENCE);
    let _switches = network.start_switches(controller.switches());
    let host = |rank: u8| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_inc-host"));
        command
            .env("URMA_PATH", "packets")
            .args([RANKS.to_string(), "127.0.0.1".into(), rank.to_string()])
            .args(["--address", &network.host(rank).to_string(), "--group", "nodes"])
            .args(["--controller-port", &controller.hosts().port().to_string()])
            .args(["--count", "20000", "--times", "200", "--type", "f32"])
            .args((rank < 2).then_some("--node"));
        Program::spawn(&mut command)
    };
    let hosts: Vec<_> = (0..RANKS).map(host).collect();
    ping_nodes(network, (0..2).map(|rank| network.host(rank)));
    for (rank, host) in hosts.into_iter().enumerate() {
        let output = host.output();
        let (text, errors) =
            (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
        assert!(output.status.success(), "rank {rank}: {errors}");
        assert!(text.contains("200 times: right"), "rank {rank}: {text}");
        assert!(!text.contains("by the ranks' own programs"), "rank {rank}: {text}");
    }
}
