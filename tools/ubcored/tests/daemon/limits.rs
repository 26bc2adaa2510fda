//! Who is let in, what each may have, and what the daemon reports of it; many clients at once; the unit of systemd.

use std::{
    io::{Read as _, Write as _},
    os::unix::{fs::PermissionsExt as _, net::UnixStream},
    process::Command,
    sync::{Arc, Barrier},
    time::{Duration, Instant},
};

use urma::{JettyCfg, JettyRecv, JfcCfg, JfrCfg, JfsCfg, NodeCfg, Region, Status, TransportMode};
use urma_mem::sync::{AtomicBool, Ordering};

use super::world::{Daemon, End, as_user, segment_cfg, until};

#[test]
fn a_user_that_is_not_let_in_reads_why() {
    let daemon = Daemon::with("users", &["--users", "4294967294"], &[]);
    let refused = urma::open_device(daemon.cfg()).unwrap_err().to_string();
    assert!(refused.contains("Permission denied"), "{refused}");
    assert_eq!(daemon.status()["refused"]["user"], 1);
    assert!(daemon.clients().is_empty());
}

#[test]
fn one_client_too_many_reads_why_and_the_next_one_has_its_place() {
    let daemon = Daemon::with("many", &["--clients", "1"], &[]);
    let first = urma::open_device(daemon.cfg()).unwrap();
    let refused = urma::open_device(daemon.cfg()).unwrap_err().to_string();
    assert!(refused.contains("Too many users"), "{refused}");
    assert_eq!(daemon.status()["refused"]["too_many"], 1);
    drop(first);
    until("the place is free", || urma::open_device(daemon.cfg()).is_ok());
}

#[test]
fn quotas_are_named_by_the_api_and_reported_by_kind() {
    let args = ["--jetties", "2", "--jfcs", "3", "--segments", "2", "--work", "400"];
    let pinned = (6 << 20).to_string();
    let daemon = Daemon::with("quota", &[&args[..], &["--pinned-bytes", &pinned]].concat(), &[]);
    let end = End::open(&daemon);
    let context = &end.context;
    // Segments: one is that of `end`.
    let small = Region::private(4096).unwrap();
    let segment = context.register(&small, &segment_cfg(), None).unwrap();
    assert_eq!(context.register(&small, &segment_cfg(), None).err(), Some(Status::Quota));
    drop(segment);
    // Pinned bytes: rings, the memory of `end`, and this.
    let large = Region::private(8 << 20).unwrap();
    assert_eq!(context.register(&large, &segment_cfg(), None).err(), Some(Status::Quota));
    // JFCs: the one of `end`, its event queue, and this.
    let jfc = context.create_jfc(&JfcCfg::new(16), None).unwrap();
    assert_eq!(context.create_jfc(&JfcCfg::new(16), None).err(), Some(Status::Quota));
    // Outstanding work: more than the rings of the first jetty leave.
    let jetty = |depth| {
        let mode = TransportMode::Rm;
        let recv = JettyRecv::Own { cfg: JfrCfg::new(mode, depth), jfc: &jfc };
        context.create_jetty(&JettyCfg::new(JfsCfg::new(mode, depth), &jfc, recv))
    };
    assert_eq!(jetty(128).err(), Some(Status::Quota));
    // Jetties.
    let second = jetty(4).unwrap();
    assert_eq!(jetty(4).err(), Some(Status::Quota));
    let clients = daemon.clients();
    let [client] = &clients[..] else { panic!("{clients:?}") };
    assert_eq!(client["uid"], rustix::process::getuid().as_raw());
    assert_eq!(client["pid"], std::process::id());
    assert_eq!(client["uasid"], rustix::process::getuid().as_raw() & 0xff_ffff);
    for kind in ["jetties", "jfcs", "segments", "work", "pinned_bytes"] {
        let quota = &client["quotas"][kind];
        assert_eq!(quota["refused"], 1, "{kind}: {client}");
        assert!(quota["used"].as_u64() <= quota["most"].as_u64(), "{kind}: {client}");
    }
    assert_eq!(client["quotas"]["jetties"]["used"], 2);
    // Another client has quotas of its own.
    drop(End::open(&daemon));
    drop((second, segment_cfg()));
}

#[test]
fn metrics_are_text_that_prometheus_reads() {
    let daemon = Daemon::start("metrics");
    let _end = End::open(&daemon);
    let text = daemon.get("/metrics").unwrap();
    let mut typed = Vec::new();
    for line in text.lines() {
        if let Some(rest) = line.strip_prefix("# TYPE ") {
            let (name, kind) = rest.split_once(' ').unwrap();
            assert!(["gauge", "counter"].contains(&kind), "{line}");
            typed.push(name.to_owned());
        } else if !line.starts_with("# HELP ") {
            let (sample, value) = line.rsplit_once(' ').unwrap();
            let name = sample.split('{').next().unwrap();
            assert!(typed.iter().any(|typed| typed == name), "{line} has no type");
            value.parse::<u64>().unwrap();
        }
    }
    let uid = rustix::process::getuid().as_raw();
    let used = format!("ubcored_quota_used{{client=\"0\",uid=\"{uid}\",kind=\"jetties\"}} 1\n");
    assert!(text.contains(&used), "{text}");
    assert!(text.contains("ubcored_clients 1\n"), "{text}");
    assert!(daemon.get("/else").is_none());
}

#[test]
fn mappings_of_a_client_have_a_quota_and_those_of_others_are_left() {
    let daemon = Daemon::with("mappings", &["--mappings", "16"], &[]);
    let (end, other) = (End::open(&daemon), End::open(&daemon));
    let register = |end: &End| {
        let small = Region::private(4096).unwrap();
        end.context.register(&small, &segment_cfg(), None)
    };
    let segments: Vec<_> = (0..16).map_while(|_| register(&end).ok()).collect();
    assert!((4..16).contains(&segments.len()), "{} segments of a page", segments.len());
    assert_eq!(register(&end).err(), Some(Status::Quota));
    assert!(register(&other).is_ok(), "another client has its own");
    drop(segments);
    assert!(register(&end).is_ok(), "they were given back");
}

/// Highest exposure, in tenths, as `systemd-analyze security` rates it.
const EXPOSURE_MAX: &str = "20";

#[test]
fn systemd_takes_the_unit_and_rates_it_as_hardened() {
    let source = concat!(env!("CARGO_MANIFEST_DIR"), "/systemd/ubcored.service");
    let text = std::fs::read_to_string(source).unwrap();
    let program = "ExecStart=/usr/bin/ubcored ";
    assert!(text.contains(program));
    let folder = std::env::temp_dir().join(format!("ubcored-unit-{}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    let unit = folder.join("ubcored.service");
    let built = format!("ExecStart={} ", env!("CARGO_BIN_EXE_ubcored"));
    std::fs::write(&unit, text.replace(program, &built)).unwrap();
    let verified = Command::new("systemd-analyze").args(["verify", "--man=no"]).arg(&unit).output();
    let Ok(verified) = verified else {
        return urma_skip::skip("systemd-analyze is missing: install systemd");
    };
    let said = String::from_utf8_lossy(&verified.stderr).into_owned();
    // It looks at the units of the machine, too.
    let ours: Vec<&str> = said.lines().filter(|line| line.contains("ubcored")).collect();
    assert!(verified.status.success() && ours.is_empty(), "{said}");
    let rated = Command::new("systemd-analyze")
        .args(["security", "--offline=true", "--threshold", EXPOSURE_MAX])
        .arg(&unit)
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&rated.stdout);
    assert!(rated.status.success(), "{said}{}", String::from_utf8_lossy(&rated.stderr));
    std::fs::remove_dir_all(folder).unwrap();
}

/// Requests that each client keeps open, so that the daemon and not the scheduler of the system gives the shares.
const DEPTH: u64 = 12;
/// Bytes of a request.
const LEN: u32 = 1 << 18;
/// Clients and seconds of the measurement: `CLIENTS,SECONDS`; the default is for every run of the tests.
const FAIRNESS: &str = "UBCORED_FAIRNESS";

#[test]
fn clients_that_all_move_data_have_equal_shares() {
    let asked = std::env::var(FAIRNESS).unwrap_or_else(|_| "8,1".to_owned());
    let (clients, seconds) = asked.split_once(',').unwrap();
    let (clients, seconds): (usize, u64) = (clients.parse().unwrap(), seconds.parse().unwrap());
    let daemon = Daemon::with("fair", &["--clients", &clients.max(64).to_string()], &[]);
    let barrier = Arc::new(Barrier::new(clients));
    let threads: Vec<_> = (0..clients)
        .map(|_| {
            let (mut end, barrier) = (End::open(&daemon), Arc::clone(&barrier));
            std::thread::spawn(move || {
                let target = end.context.import_jetty(&end.jetty.remote()).unwrap();
                let (exported, access) = (end.segment.remote(), urma::SegmentAccess::REMOTE_ALL);
                let remote = end.context.import_segment(&exported, access, urma::Mapping::None);
                let peer = super::world::Peer { target, remote: remote.unwrap() };
                barrier.wait();
                let begun = Instant::now();
                let mut bytes = 0_u64;
                (0..DEPTH).for_each(|ctx| end.write(&peer, (LEN.into(), LEN), ctx));
                while begun.elapsed() < Duration::from_secs(seconds) {
                    let next = end.completions.wait(Some(Duration::from_secs(10))).unwrap();
                    next.expect("a completion").success().unwrap();
                    bytes += u64::from(LEN);
                    end.write(&peer, (LEN.into(), LEN), 1);
                }
                bytes
            })
        })
        .collect();
    let bytes: Vec<u64> = threads.into_iter().map(|thread| thread.join().unwrap()).collect();
    let total: u64 = bytes.iter().sum();
    let (mean, count) = (total / bytes.len() as u64, bytes.len() as u64);
    let (least, most) = (*bytes.iter().min().unwrap(), *bytes.iter().max().unwrap());
    let off = |share: u64| share.abs_diff(mean) * 1000 / mean.max(1);
    println!(
        "{count} clients, {seconds} s: {} MB/s together; least {} per mille below the mean, most {} above",
        total / seconds / 1_000_000,
        off(least),
        off(most)
    );
    // The goal is 100 per mille over seconds on a quiet machine; this finds a client that starves.
    assert!(least > mean / 4, "{bytes:?}");
}

/// A user that is not let in, and another one.
const STRANGER: u32 = 4711;
const OTHER: u32 = 4712;
/// A user that is let in, beside that of the test.
const USER: u32 = 4713;

/// The first message of a client: version 0.1.
const VERSION: [u8; 20] = [1, 0, 1, 0, 20, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 0];

fn threads(daemon: &Daemon) -> usize {
    std::fs::read_dir(format!("/proc/{}/task", daemon.pid())).unwrap().count()
}

fn refused(cfg: NodeCfg) -> String {
    urma::open_device(cfg).map(drop).unwrap_err().to_string()
}

#[test]
fn strangers_without_end_keep_no_user_out() {
    let daemon = Daemon::with("strangers", &["--users", &format!("0,{USER}")], &[]);
    let before = threads(&daemon);
    let is_over = Arc::new(AtomicBool::new(false));
    let flood: Vec<_> = (0..100)
        .map_while(|_| {
            let (socket, is_over) = (daemon.socket.clone(), Arc::clone(&is_over));
            // They say nothing, so that the daemon would wait for each of them.
            as_user(STRANGER, move || {
                while !is_over.load(Ordering::Acquire) {
                    if let Ok(mut silent) = UnixStream::connect(&socket) {
                        silent.set_read_timeout(Some(Duration::from_millis(500))).unwrap();
                        let _ = silent.read(&mut [0]);
                    }
                    std::thread::sleep(Duration::from_millis(5));
                }
            })
        })
        .collect();
    let Some(last) = as_user(OTHER, || ()) else { return };
    last.join().unwrap();
    until("the strangers are there", || {
        daemon.status()["refused"]["user"].as_u64().is_some_and(|count| count > 200)
    });
    for _ in 0..10 {
        drop(urma::open_device(daemon.cfg()).unwrap());
    }
    // No thread for any of them, and the others read why.
    until("no thread is kept", || threads(&daemon) <= before + 2);
    let cfg = daemon.cfg();
    let said = as_user(OTHER, move || refused(cfg)).unwrap().join().unwrap();
    assert!(said.contains("Permission denied"), "{said}");
    is_over.store(true, Ordering::Release);
    flood.into_iter().for_each(|thread| thread.join().unwrap());
    assert!(daemon.clients().is_empty());
}

#[test]
fn one_user_leaves_a_place_to_the_others() {
    let daemon = Daemon::with("places", &["--users", "any", "--clients", "8"], &[]);
    let socket = daemon.socket.clone();
    let taken = as_user(USER, move || {
        let connect = |_| {
            let mut client = UnixStream::connect(&socket).unwrap();
            client.write_all(&VERSION).unwrap();
            client
        };
        (0..20).map(connect).collect::<Vec<_>>()
    });
    let Some(taken) = taken else { return };
    let clients = taken.join().unwrap();
    until("all were judged", || daemon.status()["refused"]["too_many"] == 13);
    until("the others are served", || daemon.clients().len() == 7);
    let own = urma::open_device(daemon.cfg()).unwrap();
    assert!(refused(daemon.cfg()).contains("Too many users"));
    drop((own, clients));
}

#[test]
fn a_place_is_given_back_by_each_client() {
    let daemon = Daemon::with("turns", &["--clients", "2"], &[]);
    let before = threads(&daemon);
    for turn in 0..100 {
        until("a client has a place", || urma::open_device(daemon.cfg()).is_ok());
        // Also of those who leave without a word.
        if turn % 4 == 0 {
            drop(UnixStream::connect(&daemon.socket).unwrap());
        }
    }
    // The daemon itself may have started one more since.
    until("all threads ended", || threads(&daemon) <= before + 1);
    assert_eq!(daemon.status()["refused"]["resources"], 0);
}

#[test]
fn status_is_for_the_daemons_user_and_is_not_held_by_others() {
    let daemon = Daemon::start("status");
    let path = daemon.status_socket();
    // The bits of the file are not what decides.
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o666)).unwrap();
    let asks = path.clone();
    let answer = as_user(STRANGER, move || {
        let mut socket = UnixStream::connect(asks).unwrap();
        socket.write_all(b"GET /status HTTP/1.0\r\n\r\n").unwrap();
        let mut answer = String::new();
        socket.read_to_string(&mut answer).unwrap();
        answer
    });
    let Some(answer) = answer else { return };
    let answer = answer.join().unwrap();
    assert!(answer.starts_with("HTTP/1.0 403 ") && !answer.contains("clients"), "{answer}");
    let silent = as_user(STRANGER, move || {
        (0..40).map(|_| UnixStream::connect(&path).unwrap()).collect::<Vec<_>>()
    });
    let silent = silent.unwrap().join().unwrap();
    let begun = Instant::now();
    assert_eq!(daemon.status()["clients_max"], 64);
    assert!(begun.elapsed() < Duration::from_secs(20), "{:?}", begun.elapsed());
    drop(silent);
}

#[test]
fn descriptors_that_one_client_maps_are_bounded_and_those_of_others_are_left() {
    let daemon = Daemon::with_files("files", &["--clients", "4"], 600);
    let (mut served, mut greedy) = (End::open(&daemon), End::open(&daemon));
    let register = |end: &End| {
        let small = Region::private(4096).unwrap();
        end.context.register(&small, &segment_cfg(), None)
    };
    let most = daemon.status()["descriptors"]["most"].as_u64().unwrap();
    assert!((100..600).contains(&most), "{most}");
    let mut segments = Vec::new();
    let refused = loop {
        match register(&greedy) {
            Ok(segment) => segments.push(segment),
            Err(status) => break status,
        }
        assert!(segments.len() < 600, "no bound");
    };
    assert_eq!(refused, Status::Quota, "after {} segments", segments.len());
    let used = daemon.status()["descriptors"]["used"].as_u64().unwrap();
    assert!(used <= most - most / 5, "{used} of {most}: some are left for others");
    // The one who was there and a new one go on, and so does the greedy one with what it has.
    register(&served).unwrap();
    let mut new = End::open(&daemon);
    register(&new).unwrap();
    for (from, to) in [(&mut served, &new), (&mut greedy, &new)] {
        let peer = from.peer(to);
        from.write(&peer, (0, 4096), 1);
        from.done();
    }
    let peer = new.peer(&greedy);
    new.write(&peer, (0, 64), 1);
    new.done();
    assert_eq!(daemon.status()["cut_off"], 0);
    drop((segments, peer));
    register(&greedy).unwrap();
}
