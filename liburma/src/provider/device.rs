//! Devices of third-party providers.
//!
//! *Owns*: the match of a listed device with a provider. *Takes*: the folders of the class.
//! *Gives*: `urma_device_t` in slots, EIDs. *Must not*: give a device to the built-in provider, whose
//! own device is not listed there.

use core::{ffi::CStr, ptr::NonNull};
use std::{
    ffi::{CString, OsStr},
    os::unix::{ffi::OsStrExt, fs::MetadataExt},
    path::Path,
};

use urma_core::Eid;

use super::{
    registry::{self, Provider},
    sysfs,
};
use crate::{
    abi::*,
    call::{Answer, Object, c_text, refuse},
    convert::zeroed,
    slab::Slot,
    udma::{device, kind},
};

/// Folder of the kernel's character devices.
const DEV_FOLDER: &str = "/dev/uburma";
/// Longest path of a device's folder, in bytes.
const PATH_MAX: usize = URMA_MAX_SYSFS_PATH as usize - 1;
/// Entries of a match table that are read at most.
const MATCHES_MAX: usize = 1024;
/// EID indices that are read at most.
const EIDS_MAX: u32 = 1024;

/// Makes a device for each folder of the class that a provider drives, except for names that are listed already.
///
/// # Errors
/// ENOMEM.
pub(crate) fn discover(
    built_in: *mut urma_provider_ops_t,
    is_listed: impl Fn(&CStr) -> bool,
) -> Answer<Vec<Slot<kind::Device>>> {
    let mut found: Vec<Slot<kind::Device>> = Vec::new();
    let mut names: Vec<CString> = Vec::new();
    for folder in sysfs::devices() {
        if folder.as_os_str().len() > PATH_MAX {
            tracing::warn!(target: "urma", path = %folder.display(), "device skipped: long path");
            continue;
        }
        let sysfs = describe(&folder);
        let name = c_text(&sysfs.dev_name).to_owned();
        let Some(provider) = match_of(&sysfs, built_in) else {
            tracing::info!(target: "urma", ?name, "no provider for the device");
            continue;
        };
        if is_listed(&name) || names.contains(&name) {
            tracing::warn!(target: "urma", ?name, "device skipped: one of this name is listed");
            continue;
        }
        let path = format!("{DEV_FOLDER}/{}", name.to_string_lossy());
        let driver = registry::driver(provider.ops().as_ptr())?;
        found.push(device::publish(sysfs, &path, driver, None)?);
        names.push(name);
    }
    Ok(found)
}

fn describe(folder: &Path) -> Box<urma_sysfs_dev_t> {
    let mut sysfs: Box<urma_sysfs_dev_t> = Box::new(zeroed());
    let file_name = || folder.file_name().unwrap_or_default().to_string_lossy().into_owned();
    let name = sysfs::text(folder, "ubdev").filter(|name| !name.contains('/'));
    sysfs.dev_name = device::text(&name.unwrap_or_else(file_name));
    let path = folder.as_os_str().as_bytes();
    for (place, byte) in sysfs.sysfs_path.iter_mut().take(PATH_MAX).zip(path) {
        *place = char_of(*byte);
    }
    sysfs.driver_name = device::text(&sysfs::text(folder, "driver_name").unwrap_or_default());
    sysfs.transport_type = sysfs::number(folder, "transport_type");
    sysfs.vendor_id = sysfs::number(folder, "device/vendor");
    sysfs.device_id = sysfs::number(folder, "device/device");
    sysfs.dev_attr = sysfs::read_attr(folder);
    if let Ok(about) = folder.metadata() {
        sysfs.time_created.tv_sec = about.mtime();
        sysfs.time_created.tv_nsec = about.mtime_nsec();
    }
    sysfs
}

/// The provider of a device: by vendor and device id, else by the driver's name.
fn match_of(of: &urma_sysfs_dev_t, built_in: *mut urma_provider_ops_t) -> Option<Provider> {
    candidates(built_in).filter(|provider| provider.is_running()).find(|it| drives(*it, of))
}

fn candidates(built_in: *mut urma_provider_ops_t) -> impl Iterator<Item = Provider> {
    registry::all().filter(move |provider| provider.ops().as_ptr() != built_in)
}

fn drives(provider: Provider, of: &urma_sysfs_dev_t) -> bool {
    has_ids(provider, of) || provider.name() == c_text(&of.driver_name).to_string_lossy()
}

fn has_ids(provider: Provider, of: &urma_sysfs_dev_t) -> bool {
    // SAFETY: a provider keeps its table until it unregisters.
    let table = unsafe { (*provider.ops().as_ptr()).match_table };
    if table.is_null() {
        return false;
    }
    for index in 0..MATCHES_MAX {
        // SAFETY: the provider ends its table with an entry of zeros, and none was met yet.
        let entry = unsafe { table.add(index) };
        // SAFETY: the entry is inside of the table, for the same reason.
        let entry = unsafe { entry.read() };
        if entry.vendor_id == 0 || entry.device_id == 0 {
            return false;
        }
        if entry.vendor_id == of.vendor_id && entry.device_id == of.device_id {
            return true;
        }
    }
    false
}

/// Connects a device that a provider made itself to its provider.
///
/// # Errors
/// EINVAL: no struct, none behind it, or no provider that drives it.
pub(crate) fn given(
    mut of: NonNull<urma_sysfs_dev_t>,
    built_in: *mut urma_provider_ops_t,
) -> Answer<NonNull<urma_device_t>> {
    // SAFETY: the provider lends its struct, aligned, for this call, and no other thread has it yet.
    let of = unsafe { of.as_mut() };
    let device = NonNull::new(of.urma_device)
        .ok_or_else(|| refuse!(EINVAL, "urma_device of the given device is NULL"))?;
    // The caller is a provider that may be in its `init`, so it need not run yet.
    let provider = candidates(built_in).find(|it| drives(*it, of)).ok_or_else(|| {
        let driver = c_text(&of.driver_name);
        refuse!(EINVAL, "no provider drives the given device (driver {driver:?})")
    })?;
    of.driver = registry::driver(provider.ops().as_ptr())?.as_ptr();
    // SAFETY: the provider's device, which it lists by this call.
    unsafe { (*device.as_ptr()).ops = provider.ops().as_ptr() };
    Ok(device)
}

/// Reads the EIDs of a device and their indices from its files.
///
/// # Errors
/// EINVAL: no struct behind the device. EIO (`URMA_FAIL`): it has none.
pub(crate) fn eids(dev: Object<urma_device_t>) -> Answer<Vec<(u32, Eid)>> {
    let count = behind(dev)?.dev_attr.dev_cap.max_eid_cnt.min(EIDS_MAX);
    let found: Vec<_> =
        (0..count).filter_map(|index| Some((index, eid_at(dev, index).ok()?))).collect();
    if found.is_empty() {
        Err(refuse!(FAIL, "the device has no EID in its files"))
    } else {
        Ok(found)
    }
}

/// The EID of a device at an index.
///
/// # Errors
/// The same as those of [`eids`].
pub(crate) fn eid_at(dev: Object<urma_device_t>, index: u32) -> Answer<Eid> {
    let sysfs = behind(dev)?;
    let folder = Path::new(OsStr::from_bytes(c_text(&sysfs.sysfs_path).to_bytes()));
    // The second is the file of older modules.
    let text = sysfs::text(folder, &format!("eids/eid{index}"))
        .or_else(|| sysfs::text(folder, &format!("eid{index}/eid")));
    let eid: Option<Eid> = text.and_then(|text| text.parse().ok());
    eid.filter(|eid| !eid.is_unspecified()).ok_or_else(|| {
        refuse!(
            FAIL,
            "the device has no EID at index {index} (file eids/eid{index} of {})",
            folder.display()
        )
    })
}

fn behind(dev: Object<urma_device_t>) -> Answer<Object<urma_sysfs_dev_t>> {
    // SAFETY: the struct lives as long as its device, whose provider or registry keeps both.
    unsafe { Object::at(dev.sysfs_dev) }.ok_or_else(|| refuse!(EINVAL, "dev->sysfs_dev is NULL"))
}
