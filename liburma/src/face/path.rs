//! Transport paths: handles, attributes, numbers.

use core::ffi::c_int;

use crate::{
    abi::*,
    call::{self, Code, object, refuse},
    face::dispatch::{ask, forwards, home},
    udma::kind,
};

/// Bit that programs must not set: the UDP setting of the device for all paths.
const GLOBAL: u32 = 1 << 16;

/// Lists handles of the paths from this node to `peer_eid`: at most `*tp_cnt`, which becomes their number. The flag
/// selects kinds; without one, all that serve the mode: RTP and CTP, or UTP for UM.
pub unsafe extern "C" fn urma_get_tp_list(
    ctx: *mut urma_context_t,
    cfg: *mut urma_get_tp_cfg_t,
    tp_cnt: *mut u32,
    tp_list: *mut urma_tp_info_t,
) -> urma_status_t {
    call::status(|| {
        let ctx = object::<kind::Context>(ctx)?;
        call::some(tp_list)?;
        // SAFETY: a number and a wish of the caller's (room card of `face`).
        let (count, cfg_in) = unsafe { call::args((tp_cnt, cfg)) }?;
        let (room, mode) = (count.read(), cfg_in.read().trans_mode);
        if room == 0 || !matches!(mode, URMA_TM_RM | URMA_TM_RC | URMA_TM_UM) {
            return Err(refuse!(
                EINVAL,
                "*tp_cnt is {room} and cfg.trans_mode {mode}; there must be room for a handle, and modes are 1 (RM), \
                 2 (RC) and 4 (UM)"
            ));
        }
        Code::from_c(ask!(ctx.as_ptr(), get_tp_list(ctx.as_ptr(), cfg, tp_cnt, tp_list)))
    })
}

/// Sets the attributes of the bitmap, which has one bit for each in the order of the struct.
pub unsafe extern "C" fn urma_set_tp_attr(
    ctx: *const urma_context_t,
    tp_handle: u64,
    tp_attr_cnt: u8,
    tp_attr_bitmap: u32,
    tp_attr: *const urma_tp_attr_value_t,
) -> urma_status_t {
    call::status(|| {
        let ctx = object::<kind::Context>(ctx)?;
        call::some(tp_attr)?;
        let (of, bitmap) = (ctx.as_ptr().cast_const(), tp_attr_bitmap & !GLOBAL);
        Code::from_c(ask!(ctx.as_ptr(), set_tp_attr(of, tp_handle, tp_attr_cnt, bitmap, tp_attr)))
    })
}

forwards! {
    /// Returns the attributes that were set, with their bitmap and number.
    urma_get_tp_attr(
        ctx: *const urma_context_t as Context, tp_handle: u64, tp_attr_cnt: *mut u8, tp_attr_bitmap: *mut u32,
        tp_attr: *mut urma_tp_attr_value_t
    ) needs(tp_attr_cnt, tp_attr_bitmap, tp_attr) = get_tp_attr;
    /// Changes a path by its number. EOPNOTSUPP: the software device does not support it.
    urma_modify_tp(
        ctx: *mut urma_context_t as Context, tpn: u32, cfg: *mut urma_tp_cfg_t, attr: *mut urma_tp_attr_t,
        mask: urma_tp_attr_mask_t
    ) needs(cfg, attr) = modify_tp;
}

/// Returns the number of the path of a bound jetty, or the negative status.
pub unsafe extern "C" fn urma_get_tpn(jetty: *mut urma_jetty_t) -> c_int {
    call::negative(|| {
        let jetty = object::<kind::Jetty>(jetty)?;
        Ok(ask!(home(jetty), get_tpn(jetty.as_ptr())))
    })
}
