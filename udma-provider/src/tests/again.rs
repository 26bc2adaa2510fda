//! Requests like the newest one.

use udma_abi::{Cqe, Opcode, sqe::SqeFlags};
use urma_core::{
    Device, Eid, ImportedSegment, JettyId, LocalSge, Mapping, OrderType, Path, PathKind, QueueCfg,
    RemoteAddr, Segment, SegmentAccess, SegmentCfg, SendOp, SendWr, TargetId, TargetKind, Token,
    TransportMode,
    ops::{LikeLast, TransferDelta},
};
use urma_mem::Region;

use super::{
    Bench, contexts, jfs_cfg, poll_all, signalled,
    toy::{Handed, Toy},
};
use crate::DriverCfg;

const VA: u64 = 0x10_0000;
const MOVED: TransferDelta =
    TransferDelta { local: VA + 64, remote: VA + 128, len: 24, user_ctx: 2, is_signalled: true };

pub(super) fn segments(bench: &Bench) -> (Segment, ImportedSegment) {
    let context = Device::new(bench.device.clone()).open(0).unwrap();
    let region = Region::private(4096).unwrap();
    let cfg = SegmentCfg {
        user_iova: Some(VA),
        ..SegmentCfg::new(SegmentAccess::REMOTE_ALL).with_token(Token::new(0xAB))
    };
    let local = context.register(&region, &cfg, None).unwrap();
    let access = SegmentAccess::REMOTE_ALL;
    let remote = context.import_segment(&local.remote(), access, Mapping::None).unwrap();
    (local, remote)
}

/// A WRITE of 8 bytes, or a READ.
fn transfer<'a>(is_write: bool, piece: &'a [LocalSge<'a>], at: RemoteAddr<'a>) -> SendWr<'a> {
    let op = match is_write {
        true => SendOp::Write { src: piece, dst: at },
        false => SendOp::Read { dst: piece, src: at },
    };
    SendWr { op, ..signalled(1) }
}

#[test]
fn it_differs_in_addresses_and_length_only() {
    let bench = Bench::new();
    let (local, remote) = segments(&bench);
    let mut jfc = bench.jfc(16);
    let mut jfs = bench.jfs(jfc.id, 8);
    let send = jfs.send.as_mut().unwrap();
    assert_eq!(send.try_repeat(LikeLast::Transfers(&[MOVED])), 0, "there is no newest one");
    let piece = [LocalSge { segment: &local, addr: VA, len: 8 }];
    let at = RemoteAddr { segment: &remote, addr: VA };
    for (is_write, opcode) in [(true, Opcode::Write), (false, Opcode::Read)] {
        send.post_send(&[transfer(is_write, &piece, at)]).unwrap();
        // Twice around the ring.
        for _ in 0..40 {
            assert_eq!(send.try_repeat(LikeLast::Transfers(&[MOVED])), 1);
            // What goes between is not the newest of its kind.
            send.post_send(&[signalled(3), signalled(4)]).unwrap();
            assert!(contexts(&poll_all(&mut jfc)).ends_with(&[2, 3, 4]));
        }
        let seen = std::mem::take(&mut bench.toy.state().seen);
        let moved: Vec<_> = seen[1..].iter().filter(|sqe| sqe.opcode == opcode).collect();
        assert_eq!(moved.len(), 40);
        for sqe in moved {
            let mut first = seen[0];
            (first.entry_idx, first.owner) = (sqe.entry_idx, sqe.owner);
            first.remote_va = MOVED.remote;
            assert_eq!(*sqe, first);
        }
    }
}

/// A signalled request like the newest one, and one that is not signalled.
const LIST: [TransferDelta; 2] =
    [MOVED, TransferDelta { user_ctx: 3, is_signalled: false, ..MOVED }];

#[test]
fn a_list_rings_once_and_follows_the_newest_of_a_list() {
    let bench = Bench::new();
    let (local, remote) = segments(&bench);
    let mut jfc = bench.jfc(16);
    let mut jfs = bench.jfs(jfc.id, 8);
    let send = jfs.send.as_mut().unwrap();
    assert_eq!(send.try_repeat(LikeLast::Transfers(&LIST)), 0, "there is no newest one");
    let piece = [LocalSge { segment: &local, addr: VA, len: 8 }];
    let at = RemoteAddr { segment: &remote, addr: VA };
    let list = [transfer(false, &piece, at), transfer(true, &piece, at), signalled(1)];
    send.post_send(&list).unwrap();
    bench.toy.state().seen.clear();
    let doorbells = bench.toy.doorbells();
    assert_eq!(send.try_repeat(LikeLast::Transfers(&LIST)), 2);
    assert_eq!(bench.toy.doorbells(), (doorbells.0 + 1, doorbells.1));
    let seen = std::mem::take(&mut bench.toy.state().seen);
    let seen = seen.iter().map(|sqe| (sqe.opcode, sqe.remote_va, sqe.flags));
    let flags = [SqeFlags::COMPLETE, SqeFlags::empty()];
    assert!(seen.eq(flags.map(|flags| (Opcode::Write, MOVED.remote, flags))));
    assert_eq!(contexts(&poll_all(&mut jfc)), [1, 1, 1, 2]);
}

#[test]
fn of_a_list_as_many_are_posted_as_there_is_room_for() {
    let bench = Bench::new();
    let (local, remote) = segments(&bench);
    let mut jfc = bench.jfc(16);
    let mut jfs = bench.jfs(jfc.id, 4);
    let send = jfs.send.as_mut().unwrap();
    let piece = [LocalSge { segment: &local, addr: VA, len: 8 }];
    let write = transfer(true, &piece, RemoteAddr { segment: &remote, addr: VA });
    bench.toy.script(|s| s.hold = true);
    send.post_send(&[write]).unwrap();
    assert_eq!(send.try_repeat(LikeLast::Transfers(&[MOVED; 8])), 3);
    bench.toy.script(|s| s.hold = false);
    bench.device_work();
    assert_eq!(contexts(&poll_all(&mut jfc)), [1, 2, 2, 2]);
    jfs.control.delete().unwrap();
    assert_eq!(send.try_repeat(LikeLast::Transfers(&LIST)), 0);
}

#[test]
fn a_device_without_direct_entries_gets_it_by_the_ring() {
    let toy = Toy::new();
    toy.script(|s| s.has_no_direct = true);
    let bench = Bench::on(toy, DriverCfg::default());
    let (local, remote) = segments(&bench);
    let mut jfc = bench.jfc(16);
    let mut jfs = bench.jfs(jfc.id, 8);
    let send = jfs.send.as_mut().unwrap();
    let piece = [LocalSge { segment: &local, addr: VA, len: 8 }];
    let write = transfer(true, &piece, RemoteAddr { segment: &remote, addr: VA });
    send.post_send(&[write]).unwrap();
    assert_eq!(send.try_repeat(LikeLast::Transfers(&[MOVED])), 1);
    assert_eq!(send.try_repeat(LikeLast::Transfers(&[MOVED])), 1);
    assert_eq!(bench.toy.doorbells(), (3, 0));
    assert_eq!(contexts(&poll_all(&mut jfc)), [1, 2, 2]);
}

#[test]
fn it_is_refused_by_a_queue_that_is_full_or_gone() {
    let bench = Bench::new();
    let (local, remote) = segments(&bench);
    let mut jfc = bench.jfc(16);
    let mut jfs = bench.jfs(jfc.id, 4);
    let send = jfs.send.as_mut().unwrap();
    let piece = [LocalSge { segment: &local, addr: VA, len: 8 }];
    let write = transfer(true, &piece, RemoteAddr { segment: &remote, addr: VA });
    bench.toy.script(|s| s.hold = true);
    send.post_send(&[write]).unwrap();
    let posted = [(); 4].map(|()| send.try_repeat(LikeLast::Transfers(&[MOVED])));
    let some = 1;
    assert_eq!(posted, [some, some, some, 0]);
    bench.toy.script(|s| s.hold = false);
    bench.device_work();
    assert_eq!(contexts(&poll_all(&mut jfc)), [1, 2, 2, 2]);
    jfs.control.delete().unwrap();
    assert_eq!(send.try_repeat(LikeLast::Transfers(&[MOVED])), 0);
}

#[test]
fn it_does_not_go_to_a_former_target() {
    let bench = Bench::new();
    let (local, remote) = segments(&bench);
    let jfc = bench.jfc(16);
    let cfg = QueueCfg { mode: TransportMode::Rc, ..jfs_cfg(jfc.id, 8) };
    let mut queue = bench.context.create_queue(&cfg).unwrap();
    let send = queue.send.as_mut().unwrap();
    let piece = [LocalSge { segment: &local, addr: VA, len: 8 }];
    let write = transfer(true, &piece, RemoteAddr { segment: &remote, addr: VA });
    for id in [70, 71] {
        queue.control.bind(&target_id(id), None).unwrap();
        assert_eq!(send.try_repeat(LikeLast::Transfers(&[MOVED])), 0);
        assert_eq!(send.try_repeat(LikeLast::Transfers(&LIST)), 0);
        send.post_send(&[write]).unwrap();
        assert_eq!(send.try_repeat(LikeLast::Transfers(&[MOVED])), 1);
        queue.control.unbind().unwrap();
    }
    let seen: Vec<_> = bench.toy.state().seen.iter().map(|sqe| sqe.target_id).collect();
    assert_eq!(seen, [70, 70, 71, 71]);
}

/// The device refuses what differs once the queue is bound anew; no entry completes what is not posted then.
#[test]
fn what_is_refused_after_a_bind_is_not_posted() {
    let toy = Toy::new();
    toy.script(|s| s.carries = true);
    let bench = Bench::on(toy, DriverCfg::default());
    let (local, remote) = segments(&bench);
    let mut jfc = bench.jfc(16);
    let cfg = QueueCfg { mode: TransportMode::Rc, ..jfs_cfg(jfc.id, 8) };
    let mut queue = bench.context.create_queue(&cfg).unwrap();
    let send = queue.send.as_mut().unwrap();
    let piece = [LocalSge { segment: &local, addr: VA, len: 8 }];
    let write = transfer(true, &piece, RemoteAddr { segment: &remote, addr: VA });
    queue.control.bind(&target_id(70), None).unwrap();
    send.post_send(&[write]).unwrap();
    assert_eq!(send.try_repeat(LikeLast::Transfers(&[MOVED])), 1);
    queue.control.unbind().unwrap();
    bench.toy.script(|s| s.refuses_moved = true);
    for is_signalled in [true, false] {
        let moved = TransferDelta { is_signalled, ..MOVED };
        assert_eq!(send.try_repeat(LikeLast::Transfers(&[moved])), 0);
    }
    for entry_idx in [2, 1] {
        let user_data = bench.toy.cookie(queue.id);
        let cqe = Cqe { entry_idx, local_id: queue.id, user_data, ..Cqe::default() };
        bench.toy.complete(jfc.id, cqe);
    }
    assert_eq!(contexts(&poll_all(&mut jfc)), [2]);
}

#[test]
fn it_is_carried_by_what_differs_while_the_newest_carried_one_is_like_it() {
    let toy = Toy::new();
    toy.script(|s| s.carries = true);
    let bench = Bench::on(toy, DriverCfg::default());
    let (local, remote) = segments(&bench);
    let jfc = bench.jfc(16);
    let mut jfs = bench.jfs(jfc.id, 16);
    let send = jfs.send.as_mut().unwrap();
    let piece = [LocalSge { segment: &local, addr: VA, len: 8 }];
    let at = RemoteAddr { segment: &remote, addr: VA };
    send.post_send(&[transfer(true, &piece, at)]).unwrap();
    assert_eq!([(); 2].map(|()| send.try_repeat(LikeLast::Transfers(&[MOVED]))), [1; 2]);
    // The newest usual one is now one that was not carried.
    send.post_send(&[transfer(false, &piece, at), signalled(1)]).unwrap();
    assert_eq!([(); 2].map(|()| send.try_repeat(LikeLast::Transfers(&[MOVED]))), [1; 2]);
    bench.toy.script(|s| s.carries_moved_only = true);
    send.post_send(&[transfer(true, &piece, at)]).unwrap();
    assert_eq!(send.try_repeat(LikeLast::Transfers(&[MOVED])), 1);
    use Handed::{Moved, Rung, Whole};
    let handed = std::mem::take(&mut bench.toy.state().handed);
    let refused = [Whole, Rung];
    let seen =
        [&[Whole, Moved(1), Moved(2), Rung, Whole, Moved(6)], &refused[..], &refused].concat();
    assert_eq!(handed, seen);
}

/// The path to a target by its number.
fn target_id(id: u32) -> TargetId {
    TargetId {
        kind: TargetKind::Jetty,
        id: JettyId { id, ..JettyId::default() },
        path: Path { tpn: 7, eid: Eid::default(), kind: PathKind::Packets },
        token: None,
        mode: TransportMode::Rc,
        order: OrderType::Ol,
    }
}

#[test]
fn a_message_differs_in_address_and_length_only() {
    let bench = Bench::new();
    let (local, _remote) = segments(&bench);
    let mut jfc = bench.jfc(16);
    let cfg = QueueCfg { mode: TransportMode::Rc, ..jfs_cfg(jfc.id, 4) };
    let mut queue = bench.context.create_queue(&cfg).unwrap();
    let send = queue.send.as_mut().unwrap();
    let piece = [LocalSge { segment: &local, addr: VA, len: 8 }];
    let message = SendWr { op: SendOp::Send { src: &piece }, ..signalled(1) };
    let with_imm = SendWr { op: SendOp::SendImm { src: &piece, imm: 9 }, ..signalled(3) };
    let moved = TransferDelta { remote: 0, ..MOVED };
    for id in [70, 71] {
        queue.control.bind(&target_id(id), None).unwrap();
        assert_eq!(send.try_repeat(LikeLast::Message(&moved)), 0);
        send.post_send(&[message]).unwrap();
        // Twice around the ring. What goes between is not the newest message.
        for _ in 0..5 {
            send.post_send(&[with_imm]).unwrap();
            assert_eq!(send.try_repeat(LikeLast::Message(&moved)), 1);
            assert!(contexts(&poll_all(&mut jfc)).ends_with(&[3, 2]));
        }
        let seen = std::mem::take(&mut bench.toy.state().seen);
        let sent = seen[1..].iter().filter(|sqe| sqe.opcode == Opcode::Send);
        let sent: Vec<_> = sent
            .map(|sqe| {
                let same = (sqe.entry_idx, sqe.owner);
                assert_eq!((sqe.target_id, sqe.flags), (id, SqeFlags::COMPLETE));
                let mut first = seen[0];
                (first.entry_idx, first.owner) = same;
                assert_eq!(*sqe, first);
                same
            })
            .collect();
        assert_eq!(sent.len(), 5);
        queue.control.unbind().unwrap();
    }
    queue.control.bind(&target_id(72), None).unwrap();
    let send = queue.send.as_mut().unwrap();
    bench.toy.script(|s| s.hold = true);
    send.post_send(&[message]).unwrap();
    let posted = [(); 4].map(|()| send.try_repeat(LikeLast::Message(&moved)));
    let some = 1;
    assert_eq!(posted, [some, some, some, 0]);
    bench.toy.script(|s| s.hold = false);
    bench.device_work();
    assert_eq!(contexts(&poll_all(&mut jfc)), [1, 2, 2, 2]);
    queue.control.delete().unwrap();
    assert_eq!(send.try_repeat(LikeLast::Message(&moved)), 0);
}
