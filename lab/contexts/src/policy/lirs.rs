//! LIRS: slots whose handles return soon keep their place; all others share a short queue.
//!
//! Variant: queue 1 % of the capacity, stack at most twice the capacity, oldest handles without a slot leave first
//! (as libCacheSim); a hit in the queue of a handle that left the stack changes nothing else (as in the paper). The
//! linked lists and the memory of handles that left are of bounded length.

use std::{collections::HashMap, hash::BuildHasherDefault};

use super::{Policy, PolicySlot};
use crate::handle::HandleHasher;

/// LIRS. A node is a handle in the stack, in a slot, or both.
#[derive(Clone, Debug)]
pub(super) struct Lirs {
    stack: NodeLists,
    /// Nodes in the stack without a slot.
    left: NodeLists,
    /// Slots whose handles are not kept.
    queue: NodeLists,
    nodes: HandleMap<u32>,
    handles: Vec<u32>,
    slots: Vec<u32>,
    kept: Vec<bool>,
    free: Vec<u32>,
    node_at: Vec<u32>,
    kept_now: u32,
    kept_most: u32,
    stack_most: u32,
}

impl Lirs {
    pub(super) fn new(capacity: u32) -> Self {
        let nodes = 3 * capacity + 4;
        Self {
            stack: NodeLists::new(1, nodes),
            left: NodeLists::new(1, nodes),
            queue: NodeLists::new(1, capacity),
            nodes: HandleMap::default(),
            handles: vec![0; nodes as usize],
            slots: vec![NONE; nodes as usize],
            kept: vec![false; nodes as usize],
            free: (0..nodes).rev().collect(),
            node_at: vec![NONE; capacity as usize],
            kept_now: 0,
            kept_most: capacity - (capacity / 100).max(1),
            stack_most: 2 * capacity,
        }
    }

    fn forget(&mut self, node: u32) {
        self.stack.remove(node);
        self.left.remove(node);
        self.nodes.remove(&self.handles[node as usize]);
        self.free.push(node);
    }

    /// Takes nodes off the bottom of the stack until a kept one is there.
    fn prune(&mut self) {
        loop {
            let bottom = self.stack.oldest(0);
            if bottom == NONE || self.kept[bottom as usize] {
                return;
            }
            self.stack.remove(bottom);
            if self.slots[bottom as usize] == NONE {
                self.forget(bottom);
            }
        }
    }

    /// Keeps a node that is on top of the stack; the kept one at the bottom goes to the queue where they are too many.
    fn keep(&mut self, node: u32) {
        self.kept[node as usize] = true;
        self.kept_now += 1;
        if self.kept_now > self.kept_most {
            let bottom = self.stack.oldest(0);
            self.stack.remove(bottom);
            self.kept[bottom as usize] = false;
            self.kept_now -= 1;
            self.queue.move_to(0, self.slots[bottom as usize]);
        }
        self.prune();
    }

    fn limit(&mut self) {
        while self.stack.len(0) > self.stack_most && self.left.len(0) > 0 {
            self.forget(self.left.oldest(0));
        }
    }

    /// Takes what is in `slot` out; a handle that is in the stack stays there without a slot.
    fn evict(&mut self, slot: PolicySlot) {
        let node = self.node_at[slot as usize];
        if node == NONE {
            return;
        }
        self.queue.remove(slot);
        self.slots[node as usize] = NONE;
        self.node_at[slot as usize] = NONE;
        if self.stack.list_of(node).is_none() || self.kept[node as usize] {
            self.kept_now -= u32::from(std::mem::take(&mut self.kept[node as usize]));
            self.forget(node);
            self.prune();
        } else {
            self.left.push(0, node);
        }
    }
}

impl Policy for Lirs {
    fn on_hit(&mut self, slot: PolicySlot) {
        let node = self.node_at[slot as usize];
        let in_stack = self.stack.list_of(node).is_some();
        self.stack.move_to(0, node);
        if self.kept[node as usize] {
            self.prune();
        } else if in_stack {
            self.queue.remove(slot);
            self.keep(node);
        } else {
            self.queue.move_to(0, slot);
            self.limit();
        }
    }

    fn on_miss(&mut self, _handle: u32) {}

    fn victim(&mut self, _handle: u32) -> PolicySlot {
        match self.queue.oldest(0) {
            NONE => self.slots[self.stack.oldest(0) as usize],
            slot => slot,
        }
    }

    fn admit(&mut self, _handle: u32, _victim: PolicySlot) -> bool {
        true
    }

    fn insert(&mut self, handle: u32, slot: PolicySlot) {
        self.evict(slot);
        let known = self.nodes.get(&handle).copied();
        let Some(node) = known.or_else(|| self.free.pop()) else { return };
        self.nodes.insert(handle, node);
        self.handles[node as usize] = handle;
        self.slots[node as usize] = slot;
        self.node_at[slot as usize] = node;
        self.left.remove(node);
        self.stack.move_to(0, node);
        self.kept[node as usize] = false;
        if known.is_some() || self.kept_now < self.kept_most {
            self.keep(node);
        } else {
            self.queue.push(0, slot);
        }
        self.limit();
    }

    fn remove(&mut self, slot: PolicySlot) {
        self.evict(slot);
    }

    fn retain(&mut self, slot: PolicySlot) {
        let node = self.node_at[slot as usize];
        if node != NONE && !self.kept[node as usize] {
            self.queue.move_to(0, slot);
        }
    }
}

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
