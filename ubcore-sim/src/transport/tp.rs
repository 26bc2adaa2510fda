//! One TP: numbers, stores, acknowledges and retransmits packets between two nodes.
//!
//! - owns: a sender and a receiver, which count in sequences; the bytes of their windows; the mapping to PSNs.
//! - takes: transaction pieces to send, parsed packets, time.
//! - gives: packets (unsealed: the last four bytes are for the ICRC), pieces in order, deadlines.
//! - must not: know transaction opcodes, read a clock.

mod cfg;
mod losses;
mod repair;

use std::ops::Range;

use udma_abi::Nanos;
use urma_packet::{
    Ack, Body, DATA_OVERHEAD, HEADERS_MAX, ICRC_LEN, Mtu, Packet, PacketHeader, Psn, Repeat,
    SACK_WORDS_MAX, SackBitmap, TransactionHeader, repeat_packet,
};
use urma_recovery::{
    AckFeedback, AckPolicy, Arrival, CongestionChoice, DataMark, Expired, KnittingPool, LossError,
    LossRecord, NeverSent, Retransmission, SenderCfg, SenderStats, TpReceiver, TpSender,
};

pub(crate) use cfg::{PushError, Received, TpCfg, TpError, TpStats};

use crate::fault::Faults;

use super::receive::{Content, Piece, ReceiveWindow, WindowResult};
use super::repair::RepairStore;
use super::ring::{Ring, SPARE_MAX, WINDOW_BYTES};
use super::strategy::Strategy;

/// Buffer size that [`Tp::poll_transmit`] needs, in bytes.
pub(crate) const TRANSMIT_MAX: usize = HEADERS_MAX + Mtu::MAX.bytes() + ICRC_LEN;

/// Packet length that passes every path, in bytes.
const ALWAYS_PASSES: usize = DATA_OVERHEAD + Mtu::MIN.bytes();

/// Position of AckReq, which is set in stored packets when they are retransmitted: the top bit of byte 8 of the BTH
/// (InfiniBand Architecture Specification, 9.2).
const ACK_REQ: (usize, u8) = (8, 0x80);

/// Trigger distance of an acknowledgement that no data packet caused: outside every window.
const NO_TRIGGER: u32 = 0x00c0_0000;

/// Transport path between two nodes: sender, receiver, the bytes of both windows.
#[derive(Debug)]
pub(crate) struct Tp {
    cfg: TpCfg,
    tx: TpSender,
    packets: SendStore,
    rx: ReceiveWindow,
    /// Packets stored for repair packets; `None`: the peer has sent no repair packet for long.
    repairs: Option<Box<RepairStore>>,
    repairs_sent: u64,
    repaired: u64,
    faults: Faults,
    /// Whether a congestion mark arrived since the last acknowledgement.
    congested: bool,
    failed: Option<TpError>,
    /// Longest packet that further pieces may join, in bytes.
    longest: usize,
    /// Whether the timer expired for a packet that may be too long for the path.
    long_lost: bool,
    /// Route of the last packet; `None`: it was an acknowledgement.
    route: Option<u8>,
    /// Whether the last packet was sent for the first time, so that others may follow it at once.
    has_begun_run: bool,
}

impl Tp {
    /// Creates a TP in its initial state.
    pub(crate) fn new(cfg: TpCfg) -> Self {
        let recovery = cfg.strategy.recovery(cfg.adamap);
        let record = recovery.record(cfg.local_tpn.value());
        Self::with_strategy(cfg, recovery.retransmission(), record)
    }

    pub(super) fn with_strategy(
        cfg: TpCfg,
        strategy: Box<dyn Retransmission>,
        record: Box<dyn LossRecord>,
    ) -> Self {
        let window = cfg.window_packets.clamp(1, urma_packet::WINDOW_MAX);
        // IRN needs an acknowledgement of every packet.
        let each = cfg.strategy == Strategy::Irn;
        let path = cfg.path_packets.clamp(1, window);
        let ack_every = if each { 1 } else { cfg.ack_every.clamp(1, (path / 4).max(1)) };
        let sender = SenderCfg {
            window_packets: window,
            recovery: cfg.strategy.recovery(cfg.adamap),
            rto: cfg.rto,
            congestion: cfg.congestion,
        };
        let policy = AckPolicy { every: ack_every, delay_ns: cfg.ack_delay_ns };
        let mut tx = TpSender::with_strategy(&sender, strategy);
        tx.bound_path(path);
        // The loss of the path is learnt.
        tx.protect_tail(0.0);
        Self {
            cfg: TpCfg { window_packets: window, path_packets: path, ack_every, ..cfg },
            tx,
            packets: SendStore::new(window),
            rx: ReceiveWindow::new(window, TpReceiver::new(record, policy)),
            repairs: None,
            repairs_sent: 0,
            repaired: 0,
            faults: Faults::default(),
            congested: false,
            failed: None,
            longest: 0,
            long_lost: false,
            route: None,
            has_begun_run: false,
        }
    }

    /// Plants faults, for tests.
    pub(super) const fn plant(&mut self, faults: Faults) {
        self.faults = faults;
    }

    /// Returns the settings that both sides agreed on.
    pub(crate) const fn cfg(&self) -> &TpCfg {
        &self.cfg
    }

    /// Whether [`Tp::push`] has room.
    pub(crate) const fn has_room(&self) -> bool {
        self.room() > 0
    }

    /// Free places in the send window; check before fetching what to send.
    pub(crate) const fn room(&self) -> usize {
        if self.packets.bytes < WINDOW_BYTES { self.tx.ledger().room() } else { 0 }
    }

    /// Number of packets that were never sent yet.
    pub(crate) const fn queued(&self) -> usize {
        self.tx.ledger().queued()
    }

    /// Whether everything sent is acknowledged.
    pub(crate) const fn is_drained(&self) -> bool {
        self.tx.ledger().is_empty()
    }

    /// Smoothed round-trip time, in ns.
    pub(crate) fn rtt(&self) -> Option<Nanos> {
        self.tx.timer().rtt()
    }

    /// The recovery strategy that both nodes agreed on.
    pub(crate) const fn strategy(&self) -> Strategy {
        self.cfg.strategy
    }

    /// The congestion control of this side.
    pub(crate) const fn congestion(&self) -> CongestionChoice {
        self.cfg.congestion
    }

    /// Congestion window in packets, if there is congestion control.
    pub(crate) fn congestion_window(&self) -> Option<u64> {
        self.tx.congestion_window()
    }

    /// Why the TP failed, if it did.
    pub(crate) const fn failed(&self) -> Option<TpError> {
        self.failed
    }

    /// Whether the timer expired, since the last call, for a packet that may be too long for the path.
    pub(crate) const fn take_long_lost(&mut self) -> bool {
        std::mem::replace(&mut self.long_lost, false)
    }

    /// Counts since the TP was created.
    pub(crate) const fn stats(&self) -> TpStats {
        let SenderStats { sent, sent_again, timeouts } = self.tx.stats();
        TpStats {
            sent,
            sent_again,
            timeouts,
            acks_sent: self.rx.ack().acks_sent(),
            repairs_sent: self.repairs_sent,
            repaired: self.repaired,
        }
    }

    /// Lets pieces join an unsent packet, up to `longest` bytes; 0: never.
    pub(crate) const fn join_up_to(&mut self, longest: usize) {
        self.longest = longest;
    }

    /// Appends one piece to the window, as the next packet or joined to the last one. `fill` writes the `payload_len` bytes
    /// of payload, which are stored for retransmission; the caller's memory is not needed afterwards. After a
    /// [`PushError`] nothing was accepted.
    pub(crate) fn push(
        &mut self,
        header: &TransactionHeader,
        payload_len: usize,
        fill: &mut dyn FnMut(&mut [u8]),
    ) -> Result<(), PushError> {
        if let Some(error) = self.failed {
            return Err(error.into());
        }
        let longest = self.longest;
        if let Some(packet) = self.last_unsent() {
            let before = packet.len();
            if let Some(room) = urma_packet::join_pack(packet, (header, payload_len), longest)? {
                fill(&mut packet[room]);
                let joined = packet.len() - before;
                self.packets.bytes += joined;
                return Ok(());
            }
        }
        self.push_packet(header, payload_len, |room| {
            fill(room);
            Ok::<(), PushError>(())
        })
    }

    /// Appends one piece as a packet of its own, unlike [`Tp::push`]. If `fill` fails, nothing was accepted.
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
        let seq = self.tx.ledger().next();
        let psn = psn_of(self.cfg.tx_psn, seq);
        let packet = PacketHeader::new(self.cfg.peer_tpn, psn, body);
        self.packets.store(seq, packet.packet_len(payload_len), |bytes| {
            let frame = packet.emit_headers(payload_len, bytes).map_err(PushError::from)?;
            fill(&mut bytes[frame.payload])
        })?;
        self.tx.push();
        Ok(())
    }

    /// The newest packet, if it was never sent.
    fn last_unsent(&mut self) -> Option<&mut Vec<u8>> {
        let ledger = self.tx.ledger();
        (ledger.unsent() < ledger.next()).then(|| self.packets.packet_mut(ledger.next() - 1))
    }

    /// Processes a packet of the peer whose DestQP is this TP.
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
        if let Some(content) = Content::of(&packet.header.body) {
            return self.on_data(now, packet, content, pool);
        }
        match packet.header.body {
            Body::Ack(ack) => self.on_ack(now, psn, &ack, Gap::No),
            Body::Nak(ack) => self.on_ack(now, psn, &ack, Gap::Yes),
            Body::Losses(losses) => self.on_losses(now, &losses),
            Body::Tail(tail) => self.on_tail(now, psn, &tail, pool),
            Body::Repair(repair) => {
                self.tx.on_received(now);
                self.on_repair(psn, &repair, packet.payload)
            }
            Body::Request(_)
            | Body::Response(_)
            | Body::Pack
            | Body::Connect(_)
            | Body::Challenge(_)
            | Body::Accept(_)
            | Body::Refuse(_)
            | Body::Close(_)
            | Body::UmSend(..)
            | Body::Probe(_)
            | Body::ProbeEcho(_) => Received::NotAccepted,
        }
    }

    /// Whether there are pieces for [`Tp::pop`].
    pub(crate) fn has_pieces(&self) -> bool {
        self.rx.has_pieces()
    }

    /// Returns the next received piece, in PSN order. Return its buffer with [`Tp::recycle`].
    pub(crate) fn pop(&mut self) -> Option<Piece> {
        self.rx.pop()
    }

    /// Reuses the buffer of a popped piece for later packets.
    pub(crate) fn recycle(&mut self, piece: Piece) {
        self.rx.recycle(piece.payload);
    }

    /// Writes the next packet to send at `now` to the front of `buf` (at least [`TRANSMIT_MAX`] bytes). Returns its
    /// length, with four bytes at the end for the ICRC. Also called when timers expire.
    pub(crate) fn poll_transmit(
        &mut self,
        now: Nanos,
        buf: &mut [u8],
        pool: &mut KnittingPool,
    ) -> Option<usize> {
        debug_assert!(buf.len() >= TRANSMIT_MAX, "the caller's buffer holds any packet");
        self.on_time(now, pool);
        if self.failed.is_some() || buf.len() < TRANSMIT_MAX {
            return None;
        }
        self.route = None;
        self.has_begun_run = false;
        if self.rx.ack().has_ack() {
            return self.emit_ack(buf, pool);
        }
        if self.rx.ack().has_report() {
            return self.emit_report(buf);
        }
        let interval = u64::from((self.cfg.path_packets / 4).max(1));
        let ledger = self.tx.ledger();
        let last = self.room() == 0 && ledger.unsent() + 1 == ledger.next();
        let Some(sending) = self.tx.poll(now) else {
            return self.emit_repair(now, buf).or_else(|| self.emit_tail(now, buf));
        };
        self.route = Some(sending.route);
        self.has_begun_run = !sending.is_again();
        // A delayed acknowledgement waits for its time if no more packets may follow.
        let ask = sending.is_again() || last || self.tx.is_path_full();
        let ask = ask || (sending.seq + 1).is_multiple_of(interval);
        let packet = self.packets.packet(sending.seq);
        let len = match sending.answers {
            (0, _) => copy_packet(packet, buf),
            (tier, ticket) => repeat_packet(packet, Repeat { tier, ticket }, buf)?,
        };
        if ask {
            buf[ACK_REQ.0] |= ACK_REQ.1;
        }
        Some(len)
    }

    /// Whether [`Tp::poll_follower`] may be called next.
    pub(crate) const fn begins_run(&self) -> bool {
        self.has_begun_run
    }

    /// Writes another new packet to the front of `buf`, right after [`Tp::poll_transmit`] wrote one at `now`, if it has at
    /// most `size` bytes.
    pub(crate) fn poll_follower(
        &mut self,
        now: Nanos,
        buf: &mut [u8],
        size: usize,
    ) -> Option<usize> {
        let ledger = self.tx.ledger();
        let (seq, left) = (ledger.unsent(), ledger.queued());
        if !self.has_begun_run || left == 0 || self.packets.packet(seq).len() > size.min(buf.len())
        {
            return None;
        }
        let last = self.room() == 0 && left == 1;
        let interval = u64::from((self.cfg.path_packets / 4).max(1));
        self.tx.poll_new(now)?;
        let len = copy_packet(self.packets.packet(seq), buf);
        if last || (seq + 1).is_multiple_of(interval) || self.tx.is_path_full() {
            buf[ACK_REQ.0] |= ACK_REQ.1;
        }
        Some(len)
    }

    /// Route of the last packet of [`Tp::poll_transmit`]; `None`: it is an acknowledgement, which goes to the address that
    /// packets come from.
    pub(crate) const fn route_sent(&self) -> Option<u8> {
        self.route
    }

    /// Sets the routes, one bit for each, and how many packets in a row take the same one.
    pub(crate) fn set_routes(&mut self, usable: u8, run_packets: u32) {
        self.tx.set_routes(usable, run_packets);
    }

    /// Number of timeouts on this route since a packet that took it was received.
    pub(crate) fn expired(&self, route: u8) -> u32 {
        self.tx.expired(route)
    }

    /// Clears the timeouts of a route that turned out to work.
    pub(crate) fn forgive(&mut self, route: u8) {
        self.tx.forgive(route);
    }

    /// Fails a route: packets sent on it are retransmitted on others.
    pub(crate) fn fail_route(&mut self, route: u8) {
        self.tx.fail_route(route);
    }

    /// Whether packets beyond a gap are stored. If not, packets on several routes would be lost by overtaking each other.
    pub(crate) fn keeps_out_of_order(&self) -> bool {
        self.cfg.strategy != Strategy::GoBackN
    }

    /// When [`Tp::poll_transmit`] must be called without further input; a time in the past: now.
    pub(crate) fn poll_deadline(&self) -> Option<Nanos> {
        if self.failed.is_some() {
            return None;
        }
        if self.has_transmit() {
            return Some(0);
        }
        let receiver = self.rx.ack();
        [receiver.poll_deadline(), receiver.record_deadline(), self.tx.poll_deadline()]
            .into_iter()
            .flatten()
            .min()
    }

    /// Whether [`Tp::poll_transmit`] has a packet to send that waits for no timer.
    pub(crate) fn has_transmit(&self) -> bool {
        let receiver = self.rx.ack();
        let answers = receiver.has_ack() || receiver.has_report();
        self.failed.is_none() && (answers || self.tx.has_sendable())
    }

    /// Returns its blocks to the pool; call before dropping it.
    pub(crate) fn close(&mut self, pool: &mut KnittingPool) {
        self.rx.receiver().close(pool);
    }

    fn on_data(
        &mut self,
        now: Nanos,
        packet: &Packet<'_>,
        content: Content,
        pool: &mut KnittingPool,
    ) -> Received {
        let edge = self.rx.edge();
        let distance = packet.header.psn.distance_from(psn_of(self.cfg.rx_psn, edge));
        // Only the low bits of a sequence before the first one are used.
        let seq = edge.wrapping_add_signed(distance.into());
        let mark = match packet.header.repeat {
            None => DataMark::default(),
            Some(Repeat { tier, ticket }) if self.cfg.strategy.reports_losses() => {
                DataMark { tier, ticket }
            }
            Some(_) => return Received::BadRepeat,
        };
        let place = (now, distance.into(), mark);
        let kept = match self.rx.accept(pool, place, content, packet.payload) {
            Ok(kept) => kept,
            Err(LossError::Exhausted) => {
                self.rx.receiver().acknowledge_now(seq);
                return Received::DroppedNoBlock;
            }
            Err(LossError::Corrupt | LossError::Unanswered) => {
                self.fail(TpError::PoolCorrupt);
                return Received::NotAccepted;
            }
        };
        self.congested |= packet.header.congestion.forward;
        let (arrival, received) = match kept {
            WindowResult::InOrder(edge) => (Arrival::Advanced(edge), Received::InOrder),
            WindowResult::BeyondGap => (Arrival::Kept, Received::OutOfOrder),
            WindowResult::Duplicate => (Arrival::Duplicate, Received::Duplicate),
            WindowResult::Dropped => (Arrival::Dropped, Received::DroppedBeyondGap),
            WindowResult::Unmatched => return Received::Unmatched,
            WindowResult::Outside => return Received::OutsideWindow,
        };
        if arrival != Arrival::Dropped {
            self.tx.on_received(now);
        }
        if self.repairs.is_some() && matches!(arrival, Arrival::Advanced(_) | Arrival::Kept) {
            self.keep_for_code(seq, packet);
        }
        self.rx.receiver().acknowledge(now, seq, arrival, packet.header.ack_req);
        received
    }

    fn on_ack(&mut self, now: Nanos, psn: Psn, ack: &Ack, gap: Gap) -> Received {
        let una = self.tx.ledger().una();
        let first = psn_of(self.cfg.tx_psn, una);
        let Ok(ahead) = u64::try_from(psn.distance_from(first)) else {
            // A newer one overtook it.
            return Received::Acknowledged;
        };
        let trigger = u64::try_from(ack.trigger.distance_from(first)).ok().map(|at| una + at);
        let mut received = [0; SACK_WORDS_MAX];
        let words = ack.received.words();
        received[..words.len()].copy_from_slice(words);
        let feedback = AckFeedback { edge: una + ahead, gap: gap == Gap::Yes, trigger, received };
        if let Err(NeverSent) = self.tx.on_ack(now, &feedback) {
            return Received::BadAck;
        }
        self.packets.free(una..self.tx.ledger().una());
        Received::Acknowledged
    }

    fn on_time(&mut self, now: Nanos, pool: &mut KnittingPool) {
        self.rx.receiver().on_time(now);
        if self.rx.ack().record_deadline().is_some_and(|deadline| deadline <= now) {
            self.on_record_time(now, pool);
        }
        match self.tx.on_time(now) {
            Ok(Expired::No) => {}
            Ok(Expired::Yes) => {
                let oldest = self.packets.packet(self.tx.ledger().una());
                self.long_lost |= oldest.len() > ALWAYS_PASSES;
            }
            Err(_) => self.fail(TpError::Timeout),
        }
    }

    fn emit_ack(&mut self, buf: &mut [u8], pool: &KnittingPool) -> Option<usize> {
        let Ok(feedback) = self.rx.receiver().poll_ack(pool)? else {
            self.fail(TpError::PoolCorrupt);
            return None;
        };
        let words = feedback.received.iter().rposition(|&word| word != 0).map_or(0, |at| at + 1);
        let received = SackBitmap::from_words(&feedback.received[..words]).unwrap_or_default();
        let ack = Ack {
            window: u16::try_from(self.rx.room()).unwrap_or(u16::MAX),
            congestion: self.congested,
            trigger: match feedback.trigger {
                Some(seq) => psn_of(self.cfg.rx_psn, seq),
                None => psn_of(self.cfg.rx_psn, feedback.edge).plus(NO_TRIGGER),
            },
            received,
        };
        let body = if feedback.gap { Body::Nak(ack) } else { Body::Ack(ack) };
        let psn = psn_of(self.cfg.rx_psn, feedback.edge);
        let header = PacketHeader::new(self.cfg.peer_tpn, psn, body);
        self.congested = false;
        // Field values of an acknowledgement cannot contradict each other, and the buffer is long
        // enough: emit_headers has no reason to refuse.
        header.emit_headers(0, buf).ok().map(|frame| frame.total)
    }

    fn fail(&mut self, error: TpError) {
        self.failed.get_or_insert(error);
    }
}

/// Packets of the send window, by sequence: the bytes that the peer may lack. Buffers of acknowledged packets are used again,
/// so a steady stream allocates nothing.
#[derive(Debug)]
struct SendStore {
    packets: Ring<Vec<u8>>,
    /// Bytes of all of them.
    bytes: usize,
    /// First packet whose place is not free.
    first: u64,
    /// Buffers of acknowledged packets: the most recent one, which is still in the caches, is used first.
    spare: Vec<Vec<u8>>,
}

impl SendStore {
    /// Creates a store of `packets` places.
    fn new(packets: u32) -> Self {
        Self { packets: Ring::new(packets), bytes: 0, first: 0, spare: Vec::new() }
    }

    /// Lets `write` fill the `len` bytes of packet `seq`, whose place is free. If `write` fails, nothing is stored.
    fn store<E>(
        &mut self,
        seq: u64,
        len: usize,
        write: impl FnOnce(&mut [u8]) -> Result<(), E>,
    ) -> Result<(), E> {
        let mut bytes = self.spare.pop().unwrap_or_default();
        bytes.resize(len, 0);
        let written = write(&mut bytes);
        if written.is_ok() {
            self.bytes += len;
            self.packets.reserve(self.first, seq);
            *self.packets.at_mut(seq) = bytes;
        } else {
            self.spare.push(bytes);
        }
        written
    }

    /// Bytes of packet `seq`.
    fn packet(&self, seq: u64) -> &[u8] {
        self.packets.at(seq)
    }

    fn packet_mut(&mut self, seq: u64) -> &mut Vec<u8> {
        self.packets.at_mut(seq)
    }

    /// Frees packets that the peer has acknowledged.
    fn free(&mut self, packets: Range<u64>) {
        self.first = packets.end;
        for seq in packets {
            let bytes = std::mem::take(self.packet_mut(seq));
            self.bytes -= bytes.len();
            if self.spare.len() < SPARE_MAX {
                self.spare.push(bytes);
            }
        }
    }
}

/// Whether an acknowledgement was a NAK.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Gap {
    Yes,
    No,
}

/// PSN of sequence `seq` of a TP that started at `first`.
const fn psn_of(first: Psn, seq: u64) -> Psn {
    // PSNs wrap at 24 bits: only the low bits of the sequence count.
    first.plus((seq & 0x00ff_ffff) as u32)
}

/// Writes a packet to the front of `buf`; returns its length.
fn copy_packet(packet: &[u8], buf: &mut [u8]) -> usize {
    buf[..packet.len()].copy_from_slice(packet);
    packet.len()
}

#[cfg(test)]
mod tests;
