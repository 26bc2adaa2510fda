//! The tree that members make of themselves where no switch of the topology can be had.
//!
//! It adds in the order of the tree that the topology would give with all switches in service, so that floats have the same
//! bits either way. Each of its switches runs in the program of the second of its children (the lowest rank below that
//! one): no program gets two, since a rank is the lowest of a second child at one place only.

use std::collections::BTreeMap;
use std::net::SocketAddr;

use super::communicator::{PlacedChild, PlacedSwitch, SwitchHome};
use crate::edge::{EdgeAttributes, EdgeEnd};
use crate::slots::{CHILDREN_MAX, Child};
use crate::switch::memory_of;
use crate::topology::{PhysicalMap, TreeShape, TreeSupply};
use crate::wire::Rank;

/// Of more ranks than a switch has children so many are children themselves; the others form as many parts below.
const DIRECT: usize = CHILDREN_MAX / 2;

/// All switches and links of the topology, as if they were in service and alike.
struct AllInService;

impl TreeSupply for AllInService {
    fn free(&self, _: usize) -> Option<u64> {
        Some(0)
    }

    fn has_link(&self, _: usize) -> bool {
        true
    }
}

/// What is added together, in this order.
enum Terms {
    Of(Rank),
    Sum(Vec<Self>),
}

impl Terms {
    /// Those of a switch of a tree; a switch with one child adds nothing.
    fn of_shape(shape: &TreeShape, at: usize) -> Self {
        let child = |child: &crate::topology::ShapeChild| match (&child.child, child.switch) {
            (_, Some(below)) => Self::of_shape(shape, below),
            (Child::Host(rank), None) => Self::Of(*rank),
            (Child::Switch(ranks), None) => Self::of_ranks(ranks),
        };
        let mut terms: Vec<_> = shape.switches[at].children.iter().map(child).collect();
        match terms.pop() {
            Some(only) if terms.is_empty() => only,
            last => {
                terms.extend(last);
                Self::Sum(terms)
            }
        }
    }

    /// Those of ranks that nothing groups.
    fn of_ranks(ranks: &[Rank]) -> Self {
        let of = |ranks: &[Rank]| ranks.iter().map(|&rank| Self::Of(rank)).collect::<Vec<_>>();
        match ranks {
            [only] => Self::Of(*only),
            few if few.len() <= CHILDREN_MAX => Self::Sum(of(few)),
            many => {
                let (direct, rest) = many.split_at(DIRECT);
                let parts = rest.chunks(rest.len().div_ceil(CHILDREN_MAX - DIRECT));
                Self::Sum(of(direct).into_iter().chain(parts.map(Self::of_ranks)).collect())
            }
        }
    }

    fn lowest(&self) -> Rank {
        match self {
            Self::Of(rank) => *rank,
            // The first one is the one with the lowest rank.
            Self::Sum(terms) => terms.first().map_or(Rank(0), Self::lowest),
        }
    }

    fn ranks(&self) -> Vec<Rank> {
        match self {
            Self::Of(rank) => vec![*rank],
            Self::Sum(terms) => {
                let mut all: Vec<_> = terms.iter().flat_map(Self::ranks).collect();
                all.sort_unstable();
                all
            }
        }
    }
}

/// The tree of members with their ends of edges: the root first, each switch behind its parent. `hosts` are places of the
/// members in the map, as far as it has them. `None`: there is no member.
pub(super) fn tree_of_members(
    map: &PhysicalMap,
    hosts: &[(Rank, Option<usize>)],
    ends: &BTreeMap<Rank, EdgeEnd>,
    attributes: &EdgeAttributes,
) -> Option<Vec<PlacedSwitch>> {
    let known = hosts.iter().map(|&(rank, host)| Some((rank, host?))).collect::<Option<Vec<_>>>();
    let shape = known.and_then(|members| map.tree(&members, &AllInService).ok());
    let terms = match shape {
        Some(shape) => Terms::of_shape(&shape, 0),
        None => Terms::of_ranks(&hosts.iter().map(|&(rank, _)| rank).collect::<Vec<_>>()),
    };
    let terms = match terms {
        Terms::Sum(terms) => terms,
        only @ Terms::Of(_) => vec![only],
    };
    let mut tree = Vec::new();
    place(&terms, None, ends, attributes, &mut tree)?;
    Some(tree)
}

/// Adds a switch and all that is below it; gives its place and address.
fn place(
    terms: &[Terms],
    parent: Option<usize>,
    ends: &BTreeMap<Rank, EdgeEnd>,
    attributes: &EdgeAttributes,
    tree: &mut Vec<PlacedSwitch>,
) -> Option<(usize, SocketAddr)> {
    let member = terms.get(1).or_else(|| terms.first())?.lowest();
    let address = ends.get(&member)?.address;
    let at = tree.len();
    tree.push(PlacedSwitch {
        home: SwitchHome::Member(member),
        parent: parent.map(|above| (above, address)),
        children: Vec::new(),
        ends: None,
        memory: memory_of(attributes, terms.len()),
    });
    for term in terms {
        let child = match term {
            Terms::Of(rank) => PlacedChild {
                child: Child::Host(*rank),
                switch: None,
                name: SwitchHome::Member(*rank).to_string(),
                address,
            },
            Terms::Sum(below) => {
                let (switch, _) = place(below, Some(at), ends, attributes, tree)?;
                let name = tree[switch].home.to_string();
                PlacedChild {
                    child: Child::Switch(term.ranks()),
                    switch: Some(switch),
                    name,
                    address,
                }
            }
        };
        tree[at].children.push(child);
    }
    Some((at, address))
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;
    use std::fmt::Write as _;

    use super::*;
    use crate::document::read_map;
    use crate::edge::WriteWindow;
    use urma_packet::{Psn, Tpn};

    fn end(rank: Rank) -> EdgeEnd {
        let [high, low] = rank.0.to_be_bytes();
        EdgeEnd {
            address: SocketAddr::from(([10, 0, high, low], 4791)),
            qpn: Tpn::from_low_bits(u32::from(rank.0)),
            first_psn: Psn::new(0),
            window: WriteWindow { base: 0, key: 0 },
        }
    }

    /// A switch in one line: the rank in whose program it runs, and its children in brackets.
    fn shown(tree: &[PlacedSwitch], at: usize) -> String {
        let SwitchHome::Member(member) = tree[at].home else { panic!("{tree:?}") };
        let mut text = format!("{}(", member.0);
        for (nth, child) in tree[at].children.iter().enumerate() {
            let below = match (&child.child, child.switch) {
                (Child::Host(rank), None) => rank.0.to_string(),
                (Child::Switch(_), Some(below)) => shown(tree, below),
                other => panic!("{other:?}"),
            };
            let _ = write!(text, "{}{below}", if nth == 0 { "" } else { " " });
        }
        text + ")"
    }

    fn tree(map: &str, hosts: &[&str]) -> Vec<PlacedSwitch> {
        let map = read_map(map).unwrap();
        let hosts: Vec<_> = (0..).map(Rank).zip(hosts.iter().map(|h| map.node_named(h))).collect();
        let ends = hosts.iter().map(|&(rank, _)| (rank, end(rank))).collect();
        let tree = tree_of_members(&map, &hosts, &ends, &EdgeAttributes::DEFAULT).unwrap();
        is_sound(&tree, hosts.len());
        tree
    }

    /// Every rank is a child once, no program has two switches, and each switch stands behind its parent, at its address.
    fn is_sound(tree: &[PlacedSwitch], ranks: usize) {
        let mut members = BTreeSet::new();
        let mut children = BTreeSet::new();
        for (at, switch) in tree.iter().enumerate() {
            let SwitchHome::Member(member) = switch.home else { panic!("{switch:?}") };
            assert!(members.insert(member), "{member:?} has two");
            assert!((1..=CHILDREN_MAX).contains(&switch.children.len()));
            let mut lowest = Vec::new();
            for child in &switch.children {
                assert_eq!(child.address, end(member).address);
                if let Child::Host(rank) = child.child {
                    assert!(children.insert(rank), "{rank:?} is a child twice");
                }
                let below = crate::topology::ranks(&child.child);
                lowest.push(*below.iter().min().unwrap());
                if let Some(below) = child.switch {
                    assert!(below > at);
                    let SwitchHome::Member(under) = tree[below].home else { panic!() };
                    assert_eq!(tree[below].parent, Some((at, end(under).address)));
                }
            }
            assert!(lowest.is_sorted(), "{lowest:?}");
        }
        assert_eq!(children.len(), ranks);
        assert_eq!(tree[0].parent, None);
    }

    const MAP: &str = "
nodes:
  - {name: root, kind: switch, address: 10.1.0.1}
  - {name: left, kind: switch, address: 10.1.0.2}
  - {name: right, kind: switch, address: 10.1.0.3}
  - {name: h0, kind: host, address: 10.0.0.0}
  - {name: h1, kind: host, address: 10.0.0.1}
  - {name: h2, kind: host, address: 10.0.0.2}
  - {name: h3, kind: host, address: 10.0.0.3}
links:
  - ends: [root, left]
  - ends: [root, right]
  - ends: [left, h0]
  - ends: [left, h1]
  - ends: [right, h2]
  - ends: [right, h3]
";

    #[test]
    fn members_add_in_the_order_of_the_switches_that_are_not_there() {
        assert_eq!(shown(&tree(MAP, &["h0", "h1", "h2", "h3"]), 0), "2(1(0 1) 3(2 3))");
        assert_eq!(shown(&tree(MAP, &["h0", "h2", "h1", "h3"]), 0), "1(2(0 2) 3(1 3))");
        // A switch with one child adds nothing.
        assert_eq!(shown(&tree(MAP, &["h0", "h1", "h2"]), 0), "2(1(0 1) 2)");
        assert_eq!(shown(&tree(MAP, &["h0", "h2"]), 0), "1(0 1)");
        assert_eq!(shown(&tree(MAP, &["h2"]), 0), "0(0)");
        // Hosts that the topology does not have, or that no switch of it joins.
        assert_eq!(shown(&tree(MAP, &["h0", "elsewhere", "h2"]), 0), "1(0 1 2)");
        let apart = MAP.replace("  - ends: [root, right]\n", "");
        assert_eq!(shown(&tree(&apart, &["h0", "h1", "h2"]), 0), "1(0 1 2)");
    }

    #[test]
    fn any_number_of_ranks_has_a_tree() {
        for ranks in [1, 2, 3, 64, 65, 66, 100, 1000, 2080, 2081, 65_535] {
            let hosts: Vec<_> = (0..ranks).map(|rank| (Rank(rank), None)).collect();
            let ends = hosts.iter().map(|&(rank, _)| (rank, end(rank))).collect();
            let map = PhysicalMap::default();
            let tree = tree_of_members(&map, &hosts, &ends, &EdgeAttributes::DEFAULT).unwrap();
            is_sound(&tree, usize::from(ranks));
        }
    }
}
