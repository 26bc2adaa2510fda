//! The server of one connection.
//!
//! - owns: the answers to a client's messages, and what it mapped. takes: a connected socket and a function. gives: calls
//!   of the function that are checked. must not: panic, wait without a bound for a message that began, or trust a field.

use std::{
    io,
    os::{
        fd::{BorrowedFd, OwnedFd},
        unix::net::UnixStream,
    },
    time::Duration,
};

use rustix::{
    io::Errno,
    net::{RecvFlags, recv},
};
use udma_abi::DmaAccess;
use urma_mem::{MapAccess, Region};

use super::{
    map::{MapQuota, MappedRanges},
    stream::{self, UserMessage},
    wire::{
        ACCESS_MAX, Fields, HEADER_LEN, IRQS, IrqAction, REGIONS, RegionAccess, RegionInfo,
        SetIrqs, UserBody, UserDmaMap, UserHeader, VERSION, WireRule, check_version_data, command,
        decode_unmap, sized,
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
/// The client broke the framing of messages, or began one and did not end it within seconds, or did not begin with a version, or
/// does not read its replies; or the system's error. What the client mapped is unmapped when this returns.
pub fn serve(
    socket: &UnixStream,
    function: &mut dyn ServedFunction,
    quota: MapQuota,
) -> io::Result<()> {
    let mut session = ServedClient {
        function,
        quota,
        mapped: MappedRanges::default(),
        has_version: false,
        is_unreachable_logged: false,
        logged: 0,
    };
    let result = session.run(socket);
    let all = session.mapped.remove(0, u64::MAX).unwrap_or_default();
    for address in all {
        let _ = session.function.map(address, None);
    }
    match result {
        Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => Ok(()),
        result => result,
    }
}

/// Answers the first message of a client that is not served with `errno`, and waits for nothing.
///
/// # Errors
/// `WouldBlock`: no message came yet. Else it reads no answer: the connection can be closed.
pub fn refuse(socket: &UnixStream, errno: Errno) -> io::Result<()> {
    let mut bytes = [0; REFUSED_LEN];
    let (len, _) = recv(socket, bytes.as_mut_slice(), RecvFlags::DONTWAIT)?;
    let head = bytes.get(..len).and_then(|bytes| bytes.first_chunk::<HEADER_LEN>());
    // One that sends byte by byte is not waited for.
    let header = UserHeader::decode(head.ok_or(io::ErrorKind::UnexpectedEof)?);
    if !header.is_command() {
        return Err(stream::broken(NO_COMMAND));
    }
    let refusal = header.refusal(errno.raw_os_error().unsigned_abs());
    stream::send(socket, refusal, &[], (&[], Duration::ZERO))
}

/// Why a request is refused.
#[derive(Clone, Copy, Debug)]
struct RefusedMessage {
    errno: Errno,
    /// The rule that the request breaks; without one the error number says it.
    rule: WireRule,
}

impl From<Errno> for RefusedMessage {
    fn from(errno: Errno) -> Self {
        Self { errno, rule: "" }
    }
}

impl From<WireRule> for RefusedMessage {
    fn from(rule: WireRule) -> Self {
        Self { errno: Errno::INVAL, rule }
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
    /// The version was agreed on.
    has_version: bool,
    /// The log has that the client maps memory which no access reaches.
    is_unreachable_logged: bool,
    /// Refusals that are in the log.
    logged: u32,
}

impl ServedClient<'_> {
    fn run(&mut self, socket: &UnixStream) -> io::Result<()> {
        loop {
            let idle = if self.has_version { IDLE_BOUND } else { MESSAGE_BOUND };
            let message = stream::receive(socket, idle, MESSAGE_BOUND)?;
            let header = message.header;
            if !header.is_command() {
                return Err(stream::broken(NO_COMMAND));
            }
            let result = self.answer(message);
            if let Err(refusal) = &result {
                self.log(header, *refusal);
            }
            if !header.wants_reply() {
                continue;
            }
            let (reply, ServedReply { body, file }) = match result {
                Ok(result) => (header.reply(result.body.len()), result),
                Err(RefusedMessage { errno, .. }) => {
                    (header.refusal(errno.raw_os_error().unsigned_abs()), ServedReply::default())
                }
            };
            let fds: Vec<BorrowedFd<'_>> =
                file.iter().filter_map(|file| Some(file.fd()?.0)).collect();
            stream::send(socket, reply, &body, (&fds, MESSAGE_BOUND))?;
        }
    }

    /// Says why a request is refused, for the first ones of a client: it may send them without end.
    fn log(&mut self, header: UserHeader, RefusedMessage { errno, rule }: RefusedMessage) {
        if self.logged < LOGGED_MAX {
            self.logged += 1;
            let (name, number) = (command::name(header.command), header.command);
            tracing::warn!(%errno, rule, number, "a client's request {name} is refused");
        }
    }

    fn answer(&mut self, message: UserMessage) -> Result<ServedReply, RefusedMessage> {
        let (body, command) = (message.body.as_slice(), message.header.command);
        if message.is_cut {
            let rule =
                "the descriptors of a message find room: 8 at most, and within the server's limit";
            return Err(RefusedMessage { errno: Errno::MFILE, rule });
        }
        match (command == command::VERSION, self.has_version) {
            (true, true) => return Err("the version is agreed on once".into()),
            (false, false) => return Err("the version is agreed on first".into()),
            _ => {}
        }
        let has_fds = matches!(command, command::DMA_MAP | command::SET_IRQS);
        if !has_fds && !message.fds.is_empty() {
            return Err("descriptors come with memory and vectors alone".into());
        }
        if command == command::GET_REGION_INFO {
            return self.region_info(body);
        }
        let body = match command {
            command::VERSION => self.version(body),
            command::DMA_MAP => self.dma_map(body, message.fds),
            command::DMA_UNMAP => self.dma_unmap(body),
            command::GET_INFO => sized(body, INFO_LEN)
                .map(|_| UserBody::default().words(&[INFO_LEN, RESETTABLE_PCI, REGIONS, IRQS]).0)
                .map_err(RefusedMessage::from),
            command::GET_IRQ_INFO => self.irq_info(body),
            command::SET_IRQS => self.set_irqs(body, message.fds),
            command::REGION_READ => self.read(body),
            command::REGION_WRITE => self.write(body),
            command::RESET => Ok(self.function.reset().map(|()| Vec::new())?),
            _ => Err(Errno::OPNOTSUPP.into()),
        }?;
        Ok(ServedReply { body, file: None })
    }

    fn version(&mut self, body: &[u8]) -> Result<Vec<u8>, RefusedMessage> {
        let (major, minor) = VERSION;
        let mut fields = Fields(body);
        let numbers = fields.half().zip(fields.half());
        let (found, newest) = numbers.ok_or("a message has all its fields")?;
        if found != major {
            let rule = "the major version is 0";
            return Err(RefusedMessage { errno: Errno::OPNOTSUPP, rule });
        }
        check_version_data(fields.rest())?;
        self.has_version = true;
        // The newest that both know: QEMU refuses a newer one than its own.
        let minor = minor.min(newest);
        Ok([&major.to_le_bytes(), &minor.to_le_bytes(), CAPABILITIES].concat())
    }

    fn dma_map(&mut self, body: &[u8], mut fds: Vec<OwnedFd>) -> Result<Vec<u8>, RefusedMessage> {
        let map = UserDmaMap::decode(body)?;
        self.mapped.check(map.address, map.size, self.quota)?;
        let fd = fds.pop();
        if !fds.is_empty() {
            return Err("memory has one descriptor, or none".into());
        }
        // There is no DMA by messages: memory without a file is mapped, and no access reaches it.
        let Some(fd) = fd else {
            self.mapped.insert(map.address, map.size);
            if map.is_writable && !self.is_unreachable_logged {
                self.is_unreachable_logged = true;
                let (address, size) = (format_args!("{:#x}", map.address), map.size);
                tracing::warn!(%address, size, "{UNREACHABLE}");
            }
            return Ok(Vec::new());
        };
        let len = usize::try_from(map.size).map_err(|_| Errno::INVAL)?;
        let access = if map.is_writable { MapAccess::ReadWrite } else { MapAccess::ReadOnly };
        let region = Region::map_fd(fd, map.offset, len, access).map_err(|error| errno(&error))?;
        let access = if map.is_writable { DmaAccess::Both } else { DmaAccess::ToDevice };
        match self.function.map(map.address, Some((region, access))) {
            // The function has no such addresses, as hardware has few: no access reaches it.
            Ok(()) | Err(Errno::RANGE) => {}
            Err(error) => return Err(error.into()),
        }
        self.mapped.insert(map.address, map.size);
        Ok(Vec::new())
    }

    fn dma_unmap(&mut self, body: &[u8]) -> Result<Vec<u8>, RefusedMessage> {
        let (address, size) = decode_unmap(body)?;
        for first in self.mapped.remove(address, size)? {
            match self.function.map(first, None) {
                // Mapped, and out of reach.
                Ok(()) | Err(Errno::NOENT) => {}
                Err(error) => return Err(error.into()),
            }
        }
        Ok(body.to_vec())
    }

    fn region_info(&self, body: &[u8]) -> Result<ServedReply, RefusedMessage> {
        sized(body, RegionInfo::LEN)?;
        let argsz = Fields(body).word().unwrap_or(0);
        let region = index_of(body).filter(|index| *index < REGIONS);
        let region = region.ok_or("the region exists")?;
        let ServedShape { len, is_writable } = self.function.shape(region);
        let memory = self.function.memory(region).filter(|memory| memory.len() as u64 == len);
        let offset = memory.as_ref().and_then(Region::fd).map(|(_, offset)| offset);
        let is_mapped = offset.is_some();
        let offset = offset.unwrap_or(0);
        let info = RegionInfo { region, len, offset, is_writable, is_mapped };
        let (body, has_file) = info.encode(argsz);
        Ok(ServedReply { body, file: memory.filter(|_| has_file) })
    }

    fn irq_info(&self, body: &[u8]) -> Result<Vec<u8>, RefusedMessage> {
        sized(body, IRQ_INFO_LEN)?;
        let index = index_of(body).filter(|index| *index < IRQS);
        let index = index.ok_or("the kind of interrupts exists")?;
        let count = self.function.vectors(index);
        Ok(UserBody::default().words(&[IRQ_INFO_LEN, 1, index, count]).0)
    }

    /// Vectors with an eventfd each; without descriptors they are raised no more, as QEMU sends -1.
    fn set_irqs(&mut self, body: &[u8], fds: Vec<OwnedFd>) -> Result<Vec<u8>, RefusedMessage> {
        let set = SetIrqs::decode(body)?;
        let count = if set.index < IRQS { self.function.vectors(set.index) } else { 0 };
        let mut set_one = |vector, fd| self.function.set_vector(set.index, vector, fd);
        match set.action(count, fds.len())? {
            IrqAction::DisableAll => (0..count).try_for_each(|vector| set_one(vector, None))?,
            IrqAction::SetEventfds(_) if fds.iter().any(|fd| !is_eventfd(fd)) => {
                return Err("a vector's descriptor is an eventfd".into());
            }
            IrqAction::SetEventfds(vectors) => {
                let mut fds = fds.into_iter();
                vectors.into_iter().try_for_each(|vector| set_one(vector, fds.next()))?;
            }
            IrqAction::Other => return Err(Errno::OPNOTSUPP.into()),
        }
        Ok(Vec::new())
    }

    fn read(&mut self, body: &[u8]) -> Result<Vec<u8>, RefusedMessage> {
        let (access, _) = RegionAccess::decode(body).ok_or("a message has all its fields")?;
        let len = self.check(access)?;
        let mut data = vec![0; len];
        self.function.read(access.region, access.offset, &mut data)?;
        Ok(access.encode(&data))
    }

    fn write(&mut self, body: &[u8]) -> Result<Vec<u8>, RefusedMessage> {
        let (access, data) = RegionAccess::decode(body).ok_or("a message has all its fields")?;
        let len = self.check(access)?;
        if data.len() != len {
            return Err("a write has as many bytes as it says".into());
        }
        if !self.function.shape(access.region).is_writable {
            return Err(Errno::ACCESS.into());
        }
        self.function.write(access.region, access.offset, data)?;
        Ok(access.encode(&[]))
    }

    /// Bytes of an access that lies within its region.
    fn check(&self, access: RegionAccess) -> Result<usize, RefusedMessage> {
        let len = usize::try_from(access.count).map_err(|_| Errno::INVAL)?;
        let shape = if access.region < REGIONS {
            self.function.shape(access.region)
        } else {
            ServedShape::default()
        };
        let end = access.offset.checked_add(u64::from(access.count));
        if len == 0 || len > ACCESS_MAX || end.is_none_or(|end| end > shape.len) {
            return Err("an access has 1 to 4096 bytes within its region".into());
        }
        Ok(len)
    }
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
/// Bytes of the fields of [`command::GET_INFO`] and [`command::GET_IRQ_INFO`], and of their replies.
const INFO_LEN: u32 = 16;
const IRQ_INFO_LEN: u32 = 16;
/// Refusals of one client that the log has.
const LOGGED_MAX: u32 = 8;
/// Bytes of the first message of a client that is refused: with more, it gets no answer.
const REFUSED_LEN: usize = 4096;
const NO_COMMAND: WireRule = "a client sends commands";
const UNREACHABLE: &str = "a client maps memory without a descriptor: the device cannot reach it, and what is placed there fails. \
    Memory of a guest must be a shared file (QEMU: -object memory-backend-memfd,share=on)";
const CAPABILITIES: &[u8] = b"{\"capabilities\":{\"max_msg_fds\":1,\"max_data_xfer_size\":4096}}\0";
