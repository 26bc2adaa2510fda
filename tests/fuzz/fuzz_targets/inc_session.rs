//! Fuzz target: a controller of in-network computing with any sessions. `cargo xtask fuzz` runs it.

#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| urma_hostile::inc_session::inc_session(data));
