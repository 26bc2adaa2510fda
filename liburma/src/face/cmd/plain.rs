//! Commands that only look up what stands behind their objects, and go on.
#![expect(unsafe_code, reason = "exported functions")]
#![expect(clippy::missing_safety_doc, reason = "the room card says what callers promise")]
#![expect(missing_docs, reason = "each is the command of its name; the room card says the rest")]

use core::ffi::{c_int, c_void};

use super::shadow::{self, Handled};
use crate::{
    abi::{
        urma_cmd_udrv_priv_t, urma_context_t, urma_eid_t, urma_get_tp_cfg_t, urma_jetty_attr_t,
        urma_jetty_cfg_t, urma_jetty_grp_t, urma_jetty_t, urma_jfc_attr_t, urma_jfc_t,
        urma_jfr_attr_t, urma_jfr_cfg_t, urma_jfr_t, urma_jfs_attr_t, urma_jfs_cfg_t, urma_jfs_t,
        urma_net_addr_t, urma_status_t, urma_target_jetty_t, urma_target_seg_t, urma_token_id_t,
        urma_tp_attr_mask_t, urma_tp_attr_t, urma_tp_attr_value_t, urma_tp_cfg_t, urma_tp_info_t,
        urma_udrv_t, urma_user_ctl_in_t, urma_user_ctl_out_t,
    },
    call::{self, Answer, Code},
    udma::{address, group, jetty, jfc, jfr, jfs, kind, path, segment, target, token},
};

type Udata = *mut urma_cmd_udrv_priv_t;

/// 0, or the negated status.
pub(super) fn done(f: impl FnOnce() -> Answer) -> c_int {
    call::negative(|| f().map(|()| 0))
}

/// Commands on one object.
macro_rules! on {
    ($($name:ident($kind:ident, $public:ident $(, $arg:ident: $ty:ty)*)
        $(ignoring($($rest:ident: $rest_ty:ty),*))? => $op:path;)*) => {$(
        pub unsafe extern "C" fn $name(
            object: *mut $public
            $(, $arg: $ty)*
            $($(, $rest: $rest_ty)*)?
        ) -> c_int {
            done(|| {
                let shadow = shadow::of::<kind::$kind>(object)?;
                // SAFETY: the operation checks its arguments, which are the caller's.
                Code::from_c(unsafe { $op(shadow $(, $arg)*) })
            })
        }
    )*};
}

on! {
    urma_cmd_modify_jfc(Jfc, urma_jfc_t, attr: *mut urma_jfc_attr_t)
        ignoring(_udata: Udata) => jfc::modify_jfc;
    urma_cmd_set_jfc_opt(Jfc, urma_jfc_t, opt: u64, buf: *mut c_void, len: u32)
        ignoring(_udata: Udata) => jfc::set_jfc_opt;
    urma_cmd_get_jfc_opt(Jfc, urma_jfc_t, opt: u64, buf: *mut c_void, len: u32)
        ignoring(_udata: Udata) => jfc::get_jfc_opt;
    urma_cmd_deactive_jfc(Jfc, urma_jfc_t) ignoring(_udata: Udata) => jfc::deactive_jfc;
    urma_cmd_modify_jfs(Jfs, urma_jfs_t, attr: *mut urma_jfs_attr_t)
        ignoring(_udata: Udata) => jfs::modify_jfs;
    urma_cmd_query_jfs(Jfs, urma_jfs_t, cfg: *mut urma_jfs_cfg_t, attr: *mut urma_jfs_attr_t)
        => jfs::query_jfs;
    urma_cmd_set_jfs_opt(Jfs, urma_jfs_t, opt: u64, buf: *mut c_void, len: u32)
        ignoring(_udata: Udata) => jfs::set_jfs_opt;
    urma_cmd_get_jfs_opt(Jfs, urma_jfs_t, opt: u64, buf: *mut c_void, len: u32)
        ignoring(_udata: Udata) => jfs::get_jfs_opt;
    urma_cmd_deactive_jfs(Jfs, urma_jfs_t) ignoring(_udata: Udata) => jfs::deactive_jfs;
    urma_cmd_modify_jfr(Jfr, urma_jfr_t, attr: *mut urma_jfr_attr_t)
        ignoring(_udata: Udata) => jfr::modify_jfr;
    urma_cmd_query_jfr(Jfr, urma_jfr_t, cfg: *mut urma_jfr_cfg_t, attr: *mut urma_jfr_attr_t)
        => jfr::query_jfr;
    urma_cmd_set_jfr_opt(Jfr, urma_jfr_t, opt: u64, buf: *mut c_void, len: u32)
        ignoring(_udata: Udata) => jfr::set_jfr_opt;
    urma_cmd_get_jfr_opt(Jfr, urma_jfr_t, opt: u64, buf: *mut c_void, len: u32)
        ignoring(_udata: Udata) => jfr::get_jfr_opt;
    urma_cmd_deactive_jfr(Jfr, urma_jfr_t) ignoring(_udata: Udata) => jfr::deactive_jfr;
    urma_cmd_modify_jetty(Jetty, urma_jetty_t, attr: *mut urma_jetty_attr_t)
        ignoring(_udata: Udata) => jetty::modify_jetty;
    urma_cmd_query_jetty(Jetty, urma_jetty_t, cfg: *mut urma_jetty_cfg_t,
        attr: *mut urma_jetty_attr_t) => jetty::query_jetty;
    urma_cmd_set_jetty_opt(Jetty, urma_jetty_t, opt: u64, buf: *mut c_void, len: u32)
        ignoring(_udata: Udata) => jetty::set_jetty_opt;
    urma_cmd_get_jetty_opt(Jetty, urma_jetty_t, opt: u64, buf: *mut c_void, len: u32)
        ignoring(_udata: Udata) => jetty::get_jetty_opt;
    urma_cmd_deactive_jetty(Jetty, urma_jetty_t) ignoring(_udata: Udata) => jetty::deactive_jetty;
    urma_cmd_unbind_jetty(Jetty, urma_jetty_t) => target::unbind_jetty;
    urma_cmd_unbind_jetty_async(Jetty, urma_jetty_t) => target::unbind_jetty;
}

/// Commands after which nothing stands behind the object.
macro_rules! ends {
    ($($name:ident($kind:ident, $public:ident $(, $rest:ident: $rest_ty:ty)*) => $op:path;)*) => {$(
        pub unsafe extern "C" fn $name(
            object: *mut $public
            $(, $rest: $rest_ty)*
        ) -> c_int {
            done(|| end::<kind::$kind>(object, $op))
        }
    )*};
}

fn end<K: Handled>(
    object: *mut K::Public,
    op: unsafe extern "C" fn(*mut K::Public) -> urma_status_t,
) -> Answer {
    let shadow = shadow::of::<K>(object)?;
    // SAFETY: the operation looks it up.
    Code::from_c(unsafe { op(shadow) })?;
    shadow::part(shadow);
    Ok(())
}

ends! {
    urma_cmd_delete_jfc(Jfc, urma_jfc_t) => jfc::delete_jfc;
    urma_cmd_free_jfc(Jfc, urma_jfc_t, _udata: Udata) => jfc::free_jfc;
    urma_cmd_delete_jfs(Jfs, urma_jfs_t) => jfs::delete_jfs;
    urma_cmd_free_jfs(Jfs, urma_jfs_t, _udata: Udata) => jfs::free_jfs;
    urma_cmd_delete_jfr(Jfr, urma_jfr_t) => jfr::delete_jfr;
    urma_cmd_free_jfr(Jfr, urma_jfr_t, _udata: Udata) => jfr::free_jfr;
    urma_cmd_delete_jetty(Jetty, urma_jetty_t) => jetty::delete_jetty;
    urma_cmd_free_jetty(Jetty, urma_jetty_t, _udata: Udata) => jetty::free_jetty;
    urma_cmd_delete_jetty_grp(Group, urma_jetty_grp_t) => group::delete_jetty_grp;
    urma_cmd_unimport_jfr(Target, urma_target_jetty_t) => target::unimport;
    urma_cmd_unimport_jetty(Target, urma_target_jetty_t) => target::unimport;
    urma_cmd_unimport_jetty_async(Target, urma_target_jetty_t) => target::unimport;
    urma_cmd_free_token_id(TokenId, urma_token_id_t) => token::free_token_id;
    urma_cmd_unregister_seg(Segment, urma_target_seg_t) => segment::unregister_seg;
    urma_cmd_unimport_seg(Segment, urma_target_seg_t) => segment::unimport_seg;
}

/// Deletes in order; `bad` names the first that is refused.
macro_rules! batches {
    ($($name:ident($kind:ident, $public:ident) => $op:path;)*) => {$(
        pub unsafe extern "C" fn $name(
            list: *mut *mut $public,
            count: c_int,
            bad: *mut *mut $public,
        ) -> c_int {
            let one = |object| end::<kind::$kind>(object, $op);
            // SAFETY: the caller's array and place.
            done(|| unsafe { crate::udma::context::delete_each(list, count, bad, one) })
        }
    )*};
}

batches! {
    urma_cmd_delete_jfc_batch(Jfc, urma_jfc_t) => jfc::delete_jfc;
    urma_cmd_delete_jfs_batch(Jfs, urma_jfs_t) => jfs::delete_jfs;
    urma_cmd_delete_jfr_batch(Jfr, urma_jfr_t) => jfr::delete_jfr;
    urma_cmd_delete_jetty_batch(Jetty, urma_jetty_t) => jetty::delete_jetty;
}

/// Commands on a queue and a target.
macro_rules! pairs {
    ($($name:ident($kind:ident, $public:ident $(, $rest:ident: $rest_ty:ty)*) => $op:path;)*) => {$(
        pub unsafe extern "C" fn $name(
            queue: *mut $public,
            target: *mut urma_target_jetty_t
            $(, $rest: $rest_ty)*
        ) -> c_int {
            done(|| {
                let queue = shadow::of::<kind::$kind>(queue)?;
                let target = shadow::of::<kind::Target>(target)?;
                // SAFETY: the operation looks both up.
                Code::from_c(unsafe { $op(queue, target) })
            })
        }
    )*};
}

pairs! {
    urma_cmd_advise_jfr(Jfs, urma_jfs_t, _udata: Udata) => target::advise_jfr;
    urma_cmd_unadvise_jfr(Jfs, urma_jfs_t) => target::unadvise_jfr;
    urma_cmd_advise_jetty(Jetty, urma_jetty_t, _udata: Udata) => target::advise_jetty;
    urma_cmd_unadvise_jetty(Jetty, urma_jetty_t) => target::unadvise_jetty;
    urma_cmd_bind_jetty(Jetty, urma_jetty_t, _udata: Udata) => target::bind_jetty;
}

/// Commands on a context.
macro_rules! in_context {
    ($($name:ident($ctx:ty $(, $arg:ident: $ty:ty)*)
        $(ignoring($($rest:ident: $rest_ty:ty),*))? => $op:path;)*) => {$(
        pub unsafe extern "C" fn $name(
            ctx: $ctx
            $(, $arg: $ty)*
            $($(, $rest: $rest_ty)*)?
        ) -> c_int {
            done(|| {
                let shadow = shadow::context(ctx)?;
                // SAFETY: the operation checks its arguments, which are the caller's.
                Code::from_c(unsafe { $op(shadow $(, $arg)*) })
            })
        }
    )*};
}

in_context! {
    urma_cmd_modify_tp(*mut urma_context_t, tpn: u32, cfg: *mut urma_tp_cfg_t,
        attr: *mut urma_tp_attr_t, mask: urma_tp_attr_mask_t) => path::modify_tp;
    urma_cmd_get_tp_list(*mut urma_context_t, cfg: *mut urma_get_tp_cfg_t, tp_cnt: *mut u32,
        tp_list: *mut urma_tp_info_t) ignoring(_udata: Udata) => path::get_tp_list;
    urma_cmd_set_tp_attr(*const urma_context_t, tp_handle: u64, tp_attr_cnt: u8,
        tp_attr_bitmap: u32, tp_attr: *const urma_tp_attr_value_t)
        ignoring(_udata: Udata) => path::set_tp_attr;
    urma_cmd_get_tp_attr(*const urma_context_t, tp_handle: u64, tp_attr_cnt: *mut u8,
        tp_attr_bitmap: *mut u32, tp_attr: *mut urma_tp_attr_value_t)
        ignoring(_udata: Udata) => path::get_tp_attr;
    urma_cmd_exchange_tp_info(*mut urma_context_t, cfg: *mut urma_get_tp_cfg_t,
        local_tp_handle: u64, tx_psn: u32, peer_tp_handle: *mut u64, rx_psn: *mut u32)
        => exchange;
    urma_cmd_user_ctl(*mut urma_context_t, from: *mut urma_user_ctl_in_t,
        to: *mut urma_user_ctl_out_t) ignoring(_udrv: *mut urma_udrv_t) => kernel_ctl;
    urma_cmd_get_eid_by_ip(*const urma_context_t, net_addr: *const urma_net_addr_t,
        eid: *mut urma_eid_t) => address::get_eid_by_ip;
    urma_cmd_get_ip_by_eid(*const urma_context_t, eid: *const urma_eid_t,
        net_addr: *mut urma_net_addr_t) => address::get_ip_by_eid;
    urma_cmd_get_smac(*const urma_context_t, mac: *mut u8) => address::get_smac;
    urma_cmd_get_dmac(*const urma_context_t, net_addr: *const urma_net_addr_t, mac: *mut u8)
        => address::get_dmac;
}

/// Not supported: the ends of a software path agree on packet numbers themselves.
unsafe fn exchange(
    _ctx: *mut urma_context_t,
    cfg: *mut urma_get_tp_cfg_t,
    _local: u64,
    _tx_psn: u32,
    peer: *mut u64,
    rx_psn: *mut u32,
) -> c_int {
    let places = [call::place(cfg).err(), call::place(peer).err(), call::place(rx_psn).err()];
    places.into_iter().flatten().next().unwrap_or(Code::ENOTSUP).status()
}

/// Not supported: these opcodes are between a driver and its kernel module, which is not there.
unsafe fn kernel_ctl(
    _ctx: *mut urma_context_t,
    from: *mut urma_user_ctl_in_t,
    to: *mut urma_user_ctl_out_t,
) -> c_int {
    let refused = call::place(from).err().or_else(|| call::place(to).err());
    refused.unwrap_or(Code::ENOTSUP).status()
}
