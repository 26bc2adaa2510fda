//! A run from connection to last size: compare, pin, open, exchange, test size by size.
//!
//! `-F` warns when the frequencies of the cores drift: the clock of this program does not depend on them, but what
//! it measures does. Must not format results.

use std::time::Duration;

use nix::{
    sched::{CpuSet, sched_setaffinity},
    unistd::Pid,
};
use urma::{Context, NodeCfg, PathChoice, PathKind, RawEid, Status};

use crate::{
    bw,
    cli::PathArg,
    clock::RunningClock,
    dirty::Dirty,
    error::RunError,
    lat,
    layout::Layout,
    oob::{self, Oob, OobError, OobMessage, SizeOutcome, VERSION, unexpected},
    pass::{Interrupted, Live, Pass, Periods, SizeSamples},
    plan::{Plan, PlanRefusal, Verb},
    receive::Receiver,
    report, requests, rounds,
    session::{Session, Side},
    verify,
};

/// Receives progress while the run goes on.
pub(crate) trait Audience: Periods {
    /// Called when the server starts to wait for a client.
    fn on_waiting(&mut self);
    /// Both sides are connected; the path between them is known.
    fn on_connected(&mut self, path: PathKind);
    /// One size is done.
    fn on_result(&mut self, result: SizeResult);
}

/// Result of one message size.
#[derive(Clone, Debug)]
pub(crate) struct SizeResult {
    /// The numbers; `None` on a side that measures nothing.
    pub(crate) result: Option<report::Result>,
    /// What this side did.
    pub(crate) mine: SizeOutcome,
    /// What the peer did.
    pub(crate) peer: SizeOutcome,
}

/// Runs the plan to its end.
pub(crate) fn run(plan: &Plan, audience: &mut dyn Audience) -> Result<(), RunError> {
    // Before any thread starts: threads inherit what is done to signals.
    let interrupted = match plan.test.period_ms {
        Some(period_ms) if plan.is_active() => Some((Interrupted::watch()?, period_ms)),
        _ => None,
    };
    let live = interrupted.map(|(interrupted, period_ms)| Live::new(interrupted, period_ms));
    let mut oob = connect(plan, audience)?;
    run_connected(plan, &mut oob, live, audience).map_err(|error| account(&mut oob, error))
}

/// How long the peer may take to say why it gave up, after its requests failed here.
const REASON_BOUND: Duration = Duration::from_secs(1);

/// Why the run ended: for a failure that the peer's end may have caused, the peer's reason where
/// it gives one. A reason of this side's own is sent to the peer.
fn account(oob: &mut Oob, error: RunError) -> RunError {
    match error {
        RunError::Oob(OobError::Refused(_)) => return error,
        RunError::Oob(_)
        | RunError::Request(_)
        | RunError::Unanswered { .. }
        | RunError::Api { .. } => {
            if let Some(why) = oob.reason(REASON_BOUND) {
                return OobError::Refused(why).into();
            }
        }
        RunError::Refused(_)
        | RunError::Mismatch(_)
        | RunError::System { .. }
        | RunError::NoPath { .. } => {}
    }
    // The peer may be gone: then there is nothing to say to it.
    let _ = oob.say(&OobMessage::Refused(error.to_string()));
    error
}

pub(crate) fn connect(plan: &Plan, audience: &mut dyn Audience) -> Result<Oob, RunError> {
    let silence = Duration::from_secs(u64::from(plan.wait_timeout_s));
    let (address, bind) = (plan.server.as_deref(), plan.bind_ip.as_deref());
    let at = oob::OobAddress { address, port: plan.port, bind, ipv6: plan.ipv6 };
    if plan.is_client() {
        return Ok(Oob::connect(&at, silence)?);
    }
    let listener = at
        .listen()
        .map_err(|error| RunError::System { what: "listening on the port of -P", error })?;
    audience.on_waiting();
    Ok(Oob::accept(&listener, silence)?)
}

fn run_connected(
    plan: &Plan,
    oob: &mut Oob,
    live: Option<Live>,
    audience: &mut dyn Audience,
) -> Result<(), RunError> {
    let mut session = join(plan, oob)?;
    let path = session.objects.path();
    let nodes = (session.context.eid(), session.objects.targets[0].target().id.eid);
    audience.on_connected(path);
    // The node lives until the reason is found: it is asked, too.
    sizes(plan, oob, (&mut session, live), audience).map_err(|error| {
        match (error, session.context.counters()) {
            // Requests of a lost device are flushed, like those of a queue in the error state.
            (RunError::Request(why), Err(status)) if status == Status::NoDevice => {
                RunError::Request(format!("{why}: {status}"))
            }
            (error, _) => error.explained(nodes, path),
        }
    })
}

/// Compares the tests, opens the device, imports what the peer has.
pub(crate) fn join(plan: &Plan, oob: &mut Oob) -> Result<Session, RunError> {
    let peer_cpu = compare(plan, oob)?;
    if let Some(core) = plan.cpu.or(peer_cpu) {
        pin(core)?;
    }
    let side = Side::open(open(plan)?, plan)?;
    oob.say(&OobMessage::Endpoint(Box::new(side.endpoint(&plan.test))))?;
    let peer = match oob.receive("the peer's endpoint")? {
        OobMessage::Endpoint(peer) => peer,
        other => return Err(unexpected(&other).into()),
    };
    side.connect(plan, &peer)
}

/// Compares versions and parameters; returns the core that the client wishes this side to have.
fn compare(plan: &Plan, oob: &mut Oob) -> Result<Option<usize>, RunError> {
    let test = Box::new(plan.test.clone());
    oob.say(&OobMessage::Hello { version: VERSION, test, peer_cpu: plan.peer_cpu })?;
    let (version, test, peer_cpu) = match oob.receive("the peer's parameters")? {
        OobMessage::Hello { version, test, peer_cpu } => (version, test, peer_cpu),
        other => return Err(unexpected(&other).into()),
    };
    if version != VERSION {
        let why = format!("version {VERSION} here, {version} there");
        return Err(PlanRefusal(why).into());
    }
    let differences = plan.test.differences(&test);
    if !differences.is_empty() {
        let why = format!("the two sides were given different options: {}", differences.join("; "));
        return Err(PlanRefusal(why).into());
    }
    Ok(peer_cpu)
}

fn pin(core: usize) -> Result<(), RunError> {
    let mut set = CpuSet::new();
    set.set(core)
        .and_then(|()| sched_setaffinity(Pid::from_raw(0), &set))
        .map_err(|error| PlanRefusal(format!("core {core}: {error}")).into())
}

fn sizes(
    plan: &Plan,
    oob: &mut Oob,
    (session, mut live): (&mut Session, Option<Live>),
    audience: &mut dyn Audience,
) -> Result<(), RunError> {
    let test = &plan.test;
    let clock = RunningClock::start();
    let largest = test.sizes.last().copied().unwrap_or(1);
    let sources = session.sources.clone();
    let receive_layout = Layout::of(test, largest)?;
    for (index, bytes) in test.sizes.iter().enumerate() {
        let before = session.counters()?;
        let objects = &session.objects;
        let pieces = requests::receive_pieces(objects, test, &receive_layout);
        let layout = Layout::of(test, *bytes)?;
        let credit = requests::credit_pieces(objects, test, &layout);
        let mut receiver = Receiver::new(objects, test, &pieces, &sources);
        receiver = receiver.with_credit((objects, test), &credit, layout, index as u64);
        if index == 0 {
            receiver.post_all(&mut session.ends)?;
        }
        let dirty = test.dirty_ms.map(|period_ms| {
            Dirty::start(objects.region(), layout, objects.targets.len(), period_ms)
        });
        let mut pass = Pass {
            plan,
            ends: &mut session.ends,
            objects,
            receiver: &mut receiver,
            oob,
            layout,
            clock,
            index: index as u64,
            beat_ns: clock.now_ns(),
            live: match &mut live {
                Some(live) => Some((live, &mut *audience)),
                None => None,
            },
        };
        let point = 2 * index as u64;
        verify::prepare(&pass)?;
        pass.oob.meet(point)?;
        let is_in_rounds = test.verify && test.command.verb() == Verb::Write;
        let mut taken = match test.command.is_latency() {
            true => lat::run(&mut pass)?,
            false if is_in_rounds => rounds::run(&mut pass)?,
            false => bw::run(&mut pass)?,
        };
        pass.finish(point + 1)?;
        drop(dirty);
        let errors = session.ends.failed();
        let after = session.counters()?;
        let mine = SizeOutcome { errors, ..outcome(&taken, &before, &after) };
        let peer = exchange(oob, &mine)?;
        let measured = plan.is_measuring();
        let result =
            measured.then(|| report::Result::of(plan, *bytes, &mut taken, &peer)).flatten();
        let result = result.map(|mut result| {
            result.form.errors = test.err_continue.then_some(mine.errors + peer.errors);
            result
        });
        audience.on_result(SizeResult { result, mine, peer });
    }
    Ok(())
}

fn exchange(oob: &mut Oob, mine: &SizeOutcome) -> Result<SizeOutcome, RunError> {
    oob.say(&OobMessage::Outcome(mine.clone()))?;
    match oob.receive("the peer's outcome")? {
        OobMessage::Outcome(peer) => Ok(peer),
        other => Err(unexpected(&other).into()),
    }
}

fn outcome<Name: AsRef<str>>(
    taken: &SizeSamples,
    before: &[(Name, u64)],
    after: &[(Name, u64)],
) -> SizeOutcome {
    let changed = after.iter().zip(before).filter(|(now, then)| now.1 != then.1);
    SizeOutcome {
        messages: taken.total(),
        received: taken.received,
        errors: 0,
        nanos: taken.longest_ns(),
        best_ns: taken.best_ns,
        counters: changed
            .map(|(now, then)| (now.0.as_ref().to_owned(), now.1.saturating_sub(then.1)))
            .collect(),
    }
}

/// Opens the device that the plan names.
fn open(plan: &Plan) -> Result<Context, RunError> {
    let mut cfg = NodeCfg::from_env().map_err(|error| PlanRefusal(error.to_string()))?;
    if let Some(eid) = plan.eid {
        cfg.eid = Some(RawEid(eid.bytes()));
    }
    cfg.name.clone_from(&plan.dev);
    match plan.test.path {
        PathArg::Auto => {}
        PathArg::SameHost => cfg.path = PathChoice::SameHost,
        PathArg::Packets => cfg.path = PathChoice::Packets,
    }
    let device = urma::open_device(cfg).map_err(|error| PlanRefusal(error.to_string()))?;
    let opened = device.open(plan.eid_index);
    opened.map_err(|status| RunError::Api { what: "opening the device", status })
}

/// Ratio of two frequencies from which on it is worth a warning.
const DRIFT: f64 = 1.02;

/// The slowest and the fastest core now, MHz; `None` when the system does not say.
pub(crate) fn spread() -> Option<(f64, f64)> {
    spread_of(&std::fs::read_to_string("/proc/cpuinfo").ok()?)
}

fn spread_of(text: &str) -> Option<(f64, f64)> {
    let lines = text.lines().filter(|line| line.starts_with("cpu MHz"));
    let values = lines.filter_map(|line| line.split(':').nth(1)?.trim().parse::<f64>().ok());
    values.fold(None, |spread, mhz| {
        let (low, high) = spread.unwrap_or((mhz, mhz));
        Some((f64::min(low, mhz), f64::max(high, mhz)))
    })
}

/// What to say about frequencies before and after a run.
pub(crate) fn warning(before: Option<(f64, f64)>, after: Option<(f64, f64)>) -> Option<String> {
    let (Some(before), Some(after)) = (before, after) else {
        return Some("the system does not show the frequencies of its cores".to_owned());
    };
    let (low, high) = (before.0.min(after.0), before.1.max(after.1));
    (high > low * DRIFT).then(|| {
        format!("the frequencies of the cores drift: {low:.0} to {high:.0} MHz during the run")
    })
}

#[cfg(test)]
mod tests {

    use super::*;

    #[test]
    fn a_failed_request_is_explained_by_the_peer() {
        let port = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
        let at = oob::OobAddress { address: None, port, bind: Some("127.0.0.1"), ipv6: false };
        let (listener, bound) = (at.listen().unwrap(), Duration::from_secs(30));
        let peer = std::thread::spawn(move || {
            let mut peer = Oob::accept(&listener, bound).unwrap();
            peer.say(&OobMessage::Meet(3)).unwrap();
            peer.say(&OobMessage::Refused("byte 7 is wrong".to_owned())).unwrap();
            peer.receive("what this side says").map_err(|error| error.to_string())
        });
        let mut oob = Oob::connect(&at, bound).unwrap();
        let failed = || RunError::Request("request 0x3 failed: the peer is gone".to_owned());
        let explained = account(&mut oob, failed()).to_string();
        assert_eq!(explained, "the peer gave up: byte 7 is wrong");
        drop(oob);
        let error_there = peer.join().unwrap().unwrap_err();
        assert!(error_there.contains("closed the connection"), "{error_there}");
    }

    #[test]
    fn a_thread_is_pinned_to_one_core_or_says_which_it_may_not_have() {
        let allowed = || nix::sched::sched_getaffinity(Pid::from_raw(0)).unwrap();
        let cores =
            |set: CpuSet| (0..CpuSet::count()).filter(|core| set.is_set(*core).unwrap()).collect();
        let thread = std::thread::spawn(move || {
            let before: Vec<usize> = cores(allowed());
            let last = *before.last().unwrap();
            pin(last).unwrap();
            let after: Vec<usize> = cores(allowed());
            assert_eq!(after, [last]);
            for beyond in [CpuSet::count() - 1, CpuSet::count()] {
                let refused = pin(beyond).unwrap_err();
                let why = refused.to_string();
                assert!(
                    matches!(refused, RunError::Refused(_))
                        && why.contains(&format!("core {beyond}: "))
                );
            }
            assert_eq!(cores(allowed()), [last], "a refused core changes nothing");
        });
        assert!(thread.join().is_ok());
    }

    #[test]
    fn counters_are_those_of_the_size_alone() {
        let before = [("ring_requests", 5), ("ring_full", 3), ("direct_requests", 0)];
        let after = [("ring_requests", 9), ("ring_full", 3), ("direct_requests", 2)];
        let taken =
            SizeSamples { messages: vec![3, 4], nanos: vec![7, 5], ..SizeSamples::default() };
        let outcome = outcome(&taken, &before, &after);
        let changed = [("ring_requests".to_owned(), 4), ("direct_requests".to_owned(), 2)];
        assert_eq!(outcome.counters, changed);
        assert_eq!((outcome.messages, outcome.nanos), (7, 7));
    }

    #[test]
    fn only_a_drift_is_worth_a_word() {
        let text = "processor: 0\ncpu MHz\t\t: 2000.5\nprocessor: 1\ncpu MHz\t\t: 3000.0\n";
        assert_eq!(spread_of(text), Some((2000.5, 3000.0)));
        assert_eq!(warning(Some((2000.0, 2010.0)), Some((2001.0, 2020.0))), None);
        let said = warning(Some((2000.0, 2000.0)), Some((3000.0, 3000.0))).unwrap();
        assert!(said.contains("2000 to 3000 MHz"), "{said}");
        assert!(warning(None, None).is_some());
    }
}
