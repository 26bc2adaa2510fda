//! How a driver reaches a device: registers, DMA space, interrupts, and doorbells found once.
//!
//! One conformance suite runs over every implementation: a device in this process, vfio-user, the kernel's
//! VFIO. Methods with a default are for devices in the driver's own process; hardware has none of them.

use std::{
    num::NonZeroU64,
    os::fd::{BorrowedFd, OwnedFd},
    sync::Arc,
    time::Duration,
};

use urma_mem::{Region, doorbells::DoorbellSlots, idle::IdleSnapshot, lines::UsedLines};

use crate::{MovedWord, Nanos, ReceivedMessage, doorbell::JfcDoorbell};

/// Vendor id by which the UDMA driver recognises its devices, together with [`DEVICE_ID`].
pub const VENDOR_ID: u16 = 0xCC08;
/// Device id of this contract.
pub const DEVICE_ID: u16 = 0xA001;

/// Names and numbers of the device; drivers are matched by these.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct DeviceInfo {
    /// Device name, such as `udma0`.
    pub name: String,
    /// Name of the driver that the device wants, or empty.
    pub driver_name: String,
    /// PCI vendor id; drivers match it together with `device_id`.
    pub vendor_id: u16,
    /// PCI device id; drivers match it together with `vendor_id`.
    pub device_id: u16,
}

/// Device that a driver reaches through this backing.
pub trait DeviceBacking: Send + Sync + std::fmt::Debug {
    /// Returns name, wanted driver and PCI ids of the device.
    fn info(&self) -> DeviceInfo;

    /// Its register region (BAR 0).
    fn registers(&self) -> Arc<dyn RegisterRegion>;

    /// Its view of host memory.
    fn dma(&self) -> Arc<dyn DmaSpace>;

    /// A descriptor that the device signals (eventfd in semaphore mode: +1 for each raise of
    /// `vector`). Each call returns a duplicate of the same eventfd.
    ///
    /// # Errors
    /// No such vector, or the process is out of descriptors.
    fn interrupt(&self, vector: u16) -> Result<OwnedFd, BackingError>;

    /// Function-level reset: every object of the device is gone when it returns.
    ///
    /// # Errors
    /// The device did not come back.
    fn reset(&self) -> Result<(), BackingError>;

    /// The clock of this device's world: real, or virtual in simulation.
    fn now(&self) -> Nanos;

    /// Called by a driver that waits or polls: a software device makes one bounded step; hardware
    /// ignores it. In simulation this also advances virtual time.
    fn progress(&self);

    /// Like [`DeviceBacking::progress`], for a poll that found nothing. The device may fill the snapshot `idle`: while that
    /// holds, polls that find nothing may skip this call and the registers.
    fn progress_to_idle(&self, idle: &mut IdleSnapshot) {
        idle.end();
        self.progress();
    }

    /// Gives the processor to other threads, because the caller polls in vain. A simulation, whose time stands still
    /// meanwhile, does nothing.
    fn give_way(&self, how: GiveWay) {
        how.give();
    }

    /// Takes the ring entry that ended a poller's idle snapshot, if it is one message and nothing else. Its completions are
    /// then in their rings, or that of its receive is in `poll`. `false`: call [`DeviceBacking::progress_to_idle`]; what is
    /// in `poll` counts all the same.
    fn take_entry(&self, poll: &mut PollOfOne) -> bool {
        let _ = poll;
        false
    }

    /// Whether two interrupts of a vector may arrive as one, as messages of PCI devices do. Else each is one count of its
    /// descriptor, which comes behind what it announces.
    fn merges_interrupts(&self) -> bool {
        false
    }

    /// Readable when peers ask a software device to make progress while no thread polls. A thread that
    /// waits for an event may wait for it too, and call [`DeviceBacking::answer_wakeup`]: it is woken
    /// once then, not after the device's own thread. `None`: the device needs no thread.
    fn wakeup(&self) -> Option<BorrowedFd<'_>> {
        None
    }

    /// Clears [`DeviceBacking::wakeup`], and makes progress.
    fn answer_wakeup(&self) {}

    /// Value of the register [`crate::regs::STATUS`] without a register access; all ones if the device is gone. `None`:
    /// read the register.
    fn status(&self) -> Option<u64> {
        None
    }

    /// Slots of the device's doorbell memory ([`crate::slots`]), the same ones in each call. `None`: it has registers only.
    fn doorbell_slots(&self) -> Option<Arc<DoorbellSlots>> {
        None
    }
}

/// How a thread gives its processor to others.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum GiveWay {
    /// To those that wait for it now.
    Yield,
    /// Yields once to see whether any wait for it; does nothing where the device's polls make no call.
    Probe,
    /// Waits in the kernel for some 100 us at the longest, or for what the next poll would find.
    Wait,
}

impl GiveWay {
    /// Gives the processor of this thread to others.
    #[expect(clippy::disallowed_methods, reason = "the event is that another thread has run")]
    pub fn give(self) {
        match self {
            Self::Yield | Self::Probe => std::thread::yield_now(),
            Self::Wait => std::thread::sleep(GIVE_WAY),
        }
    }
}

/// Time that a thread which gives way sleeps: the kernel adds some 50 us.
const GIVE_WAY: Duration = Duration::from_micros(20);

/// A poll that the device may hand one completion to, without writing a CQE.
#[derive(Debug, Default)]
pub struct PollOfOne {
    /// The JFC and its next entry (free running), before which all are consumed. `None`: the poll takes CQEs only.
    pub of: Option<(u32, u32)>,
    /// The completion of a receive in that JFC, handed over instead of a CQE.
    pub given: Option<ReceivedMessage>,
}

/// A window of device registers. Offsets are bytes; accesses are naturally aligned.
///
/// Reads and writes outside the window are answered (all ones; dropped) and counted by the device.
pub trait RegisterRegion: Send + Sync + std::fmt::Debug {
    /// Returns the length of the window in bytes.
    fn len(&self) -> u64;

    /// Whether the window is empty.
    fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// 64-bit read (32-bit registers are read through their low half).
    fn read(&self, offset: u64) -> u64;

    /// Writes 32 bits at a multiple of 4.
    fn write32(&self, offset: u64, value: u32);

    /// Writes 64 bits at a multiple of 8.
    fn write64(&self, offset: u64, value: u64);

    /// 64 bytes at once (direct WQE).
    fn write_block(&self, offset: u64, words: &[u64; 8]);

    /// Hint that part of the window will be used, so that a device in this process may map its pages in advance.
    fn prepare(&self, offset: u64, len: u64) {
        let _ = (offset, len);
    }

    /// Doorbells of the send queue that has this number now, if the device has a faster way to them than registers.
    fn queue_doorbell(&self, id: u32) -> Option<Box<dyn QueueDoorbell>> {
        let _ = id;
        None
    }

    /// Doorbell of the JFC that has this number now, if the device has a faster way to it than registers.
    fn jfc_index(&self, jfcn: u32) -> Option<Box<dyn JfcIndex>> {
        let _ = jfcn;
        None
    }

    /// The memory behind part of the window, where the device allows mapping it.
    fn map(&self, offset: u64, len: u64) -> Option<Region> {
        let _ = (offset, len);
        None
    }
}

/// Doorbells of one send queue: they do what writes to its doorbell page do, with the same checks, without the search for
/// the queue. A device in this process may execute a request within the call; its entry is then never in the ring.
///
/// Only the posting thread uses them. They belong to the queue that had the number when they were found. After its end
/// they are counted and dropped, even if another queue has the number.
pub trait QueueDoorbell: Send + std::fmt::Debug {
    /// Does what a register write does.
    fn ring(&self, posted: SendDoorbell<'_>);

    /// Executes a whole entry that is not stored in the ring, if the device can do so at once. `None`: nothing happened;
    /// store the entry and ring. Else the index of the next CQE of the JFC where the driver makes the completion (those
    /// before it belong to earlier requests), and any index where the device wrote the CQE.
    fn execute(&self, entry: DirectEntry<'_>) -> Option<NextEntry> {
        let _ = entry;
        None
    }

    /// Executes the request at position `pi` (free running), which differs from the last [`DirectEntry::Reported`] or
    /// [`DirectEntry::Known`] that was executed only by addresses and `form`. Results as in [`QueueDoorbell::execute`].
    /// Refused once the queue ended, left READY or was bound anew.
    fn repeat(
        &self,
        pi: u32,
        remote_va: u64,
        local_va: u64,
        form: RepeatForm,
    ) -> Option<NextEntry> {
        let _ = (pi, remote_va, local_va, form);
        None
    }

    /// Records in `lines` the cache lines that executing a request touches, except those with value 0.
    fn note_lines(&self, lines: &UsedLines) {
        let _ = lines;
    }
}

/// A write to the doorbell page of a send queue.
#[derive(Clone, Copy, Debug)]
pub enum SendDoorbell<'a> {
    /// The 32-bit write to [`crate::doorbell::SQ_PI`]: everything before this block (free running) is posted.
    Producer(u32),
    /// The 64-byte write to [`crate::doorbell::DWQE`]: this block, which is in the ring too, is posted.
    Direct(&'a [u64; 8]),
}

/// An entry that is passed to be executed at once.
#[derive(Clone, Copy, Debug)]
pub enum DirectEntry<'a> {
    /// A request of one block; the device writes its CQE.
    Reported(&'a [u64; 8]),
    /// A signalled WRITE or READ like any that was executed before, which becomes the last one; the driver makes its
    /// completion. Only for a JFC without events.
    Known(&'a [u64; 8]),
    /// An atomic, of two blocks; the device writes its CQE.
    Atomic(&'a [[u64; 8]; 2]),
    /// An atomic like the last one that was executed; the driver makes its completion. If it was done in memory that was
    /// withdrawn meanwhile, the device does not repeat it and ends it with an error. If refused, it has to be posted at
    /// this position.
    RepeatedAtomic(&'a MovedWord),
}

/// Who makes the completion of an executed WRITE or READ.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u32)]
pub enum CompletionBy {
    /// The driver: the device takes no CQE slot and writes no CQE. Only for a JFC without events.
    Driver = 0,
    /// The device, by a CQE.
    Device = 1,
    /// It is unsignalled and has none.
    Nobody = 2,
}

/// Length of a repeated WRITE or READ and who makes its completion, in one word: the usual form is found by one
/// comparison.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct RepeatForm(u64);

impl RepeatForm {
    /// A form of `len` bytes.
    #[inline(always)]
    #[must_use]
    pub const fn new(len: u32, by: CompletionBy) -> Self {
        Self((by as u64) << 32 | len as u64)
    }

    /// The length in bytes.
    #[inline(always)]
    #[must_use]
    #[expect(clippy::cast_possible_truncation, reason = "the low half is meant")]
    pub const fn bytes(self) -> u32 {
        self.0 as u32
    }

    /// Who makes the completion.
    #[inline(always)]
    #[must_use]
    pub const fn by(self) -> CompletionBy {
        match self.0 >> 32 {
            0 => CompletionBy::Driver,
            1 => CompletionBy::Device,
            _ => CompletionBy::Nobody,
        }
    }
}

/// Index (free running) of the next CQE of a JFC; `Option` of it is one word.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct NextEntry(NonZeroU64);

impl NextEntry {
    /// Bit above the index, so that the word is never 0.
    const IS_THERE: NonZeroU64 = NonZeroU64::new(1 << 32).expect("a bit");

    /// The entry with this index.
    #[inline(always)]
    #[must_use]
    pub fn new(index: u32) -> Self {
        Self(Self::IS_THERE | u64::from(index))
    }

    /// The index in the high half of a word, whose low half is 0.
    #[inline(always)]
    #[must_use]
    pub const fn high(self) -> u64 {
        self.0.get() << 32
    }
}

/// Doorbell of one JFC: does what a write to the register does, with the same checks, without the search for the JFC.
///
/// It belongs to the JFC that had the number when it was found.
pub trait JfcIndex: Send + Sync + std::fmt::Debug {
    /// Everything before entry `ci` is consumed; 24 bits count.
    fn move_to(&self, ci: u32);

    /// Does what a write of `doorbell`, which arms, does. `false`: nothing happened; write the register.
    fn arm(&self, doorbell: JfcDoorbell) -> bool {
        let _ = doorbell;
        false
    }
}

/// What the device may do with mapped memory.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum DmaAccess {
    /// The device only reads the memory.
    ToDevice,
    /// The device reads and writes the memory.
    Both,
}

/// The device's view of host memory.
pub trait DmaSpace: Send + Sync + std::fmt::Debug {
    /// Usable device addresses, as `(first, last)`.
    fn ranges(&self) -> Vec<(u64, u64)>;

    /// Makes `region` reachable at device address `iova`.
    ///
    /// # Errors
    /// The range is in use, outside [`DmaSpace::ranges`], or memory that this backing cannot reach.
    fn map(&self, iova: u64, region: &Region, access: DmaAccess) -> Result<(), BackingError>;

    /// Takes the mapping that starts at `iova` away.
    ///
    /// # Errors
    /// There is none.
    fn unmap(&self, iova: u64) -> Result<(), BackingError>;
}

/// What a backing can answer instead.
#[derive(Debug, thiserror::Error)]
pub enum BackingError {
    /// The device address range overlaps another mapping.
    #[error("device addresses {iova:#x}+{len:#x} are in use")]
    IovaTaken {
        /// First device address of the range that was asked for.
        iova: u64,
        /// Length of the range in bytes.
        len: u64,
    },
    /// The device address range is not usable.
    #[error("device addresses {iova:#x}+{len:#x} are outside what the device can reach")]
    IovaRange {
        /// First device address of the range that was asked for.
        iova: u64,
        /// Length of the range in bytes.
        len: u64,
    },
    /// Nothing is mapped there.
    #[error("no mapping starts at device address {0:#x}")]
    NotMapped(u64),
    /// The backing cannot reach this memory.
    #[error("the device cannot reach this memory: {0}")]
    Unreachable(String),
    /// No such interrupt vector.
    #[error("interrupt vector {0} does not exist")]
    Vector(u16),
    /// The device is gone or did not come back from a reset.
    #[error("the device is gone: {0}")]
    Gone(String),
    /// The operating system refused.
    #[error("the operating system refused: {0}")]
    Os(#[from] std::io::Error),
}
