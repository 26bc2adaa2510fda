//! Event queue entries: 16 bytes, owner bit in word 0.
//!
//! *Owns*: the layout. One event queue per JFCE (completion events) and one for asynchronous
//! events; each has an interrupt vector. The device writes word 1, then word 0 with release, then
//! raises the vector once per entry.

use crate::{field8, flag, place};

/// Words of an entry.
pub const EQE_WORDS: usize = 2;
/// Bytes of an entry.
pub const EQE_LEN: usize = EQE_WORDS * 8;

/// Asynchronous events; the numbers are those of `urma_async_event_type_t` (UMDK 26.06).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
#[expect(missing_docs, reason = "the names are those of the URMA API; GLOSSARY explains them")]
pub enum EqeKind {
    JfcErr = 0,
    JfsErr = 1,
    JfrErr = 2,
    JfrLimit = 3,
    JettyErr = 4,
    JettyLimit = 5,
    JettyGrpErr = 6,
    PortActive = 7,
    PortDown = 8,
    DevFatal = 9,
    EidChange = 10,
}

impl EqeKind {
    /// `None` for a number without a meaning here.
    #[inline]
    #[must_use]
    pub fn from_code(code: u8) -> Option<Self> {
        const ALL: [EqeKind; 11] = [
            EqeKind::JfcErr,
            EqeKind::JfsErr,
            EqeKind::JfrErr,
            EqeKind::JfrLimit,
            EqeKind::JettyErr,
            EqeKind::JettyLimit,
            EqeKind::JettyGrpErr,
            EqeKind::PortActive,
            EqeKind::PortDown,
            EqeKind::DevFatal,
            EqeKind::EidChange,
        ];
        ALL.into_iter().find(|k| *k as u8 == code)
    }
}

/// Event queue entry, decoded.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Eqe {
    /// A JFC has what it was armed for.
    Completion {
        /// Number of the JFC.
        jfcn: u32,
    },
    /// Something happened to an object; `code` is an [`EqeKind`] or unknown.
    Async {
        /// Number of the event, as [`EqeKind`] lists them.
        code: u8,
        /// Object: jetty, JFS, JFR or JFC number, port or EID index.
        object: u32,
    },
}

/// The owner bit of word 0 (1 on the first pass, toggles at each wrap).
#[inline]
#[must_use]
pub const fn owner_of(word0: u64) -> bool {
    flag(word0, 0)
}

impl Eqe {
    /// Returns the two words of the entry, with the given owner bit.
    #[inline]
    #[must_use]
    pub fn encode(self, owner: bool) -> [u64; EQE_WORDS] {
        match self {
            Self::Completion { jfcn } => [u64::from(owner), u64::from(jfcn)],
            Self::Async { code, object } => {
                [u64::from(owner) | 1 << 1 | place(u64::from(code), 8, 8), u64::from(object)]
            }
        }
    }

    /// Reads an entry; never fails.
    #[inline]
    #[must_use]
    pub fn decode(words: [u64; EQE_WORDS]) -> Self {
        let object = crate::low32(words[1]);
        if flag(words[0], 1) {
            Self::Async { code: field8(words[0], 8, 8), object }
        } else {
            Self::Completion { jfcn: object }
        }
    }
}
