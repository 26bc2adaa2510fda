//! A device behind a vfio-user socket: the client's function and its windows; the protocol and the server are below.
//!
//! Takes a connected Unix socket or its path, gives a `PciDevice`, or a function served to a client. Must not know
//! what registers mean, or map memory that the server could take away.
#![forbid(unsafe_code)]

mod config_space;
mod dma;
mod link;
mod map;
mod serve;
mod server_clock;
mod stream;
mod wire;

use std::{
    collections::BTreeMap,
    os::{
        fd::{AsFd, BorrowedFd, OwnedFd},
        unix::net::UnixStream,
    },
    path::Path,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use dma::UserDma;
use link::{REPLY_BOUND, UserLink, refused};
use rustix::{
    event::{PollFd, PollFlags, poll},
    io::Errno,
};
use udma_abi::DmaSpace;
use urma_mem::{MapAccess, Region};
use wire::{CONFIG_REGION, Fields, MSIX, REGIONS, RegionAccess, RegionInfo, SetIrqs, UserBody};

use crate::device::{
    AccessWidth, InterruptKind, PciDevice, PciError, PciInterrupts, PciWindow, WindowId,
    check_access,
};

pub use config_space::{ServedBar, ServedConfig, ServedIdentity};
pub use link::UserError;
pub use map::MapQuota;
pub use serve::{ServedFunction, ServedShape, refuse, serve};

/// A PCI function behind a vfio-user socket.
#[derive(Debug)]
pub struct UserDevice {
    link: Arc<UserLink>,
    name: String,
    windows: BTreeMap<WindowId, Arc<UserWindow>>,
    interrupts: Arc<UserInterrupts>,
    dma: Arc<UserDma>,
}

impl UserDevice {
    /// Connects to the server at `path`; the device has `name` in messages.
    ///
    /// # Errors
    /// [`UserError`].
    pub fn connect(path: &Path, name: &str) -> Result<Self, UserError> {
        Self::over(UserLink::connect(path)?, name)
    }

    /// The same over a socket that is connected to the server.
    ///
    /// # Errors
    /// The same as those of [`UserDevice::connect`].
    pub fn on(socket: UnixStream, name: &str) -> Result<Self, UserError> {
        Self::over(UserLink::over(socket, REPLY_BOUND)?, name)
    }

    pub(crate) fn over(link: UserLink, name: &str) -> Result<Self, UserError> {
        let link = Arc::new(link);
        let mut windows = BTreeMap::new();
        for index in (0..REGIONS).filter(|index| *index < 6 || *index == CONFIG_REGION) {
            let id = match u8::try_from(index) {
                Ok(bar) if index < 6 => WindowId::Bar(bar),
                _ => WindowId::Config,
            };
            if let Some(window) = UserWindow::open(&link, index, name)? {
                windows.insert(id, Arc::new(window));
            }
        }
        let question = UserBody::default().words(&[16, 0, MSIX, 0]).0;
        let info = link.request(wire::command::GET_IRQ_INFO, &question, &[], 16)?;
        let count = Fields(info.body.get(12..).unwrap_or_default()).word().unwrap_or(0);
        let vectors = Arc::new(Mutex::new(BTreeMap::new()));
        let (dma, name) = (Arc::new(UserDma::new(Arc::clone(&link))?), name.to_owned());
        let interrupts =
            UserInterrupts { link: Arc::clone(&link), name: name.clone(), count, vectors };
        watch(&link, &name, &interrupts.vectors)?;
        Ok(Self { link, name, windows, interrupts: Arc::new(interrupts), dma })
    }
}

impl Drop for UserDevice {
    /// The server ends everything of this client.
    fn drop(&mut self) {
        self.link.close();
    }
}

type Vectors = Arc<Mutex<BTreeMap<u32, OwnedFd>>>;

/// Starts the thread that closes the connection when the server hung up, and wakes threads that wait for an interrupt.
fn watch(link: &Arc<UserLink>, name: &str, vectors: &Vectors) -> Result<(), UserError> {
    let (link, vectors, name) = (Arc::clone(link), Arc::clone(vectors), name.to_owned());
    let thread = std::thread::Builder::new().name("urma-vfio-user".to_owned());
    thread.spawn(move || {
        let hung_up = PollFlags::RDHUP;
        while matches!(
            poll(&mut [PollFd::new(link.socket(), hung_up)], None),
            Ok(0) | Err(Errno::INTR)
        ) {}
        if !link.is_closed() {
            tracing::error!(
                device = name,
                "the server of this device (ubcored) ended, or cut this process off: the device is lost with all its objects; open it again"
            );
        }
        link.close();
        for fd in lock(&vectors).values() {
            raise(fd);
        }
    })?;
    Ok(())
}

#[expect(clippy::host_endian_bytes, reason = "the kernel counts in this machine's byte order")]
fn raise(fd: impl AsFd) {
    let _ = rustix::io::write(fd, &1_u64.to_ne_bytes());
}

impl PciDevice for UserDevice {
    fn name(&self) -> String {
        self.name.clone()
    }

    fn window(&self, id: WindowId) -> Result<Arc<dyn PciWindow>, PciError> {
        let found = self.windows.get(&id);
        let window = found.ok_or_else(|| PciError::NoWindow { device: self.name(), id })?;
        Ok(Arc::clone(window) as Arc<dyn PciWindow>)
    }

    fn interrupts(&self, kind: InterruptKind) -> Result<Arc<dyn PciInterrupts>, PciError> {
        if kind != InterruptKind::MsiX || self.interrupts.count == 0 {
            return Err(PciError::NoInterrupt { device: self.name(), kind });
        }
        Ok(Arc::clone(&self.interrupts) as Arc<dyn PciInterrupts>)
    }

    fn dma(&self) -> Arc<dyn DmaSpace> {
        Arc::clone(&self.dma) as Arc<dyn DmaSpace>
    }

    fn is_gone(&self) -> bool {
        self.link.is_closed()
    }

    /// The server counts each one in the eventfd.
    fn merges_interrupts(&self) -> bool {
        false
    }

    fn reset(&self) -> Result<(), PciError> {
        let reset = self.link.request(wire::command::RESET, &[], &[], 0);
        reset.map(|_| ()).map_err(|error| refused(&self.name, "reset", error))
    }
}

/// MSI-X vectors of the function.
#[derive(Debug)]
struct UserInterrupts {
    link: Arc<UserLink>,
    name: String,
    count: u32,
    /// Enabled ones: they are raised when the server is gone.
    vectors: Vectors,
}

impl UserInterrupts {
    /// Sets the eventfds of `count` vectors from `start`: none, or one.
    fn set(&self, (start, count): (u32, u32), fd: Option<BorrowedFd<'_>>) -> Result<(), PciError> {
        let flags = match count {
            0 => SetIrqs::NO_DATA | SetIrqs::TRIGGER,
            _ => SetIrqs::EVENTFD | SetIrqs::TRIGGER,
        };
        let set = SetIrqs { flags, index: MSIX, start, count };
        let fds: Vec<_> = fd.into_iter().collect();
        let sent = self.link.request(wire::command::SET_IRQS, &set.encode(), &fds, 0);
        sent.map(|_| ()).map_err(|error| refused(&self.name, "enabling interrupts", error))
    }
}

impl PciInterrupts for UserInterrupts {
    fn count(&self) -> u32 {
        self.count
    }

    fn enable(&self, eventfds: &[Option<BorrowedFd<'_>>]) -> Result<(), PciError> {
        let count = u64::try_from(eventfds.len()).unwrap_or(u64::MAX);
        if count == 0 || count > u64::from(self.count) {
            let last = count.saturating_sub(1);
            return Err(PciError::Vectors { first: 0, last, count: self.count });
        }
        self.disable()?;
        (0..)
            .zip(eventfds)
            .filter_map(|(vector, fd)| Some((vector, (*fd)?)))
            .try_for_each(|(vector, fd)| self.enable_one(vector, fd))
    }

    fn enable_one(&self, vector: u32, eventfd: BorrowedFd<'_>) -> Result<(), PciError> {
        if vector >= self.count {
            let last = u64::from(vector);
            return Err(PciError::Vectors { first: last, last, count: self.count });
        }
        let copy = eventfd.try_clone_to_owned();
        let copy = copy.map_err(|error| refused(&self.name, "an eventfd", error.into()))?;
        self.set((vector, 1), Some(eventfd))?;
        lock(&self.vectors).insert(vector, copy);
        Ok(())
    }

    fn disable(&self) -> Result<(), PciError> {
        lock(&self.vectors).clear();
        self.set((0, 0), None)
    }

    /// Masking is not asked of the server: a driver may ignore an eventfd.
    fn set_masked(&self, _: u32, _: bool) -> Result<(), PciError> {
        Err(PciError::Unsupported { device: self.name.clone(), what: "masking of vectors" })
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Most bytes of a window that is mapped.
const MAPPED_MAX: u64 = 1 << 30;

/// A region of the server's function.
#[derive(Debug)]
struct UserWindow {
    link: Arc<UserLink>,
    name: String,
    region: u32,
    len: u64,
    /// Its bytes, where they are memory and not registers.
    memory: Option<Region>,
}

impl UserWindow {
    /// Asks for region `region`. `None`: there is none.
    pub(crate) fn open(
        link: &Arc<UserLink>,
        region: u32,
        name: &str,
    ) -> Result<Option<Self>, UserError> {
        let question = RegionInfo::question(region);
        let mut reply = link.request(wire::command::GET_REGION_INFO, &question, &[], 32)?;
        let broken = |rule| link.broken(wire::command::GET_REGION_INFO, rule);
        let info = RegionInfo::decode(&reply.body).filter(|info| info.region == region);
        let info = info.ok_or_else(|| broken("the reply is about the region asked for"))?;
        if info.len == 0 {
            return Ok(None);
        }
        let memory = match reply.fds.pop().filter(|_| info.is_mapped) {
            None => None,
            Some(fd) => {
                let len = usize::try_from(info.len.min(MAPPED_MAX + 1)).unwrap_or(usize::MAX);
                if info.len > MAPPED_MAX {
                    return Err(broken("a mapped region has at most 1 GiB"));
                }
                let mapped = Region::map_fd(fd, info.offset, len, MapAccess::ReadWrite);
                Some(mapped.map_err(|_| broken("a mapped region is a sealed file of its length"))?)
            }
        };
        let (link, name) = (Arc::clone(link), name.to_owned());
        Ok(Some(Self { link, name, region, len: info.len, memory }))
    }

    fn failed(&self, error: UserError) -> PciError {
        refused(&self.name, "access to a region", error)
    }
}

impl PciWindow for UserWindow {
    fn len(&self) -> u64 {
        self.len
    }

    fn read(&self, offset: u64, width: AccessWidth) -> Result<u64, PciError> {
        check_access(self.len, offset, width)?;
        let access = RegionAccess { offset, region: self.region, count: u32::from(width.count()) };
        let sent = self.link.request(wire::command::REGION_READ, &access.encode(&[]), &[], 16);
        let reply = sent.map_err(|error| self.failed(error))?;
        match RegionAccess::decode(&reply.body) {
            Some((same, data)) if same == access && data.len() as u64 == width.bytes() => {
                let mut bytes = [0; 8];
                bytes.get_mut(..data.len()).unwrap_or_default().copy_from_slice(data);
                Ok(Fields(&bytes).long().unwrap_or(0))
            }
            _ => {
                let rule = "the reply has the bytes that were asked for";
                Err(self.failed(self.link.broken(wire::command::REGION_READ, rule)))
            }
        }
    }

    /// Posted: the server's refusal is not seen. A later read waits until it was made.
    fn write(&self, offset: u64, width: AccessWidth, value: u64) -> Result<(), PciError> {
        check_access(self.len, offset, width)?;
        self.post(offset, value.to_le_bytes().get(..usize::from(width.count())).unwrap_or_default())
    }

    /// Sends all of it in one message.
    fn write_block(&self, offset: u64, words: &[u64; 8]) -> Result<(), PciError> {
        if offset.checked_add(64).is_none_or(|end| end > self.len) || !offset.is_multiple_of(8) {
            return Err(PciError::Access { offset, width: 64, len: self.len });
        }
        let bytes: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
        self.post(offset, &bytes)
    }

    fn memory(&self, offset: u64, len: u64) -> Option<Region> {
        let (offset, len) = (usize::try_from(offset).ok()?, usize::try_from(len).ok()?);
        self.memory.as_ref()?.sub(offset, len).ok()
    }
}

impl UserWindow {
    fn post(&self, offset: u64, data: &[u8]) -> Result<(), PciError> {
        let count = u32::try_from(data.len()).unwrap_or(0);
        let access = RegionAccess { offset, region: self.region, count };
        let sent = self.link.post(wire::command::REGION_WRITE, &access.encode(data));
        sent.map_err(|error| self.failed(error))
    }
}

#[cfg(test)]
mod tests;
