//! Owners of peers' places: which nodes count as one source.
//!
//! *Owns*: the users of loopback addresses, as last looked up. *Takes*: time. *Gives*: the owner of a node's place.

use std::collections::BTreeMap;

use udma_abi::{Nanos, RawEid};

/// Shortest time between two lookups of the owners of loopback addresses, in nanoseconds.
const OWNERS_NS: Nanos = 100_000_000;
/// From this user id on, ids are assigned in blocks, one to each user who may have more (subuid(5)).
const SUBORDINATE: u32 = 100_000;
const SUBORDINATE_BLOCK: u32 = 65_536;

/// Someone who can have more than one address at no cost.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) enum PlaceOwner {
    /// This node's own program, and nodes that share memory with it.
    Own,
    /// A user of this host.
    User(u32),
    /// The loopback address has no process any more.
    Unowned,
    /// The hosts of an IPv4 /24.
    Net4([u8; 3]),
    /// The hosts of an IPv6 /64.
    Net6([u8; 8]),
}

/// The users whose processes have loopback addresses, as last looked up.
#[derive(Debug, Default)]
pub(crate) struct LoopbackOwners {
    by_eid: BTreeMap<RawEid, u32>,
    looked_at: Option<Nanos>,
}

impl LoopbackOwners {
    pub(crate) fn look(&mut self, now: Nanos, find: fn() -> Vec<(RawEid, u32)>) {
        let is_fresh = self.looked_at.is_some_and(|at| now.saturating_sub(at) < OWNERS_NS);
        if !is_fresh {
            self.by_eid = find().into_iter().collect();
            self.looked_at = Some(now);
        }
    }

    pub(crate) fn source(&self, eid: RawEid) -> PlaceOwner {
        let [a, b, c, d, e, f, g, h, rest @ ..] = eid.0;
        if (a, b, c, d, e, f, g, h) != (0, 0, 0, 0, 0, 0, 0, 0) || rest[..4] != [0, 0, 0xff, 0xff] {
            return PlaceOwner::Net6([a, b, c, d, e, f, g, h]);
        }
        if rest[4] != 127 {
            return PlaceOwner::Net4([rest[4], rest[5], rest[6]]);
        }
        self.by_eid.get(&eid).map_or(PlaceOwner::Unowned, |uid| PlaceOwner::User(user(*uid)))
    }
}

/// The user behind a user id: a whole block belongs to one user.
fn user(uid: u32) -> u32 {
    let beyond = uid.checked_sub(SUBORDINATE);
    beyond.map_or(uid, |beyond| uid - beyond % SUBORDINATE_BLOCK)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_source_is_what_costs_more_than_an_address() {
        let mut owners = LoopbackOwners::default();
        let v4 = |octets: [u8; 4]| {
            let mut eid = RawEid([0; 16]);
            eid.0[10..12].fill(0xff);
            eid.0[12..].copy_from_slice(&octets);
            eid
        };
        owners.look(0, Vec::new);
        assert_eq!(owners.source(v4([127, 9, 0, 1])), PlaceOwner::Unowned);
        owners.by_eid.insert(v4([127, 9, 0, 1]), 1000);
        owners.by_eid.insert(v4([127, 9, 0, 2]), 165_537);
        assert_eq!(owners.source(v4([127, 9, 0, 1])), PlaceOwner::User(1000));
        assert_eq!(owners.source(v4([127, 9, 0, 2])), PlaceOwner::User(165_536));
        assert_eq!(user(165_535), 100_000, "the block before");
        assert_eq!(owners.source(v4([10, 0, 1, 2])), PlaceOwner::Net4([10, 0, 1]));
        let mut v6 = RawEid([7; 16]);
        assert_eq!(owners.source(v6), PlaceOwner::Net6([7; 8]));
        v6.0[15] = 1;
        assert_eq!(owners.source(v6), PlaceOwner::Net6([7; 8]), "one prefix");
        v6.0[7] = 1;
        assert_ne!(owners.source(v6), PlaceOwner::Net6([7; 8]));
    }
}
