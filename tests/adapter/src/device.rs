//! Devices: a node in the library's list, as urma-core sees it.
//!
//! *Owns*: the device in the list, and the start of the library. *Gives*: contexts.
#![expect(unsafe_code, reason = "calls of C functions")]

use std::sync::{Arc, OnceLock};

use liburma::{
    abi::{urma_device_attr_t, urma_device_t},
    face::{
        device::{urma_free_eid_list, urma_get_eid_list, urma_query_device},
        lifecycle::urma_init,
    },
    plug::{Plugged, plug},
    zeroed,
};
use urma_core::{
    AtomicFeatures, DeviceAttr, DeviceCaps, DeviceFeatures, DeviceId, Eid, Guid, ModeSet, Mtu,
    PortAttr, PortState, Status,
    ops::{ContextOps, DeviceOps},
};

use crate::{
    context::CContext,
    value::{self, Ptr, done},
};

/// A device that is reached through the C functions.
#[derive(Debug)]
pub struct CDevice {
    id: DeviceId,
    plugged: Plugged,
}

impl CDevice {
    /// Starts the library, once, and adds `device` to its list under `name`.
    ///
    /// # Errors
    /// `Exists`: the name is in use. What starting the library says.
    pub fn plug(name: &str, device: urma_core::Device) -> Result<Self, Status> {
        static STARTED: OnceLock<Result<(), Status>> = OnceLock::new();
        // SAFETY: NULL is allowed and asks for the defaults; the library reads nothing through it.
        (*STARTED.get_or_init(|| done(unsafe { urma_init(core::ptr::null_mut()) })))?;
        let id = DeviceId { name: name.to_owned(), ..device.id() };
        Ok(Self { id, plugged: plug(name, device)? })
    }

    pub(crate) fn ptr(&self) -> Ptr<urma_device_t> {
        Ptr(self.plugged.device())
    }
}

/// A device that its contexts keep.
impl DeviceOps for CDeviceHandle {
    fn id(&self) -> DeviceId {
        self.0.id.clone()
    }

    fn attr(&self) -> Result<DeviceAttr, Status> {
        let mut attr = zeroed();
        // SAFETY: a listed device, and a place for one.
        done(unsafe { urma_query_device(self.0.ptr().0, &raw mut attr) })?;
        Ok(attributes(&attr))
    }

    fn eids(&self) -> Result<Vec<Eid>, Status> {
        let mut count = 0;
        // SAFETY: a listed device, and a place for one.
        let list = Ptr::made(unsafe { urma_get_eid_list(self.0.ptr().0, &raw mut count) })?;
        // SAFETY: the library says how many there are.
        let infos = unsafe { core::slice::from_raw_parts(list.0, count as usize) };
        let eids = infos.iter().map(|info| value::eid(info.eid)).collect();
        // SAFETY: the list that the library gave.
        unsafe { urma_free_eid_list(list.0) };
        Ok(eids)
    }

    fn open(&self, eid_index: u32) -> Result<Arc<dyn ContextOps>, Status> {
        Ok(Arc::new(CContext::open(&self.0, eid_index)?))
    }
}

/// A [`CDevice`] as urma-core holds it.
#[derive(Clone, Debug)]
pub(crate) struct CDeviceHandle(Arc<CDevice>);

impl From<CDevice> for urma_core::Device {
    fn from(device: CDevice) -> Self {
        Self::new(Arc::new(CDeviceHandle(Arc::new(device))))
    }
}

/// What C says of a device. A UM message is one packet, so that the port has its size. C has no
/// number of segments: the library's own check is the only one.
fn attributes(from: &urma_device_attr_t) -> DeviceAttr {
    let ports = from.port_attr.iter().take(usize::from(from.port_cnt)).map(port).collect();
    DeviceAttr {
        guid: Guid(from.guid.raw),
        caps: caps(from),
        ports,
        reserved_id_min: from.reserved_jetty_id_min,
        reserved_id_max: from.reserved_jetty_id_max,
    }
}

fn caps(from: &urma_device_attr_t) -> DeviceCaps {
    let cap = &from.dev_cap;
    DeviceCaps {
        features: DeviceFeatures::from_bits_truncate(cap.feature.value),
        atomics: AtomicFeatures::from_bits_truncate(cap.atomic_feat.value),
        modes: ModeSet::from_bits_truncate(cap.trans_mode),
        max_jfc: cap.max_jfc,
        max_jfs: cap.max_jfs,
        max_jfr: cap.max_jfr,
        max_jetty: cap.max_jetty,
        max_jetty_grp: cap.max_jetty_grp,
        max_jetty_in_grp: cap.max_jetty_in_jetty_grp,
        max_jfc_depth: cap.max_jfc_depth,
        max_jfs_depth: cap.max_jfs_depth,
        max_jfr_depth: cap.max_jfr_depth,
        max_jfs_inline: cap.max_jfs_inline_len,
        max_jfs_sge: cap.max_jfs_sge,
        max_jfs_rsge: cap.max_jfs_rsge,
        max_jfr_sge: cap.max_jfr_sge,
        max_msg_size: cap.max_msg_size,
        max_read_size: cap.max_read_size,
        max_write_size: cap.max_write_size,
        max_atomic_size: cap.max_cas_size,
        max_um_size: port(&from.port_attr[0]).active_mtu.bytes(),
        ceq_cnt: cap.ceq_cnt,
        max_eid_cnt: cap.max_eid_cnt,
        max_seg: u32::MAX,
        page_size_cap: cap.page_size_cap,
    }
}

fn port(from: &liburma::abi::urma_port_attr_t) -> PortAttr {
    // Numbers of MTUs are powers of two from 256 on.
    let mtu = |code: u32| Mtu::at_most(128_u64 << code.min(6));
    let state = match from.state {
        1 => PortState::Down,
        2 => PortState::Init,
        3 => PortState::Armed,
        4 => PortState::Active,
        5 => PortState::ActiveDefer,
        _ => PortState::Nop,
    };
    let narrow = |number: u32| u8::try_from(number).unwrap_or(0);
    PortAttr {
        max_mtu: mtu(from.max_mtu),
        active_mtu: mtu(from.active_mtu),
        state,
        width: narrow(from.active_width),
        speed: narrow(from.active_speed),
    }
}
