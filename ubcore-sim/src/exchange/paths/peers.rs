//! The peers of a node, and a short look whether anything waits at one of them.
//!
//! *Owns*: the peers by EID; while no peer was reached for a change, the places at which their rings get their next
//! entries. *Gives*: the map, and whether a step would find something. *Must not*: answer by places that may
//! have moved: each way to a peer that could change it forgets them.
//!
//! A program polls while it waits, and most polls find nothing. So a poll looks at one word of each ring, in a
//! list without gaps, and not at the peers, which take several cache lines each.

use std::collections::BTreeMap;
use std::ops::{Deref, DerefMut};

use udma_abi::RawEid;
use urma_mem::Region;
use urma_mem::idle::{IdleSnapshot, WorkSign};
use urma_mem::spsc::NextPlace;

use crate::exchange::paths::peer::Peer;

/// The peers of a node, by their EIDs.
#[derive(Debug, Default)]
pub(crate) struct KnownPeers {
    by_eid: BTreeMap<RawEid, Peer>,
    /// Where the next entry of each ring comes, and whose it is, in the order of the peers.
    next: Vec<(NextPlace, RawEid)>,
    /// The peers are as they were when `next` was made, and had nothing to do then.
    is_current: bool,
}

impl KnownPeers {
    /// Whether a step would find something without any input.
    pub(crate) fn has_work(&self) -> bool {
        self.by_eid.values().any(Peer::has_work)
    }

    /// As not [`KnownPeers::has_work`], in fewer looks while nothing changes.
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

    /// Notes for a poll where peers without work write next. Whether these places are known, and not too many.
    pub(crate) fn note_idle(&self, sign: &WorkSign, idle: &mut IdleSnapshot) -> bool {
        self.is_current && idle.note(sign, self.next.iter().map(|(place, _)| place.place()))
    }

    /// The peer that wrote an entry since nothing was to be done at any peer; `None`: there may be more to do.
    #[inline]
    pub(crate) fn awaited(&self) -> Option<RawEid> {
        let written = self.next.iter().find(|(place, _)| place.is_written());
        written.filter(|_| self.is_current).map(|(_, eid)| *eid)
    }

    /// The place of a list without gaps that a peer wrote, as [`KnownPeers::awaited`].
    #[inline]
    pub(crate) fn awaited_place(&self) -> Option<usize> {
        self.next.iter().position(|(place, _)| place.is_written()).filter(|_| self.is_current)
    }

    /// The place of the peer in that list, if no peer has anything to do.
    pub(crate) fn place_of(&mut self, eid: &RawEid) -> Option<usize> {
        let is_idle = self.is_idle();
        self.next.iter().position(|(_, whose)| whose == eid).filter(|_| is_idle)
    }

    /// The next entry comes there now.
    #[inline]
    pub(crate) fn move_place(&mut self, index: usize, to: (&Region, usize)) {
        if let Some((place, _)) = self.next.get_mut(index) {
            place.move_to(to);
        }
    }

    /// Lends a peer; what [`KnownPeers::place_of`] showed goes on.
    pub(crate) fn lend(&mut self, eid: &RawEid) -> Option<Peer> {
        self.by_eid.remove(eid)
    }

    /// A peer that was lent is back.
    pub(crate) fn take_back(&mut self, peer: Peer) {
        self.is_current = false;
        self.by_eid.insert(peer.eid, peer);
    }

    /// The peer for a message, which leaves nothing to do: peers that had nothing to do have nothing then.
    #[inline]
    pub(crate) fn for_message(&mut self, eid: &RawEid) -> Option<&mut Peer> {
        self.by_eid.get_mut(eid)
    }

    /// A message is on its way: the next poll has to look at less, if nothing is left to do.
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

    /// Lets go of the memory of peers too.
    fn forget_places(&mut self) {
        self.is_current = false;
        self.next.clear();
    }

    /// All peers are idle now.
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
