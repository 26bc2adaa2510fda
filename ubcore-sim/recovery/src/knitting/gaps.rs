//! Gaps that are not reported, since their packets may be late: one line of the NIC for a TP that has such.
//!
//! - owns: how a gap shrinks and splits. takes: gaps, packets that are late. gives: gaps in order.
//! - must not: hold more than a line does.

use super::line::{PackedLine, RunOrder};
use super::list::each_run;
use crate::report::LossRun;

/// Gaps of a line.
const GAPS_MAX: usize = 32;

/// The gaps of a TP while they are changed.
#[derive(Clone, Copy, Debug)]
pub(super) struct Gaps {
    runs: [LossRun; GAPS_MAX],
    len: usize,
}

impl Gaps {
    /// Those of a line, which is one of the NIC and so holds what [`Gaps::to_line`] put there.
    pub(super) fn of(line: Option<&PackedLine>) -> Self {
        let mut gaps = Self { runs: [LossRun { start: 0, count: 0 }; GAPS_MAX], len: 0 };
        if let Some(line) = line {
            let read = each_run(line, RunOrder::Rising, (0, 0), |run| {
                gaps.push(run);
            });
            debug_assert!(read.is_ok(), "a line of the NIC is sound");
        }
        gaps
    }

    /// Number of gaps it has.
    pub(super) const fn len(&self) -> usize {
        self.len
    }

    pub(super) fn first(&self) -> Option<LossRun> {
        self.runs().first().copied()
    }

    pub(super) fn runs(&self) -> &[LossRun] {
        &self.runs[..self.len]
    }

    /// Appends a gap; `false` when there is no room.
    pub(super) fn push(&mut self, run: LossRun) -> bool {
        let Some(slot) = self.runs.get_mut(self.len) else { return false };
        *slot = run;
        self.len += 1;
        true
    }

    /// Removes the first gap.
    pub(super) fn pop(&mut self) {
        self.runs.copy_within(1.min(self.len)..self.len, 0);
        self.len = self.len.saturating_sub(1);
    }

    /// A packet is late; `None` if it is in no gap, or there is no room for the two parts of its gap.
    pub(super) fn take(&mut self, seq: u64) -> Option<()> {
        let at = self.runs().iter().position(|run| run.start <= seq && seq < run.end())?;
        let run = self.runs[at];
        let count = u32::try_from(seq - run.start).ok()?;
        let before = LossRun { count, ..run };
        let after = LossRun { start: seq + 1, count: run.count - count - 1 };
        match (before.count > 0, after.count > 0) {
            (true, true) => {
                if self.len == GAPS_MAX {
                    return None;
                }
                self.runs.copy_within(at + 1..self.len, at + 2);
                self.len += 1;
                (self.runs[at], self.runs[at + 1]) = (before, after);
            }
            (true, false) => self.runs[at] = before,
            (false, true) => self.runs[at] = after,
            (false, false) => {
                self.runs.copy_within(at + 1..self.len, at);
                self.len -= 1;
            }
        }
        Some(())
    }

    /// A line with all of them, if they fit.
    pub(super) fn to_line(self) -> Option<PackedLine> {
        let mut line = PackedLine::new(self.first()?.start);
        self.runs().iter().all(|run| line.push(RunOrder::Rising, *run)).then_some(line)
    }
}
