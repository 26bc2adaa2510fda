//! What a receiver reports to its sender, and what a sender says when it has nothing left to send.
//!
//! - owns: plain values. takes: nothing. gives: the vocabulary of both halves.
//! - must not: know a packet format.

/// Bits of a ticket: they wrap.
pub(crate) const TICKET_MASK: u32 = 0x00ff_ffff;

/// Runs in a report.
pub const REPORT_RUNS: usize = 16;

/// Packets in a report of several runs.
const REPORT_PACKETS: u64 = 1 << 16;

/// What a data packet says of itself beside its sequence.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct DataMark {
    /// Tier of the report that it answers; 0 for a first transmission.
    pub tier: u8,
    /// Ticket of that report, 24 bits.
    pub ticket: u32,
}

/// Consecutive packets that are missing.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct LossRun {
    /// Sequence of the first one.
    pub start: u64,
    /// Number of them, at least 1.
    pub count: u32,
}

impl LossRun {
    /// Sequence after the last one.
    #[must_use]
    pub const fn end(&self) -> u64 {
        self.start + self.count as u64
    }
}

/// What an acknowledgement says, in sequences.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct AckFeedback {
    /// First packet that the receiver lacks.
    pub edge: u64,
    /// There is a gap at the edge, and the receiver keeps nothing beyond it.
    pub gap: bool,
    /// The packet that caused the acknowledgement.
    pub trigger: Option<u64>,
    /// What was received beyond the edge: bit 0 of word 0 is the packet after it.
    pub received: [u64; 4],
}

impl AckFeedback {
    /// Sequences that the bitmap names, lowest first.
    pub fn received(&self) -> impl Iterator<Item = u64> + '_ {
        (0..).zip(self.received).flat_map(move |(number, word)| {
            let first = self.edge + 1 + 64 * number;
            Bits(word).map(move |bit| first + bit)
        })
    }

    /// One past the highest packet that it names.
    #[must_use]
    pub fn end(&self) -> u64 {
        let word = (0..4_u32).rev().find(|&word| self.received[word as usize] != 0);
        word.map_or(self.edge, |word| {
            let bit = 63 - self.received[word as usize].leading_zeros();
            self.edge + 2 + u64::from(64 * word + bit)
        })
    }
}

/// Positions of the bits of a word, lowest first.
struct Bits(u64);

impl Iterator for Bits {
    type Item = u64;

    fn next(&mut self) -> Option<u64> {
        let bit = self.0.trailing_zeros();
        self.0 &= self.0.wrapping_sub(1);
        (bit < 64).then_some(u64::from(bit))
    }
}

/// Packets that a receiver found missing, in the order in which it expects them again.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct LossReport {
    /// Transmission that was lost: 1 is the first one.
    pub tier: u8,
    /// Number of the first run in the receiver's list of losses of this tier; of others it follows.
    pub ticket: u32,
    runs: [LossRun; REPORT_RUNS],
    len: u8,
}

impl LossReport {
    /// A report without runs.
    #[must_use]
    pub fn new(tier: u8, ticket: u32) -> Self {
        Self { tier, ticket, runs: [LossRun::default(); REPORT_RUNS], len: 0 }
    }

    /// Adds a run; `false` when the report is full, also of packets.
    pub fn push(&mut self, run: LossRun) -> bool {
        let packets: u64 = self.runs().iter().map(|run| u64::from(run.count)).sum();
        if self.len > 0 && packets + u64::from(run.count) > REPORT_PACKETS {
            return false;
        }
        let Some(slot) = self.runs.get_mut(usize::from(self.len)) else { return false };
        *slot = run;
        self.len += 1;
        true
    }

    /// The runs in order.
    #[must_use]
    pub fn runs(&self) -> &[LossRun] {
        &self.runs[..usize::from(self.len)]
    }
}

/// Sent when a sender has nothing to send and lacks acknowledgements: what was on the path before it.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct TailMark {
    /// All packets before this one were sent at least once.
    pub end: u64,
    /// All packets before this one that were reported as lost once were sent again.
    pub first_end: u64,
    /// All tickets before this one of later losses were sent again.
    pub ticket_end: u32,
    /// Smoothed round-trip time of the sender, in ns; 0 before the first sample.
    pub rtt_ns: u64,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_report_has_sixteen_runs_and_but_for_its_first_65536_packets() {
        let run = |start, count| LossRun { start, count };
        let mut report = LossReport::new(1, 0);
        assert!((0..16).all(|at| report.push(run(at, 1))));
        assert!(!report.push(run(16, 1)));
        assert_eq!((report.runs().len(), report.runs()[15]), (REPORT_RUNS, run(15, 1)));
        for (first, second, is_taken) in
            [(65_535, 1, true), (65_535, 2, false), (40_000, 40_000, false), (1 << 20, 1, false)]
        {
            let mut report = LossReport::new(1, 0);
            assert!(report.push(run(0, first)), "the first one whatever it has");
            assert_eq!(report.push(run(1 << 30, second)), is_taken, "{first} {second}");
            assert_eq!(report.runs().len(), 1 + usize::from(is_taken));
        }
    }

    #[test]
    fn an_acknowledgement_ends_behind_the_highest_packet_that_it_names() {
        let ack = |received| AckFeedback { edge: 100, gap: false, trigger: None, received };
        assert_eq!(ack([0; 4]).end(), 100);
        for (received, named) in [
            ([1, 0, 0, 0], vec![101]),
            ([0, 1, 0, 0], vec![165]),
            ([0b101, 0, 0, 1 << 63], vec![101, 103, 356]),
        ] {
            let ack = ack(received);
            assert_eq!(ack.received().collect::<Vec<_>>(), named);
            assert_eq!(ack.end(), named[named.len() - 1] + 1);
        }
    }
}
