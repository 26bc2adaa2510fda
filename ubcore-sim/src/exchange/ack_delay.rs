//! Delayed acknowledgements: whether the program usually posts soon, so that its message can carry them.
//!
//! Must not read a clock.

use udma_abi::Nanos;

/// Prompt returns before acknowledgements wait, at first.
pub(crate) const RETURNS_MIN: u32 = 64;
/// Most prompt returns that are required.
const RETURNS_MAX: u32 = 1 << 24;
/// A row of so many times the required number makes up for a late return.
const ROWS_PER_LATE: u32 = 16;
/// A return after this time is late, in nanoseconds: a few ticks of the cheap clock.
pub(crate) const PROMPT_NS: Nanos = 10_000_000;

/// Longest wait of an acknowledgement for a post to a packet peer, in nanoseconds: some ten polls of the socket,
/// since a program may poll several completion queues before it answers.
pub(crate) const HELD_NS: Nanos = 20_000;
/// A program that does not return for so long does something else, and another thread sends the acknowledgement
/// within a tick, in nanoseconds.
const AWAY_NS: Nanos = 100_000;
/// Credit: each prompt post earns one, up to a maximum; acknowledgements wait from a minimum on.
const EARNED_MAX: u32 = 1024;
const EARNED_MIN: u32 = 64;
/// Credit that a late post costs: as many acknowledgements as save the time that one lost by waiting in vain, which
/// is [`HELD_NS`] while the program polls, and else up to a tick.
const LATE_COST: u32 = 16;
const AWAY_COST: u32 = 256;

/// Handling of the answers that a step produces.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Answers {
    /// They are sent at once.
    Go,
    /// Acknowledgements of messages that this step took wait for the next step or post.
    MayWait,
}

/// Tracks how soon the program comes back.
///
/// A program that answers each message posts right after the poll that took it. Its message can carry the
/// acknowledgement, which saves the peer a cache line for another entry. A program that works for long after a poll
/// would delay the completion of its peer's requests: after each late return, twice as many prompt ones as before
/// have to come first. A row many times as long halves that again, since a system takes the processor from each
/// program now and then.
#[derive(Clone, Copy, Debug)]
pub(crate) struct AckDelay {
    /// Prompt returns in a row.
    prompt: u32,
    needed: u32,
    least: u32,
    /// Longest time of a prompt return.
    prompt_ns: Nanos,
    /// Time when a poll took a message, until the program comes back.
    since: Option<Nanos>,
}

impl AckDelay {
    pub(crate) const fn new(prompt_ns: Nanos, least: u32) -> Self {
        Self { prompt: 0, needed: least, least, prompt_ns, since: None }
    }

    /// Notes that the program begins a poll or post, or that another thread sends what waits.
    #[inline]
    pub(crate) fn on_return(&mut self, now: Nanos) {
        let Some(since) = self.since.take() else { return };
        if now.saturating_sub(since) > self.prompt_ns {
            return self.on_late();
        }
        self.prompt += 1;
        if self.prompt >= self.needed.saturating_mul(ROWS_PER_LATE) {
            self.make_up();
        }
    }

    /// Halves the required number after a long row of prompt returns.
    #[cold]
    fn make_up(&mut self) {
        self.needed = (self.needed / 2).max(self.least);
        self.prompt = self.needed;
    }

    #[cold]
    fn on_late(&mut self) {
        self.needed = self.needed.saturating_mul(2).min(RETURNS_MAX);
        self.prompt = 0;
        self.since = None;
    }

    /// How to handle the answers to messages that a poll takes.
    #[inline]
    pub(crate) fn answers(&self) -> Answers {
        if self.may_wait() { Answers::MayWait } else { Answers::Go }
    }

    /// Whether acknowledgements may wait.
    #[inline]
    pub(crate) fn may_wait(&self) -> bool {
        self.prompt >= self.needed
    }

    /// Notes that a poll took messages.
    #[inline]
    pub(crate) fn on_taken(&mut self, now: Nanos) {
        self.since = Some(now);
    }
}

/// Tracks how soon the program posts a request to a packet peer after it took messages from it.
///
/// A separate packet for the acknowledgement would cost a system call before the program sees the message.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct PostHabit {
    /// Credit from prompt posts, at most [`EARNED_MAX`].
    earned: u32,
    /// Time when a poll took a message, until the program posts.
    since: Option<Nanos>,
}

impl PostHabit {
    /// Notes that a poll of the program took a message that has to be acknowledged.
    pub(crate) fn on_taken(&mut self, now: Nanos) {
        self.since.get_or_insert(now);
    }

    /// Notes that the program posted a request to the peer.
    pub(crate) fn on_posted(&mut self, now: Nanos) {
        self.on_time(now);
        if self.since.take().is_some() {
            self.earned = (self.earned + 1).min(EARNED_MAX);
        }
    }

    /// Notes the time: a post that has not come by now is late.
    pub(crate) fn on_time(&mut self, now: Nanos) {
        let Some(since) = self.since else { return };
        let cost = match now.saturating_sub(since) {
            ..HELD_NS => return,
            HELD_NS..AWAY_NS => LATE_COST,
            AWAY_NS.. => AWAY_COST,
        };
        self.earned = self.earned.saturating_sub(cost);
        self.since = None;
    }

    /// How to handle the answers to messages that a poll took.
    pub(crate) fn answers(&self) -> Answers {
        let is_prompt = self.since.is_some() && self.earned >= EARNED_MIN;
        if is_prompt { Answers::MayWait } else { Answers::Go }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn returns(hold: &mut AckDelay, count: u32, after: Nanos) {
        for at in 0..u64::from(count) {
            hold.on_taken(at);
            hold.on_return(at + after);
        }
    }

    #[test]
    fn answers_wait_once_the_program_comes_back_soon() {
        let mut hold = AckDelay::new(PROMPT_NS, RETURNS_MIN);
        returns(&mut hold, RETURNS_MIN - 1, 0);
        assert_eq!(hold.answers(), Answers::Go);
        returns(&mut hold, 1, PROMPT_NS);
        assert_eq!(hold.answers(), Answers::MayWait);
    }

    #[test]
    fn each_late_return_asks_for_twice_as_many_prompt_ones() {
        let mut hold = AckDelay::new(PROMPT_NS, RETURNS_MIN);
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

    /// Whether answers wait most of the time when each late return follows `row` prompt ones.
    fn waits_mostly(row: u32) -> bool {
        let mut hold = AckDelay::new(PROMPT_NS, RETURNS_MIN);
        let mut waiting = 0;
        for _ in 0..40 {
            for _ in 0..row {
                returns(&mut hold, 1, 0);
                waiting += u32::from(hold.answers() == Answers::MayWait);
            }
            returns(&mut hold, 1, PROMPT_NS + 1);
        }
        waiting > 40 / 4 * 3 * row
    }

    #[test]
    fn late_returns_that_are_few_are_made_up_for() {
        assert!(waits_mostly(RETURNS_MIN * ROWS_PER_LATE * 4));
        assert!(!waits_mostly(RETURNS_MIN * 4), "a peer would wait for each of them");
    }

    fn posts(habit: &mut PostHabit, count: u32, after: Nanos) {
        for at in 0..u64::from(count) {
            habit.on_taken(at);
            habit.on_posted(at + after);
        }
    }

    fn answers_after_the_next(mut habit: PostHabit) -> Answers {
        habit.on_taken(0);
        habit.answers()
    }

    #[test]
    fn acknowledgements_wait_for_a_program_that_posts_soon() {
        let mut habit = PostHabit::default();
        posts(&mut habit, EARNED_MIN - 1, HELD_NS - 1);
        assert_eq!(answers_after_the_next(habit), Answers::Go);
        posts(&mut habit, 1, HELD_NS - 1);
        assert_eq!(answers_after_the_next(habit), Answers::MayWait);
        assert_eq!(habit.answers(), Answers::Go, "nothing was taken since the post");
        posts(&mut habit, 1, HELD_NS);
        assert_eq!(answers_after_the_next(habit), Answers::Go);
    }

    #[test]
    fn they_wait_no_more_after_some_late_posts_or_few_long_absences() {
        let late = |after: Nanos| {
            let mut habit = PostHabit::default();
            posts(&mut habit, 2 * EARNED_MAX, 0);
            let is_waiting = |_: &u32| {
                posts(&mut habit, 1, after);
                answers_after_the_next(habit) == Answers::MayWait
            };
            (1..).take_while(is_waiting).count()
        };
        assert_eq!(late(HELD_NS), 60);
        assert_eq!(late(AWAY_NS), 3);
    }

    #[test]
    fn prompt_posts_make_up_for_late_ones_that_are_few() {
        let after = |late_ns: Nanos, prompt: u32| {
            let mut habit = PostHabit::default();
            for _ in 0..1000 {
                posts(&mut habit, 1, late_ns);
                posts(&mut habit, prompt, 0);
            }
            posts(&mut habit, 1, late_ns);
            answers_after_the_next(habit)
        };
        assert_eq!(after(HELD_NS, LATE_COST + 1), Answers::MayWait);
        assert_eq!(after(HELD_NS, LATE_COST), Answers::Go);
        assert_eq!(after(AWAY_NS, AWAY_COST + 1), Answers::MayWait);
        assert_eq!(after(AWAY_NS, 64), Answers::Go);
    }
}
