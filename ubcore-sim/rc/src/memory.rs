//! Memory as an endpoint sees it.
//!
//! - owns: the questions. must not: say where bytes lie; a *place* is the owner's own number.

/// What a peer wants to do with memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RcAccess {
    /// Bytes are sent to it: READ.
    Read,
    /// Its bytes are stored: WRITE.
    Write,
    /// Eight bytes change at once: CAS, FADD.
    Atomic,
}

/// An atomic on 8 bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RcAtomic {
    /// Stores `swap` if the value is `compare`.
    CompareSwap {
        /// Value that the old one must have.
        compare: u64,
        /// Value that is stored then.
        swap: u64,
    },
    /// Adds to the value, modulo 2^64.
    FetchAdd {
        /// Number that is added.
        add: u64,
    },
}

impl RcAtomic {
    /// The value after the operation on `old`.
    #[must_use]
    pub const fn apply(self, old: u64) -> u64 {
        match self {
            Self::CompareSwap { compare, swap } if compare == old => swap,
            Self::CompareSwap { .. } => old,
            Self::FetchAdd { add } => old.wrapping_add(add),
        }
    }
}

/// Memory of an endpoint's owner. A place is a number that the owner gives out: in requests and
/// receives for local memory, by [`RcMemory::resolve`] for a peer's address.
pub trait RcMemory {
    /// Place of `len` bytes (at least 1) at `va` of the region with `rkey`, if the region exists,
    /// holds all of them and allows `access`. Asked before each packet's bytes move.
    fn resolve(&self, rkey: u32, va: u64, len: u32, access: RcAccess) -> Option<u64>;

    /// Fills `into` with the bytes at `place`; `false`: they cannot be read.
    fn load(&self, place: u64, into: &mut [u8]) -> bool;

    /// Stores `bytes` at `place`; `false`: nothing was stored, they cannot be written.
    fn store(&mut self, place: u64, bytes: &[u8]) -> bool;

    /// Changes the number of 8 bytes at `place` at once, in the byte order of this machine; its old
    /// value. `None`: nothing was changed.
    fn update(&mut self, place: u64, atomic: RcAtomic) -> Option<u64>;

    /// Withdraws the region with `rkey`; `false`: there is none, or the peer may not withdraw it.
    fn invalidate(&mut self, rkey: u32) -> bool;
}
