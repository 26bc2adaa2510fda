//! Finds out for the log why requests got no acknowledgement.
//!
//! *Owns*: when which peer was asked about. *Takes*: the EID of a peer whose requests timed out. *Gives*: one line in
//! the log, from a thread of its own. *Must not*: block the background thread; ask more often than [`INTERVAL`], or
//! about two peers at once; be used for a decision.

use std::{sync::Arc, thread::Builder, time::Duration};

use udma_abi::{Nanos, RawEid};
use urma_mem::sync::{AtomicBool, Ordering};

use super::{
    eid_ip,
    obstacle::{FailedAttempt, find},
};

/// Peers that were asked about, and whether a thread is asking now.
#[derive(Debug, Default)]
pub(super) struct Inquiry {
    /// EIDs with the time of the latest question, the oldest first.
    asked: Vec<(RawEid, Nanos)>,
    is_asking: Arc<AtomicBool>,
}

impl Inquiry {
    /// Starts a search for the reason, after requests of node `own` to `peer` got no acknowledgement, unless one was
    /// started just now.
    pub(super) fn ask(&mut self, now: Nanos, (own, peer): (RawEid, RawEid), is_packets: bool) {
        if !self.is_due(now, peer) {
            return;
        }
        if !is_packets {
            say(peer, "it is on this host: its process is stopped, or had no processor");
            return;
        }
        // One question at a time: a host that lost its network loses all of its peers at once.
        if self.is_asking.swap(true, Ordering::AcqRel) {
            say(peer, "the reason is looked for at another peer");
            return;
        }
        let (pid, is_asking) = (std::process::id(), Arc::clone(&self.is_asking));
        let ask = move || {
            say(peer, &find(own, pid, peer, FailedAttempt::Silence).to_string());
            is_asking.store(false, Ordering::Release);
        };
        if let Err(error) = Builder::new().name("urma-why".to_owned()).spawn(ask) {
            self.is_asking.store(false, Ordering::Release);
            say(peer, &format!("the reason cannot be looked for: {error}"));
        }
    }

    /// Whether a question about `peer` is due; it counts as asked then.
    fn is_due(&mut self, now: Nanos, peer: RawEid) -> bool {
        self.asked.retain(|(_, at)| now.saturating_sub(*at) < INTERVAL_NS);
        if self.asked.iter().any(|(eid, _)| *eid == peer) {
            return false;
        }
        if self.asked.len() == ASKED_MAX {
            self.asked.remove(0);
        }
        self.asked.push((peer, now));
        true
    }
}

fn say(peer: RawEid, why: &str) {
    let peer = eid_ip(peer);
    tracing::warn!(target: "urma", "requests to node {peer} ended without an acknowledgement (status 9): {why}");
}

/// Time between two questions about a peer.
const INTERVAL: Duration = Duration::from_secs(30);
const INTERVAL_NS: Nanos = INTERVAL.as_secs() * 1_000_000_000;
/// Peers that are remembered.
const ASKED_MAX: usize = 64;

#[cfg(test)]
mod tests {
    use super::*;

    fn eid(last: u8) -> RawEid {
        let mut bytes = [0; 16];
        bytes[15] = last;
        RawEid(bytes)
    }

    #[test]
    fn a_peer_is_asked_about_once_in_the_interval() {
        let mut inquiry = Inquiry::default();
        assert!(inquiry.is_due(5, eid(1)) && inquiry.is_due(5, eid(2)));
        assert!(!inquiry.is_due(5 + INTERVAL_NS - 1, eid(1)));
        assert!(inquiry.is_due(5 + INTERVAL_NS, eid(1)));
        assert!(!inquiry.is_due(6 + INTERVAL_NS, eid(1)));
    }

    #[test]
    fn so_many_peers_are_remembered_at_most() {
        let mut inquiry = Inquiry::default();
        for last in 0..=200 {
            assert!(inquiry.is_due(7, eid(last)));
            assert!(inquiry.asked.len() <= ASKED_MAX);
        }
        assert!(!inquiry.is_due(8, eid(200)) && inquiry.is_due(8, eid(0)));
    }
}
