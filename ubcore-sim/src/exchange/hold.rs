//! Acknowledgements that wait for the program's next post: whether it usually comes soon.
//!
//! *Owns*: how often the program came back soon after it was given a message. *Takes*: messages that its polls
//! took, and its next posts and polls. *Gives*: whether an acknowledgement may wait. *Must not*: read a clock.
//!
//! A program that answers each message posts at once after the poll that took it. Its message can carry the
//! acknowledgement, and the line of another entry is not waited for. A program that works for long after
//! a poll would keep its peer's requests from ending: after each time that it did, as many prompt returns as
//! before and as many again have to come first.

use udma_abi::Nanos;

/// Prompt returns after which acknowledgements wait at first.
const RETURNS_MIN: u32 = 64;
/// Prompt returns that are asked for at most.
const RETURNS_MAX: u32 = 1 << 24;
/// A return after this time is not prompt, in nanoseconds: a few ticks of the cheap clock.
pub(super) const PROMPT_NS: Nanos = 10_000_000;
/// The same for messages that came by packets, whose polls have the exact clock.
pub(super) const PROMPT_PACKETS_NS: Nanos = 100_000;

/// Longest wait of an acknowledgement for a post, in nanoseconds: two or three polls of the socket, since a program
/// may look at several completion queues before it answers.
pub(super) const HELD_NS: Nanos = 5_000;

/// What happens to answers that a step finds.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Answers {
    /// They go at once.
    Go,
    /// Acknowledgements of messages that this step took wait for the next step or post.
    MayWait,
}

/// How soon the program comes back.
#[derive(Clone, Copy, Debug)]
pub(super) struct Hold {
    /// Prompt returns in a row.
    prompt: u32,
    needed: u32,
    /// Longest time until a return that is prompt.
    prompt_ns: Nanos,
    /// When a poll took a message, until the program comes back.
    since: Option<Nanos>,
}

impl Hold {
    pub(super) const fn new(prompt_ns: Nanos) -> Self {
        Self { prompt: 0, needed: RETURNS_MIN, prompt_ns, since: None }
    }

    /// As [`Hold::on_return`], unless the poll that took the message goes on.
    pub(super) fn on_later(&mut self, now: Nanos) {
        if self.since.is_some_and(|since| since < now) {
            self.on_return(now);
        }
    }

    /// A poll or a post of the program begins, or another thread sends what waits.
    #[inline]
    pub(super) fn on_return(&mut self, now: Nanos) {
        let Some(since) = self.since.take() else { return };
        if now.saturating_sub(since) > self.prompt_ns {
            return self.on_late();
        }
        self.prompt = self.prompt.saturating_add(1);
    }

    #[cold]
    fn on_late(&mut self) {
        self.needed = self.needed.saturating_mul(2).min(RETURNS_MAX);
        self.prompt = 0;
        self.since = None;
    }

    /// What is due for answers to messages that a poll takes.
    #[inline]
    pub(super) fn answers(&self) -> Answers {
        if self.prompt >= self.needed { Answers::MayWait } else { Answers::Go }
    }

    /// A poll took messages.
    #[inline]
    pub(super) fn on_taken(&mut self, now: Nanos) {
        self.since = Some(now);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn returns(hold: &mut Hold, count: u32, after: Nanos) {
        for at in 0..u64::from(count) {
            hold.on_taken(at);
            hold.on_return(at + after);
        }
    }

    #[test]
    fn answers_wait_once_the_program_comes_back_soon() {
        let mut hold = Hold::new(PROMPT_NS);
        returns(&mut hold, RETURNS_MIN - 1, 0);
        assert_eq!(hold.answers(), Answers::Go);
        returns(&mut hold, 1, PROMPT_NS);
        assert_eq!(hold.answers(), Answers::MayWait);
    }

    #[test]
    fn each_late_return_asks_for_twice_as_many_prompt_ones() {
        let mut hold = Hold::new(PROMPT_NS);
        returns(&mut hold, RETURNS_MIN, 0);
        returns(&mut hold, 1, PROMPT_NS + 1);
        returns(&mut hold, 2 * RETURNS_MIN - 1, 0);
        assert_eq!(hold.answers(), Answers::Go);
        returns(&mut hold, 1, 0);
        assert_eq!(hold.answers(), Answers::MayWait);
        for _ in 0..40 {
            hold.on_late();
        }
        returns(&mut hold, 1000, 0);
        assert_eq!(hold.answers(), Answers::Go);
    }
}
