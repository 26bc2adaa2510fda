//! Moves of the TP to a peer with several ports: which of its routes packets take, and where the next TP is opened.
//!
//! *Owns*: the moves of one [`PeerTp`]. *Takes*: the peer's list of its ports, doubts, echoes, handshakes with their
//! route. *Gives*: attempts. *Must not*: treat two TPs of one pair of nodes as open.

use udma_abi::{Nanos, RawEid};
use urma_packet::{Body, DATA_OVERHEAD, HandshakeBody, PacketHeader, PathProbe, Tpn};

use super::numbers::Numbers;
use super::peer_tp::{PeerTp, path_to};
use super::routes::{RouteCounts, Routes, routes_between};
use super::tp_routes::{SUSPECT_TIMEOUTS, TpMove, TpRoutes};
use crate::cfg::{DeviceCfg, PortMode};
use crate::ports::{RUN_BYTES, Route};
use crate::transport::{Agreed, HandshakeEvent, HandshakeState, Offer, Strategy, Tp};

impl PeerTp {
    /// Whether packets of the peer may come on this route.
    pub(super) fn has_route(&self, route: Route) -> bool {
        self.routes.as_ref().is_some_and(|routes| routes.has(route))
    }

    /// Whether the life of the peer that has these routes is this one.
    pub(super) fn is_life(&self, incarnation: u64) -> bool {
        self.incarnation == incarnation
    }

    /// The routes to the peer, the preferred one first, with their traffic: those that carry the TP, and those that
    /// are tried.
    pub(crate) fn routes(&self) -> impl Iterator<Item = (Route, RouteUse, RouteCounts)> + '_ {
        let routes = self.routes.as_ref();
        routes.into_iter().flat_map(move |routes| {
            routes.all().iter().map(move |route| {
                let of_tp = routes.of_tp.as_ref();
                let is_tried = routes.rival.as_ref().is_some_and(|rival| rival.route == *route)
                    || of_tp.is_some_and(|of_tp| of_tp.is_asked(*route));
                let carries = |of_tp: &TpRoutes| of_tp.carries(*route, self.path.payload());
                let is_used = self.route == *route || of_tp.is_some_and(carries);
                let used = match (is_used, is_tried) {
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

    /// The recovery strategy that both nodes agreed on, if the TP is open.
    pub(crate) fn strategy(&self) -> Option<Strategy> {
        self.tp.as_ref().map(Tp::strategy)
    }

    /// Congestion control and its window in packets, if the TP is open.
    pub(crate) fn congestion(&self) -> Option<(crate::transport::CongestionChoice, Option<u64>)> {
        self.tp.as_ref().map(|tp| (tp.congestion(), tp.congestion_window()))
    }

    /// Takes the addresses of the peer, which has proven that it receives at its EID's address.
    pub(super) fn learn(&mut self, cfg: &DeviceCfg, peer: RawEid, new: &Agreed) {
        self.incarnation = new.peer_incarnation;
        let own: Vec<RawEid> =
            std::iter::once(cfg.eid).chain(cfg.ports.iter().map(RawEid)).collect();
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

    /// Replaces the TP by the one that a handshake on `route` opened.
    pub(super) fn on_opened_at(&mut self, now: Nanos, route: Route, new: &Agreed) {
        self.set_route(route);
        self.answers = route;
        let from = std::mem::replace(&mut self.tp_route, route);
        self.on_opened(now, new);
        let Some(routes) = &mut self.routes else { return };
        routes.rival = None;
        if from != route {
            let moved = TpMove { from, to: route, is_back: route == routes.preferred() };
            routes.on_moved(&moved);
            self.moved.push_back(moved);
        }
        let mut of_tp = TpRoutes::new(now, route, routes.all(), PortMode::ActiveBackup);
        if self.tp.as_ref().is_some_and(Tp::keeps_out_of_order) {
            of_tp.set_mode(now, self.mode);
        }
        routes.of_tp = Some(of_tp);
        self.show_routes();
    }

    /// Sets the routes of the TP to those that carry it.
    fn show_routes(&mut self) {
        let payload = self.path.payload();
        let of_tp = self.routes.as_ref().and_then(|routes| routes.of_tp.as_ref());
        if let (Some(of_tp), Some(tp)) = (of_tp, &mut self.tp) {
            let run = u32::try_from(RUN_BYTES / (payload + DATA_OVERHEAD)).unwrap_or(1);
            tp.set_routes(of_tp.usable(payload), run);
        }
    }

    /// Sets how the packets use the ports.
    pub(super) fn set_mode(&mut self, now: Nanos, mode: PortMode) {
        self.mode = mode;
        let of_tp = self.routes.as_mut().and_then(|routes| routes.of_tp.as_mut());
        if let (Some(of_tp), Some(tp)) = (of_tp, &mut self.tp)
            && tp.keeps_out_of_order()
        {
            of_tp.set_mode(now, mode);
        }
        self.show_routes();
    }

    fn set_route(&mut self, route: Route) {
        let from = std::mem::replace(&mut self.route, route);
        let Some(routes) = self.routes.as_mut().filter(|_| from != route) else { return };
        let fresh = path_to(route.to, self.mtu);
        let path = std::mem::replace(&mut self.path, fresh);
        match routes.change_path(from, path, route) {
            Some(known) => self.path = known,
            None => self.path.begin_with(routes.path_before(from)),
        }
    }

    /// Turns an attempt to move the TP into one to open another, after the TP ended.
    pub(super) fn promote_rival(&mut self) {
        if let Some(rival) = self.routes.as_mut().and_then(|routes| routes.rival.take()) {
            self.handshake = rival.handshake;
            self.set_route(rival.route);
        }
    }

    /// Ends an attempt to move the TP, since none is wanted.
    pub(super) fn drop_rival(&mut self, numbers: &mut Numbers) {
        let rival = self.routes.as_mut().and_then(|routes| routes.rival.take());
        if let Some(tpn) = rival.and_then(|rival| rival.handshake.local_tpn()) {
            numbers.tps.remove(&tpn.value());
        }
    }

    /// Takes the report of a route that was left or taken back, once.
    pub(super) fn take_moved(&mut self) -> Option<TpMove> {
        self.moved.pop_front()
    }

    /// Notes that the system does not send on this route.
    pub(super) fn on_cut(&mut self, now: Nanos, route: Route) {
        if let Some(of_tp) = self.routes.as_mut().and_then(|routes| routes.of_tp.as_mut()) {
            of_tp.on_cut(route);
            self.tend_tp(now);
        }
    }

    /// Takes the echo of a probe on another route than the one in use. Returns whether it answers one.
    pub(super) fn on_route_echo(&mut self, now: Nanos, route: Route, echo: &PathProbe) -> bool {
        let of_tp = self.routes.as_mut().and_then(|routes| routes.of_tp.as_mut());
        let (Some(of_tp), Some(tp)) = (of_tp, &mut self.tp) else { return false };
        let Some(number) = of_tp.on_echo(now, route, echo) else { return false };
        tp.forgive(number);
        self.tend_tp(now);
        true
    }

    /// Whether the peer did not answer a question on the route in use.
    fn is_unanswered(&self) -> bool {
        self.handshake.is_verifying() && self.handshake.tries() > SUSPECT_TIMEOUTS
    }

    /// Leaves and takes routes of the TP.
    pub(super) fn tend_tp(&mut self, now: Nanos) {
        let is_unanswered = self.is_unanswered();
        let (Some(routes), Some(tp)) = (&mut self.routes, &mut self.tp) else { return };
        let Some(mut of_tp) = routes.of_tp.take() else { return };
        let payload = self.path.payload();
        while let Some(moved) = of_tp.tend(now, tp, (payload, is_unanswered)) {
            routes.on_moved(&moved);
            self.moved.push_back(moved);
        }
        let used = of_tp.used();
        routes.of_tp = Some(of_tp);
        self.show_routes();
        if self.route != used {
            (self.route, self.tp_route) = (used, used);
            self.handshake.ask_again(now);
        }
    }

    /// When the TP has to move by a handshake.
    fn lost_at(&self) -> Option<Nanos> {
        let of_tp = self.routes.as_ref().and_then(|routes| routes.of_tp.as_ref())?;
        of_tp.lost_at(self.tp.as_ref()?, self.is_unanswered())
    }

    /// Leaves routes that carry nothing, and tries to open a TP elsewhere if none does. `offer` gives numbers for a
    /// TP, besides the one that has the given TPN.
    pub(super) fn tend_routes(&mut self, now: Nanos, offer: &mut dyn FnMut(Option<Tpn>) -> Offer) {
        self.tend_tp(now);
        let is_lost = self.lost_at().is_some_and(|at| now >= at);
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
            if turns && !is_over {
                rival.route = routes.after(rival.route, Some(used));
                rival.handshake.renew(now, offer(kept));
            }
            routes.rival = (!is_over).then_some(rival);
            return;
        }
        if is_lost {
            let mut handshake = self.handshake.rival();
            handshake.open(now, offer(kept));
            routes.begin(handshake, routes.after(used, Some(used)));
        }
    }

    /// When a move begins or continues.
    pub(super) fn routes_deadline(&self) -> Option<Nanos> {
        let routes = self.routes.as_ref().filter(|_| self.tp.is_some())?;
        match &routes.rival {
            Some(rival) => rival.handshake.poll_deadline().or(Some(0)),
            None => {
                let of_tp = routes.of_tp.as_ref().and_then(TpRoutes::poll_deadline);
                of_tp.into_iter().chain(self.lost_at()).min()
            }
        }
    }

    /// Whether a packet that came on this route, with this DestQP, is for the TP.
    pub(super) fn takes(&self, route: Route, dest: Tpn) -> bool {
        self.may_come(route) && self.tp.as_ref().is_some_and(|tp| tp.cfg().local_tpn == dest)
    }

    /// Whether packets of the TP may come on this route: the peer chooses, and may have left the one used here.
    pub(super) fn may_come(&self, route: Route) -> bool {
        self.route == route || self.has_route(route)
    }

    /// Takes a packet of a handshake.
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
                    // The other attempt ends with the TP that it opened.
                    std::mem::swap(&mut self.handshake, &mut rival.handshake);
                }
                event
            }
        }
    }

    /// The attempt to which a handshake packet that came on `route` belongs. If both nodes try another route, the
    /// leader's attempt stays: it takes the other node's route, and that node yields.
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
            | Body::ProbeEcho(_)
            | Body::Losses(_)
            | Body::Tail(_)
            | Body::Repair(_) => {
                return if self.may_come(route) { Attempt::Own } else { Attempt::None };
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

    /// The attempt to which a CONNECT belongs.
    fn attempt_for(
        &mut self,
        (now, route): (Nanos, Route),
        terms: &HandshakeBody,
        offer: &mut dyn FnMut(Option<Tpn>) -> Offer,
    ) -> Attempt {
        let is_here = self.route == route;
        if self.handshake.holds(terms) {
            // The peer asks on the route that it uses.
            return if self.may_come(route) { Attempt::Own } else { Attempt::None };
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

/// Use of a route.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum RouteUse {
    /// It carries the TP.
    Used,
    /// A handshake is in progress on it.
    Tried,
    Idle,
}

/// Handshake with a peer to which a packet belongs.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Attempt {
    /// The one of the TP.
    Own,
    /// The one that would move it.
    Rival,
    None,
}
