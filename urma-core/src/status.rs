//! Answers: of a call, and of a work request.
//!
//! *Owns*: both lists and their numbers. *Must not*: mix them: a completion status is data, not an
//! error of the call that polled it.

use std::fmt;

/// Why a call of the API was refused.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, thiserror::Error)]
// As wide as a count, so that a poll returns either of both in registers.
#[repr(usize)]
pub enum Status {
    /// In use by others.
    #[error("the object is in use; delete what was made from it first, then try again")]
    Again,
    /// No memory, no descriptor, or the device has no room for one more.
    #[error("out of resources; delete objects of this kind or use a smaller depth")]
    NoMemory,
    /// Token, access or transport mode forbids it.
    #[error(
        "not permitted; check the token, the access rights and the transport mode of both sides"
    )]
    NoPermission,
    /// The peer did not answer in time.
    #[error("the peer did not answer in time; check that it runs and that its EID is right")]
    TimedOut,
    /// A parameter that cannot be right.
    #[error("a parameter is invalid; see the limits of the device and the rules of the call")]
    Invalid,
    /// The requested id, name or binding is in use.
    #[error("it exists already; choose another id or release the first one")]
    Exists,
    /// Begun and not finished.
    #[error("the operation is in progress; wait for it to finish")]
    InProgress,
    /// Not built, or not meaningful here.
    #[error("not supported by this device; see its features")]
    Unsupported,
    /// There is no path to the peer.
    #[error("there is no path to the peer; check its EID and the network between")]
    Unreachable,
    /// The device is gone, failed or being reset.
    #[error("the device is not operational; delete its context and open it again")]
    NoDevice,
    /// The process may have no more objects, memory or requests of this kind: a quota of its daemon.
    #[error("a quota is used up; delete objects of this kind, or see `urma_admin daemon status`")]
    Quota,
    /// An error that no other status describes.
    #[error("the call failed; the log of the provider has the reason")]
    Fail,
}

impl Status {
    /// The number of this status in `urma_status_t`: Linux errno values, and 0x1000 for `Fail`
    /// (UMDK release 26.06). `Unsupported`, `Unreachable`, `NoDevice` and `Quota` have no name of their own
    /// there and take the errno of the same meaning.
    #[must_use]
    pub const fn errno(self) -> i32 {
        match self {
            Self::NoPermission => 1,
            Self::Again => 11,
            Self::NoMemory => 12,
            Self::Exists => 17,
            Self::NoDevice => 19,
            Self::Invalid => 22,
            Self::Unsupported => 95,
            Self::TimedOut => 110,
            Self::Unreachable => 113,
            Self::InProgress => 115,
            Self::Quota => 122,
            Self::Fail => 0x1000,
        }
    }
}

macro_rules! cr_statuses {
    ($($(#[$meta:meta])* $name:ident = $code:literal, $text:literal;)*) => {
        /// How a work request ended; numbers of `urma_cr_status_t` (UMDK release 26.06).
        #[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
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
    AckTimeout = 9, "no acknowledgement: the peer is gone, or the network lost too much";
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
