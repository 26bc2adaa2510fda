//! Receive requests.

use core::mem::MaybeUninit;

use urma_core::{LocalSge, PostError, RecvWr};

use super::{
    BATCH, LIST_MAX, PIECES, Receives, Room, Stop, Unaligned, only, piece, pieces, refused, stopped,
};
use crate::{
    abi::urma_jfr_wr_t,
    call::{Answer, Code, UserPtr},
    slab::Look,
};

/// Posts a list: one request with one piece at once, anything else in batches.
///
/// # Safety
/// `wr` starts a list of requests with their pieces; `bad_wr` is a place.
#[inline(always)]
pub(super) unsafe fn post(
    look: Look<'_>,
    own: &mut impl Receives,
    wr: UserPtr<urma_jfr_wr_t>,
    bad_wr: UserPtr<*mut urma_jfr_wr_t>,
) -> Answer {
    // SAFETY: the caller's request.
    let from = unsafe { Unaligned::at(wr.as_ptr()) };
    // SAFETY: as above.
    match unsafe { post_plain(look, own, from) } {
        Some(Ok(())) => Ok(()),
        Some(Err(error)) => refused(bad_wr, &[wr.as_ptr()], error),
        // SAFETY: the caller's list.
        None => unsafe { post_other(look, own, wr, bad_wr) },
    }
}

/// `None`: not one request with one piece, or something is wrong with it, and it is not posted.
///
/// # Safety
/// As [`post`].
#[inline(always)]
unsafe fn post_plain(
    look: Look<'_>,
    own: &mut impl Receives,
    from: &Unaligned<urma_jfr_wr_t>,
) -> Option<Result<(), PostError>> {
    if !{ from.0.next }.is_null() {
        return None;
    }
    // SAFETY: the caller's list.
    let dst = [piece(look, unsafe { only(from.0.src) }?).ok()?];
    Some(own.post(&[RecvWr { dst: &dst, user_ctx: from.0.user_ctx }]))
}

/// # Safety
/// As [`post`].
#[inline(never)]
unsafe fn post_other<'g>(
    look: Look<'g>,
    own: &mut impl Receives,
    wr: UserPtr<urma_jfr_wr_t>,
    bad_wr: UserPtr<*mut urma_jfr_wr_t>,
) -> Answer {
    let (mut next, mut posted) = (wr.as_ptr(), 0);
    while !next.is_null() {
        let mut room: Room<'g> = [const { MaybeUninit::uninit() }; PIECES];
        let mut rest: &mut [MaybeUninit<LocalSge<'g>>] = &mut room;
        let mut batch = [RecvWr { dst: &[], user_ctx: 0 }; BATCH];
        let mut from = [core::ptr::null_mut(); BATCH];
        let (mut count, mut stop) = (0, None);
        while count < BATCH && !next.is_null() && stop.is_none() {
            // SAFETY: the caller's list.
            let wr = unsafe { next.read_unaligned() };
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
            && let Err(error) = own.post(&batch[..count])
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
