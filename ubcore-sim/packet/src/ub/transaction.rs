//! The transaction part of a packet on its own: what a same-host ring entry holds.
//!
//! - owns: telling requests from responses by their TAOpcode.
//! - takes: bytes from the BTAH or ATAH on. gives: header and payload, or the bytes of a header.
//! - must not: apply the rules of packets to payload; a ring has its own pieces.

use super::opcode::ResponseOp;
use super::request::RequestHeader;
use super::response::ResponseHeader;
use crate::PacketError;

/// A request or a response without transport.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TransactionHeader {
    /// From initiator to target.
    Request(RequestHeader),
    /// From target to initiator.
    Response(ResponseHeader),
}

impl TransactionHeader {
    /// Bytes of the header.
    #[must_use]
    pub const fn header_len(&self) -> usize {
        match self {
            Self::Request(header) => header.header_len(),
            Self::Response(header) => header.header_len(),
        }
    }

    /// Writes the header to the front of `buf`; the count of bytes written.
    ///
    /// # Errors
    /// [`PacketError::Truncated`], [`PacketError::Field`].
    pub fn emit(&self, buf: &mut [u8]) -> Result<usize, PacketError> {
        match self {
            Self::Request(header) => header.emit(buf),
            Self::Response(header) => header.emit(buf),
        }
    }

    /// Checks that `len` payload bytes stay inside the message.
    ///
    /// # Errors
    /// [`PacketError::Length`].
    pub fn check_piece(&self, len: usize) -> Result<(), PacketError> {
        match self {
            Self::Request(header) => header.check_piece(len),
            Self::Response(header) => header.check_piece(len),
        }
    }
}

/// A transaction header and the bytes after it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Transaction<'a> {
    /// Transaction headers, of a request or a response.
    pub header: TransactionHeader,
    /// Everything after it. How much of the message this is depends on the carrier: see
    /// [`TransactionHeader::check_piece`].
    pub payload: &'a [u8],
}

impl<'a> Transaction<'a> {
    /// The transaction in `bytes`, which start at its first header.
    ///
    /// # Errors
    /// Any [`PacketError`] but `Length` and `Icrc`.
    pub fn parse(bytes: &'a [u8]) -> Result<Self, PacketError> {
        if bytes.first().is_some_and(|code| ResponseOp::from_code(*code).is_ok()) {
            let (header, payload) = ResponseHeader::parse(bytes)?;
            return Ok(Self { header: TransactionHeader::Response(header), payload });
        }
        let (header, payload) = RequestHeader::parse(bytes)?;
        Ok(Self { header: TransactionHeader::Request(header), payload })
    }
}
