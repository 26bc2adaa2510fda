//! Answers of calls and of work requests, and why calls were refused, in words.
//!
//! Must not mix the two lists: a completion status is data, not an error of the call that polled it. Each thread
//! keeps its newest reasons in a fixed array; a status carries the number of its reason, and a call that succeeds
//! touches none of it.

use std::{
    cell::RefCell,
    fmt::{self, Write},
    hash::{Hash, Hasher},
    num::NonZero,
};

use urma_mem::sync::{AtomicU32, Ordering};

macro_rules! statuses {
    ($($(#[$meta:meta])* $name:ident = $errno:literal, $text:literal;)*) => {
        /// Kind of a [`Status`], for a match.
        #[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
        #[repr(u16)]
        pub enum StatusKind {
            $($(#[$meta])* $name = $errno,)*
        }

        #[expect(non_upper_case_globals, reason = "named as the kinds, of which they are the plain form")]
        impl Status {
            $($(#[$meta])* pub const $name: Self = Self::plain(StatusKind::$name);)*

            /// Returns the kind, for a match.
            #[must_use]
            pub const fn kind(self) -> StatusKind {
                match self.number() {
                    $($errno => StatusKind::$name,)*
                    _ => StatusKind::Fail,
                }
            }
        }

        impl StatusKind {
            /// What it means, and what to do, where no call said more.
            const fn text(self) -> &'static str {
                match self { $(Self::$name => $text,)* }
            }
        }
    };
}

/// Why a call of the API was refused: a kind, and the reason in words where one was given ([`Status::why`]).
///
/// Statuses of one kind are equal, whatever their reasons. It is one word, so that a poll returns it in a register: the
/// words of a reason are kept by the thread that the call ran in, of the newest calls only.
#[derive(Clone, Copy)]
#[repr(transparent)]
pub struct Status(NonZero<u64>);

/// Bits of the kind in a status; above them is the number of the reason.
const KIND_BITS: u32 = 16;

impl Status {
    const fn plain(kind: StatusKind) -> Self {
        Self(NonZero::new(kind as u64).expect("no kind is 0"))
    }

    const fn number(self) -> u64 {
        self.0.get() & ((1 << KIND_BITS) - 1)
    }

    /// The same status with its reason: what was refused, on which object, by which rule, and what to do.
    #[cold]
    #[must_use]
    pub fn why(self, words: fmt::Arguments<'_>) -> Self {
        let reason = u64::from(Reason::keep(words).number()) << KIND_BITS;
        Self(Self::plain(self.kind()).0 | reason)
    }

    /// Returns the reason, where one was given.
    #[must_use]
    pub fn reason(self) -> Option<Reason> {
        u32::try_from(self.0.get() >> KIND_BITS).ok().and_then(Reason::of)
    }

    /// The number of this status in `urma_status_t`: Linux errno values, and 0x1000 for `Fail`
    /// (UMDK release 26.06). `Unsupported`, `Unreachable`, `NoDevice` and `Quota` have no name of their own
    /// there and take the errno of the same meaning.
    #[must_use]
    pub const fn errno(self) -> i32 {
        self.kind() as i32
    }
}

/// The plain status of a kind.
impl From<StatusKind> for Status {
    fn from(kind: StatusKind) -> Self {
        Self::plain(kind)
    }
}

impl PartialEq for Status {
    fn eq(&self, other: &Self) -> bool {
        self.number() == other.number()
    }
}

impl Eq for Status {}

impl Hash for Status {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.number().hash(state);
    }
}

/// The reason; where none was given, what the kind means.
impl fmt::Display for Status {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let general = self.kind().text();
        match self.reason() {
            Some(reason) => reason.read(|words| f.write_str(words.unwrap_or(general))),
            None => f.write_str(general),
        }
    }
}

/// Kind and reason: what a program prints that ends with it.
impl fmt::Debug for Status {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}: {self}", self.kind())
    }
}

impl std::error::Error for Status {}

statuses! {
    /// In use by others.
    Again = 11, "the object is in use; delete what was made from it first, then try again";
    /// No memory, no descriptor, or the device has no room for one more.
    NoMemory = 12, "out of resources; delete objects of this kind or use a smaller depth";
    /// Token, access or transport mode forbids it.
    NoPermission = 1, "not permitted; check the token, the access rights and the transport mode of both sides";
    /// The peer did not answer in time.
    TimedOut = 110, "the peer did not answer in time; check that it runs and that its EID is right";
    /// A parameter that cannot be right.
    Invalid = 22, "a parameter is invalid; see the limits of the device and the rules of the call";
    /// The requested id, name or binding is in use.
    Exists = 17, "it exists already; choose another id or release the first one";
    /// Begun and not finished.
    InProgress = 115, "the operation is in progress; wait for it to finish";
    /// Not built, or not meaningful here.
    Unsupported = 95, "not supported by this device; see its features";
    /// There is no path to the peer.
    Unreachable = 113, "there is no path to the peer; check its EID and the network between";
    /// The device is gone, failed or being reset.
    NoDevice = 19, "the device is not operational; delete its context and open it again";
    /// The process may have no more objects, memory or requests of this kind: a quota of its daemon.
    Quota = 122, "a quota is used up; delete objects of this kind, or see `urma_admin daemon status`";
    /// The peer knows as many nodes as it can, and none of them makes room.
    PeerFull = 87, "the peer has no place for one more node: all of its places are in use; try again later, or from another network or user";
    /// An error that no other status describes.
    Fail = 0x1000, "the call failed; the log of the provider has the reason";
}

macro_rules! cr_statuses {
    ($($(#[$meta:meta])* $name:ident = $code:literal, $text:literal;)*) => {
        /// How a work request ended; numbers of `urma_cr_status_t` (UMDK release 26.06).
        #[derive(Clone, Copy, PartialEq, Eq, Hash, Default)]
        pub enum CrStatus {
            $($(#[$meta])* $name,)*
            /// A number without a name: whatever a device may say.
            Unknown(u8),
        }

        impl CrStatus {
            /// All named ones, in the order of their numbers.
            pub const ALL: [Self; 17] = [$(Self::$name,)*];

            /// The status with this number.
            #[must_use]
            pub const fn from_code(code: u8) -> Self {
                match code { $($code => Self::$name,)* other => Self::Unknown(other) }
            }

            /// Number of the status in UMDK release 26.06.
            #[must_use]
            pub const fn code(self) -> u8 {
                match self { $(Self::$name => $code,)* Self::Unknown(code) => code }
            }
        }

        /// Name, and what it means: what a program prints that ends with it.
        impl fmt::Debug for CrStatus {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                match self {
                    $(Self::$name => f.write_str(concat!(stringify!($name), ": ", $text)),)*
                    Self::Unknown(code) => write!(f, "Unknown({code})"),
                }
            }
        }

        impl fmt::Display for CrStatus {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                match self {
                    $(Self::$name => f.write_str($text),)*
                    Self::Unknown(code) => write!(f, "unknown completion status {code}"),
                }
            }
        }
    };
}

cr_statuses! {
    /// The request did all that it asked for.
    #[default]
    Success = 0, "success";
    /// The device does not have the operation.
    UnsupportedOpcode = 1, "the local device does not have this operation";
    /// Local length: message larger than allowed, or a receive buffer too small.
    LocLen = 2, "local length error: message too long, or receive buffer too small";
    /// The request was malformed: its operation, length or pieces do not go together.
    LocOperation = 3, "local operation error: the request was malformed";
    /// Local memory: token id, bounds or access.
    LocAccess = 4, "local access error: memory not registered, or outside its segment";
    /// The response has another length than asked for.
    RemRespLen = 5, "the response has a wrong length";
    /// The target does not do this.
    RemUnsupportedReq = 6, "the target does not support this request";
    /// The target is out of resources or in reset.
    RemOperation = 7, "the target could not execute it: out of resources, or in reset";
    /// Token, bounds or access at the target.
    RemAccessAbort = 8, "remote access refused: check token, range and access of the segment";
    /// No acknowledgement within the retry bound.
    AckTimeout = 9,
        "no acknowledgement: the peer is gone, or the network lost too much; the log says what stands between, and \
         `urma_ping EID` asks again";
    /// Receiver not ready, more often than the retry count.
    RnrRetryExceeded = 10, "the receiver had no receive posted within the retry count";
    /// Flushed: its queue is in the error state.
    WrFlush = 11, "flushed: the queue is in the error state";
    /// Last completion of a suspend.
    WrSuspendDone = 12, "the queue is suspended now";
    /// Last completion of a flush.
    WrFlushDone = 13, "the flush is done";
    /// Never started when its queue was reset.
    WrUnhandled = 14, "never started: the queue was reset";
    /// Local memory is damaged.
    LocDataPoison = 15, "local memory is poisoned";
    /// The target's memory is damaged.
    RemDataPoison = 16, "memory of the target is poisoned";
}

/// For callers that treat a failed request as an error; see `Completion::success`.
impl std::error::Error for CrStatus {}

impl CrStatus {
    /// Whether the request did what it was asked to.
    #[must_use]
    pub const fn is_success(self) -> bool {
        matches!(self, Self::Success)
    }
}

/// A refused delete gives its object back: the object is unchanged; `status` is the reason of the refusal.
#[derive(Debug, thiserror::Error)]
#[error("{status}")]
pub struct Refused<T> {
    /// The object, unchanged: the call had no effect, and the caller owns it again.
    pub object: Box<T>,
    /// Why it was refused.
    pub status: Status,
}

impl<T> Refused<T> {
    pub(crate) fn new(object: T, status: Status) -> Self {
        Self { object: Box::new(object), status }
    }
}

/// For callers that give up on the object.
impl<T> From<Refused<T>> for Status {
    fn from(refused: Refused<T>) -> Self {
        refused.status
    }
}

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
