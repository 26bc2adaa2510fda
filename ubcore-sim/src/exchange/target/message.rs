//! Messages into receives: looked up, filled, completed; piece by piece or as a datagram.
//!
//! *Owns*: what a message puts into a receive. *Takes*: pieces in order. *Gives*: receive completions. *Must not*:
//! move a byte into a receive that the message does not fit.

use udma_abi::{Cqe, CqeStatus, counters::Counter, cqe::INLINE_MAX};
use urma_packet::{RequestFlags, RequestHeader, RequestOp, ResponseStatus};

use crate::carrier::piece::Payload;
use crate::engine::gather::{self, MessageSpan, Store};
use crate::engine::names::NamedBytes;
use crate::engine::pull::{NamedPlace, PullError, Puller};
use crate::exchange::ExchangeContext;
use crate::exchange::target::memory::{self, NotPulled, PieceOutcome};
use crate::exchange::target::receive::TakenReceive;
use crate::exchange::target::receive::{Ask, Unsequenced};
use crate::exchange::target::serve::{Late, PartialMessage, Served};
use crate::exchange::target::{RequestFragment, RequestSource};

/// A receive for a message: the one that an earlier attempt took, or a new one.
pub(crate) fn receive_for(
    served: &mut Served,
    work: &mut ExchangeContext<'_>,
    from: RequestSource,
    part: &RequestFragment<'_>,
) -> Result<TakenReceive, ResponseStatus> {
    if let Some(taken) = served.message.take().and_then(|m| m.receive) {
        return Ok(taken);
    }
    let ask = ask(from, part.header, Unsequenced::No).ok_or(ResponseStatus::NoTarget)?;
    work.receives.take(work.core, &ask)
}

/// The receive that a request asks for; `None`: it needs none, or names no target.
pub(crate) fn ask(
    from: RequestSource,
    header: &RequestHeader,
    datagram: Unsequenced,
) -> Option<Ask> {
    Some(Ask {
        target: header.target?,
        from: from.eid,
        initiator: header.initiator,
        token: match header.op {
            // The other token is the segment's.
            RequestOp::WriteImm(notice) => notice.token,
            RequestOp::Send | RequestOp::SendImm(_) | RequestOp::SendInvalidate(_) => header.token,
            RequestOp::Write
            | RequestOp::WriteNotify(_)
            | RequestOp::WriteAtomicAdd(_)
            | RequestOp::Read
            | RequestOp::Atomic(..)
            | RequestOp::FlushDma => return None,
        },
        datagram,
    })
}

pub(crate) fn send_piece(
    served: &mut Served,
    work: &mut ExchangeContext<'_>,
    (from, puller): (RequestSource, Option<&mut Puller>),
    part: &RequestFragment<'_>,
) -> PieceOutcome {
    let begun = if part.is_first() {
        begin_receive(served, work, from, part)
    } else {
        served.message.take().ok_or(ResponseStatus::Length)
    };
    let mut message = match begun {
        Ok(message) => message,
        Err(status) => return PieceOutcome::refused(status),
    };
    let fits = message.fits(part.header, part.len()) && part.payload != Payload::Placed;
    let placed = match part.payload {
        Payload::Named(bytes) if fits => match pull(work, &message, (part, &bytes), puller) {
            Err(PullError::Unreachable) => {
                // It is given back with the rest of the attempt.
                served.message = Some(message);
                return PieceOutcome::NoBytes;
            }
            pulled => pulled.is_ok(),
        },
        Payload::Here | Payload::Placed | Payload::Named(_) => {
            fits && place_received(work, &message, part)
        }
    };
    if !placed {
        if let Some(taken) = message.receive {
            taken.fail(work.core, if fits { CqeStatus::LocAccess } else { CqeStatus::LocLen });
        }
        let status = if fits { ResponseStatus::NoResources } else { ResponseStatus::Length };
        return PieceOutcome::refused(status);
    }
    if !part.is_last() {
        message.done += part.len();
        served.message = Some(message);
        return PieceOutcome::More;
    }
    if let Some(taken) = message.receive {
        complete(work, taken, from, part);
    }
    PieceOutcome::ACK
}

/// Takes a receive for a message, and checks that it fits.
fn begin_receive(
    served: &mut Served,
    work: &mut ExchangeContext<'_>,
    from: RequestSource,
    part: &RequestFragment<'_>,
) -> Result<PartialMessage, ResponseStatus> {
    let length = part.header.access.length;
    let taken = receive_for(served, work, from, part)?;
    if let Err((status, answer)) = check_receive(work, &taken, length) {
        taken.fail(work.core, status);
        return Err(answer);
    }
    Ok(PartialMessage { start: 0, length, done: 0, life: 0, receive: Some(taken) })
}

/// Checks that the message fits the receive, and that the receive's pieces are there; otherwise the status for each
/// side.
fn check_receive(
    work: &mut ExchangeContext<'_>,
    taken: &TakenReceive,
    length: u32,
) -> Result<(), (CqeStatus, ResponseStatus)> {
    if u64::from(length) > taken.capacity() {
        return Err((CqeStatus::LocLen, ResponseStatus::Length));
    }
    gather::check(taken.pieces(), &mut work.segments_of(taken.owner), Store::Yes)
        .map_err(|status| (status, ResponseStatus::NoResources))
}

/// Whether the payload is so short that it goes into the completion.
fn goes_inline(taken: &TakenReceive, part: &RequestFragment<'_>) -> bool {
    taken.is_inline()
        && part.payload == Payload::Here
        && part.bytes.len() <= INLINE_MAX
        && part.is_first()
        && part.is_last()
}

fn place_received(
    work: &mut ExchangeContext<'_>,
    message: &PartialMessage,
    part: &RequestFragment<'_>,
) -> bool {
    let Some(taken) = &message.receive else { return false };
    if goes_inline(taken, part) {
        return true;
    }
    let span =
        MessageSpan { at: u64::from(message.done), len: part.bytes.len(), last: part.is_last() };
    let now = work.now;
    let segments = &mut work.segments_of(taken.owner);
    gather::are_there(taken.pieces(), segments, now)
        && gather::write_in(taken.pieces(), segments, span, part.bytes).is_ok()
}

/// Copies the bytes that the peer names into the receive.
fn pull(
    work: &mut ExchangeContext<'_>,
    message: &PartialMessage,
    (part, bytes): (&RequestFragment<'_>, &NamedBytes),
    puller: Option<&mut Puller>,
) -> Result<(), PullError> {
    let Some(taken) = &message.receive else { return Err(PullError::Unreachable) };
    let puller = puller.ok_or(PullError::Unreachable)?;
    let len = bytes.len as usize;
    let span = MessageSpan { at: u64::from(message.done), len, last: part.is_last() };
    let now = work.now;
    let segments = &mut work.segments_of(taken.owner);
    if !gather::are_there(taken.pieces(), segments, now) {
        return Err(PullError::Local(CqeStatus::LocAccess));
    }
    puller.pull(bytes, |place| match place {
        NamedPlace::Arena(memory, offset) => {
            gather::copy_in(taken.pieces(), segments, span, (memory, offset))
                .map_err(PullError::Local)
        }
        NamedPlace::Process(process, addr) => {
            gather::pull_in(taken.pieces(), segments, span, (process, addr))
                .map_err(|_| PullError::Unreachable)
        }
    })
}

pub(crate) fn complete(
    work: &ExchangeContext<'_>,
    taken: TakenReceive,
    from: RequestSource,
    part: &RequestFragment<'_>,
) {
    let header = part.header;
    let (opcode, imm) = match header.op {
        RequestOp::Send => (0, 0),
        RequestOp::SendImm(imm) => (1, imm),
        RequestOp::SendInvalidate(notice) => {
            let token_id = notice.token_id.value() << 8;
            work.core.tables.segments.invalidate(taken.owner, token_id, notice.token.0);
            (2, u64::from(token_id) | u64::from(notice.token.0) << 32)
        }
        RequestOp::WriteImm(notice) => (3, notice.imm),
        RequestOp::Write
        | RequestOp::WriteNotify(_)
        | RequestOp::WriteAtomicAdd(_)
        | RequestOp::Read
        | RequestOp::Atomic(..)
        | RequestOp::FlushDma => (0, 0),
    };
    let mut cqe = Cqe {
        opcode,
        imm,
        byte_cnt: header.access.length,
        remote_id: header.initiator.id.value(),
        rmt_eid: from.eid,
        tpn: from.tpn,
        ..Cqe::default()
    };
    if header.op.is_send() && goes_inline(&taken, part) {
        cqe.inline_en = true;
        cqe.inline[..part.bytes.len()].copy_from_slice(part.bytes);
    }
    taken.complete(work.core, cqe, header.flags.contains(RequestFlags::SOLICITED));
}

/// Receives a message outside of any sequence: it is dropped if there is no receive.
pub(crate) fn on_datagram(
    work: &mut ExchangeContext<'_>,
    eid: udma_abi::RawEid,
    tpn: u32,
    part: &RequestFragment<'_>,
) -> MessageProgress {
    let from = RequestSource { eid, tpn };
    let whole = part.is_first() && part.is_last() && part.payload == Payload::Here;
    let exact = part.header.access.length == part.len();
    let ask = ask(from, part.header, Unsequenced::Yes).filter(|_| whole && exact);
    let Some(ask) = ask else {
        work.core.tables.count(Counter::DropMalformed);
        return MessageProgress::Nothing;
    };
    let Ok(taken) = work.receives.take(work.core, &ask) else {
        work.core.tables.count(Counter::DropUm);
        return MessageProgress::Nothing;
    };
    if let Err((status, _)) = check_receive(work, &taken, part.header.access.length) {
        work.core.tables.count(Counter::DropUm);
        taken.fail(work.core, status);
        return MessageProgress::Receive;
    }
    let length = part.header.access.length;
    let message = PartialMessage { start: 0, length, done: 0, life: 0, receive: Some(taken) };
    let placed = place_received(work, &message, part);
    if let Some(taken) = message.receive {
        if placed {
            complete(work, taken, from, part);
        } else {
            taken.fail(work.core, CqeStatus::LocAccess);
        }
    }
    MessageProgress::Receive
}

/// Result for a datagram.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum MessageProgress {
    /// No target, no valid token or no receive: as if it had been lost.
    Nothing,
    /// It used a receive.
    Receive,
}

/// Steps by which the planted fault delays a write.
const LATE_STEPS: u32 = 32;

/// Planted fault: places delayed writes that are due.
pub(crate) fn place_late(served: &mut Served, work: &mut ExchangeContext<'_>) {
    let Some(late) = &mut served.late else { return };
    late.steps -= 1;
    if late.steps == 0
        && let Some(Late { header, bytes, .. }) = served.late.take()
        && let Ok(life) = memory::check_write(work, &header, header.access.address)
    {
        let (start, length) = (header.access.address, header.access.length);
        let message = PartialMessage { start, length, done: 0, life, receive: None };
        let part = RequestFragment { header: &header, payload: Payload::Here, bytes: &bytes };
        let _ = memory::place(work, &header, &message, &part);
    }
}

/// Handles a piece of any write: all targets are checked at the first one, and again for each.
pub(crate) fn write_piece(
    served: &mut Served,
    work: &mut ExchangeContext<'_>,
    (from, puller): (RequestSource, Option<&mut Puller>),
    part: &RequestFragment<'_>,
) -> PieceOutcome {
    let header = part.header;
    if part.is_first() {
        let start = header.access.address;
        let life = match memory::check_write(work, header, start) {
            Ok(life) => life,
            Err(status) => {
                give_back(served, work);
                return PieceOutcome::refused(status);
            }
        };
        let receive = if header.op.is_two_sided() {
            match receive_for(served, work, from, part) {
                Ok(taken) => Some(taken),
                Err(status) => return PieceOutcome::refused(status),
            }
        } else {
            give_back(served, work);
            None
        };
        let length = header.access.length;
        served.message = Some(PartialMessage { start, length, done: 0, life, receive });
    }
    let Some(message) = &mut served.message else {
        return PieceOutcome::refused(ResponseStatus::Length);
    };
    let placed = if !message.fits(header, part.len()) {
        Err(ResponseStatus::Length)
    } else if let Payload::Named(bytes) = &part.payload {
        let named = (bytes, part.is_last());
        match memory::place_named(work, (header, message), named, puller) {
            Ok(()) => Ok(()),
            Err(NotPulled::NoBytes) => return PieceOutcome::NoBytes,
            Err(NotPulled::Answer(status)) => Err(status),
        }
    } else if work.core.tables.faults.ack_before_placement() && part.is_first() && part.is_last() {
        served.late = Some(Late { header: *header, bytes: part.bytes.to_vec(), steps: LATE_STEPS });
        Ok(())
    } else if part.payload == Payload::Placed {
        memory::check_again(work, header, message).map(|_| ())
    } else {
        memory::place(work, header, message, part)
    };
    if let Err(status) = placed {
        give_back(served, work);
        return PieceOutcome::refused(status);
    }
    message.done += part.len();
    if !part.is_last() {
        return PieceOutcome::More;
    }
    let message = served.message.take();
    if let Err(status) = memory::notify(work, header) {
        return PieceOutcome::refused(status);
    }
    if let Some(taken) = message.and_then(|m| m.receive) {
        complete(work, taken, from, part);
    }
    PieceOutcome::ACK
}

/// Gives the receive of the unfinished message back, unused.
fn give_back(served: &mut Served, work: &mut ExchangeContext<'_>) {
    if let Some(taken) = served.message.take().and_then(|m| m.receive) {
        work.receives.give_back(work.core, taken);
    }
}
