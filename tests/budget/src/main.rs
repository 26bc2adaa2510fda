//! One of the two processes: does a number of operations, or is there for those of the other.
//!
//! *Owns*: the count of its allocations while it works. *Takes*: its part on the command line, its
//! peer's line on standard input. *Gives*: its own line, `set` when the peer is known, then
//! `done ALLOCATIONS SWITCHES PING-PONGS`: how often another thread got its processor, and ping-pong mode began. *Must not*: allocate or call the system between start and end, unless asked
//! to.
#![forbid(unsafe_code)]

use std::io::{self, BufRead, Write};

use clap::{Parser, ValueEnum};
use nix::sys::resource::{UsageWho, getrusage};
use urma_mem::count::{Counting, allocations};

mod duty;
use duty::Work;
use duty::{End, Outcome};

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// Which of the two.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
enum Part {
    Client,
    /// Is there, and answers messages.
    Server,
}

/// What an operation is.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
enum Kind {
    /// A WRITE of 8 bytes.
    Write,
    /// Alternately a WRITE, a READ and a fetch-and-add of 8 bytes.
    Mixed,
    /// A message of 8 bytes and its answer.
    Send,
}

/// A mistake that this process makes on purpose.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
enum Fault {
    /// Allocates once in a thousand operations.
    Allocation,
    /// Calls the system once in twenty operations.
    Call,
}

#[derive(Debug, Parser)]
struct Args {
    #[arg(long)]
    part: Part,
    #[arg(long)]
    kind: Kind,
    /// Operations between start and end.
    #[arg(long)]
    ops: u64,
    #[arg(long)]
    fault: Option<Fault>,
}

fn main() -> Outcome<()> {
    let args = Args::parse();
    let end = End::open()?;
    say(&end.line()?)?;
    let peer = end.import(&received()?)?;
    say("set")?;
    let mut work = Work::new(end, peer, args.fault);
    let count = match (args.part, args.kind) {
        (Part::Client, Kind::Send) => work.ping(args.ops),
        (Part::Server, Kind::Send) => work.pong(args.ops),
        (Part::Client, kind) => work.one_sided(args.ops, kind),
        (Part::Server, _) => work.stand_by(),
    }?;
    let switches = getrusage(UsageWho::RUSAGE_SELF)?.involuntary_context_switches();
    say(&format!("done {count} {switches} {}", work.ping_pongs()?))?;
    // The end of the input: both are done.
    received()?;
    Ok(())
}

/// Writes a line for the process that started this.
fn say(line: &str) -> io::Result<()> {
    let mut out = io::stdout().lock();
    writeln!(out, "{line}")?;
    out.flush()
}

/// Reads a line of the process that started this; empty at the end.
fn received() -> io::Result<String> {
    let mut line = String::new();
    io::stdin().lock().read_line(&mut line)?;
    Ok(line)
}

fn allocations_since(start: u64) -> u64 {
    allocations() - start
}
