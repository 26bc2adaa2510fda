//! An edge of the tree: messages in packets of the standard opcodes, and back.
//!
//! An edge is a pair of QPNs. On a *reliable* one (RC) the receiver acknowledges, and sends one NAK for each gap; the sender
//! goes back. An *unreliable* one (UC) has no acknowledgement: a gap drops the message it is in, and hosts repeat. The sender
//! keeps no bytes: what is sent again is read from its slot again.

use std::collections::VecDeque;
use std::net::SocketAddr;
use std::ops::Range;

use urma_packet::roce::{Aeth, ImmDt, Reth, RoceExt, RoceHeader, RocePacket, Syndrome, rc};
use urma_packet::{Bth, Congestion, PacketError, Psn, ResponseStatus, Tpn};

use crate::element::Reduction;
use crate::slots::{IncTime, WindowError, check_window};
use crate::wire::{Collective, HEADER_LEN, IncHeader, IncKind, Seq, TreeEpoch};

/// Packets of a message at most.
const PACKETS_MAX: u8 = 8;
/// Payloads that a packet of a path may have.
const PATH_MTUS: std::ops::RangeInclusive<u16> = 256..=4096;
/// Bytes of an immediate.
const IMMEDIATE_LEN: usize = 4;
/// Opcodes of UC are those of RC and this.
const TRANSPORT_UC: u8 = 0x20;
/// Packets after which the receiver acknowledges, and the sender asks for it.
const ACK_EVERY: u32 = 16;
/// Bounds of the retransmission timer.
const TIMER: Range<IncTime> = 1_000_000..100_000_000;
/// Rounds without progress, of timeouts or NAKs, after which an edge is dead.
const FRUITLESS_MAX: u32 = 7;
/// No edge is dead in a shorter time: the other end may be a process that waits for a processor.
const DEAD_MIN: IncTime = 500_000_000;

/// What repairs a loss.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Reliability {
    /// Acknowledgements and retransmission (RC).
    Reliable,
    /// The hosts' timers (UC).
    Unreliable,
}

/// How messages are moved.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MessageMode {
    /// SEND, into posted receives.
    Send,
    /// RDMA WRITE, into the window of the receiver.
    Write,
}

/// What a message consists of.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Framing {
    /// An INC header, and the chunk's number as immediate.
    Inc,
    /// Data alone, of an allreduce that was agreed before: the n-th message is chunk n.
    Plain(Reduction),
}

/// Memory of one end to which the other one writes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct WriteWindow {
    /// Address of the place of chunk 0.
    pub base: u64,
    /// Remote key of the memory.
    pub key: u32,
}

/// How messages travel on all edges of a communicator.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct EdgeAttributes {
    /// What repairs a loss.
    pub reliability: Reliability,
    /// How messages are moved.
    pub mode: MessageMode,
    /// What a message consists of.
    pub framing: Framing,
    /// Payload of a packet in bytes: 256 to 4096, a power of two.
    pub path_mtu: u16,
    /// Packets of a message at most, 1 to 8.
    pub packets: u8,
    /// Chunks of a window: a power of two, 2 to 1024.
    pub window: u32,
    /// Partition key of the tenant.
    pub pkey: u16,
    /// Where no switch of the topology can be had, members reduce in their own programs; or operations wait for switches.
    pub fallback: bool,
    /// Floats are added in the order of the children; if not, as they come, in less memory.
    pub is_ordered: bool,
}

/// One end of an edge, as the other end has to know it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct EdgeEnd {
    /// Where its packets arrive.
    pub address: SocketAddr,
    /// QPN that packets to it carry.
    pub qpn: Tpn,
    /// First PSN that it sends.
    pub first_psn: Psn,
    /// Its memory for WRITEs.
    pub window: WriteWindow,
}

/// An edge, as one of its ends sees it.
#[derive(Debug, Clone, Copy)]
pub struct EdgeCfg {
    /// How messages travel on it.
    pub attributes: EdgeAttributes,
    /// This end of the edge.
    pub here: EdgeEnd,
    /// The other end of it.
    pub there: EdgeEnd,
    /// Life of the tree, for messages without a header.
    pub epoch: TreeEpoch,
    /// Number of the first chunk, for messages without a header.
    pub first: Seq,
}

impl EdgeAttributes {
    /// Reliable, by SEND, one packet of 4096 bytes a message, 64 chunks in flight.
    pub const DEFAULT: Self = Self {
        reliability: Reliability::Reliable,
        mode: MessageMode::Send,
        framing: Framing::Inc,
        path_mtu: 4096,
        packets: 1,
        window: 64,
        pkey: 0xffff,
        fallback: true,
        is_ordered: true,
    };

    /// Whether such edges can be.
    ///
    /// # Errors
    /// [`EdgeCfgError`].
    pub fn check(&self) -> Result<(), EdgeCfgError> {
        if !self.path_mtu.is_power_of_two() || !PATH_MTUS.contains(&self.path_mtu) {
            return Err(EdgeCfgError::PathMtu(self.path_mtu));
        }
        if !(1..=PACKETS_MAX).contains(&self.packets) {
            return Err(EdgeCfgError::Packets(self.packets));
        }
        check_window(self.window)?;
        Ok(())
    }

    /// Whether contributions may have to wait for those of earlier children, which takes memory.
    #[must_use]
    pub const fn may_wait(&self) -> bool {
        self.is_ordered
            && match self.framing {
                // Operations with floats may come.
                Framing::Inc => true,
                Framing::Plain(reduction) => reduction.is_ordered(),
            }
    }

    /// Bytes of a message at most; also from one place of a window to the next.
    #[must_use]
    pub fn stride(&self) -> usize {
        usize::from(self.packets) * usize::from(self.path_mtu)
    }

    /// Bytes of data in a message at most.
    #[must_use]
    pub fn data_max(&self) -> usize {
        self.stride() - self.header_len()
    }

    /// Bytes of data that a host puts into a message at most. Of several packets by SEND all are alike in length then, if the
    /// elements fill the bytes, and else the last one is shorter: what the kernel sends as one run. The last one has an
    /// immediate, and would be longer than the others with as much payload.
    #[must_use]
    pub fn chunk_max(&self) -> usize {
        let has_longer_last = self.packets > 1 && self.framing == Framing::Inc;
        self.data_max() - if has_longer_last { IMMEDIATE_LEN } else { 0 }
    }

    /// Bytes of the INC header in a message.
    fn header_len(&self) -> usize {
        match self.framing {
            Framing::Inc => HEADER_LEN,
            Framing::Plain(_) => 0,
        }
    }
}

/// Why an edge cannot be made.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum EdgeCfgError {
    /// Not a power of two from 256 to 4096.
    #[error("a path MTU is a power of two from 256 to 4096 bytes, not {0}")]
    PathMtu(u16),
    /// None, or more than eight.
    #[error("a message has 1 to 8 packets, not {0}")]
    Packets(u8),
    /// Not a power of two from 2 to 1024.
    #[error(transparent)]
    Window(#[from] WindowError),
}

/// What happened on an edge.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct EdgeCounts {
    /// Packets that were refused, by the reasons of [`PacketError::REASONS`].
    pub refused: [u64; PacketError::REASONS.len()],
    /// Packets that came again.
    pub duplicates: u64,
    /// Gaps that were reported.
    pub naks: u64,
    /// Packets that were sent again.
    pub repeats: u64,
    /// Messages that were dropped for a gap in them.
    pub dropped: u64,
    /// Times that the timer ran out.
    pub timeouts: u64,
}

/// A packet to be sent: headers, then `inc`, then the bytes of the chunk's message that `data` names.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EdgePacket {
    /// BTH and extension headers.
    pub header: RoceHeader,
    /// The INC header, in the first packet of a message.
    pub inc: Option<[u8; HEADER_LEN]>,
    /// Chunk whose data is sent.
    pub seq: Seq,
    /// Bytes of the chunk's data.
    pub data: Range<usize>,
}

/// A message that is not acknowledged yet.
#[derive(Debug, Clone, Copy)]
struct Outgoing {
    first_psn: Psn,
    packets: u32,
    header: IncHeader,
    /// When its first packet was sent; `None`: not yet, or more than once.
    sent_at: Option<IncTime>,
}

/// One end of an edge.
#[derive(Debug, Clone)]
pub struct Edge {
    cfg: EdgeCfg,
    // Sending.
    outgoing: VecDeque<Outgoing>,
    /// PSN of the next message.
    next_psn: Psn,
    /// PSN of the next packet.
    send_psn: Psn,
    /// PSN after the last one that was ever sent.
    sent_psn: Psn,
    timer: Option<IncTime>,
    fruitless: u32,
    /// When the first of these rounds began.
    fruitless_since: IncTime,
    srtt: Option<IncTime>,
    /// The timer ran out: the oldest packet alone is sent until the other end shows what it has. Often all has arrived, and only
    /// its acknowledgement is late.
    is_probing: bool,
    /// Nothing is sent before this time: the receiver was not ready.
    not_before: Option<IncTime>,
    /// Packets since the last one that asked for an acknowledgement.
    unasked: u32,
    // Receiving.
    expected: Psn,
    is_nak_sent: bool,
    /// Messages that were received.
    msn: u32,
    /// Packets received since the last acknowledgement.
    unacked: u32,
    owed: Option<Syndrome>,
    message: Vec<u8>,
    /// The packets so far began a message.
    is_open: bool,
    dead: bool,
    counts: EdgeCounts,
}

/// PacketPlace of a packet in its message.
#[derive(Clone, Copy, PartialEq, Eq)]
struct PacketPlace {
    is_first: bool,
    is_last: bool,
}

impl Edge {
    /// An edge on which nothing was sent.
    ///
    /// # Errors
    /// [`EdgeCfgError`].
    pub fn new(cfg: EdgeCfg) -> Result<Self, EdgeCfgError> {
        cfg.attributes.check()?;
        let message = Vec::with_capacity(cfg.attributes.stride());
        Ok(Self {
            outgoing: VecDeque::new(),
            next_psn: cfg.here.first_psn,
            send_psn: cfg.here.first_psn,
            sent_psn: cfg.here.first_psn,
            timer: None,
            fruitless: 0,
            fruitless_since: 0,
            srtt: None,
            is_probing: false,
            not_before: None,
            unasked: 0,
            expected: cfg.there.first_psn,
            is_nak_sent: false,
            msn: 0,
            unacked: 0,
            owed: None,
            message,
            is_open: false,
            dead: false,
            counts: EdgeCounts::default(),
            cfg,
        })
    }

    /// Whether the other end does not answer any more, or refused what was sent.
    #[must_use]
    pub fn is_dead(&self) -> bool {
        self.dead
    }

    /// What happened so far.
    #[must_use]
    pub fn counts(&self) -> EdgeCounts {
        self.counts
    }

    /// Queues a message. Its data is asked for when its packets are sent, and asked for again when they are repeated.
    ///
    /// # Errors
    /// [`PacketError::Length`]: it does not fit the packets of a message.
    pub fn send(&mut self, header: &IncHeader) -> Result<(), PacketError> {
        let (_, found) = self.lengths(header);
        let (len, expected) = (found, self.message_max());
        if found > expected {
            return Err(PacketError::Length { expected, found });
        }
        let packets = len.div_ceil(usize::from(self.cfg.attributes.path_mtu)).max(1);
        let packets = u32::try_from(packets).unwrap_or(u32::MAX);
        let message =
            Outgoing { first_psn: self.next_psn, packets, header: *header, sent_at: None };
        self.outgoing.push_back(message);
        self.next_psn = self.next_psn.plus(packets);
        Ok(())
    }

    /// The data of all messages is gone, and `header` is to be sent instead, an abort. It takes the numbers of packets that
    /// the other end may not have; those that it has are duplicates to it.
    pub fn abort(&mut self, header: &IncHeader) {
        if self.cfg.attributes.framing != Framing::Inc {
            // Nothing can be said without a header.
            self.dead = true;
            return;
        }
        let end = self.outgoing.iter().rfind(|message| message.first_psn.is_before(self.sent_psn));
        let end = end.map_or(self.sent_psn, |message| message.first_psn.plus(message.packets));
        let start = self.outgoing.front().map_or(end, |message| message.first_psn);
        let count = u32::try_from(end.distance_from(start)).unwrap_or(0);
        self.outgoing = (0..=count)
            .map(|at| Outgoing {
                first_psn: start.plus(at),
                packets: 1,
                header: *header,
                sent_at: None,
            })
            .collect();
        self.next_psn = end.plus(1);
    }

    /// The other end has shown by its messages that it has all up to chunk `seq`, and so, as packets arrive in order, all that
    /// was sent before the first message of that chunk. Of a repeat behind it nothing is known: if it was lost, the other end
    /// waits for its number.
    pub fn on_proof(&mut self, now: IncTime, seq: Seq) {
        if !self.is_reliable() {
            // Behind a gap there may be more that has come, and what waits here has not been sent.
            return;
        }
        let mut proven = 0;
        for (at, message) in self.outgoing.iter().enumerate() {
            let is_sent = !self.sent_psn.is_before(message.first_psn.plus(message.packets));
            let is_first = !message.header.is_repeat;
            if !is_sent || is_first && seq.is_before(message.header.seq) {
                break;
            }
            if is_first {
                proven = at + 1;
            }
        }
        let is_progress = proven != 0;
        if is_progress {
            self.is_probing = false;
            let last = self.outgoing.drain(..proven).next_back();
            // What was to be sent again has arrived.
            let end = last.map(|last| last.first_psn.plus(last.packets));
            if let Some(end) = end.filter(|end| self.send_psn.is_before(*end)) {
                self.send_psn = end;
            }
            // A link that loses some packets is not a dead one.
            self.fruitless = 0;
        }
        self.empty_repeats(seq);
        if is_progress {
            // What is left has its own time from now on, as after an acknowledgement.
            self.timer = self.outgoing.front().map(|_| now + self.timeout());
        }
    }

    /// The data of a packet that was asked for is gone. A reliable edge cannot go on without it.
    pub fn on_data_gone(&mut self) {
        self.dead |= self.is_reliable();
    }

    /// What is left of repeats up to chunk `seq` is not needed, and its data may be gone: a message of an earlier life, which
    /// every receiver passes over, takes its packet's number.
    fn empty_repeats(&mut self, seq: Seq) {
        let epoch = TreeEpoch(self.cfg.epoch.0.wrapping_sub(1));
        for message in &mut self.outgoing {
            let header = &mut message.header;
            if header.is_repeat && message.packets == 1 && !seq.is_before(header.seq) {
                let kind = IncKind::Contribution(Collective::Barrier);
                *header = IncHeader { kind, epoch, op_id: 0, is_last: false, count: 0, ..*header };
            }
        }
    }

    /// A packet for this end, whose ICRC was verified. The message that it completes, if it does: its header and its data.
    ///
    /// # Errors
    /// [`PacketError`]: the packet is refused, and counted.
    pub fn on_packet<'a>(
        &'a mut self,
        now: IncTime,
        packet: &RocePacket<'a>,
    ) -> Result<Option<(IncHeader, &'a [u8])>, PacketError> {
        let bth = &packet.header.bth;
        if self.dead {
            return Ok(None);
        }
        if bth.dest != self.cfg.here.qpn || bth.pkey != self.cfg.attributes.pkey {
            return self.refuse(field("destination QP", bth.dest.value().into()));
        }
        if bth.opcode == rc::ACKNOWLEDGE && self.is_reliable() {
            if let Some(aeth) = packet.header.ext.aeth {
                self.on_acknowledge(now, bth.psn, aeth.syndrome);
            }
            return Ok(None);
        }
        let Some(place) = self.place_of(bth.opcode) else {
            return self.refuse(PacketError::Opcode(bth.opcode));
        };
        let distance = bth.psn.distance_from(self.expected);
        if self.is_reliable() && distance != 0 {
            if distance < 0 {
                self.counts.duplicates += 1;
                self.owed = Some(POSITIVE);
            } else if !self.is_nak_sent {
                self.is_nak_sent = true;
                self.counts.naks += 1;
                self.owed = Some(Syndrome::PsnSequence);
            }
            return Ok(None);
        }
        if distance != 0 && std::mem::take(&mut self.is_open) {
            self.counts.dropped += 1;
        }
        if place.is_first == self.is_open {
            if self.is_reliable() {
                self.owed = Some(Syndrome::InvalidRequest);
                return self.refuse(PacketError::Opcode(bth.opcode));
            }
            if !place.is_first {
                // The rest of a message whose beginning was lost.
                self.expected = bth.psn.plus(1);
                return Ok(None);
            }
            self.counts.dropped += 1;
        }
        if place.is_first
            && let Err(error) = self.check_place(packet)
        {
            if self.is_reliable() {
                self.owed = Some(Syndrome::RemoteAccess);
            }
            return self.refuse(error);
        }
        self.take_packet(packet, place)
    }

    /// A packet at its turn.
    fn take_packet<'a>(
        &'a mut self,
        packet: &RocePacket<'a>,
        place: PacketPlace,
    ) -> Result<Option<(IncHeader, &'a [u8])>, PacketError> {
        let bth = &packet.header.bth;
        self.expected = bth.psn.plus(1);
        self.is_nak_sent = false;
        self.is_open = !place.is_last;
        self.unacked += 1;
        if self.is_reliable() && (bth.ack_req || self.unacked >= ACK_EVERY) {
            self.owed = Some(POSITIVE);
        }
        if place.is_first {
            self.message.clear();
        }
        let len = self.message.len() + packet.payload.len();
        let expected = self.message_max();
        if len > expected {
            self.is_open = false;
            return self.refuse(PacketError::Length { expected, found: len });
        }
        if !place.is_last {
            self.message.extend_from_slice(packet.payload);
            return Ok(None);
        }
        let number = self.msn;
        self.msn = self.msn.wrapping_add(1);
        let imm = packet.header.ext.imm.map(|imm| imm.value);
        let parsed = if place.is_first {
            self.parse(packet.payload, imm, number)
        } else {
            self.message.extend_from_slice(packet.payload);
            self.parse(&self.message, imm, number)
        };
        match parsed {
            // Borrowed again: a refusal is counted.
            Ok((header, at)) if place.is_first => Ok(Some((header, &packet.payload[at..]))),
            Ok((header, at)) => Ok(Some((header, &self.message[at..]))),
            Err(error) => self.refuse(error),
        }
    }

    /// Header of a whole message, and where its data begins.
    fn parse(
        &self,
        message: &[u8],
        imm: Option<u32>,
        number: u32,
    ) -> Result<(IncHeader, usize), PacketError> {
        match (self.cfg.attributes.framing, imm) {
            (Framing::Inc, Some(imm)) => {
                let (header, _) = IncHeader::parse_with_imm(message, imm)?;
                Ok((header, HEADER_LEN))
            }
            (Framing::Inc, None) => Err(field("immediate", 0)),
            (Framing::Plain(reduction), _) => {
                let size = reduction.element().size();
                let (count, rest) = (message.len() / size, message.len() % size);
                let count = u16::try_from(count).ok().filter(|_| rest == 0);
                let found = message.len();
                let count = count.ok_or(PacketError::Length { expected: found - rest, found })?;
                let header = IncHeader {
                    kind: IncKind::Contribution(Collective::Allreduce(reduction)),
                    seq: self.cfg.first.plus(number),
                    epoch: self.cfg.epoch,
                    op_id: 0,
                    is_repeat: false,
                    is_last: false,
                    count,
                };
                Ok((header, 0))
            }
        }
    }

    /// Of a WRITE: whether it goes to the place of its chunk, with the key of this end.
    fn check_place(&self, packet: &RocePacket<'_>) -> Result<(), PacketError> {
        let Some(reth) = packet.header.ext.reth else { return Ok(()) };
        let seq = match self.cfg.attributes.framing {
            Framing::Plain(_) => self.cfg.first.plus(self.msn),
            Framing::Inc => {
                let bytes = packet.payload.get(4..8).and_then(|bytes| bytes.first_chunk());
                let have = packet.payload.len();
                let bytes = bytes.ok_or(PacketError::Truncated { needed: HEADER_LEN, have })?;
                Seq(u32::from_be_bytes(*bytes))
            }
        };
        if reth.rkey != self.cfg.here.window.key {
            return Err(field("remote key", reth.rkey.into()));
        }
        if reth.va != self.place(self.cfg.here.window, seq) {
            return Err(field("virtual address", reth.va));
        }
        if u64::from(reth.dma_len) > self.stride() {
            return Err(field("DMA length", reth.dma_len.into()));
        }
        Ok(())
    }

    /// An acknowledgement of the other end.
    fn on_acknowledge(&mut self, now: IncTime, psn: Psn, syndrome: Syndrome) {
        let (acked, goes_back) = match syndrome {
            Syndrome::Ack { .. } => (psn.plus(1), false),
            Syndrome::PsnSequence => (psn, true),
            Syndrome::RnrNak { .. } => (psn, true),
            Syndrome::InvalidRequest
            | Syndrome::RemoteAccess
            | Syndrome::RemoteOperation
            | Syndrome::InvalidRdRequest => {
                self.dead = true;
                return;
            }
        };
        // Of what was never sent, or was acknowledged before, nothing is to be learned.
        let Some(first) = self.outgoing.front().map(|message| message.first_psn) else { return };
        if self.sent_psn.is_before(acked) || acked.is_before(first) {
            return;
        }
        self.is_probing = false;
        let mut is_progress = false;
        while let Some(first) = self.outgoing.front()
            && !acked.is_before(first.first_psn.plus(first.packets))
        {
            if let Some(sent_at) = first.sent_at {
                let sample = now.saturating_sub(sent_at);
                self.srtt = Some(self.srtt.map_or(sample, |srtt| srtt - srtt / 8 + sample / 8));
            }
            self.outgoing.pop_front();
            is_progress = true;
        }
        if is_progress {
            self.fruitless = 0;
        } else if syndrome == Syndrome::PsnSequence {
            self.count_fruitless(now, now);
        }
        if self.send_psn.is_before(acked) {
            self.send_psn = acked;
        }
        if goes_back {
            self.go_back(acked);
        }
        let mut start = now;
        if let Syndrome::RnrNak { timer } = syndrome {
            start = now.saturating_add(ResponseStatus::rnr_timer_ns(timer));
            self.not_before = Some(start);
        }
        self.timer = self.outgoing.front().map(|_| start + self.timeout());
    }

    /// A round of the sender that ended at `end` brought nothing.
    fn count_fruitless(&mut self, now: IncTime, end: IncTime) {
        if self.fruitless == 0 {
            self.fruitless_since = end;
        }
        self.fruitless += 1;
        let is_long = now.saturating_sub(self.fruitless_since) >= DEAD_MIN;
        self.dead |= self.fruitless >= FRUITLESS_MAX && is_long;
    }

    /// Everything from `psn` on is sent again.
    fn go_back(&mut self, psn: Psn) {
        if psn.is_before(self.send_psn) {
            self.send_psn = psn;
            for message in &mut self.outgoing {
                message.sent_at = None;
            }
        }
    }

    /// The time has come that [`Edge::poll_deadline`] gave.
    pub fn on_time(&mut self, now: IncTime) {
        self.not_before = self.not_before.filter(|at| *at > now);
        let Some(timer) = self.timer.filter(|at| *at <= now) else { return };
        self.counts.timeouts += 1;
        self.count_fruitless(now, timer);
        if let Some(first) = self.outgoing.front() {
            self.go_back(first.first_psn);
            self.is_probing = true;
        }
        self.timer = Some(now + self.timeout());
    }

    /// When [`Edge::on_time`] is due; `None`: nothing waits for an acknowledgement, or for a receiver to be ready.
    #[must_use]
    pub fn poll_deadline(&self) -> Option<IncTime> {
        if self.dead { None } else { self.timer.into_iter().chain(self.not_before).min() }
    }

    /// The next packet to be sent.
    pub fn poll_packet(&mut self, now: IncTime) -> Option<EdgePacket> {
        if let Some(syndrome) = self.owed.take() {
            return Some(self.acknowledgement(syndrome));
        }
        if self.dead || self.not_before.is_some_and(|at| now < at) {
            return None;
        }
        let is_within = |message: &Outgoing| {
            let at = self.send_psn.distance_from(message.first_psn);
            (0..message.packets).contains(&u32::try_from(at).unwrap_or(u32::MAX))
        };
        let index = self.outgoing.iter().position(is_within)?;
        let message = self.outgoing[index];
        if self.is_probing && self.outgoing.front().is_some_and(|f| f.first_psn != self.send_psn) {
            return None;
        }
        let nth = message.first_psn;
        let nth = u32::try_from(self.send_psn.distance_from(nth)).unwrap_or(0);
        let is_repeat = self.send_psn.is_before(self.sent_psn);
        self.counts.repeats += u64::from(is_repeat);
        self.unasked += 1;
        let asks = self.is_reliable() && (is_repeat || self.unasked >= ACK_EVERY);
        if asks {
            self.unasked = 0;
        }
        let packet = self.packet(&message, nth, asks);
        if nth == 0 && !is_repeat {
            self.outgoing[index].sent_at = Some(now);
        }
        self.send_psn = self.send_psn.plus(1);
        if self.sent_psn.is_before(self.send_psn) {
            self.sent_psn = self.send_psn;
        }
        if self.is_reliable() {
            self.timer = self.timer.or_else(|| Some(now + self.timeout()));
        } else if nth + 1 == message.packets {
            self.outgoing.pop_front();
        }
        Some(packet)
    }

    fn packet(&self, message: &Outgoing, nth: u32, asks: bool) -> EdgePacket {
        let (header_len, len) = self.lengths(&message.header);
        let mtu = usize::from(self.cfg.attributes.path_mtu);
        let start = nth as usize * mtu;
        let end = len.min(start + mtu);
        let data = start.saturating_sub(header_len)..end.saturating_sub(header_len);
        let place = PacketPlace { is_first: nth == 0, is_last: nth + 1 == message.packets };
        let has_imm = place.is_last && self.cfg.attributes.framing == Framing::Inc;
        let seq = message.header.seq;
        let is_write = self.cfg.attributes.mode == MessageMode::Write;
        let reth = (is_write && place.is_first).then(|| Reth {
            va: self.place(self.cfg.there.window, seq),
            rkey: self.cfg.there.window.key,
            dma_len: u32::try_from(len).unwrap_or(u32::MAX),
        });
        let ext =
            RoceExt { reth, imm: has_imm.then_some(ImmDt { value: seq.0 }), ..RoceExt::default() };
        let opcode = self.opcode(place, has_imm);
        let header = RoceHeader { bth: self.bth(opcode, message.first_psn.plus(nth), asks), ext };
        let inc = (place.is_first && header_len != 0).then(|| message.header.to_bytes());
        EdgePacket { header, inc, seq, data }
    }

    fn acknowledgement(&mut self, syndrome: Syndrome) -> EdgePacket {
        self.unacked = 0;
        let psn = match syndrome {
            Syndrome::Ack { .. } => self.expected.plus(0x00ff_ffff),
            Syndrome::RnrNak { .. }
            | Syndrome::PsnSequence
            | Syndrome::InvalidRequest
            | Syndrome::RemoteAccess
            | Syndrome::RemoteOperation
            | Syndrome::InvalidRdRequest => self.expected,
        };
        let aeth = Some(Aeth { syndrome, msn: self.msn & 0x00ff_ffff });
        let ext = RoceExt { aeth, ..RoceExt::default() };
        let header = RoceHeader { bth: self.bth(rc::ACKNOWLEDGE, psn, false), ext };
        EdgePacket { header, inc: None, seq: Seq(0), data: 0..0 }
    }

    fn bth(&self, opcode: u8, psn: Psn, ack_req: bool) -> Bth {
        Bth {
            opcode,
            solicited: false,
            mig_req: false,
            pad: 0,
            version: 0,
            pkey: self.cfg.attributes.pkey,
            congestion: Congestion::default(),
            dest: self.cfg.there.qpn,
            ack_req,
            repeated: false,
            psn,
        }
    }

    /// Bytes of the INC header in a message, and of the whole message.
    fn lengths(&self, header: &IncHeader) -> (usize, usize) {
        let header_len = self.cfg.attributes.header_len();
        (header_len, header_len + header.data_len())
    }

    fn stride(&self) -> u64 {
        self.message_max() as u64
    }

    /// Bytes of a message at most.
    fn message_max(&self) -> usize {
        self.cfg.attributes.stride()
    }

    /// Address of a chunk's place in a window.
    fn place(&self, window: WriteWindow, seq: Seq) -> u64 {
        let places = 2 * u64::from(self.cfg.attributes.window);
        window.base.wrapping_add(u64::from(seq.0) % places * self.stride())
    }

    fn timeout(&self) -> IncTime {
        let rtt = self.srtt.map_or(TIMER.start, |srtt| 4 * srtt);
        (rtt.max(TIMER.start) << self.fruitless.min(16)).min(TIMER.end)
    }

    fn is_reliable(&self) -> bool {
        self.cfg.attributes.reliability == Reliability::Reliable
    }

    fn opcode(&self, place: PacketPlace, has_imm: bool) -> u8 {
        let is_write = self.cfg.attributes.mode == MessageMode::Write;
        let opcode = match (is_write, place.is_first, place.is_last, has_imm) {
            (false, true, false, _) => rc::SEND_FIRST,
            (false, false, false, _) => rc::SEND_MIDDLE,
            (false, false, true, false) => rc::SEND_LAST,
            (false, false, true, true) => rc::SEND_LAST_IMM,
            (false, true, true, false) => rc::SEND_ONLY,
            (false, true, true, true) => rc::SEND_ONLY_IMM,
            (true, true, false, _) => rc::WRITE_FIRST,
            (true, false, false, _) => rc::WRITE_MIDDLE,
            (true, false, true, false) => rc::WRITE_LAST,
            (true, false, true, true) => rc::WRITE_LAST_IMM,
            (true, true, true, false) => rc::WRITE_ONLY,
            (true, true, true, true) => rc::WRITE_ONLY_IMM,
        };
        if self.is_reliable() { opcode } else { opcode | TRANSPORT_UC }
    }

    /// The place that an opcode of this edge stands for; `None`: it is of another transport, mode or framing.
    fn place_of(&self, opcode: u8) -> Option<PacketPlace> {
        let all = [(true, true), (true, false), (false, false), (false, true)];
        let places = all.map(|(is_first, is_last)| PacketPlace { is_first, is_last });
        let has_imm = self.cfg.attributes.framing == Framing::Inc;
        places.into_iter().find(|place| self.opcode(*place, has_imm && place.is_last) == opcode)
    }

    fn refuse<T>(&mut self, error: PacketError) -> Result<T, PacketError> {
        self.counts.refused[error.index()] += 1;
        Err(error)
    }
}

const POSITIVE: Syndrome = Syndrome::Ack { credit: 0x1f };

const fn field(field: &'static str, value: u64) -> PacketError {
    PacketError::Field { field, value }
}
