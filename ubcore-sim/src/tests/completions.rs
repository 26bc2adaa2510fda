//! Full completion queues, and queues that leave with one.

use udma_abi::{
    CmdStatus, Cqe, CqeStatus, Nanos, Opcode, Sqe,
    cmd::{Command, NONE, QueueState, Response},
    cqe, rqe,
    sqe::{SqeFlags, SqeTargetKind},
};

use super::{Bench, BenchJfc, BenchQueue, BenchSeg, on_seg, pair, pair_with, step_both};
use crate::cfg::ExpressLane;

/// A message to a jetty of a peer.
fn message(tpn: u32, to: u32, flags: SqeFlags) -> Sqe {
    Sqe { flags, tpn, target_kind: SqeTargetKind::Jetty, target_id: to, ..Sqe::new(Opcode::Send) }
}

fn retired(queue: &BenchQueue) -> u32 {
    queue.record.load_u32(rqe::record::SQ_CI).unwrap()
}

#[test]
fn a_slot_that_an_unsignalled_request_leaves_restarts_other_queues() {
    let (mut a, mut b) = pair();
    let (small, b_jfc) = (a.jfc(1), b.jfc(4));
    let mut first = a.jetty(4, &small, |_| {});
    let mut second = a.jetty(4, &small, |_| {});
    let mut there = b.jetty(4, &b_jfc, |_| {});
    let (local, remote) = (a.seg(4096), b.seg(4096));
    let tpn = a.connect(b.eid());
    // Both slots are reserved for messages that wait for receives.
    for _ in 0..2 {
        let sqe = message(tpn, there.id, SqeFlags::empty());
        a.post(&mut first, sqe, &[local.sge(0, 8)]);
    }
    let write = Sqe { flags: SqeFlags::empty(), ..on_seg(Opcode::Write, tpn, &remote, 0) };
    a.post(&mut second, write, &[local.sge(0, 8)]);
    for _ in 0..10 {
        step_both(&mut a, &b, 1000);
    }
    assert_eq!((retired(&first), retired(&second)), (0, 0), "no slot for the second queue");
    for _ in 0..2 {
        b.post_recv(&mut there, &[remote.sge(0, 8)]);
    }
    // The retries of "not ready" take their time.
    for _ in 0..100 {
        step_both(&mut a, &b, 100_000);
    }
    assert_eq!((retired(&first), retired(&second)), (2, 1), "nothing was consumed");
}

/// The queue's record lies over the completion ring, its consumer index over the head of the fourth
/// entry: what stands there in the end was stored last.
#[test]
fn a_completion_is_written_before_the_consumer_index_moves() {
    for (lane, carries) in
        [(ExpressLane::On, true), (ExpressLane::On, false), (ExpressLane::Off, false)]
    {
        let (mut a, b) = pair_with(|cfg| cfg.lane = lane);
        a.carries = carries;
        completes_before_the_index_moves((a, b));
    }
}

/// The index is at the place of the fourth completion: it is what is stored last.
fn completes_before_the_index_moves((mut a, mut b): (Bench, Bench)) {
    let (ring, base) = a.map(4 * cqe::CQE_LEN);
    let id = a.ok32(Command::CreateJfc { base, depth_log2: 2, eqn: NONE, inline: false });
    let jfc = BenchJfc { id, ring, depth: 4, ci: 0, arm_sn: 0 };
    let mut jetty = a.jetty(4, &jfc, |args| args.record = base);
    let (local, remote) = (a.seg(4096), b.seg(4096));
    let tpn = a.connect(b.eid());
    for _ in 0..4 {
        let (write, piece) = (on_seg(Opcode::Write, tpn, &remote, 0), local.sge(0, 8));
        match a.carries {
            true => a.post_direct(&mut jetty, write, &[piece]),
            false => a.post(&mut jetty, write, &[piece]),
        }
    }
    assert_eq!(jfc.ring.load_u32(rqe::record::SQ_CI).unwrap(), 4);
    let second = Cqe::decode(&jfc.ring.load_block(cqe::CQE_LEN).unwrap());
    assert_eq!((second.status, second.entry_idx), (CqeStatus::Success, 1));
}

/// Posts a command and steps until its answer, for so much virtual time.
fn answer(a: &mut Bench, command: Command, within: Nanos) -> Option<Response> {
    let end = a.now + within;
    a.submit(command);
    while a.now < end {
        if let Some(response) = a.response() {
            return Some(response);
        }
        a.now += 100_000;
        a.dev.step(a.now);
    }
    a.response()
}

struct Full {
    a: Bench,
    jfc: BenchJfc,
    jetty: BenchQueue,
    _local: BenchSeg,
}

/// A jetty with 8 writes and 2 receives, of which 4 completions fill the JFC.
fn full() -> (Full, Bench) {
    let (mut a, mut b) = pair();
    let jfc = a.jfc(2);
    let mut jetty = a.jetty(4, &jfc, |_| {});
    let (local, remote) = (a.seg(4096), b.seg(4096));
    let tpn = a.connect(b.eid());
    for _ in 0..8 {
        a.post(&mut jetty, on_seg(Opcode::Write, tpn, &remote, 0), &[local.sge(0, 8)]);
    }
    for _ in 0..2 {
        a.post_recv(&mut jetty, &[local.sge(0, 8)]);
    }
    assert_eq!(retired(&jetty), 4);
    (Full { a, jfc, jetty, _local: local }, b)
}

#[test]
fn a_queue_with_a_full_completion_queue_stays_until_every_request_has_its_end() {
    let (mut s, _b) = full();
    let id = s.jetty.id;
    let began = s.a.now;
    let refused = answer(&mut s.a, Command::DestroyQueue { id }, 100_000_000).unwrap();
    assert_eq!(refused.status, CmdStatus::Timeout);
    let took = s.a.now - began;
    assert!((10_000_000..12_000_000).contains(&took), "{took}");
    let query = s.a.command(Command::QueryQueue { id });
    assert_eq!((query.status, query.results[0]), (CmdStatus::Ok, QueueState::Error as u64));
    let jfcn = s.jfc.id;
    assert_eq!(s.a.command(Command::DestroyJfc { jfcn }).status, CmdStatus::InUse);
    let mut ends = Vec::new();
    while let Some(cqe) = s.a.poll(&mut s.jfc) {
        ends.push((cqe.recv, cqe.entry_idx, cqe.status));
        s.a.now += 1000;
        s.a.dev.step(s.a.now);
    }
    ends.sort_by_key(|end| (end.0, end.1));
    let status = |n| if n < 4 { CqeStatus::Success } else { CqeStatus::WrFlushErr };
    let sent = (0..8).map(|n| (false, n, status(n)));
    let received = (0..2).map(|n| (true, n, CqeStatus::WrFlushErr));
    assert_eq!(ends, sent.chain(received).collect::<Vec<_>>(), "each once");
    assert_eq!(s.a.command(Command::DestroyQueue { id }).status, CmdStatus::Ok);
    assert_eq!(s.a.command(Command::DestroyJfc { jfcn }).status, CmdStatus::Ok);
}

#[test]
fn a_slow_consumer_is_waited_for_as_long_as_it_makes_room() {
    let (mut s, _b) = full();
    let id = s.jetty.id;
    s.a.submit(Command::DestroyQueue { id });
    let mut ends = 0;
    let response = loop {
        s.a.now += 5_000_000;
        s.a.dev.step(s.a.now);
        if let Some(response) = s.a.response() {
            break response;
        }
        ends += u32::from(s.a.poll(&mut s.jfc).is_some());
    };
    assert_eq!(response.status, CmdStatus::Ok);
    while s.a.poll(&mut s.jfc).is_some() {
        ends += 1;
    }
    assert_eq!(ends, 10);
}
