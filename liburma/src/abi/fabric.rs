//! The mirror of the C API: EIDs, and the fabric service of `uvs_api.h`.
//!
//! `cargo xtask mirror` writes this file from `mirror.txt` and the golden layouts.
//!
//! *Owns*: layouts and numbers. *Must not*: do anything.

use core::ffi::c_char;

use super::layout::{c_consts, c_enums, c_flags, c_structs};
use super::*;

c_structs! {
    /// Entity identifier: 16 bytes in network order, aligned as two words.
    #[derive(PartialEq, Eq, Default, Debug)]
    struct urma_eid_t[16] { 0 => words: [u64; 2], }
    struct uvs_route_t[48] {
        0 => src: uvs_eid_t, 16 => dst: uvs_eid_t, 32 => flag: uvs_route_flag_t, 36 => hops: u32,
        40 => chip_id: u32,
    }
    struct uvs_route_list_t[776] { 0 => len: u32, 8 => buf: [uvs_route_t; 16], }
    struct uvs_node_id_t[8] { 0 => super_node_id: u32, 4 => node_id: u32, }
    struct uvs_path_t[48] {
        0 => src_port: uvs_port_id, 8 => dst_port: uvs_port_id, 16 => src_eid: uvs_eid_t,
        32 => dst_eid: uvs_eid_t,
    }
    struct uvs_path_set_t[800] {
        0 => topo_type: uvs_topo_type_t, 4 => src_node: uvs_node_id_t,
        12 => dst_node: uvs_node_id_t, 20 => chip_count: u32, 24 => die_count: u32,
        28 => path_count: u32, 32 => paths: [uvs_path_t; 16],
    }
    struct urma_topo_map_t[170217476] {
        0 => topo_infos: [urma_topo_node; 1024], 170217472 => node_num: u32,
    }
    struct uvs_main_ue_eid_entry_t[32] { 0 => eid: uvs_eid_t, 16 => main_ue_eid: uvs_eid_t, }
    struct uvs_main_ue_eid_batch_entry_t[2072] {
        0 => main_ue_eid: uvs_eid_t, 16 => eid_num: u32, 24 => eids: [uvs_eid_t; 128],
    }
    struct uvs_port_id_u[4] {
        0 => chip_id: u8, 1 => die_id: u8, 2 => port_idx: u8, 3 => reserved: u8,
    }
    union uvs_port_id[8] { 0 => u: uvs_port_id_u, 0 => value: u64, }
    struct urma_topo_ue[316] {
        0 => chip_id: u32, 4 => die_id: u32, 8 => entity_id: u32, 12 => primary_eid: [c_char; 16],
        28 => port_eid: [[c_char; 16]; 9], 172 => cna: [[c_char; 16]; 9],
    }
    struct urma_topo_agg_dev[648] { 0 => agg_eid: [c_char; 16], 16 => ues: [urma_topo_ue; 2], }
    struct urma_topo_node[166228] {
        0 => r#type: u32, 4 => super_node_id: u32, 8 => node_id: u32, 12 => is_current: u32,
        16 => links: [[u8; 18]; 18], 340 => agg_devs: [urma_topo_agg_dev; 256],
    }
}

c_consts! {
    u32 {
        EID_LEN = 16, UVS_MAX_ROUTES = 16, MAX_PORT_NUM = 9, MAX_NODE_NUM = 1024,
        IODIE_NUM_PER_CHIP = 1, PORT_NUM = 9, DEV_NUM = 256, IODIE_NUM = 2,
        UVS_MAIN_UE_EID_BATCH_EID_MAX = 128,
    }
}

c_enums! {
    uvs_tp_type_t: u32 { UVS_UTP = 2, }
    uvs_topo_type_t: u32 { UVS_TOPO_TYPE_FULLMESH_1D = 0, UVS_TOPO_TYPE_CLOS = 1, }
}

c_flags! {
    uvs_route_flag_t: u32 { 0, 1 => rtp, set_rtp; 1, 1 => ctp, set_ctp; 2, 1 => utp, set_utp; }
}
