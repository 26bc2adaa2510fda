//! Requests made ahead, and when they shall start: what is measured is posting them, not making them.
//!
//! Must not post or wait.

use hdrhistogram::Histogram;
use urma::{LocalSge, RecvWr, RemoteAddr, SendOp, SendWr, TargetJetty, WrFlags};

use crate::{
    cli::AtomicKind,
    layout::{LaneWord, Layout},
    plan::{OpenLoopRate, Speed, Test, TestMode, Verb},
    session::SessionObjects,
};

/// Lengths fit: the sizes of a test are `u32`.
#[expect(clippy::cast_possible_truncation, reason = "sizes of a test are u32")]
const fn length(size: u64) -> u32 {
    size as u32
}

/// The local piece of every place of every lane, lane after lane.
pub(crate) fn pieces<'a>(
    objects: &'a SessionObjects,
    test: &Test,
    layout: &Layout,
) -> Vec<LocalSge<'a>> {
    let is_fetched = matches!(test.command.verb(), Verb::Read | Verb::Atomic);
    let mut pieces = Vec::new();
    for lane in 0..objects.targets.len() {
        for place in 0..layout.places {
            let offset =
                if is_fetched { layout.sink(lane, place) } else { layout.source(lane, place) };
            let segment = objects.segment(lane);
            let len = layout.size / u64::from(test.sges);
            for part in 0..u64::from(test.sges) {
                let addr = segment.va() + offset + part * len;
                pieces.push(LocalSge { segment, addr, len: length(len) });
            }
        }
    }
    pieces
}

/// The request of every place of every lane, lane after lane.
pub(crate) fn requests<'a>(
    objects: &'a SessionObjects,
    test: &Test,
    layout: &Layout,
    pieces: &'a [LocalSge<'a>],
) -> Vec<SendWr<'a>> {
    let places = usize::try_from(layout.places).unwrap_or(1).max(1);
    let sges = usize::try_from(test.sges).unwrap_or(1).max(1);
    let at = |index: usize| (index / places, (index % places) as u64);
    let parts = pieces.chunks(sges).enumerate();
    parts.map(|(index, piece)| request(objects, test, layout, at(index), piece)).collect()
}

/// The request of one place of one lane.
pub(crate) fn request<'a>(
    objects: &'a SessionObjects,
    test: &Test,
    layout: &Layout,
    (lane, place): (usize, u64),
    piece: &'a [LocalSge<'a>],
) -> SendWr<'a> {
    let is_inline = layout.size <= u64::from(test.inline);
    let flags = if is_inline { WrFlags::INLINE } else { WrFlags::empty() };
    let op = operation(objects, test, layout, (lane, place), piece);
    SendWr { op, flags, target: target(objects, test, lane), target_hint: 0, user_ctx: 0 }
}

/// The target of a lane's requests; an RC queue is bound to its own.
fn target<'a>(objects: &'a SessionObjects, test: &Test, lane: usize) -> Option<&'a TargetJetty> {
    if test.mode == TestMode::Rc { None } else { objects.targets.get(lane) }
}

/// The local word of every lane from which it reports its receives to the peer.
pub(crate) fn credit_pieces<'a>(
    objects: &'a SessionObjects,
    test: &Test,
    layout: &Layout,
) -> Vec<LocalSge<'a>> {
    let piece = |lane| {
        let segment = objects.segment(lane);
        LocalSge { segment, addr: segment.va() + layout.word(lane, LaneWord::CreditOut), len: 8 }
    };
    let lanes = if test.credit.is_some() { objects.targets.len() } else { 0 };
    (0..lanes).map(piece).collect()
}

/// Tells the peer of a lane's receives; makes no completion.
pub(crate) fn credit<'a>(
    objects: &'a SessionObjects,
    test: &Test,
    layout: &Layout,
    (lane, piece): (usize, &'a [LocalSge<'a>]),
) -> SendWr<'a> {
    let segment = objects.remote(lane);
    let dst = RemoteAddr { segment, addr: segment.va() + layout.word(lane, LaneWord::CreditIn) };
    let (op, target) = (SendOp::Write { src: piece, dst }, target(objects, test, lane));
    SendWr { op, flags: WrFlags::empty(), target, target_hint: 0, user_ctx: 0 }
}

fn operation<'a>(
    objects: &'a SessionObjects,
    test: &Test,
    layout: &Layout,
    (lane, place): (usize, u64),
    piece: &'a [LocalSge<'a>],
) -> SendOp<'a> {
    let segment = objects.remote(lane);
    let imm = lane as u64;
    let source = RemoteAddr { segment, addr: segment.va() + layout.source(lane, place) };
    let sink = RemoteAddr { segment, addr: segment.va() + layout.sink(lane, place) };
    match (test.command.verb(), piece.first()) {
        (Verb::Read, _) => SendOp::Read { dst: piece, src: source },
        (Verb::Write, _) if test.imm => SendOp::WriteImm { src: piece, dst: sink, imm },
        (Verb::Write, _) if test.notify => {
            let notify = segment.va() + layout.word(lane, LaneWord::Notify);
            let notify = RemoteAddr { segment, addr: notify };
            SendOp::WriteNotify { src: piece, dst: sink, notify, data: place + 1 }
        }
        (Verb::Write, _) => SendOp::Write { src: piece, dst: sink },
        (Verb::Atomic, Some(result)) => {
            // A lane works on one word, so that the answers of a verified run count up.
            let target = RemoteAddr { segment, addr: segment.va() + layout.source(lane, 0) };
            match test.atomic {
                // Compares with what it stores: every one of them succeeds.
                AtomicKind::Cas => SendOp::Cas { result: *result, target, compare: 0, swap: 0 },
                AtomicKind::Faa => SendOp::FetchAdd { result: *result, target, value: 1 },
            }
        }
        (Verb::Send, _) if test.imm => SendOp::SendImm { src: piece, imm },
        (Verb::Send | Verb::Atomic, _) => SendOp::Send { src: piece },
    }
}

/// The local piece of every receive.
pub(crate) fn receive_pieces<'a>(
    objects: &'a SessionObjects,
    test: &Test,
    layout: &Layout,
) -> Vec<LocalSge<'a>> {
    if !test.has_receives() {
        return Vec::new();
    }
    let segment = objects.segment(0);
    let piece = |receive| LocalSge {
        segment,
        addr: segment.va() + layout.receive(receive),
        len: length(layout.size),
    };
    (0..u64::from(test.jfr_depth) * u64::from(test.jfrs())).map(piece).collect()
}

/// The receive that uses piece number `index`.
pub(crate) fn receive<'a>(pieces: &'a [LocalSge<'a>], index: usize) -> RecvWr<'a> {
    RecvWr { dst: pieces.get(index..=index).unwrap_or(&[]), user_ctx: index as u64 }
}

/// Highest latency with a bucket of its own: one minute; more counts as a minute.
const NS_MAX: u64 = 60_000_000_000;

/// An empty distribution of nanoseconds, three digits exact.
pub(crate) fn distribution() -> Histogram<u64> {
    Histogram::new_with_bounds(1, NS_MAX, 3).expect("the bounds are right: 1 < 2 * 1 <= NS_MAX")
}

/// Intended starts of one lane.
///
/// A latency counts from the moment at which the request was to start, whether or not it could be posted then: a
/// stall of the system is seen by every request that was to start meanwhile.
#[derive(Clone, Debug)]
pub(crate) struct Pace {
    start_ns: u64,
    /// Time between the starts of two bursts, in nanoseconds.
    gap_ns: f64,
    burst: u64,
    /// Latencies from the intended starts.
    pub(crate) latency: Histogram<u64>,
}

impl Pace {
    /// The plan of one of `lanes` lanes with messages of `bytes`, from `now_ns` on.
    pub(crate) fn new(rate: &OpenLoopRate, bytes: u64, lanes: u64, now_ns: u64) -> Self {
        let per_second = match rate.speed {
            Speed::BytesPerSecond(speed) => speed as f64 / bytes.max(1) as f64,
            Speed::MessagesPerSecond(speed) => speed as f64,
        } / lanes.max(1) as f64;
        let burst = u64::from(rate.burst.max(1));
        let gap_ns = burst as f64 * 1e9 / per_second.max(f64::MIN_POSITIVE);
        Self { start_ns: now_ns, gap_ns, burst, latency: distribution() }
    }

    /// When message `number` is to start.
    #[inline]
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "time goes on")]
    pub(crate) fn intended_ns(&self, number: u64) -> u64 {
        self.start_ns.saturating_add(((number / self.burst) as f64 * self.gap_ns) as u64)
    }

    /// Messages that were to start until `now_ns`.
    #[inline]
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "time goes on")]
    pub(crate) fn due(&self, now_ns: u64) -> u64 {
        let bursts = now_ns.saturating_sub(self.start_ns) as f64 / self.gap_ns;
        (bursts as u64 + 1).saturating_mul(self.burst)
    }

    /// Message `number` is complete at `now_ns`. One that was not to start by then has no latency:
    /// it was posted early, to end the run.
    #[inline]
    pub(crate) fn on_completed(&mut self, number: u64, now_ns: u64) {
        if let Some(latency) = now_ns.checked_sub(self.intended_ns(number)) {
            self.latency.saturating_record(latency.max(1));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pace(messages_per_second: u64, burst: u32) -> Pace {
        let speed = Speed::MessagesPerSecond(messages_per_second);
        Pace::new(&OpenLoopRate { speed, burst }, 8, 1, 1000)
    }

    #[test]
    fn starts_are_a_gap_apart() {
        let pace = pace(1_000_000, 4);
        assert_eq!([0, 3, 4, 8].map(|number| pace.intended_ns(number)), [1000, 1000, 5000, 9000]);
        assert_eq!([1000, 4999, 5000, 9100].map(|now| pace.due(now)), [4, 4, 8, 12]);
    }

    #[test]
    fn bytes_and_lanes_share_the_rate() {
        let speed = Speed::BytesPerSecond(1_000_000_000);
        let pace = Pace::new(&OpenLoopRate { speed, burst: 1 }, 1000, 2, 0);
        assert_eq!(pace.intended_ns(3), 6000);
    }

    #[test]
    fn a_message_before_its_moment_has_no_latency() {
        let mut pace = pace(1_000_000, 1);
        pace.on_completed(5, 5999);
        assert_eq!(pace.latency.len(), 0);
        pace.on_completed(5, 6000);
        assert_eq!(pace.latency.len(), 1);
    }

    #[test]
    fn a_stall_is_seen_by_all_that_were_to_start_meanwhile() {
        // One message per microsecond; the system stands still for 100 us, then all complete at once.
        let mut pace = pace(1_000_000, 1);
        for number in 0..100 {
            pace.on_completed(number, 1000 + 100_000);
        }
        // A closed loop would have counted one sample of 100 us; the mean of these is half of it.
        assert_eq!(pace.latency.len(), 100);
        assert!((pace.latency.mean() - 50_500.0).abs() < 100.0, "{}", pace.latency.mean());
        assert!(pace.latency.max() >= 99_900);
    }
}
