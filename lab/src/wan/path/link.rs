//! The link and the way back: what is on them, and when it arrives.
//!
//! - owns: messages under way, when the link is free, bytes on it. takes: messages. gives: them again at their time.
//! - must not: interpret messages.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};

use urma_recovery::{AckFeedback, LossReport, RepairMark, Sending, TailMark};

/// Something on the link.
#[derive(Clone, Copy, Debug)]
pub(super) enum Forward {
    /// A packet, and whether it asks for an acknowledgement at once.
    Data { packet: Sending, ask: bool },
    /// One of the packets that protect a range.
    Repair(RepairMark),
    /// What the sender says when it has nothing to send.
    Tail(TailMark),
}

/// Something on the way back.
#[derive(Debug)]
pub(super) enum Back {
    Ack(AckFeedback),
    Report(Box<LossReport>),
}

/// A message with the time of its arrival, in ps, and its TP.
#[derive(Debug)]
pub(super) struct Arriving<M> {
    pub(super) at: u64,
    pub(super) tp: u32,
    pub(super) message: M,
}

/// Where the next message arrives.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(super) enum LinkEnd {
    Back,
    Forward,
    Late,
}

/// One direction. As a node with faults on its link delays packets itself, an end lets those go that are due when it is not
/// in the middle of something; the other end takes what came when it is free.
#[derive(Debug)]
struct Way<M> {
    flying: VecDeque<Arriving<M>>,
    came: VecDeque<Arriving<M>>,
}

impl<M> Way<M> {
    const fn new() -> Self {
        Self { flying: VecDeque::new(), came: VecDeque::new() }
    }

    /// When something happens next, if the ends are busy until these times.
    fn next(&self, from: u64, to: u64) -> Option<u64> {
        let flying = self.flying.front().map(|arriving| arriving.at.max(from));
        let came = self.came.front().map(|arriving| arriving.at.max(to));
        match (flying, came) {
            (Some(flying), Some(came)) => Some(flying.min(came)),
            (flying, came) => flying.or(came),
        }
    }

    /// The next message that the other end takes at `now`.
    fn take(&mut self, now: u64, (from, to): (u64, u64)) -> Option<(u32, M)> {
        while from <= now && self.flying.front().is_some_and(|arriving| arriving.at <= now) {
            self.came.extend(self.flying.pop_front());
        }
        if to > now {
            return None;
        }
        self.came.pop_front().map(|arriving| (arriving.tp, arriving.message))
    }
}

/// One link with a rate and a delay, a way back with a delay alone.
#[derive(Debug)]
pub(super) struct PathLink {
    forward: Way<Forward>,
    /// Packets that others overtake: time, number, and the packet by number.
    late: BinaryHeap<(Reverse<u64>, Reverse<usize>)>,
    late_packets: Vec<(u32, Forward)>,
    back: Way<Back>,
    delay_ps: u64,
    packet_ps: u64,
    packet_bytes: u64,
    free_at: u64,
    wire_bytes: u64,
}

impl PathLink {
    /// A free link with this one-way delay, on which a packet of `packet_bytes` takes `packet_ps`.
    pub(super) const fn new(delay_ps: u64, packet_bytes: u64, packet_ps: u64) -> Self {
        Self {
            forward: Way::new(),
            late: BinaryHeap::new(),
            late_packets: Vec::new(),
            back: Way::new(),
            delay_ps,
            packet_ps,
            packet_bytes,
            free_at: 0,
            wire_bytes: 0,
        }
    }

    /// When the last bit that was put on it is on it.
    pub(super) const fn free_at(&self) -> u64 {
        self.free_at
    }

    /// Bytes put on it.
    pub(super) const fn wire_bytes(&self) -> u64 {
        self.wire_bytes
    }

    /// When and where something happens next, if sender and receiver are busy until these times.
    pub(super) fn next(&self, (sender, receiver): (u64, u64)) -> Option<(u64, LinkEnd)> {
        let back = self.back.next(receiver, sender).map(|at| (at, LinkEnd::Back));
        let forward = self.forward.next(sender, receiver).map(|at| (at, LinkEnd::Forward));
        let late = self.late.peek();
        let late = late.map(|(Reverse(at), _)| ((*at).max(receiver), LinkEnd::Late));
        let first = |a: Option<(u64, LinkEnd)>, b: Option<(u64, LinkEnd)>| match (a, b) {
            (Some(a), Some(b)) => Some(a.min(b)),
            (a, b) => a.or(b),
        };
        first(first(back, forward), late)
    }

    /// The next message of the way back, if the sender is free at `now`.
    pub(super) fn take_back(
        &mut self,
        now: u64,
        (sender, receiver): (u64, u64),
    ) -> Option<(u32, Back)> {
        self.back.take(now, (receiver, sender))
    }

    /// The next message in order, if the receiver is free at `now`.
    pub(super) fn take_forward(&mut self, now: u64, busy: (u64, u64)) -> Option<(u32, Forward)> {
        self.forward.take(now, busy)
    }

    /// The next packet that others overtook.
    pub(super) fn take_late(&mut self) -> Option<(u32, Forward)> {
        let (_, Reverse(number)) = self.late.pop()?;
        Some(self.late_packets[number])
    }

    /// Puts bytes on the link that nothing comes of.
    pub(super) fn occupy(&mut self, now: u64, bytes: u64) -> u64 {
        self.wire_bytes += bytes;
        let begin = self.free_at.max(now);
        self.free_at = begin + self.packet_ps * bytes / self.packet_bytes;
        self.free_at
    }

    /// Puts a message on the link; it arrives `late` packets later than in order.
    pub(super) fn put(&mut self, now: u64, (tp, message): (u32, Forward), bytes: u64, late: u64) {
        let at = self.occupy(now, bytes) + self.delay_ps;
        if late == 0 {
            self.forward.flying.push_back(Arriving { at, tp, message });
            return;
        }
        let number = self.late_packets.len();
        self.late.push((Reverse(at + late * self.packet_ps + 1), Reverse(number)));
        self.late_packets.push((tp, message));
    }

    /// Puts a message on the way back.
    pub(super) fn put_back(&mut self, now: u64, tp: u32, message: Back) {
        self.back.flying.push_back(Arriving { at: now + self.delay_ps, tp, message });
    }
}
