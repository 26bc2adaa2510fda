//! Word layouts of commands and responses.
//!
//! *Owns*: which field lies in which bits. *Takes*: typed commands. *Gives*: 16 and 8 words.
//! *Must not*: fail on anything but an unknown code.

use super::{
    Access, CMD_WORDS, CmdQueueKind, Command, CreateQueue, Mode, QueueFlags, QueueState, RSP_WORDS,
    RegisterSeg, Response, RqArgs, SqArgs,
};
use crate::{
    CmdStatus, RawEid,
    bits::{field8, field16, field32, flag, place},
};

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
