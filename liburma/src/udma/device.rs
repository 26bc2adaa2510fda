//! Devices: the C struct and what the core reads behind it.
//!
//! *Owns*: `urma_device_t` and `urma_sysfs_dev_t` of each name of the software device. *Takes*:
//! names. *Gives*: attributes, once the device is open.
#![expect(unsafe_code, reason = "C entry points, and the struct behind sysfs_dev")]

use core::{ffi::c_char, ptr::NonNull};
use std::sync::Arc;

use urma_core::Eid;

use crate::{
    abi::{
        URMA_TRANSPORT_UB, char_of, ub_list, urma_device_attr_t, urma_device_t, urma_driver_t,
        urma_init_attr_t, urma_provider_ops_t, urma_status_t, urma_sysfs_dev_t,
    },
    call::{self, Answer, Code, ours},
    convert::{attr, zeroed},
    slab::{Fresh, Owner, Slot},
    udma::{hardware::Hardware, kind, table},
};

/// What lies behind a device.
pub(crate) struct DeviceOwn {
    /// The software device; none behind a device of another provider.
    pub(crate) hardware: Option<Arc<Hardware>>,
    sysfs: Sysfs,
}

/// The struct behind `dev->sysfs_dev`; lives as long as the device.
struct Sysfs(NonNull<urma_sysfs_dev_t>);

// SAFETY: owned memory; it moves between threads with the device that owns it.
unsafe impl Send for Sysfs {}

impl Sysfs {
    fn new(sysfs: Box<urma_sysfs_dev_t>) -> Self {
        Self(NonNull::from(Box::leak(sysfs)))
    }

    /// A list of its own: programs walk the library's list by calls.
    fn join_list(&self) {
        // SAFETY: owned memory.
        let node = unsafe { &raw mut (*self.0.as_ptr()).node };
        // SAFETY: as above.
        unsafe { node.write(ub_list { prev: node, next: node }) };
    }
}

impl Drop for Sysfs {
    fn drop(&mut self) {
        // SAFETY: leaked by `new`, and this is its one owner.
        drop(unsafe { Box::from_raw(self.0.as_ptr()) });
    }
}

/// `text` as a C string of at most 63 bytes.
pub(crate) fn text(from: &str) -> [c_char; 64] {
    let mut to = [0; 64];
    for (place, byte) in to.iter_mut().take(63).zip(from.bytes()) {
        *place = char_of(byte);
    }
    to
}

/// The device `name` on `hardware`, which has no folder: it is as old as this call.
///
/// # Errors
/// ENOMEM.
pub(crate) fn make(
    name: &str,
    hardware: &Arc<Hardware>,
    driver: NonNull<urma_driver_t>,
) -> Answer<Slot<kind::Device>> {
    let mut sysfs: Box<urma_sysfs_dev_t> = Box::new(zeroed());
    let id = Hardware::id();
    sysfs.dev_name = text(name);
    sysfs.driver_name = text(&id.driver);
    sysfs.transport_type = URMA_TRANSPORT_UB;
    (sysfs.vendor_id, sysfs.device_id) = (id.vendor, id.device);
    // SAFETY: a place for one; the clock exists on every Linux, so this cannot fail.
    unsafe { libc::clock_gettime(libc::CLOCK_REALTIME, &raw mut sysfs.time_created) };
    publish(sysfs, "", driver, Some(Arc::clone(hardware)))
}

/// A device as `sysfs` describes it, with the character device at `path`.
///
/// # Errors
/// ENOMEM.
pub(crate) fn publish(
    mut sysfs: Box<urma_sysfs_dev_t>,
    path: &str,
    driver: NonNull<urma_driver_t>,
    hardware: Option<Arc<Hardware>>,
) -> Answer<Slot<kind::Device>> {
    let fresh = Fresh::<kind::Device>::take().ok_or(Code::ENOMEM)?;
    let mut public: urma_device_t = zeroed();
    public.name = sysfs.dev_name;
    // The last byte stays 0.
    let room = public.path.len() - 1;
    for (place, byte) in public.path.iter_mut().take(room).zip(path.bytes()) {
        *place = char_of(byte);
    }
    public.r#type = sysfs.transport_type;
    // SAFETY: a driver of the registry, which stays.
    public.ops = unsafe { driver.as_ref() }.ops;
    sysfs.driver = driver.as_ptr();
    sysfs.urma_device = fresh.public();
    let sysfs = Sysfs::new(sysfs);
    sysfs.join_list();
    public.sysfs_dev = sysfs.0.as_ptr();
    Ok(fresh.publish(Owner::NOBODY, public, DeviceOwn { hardware, sysfs }))
}

/// Opens the device if need be, and writes its attributes where the core reads them.
///
/// # Errors
/// EINVAL: no device of this provider. What opening says.
pub(crate) fn attributes(dev: *const urma_device_t) -> Answer<urma_device_attr_t> {
    let device = ours::<kind::Device>(dev)?;
    let hardware = hardware(device)?;
    let attr = attr::device(&hardware.attr()?);
    let own = device.lock().ok_or(Code::EINVAL)?;
    // SAFETY: the struct lives as long as the device, whose lock is held.
    unsafe { (*own.sysfs.0.as_ptr()).dev_attr = attr };
    Ok(attr)
}

/// EIDs of a device.
///
/// # Errors
/// As [`attributes`].
pub(crate) fn eids(dev: *const urma_device_t) -> Answer<Vec<Eid>> {
    let device = ours::<kind::Device>(dev)?;
    Ok(hardware(device)?.eids()?)
}

/// The software device behind a device. The lock is let go: opening takes its time.
///
/// # Errors
/// EINVAL: another provider's device.
pub(super) fn hardware(device: Slot<kind::Device>) -> Answer<Arc<Hardware>> {
    device.lock().ok_or(Code::EINVAL)?.hardware.clone().ok_or(Code::EINVAL)
}

/// Whether the software device is behind it.
pub(crate) fn is_software(dev: NonNull<urma_device_t>) -> bool {
    ours::<kind::Device>(dev.as_ptr()).is_ok_and(|device| hardware(device).is_ok())
}

/// `init` of the provider.
pub(crate) unsafe extern "C" fn init(_conf: *mut urma_init_attr_t) -> urma_status_t {
    call::SUCCESS
}

/// `uninit` of the provider.
pub(crate) unsafe extern "C" fn uninit() -> urma_status_t {
    call::SUCCESS
}

/// `query_device` of the provider.
pub(crate) unsafe extern "C" fn query_device(
    dev: *mut urma_device_t,
    to: *mut urma_device_attr_t,
) -> urma_status_t {
    call::status(|| {
        let to = call::place(to)?;
        let attr = attributes(dev)?;
        // SAFETY: a place of the caller's for one.
        unsafe { to.write(attr) };
        Ok(())
    })
}

/// `get_uasid` of the provider: an EID has one address space, number 0 (see `ContextOps::uasid`).
pub(crate) unsafe extern "C" fn get_uasid(to: *mut u32) -> urma_status_t {
    call::status(|| {
        let to = call::place(to)?;
        // SAFETY: a place of the caller's for one.
        unsafe { to.write(0) };
        Ok(())
    })
}

/// The provider's own table; see [`table`].
pub(crate) fn provider() -> *mut urma_provider_ops_t {
    table::provider()
}
