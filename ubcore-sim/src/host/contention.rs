//! A program that spins on a processor which it shares: when its polls wait in the kernel.
//!
//! *Owns*: how often polls in a row found nothing, when the program last lost its processor among such polls. *Takes*: the
//! time of each poll, and whether it found anything. *Gives*: whether a poll waits for a datagram. *Must not*: read a
//! clock; let a poll wait where the program has the processor for itself.
//!
//! A poller that finds nothing uses up its slice of a processor, and has none left when its datagram comes: another
//! program then runs for a whole slice first. A thread that waits in the kernel keeps its share and runs again as soon
//! as a datagram arrives.

use udma_abi::Nanos;
use urma_mem::sync::{AtomicU32, AtomicU64, Ordering};

/// Of one node. Threads that poll at once may count a poll less: nothing depends on the exact number.
#[derive(Debug, Default)]
pub(super) struct Contention {
    /// Polls in a row that found nothing.
    spins: AtomicU32,
    /// When the latest poll was.
    polled_at: AtomicU64,
    /// When the processor was last lost in a spin; 0: never.
    lost_at: AtomicU64,
    /// Until when polls that spin wait.
    until: AtomicU64,
}

impl Contention {
    /// A poll at `now` is over. Returns whether it waits for a datagram before it returns.
    pub(super) fn on_poll(&self, now: Nanos, has_found: bool) -> bool {
        let before = self.polled_at.load(Ordering::Relaxed);
        self.polled_at.store(now, Ordering::Relaxed);
        if has_found {
            self.spins.store(0, Ordering::Relaxed);
            return false;
        }
        let spins = self.spins.load(Ordering::Relaxed).saturating_add(1);
        self.spins.store(spins, Ordering::Relaxed);
        if spins <= SPINS_MIN {
            return false;
        }
        if now.saturating_sub(before) >= LOST_NS {
            self.on_lost(now);
        }
        now < self.until.load(Ordering::Relaxed)
    }

    /// A program that polls again and again did not run for a while.
    #[cold]
    fn on_lost(&self, now: Nanos) {
        let before = self.lost_at.swap(now, Ordering::Relaxed);
        // A single pause has other reasons.
        if before != 0 && now.saturating_sub(before) < AGAIN_NS {
            self.until.store(now.saturating_add(SHARED_NS), Ordering::Relaxed);
        }
    }
}

/// Polls in a row after which a program spins: some 16 us.
const SPINS_MIN: u32 = 16;
/// A program that spins and does not poll for so long has lost its processor, in ns: slices of a scheduler are longer.
const LOST_NS: Nanos = 1_000_000;
/// Two such losses in this time show that the processor is shared, in ns.
const AGAIN_NS: Nanos = 50_000_000;
/// How long a processor counts as shared after a loss, in ns: polls that wait lose it seldom.
const SHARED_NS: Nanos = 250_000_000;

#[cfg(test)]
mod tests {
    use super::*;

    /// Polls once a microsecond from `now` on; the time after them, and whether any of them waited.
    fn spin(contention: &Contention, now: Nanos, polls: u64) -> (Nanos, bool) {
        let waited = (1..=polls).filter(|at| contention.on_poll(now + at * 1000, false)).count();
        (now + polls * 1000, waited > 0)
    }

    /// A spin that lost its processor twice for a slice.
    fn shared() -> (Contention, Nanos) {
        let (contention, mut now) = (Contention::default(), 1_000_000_000);
        for _ in 0..2 {
            now = spin(&contention, now, 100).0 + 3_000_000;
            contention.on_poll(now, false);
        }
        (contention, now)
    }

    #[test]
    fn a_spin_that_loses_its_processor_twice_waits_from_then_on() {
        let (contention, now) = shared();
        assert!(contention.on_poll(now + 1000, false));
        assert!(spin(&contention, now + SHARED_NS - 200_000, 100).1);
        assert!(!spin(&contention, now + SHARED_NS + 1, 100).1, "it may be over");
    }

    #[test]
    fn a_poller_that_has_its_processor_never_waits() {
        let contention = Contention::default();
        let (now, has_waited) = spin(&contention, 1_000_000_000, 1_000_000);
        assert!(!has_waited);
        // A pause now and then.
        let mut now = now;
        for _ in 0..100 {
            let (end, has_waited) = spin(&contention, now + AGAIN_NS, 1000);
            assert!(!has_waited);
            now = end;
        }
    }

    #[test]
    fn work_between_polls_that_found_something_is_no_loss() {
        let (contention, mut now) = (Contention::default(), 1_000_000_000);
        for _ in 0..100 {
            let (end, has_waited) = spin(&contention, now, 1000);
            assert!(!has_waited);
            contention.on_poll(end + 1000, true);
            now = end + 5_000_000;
        }
    }

    #[test]
    fn few_polls_in_a_row_do_not_wait() {
        let (contention, now) = shared();
        contention.on_poll(now + 1000, true);
        let (now, has_waited) = spin(&contention, now + 1000, SPINS_MIN.into());
        assert!(!has_waited);
        assert!(contention.on_poll(now + 1000, false));
    }
}
