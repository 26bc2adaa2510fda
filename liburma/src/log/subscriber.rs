//! The subscriber of `tracing` events.
//!
//! *Owns*: the level, and where it comes from. *Takes*: events. *Gives*: lines.

use std::ffi::{CString, c_int};

use tracing::{Event, Level, Metadata, Subscriber, span, subscriber::Interest};
use urma_mem::sync::{AtomicU32, Ordering};

use super::{line::Line, number, sink};
use crate::setting::setting;

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
    let by_default = IS_SET.load(Ordering::Relaxed) == 0 && !sink::is_registered();
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
        sink::give(number_of(*of.level()), &mut line, (&file, &function, number));
    }

    fn new_span(&self, _: &span::Attributes<'_>) -> span::Id {
        span::Id::from_u64(1)
    }

    fn record(&self, _: &span::Id, _: &span::Record<'_>) {}

    fn record_follows_from(&self, _: &span::Id, _: &span::Id) {}

    fn enter(&self, _: &span::Id) {}

    fn exit(&self, _: &span::Id) {}
}
