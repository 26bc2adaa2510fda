//! Fuzz target: the packet parsers. Run `cargo +nightly fuzz run --fuzz-dir tests/fuzz packet`.

#![no_main]

#[path = "../src/packet.rs"]
mod packet;

libfuzzer_sys::fuzz_target!(|data: &[u8]| packet::fuzz_packet(data));
