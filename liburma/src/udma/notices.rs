//! Notices: results of imports and bindings that end later.
//!
//! *Owns*: the notices of each notifier that wait for its program, and its descriptor. *Must not*: read the memory of
//! an object.

use core::time::Duration;
use std::{
    collections::VecDeque,
    os::fd::{AsRawFd, RawFd},
    sync::{Condvar, Mutex, MutexGuard, PoisonError},
};

use nix::sys::eventfd::{EfdFlags, EventFd};

use crate::{
    abi::*,
    call::{Answer, refuse},
    convert::zeroed,
    latch::lock,
};

/// How long the deletion of a notifier waits for its imports. In a forked child their threads do not exist.
const IMPORTS_WAIT: Duration = Duration::from_secs(10);

/// The notices of one notifier.
pub(crate) struct Notices {
    state: Mutex<NoticeState>,
    /// Signalled when a notice waits, an import ended, or the notifier is deleted.
    changed: Condvar,
    /// Counts the notices that wait: `notifier->fd`.
    wakeup: EventFd,
}

#[derive(Default)]
pub(crate) struct NoticeState {
    waiting: VecDeque<Notice>,
    /// Number of imports that have not ended.
    pub(crate) imports: usize,
    /// The notifier is being deleted.
    pub(crate) is_closed: bool,
}

/// The address of an object, for the program that knows it.
pub(crate) struct Name<T>(pub(crate) *mut T);

// SAFETY: an address; nothing reads what it names.
unsafe impl<T> Send for Name<T> {}

/// The object of a notice.
pub(crate) enum NoticeSubject {
    Import(Name<urma_target_jetty_t>),
    Bind(Name<urma_jetty_t>),
}

/// Result of an import or binding.
pub(crate) struct Notice {
    pub(crate) about: NoticeSubject,
    pub(crate) status: urma_status_t,
    pub(crate) user_ctx: u64,
}

impl Notice {
    /// The notice in the form of the C API.
    pub(crate) fn out(&self) -> urma_notify_t {
        let mut to: urma_notify_t = zeroed();
        (to.status, to.user_ctx) = (self.status, self.user_ctx);
        match self.about {
            NoticeSubject::Import(Name(tjetty)) => {
                to.r#type = URMA_IMPORT_JETTY_NOTIFY;
                to.u = urma_notify_u { tjetty };
            }
            NoticeSubject::Bind(Name(jetty)) => {
                to.r#type = URMA_BIND_JETTY_NOTIFY;
                to.u = urma_notify_u { jetty };
            }
        }
        to
    }
}

impl Notices {
    /// # Errors
    /// ENOMEM: out of descriptors.
    pub(crate) fn new() -> Answer<Self> {
        let flags = EfdFlags::EFD_CLOEXEC | EfdFlags::EFD_NONBLOCK | EfdFlags::EFD_SEMAPHORE;
        let wakeup = EventFd::from_value_and_flags(0, flags)
            .map_err(|error| refuse!(ENOMEM, "no eventfd for the notifier: {error}"))?;
        Ok(Self { state: Mutex::default(), changed: Condvar::new(), wakeup })
    }

    /// The descriptor that `notifier->fd` names.
    pub(crate) fn fd(&self) -> RawFd {
        self.wakeup.as_raw_fd()
    }

    /// Ends every wait, takes the notices that no call reported, and waits for the imports in progress, since the
    /// program cannot delete their targets; each of them has a limit of its own.
    pub(crate) fn close(&self) -> Vec<Notice> {
        let mut state = self.state();
        state.is_closed = true;
        let unreported = state.waiting.drain(..).collect();
        self.changed.notify_all();
        let is_importing = |state: &mut NoticeState| state.imports != 0;
        drop(self.changed.wait_timeout_while(state, IMPORTS_WAIT, is_importing));
        unreported
    }

    /// Notes that an import ended, for a notifier that is deleted.
    pub(crate) fn end_import(&self) {
        self.state().imports -= 1;
        self.changed.notify_all();
    }

    pub(crate) fn state(&self) -> MutexGuard<'_, NoticeState> {
        lock(&self.state)
    }

    /// Adds a notice, and wakes the threads that wait for one.
    pub(crate) fn report(&self, state: &mut NoticeState, notice: Notice) {
        state.waiting.push_back(notice);
        // A full counter is readable all the same.
        let _ = self.wakeup.write(1);
        self.changed.notify_all();
    }

    /// Takes up to `room` notices; waits for the first. Timeout `None`: as long as the notifier exists.
    pub(crate) fn wait(&self, room: usize, timeout: Option<Duration>) -> Vec<Notice> {
        let state = self.state();
        let is_idle = |state: &mut NoticeState| state.waiting.is_empty() && !state.is_closed;
        let mut state = match timeout {
            None => self.changed.wait_while(state, is_idle).unwrap_or_else(PoisonError::into_inner),
            Some(limit) => {
                let woken = self.changed.wait_timeout_while(state, limit, is_idle);
                woken.unwrap_or_else(PoisonError::into_inner).0
            }
        };
        let count = state.waiting.len().min(room);
        for _ in 0..count {
            // The descriptor counts what waits, so there is something to take.
            let _ = self.wakeup.read();
        }
        state.waiting.drain(..count).collect()
    }
}
