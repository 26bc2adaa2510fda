//! Every example runs, and says what it is about.
#![expect(clippy::unwrap_used, reason = "a test that cannot continue fails by panicking")]

use std::process::Command;

fn says(program: &str, words: &[&str]) {
    let out = Command::new(program).env("URMA_EID", "random").output().unwrap();
    let text = String::from_utf8_lossy(&out.stdout);
    assert!(out.status.success(), "{text}{}", String::from_utf8_lossy(&out.stderr));
    for word in words {
        assert!(text.contains(word), "no {word:?} in: {text}");
    }
}

#[test]
fn write() {
    says(env!("CARGO_BIN_EXE_write"), &["request 1: success", "now holds: written from afar"]);
}

#[test]
fn read() {
    says(env!("CARGO_BIN_EXE_read"), &["request 1: success", "gave: read from afar"]);
}

#[test]
fn send_recv() {
    says(env!("CARGO_BIN_EXE_send_recv"), &["\"who is there?\", immediate Some(42)", "None"]);
}

#[test]
fn atomics() {
    says(env!("CARGO_BIN_EXE_atomics"), &["it was 110", "not swapped", "the counter is 1"]);
}

#[test]
fn events() {
    says(env!("CARGO_BIN_EXE_events"), &["woken by 7 bytes for request 7"]);
}

#[test]
fn cost() {
    says(env!("CARGO_BIN_EXE_cost"), &["    8 bytes: copy", " 4096 bytes: copy", "WRITE"]);
}

#[cfg(feature = "stream")]
#[test]
fn stream() {
    says(env!("CARGO_BIN_EXE_stream"), &["message 0: one", "message 2: three"]);
}
