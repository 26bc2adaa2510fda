//! Reductions, exact to the bit.
//!
//! The result of a switch is the expression of its children from index 0 on, from left to right. Integers wrap, so their
//! order does not matter ([`accumulate`]); floats are added in that order whenever they come ([`fold`]): IEEE 754, to
//! nearest even, nothing fused, nothing flushed. F16 and BF16 are added as F32 and rounded once. Any NaN becomes the
//! canonical one.

use half::slice::HalfFloatSliceExt;
use half::{bf16, f16};
use urma_mem::vectors::{VectorWork, run_wide};
use zerocopy::IntoBytes;

use crate::element::{ElementType, Operator, Reduction};

/// Elements of F16 and BF16 that are widened at a time: twice 1 KiB of the stack.
const WIDE_BLOCK: usize = 256;

/// Sets each element of `acc` to `acc op data`. Both are as long, in whole elements; what one has beyond the other stays.
///
/// With vectors as wide as the processor's, which takes half as long (`reduce::tests::measure`).
///
/// Bits depend on the order of calls where [`Reduction::is_ordered`]: use [`fold`] there.
pub fn accumulate(reduction: Reduction, acc: &mut [u8], data: &[u8]) {
    run_wide(Accumulation { reduction, acc, data });
}

struct Accumulation<'a> {
    reduction: Reduction,
    acc: &'a mut [u8],
    data: &'a [u8],
}

impl VectorWork for Accumulation<'_> {
    type Output = ();

    #[inline(always)]
    fn run(self) {
        let Self { reduction, acc, data } = self;
        let operator = reduction.operator();
        match reduction.element() {
            ElementType::I8 => integers(operator, acc, data, i8::from_le_bytes, i8::to_le_bytes),
            ElementType::I16 => integers(operator, acc, data, i16::from_le_bytes, i16::to_le_bytes),
            ElementType::I32 => integers(operator, acc, data, i32::from_le_bytes, i32::to_le_bytes),
            ElementType::I64 => integers(operator, acc, data, i64::from_le_bytes, i64::to_le_bytes),
            ElementType::U8 => integers(operator, acc, data, u8::from_le_bytes, u8::to_le_bytes),
            ElementType::U16 => integers(operator, acc, data, u16::from_le_bytes, u16::to_le_bytes),
            ElementType::U32 => integers(operator, acc, data, u32::from_le_bytes, u32::to_le_bytes),
            ElementType::U64 => integers(operator, acc, data, u64::from_le_bytes, u64::to_le_bytes),
            ElementType::F32 => floats(operator, acc, data, f32::from_le_bytes, f32::to_le_bytes),
            ElementType::F64 => floats(operator, acc, data, f64::from_le_bytes, f64::to_le_bytes),
            ElementType::F16 => floats(operator, acc, data, f16_of, f16_to),
            ElementType::Bf16 => floats(operator, acc, data, bf16_of, bf16_to),
            ElementType::I32I32 => pairs(operator, acc, data, i32::from_le_bytes),
            ElementType::I64I32 => pairs(operator, acc, data, i64::from_le_bytes),
            ElementType::F32I32 => pairs(operator, acc, data, f32::from_le_bytes),
            ElementType::F64I32 => pairs(operator, acc, data, f64::from_le_bytes),
        }
    }
}

/// Writes the expression of `parts`, from the first to the last, to `out`. All are as long as `out`, in whole elements.
pub fn fold(
    reduction: Reduction,
    parts: impl Iterator<Item = impl AsRef<[u8]>> + Clone,
    out: &mut [u8],
) {
    let operator = reduction.operator();
    match reduction.element() {
        ElementType::F16 => wide(operator, parts, out, widen_f16, narrow_f16),
        ElementType::Bf16 => wide(operator, parts, out, widen_bf16, narrow_bf16),
        ElementType::I8
        | ElementType::I16
        | ElementType::I32
        | ElementType::I64
        | ElementType::U8
        | ElementType::U16
        | ElementType::U32
        | ElementType::U64
        | ElementType::F32
        | ElementType::F64
        | ElementType::I32I32
        | ElementType::I64I32
        | ElementType::F32I32
        | ElementType::F64I32 => {
            let mut parts = parts;
            if let Some(first) = parts.next() {
                copy(out, first.as_ref());
            }
            for part in parts {
                accumulate(reduction, out, part.as_ref());
            }
            canonical(reduction.element(), out);
        }
    }
}

fn copy(out: &mut [u8], from: &[u8]) {
    let len = out.len().min(from.len());
    out[..len].copy_from_slice(&from[..len]);
}

/// Sets each element of `N` bytes to `f` of it and its operand. Inlined for each operator, so that each loop can be vectorized.
#[inline(always)]
fn combine<T, const N: usize>(
    (acc, data): (&mut [u8], &[u8]),
    (of, to): (impl Fn([u8; N]) -> T, impl Fn(T) -> [u8; N]),
    f: impl Fn(T, T) -> T,
) {
    let (acc, _) = acc.as_chunks_mut();
    let (data, _) = data.as_chunks();
    for (acc, data) in acc.iter_mut().zip(data) {
        *acc = to(f(of(*acc), of(*data)));
    }
}

/// What integers of all widths have.
trait Integer: Copy + Ord + Default {
    fn sum(self, other: Self) -> Self;
    fn product(self, other: Self) -> Self;
    fn and(self, other: Self) -> Self;
    fn or(self, other: Self) -> Self;
    fn xor(self, other: Self) -> Self;
    fn of_bool(value: bool) -> Self;
}

macro_rules! integer {
    ($($type:ident)+) => { $(
        impl Integer for $type {
            #[inline(always)]
            fn sum(self, other: Self) -> Self { self.wrapping_add(other) }
            #[inline(always)]
            fn product(self, other: Self) -> Self { self.wrapping_mul(other) }
            #[inline(always)]
            fn and(self, other: Self) -> Self { self & other }
            #[inline(always)]
            fn or(self, other: Self) -> Self { self | other }
            #[inline(always)]
            fn xor(self, other: Self) -> Self { self ^ other }
            #[inline(always)]
            fn of_bool(value: bool) -> Self { value.into() }
        }
    )+ };
}

integer!(i8 i16 i32 i64 u8 u16 u32 u64);

#[inline(always)]
fn integers<T: Integer, const N: usize>(
    operator: Operator,
    acc: &mut [u8],
    data: &[u8],
    of: impl Fn([u8; N]) -> T,
    to: impl Fn(T) -> [u8; N],
) {
    let (bytes, code) = ((acc, data), (of, to));
    let is_true = |value: T| value != T::default();
    match operator {
        Operator::Sum => combine(bytes, code, T::sum),
        Operator::Prod => combine(bytes, code, T::product),
        Operator::Min => combine(bytes, code, |a: T, b: T| a.min(b)),
        Operator::Max => combine(bytes, code, |a: T, b: T| a.max(b)),
        Operator::Land => combine(bytes, code, |a, b| T::of_bool(is_true(a) & is_true(b))),
        Operator::Lor => combine(bytes, code, |a, b| T::of_bool(is_true(a) | is_true(b))),
        Operator::Lxor => combine(bytes, code, |a, b| T::of_bool(is_true(a) ^ is_true(b))),
        Operator::Band => combine(bytes, code, T::and),
        Operator::Bor => combine(bytes, code, T::or),
        Operator::Bxor => combine(bytes, code, T::xor),
        // No reduction of integers.
        Operator::MinLoc | Operator::MaxLoc => {}
    }
}

/// What binary32 and binary64 have.
trait Float: Copy + PartialOrd + core::ops::Add<Output = Self> + core::ops::Mul<Output = Self> {
    const NAN: Self;
    fn is_nan(self) -> bool;
    fn is_negative(self) -> bool;
}

macro_rules! float {
    ($($type:ident $nan:literal)+) => { $(
        impl Float for $type {
            const NAN: Self = Self::from_bits($nan);
            #[inline(always)]
            fn is_nan(self) -> bool { self.is_nan() }
            #[inline(always)]
            fn is_negative(self) -> bool { self.is_sign_negative() }
        }
    )+ };
}

float!(f32 0x7fc0_0000 f64 0x7ff8_0000_0000_0000);

/// The lesser one; a NaN wins, -0 is below +0.
#[inline(always)]
fn least<T: Float>(a: T, b: T) -> T {
    match () {
        () if a.is_nan() || b.is_nan() => T::NAN,
        () if a < b || a == b && a.is_negative() => a,
        () => b,
    }
}

/// The greater one; a NaN wins, -0 is below +0.
#[inline(always)]
fn greatest<T: Float>(a: T, b: T) -> T {
    match () {
        () if a.is_nan() || b.is_nan() => T::NAN,
        () if a > b || a == b && !a.is_negative() => a,
        () => b,
    }
}

#[inline(always)]
fn floats<T: Float, const N: usize>(
    operator: Operator,
    acc: &mut [u8],
    data: &[u8],
    of: impl Fn([u8; N]) -> T,
    to: impl Fn(T) -> [u8; N],
) {
    let (bytes, code) = ((acc, data), (of, to));
    match operator {
        Operator::Sum => combine(bytes, code, |a: T, b: T| a + b),
        Operator::Prod => combine(bytes, code, |a: T, b: T| a * b),
        Operator::Min => combine(bytes, code, least::<T>),
        Operator::Max => combine(bytes, code, greatest::<T>),
        // No reductions of floats.
        Operator::Land
        | Operator::Lor
        | Operator::Lxor
        | Operator::Band
        | Operator::Bor
        | Operator::Bxor
        | Operator::MinLoc
        | Operator::MaxLoc => {}
    }
}

/// The fold of F16 or BF16: in F32, rounded at the end.
fn wide(
    operator: Operator,
    parts: impl Iterator<Item = impl AsRef<[u8]>> + Clone,
    out: &mut [u8],
    widen: impl Fn(&[[u8; 2]], &mut [f32; WIDE_BLOCK]),
    narrow: impl Fn(&[f32; WIDE_BLOCK], &mut [[u8; 2]]),
) {
    let (mut acc, mut operand) = ([0.0; WIDE_BLOCK], [0.0; WIDE_BLOCK]);
    let (out, _) = out.as_chunks_mut::<2>();
    for (block, out) in out.chunks_mut(WIDE_BLOCK).enumerate() {
        let start = block * WIDE_BLOCK;
        let block_of = |part: &[u8], wide: &mut [f32; WIDE_BLOCK]| {
            let (halves, _) = part.as_chunks::<2>();
            widen(halves.get(start..start + out.len()).unwrap_or_default(), wide);
        };
        let mut parts = parts.clone();
        if let Some(first) = parts.next() {
            block_of(first.as_ref(), &mut acc);
        }
        for part in parts {
            block_of(part.as_ref(), &mut operand);
            let (acc, operand) = (acc.as_mut_bytes(), operand.as_bytes());
            floats(operator, acc, operand, f32::from_ne_bytes, f32::to_ne_bytes);
        }
        narrow(&acc, out);
    }
}

/// The library converts slices by the processor's own instructions where it has some, and one by one far slower.
fn widen_f16(halves: &[[u8; 2]], wide: &mut [f32; WIDE_BLOCK]) {
    let mut values = [f16::ZERO; WIDE_BLOCK];
    for (value, half) in values.iter_mut().zip(halves) {
        *value = f16::from_le_bytes(*half);
    }
    values.convert_to_f32_slice(wide);
}

fn narrow_f16(wide: &[f32; WIDE_BLOCK], halves: &mut [[u8; 2]]) {
    let mut values = [f16::ZERO; WIDE_BLOCK];
    values.convert_from_f32_slice(wide);
    for ((half, value), wide) in halves.iter_mut().zip(values).zip(wide) {
        *half = if wide.is_nan() { 0x7e00_u16.to_le_bytes() } else { value.to_le_bytes() };
    }
}

fn widen_bf16(halves: &[[u8; 2]], wide: &mut [f32; WIDE_BLOCK]) {
    for (wide, half) in wide.iter_mut().zip(halves) {
        *wide = bf16_of(*half);
    }
}

fn narrow_bf16(wide: &[f32; WIDE_BLOCK], halves: &mut [[u8; 2]]) {
    for (half, wide) in halves.iter_mut().zip(wide) {
        *half = bf16_to(*wide);
    }
}

fn f16_of(bytes: [u8; 2]) -> f32 {
    f16::from_le_bytes(bytes).to_f32()
}

fn f16_to(value: f32) -> [u8; 2] {
    if value.is_nan() { 0x7e00_u16.to_le_bytes() } else { f16::from_f32(value).to_le_bytes() }
}

fn bf16_of(bytes: [u8; 2]) -> f32 {
    bf16::from_le_bytes(bytes).to_f32()
}

fn bf16_to(value: f32) -> [u8; 2] {
    if value.is_nan() { 0x7fc0_u16.to_le_bytes() } else { bf16::from_f32(value).to_le_bytes() }
}

/// Bytes of an index.
const INDEX_LEN: usize = 4;

/// Takes the operand where it is better. Values that compare with nothing, NaN, are better than all others; of equally good
/// ones the lower index is taken.
#[inline(always)]
#[expect(clippy::eq_op, reason = "a NaN differs from itself")]
fn pairs<T: Copy + PartialOrd, const N: usize>(
    operator: Operator,
    acc: &mut [u8],
    data: &[u8],
    of: impl Fn([u8; N]) -> T,
) {
    let size = N + INDEX_LEN;
    let value = |pair: &[u8]| pair.first_chunk().map(|bytes| of(*bytes));
    let index = |pair: &[u8]| {
        pair.last_chunk().map_or(0, |bytes: &[u8; INDEX_LEN]| i32::from_le_bytes(*bytes))
    };
    for (acc, data) in acc.chunks_exact_mut(size).zip(data.chunks_exact(size)) {
        let (Some(have), Some(new)) = (value(acc), value(data)) else { continue };
        let (have_nan, new_nan) = (have != have, new != new);
        let is_beyond = if operator == Operator::MinLoc { new < have } else { new > have };
        let is_better = !have_nan && (new_nan || is_beyond);
        let is_tie = have == new || (have_nan && new_nan);
        if is_better || is_tie && index(data) < index(acc) {
            acc.copy_from_slice(data);
        }
    }
}

/// Replaces each NaN by the canonical one.
fn canonical(element: ElementType, out: &mut [u8]) {
    match element {
        ElementType::F32 => nans::<_, 4, 0>(out, f32::from_le_bytes, f32::to_le_bytes),
        ElementType::F64 => nans::<_, 8, 0>(out, f64::from_le_bytes, f64::to_le_bytes),
        ElementType::F32I32 => {
            nans::<_, 4, INDEX_LEN>(out, f32::from_le_bytes, f32::to_le_bytes);
        }
        ElementType::F64I32 => {
            nans::<_, 8, INDEX_LEN>(out, f64::from_le_bytes, f64::to_le_bytes);
        }
        // Rounding did it.
        ElementType::F16 | ElementType::Bf16 => {}
        ElementType::I8
        | ElementType::I16
        | ElementType::I32
        | ElementType::I64
        | ElementType::U8
        | ElementType::U16
        | ElementType::U32
        | ElementType::U64
        | ElementType::I32I32
        | ElementType::I64I32 => {}
    }
}

fn nans<T: Float, const N: usize, const INDEX: usize>(
    out: &mut [u8],
    of: impl Fn([u8; N]) -> T,
    to: impl Fn(T) -> [u8; N],
) {
    for element in out.chunks_exact_mut(N + INDEX) {
        if let Some(bytes) = element.first_chunk_mut() {
            // Stored in any case, so that the loop has no jumps: with one it took half as long again.
            let value = of(*bytes);
            *bytes = to(if value.is_nan() { T::NAN } else { value });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn reduction(operator: Operator, element: ElementType) -> Reduction {
        Reduction::new(operator, element).unwrap()
    }

    /// Bytes of any kind, with many that are special for floats.
    fn bytes(len: usize, seed: u64) -> Vec<u8> {
        const SPECIAL: [u64; 6] = [
            0x7fc0_0000_ffa0_1234,
            0x8000_0000_0000_0000,
            0x7f80_0000_ff80_0000,
            0x0000_0001_8000_0001,
            0xfff4_0000_0000_0001,
            0x7c00_fc01_0001_8001,
        ];
        let mut state = seed;
        let mut word = || {
            state = state.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(0x1405_7b7e_f767_814f);
            let index = usize::try_from(state >> 60).unwrap();
            SPECIAL.get(index).copied().unwrap_or(state ^ state >> 29)
        };
        (0..len.div_ceil(8)).flat_map(|_| word().to_le_bytes()).take(len).collect()
    }

    /// Every type and operator: what wider vectors give is what the plain loops give, also where a vector is not full.
    #[test]
    fn wider_vectors_change_no_bit() {
        let mut count = 0;
        for element in ElementType::ALL {
            let all = Operator::ALL.into_iter().filter_map(|op| Reduction::new(op, element));
            for reduction in all {
                for elements in [0, 1, 7, 33, 259, 1020] {
                    let len = elements * element.size();
                    count += 1;
                    let (data, mut wide) = (bytes(len, 1), bytes(len, 2));
                    let mut plain = wide.clone();
                    accumulate(reduction, &mut wide, &data);
                    Accumulation { reduction, acc: &mut plain, data: &data }.run();
                    // A NaN may have either one's payload: sums of floats end with this.
                    canonical(element, &mut wide);
                    canonical(element, &mut plain);
                    assert_eq!(wide, plain, "{reduction:?}, {elements} elements");
                }
            }
        }
        assert!(count > 300, "{count}");
    }

    /// What wider vectors gain, in turns: `cargo test --release -p inc reduce -- --ignored --nocapture`.
    #[test]
    #[ignore = "measures; run with --release --ignored --nocapture"]
    #[expect(clippy::disallowed_methods, reason = "it measures")]
    fn measure() {
        const TURNS: usize = 41;
        for element in [ElementType::I8, ElementType::I32, ElementType::I64, ElementType::F32] {
            let reduction = reduction(Operator::Sum, element);
            let (data, mut acc) = (bytes(4080, 1), bytes(4080, 2));
            let mut times = [const { Vec::new() }; 2];
            for _ in 0..TURNS {
                for (times, is_wide) in times.iter_mut().zip([false, true]) {
                    let start = std::time::Instant::now();
                    for _ in 0..1000 {
                        let data = std::hint::black_box(&data);
                        let work = Accumulation { reduction, acc: &mut acc, data };
                        if is_wide { run_wide(work) } else { work.run() }
                    }
                    times.push(start.elapsed().as_nanos() / 1000);
                }
            }
            let [plain, wide] = times.map(|mut times| {
                times.sort_unstable();
                times[TURNS / 2]
            });
            println!("{element:?}: 4080 bytes in {plain} ns, with wider vectors {wide} ns");
        }
        // Floats of 16 bits beside those of 32.
        for element in [ElementType::F32, ElementType::F16, ElementType::Bf16] {
            let parts: Vec<_> = (1..5).map(|seed| bytes(4080, seed)).collect();
            let mut out = vec![0; 4080];
            let mut times: Vec<_> = (0..TURNS)
                .map(|_| {
                    let start = std::time::Instant::now();
                    for _ in 0..100 {
                        let parts = std::hint::black_box(&parts).iter();
                        fold(reduction(Operator::Sum, element), parts, &mut out);
                    }
                    start.elapsed().as_nanos() / 100
                })
                .collect();
            times.sort_unstable();
            let (least, ns) = (times[0], times[TURNS / 2]);
            println!("{element:?}: four parts of 4080 bytes in {ns} ns, {least} at least");
        }
    }

    /// The fold of values that have these bytes.
    fn folded(operator: Operator, element: ElementType, parts: &[&[u8]]) -> Vec<u8> {
        let mut out = vec![0; parts[0].len()];
        fold(reduction(operator, element), parts.iter(), &mut out);
        out
    }

    #[test]
    fn any_nan_becomes_the_canonical_one() {
        // Signalling, negative, with a payload.
        let single = 0xffa0_1234_u32.to_le_bytes();
        let double = 0xfff4_0000_0000_0001_u64.to_le_bytes();
        let (half, brain) = (0xfd01_u16.to_le_bytes(), 0xffa1_u16.to_le_bytes());
        for operator in [Operator::Sum, Operator::Prod, Operator::Min, Operator::Max] {
            // Of one operand, too.
            for count in [1, 2] {
                let of = |element, nan: &[u8], one: &[u8]| {
                    folded(operator, element, &[nan, one][..count])
                };
                let one = of(ElementType::F32, &single, &1.0_f32.to_le_bytes());
                assert_eq!(one, 0x7fc0_0000_u32.to_le_bytes(), "{operator:?}");
                let one = of(ElementType::F64, &double, &1.0_f64.to_le_bytes());
                assert_eq!(one, 0x7ff8_0000_0000_0000_u64.to_le_bytes(), "{operator:?}");
                let one = of(ElementType::F16, &half, &0x3c00_u16.to_le_bytes());
                assert_eq!(one, 0x7e00_u16.to_le_bytes(), "{operator:?}");
                let one = of(ElementType::Bf16, &brain, &0x3f80_u16.to_le_bytes());
                assert_eq!(one, 0x7fc0_u16.to_le_bytes(), "{operator:?}");
            }
        }
        let pair = [&single[..], &3_i32.to_le_bytes()].concat();
        let wanted = [&0x7fc0_0000_u32.to_le_bytes()[..], &3_i32.to_le_bytes()].concat();
        assert_eq!(folded(Operator::MinLoc, ElementType::F32I32, &[&pair]), wanted);
    }

    #[test]
    fn minus_zero_is_below_zero_and_a_nan_wins() {
        let of = |operator, a: f32, b: f32| {
            let out = folded(operator, ElementType::F32, &[&a.to_le_bytes(), &b.to_le_bytes()]);
            f32::from_le_bytes(out.try_into().unwrap())
        };
        for (a, b) in [(0.0, -0.0), (-0.0, 0.0)] {
            assert_eq!(of(Operator::Min, a, b).to_bits(), (-0.0_f32).to_bits());
            assert_eq!(of(Operator::Max, a, b).to_bits(), 0.0_f32.to_bits());
        }
        for (a, b) in [(f32::NAN, 1.0), (1.0, f32::NAN)] {
            assert!(of(Operator::Min, a, b).is_nan() && of(Operator::Max, a, b).is_nan());
        }
    }

    #[test]
    fn of_equal_values_the_lower_index_is_taken_from_either_side() {
        let pair = |value: i32, index: i32| [value.to_le_bytes(), index.to_le_bytes()].concat();
        for operator in [Operator::MinLoc, Operator::MaxLoc] {
            for parts in [[pair(5, 9), pair(5, -3)], [pair(5, -3), pair(5, 9)]] {
                let out = folded(operator, ElementType::I32I32, &[&parts[0], &parts[1]]);
                assert_eq!(out, pair(5, -3));
            }
        }
        let out = folded(Operator::MaxLoc, ElementType::I32I32, &[&pair(5, 9), &pair(6, 99)]);
        assert_eq!(out, pair(6, 99));
    }

    #[test]
    fn halves_of_more_than_one_block_are_each_added() {
        let len = 2 * WIDE_BLOCK + 3;
        let ones: Vec<u8> = (0..len).flat_map(|_| f16::from_f32(1.0).to_le_bytes()).collect();
        let numbers: Vec<u8> = (0..len)
            .flat_map(|at| f16::from_f32(f32::from(u16::try_from(at).unwrap())).to_le_bytes())
            .collect();
        let out = folded(Operator::Sum, ElementType::F16, &[&numbers, &ones]);
        for (at, half) in out.as_chunks::<2>().0.iter().enumerate() {
            assert_eq!(
                f16::from_le_bytes(*half).to_f32(),
                f32::from(u16::try_from(at).unwrap()) + 1.0
            );
        }
    }
}
