//! Queues (JFC, JFS, JFR, jetties): created in one call, or allocated, set up, activated, deactivated, freed.
//!
//! *Owns*: the operations that all kinds of queues have, each once, and the life of an idle queue: a slot
//! with a public part, whose configuration is the program's to change. *Takes*: configurations. *Gives*:
//! live queues. *Must not*: know kinds: each says in its own file what it is made from.

use core::ffi::{c_int, c_void};
use std::sync::Arc;

use urma_core::{JettyId, Refused};

use crate::{
    abi::*,
    call::{self, Answer, Code, UserArray, gone, ours, refuse},
    convert::{Opt, OptPlace, Zero, find, jetty_id_out, zeroed},
    slab::{Exclusive, Fresh, Idle, InSlot, Kind, Member, find_idle},
    udma::{
        context::{self, Kept, ctx_of, delete_each, no_place, publish},
        event_queue::EventSubject,
        kind::{Ctx, QueueOwn},
    },
};

/// urma-core's object behind a queue.
pub(crate) trait Core: Sized {
    /// What events call it.
    fn about(&self) -> EventSubject;
    /// Its id in this context.
    fn id(&self, ctx: &Ctx) -> JettyId;
    /// Deletes it, or gives it back.
    fn delete(self) -> Result<(), Refused<Self>>;
}

/// Objects with an id of their own, and events by it.
macro_rules! cores {
    ($($core:ident: $subject:ident),*) => {$(
        impl Core for urma_core::$core {
            fn about(&self) -> EventSubject {
                EventSubject::$subject(self.id().id)
            }

            fn id(&self, _ctx: &Ctx) -> JettyId {
                self.id()
            }

            fn delete(self) -> Result<(), Refused<Self>> {
                self.delete()
            }
        }
    )*};
}

cores!(Jfs: Queue, Jfr: Queue, Jetty: Queue, JettyGroup: Group);

/// A kind of queue.
pub(crate) trait Family:
    Exclusive + Kind<Public: Zero, Own = QueueOwn<<Self as Family>::Core, <Self as Family>::More>>
{
    /// The object of urma-core behind it.
    type Core: Core;
    /// What else is kept.
    type More;
    /// What it is made from.
    type Cfg: Copy;
    /// What a program changes and asks of a live one.
    type Attr: Copy;
    /// The options that programs may set and read.
    const OPTIONS: &'static [&'static [Opt]];
    /// The members that all kinds have.
    const MEMBERS: Members<Self::Public, Self::Cfg>;

    /// The number that the program asks for; 0 leaves it to the device.
    fn wanted_id(_cfg: &Self::Cfg) -> u32 {
        0
    }
    /// Fills in what the caller left to the library, in the configuration that the queue shows once
    /// it was made.
    fn complete(_cfg: &mut Self::Cfg) {}
    /// Makes the private part.
    fn make(own: &Arc<Ctx>, cfg: &Self::Cfg) -> Answer<(Self::Core, Self::More)>;
    /// Changes a live queue.
    fn modify(own: &mut Self::Own, attr: &Self::Attr) -> Answer;
    /// State and threshold of a live queue; the mask of an answer is empty, as in UMDK's library.
    fn query(own: &Self::Own) -> Answer<Self::Attr>;
}

/// Members of the public part.
pub(crate) struct Members<P, C> {
    pub(crate) ctx: Member<P, *mut urma_context_t>,
    pub(crate) id: Member<P, urma_jetty_id_t>,
    pub(crate) handle: Member<P, u64>,
    pub(crate) cfg: Member<P, C>,
    pub(crate) is_active: Member<P, u8>,
    pub(crate) opt_id: Member<P, u32>,
}

/// The members of a kind, by the names that differ.
macro_rules! members {
    ($public:ty, $id:ident, $cfg:ident, $opt:ident $(. $of:ident)?, $opt_id:ident) => {
        crate::udma::family::Members {
            ctx: crate::slab::member!($public, urma_ctx),
            id: crate::slab::member!($public, $id),
            handle: crate::slab::member!($public, handle),
            cfg: crate::slab::member!($public, $cfg),
            is_active: crate::slab::member!($public, $opt.is_actived),
            opt_id: crate::slab::member!($public, $opt $(. $of)? . $opt_id),
        }
    };
}
pub(crate) use members;

/// Public part of a queue that is not published yet.
fn blank<K: Family>(ctx: *mut urma_context_t, cfg: K::Cfg) -> K::Public {
    let mut public: K::Public = zeroed();
    *K::MEMBERS.ctx.place(&mut public) = ctx;
    *K::MEMBERS.cfg.place(&mut public) = cfg;
    public
}

/// Makes a live queue from a configuration.
pub(crate) unsafe extern "C" fn create<K: Family>(
    ctx: *mut urma_context_t,
    cfg: *mut K::Cfg,
) -> *mut K::Public {
    call::pointer(|| {
        let own = ctx_of(ctx)?;
        // SAFETY: a configuration of the caller's (room card of `face`).
        let mut cfg = unsafe { call::value(cfg) }?;
        let (private, subject, id) = make::<K>(&own, &mut cfg)?;
        let mut public = blank::<K>(ctx, cfg);
        *K::MEMBERS.id.place(&mut public) = jetty_id_out(id);
        *K::MEMBERS.handle.place(&mut public) = u64::from(id.id);
        *K::MEMBERS.opt_id.place(&mut public) = id.id;
        *K::MEMBERS.is_active.place(&mut public) = 1;
        let slot = publish::<K>(&own, public, private)?;
        own.events.name(subject, slot.public());
        Ok(slot.public())
    })
}

/// The private part of a queue, what events call it, its id; completes the configuration.
fn make<K: Family>(own: &Arc<Ctx>, cfg: &mut K::Cfg) -> Answer<(K::Own, EventSubject, JettyId)> {
    own.hardware.make_room(K::wanted_id(cfg));
    let (core, more) = K::make(own, cfg)?;
    K::complete(cfg);
    let (subject, id) = (core.about(), core.id(own));
    Ok((QueueOwn { core, more, ctx: Arc::clone(own) }, subject, id))
}

/// Changes the attributes of a live queue.
pub(crate) unsafe extern "C" fn modify<K: Family>(
    queue: *mut K::Public,
    attr: *mut K::Attr,
) -> urma_status_t {
    call::status(|| {
        // SAFETY: attributes of the caller's (room card of `face`).
        let attr = unsafe { call::value(attr) }?;
        let mut own = ours::<K>(queue)?.lock().ok_or_else(gone::<K>)?;
        K::modify(&mut own, &attr)
    })
}

/// Configuration and attributes of a queue.
pub(crate) unsafe extern "C" fn query<K: Family>(
    queue: *mut K::Public,
    cfg: *mut K::Cfg,
    attr: *mut K::Attr,
) -> urma_status_t {
    call::status(|| {
        // SAFETY: two places of the caller's (room card of `face`).
        let (cfg, attr) = unsafe { call::args((cfg, attr)) }?;
        let slot = ours::<K>(queue)?;
        let is = K::query(&*slot.lock().ok_or_else(gone::<K>)?)?;
        cfg.write(slot.get(K::MEMBERS.cfg));
        attr.write(is);
        Ok(())
    })
}

/// Ends the private part, or gives it back.
fn end<K: Family>(own: K::Own) -> Result<(), Box<Kept<K>>> {
    let about = own.core.about();
    if let Err(code) = own.ctx.events.ensure_acked(about) {
        return Err(Box::new((own, code)));
    }
    let QueueOwn { core, more, ctx } = own;
    end_core(core, &ctx)
        .map_err(|(core, code)| Box::new((QueueOwn { core, more, ctx: Arc::clone(&ctx) }, code)))
}

/// Deletes an object of urma-core, or gives it back.
pub(crate) fn end_core<C: Core>(core: C, ctx: &Ctx) -> Result<(), (C, Code)> {
    let subject = core.about();
    ctx.events.leaves(subject);
    let deleted = core.delete();
    ctx.events.left(subject, deleted.is_err());
    deleted.map_err(|refused| (*refused.object, refused.status.into()))
}

/// Deletes a live queue.
pub(crate) unsafe extern "C" fn delete<K: Family>(queue: *mut K::Public) -> urma_status_t {
    call::status(|| context::delete::<K>(queue, end::<K>))
}

/// Deletes live queues in order.
pub(crate) unsafe extern "C" fn delete_batch<K: Family>(
    list: *mut *mut K::Public,
    count: c_int,
    bad: *mut *mut K::Public,
) -> urma_status_t {
    let one = |queue: *mut K::Public| context::delete::<K>(queue, end::<K>);
    // SAFETY: an array of the caller's of `count` pointers, and a place (room card of `face`).
    call::status(|| unsafe { delete_each(list, count, bad, one) })
}

/// An idle queue, to `to`.
pub(crate) unsafe extern "C" fn alloc<K: Family>(
    ctx: *mut urma_context_t,
    cfg: *mut K::Cfg,
    to: *mut *mut K::Public,
) -> urma_status_t {
    call::status(|| {
        let own = ctx_of(ctx)?;
        // SAFETY: a configuration and a place of the caller's (room card of `face`).
        let (cfg, to) = unsafe { call::args((cfg, to)) }?;
        let fresh = Fresh::<K>::take().ok_or_else(no_place::<K>)?;
        to.write(fresh.publish_idle(own.owner, blank::<K>(ctx, cfg.read())));
        Ok(())
    })
}

/// Whether an option may be set: the face writes the member that it names. EINVAL: the queue is not
/// idle, no such option, another length. EOPNOTSUPP: the device's own.
pub(crate) unsafe extern "C" fn set_opt<K: Family>(
    queue: *mut K::Public,
    number: u64,
    _buf: *mut c_void,
    len: u32,
) -> urma_status_t {
    call::status(|| {
        find_idle::<K>(queue).ok_or_else(not_idle::<K>)?;
        match option::<K>(number, len)?.place {
            OptPlace::Cfg(_) | OptPlace::Id(_) => Ok(()),
            OptPlace::DeviceId | OptPlace::Device => Err(devices_own(number)),
        }
    })
}

/// Why a call for idle queues is refused.
#[cold]
fn not_idle<K>() -> Code {
    refuse!(EINVAL, "the {} is not idle: it is active, deleted, or none", call::word::<K>())
}

#[cold]
fn devices_own(option: u64) -> Code {
    refuse!(
        ENOTSUP,
        "option {option:#x} is of rings, doorbells or ids, which are the software device's own"
    )
}

/// The option of this number and length.
///
/// # Errors
/// EINVAL: there is none.
pub(crate) fn option<K: Family>(number: u64, len: u32) -> Answer<Opt> {
    let found = K::OPTIONS.iter().find_map(|table| find(table, number));
    found.filter(|opt| opt.len == len).ok_or_else(|| {
        let kind = call::word::<K>();
        match found {
            Some(opt) => refuse!(
                EINVAL,
                "len is {len}; option {number:#x} of a {kind} has {} bytes",
                opt.len
            ),
            None => refuse!(EINVAL, "opt is {number:#x}, which a {kind} does not have"),
        }
    })
}

/// The value of an option, to `buf`; of a queue that is active too.
pub(crate) unsafe extern "C" fn get_opt<K: Family>(
    queue: *mut K::Public,
    number: u64,
    buf: *mut c_void,
    len: u32,
) -> urma_status_t {
    call::status(|| {
        let public = match find_idle::<K>(queue) {
            Some(idle) => idle.public(),
            None => ours::<K>(queue)?.public(),
        };
        // SAFETY: `len` bytes of the caller's (room card of `face`).
        let to = unsafe { UserArray::new(buf.cast::<u8>(), len as usize) }?;
        let opt = option::<K>(number, len)?;
        let from: *const u8 = match opt.place {
            OptPlace::Cfg(offset) => K::MEMBERS.cfg.of(public).cast::<u8>().wrapping_add(offset),
            OptPlace::Id(_) | OptPlace::DeviceId => K::MEMBERS.opt_id.of(public).cast(),
            OptPlace::Device => return Err(devices_own(number)),
        };
        // SAFETY: a member of the public part, which stays mapped while the library is loaded.
        let from = unsafe { UserArray::new(from, opt.len as usize) }?;
        to.fill(from.iter());
        Ok(())
    })
}

/// Makes an idle queue live, from its configuration. EINVAL: not idle. Where making it fails, it stays
/// idle.
pub(crate) unsafe extern "C" fn active<K: Family>(queue: *mut K::Public) -> urma_status_t {
    call::status(|| {
        let waking = find_idle::<K>(queue).and_then(Idle::wake).ok_or_else(not_idle::<K>)?;
        let ctx: *mut urma_context_t = waking.get(K::MEMBERS.ctx);
        let own = ctx_of(ctx)?;
        if own.owner != waking.owner() {
            return Err(refuse!(
                EINVAL,
                "urma_ctx of the queue is another context than it was made from"
            ));
        }
        let mut cfg = waking.get(K::MEMBERS.cfg);
        let (private, subject, id) = make::<K>(&own, &mut cfg)?;
        waking.set(K::MEMBERS.cfg, cfg);
        waking.set(K::MEMBERS.id, jetty_id_out(id));
        waking.set(K::MEMBERS.handle, u64::from(id.id));
        waking.set(K::MEMBERS.opt_id, id.id);
        waking.set(K::MEMBERS.is_active, 1);
        own.events.name(subject, waking.publish(private).public());
        Ok(())
    })
}

/// Makes a live queue idle. EINVAL: not live. Where deleting fails, it stays live.
pub(crate) unsafe extern "C" fn deactive<K: Family>(queue: *mut K::Public) -> urma_status_t {
    call::status(|| {
        let emptied = context::emptied::<K>(queue, end::<K>)?;
        emptied.set(K::MEMBERS.is_active, 0);
        emptied.rest();
        Ok(())
    })
}

/// Frees an idle queue. EINVAL: not idle.
pub(crate) unsafe extern "C" fn free<K: Family>(queue: *mut K::Public) -> urma_status_t {
    call::status(|| {
        let is_freed = find_idle::<K>(queue).is_some_and(Idle::free);
        if is_freed { Ok(()) } else { Err(not_idle::<K>()) }
    })
}
