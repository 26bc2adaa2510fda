//! Registers of the card (section 10), and the bits that the driver uses.

/// Control of the device (10.2.2.1).
pub(crate) const CTRL: u64 = 0x0000;
/// Resets the card; clears itself when done.
pub(crate) const CTRL_RESET: u64 = 1 << 26;
/// Lets the link come up.
pub(crate) const CTRL_LINK_UP: u64 = 1 << 6;
/// Status of the device (10.2.2.2).
pub(crate) const STATUS: u64 = 0x0008;
/// The link is up.
pub(crate) const STATUS_LINK: u64 = 1 << 1;
/// Causes of interrupts; a read clears them.
pub(crate) const ICR: u64 = 0x00C0;
/// Enables the causes that are set.
pub(crate) const IMS: u64 = 0x00D0;
/// Disables the causes that are set.
pub(crate) const IMC: u64 = 0x00D8;
/// The link came up or went down.
pub(crate) const CAUSE_LINK: u64 = 1 << 2;
/// Frames arrived: the receive timer ended, descriptors run low, or frames were lost.
pub(crate) const CAUSE_RX: u64 = 1 << 7 | 1 << 4 | 1 << 6;
/// Control of the receive unit.
pub(crate) const RCTL: u64 = 0x0100;
/// On; broadcasts too; buffers of 2048 bytes; the check sequence is taken off.
pub(crate) const RCTL_ON: u64 = 1 << 1 | 1 << 15 | 1 << 26;
/// Control of the transmit unit.
pub(crate) const TCTL: u64 = 0x0400;
/// On; short frames are padded; 15 tries after a collision, whose distance is that of full duplex.
pub(crate) const TCTL_ON: u64 = 1 << 1 | 1 << 3 | 0x0F << 4 | 0x40 << 12;
/// Gap between frames that are sent.
pub(crate) const TIPG: u64 = 0x0410;
/// Its value for copper: 8, 8, 7.
pub(crate) const TIPG_COPPER: u64 = 8 | 8 << 10 | 7 << 20;
/// Receive ring: address, then length, head and tail at the distances below.
pub(crate) const RDBAL: u64 = 0x2800;
/// Tail of the receive ring.
pub(crate) const RDT: u64 = RDBAL + TAIL;
/// Transmit ring, laid out as the receive ring.
pub(crate) const TDBAL: u64 = 0x3800;
/// Tail of the transmit ring.
pub(crate) const TDT: u64 = TDBAL + TAIL;
/// Distance of the address' high half.
pub(crate) const HIGH: u64 = 0x04;
/// Distance of the length in bytes.
pub(crate) const LENGTH: u64 = 0x08;
/// Distance of the head.
pub(crate) const HEAD: u64 = 0x10;
/// Distance of the tail.
pub(crate) const TAIL: u64 = 0x18;
/// Control of the transmit descriptors.
pub(crate) const TXDCTL: u64 = 0x3828;
/// A bit that must be set.
pub(crate) const TXDCTL_ALWAYS: u64 = 1 << 22;
/// Filter of multicast addresses.
pub(crate) const MTA: u64 = 0x5200;
/// Its length in bytes.
pub(crate) const MTA_LEN: u64 = 512;
/// Ethernet address, low half.
pub(crate) const RAL0: u64 = 0x5400;
/// Ethernet address, high half.
pub(crate) const RAH0: u64 = 0x5404;
/// The address is valid.
pub(crate) const RAH_VALID: u64 = 1 << 31;
