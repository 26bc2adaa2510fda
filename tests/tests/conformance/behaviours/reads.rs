//! READ: sizes, scatter, order against writes.

use urma_core::{CrStatus, SendOp, WrFlags};
use urma_tests::world::{Outcome, Setup, World, pattern, same};

use super::{SIZES, writes::is_invalid};

super::behaviours! {
    Good reliable read_every_size: "A READ of every size is byte exact and touches nothing around it.";
    Good reliable read_unaligned: "Source and destination of a READ may have any alignment.";
    Good reliable read_one_mebibyte: "A READ of 1 MiB and a bit is byte exact.";
    Good reliable read_scatters: "A READ fills its SGEs one after the other.";
    Good reliable read_sees_the_owners_stores: "A READ sees what the owner stored before it was posted.";
    Good reliable strong_read_sees_earlier_write: "A strongly ordered READ sees the bytes of an earlier strongly ordered WRITE of its queue.";
    Good reliable fenced_write_after_read: "A fenced WRITE over the source of an earlier READ does not change what was read.";
    Good reliable read_without_bytes: "A READ without SGEs and one with an empty SGE succeed and touch nothing.";
    Good reliable reads_in_flight: "Many READs at a time each get their own bytes.";
    Bad reliable read_with_inline_is_refused: "READ and atomics with the inline flag are refused by post.";
    Bad reliable read_with_too_many_sges_is_refused: "A READ with more SGEs than the queue holds is refused by post.";
}

fn one_read(w: &mut World, seed: u64, (from, to, len): (usize, usize, usize)) -> Outcome {
    let bytes = pattern(seed, len);
    w.b.mem().put(from, &bytes)?;
    w.a.mem().poison(to, len)?;
    let ctx = w.a.read(from, to, len)?;
    w.a.sent_ok(ctx)?;
    w.a.mem().placed(to, &bytes)
}

fn read_every_size(setup: Setup) -> Outcome {
    let mut w = World::new(setup)?;
    for (index, len) in SIZES.into_iter().enumerate() {
        one_read(&mut w, index as u64, (512, 70_000, len)).map_err(|f| f.during(len))?;
    }
    Ok(())
}

fn read_unaligned(setup: Setup) -> Outcome {
    let mut w = World::new(setup)?;
    for from in 0..9 {
        for to in [0, 1, 3, 7] {
            for len in [5, 8, 24, 61, 4097] {
                let place = (4090 + from, 90_000 + to, len);
                one_read(&mut w, 1, place).map_err(|f| f.during(format!("{place:?}")))?;
            }
        }
    }
    Ok(())
}

fn read_one_mebibyte(setup: Setup) -> Outcome {
    let mut w = World::with(setup, |plan| plan.len = 3 << 20)?;
    one_read(&mut w, 1, (13, (1 << 20) + 4177, (1 << 20) + 3))
}

fn read_scatters(setup: Setup) -> Outcome {
    let mut w = World::new(setup)?;
    let lens = [1, 4097, 8, 100];
    let bytes = pattern(6, lens.iter().sum());
    w.b.mem().put(77, &bytes)?;
    let places = [1000, 9001, 40_000, 60_000];
    for (place, len) in places.into_iter().zip(lens) {
        w.a.mem().poison(place, len)?;
    }
    let ctx = w.a.fresh_ctx();
    let (jetty, kit) = w.a.parts();
    let dst = [0, 1, 2, 3].map(|index| kit.sge(places[index], lens[index]));
    jetty.post_send(&[kit.wr(SendOp::Read { dst: &dst, src: kit.at(77) }, ctx)])?;
    w.a.sent_ok(ctx)?;
    let mut done = 0;
    for (place, len) in places.into_iter().zip(lens) {
        w.a.mem().placed(place, &bytes[done..done + len])?;
        done += len;
    }
    Ok(())
}

fn read_sees_the_owners_stores(setup: Setup) -> Outcome {
    let mut w = World::new(setup)?;
    for value in 1..50 {
        w.b.mem().set_word(4096, value)?;
        let ctx = w.a.read(4096, 0, 8)?;
        w.a.sent_ok(ctx)?;
        same("the word", w.a.mem().word(0)?, value)?;
    }
    Ok(())
}

fn strong_read_sees_earlier_write(setup: Setup) -> Outcome {
    let mut w = World::new(setup)?;
    for round in 0..20 {
        let bytes = pattern(round, 30_000);
        w.a.mem().put(0, &bytes)?;
        w.a.mem().poison(100_000, bytes.len())?;
        w.a.try_write(WrFlags::STRONG_ORDER, (0, 0, bytes.len()))?;
        let ctx = w.a.fresh_ctx();
        let (jetty, kit) = w.a.parts();
        let dst = [kit.sge(100_000, bytes.len())];
        let flags = WrFlags::COMPLETE | WrFlags::STRONG_ORDER;
        let op = SendOp::Read { dst: &dst, src: kit.at(0) };
        jetty.post_send(&[kit.flagged(op, flags, ctx)])?;
        w.a.sent_ok(ctx)?;
        w.a.mem().placed(100_000, &bytes)?;
    }
    Ok(())
}

fn fenced_write_after_read(setup: Setup) -> Outcome {
    let mut w = World::new(setup)?;
    for round in 0..20 {
        let (old, new) = (pattern(round, 30_000), pattern(round + 100, 30_000));
        w.b.mem().put(0, &old)?;
        w.a.mem().put(0, &new)?;
        w.a.mem().poison(100_000, old.len())?;
        let read = w.a.read(0, 100_000, old.len())?;
        let write = w.a.try_write(WrFlags::COMPLETE | WrFlags::FENCE, (0, 0, new.len()))?;
        w.a.sent_ok(read)?;
        w.a.sent_ok(write)?;
        w.a.mem().placed(100_000, &old)?;
        same("the bytes after the write", w.b.mem().take(0, new.len())? == new, true)?;
    }
    Ok(())
}

fn reads_in_flight(setup: Setup) -> Outcome {
    let mut w = World::new(setup)?;
    let bytes = pattern(8, 64 * 1000);
    w.b.mem().put(0, &bytes)?;
    w.a.mem().poison(65536, bytes.len())?;
    let mut order = Vec::new();
    for index in 0..64 {
        order.push(w.a.read(index * 1000, 65536 + index * 1000, 1000)?);
    }
    for ctx in order {
        w.a.sent_ok(ctx)?;
    }
    w.a.mem().placed(65536, &bytes)
}

fn read_with_inline_is_refused(setup: Setup) -> Outcome {
    let mut w = World::with(setup, |plan| plan.send.max_inline = 64)?;
    let flags = WrFlags::COMPLETE | WrFlags::INLINE;
    let (jetty, kit) = w.a.parts();
    let dst = [kit.sge(0, 8)];
    let op = SendOp::Read { dst: &dst, src: kit.at(0) };
    is_invalid("an inline READ", jetty.post_send(&[kit.flagged(op, flags, 1)]))?;
    let (result, target, value) = (kit.sge(0, 8), kit.at(0), 1);
    for (number, op) in super::atomics::all(result, target, value).into_iter().enumerate() {
        let seen = jetty.post_send(&[kit.flagged(op, flags, 1)]);
        is_invalid("an inline atomic", seen).map_err(|f| f.during(number))?;
    }
    w.a.nothing_sent()?;
    same("the word", w.b.mem().word(0)?, 0)
}

fn read_without_bytes(setup: Setup) -> Outcome {
    let mut w = World::new(setup)?;
    w.a.mem().poison(512, 64)?;
    for (ctx, count) in [(1, 0), (2, 1), (3, 2)] {
        let (jetty, kit) = w.a.parts();
        let nothing = [kit.sge(512, 0), kit.sge(520, 0)];
        let op = SendOp::Read { dst: &nothing[..count], src: kit.at(0) };
        jetty.post_send(&[kit.wr(op, ctx)])?;
        same("length", w.a.sent_ok(ctx)?.len, 0)?;
    }
    w.a.mem().untouched(512, 64)?;
    one_read(&mut w, 4, (0, 512, 64))
}

fn read_with_too_many_sges_is_refused(setup: Setup) -> Outcome {
    let mut w = World::new(setup)?;
    let (jetty, kit) = w.a.parts();
    let many = [kit.sge(0, 8); 5];
    let op = SendOp::Read { dst: &many, src: kit.at(0) };
    is_invalid("five SGEs of four", jetty.post_send(&[kit.wr(op, 1)]))?;
    // The queue is as before.
    let ctx = w.a.read(0, 0, 8)?;
    let done = w.a.sent_ok(ctx)?;
    same("status", done.status, CrStatus::Success)
}
