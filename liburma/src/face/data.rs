//! The data plane: posts and polls, and posts of one request.
//!
//! Each call reads the context's table. If it still has this library's own operation, that is called with the slot that
//! was found already; any other operation gets the caller's pointers.

use core::{
    ffi::c_int,
    ptr::{NonNull, fn_addr_eq},
};

use crate::{
    abi::*,
    call::{self, Object, UserArray, UserPtr, object, refuse},
    face::dispatch::{Homed, ask, home, member_of, ops},
    perf,
    slab::{find_live, place},
    udma::{
        jfc::{self, NOT_TAKEN},
        kind, post,
    },
};

/// Whether the context table of a live object, with the public part `$public`, still has this library's own `$mine`: true
/// unless a program wraps the operation.
macro_rules! is_own {
    ($public:expr, $op:ident, $mine:path) => {{
        let mine = $mine as unsafe extern "C" fn(_, _, _) -> _;
        own_op($public, |ops| member_of!(ops, $op).is_some_and(|op| fn_addr_eq(op, mine)))
    }};
}

/// The slot of a live object if its context's table still has this library's own `$mine`; saves a second lookup.
macro_rules! own_slot {
    ($kind:ty, $object:expr, $op:ident, $mine:path) => {
        find_live::<$kind>($object).filter(|slot| is_own!(slot.public(), $op, $mine))
    };
}

/// Whether the table of an object's context passes `is_own`.
#[inline(always)]
fn own_op<T: Homed>(object: *mut T, is_own: impl FnOnce(NonNull<urma_ops_t>) -> bool) -> bool {
    // SAFETY: the caller found the object live, or it is NULL.
    let object = unsafe { Object::at(object) };
    object.is_some_and(|object| ops(home(object)).is_ok_and(is_own))
}

/// Whether a call need only check its object: calls are not measured, and the process is no forked child.
/// `slab::forget_usual` ends this state.
fn is_plain() -> bool {
    !perf::is_on() && !call::is_forked()
}

/// The arguments of a post, kept in memory so that later calls need no registers for them.
struct PostArgs<Q, W> {
    queue: *mut Q,
    wr: *mut W,
    bad_wr: *mut *mut W,
}

/// Defines a post of a queue. It first tries `$first`, or `$locked` if this thread has no lease of the queue, for a single
/// simple request; then it posts any list.
macro_rules! posts {
    ($(#[$doc:meta])* $name:ident: $queue:ident, $wr:ident, $kind:ty, $perf:ident, $op:ident,
        $own:path $(, first $first:path, $locked:path)?) => {
        $(#[$doc])*
        pub unsafe extern "C" fn $name(
            queue: *mut $queue,
            wr: *mut $wr,
            bad_wr: *mut *mut $wr,
        ) -> urma_status_t {
            let args = PostArgs { queue, wr, bad_wr };
            $(
                if let Some(place) = place::<$kind>(queue)
                    // SAFETY: a list and a place of the caller's (room card of `face`).
                    && let Ok((wr, _)) = unsafe { call::args((wr, bad_wr)) }
                {
                    let is_own = |queue| is_own!(queue, $op, post::$op);
                    // SAFETY: what the list leads to is the caller's too.
                    match unsafe { $first(place, wr, is_own) } {
                        Some(true) => return call::SUCCESS,
                        Some(false) => {}
                        None => return locked(&args),
                    }
                }
                #[inline(never)]
                fn locked(args: &PostArgs<$queue, $wr>) -> urma_status_t {
                    let PostArgs { queue, wr, bad_wr } = *args;
                    if let Some(place) = place::<$kind>(queue)
                        // SAFETY: a list and a place of the caller's (room card of `face`).
                        && let Ok((wr, _)) = unsafe { call::args((wr, bad_wr)) }
                    {
                        let is_own = |queue| is_own!(queue, $op, post::$op);
                        // SAFETY: what the list leads to is the caller's too.
                        if unsafe { $locked(place, wr, is_own) } {
                            return call::SUCCESS;
                        }
                    }
                    any(args)
                }
            )?
            #[inline(never)]
            fn any(args: &PostArgs<$queue, $wr>) -> urma_status_t {
                let PostArgs { queue, wr, bad_wr } = *args;
                if !perf::is_on()
                    && let Some(slot) = own_slot!($kind, queue, $op, post::$op)
                    // SAFETY: a list and a place of the caller's (room card of `face`).
                    && let Ok((first, bad)) = unsafe { call::args((wr, bad_wr)) }
                {
                    slot.make_usual(is_plain);
                    // SAFETY: what the list leads to is the caller's too.
                    return unsafe { $own(slot, first, bad) };
                }
                perf::timed($perf, || {
                    let answer = (|| {
                        let object = object::<$kind>(queue)?;
                        call::some(wr)?;
                        call::some(bad_wr)?;
                        Ok(ask!(home(object), $op(queue, wr, bad_wr)))
                    })();
                    call::status_of_call(answer.map_err(|code| call::say(stringify!($name), code)))
                })
            }
            any(&args)
        }
    };
}

posts! {
    /// Posts a list of requests. If one is refused, `bad_wr` points to it; those before it are posted.
    urma_post_jfs_wr: urma_jfs_t, urma_jfs_wr_t, kind::Jfs, UB_JFS_POST_SEND, post_jfs_wr, post::send,
    first post::carry, post::carry_locked
}

posts! {
    /// Posts a list of receives. If one is refused, `bad_wr` points to it; those before it are posted.
    urma_post_jfr_wr: urma_jfr_t, urma_jfr_wr_t, kind::Jfr, UB_POST_JFR_RECV, post_jfr_wr, post::receive
}

posts! {
    /// Posts a list of requests. If one is refused, `bad_wr` points to it; those before it are posted.
    urma_post_jetty_send_wr: urma_jetty_t, urma_jfs_wr_t, kind::Jetty,
    UB_JETTY_POST_SEND, post_jetty_send_wr, post::send,
    first post::carry, post::carry_locked
}

posts! {
    /// Posts a list of receives, to the JFR that the jetty receives through.
    urma_post_jetty_recv_wr: urma_jetty_t, urma_jfr_wr_t, kind::Jetty,
    UB_JETTY_POST_RECV, post_jetty_recv_wr, post::receive_by_jetty
}

/// Polls up to `cr_cnt` completions, without waiting. Returns their number, or -1 with `errno`.
pub unsafe extern "C" fn urma_poll_jfc(
    jfc: *mut urma_jfc_t,
    cr_cnt: c_int,
    cr: *mut urma_cr_t,
) -> c_int {
    if cr_cnt != 1 {
        return poll_any(jfc, cr_cnt, cr);
    }
    if let Some(place) = place::<kind::Jfc>(jfc)
        // SAFETY: room for a completion of the caller's (room card of `face`).
        && let Ok(to) = unsafe { UserPtr::new(cr) }
    {
        let Some(entry) = place.begin() else { return poll_locked(jfc, cr) };
        let count = entry.work(NOT_TAKEN, |own| {
            call::caught(NOT_TAKEN, || {
                let is_own = is_own!(jfc, poll_jfc, jfc::poll_jfc);
                if is_own { jfc::take_sent(own, to) } else { NOT_TAKEN }
            })
        });
        if count != NOT_TAKEN {
            return count;
        }
    }
    poll_one(jfc, cr)
}

/// Polls one completion of a queue that this thread has no lease of.
#[inline(never)]
fn poll_locked(jfc: *mut urma_jfc_t, cr: *mut urma_cr_t) -> c_int {
    // SAFETY: room for a completion of the caller's (room card of `face`).
    if let Ok(to) = unsafe { UserPtr::new(cr) }
        && let Some(place) = place::<kind::Jfc>(jfc)
        && let Some(mut own) = place.try_lock()
        && is_own!(jfc, poll_jfc, jfc::poll_jfc)
    {
        let count = jfc::take_sent(&mut own, to);
        if count != NOT_TAKEN {
            return count;
        }
    }
    poll_one(jfc, cr)
}

/// A poll of one completion, of any kind. A function of its own, so that the count takes no register before.
#[inline(never)]
fn poll_one(jfc: *mut urma_jfc_t, cr: *mut urma_cr_t) -> c_int {
    poll_any(jfc, 1, cr)
}

#[inline(never)]
fn poll_any(jfc: *mut urma_jfc_t, cr_cnt: c_int, cr: *mut urma_cr_t) -> c_int {
    if !perf::is_on()
        && let Some(slot) = own_slot!(kind::Jfc, jfc, poll_jfc, jfc::poll_jfc)
        && let Ok(room) = usize::try_from(cr_cnt)
        // SAFETY: an array of the caller's (room card of `face`).
        && let Ok(to) = unsafe { UserArray::new(cr, room) }
    {
        slot.make_usual(is_plain);
        return jfc::take(slot, to);
    }
    perf::timed(UB_POLL_JFC, || {
        let answer = (|| {
            let object = object::<kind::Jfc>(jfc)?;
            call::some(cr)?;
            if cr_cnt < 0 {
                return Err(refuse!(EINVAL, "cr_cnt is {cr_cnt}; it is not below 0"));
            }
            Ok(ask!(home(object), poll_jfc(jfc, cr_cnt, cr)))
        })();
        call::as_count(answer.map_err(|code| call::say("urma_poll_jfc", code)))
    })
}

macro_rules! transfers {
    ($($(#[$doc:meta])* $name:ident($($hint:ident),*) = $opcode:ident;)*) => {$(
        $(#[$doc])*
        pub unsafe extern "C" fn $name(
            jfs: *mut urma_jfs_t,
            target_jfr: *mut urma_target_jetty_t,
            dst_tseg: *mut urma_target_seg_t,
            src_tseg: *mut urma_target_seg_t,
            dst: u64,
            src: u64,
            len: u32,
            flag: urma_jfs_wr_flag_t,
            user_ctx: u64,
            $($hint: u32,)*
        ) -> urma_status_t {
            let (mut src, mut dst) = (piece(src, len, src_tseg), piece(dst, len, dst_tseg));
            let (src, dst) = (list(&mut src), list(&mut dst));
            let rw = urma_rw_wr_t { src, dst, target_hint: 0, notify_data: 0 };
            one(jfs, target_jfr, ($opcode, flag, user_ctx), urma_jfs_wr_u { rw })
        }
    )*};
}

transfers! {
    /// Posts one write of `len` bytes from `src` to `dst`.
    urma_write() = URMA_OPC_WRITE;
    /// Posts one read of `len` bytes from `src` to `dst`.
    urma_read() = URMA_OPC_READ;
    /// Like [`urma_write`], between two chips of the devices. Chip numbers are hints: a software device has one chip.
    urma_write_affinity(_src_chip_id, _dst_chip_id) = URMA_OPC_WRITE;
}

/// Posts a SEND of `len` bytes from `src`.
pub unsafe extern "C" fn urma_send(
    jfs: *mut urma_jfs_t,
    target_jfr: *mut urma_target_jetty_t,
    src_tseg: *mut urma_target_seg_t,
    src: u64,
    len: u32,
    flag: urma_jfs_wr_flag_t,
    user_ctx: u64,
) -> urma_status_t {
    let mut src = piece(src, len, src_tseg);
    let (src, tseg) = (list(&mut src), core::ptr::null_mut());
    let send = urma_send_wr_t { src, target_hint: 0, imm_data: 0, tseg };
    let u = urma_jfs_wr_u { send };
    one(jfs, target_jfr, (URMA_OPC_SEND, flag, user_ctx), u)
}

/// Posts one receive of up to `len` bytes at `buf`. `URMA_FAIL`: `buf` is 0.
pub unsafe extern "C" fn urma_recv(
    jfr: *mut urma_jfr_t,
    recv_tseg: *mut urma_target_seg_t,
    buf: u64,
    len: u32,
    user_ctx: u64,
) -> urma_status_t {
    if buf == 0 && !jfr.is_null() && !recv_tseg.is_null() {
        return call::say(
            "urma_recv",
            refuse!(FAIL, "buf is 0; it is the address of the receive buffer"),
        )
        .status();
    }
    let mut to = piece(buf, len, recv_tseg);
    let next = core::ptr::null_mut();
    let mut wr = urma_jfr_wr_t { src: list(&mut to), user_ctx, next };
    let mut bad = core::ptr::null_mut();
    // SAFETY: the callee looks the queue up; the list of one is of this function.
    unsafe { urma_post_jfr_wr(jfr, &raw mut wr, &raw mut bad) }
}

/// Posts a list of one request.
fn one(
    jfs: *mut urma_jfs_t,
    tjetty: *mut urma_target_jetty_t,
    (opcode, flag, user_ctx): (urma_opcode_t, urma_jfs_wr_flag_t, u64),
    u: urma_jfs_wr_u,
) -> urma_status_t {
    let next = core::ptr::null_mut();
    let mut wr = urma_jfs_wr_t { opcode, flag, tjetty, user_ctx, u, next };
    let mut bad = core::ptr::null_mut();
    // SAFETY: the callee looks the queue up; the list of one, and its pieces, are of the callers of this
    // function, which wait for it.
    unsafe { urma_post_jfs_wr(jfs, &raw mut wr, &raw mut bad) }
}

fn piece(addr: u64, len: u32, tseg: *mut urma_target_seg_t) -> urma_sge_t {
    urma_sge_t { addr, len, tseg, user_tseg: core::ptr::null_mut() }
}

fn list(piece: &mut urma_sge_t) -> urma_sg_t {
    urma_sg_t { sge: piece, num_sge: 1 }
}
