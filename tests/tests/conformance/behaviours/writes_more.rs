//! WRITE with something after it: immediate, notify, atomic add.

use urma_core::{CrOpcode, CrStatus, SendOp, WrFlags};
use urma_tests::world::{Outcome, Setup, World, check, pattern, same, until};

use super::writes::is_invalid;

super::behaviours! {
    Good reliable write_imm_places_and_completes: "WRITE_IMM places its payload and completes a receive with its 64-bit immediate.";
    Good reliable write_imm_every_size: "WRITE_IMM is byte exact at sizes around words and packets.";
    Good reliable write_imm_without_payload: "WRITE_IMM may carry only its immediate.";
    Good reliable write_imm_leaves_the_receive_buffer: "WRITE_IMM consumes a receive and does not touch its buffer.";
    Bad reliable write_imm_without_receive: "WRITE_IMM to a jetty without receives ends as receiver not ready.";
    Good reliable write_notify_after_payload: "A program that sees the 8 bytes of a WRITE_NOTIFY sees its whole payload.";
    Good reliable write_notify_every_size: "WRITE_NOTIFY is byte exact and stores exactly 8 bytes besides.";
    Good reliable write_atomic_adds: "WRITE_ATOMIC places its payload, then adds to the 8 bytes at its notify address.";
    Good reliable write_atomic_adds_after_payload: "A program that sees the sum of a WRITE_ATOMIC sees its whole payload.";
    Bad reliable write_notify_misaligned_is_refused: "A notify address that is not aligned to 8 is refused by post.";
    Good reliable flush_dma_follows_writes: "FLUSH_DMA completes after all earlier writes are placed.";
}

fn write_imm_places_and_completes(setup: Setup) -> Outcome {
    let mut w = World::new(setup)?;
    for imm in [0, 1, u64::from(u32::MAX) + 1, 0x0123_4567_89ab_cdef, u64::MAX] {
        write_imm(&mut w, 100, imm).map_err(|f| f.during(format!("imm {imm:#x}")))?;
    }
    Ok(())
}

fn write_imm(w: &mut World, len: usize, imm: u64) -> Outcome {
    let bytes = pattern(imm, len);
    w.a.mem().put(0, &bytes)?;
    w.b.mem().poison(4096, len)?;
    let recv = w.b.recv(0, 64)?;
    let ctx = w.a.fresh_ctx();
    let (jetty, kit) = w.a.parts();
    let sges = [kit.sge(0, len)];
    let src = if len == 0 { &sges[..0] } else { &sges };
    jetty.post_send(&[kit.wr(SendOp::WriteImm { src, dst: kit.at(4096), imm }, ctx)])?;
    w.a.sent_ok(ctx)?;
    let done = w.b.received_ok(recv)?;
    same("opcode", done.opcode, CrOpcode::WriteImm)?;
    same("immediate", done.immediate(), Some(imm))?;
    same("length", done.len as usize, len)?;
    w.b.mem().placed(4096, &bytes)
}

fn write_imm_every_size(setup: Setup) -> Outcome {
    let mut w = World::new(setup)?;
    for len in [1, 7, 8, 9, 63, 64, 65, 1023, 1024, 1025, 4095, 4096, 4097, 65539] {
        write_imm(&mut w, len, len as u64).map_err(|f| f.during(len))?;
    }
    Ok(())
}

fn write_imm_without_payload(setup: Setup) -> Outcome {
    let mut w = World::new(setup)?;
    write_imm(&mut w, 0, 0xfeed_f00d_dead_beef)
}

fn write_imm_leaves_the_receive_buffer(setup: Setup) -> Outcome {
    let mut w = World::new(setup)?;
    w.b.mem().poison(1024, 256)?;
    let recv = w.b.recv(1024, 256)?;
    let ctx = w.a.fresh_ctx();
    let (jetty, kit) = w.a.parts();
    let src = [kit.sge(0, 200)];
    jetty.post_send(&[kit.wr(SendOp::WriteImm { src: &src, dst: kit.at(8192), imm: 5 }, ctx)])?;
    w.a.sent_ok(ctx)?;
    w.b.received_ok(recv)?;
    w.b.mem().untouched(1024, 256)
}

fn write_imm_without_receive(setup: Setup) -> Outcome {
    let mut w = World::with(setup, |plan| {
        plan.send.rnr_retry = 1;
        plan.recv.min_rnr_timer = 1;
    })?;
    let ctx = w.a.fresh_ctx();
    let (jetty, kit) = w.a.parts();
    let src = [kit.sge(0, 8)];
    jetty.post_send(&[kit.wr(SendOp::WriteImm { src: &src, dst: kit.at(0), imm: 1 }, ctx)])?;
    let done = w.a.sent_as(CrStatus::RnrRetryExceeded)?;
    same("user context", done.user_ctx, ctx)
}

fn write_notify_after_payload(setup: Setup) -> Outcome {
    let mut w = World::new(setup)?;
    for round in 1..40_u64 {
        let len = 20_000;
        let bytes = pattern(round, len);
        w.a.mem().put(0, &bytes)?;
        w.b.mem().put(0, &vec![0; len])?;
        let b = w.b.mem().clone();
        let a = &mut w.a;
        let seen = std::thread::scope(|scope| {
            let watcher = scope.spawn(move || -> Outcome<Vec<u8>> {
                until("the notify word", || Ok((b.word(65536)? == round).then_some(())))?;
                b.take(0, len)
            });
            let ctx = a.fresh_ctx();
            let (jetty, kit) = a.parts();
            let (src, notify) = ([kit.sge(0, len)], kit.at(65536));
            let op = SendOp::WriteNotify { src: &src, dst: kit.at(0), notify, data: round };
            jetty.post_send(&[kit.wr(op, ctx)])?;
            a.sent_ok(ctx)?;
            watcher.join().map_err(|_| "the watcher panicked".to_owned())?
        })?;
        check(seen == bytes, "the notify word was seen before the payload")?;
    }
    Ok(())
}

fn write_notify_every_size(setup: Setup) -> Outcome {
    let mut w = World::new(setup)?;
    for len in [1, 7, 8, 9, 64, 65, 1024, 1025, 4095, 4096, 4097, 65539] {
        let bytes = pattern(len as u64, len);
        w.a.mem().put(8, &bytes)?;
        w.b.mem().poison(4099, len)?;
        w.b.mem().poison(128, 8)?;
        let ctx = w.a.fresh_ctx();
        let (jetty, kit) = w.a.parts();
        let (src, notify, data) = ([kit.sge(8, len)], kit.at(128), 0x1122_3344_5566_7788);
        let op = SendOp::WriteNotify { src: &src, dst: kit.at(4099), notify, data };
        jetty.post_send(&[kit.wr(op, ctx)])?;
        w.a.sent_ok(ctx)?;
        w.b.mem().placed(4099, &bytes).map_err(|f| f.during(len))?;
        w.b.mem().placed(128, &data.to_le_bytes()).map_err(|f| f.during(len))?;
    }
    Ok(())
}

fn write_atomic_adds(setup: Setup) -> Outcome {
    let mut w = World::new(setup)?;
    w.b.mem().set_word(128, u64::MAX - 2)?;
    for (round, len) in [1_usize, 8, 100, 4097, 65539].into_iter().enumerate() {
        let bytes = pattern(len as u64, len);
        w.a.mem().put(0, &bytes)?;
        w.b.mem().poison(4096, len)?;
        let ctx = w.a.fresh_ctx();
        let (jetty, kit) = w.a.parts();
        let src = [kit.sge(0, len)];
        let op = SendOp::WriteAtomic { src: &src, dst: kit.at(4096), notify: kit.at(128), add: 2 };
        jetty.post_send(&[kit.wr(op, ctx)])?;
        w.a.sent_ok(ctx)?;
        w.b.mem().placed(4096, &bytes).map_err(|f| f.during(len))?;
        let wanted = (u64::MAX - 2).wrapping_add(2 * (round as u64 + 1));
        same("the counter", w.b.mem().word(128)?, wanted)?;
    }
    Ok(())
}

fn write_atomic_adds_after_payload(setup: Setup) -> Outcome {
    let mut w = World::new(setup)?;
    let len = 20_000;
    w.b.mem().set_word(65536, 100)?;
    for round in 1..40_u64 {
        let bytes = pattern(round, len);
        w.a.mem().put(0, &bytes)?;
        w.b.mem().put(0, &vec![0; len])?;
        let (a, b) = (&mut w.a, w.b.mem().clone());
        let seen = std::thread::scope(|scope| {
            let watcher = scope.spawn(move || -> Outcome<Vec<u8>> {
                until("the sum", || Ok((b.word(65536)? == 100 + round).then_some(())))?;
                b.take(0, len)
            });
            let ctx = a.fresh_ctx();
            let (jetty, kit) = a.parts();
            let (src, notify) = ([kit.sge(0, len)], kit.at(65536));
            let op = SendOp::WriteAtomic { src: &src, dst: kit.at(0), notify, add: 1 };
            jetty.post_send(&[kit.wr(op, ctx)])?;
            a.sent_ok(ctx)?;
            watcher.join().map_err(|_| "the watcher panicked".to_owned())?
        })?;
        check(seen == bytes, "the sum was seen before the payload")?;
    }
    Ok(())
}

fn write_notify_misaligned_is_refused(setup: Setup) -> Outcome {
    let mut w = World::new(setup)?;
    w.b.mem().poison(0, 256)?;
    for at in [129, 132, 135] {
        let (jetty, kit) = w.a.parts();
        let src = [kit.sge(0, 8)];
        let (dst, notify) = (kit.at(0), kit.at(at));
        let op = SendOp::WriteNotify { src: &src, dst, notify, data: 1 };
        is_invalid("a misaligned notify", jetty.post_send(&[kit.wr(op, 1)]))?;
        let op = SendOp::WriteAtomic { src: &src, dst, notify, add: 1 };
        is_invalid("a misaligned add", jetty.post_send(&[kit.wr(op, 1)]))?;
    }
    w.a.nothing_sent()?;
    w.b.mem().untouched(0, 256)
}

fn flush_dma_follows_writes(setup: Setup) -> Outcome {
    let mut w = World::new(setup)?;
    let bytes = pattern(4, 60_000);
    w.a.mem().put(0, &bytes)?;
    for _ in 0..10 {
        w.b.mem().poison(65536, bytes.len())?;
        for (at, len) in [(0, 40_000), (40_000, 8), (40_008, 19_992)] {
            w.a.try_write(WrFlags::empty(), (at, 65536 + at, len))?;
        }
        let ctx = w.a.post(|_| SendOp::FlushDma)?;
        w.a.sent_ok(ctx)?;
        w.b.mem().placed(65536, &bytes)?;
    }
    Ok(())
}
