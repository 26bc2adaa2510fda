//! Plain values: numbers, names, statuses.
//!
//! *Owns*: the translation of values without pointers, and the pointer that threads may share.
//! *Must not*: call C.
#![expect(unsafe_code, reason = "pointers to C objects move between threads")]

use core::{ffi::c_int, fmt};

use liburma::abi::{urma_cr_t, urma_eid_t, urma_jetty_id_t, urma_token_t};
use urma_core::{
    Completion, CompletionFlags, CrOpcode, CrStatus, Eid, InlinePayload, JettyId, PostReason,
    Status, StatusKind, Token, TransportMode,
};

/// A C object. The library checks each pointer that it gets, so that a stale one is refused.
pub(crate) struct Ptr<T>(pub(crate) *mut T);

impl<T> fmt::Debug for Ptr<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Pointer::fmt(&self.0, f)
    }
}

impl<T> Clone for Ptr<T> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<T> Copy for Ptr<T> {}

// SAFETY: only the library looks behind it, and that is thread-safe.
unsafe impl<T> Send for Ptr<T> {}
// SAFETY: shared references give the pointer only; the library's functions behind it are
// thread-safe.
unsafe impl<T> Sync for Ptr<T> {}

impl<T> Ptr<T> {
    /// An object that a C function made.
    ///
    /// # Errors
    /// It made none: what `errno` says.
    pub(crate) fn made(ptr: *mut T) -> Result<Self, Status> {
        if ptr.is_null() {
            return Err(last());
        }
        Ok(Self(ptr))
    }
}

/// Returns the status that `errno` stands for.
pub(crate) fn last() -> Status {
    status(std::io::Error::last_os_error().raw_os_error().unwrap_or(0))
}

/// Whether `errno` says that a signal ended the wait.
pub(crate) fn was_interrupted() -> bool {
    std::io::Error::last_os_error().kind() == std::io::ErrorKind::Interrupted
}

/// The status with this number; EIO is how `errno` says `URMA_FAIL`.
pub(crate) fn status(code: c_int) -> Status {
    const ALL: [Status; 12] = [
        Status::Again,
        Status::NoMemory,
        Status::NoPermission,
        Status::TimedOut,
        Status::Invalid,
        Status::Exists,
        Status::InProgress,
        Status::Unsupported,
        Status::Unreachable,
        Status::NoDevice,
        Status::Quota,
        Status::PeerFull,
    ];
    ALL.into_iter().find(|status| status.errno() == code).unwrap_or(Status::Fail)
}

/// A `urma_status_t`.
///
/// # Errors
/// It is not success.
pub(crate) fn done(code: c_int) -> Result<(), Status> {
    if code == 0 {
        return Ok(());
    }
    Err(status(code))
}

/// Why a post was refused, as far as C says it.
pub(crate) fn refusal(code: c_int) -> PostReason {
    match status(code).kind() {
        StatusKind::NoMemory => PostReason::Full,
        StatusKind::NoDevice => PostReason::Device,
        _ => PostReason::Invalid("refused by the C interface"),
    }
}

pub(crate) fn eid(from: urma_eid_t) -> Eid {
    Eid::from_bytes(from.raw())
}

pub(crate) fn jetty_id(from: JettyId) -> urma_jetty_id_t {
    let eid = urma_eid_t::from_raw(from.eid.bytes());
    urma_jetty_id_t { eid, uasid: from.uasid, id: from.id }
}

/// Policy and token as C has them.
pub(crate) fn token(from: Option<Token>) -> (u32, urma_token_t) {
    (u32::from(from.is_some()), urma_token_t { token: from.map_or(0, Token::value) })
}

/// The kind of transport path of a mode.
pub(crate) fn tp_type(mode: TransportMode) -> u32 {
    match mode {
        TransportMode::Rm | TransportMode::Rc => liburma::abi::URMA_RTP,
        TransportMode::Um => liburma::abi::URMA_UTP,
    }
}

/// A completion record. Its payload lies in the receive buffer always.
pub(crate) fn completion(from: &urma_cr_t) -> Completion {
    let remote = from.remote_id;
    let narrow = |code: u32| u8::try_from(code).unwrap_or(u8::MAX);
    Completion {
        status: CrStatus::from_code(narrow(from.status)),
        opcode: CrOpcode::from_code(narrow(from.opcode)),
        flags: CompletionFlags::from_bits_retain(from.flag.value),
        len: from.completion_len,
        user_ctx: from.user_ctx,
        queue_ctx: from.user_data as u64,
        local_id: from.local_id,
        tpn: from.tpn,
        remote: JettyId { eid: eid(remote.eid), uasid: remote.uasid, id: remote.id },
        // SAFETY: both members are integers. A token id and its token lie one after the other, as
        // the halves of `imm` do on a little-endian machine.
        imm: unsafe { from.u.imm_data },
        payload: InlinePayload::default(),
    }
}
