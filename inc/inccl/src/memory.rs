//! Memory of C programs: texts and vectors behind pointers.
#![expect(unsafe_code, reason = "pointers of C programs")]

use core::ffi::{CStr, c_char, c_void};

use crate::answer::IncclError;

/// What stands for "the data lies in the destination" as a source: `INCCL_IN_PLACE`.
const IN_PLACE: usize = usize::MAX;

/// A source, as long as a call lasts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct CallerVector {
    address: usize,
    len: usize,
}

impl CallerVector {
    /// Its bytes. Nothing is written to the destination while they are used, which may be the same memory.
    pub(crate) fn bytes(&self) -> &[u8] {
        if self.len == 0 {
            return &[];
        }
        // SAFETY: `vectors` looked at the pointer: it is not null, and `len` bytes from it on do not wrap. By the contract of the
        // calls the program has initialised them and does not change them during the call.
        unsafe { core::slice::from_raw_parts(self.address as *const u8, self.len) }
    }
}

/// A destination, as long as an operation is under way.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Destination {
    address: usize,
    len: usize,
}

impl Destination {
    /// Part of it, in bytes.
    pub(crate) fn part(self, at: usize, len: usize) -> Self {
        debug_assert!(at + len <= self.len, "a part lies inside");
        Self { address: self.address + at, len }
    }

    /// Copies a source, which may be the same memory.
    pub(crate) fn copy(self, source: CallerVector) {
        let len = self.len.min(source.len);
        // SAFETY: by the contract of the calls the program keeps both, and leaves them alone during the call.
        unsafe { core::ptr::copy(source.address as *const u8, self.address as *mut u8, len) };
    }

    /// Writes a result, as long as the destination.
    pub(crate) fn write(self, result: &[u8]) {
        debug_assert_eq!(self.len, result.len(), "an operation's result is as long as its input");
        let len = self.len.min(result.len());
        // SAFETY: by the contract of the calls the program keeps `len` bytes at this address, and leaves them alone, until
        // the operation is over; `result` is memory of this library, so they do not overlap.
        unsafe { core::ptr::copy_nonoverlapping(result.as_ptr(), self.address as *mut u8, len) };
    }
}

/// A text of the caller; `None`: there is none.
pub(crate) fn text(pointer: *const c_char, what: &str) -> Result<Option<String>, IncclError> {
    if pointer.is_null() {
        return Ok(None);
    }
    // SAFETY: by the contract of the calls a text that is not null ends with a zero byte.
    let text = unsafe { CStr::from_ptr(pointer) };
    let text = text.to_str().map_err(|_| IncclError::invalid(format!("{what} is no UTF-8")))?;
    Ok(Some(text.to_owned()))
}

/// A structure of plain numbers, whose first one is its size in bytes as the caller knows it.
pub(crate) fn sized<T: Copy>(pointer: *const T, what: &str) -> Result<T, IncclError> {
    let found = claimed_size(pointer.cast(), align_of::<T>(), what)?;
    if found != size_of::<T>() {
        let expected = size_of::<T>();
        return Err(IncclError::invalid(format!("{what}.size is {found}, not {expected}")));
    }
    // SAFETY: it is not null and aligned, and the caller says that it is as long as a `T`, which consists of numbers
    // that may have any value.
    Ok(unsafe { pointer.read() })
}

/// Stores into a structure of plain numbers whose first one is its size.
pub(crate) fn store_sized<T: Copy>(
    pointer: *mut T,
    value: T,
    what: &str,
) -> Result<(), IncclError> {
    sized(pointer.cast_const(), what)?;
    // SAFETY: `sized` looked at the pointer, and the caller gave it to be written.
    unsafe { pointer.write(value) };
    Ok(())
}

/// Stores a pointer where the caller asked for it.
pub(crate) fn store<T>(pointer: *mut *mut T, value: *mut T, what: &str) -> Result<(), IncclError> {
    if pointer.is_null() || !pointer.is_aligned() {
        return Err(IncclError::invalid(format!("{what} is no pointer to a pointer")));
    }
    // SAFETY: it is not null and aligned, and the caller gave it to be written.
    unsafe { pointer.write(value) };
    Ok(())
}

/// The input of an operation, and where its result goes. `src_len` and `dst_len` are bytes; in place, the input is the
/// `src_len` bytes of the destination from `in_place_at` on.
pub(crate) fn vectors(
    (src, src_len): (*const c_void, usize),
    (dst, dst_len): (*mut c_void, usize),
    in_place_at: usize,
) -> Result<(CallerVector, Destination), IncclError> {
    let is_in_place = src.addr() == IN_PLACE || src.addr() == dst.addr();
    let source = if is_in_place { dst.cast_const().wrapping_byte_add(in_place_at) } else { src };
    for (pointer, len, what) in [(source, src_len, "src"), (dst.cast_const(), dst_len, "dst")] {
        if len != 0 && pointer.is_null() {
            return Err(IncclError::invalid(format!("{what} is null")));
        }
        if isize::try_from(len).is_err() || pointer.addr().checked_add(len).is_none() {
            return Err(IncclError::invalid(format!("{what} has {len} bytes, more than memory")));
        }
    }
    let (from, to) = (source.addr(), dst.addr());
    if !is_in_place && from < to.wrapping_add(dst_len) && to < from.wrapping_add(src_len) {
        return Err(IncclError::invalid(
            "src and dst overlap: pass INCCL_IN_PLACE as src if the data lies in dst".into(),
        ));
    }
    Ok((CallerVector { address: from, len: src_len }, Destination { address: to, len: dst_len }))
}

/// The size that a structure says it has.
fn claimed_size(pointer: *const u32, align: usize, what: &str) -> Result<usize, IncclError> {
    if pointer.is_null() || !pointer.addr().is_multiple_of(align) {
        return Err(IncclError::invalid(format!("{what} is null or not aligned")));
    }
    // SAFETY: it is not null and aligned, and each such structure begins with a 32-bit size.
    Ok(usize::try_from(unsafe { pointer.read() }).unwrap_or(0))
}
