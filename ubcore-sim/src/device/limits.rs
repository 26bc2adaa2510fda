//! What the device can hold: the capability table (docs/device-spec.md gives the reasons).
//!
//! *Owns*: the numbers. *Takes*: the configuration. *Gives*: the capability registers.
//! *Must not*: differ from what commands enforce: they use these constants.

use udma_abi::caps::{Caps, Features};

use super::DeviceCfg;
use crate::engine::send::MESSAGE_MAX;
use crate::share::layout::SEGMENTS;

/// JFCs.
pub(crate) const JFC: usize = 4096;
/// JFSs, JFRs and jetties, each.
pub(crate) const QUEUES: usize = 4096;
/// Jetty groups.
pub(crate) const GROUPS: usize = 256;
/// Members of a group.
pub(crate) const GROUP_MEMBERS: usize = 32;
/// Event queues.
pub(crate) const EQ: usize = 255;
/// log2 of a JFC's entries.
pub(crate) const JFC_DEPTH_LOG2: u8 = 16;
/// log2 of a send ring's blocks.
pub(crate) const SQ_BLOCKS_LOG2: u8 = 16;
/// log2 of a receive ring's entries.
pub(crate) const JFR_DEPTH_LOG2: u8 = 15;
/// log2 of an event ring's entries.
pub(crate) const EQ_DEPTH_LOG2: u8 = 16;
/// Interrupt vectors.
pub(crate) const VECTORS: u16 = 256;
/// Peers at one time.
pub(crate) const PEERS: usize = 1024;
/// Well-known queue ids: given only to who asks for one.
pub(crate) const RESERVED_IDS: (u32, u32) = (1, 1023);

/// The capability registers of a device.
pub(crate) fn caps(cfg: &DeviceCfg) -> Caps {
    let features = Features::DWQE
        | Features::JFC_INLINE
        | Features::LOAD_STORE
        | Features::SELECTIVE_RETRANS
        | Features::JETTY_GRP
        | Features::ERROR_SUSPEND
        | Features::OUTORDER_COMP
        | Features::NON_PIN;
    Caps {
        max_jfc: JFC as u64,
        max_jfs: QUEUES as u64,
        max_jfr: QUEUES as u64,
        max_jetty: QUEUES as u64,
        max_jetty_grp: GROUPS as u64,
        max_jetty_in_grp: GROUP_MEMBERS as u64,
        max_eq: EQ as u64,
        max_seg: SEGMENTS as u64 - 1,
        max_jfc_depth: 1 << JFC_DEPTH_LOG2,
        // Requests of four blocks each fill half of what a 16-bit index names.
        max_jfs_depth: 1 << (SQ_BLOCKS_LOG2 - 3),
        max_jfr_depth: 1 << JFR_DEPTH_LOG2,
        max_inline: 176,
        max_jfs_sge: 11,
        max_jfs_rsge: 1,
        max_jfr_sge: udma_abi::rqe::SGE_MAX as u64,
        max_msg_size: MESSAGE_MAX,
        max_read_size: MESSAGE_MAX,
        max_write_size: MESSAGE_MAX,
        max_atomic_size: 8,
        max_um_size: u64::from(cfg.mtu),
        mtu_max: 8192,
        max_peer: PEERS as u64,
        max_eid: 1,
        vectors: u64::from(VECTORS),
        page_size_cap: 1 << 12 | 1 << 21,
        features: features.bits(),
        reserved_id_min: u64::from(RESERVED_IDS.0),
        reserved_id_max: u64::from(RESERVED_IDS.1),
        knit_block_sizes: 1 << 6 | 1 << 7 | 1 << 8 | 1 << 9 | 1 << 10 | 1 << 11 | 1 << 12,
        knit_blocks_max: 1 << 20,
    }
}
