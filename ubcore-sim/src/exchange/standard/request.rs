//! Translates entries to requests of the standard opcodes, and outcomes to statuses.
//!
//! *Owns*: which field and which status corresponds to which. *Must not*: read payload.

use udma_abi::{Cqe, CqeStatus, FetchKind, OpKind, Sqe};
use urma_rc::{RcAtomic, RcCompletion, RcOperation, RcRemote, RcSource, RcStatus};

use super::key::{RemoteKeys, key_of};
use crate::context::segment::SegmentTable;
use crate::engine::direct::segment_token;

/// The operation of an entry with `len` bytes of payload.
///
/// # Errors
/// `UnsupportedOpcode`: the standard has no such operation, atomics of 4 bytes among them, or the
/// immediate has more than 32 bits.
pub(super) fn operation(sqe: &Sqe, len: u32) -> Result<RcOperation, CqeStatus> {
    let unsupported = CqeStatus::UnsupportedOpcode;
    let imm = || u32::try_from(sqe.imm).map_err(|_| unsupported);
    let key = || key_of(sqe.seg_token_id, segment_token(sqe));
    let remote = || RcRemote { va: sqe.remote_va, rkey: key() };
    let atomic = |atomic| {
        if len == 8 { Ok(RcOperation::Atomic(remote(), atomic)) } else { Err(unsupported) }
    };
    Ok(match sqe.opcode.kind() {
        OpKind::Send => RcOperation::Send,
        OpKind::SendImm => RcOperation::SendImm(imm()?),
        OpKind::SendInvalidate => {
            RcOperation::SendInvalidate(key_of(sqe.seg_token_id, Some(sqe.seg_token_value)))
        }
        OpKind::Write => RcOperation::Write(remote()),
        OpKind::WriteImm => RcOperation::WriteImm(remote(), imm()?),
        OpKind::Read => RcOperation::Read(remote()),
        OpKind::Atomic(FetchKind::Cas) => {
            atomic(RcAtomic::CompareSwap { compare: sqe.compare, swap: sqe.operand })?
        }
        OpKind::Atomic(FetchKind::FetchAdd) => atomic(RcAtomic::FetchAdd { add: sqe.operand })?,
        OpKind::Atomic(
            FetchKind::Swap
            | FetchKind::FetchSub
            | FetchKind::FetchAnd
            | FetchKind::FetchOr
            | FetchKind::FetchXor,
        )
        | OpKind::WriteNotify(_)
        | OpKind::FlushDma
        | OpKind::Nop => return Err(unsupported),
    })
}

/// Status of a completion.
pub(super) const fn status(status: RcStatus) -> CqeStatus {
    match status {
        RcStatus::Success => CqeStatus::Success,
        RcStatus::LocalLength => CqeStatus::LocLen,
        RcStatus::LocalProtection => CqeStatus::LocAccess,
        RcStatus::RemoteInvalidRequest => CqeStatus::RemUnsupportedReq,
        RcStatus::RemoteAccess => CqeStatus::RemAccessAbort,
        RcStatus::RemoteOperation => CqeStatus::RemOperation,
        RcStatus::RetryExceeded => CqeStatus::AckTimeout,
        RcStatus::RnrRetryExceeded => CqeStatus::RnrRetryExceeded,
        RcStatus::Flushed => CqeStatus::WrFlushErr,
    }
}

/// The receive completion for a message.
pub(super) fn received(done: &RcCompletion, table: &SegmentTable) -> Cqe {
    let (opcode, imm) = match (done.source, done.invalidated, done.imm) {
        (RcSource::ReceiveWrite, _, imm) => (3, imm.unwrap_or(0).into()),
        (_, Some(key), _) => (2, invalidated(key, table)),
        (_, None, Some(imm)) => (1, imm.into()),
        (_, None, None) => (0, 0),
    };
    Cqe { status: status(done.status), opcode, imm, byte_cnt: done.len, ..Cqe::default() }
}

/// Token id and value of the segment that a message invalidated by its key.
fn invalidated(key: u32, table: &SegmentTable) -> u64 {
    let segment = RemoteKeys::default().find(table, key).and_then(|id| table.find(id));
    let (token_id, token) = match &segment {
        Some(segment) => (segment.token_id, segment.token.unwrap_or(0)),
        None => (key, 0),
    };
    u64::from(token_id) | u64::from(token) << 32
}
