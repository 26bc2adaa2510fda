//! Event channels: creation and deletion.

use urma_mem::sync::Ordering;

use crate::{
    abi::*,
    call::{self, Code, made, object, refuse},
    face::dispatch::{ask, home, op, release, retain, run, users},
    udma::kind,
};

/// Creates an event channel; its `fd` is readable while an event waits.
pub unsafe extern "C" fn urma_create_jfce(ctx: *mut urma_context_t) -> *mut urma_jfce_t {
    call::pointer(|| {
        let ctx = object::<kind::Context>(ctx)?;
        let jfce = made(ask!(ctx.as_ptr(), create_jfce(ctx.as_ptr())))?;
        jfce.r#ref.atomic_cnt.store(1, Ordering::Release);
        retain(ctx);
        Ok(jfce.as_ptr())
    })
}

/// Deletes an event channel; threads that wait on it return. `URMA_FAIL`: a JFC uses it.
pub unsafe extern "C" fn urma_delete_jfce(jfce: *mut urma_jfce_t) -> urma_status_t {
    call::status(|| {
        let jfce = object::<kind::Jfce>(jfce)?;
        let ctx = home(jfce);
        let delete = op!(ctx, delete_jfce);
        if users(&jfce.r#ref) != 0 {
            return Err(refuse!(
                FAIL,
                "{} JFCs use the JFCE; delete them first",
                users(&jfce.r#ref)
            ));
        }
        Code::from_c(run!(delete(jfce.as_ptr())))?;
        release(ctx);
        Ok(())
    })
}
