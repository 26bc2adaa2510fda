//! What the objects of a context hold on to.
//!
//! *Owns*: the C context; objects by the numbers that urma-core knows them by.
#![expect(unsafe_code, reason = "calls of C functions, and public members")]

use std::{
    collections::BTreeMap,
    os::fd::BorrowedFd,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use liburma::{
    abi::{
        urma_context_t, urma_jetty_grp_t, urma_jfc_t, urma_jfr_t, urma_target_seg_t,
        urma_token_id_t,
    },
    face::context::{urma_create_context, urma_delete_context},
};
use rustix::fs::{OFlags, fcntl_getfl, fcntl_setfl};
use urma_core::{Eid, Status};

use crate::{
    device::CDevice,
    paths::OpenPaths,
    value::{self, Ptr, done},
};

/// A C context; deleted with the last that holds it.
#[derive(Debug)]
pub(crate) struct Shared {
    pub(crate) ctx: Ptr<urma_context_t>,
    pub(crate) paths: Mutex<OpenPaths>,
    names: Mutex<Names>,
    /// Goes after the context.
    _device: Arc<CDevice>,
}

#[derive(Default, Debug)]
pub(crate) struct Names {
    pub(crate) jfcs: BTreeMap<u32, Ptr<urma_jfc_t>>,
    pub(crate) jfrs: BTreeMap<u32, Ptr<urma_jfr_t>>,
    pub(crate) groups: BTreeMap<u32, Ptr<urma_jetty_grp_t>>,
    pub(crate) token_ids: BTreeMap<u32, Ptr<urma_token_id_t>>,
    pub(crate) segments: BTreeMap<u32, Ptr<urma_target_seg_t>>,
    /// JFRs that only one jetty knows, with its number.
    pub(crate) own_jfrs: BTreeMap<u32, u32>,
}

impl Shared {
    pub(crate) fn open(device: &Arc<CDevice>, eid_index: u32) -> Result<Self, Status> {
        // SAFETY: `CDevice` keeps its device listed while it lives; the library checks the pointer.
        let ctx = Ptr::made(unsafe { urma_create_context(device.ptr().0, eid_index) })?;
        let _device = Arc::clone(device);
        let (paths, names) = (Mutex::default(), Mutex::default());
        let shared = Self { ctx, paths, names, _device };
        let flags = fcntl_getfl(shared.async_fd()).map_err(|_| Status::Fail)?;
        fcntl_setfl(shared.async_fd(), flags | OFlags::NONBLOCK).map_err(|_| Status::Fail)?;
        Ok(shared)
    }

    pub(crate) fn names(&self) -> MutexGuard<'_, Names> {
        self.names.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn paths(&self) -> MutexGuard<'_, OpenPaths> {
        self.paths.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn eid(&self) -> Eid {
        // SAFETY: a public member of a live context.
        value::eid(unsafe { (*self.ctx.0).eid })
    }

    pub(crate) fn uasid(&self) -> u32 {
        // SAFETY: a public member of a live context.
        unsafe { (*self.ctx.0).uasid }
    }

    pub(crate) fn async_fd(&self) -> BorrowedFd<'_> {
        // SAFETY: a public member of a live context.
        let fd = unsafe { (*self.ctx.0).async_fd };
        // SAFETY: open while the context lives, which `self` keeps.
        unsafe { BorrowedFd::borrow_raw(fd) }
    }
}

impl Drop for Shared {
    fn drop(&mut self) {
        // SAFETY: the context is this value's.
        if let Err(status) = done(unsafe { urma_delete_context(self.ctx.0) }) {
            tracing::warn!(target: "urma", %status, "context not deleted");
        }
    }
}
