//! The files of the software device, as the kernel's `ubcore` class has them.
//!
//! *Owns*: which file says what (docs/c-api.md, "Their devices"). *Takes*: the attributes of a device
//! that is opened for it and closed again. *Gives*: names and values. *Must not*: write them.

use ubcore_sim::{
    NodeCfg,
    node::{ConfigError, DRIVER},
};
use udma_abi::{
    RawEid,
    backing::{DEVICE_ID, VENDOR_ID},
};
use urma::{DeviceAttr, DeviceCaps, DeviceFeatures, PortAttr};

/// Folder of one device in the class folder, with its files.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Folder {
    /// Name of the folder, which is the device's.
    pub(super) name: String,
    /// Files below it, each with its value. Their folders come first.
    pub(super) files: Vec<(String, String)>,
}

/// Bits of `feature` that the C library has for this device beside those of the device itself:
/// several segments for a token id, and compact paths.
const FEATURES_OF_C: u32 = 1 << 16 | 1 << 18;
/// `congestion_ctrl_alg`: the bit for none.
const CONGESTION_NONE: u64 = 1;
/// Bit of `feature`: payload in completions.
const JFC_INLINE: u32 = 1 << 6;

/// Describes the software device as the kernel would.
pub(super) fn describe() -> Result<Folder, String> {
    let eid = NodeCfg::from_env().map_err(|error: ConfigError| error.to_string())?.eid;
    // A node of its own with any EID: the program's EID stays free.
    let opened = urma::open_node(NodeCfg::default());
    let opened = opened.map_err(|error| format!("looking at the device: {error}"))?;
    Ok(Folder { name: NodeCfg::default().name, files: files(opened.context.attr(), eid) })
}

fn files(attr: &DeviceAttr, eid: Option<RawEid>) -> Vec<(String, String)> {
    let mut files = vec![
        ("ubdev".to_owned(), NodeCfg::default().name),
        ("driver_name".to_owned(), DRIVER.to_owned()),
        ("device/vendor".to_owned(), format!("{VENDOR_ID:#06x}")),
        ("device/device".to_owned(), format!("{DEVICE_ID:#06x}")),
        ("transport_type".to_owned(), "0".to_owned()),
        ("eids/eid0".to_owned(), text(eid.unwrap_or_default())),
        ("port_count".to_owned(), attr.ports.len().to_string()),
        (
            "reserved_jetty_id".to_owned(),
            format!("{}-{}", attr.reserved_id_min, attr.reserved_id_max),
        ),
    ];
    files.extend(numbers(&attr.caps).map(|(name, value)| (name.to_owned(), value.to_string())));
    for (index, port) in attr.ports.iter().enumerate() {
        files.extend(
            of_port(port).map(|(name, value)| (format!("port{index}/{name}"), value.to_string())),
        );
    }
    files
}

/// An EID in eight groups. All of it zero: each process that opens the device has one of its own.
fn text(eid: RawEid) -> String {
    let groups = eid.0.chunks(2).map(|two| format!("{:02x}{:02x}", two[0], two[1]));
    groups.collect::<Vec<_>>().join(":")
}

fn numbers(caps: &DeviceCaps) -> [(&'static str, u64); 34] {
    let inline = if caps.features.contains(DeviceFeatures::JFC_INLINE) { JFC_INLINE } else { 0 };
    let features = caps.features.bits() & !JFC_INLINE | FEATURES_OF_C | inline;
    let atomic = u64::from(caps.max_atomic_size);
    [
        ("max_jfc", caps.max_jfc.into()),
        ("max_jfs", caps.max_jfs.into()),
        ("max_jfr", caps.max_jfr.into()),
        ("max_jetty", caps.max_jetty.into()),
        ("max_jetty_grp", caps.max_jetty_grp.into()),
        ("max_jetty_in_jetty_grp", caps.max_jetty_in_grp.into()),
        ("max_jfc_depth", caps.max_jfc_depth.into()),
        ("max_jfs_depth", caps.max_jfs_depth.into()),
        ("max_jfr_depth", caps.max_jfr_depth.into()),
        ("max_jfs_inline_size", caps.max_jfs_inline.into()),
        ("max_jfs_sge", caps.max_jfs_sge.into()),
        ("max_jfs_rsge", caps.max_jfs_sge.into()),
        ("max_jfr_sge", caps.max_jfr_sge.into()),
        ("max_msg_size", caps.max_msg_size),
        ("max_read_size", caps.max_read_size.into()),
        ("max_write_size", caps.max_write_size.into()),
        ("max_cas_size", atomic),
        ("max_swap_size", atomic),
        ("max_fetch_and_add_size", atomic),
        ("max_fetch_and_sub_size", atomic),
        ("max_fetch_and_and_size", atomic),
        ("max_fetch_and_or_size", atomic),
        ("max_fetch_and_xor_size", atomic),
        ("feature", features.into()),
        ("atomic_feat", caps.atomics.bits().into()),
        ("trans_mode", caps.modes.bits().into()),
        ("congestion_ctrl_alg", CONGESTION_NONE),
        ("ceq_cnt", caps.ceq_cnt.into()),
        ("max_tp_in_tpg", 1),
        ("max_eid_cnt", caps.max_eid_cnt.into()),
        ("max_netaddr_cnt", caps.max_eid_cnt.into()),
        ("max_oor_cnt", 0),
        ("mn", 0),
        ("page_size_cap", caps.page_size_cap),
    ]
}

fn of_port(port: &PortAttr) -> [(&'static str, u64); 5] {
    [
        ("max_mtu", port.max_mtu as u64),
        ("state", port.state as u64),
        ("active_width", port.width.into()),
        ("active_speed", port.speed.into()),
        ("active_mtu", port.active_mtu as u64),
    ]
}
