//! Segments: registration, import, description for peers; token ids: allocation and release.

use urma_mem::sync::Ordering;

use crate::{
    abi::*,
    call::{self, Answer, Code, Object, made, object, refuse},
    face::{
        describe, device,
        dispatch::{ask, caps, ends, home, op, release, retain, run},
    },
    slab::{InSlot, member},
    udma::kind,
};

/// Registers memory. Without a token id, one is allocated and freed with the segment.
pub unsafe extern "C" fn urma_register_seg(
    ctx: *mut urma_context_t,
    seg_cfg: *mut urma_seg_cfg_t,
) -> *mut urma_target_seg_t {
    call::pointer(|| {
        let ctx = object::<kind::Context>(ctx)?;
        let register = op!(ctx.as_ptr(), register_seg);
        // SAFETY: a configuration of the caller's (room card of `face`).
        let mut cfg = unsafe { call::value(seg_cfg) }?;
        check(&cfg)?;
        let own_token = cfg.token_id.is_null();
        if own_token {
            // SAFETY: the callee looks the context up.
            cfg.token_id = made(unsafe { urma_alloc_token_id(ctx.as_ptr()) })?.as_ptr();
        }
        let Some(segment) = Object::made(run!(register(ctx.as_ptr(), &raw mut cfg))) else {
            if own_token {
                drop_quietly(cfg.token_id);
            }
            return Err(Code::as_set());
        };
        let mut attr = segment.seg.attr;
        attr.set_user_token_id(u32::from(!own_token));
        segment.set(member!(urma_target_seg_t, token_id), cfg.token_id);
        segment.set(member!(urma_target_seg_t, seg.attr), attr);
        if let Some(token) = Object::made(cfg.token_id) {
            token.r#ref.atomic_cnt.fetch_add(1, Ordering::AcqRel);
        }
        retain(ctx);
        Ok(segment.as_ptr())
    })
}

/// Checks the configuration of a registration.
fn check(cfg: &urma_seg_cfg_t) -> Answer {
    let has_token = !cfg.token_id.is_null();
    if has_token {
        object::<kind::TokenId>(cfg.token_id)?;
    }
    if cfg.va == 0 {
        return Err(refuse!(EINVAL, "seg_cfg.va is 0; it is the address of the memory"));
    }
    let valid = cfg.flag.token_id_valid();
    if has_token != (valid != 0) {
        return Err(refuse!(
            EINVAL,
            "seg_cfg.token_id is {:p} and flag.token_id_valid is {valid}; the flag says whether there is a token id",
            cfg.token_id
        ));
    }
    let access = cfg.flag.access();
    if !is_sound(access) {
        return Err(refuse!(
            EINVAL,
            "seg_cfg.flag.access is {access:#x} ({}); WRITE needs READ, ATOMIC needs READ and WRITE, LOCAL_ONLY stands \
             alone",
            access_names(access)
        ));
    }
    Ok(())
}

/// Lists the access rights in `access` by name.
fn access_names(access: u32) -> String {
    const NAMES: [(u32, &str); 4] = [
        (URMA_ACCESS_LOCAL_ONLY, "LOCAL_ONLY"),
        (URMA_ACCESS_READ, "READ"),
        (URMA_ACCESS_WRITE, "WRITE"),
        (URMA_ACCESS_ATOMIC, "ATOMIC"),
    ];
    let names: Vec<_> =
        NAMES.iter().filter(|(bit, _)| access & bit != 0).map(|(_, name)| *name).collect();
    if names.is_empty() { "no right".to_owned() } else { names.join(" | ") }
}

/// LOCAL_ONLY stands alone; WRITE needs READ; ATOMIC needs both.
fn is_sound(access: u32) -> bool {
    let has = |bits: u32| access & bits == bits;
    if has(URMA_ACCESS_LOCAL_ONLY) {
        return access == URMA_ACCESS_LOCAL_ONLY;
    }
    let write_reads = !has(URMA_ACCESS_WRITE) || has(URMA_ACCESS_READ);
    let atomic_does_both = !has(URMA_ACCESS_ATOMIC) || has(URMA_ACCESS_READ | URMA_ACCESS_WRITE);
    access != 0 && write_reads && atomic_does_both
}

/// Frees a token id after a failed call, and keeps its `errno`.
fn drop_quietly(token_id: *mut urma_token_id_t) {
    let errno = std::io::Error::last_os_error();
    if free(token_id).is_err() {
        tracing::warn!(target: "urma", "the token id of a refused segment was not freed");
    }
    if let Some(Err(code)) = errno.raw_os_error().map(Code::from_c) {
        code.set_errno();
    }
}

/// Unregisters memory. No request accesses it after this returned.
pub unsafe extern "C" fn urma_unregister_seg(target_seg: *mut urma_target_seg_t) -> urma_status_t {
    call::status(|| {
        let segment = object::<kind::Segment>(target_seg)?;
        let of = *segment;
        Code::from_c(ask!(of.urma_ctx, unregister_seg(segment.as_ptr())))?;
        let_go(of.token_id, of.seg.attr.user_token_id() == 0);
        release(of.urma_ctx);
        Ok(())
    })
}

/// Counts one segment less under a token id; frees the id if it was allocated with the segment.
fn let_go(token_id: *mut urma_token_id_t, is_own: bool) {
    let Ok(token) = object::<kind::TokenId>(token_id) else { return };
    let less = |count: u64| count.checked_sub(1);
    // The count has the segments, not the id itself. A program may have set it to 0: then there is nothing to do.
    let _ = token.r#ref.atomic_cnt.fetch_update(Ordering::AcqRel, Ordering::Acquire, less);
    if is_own && free(token_id).is_err() {
        tracing::warn!(target: "urma", "the token id of a segment was not freed");
    }
}

/// Imports a segment of a peer. `token_value` may be NULL if the segment has no token.
pub unsafe extern "C" fn urma_import_seg(
    ctx: *mut urma_context_t,
    seg: *mut urma_seg_t,
    token_value: *mut urma_token_t,
    addr: u64,
    flag: urma_import_seg_flag_t,
) -> *mut urma_target_seg_t {
    call::pointer(|| {
        let ctx = object::<kind::Context>(ctx)?;
        // SAFETY: a description of the caller's (room card of `face`).
        let of = unsafe { call::value(seg) }?;
        if of.attr.token_policy() != URMA_TOKEN_NONE && token_value.is_null() {
            let policy = of.attr.token_policy();
            return Err(refuse!(
                EINVAL,
                "token_value is NULL, and the segment has token policy {policy}"
            ));
        }
        let segment =
            made(ask!(ctx.as_ptr(), import_seg(ctx.as_ptr(), seg, token_value, addr, flag)))?;
        retain(ctx);
        Ok(segment.as_ptr())
    })
}

ends! {
    /// Unimports a segment; requests already posted proceed.
    urma_unimport_seg(urma_target_seg_t as Segment) = unimport_seg;
}

/// Describes the segment for peers, which import it by the description: bytes that mean the same in any process, without
/// the token. `urma_put_seg_ctx` frees them.
pub unsafe extern "C" fn urma_get_seg_ctx(
    tseg: *mut urma_target_seg_t,
    seg: *mut *mut urma_seg_t,
    size: *mut u32,
) -> urma_status_t {
    call::status(|| {
        let segment = object::<kind::Segment>(tseg)?;
        // SAFETY: two places of the caller's (room card of `face`).
        let (to, size) = unsafe { call::args((seg, size)) }?;
        let memory = describe::blank::<urma_seg_t>(home(segment), segment)?;
        // SAFETY: `blank` made the memory with a value just now, and no other thread has it.
        let described = unsafe { &mut *memory.as_ptr() };
        let has_user_info = described.attr.has_user_info();
        *described = segment.seg;
        described.attr.set_has_user_info(has_user_info);
        // SAFETY: `blank` made the memory; the flag in it is as it was then.
        unsafe { describe::give(memory, (to, size)) };
        Ok(())
    })
}

/// Frees a description of `urma_get_seg_ctx`; NULL is ignored.
pub unsafe extern "C" fn urma_put_seg_ctx(seg: *mut urma_seg_t) {
    // SAFETY: the caller got it from `urma_get_seg_ctx`, which made it with the C library, or it is NULL.
    unsafe { device::take_back(seg.cast()) };
}

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
