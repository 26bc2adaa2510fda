//! The first message of a connection between two nodes on one host, with the descriptors it brings.
//!
//! Must not wait, map a descriptor, or trust a length beyond checking it.

use std::{
    io::{self, IoSlice, IoSliceMut},
    mem::MaybeUninit,
    os::fd::{AsFd, BorrowedFd, OwnedFd},
};

use rustix::{
    cmsg_space,
    io::Errno,
    net::{
        RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, ReturnFlags, SendAncillaryBuffer,
        SendAncillaryMessage, SendFlags, recvmsg, sendmsg,
    },
};
use udma_abi::RawEid;

/// "URMAhost" read as little-endian bytes.
pub const MAGIC: u64 = u64::from_le_bytes(*b"URMAhost");
/// Version of the exchange and of everything that is shared by it.
pub const VERSION: u32 = 3;
/// Bytes of a message.
pub const LEN: usize = 96;
/// Descriptors of an offer or accept.
pub const FDS: usize = 4;

/// Kind of a message.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum HelloKind {
    /// First message of the connecting side.
    Offer,
    /// Answer: the pair is made.
    Accept,
    /// Answer: the pair is not made.
    Refuse(SharingRefusal),
    /// Requests the document about the node; also its answer.
    Inspect,
    /// Asks for a copy of each packet.
    Capture,
    /// Asks for a copy of each lookup of contexts.
    Contexts,
}

impl HelloKind {
    /// Whether this many descriptors may come with it; an inspection is requested without any, and answered with one.
    fn takes(self, fds: usize) -> bool {
        match self {
            Self::Offer | Self::Accept => fds == FDS,
            Self::Refuse(_) | Self::Capture | Self::Contexts => fds == 0,
            Self::Inspect => fds <= 1,
        }
    }
}

/// Why a node refuses to share memory with another.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum SharingRefusal {
    /// It is connecting to the other node itself, or has done so.
    Busy,
    /// Its configuration allows packets only.
    PacketsOnly,
    /// Another user's process, or one whose user is not known.
    OtherUser,
    /// It does not accept the version or a size.
    Incompatible,
    /// A claim in the message is false.
    Lied,
    /// It is out of descriptors or memory.
    NoResources,
    /// The kernel would not let the sender's process trace this one.
    Guarded,
    /// A reason of a later version.
    Unknown(u32),
}

impl SharingRefusal {
    fn code(self) -> u32 {
        match self {
            Self::Busy => 1,
            Self::PacketsOnly => 2,
            Self::OtherUser => 3,
            Self::Incompatible => 4,
            Self::Lied => 5,
            Self::NoResources => 6,
            Self::Guarded => 7,
            Self::Unknown(code) => code,
        }
    }

    fn from_code(code: u32) -> Self {
        let known = [
            Self::Busy,
            Self::PacketsOnly,
            Self::OtherUser,
            Self::Incompatible,
            Self::Lied,
            Self::NoResources,
            Self::Guarded,
        ];
        known.into_iter().find(|r| r.code() == code).unwrap_or(Self::Unknown(code))
    }
}

/// A message without its descriptors.
///
/// ```text
/// offset 0   magic: u64     "URMAhost"
///        8   version: u32   1
///        12  kind: u32      1 offer, 2 accept, 3 refuse, 4 inspect, 5 capture, 6 contexts
///        16  incarnation: u64
///        24  eid: [u8; 16]  the sender
///        40  to: [u8; 16]   the node that it connects to
///        56  node_len: u64  bytes of the node region (descriptor 0)
///        64  arena_len: u64 bytes of the arena (descriptor 1)
///        72  half_len: u64  bytes of the sender's half of the pair (descriptor 2)
///        80  probe: u64     address of the node region in the sender's address space, or 0
///        88  reason: u32    of a refusal, see `SharingRefusal`
///        92  zero: u32
/// ```
/// Little-endian. Offer and accept carry four descriptors (the fourth is the wake-up eventfd), a
/// refusal none.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Hello {
    /// Kind of the message.
    pub kind: HelloKind,
    /// Changes with every start of the sender.
    pub incarnation: u64,
    /// EID of the node that sent it.
    pub eid: RawEid,
    /// The node it is meant for.
    pub to: RawEid,
    /// Bytes of the node region.
    pub node_len: u64,
    /// Bytes of the arena.
    pub arena_len: u64,
    /// Bytes of the sender's half.
    pub half_len: u64,
    /// Where the node region lies in the sender's address space, for a read of one byte that shows
    /// whether process_vm_readv works between the two; 0: do not try.
    pub probe: u64,
}

/// Received message, with the descriptors that came along.
#[derive(Debug)]
pub struct ReceivedHello {
    /// Message after the checks of its fields.
    pub hello: Hello,
    /// Its descriptors: [`FDS`], or none for a refusal.
    pub fds: Vec<OwnedFd>,
}

/// Why a connection gives no hello.
#[derive(Debug, thiserror::Error)]
pub enum HelloError {
    /// Nothing has come yet.
    #[error("nothing has come yet")]
    NotYet,
    /// The other side closed or died.
    #[error("the other side hung up")]
    HungUp,
    /// Not a message of this protocol.
    #[error("malformed: {0}")]
    Malformed(&'static str),
    /// Another version of this protocol.
    #[error("version {0} of the protocol is not supported")]
    Version(u32),
    /// The operating system refused; this process may be out of descriptors or memory.
    #[error("the operating system refused: {0}")]
    Os(io::Error),
}

impl HelloError {
    /// Whether the peer sent something that is not of this protocol.
    #[must_use]
    pub fn is_lie(&self) -> bool {
        matches!(self, Self::Malformed(_) | Self::Version(_))
    }
}

impl Hello {
    /// Encodes it as it is sent over the socket.
    #[must_use]
    pub fn encode(&self) -> [u8; LEN] {
        let (kind, reason) = match self.kind {
            HelloKind::Offer => (1_u32, 0),
            HelloKind::Accept => (2, 0),
            HelloKind::Refuse(refusal) => (3, refusal.code()),
            HelloKind::Inspect => (4, 0),
            HelloKind::Capture => (5, 0),
            HelloKind::Contexts => (6, 0),
        };
        let mut bytes = [0; LEN];
        bytes[0..8].copy_from_slice(&MAGIC.to_le_bytes());
        bytes[8..12].copy_from_slice(&VERSION.to_le_bytes());
        bytes[12..16].copy_from_slice(&kind.to_le_bytes());
        bytes[16..24].copy_from_slice(&self.incarnation.to_le_bytes());
        bytes[24..40].copy_from_slice(&self.eid.0);
        bytes[40..56].copy_from_slice(&self.to.0);
        let lens = [self.node_len, self.arena_len, self.half_len, self.probe];
        for (at, len) in bytes[56..88].chunks_exact_mut(8).zip(lens) {
            at.copy_from_slice(&len.to_le_bytes());
        }
        bytes[88..92].copy_from_slice(&reason.to_le_bytes());
        bytes
    }

    /// Reads a message.
    ///
    /// # Errors
    /// [`HelloError::Malformed`], [`HelloError::Version`].
    pub fn decode(bytes: &[u8]) -> Result<Self, HelloError> {
        let bytes: &[u8; LEN] = bytes.try_into().map_err(|_| HelloError::Malformed("length"))?;
        if word64(bytes, 0) != MAGIC {
            return Err(HelloError::Malformed("magic"));
        }
        if word32(bytes, 8) != VERSION {
            return Err(HelloError::Version(word32(bytes, 8)));
        }
        let kind = match word32(bytes, 12) {
            1 => HelloKind::Offer,
            2 => HelloKind::Accept,
            3 => HelloKind::Refuse(SharingRefusal::from_code(word32(bytes, 88))),
            4 => HelloKind::Inspect,
            5 => HelloKind::Capture,
            6 => HelloKind::Contexts,
            _ => return Err(HelloError::Malformed("kind")),
        };
        Ok(Self {
            kind,
            incarnation: word64(bytes, 16),
            eid: eid(bytes, 24),
            to: eid(bytes, 40),
            node_len: word64(bytes, 56),
            arena_len: word64(bytes, 64),
            half_len: word64(bytes, 72),
            probe: word64(bytes, 80),
        })
    }
}

/// Sends a message with its descriptors, without waiting.
///
/// # Errors
/// The system's error; `WouldBlock` cannot come for the first message of a connection.
pub fn send(socket: impl AsFd, hello: &Hello, fds: &[BorrowedFd<'_>]) -> io::Result<()> {
    let bytes = hello.encode();
    let mut space = [MaybeUninit::uninit(); cmsg_space!(ScmRights(FDS))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    if !fds.is_empty() && !control.push(SendAncillaryMessage::ScmRights(fds)) {
        return Err(io::ErrorKind::InvalidInput.into());
    }
    let flags = SendFlags::DONTWAIT | SendFlags::NOSIGNAL;
    let sent = sendmsg(socket, &[IoSlice::new(&bytes)], &mut control, flags)?;
    if sent == LEN { Ok(()) } else { Err(io::ErrorKind::WriteZero.into()) }
}

/// Receives a message with its descriptors, without waiting.
///
/// # Errors
/// [`HelloError`]; descriptors that came with a bad message are closed.
pub fn receive(socket: impl AsFd) -> Result<ReceivedHello, HelloError> {
    // One byte more than a message, so that a longer one shows.
    let mut bytes = [0; LEN + 1];
    let mut space = [MaybeUninit::uninit(); cmsg_space!(ScmRights(FDS))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    let flags = RecvFlags::DONTWAIT | RecvFlags::CMSG_CLOEXEC;
    let got = match recvmsg(socket, &mut [IoSliceMut::new(&mut bytes)], &mut control, flags) {
        Ok(got) => got,
        Err(Errno::AGAIN | Errno::INTR) => return Err(HelloError::NotYet),
        Err(Errno::CONNRESET | Errno::PIPE) => return Err(HelloError::HungUp),
        Err(error) => return Err(HelloError::Os(error.into())),
    };
    let mut fds = Vec::new();
    for message in control.drain() {
        if let RecvAncillaryMessage::ScmRights(received) = message {
            fds.extend(received);
        }
    }
    if got.bytes == 0 && fds.is_empty() {
        return Err(HelloError::HungUp);
    }
    if got.flags.contains(ReturnFlags::CTRUNC) {
        // There is room for as many as a message may bring: fewer came because this process may not have more.
        return Err(if fds.len() < FDS {
            HelloError::Os(Errno::MFILE.into())
        } else {
            HelloError::Malformed("too many descriptors")
        });
    }
    let hello = Hello::decode(bytes.get(..got.bytes).unwrap_or_default())?;
    if !hello.kind.takes(fds.len()) {
        return Err(HelloError::Malformed("number of descriptors"));
    }
    Ok(ReceivedHello { hello, fds })
}

fn word64(bytes: &[u8; LEN], at: usize) -> u64 {
    u64::from(word32(bytes, at)) | u64::from(word32(bytes, at + 4)) << 32
}

fn word32(bytes: &[u8; LEN], at: usize) -> u32 {
    u32::from_le_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]])
}

fn eid(bytes: &[u8; LEN], at: usize) -> RawEid {
    let mut eid = RawEid::default();
    eid.0.copy_from_slice(&bytes[at..at + 16]);
    eid
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn any_hello() -> impl Strategy<Value = Hello> {
        let kind = (0_u32..12).prop_map(|n| match n {
            0 => HelloKind::Offer,
            1 => HelloKind::Accept,
            9 => HelloKind::Inspect,
            10 => HelloKind::Capture,
            11 => HelloKind::Contexts,
            n => HelloKind::Refuse(SharingRefusal::from_code(n)),
        });
        (kind, any::<u64>(), any::<[[u8; 16]; 2]>(), any::<[u64; 4]>()).prop_map(
            |(kind, incarnation, [eid, to], [node_len, arena_len, half_len, probe])| Hello {
                kind,
                incarnation,
                eid: RawEid(eid),
                to: RawEid(to),
                node_len,
                arena_len,
                half_len,
                probe,
            },
        )
    }

    proptest! {
        #[test]
        fn decode_inverts_encode(hello in any_hello()) {
            prop_assert_eq!(Hello::decode(&hello.encode()).unwrap(), hello);
        }

        #[test]
        fn any_bytes_are_answered(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
            let _ = Hello::decode(&bytes);
        }

        #[test]
        fn a_changed_header_is_refused(hello in any_hello(), at in 0_usize..16, by in 1_u8..) {
            let mut bytes = hello.encode();
            bytes[at] ^= by;
            let decoded = Hello::decode(&bytes);
            prop_assert!(decoded.map_or(true, |d| d.kind != hello.kind));
        }
    }
}
