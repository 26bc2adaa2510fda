//! A device that can be opened, and an open one: everything else is made from it.
//!
//! *Owns*: the reference rule: a context with live objects cannot be deleted. *Takes*:
//! configurations. *Gives*: handles, each of which holds on to the context. The factory methods of
//! queues stand in their files. *Must not*: touch the data path; search
//! for hardware.

use std::{
    borrow::Cow,
    os::fd::{BorrowedFd, OwnedFd},
    sync::Arc,
    time::Duration,
};

use urma_mem::Region;

use crate::{
    AsyncEvent, DeviceAttr, DeviceId, Eid, ImportedSegment, Mapping, Refused, RemoteJetty,
    RemoteSegment, Segment, SegmentAccess, SegmentCfg, Status, TargetJetty, TokenIdLease, Uasid,
    memory::{MemoryHome, PathOps, SegmentOps},
    ops::{self, ContextOps},
    rules::refuse,
};

/// An open device with one EID.
#[derive(Debug)]
pub struct Context {
    shared: Arc<ContextShared>,
}

/// What every object made from a context holds on to.
#[derive(Debug)]
pub(crate) struct ContextShared {
    pub(crate) ops: Arc<dyn ContextOps>,
    pub(crate) attr: DeviceAttr,
    pub(crate) eid: Eid,
    pub(crate) uasid: Uasid,
}

impl MemoryHome for ContextShared {
    fn segments(&self) -> &dyn SegmentOps {
        &*self.ops
    }

    fn paths(&self) -> &dyn PathOps {
        &*self.ops
    }

    fn attr(&self) -> &DeviceAttr {
        &self.attr
    }

    fn eid(&self) -> Eid {
        self.eid
    }

    fn uasid(&self) -> Uasid {
        self.uasid
    }

    fn key(&self) -> usize {
        std::ptr::from_ref(self).addr()
    }
}

impl Context {
    pub(crate) fn new(ops: Arc<dyn ContextOps>, attr: DeviceAttr, eid_index: u32) -> Self {
        let (eid, uasid) = (ops.eid(), ops.uasid());
        tracing::debug!(target: "urma", %eid, uasid, eid_index, "context opened");
        Self { shared: Arc::new(ContextShared { ops, attr, eid, uasid }) }
    }

    /// EID of the node that this context belongs to.
    #[must_use]
    pub fn eid(&self) -> Eid {
        self.shared.eid
    }

    /// Its user address space id.
    #[must_use]
    pub fn uasid(&self) -> Uasid {
        self.shared.uasid
    }

    /// Attributes of the device, as they were at opening.
    #[must_use]
    pub fn attr(&self) -> &DeviceAttr {
        &self.shared.attr
    }

    /// Readable exactly while an asynchronous event is unconsumed; for poll and epoll.
    #[must_use]
    pub fn async_fd(&self) -> BorrowedFd<'_> {
        self.shared.ops.async_fd()
    }

    /// A duplicate of [`Context::async_fd`].
    ///
    /// # Errors
    /// `NoMemory`: the process is out of descriptors.
    pub fn dup_async_fd(&self) -> Result<OwnedFd, Status> {
        self.shared.ops.dup_async_fd()
    }

    /// The next asynchronous event, waiting at most `timeout` (`None`: until one comes or the
    /// device fails); `Ok(None)` when none came.
    ///
    /// # Errors
    /// `NoDevice`: the device failed and its fatal event was taken already.
    pub fn next_async(&self, timeout: Option<Duration>) -> Result<Option<AsyncEvent>, Status> {
        self.shared.ops.next_async(timeout)
    }

    /// All counters of the device by name.
    ///
    /// # Errors
    /// The device does not answer.
    pub fn counters(&self) -> Result<Vec<(Cow<'static, str>, u64)>, Status> {
        self.shared.ops.counters()
    }

    /// How many objects made from this context live.
    #[must_use]
    pub fn live_objects(&self) -> usize {
        Arc::strong_count(&self.shared) - 1
    }

    /// Closes the device.
    ///
    /// # Errors
    /// `Again`: objects made from it live.
    pub fn delete(self) -> Result<(), Refused<Self>> {
        match Arc::try_unwrap(self.shared) {
            Ok(_) => Ok(()),
            Err(shared) => {
                let live = Arc::strong_count(&shared) - 1;
                let why = format_args!("{live} objects of the context exist; delete them first");
                let status = refuse(Status::Again, why);
                Err(Refused::new(Self { shared }, status))
            }
        }
    }

    // Memory and peers; queues have their factory methods in their files.

    /// A token id to register under; without one, `register` takes its own.
    ///
    /// # Errors
    /// `NoMemory`: all are in use.
    pub fn alloc_token_id(&self) -> Result<TokenIdLease, Status> {
        TokenIdLease::alloc(&self.home())
    }

    /// Makes `region` known to the device, under `lease` or a token id of its own. Until
    /// [`Segment::unregister`] returned, peers may change the bytes at any time.
    ///
    /// # Errors
    /// `Invalid`: the access rules, an IOVA of 0 or that wraps, a token id of another context.
    /// `Exists`: a segment lives under the token id. `Unsupported`: token policies SIGNED and
    /// ALL_ENCRYPTED; NON_PIN without its feature. What the device cannot reach.
    pub fn register(
        &self,
        region: &Region,
        cfg: &SegmentCfg,
        lease: Option<&TokenIdLease>,
    ) -> Result<Segment, Status> {
        Segment::register(&self.home(), region, cfg, lease)
    }

    /// Imports a peer's segment for the kinds of access in `access`, and finds the path to its
    /// node. What the owner did not grant is refused by its device, request by request.
    ///
    /// # Errors
    /// `Invalid`: address 0, length 0 or a range that wraps; the access rules; LOCAL_ONLY.
    /// `Unsupported`: token policies SIGNED and ALL_ENCRYPTED; a mapping that the device or the
    /// path cannot give. `NoPermission`: mapping with a wrong token or without the access.
    /// `TimedOut`, `Unreachable`: the node was not found.
    pub fn import_segment(
        &self,
        remote: &RemoteSegment,
        access: SegmentAccess,
        mapping: Mapping,
    ) -> Result<ImportedSegment, Status> {
        ImportedSegment::import(&self.home(), remote, access, mapping)
    }

    /// Imports a peer's jetty, JFR or group, and finds the path to its node.
    ///
    /// # Errors
    /// `Invalid`: order or path type do not fit the mode, id 0 or of more than 20 bits, EID zero.
    /// `Unsupported`: mode, path type or token policy that is not built. `TimedOut`,
    /// `Unreachable`: the node was not found.
    pub fn import_jetty(&self, remote: &RemoteJetty) -> Result<TargetJetty, Status> {
        TargetJetty::import(&self.home(), remote)
    }

    pub(crate) fn shared(&self) -> &Arc<ContextShared> {
        &self.shared
    }

    fn home(&self) -> Arc<dyn MemoryHome> {
        Arc::<ContextShared>::clone(&self.shared)
    }
}

/// A device that can be opened.
#[derive(Clone, Debug)]
pub struct Device {
    ops: Arc<dyn ops::DeviceOps>,
}

impl Device {
    /// The device that a provider drives.
    #[must_use]
    pub fn new(ops: Arc<dyn ops::DeviceOps>) -> Self {
        Self { ops }
    }

    /// Vendor and device number, and the name that the device is listed under.
    #[must_use]
    pub fn id(&self) -> DeviceId {
        self.ops.id()
    }

    /// Attributes and limits.
    ///
    /// # Errors
    /// The device does not answer.
    pub fn attr(&self) -> Result<DeviceAttr, Status> {
        self.ops.attr()
    }

    /// Its EIDs by index. They are claimed before they are answered.
    ///
    /// # Errors
    /// The device does not answer; the EID could not be claimed.
    pub fn eids(&self) -> Result<Vec<Eid>, Status> {
        self.ops.eids()
    }

    /// A context with the EID at `eid_index`.
    ///
    /// # Errors
    /// `Invalid`: there is no such EID. The device does not come up.
    pub fn open(&self, eid_index: u32) -> Result<Context, Status> {
        let count = self.ops.eids()?.len();
        if usize::try_from(eid_index).map_or(true, |index| index >= count) {
            let why =
                format_args!("there is no EID with index {eid_index}: the device has {count}");
            return Err(refuse(Status::Invalid, why));
        }
        let attr = self.ops.attr()?;
        Ok(Context::new(self.ops.open(eid_index)?, attr, eid_index))
    }
}
