//! One random request: what it asks for, and what that means in the model.
//!
//! *Owns*: the kinds and the draw. *Takes*: random numbers. *Gives*: effects on the area, a
//! message, a fate; and the operation for the API. *Must not*: post.

use ubcore_sim::link::Rng;
use urma_core::{CrOpcode, LocalSge, SendOp};

use super::area::{AREA_LEN, Effect, WORDS, WordOp};
use super::book::{Fate, Message};
use super::node::{Lane, Peer, area_offset, at};
use super::plan::{SimPlan, Work};

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
