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

/// Most packets of a group: with its repair packets no more than a code over bytes has symbols.
pub const GROUP_PACKETS: u64 = 200;
/// Most repair packets of a group.
pub const GROUP_REPAIRS: u8 = 56;
/// Least round-trip time, in ns, for which a sender protects what it has learnt that the path loses: a shorter one
/// passes sooner than repair packets are computed.
pub const REPAIR_RTT_MIN: Nanos = 1_000_000;
/// Most groups of a range.
const GROUPS_MAX: u64 = 1 << 16;
/// Chance that a range is not repaired whole.
const FAILURE: f64 = 1e-3;
/// Packets whose loss the loss that was expected stands for.
const PRIOR_PACKETS: f64 = 4096.0;
/// The same where none was expected.
const DOUBT_PACKETS: f64 = 256.0;
/// Packets after which what was measured counts half.
const MEASURED_PACKETS: u64 = 1 << 17;

const _: () = assert!(GROUP_PACKETS + GROUP_REPAIRS as u64 <= 256);

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
    /// Its number among the repair packets of that group, below [`GROUP_REPAIRS`].
    pub number: u8,
}

impl RepairMark {
    /// Group of a packet of the range.
    fn group_of(&self, seq: u64) -> usize {
        usize::try_from((seq - self.start) % u64::from(self.groups.max(1))).unwrap_or(0)
    }

    /// Packets of its group from `begin` on, each with its number in the group.
    pub fn members(&self, begin: u64) -> impl Iterator<Item = (u8, u64)> + use<> {
        let first = self.start + u64::from(self.group);
        let all = (first..self.end).step_by(self.groups.max(1) as usize);
        (0..=u8::MAX).zip(all).filter(move |(_, seq)| *seq >= begin)
    }

    /// The mark of its range, the same for all of it.
    #[must_use]
    pub const fn range(&self) -> Self {
        Self { group: 0, number: 0, ..*self }
    }

    /// Packets of a run that lie in the range.
    fn part_of(&self, run: &LossRun) -> Range<u64> {
        let start = run.start.max(self.start).min(run.end());
        start..run.end().min(self.end).max(start)
    }

    /// Whether it makes sense to a receiver.
    #[must_use]
    pub const fn is_sound(&self) -> bool {
        self.start < self.end
            && self.group < self.groups
            && self.groups as u64 <= GROUPS_MAX
            && (self.end - self.start).div_ceil(self.groups as u64) <= GROUP_PACKETS
            && self.number < GROUP_REPAIRS
    }
}

/// The sender's side: what is protected, and the repair packets that are to be sent.
#[derive(Debug, Default)]
pub(crate) struct TailCode {
    /// Loss that was expected before any was measured; none: nothing is protected.
    expected: Option<f64>,
    /// Packets that were reported as lost once, the end of those, and from where on they are counted.
    lost: u64,
    covered: u64,
    counted: u64,
    /// All packets before this one were considered.
    considered: u64,
    /// All packets before this one are protected.
    protected: u64,
    /// The next repair packet, and how many each group has.
    sending: Option<(RepairMark, u8)>,
}

impl TailCode {
    /// Protects what is sent last from now on.
    pub(crate) const fn expect(&mut self, loss: f64) {
        self.expected = Some(loss);
    }

    /// Whether the path, of which this is the least round-trip time, was said to lose packets, or does, and is long.
    pub(crate) fn pays(&self, rtt_min: Option<Nanos>) -> bool {
        let is_long = rtt_min.is_some_and(|rtt| rtt >= REPAIR_RTT_MIN);
        self.expected.is_some_and(|loss| loss > 0.0) || (is_long && self.lost > 0)
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

    /// The next repair packet, when nothing else is to be sent and no more is queued; the round-trip time is the smoothed one
    /// and the least so far.
    pub(crate) fn poll(
        &mut self,
        now: Nanos,
        (rtt, rtt_min): (Option<Nanos>, Option<Nanos>),
        ledger: &SendLedger,
    ) -> Option<RepairMark> {
        let expected = self.expected?;
        let is_quiet = !ledger.has_sendable() && ledger.queued() == 0 && ledger.room() > 0;
        let is_new = self.considered < ledger.unsent();
        if self.sending.is_none() && is_quiet && is_new {
            if self.pays(rtt_min) {
                self.begin(now, rtt, expected, ledger);
            } else {
                // Reports of these come before repair packets would.
                self.considered = ledger.unsent();
            }
        }
        let (mark, count) = self.sending?;
        let next = RepairMark { group: mark.group + 1, ..mark };
        self.sending = if next.group < next.groups {
            Some((next, count))
        } else {
            let next = RepairMark { group: 0, number: mark.number + 1, ..mark };
            (next.number < count).then_some((next, count))
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
        let recent = (start..end).filter(is_recent).count() as f64;
        let loss = self.loss(expected, ledger.una());
        let groups = (end - start).div_ceil(GROUP_PACKETS).max(1);
        let count = repair_packets(recent / groups as f64, loss, FAILURE / groups as f64);
        if let Some(groups) = u32::try_from(groups).ok().filter(|_| groups <= GROUPS_MAX)
            && count > 0
        {
            self.protected = end;
            self.sending = Some((RepairMark { start, end, groups, group: 0, number: 0 }, count));
        }
    }

    /// Part of the packets that the path loses, as far as is known.
    fn loss(&mut self, expected: f64, una: u64) -> f64 {
        self.covered = self.covered.max(una);
        let measured = self.covered.saturating_sub(self.counted);
        if measured > MEASURED_PACKETS {
            self.lost /= 2;
            self.counted += measured / 2;
        }
        let measured = self.covered.saturating_sub(self.counted) as f64;
        let prior = if expected > 0.0 { PRIOR_PACKETS } else { DOUBT_PACKETS };
        (expected * prior + self.lost as f64) / (prior + measured)
    }
}

/// Repair packets for a group of `packets` of which a part `loss` is lost, so that the chance of a failure is at most
/// `failure`; at most a part that grows with the loss, and none if that part would not do for the mean.
fn repair_packets(packets: f64, loss: f64, failure: f64) -> u8 {
    let most = packets * (0.046 + 2.3 * loss).min(0.3);
    let mean = packets * loss;
    let mut count = 0;
    while count < GROUP_REPAIRS
        && f64::from(count) + 1.0 <= most
        && chance_of_more(count, mean + loss * f64::from(count)) > failure
    {
        count += 1;
    }
    if f64::from(count) < mean { 0 } else { count }
}

/// Chance that a Poisson number of that mean is above `count`.
fn chance_of_more(count: u8, mean: f64) -> f64 {
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
    /// Numbers of the repair packets by group, a bit for each.
    numbers: Vec<u64>,
}

impl RepairCounts {
    /// A repair packet arrived.
    pub(crate) fn on_repair(&mut self, mark: &RepairMark) {
        if !mark.is_sound() {
            return;
        }
        let range = mark.range();
        if self.mark != Some(range) {
            self.mark = Some(range);
            self.numbers.clear();
            self.numbers.resize(mark.groups as usize, 0);
        }
        // A path may double a packet.
        self.numbers[mark.group as usize] |= 1 << mark.number;
    }

    /// End of the range that repair packets came for.
    pub(crate) fn end(&self) -> Option<u64> {
        self.mark.map(|mark| mark.end)
    }

    /// Of these missing packets, those that come from repair packets and the others; once for each range.
    pub(crate) fn repair(&mut self, missing: &[LossRun]) -> Option<(Vec<LossRun>, Vec<LossRun>)> {
        let mark = self.mark.take()?;
        let mut lacks = vec![0_u32; self.numbers.len()];
        for seq in missing.iter().flat_map(|run| mark.part_of(run)) {
            lacks[mark.group_of(seq)] += 1;
        }
        let is_repaired = |seq: u64| {
            let group = mark.group_of(seq);
            lacks[group] <= self.numbers[group].count_ones()
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
        // The path doubled the one of group 2.
        for (group, number) in [(0, 3), (0, 55), (1, 0), (2, 1), (2, 1)] {
            counts.on_repair(&RepairMark { start: 100, end: 200, groups: 3, group, number });
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
        for (start, end, groups, group, number) in [
            (5, 5, 1, 0, 0),
            (5, 4, 1, 0, 0),
            (0, 9, 0, 0, 0),
            (0, 9, 3, 3, 0),
            (0, 9, u32::MAX, 0, 0),
            (0, 9, 1, 0, GROUP_REPAIRS),
            (0, 2 * GROUP_PACKETS + 1, 2, 0, 0),
        ] {
            counts.on_repair(&RepairMark { start, end, groups, group, number });
            assert_eq!(counts.end(), None);
        }
    }

    #[test]
    fn a_group_has_every_so_many_th_packet_from_where_it_is_asked_for() {
        let mark = RepairMark { start: 10, end: 21, groups: 4, group: 1, number: 0 };
        assert_eq!(mark.members(0).collect::<Vec<_>>(), [(0, 11), (1, 15), (2, 19)]);
        assert_eq!(mark.members(12).collect::<Vec<_>>(), [(1, 15), (2, 19)]);
        let members = (0..4).flat_map(|group| RepairMark { group, ..mark }.members(10));
        let mut all: Vec<u64> = members.map(|(_, seq)| seq).collect();
        all.sort_unstable();
        assert_eq!(all, (10..21).collect::<Vec<_>>());
    }

    #[test]
    fn what_was_learnt_is_forgotten() {
        let mut code = TailCode { lost: 1000, covered: 100_000, ..TailCode::default() };
        assert!((code.loss(0.0, 0) - 0.01).abs() < 1e-4);
        for una in (1..=10).map(|round| round * 2 * MEASURED_PACKETS) {
            let _ = code.loss(0.0, una);
        }
        assert!(code.loss(0.0, 0) < 1e-5);
        assert!(code.pays(Some(REPAIR_RTT_MIN)) || code.lost == 0);
        assert!(!code.pays(Some(REPAIR_RTT_MIN - 1)) && !code.pays(None));
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

    /// A ledger with so many packets sent, all at this time.
    fn sent(ledger: &mut SendLedger, count: u64, at: Nanos) {
        for _ in 0..count {
            ledger.push();
            ledger.send_next(at).expect("a place");
        }
    }

    fn marks(code: &mut TailCode, now: Nanos, rtt: Nanos, ledger: &SendLedger) -> Vec<RepairMark> {
        std::iter::from_fn(|| code.poll(now, (Some(rtt), Some(rtt)), ledger)).take(500).collect()
    }

    /// Of 200 packets 10 are lost in the mean, and 24 repair packets 1.2 more: a Poisson number of mean 11.2 is above 24 with
    /// a chance of 0.0002, above 23 with one of 0.0006, where 0.0005 are allowed to each of two groups.
    #[test]
    fn each_group_gets_as_many_repair_packets_as_it_needs_and_none_more() {
        let (mut code, mut ledger) = (TailCode::default(), SendLedger::new(1000));
        code.expect(0.05);
        sent(&mut ledger, 400, 0);
        let found = marks(&mut code, 0, 1_000_000, &ledger);
        let numbers: Vec<(u8, u32)> = found.iter().map(|mark| (mark.number, mark.group)).collect();
        let wanted: Vec<(u8, u32)> =
            (0..24).flat_map(|number| [(number, 0), (number, 1)]).collect();
        assert_eq!(numbers, wanted);
        assert!(found.iter().all(|mark| (mark.start, mark.end, mark.groups) == (0, 400, 2)));
        assert_eq!(code.protected(), 400);
        // Of the next packets alone: 40 at 10 % would be 11, at 5 % by a part of 16.1 % at most six.
        sent(&mut ledger, 40, 0);
        let found = marks(&mut code, 0, 1_000_000, &ledger);
        let is_next = |mark: &RepairMark| (mark.start, mark.end, mark.groups) == (400, 440, 1);
        assert!(found.len() == 6 && found.iter().all(is_next), "{found:?}");
    }

    #[test]
    fn packets_of_more_than_a_round_trip_ago_need_none() {
        for (age, is_protected) in [(1_062_499, true), (1_062_500, false), (3_000_000, false)] {
            let (mut code, mut ledger) = (TailCode::default(), SendLedger::new(1000));
            code.expect(0.05);
            sent(&mut ledger, 100, 5_000_000);
            let found = marks(&mut code, 5_000_000 + age, 1_000_000, &ledger);
            assert_eq!(!found.is_empty(), is_protected, "{age} ns ago");
        }
    }

    #[test]
    fn more_losses_than_repair_packets_could_make_up_for_get_none() {
        // 56 at most, where 100 are lost.
        assert_eq!(repair_packets(200.0, 0.5, 1e-3), 0);
        // Of 20 packets one is lost in the mean: by a part of 16.1 % at most three.
        assert_eq!(repair_packets(20.0, 0.05, 1e-9), 3);
        assert_eq!(repair_packets(20.0, 0.05, 1.0), 0, "none is needed, one is lost");
    }

    #[test]
    fn a_run_is_left_to_the_code_once() {
        let mut code = TailCode { protected: 40, ..TailCode::default() };
        let run = |start, count| LossRun { start, count };
        assert_eq!(code.held_end(&run(3, 2)), 40);
        code.on_lost(&run(3, 2));
        // The next one begins where that one ended: it is news.
        assert_eq!((code.held_end(&run(5, 1)), code.held_end(&run(4, 1))), (40, 0));
        assert_eq!(code.held_end(&run(3, 2)), 0, "the receiver has no other way");
    }

    #[test]
    fn the_loss_is_what_was_expected_and_what_was_counted() {
        // 41 of 4,096 expected and 16 of 256 counted; without an expectation doubt stands for 256 packets without any.
        let mut code = TailCode { lost: 16, covered: 256, ..TailCode::default() };
        assert!((code.loss(0.01, 0) - (40.96 + 16.0) / 4352.0).abs() < 1e-9);
        assert!((code.loss(0.0, 0) - 16.0 / 512.0).abs() < 1e-9);
        // What was acknowledged counts as covered, without any report.
        let mut code = TailCode::default();
        assert!((code.loss(0.05, 4096) - 0.025).abs() < 1e-9);
    }
}
