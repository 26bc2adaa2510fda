//! Receive requests.

use core::mem::MaybeUninit;

use urma_core::{LocalSge, PostError, RecvWr};

use super::{BATCH, LIST_MAX, PIECES, Room, Stop, pieces, refused, stopped};
use crate::{
    abi::urma_jfr_wr_t,
    call::{self, Answer, Code},
    slab::Look,
};

/// Posts the list in batches.
///
/// # Safety
/// `wr` starts a list of requests with their pieces; `bad_wr` is a place.
#[inline]
pub(super) unsafe fn post<'g>(
    look: Look<'g>,
    wr: *mut urma_jfr_wr_t,
    bad_wr: *mut *mut urma_jfr_wr_t,
    mut give: impl FnMut(&[RecvWr<'_>]) -> Result<(), PostError>,
) -> Answer {
    let bad_wr = call::place(bad_wr)?;
    let (mut next, mut posted) = (call::place(wr)?.as_ptr(), 0);
    while !next.is_null() {
        let mut room: Room<'g> = [const { MaybeUninit::uninit() }; PIECES];
        let mut rest: &mut [MaybeUninit<LocalSge<'g>>] = &mut room;
        let mut batch = [RecvWr { dst: &[], user_ctx: 0 }; BATCH];
        let mut from = [core::ptr::null_mut(); BATCH];
        let (mut count, mut stop) = (0, None);
        while count < BATCH && !next.is_null() && stop.is_none() {
            if !next.is_aligned() {
                stop = Some(Code::EINVAL);
                break;
            }
            // SAFETY: the caller's list.
            let wr = unsafe { next.read() };
            // SAFETY: as above.
            match unsafe { pieces(look, wr.src.sge, wr.src.num_sge, &mut rest) } {
                Ok(dst) => {
                    batch[count] = RecvWr { dst, user_ctx: wr.user_ctx };
                    (from[count], next, count) = (next, wr.next, count + 1);
                }
                Err(Stop::NoRoom) if count > 0 => break,
                Err(Stop::NoRoom) => stop = Some(Code::EINVAL),
                Err(Stop::Bad(code)) => stop = Some(code),
            }
        }
        if count > 0
            && let Err(error) = give(&batch[..count])
        {
            return refused(bad_wr, &from[..count], error);
        }
        posted += count;
        if stop.is_none() && posted >= LIST_MAX {
            stop = Some(Code::EINVAL);
        }
        if let Some(code) = stop {
            return stopped(bad_wr, next, code);
        }
    }
    Ok(())
}
