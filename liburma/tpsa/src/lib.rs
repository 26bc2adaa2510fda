//! `libtpsa.so.0`: topology, aggregated devices and paths, as the fabric service answers them.
//!
//! *Owns*: what a process sent the service, for this process. *Takes*: C structs of `uvs_api.h`.
//! *Gives*: 0, a negated errno for arguments, or what the service's device file answers in UMDK's
//! library: -1 with `errno`. *Must not*: know URMA.
//!
//! In UMDK a kernel module keeps these tables for the machine. A software device has no
//! fabric manager, so each process keeps its own; a pair of EIDs that no table knows has one path,
//! from the one EID to the other, because software devices reach each other by EID alone.
#![expect(unsafe_code, reason = "functions that C programs call, with C pointers")]

pub mod abi;
mod answer;
mod entry;
mod path;
mod service;

pub use entry::{
    uvs_create_agg_dev, uvs_delete_agg_dev, uvs_delete_main_ue_eid, uvs_flush_main_ue_eid,
    uvs_get_device_name_by_eid, uvs_get_path_set, uvs_get_topo_info, uvs_insert_main_ue_eid,
    uvs_insert_main_ue_eid_batch, uvs_lookup_main_ue_eid, uvs_set_share_topo_info,
    uvs_set_topo_info,
};
