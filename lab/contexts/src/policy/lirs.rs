//! LIRS: slots whose handles return soon keep their place; all others share a short queue.
//!
//! Variant: queue 1 % of the capacity, stack at most twice the capacity, oldest handles without a slot leave first (as
//! libCacheSim); a hit in the queue of a handle that left the stack changes nothing else (as in the paper).
//!
//! - owns: stack, queue, handles that left. takes: hits, insertions. gives: victims. must not: let the stack grow.

use super::{
    Policy, PolicySlot,
    list::{HandleMap, NONE, NodeLists},
};

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
