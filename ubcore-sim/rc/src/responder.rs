//! The receiving half: request packets into memory, receives and answers.
//!
//! - owns: the expected PSN, the message in progress, receives, saved results, answers to send.
//! - takes: request packets. gives: acknowledgements, data of READs, completions of receives.
//! - must not: move a byte before key, bounds and rights were checked; keep the data of a READ, which
//!   is read when its packets are sent.

use std::collections::VecDeque;

use urma_packet::Psn;
use urma_packet::packetizer::Packetizer;
use urma_packet::roce::{Aeth, AtomicAckEth, Reth, RoceExt, RoceHeader, RocePacket, Syndrome, rc};

use crate::cfg::MESSAGE_MAX;
use crate::request::{MessageKind, RcSegment, RcTail};
use crate::requester::{RcPacket, bth};
use crate::{
    RcAccess, RcAtomic, RcCfg, RcCompletion, RcCounts, RcMemory, RcReceive, RcRemote, RcSource,
    RcStatus,
};

/// Credit code: credits are not used.
const NO_CREDITS: u8 = 0x1f;

/// A message of which packets are missing.
#[derive(Debug, Clone, Copy)]
enum RcInbound {
    Send { receive: RcReceive, done: u32 },
    Write { remote: RcRemote, len: u32, done: u32 },
}

impl RcInbound {
    const fn kind(&self) -> MessageKind {
        match self {
            Self::Send { .. } => MessageKind::Send,
            Self::Write { .. } => MessageKind::Write,
        }
    }
}

/// A READ or atomic that was executed: for duplicates of its request.
#[derive(Debug, Clone, Copy)]
struct Saved {
    first: Psn,
    count: u32,
    result: SavedResult,
}

#[derive(Debug, Clone, Copy)]
enum SavedResult {
    Read { remote: RcRemote, len: u32 },
    Atomic { original: u64 },
}

/// What is to be sent.
#[derive(Debug, Clone, Copy)]
enum RcAnswer {
    Acknowledge { psn: Psn, syndrome: Syndrome, msn: u32 },
    Read(ReadAnswer),
    Atomic { psn: Psn, original: u64, msn: u32 },
}

/// The rest of a READ's response.
#[derive(Debug, Clone, Copy)]
struct ReadAnswer {
    /// PSN of the request, and of the packet with its first bytes.
    first: Psn,
    remote: RcRemote,
    len: u32,
    /// What was sent, or the peer has.
    cut: Packetizer,
    /// Whether a packet was sent.
    is_started: bool,
    msn: u32,
}

/// Why a request is not executed.
#[derive(Debug, Clone, Copy)]
enum Refusal {
    /// No receive is posted.
    NotReady,
    /// The connection ends: what the peer is sent, how the receive in progress is completed.
    Fatal(Syndrome, RcStatus),
}

const INVALID: Refusal = Refusal::Fatal(Syndrome::InvalidRequest, RcStatus::RemoteInvalidRequest);
const NO_ACCESS: Refusal = Refusal::Fatal(Syndrome::RemoteAccess, RcStatus::RemoteAccess);
const LOCAL: Refusal = Refusal::Fatal(Syndrome::RemoteOperation, RcStatus::LocalProtection);

/// Receive side of an endpoint.
#[derive(Debug)]
pub(crate) struct RcResponder {
    expected: Psn,
    /// Messages executed, 24 bits.
    msn: u32,
    /// A NAK for the expected PSN was sent.
    is_refused: bool,
    message: Option<RcInbound>,
    receives: VecDeque<RcReceive>,
    saved: VecDeque<Saved>,
    answers: VecDeque<RcAnswer>,
    /// Packets accepted since the last acknowledgement.
    unacknowledged: u32,
}

impl RcResponder {
    pub(crate) fn new(cfg: &RcCfg) -> Self {
        Self {
            expected: cfg.receive_psn,
            msn: 0,
            is_refused: false,
            message: None,
            receives: VecDeque::new(),
            saved: VecDeque::new(),
            answers: VecDeque::new(),
            unacknowledged: 0,
        }
    }

    /// Takes a receive; `false`: there is no room.
    pub(crate) fn post(&mut self, cfg: &RcCfg, receive: RcReceive) -> bool {
        let has_room = self.receives.len() < cfg.queue_depth;
        if has_room {
            self.receives.push_back(receive);
        }
        has_room
    }

    pub(crate) fn withdraw_receive(&mut self) -> Option<RcReceive> {
        self.receives.pop_back()
    }

    /// Whether an answer waits to be sent.
    pub(crate) fn has_answers(&self) -> bool {
        !self.answers.is_empty()
    }

    // Requests.

    /// Takes a request packet. An error ends the connection.
    pub(crate) fn on_request(
        &mut self,
        cfg: &RcCfg,
        packet: &RocePacket<'_>,
        memory: &mut dyn RcMemory,
        completions: &mut VecDeque<RcCompletion>,
        counts: &mut RcCounts,
    ) -> Result<(), RcStatus> {
        // Answers are sent as fast as the owner polls: beyond this a request is lost, as in the network.
        if self.answers.len() > usize::from(cfg.max_dest_rd_atomic) * 2 + ANSWERS_MAX {
            counts.overloaded += 1;
            return Ok(());
        }
        let psn = packet.header.bth.psn;
        let distance = psn.distance_from(self.expected);
        if distance < 0 {
            counts.duplicates += 1;
            self.on_duplicate(cfg, packet, counts);
            return Ok(());
        }
        if distance > 0 {
            counts.ahead += 1;
            if !self.is_refused {
                self.is_refused = true;
                self.refuse(self.expected, Syndrome::PsnSequence, counts);
            }
            return Ok(());
        }
        self.is_refused = false;
        match self.execute(cfg, packet, memory, completions) {
            Ok(()) => {
                counts.accepted += 1;
                Ok(())
            }
            Err(Refusal::NotReady) => {
                // Those behind it came too early: the peer sends them again with this one.
                self.is_refused = true;
                self.refuse(psn, Syndrome::RnrNak { timer: cfg.min_rnr_timer }, counts);
                Ok(())
            }
            Err(Refusal::Fatal(syndrome, status)) => {
                self.refuse(psn, syndrome, counts);
                Err(status)
            }
        }
    }

    fn refuse(&mut self, psn: Psn, syndrome: Syndrome, counts: &mut RcCounts) {
        counts.naks_sent += 1;
        self.answers.push_back(RcAnswer::Acknowledge { psn, syndrome, msn: self.msn });
        self.unacknowledged = 0;
    }

    fn execute(
        &mut self,
        cfg: &RcCfg,
        packet: &RocePacket<'_>,
        memory: &mut dyn RcMemory,
        completions: &mut VecDeque<RcCompletion>,
    ) -> Result<(), Refusal> {
        let (bth, ext) = (&packet.header.bth, &packet.header.ext);
        if let Some(place) = RcSegment::of(bth.opcode) {
            self.check_place(cfg, place, packet.payload.len())?;
            let message = match place.kind {
                MessageKind::Send => self.on_send(place, packet, memory)?,
                MessageKind::Write => self.on_write(place, packet, memory)?,
            };
            self.advance(cfg, place, packet, message, completions);
            return Ok(());
        }
        if self.message.is_some() || cfg.max_dest_rd_atomic == 0 {
            return Err(INVALID);
        }
        match (ext.reth, ext.atomic, bth.opcode) {
            (Some(reth), _, rc::READ_REQUEST) => self.on_read(cfg, bth.psn, reth, memory),
            (_, Some(operands), rc::COMPARE_SWAP) => {
                let swap = operands.swap_or_add;
                let atomic = RcAtomic::CompareSwap { compare: operands.compare, swap };
                let remote = RcRemote { va: operands.va, rkey: operands.rkey };
                self.on_atomic(cfg, bth.psn, remote, atomic, memory)
            }
            (_, Some(operands), rc::FETCH_ADD) => {
                let atomic = RcAtomic::FetchAdd { add: operands.swap_or_add };
                let remote = RcRemote { va: operands.va, rkey: operands.rkey };
                self.on_atomic(cfg, bth.psn, remote, atomic, memory)
            }
            // FLUSH, ATOMIC WRITE and what other transports define.
            _ => Err(INVALID),
        }
    }

    /// The packet continues what is in progress, and has the length of its place.
    fn check_place(&self, cfg: &RcCfg, place: RcSegment, len: usize) -> Result<(), Refusal> {
        let continues = match &self.message {
            None => place.is_first,
            Some(message) => !place.is_first && message.kind() == place.kind,
        };
        let fits = match (place.is_first, place.last) {
            (_, None) => len == cfg.path_mtu,
            (true, Some(_)) => len <= cfg.path_mtu,
            (false, Some(_)) => (1..=cfg.path_mtu).contains(&len),
        };
        if continues && fits { Ok(()) } else { Err(INVALID) }
    }

    fn on_send(
        &self,
        place: RcSegment,
        packet: &RocePacket<'_>,
        memory: &mut dyn RcMemory,
    ) -> Result<RcInbound, Refusal> {
        let (receive, done) = match self.message {
            Some(RcInbound::Send { receive, done }) => (receive, done),
            _ => (*self.receives.front().ok_or(Refusal::NotReady)?, 0),
        };
        let len = u32::try_from(packet.payload.len()).map_err(|_| INVALID)?;
        let end = done.checked_add(len).filter(|end| *end <= receive.len);
        let end = end.ok_or(Refusal::Fatal(Syndrome::InvalidRequest, RcStatus::LocalLength))?;
        if len > 0 && !memory.store(receive.place + u64::from(done), packet.payload) {
            return Err(LOCAL);
        }
        if let (Some(RcTail::Invalidate), Some(ieth)) = (place.last, packet.header.ext.ieth)
            && !memory.invalidate(ieth.rkey)
        {
            return Err(NO_ACCESS);
        }
        Ok(RcInbound::Send { receive, done: end })
    }

    fn on_write(
        &self,
        place: RcSegment,
        packet: &RocePacket<'_>,
        memory: &mut dyn RcMemory,
    ) -> Result<RcInbound, Refusal> {
        let (remote, len, done) = match (self.message, packet.header.ext.reth) {
            (Some(RcInbound::Write { remote, len, done }), _) => (remote, len, done),
            (_, Some(Reth { va, rkey, dma_len })) => (RcRemote { va, rkey }, dma_len, 0),
            _ => return Err(INVALID),
        };
        let here = u32::try_from(packet.payload.len()).map_err(|_| INVALID)?;
        let left = len.checked_sub(done).filter(|_| len <= MESSAGE_MAX).ok_or(INVALID)?;
        let fits = if place.last.is_some() { here == left } else { here < left };
        if !fits {
            return Err(INVALID);
        }
        let at = remote.va.wrapping_add(done.into());
        // The whole rest: a message that does not fit places nothing.
        let found = match left {
            0 => 0,
            left => memory.resolve(remote.rkey, at, left, RcAccess::Write).ok_or(NO_ACCESS)?,
        };
        if place.last == Some(RcTail::Imm) && self.receives.is_empty() {
            return Err(Refusal::NotReady);
        }
        if here > 0 && !memory.store(found, packet.payload) {
            return Err(LOCAL);
        }
        Ok(RcInbound::Write { remote, len, done: done + here })
    }

    /// A packet of a SEND or WRITE was executed.
    fn advance(
        &mut self,
        cfg: &RcCfg,
        place: RcSegment,
        packet: &RocePacket<'_>,
        message: RcInbound,
        completions: &mut VecDeque<RcCompletion>,
    ) {
        let bth = &packet.header.bth;
        if place.is_first && place.kind == MessageKind::Send {
            self.receives.pop_front();
        }
        self.expected = bth.psn.plus(1);
        self.message = place.last.is_none().then_some(message);
        if place.last.is_some() {
            self.count_message();
            let ext = &packet.header.ext;
            completions.extend(
                self.received(message, ext)
                    .map(|done| RcCompletion { solicited: bth.solicited, ..done }),
            );
        }
        self.unacknowledged += 1;
        if bth.ack_req || self.unacknowledged >= cfg.ack_interval {
            self.acknowledge(bth.psn);
        }
    }

    /// The completion that a message makes, if any.
    fn received(&mut self, message: RcInbound, ext: &RoceExt) -> Option<RcCompletion> {
        let imm = ext.imm.map(|imm| imm.value);
        let (source, id, len) = match message {
            RcInbound::Send { receive, done } => (RcSource::Receive, receive.id, done),
            RcInbound::Write { .. } if imm.is_none() => return None,
            RcInbound::Write { len, .. } => {
                (RcSource::ReceiveWrite, self.receives.pop_front()?.id, len)
            }
        };
        let invalidated = ext.ieth.map(|ieth| ieth.rkey);
        let done = RcCompletion::new(source, id, RcStatus::Success);
        Some(RcCompletion { len, imm, invalidated, ..done })
    }

    fn on_read(
        &mut self,
        cfg: &RcCfg,
        psn: Psn,
        reth: Reth,
        memory: &dyn RcMemory,
    ) -> Result<(), Refusal> {
        let (remote, len) = (RcRemote { va: reth.va, rkey: reth.rkey }, reth.dma_len);
        if len > MESSAGE_MAX {
            return Err(INVALID);
        }
        if len > 0 && memory.resolve(remote.rkey, remote.va, len, RcAccess::Read).is_none() {
            return Err(NO_ACCESS);
        }
        self.count_message();
        let count = cfg.packets(len);
        self.save(cfg, Saved { first: psn, count, result: SavedResult::Read { remote, len } });
        let msn = self.msn;
        let cut = Packetizer::default();
        let answer = ReadAnswer { first: psn, remote, len, cut, is_started: false, msn };
        self.answers.push_back(RcAnswer::Read(answer));
        self.expected = psn.plus(count);
        self.unacknowledged = 0;
        Ok(())
    }

    fn on_atomic(
        &mut self,
        cfg: &RcCfg,
        psn: Psn,
        remote: RcRemote,
        atomic: RcAtomic,
        memory: &mut dyn RcMemory,
    ) -> Result<(), Refusal> {
        if !remote.va.is_multiple_of(8) {
            return Err(INVALID);
        }
        let place = memory.resolve(remote.rkey, remote.va, 8, RcAccess::Atomic).ok_or(NO_ACCESS)?;
        let original = memory.update(place, atomic).ok_or(LOCAL)?;
        self.count_message();
        self.save(cfg, Saved { first: psn, count: 1, result: SavedResult::Atomic { original } });
        self.answers.push_back(RcAnswer::Atomic { psn, original, msn: self.msn });
        self.expected = psn.plus(1);
        self.unacknowledged = 0;
        Ok(())
    }

    /// A request that was executed before: SEND and WRITE are acknowledged again, READ is read again,
    /// atomics are answered from the saved result. Without a saved result there is no answer.
    fn on_duplicate(&mut self, cfg: &RcCfg, packet: &RocePacket<'_>, counts: &mut RcCounts) {
        let bth = &packet.header.bth;
        if RcSegment::of(bth.opcode).is_some() {
            self.acknowledge(Psn::new(self.expected.value().wrapping_sub(1)));
            return;
        }
        let holds = |saved: &&Saved| {
            !bth.psn.is_before(saved.first) && bth.psn.is_before(saved.first.plus(saved.count))
        };
        let Some(saved) = self.saved.iter().rev().find(holds).copied() else {
            counts.forgotten += 1;
            return;
        };
        let ext = &packet.header.ext;
        match (saved.result, ext.reth) {
            (SavedResult::Read { remote, len }, Some(reth)) => {
                let cut = cfg.cut_at(bth.psn.distance_from(saved.first).unsigned_abs());
                let offset = cut.done();
                let wanted = RcRemote { va: reth.va, rkey: reth.rkey };
                let rest = RcRemote { va: remote.va.wrapping_add(offset.into()), ..remote };
                // Another range could be memory that the peer may not read.
                if wanted != rest || reth.dma_len != len.saturating_sub(offset) {
                    counts.malformed += 1;
                    return;
                }
                self.answers.retain(
                    |answer| !matches!(answer, RcAnswer::Read(read) if saved.first == read.first),
                );
                let (first, msn) = (saved.first, self.msn);
                let answer = ReadAnswer { first, remote, len, cut, is_started: false, msn };
                self.answers.push_back(RcAnswer::Read(answer));
            }
            (SavedResult::Atomic { original }, None) if ext.atomic.is_some() => {
                self.answers.push_back(RcAnswer::Atomic { psn: bth.psn, original, msn: self.msn });
            }
            _ => counts.malformed += 1,
        }
    }

    fn count_message(&mut self) {
        self.msn = (self.msn + 1) & 0x00ff_ffff;
    }

    fn save(&mut self, cfg: &RcCfg, saved: Saved) {
        if self.saved.len() >= usize::from(cfg.max_dest_rd_atomic) {
            self.saved.pop_front();
        }
        self.saved.push_back(saved);
    }

    /// Acknowledges everything up to `psn`; with an acknowledgement that waits it is one packet.
    fn acknowledge(&mut self, psn: Psn) {
        self.unacknowledged = 0;
        let msn = self.msn;
        let new =
            RcAnswer::Acknowledge { psn, syndrome: Syndrome::Ack { credit: NO_CREDITS }, msn };
        match self.answers.back_mut() {
            Some(last @ RcAnswer::Acknowledge { syndrome: Syndrome::Ack { .. }, .. }) => {
                *last = new
            }
            _ => self.answers.push_back(new),
        }
    }

    // Answers.

    /// The next answer packet. The error ends the connection, after that packet.
    pub(crate) fn poll(
        &mut self,
        cfg: &RcCfg,
        memory: &dyn RcMemory,
        counts: &mut RcCounts,
    ) -> Option<(RcPacket, Result<(), RcStatus>)> {
        let packet = |opcode, psn, ext| {
            let header = RoceHeader { bth: bth(cfg, opcode, psn), ext };
            (RcPacket { header, place: 0, len: 0 }, Ok(()))
        };
        let front = *self.answers.front()?;
        match front {
            RcAnswer::Acknowledge { psn, syndrome, msn } => {
                self.answers.pop_front();
                let ext = RoceExt { aeth: Some(Aeth { syndrome, msn }), ..RoceExt::default() };
                Some(packet(rc::ACKNOWLEDGE, psn, ext))
            }
            RcAnswer::Atomic { psn, original, msn } => {
                self.answers.pop_front();
                let aeth = Some(Aeth { syndrome: Syndrome::Ack { credit: NO_CREDITS }, msn });
                let atomic_ack = Some(AtomicAckEth { original });
                let ext = RoceExt { aeth, atomic_ack, ..RoceExt::default() };
                Some(packet(rc::ATOMIC_ACKNOWLEDGE, psn, ext))
            }
            RcAnswer::Read(read) => self.poll_read(cfg, read, memory, counts),
        }
    }

    fn poll_read(
        &mut self,
        cfg: &RcCfg,
        read: ReadAnswer,
        memory: &dyn RcMemory,
        counts: &mut RcCounts,
    ) -> Option<(RcPacket, Result<(), RcStatus>)> {
        let out = read.cut.next_packet((read.first.value(), read.len), cfg.path_mtu);
        let psn = read.first.plus(out.index);
        let at = read.remote.va.wrapping_add(read.cut.done().into());
        let found = match out.len {
            0 => Some(0),
            here => memory.resolve(read.remote.rkey, at, here, RcAccess::Read),
        };
        let Some(place) = found else {
            // The region was withdrawn since the request was accepted.
            self.withdraw(psn, Syndrome::RemoteAccess, counts);
            let (refusal, _) = self.poll(cfg, memory, counts)?;
            return Some((refusal, Err(RcStatus::RemoteAccess)));
        };
        // After a repeat the first packet of the rest has an AETH, wherever it lies in the READ.
        let opcode = match (read.is_started, out.last) {
            (false, true) => rc::READ_RESPONSE_ONLY,
            (false, false) => rc::READ_RESPONSE_FIRST,
            (true, false) => rc::READ_RESPONSE_MIDDLE,
            (true, true) => rc::READ_RESPONSE_LAST,
        };
        let aeth = Aeth { syndrome: Syndrome::Ack { credit: NO_CREDITS }, msn: read.msn };
        let aeth = (!read.is_started || out.last).then_some(aeth);
        let ext = RoceExt { aeth, ..RoceExt::default() };
        self.answers.pop_front();
        if !out.last {
            let mut rest = ReadAnswer { is_started: true, ..read };
            rest.cut.take(&out);
            self.answers.push_front(RcAnswer::Read(rest));
        }
        let header = RoceHeader { bth: bth(cfg, opcode, psn), ext };
        let len = out.len as usize;
        Some((RcPacket { header, place, len }, Ok(())))
    }

    /// Refuses a request that was accepted, in place of all answers.
    pub(crate) fn withdraw(&mut self, psn: Psn, syndrome: Syndrome, counts: &mut RcCounts) {
        self.answers.clear();
        self.refuse(psn, syndrome, counts);
    }

    /// Completes everything that is left: the receive of the message that failed with `status`, the
    /// others as flushed.
    pub(crate) fn fail(&mut self, status: RcStatus, completions: &mut VecDeque<RcCompletion>) {
        let started = match self.message.take() {
            Some(RcInbound::Send { receive, .. }) => Some(receive),
            _ => None,
        };
        // A message that does not fit fails at its first packet, too.
        let is_taken = started.is_some() || status == RcStatus::LocalLength;
        let mut status = if is_taken { status } else { RcStatus::Flushed };
        for receive in started.into_iter().chain(self.receives.drain(..)) {
            completions.push_back(RcCompletion::new(RcSource::Receive, receive.id, status));
            status = RcStatus::Flushed;
        }
        self.saved.clear();
    }
}

/// Answers that may wait besides those to READs and atomics.
const ANSWERS_MAX: usize = 16;
