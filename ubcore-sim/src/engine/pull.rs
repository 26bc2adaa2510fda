//! Copies long messages and writes of a peer on this host once, out of the peer's own pages.
//!
//! *Owns*: the hazard slot of the exchange in a pair's half, and a few entries of the peer's table. *Takes*: names of
//! bytes. *Gives*: access to the bytes for the length of one closure. *Must not*: touch a byte before life and bounds
//! were checked, or more than a chunk under one announcement.
//!
//! Bytes in the peer's arena are loaded; the kernel reads others out of its process, where this one may do so.
//!
//! The peer that names bytes owns them, so neither rights nor a token are checked. Its name may be wrong, or older
//! than a withdrawal: then the peer sends the message again with its bytes.

use udma_abi::CqeStatus;
use urma_mem::Region;
use urma_mem::hazard::{CHUNK_MAX, HazardSlot};
use urma_mem::procvm::ProcessMemory;

use super::names::{NamedBytes, TakenNames};
use super::remote::{View, address_of, is_current as is_alive, place_of, slot_in};
use crate::context::link::DirectParts;
use crate::hooks::{self, Hook};
use crate::share::{HALF_NAMES, PULL_SLOT};

/// Number of cached entries of the peer's table.
const VIEWS: usize = 4;

/// Why bytes that a peer named were not copied.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum PullError {
    /// They are not, or no longer, where the peer said, or not shared.
    Unreachable,
    /// They could not be stored on this side.
    Local(CqeStatus),
}

/// Place of named bytes.
#[derive(Clone, Copy, Debug)]
pub(crate) enum NamedPlace<'a> {
    /// At an offset of the peer's arena.
    Arena(&'a Region, usize),
    /// At an address of the peer's process.
    Process(&'a ProcessMemory, u64),
}

/// Reads the memory of one peer.
#[derive(Debug)]
pub(crate) struct Puller {
    node: Region,
    arena: Region,
    process: Option<ProcessMemory>,
    peer_half: Region,
    slot: HazardSlot,
    views: [Option<View>; VIEWS],
}

impl Puller {
    /// Publishes in the half which names are accepted. `None`: the half is too short for the slot.
    pub(crate) fn new(parts: &DirectParts, peer_half: &Region) -> Option<Self> {
        let slot = slot_in(&parts.half, PULL_SLOT)?;
        let (node, arena, process) =
            (parts.node.clone(), parts.arena.clone(), parts.process.clone());
        TakenNames::of(process.is_some()).publish(&parts.half);
        let peer_half = peer_half.clone();
        Some(Self { node, arena, process, peer_half, slot, views: Default::default() })
    }

    /// Calls `touch` with the place of the bytes, announced in the slot. What `touch` stored is valid only on
    /// success.
    ///
    /// # Errors
    /// [`PullError`].
    pub(crate) fn pull(
        &mut self,
        bytes: &NamedBytes,
        touch: impl FnOnce(NamedPlace<'_>) -> Result<(), PullError>,
    ) -> Result<(), PullError> {
        let gone = PullError::Unreachable;
        let Self { node, arena, process, peer_half, slot, views } = self;
        let is_current = || peer_half.load_u64_acquire(HALF_NAMES) == Ok(bytes.epoch);
        if bytes.len as usize > CHUNK_MAX || !is_current() {
            return Err(gone);
        }
        let view = &mut views[(bytes.token_id >> 8) as usize % VIEWS];
        let announced = slot.announce(u64::from(bytes.token_id)).map_err(|_| gone)?;
        hooks::pass(Hook::SlotAnnounced);
        let is_fresh = view
            .as_ref()
            .is_some_and(|view| view.token_id == bytes.token_id && is_alive(&announced, view));
        if !is_fresh {
            *view = View::read(node, bytes.token_id);
        }
        let view = view.as_ref().filter(|view| view.imported == bytes.life).ok_or(gone)?;
        let len = u64::from(bytes.len);
        // The shared parts of a segment lie within it.
        let place = match (place_of(view, bytes.va, len), process) {
            (Some(offset), _) => NamedPlace::Arena(arena, offset),
            (None, Some(process)) => {
                NamedPlace::Process(process, address_of(view, bytes.va, len).ok_or(gone)?)
            }
            (None, None) => return Err(gone),
        };
        touch(place)?;
        hooks::pass(Hook::CopyUnchecked);
        announced.finish(&view.generation, view.imported).map_err(|_| gone)?;
        // Read only now: it must be newer than the bytes.
        if is_current() { Ok(()) } else { Err(gone) }
    }
}
