//! The payload of a short message on its way into a ring.
//!
//! *Owns*: a plain view. *Takes*: a piece, or the words of an entry. *Gives*: where the bytes are. *Must not*: copy
//! them.

use urma_mem::Region;

/// Most payload bytes of a short message.
pub(crate) const SHORT_MAX: usize = 512;

/// Source of a short message's bytes.
#[derive(Clone, Copy, Debug)]
pub(crate) enum ShortBody<'a> {
    /// In memory: offset and number of bytes.
    Memory(&'a Region, usize, usize),
    /// Inline: so many bytes of these two words.
    Words([u64; 2], usize),
}

impl ShortBody<'_> {
    /// No bytes, for an acknowledgement.
    pub(crate) const NOTHING: Self = Self::Words([0; 2], 0);

    /// Length of the payload in bytes.
    #[inline]
    pub(crate) fn len(&self) -> usize {
        match self {
            Self::Memory(_, _, len) | Self::Words(_, len) => *len,
        }
    }
}
