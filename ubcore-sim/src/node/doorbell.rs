//! Doorbells through handles of queues and JFCs, on a node that is still alive.
//!
//! *Takes*: doorbells, and requests that are passed with one. *Gives*: them to the device; the work that is left
//! afterwards. *Must not*: reach the device of a node that is closed or forked.

use std::sync::Arc;

use nix::errno::Errno;
use udma_abi::{
    CompletionBy, DirectEntry, JfcIndex, MovedWord, NextEntry, QueueDoorbell, RepeatForm,
    SendDoorbell,
};
use urma_mem::lines::UsedLines;

use crate::{
    device::{
        Executed, FoundJfc, MovedEntry, QueueEnd, QueueEntry, QueueHandle, QueueVisit,
        SoftwareDevice, WORD_LEN, WordMove,
    },
    host::shared::SharedNode,
};

/// Doorbell of a queue or a JFC, by a handle.
#[derive(Debug)]
pub(super) struct FoundDoorbell<T> {
    pub(super) node: Arc<SharedNode>,
    pub(super) found: T,
}

impl QueueDoorbell for FoundDoorbell<QueueHandle> {
    #[inline]
    fn ring(&self, posted: SendDoorbell<'_>) {
        let Self { node, found } = self;
        if node.is_dead() {
            return;
        }
        let is_left = match posted {
            SendDoorbell::Producer(pi) => {
                node.device().ring_queue(found, || node.post_time(), pi);
                true
            }
            SendDoorbell::Direct(block) => {
                node.device().ring_direct(found, || node.post_time(), block)
            }
        };
        if is_left {
            node.after_post();
        }
    }

    #[inline]
    fn execute(&self, entry: DirectEntry<'_>) -> Option<NextEntry> {
        if self.node.is_dead() {
            return None;
        }
        match entry {
            DirectEntry::Reported(block) => self.execute_reported(block),
            DirectEntry::Known(block) => self.execute_known(block),
            DirectEntry::Atomic(blocks) => self.execute_atomic(blocks),
            DirectEntry::RepeatedAtomic(moved) => self.repeat_atomic(moved),
        }
    }

    #[inline]
    fn repeat(
        &self,
        pi: u32,
        remote_va: u64,
        local_va: u64,
        form: RepeatForm,
    ) -> Option<NextEntry> {
        if form == SILENT_WORD {
            return self.repeat_silent_word(pi, remote_va, local_va);
        }
        if form != WORD {
            return self.repeat_any(pi, remote_va, local_va, form);
        }
        if self.node.is_dead() {
            return None;
        }
        match self.found.move_word((pi, remote_va, local_va)) {
            WordMove::Done(index) => Some(NextEntry::new(index)),
            WordMove::Ending(index, end) => self.end(index, end),
            WordMove::ToLease(index, visit) => self.lease(index, visit),
            WordMove::Elsewhere(visit) => self.repeat_elsewhere(pi, remote_va, local_va, visit),
            WordMove::Held => None,
            WordMove::Taken(entry) => self.give_up(entry),
            // The callee counts it.
            WordMove::Ended => self.repeat_any(pi, remote_va, local_va, form),
        }
    }

    fn note_lines(&self, lines: &UsedLines) {
        if !self.node.is_dead() {
            self.step_if(self.found.note_lines(lines));
        }
    }
}

/// Whole entries, each kind reached by a tail call, so that none saves registers for another.
impl FoundDoorbell<QueueHandle> {
    #[inline(never)]
    fn execute_reported(&self, block: &[u64; 8]) -> Option<NextEntry> {
        let Self { node, found } = self;
        let is_left = node.device().execute(found, || node.post_time(), block)?;
        self.after(is_left)
    }

    #[inline(never)]
    fn execute_atomic(&self, blocks: &[[u64; 8]; 2]) -> Option<NextEntry> {
        let Self { node, found } = self;
        let is_left = node.device().execute_atomic(found, || node.post_time(), blocks)?;
        self.after(is_left)
    }

    #[inline(never)]
    fn execute_known(&self, block: &[u64; 8]) -> Option<NextEntry> {
        self.finish(self.node.device().execute_known(&self.found, block))
    }

    #[inline(never)]
    fn repeat_atomic(&self, moved: &MovedWord) -> Option<NextEntry> {
        self.finish(self.node.device().repeat_atomic(&self.found, moved))
    }

    /// Does the work that an entry left whose CQE the device wrote.
    #[inline(always)]
    fn after(&self, is_left: bool) -> Option<NextEntry> {
        if is_left {
            self.node.after_post();
        }
        Some(NextEntry::new(0))
    }
}

/// What is not a word of this node, and the rare cases of one, reached by tail calls with the arguments in place, so that
/// the usual case saves no registers.
impl FoundDoorbell<QueueHandle> {
    #[inline(never)]
    fn repeat_any(
        &self,
        pi: u32,
        remote_va: u64,
        local_va: u64,
        form: RepeatForm,
    ) -> Option<NextEntry> {
        if self.node.is_dead() {
            return None;
        }
        let moved = MovedEntry { pi, by: form.by(), remote_va, local_va, len: form.bytes() };
        self.finish(self.node.device().repeat(&self.found, &moved))
    }

    /// [`Self::repeat_any`] for a form that is known here.
    #[inline(never)]
    fn repeat_silent_word(&self, pi: u32, remote_va: u64, local_va: u64) -> Option<NextEntry> {
        if self.node.is_dead() {
            return None;
        }
        let place = (pi, remote_va, local_va);
        self.finish(self.node.device().repeat_silent_word(&self.found, place))
    }

    #[inline(never)]
    fn repeat_elsewhere(
        &self,
        pi: u32,
        remote_va: u64,
        local_va: u64,
        visit: QueueVisit<'_>,
    ) -> Option<NextEntry> {
        let moved = MovedEntry { pi, by: CompletionBy::Driver, remote_va, local_va, len: WORD_LEN };
        self.finish(self.node.device().repeat_in_visit(&self.found, visit, &moved))
    }

    #[cold]
    #[inline(never)]
    fn end(&self, index: u32, end: QueueEnd<'_>) -> Option<NextEntry> {
        self.step_if(end.finish());
        Some(NextEntry::new(index))
    }

    #[cold]
    #[inline(never)]
    fn lease(&self, index: u32, visit: QueueVisit<'_>) -> Option<NextEntry> {
        self.step_if(self.node.device().lease(&self.found, visit));
        Some(NextEntry::new(index))
    }

    #[cold]
    #[inline(never)]
    fn give_up(&self, entry: QueueEntry<'_>) -> Option<NextEntry> {
        self.step_if(entry.finish());
        None
    }

    /// Does what an executed request left to do; returns its index.
    #[inline(always)]
    fn finish(&self, executed: Executed) -> Option<NextEntry> {
        if executed.is_unfinished() {
            self.run_after(|device| device.finish(&self.found, || self.node.post_time(), executed));
        }
        executed.index.map(NextEntry::new)
    }

    /// Steps the queue if another thread marked it.
    fn step_if(&self, is_marked: bool) {
        if is_marked {
            self.run_after(|device| device.step_marked(&self.found, || self.node.post_time()));
        }
    }

    /// Runs the device after one of the queue's requests was executed. Restores `errno`: system calls that find nothing
    /// set it, and a successful call must not. Executing alone makes no system call.
    #[cold]
    #[inline(never)]
    fn run_after(&self, run: impl FnOnce(&SoftwareDevice)) {
        let before = Errno::last_raw();
        run(self.node.device());
        self.node.after_post();
        Errno::set_raw(before);
    }
}

impl JfcIndex for FoundDoorbell<FoundJfc> {
    #[inline]
    fn move_to(&self, ci: u32) {
        let Self { node, found } = self;
        if !node.is_dead() && node.device().consume(found, || node.post_time(), ci) {
            node.after_post();
        }
    }
}

/// 8 bytes, whose completion the driver makes.
const WORD: RepeatForm = RepeatForm::new(WORD_LEN, CompletionBy::Driver);
/// 8 bytes without a completion.
const SILENT_WORD: RepeatForm = RepeatForm::new(WORD_LEN, CompletionBy::Nobody);
