//! Plain values of memory: what may be done to it, how it is registered, ranges of addresses; numbers of objects that
//! requests name. *Must not*: depend on handles.

use urma_mem::sync::{AtomicU64, Ordering};

use crate::{Status, Token, TokenId, TokenPolicy, Ubva, rules::ensure};

bitflags::bitflags! {
    /// What may be done to a segment; the bits of `URMA_ACCESS_*` (UMDK release 26.06).
    #[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
    pub struct SegmentAccess: u8 {
        /// By this node only; excludes the others.
        const LOCAL_ONLY = 1 << 0;
        /// Peers may read the segment (READ).
        const READ = 1 << 1;
        /// Peers write; needs `READ`.
        const WRITE = 1 << 2;
        /// Peers do atomics; needs `READ` and `WRITE`.
        const ATOMIC = 1 << 3;
    }
}

impl SegmentAccess {
    /// Everything that peers may do.
    pub const REMOTE_ALL: Self = Self::READ.union(Self::WRITE).union(Self::ATOMIC);

    /// `LOCAL_ONLY` stands alone, `WRITE` needs `READ`, `ATOMIC` needs both; not empty.
    ///
    /// # Errors
    /// `Invalid`.
    pub fn check(self) -> Result<(), Status> {
        let holds = match self {
            Self::LOCAL_ONLY => true,
            _ if self.contains(Self::LOCAL_ONLY) || self.is_empty() => false,
            _ if !Self::all().contains(self) => false,
            _ if self.contains(Self::ATOMIC) => self.contains(Self::READ.union(Self::WRITE)),
            _ => self.contains(Self::READ),
        };
        ensure(
            holds,
            format_args!(
                "access {self:?}: WRITE needs READ, ATOMIC needs READ and WRITE, LOCAL_ONLY stands alone"
            ),
        )
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
    /// The device need not pin it; needs the feature NON_PIN.
    pub non_pin: bool,
    /// Requests address it from here on instead of from its address in this process; not 0.
    pub user_iova: Option<u64>,
    /// Number that the caller chooses; the library does not read it.
    pub user_ctx: u64,
}

impl SegmentCfg {
    /// Unguarded, not cacheable, pinned, at its own address.
    #[must_use]
    pub const fn new(access: SegmentAccess) -> Self {
        Self {
            access,
            policy: TokenPolicy::None,
            cacheable: false,
            non_pin: false,
            user_iova: None,
            user_ctx: 0,
        }
    }

    /// Guarded by a token that peers show as it is.
    #[must_use]
    pub const fn with_token(mut self, token: Token) -> Self {
        self.policy = TokenPolicy::PlainText(token);
        self
    }
}

/// What a peer needs to import a segment.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct RemoteSegment {
    /// Node, process and address of the first byte.
    pub ubva: Ubva,
    /// Length of the segment in bytes.
    pub len: u64,
    /// Its token id at its owner.
    pub token_id: TokenId,
    /// How it is guarded, with the token to show.
    pub policy: TokenPolicy,
    /// What its owner granted.
    pub access: SegmentAccess,
}

/// A range of addresses; it never wraps.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Span {
    va: u64,
    len: u64,
}

impl Span {
    /// The empty range: holds no byte.
    pub(crate) const NOTHING: Self = Self { va: 0, len: 0 };

    /// `None` for a null address, no bytes, or a range that wraps.
    pub(crate) fn new(va: u64, len: u64) -> Option<Self> {
        let is_sound = va != 0 && len != 0 && va.checked_add(len).is_some();
        is_sound.then_some(Self { va, len })
    }

    #[inline]
    pub(crate) fn va(self) -> u64 {
        self.va
    }

    #[inline]
    pub(crate) fn len(self) -> u64 {
        self.len
    }

    /// Whether the `len` bytes at `addr` lie within; any numbers may be given.
    #[inline]
    pub(crate) fn holds(self, addr: u64, len: u64) -> bool {
        let offset = addr.wrapping_sub(self.va);
        offset <= self.len && len <= self.len - offset
    }
}

/// Number of an object; no other object of this process ever has it, unlike an address, which another object gets as soon
/// as one is dropped.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct ObjectNumber(u64);

impl ObjectNumber {
    /// The number of no object.
    pub(crate) const NONE: Self = Self(0);

    /// A number for one more object.
    pub(crate) fn next() -> Self {
        static NEXT: AtomicU64 = AtomicU64::new(1);
        // At a billion a second they last for 500 years.
        Self(NEXT.fetch_add(1, Ordering::Relaxed))
    }
}
