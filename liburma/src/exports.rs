//! The symbols of the library: each is a jump through one table.
//!
//! *Owns*: the table, the jumps, and what happens when the library is loaded and when the process ends. *Takes*: the list
//! `symbols.txt`, which the build script hands to the macro below. *Gives*: the exported names.
//! *Must not*: know what a function does.
//!
//! The table starts with the functions of `face`. When the environment asks for the other release,
//! and a library of that release is found, its functions take their places while this library is
//! being loaded: before any code that was linked to it runs. A jump costs one load and one branch
//! that always goes to the same place. The table is written at that moment only.
#![expect(unsafe_code, reason = "exported symbols in assembler, and a table of functions")]

use core::{cell::UnsafeCell, ffi::CStr};

use crate::{
    call, choice,
    face::{
        cdev::*, cmd::*, context::*, data::*, device::*, family::*, jetty::*, jfc::*, library,
        lifecycle::*, log::*, notifier::*, path::*, perf::*, queue::*, segment::*, target::*,
    },
};

/// The address of a function.
#[repr(transparent)]
struct JumpSlot(UnsafeCell<*const ()>);

// SAFETY: written by `at_load` only, before the loader gives this library to any code.
unsafe impl Sync for JumpSlot {}

impl JumpSlot {
    const fn new(function: *const ()) -> Self {
        Self(UnsafeCell::new(function))
    }
}

/// Makes the table, the list of names in its order, and a symbol for each.
macro_rules! exports {
    ($($at:literal $name:ident,)*) => {
        const COUNT: usize = [$($at),*].len();

        static TABLE: [JumpSlot; COUNT] = [$(JumpSlot::new($name as *const ())),*];

        const NAMES: [&CStr; COUNT] = [$(
            match CStr::from_bytes_with_nul(concat!(stringify!($name), "\0").as_bytes()) {
                Ok(name) => name,
                Err(_) => c"",
            }
        ),*];

        mod symbol {
            $(
                #[unsafe(no_mangle)]
                #[unsafe(naked)]
                unsafe extern "C" fn $name() {
                    super::jump!($at)
                }
            )*
        }
    };
}

/// To the entry with this number; registers and stack are the caller's.
#[cfg(target_arch = "x86_64")]
macro_rules! jump {
    ($at:literal) => {
        core::arch::naked_asm!(
            "jmp qword ptr [rip + {table} + {offset}]",
            table = sym super::TABLE,
            offset = const 8 * $at,
        )
    };
}

/// To the entry with this number; x16 is what a call between libraries may change.
#[cfg(target_arch = "aarch64")]
macro_rules! jump {
    ($at:literal) => {
        core::arch::naked_asm!(
            "adrp x16, {table} + {offset}",
            "ldr x16, [x16, #:lo12:{table} + {offset}]",
            "br x16",
            table = sym super::TABLE,
            offset = const 8 * $at,
        )
    };
}

use jump;

/// What the loader calls when it has bound this library's symbols.
#[used]
#[unsafe(link_section = ".init_array")]
static AT_LOAD: extern "C" fn() = at_load;

/// The library of the release that the environment asks for takes this one's places.
extern "C" fn at_load() {
    call::as_nothing(call::in_child(|| {
        for (entry, function) in TABLE.iter().zip(choice::functions(&NAMES).unwrap_or_default()) {
            // SAFETY: no thread reads the table while this library is loaded, and no other writes.
            unsafe { *entry.0.get() = function };
        }
        Ok(())
    }));
}

/// What the loader calls when the process ends, after the handlers of the program.
#[used]
#[unsafe(link_section = ".fini_array")]
static AT_EXIT: extern "C" fn() = at_exit;

extern "C" fn at_exit() {
    // A forked child ends without a word: the node is its parent's.
    call::nothing(|| {
        library::leave();
        Ok(())
    });
}

include!(concat!(env!("OUT_DIR"), "/exports.rs"));
