//! Completions as the records of C programs.

use urma_core::{Completion, CrOpcode, JettyId, ops::CompletingQueue};

use super::name::jetty_id_out;
use crate::abi::*;

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

/// The record of a successful send request.
#[inline(always)]
pub(crate) fn record_of_sent(from: &CompletingQueue, user_ctx: u64, len: u32) -> urma_cr_t {
    urma_cr_t {
        status: 0,
        user_ctx,
        opcode: 0,
        flag: urma_cr_flag_t { value: from.flags.bits() },
        completion_len: len,
        local_id: from.local_id,
        remote_id: jetty_id_out(JettyId::default()),
        u: urma_cr_u { imm_data: 0 },
        tpn: 0,
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
