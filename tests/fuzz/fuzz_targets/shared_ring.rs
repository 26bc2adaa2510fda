//! Fuzz target: the ring between two processes. Run
//! `cargo +nightly fuzz run --fuzz-dir tests/fuzz shared_ring`.

#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| urma_hostile::shared_ring::shared_ring(data));
