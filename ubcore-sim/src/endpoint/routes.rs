//! The routes to a peer that has several.
//!
//! *Owns*: the routes in the order of preference, what went by each, the attempt to make a TP on another one.
//! *Takes*: doubts. *Gives*: the route to try next. *Must not*: let two TPs of one pair of nodes live at once.
//!
//! A TP has up to four of them ([`TpRoutes`]). When none of those carries anything, it moves by a handshake on another
//! one, which ends it at the peer before anything is sent again there.

use std::collections::BTreeMap;

use udma_abi::RawEid;

use super::tp_routes::{TpMove, TpRoutes};
use crate::ports::Route;
use crate::transport::{Handshake, PathMtu};

/// CONNECTs on one route before the next one is tried.
const TRIES_A_ROUTE: u32 = 3;
/// Most routes to one peer.
const ROUTES_MAX: usize = 16;

/// An attempt to make a TP on another route, while there is one.
#[derive(Debug)]
pub(super) struct Rival {
    pub(super) handshake: Handshake,
    pub(super) route: Route,
}

/// What went by a route.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct RouteCounts {
    /// Bytes of UDP payload sent.
    pub(crate) sent_bytes: u64,
    /// Bytes of UDP payload of packets that the TP took.
    pub(crate) received_bytes: u64,
    /// Number of times that the TP left it, since it carried nothing.
    pub(crate) failures: u64,
}

/// Routes to one peer.
#[derive(Debug)]
pub(super) struct Routes {
    /// At least two, the preferred one first.
    routes: Vec<Route>,
    /// Path MTUs of those that carry no TP.
    parked: BTreeMap<Route, PathMtu>,
    counts: BTreeMap<Route, RouteCounts>,
    pub(super) rival: Option<Rival>,
    /// Those of the TP, while there is one.
    pub(super) of_tp: Option<TpRoutes>,
    /// Tries when the route of an attempt changed last.
    turned_at: u32,
}

impl Routes {
    pub(super) fn new(routes: Vec<Route>) -> Self {
        Self {
            routes,
            parked: BTreeMap::new(),
            counts: BTreeMap::new(),
            rival: None,
            of_tp: None,
            turned_at: 0,
        }
    }

    /// The peer has these routes by now.
    pub(super) fn set(&mut self, routes: Vec<Route>) {
        self.parked.retain(|route, _| routes.contains(route));
        self.counts.retain(|route, _| routes.contains(route));
        self.routes = routes;
    }

    /// All routes, the preferred one first.
    pub(super) fn all(&self) -> &[Route] {
        &self.routes
    }

    pub(super) fn counts(&self, route: Route) -> RouteCounts {
        self.counts.get(&route).copied().unwrap_or_default()
    }

    pub(super) fn count_sent(&mut self, route: Route, bytes: usize) {
        self.counts.entry(route).or_default().sent_bytes += bytes as u64;
    }

    pub(super) fn count_received(&mut self, route: Route, bytes: usize) {
        self.counts.entry(route).or_default().received_bytes += bytes as u64;
    }

    pub(super) fn has(&self, route: Route) -> bool {
        self.routes.contains(&route)
    }

    pub(super) fn preferred(&self) -> Route {
        self.routes[0]
    }

    /// The route behind `route`, except `used`.
    pub(super) fn after(&self, route: Route, used: Option<Route>) -> Route {
        let at = self.routes.iter().position(|other| *other == route).map_or(0, |at| at + 1);
        let others = self.routes.iter().cycle().skip(at).take(self.routes.len());
        let next = others.copied().find(|other| Some(*other) != used && *other != route);
        next.unwrap_or(route)
    }

    /// Whether the attempt, of so many tries, is to go on by another route.
    pub(super) fn turns(&mut self, tries: u32) -> bool {
        // Another attempt counts anew.
        self.turned_at = self.turned_at.min(tries);
        let is_due = tries >= self.turned_at + TRIES_A_ROUTE;
        if is_due {
            self.turned_at = tries;
        }
        is_due
    }

    /// An attempt to move the TP begins.
    pub(super) fn begin(&mut self, handshake: Handshake, route: Route) {
        self.turned_at = 0;
        self.rival = Some(Rival { handshake, route });
    }

    /// `path` is that of `from`; returns what was known of the one to `to`.
    pub(super) fn change_path(&mut self, from: Route, path: PathMtu, to: Route) -> Option<PathMtu> {
        self.parked.insert(from, path);
        self.parked.remove(&to)
    }

    /// What was known of a route that carries no TP.
    pub(super) fn path_before(&self, route: Route) -> Option<&PathMtu> {
        self.parked.get(&route)
    }

    /// Packets take another route by now.
    pub(super) fn on_moved(&mut self, moved: &TpMove) {
        if !moved.is_back {
            self.counts.entry(moved.from).or_default().failures += 1;
        }
    }
}

/// All routes between addresses of this node, by port, and those of a peer: first those between ports of the same
/// number, beginning with the EIDs.
pub(super) fn routes_between(own: &[RawEid], peer: &[RawEid]) -> Vec<Route> {
    let mut routes = Vec::new();
    let is_v4 = |eid: RawEid| std::net::Ipv6Addr::from(eid.0).to_ipv4_mapped().is_some();
    let mut add = |port: usize, to: RawEid| {
        let Ok(number) = u8::try_from(port) else { return };
        let route = Route { port: number, to };
        let is_new = !routes.contains(&route) && !own.contains(&to) && routes.len() < ROUTES_MAX;
        if is_new && is_v4(own[port]) == is_v4(to) {
            routes.push(route);
        }
    };
    for at in 0..own.len().max(peer.len()) {
        add(at.min(own.len() - 1), peer[at.min(peer.len() - 1)]);
    }
    for port in 0..own.len() {
        peer.iter().for_each(|to| add(port, *to));
    }
    routes
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn eid(number: u8) -> RawEid {
        RawEid([number; 16])
    }

    #[test]
    fn ports_of_the_same_number_come_first() {
        let route = |port, to| Route { port, to: eid(to) };
        let two = routes_between(&[eid(1), eid(2)], &[eid(11), eid(12)]);
        assert_eq!(two, [route(0, 11), route(1, 12), route(0, 12), route(1, 11)]);
        let one = routes_between(&[eid(1), eid(2)], &[eid(11)]);
        assert_eq!(one, [route(0, 11), route(1, 11)]);
        assert_eq!(routes_between(&[eid(1)], &[eid(11)]), [route(0, 11)]);
        // A node that calls addresses of this one its own.
        assert_eq!(
            routes_between(&[eid(1), eid(2)], &[eid(11), eid(2)]),
            [route(0, 11), route(1, 11)]
        );
        let v4 =
            |number| RawEid(std::net::Ipv4Addr::new(10, 0, 0, number).to_ipv6_mapped().octets());
        assert_eq!(routes_between(&[eid(1), v4(1)], &[eid(11), v4(2)]).len(), 2);
    }

    #[test]
    fn attempts_go_around_the_ways_that_are_not_in_use() {
        let route = |port| Route { port, to: eid(9) };
        let mut routes = Routes::new(vec![route(0), route(1), route(2)]);
        assert_eq!(routes.after(route(0), Some(route(0))), route(1));
        assert_eq!(routes.after(route(2), Some(route(0))), route(1));
        assert_eq!(routes.after(route(2), None), route(0));
        let turns: Vec<u32> = (0..10).filter(|tries| routes.turns(*tries)).collect();
        assert_eq!(turns, [3, 6, 9]);
        assert!(!routes.turns(0) && routes.turns(3));
    }
}
