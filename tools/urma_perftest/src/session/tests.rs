//! Objects of both sides in one process: their numbers, what is shared, and what a wrong peer is refused for.

use clap::Parser;

use super::*;
use crate::cli::PerftestCli;

fn plan(line: &str) -> Plan {
    let words = std::iter::once("urma_perftest").chain(line.split_whitespace());
    Plan::of(&PerftestCli::try_parse_from(words).unwrap()).unwrap()
}

/// One side of `line` on a node of its own.
fn side(line: &str) -> (Plan, Side) {
    let plan = plan(line);
    let opened = urma::open_node(urma::NodeCfg::default()).unwrap();
    let side = Side::open(opened.context, &plan).unwrap();
    (plan, side)
}

fn endpoint(line: &str) -> Endpoint {
    let (plan, side) = side(line);
    side.endpoint(&plan.test)
}

#[test]
fn queues_have_the_numbers_that_were_asked_for() {
    let named = endpoint("send_bw -J 3 --jetty_id 2000");
    assert_eq!((named.queues, named.sources), (vec![2000, 2001, 2002], vec![2000, 2001, 2002]));
    let any = endpoint("send_bw -J 3");
    assert!(any.queues == any.sources && any.queues.iter().all(|id| *id != 0), "{any:?}");
    // Two JFSs for each JFR, whose numbers are those that were asked for.
    let simplex = endpoint("send_bw -b -J 4 --jettys_pre_jfr 2 --jetty_id 2100");
    assert_eq!(simplex.queues, [2100, 2100, 2101, 2101]);
    let mut sources = simplex.sources.clone();
    sources.sort_unstable();
    sources.dedup();
    assert_eq!(sources.len(), 4, "{simplex:?}");
    assert!(sources.iter().all(|id| !simplex.queues.contains(id)), "{simplex:?}");
}

#[test]
fn receive_queues_are_shared_as_was_asked_for() {
    for (line, wanted) in [
        ("send_bw -J 6", 1),
        ("send_bw -J 6 --jettys_pre_jfr 2", 3),
        ("send_bw -J 6 -j false", 0),
        ("send_bw -J 6 -p 1", 0),
        ("send_bw -J 6 -b --jettys_pre_jfr 3", 2),
    ] {
        let (plan, mut side) = side(line);
        assert_eq!(side.ends.jfrs.len(), wanted, "{line}");
        let of_lanes: Vec<usize> = (0..6).map(|lane| shared_jfr(&plan.test, lane)).collect();
        let of = [[0; 6], [0; 6], [0, 0, 0, 1, 1, 1], [0, 0, 1, 1, 2, 2]][wanted];
        assert_eq!(of_lanes, of, "{line}");
        let segment = &side.segments[0];
        let sge = [urma::LocalSge { segment, addr: segment.va(), len: 8 }];
        let receive = [RecvWr { dst: &sge, user_ctx: 1 }];
        side.ends.post_recv(0, &receive).unwrap();
        if line.contains("-b") {
            let refused = side.ends.post_recv(wanted, &receive).unwrap_err().to_string();
            assert!(refused.contains("a JFS does not receive"), "{refused}");
        }
    }
}

#[test]
fn buffers_and_tokens_are_those_of_the_options() {
    let plain = endpoint("write_bw -s 4096");
    assert_eq!((plain.queue_token, plain.segments.len()), (None, 1));
    assert!(plain.segments[0].token.is_none() && plain.segments[0].va != 0);
    let guarded = endpoint("write_bw -s 4096 -J 3 --seg_pre_jetty -K 1");
    assert_eq!(guarded.segments.len(), 3);
    assert!(guarded.segments.iter().all(|one| one.token == guarded.queue_token), "{guarded:?}");
    assert!(guarded.queue_token.is_some());
    let mut ids: Vec<u32> = guarded.segments.iter().map(|one| one.token_id).collect();
    ids.dedup();
    assert_eq!(ids.len(), 3, "each is a segment of its own: {guarded:?}");
    let (first, second) = (&guarded.segments[0], &guarded.segments[1]);
    assert_eq!((first.va, first.len), (second.va, second.len), "of the same memory");
}

#[test]
fn a_peer_that_does_not_fit_is_refused() {
    let refused = |line: &str, spoil: &dyn Fn(&mut Endpoint)| {
        let (plan, here) = side(line);
        let (_, there) = side("send_bw -J 2");
        let mut peer = there.endpoint(&plan.test);
        spoil(&mut peer);
        here.connect(&plan, &peer).map(|_| ()).unwrap_err().to_string()
    };
    for (line, spoil, word) in [
        (
            "send_bw -J 2",
            &(|peer: &mut Endpoint| peer.eid = "x".to_owned()) as &dyn Fn(&mut Endpoint),
            "the peer's EID \"x\"",
        ),
        ("send_bw -J 2", &|peer| peer.segments.clear(), "another buffer"),
        ("send_bw -J 2", &|peer| peer.segments.push(peer.segments[0]), "another buffer"),
        ("send_bw -J 2", &|peer| peer.segments[0].len -= 64, "another buffer"),
        ("send_bw -J 2", &|peer| peer.queues.truncate(1), "the peer has 1 queues, this side 2"),
        ("send_bw -J 2", &|peer| peer.sources.truncate(1), "the peer has 1 queues, this side 2"),
        ("send_bw -J 2 --dip 127.99.1.1", &|_| (), "--dip asks for 127.99.1.1"),
        ("send_bw -J 2 --path packets", &|_| (), "--path asks for Packets"),
    ] {
        let why = refused(line, spoil);
        assert!(why.contains(word), "{line}: {why}");
    }
}

#[test]
fn sides_that_fit_are_connected_lane_by_lane() {
    for line in [
        "send_bw -J 3",
        "send_bw -J 3 -p 1",
        "write_bw -J 3 --seg_pre_jetty -K 1",
        "send_bw -J 3 -b",
    ] {
        let ((plan, here), (_, there)) = (side(line), side(line));
        let (mine, peer) = (here.endpoint(&plan.test), there.endpoint(&plan.test));
        let session = here.connect(&plan, &peer).unwrap();
        assert_eq!(session.sources, peer.sources, "{line}");
        let targets = session.objects.targets.iter().map(|target| target.target().id.id);
        assert_eq!(targets.collect::<Vec<_>>(), peer.queues, "{line}");
        for lane in 0..3 {
            // The last one serves the lanes behind it, too.
            let at = lane.min(peer.segments.len() - 1);
            assert_eq!(session.objects.remote(lane).ubva().va, peer.segments[at].va, "{line}");
            let id = session.objects.segment(lane).token_id().value();
            assert_eq!(id, mine.segments[at].token_id, "{line}");
        }
        assert_eq!(session.objects.path(), PathKind::SameHost, "{line}");
        assert!(session.counters().unwrap().len() > 10);
    }
}

#[test]
fn a_path_is_the_one_that_was_asked_for() {
    use PathKind::{Local, Packets, SameHost};
    for (asked, fits) in [
        (PathArg::Auto, &[Local, SameHost, Packets][..]),
        (PathArg::SameHost, &[Local, SameHost]),
        (PathArg::Packets, &[Packets]),
    ] {
        for found in [Local, SameHost, Packets] {
            assert_eq!(
                check_path(asked, found).is_ok(),
                fits.contains(&found),
                "{asked:?} {found:?}"
            );
        }
    }
}
