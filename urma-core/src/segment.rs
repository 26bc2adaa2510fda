//! Segments: memory that requests may name, of this node (registered) or of another one (imported), and token ids.
//!
//! *Owns*: the handles; the life of token ids; the mapping for load and store where one was asked for. *Takes*:
//! regions; what a peer exported of its segment. *Gives*: what local SGEs and peers need. *Must not*: touch the bytes,
//! or ask the peer whether what it exported is true: the first request does.

use std::sync::Arc;

use urma_mem::Region;

use crate::{
    Path, PathKind, Refused, RemoteSegment, SegmentAccess, SegmentCfg, Status, Token, TokenId,
    TransportMode, Uasid, Ubva,
    access::{ObjectNumber, Span},
    memory::{MemoryHome, RemoteSegmentId},
    rules::{self, ensure, refuse},
    target::HeldPath,
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
}

/// Unregisters like [`Segment::unregister`]; a refusal by the device is logged.
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

/// Whether an import also maps the memory.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Mapping {
    /// Requests name the memory; this process gets no addresses for it.
    #[default]
    None,
    /// Load and store too, through [`ImportedSegment::region`]. Needs the feature LOAD_STORE and
    /// a peer on this host.
    LoadStore,
}

/// Memory of another node (or of this one), as requests name it.
#[derive(Debug)]
pub struct ImportedSegment {
    span: Span,
    home: usize,
    token_id: TokenId,
    token: Option<Token>,
    access: SegmentAccess,
    uasid: Uasid,
    region: Option<Region>,
    number: ObjectNumber,
    held_path: Arc<HeldPath>,
}

/// A place in a peer's memory. Its length is that of the local side.
#[derive(Clone, Copy, Debug)]
pub struct RemoteAddr<'a> {
    /// Imported segment that contains the address.
    pub segment: &'a ImportedSegment,
    /// Address, in the terms in which the owner registered it.
    pub addr: u64,
}

impl ImportedSegment {
    /// What [`crate::Context::import_segment`] does for a context.
    pub(crate) fn import(
        home: &Arc<dyn MemoryHome>,
        remote: &RemoteSegment,
        access: SegmentAccess,
        mapping: Mapping,
    ) -> Result<Self, Status> {
        let Ubva { eid, uasid, va } = remote.ubva;
        let why = format_args!("va {va:#x} of {} bytes", remote.len);
        let span = Span::new(va, remote.len).ok_or_else(|| refuse(Status::Invalid, why))?;
        access.check()?;
        let is_remote = !access.contains(SegmentAccess::LOCAL_ONLY);
        ensure(is_remote, format_args!("LOCAL_ONLY memory cannot be imported"))?;
        let token = remote.policy.token()?;
        if mapping == Mapping::LoadStore {
            rules::mapping(home.attr())?;
        }
        let held_path = HeldPath::open(home, eid, TransportMode::Rm)?;
        let token_id = remote.token_id;
        let id = RemoteSegmentId { token_id, token, va, len: remote.len };
        if held_path.path().kind == PathKind::SameHost {
            home.segments().prepare(held_path.path(), &id);
        }
        let region = match mapping {
            Mapping::None => None,
            Mapping::LoadStore => Some(home.segments().map(held_path.path(), &id)?),
        };
        let home = home.key();
        let number = ObjectNumber::next();
        Ok(Self { span, home, token_id, token, access, uasid, region, number, held_path })
    }

    /// The place `offset` bytes in, for a request; the post checks that all of it lies inside.
    #[inline]
    #[must_use]
    pub fn at(&self, offset: u64) -> RemoteAddr<'_> {
        RemoteAddr { segment: self, addr: self.va().wrapping_add(offset) }
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
        self.held_path.path()
    }

    /// Its first byte on the network.
    #[must_use]
    pub fn ubva(&self) -> Ubva {
        Ubva { eid: self.path().eid, uasid: self.uasid, va: self.va() }
    }

    /// The memory itself, when it was imported with [`Mapping::LoadStore`].
    #[must_use]
    pub fn region(&self) -> Option<&Region> {
        self.region.as_ref()
    }

    /// Forgets it. Requests posted on it go on.
    pub fn unimport(self) {
        drop(self);
    }
}

/// Methods of registered and imported segments alike: a range of addresses under a token id of its owner.
macro_rules! segment_methods {
    ($segment:ident) => {
        impl $segment {
            /// First address, as its owner registered it: requests address it so.
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

            /// Never: a segment without bytes is refused.
            #[inline]
            #[must_use]
            pub fn is_empty(&self) -> bool {
                self.span.len() == 0
            }

            /// Token id (tid << 8) at its owner.
            #[inline]
            #[must_use]
            pub fn token_id(&self) -> TokenId {
                self.token_id
            }

            /// The token that requests of peers must show, if it is guarded.
            #[inline]
            #[must_use]
            pub fn token(&self) -> Option<Token> {
                self.token
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
    };
}

segment_methods!(Segment);
segment_methods!(ImportedSegment);
