//! SEND in its kinds: payload, immediates, invalidation, sender.

use urma_core::{
    CompletionFlags, CrOpcode, CrStatus, JfrCfg, JfsCfg, LocalSge, RecvWr, SegmentCfg, SendOp,
    SendWr, Token, TokenPolicy, TransportMode, WrFlags,
};
use urma_tests::world::{
    Memory, NO_MAPPING, Outcome, Setup, World, check, next, pattern, plain_jfc, same,
};

use super::{SIZES, writes::is_invalid};

super::behaviours! {
    Good any send_every_size: "A SEND of every size arrives byte exact and touches nothing else of the receive buffer.";
    Good any send_without_payload: "A SEND of no bytes completes a receive with length 0.";
    Good reliable send_one_mebibyte: "A SEND of 1 MiB and a bit arrives byte exact.";
    Good any send_gathers: "The SGEs of a SEND arrive one after the other.";
    Good any send_inline: "An inline SEND has its payload at post time: the source may change at once.";
    Good any send_imm_carries_64_bits: "SEND_IMM carries all 64 bits of its immediate beside its payload.";
    Good any sends_arrive_in_order: "SENDs consume receives in posting order.";
    Good any send_completion_names_its_request: "A send completion has user context, queue context and queue id of its request.";
    Good any recv_completion_names_the_sender: "A receive completion has the sender's EID and queue id.";
    Good any send_both_ways: "Both ends may send to each other at the same time.";
    Good rm jfs_to_jfr: "A JFS sends to a JFR.";
    Good reliable send_invalidate_reports_the_token: "SEND_INVALIDATE reports token id and token in the receive completion.";
    Bad reliable send_invalidated_segment_is_closed: "After SEND_INVALIDATE requests on the invalidated segment are refused.";
    Bad any send_with_too_many_sges_is_refused: "A SEND with more SGEs than the queue holds is refused by post.";
    Bad any send_with_both_orders_is_refused: "A request that asks for relaxed and strong order at once is refused by post.";
}

/// One SEND of `len` bytes into a larger receive, checked with guards.
pub(super) fn one_send(w: &mut World, seed: u64, len: usize) -> Outcome {
    let bytes = pattern(seed, len);
    w.a.mem().put(3, &bytes)?;
    w.b.mem().poison(4099, len)?;
    let recv = w.b.recv(4099, len + 40)?;
    let ctx = w.a.send(3, len)?;
    let done = w.b.received_ok(recv)?;
    same("length of the receive", done.len as usize, len)?;
    same("opcode", done.opcode, CrOpcode::Send)?;
    w.a.sent_ok(ctx)?;
    w.b.mem().placed(4099, &bytes)
}

/// Longest SEND of this mode.
pub(super) fn send_max(w: &World) -> usize {
    let caps = &w.a.half.ctx.attr().caps;
    let max = match w.setup.mode {
        TransportMode::Um => u64::from(caps.max_um_size),
        TransportMode::Rm | TransportMode::Rc => caps.max_msg_size,
    };
    usize::try_from(max).unwrap_or(usize::MAX)
}

fn send_every_size(setup: Setup) -> Outcome {
    let mut w = World::new(setup)?;
    let max = send_max(&w);
    for len in SIZES.into_iter().filter(|len| *len <= max) {
        one_send(&mut w, len as u64, len).map_err(|f| f.during(len))?;
    }
    Ok(())
}

fn send_without_payload(setup: Setup) -> Outcome {
    let mut w = World::new(setup)?;
    one_send(&mut w, 1, 0)?;
    // Also into a receive without room.
    let recv = w.b.recv(0, 0)?;
    let ctx = w.a.send(0, 0)?;
    same("length", w.b.received_ok(recv)?.len, 0)?;
    w.a.sent_ok(ctx).map(|_| ())
}

fn send_one_mebibyte(setup: Setup) -> Outcome {
    let mut w = World::with(setup, |plan| plan.len = 3 << 20)?;
    one_send(&mut w, 1, (1 << 20) + 3)
}

fn send_gathers(setup: Setup) -> Outcome {
    let mut w = World::new(setup)?;
    let bytes = pattern(5, 900);
    w.a.mem().put(0, &bytes)?;
    w.b.mem().poison(1000, 17 + 1 + 300 + 8)?;
    let recv = w.b.recv(1000, 1000)?;
    let ctx = w.a.fresh_ctx();
    let (jetty, kit) = w.a.parts();
    let src = [kit.sge(800, 17), kit.sge(3, 1), kit.sge(400, 300), kit.sge(0, 8)];
    jetty.post_send(&[kit.wr(SendOp::Send { src: &src }, ctx)])?;
    w.b.received_ok(recv)?;
    w.a.sent_ok(ctx)?;
    let wanted = [&bytes[800..817], &bytes[3..4], &bytes[400..700], &bytes[..8]].concat();
    w.b.mem().placed(1000, &wanted)
}

fn send_inline(setup: Setup) -> Outcome {
    let mut w = World::with(setup, |plan| plan.send.max_inline = 64)?;
    for len in [1, 7, 8, 9, 17, 63, 64] {
        let bytes = pattern(len as u64, len);
        w.a.mem().put(0, &bytes)?;
        w.b.mem().poison(256, len)?;
        let recv = w.b.recv(256, len)?;
        let ctx = w.a.try_send(WrFlags::COMPLETE | WrFlags::INLINE, 0, len)?;
        w.a.mem().put(0, &vec![0xee; len])?;
        w.b.received_ok(recv)?;
        w.a.sent_ok(ctx)?;
        w.b.mem().placed(256, &bytes).map_err(|f| f.during(len))?;
    }
    Ok(())
}

fn send_imm_carries_64_bits(setup: Setup) -> Outcome {
    let mut w = World::new(setup)?;
    for imm in [0, 1, 1 << 32, 0x0123_4567_89ab_cdef, u64::MAX] {
        for len in [0, 1, 64, 1000] {
            let bytes = pattern(imm, len);
            w.a.mem().put(0, &bytes)?;
            w.b.mem().poison(4096, len)?;
            let recv = w.b.recv(4096, len)?;
            let ctx = w.a.fresh_ctx();
            let (jetty, kit) = w.a.parts();
            let sges = [kit.sge(0, len)];
            let src: &[LocalSge<'_>] = if len == 0 { &[] } else { &sges };
            jetty.post_send(&[kit.wr(SendOp::SendImm { src, imm }, ctx)])?;
            let done = w.b.received_ok(recv)?;
            same("opcode", done.opcode, CrOpcode::SendImm)?;
            same("immediate", done.immediate(), Some(imm))?;
            same("length", done.len as usize, len)?;
            w.a.sent_ok(ctx)?;
            w.b.mem().placed(4096, &bytes)?;
        }
    }
    Ok(())
}

fn sends_arrive_in_order(setup: Setup) -> Outcome {
    let mut w = World::new(setup)?;
    for round in 0..4 {
        let mut receives = Vec::new();
        for index in 0..48 {
            receives.push(w.b.recv(index * 64, 64)?);
        }
        for index in 0..48_usize {
            let value = (round * 48 + index) as u64;
            w.a.mem().set_word(index * 8, value)?;
            w.a.send(index * 8, 8)?;
        }
        for (index, recv) in receives.into_iter().enumerate() {
            w.b.received_ok(recv)?;
            w.a.sent_as(CrStatus::Success)?;
            same("the message", w.b.mem().word(index * 64)?, (round * 48 + index) as u64)?;
        }
    }
    Ok(())
}

fn send_completion_names_its_request(setup: Setup) -> Outcome {
    let mut w = World::with(setup, |plan| plan.send.user_ctx = 0xabcd_0000_1234_5678)?;
    w.b.recv(0, 64)?;
    let ctx = u64::MAX - 1;
    let (jetty, kit) = w.a.parts();
    let src = [kit.sge(0, 16)];
    jetty.post_send(&[kit.wr(SendOp::Send { src: &src }, ctx)])?;
    let done = w.a.sent_ok(ctx)?;
    same("queue context", done.queue_ctx, 0xabcd_0000_1234_5678)?;
    same("queue id", done.local_id, w.a.half.jetty.id().id)?;
    same("flags", done.flags, CompletionFlags::JETTY)
}

fn recv_completion_names_the_sender(setup: Setup) -> Outcome {
    let mut w = World::with(setup, |plan| plan.send.user_ctx = 77)?;
    w.b.recv(0, 64)?;
    w.a.send(0, 16)?;
    let done = w.b.received_as(CrStatus::Success)?;
    same("sender's EID", done.remote.eid, w.a.half.ctx.eid())?;
    same("sender's queue", done.remote.id, w.a.half.jetty.id().id)?;
    same("own queue", done.local_id, w.b.half.jetty.id().id)?;
    same("queue context", done.queue_ctx, 77)?;
    same("flags", done.flags, CompletionFlags::RECV | CompletionFlags::JETTY)?;
    w.a.sent().map(|_| ())
}

fn send_both_ways(setup: Setup) -> Outcome {
    let mut w = World::new(setup)?;
    let (there, back) = (pattern(1, 900), pattern(2, 900));
    w.a.mem().put(0, &there)?;
    w.b.mem().put(0, &back)?;
    for _ in 0..30 {
        w.a.mem().poison(8192, 900)?;
        w.b.mem().poison(8192, 900)?;
        let (at_a, at_b) = (w.a.recv(8192, 900)?, w.b.recv(8192, 900)?);
        let (to_b, to_a) = (w.a.send(0, 900)?, w.b.send(0, 900)?);
        w.a.received_ok(at_a)?;
        w.b.received_ok(at_b)?;
        w.a.sent_ok(to_b)?;
        w.b.sent_ok(to_a)?;
        w.b.mem().placed(8192, &there)?;
        w.a.mem().placed(8192, &back)?;
    }
    Ok(())
}

fn jfs_to_jfr(setup: Setup) -> Outcome {
    let w = World::new(setup)?;
    let mut send_jfc = plain_jfc(&w.a.half.ctx, 16)?;
    let mut recv_jfc = plain_jfc(&w.b.half.ctx, 16)?;
    let mut jfs = w.a.half.ctx.create_jfs(&JfsCfg::new(setup.mode, 8), &send_jfc)?;
    let mut jfr = w.b.half.ctx.create_jfr(&JfrCfg::new(setup.mode, 8), &recv_jfc)?;
    let target = w.a.half.ctx.import_jetty(&jfr.remote())?;
    let bytes = pattern(1, 500);
    w.a.mem().put(0, &bytes)?;
    for round in 0..20 {
        w.b.mem().poison(0, 500)?;
        let to = LocalSge { segment: &w.b.half.seg, addr: w.b.half.seg.va(), len: 500 };
        jfr.post_recv(&[RecvWr { dst: &[to], user_ctx: round }])?;
        let from = LocalSge { segment: &w.a.half.seg, addr: w.a.half.seg.va(), len: 500 };
        jfs.post_send(&[SendWr::new(SendOp::Send { src: &[from] }, &target, round)])?;
        let got = next(&mut recv_jfc, "receive completion")?;
        same("receive", (got.status, got.user_ctx), (CrStatus::Success, round))?;
        same("flags", got.flags, CompletionFlags::RECV)?;
        same("own queue", got.local_id, jfr.id().id)?;
        same("sender", got.remote.id, jfs.id().id)?;
        let sent = next(&mut send_jfc, "send completion")?;
        same("send", (sent.status, sent.user_ctx), (CrStatus::Success, round))?;
        w.b.mem().placed(0, &bytes)?;
    }
    Ok(())
}

fn send_invalidate_reports_the_token(setup: Setup) -> Outcome {
    let mut w = World::new(setup)?;
    let spare = Memory::new(8192)?;
    let token = Token::new(0xdead_1234);
    let cfg = SegmentCfg::new(urma_core::SegmentAccess::REMOTE_ALL).with_token(token);
    let doomed = w.b.half.ctx.register(spare.region(), &cfg, None)?;
    let token_id = doomed.token_id();
    let recv = w.b.recv(0, 64)?;
    let ctx = w.a.fresh_ctx();
    let (jetty, kit) = w.a.parts();
    let src = [kit.sge(0, 9)];
    jetty.post_send(&[kit.wr(SendOp::SendInvalidate { src: &src, token_id, token }, ctx)])?;
    let done = w.b.received_ok(recv)?;
    same("opcode", done.opcode, CrOpcode::SendInvalidate)?;
    check(done.invalidated() == Some((token_id, token)), "token id and token of the completion")?;
    same("length", done.len, 9)?;
    w.a.sent_ok(ctx).map(|_| ())
}

fn send_invalidated_segment_is_closed(setup: Setup) -> Outcome {
    let mut w = World::new(setup)?;
    let spare = Memory::new(8192)?;
    let token = Token::new(0x77);
    let cfg = SegmentCfg {
        policy: TokenPolicy::PlainText(token),
        ..SegmentCfg::new(urma_core::SegmentAccess::REMOTE_ALL)
    };
    let doomed = w.b.half.ctx.register(spare.region(), &cfg, None)?;
    let token_id = doomed.token_id();
    let access = urma_core::SegmentAccess::REMOTE_ALL;
    let imported = w.a.half.ctx.import_segment(&doomed.remote(), access, NO_MAPPING)?;
    let dst = urma_core::RemoteAddr { segment: &imported, addr: imported.va() };
    let (jetty, kit) = w.a.parts();
    jetty.post_send(&[kit.wr(SendOp::Write { src: &src_of(&kit), dst }, 3)])?;
    w.a.sent_ok(3)?;
    spare.poison(0, 64)?;
    let recv = w.b.recv(0, 64)?;
    let (jetty, kit) = w.a.parts();
    let src = [kit.sge(0, 9)];
    jetty.post_send(&[kit.wr(SendOp::SendInvalidate { src: &src, token_id, token }, 1)])?;
    w.b.received_ok(recv)?;
    w.a.sent_ok(1)?;
    // An RC jetty is in the error state after the first.
    let kinds = if setup.mode == TransportMode::Rc { 1 } else { 3 };
    for kind in 0..kinds {
        w.a.mem().poison(8192, 64)?;
        let (jetty, kit) = w.a.parts();
        let (src, into) = (src_of(&kit), [kit.sge(8192, 64)]);
        let op = match kind {
            0 => SendOp::Write { src: &src, dst },
            1 => SendOp::Read { dst: &into, src: dst },
            _ => SendOp::FetchAdd { result: kit.sge(8192, 8), target: dst, value: 1 },
        };
        jetty.post_send(&[kit.wr(op, 2)])?;
        w.a.sent_as(CrStatus::RemAccessAbort).map_err(|f| f.during(kind))?;
        spare.untouched(0, 64)?;
        w.a.mem().untouched(8192, 64)?;
    }
    Ok(())
}

fn src_of<'a>(kit: &urma_tests::world::Kit<'a>) -> [LocalSge<'a>; 1] {
    [kit.sge(0, 64)]
}

fn send_with_too_many_sges_is_refused(setup: Setup) -> Outcome {
    let mut w = World::new(setup)?;
    let (jetty, kit) = w.a.parts();
    let src = [kit.sge(0, 8); 5];
    is_invalid("five SGEs", jetty.post_send(&[kit.wr(SendOp::Send { src: &src }, 1)]))?;
    let dst = [kit.sge(0, 8); 5];
    is_invalid("five SGEs", jetty.post_recv(&[RecvWr { dst: &dst, user_ctx: 1 }]))?;
    w.a.nothing_sent()
}

fn send_with_both_orders_is_refused(setup: Setup) -> Outcome {
    let mut w = World::new(setup)?;
    let flags = WrFlags::COMPLETE | WrFlags::RELAX_ORDER | WrFlags::STRONG_ORDER;
    is_invalid("two orders", w.a.try_send(flags, 0, 8).map(|_| ()))?;
    w.a.nothing_sent()
}
