//! Answers at the initiator: ends, data of reads, results of atomics, going back.
//!
//! *Owns*: what each response code means for its request. *Takes*: response pieces. *Gives*: ends.
//! *Must not*: believe a length or an offset of the peer.

use udma_abi::{CqeStatus, Nanos, counters::Counter};
use urma_packet::{RequestOp, ResponseBody, ResponseHeader, ResponseStatus};

use super::Work;
use super::flow::{Request, SEQUENCE_TRIES};
use super::pair::Pair;
use super::peer::Peer;
use super::send::Sender;
use crate::engine::base::Base;
use crate::engine::gather::{self, Segments, Span};

/// What an answer does to its request.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Effect {
    /// More pieces of the answer follow.
    More,
    End(CqeStatus, u32),
    /// The same request goes again after so many ns.
    Wait(u64),
    /// Everything from this number on goes again.
    From(u16),
}

impl Peer {
    pub(super) fn on_response(
        &mut self,
        work: &mut Work<'_>,
        header: &ResponseHeader,
        bytes: &[u8],
    ) {
        let pair = Pair::of_response(header);
        let Some(flow) = self.flows.get_mut(&pair) else {
            return work.base.tables.count(Counter::DropMalformed);
        };
        let found = flow.find(header.tassn);
        let Some(index) = found else {
            // Of a request that was given up here.
            if is_final(header, bytes.len()) {
                flow.on_answered(header.tassn);
                self.under_way = self.under_way.saturating_sub(1);
            }
            return self.relist(pair);
        };
        let Some(sender) = work.senders.get_mut(pair.queue()) else { return };
        let timeout = sender.timeout_ns();
        flow.wait_from(work.now, timeout);
        let held = flow.is_held();
        let Some(request) = flow.get_mut(index) else { return };
        let effect = effect(request, (sender, work.now), work.base, header, bytes);
        let seq = request.seq;
        if effect != Effect::More {
            flow.on_answered(header.tassn);
            self.under_way = self.under_way.saturating_sub(1);
        }
        match effect {
            Effect::More => {}
            Effect::End(status, count) => {
                flow.on_ended(index);
                if status == CqeStatus::RnrRetryExceeded {
                    // The target still waits for this number.
                    flow.go_back(header.tassn, work.now);
                }
                work.senders.end(pair.queue(), seq, status, count);
            }
            Effect::Wait(wait_ns) => {
                let until = work.now.saturating_add(wait_ns);
                flow.go_back(header.tassn, until);
                flow.wait_from(until, timeout);
                self.timer = self.timer.min(until);
            }
            // Later refusals of a round that was given up already.
            Effect::From(_) if held => {}
            Effect::From(expected) => {
                if !flow.go_back(expected, work.now) {
                    flow.on_ended(index);
                    work.senders.end(pair.queue(), seq, CqeStatus::RemOperation, 0);
                }
            }
        }
        self.relist(pair);
    }

    /// A flow may have something to push again.
    fn relist(&mut self, pair: Pair) {
        if let Some(flow) = self.flows.get_mut(&pair)
            && !flow.is_empty()
            && !std::mem::replace(&mut flow.listed, true)
        {
            self.turn.push(pair, flow.priority);
        }
    }
}

/// Whether no further piece of this answer follows.
fn is_final(header: &ResponseHeader, len: usize) -> bool {
    match header.body {
        ResponseBody::ReadData { offset, length } => offset as usize + len >= length as usize,
        ResponseBody::None | ResponseBody::Atomic(_) => true,
    }
}

fn effect(
    request: &mut Request,
    (sender, now): (&mut Sender, Nanos),
    base: &Base,
    header: &ResponseHeader,
    bytes: &[u8],
) -> Effect {
    match header.status {
        ResponseStatus::Ack => on_ack(request, sender, base, header, bytes),
        ResponseStatus::ReceiverNotReady { timer } => {
            base.tables.counts.add(Counter::RnrReceived, 1);
            if !request.may_retry(sender.side.rnr_retry, now) {
                return Effect::End(CqeStatus::RnrRetryExceeded, 0);
            }
            Effect::Wait(ResponseStatus::rnr_timer_ns(timer))
        }
        ResponseStatus::OutOfSequence { expected } => {
            if request.sequence_used >= SEQUENCE_TRIES {
                return Effect::End(CqeStatus::AckTimeout, 0);
            }
            request.sequence_used += 1;
            Effect::From(expected)
        }
        refused => Effect::End(status_of(refused), 0),
    }
}

fn on_ack(
    request: &mut Request,
    sender: &mut Sender,
    base: &Base,
    header: &ResponseHeader,
    bytes: &[u8],
) -> Effect {
    let lie = Effect::End(CqeStatus::RemOperation, 0);
    match (&request.header.op, header.body) {
        (RequestOp::Read, ResponseBody::ReadData { offset, length }) => {
            let Ok(len) = u32::try_from(bytes.len()) else { return lie };
            let fits = length == request.len && offset == request.got && len <= length - offset;
            if !fits || (len == 0 && length != 0) {
                return lie;
            }
            let last = offset + len == length;
            store(request, sender, base, (u64::from(offset), bytes, last));
            request.got += len;
            if last { ended(request) } else { Effect::More }
        }
        (RequestOp::Atomic(_, operands), ResponseBody::Atomic(value)) => {
            if value.size != operands.size {
                return lie;
            }
            let all = value.value.to_le_bytes();
            let len = (operands.size.bytes() as usize).min(all.len());
            store(request, sender, base, (0, &all[..len], true));
            ended(request)
        }
        (RequestOp::Read | RequestOp::Atomic(..), _) => lie,
        (_, ResponseBody::None) => Effect::End(CqeStatus::Success, request.len),
        _ => lie,
    }
}

fn ended(request: &Request) -> Effect {
    match request.failed {
        Some(status) => Effect::End(status, 0),
        None => Effect::End(CqeStatus::Success, request.len),
    }
}

/// Stores data that came into the request's local pieces; an error there ends it with its answer.
fn store(
    request: &mut Request,
    sender: &mut Sender,
    base: &Base,
    (at, bytes, last): (u64, &[u8], bool),
) {
    let mut segments = Segments { cache: &mut sender.cache, table: &base.tables.segments };
    let span = Span { at, len: bytes.len(), last };
    let pieces = request.local.pieces(&request.words);
    if let Err(status) = gather::write_in(pieces, &mut segments, span, bytes) {
        request.failed.get_or_insert(status);
    }
}

fn status_of(refused: ResponseStatus) -> CqeStatus {
    match refused {
        ResponseStatus::Ack => CqeStatus::Success,
        ResponseStatus::ReceiverNotReady { .. } => CqeStatus::RnrRetryExceeded,
        ResponseStatus::OutOfSequence { .. } => CqeStatus::AckTimeout,
        ResponseStatus::Length => CqeStatus::RemRespLen,
        ResponseStatus::Unsupported => CqeStatus::RemUnsupportedReq,
        ResponseStatus::NoResources | ResponseStatus::TargetReset | ResponseStatus::NoTarget => {
            CqeStatus::RemOperation
        }
        ResponseStatus::AccessAbort => CqeStatus::RemAccessAbort,
        ResponseStatus::DataPoison => CqeStatus::RemDataPoison,
    }
}
