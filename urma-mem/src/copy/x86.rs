//! The x86-64 copy: loads and stores in assembly, so that the compiler may assume nothing.
//!
//! Owns: the instruction sequences.
//! Takes: raw ranges, as `copy`.
//! Gives: ascending copies whose steps never overlap; the processor keeps stores in program order,
//! so the tail's plain stores are release stores. Must not: use an instruction the processor does
//! not report.
#![expect(unsafe_code, reason = "inline assembly")]

use core::arch::asm;

/// From here on 32-byte steps pay for the check of the processor's features and for aligning.
const WIDE_MIN: usize = 256;

/// One load and one store of a size.
macro_rules! step {
    ($name:ident, $size:literal, $class:ident, $modifier:literal, $mov:literal, $width:literal) => {
        #[doc = concat!("Moves ", $size, " bytes by one load and one store.")]
        ///
        /// # Safety
        /// Both ranges are mapped, the destination writable.
        #[inline(always)]
        unsafe fn $name(to: *mut u8, from: *const u8) {
            // SAFETY: the caller keeps the bytes mapped; the assembly touches nothing else.
            unsafe {
                asm!(
                    concat!($mov, " {t", $modifier, "}, ", $width, " ptr [{from}]"),
                    concat!($mov, " ", $width, " ptr [{to}], {t", $modifier, "}"),
                    t = out($class) _, from = in(reg) from, to = in(reg) to,
                    options(nostack, preserves_flags)
                );
            }
        }
    };
}

step!(move_16, "16", xmm_reg, "", "movups", "xmmword");
step!(move_word, "8", reg, "", "mov", "qword");
step!(move_4, "4", reg, ":e", "mov", "dword");
step!(move_2, "2", reg, ":x", "mov", "word");
step!(move_1, "1", reg_byte, "", "mov", "byte");

/// Whether [`move_8`] moves 8 bytes as `copy` promises: always, since the processor moves each aligned word in
/// them whole.
#[inline(always)]
pub(super) fn is_one_move(_to: *mut u8, _from: *const u8) -> bool {
    true
}

/// Whether [`move_8_last`] stores 8 bytes at once: they may be loaded from anywhere.
#[inline(always)]
pub(super) fn is_one_ordered_move(to: *mut u8, _from: *const u8) -> bool {
    to.addr() & 7 == 0
}

/// Moves 8 bytes.
///
/// # Safety
/// Both words are mapped; see [`is_one_move`].
#[inline(always)]
pub(super) unsafe fn move_8(to: *mut u8, from: *const u8) {
    // SAFETY: passed on to the caller.
    unsafe { move_word(to, from) };
}

/// Moves 8 bytes after everything that was stored before.
///
/// # Safety
/// Both words are mapped; see [`is_one_ordered_move`].
#[inline(always)]
pub(super) unsafe fn move_8_last(to: *mut u8, from: *const u8) {
    // The processor keeps the order of stores.
    // SAFETY: passed on to the caller.
    unsafe { move_word(to, from) };
}

/// Both ends of a copy and how far it is.
struct CopyCursor {
    to: *mut u8,
    from: *const u8,
    left: usize,
}

impl CopyCursor {
    /// Runs one step if `when` holds and `SIZE` bytes are left.
    ///
    /// # Safety
    /// Both ranges are mapped for `left` bytes, and `step` touches `SIZE` bytes of each.
    #[inline(always)]
    unsafe fn step<const SIZE: usize>(&mut self, when: bool, step: unsafe fn(*mut u8, *const u8)) {
        if when && self.left >= SIZE {
            // SAFETY: SIZE bytes are left in both ranges, which the caller keeps mapped.
            unsafe { step(self.to, self.from) };
            self.advance(SIZE);
        }
    }

    #[inline(always)]
    fn advance(&mut self, len: usize) {
        self.to = self.to.wrapping_add(len);
        self.from = self.from.wrapping_add(len);
        self.left -= len;
    }

    /// Steps of 1, 2 and 4 bytes until the destination is 8-byte aligned.
    ///
    /// # Safety
    /// Both ranges are mapped for `left` bytes.
    #[inline(always)]
    unsafe fn align(&mut self) {
        // SAFETY: the caller promised `left` mapped bytes of both ranges; `step` stays within.
        unsafe { self.step::<1>(self.to.addr() & 1 != 0, move_1) };
        // SAFETY: the caller promised `left` mapped bytes of both ranges; `step` stays within.
        unsafe { self.step::<2>(self.to.addr() & 2 != 0, move_2) };
        // SAFETY: the caller promised `left` mapped bytes of both ranges; `step` stays within.
        unsafe { self.step::<4>(self.to.addr() & 4 != 0, move_4) };
    }

    /// The last 0 to 63 bytes, ascending, each step aligned to its size when the start is.
    ///
    /// # Safety
    /// Both ranges are mapped for `left` bytes.
    #[inline(always)]
    unsafe fn rest(&mut self) {
        while self.left >= 16 {
            // SAFETY: the caller promised `left` mapped bytes of both ranges; `step` stays within.
            unsafe { self.step::<16>(true, move_16) };
        }
        // SAFETY: the caller promised `left` mapped bytes of both ranges; `step` stays within.
        unsafe { self.step::<8>(true, move_word) };
        // SAFETY: the caller promised `left` mapped bytes of both ranges; `step` stays within.
        unsafe { self.step::<4>(true, move_4) };
        // SAFETY: the caller promised `left` mapped bytes of both ranges; `step` stays within.
        unsafe { self.step::<2>(true, move_2) };
        // SAFETY: the caller promised `left` mapped bytes of both ranges; `step` stays within.
        unsafe { self.step::<1>(true, move_1) };
    }

    /// Runs `block` over as many whole units of `unit` bytes as are left.
    ///
    /// # Safety
    /// Both ranges are mapped for `left` bytes; `block` may be run on this processor.
    #[inline(always)]
    unsafe fn blocks(&mut self, unit: usize, block: unsafe fn(*mut u8, *const u8, usize)) {
        let len = self.left & !(unit - 1);
        if len != 0 {
            // SAFETY: len <= left; the rest is the caller's.
            unsafe { block(self.to, self.from, len) };
            self.advance(len);
        }
    }
}

/// Copies in ascending order, whole aligned words.
///
/// # Safety
/// As `copy::copy`.
#[inline]
pub(super) unsafe fn copy(to: *mut u8, from: *const u8, len: usize) {
    let mut cursor = CopyCursor { to, from, left: len };
    if to.addr() & 7 != 0 {
        // SAFETY: passed on to the caller.
        unsafe { cursor.align() };
    }
    if cursor.left >= WIDE_MIN {
        // SAFETY: passed on to the caller.
        unsafe { copy_wide(&mut cursor) };
    }
    // SAFETY: passed on to the caller.
    unsafe { cursor.rest() };
}

/// All but the last few bytes of a long copy.
///
/// # Safety
/// Both ranges are mapped for `left` bytes.
unsafe fn copy_wide(cursor: &mut CopyCursor) {
    while cursor.to.addr() & 31 != 0 && cursor.left >= 8 {
        // SAFETY: passed on to the caller; 8 bytes are left.
        unsafe { cursor.step::<8>(true, move_word) };
    }
    if std::arch::is_x86_feature_detected!("avx") {
        // SAFETY: passed on to the caller; the processor reports AVX.
        unsafe { cursor.blocks(128, avx_loop) };
    } else {
        // SAFETY: passed on to the caller; SSE2 is part of x86-64.
        unsafe { cursor.blocks(64, sse_loop) };
    }
}

/// Copies with separate ascending stores; the processor keeps their order.
///
/// # Safety
/// As `copy::copy`; `len` < 16.
#[inline]
pub(super) unsafe fn copy_tail(to: *mut u8, from: *const u8, len: usize) {
    let mut cursor = CopyCursor { to, from, left: len };
    if to.addr() & 7 != 0 {
        // SAFETY: passed on to the caller.
        unsafe { cursor.align() };
    }
    // SAFETY: the caller promised `left` mapped bytes of both ranges; `step` stays within.
    unsafe { cursor.step::<8>(true, move_word) };
    // SAFETY: the caller promised `left` mapped bytes of both ranges; `step` stays within.
    unsafe { cursor.step::<8>(true, move_word) };
    // SAFETY: the caller promised `left` mapped bytes of both ranges; `step` stays within.
    unsafe { cursor.step::<4>(true, move_4) };
    // SAFETY: the caller promised `left` mapped bytes of both ranges; `step` stays within.
    unsafe { cursor.step::<2>(true, move_2) };
    // SAFETY: the caller promised `left` mapped bytes of both ranges; `step` stays within.
    unsafe { cursor.step::<1>(true, move_1) };
}

/// Copies with non-temporal stores; the caller orders them.
///
/// # Safety
/// As `copy::copy`.
pub(super) unsafe fn copy_streaming(to: *mut u8, from: *const u8, len: usize) {
    let mut cursor = CopyCursor { to, from, left: len };
    // SAFETY: passed on to the caller.
    unsafe { cursor.align() };
    while cursor.to.addr() & 15 != 0 && cursor.left >= 8 {
        // SAFETY: passed on to the caller; 8 bytes are left.
        unsafe { cursor.step::<8>(true, move_word) };
    }
    // SAFETY: passed on to the caller; SSE2 is part of x86-64, and the destination is 16-byte
    // aligned whenever 64 bytes are left.
    unsafe { cursor.blocks(64, streaming_loop) };
    // SAFETY: passed on to the caller.
    unsafe { cursor.rest() };
}

/// A loop of four loads and four stores of one vector register each. All vector registers count as
/// changed: `vzeroupper` clears halves of every one of them.
macro_rules! vector_loop {
    ($name:ident, $load:literal, $store:literal, $width:literal, $reg:literal, $unit:literal, $end:literal) => {
        /// # Safety
        /// Both ranges are mapped for `len` bytes, a multiple of four units and not 0; the
        /// processor has the instructions.
        unsafe fn $name(to: *mut u8, from: *const u8, len: usize) {
            // SAFETY: the caller keeps both ranges mapped; the loop ends at len, a multiple of its
            // step.
            unsafe {
                asm!(
                    "2:",
                    concat!($load, " ", $reg, "0, ", $width, " ptr [rsi]"),
                    concat!($load, " ", $reg, "1, ", $width, " ptr [rsi + ", $unit, "]"),
                    concat!($load, " ", $reg, "2, ", $width, " ptr [rsi + 2*", $unit, "]"),
                    concat!($load, " ", $reg, "3, ", $width, " ptr [rsi + 3*", $unit, "]"),
                    concat!($store, " ", $width, " ptr [rdi], ", $reg, "0"),
                    concat!($store, " ", $width, " ptr [rdi + ", $unit, "], ", $reg, "1"),
                    concat!($store, " ", $width, " ptr [rdi + 2*", $unit, "], ", $reg, "2"),
                    concat!($store, " ", $width, " ptr [rdi + 3*", $unit, "], ", $reg, "3"),
                    concat!("add rsi, 4*", $unit),
                    concat!("add rdi, 4*", $unit),
                    concat!("sub rdx, 4*", $unit),
                    "jnz 2b",
                    $end,
                    inout("rsi") from => _, inout("rdi") to => _, inout("rdx") len => _,
                    clobber_abi("sysv64"),
                    options(nostack)
                );
            }
        }
    };
}

vector_loop!(sse_loop, "movups", "movups", "xmmword", "xmm", "16", "");
vector_loop!(streaming_loop, "movups", "movntps", "xmmword", "xmm", "16", "");
vector_loop!(avx_loop, "vmovups", "vmovups", "ymmword", "ymm", "32", "vzeroupper");
