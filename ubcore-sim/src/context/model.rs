//! Model of the contexts that a NIC's chip would hold of this device: `urma-contexts`, asked once per request.
//!
//! *Owns*: the model, its numbers of TPs and pages, its clock. *Takes*: what each request looks up, ends of objects.
//! *Gives*: counters, the time when a request has its contexts. *Must not*: decide a right or the order of anything:
//! the tables do.

mod repeats;

use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use udma_abi::Nanos;
use urma_contexts::{
    AccessMode, CacheCfg, ContextCache, ContextHandle, ContextKind, SmallOp, TokenBody, policy,
};
use urma_mem::sync::{AtomicU64, Ordering};

use crate::cfg::ContextModelMode;
use crate::ports::LookupSink;
use repeats::{Repeats, RequestLookups};

/// One thing that a request looks up.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum LookedUp {
    /// A queue, by its number.
    Queue(u32),
    /// A JFC, by its number.
    Jfc(u32),
    /// A path, by its TPN.
    Tp(u32),
    /// A segment and the page of an address in it.
    Segment {
        /// Token id of the segment.
        token_id: u32,
        /// First address that the request names.
        va: u64,
    },
}

/// Context of the model, and the kind of its lookup.
#[derive(Clone, Copy, Debug)]
struct KnownContext {
    handle: ContextHandle,
    generation: u16,
    op: SmallOp,
}

/// The model, shared by all engines of the device.
#[derive(Debug)]
pub(crate) struct ContextModel {
    mode: ContextModelMode,
    /// Virtual time in ns, of [`ContextModelMode::Time`].
    clock: AtomicU64,
    model: Mutex<Model>,
}

#[derive(Debug)]
struct Model {
    cache: ContextCache,
    tps: SmallNumbers<u32>,
    /// By token id and page number.
    pages: SmallNumbers<(u32, u64)>,
    /// Model time in ns: the virtual time, or each request begins when the one before had its contexts.
    now: u64,
    /// Lookups of things for which no number was left.
    untracked: u64,
    /// When a send queue, or a piece of a peer, that waits for its contexts can continue.
    waits: BinaryHeap<Reverse<(Nanos, Option<u32>)>>,
    /// Requests like an earlier one that were counted but not yet applied to the cache.
    repeats: Repeats,
    /// Receiver of copies of all lookups.
    sink: Option<Arc<dyn LookupSink>>,
    /// Tests only: what ended stays, and everything is on the chip at once.
    #[cfg(test)]
    lies: bool,
}

/// Small numbers for large keys.
#[derive(Debug)]
struct SmallNumbers<K> {
    of: BTreeMap<K, u32>,
    free: Vec<u32>,
}

impl<K: Ord + Copy> SmallNumbers<K> {
    const fn new() -> Self {
        Self { of: BTreeMap::new(), free: Vec::new() }
    }

    /// The number of a key. `None`: it is new, and no number is left.
    fn number(&mut self, key: K) -> Option<u32> {
        if let Some(number) = self.of.get(&key) {
            return Some(*number);
        }
        let used = u32::try_from(self.of.len()).ok()?;
        let number = self.free.pop().or_else(|| (used < INDICES).then_some(used))?;
        self.of.insert(key, number);
        Some(number)
    }

    fn end(&mut self, key: K) -> Option<u32> {
        let number = self.of.remove(&key)?;
        self.free.push(number);
        Some(number)
    }
}

impl ContextModel {
    /// An empty chip with the defaults of [`CacheCfg`] and this project's policy. `None`: the mode is off, or its
    /// parameters are impossible.
    pub(crate) fn new(mode: ContextModelMode) -> Option<Self> {
        if mode == ContextModelMode::Off {
            return None;
        }
        let cache = ContextCache::new(CacheCfg::default(), &mut policy::ours).ok()?;
        let model = Model {
            cache,
            tps: SmallNumbers::new(),
            pages: SmallNumbers::new(),
            now: 0,
            untracked: 0,
            waits: BinaryHeap::new(),
            repeats: Repeats::default(),
            sink: None,
            #[cfg(test)]
            lies: false,
        };
        Some(Self { mode, clock: AtomicU64::new(0), model: Mutex::new(model) })
    }

    /// Looks up everything that a request needs at once. Returns when it may start in virtual time; 0: now.
    #[inline]
    pub(crate) fn look_up(&self, request: impl Iterator<Item = LookedUp>) -> Nanos {
        let request = RequestLookups::of(request);
        let mut model = self.model();
        if self.mode == ContextModelMode::Count {
            model.count(&request);
            return 0;
        }
        model.now = model.now.max(self.clock.load(Ordering::Acquire));
        let (ready_at, _) = model.look_up(&request);
        #[cfg(test)]
        if model.lies {
            return 0;
        }
        ready_at
    }

    /// Prefetches the contexts of a request that is posted and not begun. For virtual time: the other mode has no
    /// time in between.
    pub(crate) fn prefetch(&self, request: impl Iterator<Item = LookedUp>) {
        let mut model = self.model();
        let now = model.now.max(self.clock.load(Ordering::Acquire));
        let handles: Vec<_> = request.flat_map(|one| model.known_handles(one)).collect();
        model.cache.prefetch(&handles, now);
        model.now = now;
    }

    /// How many requests ahead [`ContextModel::prefetch`] is worth calling; 0: none.
    pub(crate) fn prefetch_distance(&self) -> u32 {
        if self.mode == ContextModelMode::Time { PREFETCHED } else { 0 }
    }

    /// Pins contexts when the first packet of a message is sent, and unpins them at the last one.
    pub(crate) fn pin(&self, contexts: impl Iterator<Item = LookedUp>, is_pinned: bool) {
        let mut model = self.model();
        model.apply_repeats();
        let now = model.now.max(self.clock.load(Ordering::Acquire));
        for handle in contexts.flat_map(|one| model.known_handles(one)).collect::<Vec<_>>() {
            if is_pinned {
                model.cache.pin(handle, now);
            } else {
                model.cache.unpin(handle);
            }
        }
        model.now = now;
    }

    /// Makes the model wrong, for tests: what ended stays in it, and everything is on the chip at once.
    #[cfg(test)]
    pub(crate) fn lie(&self) {
        self.model().lies = true;
    }

    /// Sends copies of all lookups to `sink`, until it wants no more.
    pub(crate) fn record(&self, sink: Arc<dyn LookupSink>) {
        let mut model = self.model();
        model.apply_repeats();
        model.sink = Some(sink);
    }

    /// Sets the virtual time.
    pub(crate) fn set_clock(&self, now: Nanos) {
        self.clock.store(now, Ordering::Release);
    }

    /// Whether virtual time is before `at`.
    pub(crate) fn is_before(&self, at: Nanos) -> bool {
        self.clock.load(Ordering::Acquire) < at
    }

    /// Requests a step of the device at this time, for a send queue or for a piece of a peer.
    pub(crate) fn wait(&self, until: Nanos, queue: Option<u32>) {
        self.model().waits.push(Reverse((until, queue)));
    }

    /// Calls `wake` for the send queues whose time has come.
    pub(crate) fn take_due(&self, mut wake: impl FnMut(u32)) {
        if self.mode != ContextModelMode::Time {
            return;
        }
        loop {
            let mut model = self.model();
            let is_due = |Reverse((at, _)): &&Reverse<(Nanos, _)>| !self.is_before(*at);
            if model.waits.peek().filter(is_due).is_none() {
                return;
            }
            let queue = model.waits.pop().and_then(|Reverse((_, queue))| queue);
            drop(model);
            queue.into_iter().for_each(&mut wake);
        }
    }

    /// When something that waits for its contexts can continue.
    pub(crate) fn deadline(&self) -> Option<Nanos> {
        if self.mode != ContextModelMode::Time {
            return None;
        }
        self.model().waits.peek().map(|Reverse((at, _))| *at)
    }

    /// Removes an object that ended: its number may name another one from now on.
    pub(crate) fn end(&self, ended: LookedUp) {
        let mut model = self.model();
        model.apply_repeats();
        model.repeats.forget();
        #[cfg(test)]
        if model.lies {
            return;
        }
        match ended {
            LookedUp::Queue(number) => model.end(ContextKind::Queue, number),
            LookedUp::Jfc(number) => model.end(ContextKind::Jfc, number),
            LookedUp::Tp(tpn) => {
                if let Some(number) = model.tps.end(tpn) {
                    model.end(ContextKind::Tp, number);
                }
            }
            LookedUp::Segment { token_id, .. } => {
                let all = (token_id, 0)..=(token_id, u64::MAX);
                let pages: Vec<_> = model.pages.of.range(all).map(|(key, _)| *key).collect();
                for key in pages {
                    if let Some(number) = model.pages.end(key) {
                        model.end(ContextKind::Page, number);
                    }
                }
                model.end(ContextKind::Segment, token_id >> TOKEN_ID_SHIFT);
            }
        }
    }

    /// The value of a counter, by its name in the device without the prefix `context_`.
    pub(crate) fn value(&self, name: &str) -> u64 {
        let Some(name) = name.strip_prefix("context_") else { return 0 };
        let mut model = self.model();
        model.apply_repeats();
        match name {
            "untracked" => model.untracked,
            "model_ns" => model.now,
            _ => {
                let list = model.cache.counts().list();
                list.iter().find(|(other, _)| other == name).map_or(0, |(_, value)| *value)
            }
        }
    }

    fn model(&self) -> MutexGuard<'_, Model> {
        // A panic in the middle leaves a model whose counters may be off; requests do not depend on it.
        self.model.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Model {
    /// Counts a request; its time is that until it has its contexts.
    #[inline]
    fn count(&mut self, request: &RequestLookups) {
        if self.sink.is_none() && self.repeats.count(request) {
            self.now += L1_NS;
            if self.repeats.are_due(self.now) {
                self.apply_repeats();
            }
            return;
        }
        self.count_anew(request);
    }

    #[cold]
    fn count_anew(&mut self, request: &RequestLookups) {
        self.apply_repeats();
        let changes = self.changes();
        let (ready_at, found) = self.look_up(request);
        self.now = ready_at;
        if self.changes() != changes {
            self.repeats.forget();
        }
        if let Some(handles) = found {
            self.repeats.learn(request, handles);
        }
    }

    /// When the request has its contexts, and which those are if all are on the chip.
    fn look_up(&mut self, request: &RequestLookups) -> (Nanos, Option<Vec<KnownContext>>) {
        let (mut ready_at, mut all_inline) = (self.now, true);
        let mut known = Vec::with_capacity(KNOWN);
        let mut recorded = Vec::new();
        for looked_up in request.all() {
            for (kind, number) in self.contexts_of(looked_up) {
                let Some(context) = self.context(kind, number) else { continue };
                let KnownContext { handle, generation, op } = context;
                if self.sink.is_some() {
                    recorded.push(handle.bits());
                }
                let access = self.cache.access(handle, generation, op, self.now);
                while self.cache.poll_wake().is_some() {}
                all_inline &= access.is_ok_and(|access| access.mode == AccessMode::Inline);
                ready_at = ready_at.max(access.map_or(0, |access| access.ready_at));
                known.push(context);
            }
        }
        if self.sink.as_ref().is_some_and(|sink| !sink.on_lookups(&recorded)) {
            self.sink = None;
        }
        (ready_at, all_inline.then_some(known))
    }

    /// Applies the requests that were only counted to the cache.
    fn apply_repeats(&mut self) {
        let Self { cache, repeats, now, .. } = self;
        repeats.drain(*now, |KnownContext { handle, generation, op }, times| {
            if !cache.hit_again((handle, generation), op, (times, *now)) {
                // It left the chip by its time alone: what follows are no hits any more.
                (0..times).for_each(|_| _ = cache.access(handle, generation, op, *now));
                while cache.poll_wake().is_some() {}
            }
        });
    }

    /// Grows when contexts enter or leave the chip.
    fn changes(&mut self) -> u64 {
        let counts = self.cache.counts();
        counts.installed
            + counts.evicted_clean
            + counts.evicted_dirty
            + counts.migrations_to_l2
            + counts.migrations_to_l3
    }

    /// Kind and number of a thing that is looked up; `None`: it has no number.
    fn contexts_of(
        &mut self,
        looked_up: LookedUp,
    ) -> impl Iterator<Item = (ContextKind, Option<u32>)> + use<> {
        let (first, second) = match looked_up {
            LookedUp::Queue(number) => ((ContextKind::Queue, Some(number)), None),
            LookedUp::Jfc(number) => ((ContextKind::Jfc, Some(number)), None),
            LookedUp::Tp(tpn) => ((ContextKind::Tp, self.tps.number(tpn)), None),
            LookedUp::Segment { token_id, va } => {
                let page = self.pages.number((token_id, va >> PAGE_SHIFT));
                let segment = (ContextKind::Segment, Some(token_id >> TOKEN_ID_SHIFT));
                ((ContextKind::Page, page), Some(segment))
            }
        };
        std::iter::once(first).chain(second)
    }

    /// The context of this number, created if it is new.
    fn context(&mut self, kind: ContextKind, number: Option<u32>) -> Option<KnownContext> {
        let handle =
            number.filter(|number| *number < INDICES).and_then(|n| ContextHandle::new(kind, n));
        let Some(handle) = handle else {
            self.untracked += 1;
            return None;
        };
        // Numbers of the device are in range, and the body's fields are 0: creating cannot fail.
        if self.cache.directory().read(handle).is_none()
            && self.cache.create(handle.index(), &TokenBody::zero(kind)).is_err()
        {
            self.untracked += 1;
            return None;
        }
        let generation = self.cache.directory().generation(handle);
        let op = if kind == ContextKind::Page { SmallOp::Read } else { SmallOp::Add(1) };
        Some(KnownContext { handle, generation, op })
    }

    /// Handles of contexts that were looked up before.
    fn known_handles(&self, looked_up: LookedUp) -> Vec<ContextHandle> {
        let handle = |kind, number: Option<u32>| number.and_then(|n| ContextHandle::new(kind, n));
        match looked_up {
            LookedUp::Queue(number) => vec![handle(ContextKind::Queue, Some(number))],
            LookedUp::Jfc(number) => vec![handle(ContextKind::Jfc, Some(number))],
            LookedUp::Tp(tpn) => vec![handle(ContextKind::Tp, self.tps.of.get(&tpn).copied())],
            LookedUp::Segment { token_id, va } => {
                let page = self.pages.of.get(&(token_id, va >> PAGE_SHIFT)).copied();
                let segment = Some(token_id >> TOKEN_ID_SHIFT);
                vec![handle(ContextKind::Page, page), handle(ContextKind::Segment, segment)]
            }
        }
        .into_iter()
        .flatten()
        .collect()
    }

    fn end(&mut self, kind: ContextKind, number: u32) {
        if let Some(handle) = ContextHandle::new(kind, number) {
            self.cache.destroy(handle, self.now);
        }
    }
}

/// Latency of the chip in ns: time of a request that hits only.
const L1_NS: u64 = 4;
/// Contexts of a usual request: queue, TP, JFC, segment and page of two pieces.
const KNOWN: usize = 7;
/// Requests ahead of their turn whose contexts are asked for: 900 ns of a miss at 30 M requests/s.
const PREFETCHED: u32 = 27;
/// Indices of a kind: those of queues, JFCs and segments have 20 bits.
const INDICES: u32 = 1 << 20;
/// A token id is an index shifted by this.
const TOKEN_ID_SHIFT: u32 = 8;
/// Pages of 4 KiB.
const PAGE_SHIFT: u32 = 12;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_is_one_access_of_each_of_its_contexts() {
        let model = ContextModel::new(ContextModelMode::Count).unwrap();
        let segment = LookedUp::Segment { token_id: 3 << 8, va: 0x5000 };
        let request = [LookedUp::Queue(1), LookedUp::Jfc(1), LookedUp::Tp(0xab_cdef), segment];
        model.look_up(request.into_iter());
        let value = |name| model.value(name);
        assert_eq!((value("context_accesses"), value("context_l3_hits")), (5, 5));
        let first = value("context_model_ns");
        assert!(first > 500, "the host was asked: {first} ns");
        model.look_up(request.into_iter());
        assert_eq!((value("context_accesses"), value("context_l1_hits")), (10, 5));
        assert!(value("context_model_ns") - first <= 8, "the chip was enough");
        assert_eq!(value("context_page_accesses"), 2);
        assert_eq!(value("direct_requests"), 0);
    }

    /// Requests that repeat leave what they would leave one by one.
    #[test]
    fn repeated_requests_are_counted_as_if_one_by_one() {
        let [by_sums, one_by_one] =
            [(); 2].map(|()| ContextModel::new(ContextModelMode::Count).unwrap());
        let mut random = 1_u64;
        for round in 0..20_000_u32 {
            random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(round.into());
            // A few queues that repeat, and some that come and go.
            let queue = u32::try_from(random >> 60).unwrap();
            let queue = if round % 100 == 0 { 1000 + round } else { queue / 3 };
            let segment = LookedUp::Segment { token_id: queue << 8, va: 0x5000 };
            let request = [LookedUp::Queue(queue), LookedUp::Jfc(1), LookedUp::Tp(7), segment];
            by_sums.look_up(request.into_iter());
            one_by_one.model().count_anew(&RequestLookups::of(request.into_iter()));
            if round % 1000 == 999 {
                for model in [&by_sums, &one_by_one] {
                    model.end(LookedUp::Queue(queue));
                }
            }
        }
        let names =
            ["accesses", "l1_hits", "l3_hits", "installed", "queue_accesses", "page_l1_hits"];
        for name in names.iter().chain(&["model_ns", "wait_mean_ns"]) {
            let of = |model: &ContextModel| model.value(&format!("context_{name}"));
            assert_eq!(of(&by_sums), of(&one_by_one), "{name}");
        }
        assert!(by_sums.value("context_l1_hits") > 60_000);
    }

    #[test]
    fn in_virtual_time_a_request_waits_and_a_prefetched_one_does_not() {
        let model = ContextModel::new(ContextModelMode::Time).unwrap();
        let requests = [1, 2].map(|queue| [LookedUp::Queue(queue), LookedUp::Jfc(1)]);
        model.set_clock(1000);
        for request in requests {
            assert!(model.look_up(request.into_iter()) > 1500, "the host is asked");
        }
        for (at, prefetched) in [(2_000_000_000, false), (4_000_000_000, true)] {
            // Both leave L1 while nothing uses them.
            model.set_clock(at);
            assert!(model.is_before(at + 1) && !model.is_before(at));
            model.model().cache.advance(at);
            if prefetched {
                model.prefetch(requests[0].into_iter());
                model.set_clock(at + 10_000);
            }
            let now = model.clock.load(Ordering::Acquire);
            let waited = model.look_up(requests[0].into_iter()) - now;
            assert_eq!(waited <= L1_NS, prefetched, "{waited} ns");
        }
        assert!(model.value("context_prefetches_useful") > 0);
        model.pin(requests[0].into_iter(), true);
        assert_eq!(model.value("context_pins"), 2);
        model.pin(requests[0].into_iter(), false);
    }

    #[test]
    fn what_waits_goes_on_in_the_order_of_its_times() {
        let model = ContextModel::new(ContextModelMode::Time).unwrap();
        for (until, queue) in [(30, Some(3)), (10, Some(1)), (20, None), (40, Some(4))] {
            model.wait(until, queue);
        }
        let mut due = Vec::new();
        assert_eq!(model.deadline(), Some(10));
        model.set_clock(30);
        model.take_due(|queue| due.push(queue));
        assert_eq!((due, model.deadline()), (vec![1, 3], Some(40)));
    }

    #[test]
    fn what_ended_is_no_hit_for_the_next_object_of_its_number() {
        let model = ContextModel::new(ContextModelMode::Count).unwrap();
        let segment = LookedUp::Segment { token_id: 3 << 8, va: 0x5000 };
        let all = [LookedUp::Queue(1), LookedUp::Jfc(1), LookedUp::Tp(7), segment];
        model.look_up(all.into_iter());
        all.into_iter().for_each(|ended| model.end(ended));
        model.look_up(all.into_iter());
        assert_eq!((model.value("context_l1_hits"), model.value("context_l3_hits")), (0, 10));
        model.look_up([LookedUp::Queue(INDICES)].into_iter());
        assert_eq!(model.value("context_untracked"), 1);
    }
}
