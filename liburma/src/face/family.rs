//! Queues that are allocated first: options, activation, release.
//!
//! *Owns*: the rules of the C core for the two states of a queue, idle and active (`is_actived` in its public part).

use core::ffi::c_void;

use crate::{
    abi::*,
    call::{self, Answer, Code, Object, UserArray, object, refuse},
    convert::OptPlace,
    face::{
        dispatch::{ask, caps, op, release, retain, run},
        rules::{Rules, hold, let_go},
    },
    latch::Latch,
    slab::{InSlot, find_idle},
    udma::{
        family::{Family, option},
        kind,
    },
};

/// Guards changes to configurations of idle queues.
static CHANGING: Latch<()> = Latch::new(());

/// Frees the latch in a forked child, where no other thread holds it.
pub(super) fn abandon() {
    CHANGING.abandon(());
}

/// Returns the queue at `ptr`, active or idle, of this library or of another provider.
fn queue<K: Family>(ptr: *mut K::Public) -> Answer<Object<K::Public>> {
    match find_idle::<K>(ptr) {
        Some(idle) => Object::idle(&idle).ok_or_else(|| refuse!(EINVAL, "the queue is NULL")),
        None => object::<K>(ptr),
    }
}

fn is_active<K: Family>(queue: Object<K::Public>) -> bool {
    queue.get(K::MEMBERS.is_active) != 0
}

fn ensure<K: Family>(queue: Object<K::Public>, wanted: Life) -> Answer {
    let is = if is_active::<K>(queue) { Life::Active } else { Life::Idle };
    if is == wanted {
        return Ok(());
    }
    let kind = call::word::<K>();
    Err(refuse!(
        EINVAL,
        "the {kind} is {is:?} (is_actived); the call is for one that is {wanted:?}"
    ))
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Life {
    Idle,
    Active,
}

fn home<K: Family>(queue: Object<K::Public>) -> *mut urma_context_t {
    queue.get(K::MEMBERS.ctx)
}

fn cfg<K: Family>(queue: Object<K::Public>) -> K::Cfg {
    queue.get(K::MEMBERS.cfg)
}

type AllocOp<K> = unsafe extern "C" fn(
    *mut urma_context_t,
    *mut <K as Family>::Cfg,
    *mut *mut <K as crate::slab::Kind>::Public,
) -> urma_status_t;
type OptOp<K> = unsafe extern "C" fn(
    *mut <K as crate::slab::Kind>::Public,
    u64,
    *mut c_void,
    u32,
) -> urma_status_t;
type Op<K> = unsafe extern "C" fn(*mut <K as crate::slab::Kind>::Public) -> urma_status_t;

/// # Safety
/// `cfg` and `to`, unless NULL, are a configuration and a place of the caller's.
unsafe fn alloc<K: Rules>(
    ctx: Object<urma_context_t>,
    cfg: *mut K::Cfg,
    to: *mut *mut K::Public,
    op: AllocOp<K>,
) -> Answer {
    // SAFETY: the contract of this function is that of the constructor.
    let (cfg, to) = unsafe { call::args((cfg, to)) }?;
    let mut filled = cfg.read();
    K::fill_in(&mut filled);
    // The C core writes defaults to the caller's struct too.
    cfg.write(filled);
    Code::from_c(run!(op(ctx.as_ptr(), cfg.as_ptr(), to.as_ptr())))?;
    let queue =
        Object::made(to.read()).ok_or_else(|| refuse!(ENOMEM, "the provider made no queue"))?;
    queue.set(K::MEMBERS.is_active, 0);
    retain(ctx);
    hold(K::channel(&filled));
    Ok(())
}

/// # Safety
/// `buf`, unless NULL, has `len` bytes.
unsafe fn set<K: Rules>(
    queue: Object<K::Public>,
    (number, buf, len): (u64, *mut c_void, u32),
    op: OptOp<K>,
) -> Answer {
    // SAFETY: the contract of this function is that of the constructor.
    let from = unsafe { UserArray::new(buf.cast::<u8>(), len as usize) }?;
    ensure::<K>(queue, Life::Idle)?;
    let opt = option::<K>(number, len)?;
    Code::from_c(run!(op(queue.as_ptr(), number, buf, len)))?;
    let (OptPlace::Cfg(offset) | OptPlace::Id(offset)) = opt.place else { return Ok(()) };
    // Each change returns the value that it replaced, even when several threads change it.
    CHANGING.with(|()| {
        let before = K::channel(&cfg::<K>(queue));
        let to = K::MEMBERS.cfg.of(queue.as_ptr()).cast::<u8>().wrapping_add(offset);
        // SAFETY: the option lies inside of the configuration, which is in the public part of the queue.
        let to = unsafe { UserArray::new(to, opt.len as usize) };
        if let Ok(to) = to {
            to.fill(from.iter());
        }
        let after = K::channel(&cfg::<K>(queue));
        if before != after {
            hold(after);
            let_go(before);
        }
    });
    Ok(())
}

fn active<K: Rules>(queue: Object<K::Public>, op: Op<K>) -> Answer {
    ensure::<K>(queue, Life::Idle)?;
    let ctx = object::<kind::Context>(home::<K>(queue))?;
    let mut of = cfg::<K>(queue);
    K::check(&mut of, &caps(ctx)?)?;
    queue.set(K::MEMBERS.cfg, of);
    Code::from_c(run!(op(queue.as_ptr())))?;
    queue.set(K::MEMBERS.is_active, 1);
    K::joined(queue.as_ptr(), &of);
    Ok(())
}

fn deactive<K: Rules>(queue: Object<K::Public>, op: Op<K>) -> Answer {
    ensure::<K>(queue, Life::Active)?;
    let of = cfg::<K>(queue);
    Code::from_c(run!(op(queue.as_ptr())))?;
    queue.set(K::MEMBERS.is_active, 0);
    K::leaves(queue.as_ptr(), &of);
    Ok(())
}

fn free<K: Rules>(queue: Object<K::Public>, op: Op<K>) -> Answer {
    ensure::<K>(queue, Life::Idle)?;
    let (ctx, channel) = (home::<K>(queue), K::channel(&cfg::<K>(queue)));
    Code::from_c(run!(op(queue.as_ptr())))?;
    let_go(channel);
    release(ctx);
    Ok(())
}

macro_rules! families {
    ($($kind:ident, $public:ident, $cfg:ident: $urma_alloc:ident = $alloc:ident,
        $urma_set:ident = $set:ident, $urma_get:ident = $get:ident,
        $urma_active:ident = $active:ident, $urma_deactive:ident = $deactive:ident,
        $urma_free:ident = $free:ident;)*) => {$(
        /// Allocates an idle queue. Its configuration may be changed; activation checks it.
        pub unsafe extern "C" fn $urma_alloc(
            urma_ctx: *mut urma_context_t,
            cfg: *mut $cfg,
            queue: *mut *mut $public,
        ) -> urma_status_t {
            call::status(|| {
                let ctx = object::<kind::Context>(urma_ctx)?;
                let op = op!(ctx.as_ptr(), $alloc);
                // SAFETY: a configuration and a place of the caller's (room card of `face`).
                unsafe { alloc::<kind::$kind>(ctx, cfg, queue, op) }
            })
        }

        /// Sets an option of an idle queue; `len` is the size of its type. `URMA_EINVAL`: the queue is active, there is no
        /// such option, or its size is another. EOPNOTSUPP: rings, doorbells and ids, which the device chooses.
        pub unsafe extern "C" fn $urma_set(
            queue: *mut $public,
            opt: u64,
            buf: *mut c_void,
            len: u32,
        ) -> urma_status_t {
            call::status(|| {
                let queue = self::queue::<kind::$kind>(queue)?;
                let op = op!(home::<kind::$kind>(queue), $set);
                // SAFETY: `len` bytes of the caller's (room card of `face`).
                unsafe { set::<kind::$kind>(queue, (opt, buf, len), op) }
            })
        }

        /// Reads an option of an active or idle queue.
        pub unsafe extern "C" fn $urma_get(
            queue: *mut $public,
            opt: u64,
            buf: *mut c_void,
            len: u32,
        ) -> urma_status_t {
            call::status(|| {
                let queue = self::queue::<kind::$kind>(queue)?;
                call::some(buf)?;
                if opt == 0 || len == 0 {
                    return Err(refuse!(EINVAL, "opt is {opt} and len {len}; neither is 0"));
                }
                let ctx = home::<kind::$kind>(queue);
                Code::from_c(ask!(ctx, $get(queue.as_ptr(), opt, buf, len)))
            })
        }

        /// Activates an idle queue, under the same rules for its configuration as create.
        pub unsafe extern "C" fn $urma_active(queue: *mut $public) -> urma_status_t {
            call::status(|| {
                let queue = self::queue::<kind::$kind>(queue)?;
                let op = op!(home::<kind::$kind>(queue), $active);
                active::<kind::$kind>(queue, op)
            })
        }

        /// Deactivates a queue; what was posted to it is lost.
        pub unsafe extern "C" fn $urma_deactive(queue: *mut $public) -> urma_status_t {
            call::status(|| {
                let queue = self::queue::<kind::$kind>(queue)?;
                let op = op!(home::<kind::$kind>(queue), $deactive);
                deactive::<kind::$kind>(queue, op)
            })
        }

        /// Frees an idle queue. `URMA_EINVAL`: the queue is active.
        pub unsafe extern "C" fn $urma_free(queue: *mut $public) -> urma_status_t {
            call::status(|| {
                let queue = self::queue::<kind::$kind>(queue)?;
                let op = op!(home::<kind::$kind>(queue), $free);
                free::<kind::$kind>(queue, op)
            })
        }
    )*};
}

families! {
    Jfc, urma_jfc_t, urma_jfc_cfg_t: urma_alloc_jfc = alloc_jfc, urma_set_jfc_opt = set_jfc_opt,
        urma_get_jfc_opt = get_jfc_opt, urma_active_jfc = active_jfc,
        urma_deactive_jfc = deactive_jfc, urma_free_jfc = free_jfc;
    Jfs, urma_jfs_t, urma_jfs_cfg_t: urma_alloc_jfs = alloc_jfs, urma_set_jfs_opt = set_jfs_opt,
        urma_get_jfs_opt = get_jfs_opt, urma_active_jfs = active_jfs,
        urma_deactive_jfs = deactive_jfs, urma_free_jfs = free_jfs;
    Jfr, urma_jfr_t, urma_jfr_cfg_t: urma_alloc_jfr = alloc_jfr, urma_set_jfr_opt = set_jfr_opt,
        urma_get_jfr_opt = get_jfr_opt, urma_active_jfr = active_jfr,
        urma_deactive_jfr = deactive_jfr, urma_free_jfr = free_jfr;
    Jetty, urma_jetty_t, urma_jetty_cfg_t: urma_alloc_jetty = alloc_jetty,
        urma_set_jetty_opt = set_jetty_opt, urma_get_jetty_opt = get_jetty_opt,
        urma_active_jetty = active_jetty, urma_deactive_jetty = deactive_jetty,
        urma_free_jetty = free_jetty;
}
