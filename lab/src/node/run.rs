//! One run: random requests on every node, nodes that die and come back, and checks of all that the API promises.
//!
//! Must not use anything random but the seed.

use std::{collections::BTreeMap, sync::Arc};

use serde::{Deserialize, Serialize};
use ubcore_sim::{
    link::Rng,
    sim::{Fabric, FabricCfg, refuse_warnings},
};
use udma_abi::counters::Counter;
use urma::{Completion, Status};

use super::{
    book::{NodeLife, PostedRequest, RequestBook, RequestKind},
    grid::{NodeCell, NodeMix, RECEIVES},
    program::{NodeProgram, NodeSizes, content, offered},
};

/// Quiet time at the end, in which nothing more may complete, in ns.
const QUIET_NS: u64 = 20_000_000;
/// How often a node tries to import a peer whose packets may be lost.
const MEETINGS: usize = 20;
/// Most requests that a node posts in a round, less one.
const POSTS: u64 = 4;
/// Completions of a poll.
const POLLED: usize = 32;

/// What one run gave.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
pub struct NodeRun {
    /// Hash of the log of all events.
    pub log_hash: String,
    /// Events in that log.
    pub events: u64,
    /// Requests that were posted.
    pub posted: u64,
    /// Requests that completed, by status.
    pub completed: BTreeMap<String, u64>,
    /// Requests whose node died.
    pub died: u64,
    /// Messages that were received.
    pub messages: u64,
    /// Bytes of the requests that ended well.
    pub bytes: u64,
    /// Datagrams that devices gave to links.
    pub sent: u64,
    /// Datagrams that links lost.
    pub lost: u64,
    /// Datagrams that came twice.
    pub doubled: u64,
    /// Datagrams that were changed.
    pub changed: u64,
    /// Datagrams that were held back.
    pub late: u64,
    /// Packets that devices sent again.
    pub repeated: u64,
    /// Packets that never came and were made from repair packets.
    pub repaired: u64,
    /// Requests that went through shared memory.
    pub same_host: u64,
    /// Virtual time from the first post to the last completion, in ns.
    pub time_ns: u64,
    /// Virtual time between a request and its completion that half of those that ended well did not exceed, in ns.
    pub latency_p50_ns: u64,
    /// That which 99 % did not exceed.
    pub latency_p99_ns: u64,
    /// The promise that was broken.
    pub broken: Option<String>,
}

/// The number in the first 8 bytes; 0 if there are fewer.
fn word(bytes: &[u8]) -> u64 {
    bytes.as_chunks().0.first().map_or(0, |word| u64::from_le_bytes(*word))
}

/// A node of the run.
#[derive(Debug)]
struct RunNode {
    program: Option<NodeProgram>,
    life: u32,
    /// Requests that are still to be posted.
    left: u32,
    /// Slots of requests that are free.
    free: Vec<usize>,
    /// Receives that are to be posted.
    unposted: Vec<usize>,
    /// When it comes back.
    back_at: u64,
}

impl RunNode {
    fn new(left: u32) -> Self {
        Self { program: None, life: 0, left, free: Vec::new(), unposted: Vec::new(), back_at: 0 }
    }

    /// Begins a life with all of its slots.
    fn begin(&mut self, program: NodeProgram, depth: u32) {
        self.program = Some(program);
        self.free = (0..depth as usize).rev().collect();
        self.unposted = (0..RECEIVES).rev().collect();
    }
}

/// A run under way.
struct FabricRun<'a> {
    cell: &'a NodeCell,
    fabric: &'a Arc<Fabric>,
    rng: Rng,
    nodes: Vec<RunNode>,
    book: RequestBook,
    counts: NodeRun,
    latencies: Vec<u64>,
    /// Posts after which a node dies, the next one last.
    deaths: Vec<u64>,
    /// Programs of dead nodes: what they would do when they end has no place in the run.
    graves: Vec<NodeProgram>,
    started: u64,
}

/// Runs `cell` with `seed`; also gives the last `log_lines` lines of the log.
#[must_use]
pub fn run(cell: &NodeCell, seed: u64, log_lines: usize) -> (NodeRun, String) {
    run_on(cell, cell.fabric(seed, log_lines))
}

/// Runs `cell` on a fabric whose configuration is [`NodeCell::fabric`]'s, or was changed.
#[must_use]
pub fn run_on(cell: &NodeCell, fabric: FabricCfg) -> (NodeRun, String) {
    let seed = fabric.seed;
    let fabric = match Fabric::new(fabric) {
        Ok(fabric) => fabric,
        Err(error) => {
            let broken = Some(format!("the fabric: {error}"));
            return (NodeRun { broken, ..NodeRun::default() }, String::new());
        }
    };
    let mut run = FabricRun::new(cell, &fabric, seed);
    let broken = refuse_warnings(|| run.all()).err();
    // Programs that end go on with the log.
    let log = fabric.log_text();
    (run.end(broken), log)
}

impl<'a> FabricRun<'a> {
    fn new(cell: &'a NodeCell, fabric: &'a Arc<Fabric>, seed: u64) -> Self {
        let mut rng = Rng::new(seed ^ 0x0de_0de);
        let total = u64::from(cell.requests) * u64::from(cell.nodes);
        let mut deaths: Vec<u64> = (0..cell.restarts).map(|_| rng.below(total)).collect();
        deaths.sort_unstable_by(|a, b| b.cmp(a));
        let nodes = (0..cell.nodes).map(|_| RunNode::new(cell.requests)).collect();
        Self {
            cell,
            fabric,
            rng,
            nodes,
            book: RequestBook::default(),
            counts: NodeRun::default(),
            latencies: Vec::new(),
            deaths,
            graves: Vec::new(),
            started: 0,
        }
    }

    /// From the first import to the last check.
    fn all(&mut self) -> Result<(), String> {
        for node in 0..self.nodes.len() {
            self.open(node)?;
        }
        for node in 0..self.nodes.len() {
            self.meet_all(node)?;
        }
        self.started = self.fabric.now();
        self.fabric.set_programs_work(true);
        while !self.is_done() {
            if self.fabric.now() - self.started > self.cell.bound_ns {
                return Err(self.unfinished());
            }
            self.round()?;
        }
        self.fabric.set_programs_work(false);
        let quiet_until = self.fabric.now() + QUIET_NS;
        while self.fabric.now() < quiet_until {
            self.fabric.step_nodes();
            self.poll_all()?;
        }
        // The poll of a node may bring a datagram to one that was polled before it.
        (0..self.nodes.len()).try_for_each(|_| self.poll_all())?;
        self.check()
    }

    fn poll_all(&mut self) -> Result<(), String> {
        (0..self.nodes.len()).try_for_each(|node| self.poll(node).map(|_| ()))
    }

    fn round(&mut self) -> Result<(), String> {
        if self.deaths.last().is_some_and(|after| self.counts.posted >= *after) {
            self.deaths.pop();
            self.kill();
        }
        let (first, mut is_busy) = (self.rng.index(self.nodes.len()), false);
        for turn in 0..self.nodes.len() {
            let node = (first + turn) % self.nodes.len();
            if self.nodes[node].program.is_none() && self.fabric.now() >= self.nodes[node].back_at {
                self.revive(node)?;
            }
            self.post_receives(node)?;
            is_busy |= self.post_requests(node)?;
            is_busy |= self.poll(node)?;
        }
        self.fabric.step_nodes();
        // Polls step the fabric, too: time jumps only when all wait.
        let can_post =
            |node: &RunNode| node.program.is_some() && node.left > 0 && !node.free.is_empty();
        let living = self.nodes.iter().filter(|node| node.program.is_some()).count();
        let is_busy = is_busy || (living > 1 && self.nodes.iter().any(can_post));
        self.fabric.set_programs_work(is_busy);
        Ok(())
    }

    fn is_done(&self) -> bool {
        let is_done = |node: &RunNode| node.left == 0 && node.program.is_some();
        self.deaths.is_empty() && self.book.oldest().is_none() && self.nodes.iter().all(is_done)
    }

    fn unfinished(&self) -> String {
        let bound = self.cell.bound_ns;
        match self.book.oldest() {
            Some(PostedRequest { number, kind, from, to, at, .. }) => format!(
                "{kind:?} {number} of node {} to node {} has no completion {} ns after its post (--bound {bound}ns)",
                from.node,
                to.node,
                self.fabric.now() - at
            ),
            None => format!("nodes have requests left to post (--bound {bound}ns)"),
        }
    }

    fn life(&self, node: usize) -> NodeLife {
        NodeLife { node, life: self.nodes[node].life }
    }

    fn open(&mut self, node: usize) -> Result<(), String> {
        let program = NodeProgram::open(self.fabric, node, NodeSizes::of(self.cell));
        let program = program.map_err(|status| format!("opening node {node}: {status}"))?;
        self.nodes[node].begin(program, self.cell.depth);
        // Peers may send as soon as they meet it.
        self.post_receives(node)
    }

    /// Node `me` imports all that live.
    fn meet_all(&mut self, me: usize) -> Result<(), String> {
        for other in (0..self.nodes.len()).filter(|other| *other != me) {
            self.meet(me, other)?;
        }
        Ok(())
    }

    fn meet(&mut self, me: usize, other: usize) -> Result<(), String> {
        let face = self.nodes[other].program.as_ref().map(NodeProgram::face);
        let (Some(program), Some(face)) = (self.nodes[me].program.as_mut(), face) else {
            return Ok(());
        };
        let mut met = program.meet(other, &face);
        for _ in 1..MEETINGS {
            if met != Err(Status::TimedOut) {
                break;
            }
            met = program.meet(other, &face);
        }
        met.map_err(|status| format!("node {me} imports node {other}: {status}"))
    }

    /// A node that lives dies.
    fn kill(&mut self) {
        let living = |node: &usize| self.nodes[*node].program.is_some();
        let living: Vec<usize> = (0..self.nodes.len()).filter(living).collect();
        let Some(&node) = living.get(self.rng.index(living.len())) else { return };
        self.count_device(node);
        self.fabric.kill(node);
        self.graves.extend(self.nodes[node].program.take());
        self.book.die(self.life(node));
        self.nodes[node].back_at = self.fabric.now() + self.rng.below(self.cell.down_ns + 1);
    }

    fn revive(&mut self, node: usize) -> Result<(), String> {
        // What the others imported of its former life goes first.
        for program in self.nodes.iter_mut().filter_map(|other| other.program.as_mut()) {
            program.part(node);
        }
        self.fabric.restart(node).map_err(|error| format!("restart of node {node}: {error}"))?;
        self.nodes[node].life += 1;
        self.open(node)?;
        self.meet_all(node)?;
        (0..self.nodes.len())
            .filter(|other| *other != node)
            .try_for_each(|other| self.meet(other, node))
    }

    fn post_receives(&mut self, node: usize) -> Result<(), String> {
        let RunNode { program: Some(program), unposted, .. } = &mut self.nodes[node] else {
            return Ok(());
        };
        while let Some(slot) = unposted.pop() {
            if !program.post_receive(slot)? {
                unposted.push(slot);
                break;
            }
        }
        Ok(())
    }

    /// Posts some requests; whether there was one.
    fn post_requests(&mut self, node: usize) -> Result<bool, String> {
        let posted = self.counts.posted;
        for _ in 0..=self.rng.below(POSTS) {
            if !self.post_request(node)? {
                break;
            }
        }
        Ok(self.counts.posted > posted)
    }

    /// Posts a random request; false when the node should not go on.
    fn post_request(&mut self, node: usize) -> Result<bool, String> {
        let count = self.nodes.len();
        let other = (node + 1 + self.rng.index(count - 1)) % count;
        let kinds = [RequestKind::Write, RequestKind::Read, RequestKind::Send, RequestKind::Add];
        let drawn = kinds[self.rng.index(kinds.len())];
        let kind = match self.cell.mix {
            NodeMix::All => drawn,
            NodeMix::Write => RequestKind::Write,
            NodeMix::Read => RequestKind::Read,
            NodeMix::Send => RequestKind::Send,
            NodeMix::Add => RequestKind::Add,
        };
        let most = self.cell.size as usize;
        let len = if kind == RequestKind::Add { 8 } else { 8 + self.rng.index(most - 7) };
        let offset = self.rng.index(self.cell.slot_len() - len + 1);
        let is_there = self.nodes[other].program.is_some();
        let (from, to) = (self.life(node), self.life(other));
        let number = self.counts.posted + 1;
        let at = self.fabric.now();
        let RunNode { program: Some(program), left, free, .. } = &mut self.nodes[node] else {
            return Ok(false);
        };
        if *left == 0 || !is_there || !program.knows(other) {
            return Ok(*left > 0);
        }
        let Some(slot) = free.pop() else { return Ok(false) };
        let request = PostedRequest { number, kind, from, to, slot, len, offset, at };
        if !program.post(&request)? {
            free.push(slot);
            return Ok(false);
        }
        *left -= 1;
        self.fabric.note(format_args!("post {number} {kind:?} {node} {other} {len}"));
        self.counts.posted += 1;
        self.book.post(request);
        Ok(true)
    }

    /// Takes what completed; whether there was something.
    fn poll(&mut self, node: usize) -> Result<bool, String> {
        let (mut found, mut is_any) = ([Completion::default(); POLLED], false);
        for of_sends in [true, false] {
            let Some(program) = self.nodes[node].program.as_mut() else { break };
            let count = program.poll(of_sends, &mut found);
            let count = count.map_err(|why| format!("a poll of node {node}: {why}"))?;
            is_any |= count > 0;
            for completion in &found[..count] {
                match of_sends {
                    true => self.on_request(node, completion)?,
                    false => self.on_message(node, completion)?,
                }
            }
        }
        Ok(is_any)
    }

    fn on_request(&mut self, node: usize, completion: &Completion) -> Result<(), String> {
        let (number, status) = (completion.user_ctx, completion.status);
        self.fabric.note(format_args!("done {node} {number} {}", status.code()));
        let request = self.book.complete(self.life(node), number, status.is_success())?;
        let name = format!("{status:?}");
        let name = name.split(':').next().unwrap_or_default().to_owned();
        *self.counts.completed.entry(name).or_default() += 1;
        self.nodes[node].free.push(request.slot);
        if status.is_success() {
            let now = self.fabric.now();
            self.counts.bytes += request.len as u64;
            self.counts.time_ns = now - self.started;
            self.latencies.push(now - request.at);
            if request.kind == RequestKind::Add {
                let found = self.nodes[node]
                    .program
                    .as_ref()
                    .map(|program| program.local(Ok(request.slot), 8));
                self.book.add(node, request.to, word(&found.unwrap_or_default()))?;
            }
            self.check_bytes(&request)?;
        }
        Ok(())
    }

    /// What a request that ended well wrote or read.
    fn check_bytes(&self, request: &PostedRequest) -> Result<(), String> {
        let PostedRequest { number, kind, from, to, slot, len, offset, .. } = *request;
        let is_same_life = self.life(to.node) == to;
        let (found, wanted) = match kind {
            RequestKind::Write if is_same_life && self.book.is_sure(request) => {
                let Some(program) = &self.nodes[to.node].program else { return Ok(()) };
                (program.written(from.node, slot, len), content(number, len))
            }
            RequestKind::Read => {
                let Some(program) = &self.nodes[from.node].program else { return Ok(()) };
                let offered = offered(to.node, self.cell.slot_len());
                (program.local(Ok(slot), len), offered[offset..offset + len].to_vec())
            }
            _ => return Ok(()),
        };
        if found == wanted {
            return Ok(());
        }
        let at = found.iter().zip(&wanted).position(|(found, wanted)| found != wanted);
        Err(format!(
            "{kind:?} {number} of node {} at node {} ended well, and byte {} of {len} is wrong",
            from.node,
            to.node,
            at.unwrap_or(0)
        ))
    }

    fn on_message(&mut self, node: usize, completion: &Completion) -> Result<(), String> {
        let slot = usize::try_from(completion.user_ctx).unwrap_or(usize::MAX);
        let status = completion.status;
        self.fabric.note(format_args!("message {node} {slot} {}", status.code()));
        let len = completion.len as usize;
        let RunNode { program: Some(program), unposted, .. } = &mut self.nodes[node] else {
            return Ok(());
        };
        if !status.is_success() || slot >= RECEIVES || unposted.contains(&slot) || len < 8 {
            return Err(format!("receive {slot} of node {node} with {len} bytes: {status}"));
        }
        let mut found = program.local(Err(slot), len);
        let inline = completion.payload.bytes();
        found[..inline.len()].copy_from_slice(inline);
        unposted.push(slot);
        let number = word(&found);
        self.book.receive(self.life(node), number, len)?;
        if found != content(number, len) {
            return Err(format!("message {number} to node {node} has wrong bytes"));
        }
        self.counts.messages += 1;
        Ok(())
    }

    /// What must hold when all requests ended.
    fn check(&self) -> Result<(), String> {
        let completed: u64 = self.counts.completed.values().sum();
        if completed + self.book.died() != self.counts.posted {
            return Err(format!("{completed} of {} requests completed", self.counts.posted));
        }
        let lives: Vec<NodeLife> = (0..self.nodes.len()).map(|node| self.life(node)).collect();
        self.book.check_messages(&lives)?;
        for to in &lives {
            let Some(program) = &self.nodes[to.node].program else { continue };
            for from in (0..lives.len()).filter(|from| *from != to.node) {
                self.book.check_sum(from, *to, program.sum(from))?;
            }
        }
        Ok(())
    }

    /// Adds what the device of a node counted.
    fn count_device(&mut self, node: usize) {
        let device = self.fabric.device(node);
        self.counts.repeated += device.counter(Counter::Retransmits);
        self.counts.repaired += device.counter(Counter::PacketsRepaired);
        let shared = [Counter::DirectRequests, Counter::RingRequests];
        self.counts.same_host +=
            shared.into_iter().map(|counter| device.counter(counter)).sum::<u64>();
    }

    fn end(mut self, broken: Option<String>) -> NodeRun {
        let living: Vec<usize> =
            (0..self.nodes.len()).filter(|node| self.nodes[*node].program.is_some()).collect();
        living.into_iter().for_each(|node| self.count_device(node));
        let (sent, link) = self.fabric.link_counts();
        self.latencies.sort_unstable();
        let part = |percent: usize| {
            let at = (self.latencies.len() * percent).div_ceil(100).saturating_sub(1);
            self.latencies.get(at).copied().unwrap_or(0)
        };
        NodeRun {
            log_hash: format!("{:016x}", self.fabric.log_hash()),
            events: self.fabric.log_count(),
            died: self.book.died(),
            sent,
            lost: link.lost,
            doubled: link.doubled,
            changed: link.changed,
            late: link.late,
            latency_p50_ns: part(50),
            latency_p99_ns: part(99),
            broken,
            ..self.counts.clone()
        }
    }
}

#[cfg(test)]
mod tests {

    use ubcore_sim::{link::FaultCfg, sim::HostSharing};

    use super::{super::grid::tests::grid, *};

    /// Three nodes, 60 requests each, a network with losses.
    fn cell() -> NodeCell {
        grid().cells().expect("a grid that makes sense").remove(0)
    }

    fn whole(cell: &NodeCell, seed: u64) -> NodeRun {
        let run = run(cell, seed, 0).0;
        assert_eq!(run.broken, None, "seed {seed}: {cell:?}");
        let completed: u64 = run.completed.values().sum();
        assert_eq!(completed + run.died, run.posted, "seed {seed}");
        assert_eq!(run.posted, u64::from(cell.requests) * u64::from(cell.nodes));
        run
    }

    #[test]
    fn a_seed_gives_the_same_events_and_another_one_others() {
        let cell = NodeCell { restarts: 2, ..cell() };
        let runs = [1, 1, 2].map(|seed| whole(&cell, seed));
        assert_eq!(runs[0], runs[1]);
        assert_ne!(runs[0].log_hash, runs[2].log_hash);
        let clean = NodeCell { faults: FaultCfg::default(), ..cell };
        assert_ne!(whole(&clean, 1).log_hash, runs[0].log_hash);
    }

    #[test]
    fn each_request_ends_once_whatever_the_network_does() {
        for hosts in [HostSharing::Packets, HostSharing::Mixed, HostSharing::SameHost] {
            for (restarts, seed) in [(0, 1), (0, 2), (1, 3), (4, 4)] {
                let run = whole(&NodeCell { hosts, restarts, nodes: 4, ..cell() }, seed);
                let success = run.completed["Success"];
                assert!(success > run.posted / 2, "{run:?}");
                assert!(restarts > 0 || success == run.posted, "{run:?}");
                assert_eq!(run.sent == 0, hosts == HostSharing::SameHost);
                assert_eq!(run.same_host == 0, hosts == HostSharing::Packets);
            }
        }
    }

    #[test]
    fn each_fault_is_counted_and_costs_time() {
        let calm =
            NodeCell { faults: FaultCfg { delay_ns: 10_000, ..FaultCfg::default() }, ..cell() };
        let base = whole(&calm, 1);
        let LinkSeen { lost, doubled, changed, late, .. } = LinkSeen::of(&base);
        assert_eq!((lost, doubled, changed, late, base.repeated), (0, 0, 0, 0, 0));
        assert!(base.latency_p50_ns >= 20_000 && base.latency_p50_ns <= base.latency_p99_ns);
        assert!(base.latency_p99_ns < base.time_ns && base.bytes > 0 && base.messages > 0);
        let seen = |change: &dyn Fn(&mut FaultCfg)| {
            let mut cell = calm.clone();
            change(&mut cell.faults);
            let run = whole(&cell, 1);
            (LinkSeen::of(&run), run)
        };
        let (link, run) = seen(&|faults| faults.loss_ppm = 50_000);
        assert!(link.lost > 0 && run.repeated > 0 && run.latency_p99_ns > base.latency_p99_ns);
        assert!(seen(&|faults| (faults.burst_ppm, faults.burst_len) = (20_000, 5)).0.lost > 0);
        assert!(seen(&|faults| faults.duplicate_ppm = 50_000).0.doubled > 0);
        assert!(seen(&|faults| faults.corrupt_ppm = 50_000).0.changed > 0);
        let reorders =
            |faults: &mut FaultCfg| (faults.reorder_ppm, faults.reorder_ns) = (50_000, 90_000);
        assert!(seen(&reorders).0.late > 0);
        let (_, slow) = seen(&|faults| faults.delay_ns = 1_000_000);
        assert!(slow.latency_p50_ns >= 2_000_000, "{slow:?}");
    }

    /// What links did, of a run.
    #[derive(Clone, Copy, Debug)]
    struct LinkSeen {
        lost: u64,
        doubled: u64,
        changed: u64,
        late: u64,
    }

    impl LinkSeen {
        const fn of(run: &NodeRun) -> Self {
            let &NodeRun { lost, doubled, changed, late, .. } = run;
            Self { lost, doubled, changed, late }
        }
    }

    #[test]
    fn each_mix_does_what_it_says() {
        for (mix, is_message) in [
            (NodeMix::Write, false),
            (NodeMix::Read, false),
            (NodeMix::Send, true),
            (NodeMix::Add, false),
        ] {
            let run = whole(&NodeCell { mix, ..cell() }, 1);
            assert_eq!(run.messages, if is_message { run.posted } else { 0 }, "{mix:?}");
            assert_eq!(run.bytes == 8 * run.posted, mix == NodeMix::Add, "{mix:?}");
        }
    }

    /// No message waits for a receive: on one host it ends long before a sender asks again.
    #[test]
    fn messages_find_a_receive_from_the_first_one_on() {
        for hosts in [HostSharing::SameHost, HostSharing::Packets] {
            let faults = FaultCfg { delay_ns: 10_000, ..FaultCfg::default() };
            for seed in 1..=8 {
                let cell = NodeCell { hosts, mix: NodeMix::Send, faults: faults.clone(), ..cell() };
                let run = whole(&cell, seed);
                assert!(run.latency_p99_ns < 1_000_000, "seed {seed}: {run:?}");
            }
        }
    }

    #[test]
    fn the_log_is_what_the_hash_is_of() {
        let (run, log) = run(&cell(), 1, usize::MAX);
        assert_eq!(log.lines().count() as u64, run.events);
        assert_eq!(format!("{:016x}", ubcore_sim::sim::Fnv::of(log.as_bytes())), run.log_hash);
        let posts = log.lines().filter(|line| line.contains("note post ")).count() as u64;
        assert_eq!(posts, run.posted);
    }

    #[test]
    fn a_request_without_completion_breaks_the_run() {
        let (run, _) = run(&NodeCell { bound_ns: 15_000, ..cell() }, 1, 0);
        let broken = run.broken.expect("not done in time");
        assert!(
            broken.contains("has no completion") && broken.contains("--bound 15000ns"),
            "{broken}"
        );
    }
}
