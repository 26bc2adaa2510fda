//! The routes to a peer that has several: one carries its TP, the others are tried when that one fails.
//!
//! *Owns*: the routes in the order of preference, the attempt to move the TP to another one. *Takes*: time, doubts.
//! *Gives*: the route to try next. *Must not*: let two TPs of one pair of nodes live at once.
//!
//! A TP moves by a handshake on another route, which ends it at the peer before anything is sent again there: so no
//! packet of the old route is executed after one of the new one, however late it comes.

use std::collections::BTreeMap;

use udma_abi::{Nanos, RawEid};

use crate::ports::Route;
use crate::transport::{Handshake, PathMtu};

/// Timeouts in a row after which another route is tried, while the TP goes on.
pub(super) const SUSPECT_TIMEOUTS: u32 = 2;
/// CONNECTs on one route before the next one is tried.
const TRIES_A_ROUTE: u32 = 3;
/// Time until the preferred route is tried again, at first and at most: twice as long when it failed soon after it
/// was taken back.
const BACK_MIN_NS: Nanos = 1_000_000_000;
const BACK_MAX_NS: Nanos = 60_000_000_000;
/// A route that lasts so long did not fail soon.
const STEADY_NS: Nanos = 10_000_000_000;
/// Most routes to one peer.
const ROUTES_MAX: usize = 16;

/// Why a TP is to move.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum MoveReason {
    /// Its route carries nothing.
    Failed,
    /// The preferred route may carry packets again.
    Back,
}

/// An attempt to make a TP on another route, while there is one.
#[derive(Debug)]
pub(super) struct Rival {
    pub(super) handshake: Handshake,
    pub(super) route: Route,
    pub(super) reason: MoveReason,
}

/// A TP moved from one route to another one.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct TpMove {
    pub(super) from: Route,
    pub(super) to: Route,
    /// To the preferred route.
    pub(super) is_back: bool,
}

/// What went by a route.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct RouteCounts {
    /// Bytes of UDP payload sent.
    pub(crate) sent_bytes: u64,
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
    /// The system does not send on the route of the TP.
    pub(super) is_cut: bool,
    /// Tries when the route of an attempt changed last.
    turned_at: u32,
    /// When the preferred route is tried again, and how long after a failure.
    back_at: Nanos,
    back_ns: Nanos,
    /// When the preferred route was taken back last.
    returned_at: Option<Nanos>,
}

impl Routes {
    pub(super) fn new(routes: Vec<Route>) -> Self {
        Self {
            routes,
            parked: BTreeMap::new(),
            counts: BTreeMap::new(),
            rival: None,
            is_cut: false,
            turned_at: 0,
            back_at: Nanos::MAX,
            back_ns: BACK_MIN_NS,
            returned_at: None,
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
    pub(super) fn begin(&mut self, handshake: Handshake, route: Route, reason: MoveReason) {
        self.turned_at = 0;
        self.rival = Some(Rival { handshake, route, reason });
    }

    /// The attempt came to nothing.
    pub(super) fn give_up(&mut self, now: Nanos) -> Option<Rival> {
        self.is_cut = false;
        self.back_at = now.saturating_add(self.back_ns);
        self.rival.take()
    }

    /// When the preferred route is tried again, while another one is used.
    pub(super) fn back_at(&self) -> Nanos {
        self.back_at
    }

    /// `path` is that of `from`; returns what was known of the one to `to`.
    pub(super) fn change_path(&mut self, from: Route, path: PathMtu, to: Route) -> Option<PathMtu> {
        self.parked.insert(from, path);
        self.parked.remove(&to)
    }

    /// The TP is on another route by now.
    pub(super) fn on_moved(&mut self, now: Nanos, moved: &TpMove) {
        self.is_cut = false;
        if !moved.is_back {
            self.counts.entry(moved.from).or_default().failures += 1;
        }
        if moved.is_back {
            self.returned_at = Some(now);
        } else if moved.from == self.preferred() {
            let is_soon = self.returned_at.is_some_and(|at| now.saturating_sub(at) < STEADY_NS);
            let longer = self.back_ns.saturating_mul(2).min(BACK_MAX_NS);
            self.back_ns = if is_soon { longer } else { BACK_MIN_NS };
        }
        self.back_at = now.saturating_add(self.back_ns);
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

    #[test]
    fn a_way_that_fails_soon_is_tried_later() {
        let route = |port| Route { port, to: eid(9) };
        let mut routes = Routes::new(vec![route(0), route(1)]);
        let mut now = 0;
        let mut waits = Vec::new();
        for lasts in [0, 1, 1, 20, 1] {
            now += lasts * BACK_MIN_NS;
            routes.on_moved(now, &TpMove { from: route(0), to: route(1), is_back: false });
            waits.push((routes.back_at() - now) / BACK_MIN_NS);
            now = routes.back_at();
            routes.on_moved(now, &TpMove { from: route(1), to: route(0), is_back: true });
        }
        assert_eq!(waits, [1, 2, 4, 1, 2]);
    }
}
