//! Repair packets: any of them makes up for one packet of its group that is missing.
//!
//! - owns: which packets a group has, how many repair packets a group needs, which groups can be repaired.
//! - takes: a range of packets, its loss. gives: marks of repair packets, the packets that they repaired.
//! - must not: compute a code: a group has a maximum-distance-separable one.
//!
//! A group has every so many-th packet of the range, so that a burst hits each group a little.

use std::ops::Range;

use udma_abi::Nanos;

use crate::ledger::SendLedger;
use crate::report::LossRun;

/// Packets of a group that may still be lost.
const GROUP_PACKETS: u64 = 200;
/// Most groups of a range.
const GROUPS_MAX: u64 = 1 << 16;
/// Chance that a range is not repaired whole.
const FAILURE: f64 = 1e-3;
/// Packets whose loss the loss that was expected stands for.
const PRIOR_PACKETS: f64 = 4096.0;

/// What a repair packet says of itself.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct RepairMark {
    /// First packet of the range.
    pub start: u64,
    /// Packet after the range.
    pub end: u64,
    /// Groups of the range, at least 1.
    pub groups: u32,
    /// Group that it repairs.
    pub group: u32,
}

impl RepairMark {
    /// Group of a packet of the range.
    fn group_of(&self, seq: u64) -> usize {
        usize::try_from((seq - self.start) % u64::from(self.groups.max(1))).unwrap_or(0)
    }

    /// Packets of a run that lie in the range.
    fn part_of(&self, run: &LossRun) -> Range<u64> {
        let start = run.start.max(self.start).min(run.end());
        start..run.end().min(self.end).max(start)
    }

    /// Whether it makes sense to a receiver.
    const fn is_sound(&self) -> bool {
        self.start < self.end && self.group < self.groups && self.groups as u64 <= GROUPS_MAX
    }
}

/// The sender's side: what is protected, and the repair packets that are to be sent.
#[derive(Debug, Default)]
pub(crate) struct TailCode {
    /// Loss that was expected before any was measured; none: nothing is protected.
    expected: Option<f64>,
    /// Packets that were reported as lost once, and the end of those.
    lost: u64,
    covered: u64,
    /// All packets before this one were considered.
    considered: u64,
    /// All packets before this one are protected.
    protected: u64,
    /// Repair packets of each group, and the next one.
    sending: Option<(RepairMark, u32)>,
}

impl TailCode {
    /// Protects what is sent last from now on.
    pub(crate) const fn expect(&mut self, loss: f64) {
        self.expected = Some(loss);
    }

    /// Packets before this one come from repair packets, or are reported again after these.
    pub(crate) const fn protected(&self) -> u64 {
        self.protected
    }

    /// Packets of the run before this one are left to repair packets. A run that is reported once more is not: its
    /// receiver has no other way.
    pub(crate) const fn held_end(&self, run: &LossRun) -> u64 {
        if run.start >= self.covered { self.protected } else { 0 }
    }

    /// These packets were reported as lost once.
    pub(crate) fn on_lost(&mut self, run: &LossRun) {
        self.lost += u64::from(run.count);
        self.covered = self.covered.max(run.end());
    }

    /// The next repair packet, when nothing else is to be sent and no more is queued.
    pub(crate) fn poll(
        &mut self,
        now: Nanos,
        rtt: Option<Nanos>,
        ledger: &SendLedger,
    ) -> Option<RepairMark> {
        let expected = self.expected?;
        let is_quiet = !ledger.has_sendable() && ledger.queued() == 0 && ledger.room() > 0;
        if self.sending.is_none() && is_quiet && self.considered < ledger.unsent() {
            self.begin(now, rtt, expected, ledger);
        }
        let (mark, left) = self.sending?;
        let next = RepairMark { group: mark.group + 1, ..mark };
        self.sending = if next.group < next.groups {
            Some((next, left))
        } else {
            (left > 1).then_some((RepairMark { group: 0, ..mark }, left - 1))
        };
        Some(mark)
    }

    fn begin(&mut self, now: Nanos, rtt: Option<Nanos>, expected: f64, ledger: &SendLedger) {
        let (start, end) = (self.considered.max(ledger.una()), ledger.unsent());
        self.considered = end;
        // What was sent longer ago than a round trip was received or reported.
        let is_recent = |seq: &u64| {
            rtt.is_none_or(|rtt| ledger.slot(*seq).sent_at().saturating_add(rtt + rtt / 16) > now)
        };
        let recent = (start..end).filter(is_recent).count() as u64;
        let covered = self.covered.max(ledger.una()) as f64;
        let loss = (expected * PRIOR_PACKETS + self.lost as f64) / (PRIOR_PACKETS + covered);
        let groups = recent.div_ceil(GROUP_PACKETS).clamp(1, GROUPS_MAX);
        let copies = repair_packets(recent as f64 / groups as f64, loss, FAILURE / groups as f64);
        if let Ok(groups) = u32::try_from(groups)
            && copies > 0
        {
            self.protected = end;
            self.sending = Some((RepairMark { start, end, groups, group: 0 }, copies));
        }
    }
}

/// Repair packets for a group of `packets` of which a part `loss` is lost, so that the chance of a failure is at most
/// `failure`; at most a part that grows with the loss, and none if that part would not do for the mean.
fn repair_packets(packets: f64, loss: f64, failure: f64) -> u32 {
    let most = packets * (0.046 + 2.3 * loss).min(0.3);
    let mean = packets * loss;
    let mut count = 0;
    while f64::from(count) + 1.0 <= most
        && chance_of_more(count, mean + loss * f64::from(count)) > failure
    {
        count += 1;
    }
    if f64::from(count) < mean { 0 } else { count }
}

/// Chance that a Poisson number of that mean is above `count`.
fn chance_of_more(count: u32, mean: f64) -> f64 {
    let mut term = (-mean).exp();
    let mut sum = term;
    for number in 1..=count {
        term *= mean / f64::from(number);
        sum += term;
    }
    (1.0 - sum).max(0.0)
}

/// The receiver's side: repair packets of the last range.
#[derive(Debug, Default)]
pub(crate) struct RepairCounts {
    mark: Option<RepairMark>,
    /// Repair packets by group.
    counts: Vec<u32>,
}

impl RepairCounts {
    /// A repair packet arrived.
    pub(crate) fn on_repair(&mut self, mark: &RepairMark) {
        if !mark.is_sound() {
            return;
        }
        let range = RepairMark { group: 0, ..*mark };
        if self.mark != Some(range) {
            self.mark = Some(range);
            self.counts.clear();
            self.counts.resize(mark.groups as usize, 0);
        }
        self.counts[mark.group as usize] += 1;
    }

    /// End of the range that repair packets came for.
    pub(crate) fn end(&self) -> Option<u64> {
        self.mark.map(|mark| mark.end)
    }

    /// Of these missing packets, those that come from repair packets and the others; once for each range.
    pub(crate) fn repair(&mut self, missing: &[LossRun]) -> Option<(Vec<LossRun>, Vec<LossRun>)> {
        let mark = self.mark.take()?;
        let mut lacks = vec![0_u32; self.counts.len()];
        for seq in missing.iter().flat_map(|run| mark.part_of(run)) {
            lacks[mark.group_of(seq)] += 1;
        }
        let is_repaired = |seq: u64| {
            let group = mark.group_of(seq);
            lacks[group] <= self.counts[group]
        };
        let (mut repaired, mut left) = (Vec::new(), Vec::new());
        for run in missing {
            let part = mark.part_of(run);
            append(&mut left, run.start..part.start);
            for seq in part.clone() {
                append(if is_repaired(seq) { &mut repaired } else { &mut left }, seq..seq + 1);
            }
            append(&mut left, part.end..run.end());
        }
        (!repaired.is_empty()).then_some((repaired, left))
    }
}

/// Adds packets to runs, if there are any.
fn append(runs: &mut Vec<LossRun>, packets: Range<u64>) {
    let Some(count) = packets.end.checked_sub(packets.start).filter(|count| *count > 0) else {
        return;
    };
    let count = u32::try_from(count).unwrap_or(u32::MAX);
    match runs.last_mut() {
        Some(last) if last.end() == packets.start => last.count += count,
        _ => runs.push(LossRun { start: packets.start, count }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn as_many_packets_come_back_as_repair_packets_came_for_their_group() {
        let mut counts = RepairCounts::default();
        for (group, times) in [(0, 2), (1, 1), (2, 1)] {
            let mark = RepairMark { start: 100, end: 200, groups: 3, group };
            (0..times).for_each(|_| counts.on_repair(&mark));
        }
        let run = |start, count| LossRun { start, count };
        // Groups 0, 1, 2, 0; 2, for which one is not enough; beyond the range.
        let missing = [run(99, 1), run(100, 4), run(198, 1), run(205, 2)];
        let (repaired, left) = counts.repair(&missing).expect("something came back");
        assert_eq!(repaired, [run(100, 2), run(103, 1)]);
        assert_eq!(left, [run(99, 1), run(102, 1), run(198, 1), run(205, 2)]);
        assert_eq!(counts.repair(&missing), None, "once");
    }

    #[test]
    fn a_mark_that_makes_no_sense_is_ignored() {
        let mut counts = RepairCounts::default();
        for (start, end, groups, group) in
            [(5, 5, 1, 0), (5, 4, 1, 0), (0, 9, 0, 0), (0, 9, 3, 3), (0, 9, u32::MAX, 0)]
        {
            counts.on_repair(&RepairMark { start, end, groups, group });
            assert_eq!(counts.end(), None);
        }
    }

    #[test]
    fn repair_packets_cost_what_the_loss_needs() {
        let of_200 = |loss| repair_packets(200.0, loss, 1e-5);
        assert_eq!(of_200(0.0), 0);
        assert!((8..=13).contains(&of_200(0.01)), "{}", of_200(0.01));
        assert!((25..=32).contains(&of_200(0.05)), "{}", of_200(0.05));
        assert_eq!(
            repair_packets(10.0, 0.01, 1e-5),
            0,
            "a short message costs no more than a part"
        );
    }
}
