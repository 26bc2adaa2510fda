//! Receive requests of C, posted in batches.

use urma_core::{PostError, RecvWr};

use super::{
    Receives, Rest, Stop,
    list::RecvRequest,
    piece, pieces, refused,
    several::{self, Batched},
};
use crate::{
    abi::urma_jfr_wr_t,
    call::{Answer, UserPtr},
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
        None => several::post(look, first, bad_wr, false, &mut |wrs| own.post(wrs)),
    }
}

/// `None`: it is not one request with one piece, or it is invalid; nothing is posted.
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

impl Batched for urma_jfr_wr_t {
    type Checked<'r> = RecvWr<'r>;

    fn next(of: RecvRequest<'_>) -> Option<RecvRequest<'_>> {
        of.next()
    }

    fn check<'r, 'g: 'r>(
        look: Look<'g>,
        from: RecvRequest<'_>,
        _is_bound: bool,
        rest: &mut Rest<'r, 'g>,
    ) -> Result<RecvWr<'r>, Stop> {
        Ok(RecvWr { dst: pieces(look, from.dst(), rest)?, user_ctx: from.user_ctx() })
    }
}
