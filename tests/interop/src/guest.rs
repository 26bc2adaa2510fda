//! Virtual machines with Linux rxe: the process, and commands and answers on its console.
//!
//! One kind takes commands of `guest/guest.c`, the other lines for `guest/init-shell` and the programs that those
//! start. The process ends with the value. Each answer has a bound: nothing waits for ever.

use std::{
    io,
    net::Ipv4Addr,
    process::{Command, Stdio},
    time::Duration,
};

use urma_vm::console::{Console, ConsoleLine};

use crate::{Image, now};

/// Longest time that the guest may take to boot, without hardware support.
const BOOT: Duration = Duration::from_secs(90);
/// Longest time for one answer.
const ANSWER: Duration = Duration::from_secs(20);

/// QEMU with an image: its interface has the hardware address of this number and leads to `cable`; `words` stand on the
/// kernel's command line.
pub(crate) fn machine(image: &Image, cable: &str, number: u8, words: &str) -> Command {
    let mut machine = Command::new("qemu-system-x86_64");
    machine
        .args(["-accel", "tcg", "-m", "384", "-nodefaults", "-display", "none", "-no-reboot"])
        .args(["-append", &format!("console=ttyS0 quiet panic=-1 mitigations=off {words}")])
        .args(["-serial", "stdio", "-netdev", cable, "-device"])
        .arg(format!("virtio-net-pci,netdev=n,mac=02:00:00:00:00:{number:02x},romfile="))
        .arg("-kernel")
        .arg(&image.kernel)
        .arg("-initrd")
        .arg(&image.initrd)
        .stderr(Stdio::inherit());
    machine
}

/// A completion of the guest's queue pair.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct GuestCompletion {
    /// Number of the request or receive.
    pub id: u64,
    /// Status as verbs number it (`ibv_wc_status`).
    pub status: u32,
    /// Bytes of the message.
    pub len: u32,
    /// Immediate data, 0 without.
    pub imm: u32,
}

/// A machine with Linux rxe.
#[derive(Debug)]
pub struct Guest(Console);

impl Guest {
    /// Boots the image. Its interface sends frames in datagrams to port `here` of this host, and takes
    /// them at port `there`.
    ///
    /// # Errors
    /// The machine did not start, or its program did not within 90 s.
    pub fn boot(image: &Image, here: u16, there: u16) -> io::Result<Self> {
        let cable = format!(
            "dgram,id=n,local.type=inet,local.host=127.0.0.1,local.port={there},\
             remote.type=inet,remote.host=127.0.0.1,remote.port={here}"
        );
        Self::start(image, &cable)
    }

    /// Boots the image. Its interface is joined to the new interface `tap` of the calling thread's network
    /// namespace, which needs the right to make one.
    ///
    /// # Errors
    /// As [`Guest::boot`].
    pub fn boot_beside(image: &Image, tap: &str) -> io::Result<Self> {
        Self::start(image, &format!("tap,id=n,ifname={tap},script=no,downscript=no"))
    }

    fn start(image: &Image, cable: &str) -> io::Result<Self> {
        let mut machine = machine(image, cable, 2, "");
        let mut guest = Self(Console::start(&mut machine)?);
        let ready = guest.answer(BOOT, &mut || {})?;
        if ready == "ready 0" { Ok(guest) } else { Err(io::Error::other(ready)) }
    }

    /// The next answer; `meanwhile` runs at least every millisecond until it comes.
    fn answer(&mut self, limit: Duration, meanwhile: &mut dyn FnMut()) -> io::Result<String> {
        let end = now() + limit;
        let mut seen = String::new();
        while now() < end {
            meanwhile();
            match self.0.line(Duration::from_millis(1)) {
                // The console may put control characters in front.
                ConsoleLine::Text(line) => match line.split_once("= ") {
                    Some((_, answer)) => return Ok(answer.trim_end().to_owned()),
                    None => {
                        seen.push_str(&line);
                        seen.push('\n');
                    }
                },
                ConsoleLine::Silence => {}
                ConsoleLine::End => break,
            }
        }
        Err(io::Error::other(format!("the guest does not answer:\n{seen}")))
    }

    /// Sends a command, and waits for its answer.
    ///
    /// # Errors
    /// The guest ended, or did not answer within 20 s.
    pub fn ask(&mut self, command: &str, meanwhile: &mut dyn FnMut()) -> io::Result<String> {
        self.0.write_line(command)?;
        self.answer(ANSWER, meanwhile)
    }

    /// The next completion within a number of milliseconds.
    ///
    /// # Errors
    /// As [`Guest::ask`].
    pub fn poll(
        &mut self,
        milliseconds: u32,
        meanwhile: &mut dyn FnMut(),
    ) -> io::Result<Option<GuestCompletion>> {
        let answer = self.ask(&format!("poll {milliseconds}"), meanwhile)?;
        let words: Vec<u64> =
            answer.split_whitespace().filter_map(|word| word.parse().ok()).collect();
        let narrow = |word: u64| u32::try_from(word).unwrap_or(u32::MAX);
        Ok(match words[..] {
            [id, status, _opcode, len, imm] => Some(GuestCompletion {
                id,
                status: narrow(status),
                len: narrow(len),
                imm: narrow(imm),
            }),
            _ => None,
        })
    }
}

/// Longest time that the guest may take to boot, without hardware support and beside other machines and builds.
const SHELL_BOOT: Duration = Duration::from_secs(400);

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
        self.line(READY, SHELL_BOOT).map(|_| ())
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
    /// The command did not end in time, or its status is not 0.
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
    /// The guest takes no input, or the command failed ([`ShellGuest::end`]).
    pub fn run(&mut self, line: &str, limit: Duration) -> io::Result<String> {
        self.write(line)?;
        self.end(limit)
    }
}
