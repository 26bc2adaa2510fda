//! Requests like one before are checked for all that may have changed since.

use udma_abi::cmd::{Access, Command, QueueState};
use udma_abi::counters::Counter;
use udma_abi::sqe::BLOCK_WORDS;
use udma_abi::{CompletionBy, CqeStatus, Opcode, Sqe, rqe::record};

use super::super::carry::finished;
use super::super::scene::{Scene, scene, scene_of};
use super::super::{BenchSeg, on_seg, pair_with};
use super::{
    ATOMICS, COMPARE, GOOD, OPERAND, REFUSED, STOPPED, TRANSFERS, both, direct, each, ends, send,
};
use crate::cfg::ExpressLane;
use crate::context::segment::{entry_offset, tid_of};
use crate::device::{FunctionId, Leases, MovedEntry, WordMove};
use crate::engine::fast::known::slot_of;

/// So many requests alike, and the last of them is kept in any case.
const MANY: usize = 16;

/// A WRITE of 8 bytes in the ring; its block.
fn put(s: &mut Scene, at: u64) -> [u64; BLOCK_WORDS] {
    let sqe = Sqe { sge_num: 1, ..on_seg(Opcode::Write, s.tpn, &s.remote, at) };
    s.a.put(&mut s.jetty, sqe, &s.local.sge(at, 8).to_words())
}

#[test]
fn bad_memory_is_not_read_again() {
    let seen = both(|s, _| {
        s.a.dev.poison(s.a.now, s.local.mem.addr(), 64);
        for _ in 0..MANY {
            direct(s, Opcode::Write, 4096, |_| {});
            assert_eq!(s.a.poll(&mut s.jfc).map(|cqe| cqe.status), Some(GOOD));
        }
        direct(s, Opcode::Write, 0, |_| {});
    });
    ends(&seen, &[CqeStatus::LocDataPoison, CqeStatus::WrFlushErrDone]);
}

/// Requests to a segment of this node, which `change` changes before the last one, that ends so for each of
/// `opcodes`.
fn to_own(opcodes: &[Opcode], change: impl Fn(&Scene, u32, usize), last: &[CqeStatus]) {
    let seen = each(opcodes, |s, opcode| {
        let other = s.a.seg(8192);
        let tpn = s.a.connect(s.a.eid());
        let sge = s.local.sge(0, 8);
        for at in [4096; MANY] {
            send(s, on_seg(opcode, tpn, &other, at), sge);
            assert_eq!(s.a.poll(&mut s.jfc).map(|cqe| cqe.status), Some(GOOD));
        }
        change(s, other.token_id, other.mem.addr());
        for at in [4096; MANY] {
            send(s, on_seg(opcode, tpn, &other, at), sge);
            s.a.poll(&mut s.jfc);
        }
        send(s, on_seg(opcode, tpn, &other, 0), sge);
    });
    for (seen, last) in seen.chunks(1).zip(last.chunks(1)) {
        ends(seen, last);
    }
}

#[test]
fn bad_memory_of_this_node_is_written_to_and_not_read() {
    let poison = |s: &Scene, _, addr| s.a.dev.poison(s.a.now, addr, 64);
    to_own(&TRANSFERS, poison, &[GOOD, CqeStatus::RemDataPoison]);
    to_own(&ATOMICS, poison, &[CqeStatus::RemDataPoison; ATOMICS.len()]);
}

/// What a first block names in the place for a piece is no piece of an atomic.
#[test]
fn the_first_block_of_an_atomic_alone_is_malformed() {
    let seen = each(&ATOMICS, |s, opcode| {
        let mut sqe = on_seg(opcode, s.tpn, &s.remote, 64);
        let pi = s.jetty.pi;
        let atomic = Sqe { operand: OPERAND, compare: COMPARE, ..sqe };
        let place = slot_of(&s.a.put(&mut s.jetty, atomic, &[]));
        let mut front = s.a.put(&mut s.jetty, Sqe { sge_num: 1, ..sqe }, &[]);
        s.jetty.pi = pi;
        // The number of the segment counts for the place where a request with one block is kept.
        let is_there = |seg: &BenchSeg| {
            front[6..].copy_from_slice(&seg.sge(0, 8).to_words());
            slot_of(&front) == place
        };
        let local = std::iter::repeat_with(|| s.a.seg(4096)).take(4096).find(is_there).unwrap();
        for _ in 0..MANY {
            send(s, sqe, local.sge(0, 8));
            assert_eq!(s.a.poll(&mut s.jfc).map(|cqe| cqe.status), Some(GOOD));
        }
        sqe.sge_num = 1;
        let piece = local.sge(0, 8).to_words();
        let mut block = s.a.put(&mut s.jetty, sqe, &piece);
        block[6..].copy_from_slice(&piece);
        s.jetty.pi -= 1;
        s.a.write_direct(&s.jetty, &block);
    });
    ends(&seen, &STOPPED);
}

#[test]
fn an_invalidated_segment_of_this_node_is_refused() {
    let seen = each(&TRANSFERS, |s, opcode| {
        let other = s.a.seg(8192);
        let sqe = on_seg(opcode, s.a.connect(s.a.eid()), &other, 0);
        let sge = s.local.sge(0, 8);
        for _ in 0..MANY {
            send(s, sqe, sge);
            assert_eq!(s.a.poll(&mut s.jfc).map(|cqe| cqe.status), Some(GOOD));
        }
        assert!(s.a.dev.core.tables.segments.invalidate(
            FunctionId::FIRST,
            other.token_id,
            sqe.token_value
        ));
        send(s, sqe, sge);
    });
    ends(&seen, &[REFUSED]);
}

/// What lies in an extent and not in the segment is refused.
#[test]
fn a_request_stays_inside_of_the_segment() {
    let bounds: [(usize, u64, u64); 2] = [(2, 4096, 4096), (1, 4096, 0)];
    for (word, by, at) in bounds {
        let seen = both(|s, opcode| {
            let node = s.b.dev.node_region().clone();
            let entry = entry_offset(tid_of(s.remote.token_id).unwrap());
            let [life, value] = [0, word].map(|word| node.load_u64(entry + 8 * word).unwrap());
            node.store_u64(entry, life + 2).unwrap();
            node.store_u64(entry + 8 * word, if word == 1 { value + by } else { by }).unwrap();
            for _ in 0..MANY {
                direct(s, opcode, 4096 - 128 + 128 * u64::from(word == 1), |_| {});
                assert_eq!(s.a.poll(&mut s.jfc).map(|cqe| cqe.status), Some(GOOD));
            }
            direct(s, opcode, at, |_| {});
        });
        ends(&seen, &[REFUSED]);
    }
}

#[test]
fn a_list_ends_where_what_was_posted_ends() {
    let mut s = scene();
    let found = s.a.dev.find_queue(s.jetty.id, Leases::Seldom).unwrap();
    for _ in 0..MANY {
        put(&mut s, 0);
        s.a.ring(&s.jetty);
        assert_eq!(s.a.poll(&mut s.jfc).map(|cqe| cqe.status), Some(GOOD));
    }
    for at in [8, 16, 24] {
        put(&mut s, at);
    }
    s.a.dev.ring_queue(&found, || 0, s.jetty.pi - 1);
    let taken = std::iter::from_fn(|| s.a.poll(&mut s.jfc)).count();
    assert_eq!(taken, 2, "the third is not posted");
    s.a.ring(&s.jetty);
    assert_eq!(s.a.poll(&mut s.jfc).map(|cqe| cqe.status), Some(GOOD));
}

#[test]
fn without_the_lane_nothing_is_carried() {
    for (lane, carried) in [(ExpressLane::On, Some(false)), (ExpressLane::Off, None)] {
        let mut s = scene_of(pair_with(|cfg| cfg.lane = lane), 4, 4);
        let found = s.a.dev.find_queue(s.jetty.id, Leases::Seldom).unwrap();
        put(&mut s, 0);
        s.a.ring(&s.jetty);
        let block = put(&mut s, 0);
        assert_eq!(s.a.dev.execute(&found, || 0, &block), carried);
        s.a.ring(&s.jetty);
        let atomic = on_seg(Opcode::FetchAdd, s.tpn, &s.remote, 0);
        s.a.post(&mut s.jetty, atomic, &[s.local.sge(0, 8)]);
        let sqe = Sqe { sge_num: 1, ..atomic };
        let front = s.a.put(&mut s.jetty, sqe, &s.local.sge(0, 8).to_words());
        let back = s.jetty.ring.load_block(((s.jetty.pi as usize - 1) & 15) * 64).unwrap();
        assert_eq!(s.a.dev.execute_atomic(&found, || 0, &[front, back]), carried);
    }
}

/// Hands a WRITE of 8 bytes to `at` of `seg` over, which is in no ring; whether it was carried out.
pub(super) fn carry(s: &mut Scene, seg: &BenchSeg, at: u64) -> bool {
    let found = s.a.dev.find_queue(s.jetty.id, Leases::Seldom).unwrap();
    let sqe = Sqe { sge_num: 1, ..on_seg(Opcode::Write, s.tpn, seg, at) };
    let block = s.a.put(&mut s.jetty, sqe, &s.local.sge(at, 8).to_words());
    let carried = s.a.dev.execute(&found, || 0, &block);
    s.jetty.pi -= u32::from(carried.is_none());
    s.a.poll(&mut s.jfc);
    carried.is_some()
}

/// Executes a WRITE given by what differs from the last one, `ahead` of the next position. Returns whether it
/// succeeded.
fn carry_moved(s: &mut Scene, at: u64, ahead: u32) -> bool {
    let found = s.a.dev.find_queue(s.jetty.id, Leases::Seldom).unwrap();
    let (remote_va, local_va) = (s.remote.va.wrapping_add(at), s.local.va.wrapping_add(at));
    let pi = s.jetty.pi.wrapping_add(ahead);
    let moved = MovedEntry { pi, by: CompletionBy::Device, remote_va, local_va, len: 8 };
    let carried = finished(&s.a.dev, &found, s.a.dev.repeat(&found, &moved));
    s.jetty.pi += u32::from(carried.is_some());
    let is_done = s.a.poll(&mut s.jfc).is_some_and(|cqe| cqe.status == GOOD);
    assert_eq!(is_done, carried.is_some());
    is_done
}

#[test]
fn what_differs_is_carried_at_the_next_position_of_a_queue_that_is_ready() {
    let mut s = scene();
    let remote = s.remote.clone();
    let bytes = s.fill();
    // The queue gets to know path and segments.
    let (sqe, sge) = (on_seg(Opcode::Write, s.tpn, &remote, 0), s.local.sge(0, 8));
    s.complete(sqe, &[sge]);
    assert!(!carry_moved(&mut s, 0, 0), "none was carried");
    assert!([0; 3].map(|at| carry(&mut s, &remote, at)) == [true; 3]);
    for at in [0, 8, 1 << 12, (1 << 20) - 8] {
        assert!(!carry_moved(&mut s, at, 1) && !carry_moved(&mut s, at, u32::MAX));
        assert!(carry_moved(&mut s, at, 0), "{at}");
        let from = usize::try_from(at).unwrap();
        assert_eq!(s.remote.bytes(from, 8), bytes[from..from + 8]);
    }
    for at in [(1 << 20) - 7, 1 << 20, u64::MAX] {
        assert!(!carry_moved(&mut s, at, 0), "outside of the segments: {at}");
    }
    s.a.ok(Command::ModifyState { id: s.jetty.id, state: QueueState::Suspended });
    assert!(!carry_moved(&mut s, 0, 0), "the queue is suspended");
}

/// Executes a WRITE whose CQE the driver makes, given by what differs, `ahead` of the next position; returns the JFC
/// index.
pub(super) fn execute_local(s: &mut Scene, at: u64, ahead: u32) -> Option<u32> {
    let found = s.a.dev.find_queue(s.jetty.id, Leases::Seldom).unwrap();
    let (remote_va, local_va) = (s.remote.va.wrapping_add(at), s.local.va.wrapping_add(at));
    let pi = s.jetty.pi.wrapping_add(ahead);
    let before = s.a.dev.core.counter(Counter::Completions);
    let carried = match found.move_word((pi, remote_va, local_va)) {
        WordMove::Done(index) => Some(index),
        WordMove::ToLease(index, visit) => {
            assert!(!s.a.dev.lease(&found, visit));
            Some(index)
        }
        WordMove::Elsewhere(visit) => {
            let by = CompletionBy::Driver;
            let moved = MovedEntry { pi, by, remote_va, local_va, len: 8 };
            finished(&s.a.dev, &found, s.a.dev.repeat_in_visit(&found, visit, &moved))
        }
        other => panic!("no other thread has the queue: {other:?}"),
    };
    s.jetty.pi += u32::from(carried.is_some());
    assert_eq!(s.a.poll(&mut s.jfc), None, "no entry is written");
    let counted = s.a.dev.core.counter(Counter::Completions) - before;
    assert_eq!(counted, u64::from(carried.is_some()));
    carried
}

/// A scene whose remote segment is of the same node.
pub(super) fn own_scene() -> Scene {
    let mut s = scene();
    (s.tpn, s.remote) = (s.a.connect(s.a.eid()), s.a.seg(1 << 20));
    s
}

#[test]
fn what_its_driver_reports_takes_no_slot_and_comes_before_the_next_entry() {
    [scene(), own_scene()].into_iter().for_each(takes_no_slot_and_comes_before_the_next_entry);
}

fn takes_no_slot_and_comes_before_the_next_entry(mut s: Scene) {
    let remote = s.remote.clone();
    let bytes = s.fill();
    let (sqe, sge) = (on_seg(Opcode::Write, s.tpn, &remote, 0), s.local.sge(0, 8));
    s.complete(sqe, &[sge]);
    assert_eq!(execute_local(&mut s, 0, 0), None, "none was carried");
    assert!([0; 3].map(|at| carry(&mut s, &remote, at)) == [true; 3]);
    for (entries, round) in (4..8).zip(0..) {
        for at in (0..40).map(|at| 4096 * round + 8 * at) {
            // Behind many in a row, and behind one.
            if at % 4096 > 240 {
                assert_eq!(execute_local(&mut s, at, 1), None);
                assert_eq!(execute_local(&mut s, at, u32::MAX), None);
            }
            // A word that is not aligned is none that is moved at once.
            let at = if at % 32 == 0 { at + 3 } else { at };
            assert_eq!(execute_local(&mut s, at, 0), Some(entries));
            let from = usize::try_from(at).unwrap();
            assert_eq!(s.remote.bytes(from, 8), bytes[from..from + 8]);
        }
        for at in [(1 << 20) - 7, 1 << 20, u64::MAX] {
            assert_eq!(execute_local(&mut s, at, 0), None, "outside of the segments: {at}");
        }
        assert!((0..8).all(|at| execute_local(&mut s, 8 * at, 0).is_some()));
        // What goes between is reported, and the record has counted everything.
        assert!(carry(&mut s, &remote, 16));
        assert_eq!(s.jetty.record.load_u32(record::SQ_CI), Ok(s.jetty.pi));
    }
    assert!((0..8).all(|at| execute_local(&mut s, 8 * at, 0).is_some()));
    s.a.ok(Command::ModifyState { id: s.jetty.id, state: QueueState::Suspended });
    assert_eq!(s.a.poll(&mut s.jfc).map(|cqe| cqe.status), Some(CqeStatus::WrSuspendDone));
    assert_eq!(execute_local(&mut s, 0, 0), None, "the queue is suspended");
}

/// Executes a whole WRITE to `at` of `seg` whose CQE the driver makes, `ahead` of the next position; returns the JFC
/// index.
fn carry_block(s: &mut Scene, seg: &BenchSeg, (at, ahead): (u64, u32)) -> Option<u32> {
    let found = s.a.dev.find_queue(s.jetty.id, Leases::Seldom).unwrap();
    let sqe = Sqe { sge_num: 1, ..on_seg(Opcode::Write, s.tpn, seg, at) };
    s.jetty.pi = s.jetty.pi.wrapping_add(ahead);
    let block = s.a.put(&mut s.jetty, sqe, &s.local.sge(at, 8).to_words());
    s.jetty.pi = s.jetty.pi.wrapping_sub(1 + ahead);
    let before = s.a.dev.core.counter(Counter::Completions);
    let carried = finished(&s.a.dev, &found, s.a.dev.execute_known(&found, &block));
    s.jetty.pi += u32::from(carried.is_some());
    assert_eq!(s.a.poll(&mut s.jfc), None, "no entry is written");
    let counted = s.a.dev.core.counter(Counter::Completions) - before;
    assert_eq!(counted, u64::from(carried.is_some()));
    carried
}

#[test]
fn whole_blocks_that_their_driver_reports_are_carried_like_any_one_before() {
    let mut s = scene();
    let bytes = s.fill();
    let (one, other) = (s.remote.clone(), s.b.seg(8192));
    assert_eq!(carry_block(&mut s, &one, (0, 0)), None, "none was carried");
    for seg in [&one, &other] {
        s.complete(on_seg(Opcode::Write, s.tpn, seg, 0), &[s.local.sge(0, 8)]);
        assert!([0; 3].map(|at| carry(&mut s, seg, at)) == [true; 3]);
    }
    let entries = carry_block(&mut s, &one, (8, 0)).expect("it is known");
    for at in (1..100).map(|at| 8 * at) {
        for seg in [&one, &other] {
            assert_eq!(carry_block(&mut s, seg, (at, 1)), None, "not the next one");
            assert_eq!(carry_block(&mut s, seg, (at, 0)), Some(entries));
            let from = usize::try_from(at).unwrap();
            assert_eq!(seg.bytes(from, 8), bytes[from..from + 8]);
        }
        assert_eq!(carry_block(&mut s, &other, (8192 - 7, 0)), None, "outside of the segment");
    }
    // Like the newest one.
    assert!(execute_local(&mut s, 800, 0).is_none(), "it was refused");
    assert!(carry_block(&mut s, &one, (16, 0)).is_some());
    assert!(execute_local(&mut s, 800, 0).is_some());
    assert!(carry(&mut s, &one, 16));
    assert_eq!(s.jetty.record.load_u32(record::SQ_CI), Ok(s.jetty.pi));
    s.a.ok(Command::ModifyState { id: s.jetty.id, state: QueueState::Suspended });
    assert_eq!(s.a.poll(&mut s.jfc).map(|cqe| cqe.status), Some(CqeStatus::WrSuspendDone));
    assert_eq!(carry_block(&mut s, &one, (8, 0)), None, "the queue is suspended");
}

/// Neither of what ended by a visit nor of what only a flag says.
#[test]
fn whole_blocks_that_their_driver_reports_end_with_segments_and_path() {
    for ended in 0..3 {
        let mut s = scene();
        let remote = s.remote.clone();
        s.fill();
        s.complete(on_seg(Opcode::Write, s.tpn, &remote, 0), &[s.local.sge(0, 8)]);
        assert!([0; 3].map(|at| carry(&mut s, &remote, at)) == [true; 3]);
        assert!([8; 9].iter().all(|at| carry_block(&mut s, &remote, (*at, 0)).is_some()));
        match ended {
            0 => drop(s.a.ok(Command::UnregisterSeg { token_id: s.local.token_id })),
            1 => drop(s.b.ok(Command::UnregisterSeg { token_id: s.remote.token_id })),
            _ => s.a.dev.core.tables.links.end(s.tpn),
        }
        assert_eq!(carry_block(&mut s, &remote, (64, 0)), None, "{ended}");
    }
}

#[test]
fn what_its_driver_reports_goes_where_no_slot_is_left() {
    let mut s = scene_of(pair_with(|_| {}), 4, 2);
    let remote = s.remote.clone();
    s.fill();
    let (sqe, sge) = (on_seg(Opcode::Write, s.tpn, &remote, 0), s.local.sge(0, 8));
    s.complete(sqe, &[sge]);
    assert!([0; 3].map(|at| carry(&mut s, &remote, at)) == [true; 3]);
    for _ in 0..100 {
        assert_eq!(execute_local(&mut s, 8, 0), Some(4));
    }
}

/// Nothing is carried out once what it rests on has ended.
#[test]
fn what_its_driver_reports_ends_with_its_segments() {
    for (is_local, is_own) in [(true, false), (false, false), (true, true), (false, true)] {
        let mut s = if is_own { own_scene() } else { scene() };
        let remote = s.remote.clone();
        s.fill();
        let (sqe, sge) = (on_seg(Opcode::Write, s.tpn, &remote, 0), s.local.sge(0, 8));
        s.complete(sqe, &[sge]);
        assert!([0; 3].map(|at| carry(&mut s, &remote, at)) == [true; 3]);
        for at in [8; 40] {
            assert!(execute_local(&mut s, at, 0).is_some());
        }
        match is_local {
            true => s.a.ok(Command::UnregisterSeg { token_id: s.local.token_id }),
            false if is_own => s.a.ok(Command::UnregisterSeg { token_id: s.remote.token_id }),
            false => s.b.ok(Command::UnregisterSeg { token_id: s.remote.token_id }),
        };
        assert_eq!(execute_local(&mut s, 64, 0), None);
    }
}

/// A doorbell that was found does not reach the next queue with its number, whatever that one carried.
#[test]
fn what_its_driver_reports_ends_with_its_queue() {
    let mut s = own_scene();
    let remote = s.remote.clone();
    s.fill();
    let found = s.a.dev.find_queue(s.jetty.id, Leases::Seldom).unwrap();
    s.a.ok(Command::DestroyQueue { id: s.jetty.id });
    while s.a.poll(&mut s.jfc).is_some() {}
    let id = s.jetty.id;
    s.jetty = s.a.jetty(4, &s.jfc, |args| args.id = id);
    let (sqe, sge) = (on_seg(Opcode::Write, s.tpn, &remote, 0), s.local.sge(0, 8));
    s.complete(sqe, &[sge]);
    assert!([0; 3].map(|at| carry(&mut s, &remote, at)) == [true; 3]);
    assert!((0..8).all(|at| execute_local(&mut s, 8 * at, 0).is_some()));
    let moved = found.move_word((s.jetty.pi, remote.va + 4096, s.local.va));
    assert!(matches!(moved, WordMove::Ended), "{moved:?}");
    assert_eq!(remote.bytes(4096, 8), [0; 8]);
    // The next queue goes on where it was.
    assert!(execute_local(&mut s, 64, 0).is_some());
}

/// No word is moved of a queue that is suspended or in error, also not in the first step of its doorbell.
#[test]
fn what_its_driver_reports_ends_with_the_state_of_its_queue() {
    for state in [QueueState::Suspended, QueueState::Error] {
        let mut s = own_scene();
        let remote = s.remote.clone();
        s.fill();
        s.complete(on_seg(Opcode::Write, s.tpn, &remote, 0), &[s.local.sge(0, 8)]);
        assert!([0; 3].map(|at| carry(&mut s, &remote, at)) == [true; 3]);
        assert!([8; 40].iter().all(|at| execute_local(&mut s, *at, 0).is_some()));
        let found = s.a.dev.find_queue(s.jetty.id, Leases::Seldom).unwrap();
        s.a.ok(Command::ModifyState { id: s.jetty.id, state });
        while s.a.poll(&mut s.jfc).is_some() {}
        let moved = found.move_word((s.jetty.pi, remote.va + 4096, s.local.va));
        assert!(matches!(moved, WordMove::Elsewhere(_)), "{state:?}: {moved:?}");
        drop(moved);
        assert_eq!(execute_local(&mut s, 4096, 0), None, "{state:?}");
        assert_eq!(remote.bytes(4096, 8), [0; 8], "{state:?}");
    }
}

/// A segment that was invalidated is not written to, though no command visited the queue.
#[test]
fn what_its_driver_reports_ends_with_the_rights_of_its_segment() {
    let mut s = own_scene();
    let remote = s.remote.clone();
    s.fill();
    let sqe = on_seg(Opcode::Write, s.tpn, &remote, 0);
    let sge = s.local.sge(0, 8);
    s.complete(sqe, &[sge]);
    assert!([0; 3].map(|at| carry(&mut s, &remote, at)) == [true; 3]);
    assert!([8; 40].iter().all(|at| execute_local(&mut s, *at, 0).is_some()));
    assert!(s.a.dev.core.tables.segments.invalidate(
        FunctionId::FIRST,
        remote.token_id,
        sqe.token_value
    ));
    assert_eq!(execute_local(&mut s, 4096, 0), None);
    assert_eq!(remote.bytes(4096, 8), [0; 8]);
}

#[test]
fn what_its_driver_reports_ends_with_its_path() {
    [scene(), own_scene()].into_iter().for_each(ends_with_its_path);
}

fn ends_with_its_path(mut s: Scene) {
    let remote = s.remote.clone();
    s.fill();
    let (sqe, sge) = (on_seg(Opcode::Write, s.tpn, &remote, 0), s.local.sge(0, 8));
    s.complete(sqe, &[sge]);
    assert!([0; 3].map(|at| carry(&mut s, &remote, at)) == [true; 3]);
    for at in [8; 40] {
        assert!(execute_local(&mut s, at, 0).is_some());
    }
    // It has ended, and the engine was not visited.
    s.a.dev.core.tables.links.end(s.tpn);
    assert_eq!(execute_local(&mut s, 64, 0), None);
}

/// The newest one that was carried: neither one before it, nor one that is kept in its place.
#[test]
fn what_differs_is_not_taken_for_another_request() {
    let mut s = scene();
    let remote = s.remote.clone();
    s.fill();
    // More than there are places: most of them are not kept, and others take the place of the first one.
    let others: Vec<BenchSeg> = (0..700).map(|_| s.b.seg(8192)).collect();
    let (sqe, sge) = (on_seg(Opcode::Write, s.tpn, &remote, 0), s.local.sge(0, 8));
    s.complete(sqe, &[sge]);
    for other in &others {
        assert!([0; 3].map(|at| carry(&mut s, &remote, at)) == [true; 3]);
        // The first one like it is carried and kept, if at all, by what was found for it alone.
        assert!(carry(&mut s, other, 8));
        assert!(!carry_moved(&mut s, 16, 0));
    }
    for other in &others {
        assert!([0; 3].map(|at| carry(&mut s, &remote, at)) == [true; 3]);
        for _ in 0..MANY {
            let sqe = on_seg(Opcode::Write, s.tpn, other, 24);
            s.a.post(&mut s.jetty, sqe, &[s.local.sge(24, 8)]);
            s.a.poll(&mut s.jfc);
        }
        // Addresses that lie in the other segment would be refused or not; bytes tell.
        let place = MovedEntry {
            pi: s.jetty.pi,
            by: CompletionBy::Device,
            remote_va: other.va + 4096,
            local_va: s.local.va,
            len: 8,
        };
        let found = s.a.dev.find_queue(s.jetty.id, Leases::Seldom).unwrap();
        assert_eq!(finished(&s.a.dev, &found, s.a.dev.repeat(&found, &place)), None);
        assert_eq!(other.bytes(4096, 8), [0; 8]);
    }
}

/// Of more segments than there are places each has its own rights, though all are of the same memory.
#[test]
fn requests_that_share_a_place_are_distinguished() {
    let mut s = scene();
    s.fill();
    let memory = s.b.alloc(4096);
    let right = Access::READ | Access::WRITE | Access::ATOMIC;
    let writable: Vec<_> = (0..1000).map(|_| s.b.seg_of(memory.clone(), right)).collect();
    let closed = s.b.seg_of(memory, Access::READ);
    // The queue gets to know the path.
    s.complete(on_seg(Opcode::Write, s.tpn, &writable[0], 0), &[s.local.sge(0, 8)]);
    for _ in 0..3 {
        for seg in &writable {
            assert!(carry(&mut s, seg, 8));
        }
    }
    // All places are taken: the request finds others in both of its own.
    s.a.post(&mut s.jetty, on_seg(Opcode::Write, s.tpn, &closed, 64), &[s.local.sge(64, 8)]);
    assert_eq!(s.a.poll(&mut s.jfc).map(|cqe| cqe.status), Some(CqeStatus::RemAccessAbort));
    assert_eq!(closed.bytes(64, 8), [0; 8]);
}

/// Requests of a queue whose steps are shorter than 8 bytes get no grant, under which 8 bytes are one move.
#[test]
fn eight_bytes_are_not_moved_where_a_step_is_shorter() {
    let mut s = scene_of(pair_with(|cfg| cfg.direct_chunk = 4), 4, 6);
    (s.tpn, s.remote) = (s.a.connect(s.a.eid()), s.a.seg(1 << 20));
    let remote = s.remote.clone();
    s.fill();
    let found = s.a.dev.find_queue(s.jetty.id, Leases::Seldom).unwrap();
    for _ in 0..3 {
        s.complete(on_seg(Opcode::Write, s.tpn, &remote, 0), &[s.local.sge(0, 4)]);
        let sqe = Sqe { sge_num: 1, ..on_seg(Opcode::Write, s.tpn, &remote, 0) };
        let block = s.a.put(&mut s.jetty, sqe, &s.local.sge(0, 4).to_words());
        let executed = s.a.dev.execute(&found, || 0, &block);
        s.jetty.pi -= u32::from(executed.is_none());
        s.a.poll(&mut s.jfc);
    }
    for len in [4, 4, 4, 4, 4, 4, 8] {
        let (pi, by) = (s.jetty.pi, CompletionBy::Driver);
        // As long as the request is known, 8 bytes of it are not one move.
        let place = (pi, remote.va, s.local.va);
        assert!(matches!(found.move_word(place), WordMove::Elsewhere(_)), "{pi}");
        let moved = MovedEntry { pi, by, remote_va: remote.va, local_va: s.local.va, len };
        let index = finished(&s.a.dev, &found, s.a.dev.repeat(&found, &moved));
        assert_eq!(index.is_some(), len == 4, "{len}");
        s.jetty.pi += u32::from(index.is_some());
    }
}
