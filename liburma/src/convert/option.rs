//! Options of allocated queues: which number names which member.
//!
//! *Owns*: the tables, facts of UMDK release 26.06. *Gives*: length and place of an option. Rings and
//! doorbells of a software device are its own, so options that name them have no place.

use core::mem::offset_of;

use crate::abi::*;

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

const fn opt(number: u64, len: u32, place: OptPlace) -> Opt {
    Opt { number, len, place }
}

/// The option of a table with this number.
pub(crate) fn find(table: &[Opt], number: u64) -> Option<Opt> {
    table.iter().find(|opt| opt.number == number).copied()
}

pub(crate) const JFC: &[Opt] = &[
    opt(URMA_JFC_DEPTH, 4, Cfg(offset_of!(urma_jfc_cfg_t, depth))),
    opt(URMA_JFC_CEQN, 4, Cfg(offset_of!(urma_jfc_cfg_t, ceqn))),
    opt(URMA_JFC_FLAG, 4, Cfg(offset_of!(urma_jfc_cfg_t, flag))),
    opt(URMA_JFC_BIND_JFCE, 8, Cfg(offset_of!(urma_jfc_cfg_t, jfce))),
    opt(URMA_JFC_USER_CTX, 8, Cfg(offset_of!(urma_jfc_cfg_t, user_ctx))),
    opt(URMA_JFC_CQE_BASE_ADDR, 8, Device),
    opt(URMA_JFC_ID, 4, DeviceId),
    opt(URMA_JFC_DB_ADDR, 8, Device),
    opt(URMA_JFC_DB_STATUS, 1, Device),
    opt(URMA_JFC_PI, 2, Device),
    opt(URMA_JFC_PI_TYPE, 2, Device),
    opt(URMA_JFC_CI, 2, Device),
];

/// The options of a send queue whose configuration begins at `base`.
const fn send(base: usize) -> [Opt; 18] {
    [
        opt(URMA_JFS_DEPTH, 4, Cfg(base + offset_of!(urma_jfs_cfg_t, depth))),
        opt(URMA_JFS_FLAG, 4, Cfg(base + offset_of!(urma_jfs_cfg_t, flag))),
        opt(URMA_JFS_TRANS_MODE, 4, Cfg(base + offset_of!(urma_jfs_cfg_t, trans_mode))),
        opt(URMA_JFS_PRIORITY, 1, Cfg(base + offset_of!(urma_jfs_cfg_t, priority))),
        opt(URMA_JFS_MAX_SGE, 1, Cfg(base + offset_of!(urma_jfs_cfg_t, max_sge))),
        opt(URMA_JFS_MAX_RSGE, 1, Cfg(base + offset_of!(urma_jfs_cfg_t, max_rsge))),
        opt(URMA_JFS_MAX_INLINE_DATA, 4, Cfg(base + offset_of!(urma_jfs_cfg_t, max_inline_data))),
        opt(URMA_JFS_RNR_RETRY, 1, Cfg(base + offset_of!(urma_jfs_cfg_t, rnr_retry))),
        opt(URMA_JFS_ERR_TIMEOUT, 1, Cfg(base + offset_of!(urma_jfs_cfg_t, err_timeout))),
        opt(URMA_JFS_BIND_JFC, 8, Cfg(base + offset_of!(urma_jfs_cfg_t, jfc))),
        opt(URMA_JFS_USER_CTX, 8, Cfg(base + offset_of!(urma_jfs_cfg_t, user_ctx))),
        opt(URMA_JFS_SQE_BASE_ADDR, 8, Device),
        opt(URMA_JFS_ID, 4, DeviceId),
        opt(URMA_JFS_DB_ADDR, 8, Device),
        opt(URMA_JFS_DB_STATUS, 1, Device),
        opt(URMA_JFS_PI, 2, Device),
        opt(URMA_JFS_PI_TYPE, 2, Device),
        opt(URMA_JFS_CI, 2, Device),
    ]
}

pub(crate) const JFS: &[Opt] = &send(0);

pub(crate) const JFR: &[Opt] = &[
    opt(URMA_JFR_DEPTH, 4, Cfg(offset_of!(urma_jfr_cfg_t, depth))),
    opt(URMA_JFR_FLAG, 4, Cfg(offset_of!(urma_jfr_cfg_t, flag))),
    opt(URMA_JFR_TRANS_MODE, 4, Cfg(offset_of!(urma_jfr_cfg_t, trans_mode))),
    opt(URMA_JFR_MAX_SGE, 1, Cfg(offset_of!(urma_jfr_cfg_t, max_sge))),
    opt(URMA_JFR_MIN_RNR_TIMER, 1, Cfg(offset_of!(urma_jfr_cfg_t, min_rnr_timer))),
    opt(URMA_JFR_BIND_JFC, 8, Cfg(offset_of!(urma_jfr_cfg_t, jfc))),
    opt(URMA_JFR_TOKEN_VALUE, 4, Cfg(offset_of!(urma_jfr_cfg_t, token_value))),
    opt(URMA_JFR_USER_CTX, 8, Cfg(offset_of!(urma_jfr_cfg_t, user_ctx))),
    opt(URMA_JFR_RQE_BASE_ADDR, 8, Device),
    opt(URMA_JFR_ID, 4, Id(offset_of!(urma_jfr_cfg_t, id))),
    opt(URMA_JFR_DB_ADDR, 8, Device),
    opt(URMA_JFR_DB_STATUS, 1, Device),
    opt(URMA_JFR_PI, 2, Device),
    opt(URMA_JFR_PI_TYPE, 2, Device),
    opt(URMA_JFR_CI, 2, Device),
];

/// Those of its send half count too.
pub(crate) const JETTY: &[&[Opt]] = &[
    &[
        opt(URMA_JETTY_ID, 4, Id(offset_of!(urma_jetty_cfg_t, id))),
        opt(URMA_JETTY_FLAG, 4, Cfg(offset_of!(urma_jetty_cfg_t, flag))),
        opt(URMA_JETTY_BIND_JFR, 8, Cfg(offset_of!(urma_jetty_cfg_t, u))),
        opt(URMA_JETTY_BIND_RX_JFC, 8, Cfg(offset_of!(urma_jetty_cfg_t, u) + 8)),
        opt(URMA_JETTY_BIND_JTG, 8, Cfg(offset_of!(urma_jetty_cfg_t, jetty_grp))),
        opt(URMA_JETTY_USER_CTX, 8, Cfg(offset_of!(urma_jetty_cfg_t, user_ctx))),
    ],
    &send(offset_of!(urma_jetty_cfg_t, jfs_cfg)),
];
