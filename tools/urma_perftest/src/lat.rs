//! Latency tests.
//!
//! *Owns*: the ping-pong of WRITE and SEND, the round trip of READ and atomics. *Takes*: a pass.
//! *Gives*: one sample per iteration. *Must not*: sum up.
//!
//! One look at the clock separates two samples, so a sample holds the whole iteration: post,
//! wait, poll. The last byte of a WRITE is a counter; the side that waits for it calls nothing
//! until it changes (`--spin memory`), or polls for its own completion first (`--spin completion`).

use std::time::Duration;

use hdrhistogram::Histogram;
use urma::Region;
use urma::{LocalSge, SendWr, WrFlags};

use crate::{
    channel::Patience,
    cli::Spin,
    clock::pause,
    error::RunError,
    pass::{BEAT_NS, Pass, SizeSamples, sample},
    pattern::{self, Pattern},
    plan::{Test, Verb},
    receive::{guard_len, message_number},
    requests::{self, Pace, distribution},
    session::SessionObjects,
    verify::{atomic_answer, chain},
};

/// Runs the round trips of one message size and returns what they took.
pub(crate) fn run(pass: &mut Pass<'_, '_>) -> Result<SizeSamples, RunError> {
    let is_client = pass.plan.is_client();
    match (pass.test().command.verb(), is_client) {
        (Verb::Read | Verb::Atomic, true) => round_trips(pass),
        (Verb::Read | Verb::Atomic, false) => pass.attend().map(|()| SizeSamples::default()),
        (Verb::Write | Verb::Send, _) => ping_pong(pass),
    }
}

/// Samples by iterations, or only a count by duration.
struct LatencyRecord {
    samples: Vec<u32>,
    is_kept: bool,
    done: u64,
    iterations: u64,
    start_ns: u64,
    last_ns: u64,
    end_ns: u64,
    /// Every iteration, when a run by duration shall have a distribution.
    latency: Option<Histogram<u64>>,
    /// Planned start times, in the open loop.
    pace: Option<Pace>,
}

/// A longer wait for an intended start sleeps, nanoseconds.
const SLEEP_NS: u64 = 2_000_000;
/// Iterations between two looks at the clock, by duration.
const UNTIMED: u64 = 64;

impl LatencyRecord {
    fn start(pass: &Pass<'_, '_>) -> Self {
        let iterations = pass.iterations();
        let is_kept = iterations != u64::MAX;
        let room = if is_kept { usize::try_from(iterations).unwrap_or(0) } else { 0 };
        let samples = Vec::with_capacity(room);
        let (end_ns, now) = (pass.end_ns(), pass.clock.now_ns());
        let rate = pass.test().rate.as_ref();
        Self {
            samples,
            is_kept,
            done: 0,
            iterations,
            start_ns: now,
            last_ns: now,
            end_ns,
            latency: (pass.plan.histogram && !is_kept).then(distribution),
            pace: rate.map(|rate| Pace::new(rate, pass.layout.size, 1, now)),
        }
    }

    /// Open loop: waits until the next iteration is to start.
    fn await_start(&self, pass: &mut Pass<'_, '_>) -> Result<(), RunError> {
        let Some(pace) = &self.pace else { return Ok(()) };
        let start_ns = pace.intended_ns(self.done);
        loop {
            let now_ns = pass.clock.now_ns();
            pass.beat(now_ns)?;
            let left = start_ns.saturating_sub(now_ns);
            match left {
                0 => return Ok(()),
                SLEEP_NS.. => pause(Duration::from_nanos((left - SLEEP_NS / 2).min(BEAT_NS))),
                _ => std::hint::spin_loop(),
            }
        }
    }

    fn goes_on(&self) -> bool {
        self.done < self.iterations && self.last_ns < self.end_ns
    }

    /// One more iteration is done. By duration the clock is looked at once in a while only.
    #[inline]
    fn take(&mut self, pass: &Pass<'_, '_>) {
        self.done += 1;
        if let Some(pace) = &mut self.pace {
            let now_ns = pass.clock.now_ns();
            pace.on_completed(self.done - 1, now_ns);
            if self.is_kept {
                self.samples.push(sample(now_ns - pace.intended_ns(self.done - 1)));
            }
            self.last_ns = now_ns;
        } else if self.is_kept {
            let now_ns = pass.clock.now_ns();
            self.samples.push(sample(now_ns - self.last_ns));
            self.last_ns = now_ns;
        } else if let Some(latency) = &mut self.latency {
            let now_ns = pass.clock.now_ns();
            latency.saturating_record((now_ns - self.last_ns).max(1));
            self.last_ns = now_ns;
        } else if self.done.is_multiple_of(UNTIMED) {
            self.last_ns = pass.clock.now_ns();
        }
    }

    /// The last iteration is done.
    fn close(&mut self, pass: &Pass<'_, '_>) {
        self.last_ns = pass.clock.now_ns();
    }

    fn end(self) -> SizeSamples {
        SizeSamples {
            samples: self.samples,
            messages: vec![self.done],
            nanos: vec![self.last_ns - self.start_ns],
            latency: self.pace.map(|pace| pace.latency).or(self.latency),
            ..SizeSamples::default()
        }
    }
}

// ---- READ and atomics ---------------------------------------------------------------------------

fn round_trips(pass: &mut Pass<'_, '_>) -> Result<SizeSamples, RunError> {
    let (objects, layout) = (pass.objects, pass.layout);
    let test = pass.test().clone();
    let pieces = requests::pieces(objects, &test, &layout);
    let wrs = requests::requests(objects, &test, &layout, &pieces);
    let mut wr = first(&wrs)?;
    wr.flags |= WrFlags::COMPLETE;
    let mut patience = pass.patience();
    let mut record = LatencyRecord::start(pass);
    while record.goes_on() {
        if test.verify {
            chain(&mut wr.op, record.done);
            before_fetch(pass, record.done)?;
        }
        if test.flat {
            let piece = pieces.get(..sges(&test)).unwrap_or(&[]);
            let made = requests::request(objects, &test, &layout, (0, 0), piece);
            wr = SendWr { flags: made.flags | WrFlags::COMPLETE, ..made };
        }
        wr.user_ctx = record.done;
        record.await_start(pass)?;
        if let Some(lane) = pass.ends.lanes.first_mut() {
            lane.post(std::slice::from_ref(&wr))?;
        }
        while pass.ends.sends.poll()?.is_empty() {
            pass.ends.sends.rest(&mut patience)?;
            if patience.wait("waiting for a completion")? {
                pass.is_peer_finished()?;
                pass.beat(pass.clock.now_ns())?;
            }
        }
        patience.renew();
        if test.verify {
            after_fetch(pass, record.done)?;
        }
        record.take(pass);
        pass.beat(record.last_ns)?;
    }
    record.close(pass);
    Ok(record.end())
}

fn before_fetch(pass: &Pass<'_, '_>, done: u64) -> Result<(), RunError> {
    let at = offset(pass.layout.sink(0, done % pass.layout.places));
    Ok(pattern::poison(pass.region(), at, offset(pass.layout.size) + guard_len())?)
}

fn after_fetch(pass: &Pass<'_, '_>, done: u64) -> Result<(), RunError> {
    let (region, len) = (pass.region(), offset(pass.layout.size));
    let at = offset(pass.layout.sink(0, done % pass.layout.places));
    let pattern = Pattern { seed: pass.test().seed, iteration: message_number(0, 0) };
    if pass.test().command.verb() == Verb::Atomic {
        atomic_answer(region, at, len, done)?;
    } else {
        pattern.check(region, at, len)?;
    }
    Ok(pattern.check_beyond(region, at + len, guard_len())?)
}

// ---- WRITE and SEND -----------------------------------------------------------------------------

fn ping_pong(pass: &mut Pass<'_, '_>) -> Result<SizeSamples, RunError> {
    let (objects, layout) = (pass.objects, pass.layout);
    let test = pass.test().clone();
    let pieces = requests::pieces(objects, &test, &layout);
    let wrs = requests::requests(objects, &test, &layout, &pieces);
    let mut wr = first(&wrs)?;
    wr.flags |= WrFlags::COMPLETE;
    let mut side = PingPong::new((pass, objects), wr, &pieces)?;
    pass.oob.meet(PREPARED)?;
    let mut record = LatencyRecord::start(pass);
    if pass.plan.is_client() {
        while record.goes_on() {
            side.post(pass, record.done)?;
            side.await_peer(pass, record.done)?;
            record.take(pass);
        }
    } else {
        while record.done < record.iterations && side.await_peer(pass, record.done)? {
            side.post(pass, record.done)?;
            record.take(pass);
        }
    }
    // A server learns late that a run by duration is over: its last look at the clock counts.
    if pass.plan.is_client() || record.done < UNTIMED {
        record.close(pass);
    }
    side.await_sends(pass, 0)?;
    Ok(SizeSamples { received: record.done, ..record.end() })
}

/// Looks at memory in vain before others may have the processor, some 20 us: far longer than the write of a peer with a
/// processor of its own takes, because the call takes as long as a message between two cores.
const SPINS_BEFORE_YIELD: u32 = 1 << 14;
/// Polls in each look after the peer: a failure of the device is seen within some of these looks.
const POLLS_FOR_STATUS: u32 = 64;

/// Both sides have cleared the bytes they wait for.
pub(crate) const PREPARED: u64 = 1 << 32;

/// One side of a ping-pong.
pub(crate) struct PingPong<'a> {
    wr: SendWr<'a>,
    verb: Verb,
    spin: Spin,
    region: Region,
    /// Where the message comes.
    sink: usize,
    /// Where it is sent from.
    source: usize,
    len: usize,
    outstanding: u32,
    depth: u32,
    verify: Option<u64>,
    patience: Patience,
    objects: &'a SessionObjects,
    /// Of what a flat request is made.
    piece: &'a [LocalSge<'a>],
    is_flat: bool,
}

impl<'a> PingPong<'a> {
    fn new(
        (pass, objects): (&Pass<'_, '_>, &'a SessionObjects),
        wr: SendWr<'a>,
        pieces: &'a [LocalSge<'a>],
    ) -> Result<Self, RunError> {
        let test = pass.test();
        let piece = pieces.first().map_or(0, |piece| piece.addr - pass.objects.segment(0).va());
        let side = Self {
            wr,
            verb: test.command.verb(),
            spin: pass.spin(),
            region: pass.region().clone(),
            sink: offset(pass.layout.sink(0, 0)),
            source: offset(piece),
            len: offset(pass.layout.size),
            outstanding: 0,
            depth: test.jfs_depth,
            verify: test.verify.then_some(test.seed),
            patience: pass.patience(),
            objects,
            piece: pieces.get(..sges(test)).unwrap_or(&[]),
            is_flat: test.flat,
        };
        side.clear()?;
        Ok(side)
    }

    /// The last byte of WRITE number `done`: never 0, never that of the one before.
    #[expect(clippy::cast_possible_truncation, reason = "1 to 255")]
    pub(crate) const fn counter(done: u64) -> u8 {
        (1 + done % 255) as u8
    }

    /// Makes the sink ready for the next message.
    fn clear(&self) -> Result<(), RunError> {
        if self.verb != Verb::Write {
            return Ok(());
        }
        if self.verify.is_some() {
            pattern::poison(&self.region, self.sink, self.len + guard_len())?;
        }
        Ok(self.region.store_u8(self.sink + self.len - 1, 0)?)
    }

    #[inline]
    fn post(&mut self, pass: &mut Pass<'_, '_>, done: u64) -> Result<(), RunError> {
        if self.outstanding >= self.depth {
            self.await_sends(pass, self.depth - 1)?;
        }
        if let Some(seed) = self.verify {
            let iteration = message_number(0, done);
            Pattern { seed, iteration }.fill(&self.region, self.source, self.len)?;
        }
        if self.verb == Verb::Write {
            self.region.store_u8(self.source + self.len - 1, Self::counter(done))?;
        }
        if self.is_flat {
            let (test, layout) = (pass.test(), &pass.layout);
            let made = requests::request(self.objects, test, layout, (0, 0), self.piece);
            self.wr = SendWr { flags: made.flags | WrFlags::COMPLETE, ..made };
        }
        self.wr.user_ctx = done;
        if let Some(lane) = pass.ends.lanes.first_mut() {
            lane.post(std::slice::from_ref(&self.wr))?;
        }
        self.outstanding += 1;
        if self.spin == Spin::Completion {
            return self.await_sends(pass, 0);
        }
        // The message flies meanwhile: on one host its completion is there already.
        self.poll_sends(pass)
    }

    #[inline]
    fn poll_sends(&mut self, pass: &mut Pass<'_, '_>) -> Result<(), RunError> {
        let done = pass.ends.sends.poll()?.len();
        self.outstanding -= u32::try_from(done).unwrap_or(0).min(self.outstanding);
        Ok(())
    }

    /// Waits until at most `left` requests are outstanding.
    fn await_sends(&mut self, pass: &mut Pass<'_, '_>, left: u32) -> Result<(), RunError> {
        while self.outstanding > left {
            self.poll_sends(pass)?;
            self.patience.wait("waiting for a completion")?;
        }
        self.patience.renew();
        Ok(())
    }

    /// Waits for message number `done`; `false`: the peer is finished.
    #[inline]
    fn await_peer(&mut self, pass: &mut Pass<'_, '_>, done: u64) -> Result<bool, RunError> {
        let came = match self.verb {
            Verb::Write if !pass.test().imm => self.await_write(pass, done)?,
            Verb::Write | Verb::Send | Verb::Read | Verb::Atomic => self.await_send(pass, done)?,
        };
        self.patience.renew();
        Ok(came)
    }

    #[inline]
    fn await_write(&mut self, pass: &mut Pass<'_, '_>, done: u64) -> Result<bool, RunError> {
        let (last, want) = (self.sink + self.len - 1, Self::counter(done));
        let mut spins = 0_u32;
        while self.region.load_u8_acquire(last)? != want {
            if self.spin == Spin::Poll {
                self.poll_sends(pass)?;
            }
            spins = spins.wrapping_add(1);
            if spins.is_multiple_of(SPINS_BEFORE_YIELD) {
                // The write may come from a thread that wants this processor: the peer's, or a daemon's.
                std::thread::yield_now();
            }
            if self.patience.wait("waiting for the peer's write")? {
                if pass.is_peer_finished()? {
                    return Ok(false);
                }
                // Memory never says that this side's own device is gone; polls do.
                (0..POLLS_FOR_STATUS).try_for_each(|_| self.poll_sends(pass))?;
            }
        }
        if let Some(seed) = self.verify {
            let pattern = Pattern { seed, iteration: message_number(0, done) };
            pattern.check(&self.region, self.sink, self.len - 1)?;
            pattern.check_beyond(&self.region, self.sink + self.len, guard_len())?;
            self.clear()?;
        }
        Ok(true)
    }

    #[inline]
    fn await_send(&mut self, pass: &mut Pass<'_, '_>, done: u64) -> Result<bool, RunError> {
        let size = pass.layout.size;
        while pass.receiver.total() <= done {
            if pass.receiver.poll(pass.ends, size)? != 0 {
                continue;
            }
            if pass.test().events {
                pass.ends.receives.rest(&mut self.patience)?;
            }
            self.poll_sends(pass)?;
            if self.patience.wait("waiting for the peer's message")? && pass.is_peer_finished()? {
                return Ok(false);
            }
        }
        Ok(true)
    }
}

/// Pieces of a request.
fn sges(test: &Test) -> usize {
    usize::try_from(test.sges).unwrap_or(1)
}

fn first<'a>(wrs: &[SendWr<'a>]) -> Result<SendWr<'a>, RunError> {
    wrs.first().copied().ok_or_else(|| RunError::Request("there is no queue".to_owned()))
}

fn offset(value: u64) -> usize {
    usize::try_from(value).unwrap_or(usize::MAX)
}
