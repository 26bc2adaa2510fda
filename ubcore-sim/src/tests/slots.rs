//! JFCs of a function whose driver rings by slots: which arm counts for a completion.

use std::sync::Arc;

use udma_abi::{
    Opcode, Sqe,
    cmd::RqArgs,
    counters::Counter,
    doorbell::CqArm,
    slots::{SLOT_LEN, SlotArm, SlotDoorbell},
    sqe::{SqeFlags, SqeTargetKind},
};
use urma_mem::{
    Pages, Region,
    doorbells::{DoorbellSlot, DoorbellSlots, RungSlots, SlotGeometry},
};

use super::{Bench, BenchJfc, BenchQueue, BenchSeg, Raises};
use crate::device::{FunctionCfg, FunctionQuota};

/// A served function that sends to itself; its JFC of receives rings by a slot.
struct SlotClient {
    bench: Bench,
    /// JFC of the receives, which rings by the slot.
    jfc: BenchJfc,
    jetty: BenchQueue,
    seg: BenchSeg,
    tpn: u32,
    slot: DoorbellSlot,
    rung: RungSlots,
}

impl SlotClient {
    fn new() -> Self {
        let (owner, _) = super::pair();
        let raises = Arc::new(Raises::default());
        let cfg = FunctionCfg { uasid: 1000, quota: FunctionQuota::NONE };
        let function = owner.dev.add_function(cfg, Arc::<Raises>::clone(&raises)).unwrap();
        let memory = Region::shared(SLOT_LEN, Pages::Base).unwrap();
        function.ring_by(&memory);
        let arena = Region::private(super::ARENA).unwrap();
        let mut bench = Bench::over(Arc::clone(&owner.dev), function, (raises, arena));
        let (eqn, _) = bench.eq();
        let (sends, jfc) = (bench.jfc(6), bench.jfc_on(6, eqn));
        let jetty = receiving(&mut bench, &sends, &jfc);
        let (seg, tpn) = (bench.seg(4096), bench.connect(bench.eid()));
        let slots = DoorbellSlots::new(memory.clone(), SlotGeometry::DEVICE).unwrap();
        let slots = Arc::new(slots);
        let rung = RungSlots::new(memory, SlotGeometry::DEVICE).unwrap();
        let slot = slots.take().unwrap();
        let mut served = Self { bench, jfc, jetty, seg, tpn, slot, rung };
        served.moved();
        served.look();
        served
    }

    /// The driver stores its consumer index.
    fn moved(&self) {
        self.slot.ring(self.value(), || ());
    }

    /// The driver stores an arm.
    fn arm(&self, arm: CqArm) {
        let detail = SlotArm { arm, arm_sn: 0 }.encode();
        self.slot.ring_counted(self.value(), detail, || ());
    }

    fn value(&self) -> u64 {
        SlotDoorbell::Jfc { jfcn: self.jfc.id, ci: self.jfc.ci }.encode()
    }

    /// The device takes what rang.
    fn look(&mut self) {
        let (bench, rung) = (&self.bench, &mut self.rung);
        rung.take(|slot| bench.dev.ring_slot(|| bench.now, &bench.function, slot));
    }

    /// A message arrives. The doorbells of its receive and its request are registers.
    fn receive(&mut self, flags: SqeFlags) {
        self.bench.post_recv(&mut self.jetty, &[self.seg.sge(0, 64)]);
        let (target_kind, target_id) = (SqeTargetKind::Jetty, self.jetty.id);
        let send = Sqe { flags, tpn: self.tpn, target_kind, target_id, ..Sqe::new(Opcode::Send) };
        self.bench.post(&mut self.jetty, send, &[self.seg.sge(64, 8)]);
        for _ in 0..4 {
            self.bench.now += 1000;
            self.bench.dev.step(self.bench.now);
        }
        assert!(self.bench.peek(&self.jfc).is_some(), "it is received");
    }

    /// The driver takes one completion, and rings.
    fn consume(&mut self) {
        assert!(self.bench.peek(&self.jfc).is_some());
        self.jfc.ci += 1;
        self.moved();
    }

    fn events(&self) -> u64 {
        self.bench.raises.count()
    }
}

/// A jetty whose receives complete at another JFC than its requests.
fn receiving(bench: &mut Bench, sends: &BenchJfc, receives: &BenchJfc) -> BenchQueue {
    bench.jetty(6, sends, |args| {
        args.rq = args.rq.take().map(|rq| RqArgs { jfcn: receives.id, ..rq });
    })
}

#[test]
fn an_arm_that_a_slot_shows_counts_for_a_completion_written_after_it() {
    let mut s = SlotClient::new();
    s.arm(CqArm::Solicited);
    s.look();
    s.receive(SqeFlags::empty());
    s.consume();
    // The next arm is stored and not taken: the message has one event, by this arm.
    s.arm(CqArm::Solicited);
    s.receive(SqeFlags::SOLICITED);
    assert_eq!(s.events(), 1);
    s.look();
    assert_eq!(s.events(), 1, "the arm was used");
    s.consume();
    s.receive(SqeFlags::SOLICITED);
    s.look();
    assert_eq!(s.events(), 1, "no arm is left");
    s.consume();
    // Of another kind than the one before it.
    s.arm(CqArm::Any);
    s.look();
    s.arm(CqArm::Solicited);
    s.receive(SqeFlags::empty());
    s.look();
    assert_eq!(s.events(), 1, "not solicited");
}

#[test]
fn an_arm_whose_completion_is_consumed_before_the_slot_is_taken_has_its_event() {
    let mut s = SlotClient::new();
    s.arm(CqArm::Any);
    s.receive(SqeFlags::empty());
    assert_eq!(s.events(), 1, "not armed before");
    s.consume();
    s.look();
    s.receive(SqeFlags::empty());
    assert_eq!(s.events(), 1, "one event for one arm");
}

#[test]
fn an_arm_is_for_completions_that_the_index_beside_it_leaves() {
    let mut s = SlotClient::new();
    s.arm(CqArm::Solicited);
    s.look();
    s.receive(SqeFlags::SOLICITED);
    assert_eq!(s.events(), 1);
    // The device has not taken the index yet: what it counts as waiting is consumed.
    s.consume();
    s.arm(CqArm::Solicited);
    s.receive(SqeFlags::empty());
    assert_eq!(s.events(), 1, "consumed before the arm");
    s.look();
    assert_eq!(s.events(), 1);
}

#[test]
fn another_jfc_of_the_slot_starts_with_the_count_that_it_finds() {
    let mut s = SlotClient::new();
    s.arm(CqArm::Any);
    s.look();
    s.receive(SqeFlags::empty());
    s.consume();
    s.look();
    assert_eq!(s.events(), 1);
    let (eqn, _) = s.bench.eq();
    s.jfc = s.bench.jfc_on(6, eqn);
    let sends = s.bench.jfc(6);
    s.jetty = receiving(&mut s.bench, &sends, &s.jfc);
    s.moved();
    s.look();
    s.receive(SqeFlags::empty());
    assert_eq!(s.events(), 1, "the arm of the JFC before");
    s.consume();
    s.arm(CqArm::Any);
    s.receive(SqeFlags::empty());
    assert_eq!(s.events(), 2);
}

#[test]
fn a_slot_that_names_another_jfc_or_an_index_beyond_the_ring_arms_nothing() {
    let mut s = SlotClient::new();
    let ring = |s: &SlotClient, jfcn, ci| {
        let detail = SlotArm { arm: CqArm::Any, arm_sn: 0 }.encode();
        s.slot.ring_counted(SlotDoorbell::Jfc { jfcn, ci }.encode(), detail, || ());
    };
    ring(&s, s.jfc.id + 1, 0);
    s.receive(SqeFlags::SOLICITED);
    ring(&s, s.jfc.id, 900);
    s.receive(SqeFlags::SOLICITED);
    let before = s.bench.dev.counter(Counter::BadDoorbell);
    s.look();
    assert_eq!(s.bench.dev.counter(Counter::BadDoorbell), before + 1);
    assert_eq!(s.events(), 0);
}
