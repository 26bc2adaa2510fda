//! Interrupts of a function behind VFIO, by eventfd.
//!
//! - owns: which vectors are enabled and masked. takes: eventfds. must not: wait for one.
//!
//! VFIO masks the pin only. A vector of MSI or MSI-X is masked here: while it is, its interrupts go to an eventfd of
//! this room, and what that counted is passed on when it is unmasked.

use std::{
    io,
    os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use rustix::event::{EventfdFlags, eventfd};
use vfio_bindings::bindings::vfio as c;
use zerocopy::IntoBytes;

use super::{
    calls::{StructCommand, VfioCalls},
    layout::IrqSet,
};
use crate::device::{InterruptKind, PciError, PciInterrupts};

/// Interrupts of one kind.
#[derive(Debug)]
pub(super) struct KernelInterrupts {
    pub(super) calls: Arc<dyn VfioCalls>,
    pub(super) device: Arc<OwnedFd>,
    pub(super) name: String,
    pub(super) kind: InterruptKind,
    pub(super) count: u32,
    pub(super) enabled: Mutex<Vec<EnabledVector>>,
}

/// A vector that is enabled.
#[derive(Debug)]
pub(super) struct EnabledVector {
    target: Option<OwnedFd>,
    /// Counts what comes while the vector is masked.
    held: Option<OwnedFd>,
}

/// VFIO's number of a kind.
pub(super) const fn index(kind: InterruptKind) -> u32 {
    match kind {
        InterruptKind::Intx => c::VFIO_PCI_INTX_IRQ_INDEX,
        InterruptKind::Msi => c::VFIO_PCI_MSI_IRQ_INDEX,
        InterruptKind::MsiX => c::VFIO_PCI_MSIX_IRQ_INDEX,
        InterruptKind::Error => c::VFIO_PCI_ERR_IRQ_INDEX,
        InterruptKind::Request => c::VFIO_PCI_REQ_IRQ_INDEX,
    }
}

impl KernelInterrupts {
    fn lock(&self) -> MutexGuard<'_, Vec<EnabledVector>> {
        self.enabled.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn set(&self, flags: u32, start: u32, count: u32, data: &[i32]) -> io::Result<()> {
        let index = index(self.kind);
        let head = IrqSet { argsz: 0, flags, index, start, count };
        let mut bytes = [head.as_bytes(), data.as_bytes()].concat();
        self.calls.structure(self.device.as_fd(), StructCommand::SetIrqs, &mut bytes).map(|_| ())
    }

    /// Lets vectors from `start` signal these eventfds.
    fn signal(&self, start: u32, fds: &[i32]) -> io::Result<()> {
        let flags = c::VFIO_IRQ_SET_DATA_EVENTFD | c::VFIO_IRQ_SET_ACTION_TRIGGER;
        self.set(flags, start, u32::try_from(fds.len()).unwrap_or(u32::MAX), fds)
    }

    fn disable_all(&self) -> io::Result<()> {
        self.set(c::VFIO_IRQ_SET_DATA_NONE | c::VFIO_IRQ_SET_ACTION_TRIGGER, 0, 0, &[])
    }

    fn failed(&self, what: &'static str) -> impl FnOnce(io::Error) -> PciError {
        let device = self.name.clone();
        move |source| PciError::System { device, what, source }
    }

    fn mask_pin(&self, vector: u32, is_masked: bool) -> io::Result<()> {
        let action =
            if is_masked { c::VFIO_IRQ_SET_ACTION_MASK } else { c::VFIO_IRQ_SET_ACTION_UNMASK };
        self.set(c::VFIO_IRQ_SET_DATA_NONE | action, vector, 1, &[])
    }

    /// Sends the vector's interrupts to an eventfd of this room.
    fn hold(&self, number: u32, vector: &mut EnabledVector) -> io::Result<()> {
        if vector.held.is_some() {
            return Ok(());
        }
        let held = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
        self.signal(number, &[held.as_raw_fd()])?;
        vector.held = Some(held);
        Ok(())
    }

    /// Sends the vector's interrupts to its own eventfd again, then those that were held.
    fn release(&self, number: u32, vector: &mut EnabledVector) -> io::Result<()> {
        let Some(held) = &vector.held else { return Ok(()) };
        self.signal(number, &[raw(vector.target.as_ref())])?;
        // Read after the change, so that an interrupt in between is in one of the two counts.
        let mut count = [0; 8];
        let was_raised = rustix::io::read(held, &mut count).is_ok();
        if was_raised && let Some(target) = &vector.target {
            rustix::io::write(target, &count)?;
        }
        vector.held = None;
        Ok(())
    }
}

fn raw(fd: Option<&OwnedFd>) -> i32 {
    fd.map_or(-1, AsRawFd::as_raw_fd)
}

impl PciInterrupts for KernelInterrupts {
    fn count(&self) -> u32 {
        self.count
    }

    fn enable(&self, eventfds: &[Option<BorrowedFd<'_>>]) -> Result<(), PciError> {
        let count = u32::try_from(eventfds.len()).unwrap_or(u32::MAX);
        if count == 0 || count > self.count {
            let last = u64::from(count).saturating_sub(1);
            return Err(PciError::Vectors { first: 0, last, count: self.count });
        }
        let copy = |fd: &Option<BorrowedFd<'_>>| fd.map(|fd| fd.try_clone_to_owned()).transpose();
        let targets = eventfds.iter().map(copy).collect::<io::Result<Vec<_>>>();
        let targets = targets.map_err(self.failed("copying an eventfd"))?;
        let mut enabled = self.lock();
        if !enabled.is_empty() {
            self.disable_all().map_err(self.failed("disabling interrupts"))?;
            enabled.clear();
        }
        let fds = targets.iter().map(|fd| raw(fd.as_ref())).collect::<Vec<_>>();
        self.signal(0, &fds).map_err(self.failed("enabling interrupts"))?;
        *enabled = targets.into_iter().map(|target| EnabledVector { target, held: None }).collect();
        Ok(())
    }

    fn disable(&self) -> Result<(), PciError> {
        let mut enabled = self.lock();
        if enabled.is_empty() {
            return Ok(());
        }
        self.disable_all().map_err(self.failed("disabling interrupts"))?;
        enabled.clear();
        Ok(())
    }

    fn set_masked(&self, vector: u32, is_masked: bool) -> Result<(), PciError> {
        let mut enabled = self.lock();
        let count = u32::try_from(enabled.len()).unwrap_or(u32::MAX);
        let found = usize::try_from(vector).ok().and_then(|index| enabled.get_mut(index));
        let Some(found) = found else {
            let number = u64::from(vector);
            return Err(PciError::Vectors { first: number, last: number, count });
        };
        let result = match self.kind {
            InterruptKind::Intx => self.mask_pin(vector, is_masked),
            InterruptKind::Msi | InterruptKind::MsiX if is_masked => self.hold(vector, found),
            InterruptKind::Msi | InterruptKind::MsiX => self.release(vector, found),
            InterruptKind::Error | InterruptKind::Request => {
                let device = self.name.clone();
                return Err(PciError::Unsupported {
                    device,
                    what: "masking notices of the system",
                });
            }
        };
        result.map_err(self.failed("masking an interrupt"))
    }
}
