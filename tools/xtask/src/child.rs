//! Programs that this one starts: their output, and an end to each.
//!
//! *Owns*: a child with its process group, the file of its output. *Takes*: a command and a bound.
//! *Gives*: how it ended and what it printed. *Must not*: outlive the bound, leave a group behind.

use std::{
    fs::{self, File},
    os::unix::process::CommandExt,
    path::Path,
    process::{Child, Command, ExitStatus, Stdio},
    time::Duration,
};

use nix::{
    sys::signal::{Signal, killpg},
    unistd::Pid,
};

use crate::{
    clock::{now, pause},
    say::Failure,
};

/// Pause between two looks at a running child.
const LOOK: Duration = Duration::from_millis(20);

/// How a child ended.
#[derive(Debug)]
pub(crate) struct ChildEnd {
    /// Its status; `None` if it was killed at the bound.
    pub(crate) status: Option<ExitStatus>,
    /// Standard output and standard error, in the order of their writes.
    pub(crate) text: String,
}

impl ChildEnd {
    /// Whether the child ended by itself, with success.
    pub(crate) fn is_success(&self) -> bool {
        self.status.is_some_and(|status| status.success())
    }
}

/// Runs `command` for at most `bound`, its output in the file `log`.
pub(crate) fn run(mut command: Command, log: &Path, bound: Duration) -> Result<ChildEnd, Failure> {
    fs::create_dir_all(log.parent().unwrap_or(log))
        .map_err(Failure::system("making the folder of logs"))?;
    let out = File::create(log).map_err(Failure::system("making a log"))?;
    let err = out.try_clone().map_err(Failure::system("making a log"))?;
    command.stdin(Stdio::null()).stdout(out).stderr(err).process_group(0);
    let child = command.spawn();
    let status = wait(child.map_err(Failure::system("cannot start"))?, bound)?;
    let bytes = fs::read(log).map_err(Failure::system("reading a log"))?;
    Ok(ChildEnd { status, text: String::from_utf8_lossy(&bytes).into_owned() })
}

fn wait(mut child: Child, bound: Duration) -> Result<Option<ExitStatus>, Failure> {
    let start = now();
    loop {
        if let Some(status) = child.try_wait().map_err(Failure::system("waiting"))? {
            return Ok(Some(status));
        }
        if start.elapsed() >= bound {
            let group = Pid::from_raw(child.id().cast_signed());
            // The group may have ended in between; the child is then reaped all the same.
            let _ = killpg(group, Signal::SIGKILL);
            child.wait().map_err(Failure::system("waiting"))?;
            return Ok(None);
        }
        pause(LOOK);
    }
}
