//! Attributes of devices, as C programs read them.

use urma_core::{DeviceAttr, DeviceCaps, DeviceFeatures, ModeSet, PortAttr};

use super::zeroed;
use crate::abi::*;

/// Ports that the C struct has room for.
const PORTS_MAX: usize = 8;

pub(crate) fn device(from: &DeviceAttr) -> urma_device_attr_t {
    let mut to: urma_device_attr_t = zeroed();
    to.guid.raw = from.guid.0;
    to.dev_cap = caps(&from.caps, to.dev_cap);
    let ports = from.ports.iter().take(PORTS_MAX);
    for (place, from) in to.port_attr.iter_mut().zip(ports) {
        *place = port(from);
    }
    to.port_cnt = u8::try_from(from.ports.len().min(PORTS_MAX)).unwrap_or(0);
    to.reserved_jetty_id_min = from.reserved_id_min;
    to.reserved_jetty_id_max = from.reserved_id_max;
    to
}

fn port(from: &PortAttr) -> urma_port_attr_t {
    urma_port_attr_t {
        max_mtu: from.max_mtu as u32,
        state: from.state as u32,
        active_width: from.width.into(),
        active_speed: from.speed.into(),
        active_mtu: from.active_mtu as u32,
    }
}

/// Copies members that both sides call alike.
macro_rules! members {
    ($to:ident from $from:ident: $($name:ident)*) => {
        $($to.$name = $from.$name;)*
    };
}

fn caps(from: &DeviceCaps, mut to: urma_device_cap_t) -> urma_device_cap_t {
    to.feature.value = from.features.bits();
    to.feature.set_ctp_en(1);
    to.feature.set_muti_seg_per_token_id(1);
    // The payload of a small message arrives in its buffer, as the C interface has it.
    to.feature.set_jfc_inline(u32::from(from.features.contains(DeviceFeatures::JFC_INLINE)));
    members! { to from from:
        max_jfc max_jfs max_jfr max_jetty max_jetty_grp max_jfc_depth max_jfs_depth max_jfr_depth
        max_jfs_sge max_jfr_sge max_msg_size max_read_size max_write_size ceq_cnt max_eid_cnt
        page_size_cap
    }
    to.max_jetty_in_jetty_grp = from.max_jetty_in_grp;
    to.max_jfs_inline_len = from.max_jfs_inline;
    // A request of this device has one remote range, which its first remote piece names, as in
    // UDMA's driver (UMDK release 26.06). Programs give as many remote pieces as local ones.
    to.max_jfs_rsge = from.max_jfs_sge;
    to.max_cas_size = from.max_atomic_size;
    to.max_swap_size = from.max_atomic_size;
    to.max_fetch_and_add_size = from.max_atomic_size;
    to.max_fetch_and_sub_size = from.max_atomic_size;
    to.max_fetch_and_and_size = from.max_atomic_size;
    to.max_fetch_and_or_size = from.max_atomic_size;
    to.max_fetch_and_xor_size = from.max_atomic_size;
    to.atomic_feat.value = from.atomics.bits();
    to.trans_mode = from.modes.bits();
    to.congestion_ctrl_alg = u16::try_from(URMA_CC_NONE).unwrap_or(0);
    to.max_tp_in_tpg = 1;
    to.max_netaddr_cnt = from.max_eid_cnt;
    transport(from.modes, to)
}

/// Which orders and kinds of transport path go with which mode.
fn transport(modes: ModeSet, mut to: urma_device_cap_t) -> urma_device_cap_t {
    let mut reliable = urma_tp_type_cap_t::default();
    reliable.set_rtp(1);
    reliable.set_ctp(1);
    if modes.contains(ModeSet::RM) {
        to.rm_order_cap.set_oi(1);
        to.rm_tp_cap = reliable;
    }
    if modes.contains(ModeSet::RC) {
        let mut orders = urma_order_type_cap_t::default();
        orders.set_ot(1);
        orders.set_ol(1);
        orders.set_no(1);
        to.rc_order_cap = orders;
        to.rc_tp_cap = reliable;
    }
    if modes.contains(ModeSet::UM) {
        to.um_tp_cap.set_utp(1);
    }
    // One kind of path for each priority, as the hardware has it: programs look for a priority whose
    // set of kinds *equals* the wanted one. 6 is CTP and 0 and 15 are RTP where programs take them as
    // given. Nothing here depends on it: every priority goes over every path.
    for (priority, info) in to.priority_info.iter_mut().enumerate() {
        info.SL = u32::try_from(priority).unwrap_or(0);
        match priority {
            6..=9 => info.tp_type.set_ctp(1),
            10..=11 => info.tp_type.set_utp(1),
            _ => info.tp_type.set_rtp(1),
        }
    }
    to
}

#[cfg(test)]
mod tests {
    use urma_core::{Mtu, PortState};

    use super::*;

    #[test]
    fn a_port_has_its_values_under_their_names() {
        let from = PortAttr {
            max_mtu: Mtu::B4096,
            active_mtu: Mtu::B1024,
            state: PortState::Armed,
            width: 4,
            speed: 10,
        };
        let to = port(&from);
        assert_eq!((to.active_width, to.active_speed), (4, 10));
        assert_eq!((to.max_mtu, to.active_mtu), (Mtu::B4096 as u32, Mtu::B1024 as u32));
        assert_eq!(to.state, PortState::Armed as u32);
    }

    #[test]
    fn limits_have_their_values_under_their_names() {
        let from = DeviceCaps {
            max_jfc: 1,
            max_jfs: 2,
            max_jfr: 3,
            max_jetty: 4,
            max_jetty_grp: 5,
            max_jetty_in_grp: 6,
            max_jfc_depth: 7,
            max_jfs_depth: 8,
            max_jfr_depth: 9,
            max_jfs_inline: 10,
            max_jfs_sge: 11,
            max_jfr_sge: 12,
            max_msg_size: 13,
            max_read_size: 14,
            max_write_size: 15,
            max_atomic_size: 16,
            ceq_cnt: 17,
            max_eid_cnt: 18,
            ..DeviceCaps::default()
        };
        let empty: urma_device_attr_t = zeroed();
        let to = caps(&from, empty.dev_cap);
        let objects = [to.max_jfc, to.max_jfs, to.max_jfr, to.max_jetty, to.max_jetty_grp];
        assert_eq!(objects, [1, 2, 3, 4, 5]);
        assert_eq!(to.max_jetty_in_jetty_grp, 6);
        assert_eq!([to.max_jfc_depth, to.max_jfs_depth, to.max_jfr_depth], [7, 8, 9]);
        assert_eq!([to.max_jfs_inline_len, to.max_jfs_sge, to.max_jfr_sge], [10, 11, 12]);
        assert_eq!((to.max_msg_size, to.max_read_size, to.max_write_size), (13, 14, 15));
        assert_eq!((to.max_cas_size, to.max_fetch_and_add_size), (16, 16));
        assert_eq!((to.ceq_cnt, to.max_eid_cnt), (17, 18));
    }
}
