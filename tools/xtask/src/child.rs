//! Programs that this one starts: their output, and an end to each.
//!
//! *Owns*: a child with its process group, the file of its output. *Takes*: a command and a bound.
//! *Gives*: how it ended and what it printed. *Must not*: outlive the bound, leave a group behind.
//!
//! Programs of the system that tasks call.
//!
//! *Owns*: how one is looked for and installed. *Takes*: its name and Debian's package. *Gives*: whether
//! it is there. *Must not*: decide what its lack means.

use std::{
    fs::{self, File},
    os::unix::process::CommandExt,
    path::{Path, PathBuf},
    process::{Child, Command, ExitStatus, Stdio},
    time::{Duration, Instant},
};

use nix::{
    sys::signal::{Signal, killpg},
    unistd::Pid,
};

use crate::{
    clock::{now, pause},
    say::{Failure, TaskResult},
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
