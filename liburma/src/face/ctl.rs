//! Calls that a device defines.

use crate::{
    abi::*,
    call::{self, Code, object, refuse},
    face::dispatch::ask,
    udma::kind,
};

/// Asks the device something of its own. `URMA_ENOPERM`: it has no such opcode. `URMA_FAIL`: it
/// refuses, or does not support it.
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
