//! What a device says to a model of a NIC's insides, and what it asks it. Who opens the device plugs one in
//! ([`Ports::nic`](crate::Ports)).
//!
//! *Owns*: the trait, the values that cross it. *Must not*: know a model.

use std::{fmt::Debug, sync::Arc};

use udma_abi::{
    Nanos,
    cmd::{CreateQueue, RegisterSeg},
};

/// Model of what is inside a NIC. It decides nothing but times: rights, order and bytes are the device's.
pub trait NicModel: Send + Sync + Debug {
    /// What the model wants to know; the same for as long as the device lives.
    fn scope(&self) -> NicScope;

    /// Takes an object of this function when it was created, before anything looks it up.
    fn on_created(&self, _function: u32, _object: NicObject<'_>) {}

    /// Takes contexts that the device used at virtual time `now`. Returns when a request that starts with them
    /// ([`Lookup::Start`]) may do so; 0: at once.
    fn on_lookup(&self, now: Nanos, lookup: Lookup, contexts: &[LookedUp]) -> Nanos;

    /// Takes a message whose pieces (address, bytes) were gathered, to be cut into packets, at virtual time `now`.
    /// Returns for each packet the end of its bytes in the message and when it is ready; nothing: all are at once.
    fn on_message(&self, now: Nanos, pieces: &[(u64, u32)]) -> Vec<(u64, Nanos)>;

    /// All counters of the model, by names that no other counter of the device has.
    fn counters(&self) -> Vec<(&'static str, u64)>;

    /// Sends copies of all lookups to `sink` until it wants no more. `false`: the model has none.
    fn record(&self, sink: Arc<dyn LookupSink>) -> bool;
}

/// Receiver of copies of a device's context lookups.
pub trait LookupSink: Send + Sync + Debug {
    /// Takes the lookups of a request: handles of the model, in order. `false`: it wants no more. Must not block.
    fn on_lookups(&self, handles: &[u32]) -> bool;
}

/// What a model wants to know.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct NicScope {
    /// Contexts that requests look up; every request takes the long path, which does that.
    pub contexts: ModelMode,
    /// Messages that go in packets.
    pub messages: ModelMode,
    /// Requests ahead of their turn whose contexts are prefetched; 0: none.
    pub prefetched: u32,
}

/// Whether something is modelled.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum ModelMode {
    /// No: the device does not call the model.
    #[default]
    Off,
    /// It has counters; nothing is delayed.
    Count,
    /// The device waits for the times of the model. For virtual time, whose clock is set by
    /// [`set_virtual_time`](crate::SoftwareDevice::set_virtual_time): a real clock cannot keep latencies of some ns.
    Time,
}

/// How the device uses contexts.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Lookup {
    /// All of a request, which starts with them.
    Start,
    /// Those of a request that is posted and did not start: they may be prefetched.
    Ahead,
    /// Those of a message of several packets, of which the first one was sent.
    Pin,
    /// The same, when the last packet was sent.
    Unpin,
    /// The object ended: its number may name another one from now on. All pages of a segment end with it.
    End,
}

/// An object that was created, with what the driver said of it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum NicObject<'a> {
    /// A JFC that was created.
    Jfc {
        /// Number of the JFC.
        jfcn: u32,
        /// Logarithm of the number of its entries.
        depth_log2: u8,
    },
    /// A JFS, JFR or jetty: its number, and its arguments.
    Queue(u32, &'a CreateQueue),
    /// A segment that was registered.
    Segment(&'a RegisterSeg),
}

/// One thing that a request looks up.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum LookedUp {
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
