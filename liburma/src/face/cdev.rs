//! What administration tools ask of the kernel: device files, counts; and copies of configurations.
#![expect(unsafe_code, reason = "exported functions")]
#![expect(clippy::missing_safety_doc, reason = "the room card says what callers promise")]

use core::{
    ffi::{CStr, c_char, c_int},
    ptr::NonNull,
};
use std::collections::BTreeMap;

use crate::{
    abi::{urma_device_t, urma_jetty_cfg_t, urma_jetty_cfg_u, urma_jfce_cnt_info_t, urma_status_t},
    call::{self, Answer, Code, object, ours},
    face::library,
    latch::Latch,
    slab::Slot,
    udma::{device::channels, kind},
};

/// Devices by the number of a descriptor.
static OPENED: Latch<BTreeMap<c_int, Slot<kind::Device>>> = Latch::new(BTreeMap::new());

/// For a forked child: the descriptors that it has from its parent lead to no device of its own.
pub(super) fn abandon() {
    OPENED.abandon(BTreeMap::new());
}

/// Opens a device's file, by a path whose last part is the device's name: a descriptor that the
/// commands take, and `close` closes. -1 with ENODEV: there is no such device.
pub unsafe extern "C" fn urma_open_cdev(path: *mut c_char) -> c_int {
    call::count(|| {
        let path = call::place(path)?;
        // SAFETY: a C string of the caller's.
        let path = unsafe { CStr::from_ptr(path.as_ptr()) };
        let bytes = path.to_bytes_with_nul();
        let name = bytes.rsplit(|byte| *byte == b'/').next().unwrap_or_default();
        let name = CStr::from_bytes_with_nul(name).map_err(|_| Code::EINVAL)?;
        let device = ours::<kind::Device>(library::device_named(name)?.as_ptr())?;
        // SAFETY: a C string.
        let fd = unsafe { libc::memfd_create(c"urma-device".as_ptr(), libc::MFD_CLOEXEC) };
        if fd < 0 {
            return Err(Code::ENOMEM);
        }
        OPENED.with(|opened| opened.insert(fd, device));
        Ok(fd)
    })
}

/// The device that a descriptor was opened on.
///
/// # Errors
/// EINVAL: it was not, or is closed. ENODEV: the device is gone.
pub(super) fn device(fd: c_int) -> Answer<NonNull<urma_device_t>> {
    let device = OPENED.with(|opened| opened.get(&fd).copied()).ok_or(Code::EINVAL)?;
    // SAFETY: no memory is named.
    if unsafe { libc::fcntl(fd, libc::F_GETFD) } < 0 {
        OPENED.with(|opened| opened.remove(&fd));
        return Err(Code::EINVAL);
    }
    NonNull::new(device.public()).filter(|_| device.is_live()).ok_or(Code::ENODEV)
}

/// How many event channels live on each device; `*cnt` says how many entries there are room for, and
/// becomes their number. A software device sets no limit below its descriptors': the threshold is 0.
pub unsafe extern "C" fn urma_get_jfce_cnt_info(
    info_arr: *mut urma_jfce_cnt_info_t,
    cnt: *mut u32,
) -> urma_status_t {
    call::status(|| {
        let (to, count) = (call::place(info_arr)?, call::place(cnt)?);
        // SAFETY: the caller's number.
        let room = unsafe { count.read() };
        if room == 0 {
            return Err(Code::EINVAL);
        }
        let mut given = 0;
        for device in library::devices()?.into_iter().take(room as usize) {
            // SAFETY: the public part of a live device.
            let dev_name = unsafe { (*device.as_ptr()).name };
            let jfce_total_cnt = channels(device.as_ptr());
            let info = urma_jfce_cnt_info_t { dev_name, jfce_total_cnt, jfce_thresh_cnt: 0 };
            // SAFETY: inside the caller's array.
            let place = unsafe { to.add(given as usize) };
            // SAFETY: as above.
            unsafe { place.write(info) };
            given += 1;
        }
        // SAFETY: the caller's number.
        unsafe { count.write(given) };
        Ok(())
    })
}

/// Copies a configuration, deeply: a shared receive queue's JFC is filled in, a configuration of its
/// own is copied. 0, or -1 with `errno`. [`urma_uninit_jetty_cfg`] frees the copy.
pub unsafe extern "C" fn urma_init_jetty_cfg(
    p: *mut urma_jetty_cfg_t,
    cfg: *mut urma_jetty_cfg_t,
) -> c_int {
    call::count(|| {
        let to = call::place(p)?;
        // SAFETY: the caller's configuration.
        let mut copy = unsafe { call::value(cfg) }?;
        if copy.flag.share_jfr() == 0 {
            // SAFETY: the member that the flag names; any bytes are a pointer.
            let of = unsafe { copy.u.jfr_cfg };
            // SAFETY: the caller's configuration.
            let of = unsafe { call::value(of) }?;
            copy.u = urma_jetty_cfg_u { jfr_cfg: super::device::give(&[of])? };
        } else {
            // SAFETY: as above.
            let mut shared = unsafe { copy.u.shared };
            if shared.jfc.is_null() {
                let jfr = object::<kind::Jfr>(shared.jfr)?;
                shared.jfc = jfr.jfr_cfg.jfc;
            }
            copy.u = urma_jetty_cfg_u { shared };
        }
        // SAFETY: a place of the caller's for one.
        unsafe { to.write(copy) };
        Ok(0)
    })
}

/// Frees what [`urma_init_jetty_cfg`] copied.
pub unsafe extern "C" fn urma_uninit_jetty_cfg(p: *mut urma_jetty_cfg_t) {
    call::nothing(|| {
        let of = call::place(p)?;
        // SAFETY: the caller's configuration.
        let mut cfg = unsafe { of.read() };
        if cfg.flag.share_jfr() == 0 {
            // SAFETY: the member that the flag names; any bytes are a pointer.
            let copy = unsafe { cfg.u.jfr_cfg };
            // SAFETY: memory that `give` made.
            unsafe { super::device::take_back(copy.cast()) };
            cfg.u = urma_jetty_cfg_u { jfr_cfg: core::ptr::null_mut() };
            // SAFETY: the caller's configuration.
            unsafe { of.write(cfg) };
        }
        Ok(())
    });
}
