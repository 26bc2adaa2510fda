//! The peers of a node, and a cheap check whether any of them has work.
//!
//! *Owns*: the peers by EID; while no peer was accessed mutably, also the places where their rings get their next
//! entries. *Gives*: the map, and whether a step would find something. *Must not*: use places that may have moved:
//! each access that could change a peer clears them.
//!
//! A program polls while it waits, and most polls find nothing. So a poll reads one word of each ring, by a dense
//! list, and not the peers, which take several cache lines each.

pub(crate) mod peer;

use std::collections::BTreeMap;
use std::ops::{Deref, DerefMut};

use udma_abi::RawEid;
use urma_mem::Region;
use urma_mem::idle::{IdleSnapshot, WorkSign};
use urma_mem::spsc::NextPlace;

use crate::exchange::peers::peer::Peer;

/// The peers of a node, by their EIDs.
#[derive(Debug, Default)]
pub(crate) struct KnownPeers {
    by_eid: BTreeMap<RawEid, Peer>,
    /// Place of each ring's next entry, and its peer, in the order of the peers.
    next: Vec<(NextPlace, RawEid)>,
    /// Whether `next` is valid: the peers have not changed, and had no work when it was made.
    is_current: bool,
}

impl KnownPeers {
    /// Whether a step would find work that no input announces.
    pub(crate) fn has_work(&self) -> bool {
        self.by_eid.values().any(Peer::has_work)
    }

    /// Whether no peer has work: the opposite of [`KnownPeers::has_work`], cheaper as long as nothing changes.
    #[inline]
    pub(crate) fn is_idle(&mut self) -> bool {
        if self.is_current {
            return !self.next.iter().any(|(place, _)| place.is_written());
        }
        let is_idle = !self.has_work();
        if is_idle {
            self.note_places();
        }
        is_idle
    }

    /// Adds to a poll's idle snapshot the words that peers without work write next. Returns `false` if these are not
    /// known or too many.
    pub(crate) fn note_idle(&self, sign: &WorkSign, idle: &mut IdleSnapshot) -> bool {
        self.is_current && idle.note(sign, self.next.iter().map(|(place, _)| place.place()))
    }

    /// The peer that wrote an entry since no peer had work; `None`: there may be more to do.
    #[inline]
    pub(crate) fn awaited(&self) -> Option<RawEid> {
        let written = self.next.iter().find(|(place, _)| place.is_written());
        written.filter(|_| self.is_current).map(|(_, eid)| *eid)
    }

    /// Index in the dense list of the entry that a peer wrote since no peer had work.
    #[inline]
    pub(crate) fn awaited_place(&self) -> Option<usize> {
        self.next.iter().position(|(place, _)| place.is_written()).filter(|_| self.is_current)
    }

    /// Index of the peer in the dense list, if no peer has work.
    pub(crate) fn place_of(&mut self, eid: &RawEid) -> Option<usize> {
        let is_idle = self.is_idle();
        self.next.iter().position(|(_, whose)| whose == eid).filter(|_| is_idle)
    }

    /// Sets the place of the next entry.
    #[inline]
    pub(crate) fn move_place(&mut self, index: usize, to: (&Region, usize)) {
        if let Some((place, _)) = self.next.get_mut(index) {
            place.move_to(to);
        }
    }

    /// Takes a peer out of the map; the list of [`KnownPeers::place_of`] stays valid.
    pub(crate) fn lend(&mut self, eid: &RawEid) -> Option<Peer> {
        self.by_eid.remove(eid)
    }

    /// Puts a peer back that was lent.
    pub(crate) fn take_back(&mut self, peer: Peer) {
        self.is_current = false;
        self.by_eid.insert(peer.eid, peer);
    }

    /// Returns a peer to send it a message, which leaves no work: the list stays valid.
    #[inline]
    pub(crate) fn for_message(&mut self, eid: &RawEid) -> Option<&mut Peer> {
        self.by_eid.get_mut(eid)
    }

    /// Rebuilds the list after a message was sent, if no peer has work, so that the next poll is cheap.
    #[inline]
    pub(crate) fn after_send(&mut self) {
        if !self.is_current {
            self.is_idle();
        }
    }

    pub(crate) fn insert(&mut self, eid: RawEid, peer: Peer) -> Option<Peer> {
        self.forget_places();
        self.by_eid.insert(eid, peer)
    }

    pub(crate) fn remove(&mut self, eid: &RawEid) -> Option<Peer> {
        self.forget_places();
        self.by_eid.remove(eid)
    }

    /// Drops the list, and its references to the peers' memory.
    fn forget_places(&mut self) {
        self.is_current = false;
        self.next.clear();
    }

    /// Builds the list; no peer has work.
    #[cold]
    fn note_places(&mut self) {
        let places = self.by_eid.iter().filter_map(|(eid, peer)| Some((peer.next_place()?, *eid)));
        let mut count = 0;
        for (place, eid) in places {
            match self.next.get_mut(count) {
                Some((noted, whose)) => {
                    noted.move_to(place);
                    *whose = eid;
                }
                None => self.next.push((NextPlace::new(place), eid)),
            }
            count += 1;
        }
        self.next.truncate(count);
        self.is_current = true;
    }
}

impl Deref for KnownPeers {
    type Target = BTreeMap<RawEid, Peer>;

    fn deref(&self) -> &Self::Target {
        &self.by_eid
    }
}

impl DerefMut for KnownPeers {
    fn deref_mut(&mut self) -> &mut Self::Target {
        self.is_current = false;
        &mut self.by_eid
    }
}
