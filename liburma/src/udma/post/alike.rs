//! Requests of the same form as the last one, posted from their addresses alone.
//!
//! *Owns*: the definition of a form: opcode, flags and names, for which urma-core's ticket stands. *Takes*: requests
//! of one piece on either side. *Gives*: the ticket, and what differs. *Must not*: follow a name; use a form from
//! before an object ended.

use urma_core::{
    WrFlags,
    ops::{AtomicDelta, TransferDelta},
};
use urma_mem::ends::SeenEnds;

use super::{
    Sends,
    list::{Pieces, SendRequest},
};
use crate::{abi::*, slab::Look, udma::kind::LastForm};

/// Bit in the head of a request: a completion is wanted.
const SIGNALLED: u64 = (WrFlags::COMPLETE.bits() as u64) << 32;

/// Posts a write or read of the form of the last one. `None`: its form differs, and nothing happened.
#[inline(never)]
pub(super) fn post((look, own): (Look<'_>, &mut impl Sends), from: SendRequest<'_>) -> Option<()> {
    let head = from.head();
    let (ticket, moved) = transfer(&own.last().form, look.seen_ends(), (from, head | SIGNALLED))?;
    let moved = TransferDelta { is_signalled: head & SIGNALLED != 0, ..moved };
    own.half().post_repeat(ticket, &moved).then_some(())
}

/// Executes a write or read of the form of the last one within this call. Returns whether it did.
#[inline(always)]
pub(super) fn carry((seen, own): (SeenEnds, &mut impl Sends), from: SendRequest<'_>) -> bool {
    let head = from.head();
    match transfer(&own.last().form, seen, (from, head)) {
        Some((ticket, moved)) => own.half().execute_repeat(ticket, &moved),
        None => carry_silent((seen, own), from),
    }
}

/// Executes it if it is unsignalled. Reached by a tail call, so that a signalled request saves no registers for it.
#[inline(never)]
fn carry_silent((seen, own): (SeenEnds, &mut impl Sends), from: SendRequest<'_>) -> bool {
    let head = from.head();
    if head & SIGNALLED != 0 {
        return false;
    }
    let alike = transfer(&own.last().form, seen, (from, head | SIGNALLED));
    alike.is_some_and(|(ticket, moved)| {
        own.half().execute_repeat(ticket, &TransferDelta { is_signalled: false, ..moved })
    })
}

/// Posts a signalled atomic of the form of the last one. Returns whether it did.
#[inline(always)]
pub(super) fn post_atomic((seen, own): (SeenEnds, &mut impl Sends), from: SendRequest<'_>) -> bool {
    let alike = atomic(&own.last().atomic, seen, from);
    alike.is_some_and(|(ticket, moved)| own.half().post_atomic_repeat(ticket, &moved))
}

/// The ticket of the last request, and what differs, for a signalled one that has its form, judged by `head`.
#[inline(always)]
fn transfer(
    last: &LastForm,
    seen: SeenEnds,
    (from, head): (SendRequest<'_>, u64),
) -> Option<(u64, TransferDelta)> {
    if head != last.head || last.seen != seen {
        return None;
    }
    // The form is that of a write or read.
    let rw = from.transfer();
    let (src, dst) = (rw.src().single()?, rw.dst().single()?);
    let is_same = src.segment().addr() == last.src
        && dst.segment().addr() == last.dst
        && from.target().addr() == last.target
        && rw.hint() == last.hint;
    if !is_same || from.next().is_some() {
        return None;
    }
    let (local, remote) = if last.is_write { (src, dst) } else { (dst, src) };
    let moved = TransferDelta {
        local: local.addr(),
        remote: remote.addr(),
        len: local.len(),
        user_ctx: from.user_ctx(),
        is_signalled: true,
    };
    Some((last.ticket, moved))
}

/// The ticket of the last atomic, and what differs, for a signalled one that has its form.
#[inline(always)]
fn atomic(last: &LastForm, seen: SeenEnds, from: SendRequest<'_>) -> Option<(u64, AtomicDelta)> {
    if from.head() != last.head || last.seen != seen {
        return None;
    }
    let (here, there, compare, operand) = operands(from);
    let (local, remote) = (here.single()?, there.single()?);
    let is_same = local.segment().addr() == last.src
        && remote.segment().addr() == last.dst
        && from.target().addr() == last.target;
    if !is_same || from.next().is_some() {
        return None;
    }
    let transfer = TransferDelta {
        local: local.addr(),
        remote: remote.addr(),
        len: local.len(),
        user_ctx: from.user_ctx(),
        is_signalled: true,
    };
    Some((last.ticket, AtomicDelta { transfer, operand, compare }))
}

/// Result, target, compare value and operand of a CAS or FETCH_ADD.
#[inline(always)]
fn operands<'a>(from: SendRequest<'a>) -> (Pieces<'a>, Pieces<'a>, u64, u64) {
    if from.opcode() == URMA_OPC_CAS {
        return from.compare();
    }
    let (here, there, operand) = from.fetch();
    (here, there, 0, operand)
}

/// The form of the request that was just posted, if it has one piece on either side.
pub(super) fn form_of(
    own: &mut impl Sends,
    from: SendRequest<'_>,
    seen: SeenEnds,
) -> Option<LastForm> {
    let rw = from.transfer();
    let (src, dst) = (rw.src().single()?, rw.dst().single()?);
    Some(LastForm {
        ticket: own.half().transfer_ticket(),
        seen,
        head: from.head() | SIGNALLED,
        is_write: from.opcode() == URMA_OPC_WRITE,
        hint: rw.hint(),
        target: from.target().addr(),
        src: src.segment().addr(),
        dst: dst.segment().addr(),
    })
}

/// Remembers the form of the request that was just posted, if it is a CAS or FETCH_ADD.
pub(super) fn note_atomic(own: &mut impl Sends, from: SendRequest<'_>, seen: SeenEnds) {
    if matches!(from.opcode(), URMA_OPC_CAS | URMA_OPC_FADD) {
        own.last().atomic =
            atomic_form(own.half().atomic_ticket(), from, seen).unwrap_or(LastForm::NONE);
    }
}

/// The form of a CAS or FETCH_ADD that was posted under `ticket`.
fn atomic_form(ticket: u64, from: SendRequest<'_>, seen: SeenEnds) -> Option<LastForm> {
    let (here, there, ..) = operands(from);
    let (here, there) = (here.single()?, there.single()?);
    Some(LastForm {
        ticket,
        seen,
        head: from.head() | SIGNALLED,
        target: from.target().addr(),
        src: here.segment().addr(),
        dst: there.segment().addr(),
        ..LastForm::NONE
    })
}
