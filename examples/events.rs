//! Events: sleeps until a message comes instead of polling.
//!
//! `NodeJetty` completes on `Completions`, which sleeps by itself. This is what it does inside, for
//! programs that wait on one channel for many queues.
#![forbid(unsafe_code)]
#![expect(clippy::print_stdout, reason = "an example talks to its user")]

use std::{thread, time::Duration};

use urma::{Arm, JfcCfg, JfrCfg, RecvWr, SendOp, SendWr, TransportMode};
use urma_examples::{NodeJetty, Outcome};

fn main() -> Outcome<()> {
    let (mut here, there) = (NodeJetty::open("here")?, NodeJetty::open("there")?);

    // A channel, and a queue that only receives and whose completions make events on it.
    let jfce = there.context.create_jfce()?;
    let mut jfc = there.context.create_jfc(&JfcCfg::new(16), Some(&jfce))?;
    let mut jfr = there.context.create_jfr(&JfrCfg::new(TransportMode::Rm, 16), &jfc)?;
    jfr.post_recv(&[RecvWr { dst: &[there.segment.sge(0, 256)], user_ctx: 7 }])?;

    // One event per arm. What waits already fires at once, so nothing can slip through between
    // the last poll and the arm.
    jfc.arm(Arm::Any)?;

    let sleeper = thread::spawn(move || {
        let mut jfcs = [0];
        let count = jfce.wait(&mut jfcs, Some(Duration::from_secs(10)))?;
        if count == 1 && jfcs[0] == jfc.id() {
            jfc.ack_events(1)?;
        }
        jfc.poll_one()
    });

    let target = here.context.import_jetty(&jfr.remote())?;
    here.memory.write(0, b"wake up")?;
    let src = [here.segment.sge(0, 7)];
    here.jetty.post_send(&[SendWr::new(SendOp::Send { src: &src }, &target, 1)])?;
    here.done()?;

    let woken = sleeper.join().map_err(|_| "the sleeper panicked")??;
    let come = woken.ok_or("an event without a completion")?.success()?;
    println!("woken by {} bytes for request {}", come.len, come.user_ctx);
    Ok(())
}
