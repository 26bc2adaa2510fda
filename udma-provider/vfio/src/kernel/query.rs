//! Questions to VFIO, with typed answers.
//!
//! - owns: the two-call protocol for structures with capabilities. takes: descriptors. gives: facts. must not: keep them.

use std::{io, os::fd::BorrowedFd};

use vfio_bindings::bindings::vfio as c;
use zerocopy::{FromBytes, Immutable, IntoBytes};

use super::{
    calls::{StructCommand, VfioCalls},
    layout::{IommuFacts, NumberPair, RegionFacts, capability, pairs},
};

/// Longest structure that is asked for: a page of the kernel's is many times what any function needs.
const LEN_MAX: usize = 64 << 10;

/// A region of a function.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct RegionShape {
    /// Length in bytes; 0 if there is none.
    pub(super) len: u64,
    /// Where it begins in the function's descriptor.
    pub(super) offset: u64,
    /// Areas that may be mapped, as (offset, length).
    pub(super) mappable: Vec<(u64, u64)>,
}

/// What the IOMMU of a container can map.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct IommuShape {
    /// Smallest page in bytes.
    pub(super) page: u64,
    /// Usable device addresses, as (first, last).
    pub(super) ranges: Vec<(u64, u64)>,
}

/// Fills `facts` by one call.
pub(super) fn ask<T: FromBytes + IntoBytes + Immutable>(
    calls: &dyn VfioCalls,
    fd: BorrowedFd<'_>,
    command: StructCommand,
    facts: &mut T,
) -> io::Result<i32> {
    calls.structure(fd, command, facts.as_mut_bytes())
}

/// The whole answer to a structure with capabilities: asked again with the length that the kernel wants.
fn ask_whole(
    calls: &dyn VfioCalls,
    fd: BorrowedFd<'_>,
    command: StructCommand,
    head: &[u8],
) -> io::Result<Vec<u8>> {
    let mut bytes = head.to_vec();
    loop {
        calls.structure(fd, command, &mut bytes)?;
        let (wanted, _) =
            u32::read_from_prefix(&bytes).map_err(|_| io::ErrorKind::UnexpectedEof)?;
        let wanted = usize::try_from(wanted).unwrap_or(usize::MAX);
        if wanted <= bytes.len() {
            return Ok(bytes);
        }
        if wanted > LEN_MAX {
            return Err(io::Error::other(format!(
                "the kernel wants {wanted} bytes for {command:?}; at most {LEN_MAX} are given"
            )));
        }
        bytes = head.to_vec();
        bytes.resize(wanted, 0);
    }
}

fn cut() -> io::Error {
    io::ErrorKind::UnexpectedEof.into()
}

/// Region `index` of a function.
pub(super) fn region(
    calls: &dyn VfioCalls,
    fd: BorrowedFd<'_>,
    index: u32,
) -> io::Result<RegionShape> {
    let head = RegionFacts { index, ..RegionFacts::default() };
    let bytes = ask_whole(calls, fd, StructCommand::RegionFacts, head.as_bytes())?;
    let (facts, _) = RegionFacts::read_from_prefix(&bytes).map_err(|_| cut())?;
    let whole = || vec![(0, facts.size)];
    let mappable = if facts.flags & c::VFIO_REGION_INFO_FLAG_MMAP == 0 {
        Vec::new()
    } else if facts.flags & c::VFIO_REGION_INFO_FLAG_CAPS == 0 {
        whole()
    } else {
        let sparse =
            capability(&bytes, facts.cap_offset, c::VFIO_REGION_INFO_CAP_SPARSE_MMAP).map(pairs);
        let inside = |area: &(u64, u64)| {
            area.1 > 0 && area.0.checked_add(area.1).is_some_and(|end| end <= facts.size)
        };
        sparse.map_or_else(whole, |areas| {
            areas.into_iter().map(|NumberPair(offset, len)| (offset, len)).filter(inside).collect()
        })
    };
    Ok(RegionShape { len: facts.size, offset: facts.offset, mappable })
}

/// The IOMMU of a container.
pub(super) fn iommu(calls: &dyn VfioCalls, container: BorrowedFd<'_>) -> io::Result<IommuShape> {
    let head = IommuFacts::default();
    let bytes = ask_whole(calls, container, StructCommand::IommuFacts, head.as_bytes())?;
    let (facts, _) = IommuFacts::read_from_prefix(&bytes).map_err(|_| cut())?;
    let has_sizes = facts.flags & c::VFIO_IOMMU_INFO_PGSIZES != 0 && facts.iova_pgsizes != 0;
    let page = if has_sizes { 1 << facts.iova_pgsizes.trailing_zeros() } else { 4096 };
    let has_chain = facts.flags & c::VFIO_IOMMU_INFO_CAPS != 0;
    let first = if has_chain { facts.cap_offset } else { 0 };
    let ranges = capability(&bytes, first, c::VFIO_IOMMU_TYPE1_INFO_CAP_IOVA_RANGE).map(pairs);
    // A kernel before 5.4 does not say: every such IOMMU has 39 bits at least, and x86 puts its interrupts
    // below 4 GiB, where addresses are left out.
    let ranges = ranges.unwrap_or_else(|| vec![NumberPair(1 << 32, (1 << 39) - 1)]);
    let ranges = ranges.into_iter().map(|NumberPair(first, last)| (first, last));
    Ok(IommuShape { page, ranges: ranges.filter(|(first, last)| first <= last).collect() })
}
