//! Model of the contexts that a NIC's chip would hold of a device: `urma-contexts`, asked once per request.
//!
//! Must not decide a right or the order of anything: the device does.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use ubcore_sim::nic::{LookedUp, Lookup, LookupSink, ModelMode, NicObject};
use udma_abi::{
    Nanos,
    cmd::{CreateQueue, NONE, QueueState, RegisterSeg},
};
use urma_contexts::{
    AccessMode, CacheCfg, ContextCache, ContextHandle, ContextKind, SmallOp, TokenBody, policy,
};

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
    mode: ModelMode,
    model: Mutex<Model>,
}

#[derive(Debug)]
struct Model {
    cache: ContextCache,
    tps: SmallNumbers<u32>,
    /// By token id and page number.
    pages: SmallNumbers<(u32, u64)>,
    /// Fields of the tokens of queues, JFCs and segments, and the functions (PDs) of queues and segments.
    bodies: BTreeMap<(ContextKind, u32), TokenBody>,
    functions: BTreeMap<(ContextKind, u32), u32>,
    /// Model time in ns: the virtual time, or each request begins when the one before had its contexts.
    now: u64,
    /// Lookups of things for which no number was left.
    untracked: u64,
    /// Requests like an earlier one that were counted but not yet applied to the cache.
    repeats: Repeats,
    /// Receiver of copies of all lookups.
    sink: Option<Arc<dyn LookupSink>>,
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
    /// An empty chip with the defaults of [`CacheCfg`] and this project's policy. `None`: the mode is off.
    pub(crate) fn new(mode: ModelMode) -> Option<Self> {
        if mode == ModelMode::Off {
            return None;
        }
        let cache = ContextCache::new(CacheCfg::default(), &mut policy::ours).ok()?;
        let model = Model {
            cache,
            tps: SmallNumbers::new(),
            pages: SmallNumbers::new(),
            bodies: BTreeMap::new(),
            functions: BTreeMap::new(),
            now: 0,
            untracked: 0,
            repeats: Repeats::default(),
            sink: None,
        };
        Some(Self { mode, model: Mutex::new(model) })
    }

    /// Whether requests wait for their contexts.
    pub(crate) const fn mode(&self) -> ModelMode {
        self.mode
    }

    /// How many requests ahead a prefetch is worth a call; 0: none, as there is no time between posting and start.
    pub(crate) fn prefetched(&self) -> u32 {
        if self.mode == ModelMode::Time { PREFETCHED } else { 0 }
    }

    /// Takes contexts that the device uses as `lookup` says. Returns when a request that starts with them may; 0: now.
    pub(crate) fn on_lookup(&self, now: Nanos, lookup: Lookup, contexts: &[LookedUp]) -> Nanos {
        let mut model = self.model();
        match lookup {
            Lookup::Start => return self.look_up(&mut model, now, contexts),
            Lookup::Ahead => model.prefetch(now, contexts),
            Lookup::Pin | Lookup::Unpin => model.pin(now, contexts, lookup),
            Lookup::End => contexts.iter().for_each(|ended| model.end(*ended)),
        }
        0
    }

    /// Looks up everything that a request needs at once.
    fn look_up(&self, model: &mut Model, now: Nanos, contexts: &[LookedUp]) -> Nanos {
        let request = RequestLookups::of(contexts);
        if self.mode == ModelMode::Count {
            model.count(&request);
            return 0;
        }
        model.now = model.now.max(now);
        model.look_up(&request).0
    }

    /// Takes what the driver said of an object: the fields of its token.
    pub(crate) fn on_created(&self, function: u32, object: NicObject<'_>) {
        let mut model = self.model();
        let (kind, number, body) = match object {
            NicObject::Jfc { jfcn, depth_log2 } => (ContextKind::Jfc, jfcn, jfc(jfcn, depth_log2)),
            NicObject::Queue(number, args) => {
                model.functions.insert((ContextKind::Queue, number), function);
                (ContextKind::Queue, number, queue(function, number, args))
            }
            NicObject::Segment(args) => {
                let number = args.token_id >> TOKEN_ID_SHIFT;
                model.functions.insert((ContextKind::Segment, number), function);
                (ContextKind::Segment, number, segment(args))
            }
        };
        model.bodies.insert((kind, number), body);
    }

    /// Sends copies of all lookups to `sink`, until it wants no more.
    pub(crate) fn record(&self, sink: Arc<dyn LookupSink>) {
        let mut model = self.model();
        model.apply_repeats();
        model.sink = Some(sink);
    }

    /// All counters, those of the cache and two of this model.
    pub(crate) fn counters(&self) -> Vec<(&'static str, u64)> {
        let mut model = self.model();
        model.apply_repeats();
        let mut all: BTreeMap<_, _> = model.cache.counts().list().into_iter().collect();
        all.insert("untracked".to_owned(), model.untracked);
        all.insert("model_ns".to_owned(), model.now);
        let value = |name: &str| name.strip_prefix(PREFIX).and_then(|name| all.get(name)).copied();
        NAMES.iter().map(|name| (*name, value(name).unwrap_or(0))).collect()
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
                let Some(context) = self.context(looked_up, kind, number) else { continue };
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
            LookedUp::Queue(number) => {
                // Its PD says whose it is.
                let function = self.functions.get(&(ContextKind::Queue, number));
                let context = function.map(|function| (ContextKind::Context, Some(*function)));
                ((ContextKind::Queue, Some(number)), context)
            }
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
    fn context(
        &mut self,
        looked_up: LookedUp,
        kind: ContextKind,
        number: Option<u32>,
    ) -> Option<KnownContext> {
        let handle =
            number.filter(|number| *number < INDICES).and_then(|n| ContextHandle::new(kind, n));
        let Some(handle) = handle else {
            self.untracked += 1;
            return None;
        };
        if self.cache.directory().read(handle).is_none()
            && self.cache.create(handle.index(), &self.body(looked_up, kind, handle)).is_err()
        {
            self.untracked += 1;
            return None;
        }
        let generation = self.cache.directory().generation(handle);
        let op = if kind == ContextKind::Page { SmallOp::Read } else { SmallOp::Add(1) };
        Some(KnownContext { handle, generation, op })
    }

    /// Fields of the token of what is looked up for the first time.
    fn body(&self, looked_up: LookedUp, kind: ContextKind, handle: ContextHandle) -> TokenBody {
        match (kind, looked_up) {
            (ContextKind::Context, _) => {
                TokenBody::Context { uasid: handle.index().into(), flags: 0, eid_index: 0 }
            }
            (ContextKind::Tp, LookedUp::Tp(tpn)) => TokenBody::Tp {
                tpn: u64::from(tpn) & TPN_MASK,
                strategy: 0,
                next_psn: 0,
                state: 0,
                acknowledged_psn: 0,
                rest: 0,
                path: 0,
            },
            (ContextKind::Page, LookedUp::Segment { va, .. }) => {
                TokenBody::Page { address: va >> PAGE_SHIFT << PAGE_SHIFT }
            }
            // Of an object that was created before the model knew of it nothing is known.
            _ => self
                .bodies
                .get(&(kind, handle.index()))
                .copied()
                .unwrap_or_else(|| TokenBody::zero(kind)),
        }
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

    /// Reads the contexts of a request that did not start.
    fn prefetch(&mut self, now: Nanos, contexts: &[LookedUp]) {
        self.now = self.now.max(now);
        let handles: Vec<_> = contexts.iter().flat_map(|one| self.known_handles(*one)).collect();
        self.cache.prefetch(&handles, self.now);
    }

    /// Pins contexts when the first packet of a message is sent, and unpins them at the last one.
    fn pin(&mut self, now: Nanos, contexts: &[LookedUp], lookup: Lookup) {
        self.apply_repeats();
        self.now = self.now.max(now);
        for handle in contexts.iter().flat_map(|one| self.known_handles(*one)).collect::<Vec<_>>() {
            if lookup == Lookup::Pin {
                self.cache.pin(handle, self.now);
            } else {
                self.cache.unpin(handle);
            }
        }
    }

    /// Removes an object that ended: its number may name another one from now on.
    fn end(&mut self, ended: LookedUp) {
        self.apply_repeats();
        self.repeats.forget();
        match ended {
            LookedUp::Queue(number) => self.destroy(ContextKind::Queue, number),
            LookedUp::Jfc(number) => self.destroy(ContextKind::Jfc, number),
            LookedUp::Tp(tpn) => {
                if let Some(number) = self.tps.end(tpn) {
                    self.destroy(ContextKind::Tp, number);
                }
            }
            LookedUp::Segment { token_id, .. } => {
                let all = (token_id, 0)..=(token_id, u64::MAX);
                let pages: Vec<_> = self.pages.of.range(all).map(|(key, _)| *key).collect();
                for key in pages {
                    if let Some(number) = self.pages.end(key) {
                        self.destroy(ContextKind::Page, number);
                    }
                }
                self.destroy(ContextKind::Segment, token_id >> TOKEN_ID_SHIFT);
            }
        }
    }

    fn destroy(&mut self, kind: ContextKind, number: u32) {
        self.bodies.remove(&(kind, number));
        self.functions.remove(&(kind, number));
        if let Some(handle) = ContextHandle::new(kind, number) {
            self.cache.destroy(handle, self.now);
        }
    }
}

/// Fields of a JFC's token.
fn jfc(number: u32, depth_log2: u8) -> TokenBody {
    TokenBody::Jfc {
        number: u64::from(number) & NUMBER_MASK,
        vector: 0,
        depth_log2: depth_log2.into(),
        arm_flags: 0,
        consumer: 0,
    }
}

/// Fields of the token of a queue of this function.
fn queue(function: u32, number: u32, args: &CreateQueue) -> TokenBody {
    let numbered = |number: u32| if number == NONE { 0 } else { u64::from(number) & NUMBER_MASK };
    let receives = args.rq.map_or(args.recv_jfcn, |rq| rq.jfcn);
    TokenBody::Queue {
        number: numbered(number),
        mode: args.mode as u64,
        state: QueueState::Ready as u64,
        flags: u64::from(args.flags.bits()) & 0xf,
        jfr: numbered(args.shared_jfr),
        context: u64::from(function) & 0xfff,
        send_jfc: args.sq.map_or(0, |sq| numbered(sq.jfcn)),
        priority: args.sq.map_or(0, |sq| u64::from(sq.priority) & 0xf),
        access: 0,
        receive_jfc: numbered(receives),
        rest: 0,
    }
}

/// Fields of a segment's token.
fn segment(args: &RegisterSeg) -> TokenBody {
    let pages = (args.len + (args.va & (PAGE_BYTES - 1))).div_ceil(PAGE_BYTES);
    TokenBody::Segment {
        token_id: args.token_id.into(),
        access: args.access.bits().into(),
        page_shift: PAGE_SHIFT.into(),
        flags: args.token_value.is_some().into(),
        pages: pages.min(u32::MAX.into()),
        generation_low: 0,
    }
}

/// Counters of the model, as the device shows them.
const NAMES: [&str; 39] = [
    "context_accesses",
    "context_l1_hits",
    "context_l2_hits",
    "context_l3_hits",
    "context_migration_hits",
    "context_installed",
    "context_refused",
    "context_evicted_clean",
    "context_evicted_dirty",
    "context_model_ns",
    "context_wait_mean_ns",
    "context_wait_p99_ns",
    "context_untracked",
    "context_l1_misses",
    "context_queue_accesses",
    "context_queue_l1_hits",
    "context_tp_accesses",
    "context_tp_l1_hits",
    "context_jfc_accesses",
    "context_jfc_l1_hits",
    "context_segment_accesses",
    "context_segment_l1_hits",
    "context_page_accesses",
    "context_page_l1_hits",
    "context_fallbacks_batch",
    "context_fallbacks_expand",
    "context_staged",
    "context_migrations_to_l1",
    "context_migrations_to_l2",
    "context_migrations_to_l3",
    "context_prefetches_issued",
    "context_prefetches_useful",
    "context_prefetches_late",
    "context_prefetches_dropped",
    "context_pins",
    "context_mailbox_depth_max",
    "context_wait_p999_ns",
    "context_access_bytes",
    "context_l1_bytes",
];
/// What is in front of the names of the cache.
const PREFIX: &str = "context_";
/// Latency of the chip in ns: time of a request that hits only.
const L1_NS: u64 = 4;
/// Contexts of a usual request: queue and its PD, TP, JFC, segment and page of two pieces.
const KNOWN: usize = 8;
/// Requests ahead of their turn whose contexts are asked for: 900 ns of a miss at 30 M requests/s.
const PREFETCHED: u32 = 27;
/// Indices of a kind: those of queues, JFCs and segments have 20 bits.
const INDICES: u32 = 1 << 20;
/// A token id is an index shifted by this.
const TOKEN_ID_SHIFT: u32 = 8;
/// Pages of 4 KiB.
const PAGE_SHIFT: u32 = 12;
const PAGE_BYTES: u64 = 1 << PAGE_SHIFT;
/// Numbers of queues and JFCs in tokens have 20 bits, those of TPs 24.
const NUMBER_MASK: u64 = 0xf_ffff;
const TPN_MASK: u64 = 0xff_ffff;

/// Things that a usual request looks up at most: queue, TP, JFC and five pieces.
const USUAL: usize = 8;
/// Requests that are remembered, a power of two.
const REMEMBERED: usize = 256;
/// Longest time of the model in ns that is not given to it: an interval of its maintenance.
const KEPT_NS: u64 = 50_000;

/// What a request looks up, addresses as pages.
#[derive(Debug)]
struct RequestLookups {
    first: [LookedUp; USUAL],
    len: usize,
    /// What does not fit.
    rest: Vec<LookedUp>,
}

impl RequestLookups {
    #[inline]
    fn of(all: &[LookedUp]) -> Self {
        let mut first = [LookedUp::Queue(0); USUAL];
        let (usual, rest) = all.split_at(all.len().min(USUAL));
        for (place, looked_up) in first.iter_mut().zip(usual) {
            *place = match *looked_up {
                LookedUp::Segment { token_id, va } => {
                    LookedUp::Segment { token_id, va: va >> PAGE_SHIFT << PAGE_SHIFT }
                }
                LookedUp::Queue(_) | LookedUp::Jfc(_) | LookedUp::Tp(_) => *looked_up,
            };
        }
        Self { first, len: usual.len(), rest: rest.to_vec() }
    }

    fn all(&self) -> impl Iterator<Item = LookedUp> + '_ {
        self.usual().iter().chain(&self.rest).copied()
    }

    #[inline]
    fn usual(&self) -> &[LookedUp] {
        &self.first[..self.len]
    }

    /// Where it is remembered: by its queue, a receive beside a send.
    #[inline]
    fn place(&self) -> usize {
        let number = |looked_up: &LookedUp| match *looked_up {
            LookedUp::Queue(number) => number * 2,
            LookedUp::Tp(_) => 1,
            LookedUp::Jfc(_) => 0,
            LookedUp::Segment { token_id, .. } => token_id >> 7,
        };
        let sum: u32 = self.usual().iter().take(2).map(number).fold(0, u32::wrapping_add);
        sum as usize % REMEMBERED
    }
}

#[derive(Clone, Debug, Default)]
struct Remembered {
    request: Vec<LookedUp>,
    contexts: Vec<KnownContext>,
    /// How often it came since the model was given its count.
    times: u64,
}

/// Requests that are remembered.
///
/// They are like an earlier one whose contexts all stay on the chip: they are counted, and given to the model later
/// in one step. A change of what is on the chip ends that.
#[derive(Debug, Default)]
struct Repeats {
    of: Vec<Remembered>,
    /// Places of those that came.
    came: Vec<usize>,
    drained_at: u64,
}

impl Repeats {
    /// Counts a request that is remembered. Whether it is.
    #[inline]
    fn count(&mut self, request: &RequestLookups) -> bool {
        let place = request.place();
        let Some(known) = self.of.get_mut(place) else { return false };
        if known.request.is_empty() || known.request != request.usual() || !request.rest.is_empty()
        {
            return false;
        }
        if known.times == 0 {
            self.came.push(place);
        }
        known.times += 1;
        true
    }

    /// Whether it is time to give the model what was counted.
    #[inline]
    fn are_due(&self, now: u64) -> bool {
        now >= self.drained_at + KEPT_NS
    }

    /// Gives each context of what was counted to `hit`, with the number of times.
    fn drain(&mut self, now: u64, mut hit: impl FnMut(KnownContext, u64)) {
        self.drained_at = now;
        for place in self.came.drain(..) {
            let Some(known) = self.of.get_mut(place) else { continue };
            let times = std::mem::take(&mut known.times);
            known.contexts.iter().for_each(|context| hit(*context, times));
        }
    }

    /// A request found all of its contexts on the chip; everything that was counted was drained.
    fn learn(&mut self, request: &RequestLookups, contexts: Vec<KnownContext>) {
        if contexts.is_empty() || !request.rest.is_empty() {
            return;
        }
        self.of.resize(REMEMBERED, Remembered::default());
        let request_of = request.usual().to_vec();
        self.of[request.place()] = Remembered { request: request_of, contexts, times: 0 };
    }

    /// What is on the chip changed; everything that was counted was drained.
    fn forget(&mut self) {
        self.of.iter_mut().for_each(|known| known.request.clear());
    }
}

#[cfg(test)]
mod tests {
    use udma_abi::cmd::{Access, CmdQueueKind, Mode, QueueFlags, SqArgs};

    use super::*;

    fn value(model: &ContextModel, name: &str) -> u64 {
        let counters = model.counters();
        let found = counters.iter().find(|(known, _)| *known == format!("context_{name}"));
        found.unwrap_or_else(|| panic!("no counter {name}")).1
    }

    fn start(model: &ContextModel, now: Nanos, request: &[LookedUp]) -> Nanos {
        model.on_lookup(now, Lookup::Start, request)
    }

    #[test]
    fn every_counter_is_one_of_the_cache_or_of_the_model() {
        let model = ContextModel::new(ModelMode::Count).unwrap();
        let of_cache = model.model().cache.counts().list();
        for name in NAMES {
            let name = name.strip_prefix(PREFIX).unwrap();
            let is_own = ["untracked", "model_ns"].contains(&name);
            assert!(is_own || of_cache.iter().any(|(known, _)| *known == name), "{name}");
        }
    }

    #[test]
    fn a_request_is_one_access_of_each_of_its_contexts() {
        let model = ContextModel::new(ModelMode::Count).unwrap();
        let segment = LookedUp::Segment { token_id: 3 << 8, va: 0x5000 };
        let request = [LookedUp::Queue(1), LookedUp::Jfc(1), LookedUp::Tp(0xab_cdef), segment];
        start(&model, 0, &request);
        let value = |name| value(&model, name);
        assert_eq!((value("accesses"), value("l3_hits")), (5, 5));
        let first = value("model_ns");
        assert!(first > 500, "the host was asked: {first} ns");
        start(&model, 0, &request);
        assert_eq!((value("accesses"), value("l1_hits")), (10, 5));
        assert!(value("model_ns") - first <= 8, "the chip was enough");
        assert_eq!(value("page_accesses"), 2);
    }

    const QUEUE: CreateQueue = CreateQueue {
        kind: CmdQueueKind::Jetty,
        id: 0,
        mode: Mode::Rc,
        flags: QueueFlags::TOKEN,
        cookie: 0,
        record: 0,
        sq: Some(SqArgs {
            base: 0,
            blocks_log2: 6,
            jfcn: 3,
            rnr_retry: 0,
            err_timeout: 0,
            priority: 5,
        }),
        rq: None,
        shared_jfr: 9,
        recv_jfcn: 4,
        group: NONE,
    };

    #[test]
    fn tokens_hold_what_the_driver_said_of_their_objects_and_a_queue_its_pd() {
        let model = ContextModel::new(ModelMode::Count).unwrap();
        let access = Access::READ | Access::WRITE;
        let (token_id, va, len) = (3 << 8, 0x5f00, 0x2000);
        let args = RegisterSeg { token_id, iova: 0, va, len, access, token_value: Some(1) };
        model.on_created(2, NicObject::Jfc { jfcn: 3, depth_log2: 7 });
        model.on_created(2, NicObject::Queue(1, &QUEUE));
        model.on_created(2, NicObject::Segment(&args));
        let segment = LookedUp::Segment { token_id, va: 0x6010 };
        let all = [LookedUp::Queue(1), LookedUp::Jfc(3), LookedUp::Tp(0xab_cdef), segment];
        start(&model, 0, &all);
        assert_eq!((value(&model, "accesses"), value(&model, "untracked")), (6, 0));
        let body = |kind, number| {
            let model = model.model();
            let handle = ContextHandle::new(kind, number).unwrap();
            model.cache.token(handle).unwrap().body()
        };
        assert_eq!(
            body(ContextKind::Queue, 1),
            TokenBody::Queue {
                number: 1,
                mode: 2,
                state: 1,
                flags: 4,
                jfr: 9,
                context: 2,
                send_jfc: 3,
                priority: 5,
                access: 0,
                receive_jfc: 4,
                rest: 0,
            }
        );
        let context = TokenBody::Context { uasid: 2, flags: 0, eid_index: 0 };
        assert_eq!(body(ContextKind::Context, 2), context);
        assert_eq!(body(ContextKind::Jfc, 3), jfc(3, 7));
        // 0x5f00 to 0x7eff: three pages.
        let (access, pages) = (6, 3);
        let wanted = TokenBody::Segment {
            token_id: token_id.into(),
            access,
            page_shift: 12,
            flags: 1,
            pages,
            generation_low: 0,
        };
        assert_eq!(body(ContextKind::Segment, 3), wanted);
        assert_eq!(body(ContextKind::Page, 0), TokenBody::Page { address: 0x6000 });
        let TokenBody::Tp { tpn, .. } = body(ContextKind::Tp, 0) else { panic!("a TP") };
        assert_eq!(tpn, 0xab_cdef);
        // Another object of that number is another one.
        model.on_lookup(0, Lookup::End, &[LookedUp::Queue(1)]);
        start(&model, 0, &[LookedUp::Queue(1)]);
        assert_eq!(body(ContextKind::Queue, 1), TokenBody::zero(ContextKind::Queue));
    }

    /// Requests that repeat leave what they would leave one by one.
    #[test]
    fn repeated_requests_are_counted_as_if_one_by_one() {
        let [by_sums, one_by_one] = [(); 2].map(|()| ContextModel::new(ModelMode::Count).unwrap());
        let mut random = 1_u64;
        for round in 0..20_000_u32 {
            random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(round.into());
            // A few queues that repeat, and some that come and go.
            let queue = u32::try_from(random >> 60).unwrap();
            let queue = if round % 100 == 0 { 1000 + round } else { queue / 3 };
            let segment = LookedUp::Segment { token_id: queue << 8, va: 0x5000 };
            let request = [LookedUp::Queue(queue), LookedUp::Jfc(1), LookedUp::Tp(7), segment];
            start(&by_sums, 0, &request);
            one_by_one.model().count_anew(&RequestLookups::of(&request));
            if round % 1000 == 999 {
                for model in [&by_sums, &one_by_one] {
                    model.on_lookup(0, Lookup::End, &[LookedUp::Queue(queue)]);
                }
            }
        }
        let names =
            ["accesses", "l1_hits", "l3_hits", "installed", "queue_accesses", "page_l1_hits"];
        for name in names.iter().chain(&["model_ns", "wait_mean_ns"]) {
            assert_eq!(value(&by_sums, name), value(&one_by_one, name), "{name}");
        }
        assert!(value(&by_sums, "l1_hits") > 60_000);
    }

    #[test]
    fn in_virtual_time_a_request_waits_and_a_prefetched_one_does_not() {
        let model = ContextModel::new(ModelMode::Time).unwrap();
        let requests = [1, 2].map(|queue| [LookedUp::Queue(queue), LookedUp::Jfc(1)]);
        for request in &requests {
            assert!(start(&model, 1000, request) > 1500, "the host is asked");
        }
        for (at, prefetched) in [(2_000_000_000, false), (4_000_000_000, true)] {
            // Both leave L1 while nothing uses them.
            model.model().cache.advance(at);
            let mut now = at;
            if prefetched {
                model.on_lookup(at, Lookup::Ahead, &requests[0]);
                now += 10_000;
            }
            let waited = start(&model, now, &requests[0]) - now;
            assert_eq!(waited <= L1_NS, prefetched, "{waited} ns");
        }
        assert!(value(&model, "prefetches_useful") > 0);
        model.on_lookup(0, Lookup::Pin, &requests[0]);
        assert_eq!(value(&model, "pins"), 2);
        model.on_lookup(0, Lookup::Unpin, &requests[0]);
    }

    #[test]
    fn what_ended_is_no_hit_for_the_next_object_of_its_number() {
        let model = ContextModel::new(ModelMode::Count).unwrap();
        let segment = LookedUp::Segment { token_id: 3 << 8, va: 0x5000 };
        let all = [LookedUp::Queue(1), LookedUp::Jfc(1), LookedUp::Tp(7), segment];
        start(&model, 0, &all);
        model.on_lookup(0, Lookup::End, &all);
        start(&model, 0, &all);
        assert_eq!((value(&model, "l1_hits"), value(&model, "l3_hits")), (0, 10));
        start(&model, 0, &[LookedUp::Queue(INDICES)]);
        assert_eq!(value(&model, "untracked"), 1);
    }
}
