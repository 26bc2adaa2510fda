//! What two nodes on one host share: offsets in the node region and in a pair's half.
//!
//! *Owns*: the layout. *Takes*: ring lengths. *Gives*: offsets and lengths in bytes.
//! *Must not*: map, read or write memory.
//!
//! ```text
//! node region (written by its owner only):
//!   0      magic u64, 8 version u64, 16 incarnation u64, 24 eid (two words)
//!   128    sleep flag (urma_mem::sleep)
//!   4096   segment table: SEGMENTS entries of 64 bytes
//!   ..     further extents of segments: SEGMENTS blocks of 256 bytes (sparse; see context/segment)
//! half (written by its owner only):
//!   0      magic u64, 8 slots in use u64, 16 ring length u64, 24 incarnation u64, 32 names taken back u64,
//!          40 names that its writer takes u64
//!   128    my head of the inbound ring (urma_mem::spsc, consumer's half)
//!   4096   hazard slots: SLOTS of urma_mem::hazard::SLOT_LEN
//!   ..     my outbound ring (urma_mem::spsc, producer's half)
//! ```

use urma_mem::hazard;

/// "URMANODE" as little-endian bytes: first word of a node region.
pub const NODE_MAGIC: u64 = u64::from_le_bytes(*b"URMANODE");
/// "URMAHALF" as little-endian bytes: first word of a half.
pub const HALF_MAGIC: u64 = u64::from_le_bytes(*b"URMAHALF");
/// Version of both layouts, and of what an arena's ranges may have of its file.
pub const VERSION: u64 = 6;

/// Offset of the version word in a node region.
pub const NODE_VERSION: usize = 8;
/// Offset of the incarnation word in a node region.
pub const NODE_INCARNATION: usize = 16;
/// Offset of the two EID words in a node region.
pub const NODE_EID: usize = 24;
/// Offset of the sleep flag in a node region.
pub const NODE_SLEEP: usize = 128;
/// Offset of the segment table in a node region.
pub const NODE_SEGMENTS: usize = 4096;
/// Entries of the segment table; index 0 is never used.
pub const SEGMENTS: usize = 1 << 14;
/// Bytes of an entry of the segment table.
pub const SEGMENT_LEN: usize = 64;
/// Offset of the segments' further extents in a node region.
pub const NODE_EXTENTS: usize = NODE_SEGMENTS + SEGMENTS * SEGMENT_LEN;
/// Further extents of a segment: what its entry does not hold.
pub const EXTENTS: usize = 10;
/// Bytes of an extent: address, length, offset in the arena.
pub const EXTENT_LEN: usize = 24;
/// Bytes from one segment's further extents to the next one's: four cache lines.
pub const EXTENTS_LEN: usize = 256;
/// Bytes of a node region.
pub const NODE_LEN: usize = NODE_EXTENTS + SEGMENTS * EXTENTS_LEN;

const _: () = assert!(EXTENTS * EXTENT_LEN <= EXTENTS_LEN, "a segment's extents fit their place");

/// Offset of the count of hazard slots in use, in a half.
pub const HALF_SLOTS_USED: usize = 8;
/// Offset of the ring length word, in a half.
pub const HALF_RING_LEN: usize = 16;
/// Offset of the incarnation word, in a half.
pub const HALF_INCARNATION: usize = 24;
/// Offset of the count of times that bytes named in messages (`engine/pull.rs`) were taken back, in a half.
pub const HALF_NAMES: usize = 32;
/// Offset of the word that says which named bytes the writer of a half takes (`engine/names.rs`).
pub const HALF_TAKES: usize = 40;
/// Offset of the head of the inbound ring, in a half.
pub const HALF_HEAD: usize = 128;
/// Offset of the hazard slots, in a half.
pub const HALF_SLOTS: usize = 4096;
/// Hazard slots of a half: one for each send queue that can exist, and [`PULL_SLOT`].
pub const SLOTS: usize = 8192;
/// Slot of the exchange, for bytes that it copies out of the peer's memory.
pub const PULL_SLOT: usize = 0;
/// Offset of the outbound ring, in a half.
pub const HALF_RING: usize = HALF_SLOTS + SLOTS * hazard::SLOT_LEN;

/// Bytes of a half with a ring of `ring_len` bytes of entries (a power of two).
#[must_use]
pub const fn half_len(ring_len: usize) -> usize {
    HALF_RING + ring_len
}
