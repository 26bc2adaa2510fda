//! Devices: the C struct and what the core reads behind it.
//!
//! *Owns*: `urma_device_t` and `urma_sysfs_dev_t` of each name of the software device. *Takes*:
//! names. *Gives*: attributes, once the device is open.

use core::{ffi::c_char, ptr::NonNull};
use std::sync::Arc;

use urma_core::Eid;

use crate::{
    abi::*,
    call::{Answer, gone, ours, refuse},
    convert::{self, zeroed},
    slab::{Fresh, Owner, Slot},
    udma::{
        hardware::Hardware,
        kind::{self, DeviceOwn, Sysfs},
    },
};

/// `text` as a C string of at most 63 bytes.
pub(crate) fn text(from: &str) -> [c_char; 64] {
    let mut to = [0; 64];
    for (place, byte) in to.iter_mut().take(63).zip(from.bytes()) {
        *place = char_of(byte);
    }
    to
}

/// Makes the device `name` on `hardware`. It has no folder, and its time of creation is now.
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
    // SAFETY: the place is of this function; the clock exists on every Linux, so that the call cannot fail.
    unsafe { libc::clock_gettime(libc::CLOCK_REALTIME, &raw mut sysfs.time_created) };
    publish(sysfs, "", driver, Some(Arc::clone(hardware)))
}

/// Makes a device from its `sysfs` description, with the character device at `path`.
///
/// # Errors
/// ENOMEM.
pub(crate) fn publish(
    mut sysfs: Box<urma_sysfs_dev_t>,
    path: &str,
    driver: NonNull<urma_driver_t>,
    hardware: Option<Arc<Hardware>>,
) -> Answer<Slot<kind::Device>> {
    let fresh = Fresh::<kind::Device>::take()
        .ok_or_else(|| refuse!(ENOMEM, "the library has no place for one more device"))?;
    let mut public: urma_device_t = zeroed();
    public.name = sysfs.dev_name;
    // The last byte stays 0.
    let room = public.path.len() - 1;
    for (place, byte) in public.path.iter_mut().take(room).zip(path.bytes()) {
        *place = char_of(byte);
    }
    public.r#type = sysfs.transport_type;
    // SAFETY: drivers of the registry are never freed.
    public.ops = unsafe { driver.as_ref() }.ops;
    sysfs.driver = driver.as_ptr();
    sysfs.urma_device = fresh.public();
    let sysfs = Sysfs::new(sysfs);
    public.sysfs_dev = sysfs.as_ptr();
    Ok(fresh.publish(Owner::NONE, public, DeviceOwn { hardware, sysfs }))
}

/// Opens the device if need be, and writes its attributes where the core reads them.
///
/// # Errors
/// EINVAL: not a device of this provider. Otherwise the error of opening it.
pub(crate) fn attributes(dev: *const urma_device_t) -> Answer<urma_device_attr_t> {
    let device = ours::<kind::Device>(dev)?;
    let hardware = hardware(device)?;
    let attr = convert::device(&hardware.device()?.attr()?);
    let own = device.lock().ok_or_else(gone::<kind::Device>)?;
    // SAFETY: `own.sysfs` owns the struct, and the lock of the device is held.
    unsafe { (*own.sysfs.as_ptr()).dev_attr = attr };
    Ok(attr)
}

/// The EIDs of a device.
///
/// # Errors
/// The same as those of [`attributes`].
pub(crate) fn eids(dev: *const urma_device_t) -> Answer<Vec<Eid>> {
    let device = ours::<kind::Device>(dev)?;
    Ok(hardware(device)?.device()?.eids()?)
}

/// The software device behind a device. The lock is released first: opening takes time.
///
/// # Errors
/// EINVAL: another provider's device.
pub(super) fn hardware(device: Slot<kind::Device>) -> Answer<Arc<Hardware>> {
    let own = device.lock().ok_or_else(gone::<kind::Device>)?;
    own.hardware.clone().ok_or_else(|| refuse!(EINVAL, "the device is another provider's"))
}

/// Number of channels that exist on a device, under any name; 0 if it is none.
pub(crate) fn channels(dev: *const urma_device_t) -> u64 {
    let hardware = ours::<kind::Device>(dev).and_then(hardware);
    hardware.map_or(0, |hardware| hardware.channels())
}

/// Whether it is a name of the software device.
pub(crate) fn is_software(dev: NonNull<urma_device_t>) -> bool {
    ours::<kind::Device>(dev.as_ptr()).is_ok_and(|device| hardware(device).is_ok())
}
