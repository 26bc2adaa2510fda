//! Retirement in a send queue: in posting order, with at most one CQE for each request.
//!
//! *Owns*: the requests that are started and not retired, each with its reserved slot. *Takes*: completions of
//! requests. *Gives*: CQEs and the consumer index in host memory. *Must not*: lose or double a completion.

use std::collections::VecDeque;

use udma_abi::{
    Cqe, CqeStatus,
    cqe::{SendDone, SendDoneForm},
    sqe::SqeFlags,
};
use urma_mem::{RegionWord32, lines::UsedLines};

use crate::context::counts::FastCounts;
use crate::context::jfc::JfcPort;
use crate::fault::Faults;

/// A request that was started and is not retired.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Started {
    pub(crate) entry_idx: u16,
    pub(crate) blocks: u32,
    pub(crate) flags: SqeFlags,
    /// READ or atomic: a fence waits for it.
    pub(crate) fenced: bool,
    /// TPN of the path that it was handed over to; 0 for none (TPN 0 is never given).
    pub(crate) tpn: u32,
    pub(crate) end: Option<(CqeStatus, u32)>,
    /// Its CQE was written before its turn.
    pub(crate) reported: bool,
}

/// Fields that all CQEs of a queue have in common.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Identity {
    pub(crate) id: u32,
    pub(crate) is_jetty: bool,
    pub(crate) cookie: u64,
    /// CQEs may be written out of order for requests that allow it.
    pub(crate) out_of_order: bool,
}

/// Completion side of a send queue.
#[derive(Debug)]
pub(crate) struct Retire {
    who: Identity,
    /// Fields of the CQEs of successful requests.
    form: SendDoneForm,
    port: JfcPort,
    /// The consumer index in the doorbell record in host memory.
    record: RegionWord32,
    /// Number of blocks retired, free running.
    retired: u32,
    started: VecDeque<Started>,
    /// Sequence number of the front of `started`.
    front_seq: u32,
    /// A spare completion slot, which an unsignalled success left for the next request: to take one and give it back
    /// are two locked operations.
    spare: bool,
    /// Whether a spare slot may be kept: the JFC is deep.
    keeps: bool,
    /// A slot was given back that send queues wait for.
    freed: bool,
}

impl Retire {
    /// `record` is the consumer index in the queue's doorbell record.
    pub(crate) fn new(who: Identity, port: JfcPort, record: RegionWord32) -> Self {
        let started = VecDeque::with_capacity(super::mail::HANDED_OVER_MAX);
        let keeps = port.is_deep();
        let Identity { id, is_jetty, cookie, .. } = who;
        let done = SendDone { entry_idx: 0, local_id: id, tpn: 0, byte_cnt: 0, user_data: cookie };
        Self {
            who,
            form: SendDoneForm::of(&done, is_jetty),
            port,
            record,
            retired: 0,
            started,
            front_seq: 0,
            spare: false,
            keeps,
            freed: false,
        }
    }

    pub(crate) fn port(&self) -> &JfcPort {
        &self.port
    }

    /// Fields of the CQEs of successful requests.
    pub(crate) fn form(&self) -> &SendDoneForm {
        &self.form
    }

    /// Notes the word of the consumer index as value number `at`.
    pub(crate) fn note_record(&self, lines: &UsedLines, at: usize) {
        lines.note_word(at, self.record.window());
    }

    /// The word of the consumer index, if everything before `head` is retired.
    pub(crate) fn record_at(&self, head: u32) -> Option<&RegionWord32> {
        (self.retired == head).then_some(&self.record)
    }

    /// Reserves a completion slot for the next request, the spare one first; `false`: there is none.
    #[inline]
    pub(crate) fn reserve(&mut self) -> bool {
        core::mem::take(&mut self.spare) || self.port.reserve()
    }

    /// Takes over the slot of a request that ended without a CQE or was not started: keeps it as the spare, or gives
    /// it back.
    #[inline(always)]
    pub(crate) fn keep_or_give_back(&mut self) {
        if self.keeps && !self.spare {
            self.spare = true;
        } else {
            self.give_back();
        }
    }

    #[cold]
    fn give_back(&mut self) {
        self.freed |= self.port.give_back();
    }

    /// Whether a slot was given back, since the last call, that send queues wait for.
    #[inline]
    pub(crate) fn take_freed(&mut self) -> bool {
        core::mem::take(&mut self.freed)
    }

    /// Gives the spare slot back at the end of a step, when the JFC has little room and others may need it.
    #[inline]
    pub(crate) fn return_spare(&mut self) {
        if self.spare && !self.port.is_roomy() {
            self.give_spare_back();
        }
    }

    /// Gives the spare slot back: the queue starts nothing for now.
    #[cold]
    pub(crate) fn give_spare_back(&mut self) {
        if core::mem::take(&mut self.spare) {
            self.give_back();
        }
    }

    /// Whether there is no spare slot, and none was given back that [`Retire::take_freed`] has to report.
    #[inline(always)]
    pub(crate) fn is_square(&self) -> bool {
        !(self.spare | self.freed)
    }

    /// Whether a spare slot is kept that others may need, or one was given back that send queues wait for.
    #[inline(always)]
    pub(crate) fn owes_slot(&self) -> bool {
        self.freed || self.spare && !self.port.is_roomy()
    }

    /// Whether there is a spare slot, besides those of started requests.
    pub(crate) fn has_spare(&self) -> bool {
        self.spare
    }

    /// Number of blocks of the ring that are free again, free running.
    pub(crate) fn retired(&self) -> u32 {
        self.retired
    }

    #[inline]
    pub(crate) fn is_empty(&self) -> bool {
        self.started.is_empty()
    }

    /// Number of requests that are started and not retired.
    #[inline]
    pub(crate) fn started(&self) -> usize {
        self.started.len()
    }

    /// Sequence number that the next started request gets.
    pub(crate) fn next_seq(&self) -> u32 {
        let len = u32::try_from(self.started.len()).unwrap_or(u32::MAX);
        self.front_seq.wrapping_add(len)
    }

    /// Completes a request that ended where it started; takes the short path if nothing is before it.
    #[inline]
    pub(crate) fn finish(&mut self, request: Started, fast: &FastCounts, faults: Faults) {
        if self.started.is_empty() {
            self.front_seq = self.front_seq.wrapping_add(1);
            self.out(&request, fast, faults);
        } else {
            self.push(request, fast, faults);
        }
    }

    /// Retires a request of `blocks` blocks that succeeded with nothing before it, in a device without planted
    /// faults.
    #[inline(always)]
    pub(crate) fn succeed(
        &mut self,
        (entry_idx, blocks): (u16, u32),
        (flags, bytes): (SqeFlags, u32),
        fast: &FastCounts,
    ) {
        self.succeed_in_list(entry_idx, (flags, bytes), fast);
        self.retire(blocks);
    }

    /// Retires `count` successful requests of `blocks` blocks in all, with nothing before them. They have no slot:
    /// the driver makes their CQEs.
    #[inline(always)]
    pub(crate) fn count_unreported(&mut self, count: u32, blocks: u32) {
        self.front_seq = self.front_seq.wrapping_add(count);
        self.retire(blocks);
    }

    /// Completes a successful request of a list, with nothing before it; the caller retires the blocks of the whole
    /// list ([`Retire::retire`]).
    #[inline(always)]
    pub(crate) fn succeed_in_list(
        &mut self,
        entry_idx: u16,
        (flags, bytes): (SqeFlags, u32),
        fast: &FastCounts,
    ) {
        self.front_seq = self.front_seq.wrapping_add(1);
        if flags.contains(SqeFlags::COMPLETE) {
            self.report_success(entry_idx, bytes, fast);
        } else {
            self.keep_or_give_back();
        }
    }

    /// Appends a request that was handed over to the shared part.
    // Built in place: a copy from memory would wait for the stores of its parts.
    #[inline(always)]
    pub(crate) fn push_handed(&mut self, request: Started) {
        self.started.push_back(request);
    }

    /// Appends a request that ends later, or behind others.
    pub(crate) fn push(&mut self, request: Started, fast: &FastCounts, faults: Faults) {
        self.started.push_back(request);
        let last = self.started.len() - 1;
        self.report_early(last, fast, faults);
    }

    /// Completes a started request. `None`: it is not one of this queue, or was completed before.
    pub(crate) fn end(
        &mut self,
        seq: u32,
        end: (CqeStatus, u32),
        (fast, faults): (&FastCounts, Faults),
    ) -> Option<Started> {
        let index = seq.wrapping_sub(self.front_seq) as usize;
        if index == 0 {
            return self.end_front(end, (fast, faults));
        }
        let request = self.started.get_mut(index).filter(|r| r.end.is_none())?;
        request.end = Some(end);
        let copy = *request;
        self.report_early(index, fast, faults);
        self.advance(fast, faults);
        Some(copy)
    }

    /// Completes the oldest request, the usual case of [`Retire::end`].
    #[inline]
    fn end_front(
        &mut self,
        end: (CqeStatus, u32),
        (fast, faults): (&FastCounts, Faults),
    ) -> Option<Started> {
        let request = *self.started.front().filter(|r| r.end.is_none())?;
        let ended = Started { end: Some(end), ..request };
        self.started.pop_front();
        self.front_seq = self.front_seq.wrapping_add(1);
        self.out(&ended, fast, faults);
        // Requests behind it may have ended before.
        if !self.started.is_empty() {
            self.advance(fast, faults);
        }
        Some(ended)
    }

    /// Completes everything that has no completion yet.
    pub(crate) fn end_all(&mut self, status: CqeStatus, fast: &FastCounts, faults: Faults) {
        for request in self.started.iter_mut().filter(|r| r.end.is_none()) {
            request.end = Some((status, 0));
        }
        self.advance(fast, faults);
    }

    /// Whether there are started requests that a fence has to wait for.
    pub(crate) fn fence_pending(&self) -> bool {
        self.started.iter().any(|r| r.fenced && r.end.is_none())
    }

    /// Writes the last CQE of a flush or suspend, into a slot that was reserved before.
    pub(crate) fn announce(&mut self, status: CqeStatus, entry_idx: u16, fast: &FastCounts) {
        let cqe = self.entry(entry_idx, status, 0);
        self.port.complete(&cqe, true);
        fast.completion();
    }

    /// Retires from the front as far as requests are completed.
    fn advance(&mut self, fast: &FastCounts, faults: Faults) {
        while let Some(request) = self.started.front().filter(|r| r.end.is_some()).copied() {
            self.started.pop_front();
            self.front_seq = self.front_seq.wrapping_add(1);
            self.out(&request, fast, faults);
        }
    }

    fn report_early(&mut self, index: usize, fast: &FastCounts, faults: Faults) {
        let allowed = self.who.out_of_order;
        let Some(request) = self.started.get_mut(index) else { return };
        let free = allowed && !request.flags.contains(SqeFlags::COMP_ORDER);
        if free && request.end.is_some() && !request.reported {
            request.reported = true;
            let copy = *request;
            self.report(&copy, fast, faults);
        }
    }

    #[inline]
    fn out(&mut self, request: &Started, fast: &FastCounts, faults: Faults) {
        // The CQE before the index: a driver that sees the index moved but no CQE knows that none comes.
        if !request.reported {
            self.report(request, fast, faults);
        }
        self.retire(request.blocks);
    }

    /// Frees the oldest `blocks` blocks of the ring.
    #[inline(always)]
    pub(crate) fn retire(&mut self, blocks: u32) {
        self.retired = self.retired.wrapping_add(blocks);
        self.record.store_release(self.retired);
    }

    #[inline]
    fn report(&mut self, request: &Started, fast: &FastCounts, faults: Faults) {
        let (status, bytes) = match request.end.unwrap_or((CqeStatus::WrFlushErr, 0)) {
            (_, bytes) if faults.errors_hidden() => (CqeStatus::Success, bytes),
            end => end,
        };
        let failed = status != CqeStatus::Success;
        let is_reported =
            request.flags.contains(SqeFlags::COMPLETE) || faults.unsignalled_reported();
        if !failed && !is_reported {
            self.keep_or_give_back();
            return;
        }
        if failed || faults.is_planted() {
            self.report_rare(self.entry(request.entry_idx, status, bytes), fast, faults);
            return;
        }
        self.report_success(request.entry_idx, bytes, fast);
    }

    /// Writes the CQE of a request that succeeded.
    #[inline(always)]
    fn report_success(&mut self, entry_idx: u16, bytes: u32, fast: &FastCounts) {
        let form = &self.form;
        self.port.complete_with(false, |owner| form.encode(entry_idx, bytes, owner));
        fast.completion();
    }

    #[cold]
    fn report_rare(&mut self, cqe: Cqe, fast: &FastCounts, faults: Faults) {
        if faults.is_planted() && self.is_dropped(&cqe, fast, faults) {
            return;
        }
        self.port.complete(&cqe, cqe.status != CqeStatus::Success);
        fast.completion();
    }

    /// Planted faults: some CQEs are not written, or written twice.
    #[cold]
    fn is_dropped(&mut self, cqe: &Cqe, fast: &FastCounts, faults: Faults) -> bool {
        let is_hit = cqe.entry_idx % 7 == 6;
        let drops = is_hit && faults.completion_dropped();
        if drops {
            self.give_back();
        } else if is_hit && faults.completion_doubled() && self.port.reserve() {
            self.port.complete(cqe, cqe.status != CqeStatus::Success);
            fast.completion();
        }
        drops
    }

    #[inline]
    fn entry(&self, entry_idx: u16, status: CqeStatus, byte_cnt: u32) -> Cqe {
        Cqe {
            is_jetty: self.who.is_jetty,
            status,
            entry_idx,
            local_id: self.who.id,
            byte_cnt,
            user_data: self.who.cookie,
            ..Cqe::default()
        }
    }
}
