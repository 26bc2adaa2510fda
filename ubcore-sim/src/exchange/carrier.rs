//! What carries pieces to a peer and back: this node itself, a ring in shared memory, packets.
//!
//! *Owns*: the choice, and the node's way to itself. *Takes*: pieces while there is room. *Gives*:
//! the peer's pieces in order. *Must not*: lose or reorder a piece while it lives.

use std::collections::VecDeque;
use std::ops::Range;

use udma_abi::Nanos;
use urma_packet::TransactionHeader;

use super::packets::Packets;
use super::ring::Ring;

/// Most payload bytes of a piece that does not travel in a packet.
pub(super) const PIECE_MAX: usize = 16 << 10;
/// Pieces that may wait on the node's way to itself.
const LOOP_MAX: usize = 64;
/// Shortest time without an answer that ends requests to a peer that is connected. On this
/// host its connection shows its death, elsewhere a TP that gave up; a peer that is silent and connected
/// is stopped or has no processor, and on a busy machine a program that spins was seen to have none
/// for 0.4 s.
pub(super) const STARVED_NS: Nanos = 4_000_000_000;

/// What a piece brings.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Payload {
    /// The bytes after the header.
    Here,
    /// The bytes are in the target's memory already.
    Placed,
}

/// The way to one peer.
#[derive(Debug)]
pub(super) enum Carrier {
    /// This node.
    Loop(Loop),
    /// A node on this host.
    Ring(Box<Ring>),
    /// A node reached by packets.
    Packets(Box<Packets>),
}

/// Why a piece was not taken, or none came.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Broken {
    /// No room; again later.
    Full,
    /// The peer's half holds nonsense, or the piece cannot be written: nothing more will go.
    Dead,
}

/// A piece that came.
#[derive(Debug)]
pub(super) struct Inbound {
    pub(super) header: TransactionHeader,
    pub(super) payload: Payload,
    /// Where in the inbox its bytes lie.
    pub(super) bytes: Range<usize>,
}

impl Carrier {
    /// Payload bytes of every piece of a message but the last.
    pub(super) fn piece_max(&self) -> usize {
        match self {
            Self::Loop(_) => PIECE_MAX,
            Self::Ring(ring) => ring.piece_max(),
            Self::Packets(packets) => packets.mtu(),
        }
    }

    /// How long a request whose queue wants an answer within `timeout` ns waits for one.
    pub(super) fn patience_ns(&self, timeout: Nanos) -> Nanos {
        let is_connected = match self {
            Self::Loop(_) => false,
            Self::Ring(_) => true,
            Self::Packets(packets) => packets.is_open(),
        };
        if is_connected { timeout.max(STARVED_NS) } else { timeout }
    }

    /// Whether a piece would be taken now.
    pub(super) fn has_room(&mut self, header: &TransactionHeader, len: usize) -> bool {
        match self {
            Self::Loop(own) => own.pieces.len() < LOOP_MAX,
            Self::Ring(ring) => ring.has_room(header, len),
            Self::Packets(packets) => packets.has_room(),
        }
    }

    pub(super) fn push(
        &mut self,
        header: &TransactionHeader,
        payload: Payload,
        bytes: &[u8],
    ) -> Result<(), Broken> {
        match self {
            Self::Loop(own) => own.push(header, payload, bytes),
            Self::Ring(ring) => ring.push(header, payload, bytes),
            Self::Packets(packets) => packets.push(header, bytes),
        }
    }

    /// The next piece of the peer; its bytes come into `inbox`.
    pub(super) fn pop(&mut self, inbox: &mut Vec<u8>) -> Result<Option<Inbound>, Broken> {
        match self {
            Self::Loop(own) => Ok(own.pop(inbox)),
            Self::Ring(ring) => ring.pop(inbox),
            Self::Packets(packets) => Ok(packets.pop(inbox)),
        }
    }

    /// Shows the peer what was pushed. Whether it had to be woken.
    pub(super) fn flush(&mut self) -> bool {
        if let Self::Ring(ring) = self { ring.flush() } else { false }
    }

    /// Whether [`Carrier::pop`] would find something.
    pub(super) fn is_waiting(&self) -> bool {
        match self {
            Self::Loop(own) => !own.pieces.is_empty(),
            Self::Ring(ring) => ring.is_waiting(),
            Self::Packets(packets) => packets.is_waiting(),
        }
    }

    pub(super) fn poll_deadline(&self) -> Option<Nanos> {
        if let Self::Packets(packets) = self { packets.poll_deadline() } else { None }
    }
}

/// A node's way to itself.
#[derive(Debug, Default)]
pub(super) struct Loop {
    pieces: VecDeque<(TransactionHeader, Payload, Vec<u8>)>,
    spare: Vec<Vec<u8>>,
}

impl Loop {
    fn push(
        &mut self,
        header: &TransactionHeader,
        payload: Payload,
        bytes: &[u8],
    ) -> Result<(), Broken> {
        if self.pieces.len() >= LOOP_MAX {
            return Err(Broken::Full);
        }
        let mut buffer = self.spare.pop().unwrap_or_default();
        buffer.clear();
        buffer.extend_from_slice(bytes);
        self.pieces.push_back((*header, payload, buffer));
        Ok(())
    }

    fn pop(&mut self, inbox: &mut Vec<u8>) -> Option<Inbound> {
        let (header, payload, mut buffer) = self.pieces.pop_front()?;
        std::mem::swap(inbox, &mut buffer);
        self.spare.push(buffer);
        Some(Inbound { header, payload, bytes: 0..inbox.len() })
    }
}
