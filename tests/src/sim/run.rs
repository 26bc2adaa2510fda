//! One run: random work on every node, checked against the model as it completes.
//!
//! *Owns*: the loop over turns, the posting of random requests, the judgement of completions.
//! *Takes*: a [`SimPlan`]. *Gives*: a [`Report`] or a [`SimFailure`]. *Must not*: use anything
//! random but the plan's seed.

use std::fmt;
use std::ops::Range;
use std::sync::Arc;

use ubcore_sim::link::Rng;
use ubcore_sim::sim::Fabric;
use urma_core::{Completion, CrOpcode, LocalSge, PostReason, SendOp, SendWr, WrFlags};

use super::model::{AREA_LEN, Expected, Message, Pair, Pending, Requests, WORDS};
use super::node::{Program, SLOT_LEN, SLOTS, View};
use super::plan::{SimPlan, Work};
use super::watch::Watch;

/// A run that went well.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Report {
    /// Hash of the log of everything that happened.
    pub hash: u64,
    /// Requests done.
    pub requests: u64,
    /// Messages received.
    pub messages: u64,
    /// Virtual time it took, in ns.
    pub took_ns: u64,
}

/// A run that did not.
#[derive(Clone, PartialEq, Eq)]
pub struct SimFailure {
    /// The seed.
    pub seed: u64,
    /// What was wrong.
    pub what: String,
    /// The last events.
    pub log: String,
}

impl fmt::Debug for SimFailure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "seed {}: {}\nlast events:\n{}", self.seed, self.what, self.log)
    }
}

/// Virtual time in which all work must be done, in ns.
const BOUND_NS: u64 = 60_000_000_000;
/// Quiet time at the end, in which nothing more may complete, in ns.
const QUIET_NS: u64 = 20_000_000;
/// Byte that receive buffers hold before a message comes.
const FILL: u8 = 0xa5;

/// Everything of one run.
struct Run<'a> {
    plan: &'a SimPlan,
    fabric: Arc<Fabric>,
    rng: Rng,
    programs: Vec<Program>,
    /// `pairs[initiator][target]`.
    pairs: Vec<Vec<Pair>>,
    requests: Vec<Requests>,
    /// Free request slots of each node.
    free: Vec<Vec<usize>>,
    /// Receive slots of each node that are not posted.
    unposted: Vec<Vec<usize>>,
    /// Requests each node still has to post.
    left: Vec<u32>,
    next_number: u64,
    done: u64,
    messages: u64,
}

/// Runs `plan`.
///
/// # Errors
/// Whatever is lost, doubled, corrupted, misordered, or not done in time.
pub fn run(plan: &SimPlan) -> Result<Report, Box<SimFailure>> {
    let failure = |what: String, log: String| Box::new(SimFailure { seed: plan.seed, what, log });
    let fabric = Fabric::new(plan.fabric.clone())
        .map_err(|error| failure(error.to_string(), String::new()))?;
    let outcome = Watch::run(|| Run::new(plan, &fabric)?.all());
    outcome.map_err(|what| failure(what, fabric.log_text()))
}

impl<'a> Run<'a> {
    fn new(plan: &'a SimPlan, fabric: &Arc<Fabric>) -> Result<Self, String> {
        let nodes = plan.fabric.devices.len();
        let open = |number| Program::open(fabric, number, nodes);
        let mut programs = (0..nodes)
            .map(open)
            .collect::<Result<Vec<_>, _>>()
            .map_err(|status| format!("opening: {status}"))?;
        Program::meet(&mut programs).map_err(|status| format!("importing: {status}"))?;
        Ok(Self {
            plan,
            fabric: Arc::clone(fabric),
            rng: Rng::new(plan.seed),
            programs,
            pairs: vec![vec![Pair::default(); nodes]; nodes],
            requests: vec![Requests::default(); nodes],
            free: vec![(0..SLOTS).collect(); nodes],
            unposted: vec![(0..SLOTS).collect(); nodes],
            left: vec![plan.requests; nodes],
            next_number: 1,
            done: 0,
            messages: 0,
        })
    }

    fn all(&mut self) -> Result<Report, String> {
        let started = self.fabric.now();
        while !self.is_done() {
            if self.fabric.now() - started > BOUND_NS {
                return Err(format!("not done in time: {}", self.unfinished()));
            }
            self.turn()?;
        }
        let took_ns = self.fabric.now() - started;
        let quiet_until = self.fabric.now() + QUIET_NS;
        while self.fabric.now() < quiet_until {
            self.fabric.step();
            (0..self.programs.len()).try_for_each(|node| self.poll(node))?;
        }
        self.check_memory()?;
        let hash = self.fabric.log_hash();
        Ok(Report { hash, requests: self.done, messages: self.messages, took_ns })
    }

    fn turn(&mut self) -> Result<(), String> {
        let first = self.rng.index(self.programs.len());
        for turn in 0..self.programs.len() {
            let node = (first + turn) % self.programs.len();
            if self.rng.chance_ppm(self.plan.lazy_ppm) {
                continue;
            }
            self.post_receives(node)?;
            self.post_requests(node)?;
            self.poll(node)?;
        }
        self.fabric.step();
        Ok(())
    }

    fn is_done(&self) -> bool {
        let posted = self.left.iter().all(|&left| left == 0);
        let requests = self.requests.iter().all(Requests::is_empty);
        let received = self.pairs.iter().flatten().all(|pair| pair.messages.is_empty());
        posted && requests && received
    }

    fn unfinished(&self) -> String {
        let under_way: Vec<_> = self.requests.iter().map(Requests::len).collect();
        let messages: usize = self.pairs.iter().flatten().map(|pair| pair.messages.len()).sum();
        format!("{:?} to post, {under_way:?} under way, {messages} messages", self.left)
    }

    fn post_receives(&mut self, node: usize) -> Result<(), String> {
        for _ in 0..self.rng.below(8) {
            let Some(slot) = self.unposted[node].pop() else { return Ok(()) };
            if !self.programs[node].post_receive(slot, FILL)? {
                self.unposted[node].push(slot);
                return Ok(());
            }
        }
        Ok(())
    }

    fn post_requests(&mut self, node: usize) -> Result<(), String> {
        for _ in 0..self.rng.below(5) {
            // One place stays free, so that the last request is never refused for want of it.
            if self.left[node] == 0 || self.free[node].is_empty() {
                return Ok(());
            }
            if !self.post_one(node)? {
                return Ok(());
            }
            self.left[node] -= 1;
        }
        Ok(())
    }

    /// Posts one random request; false when the queue is full.
    fn post_one(&mut self, me: usize) -> Result<bool, String> {
        let others = self.programs.len() - 1;
        let to = (me + 1 + self.rng.index(others)) % self.programs.len();
        let slot = self.free[me].last().copied().ok_or("no slot")?;
        let number = self.next_number;
        let last = self.left[me] == 1;
        let signalled = last || !self.rng.chance_ppm(300_000);
        let draw = Draw::new(&mut self.rng, self.plan);
        let mut pair = self.pairs[me][to].clone();

        let program = &mut self.programs[me];
        program.view.local.write(slot * SLOT_LEN, &draw.bytes).map_err(|e| e.to_string())?;
        let late = |range| self.requests[me].is_read(to, &range);
        let fence = draw.changes().into_iter().any(late) || self.rng.chance_ppm(50_000);
        let place = Place { me, to, slot, number, flags: flags(signalled, fence) };
        let (expected, refused) = post(program, &draw, &mut pair, place);
        match refused {
            None => {}
            Some(PostReason::Full) => return Ok(false),
            Some(reason) => return Err(format!("request {number} was refused: {reason}")),
        }
        let flags = place.flags;
        for range in draw.changes().into_iter().chain(draw.reads()) {
            pair.history.push((number, range, format!("kind {} {flags:?}", draw.kind)));
        }
        self.pairs[me][to] = pair;
        self.free[me].pop();
        self.next_number += 1;
        let reads = draw.reads().map(|range| (to, range));
        self.requests[me].push(Pending { number, signalled, slot, expected, reads });
        Ok(true)
    }

    fn poll(&mut self, node: usize) -> Result<(), String> {
        let mut completions = [Completion::default(); 8];
        let count = self.programs[node].jfc.poll(&mut completions).map_err(|s| s.to_string())?;
        for completion in &completions[..count] {
            self.on_request(node, completion)?;
        }
        let count =
            self.programs[node].recv_jfc.poll(&mut completions).map_err(|s| s.to_string())?;
        for completion in &completions[..count] {
            self.on_message(node, completion)?;
        }
        Ok(())
    }

    fn on_request(&mut self, node: usize, completion: &Completion) -> Result<(), String> {
        let number = completion.user_ctx;
        self.fabric.note(format_args!("done {node} {number} {:?}", completion.status));
        if !completion.status.is_success() {
            return Err(format!("request {number} of node {node}: {}", completion.status));
        }
        for pending in self.requests[node].complete(number)? {
            if let Expected::Bytes(expected) = &pending.expected {
                let mut found = vec![0; expected.len()];
                let at = pending.slot * SLOT_LEN;
                self.programs[node].view.local.read(at, &mut found).map_err(|e| e.to_string())?;
                if let Some(at) = first_difference(&found, expected) {
                    let story = self.story(node, &pending, at);
                    return Err(format!(
                        "request {} brought wrong byte {at}\n{story}",
                        pending.number
                    ));
                }
            }
            self.free[node].push(pending.slot);
            self.done += 1;
        }
        Ok(())
    }

    fn on_message(&mut self, node: usize, completion: &Completion) -> Result<(), String> {
        let slot = usize::try_from(completion.user_ctx).map_err(|error| error.to_string())?;
        self.fabric.note(format_args!("message {node} {slot} {:?}", completion.status));
        if !completion.status.is_success() || !completion.is_recv() {
            return Err(format!("receive at node {node}: {}", completion.status));
        }
        let from = completion.remote.eid;
        let sender = |program: &Program| program.context.eid() == from;
        let sender = self.programs.iter().position(sender).ok_or("a message of a stranger")?;
        let message = self.pairs[sender][node].messages.pop_front();
        let message =
            message.ok_or_else(|| format!("node {node} received more than {sender} sent"))?;
        if completion.immediate() != message.imm || completion.len as usize != message.len {
            return Err(format!("node {node} received {completion:?} where {message:?} is next"));
        }
        let opcode = match (message.imm, message.bytes.len() == message.len) {
            (None, _) => CrOpcode::Send,
            (Some(_), true) => CrOpcode::SendImm,
            (Some(_), false) => CrOpcode::WriteImm,
        };
        if completion.opcode != opcode {
            return Err(format!("node {node} received {:?} as {opcode:?}", completion.opcode));
        }
        let mut expected = message.bytes;
        expected.resize(SLOT_LEN, FILL);
        let mut found = vec![0; SLOT_LEN];
        let at = (SLOTS + slot) * SLOT_LEN;
        self.programs[node].view.local.read(at, &mut found).map_err(|error| error.to_string())?;
        if let Some(at) = first_difference(&found, &expected) {
            return Err(format!("a message of {sender} to {node} has a wrong byte at {at}"));
        }
        self.unposted[node].push(slot);
        self.messages += 1;
        Ok(())
    }

    /// What happened to a byte that a read brought.
    fn story(&self, node: usize, pending: &Pending, at: usize) -> String {
        let reads = pending.reads.as_ref();
        reads.map_or_else(String::new, |(to, range)| self.pairs[node][*to].story(range.start + at))
    }

    fn check_memory(&self) -> Result<(), String> {
        for (initiator, pairs) in self.pairs.iter().enumerate() {
            for (target, pair) in pairs.iter().enumerate() {
                let mut found = vec![0; AREA_LEN];
                let area = &self.programs[target].view.area;
                area.read(initiator * AREA_LEN, &mut found).map_err(|error| error.to_string())?;
                if let Some(at) = first_difference(&found, &pair.mirror) {
                    return Err(format!(
                        "area of {initiator} at {target} differs at {at}\n{}",
                        pair.story(at)
                    ));
                }
            }
        }
        Ok(())
    }
}

fn first_difference(a: &[u8], b: &[u8]) -> Option<usize> {
    a.iter().zip(b).position(|(a, b)| a != b)
}

/// The random choices of one request.
struct Draw {
    kind: u64,
    /// Source bytes; their count is the request's length.
    bytes: Vec<u8>,
    /// Offset in the area, behind the words.
    offset: usize,
    word: usize,
    value: u64,
    other: u64,
}

impl Draw {
    fn new(rng: &mut Rng, plan: &SimPlan) -> Self {
        let len_max = plan.len_max as usize;
        let kinds: &[u64] = match plan.work {
            Work::OneSided => &[0, 1, 2, 3, 4, 5, 9, 10, 11, 12],
            Work::All => &[0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15],
        };
        let len = 1 + match rng.below(4) {
            0 => rng.index(16),
            1 => rng.index(len_max.min(1500)),
            _ => rng.index(len_max),
        };
        let mut bytes = vec![0; len];
        rng.fill(&mut bytes);
        let room = AREA_LEN - WORDS * 8 - len;
        Self {
            kind: kinds[rng.index(kinds.len())],
            bytes,
            offset: WORDS * 8 + rng.index(room + 1),
            word: rng.index(WORDS),
            value: rng.next_u64(),
            other: rng.next_u64(),
        }
    }
}

impl Draw {
    /// What it changes in its area.
    fn changes(&self) -> Vec<Range<usize>> {
        let bytes = self.offset..self.offset + self.bytes.len();
        let word = self.word * 8..self.word * 8 + 8;
        match self.kind {
            0..=2 | 6 => vec![bytes],
            7 | 8 => vec![bytes, word],
            9..=12 => vec![word],
            _ => Vec::new(),
        }
    }

    /// What it reads of its area, if it is a read.
    fn reads(&self) -> Option<Range<usize>> {
        let is_read = (3..=5).contains(&self.kind);
        is_read.then(|| self.offset..self.offset + self.bytes.len())
    }
}

fn flags(signalled: bool, fence: bool) -> WrFlags {
    let mut flags = WrFlags::empty();
    flags.set(WrFlags::COMPLETE, signalled);
    flags.set(WrFlags::FENCE, fence);
    flags
}

/// Where a request goes and who it is.
#[derive(Clone, Copy)]
struct Place {
    me: usize,
    to: usize,
    slot: usize,
    number: u64,
    flags: WrFlags,
}

/// Posts what `draw` says and tells the model; what it brings back, and why it was refused.
fn post(
    program: &mut Program,
    draw: &Draw,
    pair: &mut Pair,
    place: Place,
) -> (Expected, Option<PostReason>) {
    let Place { me, to, slot, number, flags } = place;
    let len = draw.bytes.len();
    // Two pieces of the slot, in order.
    let cut = len / 3;
    let pieces = [(0, cut), (cut, len - cut)];
    let Program { jetty, view, .. } = program;
    let Some(peer) = view.peers[to].as_ref() else { return (Expected::Nothing, None) };
    let sges: Vec<LocalSge<'_>> = pieces
        .into_iter()
        .filter(|&(_, len)| len > 0)
        .map(|(at, len)| view.sge(slot, at, len))
        .collect();
    let remote = |offset| View::remote(peer, me, offset);
    let (op, expected) = choose(draw, pair, &sges, view.sge(slot, 0, 8), &remote);
    let wr = SendWr { flags, ..SendWr::new(op, &peer.target, number) };
    let refused = jetty.post_send(&[wr]).err().map(|error| error.reason);
    (expected, refused)
}

/// The operation of `draw`, applied to the model.
fn choose<'a>(
    draw: &Draw,
    pair: &mut Pair,
    src: &'a [LocalSge<'a>],
    result: LocalSge<'a>,
    remote: &dyn Fn(usize) -> urma_core::RemoteAddr<'a>,
) -> (SendOp<'a>, Expected) {
    let Draw { offset, word, value, other, ref bytes, .. } = *draw;
    let dst = remote(offset);
    let target = remote(word * 8);
    let word_bytes = |old: u64| Expected::Bytes(old.to_le_bytes().to_vec());
    let nothing = Expected::Nothing;
    let message = |bytes: Vec<u8>, len, imm| Message { bytes, len, imm };
    match draw.kind {
        0..=2 => {
            pair.write(offset, bytes);
            (SendOp::Write { src, dst }, nothing)
        }
        3..=5 => {
            let expected = Expected::Bytes(pair.read(offset, bytes.len()));
            (SendOp::Read { dst: src, src: dst }, expected)
        }
        6 => {
            pair.write(offset, bytes);
            pair.messages.push_back(message(Vec::new(), bytes.len(), Some(value)));
            (SendOp::WriteImm { src, dst, imm: value }, nothing)
        }
        7 => {
            pair.write(offset, bytes);
            pair.update(word, |_| value);
            (SendOp::WriteNotify { src, dst, notify: target, data: value }, nothing)
        }
        8 => {
            pair.write(offset, bytes);
            pair.update(word, |old| old.wrapping_add(value));
            (SendOp::WriteAtomic { src, dst, notify: target, add: value }, nothing)
        }
        9 => {
            let old = pair.update(word, |old| old.wrapping_add(value));
            (SendOp::FetchAdd { result, target, value }, word_bytes(old))
        }
        10 => {
            // Half of the time the comparison holds.
            let now = pair.update(word, |old| old);
            let compare = if value % 2 == 0 { now } else { value };
            pair.update(word, |old| if old == compare { other } else { old });
            (SendOp::Cas { result, target, compare, swap: other }, word_bytes(now))
        }
        11 => {
            let old = pair.update(word, |_| value);
            (SendOp::Swap { result, target, value }, word_bytes(old))
        }
        12 => {
            let old = pair.update(word, |old| old ^ value);
            (SendOp::FetchXor { result, target, value }, word_bytes(old))
        }
        13 => {
            pair.messages.push_back(message(bytes.clone(), bytes.len(), Some(value)));
            (SendOp::SendImm { src, imm: value }, nothing)
        }
        _ => {
            pair.messages.push_back(message(bytes.clone(), bytes.len(), None));
            (SendOp::Send { src }, nothing)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::Weather;
    use super::*;

    #[test]
    fn a_world_leaves_nothing_behind() {
        let plan = SimPlan::new(1, Weather::SameHost, Work::OneSided);
        let fabric = Fabric::new(plan.fabric.clone()).expect("memory");
        let device = Arc::downgrade(&fabric.device(0));
        let world = Run::new(&plan, &fabric).expect("a world");
        drop((world, fabric));
        assert!(device.upgrade().is_none(), "a driver still holds its device");
    }
}
