//! Operation codes of a send queue entry.
//!
//! Values: UDMA hardware codes where it has the operation (UMDK release 26.06), the transaction
//! opcode of the UB Base Specification 2.0.1, 7.2.1 for the other atomics, and our own from 0x1A.

/// What a send queue entry asks for.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Hash)]
#[repr(u8)]
#[expect(missing_docs, reason = "the names are those of the URMA API; GLOSSARY explains them")]
pub enum Opcode {
    Send = 0x00,
    SendImm = 0x01,
    SendInvalidate = 0x02,
    Write = 0x03,
    WriteImm = 0x04,
    WriteNotify = 0x05,
    Read = 0x06,
    Cas = 0x07,
    Swap = 0x08,
    FetchAdd = 0x0B,
    FetchSub = 0x0C,
    FetchAnd = 0x0D,
    FetchOr = 0x0E,
    FetchXor = 0x0F,
    Nop = 0x11,
    WriteAtomic = 0x19,
    FlushDma = 0x1A,
}

impl Opcode {
    /// All operations, for tables and tests.
    pub const ALL: [Self; 17] = [
        Self::Send,
        Self::SendImm,
        Self::SendInvalidate,
        Self::Write,
        Self::WriteImm,
        Self::WriteNotify,
        Self::Read,
        Self::Cas,
        Self::Swap,
        Self::FetchAdd,
        Self::FetchSub,
        Self::FetchAnd,
        Self::FetchOr,
        Self::FetchXor,
        Self::Nop,
        Self::WriteAtomic,
        Self::FlushDma,
    ];

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
        matches!(
            self,
            Self::Cas
                | Self::Swap
                | Self::FetchAdd
                | Self::FetchSub
                | Self::FetchAnd
                | Self::FetchOr
                | Self::FetchXor
        )
    }

    /// Takes a receive queue entry at the target.
    #[inline]
    #[must_use]
    pub const fn consumes_receive(self) -> bool {
        matches!(self, Self::Send | Self::SendImm | Self::SendInvalidate | Self::WriteImm)
    }

    /// Carries a message to a jetty (no remote address).
    #[inline]
    #[must_use]
    pub const fn is_send(self) -> bool {
        matches!(self, Self::Send | Self::SendImm | Self::SendInvalidate)
    }

    /// Writes to a remote address.
    #[inline]
    #[must_use]
    pub const fn is_write(self) -> bool {
        matches!(self, Self::Write | Self::WriteImm | Self::WriteNotify | Self::WriteAtomic)
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
