//! `libtpsa.so.0`: topology, aggregated devices and paths, as the fabric service answers them.
//!
//! *Owns*: what a process sent the service, for this process. *Takes*: C structs of `uvs_api.h`.
//! *Gives*: 0, a negated errno for arguments, or what the service's device file answers in UMDK's
//! library: -1 with `errno`. *Must not*: know URMA.
//!
//! In UMDK a kernel module keeps these tables for the machine. A software device has no
//! fabric manager, so each process keeps its own; a pair of EIDs that no table knows has one path,
//! from the one EID to the other, because software devices reach each other by EID alone.
#![expect(unsafe_code, reason = "functions that C programs call, with C pointers")]

use core::ffi::c_int;
use std::panic::{AssertUnwindSafe, catch_unwind};

pub mod abi;
mod entry;
mod service;

pub use entry::{
    uvs_create_agg_dev, uvs_delete_agg_dev, uvs_delete_main_ue_eid, uvs_flush_main_ue_eid,
    uvs_get_device_name_by_eid, uvs_get_path_set, uvs_get_topo_info, uvs_insert_main_ue_eid,
    uvs_insert_main_ue_eid_batch, uvs_lookup_main_ue_eid, uvs_set_share_topo_info,
    uvs_set_topo_info,
};

/// Why a call is refused.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum No {
    /// The library itself refuses: the negated errno.
    Argument(c_int),
    /// The service refuses: -1, and this errno.
    Service(c_int),
}

pub(crate) const EINVAL: No = No::Argument(libc::EINVAL);

/// Runs a call; a panic in it is a failure of the call.
pub(crate) fn status(f: impl FnOnce() -> Result<(), No>) -> c_int {
    let answer = catch_unwind(AssertUnwindSafe(f));
    match answer.unwrap_or(Err(No::Service(libc::EIO))) {
        Ok(()) => 0,
        Err(No::Argument(errno)) => -errno,
        Err(No::Service(errno)) => {
            // SAFETY: the address of this thread's errno, always valid.
            let place = unsafe { libc::__errno_location() };
            // SAFETY: it is valid, and no other thread writes this one's errno.
            unsafe { *place = errno };
            -1
        }
    }
}
