//! The interrupt vectors of one client.
//!
//! - owns: its eventfds, raises that are not written yet, the thread that writes them. takes: raises of any thread of the
//!   node. gives: counts in the client's eventfds. must not: let a thread of the node wait for a client: it can make its
//!   eventfd blocking and full, and then only the thread of its own vectors waits.

use std::{
    array, io,
    os::fd::{AsFd, OwnedFd},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    thread::JoinHandle,
    time::Duration,
};

use rustix::{
    event::{EventfdFlags, PollFd, PollFlags, Timespec, eventfd, poll},
    io::{ReadWriteFlags, preadv2},
};
use ubcore_sim::{node::VECTORS, ports::Interrupt};
use urma_mem::sync::{AtomicBool, AtomicU64, Ordering};

/// The interrupt vectors of one client.
#[derive(Debug)]
pub(crate) struct ClientVectors {
    /// Raises of each vector that are not in its eventfd yet.
    raised: [AtomicU64; VECTORS as usize],
    fds: Mutex<VectorFds>,
    wakeup: OwnedFd,
    is_ended: AtomicBool,
}

#[derive(Debug)]
struct VectorFds {
    of: [Option<Arc<OwnedFd>>; VECTORS as usize],
    /// The one that the thread writes to, which may have been replaced.
    written: Option<Arc<OwnedFd>>,
}

/// What a call of [`ClientVectors::set`] changed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum VectorChange {
    /// There is no such vector.
    None,
    /// The vector is set.
    Set {
        /// It had an eventfd before.
        had_fd: bool,
    },
}

/// The thread of a client's vectors; dropped, it ends.
#[derive(Debug)]
pub(crate) struct VectorThread {
    vectors: Arc<ClientVectors>,
    handle: Option<JoinHandle<()>>,
}

impl ClientVectors {
    /// Vectors without eventfds, and the thread that serves them.
    ///
    /// # Errors
    /// No descriptor, no thread.
    pub(crate) fn start() -> io::Result<(Arc<Self>, VectorThread)> {
        let vectors = Arc::new(Self {
            raised: array::from_fn(|_| AtomicU64::new(0)),
            fds: Mutex::new(VectorFds { of: array::from_fn(|_| None), written: None }),
            wakeup: eventfd(0, EventfdFlags::NONBLOCK | EventfdFlags::CLOEXEC)?,
            is_ended: AtomicBool::new(false),
        });
        let served = Arc::clone(&vectors);
        let thread = std::thread::Builder::new().name("ubcored-vectors".to_owned());
        let handle = Some(thread.spawn(move || served.run())?);
        Ok((Arc::clone(&vectors), VectorThread { vectors, handle }))
    }

    /// Raises `vector` in this eventfd from now on, beginning with the raises so far; `None`: in none.
    pub(crate) fn set(&self, vector: u16, fd: Option<OwnedFd>) -> VectorChange {
        let mut fds = self.fds();
        let Some(slot) = fds.of.get_mut(usize::from(vector)) else { return VectorChange::None };
        let before = std::mem::replace(slot, fd.map(Arc::new));
        if let (Some(before), Some(written)) = (&before, &fds.written)
            && Arc::ptr_eq(before, written)
        {
            // The thread may wait for it, and no thread reads it any more.
            take(&**before);
        }
        add(&self.wakeup, 1);
        VectorChange::Set { had_fd: before.is_some() }
    }

    fn run(&self) {
        while !self.is_ended.load(Ordering::Acquire) {
            let _ = poll(&mut [PollFd::new(&self.wakeup, PollFlags::IN)], None);
            take(&self.wakeup);
            for (vector, raised) in self.raised.iter().enumerate() {
                let Some(fd) = self.fds().begin_write(vector) else { continue };
                let count = raised.swap(0, Ordering::AcqRel);
                if count != 0 && has_room(&fd) {
                    // It may wait, if the client fills it just now: this thread serves no other one.
                    add(&*fd, count);
                }
                self.fds().written = None;
            }
        }
    }

    fn fds(&self) -> MutexGuard<'_, VectorFds> {
        self.fds.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl VectorFds {
    /// The eventfd of a vector, which the thread writes to from now on.
    fn begin_write(&mut self, vector: usize) -> Option<Arc<OwnedFd>> {
        let fd = self.of.get(vector)?.clone()?;
        self.written = Some(Arc::clone(&fd));
        Some(fd)
    }
}

impl Interrupt for ClientVectors {
    fn raise(&self, vector: u16) {
        if let Some(raised) = self.raised.get(usize::from(vector)) {
            raised.fetch_add(1, Ordering::AcqRel);
            add(&self.wakeup, 1);
        }
    }
}

impl VectorThread {
    /// Ends the thread; `false`: the client holds it. A thread that waits for an eventfd of the client is let go by emptying that, whether
    /// or not the vector has it still.
    fn end(&mut self) -> bool {
        self.vectors.is_ended.store(true, Ordering::Release);
        add(&self.vectors.wakeup, 1);
        let Some(handle) = self.handle.take() else { return true };
        for tries in 0..ENDS_MAX {
            for _ in 0..TAKES {
                if handle.is_finished() {
                    let _ = handle.join();
                    return true;
                }
                let written = self.vectors.fds().written.clone();
                written.iter().for_each(|fd| take(&**fd));
                std::thread::yield_now();
            }
            std::thread::sleep(END_PAUSE * tries.min(END_PAUSES_MAX));
        }
        false
    }
}

impl Drop for VectorThread {
    fn drop(&mut self) {
        if !self.end() {
            tracing::warn!("the eventfd of a client holds its thread, which is left behind");
        }
    }
}

/// Whether a raise can be counted. A full eventfd is raised already, as for the kernel, which then drops a raise.
fn has_room(fd: &OwnedFd) -> bool {
    let now = Timespec { tv_sec: 0, tv_nsec: 0 };
    poll(&mut [PollFd::new(fd, PollFlags::OUT)], Some(&now)).is_ok_and(|count| count > 0)
}

#[expect(clippy::host_endian_bytes, reason = "the kernel counts in this machine's byte order")]
fn add(fd: impl AsFd, count: u64) {
    let _ = rustix::io::write(fd, &count.to_ne_bytes());
}

/// Empties an eventfd, whatever its flags are.
fn take(fd: impl AsFd) {
    let mut count = [0; 8];
    let into = &mut [io::IoSliceMut::new(&mut count)];
    let _ = preadv2(&fd, into, u64::MAX, ReadWriteFlags::NOWAIT);
}

/// Tries to end a thread, in rounds of [`TAKES`] looks; a pause between two rounds grows by [`END_PAUSE`].
const ENDS_MAX: u32 = 100;
const TAKES: u32 = 16;
const END_PAUSE: Duration = Duration::from_micros(50);
const END_PAUSES_MAX: u32 = 40;

#[cfg(test)]
mod tests {
    use std::time::Instant;

    use super::*;

    #[expect(clippy::host_endian_bytes, reason = "the kernel counts in this machine's byte order")]
    fn counted(fd: &OwnedFd) -> u64 {
        let mut wait = [PollFd::new(fd, PollFlags::IN)];
        let bound = Timespec { tv_sec: 5, tv_nsec: 0 };
        assert_eq!(poll(&mut wait, Some(&bound)), Ok(1));
        let mut count = [0; 8];
        rustix::io::read(fd, &mut count).unwrap();
        u64::from_ne_bytes(count)
    }

    fn blocking() -> OwnedFd {
        eventfd(0, EventfdFlags::CLOEXEC).unwrap()
    }

    fn set(vectors: &ClientVectors, vector: u16, fd: &OwnedFd) -> VectorChange {
        vectors.set(vector, Some(fd.try_clone().unwrap()))
    }

    /// Until the thread has looked at all raises so far.
    fn await_looks(vectors: &ClientVectors) {
        let other = blocking();
        set(vectors, VECTORS - 1, &other);
        for _ in 0..2 {
            vectors.raise(VECTORS - 1);
            counted(&other);
        }
        vectors.set(VECTORS - 1, None);
    }

    #[test]
    fn raises_before_and_after_the_eventfd_are_counted() {
        let (vectors, _thread) = ClientVectors::start().unwrap();
        vectors.raise(3);
        vectors.raise(3);
        vectors.raise(u16::MAX);
        // The thread has seen them, and kept them.
        await_looks(&vectors);
        let fd = blocking();
        assert_eq!(set(&vectors, 3, &fd), VectorChange::Set { had_fd: false });
        assert_eq!(counted(&fd), 2);
        vectors.raise(3);
        assert_eq!(counted(&fd), 1);
        assert_eq!(vectors.set(VECTORS, None), VectorChange::None);
        assert_eq!(vectors.set(3, None), VectorChange::Set { had_fd: true });
    }

    #[test]
    fn a_full_blocking_eventfd_holds_neither_raises_nor_the_end() {
        let (vectors, thread) = ClientVectors::start().unwrap();
        let fd = blocking();
        add(&fd, u64::MAX - 1);
        set(&vectors, 0, &fd);
        let begun = Instant::now();
        for _ in 0..1000 {
            vectors.raise(0);
        }
        // Nor other vectors: a full one counts no more.
        await_looks(&vectors);
        drop(thread);
        assert!(begun.elapsed() < Duration::from_secs(5));
    }

    /// A thread that waits for an eventfd: one more fits, and two are to be counted.
    fn waiting_for(fd: &OwnedFd) -> (Arc<ClientVectors>, VectorThread) {
        let (vectors, thread) = ClientVectors::start().unwrap();
        add(fd, u64::MAX - 2);
        vectors.raise(0);
        vectors.raise(0);
        set(&vectors, 0, fd);
        let waits = Instant::now() + Duration::from_secs(20);
        while vectors.raised[0].load(Ordering::Acquire) != 0 || vectors.fds().written.is_none() {
            assert!(Instant::now() < waits, "the thread waits for the eventfd");
            std::thread::sleep(Duration::from_millis(1));
        }
        (vectors, thread)
    }

    #[test]
    fn an_eventfd_that_was_replaced_holds_no_thread() {
        let (old, new) = (blocking(), blocking());
        let (vectors, mut thread) = waiting_for(&old);
        assert_eq!(set(&vectors, 0, &new), VectorChange::Set { had_fd: true });
        vectors.raise(0);
        assert_eq!(counted(&new), 1, "the thread goes on");
        assert!(thread.end());
    }

    #[test]
    fn a_thread_that_waits_for_a_client_ends() {
        let fd = blocking();
        let (vectors, mut thread) = waiting_for(&fd);
        // A client that takes its eventfd away beside the server's back, and fills it as it is emptied.
        vectors.fds().of[0] = None;
        let is_ended = AtomicBool::new(false);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                while !is_ended.load(Ordering::Acquire) {
                    if has_room(&fd) {
                        add(&fd, 1);
                    }
                    std::thread::sleep(Duration::from_micros(200));
                }
            });
            let has_ended = thread.end();
            is_ended.store(true, Ordering::Release);
            take(&fd);
            assert!(has_ended);
        });
    }
}
