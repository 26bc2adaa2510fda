//! Completions as the records of C programs.
#![expect(unsafe_code, reason = "one of them is written as urma-core has it")]

use urma_core::{Completion, CrOpcode, ops::DoneRecord};

use super::name::jetty_id_out;
use crate::{abi::*, call::Recorded};

#[inline(always)]
pub(crate) fn record(from: &Completion) -> urma_cr_t {
    let is_plain = from.status.is_success() && from.opcode == CrOpcode::Send;
    let plain = (0, 0, urma_cr_u { imm_data: from.imm });
    let (status, opcode, u) = if is_plain { plain } else { rare(from) };
    urma_cr_t {
        status,
        user_ctx: from.user_ctx,
        opcode,
        flag: urma_cr_flag_t { value: from.flags.bits() },
        completion_len: from.len,
        local_id: from.local_id,
        remote_id: jetty_id_out(from.remote),
        u,
        tpn: from.tpn,
        user_data: usize::try_from(from.queue_ctx).unwrap_or(0),
    }
}

/// Status, opcode and the data of that opcode, of a completion that is not a plain success.
#[inline(never)]
fn rare(from: &Completion) -> (u32, u32, urma_cr_u) {
    (u32::from(from.status.code()), u32::from(from.opcode.code()), immediate(from))
}

fn immediate(from: &Completion) -> urma_cr_u {
    if from.opcode != CrOpcode::SendInvalidate {
        return urma_cr_u { imm_data: from.imm };
    }
    match from.invalidated() {
        Some((id, token)) => urma_cr_u {
            invalid_token: urma_cr_token_t {
                token_id: id.value(),
                token_value: urma_token_t { token: token.value() },
            },
        },
        None => urma_cr_u { imm_data: 0 },
    }
}

// SAFETY: any bytes are its integers; that it has the members of the other one is checked below.
unsafe impl Recorded for urma_cr_t {
    type Record = DoneRecord;
}

/// Each member of the record of a finished request is where `urma_cr_t` has its own.
const _: () = {
    use core::mem::offset_of;
    assert!(offset_of!(DoneRecord, status) == offset_of!(urma_cr_t, status));
    assert!(offset_of!(DoneRecord, user_ctx) == offset_of!(urma_cr_t, user_ctx));
    assert!(offset_of!(DoneRecord, opcode) == offset_of!(urma_cr_t, opcode));
    assert!(offset_of!(DoneRecord, flags) == offset_of!(urma_cr_t, flag));
    assert!(offset_of!(DoneRecord, len) == offset_of!(urma_cr_t, completion_len));
    assert!(offset_of!(DoneRecord, local_id) == offset_of!(urma_cr_t, local_id));
    assert!(offset_of!(DoneRecord, rest) == offset_of!(urma_cr_t, remote_id));
    assert!(offset_of!(DoneRecord, queue_ctx) == offset_of!(urma_cr_t, user_data));
    assert!(cfg!(target_endian = "little"), "status and flags are the low bytes of wider members");
};
