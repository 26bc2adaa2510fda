//! The ring carrier: two single-producer rings in the halves of a pair.
//!
//! *Owns*: both ends on this side. *Takes*: pieces. *Gives*: the peer's pieces, each header read once and checked.
//! *Must not*: continue with a peer whose half is invalid; wait for room.

use std::sync::Arc;

use urma_mem::Region;
use urma_mem::hazard::CHUNK_MAX;
use urma_mem::sleep::SleepFlag;
use urma_mem::spsc::{Consumer, Entry, LINE_LEN, Producer, ReserveError};
use urma_packet::{AckForm, FormWords, RequestFlags, Transaction, TransactionHeader, ack_words};

use super::piece::{Broken, Inbound, PIECE_MAX, Payload};
use crate::engine::mail::ShortBody;
use crate::engine::names::{self, NamedBytes, Naming, TakenNames};
use crate::hooks::{self, Hook};
use crate::ports::{SameHostParts, Wake};
use crate::share::{
    HALF_HEAD, HALF_INCARNATION, HALF_MAGIC, HALF_RING, HALF_RING_LEN, NODE_SLEEP, half_len,
};

/// Entry kind: header and payload.
const KIND_WHOLE: u32 = 1;
/// Entry kind: header alone; the payload was placed directly before.
const KIND_PLACED: u32 = 2;
/// Entry kind: header and [`NamedBytes`] for its payload.
const KIND_NAMED: u32 = 3;
/// Bit of a kind: the entry also acknowledges the request of the opposite sequence whose TASSN is in its upper half.
const ACKED: u32 = 1 << 8;
const TASSN_SHIFT: u32 = 16;
/// Longest transaction header: that of an atomic of 16 bytes with everything optional.
const HEADER_MAX: usize = urma_packet::HEADERS_MAX;

/// The peer's next entry, if it is whole.
#[derive(Debug)]
pub(crate) struct WholeEntry<'a> {
    entry: Entry<'a>,
    /// Its front, copied once.
    pub(crate) front: FormWords,
    /// The request of the opposite sequence that it acknowledges as well.
    pub(crate) acked: Option<u16>,
}

impl WholeEntry<'_> {
    /// Length in bytes of header and payload.
    #[inline]
    pub(crate) fn len(&self) -> usize {
        self.entry.len()
    }

    /// Copies the payload after a header of `at` bytes, its end last. Returns whether the ranges fit.
    #[inline]
    pub(crate) fn place(&self, at: usize, (to, offset): (&Region, usize), len: usize) -> bool {
        self.entry.copy_to(at, to, offset, len).is_ok()
    }

    /// Releases the entry to the peer.
    #[inline]
    pub(crate) fn done(self) {
        self.entry.done();
    }
}

/// Both rings of a pair, seen from one side.
#[derive(Debug)]
pub(crate) struct RingPair {
    out: Producer,
    inbound: Consumer,
    sleep: SleepFlag,
    wake: Arc<dyn Wake>,
    my_half: Region,
    peer_half: Region,
    piece_max: usize,
    named_max: usize,
    staged: bool,
}

impl RingPair {
    /// Lays the rings over the halves; `None`: the peer's half has an impossible length. `ring_len` is that of this
    /// node's halves.
    pub(crate) fn new(parts: &SameHostParts, ring_len: usize, incarnation: u64) -> Option<Self> {
        let SameHostParts { peer_node, my_half, peer_half, wake, .. } = parts;
        // The peer may not have laid out its side yet, so its ring length follows from its mapping (which the host
        // may have rounded up to pages).
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
            peer_half: peer_half.clone(),
            staged: false,
        })
    }

    /// What pieces may name.
    pub(crate) fn naming(&self) -> Naming {
        let (epoch, len_max) = (names::epoch(&self.my_half), self.named_max);
        Naming { epoch, len_max, taken: TakenNames::in_half(&self.peer_half) }
    }

    pub(crate) fn piece_max(&self) -> usize {
        self.piece_max
    }

    /// Whether the peer hung up.
    pub(crate) fn is_cut(&self) -> bool {
        self.wake.is_gone()
    }

    pub(crate) fn has_room(&mut self, header: &TransactionHeader, len: usize) -> bool {
        // A corrupt ring has room for the piece that finds that out.
        !matches!(self.out.reserve(header.header_len() + len), Err(ReserveError::Full))
    }

    pub(crate) fn push(
        &mut self,
        header: &TransactionHeader,
        payload: Payload,
        bytes: &[u8],
    ) -> Result<(), Broken> {
        if let TransactionHeader::Response(answer) = header
            && let Some(words) = ack_words(answer)
        {
            return self.push_short((&words, AckForm::LEN), &ShortBody::NOTHING, None);
        }
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

    /// Stages an entry with a header of `header_len` bytes in words, and a body that fits in one piece. It also
    /// acknowledges a request of the opposite sequence, if one is given.
    #[inline]
    pub(crate) fn push_short(
        &mut self,
        (header, header_len): (&FormWords, usize),
        body: &ShortBody<'_>,
        acked: Option<u16>,
    ) -> Result<(), Broken> {
        let mut slot = self.out.reserve(header_len + body.len()).map_err(|error| match error {
            ReserveError::Full => Broken::Full,
            ReserveError::TooLong | ReserveError::Corrupt(_) => Broken::Dead,
        })?;
        slot.write_front(header).map_err(|_| Broken::Dead)?;
        hooks::pass(Hook::RingEntryHalf);
        match body {
            ShortBody::Memory(region, at, len) => slot.copy_from(header_len, region, *at, *len),
            ShortBody::Words([low, high], len) => {
                let bytes = (u128::from(*high) << 64 | u128::from(*low)).to_le_bytes();
                slot.write(header_len, bytes.get(..*len).unwrap_or(&bytes))
            }
        }
        .map_err(|_| Broken::Dead)?;
        let acked = acked.map_or(0, |tassn| ACKED | u32::from(tassn) << TASSN_SHIFT);
        slot.stage(KIND_WHOLE | acked).map_err(|_| Broken::Dead)?;
        self.staged = true;
        Ok(())
    }

    /// Publishes what is staged; [`RingPair::flush`] follows, which wakes the peer.
    #[inline]
    pub(crate) fn publish(&mut self) {
        self.out.publish_staged();
    }

    /// The next entry, if it is whole; [`RingPair::pop`] finds what is wrong with another one.
    #[inline]
    pub(crate) fn next_whole(&mut self) -> Option<WholeEntry<'_>> {
        let entry = self.inbound.next_entry().ok()??;
        let (kind, acked) = kind_of(entry.kind());
        if kind != KIND_WHOLE {
            return None;
        }
        let front = entry.front().ok()?;
        Some(WholeEntry { entry, front, acked })
    }

    pub(crate) fn pop(&mut self, inbox: &mut Vec<u8>) -> Result<Option<Inbound>, Broken> {
        let Some(entry) = self.inbound.next_entry().map_err(|_| Broken::Dead)? else {
            return Ok(None);
        };
        let (kind, acked) = kind_of(entry.kind());
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
        // One copy out of shared memory; only the copy is checked.
        entry.read(0, &mut inbox[..len]).map_err(|_| Broken::Dead)?;
        entry.done();
        let piece = Transaction::parse(&inbox[..len]).map_err(|_| Broken::Dead)?;
        let payload = payload_of(kind, &piece).ok_or(Broken::Dead)?;
        let bytes = match payload {
            Payload::Here => len - piece.payload.len()..len,
            Payload::Placed | Payload::Named(_) => len..len,
        };
        Ok(Some(Inbound { header: piece.header, payload, bytes, acked }))
    }

    pub(crate) fn flush(&mut self) -> bool {
        if !std::mem::take(&mut self.staged) {
            return false;
        }
        self.out.publish_staged();
        hooks::pass(Hook::PublishedNotRung);
        self.sleep.wake_if_asleep(|| self.wake.wake())
    }

    /// Invalidates the names of bytes that were given to the peer.
    pub(crate) fn take_names_back(&self) {
        names::take_back(&self.my_half);
    }

    pub(crate) fn is_waiting(&self) -> bool {
        self.inbound.is_waiting()
    }

    /// Memory and offset of the peer's next entry.
    pub(crate) fn next_place(&self) -> Option<(&Region, usize)> {
        self.inbound.next_place()
    }
}

/// Content of an entry of this kind, and the request that it acknowledges. Other bits make an unknown kind.
#[inline]
fn kind_of(kind: u32) -> (u32, Option<u16>) {
    let (rest, tassn) = (kind & u32::from(u16::MAX), kind >> TASSN_SHIFT);
    if rest & ACKED != 0 {
        return (rest ^ ACKED, u16::try_from(tassn).ok());
    }
    (kind, None)
}

/// The payload of a piece in an entry of this kind; `None`: impossible.
fn payload_of(kind: u32, piece: &Transaction<'_>) -> Option<Payload> {
    let (payload, len) = match kind {
        KIND_WHOLE => (Payload::Here, piece.payload.len()),
        KIND_PLACED => return piece.payload.is_empty().then_some(Payload::Placed),
        KIND_NAMED => {
            let named = NamedBytes::decode(piece.payload)?;
            let has_payload = matches!(&piece.header, TransactionHeader::Request(header)
                if header.op.has_payload() && !header.flags.contains(RequestFlags::DATAGRAM));
            if !has_payload {
                return None;
            }
            (Payload::Named(named), named.len as usize)
        }
        _ => return None,
    };
    piece.header.check_piece(len).ok()?;
    Some(payload)
}
