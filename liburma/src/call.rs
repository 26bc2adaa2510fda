//! The door: every call from C comes in, and its answer goes out, here.
//!
//! *Owns*: the forms of an answer (status, pointer with `errno`, count), the stop for panics, the
//! check for a forked child. *Takes*: closures that answer with a [`Code`]. *Gives*: C values.
//! *Must not*: know what is called.
#![expect(unsafe_code, reason = "pointers of C programs, and errno")]

use core::{
    ffi::{CStr, c_char, c_int},
    num::NonZero,
    ops::Deref,
    ptr::NonNull,
};
use std::panic::{AssertUnwindSafe, catch_unwind};

use urma_core::Status;
use urma_mem::{
    fork,
    sync::{AtomicU64, Ordering},
};

use crate::slab::{Found, Idle, InSlot, Kind, Slot, find, find_live};

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
    /// What a software device cannot mean.
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

/// What a call comes to.
pub(crate) type Answer<T = ()> = Result<T, Code>;

/// The fork generation in which the library was initialised.
static BORN: AtomicU64 = AtomicU64::new(0);

/// This process is the one that its objects belong to.
pub(crate) fn note_generation() {
    BORN.store(fork::generation(), Ordering::Relaxed);
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
    let before = errno();
    // What a panic left half done is behind a lock of a slot or of a context, and those recover.
    match catch_unwind(AssertUnwindSafe(f)) {
        Ok(Ok(done)) => {
            set_errno(before);
            Ok(done)
        }
        Ok(refused) => refused,
        Err(_) => Err(Code::FAIL),
    }
}

/// `errno` of this thread.
#[inline]
fn errno() -> c_int {
    // SAFETY: the address of this thread's errno, always valid.
    let errno = unsafe { libc::__errno_location() };
    // SAFETY: as above; nobody else writes this thread's errno.
    unsafe { *errno }
}

#[inline]
fn set_errno(number: c_int) {
    // SAFETY: the address of this thread's errno, always valid.
    let errno = unsafe { libc::__errno_location() };
    // SAFETY: as above; nobody else writes this thread's errno.
    unsafe { *errno = number };
}

/// Runs `f`; a panic in it is a failure, so that what is to be undone after a failure is.
pub(crate) fn caught(f: impl FnOnce() -> Answer) -> Answer {
    unguarded_by_fork(f)
}

/// The place of this name: a panic when a test wants one here, once.
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

/// A call that answers with a `urma_status_t`.
#[inline]
pub(crate) fn status(f: impl FnOnce() -> Answer) -> c_int {
    match guarded(f) {
        Ok(()) => SUCCESS,
        Err(code) => code.status(),
    }
}

/// The answer of a function of the data plane that only finds its object and calls on, with that call's
/// status: nothing in it can panic, and what it calls looks for forks itself.
#[inline(always)]
pub(crate) fn status_of_call(answer: Answer<c_int>) -> c_int {
    match answer {
        Ok(status) => status,
        Err(code) => code.status(),
    }
}

/// As [`status_of_call`]; a negative count is that of a call that has set `errno` itself.
#[inline(always)]
pub(crate) fn count_of_call(answer: Answer<c_int>) -> c_int {
    match answer {
        Ok(count) => count,
        Err(code) => failed(code),
    }
}

/// A count of a call that failed.
#[cold]
fn failed(code: Code) -> c_int {
    code.set_errno();
    -1
}

/// As [`status`], for the calls by which a forked child starts afresh.
pub(crate) fn status_in_child(f: impl FnOnce() -> Answer) -> c_int {
    match unguarded_by_fork(f) {
        Ok(()) => SUCCESS,
        Err(code) => code.status(),
    }
}

/// A call that answers with a pointer, or NULL and `errno`.
pub(crate) fn pointer<T>(f: impl FnOnce() -> Answer<*mut T>) -> *mut T {
    match guarded(f) {
        Ok(pointer) => pointer,
        Err(code) => {
            code.set_errno();
            core::ptr::null_mut()
        }
    }
}

/// A call that answers with a count, or -1 and `errno`.
#[inline]
pub(crate) fn count(f: impl FnOnce() -> Answer<c_int>) -> c_int {
    match guarded(f) {
        Ok(count) => count,
        Err(code) => {
            code.set_errno();
            -1
        }
    }
}

/// As [`count`], for calls that need no library.
pub(crate) fn count_in_child(f: impl FnOnce() -> Answer<c_int>) -> c_int {
    match unguarded_by_fork(f) {
        Ok(count) => count,
        Err(code) => {
            code.set_errno();
            -1
        }
    }
}

/// A call that answers with a count, or the negative status.
pub(crate) fn negative(f: impl FnOnce() -> Answer<c_int>) -> c_int {
    match guarded(f) {
        Ok(count) => count,
        Err(code) => -code.status(),
    }
}

/// As [`negative`], for calls that need no library.
pub(crate) fn negative_in_child(f: impl FnOnce() -> Answer<c_int>) -> c_int {
    match unguarded_by_fork(f) {
        Ok(count) => count,
        Err(code) => -code.status(),
    }
}

/// A call without an answer; a refusal is in `errno` and in the log.
pub(crate) fn nothing(f: impl FnOnce() -> Answer) {
    if let Err(code) = guarded(f) {
        code.set_errno();
    }
}

/// As [`nothing`], for calls that need no library.
pub(crate) fn nothing_in_child(f: impl FnOnce() -> Answer) {
    if let Err(code) = unguarded_by_fork(f) {
        code.set_errno();
    }
}

// ---- arguments --------------------------------------------------------------------------------

/// An object that a C program named and that may be read: a live or idle one of this library, or one
/// that a provider keeps in its own memory.
pub(crate) struct Object<T>(NonNull<T>);

impl<T> Clone for Object<T> {
    #[inline(always)]
    fn clone(&self) -> Self {
        *self
    }
}

impl<T> Copy for Object<T> {}

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

    /// Its address, for those who keep devices.
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
        Found::Live | Found::Foreign => Object::made(ptr.cast_mut()).ok_or(Code::EINVAL),
        Found::Invalid => Err(Code::EINVAL),
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

/// Memory of a C caller for a `T`, at any address but NULL: programs keep structs in packed messages, and C
/// compilers of the machines that this runs on read and write them there.
///
/// Who makes one promises, once, what the header says of the argument: a `T` lies there, or there is room for
/// one, until the call returns, and no other thread changes it meanwhile. So reading and writing it is safe.
#[derive(Debug)]
pub(crate) struct UserPtr<T>(NonNull<T>);

impl<T> Clone for UserPtr<T> {
    #[inline(always)]
    fn clone(&self) -> Self {
        *self
    }
}

impl<T> Copy for UserPtr<T> {}

impl<T> UserPtr<T> {
    /// The argument `ptr` of a C function.
    ///
    /// # Errors
    /// EINVAL: NULL.
    ///
    /// # Safety
    /// `ptr`, unless NULL, is what the header says of it until the call returns (room card of `face`).
    #[inline(always)]
    pub(crate) unsafe fn new(ptr: *const T) -> Answer<Self> {
        NonNull::new(ptr.cast_mut()).map(Self).ok_or(Code::EINVAL)
    }

    /// The pointer as the caller gave it.
    #[inline(always)]
    pub(crate) const fn as_ptr(self) -> *mut T {
        self.0.as_ptr()
    }

    /// A copy of what the caller has there.
    #[inline(always)]
    pub(crate) fn read(self) -> T
    where
        T: Copy,
    {
        // SAFETY: a `T` lies here, which the maker of this value promised; any bytes are a `T` of C.
        unsafe { self.as_ptr().read_unaligned() }
    }

    /// Writes what shall lie there.
    #[inline(always)]
    pub(crate) fn write(self, value: T) {
        // SAFETY: there is room for a `T`, which the maker of this value promised.
        unsafe { self.as_ptr().write_unaligned(value) };
    }
}

/// An array of a C caller, as [`UserPtr`]; an index beyond its count is refused.
#[derive(Debug)]
pub(crate) struct UserArray<T> {
    first: UserPtr<T>,
    count: usize,
}

impl<T> Clone for UserArray<T> {
    #[inline(always)]
    fn clone(&self) -> Self {
        *self
    }
}

impl<T> Copy for UserArray<T> {}

impl<T> UserArray<T> {
    /// The argument `ptr` of a C function, of `count` elements.
    ///
    /// # Errors
    /// EINVAL: NULL.
    ///
    /// # Safety
    /// As [`UserPtr::new`], for `count` elements.
    #[inline(always)]
    pub(crate) unsafe fn new(ptr: *const T, count: usize) -> Answer<Self> {
        // SAFETY: the contract of this function is that of the constructor.
        Ok(Self { first: unsafe { UserPtr::new(ptr) }?, count })
    }

    /// The array at a pointer that was checked.
    ///
    /// # Safety
    /// `count` elements lie there, as [`UserPtr::new`] says of one.
    #[inline(always)]
    pub(crate) unsafe fn at(first: UserPtr<T>, count: usize) -> Self {
        Self { first, count }
    }

    /// Number of elements that the array has, or has room for.
    #[inline(always)]
    pub(crate) const fn count(self) -> usize {
        self.count
    }

    /// Element `index`.
    ///
    /// # Errors
    /// EINVAL: there are fewer.
    #[inline(always)]
    pub(crate) fn get(self, index: usize) -> Answer<UserPtr<T>> {
        if index >= self.count {
            return Err(Code::EINVAL);
        }
        // SAFETY: inside of the array, as long as the maker of this value promised.
        Ok(UserPtr(unsafe { self.first.0.add(index) }))
    }

    /// The elements from `index` on; none where there are fewer.
    #[inline(always)]
    pub(crate) fn rest(self, index: usize) -> Self {
        let index = index.min(self.count);
        // SAFETY: inside of the array, or at its end, as long as the maker of this value promised.
        let first = UserPtr(unsafe { self.first.0.add(index) });
        Self { first, count: self.count - index }
    }

    /// Copies of the elements, each read when its turn comes.
    pub(crate) fn iter(self) -> impl ExactSizeIterator<Item = T>
    where
        T: Copy,
    {
        let element = move |index| {
            let element = self.first.as_ptr().wrapping_add(index);
            // SAFETY: the index is below the count that the maker of this value promised.
            unsafe { element.read_unaligned() }
        };
        (0..self.count).map(element)
    }

    /// Writes `values` one after the other, as many as there is room for; how many.
    #[inline(always)]
    pub(crate) fn fill(self, values: impl IntoIterator<Item = T>) -> usize {
        let mut done = 0;
        for value in values.into_iter().take(self.count) {
            let element = self.first.as_ptr().wrapping_add(done);
            // SAFETY: `done` is below the count that the maker of this value promised.
            unsafe { element.write_unaligned(value) };
            done += 1;
        }
        done
    }

    /// The bytes of `from`, at the start of the array.
    ///
    /// # Errors
    /// EINVAL: there is less room.
    pub(crate) fn copy_from(self, from: &[T]) -> Answer
    where
        T: Copy,
    {
        if from.len() > self.count {
            return Err(Code::EINVAL);
        }
        self.fill(from.iter().copied());
        Ok(())
    }
}

/// The argument `ptr`, as a copy of what it points to.
///
/// # Errors
/// EINVAL: NULL.
///
/// # Safety
/// As [`UserPtr::new`].
#[inline]
pub(crate) unsafe fn value<T: Copy>(ptr: *const T) -> Answer<T> {
    // SAFETY: the contract of this function is that of the constructor.
    Ok(unsafe { UserPtr::new(ptr) }?.read())
}

/// The C string at `ptr`.
///
/// # Errors
/// EINVAL: NULL.
///
/// # Safety
/// As [`UserPtr::new`]: a C string, which stays as it is while `'a` lasts.
pub(crate) unsafe fn text<'a>(ptr: *const c_char) -> Answer<&'a CStr> {
    // SAFETY: the contract of this function is that of the constructor.
    let first = unsafe { UserPtr::new(ptr) }?;
    // SAFETY: the caller of this function promised a C string.
    Ok(unsafe { CStr::from_ptr(first.as_ptr()) })
}

/// The C string in an array; no text where no zero byte ends it.
pub(crate) fn c_text(of: &[c_char]) -> &CStr {
    let len = of.len();
    // SAFETY: the bytes of the array, as bytes of the other type of the same size.
    let bytes = unsafe { core::slice::from_raw_parts(of.as_ptr().cast::<u8>(), len) };
    CStr::from_bytes_until_nul(bytes).unwrap_or_default()
}

/// An argument that must be there, and is passed on as it is.
///
/// # Errors
/// EINVAL: NULL.
#[inline(always)]
pub(crate) fn some<T>(ptr: *const T) -> Answer {
    if ptr.is_null() { Err(Code::EINVAL) } else { Ok(()) }
}

/// Several arguments of a C function at once: pointers in, [`UserPtr`]s out, in the same order.
pub(crate) trait Args {
    /// The same arguments as values that may be read and written.
    type Checked;

    /// # Errors
    /// EINVAL: one is NULL.
    ///
    /// # Safety
    /// As [`UserPtr::new`], for each of them.
    unsafe fn checked(self) -> Answer<Self::Checked>;
}

macro_rules! args {
    ($($name:ident: $ty:ident),*) => {
        impl<$($ty),*> Args for ($(*mut $ty),*) {
            type Checked = ($(UserPtr<$ty>),*);

            #[inline(always)]
            unsafe fn checked(self) -> Answer<Self::Checked> {
                let ($($name),*) = self;
                $(
                    // SAFETY: the contract of this function is that of the constructor, for each argument.
                    let $name = unsafe { UserPtr::new($name) }?;
                )*
                Ok(($($name),*))
            }
        }
    };
}

args!(a: A, b: B);
args!(a: A, b: B, c: C);
args!(a: A, b: B, c: C, d: D);

/// [`Args::checked`].
///
/// # Errors
/// EINVAL: one is NULL.
///
/// # Safety
/// As [`UserPtr::new`], for each of them.
#[inline(always)]
pub(crate) unsafe fn args<A: Args>(args: A) -> Answer<A::Checked> {
    // SAFETY: the contract of this function is that of the trait's.
    unsafe { args.checked() }
}

/// A function of a C table, with its arguments as a tuple: one place where such functions are called.
pub(crate) trait Op<Args> {
    /// What the C function answers with.
    type Said;

    /// # Safety
    /// The function is of a table of a provider that is loaded, and the arguments are what the header says.
    unsafe fn with(self, args: Args) -> Self::Said;
}

macro_rules! op {
    ($($name:ident: $ty:ident),*) => {
        impl<R, $($ty),*> Op<($($ty,)*)> for unsafe extern "C" fn($($ty),*) -> R {
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
