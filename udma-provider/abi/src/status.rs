//! Codes by which the device answers: CQE status/substatus and command status.
//!
//! *Owns*: the numbers. The pairs that UDMA hardware has are kept (UMDK release 26.06); ours are
//! marked. docs/device-spec.md lists the causes of each in this device.

/// Outcome of one work request, as its CQE reports it.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Hash)]
pub enum CqeStatus {
    /// 0/0: the request succeeded.
    Success,
    /// 1/0: the device does not support the opcode.
    UnsupportedOpcode,
    /// 2/1: a length does not fit the local memory or the operation.
    LocLen,
    /// 2/2: local memory is not registered, or its rights forbid the access.
    LocAccess,
    /// 2/3: the response has more bytes than the request has room for.
    RemRespLen,
    /// 2/4: local memory is poisoned.
    LocDataPoison,
    /// 2/5, ours: malformed send queue entry.
    LocOperation,
    /// 3/1: the target does not support the request.
    RemUnsupportedReq,
    /// 3/2: the target refused the access: token, bounds or rights.
    RemAccessAbort,
    /// 3/3, ours: responder out of resources or in reset.
    RemOperation,
    /// 3/4: the target's memory is poisoned.
    RemDataPoison,
    /// 4/0: the receiver was not ready in any of the tries.
    RnrRetryExceeded,
    /// 5/0: no acknowledgement within the error timeout.
    AckTimeout,
    /// 6/0: the request was flushed from a failed queue.
    WrFlushErr,
    /// 6/0 with the `fd` bit: the last completion of a flush.
    WrFlushErrDone,
    /// 7/0, ours: the last completion of a suspend.
    WrSuspendDone,
    /// 8/0, ours: never started when its queue was reset.
    WrUnhandled,
    /// Any other code of a device.
    Unknown {
        /// Status byte of the CQE.
        status: u8,
        /// Substatus byte of the CQE.
        substatus: u8,
    },
}

impl CqeStatus {
    /// The statuses that have codes of their own.
    pub const ALL: [Self; 17] = [
        Self::Success,
        Self::UnsupportedOpcode,
        Self::LocLen,
        Self::LocAccess,
        Self::RemRespLen,
        Self::LocDataPoison,
        Self::LocOperation,
        Self::RemUnsupportedReq,
        Self::RemAccessAbort,
        Self::RemOperation,
        Self::RemDataPoison,
        Self::RnrRetryExceeded,
        Self::AckTimeout,
        Self::WrFlushErr,
        Self::WrFlushErrDone,
        Self::WrSuspendDone,
        Self::WrUnhandled,
    ];

    /// Returns `(status, substatus, fd)`; `fd` marks the last completion of a flush.
    #[inline]
    #[must_use]
    pub const fn to_code(self) -> (u8, u8, bool) {
        match self {
            Self::Success => (0, 0, false),
            Self::UnsupportedOpcode => (1, 0, false),
            Self::LocLen => (2, 1, false),
            Self::LocAccess => (2, 2, false),
            Self::RemRespLen => (2, 3, false),
            Self::LocDataPoison => (2, 4, false),
            Self::LocOperation => (2, 5, false),
            Self::RemUnsupportedReq => (3, 1, false),
            Self::RemAccessAbort => (3, 2, false),
            Self::RemOperation => (3, 3, false),
            Self::RemDataPoison => (3, 4, false),
            Self::RnrRetryExceeded => (4, 0, false),
            Self::AckTimeout => (5, 0, false),
            Self::WrFlushErr => (6, 0, false),
            Self::WrFlushErrDone => (6, 0, true),
            Self::WrSuspendDone => (7, 0, false),
            Self::WrUnhandled => (8, 0, false),
            Self::Unknown { status, substatus } => (status, substatus, false),
        }
    }

    /// The inverse of [`CqeStatus::to_code`]; never fails, a device may write any value.
    #[inline]
    #[must_use]
    pub fn from_code(status: u8, substatus: u8, fd: bool) -> Self {
        // Success is nearly every completion of the data path: no search.
        if (status, substatus) == (0, 0) && !fd {
            Self::Success
        } else {
            Self::search(status, substatus, fd)
        }
    }

    #[cold]
    fn search(status: u8, substatus: u8, fd: bool) -> Self {
        let known = Self::ALL.into_iter().find(|s| s.to_code() == (status, substatus, fd));
        known.unwrap_or(Self::Unknown { status, substatus })
    }
}

/// Outcome of one command.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Hash, thiserror::Error)]
#[repr(u8)]
pub enum CmdStatus {
    /// The command was executed.
    #[error("done")]
    Ok = 0,
    /// A field has a value that the device does not take.
    #[error("a field of the command has a value that the device does not take")]
    Invalid = 1,
    /// The device has no room for one more.
    #[error("the device has no room for one more object of this kind")]
    NoRoom = 2,
    /// The id is in use.
    #[error("the requested id is in use")]
    Exists = 3,
    /// The object is in use by others.
    #[error("the object is in use by others")]
    InUse = 4,
    /// The command names an object that does not exist.
    #[error("there is no such object")]
    NotFound = 5,
    /// The peer or the memory may not be used like this.
    #[error("not permitted")]
    Denied = 6,
    /// The peer did not answer in time.
    #[error("the peer did not answer in time")]
    Timeout = 7,
    /// Not built, or not meaningful on this device.
    #[error("not supported by this device")]
    Unsupported = 8,
    /// There is no path to the peer.
    #[error("there is no path to the peer")]
    Unreachable = 9,
    /// The device is fatal or being reset.
    #[error("the device is not operational")]
    DeviceError = 10,
    /// The function may have no more of it: its quota is used up.
    #[error("the quota of this function is used up")]
    Quota = 11,
    /// The peer knows as many nodes as it can.
    #[error("the peer has no place for one more node")]
    PeerFull = 12,
    /// A code that this contract does not have.
    #[error("the device answered a status that the contract does not have")]
    Unknown = 255,
}

impl CmdStatus {
    /// Never fails; a device may write any value.
    #[must_use]
    pub fn from_code(code: u8) -> Self {
        const ALL: [CmdStatus; 13] = [
            CmdStatus::Ok,
            CmdStatus::Invalid,
            CmdStatus::NoRoom,
            CmdStatus::Exists,
            CmdStatus::InUse,
            CmdStatus::NotFound,
            CmdStatus::Denied,
            CmdStatus::Timeout,
            CmdStatus::Unsupported,
            CmdStatus::Unreachable,
            CmdStatus::DeviceError,
            CmdStatus::Quota,
            CmdStatus::PeerFull,
        ];
        ALL.into_iter().find(|s| *s as u8 == code).unwrap_or(Self::Unknown)
    }
}
