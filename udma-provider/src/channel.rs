//! An event queue of the device, with its own interrupt vector or a share of the common one.
//!
//! *Owns*: both. *Takes*: events of completion queues. *Gives*: JFC numbers. *Must not*: report a JFC that does not
//! exist.

use std::{os::fd::BorrowedFd, sync::Arc, time::Duration};

use udma_abi::{Eqe, cmd::Command};
use urma_core::Status;
use urma_mem::sync::{AtomicBool, Ordering};

use crate::{
    device::Driver,
    events::{EventRing, QueueVector},
};

/// Event queue of the device, with the descriptor that its interrupt signals.
#[derive(Debug)]
pub(crate) struct Channel {
    driver: Arc<Driver>,
    ring: Arc<EventRing>,
    eqn: u32,
    vector: QueueVector,
    deleted: AtomicBool,
}

impl Channel {
    /// Creates an event queue with a vector.
    ///
    /// # Errors
    /// `NoMemory`: no event queue or descriptor is left.
    pub(crate) fn create(driver: &Arc<Driver>) -> Result<Self, Status> {
        let vector = driver.vectors.take().ok_or(Status::NoMemory)?;
        let made = {
            let Driver { backing, dma, failed, .. } = &**driver;
            EventRing::completion(backing, dma, failed, vector)
        };
        let made = made.and_then(|ring| {
            let (base, depth_log2) = (ring.iova(), ring.depth_log2());
            let ring = Arc::new(ring);
            let number = match vector {
                QueueVector::Own(number) => number,
                QueueVector::Shared(number) => {
                    driver.vectors.pass_on(&*driver.backing, &ring, number)?;
                    number
                }
            };
            let results = driver.execute(&Command::CreateEq { base, depth_log2, vector: number });
            let results =
                results.inspect_err(|error| driver.keep_if_failed(&ring.memory(), *error))?;
            let eqn = u32::try_from(results[0]).map_err(|_| Status::Fail)?;
            ring.set_eqn(eqn);
            Ok((ring, eqn))
        });
        let (ring, eqn) = made.inspect_err(|_| driver.vectors.give_back(vector))?;
        let deleted = AtomicBool::new(false);
        Ok(Self { driver: Arc::clone(driver), ring, eqn, vector, deleted })
    }

    /// Number of the event queue.
    pub(crate) fn eqn(&self) -> u32 {
        self.eqn
    }

    /// Raises an event that does not come from the device.
    pub(crate) fn raise(&self, event: Eqe) {
        self.ring.raise(event);
    }

    /// Readable exactly while an event is unconsumed.
    pub(crate) fn fd(&self) -> BorrowedFd<'_> {
        self.ring.fd()
    }

    /// Takes the ready events of JFCs for which `is_known` returns true.
    fn take(&self, out: &mut [u32], is_known: &impl Fn(u32) -> bool) -> usize {
        let mut taken = 0;
        while let Some(slot) = out.get_mut(taken) {
            match self.ring.next() {
                Some(Eqe::Completion { jfcn }) if is_known(jfcn) => {
                    *slot = jfcn;
                    taken += 1;
                }
                // It is of a JFC that was deleted meanwhile, or invalid.
                Some(event) => tracing::debug!(?event, "an event names no JFC"),
                None => break,
            }
        }
        taken
    }

    /// Takes up to `out.len()` events, waiting at most `timeout` for the first.
    ///
    /// # Errors
    /// `Fail`: the channel was deleted. `NoDevice`: the device failed.
    pub(crate) fn wait(
        &self,
        out: &mut [u32],
        timeout: Option<Duration>,
        is_known: impl Fn(u32) -> bool,
    ) -> Result<usize, Status> {
        if out.is_empty() {
            return Ok(0);
        }
        let mut is_woken = false;
        let found = self.ring.wait_for(timeout, || {
            let taken = self.take(out, &is_known);
            if taken == 0 {
                // Woken without an event: so a backing reports that the device is gone.
                if is_woken {
                    self.driver.look_for_failure();
                }
                is_woken = true;
                self.driver.check()?;
            }
            Ok((taken > 0).then_some(taken))
        });
        found.map(|taken| taken.unwrap_or(0))
    }

    /// Deletes event queue and vector; waiters return.
    ///
    /// # Errors
    /// `Fail`: a JFC uses it. `Invalid`: it was deleted before.
    pub(crate) fn delete(&self) -> Result<(), Status> {
        if self.deleted.swap(true, Ordering::AcqRel) {
            return Err(Status::Invalid.why(format_args!("the JFCE was deleted before")));
        }
        match self.driver.execute(&Command::DestroyEq { eqn: self.eqn }) {
            Ok(_) => {
                // Before another channel gets the vector: it takes off the count that ends the waits.
                self.ring.close();
                self.driver.vectors.give_back(self.vector);
                return Ok(());
            }
            Err(error) if error == Status::NoDevice => self.driver.keep(self.ring.memory()),
            Err(refused) => {
                self.deleted.store(false, Ordering::Release);
                return Err(if refused == Status::Again { Status::Fail } else { refused });
            }
        }
        self.ring.close();
        Ok(())
    }
}

impl Drop for Channel {
    fn drop(&mut self) {
        if !*self.deleted.get_mut()
            && let Err(error) = self.delete()
        {
            tracing::debug!(%error, eqn = self.eqn, "a dropped JFCE could not be deleted");
        }
    }
}
