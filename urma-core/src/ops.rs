//! Provider operations: what a driver gives to the API, split by plane.
//!
//! Control-plane traits may allocate, lock and wait (with a bound). Data-plane traits do none of these: one
//! method posts or polls a batch, and optional ones post a request that is like the last one. Nothing here
//! knows rings, registers or devices.
//!
//! Requests have passed urma-core's checks when they arrive here.

use std::{borrow::Cow, fmt::Debug, os::fd::OwnedFd, sync::Arc, time::Duration};

use crate::{
    Arm, AsyncEvent, Completion, CompletionFlags, DeviceAttr, DeviceId, Eid, JettyState, JfcCfg,
    PostError, QueueCfg, QueueStatus, RecvWr, SendWr, StartPsns, Status, TargetId, Token,
};

pub use crate::memory::{PathOps, RemoteSegmentId, SegmentOps};

// ---- data plane -------------------------------------------------------------------------------

/// Posts send requests. One owner at a time (`&mut`), so no lock is needed below.
pub trait SendQueue: Send + Debug {
    /// Posts all requests and rings the doorbell once.
    ///
    /// # Errors
    /// The index of the first request that was not taken; all before it are posted. `Full` at index 0 changes nothing.
    fn post_send(&mut self, wrs: &[SendWr<'_>]) -> Result<(), PostError>;

    /// Executes within this call a WRITE or READ that differs from the last one only by what the arguments give: the
    /// last one of one local piece, not inline, that [`SendQueue::post_send`] took. The provider checks the length and
    /// that the local piece lies in its segment. `false`: nothing happened, and the request may still be valid.
    fn execute_repeat(
        &mut self,
        user_ctx: u64,
        remote: u64,
        local: u64,
        len: u32,
        is_signalled: bool,
    ) -> bool {
        let _ = (user_ctx, remote, local, len, is_signalled);
        false
    }

    /// Posts the front of `repeats`, as much as there is room for, and rings once. Returns how many were posted; the
    /// rest is for [`SendQueue::post_send`]. A provider need not remember the last requests.
    fn try_repeat(&mut self, repeats: LikeLast<'_>) -> usize {
        let _ = repeats;
        0
    }
}

/// Requests that differ from the last one of their kind only by addresses, lengths, contexts, and whether they are
/// signalled.
#[derive(Clone, Copy, Debug)]
pub enum LikeLast<'a> {
    /// WRITEs or READs like the last one of one local piece, not inline.
    Transfers(&'a [TransferDelta]),
    /// A SEND like the last one of one local piece, not inline, that was posted alone; its `remote` is 0.
    Message(&'a TransferDelta),
    /// A FETCH_ADD or CAS like the last one that was posted alone, with the same length.
    Atomic(&'a AtomicDelta),
}

/// What differs between a request and the last one.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct TransferDelta {
    /// Address of the local piece.
    pub local: u64,
    /// Address of the first byte at the target.
    pub remote: u64,
    /// Length of the local piece in bytes.
    pub len: u32,
    /// Comes back in the completion.
    pub user_ctx: u64,
    /// Signalled: success makes a completion, too.
    pub is_signalled: bool,
}

/// What differs between an atomic and the last one.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct AtomicDelta {
    /// Addresses, context and whether it is signalled.
    pub transfer: TransferDelta,
    /// FETCH_ADD: value that is added; CAS: value that is stored.
    pub operand: u64,
    /// CAS: value that is expected; else 0.
    pub compare: u64,
}

/// Posts receive requests. One owner at a time (`&mut`), so no lock is needed below.
pub trait RecvQueue: Send + Debug {
    /// Posts all.
    ///
    /// # Errors
    /// The index of the first request that was not taken; all before it are posted.
    fn post_recv(&mut self, wrs: &[RecvWr<'_>]) -> Result<(), PostError>;
}

/// Takes completions off a JFC. One owner at a time (`&mut`), so no lock is needed below.
pub trait CompletionQueue: Send + Debug {
    /// Fills the front of `out`, returns how many. Never waits.
    ///
    /// # Errors
    /// The device failed.
    fn poll(&mut self, out: &mut [Completion]) -> Result<usize, Status>;

    /// Takes the oldest completion if it is that of a successful send request. `sender` stays with the caller from one
    /// call to the next: it is written only when another queue's completion comes. Makes no system call.
    fn take_done(&mut self, sender: &mut CompletingQueue) -> DoneLook {
        let _ = sender;
        DoneLook::UNKNOWN
    }

    /// Asks for one event. Fires at once when matching completions wait.
    ///
    /// # Errors
    /// `Invalid`: the JFC has no JFCE. The device failed.
    fn arm(&mut self, what: Arm) -> Result<(), Status>;
}

/// Result of [`CompletionQueue::take_done`]. Two words, because those are returned in registers.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct DoneLook {
    /// Payload length; above 2^32 if nothing was taken.
    word: u64,
    user_ctx: u64,
}

impl DoneLook {
    /// The queue is empty; a poll would find nothing either.
    pub const EMPTY: Self = Self { word: 1 << 32, user_ctx: 0 };
    /// Nothing was taken; call [`CompletionQueue::poll`].
    pub const UNKNOWN: Self = Self { word: 2 << 32, user_ctx: 0 };

    /// A completion of the sender was taken, of a request with this context and payload length in bytes. All its other
    /// fields are the default ones.
    #[inline(always)]
    #[must_use]
    pub const fn of(user_ctx: u64, len: u32) -> Self {
        Self { word: len as u64, user_ctx }
    }

    /// Context and payload length in bytes of the request whose completion was taken.
    #[inline(always)]
    #[must_use]
    pub fn taken(self) -> Option<(u64, u32)> {
        u32::try_from(self.word).ok().map(|len| (self.user_ctx, len))
    }
}

/// The queue whose completions [`CompletionQueue::take_done`] takes. It never lies in two cache lines.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
#[repr(align(32))]
pub struct CompletingQueue {
    /// Changes with the queue; 0: none yet.
    pub version: u32,
    /// Number of the queue on its device.
    pub local_id: u32,
    /// Context that the program gave to the queue.
    pub queue_ctx: u64,
    /// Flags of its completions: [`CompletionFlags::JETTY`], or none.
    pub flags: CompletionFlags,
}

// ---- control plane ----------------------------------------------------------------------------

/// A device that a provider drives.
pub trait DeviceOps: Send + Sync + Debug {
    /// Returns vendor and device number, and the name that the device is listed under.
    fn id(&self) -> DeviceId;

    /// Attributes and limits.
    ///
    /// # Errors
    /// The device does not answer.
    fn attr(&self) -> Result<DeviceAttr, Status>;

    /// Its EIDs, by index.
    ///
    /// # Errors
    /// The device does not answer; the EID could not be claimed.
    fn eids(&self) -> Result<Vec<Eid>, Status>;

    /// A context with the EID at `eid_index`.
    ///
    /// # Errors
    /// No such EID; the device does not come up.
    fn open(&self, eid_index: u32) -> Result<Arc<dyn ContextOps>, Status>;
}

/// An open context: the factory of everything else.
pub trait ContextOps: QueueFactory + SegmentOps + PathOps + EventOps {
    /// Returns the EID that the context was opened with.
    fn eid(&self) -> Eid;

    /// Its user address space id.
    fn uasid(&self) -> u32;
}

/// A new queue: its number, its control part, and what may be posted to it.
#[derive(Debug)]
pub struct QueueParts {
    /// Its id, 20 bits.
    pub id: u32,
    /// Modifies, queries and flushes the queue; shared with the core's control plane.
    pub control: Arc<dyn QueueControl>,
    /// Send half; for JFS and jetty.
    pub send: Option<Box<dyn SendQueue>>,
    /// Receive half; for JFR and jetty (a jetty with a shared JFR posts through that JFR's).
    pub recv: Option<Box<dyn RecvQueue>>,
}

/// Parts of a JFC that a provider has just created.
#[derive(Debug)]
pub struct JfcParts {
    /// Number of the JFC on its device.
    pub id: u32,
    /// Arms and modifies the JFC; shared with the core's control plane.
    pub control: Arc<dyn JfcControl>,
    /// The half that polls; its owner is the program's JFC.
    pub queue: Box<dyn CompletionQueue>,
}

/// Creates queues, JFCs and event channels of a context.
pub trait QueueFactory: Send + Sync + Debug {
    /// Event channel for completions.
    ///
    /// # Errors
    /// `NoMemory`: no event queue or descriptor is left.
    fn create_jfce(&self) -> Result<Arc<dyn JfceControl>, Status>;

    /// Completion queue; events go to `jfce`.
    ///
    /// # Errors
    /// Limits of the device.
    fn create_jfc(
        &self,
        cfg: &JfcCfg,
        jfce: Option<&Arc<dyn JfceControl>>,
    ) -> Result<JfcParts, Status>;

    /// JFS, JFR or jetty.
    ///
    /// # Errors
    /// `Exists`: the requested id is in use. Limits of the device.
    fn create_queue(&self, cfg: &QueueCfg) -> Result<QueueParts, Status>;

    /// Jetty group with the wanted id (0 = any); returns its id.
    ///
    /// # Errors
    /// `Exists`, limits of the device.
    fn create_group(
        &self,
        id: u32,
        policy: HintPolicy,
        token: Option<Token>,
    ) -> Result<u32, Status>;

    /// Forgets a group.
    ///
    /// # Errors
    /// `Again`: it has members.
    fn delete_group(&self, id: u32) -> Result<(), Status>;
}

/// How a group picks a member.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum HintPolicy {
    /// Each message goes to the next jetty of the group.
    RoundRobin,
    /// By the request's hint.
    HashHint,
}

/// Control part of a JFS, JFR or jetty. Dropping it deletes the queue as well as may be.
pub trait QueueControl: Send + Sync + Debug {
    /// Moves the queue to `state`.
    ///
    /// # Errors
    /// `Invalid`: no such transition.
    fn modify(&self, state: JettyState) -> Result<(), Status>;

    /// One limit event when fewer receives than `threshold` are left.
    ///
    /// # Errors
    /// `Invalid`: the queue has no receives of its own.
    fn set_rx_threshold(&self, threshold: u32) -> Result<(), Status>;

    /// State and fill.
    ///
    /// # Errors
    /// The device failed.
    fn query(&self) -> Result<QueueStatus, Status>;

    /// RC: pairs with a remote jetty. `psns` are for the standard opcodes, where a device speaks them.
    ///
    /// # Errors
    /// `Exists`: it is bound already. `NoPermission`: not RC.
    fn bind(&self, target: &TargetId, psns: Option<StartPsns>) -> Result<(), Status>;

    /// RC: undoes a pairing.
    ///
    /// # Errors
    /// `Invalid`: it is not bound.
    fn unbind(&self) -> Result<(), Status>;

    /// Moves to the error state and takes up to `out.len()` of this queue's flushed requests out of
    /// its JFC, in order; of a queue that sends, those of the send side.
    ///
    /// # Errors
    /// The device failed.
    fn flush(&self, out: &mut [Completion]) -> Result<usize, Status>;

    /// Deletes: every outstanding request gets its flushed completion first.
    ///
    /// # Errors
    /// `Again`: in use by others.
    fn delete(&self) -> Result<(), Status>;
}

/// Control part of a JFC.
pub trait JfcControl: Send + Sync + Debug {
    /// Event moderation: after `count` completions or `period_us` microseconds.
    ///
    /// # Errors
    /// The device failed.
    fn moderate(&self, count: u16, period_us: u16) -> Result<(), Status>;

    /// Deletes.
    ///
    /// # Errors
    /// `Again`: a queue uses it.
    fn delete(&self) -> Result<(), Status>;
}

/// Control part of an event channel (JFCE).
pub trait JfceControl: Send + Sync + Debug + std::any::Any {
    /// Readable exactly while an event is unconsumed; for poll and epoll.
    fn fd(&self) -> std::os::fd::BorrowedFd<'_>;

    /// Takes up to `out.len()` events (JFC numbers), waiting at most `timeout` for the first
    /// (`None` waits until the channel is deleted or the device fails). Returns what is ready
    /// when a signal interrupts.
    ///
    /// # Errors
    /// The channel was deleted; the device failed.
    fn wait(&self, out: &mut [u32], timeout: Option<Duration>) -> Result<usize, Status>;

    /// Deletes; waiters return.
    ///
    /// # Errors
    /// `Fail`: a JFC uses it.
    fn delete(&self) -> Result<(), Status>;
}

/// Asynchronous events and counters.
pub trait EventOps: Send + Sync + Debug {
    /// Readable exactly while an event is unconsumed.
    fn async_fd(&self) -> std::os::fd::BorrowedFd<'_>;

    /// The next asynchronous event, waiting at most `timeout`; `None` when none came.
    ///
    /// # Errors
    /// The device failed and its fatal event was taken already.
    fn next_async(&self, timeout: Option<Duration>) -> Result<Option<AsyncEvent>, Status>;

    /// All counters of the device by name.
    ///
    /// # Errors
    /// The device does not answer.
    fn counters(&self) -> Result<Vec<(Cow<'static, str>, u64)>, Status>;

    /// A duplicate of a descriptor, for callers that hand it on.
    ///
    /// # Errors
    /// The process is out of descriptors.
    fn dup_async_fd(&self) -> Result<OwnedFd, Status> {
        self.async_fd().try_clone_to_owned().map_err(|_| Status::NoMemory)
    }
}
