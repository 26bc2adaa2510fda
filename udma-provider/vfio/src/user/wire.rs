//! Messages of the vfio-user protocol, version 0.1: all fields are little-endian.
//!
//! - owns: numbers and layouts. takes: bytes of a peer, which may be anything. gives: values, or the rule that was
//!   broken. must not: do input or output.

use std::ops::Range;

use serde_json::Value;

/// A rule of the protocol, in the words of a log line.
pub(crate) type WireRule = &'static str;

/// Bytes of a message header.
pub(crate) const HEADER_LEN: usize = 16;
/// Most bytes of a message: a version reply of QEMU has some hundred, a register access few.
pub(crate) const MESSAGE_MAX: usize = 64 << 10;
/// Most data bytes of one register access: a block of a direct entry.
pub(crate) const ACCESS_MAX: usize = 4096;
/// Most descriptors of a message that are taken.
pub(crate) const FDS_MAX: usize = 8;
/// Version of the protocol, as `(major, minor)`.
pub(crate) const VERSION: (u16, u16) = (0, 1);

/// Index of the configuration space among the regions of a PCI function.
pub(crate) const CONFIG_REGION: u32 = 7;
/// Number of regions of a PCI function.
pub(crate) const REGIONS: u32 = 9;
/// Index of the MSI-X vectors among the interrupts.
pub(crate) const MSIX: u32 = 2;
/// Number of interrupt kinds of a PCI function.
pub(crate) const IRQS: u32 = 5;

/// Commands of the protocol that are served.
pub(crate) mod command {
    pub(crate) const VERSION: u16 = 1;
    pub(crate) const DMA_MAP: u16 = 2;
    pub(crate) const DMA_UNMAP: u16 = 3;
    pub(crate) const GET_INFO: u16 = 4;
    pub(crate) const GET_REGION_INFO: u16 = 5;
    pub(crate) const GET_IRQ_INFO: u16 = 7;
    pub(crate) const SET_IRQS: u16 = 8;
    pub(crate) const REGION_READ: u16 = 9;
    pub(crate) const REGION_WRITE: u16 = 10;
    pub(crate) const RESET: u16 = 13;

    /// Name of a command in log lines.
    pub(crate) const fn name(command: u16) -> &'static str {
        match command {
            VERSION => "VERSION",
            DMA_MAP => "DMA_MAP",
            DMA_UNMAP => "DMA_UNMAP",
            GET_INFO => "DEVICE_GET_INFO",
            GET_REGION_INFO => "DEVICE_GET_REGION_INFO",
            GET_IRQ_INFO => "DEVICE_GET_IRQ_INFO",
            SET_IRQS => "DEVICE_SET_IRQS",
            REGION_READ => "REGION_READ",
            REGION_WRITE => "REGION_WRITE",
            RESET => "DEVICE_RESET",
            _ => "a command that is not served",
        }
    }
}

const TYPE_MASK: u32 = 0xf;
const REPLY: u32 = 1;
const NO_REPLY: u32 = 1 << 4;
const ERROR: u32 = 1 << 5;

/// Header of a message.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct UserHeader {
    pub(crate) id: u16,
    pub(crate) command: u16,
    /// Bytes of the message with this header.
    pub(crate) size: u32,
    pub(crate) flags: u32,
    /// Errno of an error reply.
    pub(crate) error: u32,
}

impl UserHeader {
    /// Of a request with `len` bytes of body.
    pub(crate) fn request(id: u16, command: u16, len: usize, is_answered: bool) -> Self {
        let flags = if is_answered { 0 } else { NO_REPLY };
        Self { id, command, size: size_of_message(len), flags, error: 0 }
    }

    /// Of the reply to this request, with `len` bytes of body.
    pub(crate) fn reply(self, len: usize) -> Self {
        Self { size: size_of_message(len), flags: REPLY, error: 0, ..self }
    }

    /// Of the error reply to this request.
    pub(crate) fn refusal(self, errno: u32) -> Self {
        Self { size: size_of_message(0), flags: REPLY | ERROR, error: errno, ..self }
    }

    pub(crate) const fn is_reply(self) -> bool {
        self.flags & TYPE_MASK == REPLY
    }

    pub(crate) const fn is_command(self) -> bool {
        self.flags & TYPE_MASK == 0
    }

    pub(crate) const fn wants_reply(self) -> bool {
        self.flags & NO_REPLY == 0
    }

    /// The errno of an error reply; an error without one is `EIO`.
    pub(crate) const fn errno(self) -> Option<u32> {
        const EIO: u32 = 5;
        match (self.flags & ERROR, self.error) {
            (0, _) => None,
            (_, 0) => Some(EIO),
            (_, errno) => Some(errno),
        }
    }

    /// Bytes of the body; `None`: the size is below that of a header or above [`MESSAGE_MAX`].
    pub(crate) fn body_len(self) -> Option<usize> {
        let size = usize::try_from(self.size).ok().filter(|size| *size <= MESSAGE_MAX)?;
        size.checked_sub(HEADER_LEN)
    }

    pub(crate) fn encode(self) -> [u8; HEADER_LEN] {
        let mut bytes = [0; HEADER_LEN];
        bytes[..2].copy_from_slice(&self.id.to_le_bytes());
        bytes[2..4].copy_from_slice(&self.command.to_le_bytes());
        bytes[4..8].copy_from_slice(&self.size.to_le_bytes());
        bytes[8..12].copy_from_slice(&self.flags.to_le_bytes());
        bytes[12..].copy_from_slice(&self.error.to_le_bytes());
        bytes
    }

    /// Every bit pattern is a header.
    pub(crate) fn decode(bytes: &[u8; HEADER_LEN]) -> Self {
        let mut fields = Fields(bytes);
        Self {
            id: fields.half().unwrap_or(0),
            command: fields.half().unwrap_or(0),
            size: fields.word().unwrap_or(0),
            flags: fields.word().unwrap_or(0),
            error: fields.word().unwrap_or(0),
        }
    }
}

/// Size field of a message; a body that is too long gives a size that no receiver takes.
fn size_of_message(len: usize) -> u32 {
    u32::try_from(HEADER_LEN + len).unwrap_or(u32::MAX)
}

/// Bytes that are taken field by field.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Fields<'a>(pub(crate) &'a [u8]);

impl<'a> Fields<'a> {
    fn take<const N: usize>(&mut self) -> Option<[u8; N]> {
        let (first, rest) = self.0.split_first_chunk::<N>()?;
        self.0 = rest;
        Some(*first)
    }

    pub(crate) fn half(&mut self) -> Option<u16> {
        self.take().map(u16::from_le_bytes)
    }

    pub(crate) fn word(&mut self) -> Option<u32> {
        self.take().map(u32::from_le_bytes)
    }

    pub(crate) fn long(&mut self) -> Option<u64> {
        self.take().map(u64::from_le_bytes)
    }

    /// Returns the bytes that no field was taken from.
    pub(crate) const fn rest(self) -> &'a [u8] {
        self.0
    }
}

/// A body that is made field by field.
#[derive(Default, Debug)]
pub(crate) struct UserBody(pub(crate) Vec<u8>);

impl UserBody {
    pub(crate) fn words(mut self, words: &[u32]) -> Self {
        self.0.extend(words.iter().flat_map(|word| word.to_le_bytes()));
        self
    }

    pub(crate) fn longs(mut self, longs: &[u64]) -> Self {
        self.0.extend(longs.iter().flat_map(|long| long.to_le_bytes()));
        self
    }

    pub(crate) fn bytes(mut self, bytes: &[u8]) -> Self {
        self.0.extend_from_slice(bytes);
        self
    }
}

/// Fields of the body of the request [`command::DMA_MAP`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct UserDmaMap {
    pub(crate) is_writable: bool,
    /// First byte in the file.
    pub(crate) offset: u64,
    pub(crate) address: u64,
    pub(crate) size: u64,
}

impl UserDmaMap {
    const LEN: u32 = 32;
    const READ: u32 = 1;
    const WRITE: u32 = 2;

    pub(crate) fn encode(self) -> Vec<u8> {
        let flags = if self.is_writable { Self::READ | Self::WRITE } else { Self::READ };
        let body = UserBody::default().words(&[Self::LEN, flags]);
        body.longs(&[self.offset, self.address, self.size]).0
    }

    pub(crate) fn decode(body: &[u8]) -> Result<Self, WireRule> {
        let mut fields = sized(body, Self::LEN)?;
        let flags = fields.word().unwrap_or(0);
        if flags == 0 || flags & !(Self::READ | Self::WRITE) != 0 {
            return Err("the flags are readable (1), writable (2) or both");
        }
        let mut long = || fields.long().unwrap_or(0);
        let (offset, address, size) = (long(), long(), long());
        Ok(Self { is_writable: flags & Self::WRITE != 0, offset, address, size })
    }
}

/// The fields after argsz, of a body with all `len` bytes of its fields.
pub(crate) fn sized(body: &[u8], len: u32) -> Result<Fields<'_>, WireRule> {
    let mut fields = Fields(body);
    let is_whole = u32::try_from(body.len()).is_ok_and(|found| found >= len);
    match fields.word().filter(|_| is_whole) {
        None => Err("a message has all its fields"),
        Some(argsz) if argsz < len => Err("argsz counts all fields"),
        Some(_) => Ok(fields),
    }
}

/// Body of [`command::DMA_UNMAP`], and of its reply.
pub(crate) fn encode_unmap(address: u64, size: u64) -> Vec<u8> {
    UserBody::default().words(&[UNMAP_LEN, 0]).longs(&[address, size]).0
}

/// What is to be unmapped by [`command::DMA_UNMAP`], as address and size; everything, with the flag for that.
pub(crate) fn decode_unmap(body: &[u8]) -> Result<(u64, u64), WireRule> {
    const ALL: u32 = 2;
    let mut fields = sized(body, UNMAP_LEN)?;
    let flags = fields.word().unwrap_or(0);
    let mut long = || fields.long().unwrap_or(0);
    match (flags, long(), long()) {
        (0, _, 0) => Err("a range is not empty"),
        (0, address, size) => Ok((address, size)),
        (ALL, 0, 0) => Ok((0, u64::MAX)),
        (ALL, ..) => Err("address and size are 0 where all is unmapped"),
        _ => Err("the flags are 0, or that for all (2)"),
    }
}

const UNMAP_LEN: u32 = 24;

/// Head of an access to a region.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct RegionAccess {
    pub(crate) offset: u64,
    pub(crate) region: u32,
    /// Bytes of data that follow the body.
    pub(crate) count: u32,
}

impl RegionAccess {
    pub(crate) fn encode(self, data: &[u8]) -> Vec<u8> {
        let body = UserBody::default().longs(&[self.offset]).words(&[self.region, self.count]);
        body.bytes(data).0
    }

    /// The head and the data after it.
    pub(crate) fn decode(body: &[u8]) -> Option<(Self, &[u8])> {
        let mut fields = Fields(body);
        let offset = fields.long()?;
        let (region, count) = (fields.word()?, fields.word()?);
        Some((Self { offset, region, count }, fields.rest()))
    }
}

/// Fields of the reply to [`command::GET_REGION_INFO`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct RegionInfo {
    pub(crate) region: u32,
    /// Bytes; 0: there is no such region.
    pub(crate) len: u64,
    /// First byte in the file that comes with the reply.
    pub(crate) offset: u64,
    pub(crate) is_writable: bool,
    /// All of it may be mapped.
    pub(crate) is_mapped: bool,
}

impl RegionInfo {
    /// Bytes of its fields.
    pub(crate) const LEN: u32 = 32;
    const LEN_MAPPED: u32 = 64;
    const READ: u32 = 1;
    const WRITE: u32 = 2;
    const MAP: u32 = 4;
    const CAPS: u32 = 8;
    /// Id and version of the capability that lists the areas which may be mapped.
    const SPARSE: u32 = 1 | 1 << 16;

    pub(crate) fn question(region: u32) -> Vec<u8> {
        let body = UserBody::default().words(&[Self::LEN_MAPPED, 0, region, 0]);
        body.longs(&[0, 0]).0
    }

    /// The reply to a client that has room for `argsz` bytes. Whether the file goes with it: with less room than needed the reply
    /// says how much is.
    pub(crate) fn encode(self, argsz: u32) -> (Vec<u8>, bool) {
        let flags = match (self.len, self.is_writable) {
            (0, _) => 0,
            (_, false) => Self::READ,
            (_, true) => Self::READ | Self::WRITE,
        };
        let body = UserBody::default();
        if !self.is_mapped {
            let words = [Self::LEN, flags, self.region, 0];
            return (body.words(&words).longs(&[self.len, self.offset]).0, false);
        }
        let is_whole = argsz >= Self::LEN_MAPPED;
        let flags = flags | Self::MAP | Self::CAPS;
        // Where the capability is, also for a client without room for it: QEMU refuses another place.
        let body = body.words(&[Self::LEN_MAPPED, flags, self.region, Self::LEN]);
        let body = body.longs(&[self.len, self.offset]);
        if !is_whole {
            return (body.0, false);
        }
        (body.words(&[Self::SPARSE, 0, 1, 0]).longs(&[0, self.len]).0, true)
    }

    /// Areas that do not cover the region count as none.
    pub(crate) fn decode(body: &[u8]) -> Option<Self> {
        let mut fields = Fields(body);
        let (_argsz, flags) = (fields.word()?, fields.word()?);
        let (region, cap) = (fields.word()?, fields.word()?);
        let (len, offset) = (fields.long()?, fields.long()?);
        let mut areas = Fields(body.get(usize::try_from(cap).ok()?..).unwrap_or_default());
        let head = [areas.word(), areas.word(), areas.word(), areas.word()];
        let is_one = head[0] == Some(Self::SPARSE) && head[2] == Some(1);
        let is_whole = (areas.long(), areas.long()) == (Some(0), Some(len));
        let is_mapped = flags & Self::MAP != 0 && is_one && is_whole;
        Some(Self { region, len, offset, is_writable: flags & Self::WRITE != 0, is_mapped })
    }
}

/// Head of a [`command::SET_IRQS`], before its data.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct SetIrqs {
    pub(crate) flags: u32,
    pub(crate) index: u32,
    pub(crate) start: u32,
    pub(crate) count: u32,
}

/// What a [`SetIrqs`] asks for.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum IrqAction {
    /// No vector of the kind is raised any more.
    DisableAll,
    /// These vectors have the descriptors of the message, or, where it has none, none.
    SetEventfds(Range<u32>),
    /// Something that a server may leave out: masks, or raises by the client.
    Other,
}

impl SetIrqs {
    /// There are no data.
    pub(crate) const NO_DATA: u32 = 1;
    /// The data are eventfds.
    pub(crate) const EVENTFD: u32 = 4;
    /// What the vectors are set for: to trigger.
    pub(crate) const TRIGGER: u32 = 32;
    const LEN: u32 = 20;
    /// Kinds of data: none, booleans, eventfds.
    const DATA: u32 = 7;
    /// Actions: mask, unmask, trigger.
    const ACTION: u32 = 7 << 3;

    pub(crate) fn encode(self) -> Vec<u8> {
        UserBody::default().words(&[Self::LEN, self.flags, self.index, self.start, self.count]).0
    }

    pub(crate) fn decode(body: &[u8]) -> Result<Self, WireRule> {
        let mut fields = sized(body, Self::LEN)?;
        let mut word = || fields.word().unwrap_or(0);
        Ok(Self { flags: word(), index: word(), start: word(), count: word() })
    }

    /// What is asked of `vectors` vectors with `fds` descriptors. As the kernel's VFIO: a count of 0 disables all, with the flags
    /// for that, and is wrong with all others.
    pub(crate) fn action(self, vectors: u32, fds: usize) -> Result<IrqAction, WireRule> {
        let (data, action) = (self.flags & Self::DATA, self.flags & Self::ACTION);
        if data | action != self.flags || data.count_ones() != 1 || action.count_ones() != 1 {
            return Err("the flags name one kind of data and one action");
        }
        let end = self.start.checked_add(self.count).filter(|end| *end <= vectors);
        let Some(end) = end.filter(|_| self.start < vectors) else {
            return Err("the vectors exist");
        };
        let is_trigger = action == Self::TRIGGER;
        if self.count == 0 {
            return match data == Self::NO_DATA && is_trigger {
                true => Ok(IrqAction::DisableAll),
                false => Err("a count of 0 disables all vectors, without data, to trigger"),
            };
        }
        if data != Self::EVENTFD || !is_trigger {
            return Ok(IrqAction::Other);
        }
        if fds != 0 && u32::try_from(fds).ok() != Some(self.count) {
            return Err("there is a descriptor for each vector, or none");
        }
        Ok(IrqAction::SetEventfds(self.start..end))
    }
}

/// Checks what stands behind the numbers of a version: nothing, or a JSON object that ends with a zero byte.
pub(crate) fn check_version_data(data: &[u8]) -> Result<(), WireRule> {
    const RULE: WireRule = "the version data are a JSON object that ends with a zero byte";
    if data.is_empty() {
        return Ok(());
    }
    let text = data.strip_suffix(&[0]).ok_or(RULE)?;
    let Ok(Value::Object(document)) = serde_json::from_slice(text) else { return Err(RULE) };
    let capabilities = match document.get("capabilities") {
        None => return Ok(()),
        Some(Value::Object(capabilities)) => capabilities,
        Some(_) => return Err("the capabilities are a JSON object"),
    };
    let is_count = |name| capabilities.get(name).is_none_or(Value::is_u64);
    match ["max_msg_fds", "max_data_xfer_size", "pgsizes"].into_iter().all(is_count) {
        true => Ok(()),
        false => Err("max_msg_fds, max_data_xfer_size and pgsizes are whole numbers"),
    }
}
