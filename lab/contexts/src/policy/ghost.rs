//! Handles that left lately, oldest first out: a bounded memory of misses to come.
//!
//! - owns: handles and their order. takes: handles that leave and that return. gives: whether and where one is.
//! - must not: grow beyond its bound.

use std::collections::HashMap;
use std::hash::BuildHasherDefault;

use super::list::{NONE, NodeLists};
use crate::hash::HandleHasher;

/// A map by handle.
pub(super) type HandleMap<T> = HashMap<u32, T, BuildHasherDefault<HandleHasher>>;

/// NodeLists of handles that left, together of a bounded length.
#[derive(Clone, Debug)]
pub(super) struct Ghosts {
    nodes: HandleMap<u32>,
    lists: NodeLists,
    handles: Vec<u32>,
    free: Vec<u32>,
}

impl Ghosts {
    /// `lists` lists of at most `most` handles together.
    pub(super) fn new(lists: u32, most: u32) -> Self {
        Self {
            nodes: HandleMap::default(),
            lists: NodeLists::new(lists, most),
            handles: vec![NONE; most as usize],
            free: (0..most).rev().collect(),
        }
    }

    /// Puts a handle that is in no list, as the newest; where all places are in use, the oldest of the list leaves first.
    pub(super) fn push(&mut self, list: u32, handle: u32) {
        if self.free.is_empty() {
            self.pop(list);
        }
        let Some(node) = self.free.pop() else { return };
        self.handles[node as usize] = handle;
        self.nodes.insert(handle, node);
        self.lists.push(list, node);
    }

    /// Takes the oldest handle of a list out.
    pub(super) fn pop(&mut self, list: u32) {
        let node = self.lists.oldest(list);
        if node != NONE {
            self.take(self.handles[node as usize]);
        }
    }

    /// List of a handle.
    pub(super) fn list_of(&self, handle: u32) -> Option<u32> {
        self.lists.list_of(*self.nodes.get(&handle)?)
    }

    /// Takes a handle out; its list, if it was in one.
    pub(super) fn take(&mut self, handle: u32) -> Option<u32> {
        let node = self.nodes.remove(&handle)?;
        let list = self.lists.list_of(node);
        self.lists.remove(node);
        self.free.push(node);
        list
    }

    /// Number of handles of a list.
    pub(super) fn len(&self, list: u32) -> u32 {
        self.lists.len(list)
    }
}
