//! What enters and leaves an engine in one cycle.
//!
//! - owns: types of the interface. takes, gives: nothing. must not: know a scheme.

/// A beat that the DMA side offers.
#[derive(Clone, Copy, Debug)]
pub struct InputBeat<'a> {
    /// Valid bytes from byte 0 on, 0 to W.
    pub len: u16,
    /// The first beat of a message.
    pub first: bool,
    /// The final beat of a message.
    pub last: bool,
    /// Name of the request.
    pub tag: u32,
    /// Path MTU as a power of two, 8 to 13: 256 to 8192 bytes.
    pub mtu_log2: u8,
    /// The `len` bytes, or none at all where only time is modelled.
    pub bytes: &'a [u8],
}

/// Control data of one packet.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Sideband {
    /// Name of the request.
    pub tag: u32,
    /// Number of the packet in its message, from 0.
    pub index: u32,
    /// Payload bytes, at most the MTU.
    pub len: u32,
    /// The first packet of its message.
    pub first: bool,
    /// The last packet of its message.
    pub last: bool,
}

/// A beat of a packet that leaves.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct OutputBeat {
    /// Valid bytes from byte 0 on; `Engine::beat_bytes` has them.
    pub len: u16,
    /// The last beat of its packet.
    pub last: bool,
}

/// What one cycle did.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct EngineOutput {
    /// The offered beat was accepted.
    pub in_ready: bool,
    /// A header cycle: this packet begins.
    pub header: Option<Sideband>,
    /// A beat of the open packet.
    pub beat: Option<OutputBeat>,
    /// A packet ended in this cycle: the cycle in which its first byte was accepted, and that of its header.
    pub ended: Option<(u64, u64)>,
    /// Some state changed. An engine whose state stays, with a beat offered and the output ready, stays for ever.
    pub moved: bool,
    /// Beats in the data memory at the end of the cycle.
    pub occupancy: u32,
}

/// Why a message was dropped up to its last beat.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum InputError {
    /// A beat without bytes inside a message.
    EmptyBeat,
    /// More bytes than a beat has.
    BeatTooLong,
    /// Another MTU, or another tag, than the first beat of the message said.
    MtuChanged,
    /// An MTU out of range.
    MtuRange,
    /// A message without its first beat, or a first beat inside a message.
    FirstMissing,
}

impl InputError {
    /// Every reason with its name in results.
    pub const ALL: [(Self, &'static str); 5] = [
        (Self::EmptyBeat, "empty_beat"),
        (Self::BeatTooLong, "beat_too_long"),
        (Self::MtuChanged, "mtu_changed"),
        (Self::MtuRange, "mtu_range"),
        (Self::FirstMissing, "first_missing"),
    ];
}
