//! The calls of eBPF that put a program on an interface and give it sockets to pass frames to (bpf(2), linux/bpf.h).
//!
//! Owns: the layouts of their attributes. Takes: instructions, descriptors, the number of an interface. Gives: descriptors; when the
//! last copy of one is closed, by the end of the process at the latest, the system takes back what is behind it. Must not: know what a
//! program does.
#![expect(unsafe_code, reason = "a system call without a wrapper")]

use std::ffi::{c_int, c_long};
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};

use libc::SYS_bpf;

const MAP_CREATE: c_int = 0;
const MAP_UPDATE_ELEM: c_int = 2;
const PROG_LOAD: c_int = 5;
const LINK_CREATE: c_int = 28;
const MAP_TYPE_XSKMAP: u32 = 17;
const PROG_TYPE_XDP: u32 = 6;
/// The program is for interfaces whose frames lie in several buffers, too.
const F_XDP_HAS_FRAGS: u32 = 1 << 5;
const ATTACH_XDP: u32 = 37;
/// By the interface's driver, before the system makes anything of a frame (linux/if_link.h).
const XDP_FLAGS_DRV_MODE: u32 = 1 << 2;

/// One instruction: code, registers, offset, value.
pub type BpfInstruction = [u8; 8];

#[repr(C)]
struct MapCreate {
    map_type: u32,
    key_size: u32,
    value_size: u32,
    max_entries: u32,
    map_flags: u32,
}

#[repr(C)]
struct MapUpdate {
    map: u32,
    padding: u32,
    key: u64,
    value: u64,
    flags: u64,
}

#[repr(C)]
struct ProgLoad {
    prog_type: u32,
    count: u32,
    instructions: u64,
    licence: u64,
    log_level: u32,
    log_size: u32,
    log: u64,
    kernel_version: u32,
    flags: u32,
    name: [u8; 16],
    interface: u32,
    attach_type: u32,
}

#[repr(C)]
struct LinkCreate {
    program: u32,
    interface: u32,
    attach_type: u32,
    flags: u32,
}

/// A map from the number of a queue to an `AF_XDP` socket.
///
/// # Errors
/// The system's: no right to it (`CAP_BPF`), or no memory.
pub fn socket_map(entries: u32) -> io::Result<OwnedFd> {
    let (map_type, word) = (MAP_TYPE_XSKMAP, 4);
    let attributes = MapCreate {
        map_type,
        key_size: word,
        value_size: word,
        max_entries: entries,
        map_flags: 0,
    };
    descriptor(bpf(MAP_CREATE, &attributes)?)
}

/// Frames of a queue may go to this socket from now on.
///
/// # Errors
/// The system's: the number is past the map's end, or the socket is no bound `AF_XDP` socket.
pub fn put_socket(map: BorrowedFd<'_>, queue: u32, socket: BorrowedFd<'_>) -> io::Result<()> {
    let value = number(socket.as_raw_fd());
    let attributes = MapUpdate {
        map: number(map.as_raw_fd()),
        padding: 0,
        key: (&raw const queue).addr() as u64,
        value: (&raw const value).addr() as u64,
        flags: 0,
    };
    bpf(MAP_UPDATE_ELEM, &attributes).map(|_| ())
}

/// Loads a program for frames. The system checks that it ends, and that it stays within the frame.
///
/// # Errors
/// The system's: it refuses the program, or there is no right to it (`CAP_BPF` and `CAP_NET_ADMIN`).
pub fn load_xdp(name: [u8; 16], program: &[BpfInstruction]) -> io::Result<OwnedFd> {
    let count = u32::try_from(program.len()).map_err(io::Error::other)?;
    let attributes = ProgLoad {
        prog_type: PROG_TYPE_XDP,
        count,
        instructions: program.as_ptr().addr() as u64,
        licence: c"Dual MIT/GPL".as_ptr().addr() as u64,
        log_level: 0,
        log_size: 0,
        log: 0,
        kernel_version: 0,
        flags: F_XDP_HAS_FRAGS,
        name,
        interface: 0,
        attach_type: ATTACH_XDP,
    };
    descriptor(bpf(PROG_LOAD, &attributes)?)
}

/// Lets a program see each frame that arrives at an interface, until the descriptor is closed.
///
/// # Errors
/// The system's: the interface's driver takes no programs, or it has one (`EBUSY`, `EEXIST`).
pub fn attach_xdp(program: BorrowedFd<'_>, interface: u32) -> io::Result<OwnedFd> {
    let attributes = LinkCreate {
        program: number(program.as_raw_fd()),
        interface,
        attach_type: ATTACH_XDP,
        flags: XDP_FLAGS_DRV_MODE,
    };
    descriptor(bpf(LINK_CREATE, &attributes)?)
}

/// A call with one of the structures above.
fn bpf<T>(command: c_int, attributes: &T) -> io::Result<c_long> {
    let at = &raw const *attributes;
    // SAFETY: the system reads the structure's bytes and what its addresses name with the lengths beside them; the callers in this
    // file keep all of that alive during the call, and ask for no log, so that nothing is written.
    let result = unsafe { libc::syscall(SYS_bpf, command, at, size_of::<T>()) };
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(result) }
}

/// The descriptor that a call answered.
fn descriptor(result: c_long) -> io::Result<OwnedFd> {
    let fd = RawFd::try_from(result).map_err(io::Error::other)?;
    // SAFETY: the call has just made the descriptor, and nothing else knows it.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

/// A descriptor as the system's structures have it.
fn number(fd: RawFd) -> u32 {
    fd.cast_unsigned()
}

#[cfg(test)]
mod tests {
    use std::os::fd::AsFd;

    use super::*;

    /// `r0 = 2` (`XDP_PASS`), and the end.
    const PASS: [BpfInstruction; 2] = [[0xb7, 0, 0, 0, 2, 0, 0, 0], [0x95, 0, 0, 0, 0, 0, 0, 0]];

    #[test]
    fn what_cannot_be_is_refused() {
        let file = std::fs::File::open("/dev/null").unwrap();
        // It has no end.
        assert!(load_xdp(*b"endless\0\0\0\0\0\0\0\0\0", &PASS[..1]).is_err());
        assert!(attach_xdp(file.as_fd(), 1).is_err());
        assert!(put_socket(file.as_fd(), 0, file.as_fd()).is_err());
        let Ok(map) = socket_map(1) else { return };
        // A file is no socket.
        assert!(put_socket(map.as_fd(), 0, file.as_fd()).is_err());
        let program = load_xdp(*b"pass\0\0\0\0\0\0\0\0\0\0\0\0", &PASS).unwrap();
        // No interface has the number 0.
        assert!(attach_xdp(program.as_fd(), 0).is_err());
    }
}
