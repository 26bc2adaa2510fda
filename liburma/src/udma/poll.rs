//! Polls: completions on their way to C records.
//!
//! *Owns*: nothing. *Takes*: the lock of one JFC for the length of a call. *Must not*: allocate,
//! wait, or clear memory that nobody reads.
#![expect(unsafe_code, reason = "C entry points")]

use core::ffi::c_int;

use urma_core::Arm;

use crate::{
    abi::{urma_cr_t, urma_jfc_t, urma_status_t},
    call::{self, Answer, Code, UserPtr, ours},
    convert::completion::record,
    slab::Slot,
    udma::kind::{self, JfcOwn, POLL_BATCH},
};

pub(crate) unsafe extern "C" fn poll_jfc(
    jfc: *mut urma_jfc_t,
    cr_cnt: c_int,
    cr: *mut urma_cr_t,
) -> c_int {
    let taken = ours::<kind::Jfc>(jfc).and_then(|slot| {
        let to = call::place(cr)?;
        let room = usize::try_from(cr_cnt).map_err(|_| Code::EINVAL)?;
        // SAFETY: the caller's array.
        Ok(unsafe { take(slot, to, room) })
    });
    call::count_of_call(taken)
}

/// Takes up to `room` completions from the queue in `slot`; -1 with `errno` where that fails.
///
/// # Safety
/// `to` starts an array of `room` records.
#[inline(never)]
pub(crate) unsafe fn take(slot: Slot<kind::Jfc>, to: UserPtr<urma_cr_t>, room: usize) -> c_int {
    call::count(|| {
        let mut own = slot.lock().ok_or(Code::EINVAL)?;
        call::at("poll_jfc");
        fill(&mut own, to, room)
    })
}

/// Until `room` is full or the queue is empty.
#[inline(always)]
fn fill(own: &mut JfcOwn, to: UserPtr<urma_cr_t>, room: usize) -> Answer<c_int> {
    let mut done = batch(own, to, room)?;
    if done == POLL_BATCH {
        done += fill_on(own, to, (done, room));
    }
    // `room` came from a number of this type.
    Ok(c_int::try_from(done).unwrap_or(c_int::MAX))
}

/// The rest, after a full batch; `done` of `room` are filled. How many more.
#[cold]
fn fill_on(own: &mut JfcOwn, to: UserPtr<urma_cr_t>, (done, room): (usize, usize)) -> usize {
    let mut more = 0;
    while done + more < room {
        // SAFETY: inside the caller's array.
        let place = unsafe { to.add(done + more) };
        // What was taken out of the queue is the caller's, whatever comes then.
        let Ok(count) = batch(own, place, room - done - more) else { break };
        more += count;
        if count < POLL_BATCH {
            break;
        }
    }
    more
}

/// One call of the driver: how many records at `to` it filled, at most `room`.
#[inline(always)]
fn batch(own: &mut JfcOwn, to: UserPtr<urma_cr_t>, room: usize) -> Answer<usize> {
    let scratch = &mut own.more.scratch[..room.min(POLL_BATCH)];
    let count = own.core.poll(scratch)?;
    let full = scratch.get(..count).ok_or(Code::FAIL)?;
    for (index, completion) in full.iter().enumerate() {
        // SAFETY: the caller's array has `room` records, and index < count <= room.
        let place = unsafe { to.add(index) };
        // SAFETY: as above.
        unsafe { place.write(record(completion)) };
    }
    Ok(count)
}

pub(crate) unsafe extern "C" fn rearm_jfc(
    jfc: *mut urma_jfc_t,
    solicited_only: u8,
) -> urma_status_t {
    call::status(|| {
        let what = if solicited_only == 0 { Arm::Any } else { Arm::SolicitedOnly };
        let mut own = ours::<kind::Jfc>(jfc)?.lock().ok_or(Code::EINVAL)?;
        Ok(own.core.arm(what)?)
    })
}
