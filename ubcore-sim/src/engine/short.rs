//! The payload of a short message on its way into a ring.
//!
//! *Owns*: a plain view. *Takes*: the piece or the words of an entry. *Gives*: where the bytes are. *Must not*: copy
//! them.

use urma_mem::Region;

/// Most payload bytes of a short message.
pub(crate) const SHORT_MAX: usize = 512;

/// The bytes of a short message.
#[derive(Clone, Copy, Debug)]
pub(crate) enum ShortBody<'a> {
    /// So many bytes behind the offset.
    Memory(&'a Region, usize, usize),
    /// The first bytes of two words, so many.
    Words([u64; 2], usize),
}

impl ShortBody<'_> {
    /// No bytes, as behind an acknowledgement.
    pub(crate) const NOTHING: Self = Self::Words([0; 2], 0);

    /// Length of the payload in bytes.
    #[inline]
    pub(crate) fn len(&self) -> usize {
        match self {
            Self::Memory(_, _, len) | Self::Words(_, len) => *len,
        }
    }
}
