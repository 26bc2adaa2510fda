//! Segments: registered local memory, and imported memory of others.

use urma_mem::Region;

use crate::{Path, Token, TokenId, TokenPolicy};

bitflags::bitflags! {
    /// What may be done to a segment; the bits of `URMA_ACCESS_*` (UMDK release 26.06).
    #[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
    pub struct SegmentAccess: u8 {
        /// By this node only; excludes the others.
        const LOCAL_ONLY = 1 << 0;
        /// Peers read.
        const READ = 1 << 1;
        /// Peers write; needs `READ`.
        const WRITE = 1 << 2;
        /// Peers do atomics; needs `READ` and `WRITE`.
        const ATOMIC = 1 << 3;
    }
}

/// How memory is registered.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct SegmentCfg {
    /// What may be done to it.
    pub access: SegmentAccess,
    /// How it is guarded.
    pub policy: TokenPolicy,
    /// Peers may cache it.
    pub cacheable: bool,
    /// The device need not pin it.
    pub non_pin: bool,
    /// Requests address it from here on instead of from its address in this process.
    pub user_iova: Option<u64>,
    /// The caller's own.
    pub user_ctx: u64,
}

/// Registered memory of this node.
#[derive(Debug)]
pub struct Segment {
    va: u64,
    len: u64,
    token_id: TokenId,
    token: Option<Token>,
    access: SegmentAccess,
    region: Region,
}

impl Segment {
    /// First address, in the terms in which requests address it.
    #[inline]
    #[must_use]
    pub fn va(&self) -> u64 {
        self.va
    }

    /// Bytes.
    #[inline]
    #[must_use]
    pub fn len(&self) -> u64 {
        self.len
    }

    /// Never: registering nothing is refused.
    #[inline]
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Token id (tid << 8).
    #[inline]
    #[must_use]
    pub fn token_id(&self) -> TokenId {
        self.token_id
    }

    /// What peers must show.
    #[inline]
    #[must_use]
    pub fn token(&self) -> Option<Token> {
        self.token
    }

    /// What may be done to it.
    #[inline]
    #[must_use]
    pub fn access(&self) -> SegmentAccess {
        self.access
    }

    /// The memory; byte `addr` of a request lies at offset `addr - va`.
    #[inline]
    #[must_use]
    pub fn region(&self) -> &Region {
        &self.region
    }
}

/// Memory of another node (or of this one), as requests name it.
#[derive(Debug)]
pub struct ImportedSegment {
    va: u64,
    len: u64,
    token_id: TokenId,
    token: Option<Token>,
    access: SegmentAccess,
    path: Path,
}

impl ImportedSegment {
    /// First address, as its owner registered it.
    #[inline]
    #[must_use]
    pub fn va(&self) -> u64 {
        self.va
    }

    /// Bytes.
    #[inline]
    #[must_use]
    pub fn len(&self) -> u64 {
        self.len
    }

    /// Never: importing nothing is refused.
    #[inline]
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Token id (tid << 8) at its owner.
    #[inline]
    #[must_use]
    pub fn token_id(&self) -> TokenId {
        self.token_id
    }

    /// The token to show, if it is guarded.
    #[inline]
    #[must_use]
    pub fn token(&self) -> Option<Token> {
        self.token
    }

    /// What the importer said it will do.
    #[inline]
    #[must_use]
    pub fn access(&self) -> SegmentAccess {
        self.access
    }

    /// How to get there.
    #[inline]
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }
}
