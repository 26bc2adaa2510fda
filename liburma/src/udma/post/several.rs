//! Lists of requests, posted in batches with one doorbell each.
//!
//! *Owns*: the room for one batch. *Takes*: a list, and a function that posts checked requests. *Gives*: which
//! request was refused, and why. *Must not*: allocate.

use core::mem::MaybeUninit;

use urma_core::{LocalSge, PostError};

use super::{
    BATCH, LIST_MAX, PIECES, Rest, Stop, list::WorkRequest, stopped, too_many_pieces, written,
};
use crate::{
    call::{Answer, UserPtr, refuse},
    slab::Look,
};

/// A C request that is posted in batches.
pub(super) trait Batched: Sized + 'static {
    /// The request in urma-core's type.
    type Checked<'r>;

    /// The request after `of`.
    fn next(of: WorkRequest<'_, Self>) -> Option<WorkRequest<'_, Self>>;

    /// Looks up what the request names; pieces are put into `rest`. `is_bound` is that of `Sends`.
    fn check<'r, 'g: 'r>(
        look: Look<'g>,
        from: WorkRequest<'_, Self>,
        is_bound: bool,
        rest: &mut Rest<'r, 'g>,
    ) -> Result<Self::Checked<'r>, Stop>;

    /// The answer for a batch that urma-core refused.
    fn refused(
        bad_wr: UserPtr<*mut Self>,
        batch: &[Option<WorkRequest<'_, Self>>],
        error: PostError,
    ) -> Answer {
        super::refused(bad_wr, batch, error)
    }
}

/// Function that posts checked requests, or says which was refused.
type Give<'d, W> = dyn FnMut(&[<W as Batched>::Checked<'_>]) -> Result<(), PostError> + 'd;

/// Posts a list that starts with `first`.
#[inline(never)]
pub(super) fn post<'g, W: Batched>(
    look: Look<'g>,
    first: WorkRequest<'_, W>,
    bad_wr: UserPtr<*mut W>,
    is_bound: bool,
    give: &mut Give<'_, W>,
) -> Answer {
    let (mut next, mut posted) = (Some(first), 0);
    while next.is_some() {
        let mut room = [const { MaybeUninit::<LocalSge<'g>>::uninit() }; PIECES];
        let mut rest: Rest<'_, 'g> = &mut room;
        let mut batch = [const { MaybeUninit::uninit() }; BATCH];
        let mut from = [None; BATCH];
        let (mut count, mut stop) = (0, None);
        while count < BATCH
            && stop.is_none()
            && let Some(request) = next
        {
            match W::check(look, request, is_bound, &mut rest) {
                Ok(wr) => {
                    batch[count].write(wr);
                    (from[count], next, count) = (next, W::next(request), count + 1);
                }
                Err(Stop::NoRoom) if count > 0 => break,
                Err(Stop::NoRoom) => stop = Some(too_many_pieces()),
                Err(Stop::Bad(code)) => stop = Some(code),
            }
        }
        // SAFETY: the loop wrote the first `count` elements.
        let wrs = unsafe { written(&batch[..count]) };
        if count > 0
            && let Err(error) = give(wrs)
        {
            return W::refused(bad_wr, &from[..count], error);
        }
        posted += count;
        if stop.is_none() && posted >= LIST_MAX {
            stop = Some(refuse!(
                EINVAL,
                "the list has more than {LIST_MAX} requests, or goes in a circle"
            ));
        }
        if let Some(code) = stop {
            return stopped(bad_wr, next.map_or(core::ptr::null_mut(), WorkRequest::as_ptr), code);
        }
    }
    Ok(())
}
