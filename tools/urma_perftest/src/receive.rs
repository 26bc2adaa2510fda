//! The receiving side of SEND.
//!
//! *Owns*: which receives are posted, how many messages came from each peer, their verification.
//! *Takes*: completions. *Gives*: counts. *Must not*: wait.

use urma::{Completion, CrStatus, LocalSge, PostReason, RecvWr};

use crate::{
    error::RunError,
    layout::{GUARD, LaneWord, Layout},
    pattern::{self, Mismatch, Pattern},
    plan::{Test, TestMode, Verb},
    requests,
    session::{PostedQueues, SessionObjects},
};

/// Receives messages into a fixed set of places.
#[derive(Debug)]
pub(crate) struct Receiver<'a> {
    pieces: &'a [LocalSge<'a>],
    /// Consumed receives, to be posted again; of one queue at a time.
    spent: Vec<RecvWr<'a>>,
    spent_lane: usize,
    /// Messages posted again by one call.
    post_list: usize,
    /// Receives of one queue.
    depth: usize,
    /// Queue numbers of the peer's lanes.
    sources: &'a [u32],
    /// Messages that came, per lane of the peer.
    counts: Vec<u64>,
    check: Option<Check<'a>>,
    credit: Option<Tell<'a>>,
    is_send: bool,
}

/// Flow control: this side reports to the peer how much it received.
#[derive(Debug)]
struct Tell<'a> {
    objects: &'a SessionObjects,
    test: &'a Test,
    layout: Layout,
    pieces: &'a [LocalSge<'a>],
    /// Receives announced to the peer, per lane.
    announced: Vec<u64>,
    notify: u64,
    tag: u64,
}

/// A credit word is of one size of the test only: sizes are distinguished by its upper bits.
const TAG_SHIFT: u32 = 48;

/// Messages that the peer received, by its credit word in size number `index`; 0 when the word is
/// of an earlier size.
pub(crate) fn credited(word: u64, index: u64) -> u64 {
    if word >> TAG_SHIFT == index + 1 { word & ((1 << TAG_SHIFT) - 1) } else { 0 }
}

/// Whether `count` messages beyond those that were posted stay within the receives that the peer keeps posted: it has reported
/// `known`, at most what was posted, whatever the word of the peer says.
pub(crate) const fn is_granted((posted, count): (u64, u64), known: u64, threshold: u64) -> bool {
    let known = if known < posted { known } else { posted };
    posted + count - known <= threshold
}

impl Tell<'_> {
    /// Announces the posted receives, lane by lane, where enough are new. A queue without room gets
    /// them the next time.
    fn tell(&mut self, ends: &mut PostedQueues, counts: &[u64]) -> Result<(), RunError> {
        for (lane, count) in counts.iter().enumerate() {
            let (Some(announced), Some(piece)) =
                (self.announced.get_mut(lane), self.pieces.get(lane..=lane))
            else {
                continue;
            };
            if count - *announced < self.notify {
                continue;
            }
            let at = self.layout.word(lane, LaneWord::CreditOut);
            let at = usize::try_from(at).unwrap_or(usize::MAX);
            self.objects.region().store_u64(at, self.tag << TAG_SHIFT | count)?;
            let wr = requests::credit(self.objects, self.test, &self.layout, (lane, piece));
            let Some(queue) = ends.lanes.get_mut(lane) else { continue };
            match queue.post(&[wr]) {
                Ok(()) => *announced = *count,
                Err(error) if error.reason == PostReason::Full => {}
                Err(error) => return Err(error.into()),
            }
        }
        Ok(())
    }
}

/// Parameters that the verification of a message needs.
#[derive(Clone, Copy, Debug)]
struct Check<'a> {
    objects: &'a SessionObjects,
    seed: u64,
    has_numbers: bool,
}

impl<'a> Receiver<'a> {
    /// A receiver over `pieces`; nothing is posted yet.
    pub(crate) fn new(
        objects: &'a SessionObjects,
        test: &'a Test,
        pieces: &'a [LocalSge<'a>],
        sources: &'a [u32],
    ) -> Self {
        let has_numbers = test.mode == TestMode::Um;
        let check = Check { objects, seed: test.seed, has_numbers };
        let post_list = usize::try_from(test.recv_post_list).unwrap_or(1).max(1);
        Self {
            pieces,
            spent: Vec::with_capacity(post_list),
            spent_lane: 0,
            post_list,
            depth: usize::try_from(test.jfr_depth).unwrap_or(1).max(1),
            sources,
            counts: vec![0; sources.len()],
            check: test.verify.then_some(check),
            credit: None,
            is_send: test.command.verb() == Verb::Send,
        }
    }

    /// Tells the peer of what is received in size number `index`, from `pieces`.
    pub(crate) fn with_credit(
        mut self,
        (objects, test): (&'a SessionObjects, &'a Test),
        pieces: &'a [LocalSge<'a>],
        layout: Layout,
        index: u64,
    ) -> Self {
        self.credit = test.credit.map(|credit| Tell {
            objects,
            test,
            layout,
            pieces,
            announced: vec![0; pieces.len()],
            notify: u64::from(credit.notify),
            tag: index + 1,
        });
        self
    }

    /// Posts all receives, the first time.
    pub(crate) fn post_all(&mut self, ends: &mut PostedQueues) -> Result<(), RunError> {
        for index in 0..self.pieces.len() {
            self.renew(index)?;
            let wr = requests::receive(self.pieces, index);
            ends.post_recv(index / self.depth, &[wr])?;
        }
        Ok(())
    }

    /// Messages that came since the start of this size.
    pub(crate) fn total(&self) -> u64 {
        self.counts.iter().sum()
    }

    /// Takes what came, checks it, posts its receives again. Returns how many came.
    #[inline]
    pub(crate) fn poll(&mut self, ends: &mut PostedQueues, size: u64) -> Result<usize, RunError> {
        let count = ends.receives.poll()?.len();
        for at in 0..count {
            // Looked at where it lies: a copy of what was just stored would wait for its parts.
            let Some(completion) = ends.receives.taken(at) else { break };
            if let Some((lane, index)) = self.check(completion, size)? {
                self.count(ends, lane, index)?;
            }
        }
        if !self.spent.is_empty() {
            self.flush(ends)?;
        }
        if let Some(credit) = &mut self.credit {
            credit.tell(ends, &self.counts)?;
        }
        Ok(count)
    }

    /// The lane and the place of a message that is right; `None`: there is none.
    #[inline]
    fn check(
        &self,
        completion: &Completion,
        size: u64,
    ) -> Result<Option<(usize, usize)>, RunError> {
        if completion.status != CrStatus::Success {
            // Counted by the channel; the receive is gone with its queue.
            return Ok(None);
        }
        if self.is_send && u64::from(completion.len) != size {
            let why = format!("a message of {} bytes came, {size} expected", completion.len);
            return Err(RunError::Request(why));
        }
        let lane = match self.sources {
            [_] => 0,
            sources => sources.iter().position(|id| *id == completion.remote.id).unwrap_or(0),
        };
        let index = usize::try_from(completion.user_ctx).unwrap_or(usize::MAX);
        self.verify(completion, lane, index, size)?;
        Ok(Some((lane, index)))
    }

    /// Counts a message of `lane`, and posts its receive again, at once or with others.
    #[inline]
    fn count(
        &mut self,
        ends: &mut PostedQueues,
        lane: usize,
        index: usize,
    ) -> Result<(), RunError> {
        self.counts[lane] += 1;
        let queue = index / self.depth;
        if queue != self.spent_lane {
            self.flush(ends)?;
            self.spent_lane = queue;
        }
        self.spent.push(requests::receive(self.pieces, index));
        if self.spent.len() >= self.post_list { self.flush(ends) } else { Ok(()) }
    }

    fn flush(&mut self, ends: &mut PostedQueues) -> Result<(), RunError> {
        ends.post_recv(self.spent_lane, &self.spent)?;
        self.spent.clear();
        Ok(())
    }

    fn verify(
        &self,
        completion: &Completion,
        lane: usize,
        index: usize,
        size: u64,
    ) -> Result<(), RunError> {
        let Some(check) = &self.check else { return Ok(()) };
        let number = if check.has_numbers { completion.immediate() } else { None };
        let iteration = number.unwrap_or_else(|| message_number(lane, self.counts[lane]));
        let (at, len) = (self.place(check, index), usize::try_from(size).unwrap_or(0));
        let pattern = Pattern { seed: check.seed, iteration };
        let region = check.objects.region();
        if !completion.payload.bytes().is_empty() {
            // It came in the completion itself.
            region.write(at, completion.payload.bytes())?;
        }
        pattern.check(region, at, len)?;
        pattern.check_beyond(region, at + len, guard_len())?;
        self.renew(index)
    }

    /// Puts poison into the place of a receive.
    fn renew(&self, index: usize) -> Result<(), RunError> {
        let (Some(check), Some(piece)) = (&self.check, self.pieces.get(index)) else {
            return Ok(());
        };
        let len = usize::try_from(piece.len).unwrap_or(0) + guard_len();
        pattern::poison(check.objects.region(), self.place(check, index), len)
            .map_err(|error| Mismatch::Range(error).into())
    }

    fn place(&self, check: &Check<'_>, index: usize) -> usize {
        let addr = self.pieces.get(index).map_or(0, |piece| piece.addr);
        usize::try_from(addr - check.objects.segment(0).va()).unwrap_or(usize::MAX)
    }
}

/// The number under which message `index` of `lane` is verified; below 2^48.
pub(crate) fn message_number(lane: usize, index: u64) -> u64 {
    (lane as u64) << 32 | index & 0xffff_ffff
}

/// Poisoned bytes behind a message.
pub(crate) fn guard_len() -> usize {
    usize::try_from(GUARD).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_credit_word_counts_in_its_size_alone() {
        assert_eq!(credited(3 << 48 | 77, 2), 77);
        assert_eq!([1, 3].map(|index| credited(3 << 48 | 77, index)), [0, 0]);
        assert_eq!(credited(1 << 48 | ((1 << 48) - 1), 0), (1 << 48) - 1);
        assert_eq!(credited(0, 0), 0, "nothing was written yet");
    }

    #[test]
    fn messages_stay_within_what_the_peer_keeps_posted() {
        assert_eq!([7, 8, 9].map(|count| is_granted((10, count), 2, 16)), [true, true, false]);
        assert_eq!([16, 17].map(|count| is_granted((0, count), 0, 16)), [true, false]);
        // A peer that reports more than was sent grants no more than all of it.
        assert_eq!([16, 17].map(|count| is_granted((10, count), u64::MAX, 16)), [true, false]);
        assert_eq!([16, 17].map(|count| is_granted((10, count), 10, 16)), [true, false]);
    }
}
