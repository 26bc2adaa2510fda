//! Several functions of one device: what one has, no other names or touches.

use std::sync::Arc;

use udma_abi::cmd::{Access, Command, Mode, QueueState, RegisterSeg};
use udma_abi::counters::Counter;
use udma_abi::doorbell::{self, JfcDoorbell};
use udma_abi::sqe::{SqeFlags, SqeTargetKind};
use udma_abi::{CmdStatus, CqeStatus, Eqe, EqeKind, Opcode, Sqe, regs};
use urma_mem::Region;

use super::{ARENA, Bench, BenchJfc, BenchQueue, BenchSeg, Raises, event_at, on_seg, pair};
use crate::device::{FunctionCfg, FunctionQuota, QuotaKind};

impl Bench {
    /// The driver of another function of the same device.
    pub(super) fn client(&self, quota: FunctionQuota) -> Self {
        let raises = Arc::new(Raises::default());
        let cfg = FunctionCfg { uasid: 1000, quota };
        let function = self.dev.add_function(cfg, Arc::<Raises>::clone(&raises)).unwrap();
        let arena = Region::private(ARENA).unwrap();
        Self::over(Arc::clone(&self.dev), function, (raises, arena))
    }

    fn refused(&mut self, command: Command) {
        assert_eq!(self.command(command).status, CmdStatus::NotFound, "{command:?}");
    }
}

/// A client with one object of each kind.
struct Client {
    bench: Bench,
    jfc: BenchJfc,
    jetty: BenchQueue,
    seg: BenchSeg,
    tpn: u32,
}

impl Client {
    fn of(owner: &Bench) -> Self {
        Self::with(owner, FunctionQuota::NONE)
    }

    fn with(owner: &Bench, quota: FunctionQuota) -> Self {
        let mut bench = owner.client(quota);
        let jfc = bench.jfc(6);
        let jetty = bench.jetty(4, &jfc, |_| {});
        let seg = bench.seg(1 << 16);
        let tpn = bench.connect(bench.eid());
        Self { bench, jfc, jetty, seg, tpn }
    }

    /// The end of a request of this client.
    fn end_of(&mut self, sqe: Sqe, of: &BenchSeg) -> CqeStatus {
        self.bench.post(&mut self.jetty, sqe, &[of.sge(0, 8)]);
        self.next()
    }

    fn next(&mut self) -> CqeStatus {
        for _ in 0..10_000 {
            if let Some(cqe) = self.bench.poll(&mut self.jfc) {
                return cqe.status;
            }
            self.bench.now += 100_000;
            self.bench.dev.step(self.bench.now);
        }
        panic!("no completion");
    }
}

fn send_to(tpn: u32, target_id: u32) -> Sqe {
    let (flags, target_kind) = (SqeFlags::COMPLETE, SqeTargetKind::Jetty);
    Sqe { flags, tpn, target_kind, target_id, ..Sqe::new(Opcode::Send) }
}

#[test]
fn clients_of_one_device_reach_each_other_by_tokens_and_messages() {
    let (owner, _) = pair();
    let (mut a, mut b) = (Client::of(&owner), Client::of(&owner));
    assert_eq!(a.bench.eid(), b.bench.eid());
    a.seg.mem.store_u64(0, 0x1234_5678).unwrap();
    let write = on_seg(Opcode::Write, a.tpn, &b.seg, 64);
    let own = BenchSeg { mem: a.seg.mem.clone(), ..a.seg };
    assert_eq!(a.end_of(write, &own), CqeStatus::Success);
    assert_eq!(b.seg.mem.load_u64(64), Ok(0x1234_5678));
    b.bench.post_recv(&mut b.jetty, &[b.seg.sge(128, 64)]);
    let send = send_to(a.tpn, b.jetty.id);
    assert_eq!(a.end_of(send, &own), CqeStatus::Success);
    assert_eq!((b.next(), b.seg.mem.load_u64(128)), (CqeStatus::Success, Ok(0x1234_5678)));
    // A wrong token is refused between clients as between nodes.
    let wrong = Sqe { token_value: b.seg.token ^ 1, ..write };
    assert_eq!(a.end_of(wrong, &own), CqeStatus::RemAccessAbort);
}

#[test]
fn no_command_names_an_object_of_another_function() {
    let (owner, _) = pair();
    let mut a = Client::of(&owner);
    let mut b = Client::of(&owner);
    let (group, (eqn, _)) = (
        a.bench.ok32(Command::CreateGroup { id: 0, by_hint: false, token_value: None }),
        a.bench.eq(),
    );
    let (id, jfcn, token_id) = (a.jetty.id, a.jfc.id, a.seg.token_id);
    let spare = a.bench.ok32(Command::AllocTid);
    let (_, base) = b.bench.map(4096);
    let before = b.bench.function.foreign_accesses();
    let commands = [
        Command::ModifyState { id, state: QueueState::Error },
        Command::ModifyRxThreshold { id, threshold: 1 },
        Command::QueryQueue { id },
        Command::DestroyQueue { id },
        Command::Bind { id, tpn: b.tpn, remote_id: 1, psns: None },
        Command::Unbind { id },
        Command::ModifyJfc { jfcn, count: 9, period_us: 9 },
        Command::DestroyJfc { jfcn },
        Command::DestroyEq { eqn },
        Command::CreateJfc { base, depth_log2: 4, eqn, inline: false },
        Command::DestroyGroup { id: group },
        Command::FreeTid { token_id: spare },
        Command::UnregisterSeg { token_id },
        Command::RegisterSeg(RegisterSeg {
            token_id: spare,
            iova: base,
            va: 0x1000,
            len: 4096,
            access: Access::READ,
            token_value: None,
        }),
    ];
    for command in commands {
        b.bench.refused(command);
    }
    let refused = b.bench.function.foreign_accesses() - before;
    assert_eq!(refused, commands.len() as u64);
    // Nothing of the owner changed.
    a.seg.mem.store_u64(0, 7).unwrap();
    let write = on_seg(Opcode::Write, a.tpn, &b.seg, 0);
    let own = BenchSeg { mem: a.seg.mem.clone(), ..a.seg };
    assert_eq!(a.end_of(write, &own), CqeStatus::Success);
    a.bench.ok(Command::FreeTid { token_id: spare });
    a.bench.ok(Command::DestroyEq { eqn });
    a.bench.ok(Command::DestroyGroup { id: group });
}

#[test]
fn no_queue_is_made_of_parts_of_another_function() {
    let (owner, _) = pair();
    let (mut a, mut b) = (Client::of(&owner), Client::of(&owner));
    let group = a.bench.ok32(Command::CreateGroup { id: 0, by_hint: false, token_value: None });
    let jfr = a.bench.jetty(4, &a.jfc, |args| {
        (args.kind, args.sq) = (udma_abi::cmd::CmdQueueKind::Jfr, None);
    });
    let args = std::cell::Cell::new(None);
    b.bench.jetty(4, &b.jfc, |with| args.set(Some(*with)));
    let args = args.get().unwrap();
    let jfcn = a.jfc.id;
    let sq = args.sq.map(|sq| udma_abi::cmd::SqArgs { jfcn, ..sq });
    let rq = args.rq.map(|rq| udma_abi::cmd::RqArgs { jfcn, ..rq });
    let with = |change: &dyn Fn(&mut udma_abi::cmd::CreateQueue)| {
        let mut changed = args;
        change(&mut changed);
        Command::CreateQueue(changed)
    };
    b.bench.refused(with(&|queue| queue.sq = sq));
    b.bench.refused(with(&|queue| queue.rq = rq));
    b.bench.refused(with(&|queue| queue.group = group));
    b.bench.refused(with(&|queue| (queue.shared_jfr, queue.rq) = (jfr.id, None)));
    // An id that another function has is taken.
    let taken = with(&|queue| queue.id = a.jetty.id);
    assert_eq!(b.bench.command(taken).status, CmdStatus::Exists);
}

#[test]
fn no_doorbell_reaches_a_queue_or_jfc_of_another_function() {
    let (owner, _) = pair();
    let (mut a, b) = (Client::of(&owner), Client::of(&owner));
    let write = on_seg(Opcode::Write, a.tpn, &b.seg, 0);
    let mut sqe = write;
    sqe.sge_num = 1;
    let block = a.bench.put(&mut a.jetty, sqe, &a.seg.sge(0, 8).to_words());
    let (dev, stranger) = (&b.bench.dev, &b.bench.function);
    let bad = dev.counter(Counter::BadDoorbell);
    let page = regs::JETTY_PAGES + u64::from(a.jetty.id) * doorbell::PAGE_LEN;
    dev.write32(|| 0, stranger, (page + doorbell::SQ_PI, a.jetty.pi));
    dev.write_block(|| 0, stranger, (page + doorbell::DWQE, &block));
    assert!(a.bench.poll(&mut a.jfc).is_none(), "the queue did not run");
    a.bench.ring(&a.jetty);
    let ends = JfcDoorbell { jfcn: a.jfc.id, ci: 1, arm: None, arm_sn: 0 };
    dev.write64(|| 0, stranger, (regs::JFC_DB, ends.encode()));
    assert_eq!(dev.counter(Counter::BadDoorbell) - bad, 3);
    assert_eq!(stranger.foreign_accesses(), 3);
    assert_eq!(a.next(), CqeStatus::Success);
    let (eqn, _) = a.bench.eq();
    dev.write64(|| 0, stranger, (regs::EQ_CI, u64::from(eqn) << 32));
    assert_eq!(stranger.foreign_accesses(), 4);
}

#[test]
fn local_pieces_are_those_of_the_functions_own_segments() {
    let (owner, _) = pair();
    let (mut a, mut b) = (Client::of(&owner), Client::of(&owner));
    // The send side: bytes of another's segment do not leave.
    let write = on_seg(Opcode::Write, b.tpn, &b.seg, 0);
    let stolen = BenchSeg { mem: a.seg.mem.clone(), ..a.seg };
    assert_eq!(b.end_of(write, &stolen), CqeStatus::LocAccess);
    // The receive side: nothing is placed in another's segment.
    let mut c = Client::of(&owner);
    let of_a = BenchSeg { mem: a.seg.mem.clone(), ..a.seg };
    c.bench.post_recv(&mut c.jetty, &[of_a.sge(0, 64)]);
    let own = BenchSeg { mem: a.seg.mem.clone(), ..a.seg };
    a.seg.mem.store_u64(0, 1).unwrap();
    let send = send_to(a.tpn, c.jetty.id);
    assert_eq!(a.end_of(send, &own), CqeStatus::RemOperation);
    assert_eq!(c.next(), CqeStatus::LocAccess);
}

#[test]
fn memory_of_one_function_is_not_mapped_for_another() {
    let (owner, _) = pair();
    let (mut a, mut b) = (owner.client(FunctionQuota::NONE), owner.client(FunctionQuota::NONE));
    // The same device addresses in both, of different memory.
    let (memory, base) = a.map(4096);
    let token_id = b.ok32(Command::AllocTid);
    let foreign = RegisterSeg {
        token_id,
        iova: base,
        va: 0x1000,
        len: 4096,
        access: Access::READ,
        token_value: None,
    };
    assert_eq!(b.command(Command::RegisterSeg(foreign)).status, CmdStatus::Invalid);
    let faults = b.dev.counter(Counter::DmaFault);
    assert_ne!(faults, 0);
    let counters = Command::QueryCounters { base, room: 4 };
    assert_eq!(b.command(counters).status, CmdStatus::Invalid);
    assert_eq!(memory.load_u64(0), Ok(0));
}

#[test]
fn a_path_is_given_back_by_its_function_alone() {
    let (owner, _) = pair();
    let (mut a, mut b) = (Client::of(&owner), owner.client(FunctionQuota::NONE));
    b.refused(Command::Disconnect { tpn: a.tpn });
    a.bench.ok(Command::Disconnect { tpn: a.tpn });
    a.bench.refused(Command::Disconnect { tpn: a.tpn });
}

#[test]
fn what_is_the_owners_alone_is_not_a_clients() {
    let (owner, _) = pair();
    let mut a = Client::of(&owner);
    let (_, base) = a.bench.map(1 << 16);
    let (tpn, token_id, token_value, va) = (a.tpn, a.seg.token_id, a.seg.token, a.seg.va);
    for command in [
        Command::PoolGrow { base, block_log2: 8, blocks: 16 },
        Command::PoolShrink { base },
        Command::MapSeg { tpn, token_id, token_value, va, len: 8 },
    ] {
        assert_eq!(a.bench.command(command).status, CmdStatus::Unsupported, "{command:?}");
    }
    // Counters are those of its own queues.
    let mut b = Client::of(&owner);
    let own = BenchSeg { mem: b.seg.mem.clone(), ..b.seg };
    let write = on_seg(Opcode::Write, b.tpn, &a.seg, 0);
    assert_eq!(b.end_of(write, &own), CqeStatus::Success);
    let count = |bench: &mut Bench| {
        let (memory, base) = bench.map(4096);
        let room = u32::try_from(Counter::ALL.len()).unwrap();
        bench.ok(Command::QueryCounters { base, room });
        (0..Counter::ALL.len()).map(|at| memory.load_u64(at * 8).unwrap()).sum::<u64>()
    };
    assert_eq!(count(&mut a.bench), 0);
    assert_ne!(count(&mut b.bench), 0);
}

#[test]
fn an_event_goes_to_the_function_of_its_object() {
    let (owner, _) = pair();
    let (mut a, mut b) = (Client::of(&owner), Client::of(&owner));
    let events = [a.bench.async_events(), b.bench.async_events()];
    for bench in [&mut a.bench, &mut b.bench] {
        bench.dev.write32(|| 0, &bench.function, (regs::CONTROL, regs::control::ENABLE));
    }
    let stolen = BenchSeg { mem: b.seg.mem.clone(), ..b.seg };
    let write = on_seg(Opcode::Write, a.tpn, &b.seg, 0);
    assert_eq!(a.end_of(write, &stolen), CqeStatus::LocAccess);
    let event = Eqe::Async { code: EqeKind::JettyErr as u8, object: a.jetty.id };
    assert_eq!(event_at(&events[0], 0), Some(event));
    assert_eq!(event_at(&events[1], 0), None);
    assert_eq!((a.bench.raises.count(), b.bench.raises.count()), (1, 0));
}

#[test]
fn quotas_of_each_kind_answer_by_name_and_are_returned() {
    let (owner, other) = pair();
    let quota = FunctionQuota::NONE
        .with(QuotaKind::Jetties, 2)
        .with(QuotaKind::Jfcs, 2)
        .with(QuotaKind::Segments, 2)
        .with(QuotaKind::Paths, 2)
        .with(QuotaKind::Work, 64);
    let mut a = Client::with(&owner, quota);
    let group = Command::CreateGroup { id: 0, by_hint: false, token_value: None };
    let id = a.bench.ok32(group);
    assert_eq!(a.bench.command(group).status, CmdStatus::Quota);
    let (_, base) = a.bench.map(4096);
    let jfc = Command::CreateJfc { base, depth_log2: 4, eqn: udma_abi::cmd::NONE, inline: false };
    let jfcn = a.bench.ok32(jfc);
    assert_eq!(a.bench.command(jfc).status, CmdStatus::Quota);
    let eq = Command::CreateEq { base, depth_log2: 4, vector: 1 };
    assert_eq!(a.bench.command(eq).status, CmdStatus::Quota);
    let token_id = a.bench.ok32(Command::AllocTid);
    assert_eq!(a.bench.command(Command::AllocTid).status, CmdStatus::Quota);
    // A path counts once.
    let (eid, mode) = (a.bench.eid(), Mode::Rm);
    a.bench.ok(Command::Connect { eid, mode });
    a.bench.ok(Command::Connect { eid: other.eid(), mode });
    assert_eq!(a.bench.command(Command::Connect { eid, mode }).status, CmdStatus::Quota);
    // What ended can be made again.
    a.bench.ok(Command::DestroyGroup { id });
    a.bench.ok(Command::DestroyJfc { jfcn });
    a.bench.ok(Command::FreeTid { token_id });
    // 32 of 64 requests are those of the first jetty.
    let args = std::cell::Cell::new(None);
    let jetty = a.bench.jetty(4, &a.jfc, |with| args.set(Some(*with)));
    a.bench.ok(Command::DestroyQueue { id: jetty.id });
    let longer = |with: udma_abi::cmd::CreateQueue| udma_abi::cmd::CreateQueue {
        sq: with.sq.map(|sq| udma_abi::cmd::SqArgs { blocks_log2: 6, ..sq }),
        ..with
    };
    let used = |bench: &Bench| bench.function.quotas().map(|quota| quota.used);
    let before = used(&a.bench);
    // The ring would not be mapped, either: the quota is looked at after that.
    let (_, base) = a.bench.map(64 << 6);
    let mut args = longer(args.get().unwrap());
    args.sq = args.sq.map(|sq| udma_abi::cmd::SqArgs { base, ..sq });
    assert_eq!(a.bench.command(Command::CreateQueue(args)).status, CmdStatus::Quota);
    let after = used(&a.bench);
    assert_eq!(before[..5], after[..5], "a refusal charges nothing");
    // Another client has its own.
    Client::with(&owner, quota);
}

#[test]
fn the_end_of_a_function_ends_its_objects_and_those_of_no_other() {
    let (owner, _) = pair();
    let (mut a, b) = (Client::of(&owner), Client::of(&owner));
    let own = BenchSeg { mem: a.seg.mem.clone(), ..a.seg };
    let gone = BenchSeg { mem: b.seg.mem.clone(), ..b.seg };
    let (group, (eqn, _)) = {
        let mut b = b;
        let group = b.bench.ok32(Command::CreateGroup { id: 0, by_hint: false, token_value: None });
        let eq = b.bench.eq();
        let send = send_to(a.tpn, b.jetty.id);
        // It waits for a receive, and gets the end of its target.
        a.bench.post(&mut a.jetty, send, &[a.seg.sge(0, 8)]);
        // Requests of the function that ends are dropped with it.
        let back = send_to(b.tpn, a.jetty.id);
        b.bench.post(&mut b.jetty, back, &[b.seg.sge(0, 8)]);
        let (now, function) = (b.bench.now, Arc::clone(&b.bench.function));
        b.bench.dev.remove_function(now, &function);
        let used = function.quotas().map(|quota| quota.used);
        assert_eq!(used[..5], [0; 5]);
        (group, eq)
    };
    assert_eq!(a.next(), CqeStatus::RemOperation);
    let write = on_seg(Opcode::Write, a.tpn, &gone, 0);
    assert_eq!(a.end_of(write, &own), CqeStatus::RemAccessAbort);
    let look = a.bench.dev.look();
    assert_eq!((look.queues.len(), look.jfcs.len(), look.segments.len()), (1, 1, 1));
    assert!(!look.groups.iter().any(|(id, _)| *id == group));
    assert_eq!(look.paths.iter().map(|path| path.users).sum::<u32>(), 1);
    assert!(a.bench.dev.core.tables.eqs.get(eqn).is_none_or(|eq| eq.load().is_none()));
    // The survivor's own things work.
    let write = on_seg(Opcode::Write, a.tpn, &own, 64);
    assert_eq!(a.end_of(write, &own), CqeStatus::Success);
    // Its numbers serve the next client.
    let mut c = Client::of(&owner);
    let write = on_seg(Opcode::Write, c.tpn, &own, 128);
    let of_c = BenchSeg { mem: c.seg.mem.clone(), ..c.seg };
    assert_eq!(c.end_of(write, &of_c), CqeStatus::Success);
}

#[test]
fn a_reset_of_one_function_leaves_the_others() {
    let (owner, _) = pair();
    let (mut a, mut b) = (Client::of(&owner), Client::of(&owner));
    b.bench.dev.write32(|| 0, &b.bench.function, (regs::CONTROL, regs::control::RESET));
    assert_eq!(b.bench.dev.read(&b.bench.function, regs::STATUS), 0);
    let own = BenchSeg { mem: a.seg.mem.clone(), ..a.seg };
    let write = on_seg(Opcode::Write, a.tpn, &own, 64);
    assert_eq!(a.end_of(write, &own), CqeStatus::Success);
    b.bench.start();
    b.jfc = b.bench.jfc(6);
    b.jetty = b.bench.jetty(4, &b.jfc, |args| args.mode = Mode::Rm);
}

#[test]
fn tokens_of_other_functions_cannot_be_tried_fast() {
    let (owner, _) = pair();
    let (mut a, b) = (Client::of(&owner), Client::of(&owner));
    let own = BenchSeg { mem: a.seg.mem.clone(), ..a.seg };
    let right = on_seg(Opcode::Write, a.tpn, &b.seg, 0);
    let guess = |value| Sqe { token_value: value, ..right };
    for value in 0..100 {
        assert_eq!(a.end_of(guess(value), &own), CqeStatus::RemAccessAbort);
    }
    // A right one now looks like the others, and its bytes are not placed.
    a.seg.mem.store_u64(0, 9).unwrap();
    assert_eq!(a.end_of(right, &own), CqeStatus::RemAccessAbort);
    assert_eq!(b.seg.mem.load_u64(0), Ok(0));
    // Its own segments, and other clients, are not held up.
    let to_own = on_seg(Opcode::Write, a.tpn, &own, 64);
    assert_eq!(a.end_of(to_own, &own), CqeStatus::Success);
    let mut c = Client::of(&owner);
    let of_c = BenchSeg { mem: c.seg.mem.clone(), ..c.seg };
    assert_eq!(c.end_of(on_seg(Opcode::Write, c.tpn, &b.seg, 8), &of_c), CqeStatus::Success);
    for _ in 0..4 {
        a.bench.now += 300_000_000;
        a.bench.dev.step(a.bench.now);
    }
    assert_eq!(a.end_of(right, &own), CqeStatus::Success);
    assert_eq!(b.seg.mem.load_u64(0), Ok(9));
}
