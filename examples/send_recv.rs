//! SEND and receive: a message with an immediate, and the answer.
#![forbid(unsafe_code)]
#![expect(clippy::print_stdout, reason = "an example talks to its user")]

use urma_core::{LocalSge, RecvWr, SendOp, SendWr};
use urma_examples::{End, Outcome, wait};

fn main() -> Outcome<()> {
    let (mut here, mut there) = (End::open("here")?, End::open("there")?);
    let to_there = here.context.import_jetty(&there.jetty.remote())?;
    let to_here = there.context.import_jetty(&here.jetty.remote())?;

    // Each side posts the receive first: a message without one waits and is sent again.
    post_receive(&mut here)?;
    post_receive(&mut there)?;

    let question = b"who is there?";
    here.memory.write(0, question)?;
    let len = u32::try_from(question.len())?;
    let src = [LocalSge { segment: &here.segment, addr: here.segment.va(), len }];
    here.jetty.post_send(&[SendWr::new(SendOp::SendImm { src: &src, imm: 42 }, &to_there, 1)])?;
    wait(&mut here.jfc)?;
    show(&mut there)?;

    let answer = there.context.eid().to_string();
    there.memory.write(0, answer.as_bytes())?;
    let len = u32::try_from(answer.len())?;
    let src = [LocalSge { segment: &there.segment, addr: there.segment.va(), len }];
    there.jetty.post_send(&[SendWr::new(SendOp::Send { src: &src }, &to_here, 2)])?;
    wait(&mut there.jfc)?;
    show(&mut here)
}

/// A receive of up to 256 bytes at offset 2048.
fn post_receive(end: &mut End) -> Outcome<()> {
    let dst = [LocalSge { segment: &end.segment, addr: end.segment.va() + 2048, len: 256 }];
    end.jetty.post_recv(&[RecvWr { dst: &dst, user_ctx: 100 }])?;
    Ok(())
}

fn show(end: &mut End) -> Outcome<()> {
    let come = wait(&mut end.jfc)?;
    let mut bytes = vec![0; usize::try_from(come.len)?];
    end.memory.read(2048, &mut bytes)?;
    let (from, text) = (come.remote.eid, String::from_utf8(bytes)?);
    println!("{from} says {text:?}, immediate {:?}", come.immediate());
    Ok(())
}
