//! What the machine itself can do, in one JSON line: the limits that results stand beside.
//!
//! Ping-pongs of pinned threads over cache lines and eventfds, copies, TCP over loopback between two pinned
//! processes. Must not use anything of the stack that is measured.

use std::{
    hint::black_box,
    io::{BufRead, BufReader, Read, Write},
    net::{SocketAddr, TcpListener, TcpStream},
    os::fd::AsFd,
    process::{Child, Command},
    thread,
    time::Duration,
};

use clap::ValueEnum;
use nix::{
    poll::{PollFd, PollFlags, PollTimeout, poll},
    sched::{CpuSet, sched_setaffinity},
    sys::eventfd::EventFd,
    unistd::Pid,
};
use urma_mem::sync::{AtomicU64, Ordering};

use crate::{
    clock::now,
    pair::{CLIENT_CORE, SERVER_CORE, finish, spawn},
    say::{Failure, TaskResult, say},
};

/// What can be measured.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
pub(crate) enum ProbeKind {
    /// Time of a cache line from one core to another, in microseconds
    CacheLine,
    /// Time of a wake-up by eventfd between two threads that sleep in poll, in microseconds
    EventFd,
    /// Speed of memcpy, in GB/s
    Memcpy,
    /// Half a round trip over TCP with TCP_NODELAY, in microseconds
    TcpLat,
    /// Speed of a TCP stream, in GB/s
    TcpBw,
}

/// Answers one measurement of another process over TCP.
pub(crate) fn serve(what: ProbeKind, size: usize, address: Option<SocketAddr>) -> TaskResult {
    match what {
        ProbeKind::TcpLat | ProbeKind::TcpBw => serve_tcp(what, size.clamp(1, 1 << 30), address),
        ProbeKind::CacheLine | ProbeKind::EventFd | ProbeKind::Memcpy => {
            Err(Failure("only TCP has another end".to_owned()))
        }
    }
}

/// Measures and prints `{"value": ...}`; TCP with the other end at `address`, or with one that it starts.
pub(crate) fn run(
    what: ProbeKind,
    size: usize,
    span: usize,
    address: Option<SocketAddr>,
) -> TaskResult {
    let size = size.clamp(1, 1 << 30);
    let value = match what {
        ProbeKind::CacheLine => cache_line_us()?,
        ProbeKind::EventFd => eventfd_us()?,
        ProbeKind::Memcpy => memcpy_gbs(size, span),
        ProbeKind::TcpLat => latency_us(size, address)?,
        ProbeKind::TcpBw => bandwidth_gbs(size, address)?,
    };
    say(&serde_json::json!({ "value": value }).to_string());
    Ok(())
}

/// The middle of some values: other programs of the machine disturb the mean.
fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values.get(values.len() / 2).copied().unwrap_or(0.0)
}

/// Pins the calling thread to `core`; on a machine without that core it stays where it is.
pub(crate) fn pin(core: usize) {
    let mut set = CpuSet::new();
    if set.set(core).is_ok() {
        let _ = sched_setaffinity(Pid::from_raw(0), &set);
    }
}

/// Runs `other` pinned to the server's core and `mine` pinned to the client's.
fn on_two_cores<T: Send>(
    other: impl FnOnce() -> TaskResult + Send,
    mine: impl FnOnce() -> Result<T, Failure>,
) -> Result<T, Failure> {
    thread::scope(|scope| {
        let other = scope.spawn(|| {
            pin(SERVER_CORE);
            other()
        });
        pin(CLIENT_CORE);
        let value = mine();
        other.join().map_err(|_| Failure("a probe's thread failed".to_owned()))??;
        value
    })
}

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
fn cache_line_us() -> Result<f64, Failure> {
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
fn memcpy_gbs(size: usize, span: usize) -> f64 {
    pin(CLIENT_CORE);
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

/// Round trips of one measurement.
const WAKEUPS: usize = 20_000;
/// Longest wait for the other thread, in ms.
const BOUND_MS: u16 = 10_000;

/// Half a round trip of two threads that sleep in poll until the other writes, microseconds.
fn eventfd_us() -> Result<f64, Failure> {
    let new = || EventFd::new().map_err(|error| Failure(format!("eventfd: {error}")));
    let (ping, pong) = (new()?, new()?);
    let answer = || {
        for _ in 0..WAKEUPS {
            sleep(&ping)?;
            wake(&pong)?;
        }
        Ok(())
    };
    let ask = || {
        let mut samples = Vec::with_capacity(WAKEUPS);
        for _ in 0..WAKEUPS {
            let start = now();
            wake(&ping)?;
            sleep(&pong)?;
            samples.push(start.elapsed().as_secs_f64() * 1e6 / 2.0);
        }
        Ok(median(samples))
    };
    on_two_cores(answer, ask)
}

fn wake(event: &EventFd) -> TaskResult {
    event.write(1).map(drop).map_err(|error| Failure(format!("writing an eventfd: {error}")))
}

fn sleep(event: &EventFd) -> TaskResult {
    let mut ready = [PollFd::new(event.as_fd(), PollFlags::POLLIN)];
    match poll(&mut ready, PollTimeout::from(BOUND_MS)) {
        Ok(0) => Err(Failure("the other thread does not wake this one".to_owned())),
        Ok(_) => event.read().map(drop).map_err(|error| Failure(format!("reading it: {error}"))),
        Err(error) => Err(Failure(format!("poll: {error}"))),
    }
}

/// Round trips of one measurement.
const TCP_ROUND_TRIPS: u32 = 20_000;
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
fn serve_tcp(what: ProbeKind, size: usize, address: Option<SocketAddr>) -> TaskResult {
    pin(SERVER_CORE);
    let listener =
        TcpListener::bind(address.unwrap_or_else(|| ([127, 0, 0, 1], 0).into())).map_err(failed)?;
    say(&listener.local_addr().map_err(failed)?.port().to_string());
    let (mut stream, _) = listener.accept().map_err(failed)?;
    prepare(&stream)?;
    let mut bytes = vec![0; size];
    if what == ProbeKind::TcpLat {
        for _ in 0..TCP_ROUND_TRIPS {
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
fn latency_us(size: usize, to: Option<SocketAddr>) -> Result<f64, Failure> {
    with_other_end(ProbeKind::TcpLat, (size, to), |stream| {
        let mut bytes = vec![0; size];
        let mut samples = Vec::with_capacity(TCP_ROUND_TRIPS as usize);
        for _ in 0..TCP_ROUND_TRIPS {
            let start = now();
            stream.write_all(&bytes).map_err(failed)?;
            stream.read_exact(&mut bytes).map_err(failed)?;
            samples.push(start.elapsed().as_secs_f64() * 1e6 / 2.0);
        }
        Ok(median(samples))
    })
}

/// A stream written in pieces of `size` bytes, GB/s (10^9).
fn bandwidth_gbs(size: usize, to: Option<SocketAddr>) -> Result<f64, Failure> {
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
