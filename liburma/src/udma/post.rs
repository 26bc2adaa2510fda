//! Posts: lists of C requests on their way to a queue.
//!
//! *Owns*: the walk over the list, and what to say when it stops. *Takes*: the lock of one queue for
//! the length of a call; what requests name is found under it. *Gives*: batches, with one doorbell
//! each. *Must not*: allocate, wait, or keep anything.
#![expect(unsafe_code, reason = "C entry points, and lists of C programs")]

mod rare;
mod recv;
mod send;

use core::mem::MaybeUninit;

use urma_core::{LocalSge, PostError, RecvWr, SendWr, TransportMode};

use crate::{
    abi::{
        urma_jetty_t, urma_jfr_t, urma_jfr_wr_t, urma_jfs_t, urma_jfs_wr_t, urma_sg_t, urma_sge_t,
        urma_status_t,
    },
    call::{self, Answer, Code, UserPtr, ours},
    convert::request::refusal,
    slab::{Exclusive, Look, Slot},
    udma::{
        jetty,
        kind::{self, JettyOwn, JfrOwn, JfsOwn},
    },
};

/// Requests of one batch.
const BATCH: usize = 16;
/// Local pieces of all requests of one batch; no request has more than the device allows, 32.
const PIECES: usize = 64;
/// Requests of one call; a list that goes in a circle has no end.
const LIST_MAX: usize = 1 << 20;

/// Room for the pieces of one batch.
type Room<'g> = [MaybeUninit<LocalSge<'g>>; PIECES];

/// Why a request did not get into a batch.
enum Stop {
    /// The pieces do not fit any more: the batch is full.
    NoRoom,
    /// It is wrong, or names something that is not there.
    Bad(Code),
}

impl From<Code> for Stop {
    fn from(code: Code) -> Self {
        Self::Bad(code)
    }
}

/// What the lock of a queue that sends guards.
pub(crate) trait Sends {
    /// Where everything goes, whatever a request names, and how many bytes a message has at most:
    /// of a queue with one target.
    fn bound(&self) -> Option<u32>;

    /// Posts checked requests.
    ///
    /// # Errors
    /// The first that was refused.
    fn post(&mut self, wrs: &[SendWr<'_>]) -> Result<(), PostError>;
}

impl Sends for JfsOwn {
    #[inline(always)]
    fn bound(&self) -> Option<u32> {
        None
    }

    #[inline(always)]
    fn post(&mut self, wrs: &[SendWr<'_>]) -> Result<(), PostError> {
        self.core.post_send(wrs)
    }
}

impl Sends for JettyOwn {
    #[inline(always)]
    fn bound(&self) -> Option<u32> {
        (self.core.mode() == TransportMode::Rc).then_some(self.more.send_max)
    }

    #[inline(always)]
    fn post(&mut self, wrs: &[SendWr<'_>]) -> Result<(), PostError> {
        self.core.post_send(wrs)
    }
}

/// What the lock of a queue that receives guards.
pub(crate) trait Receives {
    /// Posts checked requests.
    ///
    /// # Errors
    /// The first that was refused.
    fn post(&mut self, wrs: &[RecvWr<'_>]) -> Result<(), PostError>;
}

impl Receives for JfrOwn {
    #[inline(always)]
    fn post(&mut self, wrs: &[RecvWr<'_>]) -> Result<(), PostError> {
        self.core.post_recv(wrs)
    }
}

impl Receives for JettyOwn {
    #[inline(always)]
    fn post(&mut self, wrs: &[RecvWr<'_>]) -> Result<(), PostError> {
        self.core.post_recv(wrs)
    }
}

/// Posts a list to the queue in `slot`.
///
/// # Safety
/// `wr` starts a list of requests, each with what its opcode needs; `bad_wr` is a place.
#[inline(never)]
pub(crate) unsafe fn send<K: rare::Homed + Exclusive<Own: Sends>>(
    slot: Slot<K>,
    wr: UserPtr<urma_jfs_wr_t>,
    bad_wr: UserPtr<*mut urma_jfs_wr_t>,
) -> urma_status_t {
    // SAFETY: the caller's promise.
    let status = unsafe { send_plain(slot, wr, bad_wr) };
    if status == Code::EINVAL.status() {
        // SAFETY: as above.
        return unsafe { rare::again(slot, wr, bad_wr) };
    }
    status
}

/// # Safety
/// As [`send`].
#[inline(always)]
unsafe fn send_plain<K: Exclusive<Own: Sends>>(
    slot: Slot<K>,
    wr: UserPtr<urma_jfs_wr_t>,
    bad_wr: UserPtr<*mut urma_jfs_wr_t>,
) -> urma_status_t {
    call::status(|| {
        let mut guard = slot.lock().ok_or(Code::EINVAL)?;
        call::at("post_send");
        let (own, look) = guard.split();
        // SAFETY: the caller's promise.
        unsafe { send::post(look, own, wr, bad_wr) }
    })
}

impl rare::Homed for kind::Jfs {
    fn home(public: &urma_jfs_t) -> rare::Home {
        rare::Home { ctx: public.urma_ctx, bound: core::ptr::null_mut() }
    }
}

impl rare::Homed for kind::Jetty {
    fn home(public: &urma_jetty_t) -> rare::Home {
        rare::Home { ctx: public.urma_ctx, bound: public.remote_jetty }
    }
}

/// Posts a list to the queue in `slot`.
///
/// # Safety
/// `wr` starts a list of requests with their pieces; `bad_wr` is a place.
#[inline(never)]
pub(crate) unsafe fn receive<K: Exclusive<Own: Receives>>(
    slot: Slot<K>,
    wr: UserPtr<urma_jfr_wr_t>,
    bad_wr: UserPtr<*mut urma_jfr_wr_t>,
) -> urma_status_t {
    call::status(|| {
        let mut guard = slot.lock().ok_or(Code::EINVAL)?;
        let (own, look) = guard.split();
        // SAFETY: the caller's promise.
        unsafe { recv::post(look, own, wr, bad_wr) }
    })
}

/// Posts a list to a jetty, or to the JFR that it shares.
///
/// # Safety
/// As [`receive`].
pub(crate) unsafe fn receive_by_jetty(
    slot: Slot<kind::Jetty>,
    wr: UserPtr<urma_jfr_wr_t>,
    bad_wr: UserPtr<*mut urma_jfr_wr_t>,
) -> urma_status_t {
    // SAFETY: the public part of a slot. What is read there is looked up before use.
    let cfg = unsafe { &raw const (*slot.public()).jetty_cfg };
    // SAFETY: as above.
    let Some(jfr) = jetty::shared_jfr(unsafe { &*cfg }) else {
        // SAFETY: the caller's promise.
        return unsafe { receive(slot, wr, bad_wr) };
    };
    match ours::<kind::Jfr>(jfr) {
        // SAFETY: the caller's promise.
        Ok(jfr) if jfr.owner() == slot.owner() => unsafe { receive(jfr, wr, bad_wr) },
        _ => Code::EINVAL.status(),
    }
}

macro_rules! operations {
    ($($name:ident: $queue:ident, $wr:ident, $kind:ty, $own:path;)*) => {$(
        pub(crate) unsafe extern "C" fn $name(
            queue: *mut $queue,
            wr: *mut $wr,
            bad_wr: *mut *mut $wr,
        ) -> urma_status_t {
            let found = ours::<$kind>(queue).and_then(|slot| {
                let (wr, bad_wr) = (call::place(wr)?, call::place(bad_wr)?);
                // SAFETY: the caller's list and place.
                Ok(unsafe { $own(slot, wr, bad_wr) })
            });
            call::status_of_call(found)
        }
    )*};
}

operations! {
    post_jfs_wr: urma_jfs_t, urma_jfs_wr_t, kind::Jfs, send;
    post_jetty_send_wr: urma_jetty_t, urma_jfs_wr_t, kind::Jetty, send;
    post_jfr_wr: urma_jfr_t, urma_jfr_wr_t, kind::Jfr, receive;
    post_jetty_recv_wr: urma_jetty_t, urma_jfr_wr_t, kind::Jetty, receive_by_jetty;
}

/// A struct of the caller's where it lies, at any address: members are read one by one, and no more of
/// them than are needed.
#[derive(Clone, Copy)]
#[repr(C, packed)]
struct Unaligned<T>(T);

impl<T> Unaligned<T> {
    /// # Safety
    /// A `T` lies at `ptr`, and nobody changes it while `'a` lasts.
    #[inline(always)]
    unsafe fn at<'a>(ptr: *const T) -> &'a Self {
        // SAFETY: the caller's promise; a packed struct may lie anywhere.
        unsafe { &*ptr.cast::<Self>() }
    }
}

/// The piece of a list that is just one, with bytes; `None` for any other list.
///
/// # Safety
/// The list, unless NULL, has as many elements as it says, and nobody changes them while `'a` lasts.
#[inline(always)]
unsafe fn only<'a>(list: urma_sg_t) -> Option<&'a Unaligned<urma_sge_t>> {
    if list.num_sge != 1 || list.sge.is_null() {
        return None;
    }
    // SAFETY: the caller's promise.
    let piece = unsafe { Unaligned::at(list.sge) };
    (piece.0.len != 0).then_some(piece)
}

/// Finds the local pieces `sge[..count]` and puts them at the front of `room`, which shrinks.
/// Pieces without bytes are left out.
///
/// # Safety
/// `sge`, unless NULL, has `count` elements.
#[inline(always)]
unsafe fn pieces<'r, 'g>(
    look: Look<'g>,
    sge: *const urma_sge_t,
    count: u32,
    room: &mut &'r mut [MaybeUninit<LocalSge<'g>>],
) -> Result<&'r [LocalSge<'g>], Stop> {
    let count = usize::try_from(count).map_err(|_| Stop::Bad(Code::EINVAL))?;
    if count > room.len() {
        return Err(if count > PIECES { Stop::Bad(Code::EINVAL) } else { Stop::NoRoom });
    }
    if count != 0 && sge.is_null() {
        return Err(Stop::Bad(Code::EINVAL));
    }
    let (mine, rest) = core::mem::take(room).split_at_mut(count);
    let mut used = 0;
    for index in 0..count {
        // SAFETY: inside the caller's array.
        let from = unsafe { sge.add(index) };
        // SAFETY: as above; nobody changes it during the call.
        let from = unsafe { Unaligned::at(from) };
        if from.0.len != 0 {
            let piece = piece(look, from)?;
            mine[used].write(piece);
            used += 1;
        }
    }
    *room = rest;
    let (full, _) = mine.split_at(used);
    let full: *const [MaybeUninit<LocalSge<'g>>] = full;
    // SAFETY: the first `used` elements were written, and MaybeUninit has the layout of its content.
    Ok(unsafe { &*(full as *const [LocalSge<'g>]) })
}

/// One local piece: its segment is registered here and belongs to the queue's context.
#[inline(always)]
fn piece<'g>(look: Look<'g>, from: &Unaligned<urma_sge_t>) -> Result<LocalSge<'g>, Stop> {
    let own = look.named::<kind::Segment>(from.0.tseg).ok_or(Code::EINVAL)?;
    let segment = own.local.as_ref().ok_or(Code::EINVAL)?;
    Ok(LocalSge { segment, addr: from.0.addr, len: from.0.len })
}

/// Where a post stopped: `bad_wr` names the request, and the status says why.
fn stopped<W>(bad_wr: UserPtr<*mut W>, at: *mut W, code: Code) -> Answer {
    // SAFETY: the caller's place for one pointer.
    unsafe { bad_wr.write(at) };
    Err(code)
}

/// Where a batch stopped.
#[cold]
fn refused<W>(bad_wr: UserPtr<*mut W>, batch: &[*mut W], error: PostError) -> Answer {
    let at = batch.get(error.index).copied().unwrap_or(core::ptr::null_mut());
    stopped(bad_wr, at, refusal(error.reason))
}
