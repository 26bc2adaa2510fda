//! Contexts, and what the objects of a context share.
//!
//! *Owns*: urma-core's context; the names by which completions and events know objects. *Takes*: a
//! device and an EID index. *Gives*: `urma_context_t` with every public field filled.
#![expect(unsafe_code, reason = "C entry points")]

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use core::ffi::c_int;

use urma_core::{Context, Status};

use crate::{
    abi::{urma_context_t, urma_device_t, urma_status_t},
    call::{self, Answer, Code, ours},
    convert::{name::eid_out, zeroed},
    slab::{Fresh, Kind, Owner, Slot},
    udma::{
        device::hardware as hardware_of,
        event::{About, Events},
        hardware::Hardware,
        kind,
        path::Handles,
        post::Rare,
        table,
    },
};

/// What the objects of a context hold on to.
pub(crate) struct Ctx {
    pub(crate) core: Context,
    /// The device stays while a context of it does, also after `urma_uninit`.
    pub(crate) hardware: Arc<Hardware>,
    /// Whose the objects are, for the slab.
    pub(crate) owner: Owner,
    pub(crate) events: Arc<Events>,
    names: Mutex<Names>,
    handles: Mutex<Handles>,
    rare: Mutex<Rare>,
}

/// Objects by the numbers that the device knows them by.
#[derive(Default)]
pub(crate) struct Names {
    pub(crate) jfcs: BTreeMap<u32, Slot<kind::Jfc>>,
    pub(crate) queues: BTreeMap<u32, Queue>,
    pub(crate) groups: BTreeMap<u32, Slot<kind::Group>>,
}

/// JFS, JFR and jetties share one space of numbers.
#[derive(Clone, Copy)]
pub(crate) enum Queue {
    Jfs(Slot<kind::Jfs>),
    Jfr(Slot<kind::Jfr>),
    Jetty(Slot<kind::Jetty>),
}

impl Ctx {
    pub(crate) fn handles(&self) -> MutexGuard<'_, Handles> {
        self.handles.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn rare(&self) -> MutexGuard<'_, Rare> {
        self.rare.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn names(&self) -> MutexGuard<'_, Names> {
        self.names.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether that object is one of this context.
    pub(crate) fn has(&self, about: About) -> bool {
        let names = self.names();
        match about {
            About::Jfc(number) => names.jfcs.contains_key(&number),
            About::Queue(number) => names.queues.contains_key(&number),
            About::Group(number) => names.groups.contains_key(&number),
            About::Device => true,
        }
    }

    /// An object with events that were not acknowledged is not deleted.
    ///
    /// # Errors
    /// EAGAIN: there are some.
    pub(crate) fn ensure_acked(&self, about: About) -> Answer {
        if self.events.is_open(about) { Err(Code::EAGAIN) } else { Ok(()) }
    }
}

/// What lies behind a context of this provider.
///
/// # Errors
/// EINVAL: it is none.
pub(crate) fn ctx_of(ctx: *const urma_context_t) -> Answer<Arc<Ctx>> {
    let slot = ours::<kind::Context>(ctx)?;
    let guard = slot.lock().ok_or(Code::EINVAL)?;
    Ok(Arc::clone(&guard))
}

/// What a refused delete gives back, and why.
pub(crate) type Kept<K> = (<K as Kind>::Own, Code);

/// Ends the object at `public`: nobody else reaches it while `end` tries, and where `end` gives the
/// private part back, the object is live again.
///
/// # Errors
/// EINVAL: no live object, or another thread deletes it. What `end` says.
pub(crate) fn delete<K: Kind>(
    public: *const K::Public,
    end: impl FnOnce(K::Own) -> Result<(), Box<Kept<K>>>,
) -> Answer {
    let dying = ours::<K>(public)?.retire().ok_or(Code::EINVAL)?;
    let (own, emptied) = dying.take();
    match end(own) {
        Ok(()) => {
            drop(emptied);
            Ok(())
        }
        Err(kept) => {
            let (own, code) = *kept;
            emptied.refill(own);
            Err(code)
        }
    }
}

/// Deletes each of `count` objects, stopping at the first that is refused and naming it in `bad`.
///
/// # Errors
/// EINVAL: a null array or place, or a count below 1. What deleting says.
///
/// # Safety
/// `list`, unless NULL, has `count` elements, and `bad`, unless NULL, is a place for one.
pub(crate) unsafe fn delete_each<T>(
    list: *mut *mut T,
    count: c_int,
    bad: *mut *mut T,
    one: impl Fn(*mut T) -> Answer,
) -> Answer {
    let (list, bad) = (call::place(list)?, call::place(bad)?);
    let count = usize::try_from(count).ok().filter(|count| *count > 0).ok_or(Code::EINVAL)?;
    for index in 0..count {
        // SAFETY: inside the caller's array.
        let element = unsafe { list.add(index) };
        // SAFETY: as above.
        let object = unsafe { element.read() };
        if let Err(code) = one(object) {
            // SAFETY: the caller's place.
            unsafe { bad.write(object) };
            return Err(code);
        }
    }
    Ok(())
}

/// `create_context` of the provider.
pub(crate) unsafe extern "C" fn create_context(
    dev: *mut urma_device_t,
    eid_index: u32,
    dev_fd: c_int,
) -> *mut urma_context_t {
    call::pointer(|| {
        let device = ours::<kind::Device>(dev)?;
        let hardware = hardware_of(device)?;
        let core = hardware.device()?.open(eid_index).map_err(|status| match status {
            // There is no EID at this index.
            Status::Invalid => Code::EIO,
            status => status.into(),
        })?;
        let fresh = Fresh::<kind::Context>::take().ok_or(Code::ENOMEM)?;
        let owner = fresh.as_owner();
        let mut public: urma_context_t = zeroed();
        public.dev = dev;
        public.ops = table::ops();
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
            names: Mutex::default(),
            handles: Mutex::default(),
            rare: Mutex::default(),
        });
        ctx.hardware.add_context(&ctx);
        Ok(fresh.publish(owner, public, ctx).public())
    })
}

/// `delete_context` of the provider.
pub(crate) unsafe extern "C" fn delete_context(ctx: *mut urma_context_t) -> urma_status_t {
    call::status(|| {
        delete::<kind::Context>(ctx, |own| {
            own.rare().clear();
            let alone = alone(own).map_err(|own| Box::new((own, Code::EAGAIN)))?;
            let Ctx { core, hardware, owner, events, names, handles, rare } = alone;
            core.delete().map_err(|refused| {
                let (core, code) = (*refused.object, refused.status.into());
                let ctx = Ctx { core, hardware, owner, events, names, handles, rare };
                Box::new((Arc::new(ctx), code))
            })
        })
    })
}

/// The context when nothing else holds it. Calls of other threads that were on their way when it
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
