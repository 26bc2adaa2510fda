//! Calls by which administration tools ask the kernel: device files, counts. Copies of configurations.

use core::{
    ffi::{CStr, c_char, c_int},
    ptr::NonNull,
};
use std::collections::BTreeMap;

use crate::{
    abi::*,
    call::{self, Answer, UserArray, UserPtr, object, ours, refuse},
    face::library,
    latch::Latch,
    slab::Slot,
    udma::{device::channels, kind},
};

/// Devices by descriptor number.
static OPENED: Latch<BTreeMap<c_int, Slot<kind::Device>>> = Latch::new(BTreeMap::new());

/// Forgets all devices, in a forked child: inherited descriptors lead to none of its own.
pub(super) fn abandon() {
    OPENED.abandon(BTreeMap::new());
}

/// Opens a device's file by a path that ends with the device's name. Returns a descriptor for the commands, which `close`
/// closes. -1 with ENODEV: there is no such device.
pub unsafe extern "C" fn urma_open_cdev(path: *mut c_char) -> c_int {
    call::count(|| {
        // SAFETY: a C string of the caller's (room card of `face`).
        let path = unsafe { call::text(path) }?;
        let bytes = path.to_bytes_with_nul();
        let name = bytes.rsplit(|byte| *byte == b'/').next().unwrap_or_default();
        let name = CStr::from_bytes_with_nul(name)
            .map_err(|_| refuse!(EINVAL, "path {path:?} names no device"))?;
        let device = ours::<kind::Device>(library::device_named(name)?.as_ptr())?;
        // SAFETY: the name is a literal, and the call touches no other memory.
        let fd = unsafe { libc::memfd_create(c"urma-device".as_ptr(), libc::MFD_CLOEXEC) };
        if fd < 0 {
            return Err(refuse!(ENOMEM, "no descriptor: {}", std::io::Error::last_os_error()));
        }
        OPENED.with(|opened| opened.insert(fd, device));
        Ok(fd)
    })
}

/// Returns the device that a descriptor was opened on.
///
/// # Errors
/// EINVAL: it was opened on no device, or is closed. ENODEV: the device is gone.
pub(super) fn device(fd: c_int) -> Answer<NonNull<urma_device_t>> {
    let device = OPENED.with(|opened| opened.get(&fd).copied());
    let device = device
        .ok_or_else(|| refuse!(EINVAL, "descriptor {fd} was not opened by urma_open_cdev"))?;
    // SAFETY: the call touches no memory of this process.
    if unsafe { libc::fcntl(fd, libc::F_GETFD) } < 0 {
        OPENED.with(|opened| opened.remove(&fd));
        return Err(refuse!(EINVAL, "descriptor {fd} is closed"));
    }
    NonNull::new(device.public())
        .filter(|_| device.is_live())
        .ok_or_else(|| refuse!(ENODEV, "the device of descriptor {fd} is gone"))
}

/// Counts the live event channels of each device. `*cnt` is the room of the array, in entries, and becomes their number.
/// The threshold is 0: a software device has no limit but that of descriptors.
pub unsafe extern "C" fn urma_get_jfce_cnt_info(
    info_arr: *mut urma_jfce_cnt_info_t,
    cnt: *mut u32,
) -> urma_status_t {
    call::status(|| {
        // SAFETY: an array of the caller's and the number of its elements (room card of `face`).
        let (to, count) = unsafe { call::args((info_arr, cnt)) }?;
        let room = count.read();
        if room == 0 {
            return Err(refuse!(EINVAL, "*cnt is 0; the array must have an element"));
        }
        // SAFETY: the caller says that the array has this number of elements.
        let to = unsafe { UserArray::at(to, room as usize) };
        let given = to.fill(library::devices()?.into_iter().map(|device| urma_jfce_cnt_info_t {
            dev_name: device.name,
            jfce_total_cnt: channels(device.as_ptr()),
            jfce_thresh_cnt: 0,
        }));
        count.write(u32::try_from(given).map_err(|_| refuse!(FAIL, "there are {given} devices"))?);
        Ok(())
    })
}

/// Deep-copies a configuration: fills in the JFC of a shared receive queue, or copies the jetty's own JFR configuration.
/// Returns 0, or -1 with `errno`. [`urma_uninit_jetty_cfg`] frees the copy.
pub unsafe extern "C" fn urma_init_jetty_cfg(
    p: *mut urma_jetty_cfg_t,
    cfg: *mut urma_jetty_cfg_t,
) -> c_int {
    call::count(|| {
        // SAFETY: a place and a configuration of the caller's (room card of `face`).
        let (to, cfg) = unsafe { call::args((p, cfg)) }?;
        let mut copy = cfg.read();
        copy.u = match copy.receive() {
            Receive::Own(of) => {
                // SAFETY: the JFR configuration that the caller's one names.
                let of = unsafe { call::value(of) }?;
                urma_jetty_cfg_u { jfr_cfg: super::device::give(&[of])? }
            }
            Receive::Shared(mut shared) => {
                if shared.jfc.is_null() {
                    shared.jfc = object::<kind::Jfr>(shared.jfr)?.jfr_cfg.jfc;
                }
                urma_jetty_cfg_u { shared }
            }
        };
        to.write(copy);
        Ok(0)
    })
}

/// Frees what [`urma_init_jetty_cfg`] copied.
pub unsafe extern "C" fn urma_uninit_jetty_cfg(p: *mut urma_jetty_cfg_t) {
    call::nothing(|| {
        // SAFETY: a configuration of the caller's (room card of `face`).
        let of = unsafe { UserPtr::new(p) }?;
        let mut cfg = of.read();
        if let Receive::Own(copy) = cfg.receive() {
            // SAFETY: `urma_init_jetty_cfg` made it with `give`, or it is NULL.
            unsafe { super::device::take_back(copy.cast()) };
            cfg.u = urma_jetty_cfg_u { jfr_cfg: core::ptr::null_mut() };
            of.write(cfg);
        }
        Ok(())
    });
}
