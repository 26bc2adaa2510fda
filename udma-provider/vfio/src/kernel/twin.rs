//! A kernel for tests: VFIO with one function, whose descriptor is a file in memory.
//!
//! - owns: what was mapped and enabled. takes: faults to have. gives: the answers of VFIO, also those that a machine at
//!   hand does not give.
#![expect(unsafe_code, reason = "descriptors that arrive as numbers, and the contract of map_dma")]

use std::{
    collections::BTreeMap,
    ffi::CStr,
    io,
    os::{
        fd::{AsFd, BorrowedFd, OwnedFd},
        unix::net::UnixStream,
    },
    path::{Path, PathBuf},
    sync::{Mutex, MutexGuard},
};

use rustix::fs::{MemfdFlags, fstat, ftruncate, memfd_create};
use udma_abi::DmaAccess;
use vfio_bindings::bindings::vfio as c;
use zerocopy::{FromBytes, IntoBytes};

use super::{
    calls::{NumberCommand, StructCommand, VfioCalls},
    iommu_calls::{FoundRanges, IommuCalls, IommuCommand, IommufdBind, SpaceMap, SpaceUnmap},
    layout::{
        CapabilityHead, DeviceFacts, DmaMap, DmaUnmap, GroupStatus, IommuFacts, IrqFacts, IrqSet,
        NumberPair, RegionFacts,
    },
    twin_iommu::{TwinIommu, TwinMaps},
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
    /// The function is of another bus.
    pub(super) is_no_pci: bool,
    /// Error of opening a file whose path ends so.
    pub(super) open: Option<(&'static str, i32)>,
    /// Error of each mapping.
    pub(super) map: Option<i32>,
    /// Unmaps this many bytes fewer than asked for.
    pub(super) unmap_short: u64,
    /// Length that it wants for structures with capabilities.
    pub(super) wants: Option<u32>,
    /// Flags and page sizes of a container's IOMMU, without a list of usable ranges.
    pub(super) iommu: Option<(u32, u64)>,
    /// Flags and areas of the first region.
    pub(super) areas: Option<(u32, Vec<NumberPair>)>,
    /// Error of binding to an iommufd.
    pub(super) bind: Option<i32>,
    /// Number of usable ranges that iommufd says it has.
    pub(super) ranges: Option<usize>,
    /// Error of joining a container.
    pub(super) container: Option<i32>,
    /// It says when it wants the function back.
    pub(super) has_request: bool,
    /// Error of asking for interrupts.
    pub(super) irqs: Option<i32>,
    /// Error of setting the IOMMU of a container.
    pub(super) set_iommu: Option<i32>,
}

/// The kernel of the tests.
#[derive(Debug, Default)]
pub(super) struct Twin {
    pub(super) faults: Mutex<TwinFaults>,
    state: Mutex<TwinState>,
}

#[derive(Debug, Default)]
struct TwinState {
    /// Paths of files that were opened, by inode.
    paths: BTreeMap<u64, PathBuf>,
    /// The other end of the group's descriptor, which shows whether that is still open.
    group: Option<UnixStream>,
    iommu: TwinIommu,
    maps: TwinMaps,
    vectors: BTreeMap<(u32, u32), OwnedFd>,
    masked: Vec<u32>,
    resets: u32,
    /// Descriptor of the function, by which tests look into it.
    device: Option<OwnedFd>,
    /// Every call with its arguments, in order.
    calls: Vec<String>,
}

impl Twin {
    fn lock(&self) -> MutexGuard<'_, TwinState> {
        self.state.lock().unwrap()
    }

    fn faults(&self) -> TwinFaults {
        self.faults.lock().unwrap().clone()
    }

    pub(super) fn maps(&self) -> TwinMaps {
        self.lock().maps.clone()
    }

    /// Address spaces of iommufd that live, and whether the function is attached to one.
    pub(super) fn iommu_objects(&self) -> (usize, bool) {
        self.lock().iommu.objects()
    }

    /// Whether commands to `fd` are refused: a character device that is not bound to an iommufd.
    fn is_blocked(&self, fd: BorrowedFd<'_>) -> bool {
        let state = self.lock();
        let is_device = state.path(fd).is_some_and(|path| path.ends_with("vfio0"));
        is_device && !state.iommu.is_bound
    }

    pub(super) fn resets(&self) -> u32 {
        self.lock().resets
    }

    /// The word of the function's registers at an offset, as the function sees it.
    pub(super) fn stored(&self, offset: u64) -> u64 {
        let mut word = [0; 8];
        rustix::io::pread(self.lock().device.as_ref().unwrap(), &mut word, offset).unwrap();
        u64::from_le_bytes(word)
    }

    /// The calls since the last look.
    pub(super) fn calls(&self) -> Vec<String> {
        std::mem::take(&mut self.lock().calls)
    }

    fn note(&self, call: String) {
        self.lock().calls.push(call);
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
        let flags = c::VFIO_REGION_INFO_FLAG_MMAP | c::VFIO_REGION_INFO_FLAG_CAPS;
        let usual = (flags, vec![NumberPair(4096, 4096)]);
        let (flags, areas) = self.faults().areas.unwrap_or(usual);
        let sparse = [u32::try_from(areas.len()).unwrap(), 0];
        let whole = size_of::<RegionFacts>() + 8 + 8 + 16 * areas.len();
        match facts.index {
            0 => {
                (facts.size, facts.offset) = (BAR_LEN, 0);
                facts.flags = flags;
                let len = u32::try_from(whole).unwrap();
                facts.argsz = self.faults().wants.unwrap_or(len);
                if bytes.len() >= whole {
                    facts.cap_offset = 32;
                    let head = CapabilityHead { id: 1, version: 1, next: 0 };
                    let chain = [head.as_bytes(), sparse.as_bytes(), areas.as_bytes()].concat();
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
        let mut state = self.lock();
        if state.is_group_closed() {
            return Err(io::ErrorKind::InvalidInput.into());
        }
        let found = state.maps.remove(&range.iova).map_or(0, |(len, _)| len);
        range.size = found - self.faults().unmap_short.min(found);
        range.write_to_prefix(bytes).unwrap();
        Ok(0)
    }
}

impl TwinState {
    fn path(&self, fd: BorrowedFd<'_>) -> Option<&PathBuf> {
        self.paths.get(&fstat(fd).ok()?.st_ino)
    }

    /// Whether the group has left its container, which has no IOMMU then.
    fn is_group_closed(&self) -> bool {
        let read = |other: &UnixStream| rustix::io::read(other, &mut [0; 1]);
        self.group.as_ref().is_none_or(|other| read(other) == Ok(0))
    }
}

/// Usable device addresses of the function.
const USABLE: [NumberPair; 2] = [NumberPair(0x1000, 0xF_FFFF), NumberPair(0x20_0000, 0xFF_FFFF)];

fn fill<T: IntoBytes + zerocopy::Immutable>(bytes: &mut [u8], facts: &T) -> io::Result<i32> {
    facts.write_to_prefix(bytes).unwrap();
    Ok(0)
}

/// The words of a structure behind its length, without zeros at its end; a descriptor, which has another number in each
/// run, is `fd`.
fn words(bytes: &[u8], fds_from: usize) -> String {
    let words = bytes.chunks_exact(4).map(|word| u32::read_from_bytes(word).unwrap());
    let mut words: Vec<u32> = words.skip(1).collect();
    let used = words.iter().rposition(|word| *word != 0).map_or(0, |last| last + 1);
    words.truncate(used);
    let shown = words.iter().enumerate().map(|(at, word)| match word {
        &u32::MAX => " none".to_owned(),
        _ if at >= fds_from => " fd".to_owned(),
        word => format!(" {word:#x}"),
    });
    shown.collect()
}

fn file(len: u64) -> io::Result<OwnedFd> {
    let fd = memfd_create("twin", MemfdFlags::CLOEXEC)?;
    ftruncate(&fd, len)?;
    Ok(fd)
}

/// The descriptor of the function: ids of no device, and a command register that is off.
fn device_file() -> io::Result<OwnedFd> {
    let fd = file(2 << 20)?;
    rustix::io::pwrite(fd.as_fd(), &[0x08, 0xCC, 0x01, 0xA0, 0, 0], CONFIG_AT)?;
    Ok(fd)
}

impl IommuCalls for Twin {
    fn iommu(&self, fd: BorrowedFd<'_>, command: IommuCommand, bytes: &mut [u8]) -> io::Result<()> {
        let fds_from = if command == IommuCommand::Bind { 1 } else { usize::MAX };
        self.note(format!("{command:?}{}", words(bytes, fds_from)));
        let TwinFaults { bind, unmap_short, .. } = self.faults();
        let mut state = self.lock();
        let state = &mut *state;
        if state.path(fd).is_some_and(|path| path.ends_with("vfio0")) {
            if let (IommuCommand::Bind, Some(error)) = (command, bind) {
                return Err(io::Error::from_raw_os_error(error));
            }
            if command == IommuCommand::Bind {
                let number = IommufdBind::read_from_bytes(bytes).unwrap().iommufd;
                // SAFETY: the caller holds the descriptor open during the call, as callers of the kernel do.
                let iommufd = unsafe { BorrowedFd::borrow_raw(number) };
                assert!(state.path(iommufd).is_some_and(|path| path.ends_with("iommu")));
            }
            return state.iommu.of_device(command, bytes);
        }
        state.iommu.of_iommufd(command, bytes, &mut state.maps)?;
        if command == IommuCommand::UnmapSpace && unmap_short > 0 {
            let (mut range, _) = SpaceUnmap::read_from_prefix(&*bytes).unwrap();
            range.length -= unmap_short;
            range.write_to_prefix(bytes).unwrap();
        }
        Ok(())
    }

    fn iova_ranges(
        &self,
        _: BorrowedFd<'_>,
        ioas: u32,
        ranges: &mut [NumberPair],
    ) -> io::Result<FoundRanges> {
        self.note(format!("IovaRanges {ioas} {}", ranges.len()));
        let found = self.lock().iommu.ranges(ioas, &USABLE, ranges)?;
        Ok(FoundRanges { count: self.faults().ranges.unwrap_or(found.count), ..found })
    }

    // SAFETY: this kernel only notes the range; it never reaches the memory.
    unsafe fn map_space(&self, _: BorrowedFd<'_>, map: &SpaceMap) -> io::Result<()> {
        let SpaceMap { flags, ioas_id, user_va, length, iova, .. } = map;
        self.note(format!("map {flags:#x} {ioas_id} {user_va:#x} {iova:#x} {length:#x}"));
        if let Some(error) = self.faults().map {
            return Err(io::Error::from_raw_os_error(error));
        }
        let mut state = self.lock();
        let state = &mut *state;
        state.iommu.map(map, &mut state.maps)
    }
}

impl VfioCalls for Twin {
    fn open(&self, path: &Path) -> io::Result<OwnedFd> {
        self.note(format!("open {}", path.display()));
        let mut state = self.lock();
        let fd = match self.faults().open {
            Some((end, error)) if path.ends_with(end) => {
                return Err(io::Error::from_raw_os_error(error));
            }
            _ if path.ends_with("vfio0") => device_file()?,
            _ if path.ends_with("7") => {
                let (group, other) = UnixStream::pair()?;
                other.set_nonblocking(true)?;
                state.group = Some(other);
                group.into()
            }
            _ => file(0)?,
        };
        state.paths.insert(fstat(&fd)?.st_ino, path.to_path_buf());
        Ok(fd)
    }

    fn number(&self, fd: BorrowedFd<'_>, command: NumberCommand, number: u32) -> io::Result<i32> {
        self.note(format!("{command:?} {number}"));
        if self.is_blocked(fd) {
            return Err(io::ErrorKind::InvalidInput.into());
        }
        let faults = self.faults();
        Ok(match command {
            NumberCommand::ApiVersion => faults.version,
            NumberCommand::CheckExtension => i32::from(!faults.has_no_iommu),
            NumberCommand::SetIommu => {
                faults.set_iommu.map_or(Ok(0), |error| Err(io::Error::from_raw_os_error(error)))?
            }
            NumberCommand::Reset => {
                self.lock().resets += 1;
                0
            }
        })
    }

    fn structure(
        &self,
        fd: BorrowedFd<'_>,
        command: StructCommand,
        bytes: &mut [u8],
    ) -> io::Result<i32> {
        let fds_from = if command == StructCommand::SetIrqs { 4 } else { usize::MAX };
        self.note(format!("{command:?}{}", words(bytes, fds_from)));
        if self.is_blocked(fd) {
            return Err(io::ErrorKind::InvalidInput.into());
        }
        let faults = self.faults();
        let argsz = u32::try_from(bytes.len()).unwrap();
        match command {
            StructCommand::GroupStatus => {
                let flags = u32::from(!faults.is_group_shared) * c::VFIO_GROUP_FLAGS_VIABLE;
                fill(bytes, &GroupStatus { argsz, flags })
            }
            StructCommand::DeviceFacts => {
                let reset = u32::from(!faults.can_not_reset) * c::VFIO_DEVICE_FLAGS_RESET;
                let pci = u32::from(!faults.is_no_pci) * c::VFIO_DEVICE_FLAGS_PCI;
                let flags = pci | reset;
                fill(bytes, &DeviceFacts { argsz, flags, ..DeviceFacts::default() })
            }
            StructCommand::RegionFacts => self.region(bytes),
            StructCommand::IrqFacts => {
                if let Some(error) = faults.irqs {
                    return Err(io::Error::from_raw_os_error(error));
                }
                let (facts, _) = IrqFacts::read_from_prefix(&*bytes).unwrap();
                let count = match facts.index {
                    0 => 1,
                    2 => VECTORS,
                    4 => u32::from(faults.has_request),
                    3 => return Err(io::ErrorKind::InvalidInput.into()),
                    _ => 0,
                };
                fill(bytes, &IrqFacts { argsz, count, ..facts })
            }
            StructCommand::SetIrqs => self.set_irqs(bytes),
            StructCommand::IommuFacts => {
                let flags = c::VFIO_IOMMU_INFO_PGSIZES | c::VFIO_IOMMU_INFO_CAPS;
                let head = CapabilityHead { id: 1, version: 1, next: 0 };
                let chain = [head.as_bytes(), [2_u32, 0].as_bytes(), USABLE.as_bytes()].concat();
                let len = size_of::<IommuFacts>() + chain.len();
                if let Some((flags, iova_pgsizes)) = faults.iommu {
                    let argsz = u32::try_from(size_of::<IommuFacts>()).unwrap();
                    return fill(
                        bytes,
                        &IommuFacts { argsz, flags, iova_pgsizes, ..Default::default() },
                    );
                }
                let is_whole = bytes.len() >= len;
                let cap_offset = u32::from(is_whole) * 24;
                let argsz = u32::try_from(len).unwrap();
                if is_whole {
                    bytes[24..24 + chain.len()].copy_from_slice(&chain);
                }
                fill(bytes, &IommuFacts { argsz, flags, iova_pgsizes: !0xFFF, cap_offset, pad: 0 })
            }
            StructCommand::UnmapDma => self.unmap(bytes),
        }
    }

    fn set_container(&self, _: BorrowedFd<'_>, _: BorrowedFd<'_>) -> io::Result<()> {
        self.note("join".to_owned());
        let error = self.faults().container;
        error.map_or(Ok(()), |error| Err(io::Error::from_raw_os_error(error)))
    }

    fn device(&self, _: BorrowedFd<'_>, name: &CStr) -> io::Result<OwnedFd> {
        self.note(format!("function {}", name.to_string_lossy()));
        let device = device_file()?;
        self.lock().device = Some(device.try_clone()?);
        Ok(device)
    }

    // SAFETY: this kernel only notes the range; it never reaches the memory.
    unsafe fn map_dma(&self, _: BorrowedFd<'_>, map: &DmaMap) -> io::Result<()> {
        let DmaMap { argsz, flags, vaddr, iova, size } = map;
        self.note(format!("map {argsz} {flags:#x} {vaddr:#x} {iova:#x} {size:#x}"));
        if let Some(error) = self.faults().map {
            return Err(io::Error::from_raw_os_error(error));
        }
        let is_both = map.flags == c::VFIO_DMA_MAP_FLAG_READ | c::VFIO_DMA_MAP_FLAG_WRITE;
        let access = if is_both { DmaAccess::Both } else { DmaAccess::ToDevice };
        self.lock().maps.insert(map.iova, (map.size, access));
        Ok(())
    }
}
