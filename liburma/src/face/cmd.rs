//! The commands of device files (`urma_cmd_*`), which providers in C link.
//!
//! *Owns*: the list of commands that are not supported. *Takes*: descriptors of `urma_open_cdev`. *Gives*: EIDs and
//! attributes, which administration tools ask for; EOPNOTSUPP for all others, which need a kernel module, whatever their
//! arguments (docs/c-api.md). Arguments that a function does not read are missing from its Rust signature: the C calling
//! convention leaves them in registers and on the caller's stack.
#![expect(missing_docs, reason = "each is the command of its name; the room card says the rest")]

use core::ffi::c_int;

use crate::{
    abi::*,
    call::{self, Code, UserArray, UserPtr, refuse},
    convert::eid_out,
    face::{cdev, dispatch::ATTR},
    udma::device,
};

/// Commands that return the negated EOPNOTSUPP.
macro_rules! not_supported {
    ($($name:ident,)*) => {
        $(pub extern "C" fn $name() -> c_int { -Code::ENOTSUP.get() })*
    };
}

not_supported! {
    urma_cmd_create_context, urma_cmd_delete_context, urma_cmd_create_jfce, urma_cmd_create_jfc,
    urma_cmd_modify_jfc, urma_cmd_delete_jfc, urma_cmd_delete_jfc_batch, urma_cmd_wait_jfc,
    urma_cmd_alloc_jfc, urma_cmd_set_jfc_opt, urma_cmd_active_jfc, urma_cmd_get_jfc_opt,
    urma_cmd_deactive_jfc, urma_cmd_free_jfc, urma_cmd_create_jfs, urma_cmd_modify_jfs,
    urma_cmd_query_jfs, urma_cmd_delete_jfs, urma_cmd_delete_jfs_batch, urma_cmd_alloc_jfs,
    urma_cmd_set_jfs_opt, urma_cmd_active_jfs, urma_cmd_get_jfs_opt, urma_cmd_deactive_jfs,
    urma_cmd_free_jfs, urma_cmd_create_jfr, urma_cmd_modify_jfr, urma_cmd_query_jfr,
    urma_cmd_delete_jfr, urma_cmd_delete_jfr_batch, urma_cmd_alloc_jfr, urma_cmd_set_jfr_opt,
    urma_cmd_active_jfr, urma_cmd_get_jfr_opt, urma_cmd_deactive_jfr, urma_cmd_free_jfr,
    urma_cmd_import_jfr, urma_cmd_import_jfr_ex, urma_cmd_unimport_jfr, urma_cmd_advise_jfr,
    urma_cmd_unadvise_jfr, urma_cmd_create_jetty, urma_cmd_modify_jetty, urma_cmd_query_jetty,
    urma_cmd_delete_jetty, urma_cmd_delete_jetty_batch, urma_cmd_alloc_jetty,
    urma_cmd_set_jetty_opt, urma_cmd_active_jetty, urma_cmd_get_jetty_opt, urma_cmd_deactive_jetty,
    urma_cmd_free_jetty, urma_cmd_import_jetty, urma_cmd_import_jetty_ex, urma_cmd_unimport_jetty,
    urma_cmd_advise_jetty, urma_cmd_unadvise_jetty, urma_cmd_bind_jetty, urma_cmd_bind_jetty_ex,
    urma_cmd_unbind_jetty, urma_cmd_create_jetty_grp, urma_cmd_delete_jetty_grp,
    urma_cmd_alloc_token_id, urma_cmd_alloc_token_id_ex, urma_cmd_free_token_id,
    urma_cmd_register_seg, urma_cmd_unregister_seg, urma_cmd_import_seg, urma_cmd_unimport_seg,
    urma_cmd_user_ctl, urma_cmd_get_net_addr_list, urma_cmd_modify_tp, urma_cmd_import_jetty_async,
    urma_cmd_unimport_jetty_async, urma_cmd_bind_jetty_async, urma_cmd_unbind_jetty_async,
    urma_cmd_create_notifier, urma_cmd_wait_notify, urma_cmd_get_tp_list, urma_cmd_set_tp_attr,
    urma_cmd_get_tp_attr, urma_cmd_exchange_tp_info, urma_cmd_get_eid_by_ip,
    urma_cmd_get_ip_by_eid, urma_cmd_get_smac, urma_cmd_get_dmac,
}

/// Not supported: returns a status.
pub extern "C" fn urma_cmd_get_async_event() -> urma_status_t {
    Code::ENOTSUP.get()
}

/// Does nothing: no command hands out events.
pub extern "C" fn urma_cmd_ack_jfc() {}

/// Does nothing: no command hands out events.
pub extern "C" fn urma_cmd_ack_async_event() {}

/// Writes the EIDs of the device that `dev_fd` was opened on, at most `max_eid_cnt`.
pub unsafe extern "C" fn urma_cmd_get_eid_list(
    dev_fd: c_int,
    max_eid_cnt: u32,
    eid_list: *mut urma_eid_info_t,
    eid_cnt: *mut u32,
) -> c_int {
    call::negative(|| {
        // SAFETY: an array of the caller's of that many elements (room card of `face`).
        let to = unsafe { UserArray::new(eid_list, max_eid_cnt as usize) }?;
        // SAFETY: a place of the caller's.
        let count = unsafe { UserPtr::new(eid_cnt) }?;
        let eids = device::eids(cdev::device(dev_fd)?.as_ptr())?;
        let infos = eids.into_iter().zip(0..);
        let given =
            to.fill(infos.map(|(eid, eid_index)| urma_eid_info_t { eid: eid_out(eid), eid_index }));
        count.write(u32::try_from(given).map_err(|_| refuse!(FAIL, "there are {given} EIDs"))?);
        Ok(0)
    })
}

/// Writes the attributes of the device that `dev_fd` was opened on to `sysfs_dev->dev_attr`.
pub unsafe extern "C" fn urma_cmd_query_device_attr(
    dev_fd: c_int,
    sysfs_dev: *mut urma_sysfs_dev_t,
) -> c_int {
    call::negative(|| {
        call::some(sysfs_dev)?;
        // SAFETY: a member of a struct of the caller's (room card of `face`).
        let to = unsafe { UserPtr::new(ATTR.of(sysfs_dev)) }?;
        to.write(device::attributes(cdev::device(dev_fd)?.as_ptr())?);
        Ok(0)
    })
}
