//! Token ids.
//!
//! *Owns*: urma-core's lease. *Gives*: `urma_token_id_t`.

use std::sync::Arc;

use urma_core::Status;

use crate::{
    abi::*,
    call::{self, Answer},
    convert::zeroed,
    udma::{
        context::{ctx_of, delete, publish},
        kind::{self, TokenOwn},
    },
};

pub(crate) unsafe extern "C" fn alloc_token_id(ctx: *mut urma_context_t) -> *mut urma_token_id_t {
    // The same as in UMDK's library: only the call with flags can ask for a token id of one segment.
    call::pointer(|| alloc(ctx, urma_token_id_flag_t::default(), true))
}

pub(crate) unsafe extern "C" fn alloc_token_id_ex(
    ctx: *mut urma_context_t,
    flag: urma_token_id_flag_t,
) -> *mut urma_token_id_t {
    call::pointer(|| alloc(ctx, flag, flag.multi_seg() != 0))
}

fn alloc(
    ctx: *mut urma_context_t,
    flag: urma_token_id_flag_t,
    takes_several: bool,
) -> Answer<*mut urma_token_id_t> {
    let own = ctx_of(ctx)?;
    let core = own.core.alloc_token_id()?;
    let mut public: urma_token_id_t = zeroed();
    public.urma_ctx = ctx;
    public.token_id = core.id().value();
    public.handle = u64::from(core.id().value());
    public.flag = flag;
    let token = TokenOwn { core, takes_several, ctx: Arc::clone(&own) };
    Ok(publish::<kind::TokenId>(&own, public, token)?.public())
}

pub(crate) unsafe extern "C" fn free_token_id(token: *mut urma_token_id_t) -> urma_status_t {
    call::status(|| {
        delete::<kind::TokenId>(token, |TokenOwn { core, takes_several, ctx }| {
            core.free().or_else(|refused| {
                // A device that failed has no token ids any more; its context has to be deleted.
                if refused.status == Status::NoDevice {
                    return Ok(());
                }
                let own = TokenOwn { core: *refused.object, takes_several, ctx };
                Err(Box::new((own, refused.status.into())))
            })
        })
    })
}
