//! Faults between driver and device, each of which a check must find.
//!
//! *Owns*: layers around a device that works, each with one fault. *Takes*: a check. *Gives*: whether it failed, as it
//! must. *Must not*: leave a fault behind.

use std::{os::fd::BorrowedFd, sync::Arc};

use udma_abi::{BackingError, DmaAccess, DmaSpace};
use udma_vfio::{
    AccessWidth, InterruptKind, PciDevice, PciError, PciInterrupts, PciWindow, WindowId,
};
use urma_mem::Region;

use crate::CheckResult;

/// What a device with a fault does wrong.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum DeviceFault {
    /// Memory that is unmapped stays mapped.
    UnmapForgotten,
    /// Memory that the device may only read is mapped for writing.
    WritableAlways,
    /// Memory is not mapped.
    MapForgotten,
    /// No interrupt is delivered.
    InterruptsLost,
    /// Masking an interrupt does nothing.
    MaskIgnored,
    /// Writes to the configuration space are dropped.
    ConfigReadOnly,
    /// Registers are read at the next offset.
    OffsetWrong,
}

/// A device with a fault.
#[derive(Debug)]
pub(crate) struct FaultyDevice {
    pub(crate) inner: Arc<dyn PciDevice>,
    pub(crate) fault: DeviceFault,
}

/// A part of such a device.
#[derive(Debug)]
struct Faulty<T: ?Sized> {
    fault: DeviceFault,
    inner: Arc<T>,
}

/// Whether the check found the fault: it failed.
pub(crate) fn found(result: CheckResult) -> CheckResult {
    if result.is_err() { Ok(()) } else { Err("the check passed with the fault".to_owned()) }
}

impl PciDevice for FaultyDevice {
    fn name(&self) -> String {
        self.inner.name()
    }

    fn window(&self, id: WindowId) -> Result<Arc<dyn PciWindow>, PciError> {
        let inner = self.inner.window(id)?;
        let is_meant = match self.fault {
            DeviceFault::ConfigReadOnly => id == WindowId::Config,
            DeviceFault::OffsetWrong => id == WindowId::Bar(0),
            _ => false,
        };
        Ok(if is_meant { Arc::new(Faulty { fault: self.fault, inner }) } else { inner })
    }

    fn interrupts(&self, kind: InterruptKind) -> Result<Arc<dyn PciInterrupts>, PciError> {
        let inner = self.inner.interrupts(kind)?;
        Ok(Arc::new(Faulty { fault: self.fault, inner }))
    }

    fn dma(&self) -> Arc<dyn DmaSpace> {
        Arc::new(Faulty { fault: self.fault, inner: self.inner.dma() })
    }

    fn reset(&self) -> Result<(), PciError> {
        self.inner.reset()
    }
}

impl PciWindow for Faulty<dyn PciWindow> {
    fn len(&self) -> u64 {
        self.inner.len()
    }

    fn read(&self, offset: u64, width: AccessWidth) -> Result<u64, PciError> {
        let is_wrong = self.fault == DeviceFault::OffsetWrong;
        self.inner.read(if is_wrong { offset + width.bytes() } else { offset }, width)
    }

    fn write(&self, offset: u64, width: AccessWidth, value: u64) -> Result<(), PciError> {
        if self.fault == DeviceFault::ConfigReadOnly {
            return Ok(());
        }
        self.inner.write(offset, width, value)
    }

    fn is_mapped(&self, offset: u64, len: u64) -> bool {
        self.inner.is_mapped(offset, len)
    }
}

impl PciInterrupts for Faulty<dyn PciInterrupts> {
    fn count(&self) -> u32 {
        self.inner.count()
    }

    fn enable(&self, eventfds: &[Option<BorrowedFd<'_>>]) -> Result<(), PciError> {
        if self.fault == DeviceFault::InterruptsLost {
            return self.inner.enable(&vec![None; eventfds.len()]);
        }
        self.inner.enable(eventfds)
    }

    fn disable(&self) -> Result<(), PciError> {
        self.inner.disable()
    }

    fn set_masked(&self, vector: u32, is_masked: bool) -> Result<(), PciError> {
        if self.fault == DeviceFault::MaskIgnored {
            return Ok(());
        }
        self.inner.set_masked(vector, is_masked)
    }
}

impl DmaSpace for Faulty<dyn DmaSpace> {
    fn ranges(&self) -> Vec<(u64, u64)> {
        self.inner.ranges()
    }

    fn map(&self, iova: u64, region: &Region, access: DmaAccess) -> Result<(), BackingError> {
        match self.fault {
            DeviceFault::MapForgotten => Ok(()),
            DeviceFault::WritableAlways => self.inner.map(iova, region, DmaAccess::Both),
            _ => self.inner.map(iova, region, access),
        }
    }

    fn unmap(&self, iova: u64) -> Result<(), BackingError> {
        match self.fault {
            DeviceFault::MapForgotten | DeviceFault::UnmapForgotten => Ok(()),
            _ => self.inner.unmap(iova),
        }
    }
}
