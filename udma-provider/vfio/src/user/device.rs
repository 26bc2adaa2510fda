//! The function behind a socket, as a driver reaches it.
//!
//! - owns: windows by messages or by a mapping, an eventfd for each vector, a thread that waits for the end of the
//!   server. takes: the path of a socket. gives: a [`PciDevice`]. must not: know a register.

use std::{
    collections::BTreeMap,
    os::{
        fd::{AsFd, BorrowedFd, OwnedFd},
        unix::net::UnixStream,
    },
    path::Path,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use rustix::{
    event::{PollFd, PollFlags, poll},
    io::Errno,
};
use udma_abi::DmaSpace;

use super::{
    dma::UserDma,
    link::{REPLY_BOUND, UserError, UserLink, refused},
    window::UserWindow,
    wire::{CONFIG_REGION, Fields, MSIX, REGIONS, SetIrqs, UserBody, command},
};
use crate::device::{InterruptKind, PciDevice, PciError, PciInterrupts, PciWindow, WindowId};

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
        let info = link.request(command::GET_IRQ_INFO, &question, &[], 16)?;
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
        let reset = self.link.request(command::RESET, &[], &[], 0);
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
        let sent = self.link.request(command::SET_IRQS, &set.encode(), &fds, 0);
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
