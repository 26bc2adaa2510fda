//! JFCs and JFCEs.
//!
//! *Owns*: completion queues and event channels. *Gives*: polls and waits.
#![expect(unsafe_code, reason = "calls of C functions, and public members")]

use core::ffi::c_int;
use std::{os::fd::BorrowedFd, sync::Arc, time::Duration};

use liburma::{
    abi::{
        JFC_MODERATE_COUNT, JFC_MODERATE_PERIOD, urma_cr_t, urma_jfc_attr_t, urma_jfc_cfg_t,
        urma_jfc_t, urma_jfce_t,
    },
    face::{
        data::urma_poll_jfc,
        jfc::{urma_ack_jfc, urma_create_jfce, urma_delete_jfce, urma_rearm_jfc, urma_wait_jfc},
        queue::{urma_create_jfc, urma_delete_jfc, urma_modify_jfc},
    },
    zeroed,
};
use urma_core::{
    Arm, Completion, JfcCfg, JfcFlags, Status,
    ops::{CompletionQueue, JfcControl, JfcParts, JfceControl},
};
use urma_mem::sync::{AtomicBool, Ordering};

use crate::{
    shared::Shared,
    value::{self, Ptr, done},
};

/// Completions or events that one call takes at most; the rest wait.
const BATCH: usize = 32;

#[derive(Debug)]
pub(crate) struct Jfce {
    ptr: Ptr<urma_jfce_t>,
    is_live: AtomicBool,
    _shared: Arc<Shared>,
}

impl Jfce {
    pub(crate) fn new(shared: &Arc<Shared>) -> Result<Self, Status> {
        // SAFETY: `Shared` keeps the context open while it lives; the library checks the pointer.
        let ptr = Ptr::made(unsafe { urma_create_jfce(shared.ctx.0) })?;
        Ok(Self { ptr, is_live: AtomicBool::new(true), _shared: Arc::clone(shared) })
    }
}

impl JfceControl for Jfce {
    fn fd(&self) -> BorrowedFd<'_> {
        // SAFETY: memory of objects stays mapped; a public member.
        let fd = unsafe { (*self.ptr.0).fd };
        // SAFETY: open while the channel lives; urma-core asks for it of live ones only.
        unsafe { BorrowedFd::borrow_raw(fd) }
    }

    fn wait(&self, out: &mut [u32], timeout: Option<Duration>) -> Result<usize, Status> {
        let mut jfcs = [core::ptr::null_mut(); BATCH];
        let room = u32::try_from(out.len().min(BATCH)).unwrap_or(0);
        if room == 0 {
            return Ok(0);
        }
        // Rounded up: a wait must not end before its time.
        let ms = timeout.map_or(-1, |limit| {
            c_int::try_from(limit.as_nanos().div_ceil(1_000_000)).unwrap_or(c_int::MAX)
        });
        // SAFETY: an array of `room` places.
        let count = unsafe { urma_wait_jfc(self.ptr.0, room, ms, jfcs.as_mut_ptr()) };
        let count = match usize::try_from(count) {
            Ok(count) => count,
            Err(_) if value::was_interrupted() => 0,
            Err(_) => return Err(value::last()),
        };
        if count == 0 {
            return Ok(0);
        }
        for (place, jfc) in out.iter_mut().zip(&jfcs[..count]) {
            // SAFETY: a queue that the library named; memory of objects stays mapped.
            *place = unsafe { (**jfc).jfc_id.id };
        }
        let mut ones = [1; BATCH];
        // SAFETY: both arrays have BATCH elements, of which `count` are read during the call.
        unsafe {
            urma_ack_jfc(jfcs.as_mut_ptr(), ones.as_mut_ptr(), u32::try_from(count).unwrap_or(0))
        };
        Ok(count)
    }

    fn delete(&self) -> Result<(), Status> {
        // SAFETY: a channel that the library checks.
        done(unsafe { urma_delete_jfce(self.ptr.0) })?;
        self.is_live.store(false, Ordering::Release);
        Ok(())
    }
}

impl Drop for Jfce {
    fn drop(&mut self) {
        if self.is_live.load(Ordering::Acquire)
            && let Err(status) = self.delete()
        {
            tracing::warn!(target: "urma", %status, "JFCE not deleted");
        }
    }
}

/// Control part of a JFC.
#[derive(Debug)]
struct Control {
    ptr: Ptr<urma_jfc_t>,
    number: u32,
    is_live: AtomicBool,
    shared: Arc<Shared>,
}

/// Poll half of a JFC.
#[derive(Debug)]
struct Queue {
    ptr: Ptr<urma_jfc_t>,
    _shared: Arc<Shared>,
}

pub(crate) fn create(
    shared: &Arc<Shared>,
    cfg: &JfcCfg,
    jfce: Option<&Arc<dyn JfceControl>>,
) -> Result<JfcParts, Status> {
    let mut to: urma_jfc_cfg_t = zeroed();
    (to.depth, to.ceqn, to.user_ctx) = (cfg.depth, cfg.ceqn, cfg.user_ctx);
    to.flag.set_jfc_inline(u32::from(cfg.flags.contains(JfcFlags::INLINE)));
    if let Some(jfce) = jfce {
        let any: &dyn std::any::Any = jfce.as_ref();
        to.jfce = any.downcast_ref::<Jfce>().ok_or(Status::Invalid)?.ptr.0;
    }
    // SAFETY: a live context, and a configuration that lives until the call returns.
    let ptr = Ptr::made(unsafe { urma_create_jfc(shared.ctx.0, &raw mut to) })?;
    // SAFETY: a public member of a new object.
    let id = unsafe { (*ptr.0).jfc_id.id };
    shared.names().jfcs.insert(id, ptr);
    let is_live = AtomicBool::new(true);
    let control = Control { ptr, number: id, is_live, shared: Arc::clone(shared) };
    let queue = Queue { ptr, _shared: Arc::clone(shared) };
    Ok(JfcParts { id, control: Arc::new(control), queue: Box::new(queue) })
}

impl JfcControl for Control {
    fn moderate(&self, count: u16, period_us: u16) -> Result<(), Status> {
        let mask = JFC_MODERATE_COUNT | JFC_MODERATE_PERIOD;
        let mut attr = urma_jfc_attr_t { mask, moderate_count: count, moderate_period: period_us };
        // SAFETY: a queue that the library checks, and attributes.
        done(unsafe { urma_modify_jfc(self.ptr.0, &raw mut attr) })
    }

    fn delete(&self) -> Result<(), Status> {
        // The number may be another queue's as soon as this one is gone.
        let mut names = self.shared.names();
        // SAFETY: a queue that the library checks.
        done(unsafe { urma_delete_jfc(self.ptr.0) })?;
        names.jfcs.remove(&self.number);
        self.is_live.store(false, Ordering::Release);
        Ok(())
    }
}

impl Drop for Control {
    fn drop(&mut self) {
        if self.is_live.load(Ordering::Acquire)
            && let Err(status) = self.delete()
        {
            tracing::warn!(target: "urma", %status, "JFC not deleted");
        }
    }
}

impl CompletionQueue for Queue {
    fn poll(&mut self, out: &mut [Completion]) -> Result<usize, Status> {
        let mut taken = 0;
        for part in out.chunks_mut(BATCH) {
            let records = |room: &mut [urma_cr_t]| {
                let count = c_int::try_from(room.len()).unwrap_or(0);
                // SAFETY: a queue that the library checks, and an array of `count` records.
                unsafe { urma_poll_jfc(self.ptr.0, count, room.as_mut_ptr()) }
            };
            let count = take(part, records)?;
            taken += count;
            if count < part.len() {
                break;
            }
        }
        Ok(taken)
    }

    fn arm(&mut self, what: Arm) -> Result<(), Status> {
        let solicited_only = what == Arm::SolicitedOnly;
        // SAFETY: a queue that the library checks.
        done(unsafe { urma_rearm_jfc(self.ptr.0, solicited_only) })
    }
}

/// What `call` puts into records, as completions at the front of `out`, which has at most
/// [`BATCH`] places.
///
/// # Errors
/// `call` answered with -1 (and `errno`), or with a negative status.
pub(crate) fn take(
    out: &mut [Completion],
    call: impl FnOnce(&mut [urma_cr_t]) -> c_int,
) -> Result<usize, Status> {
    let mut records: [urma_cr_t; BATCH] = core::array::from_fn(|_| zeroed());
    let room = out.len().min(BATCH);
    let answer = call(&mut records[..room]);
    let count = usize::try_from(answer).map_err(|_| match answer {
        -1 => value::last(),
        code => value::status(-code),
    })?;
    for (place, record) in out.iter_mut().zip(&records[..count]) {
        *place = value::completion(record);
    }
    Ok(count)
}
