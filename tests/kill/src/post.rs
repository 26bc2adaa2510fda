//! From a planned request to what is posted.
//!
//! *Owns*: which addresses and flags each kind has. *Takes*: a plan and its number. *Gives*: how
//! many of its parts the queue took. *Must not*: write a journal.

use urma_core::{LocalSge, RemoteAddr, SendOp, SendWr, WrFlags};

use crate::{
    memory::{ADDED, LEN, Memory, PATTERN, SWAPPED, notice_word},
    plan::{MESSAGE_MAX, Op, Planned},
    round::slot,
    side::{Objects, Peer},
};

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
