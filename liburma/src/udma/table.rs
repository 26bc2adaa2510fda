//! The tables of the built-in provider.
//!
//! *Owns*: `urma_ops_t` and `urma_provider_ops_t`, one of each per process. They are writable: a C
//! program may wrap a member, as it may in the original. *Gives*: their addresses. *Must not*: do
//! anything; each member is a function of the file of its noun. A member that is left out makes the
//! face answer as the original does for a provider without it.
#![expect(unsafe_code, reason = "tables that C programs may write to")]

use core::cell::UnsafeCell;
use std::sync::OnceLock;

use super::{
    address, context, ctl, device, event, group, jetty, jfc, jfce, jfr, jfs, notifier, path, poll,
    post, segment, target, target_ex, token,
};
use crate::{
    abi::{urma_ops_t, urma_provider_attr_t, urma_provider_ops_t},
    convert::zeroed,
};

/// Name of the provider.
const NAME: &core::ffi::CStr = c"udma";

/// A table in memory that only C writes to after it was made.
struct Table<T>(UnsafeCell<T>);

// SAFETY: after it was made, Rust reads members by raw pointer only, each once per call; a program
// that writes to it while others call has the race of the original.
unsafe impl<T> Sync for Table<T> {}
// SAFETY: functions and the address of a constant.
unsafe impl<T> Send for Table<T> {}

/// The operations of a context.
pub(crate) fn ops() -> *mut urma_ops_t {
    static TABLE: OnceLock<Table<urma_ops_t>> = OnceLock::new();
    TABLE.get_or_init(|| Table(UnsafeCell::new(all()))).0.get()
}

/// The operations of the provider.
pub(crate) fn provider() -> *mut urma_provider_ops_t {
    static TABLE: OnceLock<Table<urma_provider_ops_t>> = OnceLock::new();
    TABLE.get_or_init(|| Table(UnsafeCell::new(of_provider()))).0.get()
}

fn of_provider() -> urma_provider_ops_t {
    let mut ops: urma_provider_ops_t = zeroed();
    ops.name = NAME.as_ptr();
    ops.attr = urma_provider_attr_t { version: 1, transport_type: crate::abi::URMA_TRANSPORT_UB };
    ops.init = Some(device::init);
    ops.uninit = Some(device::uninit);
    ops.query_device = Some(device::query_device);
    ops.create_context = Some(context::create_context);
    ops.delete_context = Some(context::delete_context);
    ops.get_uasid = Some(device::get_uasid);
    ops
}

fn all() -> urma_ops_t {
    let mut ops: urma_ops_t = zeroed();
    ops.name = NAME.as_ptr();
    completion(&mut ops);
    queues(&mut ops);
    targets(&mut ops);
    memory(&mut ops);
    data(&mut ops);
    paths(&mut ops);
    families(&mut ops);
    ops
}

fn paths(ops: &mut urma_ops_t) {
    ops.get_tp_list = Some(path::get_tp_list);
    ops.set_tp_attr = Some(path::set_tp_attr);
    ops.get_tp_attr = Some(path::get_tp_attr);
    ops.get_tpn = Some(path::get_tpn);
    ops.modify_tp = Some(path::modify_tp);
    ops.import_jetty_ex = Some(target_ex::import_jetty_ex);
    ops.import_jfr_ex = Some(target_ex::import_jfr_ex);
    ops.bind_jetty_ex = Some(target_ex::bind_jetty_ex);
    ops.advise_jfr_async = Some(target_ex::advise_jfr_async);
    ops.advise_jetty_async = Some(target_ex::advise_jetty_async);
    ops.create_notifier = Some(notifier::create_notifier);
    ops.delete_notifier = Some(notifier::delete_notifier);
    ops.wait_notify = Some(notifier::wait_notify);
    ops.ack_notify = Some(notifier::ack_notify);
    ops.import_jetty_async = Some(notifier::import_jetty_async);
    ops.unimport_jetty_async = Some(target::unimport);
    ops.bind_jetty_async = Some(notifier::bind_jetty_async);
    ops.unbind_jetty_async = Some(target::unbind_jetty);
    ops.get_eid_by_ip = Some(address::get_eid_by_ip);
    ops.get_ip_by_eid = Some(address::get_ip_by_eid);
    ops.get_smac = Some(address::get_smac);
    ops.get_dmac = Some(address::get_dmac);
    ops.user_ctl = Some(ctl::user_ctl);
}

fn families(ops: &mut urma_ops_t) {
    ops.alloc_jfc = Some(jfc::alloc_jfc);
    ops.set_jfc_opt = Some(jfc::set_jfc_opt);
    ops.get_jfc_opt = Some(jfc::get_jfc_opt);
    ops.active_jfc = Some(jfc::active_jfc);
    ops.deactive_jfc = Some(jfc::deactive_jfc);
    ops.free_jfc = Some(jfc::free_jfc);
    ops.alloc_jfs = Some(jfs::alloc_jfs);
    ops.set_jfs_opt = Some(jfs::set_jfs_opt);
    ops.get_jfs_opt = Some(jfs::get_jfs_opt);
    ops.active_jfs = Some(jfs::active_jfs);
    ops.deactive_jfs = Some(jfs::deactive_jfs);
    ops.free_jfs = Some(jfs::free_jfs);
    ops.alloc_jfr = Some(jfr::alloc_jfr);
    ops.set_jfr_opt = Some(jfr::set_jfr_opt);
    ops.get_jfr_opt = Some(jfr::get_jfr_opt);
    ops.active_jfr = Some(jfr::active_jfr);
    ops.deactive_jfr = Some(jfr::deactive_jfr);
    ops.free_jfr = Some(jfr::free_jfr);
    ops.alloc_jetty = Some(jetty::alloc_jetty);
    ops.set_jetty_opt = Some(jetty::set_jetty_opt);
    ops.get_jetty_opt = Some(jetty::get_jetty_opt);
    ops.active_jetty = Some(jetty::active_jetty);
    ops.deactive_jetty = Some(jetty::deactive_jetty);
    ops.free_jetty = Some(jetty::free_jetty);
}

fn completion(ops: &mut urma_ops_t) {
    ops.create_jfce = Some(jfce::create_jfce);
    ops.delete_jfce = Some(jfce::delete_jfce);
    ops.wait_jfc = Some(jfce::wait_jfc);
    ops.create_jfc = Some(jfc::create_jfc);
    ops.modify_jfc = Some(jfc::modify_jfc);
    ops.delete_jfc = Some(jfc::delete_jfc);
    ops.delete_jfc_batch = Some(jfc::delete_jfc_batch);
    ops.ack_jfc = Some(jfc::ack_jfc);
    ops.get_async_event = Some(event::get_async_event);
    ops.ack_async_event = Some(event::ack_async_event);
}

fn queues(ops: &mut urma_ops_t) {
    ops.create_jfs = Some(jfs::create_jfs);
    ops.modify_jfs = Some(jfs::modify_jfs);
    ops.query_jfs = Some(jfs::query_jfs);
    ops.flush_jfs = Some(jfs::flush_jfs);
    ops.delete_jfs = Some(jfs::delete_jfs);
    ops.delete_jfs_batch = Some(jfs::delete_jfs_batch);
    ops.create_jfr = Some(jfr::create_jfr);
    ops.modify_jfr = Some(jfr::modify_jfr);
    ops.query_jfr = Some(jfr::query_jfr);
    ops.delete_jfr = Some(jfr::delete_jfr);
    ops.delete_jfr_batch = Some(jfr::delete_jfr_batch);
    ops.create_jetty = Some(jetty::create_jetty);
    ops.modify_jetty = Some(jetty::modify_jetty);
    ops.query_jetty = Some(jetty::query_jetty);
    ops.flush_jetty = Some(jetty::flush_jetty);
    ops.delete_jetty = Some(jetty::delete_jetty);
    ops.delete_jetty_batch = Some(jetty::delete_jetty_batch);
    ops.create_jetty_grp = Some(group::create_jetty_grp);
    ops.delete_jetty_grp = Some(group::delete_jetty_grp);
}

fn targets(ops: &mut urma_ops_t) {
    ops.import_jfr = Some(target::import_jfr);
    ops.unimport_jfr = Some(target::unimport);
    ops.import_jetty = Some(target::import_jetty);
    ops.unimport_jetty = Some(target::unimport);
    ops.advise_jfr = Some(target::advise_jfr);
    ops.unadvise_jfr = Some(target::unadvise_jfr);
    ops.advise_jetty = Some(target::advise_jetty);
    ops.unadvise_jetty = Some(target::unadvise_jetty);
    ops.bind_jetty = Some(target::bind_jetty);
    ops.unbind_jetty = Some(target::unbind_jetty);
}

fn memory(ops: &mut urma_ops_t) {
    ops.alloc_token_id = Some(token::alloc_token_id);
    ops.alloc_token_id_ex = Some(token::alloc_token_id_ex);
    ops.free_token_id = Some(token::free_token_id);
    ops.register_seg = Some(segment::register_seg);
    ops.unregister_seg = Some(segment::unregister_seg);
    ops.import_seg = Some(segment::import_seg);
    ops.unimport_seg = Some(segment::unimport_seg);
}

fn data(ops: &mut urma_ops_t) {
    ops.post_jfs_wr = Some(post::post_jfs_wr);
    ops.post_jfr_wr = Some(post::post_jfr_wr);
    ops.post_jetty_send_wr = Some(post::post_jetty_send_wr);
    ops.post_jetty_recv_wr = Some(post::post_jetty_recv_wr);
    ops.poll_jfc = Some(poll::poll_jfc);
    ops.rearm_jfc = Some(poll::rearm_jfc);
}
