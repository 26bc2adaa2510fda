//! Commands: what the driver asks of the device outside the data path.
//!
//! *Owns*: numbers and word layouts. A command is 16 words (128 bytes): word 0 is
//! `opcode | sequence << 32`, words 1 to 15 are arguments. A response is 8 words (64 bytes):
//! word 0 is `owner | status << 8 | sequence << 32`, written last with release; words 1 to 7
//! are results. Responses may come out of order; the sequence number pairs them.
mod args;
mod codec;

pub use args::{
    Access, CmdQueueKind, CreateQueue, Mode, QueueFlags, QueueState, RegisterSeg, RqArgs, SqArgs,
};

use crate::{CmdStatus, RawEid, bits::flag};

/// Words of a command.
pub const CMD_WORDS: usize = 16;
/// Words of a response.
pub const RSP_WORDS: usize = 8;

/// "No queue, no event queue, any id": all ones.
pub const NONE: u32 = u32::MAX;

/// Command of the driver to the device, with its arguments.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Command {
    /// Does nothing; the device only answers it.
    Nop,
    /// New event queue; result 0 is its number.
    CreateEq {
        /// DMA address of the ring.
        base: u64,
        /// log2 of its entries.
        depth_log2: u8,
        /// Interrupt vector, 1 and up.
        vector: u16,
    },
    /// Forget an event queue; `InUse` while a JFC names it.
    DestroyEq {
        /// Number of the event queue.
        eqn: u32,
    },
    /// New JFC; result 0 is its number.
    CreateJfc {
        /// DMA address of the ring.
        base: u64,
        /// log2 of its entries.
        depth_log2: u8,
        /// Event queue or [`NONE`].
        eqn: u32,
        /// Receive payload of up to 12 bytes goes into the CQE.
        inline: bool,
    },
    /// Event moderation: an armed JFC fires after `count` completions or `period_us`.
    ModifyJfc {
        /// Number of the JFC to change.
        jfcn: u32,
        /// Completions, 0 or 1 = each.
        count: u16,
        /// Microseconds, 0 = none.
        period_us: u16,
    },
    /// Forget a JFC; `InUse` while a queue names it.
    DestroyJfc {
        /// Number of the JFC.
        jfcn: u32,
    },
    /// New JFS, JFR or jetty; result 0 is its id.
    CreateQueue(CreateQueue),
    /// Change a queue's state.
    ModifyState {
        /// Number of the JFS, JFR or jetty.
        id: u32,
        /// New state; RESET to READY, READY to SUSPENDED or back, any to ERROR, any to RESET.
        state: QueueState,
    },
    /// One limit event when fewer receives than this are left; 0 turns it off.
    ModifyRxThreshold {
        /// Number of the JFS, JFR or jetty.
        id: u32,
        /// Receives below which the event is raised.
        threshold: u32,
    },
    /// Result 0: state; 1: send requests not yet retired (blocks); 2: receives left.
    QueryQueue {
        /// Number of the JFS, JFR or jetty.
        id: u32,
    },
    /// Flush and forget a queue. Answers when every request has its CQE.
    DestroyQueue {
        /// Number of the JFS, JFR or jetty.
        id: u32,
    },
    /// New jetty group; result 0 is its id.
    CreateGroup {
        /// Wanted id, or 0 for any.
        id: u32,
        /// Pick members by the request's hint (else round-robin).
        by_hint: bool,
        /// Senders must show this value; `None` is policy NONE.
        token_value: Option<u32>,
    },
    /// Forget a group; `InUse` while it has members.
    DestroyGroup {
        /// Number of the group.
        id: u32,
    },
    /// New token id; result 0 is `tid << 8`.
    AllocTid,
    /// Give back a token id; `InUse` while a segment has it.
    FreeTid {
        /// Token id of the segment, `tid << 8`.
        token_id: u32,
    },
    /// Make memory known. Result 0: bytes that peers on this host reach directly.
    RegisterSeg(RegisterSeg),
    /// Withdraw memory: drains for at most 10 ms, then revokes. After the answer no byte is placed.
    UnregisterSeg {
        /// Token id of the segment, `tid << 8`.
        token_id: u32,
    },
    /// Find a path to a node (a handshake where one is needed). Result 0: TPN; 1: [`TpPath`] code;
    /// 2 and 3: nothing.
    Connect {
        /// EID of the peer's node.
        eid: RawEid,
        /// Mode of the queues that use it: paths of UM have no acknowledgements, those of RC may be of the
        /// standard opcodes.
        mode: Mode,
    },
    /// Gives back a path; it closes when nothing uses it.
    Disconnect {
        /// Number of the TP that CONNECT returned.
        tpn: u32,
    },
    /// RC: pair a local jetty with a remote one.
    Bind {
        /// Number of the local jetty.
        id: u32,
        /// Path to the peer.
        tpn: u32,
        /// Number of the peer's jetty.
        remote_id: u32,
        /// PSNs of the first packet sent and of the first one expected, 24 bits each, for the standard
        /// opcodes; `None`: the numbers of the two jetties.
        psns: Option<[u32; 2]>,
    },
    /// RC: undo a pairing.
    Unbind {
        /// Number of the local jetty.
        id: u32,
    },
    /// Opens a window on a peer's segment for load and store. Result 0: its offset in the register
    /// region, where [`crate::RegisterRegion::map`] gives the memory.
    MapSeg {
        /// Path to the peer.
        tpn: u32,
        /// Token id of the segment.
        token_id: u32,
        /// Token value that the peer gave for the segment.
        token_value: u32,
        /// Address of the first byte, as registered.
        va: u64,
        /// Length of the window in bytes.
        len: u64,
    },
    /// Give back such a window.
    UnmapSeg {
        /// Offset in the register region that MAP_SEG returned.
        addr: u64,
        /// Length of the window in bytes.
        len: u64,
    },
    /// Give the knitting pool `blocks` blocks of `1 << block_log2` bytes at `base`.
    PoolGrow {
        /// DMA address of the first block.
        base: u64,
        /// log2 of a block's bytes.
        block_log2: u8,
        /// Number of blocks, at least 1.
        blocks: u32,
    },
    /// Take the piece at `base` back; `InUse` while TPs hold blocks of it.
    PoolShrink {
        /// DMA address given to PoolGrow.
        base: u64,
    },
    /// Result 0: block bytes; 1: blocks; 2: free blocks; 3: most ever used.
    PoolQuery,
    /// Write all counters as u64 to `base`; result 0: how many.
    QueryCounters {
        /// DMA address that the counters are written to.
        base: u64,
        /// Counters for which there is room at `base`.
        room: u32,
    },
    /// Write the counters of the device's model to `base`, as [`ModelCounter`](crate::counters::ModelCounter)s; result 0:
    /// how many there are.
    QueryModelCounters {
        /// DMA address that the counters are written to.
        base: u64,
        /// Counters for which there is room at `base`; 0: nothing is written.
        room: u32,
    },
    /// Result 0: EIDs there are; 1 and 2: the EID at `index`.
    QueryEid {
        /// Index of the EID, from 0.
        index: u32,
    },
}

/// How a TP carries what is not direct.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub enum TpPath {
    /// The node itself: copies within the process.
    Local = 0,
    /// Same host: direct and ring.
    SameHost = 1,
    /// RoCEv2 packets over a reliable TP, or datagrams for UM.
    Packets = 2,
}

/// The answer to a command.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Response {
    /// Pairs it with its command.
    pub sequence: u32,
    /// Result of the command; not success means that it changed nothing.
    pub status: CmdStatus,
    /// Results 0 to 6.
    pub results: [u64; RSP_WORDS - 1],
}

/// The owner bit of a response's word 0 (1 on the first pass, toggles at each wrap).
#[must_use]
pub const fn response_owner(word0: u64) -> bool {
    flag(word0, 0)
}
