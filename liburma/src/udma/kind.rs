//! The kinds of objects that live in slots, and what lies behind each.
//!
//! *Owns*: their numbers, which public and private parts belong together, and the private parts, which
//! name each other. *Must not*: say anything about what they do: each noun has a file of its own above.

use core::ptr::NonNull;
use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex},
};

use urma_core::{
    Completion, Context as CoreContext, Eid, ImportedSegment, Jetty as CoreJetty, JettyGroup,
    Jfc as CoreJfc, Jfce as CoreJfce, Jfr as CoreJfr, Jfs as CoreJfs, Segment as CoreSegment,
    StartPsns, TargetJetty, TokenIdLease,
};
use urma_mem::ends::SeenEnds;

use crate::{
    abi::{self, *},
    call::{Answer, refuse},
    slab::{Exclusive, Kind, LastNamed, Named, Owner, Slot},
    udma::{
        event_queue::Events,
        hardware::{Counted, Hardware},
        notices::Notices,
    },
};

macro_rules! kinds {
    ($($(#[$doc:meta])* $name:ident = $code:literal, $public:ident, $own:ty, $access:ident
        $(, $queue:ident)?;)*) => {$(
        $(#[$doc])*
        pub(crate) struct $name;

        // SAFETY: the public part is a C struct of integers and pointers; it needs no drop.
        unsafe impl Kind for $name {
            const CODE: u8 = $code;
            $(const IS_QUEUE: bool = stringify!($queue).len() == 5;)?
            type Public = abi::$public;
            type Own = $own;
        }

        impl $access for $name {}
    )*};
}

kinds! {
    Device = 1, urma_device_t, DeviceOwn, Exclusive;
    Context = 2, urma_context_t, Arc<Ctx>, Exclusive;
    Jfce = 3, urma_jfce_t, Arc<JfceOwn>, Exclusive;
    Jfc = 4, urma_jfc_t, JfcOwn, Exclusive;
    Jfs = 5, urma_jfs_t, JfsOwn, Exclusive, queue;
    Jfr = 6, urma_jfr_t, JfrOwn, Exclusive, queue;
    Jetty = 7, urma_jetty_t, JettyOwn, Exclusive, queue;
    Group = 8, urma_jetty_grp_t, Arc<GroupOwn>, Exclusive;
    /// Of a jetty, a JFR or a group.
    Target = 9, urma_target_jetty_t, TargetOwn, Named;
    /// `urma_target_seg_t`, registered or imported.
    Segment = 10, urma_target_seg_t, SegmentOwn, Named;
    TokenId = 11, urma_token_id_t, TokenOwn, Exclusive;
    Notifier = 12, urma_notifier_t, Arc<NotifierOwn>, Exclusive;
}

/// The private part of a context, with what its objects keep alive.
pub(crate) struct Ctx {
    pub(crate) core: CoreContext,
    /// Keeps the device open as long as a context of it exists, also after `urma_uninit`.
    pub(crate) hardware: Arc<Hardware>,
    /// Owner of its objects, for the slab.
    pub(crate) owner: Owner,
    pub(crate) events: Arc<Events>,
    pub(crate) handles: Mutex<Handles>,
    pub(crate) rare: Mutex<Rare>,
}

/// Private part of a JFC, JFS, JFR or jetty: urma-core's object, what else its kind needs, its context.
pub(crate) struct QueueOwn<C, M = ()> {
    pub(crate) core: C,
    pub(crate) more: M,
    pub(crate) ctx: Arc<Ctx>,
}

/// What lies behind a completion queue.
pub(crate) type JfcOwn = QueueOwn<CoreJfc, JfcMore>;
/// What lies behind a send queue.
pub(crate) type JfsOwn = QueueOwn<CoreJfs, LastNames>;
/// What lies behind a receive queue.
pub(crate) type JfrOwn = QueueOwn<CoreJfr>;
/// What lies behind a jetty.
pub(crate) type JettyOwn = QueueOwn<CoreJetty, JettyMore>;

/// Most completions of one call to the device's driver.
pub(crate) const POLL_BATCH: usize = 16;

/// What a completion queue needs besides urma-core's object.
pub(crate) struct JfcMore {
    /// Room for completions before they are copied to the caller's records; never cleared.
    pub(crate) scratch: [Completion; POLL_BATCH],
    /// Current event moderation: count and microseconds.
    pub(crate) moderation: (u16, u16),
}

/// What the last plain request of a queue named: requests alike find it again more cheaply.
pub(crate) struct LastNames {
    pub(crate) local: LastNamed<Segment>,
    pub(crate) remote: LastNamed<Segment>,
    pub(crate) target: LastNamed<Target>,
    /// All of it at once, valid if nothing ended since.
    pub(crate) form: LastForm,
    /// The same for the last FETCH_ADD or CAS.
    pub(crate) atomic: LastForm,
}

/// The form of a request: its opcode and what it names, by addresses.
#[derive(Clone, Copy)]
pub(crate) struct LastForm {
    /// urma-core's ticket of the request; 0 if there is none.
    pub(crate) ticket: u64,
    /// The epoch when it was posted: no object ended since.
    pub(crate) seen: SeenEnds,
    /// Opcode and flags (`SendRequest::head`), with the bit for signalled always set.
    pub(crate) head: u64,
    pub(crate) is_write: bool,
    pub(crate) hint: u8,
    pub(crate) target: usize,
    /// For an atomic: where the old value is stored, and what it works on.
    pub(crate) src: usize,
    pub(crate) dst: usize,
}

impl LastForm {
    /// The form of no request.
    pub(crate) const NONE: Self = Self {
        ticket: 0,
        seen: SeenEnds::NONE,
        head: u64::MAX,
        is_write: false,
        hint: 0,
        target: 0,
        src: 0,
        dst: 0,
    };
}

impl LastNames {
    /// For a queue without requests.
    pub(crate) const NONE: Self = Self {
        local: LastNamed::NONE,
        remote: LastNamed::NONE,
        target: LastNamed::NONE,
        form: LastForm::NONE,
        atomic: LastForm::NONE,
    };
}

/// What a jetty needs besides urma-core's object.
pub(crate) struct JettyMore {
    pub(crate) last: LastNames,
    /// Keeps the group as long as the jetty exists.
    pub(crate) _group: Option<Arc<GroupOwn>>,
}

/// The private part of a group.
pub(crate) struct GroupOwn {
    pub(crate) core: JettyGroup,
    pub(crate) ctx: Arc<Ctx>,
}

/// The private part of a channel.
pub(crate) struct JfceOwn {
    pub(crate) core: CoreJfce,
    pub(crate) ctx: Arc<Ctx>,
    pub(crate) _counted: Counted,
}

/// The private part of a notifier.
pub(crate) struct NotifierOwn {
    pub(crate) notices: Notices,
    pub(crate) ctx: Arc<Ctx>,
}

/// The private part of a target.
pub(crate) struct TargetOwn {
    pub(crate) core: TargetJetty,
    /// PSNs that came with the import, for a binding.
    pub(crate) psns: StartPsns,
    pub(crate) _ctx: Arc<Ctx>,
}

/// The private part of a segment.
pub(crate) struct SegmentOwn {
    /// For the local side; only of registered segments.
    pub(crate) local: Option<CoreSegment>,
    /// For the remote side; of imported segments, and of registered ones that grant rights: requests to one's own
    /// node may name them.
    pub(crate) remote: Option<ImportedSegment>,
    pub(crate) ctx: Arc<Ctx>,
}

/// The private part of a token id.
pub(crate) struct TokenOwn {
    pub(crate) core: TokenIdLease,
    /// Whether several segments may be registered under it.
    pub(crate) takes_several: bool,
    pub(crate) ctx: Arc<Ctx>,
}

/// What a context needs for requests of rare shapes, created at the first one (see `post::rare`).
#[derive(Default)]
pub(crate) struct Rare {
    pub(crate) stage: Option<Stage>,
    pub(crate) named: BTreeMap<SegmentName, Slot<Segment>>,
}

/// Owner of a segment, its token id there, and the token to show.
pub(crate) type SegmentName = (Eid, u32, Option<u32>);

/// Memory of this library with a segment of its own.
pub(crate) struct Stage {
    pub(crate) memory: NonNull<u8>,
    pub(crate) segment: Slot<Segment>,
}

// SAFETY: `Stage::new` allocated the memory for this value alone; it moves between threads with its context.
unsafe impl Send for Stage {}

/// Handles of one context at most.
const HANDLES_MAX: usize = 1 << 16;

/// A path that a program knows by its handle.
pub(crate) struct TpHandle {
    pub(crate) peer: Eid,
    /// URMA_RTP, URMA_CTP or URMA_UTP.
    pub(crate) kind: u32,
    /// Which attributes were set, by their bits in the C API.
    pub(crate) bitmap: u32,
    pub(crate) attr: AttrBytes,
}

/// The attributes as they lie in memory: members of single bits, packed.
pub(crate) type AttrBytes = [u8; size_of::<urma_tp_attr_value_t>()];

/// The handles of a context. A handle is its number here: 1, 2, ...
#[derive(Default)]
pub(crate) struct Handles {
    pub(crate) known: BTreeMap<u64, TpHandle>,
}

impl Handles {
    /// The handle of the path of this kind to `peer`.
    ///
    /// # Errors
    /// ENOMEM: the context has as many handles as it may have.
    pub(crate) fn of(&mut self, peer: Eid, kind: u32) -> Answer<u64> {
        let known = self.known.iter().find(|(_, tp)| tp.peer == peer && tp.kind == kind);
        if let Some((handle, _)) = known {
            return Ok(*handle);
        }
        if self.known.len() >= HANDLES_MAX {
            return Err(refuse!(ENOMEM, "the context gave out as many handles as it may"));
        }
        let handle = self.known.len() as u64 + 1;
        self.known.insert(handle, TpHandle { peer, kind, bitmap: 0, attr: [0; 128] });
        Ok(handle)
    }
}

/// What lies behind a device.
pub(crate) struct DeviceOwn {
    /// The software device; none behind a device of another provider.
    pub(crate) hardware: Option<Arc<Hardware>>,
    pub(crate) sysfs: Sysfs,
}

/// The struct behind `dev->sysfs_dev`; lives as long as the device.
pub(crate) struct Sysfs(NonNull<urma_sysfs_dev_t>);

// SAFETY: owned memory; it moves between threads with the device that owns it.
unsafe impl Send for Sysfs {}

impl Sysfs {
    /// It is in a list of its own: programs walk the library's list by calls.
    pub(crate) fn new(sysfs: Box<urma_sysfs_dev_t>) -> Self {
        let sysfs = Box::leak(sysfs);
        let node = &raw mut sysfs.node;
        sysfs.node = ub_list { prev: node, next: node };
        Self(NonNull::from(sysfs))
    }

    pub(crate) const fn as_ptr(&self) -> *mut urma_sysfs_dev_t {
        self.0.as_ptr()
    }
}

impl Drop for Sysfs {
    fn drop(&mut self) {
        // SAFETY: leaked by `new`, and this is its one owner.
        drop(unsafe { Box::from_raw(self.0.as_ptr()) });
    }
}
