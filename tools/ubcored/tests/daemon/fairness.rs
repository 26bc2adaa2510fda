//! Many clients of one daemon that all move data.

use std::{
    sync::{Arc, Barrier},
    time::{Duration, Instant},
};

use super::world::{Daemon, End};

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
