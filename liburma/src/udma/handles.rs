//! The handles of transport paths that a context gave out.
//!
//! *Owns*: peer, kind and attributes of each handle. *Must not*: reach a peer.

use std::collections::BTreeMap;

use urma_core::Eid;

use crate::{
    abi::urma_tp_attr_value_t,
    call::{Answer, refuse},
};

/// Handles of one context at most.
const HANDLES_MAX: usize = 1 << 16;

/// A path that a program knows by its handle.
pub(crate) struct TpHandle {
    pub(crate) peer: Eid,
    /// URMA_RTP, URMA_CTP or URMA_UTP.
    pub(crate) kind: u32,
    /// Which attributes were set, by their bits in the C API.
    pub(crate) bitmap: u32,
    pub(crate) attr: AttrBytes,
}

/// The attributes as they lie in memory: members of single bits, packed.
pub(crate) type AttrBytes = [u8; size_of::<urma_tp_attr_value_t>()];

/// The handles of a context. A handle is its number here: 1, 2, ...
#[derive(Default)]
pub(crate) struct Handles {
    pub(crate) known: BTreeMap<u64, TpHandle>,
}

impl Handles {
    /// The handle of the path of this kind to `peer`.
    ///
    /// # Errors
    /// ENOMEM: the context has as many handles as it may have.
    pub(crate) fn of(&mut self, peer: Eid, kind: u32) -> Answer<u64> {
        let known = self.known.iter().find(|(_, tp)| tp.peer == peer && tp.kind == kind);
        if let Some((handle, _)) = known {
            return Ok(*handle);
        }
        if self.known.len() >= HANDLES_MAX {
            return Err(refuse!(ENOMEM, "the context gave out as many handles as it may"));
        }
        let handle = self.known.len() as u64 + 1;
        self.known.insert(handle, TpHandle { peer, kind, bitmap: 0, attr: [0; 128] });
        Ok(handle)
    }
}
