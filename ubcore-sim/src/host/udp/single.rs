//! One datagram by one plain system call, or one run of them that the kernel joined.
//!
//! *Owns*: nothing. *Takes*: a non-blocking socket, a buffer. *Gives*: what arrived, or that the system accepted what
//! was sent. *Must not*: touch the bytes.
//!
//! The set-up of a call for many datagrams costs as much as the system call itself if there is one datagram, or none.

use std::{
    io::{self, IoSliceMut},
    net::{SocketAddr, UdpSocket},
    os::fd::AsRawFd,
};

use nix::sys::socket::{ControlMessageOwned, MsgFlags, SockaddrStorage, recvmsg};
use quinn_udp::RecvMeta;
use rustix::net::{SendFlags, sendto};

/// Sends a datagram to an address.
pub(super) fn send(socket: &UdpSocket, datagram: &[u8], to: SocketAddr) -> io::Result<()> {
    sendto(socket, datagram, SendFlags::empty(), &to)?;
    Ok(())
}

/// Receives a datagram, or a run of them; stores its source, length and size in `meta`.
pub(super) fn receive(
    socket: &UdpSocket,
    (buffer, control): (&mut [u8], &mut [u8]),
    meta: &mut RecvMeta,
) -> io::Result<()> {
    let mut parts = [IoSliceMut::new(buffer)];
    let fd = socket.as_raw_fd();
    let flags = MsgFlags::MSG_DONTWAIT;
    let got = recvmsg::<SockaddrStorage>(fd, &mut parts, Some(control), flags)?;
    let sizes = got.cmsgs()?.find_map(|message| {
        let ControlMessageOwned::UdpGroSegments(size) = message else { return None };
        usize::try_from(size).ok()
    });
    meta.addr = got.address.as_ref().and_then(address).ok_or(io::ErrorKind::AddrNotAvailable)?;
    meta.len = got.bytes;
    meta.stride = sizes.filter(|size| *size != 0).unwrap_or(got.bytes);
    Ok(())
}

/// Room for the size of joined datagrams, and for what a system adds to those of IPv6: destination, traffic class. If
/// the room is too small, the call fails and its datagram is lost.
pub(super) fn control() -> Vec<u8> {
    vec![0; CONTROL_MAX]
}

fn address(from: &SockaddrStorage) -> Option<SocketAddr> {
    let v4 = from.as_sockaddr_in().map(|v4| SocketAddr::from((v4.ip(), v4.port())));
    v4.or_else(|| from.as_sockaddr_in6().map(|v6| (v6.ip(), v6.port()).into()))
}

const CONTROL_MAX: usize = 256;
