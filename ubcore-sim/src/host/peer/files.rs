//! Files of one peer's process, mapped here: memory that the peer had mapped shared when it registered it.
//!
//! *Owns*: the mappings, each with the segments in it. *Takes*: places that the peer published. *Gives*: windows.
//! *Must not*: keep a file mapped after the peer's last segment in it ended: its memory would not become free.
//!
//! A segment ends in the peer's process only, so the node's thread checks at intervals whether it did.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use udma_abi::Nanos;
use urma_mem::sync::{AtomicBool, Ordering};
use urma_mem::{FilePlace, FileWindow};

use crate::host::{descriptor::ForkGuarded, interrupt::signal};
use crate::ports::{PeerFiles, SegmentLife};

/// Time between two checks whether segments of mapped files ended, in nanoseconds.
pub(crate) const LOOK_NS: Nanos = 1_000_000_000;

/// The files of one peer.
#[derive(Debug)]
pub(crate) struct MappedFiles {
    pid: u32,
    /// Wakes the node's thread, which has mappings to check from now on.
    wake: Arc<ForkGuarded>,
    files: Mutex<Vec<MappedFile>>,
    has_files: AtomicBool,
}

#[derive(Debug)]
struct MappedFile {
    place: FilePlace,
    window: Arc<FileWindow>,
    segments: Vec<SegmentLife>,
}

impl MappedFile {
    fn is_of(&self, place: &FilePlace) -> bool {
        (self.place.device, self.place.inode) == (place.device, place.inode)
    }
}

impl MappedFiles {
    /// For the process `pid`; `wake` is the eventfd of this node's thread.
    pub(crate) fn new(pid: u32, wake: Arc<ForkGuarded>) -> Self {
        Self { pid, wake, files: Mutex::default(), has_files: AtomicBool::new(false) }
    }

    /// Whether there are mappings that may end.
    pub(crate) fn has_files(&self) -> bool {
        self.has_files.load(Ordering::Relaxed)
    }

    /// Unmaps files in which no segment is alive.
    pub(crate) fn drop_ended(&self) {
        let mut files = self.files();
        drop_ended(&mut files);
        self.has_files.store(!files.is_empty(), Ordering::Relaxed);
    }

    /// A panic elsewhere leaves whole entries.
    fn files(&self) -> MutexGuard<'_, Vec<MappedFile>> {
        self.files.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn drop_ended(files: &mut Vec<MappedFile>) {
    for file in &mut *files {
        file.segments.retain(SegmentLife::is_on);
    }
    files.retain(|file| !file.segments.is_empty());
}

impl PeerFiles for MappedFiles {
    fn window(
        &self,
        segment: &SegmentLife,
        place: &FilePlace,
        end: u64,
    ) -> Option<Arc<FileWindow>> {
        let mut files = self.files();
        drop_ended(&mut files);
        let reaches = |file: &FileWindow| !file.is_lost() && file.bytes().len() as u64 >= end;
        let known = files.iter_mut().find(|file| file.is_of(place));
        let file = match known {
            Some(file) if reaches(&file.window) => file,
            known => {
                let window = match FileWindow::map(self.pid, place) {
                    Ok(window) if reaches(&window) => Arc::new(window),
                    Ok(_) => return None,
                    Err(error) => {
                        let (pid, token_id) = (self.pid, segment.token_id);
                        tracing::info!(pid, token_id, %error, "the file of a peer's segment cannot be mapped: its bytes are copied");
                        return None;
                    }
                };
                if let Some(file) = known {
                    // It became longer, or had become shorter. The holder of the old window asks again.
                    file.window = window;
                    file
                } else {
                    files.push(MappedFile { place: *place, window, segments: Vec::new() });
                    files.last_mut()?
                }
            }
        };
        if !file.segments.iter().any(|known| known.token_id == segment.token_id) {
            file.segments.push(segment.clone());
        }
        let window = Arc::clone(&file.window);
        if !self.has_files.swap(true, Ordering::Relaxed) {
            signal(&*self.wake);
        }
        Some(window)
    }
}

#[cfg(test)]
mod tests {
    use rustix::event::{EventfdFlags, eventfd};
    use urma_mem::{Pages, Region, SharedFiles, hazard::Generation};

    use super::*;

    fn wake() -> Arc<ForkGuarded> {
        let fd = eventfd(0, EventfdFlags::NONBLOCK | EventfdFlags::CLOEXEC).unwrap();
        Arc::new(ForkGuarded::new(fd).unwrap())
    }

    fn segment(token_id: u32) -> SegmentLife {
        let word = Region::private(8).unwrap();
        let generation = Generation::new(&word, 0).unwrap();
        let life = generation.revive().unwrap();
        SegmentLife { token_id, generation, life }
    }

    #[test]
    fn a_file_stays_mapped_until_its_last_segment_ends() {
        let wake = wake();
        let files = MappedFiles::new(std::process::id(), Arc::clone(&wake));
        let memory = Region::shared(1 << 20, Pages::Base).unwrap();
        let (_held, place) = SharedFiles::default().behind(&memory).unwrap();
        let [first, second] = [0x100, 0x200].map(segment);
        assert!(!files.has_files());
        let window = files.window(&first, &place, 1 << 20).unwrap();
        let mut count = [0; 8];
        assert!(files.has_files() && rustix::io::read(&*wake, &mut count).is_ok(), "woken");
        let same = files.window(&second, &place, 1 << 20).unwrap();
        assert!(Arc::ptr_eq(&window, &same), "one mapping of a file");
        assert!(rustix::io::read(&*wake, &mut count).is_err(), "it looks already");
        let weak = Arc::downgrade(&window);
        drop((window, same));
        first.generation.kill().unwrap();
        files.drop_ended();
        assert!(weak.upgrade().is_some() && files.has_files());
        second.generation.kill().unwrap();
        files.drop_ended();
        assert!(weak.upgrade().is_none() && !files.has_files());
    }

    #[test]
    fn what_a_file_does_not_reach_is_no_window_and_a_longer_file_is_mapped_anew() {
        let files = MappedFiles::new(std::process::id(), wake());
        let file = std::fs::File::from(
            rustix::fs::memfd_create("grows", rustix::fs::MemfdFlags::CLOEXEC).unwrap(),
        );
        file.set_len(8192).unwrap();
        let id = |file: &std::fs::File| {
            use std::os::{fd::AsRawFd, unix::fs::MetadataExt};
            let seen = file.metadata().unwrap();
            let descriptor = u32::try_from(file.as_raw_fd()).unwrap();
            FilePlace { descriptor, device: seen.dev(), inode: seen.ino(), offset: 0 }
        };
        let place = id(&file);
        let segment = segment(0x100);
        let short = files.window(&segment, &place, 8192).unwrap();
        assert!(files.window(&segment, &place, 8193).is_none());
        file.set_len(1 << 20).unwrap();
        let long = files.window(&segment, &place, 1 << 20).unwrap();
        assert!(!Arc::ptr_eq(&short, &long));
        assert!(Arc::ptr_eq(&long, &files.window(&segment, &place, 8192).unwrap()));
        // A lost one is of no use, even when the file has grown again.
        file.set_len(8192).unwrap();
        long.bytes().write(8192, &[1]).unwrap();
        assert!(long.is_lost());
        file.set_len(1 << 20).unwrap();
        assert!(!files.window(&segment, &place, 8192).unwrap().is_lost());
        let other = FilePlace { inode: place.inode + 1, ..place };
        assert!(files.window(&segment, &other, 1).is_none(), "another file is there");
    }
}
