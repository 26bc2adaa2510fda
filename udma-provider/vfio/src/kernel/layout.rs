//! Structures of the VFIO interface, as bytes.
//!
//! - owns: layouts, checked against `vfio-bindings` when this is compiled. gives: values that have safe conversions
//!   from and to bytes. must not: call the kernel.

use vfio_bindings::bindings::vfio as c;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

/// Declares a structure of the kernel, with its size and the place of each field checked. The first field is always
/// its length in bytes.
macro_rules! structure {
    ($(#[$doc:meta])* $name:ident = $c:ty { $($field:ident: $ty:ty),* $(,)? }) => {
        $(#[$doc])*
        #[derive(
            Clone, Copy, Debug, Default,
            zerocopy::FromBytes, zerocopy::IntoBytes, zerocopy::Immutable, zerocopy::KnownLayout,
        )]
        #[repr(C)]
        pub(super) struct $name {
            $(pub(super) $field: $ty,)*
        }
        const _: () = assert!(size_of::<$name>() == size_of::<$c>());
        $(const _: () = assert!(
            std::mem::offset_of!($name, $field) == std::mem::offset_of!($c, $field)
        );)*
    };
}
#[cfg(any(test, feature = "iommufd"))]
pub(super) use structure;

structure!(
    /// Whether all functions of a group are in the hands of VFIO.
    GroupStatus = c::vfio_group_status { argsz: u32, flags: u32 }
);
structure!(
    /// What a function has.
    DeviceFacts = c::vfio_device_info {
        argsz: u32, flags: u32, num_regions: u32, num_irqs: u32, cap_offset: u32, pad: u32,
    }
);
structure!(
    /// A region of a function.
    RegionFacts = c::vfio_region_info {
        argsz: u32, flags: u32, index: u32, cap_offset: u32, size: u64, offset: u64,
    }
);
structure!(
    /// Interrupts of one index.
    IrqFacts = c::vfio_irq_info { argsz: u32, flags: u32, index: u32, count: u32 }
);
structure!(
    /// Head of a change of interrupts; descriptors follow.
    IrqSet = c::vfio_irq_set { argsz: u32, flags: u32, index: u32, start: u32, count: u32 }
);
structure!(
    /// What the IOMMU can map.
    IommuFacts = c::vfio_iommu_type1_info {
        argsz: u32, flags: u32, iova_pgsizes: u64, cap_offset: u32, pad: u32,
    }
);
structure!(
    /// A mapping to make.
    DmaMap = c::vfio_iommu_type1_dma_map {
        argsz: u32, flags: u32, vaddr: u64, iova: u64, size: u64,
    }
);
structure!(
    /// A range of device addresses to unmap.
    DmaUnmap = c::vfio_iommu_type1_dma_unmap { argsz: u32, flags: u32, iova: u64, size: u64 }
);

/// Head of an entry in a chain of capabilities.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub(super) struct CapabilityHead {
    pub(super) id: u16,
    pub(super) version: u16,
    /// Offset of the next entry from the start of the structure, 0 at the end.
    pub(super) next: u32,
}
const _: () = assert!(size_of::<CapabilityHead>() == size_of::<c::vfio_info_cap_header>());

/// Two 64-bit numbers: an area of a region (offset, length), or a range of device addresses (first, last).
#[derive(Clone, Copy, PartialEq, Eq, Debug, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub(super) struct NumberPair(pub(super) u64, pub(super) u64);
const _: () = assert!(size_of::<NumberPair>() == size_of::<c::vfio_region_sparse_mmap_area>());
const _: () = assert!(size_of::<NumberPair>() == size_of::<c::vfio_iova_range>());

/// The entry `id` of the chain that starts at `first` in `bytes`, without its head. Offsets are the kernel's, and
/// are checked all the same: a chain that leaves `bytes` or runs in a circle ends there.
pub(super) fn capability(bytes: &[u8], first: u32, id: u32) -> Option<&[u8]> {
    let mut at = usize::try_from(first).ok()?;
    // Each entry has 8 bytes at least, so a longer chain is a circle.
    for _ in 0..bytes.len() / size_of::<CapabilityHead>() {
        if at == 0 {
            return None;
        }
        let (head, rest) = CapabilityHead::read_from_prefix(bytes.get(at..)?).ok()?;
        if u32::from(head.id) == id {
            return Some(rest);
        }
        at = usize::try_from(head.next).ok()?;
    }
    None
}

/// The pairs of a capability that holds a count, a reserved word, and that many pairs.
pub(super) fn pairs(body: &[u8]) -> Vec<NumberPair> {
    let Ok(([count, _reserved], rest)) = <[u32; 2]>::read_from_prefix(body) else {
        return Vec::new();
    };
    let count = usize::try_from(count).unwrap_or(usize::MAX);
    let chunks = rest.chunks_exact(size_of::<NumberPair>()).take(count);
    chunks.filter_map(|chunk| NumberPair::read_from_bytes(chunk).ok()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn chain(entries: &[(u16, u32)]) -> Vec<u8> {
        let mut bytes = vec![0; 8];
        for (id, next) in entries {
            bytes.extend(CapabilityHead { id: *id, version: 1, next: *next }.as_bytes());
        }
        bytes
    }

    #[test]
    fn capabilities_are_found_in_order() {
        let mut bytes = chain(&[(3, 16), (1, 0)]);
        bytes.extend([2, 0, 0, 0, 0, 0, 0, 0]);
        bytes.extend(NumberPair(0, 0xFEDF_FFFF).as_bytes());
        bytes.extend(NumberPair(0xFEF0_0000, 0xFF_FFFF_FFFF).as_bytes());
        let found = capability(&bytes, 8, 1).map(pairs);
        assert_eq!(
            found,
            Some(vec![NumberPair(0, 0xFEDF_FFFF), NumberPair(0xFEF0_0000, 0xFF_FFFF_FFFF)])
        );
        assert_eq!(capability(&bytes, 8, 7), None);
        assert_eq!(capability(&bytes, 0, 3), None);
        // The head of the structure is no entry, and the last one may be the last of its bytes.
        let last = chain(&[(3, 16), (4, 24), (5, 0)]);
        assert_eq!(capability(&last[8..], 0, 3), None);
        assert_eq!(capability(&last, 8, 5), Some(&[][..]));
    }

    #[test]
    fn chains_that_lead_nowhere_end() {
        assert_eq!(capability(&chain(&[(3, 8)]), 8, 1), None, "circle");
        assert_eq!(capability(&chain(&[(3, 4000)]), 8, 1), None, "outside");
        assert_eq!(capability(&[0; 10], 8, 0), None, "cut");
        assert_eq!(pairs(&[255, 255, 255, 255, 0, 0, 0, 0, 1]), Vec::new(), "cut pair");
    }
}
