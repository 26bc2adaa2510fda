//! Numbers and booleans from C strings.
//!
//! *Owns*: which text is refused, and with which errno: `EINVAL` for none, for a sign where there
//! may be none; `EFAULT` beyond 64 bits; `ENOEXEC` for what is no number; `ERANGE` beyond the type.

use core::ffi::{CStr, c_char, c_int};

/// Text of a C string; `None` for no string.
///
/// # Safety
/// `text` is null or a C string.
unsafe fn bytes<'a>(text: *const c_char) -> Option<&'a [u8]> {
    // SAFETY: not null, and a C string by the caller's promise.
    (!text.is_null()).then(|| unsafe { CStr::from_ptr(text) }.to_bytes())
}

/// Stores `value` at `out`.
///
/// # Safety
/// `out` is null or valid for a write.
unsafe fn put<T>(out: *mut T, value: Result<T, c_int>) -> c_int {
    match value {
        Err(errno) => -errno,
        Ok(_) if out.is_null() => -libc::EINVAL,
        Ok(value) => {
            // SAFETY: not null, and valid for a write by the caller's promise.
            unsafe { out.write_unaligned(value) };
            0
        }
    }
}

/// Blanks that C's own number functions skip.
fn skip_blanks(text: &[u8]) -> &[u8] {
    let is_blank = |byte: &u8| matches!(byte, b' ' | b'\t' | b'\n' | 0x0b | 0x0c | b'\r');
    let from = text.iter().position(|byte| !is_blank(byte)).unwrap_or(text.len());
    &text[from..]
}

/// Magnitude of a number in base 16 (`0x`), 8 (`0`) or 10; `EFAULT` when 64 bits do not hold it.
fn magnitude(text: &[u8]) -> Result<u64, c_int> {
    let (digits, base) = match text {
        [b'0', b'x' | b'X', digits @ ..] => (digits, 16),
        [b'0', digits @ ..] if !digits.is_empty() => (digits, 8),
        digits => (digits, 10),
    };
    if digits.is_empty() {
        return Err(libc::ENOEXEC);
    }
    let mut value: Option<u64> = Some(0);
    for digit in digits {
        let digit = char::from(*digit).to_digit(base).ok_or(libc::ENOEXEC)?;
        let next = |value: u64| value.checked_mul(u64::from(base))?.checked_add(u64::from(digit));
        value = value.and_then(next);
    }
    value.ok_or(libc::EFAULT)
}

fn unsigned(text: Option<&[u8]>) -> Result<u64, c_int> {
    let text = text.ok_or(libc::EINVAL)?;
    if text.first() == Some(&b'-') {
        return Err(libc::EINVAL);
    }
    let text = skip_blanks(text);
    magnitude(text.strip_prefix(b"+").unwrap_or(text))
}

fn narrow<T: TryFrom<u64>>(text: Option<&[u8]>) -> Result<T, c_int> {
    T::try_from(unsigned(text)?).map_err(|_| libc::ERANGE)
}

fn signed(text: Option<&[u8]>) -> Result<c_int, c_int> {
    let text = skip_blanks(text.ok_or(libc::EINVAL)?);
    let (digits, sign) = match text {
        [b'-', digits @ ..] => (digits, -1),
        [b'+', digits @ ..] => (digits, 1),
        digits => (digits, 1),
    };
    let value = i128::from(magnitude(digits)?) * sign;
    c_int::try_from(value).map_err(|_| libc::ERANGE)
}

fn boolean(text: Option<&[u8]>) -> Result<bool, c_int> {
    match text {
        Some(b"true") => Ok(true),
        Some(b"false") => Ok(false),
        _ => Err(libc::EINVAL),
    }
}

macro_rules! exported {
    ($($(#[doc = $doc:literal])* $name:ident: $type:ty = $parse:expr;)*) => {$(
        $(#[doc = $doc])*
        ///
        /// # Safety
        /// `text` is null or a C string, `out` is null or valid for a write.
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $name(text: *const c_char, out: *mut $type) -> c_int {
            // SAFETY: the contract of the C function is that of the callee.
            let text = unsafe { bytes(text) };
            // SAFETY: the contract of the C function is that of the callee.
            unsafe { put(out, $parse(text)) }
        }
    )*};
}

exported! {
    /// The words `true` and `false`.
    ub_str_to_bool: bool = boolean;
    /// 8 bits without sign.
    ub_str_to_u8: u8 = narrow;
    /// 16 bits without sign.
    ub_str_to_u16: u16 = narrow;
    /// 32 bits without sign.
    ub_str_to_u32: u32 = narrow;
    /// 64 bits without sign.
    ub_str_to_u64: u64 = narrow;
    /// A C int, with a sign or without.
    ub_str_to_int: c_int = signed;
}

#[cfg(test)]
mod tests {
    use super::*;

    fn u8_of(text: &CStr) -> Result<u8, c_int> {
        let mut out = 0;
        // SAFETY: a C string and a place of our own.
        match unsafe { ub_str_to_u8(text.as_ptr(), &raw mut out) } {
            0 => Ok(out),
            errno => Err(errno),
        }
    }

    #[test]
    fn numbers_of_every_base_are_read() {
        assert_eq!(u8_of(c"255"), Ok(255));
        assert_eq!(u8_of(c"0xfF"), Ok(255));
        assert_eq!(u8_of(c"017"), Ok(15));
        assert_eq!(u8_of(c" +7"), Ok(7));
        assert_eq!(u8_of(c"0"), Ok(0));
    }

    #[test]
    fn what_is_no_number_is_named_by_errno() {
        assert_eq!(u8_of(c"-1"), Err(-libc::EINVAL));
        assert_eq!(u8_of(c"12x"), Err(-libc::ENOEXEC));
        assert_eq!(u8_of(c""), Err(-libc::ENOEXEC));
        assert_eq!(u8_of(c"0x"), Err(-libc::ENOEXEC));
        assert_eq!(u8_of(c"256"), Err(-libc::ERANGE));
        assert_eq!(u8_of(c"99999999999999999999"), Err(-libc::EFAULT));
    }

    #[test]
    fn limits_of_int_are_met() {
        assert_eq!(signed(Some(b"-2147483648")), Ok(c_int::MIN));
        assert_eq!(signed(Some(b"2147483648")), Err(libc::ERANGE));
        assert_eq!(signed(Some(b"1x")), Err(libc::ENOEXEC));
        assert_eq!(signed(None), Err(libc::EINVAL));
    }

    #[test]
    fn only_two_words_are_boolean() {
        assert_eq!(boolean(Some(b"true")), Ok(true));
        assert_eq!(boolean(Some(b"false")), Ok(false));
        for text in [None, Some(&b""[..]), Some(b"yes"), Some(b"True")] {
            assert_eq!(boolean(text), Err(libc::EINVAL));
        }
    }

    #[test]
    fn no_place_for_the_result_is_refused() {
        // SAFETY: NULL is refused before anything is read.
        let status = unsafe { ub_str_to_u64(c"1".as_ptr(), core::ptr::null_mut()) };
        assert_eq!(status, -libc::EINVAL);
        // SAFETY: NULL is refused before anything is read.
        let status = unsafe { ub_str_to_bool(core::ptr::null(), core::ptr::null_mut()) };
        assert_eq!(status, -libc::EINVAL);
    }
}
