//! Polls: completions on their way to C records.
//!
//! *Owns*: nothing. *Takes*: the lock of one JFC for the length of a call. *Must not*: allocate,
//! wait, or clear memory that nobody reads.
#![expect(unsafe_code, reason = "C entry points")]

use core::{ffi::c_int, ptr::NonNull};

use urma_core::Arm;

use crate::{
    abi::{urma_cr_t, urma_jfc_t, urma_status_t},
    call::{self, Answer, Code, ours},
    convert::completion::record,
    udma::{
        jfc::{JfcOwn, POLL_BATCH},
        kind,
    },
};

pub(crate) unsafe extern "C" fn poll_jfc(
    jfc: *mut urma_jfc_t,
    cr_cnt: c_int,
    cr: *mut urma_cr_t,
) -> c_int {
    call::count(|| {
        let to = call::place(cr)?;
        let room = usize::try_from(cr_cnt).map_err(|_| Code::EINVAL)?;
        let mut own = ours::<kind::Jfc>(jfc)?.lock().ok_or(Code::EINVAL)?;
        fill(&mut own, to, room)
    })
}

/// Until `room` is full or the queue is empty.
#[inline]
fn fill(own: &mut JfcOwn, to: NonNull<urma_cr_t>, room: usize) -> Answer<c_int> {
    let mut done = 0;
    while done < room {
        let batch = (room - done).min(POLL_BATCH);
        let scratch = &mut own.scratch[..batch];
        let count = match own.core.poll(scratch) {
            Ok(count) => count,
            // What was taken out of the queue is the caller's.
            Err(_) if done > 0 => break,
            Err(status) => return Err(status.into()),
        };
        for (index, completion) in scratch.iter().take(count).enumerate() {
            // SAFETY: the caller's array has `room` records, and done + index < room.
            let place = unsafe { to.add(done + index) };
            // SAFETY: as above.
            unsafe { place.write(record(completion)) };
        }
        done += count;
        if count < batch {
            break;
        }
    }
    c_int::try_from(done).map_err(|_| Code::FAIL)
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
