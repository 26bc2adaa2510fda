//! JFC and JFCE: completion queues, event channels, and the wait for events.
//!
//! *Owns*: urma-core's channel. *Gives*: what a completion queue is made from, its attributes, the count of its events;
//! `urma_jfce_t` with its descriptor. *Must not*: hold a lock while it waits.

use core::{ffi::c_int, ptr::NonNull, time::Duration};
use std::{os::fd::AsRawFd, sync::Arc};

use urma_core::{Completion, JettyId, Jfc, Refused};

use crate::{
    abi::*,
    call::{self, Answer, Code, UserArray, gone, ours, refuse},
    convert::{
        queue::{self, Opt},
        zeroed,
    },
    perf,
    slab::{InSlot, member},
    udma::{
        context::{ctx_of, delete, publish, shared},
        event_queue::EventSubject,
        family::{self, Core, Family, Members},
        hardware::Counted,
        kind::{self, Ctx, JfcMore, JfcOwn, JfceOwn, POLL_BATCH},
    },
};

impl Core for Jfc {
    fn about(&self) -> EventSubject {
        EventSubject::Jfc(self.id())
    }

    fn id(&self, ctx: &Ctx) -> JettyId {
        JettyId { eid: ctx.core.eid(), uasid: ctx.core.uasid(), id: self.id() }
    }

    fn delete(self) -> Result<(), Refused<Self>> {
        self.delete()
    }
}

impl Family for kind::Jfc {
    type Core = Jfc;
    type More = JfcMore;
    type Cfg = urma_jfc_cfg_t;
    type Attr = urma_jfc_attr_t;
    const OPTIONS: &'static [&'static [Opt]] = &[queue::JFC];
    const MEMBERS: Members<urma_jfc_t, urma_jfc_cfg_t> =
        family::members!(urma_jfc_t, jfc_id, jfc_cfg, urma_jfc_opt, urma_jfc_id);

    fn make(own: &Arc<Ctx>, cfg: &Self::Cfg) -> Answer<(Jfc, JfcMore)> {
        let jfce = if cfg.jfce.is_null() { None } else { Some(shared::<kind::Jfce, _>(cfg.jfce)?) };
        let core = own.core.create_jfc(&queue::jfc(cfg), jfce.as_ref().map(|jfce| &jfce.core))?;
        let scratch = [Completion::default(); POLL_BATCH];
        Ok((core, JfcMore { scratch, moderation: (0, 0) }))
    }

    fn modify(own: &mut JfcOwn, attr: &urma_jfc_attr_t) -> Answer {
        if attr.mask & (JFC_MODERATE_COUNT | JFC_MODERATE_PERIOD) == 0 {
            return Err(refuse!(
                EINVAL,
                "attr->mask is {:#x}; JFC_MODERATE_COUNT (1) and JFC_MODERATE_PERIOD (2) are bits of it",
                attr.mask
            ));
        }
        let (mut count, mut period_us) = own.more.moderation;
        if attr.mask & JFC_MODERATE_COUNT != 0 {
            count = attr.moderate_count;
        }
        if attr.mask & JFC_MODERATE_PERIOD != 0 {
            period_us = attr.moderate_period;
        }
        own.core.moderate(count, period_us)?;
        own.more.moderation = (count, period_us);
        Ok(())
    }

    fn query(own: &JfcOwn) -> Answer<urma_jfc_attr_t> {
        let (moderate_count, moderate_period) = own.more.moderation;
        Ok(urma_jfc_attr_t { mask: 0, moderate_count, moderate_period })
    }
}

/// Runs `f` with the completion queue at `jfc`, locked.
///
/// # Errors
/// EINVAL: it is none. What `f` says.
pub(crate) fn with_jfc<T>(jfc: *const urma_jfc_t, f: impl FnOnce(&Jfc) -> Answer<T>) -> Answer<T> {
    f(&ours::<kind::Jfc>(jfc)?.lock().ok_or_else(gone::<kind::Jfc>)?.core)
}

pub(crate) unsafe extern "C" fn ack_jfc(
    jfc: *mut *mut urma_jfc_t,
    nevents: *mut u32,
    jfc_cnt: u32,
) {
    call::nothing(|| {
        // SAFETY: an array of the caller's of `jfc_cnt` pointers (room card of `face`).
        let list = unsafe { UserArray::new(jfc, jfc_cnt as usize) }?;
        // SAFETY: an array of the caller's of as many numbers.
        let counts = unsafe { UserArray::new(nevents, jfc_cnt as usize) }?;
        let mut answer = Ok(());
        for (jfc, count) in list.iter().zip(counts.iter()) {
            if !jfc.is_null() && count != 0 {
                // One that is wrong does not keep the events of the others.
                let one = acknowledge(jfc, count);
                answer = answer.and(one);
            }
        }
        answer
    });
}

fn acknowledge(jfc: *mut urma_jfc_t, count: u32) -> Answer {
    let (slot, own) = call::when_decided::<kind::Jfc, _>(jfc, |jfc| {
        let slot = ours::<kind::Jfc>(jfc)?;
        Ok((slot, slot.lock().ok_or_else(gone::<kind::Jfc>)?))
    })?;
    own.core.ack_events(count)?;
    let acked = member!(urma_jfc_t, comp_events_acked);
    slot.set(acked, slot.get(acked).wrapping_add(count));
    Ok(())
}

pub(crate) unsafe extern "C" fn create_jfce(ctx: *mut urma_context_t) -> *mut urma_jfce_t {
    call::pointer(|| {
        let own = ctx_of(ctx)?;
        let core = own.core.create_jfce()?;
        let mut public: urma_jfce_t = zeroed();
        public.urma_ctx = ctx;
        public.fd = core.fd().as_raw_fd();
        let jfce = JfceOwn { core, ctx: Arc::clone(&own), _counted: Counted::new(&own.hardware) };
        Ok(publish::<kind::Jfce>(&own, public, Arc::new(jfce))?.public())
    })
}

/// Deletes a channel; threads that wait on it return.
pub(crate) unsafe extern "C" fn delete_jfce(jfce: *mut urma_jfce_t) -> urma_status_t {
    call::status(|| {
        delete::<kind::Jfce>(jfce, |own| match own.core.delete() {
            Ok(()) => Ok(()),
            Err(status) => Err(Box::new((own, status.into()))),
        })
    })
}

/// Most events of one call; the rest stay for the next.
const EVENTS_MAX: usize = 64;

pub(crate) unsafe extern "C" fn wait_jfc(
    jfce: *mut urma_jfce_t,
    jfc_cnt: u32,
    time_out: c_int,
    jfc: *mut *mut urma_jfc_t,
) -> c_int {
    call::count(|| {
        // SAFETY: an array of the caller's of `jfc_cnt` pointers (room card of `face`).
        let to = unsafe { UserArray::new(jfc, jfc_cnt as usize) }?;
        let room = usize::try_from(jfc_cnt).unwrap_or(usize::MAX).min(EVENTS_MAX);
        if room == 0 {
            return Err(refuse!(EINVAL, "jfc_cnt is 0; the array must have an element"));
        }
        let own = shared::<kind::Jfce, _>(jfce)?;
        let timeout = u64::try_from(time_out).ok().map(Duration::from_millis);
        let mut numbers = [0; EVENTS_MAX];
        let start_ns = perf::now_ns();
        let count = own.core.wait(&mut numbers[..room], timeout)?;
        if count == 0 && is_early(start_ns, timeout) {
            return Err(Code::EINTR.expected());
        }
        let queue =
            |number: &u32| own.ctx.events.named(EventSubject::Jfc(*number)).map(NonNull::as_ptr);
        let given = to.fill(numbers[..count].iter().filter_map(queue));
        c_int::try_from(given).map_err(|_| refuse!(FAIL, "{given} queues have events"))
    })
}

/// Whether a wait without events ended before its time: a signal came. The device has a clock of its
/// own: a millisecond is no difference.
fn is_early(start_ns: u64, timeout: Option<Duration>) -> bool {
    const SLACK: Duration = Duration::from_millis(1);
    let gone = Duration::from_nanos(perf::now_ns().saturating_sub(start_ns));
    timeout.is_none_or(|timeout| gone + SLACK < timeout)
}
