//! An option of packet sockets that no library sets.
//!
//! Owns: the call. Takes: a packet socket. Gives: nothing; each frame of the socket has a header from then on that says how a run of
//! datagrams is to be cut (`struct virtio_net_hdr`, packet(7) and linux/virtio_net.h). Must not: send or receive.
#![expect(unsafe_code, reason = "a system call with a raw option")]

use std::ffi::c_int;
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};

/// Bytes of that header.
pub const OFFLOAD_HEADER_LEN: usize = 10;

/// Its number in linux/if_packet.h.
const PACKET_VNET_HDR: c_int = 15;

/// Puts an offload header in front of each frame of a packet socket, in both directions.
///
/// # Errors
/// Those of the system: it is no packet socket.
pub fn set_offload_header(socket: BorrowedFd<'_>) -> io::Result<()> {
    let (on, len): (c_int, _) = (1, size_of::<c_int>());
    let len = libc::socklen_t::try_from(len).unwrap_or(0);
    let (fd, level, name) = (socket.as_raw_fd(), libc::SOL_PACKET, PACKET_VNET_HDR);
    // SAFETY: the option's value is an int, which lives during the call, and `len` is its length; the descriptor is open for as
    // long as it is borrowed.
    let set = unsafe { libc::setsockopt(fd, level, name, (&raw const on).cast(), len) };
    if set == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

#[cfg(test)]
mod tests {
    use std::net::UdpSocket;
    use std::os::fd::AsFd;

    use super::*;

    #[test]
    fn another_socket_has_no_such_option() {
        let socket = UdpSocket::bind("127.0.0.1:0").expect("a socket");
        assert!(set_offload_header(socket.as_fd()).is_err());
    }
}
