//! Leases of queues: requests under one grant for long, and what ends them.

use udma_abi::cmd::{Command, QueueState};
use udma_abi::counters::Counter;
use udma_abi::rqe::record;
use udma_abi::{CompletionBy, Opcode};
use urma_mem::sync::{AtomicBool, Ordering};

use super::super::carry::finished;
use super::super::scene::{Scene, scene, scene_of};
use super::super::{on_seg, pair_with};
use super::GOOD;
use super::again::{carry, own_scene};
use crate::device::{Leases, MovedEntry, QueueHandle, WordMove};

/// Whether there are leases here.
pub(super) fn can_lease() -> bool {
    let can = urma_mem::asymmetric::is_available();
    if !can {
        urma_skip::skip("the kernel has no membarrier for a process");
    }
    can
}

/// A queue whose doorbell was found once, as that of a driver.
struct Poster {
    s: Scene,
    found: QueueHandle,
}

/// A word at this position and these addresses, whose completion the driver makes.
fn driven((pi, remote_va, local_va): (u32, u64, u64)) -> MovedEntry {
    MovedEntry { pi, by: CompletionBy::Driver, remote_va, local_va, len: 8 }
}

impl Poster {
    /// One that has carried requests of 8 bytes.
    fn of(mut s: Scene, leases: Leases) -> Self {
        let remote = s.remote.clone();
        s.fill();
        s.complete(on_seg(Opcode::Write, s.tpn, &remote, 0), &[s.local.sge(0, 8)]);
        assert!([0; 3].map(|at| carry(&mut s, &remote, at)) == [true; 3]);
        let found = s.a.dev.find_queue(s.jetty.id, leases).unwrap();
        Self { s, found }
    }

    /// Moves the word at `at`; whether it was moved.
    fn word(&mut self, at: u64) -> bool {
        let Self { s, found } = self;
        let place = (s.jetty.pi, s.remote.va + at, s.local.va + at);
        let is_moved = match found.move_word(place) {
            WordMove::Done(_) => true,
            WordMove::ToLease(_, visit) => !s.a.dev.lease(found, visit),
            WordMove::Elsewhere(visit) => {
                finished(&s.a.dev, found, s.a.dev.repeat_in_visit(found, visit, &driven(place)))
                    .is_some()
            }
            WordMove::Ended => false,
            other => panic!("no other thread has the queue: {other:?}"),
        };
        s.jetty.pi += u32::from(is_moved);
        is_moved
    }

    /// Moves a word without a completion. Returns whether it was moved.
    fn silent_word(&mut self, at: u64) -> bool {
        let Self { s, found } = self;
        let (pi, remote_va, local_va) = (s.jetty.pi, s.remote.va + at, s.local.va + at);
        let moved = MovedEntry { pi, by: CompletionBy::Nobody, remote_va, local_va, len: 8 };
        let is_moved = finished(&s.a.dev, found, s.a.dev.repeat(found, &moved)).is_some();
        s.jetty.pi += u32::from(is_moved);
        is_moved
    }

    /// Moves a word whose CQE the device writes, `ahead` of the next position. Returns whether it was moved.
    fn reported_word(&mut self, at: u64, ahead: u32) -> bool {
        let Self { s, found } = self;
        let (remote_va, local_va) = (s.remote.va.wrapping_add(at), s.local.va.wrapping_add(at));
        let pi = s.jetty.pi.wrapping_add(ahead);
        let moved = MovedEntry { pi, by: CompletionBy::Device, remote_va, local_va, len: 8 };
        let is_moved = finished(&s.a.dev, found, s.a.dev.repeat(found, &moved)).is_some();
        s.jetty.pi += u32::from(is_moved);
        is_moved
    }

    /// Words that are moved until the queue is leased.
    fn words_to_lease(&mut self) -> u32 {
        let words = (0..100_000).find(|_| {
            assert!(self.word(8));
            self.found.is_leased()
        });
        words.expect("a lease") + 1
    }

    /// Posts a WRITE in the ring, which takes a lease. Record and order are right behind what was carried.
    fn post(&mut self) {
        let Self { s, found } = self;
        let sqe = on_seg(Opcode::Write, s.tpn, &s.remote, 0);
        s.a.post(&mut s.jetty, sqe, &[s.local.sge(0, 8)]);
        assert!(!found.is_leased());
        assert_eq!(s.a.poll(&mut s.jfc).map(|cqe| cqe.status), Some(GOOD));
        assert_eq!(s.a.poll(&mut s.jfc), None);
        assert_eq!(s.jetty.record.load_u32(record::SQ_CI), Ok(s.jetty.pi));
    }

    fn counter(&self, which: Counter) -> u64 {
        self.s.a.dev.core.counter(which)
    }
}

#[test]
fn a_queue_is_leased_after_many_words_in_a_row_and_what_is_posted_takes_the_lease() {
    if !can_lease() {
        return;
    }
    for s in [scene(), own_scene()] {
        let mut poster = Poster::of(s, Leases::Seldom);
        let first = poster.words_to_lease();
        assert!((200..400).contains(&first), "{first}");
        assert!((0..100).all(|at| poster.word(4096 + 8 * at)));
        assert!(poster.found.is_leased());
        assert_eq!(poster.s.remote.bytes(4096, 800), poster.s.local.bytes(4096, 800));
        poster.post();
        // The next lease takes longer.
        let remote = poster.s.remote.clone();
        assert!([0; 3].map(|at| carry(&mut poster.s, &remote, at)) == [true; 3]);
        let second = poster.words_to_lease();
        assert!((2 * first - 20..2 * first + 20).contains(&second), "{first} and {second}");
    }
}

#[test]
fn a_queue_that_may_not_be_leased_is_not() {
    if !can_lease() {
        return;
    }
    let mut poster = Poster::of(own_scene(), Leases::Never);
    assert!((0..2000).all(|_| poster.word(8)) && !poster.found.is_leased());
    // Nor by a second one that found it, as long as the first one that leased it is there.
    let mut poster = Poster::of(own_scene(), Leases::Seldom);
    poster.words_to_lease();
    let id = poster.s.jetty.id;
    let second = poster.s.a.dev.find_queue(id, Leases::Seldom).unwrap();
    let first = std::mem::replace(&mut poster.found, second);
    poster.post();
    let remote = poster.s.remote.clone();
    assert!([0; 3].map(|at| carry(&mut poster.s, &remote, at)) == [true; 3]);
    assert!((0..2000).all(|_| poster.word(8)) && !poster.found.is_leased());
    drop(first);
    poster.words_to_lease();
}

#[test]
fn where_leases_come_soon_each_grant_brings_one() {
    if !can_lease() {
        return;
    }
    let mut poster = Poster::of(own_scene(), Leases::Soon);
    for _ in 0..5 {
        assert!(poster.words_to_lease() < 10);
        poster.post();
        let remote = poster.s.remote.clone();
        assert!([0; 3].map(|at| carry(&mut poster.s, &remote, at)) == [true; 3]);
    }
}

fn assert_ok(s: &mut Scene, command: Command) {
    let _ = s.a.ok(command);
}

fn set_state(s: &mut Scene, state: QueueState) {
    assert_ok(s, Command::ModifyState { id: s.jetty.id, state });
}

#[test]
fn what_ends_a_queue_or_what_it_rests_on_ends_words_under_a_lease() {
    if !can_lease() {
        return;
    }
    let ends: [&dyn Fn(&mut Scene); 6] = [
        &|s| set_state(s, QueueState::Suspended),
        &|s| set_state(s, QueueState::Error),
        &|s| assert_ok(s, Command::DestroyQueue { id: s.jetty.id }),
        &|s| assert_ok(s, Command::UnregisterSeg { token_id: s.local.token_id }),
        &|s| assert_ok(s, Command::UnregisterSeg { token_id: s.remote.token_id }),
        &|s| s.a.dev.core.tables.links.end(s.tpn),
    ];
    for (index, end) in ends.into_iter().enumerate() {
        let mut poster = Poster::of(own_scene(), Leases::Seldom);
        poster.words_to_lease();
        let memory = poster.s.remote.clone();
        end(&mut poster.s);
        assert!(!poster.word(8192), "{index}");
        assert_eq!(memory.bytes(8192, 8), [0; 8], "{index}");
    }
}

#[test]
fn requests_without_completions_show_their_positions_and_are_counted_as_such() {
    if !can_lease() {
        return;
    }
    let mut poster = Poster::of(own_scene(), Leases::Seldom);
    let counters = [Counter::Completions, Counter::DirectRequests, Counter::DirectBytes];
    let before = counters.map(|which| poster.counter(which));
    for at in 0..2000 {
        assert!(poster.silent_word(8 * at));
        let ci = poster.s.jetty.record.load_u32(record::SQ_CI);
        assert_eq!(ci, Ok(poster.s.jetty.pi), "the driver sees which positions are free");
    }
    assert!(poster.found.is_leased());
    let after = counters.map(|which| poster.counter(which));
    assert_eq!([0, 1, 2].map(|n| after[n] - before[n]), [0, 2000, 16_000]);
    assert_eq!(poster.s.remote.bytes(0, 16_000), poster.s.local.bytes(0, 16_000));
    // With completions between, none is lost or doubled.
    assert!((0..300).all(|n| if n % 3 == 0 { poster.word(8) } else { poster.silent_word(8) }));
    assert_eq!(poster.counter(Counter::Completions) - after[0], 100);
    assert_eq!(poster.s.a.poll(&mut poster.s.jfc), None);
    poster.post();
}

/// A request that the device reports ends neither grant nor lease: queues of a JFC in turn have some now and then.
#[test]
fn requests_with_entries_go_under_a_lease_and_leave_it() {
    if !can_lease() {
        return;
    }
    let mut poster = Poster::of(own_scene(), Leases::Seldom);
    poster.words_to_lease();
    let counters = [Counter::Completions, Counter::DirectRequests, Counter::DirectBytes];
    let before = counters.map(|which| poster.counter(which));
    for at in 0..200 {
        let at = 4096 + 8 * at;
        assert!(poster.silent_word(at));
        assert!(!poster.reported_word(at, 1) && !poster.reported_word(at, u32::MAX));
        let pi = poster.s.jetty.pi;
        assert!([0; 8].map(|_| poster.silent_word(at)) == [true; 8]);
        assert!(poster.reported_word(at, 0));
        let cqe = poster.s.a.poll(&mut poster.s.jfc).unwrap();
        let index = u16::try_from((pi + 8) & 0xffff).unwrap();
        assert_eq!((cqe.status, cqe.entry_idx, cqe.byte_cnt), (GOOD, index, 8));
        assert_eq!(poster.s.a.poll(&mut poster.s.jfc), None);
        assert_eq!(poster.s.jetty.record.load_u32(record::SQ_CI), Ok(poster.s.jetty.pi));
    }
    let after = counters.map(|which| poster.counter(which));
    assert_eq!([0, 1, 2].map(|n| after[n] - before[n]), [200, 2000, 16_000]);
    assert_eq!(poster.s.remote.bytes(4096, 1600), poster.s.local.bytes(4096, 1600));
    poster.words_to_lease();
    for at in 0..1000 {
        assert!(poster.reported_word(8 * at, 0) && poster.found.is_leased());
        assert_eq!(poster.s.a.poll(&mut poster.s.jfc).map(|cqe| cqe.status), Some(GOOD));
    }
}

/// Entries that find no slot, or whose bytes do not move, take none.
#[test]
fn an_entry_under_a_grant_takes_the_slot_that_it_is_written_to() {
    let mut poster = Poster::of(scene_of(pair_with(|_| {}), 4, 2), Leases::Never);
    let depth = poster.s.jfc.depth as usize;
    for _ in 0..8 {
        assert!([0; 8].map(|at| poster.silent_word(at)) == [true; 8]);
        assert!(!poster.reported_word(1 << 20, 0), "outside of the segments");
        assert!([0; 8].map(|at| poster.silent_word(at)) == [true; 8]);
        let written = (0..2 * depth).filter(|_| poster.reported_word(8, 0)).count();
        assert_eq!(written, depth, "as many as the JFC has room for");
        assert!(poster.silent_word(16), "no entry is needed");
        let polled = (0..2 * depth).filter(|_| poster.s.a.poll(&mut poster.s.jfc).is_some());
        assert_eq!(polled.count(), depth);
    }
}

/// Another thread steps the queue all the time: each word is moved once, in order.
#[test]
fn a_leased_queue_that_another_thread_steps_moves_each_word_once() {
    if !can_lease() {
        return;
    }
    let mut poster = Poster::of(own_scene(), Leases::Seldom);
    let dev = std::sync::Arc::clone(&poster.s.a.dev);
    let stepped = dev.find_queue(poster.s.jetty.id, Leases::Never).unwrap();
    let (is_over, device) = (&AtomicBool::new(false), &*dev);
    let before = poster.counter(Counter::DirectRequests);
    let (mut moved, mut leases) = (0_u64, 0);
    std::thread::scope(|scope| {
        scope.spawn(move || {
            while !is_over.load(Ordering::Relaxed) {
                device.step_marked(&stepped, || 0);
                // The owner gets leases meanwhile.
                (0..20_000).for_each(|_| std::hint::spin_loop());
            }
        });
        let remote = poster.s.remote.clone();
        while moved < 300_000 {
            let (pi, at) = (poster.s.jetty.pi, 8 * (moved % 1024));
            let place = (pi, remote.va + at, poster.s.local.va + at);
            let (is_moved, is_marked) = match poster.found.move_word(place) {
                WordMove::Done(_) => (true, false),
                WordMove::Ending(_, end) => (true, end.finish()),
                WordMove::ToLease(_, visit) => (true, dev.lease(&poster.found, visit)),
                WordMove::Elsewhere(visit) => {
                    let executed = dev.repeat_in_visit(&poster.found, visit, &driven(place));
                    (executed.index.is_some(), executed.is_unfinished())
                }
                WordMove::Held => (false, false),
                WordMove::Taken(entry) => (false, entry.finish()),
                WordMove::Ended => panic!("it lives"),
            };
            if is_marked {
                dev.step_marked(&poster.found, || 0);
            }
            leases += u32::from(poster.found.is_leased());
            if is_moved {
                poster.s.jetty.pi += 1;
                moved += 1;
            }
        }
        is_over.store(true, Ordering::Relaxed);
    });
    assert!(leases > 0, "it was never leased");
    assert_eq!(poster.counter(Counter::DirectRequests) - before, moved);
    let remote = poster.s.remote.clone();
    assert_eq!(remote.bytes(0, 8192), poster.s.local.bytes(0, 8192));
    poster.post();
}
