//! How many requests a queue has on the way over a long path, in virtual time.

use ubcore_sim::sim::{FabricCfg, HostSharing};
use urma_core::{CrStatus, JfsCfg, TransportMode};

use super::statuses::{Kind, Pair};

const ROUND_TRIP_NS: u64 = 10_000_000;
const DEPTH: u32 = 512;

/// A full queue takes one round trip, and what it takes to send 512 requests and their answers.
#[test]
fn a_queue_has_as_many_requests_on_the_way_as_it_is_deep() {
    for kind in [Kind::Write, Kind::Read, Kind::FetchAdd] {
        let mut cfg = FabricCfg::new(7, 2, HostSharing::Packets);
        cfg.faults.delay_ns = ROUND_TRIP_NS / 2;
        let mut pair = Pair::new(cfg, JfsCfg::new(TransportMode::Rm, DEPTH));
        pair.post_list(kind, 0..=0);
        assert_eq!(pair.done().status, CrStatus::Success, "the paths are open");
        let start = pair.fabric.now();
        pair.post_list(kind, 1..=u64::from(DEPTH));
        let done = pair.all_done(DEPTH as usize);
        let took = pair.fabric.now() - start;
        let order: Vec<u64> = done.iter().map(|done| done.user_ctx).collect();
        assert!(order.iter().copied().eq(1..=u64::from(DEPTH)), "{kind:?}: {order:?}");
        assert!(done.iter().all(|done| done.status == CrStatus::Success), "{kind:?}");
        assert!(took < 2 * ROUND_TRIP_NS, "{kind:?}: {took} ns for {DEPTH} requests");
    }
}
