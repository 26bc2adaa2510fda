//! Entry and exit of every call from C.
//!
//! *Owns*: the forms of an answer (status, pointer with `errno`, count), the catching of panics, the check for a
//! forked child; the memory of callers (`user`). *Takes*: closures that return a [`Code`]. *Gives*: C values. *Must
//! not*: know what is called.
#![expect(unsafe_code, reason = "pointers of C programs, and errno")]

mod report;
mod user;

use core::{any::type_name, ffi::c_int, fmt, num::NonZero, ops::Deref, ptr::NonNull};
use std::panic::{AssertUnwindSafe, catch_unwind};

use urma_core::{Reason, Status};
use urma_mem::{
    fork,
    sync::{AtomicU64, Ordering},
};

use crate::{
    latch::BoundedPause,
    slab::{Idle, InSlot, Kind, PointerKind, Slot, find, find_live, forget_usual, is_there},
};

pub(crate) use user::{UserArray, UserPtr, args, c_text, some, text, value};

/// The error of a refused call, with its reason.
///
/// A reason becomes a log line only in [`report`], at the end of each call from C. So whatever refuses gives the
/// reason with [`refuse!`], and nothing is refused without words.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Code {
    number: Number,
    words: ReasonWords,
}

/// A number of `urma_status_t` other than success: an errno value, or [`Code::FAIL`]. [`refuse!`] makes a [`Code`] of
/// it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Number(NonZero<c_int>);

/// The reason of a refusal: the number of a [`Reason`], or one of a few special values.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct ReasonWords(u32);

impl ReasonWords {
    /// The refusal came from an operation of a table, which gives numbers alone.
    const NONE: Self = Self(0);
    /// The line is in the log already, or the answer is part of normal operation.
    const SAID: Self = Self(u32::MAX);
    /// A queue has no room.
    const FULL: Self = Self(u32::MAX - 1);

    /// The reason with this number; `None`: a special value.
    fn reason(self) -> Option<Reason> {
        if self == Self::SAID || self == Self::FULL { None } else { Reason::of(self.0) }
    }
}

/// The `urma_status_t` of success.
pub(crate) const SUCCESS: c_int = 0;

/// Makes a [`Code`] with a reason: the name of one of its numbers, and words as for `format!`, which name the object,
/// the field, its value and the rule.
macro_rules! refuse {
    ($number:ident, $($words:tt)+) => {
        $crate::call::Code::$number.why(format_args!($($words)+))
    };
}
pub(crate) use refuse;

impl Code {
    pub(crate) const ENOPERM: Number = Number::known(libc::EPERM);
    pub(crate) const EAGAIN: Number = Number::known(libc::EAGAIN);
    pub(crate) const ENOMEM: Number = Number::known(libc::ENOMEM);
    pub(crate) const EEXIST: Number = Number::known(libc::EEXIST);
    pub(crate) const EINTR: Number = Number::known(libc::EINTR);
    pub(crate) const EIO: Number = Number::known(libc::EIO);
    pub(crate) const EFAULT: Number = Number::known(libc::EFAULT);
    pub(crate) const ENODEV: Number = Number::known(libc::ENODEV);
    pub(crate) const ETIMEDOUT: Number = Number::known(libc::ETIMEDOUT);
    pub(crate) const EINVAL: Number = Number::known(libc::EINVAL);
    /// A software device does not support it.
    pub(crate) const ENOTSUP: Number = Number::known(libc::EOPNOTSUPP);
    /// `URMA_FAIL`: a failure that no other number names.
    pub(crate) const FAIL: Number = Number::known(0x1000);
    /// The callee returned NULL, or nothing, and has set `errno` itself if it failed.
    const ERRNO: Number = Number::known(-1);

    /// Converts the status of another C function.
    #[inline]
    pub(crate) fn from_c(number: c_int) -> Answer {
        match NonZero::new(number) {
            None => Ok(()),
            Some(number) => Err(Self { number: Number(number), words: report::left(number.get()) }),
        }
    }

    /// The error of another C function that failed and set `errno`.
    #[cold]
    pub(crate) fn as_set() -> Self {
        let errno = std::io::Error::last_os_error().raw_os_error().unwrap_or(0);
        Self { number: Self::ERRNO, words: report::left(errno) }
    }

    /// The error of a C function without a result: if it failed, it has set `errno` and logged why.
    pub(crate) const fn errno_of_callee() -> Self {
        Self { number: Self::ERRNO, words: ReasonWords::SAID }
    }

    /// The error for a post to a full queue. It is logged once per function: programs that keep their queues full get
    /// it all the time.
    pub(crate) const fn full() -> Self {
        // As in UDMA's driver of each release.
        let number = if cfg!(feature = "abi-25-12-0-b081") { Self::EINVAL } else { Self::ENOMEM };
        Self { number, words: ReasonWords::FULL }
    }

    /// The same error for a post of receives: if the queue is full, its number does not depend on the release.
    pub(crate) fn of_receives(self) -> Self {
        if self.words == ReasonWords::FULL { Self { number: Self::ENOMEM, ..self } } else { self }
    }

    /// Whether a post was refused as invalid, and not because the queue is full.
    pub(crate) fn is_wrong(self) -> bool {
        self.is(Self::EINVAL) && self.words != ReasonWords::FULL
    }

    /// The same error, with other words for its reason.
    #[cold]
    pub(crate) fn with(self, words: impl FnOnce(&str) -> String) -> Self {
        let Some(reason) = self.words.reason() else { return self };
        let words = reason.read(|was| words(was.unwrap_or_default()));
        self.number.why(format_args!("{words}"))
    }

    /// Whether the error has this number.
    pub(crate) fn is(self, number: Number) -> bool {
        self.number == number
    }

    /// The number that a C function returns.
    #[inline]
    pub(crate) const fn status(self) -> c_int {
        self.number.get()
    }

    /// Sets `errno`; `URMA_FAIL` is no errno value and becomes EIO.
    pub(crate) fn set_errno(self) {
        match self.number {
            Self::ERRNO => {}
            Self::FAIL => set_errno(libc::EIO),
            number => set_errno(number.get()),
        }
    }
}

impl Number {
    const fn known(number: c_int) -> Self {
        Self(NonZero::new(number).expect("0 is success"))
    }

    pub(crate) const fn get(self) -> c_int {
        self.0.get()
    }

    /// The error with its reason; see [`refuse!`].
    #[cold]
    #[inline(never)]
    pub(crate) fn why(self, words: fmt::Arguments<'_>) -> Code {
        Code { number: self, words: ReasonWords(Reason::keep(words).number()) }
    }

    /// The error of a call that went as programs expect: it is not logged.
    pub(crate) const fn expected(self) -> Code {
        Code { number: self, words: ReasonWords::SAID }
    }
}

impl From<Status> for Code {
    #[cold]
    fn from(status: Status) -> Self {
        let number = NonZero::new(status.errno()).map_or(Self::FAIL, Number);
        match status.reason() {
            Some(reason) => Self { number, words: ReasonWords(reason.number()) },
            None => number.why(format_args!("{status}")),
        }
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

/// Records that this process is the one that its objects belong to.
///
/// # Errors
/// ENOMEM: a forked child would not be noticed.
pub(crate) fn note_generation() -> Answer {
    BORN.store(fork::generation(), Ordering::Relaxed);
    fork::call_in_child(forget_usual)
        .map_err(|error| refuse!(ENOMEM, "a fork of this process would not be noticed: {error}"))
}

/// Whether this process is a forked child that has not called `urma_init` itself: everything it
/// knows is its parent's.
#[inline]
pub(crate) fn is_forked() -> bool {
    fork::forked_since(BORN.load(Ordering::Relaxed))
}

/// Runs a call and logs why it is refused; a panic in it fails the call, not the process.
#[inline]
fn guarded<T, F: FnOnce() -> Answer<T>>(f: F) -> Answer<T> {
    attempt(f).inspect_err(|code| report::refused(type_name::<F>(), *code))
}

/// `errno` is unchanged unless the call fails: system calls inside set it when they find nothing.
#[inline]
fn unguarded_by_fork<T>(f: impl FnOnce() -> Answer<T>) -> Answer<T> {
    // Looked up once: each lookup is a call of the C library.
    let place = errno_place();
    // SAFETY: this thread's errno, which no other thread writes.
    let before = unsafe { *place };
    // What a panic left half done is behind the lock of a slot or context, which recovers.
    match catch_unwind(AssertUnwindSafe(f)) {
        Ok(Ok(done)) => {
            // SAFETY: still this thread's errno, which no other thread writes.
            unsafe { *place = before };
            Ok(done)
        }
        Ok(refused) => refused,
        Err(_) => Err(refuse!(
            FAIL,
            "the library panicked, and says where on standard error: please report it"
        )),
    }
}

/// Runs the part of a call that does not change `errno`; returns `on_panic` if it panics.
#[inline(always)]
pub(crate) fn caught<T>(on_panic: T, f: impl FnOnce() -> T) -> T {
    // What a panic left half done is behind the lock of a slot, which recovers.
    catch_unwind(AssertUnwindSafe(f)).unwrap_or_else(|payload| {
        // Its drop could panic, and the caller would have to be prepared for that.
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

fn errno() -> c_int {
    // SAFETY: this thread's errno, which no other thread writes.
    unsafe { *errno_place() }
}

fn set_errno(number: c_int) {
    // SAFETY: this thread's errno, which no other thread writes.
    unsafe { *errno_place() = number };
}

/// A place with this name: panics once when a test asks for it.
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

/// Runs a call that logs by itself why it is refused; the forms below do it for their calls.
#[inline]
pub(crate) fn attempt<T>(f: impl FnOnce() -> Answer<T>) -> Answer<T> {
    if is_forked() { Err(Code::ENODEV.expected()) } else { unguarded_by_fork(f) }
}

/// Runs a part of a call; the call itself logs a refusal.
#[inline]
pub(crate) fn part<T>(f: impl FnOnce() -> Answer<T>) -> Answer<T> {
    unguarded_by_fork(f)
}

/// Runs a call that needs no initialised library, or with which a forked child starts afresh, and logs why it is
/// refused; the forms below convert its result.
#[inline]
pub(crate) fn in_child<T, F: FnOnce() -> Answer<T>>(f: F) -> Answer<T> {
    unguarded_by_fork(f).inspect_err(|code| report::refused(type_name::<F>(), *code))
}

/// Runs a call that returns a `urma_status_t`.
#[inline]
pub(crate) fn status(f: impl FnOnce() -> Answer) -> c_int {
    as_status(guarded(f))
}

/// Runs a call that returns a pointer, or NULL and `errno`.
pub(crate) fn pointer<T>(f: impl FnOnce() -> Answer<*mut T>) -> *mut T {
    guarded(f).unwrap_or_else(|code| {
        code.set_errno();
        core::ptr::null_mut()
    })
}

/// Runs a call that returns a count, or -1 and `errno`.
#[inline]
pub(crate) fn count(f: impl FnOnce() -> Answer<c_int>) -> c_int {
    as_count(guarded(f))
}

/// Runs a call that returns a count, or the negative status.
pub(crate) fn negative(f: impl FnOnce() -> Answer<c_int>) -> c_int {
    as_negative(guarded(f))
}

/// Runs a call without a result; a refusal shows in `errno` and in the log.
pub(crate) fn nothing(f: impl FnOnce() -> Answer) {
    as_nothing(guarded(f));
}

/// Prepares for the call of a table's operation: earlier refusals in this thread are not its own.
#[inline]
pub(crate) fn begin_op() {
    report::forget();
}

/// Logs why the function of this name is refused, if its result is not made by the forms above.
#[cold]
pub(crate) fn say(function: &str, code: Code) -> Code {
    report::refused(function, code);
    code
}

/// The `urma_status_t` of a result.
#[inline(always)]
pub(crate) fn as_status(answer: Answer) -> c_int {
    match answer {
        Ok(()) => SUCCESS,
        Err(code) => code.status(),
    }
}

/// The status of a data-plane function that only looks up its object and calls on: nothing in it can panic, and what
/// it calls checks for forks itself.
#[inline(always)]
pub(crate) fn status_of_call(answer: Answer<c_int>) -> c_int {
    answer.unwrap_or_else(Code::status)
}

/// A count, or -1 and `errno`; a negative count is that of a call that has set `errno` itself.
#[inline(always)]
pub(crate) fn as_count(answer: Answer<c_int>) -> c_int {
    answer.unwrap_or_else(failed)
}

/// Sets `errno` for a failed call, and returns -1.
#[cold]
fn failed(code: Code) -> c_int {
    code.set_errno();
    -1
}

/// A count, or the negative status.
pub(crate) fn as_negative(answer: Answer<c_int>) -> c_int {
    answer.unwrap_or_else(|code| -code.status())
}

/// Sets `errno` if a call without a result failed.
pub(crate) fn as_nothing(answer: Answer) {
    if let Err(code) = answer {
        code.set_errno();
    }
}

// ---- arguments --------------------------------------------------------------------------------

/// An object that a C program named, readable: a live or idle one of this library, or one that a provider keeps in
/// its own memory.
pub(crate) struct Object<T>(NonNull<T>);

copies!(Object<T>);

impl<T> Object<T> {
    /// An idle queue, whose public part programs may change.
    pub(crate) fn idle<K: Kind<Public = T>>(idle: &Idle<K>) -> Option<Self> {
        NonNull::new(idle.public()).map(Self)
    }

    /// An object that a provider's operation just made; `None` for NULL.
    pub(crate) fn made(ptr: *mut T) -> Option<Self> {
        NonNull::new(ptr).map(Self)
    }

    /// The object at `ptr`, which a live object names; `None` for NULL.
    ///
    /// # Safety
    /// As long as the result is used, the object exists.
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

/// Looks up the object at `ptr`, of this library or of another provider. Its memory may be read.
///
/// # Errors
/// EINVAL: NULL, misaligned, deleted, or of another kind.
#[inline]
pub(crate) fn object<K: Kind>(ptr: *const K::Public) -> Answer<Object<K::Public>> {
    match find::<K>(ptr) {
        PointerKind::Live | PointerKind::Foreign => {
            Object::made(ptr.cast_mut()).ok_or_else(|| no_object::<K>(ptr))
        }
        PointerKind::Invalid => Err(no_object::<K>(ptr)),
    }
}

/// The name of a kind of objects, in lower case.
pub(crate) fn word<K>() -> String {
    let name = type_name::<K>();
    name.rsplit("::").next().unwrap_or(name).to_lowercase()
}

/// The error for a pointer that is not an object of its kind.
#[cold]
#[inline(never)]
fn no_object<K: Kind>(ptr: *const K::Public) -> Code {
    let kind = word::<K>();
    if ptr.is_null() {
        refuse!(EINVAL, "the {kind} is NULL")
    } else {
        refuse!(
            EINVAL,
            "{ptr:p} is no live {kind}: it was deleted, is being deleted, or is something else"
        )
    }
}

/// The error for an object that was found but could not be locked.
#[cold]
#[inline(never)]
pub(crate) fn gone<K: Kind>() -> Code {
    refuse!(EINVAL, "the {} is being deleted by another thread", word::<K>())
}

/// Looks up the object at `ptr`, of this library only.
///
/// # Errors
/// EINVAL: anything else.
#[inline(always)]
pub(crate) fn ours<K: Kind>(ptr: *const K::Public) -> Answer<Slot<K>> {
    find_live::<K>(ptr).ok_or_else(|| no_object::<K>(ptr))
}

/// Calls `look` for the object at `public`, and waits while another thread deletes that: a deletion that is refused
/// leaves the object as it was. An acknowledgement needs this, since it has no result by which the program would
/// learn that it was lost.
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

/// A function of a C table, called with its arguments as a tuple: the one place where such functions are called.
pub(crate) trait TableOp<Args> {
    /// Return type of the C function.
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

/// A pointer to an object, or a table, that a provider keeps in its own memory.
///
/// # Errors
/// EINVAL: NULL or misaligned.
pub(crate) fn aligned<T>(ptr: *mut T) -> Answer<NonNull<T>> {
    NonNull::new(ptr).filter(|object| object.is_aligned()).ok_or_else(|| {
        refuse!(EINVAL, "{ptr:p} is NULL or misaligned; a {} must be there", word::<T>())
    })
}

/// An operation that the provider must have.
///
/// # Errors
/// EINVAL: the provider does not have it.
#[inline]
pub(crate) fn present<F>(op: Option<F>) -> Answer<F> {
    op.ok_or_else(|| {
        refuse!(EINVAL, "the device's provider, or the program, left this operation out")
    })
}

/// The object that a provider's operation returned.
///
/// # Errors
/// The `errno` that the provider set.
#[inline]
pub(crate) fn made<T>(ptr: *mut T) -> Answer<Object<T>> {
    Object::made(ptr).ok_or_else(Code::as_set)
}
