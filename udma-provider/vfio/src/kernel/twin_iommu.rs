//! iommufd of the kernel for tests, with the rules of Linux: what needs what, and what is refused.
//!
//! - owns: address spaces, and whether the function is bound and attached. takes: commands. gives: the answers of
//!   iommufd. must not: keep memory.

use std::{
    collections::{BTreeMap, BTreeSet},
    io,
};

use iommufd_bindings as i;
use udma_abi::DmaAccess;
use zerocopy::{FromBytes, Immutable, IntoBytes};

use super::{
    iommu_calls::{
        FoundRanges, IommuCommand, ObjectDestroy, SpaceAlloc, SpaceAttach, SpaceDetach, SpaceMap,
        SpaceUnmap,
    },
    layout::NumberPair,
};

/// Mapped ranges: first address, with length and what the function may do.
pub(super) type TwinMaps = BTreeMap<u64, (u64, DmaAccess)>;

/// Where a mapping comes that names no address.
const CHOSEN: u64 = 0x20_0000;

/// The iommufd side of the twin.
#[derive(Debug, Default)]
pub(super) struct TwinIommu {
    spaces: BTreeSet<u32>,
    made: u32,
    pub(super) is_bound: bool,
    attached: Option<u32>,
}

fn error<T>(number: i32) -> io::Result<T> {
    Err(io::Error::from_raw_os_error(number))
}

fn read<T: FromBytes>(bytes: &[u8]) -> T {
    T::read_from_bytes(bytes).unwrap()
}

fn write<T: IntoBytes + Immutable>(bytes: &mut [u8], value: &T) {
    value.write_to(bytes).unwrap();
}

impl TwinIommu {
    /// Address spaces that live, and whether the function is attached.
    pub(super) fn objects(&self) -> (usize, bool) {
        (self.spaces.len(), self.attached.is_some())
    }

    fn has(&self, space: u32) -> io::Result<()> {
        if self.spaces.contains(&space) { Ok(()) } else { error(libc::ENOENT) }
    }

    /// A command to the function's file.
    pub(super) fn of_device(&mut self, command: IommuCommand, bytes: &[u8]) -> io::Result<()> {
        if (command == IommuCommand::Bind) == self.is_bound {
            return error(libc::EINVAL);
        }
        match command {
            IommuCommand::Bind => self.is_bound = true,
            IommuCommand::Attach => {
                let SpaceAttach { flags: 0, pt_id, .. } = read(bytes) else {
                    return error(libc::EINVAL);
                };
                self.has(pt_id)?;
                self.attached = Some(pt_id);
            }
            IommuCommand::Detach => {
                let SpaceDetach { flags: 0, .. } = read(bytes) else { return error(libc::EINVAL) };
                self.attached = None;
            }
            _ => return error(libc::ENOTTY),
        }
        Ok(())
    }

    /// A command to the file of iommufd.
    pub(super) fn of_iommufd(
        &mut self,
        command: IommuCommand,
        bytes: &mut [u8],
        maps: &mut TwinMaps,
    ) -> io::Result<()> {
        match command {
            IommuCommand::AllocSpace => {
                // Numbers of other objects are in between, so no two are alike by chance.
                self.made += 3;
                self.spaces.insert(self.made);
                write(bytes, &SpaceAlloc { out_ioas_id: self.made, ..read(bytes) });
            }
            IommuCommand::Destroy => {
                let ObjectDestroy { id, .. } = read(bytes);
                self.has(id)?;
                if self.attached == Some(id) {
                    return error(libc::EBUSY);
                }
                self.spaces.remove(&id);
                maps.clear();
            }
            IommuCommand::UnmapSpace => {
                let mut range: SpaceUnmap = read(bytes);
                self.has(range.ioas_id)?;
                let Some((len, _)) = maps.get(&range.iova) else { return error(libc::ENOENT) };
                if range.length < *len {
                    return error(libc::ENOENT);
                }
                range.length = maps.remove(&range.iova).map_or(0, |(len, _)| len);
                write(bytes, &range);
            }
            _ => return error(libc::ENOTTY),
        }
        Ok(())
    }

    /// Usable addresses: all, until a function is attached.
    pub(super) fn ranges(
        &self,
        space: u32,
        usable: &[NumberPair],
        room: &mut [NumberPair],
    ) -> io::Result<FoundRanges> {
        self.has(space)?;
        let (found, alignment) = match self.attached {
            Some(attached) if attached == space => (usable, 4096),
            _ => (&[NumberPair(0, u64::MAX)][..], 1),
        };
        for (place, range) in room.iter_mut().zip(found) {
            *place = *range;
        }
        Ok(FoundRanges { count: found.len(), alignment })
    }

    /// Notes a mapping, at the address that the kernel would choose if it names none.
    pub(super) fn map(&self, map: &SpaceMap, maps: &mut TwinMaps) -> io::Result<()> {
        self.has(map.ioas_id)?;
        let has = |flag| map.flags & flag != 0;
        if !has(i::iommufd_ioas_map_flags_IOMMU_IOAS_MAP_READABLE) {
            return error(libc::EINVAL);
        }
        let is_fixed = has(i::iommufd_ioas_map_flags_IOMMU_IOAS_MAP_FIXED_IOVA);
        let is_both = has(i::iommufd_ioas_map_flags_IOMMU_IOAS_MAP_WRITEABLE);
        let iova = if is_fixed { map.iova } else { CHOSEN };
        let access = if is_both { DmaAccess::Both } else { DmaAccess::ToDevice };
        maps.insert(iova, (map.length, access));
        Ok(())
    }
}
