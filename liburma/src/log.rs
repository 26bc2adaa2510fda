//! Log: lines of the crates below, given to the program.
//!
//! *Owns*: the level, the callbacks, the thread's tag. *Takes*: `tracing` events of this process.
//! *Gives*: lines to the registered callback, else to standard error. *Must not*: call back into
//! itself, or hold a lock while a callback runs.
#![expect(unsafe_code, reason = "callbacks of C programs")]

use core::{
    cell::{Cell, RefCell},
    ffi::{CStr, c_char, c_int},
    fmt::{self, Write},
};
use std::{ffi::CString, io::Write as _};

use tracing::{
    Event, Level, Metadata, Subscriber,
    field::{Field, Visit},
    span,
    subscriber::Interest,
};
use urma_mem::sync::{AtomicU32, AtomicUsize, Ordering};

use crate::{abi::*, setting::setting};

/// A line of another library, as it said it.
pub(crate) fn message(level: u32, text: &CStr, from: SourcePlace<'_>) {
    let mut line = Line::new();
    line.write_bytes(text.to_bytes());
    give(level, &mut line, from);
}

/// File, function and line in it.
pub(crate) type SourcePlace<'a> = (&'a CStr, &'a CStr, c_int);

/// Levels as `urma_vlog_level_t` numbers them: smaller is worse.
pub(crate) mod number {
    pub(crate) const ERR: u32 = 3;
    pub(crate) const WARNING: u32 = 4;
    pub(crate) const INFO: u32 = 6;
    pub(crate) const DEBUG: u32 = 7;
    /// The first number that is no level.
    pub(crate) const END: u32 = 8;
}

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
struct Line {
    bytes: [u8; LINE_LEN],
    len: usize,
}

impl Line {
    /// Creates a line with only the thread's tag, if it has set one.
    fn new() -> Self {
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

    fn write_bytes(&mut self, bytes: &[u8]) {
        bytes.iter().for_each(|byte| self.push(*byte));
    }

    /// Ends the line with a newline, like messages of UMDK: functions that a program registers print what they get. A
    /// full line loses its last byte.
    fn end(&mut self) {
        let text = self.text().trim_ascii_end().len().min(LINE_LEN - 2);
        self.bytes[text..].fill(0);
        self.len = text;
        self.push(b'\n');
    }

    fn text(&self) -> &[u8] {
        &self.bytes[..self.len]
    }

    /// The line as C callbacks take it; they may write to it.
    fn as_mut_ptr(&mut self) -> *mut c_char {
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

/// Addresses of the callbacks; 0: none. At most one is set.
static PLAIN: AtomicUsize = AtomicUsize::new(0);
static LOCATED: AtomicUsize = AtomicUsize::new(0);

std::thread_local! {
    static IS_CALLING: Cell<bool> = const { Cell::new(false) };
}

/// Lines go to `to` from now on.
pub(crate) fn register(to: unsafe extern "C" fn(c_int, *mut c_char)) {
    LOCATED.store(0, Ordering::Release);
    PLAIN.store((to as *const ()).expose_provenance(), Ordering::Release);
}

/// Lines go to the callback, with where they come from; NULL was checked.
pub(crate) fn register_located(to: urma_loc_log_cb) {
    PLAIN.store(0, Ordering::Release);
    let addr = to.map_or(0, |to| (to as *const ()).expose_provenance());
    LOCATED.store(addr, Ordering::Release);
}

/// Lines go to standard error again.
pub(crate) fn unregister() {
    PLAIN.store(0, Ordering::Release);
    LOCATED.store(0, Ordering::Release);
}

/// Whether a program registered a function for lines.
fn is_registered() -> bool {
    PLAIN.load(Ordering::Acquire) | LOCATED.load(Ordering::Acquire) != 0
}

/// Hands a line on, with where it comes from.
fn give(level: u32, line: &mut Line, (file, function, number): SourcePlace<'_>) {
    if IS_CALLING.replace(true) {
        return;
    }
    let _done = Done;
    let level = c_int::try_from(level).unwrap_or(c_int::MAX);
    if let Some(call) = located() {
        // SAFETY: the program's function, with strings that live until it returns.
        unsafe { call(level, file.as_ptr(), function.as_ptr(), number, line.as_mut_ptr()) };
    } else if let Some(call) = plain() {
        // SAFETY: the program registered the function with this type; the line ends with a zero byte.
        unsafe { call(level, line.as_mut_ptr()) };
    } else {
        // A program without standard error gets no line.
        let _ = to_stderr(line);
    }
}

fn to_stderr(line: &Line) -> std::io::Result<()> {
    let mut to = std::io::stderr().lock();
    to.write_all(b"urma: ")?;
    to.write_all(line.text().trim_ascii_end())?;
    to.write_all(b"\n")
}

struct Done;

impl Drop for Done {
    fn drop(&mut self) {
        IS_CALLING.set(false);
    }
}

fn plain() -> urma_log_cb_t {
    let addr = core::ptr::with_exposed_provenance::<()>(PLAIN.load(Ordering::Acquire));
    // SAFETY: null, which is `None`, or the address of a function of that type.
    unsafe { core::mem::transmute::<*const (), urma_log_cb_t>(addr) }
}

fn located() -> urma_loc_log_cb {
    let addr = core::ptr::with_exposed_provenance::<()>(LOCATED.load(Ordering::Acquire));
    // SAFETY: null, which is `None`, or the address of a function of that type.
    unsafe { core::mem::transmute::<*const (), urma_loc_log_cb>(addr) }
}

/// The level in force. Until a program sets one, standard error gets warnings and worse only.
static LEVEL: AtomicU32 = AtomicU32::new(number::INFO);
static IS_SET: AtomicU32 = AtomicU32::new(0);

/// Environment variable with the level: a number or a name.
const LEVEL_VARIABLE: &str = "URMA_LOG_LEVEL";

/// Takes the events of this process, unless the program has a subscriber of its own.
pub(crate) fn install() {
    static DONE: std::sync::Once = std::sync::Once::new();
    DONE.call_once(|| {
        // A Rust program that uses this crate may have one: then that gets the events.
        let _ = tracing::subscriber::set_global_default(Lines);
        let level = setting(LEVEL_VARIABLE);
        if let Some(level) = level.and_then(|text| parse(&text.to_string_lossy())) {
            set_level(level);
        }
    });
}

fn parse(text: &str) -> Option<u32> {
    const NAMES: [&str; 8] =
        ["emerg", "alert", "crit", "err", "warning", "notice", "info", "debug"];
    let text = text.trim().to_ascii_lowercase();
    // Names of UMDK's library for two of them.
    let text = match text.as_str() {
        "fatal" => "crit",
        "error" => "err",
        text => text,
    };
    let by_name = NAMES.iter().position(|name| *name == text);
    let number =
        by_name.and_then(|index| u32::try_from(index).ok()).or_else(|| text.parse().ok())?;
    (number < number::END).then_some(number)
}

/// The level: lines of larger numbers are left out.
pub(crate) fn level() -> u32 {
    LEVEL.load(Ordering::Relaxed)
}

/// Sets the level; numbers that are none are left out.
pub(crate) fn set_level(to: u32) {
    if to < number::END {
        LEVEL.store(to, Ordering::Relaxed);
        IS_SET.store(1, Ordering::Relaxed);
        tracing::callsite::rebuild_interest_cache();
    }
}

struct Lines;

fn number_of(level: Level) -> u32 {
    match level {
        Level::ERROR => number::ERR,
        Level::WARN => number::WARNING,
        Level::INFO => number::INFO,
        _ => number::DEBUG,
    }
}

fn is_wanted(level_of: u32) -> bool {
    let by_default = IS_SET.load(Ordering::Relaxed) == 0 && !is_registered();
    level_of <= if by_default { number::WARNING } else { level() }
}

impl Subscriber for Lines {
    fn register_callsite(&self, of: &'static Metadata<'static>) -> Interest {
        if number_of(*of.level()) <= level() { Interest::sometimes() } else { Interest::never() }
    }

    fn enabled(&self, of: &Metadata<'_>) -> bool {
        of.is_event() && is_wanted(number_of(*of.level()))
    }

    fn event(&self, event: &Event<'_>) {
        let of = event.metadata();
        let mut line = Line::new();
        event.record(&mut line);
        line.end();
        let text = |of: &str| CString::new(of).unwrap_or_default();
        let (file, function) = (text(of.file().unwrap_or_default()), text(of.target()));
        let number = of.line().and_then(|line| c_int::try_from(line).ok()).unwrap_or(0);
        give(number_of(*of.level()), &mut line, (&file, &function, number));
    }

    fn new_span(&self, _: &span::Attributes<'_>) -> span::Id {
        span::Id::from_u64(1)
    }

    fn record(&self, _: &span::Id, _: &span::Record<'_>) {}

    fn record_follows_from(&self, _: &span::Id, _: &span::Id) {}

    fn enter(&self, _: &span::Id) {}

    fn exit(&self, _: &span::Id) {}
}
