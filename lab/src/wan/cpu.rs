//! What packets cost the processors at both ends of the path.
//!
//! - owns: costs and their text, when an end is free. takes: work and its time. gives: when it is done.
//! - must not: measure a machine.

use std::fmt;

use crate::units;

/// Processor time, in ps, of what the ends of all TPs do. An end does one thing at a time.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct CpuCosts {
    /// A packet that is made and put on the link: new, repeated, a repair packet or a tail mark. With it the sender takes
    /// acknowledgements, which are a certain part of the packets.
    pub send: u64,
    /// What a packet costs beyond that for each thousand packets that the peer may lack: they leave the caches before they are
    /// on the link or acknowledged.
    pub flight: u64,
    /// What a packet costs beyond that when it is sent again, with the report that asked for it.
    pub again: u64,
    /// A packet that is taken from the link, and its part of an acknowledgement.
    pub receive: u64,
    /// What a packet costs beyond that when it is kept, since one before it is missing.
    pub kept: u64,
    /// The code of a repair packet, for each packet that it covers.
    pub repair: u64,
    /// A packet that repair packets bring back, for each packet of its group.
    pub repaired: u64,
}

/// Most that one cost may be, in ps.
const COST_MAX: f64 = 1e9;

impl CpuCosts {
    /// Names of the costs, in the order of the text.
    pub const NAMES: [&str; 7] =
        ["send", "flight", "again", "receive", "kept", "repair", "repaired"];

    /// Reads what [`CpuCosts`] is written as: `send=700ns,receive=650ns`, of any of the names; `Err`: what is wrong.
    pub fn parse(text: &str) -> Result<Self, String> {
        let mut costs = Self::default();
        let mut seen = Vec::new();
        for part in text.split(',') {
            let (name, value) = part.split_once('=').ok_or_else(|| format!("{part:?} has no ="))?;
            let at = Self::NAMES.iter().position(|known| *known == name);
            let at = at.ok_or_else(|| format!("{name:?} is none of {}", Self::NAMES.join(", ")))?;
            if seen.contains(&at) {
                return Err(format!("{name} is there twice"));
            }
            seen.push(at);
            let ps = units::time(value).map_err(|error| format!("{name}: {error}"))?;
            if !(0.0..=COST_MAX).contains(&ps) {
                return Err(format!("{name}: {value} is not between 0ns and 1ms"));
            }
            *costs.named_mut()[at] = whole(ps);
        }
        Ok(costs)
    }

    /// The costs in the order of their names.
    #[must_use]
    pub const fn values(&self) -> [u64; 7] {
        [self.send, self.flight, self.again, self.receive, self.kept, self.repair, self.repaired]
    }

    const fn named_mut(&mut self) -> [&mut u64; 7] {
        let Self { send, flight, again, receive, kept, repair, repaired } = self;
        [send, flight, again, receive, kept, repair, repaired]
    }
}

impl fmt::Display for CpuCosts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (at, (name, ps)) in Self::NAMES.iter().zip(self.values()).enumerate() {
            let comma = if at == 0 { "" } else { "," };
            write!(f, "{comma}{name}={}ns", ps as f64 / 1000.0)?;
        }
        Ok(())
    }
}

/// The processors of both ends: until when each is busy, in ps.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct EndProcessors {
    costs: CpuCosts,
    sender: u64,
    receiver: u64,
}

impl EndProcessors {
    /// Both are free; without costs they always are.
    pub(super) fn new(costs: Option<CpuCosts>) -> Self {
        Self { costs: costs.unwrap_or_default(), sender: 0, receiver: 0 }
    }

    /// When the sender has done what it has, and when the receiver has.
    pub(super) const fn free_at(&self) -> (u64, u64) {
        (self.sender, self.receiver)
    }

    /// When a sender begins so that it has made a packet when the link is free.
    pub(super) fn send_from(&self, link_free_at: u64) -> u64 {
        link_free_at.saturating_sub(self.costs.send).max(self.sender)
    }

    /// The sender makes a packet, again or not, while the peer may lack so many; when it is on the link.
    pub(super) fn send(&mut self, now: u64, lacks: u64, is_again: bool) -> u64 {
        let again = if is_again { self.costs.again } else { 0 };
        let cost = self.costs.send + self.costs.flight * lacks / 1000 + again;
        work(&mut self.sender, now, cost)
    }

    /// The sender makes a repair packet of so many packets; when it is on the link.
    pub(super) fn repair(&mut self, now: u64, members: u64) -> u64 {
        work(&mut self.sender, now, self.costs.send + members * self.costs.repair)
    }

    /// The receiver takes a packet.
    pub(super) fn receive(&mut self, now: u64) {
        work(&mut self.receiver, now, self.costs.receive);
    }

    /// The receiver brings packets back, each from a group of so many.
    pub(super) fn repaired(&mut self, now: u64, packets: u64, members: u64) {
        work(&mut self.receiver, now, packets * members * self.costs.repaired);
    }

    /// The receiver keeps the packet that it took.
    pub(super) fn kept(&mut self, now: u64) {
        work(&mut self.receiver, now, self.costs.kept);
    }

    /// When what the receiver answers at `now` is on its way.
    pub(super) fn answered(&self, now: u64) -> u64 {
        self.receiver.max(now)
    }
}

/// Does what takes `cost` after all that was begun before; when it is done.
fn work(free_at: &mut u64, now: u64, cost: u64) -> u64 {
    *free_at = (*free_at).max(now) + cost;
    *free_at
}

#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "the cost was checked to be positive and at most a millisecond"
)]
const fn whole(ps: f64) -> u64 {
    (ps + 0.5) as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn costs_are_written_as_they_are_read() {
        let text = "send=700.5ns,flight=50ns,again=1000ns,receive=650ns,kept=90ns,repair=40ns,repaired=41ns";
        let costs = CpuCosts::parse(text).expect("costs");
        assert_eq!(costs.values(), [700_500, 50_000, 1_000_000, 650_000, 90_000, 40_000, 41_000]);
        assert_eq!(costs.to_string(), text);
        // What is not named is free.
        let some = CpuCosts::parse("repaired=2us,send=1ns").expect("costs");
        assert_eq!(some.values(), [1000, 0, 0, 0, 0, 0, 2_000_000]);
    }

    #[test]
    fn what_is_no_cost_is_refused_by_name() {
        for (text, named) in [
            ("", "has no ="),
            ("send", "has no ="),
            ("post=1ns", "none of send, flight"),
            ("send=1ns,send=2ns", "send is there twice"),
            ("send=1", "a time with its unit"),
            ("kept=-1ns", "not between 0ns and 1ms"),
            ("kept=1.1ms", "not between 0ns and 1ms"),
        ] {
            let error = CpuCosts::parse(text).expect_err(text);
            assert!(error.contains(named), "{text}: {error}");
        }
    }
}
