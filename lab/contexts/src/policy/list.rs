//! Doubly linked lists over numbered nodes, each in at most one list; handles that left lately: a bounded memory of misses.

use std::{collections::HashMap, hash::BuildHasherDefault};

use crate::hash::HandleHasher;

/// Number that stands for no node.
pub(super) const NONE: u32 = u32::MAX;
/// List of a node that is in none.
const FREE: u32 = u32::MAX;

#[derive(Clone, Copy, Debug)]
struct ListNode {
    front: u32,
    back: u32,
    list: u32,
}

/// Head, tail and length of a list.
#[derive(Clone, Copy, Debug)]
struct ListEnds {
    front: u32,
    back: u32,
    len: u32,
}

/// Several lists over the nodes 0 to n - 1.
#[derive(Clone, Debug)]
pub(super) struct NodeLists {
    nodes: Vec<ListNode>,
    ends: Vec<ListEnds>,
}

impl NodeLists {
    /// `lists` empty lists for `nodes` nodes.
    pub(super) fn new(lists: u32, nodes: u32) -> Self {
        Self {
            nodes: vec![ListNode { front: NONE, back: NONE, list: FREE }; nodes as usize],
            ends: vec![ListEnds { front: NONE, back: NONE, len: 0 }; lists as usize],
        }
    }

    /// Puts a node that is in no list, at the front: the newest place.
    pub(super) fn push(&mut self, list: u32, node: u32) {
        let ends = &mut self.ends[list as usize];
        let next = ends.front;
        ends.front = node;
        ends.len += 1;
        if next == NONE {
            ends.back = node;
        } else {
            self.nodes[next as usize].front = node;
        }
        self.nodes[node as usize] = ListNode { front: NONE, back: next, list };
    }

    /// Takes a node out of its list, if it is in one.
    pub(super) fn remove(&mut self, node: u32) {
        let ListNode { front, back, list } = self.nodes[node as usize];
        if list == FREE {
            return;
        }
        let ends = &mut self.ends[list as usize];
        ends.len -= 1;
        if front == NONE {
            ends.front = back;
        } else {
            self.nodes[front as usize].back = back;
        }
        if back == NONE {
            self.ends[list as usize].back = front;
        } else {
            self.nodes[back as usize].front = front;
        }
        self.nodes[node as usize].list = FREE;
    }

    /// Moves a node to the front of `list`.
    pub(super) fn move_to(&mut self, list: u32, node: u32) {
        self.remove(node);
        self.push(list, node);
    }

    /// The oldest node of a list, or `NONE`.
    pub(super) fn oldest(&self, list: u32) -> u32 {
        self.ends[list as usize].back
    }

    /// The neighbour on the side of the newest, or `NONE`.
    pub(super) fn newer(&self, node: u32) -> u32 {
        self.nodes[node as usize].front
    }

    /// Number of nodes of a list.
    pub(super) fn len(&self, list: u32) -> u32 {
        self.ends[list as usize].len
    }

    /// List of a node, or `None`.
    pub(super) fn list_of(&self, node: u32) -> Option<u32> {
        let list = self.nodes[node as usize].list;
        (list != FREE).then_some(list)
    }
}

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
