//! The server of one connection.
//!
//! - owns: the answers to a client's messages, and what it mapped. takes: a connected socket and a function. gives: calls
//!   of the function that are checked. must not: panic, wait without a bound for a message that began, or trust a field.
#![expect(clippy::disallowed_methods, reason = "a refused client's bound is real time")]

use std::{
    io,
    os::{
        fd::{BorrowedFd, OwnedFd},
        unix::net::UnixStream,
    },
    time::{Duration, Instant},
};

use rustix::io::Errno;
use udma_abi::DmaAccess;
use urma_mem::{MapAccess, Region};

use super::{
    map::{MapQuota, MappedRanges},
    stream::{self, UserMessage},
    wire::{
        ACCESS_MAX, Fields, IRQS, REGIONS, RegionAccess, RegionInfo, SetIrqs, UserBody, UserDmaMap,
        VERSION, command, decode_unmap,
    },
};

/// A region of a function.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct ServedShape {
    /// Length in bytes; 0: there is no such region.
    pub len: u64,
    /// Whether it may be written.
    pub is_writable: bool,
}

/// A function that a server serves to one client. Every argument was checked against the shapes; an error is an error
/// reply.
pub trait ServedFunction {
    /// Returns the shape of region `index`, as VFIO numbers those of a PCI function: 0 to 5 are the BARs, 7 is the
    /// configuration space.
    fn shape(&self, index: u32) -> ServedShape;

    /// Returns all of region `index`, where that is memory which the client may map: of a file that is sealed against
    /// shrinking.
    fn memory(&self, index: u32) -> Option<Region> {
        let _ = index;
        None
    }

    /// Returns the number of vectors of interrupt kind `index`: 2 is MSI-X.
    fn vectors(&self, index: u32) -> u32;

    /// Reads a region.
    ///
    /// # Errors
    /// The error number of the reply.
    fn read(&mut self, index: u32, offset: u64, bytes: &mut [u8]) -> Result<(), Errno>;

    /// Writes a region.
    ///
    /// # Errors
    /// The error number of the reply.
    fn write(&mut self, index: u32, offset: u64, bytes: &[u8]) -> Result<(), Errno>;

    /// Maps memory of the client at a device address, or (`None`) takes away the mapping that begins there.
    ///
    /// # Errors
    /// `RANGE`: the function does not have these addresses; `NOENT`: no mapping begins there. Neither is an error for the
    /// client. Else the error number of the reply.
    fn map(&mut self, address: u64, memory: Option<(Region, DmaAccess)>) -> Result<(), Errno>;

    /// Sets the eventfd of a vector; `None`: it is raised no more.
    ///
    /// # Errors
    /// The error number of the reply.
    fn set_vector(&mut self, index: u32, vector: u32, fd: Option<OwnedFd>) -> Result<(), Errno>;

    /// Resets the function.
    ///
    /// # Errors
    /// The error number of the reply.
    fn reset(&mut self) -> Result<(), Errno>;
}

/// Serves `function` to the client of `socket` until that hangs up.
///
/// # Errors
/// The client broke the framing of messages, or began one and did not end it within seconds, or does not read its
/// replies; or the system's error. What the client mapped is unmapped when this returns.
pub fn serve(
    socket: &UnixStream,
    function: &mut dyn ServedFunction,
    quota: MapQuota,
) -> io::Result<()> {
    serve_for(socket, function, quota, IDLE_BOUND)
}

/// As [`serve`], for `bound` at most in all.
///
/// # Errors
/// As [`serve`]; `TimedOut`: the client is still there.
pub fn serve_for(
    socket: &UnixStream,
    function: &mut dyn ServedFunction,
    quota: MapQuota,
    bound: Duration,
) -> io::Result<()> {
    let mut session = ServedClient { function, quota, mapped: MappedRanges::default() };
    let result = session.run(socket, bound);
    let all = session.mapped.remove(0, u64::MAX).unwrap_or_default();
    for address in all {
        let _ = session.function.map(address, None);
    }
    match result {
        Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => Ok(()),
        result => result,
    }
}

/// Body of a reply, and memory whose file goes with it.
#[derive(Default)]
struct ServedReply {
    body: Vec<u8>,
    file: Option<Region>,
}

struct ServedClient<'a> {
    function: &'a mut dyn ServedFunction,
    quota: MapQuota,
    mapped: MappedRanges,
}

impl ServedClient<'_> {
    fn run(&mut self, socket: &UnixStream, bound: Duration) -> io::Result<()> {
        let begun = Instant::now();
        loop {
            let left = bound.saturating_sub(begun.elapsed());
            let message = stream::receive(socket, left, MESSAGE_BOUND)?;
            let header = message.header;
            if !header.is_command() {
                return Err(io::ErrorKind::InvalidData.into());
            }
            let result = self.answer(message);
            if !header.wants_reply() {
                continue;
            }
            let (reply, ServedReply { body, file }) = match result {
                Ok(result) => (header.reply(result.body.len()), result),
                Err(errno) => {
                    (header.refusal(errno.raw_os_error().unsigned_abs()), ServedReply::default())
                }
            };
            let fds: Vec<BorrowedFd<'_>> =
                file.iter().filter_map(|file| Some(file.fd()?.0)).collect();
            stream::send(socket, reply, &body, (&fds, MESSAGE_BOUND))?;
        }
    }

    fn answer(&mut self, message: UserMessage) -> Result<ServedReply, Errno> {
        let body = message.body.as_slice();
        if message.header.command == command::GET_REGION_INFO {
            return self.region_info(body);
        }
        let body = match message.header.command {
            command::VERSION => version(body),
            command::DMA_MAP => self.dma_map(body, message.fds),
            command::DMA_UNMAP => self.dma_unmap(body),
            command::GET_INFO => {
                Ok(UserBody::default().words(&[16, RESETTABLE_PCI, REGIONS, IRQS]).0)
            }
            command::GET_IRQ_INFO => self.irq_info(body),
            command::SET_IRQS => self.set_irqs(body, message.fds),
            command::REGION_READ => self.read(body),
            command::REGION_WRITE => self.write(body),
            command::RESET => self.function.reset().map(|()| Vec::new()),
            _ => Err(Errno::OPNOTSUPP),
        }?;
        Ok(ServedReply { body, file: None })
    }

    fn dma_map(&mut self, body: &[u8], mut fds: Vec<OwnedFd>) -> Result<Vec<u8>, Errno> {
        let map = UserDmaMap::decode(body).ok_or(Errno::INVAL)?;
        self.mapped.check(map.address, map.size, self.quota)?;
        let fd = fds.pop();
        if !fds.is_empty() {
            return Err(Errno::INVAL);
        }
        // There is no DMA by messages: memory without a file is mapped, and no access reaches it.
        let Some(fd) = fd else {
            self.mapped.insert(map.address, map.size);
            return Ok(Vec::new());
        };
        let len = usize::try_from(map.size).map_err(|_| Errno::INVAL)?;
        let access = if map.is_writable { MapAccess::ReadWrite } else { MapAccess::ReadOnly };
        let region = Region::map_fd(fd, map.offset, len, access).map_err(|error| errno(&error))?;
        let access = if map.is_writable { DmaAccess::Both } else { DmaAccess::ToDevice };
        match self.function.map(map.address, Some((region, access))) {
            // The function has no such addresses, as hardware has few: no access reaches it.
            Ok(()) | Err(Errno::RANGE) => {}
            Err(error) => return Err(error),
        }
        self.mapped.insert(map.address, map.size);
        Ok(Vec::new())
    }

    fn dma_unmap(&mut self, body: &[u8]) -> Result<Vec<u8>, Errno> {
        let (address, size) = decode_unmap(body).ok_or(Errno::INVAL)?;
        for first in self.mapped.remove(address, size)? {
            match self.function.map(first, None) {
                // Mapped, and out of reach.
                Ok(()) | Err(Errno::NOENT) => {}
                Err(error) => return Err(error),
            }
        }
        Ok(body.to_vec())
    }

    fn region_info(&self, body: &[u8]) -> Result<ServedReply, Errno> {
        let argsz = Fields(body).word().ok_or(Errno::INVAL)?;
        let region = index_of(body).filter(|index| *index < REGIONS).ok_or(Errno::INVAL)?;
        let ServedShape { len, is_writable } = self.function.shape(region);
        let memory = self.function.memory(region).filter(|memory| memory.len() as u64 == len);
        let offset = memory.as_ref().and_then(Region::fd).map(|(_, offset)| offset);
        let is_mapped = offset.is_some();
        let offset = offset.unwrap_or(0);
        let info = RegionInfo { region, len, offset, is_writable, is_mapped };
        let (body, has_file) = info.encode(argsz);
        Ok(ServedReply { body, file: memory.filter(|_| has_file) })
    }

    fn irq_info(&self, body: &[u8]) -> Result<Vec<u8>, Errno> {
        let index = index_of(body).filter(|index| *index < IRQS).ok_or(Errno::INVAL)?;
        Ok(UserBody::default().words(&[16, 1, index, self.function.vectors(index)]).0)
    }

    /// Vectors with an eventfd each; one without a descriptor is raised no more, as QEMU sends -1.
    fn set_irqs(&mut self, body: &[u8], fds: Vec<OwnedFd>) -> Result<Vec<u8>, Errno> {
        let set = SetIrqs::decode(body).ok_or(Errno::INVAL)?;
        let count = if set.index < IRQS { self.function.vectors(set.index) } else { 0 };
        let end = set.start.checked_add(set.count).filter(|end| *end <= count);
        let end = end.ok_or(Errno::INVAL)?;
        if set.count == 0 {
            // All vectors of the kind are disabled.
            return (0..count)
                .try_for_each(|vector| self.function.set_vector(set.index, vector, None))
                .map(|()| Vec::new());
        }
        if set.flags & (SetIrqs::EVENTFD | SetIrqs::TRIGGER) != SetIrqs::EVENTFD | SetIrqs::TRIGGER
        {
            return Err(Errno::OPNOTSUPP);
        }
        if fds.iter().any(|fd| !is_eventfd(fd)) {
            return Err(Errno::INVAL);
        }
        let mut fds = fds.into_iter();
        for vector in set.start..end {
            self.function.set_vector(set.index, vector, fds.next())?;
        }
        Ok(Vec::new())
    }

    fn read(&mut self, body: &[u8]) -> Result<Vec<u8>, Errno> {
        let (access, _) = RegionAccess::decode(body).ok_or(Errno::INVAL)?;
        let len = self.check(access)?;
        let mut data = vec![0; len];
        self.function.read(access.region, access.offset, &mut data)?;
        Ok(access.encode(&data))
    }

    fn write(&mut self, body: &[u8]) -> Result<Vec<u8>, Errno> {
        let (access, data) = RegionAccess::decode(body).ok_or(Errno::INVAL)?;
        let len = self.check(access)?;
        let data = data.get(..len).filter(|_| data.len() == len).ok_or(Errno::INVAL)?;
        if !self.function.shape(access.region).is_writable {
            return Err(Errno::ACCESS);
        }
        self.function.write(access.region, access.offset, data)?;
        Ok(access.encode(&[]))
    }

    /// Bytes of an access that lies within its region.
    fn check(&self, access: RegionAccess) -> Result<usize, Errno> {
        let len = usize::try_from(access.count).map_err(|_| Errno::INVAL)?;
        let shape = if access.region < REGIONS {
            self.function.shape(access.region)
        } else {
            ServedShape::default()
        };
        let end = access.offset.checked_add(u64::from(access.count));
        if len == 0 || len > ACCESS_MAX || end.is_none_or(|end| end > shape.len) {
            return Err(Errno::INVAL);
        }
        Ok(len)
    }
}

fn version(body: &[u8]) -> Result<Vec<u8>, Errno> {
    let (major, minor) = VERSION;
    let mut fields = Fields(body);
    let (found, newest) = fields.half().zip(fields.half()).ok_or(Errno::INVAL)?;
    if found != major {
        return Err(Errno::OPNOTSUPP);
    }
    // The newest that both know: QEMU refuses a newer one than its own.
    let minor = minor.min(newest);
    Ok([&major.to_le_bytes(), &minor.to_le_bytes(), CAPABILITIES].concat())
}

/// The index of an information request, behind argsz and flags.
fn index_of(body: &[u8]) -> Option<u32> {
    let mut fields = Fields(body);
    let (_argsz, _flags) = (fields.word()?, fields.word()?);
    fields.word()
}

/// A raise writes to it and must not wait: no pipe, no socket.
fn is_eventfd(fd: &OwnedFd) -> bool {
    use std::os::fd::AsRawFd;
    let link = std::fs::read_link(format!("/proc/self/fd/{}", fd.as_raw_fd()));
    link.is_ok_and(|link| link.as_os_str() == "anon_inode:[eventfd]")
}

fn errno(error: &io::Error) -> Errno {
    match error.kind() {
        io::ErrorKind::PermissionDenied => Errno::ACCESS,
        _ => Errno::from_io_error(error).unwrap_or(Errno::INVAL),
    }
}

/// Bound of a message that began, and of a reply that is sent.
const MESSAGE_BOUND: Duration = Duration::from_secs(5);
/// How long a client may be silent: it may have nothing to say; its end is a hang-up.
const IDLE_BOUND: Duration = Duration::from_secs(u32::MAX as u64);
/// Flags of a device: it can be reset, and it is a PCI function.
const RESETTABLE_PCI: u32 = 3;
const CAPABILITIES: &[u8] = b"{\"capabilities\":{\"max_msg_fds\":1,\"max_data_xfer_size\":4096}}\0";
