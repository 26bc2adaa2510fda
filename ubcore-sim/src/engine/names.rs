//! Names of bytes: a message says where its bytes lie in the sender's memory, and the receiver copies them.
//!
//! *Owns*: the encoding of a name, the words that invalidate names and that say who accepts which. *Must not*: touch
//! the bytes.
//!
//! A request may end before the receiver read its bytes, by a flush or the error timeout, and then its program may
//! change them. So the sender first invalidates all names by incrementing an epoch in its half ([`take_back`]). A
//! name has the epoch at which it was given; the receiver compares after the copy.

use urma_mem::Region;

use crate::share::{HALF_NAMES, HALF_TAKES};

/// Bytes of a sender's registered memory.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct NamedBytes {
    /// Token id of the segment.
    pub(crate) token_id: u32,
    /// Number of bytes, at most [`urma_mem::hazard::CHUNK_MAX`].
    pub(crate) len: u32,
    /// Address of the first byte, in the segment's addresses.
    pub(crate) va: u64,
    /// Generation of the segment.
    pub(crate) life: u64,
    /// Epoch of the sender's names when this one was given.
    pub(crate) epoch: u64,
}

impl NamedBytes {
    /// Length of its encoded form in bytes.
    pub(crate) const ENCODED_LEN: usize = 32;

    /// Bytes that its entry takes in a ring: as many as with the payload, so that no more requests can wait in a ring
    /// before an urgent one.
    pub(crate) fn room(&self) -> usize {
        Self::ENCODED_LEN.max(self.len as usize)
    }

    pub(crate) fn encode(&self) -> [u8; Self::ENCODED_LEN] {
        let ids = u64::from(self.token_id) | u64::from(self.len) << 32;
        let mut bytes = [0; Self::ENCODED_LEN];
        for (to, word) in bytes.chunks_exact_mut(8).zip([ids, self.va, self.life, self.epoch]) {
            to.copy_from_slice(&word.to_le_bytes());
        }
        bytes
    }

    /// The name at the start of `bytes`; `None`: these are too few.
    pub(crate) fn decode(bytes: &[u8]) -> Option<Self> {
        let bytes: &[u8; Self::ENCODED_LEN] = bytes.first_chunk()?;
        let [ids, va, life, epoch] = [0, 8, 16, 24].map(|at| {
            let word = bytes[at..].first_chunk().copied().unwrap_or_default();
            u64::from_le_bytes(word)
        });
        #[expect(clippy::cast_possible_truncation, reason = "both halves are meant")]
        let (token_id, len) = (ids as u32, (ids >> 32) as u32);
        Some(Self { token_id, len, va, life, epoch })
    }
}

/// Which names a node accepts from a peer, published in its half of the pair. Releases without this word accept names
/// of messages alone.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct TakenNames(u64);

impl TakenNames {
    const WRITES: u64 = 1;
    const BY_KERNEL: u64 = 2;

    /// Value for a node that can, or cannot, read the peer's process through the kernel.
    pub(crate) fn of(reads_process: bool) -> Self {
        Self(Self::WRITES | if reads_process { Self::BY_KERNEL } else { 0 })
    }

    /// Publishes it in the node's own half.
    pub(crate) fn publish(self, half: &Region) {
        // Every half has the word.
        let _ = half.store_u64_release(HALF_TAKES, self.0);
    }

    /// Reads the peer's value from its half.
    pub(crate) fn in_half(peer_half: &Region) -> Self {
        Self(peer_half.load_u64_acquire(HALF_TAKES).unwrap_or(0))
    }

    /// Whether names of bytes to be written are accepted, besides those of messages.
    pub(crate) fn has_writes(self) -> bool {
        self.0 & Self::WRITES != 0
    }

    /// Whether names of bytes outside of the arena are accepted.
    pub(crate) fn has_process(self) -> bool {
        self.0 & Self::BY_KERNEL != 0
    }
}

/// What may be named to a peer at present.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Naming {
    /// Current epoch of the names.
    pub(crate) epoch: u64,
    /// Most bytes of one name.
    pub(crate) len_max: usize,
    /// Kinds of names that the peer accepts.
    pub(crate) taken: TakenNames,
}

/// Current epoch of names in this half.
pub(crate) fn epoch(half: &Region) -> u64 {
    half.load_u64(HALF_NAMES).unwrap_or(0)
}

/// Invalidates all names given in this half; called before requests end whose bytes the receiver may not have read.
#[cold]
pub(crate) fn take_back(half: &Region) {
    let mut seen = epoch(half);
    while let Ok(Err(other)) = half.compare_exchange(HALF_NAMES, seen, seen.wrapping_add(1)) {
        seen = other;
    }
}
