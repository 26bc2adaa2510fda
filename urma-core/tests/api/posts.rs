//! The rules for requests, each kept and broken, at the limit and one beyond.

use proptest::prelude::*;
use urma_core::{
    Context, ImportedSegment, Jetty, JettyCfg, JettyId, JettyRecv, Jfc, JfcCfg, JfrCfg, JfsCfg,
    LocalSge, Mapping, OneTransfer, OrderType, PostReason, RecvWr, RemoteAddr, RemoteJetty,
    RemoteSegment, Segment, SegmentAccess, SegmentCfg, SendOp, SendWr, TargetJetty, TargetKind,
    Token, TokenId, TokenPolicy, TpType, TransportMode, Ubva, WrFlags,
    ops::{AtomicDelta, TransferDelta},
};
use urma_mem::Region;

use crate::recorder::{NODE, PEER, Recorder, op_name};

const VA: u64 = 0x10_0000;
const REMOTE_VA: u64 = 0x20_0000;
const LEN: u64 = 16384;

/// A jetty with everything a request may name.
struct Bench {
    recorder: Recorder,
    context: Context,
    jfc: Jfc,
    jetty: Jetty,
    local: Segment,
    remote: ImportedSegment,
    target: TargetJetty,
}

fn local(context: &Context) -> Segment {
    let region = Region::private(usize::try_from(LEN).unwrap()).unwrap();
    let access = SegmentAccess::LOCAL_ONLY;
    let cfg = SegmentCfg { user_iova: Some(VA), ..SegmentCfg::new(access) };
    context.register(&region, &cfg, None).unwrap()
}

fn import(context: &Context, eid: urma_core::Eid, access: SegmentAccess) -> ImportedSegment {
    let remote = RemoteSegment {
        ubva: Ubva { eid, uasid: 7, va: REMOTE_VA },
        len: LEN,
        token_id: TokenId::new(0x500),
        policy: TokenPolicy::None,
        access: SegmentAccess::REMOTE_ALL,
    };
    context.import_segment(&remote, access, Mapping::None).unwrap()
}

fn target(context: &Context, mode: TransportMode, id: u32) -> TargetJetty {
    let remote = RemoteJetty {
        id: JettyId { eid: PEER, uasid: 7, id },
        kind: TargetKind::Jetty,
        mode,
        order: OrderType::Default,
        policy: TokenPolicy::None,
        tp: TpType::of(mode),
    };
    context.import_jetty(&remote).unwrap()
}

impl Bench {
    fn new(mode: TransportMode) -> Self {
        let recorder = Recorder::new();
        let context = recorder.open();
        let jfc = context.create_jfc(&JfcCfg::new(8), None).unwrap();
        let send = JfsCfg { max_sge: 2, max_inline: 100, ..JfsCfg::new(mode, 8) };
        let recv = JfrCfg { max_sge: 2, ..JfrCfg::new(mode, 8) };
        let cfg = JettyCfg::new(send, &jfc, JettyRecv::Own { cfg: recv, jfc: &jfc });
        let mut jetty = context.create_jetty(&cfg).unwrap();
        let (local, target) = (local(&context), target(&context, mode, 77));
        let remote = import(&context, PEER, SegmentAccess::REMOTE_ALL);
        if mode == TransportMode::Rc {
            jetty.bind(&target).unwrap();
        }
        Self { recorder, context, jfc, jetty, local, remote, target }
    }
}

/// Posts one request made from the bench; the reason when it was refused.
macro_rules! post {
    ($bench:ident, $op:expr) => {
        post!($bench, $op, WrFlags::COMPLETE)
    };
    ($bench:ident, $op:expr, $flags:expr) => {
        // The jetty is lent out apart from what the request borrows.
        first_reason(
            &mut $bench.jetty,
            &[SendWr { flags: $flags, ..SendWr::new($op, &$bench.target, 1) }],
        )
    };
}

fn first_reason(jetty: &mut Jetty, wrs: &[SendWr<'_>]) -> Option<PostReason> {
    jetty.post_send(wrs).err().map(|error| error.reason)
}

fn is_invalid(reason: Option<PostReason>) -> bool {
    matches!(reason, Some(PostReason::Invalid(_)))
}

fn sge(segment: &Segment, offset: u64, len: u32) -> LocalSge<'_> {
    LocalSge { segment, addr: VA.wrapping_add(offset), len }
}

fn at(segment: &ImportedSegment, offset: u64) -> RemoteAddr<'_> {
    RemoteAddr { segment, addr: REMOTE_VA.wrapping_add(offset) }
}

/// Every operation once, well-formed.
fn every_op<'a>(src: &'a [LocalSge<'a>], dst: RemoteAddr<'a>) -> Vec<SendOp<'a>> {
    let (notify, result, target) = (dst, LocalSge { len: 8, ..src[0] }, dst);
    vec![
        SendOp::Write { src, dst },
        SendOp::WriteImm { src, dst, imm: 1 },
        SendOp::WriteNotify { src, dst, notify, data: 1 },
        SendOp::WriteAtomic { src, dst, notify, add: 1 },
        SendOp::Read { dst: src, src: dst },
        SendOp::Cas { result, target, compare: 1, swap: 2 },
        SendOp::Swap { result, target, value: 1 },
        SendOp::FetchAdd { result, target, value: 1 },
        SendOp::FetchSub { result, target, value: 1 },
        SendOp::FetchAnd { result, target, value: 1 },
        SendOp::FetchOr { result, target, value: 1 },
        SendOp::FetchXor { result, target, value: 1 },
        SendOp::Send { src },
        SendOp::SendImm { src, imm: 1 },
        SendOp::SendInvalidate { src, token_id: TokenId::new(256), token: Token::new(1) },
        SendOp::Nop,
        SendOp::FlushDma,
    ]
}

#[test]
fn every_operation_passes_when_it_is_right() {
    for mode in [TransportMode::Rm, TransportMode::Rc] {
        let Bench { local, remote, target, mut jetty, recorder, .. } = Bench::new(mode);
        let src = [sge(&local, 0, 64)];
        for op in every_op(&src, at(&remote, 0)) {
            let reason = first_reason(&mut jetty, &[SendWr::new(op, &target, 1)]);
            // The recorder's device has every atomic but this one.
            let expected = matches!(op, SendOp::FetchXor { .. });
            assert_eq!(is_invalid(reason), expected, "{} {reason:?}", op_name(&op));
        }
        assert_eq!(recorder.book().posted.len(), 16);
    }
}

#[test]
fn um_carries_sends_only() {
    let Bench { local, remote, target, mut jetty, .. } = Bench::new(TransportMode::Um);
    let src = [sge(&local, 0, 64)];
    for op in every_op(&src, at(&remote, 0)) {
        let reason = first_reason(&mut jetty, &[SendWr::new(op, &target, 1)]);
        let may = matches!(
            op,
            SendOp::Send { .. } | SendOp::SendImm { .. } | SendOp::SendInvalidate { .. }
        ) || matches!(op, SendOp::Nop);
        let expected = if may { None } else { Some(PostReason::Mode) };
        assert_eq!(reason, expected, "{}", op_name(&op));
    }
}

#[test]
fn message_sizes_have_their_limits() {
    let mut rm = Bench::new(TransportMode::Rm);
    let mut um = Bench::new(TransportMode::Um);
    for (len, expected) in [(8192, false), (8193, true)] {
        let src = sge(&rm.local, 0, len);
        assert_eq!(is_invalid(post!(rm, SendOp::Send { src: &[src] })), expected, "{len}");
    }
    for (len, expected) in [(3072, false), (3073, true)] {
        let (src, dst) = (sge(&rm.local, 0, len), at(&rm.remote, 0));
        assert_eq!(is_invalid(post!(rm, SendOp::Write { src: &[src], dst })), expected, "{len}");
    }
    for (len, expected) in [(2048, false), (2049, true)] {
        let (dst, src) = (sge(&rm.local, 0, len), at(&rm.remote, 0));
        assert_eq!(is_invalid(post!(rm, SendOp::Read { dst: &[dst], src })), expected, "{len}");
    }
    for (len, expected) in [(1024, false), (1025, true)] {
        let src = sge(&um.local, 0, len);
        assert_eq!(is_invalid(post!(um, SendOp::Send { src: &[src] })), expected, "{len}");
    }
    let two = [sge(&um.local, 0, 1000), sge(&um.local, 0, 25)];
    assert!(is_invalid(post!(um, SendOp::Send { src: &two })), "the sum counts");
}

#[test]
fn pieces_are_counted_and_lie_inside_their_segment() {
    let mut bench = Bench::new(TransportMode::Rm);
    let last = LEN - 8;
    let cases = [
        (0, 8, false),
        (last, 8, false),
        (last + 1, 8, true),
        (LEN, 1, true),
        (u64::MAX, 8, true),
        (0, 0, false),
        (VA.wrapping_neg(), 8, true),
        (u64::MAX - VA - 3, u32::MAX, true),
    ];
    for (offset, len, expected) in cases {
        let src = [sge(&bench.local, offset, len)];
        let reason = post!(bench, SendOp::Send { src: &src });
        assert_eq!(is_invalid(reason), expected, "{offset:#x} {len}");
    }
    let three = [0, 8, 16].map(|offset| sge(&bench.local, offset, 8));
    assert_eq!(post!(bench, SendOp::Send { src: &three[..2] }), None);
    assert!(is_invalid(post!(bench, SendOp::Send { src: &three })));
}

#[test]
fn requests_without_bytes_are_requests() {
    let mut bench = Bench::new(TransportMode::Rm);
    let dst = at(&bench.remote, 0);
    let far = at(&bench.remote, LEN + 1);
    assert_eq!(post!(bench, SendOp::Send { src: &[] }), None);
    assert_eq!(post!(bench, SendOp::WriteImm { src: &[], dst, imm: 1 }), None);
    assert!(is_invalid(post!(bench, SendOp::WriteImm { src: &[], dst: far, imm: 1 })));
    assert_eq!(post!(bench, SendOp::Write { src: &[], dst }), None);
    assert_eq!(post!(bench, SendOp::Read { dst: &[], src: dst }), None);
    let empty = [sge(&bench.local, 8, 0), sge(&bench.local, LEN, 0)];
    assert_eq!(post!(bench, SendOp::Write { src: &empty, dst }), None);
    assert_eq!(post!(bench, SendOp::Read { dst: &empty, src: dst }), None);
    let outside = [sge(&bench.local, LEN + 1, 0)];
    assert!(is_invalid(post!(bench, SendOp::Write { src: &outside, dst })));
    assert!(is_invalid(post!(bench, SendOp::Write { src: &[], dst: far })));
    assert!(is_invalid(post!(bench, SendOp::Read { dst: &[], src: far })));
}

#[test]
fn remote_ranges_lie_inside_the_imported_segment() {
    let mut bench = Bench::new(TransportMode::Rm);
    let src = [sge(&bench.local, 0, 64)];
    let cases = [
        (0, false),
        (LEN - 64, false),
        (LEN - 63, true),
        (LEN, true),
        (u64::MAX, true),
        (REMOTE_VA.wrapping_neg(), true),
    ];
    for (offset, expected) in cases {
        let there = at(&bench.remote, offset);
        let write = post!(bench, SendOp::Write { src: &src, dst: there });
        let read = post!(bench, SendOp::Read { dst: &src, src: there });
        assert_eq!((is_invalid(write), is_invalid(read)), (expected, expected), "{offset:#x}");
    }
}

#[test]
fn an_import_allows_what_it_was_asked_for() {
    let Bench { context, local, target, mut jetty, .. } = Bench::new(TransportMode::Rm);
    let src = [sge(&local, 0, 64)];
    let read = SegmentAccess::READ;
    let write = read | SegmentAccess::WRITE;
    for access in [read, write, SegmentAccess::REMOTE_ALL] {
        let remote = import(&context, PEER, access);
        for op in every_op(&src, at(&remote, 0)) {
            let needs = match op {
                SendOp::Read { .. } => SegmentAccess::READ,
                SendOp::Write { .. } | SendOp::WriteImm { .. } | SendOp::WriteNotify { .. } => {
                    SegmentAccess::WRITE
                }
                SendOp::Send { .. } | SendOp::SendImm { .. } => continue,
                SendOp::SendInvalidate { .. } | SendOp::Nop | SendOp::FlushDma => continue,
                SendOp::FetchXor { .. } => continue,
                _ => SegmentAccess::ATOMIC,
            };
            let reason = first_reason(&mut jetty, &[SendWr::new(op, &target, 1)]);
            let expected = !access.contains(needs);
            assert_eq!(is_invalid(reason), expected, "{} with {access:?}", op_name(&op));
        }
    }
}

#[test]
fn atomics_have_4_or_8_aligned_bytes() {
    let mut bench = Bench::new(TransportMode::Rm);
    for (len, mine, theirs, expected) in [
        (8, 0, 8, false),
        (4, 4, 12, false),
        (8, 4, 8, true),
        (8, 8, 4, true),
        (4, 2, 4, true),
        (4, 4, 1, true),
        (1, 0, 0, true),
        (2, 0, 0, true),
        (16, 0, 0, true),
        (0, 0, 0, true),
        (8, 0, LEN, true),
        (8, LEN, 0, true),
    ] {
        let (result, target) = (sge(&bench.local, mine, len), at(&bench.remote, theirs));
        let reason = post!(bench, SendOp::FetchAdd { result, target, value: 1 });
        assert_eq!(is_invalid(reason), expected, "{len} at {mine} and {theirs}");
    }
}

#[test]
fn notify_addresses_are_8_aligned_and_inside() {
    let mut bench = Bench::new(TransportMode::Rm);
    let (src, dst) = ([sge(&bench.local, 0, 64)], at(&bench.remote, 0));
    for (offset, expected) in [(8, false), (LEN - 8, false), (4, true), (LEN, true)] {
        let notify = at(&bench.remote, offset);
        let op = SendOp::WriteNotify { src: &src, dst, notify, data: 1 };
        assert_eq!(is_invalid(post!(bench, op)), expected, "{offset}");
        let op = SendOp::WriteAtomic { src: &src, dst, notify, add: 1 };
        assert_eq!(is_invalid(post!(bench, op)), expected, "{offset}");
    }
}

#[test]
fn inline_data_is_bounded_and_only_outbound() {
    let mut bench = Bench::new(TransportMode::Rm);
    let there = at(&bench.remote, 0);
    for (len, expected) in [(100, false), (101, true)] {
        let src = [sge(&bench.local, 0, len)];
        let op = SendOp::Write { src: &src, dst: there };
        assert_eq!(is_invalid(post!(bench, op, WrFlags::INLINE)), expected, "{len}");
        let op = SendOp::Send { src: &src };
        assert_eq!(is_invalid(post!(bench, op, WrFlags::INLINE)), expected, "{len}");
    }
    let dst = [sge(&bench.local, 0, 8)];
    let read = SendOp::Read { dst: &dst, src: there };
    assert!(is_invalid(post!(bench, read, WrFlags::INLINE)));
    let swap = SendOp::Swap { result: dst[0], target: there, value: 1 };
    assert!(is_invalid(post!(bench, swap, WrFlags::INLINE)));
}

#[test]
fn place_orders_exclude_each_other() {
    let mut bench = Bench::new(TransportMode::Rm);
    let both = WrFlags::RELAX_ORDER | WrFlags::STRONG_ORDER;
    for flags in [WrFlags::RELAX_ORDER, WrFlags::STRONG_ORDER, WrFlags::FENCE] {
        assert_eq!(post!(bench, SendOp::Nop, flags), None);
    }
    assert!(is_invalid(post!(bench, SendOp::Nop, both)));
}

#[test]
fn targets_fit_their_queue() {
    let mut rm = Bench::new(TransportMode::Rm);
    let send = SendOp::Send { src: &[] };
    let wr = |target| SendWr { target, ..SendWr::new(send, &rm.target, 1) };
    let to_rc = target(&rm.context, TransportMode::Rc, 77);
    assert_eq!(first_reason(&mut rm.jetty, &[wr(Some(&to_rc))]), Some(PostReason::Mode));
    assert!(is_invalid(first_reason(&mut rm.jetty, &[wr(None)])));
    let nop = SendWr { target: None, ..SendWr::new(SendOp::Nop, &rm.target, 1) };
    assert_eq!(first_reason(&mut rm.jetty, &[nop]), None);
    let other = Bench::new(TransportMode::Rm);
    assert!(is_invalid(first_reason(&mut rm.jetty, &[wr(Some(&other.target))])));
}

#[test]
fn rc_goes_to_its_one_target() {
    let mut rc = Bench::new(TransportMode::Rc);
    let send = SendOp::Send { src: &[] };
    let to = |target| SendWr { target, ..SendWr::new(send, &rc.target, 1) };
    assert_eq!(first_reason(&mut rc.jetty, &[to(None)]), None, "the bound one");
    assert_eq!(first_reason(&mut rc.jetty, &[to(Some(&rc.target))]), None);
    let stranger = target(&rc.context, TransportMode::Rc, 78);
    assert!(is_invalid(first_reason(&mut rc.jetty, &[to(Some(&stranger))])));
    rc.jetty.unbind().unwrap();
    assert!(is_invalid(first_reason(&mut rc.jetty, &[to(None)])));
    assert!(is_invalid(first_reason(&mut rc.jetty, &[to(Some(&rc.target))])));
}

#[test]
fn segments_belong_to_the_context_and_to_the_node_of_the_target() {
    let mut bench = Bench::new(TransportMode::Rm);
    let other = Bench::new(TransportMode::Rm);
    let (mine, theirs) = ([sge(&bench.local, 0, 8)], [sge(&other.local, 0, 8)]);
    assert!(is_invalid(post!(bench, SendOp::Send { src: &theirs })));
    let dst = at(&other.remote, 0);
    assert!(is_invalid(post!(bench, SendOp::Write { src: &mine, dst })));
    let elsewhere = import(&bench.context, NODE, SegmentAccess::REMOTE_ALL);
    let dst = at(&elsewhere, 0);
    assert!(is_invalid(post!(bench, SendOp::Write { src: &mine, dst })));
}

#[test]
fn a_bad_request_is_reported_and_the_earlier_ones_are_posted() {
    let Bench { local, target, mut jetty, recorder, .. } = Bench::new(TransportMode::Rm);
    let (good, bad) = ([sge(&local, 0, 8)], [sge(&local, LEN, 8)]);
    let wr = |src, user_ctx| SendWr::new(SendOp::Send { src }, &target, user_ctx);
    let batch = [wr(&good, 1), wr(&good, 2), wr(&bad, 3), wr(&good, 4)];
    let error = jetty.post_send(&batch).unwrap_err();
    assert_eq!((error.index, is_invalid(Some(error.reason))), (2, true));
    assert_eq!(recorder.book().posted, [1, 2]);
    assert_eq!(recorder.book().batches, 1, "one call for the batch");
}

#[test]
fn a_full_queue_is_reported_before_a_later_bad_request() {
    let Bench { local, target, mut jetty, recorder, .. } = Bench::new(TransportMode::Rm);
    recorder.book().room = 1;
    let (good, bad) = ([sge(&local, 0, 8)], [sge(&local, LEN, 8)]);
    let wr = |src, user_ctx| SendWr::new(SendOp::Send { src }, &target, user_ctx);
    let error = jetty.post_send(&[wr(&good, 1), wr(&good, 2), wr(&bad, 3)]).unwrap_err();
    assert_eq!((error.index, error.reason), (1, PostReason::Full));
    assert_eq!(recorder.book().posted, [1]);
}

#[test]
fn receives_are_checked_too() {
    let Bench { context, jfc, local, mut jetty, recorder, .. } = Bench::new(TransportMode::Rm);
    let mut jfr =
        context.create_jfr(&JfrCfg { max_sge: 2, ..JfrCfg::new(TransportMode::Rm, 4) }, &jfc);
    let jfr = jfr.as_mut().unwrap();
    let good = [sge(&local, 0, 8), sge(&local, 8, 8)];
    let three = [good[0], good[1], good[0]];
    let outside = [sge(&local, LEN - 7, 8)];
    let wr = |dst, user_ctx| RecvWr { dst, user_ctx };
    jetty.post_recv(&[wr(&good, 1), wr(&[], 2)]).unwrap();
    jfr.post_recv(&[wr(&good, 3)]).unwrap();
    for bad in [&three[..], &outside[..]] {
        let error = jfr.post_recv(&[wr(&good, 4), wr(bad, 5)]).unwrap_err();
        assert_eq!(error.index, 1);
        assert_eq!(jetty.post_recv(&[wr(bad, 6)]).unwrap_err().index, 0);
    }
    assert_eq!(recorder.book().posted, [1, 2, 3, 4, 4]);
}

proptest! {
    /// Against an oracle in wide arithmetic.
    #[test]
    fn ranges_are_judged_as_in_128_bits(
        addr in prop_oneof![any::<u64>(), VA - 20..VA + 20, VA + LEN - 20..VA + LEN + 20],
        len in prop_oneof![any::<u32>(), 0_u32..40],
    ) {
        let mut bench = Bench::new(TransportMode::Rm);
        let src = [LocalSge { segment: &bench.local, addr, len }];
        let reason = post!(bench, SendOp::Send { src: &src });
        let (start, end) = (u128::from(addr), u128::from(addr) + u128::from(len));
        let is_inside = start >= u128::from(VA) && end <= u128::from(VA + LEN);
        let expected = is_inside && len <= 8192;
        prop_assert_eq!(reason.is_none(), expected);
    }
}

/// What reached the queue as a request like the newest one.
fn again(bench: &Bench) -> usize {
    bench.recorder.book().again.len()
}

#[test]
fn a_transfer_like_the_newest_one_is_posted_by_what_differs() {
    let mut bench = Bench::new(TransportMode::Rm);
    for is_write in [true, false] {
        bench.recorder.book().again.clear();
        for offset in [0, 64, 72] {
            let (piece, at) = ([sge(&bench.local, offset, 8)], at(&bench.remote, 2 * offset));
            let op = match is_write {
                true => SendOp::Write { src: &piece, dst: at },
                false => SendOp::Read { dst: &piece, src: at },
            };
            assert_eq!(post!(bench, op), None);
        }
        let moved = [64, 72].map(|offset| TransferDelta {
            local: VA + offset,
            remote: REMOTE_VA + 2 * offset,
            len: 8,
            user_ctx: 1,
            is_signalled: true,
        });
        assert_eq!(bench.recorder.book().again, moved);
    }
    bench.recorder.book().room = 0;
    let (piece, at) = ([sge(&bench.local, 0, 8)], at(&bench.remote, 0));
    assert_eq!(post!(bench, SendOp::Read { dst: &piece, src: at }), Some(PostReason::Full));
}

#[test]
fn a_list_is_posted_by_what_differs_as_far_as_it_is_like_the_newest_transfer() {
    let bench = Bench::new(TransportMode::Rm);
    let Bench { context, local: mine, remote, target: to, mut jetty, recorder, .. } = bench;
    let elsewhere = import(&context, PEER, SegmentAccess::REMOTE_ALL);
    let piece = [sge(&mine, 0, 8)];
    let write = |remote, offset, user_ctx| {
        SendWr::new(SendOp::Write { src: &piece, dst: at(remote, offset) }, &to, user_ctx)
    };
    // The first list has no request before it; the next ones follow its last one.
    jetty.post_send(&[write(&elsewhere, 0, 1), write(&remote, 0, 2)]).unwrap();
    assert_eq!(recorder.book().again, []);
    let mut list = [write(&remote, 8, 3); 70];
    list[69].flags = WrFlags::empty();
    jetty.post_send(&list).unwrap();
    let signalled: Vec<_> = recorder.book().again.iter().map(|of| of.is_signalled).collect();
    assert_eq!((signalled.len(), signalled[68], signalled[69]), (70, true, false));
    // From the first one on that names something else, the rest is posted as usual.
    let mixed = [write(&remote, 0, 4), write(&elsewhere, 0, 5), write(&remote, 0, 6)];
    jetty.post_send(&mixed).unwrap();
    assert_eq!(recorder.book().again.len(), 71);
    assert_eq!(recorder.book().posted, [1, 2, 5, 6]);
    // What is outside of its segment is refused by its place in the list.
    let outside = [write(&remote, 0, 7), write(&remote, LEN - 7, 8), write(&remote, 0, 9)];
    assert_eq!(jetty.post_send(&outside).unwrap_err().index, 1);
    assert_eq!(recorder.book().again.len(), 72);
    // After a refusal there is no newest one.
    jetty.post_send(&[write(&remote, 0, 10), write(&remote, 0, 11)]).unwrap();
    assert_eq!(recorder.book().again.len(), 72);
    recorder.book().room = 1;
    let error = jetty.post_send(&[write(&remote, 0, 12), write(&remote, 0, 13)]).unwrap_err();
    assert_eq!((error.index, error.reason), (1, PostReason::Full));
    recorder.book().room = usize::MAX;
    let before = recorder.book().again.len();
    jetty.post_send(&[write(&remote, 0, 14), write(&remote, 0, 15)]).unwrap();
    assert_eq!(recorder.book().again.len(), before + 2, "a full queue forgets nothing");
    // The queue took the first one, whose block is now its newest.
    recorder.book().room = 1;
    let error = jetty.post_send(&[write(&elsewhere, 0, 16), write(&remote, 0, 17)]).unwrap_err();
    assert_eq!((error.index, error.reason), (1, PostReason::Full));
    recorder.book().room = usize::MAX;
    let before = recorder.book().again.len();
    jetty.post_send(&[write(&remote, 0, 18), write(&remote, 0, 19)]).unwrap();
    assert_eq!(recorder.book().again.len(), before, "which one is the newest is not known");
}

#[test]
fn a_transfer_that_names_something_else_is_not_like_the_newest_one() {
    let bench = Bench::new(TransportMode::Rm);
    let Bench { context, local: mine, remote, target: to, mut jetty, .. } = bench;
    let recorder = bench.recorder;
    let (others, elsewhere) = (local(&context), import(&context, PEER, SegmentAccess::REMOTE_ALL));
    let other = target(&context, TransportMode::Rm, 77);
    let newest = OneTransfer {
        is_write: true,
        piece: sge(&mine, 0, 8),
        at: at(&remote, 0),
        flags: WrFlags::COMPLETE,
        target: Some(&to),
        target_hint: 0,
        user_ctx: 1,
    };
    let cases = [
        OneTransfer { is_write: false, ..newest },
        OneTransfer { piece: sge(&others, 0, 8), ..newest },
        OneTransfer { at: at(&elsewhere, 0), ..newest },
        OneTransfer { flags: WrFlags::COMPLETE | WrFlags::FENCE, ..newest },
        OneTransfer { target: Some(&other), ..newest },
        OneTransfer { target_hint: 1, ..newest },
    ];
    for case in cases {
        jetty.post_transfer(&newest).unwrap();
        let before = recorder.book().again.len();
        jetty.post_transfer(&case).unwrap();
        assert_eq!(recorder.book().again.len(), before, "{case:?}");
        jetty.post_transfer(&case).unwrap();
        assert_eq!(recorder.book().again.len(), before + 1, "{case:?}");
    }
    let inline = OneTransfer { flags: WrFlags::COMPLETE | WrFlags::INLINE, ..newest };
    let before = recorder.book().again.len();
    for _ in 0..3 {
        jetty.post_transfer(&inline).unwrap();
    }
    assert_eq!(recorder.book().again.len(), before, "the payload is in the entry");
}

/// A ticket is that of the newest transfer alone; what differs is checked as for any other one.
#[test]
fn a_transfer_is_known_again_by_the_ticket_of_the_newest_one() {
    let Bench { local: mine, remote, target: to, mut jetty, recorder, .. } =
        Bench::new(TransportMode::Rm);
    let (piece, far) = (sge(&mine, 0, 8), at(&remote, 0));
    let flags = WrFlags::COMPLETE;
    let target = Some(&to);
    let write =
        OneTransfer { is_write: true, piece, at: far, flags, target, target_hint: 0, user_ctx: 1 };
    let moved = TransferDelta {
        local: piece.addr,
        remote: far.addr,
        len: 8,
        user_ctx: 2,
        is_signalled: true,
    };
    assert!(
        jetty.send_half().transfer_ticket() == 0 && !jetty.send_half().post_repeat(0, &moved),
        "there is none"
    );
    jetty.post_transfer(&write).unwrap();
    let ticket = jetty.send_half().transfer_ticket();
    let before = recorder.book().again.len();
    assert!(ticket != 0 && jetty.send_half().post_repeat(ticket, &moved));
    assert_eq!(recorder.book().again.len(), before + 1);
    let refused = [
        TransferDelta { local: moved.local + LEN - 7, ..moved },
        TransferDelta { remote: moved.remote + LEN - 7, ..moved },
        TransferDelta { local: moved.local - 1, ..moved },
        TransferDelta { remote: moved.remote - 1, ..moved },
        TransferDelta { len: 0, ..moved },
        TransferDelta { len: 3073, ..moved },
    ];
    for moved in refused {
        assert!(!jetty.send_half().post_repeat(ticket, &moved), "{moved:?}");
    }
    jetty.post_transfer(&OneTransfer { is_write: false, ..write }).unwrap();
    assert!(!jetty.send_half().post_repeat(ticket, &moved), "it is not the newest one");
    let ticket = jetty.send_half().transfer_ticket();
    assert!(
        !jetty.send_half().post_repeat(ticket, &TransferDelta { len: 2049, ..moved }),
        "the limit of a READ"
    );
    assert!(jetty.send_half().post_repeat(ticket, &moved));
    jetty.post_transfer(&OneTransfer { flags: flags | WrFlags::INLINE, ..write }).unwrap();
    assert!(jetty.send_half().transfer_ticket() == 0 && !jetty.send_half().post_repeat(0, &moved));
}

/// As a transfer, an atomic is known again by a ticket, which no transfer has.
#[test]
fn an_atomic_is_known_again_by_the_ticket_of_the_newest_one() {
    let Bench { local: mine, remote, target: to, mut jetty, recorder, .. } =
        Bench::new(TransportMode::Rm);
    let transfer =
        TransferDelta { local: VA, remote: REMOTE_VA, len: 8, user_ctx: 2, is_signalled: true };
    let moved = AtomicDelta { transfer, operand: 3, compare: 4 };
    assert!(
        jetty.send_half().atomic_ticket() == 0 && !jetty.send_half().post_atomic_repeat(0, &moved),
        "there is none"
    );
    let wr = SendWr::new(atomic(true, sge(&mine, 0, 8), at(&remote, 0)), &to, 1);
    jetty.post_send(&[wr]).unwrap();
    let ticket = jetty.send_half().atomic_ticket();
    assert_ne!(ticket, 0);
    assert!(!jetty.send_half().post_repeat(ticket, &transfer), "it is no transfer");
    assert!(jetty.send_half().post_atomic_repeat(ticket, &moved));
    assert_eq!(recorder.book().atomics, [moved]);
    let refused = [
        TransferDelta { local: transfer.local + LEN, ..transfer },
        TransferDelta { remote: transfer.remote + LEN, ..transfer },
        TransferDelta { local: transfer.local - 8, ..transfer },
        TransferDelta { remote: transfer.remote - 8, ..transfer },
        TransferDelta { local: transfer.local + 4, ..transfer },
        TransferDelta { remote: transfer.remote + 4, ..transfer },
        TransferDelta { len: 4, ..transfer },
        TransferDelta { len: 0, ..transfer },
    ];
    for transfer in refused {
        assert!(!jetty.send_half().post_atomic_repeat(ticket, &AtomicDelta { transfer, ..moved }));
    }
    let wr = SendWr::new(atomic(false, sge(&mine, 0, 8), at(&remote, 0)), &to, 1);
    jetty.post_send(&[wr]).unwrap();
    assert!(!jetty.send_half().post_atomic_repeat(ticket, &moved), "it is not the newest one");
    let half = jetty.send_half();
    let ticket = half.atomic_ticket();
    assert!(half.post_atomic_repeat(ticket, &moved));
    let bad = SendWr::new(atomic(true, sge(&mine, 4, 8), at(&remote, 0)), &to, 1);
    let ticket = jetty.send_half().atomic_ticket();
    jetty.post_send(&[bad]).unwrap_err();
    assert!(
        jetty.send_half().atomic_ticket() == 0
            && !jetty.send_half().post_atomic_repeat(ticket, &moved)
    );
}

/// A provider that carries out what is like the newest transfer is asked for signalled ones that name the same, and
/// reach no further than what was imported; the local piece is its own to check.
#[test]
fn a_transfer_like_the_newest_one_is_carried_out_at_once() {
    let Bench { context, local: mine, remote, target: to, mut jetty, recorder, .. } =
        Bench::new(TransportMode::Rm);
    let elsewhere = import(&context, PEER, SegmentAccess::REMOTE_ALL);
    let newest = OneTransfer {
        is_write: true,
        piece: sge(&mine, 0, 8),
        at: at(&remote, 0),
        flags: WrFlags::COMPLETE,
        target: Some(&to),
        target_hint: 0,
        user_ctx: 1,
    };
    recorder.book().carries = true;
    jetty.post_transfer(&newest).unwrap();
    assert_eq!(recorder.book().carried, [], "there is no newest one");
    let like = OneTransfer { piece: sge(&mine, 8, 16), at: at(&remote, 24), user_ctx: 2, ..newest };
    jetty.post_transfer(&like).unwrap();
    let ticket = jetty.send_half().transfer_ticket();
    let (local, remote_va) = (VA + 8, REMOTE_VA + 24);
    let moved =
        TransferDelta { local, remote: remote_va, len: 16, user_ctx: 2, is_signalled: true };
    assert!(jetty.send_half().post_repeat(ticket, &moved));
    assert_eq!(std::mem::take(&mut recorder.book().carried), [moved; 2]);
    assert_eq!(recorder.book().posted.len(), 1);
    assert_eq!(recorder.book().again, []);

    let unsignalled = OneTransfer { flags: WrFlags::empty(), ..newest };
    jetty.post_transfer(&unsignalled).unwrap();
    let not_signalled = TransferDelta { is_signalled: false, ..moved };
    let silent = TransferDelta {
        local: newest.piece.addr,
        remote: newest.at.addr,
        len: newest.piece.len,
        user_ctx: newest.user_ctx,
        is_signalled: false,
    };
    assert_eq!(std::mem::take(&mut recorder.book().carried), [silent]);
    let half = jetty.send_half();
    assert!(half.execute_repeat(ticket, &not_signalled));
    assert!(!half.execute_repeat(ticket + 1, &not_signalled));
    let outside = TransferDelta { remote: REMOTE_VA + LEN - 7, ..not_signalled };
    assert!(!half.execute_repeat(ticket, &outside));
    assert_eq!(std::mem::take(&mut recorder.book().carried), [not_signalled]);
    assert!(
        jetty.send_half().post_repeat(ticket, &not_signalled)
            && !jetty.send_half().post_repeat(ticket + 1, &moved)
    );
    assert_eq!(std::mem::take(&mut recorder.book().carried), [not_signalled]);
    for outside in [LEN - 7, LEN, u64::MAX - REMOTE_VA] {
        let outside = RemoteAddr { segment: &remote, addr: REMOTE_VA.wrapping_add(outside) };
        let ticket = jetty.send_half().transfer_ticket();
        assert!(
            !jetty
                .send_half()
                .post_repeat(ticket, &TransferDelta { remote: outside.addr, ..moved })
        );
        assert!(!jetty.send_half().post_like_last(&OneTransfer { at: outside, ..newest }));
        jetty.post_transfer(&OneTransfer { at: outside, ..newest }).unwrap_err();
        jetty.post_transfer(&newest).unwrap();
    }
    assert!(!jetty.send_half().post_like_last(&OneTransfer { at: at(&elsewhere, 0), ..newest }));
    assert_eq!(recorder.book().carried, []);
}

/// With room for it in a segment, what is longer than the limit of its operation is refused too.
#[test]
fn a_transfer_like_the_newest_one_is_checked_for_its_place() {
    for is_write in [true, false] {
        let mut bench = Bench::new(TransportMode::Rm);
        let most = if is_write { 3072 } else { 2048 };
        let cases = [
            (0, 0, most, true),
            (0, 0, most + 1, false),
            (0, 0, 0, true),
            (LEN - 8, 0, 8, true),
            (LEN - 7, 0, 8, false),
            (0u64.wrapping_sub(1), 0, 8, false),
            (0, LEN - 8, 8, true),
            (0, LEN - 7, 8, false),
            (0, 0u64.wrapping_sub(1), 8, false),
        ];
        for (here, there, len, is_good) in cases {
            let mut post = |here, there, len| {
                let wr = OneTransfer {
                    is_write,
                    piece: sge(&bench.local, here, len),
                    at: at(&bench.remote, there),
                    flags: WrFlags::COMPLETE,
                    target: Some(&bench.target),
                    target_hint: 0,
                    user_ctx: 1,
                };
                bench.jetty.post_transfer(&wr).map_err(|error| error.reason)
            };
            post(0, 0, 8).unwrap();
            let posted = post(here, there, len);
            assert_eq!(is_invalid(posted.err()), !is_good, "{here} {there} {len}");
        }
        assert_ne!(again(&bench), 0);
    }
}

#[test]
fn a_connection_bound_anew_has_no_newest_transfer() {
    let Bench { mut jetty, local, remote, target: to, recorder, .. } =
        Bench::new(TransportMode::Rc);
    let wr = OneTransfer {
        is_write: true,
        piece: sge(&local, 0, 8),
        at: at(&remote, 0),
        flags: WrFlags::COMPLETE,
        target: None,
        target_hint: 0,
        user_ctx: 1,
    };
    for expected in [1, 2] {
        jetty.post_transfer(&wr).unwrap();
        jetty.post_transfer(&wr).unwrap();
        assert_eq!(recorder.book().again.len(), expected);
        jetty.unbind().unwrap();
        assert!(jetty.post_transfer(&wr).is_err(), "not bound");
        jetty.bind(&to).unwrap();
    }
}

fn send<'a>(piece: &'a [LocalSge<'a>], to: &'a TargetJetty) -> SendWr<'a> {
    SendWr::new(SendOp::Send { src: piece }, to, 1)
}

#[test]
fn a_message_like_the_newest_one_is_posted_by_what_differs() {
    let bench = Bench::new(TransportMode::Rm);
    let Bench { context, local: mine, target: to, mut jetty, recorder, .. } = bench;
    let (others, other) = (local(&context), target(&context, TransportMode::Rm, 77));
    let (piece, moved, elsewhere) =
        ([sge(&mine, 0, 8)], [sge(&mine, 64, 24)], [sge(&others, 0, 8)]);
    jetty.post_send(&[send(&piece, &to)]).unwrap();
    assert_eq!(recorder.book().again, []);
    let unsignalled = SendWr { flags: WrFlags::empty(), ..send(&moved, &to) };
    jetty.post_send(&[unsignalled]).unwrap();
    let differs =
        TransferDelta { local: VA + 64, remote: 0, len: 24, user_ctx: 1, is_signalled: false };
    assert_eq!(recorder.book().again, [differs]);
    let cases = [
        send(&elsewhere, &to),
        send(&piece, &other),
        SendWr { flags: WrFlags::COMPLETE | WrFlags::SOLICITED, ..send(&piece, &to) },
        SendWr { target_hint: 1, ..send(&piece, &to) },
    ];
    for case in cases {
        jetty.post_send(&[send(&piece, &to)]).unwrap();
        let before = recorder.book().again.len();
        jetty.post_send(&[case]).unwrap();
        assert_eq!(recorder.book().again.len(), before, "{case:?}");
        jetty.post_send(&[case]).unwrap();
        assert_eq!(recorder.book().again.len(), before + 1, "{case:?}");
    }
    let inline = SendWr { flags: WrFlags::COMPLETE | WrFlags::INLINE, ..send(&piece, &to) };
    let before = recorder.book().again.len();
    for _ in 0..3 {
        jetty.post_send(&[inline]).unwrap();
    }
    assert_eq!(recorder.book().again.len(), before, "the payload is in the entry");
    jetty.post_send(&[send(&piece, &to)]).unwrap();
    recorder.book().room = 0;
    let error = jetty.post_send(&[send(&piece, &to)]).unwrap_err();
    assert_eq!((error.index, error.reason), (0, PostReason::Full));
}

#[test]
fn a_message_like_the_newest_one_is_checked_for_its_length_and_place() {
    let mut bench = Bench::new(TransportMode::Rm);
    let good = [sge(&bench.local, 0, 8)];
    assert_eq!(post!(bench, SendOp::Send { src: &good }), None);
    for (at, len, is_good) in [(0, 8192, true), (0, 8193, false), (0, 0, true), (LEN - 7, 8, false)]
    {
        let before = again(&bench);
        let piece = [sge(&bench.local, at, len)];
        let reason = post!(bench, SendOp::Send { src: &piece });
        assert_eq!(is_invalid(reason), !is_good, "{at} {len}");
        assert_eq!(again(&bench) - before, usize::from(is_good && len > 0));
    }
}

#[test]
fn a_connection_bound_anew_has_no_newest_message() {
    let Bench { mut jetty, local, target: to, recorder, .. } = Bench::new(TransportMode::Rc);
    let piece = [sge(&local, 0, 8)];
    let wr = SendWr { target: None, ..send(&piece, &to) };
    for expected in [1, 2] {
        jetty.post_send(&[wr]).unwrap();
        jetty.post_send(&[wr]).unwrap();
        assert_eq!(recorder.book().again.len(), expected);
        jetty.unbind().unwrap();
        assert!(jetty.post_send(&[wr]).is_err(), "not bound");
        jetty.bind(&to).unwrap();
    }
}

/// A FETCH_ADD of 1, or a CAS of 3 for 2.
fn atomic<'a>(is_cas: bool, result: LocalSge<'a>, target: RemoteAddr<'a>) -> SendOp<'a> {
    match is_cas {
        true => SendOp::Cas { result, target, compare: 2, swap: 3 },
        false => SendOp::FetchAdd { result, target, value: 1 },
    }
}

#[test]
fn an_atomic_like_the_newest_one_is_posted_by_what_differs() {
    let bench = Bench::new(TransportMode::Rm);
    let Bench { context, local: mine, remote, target: to, mut jetty, recorder, .. } = bench;
    let (others, other) = (local(&context), target(&context, TransportMode::Rm, 77));
    let elsewhere = import(&context, PEER, SegmentAccess::REMOTE_ALL);
    for is_cas in [false, true] {
        recorder.book().atomics.clear();
        let good = SendWr::new(atomic(is_cas, sge(&mine, 0, 8), at(&remote, 0)), &to, 1);
        jetty.post_send(&[good]).unwrap();
        assert_eq!(recorder.book().atomics, []);
        let op = atomic(is_cas, sge(&mine, 64, 8), at(&remote, 8));
        jetty.post_send(&[SendWr { op, flags: WrFlags::empty(), ..good }]).unwrap();
        let (local, remote_at) = (VA + 64, REMOTE_VA + 8);
        let transfer =
            TransferDelta { local, remote: remote_at, len: 8, user_ctx: 1, is_signalled: false };
        let (operand, compare) = if is_cas { (3, 2) } else { (1, 0) };
        assert_eq!(recorder.book().atomics, [AtomicDelta { transfer, operand, compare }]);
        let of = |op| SendWr { op, ..good };
        let cases = [
            of(atomic(is_cas, sge(&others, 0, 8), at(&remote, 0))),
            of(atomic(is_cas, sge(&mine, 0, 8), at(&elsewhere, 0))),
            of(atomic(is_cas, sge(&mine, 0, 4), at(&remote, 0))),
            of(atomic(!is_cas, sge(&mine, 0, 8), at(&remote, 0))),
            SendWr { target: Some(&other), ..good },
            SendWr { flags: WrFlags::COMPLETE | WrFlags::SOLICITED, ..good },
            SendWr { target_hint: 1, ..good },
        ];
        for case in cases {
            jetty.post_send(&[good]).unwrap();
            let before = recorder.book().atomics.len();
            jetty.post_send(&[case]).unwrap();
            assert_eq!(recorder.book().atomics.len(), before, "{case:?}");
            jetty.post_send(&[case]).unwrap();
            assert_eq!(recorder.book().atomics.len(), before + 1, "{case:?}");
        }
    }
    recorder.book().room = 0;
    let wr = SendWr::new(atomic(true, sge(&mine, 0, 8), at(&remote, 0)), &to, 1);
    let posts = [(); 2].map(|()| jetty.post_send(&[wr]).map_err(|error| error.reason));
    assert_eq!(posts, [Err(PostReason::Full); 2]);
}

#[test]
fn an_atomic_like_the_newest_one_is_checked_for_its_place() {
    for is_cas in [false, true] {
        let mut bench = Bench::new(TransportMode::Rm);
        let cases = [
            (0, 0, true),
            (LEN - 8, LEN - 8, true),
            (4, 0, false),
            (0, 4, false),
            (LEN, 0, false),
            (0, LEN, false),
            (0u64.wrapping_sub(8), 0, false),
            (0, 0u64.wrapping_sub(8), false),
        ];
        for (here, there, is_good) in cases {
            for (here, there, is_good) in [(0, 0, true), (here, there, is_good)] {
                let (result, target) = (sge(&bench.local, here, 8), at(&bench.remote, there));
                let reason = post!(bench, atomic(is_cas, result, target));
                assert_eq!(is_invalid(reason), !is_good, "{here} {there}");
            }
        }
        assert_ne!(bench.recorder.book().atomics.len(), 0);
    }
}
