//! Congestion control of a TP: how many packets may be on the path, and how fast they follow each other.
//!
//! - owns: the interface of an algorithm; its implementations. takes: what feedback says of the path, time.
//! - gives: a window in packets, a rate. must not: decide what is lost, know packets, read a clock.
//!
//! All counts are packets: those of a TP that fills a path have its path MTU, and a window that grows by what is
//! acknowledged fits packets of any size.

mod contest;
mod cubic;
mod delay;
mod flow;
mod pacer;
mod slow_start;
#[cfg(test)]
mod tests;

use std::fmt::Debug;

use udma_abi::Nanos;

pub use cubic::Cubic;
pub use delay::Delay;
pub(crate) use flow::PathControl;
pub use pacer::{PACER_BURST_MAX, Pacer};

/// Packets that may be out before the first round trip (RFC 6928).
pub const WINDOW_FIRST: f64 = 10.0;
/// Least window: with one packet each acknowledgement would wait for its delay.
pub const WINDOW_MIN: f64 = 2.0;
/// Most packets of a window.
pub const WINDOW_MOST: f64 = 16_777_216.0;

/// Which algorithm bounds what a TP has on the path.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Hash, Default)]
pub enum CongestionChoice {
    /// None: the send window alone.
    None,
    /// CUBIC (RFC 9438): the window follows losses.
    Cubic,
    /// The window follows the delay of queues: a target delay as Swift has it, approached as FAST TCP does.
    #[default]
    Delay,
}

impl CongestionChoice {
    /// All kinds, the default first.
    pub const ALL: [Self; 3] = [Self::Delay, Self::Cubic, Self::None];

    /// Its name in settings.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::None => "none",
            Self::Cubic => "cubic",
            Self::Delay => "delay",
        }
    }

    /// A new algorithm of that kind; none for [`CongestionChoice::None`].
    #[must_use]
    pub fn control(self) -> Option<Box<dyn CongestionControl>> {
        match self {
            Self::None => None,
            Self::Cubic => Some(Box::new(Cubic::new())),
            Self::Delay => Some(Box::new(Delay::new())),
        }
    }
}

/// What one acknowledgement or report says of the path.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
pub struct PathNews {
    /// Time at which it was received.
    pub now: Nanos,
    /// Packets that left the path since the last one and were not lost.
    pub acked: u64,
    /// Packets that count as lost since then.
    pub lost: u64,
    /// Round-trip time of the packet that it answers, in ns, if that was sent once.
    pub rtt: Option<Nanos>,
    /// Most packets that were on the path in this round trip and the one before.
    pub flight_max: u64,
    /// All that was on the path when this round trip began has left it: the next one begins.
    pub is_round_over: bool,
}

/// Bounds what a TP has on the path.
pub trait CongestionControl: Send + Debug {
    /// Takes what feedback showed of the path.
    fn on_news(&mut self, news: &PathNews);

    /// A packet was lost that was sent after the last call of this: at most one per round trip.
    fn on_loss(&mut self, now: Nanos);

    /// The timer expired: all that was on the path counts as gone.
    fn on_timeout(&mut self, now: Nanos);

    /// Most packets that may be on the path, at least 1.
    fn window(&self) -> u64;

    /// Mean time between two packets, in ps; 0: no limit.
    fn interval_ps(&self) -> u64;
}

/// A window as whole packets.
#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "the value is between 1 and 2^24"
)]
fn whole(window: f64) -> u64 {
    window.clamp(1.0, WINDOW_MOST) as u64
}

/// Time between two packets so that `window` of them take a round trip, faster by `gain`.
#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    clippy::cast_precision_loss,
    reason = "a round trip has less than 2^53 ns; the result is positive and cut to 64 bits"
)]
fn interval_ps(rtt_ns: Nanos, window: f64, gain: f64) -> u64 {
    (rtt_ns as f64 * 1000.0 / (window * gain)) as u64
}

/// Nanoseconds as a number to compute with.
#[expect(clippy::cast_precision_loss, reason = "times between events have less than 2^53 ns")]
const fn number(count: u64) -> f64 {
    count as f64
}
