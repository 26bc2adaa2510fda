//! Commands: what the driver asks of the device outside the data path, with their arguments and word layouts.
//!
//! A command is 16 words (128 bytes): word 0 is `opcode | sequence << 32`, words 1 to 15 are arguments. A response
//! is 8 words (64 bytes): word 0 is `owner | status << 8 | sequence << 32`, written last with release; words 1 to 7
//! are results. Responses may come out of order; the sequence number pairs them. Must not judge combinations of
//! arguments: the device does.

use crate::{CmdStatus, RawEid, field8, field16, field32, flag, place};

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

/// Kind of a queue object.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub enum CmdQueueKind {
    /// JFS: a queue that only sends.
    Jfs = 0,
    /// JFR: receives only; jetties may share it.
    Jfr = 1,
    /// Send, with a receive queue of its own or a shared JFR.
    Jetty = 2,
}

/// Transport mode; the numbers are those of `urma_transport_mode_t`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub enum Mode {
    /// Reliable message: one queue, many targets, acknowledged.
    Rm = 1,
    /// Reliable connection: one queue, one target, acknowledged.
    Rc = 2,
    /// Unreliable message: SEND only, not acknowledged.
    Um = 4,
}

/// State of a queue; the numbers are those of `urma_jetty_state_t`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub enum QueueState {
    /// Takes nothing; what was never started ends as "unhandled".
    Reset = 0,
    /// Starts and completes requests.
    Ready = 1,
    /// Starts nothing new; what was started ends.
    Suspended = 2,
    /// Completes every request with a flush error.
    Error = 3,
}

impl CmdQueueKind {
    /// `None` for a code without a meaning.
    #[must_use]
    pub const fn from_code(code: u8) -> Option<Self> {
        match code {
            0 => Some(Self::Jfs),
            1 => Some(Self::Jfr),
            2 => Some(Self::Jetty),
            _ => None,
        }
    }
}

impl Mode {
    /// `None` for a code without a meaning.
    #[must_use]
    pub const fn from_code(code: u8) -> Option<Self> {
        match code {
            1 => Some(Self::Rm),
            2 => Some(Self::Rc),
            4 => Some(Self::Um),
            _ => None,
        }
    }
}

impl QueueState {
    /// `None` for a code without a meaning.
    #[must_use]
    pub const fn from_code(code: u8) -> Option<Self> {
        match code {
            0 => Some(Self::Reset),
            1 => Some(Self::Ready),
            2 => Some(Self::Suspended),
            3 => Some(Self::Error),
            _ => None,
        }
    }
}

bitflags::bitflags! {
    /// Options of a queue.
    #[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
    pub struct QueueFlags: u16 {
        /// An error suspends the queue instead of moving it to the error state.
        const ERROR_SUSPEND = 1;
        /// Completions need not come in posting order.
        const OUTORDER_COMP = 2;
        /// Senders must show `token_value` (policy PLAIN_TEXT).
        const TOKEN = 4;
    }

    /// Remote rights on a segment; the numbers are those of `URMA_ACCESS_*`.
    #[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
    pub struct Access: u8 {
        /// Peers may not access the segment.
        const LOCAL_ONLY = 1;
        /// Peers may read the segment.
        const READ = 2;
        /// Peers may write; needs READ.
        const WRITE = 4;
        /// Peers may do atomics; needs READ and WRITE.
        const ATOMIC = 8;
    }
}

/// Arguments of the send ring of a queue.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct SqArgs {
    /// DMA address of the ring of 64-byte blocks.
    pub base: u64,
    /// log2 of its blocks, at most 16.
    pub blocks_log2: u8,
    /// JFC of its completions.
    pub jfcn: u32,
    /// Tries after receiver-not-ready, 0 to 7.
    pub rnr_retry: u8,
    /// Error timeout: 4.096 us << n, n at most 31 (typical 17).
    pub err_timeout: u8,
    /// 0 lowest to 15 highest.
    pub priority: u8,
}

/// Arguments of the receive ring of a queue.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct RqArgs {
    /// DMA address of the ring of entries ([`crate::rqe::stride`] bytes each).
    pub base: u64,
    /// log2 of its entries.
    pub depth_log2: u8,
    /// SGEs of an entry, 1 to 16.
    pub max_sge: u8,
    /// JFC of its completions.
    pub jfcn: u32,
    /// Least time until a sender tries again, code of the IB RNR timer table, 0 to 31.
    pub min_rnr_timer: u8,
    /// Value that senders show.
    pub token_value: u32,
}

/// Arguments of the command CREATE_QUEUE.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct CreateQueue {
    /// Whether to create a JFS, a JFR or a jetty.
    pub kind: CmdQueueKind,
    /// Wanted id, or 0 for any.
    pub id: u32,
    /// Transport mode of both rings.
    pub mode: Mode,
    /// Whether errors suspend, completions come out of order, senders show a token.
    pub flags: QueueFlags,
    /// Comes back in every CQE.
    pub cookie: u64,
    /// DMA address of the doorbell record ([`crate::rqe::record`]).
    pub record: u64,
    /// Send ring; for JFS and jetty.
    pub sq: Option<SqArgs>,
    /// Receive ring; for JFR and jetty. With a shared JFR only its `token_value` counts.
    pub rq: Option<RqArgs>,
    /// A jetty's shared JFR instead of `rq`, or [`NONE`].
    pub shared_jfr: u32,
    /// A jetty's own receive JFC when its JFR is shared (else that of the JFR), or [`NONE`].
    pub recv_jfcn: u32,
    /// Group that a jetty joins, or [`NONE`].
    pub group: u32,
}

/// Arguments of the command REGISTER_SEG.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct RegisterSeg {
    /// Token id (tid << 8) from ALLOC_TID.
    pub token_id: u32,
    /// DMA address of the first byte.
    pub iova: u64,
    /// Address by which requests name the first byte (UBVA's va, or the user's IOVA).
    pub va: u64,
    /// Length of the segment in bytes.
    pub len: u64,
    /// What peers may do with the segment.
    pub access: Access,
    /// Requests must show this value; `None` is policy NONE.
    pub token_value: Option<u32>,
}

fn opt(value: Option<u32>) -> (u64, u64) {
    (u64::from(value.is_some()), u64::from(value.unwrap_or(0)))
}

fn from_opt(present: bool, value: u32) -> Option<u32> {
    present.then_some(value)
}

const fn two(low: u32, high: u32) -> u64 {
    place(low as u64, 0, 32) | place(high as u64, 32, 32)
}

impl SqArgs {
    fn to_words(self) -> [u64; 2] {
        let w = place(u64::from(self.blocks_log2), 0, 8)
            | place(u64::from(self.rnr_retry), 8, 8)
            | place(u64::from(self.err_timeout), 16, 8)
            | place(u64::from(self.priority), 24, 8)
            | place(u64::from(self.jfcn), 32, 32);
        [self.base, w]
    }

    fn from_words(words: [u64; 2]) -> Self {
        let w = words[1];
        Self {
            base: words[0],
            blocks_log2: field8(w, 0, 8),
            rnr_retry: field8(w, 8, 8),
            err_timeout: field8(w, 16, 8),
            priority: field8(w, 24, 8),
            jfcn: field32(w, 32, 32),
        }
    }
}

impl RqArgs {
    fn to_words(self) -> [u64; 3] {
        let w = place(u64::from(self.depth_log2), 0, 8)
            | place(u64::from(self.max_sge), 8, 8)
            | place(u64::from(self.min_rnr_timer), 16, 8)
            | place(u64::from(self.jfcn), 32, 32);
        [self.base, w, u64::from(self.token_value)]
    }

    fn from_words(words: [u64; 3]) -> Self {
        let w = words[1];
        Self {
            base: words[0],
            depth_log2: field8(w, 0, 8),
            max_sge: field8(w, 8, 8),
            min_rnr_timer: field8(w, 16, 8),
            jfcn: field32(w, 32, 32),
            token_value: field32(words[2], 0, 32),
        }
    }
}

impl CreateQueue {
    fn encode(&self, w: &mut [u64; CMD_WORDS]) {
        w[1] = place(self.kind as u64, 0, 8)
            | place(self.mode as u64, 8, 8)
            | place(u64::from(self.flags.bits()), 16, 16)
            | place(u64::from(self.id), 32, 32);
        w[2] = self.cookie;
        w[3] = self.record;
        w[4] =
            place(u64::from(self.sq.is_some()), 0, 1) | place(u64::from(self.rq.is_some()), 1, 1);
        if let Some(sq) = self.sq {
            w[5..7].copy_from_slice(&sq.to_words());
        }
        if let Some(rq) = self.rq {
            w[7..10].copy_from_slice(&rq.to_words());
        }
        w[10] = place(u64::from(self.shared_jfr), 0, 32) | place(u64::from(self.recv_jfcn), 32, 32);
        w[11] = u64::from(self.group);
    }

    fn decode(w: &[u64; CMD_WORDS]) -> Option<Self> {
        Some(Self {
            kind: CmdQueueKind::from_code(field8(w[1], 0, 8))?,
            mode: Mode::from_code(field8(w[1], 8, 8))?,
            flags: QueueFlags::from_bits(field16(w[1], 16, 16))?,
            id: field32(w[1], 32, 32),
            cookie: w[2],
            record: w[3],
            sq: flag(w[4], 0).then(|| SqArgs::from_words([w[5], w[6]])),
            rq: flag(w[4], 1).then(|| RqArgs::from_words([w[7], w[8], w[9]])),
            shared_jfr: field32(w[10], 0, 32),
            recv_jfcn: field32(w[10], 32, 32),
            group: field32(w[11], 0, 32),
        })
    }
}

impl RegisterSeg {
    fn encode(&self, w: &mut [u64; CMD_WORDS]) {
        let (has, token) = opt(self.token_value);
        w[1] = u64::from(self.token_id);
        w[2] = self.iova;
        w[3] = self.va;
        w[4] = self.len;
        w[5] = place(u64::from(self.access.bits()), 0, 8) | place(has, 8, 1) | place(token, 32, 32);
    }

    fn decode(w: &[u64; CMD_WORDS]) -> Option<Self> {
        Some(Self {
            token_id: field32(w[1], 0, 32),
            iova: w[2],
            va: w[3],
            len: w[4],
            access: Access::from_bits(field8(w[5], 0, 8))?,
            token_value: from_opt(flag(w[5], 8), field32(w[5], 32, 32)),
        })
    }
}

impl Command {
    /// The number of this command.
    #[must_use]
    pub const fn opcode(&self) -> u8 {
        match self {
            Self::Nop => 0,
            Self::CreateEq { .. } => 1,
            Self::DestroyEq { .. } => 2,
            Self::CreateJfc { .. } => 3,
            Self::ModifyJfc { .. } => 4,
            Self::DestroyJfc { .. } => 5,
            Self::CreateQueue(_) => 6,
            Self::ModifyState { .. } => 7,
            Self::ModifyRxThreshold { .. } => 8,
            Self::QueryQueue { .. } => 9,
            Self::DestroyQueue { .. } => 10,
            Self::CreateGroup { .. } => 11,
            Self::DestroyGroup { .. } => 12,
            Self::AllocTid => 13,
            Self::FreeTid { .. } => 14,
            Self::RegisterSeg(_) => 15,
            Self::UnregisterSeg { .. } => 16,
            Self::Connect { .. } => 17,
            Self::Disconnect { .. } => 18,
            Self::Bind { .. } => 19,
            Self::Unbind { .. } => 20,
            Self::MapSeg { .. } => 21,
            Self::UnmapSeg { .. } => 22,
            Self::PoolGrow { .. } => 23,
            Self::PoolShrink { .. } => 24,
            Self::PoolQuery => 25,
            Self::QueryCounters { .. } => 26,
            Self::QueryEid { .. } => 27,
            Self::QueryModelCounters { .. } => 28,
        }
    }

    /// Returns the sixteen words of the command ring's entry.
    #[must_use]
    pub fn encode(&self, sequence: u32) -> [u64; CMD_WORDS] {
        let mut w = [0; CMD_WORDS];
        w[0] = u64::from(self.opcode()) | u64::from(sequence) << 32;
        let arguments = match *self {
            Self::CreateQueue(args) => {
                args.encode(&mut w);
                return w;
            }
            Self::RegisterSeg(args) => {
                args.encode(&mut w);
                return w;
            }
            Self::Nop | Self::AllocTid | Self::PoolQuery => [0; 4],
            Self::CreateEq { base, depth_log2, vector } => {
                [base, u64::from(depth_log2) | u64::from(vector) << 32, 0, 0]
            }
            Self::CreateJfc { base, depth_log2, eqn, inline } => {
                let depth = u64::from(depth_log2);
                [base, depth | u64::from(inline) << 8 | u64::from(eqn) << 32, 0, 0]
            }
            Self::ModifyJfc { jfcn, count, period_us } => {
                [u64::from(jfcn), u64::from(count) | u64::from(period_us) << 16, 0, 0]
            }
            Self::DestroyEq { eqn: id }
            | Self::DestroyJfc { jfcn: id }
            | Self::QueryQueue { id }
            | Self::DestroyQueue { id }
            | Self::DestroyGroup { id }
            | Self::FreeTid { token_id: id }
            | Self::UnregisterSeg { token_id: id }
            | Self::Disconnect { tpn: id }
            | Self::Unbind { id }
            | Self::QueryEid { index: id } => [u64::from(id), 0, 0, 0],
            Self::ModifyState { id, state } => [u64::from(id) | (state as u64) << 32, 0, 0, 0],
            Self::ModifyRxThreshold { id, threshold } => [two(id, threshold), 0, 0, 0],
            Self::CreateGroup { id, by_hint, token_value } => {
                let (has, token) = opt(token_value);
                [u64::from(id) | u64::from(by_hint) << 32 | has << 33, token, 0, 0]
            }
            Self::Connect { eid, mode } => {
                let [high, low] = eid.to_words();
                [high, low, mode as u64, 0]
            }
            Self::Bind { id, tpn, remote_id, psns } => {
                let [send, receive] = psns.unwrap_or_default();
                let has = u64::from(psns.is_some());
                [two(id, tpn), u64::from(remote_id) | has << 32, two(send, receive), 0]
            }
            Self::MapSeg { tpn, token_id, token_value, va, len } => {
                [two(tpn, token_id), u64::from(token_value), va, len]
            }
            Self::UnmapSeg { addr, len } => [addr, len, 0, 0],
            Self::PoolGrow { base, block_log2, blocks } => {
                [base, u64::from(block_log2) | u64::from(blocks) << 32, 0, 0]
            }
            Self::PoolShrink { base } => [base, 0, 0, 0],
            Self::QueryCounters { base, room } | Self::QueryModelCounters { base, room } => {
                [base, u64::from(room), 0, 0]
            }
        };
        w[1..5].copy_from_slice(&arguments);
        w
    }

    /// Reads a command and its sequence number.
    ///
    /// # Errors
    /// The sequence number, for an answer of `Invalid`, when the opcode or a field with a closed
    /// set of values means nothing.
    pub fn decode(w: &[u64; CMD_WORDS]) -> Result<(Self, u32), u32> {
        let sequence = field32(w[0], 32, 32);
        Self::decode_body(w).map(|c| (c, sequence)).ok_or(sequence)
    }

    fn decode_body(w: &[u64; CMD_WORDS]) -> Option<Self> {
        let id = field32(w[1], 0, 32);
        Some(match field8(w[0], 0, 8) {
            0 => Self::Nop,
            1 => Self::CreateEq {
                base: w[1],
                depth_log2: field8(w[2], 0, 8),
                vector: field16(w[2], 32, 16),
            },
            2 => Self::DestroyEq { eqn: id },
            3 => Self::CreateJfc {
                base: w[1],
                depth_log2: field8(w[2], 0, 8),
                eqn: field32(w[2], 32, 32),
                inline: flag(w[2], 8),
            },
            4 => Self::ModifyJfc {
                jfcn: id,
                count: field16(w[2], 0, 16),
                period_us: field16(w[2], 16, 16),
            },
            5 => Self::DestroyJfc { jfcn: id },
            6 => Self::CreateQueue(CreateQueue::decode(w)?),
            7 => Self::ModifyState { id, state: QueueState::from_code(field8(w[1], 32, 8))? },
            8 => Self::ModifyRxThreshold { id, threshold: field32(w[1], 32, 32) },
            9 => Self::QueryQueue { id },
            10 => Self::DestroyQueue { id },
            12 => Self::DestroyGroup { id },
            13 => Self::AllocTid,
            14 => Self::FreeTid { token_id: id },
            15 => Self::RegisterSeg(RegisterSeg::decode(w)?),
            16 => Self::UnregisterSeg { token_id: id },
            _ => return Self::decode_rest(w),
        })
    }

    fn decode_rest(w: &[u64; CMD_WORDS]) -> Option<Self> {
        let id = field32(w[1], 0, 32);
        let high = field32(w[1], 32, 32);
        Some(match field8(w[0], 0, 8) {
            11 => Self::CreateGroup {
                id,
                by_hint: flag(w[1], 32),
                token_value: from_opt(flag(w[1], 33), field32(w[2], 0, 32)),
            },
            17 => Self::Connect {
                eid: RawEid::from_words([w[1], w[2]]),
                mode: Mode::from_code(field8(w[3], 0, 8))?,
            },
            18 => Self::Disconnect { tpn: id },
            19 => Self::Bind {
                id,
                tpn: high,
                remote_id: field32(w[2], 0, 32),
                psns: flag(w[2], 32).then(|| [field32(w[3], 0, 32), field32(w[3], 32, 32)]),
            },
            20 => Self::Unbind { id },
            21 => Self::MapSeg {
                tpn: id,
                token_id: high,
                token_value: field32(w[2], 0, 32),
                va: w[3],
                len: w[4],
            },
            22 => Self::UnmapSeg { addr: w[1], len: w[2] },
            23 => Self::PoolGrow {
                base: w[1],
                block_log2: field8(w[2], 0, 8),
                blocks: field32(w[2], 32, 32),
            },
            24 => Self::PoolShrink { base: w[1] },
            25 => Self::PoolQuery,
            26 => Self::QueryCounters { base: w[1], room: field32(w[2], 0, 32) },
            27 => Self::QueryEid { index: id },
            28 => Self::QueryModelCounters { base: w[1], room: field32(w[2], 0, 32) },
            _ => return None,
        })
    }
}

impl Response {
    /// Returns the eight words of the response ring's entry.
    #[must_use]
    pub fn encode(&self, owner: bool) -> [u64; RSP_WORDS] {
        let mut w = [0; RSP_WORDS];
        w[0] = u64::from(owner)
            | place(self.status as u64, 8, 8)
            | place(u64::from(self.sequence), 32, 32);
        w[1..].copy_from_slice(&self.results);
        w
    }

    /// Reads a response; never fails.
    #[must_use]
    pub fn decode(w: &[u64; RSP_WORDS]) -> Self {
        let mut results = [0; RSP_WORDS - 1];
        results.copy_from_slice(&w[1..]);
        Self {
            sequence: field32(w[0], 32, 32),
            status: CmdStatus::from_code(field8(w[0], 8, 8)),
            results,
        }
    }
}
