//! Asynchronous events of a context.
//!
//! *Owns*: the list of kinds and their numbers.

macro_rules! kinds {
    ($($(#[doc = $doc:literal])* $name:ident = $code:literal, $object:ident;)*) => {
        /// What happened; numbers of `urma_async_event_type_t` (UMDK release 26.06).
        #[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
        pub enum AsyncKind {
            $($(#[doc = $doc])* $name,)*
            /// A number without a name.
            Unknown(u8),
        }

        impl AsyncKind {
            /// The kind with this number.
            #[must_use]
            pub const fn from_code(code: u8) -> Self {
                match code { $($code => Self::$name,)* other => Self::Unknown(other) }
            }

            /// Number of the event in `urma_async_event_type_t` (UMDK release 26.06).
            #[must_use]
            pub const fn code(self) -> u8 {
                match self { $(Self::$name => $code,)* Self::Unknown(code) => code }
            }

            /// Kind of object that the event is about.
            #[must_use]
            pub const fn object(self) -> AsyncObject {
                match self {
                    $(Self::$name => AsyncObject::$object,)*
                    Self::Unknown(_) => AsyncObject::Device,
                }
            }
        }
    };
}

kinds! {
    /// A JFC failed (overrun).
    JfcError = 0, Jfc;
    /// A JFS went to the error state.
    JfsError = 1, Jfs;
    /// A JFR went to the error state.
    JfrError = 2, Jfr;
    /// A JFR has fewer receives than its threshold.
    JfrLimit = 3, Jfr;
    /// A jetty went to the error state.
    JettyError = 4, Jetty;
    /// A jetty's own JFR has fewer receives than its threshold.
    JettyLimit = 5, Jetty;
    /// A jetty group failed.
    GroupError = 6, Group;
    /// A port came up.
    PortActive = 7, Device;
    /// A port went down.
    PortDown = 8, Device;
    /// The device failed; nothing on it completes any more.
    DeviceFatal = 9, Device;
    /// The EID at an index changed.
    EidChange = 10, Device;
    /// The reset of one entity of the device failed.
    ElrError = 11, Device;
    /// Entity-level reset is done.
    ElrDone = 12, Device;
}

/// Kind of object that an asynchronous event is about.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum AsyncObject {
    /// Completion queue that the event names.
    Jfc,
    /// Send queue without a receive queue of its own.
    Jfs,
    /// Receive queue that jetties may share.
    Jfr,
    /// Send queue with a receive queue.
    Jetty,
    /// Group of jetties (`urma_jetty_grp_t`).
    Group,
    /// The device itself, one of its ports or EIDs; an event without a name counts as one.
    Device,
}

/// Asynchronous event of a device or of an object on it.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct AsyncEvent {
    /// Kind of the event.
    pub kind: AsyncKind,
    /// Object that it concerns: queue, JFC or group number, port, or EID index; 0 for the device
    /// itself.
    pub id: u32,
}
