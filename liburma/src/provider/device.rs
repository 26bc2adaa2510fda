//! Devices of third-party providers, as the kernel's `ubcore` class lists them (`URMA_SYSFS_PATH`).
//!
//! Matches each listed device with a provider, never with the built-in one, whose own device is not listed there;
//! and reads EIDs and attributes from its files, 0 where one is not there. Must not hold a file open or judge the
//! numbers.

use core::{ffi::CStr, ptr::NonNull};
use std::{
    ffi::{CString, OsStr},
    fs::File,
    io::Read,
    os::unix::{ffi::OsStrExt, fs::MetadataExt},
    path::{Path, PathBuf},
};

use urma_core::Eid;

use super::Provider;
use crate::{
    abi::*,
    call::{Answer, Object, c_text, refuse},
    convert::zeroed,
    setting::setting,
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
    for folder in devices() {
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
        let driver = super::driver(provider.ops().as_ptr())?;
        found.push(device::publish(sysfs, &path, driver, None)?);
        names.push(name);
    }
    Ok(found)
}

fn describe(folder: &Path) -> Box<urma_sysfs_dev_t> {
    let mut sysfs: Box<urma_sysfs_dev_t> = Box::new(zeroed());
    let file_name = || folder.file_name().unwrap_or_default().to_string_lossy().into_owned();
    let name = text(folder, "ubdev").filter(|name| !name.contains('/'));
    sysfs.dev_name = device::text(&name.unwrap_or_else(file_name));
    let path = folder.as_os_str().as_bytes();
    for (place, byte) in sysfs.sysfs_path.iter_mut().take(PATH_MAX).zip(path) {
        *place = char_of(*byte);
    }
    sysfs.driver_name = device::text(&text(folder, "driver_name").unwrap_or_default());
    sysfs.transport_type = number(folder, "transport_type");
    sysfs.vendor_id = number(folder, "device/vendor");
    sysfs.device_id = number(folder, "device/device");
    sysfs.dev_attr = read_attr(folder);
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
    super::all().filter(move |provider| provider.ops().as_ptr() != built_in)
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
    of.driver = super::driver(provider.ops().as_ptr())?.as_ptr();
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
    let text = text(folder, &format!("eids/eid{index}"))
        .or_else(|| text(folder, &format!("eid{index}/eid")));
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

/// In place of the folders of the kernel.
const CLASS_VARIABLE: &str = "URMA_SYSFS_PATH";
/// The folder of the kernel's module, and that of older ones.
const CLASSES: [&str; 2] = ["/sys/class/ubcore", "/sys/class/uburma"];
/// Bytes of a value, with the zero byte behind it.
const VALUE_LEN: usize = 64;

/// The folders of devices, in order of name.
pub(super) fn devices() -> Vec<PathBuf> {
    let class = setting(CLASS_VARIABLE)
        .map(PathBuf::from)
        .or_else(|| CLASSES.iter().map(PathBuf::from).find(|class| class.is_dir()));
    let Some(class) = class else { return Vec::new() };
    let list = match std::fs::read_dir(&class) {
        Ok(list) => list,
        Err(error) => {
            tracing::warn!(target: "urma", path = %class.display(), %error, "no device folder");
            return Vec::new();
        }
    };
    let mut folders: Vec<_> = list
        .flatten()
        .filter(|entry| !entry.file_name().as_encoded_bytes().starts_with(b"."))
        .filter(|entry| entry.file_name() != "ubcore")
        .map(|entry| entry.path())
        .filter(|path| path.is_dir())
        .collect();
    folders.sort();
    folders
}

/// Reads a file of one value into `to`, without the newline at its end and with a zero byte behind
/// it. Bytes of the value; `None` when it cannot be read, is empty or has no room.
pub(crate) fn read(path: &Path, to: &mut [u8]) -> Option<usize> {
    let len = File::open(path).and_then(|mut file| file.read(to)).ok()?;
    let len = match to.get(..len)? {
        [] => return None,
        [.., b'\n'] => len - 1,
        _ => len,
    };
    *to.get_mut(len)? = 0;
    Some(len)
}

/// The text of a file; `None` also for an empty one.
pub(super) fn text(folder: &Path, file: &str) -> Option<String> {
    let mut value = [0; VALUE_LEN];
    let len = read(&folder.join(file), &mut value)?;
    let text = core::str::from_utf8(value.get(..len)?).ok()?.trim();
    (!text.is_empty()).then(|| text.to_owned())
}

/// The number in a file, decimal or hexadecimal with `0x`; 0 when there is none or it is too large.
pub(super) fn number<T: TryFrom<u64> + Default>(folder: &Path, file: &str) -> T {
    let parsed = text(folder, file).and_then(|text| parse(&text));
    parsed.and_then(|number| T::try_from(number).ok()).unwrap_or_default()
}

fn parse(text: &str) -> Option<u64> {
    match text.strip_prefix("0x").or_else(|| text.strip_prefix("0X")) {
        Some(digits) => u64::from_str_radix(digits, 16).ok(),
        None => text.parse().ok(),
    }
}

/// The attributes that the files in `folder` state; 0 for what they leave out.
pub(super) fn read_attr(folder: &Path) -> urma_device_attr_t {
    let mut attr: urma_device_attr_t = zeroed();
    caps(&mut attr.dev_cap, folder);
    attr.port_cnt = number(folder, "port_count");
    let ports = usize::from(attr.port_cnt).min(MAX_PORT_CNT as usize);
    for (index, port) in attr.port_attr.iter_mut().take(ports).enumerate() {
        *port = port_of(&folder.join(format!("port{index}")));
    }
    let reserved = text(folder, "reserved_jetty_id").unwrap_or_default();
    if let Some((min, max)) = reserved.split_once('-') {
        attr.reserved_jetty_id_min = min.trim().parse().unwrap_or_default();
        attr.reserved_jetty_id_max = max.trim().parse().unwrap_or_default();
    }
    attr
}

/// Members from the files of their names.
macro_rules! numbers {
    ($to:ident from $folder:ident: $($name:ident)*) => {
        $($to.$name = number($folder, stringify!($name));)*
    };
}

fn caps(cap: &mut urma_device_cap_t, folder: &Path) {
    numbers! { cap from folder:
        max_jfc max_jfs max_jfr max_jetty max_jetty_grp max_jetty_in_jetty_grp ceq_cnt max_tp_in_tpg
        max_eid_cnt max_oor_cnt mn max_netaddr_cnt max_jfc_depth max_jfs_depth max_jfr_depth
        max_jfs_sge max_jfs_rsge max_jfr_sge max_msg_size max_read_size max_write_size max_cas_size
        max_swap_size max_fetch_and_add_size max_fetch_and_sub_size max_fetch_and_and_size
        max_fetch_and_or_size max_fetch_and_xor_size page_size_cap trans_mode congestion_ctrl_alg
    }
    cap.max_jfs_inline_len = number(folder, "max_jfs_inline_size");
    cap.feature.value = number(folder, "feature");
    cap.atomic_feat.value = number(folder, "atomic_feat");
}

fn port_of(folder: &Path) -> urma_port_attr_t {
    urma_port_attr_t {
        max_mtu: number(folder, "max_mtu"),
        state: number(folder, "state"),
        active_width: number(folder, "active_width"),
        active_speed: number(folder, "active_speed"),
        active_mtu: number(folder, "active_mtu"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_have_two_forms() {
        assert_eq!(parse("0xcc08"), Some(0xcc08));
        assert_eq!(parse("4096"), Some(4096));
        assert_eq!(parse("many"), None);
        assert_eq!(parse("-1"), None);
    }

    #[test]
    fn a_value_ends_with_zero_and_must_have_room() {
        let path = std::env::temp_dir().join(format!("urma-sysfs-{}", std::process::id()));
        std::fs::write(&path, "abc\n").expect("a file");
        let mut to = [0xff; 4];
        assert_eq!(read(&path, &mut to), Some(3));
        assert_eq!(&to, b"abc\0");
        std::fs::write(&path, "abcd").expect("a file");
        assert_eq!(read(&path, &mut to), None);
        std::fs::write(&path, "").expect("a file");
        assert_eq!(read(&path, &mut to), None);
        std::fs::remove_file(&path).expect("it was there");
        assert_eq!(read(&path, &mut to), None);
    }
}
