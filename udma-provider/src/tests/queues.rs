//! An honest device: rings, doorbells, events, segments.

use std::{sync::atomic::Ordering, time::Duration};

use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use udma_abi::{Cqe, CqeStatus, Eqe, EqeKind, Opcode, cmd::Command, counters::ModelCounter};
use urma_core::{
    Arm, Completion, CompletionFlags, CrOpcode, CrStatus, Device, Eid, JettyId, LocalSge, Mapping,
    OrderType, Path, PathKind, PostReason, QueueCfg, QueueKind, RecvCfg, RecvWr, RemoteAddr,
    SegmentAccess, SegmentCfg, SendCfg, SendOp, SendWr, Status, TargetId, TargetKind, Token,
    TokenPolicy, TransportMode, WrFlags,
    ops::{DeviceOps, SegmentOps},
};
use urma_mem::Region;

use super::{Bench, contexts, jfc_cfg, jfr_cfg, jfs_cfg, nop, poll_all, signalled};

#[test]
fn a_batch_rings_once_and_a_single_block_goes_directly() {
    let bench = Bench::new();
    let mut jfc = bench.jfc(64);
    let mut jfs = bench.jfs(jfc.id, 32);
    let send = jfs.send.as_mut().unwrap();
    send.post_send(&[signalled(1), signalled(2), signalled(3)]).unwrap();
    assert_eq!(bench.toy.doorbells(), (1, 0));
    send.post_send(&[signalled(4)]).unwrap();
    assert_eq!(bench.toy.doorbells(), (1, 1));
    assert!(send.post_send(&[]).is_ok());
    assert_eq!(bench.toy.doorbells(), (1, 1));
    let done = poll_all(&mut jfc);
    assert_eq!(contexts(&done), [1, 2, 3, 4]);
    assert!(done.iter().all(|c| c.status == CrStatus::Success && c.queue_ctx == 0xC0));
    assert!(done.iter().all(|c| c.local_id == jfs.id && c.flags == CompletionFlags::empty()));
}

/// With pages reserved (`sysctl vm.nr_hugepages=8`) the rings lie in them; without, in base pages.
#[test]
fn rings_of_huge_pages_carry_requests() {
    let huge = || {
        let maps = std::fs::read_to_string("/proc/self/smaps").unwrap();
        maps.lines()
            .filter(|line| line.starts_with("Shared_Hugetlb:"))
            .any(|line| !line.ends_with(" 0 kB"))
            || maps
                .lines()
                .filter(|line| line.starts_with("Private_Hugetlb:"))
                .any(|line| !line.ends_with(" 0 kB"))
    };
    let reserved = std::fs::read_to_string("/proc/sys/vm/nr_hugepages").unwrap();
    let bench = Bench::with(crate::DriverCfg {
        ring_pages: crate::RingPages::Huge,
        ..crate::DriverCfg::default()
    });
    let mut jfc = bench.jfc(1 << 16);
    let mut jfs = bench.jfs(jfc.id, 1024);
    let send = jfs.send.as_mut().unwrap();
    for n in 0..1000 {
        send.post_send(&[signalled(n)]).unwrap();
    }
    assert_eq!(contexts(&poll_all(&mut jfc)).len(), 1000);
    // Others may have taken what is reserved, and then base pages are right.
    if reserved.trim() == "0" {
        assert!(!huge(), "huge pages that are not there");
    } else if !huge() {
        urma_skip::skip("huge pages are reserved and taken by others");
    }
}

#[test]
fn a_connection_bound_anew_sends_to_its_new_target() {
    let bench = Bench::new();
    let mut jfc = bench.jfc(16);
    let cfg = QueueCfg { mode: TransportMode::Rc, ..jfs_cfg(jfc.id, 8) };
    let mut queue = bench.context.create_queue(&cfg).unwrap();
    let send = queue.send.as_mut().unwrap();
    let op = SendOp::SendImm { src: &[], imm: 1 };
    let message = SendWr { op, target: None, ..signalled(1) };
    let target = |tpn, id, token| TargetId {
        kind: TargetKind::Jetty,
        id: JettyId { id, ..JettyId::default() },
        path: Path { tpn, eid: Eid::default(), kind: PathKind::Packets },
        token: Some(Token::new(token)),
        mode: TransportMode::Rc,
        order: OrderType::Ol,
    };
    let targets = [target(7, 70, 700), target(7, 71, 701), target(8, 71, 702)];
    for target in &targets {
        queue.control.bind(target, None).unwrap();
        send.post_send(&[message]).unwrap();
        queue.control.unbind().unwrap();
        assert!(send.post_send(&[message]).is_err(), "not bound");
    }
    assert_eq!(poll_all(&mut jfc).len(), targets.len());
    let seen: Vec<_> =
        bench.toy.state().seen.iter().map(|s| (s.tpn, s.target_id, s.token_value)).collect();
    assert_eq!(seen, [(7, 70, 700), (7, 71, 701), (8, 71, 702)]);
}

#[test]
fn contexts_come_back_right_over_many_passes() {
    let bench = Bench::new();
    let mut jfc = bench.jfc(4);
    let mut jfs = bench.jfs(jfc.id, 3);
    let send = jfs.send.as_mut().unwrap();
    // 2^17 blocks and more: the 16-bit entry index wraps twice, the 24-bit JFC index moves.
    for n in 0..70_000u64 {
        send.post_send(&[signalled(2 * n), signalled(2 * n + 1)]).unwrap();
        let mut out = [Completion::default(); 4];
        assert_eq!(jfc.queue.poll(&mut out), Ok(2));
        assert_eq!(contexts(&out[..2]), [2 * n, 2 * n + 1]);
        bench.toy.state().seen.clear();
    }
}

#[test]
fn a_full_queue_names_the_request_and_keeps_the_earlier_ones() {
    let bench = Bench::new();
    bench.toy.script(|s| s.hold = true);
    let mut jfc = bench.jfc(64);
    let mut jfs = bench.jfs(jfc.id, 5);
    let send = jfs.send.as_mut().unwrap();
    let wrs: Vec<_> = (0..7).map(signalled).collect();
    let error = send.post_send(&wrs).unwrap_err();
    assert_eq!((error.index, error.reason), (5, PostReason::Full));
    assert_eq!(send.post_send(&wrs[6..]).unwrap_err().index, 0);
    bench.toy.script(|s| s.hold = false);
    assert_eq!(contexts(&poll_all(&mut jfc)), [0, 1, 2, 3, 4]);
    send.post_send(&wrs[5..]).unwrap();
    assert_eq!(contexts(&poll_all(&mut jfc)), [5, 6]);
}

#[test]
fn a_stream_without_completions_flows_without_polls() {
    let bench = Bench::new();
    let mut jfc = bench.jfc(8);
    let mut jfs = bench.jfs(jfc.id, 16);
    let send = jfs.send.as_mut().unwrap();
    for n in 0..1000 {
        send.post_send(&[nop(n, WrFlags::empty())]).unwrap();
    }
    assert_eq!(poll_all(&mut jfc), []);
    assert_eq!(bench.toy.state().seen.len(), 1000);
}

#[test]
fn a_position_is_not_reused_while_an_error_of_it_waits_in_the_jfc() {
    let bench = Bench::new();
    let mut jfc = bench.jfc(8);
    let mut jfs = bench.jfs(jfc.id, 4);
    let send = jfs.send.as_mut().unwrap();
    send.post_send(&[nop(100, WrFlags::empty())]).unwrap();
    // The unsignalled request at position 0 failed; its completion is not polled.
    let (cookie, local_id) = (bench.toy.cookie(jfs.id), jfs.id);
    let status = CqeStatus::RnrRetryExceeded;
    bench.toy.complete(jfc.id, Cqe { local_id, user_data: cookie, status, ..Cqe::default() });
    let mut posted = 0;
    while send.post_send(&[nop(200 + posted, WrFlags::empty())]).is_ok() {
        posted += 1;
        assert!(posted < 100, "position 0 was used again under a waiting completion");
    }
    let done = poll_all(&mut jfc);
    assert_eq!(contexts(&done), [100]);
    assert_eq!(done[0].status, CrStatus::RnrRetryExceeded);
    send.post_send(&[nop(1, WrFlags::empty())]).unwrap();
}

#[test]
fn receives_come_back_with_their_contexts_and_free_their_places() {
    let bench = Bench::new();
    let mut jfc = bench.jfc(16);
    let mut jfr = bench.context.create_queue(&jfr_cfg(jfc.id, 3)).unwrap();
    let recv = jfr.recv.as_mut().unwrap();
    assert!(!bench.toy.deliver(jfr.id, Cqe::default()));
    let wr = |user_ctx| RecvWr { dst: &[], user_ctx };
    // A ring has 64 entries at least, whatever depth was asked for.
    let wrs: Vec<_> = (0..65).map(wr).collect();
    let error = recv.post_recv(&wrs).unwrap_err();
    assert_eq!((error.index, error.reason), (64, PostReason::Full));
    for n in 0..100_000u64 {
        let imm = Cqe { opcode: 1, imm: n, remote_id: 77, byte_cnt: 4, ..Cqe::default() };
        assert!(bench.toy.deliver(jfr.id, Cqe { inline_en: true, inline: [5; 12], ..imm }));
        let done = poll_all(&mut jfc);
        assert_eq!(contexts(&done), [n]);
        assert_eq!((done[0].opcode, done[0].immediate()), (CrOpcode::SendImm, Some(n)));
        assert_eq!((done[0].remote.id, done[0].payload.bytes()), (77, &[5; 4][..]));
        recv.post_recv(&[wr(n + 64)]).unwrap();
    }
}

/// Both halves complete into one JFC, where their flushed requests lie mixed.
#[test]
fn a_flush_of_what_is_sent_leaves_flushed_receives_to_polls() {
    let bench = Bench::new();
    let mut jfc = bench.jfc(16);
    let recv = RecvCfg { jfc: jfc.id, depth: 8, max_sge: 1, min_rnr_timer: 12 };
    let cfg = QueueCfg { kind: QueueKind::Jetty, recv: Some(recv), ..jfs_cfg(jfc.id, 8) };
    let mut jetty = bench.context.create_queue(&cfg).unwrap();
    let receives = [10, 11, 12].map(|user_ctx| RecvWr { dst: &[], user_ctx });
    jetty.recv.as_mut().unwrap().post_recv(&receives).unwrap();
    bench.toy.script(|s| s.hold = true);
    jetty.send.as_mut().unwrap().post_send(&[signalled(20), signalled(21)]).unwrap();
    let (user_data, local_id) = (bench.toy.cookie(jetty.id), jetty.id);
    let flushed = Cqe { status: CqeStatus::WrFlushErr, local_id, user_data, ..Cqe::default() };
    assert!(bench.toy.deliver(jetty.id, flushed));
    for entry_idx in 0..2 {
        bench.toy.complete(jfc.id, Cqe { entry_idx, ..flushed });
        assert!(bench.toy.deliver(jetty.id, flushed));
    }
    let mut out = [Completion::default(); 8];
    let taken = jetty.control.flush(&mut out).unwrap();
    assert_eq!(contexts(&out[..taken]), [20, 21]);
    let polled = poll_all(&mut jfc);
    assert_eq!(contexts(&polled), [10, 11, 12]);
    assert!(polled.iter().all(|c| c.is_recv() && c.status == CrStatus::WrFlush));
}

#[test]
fn segments_and_multi_block_requests_reach_the_device_whole() {
    let bench = Bench::new();
    let context = Device::new(bench.device.clone()).open(0).unwrap();
    let region = Region::private(8192).unwrap();
    region.write(100, b"hello, inline world").unwrap();
    let cfg = SegmentCfg {
        access: SegmentAccess::REMOTE_ALL,
        policy: TokenPolicy::PlainText(Token::new(0xAB)),
        cacheable: false,
        non_pin: false,
        user_iova: Some(0x10_0000),
        user_ctx: 0,
    };
    let segment = context.register(&region, &cfg, None).unwrap();
    let Some(Command::RegisterSeg(args)) = bench.toy.state().commands.last().copied() else {
        panic!("no segment was registered")
    };
    assert_eq!((args.va, args.len, args.token_value), (0x10_0000, 8192, Some(0xAB)));
    let remote = segment.remote();
    let imported = context.import_segment(&remote, SegmentAccess::READ, Mapping::None).unwrap();

    let mut jfc = bench.jfc(16);
    let mut cfg = jfs_cfg(jfc.id, 8);
    cfg.send = cfg.send.map(|send| SendCfg { max_sge: 4, max_inline: 100, ..send });
    let mut jfs = bench.context.create_queue(&cfg).unwrap();
    let send = jfs.send.as_mut().unwrap();
    let piece = |addr, len| LocalSge { segment: &segment, addr, len };
    let pieces = [piece(0x10_0000, 8), piece(0x10_0040, 8), piece(0x10_0080, 8)];
    let dst = RemoteAddr { segment: &imported, addr: 0x10_1000 };
    let write = SendWr { op: SendOp::Write { src: &pieces, dst }, ..signalled(1) };
    let inline = [piece(0x10_0000 + 100, 19)];
    let small = SendWr {
        op: SendOp::Write { src: &inline, dst },
        flags: WrFlags::INLINE | WrFlags::COMPLETE,
        ..signalled(2)
    };
    let cas = SendOp::Cas { result: piece(0x10_0000, 8), target: dst, compare: 3, swap: 4 };
    let cas = SendWr { op: cas, ..signalled(3) };
    for pass in 0..20 {
        send.post_send(&[write, small, cas]).unwrap();
        assert_eq!(contexts(&poll_all(&mut jfc)), [1, 2, 3], "pass {pass}");
    }
    let state = bench.toy.state();
    let seen = &state.seen[state.seen.len() - 3..];
    assert_eq!((seen[0].opcode, seen[0].sge_num, seen[0].remote_va), (Opcode::Write, 3, 0x10_1000));
    assert_eq!((seen[0].token_en, seen[0].token_value), (true, 0xAB));
    assert_eq!((seen[1].inline_len, seen[1].sge_num), (19, 0));
    assert_eq!((seen[2].operand, seen[2].compare, seen[2].blocks()), (4, 3, 2));
    assert_eq!(state.faults, 0);
    drop(state);
    segment.unregister().unwrap();
}

#[test]
fn one_event_per_arm_and_at_once_when_completions_wait() {
    let bench = Bench::new();
    let jfce = bench.context.create_jfce().unwrap();
    let mut jfc = bench.context.create_jfc(&jfc_cfg(16), Some(&jfce)).unwrap();
    let mut jfs = bench.jfs(jfc.id, 8);
    let send = jfs.send.as_mut().unwrap();
    let now = Some(Duration::ZERO);
    let mut ready = [0; 4];
    jfc.queue.arm(Arm::Any).unwrap();
    assert_eq!(jfce.wait(&mut ready, now), Ok(0));
    send.post_send(&[signalled(1), signalled(2)]).unwrap();
    assert_eq!(jfce.wait(&mut ready, None), Ok(1), "two completions, one arm, one event");
    assert_eq!(ready[0], jfc.id);
    assert_eq!(jfce.wait(&mut ready, now), Ok(0));
    jfc.queue.arm(Arm::Any).unwrap();
    assert_eq!(jfce.wait(&mut ready, now), Ok(1), "completions were waiting");
    assert_eq!(poll_all(&mut jfc).len(), 2);
    bench.toy.raise_nothing(1);
    assert_eq!(jfce.wait(&mut ready, now), Ok(0), "a count without an event is none");
    // What a flush took off the ring and left to polls fires too.
    send.post_send(&[signalled(3), signalled(4)]).unwrap();
    let mut one = [Completion::default(); 1];
    assert_eq!(jfs.control.flush(&mut one), Ok(0), "neither request was flushed");
    jfc.queue.arm(Arm::Any).unwrap();
    assert_eq!(jfce.wait(&mut ready, now), Ok(1));
    assert_eq!(contexts(&poll_all(&mut jfc)), [3, 4]);
}

#[test]
fn a_thread_that_waits_for_an_event_answers_wake_ups_of_peers() {
    let bench = Bench::new();
    let jfce = bench.context.create_jfce().unwrap();
    let mut jfc = bench.context.create_jfc(&jfc_cfg(16), Some(&jfce)).unwrap();
    let mut jfs = bench.jfs(jfc.id, 8);
    let mut ready = [0; 4];
    bench.toy.script(|script| script.hold = true);
    jfc.queue.arm(Arm::Any).unwrap();
    jfs.send.as_mut().unwrap().post_send(&[signalled(1)]).unwrap();
    let brief = Some(Duration::from_millis(20));
    assert_eq!(jfce.wait(&mut ready, brief), Ok(0), "no thread of the device serves");
    bench.toy.wake();
    assert_eq!(jfce.wait(&mut ready, brief), Ok(1));
    assert_eq!(contexts(&poll_all(&mut jfc)), [1]);
}

/// The count of the toy's wake-up is never cleared here.
#[test]
fn wake_ups_without_end_do_not_keep_a_wait_from_its_end() {
    let bench = Bench::new();
    let jfce = bench.context.create_jfce().unwrap();
    bench.toy.script(|script| script.keeps_ringing = true);
    bench.toy.wake();
    assert_eq!(jfce.wait(&mut [0; 4], Some(Duration::from_millis(20))), Ok(0));
}

/// Arm numbers have two bits, so four arms that never reach the device repeat the last one it saw.
#[test]
fn an_arm_after_arms_for_completions_set_aside_reaches_the_device() {
    let bench = Bench::new();
    let jfce = bench.context.create_jfce().unwrap();
    let mut jfc = bench.context.create_jfc(&jfc_cfg(16), Some(&jfce)).unwrap();
    let now = Some(Duration::ZERO);
    let mut ready = [0; 4];
    for set_aside in 0..9 {
        for _ in 0..set_aside {
            let mut gone = bench.jfs(jfc.id, 4);
            gone.send.as_mut().unwrap().post_send(&[signalled(1)]).unwrap();
            // The driver takes its completion off the ring.
            gone.control.delete().unwrap();
            jfc.queue.arm(Arm::Any).unwrap();
            assert_eq!(jfce.wait(&mut ready, now), Ok(1));
            assert_eq!(contexts(&poll_all(&mut jfc)), [1]);
        }
        jfc.queue.arm(Arm::Any).unwrap();
        assert_eq!(jfce.wait(&mut ready, now), Ok(0));
        let mut jfs = bench.jfs(jfc.id, 4);
        jfs.send.as_mut().unwrap().post_send(&[signalled(2)]).unwrap();
        assert_eq!(jfce.wait(&mut ready, now), Ok(1), "after {set_aside} arms");
        assert_eq!(contexts(&poll_all(&mut jfc)), [2]);
    }
}

#[test]
fn deleting_a_channel_wakes_its_waiter() {
    let bench = Bench::new();
    let jfce = bench.context.create_jfce().unwrap();
    let waiter = std::thread::spawn({
        let jfce = jfce.clone();
        move || jfce.wait(&mut [0; 1], None)
    });
    jfce.delete().unwrap();
    assert_eq!(waiter.join().unwrap(), Err(Status::Fail));
    assert_eq!(jfce.wait(&mut [0; 1], None), Err(Status::Fail));
    assert_eq!(jfce.delete(), Err(Status::Invalid));
}

#[test]
fn async_events_arrive_once_in_order() {
    let bench = Bench::new();
    bench.toy.raise_async(4, 9);
    bench.toy.raise_async(3, 8);
    let zero = Some(Duration::ZERO);
    let event = bench.context.next_async(zero).unwrap().unwrap();
    assert_eq!((event.kind, event.id), (urma_core::AsyncKind::JettyError, 9));
    let event = bench.context.next_async(zero).unwrap().unwrap();
    assert_eq!((event.kind, event.id), (urma_core::AsyncKind::JfrLimit, 8));
    assert_eq!(bench.context.next_async(zero), Ok(None));
}

#[test]
fn channels_that_share_a_vector_get_their_own_events_alone() {
    let bench = Bench::new();
    let jfces: Vec<_> = (0..6).map(|_| bench.context.create_jfce().unwrap()).collect();
    let is_readable = |at: usize, limit: u16| {
        let mut fds = [PollFd::new(jfces[at].fd(), PollFlags::POLLIN)];
        poll(&mut fds, PollTimeout::from(limit)).unwrap() == 1
    };
    for at in [5, 0, 2, 3, 5, 1] {
        let mut jfc = bench.context.create_jfc(&jfc_cfg(16), Some(&jfces[at])).unwrap();
        let mut jfs = bench.jfs(jfc.id, 8);
        let send = jfs.send.as_mut().unwrap();
        for round in 0..3 {
            jfc.queue.arm(Arm::Any).unwrap();
            send.post_send(&[signalled(round)]).unwrap();
            // What the toy device was posted it does in a step.
            bench.device.driver().unwrap().backing.progress();
            assert!(is_readable(at, 10_000), "channel {at}");
            assert!((0..6).all(|other| is_readable(other, 0) == (other == at)));
            let mut ready = [0; 4];
            assert_eq!(jfces[at].wait(&mut ready, Some(Duration::ZERO)), Ok(1));
            assert_eq!(ready[0], jfc.id);
            assert!(!is_readable(at, 0));
            assert_eq!(poll_all(&mut jfc).len(), 1);
        }
    }
}

/// The descriptor is readable as long as there are events, whatever interrupts became of them.
#[test]
fn events_whose_interrupts_were_merged_arrive_once_in_order() {
    let bench = Bench::new();
    bench.toy.script(|s| s.merges = true);
    let readable = || {
        let mut fds = [PollFd::new(bench.context.async_fd(), PollFlags::POLLIN)];
        poll(&mut fds, PollTimeout::ZERO).unwrap() == 1
    };
    let next = || bench.context.next_async(Some(Duration::ZERO)).unwrap().map(|event| event.id);
    for objects in [&[9, 8, 7][..], &[6], &[5, 4]] {
        assert!(!readable());
        objects.iter().for_each(|object| bench.toy.raise_async(4, *object));
        for object in objects {
            assert!(readable());
            assert_eq!(next(), Some(*object));
        }
        assert_eq!(next(), None);
    }
    // An interrupt whose event was taken before it came.
    bench.toy.raise_nothing(0);
    assert_eq!(next(), None);
    assert!(!readable());
}

/// A thread looks for events between the mark of the failure and its event.
#[test]
fn no_call_reports_the_failure_before_its_event() {
    let bench = Bench::new();
    let zero = Some(Duration::ZERO);
    let driver = bench.device.driver().unwrap();
    driver.failed.store(true, Ordering::Release);
    assert_eq!(bench.context.next_async(zero), Ok(None));
    driver.async_events.raise(Eqe::Async { code: EqeKind::DevFatal as u8, object: 0 });
    let event = bench.context.next_async(zero).unwrap().unwrap();
    assert_eq!(event.kind, urma_core::AsyncKind::DeviceFatal);
    assert_eq!(bench.context.next_async(zero), Err(Status::NoDevice));
}

#[test]
fn a_failure_that_driver_and_device_report_is_one_event() {
    let bench = Bench::new();
    let zero = Some(Duration::ZERO);
    bench.toy.raise_async(EqeKind::DevFatal as u8, 0);
    bench.device.reset().unwrap();
    assert!(bench.context.next_async(zero).unwrap().is_some());
    assert_eq!(bench.context.next_async(zero), Err(Status::NoDevice));
}

#[test]
fn completions_survive_the_deletion_of_their_queue() {
    let bench = Bench::new();
    let mut jfc = bench.jfc(8);
    let mut jfs = bench.jfs(jfc.id, 4);
    jfs.send.as_mut().unwrap().post_send(&[signalled(1), signalled(2)]).unwrap();
    jfs.control.delete().unwrap();
    let error = jfs.send.as_mut().unwrap().post_send(&[signalled(3)]).unwrap_err();
    assert_eq!((error.index, error.reason), (0, PostReason::Device));
    drop(jfs);
    let mut other = bench.jfs(jfc.id, 4);
    other.send.as_mut().unwrap().post_send(&[signalled(5)]).unwrap();
    assert_eq!(contexts(&poll_all(&mut jfc)), [1, 2, 5]);
}

#[test]
fn a_reset_ends_every_outstanding_request_flushed() {
    let bench = Bench::new();
    let mut jfc = bench.jfc(16);
    let mut jfs = bench.jfs(jfc.id, 8);
    let mut jfr = bench.context.create_queue(&jfr_cfg(jfc.id, 4)).unwrap();
    let send = jfs.send.as_mut().unwrap();
    send.post_send(&[nop(1, WrFlags::empty()), signalled(2)]).unwrap();
    bench.toy.script(|s| s.hold = true);
    send.post_send(&[signalled(3), nop(4, WrFlags::empty())]).unwrap();
    jfr.recv.as_mut().unwrap().post_recv(&[RecvWr { dst: &[], user_ctx: 5 }]).unwrap();
    bench.device.reset().unwrap();
    let done = poll_until_dead(&mut jfc);
    let ends: Vec<_> = done.iter().map(|c| (c.user_ctx, c.status)).collect();
    let flush = CrStatus::WrFlush;
    assert_eq!(ends, [(2, CrStatus::Success), (3, flush), (4, flush), (5, flush)]);
    assert!(done[3].is_recv());
    assert!(send.post_send(&[signalled(9)]).is_err());
    assert!(bench.context.next_async(Some(Duration::ZERO)).unwrap().is_some());
    assert_eq!(bench.context.next_async(Some(Duration::ZERO)), Err(Status::NoDevice));
    // The device itself works again.
    bench.toy.script(|s| s.hold = false);
    let context = bench.device.open(0).unwrap();
    assert!(context.create_jfc(&jfc_cfg(4), None).is_ok());
}

#[test]
fn counters_have_names_and_eids_are_answered() {
    let bench = Bench::new();
    let counters = bench.context.counters().unwrap();
    let names: Vec<_> = counters.iter().map(|(name, _)| &**name).collect();
    assert_eq!(names, super::toy::counter_names());
    assert_eq!(counters[2].1, 3);
    assert_eq!(bench.device.eids().unwrap(), [Eid::from_bytes([7; 16])]);
    assert!(bench.device.open(1).is_err());
}

/// A model of the device brings counters of names of its own, behind the others; an entry without a name is none.
#[test]
fn counters_of_a_model_have_the_names_that_the_device_gives() {
    let bench = Bench::new();
    let entry = |name, value| ModelCounter::encode(name, value).unwrap();
    let entries = vec![entry("context_accesses", 5), [u64::MAX; 8], entry("engine_cycles", 9)];
    bench.toy.script(|script| script.model_counters = Vec::leak(entries));
    let counters = bench.context.counters().unwrap();
    let (own, modelled) = counters.split_at(super::toy::counter_names().len());
    assert_eq!(own[2].1, 3);
    let modelled: Vec<_> = modelled.iter().map(|(name, value)| (&**name, *value)).collect();
    assert_eq!(modelled, [("context_accesses", 5), ("engine_cycles", 9)]);
}

#[test]
fn a_token_id_holds_one_segment_and_gives_its_addresses_back() {
    let bench = Bench::new();
    let cfg = SegmentCfg {
        access: SegmentAccess::LOCAL_ONLY,
        policy: TokenPolicy::None,
        cacheable: false,
        non_pin: false,
        user_iova: None,
        user_ctx: 0,
    };
    let region = Region::private(4096).unwrap();
    let ops: &dyn SegmentOps = &*bench.context;
    let token_id = ops.alloc_token_id().unwrap();
    for _ in 0..3 {
        ops.register(&region, token_id, 4096, &cfg).unwrap();
        assert_eq!(ops.register(&region, token_id, 4096, &cfg), Err(Status::Exists));
        ops.unregister(token_id).unwrap();
        assert_eq!(ops.unregister(token_id), Err(Status::Invalid));
    }
}

fn poll_until_dead(jfc: &mut urma_core::ops::JfcParts) -> Vec<Completion> {
    let mut all = Vec::new();
    let mut out = [Completion::default(); 2];
    loop {
        match jfc.queue.poll(&mut out) {
            Ok(found) => all.extend_from_slice(&out[..found]),
            Err(error) => {
                assert_eq!(error, Status::NoDevice);
                return all;
            }
        }
    }
}
