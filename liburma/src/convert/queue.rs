//! Configurations of queues, with numbers in range, and options of allocated queues: which number names which member.
//!
//! *Owns*: the tables of options, facts of UMDK release 26.06. *Gives*: length and place of an option. Rings and
//! doorbells of a software device are its own, so options that name them have no place.

use core::mem::offset_of;

use urma_core::{JfcCfg, JfcFlags, JfrCfg, JfsCfg, OrderType, SendFlags, TransportMode};

use super::name::{mode, order, policy};
use crate::{abi::*, call::Answer};

/// Payload in the completion is an optimisation that C programs do not see: it arrives in the
/// receive buffer all the same, so the flag asks for nothing.
pub(crate) fn jfc(from: &urma_jfc_cfg_t) -> JfcCfg {
    JfcCfg { depth: from.depth, flags: JfcFlags::empty(), ceqn: from.ceqn, user_ctx: from.user_ctx }
}

/// # Errors
/// EINVAL: no such mode or order type.
pub(crate) fn jfs(from: &urma_jfs_cfg_t) -> Answer<JfsCfg> {
    let mut flags = SendFlags::empty();
    flags.set(SendFlags::ERROR_SUSPEND, from.flag.error_suspend() != 0);
    flags.set(SendFlags::OUTORDER_COMP, from.flag.outorder_comp() != 0);
    Ok(JfsCfg {
        mode: mode(from.trans_mode)?,
        order: order(from.flag.order_type())?,
        depth: from.depth,
        max_sge: from.max_sge,
        // Of a list of remote pieces the device uses the first; see `attr`.
        max_rsge: from.max_rsge.min(1),
        max_inline: from.max_inline_data,
        priority: from.priority,
        rnr_retry: from.rnr_retry,
        err_timeout: from.err_timeout,
        flags,
        user_ctx: from.user_ctx,
    })
}

/// The order type of a JFR. One that does not fit its mode is for the jetty to refuse, so it stands for the default
/// here: a JFR alone receives in the order of the queues that send.
fn fitting(mode: TransportMode, wanted: u32) -> OrderType {
    use OrderType as O;
    use TransportMode as M;
    match (mode, order(wanted)) {
        (M::Rm, Ok(order @ O::Oi))
        | (M::Rc, Ok(order @ (O::Ot | O::Ol | O::No)))
        | (M::Um, Ok(order @ O::No)) => order,
        _ => O::Default,
    }
}

/// # Errors
/// EINVAL: no such mode or token policy.
pub(crate) fn jfr(from: &urma_jfr_cfg_t) -> Answer<JfrCfg> {
    let mode = mode(from.trans_mode)?;
    Ok(JfrCfg {
        id: from.id,
        mode,
        order: fitting(mode, from.flag.order_type()),
        depth: from.depth,
        max_sge: from.max_sge,
        min_rnr_timer: from.min_rnr_timer,
        policy: policy(from.flag.token_policy(), from.token_value)?,
        user_ctx: from.user_ctx,
    })
}

/// An option of a queue: number, length and where its value lies.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Opt {
    number: u64,
    /// Bytes of its value.
    pub(crate) len: u32,
    pub(crate) place: OptPlace,
}

/// Where the value of an option is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum OptPlace {
    /// In the configuration, at this offset.
    Cfg(usize),
    /// The number of the queue, which a program may choose at this offset of the configuration.
    Id(usize),
    /// The number of the queue, which the device chooses.
    DeviceId,
    /// In the device, which does not show it.
    Device,
}

use OptPlace::{Cfg, Device, DeviceId, Id};

/// Options of a queue: those in its configuration (`number: bytes, member;`), and the rings, doorbells and
/// states that the device keeps to itself.
macro_rules! options {
    ($cfg:ty, $base:expr, $($number:ident: $len:literal, $member:ident;)*
        => $id:ident = $id_place:expr; device $($own:ident: $own_len:literal),*) => {[
        $(Opt { number: $number, len: $len, place: Cfg($base + offset_of!($cfg, $member)) },)*
        Opt { number: $id, len: 4, place: $id_place },
        $(Opt { number: $own, len: $own_len, place: Device }),*
    ]};
}

/// The option of a table with this number.
pub(crate) fn find(table: &[Opt], number: u64) -> Option<Opt> {
    table.iter().find(|opt| opt.number == number).copied()
}

pub(crate) const JFC: &[Opt] = &options! { urma_jfc_cfg_t, 0,
    URMA_JFC_DEPTH: 4, depth;
    URMA_JFC_CEQN: 4, ceqn;
    URMA_JFC_FLAG: 4, flag;
    URMA_JFC_BIND_JFCE: 8, jfce;
    URMA_JFC_USER_CTX: 8, user_ctx;
    => URMA_JFC_ID = DeviceId;
    device URMA_JFC_CQE_BASE_ADDR: 8, URMA_JFC_DB_ADDR: 8, URMA_JFC_DB_STATUS: 1, URMA_JFC_PI: 2,
        URMA_JFC_PI_TYPE: 2, URMA_JFC_CI: 2
};

/// The options of a send queue whose configuration begins at `base`.
const fn send(base: usize) -> [Opt; 18] {
    options! { urma_jfs_cfg_t, base,
        URMA_JFS_DEPTH: 4, depth;
        URMA_JFS_FLAG: 4, flag;
        URMA_JFS_TRANS_MODE: 4, trans_mode;
        URMA_JFS_PRIORITY: 1, priority;
        URMA_JFS_MAX_SGE: 1, max_sge;
        URMA_JFS_MAX_RSGE: 1, max_rsge;
        URMA_JFS_MAX_INLINE_DATA: 4, max_inline_data;
        URMA_JFS_RNR_RETRY: 1, rnr_retry;
        URMA_JFS_ERR_TIMEOUT: 1, err_timeout;
        URMA_JFS_BIND_JFC: 8, jfc;
        URMA_JFS_USER_CTX: 8, user_ctx;
        => URMA_JFS_ID = DeviceId;
        device URMA_JFS_SQE_BASE_ADDR: 8, URMA_JFS_DB_ADDR: 8, URMA_JFS_DB_STATUS: 1, URMA_JFS_PI: 2,
            URMA_JFS_PI_TYPE: 2, URMA_JFS_CI: 2
    }
}

pub(crate) const JFS: &[Opt] = &send(0);

pub(crate) const JFR: &[Opt] = &options! { urma_jfr_cfg_t, 0,
    URMA_JFR_DEPTH: 4, depth;
    URMA_JFR_FLAG: 4, flag;
    URMA_JFR_TRANS_MODE: 4, trans_mode;
    URMA_JFR_MAX_SGE: 1, max_sge;
    URMA_JFR_MIN_RNR_TIMER: 1, min_rnr_timer;
    URMA_JFR_BIND_JFC: 8, jfc;
    URMA_JFR_TOKEN_VALUE: 4, token_value;
    URMA_JFR_USER_CTX: 8, user_ctx;
    => URMA_JFR_ID = Id(offset_of!(urma_jfr_cfg_t, id));
    device URMA_JFR_RQE_BASE_ADDR: 8, URMA_JFR_DB_ADDR: 8, URMA_JFR_DB_STATUS: 1, URMA_JFR_PI: 2,
        URMA_JFR_PI_TYPE: 2, URMA_JFR_CI: 2
};

/// The options of a jetty; those of its send half count too.
pub(crate) const JETTY: &[&[Opt]] = &[
    &options! { urma_jetty_cfg_t, 0,
        URMA_JETTY_FLAG: 4, flag;
        URMA_JETTY_BIND_JFR: 8, u;
        URMA_JETTY_BIND_JTG: 8, jetty_grp;
        URMA_JETTY_USER_CTX: 8, user_ctx;
        => URMA_JETTY_ID = Id(offset_of!(urma_jetty_cfg_t, id));
        device
    },
    // The second pointer of the union.
    &[Opt {
        number: URMA_JETTY_BIND_RX_JFC,
        len: 8,
        place: Cfg(offset_of!(urma_jetty_cfg_t, u) + size_of::<*mut urma_jfr_t>()),
    }],
    &send(offset_of!(urma_jetty_cfg_t, jfs_cfg)),
];
