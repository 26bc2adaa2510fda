//! Flows of others beside ours: a sender that has always something to send, and what its congestion control is told.
//!
//! - owns: what is on the path, rounds, delivery rates, losses, the timeout. takes: acknowledgements, one for each packet.
//! - gives: the number of the packet that leaves. must not: decide how much may be on the path.
//!
//! Nothing overtakes anything on the link, so an acknowledgement shows that all before it were lost: losses are found at
//! once and without errors, as TCP with SACK and RACK finds most of them. What was lost is sent again as a later number.

mod bbr;
mod cubic;

use std::collections::VecDeque;
use std::fmt::Debug;

use self::bbr::Bbr;
use self::cubic::RivalCubic;

/// Whose congestion control a rival has.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum RivalKind {
    /// CUBIC as RFC 9438 has it.
    Cubic,
    /// BBR in its first version.
    Bbr,
}

impl RivalKind {
    /// All kinds of rivals.
    pub const ALL: [Self; 2] = [Self::Cubic, Self::Bbr];

    /// Its name in options and results.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Cubic => "cubic",
            Self::Bbr => "bbr",
        }
    }

    fn control(self) -> Box<dyn RivalControl> {
        match self {
            Self::Cubic => Box::new(RivalCubic::new()),
            Self::Bbr => Box::new(Bbr::new()),
        }
    }
}

/// What one acknowledgement says.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct RivalNews {
    /// Time at which it came, in ns.
    pub now: u64,
    /// Round-trip time of its packet, in ns.
    pub rtt: u64,
    /// Packets delivered a second while the packet was on its way.
    pub rate: f64,
    /// Packets on the path behind it.
    pub flight: u64,
    /// Packets of which it shows that they were lost.
    pub lost: u64,
    /// All that was on the path when this round trip began has left it.
    pub is_round_over: bool,
}

/// Bounds what a rival has on the path.
pub trait RivalControl: Send + Debug {
    /// A packet was acknowledged.
    fn on_ack(&mut self, news: &RivalNews);

    /// A packet was lost that was sent after the last call of this; so many are on the path.
    fn on_loss(&mut self, now: u64, flight: u64);

    /// Nothing came back for too long: all that was on the path counts as lost.
    fn on_timeout(&mut self, now: u64);

    /// Most packets that may be on the path.
    fn window(&self) -> f64;

    /// Packets a second at most; none: as acknowledgements let them go.
    fn rate(&self) -> Option<f64>;
}

/// A packet on the path.
#[derive(Clone, Copy, Debug)]
struct Flying {
    number: u64,
    sent_at: u64,
    /// Packets delivered when it left, when the last of them was, and when the packet of that one left.
    delivered: u64,
    delivered_at: u64,
    first_sent_at: u64,
}

/// Sender and receiver of a rival.
#[derive(Debug)]
pub struct RivalFlow {
    control: Box<dyn RivalControl>,
    flying: VecDeque<Flying>,
    /// Number of the next packet.
    next: u64,
    delivered: u64,
    delivered_at: u64,
    first_sent_at: u64,
    /// The round ends with the first packet that left when so many were delivered.
    round_delivered: u64,
    /// Losses of packets below this number are no news.
    reduced_before: u64,
    srtt: Option<u64>,
    /// When all on the path counts as lost.
    expires_at: u64,
    /// When the rate lets the next packet go, in ps.
    paced_until: u64,
    /// Packets that were found to be lost.
    lost: u64,
    timeouts: u64,
}

/// Time beyond the round trip until all counts as lost, and before the first round trip; Linux has as much at least.
const TIMEOUT_NS: u64 = 200_000_000;
const TIMEOUT_FIRST_NS: u64 = 1_000_000_000;

impl RivalFlow {
    /// A sender that sent nothing yet.
    #[must_use]
    pub fn new(kind: RivalKind) -> Self {
        Self::with_control(kind.control())
    }

    fn with_control(control: Box<dyn RivalControl>) -> Self {
        Self {
            control,
            flying: VecDeque::new(),
            next: 0,
            delivered: 0,
            delivered_at: 0,
            first_sent_at: 0,
            round_delivered: 0,
            reduced_before: 0,
            srtt: None,
            expires_at: u64::MAX,
            paced_until: 0,
            lost: 0,
            timeouts: 0,
        }
    }

    /// Packets found to be lost, each of which was sent again.
    #[must_use]
    pub const fn lost(&self) -> u64 {
        self.lost
    }

    /// How often all on the path counted as lost.
    #[must_use]
    pub const fn timeouts(&self) -> u64 {
        self.timeouts
    }

    /// Packets that may be on the path.
    #[must_use]
    pub fn window(&self) -> f64 {
        self.control.window()
    }

    fn has_room(&self) -> bool {
        (self.flying.len() as f64) < self.control.window().max(1.0).floor()
    }

    /// The number of the packet that leaves at `now`.
    pub fn poll(&mut self, now: u64) -> Option<u64> {
        if !self.has_room() || now.saturating_mul(1000) < self.paced_until {
            return None;
        }
        if let Some(rate) = self.control.rate() {
            let interval = whole(1e12 / rate.max(1e-3));
            // What was not used in time is gone but for one packet.
            let from = self.paced_until.max((now * 1000).saturating_sub(interval));
            self.paced_until = from + interval;
        }
        if self.flying.is_empty() {
            (self.delivered_at, self.first_sent_at) = (now, now);
            self.expires_at = now + self.timeout();
        }
        let number = self.next;
        self.next += 1;
        self.flying.push_back(Flying {
            number,
            sent_at: now,
            delivered: self.delivered,
            delivered_at: self.delivered_at,
            first_sent_at: self.first_sent_at,
        });
        Some(number)
    }

    /// When it has something to do without an acknowledgement.
    #[must_use]
    pub fn deadline(&self) -> Option<u64> {
        let paced = self.has_room().then(|| self.paced_until.div_ceil(1000));
        let expires = (!self.flying.is_empty()).then_some(self.expires_at);
        paced.into_iter().chain(expires).min()
    }

    fn timeout(&self) -> u64 {
        self.srtt.map_or(TIMEOUT_FIRST_NS, |srtt| srtt + TIMEOUT_NS)
    }

    /// Time passed: the timer may have run out.
    pub fn on_time(&mut self, now: u64) {
        if self.flying.is_empty() || now < self.expires_at {
            return;
        }
        self.lost += self.flying.len() as u64;
        self.timeouts += 1;
        self.flying.clear();
        self.reduced_before = self.next;
        self.control.on_timeout(now);
        self.expires_at = now + self.timeout();
    }

    /// Packet `number` was received.
    pub fn on_ack(&mut self, now: u64, number: u64) {
        let mut lost = 0;
        let mut is_news = false;
        while self.flying.front().is_some_and(|flying| flying.number < number) {
            let Some(flying) = self.flying.pop_front() else { break };
            lost += 1;
            is_news |= flying.number >= self.reduced_before;
        }
        self.lost += lost;
        // Of one that counted as lost too early there is nothing to learn.
        let Some(flying) = self.flying.front().copied().filter(|front| front.number == number)
        else {
            return;
        };
        self.flying.pop_front();
        self.delivered += 1;
        self.delivered_at = now;
        self.first_sent_at = flying.sent_at;
        let rtt = now - flying.sent_at;
        self.srtt = Some(self.srtt.map_or(rtt, |srtt| srtt / 8 * 7 + rtt / 8));
        self.expires_at = now + self.timeout();
        let is_round_over = flying.delivered >= self.round_delivered;
        if is_round_over {
            self.round_delivered = self.delivered;
        }
        let flight = self.flying.len() as u64;
        if is_news {
            self.reduced_before = self.next;
            self.control.on_loss(now, flight + lost + 1);
        }
        // Over the longer of both times: acknowledgements that come close together show no rate.
        let sending = flying.sent_at - flying.first_sent_at;
        let receiving = now - flying.delivered_at;
        let rate =
            (self.delivered - flying.delivered) as f64 * 1e9 / sending.max(receiving).max(1) as f64;
        self.control.on_ack(&RivalNews { now, rtt, rate, flight, lost, is_round_over });
    }
}

#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "a positive number; what is too much for 64 bits is cut"
)]
const fn whole(value: f64) -> u64 {
    value as u64
}
