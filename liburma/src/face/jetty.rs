//! Jetties: description for peers.

use crate::{
    abi::*,
    call::{self, Answer, Object, object, refuse},
    face::{describe, device, dispatch::home},
    udma::kind,
};

/// Describes the jetty for peers, which import it by the description: bytes that mean the same in any process, without
/// the token. `urma_put_rjetty` frees them.
pub unsafe extern "C" fn urma_get_rjetty(
    jetty: *mut urma_jetty_t,
    rjetty: *mut *mut urma_rjetty_t,
    length: *mut u32,
) -> urma_status_t {
    call::status(|| {
        let jetty = object::<kind::Jetty>(jetty)?;
        // SAFETY: two places of the caller's (room card of `face`).
        let (to, length) = unsafe { call::args((rjetty, length)) }?;
        let ctx = home(jetty);
        let policy = token_policy(jetty)?;
        let memory = describe::blank::<urma_rjetty_t>(ctx, jetty)?;
        // SAFETY: `blank` made the memory with a value just now, and no other thread has it.
        let described = unsafe { &mut *memory.as_ptr() };
        fill(described, &jetty);
        described.flag.set_token_policy(policy);
        // SAFETY: `blank` made the memory; the flag in it is as it was then.
        unsafe { describe::give(memory, (to, length)) };
        Ok(())
    })
}

/// Returns the token policy of the JFR that a jetty receives through.
fn token_policy(jetty: Object<urma_jetty_t>) -> Answer<u32> {
    let Receive::Shared(shared) = jetty.jetty_cfg.receive() else {
        return Err(refuse!(
            EINVAL,
            "the jetty has share_jfr 0; only one that shares a JFR is described"
        ));
    };
    Ok(object::<kind::Jfr>(shared.jfr)?.jfr_cfg.flag.token_policy())
}

fn fill(to: &mut urma_rjetty_t, jetty: &urma_jetty_t) {
    let cfg = &jetty.jetty_cfg;
    let mode = cfg.jfs_cfg.trans_mode;
    to.jetty_id = jetty.jetty_id;
    to.trans_mode = mode;
    to.r#type = URMA_JETTY;
    to.flag.set_order_type(cfg.jfs_cfg.flag.order_type());
    if mode == URMA_TM_UM {
        to.tp_type = URMA_UTP;
    }
    to.policy = object::<kind::Group>(cfg.jetty_grp).map_or(0, |group| group.cfg.policy);
}

/// Frees a description of `urma_get_rjetty`; NULL is ignored.
pub unsafe extern "C" fn urma_put_rjetty(rjetty: *mut urma_rjetty_t) {
    // SAFETY: the caller got it from `urma_get_rjetty`, which made it with the C library, or it is NULL.
    unsafe { device::take_back(rjetty.cast()) };
}
