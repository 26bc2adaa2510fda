//! What a send ring is made as.
//!
//! *Takes*: the configuration of a queue. *Gives*: how long its ring is, and what the device is asked for.

use udma_abi::{
    Opcode,
    cmd::SqArgs,
    sqe::{BLOCKS_MAX, SGE_LEN, blocks_for},
};
use urma_core::{SendCfg, SendFlags, Status};

/// log2 of the blocks that `cfg` needs.
///
/// # Errors
/// `Invalid`: more than an entry index can name.
pub(crate) fn blocks_log2(cfg: &SendCfg) -> Result<u8, Status> {
    let tail = (usize::from(cfg.max_sge) * SGE_LEN).max(cfg.max_inline as usize);
    // WRITE_NOTIFY has the longest control part of those with a tail; atomics take two blocks.
    let per_request = blocks_for(Opcode::WriteNotify, tail).clamp(2, BLOCKS_MAX);
    let too_deep = || {
        Status::Invalid.why(format_args!(
            "a depth of {} with requests of {per_request} blocks (max_sge {}, max_inline {}); a ring has 65536 blocks",
            cfg.depth, cfg.max_sge, cfg.max_inline
        ))
    };
    let blocks = (cfg.depth.max(1) as usize).checked_mul(per_request).ok_or_else(too_deep)?;
    let log2 = blocks.checked_next_power_of_two().ok_or_else(too_deep)?.trailing_zeros();
    u8::try_from(log2).ok().filter(|log2| *log2 <= INDEX_BITS).ok_or_else(too_deep)
}

/// The arguments of CREATE_QUEUE for a send ring at `base`.
pub(crate) fn sq_args(cfg: &SendCfg, base: u64, blocks_log2: u8) -> SqArgs {
    SqArgs {
        base,
        blocks_log2,
        jfcn: cfg.jfc,
        rnr_retry: cfg.rnr_retry,
        err_timeout: cfg.err_timeout,
        priority: cfg.priority,
    }
}

/// Whether a queue with these flags completes in posting order.
pub(crate) fn is_in_order(cfg: &SendCfg) -> bool {
    !cfg.flags.contains(SendFlags::OUTORDER_COMP)
}

/// Entry indices in CQEs have 16 bits.
const INDEX_BITS: u8 = 16;
