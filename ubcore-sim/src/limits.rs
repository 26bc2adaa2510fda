//! What the device can hold: the capability table (docs/device-spec.md gives the reasons).
//!
//! *Owns*: the numbers. *Takes*: the configuration. *Gives*: the capability registers.
//! *Must not*: differ from what commands enforce: they use these constants.

use udma_abi::caps::{Caps, Features};

use crate::cfg::DeviceCfg;
use crate::share::SEGMENTS;

/// Most JFCs at a time.
pub(crate) const JFC: usize = 4096;
/// JFSs, JFRs and jetties, each.
pub(crate) const QUEUES: usize = 4096;
/// Most jetty groups at a time.
pub(crate) const GROUPS: usize = 256;
/// Members of a group.
pub(crate) const GROUP_MEMBERS: usize = 32;
/// Most event queues at a time: drivers let several share a vector.
pub(crate) const EQ: usize = 4096;
/// log2 of a JFC's entries.
pub(crate) const JFC_DEPTH_LOG2: u8 = 16;
/// log2 of a send ring's blocks.
pub(crate) const SQ_BLOCKS_LOG2: u8 = 16;
/// log2 of a receive ring's entries.
pub(crate) const JFR_DEPTH_LOG2: u8 = 15;
/// log2 of an event ring's entries.
pub(crate) const EQ_DEPTH_LOG2: u8 = 16;
/// Number of interrupt vectors: one for asynchronous events, the others for event queues.
pub(crate) const VECTORS: u16 = 64;
/// Functions beside that of the owner.
pub(crate) const FUNCTIONS: u16 = 1024;
/// Peers at one time.
pub(crate) const PEERS: usize = 1024;
/// Well-known queue ids: given only when asked for.
pub(crate) const RESERVED_IDS: (u32, u32) = (1, 1023);

/// Bytes of one message.
pub(crate) const MESSAGE_MAX: u64 = 1 << 30;

/// The capability registers of a device.
pub(crate) fn caps(cfg: &DeviceCfg) -> Caps {
    let features = Features::DWQE
        | Features::JFC_INLINE
        | Features::LOAD_STORE
        | Features::SELECTIVE_RETRANS
        | Features::JETTY_GRP
        | Features::ERROR_SUSPEND
        | Features::OUTORDER_COMP
        | Features::NON_PIN;
    Caps {
        max_jfc: JFC as u64,
        max_jfs: QUEUES as u64,
        max_jfr: QUEUES as u64,
        max_jetty: QUEUES as u64,
        max_jetty_grp: GROUPS as u64,
        max_jetty_in_grp: GROUP_MEMBERS as u64,
        max_eq: EQ as u64,
        max_seg: SEGMENTS as u64 - 1,
        max_jfc_depth: 1 << JFC_DEPTH_LOG2,
        // Requests of four blocks each fill half of what a 16-bit index names.
        max_jfs_depth: 1 << (SQ_BLOCKS_LOG2 - 3),
        max_jfr_depth: 1 << JFR_DEPTH_LOG2,
        max_inline: 176,
        max_jfs_sge: 13,
        max_jfs_rsge: 13,
        max_jfr_sge: udma_abi::rqe::SGE_MAX as u64,
        max_msg_size: MESSAGE_MAX,
        max_read_size: MESSAGE_MAX,
        max_write_size: MESSAGE_MAX,
        max_atomic_size: 8,
        max_um_size: u64::from(cfg.mtu),
        mtu_max: 8192,
        max_peer: PEERS as u64,
        max_eid: 1,
        vectors: u64::from(VECTORS),
        page_size_cap: 1 << 12 | 1 << 21,
        features: features.bits(),
        reserved_id_min: u64::from(RESERVED_IDS.0),
        reserved_id_max: u64::from(RESERVED_IDS.1),
        knit_block_sizes: 1 << 6 | 1 << 7 | 1 << 8 | 1 << 9 | 1 << 10 | 1 << 11 | 1 << 12,
        knit_blocks_max: 1 << 20,
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use udma_abi::RawEid;

    use super::*;

    /// Section 3 of docs/device-spec.md: numbers of the row, names, values, reason.
    fn rows() -> Vec<(String, String, String, String)> {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/device-spec.md");
        let text = std::fs::read_to_string(path).expect("docs/device-spec.md");
        let section = text.split("\n## 3. ").nth(1).and_then(|rest| rest.split("\n## ").next());
        // The first table: another one, of other columns, may follow.
        let lines = section.expect("section 3").lines().skip_while(|line| !line.starts_with("| "));
        let lines = lines.take_while(|line| line.starts_with('|'));
        let lines = lines.filter(|line| line.starts_with("| "));
        let cells = |line: &str| {
            let mut cells =
                line.trim_matches('|').splitn(4, '|').map(|cell| cell.trim().to_owned());
            let mut next = || cells.next().expect("four cells");
            (next(), next(), next(), next())
        };
        lines.skip(1).map(cells).collect()
    }

    /// What a value of the table is as a register.
    fn register(cfg: &DeviceCfg, value: &str) -> u64 {
        match value {
            "path MTU" => u64::from(cfg.mtu),
            "4 KiB, 2 MiB" => 4096 | 2 << 20,
            "64 B to 4 KiB, powers of two" => (6..=12).map(|log2| 1 << log2).sum(),
            _ if value.starts_with(char::is_uppercase) => {
                let names = value.split(", ").map(|name| Features::from_name(name).expect(name));
                names.fold(Features::empty(), Features::union).bits()
            }
            _ => match value.strip_prefix("2^") {
                Some(exponent) => 1 << exponent.parse::<u32>().expect(value),
                None => value.parse().expect(value),
            },
        }
    }

    #[test]
    fn the_specification_states_each_capability_with_value_and_reason() {
        let cfg = DeviceCfg::new(RawEid::default(), 1, 1);
        let words = caps(&cfg).to_words();
        let mut stated = Vec::new();
        for (numbers, names, values, reason) in rows() {
            assert!(!reason.is_empty(), "{names} has no reason");
            let (first, last) = numbers.split_once('-').unwrap_or((&numbers, &numbers));
            let [first, last] = [first, last].map(|n| n.parse::<usize>().expect("a number"));
            let names: Vec<&str> = names.split(", ").collect();
            let each = values.strip_suffix(" each").unwrap_or(&values);
            // Several values for as many names, or one for all.
            let several: Vec<&str> = each.split(", ").collect();
            let own =
                several.len() == names.len() && several.iter().all(|v| v.parse::<u64>().is_ok());
            for (at, index) in (first..=last).enumerate() {
                let value = register(&cfg, if own { several[at] } else { each });
                assert_eq!(value, words[index], "{}", Caps::NAMES[index]);
                let is_named = Caps::NAMES[index] == names[at]
                    || names[at].strip_prefix('_').is_some_and(|end| {
                        Caps::NAMES[index].strip_suffix(end).is_some_and(|s| s.ends_with('_'))
                    });
                assert!(is_named, "{index} is {}, not {}", Caps::NAMES[index], names[at]);
                stated.push(index);
            }
        }
        assert_eq!(stated, (0..Caps::COUNT).collect::<Vec<_>>());
    }
}
