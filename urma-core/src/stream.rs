//! Completions as a stream, for async programs.
//!
//! *Owns*: the registration of the event descriptor with the reactor. *Takes*: wake-ups. *Gives*:
//! one completion after the other. *Must not*: depend on one runtime; keep a task running that
//! always finds something.

use std::{
    future::Future,
    io,
    os::fd::{AsFd, OwnedFd},
    pin::Pin,
    task::{Context as TaskContext, Poll, ready},
    time::Duration,
};

use async_io::{Async, Timer};
use futures_core::Stream;

use crate::{Completion, Completions, Status};

/// [`Completions`] as a [`Stream`]; feature `stream`, for any runtime.
///
/// A task that finds nothing arms the JFC and sleeps until its event descriptor is readable. The
/// stream never ends by itself; it gives an error, again and again, when the device failed. A
/// future that is dropped loses no completion.
///
/// `examples/stream.rs` is a program with two of them.
#[derive(Debug)]
pub struct CompletionStream {
    /// A duplicate of the event descriptor.
    readable: Async<OwnedFd>,
    /// Wakes a sleeping task so that it checks the device.
    look: Timer,
    completions: Completions,
    /// Completions given since the task last had to wait.
    run: u32,
}

impl CompletionStream {
    /// Registers the event descriptor with the reactor of `async-io`, a thread that the first
    /// registration in a process starts.
    ///
    /// # Errors
    /// The system's.
    pub fn new(completions: Completions) -> io::Result<Self> {
        let fd = completions.as_fd().try_clone_to_owned()?;
        let (readable, look) = (Async::new_nonblocking(fd)?, Timer::after(LOOK));
        Ok(Self { readable, look, completions, run: 0 })
    }

    /// The completions, for instance to create another queue that completes here.
    #[must_use]
    pub fn completions(&self) -> &Completions {
        &self.completions
    }

    /// Leaves the reactor and gives the completions back.
    #[must_use]
    pub fn into_inner(self) -> Completions {
        self.completions
    }

    /// The next completion.
    ///
    /// # Errors
    /// `NoDevice`: the device failed.
    pub async fn next(&mut self) -> Result<Completion, Status> {
        std::future::poll_fn(|cx| self.poll_completion(cx)).await
    }

    /// The next completion, or arranges for a wake-up.
    ///
    /// # Errors
    /// `NoDevice`: the device failed.
    pub fn poll_completion(
        &mut self,
        cx: &mut TaskContext<'_>,
    ) -> Poll<Result<Completion, Status>> {
        if self.run == RUN_MAX {
            return self.give_way(cx);
        }
        // Each round takes an event, or finds the reactor's word out of date.
        for _ in 0..ROUNDS_MAX {
            if let Some(completion) = self.completions.poll_armed()? {
                self.run += 1;
                return Poll::Ready(Ok(completion));
            }
            if self.completions.take_event(Some(Duration::ZERO))? {
                continue;
            }
            if Pin::new(&mut self.look).poll(cx).is_ready() {
                self.look.set_after(LOOK);
                continue;
            }
            match ready!(self.wait_readable(cx)) {
                Ok(()) => {}
                Err(error) => {
                    tracing::warn!(target: "urma", %error, "the reactor failed");
                    return Poll::Ready(Err(Status::Fail));
                }
            }
        }
        self.give_way(cx)
    }

    fn wait_readable(&mut self, cx: &mut TaskContext<'_>) -> Poll<io::Result<()>> {
        self.run = 0;
        self.readable.poll_readable(cx)
    }

    /// Lets other tasks of the thread run.
    fn give_way(&mut self, cx: &mut TaskContext<'_>) -> Poll<Result<Completion, Status>> {
        self.run = 0;
        cx.waker().wake_by_ref();
        Poll::Pending
    }
}

impl Stream for CompletionStream {
    type Item = Result<Completion, Status>;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut TaskContext<'_>) -> Poll<Option<Self::Item>> {
        self.poll_completion(cx).map(Some)
    }
}

/// Period in which a sleeping task checks the device, which may fail without an event: that of the
/// driver's waits.
const LOOK: Duration = Duration::from_millis(100);
/// Completions in a row after which the task yields to others.
const RUN_MAX: u32 = 64;
/// Most polls of the JFC within one poll of the stream that find nothing.
const ROUNDS_MAX: u32 = 8;
