//! A node's path to itself.
//!
//! *Owns*: pieces that wait. *Takes*: pieces while there is room. *Gives*: them in order. *Must not*:
//! allocate per piece in a steady stream.

use std::collections::VecDeque;

use urma_packet::TransactionHeader;

use super::piece::{Broken, Inbound, Payload};

/// Pieces that may wait.
const LOOP_MAX: usize = 64;

/// A node's path to itself.
#[derive(Debug, Default)]
pub(crate) struct Loopback {
    pieces: VecDeque<(TransactionHeader, Payload, Vec<u8>)>,
    spare: Vec<Vec<u8>>,
}

impl Loopback {
    pub(super) fn has_room(&self) -> bool {
        self.pieces.len() < LOOP_MAX
    }

    pub(super) fn is_waiting(&self) -> bool {
        !self.pieces.is_empty()
    }

    pub(super) fn push(
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

    pub(super) fn pop(&mut self, inbox: &mut Vec<u8>) -> Option<Inbound> {
        let (header, payload, mut buffer) = self.pieces.pop_front()?;
        std::mem::swap(inbox, &mut buffer);
        self.spare.push(buffer);
        Some(Inbound { header, payload, bytes: 0..inbox.len(), acked: None })
    }
}
