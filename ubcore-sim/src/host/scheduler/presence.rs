//! Which side keeps the device going: the application by polling, or the background thread.
//!
//! A poll must not make a system call, wait, or use more than two relaxed accesses; between two looks of the thread,
//! at most one poll stores.

use std::sync::Arc;

use udma_abi::Nanos;
use urma_mem::idle::WorkSign;
use urma_mem::sync::{AtomicBool, AtomicU32, AtomicU64, Ordering};

/// The state shared by pollers and the background thread.
///
/// Serving itself (`Asleep`: peers send a wake-up, the background thread answers) is right when no thread polls;
/// being polled (`Awake`: peers send no wake-up) is right when one does. Polls move it to awake only after
/// `POLLS_TO_WAKE` of them, so that a program that waits for an event, polls once and waits again stays with wake-ups
/// and pays for no thread switch per message.
///
/// A program may also poll in bursts: for the completion of a request, then spin on its memory until a peer's message
/// changes it. In the mode `Bursts` peers send a wake-up although the program polls. It begins when the background
/// thread finds a peer's message that no poll took for a whole tick. It ends when polls take every message for as
/// long as a tick (`wakeup_policy.rs`).
#[derive(Debug)]
pub struct Presence {
    /// Sign by which polls see that they have to look here again.
    sign: Arc<WorkSign>,
    /// A thread polled since the last check.
    has_polled: AtomicBool,
    /// Time of the latest poll that had the exact time, in ns.
    polled_at: AtomicU64,
    /// Mode that peers read: [`ASLEEP`], [`AWAKE`] or [`BURSTS`].
    mode: AtomicU32,
    /// Polls seen while asleep since the last arm.
    polls_asleep: AtomicU32,
}

impl Presence {
    /// Creates the state of a node that no thread polls yet.
    #[must_use]
    pub fn new(sign: Arc<WorkSign>) -> Self {
        let (has_polled, polled_at) = (AtomicBool::new(false), AtomicU64::new(0));
        let (mode, polls_asleep) = (AtomicU32::new(ASLEEP), AtomicU32::new(0));
        Self { sign, has_polled, polled_at, mode, polls_asleep }
    }

    /// Whether each poll is counted, until they are enough to wake it.
    #[inline]
    #[must_use]
    pub fn counts_polls(&self) -> bool {
        self.mode.load(Ordering::Relaxed) == ASLEEP
    }

    /// Notes that a thread polls. Returns whether the background thread must be notified, because it sleeps and from
    /// now on the pollers serve the device.
    #[inline]
    #[must_use]
    pub fn on_poll(&self) -> bool {
        // A store each time would take the cache line from the other polling threads.
        if !self.has_polled.load(Ordering::Relaxed) {
            self.has_polled.store(true, Ordering::Relaxed);
        }
        self.mode.load(Ordering::Relaxed) == ASLEEP && self.on_poll_asleep()
    }

    /// Takes the exact time of a poll. With a packet peer every poll has it.
    #[inline]
    pub fn on_polled_at(&self, now: Nanos) {
        self.polled_at.store(now, Ordering::Relaxed);
    }

    /// Whether no poll that had the exact time came in the last `IDLE_NS` before `now`.
    #[must_use]
    pub fn is_idle(&self, now: Nanos) -> bool {
        now.saturating_sub(self.polled_at.load(Ordering::Relaxed)) > IDLE_NS
    }

    /// Whether no poll came in the last `PAUSE_NS` before `now`: the program does something else,
    /// or spins on its memory.
    #[must_use]
    pub fn is_pause(&self, now: Nanos) -> bool {
        now.saturating_sub(self.polled_at.load(Ordering::Relaxed)) > PAUSE_NS
    }

    /// Notes that a thread is about to wait for an event, and no longer polls. Returns whether the background thread
    /// must be notified.
    #[inline]
    #[must_use]
    pub fn on_arm(&self) -> bool {
        self.polls_asleep.store(0, Ordering::Relaxed);
        let was_on = self.mode.load(Ordering::Relaxed) != ASLEEP
            && self.mode.swap(ASLEEP, Ordering::AcqRel) != ASLEEP;
        if was_on {
            self.sign.raise();
        }
        was_on
    }

    /// Notes, for the background thread, that there was no poll for a tick.
    pub fn on_idle(&self) {
        self.polls_asleep.store(0, Ordering::Relaxed);
        self.mode.store(ASLEEP, Ordering::Release);
        self.sign.raise();
    }

    /// Notes, for the background thread, that polls left a message of a peer waiting for a tick.
    pub fn on_left_waiting(&self) {
        self.mode.store(BURSTS, Ordering::Release);
    }

    /// Notes, for the background thread, that polls take every message at once.
    pub fn on_steady(&self) {
        let _ = self.mode.compare_exchange(BURSTS, AWAKE, Ordering::AcqRel, Ordering::Relaxed);
    }

    /// Whether the program polls in bursts, so that peers send wake-ups meanwhile.
    #[must_use]
    pub fn is_in_bursts(&self) -> bool {
        self.mode.load(Ordering::Acquire) == BURSTS
    }

    /// Whether pollers serve the device.
    #[must_use]
    pub fn is_awake(&self) -> bool {
        self.mode.load(Ordering::Acquire) == AWAKE
    }

    /// Whether a thread polled since the last call, which the background thread makes.
    pub fn take_polled(&self) -> bool {
        let has_polled = self.has_polled.swap(false, Ordering::Relaxed);
        self.sign.raise();
        has_polled
    }

    #[cold]
    fn on_poll_asleep(&self) -> bool {
        let polls = self.polls_asleep.fetch_add(1, Ordering::Relaxed);
        polls >= POLLS_TO_WAKE && self.mode.swap(AWAKE, Ordering::AcqRel) == ASLEEP
    }
}

const ASLEEP: u32 = 0;
const AWAKE: u32 = 1;
const BURSTS: u32 = 2;
/// Polls in a row without waiting that make a poller. A wait that returns polls two or three times.
pub const POLLS_TO_WAKE: u32 = 32;
/// Programs that poll do so every 1 to 3 us when packets are in use (a system call each).
const PAUSE_NS: Nanos = 20_000;
/// A program that did not poll for this long does not poll any more: a tick.
const IDLE_NS: Nanos = 1_000_000;

#[cfg(test)]
mod tests {
    use urma_mem::idle::IdleSnapshot;

    use super::*;

    #[test]
    fn pollers_wake_it_once_and_waiters_never() {
        let presence = Presence::new(Arc::default());
        for _ in 0..10 {
            assert!((0..POLLS_TO_WAKE).all(|_| !presence.on_poll()));
            assert!(!presence.on_arm());
        }
        assert_eq!((0..1000).filter(|_| presence.on_poll()).count(), 1);
        assert!(presence.is_awake());
        assert!(presence.on_arm());
        assert!(!presence.is_awake());
    }

    #[test]
    fn polls_do_not_end_bursts_and_arming_does() {
        let presence = Presence::new(Arc::default());
        presence.on_left_waiting();
        assert!((0..1000).all(|_| !presence.on_poll()));
        assert!(presence.is_in_bursts() && !presence.is_awake());
        assert!(presence.on_arm(), "the thread may be between two looks");
        assert!(!presence.on_arm() && !presence.is_in_bursts());
        presence.on_steady();
        assert!(!presence.is_awake(), "they ended otherwise");
        presence.on_left_waiting();
        presence.on_steady();
        assert!(presence.is_awake());
    }

    #[test]
    fn polls_show() {
        let presence = Presence::new(Arc::default());
        assert!(!presence.take_polled());
        let _ = presence.on_poll();
        let _ = presence.on_poll();
        assert!(presence.take_polled() && !presence.take_polled());
    }

    /// Polls that skip the device are not seen here, so each of these invalidates the idle snapshot.
    #[test]
    fn polls_look_here_again_after_each_question_of_the_thread() {
        type Change = fn(&Presence);
        let changes: [Change; 3] = [
            |presence| assert!(presence.take_polled()),
            |presence| presence.on_idle(),
            |presence| assert!(presence.on_arm()),
        ];
        for change in changes {
            let sign = Arc::new(WorkSign::default());
            let presence = Presence::new(Arc::clone(&sign));
            assert_eq!((0..=POLLS_TO_WAKE).filter(|_| presence.on_poll()).count(), 1);
            assert!(!presence.counts_polls());
            let mut idle = IdleSnapshot::default();
            let raised = sign.raised();
            assert!(idle.note(&sign, std::iter::empty()));
            idle.begin(&sign, raised);
            assert!(idle.holds());
            change(&presence);
            assert!(!idle.holds());
        }
    }

    #[test]
    fn a_pause_of_the_poller_shows() {
        let presence = Presence::new(Arc::default());
        presence.on_polled_at(1_000_000);
        assert!(!presence.is_pause(1_000_000 + PAUSE_NS));
        assert!(presence.is_pause(1_000_001 + PAUSE_NS));
        assert!(!presence.is_idle(1_000_000 + IDLE_NS), "it may poll again for its own request");
        assert!(presence.is_idle(1_000_001 + IDLE_NS));
    }
}
