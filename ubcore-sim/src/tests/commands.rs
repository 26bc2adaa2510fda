//! Commands that break a rule: each is refused by its own check.

use udma_abi::cmd::{Access, CmdQueueKind, Command, CreateQueue, Mode, RqArgs, SqArgs};
use udma_abi::sqe::BLOCK_LEN;
use udma_abi::{CmdStatus, Sge};

use super::{Bench, BenchJfc, BenchQueue, pair};
use crate::context::tables::LOADS_ONLY;
use crate::limits;

/// A JFR with its arguments.
fn jfr(b: &mut Bench, jfc: &BenchJfc, mode: Mode) -> BenchQueue {
    b.jetty(2, jfc, |args| {
        *args = CreateQueue { kind: CmdQueueKind::Jfr, sq: None, mode, ..*args };
    })
}

#[test]
fn a_queue_is_checked_before_it_is_made() {
    let (mut a, _b) = pair();
    let jfc = a.jfc(4);
    let mut good = None;
    let jetty = a.jetty(4, &jfc, |args| good = Some(*args));
    let good = good.unwrap();
    let (sq, rq) = (good.sq.unwrap(), good.rq.unwrap());
    let sq_with = |sq: SqArgs| CreateQueue { sq: Some(sq), ..good };
    let rq_with = |rq: RqArgs| CreateQueue { rq: Some(rq), ..good };
    // Memory for one ring more than fits the index of an entry.
    let blocks_log2 = limits::SQ_BLOCKS_LOG2 + 1;
    let (_, base) = a.map(BLOCK_LEN << blocks_log2);
    let (_, odd) = a.map(BLOCK_LEN << (sq.blocks_log2 + 1));
    let other_kind = jetty.id;
    let other_mode = jfr(&mut a, &jfc, Mode::Um).id;
    let sharing = |shared_jfr| CreateQueue { rq: None, shared_jfr, ..good };
    let refused = [
        ("send ring too long", sq_with(SqArgs { base, blocks_log2, ..sq }), CmdStatus::Invalid),
        ("send ring off", sq_with(SqArgs { base: odd + 8, ..sq }), CmdStatus::Invalid),
        ("receive ring off", rq_with(RqArgs { base: odd + 8, ..rq }), CmdStatus::Invalid),
        ("record off", CreateQueue { record: odd + 8, ..good }, CmdStatus::Invalid),
        ("no JFR", sharing(other_kind), CmdStatus::Invalid),
        ("JFR of another mode", sharing(other_mode), CmdStatus::Invalid),
        ("JFR that is not there", sharing(999), CmdStatus::NotFound),
    ];
    for (name, args, status) in refused {
        assert_eq!(a.command(Command::CreateQueue(args)).status, status, "{name}");
    }
    let fits = [sq_with(SqArgs { base: odd, ..sq }), rq_with(RqArgs { base: odd, ..rq })];
    for args in fits.into_iter().chain([CreateQueue { record: odd, ..good }]) {
        a.ok(Command::CreateQueue(args));
    }
}

#[test]
fn a_receive_queue_in_use_stays_and_one_that_leaves_is_not_shared() {
    let (mut a, _b) = pair();
    // Room for one completion: the second flushed receive of the queue keeps it from leaving.
    let (roomy, tight) = (a.jfc(4), a.jfc(0));
    let mut shared = jfr(&mut a, &tight, Mode::Rm);
    let id = shared.id;
    let sharing = |args: &mut CreateQueue| {
        *args = CreateQueue { rq: None, shared_jfr: id, ..*args };
    };
    let jetty = a.jetty(4, &roomy, sharing);
    assert_eq!(a.command(Command::DestroyQueue { id }).status, CmdStatus::InUse);
    let mut args = None;
    let other = a.jetty(4, &roomy, |found| {
        sharing(found);
        args = Some(*found);
    });
    for jetty in [jetty.id, other.id] {
        a.ok(Command::DestroyQueue { id: jetty });
    }
    for _ in 0..2 {
        a.post_recv(&mut shared, &[Sge::default()]);
    }
    a.submit(Command::DestroyQueue { id });
    assert!(a.response().is_none(), "it waits for room");
    a.submit(Command::CreateQueue(args.unwrap()));
    assert_eq!(a.response().map(|found| found.status), Some(CmdStatus::Invalid));
}

#[test]
fn a_connection_is_bound_over_a_living_reliable_path_only() {
    let (mut a, b) = pair();
    let jfc = a.jfc(4);
    let connected = a.jetty(4, &jfc, |args| args.mode = Mode::Rc).id;
    let plain = a.jetty(4, &jfc, |_| {}).id;
    let unreliable = a.ok32(Command::Connect { eid: b.eid(), mode: Mode::Um });
    let tpn = a.connect(b.eid());
    let bind = |a: &mut Bench, id, tpn| {
        a.command(Command::Bind { id, tpn, remote_id: 1024, psns: None }).status
    };
    assert_eq!(bind(&mut a, plain, tpn), CmdStatus::Invalid);
    assert_eq!(bind(&mut a, connected, unreliable), CmdStatus::NotFound);
    assert_eq!(bind(&mut a, connected, tpn), CmdStatus::Ok);
    a.ok(Command::Unbind { id: connected });
    a.dev.on_peer_gone(a.now, b.eid());
    assert_eq!(bind(&mut a, connected, tpn), CmdStatus::NotFound);
}

#[test]
fn memory_is_mapped_as_far_as_its_living_owner_grants_it() {
    let (mut a, mut b) = pair();
    let (own, peer) = (a.connect(a.eid()), a.connect(b.eid()));
    for (access, mark) in [(Access::READ, LOADS_ONLY), (Access::READ | Access::WRITE, 0)] {
        for tpn in [own, peer] {
            let node = if tpn == own { &mut a } else { &mut b };
            let mem = node.alloc(4096);
            let seg = node.seg_of(mem, access);
            let (token_id, token_value) = (seg.token_id, seg.token);
            let map = Command::MapSeg { tpn, token_id, token_value, va: seg.va + 8, len: 64 };
            assert_eq!(a.ok(map), (seg.va + 8) | mark, "{access:?}");
            if tpn == peer && mark == 0 {
                a.dev.on_peer_gone(a.now, b.eid());
                assert_eq!(a.command(map).status, CmdStatus::NotFound);
            }
        }
    }
}
