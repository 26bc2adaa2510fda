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
    event::{EventfdFlags, PollFd, PollFlags, eventfd, poll},
    io::{ReadWriteFlags, preadv2},
};
use ubcore_sim::{node::VECTORS, ports::Interrupt};
use urma_mem::sync::{AtomicBool, AtomicU64, Ordering};

/// The interrupt vectors of one client.
#[derive(Debug)]
pub(crate) struct ClientVectors {
    /// Raises of each vector that are not in its eventfd yet.
    raised: [AtomicU64; VECTORS as usize],
    fds: Mutex<[Option<Arc<OwnedFd>>; VECTORS as usize]>,
    wakeup: OwnedFd,
    is_ended: AtomicBool,
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
            fds: Mutex::new(array::from_fn(|_| None)),
            wakeup: eventfd(0, EventfdFlags::NONBLOCK | EventfdFlags::CLOEXEC)?,
            is_ended: AtomicBool::new(false),
        });
        let served = Arc::clone(&vectors);
        let thread = std::thread::Builder::new().name("ubcored-vectors".to_owned());
        let handle = Some(thread.spawn(move || served.run())?);
        Ok((Arc::clone(&vectors), VectorThread { vectors, handle }))
    }

    /// Raises `vector` in this eventfd from now on, beginning with the raises so far; `None`: in none. `false`: there is no
    /// such vector.
    pub(crate) fn set(&self, vector: u16, fd: Option<OwnedFd>) -> bool {
        let mut fds = self.fds();
        let Some(slot) = fds.get_mut(usize::from(vector)) else { return false };
        *slot = fd.map(Arc::new);
        add(&self.wakeup, 1);
        true
    }

    fn run(&self) {
        while !self.is_ended.load(Ordering::Acquire) {
            let _ = poll(&mut [PollFd::new(&self.wakeup, PollFlags::IN)], None);
            take(&self.wakeup);
            for (vector, raised) in self.raised.iter().enumerate() {
                let fd = self.fds().get(vector).and_then(Option::clone);
                let Some(fd) = fd else { continue };
                let count = raised.swap(0, Ordering::AcqRel);
                if count != 0 {
                    // It may wait: this thread serves no other client.
                    add(&*fd, count);
                }
            }
        }
    }

    fn fds(&self) -> MutexGuard<'_, [Option<Arc<OwnedFd>>; VECTORS as usize]> {
        self.fds.lock().unwrap_or_else(PoisonError::into_inner)
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

impl Drop for VectorThread {
    /// A thread that waits for the client's eventfd is let go by emptying that.
    fn drop(&mut self) {
        self.vectors.is_ended.store(true, Ordering::Release);
        add(&self.vectors.wakeup, 1);
        let Some(handle) = self.handle.take() else { return };
        for _ in 0..ENDS_MAX {
            if handle.is_finished() {
                let _ = handle.join();
                return;
            }
            let fds = self.vectors.fds().clone();
            fds.iter().flatten().for_each(|fd| take(&**fd));
            std::thread::sleep(END_PAUSE);
        }
        tracing::warn!("the eventfd of a client holds its thread, which is left behind");
    }
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

/// Tries to end a thread, [`END_PAUSE`] apart.
const ENDS_MAX: u32 = 200;
const END_PAUSE: Duration = Duration::from_millis(1);

#[cfg(test)]
mod tests {
    use std::time::Instant;

    use super::*;

    #[expect(clippy::host_endian_bytes, reason = "the kernel counts in this machine's byte order")]
    fn counted(fd: &OwnedFd) -> u64 {
        let mut wait = [PollFd::new(fd, PollFlags::IN)];
        let bound = rustix::event::Timespec { tv_sec: 5, tv_nsec: 0 };
        assert_eq!(poll(&mut wait, Some(&bound)), Ok(1));
        let mut count = [0; 8];
        rustix::io::read(fd, &mut count).unwrap();
        u64::from_ne_bytes(count)
    }

    #[test]
    fn raises_before_and_after_the_eventfd_are_counted() {
        let (vectors, _thread) = ClientVectors::start().unwrap();
        vectors.raise(3);
        vectors.raise(3);
        vectors.raise(u16::MAX);
        let fd = eventfd(0, EventfdFlags::CLOEXEC).unwrap();
        assert!(vectors.set(3, Some(fd.try_clone().unwrap())));
        assert_eq!(counted(&fd), 2);
        vectors.raise(3);
        assert_eq!(counted(&fd), 1);
        assert!(!vectors.set(VECTORS, None));
    }

    #[test]
    fn a_full_blocking_eventfd_holds_neither_raises_nor_the_end() {
        let (vectors, thread) = ClientVectors::start().unwrap();
        let fd = eventfd(0, EventfdFlags::CLOEXEC).unwrap();
        add(&fd, u64::MAX - 1);
        assert!(vectors.set(0, Some(fd.try_clone().unwrap())));
        let begun = Instant::now();
        for _ in 0..1000 {
            vectors.raise(0);
        }
        drop(thread);
        assert!(begun.elapsed() < Duration::from_secs(5));
    }
}
