//! Attributes of a device, as its files say them.
//!
//! *Owns*: which file is which attribute. *Takes*: the device's folder. *Gives*:
//! `urma_device_attr_t`; 0 where a file is not there. *Must not*: judge the numbers.

use std::path::Path;

use super::sysfs::{number, text};
use crate::{abi::*, convert::zeroed};

/// The attributes that the files in `folder` state; 0 for what they leave out.
pub(super) fn read(folder: &Path) -> urma_device_attr_t {
    let mut attr: urma_device_attr_t = zeroed();
    let cap = &mut attr.dev_cap;
    counts(cap, folder);
    depths(cap, folder);
    sizes(cap, folder);
    kinds(cap, folder);
    attr.port_cnt = number(folder, "port_count");
    let ports = usize::from(attr.port_cnt).min(MAX_PORT_CNT as usize);
    for (index, port) in attr.port_attr.iter_mut().take(ports).enumerate() {
        *port = port_of(&folder.join(format!("port{index}")));
    }
    let reserved = text(folder, "reserved_jetty_id").unwrap_or_default();
    if let Some((min, max)) = reserved.split_once('-') {
        attr.reserved_jetty_id_min = min.trim().parse().unwrap_or_default();
        attr.reserved_jetty_id_max = max.trim().parse().unwrap_or_default();
    }
    attr
}

fn counts(cap: &mut urma_device_cap_t, folder: &Path) {
    cap.max_jfc = number(folder, "max_jfc");
    cap.max_jfs = number(folder, "max_jfs");
    cap.max_jfr = number(folder, "max_jfr");
    cap.max_jetty = number(folder, "max_jetty");
    cap.max_jetty_grp = number(folder, "max_jetty_grp");
    cap.max_jetty_in_jetty_grp = number(folder, "max_jetty_in_jetty_grp");
    cap.ceq_cnt = number(folder, "ceq_cnt");
    cap.max_tp_in_tpg = number(folder, "max_tp_in_tpg");
    cap.max_eid_cnt = number(folder, "max_eid_cnt");
    cap.max_oor_cnt = number(folder, "max_oor_cnt");
    cap.mn = number(folder, "mn");
    cap.max_netaddr_cnt = number(folder, "max_netaddr_cnt");
}

fn depths(cap: &mut urma_device_cap_t, folder: &Path) {
    cap.max_jfc_depth = number(folder, "max_jfc_depth");
    cap.max_jfs_depth = number(folder, "max_jfs_depth");
    cap.max_jfr_depth = number(folder, "max_jfr_depth");
    cap.max_jfs_inline_len = number(folder, "max_jfs_inline_size");
    cap.max_jfs_sge = number(folder, "max_jfs_sge");
    cap.max_jfs_rsge = number(folder, "max_jfs_rsge");
    cap.max_jfr_sge = number(folder, "max_jfr_sge");
}

fn sizes(cap: &mut urma_device_cap_t, folder: &Path) {
    cap.max_msg_size = number(folder, "max_msg_size");
    cap.max_read_size = number(folder, "max_read_size");
    cap.max_write_size = number(folder, "max_write_size");
    cap.max_cas_size = number(folder, "max_cas_size");
    cap.max_swap_size = number(folder, "max_swap_size");
    cap.max_fetch_and_add_size = number(folder, "max_fetch_and_add_size");
    cap.max_fetch_and_sub_size = number(folder, "max_fetch_and_sub_size");
    cap.max_fetch_and_and_size = number(folder, "max_fetch_and_and_size");
    cap.max_fetch_and_or_size = number(folder, "max_fetch_and_or_size");
    cap.max_fetch_and_xor_size = number(folder, "max_fetch_and_xor_size");
    cap.page_size_cap = number(folder, "page_size_cap");
}

fn kinds(cap: &mut urma_device_cap_t, folder: &Path) {
    cap.feature.value = number(folder, "feature");
    cap.atomic_feat.value = number(folder, "atomic_feat");
    cap.trans_mode = number(folder, "trans_mode");
    cap.congestion_ctrl_alg = number(folder, "congestion_ctrl_alg");
}

fn port_of(folder: &Path) -> urma_port_attr_t {
    urma_port_attr_t {
        max_mtu: number(folder, "max_mtu"),
        state: number(folder, "state"),
        active_width: number(folder, "active_width"),
        active_speed: number(folder, "active_speed"),
        active_mtu: number(folder, "active_mtu"),
    }
}
