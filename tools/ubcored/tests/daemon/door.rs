//! Users that are not let in, or have too much: what those who are served and those who may be keep.

use std::{
    io::{Read as _, Write as _},
    os::unix::{fs::PermissionsExt as _, net::UnixStream},
    sync::Arc,
    time::{Duration, Instant},
};

use urma::{NodeCfg, Region, Status};
use urma_mem::sync::{AtomicBool, Ordering};

use super::world::{Daemon, End, as_user, segment_cfg, until};

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
