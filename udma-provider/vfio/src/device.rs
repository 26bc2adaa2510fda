//! A PCI function that a driver reaches, whatever carries the accesses.
//!
//! - owns: the traits of a function, its windows and its interrupts. The view of memory is
//!   [`udma_abi::DmaSpace`], as for the UDMA device.
//! - takes: accesses of a driver. gives: results; an access that cannot be made is an error, never a
//!   made-up value. must not: know which device it is, or which kernel interface is below.

use std::{io, os::fd::BorrowedFd, sync::Arc};

use udma_abi::DmaSpace;
use urma_mem::Region;

/// A PCI function that this process owns.
pub trait PciDevice: Send + Sync + std::fmt::Debug {
    /// Returns the name for messages: a PCI address or the path of a socket.
    fn name(&self) -> String;

    /// Returns a window of the function. Each call may return the same one.
    ///
    /// # Errors
    /// [`PciError::NoWindow`] if the function has none of that kind.
    fn window(&self, id: WindowId) -> Result<Arc<dyn PciWindow>, PciError>;

    /// Returns the interrupts of one kind.
    ///
    /// # Errors
    /// [`PciError::NoInterrupt`] if the function has none of that kind.
    fn interrupts(&self, kind: InterruptKind) -> Result<Arc<dyn PciInterrupts>, PciError>;

    /// Returns the function's view of this process' memory. All calls return views of the same space.
    fn dma(&self) -> Arc<dyn DmaSpace>;

    /// Whether the function is known to be gone, without an access.
    fn is_gone(&self) -> bool {
        false
    }

    /// Whether two interrupts of a vector may arrive as one.
    fn merges_interrupts(&self) -> bool {
        true
    }

    /// Function-level reset: the function does no DMA and raises no interrupt when it returns, and its registers
    /// have their initial values. Mappings of the DMA space and interrupts that were enabled stay as they are.
    ///
    /// # Errors
    /// [`PciError::Unsupported`] if the function cannot be reset alone; else the system's error.
    fn reset(&self) -> Result<(), PciError>;
}

/// Which window of a function.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum WindowId {
    /// Base address register 0 to 5.
    Bar(u8),
    /// The configuration space: 256 or 4096 bytes.
    Config,
}

/// Width of one access to a window.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum AccessWidth {
    /// One byte (8 bits).
    W8,
    /// Two bytes (16 bits).
    W16,
    /// Four bytes (32 bits).
    W32,
    /// Eight bytes (64 bits).
    W64,
}

impl AccessWidth {
    /// Returns the number of bytes: 1, 2, 4 or 8.
    #[must_use]
    pub const fn count(self) -> u8 {
        match self {
            Self::W8 => 1,
            Self::W16 => 2,
            Self::W32 => 4,
            Self::W64 => 8,
        }
    }

    /// Returns the number of bytes, as a length.
    #[must_use]
    pub fn bytes(self) -> u64 {
        u64::from(self.count())
    }

    /// Returns the width of that many bytes, if there is one.
    #[must_use]
    pub const fn of_bytes(bytes: u64) -> Option<Self> {
        match bytes {
            1 => Some(Self::W8),
            2 => Some(Self::W16),
            4 => Some(Self::W32),
            8 => Some(Self::W64),
            _ => None,
        }
    }
}

/// A window of registers of a function: a BAR or the configuration space. Values are little-endian as on the bus.
///
/// An access is checked before it is made: it lies within the window and is naturally aligned. It is one access of that
/// width where the function sees accesses at all.
pub trait PciWindow: Send + Sync + std::fmt::Debug {
    /// Returns the length of the window in bytes.
    fn len(&self) -> u64;

    /// Whether the window has no bytes.
    fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Reads `width` bytes at `offset`, extended by zeros.
    ///
    /// # Errors
    /// [`PciError::Access`] for an access outside the window or not aligned; else the system's error.
    fn read(&self, offset: u64, width: AccessWidth) -> Result<u64, PciError>;

    /// Writes the low `width` bytes of `value` at `offset`.
    ///
    /// # Errors
    /// The same as those of [`PciWindow::read`].
    fn write(&self, offset: u64, width: AccessWidth, value: u64) -> Result<(), PciError>;

    /// Writes 64 bytes, as eight writes in the order of their offsets where the function has nothing shorter.
    ///
    /// # Errors
    /// The same as those of [`PciWindow::read`].
    fn write_block(&self, offset: u64, words: &[u64; 8]) -> Result<(), PciError> {
        (0..).zip(words).try_for_each(|(index, word)| {
            let at = offset.saturating_add(8 * index);
            self.write(at, AccessWidth::W64, *word)
        })
    }

    /// Whether accesses to this range are loads and stores of this process, without a system call or message.
    fn is_mapped(&self, offset: u64, len: u64) -> bool {
        let _ = (offset, len);
        false
    }

    /// Returns the ordinary memory behind part of the window, where it is memory and not registers.
    fn memory(&self, offset: u64, len: u64) -> Option<Region> {
        let _ = (offset, len);
        None
    }
}

/// Kinds of interrupts of a function. The last two are notices of the system.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum InterruptKind {
    /// The pin. It is masked when it was signalled, until [`PciInterrupts::set_masked`] unmasks it.
    Intx,
    /// Messages of the MSI capability.
    Msi,
    /// Messages of the MSI-X table.
    MsiX,
    /// An error of the bus that the function cannot recover from by itself.
    Error,
    /// The system wants the function back: it is about to be unplugged or unbound.
    Request,
}

/// Interrupts of one kind. Vectors are numbered from 0.
pub trait PciInterrupts: Send + Sync + std::fmt::Debug {
    /// Returns the number of vectors.
    fn count(&self) -> u32;

    /// Enables vectors 0 to `eventfds.len() - 1`: each interrupt adds 1 to the eventfd of its vector; a vector with
    /// `None` is dropped. What was enabled before is replaced; vectors beyond the list are disabled.
    ///
    /// # Errors
    /// [`PciError::Vectors`] for an empty list or more than [`PciInterrupts::count`]; else the system's error.
    fn enable(&self, eventfds: &[Option<BorrowedFd<'_>>]) -> Result<(), PciError>;

    /// Enables one vector, or gives it another eventfd; the other vectors stay as they are.
    ///
    /// # Errors
    /// [`PciError::Vectors`] for a vector that does not exist, [`PciError::Unsupported`] where vectors can be enabled
    /// together only; else the system's error.
    fn enable_one(&self, vector: u32, eventfd: BorrowedFd<'_>) -> Result<(), PciError> {
        let _ = (vector, eventfd);
        Err(PciError::Unsupported { device: String::new(), what: "enabling single vectors" })
    }

    /// Disables all vectors.
    ///
    /// # Errors
    /// The error of the operating system.
    fn disable(&self) -> Result<(), PciError>;

    /// Masks or unmasks one enabled vector. An interrupt that is raised while its vector is masked is delivered when it
    /// is unmasked.
    ///
    /// # Errors
    /// [`PciError::Vectors`] for a vector that does not exist, [`PciError::Unsupported`] if this kind cannot be masked.
    fn set_masked(&self, vector: u32, is_masked: bool) -> Result<(), PciError>;
}

/// What a function can answer instead.
#[derive(Debug, thiserror::Error)]
pub enum PciError {
    /// The access is outside the window or not aligned.
    #[error(
        "access of {width} bytes at {offset:#x} is not aligned, or outside a window of {len:#x} bytes"
    )]
    Access {
        /// Offset of the access in bytes.
        offset: u64,
        /// Width of the access in bytes.
        width: u64,
        /// Length of the window in bytes.
        len: u64,
    },
    /// The function has no such window.
    #[error("{device} has no window {id:?}")]
    NoWindow {
        /// Name of the function.
        device: String,
        /// The window that was asked for.
        id: WindowId,
    },
    /// The function has no interrupts of that kind.
    #[error("{device} has no interrupts of kind {kind:?}")]
    NoInterrupt {
        /// Name of the function.
        device: String,
        /// The kind that was asked for.
        kind: InterruptKind,
    },
    /// The vectors do not exist.
    #[error("interrupt vectors {first} to {last} asked for; there are {count}, numbered from 0")]
    Vectors {
        /// First vector that was asked for.
        first: u64,
        /// Last vector that was asked for.
        last: u64,
        /// Number of vectors that exist.
        count: u32,
    },
    /// The function, or what carries the accesses, cannot do this.
    #[error("{device} does not support {what}")]
    Unsupported {
        /// Name of the function.
        device: String,
        /// What was asked for.
        what: &'static str,
    },
    /// The function is gone or does not answer.
    #[error("{device} is gone: {why}")]
    Gone {
        /// Name of the function.
        device: String,
        /// What was seen of it.
        why: String,
    },
    /// The operating system refused.
    #[error("{what} of {device} failed: {source}")]
    System {
        /// Name of the function.
        device: String,
        /// The operation that was tried.
        what: &'static str,
        /// The error of the operating system.
        source: io::Error,
    },
}

/// Checks an access: within a window of `len` bytes, and a multiple of its width.
///
/// # Errors
/// [`PciError::Access`].
pub fn check_access(len: u64, offset: u64, width: AccessWidth) -> Result<(), PciError> {
    let bytes = width.bytes();
    let is_inside = offset.checked_add(bytes).is_some_and(|end| end <= len);
    if is_inside && offset.is_multiple_of(bytes) {
        return Ok(());
    }
    Err(PciError::Access { offset, width: bytes, len })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn accesses_are_inside_and_aligned() {
        for width in [AccessWidth::W8, AccessWidth::W16, AccessWidth::W32, AccessWidth::W64] {
            let bytes = width.bytes();
            assert_eq!(AccessWidth::of_bytes(bytes), Some(width));
            assert!(check_access(16, 16 - bytes, width).is_ok());
            assert!(check_access(16, 16, width).is_err());
            assert!(check_access(15, 16 - bytes, width).is_err());
            assert!(check_access(16, u64::MAX, width).is_err());
            assert_eq!(check_access(16, 1, width).is_ok(), bytes == 1);
        }
    }

    /// A window of so many bytes without anything of its own.
    #[derive(Debug)]
    struct Plain(u64);

    impl PciWindow for Plain {
        fn len(&self) -> u64 {
            self.0
        }

        fn read(&self, _: u64, _: AccessWidth) -> Result<u64, PciError> {
            Ok(0)
        }

        fn write(&self, _: u64, _: AccessWidth, _: u64) -> Result<(), PciError> {
            Ok(())
        }
    }

    #[test]
    fn a_window_without_bytes_is_empty() {
        assert_eq!([0, 1, 2].map(|len| Plain(len).is_empty()), [true, false, false]);
    }
}
