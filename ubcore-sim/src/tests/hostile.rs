//! A driver that breaks the rules: each is refused by its own check, and nothing is reached.

use udma_abi::cmd::{Access, Command, CreateQueue, Mode, QueueFlags, QueueState, RegisterSeg};
use udma_abi::sqe::{SqeFlags, SqeTargetKind};
use udma_abi::{CmdStatus, CqeStatus, Opcode, Sge, Sqe, counters::Counter, rqe::record};

use super::scene::{Scene, scene};
use super::{on_seg, pair};

#[test]
fn an_entry_of_another_pass_or_with_counts_that_do_not_fit_is_not_carried_out() {
    // Bytes 0 to 3 of an entry: its index in the low half, the owner bit at the end.
    let word = |s: &Scene, flip: u64| {
        let word = s.jetty.ring.load_u64(0).unwrap();
        s.jetty.ring.store_u64(0, word ^ flip).unwrap();
    };
    type Corrupt<'a> = &'a dyn Fn(&mut Scene);
    let cases: [(&str, Opcode, usize, Corrupt<'_>); 4] = [
        ("owner", Opcode::Write, 1, &|s| word(s, 1 << 31)),
        ("index", Opcode::Write, 1, &|s| word(s, 1)),
        ("inline bytes of a READ", Opcode::Read, 0, &|_| {}),
        ("longer than what was posted", Opcode::Write, 3, &|s| s.jetty.pi -= 1),
    ];
    for (name, opcode, pieces, corrupt) in cases {
        let mut s = scene();
        s.fill();
        let sges: Vec<Sge> = (0..pieces).map(|n| s.local.sge(n as u64 * 8, 8)).collect();
        let sge_num = u8::try_from(pieces).unwrap();
        let mut sqe = Sqe { sge_num, ..on_seg(opcode, s.tpn, &s.remote, 0) };
        if pieces == 0 {
            sqe.flags |= SqeFlags::INLINE;
            sqe.inline_len = 8;
        }
        let tail: Vec<u64> = sges.iter().flat_map(|sge| sge.to_words()).collect();
        s.a.put(&mut s.jetty, sqe, &tail);
        corrupt(&mut s);
        s.a.ring(&s.jetty);
        let cqe = s.a.poll(&mut s.jfc).expect("a completion");
        assert_eq!(cqe.status, CqeStatus::LocOperation, "{name}");
        assert_eq!(s.a.dev.counter(Counter::BadSqe), 1, "{name}");
        assert_eq!(s.remote.bytes(0, 64), [0; 64], "{name}");
    }
}

#[test]
fn a_bound_queue_reaches_nothing_but_its_peer() {
    let (mut a, mut b) = pair();
    let mut jfc = a.jfc(6);
    let mut jetty = a.jetty(4, &jfc, |args| {
        args.mode = Mode::Rc;
        args.flags = QueueFlags::ERROR_SUSPEND;
    });
    let (local, remote) = (a.seg(4096), b.seg(4096));
    let (tpn, own) = (a.connect(b.eid()), a.connect(a.eid()));
    let id = jetty.id;
    a.ok(Command::Bind { id, tpn, remote_id: 1024, psns: None });
    let send = |target_kind, target_id| Sqe {
        flags: SqeFlags::COMPLETE,
        tpn,
        target_kind,
        target_id,
        ..Sqe::new(Opcode::Send)
    };
    let wrong = [
        Sqe { tpn: own, ..on_seg(Opcode::Write, tpn, &remote, 0) },
        send(SqeTargetKind::Jetty, 1025),
        send(SqeTargetKind::Jfr, 1024),
    ];
    for sqe in wrong {
        a.post(&mut jetty, sqe, &[local.sge(0, 8)]);
        let cqe = a.poll(&mut jfc).expect("a completion");
        assert_eq!(cqe.status, CqeStatus::LocOperation, "{sqe:?}");
        assert_eq!(a.poll(&mut jfc).unwrap().status, CqeStatus::WrSuspendDone);
        a.ok(Command::ModifyState { id, state: QueueState::Ready });
    }
}

#[test]
fn requests_that_their_mode_does_not_carry_end_here() {
    let (mut a, b) = pair();
    let mut jfc = a.jfc(6);
    let local = a.seg(1 << 20);
    let tpn = a.connect(b.eid());
    let unreliable = a.ok32(Command::Connect { eid: b.eid(), mode: Mode::Um });
    let send = |tpn| Sqe {
        flags: SqeFlags::COMPLETE,
        tpn,
        target_kind: SqeTargetKind::Jetty,
        target_id: 1024,
        ..Sqe::new(Opcode::Send)
    };
    let huge = [Sge { len: 1 << 28, token_id: 0, va: 0 }; 5];
    let mtu = a.dev.cfg().mtu;
    let cases = [
        (Mode::Rm, unreliable, vec![local.sge(0, 8)], CqeStatus::LocOperation),
        (Mode::Um, tpn, vec![local.sge(0, 8)], CqeStatus::LocOperation),
        (Mode::Um, unreliable, vec![local.sge(0, mtu + 1)], CqeStatus::LocLen),
        (Mode::Rm, tpn, huge.to_vec(), CqeStatus::LocLen),
    ];
    for (mode, tpn, sges, status) in cases {
        let mut jetty = a.jetty(4, &jfc, |args| args.mode = mode);
        a.post(&mut jetty, send(tpn), &sges);
        let cqe = a.poll(&mut jfc).expect("a completion");
        assert_eq!(cqe.status, status, "{mode:?} on {tpn}");
        assert_eq!(a.poll(&mut jfc).unwrap().status, CqeStatus::WrFlushErrDone);
    }
}

#[test]
fn an_impossible_receive_index_posts_nothing() {
    let mut s = scene();
    let jfc = s.b.jfc(6);
    let to = s.b.jetty(4, &jfc, |_: &mut CreateQueue| {});
    to.record.store_u32_release(record::RQ_PI, 17).unwrap();
    let query = s.b.command(Command::QueryQueue { id: to.id });
    assert_eq!(query.results[2], 0, "receives left");
    let send = Sqe {
        flags: SqeFlags::COMPLETE,
        tpn: s.tpn,
        target_kind: SqeTargetKind::Jetty,
        target_id: to.id,
        ..Sqe::new(Opcode::Send)
    };
    s.a.post(&mut s.jetty, send, &[s.local.sge(0, 8)]);
    for _ in 0..100 {
        s.a.now += 100_000;
        s.a.dev.step(s.a.now);
        s.b.dev.step(s.a.now);
    }
    assert_eq!(s.a.poll(&mut s.jfc).unwrap().status, CqeStatus::RnrRetryExceeded);
    assert!(s.b.dev.counter(Counter::BadDoorbell) > 0);
}

#[test]
fn a_registration_is_checked_as_a_whole() {
    let (mut a, _b) = pair();
    let seg = a.seg(4096);
    let token_id = a.ok32(Command::AllocTid);
    let good = RegisterSeg {
        token_id,
        iova: seg.iova,
        va: seg.va,
        len: 4096,
        access: Access::READ | Access::WRITE | Access::ATOMIC,
        token_value: Some(1),
    };
    let refused = [
        (RegisterSeg { token_id: seg.token_id, ..good }, CmdStatus::InUse),
        (RegisterSeg { token_id: token_id + (1 << 8), ..good }, CmdStatus::NotFound),
        (RegisterSeg { token_id: token_id + 1, ..good }, CmdStatus::NotFound),
        (RegisterSeg { va: u64::MAX - 4094, ..good }, CmdStatus::Invalid),
        (RegisterSeg { len: 0, ..good }, CmdStatus::Invalid),
        (RegisterSeg { access: Access::WRITE, ..good }, CmdStatus::Invalid),
        (RegisterSeg { access: Access::READ | Access::ATOMIC, ..good }, CmdStatus::Invalid),
        (RegisterSeg { access: Access::LOCAL_ONLY | Access::READ, ..good }, CmdStatus::Invalid),
    ];
    for (args, status) in refused {
        assert_eq!(a.command(Command::RegisterSeg(args)).status, status, "{args:?}");
    }
    let local = RegisterSeg { access: Access::LOCAL_ONLY, ..good };
    assert_eq!(a.ok(Command::RegisterSeg(local)), 0, "bytes shared");
}
