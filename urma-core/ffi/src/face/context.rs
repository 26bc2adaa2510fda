//! Contexts.
#![expect(unsafe_code, reason = "exported functions")]
#![expect(clippy::missing_safety_doc, reason = "the room card says what callers promise")]

use core::ffi::c_void;

use crate::{
    abi::{
        URMA_AGGR_MODE_BALANCE, URMA_OPT_AGGR_MODE, urma_context_t, urma_device_t, urma_opt_name_t,
        urma_status_t,
    },
    call::{self, Code, made, object},
    convert::zeroed,
    face::{
        device::urma_query_device,
        dispatch::{device, provider, users},
    },
    udma::kind,
};

/// Descriptor of the kernel's device file, which a software device does not have.
const NO_FD: core::ffi::c_int = -1;

/// Opens a device under its EID at `eid_index`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn urma_create_context(
    dev: *mut urma_device_t,
    eid_index: u32,
) -> *mut urma_context_t {
    call::pointer(|| {
        let dev = object::<kind::Device>(dev)?;
        // The checks of everything that is made from the context read the attributes.
        let mut attr = zeroed();
        // SAFETY: a live device, and a place for one.
        Code::from_c(unsafe { urma_query_device(dev.as_ptr(), &raw mut attr) })?;
        // SAFETY: the table of a live device.
        let create = call::present(unsafe { (*provider(dev)?.as_ptr()).create_context })?;
        // SAFETY: a live device.
        let ctx = made(unsafe { create(dev.as_ptr(), eid_index, NO_FD) })?;
        Ok(ctx.as_ptr())
    })
}

/// Closes a device. `URMA_EAGAIN`: objects made from the context live.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn urma_delete_context(ctx: *mut urma_context_t) -> urma_status_t {
    call::status(|| {
        let ctx = object::<kind::Context>(ctx)?;
        // SAFETY: a live context.
        if users(unsafe { &(*ctx.as_ptr()).r#ref }) != 0 {
            return Err(Code::EAGAIN);
        }
        // SAFETY: the table of a live device.
        let delete = call::present(unsafe { (*provider(device(ctx)?)?.as_ptr()).delete_context })?;
        // SAFETY: a live context.
        Code::from_c(unsafe { delete(ctx.as_ptr()) })
    })
}

/// Sets an option: the aggregation mode, of 4 bytes. A device of one port is the same in each mode.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn urma_set_context_opt(
    ctx: *mut urma_context_t,
    opt_name: urma_opt_name_t,
    opt_value: *const c_void,
    opt_len: usize,
) -> urma_status_t {
    call::status(|| {
        let ctx = object::<kind::Context>(ctx)?;
        if opt_name != URMA_OPT_AGGR_MODE || opt_len != size_of::<u32>() {
            return Err(Code::EINVAL);
        }
        // SAFETY: four bytes of the caller's, or NULL.
        let mode: u32 = unsafe { call::value(opt_value.cast()) }?;
        if mode > URMA_AGGR_MODE_BALANCE {
            return Err(Code::EINVAL);
        }
        // SAFETY: a live context.
        unsafe { (*ctx.as_ptr()).aggr_mode = mode };
        Ok(())
    })
}
