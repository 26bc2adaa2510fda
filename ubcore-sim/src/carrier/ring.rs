//! The ring carrier: two single-producer rings in the halves of a pair.
//!
//! *Owns*: both ends on this side. *Takes*: pieces. *Gives*: the peer's pieces, each header read
//! once and checked. *Must not*: go on with a peer whose half holds nonsense; wait for room.

use std::sync::Arc;

use urma_mem::Region;
use urma_mem::sleep::SleepFlag;
use urma_mem::spsc::{Consumer, LINE_LEN, Producer, ReserveError};
use urma_packet::{Transaction, TransactionHeader};

use super::piece::{Broken, Inbound, PIECE_MAX, Payload};
use crate::hooks::{self, Hook};
use crate::ports::{SameHostParts, Wake};
use crate::share::layout::{
    HALF_HEAD, HALF_INCARNATION, HALF_MAGIC, HALF_RING, HALF_RING_LEN, NODE_SLEEP, half_len,
};

/// Entry kind: header and payload.
const KIND_WHOLE: u32 = 1;
/// Entry kind: header alone; the payload was placed directly before.
const KIND_PLACED: u32 = 2;
/// Longest transaction header: that of an atomic of 16 bytes with everything optional.
const HEADER_MAX: usize = urma_packet::HEADERS_MAX;

/// Both rings of a pair, seen from one side.
#[derive(Debug)]
pub(crate) struct RingPair {
    out: Producer,
    inbound: Consumer,
    sleep: SleepFlag,
    wake: Arc<dyn Wake>,
    piece_max: usize,
    staged: bool,
}

impl RingPair {
    /// Lays the rings over the halves; `None` when the peer's half has an impossible length.
    /// `ring_len` is that of this node's halves.
    pub(crate) fn new(parts: &SameHostParts, ring_len: usize, incarnation: u64) -> Option<Self> {
        let SameHostParts { peer_node, my_half, peer_half, wake, .. } = parts;
        // The peer may not have laid its side yet, so its ring length is that of its window (which
        // the host may have rounded up to pages).
        let room = peer_half.len().checked_sub(HALF_RING)?;
        let peer_len = 1usize << room.checked_ilog2()?;
        let window = |half: &Region, len: usize| half.sub(HALF_RING, len).ok();
        let head = |half: &Region| half.sub(HALF_HEAD, LINE_LEN).ok();
        let out = Producer::new(window(my_half, ring_len)?, head(peer_half)?, ring_len).ok()?;
        let inbound = Consumer::new(head(my_half)?, window(peer_half, peer_len)?, peer_len).ok()?;
        my_half.store_u64(HALF_RING_LEN, ring_len as u64).ok()?;
        my_half.store_u64(HALF_INCARNATION, incarnation).ok()?;
        my_half.store_u64_release(0, HALF_MAGIC).ok()?;
        debug_assert!(half_len(ring_len) <= my_half.len(), "the host made the half for this ring");
        Some(Self {
            piece_max: PIECE_MAX.min(ring_len / 8),
            out,
            inbound,
            sleep: SleepFlag::new(peer_node.clone(), NODE_SLEEP).ok()?,
            wake: Arc::clone(wake),
            staged: false,
        })
    }

    pub(crate) fn piece_max(&self) -> usize {
        self.piece_max
    }

    /// Whether the peer hung up.
    pub(crate) fn is_cut(&self) -> bool {
        self.wake.is_gone()
    }

    pub(crate) fn has_room(&mut self, header: &TransactionHeader, len: usize) -> bool {
        // A ring that is corrupt has room for the piece that finds that out.
        !matches!(self.out.reserve(header.header_len() + len), Err(ReserveError::Full))
    }

    pub(crate) fn push(
        &mut self,
        header: &TransactionHeader,
        payload: Payload,
        bytes: &[u8],
    ) -> Result<(), Broken> {
        let mut head = [0; HEADER_MAX];
        let at = header.emit(&mut head).map_err(|_| Broken::Dead)?;
        let mut slot = self.out.reserve(at + bytes.len()).map_err(|error| match error {
            ReserveError::Full => Broken::Full,
            ReserveError::TooLong | ReserveError::Corrupt(_) => Broken::Dead,
        })?;
        slot.write(0, &head[..at]).map_err(|_| Broken::Dead)?;
        hooks::pass(Hook::RingEntryHalf);
        slot.write(at, bytes).map_err(|_| Broken::Dead)?;
        let kind = if payload == Payload::Placed { KIND_PLACED } else { KIND_WHOLE };
        slot.stage(kind).map_err(|_| Broken::Dead)?;
        self.staged = true;
        Ok(())
    }

    pub(crate) fn pop(&mut self, inbox: &mut Vec<u8>) -> Result<Option<Inbound>, Broken> {
        let Some(entry) = self.inbound.next_entry().map_err(|_| Broken::Dead)? else {
            return Ok(None);
        };
        let len = entry.len();
        if len > HEADER_MAX + PIECE_MAX {
            return Err(Broken::Dead);
        }
        if inbox.len() < len {
            inbox.resize(HEADER_MAX + PIECE_MAX, 0);
        }
        // One copy out of shared memory; only the copy is looked at.
        entry.read(0, &mut inbox[..len]).map_err(|_| Broken::Dead)?;
        let payload = match entry.kind() {
            KIND_WHOLE => Payload::Here,
            KIND_PLACED => Payload::Placed,
            _ => return Err(Broken::Dead),
        };
        entry.done();
        let piece = Transaction::parse(&inbox[..len]).map_err(|_| Broken::Dead)?;
        match payload {
            Payload::Here => {
                piece.header.check_piece(piece.payload.len()).map_err(|_| Broken::Dead)?;
            }
            Payload::Placed if piece.payload.is_empty() => {}
            Payload::Placed => return Err(Broken::Dead),
        }
        let bytes = len - piece.payload.len()..len;
        Ok(Some(Inbound { header: piece.header, payload, bytes }))
    }

    pub(crate) fn flush(&mut self) -> bool {
        if !std::mem::take(&mut self.staged) {
            return false;
        }
        self.out.publish_staged();
        hooks::pass(Hook::PublishedNotRung);
        self.sleep.wake_if_asleep(|| self.wake.wake())
    }

    pub(crate) fn is_waiting(&self) -> bool {
        self.inbound.is_waiting()
    }
}
