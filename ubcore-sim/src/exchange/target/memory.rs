//! Reads, writes and atomics on this node's segments for a peer.
//!
//! *Owns*: the rights that each opcode needs. *Takes*: headers, pieces. *Gives*: placed bytes, data for answers.
//! *Must not*: keep a segment from one piece to the next: each looks it up again.

use udma_abi::counters::Counter;
use udma_abi::{CqeStatus, NotifyKind, OpKind, Opcode, cmd::Access};
use urma_mem::{CopyOrder, HeldMemory};
use urma_packet::{
    AtomicOp, AtomicOperands, AtomicValue, OperandSize, RequestHeader, RequestOp, ResponseBody,
    ResponseHeader, ResponseStatus, TokenId,
    packetizer::{Packetizer, Sideband},
};

use crate::engine::direct::notify_at;
use crate::engine::direct::operation;
use crate::engine::names::NamedBytes;
use crate::engine::pull::{NamedPlace, PullError, Puller};
use crate::engine::remote::{Want, check_absent, check_own};
use crate::exchange::ExchangeContext;
use crate::exchange::target::RequestFragment;
use crate::exchange::target::guesses::Judged;
use crate::exchange::target::serve::{PartialMessage, Reply};

/// Creates the header of an answer.
pub(crate) fn response(header: &RequestHeader, answer: Reply) -> ResponseHeader {
    match answer {
        Reply::Status(status) => ResponseHeader::ack(header, status),
        Reply::Value(value) => ResponseHeader {
            body: ResponseBody::Atomic(value),
            ..ResponseHeader::ack(header, ResponseStatus::Ack)
        },
    }
}

/// Returns memory, offset and life of a segment of this node that a request may access. Its program still has it
/// mapped.
fn reach(
    work: &mut ExchangeContext<'_>,
    want: &Want,
) -> Result<(HeldMemory, usize, u64), ResponseStatus> {
    let (faults, now) = (work.core.tables.faults, work.now);
    let segments = work.segments();
    let denied = CqeStatus::RemAccessAbort;
    let segment = segments.cache.find(segments.table, want.token_id);
    let found = segment.ok_or_else(|| check_absent(faults, want)).and_then(|segment| {
        let offset = check_own(segment, faults, want)?;
        if want.life != 0 && want.life != segment.life {
            return Err(denied);
        }
        // No longer than the memory that contains it.
        let len = usize::try_from(want.len).map_err(|_| denied)?;
        if !segment.memory.is_there((offset, len), now) {
            return Err(denied);
        }
        Ok((segment.memory.clone(), offset, segment.life))
    });
    found.map_err(|status| {
        if status == CqeStatus::RemDataPoison {
            return ResponseStatus::DataPoison;
        }
        work.core.tables.count(Counter::AccessDenied);
        ResponseStatus::AccessAbort
    })
}

pub(crate) fn token_id(tid: TokenId) -> u32 {
    tid.value() << 8
}

fn want(header: &RequestHeader, start: u64, right: Access, life: u64) -> Want {
    Want {
        token_id: token_id(header.access.token_id),
        token: header.token.map(|token| token.0),
        va: start,
        len: u64::from(header.access.length),
        right,
        life,
    }
}

/// The access that a request wants to its second address, and the operation on the 8 bytes there.
fn notify_want(header: &RequestHeader) -> Option<(Want, NotifyKind, u64)> {
    let (notify, kind) = match &header.op {
        RequestOp::WriteNotify(notify) => (notify, NotifyKind::Store),
        RequestOp::WriteAtomicAdd(notify) => (notify, NotifyKind::Add),
        RequestOp::Send
        | RequestOp::SendImm(_)
        | RequestOp::SendInvalidate(_)
        | RequestOp::Write
        | RequestOp::WriteImm(_)
        | RequestOp::Read
        | RequestOp::Atomic(..)
        | RequestOp::FlushDma => return None,
    };
    let want = Want {
        token_id: token_id(notify.token_id),
        token: Some(notify.token.0),
        va: notify.address,
        len: 8,
        right: kind.right(),
        life: 0,
    };
    Some((want, kind, notify.data))
}

/// Makes all checks for the whole write; returns the life of its segment.
pub(crate) fn check_write(
    work: &mut ExchangeContext<'_>,
    header: &RequestHeader,
    start: u64,
) -> Result<u64, ResponseStatus> {
    let want = want(header, start, Access::WRITE, 0);
    let (_, _, life) = reach(work, &want)?;
    if let Some((want, ..)) = notify_want(header) {
        let (memory, offset, _) = reach(work, &want)?;
        if memory.addr(offset) % 8 != 0 {
            return Err(ResponseStatus::Unsupported);
        }
    }
    Ok(life)
}

/// Checks that the target of an unfinished message is unchanged.
pub(crate) fn check_again(
    work: &mut ExchangeContext<'_>,
    header: &RequestHeader,
    message: &PartialMessage,
) -> Result<(HeldMemory, usize), ResponseStatus> {
    let want = want(header, message.start, Access::WRITE, message.life);
    reach(work, &want).map(|(memory, offset, _)| (memory, offset))
}

/// Stores a piece of a write; the end of the message is stored after everything before it.
pub(crate) fn place(
    work: &mut ExchangeContext<'_>,
    header: &RequestHeader,
    message: &PartialMessage,
    part: &RequestFragment<'_>,
) -> Result<(), ResponseStatus> {
    let (memory, offset) = check_again(work, header, message)?;
    let at = offset + message.done as usize;
    let stored = if part.is_last() {
        memory.write_ordered(at, part.bytes)
    } else {
        memory.write(at, part.bytes)
    };
    stored.map_err(|_| ResponseStatus::AccessAbort)
}

/// Stores a piece of a write whose bytes the peer names; the end of the message is stored after everything before it.
///
/// # Errors
/// The answer to the request, or [`NotPulled::NoBytes`]: the peer has to send the bytes.
pub(crate) fn place_named(
    work: &mut ExchangeContext<'_>,
    (header, message): (&RequestHeader, &PartialMessage),
    (bytes, is_last): (&NamedBytes, bool),
    puller: Option<&mut Puller>,
) -> Result<(), NotPulled> {
    let (memory, offset) = check_again(work, header, message).map_err(NotPulled::Answer)?;
    let (at, len) = (offset + message.done as usize, bytes.len as usize);
    let order = if is_last { CopyOrder::EndLast } else { CopyOrder::Any };
    let pulled = puller.ok_or(PullError::Unreachable).and_then(|puller| {
        puller.pull(bytes, |place| match place {
            NamedPlace::Arena(from, from_offset) => memory
                .copy_in(at, (from, from_offset), (len, order))
                .map_err(|_| PullError::Local(CqeStatus::RemAccessAbort)),
            NamedPlace::Process(process, addr) => {
                let pulled = memory.pull(at, (process, addr), (len, order));
                pulled.map_err(|_| PullError::Unreachable)
            }
        })
    });
    pulled.map_err(|error| match error {
        PullError::Unreachable => NotPulled::NoBytes,
        PullError::Local(_) => NotPulled::Answer(ResponseStatus::AccessAbort),
    })
}

/// Why named bytes of a write were not placed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum NotPulled {
    /// They are not where the peer said, or out of reach.
    NoBytes,
    /// The write ends with this answer.
    Answer(ResponseStatus),
}

/// Stores the 8 bytes after the payload, if the request has any.
pub(crate) fn notify(
    work: &mut ExchangeContext<'_>,
    header: &RequestHeader,
) -> Result<(), ResponseStatus> {
    let Some((want, kind, data)) = notify_want(header) else { return Ok(()) };
    let (memory, offset, _) = reach(work, &want)?;
    let (memory, offset) = memory.window(offset, 8);
    notify_at(memory, offset, kind, data).ok_or(ResponseStatus::Unsupported)
}

/// Executes an atomic on the target's memory.
pub(crate) fn atomic(
    work: &mut ExchangeContext<'_>,
    header: &RequestHeader,
    op: AtomicOp,
    operands: &AtomicOperands,
) -> Result<AtomicValue, ResponseStatus> {
    let want = want(header, header.access.address, Access::ATOMIC, 0);
    let (memory, offset, _) = reach(work, &want)?;
    let value = apply(&memory, offset, op, operands).ok_or(ResponseStatus::Unsupported)?;
    let value = if work.core.tables.faults.wrong_value_answered() { !value } else { value };
    Ok(AtomicValue { size: operands.size, value: u128::from(value) })
}

/// `None` for what this device does not do, and for addresses that are not aligned to the size.
fn apply(
    memory: &HeldMemory,
    offset: usize,
    op: AtomicOp,
    operands: &AtomicOperands,
) -> Option<u64> {
    // An atomic has the same code in entries as on the wire.
    let Some(OpKind::Atomic(kind)) = Opcode::from_code(op.code()).map(Opcode::kind) else {
        return None;
    };
    match operands.size {
        OperandSize::B4 => {
            let operand = u32::try_from(operands.operand).ok()?;
            let op = operation(kind, operand, u32::try_from(operands.compare).ok()?);
            memory.atomic_u32(offset, op).ok().map(u64::from)
        }
        OperandSize::B8 => {
            let operand = u64::try_from(operands.operand).ok()?;
            let op = operation(kind, operand, u64::try_from(operands.compare).ok()?);
            memory.atomic_u64(offset, op).ok()
        }
        OperandSize::B16 => None,
    }
}

/// A read whose data are being sent.
#[derive(Debug)]
pub(crate) struct ReadJob {
    header: RequestHeader,
    life: u64,
    cut: Packetizer,
}

/// Checks a read as a whole.
pub(crate) fn read(
    work: &mut ExchangeContext<'_>,
    header: &RequestHeader,
) -> Result<ReadJob, ResponseStatus> {
    let want = want(header, header.access.address, Access::READ, 0);
    let (_, _, life) = reach(work, &want)?;
    Ok(ReadJob { header: *header, life, cut: Packetizer::default() })
}

impl ReadJob {
    /// Returns the next piece of at most `size` bytes, header and control data; its bytes are at the front of
    /// `work.bytes`. If the segment is gone, the read ends with an error.
    pub(crate) fn next_piece(
        &self,
        work: &mut ExchangeContext<'_>,
        size: usize,
    ) -> (ResponseHeader, Sideband) {
        let length = self.header.access.length;
        let packet = self.cut.next_packet((self.header.tassn.into(), length), size);
        let (at, len) = (self.cut.done(), packet.len as usize);
        let want = want(&self.header, self.header.access.address, Access::READ, self.life);
        let read = reach(work, &want).ok().and_then(|(memory, offset, _)| {
            if work.bytes.len() < len {
                work.bytes.resize(len, 0);
            }
            memory.read(offset + at as usize, &mut work.bytes[..len]).ok()
        });
        if read.is_none() {
            let ends = Sideband { len: 0, last: true, ..packet };
            return (ResponseHeader::ack(&self.header, ResponseStatus::AccessAbort), ends);
        }
        let body = ResponseBody::ReadData { offset: at, length };
        let ack = ResponseHeader::ack(&self.header, ResponseStatus::Ack);
        (ResponseHeader { body, ..ack }, packet)
    }

    /// Notes that a piece was pushed. Returns whether it was the last one.
    pub(crate) const fn on_pushed(&mut self, packet: &Sideband) -> bool {
        self.cut.take(packet);
        packet.last
    }
}

/// Outcome of a piece for its request.
#[derive(Debug)]
pub(crate) enum PieceOutcome {
    /// The request continues with the next piece.
    More,
    /// Done, with this answer.
    Done(Reply),
    /// Done; the data follow.
    Read(ReadJob),
    /// No receive is posted; the request will be sent again.
    NotReady(ResponseStatus),
    /// The bytes are not where the piece says; the request will be sent again, with its bytes.
    NoBytes,
}

impl PieceOutcome {
    pub(crate) const fn refused(status: ResponseStatus) -> Self {
        if matches!(status, ResponseStatus::ReceiverNotReady { .. }) {
            Self::NotReady(status)
        } else {
            Self::Done(Reply::Status(status))
        }
    }

    /// Whether the request made progress.
    pub(crate) fn is_progress(&self) -> bool {
        matches!(self.judged(), Judged::Right) || matches!(self, Self::More | Self::Read(_))
    }

    /// What the outcome says about the tokens that were shown.
    pub(crate) fn judged(&self) -> Judged {
        match self {
            Self::More | Self::Read(_) | Self::NotReady(_) | Self::NoBytes => Judged::Begun,
            Self::Done(Reply::Value(_) | Reply::Status(ResponseStatus::Ack)) => Judged::Right,
            Self::Done(Reply::Status(ResponseStatus::AccessAbort)) => Judged::Wrong,
            Self::Done(Reply::Status(_)) => Judged::Neither,
        }
    }

    pub(crate) const ACK: Self = Self::refused(ResponseStatus::Ack);
}
