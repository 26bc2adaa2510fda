//! Carriers of pieces to a peer and back: this node itself, a ring in shared memory, packets.
//!
//! *Owns*: the choice. *Takes*: pieces while there is room. *Gives*: the peer's pieces in order. *Must not*: lose or
//! reorder a piece while it lives; know queues.

mod own;
pub(crate) mod piece;
mod ring;

use udma_abi::{Nanos, RawEid};
use urma_mem::Region;
use urma_packet::TransactionHeader;

use crate::endpoint::{PeerTp, TpEndpoint};
use crate::engine::names::Naming;
use crate::transport::PushError;
pub(crate) use own::Loopback;
use piece::{Broken, Inbound, PIECE_MAX, Payload};
pub(crate) use ring::{RingPair, WholeEntry};

/// Shortest time without an answer that ends requests to a connected peer, in nanoseconds. On this host the
/// connection shows the peer's death, elsewhere a TP that gave up; a peer that is silent and connected is stopped or
/// has no processor, and on a busy machine a spinning program was seen to have none for 0.4 s.
pub(crate) const STARVED_NS: Nanos = 4_000_000_000;

/// The path to one peer.
#[derive(Debug)]
pub(crate) enum Carrier {
    /// The node itself: pieces go from its requester to its responder.
    Loop(Loopback),
    /// A node on this host.
    Ring(Box<RingPair>),
    /// A node reached by packets: the endpoint's TP to it.
    Packets(RawEid),
}

impl Carrier {
    /// Payload bytes of every piece of a message but the last.
    pub(crate) fn piece_max(&self, endpoint: &TpEndpoint) -> usize {
        match self {
            Self::Loop(_) => PIECE_MAX,
            Self::Ring(ring) => ring.piece_max(),
            Self::Packets(peer) => endpoint.tp(*peer).map_or(PIECE_MAX, PeerTp::payload_max),
        }
    }

    /// Most payload bytes of a message outside of any sequence.
    pub(crate) fn datagram_max(&self, endpoint: &TpEndpoint) -> usize {
        match self {
            Self::Loop(_) | Self::Ring(_) => self.piece_max(endpoint),
            Self::Packets(peer) => endpoint.tp(*peer).map_or(PIECE_MAX, PeerTp::datagram_max),
        }
    }

    /// Whether a connection or a TP would show the death of the peer, see [`STARVED_NS`].
    pub(crate) fn is_connected(&self, endpoint: &TpEndpoint) -> bool {
        match self {
            Self::Loop(_) => false,
            Self::Ring(_) => true,
            Self::Packets(peer) => endpoint.tp(*peer).is_some_and(PeerTp::is_open),
        }
    }

    /// What pieces may name ([`Payload::Named`]); `None`: the carrier takes no such pieces.
    pub(crate) fn naming(&self) -> Option<Naming> {
        if let Self::Ring(ring) = self { Some(ring.naming()) } else { None }
    }

    /// Whether a piece would be accepted now.
    pub(crate) fn has_room(
        &mut self,
        endpoint: &TpEndpoint,
        header: &TransactionHeader,
        len: usize,
    ) -> bool {
        match self {
            Self::Loop(own) => own.has_room(),
            Self::Ring(ring) => ring.has_room(header, len),
            Self::Packets(peer) => endpoint.tp(*peer).is_some_and(|tp| tp.has_room(header)),
        }
    }

    pub(crate) fn push(
        &mut self,
        endpoint: &mut TpEndpoint,
        header: &TransactionHeader,
        payload: Payload,
        bytes: &[u8],
    ) -> Result<(), Broken> {
        match self {
            Self::Loop(own) => own.push(header, payload, bytes),
            Self::Ring(ring) => ring.push(header, payload, bytes),
            Self::Packets(peer) => {
                let tp = endpoint.tp_mut(*peer).ok_or(Broken::Full)?;
                tp.push(header, bytes).map_err(|error| match error {
                    // The endpoint reports a TP that gave up.
                    PushError::WindowFull | PushError::Failed(_) => Broken::Full,
                    PushError::Header(_) => Broken::Dead,
                })
            }
        }
    }

    /// Returns the next piece of the peer, and puts its bytes into `inbox`.
    pub(crate) fn pop(
        &mut self,
        endpoint: &mut TpEndpoint,
        inbox: &mut Vec<u8>,
    ) -> Result<Option<Inbound>, Broken> {
        match self {
            Self::Loop(own) => Ok(own.pop(inbox)),
            Self::Ring(ring) => ring.pop(inbox),
            Self::Packets(peer) => {
                let popped = endpoint.tp_mut(*peer).and_then(|tp| tp.pop(inbox));
                Ok(popped.map(|header| {
                    let bytes = 0..inbox.len();
                    Inbound { header, payload: Payload::Here, bytes, acked: None }
                }))
            }
        }
    }

    /// Shows the peer what was pushed. Returns whether it had to be woken.
    pub(crate) fn flush(&mut self) -> bool {
        if let Self::Ring(ring) = self { ring.flush() } else { false }
    }

    /// Whether [`Carrier::pop`] would find something. What came in packets causes a step anyway.
    pub(crate) fn is_waiting(&self) -> bool {
        match self {
            Self::Loop(own) => own.is_waiting(),
            Self::Ring(ring) => ring.is_waiting(),
            Self::Packets(_) => false,
        }
    }

    /// Memory and offset of the next piece, for a ring.
    pub(crate) fn next_place(&self) -> Option<(&Region, usize)> {
        if let Self::Ring(ring) = self { ring.next_place() } else { None }
    }
}

/// The carrier to one peer, once there is one.
#[derive(Debug, Default)]
pub(crate) struct PeerCarrier {
    pub(crate) carrier: Option<Carrier>,
    /// Set when the peer's half is invalid: nothing more is read from it or given to it.
    pub(crate) is_cut_off: bool,
}

impl PeerCarrier {
    pub(crate) fn new(carrier: Option<Carrier>) -> Self {
        Self { carrier, is_cut_off: false }
    }

    /// Invalidates the names of bytes that were given to the peer.
    pub(crate) fn take_names_back(&self) {
        if let Some(Carrier::Ring(ring)) = &self.carrier {
            ring.take_names_back();
        }
    }

    /// Whether packets carry pieces there.
    pub(crate) fn is_packets(&self) -> bool {
        matches!(self.carrier, Some(Carrier::Packets(_)))
    }

    pub(crate) fn piece_max(&self, endpoint: &TpEndpoint) -> usize {
        self.carrier.as_ref().map_or(PIECE_MAX, |carrier| carrier.piece_max(endpoint))
    }

    /// Passes a piece to the carrier. Returns whether there was room for it.
    pub(crate) fn push(
        &mut self,
        endpoint: &mut TpEndpoint,
        header: &TransactionHeader,
        payload: Payload,
        bytes: &[u8],
    ) -> bool {
        let Some(carrier) = &mut self.carrier else { return false };
        let pushed = carrier.push(endpoint, header, payload, bytes);
        self.is_cut_off |= pushed == Err(Broken::Dead);
        pushed.is_ok()
    }

    /// Returns the next piece of the peer, and puts its bytes into `inbox`.
    pub(crate) fn pop(
        &mut self,
        endpoint: &mut TpEndpoint,
        inbox: &mut Vec<u8>,
    ) -> Option<Inbound> {
        let popped = self.carrier.as_mut()?.pop(endpoint, inbox);
        self.is_cut_off |= popped.is_err();
        popped.ok().flatten()
    }
}
