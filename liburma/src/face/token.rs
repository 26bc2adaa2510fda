//! Token ids: allocation and release.

use urma_mem::sync::Ordering;

use crate::{
    abi::*,
    call::{self, Answer, Code, Object, made, object, refuse},
    face::dispatch::{ask, caps, home, op, release, retain, run},
    udma::kind,
};

/// Allocates a token id for the registration of a segment.
pub unsafe extern "C" fn urma_alloc_token_id(ctx: *mut urma_context_t) -> *mut urma_token_id_t {
    call::pointer(|| {
        let context = object::<kind::Context>(ctx)?;
        counted(context, ask!(ctx, alloc_token_id(context.as_ptr())))
    })
}

/// Allocates a token id with flags. EOPNOTSUPP: the flag asks for several segments under one id, which the device does
/// not support.
pub unsafe extern "C" fn urma_alloc_token_id_ex(
    ctx: *mut urma_context_t,
    flag: urma_token_id_flag_t,
) -> *mut urma_token_id_t {
    call::pointer(|| {
        let context = object::<kind::Context>(ctx)?;
        let alloc = op!(ctx, alloc_token_id_ex);
        if flag.multi_seg() != 0 && caps(context)?.feature.muti_seg_per_token_id() == 0 {
            return Err(refuse!(
                ENOTSUP,
                "flag.multi_seg is 1; the device has no feature muti_seg_per_token_id"
            ));
        }
        counted(context, run!(alloc(context.as_ptr(), flag)))
    })
}

/// Counts a new token id for its context, with no segments yet.
fn counted(
    ctx: Object<urma_context_t>,
    token: *mut urma_token_id_t,
) -> Answer<*mut urma_token_id_t> {
    let token = made(token)?;
    token.r#ref.atomic_cnt.store(0, Ordering::Release);
    retain(ctx);
    Ok(token.as_ptr())
}

/// Frees a token id. `URMA_EINVAL`: a registered segment uses it.
pub unsafe extern "C" fn urma_free_token_id(token_id: *mut urma_token_id_t) -> urma_status_t {
    call::status(|| free(token_id))
}

/// Frees a token id, for [`urma_free_token_id`] and for segments with an id of their own.
pub(super) fn free(token_id: *mut urma_token_id_t) -> Answer {
    let token = object::<kind::TokenId>(token_id)?;
    let ctx = home(token);
    let free = op!(ctx, free_token_id);
    if token.r#ref.atomic_cnt.load(Ordering::Acquire) != 0 {
        let count = token.r#ref.atomic_cnt.load(Ordering::Acquire);
        return Err(refuse!(
            EINVAL,
            "{count} segments are registered under the token id; unregister them first"
        ));
    }
    Code::from_c(run!(free(token.as_ptr())))?;
    release(ctx);
    Ok(())
}
