//! Free slots of each kind.
//!
//! *Owns*: one list per kind: fresh slots of the newest chunk first, then the slot that has been free the longest.
//! *Takes*: slots that were emptied. *Gives*: slots to build in. *Must not*: look at the public or private part.

use urma_mem::sync::Ordering;

use super::{
    CODE_MAX, Kind,
    cell::{CHUNK_LEN, SlotPtr, stride},
    header::{Header, Owner, SlotState, Word},
    space,
};
use crate::latch::Latch;

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
        (self.chunk, self.used) = (space::take_chunk::<K>()?, 0);
        self.take_fresh::<K>()
    }

    fn take_fresh<K: Kind>(&mut self) -> Option<u32> {
        if self.used + stride::<K>() > CHUNK_LEN {
            return None;
        }
        let number = space::number_in(self.chunk, self.used);
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
    let slot = space::slot_at(number)?;
    // SAFETY: numbers in a pool are of slots in chunks with a kind; they are readable for ever.
    Some(unsafe { slot.as_ref() })
}

/// Allocates a slot: its number and memory; `None`: there is no memory.
pub(super) fn take<K: Kind>() -> Option<(u32, SlotPtr<K>)> {
    let number = pool::<K>().with(PoolState::take::<K>)?;
    Some((number, SlotPtr::new(space::slot_at(number)?.cast())))
}

/// Frees a slot whose private part is empty.
pub(super) fn give_back<K: Kind>(ptr: SlotPtr<K>) {
    let word = ptr.header().word();
    ptr.header().set_word(Word::new(word.generation(), Owner::NONE, SlotState::Free));
    if let Some(offset) = space::offset(ptr.addr()) {
        pool::<K>().with(|pool| pool.give(space::number_of(offset)));
    }
}

/// Empties the pools, for [`super::abandon_all`].
pub(super) fn abandon_all() {
    for pool in &POOLS {
        pool.abandon(EMPTY);
    }
}
