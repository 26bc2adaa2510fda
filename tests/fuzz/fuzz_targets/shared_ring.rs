//! Fuzz target: the ring between two processes. `cargo xtask fuzz` runs it.

#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| urma_hostile::shared_ring::shared_ring(data));
