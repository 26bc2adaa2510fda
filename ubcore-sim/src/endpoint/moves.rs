//! Where the TP to a peer with several ports goes: from one route to another one, and back.
//!
//! *Owns*: the moves of one [`PeerTp`]. *Takes*: what the peer says of its ports, doubts, handshakes with their
//! route. *Gives*: attempts. *Must not*: take two TPs of one pair of nodes for open.

use udma_abi::{Nanos, RawEid};
use urma_packet::{Body, HandshakeBody, PacketHeader, Tpn};

use super::numbers::Numbers;
use super::peer_tp::{PeerTp, path_to};
use super::routes::{MoveReason, RouteCounts, Routes, SUSPECT_TIMEOUTS, TpMove, routes_between};
use crate::cfg::DeviceCfg;
use crate::ports::Route;
use crate::transport::{Agreed, HandshakeEvent, HandshakeState, Offer, Tp};

impl PeerTp {
    /// Whether packets of the peer may come by this route.
    pub(super) fn has_route(&self, route: Route) -> bool {
        self.routes.as_ref().is_some_and(|routes| routes.has(route))
    }

    /// Whether the life of the peer that has these routes is this one.
    pub(super) fn is_life(&self, incarnation: u64) -> bool {
        self.incarnation == incarnation
    }

    /// The routes to the peer, the preferred one first, with what went by each: the one of the TP, and the one that
    /// is tried.
    pub(crate) fn routes(&self) -> impl Iterator<Item = (Route, RouteUse, RouteCounts)> + '_ {
        let routes = self.routes.as_ref();
        routes.into_iter().flat_map(move |routes| {
            routes.all().iter().map(move |route| {
                let is_tried = routes.rival.as_ref().is_some_and(|rival| rival.route == *route);
                let used = match (self.route == *route, is_tried) {
                    (true, _) if self.tp.is_some() => RouteUse::Used,
                    (true, _) | (_, true) => RouteUse::Tried,
                    (false, false) => RouteUse::Idle,
                };
                (*route, used, routes.counts(*route))
            })
        })
    }

    /// Smoothed round-trip time of the TP, in ns.
    pub(crate) fn rtt(&self) -> Option<Nanos> {
        self.tp.as_ref().and_then(Tp::rtt)
    }

    /// The peer proved that it receives at its EID's address, and says what other addresses it has.
    pub(super) fn learn(&mut self, cfg: &DeviceCfg, peer: RawEid, new: &Agreed) {
        self.incarnation = new.peer_incarnation;
        let own: Vec<RawEid> = [&[cfg.eid], &cfg.ports[..]].concat();
        let further = new.peer_ports.iter().map(RawEid);
        let all: Vec<RawEid> = std::iter::once(peer).chain(further).collect();
        let routes = routes_between(&own, &all);
        if routes.len() < 2 {
            self.routes = None;
        } else if let Some(known) = &mut self.routes {
            known.set(routes);
        } else {
            self.routes = Some(Box::new(Routes::new(routes)));
        }
    }

    /// The TP that a handshake on `route` agreed on takes the place of the one before.
    pub(super) fn on_opened_at(&mut self, now: Nanos, route: Route, new: &Agreed) {
        self.set_route(route);
        let from = std::mem::replace(&mut self.tp_route, route);
        if let Some(routes) = &mut self.routes {
            routes.rival = None;
            if from != route {
                let moved = TpMove { from, to: route, is_back: route == routes.preferred() };
                routes.on_moved(now, &moved);
                self.moved = Some(moved);
            }
        }
        self.on_opened(now, new);
    }

    fn set_route(&mut self, route: Route) {
        let from = std::mem::replace(&mut self.route, route);
        let Some(routes) = self.routes.as_mut().filter(|_| from != route) else { return };
        let fresh = path_to(route.to, self.mtu);
        let path = std::mem::replace(&mut self.path, fresh);
        if let Some(known) = routes.change_path(from, path, route) {
            self.path = known;
        }
    }

    /// The TP is over: an attempt to move it is one to make another one.
    pub(super) fn promote_rival(&mut self) {
        if let Some(rival) = self.routes.as_mut().and_then(|routes| routes.rival.take()) {
            self.handshake = rival.handshake;
            self.set_route(rival.route);
        }
    }

    /// No TP is wanted: an attempt to move it ends.
    pub(super) fn drop_rival(&mut self, numbers: &mut Numbers) {
        let rival = self.routes.as_mut().and_then(|routes| routes.rival.take());
        if let Some(tpn) = rival.and_then(|rival| rival.handshake.local_tpn()) {
            numbers.tps.remove(&tpn.value());
        }
    }

    /// The route that the TP went to, once.
    pub(super) fn take_moved(&mut self) -> Option<TpMove> {
        self.moved.take()
    }

    /// The system does not send on this route.
    pub(super) fn on_cut(&mut self, route: Route) {
        if let Some(routes) = self.routes.as_mut().filter(|_| self.route == route) {
            routes.is_cut = true;
        }
    }

    fn is_suspect(&self) -> bool {
        let is_cut = self.routes.as_ref().is_some_and(|routes| routes.is_cut);
        let is_unanswered =
            self.handshake.is_verifying() && self.handshake.tries() > SUSPECT_TIMEOUTS;
        let is_silent = |tp: &Tp| tp.timeouts() >= SUSPECT_TIMEOUTS;
        self.tp.as_ref().is_some_and(|tp| is_cut || is_unanswered || is_silent(tp))
    }

    /// Tries another route when the one in use carries nothing, and the preferred one from time to time. `offer`
    /// gives numbers for a TP, beside the one that has the TPN given.
    pub(super) fn tend_routes(&mut self, now: Nanos, offer: &mut dyn FnMut(Option<Tpn>) -> Offer) {
        let is_suspect = self.is_suspect();
        let Some(routes) = &mut self.routes else { return };
        if self.tp.is_none() {
            let is_trying = self.handshake.state() == HandshakeState::Connecting;
            if is_trying && routes.turns(self.handshake.tries()) {
                let next = routes.after(self.route, None);
                self.set_route(next);
                self.handshake.renew(now, offer(None));
            }
            return;
        }
        let (used, kept) = (self.route, self.handshake.local_tpn());
        if let Some(mut rival) = routes.rival.take() {
            let is_over = rival.handshake.state() != HandshakeState::Connecting;
            let turns = routes.turns(rival.handshake.tries());
            if turns && rival.reason == MoveReason::Failed && !is_over {
                rival.route = routes.after(rival.route, Some(used));
                rival.handshake.renew(now, offer(kept));
            }
            let is_given_up = is_over || (turns && rival.reason == MoveReason::Back);
            routes.rival = Some(rival);
            if is_given_up {
                let _ = routes.give_up(now);
            }
            return;
        }
        let is_back_due = self.is_leader && used != routes.preferred() && now >= routes.back_at();
        let (route, reason) = match (is_suspect, is_back_due) {
            (true, _) => (routes.after(used, Some(used)), MoveReason::Failed),
            (false, true) => (routes.preferred(), MoveReason::Back),
            (false, false) => return,
        };
        let mut handshake = self.handshake.rival();
        handshake.open(now, offer(kept));
        routes.begin(handshake, route, reason);
    }

    /// When a move begins or goes on.
    pub(super) fn routes_deadline(&self) -> Option<Nanos> {
        let routes = self.routes.as_ref().filter(|_| self.tp.is_some())?;
        match &routes.rival {
            Some(rival) => rival.handshake.poll_deadline().or(Some(0)),
            None if self.is_suspect() => Some(0),
            None if self.is_leader && self.route != routes.preferred() => Some(routes.back_at()),
            None => None,
        }
    }

    /// Whether a packet that came by this route, with this DestQP, is one for the TP.
    pub(super) fn takes(&self, route: Route, dest: Tpn) -> bool {
        self.route == route && self.tp.as_ref().is_some_and(|tp| tp.cfg().local_tpn == dest)
    }

    /// A packet of a handshake.
    pub(super) fn on_handshake(
        &mut self,
        attempt: Attempt,
        header: &PacketHeader,
        offer: &mut dyn FnMut(Option<Tpn>) -> Offer,
    ) -> HandshakeEvent {
        let mut fresh = || offer(None);
        match attempt {
            Attempt::Own => self.handshake.on_packet(header, &mut fresh),
            Attempt::None => HandshakeEvent::NotExpected,
            Attempt::Rival => {
                let Some(rival) = self.routes.as_mut().and_then(|routes| routes.rival.as_mut())
                else {
                    return HandshakeEvent::NotExpected;
                };
                let event = rival.handshake.on_packet(header, &mut fresh);
                if matches!(event, HandshakeEvent::Opened(_)) {
                    // The other one ends with the TP that it made.
                    std::mem::swap(&mut self.handshake, &mut rival.handshake);
                }
                event
            }
        }
    }

    /// Which attempt a packet of a handshake belongs to, that came by `route`. When both nodes try another route
    /// each, the leader's stays: it takes the other one's route, and that one yields.
    pub(super) fn attempt_of(
        &mut self,
        (now, route): (Nanos, Route),
        header: &PacketHeader,
        offer: &mut dyn FnMut(Option<Tpn>) -> Offer,
    ) -> Attempt {
        let nonce = match &header.body {
            Body::Connect(terms) => return self.attempt_for((now, route), terms, offer),
            Body::Challenge(challenge) => challenge.nonce,
            Body::Accept(terms) => terms.nonce,
            Body::Refuse(refusal) => refusal.nonce,
            Body::Request(_)
            | Body::Response(_)
            | Body::Pack
            | Body::Ack(_)
            | Body::Nak(_)
            | Body::Close(_)
            | Body::UmSend(..)
            | Body::Probe(_)
            | Body::ProbeEcho(_) => {
                return if self.route == route { Attempt::Own } else { Attempt::None };
            }
        };
        let rival = self.routes.as_ref().and_then(|routes| routes.rival.as_ref());
        if rival.is_some_and(|rival| rival.route == route && rival.handshake.has_asked(nonce)) {
            Attempt::Rival
        } else if self.route == route {
            Attempt::Own
        } else {
            Attempt::None
        }
    }

    /// The same of a CONNECT.
    fn attempt_for(
        &mut self,
        (now, route): (Nanos, Route),
        terms: &HandshakeBody,
        offer: &mut dyn FnMut(Option<Tpn>) -> Offer,
    ) -> Attempt {
        let is_here = self.route == route;
        if self.handshake.holds(terms) {
            return if is_here { Attempt::Own } else { Attempt::None };
        }
        let (is_leader, kept) = (self.is_leader, self.handshake.local_tpn());
        if let Some(routes) = &mut self.routes
            && let Some(rival) = &mut routes.rival
            && rival.handshake.state() == HandshakeState::Connecting
        {
            if rival.route == route {
                return Attempt::Rival;
            }
            if is_leader && route != self.route {
                rival.route = route;
                rival.handshake.renew(now, offer(kept));
                return Attempt::None;
            }
            routes.rival = None;
        } else if self.handshake.state() == HandshakeState::Connecting && !is_here {
            if is_leader {
                self.set_route(route);
                self.handshake.renew(now, offer(None));
                return Attempt::None;
            }
            self.handshake.yield_to_peer();
        }
        Attempt::Own
    }
}

/// What a route is used for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum RouteUse {
    /// It carries the TP.
    Used,
    /// A handshake is under way on it.
    Tried,
    Idle,
}

/// Which handshake with a peer a packet belongs to.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Attempt {
    /// The one of the TP.
    Own,
    /// The one that is to move it.
    Rival,
    None,
}
