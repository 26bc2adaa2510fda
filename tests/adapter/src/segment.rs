//! Token ids and registered segments.
//!
//! *Owns*: nothing; objects are in [`Names`](crate::shared::Names). *Takes*: regions.
#![expect(unsafe_code, reason = "calls of C functions, and public members")]

use liburma::{
    abi::urma_seg_cfg_t,
    face::segment::{
        urma_alloc_token_id, urma_free_token_id, urma_register_seg, urma_unregister_seg,
    },
    zeroed,
};
use urma_core::{SegmentCfg, Status, TokenId};
use urma_mem::Region;

use crate::{
    shared::Shared,
    value::{self, Ptr, done},
};

pub(crate) fn alloc_token_id(shared: &Shared) -> Result<TokenId, Status> {
    // SAFETY: `Shared` keeps the context open while it lives; the library checks the pointer.
    let ptr = Ptr::made(unsafe { urma_alloc_token_id(shared.ctx.0) })?;
    // SAFETY: a public member of a new object.
    let id = unsafe { (*ptr.0).token_id };
    shared.names().token_ids.insert(id, ptr);
    Ok(TokenId::new(id))
}

pub(crate) fn free_token_id(shared: &Shared, token_id: TokenId) -> Result<(), Status> {
    // The number may be given again as soon as it is free.
    let mut names = shared.names();
    let ptr = *names.token_ids.get(&token_id.value()).ok_or(Status::Invalid)?;
    // SAFETY: an object that the library checks.
    done(unsafe { urma_free_token_id(ptr.0) })?;
    names.token_ids.remove(&token_id.value());
    Ok(())
}

pub(crate) fn register(
    shared: &Shared,
    region: &Region,
    token_id: TokenId,
    va: u64,
    cfg: &SegmentCfg,
) -> Result<(), Status> {
    let mut to: urma_seg_cfg_t = zeroed();
    to.token_id = shared.names().token_ids.get(&token_id.value()).ok_or(Status::Invalid)?.0;
    (to.va, to.len, to.user_ctx) = (region.addr() as u64, region.len() as u64, cfg.user_ctx);
    let (policy, token) = value::token(cfg.policy.token()?);
    to.token_value = token;
    to.flag.set_token_policy(policy);
    to.flag.set_token_id_valid(1);
    to.flag.set_access(cfg.access.bits().into());
    to.flag.set_cacheable(cfg.cacheable.into());
    to.flag.set_non_pin(cfg.non_pin.into());
    if cfg.user_iova.is_some() {
        to.flag.set_user_iova(1);
        to.iova = va;
    }
    // SAFETY: a live context, and memory that the caller's region keeps mapped: urma-core holds it
    // until the segment is unregistered.
    let ptr = Ptr::made(unsafe { urma_register_seg(shared.ctx.0, &raw mut to) })?;
    shared.names().segments.insert(token_id.value(), ptr);
    Ok(())
}

pub(crate) fn unregister(shared: &Shared, token_id: TokenId) -> Result<(), Status> {
    let found = shared.names().segments.get(&token_id.value()).copied();
    let ptr = found.ok_or(Status::Invalid)?;
    // SAFETY: an object that the library checks.
    done(unsafe { urma_unregister_seg(ptr.0) })?;
    // The token id, and with it the number, is still held by the caller.
    shared.names().segments.remove(&token_id.value());
    Ok(())
}
