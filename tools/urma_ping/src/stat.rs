//! What the pings gave.
//!
//! *Owns*: counts and round-trip times. *Takes*: milliseconds. *Gives*: the last lines, JSON.

use serde_json::{Value, json};

/// Counts of pings and their round-trip times.
#[derive(Clone, Debug, Default)]
pub(crate) struct Stat {
    /// Number of pings sent.
    pub(crate) transmitted: u32,
    /// Round trips in milliseconds, by sequence number.
    replies: Vec<(u32, f64)>,
}

impl Stat {
    /// Counts the answer to ping `seq`, which took `ms` milliseconds.
    pub(crate) fn on_reply(&mut self, seq: u32, ms: f64) {
        self.replies.push((seq, ms));
    }

    /// Returns the number of pings that were answered.
    pub(crate) fn received(&self) -> u32 {
        u32::try_from(self.replies.len()).unwrap_or(u32::MAX)
    }

    fn loss(&self) -> f64 {
        let lost = self.transmitted.saturating_sub(self.received());
        f64::from(lost) * 100.0 / f64::from(self.transmitted.max(1))
    }

    /// Smallest, mean, largest, and standard deviation; zeros without an answer.
    fn rtt(&self) -> [f64; 4] {
        let times = || self.replies.iter().map(|(_, ms)| *ms);
        let count = f64::from(self.received().max(1));
        let mean = times().sum::<f64>() / count;
        let variance = times().map(|ms| (ms - mean).powi(2)).sum::<f64>() / count;
        let least = times().reduce(f64::min).unwrap_or(0.0);
        [least, mean, times().fold(0.0, f64::max), variance.sqrt()]
    }

    /// The last lines, after `ms` of running.
    pub(crate) fn text(&self, ms: f64) -> String {
        let [least, mean, most, deviation] = self.rtt();
        format!(
            "\n--- ping statistics ---\n{} packets transmitted, {} received, {:.1}% packet loss, \
             time {ms:.0}ms\nrtt min/avg/max/mdev = {least:.3}/{mean:.3}/{most:.3}/{deviation:.3} \
             ms\n",
            self.transmitted,
            self.received(),
            self.loss()
        )
    }

    /// All of it, after `ms` of running.
    pub(crate) fn json(&self, ms: f64) -> Value {
        let [least, mean, most, deviation] = self.rtt();
        let replies = self.replies.iter().map(|(seq, ms)| json!({ "seq": seq, "time[ms]": ms }));
        json!({
            "transmitted": self.transmitted,
            "received": self.received(),
            "loss[%]": self.loss(),
            "time[ms]": ms,
            "rtt[ms]": { "min": least, "avg": mean, "max": most, "mdev": deviation },
            "replies": replies.collect::<Vec<_>>(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sums_up_as_ping_does() {
        let mut stat = Stat { transmitted: 4, ..Stat::default() };
        for (seq, ms) in [(1, 1.0), (2, 3.0), (4, 2.0)] {
            stat.on_reply(seq, ms);
        }
        assert_eq!(
            stat.text(3000.4),
            "\n--- ping statistics ---\n4 packets transmitted, 3 received, 25.0% packet loss, time \
             3000ms\nrtt min/avg/max/mdev = 1.000/2.000/3.000/0.816 ms\n"
        );
        assert_eq!(stat.json(1.0)["replies"][2]["seq"], 4);
    }

    #[test]
    fn nothing_came() {
        let stat = Stat { transmitted: 2, ..Stat::default() };
        assert!(stat.text(1.0).contains("100.0% packet loss"));
        assert_eq!(stat.json(1.0)["rtt[ms]"]["max"], 0.0);
    }
}
