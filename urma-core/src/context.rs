//! An open device: everything else is made from it.
//!
//! *Owns*: the reference rule: a context with live objects cannot be deleted. *Takes*:
//! configurations. *Gives*: handles, each of which holds on to the context. The factory methods of
//! the single nouns stand in their files. *Must not*: touch the data path.

use std::{os::fd::BorrowedFd, os::fd::OwnedFd, sync::Arc, time::Duration};

use crate::{AsyncEvent, DeviceAttr, Eid, Refused, Status, Uasid, ops::ContextOps, rules::refuse};

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

impl ContextShared {
    /// Tells contexts apart in the checks of a post; unique while anything of the context lives.
    pub(crate) fn key(self: &Arc<Self>) -> usize {
        Arc::as_ptr(self).addr()
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
    pub fn counters(&self) -> Result<Vec<(&'static str, u64)>, Status> {
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

    pub(crate) fn shared(&self) -> &Arc<ContextShared> {
        &self.shared
    }
}
