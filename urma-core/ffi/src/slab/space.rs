//! The reservation of address space and its chunks.
//!
//! *Owns*: the addresses; which chunk is of which kind. *Takes*: requests for one more chunk.
//! *Gives*: the answer to "is this address ours, and of what kind". *Must not*: give a chunk back or
//! change its kind, but for [`abandon_all`].

use core::ptr::NonNull;

use urma_mem::sync::{AtomicU32, AtomicUsize, Ordering};

use super::{Kind, header::Header};

/// Bytes of a chunk.
pub(super) const CHUNK_LEN: usize = 1 << CHUNK_SHIFT;
const CHUNK_SHIFT: u32 = 16;
/// Bytes of address space asked for first, and the least to go on with.
const SPACE_MAX: usize = 1 << 30;
const SPACE_MIN: usize = 1 << 24;
const CHUNKS_MAX: usize = SPACE_MAX >> CHUNK_SHIFT;
/// Unit of slot numbers: every stride is a multiple of it.
const UNIT_SHIFT: u32 = 6;

/// First address of the reservation (page-aligned), and in the low bits the logarithm of its length.
/// 0 before the first chunk: then the reservation is empty but for the null address.
static RESERVED: AtomicUsize = AtomicUsize::new(0);
/// Chunks given out.
static TAKEN: AtomicU32 = AtomicU32::new(0);
/// What each chunk holds: kind code, and the stride's logarithm in the second byte; 0: nothing.
static CHUNKS: [AtomicU32; CHUNKS_MAX] = [const { AtomicU32::new(0) }; CHUNKS_MAX];

/// Where an address lies.
pub(super) enum Place {
    /// In the reservation, this many bytes from its start.
    Inside(usize),
    Outside,
}

/// Where `addr` lies. The null address is inside or outside; it is nobody's object either way.
#[inline]
pub(super) fn place(addr: usize) -> Place {
    let (base, len) = extent(RESERVED.load(Ordering::Acquire));
    let offset = addr.wrapping_sub(base);
    if offset < len { Place::Inside(offset) } else { Place::Outside }
}

#[inline]
fn extent(word: usize) -> (usize, usize) {
    (word & !0xfff, 1 << (word & 0x3f))
}

/// Whether the slot of a `K` starts at `offset` of the reservation.
#[inline]
pub(super) fn is_slot<K: Kind>(offset: usize) -> bool {
    let Some(chunk) = CHUNKS.get(offset >> CHUNK_SHIFT) else { return false };
    let is_kind = chunk.load(Ordering::Acquire) == chunk_word::<K>();
    is_kind && offset & (super::slot::stride::<K>() - 1) == 0
}

const fn chunk_word<K: Kind>() -> u32 {
    let shift = super::slot::stride::<K>().trailing_zeros();
    K::CODE as u32 | shift << 8 | (K::IS_QUEUE as u32) << 16
}

/// A chunk for slots of `K`: its number. `None`: the space is used up, or there is no memory.
pub(super) fn take_chunk<K: Kind>() -> Option<u32> {
    let (base, len) = reserve()?;
    let chunk = TAKEN
        .fetch_update(Ordering::Relaxed, Ordering::Relaxed, |taken| {
            ((taken as usize) < len >> CHUNK_SHIFT).then_some(taken + 1)
        })
        .ok()?;
    let first = base + ((chunk as usize) << CHUNK_SHIFT);
    let pages = core::ptr::with_exposed_provenance_mut(first);
    // SAFETY: the chunk lies in the reservation, which is ours, and nobody else took its number.
    let status = unsafe { libc::mprotect(pages, CHUNK_LEN, libc::PROT_READ | libc::PROT_WRITE) };
    if status != 0 {
        return None;
    }
    CHUNKS.get(chunk as usize)?.store(chunk_word::<K>(), Ordering::Release);
    Some(chunk)
}

/// The number of the slot at `offset`: 24 bits, no other slot has it.
#[expect(clippy::cast_possible_truncation, reason = "the reservation has at most 2^30 bytes")]
pub(super) const fn number_of(offset: usize) -> u32 {
    (offset >> UNIT_SHIFT) as u32
}

/// The number of the slot that starts `offset` bytes into `chunk`.
pub(super) const fn number_in(chunk: u32, offset: usize) -> u32 {
    (chunk << (CHUNK_SHIFT - UNIT_SHIFT)) + number_of(offset)
}

/// The slot with this number; of a chunk that was taken.
pub(super) fn slot_at(number: u32) -> Option<NonNull<Header>> {
    let (base, _) = extent(RESERVED.load(Ordering::Acquire));
    NonNull::new(core::ptr::with_exposed_provenance_mut(base + ((number as usize) << UNIT_SHIFT)))
}

/// Every slot that was ever used and whose kind is a queue.
pub(super) fn for_each_queue(mut visit: impl FnMut(&Header)) {
    for chunk in 0..TAKEN.load(Ordering::Acquire) {
        let Some(word) = CHUNKS.get(chunk as usize) else { return };
        let word = word.load(Ordering::Acquire);
        if word >> 16 == 0 {
            continue;
        }
        let stride = 1 << (word >> 8 & 0xff);
        for offset in (0..CHUNK_LEN).step_by(stride) {
            let Some(slot) = slot_at(number_in(chunk, offset)) else { return };
            // SAFETY: a chunk with a kind is readable for ever, and each stride starts with a header.
            let header = unsafe { slot.as_ref() };
            if header.word().is_untouched() {
                // Slots of a chunk are used first in order of address.
                break;
            }
            visit(header);
        }
    }
}

/// Address space for everything to come. The first caller makes it; a race costs a mapping.
fn reserve() -> Option<(usize, usize)> {
    let word = RESERVED.load(Ordering::Acquire);
    if word != 0 {
        return Some(extent(word));
    }
    let (base, len) = map_space()?;
    let word = base | len.trailing_zeros() as usize;
    match RESERVED.compare_exchange(0, word, Ordering::AcqRel, Ordering::Acquire) {
        Ok(_) => Some((base, len)),
        Err(winner) => {
            // SAFETY: the mapping was made above and nobody else knows of it.
            unsafe { libc::munmap(core::ptr::with_exposed_provenance_mut(base), len) };
            Some(extent(winner))
        }
    }
}

/// As much as the system gives, halving from the most.
fn map_space() -> Option<(usize, usize)> {
    let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE;
    let mut len = SPACE_MAX;
    while len >= SPACE_MIN {
        // SAFETY: a new anonymous mapping at an address of the system's choice.
        let base = unsafe { libc::mmap(core::ptr::null_mut(), len, libc::PROT_NONE, flags, -1, 0) };
        if base != libc::MAP_FAILED {
            return Some((base.expose_provenance(), len));
        }
        len /= 2;
    }
    None
}

/// See [`super::abandon_all`].
pub(super) fn abandon_all() {
    for chunk in &CHUNKS {
        chunk.store(0, Ordering::Release);
    }
}
