//! Another process's memory through the kernel: `process_vm_readv`.
//!
//! Owns: the call, and the proof that it read the process that was meant.
//! Takes: a process id, an address there, a window here.
//! Gives: whole copies or an error; opening one probes whether the pair may use the call at all.
//! Must not: write there. A write that is late by however little (its thread was stopped between
//! check and call) would land in memory that its owner uses for something else by then, and unlike
//! a moved page it cannot be replaced there; a late read does no harm.
//!
//! A process id names another process once its owner died, and other memory once it called `exec`.
//! So each call reads, in the same system call and hence from the same address space, the *witness*
//! as well: bytes that only the process meant holds at their address.
#![expect(unsafe_code, reason = "the system call takes raw vectors")]

use std::io;

use crate::region::Region;

/// Longest witness in bytes.
pub const WITNESS_MAX: usize = 64;

/// A process whose memory may be read, as a probe has shown.
#[derive(Debug, Clone)]
pub struct ProcessMemory {
    pid: libc::pid_t,
    witness_addr: usize,
    witness: Region,
}

impl ProcessMemory {
    /// Memory of the process `pid`, which holds the content of `witness` (this process's own view
    /// of it; it must not change) at its address `witness_addr`. Reads the witness there, once. The
    /// calling process itself is accepted, too: reading through the kernel is defined whichever
    /// thread uses the bytes.
    ///
    /// # Errors
    /// `InvalidInput` for numbers that name no process and for an empty or too long witness;
    /// `NotFound` when other bytes are there; `PermissionDenied` or the system's other answers.
    pub fn open(pid: u32, witness_addr: u64, witness: Region) -> io::Result<Self> {
        let pid = i32::try_from(pid).ok().filter(|pid| *pid > 0);
        let witness_addr = usize::try_from(witness_addr).ok();
        let fits = (1..=WITNESS_MAX).contains(&witness.len());
        let (Some(pid), Some(witness_addr), true) = (pid, witness_addr, fits) else {
            return Err(io::ErrorKind::InvalidInput.into());
        };
        let memory = Self { pid, witness_addr, witness };
        let byte = Region::private(1)?;
        memory.read(witness_addr as u64, (&byte, 0), 1)?;
        Ok(memory)
    }

    /// Process id that the kernel reported for the peer, as this PID namespace sees it.
    #[must_use]
    pub fn pid(&self) -> u32 {
        self.pid.unsigned_abs()
    }

    /// Copies `len` bytes at `remote_addr` there to `offset` of the window (2.6 us for 8 bytes).
    /// The bytes come in any order, and words of any size may be torn.
    ///
    /// # Errors
    /// `NotFound` when it is not the process meant any more; else the system's. On an error, the
    /// window may have been written.
    pub fn read(&self, remote_addr: u64, window: (&Region, usize), len: usize) -> io::Result<()> {
        self.read_apart(remote_addr, window, len, &mut [])
    }

    /// Copies `len` bytes at `remote_addr` to the window, and the bytes behind them to `tail`, by one system call.
    ///
    /// # Errors
    /// Those of [`ProcessMemory::read`].
    pub(crate) fn read_apart(
        &self,
        remote_addr: u64,
        (window, offset): (&Region, usize),
        len: usize,
        tail: &mut [u8],
    ) -> io::Result<()> {
        let refused = || io::Error::from(io::ErrorKind::InvalidInput);
        let start = usize::try_from(remote_addr).map_err(|_| refused())?;
        let all = len.checked_add(tail.len()).ok_or_else(refused)?;
        let into = window.sub(offset, len).map_err(|_| refused())?;
        if start.checked_add(all).is_none() || !into.is_writable() {
            return Err(refused());
        }
        let mut seen = [0_u8; WITNESS_MAX];
        let witness = self.witness.len();
        let here = [vector(into.addr(), len), vector_of(tail), vector_of(&mut seen[..witness])];
        let there = [vector(start, all), vector(self.witness_addr, witness)];
        // SAFETY: the local vectors are a writable window of which no references exist, the caller's exclusive slice
        // and bytes of this frame; the kernel checks the remote ones and changes nothing there.
        let moved =
            unsafe { libc::process_vm_readv(self.pid, here.as_ptr(), 3, there.as_ptr(), 2, 0) };
        match usize::try_from(moved) {
            Ok(moved) if moved == all + witness => self.check(&seen),
            // What is not there as a whole is not read.
            Ok(_) => Err(io::ErrorKind::UnexpectedEof.into()),
            Err(_) => Err(io::Error::last_os_error()),
        }
    }

    /// Whether the witness was where only the process meant has it.
    fn check(&self, seen: &[u8; WITNESS_MAX]) -> io::Result<()> {
        let mut known = [0; WITNESS_MAX];
        let len = self.witness.len();
        self.witness.read(0, &mut known[..len]).map_err(io::Error::other)?;
        if seen[..len] == known[..len] { Ok(()) } else { Err(io::ErrorKind::NotFound.into()) }
    }
}

fn vector(addr: usize, len: usize) -> libc::iovec {
    libc::iovec { iov_base: core::ptr::without_provenance_mut(addr), iov_len: len }
}

fn vector_of(bytes: &mut [u8]) -> libc::iovec {
    libc::iovec { iov_base: bytes.as_mut_ptr().cast(), iov_len: bytes.len() }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use std::io::{Read, Write};
    use std::process::{Child, Command, Stdio};

    /// A child that waits for its input to end, and the first address of its first mapping: an ELF
    /// header.
    fn child() -> (Child, u64) {
        let mut cat = Command::new("cat");
        let mut child = cat.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().expect("cat runs");
        // Its mappings are there once it says something.
        let (to, from) = (child.stdin.as_mut(), child.stdout.as_mut());
        to.expect("a pipe").write_all(b"?").expect("cat reads");
        from.expect("a pipe").read_exact(&mut [0]).expect("cat writes");
        let maps = std::fs::read_to_string(format!("/proc/{}/maps", child.id()));
        let maps = maps.expect("a child has maps");
        let start = maps.split('-').next().expect("a first mapping");
        (child, u64::from_str_radix(start, 16).expect("an address"))
    }

    fn witness(bytes: &[u8]) -> Region {
        let witness = Region::private(bytes.len()).expect("there is memory");
        witness.write(0, bytes).expect("it fits");
        witness
    }

    #[test]
    fn a_child_can_be_read_while_it_is_the_one_that_was_meant() {
        let (mut child, addr) = child();
        let memory = ProcessMemory::open(child.id(), addr, witness(b"\x7fELF")).unwrap();
        let local = Region::private(4096).unwrap();
        memory.read(addr, (&local, 0), 4096).unwrap();
        let mut magic = [0; 4];
        local.read(0, &mut magic).unwrap();
        assert_eq!(&magic, b"\x7fELF");
        assert!(memory.read(8, (&local, 0), 1).is_err(), "nothing is mapped there");
        assert!(memory.read(u64::MAX, (&local, 0), 4096).is_err());
        assert!(memory.read(addr, (&local, 0), 4097).is_err(), "longer than the window");
        drop(child.stdin.take());
        child.wait().unwrap();
        assert!(memory.read(addr, (&local, 0), 1).is_err(), "a dead process has no memory");
    }

    #[test]
    fn other_bytes_at_the_witness_are_another_process() {
        let (mut child, addr) = child();
        let error = ProcessMemory::open(child.id(), addr, witness(b"\x7fELG")).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::NotFound);
        let mine = witness(b"\x7fELF");
        let memory = ProcessMemory::open(child.id(), addr, mine.clone()).unwrap();
        // As if the id named another process now.
        mine.write(0, b"none").unwrap();
        let local = Region::private(64).unwrap();
        let error = memory.read(addr, (&local, 0), 64).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::NotFound);
        drop(child.stdin.take());
        child.wait().unwrap();
    }

    #[test]
    fn this_process_can_be_read_and_nonsense_is_refused() {
        let region = witness(&[7; 40]);
        let addr = region.addr() as u64;
        let memory = ProcessMemory::open(std::process::id(), addr, region.clone()).unwrap();
        let local = Region::private(64).unwrap();
        memory.read(addr, (&local, 0), 40).unwrap();
        assert_eq!(local.load_u8(39).unwrap(), 7);
        memory.read(addr, (&local, 60), 4).unwrap();
        assert_eq!(local.load_u8(63).unwrap(), 7);
        assert!(memory.read(addr, (&local, 60), 5).is_err(), "past the end of the window");
        assert_eq!(local.load_u8(40).unwrap(), 0);
        assert!(ProcessMemory::open(0, addr, region.clone()).is_err());
        assert!(ProcessMemory::open(u32::MAX, addr, region).is_err());
        let long = witness(&[7; WITNESS_MAX + 1]);
        assert!(ProcessMemory::open(std::process::id(), addr, long).is_err());
    }
}
