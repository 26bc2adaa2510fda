//! SEND and receive: a message with an immediate, and the answer.
#![forbid(unsafe_code)]
#![expect(clippy::print_stdout, reason = "an example talks to its user")]

use urma::{RecvWr, SendOp, SendWr};
use urma_examples::{NodeJetty, Outcome};

fn main() -> Outcome<()> {
    let (mut here, mut there) = (NodeJetty::open("here")?, NodeJetty::open("there")?);
    let to_there = here.context.import_jetty(&there.jetty.remote())?;
    let to_here = there.context.import_jetty(&here.jetty.remote())?;

    // Each side posts the receive first: a message without one waits and is sent again.
    post_receive(&mut here)?;
    post_receive(&mut there)?;

    let question = b"who is there?";
    here.memory.write(0, question)?;
    let src = [here.segment.sge(0, u32::try_from(question.len())?)];
    let op = SendOp::SendImm { src: &src, imm: 42 };
    here.jetty.post_send(&[SendWr::new(op, &to_there, 1)])?;
    here.done()?;
    show(&mut there)?;

    let answer = there.context.eid().to_string();
    there.memory.write(0, answer.as_bytes())?;
    let src = [there.segment.sge(0, u32::try_from(answer.len())?)];
    there.jetty.post_send(&[SendWr::new(SendOp::Send { src: &src }, &to_here, 2)])?;
    there.done()?;
    show(&mut here)
}

/// A receive of up to 256 bytes at offset 2048.
fn post_receive(end: &mut NodeJetty) -> Outcome<()> {
    let dst = [end.segment.sge(2048, 256)];
    end.jetty.post_recv(&[RecvWr { dst: &dst, user_ctx: 100 }])?;
    Ok(())
}

fn show(end: &mut NodeJetty) -> Outcome<()> {
    let come = end.done()?;
    let mut bytes = vec![0; usize::try_from(come.len)?];
    end.memory.read(2048, &mut bytes)?;
    let (from, text) = (come.remote.eid, String::from_utf8(bytes)?);
    println!("{from} says {text:?}, immediate {:?}", come.immediate());
    Ok(())
}
