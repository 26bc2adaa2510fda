//! Entries of a completion ring: seen, copied once, turned into completions.
//!
//! *Owns*: nothing. *Takes*: what the device wrote. *Gives*: completions with the caller's contexts. *Must not*:
//! trust a queue, number or index that does not match what was posted.

use std::sync::Arc;

use udma_abi::{
    Cqe, ReceivedMessage,
    cqe::{self, CQE_WORDS, SendDone, is_received},
};
use urma_core::{Completion, Status};
use urma_mem::{RingBlock, barrier};

use super::{JfcCore, RingReader, SHALLOW_LOG2};
use crate::{resolve, table::PolledQueue};

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
        let taken = found.and_then(|link| resolve::send_done(link, self.jfcn, &done, out));
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
        let taken = found.and_then(|link| resolve::received(link, message, out));
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
        let Some(completion) = found.and_then(|link| resolve::completion(link, self.jfcn, &cqe))
        else {
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
