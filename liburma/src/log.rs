//! Log: lines of the crates below, given to the program.
//!
//! *Owns*: the level, the callbacks, the thread's tag. *Takes*: `tracing` events of this process.
//! *Gives*: lines to the registered callback, else to standard error. *Must not*: call back into
//! itself, or hold a lock while a callback runs.
#![expect(unsafe_code, reason = "callbacks of C programs")]

mod line;
mod sink;
mod subscriber;

pub(crate) use line::{set_tag, tag};
pub(crate) use sink::{register, register_located, unregister};
pub(crate) use subscriber::{install, level, set_level};

/// A line of another library, as it said it.
pub(crate) fn message(level: u32, text: &core::ffi::CStr, from: SourcePlace<'_>) {
    let mut line = line::Line::new();
    line.write_bytes(text.to_bytes());
    sink::give(level, &mut line, from);
}

/// File, function and line in it.
pub(crate) type SourcePlace<'a> = (&'a core::ffi::CStr, &'a core::ffi::CStr, core::ffi::c_int);

/// Levels as `urma_vlog_level_t` numbers them: smaller is worse.
pub(crate) mod number {
    pub(crate) const ERR: u32 = 3;
    pub(crate) const WARNING: u32 = 4;
    pub(crate) const INFO: u32 = 6;
    pub(crate) const DEBUG: u32 = 7;
    /// The first number that is no level.
    pub(crate) const END: u32 = 8;
}
