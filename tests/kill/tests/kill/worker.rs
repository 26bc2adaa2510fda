//! A worker process as the test sees it.
//!
//! *Owns*: the process (ended when the value goes), its journal, the channel to it. *Must not*: end
//! anything else.

use std::{
    io,
    os::{fd::AsRawFd, fd::OwnedFd, unix::net::UnixStream, unix::process::ExitStatusExt},
    path::PathBuf,
    process::{Child, Command, ExitStatus, Stdio},
    time::Duration,
};

use rustix::process::{Pid, Signal, kill_process};
use urma_kill::{
    channel::{Channel, Endpoint, Word},
    journal::JOURNAL_LEN,
    pause::{Bound, rest},
};
use urma_mem::{Pages, Region};

/// Nothing takes longer, however loaded the machine is.
pub(crate) const HANG: Duration = Duration::from_secs(60);

pub(crate) struct Worker {
    pub(crate) name: &'static str,
    pub(crate) eid: String,
    child: Child,
    pub(crate) channel: Channel,
    journal: Region,
    status: Option<ExitStatus>,
}

impl Worker {
    /// Starts a worker; its node is open when this returns.
    pub(crate) fn start(name: &'static str, variables: &[(&str, &str)]) -> Result<Self, String> {
        Self::start_with(name, variables, &[])
    }

    /// Starts a worker with more arguments.
    pub(crate) fn start_with(
        name: &'static str,
        variables: &[(&str, &str)],
        arguments: &[&str],
    ) -> Result<Self, String> {
        let text = |error: io::Error| format!("{name} does not start: {error}");
        let journal = Region::shared(JOURNAL_LEN, Pages::Base).map_err(text)?;
        let (near, far) = UnixStream::pair().map_err(text)?;
        let child = Command::new(env!("CARGO_BIN_EXE_kill_worker"))
            .arg("--journal")
            .arg(path_of(&journal))
            .args(arguments)
            .env_remove("URMA_KILL_AT")
            .env("URMA_EID", "random")
            .envs(variables.iter().copied())
            .stdin(Stdio::from(OwnedFd::from(far)))
            .stdout(Stdio::null())
            .spawn()
            .map_err(text)?;
        let channel = Channel::new(near);
        let mut worker = Self { name, eid: String::new(), child, channel, journal, status: None };
        match worker.receive()? {
            Word::Ready { eid } => worker.eid = eid,
            other => return Err(format!("{name} sent {other:?} instead of `ready`")),
        }
        Ok(worker)
    }

    /// Where its journal can be read, also after its death.
    pub(crate) fn journal(&self) -> PathBuf {
        path_of(&self.journal)
    }

    pub(crate) fn say(&mut self, word: &Word) -> Result<(), String> {
        self.channel.say(word).map_err(|error| format!("{} cannot be reached: {error}", self.name))
    }

    pub(crate) fn receive(&mut self) -> Result<Word, String> {
        let received = self.channel.wait(HANG);
        received.map_err(|error| format!("{} sent nothing: {error}", self.name))
    }

    pub(crate) fn receive_endpoint(&mut self) -> Result<Endpoint, String> {
        match self.receive()? {
            Word::Endpoint(endpoint) => Ok(endpoint),
            other => Err(format!("{} sent {other:?} instead of its address", self.name)),
        }
    }

    pub(crate) fn expect(&mut self, due: &Word) -> Result<(), String> {
        let word = self.receive()?;
        let wrong = || format!("{} sent {word:?} instead of {due:?}", self.name);
        if word == *due { Ok(()) } else { Err(wrong()) }
    }

    pub(crate) fn signal(&self, signal: Signal) {
        // Until it is waited for, its number is its own; a dead one takes no harm.
        if self.status.is_none() {
            let _ = kill_process(Pid::from_child(&self.child), signal);
        }
    }

    /// Its end, if it comes in time.
    pub(crate) fn wait(&mut self, limit: Duration) -> Option<ExitStatus> {
        let bound = Bound::after(limit);
        while self.status.is_none() {
            self.status = self.child.try_wait().ok().flatten();
            if self.status.is_none() {
                if bound.is_over() {
                    return None;
                }
                rest(Duration::from_millis(1));
            }
        }
        self.status
    }

    /// Kills it and waits.
    pub(crate) fn kill(&mut self) -> Result<(), String> {
        self.signal(Signal::KILL);
        match self.wait(HANG) {
            Some(status) if status.signal() == Some(Signal::KILL.as_raw()) => Ok(()),
            other => Err(format!("{} ended by itself: {other:?}", self.name)),
        }
    }

    /// Asks the separate judge for its word on the journal.
    pub(crate) fn judged(&self, demand: &[&str]) -> Result<(), String> {
        let mut judge = Command::new(env!("CARGO_BIN_EXE_kill_judge"));
        let output = judge.args(demand).arg("--json").arg(self.journal()).output();
        let output = output.map_err(|error| format!("the judge does not start: {error}"))?;
        if output.status.success() {
            return Ok(());
        }
        let text = String::from_utf8_lossy(&output.stdout);
        Err(format!("the judge on the {}: {text:.600}", self.name))
    }

    /// Lets it close its node and end.
    pub(crate) fn quit(&mut self) -> Result<(), String> {
        self.say(&Word::Quit)?;
        match self.wait(HANG) {
            Some(status) if status.success() => Ok(()),
            other => Err(format!("{} ended wrongly: {other:?}", self.name)),
        }
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        if self.status.is_none() {
            let _ = self.child.kill();
            let _ = self.child.wait();
        }
    }
}

fn path_of(journal: &Region) -> PathBuf {
    let fd = journal.fd().expect("shared memory has a file").0.as_raw_fd();
    PathBuf::from(format!("/proc/{}/fd/{fd}", std::process::id()))
}
