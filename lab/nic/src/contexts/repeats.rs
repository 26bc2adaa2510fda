//! Requests like an earlier one whose contexts all stay on the chip: counted, and given to the model later in one step.
//!
//! *Owns*: such requests, by what they look up. *Takes*: requests. *Gives*: how often each came. *Must not*: outlive a change
//! of what is on the chip.

use super::{KnownContext, LookedUp, PAGE_SHIFT};

/// Things that a usual request looks up at most: queue, TP, JFC and five pieces.
const USUAL: usize = 8;
/// Requests that are remembered, a power of two.
const REMEMBERED: usize = 256;
/// Longest time of the model in ns that is not given to it: an interval of its maintenance.
const KEPT_NS: u64 = 50_000;

/// What a request looks up, addresses as pages.
#[derive(Debug)]
pub(super) struct RequestLookups {
    first: [LookedUp; USUAL],
    len: usize,
    /// What does not fit.
    rest: Vec<LookedUp>,
}

impl RequestLookups {
    #[inline]
    pub(super) fn of(all: &[LookedUp]) -> Self {
        let mut first = [LookedUp::Queue(0); USUAL];
        let (usual, rest) = all.split_at(all.len().min(USUAL));
        for (place, looked_up) in first.iter_mut().zip(usual) {
            *place = match *looked_up {
                LookedUp::Segment { token_id, va } => {
                    LookedUp::Segment { token_id, va: va >> PAGE_SHIFT << PAGE_SHIFT }
                }
                LookedUp::Queue(_) | LookedUp::Jfc(_) | LookedUp::Tp(_) => *looked_up,
            };
        }
        Self { first, len: usual.len(), rest: rest.to_vec() }
    }

    pub(super) fn all(&self) -> impl Iterator<Item = LookedUp> + '_ {
        self.usual().iter().chain(&self.rest).copied()
    }

    #[inline]
    fn usual(&self) -> &[LookedUp] {
        &self.first[..self.len]
    }

    /// Where it is remembered: by its queue, a receive beside a send.
    #[inline]
    fn place(&self) -> usize {
        let number = |looked_up: &LookedUp| match *looked_up {
            LookedUp::Queue(number) => number * 2,
            LookedUp::Tp(_) => 1,
            LookedUp::Jfc(_) => 0,
            LookedUp::Segment { token_id, .. } => token_id >> 7,
        };
        let sum: u32 = self.usual().iter().take(2).map(number).fold(0, u32::wrapping_add);
        sum as usize % REMEMBERED
    }
}

#[derive(Clone, Debug, Default)]
struct Remembered {
    request: Vec<LookedUp>,
    contexts: Vec<KnownContext>,
    /// How often it came since the model was given its count.
    times: u64,
}

/// Requests that are remembered.
#[derive(Debug, Default)]
pub(super) struct Repeats {
    of: Vec<Remembered>,
    /// Places of those that came.
    came: Vec<usize>,
    drained_at: u64,
}

impl Repeats {
    /// Counts a request that is remembered. Whether it is.
    #[inline]
    pub(super) fn count(&mut self, request: &RequestLookups) -> bool {
        let place = request.place();
        let Some(known) = self.of.get_mut(place) else { return false };
        if known.request.is_empty() || known.request != request.usual() || !request.rest.is_empty()
        {
            return false;
        }
        if known.times == 0 {
            self.came.push(place);
        }
        known.times += 1;
        true
    }

    /// Whether it is time to give the model what was counted.
    #[inline]
    pub(super) fn are_due(&self, now: u64) -> bool {
        now >= self.drained_at + KEPT_NS
    }

    /// Gives each context of what was counted to `hit`, with the number of times.
    pub(super) fn drain(&mut self, now: u64, mut hit: impl FnMut(KnownContext, u64)) {
        self.drained_at = now;
        for place in self.came.drain(..) {
            let Some(known) = self.of.get_mut(place) else { continue };
            let times = std::mem::take(&mut known.times);
            known.contexts.iter().for_each(|context| hit(*context, times));
        }
    }

    /// A request found all of its contexts on the chip; everything that was counted was drained.
    pub(super) fn learn(&mut self, request: &RequestLookups, contexts: Vec<KnownContext>) {
        if contexts.is_empty() || !request.rest.is_empty() {
            return;
        }
        self.of.resize(REMEMBERED, Remembered::default());
        let request_of = request.usual().to_vec();
        self.of[request.place()] = Remembered { request: request_of, contexts, times: 0 };
    }

    /// What is on the chip changed; everything that was counted was drained.
    pub(super) fn forget(&mut self) {
        self.of.iter_mut().for_each(|known| known.request.clear());
    }
}
