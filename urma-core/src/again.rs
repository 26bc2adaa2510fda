//! A WRITE or READ like the newest one, a SEND like the newest SEND, an atomic like the newest atomic: what was
//! checked for that one need not be checked again.
//!
//! *Owns*: what the newest one named. *Takes*: requests of one local piece. *Gives*: whether a request names the
//! same. *Must not*: remember a request that the driver does not; name an object by its address.

use crate::{
    OneTransfer, TargetJetty, WrFlags,
    check::Span,
    number::ObjectNumber,
    ops::{MovedAtomic, MovedTransfer},
    wr::{OneAtomic, OneMessage},
};

/// All that rules and driver looked at, but for what differs from request to request: addresses, length, context,
/// and whether it is signalled.
#[derive(Clone, Copy, Debug)]
pub(crate) struct LastTransfer {
    form: TransferForm,
    target: ObjectNumber,
    remote: ObjectNumber,
    local: ObjectNumber,
    /// Where both pieces may lie.
    remote_span: Span,
    local_span: Span,
    /// Differs from that of each other one of its queue; 0: no request names what it does.
    ticket: u64,
}

impl LastTransfer {
    /// No request names what it does.
    pub(crate) const NONE: Self = Self {
        form: TransferForm(0),
        target: ObjectNumber::NONE,
        remote: ObjectNumber::NONE,
        local: ObjectNumber::NONE,
        remote_span: Span::NOTHING,
        local_span: Span::NOTHING,
        ticket: 0,
    };

    /// Of a request that was posted. A payload that goes in the entry is not looked at by its address.
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

    /// By which it is known again; 0: no request names what it does.
    #[inline]
    pub(crate) fn ticket(&self) -> u64 {
        self.ticket
    }

    /// Whether it is the one with this ticket, and the remote piece of a request like it lies where it may.
    #[inline(always)]
    pub(crate) fn reaches(&self, ticket: u64, (remote, len): (u64, u32)) -> bool {
        ticket == self.ticket && self.remote_span.holds(remote, u64::from(len))
    }

    /// Whether it is the one with this ticket, and both pieces of a request like it lie where they may; its kind.
    #[inline(always)]
    pub(crate) fn holds(&self, ticket: u64, moved: &MovedTransfer) -> Option<bool> {
        let (local, remote) = (self.local_span, self.remote_span);
        let len = u64::from(moved.len);
        let is_it = ticket == self.ticket;
        (is_it && local.holds(moved.local, len) && remote.holds(moved.remote, len))
            .then(|| self.form.is_write())
    }

    /// Whether the request names the same.
    #[inline(always)]
    pub(crate) fn is_of(&self, wr: &OneTransfer<'_>) -> bool {
        self.local == wr.piece.segment.number()
            && self.remote == wr.at.segment.number()
            && self.target == number_of(wr.target)
            && self.form == TransferForm::of(wr)
    }
}

/// Kind, hint and flags of a WRITE or READ, but for whether it is signalled: in one word, small where none is rare, so
/// that a constant one is compared at once.
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

/// What a SEND named, as [`LastTransfer`].
#[derive(Clone, Copy, Debug)]
pub(crate) struct LastMessage {
    flags: WrFlags,
    target_hint: u8,
    target: ObjectNumber,
    local: ObjectNumber,
}

impl LastMessage {
    /// No message names what it does.
    pub(crate) const NONE: Self = Self {
        flags: WrFlags::empty(),
        target_hint: 0,
        target: ObjectNumber::NONE,
        local: ObjectNumber::NONE,
    };

    /// Of a message that was posted. A payload that goes in the entry is not looked at by its address.
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

    /// Whether the message names the same.
    #[inline(always)]
    pub(crate) fn is_of(&self, message: &OneMessage<'_>) -> bool {
        self.local == message.piece.segment.number()
            && self.target == number_of(message.target)
            && self.flags == unsignalled(message.flags)
            && self.target_hint == message.target_hint
    }
}

/// What an atomic named, as [`LastTransfer`].
#[derive(Clone, Copy, Debug)]
pub(crate) struct LastAtomic {
    is_cas: bool,
    flags: WrFlags,
    target_hint: u8,
    len: u32,
    target: ObjectNumber,
    remote: ObjectNumber,
    local: ObjectNumber,
    /// As [`LastTransfer`] has them.
    remote_span: Span,
    local_span: Span,
    ticket: u64,
}

impl LastAtomic {
    /// No atomic names what it does.
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

    /// Of an atomic that was posted.
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

    /// By which it is known again; 0: no atomic names what it does.
    #[inline]
    pub(crate) fn ticket(&self) -> u64 {
        self.ticket
    }

    /// Whether it is the one with this ticket, has as many bytes, and both words of an atomic like it lie where they may.
    #[inline(always)]
    pub(crate) fn holds(&self, ticket: u64, moved: &MovedTransfer) -> bool {
        let len = u64::from(moved.len);
        ticket == self.ticket
            && moved.len == self.len
            && (moved.local | moved.remote) & len.wrapping_sub(1) == 0
            && self.local_span.holds(moved.local, len)
            && self.remote_span.holds(moved.remote, len)
    }

    /// Whether the atomic names the same, and has as many bytes.
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

/// What of an atomic the one before it does not say.
#[inline(always)]
pub(crate) fn moved_atomic(atomic: &OneAtomic<'_>) -> MovedAtomic {
    let OneAtomic { result, at, operand, compare, user_ctx, .. } = *atomic;
    let is_signalled = atomic.flags.contains(WrFlags::COMPLETE);
    let (local, remote, len) = (result.addr, at.addr, result.len);
    let transfer = MovedTransfer { local, remote, len, user_ctx, is_signalled };
    MovedAtomic { transfer, operand, compare }
}

/// What of a message the one before it does not say.
#[inline(always)]
pub(crate) fn moved_message(message: &OneMessage<'_>) -> MovedTransfer {
    let is_signalled = message.flags.contains(WrFlags::COMPLETE);
    let (local, len) = (message.piece.addr, message.piece.len);
    MovedTransfer { local, remote: 0, len, user_ctx: message.user_ctx, is_signalled }
}

/// What of a request the one before it does not say.
#[inline(always)]
pub(crate) fn moved(wr: &OneTransfer<'_>) -> MovedTransfer {
    let is_signalled = wr.flags.contains(WrFlags::COMPLETE);
    let (local, remote, len) = (wr.piece.addr, wr.at.addr, wr.piece.len);
    MovedTransfer { local, remote, len, user_ctx: wr.user_ctx, is_signalled }
}

#[inline(always)]
fn unsignalled(flags: WrFlags) -> WrFlags {
    flags.difference(WrFlags::COMPLETE)
}

#[inline(always)]
fn number_of(target: Option<&TargetJetty>) -> ObjectNumber {
    target.map_or(ObjectNumber::NONE, TargetJetty::number)
}
