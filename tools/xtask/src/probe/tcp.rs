//! TCP over loopback between two pinned processes.
//!
//! *Owns*: the ping-pong, the stream, and the process at the other end of them.

use std::{
    io::{BufRead, BufReader, Read, Write},
    net::{SocketAddr, TcpListener, TcpStream},
    process::{Child, Command},
    time::Duration,
};

use clap::ValueEnum;

use super::{ProbeKind, median, pin};
use crate::{
    clock::now,
    pair::{CLIENT_CORE, SERVER_CORE, finish, spawn},
    say::{Failure, TaskResult, say},
};

/// Round trips of one measurement.
const ROUND_TRIPS: u32 = 20_000;
/// Bytes streamed by one measurement.
const STREAMED: usize = 2 << 30;
/// Longest wait for the other side.
const BOUND: Duration = Duration::from_secs(20);

fn failed(error: std::io::Error) -> Failure {
    Failure(format!("TCP: {error}"))
}

fn prepare(stream: &TcpStream) -> TaskResult {
    stream.set_nodelay(true).map_err(failed)?;
    stream.set_read_timeout(Some(BOUND)).map_err(failed)?;
    stream.set_write_timeout(Some(BOUND)).map_err(failed)
}

/// The other end: says its port on standard output, answers one connection.
pub(super) fn serve(what: ProbeKind, size: usize, address: Option<SocketAddr>) -> TaskResult {
    pin(SERVER_CORE);
    let listener =
        TcpListener::bind(address.unwrap_or_else(|| ([127, 0, 0, 1], 0).into())).map_err(failed)?;
    say(&listener.local_addr().map_err(failed)?.port().to_string());
    let (mut stream, _) = listener.accept().map_err(failed)?;
    prepare(&stream)?;
    let mut bytes = vec![0; size];
    if what == ProbeKind::TcpLat {
        for _ in 0..ROUND_TRIPS {
            stream.read_exact(&mut bytes).map_err(failed)?;
            stream.write_all(&bytes).map_err(failed)?;
        }
        return Ok(());
    }
    for _ in 0..pieces_of(size) {
        stream.read_exact(&mut bytes).map_err(failed)?;
    }
    stream.write_all(&[1]).map_err(failed)
}

/// Half a round trip of `size` bytes, microseconds.
pub(super) fn latency_us(size: usize, to: Option<SocketAddr>) -> Result<f64, Failure> {
    with_other_end(ProbeKind::TcpLat, (size, to), |stream| {
        let mut bytes = vec![0; size];
        let mut samples = Vec::with_capacity(ROUND_TRIPS as usize);
        for _ in 0..ROUND_TRIPS {
            let start = now();
            stream.write_all(&bytes).map_err(failed)?;
            stream.read_exact(&mut bytes).map_err(failed)?;
            samples.push(start.elapsed().as_secs_f64() * 1e6 / 2.0);
        }
        Ok(median(samples))
    })
}

/// A stream written in pieces of `size` bytes, GB/s (10^9).
pub(super) fn bandwidth_gbs(size: usize, to: Option<SocketAddr>) -> Result<f64, Failure> {
    with_other_end(ProbeKind::TcpBw, (size, to), |stream| {
        let bytes = vec![0; size];
        let start = now();
        for _ in 0..pieces_of(size) {
            stream.write_all(&bytes).map_err(failed)?;
        }
        stream.read_exact(&mut [0]).map_err(failed)?;
        Ok((pieces_of(size) * size) as f64 / start.elapsed().as_secs_f64() / 1e9)
    })
}

fn pieces_of(size: usize) -> usize {
    (STREAMED / size).clamp(1, 1 << 18)
}

/// Talks to the other end at `to`; without one, starts it as a process of its own, pinned like the server of a measured pair, and
/// talks to it from the client's core.
fn with_other_end(
    what: ProbeKind,
    (size, to): (usize, Option<SocketAddr>),
    talk: impl FnOnce(&mut TcpStream) -> Result<f64, Failure>,
) -> Result<f64, Failure> {
    if let Some(to) = to {
        let mut stream = TcpStream::connect(to).map_err(failed)?;
        prepare(&stream)?;
        pin(CLIENT_CORE);
        return talk(&mut stream);
    }
    let name = what.to_possible_value().ok_or_else(|| Failure("a hidden probe".to_owned()))?;
    let mut command = Command::new(std::env::current_exe().map_err(failed)?);
    command.args(["probe", name.get_name(), "--serve", "--size", &size.to_string()]);
    let mut other = spawn(command)?;
    let value = connect(&mut other).and_then(|mut stream| {
        pin(CLIENT_CORE);
        talk(&mut stream)
    });
    if value.is_err() {
        let _ = other.kill();
    }
    let output = finish(other)?;
    match value {
        Ok(_) if !output.status.success() => Err(Failure("TCP: the other end failed".to_owned())),
        value => value,
    }
}

/// Connects to the port that the other end says.
fn connect(other: &mut Child) -> Result<TcpStream, Failure> {
    let mut line = String::new();
    let said = other.stdout.take().ok_or_else(|| Failure("TCP: no output".to_owned()))?;
    BufReader::new(said).read_line(&mut line).map_err(failed)?;
    let port: u16 =
        line.trim().parse().map_err(|_| Failure(format!("TCP: the other end said {line:?}")))?;
    let stream = TcpStream::connect(("127.0.0.1", port)).map_err(failed)?;
    prepare(&stream)?;
    Ok(stream)
}
