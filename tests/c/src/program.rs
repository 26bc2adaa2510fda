//! Programs that run.
//!
//! *Owns*: the limit of time. *Takes*: commands. *Gives*: what they said and how they ended.
//! *Must not*: leave a process behind.

use std::{
    io::{BufRead, BufReader, Read},
    process::{Child, ChildStdout, Command, ExitStatus, Stdio},
    thread::JoinHandle,
};

/// A program that runs under `timeout`, so that nothing that hangs stays.
#[derive(Debug)]
pub struct Running {
    name: String,
    child: Child,
    out: BufReader<ChildStdout>,
    err: Option<JoinHandle<String>>,
}

/// What a program said, and how it ended.
#[derive(Debug)]
pub struct Said {
    /// Text that the program wrote to standard output.
    pub out: String,
    /// Text that the program wrote to standard error.
    pub err: String,
    /// Exit code or signal of the program.
    pub status: ExitStatus,
}

/// Seconds that a program has; generous, for hangs only.
const LIMIT: &str = "400";

/// Starts a program.
///
/// # Panics
/// When it cannot be started.
#[must_use]
pub fn start(command: &Command) -> Running {
    let name = format!("{command:?}");
    let mut limited = Command::new("timeout");
    limited.args(["-k", "5", LIMIT]).arg(command.get_program()).args(command.get_args());
    // A test is reached from its own host only, unless it says otherwise.
    limited.env("URMA_EID", "random");
    limited.envs(command.get_envs().filter_map(|(key, value)| Some((key, value?))));
    limited.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = limited.spawn().expect("the program starts");
    let out = BufReader::new(child.stdout.take().expect("piped"));
    let mut pipe = child.stderr.take().expect("piped");
    let read = move || {
        let mut bytes = Vec::new();
        pipe.read_to_end(&mut bytes).expect("standard error");
        String::from_utf8_lossy(&bytes).into_owned()
    };
    Running { name, child, out, err: Some(std::thread::spawn(read)) }
}

impl Running {
    /// The next line of its standard output.
    ///
    /// # Panics
    /// When standard output cannot be read.
    pub fn line(&mut self) -> String {
        let mut line = String::new();
        self.out.read_line(&mut line).expect("standard output");
        line
    }

    /// Waits for its end, whatever it is.
    ///
    /// # Panics
    /// When that cannot be waited for.
    #[must_use]
    pub fn end(mut self) -> Said {
        let mut out = String::new();
        self.out.read_to_string(&mut out).expect("standard output");
        let err = self.err.take().expect("read once").join().expect("the reader ends");
        Said { out, err, status: self.child.wait().expect("an end") }
    }

    /// Waits for its good end.
    ///
    /// # Panics
    /// When it ends badly, or not in time.
    #[must_use]
    pub fn good(self) -> Said {
        let name = self.name.clone();
        let said = self.end();
        assert!(said.status.success(), "{name}: {}\n{}\n{}", said.status, said.out, said.err);
        said
    }
}

/// Runs a program to its good end.
///
/// # Panics
/// When it ends badly, or not in time.
#[must_use]
pub fn finish(command: &Command) -> Said {
    start(command).good()
}
