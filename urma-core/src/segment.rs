//! Segments: memory of this node that requests may name, and token ids.
//!
//! *Owns*: the handle of registered memory; the life of token ids. *Takes*:
//! regions. *Gives*: what local SGEs and peers need. *Must not*: touch the bytes.

use std::sync::Arc;

use urma_mem::Region;

use crate::{
    Refused, RemoteSegment, SegmentAccess, SegmentCfg, Status, Token, TokenId, Ubva,
    access::Span,
    memory::MemoryHome,
    number::ObjectNumber,
    rules::{self, ensure, refuse},
};

/// A token id that the caller holds, to register under.
#[derive(Debug)]
pub struct TokenIdLease {
    shared: Arc<LeaseShared>,
}

/// What a segment under the token id holds on to.
#[derive(Debug)]
struct LeaseShared {
    id: TokenId,
    home: Arc<dyn MemoryHome>,
    is_live: bool,
}

impl LeaseShared {
    fn alloc(home: &Arc<dyn MemoryHome>) -> Result<Arc<Self>, Status> {
        let id = home.segments().alloc_token_id()?;
        Ok(Arc::new(Self { id, home: Arc::clone(home), is_live: true }))
    }
}

impl Drop for LeaseShared {
    fn drop(&mut self) {
        if !self.is_live {
            return;
        }
        if let Err(status) = self.home.segments().free_token_id(self.id) {
            tracing::warn!(target: "urma", %status, id = self.id.value(), "token id not freed");
        }
    }
}

impl TokenIdLease {
    pub(crate) fn alloc(home: &Arc<dyn MemoryHome>) -> Result<Self, Status> {
        Ok(Self { shared: LeaseShared::alloc(home)? })
    }

    /// Returns the token id, by which peers name the segment on this node.
    #[must_use]
    pub fn id(&self) -> TokenId {
        self.shared.id
    }

    /// Gives it back.
    ///
    /// # Errors
    /// `Invalid`: a segment lives under it. A status of the device; the lease stays.
    pub fn free(self) -> Result<(), Refused<Self>> {
        let mut shared = match Arc::try_unwrap(self.shared) {
            Ok(shared) => shared,
            Err(shared) => {
                let why = format_args!("a segment uses the token id; unregister it first");
                let status = refuse(Status::Invalid, why);
                return Err(Refused::new(Self { shared }, status));
            }
        };
        match shared.home.segments().free_token_id(shared.id) {
            Ok(()) => {
                shared.is_live = false;
                Ok(())
            }
            Err(status) => Err(Refused::new(Self { shared: Arc::new(shared) }, status)),
        }
    }
}

/// Registered memory of this node.
#[derive(Debug)]
pub struct Segment {
    span: Span,
    home: usize,
    number: ObjectNumber,
    token_id: TokenId,
    token: Option<Token>,
    cfg: SegmentCfg,
    region: Region,
    lease: Arc<LeaseShared>,
    is_registered: bool,
}

/// A piece of local memory: `len` bytes at `addr` of `segment`.
#[derive(Clone, Copy, Debug)]
pub struct LocalSge<'a> {
    /// Registered segment that contains the piece.
    pub segment: &'a Segment,
    /// Address, in the terms in which the segment was registered.
    pub addr: u64,
    /// Length of the piece in bytes.
    pub len: u32,
}

impl Segment {
    /// What [`crate::Context::register`] does for a context.
    pub(crate) fn register(
        home: &Arc<dyn MemoryHome>,
        region: &Region,
        cfg: &SegmentCfg,
        lease: Option<&TokenIdLease>,
    ) -> Result<Self, Status> {
        cfg.access.check()?;
        let token = cfg.policy.token()?;
        if cfg.non_pin {
            rules::non_pin(home.attr())?;
        }
        let va = cfg.user_iova.unwrap_or_else(|| region.addr() as u64);
        let why = format_args!(
            "segment of {} bytes at {va:#x}: address and length must not be 0, the end not wrap",
            region.len()
        );
        let span = Span::new(va, region.len() as u64);
        let span = span.ok_or_else(|| refuse(Status::Invalid, why))?;
        let lease = match lease {
            Some(lease) => {
                let is_ours = home.key() == lease.shared.home.key();
                ensure(is_ours, format_args!("the token id was allocated by another context"))?;
                if Arc::strong_count(&lease.shared) != 1 {
                    let why = format_args!(
                        "token id {:?} is in use; unregister its segment first",
                        lease.id()
                    );
                    return Err(refuse(Status::Exists, why));
                }
                Arc::clone(&lease.shared)
            }
            None => LeaseShared::alloc(home)?,
        };
        home.segments().register(region, lease.id, va, cfg)?;
        Ok(Self {
            number: ObjectNumber::next(),
            span,
            home: home.key(),
            token_id: lease.id,
            token,
            cfg: *cfg,
            region: region.clone(),
            lease,
            is_registered: true,
        })
    }

    /// First address, in the terms in which requests address it.
    #[inline]
    #[must_use]
    pub fn va(&self) -> u64 {
        self.span.va()
    }

    /// Returns the length in bytes.
    #[inline]
    #[must_use]
    pub fn len(&self) -> u64 {
        self.span.len()
    }

    /// Never: registering nothing is refused.
    #[inline]
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.span.len() == 0
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
        self.cfg.access
    }

    /// As it was registered.
    #[must_use]
    pub fn cfg(&self) -> &SegmentCfg {
        &self.cfg
    }

    /// The memory; byte `addr` of a request lies at offset `addr - va`.
    #[inline]
    #[must_use]
    pub fn region(&self) -> &Region {
        &self.region
    }

    /// The `len` bytes from `offset` on, for a request; the post checks that they lie inside.
    #[inline]
    #[must_use]
    pub fn sge(&self, offset: u64, len: u32) -> LocalSge<'_> {
        LocalSge { segment: self, addr: self.va().wrapping_add(offset), len }
    }

    /// What a peer needs to import it, with the token.
    #[must_use]
    pub fn remote(&self) -> RemoteSegment {
        let home = &self.lease.home;
        RemoteSegment {
            ubva: Ubva { eid: home.eid(), uasid: home.uasid(), va: self.va() },
            len: self.len(),
            token_id: self.token_id,
            policy: self.cfg.policy,
            access: self.cfg.access,
        }
    }

    /// Withdraws it: work in progress drains for at most 10 ms, then it is revoked. No byte is
    /// placed after this returned. No request can name it any more:
    ///
    /// ```compile_fail,E0382
    /// fn late(segment: urma_core::Segment) {
    ///     let _ = segment.unregister();
    ///     let _ = urma_core::LocalSge { segment: &segment, addr: 0, len: 8 };
    /// }
    /// ```
    ///
    /// # Errors
    /// A status of the device; the segment stays.
    pub fn unregister(mut self) -> Result<(), Refused<Self>> {
        match self.lease.home.segments().unregister(self.token_id) {
            Ok(()) => {
                self.is_registered = false;
                Ok(())
            }
            Err(status) => Err(Refused::new(self, status)),
        }
    }

    #[inline]
    pub(crate) fn span(&self) -> Span {
        self.span
    }

    #[inline(always)]
    pub(crate) fn number(&self) -> ObjectNumber {
        self.number
    }

    #[inline]
    pub(crate) fn home(&self) -> usize {
        self.home
    }
}

/// As [`Segment::unregister`]; a refusal by the device is logged.
impl Drop for Segment {
    fn drop(&mut self) {
        if !self.is_registered {
            return;
        }
        if let Err(status) = self.lease.home.segments().unregister(self.token_id) {
            let id = self.token_id.value();
            tracing::warn!(target: "urma", %status, id, "segment not unregistered");
        }
    }
}
