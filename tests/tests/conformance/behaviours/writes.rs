//! WRITE: placement, sizes, SGE lists, inline data, order.

use urma_core::{PostReason, SendOp, WrFlags};
use urma_mem::sync::{AtomicBool, Ordering};
use urma_tests::world::{Outcome, Setup, World, check, pattern, same, until};

use super::SIZES;

super::behaviours! {
    Good reliable write_every_size: "A WRITE of every size is byte exact and touches nothing around it.";
    Good reliable write_unaligned: "Source and destination of a WRITE may have any alignment.";
    Good reliable write_across_pages: "A WRITE may begin and end anywhere around page boundaries.";
    Good reliable write_one_mebibyte: "A WRITE of 1 MiB and a bit is byte exact.";
    Good reliable write_gathers: "The SGEs of a WRITE are placed one after the other.";
    Good reliable write_inline: "An inline WRITE has its payload at post time: the source may change at once.";
    Good reliable write_last_byte_last: "A program that sees the last byte of a WRITE sees all bytes before it.";
    Good reliable write_overwrites_in_order: "Of two strongly ordered WRITEs to one address the bytes of the later one stay.";
    Good reliable write_both_ways: "Both ends may write to each other at the same time.";
    Good reliable write_without_bytes: "A WRITE without SGEs and one with an empty SGE succeed and touch nothing, alone and among others.";
    Good reliable write_many_in_flight: "A queue full of WRITEs places every one.";
    Bad reliable write_with_too_many_sges_is_refused: "A WRITE with more SGEs than the queue holds is refused by post.";
    Bad reliable write_with_too_much_inline_is_refused: "More inline bytes than the queue was created for are refused by post.";
}

fn write_every_size(setup: Setup) -> Outcome {
    let mut w = World::new(setup)?;
    for (index, len) in SIZES.into_iter().enumerate() {
        one_write(&mut w, index as u64, (512, 128, len)).map_err(|f| f.during(len))?;
    }
    Ok(())
}

/// One WRITE of `(from, to, len)`, checked with its guards.
fn one_write(w: &mut World, seed: u64, (from, to, len): (usize, usize, usize)) -> Outcome {
    let bytes = pattern(seed, len);
    w.a.mem().put(from, &bytes)?;
    w.b.mem().poison(to, len)?;
    let ctx = w.a.write(from, to, len)?;
    w.a.sent_ok(ctx)?;
    w.b.mem().placed(to, &bytes)
}

fn write_unaligned(setup: Setup) -> Outcome {
    let mut w = World::new(setup)?;
    for from in 0..9 {
        for to in [0, 1, 3, 7] {
            for len in [5, 8, 24, 61] {
                let place = (4096 + from, 8192 + 128 + to, len);
                one_write(&mut w, from as u64, place)
                    .map_err(|f| f.during(format!("{place:?}")))?;
            }
        }
    }
    Ok(())
}

fn write_across_pages(setup: Setup) -> Outcome {
    let mut w = World::new(setup)?;
    let page = 4096;
    for (before, len) in [(1, 2), (8, 16), (4095, 4097), (1, 8194), (64, 128), (3, 5), (0, 4096)] {
        let place = (page * 4 - before, page * 9 - before, len);
        one_write(&mut w, 3, place).map_err(|f| f.during(format!("{place:?}")))?;
    }
    Ok(())
}

fn write_one_mebibyte(setup: Setup) -> Outcome {
    let mut w = World::with(setup, |plan| plan.len = 3 << 20)?;
    one_write(&mut w, 1, (13, 1077, (1 << 20) + 3))
}

fn write_gathers(setup: Setup) -> Outcome {
    let mut w = World::new(setup)?;
    let bytes = pattern(5, 4000);
    w.a.mem().put(0, &bytes)?;
    w.b.mem().poison(1000, 17 + 1 + 3000 + 8)?;
    let ctx = w.a.fresh_ctx();
    let (jetty, kit) = w.a.parts();
    let src = [kit.sge(900, 17), kit.sge(3, 1), kit.sge(1000, 3000), kit.sge(0, 8)];
    jetty.post_send(&[kit.wr(SendOp::Write { src: &src, dst: kit.at(1000) }, ctx)])?;
    w.a.sent_ok(ctx)?;
    let wanted = [&bytes[900..917], &bytes[3..4], &bytes[1000..4000], &bytes[..8]].concat();
    w.b.mem().placed(1000, &wanted)
}

/// Inline bytes that every setup of this file asks for.
const INLINE: usize = 64;

fn write_inline(setup: Setup) -> Outcome {
    let mut w = World::with(setup, |plan| plan.send.max_inline = 64)?;
    for len in [1, 7, 8, 9, 16, 31, INLINE] {
        let bytes = pattern(len as u64, len);
        w.a.mem().put(0, &bytes)?;
        w.b.mem().poison(256, len)?;
        let flags = WrFlags::COMPLETE | WrFlags::INLINE;
        let ctx = w.a.try_write(flags, (0, 256, len))?;
        w.a.mem().put(0, &vec![0xee; len])?;
        w.a.sent_ok(ctx)?;
        w.b.mem().placed(256, &bytes).map_err(|f| f.during(len))?;
    }
    Ok(())
}

fn write_last_byte_last(setup: Setup) -> Outcome {
    let mut w = World::new(setup)?;
    for (round, len) in [64, 4096, 65536].into_iter().cycle().take(240).enumerate() {
        let mut bytes = pattern(round as u64, len);
        // Memory is zeroed before, so that this byte shows its arrival.
        bytes[len - 1] |= 1;
        w.a.mem().put(0, &bytes)?;
        w.b.mem().put(0, &vec![0; len])?;
        let (a, b) = (&mut w.a, w.b.mem().clone());
        let watching = AtomicBool::new(false);
        let (before, seen) = std::thread::scope(|scope| {
            let watcher = scope.spawn(|| -> Outcome<(u64, Vec<u8>)> {
                watching.store(true, Ordering::Release);
                // The word before the last byte is looked at first: it was stored just before.
                let before = until("the last byte", || {
                    Ok((b.region().load_u8_acquire(len - 1)? != 0).then(|| b.word(len - 16)))
                })??;
                Ok((before, b.take(0, len)?))
            });
            until("the watcher", || Ok(watching.load(Ordering::Acquire).then_some(())))?;
            let ctx = a.write(0, 0, len)?;
            a.sent_ok(ctx)?;
            watcher.join().map_err(|_| "the watcher panicked".to_owned())?
        })?;
        let due = &bytes[len - 16..len - 8];
        check(before.to_le_bytes() == due, format!("the end of {len} bytes came early"))?;
        check(seen == bytes, format!("the end of {len} bytes was seen before their middle"))?;
    }
    Ok(())
}

fn write_overwrites_in_order(setup: Setup) -> Outcome {
    let mut w = World::new(setup)?;
    let flags = WrFlags::COMPLETE | WrFlags::STRONG_ORDER;
    for round in 0..50_u64 {
        for step in 0..4_usize {
            w.a.mem().set_word(step * 64, round * 4 + step as u64)?;
        }
        let (jetty, kit) = w.a.parts();
        let sges = [0, 64, 128, 192].map(|at| [kit.sge(at, 8)]);
        let dst = kit.at(4096);
        let mut batch: Vec<_> = (1..)
            .zip(&sges)
            .map(|(ctx, src)| kit.flagged(SendOp::Write { src, dst }, flags, ctx))
            .collect();
        batch.push(kit.flagged(SendOp::Nop, flags, 5));
        jetty.post_send(&batch)?;
        for ctx in 1..=5 {
            w.a.sent_ok(ctx)?;
        }
        same("the value after four writes", w.b.mem().word(4096)?, round * 4 + 3)?;
    }
    Ok(())
}

fn write_both_ways(setup: Setup) -> Outcome {
    let mut w = World::new(setup)?;
    let (there, back) = (pattern(1, 5000), pattern(2, 5000));
    w.a.mem().put(0, &there)?;
    w.b.mem().put(0, &back)?;
    for _ in 0..20 {
        w.a.mem().poison(16384, 5000)?;
        w.b.mem().poison(16384, 5000)?;
        let (to_b, to_a) = (w.a.write(0, 16384, 5000)?, w.b.write(0, 16384, 5000)?);
        w.a.sent_ok(to_b)?;
        w.b.sent_ok(to_a)?;
        w.b.mem().placed(16384, &there)?;
        w.a.mem().placed(16384, &back)?;
    }
    Ok(())
}

fn write_many_in_flight(setup: Setup) -> Outcome {
    let mut w = World::new(setup)?;
    let bytes = pattern(9, 64 * 700);
    w.a.mem().put(0, &bytes)?;
    w.b.mem().poison(65536, bytes.len())?;
    let mut order = Vec::new();
    for index in 0..64 {
        order.push(w.a.write(index * 700, 65536 + index * 700, 700)?);
    }
    for ctx in order {
        w.a.sent_ok(ctx)?;
    }
    w.b.mem().placed(65536, &bytes)
}

fn write_without_bytes(setup: Setup) -> Outcome {
    let mut w = World::new(setup)?;
    w.b.mem().poison(512, 64)?;
    for (ctx, count) in [(1, 0), (2, 1), (3, 2)] {
        let (jetty, kit) = w.a.parts();
        let nothing = [kit.sge(0, 0), kit.sge(8, 0)];
        let op = SendOp::Write { src: &nothing[..count], dst: kit.at(512) };
        jetty.post_send(&[kit.wr(op, ctx)])?;
        same("length", w.a.sent_ok(ctx)?.len, 0)?;
    }
    w.b.mem().untouched(512, 64)?;
    // Among others, in their order.
    let bytes = pattern(9, 64);
    w.a.mem().put(0, &bytes)?;
    let (jetty, kit) = w.a.parts();
    let (nothing, some) = ([kit.sge(0, 0)], [kit.sge(0, 64)]);
    let list = [(4, &nothing[..]), (5, &some[..]), (6, &[][..])]
        .map(|(ctx, src)| kit.wr(SendOp::Write { src, dst: kit.at(512) }, ctx));
    jetty.post_send(&list)?;
    for ctx in [4, 5, 6] {
        w.a.sent_ok(ctx)?;
    }
    w.b.mem().placed(512, &bytes)
}

/// A post was refused as invalid at its first request.
#[track_caller]
pub(super) fn is_invalid(what: &str, seen: Result<(), urma_core::PostError>) -> Outcome {
    match seen {
        Err(error) if error.index == 0 && matches!(error.reason, PostReason::Invalid(_)) => Ok(()),
        other => urma_tests::world::fail(format!("{what}: {other:?}, Invalid is due")),
    }
}

fn write_with_too_many_sges_is_refused(setup: Setup) -> Outcome {
    let mut w = World::new(setup)?;
    let (jetty, kit) = w.a.parts();
    let src = [kit.sge(0, 8); 5];
    let op = SendOp::Write { src: &src, dst: kit.at(0) };
    is_invalid("five SGEs of four", jetty.post_send(&[kit.wr(op, 1)]))?;
    w.a.nothing_sent()
}

fn write_with_too_much_inline_is_refused(setup: Setup) -> Outcome {
    let mut w = World::with(setup, |plan| plan.send.max_inline = 32)?;
    w.b.mem().poison(256, 33)?;
    let flags = WrFlags::COMPLETE | WrFlags::INLINE;
    let ctx = w.a.try_write(flags, (0, 256, 32))?;
    w.a.sent_ok(ctx)?;
    w.b.mem().poison(256, 33)?;
    let seen = w.a.try_write(flags, (0, 256, 33)).map(|_| ());
    is_invalid("33 inline bytes of 32", seen)?;
    w.a.nothing_sent()?;
    w.b.mem().untouched(256, 33)
}
