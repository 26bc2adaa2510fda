//! Beats of the messages of a golden case.
//!
//! *Owns*: how pieces become beats, and the file that the test bench reads. *Takes*: messages.
//! *Gives*: beats.

use std::{fmt::Write, fs, path::Path};

use serde::Deserialize;

use crate::say::{Failure, TaskResult};

/// Value of the bytes of a beat beyond its length, which must reach no packet.
const BEYOND: u8 = 0xAA;

/// A message in pieces of host memory.
#[derive(Debug, Deserialize)]
pub(super) struct GoldenMessage {
    /// Path MTU in bytes.
    pub(super) mtu: usize,
    pieces: Vec<GoldenPiece>,
}

#[derive(Debug, Deserialize)]
struct GoldenPiece {
    offset: usize,
    len: usize,
}

impl GoldenMessage {
    /// A message in one piece of `len` bytes.
    pub(super) fn of(mtu: usize, len: usize) -> Self {
        Self { mtu, pieces: vec![GoldenPiece { offset: 0, len }] }
    }
}

/// A beat that is offered.
#[derive(Debug)]
pub(super) struct Beat {
    /// Number of its message.
    pub(super) tag: u32,
    /// Whether it is the first of its message.
    pub(super) first: bool,
    /// Whether it is the last of its message.
    pub(super) last: bool,
    /// Binary logarithm of the path MTU.
    pub(super) mtu: u32,
    /// Bytes that it carries, at most one beat.
    pub(super) bytes: Vec<u8>,
    /// Bytes that it says beyond those.
    pub(super) len_over: usize,
}

/// Beats of `messages`, as DMA delivers them in beats of `width` bytes.
pub(super) fn beats_of(messages: &[GoldenMessage], width: u32) -> Result<Vec<Beat>, Failure> {
    let mut beats = Vec::new();
    let width = width as usize;
    for (tag, message) in (0_u32..).zip(messages) {
        let mtu = message.mtu.checked_ilog2();
        let mtu = mtu.ok_or_else(|| Failure(format!("message {tag}: an MTU of 0 bytes")))?;
        let (mut chunks, mut done) = (Vec::new(), 0);
        for piece in &message.pieces {
            let (mut at, mut rest) = (piece.offset, piece.len);
            while rest > 0 {
                let len = rest.min(width - at % width);
                chunks.push((done..done + len).map(|byte| payload(tag, byte)).collect());
                (at, rest, done) = (at + len, rest - len, done + len);
            }
        }
        if chunks.is_empty() {
            chunks.push(Vec::new());
        }
        let count = chunks.len();
        let beat = |(at, bytes)| Beat {
            tag,
            first: at == 0,
            last: at + 1 == count,
            mtu,
            bytes,
            len_over: 0,
        };
        beats.extend(chunks.into_iter().enumerate().map(beat));
    }
    Ok(beats)
}

/// Byte `at` of message `tag`, as the golden file defines it.
pub(super) fn payload(tag: u32, at: usize) -> u8 {
    let sum = 131 * tag as usize + 7 * at + (at >> 8);
    sum.to_le_bytes()[0]
}

/// Writes the file of `beats` that the test bench reads.
pub(super) fn write(path: &Path, beats: &[Beat], width: u32) -> TaskResult {
    let mut text = String::new();
    for beat in beats {
        let (first, last) = (u8::from(beat.first), u8::from(beat.last));
        // Writing to a string does not fail.
        let _ = write!(
            text,
            "{:x} {first} {last} {:x} {:x} ",
            beat.bytes.len() + beat.len_over,
            beat.tag,
            beat.mtu
        );
        for at in (0..width as usize).rev() {
            let _ = write!(text, "{:02x}", beat.bytes.get(at).unwrap_or(&BEYOND));
        }
        text.push('\n');
    }
    fs::write(path, text).map_err(Failure::system("writing beats"))
}
