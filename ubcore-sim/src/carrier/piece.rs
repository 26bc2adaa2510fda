//! What carriers carry: pieces of requests and of their answers.
//!
//! *Owns*: their form. *Must not*: know a carrier.

use std::ops::Range;

use urma_packet::TransactionHeader;

use crate::engine::names::NamedBytes;

/// Most payload bytes of a piece that does not travel in a packet.
pub(crate) const PIECE_MAX: usize = 16 << 10;

/// What a piece brings.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Payload {
    /// The bytes after the header.
    Here,
    /// The bytes are in the target's memory already.
    Placed,
    /// The bytes are in the sender's memory, where the receiver reads them. A ring carries these.
    Named(NamedBytes),
}

/// Why a piece was not accepted, or none came.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Broken {
    /// No room; again later.
    Full,
    /// The peer's half holds nonsense, or the piece cannot be written: nothing more will go.
    Dead,
}

/// A piece that came.
#[derive(Debug)]
pub(crate) struct Inbound {
    pub(crate) header: TransactionHeader,
    pub(crate) payload: Payload,
    /// Where in the inbox its bytes lie.
    pub(crate) bytes: Range<usize>,
    /// TASSN of a request that it acknowledges as well, of the opposite sequence.
    pub(crate) acked: Option<u16>,
}
