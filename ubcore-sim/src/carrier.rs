//! What carries pieces to a peer and back: this node itself, a ring in shared memory, packets.
//!
//! *Owns*: the choice. *Takes*: pieces while there is room. *Gives*: the peer's pieces in order.
//! *Must not*: lose or reorder a piece while it lives; know queues.

mod own;
pub(crate) mod packets;
pub(crate) mod piece;
mod ring;

use udma_abi::Nanos;
use urma_packet::TransactionHeader;

pub(crate) use own::Loopback;
use packets::Packets;
use piece::{Broken, Inbound, PIECE_MAX, Payload};
pub(crate) use ring::RingPair;

/// Shortest time without an answer that ends requests to a peer that is connected. On this
/// host its connection shows its death, elsewhere a TP that gave up; a peer that is silent and connected
/// is stopped or has no processor, and on a busy machine a program that spins was seen to have none
/// for 0.4 s.
pub(crate) const STARVED_NS: Nanos = 4_000_000_000;

/// The path to one peer.
#[derive(Debug)]
pub(crate) enum Carrier {
    /// The node itself: pieces go from its requester to its responder.
    Loop(Loopback),
    /// A node on this host.
    Ring(Box<RingPair>),
    /// A node reached by packets.
    Packets(Box<Packets>),
}

impl Carrier {
    /// Payload bytes of every piece of a message but the last.
    pub(crate) fn piece_max(&self) -> usize {
        match self {
            Self::Loop(_) => PIECE_MAX,
            Self::Ring(ring) => ring.piece_max(),
            Self::Packets(packets) => packets.mtu(),
        }
    }

    /// How long a request whose queue wants an answer within `timeout` ns waits for one.
    pub(crate) fn patience_ns(&self, timeout: Nanos) -> Nanos {
        let is_connected = match self {
            Self::Loop(_) => false,
            Self::Ring(_) => true,
            Self::Packets(packets) => packets.is_open(),
        };
        if is_connected { timeout.max(STARVED_NS) } else { timeout }
    }

    /// Whether a piece would be taken now.
    pub(crate) fn has_room(&mut self, header: &TransactionHeader, len: usize) -> bool {
        match self {
            Self::Loop(own) => own.has_room(),
            Self::Ring(ring) => ring.has_room(header, len),
            Self::Packets(packets) => packets.has_room(),
        }
    }

    pub(crate) fn push(
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
    pub(crate) fn pop(&mut self, inbox: &mut Vec<u8>) -> Result<Option<Inbound>, Broken> {
        match self {
            Self::Loop(own) => Ok(own.pop(inbox)),
            Self::Ring(ring) => ring.pop(inbox),
            Self::Packets(packets) => Ok(packets.pop(inbox)),
        }
    }

    /// Shows the peer what was pushed. Whether it had to be woken.
    pub(crate) fn flush(&mut self) -> bool {
        if let Self::Ring(ring) = self { ring.flush() } else { false }
    }

    /// Whether [`Carrier::pop`] would find something.
    pub(crate) fn is_waiting(&self) -> bool {
        match self {
            Self::Loop(own) => own.is_waiting(),
            Self::Ring(ring) => ring.is_waiting(),
            Self::Packets(packets) => packets.is_waiting(),
        }
    }

    pub(crate) fn poll_deadline(&self) -> Option<Nanos> {
        if let Self::Packets(packets) = self { packets.poll_deadline() } else { None }
    }
}

/// The carrier to one peer, from the moment that there is one.
#[derive(Debug, Default)]
pub(crate) struct PeerCarrier {
    pub(crate) carrier: Option<Carrier>,
    /// The peer's half holds nonsense: nothing more is taken from it or given to it.
    pub(crate) is_cut_off: bool,
}

impl PeerCarrier {
    pub(crate) fn new(carrier: Option<Carrier>) -> Self {
        Self { carrier, is_cut_off: false }
    }

    /// What carries packets there, if packets do.
    pub(crate) fn packets(&mut self) -> Option<&mut Packets> {
        if let Some(Carrier::Packets(packets)) = &mut self.carrier { Some(packets) } else { None }
    }

    /// Whether packets carry pieces there.
    pub(crate) fn is_packets(&self) -> bool {
        matches!(self.carrier, Some(Carrier::Packets(_)))
    }

    pub(crate) fn piece_max(&self) -> usize {
        self.carrier.as_ref().map_or(PIECE_MAX, Carrier::piece_max)
    }

    /// Gives a piece to the carrier if it takes it now.
    pub(crate) fn push(
        &mut self,
        header: &TransactionHeader,
        payload: Payload,
        bytes: &[u8],
    ) -> bool {
        let Some(carrier) = &mut self.carrier else { return false };
        carrier.has_room(header, bytes.len())
            && self.try_push(|carrier| carrier.push(header, payload, bytes))
    }

    /// The next piece of the peer; its bytes come into `inbox`.
    pub(crate) fn pop(&mut self, inbox: &mut Vec<u8>) -> Option<Inbound> {
        match self.carrier.as_mut()?.pop(inbox) {
            Ok(piece) => piece,
            Err(_) => {
                self.is_cut_off = true;
                None
            }
        }
    }

    /// Pushes with `push` where there is room. Whether the piece was taken.
    pub(crate) fn try_push(
        &mut self,
        push: impl FnOnce(&mut Carrier) -> Result<(), Broken>,
    ) -> bool {
        let Some(carrier) = &mut self.carrier else { return false };
        let pushed = push(carrier);
        self.is_cut_off |= pushed == Err(Broken::Dead);
        pushed.is_ok()
    }
}
