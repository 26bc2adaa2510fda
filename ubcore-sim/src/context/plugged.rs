//! The model of a NIC that is plugged into the device, and what waits for its times.
//!
//! *Owns*: the virtual time, queues and pieces that wait for contexts, packets that wait for the engine. *Takes*: what
//! requests look up, what is gathered. *Gives*: times. *Must not*: decide a right or the order of anything: the tables do.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use udma_abi::{Nanos, rqe::SGE_MAX};
use urma_mem::sync::{AtomicU64, Ordering};

use crate::nic::{LookedUp, Lookup, LookupSink, ModelMode, NicModel, NicObject, NicScope};

/// Queue and number of a request.
pub(crate) type MessageKey = (u32, u32);

/// When something that waits for its contexts can continue: a send queue, or a piece of a peer.
type Wait = Reverse<(Nanos, Option<u32>)>;

/// A model, and what waits for it.
#[derive(Debug)]
pub(crate) struct PluggedModel {
    model: Arc<dyn NicModel>,
    scope: NicScope,
    /// Virtual time in ns.
    clock: AtomicU64,
    waits: Mutex<BinaryHeap<Wait>>,
    /// For each message in virtual time: end of a packet's bytes, and when it is ready.
    packets: Mutex<BTreeMap<MessageKey, VecDeque<(u64, Nanos)>>>,
}

impl PluggedModel {
    pub(crate) fn new(model: Arc<dyn NicModel>) -> Self {
        let (clock, waits, packets) = (AtomicU64::new(0), Mutex::default(), Mutex::default());
        Self { scope: model.scope(), model, clock, waits, packets }
    }

    // Contexts.

    /// Whether requests look up their contexts.
    #[inline]
    pub(crate) fn has_contexts(&self) -> bool {
        self.scope.contexts != ModelMode::Off
    }

    /// Passes on an object that this function created.
    pub(crate) fn on_created(&self, function: u32, object: NicObject<'_>) {
        self.model.on_created(function, object);
    }

    /// Looks up everything that a request needs at once. Returns when it may start in virtual time; 0: now.
    pub(crate) fn look_up(&self, request: impl Iterator<Item = LookedUp>) -> Nanos {
        self.on_lookup(Lookup::Start, request)
    }

    /// Passes on contexts that the device uses so.
    pub(crate) fn on_lookup(
        &self,
        lookup: Lookup,
        contexts: impl Iterator<Item = LookedUp>,
    ) -> Nanos {
        let (mut all, mut len) = ([LookedUp::Queue(0); LOOKUPS_MAX], 0);
        for (place, looked_up) in all.iter_mut().zip(contexts) {
            *place = looked_up;
            len += 1;
        }
        self.model.on_lookup(self.clock.load(Ordering::Acquire), lookup, &all[..len])
    }

    /// How many requests ahead [`Lookup::Ahead`] is worth a call; 0: none.
    pub(crate) const fn prefetch_distance(&self) -> u32 {
        self.scope.prefetched
    }

    /// Sends copies of all lookups to `sink`, until it wants no more. `false`: there are none.
    pub(crate) fn record(&self, sink: Arc<dyn LookupSink>) -> bool {
        self.has_contexts() && self.model.record(sink)
    }

    // Virtual time.

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
        locked(&self.waits).push(Reverse((until, queue)));
    }

    /// Calls `wake` for the send queues whose time has come.
    pub(crate) fn take_due(&self, mut wake: impl FnMut(u32)) {
        if self.scope.contexts != ModelMode::Time {
            return;
        }
        loop {
            let mut waits = locked(&self.waits);
            let is_due = |Reverse((at, _)): &&Wait| !self.is_before(*at);
            if waits.peek().filter(is_due).is_none() {
                return;
            }
            let queue = waits.pop().and_then(|Reverse((_, queue))| queue);
            drop(waits);
            queue.into_iter().for_each(&mut wake);
        }
    }

    /// When something that waits for its contexts can continue.
    pub(crate) fn deadline(&self) -> Option<Nanos> {
        if self.scope.contexts != ModelMode::Time {
            return None;
        }
        locked(&self.waits).peek().map(|Reverse((at, _))| *at)
    }

    // Packets.

    /// Whether messages in packets pass through the model.
    #[inline]
    pub(crate) fn has_messages(&self) -> bool {
        self.scope.messages != ModelMode::Off
    }

    /// Whether packets wait for their times.
    pub(crate) fn is_paced(&self) -> bool {
        self.scope.messages == ModelMode::Time
    }

    /// Passes on a message of pieces (address, length in bytes), of which nothing was gathered before `now`.
    pub(crate) fn on_message(
        &self,
        (now, key): (Nanos, MessageKey),
        pieces: impl Iterator<Item = (u64, u32)>,
    ) {
        let (mut all, mut len) = ([(0, 0); SGE_MAX], 0);
        for (place, piece) in all.iter_mut().zip(pieces) {
            *place = piece;
            len += 1;
        }
        let times = self.model.on_message(now, &all[..len]);
        if self.is_paced() {
            let mut packets = locked(&self.packets);
            if packets.len() >= MESSAGES_MAX {
                packets.pop_first();
            }
            packets.insert(key, times.into());
        }
    }

    /// Whether the message was passed on, and has not ended.
    pub(crate) fn knows(&self, key: MessageKey) -> bool {
        locked(&self.packets).contains_key(&key)
    }

    /// When the packet that ends before byte `end` of a message may be sent; 0: at once.
    pub(crate) fn packet_ready_at(&self, key: MessageKey, end: u64) -> Nanos {
        let mut packets = locked(&self.packets);
        let Some(times) = packets.get_mut(&key) else { return 0 };
        while times.front().is_some_and(|(bytes, _)| *bytes < end) {
            times.pop_front();
        }
        times.front().map_or(0, |(_, at)| *at)
    }

    /// Forgets a message whose last packet was sent.
    pub(crate) fn end_message(&self, key: MessageKey) {
        locked(&self.packets).remove(&key);
    }

    // Counters.

    /// All counters of the model by name.
    pub(crate) fn counters(&self) -> Vec<(&'static str, u64)> {
        self.model.counters()
    }
}

/// A panic in the middle of a change leaves times that may be off; requests do not depend on them.
fn locked<T>(of: &Mutex<T>) -> MutexGuard<'_, T> {
    of.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Contexts of a request at most: queue, TP, JFC, its pieces; at a target, the segment that it names.
const LOOKUPS_MAX: usize = 4 + SGE_MAX;
/// Most messages whose packets wait for their times; without a time, packets are sent at once.
const MESSAGES_MAX: usize = 8192;

#[cfg(test)]
mod tests {
    use super::*;

    /// A model whose packets of 4 bytes take 10 ns each.
    #[derive(Debug)]
    struct Slow;

    impl NicModel for Slow {
        fn scope(&self) -> NicScope {
            NicScope { contexts: ModelMode::Time, messages: ModelMode::Time, prefetched: 0 }
        }

        fn on_lookup(&self, now: Nanos, _: Lookup, contexts: &[LookedUp]) -> Nanos {
            now + contexts.len() as u64
        }

        fn on_message(&self, now: Nanos, pieces: &[(u64, u32)]) -> Vec<(u64, Nanos)> {
            let len: u64 = pieces.iter().map(|(_, len)| u64::from(*len)).sum();
            (1..=len.div_ceil(4)).map(|n| ((n * 4).min(len), now + n * 10)).collect()
        }

        fn counters(&self) -> Vec<(&'static str, u64)> {
            Vec::new()
        }

        fn record(&self, _: Arc<dyn LookupSink>) -> bool {
            false
        }
    }

    #[test]
    fn what_waits_goes_on_in_the_order_of_its_times() {
        let model = PluggedModel::new(Arc::new(Slow));
        for (until, queue) in [(30, Some(3)), (10, Some(1)), (20, None), (40, Some(4))] {
            model.wait(until, queue);
        }
        let mut due = Vec::new();
        assert_eq!(model.deadline(), Some(10));
        model.set_clock(30);
        assert!(model.is_before(31) && !model.is_before(30));
        model.take_due(|queue| due.push(queue));
        assert_eq!((due, model.deadline()), (vec![1, 3], Some(40)));
    }

    #[test]
    fn every_context_of_the_largest_request_reaches_the_model() {
        let model = PluggedModel::new(Arc::new(Slow));
        model.set_clock(100);
        let all = (0..).map(LookedUp::Queue);
        assert_eq!(model.look_up(all.take(LOOKUPS_MAX)), 100 + 4 + 16);
    }

    #[test]
    fn a_packet_waits_for_its_time_until_its_message_ends() {
        let (model, key) = (PluggedModel::new(Arc::new(Slow)), (1, 2));
        model.on_message((1000, key), [(0, 5), (7, 4)].into_iter());
        assert!(model.knows(key) && !model.knows((1, 3)));
        for (end, ready_at) in [(4, 1010), (4, 1010), (8, 1020), (9, 1030), (10, 0)] {
            assert_eq!(model.packet_ready_at(key, end), ready_at, "{end}");
        }
        model.on_message((2000, key), [(0, 4)].into_iter());
        assert_eq!(model.packet_ready_at(key, 4), 2010, "it was sent again");
        model.end_message(key);
        assert_eq!((model.knows(key), model.packet_ready_at(key, 4)), (false, 0));
    }
}
