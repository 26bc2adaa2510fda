//! The log: callbacks, level, tag, the functions that other libraries log by, and the rate limit of one place in a
//! program, 100 lines in five seconds.
//!
//! Stable Rust cannot define variadic functions, so those with a format are assembler: they store the registers that
//! may hold arguments, build the `va_list` of the platform's ABI (System V for x86-64; AAPCS64) over them, and call
//! on. The C library formats. Their caller checks the level first (`urma_log_drop`).

use core::ffi::{CStr, c_char, c_int, c_void};

use urma_mem::sync::{AtomicU32, AtomicU64, Ordering};

use crate::{
    abi::{urma_vlog_level_t, *},
    call::{self, Code, c_text, refuse},
    log, perf,
};

fn no_function() -> Code {
    refuse!(EINVAL, "func is NULL; urma_unregister_log_func ends what was registered")
}

/// Registers `func` as the receiver of log lines.
pub unsafe extern "C" fn urma_register_log_func(func: urma_log_cb_t) -> urma_status_t {
    call::as_status(call::in_child(|| {
        log::register(func.ok_or_else(no_function)?);
        log::install();
        Ok(())
    }))
}

/// Registers `func` as the receiver of log lines, with file, function and line number.
pub unsafe extern "C" fn urma_register_loc_log_func(func: urma_loc_log_cb) -> urma_status_t {
    call::as_status(call::in_child(|| {
        func.ok_or_else(no_function)?;
        log::register_located(func);
        log::install();
        Ok(())
    }))
}

/// Unregisters the callback: log lines go to standard error again.
pub unsafe extern "C" fn urma_unregister_log_func() -> urma_status_t {
    log::unregister();
    call::SUCCESS
}

/// Returns the log level; lines of larger numbers are left out.
pub unsafe extern "C" fn urma_log_get_level() -> urma_vlog_level_t {
    log::level()
}

/// Sets the log level; an unknown number is ignored.
pub unsafe extern "C" fn urma_log_set_level(level: urma_vlog_level_t) {
    log::set_level(level);
}

/// Returns the log tag of this thread, initially `-`.
pub unsafe extern "C" fn urma_log_get_thread_tag() -> *const c_char {
    log::tag()
}

/// Sets the tag in front of each line of this thread; NULL and tags of more than 63 bytes are ignored.
pub unsafe extern "C" fn urma_log_set_thread_tag(tag: *const c_char) {
    if !tag.is_null() {
        // SAFETY: a C string of the caller's (room card of `face`).
        log::set_tag(unsafe { CStr::from_ptr(tag) });
    }
}

/// Length of a window, in seconds.
const WINDOW_S: u64 = 5;
/// Lines allowed in a window.
const LINES: u64 = 100;

/// State of one place. The program sets `left` to 100 and the rest to zero.
///
/// The layout is that of UMDK release 26.06; the state lives in the program.
#[repr(C)]
#[derive(Debug)]
pub struct urma_log_rl_state_t {
    lock: AtomicU32,
    left: AtomicU64,
    missed: AtomicU64,
    begin_s: AtomicU64,
    /// Bit 0: the state is in use.
    flags: AtomicU32,
    file: *const c_char,
    function: *const c_char,
    line: c_int,
}

#[cfg(target_pointer_width = "64")]
const _: () = {
    assert!(size_of::<urma_log_rl_state_t>() == 64);
    assert!(core::mem::offset_of!(urma_log_rl_state_t, begin_s) == 24);
    assert!(core::mem::offset_of!(urma_log_rl_state_t, file) == 40);
};

/// Whether this place may write a line; always if `rs` is NULL. Suppressed lines are counted in `missed`, until the window
/// ends.
pub unsafe extern "C" fn urma_log_rl_check(
    rs: *mut urma_log_rl_state_t,
    _file: *const c_char,
    _function: *const c_char,
    _line: c_int,
) -> bool {
    if rs.is_null() || !rs.is_aligned() {
        return true;
    }
    // SAFETY: the program's state: atomics and pointers that are not read here.
    let state = unsafe { &*rs };
    let now_s = perf::now_ns() / 1_000_000_000;
    let begin_s = state.begin_s.load(Ordering::Relaxed);
    let is_new = state.flags.fetch_or(1, Ordering::AcqRel) & 1 == 0;
    if is_new || now_s.saturating_sub(begin_s) >= WINDOW_S {
        // Of several threads that see the window end, one begins the next.
        let order = Ordering::AcqRel;
        if is_new
            || state.begin_s.compare_exchange(begin_s, now_s, order, Ordering::Relaxed).is_ok()
        {
            state.begin_s.store(now_s, Ordering::Relaxed);
            state.left.store(LINES, Ordering::Relaxed);
            state.missed.store(0, Ordering::Relaxed);
        }
        if is_new {
            return true;
        }
    }
    let less = |left: u64| left.checked_sub(1);
    let may = state.left.fetch_update(Ordering::AcqRel, Ordering::Relaxed, less).is_ok();
    if !may {
        state.missed.fetch_add(1, Ordering::Relaxed);
    }
    may
}

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
