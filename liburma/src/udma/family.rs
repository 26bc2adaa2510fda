//! Queues by themselves: created in one call, or allocated, set up, activated, deactivated, freed.
//!
//! *Owns*: the one way to make a queue, and the life of an idle one: a slot with a public part, whose
//! configuration is the program's to change. *Takes*: configurations. *Gives*: live queues. *Must
//! not*: know kinds: each says in its own file what it is made from.
#![expect(unsafe_code, reason = "public memory, and C entry points")]

use core::ffi::c_void;
use std::sync::Arc;

use urma_core::JettyId;

use crate::{
    abi::{urma_context_t, urma_jetty_id_t},
    call::{self, Answer, Code, ours},
    convert::{
        name::jetty_id_out,
        option::{Opt, OptPlace, find},
        zero::Zero,
        zeroed,
    },
    slab::{Exclusive, Fresh, Kind, Slot, find_idle},
    udma::context::{Ctx, Kept, ctx_of},
};

/// A kind of queue.
pub(crate) trait Family: Exclusive + Kind<Public: Zero> {
    /// What it is made from.
    type Cfg: Copy;
    /// Its options.
    const OPTIONS: &'static [&'static [Opt]];

    /// The members that all kinds have.
    fn members(public: *mut Self::Public) -> Members<Self::Cfg>;
    /// The number that the program wants; 0 leaves it to the device.
    fn wanted_id(_cfg: &Self::Cfg) -> u32 {
        0
    }
    /// Fills in what the caller left to the library, in the configuration that the queue shows once
    /// it was made.
    fn complete(_cfg: &mut Self::Cfg) {}
    /// Makes the private part.
    fn make(own: &Arc<Ctx>, cfg: &Self::Cfg) -> Answer<(JettyId, Self::Own)>;
    /// Ends it, or gives it back.
    fn end(own: Self::Own) -> Result<(), Box<Kept<Self>>>;
    /// Remembers the queue by its number.
    fn register(own: &Ctx, number: u32, slot: Slot<Self>);
}

/// Places in the public part.
pub(crate) struct Members<C> {
    pub(crate) ctx: *mut *mut urma_context_t,
    pub(crate) id: *mut urma_jetty_id_t,
    pub(crate) handle: *mut u64,
    pub(crate) cfg: *mut C,
    pub(crate) is_active: *mut u8,
    pub(crate) opt_id: *mut u32,
}

impl<C> Members<C> {
    /// # Safety
    /// The public part is in a slot that this thread builds in, or not shared yet.
    unsafe fn name(&self, id: JettyId) {
        // SAFETY: the caller's promise.
        unsafe { self.id.write(jetty_id_out(id)) };
        // SAFETY: as above.
        unsafe { self.handle.write(u64::from(id.id)) };
        // SAFETY: as above.
        unsafe { self.opt_id.write(id.id) };
        // SAFETY: as above.
        unsafe { self.is_active.write(1) };
    }
}

/// The public part of a queue that nobody knows yet.
fn blank<K: Family>(ctx: *mut urma_context_t, cfg: K::Cfg) -> K::Public {
    let mut public: K::Public = zeroed();
    let members = K::members(&raw mut public);
    // SAFETY: a place in a local value.
    unsafe { members.ctx.write(ctx) };
    // SAFETY: as above.
    unsafe { members.cfg.write(cfg) };
    public
}

/// A live queue.
///
/// # Errors
/// What making it says.
///
/// # Safety
/// `cfg`, unless NULL, is the caller's configuration.
pub(crate) unsafe fn create<K: Family>(
    ctx: *mut urma_context_t,
    cfg: *const K::Cfg,
) -> Answer<*mut K::Public> {
    let own = ctx_of(ctx)?;
    // SAFETY: the caller's promise.
    let mut cfg = unsafe { call::value(cfg) }?;
    own.hardware.make_room(K::wanted_id(&cfg));
    let (id, private) = K::make(&own, &cfg)?;
    K::complete(&mut cfg);
    let mut public = blank::<K>(ctx, cfg);
    // SAFETY: a local value.
    unsafe { K::members(&raw mut public).name(id) };
    let fresh = Fresh::<K>::take().ok_or(Code::ENOMEM)?;
    let slot = fresh.publish(own.owner, public, private);
    K::register(&own, id.id, slot);
    Ok(slot.public())
}

/// An idle queue, to `to`.
///
/// # Errors
/// EINVAL: a null argument. ENOMEM.
///
/// # Safety
/// As [`create`]; `to`, unless NULL, is a place of the caller's.
pub(crate) unsafe fn alloc<K: Family>(
    ctx: *mut urma_context_t,
    cfg: *const K::Cfg,
    to: *mut *mut K::Public,
) -> Answer {
    let own = ctx_of(ctx)?;
    let to = call::place(to)?;
    // SAFETY: the caller's promise.
    let cfg = unsafe { call::value(cfg) }?;
    let fresh = Fresh::<K>::take().ok_or(Code::ENOMEM)?;
    let queue = fresh.publish_idle(own.owner, blank::<K>(ctx, cfg));
    // SAFETY: the caller's promise.
    unsafe { to.write(queue) };
    Ok(())
}

/// Whether an option may be set: the face writes the member that it names.
///
/// # Errors
/// EINVAL: the queue is not idle, no such option, another length. EOPNOTSUPP: the device's own.
pub(crate) fn set_opt<K: Family>(queue: *mut K::Public, number: u64, len: u32) -> Answer {
    find_idle::<K>(queue).ok_or(Code::EINVAL)?;
    match option::<K>(number, len)?.place {
        OptPlace::Cfg(_) | OptPlace::Id(_) => Ok(()),
        OptPlace::DeviceId | OptPlace::Device => Err(Code::ENOTSUP),
    }
}

/// The option of this number and length.
pub(crate) fn option<K: Family>(number: u64, len: u32) -> Answer<Opt> {
    let found = K::OPTIONS.iter().find_map(|table| find(table, number));
    found.filter(|opt| opt.len == len).ok_or(Code::EINVAL)
}

/// The value of an option, to `buf`.
///
/// # Errors
/// As [`set_opt`]; of a queue that is active too.
///
/// # Safety
/// `buf`, unless NULL, has `len` bytes.
pub(crate) unsafe fn read_opt<K: Family>(
    queue: *mut K::Public,
    number: u64,
    buf: *mut c_void,
    len: u32,
) -> Answer {
    let public = match find_idle::<K>(queue) {
        Some(idle) => idle.public(),
        None => ours::<K>(queue)?.public(),
    };
    let to = call::place(buf.cast::<u8>())?;
    let opt = option::<K>(number, len)?;
    let members = K::members(public);
    let from: *const u8 = match opt.place {
        OptPlace::Cfg(offset) => members.cfg.cast::<u8>().wrapping_add(offset),
        OptPlace::Id(_) | OptPlace::DeviceId => members.opt_id.cast(),
        OptPlace::Device => return Err(Code::ENOTSUP),
    };
    // SAFETY: a member of the public part, and the caller's bytes.
    unsafe { to.as_ptr().copy_from_nonoverlapping(from, opt.len as usize) };
    Ok(())
}

/// Makes an idle queue live, from its configuration.
///
/// # Errors
/// EINVAL: not idle. What making it says; then it stays idle.
pub(crate) fn active<K: Family>(queue: *mut K::Public) -> Answer {
    let waking = find_idle::<K>(queue).and_then(crate::slab::Idle::wake).ok_or(Code::EINVAL)?;
    let members = K::members(waking.public());
    // SAFETY: the slot is this thread's to build in.
    let ctx = unsafe { members.ctx.read() };
    let own = ctx_of(ctx)?;
    if own.owner != waking.owner() {
        return Err(Code::EINVAL);
    }
    // SAFETY: as above.
    let mut cfg = unsafe { members.cfg.read() };
    own.hardware.make_room(K::wanted_id(&cfg));
    let (id, private) = K::make(&own, &cfg)?;
    K::complete(&mut cfg);
    // SAFETY: as above.
    unsafe { members.cfg.write(cfg) };
    // SAFETY: as above.
    unsafe { members.name(id) };
    let slot = waking.publish(private);
    K::register(&own, id.id, slot);
    Ok(())
}

/// Makes a live queue idle.
///
/// # Errors
/// EINVAL: not live. What deleting says; then it stays live.
pub(crate) fn deactive<K: Family>(queue: *mut K::Public) -> Answer {
    let dying = ours::<K>(queue)?.retire().ok_or(Code::EINVAL)?;
    let (own, emptied) = dying.take();
    match K::end(own) {
        Ok(()) => {
            // SAFETY: the slot is this thread's.
            unsafe { K::members(emptied.public()).is_active.write(0) };
            emptied.rest();
            Ok(())
        }
        Err(kept) => {
            let (own, code) = *kept;
            emptied.refill(own);
            Err(code)
        }
    }
}

/// Frees an idle queue.
///
/// # Errors
/// EINVAL: not idle.
pub(crate) fn free<K: Family>(queue: *mut K::Public) -> Answer {
    let is_freed = find_idle::<K>(queue).is_some_and(crate::slab::Idle::free);
    if is_freed { Ok(()) } else { Err(Code::EINVAL) }
}

/// The six operations of a kind.
macro_rules! operations {
    ($kind:ty, $public:ident, $cfg:ident:
        $alloc:ident, $set:ident, $get:ident, $active:ident, $deactive:ident, $free:ident) => {
        pub(crate) unsafe extern "C" fn $alloc(
            ctx: *mut crate::abi::urma_context_t,
            cfg: *mut crate::abi::$cfg,
            to: *mut *mut crate::abi::$public,
        ) -> crate::abi::urma_status_t {
            // SAFETY: the caller's configuration and place.
            crate::call::status(|| unsafe { crate::udma::family::alloc::<$kind>(ctx, cfg, to) })
        }

        pub(crate) unsafe extern "C" fn $set(
            queue: *mut crate::abi::$public,
            opt: u64,
            _buf: *mut core::ffi::c_void,
            len: u32,
        ) -> crate::abi::urma_status_t {
            crate::call::status(|| crate::udma::family::set_opt::<$kind>(queue, opt, len))
        }

        pub(crate) unsafe extern "C" fn $get(
            queue: *mut crate::abi::$public,
            opt: u64,
            buf: *mut core::ffi::c_void,
            len: u32,
        ) -> crate::abi::urma_status_t {
            crate::call::status(|| {
                // SAFETY: the caller's bytes.
                unsafe { crate::udma::family::read_opt::<$kind>(queue, opt, buf, len) }
            })
        }

        pub(crate) unsafe extern "C" fn $active(
            queue: *mut crate::abi::$public,
        ) -> crate::abi::urma_status_t {
            crate::call::status(|| crate::udma::family::active::<$kind>(queue))
        }

        pub(crate) unsafe extern "C" fn $deactive(
            queue: *mut crate::abi::$public,
        ) -> crate::abi::urma_status_t {
            crate::call::status(|| crate::udma::family::deactive::<$kind>(queue))
        }

        pub(crate) unsafe extern "C" fn $free(
            queue: *mut crate::abi::$public,
        ) -> crate::abi::urma_status_t {
            crate::call::status(|| crate::udma::family::free::<$kind>(queue))
        }
    };
}
pub(crate) use operations;

/// The places of a kind whose members have these names.
macro_rules! members {
    ($public:expr, $id:ident, $cfg:ident, $($active:ident).+, $($opt_id:ident).+) => {{
        let public = $public;
        crate::udma::family::Members {
            // SAFETY: places inside of the public part; nothing is read.
            ctx: unsafe { &raw mut (*public).urma_ctx },
            // SAFETY: as above.
            id: unsafe { &raw mut (*public).$id },
            // SAFETY: as above.
            handle: unsafe { &raw mut (*public).handle },
            // SAFETY: as above.
            cfg: unsafe { &raw mut (*public).$cfg },
            // SAFETY: as above.
            is_active: unsafe { &raw mut (*public).$($active).+ },
            // SAFETY: as above.
            opt_id: unsafe { &raw mut (*public).$($opt_id).+ },
        }
    }};
}
pub(crate) use members;
