//! Another process's memory through the kernel: `process_vm_readv` and `process_vm_writev`.
//!
//! Owns: the two calls.
//! Takes: a process id, an address there, a window here.
//! Gives: whole copies or an error; `probe` shows by one byte whether the pair may use them.
//! Must not: be used for atomics, nor on the calling process itself.
#![expect(unsafe_code, reason = "the system calls take raw vectors")]

use std::io;

use crate::region::Region;

/// A process whose memory may be copied, if the kernel agrees. The caller makes sure (by a pidfd or a
/// socket) that the id still means the same process.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ProcessMemory {
    pid: libc::pid_t,
}

#[derive(Clone, Copy)]
enum Direction {
    Read,
    Write,
}

impl ProcessMemory {
    /// Memory of the process `pid`.
    ///
    /// # Errors
    /// `InvalidInput` for this process itself (its memory has owners that the kernel does not ask) and
    /// for numbers that name no single process.
    pub fn of(pid: i32) -> io::Result<Self> {
        if pid <= 0 || i64::from(pid) == i64::from(std::process::id()) {
            return Err(io::ErrorKind::InvalidInput.into());
        }
        Ok(Self { pid })
    }

    /// Reads one byte there: whether the kernel lets this process at all.
    ///
    /// # Errors
    /// `PermissionDenied` or the system's other answers.
    pub fn probe(self, remote_addr: u64) -> io::Result<()> {
        let byte = Region::private(1)?;
        self.read(remote_addr, &byte)
    }

    /// Copies the other process's bytes at `remote_addr` into the whole window (2.6 us for 8 bytes).
    ///
    /// # Errors
    /// The system's; on an error, part of the window may have been written.
    pub fn read(self, remote_addr: u64, into: &Region) -> io::Result<()> {
        if !into.is_writable() {
            return Err(io::ErrorKind::PermissionDenied.into());
        }
        self.transfer(remote_addr, into, Direction::Read)
    }

    /// Copies the whole window to `remote_addr` in the other process.
    ///
    /// # Errors
    /// The system's; on an error, part of the target may have been written.
    pub fn write(self, remote_addr: u64, from: &Region) -> io::Result<()> {
        self.transfer(remote_addr, from, Direction::Write)
    }

    fn transfer(self, remote_addr: u64, local: &Region, direction: Direction) -> io::Result<()> {
        let start = usize::try_from(remote_addr).map_err(|_| io::ErrorKind::InvalidInput)?;
        start.checked_add(local.len()).ok_or(io::ErrorKind::InvalidInput)?;
        let mut done = 0;
        while done < local.len() {
            let here = vector(local.addr() + done, local.len() - done);
            let there = vector(start + done, local.len() - done);
            let moved = match direction {
                // SAFETY: the local vector is a mapped writable window that nobody holds references to.
                Direction::Read => unsafe {
                    libc::process_vm_readv(self.pid, &raw const here, 1, &raw const there, 1, 0)
                },
                // SAFETY: the local vector is a mapped window, only read; the target is not this process.
                Direction::Write => unsafe {
                    libc::process_vm_writev(self.pid, &raw const here, 1, &raw const there, 1, 0)
                },
            };
            match usize::try_from(moved) {
                Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
                Ok(len) => done += len,
                Err(_) => return Err(io::Error::last_os_error()),
            }
        }
        Ok(())
    }
}

fn vector(addr: usize, len: usize) -> libc::iovec {
    libc::iovec { iov_base: core::ptr::without_provenance_mut(addr), iov_len: len }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use std::process::{Child, Command, Stdio};

    /// A child that waits for its input to end, and the first address of its first mapping.
    fn child() -> (Child, u64) {
        let child = Command::new("cat").stdin(Stdio::piped()).spawn().expect("cat runs");
        let maps = std::fs::read_to_string(format!("/proc/{}/maps", child.id()));
        let maps = maps.expect("a child has maps");
        let start = maps.split('-').next().expect("a first mapping");
        (child, u64::from_str_radix(start, 16).expect("an address"))
    }

    #[test]
    fn a_child_can_be_probed_and_read() {
        let (mut child, addr) = child();
        let memory = ProcessMemory::of(child.id().try_into().unwrap()).unwrap();
        memory.probe(addr).unwrap();
        assert!(memory.probe(8).is_err());
        let local = Region::private(4096).unwrap();
        memory.read(addr, &local).unwrap();
        assert!(memory.read(u64::MAX, &local).is_err());
        drop(child.stdin.take());
        child.wait().unwrap();
        assert!(memory.probe(addr).is_err(), "a dead process has no memory");
    }

    #[test]
    fn this_process_is_refused() {
        let own = i32::try_from(std::process::id()).unwrap();
        assert!(ProcessMemory::of(own).is_err());
        assert!(ProcessMemory::of(0).is_err() && ProcessMemory::of(-1).is_err());
    }
}
