//! Polls: completions, written to C records.
//!
//! *Owns*: nothing. *Takes*: the lock of one JFC for the length of a call. *Must not*: allocate,
//! wait, or clear memory that is not read.

use core::ffi::c_int;

use urma_core::{Arm, ops::DoneLook};

use crate::{
    abi::*,
    call::{self, Answer, UserArray, UserPtr, gone, ours, refuse},
    convert::{record, record_of_sent},
    slab::Slot,
    udma::kind::{self, JfcOwn, POLL_BATCH},
};

pub(crate) unsafe extern "C" fn poll_jfc(
    jfc: *mut urma_jfc_t,
    cr_cnt: c_int,
    cr: *mut urma_cr_t,
) -> c_int {
    let taken = ours::<kind::Jfc>(jfc).and_then(|slot| {
        call::some(cr)?;
        let room = usize::try_from(cr_cnt)
            .map_err(|_| refuse!(EINVAL, "cr_cnt is {cr_cnt}; it is not below 0"))?;
        // SAFETY: an array of the caller's of `cr_cnt` records (room card of `face`).
        Ok(take(slot, unsafe { UserArray::new(cr, room) }?))
    });
    call::as_count(taken.map_err(|code| call::say("urma_poll_jfc", code)))
}

/// Takes completions from the queue in `slot`, as many as there is room for; -1 with `errno` where that fails.
#[inline(never)]
pub(crate) fn take(slot: Slot<kind::Jfc>, to: UserArray<urma_cr_t>) -> c_int {
    call::count(|| {
        let mut own = slot.lock().ok_or_else(gone::<kind::Jfc>)?;
        call::at("poll_jfc");
        fill(&mut own, to)
    })
}

/// Takes the oldest completion if it is that of a successful send request. Returns how many were taken, or
/// [`NOT_TAKEN`].
#[inline(always)]
pub(crate) fn take_sent(own: &mut JfcOwn, to: UserPtr<urma_cr_t>) -> c_int {
    let look = own.core.take_done();
    if let Some((user_ctx, len)) = look.taken() {
        to.write(record_of_sent(own.core.sender(), user_ctx, len));
        return 1;
    }
    if look == DoneLook::EMPTY { 0 } else { NOT_TAKEN }
}

/// The queue has to be polled. No count, and no option of one: that would be tested twice.
pub(crate) const NOT_TAKEN: c_int = 2;

/// Until the array is full or the queue is empty.
#[inline(always)]
fn fill(own: &mut JfcOwn, to: UserArray<urma_cr_t>) -> Answer<c_int> {
    let mut done = batch(own, to)?;
    if done == POLL_BATCH {
        done += fill_on(own, to.rest(done));
    }
    // The room came from a number of this type.
    Ok(c_int::try_from(done).unwrap_or(c_int::MAX))
}

/// The rest, after a full batch; how many.
#[cold]
fn fill_on(own: &mut JfcOwn, to: UserArray<urma_cr_t>) -> usize {
    let mut more = 0;
    while more < to.count() {
        // What left the queue is the caller's, also where a later batch fails.
        let Ok(count) = batch(own, to.rest(more)) else { break };
        more += count;
        if count < POLL_BATCH {
            break;
        }
    }
    more
}

/// One call of the driver: how many records at `to` it filled.
#[inline(always)]
fn batch(own: &mut JfcOwn, to: UserArray<urma_cr_t>) -> Answer<usize> {
    let scratch = &mut own.more.scratch[..to.count().min(POLL_BATCH)];
    let count = own.core.poll(scratch)?;
    if let (1, Some(first)) = (count, scratch.first()) {
        // The usual number, without the set-up of a loop.
        to.get(0)?.write(record(first));
        return Ok(1);
    }
    let full =
        scratch.get(..count).ok_or_else(|| refuse!(FAIL, "the device gave {count} completions"))?;
    Ok(to.fill_from(full, record))
}

pub(crate) unsafe extern "C" fn rearm_jfc(
    jfc: *mut urma_jfc_t,
    solicited_only: u8,
) -> urma_status_t {
    call::status(|| {
        let what = if solicited_only == 0 { Arm::Any } else { Arm::SolicitedOnly };
        let mut own = ours::<kind::Jfc>(jfc)?.lock().ok_or_else(gone::<kind::Jfc>)?;
        Ok(own.core.arm(what)?)
    })
}
