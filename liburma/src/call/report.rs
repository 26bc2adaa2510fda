//! The log line of a refused call.
//!
//! *Owns*: the names of functions, the limit on lines, what an operation of a table left for the surrounding call to
//! report. *Takes*: a code with its reason, at the end of a call. *Gives*: one line: function, errno, reason. *Must
//! not*: cost a successful call anything; change `errno`.

use core::{cell::Cell, ffi::c_int};
use std::borrow::Cow;

use urma_mem::sync::{AtomicU64, Ordering};

use super::{Code, ReasonWords, errno, set_errno};

std::thread_local! {
    /// Number of this thread's newest refused call whose line is in the log.
    static SAID: Cell<c_int> = const { Cell::new(0) };
}

/// The reason for a number that a table's operation returned: if the operation is of this library, it has logged it
/// itself.
#[cold]
pub(super) fn left(number: c_int) -> ReasonWords {
    let said = SAID.try_with(|said| said.replace(0)).unwrap_or(0);
    let is_said = said == number || as_errno(said) == number;
    if is_said { ReasonWords::SAID } else { ReasonWords::NONE }
}

/// Forgets earlier refusals in this thread.
#[inline]
pub(super) fn forget() {
    let _ = SAID.try_with(|said| said.set(0));
}

/// Ends a refused call of the function whose body has this type name.
#[cold]
#[inline(never)]
pub(super) fn refused(function: &str, code: Code) {
    if code == Code::errno_of_callee() {
        return;
    }
    let errno = errno();
    let number = if code.number == Code::ERRNO { errno } else { as_errno(code.status()) };
    let answer = if code.number == Code::ERRNO { errno } else { code.status() };
    if code.words != ReasonWords::SAID {
        say(function, number, code.words);
    }
    let _ = SAID.try_with(|said| said.set(answer));
    set_errno(errno);
}

/// The `errno` for a status: `URMA_FAIL` is no errno value.
const fn as_errno(status: c_int) -> c_int {
    if status == 0x1000 { libc::EIO } else { status }
}

const FULL: &str = "the queue is full: as many requests as its depth has places are posted; poll its JFC, then post \
                    again (this line comes once for each function)";

/// Whether this is the first full queue for this function.
fn is_first(function: &str) -> bool {
    static FUNCTIONS: AtomicU64 = AtomicU64::new(0);
    let bit = 1 << (hash(function.bytes()) % 64);
    FUNCTIONS.fetch_or(bit, Ordering::Relaxed) & bit == 0
}

fn hash(bytes: impl Iterator<Item = u8>) -> usize {
    bytes.fold(0x811c_9dc5, |sum, byte| (sum ^ usize::from(byte)).wrapping_mul(0x0100_0193))
}

fn say(function: &str, number: c_int, words: ReasonWords) {
    if words == ReasonWords::FULL && !is_first(function) {
        return;
    }
    let function = name(function);
    let now_s = now_s();
    let Some(left_out) = admitted(&function, number, now_s) else { return };
    let line = |words: Option<&str>| {
        let words = words
            .unwrap_or("the operation of the device's provider answered so, and gives no reason");
        let errno = errno_name(number);
        match left_out {
            0 => tracing::warn!(target: "urma", "{function} refused ({errno}): {words}"),
            more => tracing::warn!(
                target: "urma",
                "{function} refused ({errno}): {words} ({more} refusals of it before this one are not in the log)"
            ),
        }
    };
    match words.reason() {
        Some(reason) => reason.read(line),
        None if words == ReasonWords::FULL => line(Some(FULL)),
        None => line(None),
    }
}

/// The C name of a function, from the type name of its body: a closure in an exported function, or in an operation of
/// the table, which has the same name without its prefix.
fn name(body: &str) -> Cow<'_, str> {
    let path = body.trim_end_matches("::{{closure}}");
    let (path, kind) = match path.split_once('<') {
        Some((path, kind)) => (path, Some(kind.trim_end_matches('>'))),
        None => (path, None),
    };
    let last = |path: &'_ str| path.rsplit("::").next().map(str::to_owned).unwrap_or_default();
    let base = path.rsplit("::").next().unwrap_or(path);
    if base.starts_with("urma_") {
        return Cow::Borrowed(base);
    }
    let Some(kind) = kind.map(|kind| last(kind).to_lowercase()) else {
        return Cow::Owned(format!("urma_{base}"));
    };
    Cow::Owned(match base.split_once('_') {
        Some((verb, rest)) => format!("urma_{verb}_{kind}_{rest}"),
        None => format!("urma_{base}_{kind}"),
    })
}

/// Time in seconds of the monotonic clock.
fn now_s() -> u64 {
    let mut now = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: a place of this function for one time; this clock exists on every Linux.
    unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC, &raw mut now) };
    u64::try_from(now.tv_sec).unwrap_or(0)
}

fn errno_name(number: c_int) -> Cow<'static, str> {
    Cow::Borrowed(match number {
        libc::EPERM => "EPERM",
        libc::EINTR => "EINTR",
        libc::EIO => "EIO",
        libc::EAGAIN => "EAGAIN",
        libc::ENOMEM => "ENOMEM",
        libc::EFAULT => "EFAULT",
        libc::EEXIST => "EEXIST",
        libc::ENODEV => "ENODEV",
        libc::EINVAL => "EINVAL",
        libc::EOPNOTSUPP => "EOPNOTSUPP",
        libc::ETIMEDOUT => "ETIMEDOUT",
        libc::EHOSTUNREACH => "EHOSTUNREACH",
        libc::EDQUOT => "EDQUOT",
        other => return Cow::Owned(format!("errno {other}")),
    })
}

/// Most lines per function and errno in [`WINDOW_S`].
const LINES_MAX: u64 = 10;
/// Length of a window in seconds.
const WINDOW_S: u64 = 10;
/// Counters for functions; two functions that share one share its limit.
const PLACES: usize = 256;

/// Per counter: the current window, and the refusals in it.
static WINDOWS: [AtomicU64; PLACES] = [const { AtomicU64::new(0) }; PLACES];

/// Whether a line may be logged, and then how many were suppressed before it.
fn admitted(function: &str, number: c_int, now_s: u64) -> Option<u64> {
    let place = hash(function.bytes().chain(number.to_le_bytes())) % PLACES;
    let window = now_s / WINDOW_S + 1;
    let mut left_out = None;
    let _ = WINDOWS[place].fetch_update(Ordering::Relaxed, Ordering::Relaxed, |was| {
        let (next, answer) = step(was, window);
        left_out = answer;
        Some(next)
    });
    left_out
}

/// Bits of a counter that hold the count.
const COUNT_BITS: u32 = 24;

/// Counts one more refusal in `window`.
const fn step(was: u64, window: u64) -> (u64, Option<u64>) {
    let (of, count) = (was >> COUNT_BITS, was & ((1 << COUNT_BITS) - 1));
    if of != window {
        let left_out = count.saturating_sub(LINES_MAX);
        return (window << COUNT_BITS | 1, Some(left_out));
    }
    let more = if count + 1 < 1 << COUNT_BITS { count + 1 } else { count };
    (of << COUNT_BITS | more, if count < LINES_MAX { Some(0) } else { None })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn functions_are_named_as_programs_know_them() {
        let bodies = [
            ("liburma::face::queue::urma_create_jetty::{{closure}}", "urma_create_jetty"),
            ("liburma::face::jfc::urma_wait_jfc::{{closure}}::{{closure}}", "urma_wait_jfc"),
            ("liburma::udma::segment::register_seg::{{closure}}", "urma_register_seg"),
            (
                "liburma::udma::family::create<liburma::udma::kind::Jetty>::{{closure}}",
                "urma_create_jetty",
            ),
            (
                "liburma::udma::family::delete_batch<liburma::udma::kind::Jfc>::{{closure}}",
                "urma_delete_jfc_batch",
            ),
            (
                "liburma::udma::family::set_opt<liburma::udma::kind::Jfs>::{{closure}}",
                "urma_set_jfs_opt",
            ),
            ("urma_post_jfs_wr", "urma_post_jfs_wr"),
        ];
        for (body, known) in bodies {
            assert_eq!(name(body), known);
        }
    }

    #[test]
    fn lines_are_bounded_and_those_left_out_counted() {
        let (mut state, mut lines) = (0, 0);
        for _ in 0..1000 {
            let (next, answer) = step(state, 7);
            (state, lines) = (next, lines + u64::from(answer == Some(0)));
        }
        assert_eq!(lines, LINES_MAX);
        assert_eq!(step(state, 8).1, Some(1000 - LINES_MAX));
        assert_eq!(step(step(state, 8).0, 8).1, Some(0));
    }
}
