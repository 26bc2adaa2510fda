//! The register map of BAR 0.
//!
//! *Owns*: offsets and bit meanings. All registers are little-endian; 64-bit ones are accessed
//! with 64-bit reads and writes.

/// Read-only, 64 bits: [`MAGIC`], by which a driver recognises the register map.
pub const ID: u64 = 0x00;
/// Read-only, 32 bits: [`VERSION`] of the register map.
pub const VERSION_REG: u64 = 0x08;
/// RO u32: status bits, see [`status`].
pub const STATUS: u64 = 0x0C;
/// RW u32: control bits, see [`control`].
pub const CONTROL: u64 = 0x10;
/// RW u64: DMA address of the command ring.
pub const CMD_BASE: u64 = 0x18;
/// RW u64: DMA address of the command response ring.
pub const RSP_BASE: u64 = 0x20;
/// RW u32: entries of both rings, a power of two, 1 to 256.
pub const CMD_DEPTH: u64 = 0x28;
/// WO u32: command producer index, free running.
pub const CMD_PI: u64 = 0x30;
/// RW u64: DMA address of the asynchronous event ring ([`crate::eqe`]), vector 0.
pub const AEQ_BASE: u64 = 0x38;
/// RW u32: its entries, a power of two.
pub const AEQ_DEPTH: u64 = 0x40;
/// WO u32: its consumer index, free running.
pub const AEQ_CI: u64 = 0x44;
/// RO u64 array: capability `i` at `CAPS + 8 * i` ([`crate::caps`]).
pub const CAPS: u64 = 0x100;
/// WO u64: completion queue doorbell ([`crate::doorbell::JfcDoorbell`]).
pub const JFC_DB: u64 = 0x8040;
/// WO u64: event queue consumer index: `eqn << 32 | ci`.
pub const EQ_CI: u64 = 0x8048;
/// WO u32: a device that sleeps looks at its doorbell slots ([`crate::slots`]). Any value.
pub const SLOT_WAKE: u64 = 0x8050;
/// Page of queue `id` at `JETTY_PAGES + id * doorbell::PAGE_LEN`.
pub const JETTY_PAGES: u64 = 0x10_0000;
/// Queue ids are 20 bits wide.
pub const QUEUE_IDS: u64 = 1 << 20;
/// Bytes of BAR 0: a power of two, as the windows of a PCI function are.
pub const BAR_LEN: u64 = 1 << 29;
const _: () = assert!(JETTY_PAGES + QUEUE_IDS * crate::doorbell::PAGE_LEN <= BAR_LEN);

/// "UDMA-SIM" read as little-endian bytes.
pub const MAGIC: u64 = u64::from_le_bytes(*b"UDMA-SIM");
/// Version of this contract.
pub const VERSION: u32 = 1;

/// Bits of the register [`STATUS`].
pub mod status {
    /// Commands and doorbells are accepted.
    pub const READY: u32 = 1;
    /// The device gave up; only a reset helps.
    pub const FATAL: u32 = 2;
    /// A reset is running.
    pub const RESETTING: u32 = 4;
}

/// Bits of the register [`CONTROL`].
pub mod control {
    /// Rings are set up; the device may use them.
    pub const ENABLE: u32 = 1;
    /// Reset: all objects are gone, rings are forgotten; reads as 0 when done.
    pub const RESET: u32 = 2;
}
