//! One mapping at a time from the kernel: `PROCMAP_QUERY` on `/proc/self/maps` (Linux 6.11).
//!
//! Owns: the descriptor and the layout of the call.
//! Takes: an address.
//! Gives: the mapping there, or the next one.
//! Must not: read the list.
#![expect(unsafe_code, reason = "the call has no wrapper")]

use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;

use super::{FoundMapping, Origin, OriginRun, Traits, Unmovable};

/// The mappings of this process.
#[derive(Debug)]
pub(super) struct Query {
    maps: File,
}

impl Query {
    /// # Errors
    /// No `/proc`.
    pub(super) fn new() -> io::Result<Self> {
        Ok(Self { maps: File::open("/proc/self/maps")? })
    }

    /// The mapping that `addr` lies in, or the next one after it.
    ///
    /// # Errors
    /// The kernel does not know the call.
    pub(super) fn at_or_after(&self, addr: usize) -> io::Result<Option<FoundMapping>> {
        let mut name = [0_u8; NAME_MAX];
        match self.ask(addr, &mut name) {
            // Such a name is a file's.
            Err(error) if error.raw_os_error() == Some(libc::ENAMETOOLONG) => {
                self.ask(addr, &mut [])
            }
            Err(error) if error.raw_os_error() == Some(libc::ENOENT) => Ok(None),
            mapped => mapped,
        }
    }

    /// Origin of the mapping that `addr` lies in, or of the next one.
    ///
    /// # Errors
    /// The kernel does not know the call.
    #[inline]
    pub(super) fn origin_at(&self, addr: usize) -> io::Result<Option<OriginRun>> {
        match self.ask(addr, &mut []) {
            Err(error) if error.raw_os_error() == Some(libc::ENOENT) => Ok(None),
            found => {
                let run = |found: FoundMapping| OriginRun {
                    start: found.start,
                    end: found.end,
                    origin: found.origin,
                    is_writable: found.is_writable,
                };
                found.map(|found| found.map(run))
            }
        }
    }

    fn ask(&self, addr: usize, name: &mut [u8]) -> io::Result<Option<FoundMapping>> {
        let mut call = Call {
            size: size_of::<Call>() as u64,
            query_flags: COVERING_OR_NEXT,
            query_addr: addr as u64,
            vma_name_size: u32::try_from(name.len()).unwrap_or(0),
            vma_name_addr: if name.is_empty() {
                0
            } else {
                name.as_mut_ptr().expose_provenance() as u64
            },
            ..Call::default()
        };
        // SAFETY: `call` is the structure that the number names, and says where `name` lies and how long
        // it is; both outlive the call, and the kernel writes nothing else.
        let answer = unsafe { libc::ioctl(self.maps.as_raw_fd(), PROCMAP_QUERY, &raw mut call) };
        if answer != 0 {
            return Err(io::Error::last_os_error());
        }
        let place = |addr: u64| usize::try_from(addr).map_err(io::Error::other);
        let rights = READABLE | WRITABLE | EXECUTABLE;
        let len = usize::try_from(call.vma_name_size).unwrap_or(0).saturating_sub(1);
        let traits = Traits {
            is_shared: call.vma_flags & SHARED != 0,
            is_rw: call.vma_flags & rights == READABLE | WRITABLE,
            has_file: call.inode != 0,
            name: core::str::from_utf8(name.get(..len).unwrap_or_default()).unwrap_or("?"),
        };
        let movable = match traits.movable() {
            // A name was left out.
            Ok(()) if name.is_empty() => Err(Unmovable::File),
            movable => movable,
        };
        let origin = Origin {
            file: (call.dev_major, call.dev_minor, call.inode),
            offset: call.vma_offset,
            is_shared: traits.is_shared,
        };
        let (start, end) = (place(call.vma_start)?, place(call.vma_end)?);
        let is_writable = call.vma_flags & WRITABLE != 0;
        Ok(Some(FoundMapping { start, end, movable, origin, is_writable }))
    }
}

/// Argument of the ioctl PROCMAP_QUERY: `struct procmap_query` of linux/fs.h.
#[repr(C)]
#[derive(Default)]
struct Call {
    size: u64,
    query_flags: u64,
    query_addr: u64,
    vma_start: u64,
    vma_end: u64,
    vma_flags: u64,
    vma_page_size: u64,
    vma_offset: u64,
    inode: u64,
    dev_major: u32,
    dev_minor: u32,
    vma_name_size: u32,
    build_id_size: u32,
    vma_name_addr: u64,
    build_id_addr: u64,
}

const _: () = assert!(size_of::<Call>() == 104);

const READABLE: u64 = 1;
const WRITABLE: u64 = 2;
const EXECUTABLE: u64 = 4;
const SHARED: u64 = 8;
const COVERING_OR_NEXT: u64 = 16;
/// Longest name taken: the kernel's longest name of anonymous memory has 88 bytes.
const NAME_MAX: usize = 128;
/// `_IOWR('f', 17, struct procmap_query)` (asm-generic/ioctl.h).
const PROCMAP_QUERY: libc::Ioctl =
    3 << 30 | (size_of::<Call>() as libc::Ioctl) << 16 | (b'f' as libc::Ioctl) << 8 | 17;
