//! Fuzz target: topologies of in-network computing. `cargo xtask fuzz` runs it.

#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| urma_hostile::inc::inc_yaml(data));
