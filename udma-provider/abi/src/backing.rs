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

    /// As [`DeviceBacking::progress`], of a poll that found nothing. The device may begin `idle`: as long as that
    /// holds, a poll that finds nothing need not call it again, nor the registers.
    fn progress_to_idle(&self, idle: &mut IdleSnapshot) {
        idle.end();
        self.progress();
    }

    /// The caller polls in vain on a processor that other threads may want. A simulated world, whose time stands still
    /// meanwhile, does nothing.
    fn give_way(&self, how: GiveWay) {
        how.give();
    }

    /// Takes the entry of a peer by which a poller's idle snapshot ended, if it is a message alone; its completions are in their
    /// rings then, or that of its receive is given to `poll`. `false`: a call of [`DeviceBacking::progress_to_idle`] is due;
    /// what was given is given all the same.
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

    /// Value of the register [`crate::regs::STATUS`] without an access, all ones of a device that is gone. `None`: it is to be
    /// read.
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

/// A poll to which the device may give one completion, instead of an entry in the JFC.
#[derive(Debug, Default)]
pub struct PollOfOne {
    /// The JFC, and its next entry, free running: all before that are consumed. `None`: it takes entries alone.
    pub of: Option<(u32, u32)>,
    /// The completion of a receive in that JFC, in the place of an entry.
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

    /// The memory behind part of the window will be used: a device that reaches it by pages of this process
    /// may prepare them. Nothing depends on it.
    fn prepare(&self, offset: u64, len: u64) {
        let _ = (offset, len);
    }

    /// The doorbells of the send queue that has the number now, where the device has a shorter way to them
    /// than its registers.
    fn queue_doorbell(&self, id: u32) -> Option<Box<dyn QueueDoorbell>> {
        let _ = id;
        None
    }

    /// The doorbell of the JFC that has the number now, as [`RegisterRegion::queue_doorbell`].
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

/// Doorbells of one send queue, found once: what writes to its doorbell page do, with the same checks.
///
/// One thread at a time uses them: the one that posts. They reach the queue that had the number when they were found. After its end they are counted and dropped,
/// also when another queue has the number.
pub trait QueueDoorbell: Send + std::fmt::Debug {
    /// As a 32-bit write of `pi` to [`crate::doorbell::SQ_PI`].
    fn ring(&self, pi: u32);

    /// As a write of 64 bytes to [`crate::doorbell::DWQE`].
    fn ring_direct(&self, words: &[u64; 8]);

    /// As [`QueueDoorbell::ring_direct`], of an entry that is not stored in the ring, if the
    /// device can carry it out at once. Returns whether it did; if not, nothing happened: the entry is to be stored
    /// and rung for.
    fn carry(&self, words: &[u64; 8]) -> bool;

    /// As [`QueueDoorbell::carry`], of a request at position `pi` (free running) that is like the newest one which
    /// [`QueueDoorbell::carry`] carried out, except for its addresses, its length and whether it is signalled. The device
    /// refuses it once the queue ended, left READY or was bound anew.
    fn carry_moved(
        &self,
        pi: u32,
        is_signalled: bool,
        remote_va: u64,
        local_va: u64,
        len: u32,
    ) -> bool;

    /// Notes in `lines` what carrying a request out touches, but for value 0.
    fn note_lines(&self, lines: &UsedLines) {
        let _ = lines;
    }

    /// As [`QueueDoorbell::carry_moved`], of a request that wants a completion, which the driver makes itself: the
    /// device takes no slot of the JFC, which has no event queue, and writes no entry. Returns the index (free running)
    /// of the entry that the JFC gets next: those before it are of earlier requests. `None`: nothing happened.
    fn execute_local(&self, pi: u32, remote_va: u64, local_va: u64, len: u32) -> Option<NextEntry> {
        let _ = (pi, remote_va, local_va, len);
        None
    }

    /// As [`QueueDoorbell::execute_local`], of a whole entry, which is like some one that [`QueueDoorbell::carry`]
    /// carried out, and from now on the newest one.
    fn carry_block_unreported(&self, words: &[u64; 8]) -> Option<NextEntry> {
        let _ = words;
        None
    }

    /// As [`QueueDoorbell::carry`], of an atomic, which has two blocks.
    fn carry_atomic(&self, blocks: &[[u64; 8]; 2]) -> bool;

    /// As [`QueueDoorbell::execute_local`], of an atomic that is like the newest one which
    /// [`QueueDoorbell::carry_atomic`] carried out. `None`: it is to be handed over at this position as a whole; where it
    /// was done in memory that was withdrawn meanwhile, the device does not do it again, and ends it with an error.
    fn carry_word(&self, moved: &MovedWord) -> Option<NextEntry> {
        let _ = moved;
        None
    }
}

/// Index (free running) of the entry that a JFC gets next, in a form that is one word also where there may be none.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct NextEntry(NonZeroU64);

impl NextEntry {
    /// A bit beside the index.
    const IS_THERE: NonZeroU64 = NonZeroU64::new(1 << 32).expect("a bit");

    /// Of the entry with this index.
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

/// Consumer index of one JFC, found once: what a doorbell that arms nothing does, with the same checks.
///
/// It reaches the JFC that had the number when it was found, as [`QueueDoorbell`].
pub trait JfcIndex: Send + Sync + std::fmt::Debug {
    /// Everything before entry `ci` is consumed; 24 bits count.
    fn move_to(&self, ci: u32);

    /// As a write of `doorbell`, which arms. `false`: nothing happened, it is to be written to the register.
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
