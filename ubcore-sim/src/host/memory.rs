//! Makes registered memory reachable for peers on this host.
//!
//! *Owns*: the node's arena and what each registration moved into it, files that contain registrations. *Takes*:
//! regions by registration key. *Gives*: extents of the arena, places in files. *Must not*: depend on segments; move
//! anything when page moving is off.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use urma_mem::{
    Adoption, Arena, Extent, HeldMemory, MemoryHolder, Region, SharedFile, SharedFiles,
};

use crate::ports::{MemoryHost, SharedExtent, SharedMemory};

/// Whether registered pages are moved to the arena.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum PageMoving {
    /// Whole private anonymous writable pages are moved: peers on this host access them directly.
    #[default]
    On,
    /// Nothing is moved: peers access memory by copies only.
    Off,
}

/// Whether peers on this host map files that contain registered memory, and this node theirs.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum FileSharing {
    /// Peers that may trace this process do so.
    #[default]
    On,
    /// Such memory is accessed by copies only.
    Off,
}

/// Registered memory of one node.
#[derive(Debug)]
pub struct ArenaMemory {
    arena: Arena,
    holder: MemoryHolder,
    moving: PageMoving,
    /// `None`: files are not shared.
    files: Option<SharedFiles>,
    /// The file of each registration that lies in one.
    held: Mutex<BTreeMap<u32, Arc<SharedFile>>>,
    adoptions: Mutex<BTreeMap<u32, Adoption>>,
    /// Why registrations with no moved pages stayed where they are.
    refusals: Mutex<BTreeMap<u32, String>>,
}

impl ArenaMemory {
    /// Creates the state of a node that has moved no pages yet.
    #[must_use]
    pub fn new(arena: Arena, moving: PageMoving, sharing: FileSharing) -> Self {
        let holder = MemoryHolder::new(&arena);
        let files = (sharing == FileSharing::On).then(SharedFiles::default);
        let (held, adoptions, refusals) = Default::default();
        Self { holder, arena, moving, files, held, adoptions, refusals }
    }

    fn held(&self) -> MutexGuard<'_, BTreeMap<u32, Arc<SharedFile>>> {
        self.held.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the file that contains the whole of `region`, or why there is none to share.
    fn share_file(&self, key: u32, region: &Region) -> Result<SharedMemory, String> {
        let files = self.files.as_ref().ok_or("sharing of files is turned off")?;
        let (file, place) = files.behind(region).map_err(|reason| reason.to_string())?;
        self.held().insert(key, file);
        Ok(SharedMemory { extents: Vec::new(), file: Some(place) })
    }

    /// Moves the pages of `region` that can be moved, or returns why none can.
    fn move_pages(&self, key: u32, region: &Region) -> Result<SharedMemory, String> {
        if self.moving == PageMoving::Off {
            return Err("page moving is turned off".to_owned());
        }
        let adoption = self.arena.adopt(region).map_err(|reason| reason.to_string())?;
        let extents = adoption
            .extents()
            .iter()
            .map(|e| SharedExtent { va: e.addr as u64, len: e.len as u64, offset: e.arena_offset })
            .collect();
        if self.adoptions().insert(key, adoption).is_some() {
            tracing::warn!(key, "a registration key was used twice; the older pages moved back");
        }
        Ok(SharedMemory { extents, file: None })
    }

    /// Number of registrations with pages in the arena.
    #[must_use]
    pub fn moved(&self) -> usize {
        self.adoptions().len()
    }

    fn refusals(&self) -> MutexGuard<'_, BTreeMap<u32, String>> {
        self.refusals.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Control plane only. A panic elsewhere leaves whole entries.
    fn adoptions(&self) -> MutexGuard<'_, BTreeMap<u32, Adoption>> {
        self.adoptions.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl MemoryHost for ArenaMemory {
    fn share(&self, key: u32, region: &Region) -> SharedMemory {
        let unmoved = match self.move_pages(key, region) {
            Ok(moved) => return moved,
            Err(reason) => reason,
        };
        self.share_file(key, region).unwrap_or_else(|unshared| {
            // For private memory the first reason is the one that counts.
            let reason = format!("{unmoved}; {unshared}");
            tracing::info!(key, ?region, %reason, "memory is not reachable directly");
            self.refusals().insert(key, reason);
            SharedMemory::default()
        })
    }

    fn hold(&self, region: &Region, extents: &[SharedExtent]) -> HeldMemory {
        let extent = |e: &SharedExtent| {
            let (addr, len) = (usize::try_from(e.va).ok()?, usize::try_from(e.len).ok()?);
            Some(Extent { addr, len, arena_offset: e.offset })
        };
        let extents: Vec<_> = extents.iter().filter_map(extent).collect();
        self.holder.hold(region, &extents)
    }

    fn why_not_direct(&self, key: u32) -> Option<String> {
        self.refusals().get(&key).cloned()
    }

    fn unshare(&self, key: u32) {
        self.refusals().remove(&key);
        self.held().remove(&key);
        // The lock is not held while pages move.
        let adoption = self.adoptions().remove(&key);
        if let Some(Err(error)) = adoption.map(Adoption::revoke) {
            tracing::error!(key, %error, "pages could not be moved back and stay shared");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_shared_shows_in_the_arena_until_it_is_taken_back() {
        let arena = Arena::new().unwrap();
        let peer = Arena::map_peer(arena.fd().try_clone_to_owned().unwrap()).unwrap();
        let memory = ArenaMemory::new(arena, PageMoving::On, FileSharing::Off);
        let user = Region::private(64 << 10).unwrap();
        user.write(0, b"before").unwrap();
        let extents = memory.share(7, &user).extents;
        let [extent] = extents[..] else { panic!("{extents:?}") };
        assert_eq!((extent.va, extent.len), (user.addr() as u64, 64 << 10));
        let at = usize::try_from(extent.offset).unwrap();
        let mut seen = [0; 6];
        peer.read(at, &mut seen).unwrap();
        assert_eq!(&seen, b"before");
        peer.write(at, b"during").unwrap();
        memory.unshare(7);
        assert_eq!(memory.moved(), 0);
        user.read(0, &mut seen).unwrap();
        assert_eq!(&seen, b"during");
        peer.write(at, b"too la").unwrap();
        user.read(0, &mut seen).unwrap();
        assert_eq!(&seen, b"during");
        memory.unshare(7);
    }

    #[test]
    fn nothing_moves_when_it_is_off() {
        let memory = ArenaMemory::new(Arena::new().unwrap(), PageMoving::Off, FileSharing::Off);
        assert_eq!(memory.share(1, &Region::private(1 << 20).unwrap()), SharedMemory::default());
        let why = memory.why_not_direct(1).unwrap();
        assert!(why.contains("page moving is turned off") && why.contains("files is turned off"));
        memory.unshare(1);
        assert_eq!(memory.why_not_direct(1), None);
    }

    #[test]
    fn what_others_have_already_says_so() {
        let memory = ArenaMemory::new(Arena::new().unwrap(), PageMoving::On, FileSharing::Off);
        let shared = Region::shared(1 << 20, urma_mem::Pages::Base).unwrap();
        assert_eq!(memory.share(1, &shared), SharedMemory::default());
        let why = memory.why_not_direct(1).unwrap();
        assert!(why.contains("already shared memory"), "{why}");
        assert_eq!(memory.share(2, &Region::private(1 << 20).unwrap()).extents.len(), 1);
        assert_eq!(memory.why_not_direct(2), None);
        memory.unshare(1);
        memory.unshare(2);
    }

    #[test]
    fn a_file_is_shared_where_no_page_moves_until_it_is_taken_back() {
        let arena = Arena::new().unwrap();
        let memory = ArenaMemory::new(arena, PageMoving::On, FileSharing::On);
        let file = Region::shared(1 << 20, urma_mem::Pages::Base).unwrap();
        let part = file.sub(4096, 8192).unwrap();
        let shared = memory.share(1, &part);
        assert_eq!((shared.extents.len(), memory.why_not_direct(1)), (0, None));
        let place = shared.file.unwrap();
        assert_eq!(place.offset, 4096);
        let path = format!("/proc/self/fd/{}", place.descriptor);
        assert!(std::fs::metadata(&path).is_ok());
        memory.unshare(1);
        assert!(std::fs::metadata(&path).is_err(), "nothing keeps the file open");
        assert_eq!(memory.share(2, &Region::private(1 << 20).unwrap()).file, None);
        memory.unshare(2);
    }
}
