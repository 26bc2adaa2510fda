//! JFCE: the channel that completion events come by.
//!
//! *Owns*: the count of events that were taken and not acknowledged. *Must not*: poll JFCs.

use std::{
    collections::BTreeMap,
    os::fd::BorrowedFd,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use crate::{Context, Status, context::ContextShared, ops::JfceControl, rules::unused};

/// Jetty for completion events: an event channel. One thread may wait while another deletes it.
#[derive(Debug)]
pub struct Jfce {
    shared: Arc<JfceShared>,
}

#[derive(Debug)]
pub(crate) struct JfceShared {
    pub(crate) control: Arc<dyn JfceControl>,
    /// Events taken and not acknowledged, by JFC number.
    unacked: Mutex<BTreeMap<u32, u32>>,
    _home: Arc<ContextShared>,
}

impl JfceShared {
    fn unacked(&self) -> MutexGuard<'_, BTreeMap<u32, u32>> {
        self.unacked.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn unacked_of(&self, jfc: u32) -> u32 {
        self.unacked().get(&jfc).copied().unwrap_or(0)
    }

    /// Takes `count` events of `jfc` as done; `false` when fewer are open.
    pub(crate) fn ack(&self, jfc: u32, count: u32) -> bool {
        let mut unacked = self.unacked();
        let open = unacked.get(&jfc).copied().unwrap_or(0);
        let Some(left) = open.checked_sub(count) else { return false };
        unacked.insert(jfc, left);
        true
    }

    /// Drops the count of unacknowledged events: the number now belongs to a new JFC.
    pub(crate) fn begin(&self, jfc: u32) {
        self.unacked().remove(&jfc);
    }
}

impl Context {
    /// An event channel.
    ///
    /// # Errors
    /// `NoMemory`: no event queue or descriptor is left.
    pub fn create_jfce(&self) -> Result<Jfce, Status> {
        let home = Arc::clone(self.shared());
        let control = home.ops.create_jfce()?;
        let unacked = Mutex::new(BTreeMap::new());
        Ok(Jfce { shared: Arc::new(JfceShared { control, unacked, _home: home }) })
    }
}

impl Jfce {
    /// Readable exactly while an event is unconsumed; for poll and epoll.
    #[must_use]
    pub fn fd(&self) -> BorrowedFd<'_> {
        self.shared.control.fd()
    }

    /// Takes events: the front of `out` gets the numbers of the JFCs ([`crate::Jfc::id`]).
    /// Waits at most `timeout` for the first one; `Some(ZERO)` looks, `None` waits until the
    /// channel is deleted or the device fails. A signal ends the wait with what is ready. Each
    /// event is to be acknowledged with [`crate::Jfc::ack_events`].
    ///
    /// # Errors
    /// The channel was deleted; the device failed.
    pub fn wait(&self, out: &mut [u32], timeout: Option<Duration>) -> Result<usize, Status> {
        let count = self.shared.control.wait(out, timeout)?;
        let mut unacked = self.shared.unacked();
        for jfc in out.iter().take(count) {
            *unacked.entry(*jfc).or_default() += 1;
        }
        Ok(count)
    }

    /// Deletes the channel; waits on it return.
    ///
    /// # Errors
    /// `Fail`: a JFC uses it.
    pub fn delete(&self) -> Result<(), Status> {
        unused(&self.shared, Status::Fail, "JFCs use the JFCE")?;
        self.shared.control.delete()
    }

    pub(crate) fn shared(&self) -> &Arc<JfceShared> {
        &self.shared
    }
}
