//! A process on a host of a test.
//!
//! *Owns*: the process, which ends with this value. *Gives*: its lines while it runs, its output and
//! status. *Must not*: wait without a bound.

use std::{
    io::{self, BufRead, BufReader, Read},
    process::{Child, Command, ExitStatus, Stdio},
    sync::mpsc::{Receiver, RecvTimeoutError, channel},
    thread,
    time::Duration,
};

use nix::{
    sys::signal::{Signal, kill},
    unistd::Pid,
};

/// Nothing in these tests takes longer, however loaded the machine is.
pub const HANG: Duration = Duration::from_secs(60);

/// A process that was started on a host.
#[derive(Debug)]
pub struct Process {
    child: Child,
    lines: Receiver<String>,
    errors: Receiver<String>,
    status: Option<ExitStatus>,
}

/// What is left of a process.
#[derive(Debug)]
pub struct Ended {
    /// Exit code, or the signal that ended it.
    pub status: ExitStatus,
    /// Lines of its standard output that were not taken before.
    pub stdout: String,
    /// Lines of its standard error.
    pub stderr: String,
}

impl Process {
    /// Starts `command`, with its output here, in the namespace of the calling thread.
    pub(crate) fn start(command: &mut Command) -> io::Result<Self> {
        let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn()?;
        let lines = lines_of(child.stdout.take().map(|pipe| Box::new(pipe) as _));
        let errors = lines_of(child.stderr.take().map(|pipe| Box::new(pipe) as _));
        Ok(Self { child, lines, errors, status: None })
    }

    /// The process id; its own until this value is gone.
    #[must_use]
    pub fn id(&self) -> u32 {
        self.child.id()
    }

    /// The next line of its standard output; `None`: it has ended or closed its output.
    ///
    /// # Panics
    /// When there is none within [`HANG`].
    pub fn line(&mut self) -> Option<String> {
        match self.lines.recv_timeout(HANG) {
            Ok(line) => Some(line),
            Err(RecvTimeoutError::Disconnected) => None,
            Err(RecvTimeoutError::Timeout) => panic!("no line of process {}", self.id()),
        }
    }

    /// Closes its standard input, if that is a pipe.
    pub fn close_input(&mut self) {
        self.child.stdin.take();
    }

    /// Sends it a signal, unless it has ended.
    ///
    /// # Panics
    /// When the kernel refuses the signal.
    pub fn signal(&mut self, signal: Signal) {
        if self.status.is_none() {
            let pid = Pid::from_raw(self.id().cast_signed());
            kill(pid, signal).expect("a process that was not waited for takes a signal");
        }
    }

    /// Its end; killed when it does not come within [`HANG`].
    ///
    /// # Panics
    /// When it hangs.
    #[must_use]
    pub fn end(mut self) -> Ended {
        let rests = HANG.as_millis() / LOOK.as_millis();
        for _ in 0..rests {
            self.status = self.child.try_wait().expect("a child can be waited for");
            if let Some(status) = self.status {
                let (stdout, stderr) = (whole(&self.lines), whole(&self.errors));
                return Ended { status, stdout, stderr };
            }
            #[expect(clippy::disallowed_methods, reason = "a test waits for a process")]
            thread::sleep(LOOK);
        }
        let _ = self.child.kill();
        let _ = self.child.wait();
        panic!("process hangs; it wrote {} {}", whole(&self.lines), whole(&self.errors));
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        if self.status.is_none() {
            let _ = self.child.kill();
            let _ = self.child.wait();
        }
    }
}

/// The lines of a pipe as they come, so that the process never waits for a reader.
fn lines_of(pipe: Option<Box<dyn Read + Send>>) -> Receiver<String> {
    let (sender, lines) = channel();
    if let Some(pipe) = pipe {
        thread::spawn(move || {
            let lines = BufReader::new(pipe).lines().map_while(Result::ok);
            // A receiver that is gone takes no more lines.
            lines.for_each(|line| sender.send(line).unwrap_or_default());
        });
    }
    lines
}

/// What is left to be read until the pipe ends. A process that inherited it may hold it open.
fn whole(lines: &Receiver<String>) -> String {
    let mut text = String::new();
    while let Ok(line) = lines.recv_timeout(REST) {
        text.push_str(&line);
        text.push('\n');
    }
    text
}

/// Between two looks at a process.
const LOOK: Duration = Duration::from_millis(5);
/// For output behind the end of a process.
const REST: Duration = Duration::from_secs(2);
