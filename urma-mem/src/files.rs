//! Files that a program has mapped shared and registered: peers on this host map them, too.
//!
//! Such memory (memfd, `/dev/shm`, hugetlbfs) has a home already, so its pages do not move to the arena. Its owner keeps
//! the file open under a descriptor of its own ([`SharedFiles::behind`]); a peer that may trace the owner opens that
//! descriptor through `/proc` and maps the file ([`FileWindow::map`]).
//!
//! Two things differ from the arena. A process that has the file may shorten it, or it may have holes that no memory is left
//! for: an access to such a page would end the process. The window is guarded against that (`sigbus.rs`) and says afterwards
//! that it was lost. And a page of a file cannot be replaced under a peer that was stopped in the middle of a copy: its late
//! store lands in the file.

use std::collections::BTreeMap;
use std::fs::{File, OpenOptions, read_dir};
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError, Weak};

use nix::sys::statfs::{HUGETLBFS_MAGIC, TMPFS_MAGIC, fstatfs};

use crate::maps::{OriginRun, Origins};
use crate::region::{Region, page_ceil, page_floor, page_len};
use crate::sigbus::GuardedWindow;

/// Why peers do not map the file of registered memory.
#[derive(Debug, thiserror::Error)]
pub enum FileRefusal {
    /// It is not one part of one file that is mapped shared and writable.
    #[error("it is not one writable part of a shared file")]
    NotOneFile,
    /// The kernel does not tell what is mapped (before Linux 6.11).
    #[error("the kernel does not tell which file is mapped")]
    Unknown,
    /// The program closed the file, and the kernel does not open it by its mapping.
    #[error("its file is shared memory that no descriptor of this process has open")]
    Closed,
    /// The file is on a disk, or something else than memory.
    #[error("its file does not lie in memory (tmpfs or hugetlbfs)")]
    NotMemory,
    /// The system refused to open it.
    #[error("its file cannot be opened: {0}")]
    System(#[from] io::Error),
}

/// How a peer finds a file, and the place of a registration in it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FilePlace {
    /// Descriptor in the owner's process.
    pub descriptor: u32,
    /// Device number of the file (`st_dev`).
    pub device: u64,
    /// Inode of the file.
    pub inode: u64,
    /// Offset in the file of the registration's first byte.
    pub offset: u64,
}

/// A file that stays open as long as registrations lie in it.
#[derive(Debug)]
pub struct SharedFile {
    /// Keeps the descriptor that peers open.
    _file: File,
    /// Of the file's first byte.
    place: FilePlace,
}

/// The files of all registrations of a node. A file is opened once, however many registrations lie in it.
#[derive(Debug, Default)]
pub struct SharedFiles(Mutex<BTreeMap<(u64, u64), Weak<SharedFile>>>);

impl SharedFiles {
    /// The file behind the memory, and where its first byte is in it.
    ///
    /// # Errors
    /// [`FileRefusal`].
    pub fn behind(&self, memory: &Region) -> Result<(Arc<SharedFile>, FilePlace), FileRefusal> {
        if let Some((fd, offset)) = memory.fd() {
            let file = File::from(fd.try_clone_to_owned()?);
            let seen = file.metadata()?;
            let file = self.known_or((seen.dev(), seen.ino()), |id| SharedFile::new(file, id))?;
            let place = FilePlace { offset, ..file.place };
            return Ok((file, place));
        }
        if !memory.is_callers() {
            return Err(FileRefusal::NotOneFile);
        }
        let (start, end) = (memory.addr(), memory.addr() + memory.len());
        let last = page_ceil(end).ok_or(FileRefusal::NotOneFile)?;
        let origins = Origins::new().map_err(|_| FileRefusal::Unknown)?;
        let runs = origins.runs(page_floor(start), last);
        let &[run] = runs.as_deref().unwrap_or_default() else {
            return Err(FileRefusal::NotOneFile);
        };
        if !(run.origin.has_file() && run.origin.is_shared && run.is_writable) {
            return Err(FileRefusal::NotOneFile);
        }
        let offset = run.origin.offset + (start - run.start) as u64;
        let file = self.known_or(id_of(&run), |id| {
            // The whole mapping: its own bounds name it.
            let mapping = origins.at(page_floor(start)).ok_or(FileRefusal::NotOneFile)?;
            open(&mapping, id)
        })?;
        let place = FilePlace { offset, ..file.place };
        Ok((file, place))
    }

    /// The file if it is open already, else what `open` opens.
    fn known_or(
        &self,
        id: (u64, u64),
        open: impl FnOnce((u64, u64)) -> Result<SharedFile, FileRefusal>,
    ) -> Result<Arc<SharedFile>, FileRefusal> {
        let mut files = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        files.retain(|_, file| file.strong_count() != 0);
        if let Some(file) = files.get(&id).and_then(Weak::upgrade) {
            return Ok(file);
        }
        let file = Arc::new(open(id)?);
        files.insert(id, Arc::downgrade(&file));
        Ok(file)
    }
}

/// Device number and inode, as `fstat` has them.
fn id_of(run: &OriginRun) -> (u64, u64) {
    let (major, minor, inode) = run.origin.file;
    (libc::makedev(major, minor), inode)
}

/// Opens the file of a mapping once more.
fn open(mapping: &OriginRun, id: (u64, u64)) -> Result<SharedFile, FileRefusal> {
    // With CAP_CHECKPOINT_RESTORE the kernel opens it by the mapping; else a descriptor is looked for.
    let by_mapping = format!("/proc/self/map_files/{:x}-{:x}", mapping.start, mapping.end);
    let found = open_as(Path::new(&by_mapping), id).or_else(|_| open_own(id));
    SharedFile::new(found?.ok_or(FileRefusal::Closed)?, id)
}

impl SharedFile {
    fn new(file: File, id: (u64, u64)) -> Result<Self, FileRefusal> {
        page_of(&file)?.ok_or(FileRefusal::NotMemory)?;
        let descriptor = u32::try_from(file.as_raw_fd()).map_err(io::Error::other)?;
        let place = FilePlace { descriptor, device: id.0, inode: id.1, offset: 0 };
        Ok(Self { _file: file, place })
    }
}

/// The file among those that this process has open.
fn open_own(id: (u64, u64)) -> io::Result<Option<File>> {
    for entry in read_dir("/proc/self/fd")? {
        let path = entry?.path();
        let is_it = std::fs::metadata(&path).is_ok_and(|file| (file.dev(), file.ino()) == id);
        if is_it {
            return open_as(&path, id);
        }
    }
    Ok(None)
}

/// Opens what is behind a link of `/proc`, for loads and stores; `None`: it is another file.
fn open_as(path: &Path, id: (u64, u64)) -> io::Result<Option<File>> {
    let flags = libc::O_NONBLOCK | libc::O_NOCTTY | libc::O_CLOEXEC;
    let file = OpenOptions::new().read(true).write(true).custom_flags(flags).open(path)?;
    let seen = file.metadata()?;
    Ok((seen.is_file() && (seen.dev(), seen.ino()) == id).then_some(file))
}

/// Another process's file, mapped here as far as it reached then.
#[derive(Debug)]
pub struct FileWindow {
    /// Declared first: it must go before other memory can lie at the addresses.
    guard: GuardedWindow,
    memory: Region,
}

impl FileWindow {
    /// Maps a file that the process `pid` holds.
    ///
    /// # Errors
    /// `NotFound`: another file is there now; `Unsupported`: it does not lie in memory; `QuotaExceeded`: this process has 256
    /// such files mapped; else the system's.
    pub fn map(pid: u32, place: &FilePlace) -> io::Result<Self> {
        let path = format!("/proc/{pid}/fd/{}", place.descriptor);
        let file = open_as(Path::new(&path), (place.device, place.inode))?;
        let file = file.ok_or(io::ErrorKind::NotFound)?;
        let unit = page_of(&file)?.ok_or(io::ErrorKind::Unsupported)?;
        let len = usize::try_from(file.metadata()?.len()).map_err(io::Error::other)?;
        // The last page is mapped whole.
        let len = len.checked_next_multiple_of(unit).ok_or(io::ErrorKind::InvalidInput)?;
        let memory = Region::map_guarded(file.into(), len)?;
        Ok(Self { guard: GuardedWindow::new(&memory, unit)?, memory })
    }

    /// The bytes from the file's first one. What an access did counts only if the window is not lost after it.
    #[must_use]
    pub fn bytes(&self) -> &Region {
        &self.memory
    }

    /// Whether an access met a page that the file does not have any more. The window is of no use then.
    #[must_use]
    pub fn is_lost(&self) -> bool {
        self.guard.is_lost()
    }
}

/// Bytes of a page of the file; `None`: it is not memory and nothing else. Pages of a disk's file would make an access wait
/// for the disk, or fail.
fn page_of(file: &File) -> io::Result<Option<usize>> {
    let status = fstatfs(file)?;
    match status.filesystem_type() {
        TMPFS_MAGIC => Ok(Some(page_len())),
        HUGETLBFS_MAGIC => usize::try_from(status.block_size()).map(Some).map_err(io::Error::other),
        _ => Ok(None),
    }
}

#[cfg(all(test, not(loom)))]
#[expect(unsafe_code, reason = "a program's memory is mapped as a program does it")]
#[expect(clippy::unwrap_used, reason = "a test may stop")]
mod tests {
    use super::*;
    use std::os::fd::OwnedFd;

    use nix::sys::memfd::{MFdFlags, memfd_create};
    use nix::sys::mman::{MapFlags, ProtFlags, mmap};

    const LEN: usize = 1 << 20;

    fn memfd(len: usize) -> File {
        let file = File::from(memfd_create("files", MFdFlags::MFD_CLOEXEC).unwrap());
        file.set_len(len as u64).unwrap();
        file
    }

    /// A program's memory: the file mapped at `offset`.
    fn mapped(file: &File, offset: usize, len: usize, prot: ProtFlags) -> Region {
        let (len_of, offset) = (len.try_into().unwrap(), offset.try_into().unwrap());
        // SAFETY: a new mapping at an address of the kernel's choice.
        let base = unsafe { mmap(None, len_of, prot, MapFlags::MAP_SHARED, file, offset) }.unwrap();
        // SAFETY: it stays mapped, and nothing has references to it.
        unsafe { Region::from_user(base.as_ptr().cast(), len) }.unwrap()
    }

    const BOTH: ProtFlags = ProtFlags::PROT_READ.union(ProtFlags::PROT_WRITE);

    #[test]
    fn a_window_shows_the_registered_part_of_the_file() {
        let file = memfd(LEN);
        let memory = mapped(&file, 8192, LEN - 8192, BOTH);
        let part = memory.sub(5000, 100_000).unwrap();
        let files = SharedFiles::default();
        let (held, place) = files.behind(&part).unwrap();
        assert_eq!(place.offset, 8192 + 5000);
        // Not the program's own descriptor: that may be closed.
        assert_ne!(i32::try_from(place.descriptor).unwrap(), file.as_raw_fd());
        let window = FileWindow::map(std::process::id(), &place).unwrap();
        let at = usize::try_from(place.offset).unwrap();
        window.bytes().write(at + 70_001, b"there").unwrap();
        let mut seen = [0; 5];
        part.read(70_001, &mut seen).unwrap();
        assert_eq!(&seen, b"there");
        assert_ne!(window.bytes().addr(), memory.addr());
        drop(held);
        let (again, _) = files.behind(&part).unwrap();
        let (same, other) = files.behind(&memory).unwrap();
        assert!(Arc::ptr_eq(&again, &same), "one descriptor for all registrations of a file");
        assert_eq!(other.offset, 8192);
    }

    #[test]
    fn what_the_file_lost_ends_no_program_and_is_noticed() {
        let file = memfd(LEN);
        let memory = mapped(&file, 0, LEN, BOTH);
        let (_held, place) = SharedFiles::default().behind(&memory).unwrap();
        let window = FileWindow::map(std::process::id(), &place).unwrap();
        let other = FileWindow::map(std::process::id(), &place).unwrap();
        window.bytes().write(LEN - 4, b"last").unwrap();
        assert!(!window.is_lost(), "holes get memory");
        file.set_len(100_000).unwrap();
        let mut seen = [1; 8192];
        window.bytes().read(90_000, &mut seen).unwrap();
        assert!(!window.is_lost(), "what is there");
        window.bytes().read(LEN - 8192, &mut seen).unwrap();
        assert!(window.is_lost() && seen == [0; 8192]);
        window.bytes().write(LEN - 8192, &[7; 8192]).unwrap();
        assert!(!other.is_lost());
        other.bytes().write(110_000, &seen).unwrap();
        assert!(other.is_lost());
        drop((window, other));
        let again = FileWindow::map(std::process::id(), &place).unwrap();
        assert!(!again.is_lost());
        assert!(again.bytes().write(LEN - 4, b"last").is_err(), "as long as the file");
    }

    #[test]
    fn memory_that_is_no_writable_shared_file_in_memory_is_refused_with_the_reason() {
        let files = SharedFiles::default();
        let of = |memory: &Region| files.behind(memory).unwrap_err().to_string();
        let private = Region::private(4096).unwrap();
        assert!(of(&private).contains("not one writable part"));
        let read_only = mapped(&memfd(LEN), 0, LEN, ProtFlags::PROT_READ);
        assert!(of(&read_only).contains("not one writable part"));
        // A part of a mapping of the same file at another place is another part.
        let file = memfd(LEN);
        let memory = mapped(&file, 0, LEN, BOTH);
        let at = core::num::NonZeroUsize::new(memory.addr() + LEN / 2).unwrap();
        let (len, flags) =
            ((LEN / 2).try_into().unwrap(), MapFlags::MAP_SHARED | MapFlags::MAP_FIXED);
        // SAFETY: it replaces a half of this test's own mapping.
        unsafe { mmap(Some(at), len, BOTH, flags, &file, 0) }.unwrap();
        assert!(of(&memory).contains("not one writable part"));
        assert!(files.behind(&memory.sub(LEN / 2, 4096).unwrap()).is_ok());
        let on_disk = File::options().read(true).write(true).open(std::env::current_exe().unwrap());
        if let Ok(on_disk) = on_disk {
            let memory = mapped(&on_disk, 0, 4096, BOTH);
            assert!(of(&memory).contains("does not lie in memory"));
        }
    }

    #[test]
    fn without_a_right_to_open_mappings_the_file_is_found_among_the_open_ones() {
        let file = memfd(LEN);
        let seen = file.metadata().unwrap();
        let id = (seen.dev(), seen.ino());
        let found = open_own(id).unwrap().unwrap();
        assert_ne!(found.as_raw_fd(), file.as_raw_fd());
        assert_eq!(found.metadata().unwrap().ino(), seen.ino());
        drop((file, found));
        assert!(open_own(id).unwrap().is_none(), "no descriptor has it open");
    }

    #[test]
    fn another_file_under_the_descriptor_is_not_mapped() {
        let file = memfd(LEN);
        let memory = mapped(&file, 0, LEN, BOTH);
        let (_held, place) = SharedFiles::default().behind(&memory).unwrap();
        let other: OwnedFd = memfd(LEN).into();
        let descriptor = u32::try_from(other.as_raw_fd()).unwrap();
        let moved = FilePlace { descriptor, ..place };
        let error = FileWindow::map(std::process::id(), &moved).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::NotFound);
        let older = FilePlace { inode: place.inode + 1, ..place };
        assert!(FileWindow::map(std::process::id(), &older).is_err());
    }
}
