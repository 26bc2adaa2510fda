//! The sending half: requests into packets, acknowledgements into completions.
//!
//! - owns: the send queue, the window, what is repeated and when.
//! - takes: requests, responses, time. gives: request packets, completions.
//! - must not: keep payload; it is read again from its place when a packet is repeated.

use std::collections::VecDeque;

use urma_packet::roce::{
    AtomicEth, Ieth, ImmDt, Reth, RoceExt, RoceHeader, RocePacket, Syndrome, rc,
};
use urma_packet::{Bth, Congestion, Psn, ResponseStatus, packetizer::Sideband};

use crate::cfg::{MESSAGE_MAX, PSNS_MAX, RNR_UNLIMITED};
use crate::request::{MessageKind, RcSegment, RcTail};
use crate::{
    RcAtomic, RcCfg, RcCompletion, RcCounts, RcMemory, RcOperation, RcPostError, RcRemote,
    RcRequest, RcSource, RcStatus, RcTime,
};

/// A request in the queue.
#[derive(Debug, Clone, Copy)]
struct RcPosted {
    request: RcRequest,
    first: Psn,
    /// PSNs that it takes: its packets, or those of the response to a READ.
    count: u32,
}

impl RcPosted {
    fn end(&self) -> Psn {
        self.first.plus(self.count)
    }

    fn has_response(&self) -> bool {
        self.request.operation.has_response()
    }

    /// The packet of the message with this PSN, and the offset of its payload in bytes.
    fn packet_at(&self, cfg: &RcCfg, psn: Psn) -> (u32, Sideband) {
        let cut = cfg.cut_at(psn.distance_from(self.first).unsigned_abs());
        (cut.done(), cut.next_packet((self.first.value(), self.request.len), cfg.path_mtu))
    }
}

/// Where the parts of a request packet come from.
#[derive(Debug, Clone, Copy)]
pub(crate) struct RcPacket {
    pub(crate) header: RoceHeader,
    /// Place of the payload.
    pub(crate) place: u64,
    pub(crate) len: usize,
}

/// Send queue of an endpoint.
#[derive(Debug)]
pub(crate) struct RcRequester {
    queue: VecDeque<RcPosted>,
    /// Oldest PSN without acknowledgement.
    acked: Psn,
    /// PSN of the next packet.
    cursor: Psn,
    /// First PSN that was never sent.
    reached: Psn,
    /// PSN of the next request posted.
    next: Psn,
    retries_left: u8,
    rnr_left: u8,
    /// PSN from which requests were repeated because of a response that came or was missing. Another
    /// one for it repeats nothing, until there is progress or a timeout.
    repeated_from: Option<Psn>,
    ack_deadline: Option<RcTime>,
    rnr_until: Option<RcTime>,
    /// Packets since the last one that asked for an acknowledgement.
    unasked: u32,
}

impl RcRequester {
    pub(crate) fn new(cfg: &RcCfg) -> Self {
        Self {
            queue: VecDeque::new(),
            acked: cfg.send_psn,
            cursor: cfg.send_psn,
            reached: cfg.send_psn,
            next: cfg.send_psn,
            retries_left: cfg.retry_count,
            rnr_left: cfg.rnr_retry,
            repeated_from: None,
            ack_deadline: None,
            rnr_until: None,
            unasked: 0,
        }
    }

    pub(crate) fn post(&mut self, cfg: &RcCfg, request: RcRequest) -> Result<(), RcPostError> {
        let is_atomic = matches!(request.operation, RcOperation::Atomic(..));
        let request = if is_atomic { RcRequest { len: 8, ..request } } else { request };
        let count = cfg.packets(request.len);
        if request.len > MESSAGE_MAX || count > PSNS_MAX {
            return Err(RcPostError::TooLong);
        }
        let outstanding = self.next.distance_from(self.acked).unsigned_abs();
        if self.queue.len() >= cfg.queue_depth || outstanding + count > PSNS_MAX {
            return Err(RcPostError::Full);
        }
        self.queue.push_back(RcPosted { request, first: self.next, count });
        self.next = self.next.plus(count);
        Ok(())
    }

    pub(crate) fn deadline(&self) -> Option<RcTime> {
        [self.ack_deadline, self.rnr_until].into_iter().flatten().min()
    }

    /// Repeats what is due.
    pub(crate) fn expire(&mut self, now: RcTime) -> Result<(), RcStatus> {
        if self.rnr_until.is_some_and(|at| at <= now) {
            self.rnr_until = None;
        }
        if self.ack_deadline.is_some_and(|at| at <= now) {
            self.go_back()?;
            // The packet that is sent again may be lost as well: the peer's NAK counts then.
            self.repeated_from = None;
        }
        Ok(())
    }

    /// All requests from the oldest one without acknowledgement on are sent again.
    fn go_back(&mut self) -> Result<(), RcStatus> {
        self.retries_left = self.retries_left.checked_sub(1).ok_or(RcStatus::RetryExceeded)?;
        self.cursor = self.acked;
        self.ack_deadline = None;
        Ok(())
    }

    /// A response is missing, or the peer misses a request.
    fn repeat(&mut self) -> Result<(), RcStatus> {
        if self.repeated_from == Some(self.acked) || self.rnr_until.is_some() {
            return Ok(());
        }
        self.repeated_from = Some(self.acked);
        self.go_back()
    }

    /// The peer has no receive: waits for the time of its timer code.
    fn wait(&mut self, now: RcTime, cfg: &RcCfg, timer: u8) -> Result<(), RcStatus> {
        if self.rnr_until.is_some() {
            return Ok(());
        }
        if cfg.rnr_retry != RNR_UNLIMITED {
            self.rnr_left = self.rnr_left.checked_sub(1).ok_or(RcStatus::RnrRetryExceeded)?;
        }
        // The peer answered: the path works, and its own count limits this wait.
        self.retries_left = cfg.retry_count;
        self.repeated_from = None;
        self.cursor = self.acked;
        self.ack_deadline = None;
        self.rnr_until = Some(now.saturating_add(ResponseStatus::rnr_timer_ns(timer)));
        Ok(())
    }

    // Packets.

    /// The next request packet.
    pub(crate) fn poll(
        &mut self,
        now: RcTime,
        cfg: &RcCfg,
        counts: &mut RcCounts,
    ) -> Option<RcPacket> {
        let in_flight = self.cursor.distance_from(self.acked).unsigned_abs();
        if self.rnr_until.is_some() || self.cursor == self.next || in_flight >= cfg.window {
            return None;
        }
        let index = self.index_of(self.cursor)?;
        let posted = self.queue[index];
        if self.cursor == posted.first && !self.may_start(cfg, index) {
            return None;
        }
        let step = if matches!(posted.request.operation, RcOperation::Read(_)) {
            posted.end().distance_from(self.cursor).unsigned_abs()
        } else {
            1
        };
        let after = self.cursor.plus(step);
        self.unasked += 1;
        let ack_req = after == posted.end() || self.unasked >= cfg.ack_interval;
        if ack_req {
            self.unasked = 0;
        }
        let outgoing = packet_of(cfg, &posted, self.cursor, ack_req);
        counts.requests_sent += 1;
        counts.repeated += u64::from(self.cursor.is_before(self.reached));
        self.cursor = after;
        if self.reached.is_before(after) {
            self.reached = after;
        }
        if self.ack_deadline.is_none() && cfg.ack_timeout != 0 {
            self.ack_deadline = Some(now.saturating_add(cfg.ack_timeout));
        }
        Some(outgoing)
    }

    /// Position in the queue of the request with this PSN.
    fn index_of(&self, psn: Psn) -> Option<usize> {
        let index = self.queue.partition_point(|posted| !psn.is_before(posted.end()));
        (index < self.queue.len()).then_some(index)
    }

    /// Whether the first packet of a request may leave: fences, and the limit of READs and atomics.
    fn may_start(&self, cfg: &RcCfg, index: usize) -> bool {
        let posted = &self.queue[index];
        if !posted.request.fence && !posted.has_response() {
            return true;
        }
        let before = self.queue.range(..index).filter(|posted| posted.has_response()).count();
        let limit = if posted.request.fence { 1 } else { usize::from(cfg.max_rd_atomic) };
        before < limit
    }

    // Responses.

    /// Takes a response packet.
    pub(crate) fn on_response(
        &mut self,
        now: RcTime,
        cfg: &RcCfg,
        packet: &RocePacket<'_>,
        memory: &mut dyn RcMemory,
        mut to: RcProgress<'_>,
    ) -> Result<(), RcStatus> {
        let psn = packet.header.bth.psn;
        if !psn.is_before(self.reached) {
            to.counts.never_sent += 1;
            return Ok(());
        }
        if psn.is_before(self.acked) {
            to.counts.stale += 1;
            return Ok(());
        }
        let ext = &packet.header.ext;
        match packet.header.bth.opcode {
            rc::ACKNOWLEDGE => {
                let Some(aeth) = ext.aeth else { return Ok(()) };
                self.on_acknowledge(now, cfg, psn, aeth.syndrome, &mut to)
            }
            rc::ATOMIC_ACKNOWLEDGE => {
                let original = ext.atomic_ack.map(|value| value.original);
                self.on_atomic(now, cfg, psn, original, &mut to)
            }
            _ => self.on_read(now, cfg, packet, memory, &mut to),
        }
    }

    fn on_acknowledge(
        &mut self,
        now: RcTime,
        cfg: &RcCfg,
        psn: Psn,
        syndrome: Syndrome,
        to: &mut RcProgress<'_>,
    ) -> Result<(), RcStatus> {
        let refused = match syndrome {
            Syndrome::Ack { .. } => return self.acknowledge(now, cfg, psn.plus(1), to),
            Syndrome::PsnSequence => {
                to.counts.naks_received += 1;
                self.acknowledge(now, cfg, psn, to)?;
                return self.repeat();
            }
            Syndrome::RnrNak { timer } => {
                to.counts.rnr_naks_received += 1;
                self.acknowledge(now, cfg, psn, to)?;
                let is_oldest = self.acked == psn;
                return if is_oldest { self.wait(now, cfg, timer) } else { Ok(()) };
            }
            Syndrome::InvalidRequest | Syndrome::InvalidRdRequest => RcStatus::RemoteInvalidRequest,
            Syndrome::RemoteAccess => RcStatus::RemoteAccess,
            Syndrome::RemoteOperation => RcStatus::RemoteOperation,
        };
        to.counts.naks_received += 1;
        self.acknowledge(now, cfg, psn, to)?;
        // An earlier READ or atomic without response: it is repeated first.
        let is_oldest = self.queue.front().is_some_and(|front| psn.is_before(front.end()));
        if is_oldest { Err(refused) } else { Ok(()) }
    }

    /// Everything before `up_to` arrived. A READ or atomic among it whose response did not come is
    /// repeated.
    fn acknowledge(
        &mut self,
        now: RcTime,
        cfg: &RcCfg,
        up_to: Psn,
        to: &mut RcProgress<'_>,
    ) -> Result<(), RcStatus> {
        let before = self.acked;
        let mut is_missing = false;
        while let Some(front) = self.queue.front()
            && self.acked.is_before(up_to)
        {
            if front.has_response() {
                is_missing = true;
                break;
            }
            if up_to.is_before(front.end()) {
                self.acked = up_to;
                break;
            }
            self.finish(None, to);
        }
        if self.acked != before {
            self.progress(now, cfg);
        }
        if is_missing { self.repeat() } else { Ok(()) }
    }

    fn on_atomic(
        &mut self,
        now: RcTime,
        cfg: &RcCfg,
        psn: Psn,
        original: Option<u64>,
        to: &mut RcProgress<'_>,
    ) -> Result<(), RcStatus> {
        let Some(posted) = self.index_of(psn).map(|index| self.queue[index]) else { return Ok(()) };
        if !matches!(posted.request.operation, RcOperation::Atomic(..)) {
            to.counts.malformed += 1;
            return Ok(());
        }
        self.acknowledge(now, cfg, posted.first, to)?;
        if self.acked == psn {
            self.finish(original, to);
            self.progress(now, cfg);
        }
        Ok(())
    }

    fn on_read(
        &mut self,
        now: RcTime,
        cfg: &RcCfg,
        packet: &RocePacket<'_>,
        memory: &mut dyn RcMemory,
        to: &mut RcProgress<'_>,
    ) -> Result<(), RcStatus> {
        let bth = &packet.header.bth;
        let Some(posted) = self.index_of(bth.psn).map(|at| self.queue[at]) else { return Ok(()) };
        let (offset, want) = posted.packet_at(cfg, bth.psn);
        let has_end = matches!(bth.opcode, rc::READ_RESPONSE_LAST | rc::READ_RESPONSE_ONLY);
        let is_read = matches!(posted.request.operation, RcOperation::Read(_));
        if !is_read || has_end != want.last || packet.payload.len() != want.len as usize {
            to.counts.malformed += 1;
            return Ok(());
        }
        self.acknowledge(now, cfg, posted.first, to)?;
        if bth.psn != self.acked {
            // An earlier response is missing.
            return self.repeat();
        }
        if want.len > 0 && !memory.store(posted.request.place + u64::from(offset), packet.payload) {
            return Err(RcStatus::LocalProtection);
        }
        if want.last {
            self.finish(None, to);
        } else {
            self.acked = bth.psn.plus(1);
        }
        self.progress(now, cfg);
        Ok(())
    }

    /// The oldest request is complete.
    fn finish(&mut self, original: Option<u64>, to: &mut RcProgress<'_>) {
        if let Some(posted) = self.queue.pop_front() {
            self.acked = posted.end();
            let RcRequest { id, len, .. } = posted.request;
            let done = RcCompletion::new(RcSource::Request, id, RcStatus::Success);
            to.completions.push_back(RcCompletion { len, original, ..done });
        }
    }

    /// The oldest PSN without acknowledgement moved.
    fn progress(&mut self, now: RcTime, cfg: &RcCfg) {
        self.retries_left = cfg.retry_count;
        self.rnr_left = cfg.rnr_retry;
        self.repeated_from = None;
        self.rnr_until = None;
        if self.cursor.is_before(self.acked) {
            self.cursor = self.acked;
        }
        let is_waiting = self.acked.is_before(self.cursor) && cfg.ack_timeout != 0;
        self.ack_deadline = is_waiting.then(|| now.saturating_add(cfg.ack_timeout));
    }

    /// Completes everything that is left: the oldest request with `status`, the others as flushed.
    pub(crate) fn fail(&mut self, status: RcStatus, completions: &mut VecDeque<RcCompletion>) {
        let mut status = status;
        for posted in self.queue.drain(..) {
            completions.push_back(RcCompletion::new(RcSource::Request, posted.request.id, status));
            status = RcStatus::Flushed;
        }
        (self.cursor, self.ack_deadline, self.rnr_until) = (self.next, None, None);
    }

    /// Completes the request that was sent last, whose payload could not be read: those before it
    /// are flushed with it, since the connection ends.
    pub(crate) fn fail_at_cursor(&mut self, completions: &mut VecDeque<RcCompletion>) {
        let sent = Psn::new(self.cursor.value().wrapping_sub(1));
        let at = self.index_of(sent).unwrap_or(0);
        for (index, posted) in self.queue.drain(..).enumerate() {
            let status = if index == at { RcStatus::LocalProtection } else { RcStatus::Flushed };
            completions.push_back(RcCompletion::new(RcSource::Request, posted.request.id, status));
        }
        (self.cursor, self.ack_deadline, self.rnr_until) = (self.next, None, None);
    }
}

/// Where the effects of a response go.
#[derive(Debug)]
pub(crate) struct RcProgress<'a> {
    pub(crate) completions: &'a mut VecDeque<RcCompletion>,
    pub(crate) counts: &'a mut RcCounts,
}

/// The BTH of a packet to the peer.
pub(crate) fn bth(cfg: &RcCfg, opcode: u8, psn: Psn) -> Bth {
    Bth {
        opcode,
        solicited: false,
        mig_req: false,
        pad: 0,
        version: 0,
        pkey: cfg.pkey,
        congestion: Congestion::default(),
        dest: cfg.remote_qpn,
        ack_req: false,
        repeated: false,
        psn,
    }
}

/// The packet of a request with this PSN.
fn packet_of(cfg: &RcCfg, posted: &RcPosted, psn: Psn, ack_req: bool) -> RcPacket {
    let request = &posted.request;
    let (offset, packet) = posted.packet_at(cfg, psn);
    let (kind, remote, tail, imm) = match request.operation {
        RcOperation::Send => (MessageKind::Send, None, RcTail::Plain, 0),
        RcOperation::SendImm(imm) => (MessageKind::Send, None, RcTail::Imm, imm),
        RcOperation::SendInvalidate(rkey) => (MessageKind::Send, None, RcTail::Invalidate, rkey),
        RcOperation::Write(remote) => (MessageKind::Write, Some(remote), RcTail::Plain, 0),
        RcOperation::WriteImm(remote, imm) => (MessageKind::Write, Some(remote), RcTail::Imm, imm),
        RcOperation::Read(remote) => return read_packet(cfg, request, remote, offset, psn),
        RcOperation::Atomic(remote, atomic) => {
            return atomic_packet(cfg, request, remote, atomic, psn);
        }
    };
    let place = RcSegment { kind, is_first: packet.first, last: packet.last.then_some(tail) };
    let mut ext = RoceExt::default();
    if let Some(remote) = remote.filter(|_| place.is_first) {
        ext.reth = Some(Reth { va: remote.va, rkey: remote.rkey, dma_len: request.len });
    }
    ext.imm = (place.last == Some(RcTail::Imm)).then_some(ImmDt { value: imm });
    ext.ieth = (place.last == Some(RcTail::Invalidate)).then_some(Ieth { rkey: imm });
    let solicited = packet.last && request.solicited;
    let bth = Bth { ack_req, solicited, ..bth(cfg, place.opcode(), psn) };
    let len = packet.len as usize;
    RcPacket { header: RoceHeader { bth, ext }, place: request.place + u64::from(offset), len }
}

fn read_packet(
    cfg: &RcCfg,
    request: &RcRequest,
    remote: RcRemote,
    offset: u32,
    psn: Psn,
) -> RcPacket {
    let va = remote.va.wrapping_add(offset.into());
    let reth = Reth { va, rkey: remote.rkey, dma_len: request.len.saturating_sub(offset) };
    let bth = Bth { ack_req: true, ..bth(cfg, rc::READ_REQUEST, psn) };
    let ext = RoceExt { reth: Some(reth), ..RoceExt::default() };
    RcPacket { header: RoceHeader { bth, ext }, place: 0, len: 0 }
}

fn atomic_packet(
    cfg: &RcCfg,
    request: &RcRequest,
    remote: RcRemote,
    atomic: RcAtomic,
    psn: Psn,
) -> RcPacket {
    let (opcode, swap_or_add, compare) = match atomic {
        RcAtomic::CompareSwap { compare, swap } => (rc::COMPARE_SWAP, swap, compare),
        RcAtomic::FetchAdd { add } => (rc::FETCH_ADD, add, 0),
    };
    let atomic = AtomicEth { va: remote.va, rkey: remote.rkey, swap_or_add, compare };
    let bth = Bth { ack_req: true, solicited: request.solicited, ..bth(cfg, opcode, psn) };
    let ext = RoceExt { atomic: Some(atomic), ..RoceExt::default() };
    RcPacket { header: RoceHeader { bth, ext }, place: 0, len: 0 }
}
