//! What the command-line tools share: manual pages and completions, the log, text for terminals, signals that end
//! them.
//!
//! Text that others wrote is made fit for a terminal: characters that it would obey or misplace are written as JSON
//! does (`\u001b`). Must not depend on a tool.
#![forbid(unsafe_code)]

use std::{
    fs::{self, File},
    io::{self, IsTerminal, Write},
    os::fd::AsFd,
    path::{Path, PathBuf},
    time::Duration,
};

use clap::Command;
use clap_complete::{Shell, generate_to};
use nix::{
    poll::{PollFd, PollFlags, PollTimeout, poll},
    sys::{
        signal::{SigSet, Signal},
        signalfd::{SfdFlags, SignalFd},
    },
};
use tracing_subscriber::EnvFilter;

pub use urma_mem::environment::{ignored, variable};

/// SIGINT and SIGTERM, as something that can be waited for.
#[derive(Debug)]
pub struct Ends(SignalFd);

impl Ends {
    /// Watches for the signals; called before any thread starts, so that all of them inherit the mask.
    ///
    /// # Errors
    /// The system's.
    pub fn watch() -> nix::Result<Self> {
        let mut set = SigSet::empty();
        set.add(Signal::SIGINT);
        set.add(Signal::SIGTERM);
        set.thread_block()?;
        Ok(Self(SignalFd::with_flags(&set, SfdFlags::SFD_NONBLOCK | SfdFlags::SFD_CLOEXEC)?))
    }

    /// Waits so long; whether a signal came.
    #[must_use]
    pub fn within(&self, most: Duration) -> bool {
        let timeout = PollTimeout::try_from(most).unwrap_or(PollTimeout::MAX);
        let mut fds = [PollFd::new(self.0.as_fd(), PollFlags::POLLIN)];
        poll(&mut fds, timeout).is_ok_and(|ready| ready != 0)
    }
}

/// Where the log goes and how much is said without `URMA_LOG`.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct LogSetup {
    /// To standard output instead of standard error.
    pub stdout: bool,
    /// How much of it.
    pub level: LogLevel,
}

/// How much is said without `URMA_LOG`.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum LogLevel {
    /// Nothing: the tool's own answer says what matters.
    #[default]
    Nothing,
    /// What its user may have to do something about.
    Warnings,
    /// What the stack does.
    Everything,
}

/// Sends the log of the stack to the output that `log` names; `URMA_LOG` filters it. Variables that are ignored are
/// named on standard error in any case.
pub fn log(log: LogSetup) {
    if let Some(line) = ignored() {
        // No terminal reads it: the tool's own answer shows that, too.
        say_error(&line);
    }
    let level = match log.level {
        LogLevel::Nothing => "off",
        LogLevel::Warnings => "warn",
        LogLevel::Everything => "debug",
    };
    let filter = variable("URMA_LOG").and_then(|text| EnvFilter::try_new(text.to_str()?).ok());
    let filter = filter.unwrap_or_else(|| EnvFilter::new(level));
    // Colors would be escaped, too.
    let subscriber = tracing_subscriber::fmt().with_env_filter(filter).with_ansi(false);
    // This is the only subscriber of the process; without it there is no log.
    let _ = if log.stdout {
        subscriber.with_writer(|| LogLines(io::stdout())).try_init()
    } else {
        subscriber.with_writer(|| LogLines(io::stderr())).try_init()
    };
}

/// With the arguments `--generate DIR`: writes the manual page `NAME.1` of each of `commands`
/// (main command first) and the completions `NAME.bash`, `_NAME`, `NAME.fish` of the main one into
/// `DIR`. Returns whether that was asked for.
///
/// # Errors
/// The system's, when a file cannot be written.
pub fn generate_if_asked(commands: Vec<Command>) -> io::Result<bool> {
    let mut args = std::env::args_os().skip(1);
    let (Some(option), Some(dir), None) = (args.next(), args.next(), args.next()) else {
        return Ok(false);
    };
    if option != "--generate" {
        return Ok(false);
    }
    generate(commands, &PathBuf::from(dir))?;
    Ok(true)
}

fn generate(commands: Vec<Command>, dir: &Path) -> io::Result<()> {
    fs::create_dir_all(dir)?;
    for (index, mut command) in commands.into_iter().enumerate() {
        let name = command.get_name().to_owned();
        let mut page = File::create(dir.join(format!("{name}.1")))?;
        clap_mangen::Man::new(command.clone()).render(&mut page)?;
        if index == 0 {
            for shell in [Shell::Bash, Shell::Zsh, Shell::Fish] {
                generate_to(shell, &mut command, &name, dir)?;
            }
        }
    }
    Ok(())
}

/// Most characters of one word of another process.
const WORD_MAX: usize = 1_000;

/// A word or sentence of another process, for one line.
#[must_use]
pub fn shown(text: &str) -> String {
    let mut short: String = text.chars().take(WORD_MAX).collect();
    if short.len() < text.len() {
        short.push('…');
    }
    escaped(&short, |_| false)
}

/// Lines of which parts are another process's.
#[must_use]
pub fn shown_lines(text: &str) -> String {
    escaped(text, |character| character == '\n')
}

/// Writes lines to standard output, at once.
///
/// # Errors
/// The output is closed.
pub fn say(text: &str) -> io::Result<()> {
    let mut out = io::stdout();
    out.write_all(shown_lines(text).as_bytes())?;
    out.flush()
}

/// Writes a line to standard error; where that is closed, nothing.
pub fn say_error(text: &str) {
    let _ = writeln!(io::stderr(), "{}", shown_lines(text));
}

/// Clears the terminal of standard output, so that the next look stands where the one before did; no file or pipe.
pub fn clear() {
    let mut out = io::stdout();
    if out.is_terminal() {
        let _ = out.write_all(b"\x1b[H\x1b[J");
    }
}

/// An output of which each write is one event of the log, which stays one line whatever is in it.
#[derive(Debug)]
struct LogLines<W>(pub(crate) W);

impl<W: Write> Write for LogLines<W> {
    fn write(&mut self, event: &[u8]) -> io::Result<usize> {
        let text = String::from_utf8_lossy(event);
        let line = text.strip_suffix('\n').unwrap_or(&text);
        self.0.write_all(format!("{}\n", escaped(line, |_| false)).as_bytes())?;
        Ok(event.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        self.0.flush()
    }
}

fn escaped(text: &str, is_kept: impl Fn(char) -> bool) -> String {
    let mut shown = String::with_capacity(text.len());
    for character in text.chars() {
        if is_kept(character) || !is_obeyed(character) {
            shown.push(character);
        } else {
            for unit in character.encode_utf16(&mut [0; 2]) {
                shown.push_str(&format!("\\u{unit:04x}"));
            }
        }
    }
    shown
}

/// Whether a terminal does something else than to show it: controls, and what turns the direction of writing or is not
/// seen.
fn is_obeyed(character: char) -> bool {
    let is_unseen = matches!(
        character,
        '\u{ad}' | '\u{61c}' | '\u{180e}' | '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{206f}'
            | '\u{feff}' | '\u{fff9}'..='\u{fffb}' | '\u{e0000}'..='\u{e007f}'
    );
    character.is_control() || is_unseen
}

#[cfg(test)]
mod tests {

    use std::time::Instant;

    use nix::sys::signal::raise;

    use super::*;

    #[expect(clippy::disallowed_methods, reason = "what is tested is how long the wait takes")]
    fn timed(ends: &Ends, most: Duration) -> (bool, Duration) {
        let start = Instant::now();
        (ends.within(most), start.elapsed())
    }

    /// Each signal in a thread of its own: there it is blocked, and there it is sent.
    #[test]
    fn a_wait_is_over_by_a_signal_or_with_its_time() {
        for signal in [Signal::SIGINT, Signal::SIGTERM] {
            let thread = std::thread::spawn(move || {
                let ends = Ends::watch().expect("a descriptor");
                let (came, took) = timed(&ends, Duration::from_millis(60));
                assert!(!came && took >= Duration::from_millis(60), "no signal: {took:?}");
                assert!(!ends.within(Duration::ZERO));
                raise(signal).expect("a signal to this thread");
                let (came, took) = timed(&ends, Duration::MAX);
                assert!(came && took < Duration::from_secs(20), "{signal}: {took:?}");
            });
            assert!(thread.join().is_ok());
        }
    }

    #[test]
    fn each_tool_gets_a_page_and_three_completions() {
        let dir = std::env::temp_dir().join(format!("urma-pages-{}", std::process::id()));
        let command = Command::new("tool").arg(clap::Arg::new("size").long("size").help("Bytes"));
        generate(vec![command, Command::new("tool-other")], &dir).unwrap();
        for name in ["tool.1", "tool.bash", "_tool", "tool.fish", "tool-other.1"] {
            let text = fs::read_to_string(dir.join(name)).unwrap();
            assert!(name.ends_with("other.1") || text.contains("size"), "{name}: {text}");
        }
        fs::remove_dir_all(&dir).unwrap();
    }

    #[test]
    fn a_terminal_obeys_nothing_of_it() {
        let hostile = "a\u{1b}]0;title\u{7}\u{1b}[2J\r\nroot#\u{9b}31m\u{202e}b\u{e0041}ü…";
        let safe = "a\\u001b]0;title\\u0007\\u001b[2J\\u000d\\u000aroot#\\u009b31m\\u202eb\\udb40\\udc41ü…";
        assert_eq!(shown(hostile), safe);
        assert_eq!(shown_lines("one\ntwo\u{1b}\n"), "one\ntwo\\u001b\n");
        assert_eq!(shown(&"x".repeat(5_000)).chars().count(), WORD_MAX + 1);
    }

    #[test]
    fn an_event_of_the_log_is_one_line() {
        let mut out = Vec::new();
        let mut log = LogLines(&mut out);
        log.write_all(b"WARN peer=a\n1970 INFO all is well\x1b[8m\n").expect("a vector takes all");
        assert_eq!(out, b"WARN peer=a\\u000a1970 INFO all is well\\u001b[8m\n");
    }
}
