//! The budget of an operation between two processes of one host that are both awake: no system
//! call, no allocation. What a run costs besides its operations falls out: two runs, one twice as
//! long, are compared. A process that is kept from its processor for a while is not awake, and then
//! calls are due: those by which it gives way, a number of them for each time that it lost its processor, are not counted;
//! and on a busy machine the least of a few runs of each length is taken.
//!
//! *Owns*: the runs, the numbers, the limits. *Takes*: `strace`, which counts the calls of every
//! thread; `URMA_BUDGET_OPS`. *Must not*: run two pairs at once: they would not stay awake.
#![forbid(unsafe_code)]
#![expect(clippy::print_stdout, reason = "the numbers are printed for a reader")]

use std::{
    env,
    error::Error,
    fs,
    io::{BufRead, BufReader, Read, Write},
    path::{Path, PathBuf},
    process::{Child, ChildStdin, ChildStdout, Command, Stdio, id},
    sync::{Mutex, PoisonError},
};

type Outcome<T> = Result<T, Box<dyn Error>>;

/// Operations of the shorter run, unless the environment sets them.
const OPS: u64 = 1_000_000;
/// Operations of the shorter run with a planted mistake: enough to go over the budget.
const PLANTED_OPS: u64 = 200_000;
/// Allocations in a million operations that mean nothing, and that no planted fault stays below.
const ALLOCATIONS_LIMIT: i64 = 16;
/// Allocations of a message that begins ping-pong mode: the records of both halves of the mode. It ends where an answer
/// is late because an end lost its processor, and begins again some messages later.
const PING_PONG_ALLOCATIONS: i64 = 2;
/// System calls by which the longer run must stay below the shorter one's plus this.
const CALLS_LIMIT: i64 = 1000;
/// Calls of a poller that gives way: each time that it lost its processor, it yields and looks a number of times.
const YIELD_CALLS: [&str; 2] = ["sched_yield", "getrusage"];
/// How many of these are due each time.
const YIELD_CALLS_DUE: i64 = 40;
/// Where it lost two slices in a short time, it sleeps instead of spinning, for 0.25 s.
const SLEEP_CALLS: [&str; 2] = ["clock_nanosleep", "nanosleep"];
/// How many sleeps are due each time.
const SLEEP_CALLS_DUE: i64 = 4_000;
/// Runs of each length, at most.
const ATTEMPTS: usize = 3;

/// One pair at a time.
static TURN: Mutex<()> = Mutex::new(());

/// What a run took, in both processes; or by how much one took more than another.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Cost {
    /// System calls of all threads; none where nothing can count them.
    calls: Option<i64>,
    /// Allocations between start and end.
    allocations: i64,
}

impl Cost {
    fn is_within_budget(self) -> bool {
        self.calls.is_none_or(|calls| calls < CALLS_LIMIT) && self.has_few_allocations()
    }

    /// A row that grew once, because a thread lost its processor with more than usual in it, says nothing of operations.
    fn has_few_allocations(self) -> bool {
        self.allocations.abs() < ALLOCATIONS_LIMIT
    }

    fn more_than(self, less: Self) -> Self {
        let calls = self.calls.zip(less.calls).map(|(more, less)| more - less);
        Self { calls, allocations: self.allocations - less.allocations }
    }

    /// This with the calls of `other` if they are fewer; allocations of the one that has more.
    fn or_fewer_calls(self, other: Self) -> Self {
        let calls = self.calls.zip(other.calls).map(|(one, other)| one.min(other));
        Self { calls, allocations: self.allocations.max(other.allocations) }
    }
}

/// Which process makes which mistake.
#[derive(Clone, Copy, Debug, Default)]
struct Planted {
    client: Option<&'static str>,
    server: Option<&'static str>,
}

/// A worker, and where the count of its calls goes.
struct Worker {
    name: String,
    child: Child,
    input: Option<ChildStdin>,
    output: BufReader<ChildStdout>,
    calls: Option<PathBuf>,
}

impl Worker {
    fn start(part: &str, kind: &str, ops: u64, fault: Option<&str>) -> Outcome<Self> {
        let calls = has_strace().then(|| {
            let name = format!("{}-{part}-{kind}-{ops}.calls", id());
            Path::new(env!("CARGO_TARGET_TMPDIR")).join(name)
        });
        let worker = env!("CARGO_BIN_EXE_budget_worker");
        let mut command = match &calls {
            None => Command::new(worker),
            Some(path) => {
                let mut command = Command::new("strace");
                command.args(["-f", "-qq", "-c", "-o"]).arg(path).arg(worker);
                command
            }
        };
        command.args(["--part", part, "--kind", kind, "--ops", &ops.to_string()]);
        if let Some(fault) = fault {
            command.args(["--fault", fault]);
        }
        command.env("URMA_PATH", "same-host").stdin(Stdio::piped()).stdout(Stdio::piped());
        command.stderr(Stdio::piped());
        let mut child = command.spawn()?;
        let output = BufReader::new(child.stdout.take().ok_or("no output")?);
        let name = format!("{part} of {ops} operations ({kind})");
        Ok(Self { name, input: child.stdin.take(), child, output, calls })
    }

    fn receive(&mut self) -> Outcome<String> {
        let mut line = String::new();
        self.output.read_line(&mut line)?;
        if line.is_empty() { Err(self.early_end()) } else { Ok(line) }
    }

    /// Exit status and error output of a worker that ended too early. It does end: its waits are
    /// bounded.
    fn early_end(&mut self) -> Box<dyn Error> {
        let mut said = String::new();
        if let Some(error) = &mut self.child.stderr {
            // Without the error output, the status alone is reported.
            let _ = error.read_to_string(&mut said);
        }
        let status = self.child.wait().map_or_else(|error| error.to_string(), |s| s.to_string());
        let name = &self.name;
        format!("the {name} ended too early ({status}): {}", said.trim()).into()
    }

    fn tell(&mut self, line: &str) -> Outcome<()> {
        let input = self.input.as_mut().ok_or("no input")?;
        input.write_all(line.as_bytes())?;
        Ok(input.flush()?)
    }

    /// What it allocated, how often it lost its processor, and how often ping-pong mode began.
    fn done(&mut self) -> Outcome<[i64; 3]> {
        let line = self.receive()?;
        let counts = line.trim().strip_prefix("done ").ok_or("a worker is not done")?;
        let counts = counts.split(' ').map(str::parse).collect::<Result<Vec<i64>, _>>()?;
        Ok(counts.try_into().map_err(|_| "three counts are due")?)
    }

    /// Ends it; its calls, but for those that were due for its lost processor.
    fn end(mut self, switches: i64) -> Outcome<Option<i64>> {
        drop(self.input.take());
        if !self.child.wait()?.success() {
            return Err(self.early_end());
        }
        let Some(path) = self.calls.take() else { return Ok(None) };
        let table = fs::read_to_string(&path)?;
        fs::remove_file(&path)?;
        let due = |names: [&str; 2], each: i64| -> Outcome<i64> {
            let calls = names.map(|name| calls_of(&table, name));
            let [one, other] = calls;
            Ok((one? + other?).min(switches * each))
        };
        let given = due(YIELD_CALLS, YIELD_CALLS_DUE)? + due(SLEEP_CALLS, SLEEP_CALLS_DUE)?;
        Ok(Some(calls_of(&table, "total")? - given))
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        // Gone already in the good case.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn has_strace() -> bool {
    let mut command = Command::new("strace");
    command.arg("-V").stdout(Stdio::null()).stderr(Stdio::null());
    command.status().is_ok_and(|status| status.success())
}

/// The number of calls of this name in strace's table, whose lines are: share, seconds, microseconds per call, calls,
/// errors (may be missing), name; the last name is `total`. A call that was not made has no line.
fn calls_of(table: &str, name: &str) -> Outcome<i64> {
    let has_name = |line: &&str| line.split_whitespace().last() == Some(name);
    match table.lines().rfind(has_name) {
        Some(line) => Ok(line.split_whitespace().nth(3).ok_or("no calls in the line")?.parse()?),
        None if name == "total" => Err("no total".into()),
        None => Ok(0),
    }
}

/// Runs a pair of processes for `ops` operations.
fn run(kind: &str, ops: u64, planted: Planted) -> Outcome<Cost> {
    let mut server = Worker::start("server", kind, ops, planted.server)?;
    let mut client = Worker::start("client", kind, ops, planted.client)?;
    let (there, here) = (server.receive()?, client.receive()?);
    server.tell(&here)?;
    server.receive()?;
    client.tell(&there)?;
    client.receive()?;
    let (here, there) = (client.done()?, server.done()?);
    // It began once before the start; from then on for want of a processor alone.
    let switches = here[1] + there[1];
    let again = |begun: i64| (begun - 1).clamp(0, switches) * PING_PONG_ALLOCATIONS;
    let allocations = here[0] + there[0] - again(here[2]) - again(there[2]);
    let (client, server) = (client.end(here[1])?, server.end(there[1])?);
    Ok(Cost { calls: client.zip(server).map(|(client, server)| client + server), allocations })
}

/// What `ops` more operations cost: a run of so many, and one of twice as many.
fn difference(kind: &str, ops: u64, planted: Planted) -> Outcome<Cost> {
    let (short, long) = runs(kind, ops, planted)?;
    Ok(long.more_than(short))
}

/// A shorter and a longer run.
fn runs(kind: &str, ops: u64, planted: Planted) -> Outcome<(Cost, Cost)> {
    let _turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
    let (short, long) = (run(kind, ops, planted)?, run(kind, 2 * ops, planted)?);
    if short.calls.is_none() {
        urma_skip::skip(format_args!("system calls of {kind}: strace is not installed"));
    }
    println!("{kind}: {ops} operations {short:?}, {} operations {long:?}", 2 * ops);
    Ok((short, long))
}

fn ops() -> Outcome<u64> {
    Ok(env::var("URMA_BUDGET_OPS").map_or(Ok(OPS), |ops| ops.parse())?)
}

fn assert_within_budget(kind: &str) -> Outcome<()> {
    let (mut short, mut long) = runs(kind, ops()?, Planted::default())?;
    for _ in 1..ATTEMPTS {
        let cost = long.more_than(short);
        // Only operations allocate so often: that is never tried again.
        if cost.is_within_budget() || !cost.has_few_allocations() {
            break;
        }
        let again = runs(kind, ops()?, Planted::default())?;
        (short, long) = (short.or_fewer_calls(again.0), long.or_fewer_calls(again.1));
    }
    let cost = long.more_than(short);
    println!("{kind}: difference {cost:?}");
    assert!(cost.is_within_budget(), "{kind}: {cost:?}");
    Ok(())
}

#[test]
fn a_write_calls_nothing_and_allocates_nothing() -> Outcome<()> {
    assert_within_budget("write")
}

#[test]
fn writes_reads_and_atomics_call_nothing_and_allocate_nothing() -> Outcome<()> {
    assert_within_budget("mixed")
}

#[test]
fn a_message_calls_nothing_and_allocates_nothing() -> Outcome<()> {
    assert_within_budget("send")
}

#[test]
fn a_client_that_allocates_is_found() -> Outcome<()> {
    let planted = Planted { client: Some("allocation"), server: None };
    let cost = difference("write", PLANTED_OPS, planted)?;
    assert!(
        !cost.is_within_budget()
            && cost.allocations.abs_diff(200) < ALLOCATIONS_LIMIT.unsigned_abs(),
        "{cost:?}"
    );
    Ok(())
}

#[test]
fn a_server_that_allocates_is_found() -> Outcome<()> {
    let planted = Planted { client: None, server: Some("allocation") };
    let cost = runs("write", PLANTED_OPS, planted)?;
    assert!(cost.0.allocations > 0 && cost.1.allocations > 0, "{cost:?}");
    Ok(())
}

#[test]
fn a_client_that_calls_the_system_is_found() -> Outcome<()> {
    let planted = Planted { client: Some("call"), server: None };
    let cost = difference("write", PLANTED_OPS, planted)?;
    // Without strace the test was reported as skipped.
    assert!(cost.calls.is_none() || !cost.is_within_budget(), "{cost:?}");
    Ok(())
}

#[test]
fn a_worker_that_ends_says_why() -> Outcome<()> {
    let mut worker = Worker::start("client", "write", 1, None)?;
    let _its_line = worker.receive()?;
    worker.tell("nonsense\n")?;
    let why = worker.receive().expect_err("it ends").to_string();
    assert!(why.contains("client of 1 operations (write) ended too early"), "{why}");
    assert!(why.contains("exit status: 1") && why.contains("Error: "), "{why}");
    Ok(())
}

#[test]
fn calls_are_read_from_their_line() -> Outcome<()> {
    let table = "% time     seconds  usecs/call     calls    errors syscall\n\
                 ------ ----------- ----------- --------- --------- ----------------\n\
                 \x20 0.00    0.000000           0        10           read\n\
                 ------ ----------- ----------- --------- --------- ----------------\n\
                 100.00    0.000000           0        93         2 total\n";
    assert_eq!((calls_of(table, "total")?, calls_of(table, "read")?), (93, 10));
    assert_eq!(calls_of(table, "write")?, 0);
    assert!(calls_of("", "total").is_err());
    Ok(())
}
