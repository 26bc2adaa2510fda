//! Events: sleeps until a message comes instead of polling.
#![forbid(unsafe_code)]
#![expect(clippy::print_stdout, reason = "an example talks to its user")]

use std::{thread, time::Duration};

use urma_core::{Arm, LocalSge, RecvWr, SendOp, SendWr};
use urma_examples::{End, Outcome, wait};

fn main() -> Outcome<()> {
    let (mut here, mut there) = (End::open("here")?, End::open("there")?);
    let target = here.context.import_jetty(&there.jetty.remote())?;
    let dst = [LocalSge { segment: &there.segment, addr: there.segment.va(), len: 256 }];
    there.jetty.post_recv(&[RecvWr { dst: &dst, user_ctx: 7 }])?;

    // One event per arm. What waits already fires at once, so nothing can slip through between
    // the last poll and the arm.
    there.jfc.arm(Arm::Any)?;

    let sleeper = thread::spawn(move || -> Result<End, urma_core::Status> {
        let mut jfcs = [0];
        let count = there.jfce.wait(&mut jfcs, Some(Duration::from_secs(10)))?;
        if count == 1 && jfcs[0] == there.jfc.id() {
            there.jfc.ack_events(1)?;
        }
        Ok(there)
    });

    here.memory.write(0, b"wake up")?;
    let src = [LocalSge { segment: &here.segment, addr: here.segment.va(), len: 7 }];
    here.jetty.post_send(&[SendWr::new(SendOp::Send { src: &src }, &target, 1)])?;
    wait(&mut here.jfc)?;

    let mut there = sleeper.join().map_err(|_| "the sleeper panicked")??;
    let come = wait(&mut there.jfc)?;
    println!("woken by {} bytes for request {}", come.len, come.user_ctx);
    Ok(())
}
