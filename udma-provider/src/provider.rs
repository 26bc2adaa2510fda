//! The provider: a UDMA device as the API has it.
//!
//! *Owns*: a device's state while it is up. *Takes*: an `Arc<dyn DeviceBacking>`. *Gives*:
//! urma-core's `DeviceOps`. *Must not*: know which backing it is.

use std::sync::{Arc, Mutex};

use udma_abi::{
    DeviceBacking, RawEid,
    caps::{Caps, Features},
    cmd::Command,
};
use urma_core::{
    AtomicFeatures, DeviceAttr, DeviceCaps, DeviceFeatures, DeviceId, Eid, Guid, ModeSet, Mtu,
    PortAttr, PortState, Status,
    ops::{ContextOps, DeviceOps},
};

use crate::{
    alloc::{DmaAlloc, lock},
    context::UdmaContext,
    device::{Driver, DriverCfg},
    jfc::JfcTable,
};

/// Creates the API's device on `backing`, with a driver of [`DriverCfg::default`].
#[must_use]
pub fn device_on(backing: Arc<dyn DeviceBacking>) -> urma_core::Device {
    urma_core::Device::new(Arc::new(UdmaDevice::new(backing, DriverCfg::default())))
}

/// A device that is up: its driver, and the JFCs on it.
#[derive(Clone, Debug)]
struct RunningDevice {
    driver: Arc<Driver>,
    jfcs: Arc<JfcTable>,
}

/// A UDMA device on any backing. It is brought up at the first use and again after a failure.
#[derive(Debug)]
pub struct UdmaDevice {
    id: DeviceId,
    backing: Arc<dyn DeviceBacking>,
    /// Outlives a driver that failed: memory that it still holds keeps its device addresses.
    dma: Arc<DmaAlloc>,
    cfg: DriverCfg,
    up: Mutex<Option<RunningDevice>>,
}

impl UdmaDevice {
    /// Creates the device on `backing`; does not touch it yet.
    #[must_use]
    pub fn new(backing: Arc<dyn DeviceBacking>, cfg: DriverCfg) -> Self {
        let info = backing.info();
        let id = DeviceId {
            name: info.name,
            driver: info.driver_name,
            vendor: info.vendor_id,
            device: info.device_id,
        };
        let dma = DmaAlloc::new(backing.dma(), cfg.ring_pages);
        Self { id, backing, dma, cfg, up: Mutex::new(None) }
    }

    /// Resets the device under everything that uses it: outstanding requests end with flushed completions, contexts
    /// are dead, and the next [`DeviceOps::open`] brings it up again.
    ///
    /// # Errors
    /// `NoDevice`: it did not come back.
    pub fn reset(&self) -> Result<(), Status> {
        match lock(&self.up).take() {
            Some(up) => up.driver.reset(),
            None => self.backing.reset().map_err(|_| Status::NoDevice),
        }
    }

    /// The driver of the device that is up.
    #[cfg(test)]
    pub(crate) fn driver(&self) -> Option<Arc<Driver>> {
        lock(&self.up).as_ref().map(|up| Arc::clone(&up.driver))
    }

    fn up(&self) -> Result<RunningDevice, Status> {
        let mut slot = lock(&self.up);
        if let Some(up) = slot.as_ref().filter(|up| up.driver.check().is_ok()) {
            return Ok(up.clone());
        }
        if let Some(dead) = slot.take() {
            dead.driver.retire();
        }
        let dma = Arc::clone(&self.dma);
        let driver = Driver::bring_up(Arc::clone(&self.backing), dma, &self.cfg)?;
        Ok(slot.insert(RunningDevice { driver, jfcs: Arc::default() }).clone())
    }
}

impl DeviceOps for UdmaDevice {
    fn id(&self) -> DeviceId {
        self.id.clone()
    }

    fn attr(&self) -> Result<DeviceAttr, Status> {
        let driver = self.up()?.driver;
        let eid = eid_at(&driver, 0)?.0;
        Ok(attr_of(&driver.caps, driver.features(), eid))
    }

    fn eids(&self) -> Result<Vec<Eid>, Status> {
        let driver = self.up()?.driver;
        let (first, count) = eid_at(&driver, 0)?;
        let most = u64::min(count, driver.caps.max_eid.max(1));
        let rest = (1..u32::try_from(most).unwrap_or(u32::MAX)).map(|index| eid_at(&driver, index));
        std::iter::once(Ok((first, count)))
            .chain(rest)
            .map(|found| found.map(|(eid, _)| eid))
            .collect()
    }

    fn open(&self, eid_index: u32) -> Result<Arc<dyn ContextOps>, Status> {
        let RunningDevice { driver, jfcs } = self.up()?;
        let (eid, count) = eid_at(&driver, eid_index)?;
        if u64::from(eid_index) >= count {
            return Err(Status::Invalid.why(format_args!(
                "there is no EID with index {eid_index}: the device has {count}"
            )));
        }
        Ok(Arc::new(UdmaContext::new(driver, jfcs, eid)))
    }
}

/// The EID at `index`, and how many there are.
fn eid_at(driver: &Driver, index: u32) -> Result<(Eid, u64), Status> {
    let results = driver.execute(&Command::QueryEid { index })?;
    let eid = RawEid::from_words([results[1], results[2]]);
    Ok((Eid::from_bytes(eid.0), results[0]))
}

fn attr_of(caps: &Caps, features: Features, eid: Eid) -> DeviceAttr {
    let mtu = Mtu::at_most(caps.mtu_max);
    DeviceAttr {
        // The EID is unique where the device lives, and nothing else is.
        guid: Guid(eid.bytes()),
        caps: caps_of(caps, features),
        ports: vec![PortAttr {
            max_mtu: mtu,
            // A UM message is one packet: its limit is what the device sends in one.
            active_mtu: Mtu::at_most(caps.max_um_size),
            state: PortState::Active,
            width: LINK_X1,
            speed: SPEED_100G,
        }],
        reserved_id_min: narrow(caps.reserved_id_min),
        reserved_id_max: narrow(caps.reserved_id_max),
    }
}

fn caps_of(caps: &Caps, features: Features) -> DeviceCaps {
    DeviceCaps {
        features: features_of(features),
        atomics: AtomicFeatures::all(),
        modes: ModeSet::all(),
        max_jfc: narrow(caps.max_jfc),
        max_jfs: narrow(caps.max_jfs),
        max_jfr: narrow(caps.max_jfr),
        max_jetty: narrow(caps.max_jetty),
        max_jetty_grp: narrow(caps.max_jetty_grp),
        max_jetty_in_grp: narrow(caps.max_jetty_in_grp),
        max_jfc_depth: narrow(caps.max_jfc_depth),
        max_jfs_depth: narrow(caps.max_jfs_depth),
        max_jfr_depth: narrow(caps.max_jfr_depth),
        max_jfs_inline: narrow(caps.max_inline),
        max_jfs_sge: narrow(caps.max_jfs_sge),
        max_jfs_rsge: narrow(caps.max_jfs_rsge),
        max_jfr_sge: narrow(caps.max_jfr_sge),
        max_msg_size: caps.max_msg_size,
        max_read_size: narrow(caps.max_read_size),
        max_write_size: narrow(caps.max_write_size),
        max_atomic_size: narrow(caps.max_atomic_size),
        max_um_size: narrow(caps.max_um_size),
        ceq_cnt: narrow(caps.max_eq),
        max_eid_cnt: narrow(caps.max_eid),
        max_seg: narrow(caps.max_seg),
        page_size_cap: caps.page_size_cap,
    }
}

fn features_of(features: Features) -> DeviceFeatures {
    [
        (Features::JFC_INLINE, DeviceFeatures::JFC_INLINE),
        (Features::LOAD_STORE, DeviceFeatures::LOAD_STORE),
        (Features::SELECTIVE_RETRANS, DeviceFeatures::SELECTIVE_RETRANS),
        (Features::JETTY_GRP, DeviceFeatures::JETTY_GRP),
        (Features::ERROR_SUSPEND, DeviceFeatures::ERROR_SUSPEND),
        (Features::OUTORDER_COMP, DeviceFeatures::OUTORDER_COMP),
        (Features::NON_PIN, DeviceFeatures::NON_PIN),
    ]
    .into_iter()
    .filter(|(has, _)| features.contains(*has))
    .fold(DeviceFeatures::empty(), |all, (_, feature)| all | feature)
}

/// A limit in the API's width; a larger one is as good as the largest.
fn narrow(limit: u64) -> u32 {
    u32::try_from(limit).unwrap_or(u32::MAX)
}

/// `urma_link_width_t` (UMDK release 26.06); a software port has one lane.
const LINK_X1: u8 = 1;
/// `urma_speed_t` (UMDK release 26.06): the class of memory bandwidth between two processes.
const SPEED_100G: u8 = 10;
