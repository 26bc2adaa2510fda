//! Arithmetic in GF(2^8) with the polynomial x^8 + x^4 + x^3 + x^2 + 1, for codes over the bytes of packets.
//!
//! Owns: products and inverses, the choice of instructions. Takes: bytes and factors. Gives: results that do not depend on that choice.
//! Must not: know what is coded.
#![expect(unsafe_code, reason = "instructions that not every processor has")]

/// The polynomial without its highest term.
const POLYNOMIAL: u8 = 0x1d;
/// Bytes that a step of the portable loop takes, so that the compiler uses vectors.
const LANES: usize = 64;

/// Products of a factor with the 16 values of a byte's low half, then with the 16 of its high half: the product with a byte is
/// the sum of two of them.
type HalfProducts = [u8; 32];

/// [`HalfProducts`] of every factor.
static HALF_PRODUCTS: [HalfProducts; 256] = {
    let mut all = [[0; 32]; 256];
    let (mut factor, mut value) = (0, 0_u8);
    loop {
        let mut half = 0;
        while half < 16 {
            all[factor][half as usize] = times(value, half);
            all[factor][16 + half as usize] = times(value, half << 4);
            half += 1;
        }
        if factor == 255 {
            break all;
        }
        (factor, value) = (factor + 1, value + 1);
    }
};

/// Inverses of all values; that of 0 is 0.
static INVERSES: [u8; 256] = {
    let mut all = [0; 256];
    let mut value = u8::MAX;
    while value > 0 {
        all[value as usize] = power_254(value);
        value -= 1;
    }
    all
};

/// Twice a value of the field.
const fn doubled(value: u8) -> u8 {
    let carry = if value & 0x80 == 0 { 0 } else { POLYNOMIAL };
    value.wrapping_add(value) ^ carry
}

/// Product of two values of the field.
#[must_use]
pub const fn times(a: u8, b: u8) -> u8 {
    let (mut sum, mut a, mut bit) = (0, a, 0);
    while bit < 8 {
        if b >> bit & 1 == 1 {
            sum ^= a;
        }
        a = doubled(a);
        bit += 1;
    }
    sum
}

/// The 254th power of a value, whose product with the value is 1.
const fn power_254(value: u8) -> u8 {
    let (mut power, mut product, mut bit) = (value, 1, 0);
    while bit < 8 {
        if 254_u8 >> bit & 1 == 1 {
            product = times(product, power);
        }
        power = times(power, power);
        bit += 1;
    }
    product
}

/// The value whose product with this one is 1. Of 0: 0.
#[must_use]
pub fn inverse(value: u8) -> u8 {
    INVERSES[usize::from(value)]
}

/// Adds `from` times `factor` to the first bytes of `into`, with the widest vectors that the processor has.
///
/// # Panics
/// If `from` is longer than `into`.
pub fn add_scaled(into: &mut [u8], from: &[u8], factor: u8) {
    let into = &mut into[..from.len()];
    let products = &HALF_PRODUCTS[usize::from(factor)];
    #[cfg(target_arch = "x86_64")]
    if std::arch::is_x86_feature_detected!("avx2") {
        // SAFETY: the processor has the one feature that the function needs, as it has just said.
        return unsafe { avx2::add_scaled(into, from, products) };
    }
    #[cfg(target_arch = "aarch64")]
    return neon::add_scaled(into, from, products);
    #[cfg(not(target_arch = "aarch64"))]
    add_by_masks(into, from, products);
}

/// Adds byte by byte: what is left where vectors end.
fn add_bytes(into: &mut [u8], from: &[u8], products: &HalfProducts) {
    for (to, byte) in into.iter_mut().zip(from) {
        *to ^= products[usize::from(byte & 0xf)] ^ products[usize::from(16 | byte >> 4)];
    }
}

/// For processors without instructions that look bytes up: one sum per bit of the factor.
#[cfg(any(test, not(target_arch = "aarch64")))]
fn add_by_masks(into: &mut [u8], from: &[u8], products: &HalfProducts) {
    // The factor itself: its product with 1.
    let masks: [u8; 8] = std::array::from_fn(|bit| 0_u8.wrapping_sub(products[1] >> bit & 1));
    let (to_blocks, to_rest) = into.as_chunks_mut::<LANES>();
    let (blocks, rest) = from.as_chunks::<LANES>();
    for (to, block) in to_blocks.iter_mut().zip(blocks) {
        let mut power = *block;
        for mask in masks {
            for (to, value) in to.iter_mut().zip(&mut power) {
                *to ^= *value & mask;
                *value = doubled(*value);
            }
        }
    }
    add_bytes(to_rest, rest, products);
}

#[cfg(target_arch = "x86_64")]
mod avx2 {
    use std::arch::x86_64::{
        __m256i, _mm256_and_si256, _mm256_loadu_si256, _mm256_loadu2_m128i, _mm256_set1_epi8,
        _mm256_shuffle_epi8, _mm256_srli_epi64, _mm256_storeu_si256, _mm256_xor_si256,
    };

    use super::{HalfProducts, add_bytes};

    /// Both slices are equally long. A shuffle looks 32 bytes up at once, in a table of 16 for each half of the vector.
    #[target_feature(enable = "avx2")]
    pub(super) fn add_scaled(into: &mut [u8], from: &[u8], products: &HalfProducts) {
        let (low, high) = (twice(&products[..16]), twice(&products[16..]));
        let half = _mm256_set1_epi8(0xf);
        let (to_blocks, to_rest) = into.as_chunks_mut::<32>();
        let (blocks, rest) = from.as_chunks::<32>();
        for (to, block) in to_blocks.iter_mut().zip(blocks) {
            let bytes = load(block);
            let of_low = _mm256_shuffle_epi8(low, _mm256_and_si256(bytes, half));
            let high_halves = _mm256_and_si256(_mm256_srli_epi64::<4>(bytes), half);
            let of_high = _mm256_shuffle_epi8(high, high_halves);
            let product = _mm256_xor_si256(of_low, of_high);
            store(to, _mm256_xor_si256(load(to), product));
        }
        add_bytes(to_rest, rest, products);
    }

    #[target_feature(enable = "avx2")]
    fn load(bytes: &[u8; 32]) -> __m256i {
        // SAFETY: 32 bytes are there, whatever their alignment.
        unsafe { _mm256_loadu_si256(bytes.as_ptr().cast()) }
    }

    #[target_feature(enable = "avx2")]
    fn store(to: &mut [u8; 32], value: __m256i) {
        // SAFETY: room for 32 bytes is there, whatever its alignment.
        unsafe { _mm256_storeu_si256(to.as_mut_ptr().cast(), value) }
    }

    /// A table in both halves of a vector; it has 16 bytes.
    #[target_feature(enable = "avx2")]
    fn twice(table: &[u8]) -> __m256i {
        let table: &[u8; 16] = table.first_chunk().expect("a half of the products");
        // SAFETY: 16 bytes are there, whatever their alignment.
        unsafe { _mm256_loadu2_m128i(table.as_ptr().cast(), table.as_ptr().cast()) }
    }
}

#[cfg(target_arch = "aarch64")]
mod neon {
    use std::arch::aarch64::{
        uint8x16_t, vandq_u8, vdupq_n_u8, veorq_u8, vld1q_u8, vqtbl1q_u8, vshrq_n_u8, vst1q_u8,
    };

    use super::{HalfProducts, add_bytes};

    /// Both slices are equally long. Every processor of this kind looks 16 bytes up at once.
    pub(super) fn add_scaled(into: &mut [u8], from: &[u8], products: &HalfProducts) {
        let (tables, _) = products.as_chunks::<16>();
        let (to_blocks, to_rest) = into.as_chunks_mut::<16>();
        let (blocks, rest) = from.as_chunks::<16>();
        // SAFETY: the target has these instructions.
        unsafe {
            let (low, high) = (load(&tables[0]), load(&tables[1]));
            for (to, block) in to_blocks.iter_mut().zip(blocks) {
                let bytes = load(block);
                let of_low = vqtbl1q_u8(low, vandq_u8(bytes, vdupq_n_u8(0xf)));
                let of_high = vqtbl1q_u8(high, vshrq_n_u8::<4>(bytes));
                let sum = veorq_u8(load(to), veorq_u8(of_low, of_high));
                vst1q_u8(to.as_mut_ptr(), sum);
            }
        }
        add_bytes(to_rest, rest, products);
    }

    fn load(bytes: &[u8; 16]) -> uint8x16_t {
        // SAFETY: 16 bytes are there, whatever their alignment.
        unsafe { vld1q_u8(bytes.as_ptr()) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_value_has_an_inverse_and_products_are_those_of_powers_of_two() {
        for a in 1..=u8::MAX {
            assert_eq!(times(a, inverse(a)), 1);
            assert_eq!(times(a, 2), doubled(a));
            assert_eq!(times(a, 0x53), times(0x53, a));
        }
        assert_eq!(inverse(0), 0);
        // The powers of 2 run through all values but 0.
        let mut value = 1;
        for _ in 0..254 {
            value = doubled(value);
            assert_ne!(value, 1);
        }
        assert_eq!(doubled(value), 1);
    }

    /// Lengths around those of vectors, all factors, starts at any alignment; both ways.
    #[test]
    fn products_are_added_whatever_the_lengths() {
        let bytes: Vec<u8> = (0..400_u32).map(|at| (at * at * 31 + at).to_le_bytes()[0]).collect();
        for len in [0, 1, 15, 16, 17, 31, 32, 33, 63, 64, 65, 200] {
            for (factor, at) in (0..=u8::MAX).zip([0, 1, 3, 7].into_iter().cycle()) {
                let (from, into) = (&bytes[at..at + len], &bytes[199..201 + len.min(199)]);
                let mut right = into.to_vec();
                right.iter_mut().zip(from).for_each(|(to, byte)| *to ^= times(*byte, factor));
                let mut sum = into.to_vec();
                add_scaled(&mut sum, &from[..len.min(into.len())], factor);
                assert_eq!(sum, right, "{len} bytes times {factor}");
                let mut sum = into.to_vec();
                let products = &HALF_PRODUCTS[usize::from(factor)];
                add_by_masks(
                    &mut sum[..len.min(into.len())],
                    &from[..len.min(into.len())],
                    products,
                );
                assert_eq!(sum, right, "{len} bytes times {factor}, by masks");
            }
        }
    }
}
