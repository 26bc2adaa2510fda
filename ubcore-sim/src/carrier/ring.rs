//! The ring carrier: two single-producer rings in the halves of a pair.
//!
//! *Owns*: both ends on this side. *Takes*: pieces. *Gives*: the peer's pieces, each header read
//! once and checked. *Must not*: go on with a peer whose half holds nonsense; wait for room.

use std::sync::Arc;

use urma_mem::Region;
use urma_mem::hazard::CHUNK_MAX;
use urma_mem::sleep::SleepFlag;
use urma_mem::spsc::{Consumer, LINE_LEN, Producer, ReserveError};
use urma_packet::{RequestFlags, Transaction, TransactionHeader};

use super::piece::{Broken, Inbound, PIECE_MAX, Payload};
use crate::engine::names::{self, NamedBytes};
use crate::hooks::{self, Hook};
use crate::ports::{SameHostParts, Wake};
use crate::share::layout::{
    HALF_HEAD, HALF_INCARNATION, HALF_MAGIC, HALF_RING, HALF_RING_LEN, NODE_SLEEP, half_len,
};

/// Entry kind: header and payload.
const KIND_WHOLE: u32 = 1;
/// Entry kind: header alone; the payload was placed directly before.
const KIND_PLACED: u32 = 2;
/// Entry kind: header and [`NamedBytes`].
const KIND_NAMED: u32 = 3;
/// Longest transaction header: that of an atomic of 16 bytes with everything optional.
const HEADER_MAX: usize = urma_packet::HEADERS_MAX;

/// Both rings of a pair, seen from one side.
#[derive(Debug)]
pub(crate) struct RingPair {
    out: Producer,
    inbound: Consumer,
    sleep: SleepFlag,
    wake: Arc<dyn Wake>,
    my_half: Region,
    piece_max: usize,
    named_max: usize,
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
            named_max: CHUNK_MAX.min(ring_len / 8),
            out,
            inbound,
            sleep: SleepFlag::new(peer_node.clone(), NODE_SLEEP).ok()?,
            wake: Arc::clone(wake),
            my_half: my_half.clone(),
            staged: false,
        })
    }

    /// Most bytes that a piece may name.
    pub(crate) fn named_max(&self) -> usize {
        self.named_max
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
        let room = if let Payload::Named(named) = payload { named.room() } else { bytes.len() };
        let mut slot = self.out.reserve(at + room).map_err(|error| match error {
            ReserveError::Full => Broken::Full,
            ReserveError::TooLong | ReserveError::Corrupt(_) => Broken::Dead,
        })?;
        slot.write(0, &head[..at]).map_err(|_| Broken::Dead)?;
        hooks::pass(Hook::RingEntryHalf);
        slot.write(at, bytes).map_err(|_| Broken::Dead)?;
        let kind = match payload {
            Payload::Here => KIND_WHOLE,
            Payload::Placed => KIND_PLACED,
            Payload::Named(_) => KIND_NAMED,
        };
        slot.stage(kind).map_err(|_| Broken::Dead)?;
        self.staged = true;
        Ok(())
    }

    pub(crate) fn pop(&mut self, inbox: &mut Vec<u8>) -> Result<Option<Inbound>, Broken> {
        let Some(entry) = self.inbound.next_entry().map_err(|_| Broken::Dead)? else {
            return Ok(None);
        };
        let kind = entry.kind();
        let mut len = entry.len();
        if kind == KIND_NAMED {
            // The rest of it has no bytes.
            len = len.min(HEADER_MAX + NamedBytes::ENCODED_LEN);
        }
        if len > HEADER_MAX + PIECE_MAX {
            return Err(Broken::Dead);
        }
        if inbox.len() < len {
            inbox.resize(HEADER_MAX + PIECE_MAX, 0);
        }
        // One copy out of shared memory; only the copy is looked at.
        entry.read(0, &mut inbox[..len]).map_err(|_| Broken::Dead)?;
        entry.done();
        let piece = Transaction::parse(&inbox[..len]).map_err(|_| Broken::Dead)?;
        let payload = payload_of(kind, &piece).ok_or(Broken::Dead)?;
        let bytes = match payload {
            Payload::Here => len - piece.payload.len()..len,
            Payload::Placed | Payload::Named(_) => len..len,
        };
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

    /// The epoch of bytes that are named now.
    pub(crate) fn epoch(&self) -> u64 {
        names::epoch(&self.my_half)
    }

    /// Bytes that were named are not to be read any more.
    pub(crate) fn take_names_back(&self) {
        names::take_back(&self.my_half);
    }

    pub(crate) fn is_waiting(&self) -> bool {
        self.inbound.is_waiting()
    }
}

/// What a piece in an entry of this kind brings; `None`: that cannot be.
fn payload_of(kind: u32, piece: &Transaction<'_>) -> Option<Payload> {
    let (payload, len) = match kind {
        KIND_WHOLE => (Payload::Here, piece.payload.len()),
        KIND_PLACED => return piece.payload.is_empty().then_some(Payload::Placed),
        KIND_NAMED => {
            let named = NamedBytes::decode(piece.payload)?;
            let is_send = matches!(&piece.header, TransactionHeader::Request(header)
                if header.op.is_send() && !header.flags.contains(RequestFlags::DATAGRAM));
            if !is_send {
                return None;
            }
            (Payload::Named(named), named.len as usize)
        }
        _ => return None,
    };
    piece.header.check_piece(len).ok()?;
    Some(payload)
}
