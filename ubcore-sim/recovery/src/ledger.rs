//! The send window in sequence numbers: what became of each packet.
//!
//! - owns: the fate of each packet in the window, when and where it was sent last, the queue of lost ones.
//! - takes: acknowledged and lost sequences. gives: the sequence to send next.
//! - must not: hold bytes, read timers, decide that a packet counts as lost (that is the strategy's).
#![expect(
    clippy::cast_possible_truncation,
    reason = "usize has 64 bits on supported targets; positions are cut to the size of the ring"
)]

use std::collections::VecDeque;

use udma_abi::Nanos;

use crate::spread::Spread;

/// Slots that a window has at first; it doubles as it fills. A node may have many TPs, most of which never have more
/// than a few packets out.
const SLOTS_FIRST: usize = 4;

/// What became of a packet in the window.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub enum Fate {
    /// Accepted into the window, never sent.
    Queued,
    /// Sent and not acknowledged.
    InFlight,
    /// Counts as lost; waits to be sent again.
    Lost,
    /// The peer has it, beyond a gap.
    Sacked,
}

/// One packet in the window.
#[derive(Clone, Copy, Debug)]
pub struct LedgerSlot {
    /// Time of the last transmission.
    sent_at: Nanos,
    /// Its route and whether it is another one than before, in the highest 8 bits; its number among the transmissions
    /// by that route.
    order: u64,
    /// Ticket of the report that named it last.
    ticket: u32,
    /// Number of transmissions so far.
    sent: u16,
    /// Tier of the report that named it last; 0: none did.
    tier: u8,
    fate: Fate,
}

const _: () = assert!(size_of::<LedgerSlot>() == 24);
const ROUTE_SHIFT: u32 = 56;
const ORDER_MASK: u64 = (1 << ROUTE_SHIFT) - 1;
const REROUTED: u8 = 0x80;

impl LedgerSlot {
    const QUEUED: Self =
        Self { sent_at: 0, order: 0, ticket: 0, sent: 0, tier: 0, fate: Fate::Queued };

    /// What became of it.
    #[must_use]
    pub const fn fate(&self) -> Fate {
        self.fate
    }

    /// When it was sent, if that happened exactly once (an answer then times the path).
    #[must_use]
    pub const fn sent_once_at(&self) -> Option<Nanos> {
        if self.sent == 1 { Some(self.sent_at) } else { None }
    }

    /// Time of the last transmission.
    #[must_use]
    pub const fn sent_at(&self) -> Nanos {
        self.sent_at
    }

    /// The last transmission: its route, and its number among those by that route.
    #[must_use]
    pub const fn transmission(&self) -> (u8, u64) {
        ((self.order >> ROUTE_SHIFT) as u8 & !REROUTED, self.order & ORDER_MASK)
    }

    /// Whether not all transmissions took the same route.
    #[must_use]
    pub const fn is_rerouted(&self) -> bool {
        (self.order >> ROUTE_SHIFT) as u8 & REROUTED != 0
    }

    /// Number of transmissions so far.
    #[must_use]
    pub const fn transmissions(&self) -> u16 {
        self.sent
    }

    /// Tier and ticket of the report that named it last.
    #[must_use]
    pub const fn reported(&self) -> (u8, u32) {
        (self.tier, self.ticket)
    }
}

/// Send window of a TP: packets that are not acknowledged.
#[derive(Debug)]
pub struct SendLedger {
    /// By sequence modulo their number, a power of two.
    slots: Vec<LedgerSlot>,
    /// Most packets in the window.
    limit: u64,
    /// Oldest packet that the peer may lack.
    una: u64,
    /// First packet that was never sent.
    unsent: u64,
    /// Number of the next new packet.
    next: u64,
    /// Packets marked lost, oldest mark first; entries acknowledged meanwhile are skipped.
    lost: VecDeque<u64>,
    in_flight: u64,
    /// Packets that counted as lost so far, and when the latest of these transmissions was.
    lost_count: u64,
    lost_sent_at: Nanos,
    /// Most packets on the path, as congestion control has it.
    path_max: u64,
    pub(crate) spread: Spread,
}

impl SendLedger {
    /// A window of `packets` places.
    #[must_use]
    pub fn new(packets: u32) -> Self {
        let limit = packets.max(1) as usize;
        let slots = limit.min(SLOTS_FIRST).next_power_of_two();
        Self {
            slots: vec![LedgerSlot::QUEUED; slots],
            limit: limit as u64,
            una: 0,
            unsent: 0,
            next: 0,
            lost: VecDeque::new(),
            in_flight: 0,
            lost_count: 0,
            lost_sent_at: 0,
            path_max: u64::MAX,
            spread: Spread::new(),
        }
    }

    /// Returns how many packets may still be queued.
    #[must_use]
    pub const fn room(&self) -> usize {
        (self.limit - (self.next - self.una)) as usize
    }

    /// Whether the peer has everything.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.next == self.una
    }

    /// Oldest packet that the peer may lack.
    #[must_use]
    pub const fn una(&self) -> u64 {
        self.una
    }

    /// First packet that was never sent.
    #[must_use]
    pub const fn unsent(&self) -> u64 {
        self.unsent
    }

    /// Number of the next new packet.
    #[must_use]
    pub const fn next(&self) -> u64 {
        self.next
    }

    /// Number of packets that were accepted and never sent.
    #[must_use]
    pub const fn queued(&self) -> usize {
        (self.next - self.unsent) as usize
    }

    /// Number of packets that were sent, and neither acknowledged nor counted as lost.
    #[must_use]
    pub const fn in_flight(&self) -> u64 {
        self.in_flight
    }

    /// Number of packets on the path, as far as is known: sent after the last one of their route that the peer has, and
    /// not counted as lost.
    #[must_use]
    pub fn on_path(&self) -> u64 {
        self.in_flight.min(self.spread.on_path())
    }

    /// Whether no packet may go before others leave the path.
    #[must_use]
    pub fn is_path_full(&self) -> bool {
        self.is_bounded() && self.on_path() >= self.path_max
    }

    /// Whether anything but the window bounds what is on the path.
    pub(crate) const fn is_bounded(&self) -> bool {
        self.path_max != u64::MAX
    }

    /// Packets that the window spans at most.
    pub(crate) const fn limit(&self) -> u64 {
        self.limit
    }

    /// At most so many packets may be on the path from now on.
    pub(crate) const fn set_path_max(&mut self, packets: u64) {
        self.path_max = packets;
    }

    /// How often packets counted as lost.
    pub(crate) const fn lost_count(&self) -> u64 {
        self.lost_count
    }

    /// When the latest transmission was that counted as lost.
    pub(crate) const fn lost_sent_at(&self) -> Nanos {
        self.lost_sent_at
    }

    /// Whether packets wait that could be sent now.
    #[must_use]
    pub fn has_sendable(&self) -> bool {
        self.unsent < self.next || !self.lost.is_empty()
    }

    /// Whether lost packets wait to be sent again; some may be acknowledged meanwhile.
    #[must_use]
    pub fn has_lost(&self) -> bool {
        !self.lost.is_empty()
    }

    /// Whether something was sent that the peer may lack.
    #[must_use]
    pub const fn has_unacknowledged(&self) -> bool {
        self.una < self.unsent
    }

    /// Takes the next place; the caller has seen that there is one.
    pub fn push(&mut self) {
        assert!(self.room() > 0, "a place is reserved before pushing");
        if (self.next - self.una) as usize == self.slots.len() {
            self.grow();
        }
        *self.slot_mut(self.next) = LedgerSlot::QUEUED;
        self.next += 1;
    }

    /// The next packet to send: lost ones first, then new ones. It counts as sent at `now`.
    pub fn send_next(&mut self, now: Nanos) -> Option<(u64, LedgerSlot)> {
        let seq = match self.next_lost() {
            Some(seq) => seq,
            None if self.unsent < self.next => {
                self.unsent += 1;
                self.unsent - 1
            }
            None => return None,
        };
        Some((seq, self.fly(seq, now)))
    }

    /// The next new packet to send, unless lost ones wait. It counts as sent at `now`.
    pub fn send_new(&mut self, now: Nanos) -> Option<u64> {
        if !self.lost.is_empty() || self.unsent == self.next {
            return None;
        }
        let seq = self.unsent;
        self.unsent += 1;
        self.fly(seq, now);
        Some(seq)
    }

    /// Sends `seq`, which is in flight, once more.
    pub fn send_again(&mut self, seq: u64, now: Nanos) -> LedgerSlot {
        self.land(seq);
        self.fly(seq, now)
    }

    /// Marks `seq` lost if it is in flight. Returns whether it did.
    pub fn mark_lost(&mut self, seq: u64) -> bool {
        if !self.is_sent(seq) || self.slot(seq).fate != Fate::InFlight {
            return false;
        }
        self.land(seq);
        self.slot_mut(seq).fate = Fate::Lost;
        self.count_lost(seq);
        self.lost.push_back(seq);
        true
    }

    /// As [`SendLedger::mark_lost`], and remembers which report named it.
    pub fn mark_reported(&mut self, seq: u64, tier: u8, ticket: u32) -> bool {
        let is_new = self.mark_lost(seq);
        if is_new || (self.is_sent(seq) && self.slot(seq).fate == Fate::Lost) {
            let slot = self.slot_mut(seq);
            (slot.tier, slot.ticket) = (tier, ticket);
        }
        is_new
    }

    /// Marks all from `seq` on lost that the peer may lack; they are sent again in order.
    pub fn mark_all_lost(&mut self, seq: u64) {
        self.lost.clear();
        for seq in self.una.max(seq)..self.unsent {
            if std::mem::replace(&mut self.slot_mut(seq).fate, Fate::Lost) == Fate::InFlight {
                self.land(seq);
                self.count_lost(seq);
            }
            self.lost.push_back(seq);
        }
    }

    /// Marks all in flight on this route lost.
    pub fn mark_route_lost(&mut self, route: u8) {
        for seq in self.una..self.unsent {
            if self.slot(seq).transmission().0 == route {
                self.mark_lost(seq);
            }
        }
    }

    /// Whether at least `packets` later ones that took the same route as `seq` were received.
    #[must_use]
    pub fn is_overtaken(&self, seq: u64, packets: u64) -> bool {
        let (route, order) = self.slot(seq).transmission();
        self.spread.is_overtaken(route, order, packets)
    }

    /// Routes that packets in flight took, a bit for each.
    #[must_use]
    pub fn routes_in_flight(&self) -> u8 {
        self.spread.in_flight()
    }

    /// Marks `seq` as held by the peer beyond a gap; the slot if that is news.
    pub fn mark_sacked(&mut self, seq: u64) -> Option<&LedgerSlot> {
        if !self.is_sent(seq) || self.slot(seq).fate == Fate::Sacked {
            return None;
        }
        if std::mem::replace(&mut self.slot_mut(seq).fate, Fate::Sacked) == Fate::InFlight {
            self.land(seq);
        }
        Some(self.slot(seq))
    }

    /// Frees all before `seq`, which lies within what was sent; `on_freed` sees each.
    pub fn advance(&mut self, seq: u64, mut on_freed: impl FnMut(u64, &LedgerSlot)) {
        debug_assert!(self.una <= seq && seq <= self.unsent);
        for freed in self.una..seq {
            let slot = self.slot(freed);
            on_freed(freed, slot);
            if slot.fate == Fate::InFlight {
                self.land(freed);
            }
        }
        self.una = seq;
        while self.lost.front().is_some_and(|&lost| lost < seq) {
            self.lost.pop_front();
        }
    }

    /// What became of `seq`, which lies in the window.
    #[must_use]
    pub fn slot(&self, seq: u64) -> &LedgerSlot {
        &self.slots[seq as usize & (self.slots.len() - 1)]
    }

    /// Whether `seq` was sent and may be lacking.
    #[must_use]
    pub const fn is_sent(&self, seq: u64) -> bool {
        self.una <= seq && seq < self.unsent
    }

    /// `seq` counts as sent at `now`, by the route whose turn it is.
    fn fly(&mut self, seq: u64, now: Nanos) -> LedgerSlot {
        self.in_flight += 1;
        let (route, order) = self.spread.take();
        let slot = self.slot_mut(seq);
        let is_rerouted = slot.sent > 0 && (slot.is_rerouted() || slot.transmission().0 != route);
        let route = if is_rerouted { route | REROUTED } else { route };
        slot.fate = Fate::InFlight;
        slot.sent = slot.sent.saturating_add(1);
        slot.sent_at = now;
        slot.order = u64::from(route) << ROUTE_SHIFT | order;
        *slot
    }

    /// `seq` is not in flight any more.
    fn land(&mut self, seq: u64) {
        self.in_flight -= 1;
        self.spread.land(self.slot(seq).transmission().0);
    }

    fn count_lost(&mut self, seq: u64) {
        self.lost_count += 1;
        self.lost_sent_at = self.lost_sent_at.max(self.slot(seq).sent_at());
    }

    fn slot_mut(&mut self, seq: u64) -> &mut LedgerSlot {
        let at = seq as usize & (self.slots.len() - 1);
        &mut self.slots[at]
    }

    fn next_lost(&mut self) -> Option<u64> {
        while let Some(seq) = self.lost.pop_front() {
            if self.is_sent(seq) && self.slot(seq).fate == Fate::Lost {
                return Some(seq);
            }
        }
        None
    }

    fn grow(&mut self) {
        let mut slots = vec![LedgerSlot::QUEUED; 2 * self.slots.len()];
        let mask = slots.len() - 1;
        for seq in self.una..self.next {
            slots[seq as usize & mask] = *self.slot(seq);
        }
        self.slots = slots;
    }
}
