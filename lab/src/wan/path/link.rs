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

/// One link with a rate and a delay, a way back with a delay alone.
#[derive(Debug)]
pub(super) struct PathLink {
    forward: VecDeque<Arriving<Forward>>,
    /// Packets that others overtake: time, number, and the packet by number.
    late: BinaryHeap<(Reverse<u64>, Reverse<usize>)>,
    late_packets: Vec<(u32, Forward)>,
    back: VecDeque<Arriving<Back>>,
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
            forward: VecDeque::new(),
            late: BinaryHeap::new(),
            late_packets: Vec::new(),
            back: VecDeque::new(),
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

    /// When and where the next message is taken; the sender takes none before the first time, the receiver none before
    /// the second.
    pub(super) fn next(&self, (sender, receiver): (u64, u64)) -> Option<(u64, LinkEnd)> {
        let back = self.back.front().map(|arriving| (arriving.at.max(sender), LinkEnd::Back));
        let forward = self.forward.front();
        let forward = forward.map(|arriving| (arriving.at.max(receiver), LinkEnd::Forward));
        let late = self.late.peek();
        let late = late.map(|(Reverse(at), _)| ((*at).max(receiver), LinkEnd::Late));
        let first = |a: Option<(u64, LinkEnd)>, b: Option<(u64, LinkEnd)>| match (a, b) {
            (Some(a), Some(b)) => Some(a.min(b)),
            (a, b) => a.or(b),
        };
        first(first(back, forward), late)
    }

    /// The next message of the way back.
    pub(super) fn take_back(&mut self) -> Option<(u32, Back)> {
        self.back.pop_front().map(|arriving| (arriving.tp, arriving.message))
    }

    /// The next message in order.
    pub(super) fn take_forward(&mut self) -> Option<(u32, Forward)> {
        self.forward.pop_front().map(|arriving| (arriving.tp, arriving.message))
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
            self.forward.push_back(Arriving { at, tp, message });
            return;
        }
        let number = self.late_packets.len();
        self.late.push((Reverse(at + late * self.packet_ps + 1), Reverse(number)));
        self.late_packets.push((tp, message));
    }

    /// Puts a message on the way back.
    pub(super) fn put_back(&mut self, now: u64, tp: u32, message: Back) {
        self.back.push_back(Arriving { at: now + self.delay_ps, tp, message });
    }
}
