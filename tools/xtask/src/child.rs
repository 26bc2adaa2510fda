//! Programs that this one starts, with their output and an end to each; tools of the system; stations of in-network
//! computing (controllers, switches, hosts) as processes.
//!
//! A child has a process group, which must not outlive its bound. Stations have a network namespace each or, without
//! the right to make some, addresses of the loopback interface.

use std::{
    fs::{self, File},
    io::{BufRead, BufReader},
    net::{IpAddr, Ipv4Addr},
    os::unix::process::CommandExt,
    path::{Path, PathBuf},
    process::{Child, Command, ExitStatus, Stdio},
    thread,
    time::{Duration, Instant},
};

use nix::{
    sys::signal::{Signal, killpg},
    unistd::Pid,
};
use serde_json::Value;
use urma_net::{Lab, LabPlan};

use crate::{
    clock::{now, pause},
    say::{Failure, TaskResult, say},
};

/// Pause between two looks at a running child.
pub(crate) const LOOK: Duration = Duration::from_millis(10);

/// How a child ended.
#[derive(Debug)]
pub(crate) struct ChildEnd {
    /// Its status; `None` if it was killed at the bound.
    pub(crate) status: Option<ExitStatus>,
    /// What is in its log: standard output and standard error, in the order of their writes.
    pub(crate) text: String,
    /// Time from its start to its end.
    pub(crate) took: Duration,
}

impl ChildEnd {
    /// Whether the child ended by itself, with success.
    pub(crate) fn is_success(&self) -> bool {
        self.status.is_some_and(|status| status.success())
    }
}

/// A child at work.
#[derive(Debug)]
pub(crate) struct RunningChild {
    child: Child,
    log: PathBuf,
    start: Instant,
    bound: Duration,
}

impl RunningChild {
    /// Starts `command` with its output in the file `log`, for at most `bound`.
    pub(crate) fn start(command: Command, log: &Path, bound: Duration) -> Result<Self, Failure> {
        let out = log_file(log)?;
        let err = out.try_clone().map_err(Failure::system("making a log"))?;
        Self::spawn(command, log, (out, err), bound)
    }

    /// As [`Self::start`], with standard output in a file of its own: `out`.
    pub(crate) fn start_apart(
        command: Command,
        log: &Path,
        out: &Path,
        bound: Duration,
    ) -> Result<Self, Failure> {
        Self::spawn(command, log, (log_file(out)?, log_file(log)?), bound)
    }

    fn spawn(
        mut command: Command,
        log: &Path,
        (out, err): (File, File),
        bound: Duration,
    ) -> Result<Self, Failure> {
        command.stdin(Stdio::null()).stdout(out).stderr(err).process_group(0);
        let child = command.spawn().map_err(Failure::system("cannot start"))?;
        Ok(Self { child, log: log.to_path_buf(), start: now(), bound })
    }

    /// The end of the child, if it came; a child over its bound is killed with its group.
    pub(crate) fn ended(&mut self) -> Result<Option<ChildEnd>, Failure> {
        let status = self.child.try_wait().map_err(Failure::system("waiting"))?;
        if status.is_none() {
            if self.start.elapsed() < self.bound {
                return Ok(None);
            }
            let group = Pid::from_raw(self.child.id().cast_signed());
            // The group may have ended in between; the child is then reaped all the same.
            let _ = killpg(group, Signal::SIGKILL);
            self.child.wait().map_err(Failure::system("waiting"))?;
        }
        let took = self.start.elapsed();
        let bytes = fs::read(&self.log).map_err(Failure::system("reading a log"))?;
        Ok(Some(ChildEnd { status, text: String::from_utf8_lossy(&bytes).into_owned(), took }))
    }

    /// Waits for the end, and calls `look` every now and then.
    pub(crate) fn wait(mut self, mut look: impl FnMut()) -> Result<ChildEnd, Failure> {
        loop {
            if let Some(ended) = self.ended()? {
                return Ok(ended);
            }
            look();
            pause(LOOK);
        }
    }
}

/// Runs `command` for at most `bound`, its output in the file `log`.
pub(crate) fn run(command: Command, log: &Path, bound: Duration) -> Result<ChildEnd, Failure> {
    RunningChild::start(command, log, bound)?.wait(|| {})
}

/// Standard output of `command`, which must end with success.
pub(crate) fn output(command: &mut Command) -> Result<String, Failure> {
    let name = command.get_program().to_string_lossy().into_owned();
    let output = command.output().map_err(|error| Failure(format!("{name}: {error}")))?;
    if output.status.success() {
        return Ok(String::from_utf8_lossy(&output.stdout).into_owned());
    }
    let why = String::from_utf8_lossy(&output.stderr);
    Err(Failure(format!("{name}: {}: {}", output.status, why.trim())))
}

fn log_file(path: &Path) -> Result<File, Failure> {
    fs::create_dir_all(path.parent().unwrap_or(path))
        .map_err(Failure::system("making the folder of logs"))?;
    File::create(path).map_err(Failure::system("making a log"))
}

/// Installs a program when it is missing and may be.
pub(crate) fn tool(tool: &str, package: &str) -> TaskResult {
    let is_there = || {
        if tool.starts_with('/') {
            return Path::new(tool).exists();
        }
        Command::new(tool)
            .arg(if matches!(tool, "ip" | "iverilog") { "-V" } else { "--version" })
            .output()
            .is_ok_and(|out| out.status.success())
    };
    if is_there() {
        return Ok(());
    }
    for args in [&["update"][..], &["install", "-y", package]] {
        // What became of it shows below: without the right to install, or without apt, nothing.
        let _ =
            Command::new("apt-get").args(args).env("DEBIAN_FRONTEND", "noninteractive").output();
    }
    if is_there() {
        return Ok(());
    }
    Err(Failure(format!("{tool} is missing: apt-get install {package} (as root)")))
}

/// A packet of 4096 bytes and its headers fit.
const MTU: u32 = 9000;
/// No station is waited for longer.
pub(crate) const HANG: Duration = Duration::from_secs(120);

/// Where the stations are.
pub(crate) enum Places {
    Namespaces(Lab),
    Loopback,
}

/// Processes that end with this value.
#[derive(Default)]
pub(crate) struct Stations(pub(crate) Vec<Child>);

impl Stations {
    /// Whether one of them has not ended.
    pub(crate) fn are_running(&mut self) -> Result<bool, Failure> {
        for child in &mut self.0 {
            if child.try_wait().map_err(Failure::system("waiting for a program"))?.is_none() {
                return Ok(true);
            }
        }
        Ok(false)
    }
}

impl Drop for Stations {
    fn drop(&mut self) {
        for child in &mut self.0 {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

impl Places {
    pub(crate) fn new(stations: u8) -> Self {
        match Lab::new(LabPlan::bridge(stations, MTU)) {
            Ok(lab) => Self::Namespaces(lab),
            Err(refused) => {
                say(&format!("No network namespaces ({refused}): all on loopback addresses."));
                Self::Loopback
            }
        }
    }

    pub(crate) fn address(&self, station: u8) -> IpAddr {
        match self {
            Self::Namespaces(lab) => lab.host(station.into()).address(),
            Self::Loopback if station == 0 => Ipv4Addr::LOCALHOST.into(),
            Self::Loopback => Ipv4Addr::new(127, 46, 0, station).into(),
        }
    }

    pub(crate) fn start(&self, station: u8, command: &mut Command) -> Result<Child, Failure> {
        let what = command.get_program().to_string_lossy().into_owned();
        command.stdout(Stdio::piped());
        let started = match self {
            Self::Namespaces(lab) => lab.host(station.into()).run(|| command.spawn()),
            Self::Loopback => command.spawn(),
        };
        started.map_err(|error| Failure(format!("{what}: {error}")))
    }

    /// What a program that soon ends wrote.
    pub(crate) fn output(&self, station: u8, command: &mut Command) -> Result<String, Failure> {
        let child = self.start(station, command)?;
        let output = child.wait_with_output().map_err(Failure::system("waiting for a program"))?;
        Ok(String::from_utf8_lossy(&output.stdout).into_owned())
    }
}

/// Starts a program that says a line when it is ready.
pub(crate) fn start(
    places: &Places,
    stations: &mut Stations,
    station: u8,
    command: &mut Command,
) -> TaskResult {
    let mut child = places.start(station, command)?;
    let output = child.stdout.take();
    stations.0.push(child);
    let mut line = String::new();
    let read = output.map(|output| BufReader::new(output).read_line(&mut line));
    match read {
        Some(Ok(len)) if len != 0 => Ok(()),
        _ => Err(Failure(format!("{} ended at once", command.get_program().to_string_lossy()))),
    }
}

/// What a host has to say at its end.
pub(crate) fn result(mut child: Child) -> Result<Value, Failure> {
    let mut waited = Duration::ZERO;
    let step = Duration::from_millis(20);
    while child.try_wait().map_err(Failure::system("waiting for a host"))?.is_none() {
        if waited > HANG {
            let _ = child.kill();
            let _ = child.wait();
            return Err(Failure(format!("a host did not end within {} s", HANG.as_secs())));
        }
        thread::park_timeout(step);
        waited += step;
    }
    let output = child.wait_with_output().map_err(Failure::system("waiting for a host"))?;
    if !output.status.success() {
        return Err(Failure(format!("a host ended with {}", output.status)));
    }
    serde_json::from_slice(&output.stdout)
        .map_err(|error| Failure(format!("a host wrote no JSON: {error}")))
}
