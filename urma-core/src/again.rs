//! Skips the checks of a WRITE, READ, SEND or atomic that names the same objects as the last one of its kind.
//!
//! Only requests of one local piece. Objects are compared by their numbers, which are never reused; addresses are.
//! A request is remembered only when the driver remembers it, too.

use crate::{
    OneTransfer, TargetJetty, WrFlags,
    access::{ObjectNumber, Span},
    ops::{AtomicDelta, TransferDelta},
    wr::{OneAtomic, OneMessage},
};

/// What the last WRITE or READ named: all that the checks depend on but addresses and lengths.
#[derive(Clone, Copy, Debug)]
pub(crate) struct LastTransfer {
    form: TransferForm,
    target: ObjectNumber,
    remote: ObjectNumber,
    local: ObjectNumber,
    /// Addresses of the whole remote and local segment.
    remote_span: Span,
    local_span: Span,
    /// Unique in its queue; 0 if there is no last request.
    ticket: u64,
}

impl LastTransfer {
    /// No last request: equals none.
    pub(crate) const NONE: Self = Self {
        form: TransferForm(0),
        target: ObjectNumber::NONE,
        remote: ObjectNumber::NONE,
        local: ObjectNumber::NONE,
        remote_span: Span::NOTHING,
        local_span: Span::NOTHING,
        ticket: 0,
    };

    /// The last request is `wr`, which was posted. Inline payload has no address in a segment, so that is not remembered.
    pub(crate) fn of(wr: &OneTransfer<'_>, ticket: u64) -> Self {
        if wr.flags.contains(WrFlags::INLINE) {
            return Self::NONE;
        }
        Self {
            form: TransferForm::of(wr),
            target: number_of(wr.target),
            remote: wr.at.segment.number(),
            local: wr.piece.segment.number(),
            remote_span: wr.at.segment.span(),
            local_span: wr.piece.segment.span(),
            ticket,
        }
    }

    /// Ticket of the last WRITE or READ; 0 if there is none.
    #[inline]
    pub(crate) fn ticket(&self) -> u64 {
        self.ticket
    }

    /// Whether `ticket` is that of the last request and the remote range lies in its segment.
    #[inline(always)]
    pub(crate) fn reaches(&self, ticket: u64, (remote, len): (u64, u32)) -> bool {
        ticket == self.ticket && self.remote_span.holds(remote, u64::from(len))
    }

    /// `Some(is_write)` if `ticket` is that of the last request and both ranges lie in their segments.
    #[inline(always)]
    pub(crate) fn holds(&self, ticket: u64, moved: &TransferDelta) -> Option<bool> {
        let (local, remote) = (self.local_span, self.remote_span);
        let len = u64::from(moved.len);
        let is_it = ticket == self.ticket;
        (is_it && local.holds(moved.local, len) && remote.holds(moved.remote, len))
            .then(|| self.form.is_write())
    }

    /// Whether `wr` names the same objects with the same flags and hint.
    #[inline(always)]
    pub(crate) fn is_of(&self, wr: &OneTransfer<'_>) -> bool {
        self.local == wr.piece.segment.number()
            && self.remote == wr.at.segment.number()
            && self.target == number_of(wr.target)
            && self.form == TransferForm::of(wr)
    }
}

/// Kind, hint and flags (without COMPLETE) of a WRITE or READ in one word, so that one comparison is enough.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct TransferForm(u64);

impl TransferForm {
    #[inline(always)]
    fn of(wr: &OneTransfer<'_>) -> Self {
        let flags = u64::from(unsignalled(wr.flags).bits());
        Self(flags << 9 | u64::from(wr.target_hint) << 1 | u64::from(wr.is_write))
    }

    #[inline(always)]
    fn is_write(self) -> bool {
        self.0 & 1 != 0
    }
}

/// What the last SEND named.
#[derive(Clone, Copy, Debug)]
pub(crate) struct LastMessage {
    flags: WrFlags,
    target_hint: u8,
    target: ObjectNumber,
    local: ObjectNumber,
}

impl LastMessage {
    /// No last message: equals none.
    pub(crate) const NONE: Self = Self {
        flags: WrFlags::empty(),
        target_hint: 0,
        target: ObjectNumber::NONE,
        local: ObjectNumber::NONE,
    };

    /// The last message is `message`, which was posted; inline ones are not remembered.
    pub(crate) fn of(message: &OneMessage<'_>) -> Self {
        if message.flags.contains(WrFlags::INLINE) {
            return Self::NONE;
        }
        Self {
            flags: unsignalled(message.flags),
            target_hint: message.target_hint,
            target: number_of(message.target),
            local: message.piece.segment.number(),
        }
    }

    /// Whether `message` names the same objects with the same flags and hint.
    #[inline(always)]
    pub(crate) fn is_of(&self, message: &OneMessage<'_>) -> bool {
        self.local == message.piece.segment.number()
            && self.target == number_of(message.target)
            && self.flags == unsignalled(message.flags)
            && self.target_hint == message.target_hint
    }
}

/// What the last FETCH_ADD or CAS named.
#[derive(Clone, Copy, Debug)]
pub(crate) struct LastAtomic {
    is_cas: bool,
    flags: WrFlags,
    target_hint: u8,
    len: u32,
    target: ObjectNumber,
    remote: ObjectNumber,
    local: ObjectNumber,
    /// Addresses of the whole remote and local segment.
    remote_span: Span,
    local_span: Span,
    ticket: u64,
}

impl LastAtomic {
    /// No last atomic: equals none.
    pub(crate) const NONE: Self = Self {
        is_cas: false,
        flags: WrFlags::empty(),
        target_hint: 0,
        len: 0,
        target: ObjectNumber::NONE,
        remote: ObjectNumber::NONE,
        local: ObjectNumber::NONE,
        remote_span: Span::NOTHING,
        local_span: Span::NOTHING,
        ticket: 0,
    };

    /// The last atomic is `atomic`, which was posted.
    pub(crate) fn of(atomic: &OneAtomic<'_>, ticket: u64) -> Self {
        Self {
            is_cas: atomic.is_cas,
            flags: unsignalled(atomic.flags),
            target_hint: atomic.target_hint,
            len: atomic.result.len,
            target: number_of(atomic.target),
            remote: atomic.at.segment.number(),
            local: atomic.result.segment.number(),
            remote_span: atomic.at.segment.span(),
            local_span: atomic.result.segment.span(),
            ticket,
        }
    }

    /// Ticket of the last atomic; 0 if there is none.
    #[inline]
    pub(crate) fn ticket(&self) -> u64 {
        self.ticket
    }

    /// Whether `ticket` is that of the last atomic, the size is the same, and both words lie in their segments.
    #[inline(always)]
    pub(crate) fn holds(&self, ticket: u64, moved: &TransferDelta) -> bool {
        let len = u64::from(moved.len);
        ticket == self.ticket
            && moved.len == self.len
            && (moved.local | moved.remote) & len.wrapping_sub(1) == 0
            && self.local_span.holds(moved.local, len)
            && self.remote_span.holds(moved.remote, len)
    }

    /// Whether `atomic` names the same objects and has the same size.
    #[inline(always)]
    pub(crate) fn is_of(&self, atomic: &OneAtomic<'_>) -> bool {
        self.local == atomic.result.segment.number()
            && self.remote == atomic.at.segment.number()
            && self.target == number_of(atomic.target)
            && self.flags == unsignalled(atomic.flags)
            && self.is_cas == atomic.is_cas
            && self.len == atomic.result.len
            && self.target_hint == atomic.target_hint
    }
}

/// The part of an atomic that differs from the last one.
#[inline(always)]
pub(crate) fn atomic_delta(atomic: &OneAtomic<'_>) -> AtomicDelta {
    let OneAtomic { result, at, operand, compare, user_ctx, .. } = *atomic;
    let is_signalled = atomic.flags.contains(WrFlags::COMPLETE);
    let (local, remote, len) = (result.addr, at.addr, result.len);
    let transfer = TransferDelta { local, remote, len, user_ctx, is_signalled };
    AtomicDelta { transfer, operand, compare }
}

/// The part of a message that differs from the last one.
#[inline(always)]
pub(crate) fn message_delta(message: &OneMessage<'_>) -> TransferDelta {
    let is_signalled = message.flags.contains(WrFlags::COMPLETE);
    let (local, len) = (message.piece.addr, message.piece.len);
    TransferDelta { local, remote: 0, len, user_ctx: message.user_ctx, is_signalled }
}

/// The part of a request that differs from the last one.
#[inline(always)]
pub(crate) fn transfer_delta(wr: &OneTransfer<'_>) -> TransferDelta {
    let is_signalled = wr.flags.contains(WrFlags::COMPLETE);
    let (local, remote, len) = (wr.piece.addr, wr.at.addr, wr.piece.len);
    TransferDelta { local, remote, len, user_ctx: wr.user_ctx, is_signalled }
}

#[inline(always)]
fn unsignalled(flags: WrFlags) -> WrFlags {
    flags.difference(WrFlags::COMPLETE)
}

#[inline(always)]
fn number_of(target: Option<&TargetJetty>) -> ObjectNumber {
    target.map_or(ObjectNumber::NONE, TargetJetty::number)
}
