//! Structures of iommufd, as bytes.
//!
//! - owns: layouts, checked against `iommufd-bindings` and `vfio-bindings` when this is compiled. must not: call the
//!   kernel.

use iommufd_bindings as i;
use vfio_bindings::bindings::vfio as c;

use super::layout::{NumberPair, structure};

structure!(
    /// Binds a function to an iommufd.
    IommufdBind = c::vfio_device_bind_iommufd {
        argsz: u32, flags: u32, iommufd: i32, out_devid: u32, token_uuid_ptr: u64,
    }
);
structure!(
    /// Gives a function an address space.
    SpaceAttach = c::vfio_device_attach_iommufd_pt { argsz: u32, flags: u32, pt_id: u32, pasid: u32 }
);
structure!(
    /// Takes a function's address space away.
    SpaceDetach = c::vfio_device_detach_iommufd_pt { argsz: u32, flags: u32, pasid: u32 }
);
structure!(
    /// An object to end.
    ObjectDestroy = i::iommu_destroy { size: u32, id: u32 }
);
structure!(
    /// An address space to make.
    SpaceAlloc = i::iommu_ioas_alloc { size: u32, flags: u32, out_ioas_id: u32 }
);
structure!(
    /// Usable device addresses of an address space.
    SpaceRanges = i::iommu_ioas_iova_ranges {
        size: u32, ioas_id: u32, num_iovas: u32, __reserved: u32, allowed_iovas: u64, out_iova_alignment: u64,
    }
);
structure!(
    /// A mapping to make.
    SpaceMap = i::iommu_ioas_map {
        size: u32, flags: u32, ioas_id: u32, __reserved: u32, user_va: u64, length: u64, iova: u64,
    }
);
structure!(
    /// A range of device addresses to unmap.
    SpaceUnmap = i::iommu_ioas_unmap { size: u32, ioas_id: u32, iova: u64, length: u64 }
);
const _: () = assert!(size_of::<NumberPair>() == size_of::<i::iommu_iova_range>());
