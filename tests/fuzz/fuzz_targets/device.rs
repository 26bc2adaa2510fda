//! Fuzz target: the device in front of a hostile driver. Run
//! `cargo +nightly fuzz run --fuzz-dir tests/fuzz device`.

#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| urma_hostile::device::device(data));
