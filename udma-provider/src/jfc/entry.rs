//! Entries of a completion ring: seen, copied once, turned into completions; completions for what a failed device left.
//!
//! *Owns*: the mapping of statuses and fields. *Takes*: what the device wrote, and the queue that it names. *Gives*:
//! completions with the caller's contexts. *Must not*: trust a queue, number or index that does not match what was
//! posted.

use std::{collections::VecDeque, sync::Arc};

use udma_abi::{
    Cqe, CqeStatus, ReceivedMessage,
    cqe::{self, CQE_WORDS, INLINE_MAX, SendDone, is_received},
    rqe::record,
};
use urma_core::{
    Completion, CompletionFlags, CrOpcode, CrStatus, Eid, InlinePayload, JettyId, QueueKind,
    Status, Uasid,
};
use urma_mem::{RingBlock, barrier, sync::Ordering};

use super::{JfcCore, RingReader, SHALLOW_LOG2};
use crate::{
    is_before,
    table::{PolledQueue, QueueTable, RecvLink, SendLink},
};

/// log2 of the entries of a ring for `wanted` completions; the device supports `most`.
///
/// # Errors
/// `Invalid`: the device supports fewer.
pub(super) fn depth_log2(wanted: u32, most: u64) -> Result<u8, Status> {
    let depth = wanted.max(1).checked_next_power_of_two().filter(|_| u64::from(wanted) <= most);
    let log2 = depth.and_then(|depth| u8::try_from(depth.trailing_zeros()).ok());
    log2.ok_or_else(|| {
        Status::Invalid
            .why(format_args!("the depth of the JFC is {wanted}; the device has {most} at most"))
    })
}

/// An entry that the device has written.
#[derive(Clone, Copy)]
pub(super) struct WrittenEntry<'a> {
    block: RingBlock<'a>,
    /// Its first word, with the owner bit, loaded once.
    word0: u64,
}

impl WrittenEntry<'_> {
    /// Cookie of its queue, used for a prefetch.
    #[inline(always)]
    pub(super) fn cookie(self) -> u64 {
        let words = self.block.load::<4>();
        words[2] >> 32 | words[3] << 32
    }
}

impl JfcCore {
    /// Entry `index` and its word 0, if the device has written it.
    #[inline(always)]
    pub(super) fn written(&self, index: u32) -> Option<WrittenEntry<'_>> {
        let block = self.ring.block(index);
        let word0 = block.load_first_acquire();
        let is_written = cqe::owner_of(word0) == ((index >> self.log2) & 1 == 0);
        is_written.then_some(WrittenEntry { block, word0 })
    }

    /// Stores the completion that an entry reports. `false`: it matches no outstanding request.
    #[inline(always)]
    pub(super) fn take(
        &self,
        reader: &mut RingReader,
        of: WrittenEntry<'_>,
        out: &mut Completion,
    ) -> bool {
        barrier::from_device();
        if !SendDone::is_it(of.word0) {
            reader.is_awaited = self.log2 <= SHALLOW_LOG2;
            if is_received(of.word0) {
                return self.take_received(reader, of, out);
            }
            return self.take_rare(reader, of, out);
        }
        let mut words = of.block.load::<4>();
        // The word that was checked is the word that is used.
        words[0] = of.word0;
        let done = SendDone::decode(&words);
        let found = reader.link(self, done.user_data);
        let taken = found.and_then(|link| send_done(link, self.jfcn, &done, out));
        if taken.is_none() {
            self.on_bad(reader, done.local_id, done.entry_idx);
        }
        taken.is_some()
    }

    /// Stores the completion of a message that was received.
    #[inline]
    pub(super) fn take_received(
        &self,
        reader: &mut RingReader,
        of: WrittenEntry<'_>,
        out: &mut Completion,
    ) -> bool {
        let mut words = of.block.load::<CQE_WORDS>();
        words[0] = of.word0;
        self.take_message(reader, &ReceivedMessage::decode(&words), out)
    }

    /// Stores the completion of a message, from its entry or from the device directly.
    #[inline(always)]
    pub(super) fn take_message(
        &self,
        reader: &mut RingReader,
        message: &ReceivedMessage,
        out: &mut Completion,
    ) -> bool {
        let found = reader.link(self, message.user_data);
        let taken = found.and_then(|link| received(link, message, out));
        if taken.is_none() {
            self.on_bad(reader, message.local_id, message.entry_idx);
        }
        taken.is_some()
    }

    #[inline(never)]
    pub(super) fn take_rare(
        &self,
        reader: &mut RingReader,
        of: WrittenEntry<'_>,
        out: &mut Completion,
    ) -> bool {
        let mut words = of.block.load::<CQE_WORDS>();
        words[0] = of.word0;
        let cqe = Cqe::decode(&words);
        let found = reader.link(self, cqe.user_data);
        let Some(completion) = found.and_then(|link| completion(link, self.jfcn, &cqe)) else {
            self.on_bad(reader, cqe.local_id, cqe.entry_idx);
            return false;
        };
        *out = completion;
        true
    }

    /// Adds a queue to the reader's own table. Slots of existing queues are bounded by their number, so a forged
    /// cookie cannot make the table grow.
    #[cold]
    pub(super) fn learn(&self, reader: &mut RingReader, cookie: u64) -> Option<()> {
        let link = self.driver.queues.find(cookie)?;
        let slot = crate::table::slot_of(cookie);
        if reader.cache.len() <= slot {
            reader.cache.resize(slot + 1, None);
        }
        reader.cache[slot] = Some(link);
        Some(())
    }

    #[cold]
    pub(super) fn on_bad(&self, reader: &mut RingReader, local_id: u32, entry_idx: u16) {
        reader.bad += 1;
        let (jfcn, count) = (self.jfcn, reader.bad);
        tracing::warn!(
            jfcn,
            count,
            local_id,
            entry_idx,
            "the device completed a request that is not posted; the entry is dropped"
        );
    }
}

impl RingReader {
    /// Finds the queue with this cookie.
    #[inline]
    fn link(&mut self, core: &JfcCore, cookie: u64) -> Option<&PolledQueue> {
        let slot = crate::table::slot_of(cookie);
        let is_known = |link: &&Arc<PolledQueue>| link.cookie == cookie;
        if self.cache.get(slot).and_then(Option::as_ref).filter(is_known).is_none() {
            core.learn(self, cookie)?;
        }
        self.cache.get(slot)?.as_deref()
    }
}

/// Stores the completion of a successful send request field by field: a copy of the whole would wait for the stores
/// of its parts. `None`: `out` is unchanged.
#[inline]
fn send_done(link: &PolledQueue, jfcn: u32, done: &SendDone, out: &mut Completion) -> Option<()> {
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
fn received(link: &PolledQueue, message: &ReceivedMessage, out: &mut Completion) -> Option<()> {
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
fn completion(link: &PolledQueue, jfcn: u32, cqe: &Cqe) -> Option<Completion> {
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
pub(super) fn sweep(queues: &QueueTable, jfcn: u32, out: &mut VecDeque<Completion>) {
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
