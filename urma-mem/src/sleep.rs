//! Awake or asleep: one word that its owner writes, and that peers read before they send a wake-up.
//!
//! Owns: the word's two values and the order of its accesses.
//! Takes: a word in memory the owner writes and peers map; a last check of all queues; how to wake
//! it. Gives: `announce_sleep` for the owner, `wake_if_asleep` for peers; no wake-up is lost
//! between them. Must not: sleep or make the system call itself.
//!
//! The owner stores *asleep*, fences, checks its queues once more; a peer publishes, fences, loads
//! the word. Whichever fence comes second sees the other's store, so either the owner finds the
//! work or the peer wakes it.

use crate::region::{OutOfBounds, Region};
use crate::sync::{AtomicU64, Ordering, fence};
use crate::words::Words;

/// The owner serves its queues without a wake-up; also the value of fresh memory.
const AWAKE: u64 = 0;
/// The owner waits on its descriptor.
const ASLEEP: u64 = 1;

/// What the owner may do after announcing sleep.
#[must_use = "sleeping although work was found loses it until the next wake-up"]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SleepResult {
    /// Nothing was there: wait on the descriptor; peers see *asleep* until `announce_awake`.
    Sleep,
    /// The last check found work; the word is *awake* again.
    Stay,
}

/// The word, seen by its owner or by a peer.
#[derive(Debug, Clone)]
pub struct SleepFlag<W = Region> {
    words: W,
    offset: usize,
}

impl<W: Words> SleepFlag<W> {
    /// The word at `offset`.
    ///
    /// # Errors
    /// [`OutOfBounds`] when it is outside the window or misaligned.
    pub fn new(words: W, offset: usize) -> Result<Self, OutOfBounds> {
        words.load(offset)?;
        Ok(Self { words, offset })
    }

    /// Owner: stores *asleep*, then calls `has_work` once more, which must check every queue that a
    /// peer can publish to. A window that cannot be written answers [`SleepResult::Stay`].
    #[inline]
    pub fn announce_sleep(&self, has_work: impl FnOnce() -> bool) -> SleepResult {
        if self.words.store_release(self.offset, ASLEEP).is_err() {
            return SleepResult::Stay;
        }
        self.words.fence();
        if has_work() {
            self.announce_awake();
            return SleepResult::Stay;
        }
        SleepResult::Sleep
    }

    /// Owner: stores *awake*; call it as soon as the wait returns, before checking the queues.
    #[inline]
    pub fn announce_awake(&self) {
        let stored = self.words.store_release(self.offset, AWAKE);
        debug_assert!(stored.is_ok(), "only the owner announces");
    }

    /// Peer: after publishing, runs `wake` (one write to the owner's eventfd) if the owner sleeps.
    /// Returns whether it did. Costs a locked instruction, about 3 ns, while the owner is awake.
    #[inline]
    pub fn wake_if_asleep(&self, wake: impl FnOnce()) -> bool {
        self.words.fence();
        let is_asleep = self.is_asleep();
        if is_asleep {
            wake();
        }
        is_asleep
    }

    /// Returns the word, without any memory order: for display.
    #[inline]
    pub fn is_asleep(&self) -> bool {
        self.words.load(self.offset) == Ok(ASLEEP)
    }
}

/// Until when the owner of some work sleeps, for the threads that add to it and do not do it themselves.
///
/// The owner sets the time, fences, looks for work; a thread that leaves some fences, and then reads the time. So either the
/// owner finds the work, or the thread sees that the owner has to be woken.
#[derive(Debug)]
pub struct SleepAlarm {
    /// In the owner's time; `u64::MAX`: it sleeps until it is woken.
    until: AtomicU64,
}

impl Default for SleepAlarm {
    fn default() -> Self {
        Self { until: AtomicU64::new(u64::MAX) }
    }
}

impl SleepAlarm {
    /// Owner: sleeps until `until` from now on. Then looks for what is due earlier, by [`SleepAlarm::is_before`] too.
    pub fn set(&self, until: u64) {
        self.until.store(until, Ordering::Release);
        fence(Ordering::SeqCst);
    }

    /// Other threads, after they left work: whether the owner was woken for work that is due at once, and looks for all of
    /// it before it sleeps again.
    #[inline]
    pub fn is_woken(&self) -> bool {
        fence(Ordering::SeqCst);
        self.until.load(Ordering::Relaxed) == 0
    }

    /// Other threads, after they left work that is due at `at`, 0 for at once: whether to wake the owner, which is true once
    /// for each time.
    #[inline]
    pub fn is_before(&self, at: u64) -> bool {
        fence(Ordering::SeqCst);
        self.until.load(Ordering::Relaxed) > at && self.until.fetch_min(at, Ordering::AcqRel) > at
    }
}

#[cfg(test)]
mod tests {
    //! The model: `RUSTFLAGS="--cfg loom" cargo test -p urma-mem --release loom_`.

    #[cfg(not(loom))]
    mod plain {
        use crate::region::Region;
        use crate::sleep::{SleepAlarm, SleepFlag, SleepResult};

        #[test]
        fn a_sleeper_is_woken_once_for_each_earlier_time() {
            let alarm = SleepAlarm::default();
            alarm.set(100);
            assert!(!alarm.is_before(100) && !alarm.is_woken());
            assert!(alarm.is_before(99) && !alarm.is_before(99) && !alarm.is_woken());
            assert!(alarm.is_before(0) && alarm.is_woken() && !alarm.is_before(0));
            alarm.set(u64::MAX);
            assert!(!alarm.is_woken() && alarm.is_before(0));
        }

        #[test]
        fn a_peer_wakes_only_a_sleeper() {
            let region = Region::private(64).unwrap();
            let owner = SleepFlag::new(region.clone(), 8).unwrap();
            let peer = SleepFlag::new(region.clone(), 8).unwrap();
            assert!(!peer.wake_if_asleep(|| panic!("awake")));
            assert_eq!(owner.announce_sleep(|| true), SleepResult::Stay);
            assert!(!peer.is_asleep());
            assert_eq!(owner.announce_sleep(|| false), SleepResult::Sleep);
            let mut woken = 0;
            assert!(peer.wake_if_asleep(|| woken += 1));
            owner.announce_awake();
            assert!(!peer.wake_if_asleep(|| woken += 1));
            assert_eq!(woken, 1);
            assert!(SleepFlag::new(region, 60).is_err());
        }
    }

    #[cfg(loom)]
    mod model {
        use crate::sleep::{SleepAlarm, SleepFlag, SleepResult};
        use crate::spsc::{CAPACITY_MIN, Consumer, Producer};
        use crate::sync::{AtomicBool, Ordering};
        use crate::words::model::{Fault, ModelWords};
        use std::sync::Arc;

        /// A peer publishes one entry and wakes if need be; the owner looks, then goes to sleep.
        fn flag_and_ring(fault: Fault, looks_again: bool) {
            loom::model(move || {
                let producer_half = ModelWords::new(CAPACITY_MIN / 8, fault);
                let consumer_half = ModelWords::new(1, fault);
                let flag_word = ModelWords::new(1, fault);
                let woken = Arc::new(AtomicBool::new(false));
                let (entries, heads) = (producer_half.clone(), consumer_half.clone());
                let mut producer = Producer::new(entries, heads, CAPACITY_MIN).unwrap();
                let mut consumer =
                    Consumer::new(consumer_half, producer_half, CAPACITY_MIN).unwrap();
                let owner = SleepFlag::new(flag_word, 0).unwrap();
                let peer = owner.clone();
                let wakeup = Arc::clone(&woken);
                let writer = loom::thread::spawn(move || {
                    producer.reserve(0).unwrap().publish(1).unwrap();
                    peer.wake_if_asleep(|| wakeup.store(true, Ordering::Release));
                });
                let mut got = consumer.next_entry().unwrap().is_some();
                let mut sleeps = false;
                if !got {
                    let look = || looks_again && consumer.next_entry().unwrap().is_some();
                    match owner.announce_sleep(look) {
                        SleepResult::Sleep => sleeps = true,
                        SleepResult::Stay => got = true,
                    }
                }
                writer.join().unwrap();
                let is_lost = sleeps && !woken.load(Ordering::Acquire);
                assert!(got || !is_lost, "asleep, no wake-up, and an entry is waiting");
            });
        }

        /// A thread leaves work; its owner looks, sets its alarm, looks again if it `looks_again`, and sleeps.
        fn alarm_and_work(looks_again: bool) {
            loom::model(move || {
                let alarm = Arc::new(SleepAlarm::default());
                let work = Arc::new(AtomicBool::new(false));
                let rung = Arc::new(AtomicBool::new(false));
                // It was woken before, so that threads do not ring.
                assert!(alarm.is_before(0));
                let (its_alarm, its_work, its_ring) =
                    (Arc::clone(&alarm), Arc::clone(&work), Arc::clone(&rung));
                let poster = loom::thread::spawn(move || {
                    its_work.store(true, Ordering::Relaxed);
                    if !its_alarm.is_woken() && its_alarm.is_before(0) {
                        its_ring.store(true, Ordering::Relaxed);
                    }
                });
                let mut found = work.load(Ordering::Relaxed);
                if !found {
                    alarm.set(u64::MAX);
                    found = looks_again && work.load(Ordering::Relaxed);
                }
                poster.join().unwrap();
                let is_woken = found || rung.load(Ordering::Relaxed);
                assert!(is_woken, "work is left, and its owner sleeps: no wake-up");
            });
        }

        #[test]
        fn loom_no_work_is_left_to_a_sleeper() {
            alarm_and_work(true);
        }

        #[test]
        #[should_panic(expected = "no wake-up")]
        fn loom_catches_an_alarm_without_a_look() {
            alarm_and_work(false);
        }

        #[test]
        fn loom_no_wake_up_is_lost() {
            flag_and_ring(Fault::None, true);
        }

        #[test]
        #[should_panic(expected = "no wake-up")]
        fn loom_catches_the_missing_fence() {
            flag_and_ring(Fault::FenceMissing, true);
        }

        #[test]
        #[should_panic(expected = "no wake-up")]
        fn loom_catches_the_missing_second_look() {
            flag_and_ring(Fault::None, false);
        }
    }
}
