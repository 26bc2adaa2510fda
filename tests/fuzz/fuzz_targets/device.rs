//! Fuzz target: the device in front of a hostile driver. `cargo xtask fuzz` runs it.

#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| urma_hostile::device::device(data));
