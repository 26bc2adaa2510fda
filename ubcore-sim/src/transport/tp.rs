//! One TP: numbers, keeps, acknowledges and repeats packets between two nodes.
//!
//! - owns: both windows, the acknowledgement state, the timers of one direction pair.
//! - takes: transaction pieces to send, parsed packets, time.
//! - gives: packets (unsealed: the last four bytes are for the ICRC), pieces in order, deadlines.
//! - must not: know transaction opcodes, read a clock.

mod cfg;

use udma_abi::Nanos;
use urma_packet::{
    Ack, Body, DATA_OVERHEAD, HEADERS_MAX, ICRC_LEN, Mtu, Packet, PacketHeader, Psn,
    SACK_WORDS_MAX, SackBitmap, TransactionHeader,
};

pub(crate) use cfg::{PushError, Received, TpCfg, TpError, TpStats};

use super::knitting::{KnittingPool, LossError};
use super::receive::{Content, Piece, ReceiveWindow, WindowResult};
use super::send::SendWindow;
use super::strategy::{AckNews, Retransmission, retransmission};
use super::timer::{Expired, RtoTimer, Waiting};

/// Bytes that the buffer of [`Tp::poll_transmit`] must have.
pub(crate) const TRANSMIT_MAX: usize = HEADERS_MAX + Mtu::MAX.bytes() + ICRC_LEN;

/// Bytes of packets that pass every path.
const ALWAYS_PASSES: usize = DATA_OVERHEAD + Mtu::MIN.bytes();

/// Where AckReq lies: the top bit of byte 8 of the BTH (InfiniBand Architecture Specification,
/// 9.2), so that a kept packet can be sent again with the bit set.
const ACK_REQ: (usize, u8) = (8, 0x80);

/// When the next acknowledgement is due.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum AckState {
    /// Nothing was received since the last acknowledgement.
    Idle,
    /// At that time, or after more packets.
    Due(Nanos),
    /// Due now; all packets came in order.
    Now,
    /// Now, as a NAK.
    NowGap,
}

/// One transport path: windows, timer, strategy and loss record.
#[derive(Debug)]
pub(crate) struct Tp {
    cfg: TpCfg,
    tx: SendWindow,
    rx: ReceiveWindow,
    strategy: Box<dyn Retransmission>,
    timer: RtoTimer,
    ack: AckState,
    /// Packets received in order since the last acknowledgement.
    unacked: u32,
    /// PSN of the packet that the next acknowledgement answers.
    trigger: Psn,
    /// A congestion mark came since the last acknowledgement.
    congested: bool,
    /// The edge at which a NAK was sent: one per gap.
    gap_reported: Option<u64>,
    /// The edge of the last NAK that was received: a network may double it.
    gap_answered: Option<u64>,
    /// Latest transmission that the peer proved to have, see [`AckNews`].
    order_seen: u64,
    failed: Option<TpError>,
    /// Bytes of the longest packet that pieces join.
    longest: usize,
    /// The timer expired for a packet that a path may be too narrow for.
    long_lost: bool,
    stats: TpStats,
}

impl Tp {
    /// A TP in which nothing happened yet.
    pub(crate) fn new(cfg: TpCfg) -> Self {
        Self::with_strategy(cfg, retransmission(cfg.strategy))
    }

    fn with_strategy(cfg: TpCfg, strategy: Box<dyn Retransmission>) -> Self {
        let window = cfg.window_packets.clamp(1, urma_packet::WINDOW_MAX);
        let rx = if strategy.keeps_out_of_order() {
            ReceiveWindow::keeping(window, cfg.local_tpn.value())
        } else {
            ReceiveWindow::strict(window)
        };
        let ack_every = cfg.ack_every.clamp(1, (window / 4).max(1));
        Self {
            cfg: TpCfg { window_packets: window, ack_every, ..cfg },
            tx: SendWindow::new(window),
            rx,
            strategy,
            timer: RtoTimer::new(cfg.rto),
            ack: AckState::Idle,
            unacked: 0,
            trigger: cfg.rx_psn,
            congested: false,
            gap_reported: None,
            gap_answered: None,
            order_seen: 0,
            failed: None,
            longest: 0,
            long_lost: false,
            stats: TpStats::default(),
        }
    }

    /// Returns the settings that both sides agreed on.
    pub(crate) const fn cfg(&self) -> &TpCfg {
        &self.cfg
    }

    /// Whether [`Tp::push`] would find a place.
    pub(crate) const fn has_room(&self) -> bool {
        self.room() > 0
    }

    /// Places left in the send window: reserve before fetching what is to be sent.
    pub(crate) const fn room(&self) -> usize {
        self.tx.room()
    }

    /// Number of packets that wait to be sent for the first time.
    pub(crate) const fn queued(&self) -> usize {
        self.tx.queued()
    }

    /// Whether the peer acknowledged everything.
    pub(crate) const fn is_drained(&self) -> bool {
        self.tx.is_empty()
    }

    /// Smoothed round-trip time, in ns.
    pub(crate) fn rtt(&self) -> Option<Nanos> {
        self.timer.rtt()
    }

    /// Timeouts in a row without a sign of the peer.
    pub(crate) const fn timeouts(&self) -> u32 {
        self.timer.timeouts()
    }

    /// Why the TP gave up, if it did.
    pub(crate) const fn failed(&self) -> Option<TpError> {
        self.failed
    }

    /// Whether the timer expired since the last call for a packet that a path may be too narrow for.
    pub(crate) const fn take_long_lost(&mut self) -> bool {
        std::mem::replace(&mut self.long_lost, false)
    }

    /// Counts since it was made.
    pub(crate) const fn stats(&self) -> TpStats {
        self.stats
    }

    /// Pieces join a packet that was not sent yet, as long as it gets no longer than `longest` bytes; 0: they do
    /// not.
    pub(crate) const fn join_up_to(&mut self, longest: usize) {
        self.longest = longest;
    }

    /// Takes one piece into the window, as the next packet or with the last one. `fill` writes the `payload_len` bytes of
    /// payload; they are kept for retransmission, so the caller's memory is free at once.
    /// After a [`PushError`] nothing was accepted.
    pub(crate) fn push(
        &mut self,
        header: &TransactionHeader,
        payload_len: usize,
        fill: &mut dyn FnMut(&mut [u8]),
    ) -> Result<(), PushError> {
        if let Some(error) = self.failed {
            return Err(error.into());
        }
        if let Some(packet) = self.tx.last_unsent()
            && let Some(room) = urma_packet::join_pack(packet, (header, payload_len), self.longest)?
        {
            fill(&mut packet[room]);
            return Ok(());
        }
        self.push_packet(header, payload_len, |room| {
            fill(room);
            Ok::<(), PushError>(())
        })
    }

    /// As [`Tp::push`], always as a packet of its own; `fill` may fail: then nothing was accepted.
    pub(crate) fn push_packet<E: From<PushError>>(
        &mut self,
        header: &TransactionHeader,
        payload_len: usize,
        fill: impl FnOnce(&mut [u8]) -> Result<(), E>,
    ) -> Result<(), E> {
        if let Some(error) = self.failed {
            return Err(PushError::from(error).into());
        }
        if !self.has_room() {
            return Err(PushError::WindowFull.into());
        }
        let body = match header {
            TransactionHeader::Request(header) => Body::Request(*header),
            TransactionHeader::Response(header) => Body::Response(*header),
        };
        let psn = psn_of(self.cfg.tx_psn, self.tx.next());
        let packet = PacketHeader::new(self.cfg.peer_tpn, psn, body);
        self.tx.push(packet.packet_len(payload_len), |bytes| {
            let frame = packet.emit_headers(payload_len, bytes).map_err(PushError::from)?;
            fill(&mut bytes[frame.payload])
        })
    }

    /// Takes a packet whose DestQP is this TP and whose sender is its peer.
    pub(crate) fn on_packet(
        &mut self,
        now: Nanos,
        packet: &Packet<'_>,
        pool: &mut KnittingPool,
    ) -> Received {
        if self.failed.is_some() {
            return Received::NotAccepted;
        }
        let psn = packet.header.psn;
        match packet.header.body {
            Body::Request(header) => {
                let content = Content::One(TransactionHeader::Request(header));
                self.on_data(now, packet, content, pool)
            }
            Body::Response(header) => {
                let content = Content::One(TransactionHeader::Response(header));
                self.on_data(now, packet, content, pool)
            }
            Body::Pack => self.on_data(now, packet, Content::Pack, pool),
            Body::Ack(ack) => self.on_ack(now, psn, &ack, Gap::No),
            Body::Nak(ack) => self.on_ack(now, psn, &ack, Gap::Yes),
            Body::Connect(_)
            | Body::Challenge(_)
            | Body::Accept(_)
            | Body::Refuse(_)
            | Body::Close(_)
            | Body::UmSend(..)
            | Body::Probe(_)
            | Body::ProbeEcho(_) => Received::NotAccepted,
        }
    }

    /// The next received piece, in PSN order. Give its buffer back with [`Tp::recycle`].
    pub(crate) fn pop(&mut self) -> Option<Piece> {
        self.rx.pop()
    }

    /// Takes the buffer of a popped piece back, so that later packets need no new one.
    pub(crate) fn recycle(&mut self, piece: Piece) {
        self.rx.recycle(piece.payload);
    }

    /// The next packet to send at `now`, written to the front of `buf` (at least [`TRANSMIT_MAX`]
    /// bytes); its length, with four bytes at the end for the ICRC. Also where timers expire.
    pub(crate) fn poll_transmit(
        &mut self,
        now: Nanos,
        buf: &mut [u8],
        pool: &KnittingPool,
    ) -> Option<usize> {
        debug_assert!(buf.len() >= TRANSMIT_MAX, "the caller's buffer holds any packet");
        self.on_time(now);
        if self.failed.is_some() || buf.len() < TRANSMIT_MAX {
            return None;
        }
        if matches!(self.ack, AckState::Now | AckState::NowGap) {
            return self.emit_ack(buf, pool);
        }
        let interval = u64::from((self.cfg.window_packets / 4).max(1));
        let last = self.tx.room() == 0 && self.tx.unsent() + 1 == self.tx.next();
        let packet = self.tx.send_next(now)?;
        let ask = packet.again || last || (packet.seq + 1).is_multiple_of(interval);
        let len = packet.bytes.len();
        buf[..len].copy_from_slice(packet.bytes);
        if ask {
            buf[ACK_REQ.0] |= ACK_REQ.1;
        }
        let count = if packet.again { &mut self.stats.sent_again } else { &mut self.stats.sent };
        *count += 1;
        self.timer.on_sent(now);
        Some(len)
    }

    /// When [`Tp::poll_transmit`] has something to do without further input; a time in the past
    /// when it has now.
    pub(crate) fn poll_deadline(&self) -> Option<Nanos> {
        if self.failed.is_some() {
            return None;
        }
        if self.has_transmit() {
            return Some(0);
        }
        let ack = if let AckState::Due(at) = self.ack { Some(at) } else { None };
        match (ack, self.timer.deadline()) {
            (Some(a), Some(b)) => Some(a.min(b)),
            (a, b) => a.or(b),
        }
    }

    /// Whether [`Tp::poll_transmit`] would give a packet without any timer.
    pub(crate) fn has_transmit(&self) -> bool {
        self.failed.is_none()
            && (matches!(self.ack, AckState::Now | AckState::NowGap) || self.tx.has_sendable())
    }

    /// Gives what it holds of the pool back; call before dropping it.
    pub(crate) fn close(&mut self, pool: &mut KnittingPool) {
        self.rx.close(pool);
    }

    fn on_data(
        &mut self,
        now: Nanos,
        packet: &Packet<'_>,
        content: Content,
        pool: &mut KnittingPool,
    ) -> Received {
        let psn = packet.header.psn;
        let edge = psn_of(self.cfg.rx_psn, self.rx.edge());
        let distance = i64::from(psn.distance_from(edge));
        let kept = match self.rx.accept(pool, distance, content, packet.payload) {
            Ok(kept) => kept,
            Err(LossError::Exhausted) => {
                self.acknowledge(psn, AckState::Now);
                return Received::DroppedNoBlock;
            }
            Err(LossError::Corrupt) => {
                self.fail(TpError::PoolCorrupt);
                return Received::NotAccepted;
            }
        };
        self.congested |= packet.header.congestion.forward;
        if matches!(kept, WindowResult::InOrder | WindowResult::BeyondGap | WindowResult::Duplicate)
        {
            self.timer.on_received(now);
        }
        match kept {
            WindowResult::InOrder => {
                self.unacked += 1;
                let at_once = packet.header.ack_req || self.unacked >= self.cfg.ack_every;
                let due = now.saturating_add(self.cfg.ack_delay_ns);
                self.acknowledge(psn, if at_once { AckState::Now } else { AckState::Due(due) });
                Received::InOrder
            }
            WindowResult::BeyondGap => {
                self.acknowledge(psn, AckState::Now);
                Received::OutOfOrder
            }
            WindowResult::Duplicate => {
                self.acknowledge(psn, AckState::Now);
                Received::Duplicate
            }
            WindowResult::Dropped => {
                let edge = self.rx.edge();
                if self.gap_reported != Some(edge) {
                    self.gap_reported = Some(edge);
                    self.acknowledge(psn, AckState::NowGap);
                }
                Received::DroppedBeyondGap
            }
            WindowResult::Outside => Received::OutsideWindow,
        }
    }

    fn acknowledge(&mut self, trigger: Psn, wanted: AckState) {
        self.trigger = trigger;
        self.ack = match (self.ack, wanted) {
            (AckState::NowGap, _) | (_, AckState::NowGap) => AckState::NowGap,
            (AckState::Now, _) | (_, AckState::Now) => AckState::Now,
            (AckState::Due(at), AckState::Due(_)) => AckState::Due(at),
            (AckState::Idle, wanted) => wanted,
            (state, AckState::Idle) => state,
        };
    }

    fn on_ack(&mut self, now: Nanos, psn: Psn, ack: &Ack, gap: Gap) -> Received {
        let una = self.tx.una();
        let Ok(ahead) = u64::try_from(psn.distance_from(psn_of(self.cfg.tx_psn, una))) else {
            // Overtaken by a newer one.
            return Received::Acknowledged;
        };
        let edge = una + ahead;
        // Bits are for what is behind the edge, which is missing by definition.
        let last = ack.received.iter().last().map_or(edge, |bit| edge + 2 + u64::from(bit));
        if last > self.tx.unsent() {
            return Received::BadAck;
        }
        let trigger = self.on_trigger(now, ack.trigger);
        let rtt_min = self.timer.rtt_min();
        let mut order_seen = self.order_seen;
        let proves = |seq: u64, slot: &super::send::WindowSlot, order_seen: &mut u64| {
            // Of a packet sent several times the last transmission is proved only by an answer to
            // that very packet, and only when it could have come back by now. (A peer that did not
            // run for a while takes the first transmissions when the timer has expired here.)
            let is_late = now.saturating_sub(slot.sent_at()) >= rtt_min;
            if slot.sent_once_at().is_some() || (trigger == Some(seq) && is_late) {
                *order_seen = (*order_seen).max(slot.order());
            }
        };
        self.tx.advance(edge, |seq, slot| proves(seq, slot, &mut order_seen));
        let mut progress = ahead > 0;
        for bit in ack.received.iter() {
            let seq = edge + 1 + u64::from(bit);
            if let Some(slot) = self.tx.mark_sacked(seq) {
                proves(seq, slot, &mut order_seen);
                progress = true;
            }
        }
        self.order_seen = order_seen;
        let is_gap = gap == Gap::Yes && self.gap_answered.replace(edge) != Some(edge);
        let news = AckNews { edge, gap: is_gap, order_seen };
        self.strategy.on_ack(&news, &mut self.tx);
        if progress {
            let waiting = if self.tx.has_in_flight() { Waiting::Yes } else { Waiting::No };
            self.timer.on_progress(now, waiting);
        } else {
            self.timer.on_received(now);
        }
        Received::Acknowledged
    }

    /// Times the path by the packet that caused the acknowledgement; its sequence, if it is still in
    /// the window.
    fn on_trigger(&mut self, now: Nanos, trigger: Psn) -> Option<u64> {
        let una = self.tx.una();
        let distance = trigger.distance_from(psn_of(self.cfg.tx_psn, una));
        let seq = una + u64::try_from(distance).ok()?;
        if seq >= self.tx.unsent() {
            return None;
        }
        if let Some(sent_at) = self.tx.slot(seq).sent_once_at() {
            self.timer.on_sample(sent_at, now);
        }
        Some(seq)
    }

    fn on_time(&mut self, now: Nanos) {
        if let AckState::Due(at) = self.ack
            && at <= now
        {
            self.ack = AckState::Now;
        }
        match self.timer.on_time(now) {
            Ok(Expired::No) => {}
            Ok(Expired::Yes) => {
                self.stats.timeouts += 1;
                self.long_lost |= self.tx.slot(self.tx.una()).len() > ALWAYS_PASSES;
                self.strategy.on_timeout(&mut self.tx);
            }
            Err(_) => self.fail(TpError::Timeout),
        }
    }

    fn emit_ack(&mut self, buf: &mut [u8], pool: &KnittingPool) -> Option<usize> {
        let mut words = [0; SACK_WORDS_MAX];
        let Ok(count) = self.rx.sack(pool, &mut words) else {
            self.fail(TpError::PoolCorrupt);
            return None;
        };
        let received = SackBitmap::from_words(&words[..count]).unwrap_or_default();
        let ack = Ack {
            window: u16::try_from(self.rx.room()).unwrap_or(u16::MAX),
            congestion: self.congested,
            trigger: self.trigger,
            received,
        };
        let body = if self.ack == AckState::NowGap { Body::Nak(ack) } else { Body::Ack(ack) };
        let psn = psn_of(self.cfg.rx_psn, self.rx.edge());
        let header = PacketHeader::new(self.cfg.peer_tpn, psn, body);
        self.ack = AckState::Idle;
        self.unacked = 0;
        self.congested = false;
        self.stats.acks_sent += 1;
        // Field values of an acknowledgement cannot contradict each other, and the buffer is long
        // enough: emit_headers has no reason to refuse.
        header.emit_headers(0, buf).ok().map(|frame| frame.total)
    }

    fn fail(&mut self, error: TpError) {
        self.failed.get_or_insert(error);
    }
}

/// Whether an acknowledgement was a NAK.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Gap {
    Yes,
    No,
}

/// PSN of a sequence that started at `first`.
const fn psn_of(first: Psn, seq: u64) -> Psn {
    // PSNs wrap at 24 bits; the low bits of the sequence are all that counts.
    first.plus((seq & 0x00ff_ffff) as u32)
}

#[cfg(test)]
mod tests;
