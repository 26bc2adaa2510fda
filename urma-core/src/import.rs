//! Imported segments: memory of other nodes that requests may name.
//!
//! *Owns*: the handle; the mapping for load and store where one was asked for. *Takes*: what a
//! peer exported of its segment. *Must not*: ask the peer whether it is true: the first request
//! does.

use std::sync::Arc;

use urma_mem::Region;

use crate::{
    Context, Path, PathKind, RemoteAddr, SegmentAccess, Status, Token, TokenId, TokenPolicy,
    TransportMode, Uasid, Ubva,
    check::Span,
    number::ObjectNumber,
    ops::RemoteSegmentId,
    rules::{self, ensure, refuse},
    target::HeldPath,
};

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

impl Context {
    /// Imports a peer's segment for the kinds of access in `access`, and finds the path to its
    /// node. What the owner did not grant is refused by its device, request by request.
    ///
    /// # Errors
    /// `Invalid`: address 0, length 0 or a range that wraps; the access rules; LOCAL_ONLY.
    /// `Unsupported`: token policies SIGNED and ALL_ENCRYPTED; a mapping that the device or the
    /// path cannot give. `NoPermission`: mapping with a wrong token or without the access.
    /// `TimedOut`, `Unreachable`: the node was not found.
    pub fn import_segment(
        &self,
        remote: &RemoteSegment,
        access: SegmentAccess,
        mapping: Mapping,
    ) -> Result<ImportedSegment, Status> {
        let home = self.shared();
        let Ubva { eid, uasid, va } = remote.ubva;
        let why = format_args!("va {va:#x} of {} bytes", remote.len);
        let span = Span::new(va, remote.len).ok_or_else(|| refuse(Status::Invalid, why))?;
        access.check()?;
        let is_remote = !access.contains(SegmentAccess::LOCAL_ONLY);
        ensure(is_remote, format_args!("LOCAL_ONLY memory cannot be imported"))?;
        let token = remote.policy.token()?;
        if mapping == Mapping::LoadStore {
            rules::mapping(&home.attr)?;
        }
        let held_path = HeldPath::open(home, eid, TransportMode::Rm)?;
        let token_id = remote.token_id;
        let id = RemoteSegmentId { token_id, token, va, len: remote.len };
        if held_path.path().kind == PathKind::SameHost {
            home.ops.prepare(held_path.path(), &id);
        }
        let region = match mapping {
            Mapping::None => None,
            Mapping::LoadStore => Some(home.ops.map(held_path.path(), &id)?),
        };
        let home = home.key();
        let number = ObjectNumber::next();
        Ok(ImportedSegment {
            span,
            home,
            token_id,
            token,
            access,
            uasid,
            region,
            number,
            held_path,
        })
    }
}

impl ImportedSegment {
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
