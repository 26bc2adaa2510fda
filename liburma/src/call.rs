//! Entry and exit of every call from C.
//!
//! *Owns*: the forms of an answer (status, pointer with `errno`, count), the stop for panics, the
//! check for a forked child; the memory of callers (`user`). *Takes*: closures that answer with a [`Code`].
//! *Gives*: C values.
//! *Must not*: know what is called.
#![expect(unsafe_code, reason = "pointers of C programs, and errno")]

mod user;

use core::{ffi::c_int, num::NonZero, ops::Deref, ptr::NonNull};
use std::panic::{AssertUnwindSafe, catch_unwind};

use urma_core::Status;
use urma_mem::{
    fork,
    sync::{AtomicU64, Ordering},
};

use crate::copies::copies;
use crate::{
    latch::BoundedPause,
    slab::{Idle, InSlot, Kind, PointerKind, Slot, find, find_live, forget_usual, is_there},
};

pub(crate) use user::{Recorded, UserArray, UserPtr, args, c_text, some, text, value};

/// A number of `urma_status_t` that is no success: an errno value, or [`Code::FAIL`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Code(NonZero<c_int>);

/// The `urma_status_t` of a call that did what it was asked to.
pub(crate) const SUCCESS: c_int = 0;

impl Code {
    pub(crate) const ENOPERM: Self = Self::known(libc::EPERM);
    pub(crate) const EAGAIN: Self = Self::known(libc::EAGAIN);
    pub(crate) const ENOMEM: Self = Self::known(libc::ENOMEM);
    pub(crate) const EEXIST: Self = Self::known(libc::EEXIST);
    pub(crate) const EINTR: Self = Self::known(libc::EINTR);
    pub(crate) const EIO: Self = Self::known(libc::EIO);
    pub(crate) const EFAULT: Self = Self::known(libc::EFAULT);
    pub(crate) const ENODEV: Self = Self::known(libc::ENODEV);
    pub(crate) const ETIMEDOUT: Self = Self::known(libc::ETIMEDOUT);
    pub(crate) const EINVAL: Self = Self::known(libc::EINVAL);
    /// A software device does not support it.
    pub(crate) const ENOTSUP: Self = Self::known(libc::EOPNOTSUPP);
    /// `URMA_FAIL`: a failure that no other number names.
    pub(crate) const FAIL: Self = Self::known(0x1000);
    /// The callee answered with NULL, or with nothing, and has set `errno` itself where it failed.
    pub(crate) const AS_SET: Self = Self::known(-1);

    const fn known(number: c_int) -> Self {
        Self(NonZero::new(number).expect("0 is success"))
    }

    /// The code with this number, as another function of the C interface gave it.
    #[inline]
    pub(crate) const fn from_c(number: c_int) -> Answer {
        match NonZero::new(number) {
            None => Ok(()),
            Some(number) => Err(Self(number)),
        }
    }

    /// The number that a C function answers with.
    #[inline]
    pub(crate) const fn status(self) -> c_int {
        self.0.get()
    }

    /// Sets `errno`; `URMA_FAIL` is no errno value and becomes EIO.
    pub(crate) fn set_errno(self) {
        let number = match self {
            Self::AS_SET => return,
            Self::FAIL => libc::EIO,
            Self(number) => number.get(),
        };
        set_errno(number);
    }
}

impl From<Status> for Code {
    fn from(status: Status) -> Self {
        Self::from_c(status.errno()).err().unwrap_or(Self::FAIL)
    }
}

impl<T> From<urma_core::Refused<T>> for Code {
    fn from(refused: urma_core::Refused<T>) -> Self {
        refused.status.into()
    }
}

/// Result of a call: a value, or the code that C gets.
pub(crate) type Answer<T = ()> = Result<T, Code>;

/// The fork generation in which the library was initialised.
static BORN: AtomicU64 = AtomicU64::new(0);

/// This process is the one that its objects belong to.
///
/// # Errors
/// ENOMEM: a forked child would not be noticed.
pub(crate) fn note_generation() -> Answer {
    BORN.store(fork::generation(), Ordering::Relaxed);
    fork::call_in_child(forget_usual).map_err(|_| Code::ENOMEM)
}

/// Whether this process is a forked child that has not called `urma_init` itself: everything it
/// knows is its parent's.
#[inline]
pub(crate) fn is_forked() -> bool {
    fork::forked_since(BORN.load(Ordering::Relaxed))
}

/// Runs a call; a panic in it is a failure of the call, not of the process.
#[inline]
fn guarded<T>(f: impl FnOnce() -> Answer<T>) -> Answer<T> {
    if is_forked() {
        return Err(Code::ENODEV);
    }
    unguarded_by_fork(f)
}

/// `errno` stays what it was unless the call fails: system calls below set it when they find nothing.
#[inline]
fn unguarded_by_fork<T>(f: impl FnOnce() -> Answer<T>) -> Answer<T> {
    // Found once: the call goes through the C library.
    let place = errno_place();
    // SAFETY: this thread's errno, which no other thread writes.
    let before = unsafe { *place };
    // What a panic left half done is behind a lock of a slot or of a context, and those recover.
    match catch_unwind(AssertUnwindSafe(f)) {
        Ok(Ok(done)) => {
            // SAFETY: still this thread's errno, which no other thread writes.
            unsafe { *place = before };
            Ok(done)
        }
        Ok(refused) => refused,
        Err(_) => Err(Code::FAIL),
    }
}

/// Runs the part of a call that changes no `errno`; a panic in it counts as `on_panic`.
#[inline(always)]
pub(crate) fn caught<T>(on_panic: T, f: impl FnOnce() -> T) -> T {
    // What a panic left half done is behind a lock of a slot, which recovers.
    catch_unwind(AssertUnwindSafe(f)).unwrap_or_else(|payload| {
        // Its drop could panic, so that the caller would have to be ready for that.
        core::mem::forget(payload);
        on_panic
    })
}

/// Address of this thread's `errno`, valid until the thread ends.
#[inline]
fn errno_place() -> *mut c_int {
    // SAFETY: takes nothing, and gives the address of this thread's errno.
    unsafe { libc::__errno_location() }
}

fn set_errno(number: c_int) {
    // SAFETY: this thread's errno, which no other thread writes.
    unsafe { *errno_place() = number };
}

/// The place of this name: panics once when a test asks for it.
#[inline]
pub(crate) fn at(_place: &str) {
    #[cfg(feature = "planted-faults")]
    planted(_place);
}

#[cfg(feature = "planted-faults")]
fn planted(place: &str) {
    let name = "URMA_PLANTED_PANIC";
    if std::env::var(name).is_ok_and(|wanted| wanted == place) {
        // SAFETY: the programs that plant a panic have one thread that reads the environment.
        unsafe { std::env::remove_var(name) };
        panic!("planted at {place}");
    }
}

/// Runs a call that needs no library, or by which a forked child starts afresh; the forms below take its
/// result.
#[inline]
pub(crate) fn in_child<T>(f: impl FnOnce() -> Answer<T>) -> Answer<T> {
    unguarded_by_fork(f)
}

/// A call that answers with a `urma_status_t`.
#[inline]
pub(crate) fn status(f: impl FnOnce() -> Answer) -> c_int {
    as_status(guarded(f))
}

/// A call that answers with a pointer, or NULL and `errno`.
pub(crate) fn pointer<T>(f: impl FnOnce() -> Answer<*mut T>) -> *mut T {
    guarded(f).unwrap_or_else(|code| {
        code.set_errno();
        core::ptr::null_mut()
    })
}

/// A call that answers with a count, or -1 and `errno`.
#[inline]
pub(crate) fn count(f: impl FnOnce() -> Answer<c_int>) -> c_int {
    as_count(guarded(f))
}

/// A call that answers with a count, or the negative status.
pub(crate) fn negative(f: impl FnOnce() -> Answer<c_int>) -> c_int {
    as_negative(guarded(f))
}

/// A call without an answer; a refusal is in `errno` and in the log.
pub(crate) fn nothing(f: impl FnOnce() -> Answer) {
    as_nothing(guarded(f));
}

/// The `urma_status_t` of a result.
#[inline(always)]
pub(crate) fn as_status(answer: Answer) -> c_int {
    match answer {
        Ok(()) => SUCCESS,
        Err(code) => code.status(),
    }
}

/// The status of a function of the data plane that only finds its object and calls on: nothing in it can
/// panic, and what it calls looks for forks itself.
#[inline(always)]
pub(crate) fn status_of_call(answer: Answer<c_int>) -> c_int {
    answer.unwrap_or_else(Code::status)
}

/// A count, or -1 and `errno`; a negative count is that of a call that has set `errno` itself.
#[inline(always)]
pub(crate) fn as_count(answer: Answer<c_int>) -> c_int {
    answer.unwrap_or_else(failed)
}

/// Sets `errno`, for a count of a call that failed.
#[cold]
fn failed(code: Code) -> c_int {
    code.set_errno();
    -1
}

/// A count, or the negative status.
pub(crate) fn as_negative(answer: Answer<c_int>) -> c_int {
    answer.unwrap_or_else(|code| -code.status())
}

/// Sets `errno` where a call without an answer failed.
pub(crate) fn as_nothing(answer: Answer) {
    if let Err(code) = answer {
        code.set_errno();
    }
}

// ---- arguments --------------------------------------------------------------------------------

/// An object that a C program named and that may be read: a live or idle one of this library, or one
/// that a provider keeps in its own memory.
pub(crate) struct Object<T>(NonNull<T>);

copies!(Object<T>);

impl<T> Object<T> {
    /// An idle queue, whose public part programs may change.
    pub(crate) fn idle<K: Kind<Public = T>>(idle: &Idle<K>) -> Option<Self> {
        NonNull::new(idle.public()).map(Self)
    }

    /// An object that an operation of a provider made just now; `None` for NULL.
    pub(crate) fn made(ptr: *mut T) -> Option<Self> {
        NonNull::new(ptr).map(Self)
    }

    /// The object at `ptr`, which a live object names; `None` for NULL.
    ///
    /// # Safety
    /// While the answer is used, an object is there.
    #[inline(always)]
    pub(crate) unsafe fn at(ptr: *mut T) -> Option<Self> {
        NonNull::new(ptr).map(Self)
    }

    /// The address that C functions take.
    #[inline(always)]
    pub(crate) const fn as_ptr(self) -> *mut T {
        self.0.as_ptr()
    }

    /// Its address, for lists of devices.
    pub(crate) const fn non_null(self) -> NonNull<T> {
        self.0
    }
}

impl<T> Deref for Object<T> {
    type Target = T;

    #[inline(always)]
    fn deref(&self) -> &T {
        // SAFETY: `object` and `idle` found a slot, which stays mapped, or an address outside of this
        // library's memory, where the C caller or its provider keeps an object for as long as the call
        // takes and does not write to it meanwhile (room card of `face`).
        unsafe { self.0.as_ref() }
    }
}

// SAFETY: an object of a provider is believed to be one; every other lies in a slot.
unsafe impl<T> InSlot for Object<T> {
    type Public = T;

    fn public(&self) -> *mut T {
        self.as_ptr()
    }
}

/// The object at `ptr`, of this library or another provider's. Its memory may be read.
///
/// # Errors
/// EINVAL: NULL, misaligned, deleted, or of another kind.
#[inline]
pub(crate) fn object<K: Kind>(ptr: *const K::Public) -> Answer<Object<K::Public>> {
    match find::<K>(ptr) {
        PointerKind::Live | PointerKind::Foreign => {
            Object::made(ptr.cast_mut()).ok_or(Code::EINVAL)
        }
        PointerKind::Invalid => Err(Code::EINVAL),
    }
}

/// The object of this library at `ptr`.
///
/// # Errors
/// EINVAL: anything else.
#[inline(always)]
pub(crate) fn ours<K: Kind>(ptr: *const K::Public) -> Answer<Slot<K>> {
    find_live::<K>(ptr).ok_or(Code::EINVAL)
}

/// What `look` finds of the object at `public`. While another thread deletes it nothing is found, and a
/// deletion that is refused leaves it as it was: so an acknowledgement, which has no answer by which the
/// program would learn that it was lost, waits until the deletion ended.
///
/// # Errors
/// EINVAL: there is no object, or it was being deleted for as long as [`BoundedPause`] waits.
pub(crate) fn when_decided<K: Kind, T>(
    public: *const K::Public,
    look: impl Fn(*const K::Public) -> Answer<T>,
) -> Answer<T> {
    let mut pause = BoundedPause::new();
    loop {
        let found = look(public);
        if found.is_ok() || !is_there::<K>(public) || !pause.wait() {
            return found;
        }
    }
}

/// A function of a C table, with its arguments as a tuple: one place where such functions are called.
pub(crate) trait TableOp<Args> {
    /// What the C function answers with.
    type Said;

    /// # Safety
    /// The function is of a table of a provider that is loaded, and the arguments are what the header says.
    unsafe fn with(self, args: Args) -> Self::Said;
}

macro_rules! op {
    ($($name:ident: $ty:ident),*) => {
        impl<R, $($ty),*> TableOp<($($ty,)*)> for unsafe extern "C" fn($($ty),*) -> R {
            type Said = R;

            #[inline(always)]
            unsafe fn with(self, ($($name,)*): ($($ty,)*)) -> R {
                // SAFETY: the contract of this function is that of the C function.
                unsafe { self($($name),*) }
            }
        }
    };
}

op!(a: A);
op!(a: A, b: B);
op!(a: A, b: B, c: C);
op!(a: A, b: B, c: C, d: D);
op!(a: A, b: B, c: C, d: D, e: E);

/// An object that a provider keeps in its own memory, or a table of one.
///
/// # Errors
/// EINVAL: NULL or misaligned.
pub(crate) fn aligned<T>(ptr: *mut T) -> Answer<NonNull<T>> {
    NonNull::new(ptr).filter(|object| object.is_aligned()).ok_or(Code::EINVAL)
}

/// An operation of a provider that must be there.
///
/// # Errors
/// EINVAL: the provider left it out.
#[inline]
pub(crate) fn present<F>(op: Option<F>) -> Answer<F> {
    op.ok_or(Code::EINVAL)
}

/// The pointer that an operation of a provider answered with.
///
/// # Errors
/// `errno` as the provider set it.
#[inline]
pub(crate) fn made<T>(ptr: *mut T) -> Answer<Object<T>> {
    Object::made(ptr).ok_or(Code::AS_SET)
}
