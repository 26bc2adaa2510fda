//! A piece of a request, as the responder gets it, and its source.
//!
//! *Owns*: plain views. *Must not*: hold state.

use urma_packet::{RequestFlags, RequestHeader};

use crate::carrier::piece::Payload;

/// A piece of a request.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RequestFragment<'a> {
    pub(crate) header: &'a RequestHeader,
    pub(crate) payload: Payload,
    pub(crate) bytes: &'a [u8],
}

impl RequestFragment<'_> {
    pub(crate) fn is_first(&self) -> bool {
        self.header.flags.contains(RequestFlags::FIRST)
    }

    pub(crate) fn is_last(&self) -> bool {
        self.header.flags.contains(RequestFlags::LAST)
    }

    /// Whether the rest of its message will not come.
    pub(crate) fn breaks_off(&self) -> bool {
        self.payload == Payload::Here && self.header.breaks_off(self.bytes.len())
    }

    /// Number of payload bytes that this piece stands for.
    pub(crate) fn len(&self) -> u32 {
        match self.payload {
            Payload::Placed => self.header.access.length,
            Payload::Named(bytes) => bytes.len,
            // A piece is at most `PIECE_MAX` or a path MTU long.
            Payload::Here => u32::try_from(self.bytes.len()).unwrap_or(u32::MAX),
        }
    }
}

/// Source of a request, as completions name it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RequestSource {
    pub(crate) eid: udma_abi::RawEid,
    pub(crate) tpn: u32,
}
