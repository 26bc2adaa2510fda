//! Fuzz target: a connection of the standard opcodes in front of a hostile peer. `cargo xtask fuzz` runs it.

#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| urma_hostile::rc::rc(data));
