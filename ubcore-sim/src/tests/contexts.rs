//! A model of a NIC that is plugged into the device: what it is given, that requests wait for its times, and that nothing
//! else changes.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, MutexGuard};

use udma_abi::{
    CmdStatus, CqeStatus, Nanos, Opcode, Sqe,
    cmd::Command,
    counters::{MODEL_COUNTER_LEN, ModelCounter},
    sqe::SqeTargetKind,
};

use super::scene::scene_of;
use super::{Bench, on_seg, pair, pair_plugged, step_both};
use crate::device::FunctionQuota;
use crate::nic::{LookedUp, Lookup, LookupSink, ModelMode, NicModel, NicObject, NicScope};

/// A chip that keeps everything until it ends: what it has takes 4 ns, what it lacks 600 ns.
#[derive(Debug)]
struct Chip {
    mode: ModelMode,
    /// It keeps what ended, and has everything at once.
    is_wrong: bool,
    state: Mutex<ChipState>,
}

#[derive(Debug, Default)]
struct ChipState {
    has: BTreeSet<LookedUp>,
    hits: u64,
    misses: u64,
    created: Vec<(u32, String)>,
}

impl Chip {
    fn new(mode: ModelMode, is_wrong: bool) -> Arc<Self> {
        Arc::new(Self { mode, is_wrong, state: Mutex::default() })
    }

    fn state(&self) -> MutexGuard<'_, ChipState> {
        self.state.lock().unwrap()
    }

    /// What was missing and what was there, of all lookups.
    fn found(&self) -> (u64, u64) {
        let state = self.state();
        (state.misses, state.hits)
    }

    fn accesses(&self) -> u64 {
        let (misses, hits) = self.found();
        misses + hits
    }
}

impl NicModel for Chip {
    fn scope(&self) -> NicScope {
        NicScope { contexts: self.mode, ..NicScope::default() }
    }

    fn on_created(&self, function: u32, object: NicObject<'_>) {
        let object = match object {
            NicObject::Jfc { jfcn, depth_log2 } => format!("JFC {jfcn}: 1 << {depth_log2}"),
            NicObject::Queue(number, args) => format!("queue {number}: {:?}", args.kind),
            NicObject::Segment(args) => format!("segment {:#x}: {}", args.token_id, args.len),
        };
        self.state().created.push((function, object));
    }

    fn on_lookup(&self, now: Nanos, lookup: Lookup, contexts: &[LookedUp]) -> Nanos {
        let mut state = self.state();
        if lookup == Lookup::End && !self.is_wrong {
            state.has.retain(|one| match (one, contexts[0]) {
                (LookedUp::Segment { token_id, .. }, LookedUp::Segment { token_id: ended, .. }) => {
                    *token_id != ended
                }
                (one, ended) => *one != ended,
            });
        }
        if lookup != Lookup::Start {
            return 0;
        }
        let missing = contexts.iter().filter(|one| state.has.insert(**one)).count() as u64;
        state.misses += missing;
        state.hits += contexts.len() as u64 - missing;
        if self.mode == ModelMode::Count || self.is_wrong {
            return 0;
        }
        now + if missing == 0 { 4 } else { 600 }
    }

    fn on_message(&self, _: Nanos, _: &[(u64, u32)]) -> Vec<(u64, Nanos)> {
        panic!("it is not to be given messages")
    }

    fn counters(&self) -> Vec<(&'static str, u64)> {
        vec![("chip_accesses", self.accesses())]
    }

    fn record(&self, _: Arc<dyn LookupSink>) -> bool {
        false
    }
}

/// Two nodes with such chips.
fn plugged(mode: ModelMode, is_wrong: bool) -> (Bench, Bench, [Arc<Chip>; 2]) {
    let chips = [(); 2].map(|()| Chip::new(mode, is_wrong));
    let (a, b) = pair_plugged(chips.clone().map(|chip| chip as Arc<dyn NicModel>));
    (a, b, chips)
}

#[test]
fn each_request_looks_its_contexts_up_once() {
    let (mut a, mut b, [here, target]) = plugged(ModelMode::Count, false);
    let (mut a_jfc, mut b_jfc) = (a.jfc(4), b.jfc(4));
    let mut queue = a.jetty(4, &a_jfc, |_| {});
    let mut there = b.jetty(4, &b_jfc, |_| {});
    let (local, remote) = (a.seg(4096), b.seg(4096));
    let tpn = a.connect(b.eid());
    for round in 1..=3 {
        a.post(&mut queue, on_seg(Opcode::Write, tpn, &remote, 0), &[local.sge(0, 8)]);
        step_both(&mut a, &b, 1000);
        assert_eq!(a.poll(&mut a_jfc).map(|cqe| cqe.status), Some(CqeStatus::Success));
        // Queue, TP, JFC, segment; a direct request touches no context of the target.
        assert_eq!(here.accesses(), 4 * round);
        assert_eq!(target.accesses(), 0);
    }
    assert_eq!(here.found(), (4, 8), "missing, then there");
    b.post_recv(&mut there, &[remote.sge(0, 64)]);
    let target_kind = SqeTargetKind::Jetty;
    let message = Sqe { tpn, target_kind, target_id: there.id, ..Sqe::new(Opcode::Send) };
    a.post(&mut queue, message, &[local.sge(0, 8)]);
    for _ in 0..10 {
        step_both(&mut a, &b, 1000);
    }
    assert!(b.poll(&mut b_jfc).is_some());
    assert_eq!(here.accesses(), 16);
    // Queue, JFC, segment of the receive.
    assert_eq!(target.accesses(), 3);
    let of_target = target.state().has.clone();
    assert!(of_target.contains(&LookedUp::Queue(there.id)), "{of_target:?}");
}

#[test]
fn the_model_is_told_of_each_object_and_of_none_that_was_refused() {
    let (mut a, _b, [chip, _]) = plugged(ModelMode::Count, false);
    let jfc = a.jfc(4);
    let queue = a.jetty(4, &jfc, |_| {});
    let segment = a.seg(4096);
    let created = chip.state().created.clone();
    let wanted = [
        format!("JFC {}: 1 << 4", jfc.id),
        format!("queue {}: Jetty", queue.id),
        format!("segment {:#x}: 4096", segment.token_id),
    ];
    for object in wanted {
        assert_eq!(created.iter().filter(|(_, one)| *one == object).count(), 1, "{created:?}");
    }
    let refused = Command::CreateJfc { base: 1, depth_log2: 40, eqn: 9, inline: false };
    assert_ne!(a.command(refused).status, CmdStatus::Ok);
    assert_eq!(chip.state().created, created);
}

/// A number that a program may ask for.
const NUMBER: u32 = 7;

#[test]
fn a_destroyed_object_leaves_the_model() {
    let (mut a, mut b, [chip, _]) = plugged(ModelMode::Count, false);
    let mut jfc = a.jfc(4);
    let (local, remote) = (a.seg(4096), b.seg(4096));
    let tpn = a.connect(b.eid());
    for round in 1..=2 {
        let mut queue = a.jetty(4, &jfc, |args| args.id = NUMBER);
        assert_eq!(queue.id, NUMBER);
        a.post(&mut queue, on_seg(Opcode::Write, tpn, &remote, 0), &[local.sge(0, 8)]);
        step_both(&mut a, &b, 1000);
        assert!(a.poll(&mut jfc).is_some());
        a.ok32(Command::DestroyQueue { id: queue.id });
        // The second queue has the number of the first, and is another context.
        assert_eq!(chip.state().misses, 3 + round);
    }
    a.ok(Command::UnregisterSeg { token_id: local.token_id });
    let has_segment =
        |chip: &Chip| chip.state().has.iter().any(|one| matches!(one, LookedUp::Segment { .. }));
    assert!(!has_segment(&chip), "the segment ended");
}

#[test]
fn the_owner_alone_reads_the_counters_of_the_model() {
    let (mut a, _, [chip, _]) = plugged(ModelMode::Count, false);
    chip.on_lookup(0, Lookup::Start, &[LookedUp::Queue(1), LookedUp::Jfc(1)]);
    assert_eq!(a.ok(Command::QueryModelCounters { base: 0, room: 0 }), 1, "there is one");
    let (memory, base) = a.map(2 * MODEL_COUNTER_LEN);
    assert_eq!(a.ok(Command::QueryModelCounters { base, room: 2 }), 1);
    let entry = |at| {
        let word = |n| memory.load_u64(at * MODEL_COUNTER_LEN + 8 * n).unwrap();
        ModelCounter::decode(&std::array::from_fn(word))
    };
    assert_eq!(entry(0), Some(ModelCounter { name: "chip_accesses".to_owned(), value: 2 }));
    assert_eq!(entry(1), None);
    assert!(a.dev.counters().contains(&("chip_accesses", 2)));
    let mut client = a.client(FunctionQuota::NONE);
    assert_eq!(client.ok(Command::QueryModelCounters { base: 0, room: 0 }), 0, "not a client's");
    let outside = Command::QueryModelCounters { base: 1 << 40, room: 1 };
    assert_eq!(a.command(outside).status, CmdStatus::Invalid);
}

#[test]
fn a_device_without_a_model_waits_for_nothing() {
    let (mut a, mut b) = pair();
    let mut jfc = a.jfc(4);
    let mut queue = a.jetty(4, &jfc, |_| {});
    let (local, remote) = (a.seg(4096), b.seg(4096));
    let tpn = a.connect(b.eid());
    a.dev.set_virtual_time(1);
    a.post(&mut queue, on_seg(Opcode::Write, tpn, &remote, 0), &[local.sge(0, 8)]);
    assert!(a.poll(&mut jfc).is_some());
    step_both(&mut a, &b, 1000);
    assert_eq!(a.dev.cfg().lane, crate::ExpressLane::On, "it has its fast paths");
}

/// The model never decides rights: one that keeps what was withdrawn, and says that everything is on the chip, admits
/// nothing.
#[test]
fn a_model_that_is_wrong_admits_nothing() {
    for mode in [ModelMode::Count, ModelMode::Time] {
        let (a, b, [chip, _]) = plugged(mode, true);
        let mut s = scene_of((a, b), 4, 6);
        s.fill();
        let write = on_seg(Opcode::Write, s.tpn, &s.remote, 0);
        assert_eq!(s.complete(write, &[s.local.sge(0, 8)]).status, CqeStatus::Success);
        s.remote.mem.zero(0, 64).unwrap();
        s.b.ok(Command::UnregisterSeg { token_id: s.remote.token_id });
        assert_eq!(s.complete(write, &[s.local.sge(0, 8)]).status, CqeStatus::RemAccessAbort);
        assert_eq!(s.remote.bytes(0, 64), [0; 64]);
        s.a.ok(Command::UnregisterSeg { token_id: s.local.token_id });
        assert_eq!(s.complete(write, &[s.local.sge(0, 8)]).status, CqeStatus::LocAccess);
        assert!(chip.accesses() > 0, "the model was asked");
    }
}

#[test]
fn in_virtual_time_requests_and_messages_start_when_their_contexts_are_there() {
    let (mut a, mut b, _) = plugged(ModelMode::Time, false);
    let (mut a_jfc, mut b_jfc) = (a.jfc(4), b.jfc(4));
    let mut queue = a.jetty(4, &a_jfc, |_| {});
    let mut there = b.jetty(4, &b_jfc, |_| {});
    let (local, remote) = (a.seg(4096), b.seg(4096));
    let tpn = a.connect(b.eid());
    let go = |a: &mut Bench, b: &Bench, now: Nanos| {
        a.now = now;
        a.dev.set_virtual_time(now);
        b.dev.set_virtual_time(now);
        step_both(a, b, 0);
    };
    let mut times = Vec::new();
    for _ in 0..2 {
        let from = a.now;
        a.post(&mut queue, on_seg(Opcode::Write, tpn, &remote, 0), &[local.sge(0, 8)]);
        assert!(a.poll(&mut a_jfc).is_none(), "its contexts are not there");
        let ready_at = a.dev.poll_deadline().expect("the time at which they are");
        go(&mut a, &b, ready_at - 1);
        assert!(a.poll(&mut a_jfc).is_none());
        go(&mut a, &b, ready_at);
        assert_eq!(a.poll(&mut a_jfc).map(|cqe| cqe.status), Some(CqeStatus::Success));
        times.push(ready_at - from);
    }
    assert_eq!(times, [600, 4]);
    b.post_recv(&mut there, &[remote.sge(0, 64)]);
    let target_kind = SqeTargetKind::Jetty;
    let message = Sqe { tpn, target_kind, target_id: there.id, ..Sqe::new(Opcode::Send) };
    a.post(&mut queue, message, &[local.sge(0, 8)]);
    let sent_at = a.now + 4;
    go(&mut a, &b, sent_at);
    assert!(b.poll(&mut b_jfc).is_none(), "the contexts of the receive are not there");
    assert_eq!(b.dev.poll_deadline(), Some(sent_at + 600), "the time at which they are");
    go(&mut a, &b, sent_at + 600);
    assert!(b.poll(&mut b_jfc).is_some());
}
