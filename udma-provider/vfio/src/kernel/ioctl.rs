//! `ioctl` as both interfaces, VFIO and iommufd, use it.
//!
//! - owns: how a request's number is made, and what a result means. must not: know any command.
#![expect(unsafe_code, reason = "ioctl")]

use std::{
    io,
    os::fd::{AsRawFd, BorrowedFd},
};

use vfio_bindings::bindings::vfio::VFIO_TYPE;
use zerocopy::IntoBytes;

/// The kernel of this machine.
#[derive(Debug)]
pub(super) struct SystemCalls;

/// The request of a command: neither interface puts a size or a direction into it.
pub(super) fn request(command: u32) -> libc::c_ulong {
    libc::c_ulong::from((u32::from(VFIO_TYPE) << 8) | command)
}

/// The result of a call.
pub(super) fn answer(result: libc::c_int) -> io::Result<i32> {
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(result) }
}

/// A command whose argument is a structure. Its first four bytes are set to its length.
///
/// # Safety
/// The kernel reads and writes at most as many bytes of the structure as its first four bytes say, and writes to no
/// address in it.
pub(super) unsafe fn structure(
    fd: BorrowedFd<'_>,
    command: u32,
    bytes: &mut [u8],
) -> io::Result<i32> {
    let len = u32::try_from(bytes.len()).map_err(|_| io::ErrorKind::InvalidInput)?;
    bytes.get_mut(..4).ok_or(io::ErrorKind::InvalidInput)?.copy_from_slice(len.as_bytes());
    // SAFETY: `bytes` is borrowed for the call, and its length is in its first four bytes, which by the contract
    // of this function bound what the kernel reads and writes.
    answer(unsafe { libc::ioctl(fd.as_raw_fd(), request(command), bytes.as_mut_ptr()) })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_negative_result_is_an_error_and_others_are_the_answer() {
        assert_eq!(
            [0, 1, i32::MAX].map(|result| answer(result).ok()),
            [Some(0), Some(1), Some(i32::MAX)]
        );
        assert!([-1, i32::MIN].iter().all(|result| answer(*result).is_err()));
    }
}
