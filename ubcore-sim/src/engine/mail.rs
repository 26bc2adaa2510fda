//! Between a send queue and the shared part of the device: two bounded lock-free queues.
//!
//! *Owns*: what lies between them. *Takes*: requests from the engine, outcomes from the shared
//! part. *Gives*: each to the other side. *Must not*: make either side wait.

use crossbeam_queue::ArrayQueue;
use udma_abi::{CqeStatus, sqe::SQE_WORDS_MAX};
use urma_mem::sync::{AtomicBool, Ordering};

/// Requests that one send queue may have handed over at one time.
pub(crate) const HANDED_OVER_MAX: usize = 64;

/// Requests of one send queue that may be outstanding in the shared part, with short messages, which do not
/// wait in the mail.
pub(crate) const OUTSTANDING_MAX: usize = 256;

/// A request that needs the peer's help.
#[derive(Clone, Debug)]
pub(crate) struct Handed {
    /// Pairs it with its end.
    pub(crate) seq: u32,
    /// The entry as fetched.
    pub(crate) words: [u64; SQE_WORDS_MAX],
    /// Length of the payload in bytes.
    pub(crate) len: u32,
    /// The payload is in the peer's memory already; only the message remains.
    pub(crate) placed: bool,
}

/// The end of a request that was handed over.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct HandedCompletion {
    pub(crate) seq: u32,
    pub(crate) status: CqeStatus,
    /// Payload bytes that were transferred.
    pub(crate) bytes: u32,
}

/// Both directions of one life of a send queue.
#[derive(Debug)]
pub(crate) struct Mail {
    pub(crate) handed: ArrayQueue<Handed>,
    pub(crate) ended: ArrayQueue<HandedCompletion>,
    /// The engine flushed: whatever was handed over so far is of no interest any more.
    purge: AtomicBool,
}

impl Mail {
    pub(crate) fn new() -> Self {
        Self {
            handed: ArrayQueue::new(HANDED_OVER_MAX),
            // An end for each request that was handed over, also for those purged since.
            ended: ArrayQueue::new(2 * OUTSTANDING_MAX),
            purge: AtomicBool::new(false),
        }
    }

    pub(crate) fn ask_purge(&self) {
        self.purge.store(true, Ordering::SeqCst);
    }

    /// Whether the shared part has nothing of it to take.
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
