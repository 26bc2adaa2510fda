//! One run: random work on every node, checked against the model after every step.
//!
//! Must not use anything random but the plan's seed.

use std::{
    fmt::{self, Debug},
    ops::AddAssign,
    sync::Arc,
};

use ubcore_sim::{
    link::Rng,
    sim::{Fabric, refuse_warnings},
};
use udma_abi::counters::Counter;
use urma_packet::DATA_OVERHEAD;

use super::{
    node::{Lane, Program, partner},
    plan::{SimPlan, Work},
    side::{Node, Phase},
};

/// A run that went well.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Report {
    /// Hash of the log of everything that happened.
    pub hash: u64,
    /// Number of requests that completed.
    pub requests: u64,
    /// Number of messages that were received.
    pub messages: u64,
    /// Requests that were refused, as they had to be.
    pub refused: u64,
    /// Requests that broke down with their queue or target.
    pub broken: u64,
    /// Number of completion events that were taken.
    pub events: u64,
    /// Times that a path was found to be narrower than before.
    pub narrowed: u64,
    /// Packets that never came and were made from repair packets.
    pub repaired: u64,
    /// Virtual time it took, in ns.
    pub took_ns: u64,
    /// Longest virtual time in which no request completed, in ns.
    pub stall_ns: u64,
}

/// Hashes do not add up: that of the last one stays.
impl AddAssign for Report {
    fn add_assign(&mut self, other: Self) {
        *self = Self {
            hash: other.hash,
            requests: self.requests + other.requests,
            messages: self.messages + other.messages,
            refused: self.refused + other.refused,
            broken: self.broken + other.broken,
            events: self.events + other.events,
            narrowed: self.narrowed + other.narrowed,
            repaired: self.repaired + other.repaired,
            took_ns: self.took_ns + other.took_ns,
            stall_ns: self.stall_ns.max(other.stall_ns),
        };
    }
}

/// A run that did not.
#[derive(Clone, PartialEq, Eq)]
pub struct SimFailure {
    /// Seed of the run that failed.
    pub seed: u64,
    /// Rule that was broken, with the values found.
    pub what: String,
    /// Last lines of the event log.
    pub log: String,
}

impl Debug for SimFailure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "seed {}: {}\nlast events:\n{}", self.seed, self.what, self.log)
    }
}

/// Virtual time in which all work must be done, in ns.
const BOUND_NS: u64 = 60_000_000_000;
/// Longest time from the last fault of the links to the end of what was posted before: a timer that waits as long as one
/// may, and the target without receives meanwhile, twice, since a request may wait for another one.
const LIVENESS_NS: u64 = 2 * (RTO_MAX_NS + DRY_NS);
/// Most that a TP waits for an acknowledgement, in ns (docs/wire-spec.md, section 6).
const RTO_MAX_NS: u64 = 500_000_000;
/// Quiet time at the end, in which nothing more may complete, in ns.
const QUIET_NS: u64 = 20_000_000;

/// Rounds between two looks at path MTUs.
const ROUNDS_PER_LOOK: usize = 8;
/// Bytes of the headers of IPv4 and UDP.
const IP_OVERHEAD: usize = 28;

/// Everything of one run.
pub(super) struct Run<'a> {
    pub(super) plan: &'a SimPlan,
    pub(super) fabric: Arc<Fabric>,
    pub(super) rng: Rng,
    pub(super) nodes: Vec<Node>,
    pub(super) next_number: u64,
    /// Nodes that are still to be killed.
    pub(super) kills: u32,
    /// Stops that are still to come.
    pub(super) stops: u32,
    /// Programs of dead nodes: what they would do when they end has no place in the run.
    pub(super) graves: Vec<Program>,
    pub(super) report: Report,
    rounds: usize,
    /// Requests that were completed when one last was, and the time.
    progress: (u64, u64),
    /// Number of the first request that was posted when the links no longer lost anything.
    first_in_calm: Option<u64>,
}

/// Runs `plan`.
///
/// # Errors
/// Whatever is lost, doubled, corrupted, misordered, or not done in time.
pub fn run(plan: &SimPlan) -> Result<Report, Box<SimFailure>> {
    let failure = |what: String, log: String| Box::new(SimFailure { seed: plan.seed, what, log });
    let fabric = Fabric::new(plan.fabric.clone())
        .map_err(|error| failure(error.to_string(), String::new()))?;
    let mut world = None;
    let outcome = refuse_warnings(|| world.insert(Run::new(plan, &fabric)?).all());
    // Drivers of dead devices complain while they end.
    drop(world);
    outcome.map_err(|what| failure(what, fabric.log_text()))
}

impl<'a> Run<'a> {
    pub(super) fn new(plan: &'a SimPlan, fabric: &Arc<Fabric>) -> Result<Self, String> {
        let count = plan.fabric.devices.len();
        let open = |number| {
            let program = Program::open(fabric, number, count, plan.err_timeout(number));
            program.map(|program| Node::new(program, count, plan.requests))
        };
        let nodes = (0..count).map(open).collect::<Result<Vec<_>, _>>();
        let mut run = Self {
            plan,
            fabric: Arc::clone(fabric),
            rng: Rng::new(plan.seed ^ plan.salt << 56),
            nodes: nodes.map_err(|status| format!("opening: {status}"))?,
            next_number: 1,
            kills: plan.kills,
            stops: plan.stops,
            graves: Vec::new(),
            report: Report::default(),
            rounds: 0,
            progress: (0, fabric.now()),
            first_in_calm: None,
        };
        for me in 0..count {
            for other in (0..count).filter(|&other| other != me) {
                run.meet(me, other).map_err(|status| format!("importing: {status}"))?;
            }
            if let (Some(other), Some(program)) = (partner(me, count), run.program(me)) {
                program.pair(other).map_err(|status| format!("binding: {status}"))?;
            }
        }
        Ok(run)
    }

    fn all(&mut self) -> Result<Report, String> {
        let started = self.fabric.now();
        while !self.is_done() {
            if self.fabric.now() - started > BOUND_NS {
                return Err(format!("not done in time: {}", self.unfinished()));
            }
            self.round()?;
        }
        self.report.took_ns = self.fabric.now() - started;
        let quiet_until = self.fabric.now() + QUIET_NS;
        while self.fabric.now() < quiet_until {
            self.fabric.step_nodes();
            (0..self.nodes.len()).try_for_each(|node| self.poll(node))?;
        }
        // The poll of a node may bring a datagram to one that was polled before it, or only take one in.
        for _ in 0..=self.nodes.len() {
            (0..self.nodes.len()).try_for_each(|node| self.poll(node))?;
        }
        self.check_all()?;
        self.report.hash = self.fabric.log_hash();
        let fabric = Arc::clone(&self.fabric);
        let nodes = self.nodes.len();
        let sum = |counter| (0..nodes).map(|node| fabric.device(node).counter(counter)).sum();
        self.report.narrowed = sum(Counter::PathNarrowed);
        self.report.repaired = sum(Counter::PacketsRepaired);
        self.check_receives()?;
        self.check_returned()?;
        Ok(self.report)
    }

    fn round(&mut self) -> Result<(), String> {
        let first = self.rng.index(self.nodes.len());
        for offset in 0..self.nodes.len() {
            let node = (first + offset) % self.nodes.len();
            self.life(node)?;
            let runs = self.nodes[node].program.is_some() && self.fabric.runs(node);
            if !runs || self.rng.chance_ppm(self.plan.lazy_ppm) {
                continue;
            }
            self.post_receives(node)?;
            self.post_requests(node)?;
            self.trouble(node)?;
            self.lend(node)?;
            self.arm(node, self.plan.arm_ppm)?;
            self.poll(node)?;
            self.take_events(node)?;
        }
        self.fabric.step_nodes();
        self.rounds += 1;
        self.note_progress();
        self.check_mtus()?;
        self.check_liveness()?;
        self.check_lent()?;
        self.check_busy(self.rounds)
    }

    fn note_progress(&mut self) {
        let (now, (done, since)) = (self.fabric.now(), self.progress);
        self.report.stall_ns = self.report.stall_ns.max(now - since);
        if self.report.requests != done {
            self.progress = (self.report.requests, now);
        }
    }

    /// Behind a router whose MTU never changes, no packet size is used that does not pass it.
    fn check_mtus(&self) -> Result<(), String> {
        if !self.rounds.is_multiple_of(ROUNDS_PER_LOOK) {
            return Ok(());
        }
        let routers = self.plan.fabric.faults.routers.iter();
        for router in routers.filter(|router| (router.from, router.until) == (0, u64::MAX)) {
            let devices = &self.plan.fabric.devices;
            let Some(from) = devices.iter().position(|device| device.eid == router.way.0) else {
                continue;
            };
            let paths = self.fabric.device(from).look().paths;
            let path = paths.iter().find(|path| path.eid == router.way.1);
            let payload = path.and_then(|path| path.mtu).unwrap_or(0);
            if payload + DATA_OVERHEAD + IP_OVERHEAD > router.mtu {
                return Err(format!(
                    "node {from} uses {payload} bytes of payload behind {router:?}"
                ));
            }
        }
        Ok(())
    }

    /// What was posted while the links had faults ends soon after these. A jetty that is stopped or suspended may
    /// hold its requests as long as the program likes.
    fn check_liveness(&mut self) -> Result<(), String> {
        let (now, calm_from) = (self.fabric.now(), self.plan.fabric.faults.calm_from);
        if calm_from == 0 || now < calm_from {
            return Ok(());
        }
        let first = *self.first_in_calm.get_or_insert(self.next_number);
        if now < calm_from + LIVENESS_NS {
            return Ok(());
        }
        for (node, of) in self.nodes.iter().enumerate() {
            for lane in Lane::ALL.into_iter().filter(|lane| *lane != Lane::Restless) {
                let oldest = of.sides[lane as usize].requests.oldest();
                if let Some(number) = oldest.filter(|number| *number < first) {
                    return Err(format!(
                        "request {number} of node {node} is outstanding {LIVENESS_NS} ns after the last fault"
                    ));
                }
            }
        }
        Ok(())
    }

    fn is_done(&self) -> bool {
        self.kills + self.stops == 0 && self.all_run() && self.nodes.iter().all(Node::is_done)
    }

    fn unfinished(&self) -> String {
        let mut text = String::new();
        for (number, node) in self.nodes.iter().enumerate() {
            text += &format!("node {number}: {} to post; ", node.left);
            for (side, lane) in node.sides.iter().zip(Lane::ALL) {
                let messages: usize = side.traffic.iter().map(|traffic| traffic.line.len()).sum();
                let marks =
                    side.traffic.iter().filter(|traffic| traffic.phase != Phase::Open).count();
                text += &format!(
                    "{lane:?} {:?}: {} outstanding, {messages} messages, {marks} not open; ",
                    side.gait,
                    side.requests.len()
                );
            }
        }
        text
    }

    /// The program of node `node`, if it lives.
    pub(super) fn program(&mut self, node: usize) -> Option<&mut Program> {
        self.nodes[node].program.as_mut()
    }

    fn post_receives(&mut self, node: usize) -> Result<(), String> {
        let now = self.fabric.now();
        if self.nodes[node].dry_until > now {
            return Ok(());
        }
        if self.rng.chance_ppm(self.plan.dry_ppm) {
            self.nodes[node].dry_until = now + self.rng.below(DRY_NS);
            return Ok(());
        }
        for lane in Lane::ALL {
            for _ in 0..self.rng.below(6) {
                let Some(slot) = self.nodes[node].unposted[lane as usize].pop() else { break };
                let Some(program) = self.program(node) else { return Ok(()) };
                if !program.post_receive(lane, slot, FILL)? {
                    self.nodes[node].unposted[lane as usize].push(slot);
                    break;
                }
            }
        }
        Ok(())
    }

    fn post_requests(&mut self, node: usize) -> Result<(), String> {
        for _ in 0..self.rng.below(5) {
            if !self.post_random(node)? {
                break;
            }
        }
        self.close_sides(node)
    }
}

/// Byte that receive buffers hold before a message comes.
pub(super) const FILL: u8 = 0xa5;
/// Longest time in which a node posts no receive, in ns: shorter than its senders try.
const DRY_NS: u64 = 15_000_000;

/// Whether messages are part of the work.
pub(super) fn has_messages(plan: &SimPlan) -> bool {
    plan.work == Work::All
}

#[cfg(test)]
mod tests {

    use urma_core::{SendOp, SendWr};

    use super::{
        super::{Weather, area::Effect, book::Message, idle, side::Events},
        *,
    };

    #[test]
    fn a_world_leaves_nothing_behind() {
        let plan = SimPlan::new(1, Weather::SameHost, Work::OneSided);
        let fabric = Fabric::new(plan.fabric.clone()).expect("memory");
        let device = Arc::downgrade(&fabric.device(0));
        let world = Run::new(&plan, &fabric).expect("a world");
        drop((world, fabric));
        assert!(device.upgrade().is_none(), "a driver still holds its device");
    }

    /// Name of the change, words of the refusal, the change.
    type Case = (&'static str, &'static str, fn(&mut Run<'_>));

    /// Posts a request that the model does not know.
    fn post_unknown(run: &mut Run<'_>) {
        let program = run.program(0).expect("it lives");
        let peer = program.view.peers[1].as_ref().expect("imported");
        let wr = SendWr::new(SendOp::Nop, &peer.targets[0], 1);
        program.jetties[0].post_send(&[wr]).expect("posted");
    }

    #[test]
    fn what_is_wrong_at_the_end_of_a_run_is_refused() {
        let cases: [Case; 5] = [
            ("a completion in the quiet time", "is not outstanding", post_unknown),
            ("memory", "area of Main of 0 at 1", |run| idle::spoil(run, 300, &[7])),
            ("a request without an end", "Main Ready: 1 outstanding", |run| {
                idle::post(run, [idle::pending(1)]);
            }),
            ("a message that does not come", "1 messages", |run| {
                let (bytes, opcode) = (Vec::new(), urma_core::CrOpcode::Send);
                let message = Message { number: 1, opcode, bytes, len: 0, imm: 0 };
                idle::traffic(run).line.extend([message]);
            }),
            ("an event that does not come", "the event of JFC 1 did not come", |run| {
                idle::post(run, [idle::pending(1)]);
                run.nodes[0].events[1] = Events { armed: true, due: Some(run.fabric.now() + 5) };
            }),
        ];
        let mut plan = idle::plan();
        // The time in which all must be done passes in one step.
        plan.fabric.jump_ns = BOUND_NS;
        for (what, words, change) in cases {
            let seen = idle::in_world(&plan, |run| {
                change(run);
                run.all().map(|_| ())
            });
            let text = seen.expect_err(what);
            assert!(text.contains(words), "{what}: {text}");
        }
        assert!(idle::in_world(&plan, |run| run.all()).is_ok());
    }

    #[test]
    fn what_does_not_end_when_the_faults_do_is_refused() {
        let mut plan = idle::plan();
        plan.fabric.faults.calm_from = 1;
        plan.fabric.jump_ns = LIVENESS_NS;
        let found = |lane: Lane, number: u64| {
            idle::in_world(&plan, |run| {
                run.next_number = 8;
                run.check_liveness()?;
                idle::side(run, lane).requests.push(idle::pending(number));
                (0..3).for_each(|_| _ = run.fabric.step_nodes());
                run.check_liveness()
            })
        };
        assert!(found(Lane::Main, 7).expect_err("posted before").contains("request 7 of node 0"));
        assert_eq!(found(Lane::Main, 8), Ok(()), "posted after the faults");
        assert_eq!(found(Lane::Restless, 7), Ok(()), "it may be suspended");
    }

    #[test]
    fn a_run_is_not_done_before_its_kills_and_stops() {
        let mut plan = idle::plan();
        plan.fabric.jump_ns = 1_000;
        let is_done = |change: fn(&mut Run<'_>)| {
            idle::in_world(&plan, |run| {
                change(run);
                run.is_done()
            })
        };
        assert!(is_done(|_| ()));
        assert!(!is_done(|run| run.kills = 1));
        assert!(!is_done(|run| run.stops = 1));
        assert!(!is_done(|run| run.fabric.stop(1, 1_000_000)));
        assert!(!is_done(|run| run.nodes[1].left = 1));
    }

    /// An error that exists before a round is found in that round, not only at the end.
    #[test]
    fn every_round_judges() {
        let cases: [Case; 3] = [
            ("completions", "is not outstanding", |run| {
                post_unknown(run);
                (0..100).for_each(|_| _ = run.fabric.step_nodes());
            }),
            ("memory", "area of Main of 0 at 1", |run| {
                idle::ask(run, 1, Effect::Read(0..1));
                idle::spoil(run, 300, &[7]);
            }),
            ("events", "the event of JFC 0 did not come", |run| {
                run.nodes[0].events[0].due = Some(0);
            }),
        ];
        for (what, words, change) in cases {
            let seen = idle::in_world(&idle::plan(), |run| {
                change(run);
                run.round()
            });
            let text = seen.expect_err(what);
            assert!(text.contains(words), "{what}: {text}");
        }
    }
}
