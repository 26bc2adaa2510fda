//! Doubly linked lists over numbered nodes: a node is in at most one list.
//!
//! - owns: links, lengths. takes: nodes and lists by number. gives: ends and neighbours. must not: allocate after its start.

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
