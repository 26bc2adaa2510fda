//! One line of the log: of bounded length, as a C string.
//!
//! *Owns*: the line's form, `[tag] message name=value`. *Must not*: allocate without bound.

use core::{
    cell::RefCell,
    ffi::{CStr, c_char},
    fmt::{self, Write},
};

use tracing::field::{Field, Visit};

/// Bytes of a line, with the zero byte at its end.
const LINE_LEN: usize = 1024;
/// Bytes of a tag, with the zero byte at its end.
const TAG_LEN: usize = 64;

/// The tag of a thread that has set none.
const NO_TAG: [u8; TAG_LEN] = {
    let mut tag = [0; TAG_LEN];
    tag[0] = b'-';
    tag
};

std::thread_local! {
    static TAG: RefCell<[u8; TAG_LEN]> = const { RefCell::new(NO_TAG) };
}

/// The tag of this thread: an address that stays as long as the thread. `-` at first.
pub(crate) fn tag() -> *const c_char {
    TAG.with(|tag| tag.as_ptr().cast_const().cast())
}

/// Sets the tag; one of more than 63 bytes is ignored.
pub(crate) fn set_tag(to: &CStr) {
    if to.to_bytes().len() >= TAG_LEN {
        return;
    }
    TAG.with_borrow_mut(|tag| {
        *tag = [0; TAG_LEN];
        for (place, byte) in tag.iter_mut().take(TAG_LEN - 1).zip(to.to_bytes()) {
            *place = *byte;
        }
    });
}

/// A line under construction.
pub(super) struct Line {
    bytes: [u8; LINE_LEN],
    len: usize,
}

impl Line {
    /// Creates a line with only the thread's tag, if it has set one.
    pub(super) fn new() -> Self {
        let mut line = Self { bytes: [0; LINE_LEN], len: 0 };
        TAG.with_borrow(|tag| {
            let used = tag.iter().take_while(|byte| **byte != 0);
            if tag[0] != 0 && *tag != NO_TAG {
                line.push(b'[');
                used.for_each(|byte| line.push(*byte));
                line.push(b']');
                line.push(b' ');
            }
        });
        line
    }

    fn push(&mut self, byte: u8) {
        // The last byte stays 0. A zero byte would end the line early.
        if self.len + 1 < LINE_LEN && byte != 0 {
            self.bytes[self.len] = byte;
            self.len += 1;
        }
    }

    pub(super) fn write_bytes(&mut self, bytes: &[u8]) {
        bytes.iter().for_each(|byte| self.push(*byte));
    }

    /// Ends the line with a newline, like messages of UMDK: functions that a program registers print what they get. A
    /// full line loses its last byte.
    pub(super) fn end(&mut self) {
        let text = self.text().trim_ascii_end().len().min(LINE_LEN - 2);
        self.bytes[text..].fill(0);
        self.len = text;
        self.push(b'\n');
    }

    pub(super) fn text(&self) -> &[u8] {
        &self.bytes[..self.len]
    }

    /// The line as C callbacks take it; they may write to it.
    pub(super) fn as_mut_ptr(&mut self) -> *mut c_char {
        self.bytes.as_mut_ptr().cast()
    }
}

impl Write for Line {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        text.bytes().for_each(|byte| self.push(byte));
        Ok(())
    }
}

impl Visit for Line {
    fn record_str(&mut self, field: &Field, value: &str) {
        self.record_debug(field, &format_args!("{value}"));
    }

    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        // Writing to a line does not fail.
        let _ = match field.name() {
            "message" => write!(self, "{value:?} "),
            name => write!(self, "{name}={value:?} "),
        };
    }
}
