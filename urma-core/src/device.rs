//! A device that can be opened.
//!
//! *Takes*: what a provider made of a device that it drives. *Gives*: contexts. *Must not*: search
//! for hardware.

use std::sync::Arc;

use crate::{Context, DeviceAttr, DeviceId, Eid, Status, ops, rules::refuse};

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
