//! Switches and hosts that send whole Ethernet frames, beside such with UDP sockets, in network namespaces.
#![forbid(unsafe_code)]

use std::fs;
use std::net::{IpAddr, SocketAddr};
use std::process::Command;

use inc_control::{ControllerServer, ControllerServerCfg, MemoryStore, ServerExposure};
use nix::sys::signal::Signal;
use serde_json::Value;
use urma_net::{Host, Lab, LabPlan, Process};

const RANKS: u8 = 4;
const SWITCH: usize = 1;
const FIRST_RANK: usize = 2;
/// A packet of 4096 bytes and its headers fit.
const MTU: u32 = 9000;

struct RawWorld {
    lab: Lab,
    /// The interface of each station that carries datagrams.
    port: usize,
    controller: ControllerServer,
    switch: Process,
}

impl RawWorld {
    /// With a switch that has this option.
    fn new(raw: Option<&str>) -> Option<Self> {
        let lab = Lab::or_skip(LabPlan::bridge(2 + RANKS, MTU))?;
        Some(Self::between(lab, 0, raw.map(str::to_owned).as_slice()))
    }

    /// A controller, and a switch with these arguments.
    fn between(lab: Lab, port: usize, arguments: &[String]) -> Self {
        let address = |at: usize| lab.host(at).addresses()[port];
        let mut map =
            format!("nodes:\n  - {{name: s, kind: switch, address: {}}}\n", address(SWITCH));
        let mut links = String::from("links:\n");
        for rank in 0..usize::from(RANKS) {
            let at = address(FIRST_RANK + rank);
            map += &format!("  - {{name: h{rank}, kind: host, address: {at}}}\n");
            links += &format!("  - ends: [s, h{rank}]\n");
        }
        let map = inc::document::read_map(&(map + &links)).expect("a map");
        let any = SocketAddr::new(lab.host(0).address(), 0);
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
            .args([&any.ip().to_string(), "--address", &address(SWITCH).to_string()])
            .args(["--controller-port", &controller.switches().port().to_string()])
            .args(arguments);
        let mut switch = lab.host(SWITCH).start(&mut command);
        assert!(switch.line().is_some(), "the switch: {:?}", switch.end());
        let is = |options: &[&str]| arguments.iter().any(|found| options.contains(&&**found));
        assert_eq!(has_packet_socket(&switch), is(&["--raw=packet"]), "the switch");
        let ip = address(SWITCH).to_string().parse().expect("an address");
        assert_eq!(link(lab.host(SWITCH), ip).has_program, is(&["--raw", "--raw=xdp"]), "it");
        Self { lab, port, controller, switch }
    }

    /// All ranks reduce, some of them with raw frames; each checks its results.
    fn reduce<'a>(&self, group: &str, raw: impl Fn(u8) -> Option<&'a str>, arguments: &[&str]) {
        for (result, log) in self.outputs(group, raw, arguments) {
            assert_eq!(result["reduced_by"], "switches", "{group}: {result}: {log}");
        }
    }

    /// What each rank found, and what it logged.
    fn outputs<'a>(
        &self,
        group: &str,
        raw: impl Fn(u8) -> Option<&'a str>,
        arguments: &[&str],
    ) -> Vec<(Value, String)> {
        let controller = self.controller.hosts();
        let host = |rank: u8| {
            let host = self.lab.host(FIRST_RANK + usize::from(rank));
            let own = host.addresses()[self.port].to_string();
            let mut command = Command::new(env!("CARGO_BIN_EXE_inc-host"));
            command
                .args([RANKS.to_string(), controller.ip().to_string(), rank.to_string()])
                .args(["--address", &own, "--group", group, "--json"])
                .args(["--controller-port", &controller.port().to_string()])
                .args(raw(rank))
                .args(arguments);
            host.start(&mut command)
        };
        let hosts: Vec<_> = (0..RANKS).map(host).collect();
        let ended = hosts.into_iter().zip(0..).map(|(host, rank): (Process, u8)| {
            let ended = host.end();
            assert!(ended.status.success(), "{group}, rank {rank}: {}", ended.stderr);
            let said: Value = serde_json::from_str(&ended.stdout).expect("JSON");
            let result = said.pointer("/results/0").expect("a result").clone();
            assert_eq!(result["is_right"], true, "{group}, rank {rank}");
            (result, ended.stderr)
        });
        ended.collect()
    }
}

/// An interface of a station, and its addresses.
struct Link {
    ip: IpAddr,
    name: String,
    mac: String,
    /// A program of AF_XDP is on it.
    has_program: bool,
}

/// The interface of a host that has an address.
fn link(host: &Host, ip: IpAddr) -> Link {
    let show = || Command::new("ip").args(["-j", "-d", "address", "show"]).output();
    let output = host.run(show).expect("ip runs");
    let links: Vec<Value> = serde_json::from_slice(&output.stdout).expect("JSON");
    let has = |link: &&Value| link["addr_info"].to_string().contains(&format!("\"{ip}\""));
    let found = links.iter().find(has).expect("an interface has the address");
    let text = |key: &str| found[key].as_str().expect("it has one").to_owned();
    let has_program = found.get("xdp").is_some();
    Link { ip, name: text("ifname"), mac: text("address"), has_program }
}

/// Whether a process's namespace has a socket for whole frames.
fn has_packet_socket(of: &Process) -> bool {
    let table = fs::read_to_string(format!("/proc/{}/net/packet", of.id())).expect("its sockets");
    table.lines().count() > 1
}

/// Hosts with UDP sockets hand runs that are not cut to the link.
const LONG: [&str; 6] = ["--count", "50000", "--times", "10", "--path-mtu", "4096"];
const SHORT: [&str; 4] = ["--count", "3", "--times", "200"];

/// Ranks with this option beside ranks without it, by a switch that has it.
fn mix(option: &str) {
    let Some(world) = RawWorld::new(Some(option)) else { return };
    let those = |is: fn(u8) -> bool| move |rank| is(rank).then_some(option);
    world.reduce("sockets", those(|_| false), &LONG);
    world.reduce("frames", those(|_| true), &LONG);
    world.reduce("mixed", those(|rank| rank % 2 == 0), &LONG);
    world.reduce("short", those(|rank| rank < 2), &SHORT);
    let write = [&LONG[..], &["--mode", "write", "--packets", "3"]].concat();
    world.reduce("write", those(|rank| rank != 0), &write);
    let unreliable = [&LONG[..], &["--edge", "uc", "--loss", "3000"]].concat();
    world.reduce("unreliable", those(|rank| rank != 1), &unreliable);
}

#[test]
fn frames_of_packet_sockets_and_datagrams_reduce_with_each_other() {
    mix("--raw=packet");
}

#[test]
fn frames_of_xdp_and_datagrams_reduce_with_each_other() {
    mix("--raw=xdp");
}

#[test]
fn hosts_with_frames_reduce_by_a_switch_with_a_socket() {
    let Some(world) = RawWorld::new(None) else { return };
    world.reduce("frames", |_| Some("--raw"), &LONG);
    world.reduce(
        "mixed",
        |rank| ["--raw=xdp", "--raw=packet"].get(usize::from(rank)).copied(),
        &SHORT,
    );
}

/// An interface takes one program: the next station has a packet socket, or an error when it wants no other.
#[test]
fn where_xdp_cannot_be_had_the_log_says_why() {
    let Some(world) = RawWorld::new(Some("--raw")) else { return };
    let (host, controller) = (world.lab.host(SWITCH), world.controller.switches());
    let start = |raw: &str| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_inc-switch"));
        command
            .args([&controller.ip().to_string(), "--port", "4800", "--name", "s", raw, "-v"])
            .args(["--address", &host.address().to_string()])
            .args(["--controller-port", &controller.port().to_string()]);
        host.start(&mut command)
    };
    let mut second = start("--raw");
    assert!(second.line().is_some(), "{:?}", second.end());
    assert!(has_packet_socket(&second));
    second.signal(Signal::SIGTERM);
    let log = second.end().stderr;
    assert!(log.contains("frames go by a packet socket"), "{log}");
    assert!(log.contains("has a program or socket of this kind"), "{log}");
    let refused = start("--raw=xdp").end();
    assert!(!refused.status.success());
    assert!(refused.stderr.contains("has a program or socket of this kind"), "{}", refused.stderr);
}

/// Without some capabilities there is another socket, or an error: what is missing is named.
#[test]
fn rights_that_are_missing_are_named() {
    let Some(lab) = Lab::or_skip(LabPlan::bridge(2 + RANKS, MTU)) else { return };
    let world = RawWorld::between(lab, 0, &[]);
    let (host, controller) = (world.lab.host(SWITCH), world.controller.switches());
    let start = |dropped: &str, raw: &str| {
        let mut command = Command::new("setpriv");
        command
            .args(["--bounding-set", dropped, "--inh-caps", dropped])
            .arg(env!("CARGO_BIN_EXE_inc-switch"))
            .args([&controller.ip().to_string(), "--port", "4800", "--name", "s", raw, "-v"])
            .args(["--address", &host.address().to_string()])
            .args(["--controller-port", &controller.port().to_string()]);
        host.start(&mut command)
    };
    let refused = |dropped, raw, words: &[&str]| {
        let ended = start(dropped, raw).end();
        assert!(!ended.status.success(), "{raw} without {dropped}: {}", ended.stderr);
        for words in words {
            assert!(ended.stderr.contains(words), "{raw} without {dropped}: {}", ended.stderr);
        }
    };
    let packet = "a packet socket (CAP_NET_RAW): Operation not permitted";
    refused("-net_raw", "--raw=packet", &[packet]);
    refused("-net_raw", "--raw=xdp", &["AF_XDP, ", " (without CAP_NET_RAW)"]);
    refused("-net_raw", "--raw", &[packet, "AF_XDP, ", " (without CAP_NET_RAW)"]);
    let all = " (without CAP_NET_RAW, CAP_NET_ADMIN, CAP_BPF)";
    refused("-all", "--raw", &[packet, all]);
    for (dropped, missing) in [
        ("-net_admin,-sys_admin", " (without CAP_NET_ADMIN)"),
        ("-bpf,-sys_admin", " (without CAP_BPF)"),
        ("-bpf,-sys_admin,-net_admin", " (without CAP_NET_ADMIN, CAP_BPF)"),
    ] {
        refused(dropped, "--raw=xdp", &["AF_XDP, ", missing]);
        let mut switch = start(dropped, "--raw");
        assert!(switch.line().is_some(), "without {dropped}: {:?}", switch.end());
        assert!(has_packet_socket(&switch), "without {dropped}");
        switch.signal(Signal::SIGTERM);
        let log = switch.end().stderr;
        assert!(log.contains("frames go by a packet socket") && log.contains(missing), "{log}");
    }
}

/// What the kernel holds for a process goes with it.
#[test]
fn a_killed_switch_leaves_no_program_behind() {
    let Some(mut world) = RawWorld::new(Some("--raw=xdp")) else { return };
    let ip = world.lab.host(SWITCH).address();
    assert!(link(world.lab.host(SWITCH), ip).has_program);
    world.switch.signal(Signal::SIGKILL);
    let _ = world.switch.end();
    assert!(!link(world.lab.host(SWITCH), ip).has_program);
}

/// The switch's second interface answers no ARP.
#[test]
fn stations_without_arp_are_named_by_their_mac_addresses() {
    let Some(lab) = Lab::or_skip(LabPlan::bridge(2 + RANKS, MTU).ports(2)) else { return };
    let links: Vec<_> = lab.hosts().iter().map(|host| link(host, host.addresses()[1])).collect();
    lab.host(SWITCH).ip(&[&format!("link set {} arp off", links[SWITCH].name)]);
    let named = |link: &Link| ["--neighbour".to_owned(), format!("{}={}", link.ip, link.mac)];
    let of_ranks = links[FIRST_RANK..].iter().flat_map(named).chain(["--raw".to_owned()]);
    let world = RawWorld::between(lab, 1, &of_ranks.collect::<Vec<_>>());
    let [option, of_switch] = named(&links[SWITCH]);
    world.reduce("named", |_| Some("--raw"), &[&LONG[..], &[&option, &of_switch]].concat());
    // As a tree says it, in which a rank without an address is no fault.
    let file = std::env::temp_dir().join(format!("inc-neighbours-{}.yaml", std::process::id()));
    let mut tree = String::from("switches:\n- id: 0\n  root: true\n  connections:\n");
    let switch = &links[SWITCH];
    for (rank, host) in links[FIRST_RANK..].iter().enumerate() {
        tree += &format!(
            "  - {{up: false, host_id: {rank}, my_ip: \"{}\", my_mac: \"{}\", my_qp: {rank}, peer_ip: \"{}\", peer_qp: 5}}\n",
            switch.ip, switch.mac, host.ip
        );
    }
    fs::write(&file, &tree).expect("a file");
    let path = file.to_str().expect("a path");
    world.reduce("file", |_| Some("--raw"), &[&LONG[..], &["--neighbours", path]].concat());
    fs::write(&file, tree.replacen(&switch.mac, "02:00", 1)).expect("a file");
    let refused = Command::new(env!("CARGO_BIN_EXE_inc-host"))
        .args(["2", "127.0.0.1", "0", "--raw", "--neighbours", path])
        .output()
        .expect("it runs");
    let words = String::from_utf8_lossy(&refused.stderr).into_owned();
    assert!(
        words.contains("line 5, column ") && words.contains("is no hardware address"),
        "{words}"
    );
    fs::remove_file(&file).expect("it goes");
    // Without it the ranks do not reach the switch, and say so; they reduce themselves.
    for (result, log) in world.outputs("unnamed", |_| Some("--raw=packet"), &SHORT) {
        assert_eq!(result["reduced_by"], "members", "{log}");
        assert!(log.contains(&format!("--neighbour {}=MAC", links[SWITCH].ip)), "{log}");
    }
}
