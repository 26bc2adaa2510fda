//! Packets that a receiver keeps for the code of repair packets, and the repair packets that came.
//!
//! - owns: packets of data by sequence, as they were sent first; the repair packets of one range.
//! - takes: packets, marks in sequences. gives: packets that never came. must not: decide which were lost.
//!
//! Nothing is kept before the peer sent repair packets once, nor long after the last ones.

use std::collections::VecDeque;

use urma_mem::gf256::add_scaled;
use urma_packet::{Psn, Tpn, code_word, packet_of_word};
use urma_recovery::RepairMark;

use super::code::{factor, solve};

/// Packets after the last repair packet for which others are stored.
const KEPT_PACKETS: u64 = 1 << 17;
/// Most bytes that are stored, besides a range that waits.
const KEPT_BYTES: usize = 64 << 20;

/// The repair packets of a peer contradict its packets.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Contradiction;

/// One repair packet: which one, the first packet that it covers, its word.
#[derive(Debug)]
struct RepairWord {
    mark: RepairMark,
    begin: u64,
    word: Vec<u8>,
}

/// Storage of one direction of a TP.
#[derive(Debug)]
pub(super) struct RepairStore {
    /// By sequence from `first` on; empty: it did not arrive.
    packets: VecDeque<Vec<u8>>,
    first: u64,
    bytes: usize,
    spare: Vec<Vec<u8>>,
    /// All packets before this one are stored.
    until: u64,
    window: u64,
    words: Vec<RepairWord>,
}

impl RepairStore {
    /// Creates a store for a receiver whose first missing packet is `edge` and which takes `window` packets from
    /// there on: storing begins beyond all that may have arrived.
    pub(super) const fn new(edge: u64, window: u32) -> Self {
        let window = window as u64;
        Self {
            packets: VecDeque::new(),
            first: edge + window,
            bytes: 0,
            spare: Vec::new(),
            until: 0,
            window,
            words: Vec::new(),
        }
    }

    /// Notes that the peer sends repair packets.
    pub(super) const fn on_repair(&mut self, edge: u64) {
        self.until = edge + self.window + KEPT_PACKETS;
    }

    /// Whether it is no longer useful: no repair packets have come for long, and none wait.
    pub(super) fn is_over(&self, edge: u64) -> bool {
        self.until < edge && self.begin_of_wait(edge).is_none()
    }

    /// Stores packet `seq`, which `write` writes; `edge` is the first missing one.
    pub(super) fn keep(&mut self, (edge, seq): (u64, u64), write: impl FnOnce(&mut Vec<u8>)) {
        if seq < self.first {
            return;
        }
        let mut packet = self.spare.pop().unwrap_or_default();
        packet.clear();
        write(&mut packet);
        self.put(seq, packet);
        let needed = self.begin_of_wait(edge).unwrap_or(u64::MAX);
        let top = self.first + self.packets.len() as u64;
        let is_old = |first| first + self.window < top;
        while self.first < needed && (is_old(self.first) || self.bytes > KEPT_BYTES) {
            let Some(packet) = self.packets.pop_front() else { break };
            self.first += 1;
            self.bytes -= packet.len();
            // A few buffers are enough for packets in order.
            if !packet.is_empty() && self.spare.len() < 64 {
                self.spare.push(packet);
            }
        }
    }

    fn put(&mut self, seq: u64, packet: Vec<u8>) {
        let at = seq.checked_sub(self.first).and_then(|at| usize::try_from(at).ok());
        let Some(at) = at else { return };
        if at >= self.packets.len() {
            self.packets.resize_with(at + 1, Vec::new);
        }
        self.bytes += packet.len();
        self.bytes -= std::mem::replace(&mut self.packets[at], packet).len();
    }

    /// First packet of the waiting range, if something of it may be missing.
    fn begin_of_wait(&self, edge: u64) -> Option<u64> {
        let waiting = self.words.first().filter(|word| word.mark.end > edge);
        waiting.and_then(|_| self.words.iter().map(|word| word.begin).min())
    }

    fn kept(&self, seq: u64) -> Option<&[u8]> {
        let at = usize::try_from(seq.checked_sub(self.first)?).ok()?;
        self.packets.get(at).map(Vec::as_slice).filter(|packet| !packet.is_empty())
    }

    /// Takes a repair packet that covers its group from `begin` on; `false`, and no change: it is useless.
    pub(super) fn take(&mut self, mark: &RepairMark, begin: u64, word: &[u8]) -> bool {
        let is_other = self.words.first().is_some_and(|first| first.mark.range() != mark.range());
        let is_known = || self.words.iter().any(|known| known.mark == *mark);
        let has_room = self.words.len() as u64 <= self.window;
        if begin < self.first || !(is_other || (has_room && !is_known())) {
            return false;
        }
        if is_other {
            self.words.clear();
        }
        self.words.push(RepairWord { mark: *mark, begin, word: word.to_vec() });
        true
    }

    /// Restores the packets `missing` of one range, in rising order; no group lacks more packets than repair packets
    /// came for it. `edge` was the first missing one. They count as stored from now on.
    pub(super) fn repair(
        &mut self,
        (edge, missing): (u64, &[u64]),
        (dest, psn): (Tpn, impl Fn(u64) -> Psn),
    ) -> Result<Vec<(u64, Vec<u8>)>, Contradiction> {
        let mut repaired = Vec::with_capacity(missing.len());
        let range = self.words.first().map(|word| word.mark.range()).ok_or(Contradiction)?;
        for group in 0..range.groups {
            let of_group = RepairMark { group, ..range }.members(edge);
            let lacks: Vec<(u8, u64)> =
                of_group.filter(|(_, seq)| missing.binary_search(seq).is_ok()).collect();
            if lacks.is_empty() {
                continue;
            }
            let members: Vec<u8> = lacks.iter().map(|(member, _)| *member).collect();
            let words = self.without_kept(group, edge, &lacks)?;
            for ((_, seq), word) in lacks.iter().zip(solve(words, &members).ok_or(Contradiction)?) {
                let packet = packet_of_word(&word, dest, psn(*seq)).ok_or(Contradiction)?;
                repaired.push((*seq, packet));
            }
        }
        if repaired.len() != missing.len() {
            return Err(Contradiction);
        }
        for (seq, packet) in &repaired {
            self.put(*seq, packet.clone());
        }
        repaired.sort_unstable_by_key(|(seq, _)| *seq);
        Ok(repaired)
    }

    /// As many words of the group as it lacks packets, without the parts of those that arrived.
    fn without_kept(
        &self,
        group: u32,
        edge: u64,
        lacks: &[(u8, u64)],
    ) -> Result<Vec<(u8, Vec<u8>)>, Contradiction> {
        let of_group = || self.words.iter().filter(|word| word.mark.group == group);
        let longest = of_group().map(|word| word.word.len()).max().unwrap_or(0);
        let mut words = Vec::with_capacity(lacks.len());
        for RepairWord { mark, begin, word } in of_group().take(lacks.len()) {
            let mut sum = word.clone();
            sum.resize(longest, 0);
            for (member, seq) in mark.members(*begin) {
                match self.kept(seq) {
                    Some(packet) => {
                        let (head, body) = code_word(packet).ok_or(Contradiction)?;
                        if head.len() + body.len() > word.len() {
                            return Err(Contradiction);
                        }
                        let part = factor(mark.number, member);
                        add_scaled(&mut sum[..head.len()], &head, part);
                        add_scaled(&mut sum[head.len()..], body, part);
                    }
                    None if seq >= edge && lacks.contains(&(member, seq)) => {}
                    None => return Err(Contradiction),
                }
            }
            words.push((mark.number, sum));
        }
        Ok(words)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const WINDOW: u32 = 16;

    fn keep(store: &mut RepairStore, edge: u64, seq: u64) {
        store.keep((edge, seq), |bytes| bytes.resize(20, 1));
    }

    fn mark(start: u64, end: u64, number: u8) -> RepairMark {
        RepairMark { start, end, groups: 1, group: 0, number }
    }

    #[test]
    fn a_window_is_kept_from_where_all_of_it_is() {
        let mut store = RepairStore::new(100, WINDOW);
        (100..200).for_each(|seq| keep(&mut store, seq + 1, seq));
        assert_eq!((store.first, store.kept(199).is_some()), (184, true));
        assert_eq!((store.kept(183), store.kept(200)), (None, None));
        assert_eq!(store.bytes, 16 * 20);
        // What came before it kept anything is of no use.
        assert!(!store.take(&mark(170, 200, 0), 183, &[1]));
        assert!(store.take(&mark(170, 200, 0), 184, &[1]));
    }

    #[test]
    fn a_range_that_waits_is_kept() {
        let mut store = RepairStore::new(0, WINDOW);
        // Packet 38 is missing.
        (0..48).filter(|seq| *seq != 38).for_each(|seq| keep(&mut store, seq.min(38), seq));
        assert!(store.take(&mark(32, 40, 0), 32, &[1]));
        (48..54).for_each(|seq| keep(&mut store, 38, seq));
        assert_eq!(store.first, 32);
        // Behind it, it is not.
        (54..80).for_each(|seq| keep(&mut store, seq, seq));
        assert_eq!(store.first, 64);
    }

    #[test]
    fn repair_packets_of_another_range_replace_those_that_came_if_they_are_of_use() {
        let mut store = RepairStore::new(0, WINDOW);
        (16..32).for_each(|seq| keep(&mut store, 16, seq));
        let word = |store: &RepairStore| store.words.len();
        assert!(store.take(&mark(16, 24, 0), 16, &[1]) && store.take(&mark(16, 24, 1), 16, &[1]));
        assert!(!store.take(&mark(16, 24, 1), 16, &[1]), "the same again");
        assert!(!store.take(&mark(10, 30, 0), 10, &[1]), "of what was not kept");
        assert_eq!(word(&store), 2);
        assert!(store.take(&mark(18, 30, 0), 18, &[1]));
        assert_eq!(word(&store), 1);
        for number in 1..=u8::MAX {
            store.take(&mark(18, 30, number), 18, &[1]);
        }
        assert_eq!(word(&store), 17, "no more than a window of them");
    }
}
