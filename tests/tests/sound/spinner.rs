//! A program that polls its JFC at times and then spins on its memory, calling nothing, on one host
//! without moved pages: only the node's own thread can place what its peer writes, and is rung for it.
//!
//! *Owns*: the target that polls in bursts. *Takes*: two nodes of this process. *Gives*: the count of
//! messages that waited for a tick. *Must not*: judge times: any thread may lose its processor.

use std::{
    hint,
    time::{Duration, Instant},
};

use urma_core::{Completion, SendOp, TransportMode, WrFlags};
use urma_tests::world::{End, Link, Moving, Outcome, Setup, World, check};

const ROUNDS: u64 = 64;
/// Polls before each message: more than make a poller.
const POLLS: usize = 100;
/// A message that takes longer never comes.
const BOUND: Duration = Duration::from_secs(10);
const WORD: usize = 4096;

/// Polls as a program does for its own requests, then spins until WRITE_NOTIFY `number` is there.
fn one_message(a: &mut End, b: &mut End, number: u64) -> Outcome {
    let mut room = [Completion::default(); 1];
    for _ in 0..POLLS {
        b.half.jfc.poll(&mut room)?;
    }
    #[expect(clippy::disallowed_methods, reason = "it measures real threads")]
    let start = Instant::now();
    let ctx = a.fresh_ctx();
    let (jetty, kit) = a.parts();
    let (src, dst, notify) = (&[kit.sge(0, 8)], kit.at(0), kit.at(WORD));
    let op = SendOp::WriteNotify { src, dst, notify, data: number };
    jetty.post_send(&[kit.flagged(op, WrFlags::COMPLETE, ctx)])?;
    while b.mem().word(WORD)? != number {
        check(start.elapsed() < BOUND, "a message never came")?;
        hint::spin_loop();
    }
    a.sent_ok(ctx)?;
    Ok(())
}

#[test]
fn a_program_that_polls_in_bursts_is_rung_for_its_messages() -> Outcome {
    let setup = Setup::new(Link::Host, Moving::Off, TransportMode::Rm);
    let mut world = World::new(setup)?;
    for number in 1..=ROUNDS {
        one_message(&mut world.a, &mut world.b, number)?;
    }
    // A thread that has not slept yet, or looks at short intervals, is not rung. What comes without a wake-up waits a
    // tick of the node's thread: 1 to 32 ms. Bursts that pass for steady polls cost one such rest until the next.
    let late = world.b.counter("found_late")?;
    check(late <= ROUNDS / 4, format!("{late} of {ROUNDS} messages waited for a tick"))
}
