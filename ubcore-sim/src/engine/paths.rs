//! The paths that one send queue uses.
//!
//! *Owns*: their states. *Takes*: TPNs. *Gives*: the state of each in a few steps, however many nodes a queue talks
//! to. *Must not*: trust a cached index without comparing the TPN.

use std::ops::{Deref, DerefMut};

use super::remote::PathState;

/// Size of the index cache. TPNs are random: of 64 some collide, and are searched for in turn.
const PLACES: usize = 256;

/// States of paths, with a cache from TPN to index.
#[derive(Debug)]
pub(crate) struct PathStates {
    list: Vec<PathState>,
    /// Their TPNs in one array: a search reads nothing else.
    tpns: Vec<u32>,
    /// Index at which a TPN was last found, by its low bits.
    places: [u8; PLACES],
}

impl PathStates {
    pub(crate) const fn new() -> Self {
        Self { list: Vec::new(), tpns: Vec::new(), places: [0; PLACES] }
    }

    /// Index of the state of the path `tpn`, if the queue has used it.
    #[inline]
    pub(crate) fn index_of(&mut self, tpn: u32) -> Option<usize> {
        let place = usize::from(self.places[tpn as usize % PLACES]);
        if self.tpns.get(place).is_some_and(|at| *at == tpn) {
            return Some(place);
        }
        self.search(tpn)
    }

    /// Looks up the state of the path `tpn`, if the queue has used it.
    #[inline]
    pub(crate) fn find(&mut self, tpn: u32) -> Option<&mut PathState> {
        let index = self.index_of(tpn)?;
        self.list.get_mut(index)
    }

    /// Looks up the state of the path `tpn`, if the queue has used it, and the path is alive and reliable.
    #[inline]
    pub(crate) fn find_open(&mut self, tpn: u32) -> Option<&mut PathState> {
        self.find(tpn).filter(|path| path.link.is_alive() && !path.link.unreliable)
    }

    #[inline(never)]
    fn search(&mut self, tpn: u32) -> Option<usize> {
        let index = self.tpns.iter().position(|at| *at == tpn)?;
        self.remember(tpn, index);
        Some(index)
    }

    /// Adds the state of a path that the queue has not used. Returns its index.
    pub(crate) fn add(&mut self, state: PathState) -> usize {
        let index = self.list.len();
        self.remember(state.link.tpn, index);
        self.tpns.push(state.link.tpn);
        self.list.push(state);
        index
    }

    /// Keeps the states that `is_kept` selects; indices change.
    pub(crate) fn retain(&mut self, is_kept: impl FnMut(&PathState) -> bool) {
        self.list.retain(is_kept);
        self.tpns.clear();
        self.tpns.extend(self.list.iter().map(|state| state.link.tpn));
    }

    fn remember(&mut self, tpn: u32, index: usize) {
        if let Ok(index) = u8::try_from(index) {
            self.places[tpn as usize % PLACES] = index;
        }
    }
}

impl Deref for PathStates {
    type Target = [PathState];

    fn deref(&self) -> &[PathState] {
        &self.list
    }
}

impl DerefMut for PathStates {
    fn deref_mut(&mut self) -> &mut [PathState] {
        &mut self.list
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use udma_abi::RawEid;

    use super::*;
    use crate::context::link::{NodePath, Reach};

    fn state(tpn: u32) -> PathState {
        let link = NodePath::new(tpn, RawEid([0; 16]), false, Reach::Messages);
        PathState::new(Arc::new(link), 0)
    }

    #[test]
    fn each_path_is_found_wherever_it_is_remembered() {
        let mut states = PathStates::new();
        assert!(states.index_of(0).is_none());
        // Three of them at each place, and more than a place can name.
        let tpns: Vec<u32> = (1..400).chain([0x0100_0001]).collect();
        for tpn in &tpns {
            assert!(states.find(*tpn).is_none());
            states.add(state(*tpn));
        }
        for tpn in tpns.iter().chain(tpns.iter().rev()) {
            assert_eq!(states.find(*tpn).map(|state| state.link.tpn), Some(*tpn));
        }
        states.retain(|state| state.link.tpn % 3 == 0);
        for tpn in &tpns {
            assert_eq!(states.find(*tpn).is_some(), tpn % 3 == 0, "{tpn}");
        }
    }
}
