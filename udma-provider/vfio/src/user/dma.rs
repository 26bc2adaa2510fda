//! Device addresses of a function behind a socket.
//!
//! - owns: which of this process' memory the server maps. takes: regions. gives: their files to the server; private memory
//!   moves to a file first. must not: leave pages in the file when their mapping ends.

use std::{
    collections::BTreeMap,
    os::fd::AsFd,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use udma_abi::{BackingError, DmaAccess, DmaSpace};
use urma_mem::{Adoption, Arena, Region};

use super::{
    link::UserLink,
    wire::{UserDmaMap, command, encode_unmap},
};

/// A mapping: what keeps its pages in the file.
#[derive(Debug)]
struct UserMap {
    len: u64,
    adoption: Option<Adoption>,
}

/// Device addresses: memory of files by their descriptor; private memory moves to a file first.
#[derive(Debug)]
pub(crate) struct UserDma {
    link: Arc<UserLink>,
    arena: Arena,
    mapped: Mutex<BTreeMap<u64, UserMap>>,
}

impl UserDma {
    pub(crate) fn new(link: Arc<UserLink>) -> std::io::Result<Self> {
        Ok(Self { link, arena: Arena::new()?, mapped: Mutex::default() })
    }

    fn send(
        &self,
        iova: u64,
        (fd, offset): (impl AsFd, u64),
        (len, access): (u64, DmaAccess),
    ) -> Result<(), BackingError> {
        let is_writable = access == DmaAccess::Both;
        let map = UserDmaMap { is_writable, offset, address: iova, size: len };
        if !offset.is_multiple_of(PAGE) {
            return Err(unreachable_memory("it does not begin at a page of its file"));
        }
        self.link.request(command::DMA_MAP, &map.encode(), &[fd.as_fd()], 0)?;
        Ok(())
    }
}

fn unreachable_memory(why: &str) -> BackingError {
    BackingError::Unreachable(format!(
        "{why}; a device in another process reaches whole pages of a memfd, or of private anonymous memory"
    ))
}

impl DmaSpace for UserDma {
    /// 48 bits, as common IOMMUs have; 0 stays a null.
    fn ranges(&self) -> Vec<(u64, u64)> {
        vec![(PAGE, (1 << 48) - 1)]
    }

    fn map(&self, iova: u64, region: &Region, access: DmaAccess) -> Result<(), BackingError> {
        let len = region.len() as u64;
        let mut adoption = None;
        if let Some(file) = region.fd() {
            self.send(iova, file, (len, access))?;
        } else {
            let moved = self.arena.adopt(region);
            let moved = moved.map_err(|refusal| unreachable_memory(&refusal.to_string()))?;
            let offset = moved.arena_offset(region.addr(), region.len());
            let sent = match offset {
                Some(offset) => self.send(iova, (self.arena.fd(), offset), (len, access)),
                None => Err(unreachable_memory("it is not whole pages that can move")),
            };
            if let Err(error) = sent {
                moved.release()?;
                return Err(error);
            }
            adoption = Some(moved);
        }
        lock(&self.mapped).insert(iova, UserMap { len, adoption });
        Ok(())
    }

    /// The pages are private again when this returns, whether the server lives or not.
    fn unmap(&self, iova: u64) -> Result<(), BackingError> {
        let map = lock(&self.mapped).remove(&iova).ok_or(BackingError::NotMapped(iova))?;
        let unmap = encode_unmap(iova, map.len);
        let sent = self.link.request(command::DMA_UNMAP, &unmap, &[], 0);
        if let Some(adoption) = map.adoption {
            adoption.revoke()?;
        }
        sent?;
        Ok(())
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

const PAGE: u64 = 4096;
