//! The reservation of address space, its chunks, and the free slots of each kind.
//!
//! *Owns*: the addresses; which chunk is of which kind; one list of free slots per kind: fresh slots of the newest chunk
//! first, then the slot that has been free the longest. *Takes*: requests for one more chunk; slots that were emptied.
//! *Gives*: whether an address is in it, and of what kind; slots to build in. *Must not*: give a chunk back or change its
//! kind, except in [`abandon_all`]; look at the public or private part.

use core::{ffi::c_void, ptr::NonNull};

use urma_mem::sync::{AtomicU32, AtomicUsize, Ordering};

use super::{
    CODE_MAX, Kind,
    cell::{CHUNK_LEN, CHUNK_SHIFT, Header, Owner, SlotPtr, SlotState, Word, stride},
};
use crate::latch::{Latch, Pause};

/// Bytes of address space requested at first, and the least that is accepted.
const SPACE_MAX: usize = 1 << 30;
const SPACE_MIN: usize = 1 << 24;
const CHUNKS_MAX: usize = SPACE_MAX >> CHUNK_SHIFT;
/// Unit of slot numbers: every stride is a multiple of it.
const UNIT_SHIFT: u32 = 6;

/// State of the reservation in one object, so that a lookup loads one address of its own.
struct Space {
    /// First address of the reservation; 0 before the first chunk.
    base: AtomicUsize,
    /// Its length, a power of two; 0 before the first chunk, and set after `base`.
    len: AtomicUsize,
    /// Number of chunks that have a kind.
    in_use: AtomicU32,
    /// Content of each chunk: kind code, and the stride's logarithm in the second byte; 0: nothing.
    chunks: [AtomicU32; CHUNKS_MAX],
}

static SPACE: Space = Space {
    base: AtomicUsize::new(0),
    len: AtomicUsize::new(0),
    in_use: AtomicU32::new(0),
    chunks: [const { AtomicU32::new(0) }; CHUNKS_MAX],
};

/// Offset of an address in the reservation; `None`: it is outside.
#[inline(always)]
pub(super) fn offset(addr: usize) -> Option<usize> {
    let len = SPACE.len.load(Ordering::Acquire);
    let offset = addr.wrapping_sub(SPACE.base.load(Ordering::Relaxed));
    (offset < len).then_some(offset)
}

/// Whether a slot of a `K` starts at `addr`.
#[inline(always)]
pub(super) fn is_slot<K: Kind>(addr: usize) -> bool {
    let base = SPACE.base.load(Ordering::Acquire);
    base != 0 && is_start::<K>(addr.wrapping_sub(base))
}

/// The same as [`is_slot`], for callers that found an object before, so that the reservation exists.
#[inline(always)]
pub(super) fn is_slot_of_known<K: Kind>(addr: usize) -> bool {
    is_start::<K>(addr.wrapping_sub(SPACE.base.load(Ordering::Relaxed)))
}

/// Whether a slot of a `K` starts at this offset. Beyond the end of a short reservation the table is empty.
#[inline(always)]
fn is_start<K: Kind>(offset: usize) -> bool {
    let shift = stride::<K>().trailing_zeros();
    // Between two starts this is a number beyond all of them.
    let number = offset.rotate_right(shift);
    let Some(chunk) = SPACE.chunks.get(number >> (CHUNK_SHIFT - shift)) else { return false };
    chunk.load(Ordering::Acquire) == chunk_word::<K>()
}

/// Whether `addr` is outside of the reservation.
#[inline(never)]
pub(super) fn is_outside(addr: usize) -> bool {
    offset(addr).is_none()
}

const fn chunk_word<K: Kind>() -> u32 {
    let shift = stride::<K>().trailing_zeros();
    K::CODE as u32 | shift << 8 | (K::IS_QUEUE as u32) << 16
}

/// Allocates a chunk for slots of `K`; returns its number. `None`: the space is used up, or there is no memory.
pub(super) fn take_chunk<K: Kind>() -> Option<u32> {
    let (base, len) = reserve()?;
    let chunk = SPACE
        .in_use
        .fetch_update(Ordering::Relaxed, Ordering::Relaxed, |in_use| {
            ((in_use as usize) < len >> CHUNK_SHIFT).then_some(in_use + 1)
        })
        .ok()?;
    let first = base + ((chunk as usize) << CHUNK_SHIFT);
    let pages = core::ptr::with_exposed_provenance_mut(first);
    // SAFETY: the chunk lies in the reservation, which is ours, and no other call took its number.
    let status = unsafe { libc::mprotect(pages, CHUNK_LEN, libc::PROT_READ | libc::PROT_WRITE) };
    if status != 0 {
        return None;
    }
    SPACE.chunks.get(chunk as usize)?.store(chunk_word::<K>(), Ordering::Release);
    Some(chunk)
}

/// The number of the slot at `offset`, 24 bits, unique.
#[expect(clippy::cast_possible_truncation, reason = "the reservation has at most 2^30 bytes")]
pub(super) const fn number_of(offset: usize) -> u32 {
    (offset >> UNIT_SHIFT) as u32
}

/// The number of the slot that starts `offset` bytes into `chunk`.
pub(super) const fn number_in(chunk: u32, offset: usize) -> u32 {
    (chunk << (CHUNK_SHIFT - UNIT_SHIFT)) + number_of(offset)
}

/// The slot with this number, if its chunk has a kind.
pub(super) fn slot_at(number: u32) -> Option<NonNull<Header>> {
    let base = SPACE.base.load(Ordering::Acquire);
    NonNull::new(core::ptr::with_exposed_provenance_mut(base + ((number as usize) << UNIT_SHIFT)))
}

/// Calls `visit` for every slot that was ever used and whose kind is a queue.
pub(super) fn for_each_queue(mut visit: impl FnMut(&'static Header)) {
    for chunk in 0..SPACE.in_use.load(Ordering::Acquire) {
        let Some(word) = SPACE.chunks.get(chunk as usize) else { return };
        let word = word.load(Ordering::Acquire);
        if word >> 16 == 0 {
            continue;
        }
        let slot_len = 1 << (word >> 8 & 0xff);
        for offset in (0..CHUNK_LEN).step_by(slot_len) {
            let Some(slot) = slot_at(number_in(chunk, offset)) else { return };
            // SAFETY: a chunk with a kind is readable for ever, and each stride starts with a header.
            let header: &'static Header = unsafe { slot.as_ref() };
            if header.word().is_untouched() {
                // Slots of a chunk are first used in order of address.
                break;
            }
            visit(header);
        }
    }
}

/// Reserves address space for everything. The first caller does it; a race costs a mapping.
fn reserve() -> Option<(usize, usize)> {
    let pause = &mut Pause::new();
    loop {
        match (SPACE.base.load(Ordering::Acquire), SPACE.len.load(Ordering::Acquire)) {
            (0, _) => {}
            // Another thread is about to store the length.
            (_, 0) => {
                pause.wait();
                continue;
            }
            (base, len) => return Some((base, len)),
        }
        let (base, len) = map_space()?;
        if SPACE.base.compare_exchange(0, base, Ordering::AcqRel, Ordering::Relaxed).is_ok() {
            SPACE.len.store(len, Ordering::Release);
            register_with_leak_check(base, len);
            return Some((base, len));
        }
        // SAFETY: the mapping was made above and no other thread knows of it.
        unsafe { libc::munmap(core::ptr::with_exposed_provenance_mut(base), len) };
    }
}

/// Maps as much as the system allows, halving from the most.
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

/// Makes the leak check of a sanitized program search the space for pointers: what objects hold that live when the
/// program ends is not leaked. The check skips what is not readable yet.
fn register_with_leak_check(base: usize, len: usize) {
    let name = c"__lsan_register_root_region";
    // SAFETY: a name in C; NULL in programs without the check.
    let found = unsafe { libc::dlsym(libc::RTLD_DEFAULT, name.as_ptr()) };
    // SAFETY: the sanitizer's function of this name has this type; NULL is `None`.
    let register: Option<unsafe extern "C" fn(*const c_void, usize)> =
        unsafe { core::mem::transmute(found) };
    if let Some(register) = register {
        // SAFETY: the reservation, which stays mapped while the library is loaded.
        unsafe { register(core::ptr::with_exposed_provenance(base), len) };
    }
}

/// Resets the chunks, for [`super::abandon_all`]: none has a kind.
pub(super) fn abandon_all() {
    for chunk in &SPACE.chunks {
        chunk.store(0, Ordering::Release);
    }
}

/// No slot; slot numbers have 24 bits.
const NONE: u32 = u32::MAX;

#[derive(Clone, Copy)]
struct PoolState {
    /// Number of the oldest free slot, which is used next.
    head: u32,
    /// Number of the newest free slot, which is used last.
    tail: u32,
    /// The newest chunk, and how many bytes of it were allocated.
    chunk: u32,
    used: usize,
}

const EMPTY: PoolState = PoolState { head: NONE, tail: NONE, chunk: NONE, used: CHUNK_LEN };

static POOLS: [Latch<PoolState>; CODE_MAX as usize + 1] =
    [const { Latch::new(EMPTY) }; CODE_MAX as usize + 1];

fn pool<K: Kind>() -> &'static Latch<PoolState> {
    const { assert!(K::CODE > 0 && K::CODE <= CODE_MAX) };
    &POOLS[K::CODE as usize]
}

impl PoolState {
    fn take<K: Kind>(&mut self) -> Option<u32> {
        if let Some(number) = self.take_fresh::<K>() {
            return Some(number);
        }
        if self.head != NONE {
            let number = self.head;
            let next = header_at(number)?.next.load(Ordering::Relaxed);
            (self.head, self.tail) = (next, if next == NONE { NONE } else { self.tail });
            return Some(number);
        }
        (self.chunk, self.used) = (take_chunk::<K>()?, 0);
        self.take_fresh::<K>()
    }

    fn take_fresh<K: Kind>(&mut self) -> Option<u32> {
        if self.used + stride::<K>() > CHUNK_LEN {
            return None;
        }
        let number = number_in(self.chunk, self.used);
        self.used += stride::<K>();
        Some(number)
    }

    fn give(&mut self, number: u32) {
        let Some(header) = header_at(number) else { return };
        header.next.store(NONE, Ordering::Relaxed);
        match header_at(self.tail) {
            Some(tail) if self.tail != NONE => tail.next.store(number, Ordering::Relaxed),
            _ => self.head = number,
        }
        self.tail = number;
    }
}

fn header_at(number: u32) -> Option<&'static Header> {
    if number == NONE {
        return None;
    }
    let slot = slot_at(number)?;
    // SAFETY: numbers in a pool are of slots in chunks with a kind; they are readable for ever.
    Some(unsafe { slot.as_ref() })
}

/// Allocates a slot: its number and memory; `None`: there is no memory.
pub(super) fn take_slot<K: Kind>() -> Option<(u32, SlotPtr<K>)> {
    let number = pool::<K>().with(PoolState::take::<K>)?;
    Some((number, SlotPtr::new(slot_at(number)?.cast())))
}

/// Frees a slot whose private part is empty.
pub(super) fn give_back_slot<K: Kind>(ptr: SlotPtr<K>) {
    let word = ptr.header().word();
    ptr.header().set_word(Word::new(word.generation(), Owner::NONE, SlotState::Free));
    if let Some(offset) = offset(ptr.addr()) {
        pool::<K>().with(|pool| pool.give(number_of(offset)));
    }
}

/// Empties the pools, for [`super::abandon_all`].
pub(super) fn empty_pools() {
    for pool in &POOLS {
        pool.abandon(EMPTY);
    }
}
