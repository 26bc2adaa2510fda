//! UM: messages without acknowledgement.

use urma_core::{CrStatus, PostReason, SendOp, WrFlags};
use urma_tests::world::{Outcome, Setup, World, check, pattern, same};

use super::messages::{one_send, send_max};

super::behaviours! {
    Good um um_carries_its_longest_message: "UM carries a message of max_um_size bytes.";
    Good um um_send_without_receive_succeeds: "A UM message without a receive is dropped; its SEND succeeds and later ones arrive.";
    Bad um um_refuses_one_sided: "UM queues refuse every operation but messages and NOP by mode.";
    Bad um um_refuses_longer_messages: "A UM message of one byte more than max_um_size is refused by post.";
    Bad um um_longer_than_the_receive: "A UM message longer than its receive leaves the bytes beyond alone.";
}

fn um_carries_its_longest_message(setup: Setup) -> Outcome {
    let mut w = World::new(setup)?;
    let max = send_max(&w);
    check(max >= 256, format!("max_um_size is {max}"))?;
    for len in [max - 1, max] {
        one_send(&mut w, 1, len)?;
    }
    Ok(())
}

fn um_send_without_receive_succeeds(setup: Setup) -> Outcome {
    let mut w = World::new(setup)?;
    let dropped = w.b.counter("drop_um")?;
    for _ in 0..3 {
        let ctx = w.a.send(0, 100)?;
        w.a.sent_ok(ctx)?;
    }
    urma_tests::world::until("three dropped messages", || {
        Ok((w.b.counter("drop_um")? == dropped + 3).then_some(()))
    })?;
    w.b.nothing_received()?;
    one_send(&mut w, 2, 100)
}

fn um_refuses_one_sided(setup: Setup) -> Outcome {
    let mut w = World::new(setup)?;
    let (jetty, kit) = w.a.parts();
    let (sges, at, result) = ([kit.sge(0, 8)], kit.at(0), kit.sge(0, 8));
    let ops = [
        SendOp::Write { src: &sges, dst: at },
        SendOp::WriteImm { src: &sges, dst: at, imm: 1 },
        SendOp::WriteNotify { src: &sges, dst: at, notify: at, data: 1 },
        SendOp::WriteAtomic { src: &sges, dst: at, notify: at, add: 1 },
        SendOp::Read { dst: &sges, src: at },
        SendOp::FlushDma,
    ];
    let ops = ops.into_iter().chain(super::atomics::all(result, at, 1));
    for (number, op) in ops.enumerate() {
        let seen = jetty.post_send(&[kit.wr(op, 1)]);
        let seen = seen.map_err(|error| error.reason);
        same(&format!("answer to operation {number}"), seen, Err(PostReason::Mode))?;
    }
    w.a.nothing_sent()?;
    same("the word", w.b.mem().word(0)?, 0)
}

fn um_refuses_longer_messages(setup: Setup) -> Outcome {
    let mut w = World::new(setup)?;
    let max = send_max(&w);
    let seen = w.a.try_send(WrFlags::COMPLETE, 0, max + 1);
    check(
        seen.is_err_and(|error| matches!(error.reason, PostReason::Invalid(_))),
        "the message was taken",
    )?;
    w.a.nothing_sent()
}

fn um_longer_than_the_receive(setup: Setup) -> Outcome {
    let mut w = World::new(setup)?;
    w.a.mem().put(0, &pattern(1, 200))?;
    w.b.mem().poison(4096 + 100, 200)?;
    w.b.recv(4096, 100)?;
    let ctx = w.a.send(0, 200)?;
    w.a.sent_ok(ctx)?;
    w.b.received_as(CrStatus::LocLen)?;
    let beyond = w.b.mem().take(4096 + 100, 200)?;
    check(beyond.iter().all(|byte| *byte == 0xa5), "bytes beyond the receive changed")
}
