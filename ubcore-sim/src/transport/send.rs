//! The send window: packets kept until the peer has them.
//!
//! - owns: a ring of packet buffers by sequence, what became of each, the queue of lost ones.
//! - takes: whole datagrams (written into its buffers), acknowledgements. gives: what to send next.
//! - must not: know timers, PSNs or why a packet counts as lost (that is the strategy's).
//!
//! Sequences count packets from 0 without wrapping; the TP maps them to PSNs. Buffers of acknowledged packets
//! are used again: a steady stream allocates nothing.
#![expect(
    clippy::cast_possible_truncation,
    reason = "usize has 64 bits on supported targets; block numbers have 32"
)]

use std::collections::VecDeque;

use udma_abi::Nanos;

/// What became of a packet in the window.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Fate {
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
#[derive(Debug)]
pub(super) struct WindowSlot {
    bytes: Vec<u8>,
    fate: Fate,
    /// Number of transmissions so far.
    sent: u32,
    /// Time of the last one.
    sent_at: Nanos,
    /// Number of the last one among all transmissions of this TP.
    order: u64,
}

impl WindowSlot {
    const fn new() -> Self {
        Self { bytes: Vec::new(), fate: Fate::Queued, sent: 0, sent_at: 0, order: 0 }
    }

    pub(super) const fn fate(&self) -> Fate {
        self.fate
    }

    /// When it was sent, if that happened exactly once (an answer then times the path).
    pub(super) const fn sent_once_at(&self) -> Option<Nanos> {
        if self.sent == 1 { Some(self.sent_at) } else { None }
    }

    /// Bytes of the packet.
    pub(super) const fn len(&self) -> usize {
        self.bytes.len()
    }

    pub(super) const fn sent_at(&self) -> Nanos {
        self.sent_at
    }

    pub(super) const fn order(&self) -> u64 {
        self.order
    }
}

/// A packet to put on the wire.
#[derive(Debug)]
pub(super) struct Outgoing<'a> {
    pub(super) seq: u64,
    pub(super) bytes: &'a [u8],
    /// Whether the packet was sent before.
    pub(super) again: bool,
}

/// Send window of a TP: packets that are not acknowledged.
#[derive(Debug)]
pub(super) struct SendWindow {
    slots: Box<[WindowSlot]>,
    /// Oldest packet that the peer may lack.
    una: u64,
    /// First packet that was never sent.
    unsent: u64,
    /// Number of the next new packet, extended to 64 bits.
    next: u64,
    /// Packets marked lost, oldest mark first; entries acknowledged meanwhile are skipped.
    lost: VecDeque<u64>,
    /// Buffers of acknowledged packets: the one that was freed last, which caches still hold, is used first.
    spare: Vec<Vec<u8>>,
    transmissions: u64,
}

impl SendWindow {
    /// A window of `packets` places.
    pub(super) fn new(packets: u32) -> Self {
        Self {
            slots: (0..packets.max(1)).map(|_| WindowSlot::new()).collect(),
            una: 0,
            unsent: 0,
            next: 0,
            lost: VecDeque::with_capacity(packets as usize),
            spare: Vec::new(),
            transmissions: 0,
        }
    }

    /// Returns how many packets may still be sent.
    pub(super) const fn room(&self) -> usize {
        self.slots.len() - (self.next - self.una) as usize
    }

    /// Whether the peer has everything.
    pub(super) const fn is_empty(&self) -> bool {
        self.next == self.una
    }

    pub(super) const fn una(&self) -> u64 {
        self.una
    }

    pub(super) const fn unsent(&self) -> u64 {
        self.unsent
    }

    pub(super) const fn next(&self) -> u64 {
        self.next
    }

    /// Number of packets that were accepted and never sent.
    pub(super) const fn queued(&self) -> usize {
        (self.next - self.unsent) as usize
    }

    /// Whether packets wait that could be sent now.
    pub(super) fn has_sendable(&self) -> bool {
        self.unsent < self.next || !self.lost.is_empty()
    }

    /// Whether something was sent that the peer may lack.
    pub(super) const fn has_in_flight(&self) -> bool {
        self.una < self.unsent
    }

    /// Takes the next place, which the caller knows to be there, and lets `write` fill its buffer
    /// of `len` bytes. Nothing is taken when `write` fails.
    pub(super) fn push<E>(
        &mut self,
        len: usize,
        write: impl FnOnce(&mut [u8]) -> Result<(), E>,
    ) -> Result<(), E> {
        assert!(self.room() > 0, "a place is reserved before pushing");
        let mut bytes = self.spare.pop().unwrap_or_default();
        bytes.resize(len, 0);
        let written = write(&mut bytes);
        let slot = self.slot_mut(self.next);
        slot.bytes = bytes;
        slot.fate = Fate::Queued;
        slot.sent = 0;
        if written.is_ok() {
            self.next += 1;
        }
        written
    }

    /// The newest packet, if it was never sent.
    pub(super) fn last_unsent(&mut self) -> Option<&mut Vec<u8>> {
        (self.unsent < self.next).then(|| &mut self.slot_mut(self.next - 1).bytes)
    }

    /// The next packet to send: lost ones first, then new ones. It counts as sent at `now`.
    pub(super) fn send_next(&mut self, now: Nanos) -> Option<Outgoing<'_>> {
        let seq = match self.next_lost() {
            Some(seq) => seq,
            None if self.unsent < self.next => {
                self.unsent += 1;
                self.unsent - 1
            }
            None => return None,
        };
        self.transmissions += 1;
        let order = self.transmissions;
        let slot = self.slot_mut(seq);
        let again = slot.sent > 0;
        slot.fate = Fate::InFlight;
        slot.sent = slot.sent.saturating_add(1);
        slot.sent_at = now;
        slot.order = order;
        Some(Outgoing { seq, bytes: &self.slot(seq).bytes, again })
    }

    /// Marks `seq` lost if it is in flight. Says whether it did.
    pub(super) fn mark_lost(&mut self, seq: u64) -> bool {
        if !self.is_sent(seq) || self.slot(seq).fate != Fate::InFlight {
            return false;
        }
        self.slot_mut(seq).fate = Fate::Lost;
        self.lost.push_back(seq);
        true
    }

    /// Marks `seq` as held by the peer beyond a gap; the slot if that is news.
    pub(super) fn mark_sacked(&mut self, seq: u64) -> Option<&WindowSlot> {
        if !self.is_sent(seq) || self.slot(seq).fate == Fate::Sacked {
            return None;
        }
        self.slot_mut(seq).fate = Fate::Sacked;
        Some(self.slot(seq))
    }

    /// Frees all before `seq`, which lies within what was sent; `on_freed` sees each.
    pub(super) fn advance(&mut self, seq: u64, mut on_freed: impl FnMut(u64, &WindowSlot)) {
        debug_assert!(self.una <= seq && seq <= self.unsent);
        for freed in self.una..seq {
            on_freed(freed, self.slot(freed));
            let bytes = std::mem::take(&mut self.slot_mut(freed).bytes);
            self.spare.push(bytes);
        }
        self.una = seq;
        while self.lost.front().is_some_and(|&lost| lost < seq) {
            self.lost.pop_front();
        }
    }

    pub(super) fn slot(&self, seq: u64) -> &WindowSlot {
        &self.slots[(seq % self.slots.len() as u64) as usize]
    }

    fn slot_mut(&mut self, seq: u64) -> &mut WindowSlot {
        let at = (seq % self.slots.len() as u64) as usize;
        &mut self.slots[at]
    }

    const fn is_sent(&self, seq: u64) -> bool {
        self.una <= seq && seq < self.unsent
    }

    fn next_lost(&mut self) -> Option<u64> {
        while let Some(seq) = self.lost.pop_front() {
            if self.is_sent(seq) && self.slot(seq).fate == Fate::Lost {
                return Some(seq);
            }
        }
        None
    }
}
