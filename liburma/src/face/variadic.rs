//! The log functions of other libraries: they take a format and arguments, as printf does.
//!
//! *Owns*: the way from a C call with any number of arguments to one with a `va_list`. Rust cannot
//! define such a function, so these are written in assembler: they store the registers that may hold
//! arguments, build the `va_list` of the platform's ABI (System V for x86-64; AAPCS64) over them, and
//! call on. Formatting is the C library's. *Must not*: be reached before its level was asked for by
//! the caller (`urma_log_drop`).
#![expect(unsafe_code, reason = "exported functions, va_list, and callbacks")]
#![expect(clippy::missing_safety_doc, reason = "the room card says what callers promise")]

use core::ffi::{CStr, c_char, c_int, c_void};

use crate::{
    abi::urma_vlog_level_t,
    call::{self, Code},
    log,
};

unsafe extern "C" {
    /// The C library's; `list` is a `va_list`, which both ABIs pass as an address.
    fn vsnprintf(to: *mut c_char, len: usize, format: *const c_char, list: *mut c_void) -> c_int;
}

/// Bytes of a message, with the zero at its end.
const MESSAGE_LEN: usize = 512;

/// Whether lines of this level are left out.
pub unsafe extern "C" fn urma_log_drop(level: urma_vlog_level_t) -> bool {
    level > log::level()
}

/// `urma_log(function, line, level, format, ...)`: a line of the log.
#[cfg(target_arch = "x86_64")]
#[unsafe(naked)]
pub unsafe extern "C" fn urma_log(
    function: *const c_char,
    line: c_int,
    level: urma_vlog_level_t,
    format: *const c_char,
) {
    // Four registers are named arguments: 32 bytes of the save area are passed over.
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
        "mov dword ptr [rsp + 176], 32",
        "mov dword ptr [rsp + 180], 48",
        "lea rax, [rbp + 16]",
        "mov [rsp + 184], rax",
        "mov [rsp + 192], rsp",
        "lea r8, [rsp + 176]",
        "call {inner}",
        "leave",
        "ret",
        inner = sym message,
    )
}

/// `urma_log_loc(file, function, line, level, format, ...)`: a line of the log, with the file.
#[cfg(target_arch = "x86_64")]
#[unsafe(naked)]
pub unsafe extern "C" fn urma_log_loc(
    file: *const c_char,
    function: *const c_char,
    line: c_int,
    level: urma_vlog_level_t,
    format: *const c_char,
) {
    // Five registers are named arguments.
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
        "mov dword ptr [rsp + 176], 40",
        "mov dword ptr [rsp + 180], 48",
        "lea rax, [rbp + 16]",
        "mov [rsp + 184], rax",
        "mov [rsp + 192], rsp",
        "lea r9, [rsp + 176]",
        "call {inner}",
        "leave",
        "ret",
        inner = sym located_message,
    )
}

/// `urma_log(function, line, level, format, ...)`: a line of the log.
#[cfg(target_arch = "aarch64")]
#[unsafe(naked)]
pub unsafe extern "C" fn urma_log(
    function: *const c_char,
    line: c_int,
    level: urma_vlog_level_t,
    format: *const c_char,
) {
    // Below the frame: general registers x4 to x7 (32 bytes), q0 to q7 (128), the va_list (32).
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
        "mov w9, #-32",
        "str w9, [sp, #24]",
        "mov w9, #-128",
        "str w9, [sp, #28]",
        "mov x4, sp",
        "bl {inner}",
        "mov sp, x29",
        "ldp x29, x30, [sp], #16",
        "ret",
        inner = sym message,
    )
}

/// `urma_log_loc(file, function, line, level, format, ...)`: a line of the log, with the file.
#[cfg(target_arch = "aarch64")]
#[unsafe(naked)]
pub unsafe extern "C" fn urma_log_loc(
    file: *const c_char,
    function: *const c_char,
    line: c_int,
    level: urma_vlog_level_t,
    format: *const c_char,
) {
    // As above, with general registers x5 to x7 (24 bytes).
    core::arch::naked_asm!(
        "stp x29, x30, [sp, #-16]!",
        "mov x29, sp",
        "sub sp, sp, #192",
        "stp q0, q1, [sp, #32]",
        "stp q2, q3, [sp, #64]",
        "stp q4, q5, [sp, #96]",
        "stp q6, q7, [sp, #128]",
        "str x5, [sp, #168]",
        "stp x6, x7, [sp, #176]",
        "add x9, x29, #16",
        "str x9, [sp]",
        "add x9, sp, #192",
        "str x9, [sp, #8]",
        "add x9, sp, #160",
        "str x9, [sp, #16]",
        "mov w9, #-24",
        "str w9, [sp, #24]",
        "mov w9, #-128",
        "str w9, [sp, #28]",
        "mov x5, sp",
        "bl {inner}",
        "mov sp, x29",
        "ldp x29, x30, [sp], #16",
        "ret",
        inner = sym located_message,
    )
}

/// # Safety
/// As `located_message`.
unsafe extern "C" fn message(
    function: *const c_char,
    line: c_int,
    level: urma_vlog_level_t,
    format: *const c_char,
    list: *mut c_void,
) {
    // SAFETY: the caller's promise.
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
    call::nothing_in_child(|| {
        let format = call::place(format.cast_mut())?;
        let mut text = [0; MESSAGE_LEN];
        // SAFETY: room of that size; the caller's format with arguments that fit it.
        let len = unsafe { vsnprintf(text.as_mut_ptr(), MESSAGE_LEN, format.as_ptr(), list) };
        if len < 0 {
            return Err(Code::EINVAL);
        }
        // SAFETY: C strings of the caller's, or NULL.
        let file = unsafe { text_of(file) };
        // SAFETY: as above.
        let function = unsafe { text_of(function) };
        // SAFETY: vsnprintf ends what it writes with a zero.
        let text = unsafe { CStr::from_ptr(text.as_ptr()) };
        log::message(level, text, (file, function, line));
        Ok(())
    });
}

/// # Safety
/// A C string that lives while it is used, or NULL.
unsafe fn text_of<'a>(text: *const c_char) -> &'a CStr {
    if text.is_null() {
        return c"";
    }
    // SAFETY: the caller's promise.
    unsafe { CStr::from_ptr(text) }
}
