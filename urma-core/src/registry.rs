//! Providers, devices, and which provider drives which device.
//!
//! *Owns*: both lists. *Takes*: providers, and handles of devices that somebody found.
//! *Gives*: `Device`s to open. *Must not*: search for hardware.

use std::sync::Arc;

use crate::{
    Context, DeviceAttr, DeviceId, Eid, Status,
    ops::{self, DeviceHandle, Provider},
    rules::refuse,
};

/// A device that can be opened.
#[derive(Clone, Debug)]
pub struct Device {
    ops: Arc<dyn ops::Device>,
}

impl Device {
    /// A device that its provider made directly, without a registry.
    #[must_use]
    pub fn new(ops: Arc<dyn ops::Device>) -> Self {
        Self { ops }
    }

    /// Who it is.
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
            let why = format_args!("EID index {eid_index}, the device has {count} EIDs");
            return Err(refuse(Status::Invalid, why));
        }
        let attr = self.ops.attr()?;
        Ok(Context::new(self.ops.open(eid_index)?, attr, eid_index))
    }
}

/// The providers and devices of a program.
#[derive(Default, Debug)]
pub struct Registry {
    providers: Vec<Arc<dyn Provider>>,
    devices: Vec<Device>,
}

impl Registry {
    /// Nothing yet.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds a provider; earlier ones are asked first.
    ///
    /// # Errors
    /// `Exists`: one of this name is there.
    pub fn add_provider(&mut self, provider: Arc<dyn Provider>) -> Result<(), Status> {
        if self.providers.iter().any(|known| known.name() == provider.name()) {
            let why = format_args!("a provider named {} is registered", provider.name());
            return Err(refuse(Status::Exists, why));
        }
        self.providers.push(provider);
        Ok(())
    }

    /// Adds a device: the first provider that matches it takes `handle`.
    ///
    /// # Errors
    /// `Invalid`: its name is empty or longer than 63 bytes. `Exists`: the name is taken.
    /// `NoDevice`: no provider drives it. What the provider says about the handle.
    pub fn add_device(&mut self, id: &DeviceId, handle: DeviceHandle) -> Result<Device, Status> {
        const NAME_MAX: usize = 63;
        if id.name.is_empty() || id.name.len() > NAME_MAX {
            return Err(refuse(Status::Invalid, format_args!("device name {:?}", id.name)));
        }
        if self.device_by_name(&id.name).is_some() {
            return Err(refuse(Status::Exists, format_args!("device {} is known", id.name)));
        }
        let Some(provider) = self.providers.iter().find(|provider| provider.is_match(id)) else {
            return Err(refuse(Status::NoDevice, format_args!("no provider drives {id:?}")));
        };
        let device = Device::new(provider.attach(id, handle)?);
        self.devices.push(device.clone());
        Ok(device)
    }

    /// All devices, in the order in which they were added.
    #[must_use]
    pub fn device_list(&self) -> &[Device] {
        &self.devices
    }

    /// The device of this name.
    #[must_use]
    pub fn device_by_name(&self, name: &str) -> Option<&Device> {
        self.devices.iter().find(|device| device.id().name == name)
    }

    /// The device that has this EID, and the EID's index. Devices that do not answer are passed.
    #[must_use]
    pub fn device_by_eid(&self, eid: Eid) -> Option<(&Device, u32)> {
        self.devices.iter().find_map(|device| {
            let index = device.eids().ok()?.iter().position(|have| *have == eid)?;
            Some((device, u32::try_from(index).ok()?))
        })
    }
}
