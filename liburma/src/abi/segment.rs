//! Segments and token ids.
//!
//! *Owns*: the layout of `urma_types.h`. *Must not*: do anything.

use super::layout::{c_flags, c_structs};
use super::{urma_context_t, urma_ref_t, urma_seg_attr_t, urma_token_t, urma_ubva_t};

c_flags! {
    urma_reg_seg_flag_t: u32 {
        0, 3 => token_policy, set_token_policy;
        3, 1 => cacheable, set_cacheable;
        4, 1 => dsva, set_dsva;
        5, 6 => access, set_access;
        11, 1 => non_pin, set_non_pin;
        12, 1 => user_iova, set_user_iova;
        13, 1 => token_id_valid, set_token_id_valid;
    }

    urma_import_seg_flag_t: u32 {
        0, 1 => cacheable, set_cacheable;
        1, 6 => access, set_access;
        7, 1 => mapping, set_mapping;
    }

    urma_token_id_flag_t: u32 {
        0, 1 => multi_seg, set_multi_seg;
    }
}

c_structs! {
    /// Token identifier: names the segments registered with it.
    struct urma_token_id_t[40] {
        0 => urma_ctx: *mut urma_context_t,
        8 => token_id: u32,
        16 => handle: u64,
        24 => r#ref: urma_ref_t,
        32 => flag: urma_token_id_flag_t,
    }

    /// Memory to register, and who may do what with it.
    #[derive(Clone, Copy)]
    struct urma_seg_cfg_t[48] {
        0 => va: u64,
        8 => len: u64,
        16 => token_id: *mut urma_token_id_t,
        24 => token_value: urma_token_t,
        28 => flag: urma_reg_seg_flag_t,
        32 => user_ctx: u64,
        40 => iova: u64,
    }

    /// What one side tells the other about a segment.
    #[derive(Clone, Copy)]
    struct urma_seg_t[48] {
        0 => ubva: urma_ubva_t,
        32 => len: u64,
        40 => attr: urma_seg_attr_t,
        44 => token_id: u32,
    }

    /// A registered or imported segment.
    #[derive(Clone, Copy)]
    struct urma_target_seg_t[88] {
        0 => seg: urma_seg_t,
        48 => user_ctx: u64,
        56 => mva: u64,
        64 => urma_ctx: *mut urma_context_t,
        72 => token_id: *mut urma_token_id_t,
        80 => handle: u64,
    }
}
