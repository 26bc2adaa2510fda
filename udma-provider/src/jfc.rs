//! JFC: the completion ring, polled by owner bits; and JFCE: the channel on which completion events arrive.
//!
//! Each CQE is copied once. Must not allocate or wait in a poll, or trust a queue, number or index in a CQE that
//! does not match what was posted (it is counted and dropped).

pub(crate) mod contention;
mod entry;
mod poll;

use std::{
    collections::{BTreeMap, VecDeque},
    os::fd::BorrowedFd,
    sync::{Arc, Mutex, Weak},
    time::Duration,
};

use poll::PollHalf;
use udma_abi::{
    cmd::{self, Command},
    cqe::CQE_LEN,
};
use urma_core::{
    Completion, CompletionFlags, CrStatus, JfcCfg, JfcFlags, Status,
    ops::{JfcControl, JfcParts, JfceControl},
};
use urma_mem::{
    Blocks, Serial,
    sync::{AtomicBool, AtomicU32, Ordering},
};

use crate::{
    alloc::{DmaBuf, lock},
    channel::Channel,
    device::Driver,
    doorbell::CqDoorbell,
    is_before,
    local_completion::{LocalCompletionRing, LocalCompletionWriter},
    table::PolledQueue,
};

/// The JFCs of a device by number.
#[derive(Debug, Default)]
pub(crate) struct JfcTable(Mutex<BTreeMap<u32, Weak<JfcCore>>>);

impl JfcTable {
    /// Finds the JFC with this number.
    ///
    /// # Errors
    /// `Invalid`: there is none.
    pub(crate) fn find(&self, jfcn: u32) -> Result<Arc<JfcCore>, Status> {
        let found = lock(&self.0).get(&jfcn).and_then(Weak::upgrade);
        found.ok_or_else(|| {
            Status::Invalid.why(format_args!("JFC {jfcn} is none of this device, or was deleted"))
        })
    }

    pub(crate) fn contains(&self, jfcn: u32) -> bool {
        lock(&self.0).contains_key(&jfcn)
    }
}

/// State shared by the poll half, the control part and the queues of a JFC.
#[derive(Debug)]
pub(crate) struct JfcCore {
    driver: Arc<Driver>,
    table: Arc<JfcTable>,
    jfcn: u32,
    log2: u8,
    memory: Arc<DmaBuf>,
    ring: Blocks,
    /// Entries that may be consumed before the index is written to the device.
    lag_max: u32,
    doorbell: CqDoorbell,
    channel: Option<Arc<Channel>>,
    reader: Serial<RingReader>,
    /// Completions that are not in the ring.
    local_completions: LocalCompletionRing,
    /// Mirror of the reader's consumer index, for posters and for checks without the reader.
    ci: AtomicU32,
    /// Index of the oldest entry that no poll got, for checks without the reader.
    next: AtomicU32,
    /// Whether the reader may have completions in its stash.
    has_stash: AtomicBool,
    /// Mirror of the index that was last written to the device, for posters.
    rung: AtomicU32,
}

/// The reading end of the ring.
///
/// It is in a [`Serial`]: in practice the poll half owns it, and flush and delete visit it from other threads. A poll
/// that finds it held returns empty instead of waiting.
#[derive(Debug, Default)]
struct RingReader {
    ci: u32,
    /// Consumer index that was last written to the device.
    rung: u32,
    arm_sn: u8,
    /// Whether something other than a successful request was taken: peers may wait for its entry in a shallow ring.
    is_awaited: bool,
    /// Stash: completions read from the ring that wait for a poll, oldest first, with the index of their entry.
    stash: VecDeque<(u32, Completion)>,
    /// Cache of queues by slot, so that a poll locks nothing.
    cache: Vec<Option<Arc<PolledQueue>>>,
    /// Slot of the queue whose memory was prefetched last.
    asked: usize,
    polls: u32,
    /// The next poll has to let the device work first.
    owes_progress: bool,
    bad: u64,
}

impl JfcCore {
    /// Creates a JFC.
    ///
    /// # Errors
    /// `NoMemory`, `NoDevice`, or the device's answer.
    pub(crate) fn create(
        driver: &Arc<Driver>,
        table: &Arc<JfcTable>,
        cfg: &JfcCfg,
        channel: Option<Arc<Channel>>,
    ) -> Result<JfcParts, Status> {
        let log2 = entry::depth_log2(cfg.depth, driver.caps.max_jfc_depth)?;
        let memory = Arc::new(driver.dma.alloc(CQE_LEN << log2)?);
        let ring = Blocks::new(memory.region().clone(), u32::from(log2));
        let ring = ring.map_err(|_| Status::NoMemory)?;
        let results = driver.execute(&Command::CreateJfc {
            base: memory.iova(),
            depth_log2: log2,
            eqn: channel.as_ref().map_or(cmd::NONE, |channel| channel.eqn()),
            inline: cfg.flags.contains(JfcFlags::INLINE),
        });
        let results = results.inspect_err(|error| driver.keep_if_failed(&memory, *error))?;
        let jfcn = u32::try_from(results[0]).map_err(|_| Status::Fail)?;
        let core = Arc::new(Self {
            driver: Arc::clone(driver),
            table: Arc::clone(table),
            jfcn,
            log2,
            ring,
            lag_max: ((1 << log2) / LAG_SHARE).max(1),
            memory,
            doorbell: CqDoorbell::new(Arc::clone(&driver.regs), jfcn),
            channel,
            reader: Serial::new(RingReader::default()),
            local_completions: LocalCompletionRing::default(),
            ci: AtomicU32::new(0),
            next: AtomicU32::new(0),
            has_stash: AtomicBool::new(false),
            rung: AtomicU32::new(0),
        });
        lock(&table.0).insert(jfcn, Arc::downgrade(&core));
        let control =
            Arc::new(UdmaJfcControl { core: Arc::clone(&core), deleted: AtomicBool::new(false) });
        Ok(JfcParts { id: jfcn, control, queue: Box::new(PollHalf::new(core)) })
    }

    /// Returns the number of the JFC on its device.
    pub(crate) fn jfcn(&self) -> u32 {
        self.jfcn
    }

    /// Completions that are not in the ring.
    #[inline(always)]
    pub(crate) fn local_completions(&self) -> &LocalCompletionRing {
        &self.local_completions
    }

    /// Makes the queue the one that passes on completions besides the ring. Not for a JFC with events, since the
    /// device raises an event only for what it reports.
    #[cold]
    pub(crate) fn claim_local(&self, link: &PolledQueue) -> Option<LocalCompletionWriter> {
        if self.channel.is_some() {
            return None;
        }
        self.local_completions.claim(link, 1 << self.log2)
    }

    /// Index of the oldest entry that no poll got.
    #[inline(always)]
    fn next_index(&self) -> u32 {
        self.next.load(Ordering::Acquire)
    }

    /// Consumer index as of the last poll.
    #[inline]
    pub(crate) fn consumed(&self) -> u32 {
        self.ci.load(Ordering::Acquire)
    }

    /// Shows the device all room in a shallow ring, before a doorbell of a queue that completes here: the program may
    /// wait for the request in memory, and not poll again.
    #[inline]
    pub(crate) fn show_room(&self) {
        let is_behind = self.ci.load(Ordering::Relaxed) != self.rung.load(Ordering::Relaxed);
        if is_behind && self.log2 <= SHALLOW_LOG2 {
            self.show_room_now();
        }
    }

    /// If a poll runs meanwhile, that one or the next writes the index instead.
    #[inline(never)]
    fn show_room_now(&self) {
        let _ = self.reader.try_with(|reader| self.ring(reader));
    }

    /// Lets a software device make a step; hardware ignores it.
    pub(crate) fn let_device_work(&self) {
        self.driver.backing.progress();
    }

    /// Index after the last entry that the device has written by now. `None`: pollers moved faster than the entries
    /// were read.
    pub(crate) fn produced(&self) -> Option<u32> {
        for _ in 0..PRODUCED_TRIES {
            let start = self.consumed();
            let fresh = (0..1u32 << self.log2)
                .take_while(|n| self.written(start.wrapping_add(*n)).is_some())
                .count();
            let end = start.wrapping_add(u32::try_from(fresh).ok()?);
            // If a poll went past `end`, the entry there may be of the next pass over the ring and hide others.
            if !is_before(end, self.consumed()) {
                return Some(end);
            }
        }
        None
    }

    /// Moves every completion from the ring to the stash, for clean-up. Gives up if a poll of another thread is
    /// running. Returns whether the device has more room now.
    pub(crate) fn drain(&self) -> bool {
        let visit = self.reader.try_with(|reader| {
            let before = reader.ci;
            self.drain_into_stash(reader);
            reader.ci != before
        });
        visit.is_some_and(|visit| visit.value)
    }

    /// After a device failure: stashes what the device wrote, then completions for the rest.
    pub(crate) fn sweep(&self) {
        let _ = self.reader.with_blocking(|reader| {
            self.drain_into_stash(reader);
            self.sweep_into_stash(reader);
            self.publish_stash(reader);
        });
    }

    /// The last drain for a queue that is gone: also drops the reader's cache entry of it.
    pub(crate) fn forget(&self, link: &PolledQueue) {
        let _ = self.reader.with_blocking(|reader| {
            self.drain_into_stash(reader);
            if let Some(slot) = reader.cache.get_mut(crate::table::slot_of(link.cookie)) {
                *slot = None;
            }
        });
    }

    /// Moves up to `out.len()` completions of flushed requests of queue `id` to `out`, in order; `recv` selects the
    /// receive half. A completion of that half which is not a flush stays for polls, and so does what follows it.
    pub(crate) fn take_flushed(&self, id: u32, recv: bool, out: &mut [Completion]) -> usize {
        // What ended before has to be polled first.
        if !recv && self.local_completions.has_of(id) {
            return 0;
        }
        let visit = self.reader.with_blocking(|reader| {
            self.drain_into_stash(reader);
            let (mut taken, mut is_open) = (0, true);
            reader.stash.retain(|(_, completion)| {
                let is_recv = completion.flags.contains(CompletionFlags::RECV);
                if completion.local_id != id || is_recv != recv || !is_open {
                    return true;
                }
                let is_flush =
                    matches!(completion.status, CrStatus::WrFlush | CrStatus::WrFlushDone);
                is_open = is_flush && taken < out.len();
                if is_open {
                    out[taken] = *completion;
                    taken += 1;
                }
                !is_open
            });
            self.publish_stash(reader);
            taken
        });
        visit.value
    }

    /// Stashes completions for what a failed device did not complete.
    fn sweep_into_stash(&self, reader: &mut RingReader) {
        let mut swept = VecDeque::new();
        entry::sweep(&self.driver.queues, self.jfcn, &mut swept);
        let ci = reader.ci;
        reader.stash.extend(swept.into_iter().map(|completion| (ci, completion)));
    }

    fn drain_into_stash(&self, reader: &mut RingReader) {
        for _ in 0..1u32 << self.log2 {
            let Some(entry) = self.written(reader.ci) else { break };
            let mut completion = Completion::default();
            let is_fit = self.take(reader, entry, &mut completion);
            if is_fit {
                reader.stash.push_back((reader.ci, completion));
            }
            reader.ci = reader.ci.wrapping_add(1);
        }
        self.publish_stash(reader);
        self.publish(reader);
        self.ring(reader);
    }

    /// Before [`JfcCore::publish`] if both change: a check that sees that index also sees the stash.
    #[inline]
    fn publish_stash(&self, reader: &RingReader) {
        self.has_stash.store(!reader.stash.is_empty(), Ordering::Release);
        let next = reader.stash.front().map_or(reader.ci, |(index, _)| *index);
        self.next.store(next, Ordering::Release);
    }

    #[inline]
    fn publish(&self, reader: &RingReader) {
        self.ci.store(reader.ci, Ordering::Release);
    }

    #[inline]
    fn note_rung(&self, reader: &mut RingReader) {
        (reader.rung, reader.is_awaited) = (reader.ci, false);
        self.rung.store(reader.ci, Ordering::Relaxed);
    }

    #[inline]
    fn ring(&self, reader: &mut RingReader) {
        if reader.ci != reader.rung {
            self.note_rung(reader);
            self.doorbell.consume(reader.ci, reader.arm_sn, &self.driver.failed);
        }
    }
}

/// Control part of a JFC: arms and modifies it.
#[derive(Debug)]
struct UdmaJfcControl {
    core: Arc<JfcCore>,
    deleted: AtomicBool,
}

impl JfcControl for UdmaJfcControl {
    fn moderate(&self, count: u16, period_us: u16) -> Result<(), Status> {
        let jfcn = self.core.jfcn;
        self.core.driver.execute(&Command::ModifyJfc { jfcn, count, period_us }).map(|_| ())
    }

    fn delete(&self) -> Result<(), Status> {
        if self.deleted.swap(true, Ordering::AcqRel) {
            return Err(
                Status::Invalid.why(format_args!("JFC {} was deleted before", self.core.jfcn))
            );
        }
        let core = &self.core;
        match core.driver.execute(&Command::DestroyJfc { jfcn: core.jfcn }) {
            Ok(_) => {}
            // A device that does not answer may still write: the ring is kept until its reset.
            Err(error) if error == Status::NoDevice => core.driver.keep(Arc::clone(&core.memory)),
            Err(refused) => {
                self.deleted.store(false, Ordering::Release);
                return Err(refused);
            }
        }
        lock(&core.table.0).remove(&core.jfcn);
        Ok(())
    }
}

impl Drop for UdmaJfcControl {
    fn drop(&mut self) {
        if !*self.deleted.get_mut()
            && let Err(error) = self.delete()
        {
            tracing::debug!(%error, jfcn = self.core.jfcn, "a dropped JFC could not be deleted");
        }
    }
}

/// Number of empty polls after which one also reads the status register.
pub(crate) const POLLS_PER_STATUS: u32 = 4096;
/// One of so many parts of a ring may be consumed without a write of the index.
const LAG_SHARE: u32 = 16;
/// Rings of at most 256 entries: a request may want each of them.
const SHALLOW_LOG2: u8 = 8;
const PRODUCED_TRIES: u32 = 4;

/// The control part of a channel that the caller holds.
#[derive(Debug)]
pub(crate) struct ProviderJfce {
    /// Event queue on which the events of the channel's JFCs arrive.
    pub(crate) channel: Arc<Channel>,
    jfcs: Arc<JfcTable>,
}

impl ProviderJfce {
    pub(crate) fn new(channel: Channel, jfcs: &Arc<JfcTable>) -> Self {
        Self { channel: Arc::new(channel), jfcs: Arc::clone(jfcs) }
    }
}

impl JfceControl for ProviderJfce {
    fn fd(&self) -> BorrowedFd<'_> {
        self.channel.fd()
    }

    fn wait(&self, out: &mut [u32], timeout: Option<Duration>) -> Result<usize, Status> {
        self.channel.wait(out, timeout, |jfcn| self.jfcs.contains(jfcn))
    }

    fn delete(&self) -> Result<(), Status> {
        self.channel.delete()
    }
}
