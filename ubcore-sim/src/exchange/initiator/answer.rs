//! Answers at the initiator: completions, data of reads, results of atomics, going back.
//!
//! *Owns*: what each response code means for its request. *Takes*: response pieces. *Gives*: effects. *Must not*:
//! trust a length or offset from the peer.

use udma_abi::{CqeStatus, Nanos, counters::Counter};
use urma_packet::{ResponseBody, ResponseHeader, ResponseStatus};

use crate::engine::core::DeviceCore;
use crate::engine::gather::{self, MessageSpan, Segments};
use crate::exchange::initiator::flow::{Request, SEQUENCE_TRIES};
use crate::exchange::initiator::send_queues::Sender;

/// Effect of an answer on its request.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Effect {
    /// More pieces of the answer follow.
    More,
    End(CqeStatus, u32),
    /// The request is sent again after so many ns.
    Wait(u64),
    /// Everything from this number on is sent again.
    From(u16),
}

/// Whether this is the last piece of the answer.
pub(crate) fn is_final(header: &ResponseHeader, len: usize) -> bool {
    match header.body {
        ResponseBody::ReadData { offset, length } => offset as usize + len >= length as usize,
        ResponseBody::None | ResponseBody::Acks { .. } | ResponseBody::Atomic(_) => true,
    }
}

pub(crate) fn effect(
    request: &mut Request,
    (sender, now): (&mut Sender, Nanos),
    core: &DeviceCore,
    header: &ResponseHeader,
    bytes: &[u8],
) -> Effect {
    match header.status {
        ResponseStatus::Ack => on_ack(request, sender, core, header, bytes),
        ResponseStatus::ReceiverNotReady { timer } => {
            core.tables.counts.add(Counter::RnrReceived, 1);
            let wait = ResponseStatus::rnr_timer_ns(timer);
            if !request.may_retry(sender.side.rnr_retry, now, wait) {
                return Effect::End(CqeStatus::RnrRetryExceeded, 0);
            }
            if core.tables.faults.not_ready_forgotten() {
                return Effect::Wait(Nanos::MAX / 2);
            }
            Effect::Wait(wait)
        }
        ResponseStatus::OutOfSequence { expected } => {
            if request.sequence_used >= SEQUENCE_TRIES {
                return Effect::End(CqeStatus::AckTimeout, 0);
            }
            request.sequence_used += 1;
            Effect::From(expected)
        }
        ResponseStatus::Length => Effect::End(CqeStatus::RemRespLen, 0),
        ResponseStatus::Unsupported => Effect::End(CqeStatus::RemUnsupportedReq, 0),
        ResponseStatus::NoResources | ResponseStatus::TargetReset | ResponseStatus::NoTarget => {
            Effect::End(CqeStatus::RemOperation, 0)
        }
        ResponseStatus::AccessAbort => Effect::End(CqeStatus::RemAccessAbort, 0),
        ResponseStatus::DataPoison => Effect::End(CqeStatus::RemDataPoison, 0),
    }
}

fn on_ack(
    request: &mut Request,
    sender: &mut Sender,
    core: &DeviceCore,
    header: &ResponseHeader,
    bytes: &[u8],
) -> Effect {
    let lie = Effect::End(CqeStatus::RemOperation, 0);
    if header.body.opcode() != request.header.op.answered_by() {
        return lie;
    }
    match header.body {
        ResponseBody::None | ResponseBody::Acks { .. } => {
            Effect::End(CqeStatus::Success, request.len)
        }
        ResponseBody::ReadData { offset, length } => {
            let Ok(len) = u32::try_from(bytes.len()) else { return lie };
            let fits = length == request.len && offset == request.got && len <= length - offset;
            if !fits || (len == 0 && length != 0) {
                return lie;
            }
            let last = offset + len == length;
            store(request, sender, core, (u64::from(offset), bytes, last));
            request.got += len;
            if last { ended(request) } else { Effect::More }
        }
        ResponseBody::Atomic(value) => {
            // Its length is that of its operands.
            if value.size.bytes() != request.len {
                return lie;
            }
            let all = value.value.to_le_bytes();
            let len = (value.size.bytes() as usize).min(all.len());
            store(request, sender, core, (0, &all[..len], true));
            ended(request)
        }
    }
}

fn ended(request: &Request) -> Effect {
    match request.failed {
        Some(status) => Effect::End(status, 0),
        None => Effect::End(CqeStatus::Success, request.len),
    }
}

/// Stores received data in the request's local pieces; an error there is the request's status when its answer is
/// complete.
fn store(
    request: &mut Request,
    sender: &mut Sender,
    core: &DeviceCore,
    (at, bytes, last): (u64, &[u8], bool),
) {
    let mut segments = Segments { cache: &mut sender.cache, table: &core.tables.segments };
    let span = MessageSpan { at, len: bytes.len(), last };
    let pieces = request.local.pieces(&request.words);
    if let Err(status) = gather::write_in(pieces, &mut segments, span, bytes) {
        request.failed.get_or_insert(status);
    }
}
