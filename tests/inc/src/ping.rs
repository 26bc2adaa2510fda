//! Pings of URMA nodes.

use std::net::IpAddr;
use std::time::Duration;

use ubcore_sim::host::ip_eid;
use urma::{
    Completions, Context, CrStatus, Eid, Jetty, JettyCfg, JettyId, JettyRecv, JfcCfg, JfrCfg,
    JfsCfg, NodeCfg, OrderType, PathChoice, RecvWr, Region, RemoteJetty, SegmentAccess, SegmentCfg,
    SendOp, SendWr, TargetKind, TokenPolicy, TpType, TransportMode, WELL_KNOWN_ID,
};

use crate::Network;

const HANG: Duration = Duration::from_secs(30);
const PINGS: u64 = 50;

/// Pings nodes of a network from one at its address 200, and compares what comes back.
///
/// # Panics
/// A node does not answer, or otherwise.
pub fn ping_nodes(network: Network, nodes: impl IntoIterator<Item = IpAddr>) {
    let eid = Some(ip_eid(network.host(100)));
    let cfg = NodeCfg { eid, path: PathChoice::Packets, ..NodeCfg::default() };
    let opened = urma::open_node(cfg).expect("a node");
    nodes.into_iter().for_each(|node| ping(&opened.context, node));
}

fn jetty(context: &Context, completions: &Completions) -> Jetty {
    let (mode, jfc) = (TransportMode::Rm, completions.jfc());
    let recv = JettyRecv::Own { cfg: JfrCfg::new(mode, 16), jfc };
    context.create_jetty(&JettyCfg::new(JfsCfg::new(mode, 16), jfc, recv)).expect("a jetty")
}

/// Sends numbers to what answers pings at a node, and compares what comes back.
fn ping(context: &Context, node: IpAddr) {
    let mut completions = context.create_completions(&JfcCfg::new(64)).expect("completions");
    let mut jetty = jetty(context, &completions);
    let memory = Region::private(4096).expect("memory");
    let local = SegmentCfg::new(SegmentAccess::LOCAL_ONLY);
    let segment = context.register(&memory, &local, None).expect("a segment");
    let mode = TransportMode::Rm;
    let target = context.import_jetty(&RemoteJetty {
        id: JettyId { eid: Eid::from_bytes(ip_eid(node).0), uasid: 0, id: WELL_KNOWN_ID },
        kind: TargetKind::Jetty,
        mode,
        order: OrderType::Default,
        policy: TokenPolicy::None,
        tp: TpType::of(mode),
    });
    let target = target.expect("the node answers");
    for number in 1..=PINGS {
        let dst = [segment.sge(8, 8)];
        jetty.post_recv(&[RecvWr { dst: &dst, user_ctx: 1 }]).expect("room");
        memory.store_u64(0, number).expect("in range");
        let src = [segment.sge(0, 8)];
        jetty.post_send(&[SendWr::new(SendOp::Send { src: &src }, &target, 2)]).expect("room");
        let mut ended = [1, 2].map(|_| {
            let done = completions.wait(Some(HANG)).expect("a device").expect("an answer in time");
            assert_eq!(done.success().expect("well").status, CrStatus::Success);
            done.user_ctx
        });
        ended.sort_unstable();
        assert_eq!((ended, memory.load_u64(8)), ([1, 2], Ok(number)));
    }
}
