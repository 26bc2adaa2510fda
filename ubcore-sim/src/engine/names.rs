//! Bytes of a message that stay where they are: the sender names them, the receiver copies them.
//!
//! *Owns*: the form of a name, the words that take names back and that say who takes which. *Must not*: touch the bytes.
//!
//! A request may end before the receiver took its bytes: flushed, or after its error timeout. Then its
//! program may change them, so the sender takes all names back first: it adds one to a word of its half
//! ([`take_back`]), the names have the value that was there, and the receiver compares after the copy.

use urma_mem::Region;

use crate::share::layout::{HALF_NAMES, HALF_TAKES};

/// Bytes of a sender's registered memory.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct NamedBytes {
    /// Token id of the segment.
    pub(crate) token_id: u32,
    /// Number of bytes, at most [`urma_mem::hazard::CHUNK_MAX`].
    pub(crate) len: u32,
    /// First byte, in terms of the segment's addresses.
    pub(crate) va: u64,
    /// Generation of the segment.
    pub(crate) life: u64,
    /// Times that names were taken back before.
    pub(crate) epoch: u64,
}

impl NamedBytes {
    /// Length of its encoded form in bytes.
    pub(crate) const ENCODED_LEN: usize = 32;

    /// Bytes that its entry takes in a ring: as many as if it had the bytes, so that no more waits in a ring
    /// before an urgent request.
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

/// Which names a node takes of a peer, as it says in its half of the pair; a release that knew no such word takes those of
/// messages alone.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct TakenNames(u64);

impl TakenNames {
    const WRITES: u64 = 1;
    const BY_KERNEL: u64 = 2;

    /// Of a node that does, or does not, read the memory of the peer's process through the kernel.
    pub(crate) fn of(reads_process: bool) -> Self {
        Self(Self::WRITES | if reads_process { Self::BY_KERNEL } else { 0 })
    }

    /// Says so in the node's own half.
    pub(crate) fn publish(self, half: &Region) {
        // A half has the word.
        let _ = half.store_u64_release(HALF_TAKES, self.0);
    }

    /// What the peer says in its half.
    pub(crate) fn in_half(peer_half: &Region) -> Self {
        Self(peer_half.load_u64_acquire(HALF_TAKES).unwrap_or(0))
    }

    /// Names of what is to be written, beside messages.
    pub(crate) fn has_writes(self) -> bool {
        self.0 & Self::WRITES != 0
    }

    /// Names of bytes that are not in the arena.
    pub(crate) fn has_process(self) -> bool {
        self.0 & Self::BY_KERNEL != 0
    }
}

/// What may be named to a peer now.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Naming {
    /// Epoch of the names.
    pub(crate) epoch: u64,
    /// Most bytes of one.
    pub(crate) len_max: usize,
    /// Those that the peer takes.
    pub(crate) taken: TakenNames,
}

/// What names in this half have for their epoch.
pub(crate) fn epoch(half: &Region) -> u64 {
    half.load_u64(HALF_NAMES).unwrap_or(0)
}

/// Takes back all names that were given in this half: requests end whose bytes their receiver may not have read.
#[cold]
pub(crate) fn take_back(half: &Region) {
    let mut seen = epoch(half);
    while let Ok(Err(other)) = half.compare_exchange(HALF_NAMES, seen, seen.wrapping_add(1)) {
        seen = other;
    }
}
