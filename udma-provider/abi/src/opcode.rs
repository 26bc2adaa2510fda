//! Operation codes of a send queue entry.
//!
//! Values: UDMA hardware codes where it has the operation (UMDK release 26.06), the transaction
//! opcode of the UB Base Specification 2.0.1, 7.2.1 for the other atomics, and our own from 0x1A.

use crate::cmd::Access;

macro_rules! opcodes {
    ($($name:ident = $code:literal is $kind:ident $(($what:path))?,)+) => {
        /// What a send queue entry asks for.
        #[derive(Clone, Copy, PartialEq, Eq, Debug, Hash)]
        #[repr(u8)]
        #[expect(missing_docs, reason = "the names are those of the URMA API; GLOSSARY explains them")]
        pub enum Opcode { $($name = $code,)+ }

        impl Opcode {
            /// All operations, for tables and tests.
            pub const ALL: [Self; [$($code),+].len()] = [$(Self::$name,)+];

            /// Which rules the operation follows.
            #[inline]
            #[must_use]
            pub const fn kind(self) -> OpKind {
                match self { $(Self::$name => OpKind::$kind $(($what))?,)+ }
            }
        }
    };
}

opcodes! {
    Send = 0x00 is Send,
    SendImm = 0x01 is SendImm,
    SendInvalidate = 0x02 is SendInvalidate,
    Write = 0x03 is Write,
    WriteImm = 0x04 is WriteImm,
    WriteNotify = 0x05 is WriteNotify(NotifyKind::Store),
    Read = 0x06 is Read,
    Cas = 0x07 is Atomic(FetchKind::Cas),
    Swap = 0x08 is Atomic(FetchKind::Swap),
    FetchAdd = 0x0B is Atomic(FetchKind::FetchAdd),
    FetchSub = 0x0C is Atomic(FetchKind::FetchSub),
    FetchAnd = 0x0D is Atomic(FetchKind::FetchAnd),
    FetchOr = 0x0E is Atomic(FetchKind::FetchOr),
    FetchXor = 0x0F is Atomic(FetchKind::FetchXor),
    Nop = 0x11 is Nop,
    WriteAtomic = 0x19 is WriteNotify(NotifyKind::Add),
    FlushDma = 0x1A is FlushDma,
}

/// Operations of one kind have the same control part, and the device carries them out in one place.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum OpKind {
    /// Message to a receive of the target.
    Send,
    /// Message with an immediate.
    SendImm,
    /// Message that invalidates a token of the target.
    SendInvalidate,
    /// Write to a remote address.
    Write,
    /// Write that takes a receive and delivers an immediate.
    WriteImm,
    /// Write, then 8 bytes changed at a second address.
    WriteNotify(NotifyKind),
    /// Read from a remote address.
    Read,
    /// Fetches a value and stores another in one step.
    Atomic(FetchKind),
    /// Completes without a peer.
    Nop,
    /// Completes when earlier writes to the target are placed.
    FlushDma,
}

/// How a WRITE_NOTIFY or WRITE_ATOMIC changes the 8 bytes after its payload.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum NotifyKind {
    /// Stores the value in place of the old one.
    Store,
    /// Adds the value to the old one atomically.
    Add,
}

impl NotifyKind {
    /// The right that it takes.
    #[must_use]
    pub const fn right(self) -> Access {
        match self {
            Self::Store => Access::WRITE,
            Self::Add => Access::ATOMIC,
        }
    }
}

/// What an atomic stores in place of the value that it fetches.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[expect(missing_docs, reason = "the names are those of the operations")]
pub enum FetchKind {
    Cas,
    Swap,
    FetchAdd,
    FetchSub,
    FetchAnd,
    FetchOr,
    FetchXor,
}

impl FetchKind {
    /// The atomic that does so.
    #[inline]
    #[must_use]
    pub const fn opcode(self) -> Opcode {
        match self {
            Self::Cas => Opcode::Cas,
            Self::Swap => Opcode::Swap,
            Self::FetchAdd => Opcode::FetchAdd,
            Self::FetchSub => Opcode::FetchSub,
            Self::FetchAnd => Opcode::FetchAnd,
            Self::FetchOr => Opcode::FetchOr,
            Self::FetchXor => Opcode::FetchXor,
        }
    }
}

impl OpKind {
    /// Whether it carries a message, writes to a remote address, takes a receive, fetches data.
    #[inline]
    const fn rules(self) -> (bool, bool, bool, bool) {
        match self {
            Self::Send | Self::SendImm | Self::SendInvalidate => (true, false, true, false),
            Self::Write | Self::WriteNotify(_) => (false, true, false, false),
            Self::WriteImm => (false, true, true, false),
            Self::Read | Self::Atomic(_) => (false, false, false, true),
            Self::Nop | Self::FlushDma => (false, false, false, false),
        }
    }
}

impl Opcode {
    /// `None` for a code that no operation has.
    #[inline]
    #[must_use]
    pub const fn from_code(code: u8) -> Option<Self> {
        BY_CODE[code as usize]
    }

    /// Fetches a value and stores an operand in one step.
    #[inline]
    #[must_use]
    pub const fn is_atomic(self) -> bool {
        matches!(self.kind(), OpKind::Atomic(_))
    }

    /// Takes a receive queue entry at the target.
    #[inline]
    #[must_use]
    pub const fn consumes_receive(self) -> bool {
        self.kind().rules().2
    }

    /// Carries a message to a jetty (no remote address).
    #[inline]
    #[must_use]
    pub const fn is_send(self) -> bool {
        self.kind().rules().0
    }

    /// Writes to a remote address.
    #[inline]
    #[must_use]
    pub const fn is_write(self) -> bool {
        self.kind().rules().1
    }

    /// Stores data of the target in local memory; a fence waits for it.
    #[inline]
    #[must_use]
    pub const fn fetches(self) -> bool {
        self.kind().rules().3
    }
}

/// Built from [`Opcode::ALL`]: decoding is one load.
const BY_CODE: [Option<Opcode>; 256] = {
    let mut table = [None; 256];
    let mut i = 0;
    while i < Opcode::ALL.len() {
        table[Opcode::ALL[i] as usize] = Some(Opcode::ALL[i]);
        i += 1;
    }
    table
};
