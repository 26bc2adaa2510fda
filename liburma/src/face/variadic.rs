//! Log functions that other libraries call, with a format and arguments like `printf`.
//!
//! *Owns*: the step from a variadic C call to one with a `va_list`. Stable Rust cannot define variadic functions, so these
//! are assembler: they store the registers that may hold arguments, build the `va_list` of the platform's ABI (System V
//! for x86-64; AAPCS64) over them, and call on. The C library formats. *Must not*: be called before the caller checked
//! the level (`urma_log_drop`).

use core::ffi::{c_char, c_int, c_void};

use crate::{
    abi::urma_vlog_level_t,
    call::{self, c_text, refuse},
    log,
};

unsafe extern "C" {
    /// Function of the C library; `list` is a `va_list`, which both ABIs pass as an address.
    fn vsnprintf(to: *mut c_char, len: usize, format: *const c_char, list: *mut c_void) -> c_int;
}

/// Most bytes of a message, with the final zero.
const MESSAGE_LEN: usize = 512;

/// Whether lines of this level are dropped.
pub unsafe extern "C" fn urma_log_drop(level: urma_vlog_level_t) -> bool {
    level > log::level()
}

/// Defines a variadic function. `$passed`: bytes of the general registers with named arguments. `$left`: bytes of the
/// remaining ones on aarch64. `$list`: the register that gets the `va_list`.
macro_rules! variadic {
    ($(#[$doc:meta])* $name:ident($($arg:ident: $ty:ty),*), $passed:literal, $left:literal,
        $list:literal / $list_arm:literal, $inner:ident) => {
        $(#[$doc])*
        #[cfg(target_arch = "x86_64")]
        #[unsafe(naked)]
        pub unsafe extern "C" fn $name($($arg: $ty),*) {
            core::arch::naked_asm!(
                "push rbp",
                "mov rbp, rsp",
                "sub rsp, 208",
                "mov [rsp], rdi",
                "mov [rsp + 8], rsi",
                "mov [rsp + 16], rdx",
                "mov [rsp + 24], rcx",
                "mov [rsp + 32], r8",
                "mov [rsp + 40], r9",
                "test al, al",
                "je 2f",
                "movaps [rsp + 48], xmm0",
                "movaps [rsp + 64], xmm1",
                "movaps [rsp + 80], xmm2",
                "movaps [rsp + 96], xmm3",
                "movaps [rsp + 112], xmm4",
                "movaps [rsp + 128], xmm5",
                "movaps [rsp + 144], xmm6",
                "movaps [rsp + 160], xmm7",
                "2:",
                "mov dword ptr [rsp + 176], {passed}",
                "mov dword ptr [rsp + 180], 48",
                "lea rax, [rbp + 16]",
                "mov [rsp + 184], rax",
                "mov [rsp + 192], rsp",
                concat!("lea ", $list, ", [rsp + 176]"),
                "call {inner}",
                "leave",
                "ret",
                passed = const $passed,
                inner = sym $inner,
            )
        }

        // Below the frame: general registers x4 to x7 (32 bytes), q0 to q7 (128), the va_list (32).
        $(#[$doc])*
        #[cfg(target_arch = "aarch64")]
        #[unsafe(naked)]
        pub unsafe extern "C" fn $name($($arg: $ty),*) {
            core::arch::naked_asm!(
                "stp x29, x30, [sp, #-16]!",
                "mov x29, sp",
                "sub sp, sp, #192",
                "stp q0, q1, [sp, #32]",
                "stp q2, q3, [sp, #64]",
                "stp q4, q5, [sp, #96]",
                "stp q6, q7, [sp, #128]",
                "stp x4, x5, [sp, #160]",
                "stp x6, x7, [sp, #176]",
                "add x9, x29, #16",
                "str x9, [sp]",
                "add x9, sp, #192",
                "str x9, [sp, #8]",
                "add x9, sp, #160",
                "str x9, [sp, #16]",
                "mov w9, #-{left}",
                "str w9, [sp, #24]",
                "mov w9, #-128",
                "str w9, [sp, #28]",
                concat!("mov ", $list_arm, ", sp"),
                "bl {inner}",
                "mov sp, x29",
                "ldp x29, x30, [sp], #16",
                "ret",
                left = const $left,
                inner = sym $inner,
            )
        }
    };
}

variadic! {
    /// `urma_log(function, line, level, format, ...)`: writes a log line.
    urma_log(function: *const c_char, line: c_int, level: urma_vlog_level_t, format: *const c_char),
    32, 32, "r8" / "x4", message
}

variadic! {
    /// `urma_log_loc(file, function, line, level, format, ...)`: writes a log line, with the file.
    urma_log_loc(
        file: *const c_char, function: *const c_char, line: c_int, level: urma_vlog_level_t,
        format: *const c_char
    ),
    40, 24, "r9" / "x5", located_message
}

/// # Safety
/// The contract of `located_message`.
unsafe extern "C" fn message(
    function: *const c_char,
    line: c_int,
    level: urma_vlog_level_t,
    format: *const c_char,
    list: *mut c_void,
) {
    // SAFETY: the contract of this function is that of the callee.
    unsafe { located_message(core::ptr::null(), function, line, level, format, list) };
}

/// # Safety
/// C strings or NULL, and a `va_list` that fits the format.
unsafe extern "C" fn located_message(
    file: *const c_char,
    function: *const c_char,
    line: c_int,
    level: urma_vlog_level_t,
    format: *const c_char,
    list: *mut c_void,
) {
    call::as_nothing(call::in_child(|| {
        call::some(format)?;
        let mut text = [0; MESSAGE_LEN];
        // SAFETY: the room has that size; the program wrote a format, and arguments that fit it.
        let len = unsafe { vsnprintf(text.as_mut_ptr(), MESSAGE_LEN, format, list) };
        if len < 0 {
            return Err(refuse!(EINVAL, "an argument of the variadic call is wrong"));
        }
        // SAFETY: a C string of the program's, or NULL.
        let file = unsafe { call::text(file) }.unwrap_or_default();
        // SAFETY: a C string of the program's, or NULL.
        let function = unsafe { call::text(function) }.unwrap_or_default();
        log::message(level, c_text(&text), (file, function, line));
        Ok(())
    }));
}
