//! Switches and hosts that send whole Ethernet frames, beside such with UDP sockets, in network namespaces.
#![forbid(unsafe_code)]

use std::fs;
use std::net::SocketAddr;
use std::process::Command;

use inc_control::{ControllerServer, ControllerServerCfg, MemoryStore, ServerExposure};
use serde_json::Value;
use urma_net::{Lab, LabPlan, Process};

const RANKS: u8 = 4;
const SWITCH: usize = 1;
const FIRST_RANK: usize = 2;
/// A packet of 4096 bytes and its headers fit.
const MTU: u32 = 9000;

struct RawWorld {
    lab: Lab,
    controller: ControllerServer,
    _switch: Process,
}

impl RawWorld {
    fn new(is_raw: bool) -> Option<Self> {
        let lab = Lab::or_skip(LabPlan::bridge(2 + RANKS, MTU))?;
        let address = |at: usize| lab.host(at).address();
        let mut map =
            format!("nodes:\n  - {{name: s, kind: switch, address: {}}}\n", address(SWITCH));
        let mut links = String::from("links:\n");
        for rank in 0..usize::from(RANKS) {
            map += &format!(
                "  - {{name: h{rank}, kind: host, address: {}}}\n",
                address(FIRST_RANK + rank)
            );
            links += &format!("  - ends: [s, h{rank}]\n");
        }
        let map = inc::document::read_map(&(map + &links)).expect("a map");
        let any = SocketAddr::new(address(0), 0);
        let cfg = ControllerServerCfg {
            controller: inc::controller::ControllerCfg::default(),
            map,
            hosts: any,
            switches: any,
            store: Box::new(MemoryStore),
            tls: None,
        };
        let exposure = ServerExposure { http: None, is_insecure: true };
        let controller = lab
            .host(0)
            .run(|| ControllerServer::start_exposed(cfg, exposure))
            .expect("a controller");
        let mut command = Command::new(env!("CARGO_BIN_EXE_inc-switch"));
        command
            .args([&address(0).to_string(), "--address", &address(SWITCH).to_string()])
            .args(["--controller-port", &controller.switches().port().to_string()])
            .args(is_raw.then_some("--raw"));
        let mut switch = lab.host(SWITCH).start(&mut command);
        assert!(switch.line().is_some(), "the switch: {:?}", switch.end());
        assert_eq!(has_packet_socket(&switch), is_raw, "the switch");
        Some(Self { lab, controller, _switch: switch })
    }

    /// All ranks reduce, some of them with raw frames; each checks its results.
    fn reduce(&self, group: &str, raw: impl Fn(u8) -> bool, arguments: &[&str]) {
        let controller = self.controller.hosts();
        let host = |rank: u8| {
            let host = self.lab.host(FIRST_RANK + usize::from(rank));
            let mut command = Command::new(env!("CARGO_BIN_EXE_inc-host"));
            command
                .args([RANKS.to_string(), controller.ip().to_string(), rank.to_string()])
                .args(["--address", &host.address().to_string(), "--group", group, "--json"])
                .args(["--controller-port", &controller.port().to_string()])
                .args(raw(rank).then_some("--raw"))
                .args(arguments);
            host.start(&mut command)
        };
        let hosts: Vec<_> = (0..RANKS).map(host).collect();
        for (rank, host) in hosts.into_iter().enumerate() {
            let ended = host.end();
            assert!(ended.status.success(), "{group}, rank {rank}: {}", ended.stderr);
            let said: Value = serde_json::from_str(&ended.stdout).expect("JSON");
            let result = said.pointer("/results/0").expect("a result");
            assert_eq!(
                (&result["is_right"], &result["reduced_by"]),
                (&true.into(), &"switches".into())
            );
        }
    }
}

/// Whether a process's namespace has a socket for whole frames.
fn has_packet_socket(of: &Process) -> bool {
    let table = fs::read_to_string(format!("/proc/{}/net/packet", of.id())).expect("its sockets");
    table.lines().count() > 1
}

/// Hosts with UDP sockets hand runs that are not cut to the link.
const LONG: [&str; 6] = ["--count", "50000", "--times", "10", "--path-mtu", "4096"];
const SHORT: [&str; 4] = ["--count", "3", "--times", "200"];

#[test]
fn frames_and_sockets_reduce_with_each_other() {
    let Some(world) = RawWorld::new(true) else { return };
    world.reduce("sockets", |_| false, &LONG);
    world.reduce("frames", |_| true, &LONG);
    world.reduce("mixed", |rank| rank % 2 == 0, &LONG);
    world.reduce("short", |rank| rank < 2, &SHORT);
    let write = [&LONG[..], &["--mode", "write", "--packets", "3"]].concat();
    world.reduce("write", |rank| rank != 0, &write);
    let unreliable = [&LONG[..], &["--edge", "uc", "--loss", "3000"]].concat();
    world.reduce("unreliable", |rank| rank != 1, &unreliable);
}

#[test]
fn hosts_with_frames_reduce_by_a_switch_with_a_socket() {
    let Some(world) = RawWorld::new(false) else { return };
    world.reduce("frames", |_| true, &LONG);
    world.reduce("mixed", |rank| rank == 0, &SHORT);
}
