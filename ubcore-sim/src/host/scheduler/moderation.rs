//! Receive moderation: how long polls leave the socket alone while a peer sends a stream.
//!
//! Must not hold back a thread that does not come again, or delay what is no stream.

use udma_abi::Nanos;
use urma_mem::sync::{AtomicBool, AtomicU64, AtomicUsize, Ordering};

/// State of one port. Only the thread that holds its link reports receives.
///
/// A receiver that takes each run of packets at once is slower than one that takes several: each call, pass over the
/// queues and acknowledgement serves fewer packets. And it gives the kernel's pages back while they are in the caches
/// of this processor, so the sender writes the next run into lines that another processor holds. Between two hosts of
/// one machine at MTU 1500, 64 KiB writes took 36 us each at the sender while the receiver lagged behind, and 72 us
/// while it kept up, of which 30 instead of 7 were the kernel's copy. Network adapters wait for the same reason.
#[derive(Debug, Default)]
pub(crate) struct ReceiveModeration {
    /// When the first poll came after the last receive with a result, since handling that took time; 0: there was
    /// none.
    idle_since: AtomicU64,
    /// Time of that receive.
    received_at: AtomicU64,
    /// Bytes received without a pause.
    streamed: AtomicUsize,
    /// Whether polls receive at intervals.
    waits: AtomicBool,
}

impl ReceiveModeration {
    /// Whether a poll receives at `now`.
    pub(crate) fn may_receive(&self, now: Nanos) -> bool {
        let mut since = self.idle_since.load(Ordering::Relaxed);
        if since == 0 {
            self.idle_since.store(now, Ordering::Relaxed);
            since = now;
        }
        // Threads that poll at the same time do not read the clock in order.
        !self.waits.load(Ordering::Relaxed) || now.abs_diff(since) >= WAIT_NS
    }

    /// Notes that a receive at `now` brought so many bytes.
    pub(crate) fn on_received(&self, now: Nanos, bytes: usize) {
        if bytes == 0 {
            return;
        }
        let since = match self.idle_since.swap(0, Ordering::Relaxed) {
            0 => self.received_at.load(Ordering::Relaxed),
            since => since,
        };
        let is_stream = now.saturating_sub(since) <= PAUSE_NS;
        let before = if is_stream { self.streamed.load(Ordering::Relaxed) } else { 0 };
        let streamed = before.saturating_add(bytes);
        let is_part = (WAIT_MIN_BYTES..WAIT_MAX_BYTES).contains(&bytes);
        self.streamed.store(streamed, Ordering::Relaxed);
        self.received_at.store(now, Ordering::Relaxed);
        self.waits.store(streamed >= STREAM_BYTES && is_part, Ordering::Relaxed);
    }
}

/// Time between two receives of a stream, in ns: of 35, 50 and 70 us the best by medians at MTU 1500 and 9000.
const WAIT_NS: Nanos = 50_000;
/// A longer time without a byte ends a stream, in ns. A peer that waits for an answer to each message of 64 KiB pauses
/// longer.
const PAUSE_NS: Nanos = 60_000;
/// Bytes without a pause that make a stream.
const STREAM_BYTES: usize = 256 << 10;
/// A receive that brought less is the end of a stream, or acknowledgements.
const WAIT_MIN_BYTES: usize = 32 << 10;
/// A receive that brought more left something behind.
const WAIT_MAX_BYTES: usize = crate::host::udp::BYTES_PER_CALL;
const _: () = assert!(PAUSE_NS > WAIT_NS);

#[cfg(test)]
mod tests {
    use super::*;

    const RUN: usize = 63 << 10;

    /// Time that a run takes after it was received.
    const WORK_NS: Nanos = 70_000;

    /// A stream; when the first poll after its last receive comes.
    fn stream() -> (ReceiveModeration, Nanos) {
        let (moderation, mut now) = (ReceiveModeration::default(), 1_000_000);
        for _ in 0..5 {
            moderation.on_received(now, RUN);
            now += WORK_NS;
            moderation.may_receive(now);
        }
        (moderation, now)
    }

    #[test]
    fn polls_of_a_stream_receive_again_after_a_while() {
        let (moderation, now) = stream();
        assert!(!moderation.may_receive(now));
        assert!(!moderation.may_receive(now + WAIT_NS - 1));
        assert!(moderation.may_receive(now + WAIT_NS));
    }

    #[test]
    fn a_stream_that_is_waited_for_goes_on() {
        let (moderation, mut now) = stream();
        for _ in 0..100 {
            assert!(moderation.may_receive(now + WAIT_NS));
            moderation.on_received(now + WAIT_NS, RUN);
            now += WAIT_NS + WORK_NS;
            assert!(!moderation.may_receive(now));
        }
    }

    #[test]
    fn a_message_of_64_kib_now_and_then_is_no_stream() {
        let (moderation, mut now) = (ReceiveModeration::default(), 1_000_000);
        for _ in 0..1000 {
            moderation.on_received(now, RUN);
            now += WORK_NS;
            assert!(moderation.may_receive(now));
            now += PAUSE_NS + 1;
        }
    }

    #[test]
    fn what_no_poll_took_makes_no_stream() {
        let moderation = ReceiveModeration::default();
        for at in (1..1000).map(|at| at * 1_000_000) {
            moderation.on_received(at, RUN);
        }
        assert!(moderation.may_receive(1_000_000_000));
    }

    #[test]
    fn the_end_of_a_stream_ends_the_wait() {
        let (moderation, now) = stream();
        moderation.on_received(now + WAIT_NS, WAIT_MIN_BYTES - 1);
        assert!(moderation.may_receive(now + WAIT_NS));
    }

    #[test]
    fn acknowledgements_are_no_stream() {
        let moderation = ReceiveModeration::default();
        for at in (1..100_000).map(|at| at * 1000) {
            moderation.on_received(at, 40);
            assert!(moderation.may_receive(at));
        }
    }

    #[test]
    fn what_was_left_behind_is_taken_at_once() {
        let (moderation, now) = stream();
        moderation.on_received(now + WAIT_NS, WAIT_MAX_BYTES);
        assert!(moderation.may_receive(now + WAIT_NS));
    }

    #[test]
    fn a_clock_that_went_back_holds_nothing_back_for_long() {
        let (moderation, now) = stream();
        assert!(moderation.may_receive(now - WAIT_NS));
    }

    #[test]
    fn a_receive_without_bytes_changes_nothing() {
        let (moderation, now) = stream();
        moderation.on_received(now + 1, 0);
        assert!(!moderation.may_receive(now + 1));
    }
}
