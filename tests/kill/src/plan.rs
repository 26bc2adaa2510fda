//! What a worker does: a random mix that both sides can compute, and how each request of it is posted.
//!
//! The function from mix and number to request must not have state, or both sides would not agree on what was to be
//! written where. The journal is written elsewhere.

use serde::{Deserialize, Serialize};
use urma_core::{LocalSge, RemoteAddr, SendOp, SendWr, WrFlags};

use crate::{
    memory::{ADDED, LEN, Memory, PATTERN, SWAPPED, notice_word},
    round::slot,
    side::{Objects, Peer},
};

/// Most requests outstanding at a time; request `n` uses slot `n % SLOTS` of every area.
pub const SLOTS: u64 = SLOT_COUNT as u64;
/// The same as a length.
pub const SLOT_COUNT: usize = 8;
/// Bytes of a slot: more than two chunks of the direct path.
pub const SLOT_LEN: usize = 132 << 10;
/// Bytes of a receive.
pub const RECEIVE_LEN: u32 = 4096;
/// Longest message that a receive takes, in bytes.
pub const MESSAGE_MAX: usize = RECEIVE_LEN as usize;

/// Longest UM message: fits every path MTU.
const UM_MESSAGE_MAX: usize = 256;

/// Kinds of requests; the numbers are those of the journal.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub enum Op {
    /// Into the peer's slot.
    Write = 1,
    /// Into the peer's slot, and a receive of the peer's.
    WriteImm = 2,
    /// From the peer's fixed pattern.
    Read = 3,
    /// Adds one to the peer's first counter.
    FetchAdd = 4,
    /// Steps the peer's second counter.
    Cas = 5,
    /// SEND of a message that consumes a receive.
    Send = 6,
    /// A message with its number as the immediate.
    SendImm = 7,
    /// Receive request that was posted.
    Recv = 8,
    /// Into the peer's segment that comes and goes: succeeds, or is refused by the target.
    Churn = 9,
    /// Into the peer's slot, then a word that names it.
    Notify = 10,
    /// Two strongly ordered writes to one word and a strongly ordered read of it, posted at once.
    Ordered = 11,
    /// With a wrong token, or one byte too far: always refused by the target.
    Barred = 12,
}

impl Op {
    /// All of them, in the order of their numbers.
    pub const ALL: [Self; 12] = [
        Self::Write,
        Self::WriteImm,
        Self::Read,
        Self::FetchAdd,
        Self::Cas,
        Self::Send,
        Self::SendImm,
        Self::Recv,
        Self::Churn,
        Self::Notify,
        Self::Ordered,
        Self::Barred,
    ];

    /// The kind with this number.
    #[must_use]
    pub fn from_code(code: u8) -> Option<Self> {
        Self::ALL.into_iter().find(|op| *op as u8 == code)
    }

    /// Takes a receive of the peer's.
    #[must_use]
    pub fn is_message(self) -> bool {
        matches!(self, Self::WriteImm | Self::Send | Self::SendImm)
    }

    /// Stores into the peer's slot.
    #[must_use]
    pub fn is_write(self) -> bool {
        matches!(self, Self::Write | Self::WriteImm | Self::Notify)
    }
}

/// Transport mode of a round.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[repr(u8)]
pub enum Mode {
    /// Everything; a refusal by the target ends one request only.
    Rm = 1,
    /// Two jetties bound to each other: a refusal ends the queue, so nothing is asked that may be
    /// refused.
    Rc = 2,
    /// Messages only, and any of them may be lost.
    Um = 3,
}

/// Which requests a side makes.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Mix {
    /// Seed of the choices; any number will do.
    pub seed: u64,
    /// Transport mode of the jetties.
    pub mode: Mode,
}

/// One request of the mix.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Planned {
    /// Operation of the request.
    pub op: Op,
    /// Bytes, a multiple of 8.
    pub len: usize,
    /// READ: offset in the peer's pattern, a multiple of 8.
    pub offset: usize,
}

/// Request number `id` of the worker with this mix.
#[must_use]
pub fn planned(of: Mix, id: u64) -> Planned {
    let random = mix(of.seed ^ id.wrapping_mul(0x9e37_79b9_7f4a_7c15));
    let op = op(of.mode, random % 20);
    let longest = match op {
        Op::FetchAdd | Op::Cas | Op::Ordered | Op::Barred => 8,
        Op::Send | Op::SendImm if of.mode == Mode::Um => UM_MESSAGE_MAX,
        Op::Send | Op::SendImm | Op::Recv | Op::Churn => MESSAGE_MAX,
        Op::Write | Op::WriteImm | Op::Notify | Op::Read => match (random >> 8) % 32 {
            0..16 => 64,
            16..24 => 4096,
            24..31 => 32 << 10,
            _ => SLOT_LEN,
        },
    };
    let words = longest / 8;
    let len = 8 * (1 + below(random >> 16, words));
    let offset = 8 * below(random >> 40, (SLOT_LEN - len) / 8 + 1);
    Planned { op, len, offset }
}

fn op(mode: Mode, random: u64) -> Op {
    match (mode, random) {
        (Mode::Um, 0..10) => Op::Send,
        (Mode::Um, _) => Op::SendImm,
        (Mode::Rm, 5) => Op::Churn,
        (Mode::Rm, 19) => Op::Barred,
        (_, 6..8) => Op::WriteImm,
        (_, 8..11) => Op::Read,
        (_, 11) => Op::FetchAdd,
        (_, 12) => Op::Cas,
        (_, 13 | 14) => Op::Send,
        (_, 15) => Op::SendImm,
        (_, 16 | 17) => Op::Notify,
        (_, 18 | 19) => Op::Ordered,
        _ => Op::Write,
    }
}

/// How many messages the `count` requests from `first` on hold.
#[must_use]
pub fn messages(of: Mix, first: u64, count: u64) -> u64 {
    (first..first + count).map(|id| u64::from(planned(of, id).op.is_message())).sum()
}

/// A number that looks random.
#[must_use]
pub fn mix(mut x: u64) -> u64 {
    // The finaliser of splitmix64 by Vigna, which is in the public domain.
    x = x.wrapping_add(0x9e37_79b9_7f4a_7c15);
    x = (x ^ (x >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    x ^ (x >> 31)
}

fn below(random: u64, limit: usize) -> usize {
    let limit = u64::try_from(limit.max(1)).unwrap_or(u64::MAX);
    usize::try_from(random % limit).unwrap_or(0)
}

/// Bits that distinguish the parts of an ordered pair; the read has the plain number.
const PARTS: [u64; 2] = [1 << 61, 1 << 62];

/// User contexts of the parts of request `id`, in posting order: the last one is `id` itself.
pub(crate) fn ids(id: u64, op: Op) -> impl Iterator<Item = u64> + Clone {
    let parts: &[u64] = if op == Op::Ordered { &PARTS } else { &[] };
    parts.iter().map(move |part| part | id).chain([id])
}

/// Posts one request. How many of its parts were taken.
pub(crate) fn post(
    objects: &mut Objects,
    peer: &Peer,
    (id, plan, expected): (u64, &Planned, u64),
) -> usize {
    if plan.op == Op::Ordered {
        return post_ordered(objects, peer, id);
    }
    let segment = &objects.segment;
    let len = u32::try_from(plan.len).unwrap_or(u32::MAX);
    let local = |offset: usize| LocalSge { segment, addr: segment.va() + offset as u64, len };
    let there = |offset: usize| there(peer, offset);
    let src = [local(Memory::source_of(id))];
    let landing = [local(Memory::read_of(id))];
    let result = local(Memory::result_of(id));
    let inbox = there(Memory::inbox_of(id));
    let op = match plan.op {
        Op::Write => SendOp::Write { src: &src, dst: inbox },
        Op::WriteImm => SendOp::WriteImm { src: &src, dst: inbox, imm: expected },
        Op::Notify => {
            let notify = there(Memory::notice_of(id));
            SendOp::WriteNotify { src: &src, dst: inbox, notify, data: notice_word(id) }
        }
        Op::Churn => {
            let addr = peer.churn.va() + (slot(id) * MESSAGE_MAX) as u64;
            SendOp::Write { src: &src, dst: RemoteAddr { segment: &peer.churn, addr } }
        }
        Op::Barred => SendOp::Write { src: &src, dst: barred(peer, id, plan.len) },
        Op::Read => SendOp::Read { dst: &landing, src: there(PATTERN + plan.offset) },
        Op::FetchAdd => SendOp::FetchAdd { result, target: there(ADDED), value: 1 },
        Op::Cas => {
            let target = there(SWAPPED);
            SendOp::Cas { result, target, compare: expected, swap: expected + 1 }
        }
        Op::Send => SendOp::Send { src: &src },
        Op::SendImm => SendOp::SendImm { src: &src, imm: expected },
        Op::Recv | Op::Ordered => return 0,
    };
    let posted = objects.jetty.post_send(&[SendWr::new(op, &peer.target, id)]);
    usize::from(posted.is_ok())
}

fn there(peer: &Peer, offset: usize) -> RemoteAddr<'_> {
    RemoteAddr { segment: &peer.segment, addr: peer.segment.va() + offset as u64 }
}

/// Memory that the peer guards with another token, or that ends one byte before the write does.
fn barred(peer: &Peer, id: u64, len: usize) -> RemoteAddr<'_> {
    let (segment, offset) = if (id / 8).is_multiple_of(2) {
        (&peer.strange, Memory::inbox_of(id))
    } else {
        (&peer.longer, LEN + 1 - len)
    };
    RemoteAddr { segment, addr: segment.va() + offset as u64 }
}

/// Two writes to one word and a read of it: the read sees the second.
fn post_ordered(objects: &mut Objects, peer: &Peer, id: u64) -> usize {
    let segment = &objects.segment;
    let local = |offset: usize| [LocalSge { segment, addr: segment.va() + offset as u64, len: 8 }];
    let word = there(peer, Memory::step_of(id));
    let (first, second) = (local(Memory::source_of(id)), local(Memory::source_of(id) + 8));
    let seen = local(Memory::read_of(id));
    let ops = [
        SendOp::Write { src: &first, dst: word },
        SendOp::Write { src: &second, dst: word },
        SendOp::Read { dst: &seen, src: word },
    ];
    let flags = WrFlags::COMPLETE | WrFlags::STRONG_ORDER;
    let mut names = ids(id, Op::Ordered);
    let batch = ops.map(|op| {
        let wr = SendWr::new(op, &peer.target, names.next().unwrap_or(id));
        SendWr { flags, ..wr }
    });
    match objects.jetty.post_send(&batch) {
        Ok(()) => batch.len(),
        Err(error) => error.index,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn plans_fit_their_slots_and_hold_every_kind() {
        let mut seen = Vec::new();
        let mixes = [Mode::Rm, Mode::Rc, Mode::Um].map(|mode| Mix { seed: 7, mode });
        for (of, id) in mixes.into_iter().flat_map(|of| (0..10_000).map(move |id| (of, id))) {
            let plan = planned(of, id);
            assert!(of.mode != Mode::Um || matches!(plan.op, Op::Send | Op::SendImm));
            assert!(of.mode == Mode::Rm || !matches!(plan.op, Op::Churn | Op::Barred));
            assert!(
                plan.len >= 8 && plan.len.is_multiple_of(8) && plan.offset + plan.len <= SLOT_LEN
            );
            assert!(plan.op.is_write() || plan.op == Op::Read || plan.len <= MESSAGE_MAX);
            if !seen.contains(&plan.op) {
                seen.push(plan.op);
            }
        }
        assert_eq!(seen.len(), Op::ALL.len() - 1, "all but receives");
    }
}
