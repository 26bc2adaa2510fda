//! Commands that make something.
#![expect(unsafe_code, reason = "exported functions")]
#![expect(clippy::missing_safety_doc, reason = "the room card says what callers promise")]
#![expect(missing_docs, reason = "each is the command of its name; the room card says the rest")]

use core::{ffi::c_int, ptr::NonNull};

use super::{
    plain::done,
    shadow::{self, Fds, Handled},
};
use crate::{
    abi::{
        urma_active_tp_cfg_t, urma_cmd_udrv_priv_t, urma_context_cfg_t, urma_context_t,
        urma_import_tseg_cfg_t, urma_jetty_cfg_t, urma_jetty_grp_cfg_t, urma_jetty_grp_t,
        urma_jetty_t, urma_jfc_cfg_t, urma_jfc_t, urma_jfce_t, urma_jfr_cfg_t, urma_jfr_t,
        urma_jfs_cfg_t, urma_jfs_t, urma_notifier_t, urma_rjetty_t, urma_rjfr_t, urma_seg_cfg_t,
        urma_seg_t, urma_target_jetty_t, urma_target_seg_t, urma_tjetty_cfg_t, urma_tjfr_cfg_t,
        urma_token_id_flag_t, urma_token_id_t,
    },
    call::{self, Answer, Code, ours},
    convert::zeroed,
    face::library,
    udma::{
        context, device,
        family::{self, Family},
        group, jfce, kind, notifier, segment, target, target_ex, token,
    },
};

type Udata = *mut urma_cmd_udrv_priv_t;

/// What an operation made, or the status that it set.
fn made<T>(shadow: *mut T) -> Answer<*mut T> {
    if shadow.is_null() {
        let errno = std::io::Error::last_os_error().raw_os_error().unwrap_or(libc::EIO);
        Code::from_c(errno)?;
        return Err(Code::EIO);
    }
    Ok(shadow)
}

/// Fills a context of the provider's: it is the software device's under the EID at `eid_index`.
pub unsafe extern "C" fn urma_cmd_create_context(
    ctx: *mut urma_context_t,
    cfg: *mut urma_context_cfg_t,
    _udata: Udata,
) -> c_int {
    done(|| {
        let to = shadow::place::<kind::Context>(ctx)?;
        // SAFETY: the caller's configuration.
        let cfg = unsafe { call::value(cfg) }?;
        let devices = library::devices()?;
        let device = devices.into_iter().find(|of| device::is_software(*of)).ok_or(Code::ENODEV)?;
        let (dev, index, fd) = (device.as_ptr(), cfg.eid_index, cfg.dev_fd);
        // SAFETY: a live device.
        let shadow = made(unsafe { context::create_context(dev, index, fd) })?;
        // SAFETY: a live context.
        let of = unsafe { &*shadow };
        // SAFETY: the caller's context, which nobody else knows yet.
        let public = unsafe { &mut *to.as_ptr() };
        (public.dev, public.ops, public.dev_fd) = (cfg.dev, cfg.ops, cfg.dev_fd);
        (public.async_fd, public.eid, public.uasid) = (of.async_fd, of.eid, of.uasid);
        public.eid_index = cfg.eid_index;
        *public.r#ref.atomic_cnt.get_mut() = 1;
        shadow::join_context(to, shadow);
        Ok(())
    })
}

pub unsafe extern "C" fn urma_cmd_delete_context(ctx: *mut urma_context_t) -> c_int {
    done(|| {
        let shadow = shadow::context(ctx)?;
        let owner = ours::<kind::Context>(shadow)?.owner();
        let channel = |addr| core::ptr::with_exposed_provenance_mut::<urma_jfce_t>(addr);
        let is_channel =
            |addr| ours::<kind::Jfce>(channel(addr)).is_ok_and(|of| of.owner() == owner);
        for addr in shadow::take_fds(Fds::Channels, is_channel) {
            // SAFETY: the operation looks it up.
            unsafe { jfce::delete_jfce(channel(addr)) };
        }
        let notifier = |addr| core::ptr::with_exposed_provenance_mut::<urma_notifier_t>(addr);
        let is_notifier =
            |addr| ours::<kind::Notifier>(notifier(addr)).is_ok_and(|of| of.owner() == owner);
        for addr in shadow::take_fds(Fds::Notifiers, is_notifier) {
            // SAFETY: the operation looks it up.
            unsafe { notifier::delete_notifier(notifier(addr)) };
        }
        // SAFETY: as above.
        Code::from_c(unsafe { context::delete_context(shadow) })?;
        shadow::part_context(ctx, shadow);
        Ok(())
    })
}

/// A descriptor of the provider's own, that behaves as `fd`.
fn copy(fd: c_int) -> Answer<c_int> {
    // SAFETY: no memory is named.
    let copy = unsafe { libc::fcntl(fd, libc::F_DUPFD_CLOEXEC, 0) };
    if copy < 0 { Err(Code::ENOMEM) } else { Ok(copy) }
}

/// The descriptor of a new event channel, or the negated status.
pub unsafe extern "C" fn urma_cmd_create_jfce(ctx: *mut urma_context_t) -> c_int {
    call::negative(|| {
        // SAFETY: the operation looks it up.
        let channel = made(unsafe { jfce::create_jfce(shadow::context(ctx)?) })?;
        // SAFETY: a live channel.
        let fd = copy(unsafe { (*channel).fd })?;
        shadow::join_fd(Fds::Channels, fd, channel);
        Ok(fd)
    })
}

/// The descriptor of a new notifier, or the negated status.
pub unsafe extern "C" fn urma_cmd_create_notifier(ctx: *mut urma_context_t) -> c_int {
    call::negative(|| {
        // SAFETY: the operation looks it up.
        let notifier = made(unsafe { notifier::create_notifier(shadow::context(ctx)?) })?;
        // SAFETY: a live notifier.
        let fd = copy(unsafe { (*notifier).fd })?;
        shadow::join_fd(Fds::Notifiers, fd, notifier);
        Ok(fd)
    })
}

/// A kind of queue whose configuration names objects.
trait Translated: Family + Handled {
    /// The same configuration, of the software device's objects.
    fn translate(cfg: Self::Cfg) -> Answer<Self::Cfg>;
}

impl Translated for kind::Jfc {
    fn translate(mut cfg: urma_jfc_cfg_t) -> Answer<urma_jfc_cfg_t> {
        if !cfg.jfce.is_null() && ours::<kind::Jfce>(cfg.jfce).is_err() {
            let channel = call::aligned(cfg.jfce)?;
            // SAFETY: a channel of the provider's.
            cfg.jfce = shadow::by_fd(Fds::Channels, unsafe { (*channel.as_ptr()).fd })?;
        }
        Ok(cfg)
    }
}

impl Translated for kind::Jfs {
    fn translate(mut cfg: urma_jfs_cfg_t) -> Answer<urma_jfs_cfg_t> {
        cfg.jfc = shadow::of_any::<kind::Jfc>(cfg.jfc)?;
        Ok(cfg)
    }
}

impl Translated for kind::Jfr {
    fn translate(mut cfg: urma_jfr_cfg_t) -> Answer<urma_jfr_cfg_t> {
        cfg.jfc = shadow::of_any::<kind::Jfc>(cfg.jfc)?;
        Ok(cfg)
    }
}

impl Translated for kind::Jetty {
    fn translate(mut cfg: urma_jetty_cfg_t) -> Answer<urma_jetty_cfg_t> {
        cfg.jfs_cfg = kind::Jfs::translate(cfg.jfs_cfg)?;
        cfg.jetty_grp = shadow::of_any::<kind::Group>(cfg.jetty_grp)?;
        if cfg.flag.share_jfr() != 0 {
            // SAFETY: the member that the flag names; any bytes are pointers.
            let mut shared = unsafe { cfg.u.shared };
            shared.jfr = shadow::of_any::<kind::Jfr>(shared.jfr)?;
            shared.jfc = shadow::of_any::<kind::Jfc>(shared.jfc)?;
            cfg.u.shared = shared;
        }
        Ok(cfg)
    }
}

/// Names the provider's queue as the software device's is named.
///
/// # Safety
/// Both exist.
unsafe fn name<K: Translated>(
    ctx: *mut urma_context_t,
    to: NonNull<K::Public>,
    shadow: *mut K::Public,
) {
    let (here, there) = (K::members(to.as_ptr()), K::members(shadow));
    // SAFETY: the caller's promise.
    unsafe { here.ctx.write(ctx) };
    // SAFETY: as above.
    let id = unsafe { there.id.read() };
    // SAFETY: as above.
    unsafe { here.id.write(id) };
    // SAFETY: as above.
    unsafe { here.opt_id.write(id.id) };
    shadow::join::<K>(to, shadow);
}

unsafe fn create<K: Translated>(
    ctx: *mut urma_context_t,
    to: *mut K::Public,
    cfg: *mut K::Cfg,
) -> c_int {
    done(|| {
        let to = shadow::place::<K>(to)?;
        // SAFETY: the caller's configuration.
        let given = unsafe { call::value(cfg) }?;
        let cfg = K::translate(given)?;
        // SAFETY: a configuration of this function.
        let shadow = unsafe { family::create::<K>(shadow::context(ctx)?, &raw const cfg) }?;
        // SAFETY: the caller's queue.
        unsafe { K::members(to.as_ptr()).cfg.write(given) };
        // SAFETY: both exist.
        unsafe { name::<K>(ctx, to, shadow) };
        Ok(())
    })
}

unsafe fn alloc<K: Translated>(
    ctx: *mut urma_context_t,
    cfg: *mut K::Cfg,
    to: *mut K::Public,
) -> c_int {
    done(|| {
        let to = shadow::place::<K>(to)?;
        // SAFETY: the caller's configuration.
        let given = unsafe { call::value(cfg) }?;
        let cfg = K::translate(given)?;
        let mut shadow = core::ptr::null_mut();
        // SAFETY: a configuration and a place of this function.
        unsafe { family::alloc::<K>(shadow::context(ctx)?, &raw const cfg, &raw mut shadow) }?;
        // SAFETY: the caller's queue.
        unsafe { K::members(to.as_ptr()).cfg.write(given) };
        // SAFETY: both exist.
        unsafe { name::<K>(ctx, to, shadow) };
        Ok(())
    })
}

/// Makes the queue live, with the configuration that the provider's has by now.
unsafe fn active<K: Translated>(of: *mut K::Public) -> c_int {
    done(|| {
        let shadow = shadow::of::<K>(of)?;
        if shadow != of {
            // SAFETY: an object of the provider's.
            let cfg = K::translate(unsafe { K::members(of).cfg.read() })?;
            let idle = crate::slab::find_idle::<K>(shadow).ok_or(Code::EINVAL)?;
            // SAFETY: an idle queue that nobody but the provider knows.
            unsafe { K::members(idle.public()).cfg.write(cfg) };
        }
        family::active::<K>(shadow)?;
        if let Some(to) = NonNull::new(of).filter(|_| shadow != of) {
            // SAFETY: an object of the provider's.
            let ctx = unsafe { K::members(of).ctx.read() };
            // SAFETY: both exist.
            unsafe { name::<K>(ctx, to, shadow) };
        }
        Ok(())
    })
}

macro_rules! queues {
    ($($kind:ident, $public:ident, $cfg:ident: $create:ident, $alloc:ident, $active:ident;)*) => {$(
        pub unsafe extern "C" fn $create(
            ctx: *mut urma_context_t,
            queue: *mut $public,
            cfg: *mut $cfg,
            _udata: Udata,
        ) -> c_int {
            // SAFETY: the caller's arguments.
            unsafe { create::<kind::$kind>(ctx, queue, cfg) }
        }

        pub unsafe extern "C" fn $alloc(
            ctx: *mut urma_context_t,
            cfg: *mut $cfg,
            queue: *mut $public,
            _udata: Udata,
        ) -> c_int {
            // SAFETY: the caller's arguments.
            unsafe { alloc::<kind::$kind>(ctx, cfg, queue) }
        }

        pub unsafe extern "C" fn $active(queue: *mut $public, _udata: Udata) -> c_int {
            // SAFETY: the caller's queue.
            unsafe { active::<kind::$kind>(queue) }
        }
    )*};
}

queues! {
    Jfc, urma_jfc_t, urma_jfc_cfg_t: urma_cmd_create_jfc, urma_cmd_alloc_jfc, urma_cmd_active_jfc;
    Jfs, urma_jfs_t, urma_jfs_cfg_t: urma_cmd_create_jfs, urma_cmd_alloc_jfs, urma_cmd_active_jfs;
    Jfr, urma_jfr_t, urma_jfr_cfg_t: urma_cmd_create_jfr, urma_cmd_alloc_jfr, urma_cmd_active_jfr;
    Jetty, urma_jetty_t, urma_jetty_cfg_t:
        urma_cmd_create_jetty, urma_cmd_alloc_jetty, urma_cmd_active_jetty;
}

pub unsafe extern "C" fn urma_cmd_create_jetty_grp(
    ctx: *mut urma_context_t,
    jetty_grp: *mut urma_jetty_grp_t,
    cfg: *mut urma_jetty_grp_cfg_t,
    _udata: Udata,
) -> c_int {
    done(|| {
        let to = shadow::place::<kind::Group>(jetty_grp)?;
        // SAFETY: the caller's configuration.
        let shadow = made(unsafe { group::create_jetty_grp(shadow::context(ctx)?, cfg) })?;
        // SAFETY: a live group.
        let of = unsafe { &*shadow };
        // SAFETY: the caller's group, which nobody else knows yet.
        let public = unsafe { &mut *to.as_ptr() };
        (public.urma_ctx, public.jetty_grp_id, public.cfg) = (ctx, of.jetty_grp_id, of.cfg);
        shadow::join::<kind::Group>(to, shadow);
        Ok(())
    })
}

/// Fills a target of the provider's.
fn point(
    ctx: *mut urma_context_t,
    to: NonNull<urma_target_jetty_t>,
    shadow: *mut urma_target_jetty_t,
) {
    // SAFETY: a live target.
    let mut public = unsafe { *shadow };
    public.urma_ctx = ctx;
    // SAFETY: the caller's target, which nobody else knows yet.
    unsafe { to.write(public) };
    shadow::join::<kind::Target>(to, shadow);
}

fn rjfr(cfg: &urma_tjfr_cfg_t) -> urma_rjfr_t {
    let mut to: urma_rjfr_t = zeroed();
    (to.jfr_id, to.flag) = (cfg.jfr_id, cfg.flag);
    (to.trans_mode, to.tp_type) = (cfg.trans_mode, cfg.tp_type);
    to
}

fn rjetty(cfg: &urma_tjetty_cfg_t) -> urma_rjetty_t {
    let mut to: urma_rjetty_t = zeroed();
    (to.jetty_id, to.flag, to.policy) = (cfg.jetty_id, cfg.flag, cfg.policy);
    (to.trans_mode, to.tp_type, to.r#type) = (cfg.trans_mode, cfg.tp_type, cfg.r#type);
    to
}

pub unsafe extern "C" fn urma_cmd_import_jfr(
    ctx: *mut urma_context_t,
    tjfr: *mut urma_target_jetty_t,
    cfg: *mut urma_tjfr_cfg_t,
    udata: Udata,
) -> c_int {
    let mut any: urma_active_tp_cfg_t = zeroed();
    // SAFETY: the caller's arguments, and a path that leaves the choice.
    unsafe { urma_cmd_import_jfr_ex(ctx, tjfr, cfg, &raw mut any, udata) }
}

pub unsafe extern "C" fn urma_cmd_import_jfr_ex(
    ctx: *mut urma_context_t,
    tjfr: *mut urma_target_jetty_t,
    cfg: *mut urma_tjfr_cfg_t,
    ex_cfg: *mut urma_active_tp_cfg_t,
    _udata: Udata,
) -> c_int {
    done(|| {
        let to = shadow::place::<kind::Target>(tjfr)?;
        // SAFETY: the caller's configuration.
        let cfg = unsafe { call::value(cfg) }?;
        let (mut of, ctx_of) = (rjfr(&cfg), shadow::context(ctx)?);
        // SAFETY: a description of this function, and the caller's token and path.
        let made_of = unsafe { target_ex::import_jfr_ex(ctx_of, &raw mut of, cfg.token, ex_cfg) };
        point(ctx, to, made(made_of)?);
        Ok(())
    })
}

pub unsafe extern "C" fn urma_cmd_import_jetty(
    ctx: *mut urma_context_t,
    tjetty: *mut urma_target_jetty_t,
    cfg: *mut urma_tjetty_cfg_t,
    udata: Udata,
) -> c_int {
    let mut any: urma_active_tp_cfg_t = zeroed();
    // SAFETY: the caller's arguments, and a path that leaves the choice.
    unsafe { urma_cmd_import_jetty_ex(ctx, tjetty, cfg, &raw mut any, udata) }
}

pub unsafe extern "C" fn urma_cmd_import_jetty_ex(
    ctx: *mut urma_context_t,
    tjetty: *mut urma_target_jetty_t,
    cfg: *mut urma_tjetty_cfg_t,
    ex_cfg: *mut urma_active_tp_cfg_t,
    _udata: Udata,
) -> c_int {
    done(|| {
        let to = shadow::place::<kind::Target>(tjetty)?;
        // SAFETY: the caller's configuration.
        let cfg = unsafe { call::value(cfg) }?;
        let (mut of, ctx_of) = (rjetty(&cfg), shadow::context(ctx)?);
        // SAFETY: a description of this function, and the caller's token and path.
        let made_of = unsafe { target_ex::import_jetty_ex(ctx_of, &raw mut of, cfg.token, ex_cfg) };
        point(ctx, to, made(made_of)?);
        Ok(())
    })
}

/// Answers at once, by waiting for the node: a provider's target cannot come later than this.
/// A notice tells how it went.
pub unsafe extern "C" fn urma_cmd_import_jetty_async(
    notifier: *mut urma_notifier_t,
    tjetty: *mut urma_target_jetty_t,
    cfg: *mut urma_tjetty_cfg_t,
    user_ctx: u64,
    _timeout: c_int,
    udata: Udata,
) -> c_int {
    done(|| {
        let from = call::aligned(notifier)?;
        // SAFETY: a notifier of the provider's.
        let ctx = unsafe { (*from.as_ptr()).urma_ctx };
        // SAFETY: as above.
        let fd = unsafe { (*from.as_ptr()).fd };
        let behind = shadow::by_fd(Fds::Notifiers, fd)?;
        // SAFETY: the caller's arguments.
        let status = unsafe { urma_cmd_import_jetty(ctx, tjetty, cfg, udata) };
        notifier::tell_import(behind, tjetty, (-status, user_ctx))
    })
}

pub unsafe extern "C" fn urma_cmd_bind_jetty_async(
    notifier: *mut urma_notifier_t,
    jetty: *mut urma_jetty_t,
    tjetty: *mut urma_target_jetty_t,
    user_ctx: u64,
    _timeout: c_int,
    _udata: Udata,
) -> c_int {
    done(|| {
        let from = call::aligned(notifier)?;
        // SAFETY: a notifier of the provider's.
        let behind = shadow::by_fd(Fds::Notifiers, unsafe { (*from.as_ptr()).fd })?;
        let of = shadow::of::<kind::Jetty>(jetty)?;
        // SAFETY: the operation looks both up.
        let status = unsafe { target::bind_jetty(of, shadow::of::<kind::Target>(tjetty)?) };
        notifier::tell_bind(behind, jetty, (status, user_ctx))
    })
}

pub unsafe extern "C" fn urma_cmd_bind_jetty_ex(
    jetty: *mut urma_jetty_t,
    tjetty: *mut urma_target_jetty_t,
    ex_cfg: *mut urma_active_tp_cfg_t,
    _udata: Udata,
) -> c_int {
    done(|| {
        let of = shadow::of::<kind::Jetty>(jetty)?;
        let to = shadow::of::<kind::Target>(tjetty)?;
        // SAFETY: the operation looks both up; the caller's path.
        Code::from_c(unsafe { target_ex::bind_jetty_ex(of, to, ex_cfg) })
    })
}

pub unsafe extern "C" fn urma_cmd_alloc_token_id(
    ctx: *mut urma_context_t,
    token_id: *mut urma_token_id_t,
    udata: Udata,
) -> c_int {
    // SAFETY: the caller's arguments.
    unsafe { urma_cmd_alloc_token_id_ex(ctx, token_id, urma_token_id_flag_t::default(), udata) }
}

pub unsafe extern "C" fn urma_cmd_alloc_token_id_ex(
    ctx: *mut urma_context_t,
    token_id: *mut urma_token_id_t,
    flag: urma_token_id_flag_t,
    _udata: Udata,
) -> c_int {
    done(|| {
        let to = shadow::place::<kind::TokenId>(token_id)?;
        // SAFETY: the operation looks it up.
        let shadow = made(unsafe { token::alloc_token_id_ex(shadow::context(ctx)?, flag) })?;
        // SAFETY: a live token id.
        let number = unsafe { (*shadow).token_id };
        // SAFETY: the caller's token id, which nobody else knows yet.
        let public = unsafe { &mut *to.as_ptr() };
        (public.urma_ctx, public.token_id, public.flag) = (ctx, number, flag);
        shadow::join::<kind::TokenId>(to, shadow);
        Ok(())
    })
}

/// Fills a segment of the provider's.
fn place_segment(
    ctx: *mut urma_context_t,
    to: NonNull<urma_target_seg_t>,
    (shadow, token_id): (*mut urma_target_seg_t, *mut urma_token_id_t),
) {
    // SAFETY: a live segment.
    let of = unsafe { &*shadow };
    // SAFETY: the caller's segment, which nobody else knows yet.
    let public = unsafe { &mut *to.as_ptr() };
    (public.seg, public.mva, public.user_ctx) = (of.seg, of.mva, of.user_ctx);
    (public.urma_ctx, public.token_id) = (ctx, token_id);
    shadow::join::<kind::Segment>(to, shadow);
}

pub unsafe extern "C" fn urma_cmd_register_seg(
    ctx: *mut urma_context_t,
    tseg: *mut urma_target_seg_t,
    cfg: *mut urma_seg_cfg_t,
    _udata: Udata,
) -> c_int {
    done(|| {
        let to = shadow::place::<kind::Segment>(tseg)?;
        // SAFETY: the caller's configuration.
        let mut cfg = unsafe { call::value(cfg) }?;
        let token_id = cfg.token_id;
        cfg.token_id = shadow::of_any::<kind::TokenId>(token_id)?;
        // SAFETY: a configuration of this function.
        let made_of = unsafe { segment::register_seg(shadow::context(ctx)?, &raw mut cfg) };
        place_segment(ctx, to, (made(made_of)?, token_id));
        Ok(())
    })
}

pub unsafe extern "C" fn urma_cmd_import_seg(
    ctx: *mut urma_context_t,
    tseg: *mut urma_target_seg_t,
    cfg: *mut urma_import_tseg_cfg_t,
    _udata: Udata,
) -> c_int {
    done(|| {
        let to = shadow::place::<kind::Segment>(tseg)?;
        // SAFETY: the caller's configuration.
        let cfg = unsafe { call::value(cfg) }?;
        let mut seg: urma_seg_t = zeroed();
        (seg.ubva, seg.len, seg.attr, seg.token_id) = (cfg.ubva, cfg.len, cfg.attr, cfg.token_id);
        let ctx_of = shadow::context(ctx)?;
        // SAFETY: a description of this function, and the caller's token.
        let made_of =
            unsafe { segment::import_seg(ctx_of, &raw mut seg, cfg.token, cfg.mva, cfg.flag) };
        place_segment(ctx, to, (made(made_of)?, core::ptr::null_mut()));
        Ok(())
    })
}
