//! From a fetched entry to the header of its request.
//!
//! *Owns*: which field goes where. *Takes*: a decoded entry. *Gives*: the header that all pieces
//! share. *Must not*: read payload.

use udma_abi::{NotifyKind, OpKind, Opcode, Sqe, cmd::Mode, sqe::SqeFlags};
use urma_packet::{
    AtomicOp, AtomicOperands, Initiator, Invalidate, MemoryAccess, Notify, OperandSize, OrderTag,
    RequestFlags, RequestHeader, RequestOp, TokenId, TokenValue, WriteImm,
};

use crate::engine::direct::segment_token;
use crate::engine::word::low32;
use crate::exchange::pair;

/// Creates the header that all pieces of a request share; offset, FIRST and LAST are those of a one-piece message.
/// `None`: the entry asks nothing of a peer.
pub(crate) fn header(
    sqe: &Sqe,
    initiator: Initiator,
    mode: Mode,
    len: u32,
) -> Option<RequestHeader> {
    let op = operation(sqe, len)?;
    let token =
        if op.is_send() { sqe.token_en.then_some(sqe.token_value) } else { segment_token(sqe) };
    let access = if op.is_send() {
        MemoryAccess { address: 0, token_id: TokenId::default(), length: len }
    } else {
        MemoryAccess { address: sqe.remote_va, token_id: tid(sqe.seg_token_id), length: len }
    };
    Some(RequestHeader {
        flags: flags(sqe, mode),
        order: order(sqe.flags),
        tassn: 0,
        initiator,
        target: (sqe.target_id != 0 || op.is_two_sided()).then(|| pair::target(sqe)),
        token: token.map(TokenValue),
        access,
        op,
    })
}

fn operation(sqe: &Sqe, len: u32) -> Option<RequestOp> {
    let notify = || Notify {
        address: sqe.notify_va,
        token_id: tid(sqe.notify_token_id),
        token: TokenValue(sqe.seg_token_value),
        data: sqe.imm,
    };
    Some(match sqe.opcode.kind() {
        OpKind::Send => RequestOp::Send,
        OpKind::SendImm => RequestOp::SendImm(sqe.imm),
        OpKind::SendInvalidate => {
            let token = TokenValue(sqe.seg_token_value);
            RequestOp::SendInvalidate(Invalidate { token_id: tid(sqe.seg_token_id), token })
        }
        OpKind::Write => RequestOp::Write,
        OpKind::WriteImm => {
            let token = sqe.token_en.then_some(TokenValue(sqe.token_value));
            RequestOp::WriteImm(WriteImm { imm: sqe.imm, token })
        }
        OpKind::WriteNotify(NotifyKind::Store) => RequestOp::WriteNotify(notify()),
        OpKind::WriteNotify(NotifyKind::Add) => RequestOp::WriteAtomicAdd(notify()),
        OpKind::Read => RequestOp::Read,
        OpKind::FlushDma => RequestOp::FlushDma,
        OpKind::Atomic(_) => {
            let op = AtomicOp::from_code(sqe.opcode as u8).ok()?;
            RequestOp::Atomic(op, operands(sqe, op, len)?)
        }
        OpKind::Nop => return None,
    })
}

// An atomic has the same code in entries as on the wire.
const _: () = {
    let mut index = 0;
    while index < Opcode::ALL.len() {
        let opcode = Opcode::ALL[index];
        assert!(opcode.is_atomic() == AtomicOp::from_code(opcode as u8).is_ok());
        index += 1;
    }
};

fn operands(sqe: &Sqe, op: AtomicOp, len: u32) -> Option<AtomicOperands> {
    let (size, operand, compare) = match len {
        4 => (OperandSize::B4, u64::from(low32(sqe.operand)), u64::from(low32(sqe.compare))),
        8 => (OperandSize::B8, sqe.operand, sqe.compare),
        _ => return None,
    };
    let compare = if op == AtomicOp::CompareSwap { compare } else { 0 };
    Some(AtomicOperands { size, operand: u128::from(operand), compare: u128::from(compare) })
}

fn flags(sqe: &Sqe, mode: Mode) -> RequestFlags {
    let mut flags = RequestFlags::ONLY;
    flags.set(RequestFlags::SOLICITED, sqe.flags.contains(SqeFlags::SOLICITED));
    flags.set(RequestFlags::COMP_ORDER, sqe.flags.contains(SqeFlags::COMP_ORDER));
    flags.set(RequestFlags::FENCE, sqe.flags.contains(SqeFlags::FENCE));
    let datagram = RequestFlags::DATAGRAM | RequestFlags::NO_TAACK;
    flags.set(datagram, mode == Mode::Um);
    flags
}

fn order(flags: SqeFlags) -> OrderTag {
    if flags.contains(SqeFlags::ORDER_STRONG) {
        OrderTag::Strong
    } else if flags.contains(SqeFlags::ORDER_RELAXED) {
        OrderTag::Relaxed
    } else {
        OrderTag::None
    }
}

fn tid(token_id: u32) -> TokenId {
    TokenId::from_low_bits(token_id >> 8)
}
