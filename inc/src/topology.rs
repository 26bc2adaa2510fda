//! The physical map of switches, hosts and links, and the tree of a communicator in it.
//!
//! The tree's root is the switch with the least depth to all members; of several the one with the fewest edges, then the one
//! whose switches have most free memory in all. Paths are shortest paths; where there are several, one that the tree
//! has already, then through the switch with most free memory. Children are in the order of the lowest rank below each, so
//! the order in which floats are added is the same for the same map and members.

use std::collections::{BTreeMap, VecDeque};
use std::net::{IpAddr, SocketAddr};

use crate::slots::{CHILDREN_MAX, Child};
use crate::wire::Rank;

/// Switches on the way from a host to the root at most.
pub const DEPTH_MAX: usize = 8;

/// What a node of the map does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NodeKind {
    /// Reduces and passes on.
    Switch,
    /// Has ranks, and passes nothing on.
    Host,
}

/// A switch or a host.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MapNode {
    /// Its name, which no other node has.
    pub name: String,
    /// Whether it is a switch or a host.
    pub kind: NodeKind,
    /// Its address, where a link says no other.
    pub address: Option<SocketAddr>,
}

/// A cable between two nodes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MapLink {
    /// Places of both ends in [`PhysicalMap::nodes`].
    pub ends: [usize; 2],
    /// Addresses of both ends at this link; `None`: the node's.
    pub addresses: [Option<SocketAddr>; 2],
}

/// Switches, hosts and links.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct PhysicalMap {
    /// All switches and hosts.
    pub nodes: Vec<MapNode>,
    /// All links between them.
    pub links: Vec<MapLink>,
}

/// The tree of a communicator: its switches, the root first, each behind its parent.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TreeShape {
    /// The switches of the tree.
    pub switches: Vec<ShapeSwitch>,
}

/// A switch of a tree.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ShapeSwitch {
    /// Its place in [`PhysicalMap::nodes`].
    pub node: usize,
    /// The parent's place in [`TreeShape::switches`], and this switch's address towards it.
    pub parent: Option<(usize, SocketAddr)>,
    /// The children, in the order of the lowest rank below each.
    pub children: Vec<ShapeChild>,
}

/// A child of a switch of a tree.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ShapeChild {
    /// The ranks below it.
    pub child: Child,
    /// Its place in [`TreeShape::switches`], if it is a switch.
    pub switch: Option<usize>,
    /// The link to it, as a place in [`PhysicalMap::links`].
    pub link: usize,
    /// The address of the switch above that it sends to.
    pub address: SocketAddr,
}

/// Why there is no tree.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ShapeError {
    /// A member's address is that of no host.
    #[error("rank {} has the address {address}, which no host of the topology has", rank.0)]
    UnknownHost {
        /// The rank with that address.
        rank: Rank,
        /// Address of the rank.
        address: IpAddr,
    },
    /// A member cannot reach the others.
    #[error("no switch that is in service joins rank {} (host {host}) with the other ranks", rank.0)]
    Unreachable {
        /// The lowest rank that the switches around the first rank do not reach.
        rank: Rank,
        /// Name of its host.
        host: String,
    },
    /// Every tree is too deep.
    #[error("the tree would have {0} levels of switches, more than 8")]
    Depth(usize),
    /// A switch would have too many children.
    #[error("switch {switch} would have {children} children, more than 64")]
    Children {
        /// Name of the switch.
        switch: String,
        /// Children that it would have.
        children: usize,
    },
}

/// What a tree may be made of.
pub trait TreeSupply {
    /// Free bytes of a switch; `None`: it is not in service, or has no room for the communicator.
    fn free(&self, node: usize) -> Option<u64>;
    /// Whether a link may be used.
    fn has_link(&self, link: usize) -> bool;
}

/// A tree under construction, from one root.
struct Growth<'a> {
    map: &'a PhysicalMap,
    neighbours: &'a [Vec<(usize, usize)>],
    /// Distance of each node from the root; `None`: it is not reached.
    distances: Vec<Option<usize>>,
    shape: TreeShape,
    /// Place of a node in the shape.
    places: BTreeMap<usize, usize>,
}

impl PhysicalMap {
    /// The host that has an address, at any of its links.
    #[must_use]
    pub fn host_at(&self, address: IpAddr) -> Option<usize> {
        self.node_at(NodeKind::Host, address)
    }

    /// The switch that has an address, at any of its links.
    #[must_use]
    pub fn switch_at(&self, address: IpAddr) -> Option<usize> {
        self.node_at(NodeKind::Switch, address)
    }

    /// The node with a name.
    #[must_use]
    pub fn node_named(&self, name: &str) -> Option<usize> {
        self.nodes.iter().position(|node| node.name == name)
    }

    fn node_at(&self, kind: NodeKind, address: IpAddr) -> Option<usize> {
        let has = |at: Option<SocketAddr>| at.is_some_and(|at| at.ip() == address);
        let by_link = self.links.iter().flat_map(|link| {
            (0..2).filter(|&end| has(link.addresses[end])).map(|end| link.ends[end])
        });
        let by_node = (0..self.nodes.len()).filter(|&node| has(self.nodes[node].address));
        by_node.chain(by_link).find(|&node| self.nodes[node].kind == kind)
    }

    /// The address of a node at one of its links.
    #[must_use]
    pub fn address_at(&self, node: usize, link: usize) -> Option<SocketAddr> {
        let link = &self.links[link];
        let end = link.ends.iter().position(|&end| end == node)?;
        link.addresses[end].or(self.nodes[node].address)
    }

    /// The best tree for members on these hosts, which are places in [`PhysicalMap::nodes`], by rank.
    ///
    /// # Errors
    /// [`ShapeError`].
    pub fn tree(
        &self,
        members: &[(Rank, usize)],
        supply: &impl TreeSupply,
    ) -> Result<TreeShape, ShapeError> {
        let neighbours = self.neighbours(supply);
        let free: Vec<_> = (0..self.nodes.len()).map(|node| supply.free(node)).collect();
        let is_switch = |&node: &usize| self.nodes[node].kind == NodeKind::Switch;
        let mut best: Option<((usize, usize, u64), TreeShape)> = None;
        let mut error = None;
        for root in (0..self.nodes.len()).filter(is_switch).filter(|&node| free[node].is_some()) {
            let distances = self.distances(root, &neighbours, &free);
            let reached = |&(_, host): &(Rank, usize)| distances[host];
            let Some(depth) = members.iter().map(reached).collect::<Option<Vec<_>>>() else {
                continue;
            };
            let depth = depth.into_iter().max().unwrap_or(0);
            if best.as_ref().is_some_and(|((least, ..), _)| *least < depth) {
                continue;
            }
            if depth > DEPTH_MAX {
                let least = match error {
                    Some(ShapeError::Depth(least)) => depth.min(least),
                    _ => depth,
                };
                error = Some(ShapeError::Depth(least));
                continue;
            }
            match self.grow(root, distances, &neighbours, &free, members) {
                Ok(shape) => {
                    let room = shape.switches.iter().filter_map(|switch| free[switch.node]);
                    let room = room.fold(0, u64::saturating_add);
                    let rank = (depth, shape.switches.len(), u64::MAX - room);
                    if best.as_ref().is_none_or(|(least, _)| rank < *least) {
                        best = Some((rank, shape));
                    }
                }
                Err(found) => {
                    error.get_or_insert(found);
                }
            }
        }
        match (best, error) {
            (Some((_, shape)), _) => Ok(shape),
            (None, Some(error)) => Err(error),
            (None, None) => Err(self.unreachable(members, &neighbours, &free)),
        }
    }

    fn neighbours(&self, supply: &impl TreeSupply) -> Vec<Vec<(usize, usize)>> {
        let mut neighbours = vec![Vec::new(); self.nodes.len()];
        for (at, link) in self.links.iter().enumerate().filter(|(at, _)| supply.has_link(*at)) {
            let [a, b] = link.ends;
            neighbours[a].push((b, at));
            neighbours[b].push((a, at));
        }
        neighbours
    }

    /// Links from a switch to each node, over switches that are in service.
    fn distances(
        &self,
        root: usize,
        neighbours: &[Vec<(usize, usize)>],
        free: &[Option<u64>],
    ) -> Vec<Option<usize>> {
        let mut distances = vec![None; self.nodes.len()];
        distances[root] = Some(0);
        let mut queue = VecDeque::from([(root, 0)]);
        while let Some((node, distance)) = queue.pop_front() {
            for &(next, _) in &neighbours[node] {
                let is_host = self.nodes[next].kind == NodeKind::Host;
                if distances[next].is_some() || !(is_host || free[next].is_some()) {
                    continue;
                }
                distances[next] = Some(distance + 1);
                if !is_host {
                    queue.push_back((next, distance + 1));
                }
            }
        }
        distances
    }

    fn grow(
        &self,
        root: usize,
        distances: Vec<Option<usize>>,
        neighbours: &[Vec<(usize, usize)>],
        free: &[Option<u64>],
        members: &[(Rank, usize)],
    ) -> Result<TreeShape, ShapeError> {
        let first = ShapeSwitch { node: root, parent: None, children: Vec::new() };
        let mut growth = Growth {
            map: self,
            neighbours,
            distances,
            shape: TreeShape { switches: vec![first] },
            places: BTreeMap::from([(root, 0)]),
        };
        for &(rank, host) in members {
            growth.add(rank, host, free);
        }
        let mut shape = growth.shape;
        for at in 0..shape.switches.len() {
            let switch = &shape.switches[at];
            if switch.children.len() > CHILDREN_MAX {
                return Err(ShapeError::Children {
                    switch: self.nodes[switch.node].name.clone(),
                    children: switch.children.len(),
                });
            }
        }
        // Switches stand behind their parents, so ranks are collected from the end.
        for at in (0..shape.switches.len()).rev() {
            let below: Vec<Rank> =
                shape.switches[at].children.iter().flat_map(|child| ranks(&child.child)).collect();
            let Some((parent, _)) = shape.switches[at].parent else { continue };
            let child =
                shape.switches[parent].children.iter_mut().find(|child| child.switch == Some(at));
            if let Some(child) = child {
                let mut below = below;
                below.sort_unstable();
                child.child = Child::Switch(below);
            }
        }
        Ok(shape)
    }

    fn unreachable(
        &self,
        members: &[(Rank, usize)],
        neighbours: &[Vec<(usize, usize)>],
        free: &[Option<u64>],
    ) -> ShapeError {
        let first = members.first().map_or(0, |&(_, host)| host);
        let near = neighbours[first].iter().find(|(node, _)| free[*node].is_some());
        let reached = near.map(|&(switch, _)| self.distances(switch, neighbours, free));
        let is_lost = |&&(_, host): &&(Rank, usize)| {
            reached.as_ref().is_none_or(|reached| reached[host].is_none())
        };
        let lost = members.iter().find(is_lost).or_else(|| members.first()).copied();
        let (rank, host) = lost.unwrap_or((Rank(0), 0));
        let host = self.nodes.get(host).map_or_else(String::new, |node| node.name.clone());
        ShapeError::Unreachable { rank, host }
    }
}

impl Growth<'_> {
    /// Adds a member, and the switches between it and the tree.
    fn add(&mut self, rank: Rank, host: usize, free: &[Option<u64>]) {
        // From the host up to the first switch that the tree has.
        let mut path = Vec::new();
        let mut node = host;
        let mut top = None;
        while top.is_none() {
            let Some((above, link)) = self.above(node, free) else { return };
            path.push((node, above, link));
            top = self.places.get(&above).copied();
            node = above;
        }
        let mut parent = top.unwrap_or(0);
        for (node, above, link) in path.into_iter().rev() {
            let Some(address) = self.map.address_at(above, link) else { return };
            let is_host = node == host;
            let place = self.shape.switches.len();
            let child = if is_host { Child::Host(rank) } else { Child::Switch(Vec::new()) };
            let switch = (!is_host).then_some(place);
            self.shape.switches[parent].children.push(ShapeChild { child, switch, link, address });
            if !is_host {
                let Some(address) = self.map.address_at(node, link) else { return };
                let parent_of = Some((parent, address));
                let switch = ShapeSwitch { node, parent: parent_of, children: Vec::new() };
                self.shape.switches.push(switch);
                self.places.insert(node, place);
                parent = place;
            }
        }
    }

    /// The switch one step nearer to the root, and the link to it.
    fn above(&self, node: usize, free: &[Option<u64>]) -> Option<(usize, usize)> {
        let nearer = self.distances[node]?.checked_sub(1)?;
        let is_above = |&&(next, _): &&(usize, usize)| {
            self.map.nodes[next].kind == NodeKind::Switch
                && free[next].is_some()
                && self.distances[next] == Some(nearer)
        };
        let preference = |&&(next, link): &&(usize, usize)| {
            let room = u64::MAX - free[next].unwrap_or(0);
            (!self.places.contains_key(&next), room, next, link)
        };
        self.neighbours[node].iter().filter(is_above).min_by_key(preference).copied()
    }
}

/// The ranks below a child.
#[must_use]
pub fn ranks(child: &Child) -> Vec<Rank> {
    match child {
        Child::Host(rank) => vec![*rank],
        Child::Switch(ranks) => ranks.clone(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::document;

    /// All switches are in service, with the same memory, but for those named.
    struct Except<'a>(&'a PhysicalMap, &'a [&'a str], &'a [usize]);

    impl TreeSupply for Except<'_> {
        fn free(&self, node: usize) -> Option<u64> {
            (!self.1.contains(&self.0.nodes[node].name.as_str())).then_some(1 << 20)
        }

        fn has_link(&self, link: usize) -> bool {
            !self.2.contains(&link)
        }
    }

    /// Two leaves with two hosts each, and two switches above, `a` and `b`; the leaves are joined by both.
    fn fat_tree() -> PhysicalMap {
        let node = |name: &str, kind: &str, at: u8| {
            format!("  - {{name: {name}, kind: {kind}, address: 10.0.0.{at}}}\n")
        };
        let mut text = "nodes:\n".to_owned();
        for (at, name) in (1..).zip(["a", "b", "left", "right"]) {
            text += &node(name, "switch", at);
        }
        for (at, name) in (10..).zip(["h0", "h1", "h2", "h3"]) {
            text += &node(name, "host", at);
        }
        text += "links:\n";
        for (a, b) in [("a", "left"), ("a", "right"), ("b", "left"), ("b", "right")]
            .into_iter()
            .chain([("left", "h0"), ("right", "h1"), ("left", "h2"), ("right", "h3")])
        {
            text += &format!("  - ends: [{a}, {b}]\n");
        }
        document::read_map(&text).unwrap()
    }

    fn members(map: &PhysicalMap, hosts: &[&str]) -> Vec<(Rank, usize)> {
        (0..).map(Rank).zip(hosts.iter().map(|host| map.node_named(host).unwrap())).collect()
    }

    /// A tree in one line: the switch's name, and its children in brackets.
    fn shown(map: &PhysicalMap, shape: &TreeShape, at: usize) -> String {
        let switch = &shape.switches[at];
        let children = switch.children.iter().map(|child| match (&child.child, child.switch) {
            (Child::Host(rank), _) => rank.0.to_string(),
            (Child::Switch(_), Some(at)) => shown(map, shape, at),
            (Child::Switch(_), None) => panic!("{child:?}"),
        });
        let children: Vec<_> = children.collect();
        format!("{}({})", map.nodes[switch.node].name, children.join(" "))
    }

    fn tree(map: &PhysicalMap, hosts: &[&str], without: &[&str], cut: &[usize]) -> String {
        match map.tree(&members(map, hosts), &Except(map, without, cut)) {
            Ok(shape) => shown(map, &shape, 0),
            Err(error) => error.to_string(),
        }
    }

    #[test]
    fn the_root_is_where_the_depth_is_least_and_children_stand_by_their_lowest_rank() {
        let map = fat_tree();
        let all = ["h0", "h1", "h2", "h3"];
        assert_eq!(tree(&map, &all, &[], &[]), "a(left(0 2) right(1 3))");
        assert_eq!(tree(&map, &["h3", "h2", "h1"], &[], &[]), "a(right(0 2) left(1))");
        assert_eq!(tree(&map, &["h0", "h2"], &[], &[]), "left(0 1)");
        assert_eq!(tree(&map, &["h0", "h0"], &[], &[]), "left(0 1)");
        // Without one of the two above, by the other; without both, by none.
        assert_eq!(tree(&map, &all, &["a"], &[]), "b(left(0 2) right(1 3))");
        let none = "no switch that is in service joins rank 1 (host h1) with the other ranks";
        assert_eq!(tree(&map, &all, &["a", "b"], &[]), none);
        // A cut link is no path: the way goes round it, or deeper.
        assert_eq!(tree(&map, &all, &[], &[1]), "b(left(0 2) right(1 3))");
        assert_eq!(tree(&map, &all, &[], &[4]), none.replace("1 (host h1)", "0 (host h0)"));
    }

    #[test]
    fn a_switch_knows_the_ranks_below_each_child_and_the_address_it_sends_to() {
        let map = fat_tree();
        let shape = map.tree(&members(&map, &["h0", "h1", "h2"]), &Except(&map, &[], &[])).unwrap();
        let [root, left, right] = &shape.switches[..] else { panic!("{shape:?}") };
        let below: Vec<_> = root.children.iter().map(|child| child.child.clone()).collect();
        assert_eq!(below, [Child::Switch(vec![Rank(0), Rank(2)]), Child::Switch(vec![Rank(1)])]);
        let at = |last: u8| SocketAddr::from(([10, 0, 0, last], 4791));
        assert!(root.children.iter().all(|child| child.address == at(1)));
        assert_eq!((left.parent, right.parent), (Some((0, at(3))), Some((0, at(4)))));
        assert!(left.children.iter().all(|child| child.address == at(3)));
    }

    #[test]
    fn trees_that_are_too_wide_or_too_deep_are_refused() {
        let mut text = "nodes:\n  - {name: s, kind: switch, address: 10.0.0.1}\n".to_owned();
        let mut links = "links:\n".to_owned();
        for host in 0..65 {
            text += &format!("  - {{name: h{host}, kind: host, address: 10.0.1.{host}}}\n");
            links += &format!("  - ends: [s, h{host}]\n");
        }
        let map = document::read_map(&(text + &links)).unwrap();
        let hosts: Vec<_> = (0..65).map(|host| format!("h{host}")).collect();
        let hosts: Vec<_> = hosts.iter().map(String::as_str).collect();
        assert!(tree(&map, &hosts[..64], &[], &[]).starts_with("s(0 1"));
        assert_eq!(tree(&map, &hosts, &[], &[]), "switch s would have 65 children, more than 64");

        // A line of switches with a host at each end.
        let line = |switches: usize| {
            let mut text = "nodes:\n".to_owned();
            let mut links = "links:\n  - ends: [h0, s0]\n".to_owned();
            for at in 0..switches {
                text += &format!("  - {{name: s{at}, kind: switch, address: 10.0.0.{at}}}\n");
                let next = if at + 1 == switches { "h1".into() } else { format!("s{}", at + 1) };
                links += &format!("  - ends: [s{at}, {next}]\n");
            }
            text += "  - {name: h0, kind: host, address: 10.0.1.0}\n";
            text += "  - {name: h1, kind: host, address: 10.0.1.1}\n";
            document::read_map(&(text + &links)).unwrap()
        };
        assert!(tree(&line(15), &["h0", "h1"], &[], &[]).starts_with("s7(s6(s5("));
        let deep = "the tree would have 9 levels of switches, more than 8";
        assert_eq!(tree(&line(17), &["h0", "h1"], &[], &[]), deep);
    }

    #[test]
    fn the_switch_with_more_free_memory_is_taken_of_two_alike() {
        struct Fuller(usize);
        impl TreeSupply for Fuller {
            fn free(&self, node: usize) -> Option<u64> {
                Some(if node == self.0 { 10 } else { 20 })
            }
            fn has_link(&self, _: usize) -> bool {
                true
            }
        }
        let map = fat_tree();
        let members = members(&map, &["h0", "h1"]);
        for (fuller, wanted) in [(0, "b(left(0) right(1))"), (1, "a(left(0) right(1))")] {
            let shape = map.tree(&members, &Fuller(fuller)).unwrap();
            assert_eq!(shown(&map, &shape, 0), wanted);
        }
    }
}
