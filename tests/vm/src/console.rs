//! The process of a machine, and the lines of its console.
//!
//! *Owns*: the process, which ends with the value. *Gives*: lines, each within a bound. *Must not*: wait for ever.

use std::{
    io::{self, BufRead, BufReader, Write},
    process::{Child, ChildStdin, Command, Stdio},
    sync::mpsc::{Receiver, RecvTimeoutError, channel},
    thread,
    time::Duration,
};

/// A machine at work.
#[derive(Debug)]
pub struct Console {
    machine: Child,
    input: ChildStdin,
    lines: Receiver<String>,
}

/// What a console gave within a time.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum ConsoleLine {
    /// A line, without its end.
    Text(String),
    /// No line came within the bound.
    Silence,
    /// The machine ended; no line follows.
    End,
}

impl Drop for Console {
    fn drop(&mut self) {
        // It has nothing to save.
        let _ = self.machine.kill();
        let _ = self.machine.wait();
    }
}

impl Console {
    /// Starts a machine whose console is its standard output.
    ///
    /// # Errors
    /// The system's error.
    pub fn start(command: &mut Command) -> io::Result<Self> {
        let mut machine = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn()?;
        let pipe = || io::Error::other("the console has no pipe");
        let input = machine.stdin.take().ok_or_else(pipe)?;
        let output = machine.stdout.take().ok_or_else(pipe)?;
        let (sender, lines) = channel();
        thread::spawn(move || {
            let mut output = BufReader::new(output);
            let mut line = Vec::new();
            // A machine may print bytes that are no text.
            while matches!(output.read_until(b'\n', &mut line), Ok(1..)) {
                let text = String::from_utf8_lossy(&line).trim_end().to_owned();
                if sender.send(text).is_err() {
                    return;
                }
                line.clear();
            }
        });
        Ok(Self { machine, input, lines })
    }

    /// Waits for the next line, at most `bound`.
    pub fn line(&mut self, bound: Duration) -> ConsoleLine {
        match self.lines.recv_timeout(bound) {
            Ok(line) => ConsoleLine::Text(line),
            Err(RecvTimeoutError::Timeout) => ConsoleLine::Silence,
            Err(RecvTimeoutError::Disconnected) => ConsoleLine::End,
        }
    }

    /// Types a line.
    ///
    /// # Errors
    /// The machine ended; no line follows.
    pub fn write_line(&mut self, line: &str) -> io::Result<()> {
        writeln!(self.input, "{line}")?;
        self.input.flush()
    }
}
