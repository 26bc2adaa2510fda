//! A copy of each packet, or of each lookup of contexts, for the processes that capture.
//!
//! *Owns*: the socket to the capturing process, the form of a record. *Takes*: packets as they pass.
//! *Must not*: wait: what does not fit into the socket is dropped and counted.
//!
//! ```text
//! record: 0 time: u64, nanoseconds since 1970   8 from: [u8; 16]   24 to: [u8; 16]
//!         40 dropped before this one: u64       48 BTH to ICRC
//! ```
//! Little-endian; one message of the SEQPACKET socket each. A message of lookups is that of one request: the number dropped
//! before these (u64), then handles of the model (u32 each).

use std::{
    io::IoSlice,
    mem::MaybeUninit,
    os::fd::OwnedFd,
    sync::{Arc, Mutex, PoisonError},
    time::SystemTime,
};

use rustix::{
    io::Errno,
    net::{SendAncillaryBuffer, SendFlags, sendmsg},
};
use udma_abi::RawEid;
use urma_mem::sync::{AtomicBool, AtomicU64, Ordering};

use super::descriptor::ForkGuarded;
use crate::ports::LookupSink;

/// Bytes of a record before the packet.
pub const HEADER_LEN: usize = 48;

/// The place where a capturing process hangs in.
#[derive(Debug, Default)]
pub struct Tap {
    active: AtomicBool,
    state: Mutex<Option<OpenTap>>,
}

#[derive(Debug)]
struct OpenTap {
    socket: Arc<ForkGuarded>,
    dropped: u64,
}

impl Tap {
    /// From now on copies go to `socket`; an earlier one gets none any more.
    pub(super) fn open(&self, socket: Arc<ForkGuarded>) {
        let open = Some(OpenTap { socket, dropped: 0 });
        *self.state.lock().unwrap_or_else(PoisonError::into_inner) = open;
        self.active.store(true, Ordering::Release);
    }

    /// Copies a packet to the capturing processes, if there are any.
    #[inline]
    pub(super) fn on_packet(&self, from: RawEid, to: RawEid, packet: &[u8]) {
        if self.active.load(Ordering::Relaxed) {
            self.copy(from, to, packet);
        }
    }

    #[cold]
    fn copy(&self, from: RawEid, to: RawEid, packet: &[u8]) {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(open) = state.as_mut() else { return };
        let mut header = [0; HEADER_LEN];
        header[..8].copy_from_slice(&wall_ns().to_le_bytes());
        header[8..24].copy_from_slice(&from.0);
        header[24..40].copy_from_slice(&to.0);
        header[40..].copy_from_slice(&open.dropped.to_le_bytes());
        let flags = SendFlags::DONTWAIT | SendFlags::NOSIGNAL;
        let mut space: [MaybeUninit<u8>; 0] = [];
        let mut control = SendAncillaryBuffer::new(&mut space);
        let parts = [IoSlice::new(&header), IoSlice::new(packet)];
        match sendmsg(&open.socket, &parts, &mut control, flags) {
            Ok(_) => {}
            Err(Errno::AGAIN | Errno::NOBUFS | Errno::INTR) => open.dropped += 1,
            Err(_) => {
                self.active.store(false, Ordering::Release);
                *state = None;
            }
        }
    }
}

/// Where a process that captures lookups of contexts hangs in.
#[derive(Debug)]
pub(super) struct ContextTap {
    socket: Arc<ForkGuarded>,
    dropped: AtomicU64,
}

impl ContextTap {
    pub(super) fn new(socket: Arc<ForkGuarded>) -> Self {
        Self { socket, dropped: AtomicU64::new(0) }
    }
}

impl LookupSink for ContextTap {
    fn on_lookups(&self, handles: &[u32]) -> bool {
        let mut bytes = self.dropped.load(Ordering::Relaxed).to_le_bytes().to_vec();
        bytes.extend(handles.iter().flat_map(|handle| handle.to_le_bytes()));
        match rustix::net::send(&self.socket, &bytes, SendFlags::DONTWAIT | SendFlags::NOSIGNAL) {
            Ok(_) => true,
            Err(Errno::AGAIN | Errno::NOBUFS | Errno::INTR) => {
                self.dropped.fetch_add(handles.len() as u64, Ordering::Relaxed);
                true
            }
            Err(_) => false,
        }
    }
}

/// Lookups of one request as a capturing process gets them.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct LookupRecord {
    /// Lookups that did not fit, since the capture began.
    pub dropped: u64,
    /// Handles of the model, in the order in which they were looked up.
    pub handles: Vec<u32>,
}

impl LookupRecord {
    /// Reads a record; `None`: it is too short, or ends in a handle.
    #[must_use]
    pub fn parse(bytes: &[u8]) -> Option<Self> {
        let (dropped, rest) = bytes.split_first_chunk::<8>()?;
        let (handles, []) = rest.as_chunks::<4>() else { return None };
        let handles = handles.iter().map(|handle| u32::from_le_bytes(*handle)).collect();
        Some(Self { dropped: u64::from_le_bytes(*dropped), handles })
    }
}

/// Time of day, as captures have it.
#[expect(clippy::disallowed_methods, reason = "a capture tells the time of day")]
fn wall_ns() -> u64 {
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_nanos()).unwrap_or(u64::MAX)
}

/// Packet as a capturing process gets it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct TapRecord<'a> {
    /// Real time of the copy, in nanoseconds since 1970.
    pub time_ns: u64,
    /// EID of the sending node.
    pub from: RawEid,
    /// EID of the receiving node.
    pub to: RawEid,
    /// Packets that did not fit, since the capture began.
    pub dropped: u64,
    /// Bytes of the packet, from the BTH to the ICRC.
    pub packet: &'a [u8],
}

impl<'a> TapRecord<'a> {
    /// Reads a record; `None`: it is too short.
    #[must_use]
    pub fn parse(bytes: &'a [u8]) -> Option<Self> {
        let (header, packet) = bytes.split_first_chunk::<HEADER_LEN>()?;
        let word = |at: usize| header.get(at..at + 8)?.try_into().ok().map(u64::from_le_bytes);
        let eid = |at: usize| header.get(at..at + 16)?.try_into().ok().map(RawEid);
        Some(Self { time_ns: word(0)?, from: eid(8)?, to: eid(24)?, dropped: word(40)?, packet })
    }
}

/// The next record of a capture into `buffer`, waiting at most `bound`: its length; 0: none came.
///
/// # Errors
/// `UnexpectedEof`: the node is gone. Else the system's error.
pub fn read(
    socket: &OwnedFd,
    buffer: &mut [u8],
    bound: std::time::Duration,
) -> std::io::Result<usize> {
    use rustix::event::{PollFd, PollFlags, poll};
    let mut fds = [PollFd::new(socket, PollFlags::IN)];
    let bound = bound.try_into().map_err(std::io::Error::other)?;
    match poll(&mut fds, Some(&bound)) {
        Ok(0) | Err(Errno::INTR) => return Ok(0),
        Ok(_) => {}
        Err(error) => return Err(error.into()),
    }
    match rustix::io::read(socket, buffer) {
        Ok(0) => Err(std::io::ErrorKind::UnexpectedEof.into()),
        Ok(len) => Ok(len),
        Err(Errno::AGAIN | Errno::INTR) => Ok(0),
        Err(error) => Err(error.into()),
    }
}
