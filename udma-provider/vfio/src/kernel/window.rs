//! Windows of a function behind VFIO: mapped where the kernel allows it, read and written by calls elsewhere.
//!
//! - owns: the mappings of BARs. takes: accesses. gives: values. must not: cut an access into smaller ones where the
//!   function is mapped.
#![expect(unsafe_code, reason = "loads and stores of device registers")]

use std::{os::fd::OwnedFd, sync::Arc};

use memmap2::{MmapOptions, MmapRaw};
use rustix::io::{pread, pwrite};

use super::query::RegionShape;
use crate::device::{AccessWidth, PciError, PciWindow, check_access};

/// A region of a function.
#[derive(Debug)]
pub(super) struct KernelWindow {
    device: Arc<OwnedFd>,
    name: String,
    len: u64,
    /// Where the region begins in the descriptor.
    start: u64,
    areas: Vec<MappedArea>,
}

/// A mapped part of a region.
#[derive(Debug)]
struct MappedArea {
    offset: u64,
    len: u64,
    map: MmapRaw,
}

impl KernelWindow {
    /// The region `shape` of the function `name`. Areas that cannot be mapped are reached by calls.
    pub(super) fn new(device: Arc<OwnedFd>, name: &str, shape: &RegionShape) -> Self {
        let map = |&(offset, len): &(u64, u64)| {
            let place = shape.offset.checked_add(offset)?;
            let size = usize::try_from(len).ok()?;
            let map = MmapOptions::new().offset(place).len(size).map_raw(&*device).ok()?;
            Some(MappedArea { offset, len, map })
        };
        let areas = shape.mappable.iter().filter_map(map).collect();
        Self { name: name.to_owned(), len: shape.len, start: shape.offset, areas, device }
    }

    /// Address of a range that lies in one mapped area.
    fn mapped(&self, offset: u64, len: u64) -> Option<*mut u8> {
        let area = self.areas.iter().find(|area| {
            offset >= area.offset
                && offset.checked_add(len).is_some_and(|end| end <= area.offset + area.len)
        })?;
        let inside = usize::try_from(offset - area.offset).ok()?;
        Some(area.map.as_mut_ptr().wrapping_add(inside))
    }

    fn failed(&self, what: &'static str, error: rustix::io::Errno) -> PciError {
        if error == rustix::io::Errno::NODEV {
            let why = format!("{what} found no device behind it");
            return PciError::Gone { device: self.name.clone(), why };
        }
        PciError::System { device: self.name.clone(), what, source: error.into() }
    }

    fn cut(&self, what: &'static str, moved: usize) -> PciError {
        let source = std::io::Error::other(format!("only {moved} bytes were moved"));
        PciError::System { device: self.name.clone(), what, source }
    }
}

impl PciWindow for KernelWindow {
    fn len(&self) -> u64 {
        self.len
    }

    fn read(&self, offset: u64, width: AccessWidth) -> Result<u64, PciError> {
        check_access(self.len, offset, width)?;
        if let Some(at) = self.mapped(offset, width.bytes()) {
            // SAFETY: `mapped` returned an address with that many bytes in a mapping that lives as long as
            // `self`; `check_access` showed that it is aligned, as areas begin at pages.
            return Ok(unsafe { load(at, width) });
        }
        let mut bytes = [0; 8];
        let part = bytes.get_mut(..usize::from(width.count())).unwrap_or_default();
        let what = "reading a register";
        let moved = pread(&*self.device, part, self.start + offset)
            .map_err(|error| self.failed(what, error))?;
        if moved == usize::from(width.count()) {
            Ok(u64::from_le_bytes(bytes))
        } else {
            Err(self.cut(what, moved))
        }
    }

    fn write(&self, offset: u64, width: AccessWidth, value: u64) -> Result<(), PciError> {
        check_access(self.len, offset, width)?;
        if let Some(at) = self.mapped(offset, width.bytes()) {
            // SAFETY: as for the load in `read`; the mapping is writable.
            unsafe { store(at, width, value) };
            return Ok(());
        }
        let bytes = value.to_le_bytes();
        let part = bytes.get(..usize::from(width.count())).unwrap_or_default();
        let what = "writing a register";
        let moved = pwrite(&*self.device, part, self.start + offset)
            .map_err(|error| self.failed(what, error))?;
        if moved == part.len() { Ok(()) } else { Err(self.cut(what, moved)) }
    }

    fn is_mapped(&self, offset: u64, len: u64) -> bool {
        self.mapped(offset, len).is_some()
    }
}

/// One load of `width` bytes.
///
/// # Safety
/// `at` has that many bytes, mapped and aligned.
unsafe fn load(at: *mut u8, width: AccessWidth) -> u64 {
    match width {
        // SAFETY: the caller keeps `at` mapped and aligned for this width.
        AccessWidth::W8 => u64::from(unsafe { at.read_volatile() }),
        // SAFETY: the caller keeps `at` mapped and aligned for this width.
        AccessWidth::W16 => u64::from(u16::from_le(unsafe { at.cast::<u16>().read_volatile() })),
        // SAFETY: the caller keeps `at` mapped and aligned for this width.
        AccessWidth::W32 => u64::from(u32::from_le(unsafe { at.cast::<u32>().read_volatile() })),
        // SAFETY: the caller keeps `at` mapped and aligned for this width.
        AccessWidth::W64 => u64::from_le(unsafe { at.cast::<u64>().read_volatile() }),
    }
}

/// One store of the low `width` bytes of `value`.
///
/// # Safety
/// The contract of [`load`], with a writable mapping.
unsafe fn store(at: *mut u8, width: AccessWidth, value: u64) {
    let [a, b, c, d, ..] = value.to_le_bytes();
    match width {
        // SAFETY: the caller keeps `at` mapped, writable and aligned for this width.
        AccessWidth::W8 => unsafe { at.write_volatile(a) },
        // SAFETY: the caller keeps `at` mapped, writable and aligned for this width.
        AccessWidth::W16 => unsafe {
            at.cast::<u16>().write_volatile(u16::from_le_bytes([a, b]).to_le());
        },
        // SAFETY: the caller keeps `at` mapped, writable and aligned for this width.
        AccessWidth::W32 => unsafe {
            at.cast::<u32>().write_volatile(u32::from_le_bytes([a, b, c, d]).to_le());
        },
        // SAFETY: the caller keeps `at` mapped, writable and aligned for this width.
        AccessWidth::W64 => unsafe { at.cast::<u64>().write_volatile(value.to_le()) },
    }
}

#[cfg(test)]
mod tests {
    use rustix::{
        fs::{MemfdFlags, ftruncate, memfd_create},
        io::Errno,
    };

    use super::*;

    /// A file of 4094 bytes, in which a region of 64 bytes begins at 4040: its last ten bytes are not there.
    #[test]
    fn a_region_lies_in_the_descriptor_and_what_is_cut_is_an_error() {
        let fd = memfd_create("window", MemfdFlags::CLOEXEC).unwrap();
        ftruncate(&fd, 4094).unwrap();
        pwrite(&fd, &[1, 2, 3, 4, 5, 6, 7, 8], 4048).unwrap();
        let device = Arc::new(fd);
        let shape = RegionShape { len: 64, offset: 4040, mappable: Vec::new() };
        let window = KernelWindow::new(Arc::clone(&device), "toy", &shape);
        assert_eq!(window.read(8, AccessWidth::W32).unwrap(), 0x0403_0201);
        window.write(16, AccessWidth::W16, 0xFFFF_0A09).unwrap();
        let mut bytes = [0; 4];
        pread(&*device, &mut bytes, 4055).unwrap();
        assert_eq!(bytes, [8, 9, 10, 0], "behind the last byte of before");
        let text = |result: Result<u64, PciError>| result.unwrap_err().to_string();
        let cut = text(window.read(48, AccessWidth::W64));
        assert_eq!(cut, "reading a register of toy failed: only 6 bytes were moved");
        assert_eq!(window.read(52, AccessWidth::W16).unwrap(), 0);
        let cut = text(window.read(56, AccessWidth::W64));
        assert_eq!(cut, "reading a register of toy failed: only 0 bytes were moved");
        let gone = window.failed("reading a register", Errno::NODEV).to_string();
        assert_eq!(gone, "toy is gone: reading a register found no device behind it");
        let failed = window.failed("writing a register", Errno::IO).to_string();
        assert_eq!(failed, "writing a register of toy failed: Input/output error (os error 5)");
    }
}
