//! Fuzz target: a switch of in-network computing between hostile stations. `cargo xtask fuzz` runs it.

#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| urma_hostile::inc::inc(data));
