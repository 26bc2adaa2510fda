//! A copy of each packet, or of each lookup of contexts, for the processes that capture.
//!
//! Must not wait: what does not fit into the socket is dropped and counted.

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
use crate::nic::LookupSink;

/// Bytes of a record before the packet.
pub const HEADER_LEN: usize = 48;

/// Connection to a capturing process.
///
/// ```text
/// record: 0 time: u64, nanoseconds since 1970   8 from: [u8; 16]   24 to: [u8; 16]
///         40 dropped before this one: u64       48 BTH to ICRC
/// ```
/// Little-endian; one message of the SEQPACKET socket each. A message of lookups is that of one request: the number
/// dropped before these (u64), then handles of the model (u32 each).
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
    /// Sends copies to `socket` from now on; an earlier one gets none any more.
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

/// Connection to a process that captures context lookups.
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

/// Lookups of one request, as a capturing process gets them.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct LookupRecord {
    /// Lookups that were dropped for want of room since the capture began.
    pub dropped: u64,
    /// Handles of the model, in the order of the lookups.
    pub handles: Vec<u32>,
}

impl LookupRecord {
    /// Reads a record; `None`: it is too short, or ends within a handle.
    #[must_use]
    pub fn parse(bytes: &[u8]) -> Option<Self> {
        let (dropped, rest) = bytes.split_first_chunk::<8>()?;
        let (handles, []) = rest.as_chunks::<4>() else { return None };
        let handles = handles.iter().map(|handle| u32::from_le_bytes(*handle)).collect();
        Some(Self { dropped: u64::from_le_bytes(*dropped), handles })
    }
}

/// Time of day for the records, in nanoseconds since 1970.
#[expect(clippy::disallowed_methods, reason = "a capture tells the time of day")]
fn wall_ns() -> u64 {
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_nanos()).unwrap_or(u64::MAX)
}

/// A packet, as a capturing process gets it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct TapRecord<'a> {
    /// Real time of the copy, in nanoseconds since 1970.
    pub time_ns: u64,
    /// EID of the sending node.
    pub from: RawEid,
    /// EID of the receiving node.
    pub to: RawEid,
    /// Packets that were dropped for want of room since the capture began.
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

/// Reads the next record of a capture into `buffer`, waiting at most `bound`. Returns its length; 0: none came.
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

#[cfg(test)]
mod tests {
    use std::time::{Duration, Instant};

    use rustix::net::{AddressFamily, SocketFlags, SocketType, socketpair};

    use super::*;

    const BRIEF: Duration = Duration::from_millis(20);

    /// What a node writes to, and what a process reads.
    fn ends() -> (Arc<ForkGuarded>, OwnedFd) {
        let flags = SocketFlags::CLOEXEC;
        let (near, far) =
            socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None).unwrap();
        (Arc::new(ForkGuarded::new(near).unwrap()), far)
    }

    /// All records that are there, each handed to `each`.
    fn drain(far: &OwnedFd, mut each: impl FnMut(&[u8])) {
        let mut buffer = vec![0; 1 << 16];
        while let Ok(len @ 1..) = read(far, &mut buffer, BRIEF) {
            each(&buffer[..len]);
        }
    }

    #[test]
    fn a_packet_passes_with_its_ends_its_time_and_what_was_dropped() {
        let tap = Tap::default();
        let (from, to) = (RawEid([1; 16]), RawEid([2; 16]));
        tap.on_packet(from, to, &[9; 9]);
        let (near, far) = ends();
        tap.open(near);
        let began = wall_ns();
        for len in 1..=3 {
            tap.on_packet(from, to, &vec![len; usize::from(len)]);
        }
        let mut seen = Vec::new();
        drain(&far, |bytes| {
            assert!(TapRecord::parse(&bytes[..HEADER_LEN - 1]).is_none());
            let record = TapRecord::parse(bytes).unwrap();
            assert_eq!((record.from, record.to, record.dropped), (from, to, 0));
            assert!((began..=wall_ns()).contains(&record.time_ns));
            seen.push(record.packet.to_vec());
        });
        assert_eq!(seen, [vec![1], vec![2; 2], vec![3; 3]], "none of before");
        // Nothing is read: what does not fit is counted, and the count passes with the next one.
        let packet = [5; 4096];
        for _ in 0..4096 {
            tap.on_packet(from, to, &packet);
        }
        let mut passed = 0;
        drain(&far, |_| passed += 1);
        assert!(passed > 0 && passed < 4096, "{passed}");
        tap.on_packet(from, to, &[6]);
        let mut last = None;
        drain(&far, |bytes| last = TapRecord::parse(bytes).map(|record| record.dropped));
        assert_eq!(last, Some(4096 - passed));
        // Another process begins with none.
        let (near, other) = ends();
        tap.open(near);
        assert!(
            matches!(read(&far, &mut [0; 8], BRIEF), Err(error) if error.kind() == std::io::ErrorKind::UnexpectedEof)
        );
        tap.on_packet(from, to, &[7]);
        drain(&other, |bytes| last = TapRecord::parse(bytes).map(|record| record.dropped));
        assert_eq!(last, Some(0));
        drop(other);
        assert!(comes_to_be(|| {
            tap.on_packet(from, to, &[8]);
            !tap.active.load(Ordering::Relaxed) && tap.state.lock().unwrap().is_none()
        }));
    }

    /// Whether it is so after some time: a process that another test is about to start has a copy of each descriptor
    /// until it executes its program.
    #[expect(clippy::disallowed_methods, reason = "a wait has a bound")]
    fn comes_to_be(mut is_so: impl FnMut() -> bool) -> bool {
        let bound = Instant::now() + Duration::from_secs(20);
        while !is_so() {
            if Instant::now() > bound {
                return false;
            }
            std::thread::yield_now();
        }
        true
    }

    #[test]
    fn lookups_pass_with_how_many_were_dropped() {
        let (near, far) = ends();
        let tap = ContextTap::new(near);
        let handles = [0x3000_0001, 2, u32::MAX];
        assert!(tap.on_lookups(&handles));
        drain(&far, |bytes| {
            let wanted = LookupRecord { dropped: 0, handles: handles.to_vec() };
            assert_eq!(LookupRecord::parse(bytes), Some(wanted));
            assert_eq!(LookupRecord::parse(&bytes[..7]), None, "no count");
            assert_eq!(LookupRecord::parse(&bytes[..bytes.len() - 1]), None, "a part of a handle");
        });
        let many = [1; 1000];
        assert!((0..4096).all(|_| tap.on_lookups(&many)), "a full socket is no end");
        let mut passed = 0;
        drain(&far, |_| passed += 1);
        assert!(tap.on_lookups(&[4]));
        drain(&far, |bytes| {
            let wanted = LookupRecord { dropped: 1000 * (4096 - passed), handles: vec![4] };
            assert_eq!(LookupRecord::parse(bytes), Some(wanted));
        });
        assert!(passed < 4096);
        drop(far);
        assert!(comes_to_be(|| !tap.on_lookups(&[1])), "the process is gone");
    }

    #[test]
    #[expect(clippy::disallowed_methods, reason = "a wait takes its time at least")]
    fn a_reader_waits_as_long_as_it_says() {
        let (near, far) = ends();
        let start = Instant::now();
        assert_eq!(read(&far, &mut [0; 8], BRIEF).unwrap(), 0);
        assert!(start.elapsed() >= BRIEF);
        rustix::io::write(&near, b"abc").unwrap();
        let mut buffer = [0; 8];
        assert_eq!(read(&far, &mut buffer, Duration::from_secs(30)).unwrap(), 3);
        assert_eq!(buffer, *b"abc\0\0\0\0\0");
        assert!(start.elapsed() < Duration::from_secs(20));
    }
}
