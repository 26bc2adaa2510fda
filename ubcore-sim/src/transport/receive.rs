//! The receive window: packets in order, and what is kept beyond a gap.
//!
//! - owns: buffers of received pieces, the bounded store beyond a gap, the queue of pieces in order.
//! - takes: packets by sequence. gives: pieces in order, exactly once.
//! - must not: hold more than a window of pieces; believe the loss record where the store of
//!   pieces contradicts it (the record lies in memory that others can write).

use std::collections::VecDeque;

use udma_abi::Nanos;
use urma_packet::{Body, PackEntries, TransactionHeader};
use urma_recovery::{Arrival, DataMark, KnittingPool, LossError, TpReceiver};

use super::ring::{Ring, SPARE_MAX, WINDOW_BYTES};

/// One packet's part of a transaction.
#[derive(Debug)]
pub(crate) struct Piece {
    /// Request or response header.
    pub(crate) header: TransactionHeader,
    /// Payload without its padding.
    pub(crate) payload: Vec<u8>,
}

/// Kind of a packet's payload.
#[derive(Clone, Copy, Debug)]
pub(super) enum Content {
    /// The payload of one transaction.
    One(TransactionHeader),
    /// A pack: entries, which are valid.
    Pack,
}

impl Content {
    /// The kind for a packet with such a body; `None`: it is not a data packet.
    pub(super) const fn of(body: &Body) -> Option<Self> {
        match body {
            Body::Request(header) => Some(Self::One(TransactionHeader::Request(*header))),
            Body::Response(header) => Some(Self::One(TransactionHeader::Response(*header))),
            Body::Pack => Some(Self::Pack),
            Body::Ack(_)
            | Body::Nak(_)
            | Body::Connect(_)
            | Body::Challenge(_)
            | Body::Accept(_)
            | Body::Refuse(_)
            | Body::Close(_)
            | Body::UmSend(..)
            | Body::Probe(_)
            | Body::ProbeEcho(_)
            | Body::Losses(_)
            | Body::Tail(_)
            | Body::Repair(_) => None,
        }
    }
}

/// A packet that was accepted.
#[derive(Debug)]
struct KeptPacket {
    content: Content,
    payload: Vec<u8>,
}

/// Result of a packet.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum WindowResult {
    /// Next in order; it and what followed, up to this sequence, are ready.
    InOrder(u64),
    /// Stored beyond a gap.
    BeyondGap,
    /// The packet was received before.
    Duplicate,
    /// Beyond a gap, and this side stores nothing there.
    Dropped,
    /// Repeated or late, and in no list of losses.
    Unmatched,
    /// Too far ahead (or behind) to be in this window.
    Outside,
}

/// Receive window of a TP: received pieces, and the receiver that records them.
#[derive(Debug)]
pub(super) struct ReceiveWindow {
    receiver: TpReceiver,
    /// Most packets from the edge on, including those that are ready.
    window: usize,
    /// Packets beyond the gap.
    beyond: Ring<Option<KeptPacket>>,
    ready: VecDeque<KeptPacket>,
    /// Bytes of all these packets.
    bytes: usize,
    /// Bytes of the first packet, a pack, that were given out.
    taken: usize,
    /// Buffers to be reused.
    spare: Vec<Vec<u8>>,
}

impl ReceiveWindow {
    /// A window of `packets`.
    pub(super) fn new(packets: u32, receiver: TpReceiver) -> Self {
        let window = packets.max(1) as usize;
        Self {
            receiver,
            window,
            beyond: Ring::new(packets),
            ready: VecDeque::with_capacity(window.min(SPARE_MAX)),
            bytes: 0,
            taken: 0,
            spare: Vec::with_capacity(window.min(SPARE_MAX)),
        }
    }

    /// First sequence that is missing.
    pub(super) fn edge(&self) -> u64 {
        self.receiver.edge()
    }

    pub(super) const fn receiver(&mut self) -> &mut TpReceiver {
        &mut self.receiver
    }

    /// When an acknowledgement is due.
    pub(super) const fn ack(&self) -> &TpReceiver {
        &self.receiver
    }

    /// Number of packets from the edge on for which there is room.
    pub(super) fn room(&self) -> usize {
        self.window - self.ready.len()
    }

    /// Takes the packet that is `distance` after the edge and carries `mark`. After a [`LossError`] the packet was
    /// not accepted.
    pub(super) fn accept(
        &mut self,
        pool: &mut KnittingPool,
        (now, distance, mark): (Nanos, i64, DataMark),
        content: Content,
        payload: &[u8],
    ) -> Result<WindowResult, LossError> {
        let window = self.window as u64;
        let Ok(ahead) = u64::try_from(distance) else {
            let behind = distance.unsigned_abs();
            return Ok(if behind <= window {
                WindowResult::Duplicate
            } else {
                WindowResult::Outside
            });
        };
        if ahead >= self.room() as u64 || !self.has_memory(ahead, payload.len()) {
            return Ok(WindowResult::Outside);
        }
        let edge = self.edge();
        let seq = edge + ahead;
        let new_edge = match self.receiver.on_data(now, seq, mark, pool)? {
            Arrival::Advanced(new_edge) => new_edge,
            Arrival::Dropped => return Ok(WindowResult::Dropped),
            Arrival::Unmatched => return Ok(WindowResult::Unmatched),
            arrival @ (Arrival::Kept | Arrival::Duplicate) => {
                return self.store(arrival, seq, content, payload);
            }
        };
        let packet = self.keep(content, payload);
        self.ready.push_back(packet);
        self.release(edge + 1..new_edge)?;
        Ok(WindowResult::InOrder(new_edge))
    }

    /// Whether a packet `ahead` of the edge may be held. The first missing one always may, since all others wait for it.
    fn has_memory(&self, ahead: u64, len: usize) -> bool {
        self.bytes + len <= WINDOW_BYTES || ahead == 0 && self.ready.is_empty()
    }

    /// Whether there are pieces for [`ReceiveWindow::pop`].
    pub(super) fn has_pieces(&self) -> bool {
        !self.ready.is_empty()
    }

    /// The next piece in order.
    pub(super) fn pop(&mut self) -> Option<Piece> {
        loop {
            let first = self.ready.front()?;
            if let Content::One(header) = first.content {
                let KeptPacket { payload, .. } = self.ready.pop_front()?;
                self.bytes -= payload.len();
                return Some(Piece { header, payload });
            }
            let mut entries = PackEntries::new(&first.payload, self.taken);
            if let Some(Ok(entry)) = entries.next() {
                let mut payload = self.spare.pop().unwrap_or_default();
                payload.clear();
                payload.extend_from_slice(entry.payload);
                let piece = Piece { header: entry.header, payload };
                self.taken = entries.at();
                return Some(piece);
            }
            self.taken = 0;
            if let Some(packet) = self.ready.pop_front() {
                self.bytes -= packet.payload.len();
                self.recycle(packet.payload);
            }
        }
    }

    /// Takes a buffer back for later packets.
    pub(super) fn recycle(&mut self, buffer: Vec<u8>) {
        if self.spare.len() < self.window.min(SPARE_MAX) {
            self.spare.push(buffer);
        }
    }

    /// Stores packet `seq`, which repair packets brought; `edge` was the first missing one before the record knew.
    pub(super) fn put(
        &mut self,
        edge: u64,
        seq: u64,
        content: Content,
        payload: &[u8],
    ) -> Result<(), LossError> {
        self.beyond.reserve(edge, seq);
        if seq < edge || self.beyond.at(seq).is_some() {
            return Err(LossError::Corrupt);
        }
        *self.beyond.at_mut(seq) = Some(self.keep(content, payload));
        Ok(())
    }

    fn store(
        &mut self,
        arrival: Arrival,
        seq: u64,
        content: Content,
        payload: &[u8],
    ) -> Result<WindowResult, LossError> {
        self.beyond.reserve(self.edge(), seq);
        match (arrival, self.beyond.at(seq).is_some()) {
            (Arrival::Duplicate, true) => Ok(WindowResult::Duplicate),
            (Arrival::Kept, false) => {
                *self.beyond.at_mut(seq) = Some(self.keep(content, payload));
                Ok(WindowResult::BeyondGap)
            }
            _ => Err(LossError::Corrupt),
        }
    }

    /// Moves the pieces of a closed gap to the queue.
    pub(super) fn release(&mut self, closed: std::ops::Range<u64>) -> Result<(), LossError> {
        let end = closed.end;
        for seq in closed {
            let packet = self.beyond.at_mut(seq).take().ok_or(LossError::Corrupt)?;
            self.ready.push_back(packet);
        }
        // The record says that `end` is missing; a stored piece would contradict that.
        if self.room() > 0 && self.beyond.at(end).is_some() {
            return Err(LossError::Corrupt);
        }
        Ok(())
    }

    fn keep(&mut self, content: Content, bytes: &[u8]) -> KeptPacket {
        let mut payload = self.spare.pop().unwrap_or_default();
        payload.clear();
        payload.extend_from_slice(bytes);
        self.bytes += bytes.len();
        KeptPacket { content, payload }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use urma_mem::Region;
    use urma_packet::{
        Initiator, InitiatorKind, JettyId, ResponseBody, ResponseHeader, ResponseStatus,
    };
    use urma_recovery::{AckPolicy, Recovery};

    struct Bench {
        window: ReceiveWindow,
        pool: KnittingPool,
        /// Bits of packets beyond the gap; bit 0 is packet 0.
        region: Region,
    }

    impl Bench {
        /// A window that received these packets, of which none is packet 0.
        fn with(received: &[i64]) -> Self {
            let region = Region::private(4 << 6).expect("memory");
            let mut pool = KnittingPool::new();
            pool.grow(0, region.clone(), 6, 4).expect("fresh piece");
            let policy = AckPolicy { every: 16, delay_ns: 0 };
            let receiver = TpReceiver::new(Recovery::SelectiveRepeat.record(1), policy);
            let mut bench = Self { window: ReceiveWindow::new(32, receiver), pool, region };
            for seq in received {
                assert_eq!(bench.accept(*seq), Ok(WindowResult::BeyondGap));
            }
            bench
        }

        fn accept(&mut self, distance: i64) -> Result<WindowResult, LossError> {
            self.accept_bytes(distance, &[1])
        }

        fn accept_bytes(
            &mut self,
            distance: i64,
            payload: &[u8],
        ) -> Result<WindowResult, LossError> {
            let id = JettyId::from_low_bits(1);
            let header = ResponseHeader {
                tassn: 0,
                initiator: Initiator { kind: InitiatorKind::Jetty, id },
                target: None,
                status: ResponseStatus::Ack,
                body: ResponseBody::None,
            };
            let content = Content::One(TransactionHeader::Response(header));
            self.window.accept(&mut self.pool, (0, distance, DataMark::default()), content, payload)
        }

        fn change(&self, bits: impl FnOnce(u64) -> u64) {
            let now = self.region.load_u64(0).expect("inside");
            self.region.store_u64(0, bits(now)).expect("inside");
        }
    }

    /// However small the packets are, or large, a peer fills no more than the memory of a window.
    #[test]
    fn a_window_holds_a_bounded_number_of_bytes_and_always_the_packet_that_others_wait_for() {
        let mut bench = Bench::with(&[]);
        let payload = vec![7; WINDOW_BYTES / 8];
        for distance in 1..=8 {
            assert_eq!(bench.accept_bytes(distance, &payload), Ok(WindowResult::BeyondGap));
        }
        assert_eq!(bench.accept(9), Ok(WindowResult::Outside), "no byte more");
        assert_eq!(bench.accept_bytes(0, &payload), Ok(WindowResult::InOrder(9)));
        assert_eq!(bench.accept(0), Ok(WindowResult::Outside), "until pieces are taken");
        for _ in 0..9 {
            assert_eq!(bench.window.pop().map(|piece| piece.payload.len()), Some(payload.len()));
        }
        assert_eq!(bench.window.bytes, 0);
        assert_eq!(bench.accept(0), Ok(WindowResult::InOrder(10)));
    }

    #[test]
    fn what_the_record_says_came_and_is_not_stored_is_not_passed_over() {
        let mut bench = Bench::with(&[2, 5, 6]);
        bench.change(|bits| bits | 1 << 1);
        assert_eq!(bench.accept(0), Err(LossError::Corrupt), "packet 1 never came");
    }

    #[test]
    fn what_is_stored_and_the_record_says_did_not_come_is_noticed() {
        let mut bench = Bench::with(&[1, 2, 5]);
        bench.change(|bits| bits & !(1 << 2));
        assert_eq!(bench.accept(0), Err(LossError::Corrupt), "packet 2 is stored");
    }

    #[test]
    fn a_packet_is_new_or_known_to_both_the_record_and_the_store() {
        let mut bench = Bench::with(&[5]);
        bench.change(|bits| bits | 1 << 3);
        assert_eq!(bench.accept(3), Err(LossError::Corrupt), "known to the record alone");
        let mut bench = Bench::with(&[3, 5]);
        bench.change(|bits| bits & !(1 << 3));
        assert_eq!(bench.accept(3), Err(LossError::Corrupt), "known to the store alone");
        assert_eq!(Bench::with(&[3]).accept(3), Ok(WindowResult::Duplicate));
    }
}
