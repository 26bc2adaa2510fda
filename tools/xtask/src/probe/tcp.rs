//! TCP over loopback, both ends pinned.
//!
//! *Owns*: the ping-pong and the stream.

use std::{
    io::{Read, Write},
    net::{TcpListener, TcpStream},
    time::Duration,
};

use super::{median, on_two_cores};
use crate::{
    clock::now,
    say::{Done, Failure},
};

/// Round trips of one measurement.
const ROUND_TRIPS: u32 = 20_000;
/// Bytes streamed by one measurement.
const STREAMED: usize = 2 << 30;
/// Longest silence.
const BOUND: Duration = Duration::from_secs(20);

fn failed(error: std::io::Error) -> Failure {
    Failure(format!("TCP: {error}"))
}

fn prepare(stream: &TcpStream) -> Done {
    stream.set_nodelay(true).map_err(failed)?;
    stream.set_read_timeout(Some(BOUND)).map_err(failed)?;
    stream.set_write_timeout(Some(BOUND)).map_err(failed)
}

/// Half a round trip of `size` bytes, microseconds.
pub(super) fn latency_us(size: usize) -> Result<f64, Failure> {
    let listener = TcpListener::bind("127.0.0.1:0").map_err(failed)?;
    let address = listener.local_addr().map_err(failed)?;
    let answer = || {
        let (mut stream, _) = listener.accept().map_err(failed)?;
        prepare(&stream)?;
        let mut bytes = vec![0; size];
        for _ in 0..ROUND_TRIPS {
            stream.read_exact(&mut bytes).map_err(failed)?;
            stream.write_all(&bytes).map_err(failed)?;
        }
        Ok(())
    };
    let ask = || {
        let mut stream = TcpStream::connect(address).map_err(failed)?;
        prepare(&stream)?;
        let mut bytes = vec![0; size];
        let mut samples = Vec::with_capacity(ROUND_TRIPS as usize);
        for _ in 0..ROUND_TRIPS {
            let start = now();
            stream.write_all(&bytes).map_err(failed)?;
            stream.read_exact(&mut bytes).map_err(failed)?;
            samples.push(start.elapsed().as_secs_f64() * 1e6 / 2.0);
        }
        Ok(median(samples))
    };
    on_two_cores(answer, ask)
}

/// A stream written in pieces of `size` bytes, GB/s (10^9).
pub(super) fn bandwidth_gbs(size: usize) -> Result<f64, Failure> {
    let listener = TcpListener::bind("127.0.0.1:0").map_err(failed)?;
    let address = listener.local_addr().map_err(failed)?;
    let pieces = (STREAMED / size).clamp(1, 1 << 18);
    let take = || {
        let (mut stream, _) = listener.accept().map_err(failed)?;
        prepare(&stream)?;
        let mut bytes = vec![0; size];
        for _ in 0..pieces {
            stream.read_exact(&mut bytes).map_err(failed)?;
        }
        stream.write_all(&[1]).map_err(failed)
    };
    let give = || {
        let mut stream = TcpStream::connect(address).map_err(failed)?;
        prepare(&stream)?;
        let bytes = vec![0; size];
        let start = now();
        for _ in 0..pieces {
            stream.write_all(&bytes).map_err(failed)?;
        }
        stream.read_exact(&mut [0]).map_err(failed)?;
        Ok((pieces * size) as f64 / start.elapsed().as_secs_f64() / 1e9)
    };
    on_two_cores(take, give)
}
