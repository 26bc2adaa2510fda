//! Which packet is sent next: peers in round-robin order, and answers to nodes that are not known.
//!
//! *Takes*: room for one packet. *Gives*: datagrams, sealed. *Must not*: let answers or peers wait for
//! the others without a bound.

use std::ops::Bound;

use udma_abi::Nanos;
use urma_packet::ROCE_PORT;

use super::{TpEndpoint, datagram::flow};
use crate::ports::{NodeAddr, Transmit};

/// Of this many packets one goes to a known node, when answers to unknown nodes wait as well.
const ANSWERS_IN_A_ROW: u64 = 8;

impl TpEndpoint {
    /// The next packet to send, at the front of `buf`.
    pub(crate) fn poll_transmit(&mut self, now: Nanos, buf: &mut [u8]) -> Option<Transmit> {
        // To look at all nodes costs more than an answer: not before each of them.
        let found = if self.transmitted.is_multiple_of(ANSWERS_IN_A_ROW) {
            self.poll_peers(now, buf).or_else(|| self.replies.poll(buf))
        } else {
            self.replies.poll(buf).or_else(|| self.poll_peers(now, buf))
        };
        let (to, len) = found?;
        flow(self.cfg.eid, to).seal(buf.get_mut(..len)?).ok()?;
        self.transmitted += 1;
        Some(Transmit { to, source_port: ROCE_PORT, len })
    }

    fn poll_peers(&mut self, now: Nanos, buf: &mut [u8]) -> Option<(NodeAddr, usize)> {
        let Self { tps, pool, last_sent, .. } = self;
        let after = (Bound::Excluded(*last_sent), Bound::Unbounded);
        let up_to = (Bound::Unbounded, Bound::Included(*last_sent));
        let found = [after, up_to].into_iter().find_map(|range| {
            let mut peers = tps.range_mut(range);
            peers.find_map(|(peer, tp)| Some((*peer, tp.poll_transmit(now, buf, pool)?)))
        })?;
        *last_sent = found.0;
        Some(found)
    }
}
