//! WRITE: puts bytes into another node's memory; the other side takes no part.
#![forbid(unsafe_code)]
#![expect(clippy::print_stdout, reason = "an example talks to its user")]

use urma::{Mapping, SegmentAccess, SendOp, SendWr};
use urma_examples::{NodeJetty, Outcome};

fn main() -> Outcome<()> {
    let (mut here, there) = (NodeJetty::open("here")?, NodeJetty::open("there")?);

    // What a real program gets from its peer over a socket: names, addresses, the token.
    let target = here.context.import_jetty(&there.jetty.remote())?;
    let exported = there.segment.remote();
    let remote =
        here.context.import_segment(&exported, SegmentAccess::REMOTE_ALL, Mapping::None)?;

    let text = b"written from afar";
    here.memory.write(0, text)?;
    let src = [here.segment.sge(0, u32::try_from(text.len())?)];
    let op = SendOp::Write { src: &src, dst: remote.at(64) };
    here.jetty.post_send(&[SendWr::new(op, &target, 1)])?;
    let completion = here.done()?;
    println!("request {}: {}", completion.user_ctx, completion.status);

    let mut bytes = vec![0; text.len()];
    there.memory.read(64, &mut bytes)?;
    println!("{} now holds: {}", there.context.eid(), String::from_utf8(bytes)?);
    Ok(())
}
