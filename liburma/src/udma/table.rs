//! The provider: its own functions, and the tables of all operations.
//!
//! *Owns*: the life of contexts, which name the table; `urma_ops_t` and `urma_provider_ops_t`, one of each per process.
//! They are writable: a C program may wrap a member, as in UMDK's library. *Gives*: their addresses. Every other
//! member is a function of the file of its noun. A member that is left out makes the face answer as UMDK's library does
//! for a provider without it.

use core::{cell::UnsafeCell, ffi::c_int};
use std::sync::{Arc, Mutex, OnceLock};

use urma_core::Status;

use super::{
    address, context, ctl, device, event, family, jetty, jfc, jfs,
    kind::{self, Ctx},
    notifier, path, post, segment, target,
};
use crate::{
    abi::*,
    call::{self, UserPtr, ours, refuse},
    convert::{eid_out, zeroed},
    latch::lock,
    slab::Fresh,
    udma::{context::no_place, event_queue::Events},
};

/// Name of the provider.
const NAME: &core::ffi::CStr = c"udma";

/// A table in memory that only C writes to after it was made.
struct Table<T>(UnsafeCell<T>);

// SAFETY: after it was made, Rust reads members by raw pointer only, each once per call; a program
// that writes to it while others call has the race that it has in UMDK's library.
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
    ops.attr = urma_provider_attr_t { version: 1, transport_type: URMA_TRANSPORT_UB };
    ops.init = Some(init);
    ops.uninit = Some(uninit);
    ops.query_device = Some(query_device);
    ops.create_context = Some(create_context);
    ops.delete_context = Some(delete_context);
    ops.get_uasid = Some(get_uasid);
    ops
}

fn all() -> urma_ops_t {
    let mut ops: urma_ops_t = zeroed();
    ops.name = NAME.as_ptr();
    nouns(&mut ops);
    families(&mut ops);
    ops
}

/// Sets members to the functions of the same names, by the files that these are in.
macro_rules! members {
    ($ops:ident: $($room:ident { $($name:ident),* $(,)? })*) => {
        $($($ops.$name = Some($room::$name);)*)*
    };
}

fn nouns(ops: &mut urma_ops_t) {
    members! { ops:
        jfc { create_jfce, delete_jfce, wait_jfc, ack_jfc, poll_jfc, rearm_jfc }
        event { get_async_event, ack_async_event }
        jfs { flush_jfs }
        jetty { flush_jetty, create_jetty_grp, delete_jetty_grp }
        target {
            import_jfr, import_jetty, advise_jfr, unadvise_jfr, advise_jetty, unadvise_jetty,
            bind_jetty, unbind_jetty, import_jetty_ex, import_jfr_ex, bind_jetty_ex, advise_jfr_async,
            advise_jetty_async,
        }
        segment {
            register_seg, unregister_seg, import_seg, unimport_seg, alloc_token_id, alloc_token_id_ex,
            free_token_id,
        }
        post { post_jfs_wr, post_jfr_wr, post_jetty_send_wr, post_jetty_recv_wr }
        path { get_tp_list, set_tp_attr, get_tp_attr, get_tpn, modify_tp }
        notifier {
            create_notifier, delete_notifier, wait_notify, ack_notify, import_jetty_async,
            bind_jetty_async,
        }
        address { get_eid_by_ip, get_ip_by_eid, get_smac, get_dmac }
        ctl { user_ctl }
    }
    ops.unimport_jfr = Some(target::unimport);
    ops.unimport_jetty = Some(target::unimport);
    ops.unimport_jetty_async = Some(target::unimport);
    ops.unbind_jetty_async = Some(target::unbind_jetty);
}

/// The operations that all kinds of queues have.
macro_rules! family {
    ($ops:ident, $kind:ty: $create:ident $modify:ident $delete:ident $batch:ident $alloc:ident $set:ident
        $get:ident $active:ident $deactive:ident $free:ident) => {
        $ops.$create = Some(family::create::<$kind>);
        $ops.$modify = Some(family::modify::<$kind>);
        $ops.$delete = Some(family::delete::<$kind>);
        $ops.$batch = Some(family::delete_batch::<$kind>);
        $ops.$alloc = Some(family::alloc::<$kind>);
        $ops.$set = Some(family::set_opt::<$kind>);
        $ops.$get = Some(family::get_opt::<$kind>);
        $ops.$active = Some(family::active::<$kind>);
        $ops.$deactive = Some(family::deactive::<$kind>);
        $ops.$free = Some(family::free::<$kind>);
    };
}

fn families(ops: &mut urma_ops_t) {
    family!(ops, kind::Jfc: create_jfc modify_jfc delete_jfc delete_jfc_batch alloc_jfc set_jfc_opt
        get_jfc_opt active_jfc deactive_jfc free_jfc);
    family!(ops, kind::Jfs: create_jfs modify_jfs delete_jfs delete_jfs_batch alloc_jfs set_jfs_opt
        get_jfs_opt active_jfs deactive_jfs free_jfs);
    family!(ops, kind::Jfr: create_jfr modify_jfr delete_jfr delete_jfr_batch alloc_jfr set_jfr_opt
        get_jfr_opt active_jfr deactive_jfr free_jfr);
    family!(ops, kind::Jetty: create_jetty modify_jetty delete_jetty delete_jetty_batch alloc_jetty
        set_jetty_opt get_jetty_opt active_jetty deactive_jetty free_jetty);
    ops.query_jfs = Some(family::query::<kind::Jfs>);
    ops.query_jfr = Some(family::query::<kind::Jfr>);
    ops.query_jetty = Some(family::query::<kind::Jetty>);
}

/// `create_context` of the provider.
pub(crate) unsafe extern "C" fn create_context(
    dev: *mut urma_device_t,
    eid_index: u32,
    dev_fd: c_int,
) -> *mut urma_context_t {
    call::pointer(|| {
        let device = ours::<kind::Device>(dev)?;
        let hardware = device::hardware(device)?;
        let core = hardware.device()?.open(eid_index).map_err(|status| {
            // There is no EID at this index.
            if status == Status::Invalid { refuse!(EIO, "{status}") } else { status.into() }
        })?;
        let fresh = Fresh::<kind::Context>::take().ok_or_else(no_place::<kind::Context>)?;
        let owner = fresh.as_owner();
        let mut public: urma_context_t = zeroed();
        public.dev = dev;
        public.ops = ops();
        public.dev_fd = dev_fd;
        let events = Arc::new(Events::new(&core)?);
        public.async_fd = events.fd();
        public.eid = eid_out(core.eid());
        public.eid_index = eid_index;
        public.uasid = core.uasid();
        *public.r#ref.atomic_cnt.get_mut() = 1;
        let ctx = Arc::new(Ctx {
            core,
            hardware,
            owner,
            events,
            handles: Mutex::default(),
            rare: Mutex::default(),
        });
        ctx.hardware.add_listener(&ctx.events);
        Ok(fresh.publish(owner, public, ctx).public())
    })
}

/// `delete_context` of the provider.
pub(crate) unsafe extern "C" fn delete_context(ctx: *mut urma_context_t) -> urma_status_t {
    call::status(|| {
        context::delete::<kind::Context>(ctx, |own| {
            lock(&own.rare).clear();
            let alone = alone(own).map_err(|own| {
                Box::new((own, refuse!(EAGAIN, "objects of the context live; delete them first")))
            })?;
            let Ctx { core, hardware, owner, events, handles, rare } = alone;
            core.delete().map_err(|refused| {
                let (core, code) = (*refused.object, refused.status.into());
                let ctx = Ctx { core, hardware, owner, events, handles, rare };
                Box::new((Arc::new(ctx), code))
            })
        })
    })
}

/// The context when nothing else holds it. Calls of other threads that had begun when it
/// was marked as dying get a second to end; objects keep it.
fn alone(mut own: Arc<Ctx>) -> Result<Ctx, Arc<Ctx>> {
    const LOOKS_MAX: u32 = 1000;
    for _ in 0..LOOKS_MAX {
        own = match Arc::try_unwrap(own) {
            Ok(ctx) => return Ok(ctx),
            Err(own) if own.core.live_objects() != 0 => return Err(own),
            Err(own) => own,
        };
        own.events.pause();
    }
    Err(own)
}

/// `init` of the provider.
pub(crate) unsafe extern "C" fn init(_conf: *mut urma_init_attr_t) -> urma_status_t {
    call::SUCCESS
}

/// `uninit` of the provider.
pub(crate) unsafe extern "C" fn uninit() -> urma_status_t {
    call::SUCCESS
}

/// `query_device` of the provider.
pub(crate) unsafe extern "C" fn query_device(
    dev: *mut urma_device_t,
    to: *mut urma_device_attr_t,
) -> urma_status_t {
    call::status(|| {
        // SAFETY: a place of the caller's (room card of `face`).
        let to = unsafe { UserPtr::new(to) }?;
        to.write(device::attributes(dev)?);
        Ok(())
    })
}

/// `get_uasid` of the provider: an EID has one address space, number 0 (see `ContextOps::uasid`).
pub(crate) unsafe extern "C" fn get_uasid(to: *mut u32) -> urma_status_t {
    call::status(|| {
        // SAFETY: a place of the caller's (room card of `face`).
        unsafe { UserPtr::new(to) }?.write(0);
        Ok(())
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_provider_says_its_name_version_and_transport() {
        let ops = of_provider();
        assert_eq!(ops.name, NAME.as_ptr());
        assert_eq!((ops.attr.version, ops.attr.transport_type), (1, URMA_TRANSPORT_UB));
        assert!(ops.init.is_some() && ops.uninit.is_some() && ops.query_device.is_some());
        assert!(ops.create_context.is_some() && ops.delete_context.is_some());
        assert!(ops.get_uasid.is_some());
    }

    #[test]
    fn the_operations_of_objects_are_there() {
        let ops = all();
        assert_eq!(ops.name, NAME.as_ptr());
        assert!(ops.unimport_jfr.is_some() && ops.unimport_jetty.is_some());
        assert!(ops.unimport_jetty_async.is_some() && ops.unbind_jetty_async.is_some());
        assert!(ops.query_jfs.is_some() && ops.query_jfr.is_some() && ops.query_jetty.is_some());
    }
}
