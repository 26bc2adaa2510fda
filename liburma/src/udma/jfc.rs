//! JFC and JFCE: completion queues, polls into C records, event channels, and the wait for events.
//!
//! Must not hold a lock while it waits. A poll has the lock of one JFC for the length of the call, and must not
//! allocate, wait, or clear memory that is not read.

use core::{ffi::c_int, ptr::NonNull, time::Duration};
use std::{os::fd::AsRawFd, sync::Arc};

use urma_core::{Arm, Completion, JettyId, Jfc, Refused, ops::DoneLook};

use crate::{
    abi::*,
    call::{self, Answer, Code, UserArray, UserPtr, gone, ours, refuse},
    convert::{self, Opt, record, record_of_sent, zeroed},
    perf,
    slab::{InSlot, Slot, member},
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
    const OPTIONS: &'static [&'static [Opt]] = &[convert::JFC];
    const MEMBERS: Members<urma_jfc_t, urma_jfc_cfg_t> =
        family::members!(urma_jfc_t, jfc_id, jfc_cfg, urma_jfc_opt, urma_jfc_id);

    fn make(own: &Arc<Ctx>, cfg: &Self::Cfg) -> Answer<(Jfc, JfcMore)> {
        let jfce = if cfg.jfce.is_null() { None } else { Some(shared::<kind::Jfce, _>(cfg.jfce)?) };
        let core = own.core.create_jfc(&convert::jfc(cfg), jfce.as_ref().map(|jfce| &jfce.core))?;
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

pub(crate) unsafe extern "C" fn poll_jfc(
    jfc: *mut urma_jfc_t,
    cr_cnt: c_int,
    cr: *mut urma_cr_t,
) -> c_int {
    let taken = ours::<kind::Jfc>(jfc).and_then(|slot| {
        call::some(cr)?;
        let room = usize::try_from(cr_cnt)
            .map_err(|_| refuse!(EINVAL, "cr_cnt is {cr_cnt}; it is not below 0"))?;
        // SAFETY: an array of the caller's of `cr_cnt` records (room card of `face`).
        Ok(take(slot, unsafe { UserArray::new(cr, room) }?))
    });
    call::as_count(taken.map_err(|code| call::say("urma_poll_jfc", code)))
}

/// Takes completions from the queue in `slot`, as many as there is room for; -1 with `errno` where that fails.
#[inline(never)]
pub(crate) fn take(slot: Slot<kind::Jfc>, to: UserArray<urma_cr_t>) -> c_int {
    call::count(|| {
        let mut own = slot.lock().ok_or_else(gone::<kind::Jfc>)?;
        call::at("poll_jfc");
        fill(&mut own, to)
    })
}

/// Takes the oldest completion if it is that of a successful send request. Returns how many were taken, or
/// [`NOT_TAKEN`].
#[inline(always)]
pub(crate) fn take_sent(own: &mut JfcOwn, to: UserPtr<urma_cr_t>) -> c_int {
    let look = own.core.take_done();
    if let Some((user_ctx, len)) = look.taken() {
        to.write(record_of_sent(own.core.sender(), user_ctx, len));
        return 1;
    }
    if look == DoneLook::EMPTY { 0 } else { NOT_TAKEN }
}

/// The queue has to be polled. No count, and no option of one: that would be tested twice.
pub(crate) const NOT_TAKEN: c_int = 2;

/// Until the array is full or the queue is empty.
#[inline(always)]
fn fill(own: &mut JfcOwn, to: UserArray<urma_cr_t>) -> Answer<c_int> {
    let mut done = batch(own, to)?;
    if done == POLL_BATCH {
        done += fill_on(own, to.rest(done));
    }
    // The room came from a number of this type.
    Ok(c_int::try_from(done).unwrap_or(c_int::MAX))
}

/// The rest, after a full batch; how many.
#[cold]
fn fill_on(own: &mut JfcOwn, to: UserArray<urma_cr_t>) -> usize {
    let mut more = 0;
    while more < to.count() {
        // What left the queue is the caller's, also where a later batch fails.
        let Ok(count) = batch(own, to.rest(more)) else { break };
        more += count;
        if count < POLL_BATCH {
            break;
        }
    }
    more
}

/// One call of the driver: how many records at `to` it filled.
#[inline(always)]
fn batch(own: &mut JfcOwn, to: UserArray<urma_cr_t>) -> Answer<usize> {
    let scratch = &mut own.more.scratch[..to.count().min(POLL_BATCH)];
    let count = own.core.poll(scratch)?;
    if let (1, Some(first)) = (count, scratch.first()) {
        // The usual number, without the set-up of a loop.
        to.get(0)?.write(record(first));
        return Ok(1);
    }
    let full =
        scratch.get(..count).ok_or_else(|| refuse!(FAIL, "the device gave {count} completions"))?;
    Ok(to.fill_from(full, record))
}

pub(crate) unsafe extern "C" fn rearm_jfc(
    jfc: *mut urma_jfc_t,
    solicited_only: u8,
) -> urma_status_t {
    call::status(|| {
        let what = if solicited_only == 0 { Arm::Any } else { Arm::SolicitedOnly };
        let mut own = ours::<kind::Jfc>(jfc)?.lock().ok_or_else(gone::<kind::Jfc>)?;
        Ok(own.core.arm(what)?)
    })
}
