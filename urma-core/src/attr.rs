//! Name and numbers of a device, and what it can do.
//!
//! *Owns*: identification, attributes and limits, with their units.

use crate::TransportMode;

/// Properties and limits that a device reports.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Default)]
pub struct DeviceId {
    /// Device name, such as `udma0`; unique in the process, at most 63 bytes.
    pub name: String,
    /// Name of its driver, such as `udma`.
    pub driver: String,
    /// Vendor id (PCI numbering).
    pub vendor: u16,
    /// Device id (PCI numbering).
    pub device: u16,
}

/// Globally unique id of a device.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub struct Guid(pub [u8; 16]);

/// Path MTU; numbers of `urma_mtu_t` (UMDK release 26.06).
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
#[repr(u8)]
#[expect(missing_docs, reason = "the name is the number of bytes")]
pub enum Mtu {
    B256 = 1,
    B512 = 2,
    B1024 = 3,
    B2048 = 4,
    B4096 = 5,
    B8192 = 6,
}

impl Mtu {
    /// Payload bytes of a packet.
    #[must_use]
    pub const fn bytes(self) -> u32 {
        128 << self as u32
    }

    /// The largest MTU of at most `bytes`; 256 at least.
    #[must_use]
    pub const fn at_most(bytes: u64) -> Self {
        match bytes {
            0..512 => Self::B256,
            512..1024 => Self::B512,
            1024..2048 => Self::B1024,
            2048..4096 => Self::B2048,
            4096..8192 => Self::B4096,
            _ => Self::B8192,
        }
    }
}

/// State of a port; numbers of `urma_port_state_t` (UMDK release 26.06).
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
#[repr(u8)]
#[expect(missing_docs, reason = "the names are those of the specification")]
pub enum PortState {
    #[default]
    Nop = 0,
    Down = 1,
    Init = 2,
    Armed = 3,
    Active = 4,
    ActiveDefer = 5,
}

/// Attributes of one port of a device.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct PortAttr {
    /// Largest MTU that the port supports, in payload bytes of a packet.
    pub max_mtu: Mtu,
    /// MTU that the port uses now; at most `max_mtu`.
    pub active_mtu: Mtu,
    /// Whether the link is up.
    pub state: PortState,
    /// Lanes: a value of `urma_link_width_t` (1, 2, 4, 8, 16, 32).
    pub width: u8,
    /// Speed: a value of `urma_speed_t` (10 = 100 Gbit/s).
    pub speed: u8,
}

bitflags::bitflags! {
    /// Features; the bits of `urma_device_feature_t` (UMDK release 26.06).
    #[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
    pub struct DeviceFeatures: u32 {
        /// Receives packets of a TP out of order, without asking for all again.
        const OOR = 1 << 0;
        /// Imported segments can be mapped for load and store.
        const LOAD_STORE = 1 << 3;
        /// Segments need not be pinned.
        const NON_PIN = 1 << 4;
        /// Small receive payload in the completion.
        const JFC_INLINE = 1 << 6;
        /// Retransmits only the packets that are missing.
        const SELECTIVE_RETRANS = 1 << 8;
        /// Groups of jetties can be made and named as targets.
        const JETTY_GRP = 1 << 11;
        /// A queue can be made to suspend on an error instead of failing.
        const ERROR_SUSPEND = 1 << 12;
        /// A queue can be made to complete requests in another order than they were posted in.
        const OUTORDER_COMP = 1 << 13;
        /// Supports compact transport paths, which leave reliability to the layer below.
        const CTP = 1 << 18;
    }

    /// Atomic operations; the bits of `urma_atomic_feature_t` (UMDK release 26.06).
    #[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
    pub struct AtomicFeatures: u32 {
        /// Supports compare and swap.
        const CAS = 1 << 0;
        /// Supports swap: stores an operand and returns the old value.
        const SWAP = 1 << 1;
        /// Supports fetch and add.
        const FETCH_ADD = 1 << 2;
        /// Supports fetch and subtract.
        const FETCH_SUB = 1 << 3;
        /// Supports fetch and bitwise AND.
        const FETCH_AND = 1 << 4;
        /// Supports fetch and bitwise OR.
        const FETCH_OR = 1 << 5;
        /// Supports fetch and bitwise XOR.
        const FETCH_XOR = 1 << 6;
    }

    /// Transport modes; the bits are the numbers of [`TransportMode`].
    #[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
    pub struct ModeSet: u16 {
        /// Reliable message: one queue, many targets, acknowledged.
        const RM = 1;
        /// Reliable connection: one queue, one target, acknowledged.
        const RC = 2;
        /// Unreliable message: SEND only, not acknowledged.
        const UM = 4;
    }
}

impl ModeSet {
    /// Whether `mode` is among them.
    #[must_use]
    pub const fn has(self, mode: TransportMode) -> bool {
        self.bits() & mode as u16 != 0
    }
}

/// Limits of a device. Counts are objects, depths are entries, sizes are bytes.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
#[expect(missing_docs, reason = "names as in urma_device_cap_t; units above")]
pub struct DeviceCaps {
    pub features: DeviceFeatures,
    pub atomics: AtomicFeatures,
    pub modes: ModeSet,
    pub max_jfc: u32,
    pub max_jfs: u32,
    pub max_jfr: u32,
    pub max_jetty: u32,
    pub max_jetty_grp: u32,
    pub max_jetty_in_grp: u32,
    pub max_jfc_depth: u32,
    pub max_jfs_depth: u32,
    pub max_jfr_depth: u32,
    pub max_jfs_inline: u32,
    pub max_jfs_sge: u32,
    pub max_jfs_rsge: u32,
    pub max_jfr_sge: u32,
    pub max_msg_size: u64,
    pub max_read_size: u32,
    pub max_write_size: u32,
    pub max_atomic_size: u32,
    pub max_um_size: u32,
    pub ceq_cnt: u32,
    pub max_eid_cnt: u32,
    pub max_seg: u32,
    pub page_size_cap: u64,
}

/// Attributes of a device.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct DeviceAttr {
    /// Number that identifies the device, 16 bytes.
    pub guid: Guid,
    /// Limits and features that creations and requests are checked against.
    pub caps: DeviceCaps,
    /// Ports, at most 8.
    pub ports: Vec<PortAttr>,
    /// First well-known queue id: given only when asked for.
    pub reserved_id_min: u32,
    /// Last well-known queue id.
    pub reserved_id_max: u32,
}
