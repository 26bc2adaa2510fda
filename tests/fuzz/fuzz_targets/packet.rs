//! Fuzz target: the packet parsers. `cargo xtask fuzz` runs it.

#![no_main]

#[path = "../src/packet.rs"]
mod packet;

libfuzzer_sys::fuzz_target!(|data: &[u8]| packet::fuzz_packet(data));
