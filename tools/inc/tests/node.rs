//! Ranks that open URMA nodes at their addresses, beside ranks with sockets, as processes: they reduce while their nodes
//! answer pings.
#![forbid(unsafe_code)]

use std::net::IpAddr;
use std::process::Command;
use std::time::Duration;

use inc_world::{Network, Program, RANKS};
use ubcore_sim::host::ip_eid;
use urma::{
    Completions, Context, CrStatus, Eid, Jetty, JettyCfg, JettyId, JettyRecv, JfcCfg, JfrCfg,
    JfsCfg, NodeCfg, OrderType, PathChoice, RecvWr, Region, RemoteJetty, SegmentAccess, SegmentCfg,
    SendOp, SendWr, TargetKind, TokenPolicy, TpType, TransportMode, WELL_KNOWN_ID,
};

const SILENCE: Duration = Duration::from_secs(5);
const HANG: Duration = Duration::from_secs(30);
const PINGS: u64 = 50;

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

#[test]
fn ranks_reduce_at_nodes_that_answer_pings_meanwhile() {
    let network = Network(47, 5);
    let controller = network.start_controller(SILENCE);
    let _switches = network.start_switches(controller.switches());
    let host = |rank: u8| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_inc-host"));
        command
            .env("URMA_PATH", "packets")
            .args([RANKS.to_string(), "127.0.0.1".into(), rank.to_string()])
            .args(["--address", &network.host(rank).to_string(), "--group", "nodes"])
            .args(["--controller-port", &controller.hosts().port().to_string()])
            .args(["--count", "20000", "--times", "200", "--type", "f32"])
            .args((rank < 2).then_some("--node"));
        Program::spawn(&mut command)
    };
    let hosts: Vec<_> = (0..RANKS).map(host).collect();
    let eid = Some(ip_eid(network.host(100)));
    let cfg = NodeCfg { eid, path: PathChoice::Packets, ..NodeCfg::default() };
    let opened = urma::open_node(cfg).expect("a node");
    for rank in 0..2 {
        ping(&opened.context, network.host(rank));
    }
    for (rank, host) in hosts.into_iter().enumerate() {
        let output = host.output();
        let (text, errors) =
            (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
        assert!(output.status.success(), "rank {rank}: {errors}");
        assert!(text.contains("200 times: right"), "rank {rank}: {text}");
        assert!(!text.contains("by the ranks' own programs"), "rank {rank}: {text}");
    }
}
