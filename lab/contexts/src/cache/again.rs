//! Accesses of a context that is in L1, several in a row, in one step.
//!
//! *Gives*: the counters and fields that as many accesses would leave. *Must not*: read a lower tier.

use super::ContextCache;
use crate::handle::ContextHandle;
use crate::small::SmallOp;

/// Hits in a row that can change the data of a policy for a slot: the counts in its 2 bytes have at most 3 values above 0.
const HITS_THAT_COUNT: u64 = 4;

impl ContextCache {
    /// Accesses a context `times` times, with nothing between them, the last one at `now`. Whether it is in L1; if not, nothing
    /// happened. `op` reads or adds.
    pub fn hit_again(
        &mut self,
        (handle, generation): (ContextHandle, u16),
        op: SmallOp,
        (times, now): (u64, u64),
    ) -> bool {
        self.advance(now);
        let Some(slot) = self.chip.find(handle) else { return false };
        if self.chip.slot(slot).token.is_none_or(|token| token.generation() != generation) {
            return false;
        }
        let all = match op {
            SmallOp::Add(by) => SmallOp::Add(by.wrapping_mul(times)),
            SmallOp::Read | SmallOp::Store { .. } => op,
        };
        if let (Some((old, new)), _) = self.chip.slot(slot).word.update(all, || ())
            && old != new
        {
            self.mark_dirty(handle);
        }
        let weight = u16::try_from(times).unwrap_or(u16::MAX);
        self.directory.note(handle, now, self.cfg.window_ns / 2, weight);
        (0..times.min(HITS_THAT_COUNT)).for_each(|_| self.chip.on_hit(slot, 0));
        self.count_hits(handle, times);
        self.counts.wait_ns.note_times(self.cfg.l1_ns, times);
        true
    }
}
