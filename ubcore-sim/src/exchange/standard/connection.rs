//! The connection of one jetty: its requests and receives at an endpoint of `urma-rc`.
//!
//! Translates entries to requests of the standard opcodes, outcomes to statuses, without reading payload. Must not
//! complete a request or receive twice, or take a receive that no packet wants.

use std::{cell::RefCell, collections::VecDeque};

use udma_abi::{
    Cqe, CqeStatus, FetchKind, Nanos, OpKind, RawEid, Sqe, counters::Counter, sqe::SqeFlags,
};
use urma_packet::{
    IcrcFlow, Psn, Tpn,
    roce::{RocePacket, rc},
};
use urma_rc::{
    RcAtomic, RcCfg, RcCompletion, RcEndpoint, RcOperation, RcPostError, RcReceive, RcRemote,
    RcRequest, RcSource, RcStatus,
};

use super::{
    Numbered,
    memory::{Caches, NodeMemory, Outstanding, RemoteKeys, key_of, receive_place, request_place},
};
use crate::{
    context::{segment::SegmentTable, tables::Tables},
    endpoint::flow,
    engine::{
        direct::segment_token,
        gather::{self, Local, MessageSpan, Segments},
        mail::Handed,
        send::Visit,
    },
    exchange::{ExchangeContext, target::receive::TakenReceive},
};

/// Retransmissions within the error timeout of the jetty.
const RETRIES: u8 = 7;
/// Shortest time without an answer before a retransmission, in nanoseconds.
const ACK_MIN_NS: Nanos = 64_000_000;
/// RNR timer code of a jetty whose receives have none.
const RNR_TIMER: u8 = 12;

/// The peer that a jetty is bound to.
#[derive(Clone, Copy, Debug)]
pub(crate) struct BoundPair {
    /// Path by which its requests name the peer.
    pub(crate) tpn: u32,
    pub(crate) peer: RawEid,
    /// Number of the peer's jetty.
    pub(crate) remote_id: u32,
    /// PSNs of the first packets sent and expected; `None`: the numbers of the two jetties.
    pub(crate) psns: Option<[u32; 2]>,
}

/// Connection of a jetty.
#[derive(Debug)]
pub(super) struct Connection {
    id: u32,
    pair: BoundPair,
    flow: IcrcFlow,
    endpoint: RcEndpoint,
    requests: Numbered<Outstanding>,
    receives: Numbered<TakenReceive>,
    /// Requests that wait for room in the endpoint.
    waiting: VecDeque<RcRequest>,
    /// The end of the connection was passed on, or came from the jetty itself.
    is_over: bool,
    /// Retransmitted packets that are counted already.
    repeated: u64,
}

impl Connection {
    /// Opens a connection. `None`: the numbers are not possible for queue pairs.
    pub(super) fn open(work: &ExchangeContext<'_>, id: u32, pair: BoundPair) -> Option<Self> {
        let cfg = &work.core.tables.cfg;
        let psns = pair.psns.unwrap_or([id, pair.remote_id]).map(Psn::new);
        let mut rc = RcCfg::new([Tpn::new(id)?, Tpn::new(pair.remote_id)?], psns);
        rc.path_mtu = path_mtu(&work.core.tables, pair.peer);
        rc.retry_count = RETRIES;
        if let Some(sender) = work.senders.get(id) {
            rc.rnr_retry = sender.side.rnr_retry;
            rc.ack_timeout = (sender.timeout_ns() / (u64::from(RETRIES) + 1)).max(ACK_MIN_NS);
        }
        rc.min_rnr_timer = work.receives.min_rnr_timer(id).unwrap_or(RNR_TIMER);
        Some(Self {
            id,
            pair,
            flow: flow(cfg.eid, pair.peer),
            endpoint: RcEndpoint::open(rc).ok()?,
            requests: Numbered::default(),
            receives: Numbered::default(),
            waiting: VecDeque::new(),
            is_over: false,
            repeated: 0,
        })
    }

    /// EID of the node at the other end.
    pub(super) fn peer(&self) -> RawEid {
        self.pair.peer
    }

    pub(super) fn has_answers(&self) -> bool {
        self.endpoint.has_answers()
    }

    pub(super) fn deadline(&self) -> Option<Nanos> {
        self.endpoint.deadline()
    }

    /// Takes a request.
    ///
    /// # Errors
    /// The status with which the request ends at once.
    pub(super) fn post(
        &mut self,
        tables: &Tables,
        handed: &Handed,
        sqe: &Sqe,
    ) -> Result<(), CqeStatus> {
        let operation = operation(sqe, handed.len)?;
        if self.is_over {
            return Err(CqeStatus::WrFlushErr);
        }
        let slot = self.requests.add(Outstanding {
            seq: handed.seq,
            words: handed.words,
            local: Local::of(sqe),
        });
        let request = RcRequest {
            id: slot.into(),
            operation,
            place: request_place(slot),
            len: handed.len,
            fence: sqe.flags.contains(SqeFlags::FENCE),
            solicited: sqe.flags.contains(SqeFlags::SOLICITED),
        };
        self.waiting.push_back(request);
        tables.counts.add_alone(Counter::PacketRequests, 1);
        tables.counts.add_alone(Counter::PacketBytes, handed.len.into());
        let Some((refused, status)) = self.post_waiting() else { return Ok(()) };
        let _ = self.requests.take(refused);
        Err(status)
    }

    /// Posts waiting requests, in order, as far as there is room. Returns one that the endpoint never accepts.
    fn post_waiting(&mut self) -> Option<(u64, CqeStatus)> {
        while let Some(request) = self.waiting.front() {
            match self.endpoint.post(*request) {
                Ok(()) => {
                    self.waiting.pop_front();
                }
                Err(RcPostError::Full) => return None,
                Err(RcPostError::TooLong) => {
                    return Some((self.waiting.pop_front()?.id, CqeStatus::LocLen));
                }
                Err(RcPostError::Failed) => {
                    return Some((self.waiting.pop_front()?.id, CqeStatus::WrFlushErr));
                }
            }
        }
        None
    }

    /// Takes a packet from the peer.
    pub(super) fn on_packet(
        &mut self,
        work: &mut ExchangeContext<'_>,
        keys: &mut RemoteKeys,
        packet: &RocePacket<'_>,
    ) {
        let is_taken =
            wants_receive(packet.header.bth.opcode) && !self.is_over && self.take_receive(work);
        let now = work.now;
        let Self { endpoint, requests, receives, .. } = self;
        endpoint.on_packet(now, packet, &mut memory(work, keys, requests, receives));
        if is_taken
            && let Some(unused) = self.endpoint.withdraw_receive()
            && let Some(taken) = self.receives.take(unused.id)
        {
            work.receives.give_back(work.core, taken);
        }
        self.pass_on(work);
    }

    /// Posts the next receive of the jetty to the endpoint; `false`: there is none, or no room for its completion.
    fn take_receive(&mut self, work: &mut ExchangeContext<'_>) -> bool {
        if let Some(contexts) = work.core.tables.contexts() {
            // Counted at once: a connection of the standard opcodes answers in the order of its packets.
            contexts.look_up(work.receives.look_ahead_of(self.id).into_iter());
        }
        let Ok(taken) = work.receives.take_of(work.core, self.id) else { return false };
        let len = u32::try_from(taken.capacity()).unwrap_or(u32::MAX);
        let slot = self.receives.add(taken);
        let receive = RcReceive { id: slot.into(), place: receive_place(slot), len };
        let is_posted = self.endpoint.post_receive(receive).is_ok();
        if !is_posted && let Some(taken) = self.receives.take(slot.into()) {
            work.receives.give_back(work.core, taken);
        }
        is_posted
    }

    /// Writes the next packet to the front of `buf`; returns its length.
    pub(super) fn poll_transmit(
        &mut self,
        work: &mut ExchangeContext<'_>,
        keys: &mut RemoteKeys,
        buf: &mut [u8],
    ) -> Option<usize> {
        let now = work.now;
        let Self { endpoint, requests, receives, flow, .. } = self;
        let mut memory = memory(work, keys, requests, receives);
        let sent = endpoint.poll_transmit(now, &mut memory, flow, buf);
        self.pass_on(work);
        let tables = &work.core.tables;
        tables.counts.add_alone(Counter::TxPackets, sent.is_some().into());
        let repeated = self.endpoint.counts().repeated;
        tables.counts.add_alone(Counter::Retransmits, repeated - self.repeated);
        self.repeated = repeated;
        sent
    }

    /// Completes everything outstanding as flushed. The jetty stays as it is.
    pub(super) fn close(&mut self, work: &mut ExchangeContext<'_>) {
        self.is_over = true;
        self.endpoint.close();
        self.pass_on(work);
    }

    /// Drops the requests without completing them.
    pub(super) fn forget_requests(&mut self) {
        self.requests.clear();
        self.waiting.clear();
    }

    /// Passes on what the endpoint completed, and its end.
    fn pass_on(&mut self, work: &mut ExchangeContext<'_>) {
        while let Some(done) = self.endpoint.poll_completion() {
            match done.source {
                RcSource::Request => self.end_request(work, &done),
                RcSource::Receive | RcSource::ReceiveWrite => self.end_receive(work, &done),
            }
        }
        while let Some((id, status)) = self.post_waiting() {
            if let Some(request) = self.requests.take(id) {
                work.senders.end(self.id, request.seq, status, 0);
            }
        }
        if self.endpoint.failed().is_some() && !std::mem::replace(&mut self.is_over, true) {
            stop_queue(work, self.id);
        }
    }

    fn end_request(&mut self, work: &mut ExchangeContext<'_>, done: &RcCompletion) {
        let Some(request) = self.requests.take(done.id) else { return };
        let mut status = status(done.status);
        if let Some(original) = done.original {
            let table = &work.core.tables.segments;
            let mut segments = Segments { cache: work.cache, table };
            let span = MessageSpan { at: 0, len: 8, last: true };
            let pieces = request.local.pieces(&request.words);
            let placed = gather::write_in(pieces, &mut segments, span, &original.to_le_bytes());
            status = placed.err().unwrap_or(status);
        }
        if status == CqeStatus::Success {
            work.senders.succeed(work.core, self.id, (request.seq, done.len));
        } else {
            work.senders.end(self.id, request.seq, status, 0);
        }
    }

    fn end_receive(&mut self, work: &mut ExchangeContext<'_>, done: &RcCompletion) {
        let Some(taken) = self.receives.take(done.id) else { return };
        let table = &work.core.tables.segments;
        let cqe = Cqe {
            remote_id: self.pair.remote_id,
            rmt_eid: self.pair.peer,
            tpn: self.pair.tpn,
            ..received(done, table)
        };
        taken.complete(work.core, cqe, done.solicited || done.status != RcStatus::Success);
    }
}

/// The memory argument for one call of the endpoint.
fn memory<'a>(
    work: &'a mut ExchangeContext<'_>,
    keys: &'a mut RemoteKeys,
    requests: &'a Numbered<Outstanding>,
    receives: &'a Numbered<TakenReceive>,
) -> NodeMemory<'a> {
    let caches = Caches { segments: work.cache, keys, resolved: None };
    let tables = &work.core.tables;
    NodeMemory { tables, requests, receives, caches: RefCell::new(caches) }
}

/// Whether a packet may take a receive.
const fn wants_receive(opcode: u8) -> bool {
    matches!(
        opcode,
        rc::SEND_FIRST
            | rc::SEND_ONLY
            | rc::SEND_ONLY_IMM
            | rc::SEND_ONLY_INV
            | rc::WRITE_LAST_IMM
            | rc::WRITE_ONLY_IMM
    )
}

/// Moves the jetty of a failed connection to ERROR, as after a failed request.
fn stop_queue(work: &ExchangeContext<'_>, id: u32) {
    let Some(queue) = work.core.queues.get(id) else { return };
    let visit = Visit { tables: &work.core.tables, queue, direct: None };
    let _ = queue.send.with_blocking(|place| {
        if let Some(engine) = place.engine() {
            engine.on_connection_lost(&visit);
        }
    });
    work.core.make_runnable(queue);
}

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

/// Room that Linux rxe leaves for headers, in bytes.
const HEADERS: u32 = 80;
/// Path MTU if nothing is known about the route, in bytes.
const UNKNOWN: u32 = 1024;
/// Largest and smallest path MTU of the standard, in bytes.
const LARGEST: u32 = 4096;
const SMALLEST: u32 = 256;

/// Path MTU of a connection to `peer`, in bytes of payload: the configured one, or the largest that the route carries
/// now.
///
/// Both ends must have the same path MTU: it determines how many PSNs a message takes, and no packet of the standard
/// carries it. So it is not searched for while the connection lasts, but chosen when the jetty is bound, by the rule
/// of Linux rxe: ends whose routes have the same MTU agree.
pub(super) fn path_mtu(tables: &Tables, peer: RawEid) -> usize {
    let cfg = &tables.cfg;
    let of_route = || {
        if peer == cfg.eid {
            return LARGEST;
        }
        let mtu = tables.ports.routes.as_ref().and_then(|routes| routes.mtu_to(peer));
        mtu.map_or(UNKNOWN, largest_in)
    };
    usize::try_from(cfg.rc_mtu.unwrap_or_else(of_route)).unwrap_or(usize::MAX)
}

/// The largest payload that fits in packets of an MTU.
fn largest_in(mtu: u32) -> u32 {
    let all = std::iter::successors(Some(LARGEST), |bytes| Some(bytes / 2));
    let mut possible = all.take_while(|bytes| *bytes >= SMALLEST);
    possible.find(|bytes| bytes + HEADERS <= mtu).unwrap_or(SMALLEST)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_rule_is_that_of_linux() {
        let chosen =
            [0, 336, 576, 1280, 1500, 2127, 2128, 4175, 4176, 9000, 65_536].map(largest_in);
        assert_eq!(chosen, [256, 256, 256, 1024, 1024, 1024, 2048, 2048, 4096, 4096, 4096]);
    }
}
