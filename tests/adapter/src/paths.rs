//! Paths to other nodes, and what was imported from there.
//!
//! The C API has no paths: it imports queues and segments. A path is held open by an import of the
//! other node's well-known jetty; what requests name is imported when they first name it, and goes
//! with the path.
//!
//! *Owns*: imported queues and segments, by path. *Gives*: the C objects for requests.
#![expect(unsafe_code, reason = "calls of C functions, and mapped memory")]

use std::collections::BTreeMap;

use liburma::{
    abi::{
        URMA_JETTY, URMA_JETTY_GROUP, urma_context_t, urma_eid_t, urma_import_seg_flag_t,
        urma_rjetty_t, urma_rjfr_t, urma_seg_t, urma_target_jetty_t, urma_target_seg_t,
        urma_ubva_t,
    },
    face::{
        segment::{urma_import_seg, urma_unimport_seg},
        target::{urma_import_jetty, urma_import_jfr, urma_unimport_jetty, urma_unimport_jfr},
    },
    zeroed,
};
use urma_core::{
    Eid, ImportedSegment, JettyId, OrderType, Path, PathKind, SegmentAccess, Status, TargetId,
    TargetKind, Token, TokenId, TransportMode, Ubva, ops::RemoteSegmentId,
};
use urma_mem::Region;

use crate::{
    shared::Shared,
    value::{self, Ptr, done},
};

/// The jetty that each node of the project answers at.
const WELL_KNOWN: u32 = 5;

/// The paths of a context, by number.
#[derive(Default, Debug)]
pub(crate) struct OpenPaths {
    open: BTreeMap<u32, OpenPath>,
    last: u32,
}

#[derive(Debug)]
struct OpenPath {
    probe: Ptr<urma_target_jetty_t>,
    targets: Vec<(TargetId, Ptr<urma_target_jetty_t>)>,
    segments: Vec<(SegmentName, Ptr<urma_target_seg_t>)>,
}

/// What a segment is imported by.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct SegmentName {
    ubva: Ubva,
    len: u64,
    token_id: TokenId,
    token: Option<Token>,
    access: SegmentAccess,
    mapping: u32,
}

/// Finds a path. Not under the lock of the open paths, since it may take long.
pub(crate) fn connect(shared: &Shared, eid: Eid, mode: TransportMode) -> Result<Path, Status> {
    let id = JettyId { eid, uasid: 0, id: WELL_KNOWN };
    let kind = if eid == shared.eid() { PathKind::Local } else { PathKind::Packets };
    let mut path = Path { tpn: 0, eid, kind };
    let order = OrderType::Default;
    let target = TargetId { kind: TargetKind::Jetty, id, path, token: None, mode, order };
    let probe = import_target(shared.ctx, &target)?;
    let mut paths = shared.paths();
    // Numbers of transport paths have 24 bits, and no context opens that many.
    paths.last += 1;
    path.tpn = paths.last;
    paths.open.insert(path.tpn, OpenPath { probe, targets: Vec::new(), segments: Vec::new() });
    Ok(path)
}

impl OpenPaths {
    /// Closes a path, with what was imported over it.
    pub(crate) fn close(&mut self, path: &Path) {
        let Some(open) = self.open.remove(&path.tpn) else { return };
        for (_, segment) in open.segments {
            // SAFETY: an object that the library checks.
            expect_success(unsafe { urma_unimport_seg(segment.0) }, "segment not unimported");
        }
        for (target, ptr) in open.targets {
            unimport(target.kind, ptr);
        }
        unimport(TargetKind::Jetty, open.probe);
    }

    /// The queue as C names it.
    pub(crate) fn target(
        &mut self,
        ctx: Ptr<urma_context_t>,
        target: &TargetId,
    ) -> Result<Ptr<urma_target_jetty_t>, Status> {
        let open = self.open.get_mut(&target.path.tpn).ok_or(Status::Invalid)?;
        if let Some((_, known)) = open.targets.iter().find(|(known, _)| known == target) {
            return Ok(*known);
        }
        let ptr = import_target(ctx, target)?;
        open.targets.push((*target, ptr));
        Ok(ptr)
    }

    /// The segment as C names it.
    pub(crate) fn segment(
        &mut self,
        ctx: Ptr<urma_context_t>,
        segment: &ImportedSegment,
    ) -> Result<Ptr<urma_target_seg_t>, Status> {
        let name = SegmentName {
            ubva: segment.ubva(),
            len: segment.len(),
            token_id: segment.token_id(),
            token: segment.token(),
            access: segment.access(),
            mapping: 0,
        };
        self.named(ctx, segment.path(), name)
    }

    /// Something to name a token by, for SEND_INVALIDATE: a segment of any place under it.
    pub(crate) fn invalidated(
        &mut self,
        ctx: Ptr<urma_context_t>,
        path: &Path,
        (token_id, token): (TokenId, Token),
    ) -> Result<Ptr<urma_target_seg_t>, Status> {
        const ANYWHERE: u64 = 4096;
        let ubva = Ubva { eid: path.eid, uasid: 0, va: ANYWHERE };
        let (token, access) = (Some(token), SegmentAccess::REMOTE_ALL);
        let name = SegmentName { ubva, len: 1, token_id, token, access, mapping: 0 };
        self.named(ctx, path, name)
    }

    /// Memory of a peer in this process; it stays until the path is closed.
    pub(crate) fn map(
        &mut self,
        ctx: Ptr<urma_context_t>,
        path: &Path,
        from: &RemoteSegmentId,
    ) -> Result<Region, Status> {
        let ubva = Ubva { eid: path.eid, uasid: 0, va: from.va };
        let access = SegmentAccess::REMOTE_ALL;
        let (token_id, token, len) = (from.token_id, from.token, from.len);
        let name = SegmentName { ubva, len, token_id, token, access, mapping: 1 };
        let segment = self.named(ctx, path, name)?;
        // SAFETY: a public member of a live object.
        let mva = unsafe { (*segment.0).mva };
        let addr = usize::try_from(mva).map_err(|_| Status::Fail)?;
        let len = usize::try_from(len).map_err(|_| Status::Invalid)?;
        let first = core::ptr::with_exposed_provenance_mut(addr);
        // SAFETY: the import maps it, and ends with the path; urma-core drops the region before
        // that.
        unsafe { Region::from_user(first, len) }.map_err(|_| Status::Fail)
    }

    fn named(
        &mut self,
        ctx: Ptr<urma_context_t>,
        path: &Path,
        name: SegmentName,
    ) -> Result<Ptr<urma_target_seg_t>, Status> {
        let open = self.open.get_mut(&path.tpn).ok_or(Status::Invalid)?;
        if let Some((_, known)) = open.segments.iter().find(|(known, _)| *known == name) {
            return Ok(*known);
        }
        let ptr = import_segment(ctx, &name)?;
        open.segments.push((name, ptr));
        Ok(ptr)
    }
}

fn import_target(
    ctx: Ptr<urma_context_t>,
    target: &TargetId,
) -> Result<Ptr<urma_target_jetty_t>, Status> {
    let (policy, mut token) = value::token(target.token);
    let tp_type = value::tp_type(target.mode);
    let mut to: urma_rjetty_t = zeroed();
    to.jetty_id = value::jetty_id(target.id);
    to.trans_mode = target.mode as u32;
    to.tp_type = tp_type;
    to.flag.set_token_policy(policy);
    to.flag.set_order_type(target.order as u32);
    to.r#type = match target.kind {
        TargetKind::Jetty => URMA_JETTY,
        TargetKind::Group => URMA_JETTY_GROUP,
        TargetKind::Jfr => {
            let mut jfr: urma_rjfr_t = zeroed();
            (jfr.jfr_id, jfr.trans_mode) = (to.jetty_id, to.trans_mode);
            (jfr.flag, jfr.tp_type) = (to.flag, to.tp_type);
            // SAFETY: a live context, and values that live until the call returns.
            return Ptr::made(unsafe { urma_import_jfr(ctx.0, &raw mut jfr, &raw mut token) });
        }
    };
    // SAFETY: `Shared` keeps the context open; `to` and `token` live until the call returns.
    Ptr::made(unsafe { urma_import_jetty(ctx.0, &raw mut to, &raw mut token) })
}

fn unimport(kind: TargetKind, ptr: Ptr<urma_target_jetty_t>) {
    let code = match kind {
        // SAFETY: an object that the library checks.
        TargetKind::Jfr => unsafe { urma_unimport_jfr(ptr.0) },
        // SAFETY: the library checks the object and refuses one that is not live.
        TargetKind::Jetty | TargetKind::Group => unsafe { urma_unimport_jetty(ptr.0) },
    };
    expect_success(code, "target not unimported");
}

fn import_segment(
    ctx: Ptr<urma_context_t>,
    name: &SegmentName,
) -> Result<Ptr<urma_target_seg_t>, Status> {
    let (policy, mut token) = value::token(name.token);
    let mut to: urma_seg_t = zeroed();
    let Ubva { eid, uasid, va } = name.ubva;
    to.ubva = urma_ubva_t { eid: urma_eid_t::from_raw(eid.bytes()), uasid, va };
    (to.len, to.token_id) = (name.len, name.token_id.value());
    to.attr.set_token_policy(policy);
    to.attr.set_access(name.access.bits().into());
    let mut flag = urma_import_seg_flag_t::default();
    flag.set_access(name.access.bits().into());
    flag.set_mapping(name.mapping);
    // SAFETY: a live context, and values that live until the call returns.
    Ptr::made(unsafe { urma_import_seg(ctx.0, &raw mut to, &raw mut token, 0, flag) })
}

fn expect_success(code: i32, what: &str) {
    if let Err(status) = done(code) {
        tracing::warn!(target: "urma", %status, "{what}");
    }
}
