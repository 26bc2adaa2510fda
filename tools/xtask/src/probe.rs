//! What the machine itself can do: the limits that results stand beside.
//!
//! *Owns*: pinned threads. *Takes*: what to measure. *Gives*: one JSON line.
//! *Must not*: use anything of the stack that is measured.

use std::{net::SocketAddr, thread};

use clap::ValueEnum;
use nix::{
    sched::{CpuSet, sched_setaffinity},
    unistd::Pid,
};

use crate::say::{Failure, TaskResult, say};

mod memory;
mod tcp;
mod wakeup;

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
        ProbeKind::TcpLat | ProbeKind::TcpBw => tcp::serve(what, size.clamp(1, 1 << 30), address),
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
        ProbeKind::CacheLine => memory::cache_line_us()?,
        ProbeKind::EventFd => wakeup::eventfd_us()?,
        ProbeKind::Memcpy => memory::memcpy_gbs(size, span),
        ProbeKind::TcpLat => tcp::latency_us(size, address)?,
        ProbeKind::TcpBw => tcp::bandwidth_gbs(size, address)?,
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
            pin(crate::pair::SERVER_CORE);
            other()
        });
        pin(crate::pair::CLIENT_CORE);
        let value = mine();
        other.join().map_err(|_| Failure("a probe's thread failed".to_owned()))??;
        value
    })
}
