//! Event rings: entries in host memory, counted by an eventfd in semaphore mode.
//!
//! *Owns*: one ring, its descriptor, its consumer index. *Takes*: what the device wrote.
//! *Gives*: one event for each count of the descriptor, so that it is readable exactly while an
//! event is unconsumed; where interrupts merge, the entries count ([`urma_mem::event`] has the rules, and their model).
//! *Must not*: consume a count without an event or an event without a count (a count whose event never comes, which only a
//! faulty device makes, is dropped and logged).

use std::{
    os::fd::{AsFd, BorrowedFd, OwnedFd},
    sync::{Arc, Mutex},
    time::Duration,
};

use nix::{
    errno::Errno,
    fcntl::{FcntlArg, OFlag, fcntl},
    poll::{PollFd, PollFlags, PollTimeout, poll},
    sys::eventfd::{EfdFlags, EventFd},
};
use udma_abi::{
    BackingError, DeviceBacking, Eqe, RegisterRegion,
    eqe::{self, EQE_LEN, EQE_WORDS},
    regs,
};
use urma_core::Status;
use urma_mem::{
    barrier,
    event::{EventLook, EventReader, EventSource},
    fork::{FdWatch, watch_fd},
    sync::{AtomicBool, Ordering},
};

use crate::{
    alloc::{DmaAlloc, DmaBuf, lock, status_of},
    doorbell,
};

/// A ring of events.
#[derive(Debug)]
pub(crate) struct EventRing {
    regs: Arc<dyn RegisterRegion>,
    backing: Arc<dyn DeviceBacking>,
    ring: Arc<DmaBuf>,
    depth_log2: u8,
    /// It has no vector of its own: one count may stand for several entries.
    is_shared: bool,
    /// Declared before the descriptor, to be dropped first.
    _watch: FdWatch,
    fd: OwnedFd,
    closed: AtomicBool,
    /// The device failed: its registers may be a successor's by now.
    failed: Arc<AtomicBool>,
    state: Mutex<EventState>,
}

/// Vector of an event queue.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum QueueVector {
    /// A vector of its own.
    Own(u16),
    /// The vector shared by queues without one of their own.
    Shared(u16),
}

#[derive(Debug, Default)]
struct EventState {
    reader: EventReader,
    ci: u32,
    /// Event queue number; `None` for asynchronous events.
    eqn: Option<u32>,
    /// Events that the driver raised itself.
    own: std::collections::VecDeque<Eqe>,
}

impl EventRing {
    /// Makes the ring for asynchronous events, vector 0, and writes its address to the device.
    ///
    /// # Errors
    /// `NoMemory`.
    pub(crate) fn asynchronous(
        backing: &Arc<dyn DeviceBacking>,
        dma: &Arc<DmaAlloc>,
        failed: &Arc<AtomicBool>,
    ) -> Result<Self, Status> {
        let memory = dma.alloc(EQE_LEN << ASYNC_DEPTH_LOG2)?;
        let ring = Self::new(backing, memory, QueueVector::Own(0), failed)?;
        ring.regs.write64(regs::AEQ_BASE, ring.iova());
        ring.regs.write32(regs::AEQ_DEPTH, 1 << ASYNC_DEPTH_LOG2);
        Ok(ring)
    }

    /// Creates a ring for completion events on `vector`; [`EventRing::set_eqn`] follows.
    ///
    /// # Errors
    /// `NoMemory`.
    pub(crate) fn completion(
        backing: &Arc<dyn DeviceBacking>,
        dma: &Arc<DmaAlloc>,
        failed: &Arc<AtomicBool>,
        vector: QueueVector,
    ) -> Result<Self, Status> {
        let memory = dma.alloc(EQE_LEN << COMPLETION_DEPTH_LOG2)?;
        Self::new(backing, memory, vector, failed)
    }

    fn new(
        backing: &Arc<dyn DeviceBacking>,
        memory: DmaBuf,
        vector: QueueVector,
        failed: &Arc<AtomicBool>,
    ) -> Result<Self, Status> {
        let entries = memory.region().len() / EQE_LEN;
        let (fd, is_shared) = match vector {
            QueueVector::Own(number) => {
                let fd = backing.interrupt(number).map_err(|error| no_descriptor(&error))?;
                make_nonblocking(&fd)?;
                (fd, false)
            }
            QueueVector::Shared(_) => (own_descriptor()?, true),
        };
        // Counts of an earlier user of this vector are not ours.
        while take_count(&fd) {}
        // A forked child that reads them would take the parent's events.
        let watch = watch_fd(fd.as_fd()).map_err(|_| Status::NoMemory)?;
        Ok(Self {
            regs: backing.registers(),
            backing: Arc::clone(backing),
            ring: Arc::new(memory),
            depth_log2: u8::try_from(entries.trailing_zeros()).unwrap_or(0),
            failed: Arc::clone(failed),
            is_shared,
            _watch: watch,
            fd,
            closed: AtomicBool::new(false),
            state: Mutex::default(),
        })
    }

    pub(crate) fn iova(&self) -> u64 {
        self.ring.iova()
    }

    pub(crate) fn depth_log2(&self) -> u8 {
        self.depth_log2
    }

    /// The memory, to be kept longer than this value.
    pub(crate) fn memory(&self) -> Arc<DmaBuf> {
        Arc::clone(&self.ring)
    }

    pub(crate) fn set_eqn(&self, eqn: u32) {
        lock(&self.state).eqn = Some(eqn);
    }

    /// Readable exactly while an event is unconsumed.
    pub(crate) fn fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }

    /// Ends all waits, now and later.
    pub(crate) fn close(&self) {
        self.closed.store(true, Ordering::Release);
        // The next user of the vector takes it off.
        give_count(&self.fd);
    }

    /// Makes the descriptor readable if an entry waits, for a ring of the shared vector.
    pub(crate) fn signal(&self) {
        let state = lock(&self.state);
        // While no thread can take it: a count without an entry would wake the program for nothing.
        if self.entry(&state).is_some() {
            give_count(&self.fd);
        }
    }

    /// Raises an event of the driver itself, such as the end of the device.
    pub(crate) fn raise(&self, event: Eqe) {
        lock(&self.state).own.push_back(event);
        give_count(&self.fd);
    }

    /// Takes the next event, if there is one.
    pub(crate) fn next(&self) -> Option<Eqe> {
        let mut state = lock(&self.state);
        loop {
            let mut reader = std::mem::take(&mut state.reader);
            let mut view = RingView { ring: self, state: &mut state };
            let look = match self.is_shared || self.backing.merges_interrupts() {
                true => reader.next_of_merged(&mut view),
                false => reader.next(&mut view),
            };
            state.reader = reader;
            match look {
                EventLook::Taken(event) => return Some(event),
                EventLook::Nothing => return None,
                EventLook::CountDropped => {
                    tracing::warn!("an interrupt came, but its event ring has no entry");
                }
            }
        }
    }

    /// Waits until the descriptor may be readable, at most `timeout` in all (`None`: no limit) and at most one slice.
    /// Returns whether the caller should check again.
    ///
    /// # Errors
    /// `Fail`: the ring was closed.
    pub(crate) fn wait(&self, timeout: Option<Duration>, started_ns: u64) -> Result<bool, Status> {
        if self.closed.load(Ordering::Acquire) {
            return Err(Status::Fail);
        }
        self.backing.progress();
        let passed = Duration::from_nanos(self.backing.now().saturating_sub(started_ns));
        let left = timeout.map_or(SLICE, |limit| limit.saturating_sub(passed));
        let slice = left.min(SLICE);
        let events = self.fd.as_fd();
        let peers = self.backing.wakeup().unwrap_or(events);
        let mut fds = [events, peers].map(|fd| PollFd::new(fd, PollFlags::POLLIN));
        // Rounded up: a wait of less than a millisecond must not spin.
        let ms = u16::try_from(slice.as_micros().div_ceil(1000)).unwrap_or(u16::MAX);
        match poll(&mut fds, PollTimeout::from(ms)) {
            Err(Errno::EINTR) => Ok(false),
            Err(error) => {
                tracing::warn!(%error, "waiting for interrupts of the device failed");
                Err(Status::Fail)
            }
            Ok(_) => {
                let is_ready = |at: usize| fds[at].any() == Some(true);
                if is_ready(PEERS) && !is_ready(EVENTS) {
                    self.backing.answer_wakeup();
                }
                // Also where something is ready each time: peers may ring without end.
                Ok(!left.is_zero())
            }
        }
    }

    /// Takes up to `room` events into `take`, waiting for the first as in [`EventRing::wait`].
    ///
    /// # Errors
    /// `Fail`: closed. Any error that `look` returns between waits.
    pub(crate) fn wait_for<T>(
        &self,
        timeout: Option<Duration>,
        mut look: impl FnMut() -> Result<Option<T>, Status>,
    ) -> Result<Option<T>, Status> {
        let started = self.backing.now();
        loop {
            if let Some(value) = look()? {
                return Ok(Some(value));
            }
            if !self.wait(timeout, started)? {
                return look();
            }
        }
    }

    /// Offset of the next entry, and its first word, if it is written.
    fn entry(&self, state: &EventState) -> Option<(usize, u64)> {
        let mask = (1u32 << self.depth_log2) - 1;
        let at = (state.ci & mask) as usize * EQE_LEN;
        let owner = (state.ci >> self.depth_log2) & 1 == 0;
        let word0 = self.ring.region().load_u64_acquire(at).ok()?;
        (eqe::owner_of(word0) == owner).then_some((at, word0))
    }

    fn take_entry(&self, state: &mut EventState) -> Option<Eqe> {
        let (at, word0) = self.entry(state)?;
        barrier::from_device();
        let mut words = self.ring.region().load_block::<EQE_WORDS>(at).ok()?;
        words[0] = word0;
        state.ci = state.ci.wrapping_add(1);
        match state.eqn {
            _ if self.failed.load(Ordering::Relaxed) => {}
            Some(eqn) => doorbell::ring_eq(&*self.regs, eqn, state.ci),
            None => self.regs.write32(regs::AEQ_CI, state.ci),
        }
        Some(Eqe::decode(words))
    }
}

/// View of a ring while its state is locked: entries of the device, then those of the driver itself.
struct RingView<'a> {
    ring: &'a EventRing,
    state: &'a mut EventState,
}

impl EventSource for RingView<'_> {
    type Event = Eqe;

    fn take_count(&mut self) -> bool {
        take_count(&self.ring.fd)
    }

    fn give_count(&mut self) {
        give_count(&self.ring.fd);
    }

    fn take_entry(&mut self) -> Option<Eqe> {
        self.ring.take_entry(self.state).or_else(|| self.state.own.pop_front())
    }

    fn has_entry(&self) -> bool {
        !self.state.own.is_empty() || self.ring.entry(self.state).is_some()
    }
}

#[expect(clippy::host_endian_bytes, reason = "the kernel's counter is a word of the host")]
fn give_count(fd: &OwnedFd) {
    let count = 1u64.to_ne_bytes();
    // Fails only when the counter is full: it is readable then.
    let _ = nix::unistd::write(fd, &count);
}

/// Takes one count off an eventfd in semaphore mode.
pub(crate) fn take_count(fd: &OwnedFd) -> bool {
    let mut count = [0; 8];
    matches!(nix::unistd::read(fd, &mut count), Ok(8))
}

pub(crate) fn make_nonblocking(fd: &OwnedFd) -> Result<(), Status> {
    let flags = fcntl(fd, FcntlArg::F_GETFL).map_err(|_| Status::Fail)?;
    let flags = OFlag::from_bits_retain(flags) | OFlag::O_NONBLOCK;
    fcntl(fd, FcntlArg::F_SETFL(flags)).map(|_| ()).map_err(|_| Status::Fail)
}

/// A descriptor that no vector signals.
fn own_descriptor() -> Result<OwnedFd, Status> {
    let flags = EfdFlags::EFD_CLOEXEC | EfdFlags::EFD_NONBLOCK | EfdFlags::EFD_SEMAPHORE;
    let made = EventFd::from_value_and_flags(0, flags);
    let made = made.map_err(|error| no_descriptor(&BackingError::Os(error.into())))?;
    Ok(made.into())
}

fn no_descriptor(error: &BackingError) -> Status {
    tracing::warn!(
        %error,
        "a channel for events gets no descriptor; a process may have as many as its limit says (ulimit -n)"
    );
    status_of(error)
}

/// Indices of the descriptors in a wait.
const EVENTS: usize = 0;
const PEERS: usize = 1;
/// Longest sleep, after which the device's clock and state are checked.
const SLICE: Duration = Duration::from_millis(100);
const ASYNC_DEPTH_LOG2: u8 = 10;
/// One event per arm and JFC. If more JFCs are armed at once, events wait in the device until there is room.
const COMPLETION_DEPTH_LOG2: u8 = 8;
