//! From a CQE to a completion, and completions for what a failed device left behind.
//!
//! *Owns*: the mapping of statuses and fields. *Takes*: one decoded CQE and the queue it names. *Gives*: a
//! completion, or nothing if the CQE does not match what was posted. *Must not*: index anything by a number from the
//! device without a check.

use std::collections::VecDeque;

use udma_abi::{
    Cqe, CqeStatus, ReceivedMessage,
    cqe::{INLINE_MAX, SendDone},
    rqe::record,
};
use urma_core::{
    Completion, CompletionFlags, CrOpcode, CrStatus, Eid, InlinePayload, JettyId, QueueKind, Uasid,
};
use urma_mem::sync::Ordering;

use crate::{
    index::is_before,
    table::{PolledQueue, QueueTable, RecvLink, SendLink},
};

/// Stores the completion of a successful send request field by field: a copy of the whole would wait for the stores
/// of its parts. `None`: `out` is unchanged.
#[inline]
pub(crate) fn send_done(
    link: &PolledQueue,
    jfcn: u32,
    done: &SendDone,
    out: &mut Completion,
) -> Option<()> {
    let send = link.send.as_ref()?;
    if done.local_id != link.id() || send.jfcn != jfcn {
        return None;
    }
    let taken = send.shadow.take(done.entry_idx)?;
    send.polled.store(taken.end, Ordering::Release);
    let is_jetty = link.kind == QueueKind::Jetty;
    let Completion {
        status,
        opcode,
        flags,
        len,
        user_ctx,
        queue_ctx,
        local_id,
        tpn,
        remote,
        imm,
        payload,
    } = out;
    *status = CrStatus::Success;
    *opcode = CrOpcode::default();
    *flags = if is_jetty { CompletionFlags::JETTY } else { CompletionFlags::empty() };
    *len = done.byte_cnt;
    *user_ctx = taken.ctx;
    *queue_ctx = link.queue_ctx;
    *local_id = done.local_id;
    *tpn = done.tpn;
    *remote = JettyId::default();
    *imm = 0;
    *payload = InlinePayload::default();
    Some(())
}

/// Stores the completion of a received message field by field. `None`: `out` is unchanged.
#[inline]
pub(crate) fn received(
    link: &PolledQueue,
    message: &ReceivedMessage,
    out: &mut Completion,
) -> Option<()> {
    if message.local_id != link.id() {
        return None;
    }
    let taken = link.recv.as_ref()?.shadow.take(message.entry_idx)?;
    let is_jetty = link.kind == QueueKind::Jetty;
    let kind = if is_jetty { CompletionFlags::JETTY } else { CompletionFlags::empty() };
    let Completion {
        status,
        opcode,
        flags,
        len,
        user_ctx,
        queue_ctx,
        local_id,
        tpn,
        remote,
        imm,
        payload,
    } = out;
    *status = CrStatus::Success;
    *opcode = CrOpcode::from_code(message.opcode);
    *flags = kind.union(CompletionFlags::RECV);
    *len = message.byte_cnt;
    *user_ctx = taken.ctx;
    *queue_ctx = link.queue_ctx;
    *local_id = message.local_id;
    *tpn = message.tpn;
    *remote = JettyId {
        eid: Eid::from_bytes(message.rmt_eid.0),
        uasid: Uasid::default(),
        id: message.remote_id,
    };
    *imm = message.imm;
    *payload = InlinePayload::default();
    Some(())
}

/// The completion that `cqe`, found in JFC `jfcn`, reports for `link`.
pub(crate) fn completion(link: &PolledQueue, jfcn: u32, cqe: &Cqe) -> Option<Completion> {
    if cqe.local_id != link.id() {
        return None;
    }
    let user_ctx = if matches!(cqe.status, CqeStatus::WrFlushErrDone | CqeStatus::WrSuspendDone) {
        // The last completion of a flush or suspend belongs to the queue, not to a request.
        0
    } else if cqe.recv {
        link.recv.as_ref()?.shadow.take(cqe.entry_idx)?.ctx
    } else {
        let send = link.send.as_ref().filter(|send| send.jfcn == jfcn)?;
        let taken = send.shadow.take(cqe.entry_idx)?;
        send.polled.store(taken.end, Ordering::Release);
        taken.ctx
    };
    let mut completion = Completion {
        status: status_of(cqe.status),
        flags: flags_of(link, cqe),
        len: cqe.byte_cnt,
        user_ctx,
        queue_ctx: link.queue_ctx,
        local_id: cqe.local_id,
        tpn: cqe.tpn,
        ..Completion::default()
    };
    if cqe.recv {
        completion.opcode = CrOpcode::from_code(cqe.opcode);
        completion.remote = JettyId {
            eid: Eid::from_bytes(cqe.rmt_eid.0),
            uasid: Uasid::default(),
            id: cqe.remote_id,
        };
        completion.imm = cqe.imm;
        if cqe.inline_en {
            let len = usize::try_from(cqe.byte_cnt).unwrap_or(INLINE_MAX);
            completion.payload = InlinePayload::new(cqe.inline, len);
        }
    }
    Some(completion)
}

/// Completions of JFC `jfcn` for everything that a failed device did not complete.
pub(crate) fn sweep(queues: &QueueTable, jfcn: u32, out: &mut VecDeque<Completion>) {
    for link in queues.all() {
        if let Some(send) = link.send.as_ref().filter(|send| send.jfcn == jfcn) {
            sweep_send(&link, send, out);
        }
        if let Some(recv) = link.recv.as_deref()
            && recv.jfcn == jfcn
            && recv.owner == link.cookie
        {
            sweep_recv(&link, recv, out);
        }
    }
}

fn sweep_send(link: &PolledQueue, send: &SendLink, out: &mut VecDeque<Completion>) {
    let end = send.pi.load(Ordering::Acquire);
    // What the device retired without a completion succeeded unsignalled.
    let retired = send.record.load_u32_acquire(record::SQ_CI).unwrap_or(0);
    let mut at = send.shadow.oldest(send.swept.load(Ordering::Relaxed), end);
    while is_before(at, end) {
        let tag = send.shadow.tag(at);
        if tag.pos() == at
            && let Some(taken) = send.shadow.take_at(at)
            && !is_before(at, retired)
        {
            out.push_back(flushed(link, CompletionFlags::empty(), taken.ctx));
        }
        at = at.wrapping_add(if tag.pos() == at { tag.blocks().max(1) } else { 1 });
    }
    send.swept.store(at, Ordering::Relaxed);
}

fn sweep_recv(link: &PolledQueue, recv: &RecvLink, out: &mut VecDeque<Completion>) {
    let end = recv.pi.load(Ordering::Acquire);
    let mut at = recv.shadow.oldest(recv.swept.load(Ordering::Relaxed), end);
    while is_before(at, end) {
        if let Some(taken) = recv.shadow.take_at(at) {
            out.push_back(flushed(link, CompletionFlags::RECV, taken.ctx));
        }
        at = at.wrapping_add(1);
    }
    recv.swept.store(at, Ordering::Relaxed);
}

fn flushed(link: &PolledQueue, flags: CompletionFlags, user_ctx: u64) -> Completion {
    let jetty = if link.kind == QueueKind::Jetty { CompletionFlags::JETTY } else { flags };
    Completion {
        status: CrStatus::WrFlush,
        flags: flags | jetty,
        user_ctx,
        queue_ctx: link.queue_ctx,
        local_id: link.id(),
        ..Completion::default()
    }
}

#[inline]
fn flags_of(link: &PolledQueue, cqe: &Cqe) -> CompletionFlags {
    let mut flags = CompletionFlags::empty();
    flags.set(CompletionFlags::RECV, cqe.recv);
    flags.set(CompletionFlags::JETTY, link.kind == QueueKind::Jetty);
    flags.set(CompletionFlags::SUSPEND_DONE, cqe.status == CqeStatus::WrSuspendDone);
    flags.set(CompletionFlags::FLUSH_ERR_DONE, cqe.status == CqeStatus::WrFlushErrDone);
    flags
}

#[inline]
fn status_of(status: CqeStatus) -> CrStatus {
    match status {
        CqeStatus::Success => CrStatus::Success,
        CqeStatus::UnsupportedOpcode => CrStatus::UnsupportedOpcode,
        CqeStatus::LocLen => CrStatus::LocLen,
        CqeStatus::LocAccess => CrStatus::LocAccess,
        CqeStatus::RemRespLen => CrStatus::RemRespLen,
        CqeStatus::LocDataPoison => CrStatus::LocDataPoison,
        CqeStatus::LocOperation => CrStatus::LocOperation,
        CqeStatus::RemUnsupportedReq => CrStatus::RemUnsupportedReq,
        CqeStatus::RemAccessAbort => CrStatus::RemAccessAbort,
        CqeStatus::RemOperation => CrStatus::RemOperation,
        CqeStatus::RemDataPoison => CrStatus::RemDataPoison,
        CqeStatus::RnrRetryExceeded => CrStatus::RnrRetryExceeded,
        CqeStatus::AckTimeout => CrStatus::AckTimeout,
        CqeStatus::WrFlushErr => CrStatus::WrFlush,
        CqeStatus::WrFlushErrDone => CrStatus::WrFlushDone,
        CqeStatus::WrSuspendDone => CrStatus::WrSuspendDone,
        CqeStatus::WrUnhandled => CrStatus::WrUnhandled,
        // Codes of the device overlap with statuses of another meaning: mark them by the top bit.
        CqeStatus::Unknown { status, .. } => CrStatus::Unknown(status | 0x80),
    }
}
