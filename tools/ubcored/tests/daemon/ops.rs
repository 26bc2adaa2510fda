//! What clients do with the device: operations between them and with other nodes.
//!
//! C programs that find the daemon by a setting.

use std::{
    path::PathBuf,
    process::Command,
    sync::Arc,
    time::{Duration, Instant},
};

use udma_provider::device_on;
use udma_vfio::{PciNic, user::UserDevice};
use urma::{AsyncKind, Completion, NodeCfg, PathChoice, PathKind, SendOp, SendWr, Status};
use urma_c_tests::{GCC, Prefix, finish, root, start};

use super::world::{Daemon, End, LEN, segment_cfg, until};

const BULK: u32 = 300_000;

#[test]
fn two_programs_with_one_eid_write_read_send_and_do_atomics() {
    let daemon = Daemon::start("ops");
    let (mut here, mut there) = (End::open(&daemon), End::open(&daemon));
    assert_eq!(here.context.eid(), there.context.eid());
    assert_ne!(here.jetty.remote().id, there.jetty.remote().id);
    let peer = here.peer(&there);
    all_operations(&mut here, &mut there, &peer);
}

#[test]
fn a_program_reaches_another_node_by_packets_of_the_daemons_port() {
    let daemon = Daemon::with("wire", &[], &[("URMA_PATH", "packets")]);
    let (mut here, mut also) = (End::open(&daemon), End::open(&daemon));
    let cfg = NodeCfg { path: PathChoice::Packets, ..NodeCfg::default() };
    let mut there = End::of(urma::open_device(cfg).unwrap().open(0).unwrap());
    let peer = here.peer(&there);
    assert_eq!(peer.remote.path().kind, PathKind::Packets);
    all_operations(&mut here, &mut there, &peer);
    // Another client, by the same wire.
    let peer = also.peer(&there);
    all_operations(&mut also, &mut there, &peer);
    let back = there.peer(&here);
    all_operations(&mut there, &mut here, &back);
}

/// As guests do. If the daemon's thread were not woken, each message would wait for its next look, a second later.
#[test]
fn clients_that_ring_by_registers_are_served_at_once() {
    let daemon = Daemon::start("registers");
    let open = || {
        let device = UserDevice::connect(&daemon.socket, "udma0").unwrap();
        let nic = PciNic::new(Arc::new(device)).unwrap().without_doorbell_memory();
        End::of(device_on(Arc::new(nic)).open(0).unwrap())
    };
    let (mut here, mut there) = (open(), open());
    let peer = here.peer(&there);
    let begun = Instant::now();
    let mut done = [Completion::default(); 1];
    for _ in 0..60 {
        there.receive((0, 64), 2);
        here.send(&peer, 64, 1);
        for end in [&mut here, &mut there] {
            until("a completion", || end.completions.poll(&mut done).unwrap() == 1);
            done[0].success().unwrap();
        }
    }
    assert!(begun.elapsed() < Duration::from_secs(20), "{:?}", begun.elapsed());
}

fn all_operations(here: &mut End, there: &mut End, peer: &super::world::Peer) {
    let bytes: Vec<u8> = (0..BULK).map(|at| at.to_le_bytes()[0] ^ at.to_le_bytes()[1]).collect();
    here.memory.write(0, &bytes).unwrap();
    here.write(peer, (64, BULK), 1);
    here.done();
    let mut seen = vec![0; bytes.len()];
    there.memory.read(64, &mut seen).unwrap();
    assert!(seen == bytes);

    here.memory.zero(0, LEN).unwrap();
    let dst = [here.segment.sge(0, BULK)];
    let op = SendOp::Read { dst: &dst, src: peer.remote.at(64) };
    here.jetty.post_send(&[SendWr::new(op, &peer.target, 2)]).unwrap();
    here.done();
    here.memory.read(0, &mut seen).unwrap();
    assert!(seen == bytes);

    there.memory.store_u64(0, 100).unwrap();
    let op =
        SendOp::FetchAdd { result: here.segment.sge(0, 8), target: peer.remote.at(0), value: 5 };
    here.jetty.post_send(&[SendWr::new(op, &peer.target, 3)]).unwrap();
    here.done();
    assert_eq!((here.memory.load_u64(0), there.memory.load_u64(0)), (Ok(100), Ok(105)));

    there.receive((4096, 64), 9);
    here.memory.write(0, b"hello").unwrap();
    here.send(peer, 5, 4);
    here.done();
    there.done();
    let mut hello = [0; 5];
    there.memory.read(4096, &mut hello).unwrap();
    assert_eq!(&hello, b"hello");
}

#[test]
fn memory_that_the_daemon_cannot_reach_is_refused_at_registration() {
    let daemon = Daemon::start("unreachable");
    let end = End::open(&daemon);
    let memory = urma::Region::private(8192).unwrap();
    let part = memory.sub(100, 4096).unwrap();
    let refused = end.context.register(&part, &segment_cfg(), None).map(|_| ());
    assert_eq!(refused.unwrap_err(), Status::Invalid);
    end.context.register(&memory, &segment_cfg(), None).unwrap();
}

#[test]
fn a_killed_daemon_ends_requests_with_an_event_and_programs_attach_again() {
    let mut daemon = Daemon::start("killed");
    let (mut end, other) = (End::open(&daemon), End::open(&daemon));
    let peer = end.peer(&other);
    // Without a receive each of them waits.
    const REQUESTS: u64 = 5;
    (0..REQUESTS).for_each(|ctx| end.send(&peer, 8, ctx));
    daemon.kill();
    let begun = Instant::now();
    let event = end.context.next_async(Some(Duration::from_secs(10))).unwrap().unwrap();
    assert_eq!(event.kind, AsyncKind::DeviceFatal);
    let mut ended: Vec<u64> = Vec::new();
    while ended.len() < usize::try_from(REQUESTS).unwrap() {
        let next = end.completions.wait(Some(Duration::from_secs(10))).unwrap().unwrap();
        assert!(!next.status.is_success(), "{next:?}");
        ended.push(next.user_ctx);
    }
    let took = begun.elapsed();
    assert_eq!(ended, (0..REQUESTS).collect::<Vec<_>>());
    assert!(took < Duration::from_secs(5), "{took:?}");
    println!("a killed daemon: event and {REQUESTS} completions after {took:?}");
    let memory = urma::Region::private(8192).unwrap();
    assert_eq!(end.context.register(&memory, &segment_cfg(), None).err(), Some(Status::NoDevice));
    drop((end, other, peer));
    assert!(
        begun.elapsed() < Duration::from_secs(5),
        "objects of a device that is gone end at once"
    );
    // Opening waits for a daemon that starts meanwhile.
    let cfg = daemon.cfg();
    let opens = std::thread::spawn(move || urma::open_device(cfg).unwrap().open(0).unwrap());
    std::thread::sleep(Duration::from_millis(200));
    daemon.start_again();
    let mut again = End::of(opens.join().unwrap());
    let mut other = End::open(&daemon);
    let peer = again.peer(&other);
    all_operations(&mut again, &mut other, &peer);
}

fn example(name: &str) -> PathBuf {
    root().join("examples/c").join(name).with_extension("c")
}

#[test]
fn the_examples_use_functions_of_the_daemon_that_the_settings_file_names() {
    let tree = Prefix::install("ubcored", &[]);
    let daemon = Daemon::start("c");
    let file = daemon.socket.with_added_extension("toml");
    std::fs::write(&file, format!("ubcored = {:?}\n", daemon.socket)).unwrap();
    let run = |program: &PathBuf, args: &[&str]| {
        let mut command = Command::new(program);
        command.args(args).env("URMA_CONFIG", &file);
        command
    };
    for (name, says) in [
        ("write", "the other side now holds: written from afar"),
        ("send_recv", "14 bytes"),
        ("atomics", "compared with 30, was 30, is 7"),
        ("events", "woken by: wake up"),
    ] {
        let program = GCC.build(&tree, &example(name), &[]);
        let said = finish(&run(&program, &[]));
        assert!(said.out.contains(says), "{name}: {}", said.out);
    }
    // Two processes with one EID.
    let program = GCC.build(&tree, &example("sample"), &[]);
    let mut server = start(&run(&program, &["-m", "rm", "-p", "0"]));
    let line = server.line();
    let (_, port) = line.trim().rsplit_once(' ').unwrap();
    let args = ["-m", "rm", "-p", port, "-i", "127.0.0.1"];
    let client = start(&run(&program, &args)).end();
    let server = server.end();
    assert!(client.status.success() && server.status.success(), "{}{}", client.err, server.err);
    assert!(client.out.contains("wrote and read back: put here by the client"), "{}", client.out);
    let status = daemon.status();
    assert!(status["served"].as_u64().unwrap() >= 6, "{status}");
    let _ = std::fs::remove_file(file);
}

#[test]
fn a_quota_is_an_errno_of_its_own() {
    let tree = Prefix::install("ubcored-quota", &[]);
    let daemon = Daemon::with("c-quota", &["--segments", "0"], &[]);
    let program = GCC.build(&tree, &example("write"), &[]);
    let mut command = Command::new(&program);
    command.env("URMA_UBCORED", &daemon.socket).env("URMA_LOG", "warn");
    let output = command.output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(!output.status.success() && said.contains("Disk quota exceeded"), "{said}");
    assert_ne!(daemon.status()["served"], 0);
}
