//! Caches and copies.
//!
//! *Owns*: the ping-pong on one cache line per direction; the copy loop.

use std::hint::black_box;

use urma_mem::sync::{AtomicU64, Ordering};

use super::{median, on_two_cores, pin};
use crate::{clock::now, say::Failure};

/// A word on a cache line of its own (128 bytes: the prefetcher takes lines in pairs).
#[repr(align(128))]
#[derive(Debug)]
struct CacheLine(AtomicU64);

/// Round trips of the cache-line ping-pong.
const ROUND_TRIPS: u64 = 2_000_000;
/// Round trips between two looks at the clock.
const BATCH: u64 = 1000;
/// Looks in vain before the other side is given up.
const LOOKS_MAX: u64 = 1 << 32;
/// Bytes copied by one measurement.
const COPIED: usize = 1 << 31;

/// Time of a cache line from one core to another, in microseconds.
pub(super) fn cache_line_us() -> Result<f64, Failure> {
    let (ping, pong) = (CacheLine(AtomicU64::new(0)), CacheLine(AtomicU64::new(0)));
    let answer = || {
        for turn in 1..=ROUND_TRIPS {
            await_turn(&ping, turn)?;
            pong.0.store(turn, Ordering::Release);
        }
        Ok(())
    };
    let ask = || {
        let mut batches = Vec::with_capacity(1 + (ROUND_TRIPS / BATCH) as usize);
        let mut start = now();
        for turn in 1..=ROUND_TRIPS {
            ping.0.store(turn, Ordering::Release);
            await_turn(&pong, turn)?;
            if turn % BATCH == 0 {
                batches.push(start.elapsed().as_secs_f64() * 1e6 / (2 * BATCH) as f64);
                start = now();
            }
        }
        Ok(median(batches))
    };
    on_two_cores(answer, ask)
}

fn await_turn(line: &CacheLine, turn: u64) -> Result<(), Failure> {
    for _ in 0..LOOKS_MAX {
        if line.0.load(Ordering::Acquire) == turn {
            return Ok(());
        }
    }
    Err(Failure("the other core does not answer".to_owned()))
}

/// memcpy of blocks of `size`, walking through buffers of `span` bytes; GB/s (10^9).
pub(super) fn memcpy_gbs(size: usize, span: usize) -> f64 {
    pin(crate::pair::CLIENT_CORE);
    let span = span.max(size);
    let blocks = span / size;
    let from = vec![1_u8; blocks * size];
    let mut to = vec![2_u8; blocks * size];
    let copies = (COPIED / size).max(4);
    let start = now();
    for index in 0..copies {
        let at = index % blocks * size;
        to[at..at + size].copy_from_slice(black_box(&from[at..at + size]));
        black_box(&mut to);
    }
    (copies * size) as f64 / start.elapsed().as_secs_f64() / 1e9
}
