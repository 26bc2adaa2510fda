//! Which route each packet of a TP takes.
//!
//! - owns: which routes may be taken, packets in flight by route, what each proved to carry, whose packets the timer
//!   expired for.
//! - takes: packets sent, received, lost. gives: the number of a route; whether a packet was overtaken on its own.
//! - must not: know addresses, read a clock.
//!
//! Packets overtake those of another route all the time, so only a later packet of the same route shows that one is
//! lost.

/// Routes that carry the packets of one TP at most.
pub const SPREAD_MAX: usize = 4;
const NUMBERS: std::ops::Range<u8> = 0..4;
const _: () = assert!(NUMBERS.end as usize == SPREAD_MAX);

/// What one route carries.
#[derive(Clone, Copy, Debug, Default)]
struct Share {
    /// Packets sent and neither received nor lost.
    in_flight: u32,
    /// Transmissions so far; the number of each is its order.
    sent: u64,
    /// Order of the latest transmission that the peer proved to have.
    proved: u64,
    /// Order of the latest transmission that left the path: the peer has it or a later one, or it is given up.
    left: u64,
    /// Timeouts of packets that took it, since something that took it was received.
    expired: u32,
}

/// The routes of a TP, by number.
#[derive(Debug)]
pub(crate) struct Spread {
    shares: [Share; SPREAD_MAX],
    /// Bit by route: packets may take it. At least one.
    usable: u8,
    /// Route of the last packet, and those that took it in a row, of so many at most: a link sends them by one call.
    current: u8,
    run: u32,
    run_max: u32,
}

impl Spread {
    /// All packets take route 0.
    pub(crate) const fn new() -> Self {
        let none = Share { in_flight: 0, sent: 0, proved: 0, left: 0, expired: 0 };
        Self { shares: [none; SPREAD_MAX], usable: 1, current: 0, run: 0, run_max: 1 }
    }

    /// Packets take the routes in `usable`, a bit for each, from now on, in runs of `run_max`; without any route,
    /// nothing changes.
    pub(crate) fn set_usable(&mut self, usable: u8, run_max: u32) {
        if usable != 0 && (usable, run_max) != (self.usable, self.run_max) {
            (self.usable, self.run_max) = (usable, run_max);
            self.run = run_max;
        }
    }

    /// The route of the packet that is sent now, and its order there: that of the packet before until a run is over,
    /// then the one with the fewest packets in flight.
    pub(crate) fn take(&mut self) -> (u8, u64) {
        let is_only = self.usable == 1 << self.current;
        if !is_only && (self.run >= self.run_max || self.usable & (1 << self.current) == 0) {
            self.current = self.emptiest();
            self.run = 0;
        }
        self.run = self.run.saturating_add(1);
        let share = &mut self.shares[usize::from(self.current)];
        share.in_flight += 1;
        share.sent += 1;
        (self.current, share.sent)
    }

    /// Of several the first behind the current one.
    fn emptiest(&self) -> u8 {
        let (behind, up_to) = (self.current + 1..NUMBERS.end, 0..self.current + 1);
        let usable = behind.chain(up_to).filter(|number| self.usable & (1 << number) != 0);
        usable.min_by_key(|number| self.shares[usize::from(*number)].in_flight).unwrap_or(0)
    }

    /// A packet in flight was received, or counts as lost.
    pub(crate) fn land(&mut self, route: u8) {
        let share = &mut self.shares[usize::from(route)];
        share.in_flight = share.in_flight.saturating_sub(1);
    }

    /// The peer has the transmission of that order.
    pub(crate) fn prove(&mut self, route: u8, order: u64) {
        let share = &mut self.shares[usize::from(route)];
        share.proved = share.proved.max(order);
    }

    /// The peer has the transmission of that order, which proves nothing of those before it but that they left the path.
    pub(crate) fn leave(&mut self, route: u8, order: u64) {
        let share = &mut self.shares[usize::from(route)];
        share.left = share.left.max(order);
    }

    /// Nothing is on the path any more.
    pub(crate) fn leave_all(&mut self) {
        for share in &mut self.shares {
            share.left = share.sent;
        }
    }

    /// Number of transmissions so far.
    pub(crate) fn sent(&self) -> u64 {
        self.shares.iter().map(|share| share.sent).sum()
    }

    /// Transmissions that left the path.
    pub(crate) fn resolved(&self) -> u64 {
        self.shares.iter().map(|share| share.left.max(share.proved)).sum()
    }

    /// Transmissions on the path.
    pub(crate) fn on_path(&self) -> u64 {
        self.sent() - self.resolved()
    }

    /// The route carries packets.
    pub(crate) fn forgive(&mut self, route: u8) {
        self.shares[usize::from(route)].expired = 0;
    }

    /// The timer expired for a packet that took the route.
    pub(crate) fn blame(&mut self, route: u8) {
        self.shares[usize::from(route)].expired += 1;
    }

    /// Timeouts since the route carried something.
    pub(crate) fn expired(&self, route: u8) -> u32 {
        self.shares.get(usize::from(route)).map_or(0, |share| share.expired)
    }

    /// Routes with packets in flight, a bit for each.
    pub(crate) fn in_flight(&self) -> u8 {
        let used = NUMBERS.filter(|number| self.shares[usize::from(*number)].in_flight > 0);
        used.fold(0, |routes, number| routes | 1 << number)
    }

    /// Whether at least `packets` later ones of the same route were received.
    pub(crate) fn is_overtaken(&self, route: u8, order: u64, packets: u64) -> bool {
        order + packets <= self.shares[usize::from(route)].proved
    }

    /// Grows whenever a packet may have been overtaken.
    pub(crate) fn news(&self) -> u64 {
        self.shares.iter().map(|share| share.proved).sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn routes_of(spread: &mut Spread, count: usize) -> Vec<u8> {
        (0..count).map(|_| spread.take().0).collect()
    }

    #[test]
    fn packets_take_turns_by_runs_that_one_call_sends() {
        let mut spread = Spread::new();
        assert_eq!(routes_of(&mut spread, 6), [0; 6]);
        spread.set_usable(0b101, 4);
        assert_eq!(routes_of(&mut spread, 8), [2, 2, 2, 2, 2, 2, 2, 2]);
        assert_eq!(routes_of(&mut spread, 8), [0, 0, 0, 0, 2, 2, 2, 2]);
        // All of route 2 arrives: it is as fast as three of the other one.
        (0..12).for_each(|_| spread.land(2));
        assert_eq!(routes_of(&mut spread, 12), [2, 2, 2, 2, 2, 2, 2, 2, 2, 2, 2, 2]);
    }

    #[test]
    fn a_choice_that_is_said_again_ends_no_run() {
        let mut spread = Spread::new();
        let mut routes = Vec::new();
        for _ in 0..8 {
            spread.set_usable(0b11, 4);
            routes.extend(routes_of(&mut spread, 1));
        }
        assert_eq!(routes, [1, 1, 1, 1, 0, 0, 0, 0]);
        // Another length of runs is another choice.
        assert_eq!(routes_of(&mut spread, 2), [1, 1]);
        spread.set_usable(0b11, 3);
        assert_eq!(routes_of(&mut spread, 4), [0, 0, 0, 1]);
    }

    #[test]
    fn a_route_that_is_none_any_more_is_left_at_once() {
        let mut spread = Spread::new();
        spread.set_usable(0b11, 4);
        assert_eq!(spread.take(), (1, 1));
        spread.set_usable(0b01, 4);
        assert_eq!(spread.take(), (0, 1));
        spread.set_usable(0, 4);
        assert_eq!(spread.take(), (0, 2), "one stays");
    }

    #[test]
    fn only_packets_of_the_same_route_overtake_one() {
        let mut spread = Spread::new();
        let (first, order) = spread.take();
        spread.prove(first + 1, order + 9);
        assert!(!spread.is_overtaken(first, order, 3));
        spread.prove(first, order + 2);
        assert!(!spread.is_overtaken(first, order, 3));
        let before = spread.news();
        spread.prove(first, order + 3);
        assert!(spread.is_overtaken(first, order, 3) && spread.news() > before);
    }
}
