//! Doorbells in shared memory: a slot for each doorbell, of which the newest value counts.
//!
//! Owns: the slots, a bit for each slot that rang, and the word by which a device says that it sleeps. Takes: values of
//! threads that each write slots of their own. Gives: the device every slot's newest value. Must not: lose a doorbell whatever the
//! interleaving; trust a word that the other side writes; make a system call.
//!
//! A writer stores the value and sets the slot's bit then. The device clears the bits and reads the values then, so it
//! reads a value that is at least as new as the bit. Both change the bits by exchanges, each of which reads the one before: a bit
//! that the device clears too early for a value is set again after that.
//!
//! A value replaces earlier ones, so it must say all that they said. What must not be replaced (a request for an
//! event) is counted in a second word of the slot, which keeps its count when only the value changes.

use std::sync::{Arc, Mutex, PoisonError};

use crate::region::{OutOfBounds, Region};
use crate::sleep::{SleepFlag, SleepResult};
use crate::words::{OneWord, Words};

#[cfg(test)]
mod tests;

/// Where the words are, in bytes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct SlotGeometry {
    /// Number of slots, a multiple of 64 or fewer than that.
    pub slots: usize,
    /// Word by which the device says that it sleeps.
    pub sleep: usize,
    /// Word by which the device says how it is.
    pub status: usize,
    /// Bits of slots that rang: bit `i % 64` of word `i / 64` is that of slot `i`.
    pub rung: usize,
    /// First slot: two words, the value and the count.
    pub first: usize,
    /// Bytes from a slot to the next one.
    pub stride: usize,
}

impl SlotGeometry {
    /// Geometry of the doorbell memory of a device.
    pub const DEVICE: Self =
        Self { slots: 1024, sleep: 0, status: 8, rung: 128, first: 1 << 16, stride: 64 };

    /// Bytes from the first word to the end of the last slot.
    #[must_use]
    pub const fn len_bytes(&self) -> usize {
        self.first + self.slots * self.stride
    }

    const fn at(&self, slot: usize) -> usize {
        self.first + slot * self.stride
    }

    const fn rung_words(&self) -> usize {
        self.slots.div_ceil(64)
    }
}

/// The writers' side: slots that are free.
#[derive(Debug)]
pub struct DoorbellSlots<W: Words = Region> {
    words: W,
    geometry: SlotGeometry,
    sleep: SleepFlag<W>,
    free: Mutex<Vec<usize>>,
}

impl<W: Words> DoorbellSlots<W> {
    /// All slots of this memory, free.
    ///
    /// # Errors
    /// [`OutOfBounds`]: the memory is shorter than the geometry says.
    pub fn new(words: W, geometry: SlotGeometry) -> Result<Self, OutOfBounds> {
        words.load(geometry.len_bytes() - size_of::<u64>())?;
        let sleep = SleepFlag::new(words.clone(), geometry.sleep)?;
        let free = Mutex::new((0..geometry.slots).rev().collect());
        Ok(Self { words, geometry, sleep, free })
    }

    /// Returns what the device says of itself, 0 at first.
    #[must_use]
    pub fn status(&self) -> u64 {
        self.words.load_acquire(self.geometry.status).unwrap_or(0)
    }

    /// Takes a free slot, which is free again when it is dropped. `None`: there is none.
    #[must_use]
    pub fn take(self: &Arc<Self>) -> Option<DoorbellSlot<W>> {
        let index = self.free.lock().unwrap_or_else(PoisonError::into_inner).pop()?;
        self.slot(index).ok()
    }

    fn slot(self: &Arc<Self>, index: usize) -> Result<DoorbellSlot<W>, OutOfBounds> {
        let (words, at) = (&self.words, self.geometry.at(index));
        Ok(DoorbellSlot {
            value: words.one(at)?,
            counted: words.one(at + size_of::<u64>())?,
            rung: words.one(self.geometry.rung + index / 64 * size_of::<u64>())?,
            slots: Arc::clone(self),
            index,
        })
    }
}

/// A slot that one thread at a time writes.
#[derive(Debug)]
pub struct DoorbellSlot<W: Words = Region> {
    slots: Arc<DoorbellSlots<W>>,
    index: usize,
    value: W::One,
    counted: W::One,
    rung: W::One,
}

impl<W: Words> DoorbellSlot<W> {
    /// Rings with `value`, which replaces earlier ones. Calls `wake` if the device sleeps.
    #[inline]
    pub fn ring(&self, value: u64, wake: impl FnOnce()) {
        let stored = self.value.store_release(value);
        debug_assert!(stored.is_ok(), "the memory is writable");
        self.publish(wake);
    }

    /// As [`DoorbellSlot::ring`], with a detail that the device gets although the value is replaced before it looks; only a
    /// later detail replaces it.
    #[inline]
    pub fn ring_counted(&self, value: u64, detail: u32, wake: impl FnOnce()) {
        let count = (self.counted.load() >> 32).wrapping_add(1);
        let stored = self.value.store_release(value);
        debug_assert!(stored.is_ok(), "the memory is writable");
        // After the value: the device reads them the other way round.
        let _ = self.counted.store_release(count << 32 | u64::from(detail));
        self.publish(wake);
    }

    #[inline]
    fn publish(&self, wake: impl FnOnce()) {
        // The exchange is the fence that the look at the sleeper needs.
        let _ = self.rung.or_fence(1 << (self.index % 64));
        if self.slots.sleep.is_asleep() {
            wake();
        }
    }
}

impl<W: Words> Drop for DoorbellSlot<W> {
    fn drop(&mut self) {
        self.slots.free.lock().unwrap_or_else(PoisonError::into_inner).push(self.index);
    }
}

/// What a slot rang with.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct RungSlot {
    /// Number of the slot.
    pub slot: usize,
    /// Newest value of the slot.
    pub value: u64,
    /// Count of details, modulo 2^32.
    pub count: u32,
    /// Newest detail, if there is one since the slot rang last.
    pub detail: Option<u32>,
}

/// What the words of a slot say.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct SlotWords {
    /// Newest value of the slot.
    pub value: u64,
    /// Count of details, modulo 2^32.
    pub count: u32,
    /// Newest detail of the slot.
    pub detail: u32,
}

impl SlotWords {
    /// Reads a slot: the value is at least as new as the count. `None`: there is no such slot.
    #[inline]
    pub fn read<W: Words>(words: &W, geometry: SlotGeometry, slot: usize) -> Option<Self> {
        if slot >= geometry.slots {
            return None;
        }
        let at = geometry.at(slot);
        let counted = words.load_acquire(at + size_of::<u64>()).ok()?;
        let value = words.load_acquire(at).ok()?;
        #[expect(clippy::cast_possible_truncation, reason = "the low half is the detail")]
        let detail = counted as u32;
        let count = (counted >> 32) as u32;
        Some(Self { value, count, detail })
    }
}

/// The device's side: what it saw of the slots.
#[derive(Debug)]
pub struct RungSlots<W: Words = Region> {
    words: W,
    geometry: SlotGeometry,
    sleep: SleepFlag<W>,
    rung: Vec<W::One>,
    /// Count of each slot, as it was seen last.
    seen: Vec<u32>,
}

impl<W: Words> RungSlots<W> {
    /// Slots of this memory, none of which rang.
    ///
    /// # Errors
    /// As [`DoorbellSlots::new`].
    pub fn new(words: W, geometry: SlotGeometry) -> Result<Self, OutOfBounds> {
        words.load(geometry.len_bytes() - size_of::<u64>())?;
        let rung = (0..geometry.rung_words())
            .map(|word| words.one(geometry.rung + word * size_of::<u64>()))
            .collect::<Result<_, _>>()?;
        let sleep = SleepFlag::new(words.clone(), geometry.sleep)?;
        Ok(Self { words, geometry, sleep, rung, seen: vec![0; geometry.slots] })
    }

    /// Gives every slot that rang since the last call to `ring`, once. Returns their number, at most that of all slots.
    #[inline]
    pub fn take(&mut self, mut ring: impl FnMut(RungSlot)) -> usize {
        let mut count = 0;
        for word in 0..self.rung.len() {
            let Some(bits) = self.rung.get(word).filter(|bits| bits.load() != 0) else { continue };
            // Before the values are read: a later one sets its bit again.
            let mut left = bits.swap_fence(0).unwrap_or(0);
            while left != 0 {
                let slot = word * 64 + left.trailing_zeros() as usize;
                left &= left - 1;
                if let Some(rung) = self.read(slot) {
                    count += 1;
                    ring(rung);
                }
            }
        }
        count
    }

    /// `None`: there is no such slot, whatever bit is set.
    #[inline]
    fn read(&mut self, slot: usize) -> Option<RungSlot> {
        let seen = self.seen.get_mut(slot)?;
        let SlotWords { value, count, detail } = SlotWords::read(&self.words, self.geometry, slot)?;
        let detail = (count != *seen).then_some(detail);
        *seen = count;
        Some(RungSlot { slot, value, count, detail })
    }

    /// Says how the device is.
    pub fn show_status(&self, status: u64) {
        if self.words.load(self.geometry.status) != Ok(status) {
            let _ = self.words.store_release(self.geometry.status, status);
        }
    }

    /// Says that the device sleeps, unless a slot rang: writers wake it from now on.
    pub fn announce_sleep(&self) -> SleepResult {
        self.sleep.announce_sleep(|| self.rung.iter().any(|bits| bits.load() != 0))
    }

    /// Says that the device looks at the slots by itself.
    pub fn announce_awake(&self) {
        self.sleep.announce_awake();
    }
}
