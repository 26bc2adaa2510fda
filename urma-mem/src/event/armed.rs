//! Completion queues: how an arm and a completion meet, so that there is an event.
//!
//! Owns: the indices of a queue, its arm, and the event that found no room. Takes: completions of any thread, consumer indices and
//! arms from registers or from doorbell slots. Gives: one event for each arm. Must not: store entries or events itself; wait.
//!
//! A completion takes its index, stores its entry, then looks for an arm; an arm is stored, then the index is looked at. So one
//! of them sees the other: either the program that armed finds the entry, or there is an event. An arm in a doorbell slot is seen
//! by the completion, or when the device looks at the slot; the first to take it has it, by the count of the slot.

use super::EventWriter;
use crate::sync::{AtomicBool, AtomicU32, AtomicU64, Ordering};

#[cfg(test)]
mod tests;

/// Not armed, and no slot can show an arm.
const UNARMED: u64 = 0;
const ARMED_ANY: u64 = 1;
const ARMED_SOLICITED: u64 = 2;
/// Bits that say which completions fire.
const ARM_KIND: u64 = 3;
/// A slot may show a newer arm.
const ARM_IN_SLOT: u64 = 4;
/// The count of the slot with the last arm that was taken from it is from this bit.
const ARM_COUNT_SHIFT: u32 = 32;
/// No arm was seen yet: differs from every sequence number of two bits.
const NO_ARM_SN: u32 = 4;

/// Which completions are worth an event.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ArmKind {
    /// Any completion fires the queue.
    Any,
    /// Solicited ones and errors.
    Solicited,
}

impl ArmKind {
    const fn bits(self) -> u64 {
        match self {
            Self::Any => ARMED_ANY,
            Self::Solicited => ARMED_SOLICITED,
        }
    }
}

/// Newest arm that a doorbell slot shows.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ShownArm {
    /// Count of the slot with this arm.
    pub count: u32,
    /// Which completions fire it.
    pub kind: ArmKind,
    /// Consumer index, at least as new as the arm, 24 bits.
    pub ci: u32,
}

/// Indices of a completion queue, and its arm.
#[derive(Debug)]
pub struct ArmedIndices {
    /// Entries that have an index, the last of which may not be stored yet.
    pi: AtomicU64,
    ci: AtomicU64,
    /// One beyond the last entry that counts as solicited.
    solicited: AtomicU64,
    arm: AtomicU64,
    arm_sn: AtomicU32,
    /// `pi` when it was armed, for moderation.
    armed_at: AtomicU64,
    /// Fire after this many completions; at most 1 means each.
    moderate_count: AtomicU32,
    /// An event is due and was not written.
    is_pending: AtomicBool,
}

impl Default for ArmedIndices {
    fn default() -> Self {
        let zero = || AtomicU64::new(0);
        Self {
            pi: zero(),
            ci: zero(),
            solicited: zero(),
            arm: AtomicU64::new(UNARMED),
            arm_sn: AtomicU32::new(NO_ARM_SN),
            armed_at: zero(),
            moderate_count: AtomicU32::new(0),
            is_pending: AtomicBool::new(false),
        }
    }
}

impl ArmedIndices {
    /// Starts anew: no entry, no arm, no event.
    pub fn reset(&self) {
        for word in [&self.pi, &self.ci, &self.solicited, &self.armed_at] {
            word.store(0, Ordering::SeqCst);
        }
        self.arm.store(UNARMED, Ordering::SeqCst);
        self.arm_sn.store(NO_ARM_SN, Ordering::SeqCst);
        self.moderate(0);
        self.is_pending.store(false, Ordering::SeqCst);
    }

    /// Later arms fire after `count` completions.
    pub fn moderate(&self, count: u32) {
        self.moderate_count.store(count, Ordering::SeqCst);
    }

    /// Index of the next entry, free running.
    #[inline(always)]
    #[must_use]
    pub fn produced(&self) -> u64 {
        self.pi.load(Ordering::Acquire)
    }

    /// Index of the first entry that is not consumed.
    #[inline(always)]
    #[must_use]
    pub fn consumed(&self) -> u64 {
        self.ci.load(Ordering::Relaxed)
    }

    /// The consumer moved to this index, which is not beyond [`ArmedIndices::produced`].
    #[inline(always)]
    pub fn consume(&self, ci: u64) {
        self.ci.store(ci, Ordering::SeqCst);
    }

    /// Takes the index of a new entry; its caller stores that, and asks [`ArmedIndices::is_event_due`] then.
    #[inline(always)]
    pub fn take_index(&self, solicited: bool) -> u64 {
        let at = self.pi.fetch_add(1, Ordering::SeqCst);
        if solicited {
            self.solicited.fetch_max(at + 1, Ordering::SeqCst);
        }
        at
    }

    /// Whether no arm is there, nor a slot that may show one: an entry is worth no event.
    #[inline(always)]
    #[must_use]
    pub fn is_unarmed(&self) -> bool {
        self.arm.load(Ordering::SeqCst) == UNARMED
    }

    /// Whether entry `at`, which is stored, fires the queue; it is not armed then any more. `look` reads the slot of the queue, in which
    /// an arm may be that was stored before the entry.
    #[cold]
    #[must_use]
    pub fn is_event_due(
        &self,
        (at, solicited): (u64, bool),
        look: impl FnOnce() -> Option<ShownArm>,
    ) -> bool {
        let mut is_due = false;
        let mut arm = self.arm.load(Ordering::SeqCst);
        if arm & ARM_IN_SLOT != 0 {
            // Before the slot: the index there is not older.
            let ci = self.ci.load(Ordering::SeqCst);
            if let Some(shown) = look() {
                is_due = self.take_shown(shown, (ci, at));
            }
            arm = self.arm.load(Ordering::SeqCst);
        }
        let fits = match arm & ARM_KIND {
            UNARMED => false,
            ARMED_SOLICITED => solicited,
            _ => true,
        };
        is_due || fits && !self.is_moderated(at) && self.fire()
    }

    /// Arms, from a register, unless `sn` is that of the last arm. Whether there is an event at once.
    #[must_use]
    pub fn arm(&self, kind: ArmKind, sn: u8) -> bool {
        if self.arm_sn.swap(u32::from(sn), Ordering::SeqCst) == u32::from(sn) {
            return false;
        }
        self.armed_at.store(self.pi.load(Ordering::SeqCst), Ordering::SeqCst);
        let armed = |word| Some(word & !ARM_KIND | kind.bits());
        let _ = self.arm.fetch_update(Ordering::SeqCst, Ordering::SeqCst, armed);
        self.fire_for_waiting(kind, self.ci.load(Ordering::SeqCst))
    }

    /// The queue has a slot from now on, whose arm with this count was taken.
    pub fn expect_slot(&self, count: u32) {
        let count = u64::from(count) << ARM_COUNT_SHIFT;
        let word = |word| Some(count | ARM_IN_SLOT | word & ARM_KIND);
        let _ = self.arm.fetch_update(Ordering::SeqCst, Ordering::SeqCst, word);
    }

    /// The device looked at the slot: takes the arm that it shows. Whether there is an event at once.
    #[must_use]
    pub fn arm_shown(&self, shown: ShownArm) -> bool {
        let now = self.pi.load(Ordering::SeqCst);
        self.take_shown(shown, (self.ci.load(Ordering::SeqCst), now))
    }

    /// Takes an arm that the slot shows, unless it was taken before. `ci` is a consumer index that was read before the slot, `at`
    /// the first entry that counts for moderation.
    fn take_shown(&self, shown: ShownArm, (ci, at): (u64, u64)) -> bool {
        let ci = ci + u64::from(shown.ci.wrapping_sub(low32(ci)) & INDEX_MASK);
        if ci > self.pi.load(Ordering::SeqCst) {
            return false;
        }
        let word = u64::from(shown.count) << ARM_COUNT_SHIFT | ARM_IN_SLOT | shown.kind.bits();
        // Modulo 2^32: between two takers, the one that read the slot earlier loses.
        let newer = |taken: u64| {
            let ahead = (word >> ARM_COUNT_SHIFT).wrapping_sub(taken >> ARM_COUNT_SHIFT) << 32;
            (ahead != 0 && ahead < 1 << 63).then_some(word)
        };
        let taken = self.arm.fetch_update(Ordering::SeqCst, Ordering::SeqCst, newer);
        taken.is_ok() && {
            self.armed_at.store(at, Ordering::SeqCst);
            self.fire_for_waiting(shown.kind, ci)
        }
    }

    /// A completion from here on sees the arm; what completed before is looked at now. An
    /// entry whose index is taken but not yet stored may fire a moment early, never late.
    fn fire_for_waiting(&self, kind: ArmKind, ci: u64) -> bool {
        let waiting = match kind {
            ArmKind::Any => self.pi.load(Ordering::SeqCst),
            ArmKind::Solicited => self.solicited.load(Ordering::SeqCst),
        };
        waiting > ci && self.fire()
    }

    /// Ends the arm: one event for each. Whether there was one.
    #[cold]
    fn fire(&self) -> bool {
        self.arm.fetch_and(!ARM_KIND, Ordering::SeqCst) & ARM_KIND != 0
    }

    /// The queue is armed and has waited long enough: whether anything came, which fires it.
    #[must_use]
    pub fn fire_if_any(&self) -> bool {
        self.has_come() && self.fire()
    }

    /// Whether the queue is armed and something came since then.
    #[must_use]
    pub fn is_waiting(&self) -> bool {
        self.arm.load(Ordering::Relaxed) & ARM_KIND != 0 && self.has_come()
    }

    fn has_come(&self) -> bool {
        self.pi.load(Ordering::SeqCst) > self.armed_at.load(Ordering::SeqCst)
    }

    fn is_moderated(&self, at: u64) -> bool {
        let count = u64::from(self.moderate_count.load(Ordering::Relaxed));
        // An arm that came after the entry counts from a later one.
        count > 1 && (at + 1).saturating_sub(self.armed_at.load(Ordering::Relaxed)) < count
    }

    /// Writes the event that is due: `write` stores it at its place of the ring, and says so to the ring's writer. It waits if
    /// there is no room.
    pub fn raise(&self, ring: &EventWriter, write: impl Fn(u64)) {
        self.is_pending.swap(true, Ordering::SeqCst);
        self.raise_pending(ring, write);
    }

    /// Writes the event that found no room, if there is one. The reader of the ring moved.
    pub fn raise_pending(&self, ring: &EventWriter, write: impl Fn(u64)) {
        // Again only when another thread had the place that was free.
        while self.is_pending.swap(false, Ordering::SeqCst) {
            if let Some(at) = ring.claim() {
                return write(at);
            }
            self.is_pending.swap(true, Ordering::SeqCst);
            // The reader may have moved between the refusal and this store, and looked for events that wait.
            if !ring.is_free_or_refused() {
                return;
            }
        }
    }
}

/// Bits of a consumer index that count.
const INDEX_MASK: u32 = 0x00ff_ffff;

#[expect(clippy::cast_possible_truncation, reason = "indices are modulo 2^32 here")]
const fn low32(index: u64) -> u32 {
    index as u32
}
