//! Posts: lists of C requests on their way to a queue.
//!
//! *Owns*: the walk over the list, and what to say when it stops. *Takes*: the lock of one queue for
//! the length of a call; what requests name is found under it. *Gives*: batches, with one doorbell
//! each. *Must not*: allocate, wait, or keep anything.
#![expect(unsafe_code, reason = "C entry points, and lists of C programs")]

mod recv;
mod send;

use core::{mem::MaybeUninit, ptr::NonNull};

use urma_core::{LocalSge, PostError};

use crate::{
    abi::{
        urma_jetty_t, urma_jfr_t, urma_jfr_wr_t, urma_jfs_t, urma_jfs_wr_t, urma_sge_t,
        urma_status_t,
    },
    call::{self, Answer, Code, ours},
    convert::request::refusal,
    slab::Look,
    udma::{jetty, kind},
};

/// Requests of one batch.
const BATCH: usize = 16;
/// Local pieces of all requests of one batch; no request has more than the device allows, 32.
const PIECES: usize = 64;
/// Requests of one call; a list that goes in a circle has no end.
const LIST_MAX: usize = 1 << 20;

/// Room for the pieces of one batch.
type Room<'g> = [MaybeUninit<LocalSge<'g>>; PIECES];

/// Why a request did not get into a batch.
enum Stop {
    /// The pieces do not fit any more: the batch is full.
    NoRoom,
    /// It is wrong, or names something that is not there.
    Bad(Code),
}

impl From<Code> for Stop {
    fn from(code: Code) -> Self {
        Self::Bad(code)
    }
}

pub(crate) unsafe extern "C" fn post_jfs_wr(
    jfs: *mut urma_jfs_t,
    wr: *mut urma_jfs_wr_t,
    bad_wr: *mut *mut urma_jfs_wr_t,
) -> urma_status_t {
    call::status(|| {
        let mut guard = ours::<kind::Jfs>(jfs)?.lock().ok_or(Code::EINVAL)?;
        let (own, look) = guard.split();
        // SAFETY: the caller's list and place.
        unsafe { send::post(look, wr, bad_wr, None, |wrs| own.core.post_send(wrs)) }
    })
}

pub(crate) unsafe extern "C" fn post_jetty_send_wr(
    jetty: *mut urma_jetty_t,
    wr: *mut urma_jfs_wr_t,
    bad_wr: *mut *mut urma_jfs_wr_t,
) -> urma_status_t {
    call::status(|| {
        let mut guard = ours::<kind::Jetty>(jetty)?.lock().ok_or(Code::EINVAL)?;
        let (own, look) = guard.split();
        let is_bound = own.core.mode() == urma_core::TransportMode::Rc;
        let bound = is_bound.then_some(own.send_max);
        // SAFETY: the caller's list and place.
        unsafe { send::post(look, wr, bad_wr, bound, |wrs| own.core.post_send(wrs)) }
    })
}

pub(crate) unsafe extern "C" fn post_jfr_wr(
    jfr: *mut urma_jfr_t,
    wr: *mut urma_jfr_wr_t,
    bad_wr: *mut *mut urma_jfr_wr_t,
) -> urma_status_t {
    call::status(|| {
        let mut guard = ours::<kind::Jfr>(jfr)?.lock().ok_or(Code::EINVAL)?;
        let (own, look) = guard.split();
        // SAFETY: the caller's list and place.
        unsafe { recv::post(look, wr, bad_wr, |wrs| own.core.post_recv(wrs)) }
    })
}

/// A jetty with a shared JFR receives through that: the requests go there.
pub(crate) unsafe extern "C" fn post_jetty_recv_wr(
    jetty: *mut urma_jetty_t,
    wr: *mut urma_jfr_wr_t,
    bad_wr: *mut *mut urma_jfr_wr_t,
) -> urma_status_t {
    call::status(|| {
        let slot = ours::<kind::Jetty>(jetty)?;
        // SAFETY: the public part of a live object. What is read there is looked up before use.
        let cfg = unsafe { &raw const (*slot.public()).jetty_cfg };
        // SAFETY: as above.
        if let Some(jfr) = jetty::shared_jfr(&unsafe { cfg.read() }) {
            let jfr = ours::<kind::Jfr>(jfr)?;
            if jfr.owner() != slot.owner() {
                return Err(Code::EINVAL);
            }
            let mut guard = jfr.lock().ok_or(Code::EINVAL)?;
            let (own, look) = guard.split();
            // SAFETY: the caller's list and place.
            return unsafe { recv::post(look, wr, bad_wr, |wrs| own.core.post_recv(wrs)) };
        }
        let mut guard = slot.lock().ok_or(Code::EINVAL)?;
        let (own, look) = guard.split();
        // SAFETY: the caller's list and place.
        unsafe { recv::post(look, wr, bad_wr, |wrs| own.core.post_recv(wrs)) }
    })
}

/// Finds the local pieces `sge[..count]` and puts them at the front of `room`, which shrinks.
/// Pieces without bytes are left out.
///
/// # Safety
/// `sge`, unless NULL, has `count` elements.
#[inline(always)]
unsafe fn pieces<'r, 'g>(
    look: Look<'g>,
    sge: *const urma_sge_t,
    count: u32,
    room: &mut &'r mut [MaybeUninit<LocalSge<'g>>],
) -> Result<&'r [LocalSge<'g>], Stop> {
    let count = usize::try_from(count).map_err(|_| Stop::Bad(Code::EINVAL))?;
    if count > room.len() {
        return Err(if count > PIECES { Stop::Bad(Code::EINVAL) } else { Stop::NoRoom });
    }
    if count != 0 && (sge.is_null() || !sge.is_aligned()) {
        return Err(Stop::Bad(Code::EINVAL));
    }
    let (mine, rest) = core::mem::take(room).split_at_mut(count);
    let mut used = 0;
    for index in 0..count {
        // SAFETY: inside the caller's array.
        let from = unsafe { sge.add(index) };
        // SAFETY: as above; nobody changes it during the call.
        let from = unsafe { &*from };
        if from.len != 0 {
            let piece = piece(look, from)?;
            mine[used].write(piece);
            used += 1;
        }
    }
    *room = rest;
    let (full, _) = mine.split_at(used);
    let full: *const [MaybeUninit<LocalSge<'g>>] = full;
    // SAFETY: the first `used` elements were written, and MaybeUninit has the layout of its content.
    Ok(unsafe { &*(full as *const [LocalSge<'g>]) })
}

/// One local piece: its segment is registered here and belongs to the queue's context.
#[inline(always)]
fn piece<'g>(look: Look<'g>, from: &urma_sge_t) -> Result<LocalSge<'g>, Stop> {
    let own = look.named::<kind::Segment>(from.tseg).ok_or(Code::EINVAL)?;
    let segment = own.local.as_ref().ok_or(Code::EINVAL)?;
    Ok(LocalSge { segment, addr: from.addr, len: from.len })
}

/// Where a post stopped: `bad_wr` names the request, and the status says why.
fn stopped<W>(bad_wr: NonNull<*mut W>, at: *mut W, code: Code) -> Answer {
    // SAFETY: the caller's place for one pointer.
    unsafe { bad_wr.write(at) };
    Err(code)
}

/// Where a batch stopped.
#[cold]
fn refused<W>(bad_wr: NonNull<*mut W>, batch: &[*mut W], error: PostError) -> Answer {
    let at = batch.get(error.index).copied().unwrap_or(core::ptr::null_mut());
    stopped(bad_wr, at, refusal(error.reason))
}
