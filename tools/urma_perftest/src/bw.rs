//! Bandwidth tests.
//!
//! *Owns*: the stream of requests per lane, their retirement, the peak. *Takes*: a pass. *Gives*:
//! messages and times per lane. *Must not*: sum up.
//!
//! A lane has at most as many messages outstanding as its queue is deep. One completion stands
//! for all messages of its lane before it (`-Q`). The clock is looked at once per batch of
//! completions, never per message.

use std::ops::Range;

use urma::{LocalSge, PostReason, SendWr, WrFlags};

use crate::{
    error::RunError,
    layout::LaneWord,
    pass::{Pass, SizeSamples},
    plan::{TestMode, Verb},
    receive::{credited, is_granted},
    requests::{self, Pace},
    session::SessionObjects,
    stats::Peak,
    verify::Verify,
};

/// Runs the streams of one message size and returns what they took.
pub(crate) fn run(pass: &mut Pass<'_, '_>) -> Result<SizeSamples, RunError> {
    let (objects, layout) = (pass.objects, pass.layout);
    let test = pass.test().clone();
    if !pass.plan.is_active() {
        return passive(pass);
    }
    let pieces = requests::pieces(objects, &test, &layout);
    let wrs = requests::requests(objects, &test, &layout, &pieces);
    if test.warm_up {
        let warm_up = u64::from(test.jfs_depth) * WARM_UP_DEPTHS;
        Stream::new(pass, &wrs, (0, warm_up)).run(pass)?;
    }
    let span = (0, pass.iterations());
    let mut stream = Stream::new(pass, &wrs, span);
    stream.flat = test.flat.then_some((objects, &pieces[..]));
    stream.credit = test.credit.map(|credit| u64::from(credit.threshold));
    let mut taken = stream.run(pass)?;
    if test.has_receives() && test.bidirection {
        let expected = is_countable(pass).then(|| pass.iterations() * u64::from(test.jettys));
        pass.drain(expected)?;
    }
    taken.received = pass.receiver.total();
    Ok(taken)
}

/// Batches of completions between two looks at the clock, where nothing else asks for the time.
const UNTIMED: u32 = 64;
/// A warm-up fills the queue so many times.
const WARM_UP_DEPTHS: u64 = 4;

/// The side that is read, written or sent to.
fn passive(pass: &mut Pass<'_, '_>) -> Result<SizeSamples, RunError> {
    let test = pass.test().clone();
    if test.has_receives() && is_countable(pass) {
        receive_all(pass, pass.iterations() * u64::from(test.jettys))?;
    } else {
        pass.attend()?;
        if test.has_receives() {
            pass.drain(None)?;
        }
    }
    Ok(SizeSamples { received: pass.receiver.total(), ..SizeSamples::default() })
}

/// Whether the receiver can compute how many messages will come.
fn is_countable(pass: &Pass<'_, '_>) -> bool {
    let test = pass.test();
    test.mode != TestMode::Um && test.iterations().is_some() && !test.err_continue
}

fn receive_all(pass: &mut Pass<'_, '_>, expected: u64) -> Result<(), RunError> {
    let (size, is_sleepy) = (pass.layout.size, pass.test().events);
    let mut patience = pass.patience();
    while pass.receiver.total() < expected {
        if pass.receiver.poll(pass.ends, size)? != 0 {
            patience.renew();
            continue;
        }
        if is_sleepy {
            pass.ends.receives.rest(&mut patience)?;
        }
        if patience.wait("waiting for the peer's messages")? && pass.is_peer_finished()? {
            return pass.drain(Some(expected));
        }
    }
    Ok(())
}

/// State of the stream of one lane.
#[derive(Clone, Copy, Debug)]
struct LaneStream {
    posted: u64,
    retired: u64,
    target: u64,
    until_signal: u32,
    place: usize,
    done_ns: u64,
}

impl LaneStream {
    /// Messages posted since the last one that has a completion.
    const fn unsignalled(&self, cq_mod: u32) -> u32 {
        cq_mod - self.until_signal
    }
}

/// The stream of all lanes.
#[derive(Debug)]
pub(crate) struct Stream<'p, 'a> {
    wrs: &'p [SendWr<'a>],
    lanes: Vec<LaneStream>,
    /// The requests of each lane as they are posted, changed where they lie: place after place, and the
    /// first ones once more, so that every list is one piece.
    ready: Vec<SendWr<'a>>,
    /// Requests of a lane in `ready`.
    stride: usize,
    depth: u64,
    post_list: u64,
    cq_mod: u32,
    places: usize,
    verify: Option<Verify>,
    is_timed: bool,
    has_peak: bool,
    /// The time is over: what is posted yet only brings the last completions.
    is_stopping: bool,
    is_sending: bool,
    /// Pieces of which each request is made when it is posted.
    flat: Option<(&'a SessionObjects, &'a [LocalSge<'a>])>,
    /// Most messages that may be in transit.
    credit: Option<u64>,
    /// Intended starts, lane by lane.
    paces: Vec<Pace>,
}

/// Bits of a user context that hold the message number; the lane is above them.
const NUMBER_BITS: u32 = 40;

impl<'p, 'a> Stream<'p, 'a> {
    /// Messages `from..until` of every lane.
    pub(crate) fn new(
        pass: &Pass<'_, '_>,
        wrs: &'p [SendWr<'a>],
        (from, until): (u64, u64),
    ) -> Self {
        let test = pass.test();
        // Verified atomics count up: one at a time, so that each answer is known.
        let is_chained = test.verify && test.command.verb() == Verb::Atomic;
        let depth = if is_chained { 1 } else { test.jfs_depth };
        let cq_mod = test.cq_mod.min(depth);
        let places = usize::try_from(pass.layout.places).unwrap_or(1).max(1);
        let lane = LaneStream {
            posted: from,
            retired: from,
            target: until,
            until_signal: cq_mod,
            place: usize::try_from(from % places as u64).unwrap_or(0),
            done_ns: 0,
        };
        let post_list = test.post_list.min(depth);
        let stride = places + usize::try_from(post_list).unwrap_or(1).max(1) - 1;
        let ready = wrs.chunks(places).flat_map(|wrs| wrs.iter().cycle().take(stride)).copied();
        Self {
            ready: ready.collect(),
            stride,
            wrs,
            lanes: vec![lane; pass.ends.lanes.len()],
            depth: u64::from(depth),
            post_list: u64::from(post_list),
            cq_mod,
            places,
            verify: test.verify.then(|| Verify::new(pass)),
            is_timed: test.iterations().is_none(),
            has_peak: !pass.plan.no_peak,
            is_stopping: false,
            is_sending: test.has_receives() && test.bidirection,
            flat: None,
            credit: None,
            paces: Vec::new(),
        }
    }

    /// Runs to the end of all lanes.
    pub(crate) fn run(mut self, pass: &mut Pass<'_, '_>) -> Result<SizeSamples, RunError> {
        let first = self.lanes.first().map_or(0, |lane| lane.posted);
        let end_ns = pass.end_ns();
        let start_ns = pass.clock.now_ns();
        if let Some(rate) = &pass.test().rate
            && first == 0
        {
            let pace = Pace::new(rate, pass.layout.size, self.lanes.len() as u64, start_ns);
            self.paces = vec![pace; self.lanes.len()];
        }
        if let Some((live, _)) = &mut pass.live {
            live.start(start_ns);
        }
        let window = u64::from(self.cq_mod) * self.lanes.len() as u64;
        let mut peak = Peak::new(window, start_ns);
        let mut patience = pass.patience();
        let mut open = self.lanes.len();
        let mut retired = 0;
        let mut batches = 0_u32;
        while open != 0 {
            for lane in 0..self.lanes.len() {
                self.post(pass, lane)?;
            }
            if self.is_sending {
                let size = pass.layout.size;
                pass.receiver.poll(pass.ends, size)?;
            }
            let before = retired;
            open -= self.poll(pass, &mut retired)?;
            if retired == before {
                // The clock and the peer are looked at once in a while.
                if !self.idle(pass, &mut patience)? {
                    continue;
                }
            } else {
                patience.renew();
                batches = batches.wrapping_add(1);
                if !self.has_peak && !self.is_timed && !batches.is_multiple_of(UNTIMED) {
                    continue;
                }
            }
            let now_ns = pass.clock.now_ns();
            pass.beat(now_ns)?;
            peak.on_completed(retired, now_ns);
            if now_ns >= end_ns || pass.on_progress(retired, now_ns)? {
                open -= self.stop(now_ns);
            }
        }
        let latency = self.paces.drain(..).map(|pace| pace.latency).reduce(|mut all, lane| {
            all += lane;
            all
        });
        let since = |lane: &LaneStream| lane.done_ns.saturating_sub(start_ns);
        Ok(SizeSamples {
            messages: self.lanes.iter().map(|lane| lane.retired - first).collect(),
            nanos: self.lanes.iter().map(since).collect(),
            best_ns: if self.has_peak { peak.best_ns() } else { None },
            latency,
            ..SizeSamples::default()
        })
    }

    /// Ends the run, the time being over: a lane ends with the completion that stands for all it
    /// posted. Where none is to come, one more message brings it. Returns how many lanes ended.
    fn stop(&mut self, now_ns: u64) -> usize {
        self.is_stopping = true;
        let mut ended = 0;
        for lane in self.lanes.iter_mut().filter(|lane| lane.target == u64::MAX) {
            let is_unsignalled = lane.posted != lane.retired && lane.unsignalled(self.cq_mod) != 0;
            lane.target = lane.posted + u64::from(is_unsignalled);
            if lane.retired == lane.target {
                lane.done_ns = now_ns;
                ended += 1;
            }
        }
        ended
    }

    /// Posts what fits, list by list.
    #[inline]
    fn post(&mut self, pass: &mut Pass<'_, '_>, lane: usize) -> Result<(), RunError> {
        loop {
            let state = &self.lanes[lane];
            let room = self.depth - (state.posted - state.retired);
            let count = self.post_list.min(state.target - state.posted);
            if count == 0 || room < count || !self.may_start(pass, lane, count)? {
                return Ok(());
            }
            let from = lane * self.stride + state.place;
            let mut until = from;
            for _ in 0..count {
                self.prepare(pass, lane, until)?;
                until += 1;
            }
            self.signal_last(lane, until - 1);
            let Some(queue) = pass.ends.lanes.get_mut(lane) else { return Ok(()) };
            let list = self.ready.get(from..until).unwrap_or(&[]);
            let Err(error) = queue.post(list) else { continue };
            if error.reason != PostReason::Full {
                return Err(error.into());
            }
            self.unpost(lane, from + error.index..until);
            return Ok(());
        }
    }

    /// Whether the lane's next `count` messages may start: by the plan of an open loop, and by
    /// what the receiver granted.
    #[inline]
    fn may_start(&self, pass: &Pass<'_, '_>, lane: usize, count: u64) -> Result<bool, RunError> {
        let posted = self.lanes[lane].posted;
        if let Some(pace) = self.paces.get(lane).filter(|_| !self.is_stopping)
            && pace.due(pass.clock.now_ns()) < posted + count
        {
            return Ok(false);
        }
        let Some(threshold) = self.credit else { return Ok(true) };
        let at = usize::try_from(pass.layout.word(lane, LaneWord::CreditIn)).unwrap_or(usize::MAX);
        let known = credited(pass.region().load_u64(at)?, pass.index);
        Ok(is_granted((posted, count), known, threshold))
    }

    /// Makes `ready[at]` the lane's next message.
    #[inline]
    fn prepare(&mut self, pass: &Pass<'_, '_>, lane: usize, at: usize) -> Result<(), RunError> {
        if self.flat.is_some() || self.verify.is_some() {
            self.make(pass, lane, at)?;
        }
        let (Some(state), Some(wr)) = (self.lanes.get_mut(lane), self.ready.get_mut(at)) else {
            return Ok(());
        };
        let number = state.posted;
        state.until_signal -= 1;
        let is_signalled = state.until_signal == 0 || number + 1 == state.target;
        if is_signalled {
            state.until_signal = self.cq_mod;
        }
        state.posted += 1;
        state.place = if state.place + 1 == self.places { 0 } else { state.place + 1 };
        wr.user_ctx = (lane as u64) << NUMBER_BITS | number;
        wr.flags.set(WrFlags::COMPLETE, is_signalled);
        Ok(())
    }

    /// Makes the request anew: from its pieces, or because it was changed for a message before.
    #[cold]
    fn make(&mut self, pass: &Pass<'_, '_>, lane: usize, at: usize) -> Result<(), RunError> {
        let state = &self.lanes[lane];
        let index = lane * self.places + state.place;
        let mut wr = match self.flat {
            None => self.wrs[index],
            Some((objects, pieces)) => {
                let sges = usize::try_from(pass.test().sges).unwrap_or(1);
                let piece = pieces.get(index * sges..(index + 1) * sges).unwrap_or(&[]);
                let at = (lane, state.place as u64);
                requests::request(objects, pass.test(), &pass.layout, at, piece)
            }
        };
        if let Some(verify) = &self.verify {
            verify.before(&mut wr, lane, state.posted)?;
        }
        self.ready[at] = wr;
        Ok(())
    }

    /// Gives the list's last message a completion when, without one, no room for a further list
    /// would ever come.
    #[inline]
    fn signal_last(&mut self, lane: usize, last: usize) {
        let state = &mut self.lanes[lane];
        let is_stuck = u64::from(state.unsignalled(self.cq_mod)) + self.post_list > self.depth;
        if let (true, Some(wr)) = (is_stuck, self.ready.get_mut(last)) {
            wr.flags |= WrFlags::COMPLETE;
            state.until_signal = self.cq_mod;
        }
    }

    /// Takes back what the queue had no room for.
    #[cold]
    fn unpost(&mut self, lane: usize, refused: Range<usize>) {
        let signal =
            self.ready[refused.clone()].iter().any(|wr| wr.flags.contains(WrFlags::COMPLETE));
        let refused = refused.len();
        let state = &mut self.lanes[lane];
        state.posted -= refused as u64;
        state.place = usize::try_from(state.posted % self.places as u64).unwrap_or(0);
        let refused = u32::try_from(refused).unwrap_or(u32::MAX);
        state.until_signal =
            if signal { 1 } else { state.until_signal.saturating_add(refused).min(self.cq_mod) };
    }

    /// Takes completions; returns how many lanes ended.
    #[inline]
    fn poll(&mut self, pass: &mut Pass<'_, '_>, retired: &mut u64) -> Result<usize, RunError> {
        let mut ended = 0;
        for completion in pass.ends.sends.poll()? {
            let lane = usize::try_from(completion.user_ctx >> NUMBER_BITS).unwrap_or(usize::MAX);
            let number = completion.user_ctx & ((1 << NUMBER_BITS) - 1);
            let Some(state) = self.lanes.get_mut(lane) else { continue };
            let from = state.retired;
            if number < from {
                // A flushed request whose successors are known to be done.
                continue;
            }
            if let Some(pace) = self.paces.get_mut(lane) {
                let now_ns = pass.clock.now_ns();
                (from..=number).for_each(|number| pace.on_completed(number, now_ns));
            }
            *retired += number + 1 - from;
            state.retired = number + 1;
            if state.retired == state.target {
                state.done_ns = pass.clock.now_ns();
                ended += 1;
            }
            if let Some(verify) = &self.verify {
                (from..=number).try_for_each(|number| verify.after(lane, number))?;
            }
        }
        Ok(ended)
    }

    /// Nothing retired: sleeps if events are on and nothing else is to be done, and keeps to the
    /// bound. Returns whether it is time to look at the clock.
    fn idle(
        &self,
        pass: &mut Pass<'_, '_>,
        patience: &mut crate::channel::Patience,
    ) -> Result<bool, RunError> {
        if !self.is_sending {
            pass.ends.sends.rest(patience)?;
        }
        let is_due = |lane: &LaneStream| {
            lane.posted - lane.retired > u64::from(lane.unsignalled(self.cq_mod))
        };
        if !self.paces.is_empty() && !self.lanes.iter().any(is_due) {
            // No completion is outstanding: the next start is in the future, by plan.
            patience.excuse();
        }
        let is_look = patience.wait("waiting for completions")?;
        if is_look {
            pass.oob.check()?;
        }
        Ok(is_look)
    }
}
