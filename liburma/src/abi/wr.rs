//! Work requests.
//!
//! *Owns*: the layout of `urma_types.h`. *Must not*: do anything.

use super::layout::c_structs;
use super::{
    urma_jfs_wr_flag_t, urma_opcode_t, urma_seg_attr_t, urma_target_jetty_t, urma_target_seg_t,
    urma_token_t,
};

c_structs! {
    #[derive(Clone, Copy)]
    struct urma_user_tseg_t[12] {
        0 => attr: urma_seg_attr_t,
        4 => token_id: u32,
        8 => token_value: urma_token_t,
    }

    /// One piece of memory of a work request.
    #[derive(Clone, Copy)]
    struct urma_sge_t[32] {
        0 => addr: u64,
        8 => len: u32,
        16 => tseg: *mut urma_target_seg_t,
        24 => user_tseg: *mut urma_user_tseg_t,
    }

    /// Pieces of memory, in order.
    #[derive(Clone, Copy)]
    struct urma_sg_t[16] {
        0 => sge: *mut urma_sge_t,
        8 => num_sge: u32,
    }

    /// Write and read. With WRITE_NOTIFY and WRITE_ATOMIC `dst.sge[1]` is where notify_data goes.
    #[derive(Clone, Copy)]
    struct urma_rw_wr_t[48] {
        0 => src: urma_sg_t,
        16 => dst: urma_sg_t,
        32 => target_hint: u8,
        40 => notify_data: u64,
    }

    /// Send. tseg names the segment whose token SEND_INVALIDATE takes away.
    #[derive(Clone, Copy)]
    struct urma_send_wr_t[40] {
        0 => src: urma_sg_t,
        16 => target_hint: u8,
        24 => imm_data: u64,
        32 => tseg: *mut urma_target_seg_t,
    }

    /// Compare and swap: 8 bytes or fewer in the data members, 16 by address.
    #[derive(Clone, Copy)]
    struct urma_cas_wr_t[32] {
        0 => dst: *mut urma_sge_t,
        8 => src: *mut urma_sge_t,
        16 => cmp_data: u64,
        24 => swap_data: u64,
    }

    /// Fetch and add: 8 bytes or fewer in operand, 16 by address.
    #[derive(Clone, Copy)]
    struct urma_faa_wr_t[24] {
        0 => dst: *mut urma_sge_t,
        8 => src: *mut urma_sge_t,
        16 => operand: u64,
    }

    #[derive(Clone, Copy)]
    union urma_jfs_wr_u[48] {
        0 => rw: urma_rw_wr_t,
        0 => send: urma_send_wr_t,
        0 => cas: urma_cas_wr_t,
        0 => faa: urma_faa_wr_t,
    }

    /// Work request of a send queue; next makes a list.
    #[derive(Clone, Copy)]
    struct urma_jfs_wr_t[80] {
        0 => opcode: urma_opcode_t,
        4 => flag: urma_jfs_wr_flag_t,
        8 => tjetty: *mut urma_target_jetty_t,
        16 => user_ctx: u64,
        24 => u: urma_jfs_wr_u,
        72 => next: *mut urma_jfs_wr_t,
    }

    /// Work request of a receive queue; next makes a list.
    #[derive(Clone, Copy)]
    struct urma_jfr_wr_t[32] {
        0 => src: urma_sg_t,
        16 => user_ctx: u64,
        24 => next: *mut urma_jfr_wr_t,
    }
}
