//! Pieces of requests and of their answers, as carriers take them.
//!
//! *Owns*: their form. *Must not*: know a carrier.

use std::ops::Range;

use urma_packet::TransactionHeader;

use crate::engine::names::NamedBytes;

/// Most payload bytes of a piece that does not travel in a packet.
pub(crate) const PIECE_MAX: usize = 16 << 10;

/// Payload of a piece.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Payload {
    /// The bytes after the header.
    Here,
    /// The bytes are in the target's memory already.
    Placed,
    /// The bytes are in the sender's memory, where the receiver reads them. Only a ring carries these.
    Named(NamedBytes),
}

/// Why a piece was not accepted, or none arrived.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Broken {
    /// No room at present.
    Full,
    /// The peer's half is invalid, or the piece cannot be written: the carrier is broken.
    Dead,
}

/// A piece that was received, with its place in the inbox.
#[derive(Debug)]
pub(crate) struct Inbound {
    pub(crate) header: TransactionHeader,
    pub(crate) payload: Payload,
    /// Range of its bytes in the inbox.
    pub(crate) bytes: Range<usize>,
    /// TASSN of a request of the opposite sequence that it acknowledges as well.
    pub(crate) acked: Option<u16>,
}
