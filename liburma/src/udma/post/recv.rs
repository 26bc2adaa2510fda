//! Receive requests.

use core::mem::MaybeUninit;

use urma_core::{LocalSge, PostError, RecvWr};

use super::{
    BATCH, LIST_MAX, PIECES, Receives, Room, Stop, list::RecvRequest, piece, pieces, refused,
    stopped,
};
use crate::{
    abi::urma_jfr_wr_t,
    call::{Answer, Code, UserPtr},
    slab::Look,
};

/// Posts a list: one request with one piece at once, anything else in batches.
#[inline(always)]
pub(super) fn post(
    look: Look<'_>,
    own: &mut impl Receives,
    first: RecvRequest<'_>,
    bad_wr: UserPtr<*mut urma_jfr_wr_t>,
) -> Answer {
    match post_plain(look, own, first) {
        Some(Ok(())) => Ok(()),
        Some(Err(error)) => refused(bad_wr, &[Some(first)], error),
        None => post_other(look, own, first, bad_wr),
    }
}

/// `None`: not one request with one piece, or something is wrong with it, and it is not posted.
#[inline(always)]
fn post_plain(
    look: Look<'_>,
    own: &mut impl Receives,
    from: RecvRequest<'_>,
) -> Option<Result<(), PostError>> {
    if from.next().is_some() {
        return None;
    }
    let dst = [piece(look, from.dst().only()?).ok()?];
    Some(own.post(&[RecvWr { dst: &dst, user_ctx: from.user_ctx() }]))
}

#[inline(never)]
fn post_other<'g>(
    look: Look<'g>,
    own: &mut impl Receives,
    first: RecvRequest<'_>,
    bad_wr: UserPtr<*mut urma_jfr_wr_t>,
) -> Answer {
    let (mut next, mut posted) = (Some(first), 0);
    while next.is_some() {
        let mut room: Room<'g> = [const { MaybeUninit::uninit() }; PIECES];
        let mut rest: &mut [MaybeUninit<LocalSge<'g>>] = &mut room;
        let mut batch = [RecvWr { dst: &[], user_ctx: 0 }; BATCH];
        let mut from = [None; BATCH];
        let (mut count, mut stop) = (0, None);
        while count < BATCH
            && stop.is_none()
            && let Some(request) = next
        {
            match pieces(look, request.dst(), &mut rest) {
                Ok(dst) => {
                    batch[count] = RecvWr { dst, user_ctx: request.user_ctx() };
                    (from[count], next, count) = (next, request.next(), count + 1);
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
            return stopped(bad_wr, next.map_or(core::ptr::null_mut(), RecvRequest::as_ptr), code);
        }
    }
    Ok(())
}
