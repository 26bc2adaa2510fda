//! The routes that carry one TP: which of them work, and which ones its packets take.
//!
//! *Owns*: the state of each route, from the TP's start to its end. *Takes*: time, echoes, timeouts. *Gives*: probes,
//! the routes to use, changes. *Must not*: let a packet take a route that has not returned a probe of the TP's packet
//! size.
//!
//! All packets of a TP have their place in one sequence, whatever route they take. So nothing is executed twice when
//! packets are sent again on another route, and a route needs no handshake: a returned probe shows that the peer
//! receives there.

use udma_abi::Nanos;
use urma_packet::{DATA_OVERHEAD, PathProbe};

use crate::cfg::PortMode;
use crate::ports::Route;
use crate::transport::{SPREAD_MAX, Tp};

/// Timeouts in a row after which a route is suspect.
pub(super) const SUSPECT_TIMEOUTS: u32 = 2;
/// Time until a probe without an echo is sent again, at first and at most, in nanoseconds.
const ASK_MIN_NS: Nanos = 10_000_000;
const ASK_MAX_NS: Nanos = 1_000_000_000;
/// A route in doubt that returns no probe for so long has failed, in nanoseconds.
const DOUBT_NS: Nanos = 30_000_000;
/// Time for another route to return a probe, before the TP moves by a handshake, in nanoseconds.
const PROBING_NS: Nanos = 15_000_000;
/// Time until a failed route is probed again, at first and at most, in nanoseconds: doubled when it failed soon after
/// it was taken back.
const BACK_MIN_NS: Nanos = 1_000_000_000;
const BACK_MAX_NS: Nanos = 60_000_000_000;
/// A route that lasts so long did not fail soon, in nanoseconds.
const STEADY_NS: Nanos = 10_000_000_000;

/// A move of packets from one route to another, or back.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct TpMove {
    pub(super) from: Route,
    pub(super) to: Route,
    /// `to` works again; if not, `from` carries nothing.
    pub(super) is_back: bool,
}

/// State of a route.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum RouteState {
    /// No probe has come back yet.
    Unproven,
    /// Packets may take it.
    Works,
    /// The timer expired for a packet on it, at that time: other routes are taken meanwhile.
    Doubted(Nanos),
    /// It failed: it carried nothing.
    Failed,
}

#[derive(Clone, Copy, Debug)]
struct TpRoute {
    route: Route,
    state: RouteState,
    /// Payload bytes of packets that pass.
    proven: usize,
    /// Probe without an echo.
    asked: Option<PathProbe>,
    /// Whether to send a probe now.
    is_due: bool,
    /// When the next probe may be sent, and the time until the one after it.
    ask_at: Nanos,
    ask_ns: Nanos,
    /// The same, after it failed.
    back_ns: Nanos,
    /// When it was taken back.
    returned_at: Option<Nanos>,
    /// Whether the system does not send there.
    is_cut: bool,
}

impl TpRoute {
    fn ask_from(&mut self, at: Nanos) {
        (self.ask_at, self.ask_ns) = (at, ASK_MIN_NS);
    }

    fn fail(&mut self, now: Nanos) {
        let is_soon = self.returned_at.is_some_and(|at| now.saturating_sub(at) < STEADY_NS);
        let longer = self.back_ns.saturating_mul(2).min(BACK_MAX_NS);
        self.back_ns = if is_soon { longer } else { BACK_MIN_NS };
        self.state = RouteState::Failed;
        self.ask_at = now.saturating_add(self.back_ns);
        (self.asked, self.is_due, self.is_cut) = (None, false, false);
    }
}

/// The routes of one TP; each has a number, by which the TP knows it.
#[derive(Debug)]
pub(super) struct TpRoutes {
    /// In the order of preference.
    routes: Vec<TpRoute>,
    mode: PortMode,
    /// The one for packets without a place in the sequence, and as active-backup for all packets.
    used: usize,
    /// The time since when the one in use carries nothing; others are probed.
    doubt_at: Option<Nanos>,
    /// Whether one that had failed works again.
    returned: Option<usize>,
}

impl TpRoutes {
    /// For a TP that a handshake opened on `first`; `all` are the routes to the peer in the order of preference.
    pub(super) fn new(now: Nanos, first: Route, all: &[Route], mode: PortMode) -> Self {
        let mut chosen = vec![first];
        for route in all {
            let is_apart = chosen.iter().all(|one| one.port != route.port)
                || chosen.iter().all(|one| one.to != route.to);
            if is_apart && chosen.len() < SPREAD_MAX {
                chosen.push(*route);
            }
        }
        chosen.sort_by_key(|one| all.iter().position(|route| route == one));
        let used = chosen.iter().position(|one| *one == first).unwrap_or(0);
        let known = |route: Route| TpRoute {
            route,
            state: if route == first { RouteState::Works } else { RouteState::Unproven },
            proven: 0,
            asked: None,
            is_due: false,
            // A preferred route that the handshake did not take may not have worked just before.
            ask_at: if mode == PortMode::Balance { now } else { now.saturating_add(BACK_MIN_NS) },
            ask_ns: ASK_MIN_NS,
            back_ns: BACK_MIN_NS,
            returned_at: None,
            is_cut: false,
        };
        let routes = chosen.into_iter().map(known).collect();
        Self { routes, mode, used, doubt_at: None, returned: None }
    }

    /// The route with this number.
    pub(super) fn route(&self, number: u8) -> Route {
        self.routes.get(usize::from(number)).unwrap_or(&self.routes[self.used]).route
    }

    /// The route for packets without a place in the sequence.
    pub(super) fn used(&self) -> Route {
        self.routes[self.used].route
    }

    /// Whether packets of the sequence take it, of up to `payload` bytes.
    pub(super) fn carries(&self, route: Route, payload: usize) -> bool {
        let at = self.routes.iter().position(|one| one.route == route);
        at.is_some_and(|at| self.usable(payload) & (1 << at) != 0)
    }

    /// Whether a probe was sent there and has not come back.
    pub(super) fn is_asked(&self, route: Route) -> bool {
        self.routes.iter().any(|one| one.route == route && one.asked.is_some())
    }

    /// Bit mask of the routes that packets with up to `payload` bytes take.
    pub(super) fn usable(&self, payload: usize) -> u8 {
        let used = 1 << self.used;
        if self.mode == PortMode::ActiveBackup {
            return used;
        }
        let works = (0..self.routes.len()).filter(|at| self.works(*at, payload));
        let all = works.fold(0, |all, at| all | 1 << at);
        if all == 0 { used } else { all }
    }

    /// Whether packets of this size pass.
    fn works(&self, at: usize, payload: usize) -> bool {
        let one = &self.routes[at];
        // The path MTU of the TP is that of the route in use.
        one.state == RouteState::Works && (at == self.used || one.proven >= payload)
    }

    /// The first other route on which packets of this size pass.
    fn other(&self, than: usize, payload: usize) -> Option<usize> {
        (0..self.routes.len()).find(|at| *at != than && self.works(*at, payload))
    }

    /// Sets the mode of the node, which a program may change.
    pub(super) fn set_mode(&mut self, now: Nanos, mode: PortMode) {
        if std::mem::replace(&mut self.mode, mode) != mode && mode == PortMode::Balance {
            self.ask_others(now);
        }
    }

    /// Notes that the system does not send on this route.
    pub(super) fn on_cut(&mut self, route: Route) {
        let carried = self.routes.iter_mut().filter(|one| one.route == route);
        carried.filter(|one| one.state == RouteState::Works).for_each(|one| one.is_cut = true);
    }

    /// Starts to probe all routes but the one in use.
    fn ask_others(&mut self, now: Nanos) {
        let used = self.used;
        for (at, one) in self.routes.iter_mut().enumerate() {
            if at != used {
                one.ask_from(now);
            }
        }
    }

    // Probes.

    /// Notes that packets are sent: it may be time to probe a route.
    pub(super) fn on_traffic(&mut self, now: Nanos, payload: usize) {
        for at in 0..self.routes.len() {
            let is_wanted = match self.mode {
                PortMode::Balance => !self.works(at, payload),
                PortMode::ActiveBackup => {
                    at < self.used || (at != self.used && self.doubt_at.is_some())
                }
            };
            let one = &mut self.routes[at];
            one.is_due |= is_wanted && now >= one.ask_at;
        }
    }

    pub(super) fn has_probe(&self) -> bool {
        self.routes.iter().any(|one| one.is_due)
    }

    /// Returns the next probe and its route; packets have up to `payload` bytes.
    pub(super) fn poll_probe(
        &mut self,
        now: Nanos,
        payload: usize,
        random: &mut dyn FnMut() -> u64,
    ) -> Option<(Route, PathProbe)> {
        let is_urgent = self.doubt_at.is_some();
        let one = self.routes.iter_mut().find(|one| one.is_due)?;
        one.is_due = false;
        if one.state == RouteState::Failed && !is_urgent {
            one.ask_at = now.saturating_add(one.back_ns);
        } else {
            one.ask_at = now.saturating_add(one.ask_ns);
            one.ask_ns = one.ask_ns.saturating_mul(2).min(ASK_MAX_NS);
        }
        // At most the path MTU of a TP.
        let size = u16::try_from(DATA_OVERHEAD + payload).unwrap_or(u16::MAX);
        let probe = PathProbe { nonce: random(), size };
        one.asked = Some(probe);
        Some((one.route, probe))
    }

    /// Takes a probe that the peer returned on this route. Returns the number of the route if it answers one that was
    /// sent there.
    pub(super) fn on_echo(&mut self, now: Nanos, route: Route, echo: &PathProbe) -> Option<u8> {
        let mut routes = self.routes.iter_mut().enumerate();
        let found = routes.find(|(_, one)| one.route == route && one.asked == Some(*echo));
        let (at, one) = found?;
        one.asked = None;
        one.proven = usize::from(echo.size).saturating_sub(DATA_OVERHEAD);
        if one.state == RouteState::Failed && self.mode == PortMode::Balance {
            one.returned_at = Some(now);
            self.returned = Some(at);
        }
        one.state = RouteState::Works;
        one.is_cut = false;
        one.ask_from(now.saturating_add(ASK_MIN_NS));
        Some(number_of(at))
    }

    // Changes.

    /// Number of timeouts in a row on the route.
    fn silence(&self, at: usize, tp: &Tp, is_unanswered: bool) -> u32 {
        if self.routes[at].is_cut || (is_unanswered && at == self.used) {
            SUSPECT_TIMEOUTS
        } else {
            tp.expired(number_of(at))
        }
    }

    /// Leaves routes that carry nothing and takes those that work again. Returns the change; call it until there is
    /// none. `is_unanswered`: the peer did not answer a question that took the route in use.
    pub(super) fn tend(
        &mut self,
        now: Nanos,
        tp: &mut Tp,
        (payload, is_unanswered): (usize, bool),
    ) -> Option<TpMove> {
        let used = self.used;
        let silence = self.silence(used, tp, is_unanswered);
        let other = self.other(used, payload);
        if silence == 0 || (other.is_some() && self.mode == PortMode::Balance) {
            self.doubt_at = None;
        } else if self.doubt_at.is_none() {
            self.doubt_at = Some(now);
            self.ask_others(now);
            let standby = self.routes.iter_mut().enumerate().filter(|(at, _)| *at != used);
            for (_, one) in standby.filter(|(_, one)| one.state == RouteState::Works) {
                one.state = RouteState::Unproven;
            }
            self.on_traffic(now, payload);
            return None;
        }
        match self.mode {
            PortMode::ActiveBackup => self.tend_backup(now, tp, silence, other?),
            PortMode::Balance => self.tend_balance(now, tp, (payload, is_unanswered)),
        }
    }

    fn tend_backup(
        &mut self,
        now: Nanos,
        tp: &mut Tp,
        silence: u32,
        other: usize,
    ) -> Option<TpMove> {
        let used = self.used;
        let is_back = silence < SUSPECT_TIMEOUTS;
        if is_back && other > used {
            return None;
        }
        if is_back {
            self.routes[used].state = RouteState::Unproven;
            self.routes[other].returned_at = Some(now);
        } else {
            self.routes[used].fail(now);
            tp.fail_route(number_of(used));
        }
        self.used = other;
        self.doubt_at = None;
        Some(TpMove { from: self.routes[used].route, to: self.routes[other].route, is_back })
    }

    fn tend_balance(
        &mut self,
        now: Nanos,
        tp: &mut Tp,
        (payload, is_unanswered): (usize, bool),
    ) -> Option<TpMove> {
        if let Some(at) = self.returned.take() {
            let (from, to) = (self.used(), self.routes[at].route);
            return Some(TpMove { from, to, is_back: true });
        }
        for at in 0..self.routes.len() {
            let silence = self.silence(at, tp, is_unanswered);
            let Some(other) = self.other(at, payload) else { continue };
            match self.routes[at].state {
                RouteState::Works if silence > 0 => {
                    self.routes[at].state = RouteState::Doubted(now);
                    self.routes[at].ask_from(now);
                    self.on_traffic(now, payload);
                    if self.used == at {
                        self.used = other;
                    }
                }
                RouteState::Doubted(since)
                    if silence >= SUSPECT_TIMEOUTS || now >= since.saturating_add(DOUBT_NS) =>
                {
                    self.routes[at].fail(now);
                    tp.fail_route(number_of(at));
                    let (from, to) = (self.routes[at].route, self.routes[other].route);
                    return Some(TpMove { from, to, is_back: false });
                }
                RouteState::Unproven
                | RouteState::Works
                | RouteState::Doubted(_)
                | RouteState::Failed => {}
            }
        }
        None
    }

    /// When the TP has to move by a handshake, since none of the routes carries anything.
    pub(super) fn lost_at(&self, tp: &Tp, is_unanswered: bool) -> Option<Nanos> {
        let is_lost = self.silence(self.used, tp, is_unanswered) >= SUSPECT_TIMEOUTS;
        self.doubt_at.filter(|_| is_lost).map(|at| at.saturating_add(PROBING_NS))
    }

    /// When [`TpRoutes::tend`] or [`TpRoutes::poll_probe`] has something to do.
    pub(super) fn poll_deadline(&self) -> Option<Nanos> {
        if self.has_probe() {
            return Some(0);
        }
        let doubts = self.routes.iter().filter_map(|one| match one.state {
            RouteState::Doubted(since) => Some(since.saturating_add(DOUBT_NS)),
            RouteState::Unproven | RouteState::Works | RouteState::Failed => None,
        });
        doubts.min()
    }
}

/// The number of a route in its TP, which has at most [`SPREAD_MAX`].
fn number_of(at: usize) -> u8 {
    u8::try_from(at).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use udma_abi::RawEid;

    use super::*;

    const MS: Nanos = 1_000_000;

    const fn route(port: u8, to: u8) -> Route {
        Route { port, to: RawEid([to; 16]) }
    }

    /// Two ports at both nodes.
    const ALL: [Route; 4] = [route(0, 11), route(1, 12), route(0, 12), route(1, 11)];

    fn balanced() -> TpRoutes {
        let mut routes = TpRoutes::new(0, ALL[0], &ALL, PortMode::ActiveBackup);
        routes.set_mode(0, PortMode::Balance);
        routes
    }

    /// Asks for all routes that are due, and those that were.
    fn asked(routes: &mut TpRoutes, now: Nanos, payload: usize) -> Vec<(Route, PathProbe)> {
        routes.on_traffic(now, payload);
        let mut number = now;
        let mut random = || {
            number += 1;
            number
        };
        std::iter::from_fn(|| routes.poll_probe(now, payload, &mut random)).collect()
    }

    #[test]
    fn routes_of_a_tp_share_no_pair_of_ports() {
        let routes = |first| {
            let of_tp = TpRoutes::new(0, first, &ALL, PortMode::ActiveBackup);
            of_tp.routes.iter().map(|one| one.route).collect::<Vec<_>>()
        };
        assert_eq!(routes(ALL[0]), ALL[..2]);
        // Made between ports of different numbers: the preferred ones are asked, too.
        assert_eq!(routes(ALL[3]), [ALL[0], ALL[1], ALL[3]]);
    }

    #[test]
    fn a_route_carries_packets_up_to_the_size_that_came_back() {
        let mut routes = balanced();
        let [(by, probe)] = asked(&mut routes, 0, 512)[..] else { panic!("one is asked") };
        assert_eq!((by, routes.usable(512)), (ALL[1], 0b01));
        assert_eq!(routes.on_echo(MS, by, &probe), Some(1));
        assert_eq!((routes.usable(512), routes.usable(1024)), (0b11, 0b01));
        // Longer packets pass the route in use: the other one is asked whether they do there.
        let [(_, longer)] = asked(&mut routes, 20 * MS, 1024)[..] else { panic!("it is asked") };
        assert_eq!(routes.on_echo(21 * MS, by, &probe), None, "the question before");
        assert_eq!(routes.on_echo(21 * MS, by, &longer), Some(1));
        assert_eq!(routes.usable(1024), 0b11);
    }

    #[test]
    fn a_route_without_an_echo_is_asked_ever_more_rarely() {
        let mut routes = balanced();
        let times = (0..20_000).map(|step| step * MS);
        let asked: Vec<_> = times
            .filter(|now| !asked(&mut routes, *now, 512).is_empty())
            .map(|at| at / MS)
            .collect();
        assert_eq!(asked[..8], [0, 10, 30, 70, 150, 310, 630, 1_270]);
        assert!(asked[8..].windows(2).all(|pair| pair[1] - pair[0] == 1_000));
    }

    #[test]
    fn a_route_that_fails_soon_is_asked_later() {
        let mut one = balanced().routes[1];
        let mut now = 0;
        let mut waits = Vec::new();
        for lasts in [0, 1, 1, 20, 1] {
            now += lasts * BACK_MIN_NS;
            one.fail(now);
            waits.push((one.ask_at - now) / BACK_MIN_NS);
            now = one.ask_at;
            one.returned_at = Some(now);
        }
        assert_eq!(waits, [1, 2, 4, 1, 2]);
    }
}
