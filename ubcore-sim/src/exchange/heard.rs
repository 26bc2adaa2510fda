//! Datagrams that the network doubled.
//!
//! *Owns*: the numbers of the last datagrams of one node. *Takes*: numbers. *Gives*: whether one is
//! new. *Must not*: wait for any: datagrams may be lost, and come in any order.

use urma_packet::Psn;

/// What was heard of one node.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Heard {
    newest: Psn,
    /// Bit i: the one i before the newest came.
    seen: u64,
}

impl Heard {
    /// Of a node whose first datagram is `first`.
    pub(super) const fn new(first: Psn) -> Self {
        Self { newest: first, seen: 0 }
    }

    /// Whether `number` did not come before. One further back than is remembered counts as new: a
    /// node that started again begins anywhere.
    pub(super) fn is_new(&mut self, number: Psn) -> bool {
        let ahead = number.distance_from(self.newest);
        let bits = u64::BITS.cast_signed();
        if ahead <= -bits || ahead >= bits {
            *self = Self::new(number);
        } else if ahead > 0 {
            self.newest = number;
            self.seen <<= ahead;
        }
        // Between 0 and 63 now.
        let bit = 1 << self.newest.distance_from(number);
        let is_new = self.seen & bit == 0;
        self.seen |= bit;
        is_new
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_counts_once_in_any_order_and_across_the_wrap() {
        let start = Psn::new(0xff_fffe);
        let mut heard = Heard::new(start);
        let order = [0, 3, 1, 2, 63, 4, 90];
        for number in order {
            assert!(heard.is_new(start.plus(number)), "{number}");
        }
        assert!([90, 63].into_iter().all(|number| !heard.is_new(start.plus(number))));
        assert!(heard.is_new(start.plus(5_000_000)), "another life of the node");
        assert!(heard.is_new(start));
    }
}
