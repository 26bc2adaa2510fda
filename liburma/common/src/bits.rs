//! Searches in bitmaps of `unsigned long`.
//!
//! *Owns*: which words are read: those that hold the first `size` bits. *Gives*: the number of a bit;
//! at least `size` where there is none. *Must not*: read beyond the last word.

use core::ffi::c_ulong;

/// The first bit from `from` on that is set in the words of `array` with `flip` applied.
///
/// # Safety
/// `array`, where `from` is below `size`, has words for `size` bits.
unsafe fn search(array: *const c_ulong, size: c_ulong, from: c_ulong, flip: c_ulong) -> c_ulong {
    let width = c_ulong::from(c_ulong::BITS);
    let mut at = from;
    while at < size {
        let index = usize::try_from(at / width).unwrap_or(usize::MAX);
        // SAFETY: a word that holds bits below `size`.
        let word = unsafe { array.add(index) };
        // SAFETY: as above; programs keep bitmaps in packed structs too.
        let bits = (unsafe { word.read_unaligned() } ^ flip) & (c_ulong::MAX << (at % width));
        let start = at - at % width;
        if bits != 0 {
            // A bit behind the last one is none.
            return (start + c_ulong::from(bits.trailing_zeros())).min(size);
        }
        at = start.saturating_add(width);
    }
    size
}

/// The first set bit of `size` bits; `size`: none is set.
///
/// # Safety
/// `array` has words for `size` bits.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ub_find_first_bit(array: *const c_ulong, size: c_ulong) -> c_ulong {
    // SAFETY: the contract of this function is that of `search`.
    unsafe { search(array, size, 0, 0) }
}

/// The first set bit from `offset` on; `size`: none is set.
///
/// # Safety
/// As [`ub_find_first_bit`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ub_find_next_bit(
    array: *const c_ulong,
    size: c_ulong,
    offset: c_ulong,
) -> c_ulong {
    // SAFETY: the contract of this function is that of `search`.
    unsafe { search(array, size, offset, 0) }
}

/// The first clear bit of `size` bits; `size`: all are set.
///
/// # Safety
/// As [`ub_find_first_bit`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ub_find_first_zero_bit(array: *const c_ulong, size: c_ulong) -> c_ulong {
    // SAFETY: the contract of this function is that of `search`.
    unsafe { search(array, size, 0, c_ulong::MAX) }
}

/// The first clear bit from `offset` on; `size`: all are set.
///
/// # Safety
/// As [`ub_find_first_bit`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ub_find_next_zero_bit(
    array: *const c_ulong,
    size: c_ulong,
    offset: c_ulong,
) -> c_ulong {
    // SAFETY: the contract of this function is that of `search`.
    unsafe { search(array, size, offset, c_ulong::MAX) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_set_and_clear_bit_is_found_from_everywhere() {
        const SIZE: c_ulong = 130;
        for (first, second) in [(0, 1), (5, 63), (63, 64), (64, 129), (0, 128), (129, 129)] {
            let mut words = [0; 3];
            for bit in [first, second] {
                words[bit / 64] |= 1 << (bit % 64);
            }
            let inverse = words.map(|word: c_ulong| !word);
            for from in 0..SIZE + 2 {
                let wanted = [first as c_ulong, second as c_ulong];
                let wanted = wanted.into_iter().find(|bit| *bit >= from).unwrap_or(SIZE);
                // SAFETY: three words hold 130 bits.
                assert_eq!(unsafe { ub_find_next_bit(words.as_ptr(), SIZE, from) }, wanted);
                // SAFETY: three words hold 130 bits.
                assert_eq!(unsafe { ub_find_next_zero_bit(inverse.as_ptr(), SIZE, from) }, wanted);
            }
            // SAFETY: three words hold 130 bits.
            assert_eq!(unsafe { ub_find_first_bit(words.as_ptr(), SIZE) }, first as c_ulong);
            // SAFETY: three words hold 130 bits.
            assert_eq!(unsafe { ub_find_first_zero_bit(inverse.as_ptr(), SIZE) }, first as c_ulong);
        }
    }

    #[test]
    fn bits_behind_the_last_one_are_none() {
        let words = [0, 1 << 10];
        // SAFETY: two words hold 70 bits.
        assert_eq!(unsafe { ub_find_first_bit(words.as_ptr(), 70) }, 70);
        // SAFETY: no word is read for a size of 0.
        assert_eq!(unsafe { ub_find_first_bit(core::ptr::null(), 0) }, 0);
    }
}
