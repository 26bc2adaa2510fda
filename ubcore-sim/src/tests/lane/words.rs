//! Atomics like one before, whose completions their driver makes.

use udma_abi::cmd::{Command, Mode, QueueState};
use udma_abi::counters::Counter;
use udma_abi::{CqeStatus, MovedWord, Opcode, Sqe, rqe::record};

use super::super::carry::finished;
use super::super::scene::{Scene, scene};
use super::super::{BenchSeg, on_seg};
use super::again::{carry, execute_local};
use super::{GOOD, REFUSED};
use crate::context::segment::{entry_offset, tid_of};
use crate::device::Leases;
use crate::hooks::{self, Hook};

/// Hands a FETCH_ADD of 1 to the word at `at` over, which is in no ring; whether it was carried out.
fn carry_add(s: &mut Scene, at: u64) -> bool {
    let found = s.a.dev.find_queue(s.jetty.id, Leases::Seldom).unwrap();
    let sqe = on_seg(Opcode::FetchAdd, s.tpn, &s.remote, at);
    let sqe = Sqe { operand: 1, sge_num: 1, ..sqe };
    let sge = s.local.sge(at, 8);
    let front = s.a.put(&mut s.jetty, sqe, &sge.to_words());
    let back = s.jetty.ring.load_block(((s.jetty.pi as usize - 1) & 15) * 64).unwrap();
    let blocks = [front, back];
    let carried = s.a.dev.execute_atomic(&found, || 0, &blocks);
    if carried.is_none() {
        s.jetty.pi = s.jetty.pi.wrapping_sub(2);
    }
    s.a.poll(&mut s.jfc);
    carried.is_some()
}

/// Executes a FETCH_ADD of 1 to the word at `at`, `ahead` of the next position; returns the JFC index, if it was
/// executed.
fn carry_word(s: &mut Scene, at: u64, ahead: u32) -> Option<u32> {
    let found = s.a.dev.find_queue(s.jetty.id, Leases::Seldom).unwrap();
    let (remote_va, local_va) = (s.remote.va.wrapping_add(at), s.local.va.wrapping_add(at));
    let pi = s.jetty.pi.wrapping_add(ahead);
    let moved = MovedWord { pi, remote_va, local_va, len: 8, operand: 1, compare: 0 };
    let before = s.a.dev.core.counter(Counter::Completions);
    let carried = finished(&s.a.dev, &found, s.a.dev.repeat_atomic(&found, &moved));
    s.jetty.pi += 2 * u32::from(carried.is_some());
    assert_eq!(s.a.poll(&mut s.jfc), None, "no entry is written");
    let counted = s.a.dev.core.counter(Counter::Completions) - before;
    assert_eq!(counted, u64::from(carried.is_some()));
    carried
}

/// A scene whose queue carried FETCH_ADDs of the first word: how many.
fn adding() -> (Scene, u64) {
    adding_in(scene())
}

fn adding_in(mut s: Scene) -> (Scene, u64) {
    let sqe = Sqe { operand: 1, ..on_seg(Opcode::FetchAdd, s.tpn, &s.remote, 0) };
    for _ in 0..2 {
        s.complete(sqe, &[s.local.sge(0, 8)]);
    }
    assert_eq!(carry_word(&mut s, 0, 0), None, "none was carried");
    assert!([0; 3].map(|at| carry_add(&mut s, at)) == [true; 3]);
    (s, 5)
}

fn word(of: &BenchSeg, at: usize) -> u64 {
    u64::from_le_bytes(of.bytes(at, 8).try_into().unwrap())
}

#[test]
fn words_that_the_driver_reports_are_changed_once_at_the_next_position() {
    let (mut s, mut value) = adding();
    let entries = carry_word(&mut s, 0, 0).unwrap();
    value += 1;
    for _ in 0..40 {
        assert_eq!(carry_word(&mut s, 0, 2), None);
        assert_eq!(carry_word(&mut s, 0, u32::MAX - 1), None);
        assert_eq!(carry_word(&mut s, 0, 0), Some(entries));
        assert_eq!(word(&s.local, 0), value, "the value before");
        value += 1;
        assert_eq!(word(&s.remote, 0), value);
    }
    for at in [(1 << 20) - 4, 1 << 20, 4, u64::MAX - 7] {
        assert_eq!(carry_word(&mut s, at, 0), None, "outside, or not aligned: {at}");
    }
    // What goes between is reported, and the record has counted everything.
    assert!(carry_add(&mut s, 0));
    assert_eq!(s.jetty.record.load_u32(record::SQ_CI), Ok(s.jetty.pi));
    assert!((0..8).all(|_| carry_word(&mut s, 0, 0).is_some()));
    assert_eq!(word(&s.remote, 0), value + 9);
    s.a.ok(Command::ModifyState { id: s.jetty.id, state: QueueState::Suspended });
    assert_eq!(s.a.poll(&mut s.jfc).map(|cqe| cqe.status), Some(CqeStatus::WrSuspendDone));
    assert_eq!(carry_word(&mut s, 0, 0), None, "the queue is suspended");
    assert_eq!(word(&s.remote, 0), value + 9);
}

/// What was granted to words is not granted to writes, and the other way round.
#[test]
fn words_and_writes_do_not_stand_for_each_other() {
    let (mut s, value) = adding();
    let remote = s.remote.clone();
    assert!((0..20).all(|_| carry_word(&mut s, 0, 0).is_some()));
    assert_eq!(execute_local(&mut s, 64, 0), None, "no write was carried");
    assert!((0..20).all(|_| carry_word(&mut s, 0, 0).is_some()));
    let (sqe, sge) = (on_seg(Opcode::Write, s.tpn, &remote, 64), s.local.sge(64, 8));
    s.complete(sqe, &[sge]);
    assert_eq!(carry_word(&mut s, 0, 0), None, "the write that is kept may stand in its place");
    assert!([64; 3].map(|at| carry(&mut s, &remote, at)) == [true; 3]);
    for _ in 0..20 {
        assert!(execute_local(&mut s, 64, 0).is_some());
    }
    assert!(carry_add(&mut s, 0) && carry_word(&mut s, 0, 0).is_some());
    assert!((0..20).all(|_| execute_local(&mut s, 64, 0).is_some()));
    assert_eq!(word(&s.remote, 0), value + 42);
    assert!(carry_add(&mut s, 0));
    assert_eq!(s.jetty.record.load_u32(record::SQ_CI), Ok(s.jetty.pi));
}

#[test]
fn words_that_the_driver_reports_end_with_what_they_rest_on() {
    let ends: [fn(&mut Scene); 3] = [
        |s| {
            s.a.ok(Command::UnregisterSeg { token_id: s.local.token_id });
        },
        |s| {
            s.b.ok(Command::UnregisterSeg { token_id: s.remote.token_id });
        },
        |s| {
            s.a.dev.core.tables.links.end(s.tpn);
        },
    ];
    for in_row in [1, 40] {
        for end in ends {
            let (mut s, value) = adding();
            assert!((0..in_row).all(|_| carry_word(&mut s, 0, 0).is_some()));
            end(&mut s);
            assert_eq!(carry_word(&mut s, 0, 0), None);
            assert_eq!(word(&s.remote, 0), value + in_row);
        }
    }
}

/// The driver leaves it to the device to see that a queue was bound to another one.
#[test]
fn words_that_the_driver_reports_end_with_the_binding() {
    for in_row in [1, 40] {
        let mut s = scene();
        s.jetty = s.a.jetty(4, &s.jfc, |args| args.mode = Mode::Rc);
        let target_jfc = s.b.jfc(4);
        let target = s.b.jetty(4, &target_jfc, |args| args.mode = Mode::Rc);
        let (id, bind) = (
            s.jetty.id,
            Command::Bind { id: s.jetty.id, tpn: s.tpn, remote_id: target.id, psns: None },
        );
        s.a.ok(bind);
        let (mut s, value) = adding_in(s);
        assert!((0..in_row).all(|_| carry_word(&mut s, 0, 0).is_some()));
        s.a.ok(Command::Unbind { id });
        assert_eq!(carry_word(&mut s, 0, 0), None, "it is bound to none");
        s.a.ok(bind);
        assert_eq!(carry_word(&mut s, 0, 0), None, "it is bound anew");
        assert_eq!(word(&s.remote, 0), value + in_row);
    }
}

/// It ends with an error once it is posted, and is not done again, by an engine or under a grant.
#[test]
fn a_word_that_was_changed_in_withdrawn_memory_is_not_changed_again() {
    for in_row in [1, 40] {
        let (mut s, value) = adding();
        assert!((0..in_row).all(|_| carry_word(&mut s, 0, 0).is_some()));
        let node = s.b.dev.node_region().clone();
        let entry = entry_offset(tid_of(s.remote.token_id).unwrap());
        let life = node.load_u64(entry).unwrap();
        let shared = node.clone();
        hooks::at(Hook::CopyUnchecked, move || shared.store_u64(entry, life + 1).unwrap());
        assert_eq!(carry_word(&mut s, 0, 0), None);
        assert_eq!(word(&s.remote, 0), value + in_row + 1);
        // The memory is there again when it is posted.
        node.store_u64(entry, life).unwrap();
        assert_eq!(carry_word(&mut s, 0, 0), None);
        let sqe = on_seg(Opcode::FetchAdd, s.tpn, &s.remote, 0);
        s.a.post(&mut s.jetty, Sqe { operand: 1, ..sqe }, &[s.local.sge(0, 8)]);
        assert_eq!(s.a.poll(&mut s.jfc).map(|cqe| cqe.status), Some(REFUSED));
        assert_eq!(word(&s.remote, 0), value + in_row + 1);
        // The next one is another one.
        s.a.post(&mut s.jetty, Sqe { operand: 1, ..sqe }, &[s.local.sge(0, 8)]);
        assert_eq!(s.a.poll(&mut s.jfc).map(|cqe| cqe.status), Some(GOOD));
        assert_eq!(word(&s.remote, 0), value + in_row + 2);
    }
}
