//! Segments, registered and imported, and token ids.
//!
//! *Owns*: urma-core's segment, for the local and for the remote side of a request, and its lease of a token id. *Gives*:
//! `urma_target_seg_t`, `urma_token_id_t`. *Must not*: touch the memory.

use std::sync::Arc;

use urma_core::{
    ImportedSegment, Mapping, RemoteSegment, Segment, SegmentAccess, SegmentCfg, Status, TokenId,
    Ubva,
};
use urma_mem::Region;

use crate::{
    abi::*,
    call::{self, Answer, Code, gone, ours, refuse},
    convert::{self, zeroed},
    slab::{Guard, Slot},
    udma::{
        context::{ctx_of, delete, publish, token_of},
        kind::{self, Ctx, SegmentOwn, TokenOwn},
    },
};

impl SegmentOwn {
    pub(crate) fn new(
        local: Option<Segment>,
        remote: Option<ImportedSegment>,
        ctx: &Arc<Ctx>,
    ) -> Self {
        Self { local, remote, ctx: Arc::clone(ctx) }
    }
}

/// A segment that no program asked for, known to this library alone.
///
/// # Errors
/// ENOMEM.
pub(crate) fn publish_unseen(
    own: &Ctx,
    ctx: *mut urma_context_t,
    segment: SegmentOwn,
) -> Answer<Slot<kind::Segment>> {
    let mut public: urma_target_seg_t = zeroed();
    public.urma_ctx = ctx;
    publish(own, public, segment)
}

pub(crate) unsafe extern "C" fn register_seg(
    ctx: *mut urma_context_t,
    cfg: *mut urma_seg_cfg_t,
) -> *mut urma_target_seg_t {
    call::pointer(|| {
        let own = ctx_of(ctx)?;
        // SAFETY: a configuration of the caller's (room card of `face`).
        let cfg = unsafe { call::value(cfg) }?;
        let region = region(&cfg)?;
        let lease = if cfg.token_id.is_null() {
            None
        } else {
            Some(ours::<kind::TokenId>(cfg.token_id)?.lock().ok_or_else(gone::<kind::TokenId>)?)
        };
        let local = match (register(&own, &region, &cfg, lease.as_ref()), &lease) {
            // The device has one segment for each of its token ids: the others get their own.
            (Err(code), Some(lease)) if code.is(Code::EEXIST) && lease.takes_several => {
                register(&own, &region, &cfg, None)
            }
            (registered, _) => registered,
        }?;
        drop(lease);
        let remote = loopback(&own, &local);
        let mut public: urma_target_seg_t = zeroed();
        public.seg = describe(&local, &cfg);
        public.user_ctx = cfg.user_ctx;
        public.urma_ctx = ctx;
        public.token_id = cfg.token_id;
        public.handle = u64::from(local.token_id().value());
        let segment = SegmentOwn::new(Some(local), remote, &own);
        Ok(publish::<kind::Segment>(&own, public, segment)?.public())
    })
}

fn wide(cfg: &urma_seg_cfg_t) -> Code {
    refuse!(EINVAL, "seg_cfg.va is {:#x}, len {}: more than an address has", cfg.va, cfg.len)
}

fn region(cfg: &urma_seg_cfg_t) -> Answer<Region> {
    let addr = usize::try_from(cfg.va).map_err(|_| wide(cfg))?;
    let len = usize::try_from(cfg.len).map_err(|_| wide(cfg))?;
    let first = core::ptr::with_exposed_provenance_mut(addr);
    // SAFETY: the C program keeps the memory mapped while it is registered; that is the contract of
    // urma_register_seg. Rust code of this library never refers to it but through the region.
    let region = unsafe { Region::from_user(first, len) };
    region.map_err(|error| match error.raw_os_error() {
        Some(libc::EFAULT) => {
            refuse!(
                EFAULT,
                "seg_cfg.va is {:#x}, len {}: memory is not mapped there throughout",
                cfg.va,
                cfg.len
            )
        }
        _ => refuse!(EINVAL, "seg_cfg.va is {:#x}, len {}: {error}", cfg.va, cfg.len),
    })
}

fn register(
    own: &Ctx,
    region: &Region,
    cfg: &urma_seg_cfg_t,
    lease: Option<&Guard<kind::TokenId>>,
) -> Answer<Segment> {
    let flag = cfg.flag;
    let access = u8::try_from(flag.access()).ok().and_then(SegmentAccess::from_bits);
    let to = SegmentCfg {
        access: access.ok_or_else(|| {
            refuse!(EINVAL, "seg_cfg.flag.access is {:#x}; rights are bits 0 to 3", flag.access())
        })?,
        policy: convert::policy(flag.token_policy(), cfg.token_value)?,
        cacheable: flag.cacheable() != 0,
        non_pin: flag.non_pin() != 0,
        user_iova: (flag.user_iova() != 0).then_some(cfg.iova),
        user_ctx: cfg.user_ctx,
    };
    Ok(own.core.register(region, &to, lease.map(|lease| &lease.core))?)
}

/// The segment as one's own node sees it from outside.
fn loopback(own: &Ctx, local: &Segment) -> Option<ImportedSegment> {
    if local.access().contains(SegmentAccess::LOCAL_ONLY) {
        return None;
    }
    own.core.import_segment(&local.remote(), local.access(), Mapping::None).ok()
}

fn describe(local: &Segment, cfg: &urma_seg_cfg_t) -> urma_seg_t {
    let remote = local.remote();
    let mut attr = urma_seg_attr_t::default();
    attr.set_token_policy(cfg.flag.token_policy());
    attr.set_cacheable(cfg.flag.cacheable());
    attr.set_dsva(cfg.flag.dsva());
    attr.set_access(cfg.flag.access());
    attr.set_non_pin(cfg.flag.non_pin());
    attr.set_user_iova(cfg.flag.user_iova());
    attr.set_user_token_id(cfg.flag.token_id_valid());
    let Ubva { eid, uasid, va } = remote.ubva;
    let ubva = urma_ubva_t { eid: convert::eid_out(eid), uasid, va };
    urma_seg_t { ubva, len: remote.len, attr, token_id: remote.token_id.value() }
}

pub(crate) unsafe extern "C" fn unregister_seg(segment: *mut urma_target_seg_t) -> urma_status_t {
    call::status(|| {
        delete::<kind::Segment>(segment, |SegmentOwn { local, remote, ctx }| match local {
            None => {
                let code = refuse!(EINVAL, "the segment is imported; urma_unimport_seg ends it");
                Err(Box::new((SegmentOwn { local, remote, ctx }, code)))
            }
            Some(local) => local.unregister().map_err(|refused| {
                let (local, code) = (Some(*refused.object), refused.status.into());
                Box::new((SegmentOwn { local, remote, ctx }, code))
            }),
        })
    })
}

pub(crate) unsafe extern "C" fn import_seg(
    ctx: *mut urma_context_t,
    seg: *mut urma_seg_t,
    token: *mut urma_token_t,
    addr: u64,
    flag: urma_import_seg_flag_t,
) -> *mut urma_target_seg_t {
    call::pointer(|| {
        let own = ctx_of(ctx)?;
        // SAFETY: a description of the caller's (room card of `face`).
        let seg = unsafe { call::value(seg) }?;
        // SAFETY: a token of the caller's, or NULL.
        let token = unsafe { token_of(token) }?;
        let mapping = if flag.mapping() == 0 { Mapping::None } else { Mapping::LoadStore };
        let granted = granted(seg.attr.access());
        let wanted = granted_or(flag.access(), granted);
        let ubva = seg.ubva;
        let remote = RemoteSegment {
            ubva: Ubva { eid: convert::eid(ubva.eid), uasid: ubva.uasid, va: ubva.va },
            len: seg.len,
            token_id: TokenId::new(seg.token_id),
            policy: convert::policy(seg.attr.token_policy(), token)?,
            access: granted,
        };
        let imported = own.core.import_segment(&remote, wanted, mapping)?;
        let mut public: urma_target_seg_t = zeroed();
        public.seg = seg;
        // What followed the description stays with it.
        public.seg.attr.set_has_user_info(0);
        public.mva = imported.region().map_or(addr, |region| region.addr() as u64);
        public.urma_ctx = ctx;
        public.handle = u64::from(seg.token_id);
        let segment = SegmentOwn::new(None, Some(imported), &own);
        Ok(publish::<kind::Segment>(&own, public, segment)?.public())
    })
}

/// The rights in `bits` and those that they need; everything when there are none.
fn granted(bits: u32) -> SegmentAccess {
    let all = SegmentAccess::REMOTE_ALL;
    let mut access = SegmentAccess::from_bits_truncate(bits.to_le_bytes()[0]) & all;
    if access.contains(SegmentAccess::ATOMIC) {
        access = all;
    } else if access.contains(SegmentAccess::WRITE) {
        access |= SegmentAccess::READ;
    }
    if access.is_empty() { all } else { access }
}

/// What an import asks for; the owner's device has the last word on each request.
fn granted_or(bits: u32, granted: SegmentAccess) -> SegmentAccess {
    if bits & u32::from(SegmentAccess::REMOTE_ALL.bits()) == 0 {
        granted
    } else {
        self::granted(bits)
    }
}

pub(crate) unsafe extern "C" fn unimport_seg(segment: *mut urma_target_seg_t) -> urma_status_t {
    call::status(|| {
        delete::<kind::Segment>(segment, |own| match own {
            SegmentOwn { local: None, .. } => Ok(()),
            own => {
                let code =
                    refuse!(EINVAL, "the segment is registered; urma_unregister_seg ends it");
                Err(Box::new((own, code)))
            }
        })
    })
}

pub(crate) unsafe extern "C" fn alloc_token_id(ctx: *mut urma_context_t) -> *mut urma_token_id_t {
    // The same as in UMDK's library: only the call with flags can ask for a token id of one segment.
    call::pointer(|| alloc(ctx, urma_token_id_flag_t::default(), true))
}

pub(crate) unsafe extern "C" fn alloc_token_id_ex(
    ctx: *mut urma_context_t,
    flag: urma_token_id_flag_t,
) -> *mut urma_token_id_t {
    call::pointer(|| alloc(ctx, flag, flag.multi_seg() != 0))
}

fn alloc(
    ctx: *mut urma_context_t,
    flag: urma_token_id_flag_t,
    takes_several: bool,
) -> Answer<*mut urma_token_id_t> {
    let own = ctx_of(ctx)?;
    let core = own.core.alloc_token_id()?;
    let mut public: urma_token_id_t = zeroed();
    public.urma_ctx = ctx;
    public.token_id = core.id().value();
    public.handle = u64::from(core.id().value());
    public.flag = flag;
    let token = TokenOwn { core, takes_several, ctx: Arc::clone(&own) };
    Ok(publish::<kind::TokenId>(&own, public, token)?.public())
}

pub(crate) unsafe extern "C" fn free_token_id(token: *mut urma_token_id_t) -> urma_status_t {
    call::status(|| {
        delete::<kind::TokenId>(token, |TokenOwn { core, takes_several, ctx }| {
            core.free().or_else(|refused| {
                // A device that failed has no token ids any more; its context has to be deleted.
                if refused.status == Status::NoDevice {
                    return Ok(());
                }
                let own = TokenOwn { core: *refused.object, takes_several, ctx };
                Err(Box::new((own, refused.status.into())))
            })
        })
    })
}
