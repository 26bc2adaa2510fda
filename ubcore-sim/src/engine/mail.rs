//! Mailbox between a send queue and the shared part of the device: two bounded lock-free queues.
//!
//! Requests go one way, completions the other; neither side waits. The payload of a short message on its way into a
//! ring is here too, as a view of bytes that are not copied.

use crossbeam_queue::ArrayQueue;
use udma_abi::{CqeStatus, sqe::SQE_WORDS_MAX};
use urma_mem::{
    Region,
    sync::{AtomicBool, Ordering},
};

/// Requests of one send queue that can be in the mailbox at a time.
pub(crate) const HANDED_OVER_MAX: usize = 64;

/// Requests of one send queue that can be outstanding in the shared part, including short messages, which bypass the
/// mailbox. It bounds the rate over a long path: 1024 WRITEs of 4 KiB each 10 ms are 400 MB/s.
pub(crate) const OUTSTANDING_MAX: usize = 1024;

/// A request that needs the peer's help.
#[derive(Clone, Debug)]
pub(crate) struct Handed {
    /// Sequence number, which its completion repeats.
    pub(crate) seq: u32,
    /// The entry as fetched.
    pub(crate) words: [u64; SQE_WORDS_MAX],
    /// Length of the payload in bytes.
    pub(crate) len: u32,
    /// Whether the payload is in the peer's memory already, and only the message remains.
    pub(crate) placed: bool,
}

/// Completion of a request that was handed over.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct HandedCompletion {
    pub(crate) seq: u32,
    pub(crate) status: CqeStatus,
    /// Number of payload bytes transferred.
    pub(crate) bytes: u32,
}

/// Both directions, for one life of a send queue.
#[derive(Debug)]
pub(crate) struct Mail {
    pub(crate) handed: ArrayQueue<Handed>,
    pub(crate) ended: ArrayQueue<HandedCompletion>,
    /// The engine flushed: what was handed over before is void.
    purge: AtomicBool,
}

impl Mail {
    /// The mailbox of a queue with `blocks` places, each of which holds one request at most.
    pub(crate) fn new(blocks: usize) -> Self {
        Self {
            handed: ArrayQueue::new(HANDED_OVER_MAX),
            // Room for a completion of each request that was handed over, also of those purged since.
            ended: ArrayQueue::new(2 * blocks.clamp(1, OUTSTANDING_MAX)),
            purge: AtomicBool::new(false),
        }
    }

    pub(crate) fn ask_purge(&self) {
        self.purge.store(true, Ordering::SeqCst);
    }

    /// Whether the shared part has taken everything out of it.
    #[inline]
    pub(crate) fn is_taken(&self) -> bool {
        self.handed.is_empty() && !self.purge.load(Ordering::SeqCst)
    }

    pub(crate) fn take_purge(&self) -> bool {
        self.purge.load(Ordering::Relaxed) && self.purge.swap(false, Ordering::SeqCst)
    }
}

// The seam to the shared part:
// - A send engine pushes `Handed`, puts its queue number on the device's list (`DeviceCore::next_listed`) and
//   has the shared part stepped. `Handed::words` decodes with `Sqe::decode`; local pieces with
//   `gather::Local::of` and `gather::read_out`. All its local checks are done; READ and atomic results
//   go to local pieces by `gather::write_in`.
// - Each `Handed` gets one `HandedCompletion` (any order), pushed into `ended`; then the caller of
// the exchange
//   calls `DeviceCore::wake_send(id)`.
// - `take_purge()` true: drop every request taken from this mail before, without
// `HandedCompletion`; requests
//   in `handed` at that moment are new ones.

/// Most payload bytes of a short message.
pub(crate) const SHORT_MAX: usize = 512;

/// Source of a short message's bytes.
#[derive(Clone, Copy, Debug)]
pub(crate) enum ShortBody<'a> {
    /// In memory: offset and number of bytes.
    Memory(&'a Region, usize, usize),
    /// Inline: so many bytes of these two words.
    Words([u64; 2], usize),
}

impl ShortBody<'_> {
    /// No bytes, for an acknowledgement.
    pub(crate) const NOTHING: Self = Self::Words([0; 2], 0);

    /// Length of the payload in bytes.
    #[inline]
    pub(crate) fn len(&self) -> usize {
        match self {
            Self::Memory(_, _, len) | Self::Words(_, len) => *len,
        }
    }
}
