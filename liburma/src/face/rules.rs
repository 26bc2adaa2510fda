//! Checks and book-keeping of the C core for each kind of queue.
//!
//! *Owns*: the rules for configurations (order types by mode among them), the references that a queue holds beside its
//! context, and which member of a provider's table deletes several. *Must not*: call a provider.

use core::{ffi::c_int, ptr::NonNull};

use urma_mem::sync::Ordering;

use crate::{
    abi::*,
    call::{Answer, Object, object, refuse},
    face::{
        dispatch::{Homed, drop_one, member_of},
        jetty,
    },
    udma::{family::Family, kind},
};

/// Type of an operation that deletes several objects.
pub(super) type BatchOp<T> = unsafe extern "C" fn(*mut *mut T, c_int, *mut *mut T) -> urma_status_t;

/// Checks and book-keeping of the C core for one kind.
pub(super) trait Rules: Family<Public: Homed> {
    /// Whether create writes defaults into the caller's configuration.
    const FILLS: bool = true;

    /// The operation that deletes several.
    fn delete_op(ops: NonNull<urma_ops_t>) -> Option<BatchOp<Self::Public>>;
    /// Fills in the defaults of alloc.
    fn fill_in(cfg: &mut Self::Cfg);
    /// Checks a configuration at creation and activation; fills in the order type.
    fn check(cfg: &mut Self::Cfg, caps: &urma_device_cap_t) -> Answer;
    /// Checks whether an object, of any provider, may be deleted.
    fn may_go(_of: Object<Self::Public>) -> Answer {
        Ok(())
    }
    /// Returns the event channel that the queue uses.
    fn channel(_cfg: &Self::Cfg) -> *mut urma_jfce_t {
        core::ptr::null_mut()
    }
    /// Called when the queue became active.
    fn joined(_queue: *mut Self::Public, _cfg: &Self::Cfg) {}
    /// Called when the queue is no longer active; the address must not be read.
    fn leaves(_queue: *mut Self::Public, _cfg: &Self::Cfg) {}
}

/// Reads the member of this name.
macro_rules! delete_op {
    ($member:ident) => {
        fn delete_op(ops: NonNull<urma_ops_t>) -> Option<BatchOp<Self::Public>> {
            member_of!(ops, $member)
        }
    };
}

impl Rules for kind::Jfc {
    const FILLS: bool = false;
    delete_op!(delete_jfc_batch);

    fn fill_in(_cfg: &mut urma_jfc_cfg_t) {}

    fn check(cfg: &mut urma_jfc_cfg_t, caps: &urma_device_cap_t) -> Answer {
        within("jfc_cfg.depth", cfg.depth, 1, caps.max_jfc_depth)?;
        if !cfg.jfce.is_null() {
            object::<kind::Jfce>(cfg.jfce)?;
        }
        Ok(())
    }

    fn channel(cfg: &urma_jfc_cfg_t) -> *mut urma_jfce_t {
        cfg.jfce
    }
}

impl Rules for kind::Jfs {
    delete_op!(delete_jfs_batch);

    fn fill_in(cfg: &mut urma_jfs_cfg_t) {
        if let Ok(order) = order_of(cfg.trans_mode, cfg.flag.order_type()) {
            cfg.flag.set_order_type(order);
        }
    }

    fn check(cfg: &mut urma_jfs_cfg_t, caps: &urma_device_cap_t) -> Answer {
        sends(cfg, caps)
    }
}

impl Rules for kind::Jfr {
    delete_op!(delete_jfr_batch);

    fn fill_in(cfg: &mut urma_jfr_cfg_t) {
        if let Ok(order) = order_of(cfg.trans_mode, cfg.flag.order_type()) {
            cfg.flag.set_order_type(order);
        }
    }

    fn check(cfg: &mut urma_jfr_cfg_t, caps: &urma_device_cap_t) -> Answer {
        object::<kind::Jfc>(cfg.jfc)?;
        // Any order type is accepted: the jetty that receives through the JFR must ask for the same one, and that
        // must fit the mode.
        let order = match cfg.flag.order_type() {
            URMA_DEF_ORDER => order_of(cfg.trans_mode, URMA_DEF_ORDER)?,
            order => order,
        };
        within("jfr_cfg.depth", cfg.depth, 1, caps.max_jfr_depth)?;
        within("jfr_cfg.max_sge", cfg.max_sge.into(), 0, caps.max_jfr_sge)?;
        cfg.flag.set_order_type(order);
        Ok(())
    }
}

impl Rules for kind::Jetty {
    delete_op!(delete_jetty_batch);

    fn fill_in(cfg: &mut urma_jetty_cfg_t) {
        kind::Jfs::fill_in(&mut cfg.jfs_cfg);
    }

    /// On UB devices the receive queue is a JFR; its mode and order are those of the send half.
    fn check(cfg: &mut urma_jetty_cfg_t, caps: &urma_device_cap_t) -> Answer {
        sends(&mut cfg.jfs_cfg, caps)?;
        let Receive::Shared(shared) = cfg.receive() else {
            return Err(refuse!(
                EINVAL,
                "jetty_cfg.flag.share_jfr is 0; on a UB device it is 1, and shared.jfr names the JFR"
            ));
        };
        let jfr = object::<kind::Jfr>(shared.jfr)?;
        if !shared.jfc.is_null() {
            object::<kind::Jfc>(shared.jfc)?;
        }
        let recv = jfr.jfr_cfg;
        if !cfg.jetty_grp.is_null() {
            joins(object::<kind::Group>(cfg.jetty_grp)?, &recv, caps)?;
        }
        let is_alike = recv.trans_mode == cfg.jfs_cfg.trans_mode
            && recv.flag.order_type() == cfg.jfs_cfg.flag.order_type();
        if is_alike {
            return Ok(());
        }
        let (mode, order) = (cfg.jfs_cfg.trans_mode, cfg.jfs_cfg.flag.order_type());
        Err(refuse!(
            EINVAL,
            "jfs_cfg has trans_mode {mode} and order_type {order}, the JFR {} and {}; both halves of a jetty have the same",
            recv.trans_mode,
            recv.flag.order_type()
        ))
    }

    /// A bound jetty may not be deleted.
    fn may_go(jetty: Object<urma_jetty_t>) -> Answer {
        let is_bound =
            jetty.jetty_cfg.jfs_cfg.trans_mode == URMA_TM_RC && !jetty.remote_jetty.is_null();
        if !is_bound {
            return Ok(());
        }
        Err(refuse!(ENOPERM, "jetty {} is bound; unbind it first", jetty.jetty_id.id))
    }

    fn joined(queue: *mut urma_jetty_t, cfg: &urma_jetty_cfg_t) {
        jetty::add_member(cfg.jetty_grp, queue);
    }

    fn leaves(queue: *mut urma_jetty_t, cfg: &urma_jetty_cfg_t) {
        jetty::remove_member(cfg.jetty_grp, queue);
    }
}

/// Checks the configuration of a JFS or of the send half of a jetty; fills in the order type.
fn sends(cfg: &mut urma_jfs_cfg_t, caps: &urma_device_cap_t) -> Answer {
    object::<kind::Jfc>(cfg.jfc)?;
    let order = order_of(cfg.trans_mode, cfg.flag.order_type())?;
    within("jfs_cfg.depth", cfg.depth, 1, caps.max_jfs_depth)?;
    within("jfs_cfg.max_sge", cfg.max_sge.into(), 0, caps.max_jfs_sge)?;
    within("jfs_cfg.max_rsge", cfg.max_rsge.into(), 0, caps.max_jfs_rsge)?;
    within("jfs_cfg.max_inline_data", cfg.max_inline_data, 0, caps.max_jfs_inline_len)?;
    cfg.flag.set_order_type(order);
    Ok(())
}

/// Checks a jetty that joins a group: RM, the token of the group, and a free place in it.
fn joins(
    group: Object<urma_jetty_grp_t>,
    recv: &urma_jfr_cfg_t,
    caps: &urma_device_cap_t,
) -> Answer {
    let of = &*group;
    let is_alike = recv.trans_mode == URMA_TM_RM
        && of.cfg.flag.token_policy() == recv.flag.token_policy()
        && of.cfg.token_value.token == recv.token_value.token;
    let has_room = of.jetty_cnt < caps.max_jetty_in_jetty_grp;
    if is_alike && has_room {
        return Ok(());
    }
    Err(if is_alike {
        let (count, most) = (of.jetty_cnt, caps.max_jetty_in_jetty_grp);
        refuse!(
            EINVAL,
            "the group has {count} jetties; {most} is the most (max_jetty_in_jetty_grp)"
        )
    } else {
        refuse!(
            EINVAL,
            "the JFR has trans_mode {} and token policy {}; in this group it must be RM (1), with policy {} and the \
             group's token",
            recv.trans_mode,
            recv.flag.token_policy(),
            of.cfg.flag.token_policy()
        )
    })
}

/// Counts one more queue on an event channel; NULL is ignored.
pub(super) fn hold(channel: *mut urma_jfce_t) {
    if let Ok(channel) = object::<kind::Jfce>(channel) {
        channel.r#ref.atomic_cnt.fetch_add(1, Ordering::AcqRel);
    }
}

/// Counts one queue less on an event channel; NULL is ignored.
pub(super) fn let_go(channel: *mut urma_jfce_t) {
    if let Ok(channel) = object::<kind::Jfce>(channel) {
        drop_one(&channel.r#ref);
    }
}

/// Checks the number of flushed completions to take: 1 to the depth of the queue.
pub(super) fn flushable(count: c_int, cfg: &urma_jfs_cfg_t) -> Answer {
    let is_fit = u32::try_from(count).is_ok_and(|count| (1..=cfg.depth).contains(&count));
    if is_fit {
        return Ok(());
    }
    Err(refuse!(
        EINVAL,
        "cr_cnt is {count}; allowed are 1 to {}, the depth of the queue",
        cfg.depth
    ))
}

/// Checks that a number of a configuration is within limits; those of the device are in `urma_query_device`.
fn within(field: &str, value: u32, min: u32, max: u32) -> Answer {
    if (min..=max).contains(&value) {
        return Ok(());
    }
    Err(refuse!(EINVAL, "{field} is {value}; allowed are {min} to {max} (urma_query_device)"))
}

/// Returns the order type for `mode` if the caller chose `order` (0: the default of the mode).
///
/// # Errors
/// EINVAL: there is no such mode, or the order type does not fit it.
fn order_of(mode: u32, order: u32) -> Answer<u32> {
    match (mode, order) {
        (URMA_TM_RM, URMA_DEF_ORDER | URMA_OI) => Ok(URMA_OI),
        (URMA_TM_RC, URMA_DEF_ORDER | URMA_OL) => Ok(URMA_OL),
        (URMA_TM_RC, URMA_OT) => Ok(URMA_OT),
        (URMA_TM_UM, URMA_DEF_ORDER) => Ok(URMA_NO),
        (URMA_TM_RC | URMA_TM_UM, URMA_NO) => Ok(URMA_NO),
        (URMA_TM_RM | URMA_TM_RC | URMA_TM_UM, _) => Err(refuse!(
            EINVAL,
            "flag.order_type is {order} with trans_mode {mode}; RM (1) has 0 or 2 (OI), RC (2) 0, 1 (OT), 3 (OL) or \
             4 (NO), UM (4) 0 or 4 (NO)"
        )),
        _ => Err(refuse!(EINVAL, "trans_mode is {mode}; modes are 1 (RM), 2 (RC) and 4 (UM)")),
    }
}
