//! A virtual machine that does what a shell's lines say.
//!
//! *Owns*: the process, which ends with the value. *Takes*: lines for `guest/init-shell` and for the programs that those
//! start. *Gives*: lines that they print, each within a bound. *Must not*: wait for ever.

use std::{io, net::Ipv4Addr, time::Duration};

use urma_vm::console::{Console, ConsoleLine};

use crate::{Image, guest::machine, now};

/// Longest time that the guest may take to boot, without hardware support and beside other machines and builds.
const BOOT: Duration = Duration::from_secs(400);

/// What the guest prints when it takes lines, and behind what a line started.
const READY: &str = "= ready";
const DONE: &str = "= done ";

/// A machine with Linux rxe and a shell.
#[derive(Debug)]
pub struct ShellGuest {
    console: Console,
    /// What it printed, for messages.
    seen: String,
}

impl ShellGuest {
    /// Starts a machine with this address, whose interface is joined to the interface `tap` of the calling thread's network
    /// namespace. It boots meanwhile: see [`ShellGuest::ready`].
    ///
    /// # Errors
    /// Those of the system.
    pub fn start(image: &Image, tap: &str, address: Ipv4Addr) -> io::Result<Self> {
        let cable = format!("tap,id=n,ifname={tap},script=no,downscript=no");
        let [.., number] = address.octets();
        let mut machine = machine(image, &cable, number, &format!("address={address}"));
        Ok(Self { console: Console::start(&mut machine)?, seen: String::new() })
    }

    /// Waits until it has booted.
    ///
    /// # Errors
    /// It did not within 400 s.
    pub fn ready(&mut self) -> io::Result<()> {
        self.line(READY, BOOT).map(|_| ())
    }

    /// Types a line, for the shell or the program that runs.
    ///
    /// # Errors
    /// The machine ended.
    pub fn write(&mut self, line: &str) -> io::Result<()> {
        self.seen.clear();
        self.console.write_line(line)
    }

    /// Waits for a line with `part` in it: what follows that.
    ///
    /// # Errors
    /// The machine ended, what was started ended, or no such line came in time.
    pub fn line(&mut self, part: &str, limit: Duration) -> io::Result<String> {
        let end = now() + limit;
        while now() < end {
            match self.console.line(Duration::from_millis(50)) {
                ConsoleLine::Text(line) => {
                    if let Some((_, rest)) = line.split_once(part) {
                        return Ok(rest.trim().to_owned());
                    }
                    self.seen.push_str(&line);
                    self.seen.push('\n');
                    // An error of the first process, or the end of what was started.
                    if line.contains(DONE) || line.contains("= error") {
                        break;
                    }
                }
                ConsoleLine::Silence => {}
                ConsoleLine::End => break,
            }
        }
        Err(io::Error::other(format!("the guest says no {part:?}:\n{}", self.seen)))
    }

    /// Waits until what the last line started ends: its lines that were not taken before.
    ///
    /// # Errors
    /// As [`ShellGuest::line`], or it failed.
    pub fn end(&mut self, limit: Duration) -> io::Result<String> {
        let status = self.line(DONE, limit)?;
        let seen = std::mem::take(&mut self.seen);
        if status == "0" {
            Ok(seen)
        } else {
            Err(io::Error::other(format!("status {status}:\n{seen}")))
        }
    }

    /// Does what a line says; what it prints.
    ///
    /// # Errors
    /// As [`ShellGuest::end`].
    pub fn run(&mut self, line: &str, limit: Duration) -> io::Result<String> {
        self.write(line)?;
        self.end(limit)
    }
}
