//! A kernel for tests: VFIO with one function, whose descriptor is a file in memory.
//!
//! - owns: what was mapped and enabled. takes: faults to have. gives: the answers of VFIO, also those that a machine at
//!   hand does not give.
#![expect(unsafe_code, reason = "descriptors that arrive as numbers, and the contract of map_dma")]

use std::{
    collections::BTreeMap,
    ffi::CStr,
    io,
    os::fd::{AsFd, BorrowedFd, OwnedFd},
    path::Path,
    sync::{Mutex, MutexGuard},
};

use rustix::fs::{MemfdFlags, ftruncate, memfd_create};
use vfio_bindings::bindings::vfio as c;
use zerocopy::{FromBytes, IntoBytes};

use super::{
    calls::{NumberCommand, StructCommand, VfioCalls},
    layout::{
        CapabilityHead, DeviceFacts, DmaMap, DmaUnmap, GroupStatus, IommuFacts, IrqFacts, IrqSet,
        NumberPair, RegionFacts,
    },
};

/// Length of BAR 0: its second page may be mapped.
pub(super) const BAR_LEN: u64 = 8192;
/// Where the configuration space begins in the function's descriptor.
pub(super) const CONFIG_AT: u64 = 1 << 20;
/// Number of vectors of MSI-X.
pub(super) const VECTORS: u32 = 4;

/// What this kernel does wrong or lacks.
#[derive(Clone, Debug, Default)]
pub(super) struct TwinFaults {
    /// Version of the interface.
    pub(super) version: i32,
    pub(super) has_no_iommu: bool,
    pub(super) is_group_shared: bool,
    pub(super) can_not_reset: bool,
    /// Error of opening a file whose path ends so.
    pub(super) open: Option<(&'static str, i32)>,
    /// Error of each mapping.
    pub(super) map: Option<i32>,
    /// Unmaps this many bytes fewer than asked for.
    pub(super) unmap_short: u64,
    /// Length that it wants for structures with capabilities.
    pub(super) wants: Option<u32>,
}

/// The kernel of the tests.
#[derive(Debug, Default)]
pub(super) struct Twin {
    pub(super) faults: Mutex<TwinFaults>,
    state: Mutex<TwinState>,
}

#[derive(Debug, Default)]
struct TwinState {
    maps: BTreeMap<u64, (u64, u32)>,
    vectors: BTreeMap<(u32, u32), OwnedFd>,
    masked: Vec<u32>,
    resets: u32,
}

impl Twin {
    fn lock(&self) -> MutexGuard<'_, TwinState> {
        self.state.lock().unwrap()
    }

    fn faults(&self) -> TwinFaults {
        self.faults.lock().unwrap().clone()
    }

    /// Mapped ranges: first address, with length and flags.
    pub(super) fn maps(&self) -> BTreeMap<u64, (u64, u32)> {
        self.lock().maps.clone()
    }

    pub(super) fn resets(&self) -> u32 {
        self.lock().resets
    }

    /// Vectors of the pin that are masked.
    pub(super) fn masked(&self) -> Vec<u32> {
        self.lock().masked.clone()
    }

    /// The function raises an interrupt; whether anything takes it.
    pub(super) fn raise(&self, index: u32, vector: u32) -> bool {
        let state = self.lock();
        let found = state.vectors.get(&(index, vector));
        found.is_some_and(|fd| rustix::io::write(fd, &1_u64.to_le_bytes()).is_ok())
    }

    fn region(&self, bytes: &mut [u8]) -> io::Result<i32> {
        let (mut facts, _) = RegionFacts::read_from_prefix(&*bytes).unwrap();
        let sparse = [1_u32, 0];
        let whole = size_of::<RegionFacts>() + 8 + 8 + 16;
        match facts.index {
            0 => {
                (facts.size, facts.offset) = (BAR_LEN, 0);
                facts.flags = c::VFIO_REGION_INFO_FLAG_MMAP | c::VFIO_REGION_INFO_FLAG_CAPS;
                let len = u32::try_from(whole).unwrap();
                facts.argsz = self.faults().wants.unwrap_or(len);
                if bytes.len() >= whole {
                    facts.cap_offset = 32;
                    let head = CapabilityHead { id: 1, version: 1, next: 0 };
                    let area = NumberPair(4096, 4096);
                    let chain = [head.as_bytes(), sparse.as_bytes(), area.as_bytes()].concat();
                    bytes[32..32 + chain.len()].copy_from_slice(&chain);
                }
            }
            7 => (facts.size, facts.offset) = (256, CONFIG_AT),
            _ => facts.size = 0,
        }
        facts.write_to_prefix(bytes).unwrap();
        Ok(0)
    }

    fn set_irqs(&self, bytes: &[u8]) -> io::Result<i32> {
        let (set, data) = IrqSet::read_from_prefix(bytes).unwrap();
        let mut state = self.lock();
        let numbers = set.start..set.start + set.count;
        if set.flags & c::VFIO_IRQ_SET_ACTION_MASK != 0 {
            state.masked.extend(numbers);
        } else if set.flags & c::VFIO_IRQ_SET_ACTION_UNMASK != 0 {
            state.masked.retain(|vector| !numbers.contains(vector));
        } else if set.flags & c::VFIO_IRQ_SET_DATA_NONE != 0 {
            state.vectors.retain(|(index, _), _| *index != set.index);
        } else {
            for (vector, raw) in numbers.zip(data.chunks_exact(4)) {
                let number = i32::read_from_bytes(raw).unwrap();
                state.vectors.remove(&(set.index, vector));
                if number >= 0 {
                    // SAFETY: the caller holds the descriptor open during the call, as VFIO's callers do.
                    let fd = unsafe { BorrowedFd::borrow_raw(number) };
                    state.vectors.insert((set.index, vector), fd.try_clone_to_owned()?);
                }
            }
        }
        Ok(0)
    }

    fn unmap(&self, bytes: &mut [u8]) -> io::Result<i32> {
        let (mut range, _) = DmaUnmap::read_from_prefix(&*bytes).unwrap();
        let found = self.lock().maps.remove(&range.iova).map_or(0, |(len, _)| len);
        range.size = found - self.faults().unmap_short.min(found);
        range.write_to_prefix(bytes).unwrap();
        Ok(0)
    }
}

fn fill<T: IntoBytes + zerocopy::Immutable>(bytes: &mut [u8], facts: &T) -> io::Result<i32> {
    facts.write_to_prefix(bytes).unwrap();
    Ok(0)
}

fn file(len: u64) -> io::Result<OwnedFd> {
    let fd = memfd_create("twin", MemfdFlags::CLOEXEC)?;
    ftruncate(&fd, len)?;
    Ok(fd)
}

impl VfioCalls for Twin {
    fn open(&self, path: &Path) -> io::Result<OwnedFd> {
        match self.faults().open {
            Some((end, error)) if path.ends_with(end) => Err(io::Error::from_raw_os_error(error)),
            _ => file(0),
        }
    }

    fn number(&self, _: BorrowedFd<'_>, command: NumberCommand, _: u32) -> io::Result<i32> {
        let faults = self.faults();
        Ok(match command {
            NumberCommand::ApiVersion => faults.version,
            NumberCommand::CheckExtension => i32::from(!faults.has_no_iommu),
            NumberCommand::SetIommu => 0,
            NumberCommand::Reset => {
                self.lock().resets += 1;
                0
            }
        })
    }

    fn structure(
        &self,
        _: BorrowedFd<'_>,
        command: StructCommand,
        bytes: &mut [u8],
    ) -> io::Result<i32> {
        let faults = self.faults();
        let argsz = u32::try_from(bytes.len()).unwrap();
        match command {
            StructCommand::GroupStatus => {
                let flags = u32::from(!faults.is_group_shared) * c::VFIO_GROUP_FLAGS_VIABLE;
                fill(bytes, &GroupStatus { argsz, flags })
            }
            StructCommand::DeviceFacts => {
                let reset = u32::from(!faults.can_not_reset) * c::VFIO_DEVICE_FLAGS_RESET;
                let flags = c::VFIO_DEVICE_FLAGS_PCI | reset;
                fill(bytes, &DeviceFacts { argsz, flags, ..DeviceFacts::default() })
            }
            StructCommand::RegionFacts => self.region(bytes),
            StructCommand::IrqFacts => {
                let (facts, _) = IrqFacts::read_from_prefix(&*bytes).unwrap();
                let count = match facts.index {
                    0 => 1,
                    2 => VECTORS,
                    3 => return Err(io::ErrorKind::InvalidInput.into()),
                    _ => 0,
                };
                fill(bytes, &IrqFacts { argsz, count, ..facts })
            }
            StructCommand::SetIrqs => self.set_irqs(bytes),
            StructCommand::IommuFacts => {
                let flags = c::VFIO_IOMMU_INFO_PGSIZES | c::VFIO_IOMMU_INFO_CAPS;
                let head = CapabilityHead { id: 1, version: 1, next: 0 };
                let ranges = [NumberPair(0x1000, 0xF_FFFF), NumberPair(0x20_0000, 0xFF_FFFF)];
                let chain = [head.as_bytes(), [2_u32, 0].as_bytes(), ranges.as_bytes()].concat();
                let len = size_of::<IommuFacts>() + chain.len();
                let is_whole = bytes.len() >= len;
                let cap_offset = u32::from(is_whole) * 24;
                let argsz = u32::try_from(len).unwrap();
                if is_whole {
                    bytes[24..24 + chain.len()].copy_from_slice(&chain);
                }
                fill(bytes, &IommuFacts { argsz, flags, page_sizes: !0xFFF, cap_offset, pad: 0 })
            }
            StructCommand::UnmapDma => self.unmap(bytes),
        }
    }

    fn set_container(&self, _: BorrowedFd<'_>, _: BorrowedFd<'_>) -> io::Result<()> {
        Ok(())
    }

    fn device(&self, _: BorrowedFd<'_>, _: &CStr) -> io::Result<OwnedFd> {
        let fd = file(2 << 20)?;
        // Ids of no device, and a command register that is off.
        rustix::io::pwrite(fd.as_fd(), &[0x08, 0xCC, 0x01, 0xA0, 0, 0], CONFIG_AT)?;
        Ok(fd)
    }

    // SAFETY: this kernel only notes the range; it never reaches the memory.
    unsafe fn map_dma(&self, _: BorrowedFd<'_>, map: &DmaMap) -> io::Result<()> {
        if let Some(error) = self.faults().map {
            return Err(io::Error::from_raw_os_error(error));
        }
        self.lock().maps.insert(map.iova, (map.size, map.flags));
        Ok(())
    }
}
