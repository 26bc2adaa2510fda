//! Why calls were refused, in words.
//!
//! Each thread keeps its newest reasons in a fixed array; a status carries the number of its reason. A call that
//! succeeds touches none of it.

use std::{
    cell::RefCell,
    fmt::{self, Write},
};

use urma_mem::sync::{AtomicU32, Ordering};

/// Names the words that a thread kept when it refused a call. They stay until the thread refused some more.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Reason(u32);

/// Reasons that a thread keeps.
const KEPT: usize = 16;
/// Bytes of a reason.
const WORDS_MAX: usize = 900;

/// The newest reasons; that of number n lies at n modulo their count.
type Newest = [(u32, String); KEPT];

std::thread_local! {
    static NEWEST: RefCell<Newest> = const { RefCell::new([const { (0, String::new()) }; KEPT]) };
}

impl Reason {
    /// Keeps `words`, in place of an old reason of this thread.
    #[cold]
    #[must_use]
    pub fn keep(words: fmt::Arguments<'_>) -> Self {
        static NEXT: AtomicU32 = AtomicU32::new(1);
        // They come round after four thousand million: by then the words of the first are long gone. 0 is none.
        let number = NEXT.fetch_add(1, Ordering::Relaxed).max(1);
        // A thread that ends has no words any more.
        let _ = NEWEST.try_with(|newest| {
            let Ok(mut newest) = newest.try_borrow_mut() else { return };
            let (of, text) = &mut newest[number as usize % KEPT];
            *of = number;
            text.clear();
            // Writing to a string does not fail.
            let _ = text.write_fmt(words);
            let end = (0..=WORDS_MAX.min(text.len())).rev().find(|end| text.is_char_boundary(*end));
            text.truncate(end.unwrap_or(0));
        });
        Self(number)
    }

    /// The reason of this number; `None` for 0.
    #[must_use]
    pub const fn of(number: u32) -> Option<Self> {
        if number == 0 { None } else { Some(Self(number)) }
    }

    /// The number that names it, never 0.
    #[must_use]
    pub const fn number(self) -> u32 {
        self.0
    }

    /// Calls `f` with the words; `None`: another thread kept them, or they made place for newer ones.
    pub fn read<T>(self, f: impl FnOnce(Option<&str>) -> T) -> T {
        let words = NEWEST.try_with(|newest| {
            let newest = newest.try_borrow().ok()?;
            let (of, text) = &newest[self.0 as usize % KEPT];
            (*of == self.0).then(|| text.clone())
        });
        f(words.ok().flatten().as_deref())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Status;

    #[test]
    fn a_status_carries_its_reason_until_newer_ones_came() {
        let first = Status::Invalid.why(format_args!("max_sge is {}; allowed are 0 to 13", 14));
        assert_eq!(first, Status::Invalid);
        assert_eq!(first.to_string(), "max_sge is 14; allowed are 0 to 13");
        assert_eq!(format!("{first:?}"), "Invalid: max_sge is 14; allowed are 0 to 13");
        let second = Status::Again.why(format_args!("2 queues complete here"));
        assert_eq!((first.kind(), second.kind()), (Status::Invalid.kind(), Status::Again.kind()));
        assert_ne!(first, second);
        assert!(second.to_string().contains("2 queues") && first.to_string().contains("max_sge"));
        for _ in 0..KEPT {
            let _ = Reason::keep(format_args!("another"));
        }
        assert_eq!(first.to_string(), Status::Invalid.to_string());
    }

    #[test]
    fn words_are_those_of_the_thread_that_refused() {
        let here = Status::Invalid.why(format_args!("of this thread"));
        let there = std::thread::spawn(move || here.to_string()).join().unwrap();
        assert_eq!(there, Status::Invalid.to_string());
        assert_eq!(here.to_string(), "of this thread");
        let from = std::thread::spawn(|| Status::Invalid.why(format_args!("of another")));
        assert_eq!(from.join().unwrap().to_string(), Status::Invalid.to_string());
    }

    #[test]
    fn long_words_end_at_a_letter() {
        let long = "\u{e4}".repeat(WORDS_MAX);
        let kept = Reason::keep(format_args!("x{long}"));
        let len = kept.read(|words| words.unwrap().len());
        assert!(len <= WORDS_MAX && len > WORDS_MAX - 2, "{len}");
    }
}
