//! Contexts: opening and closing devices, their asynchronous events, calls that a device defines.

use core::ffi::{c_int, c_void};
use std::{
    ffi::OsStr,
    fs::File,
    io::ErrorKind,
    os::{
        fd::{AsRawFd, FromRawFd, IntoRawFd, OwnedFd},
        unix::ffi::OsStrExt,
    },
};

use urma_core::Eid;
use urma_mem::sync::Ordering;

use crate::{
    abi::*,
    call::{self, Answer, Code, Object, c_text, made, object, refuse},
    convert::{eid_out, zeroed},
    face::{
        device::urma_query_device,
        dispatch::{ask, device, forwards, member_of, provider as table, run, sysfs, users},
    },
    provider,
    slab::{InSlot, member},
    udma::{self, kind},
};

/// Descriptor of a context whose device has no character device.
const NO_FD: c_int = -1;

/// Opens a device under its EID at `eid_index`.
pub unsafe extern "C" fn urma_create_context(
    dev: *mut urma_device_t,
    eid_index: u32,
) -> *mut urma_context_t {
    call::pointer(|| {
        let dev = object::<kind::Device>(dev)?;
        // The checks of all objects made from the context read the attributes.
        let mut attr = zeroed();
        // SAFETY: `object` found the device, and the place is of this function.
        Code::from_c(unsafe { urma_query_device(dev.as_ptr(), &raw mut attr) })?;
        let create = call::present(member_of!(table(dev)?, create_context))?;
        if udma::device::is_software(dev.non_null()) {
            return Ok(made(run!(create(dev.as_ptr(), eid_index, NO_FD)))?.as_ptr());
        }
        let opening = Opening::of(dev, eid_index)?;
        let fd = opening.file.as_ref().map_or(NO_FD, AsRawFd::as_raw_fd);
        let ctx = made(run!(create(dev.as_ptr(), eid_index, fd)))?;
        opening.fill(ctx)
    })
}

/// A context of a third-party provider that is being opened.
struct Opening {
    dev: Object<urma_device_t>,
    eid_index: u32,
    /// `None` for a device that its provider created itself.
    eid: Option<Eid>,
    file: Option<File>,
}

impl Opening {
    /// # Errors
    /// FAIL: there is no EID at this index, or the character device does not open.
    fn of(dev: Object<urma_device_t>, eid_index: u32) -> Answer<Self> {
        if is_made_by_provider(dev) {
            return Ok(Self { dev, eid_index, eid: None, file: None });
        }
        let eid = Some(provider::eid_at(dev, eid_index)?);
        Ok(Self { dev, eid_index, eid, file: open(dev)? })
    }

    /// Fills the members that the core owns, whatever the provider wrote there.
    ///
    /// # Errors
    /// EINVAL: the provider left `ctx->ops` out.
    fn fill(self, ctx: Object<urma_context_t>) -> Answer<*mut urma_context_t> {
        ctx.set(member!(urma_context_t, dev), self.dev.as_ptr());
        let table = table(self.dev)?;
        if ctx.ops.is_null() {
            tracing::warn!(target: "urma", "the provider made a context without a table");
            if let Some(delete) = member_of!(table, delete_context) {
                // Nothing more can be done if the provider refuses.
                run!(delete(ctx.as_ptr()));
            }
            return Err(refuse!(EINVAL, "the provider made a context without a table (ctx->ops)"));
        }
        let fd = self.file.map_or(NO_FD, IntoRawFd::into_raw_fd);
        ctx.set(member!(urma_context_t, dev_fd), fd);
        ctx.set(member!(urma_context_t, eid_index), self.eid_index);
        if let Some(eid) = self.eid {
            ctx.set(member!(urma_context_t, eid), eid_out(eid));
        }
        ctx.r#ref.atomic_cnt.store(1, Ordering::Release);
        ctx.set(member!(urma_context_t, aggr_mode), URMA_AGGR_MODE_STANDALONE);
        provider::opened(table.as_ptr());
        Ok(ctx.as_ptr())
    }
}

/// Whether the provider created the device, so that no file describes it.
fn is_made_by_provider(dev: Object<urma_device_t>) -> bool {
    sysfs(dev).map_or(true, |sysfs| sysfs.flag & URMA_SYSFS_DEV_FLAG_DRIVER_CREATED != 0)
}

/// Opens the character device, if there is one.
fn open(dev: Object<urma_device_t>) -> Answer<Option<File>> {
    let path = c_text(&dev.path);
    match File::options().read(true).write(true).open(OsStr::from_bytes(path.to_bytes())) {
        Ok(file) => Ok(Some(file)),
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
        Err(error) => Err(refuse!(FAIL, "the character device {path:?} does not open: {error}")),
    }
}

/// Closes a device. `URMA_EAGAIN`: the context still has objects.
pub unsafe extern "C" fn urma_delete_context(ctx: *mut urma_context_t) -> urma_status_t {
    call::status(|| {
        let ctx = object::<kind::Context>(ctx)?;
        if users(&ctx.r#ref) != 0 {
            return Err(refuse!(
                EAGAIN,
                "{} objects of the context live; delete them first",
                users(&ctx.r#ref)
            ));
        }
        let dev = device(ctx)?;
        let table = table(dev)?;
        let delete = call::present(member_of!(table, delete_context))?;
        let fd = ctx.dev_fd;
        Code::from_c(run!(delete(ctx.as_ptr())))?;
        if !udma::device::is_software(dev.non_null()) {
            provider::closed(table.as_ptr());
            close(fd);
        }
        Ok(())
    })
}

fn close(fd: c_int) {
    if fd >= 0 {
        // SAFETY: `Opening` put it into the context, whose provider is done with it.
        drop(unsafe { OwnedFd::from_raw_fd(fd) });
    }
}

/// Sets an option. The only one is the aggregation mode (4 bytes), which belongs to the device: the latest call counts for
/// all its contexts.
pub unsafe extern "C" fn urma_set_context_opt(
    ctx: *mut urma_context_t,
    opt_name: urma_opt_name_t,
    opt_value: *const c_void,
    opt_len: usize,
) -> urma_status_t {
    call::status(|| {
        let ctx = object::<kind::Context>(ctx)?;
        if opt_name != URMA_OPT_AGGR_MODE || opt_len != size_of::<u32>() {
            return Err(refuse!(
                EINVAL,
                "opt_name is {opt_name} and opt_len {opt_len}; the one option is URMA_OPT_AGGR_MODE (0), of 4 bytes"
            ));
        }
        // SAFETY: bytes of the caller's, as many as the length just checked says (room card of `face`).
        let mode: u32 = unsafe { call::value(opt_value.cast()) }?;
        if mode > URMA_AGGR_MODE_BALANCE {
            return Err(refuse!(
                EINVAL,
                "the aggregation mode is {mode}; allowed are 0 to {URMA_AGGR_MODE_BALANCE}"
            ));
        }
        ctx.set(member!(urma_context_t, aggr_mode), mode);
        udma::context::set_aggr_mode(ctx.as_ptr(), mode);
        Ok(())
    })
}

forwards! {
    /// Takes the next asynchronous event of a context: waits for one, or returns `URMA_EAGAIN` if `async_fd` is
    /// non-blocking. Each event must be acknowledged.
    urma_get_async_event(ctx: *mut urma_context_t as Context, event: *mut urma_async_event_t) needs(event)
        = get_async_event;
}

/// Acknowledges an event. Until then, deleting the object that it names fails with `URMA_EAGAIN`.
pub unsafe extern "C" fn urma_ack_async_event(event: *mut urma_async_event_t) {
    call::nothing(|| {
        // SAFETY: an event of the caller's (room card of `face`).
        let of = unsafe { call::value(event) }?;
        let ctx = call::when_decided::<kind::Context, _>(of.urma_ctx, object::<kind::Context>)?;
        ask!(ctx.as_ptr(), ack_async_event(event));
        Err(Code::errno_of_callee())
    });
}

/// Calls an operation that only this device defines. `URMA_ENOPERM`: it has no such opcode. `URMA_FAIL`: it refuses the
/// call, or does not support it.
pub unsafe extern "C" fn urma_user_ctl(
    ctx: *mut urma_context_t,
    r#in: *mut urma_user_ctl_in_t,
    out: *mut urma_user_ctl_out_t,
) -> urma_status_t {
    call::status(|| {
        let ctx = object::<kind::Context>(ctx)?;
        // SAFETY: a struct of the caller's (room card of `face`).
        let opcode = unsafe { call::value(r#in) }?.opcode;
        call::some(out)?;
        match Code::from_c(ask!(ctx.as_ptr(), user_ctl(ctx.as_ptr(), r#in, out))) {
            Err(code) if code.is(Code::ENOPERM) => Err(code),
            Err(code) => Err(refuse!(FAIL, "opcode {} is refused ({})", opcode, code.status())),
            Ok(()) => Ok(()),
        }
    })
}
