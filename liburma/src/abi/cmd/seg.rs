//! Commands of device files: segments and token ids.
//!
//! *Owns*: the layout of `urma_cmd.h`. *Must not*: do anything.

use super::super::layout::c_structs;
use super::super::{urma_cmd_udrv_priv_t, urma_token_id_flag_t};

c_structs! {
    #[derive(Clone, Copy)]
    struct urma_cmd_alloc_token_id_in[4] {
        0 => flag: urma_token_id_flag_t,
    }

    #[derive(Clone, Copy)]
    struct urma_cmd_alloc_token_id_out[16] {
        0 => token_id: u32,
        8 => handle: u64,
    }

    #[derive(Clone, Copy)]
    struct urma_cmd_alloc_token_id_t[56] {
        0 => r#in: urma_cmd_alloc_token_id_in,
        8 => out: urma_cmd_alloc_token_id_out,
        24 => udata: urma_cmd_udrv_priv_t,
    }

    #[derive(Clone, Copy)]
    struct urma_cmd_free_token_id_in[16] {
        0 => handle: u64,
        8 => token_id: u32,
    }

    #[derive(Clone, Copy)]
    struct urma_cmd_free_token_id_t[48] {
        0 => r#in: urma_cmd_free_token_id_in,
        16 => udata: urma_cmd_udrv_priv_t,
    }

    #[derive(Clone, Copy)]
    struct urma_cmd_register_seg_in[40] {
        0 => va: u64,
        8 => len: u64,
        16 => token_id: u32,
        24 => token_id_handle: u64,
        32 => token: u32,
        36 => flag: u32,
    }

    #[derive(Clone, Copy)]
    struct urma_cmd_register_seg_out[16] {
        0 => token_id: u32,
        8 => handle: u64,
    }

    #[derive(Clone, Copy)]
    struct urma_cmd_register_seg_t[88] {
        0 => r#in: urma_cmd_register_seg_in,
        40 => out: urma_cmd_register_seg_out,
        56 => udata: urma_cmd_udrv_priv_t,
    }

    #[derive(Clone, Copy)]
    struct urma_cmd_unregister_seg_in[8] {
        0 => handle: u64,
    }

    #[derive(Clone, Copy)]
    struct urma_cmd_unregister_seg_t[8] {
        0 => r#in: urma_cmd_unregister_seg_in,
    }

    #[derive(Clone, Copy)]
    struct urma_cmd_import_seg_in[56] {
        0 => eid: [u8; 16],
        16 => va: u64,
        24 => len: u64,
        32 => flag: u32,
        36 => token: u32,
        40 => token_id: u32,
        48 => mva: u64,
    }

    #[derive(Clone, Copy)]
    struct urma_cmd_import_seg_out[8] {
        0 => handle: u64,
    }

    #[derive(Clone, Copy)]
    struct urma_cmd_import_seg_t[96] {
        0 => r#in: urma_cmd_import_seg_in,
        56 => out: urma_cmd_import_seg_out,
        64 => udata: urma_cmd_udrv_priv_t,
    }

    #[derive(Clone, Copy)]
    struct urma_cmd_unimport_seg_in[8] {
        0 => handle: u64,
    }

    #[derive(Clone, Copy)]
    struct urma_cmd_unimport_seg_t[8] {
        0 => r#in: urma_cmd_unimport_seg_in,
    }
}
