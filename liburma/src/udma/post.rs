//! Posts: lists of C requests, sends and receives, posted to a queue in batches, with one doorbell each.
//!
//! The lock of one queue is held for the length of a call, and what requests name is looked up under it. Must not
//! allocate, wait, or keep anything.

mod alike;
mod list;
mod rare;
mod send;
use core::mem::MaybeUninit;

use list::Batched;
use list::{Pieces, RecvRequest, SendRequest, UserSge, WorkRequest};
use urma_core::{LocalSge, PostError, RecvWr, SendHalf, TransportMode};

use crate::{
    abi::{urma_jfr_wr_t, *},
    call::{self, Answer, Code, UserPtr, gone, ours, refuse},
    convert::refusal,
    slab::{Exclusive, Look, Slot, SlotPlace, seen_ends},
    udma::{
        jetty,
        kind::{self, JettyOwn, JfrOwn, JfsOwn, LastNames},
    },
};

/// Most requests of one batch.
const BATCH: usize = 16;
/// Room for the local pieces of one batch; no request has more than the device allows, 32.
const PIECES: usize = 64;
/// Most requests of one call; a circular list has no end.
const LIST_MAX: usize = 1 << 20;

/// Room for the pieces of a batch's requests.
type Rest<'r, 'g> = &'r mut [MaybeUninit<LocalSge<'g>>];

/// Why a request was not added to a batch.
enum Stop {
    /// The pieces no longer fit: the batch is full.
    NoRoom,
    /// It is invalid, or names something that does not exist.
    Bad(Code),
}

impl From<Code> for Stop {
    fn from(code: Code) -> Self {
        Self::Bad(code)
    }
}

/// The private part of a queue that sends, under its lock.
pub(crate) trait Sends {
    /// Whether everything goes to one target, whatever requests name.
    fn is_bound(&self) -> bool;

    /// The half that posts checked requests.
    fn half(&mut self) -> &mut SendHalf;

    /// The objects that the last plain request named.
    fn last(&mut self) -> &mut LastNames;
}

impl Sends for JfsOwn {
    #[inline(always)]
    fn is_bound(&self) -> bool {
        false
    }

    #[inline(always)]
    fn half(&mut self) -> &mut SendHalf {
        self.core.send_half()
    }

    #[inline(always)]
    fn last(&mut self) -> &mut LastNames {
        &mut self.more
    }
}

impl Sends for JettyOwn {
    #[inline(always)]
    fn is_bound(&self) -> bool {
        self.core.mode() == TransportMode::Rc
    }

    #[inline(always)]
    fn half(&mut self) -> &mut SendHalf {
        self.core.send_half()
    }

    #[inline(always)]
    fn last(&mut self) -> &mut LastNames {
        &mut self.more.last
    }
}

/// The private part of a queue that receives, under its lock.
pub(crate) trait Receives {
    /// The C function that posts to it.
    const POST: &'static str;

    /// Posts checked requests.
    ///
    /// # Errors
    /// The first request that was refused.
    fn post(&mut self, wrs: &[RecvWr<'_>]) -> Result<(), PostError>;
}

impl Receives for JfrOwn {
    const POST: &'static str = "urma_post_jfr_wr";

    #[inline(always)]
    fn post(&mut self, wrs: &[RecvWr<'_>]) -> Result<(), PostError> {
        self.core.post_recv(wrs)
    }
}

impl Receives for JettyOwn {
    const POST: &'static str = "urma_post_jetty_recv_wr";

    #[inline(always)]
    fn post(&mut self, wrs: &[RecvWr<'_>]) -> Result<(), PostError> {
        self.core.post_recv(wrs)
    }
}

/// Posts the request at `wr` if it is like the last one of the queue at `place`, no other thread has that queue, and,
/// for a write or read, if it is executed at once. `false`: nothing happened. `None`: it is a write or read, and this
/// thread has no lease of the queue. `is_own` decides from the queue's public part whether this provider drives it.
///
/// A write or read is executed by loads and stores alone, so `errno` stays unchanged.
///
/// # Safety
/// `wr` is the start of a list as [`WorkRequest::first`] requires.
#[inline(always)]
pub(crate) unsafe fn carry<K: Exclusive<Own: Sends>>(
    place: SlotPlace<K>,
    wr: UserPtr<urma_jfs_wr_t>,
    is_own: impl FnOnce(*mut K::Public) -> bool,
) -> Option<bool> {
    // SAFETY: the contract of this function is that of `first`.
    let first = unsafe { WorkRequest::first(wr) };
    // Other requests need no lock to be refused here.
    if !is_transfer(first.opcode()) {
        let is_atomic = matches!(first.opcode(), URMA_OPC_CAS | URMA_OPC_FADD);
        return Some(is_atomic && post_atomic(place, first, is_own));
    }
    let entry = place.begin()?;
    Some(entry.work(false, |own| {
        call::caught(false, || carry_held::<K>((place.public(), own), first, is_own))
    }))
}

/// Whether the opcode is that of a write or read; takes two instructions.
#[inline(always)]
const fn is_transfer(opcode: urma_opcode_t) -> bool {
    const OTHER: u32 = URMA_OPC_WRITE ^ URMA_OPC_READ;
    const { assert!(OTHER.is_power_of_two() && URMA_OPC_WRITE == 0) };
    opcode & !OTHER == URMA_OPC_WRITE
}

/// Posts a write or read like [`carry`] does, but by locking the queue: this thread has no lease of it.
///
/// # Safety
/// `wr` is the start of a list as [`WorkRequest::first`] requires.
#[inline(always)]
pub(crate) unsafe fn carry_locked<K: Exclusive<Own: Sends>>(
    place: SlotPlace<K>,
    wr: UserPtr<urma_jfs_wr_t>,
    is_own: impl FnOnce(*mut K::Public) -> bool,
) -> bool {
    // SAFETY: the contract of this function is that of `first`.
    let first = unsafe { WorkRequest::first(wr) };
    call::caught(false, || {
        let guard = place.try_lock();
        guard.is_some_and(|mut guard| carry_held::<K>((place.public(), &mut guard), first, is_own))
    })
}

/// Executes a write or read like the last one; the lock of its queue is held.
#[inline(always)]
fn carry_held<K: Exclusive<Own: Sends>>(
    (public, own): (*mut K::Public, &mut K::Own),
    first: SendRequest<'_>,
    is_own: impl FnOnce(*mut K::Public) -> bool,
) -> bool {
    let seen = seen_ends::<K>(own);
    is_own(public) && alike::carry((seen, own), first)
}

/// Posts an atomic like the last one, by this thread's lease or by locking the queue. It is posted even if it is not
/// executed at once.
#[inline(never)]
fn post_atomic<K: Exclusive<Own: Sends>>(
    place: SlotPlace<K>,
    first: SendRequest<'_>,
    is_own: impl FnOnce(*mut K::Public) -> bool,
) -> bool {
    let post = |own: &mut K::Own| {
        let seen = seen_ends::<K>(own);
        is_own(place.public()) && alike::post_atomic((seen, own), first)
    };
    let posted = call::part(|| {
        let is_posted = match place.begin() {
            Some(entry) => entry.work(false, post),
            None => post(&mut *place.try_lock().ok_or(Code::EAGAIN.expected())?),
        };
        if is_posted { Ok(()) } else { Err(Code::EAGAIN.expected()) }
    });
    posted.is_ok()
}

/// Posts a list to the queue in `slot`.
///
/// # Safety
/// `wr` is the start of a list as [`WorkRequest::first`] requires.
#[inline(never)]
pub(crate) unsafe fn send<K: rare::SendKind + Exclusive<Own: Sends>>(
    slot: Slot<K>,
    wr: UserPtr<urma_jfs_wr_t>,
    bad_wr: UserPtr<*mut urma_jfs_wr_t>,
) -> urma_status_t {
    // SAFETY: the contract of this function is that of `first`.
    let first = unsafe { WorkRequest::first(wr) };
    // A request that is refused at first and posted later must not show in `bad_wr`.
    let before = bad_wr.read();
    match send_plain(slot, first, bad_wr) {
        Ok(()) => call::SUCCESS,
        Err(code) => send_refused(slot, (first, code), (bad_wr, before)),
    }
}

/// Tries a refused request again if it has a rare shape; otherwise logs why it is refused.
#[cold]
#[inline(never)]
fn send_refused<K: rare::SendKind + Exclusive<Own: Sends>>(
    slot: Slot<K>,
    (first, code): (SendRequest<'_>, Code),
    (bad_wr, before): (UserPtr<*mut urma_jfs_wr_t>, *mut urma_jfs_wr_t),
) -> urma_status_t {
    let again = if code.is_wrong() { rare::again(slot, first, bad_wr, code) } else { Err(code) };
    match again {
        Ok(()) => {
            bad_wr.write(before);
            call::SUCCESS
        }
        Err(code) => {
            let at = rare::find(first, bad_wr.read());
            let named = code.with(|why| match at {
                Some(at) => format!("{}: {why}", rare::RefusedRequest(at)),
                None => why.to_owned(),
            });
            call::say(K::POST, named).status()
        }
    }
}

#[inline(always)]
fn send_plain<K: Exclusive<Own: Sends>>(
    slot: Slot<K>,
    first: SendRequest<'_>,
    bad_wr: UserPtr<*mut urma_jfs_wr_t>,
) -> Answer {
    call::attempt(|| {
        let mut guard = slot.lock().ok_or_else(gone::<K>)?;
        call::at("post_send");
        let (own, look) = guard.split();
        send::post(look, own, first, bad_wr)
    })
}

impl rare::SendKind for kind::Jfs {
    const POST: &'static str = "urma_post_jfs_wr";

    fn home(public: &urma_jfs_t) -> rare::Home {
        rare::Home { ctx: public.urma_ctx, bound: core::ptr::null_mut() }
    }
}

impl rare::SendKind for kind::Jetty {
    const POST: &'static str = "urma_post_jetty_send_wr";

    fn home(public: &urma_jetty_t) -> rare::Home {
        rare::Home { ctx: public.urma_ctx, bound: public.remote_jetty }
    }
}

/// Posts a list to the queue in `slot`.
///
/// # Safety
/// `wr` is the start of a list as [`WorkRequest::first`] requires.
#[inline(never)]
pub(crate) unsafe fn receive<K: Exclusive<Own: Receives>>(
    slot: Slot<K>,
    wr: UserPtr<urma_jfr_wr_t>,
    bad_wr: UserPtr<*mut urma_jfr_wr_t>,
) -> urma_status_t {
    // SAFETY: the contract of this function is that of `first`.
    let first = unsafe { WorkRequest::first(wr) };
    let posted = call::attempt(|| {
        let mut guard = slot.lock().ok_or_else(gone::<K>)?;
        let (own, look) = guard.split();
        post(look, own, first, bad_wr)
    });
    match posted {
        Ok(()) => call::SUCCESS,
        Err(code) => call::say(K::Own::POST, code.of_receives()).status(),
    }
}

/// Posts a list to a jetty, or to the JFR that it shares.
///
/// # Safety
/// `wr` is the start of a list, as for [`receive`].
pub(crate) unsafe fn receive_by_jetty(
    slot: Slot<kind::Jetty>,
    wr: UserPtr<urma_jfr_wr_t>,
    bad_wr: UserPtr<*mut urma_jfr_wr_t>,
) -> urma_status_t {
    let Some(jfr) = jetty::shared_jfr(&slot.shown().jetty_cfg) else {
        // SAFETY: the contract of this function is that of `receive`.
        return unsafe { receive(slot, wr, bad_wr) };
    };
    match ours::<kind::Jfr>(jfr) {
        // SAFETY: the contract of this function is that of `receive`.
        Ok(jfr) if jfr.owner() == slot.owner() => unsafe { receive(jfr, wr, bad_wr) },
        _ => {
            let code =
                refuse!(EINVAL, "the JFR that the jetty shares is deleted, or of another context");
            call::say(JettyOwn::POST, code).status()
        }
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
                // SAFETY: a list and a place of the caller's (room card of `face`).
                let (wr, bad_wr) = unsafe { call::args((wr, bad_wr)) }?;
                // SAFETY: what the list leads to is the caller's too.
                Ok(unsafe { $own(slot, wr, bad_wr) })
            });
            call::status_of_call(found.map_err(|code| call::say(concat!("urma_", stringify!($name)), code)))
        }
    )*};
}

operations! {
    post_jfs_wr: urma_jfs_t, urma_jfs_wr_t, kind::Jfs, send;
    post_jetty_send_wr: urma_jetty_t, urma_jfs_wr_t, kind::Jetty, send;
    post_jfr_wr: urma_jfr_t, urma_jfr_wr_t, kind::Jfr, receive;
    post_jetty_recv_wr: urma_jetty_t, urma_jfr_wr_t, kind::Jetty, receive_by_jetty;
}

/// The elements of `of`, which are all initialised.
///
/// # Safety
/// Each element was written.
#[inline(always)]
unsafe fn written<T>(of: &[MaybeUninit<T>]) -> &[T] {
    let of: *const [MaybeUninit<T>] = of;
    // SAFETY: each element was written, and MaybeUninit has the layout of its content.
    unsafe { &*(of as *const [T]) }
}

/// Looks up the local pieces of a list and puts them at the front of `room`, which shrinks. Empty pieces are left
/// out.
#[inline(always)]
fn pieces<'r, 'g>(
    look: Look<'g>,
    list: Pieces<'_>,
    room: &mut Rest<'r, 'g>,
) -> Result<&'r [LocalSge<'g>], Stop> {
    let count = list.count() as usize;
    if count > room.len() {
        return Err(if count > PIECES { Stop::Bad(too_many_pieces()) } else { Stop::NoRoom });
    }
    let (mine, rest) = core::mem::take(room).split_at_mut(count);
    let mut used = 0;
    for index in 0..list.count() {
        let from = list.get(index).ok_or_else(no_list)?;
        if from.len() != 0 {
            mine[used].write(piece(look, from)?);
            used += 1;
        }
    }
    *room = rest;
    let (full, _) = mine.split_at(used);
    // SAFETY: the loop wrote the first `used` elements.
    Ok(unsafe { written(full) })
}

/// One local piece: its segment is registered here and belongs to the queue's context.
#[inline(always)]
fn piece<'g>(look: Look<'g>, from: UserSge<'_>) -> Result<LocalSge<'g>, Stop> {
    let own = look.named::<kind::Segment>(from.segment()).ok_or_else(|| not_local(from))?;
    let segment = own.local.as_ref().ok_or_else(|| not_local(from))?;
    Ok(LocalSge { segment, addr: from.addr(), len: from.len() })
}

#[cold]
fn too_many_pieces() -> Code {
    refuse!(EINVAL, "more than {PIECES} pieces; see max_jfs_sge and max_jfr_sge of the device")
}

#[cold]
fn no_list() -> Code {
    refuse!(EINVAL, "num_sge is above 0, and the list of pieces is NULL")
}

/// The error for a piece that names no local segment.
#[cold]
#[inline(never)]
fn not_local(piece: UserSge<'_>) -> Code {
    refuse!(
        EINVAL,
        "tseg of the local piece at {:#x} is {:p}: no live segment that was registered in the context of the queue",
        piece.addr(),
        piece.segment()
    )
}

/// The answer for a post that stopped: `bad_wr` names the request, and the status says why.
fn stopped<W>(bad_wr: UserPtr<*mut W>, at: *mut W, code: Code) -> Answer {
    bad_wr.write(at);
    Err(code)
}

/// The answer for a batch that stopped.
#[cold]
fn refused<W>(
    bad_wr: UserPtr<*mut W>,
    batch: &[Option<WorkRequest<'_, W>>],
    error: PostError,
) -> Answer {
    let at = batch.get(error.index).copied().flatten();
    stopped(bad_wr, at.map_or(core::ptr::null_mut(), WorkRequest::as_ptr), refusal(error.reason))
}

/// Posts a list: one request with one piece at once, anything else in batches.
#[inline(always)]
fn post(
    look: Look<'_>,
    own: &mut impl Receives,
    first: RecvRequest<'_>,
    bad_wr: UserPtr<*mut urma_jfr_wr_t>,
) -> Answer {
    match post_plain(look, own, first) {
        Some(Ok(())) => Ok(()),
        Some(Err(error)) => refused(bad_wr, &[Some(first)], error),
        None => list::post(look, first, bad_wr, false, &mut |wrs| own.post(wrs)),
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
