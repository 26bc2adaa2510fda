//! Pairs of which both live: one of the two is stopped now and then while strangers send to both.
//!
//! *Owns*: the plan of such a pair by seed and index. *Gives*: nothing, or what was wrong: no
//! request of either may fail. *Must not*: leave a process, or receive what is sent to the
//! addresses it uses.

use std::{
    net::{IpAddr, SocketAddr, UdpSocket},
    thread,
    time::Duration,
};

use rustix::process::Signal;
use ubcore_sim::{
    host::{eid_ip, ip_eid},
    sim::Attacker,
};
use urma_kill::{
    channel::{Endpoint, Word},
    journal,
    judge::{Demand, judge},
    pause::{Bound, rest},
    plan::{Mix, Mode, mix},
};
use urma_mem::sync::{AtomicBool, AtomicU64, Ordering};

use crate::worker::{HANG, Worker};

/// What happens to a pair.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Plan {
    seed: u64,
    mode: Mode,
    /// Which of the two is stopped.
    stopped: Option<usize>,
    attacked: bool,
    /// The longest stop in ms; others are shorter than [`SHORT_MS`].
    stop_ms: u64,
    /// How many stops are that long.
    pub(crate) long_stops: usize,
    /// A mistake of both devices.
    pub(crate) fault: Option<&'static str>,
}

/// Port of a node's socket.
const PORT: u16 = 4791;
/// Receives: more than the other side has outstanding.
const RECEIVES: u32 = 200;
/// Shorter stops, in ms.
const SHORT_MS: u64 = 300;
/// Longest stop of a UM pair, in ms.
const UM_STOP_MS: u64 = 1000;
/// Stops after the long one.
const SHORT_STOPS: u64 = 2;
/// Time for which strangers send in a pair without stops.
const CALM: Duration = Duration::from_millis(1500);
/// Datagrams of strangers in a millisecond.
const BURST: u32 = 8;
/// Completions between two stops.
const STEPS: usize = 20;
/// Error timeout of a pair without stops: 8.6 s.
const ERR_TIMEOUT: u8 = 21;
/// The same with a mistake of the devices: 0.5 s.
const ERR_TIMEOUT_SHORT: u8 = 17;

impl Plan {
    /// Pair `index` of a run: stops, strangers, and both, in each mode.
    pub(crate) fn new(seed: u64, index: u64, stop_ms: u64) -> Self {
        let seed = mix(seed ^ mix(index));
        let mode = match (index / 4) % 3 {
            0 => Mode::Rm,
            1 => Mode::Rc,
            _ => Mode::Um,
        };
        // UM sends do not wait for the peer: during a longer stop they would fill the journal.
        let stop_ms = if mode == Mode::Um { stop_ms.min(UM_STOP_MS) } else { stop_ms };
        let stopped = usize::try_from(seed >> 8 & 1).ok().filter(|_| index % 4 != 1);
        Self {
            seed,
            mode,
            stopped,
            attacked: !index.is_multiple_of(4),
            stop_ms,
            long_stops: 1,
            fault: None,
        }
    }

    /// Error timeout of side `number`: the longest one that is shorter than the stop for the side
    /// that is stopped; three times as long as the stop for its peer. With shorter ones, requests
    /// to a peer that gets no core for a while would end without a stop and without strangers.
    fn err_timeout(&self, number: usize) -> u8 {
        let is_long = |ns: u64| move |code: &u8| 4096 << code >= ns;
        let stop_ns = self.stop_ms.saturating_mul(1_000_000);
        match self.stopped {
            // A pair that is meant to fail does so soon.
            None if self.fault.is_some() => ERR_TIMEOUT_SHORT,
            None => ERR_TIMEOUT,
            Some(stopped) if stopped == number => (1..31).find(is_long(stop_ns)).unwrap_or(31) - 1,
            Some(_) => (1..31).find(is_long(3 * stop_ns)).unwrap_or(31),
        }
    }
}

/// Runs the pair. Returns how many datagrams strangers sent.
///
/// # Errors
/// What was wrong.
pub(crate) fn run(plan: &Plan) -> Result<u64, String> {
    let planted: Vec<&str> = plan.fault.iter().flat_map(|fault| ["--fault", *fault]).collect();
    let start = |name| Worker::start_with(name, &[("URMA_PATH", "packets")], &planted);
    let mut pair = [start("first")?, start("second")?];
    let addresses = [address(&pair[0])?, address(&pair[1])?];
    let (is_over, sent) = (AtomicBool::new(false), AtomicU64::new(0));
    let result = thread::scope(|scope| {
        if plan.attacked {
            scope.spawn(|| attack(plan.seed, addresses, (&is_over, &sent)));
        }
        let result = round(plan, &mut pair);
        is_over.store(true, Ordering::Relaxed);
        result
    });
    let journals = [pair[0].journal(), pair[1].journal()];
    let judged = |number: usize| {
        let peer = journals[1 - number].display().to_string();
        pair[number].judged(&["--clean-from", "1", "--peer-lives", "--peer", &peer])
    };
    let results = [result, judged(0), judged(1)];
    let wrong: Vec<String> = results.into_iter().filter_map(Result::err).collect();
    if !wrong.is_empty() {
        return Err(format!("{plan:?}: {}", wrong.join("; ")));
    }
    pair.iter_mut().try_for_each(Worker::quit)?;
    Ok(sent.load(Ordering::Relaxed))
}

fn address(worker: &Worker) -> Result<IpAddr, String> {
    worker.eid.parse().map_err(|_| format!("{} is no address", worker.eid))
}

/// Runs the pair's one round, with the stops in it.
fn round(plan: &Plan, pair: &mut [Worker; 2]) -> Result<(), String> {
    let mixes = [1, 2].map(|salt| Mix { seed: mix(plan.seed ^ salt), mode: plan.mode });
    for number in [0, 1] {
        let (own, peer, err_timeout) = (mixes[number], mixes[1 - number], plan.err_timeout(number));
        let receives = RECEIVES;
        pair[number].say(&Word::Prepare { round: 1, own, peer, receives, err_timeout })?;
    }
    let here = pair[0].receive_endpoint()?;
    let there = pair[1].receive_endpoint()?;
    let to = |peer: Endpoint| Word::Run { peer, count: None };
    pair[0].say(&to(there))?;
    pair[1].say(&to(here))?;
    pair.iter_mut().try_for_each(|worker| worker.expect(&Word::Met))?;
    pair.iter_mut().try_for_each(|worker| worker.say(&Word::Go))?;
    go_on(pair)?;
    match plan.stopped {
        Some(stopped) => {
            let shorter = (1..=SHORT_STOPS).map(|n| mix(plan.seed ^ n) % SHORT_MS);
            for stop_ms in std::iter::repeat_n(plan.stop_ms, plan.long_stops).chain(shorter) {
                pair[stopped].signal(Signal::STOP);
                rest(Duration::from_millis(stop_ms));
                pair[stopped].signal(Signal::CONT);
                go_on(pair)?;
            }
        }
        None => rest(CALM),
    }
    go_on(pair)?;
    for word in [Word::Enough, Word::Stop] {
        pair.iter_mut().try_for_each(|worker| worker.say(&word))?;
        let answer = if word == Word::Stop { Word::Closed } else { Word::Done };
        pair.iter_mut().try_for_each(|worker| worker.expect(&answer))?;
    }
    Ok(())
}

/// Waits until each side has completed [`STEPS`] more requests.
///
/// # Errors
/// A side completes too few in [`HANG`], or its journal breaks a rule.
fn go_on(pair: &[Worker; 2]) -> Result<(), String> {
    let demand = Demand { dead: true, clean_from: Some(1), ..Demand::default() };
    for worker in pair {
        let bound = Bound::after(HANG);
        let mut due = None;
        loop {
            let records = journal::read(&worker.journal()).map_err(|error| error.to_string())?;
            let judgement = judge(&records, demand, None);
            if !judgement.violations.is_empty() {
                return Err(format!("{}: {:?}", worker.name, judgement.violations));
            }
            let done = usize::try_from(judgement.completed).unwrap_or(usize::MAX);
            if done >= *due.get_or_insert(done + STEPS) {
                break;
            }
            if bound.is_over() {
                return Err(format!("{} does not go on after {done} completions", worker.name));
            }
            rest(Duration::from_millis(10));
        }
    }
    Ok(())
}

/// Sends CONNECT, CLOSE, notices and other packets to both: as a node of an invented address, and
/// from another port of the address of the other one.
fn attack(seed: u64, nodes: [IpAddr; 2], (is_over, sent): (&AtomicBool, &AtomicU64)) {
    let mut attacker = Attacker::new(seed, 1_000_000, nodes.map(ip_eid).to_vec());
    while !is_over.load(Ordering::Relaxed) {
        for _ in 0..BURST {
            let datagram = attacker.datagram(&[]);
            let from = eid_ip(datagram.from);
            let port = if nodes.contains(&from) { 0 } else { PORT };
            // An address that is in use at the moment is left alone.
            let Ok(socket) = UdpSocket::bind((from, port)) else { continue };
            let to = SocketAddr::new(eid_ip(datagram.to), PORT);
            let is_sent = socket.send_to(&datagram.bytes, to).is_ok();
            sent.fetch_add(u64::from(is_sent), Ordering::Relaxed);
        }
        rest(Duration::from_millis(1));
    }
}
