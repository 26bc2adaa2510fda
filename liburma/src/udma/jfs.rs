//! JFS: send queues.
//!
//! *Gives*: what a send queue is made from, its attributes, its flushed requests.

use core::ffi::c_int;
use std::sync::Arc;

use urma_core::{Completion, JettyState, Jfs};

use crate::{
    abi::*,
    call::{self, Answer, Code, UserArray, gone, ours, refuse},
    convert::{self, Opt, record},
    udma::{
        family::{self, Family, Members},
        jfc::with_jfc,
        kind::{self, Ctx, JfsOwn, LastNames},
    },
};

impl Family for kind::Jfs {
    type Core = Jfs;
    type More = LastNames;
    type Cfg = urma_jfs_cfg_t;
    type Attr = urma_jfs_attr_t;
    const OPTIONS: &'static [&'static [Opt]] = &[convert::JFS];
    const MEMBERS: Members<urma_jfs_t, urma_jfs_cfg_t> =
        family::members!(urma_jfs_t, jfs_id, jfs_cfg, urma_jfs_opt, urma_jfs_id);

    fn make(own: &Arc<Ctx>, cfg: &Self::Cfg) -> Answer<(Jfs, LastNames)> {
        let made = with_jfc(cfg.jfc, |jfc| Ok(own.core.create_jfs(&convert::jfs(cfg)?, jfc)?))?;
        Ok((made, LastNames::NONE))
    }

    fn modify(own: &mut JfsOwn, attr: &urma_jfs_attr_t) -> Answer {
        if attr.mask & JFS_STATE == 0 {
            return Err(refuse!(
                EINVAL,
                "attr->mask is {:#x}; JFS_STATE (1) is a bit of it",
                attr.mask
            ));
        }
        let state = convert::state(attr.state)?;
        may_become(own.core.query()?.state, state)?;
        Ok(own.core.modify(state)?)
    }

    fn query(own: &JfsOwn) -> Answer<urma_jfs_attr_t> {
        Ok(urma_jfs_attr_t { mask: 0, state: own.core.query()?.state as u32 })
    }
}

/// A running queue is reset from ERROR only, as in the driver of UDMA hardware: programs ask
/// for it where they mean "disconnect", are refused, and go on with the running queue.
pub(super) fn may_become(is: JettyState, to: JettyState) -> Result<(), Code> {
    if (is, to) != (JettyState::Ready, JettyState::Reset) {
        return Ok(());
    }
    Err(refuse!(
        EINVAL,
        "attr->state is RESET (0) and the queue is READY; a queue is reset from ERROR (3)"
    ))
}

pub(crate) unsafe extern "C" fn flush_jfs(
    jfs: *mut urma_jfs_t,
    cr_cnt: c_int,
    cr: *mut urma_cr_t,
) -> c_int {
    call::negative(|| {
        let mut own = ours::<kind::Jfs>(jfs)?.lock().ok_or_else(gone::<kind::Jfs>)?;
        if own.core.query()?.state != JettyState::Error {
            // Its requests go on: there is nothing to take.
            return Ok(0);
        }
        // SAFETY: an array of the caller's of `cr_cnt` records (room card of `face`).
        unsafe { flush(cr_cnt, cr, |out| Ok(own.core.flush(out)?)) }
    })
}

/// Flushed completions of a queue into `cr_cnt` records of C.
///
/// # Errors
/// EINVAL: no place, or less than none. What flushing says.
///
/// # Safety
/// `cr`, unless NULL, has room for `cr_cnt` records.
pub(crate) unsafe fn flush(
    cr_cnt: c_int,
    cr: *mut urma_cr_t,
    flush: impl FnOnce(&mut [Completion]) -> Answer<usize>,
) -> Answer<c_int> {
    /// Records of one call at most; a larger count gets these first.
    const RECORDS_MAX: usize = 4096;
    call::some(cr)?;
    let room = usize::try_from(cr_cnt)
        .map_err(|_| refuse!(EINVAL, "cr_cnt is {cr_cnt}; it is not below 0"))?
        .min(RECORDS_MAX);
    // SAFETY: the contract of this function is that of the constructor.
    let to = unsafe { UserArray::new(cr, room) }?;
    let mut out = vec![Completion::default(); room];
    let count = flush(&mut out)?;
    to.fill(out.iter().take(count).map(record));
    c_int::try_from(count).map_err(|_| refuse!(FAIL, "{count} requests were flushed"))
}
