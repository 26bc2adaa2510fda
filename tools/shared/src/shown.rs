//! What a tool shows: text of which others wrote parts, made fit for a terminal.
//!
//! *Owns*: which characters a terminal would obey or misplace; the way to standard output and standard error. *Takes*: what
//! a peer, a daemon, a node or a file wrote. *Gives*: text that is only text, with such characters as JSON writes them
//! (`\u001b`). *Must not*: judge what it says.

use std::io::{self, IsTerminal, Write};

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
pub(crate) struct LogLines<W>(pub(crate) W);

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
    use super::*;

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
