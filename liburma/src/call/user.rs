//! The memory of a C caller.
//!
//! *Owns*: the one promise for an argument, which the unsafe constructors state, and the access to that memory, which
//! is safe then. *Takes*: pointers from C, at any address. *Gives*: copies; writes. *Must not*: keep anything after
//! the call.

use core::{
    ffi::{CStr, c_char},
    ptr::NonNull,
};

use super::{Answer, Code, refuse, word};

/// Memory of a C caller for a `T`, at any address but NULL: programs keep structs in packed messages, and C compilers
/// for these machines read and write them there.
///
/// The constructor relies, once, on the caller's duty in the C header: until the call returns there is a `T` at the
/// address, or room for one, and no other thread changes it. So reading and writing it is safe.
#[derive(Debug)]
pub(crate) struct UserPtr<T>(NonNull<T>);

copies!(UserPtr<T>);

impl<T> UserPtr<T> {
    /// Wraps the argument `ptr` of a C function.
    ///
    /// # Errors
    /// EINVAL: NULL.
    ///
    /// # Safety
    /// `ptr`, unless NULL, is what the header says of it until the call returns (room card of `face`).
    #[inline(always)]
    pub(crate) unsafe fn new(ptr: *const T) -> Answer<Self> {
        NonNull::new(ptr.cast_mut()).map(Self).ok_or_else(null::<T>)
    }

    /// The pointer that the caller passed.
    #[inline(always)]
    pub(crate) const fn as_ptr(self) -> *mut T {
        self.0.as_ptr()
    }

    /// Copies the caller's value.
    #[inline(always)]
    pub(crate) fn read(self) -> T
    where
        T: Copy,
    {
        // SAFETY: a `T` lies here, which the maker of this value promised; any bytes are a `T` of C.
        unsafe { self.as_ptr().read_unaligned() }
    }

    /// Writes a value to the caller's memory.
    #[inline(always)]
    pub(crate) fn write(self, value: T) {
        // SAFETY: there is room for a `T`, which the maker of this value promised.
        unsafe { self.as_ptr().write_unaligned(value) };
    }
}

/// The error for a NULL argument.
#[cold]
#[inline(never)]
fn null<T>() -> Code {
    refuse!(EINVAL, "an argument is NULL: a {} must be there", word::<T>())
}

/// An array of a C caller, the counterpart of [`UserPtr`]; an index beyond its count is refused.
#[derive(Debug)]
pub(crate) struct UserArray<T> {
    first: UserPtr<T>,
    count: usize,
}

copies!(UserArray<T>);

impl<T> UserArray<T> {
    /// Wraps the argument `ptr` of a C function, with `count` elements.
    ///
    /// # Errors
    /// EINVAL: NULL.
    ///
    /// # Safety
    /// The contract of [`UserPtr::new`], for `count` elements.
    #[inline(always)]
    pub(crate) unsafe fn new(ptr: *const T, count: usize) -> Answer<Self> {
        // SAFETY: the contract of this function is that of the constructor.
        Ok(Self { first: unsafe { UserPtr::new(ptr) }?, count })
    }

    /// Makes an array from a pointer that was checked.
    ///
    /// # Safety
    /// The contract of [`UserPtr::new`], for `count` elements.
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
    /// EINVAL: the array is shorter.
    #[inline(always)]
    pub(crate) fn get(self, index: usize) -> Answer<UserPtr<T>> {
        if index >= self.count {
            return Err(refuse!(EINVAL, "element {index} of an array of {}", self.count));
        }
        // SAFETY: inside of the array, as long as the maker of this value promised.
        Ok(UserPtr(unsafe { self.first.0.add(index) }))
    }

    /// The elements from `index` on; empty if there are fewer.
    #[inline(always)]
    pub(crate) fn rest(self, index: usize) -> Self {
        let index = index.min(self.count);
        // SAFETY: inside of the array, or at its end, as long as the maker of this value promised.
        let first = UserPtr(unsafe { self.first.0.add(index) });
        Self { first, count: self.count - index }
    }

    /// Copies of the elements, each read when the iterator reaches it.
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

    /// Writes `values` one after the other, as many as there is room for; returns how many.
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

    /// Writes the result of `make` for each value, as many as there is room for; returns how many.
    #[inline(always)]
    pub(crate) fn fill_from<V>(self, from: &[V], make: impl Fn(&V) -> T) -> usize {
        let count = from.len().min(self.count);
        for (index, value) in from[..count].iter().enumerate() {
            let element = self.first.as_ptr().wrapping_add(index);
            // SAFETY: the index is below the count that the maker of this value promised.
            unsafe { element.write_unaligned(make(value)) };
        }
        count
    }

    /// Copies the elements of `from` to the start of the array.
    ///
    /// # Errors
    /// EINVAL: the array is shorter.
    pub(crate) fn copy_from(self, from: &[T]) -> Answer
    where
        T: Copy,
    {
        if from.len() > self.count {
            let (len, room) = (from.len(), self.count);
            return Err(refuse!(
                EINVAL,
                "the array has room for {room} elements; {len} are to be written"
            ));
        }
        self.fill(from.iter().copied());
        Ok(())
    }
}

/// Copies the value that the argument `ptr` points to.
///
/// # Errors
/// EINVAL: NULL.
///
/// # Safety
/// The contract of [`UserPtr::new`].
#[inline]
pub(crate) unsafe fn value<T: Copy>(ptr: *const T) -> Answer<T> {
    // SAFETY: the contract of this function is that of the constructor.
    Ok(unsafe { UserPtr::new(ptr) }?.read())
}

/// The C string that the argument `ptr` points to.
///
/// # Errors
/// EINVAL: NULL.
///
/// # Safety
/// The contract of [`UserPtr::new`]: a C string, which does not change while `'a` lasts.
pub(crate) unsafe fn text<'a>(ptr: *const c_char) -> Answer<&'a CStr> {
    // SAFETY: the contract of this function is that of the constructor.
    let first = unsafe { UserPtr::new(ptr) }?;
    // SAFETY: the caller of this function promised a C string.
    Ok(unsafe { CStr::from_ptr(first.as_ptr()) })
}

/// The C string in an array; empty if no zero byte ends it.
pub(crate) fn c_text(of: &[c_char]) -> &CStr {
    let len = of.len();
    // SAFETY: the bytes of the array, as bytes of the other type of the same size.
    let bytes = unsafe { core::slice::from_raw_parts(of.as_ptr().cast::<u8>(), len) };
    CStr::from_bytes_until_nul(bytes).unwrap_or_default()
}

/// Checks an argument that must not be NULL, and is passed on as it is.
///
/// # Errors
/// EINVAL: NULL.
#[inline(always)]
pub(crate) fn some<T>(ptr: *const T) -> Answer {
    if ptr.is_null() { Err(null::<T>()) } else { Ok(()) }
}

/// Several arguments of a C function at once: pointers in, [`UserPtr`]s out, in the same order.
pub(crate) trait Args {
    /// The same arguments as values that may be read and written.
    type Checked;

    /// # Errors
    /// EINVAL: one is NULL.
    ///
    /// # Safety
    /// The contract of [`UserPtr::new`], for each of them.
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

/// Checks several arguments at once, by [`Args::checked`].
///
/// # Errors
/// EINVAL: one is NULL.
///
/// # Safety
/// The contract of [`UserPtr::new`], for each of them.
#[inline(always)]
pub(crate) unsafe fn args<A: Args>(args: A) -> Answer<A::Checked> {
    // SAFETY: the contract of this function is that of the trait's.
    unsafe { args.checked() }
}
