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
    caps(&mut attr.dev_cap, folder);
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

/// Members from the files of their names.
macro_rules! numbers {
    ($to:ident from $folder:ident: $($name:ident)*) => {
        $($to.$name = number($folder, stringify!($name));)*
    };
}

fn caps(cap: &mut urma_device_cap_t, folder: &Path) {
    numbers! { cap from folder:
        max_jfc max_jfs max_jfr max_jetty max_jetty_grp max_jetty_in_jetty_grp ceq_cnt max_tp_in_tpg
        max_eid_cnt max_oor_cnt mn max_netaddr_cnt max_jfc_depth max_jfs_depth max_jfr_depth
        max_jfs_sge max_jfs_rsge max_jfr_sge max_msg_size max_read_size max_write_size max_cas_size
        max_swap_size max_fetch_and_add_size max_fetch_and_sub_size max_fetch_and_and_size
        max_fetch_and_or_size max_fetch_and_xor_size page_size_cap trans_mode congestion_ctrl_alg
    }
    cap.max_jfs_inline_len = number(folder, "max_jfs_inline_size");
    cap.feature.value = number(folder, "feature");
    cap.atomic_feat.value = number(folder, "atomic_feat");
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
