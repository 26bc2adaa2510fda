//! `urma_ping`: does a node answer, and how fast? A line per answer and a summary, or one JSON document.
//!
//! The whole program: its command line (names of UMDK release 26.06 where it has them), the jetty that pings, counts
//! and round-trip times, output, exit code.
#![forbid(unsafe_code)]

use std::{
    process::ExitCode,
    time::{Duration, Instant},
};

use clap::{CommandFactory, Parser};
use nix::sys::{
    signal::{SigSet, Signal},
    signalfd::{SfdFlags, SignalFd},
};
use serde_json::{Value, json};
use urma::{
    Answerer, Arm, Completion, Context, CrStatus, Eid, Jetty, JettyCfg, JettyId, JettyRecv, Jfc,
    JfcCfg, Jfce, Jfr, JfrCfg, JfsCfg, LocalSge, NodeCfg, Opened, OrderType, RawEid, RecvWr,
    Region, RemoteJetty, Segment, SegmentAccess, SegmentCfg, SendOp, SendWr, Status, StatusKind,
    TargetJetty, TargetKind, TokenPolicy, TpType, TransportMode, WELL_KNOWN_ID,
};
use urma_tools::{LogLevel, LogSetup};

fn main() -> ExitCode {
    match urma_tools::generate_if_asked(vec![PingCli::command()]) {
        Ok(false) => {}
        Ok(true) => return ExitCode::SUCCESS,
        Err(error) => return fail(&format!("--generate: {error}")),
    }
    let cli = PingCli::parse();
    // Before any thread starts, so that all of them inherit the mask.
    let interrupt = match watch() {
        Ok(interrupt) => interrupt,
        Err(error) => return fail(&format!("watching for an interrupt: {error}")),
    };
    let level = if cli.verbose > 1 { LogLevel::Everything } else { LogLevel::Nothing };
    urma_tools::log(LogSetup { stdout: false, level });
    let (_answerer, opened) = match open(&cli) {
        Ok(both) => both,
        Err(why) => return fail(&why),
    };
    match cli.destination {
        None => serve(&opened, &interrupt),
        Some(destination) => {
            let mut run = PingRun::new(&cli, destination, interrupt);
            let result = run.all(&opened.context);
            let obstacle = run.obstacle(&opened.context, result);
            run.end(result, obstacle.as_deref())
        }
    }
}

fn fail(why: &str) -> ExitCode {
    urma_tools::say_error(&format!("urma_ping: {why}"));
    ExitCode::from(2)
}

fn watch() -> nix::Result<SignalFd> {
    let mut set = SigSet::empty();
    set.add(Signal::SIGINT);
    set.add(Signal::SIGTERM);
    set.thread_block()?;
    SignalFd::with_flags(&set, SfdFlags::SFD_NONBLOCK | SfdFlags::SFD_CLOEXEC)
}

/// The node, and what answers pings at it; it goes first.
fn open(cli: &PingCli) -> Result<(Answerer, Opened), String> {
    let mut cfg = NodeCfg::from_env().map_err(|error| error.to_string())?;
    if let Some(eid) = cli.source {
        cfg.eid = Some(RawEid(eid.bytes()));
    }
    cfg.name.clone_from(&cli.dev);
    let opened = urma::open_node(cfg).map_err(|error| error.to_string())?;
    let answerer = Answerer::start(&opened.device, 0);
    let answerer = answerer.map_err(|status| format!("answering pings: {status}"))?;
    Ok((answerer, opened))
}

/// Only answers, until interrupted.
fn serve(opened: &Opened, interrupt: &SignalFd) -> ExitCode {
    let _ = urma_tools::say(&format!("URMA_PING answering as {}\n", opened.context.eid()));
    while !matches!(interrupt.read_signal(), Ok(Some(_))) {
        pause(LOOK);
    }
    ExitCode::SUCCESS
}

/// Bytes of a ping that goes with the handshakes' packets in size.
const LEAST: u32 = 16;
/// How long a node is tried: Linux asks three times for a link address, once a second.
const REACH: Duration = Duration::from_millis(2500);
/// Longest wait for the answer to such a ping: a TP gives up the packets before it after at most 4.5 s (nine timeouts of
/// 500 ms).
const ANSWER: Duration = Duration::from_secs(5);
/// Between two looks for an interrupt while nothing is to be done.
const LOOK: Duration = Duration::from_millis(20);

#[expect(clippy::disallowed_methods, reason = "a program that pings waits between pings")]
fn pause(bound: Duration) {
    std::thread::sleep(bound);
}

#[expect(clippy::disallowed_methods, reason = "a program that measures time owns a clock")]
fn now() -> Instant {
    Instant::now()
}

/// State of one run, from the first ping to the summary.
struct PingRun<'a> {
    cli: &'a PingCli,
    destination: Eid,
    interrupt: SignalFd,
    is_over: bool,
    start: Instant,
    stat: Stat,
}

impl<'a> PingRun<'a> {
    fn new(cli: &'a PingCli, destination: Eid, interrupt: SignalFd) -> Self {
        let stat = Stat::default();
        Self { cli, destination, interrupt, is_over: false, start: now(), stat }
    }

    /// Sends all pings and waits for their answers.
    fn all(&mut self, context: &Context) -> Result<(), Status> {
        let mut probe = self.reach(context, self.cli.size)?;
        self.say(&format!("URMA_PING {} {} bytes of data.\n", self.eid(), self.cli.size));
        self.start = now();
        for seq in 1..=self.cli.count.unwrap_or(u32::MAX) {
            let sent = now();
            self.stat.transmitted += 1;
            probe.send(seq)?;
            if self.await_answer(&mut probe, seq, sent)? {
                // A failed request stopped the queue.
                probe = Probe::open(context, self.destination, self.cli.size)?;
            }
            if self.cli.count == Some(seq) || self.is_ended() {
                break;
            }
            self.rest(sent);
            if self.is_ended() {
                break;
            }
        }
        Ok(())
    }

    /// A queue for pings of `size` bytes, tried again for a while: the first packets to a host are lost while
    /// the system looks for its link address.
    fn reach(&mut self, context: &Context, size: u32) -> Result<Probe, Status> {
        let start = now();
        loop {
            match Probe::open(context, self.destination, size) {
                Err(status)
                    if status == Status::TimedOut
                        && start.elapsed() < REACH
                        && !self.is_ended() => {}
                opened => return opened,
            }
        }
    }

    /// Whether a ping of [`LEAST`] bytes is answered within [`ANSWER`]. Its connection may be that of the pings
    /// before and be given up with them: another one follows then.
    fn is_least_answered(&mut self, context: &Context) -> Result<bool, Status> {
        for _ in 0..2 {
            let mut probe = self.reach(context, LEAST)?;
            let start = now();
            probe.send(0)?;
            while start.elapsed() < ANSWER && !self.is_ended() {
                match probe.receive()? {
                    PingResult::Answer(_) => return Ok(true),
                    PingResult::Nothing => {}
                    PingResult::Failed(_) => break,
                }
            }
        }
        Ok(false)
    }

    /// Waits for answer number `seq`; whether the ping failed.
    fn await_answer(&mut self, probe: &mut Probe, seq: u32, sent: Instant) -> Result<bool, Status> {
        loop {
            let received = probe.receive()?;
            let ms = sent.elapsed().as_secs_f64() * 1000.0;
            match received {
                PingResult::Answer(number) if number == seq => {
                    self.stat.on_reply(seq, ms);
                    let (size, eid) = (self.cli.size, self.eid());
                    self.say_each(&format!("{size} bytes from {eid}: seq={seq} time={ms:.3} ms\n"));
                    return Ok(false);
                }
                PingResult::Answer(number) if self.cli.verbose > 0 => {
                    self.say_each(&format!(
                        "A late answer: expected seq={seq}, got seq={number}\n"
                    ));
                }
                PingResult::Failed(status) => {
                    self.say_each(&format!("From {} seq={seq} cr_status={status}\n", self.eid()));
                    return Ok(true);
                }
                PingResult::Answer(_) | PingResult::Nothing => {}
            }
            let is_late = self.cli.timeout != 0.0 && ms >= self.cli.timeout * 1000.0;
            if is_late {
                self.say_each(&format!("Request timeout for seq={seq}\n"));
            }
            if is_late || self.is_ended() {
                return Ok(false);
            }
        }
    }

    /// Sleeps until the next ping is due.
    fn rest(&mut self, sent: Instant) {
        let interval = Duration::from_secs_f64(self.cli.interval);
        while let Some(left) = interval.checked_sub(sent.elapsed()).filter(|left| !left.is_zero()) {
            if self.is_ended() {
                return;
            }
            pause(left.min(LOOK));
        }
    }

    /// Whether the user or the deadline ends it.
    fn is_ended(&mut self) -> bool {
        let bound = self.cli.deadline.filter(|deadline| *deadline != 0.0);
        let is_late = bound.is_some_and(|bound| self.start.elapsed().as_secs_f64() >= bound);
        self.is_over |= is_late || matches!(self.interrupt.read_signal(), Ok(Some(_)));
        self.is_over
    }

    /// What stands in the way, when no ping was answered.
    fn obstacle(&mut self, context: &Context, result: Result<(), Status>) -> Option<String> {
        let (own, peer) = (context.eid(), self.destination);
        match result {
            Err(status) => urma::why_unreached(own, peer, status),
            Ok(()) if self.stat.received() != 0 || self.is_over => None,
            Ok(()) => match self.is_least_answered(context) {
                Err(status) => urma::why_unreached(own, peer, status),
                Ok(is_answered) => (self.cli.size > LEAST && is_answered).then(|| {
                    format!(
                        "MTU: pings of {LEAST} bytes are answered, those of {} are not: packets of that size \
                         are lost on the path; give its interfaces the same MTU, or set URMA_MTU to a lower one",
                        self.cli.size
                    )
                }),
            },
        }
    }

    /// The summary and the exit code.
    fn end(&self, result: Result<(), Status>, obstacle: Option<&str>) -> ExitCode {
        let ms = self.start.elapsed().as_secs_f64() * 1000.0;
        if let Some(why) = obstacle {
            urma_tools::say_error(&format!(
                "urma_ping: no path to node {}: {why}",
                self.destination
            ));
        }
        if self.cli.json {
            let mut document = self.stat.json(ms);
            document["eid"] = json!(self.destination.to_string());
            document["size"] = json!(self.cli.size);
            document["error"] = json!(result.err().map(|status| status.to_string()));
            document["obstacle"] = json!(obstacle);
            let _ = urma_tools::say(&format!("{document:#}\n"));
        } else if self.stat.transmitted != 0 {
            self.say(&self.stat.text(ms));
        }
        match result {
            Err(status)
                if matches!(status.kind(), StatusKind::Unreachable | StatusKind::TimedOut) =>
            {
                ExitCode::FAILURE
            }
            Err(status) => fail(&status.to_string()),
            Ok(()) if self.is_enough() => ExitCode::SUCCESS,
            Ok(()) => ExitCode::FAILURE,
        }
    }

    /// As ping: one answer, or all of them when there is a deadline too.
    fn is_enough(&self) -> bool {
        let received = self.stat.received();
        match (self.cli.count, self.cli.deadline) {
            (Some(count), Some(_)) => received >= count,
            _ => received > 0,
        }
    }

    fn eid(&self) -> String {
        self.destination.groups().to_string()
    }

    /// A line of one ping.
    fn say_each(&self, text: &str) {
        if !self.cli.quiet {
            self.say(text);
        }
    }

    fn say(&self, text: &str) {
        if !self.cli.json {
            let _ = urma_tools::say(text);
        }
    }
}

/// Counts of pings and their round-trip times.
#[derive(Clone, Debug, Default)]
struct Stat {
    /// Number of pings sent.
    pub(crate) transmitted: u32,
    /// Round trips in milliseconds, by sequence number.
    replies: Vec<(u32, f64)>,
}

impl Stat {
    /// Counts the answer to ping `seq`, which took `ms` milliseconds.
    pub(crate) fn on_reply(&mut self, seq: u32, ms: f64) {
        self.replies.push((seq, ms));
    }

    /// Returns the number of pings that were answered.
    pub(crate) fn received(&self) -> u32 {
        u32::try_from(self.replies.len()).unwrap_or(u32::MAX)
    }

    fn loss(&self) -> f64 {
        let lost = self.transmitted.saturating_sub(self.received());
        f64::from(lost) * 100.0 / f64::from(self.transmitted.max(1))
    }

    /// Smallest, mean, largest, and standard deviation; zeros without an answer.
    fn rtt(&self) -> [f64; 4] {
        let times = || self.replies.iter().map(|(_, ms)| *ms);
        let count = f64::from(self.received().max(1));
        let mean = times().sum::<f64>() / count;
        let variance = times().map(|ms| (ms - mean).powi(2)).sum::<f64>() / count;
        let least = times().reduce(f64::min).unwrap_or(0.0);
        [least, mean, times().fold(0.0, f64::max), variance.sqrt()]
    }

    /// The last lines, after `ms` of running.
    pub(crate) fn text(&self, ms: f64) -> String {
        let [least, mean, most, deviation] = self.rtt();
        format!(
            "\n--- ping statistics ---\n{} packets transmitted, {} received, {:.1}% packet loss, \
             time {ms:.0}ms\nrtt min/avg/max/mdev = {least:.3}/{mean:.3}/{most:.3}/{deviation:.3} \
             ms\n",
            self.transmitted,
            self.received(),
            self.loss()
        )
    }

    /// All of it, after `ms` of running.
    pub(crate) fn json(&self, ms: f64) -> Value {
        let [least, mean, most, deviation] = self.rtt();
        let replies = self.replies.iter().map(|(seq, ms)| json!({ "seq": seq, "time[ms]": ms }));
        json!({
            "transmitted": self.transmitted,
            "received": self.received(),
            "loss[%]": self.loss(),
            "time[ms]": ms,
            "rtt[ms]": { "min": least, "avg": mean, "max": most, "mdev": deviation },
            "replies": replies.collect::<Vec<_>>(),
        })
    }
}

/// Messages outstanding: late answers need a receive, too.
const DEPTH: u32 = 64;
/// Looks at the JFC before this side sleeps: an answer of the same host is there by then.
const SPINS: u32 = 2000;
/// Longest sleep on events before the caller is asked again.
const NAP: Duration = Duration::from_millis(50);

/// What came, or did not.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum PingResult {
    /// The answer with this number.
    Answer(u32),
    /// The ping or its answer completed with an error.
    Failed(CrStatus),
    /// No completion has come.
    Nothing,
}

/// Pings one node. Fields are dropped in order.
#[derive(Debug)]
struct Probe {
    target: TargetJetty,
    jetty: Jetty,
    jfr: Jfr,
    sends: Jfc,
    receives: Jfc,
    jfce: Jfce,
    segment: Segment,
    size: u32,
}

impl Probe {
    /// A queue for pings of `size` bytes to `destination`.
    ///
    /// # Errors
    /// `Unreachable`, `TimedOut`: there is no path to the node. Else what making the queue answers.
    pub(crate) fn open(context: &Context, destination: Eid, size: u32) -> Result<Self, Status> {
        let mode = TransportMode::Rm;
        let bytes = size as usize * (DEPTH as usize + 1);
        let region = Region::private(bytes).map_err(|_| Status::NoMemory)?;
        let segment =
            context.register(&region, &SegmentCfg::new(SegmentAccess::LOCAL_ONLY), None)?;
        let jfce = context.create_jfce()?;
        let sends = context.create_jfc(&JfcCfg::new(2 * DEPTH), Some(&jfce))?;
        let receives = context.create_jfc(&JfcCfg::new(2 * DEPTH), Some(&jfce))?;
        let jfr = context.create_jfr(&JfrCfg::new(mode, DEPTH), &receives)?;
        let recv = JettyRecv::Shared { jfr: &jfr, jfc: None };
        let cfg = JettyCfg::new(JfsCfg::new(mode, DEPTH), &sends, recv);
        let jetty = context.create_jetty(&cfg)?;
        let target = context.import_jetty(&RemoteJetty {
            id: JettyId { eid: destination, uasid: 0, id: WELL_KNOWN_ID },
            kind: TargetKind::Jetty,
            mode,
            order: OrderType::Default,
            policy: TokenPolicy::None,
            tp: TpType::of(mode),
        })?;
        let mut probe = Self { target, jetty, jfr, sends, receives, jfce, segment, size };
        for index in 0..u64::from(DEPTH) {
            probe.renew(index)?;
        }
        Ok(probe)
    }

    /// Sends ping number `seq`.
    pub(crate) fn send(&mut self, seq: u32) -> Result<(), Status> {
        let (segment, len) = (&self.segment, self.size);
        let addr = segment.va() + u64::from(DEPTH) * u64::from(len);
        let piece = [LocalSge { segment, addr, len }];
        let op = SendOp::SendImm { src: &piece, imm: u64::from(seq) };
        let posted = self.jetty.post_send(&[SendWr::new(op, &self.target, u64::from(seq))]);
        posted.map_err(|_| Status::NoMemory)
    }

    /// Looks for an answer; sleeps a moment when none is there.
    pub(crate) fn receive(&mut self) -> Result<PingResult, Status> {
        for _ in 0..SPINS {
            match self.look()? {
                PingResult::Nothing => std::hint::spin_loop(),
                received => return Ok(received),
            }
        }
        self.receives.arm(Arm::Any)?;
        self.sends.arm(Arm::Any)?;
        let received = self.look()?;
        if received == PingResult::Nothing {
            let mut ready = [0; 2];
            let count = self.jfce.wait(&mut ready, Some(NAP))?;
            for jfc in ready.iter().take(count) {
                let of = if *jfc == self.sends.id() { &self.sends } else { &self.receives };
                let _ = of.ack_events(1);
            }
        }
        Ok(received)
    }

    fn look(&mut self) -> Result<PingResult, Status> {
        let mut one = [Completion::default(); 1];
        if self.sends.poll(&mut one)? != 0 && one[0].status != CrStatus::Success {
            return Ok(PingResult::Failed(one[0].status));
        }
        if self.receives.poll(&mut one)? == 0 {
            return Ok(PingResult::Nothing);
        }
        if one[0].status != CrStatus::Success {
            return Ok(PingResult::Failed(one[0].status));
        }
        self.renew(one[0].user_ctx)?;
        let seq = one[0].immediate().and_then(|imm| u32::try_from(imm).ok());
        Ok(seq.map_or(PingResult::Nothing, PingResult::Answer))
    }

    fn renew(&mut self, index: u64) -> Result<(), Status> {
        let (segment, size) = (&self.segment, self.size);
        let addr = segment.va() + index % u64::from(DEPTH) * u64::from(size);
        let piece = [LocalSge { segment, addr, len: size }];
        let posted = self.jfr.post_recv(&[RecvWr { dst: &piece, user_ctx: index }]);
        posted.map_err(|_| Status::NoMemory)
    }
}

/// Pings a node by its EID, through well-known jetty 5.
///
/// Exit code 0: an answer came (with -c and -w: all of them). 1: none did. 2: something else failed.
#[derive(Clone, Debug, Parser)]
#[command(name = "urma_ping", version, max_term_width = 100)]
struct PingCli {
    /// EID of the node to ping: dotted IPv4 or IPv6
    #[arg(value_name = "EID", required_unless_present = "serve")]
    pub(crate) destination: Option<Eid>,

    /// Pings to send [default: until interrupted]
    #[arg(short = 'c', value_name = "COUNT", value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) count: Option<u32>,

    /// EID of this node [default: as URMA_EID says, else the address of this host]
    #[arg(short = 'I', value_name = "EID")]
    pub(crate) source: Option<Eid>,

    /// Seconds between two pings
    #[arg(short = 'i', value_name = "SECONDS", default_value = "1", value_parser = seconds)]
    pub(crate) interval: f64,

    /// Bytes of a ping, 1 to 4096
    #[arg(short = 's', value_name = "BYTES", default_value_t = 4,
          value_parser = clap::value_parser!(u32).range(1..=4096))]
    pub(crate) size: u32,

    /// Seconds after which to end, whatever was answered [default: never]
    #[arg(short = 'w', value_name = "SECONDS", value_parser = seconds)]
    pub(crate) deadline: Option<f64>,

    /// Seconds to wait for an answer; 0: for ever
    #[arg(short = 'W', value_name = "SECONDS", default_value = "1", value_parser = seconds)]
    pub(crate) timeout: f64,

    /// Print the first and the last lines only
    #[arg(short = 'q')]
    pub(crate) quiet: bool,

    /// Print more; given twice: the log of the stack, too
    #[arg(short = 'v', long, action = clap::ArgAction::Count)]
    pub(crate) verbose: u8,

    /// Name of the device to open
    #[arg(short = 'd', long = "dev", value_name = "NAME", default_value = "udma0")]
    pub(crate) dev: String,

    /// Print one JSON document instead of text
    #[arg(long)]
    pub(crate) json: bool,

    /// Be a node that answers pings, until interrupted
    #[arg(long, conflicts_with_all = ["destination", "count", "deadline"])]
    pub(crate) serve: bool,
}

/// Most seconds of any option.
const SECONDS_MAX: f64 = 1e6;

fn seconds(text: &str) -> Result<f64, String> {
    match text.parse::<f64>() {
        Ok(seconds) if (0.0..=SECONDS_MAX).contains(&seconds) => Ok(seconds),
        Ok(_) => Err(format!("from 0 to {SECONDS_MAX}")),
        Err(error) => Err(error.to_string()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sums_up_as_ping_does() {
        let mut stat = Stat { transmitted: 4, ..Stat::default() };
        for (seq, ms) in [(1, 1.0), (2, 3.0), (4, 2.0)] {
            stat.on_reply(seq, ms);
        }
        assert_eq!(
            stat.text(3000.4),
            "\n--- ping statistics ---\n4 packets transmitted, 3 received, 25.0% packet loss, time \
             3000ms\nrtt min/avg/max/mdev = 1.000/2.000/3.000/0.816 ms\n"
        );
        assert_eq!(stat.json(1.0)["replies"][2]["seq"], 4);
    }

    #[test]
    fn nothing_came() {
        let stat = Stat { transmitted: 2, ..Stat::default() };
        assert!(stat.text(1.0).contains("100.0% packet loss"));
        assert_eq!(stat.json(1.0)["rtt[ms]"]["max"], 0.0);
    }
}
