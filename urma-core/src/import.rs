//! Imported segments: memory of other nodes that requests may name.
//!
//! *Owns*: the handle; the mapping for load and store where one was asked for. *Takes*: what a
//! peer exported of its segment. *Must not*: ask the peer whether it is true: the first request
//! does.

use std::sync::Arc;

use urma_mem::Region;

use crate::{
    Path, PathKind, RemoteSegment, SegmentAccess, Status, Token, TokenId, TransportMode, Uasid,
    Ubva,
    access::Span,
    memory::{MemoryHome, RemoteSegmentId},
    number::ObjectNumber,
    rules::{self, ensure, refuse},
    target::HeldPath,
};

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

    /// First address, as its owner registered it.
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

    /// Never: importing nothing is refused.
    #[inline]
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.span.len() == 0
    }

    /// The place `offset` bytes in, for a request; the post checks that all of it lies inside.
    #[inline]
    #[must_use]
    pub fn at(&self, offset: u64) -> RemoteAddr<'_> {
        RemoteAddr { segment: self, addr: self.va().wrapping_add(offset) }
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
