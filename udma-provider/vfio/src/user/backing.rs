//! The device behind a socket, as a driver reaches it.
//!
//! - owns: registers by messages, memory by descriptors, an eventfd for each vector, a thread that waits for the end of
//!   the server. takes: the path of a socket. gives: a [`DeviceBacking`]. must not: know a register.

use std::{
    collections::BTreeMap,
    os::fd::{AsFd, OwnedFd},
    path::Path,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use rustix::{
    event::{EventfdFlags, PollFd, PollFlags, eventfd, poll},
    io::Errno,
    time::{ClockId, clock_gettime},
};
use udma_abi::{
    BackingError, DeviceBacking, DeviceInfo, DmaAccess, DmaSpace, Nanos, RegisterRegion,
    backing::{DEVICE_ID, VENDOR_ID},
};
use urma_mem::{Adoption, Arena, Region};

use super::{
    link::{UserError, UserLink},
    wire::{
        CONFIG_REGION, Fields, MSIX, RegionAccess, SetIrqs, UserBody, UserDmaMap, command,
        encode_unmap,
    },
};

/// A UDMA device behind a vfio-user socket.
#[derive(Debug)]
pub struct UserDevice {
    link: Arc<UserLink>,
    name: String,
    registers: Arc<UserRegisters>,
    dma: Arc<UserDma>,
    vectors: Arc<Mutex<BTreeMap<u16, OwnedFd>>>,
}

impl UserDevice {
    /// Connects to the server at `path`; the device has `name` in messages.
    ///
    /// # Errors
    /// [`UserError`]; there is no device, or it is no UDMA device.
    pub fn connect(path: &Path, name: &str) -> Result<Self, UserError> {
        Self::over(UserLink::connect(path)?, name)
    }

    pub(crate) fn over(link: UserLink, name: &str) -> Result<Self, UserError> {
        let link = Arc::new(link);
        let ids = read(&link, CONFIG_REGION, (0, 4))?;
        if ids != u64::from(VENDOR_ID) | u64::from(DEVICE_ID) << 16 {
            return Err(link.broken(command::REGION_READ, "the function is a UDMA device"));
        }
        let question = UserBody::default().words(&[32, 0, 0, 0]).longs(&[0, 0]).0;
        let info = link.request(command::GET_REGION_INFO, &question, &[], 32)?;
        let len = Fields(info.body.get(16..).unwrap_or_default()).long().unwrap_or(0);
        let vectors = Arc::new(Mutex::new(BTreeMap::new()));
        watch(&link, &vectors)?;
        Ok(Self {
            name: name.to_owned(),
            registers: Arc::new(UserRegisters { link: Arc::clone(&link), len }),
            dma: Arc::new(UserDma {
                link: Arc::clone(&link),
                arena: Arena::new()?,
                mapped: Mutex::default(),
            }),
            vectors,
            link,
        })
    }
}

impl Drop for UserDevice {
    /// The server ends everything of this client.
    fn drop(&mut self) {
        self.link.close();
    }
}

/// Starts the thread that closes the connection when the server hung up, and wakes threads that wait for an interrupt.
fn watch(
    link: &Arc<UserLink>,
    vectors: &Arc<Mutex<BTreeMap<u16, OwnedFd>>>,
) -> Result<(), UserError> {
    let (link, vectors) = (Arc::clone(link), Arc::clone(vectors));
    let thread = std::thread::Builder::new().name("urma-vfio-user".to_owned());
    thread.spawn(move || {
        let hung_up = PollFlags::RDHUP;
        while matches!(
            poll(&mut [PollFd::new(link.socket(), hung_up)], None),
            Ok(0) | Err(Errno::INTR)
        ) {}
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

impl DeviceBacking for UserDevice {
    fn info(&self) -> DeviceInfo {
        DeviceInfo {
            name: self.name.clone(),
            driver_name: "udma".to_owned(),
            vendor_id: VENDOR_ID,
            device_id: DEVICE_ID,
        }
    }

    fn registers(&self) -> Arc<dyn RegisterRegion> {
        Arc::clone(&self.registers) as Arc<dyn RegisterRegion>
    }

    fn dma(&self) -> Arc<dyn DmaSpace> {
        Arc::clone(&self.dma) as Arc<dyn DmaSpace>
    }

    fn interrupt(&self, vector: u16) -> Result<OwnedFd, BackingError> {
        let mut vectors = lock(&self.vectors);
        if let Some(fd) = vectors.get(&vector) {
            return Ok(fd.try_clone()?);
        }
        let flags = EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK | EventfdFlags::SEMAPHORE;
        let fd = eventfd(0, flags).map_err(|error| BackingError::Os(error.into()))?;
        let flags = SetIrqs::EVENTFD | SetIrqs::TRIGGER;
        let set = SetIrqs { flags, index: MSIX, start: u32::from(vector), count: 1 };
        match self.link.request(command::SET_IRQS, &set.encode(), &[fd.as_fd()], 0) {
            Ok(_) => {}
            Err(UserError::Refused { .. }) => return Err(BackingError::Vector(vector)),
            Err(error) => return Err(error.into()),
        }
        let copy = fd.try_clone()?;
        vectors.insert(vector, fd);
        Ok(copy)
    }

    fn reset(&self) -> Result<(), BackingError> {
        self.link.request(command::RESET, &[], &[], 0)?;
        Ok(())
    }

    fn now(&self) -> Nanos {
        let time = clock_gettime(ClockId::Monotonic);
        let part = |value: i64| u64::try_from(value).unwrap_or(0);
        part(time.tv_sec) * 1_000_000_000 + part(time.tv_nsec)
    }

    /// Does nothing: the server has threads.
    fn progress(&self) {}
}

/// Reads up to 8 bytes of a region.
fn read(link: &UserLink, region: u32, (offset, count): (u64, u32)) -> Result<u64, UserError> {
    let access = RegionAccess { offset, region, count };
    let reply = link.request(command::REGION_READ, &access.encode(&[]), &[], 16)?;
    match RegionAccess::decode(&reply.body) {
        Some((same, data)) if same == access && data.len() == 8 => {
            Ok(Fields(data).long().unwrap_or(0))
        }
        Some((same, data)) if same == access && data.len() == 4 && count == 4 => {
            Ok(Fields(data).word().unwrap_or(0).into())
        }
        _ => Err(link.broken(command::REGION_READ, "the reply has the bytes that were asked for")),
    }
}

/// Registers of the device: BAR 0. Writes are posted; a read waits until they are done.
#[derive(Debug)]
struct UserRegisters {
    link: Arc<UserLink>,
    len: u64,
}

impl UserRegisters {
    fn write(&self, offset: u64, data: &[u8]) {
        let access =
            RegionAccess { offset, region: 0, count: u32::try_from(data.len()).unwrap_or(0) };
        if let Err(error) = self.link.post(command::REGION_WRITE, &access.encode(data)) {
            tracing::debug!(%error, offset, "a register write is lost");
        }
    }
}

impl RegisterRegion for UserRegisters {
    fn len(&self) -> u64 {
        self.len
    }

    /// All ones when the server is gone, as of a PCI function.
    fn read(&self, offset: u64) -> u64 {
        let count = if offset.is_multiple_of(8) { 8 } else { 4 };
        read(&self.link, 0, (offset, count)).unwrap_or(u64::MAX)
    }

    fn write32(&self, offset: u64, value: u32) {
        self.write(offset, &value.to_le_bytes());
    }

    fn write64(&self, offset: u64, value: u64) {
        self.write(offset, &value.to_le_bytes());
    }

    fn write_block(&self, offset: u64, words: &[u64; 8]) {
        let bytes: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
        self.write(offset, &bytes);
    }
}

/// A mapping: what keeps its pages in the file.
#[derive(Debug)]
struct UserMap {
    len: u64,
    adoption: Option<Adoption>,
}

/// Device addresses: memory of files by their descriptor; private memory moves to a file first.
#[derive(Debug)]
struct UserDma {
    link: Arc<UserLink>,
    arena: Arena,
    mapped: Mutex<BTreeMap<u64, UserMap>>,
}

impl UserDma {
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
