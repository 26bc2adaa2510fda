//! Posting: a random request, or one by whose completion the model learns its position.
//!
//! Draws which jetty asks which node for what, and gives what that means in the model. Must not judge.

use ubcore_sim::link::Rng;
use urma_core::{CrOpcode, LocalSge, PostReason, SendOp, SendWr, WrFlags};

use super::{
    area::{AREA_LEN, Effect, WORDS, WordOp},
    book::{Fate, Message, Pending},
    node::{Lane, Peer, SLOT_LEN, View, area_offset, at, partner},
    plan::{SimPlan, Work},
    run::{Run, has_messages},
    side::{Gait, Phase},
};

/// Sending jetty and target of a request.
#[derive(Clone, Copy, Debug)]
pub(super) struct Route {
    pub(super) me: usize,
    pub(super) lane: Lane,
    pub(super) to: usize,
}

/// Whether success makes a completion.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Signal {
    Yes,
    Maybe,
}

impl Run<'_> {
    /// Posts one request of node `me`, if it has any left; false when it should not go on.
    pub(super) fn post_random(&mut self, me: usize) -> Result<bool, String> {
        if self.nodes[me].left == 0 || self.nodes[me].free.is_empty() {
            return Ok(false);
        }
        let Some(route) = self.route(me) else { return Ok(true) };
        let side = &self.nodes[me].sides[route.lane as usize];
        let traffic = &side.traffic[route.to];
        if !matches!(side.gait, Gait::Ready | Gait::Suspended) || side.is_lost {
            return Ok(true);
        }
        match traffic.phase {
            Phase::Marked(_) => return Ok(true),
            Phase::Broken if side.requests.is_empty() && side.gait == Gait::Ready => {
                let draw = Draw::mark(&mut self.rng);
                let number = self.next_number;
                if self.post(route, &draw, Signal::Yes)? {
                    let traffic = &mut self.nodes[me].sides[route.lane as usize].traffic[route.to];
                    traffic.phase = Phase::Marked(number);
                }
                return Ok(true);
            }
            Phase::Broken => return Ok(true),
            // A node that has not noticed the end of its target goes on for a while.
            Phase::Gone if !goes_on(route.lane) || self.rng.chance_ppm(800_000) => {
                return Ok(true);
            }
            Phase::Gone | Phase::Open => {}
        }
        let word = |word| traffic.area.word(word);
        let mut draw = Draw::new(&mut self.rng, self.plan, route.lane, word);
        if draw.kind == Kind::Invalidate
            && (traffic.victim != Fate::Success || traffic.phase != Phase::Open)
        {
            draw.kind = Kind::Nop;
        }
        let posted = self.post(route, &draw, Signal::Maybe)?;
        if posted {
            self.nodes[me].left -= 1;
            if draw.kind == Kind::Invalidate {
                self.nodes[me].sides[route.lane as usize].traffic[route.to].victim = Fate::Refused;
            }
        }
        Ok(posted)
    }

    /// Draws the sending jetty and its target.
    fn route(&mut self, me: usize) -> Option<Route> {
        let count = self.nodes.len();
        let lanes = if has_messages(self.plan) { 4 } else { Lane::WITH_AREA };
        let lane = Lane::ALL[self.rng.index(lanes)];
        let other = (me + 1 + self.rng.index(count - 1)) % count;
        let to = if lane == Lane::Paired { partner(me, count)? } else { other };
        Some(Route { me, lane, to })
    }

    /// Unsignalled outstanding requests need a signalled one behind them.
    pub(super) fn close_sides(&mut self, me: usize) -> Result<(), String> {
        for lane in Lane::ALL {
            let side = &self.nodes[me].sides[lane as usize];
            let is_open = side.gait == Gait::Ready && !side.is_lost && side.requests.is_silent();
            let has_slot = !self.nodes[me].free.is_empty();
            let now = self.nodes[me].left == 0 || self.rng.chance_ppm(100_000);
            if is_open && has_slot && now {
                let count = self.nodes.len();
                let to = partner(me, count).unwrap_or((me + 1) % count);
                let mut draw = Draw::mark(&mut self.rng);
                draw.kind = if lane == Lane::Datagrams { Kind::Send } else { Kind::Nop };
                self.post(Route { me, lane, to }, &draw, Signal::Yes)?;
            }
        }
        Ok(())
    }

    /// Posts `draw` and records it in the model; false when the queue is full.
    fn post(&mut self, route: Route, draw: &Draw, signal: Signal) -> Result<bool, String> {
        let Route { me, lane, to } = route;
        let number = self.next_number;
        let signalled = signal == Signal::Yes || !self.rng.chance_ppm(300_000);
        let any_fence = self.rng.chance_ppm(50_000);
        let Some(&slot) = self.nodes[me].free.last() else { return Ok(false) };
        let lent = self.nodes[to].program.as_ref().map(|program| program.view.lent.fate());
        let node = &mut self.nodes[me];
        let side = &mut node.sides[lane as usize];
        let effects = draw.effects();
        let late = |range| side.requests.is_read(to, &range);
        let changes = || effects.iter().filter(|effect| !effect.is_read());
        // Answers to reads may be gathered late; see the room of areas.
        let withdraws = draw.kind == Kind::Invalidate;
        let fence = withdraws || changes().any(|effect| late(effect.range())) || any_fence;
        let mut flags = WrFlags::empty();
        flags.set(WrFlags::COMPLETE, signalled);
        flags.set(WrFlags::FENCE, fence && lane != Lane::Datagrams);

        let Some(program) = node.program.as_mut() else { return Ok(false) };
        let Some(peer) = program.view.peers[to].as_ref() else { return Ok(false) };
        program.view.local.write(slot * SLOT_LEN, &draw.bytes).map_err(|e| e.to_string())?;
        let is_lent = draw.kind == Kind::Probe(Ask::Lent);
        if is_lent && peer.lent.is_none() {
            return Ok(false);
        }
        let pieces = pieces(&program.view, slot, draw.bytes.len());
        let op = draw.op(peer, (me, lane), &pieces, program.view.sge(slot, 0, 8));
        let target = &peer.targets[lane.receiver() as usize];
        let wr = SendWr { flags, ..SendWr::new(op, target, number) };
        match program.jetties[lane as usize].post_send(&[wr]).map_err(|error| error.reason) {
            Ok(()) => {}
            Err(PostReason::Full) => return Ok(false),
            Err(reason) => return Err(format!("request {number} was refused: {reason}")),
        }
        self.fabric.note(format_args!("post {number} {route:?} {:?} {flags:?}", draw.kind));
        let traffic = &mut side.traffic[to];
        let reads = effects.iter().find(|effect| effect.is_read()).map(Effect::range);
        let fate = draw.fate(traffic.victim, lent.unwrap_or(Fate::Refused));
        let doomed = traffic.phase == Phase::Gone;
        // A datagram to a dead node may be late enough for its next life.
        if !doomed || lane == Lane::Datagrams {
            traffic.line.extend(draw.message(number, peer));
        }
        if !doomed {
            effects.into_iter().for_each(|effect| traffic.area.push(number, effect));
        }
        let brings = draw.brings();
        let request = Pending { number, to, signalled, slot, fate, doomed, brings, is_lent, reads };
        side.requests.push(request);
        node.free.pop();
        self.next_number += 1;
        self.check_area(route)?;
        Ok(true)
    }
}

/// Whether jetties of `lane` post to a node that died before they notice. A connection ends with
/// it, and datagrams to it are lost.
const fn goes_on(lane: Lane) -> bool {
    matches!(lane, Lane::Main | Lane::Restless)
}

/// Two pieces of the slot, in order.
fn pieces(view: &View, slot: usize, len: usize) -> Vec<LocalSge<'_>> {
    let cut = len / 3;
    let pieces = [(0, cut), (cut, len - cut)].into_iter().filter(|&(_, len)| len > 0);
    pieces.map(|(at, len)| view.sge(slot, at, len)).collect()
}

/// What a request asks for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Kind {
    Write,
    Read,
    WriteImm,
    WriteNotify,
    WriteAtomic,
    Word(WordOp),
    Send,
    SendImm,
    Invalidate,
    /// A write that its target refuses, or not, because of what it names.
    Probe(Ask),
    Nop,
    FlushDma,
}

/// What a request names instead of its area.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Ask {
    /// The area under a wrong token.
    WrongToken,
    /// One byte beyond the last area.
    BeyondEnd,
    /// Memory granted for reading.
    ReadOnly,
    Victim,
    /// What its owner takes back now and then.
    Lent,
}

/// How a refused request touches what it must not: store, load, atomic.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Touch {
    Store,
    Load,
    Add,
}

/// The random choices of one request.
#[derive(Debug)]
pub(super) struct Draw {
    pub(super) kind: Kind,
    pub(super) touch: Touch,
    /// Source bytes; their count is the request's length.
    pub(super) bytes: Vec<u8>,
    /// Offset in the area, behind the words.
    offset: usize,
    word: usize,
    value: u64,
}

/// Longest message of a datagram jetty, and the shortest: long enough to be distinguished from
/// others.
const DATAGRAM: std::ops::Range<usize> = 12..200;

impl Draw {
    /// A request for a jetty of `lane`. `word` returns the value of a word once all earlier
    /// requests are done.
    pub(super) fn new(
        rng: &mut Rng,
        plan: &SimPlan,
        lane: Lane,
        word: impl FnOnce(usize) -> u64,
    ) -> Self {
        let len_max = plan.len_max as usize;
        let len = match lane {
            Lane::Datagrams => DATAGRAM.start + rng.index(DATAGRAM.len()),
            _ => match rng.below(4) {
                0 => 1 + rng.index(16),
                1 => 1 + rng.index(len_max.min(1500)),
                _ => 1 + rng.index(len_max),
            },
        };
        let mut bytes = vec![0; len];
        rng.fill(&mut bytes);
        let number = rng.index(WORDS);
        let value = rng.next_u64();
        let room = AREA_LEN - WORDS * 8 - len;
        let mut draw = Self {
            kind: kind(rng, plan.work, lane, value),
            touch: [Touch::Store, Touch::Load, Touch::Add][rng.index(3)],
            bytes,
            offset: WORDS * 8 + rng.index(room + 1),
            word: number,
            value,
        };
        if plan.take_back_ppm > 0 && matches!(draw.kind, Kind::Probe(_)) && rng.below(3) > 0 {
            draw.kind = Kind::Probe(Ask::Lent);
        }
        // Half of the time the comparison holds.
        if let Kind::Word(WordOp::Cas { compare, .. }) = &mut draw.kind
            && value.is_multiple_of(2)
        {
            *compare = word(number);
        }
        draw
    }

    /// A message that shows that everything before it arrived.
    pub(super) fn mark(rng: &mut Rng) -> Self {
        let mut bytes = vec![0; 16];
        rng.fill(&mut bytes);
        let (touch, value) = (Touch::Store, rng.next_u64());
        Self { kind: Kind::SendImm, touch, bytes, offset: 0, word: 0, value }
    }

    /// What it does to its area.
    pub(super) fn effects(&self) -> Vec<Effect> {
        let write = || Effect::Write { at: self.offset, bytes: self.bytes.clone() };
        let word = |op| Effect::Word { word: self.word, op };
        match self.kind {
            Kind::Write | Kind::WriteImm => vec![write()],
            Kind::WriteNotify => vec![write(), word(WordOp::Set(self.value))],
            Kind::WriteAtomic => vec![write(), word(WordOp::Add(self.value))],
            Kind::Word(op) => vec![word(op)],
            Kind::Read => vec![Effect::Read(self.offset..self.offset + self.bytes.len())],
            _ => Vec::new(),
        }
    }

    /// Bytes that come back to its slot.
    pub(super) fn brings(&self) -> bool {
        matches!(self.kind, Kind::Read | Kind::Word(_))
    }

    /// The message that it carries as request `number`.
    pub(super) fn message(&self, number: u64, peer: &Peer) -> Option<Message> {
        let (opcode, imm) = match self.kind {
            Kind::Send => (CrOpcode::Send, 0),
            Kind::SendImm => (CrOpcode::SendImm, self.value),
            Kind::WriteImm => (CrOpcode::WriteImm, self.value),
            Kind::Invalidate => {
                let token = peer.victim.token().map_or(0, urma_core::Token::value);
                let id = u64::from(peer.victim.token_id().value());
                (CrOpcode::SendInvalidate, id | u64::from(token) << 32)
            }
            _ => return None,
        };
        let len = self.bytes.len();
        let bytes = if self.kind == Kind::WriteImm { Vec::new() } else { self.bytes.clone() };
        Some(Message { number, opcode, bytes, len, imm })
    }

    /// How it has to end; `victim` and `lent` are how requests for those end.
    pub(super) fn fate(&self, victim: Fate, lent: Fate) -> Fate {
        match self.kind {
            Kind::Probe(Ask::Lent) => lent,
            Kind::Probe(Ask::Victim) => victim,
            Kind::Probe(Ask::ReadOnly) if self.touch == Touch::Load => Fate::Success,
            Kind::Probe(_) => Fate::Refused,
            _ => Fate::Success,
        }
    }

    /// Where in which segment a refused request reaches.
    fn forbidden<'a>(&self, ask: Ask, peer: &'a Peer, mine: usize) -> urma_core::RemoteAddr<'a> {
        // An atomic needs 8 bytes at a multiple of 8.
        let len = if self.touch == Touch::Add { 8 } else { self.bytes.len() };
        let end = usize::try_from(peer.segment.len()).unwrap_or(0);
        match ask {
            Ask::WrongToken => at(&peer.wrong_token, mine + self.offset / 8 * 8),
            Ask::BeyondEnd if self.touch == Touch::Add => at(&peer.too_long, end),
            Ask::BeyondEnd => at(&peer.too_long, end + 1 - len),
            Ask::ReadOnly => at(&peer.vault, 0),
            Ask::Victim => at(&peer.victim, 0),
            // Without an import of it no request asks for it.
            Ask::Lent => at(peer.lent.as_ref().unwrap_or(&peer.victim), 0),
        }
    }

    /// The operation. `src` is its slot in two pieces, `result` the slot's first 8 bytes.
    pub(super) fn op<'a>(
        &self,
        peer: &'a Peer,
        (me, lane): (usize, Lane),
        src: &'a [LocalSge<'a>],
        result: LocalSge<'a>,
    ) -> SendOp<'a> {
        let mine = area_offset(me, lane);
        let dst = at(&peer.segment, mine + self.offset);
        let target = at(&peer.segment, mine + self.word * 8);
        let value = self.value;
        match self.kind {
            Kind::Write => SendOp::Write { src, dst },
            Kind::Read => SendOp::Read { dst: src, src: dst },
            Kind::WriteImm => SendOp::WriteImm { src, dst, imm: value },
            Kind::WriteNotify => SendOp::WriteNotify { src, dst, notify: target, data: value },
            Kind::WriteAtomic => SendOp::WriteAtomic { src, dst, notify: target, add: value },
            Kind::Word(op) => match op {
                WordOp::Add(value) => SendOp::FetchAdd { result, target, value },
                WordOp::Xor(value) => SendOp::FetchXor { result, target, value },
                WordOp::Set(value) => SendOp::Swap { result, target, value },
                WordOp::Cas { compare, swap } => SendOp::Cas { result, target, compare, swap },
            },
            Kind::Send => SendOp::Send { src },
            Kind::SendImm => SendOp::SendImm { src, imm: value },
            Kind::Invalidate => {
                let token_id = peer.victim.token_id();
                let token = peer.victim.token().unwrap_or(urma_core::Token::new(0));
                SendOp::SendInvalidate { src, token_id, token }
            }
            Kind::Probe(ask) => {
                let there = self.forbidden(ask, peer, mine);
                match self.touch {
                    Touch::Store => SendOp::Write { src, dst: there },
                    Touch::Load => SendOp::Read { dst: src, src: there },
                    Touch::Add => SendOp::FetchAdd { result, target: there, value },
                }
            }
            Kind::Nop => SendOp::Nop,
            Kind::FlushDma => SendOp::FlushDma,
        }
    }
}

/// What a jetty of `lane` may ask for.
fn kind(rng: &mut Rng, work: Work, lane: Lane, value: u64) -> Kind {
    let other = rng.next_u64();
    let words = [
        WordOp::Add(value),
        WordOp::Xor(value),
        WordOp::Set(value),
        WordOp::Cas { compare: value, swap: other },
    ];
    let word = Kind::Word(words[rng.index(words.len())]);
    if lane == Lane::Datagrams {
        return [Kind::Send, Kind::SendImm][rng.index(2)];
    }
    let one_sided = [Kind::Write, Kind::Write, Kind::Write, Kind::Read, Kind::Read, word, word];
    let messages =
        [Kind::WriteImm, Kind::Send, Kind::SendImm, Kind::WriteNotify, Kind::WriteAtomic];
    // The victim belongs to one jetty, for order is per jetty.
    let asks = [Ask::WrongToken, Ask::BeyondEnd, Ask::ReadOnly, Ask::Victim];
    let asks = if lane == Lane::Main { &asks[..] } else { &asks[..3] };
    match rng.below(16) {
        // An error ends an RC jetty; RM jetties go on.
        0 if lane != Lane::Paired => Kind::Probe(asks[rng.index(asks.len())]),
        1 => [Kind::Nop, Kind::FlushDma][rng.index(2)],
        2 if work == Work::All && lane == Lane::Main => Kind::Invalidate,
        3..=7 if work == Work::All => messages[rng.index(messages.len())],
        _ => one_sided[rng.index(one_sided.len())],
    }
}

#[cfg(test)]
mod tests {
    use super::super::idle::{accepts, refuses, spoil};
    use super::*;

    const ROUTE: Route = Route { me: 0, lane: Lane::Main, to: 1 };

    /// A message in transit from node 0 to node 1.
    fn send(run: &mut Run<'_>) -> Result<(), String> {
        let draw = Draw::mark(&mut run.rng);
        run.post(ROUTE, &draw, Signal::Yes).map(|posted| assert!(posted, "there is room"))
    }

    #[test]
    fn a_post_that_the_queue_refuses_is_refused() {
        refuses(&[
            ("a request", "request 1 was refused: ", |run| {
                // An RM jetty names an RC target.
                let peer = run.program(0).and_then(|program| program.view.peers[1].as_mut());
                peer.expect("imported").targets.swap(Lane::Main as usize, Lane::Paired as usize);
                send(run)
            }),
            ("a receive", "a receive was refused: ", |run| {
                // A jetty of one node names memory of the other.
                let [first, second, ..] = &mut run.nodes[..] else { return Ok(()) };
                let programs = (first.program.as_mut(), second.program.as_mut());
                let (Some(first), Some(second)) = programs else { return Ok(()) };
                std::mem::swap(&mut first.jetties, &mut second.jetties);
                first.post_receive(Lane::Main, 0, 0).map(|_| ())
            }),
            ("memory that changed meanwhile", "area of Main of 0 at 1: byte 300", |run| {
                spoil(run, 300, &[7]);
                send(run)
            }),
        ]);
        accepts(&[("as it should be", send)]);
    }

    /// What was posted must end: the model waits for it.
    #[test]
    fn what_was_posted_is_due() {
        accepts(&[("a message", |run| {
            send(run)?;
            let side = &run.nodes[0].sides[Lane::Main as usize];
            assert_eq!((side.requests.len(), side.traffic[1].line.len()), (1, 1));
            assert!(!run.nodes[0].is_done());
            Ok(())
        })]);
    }
}
