//! READ: fetches bytes from another node's memory; the other side takes no part.
#![forbid(unsafe_code)]
#![expect(clippy::print_stdout, reason = "an example talks to its user")]

use urma::{Mapping, SegmentAccess, SendOp, SendWr};
use urma_examples::{NodeJetty, Outcome};

fn main() -> Outcome<()> {
    let (mut here, there) = (NodeJetty::open("here")?, NodeJetty::open("there")?);
    let text = b"read from afar";
    there.memory.write(128, text)?;

    let target = here.context.import_jetty(&there.jetty.remote())?;
    let exported = there.segment.remote();
    let remote = here.context.import_segment(&exported, SegmentAccess::READ, Mapping::None)?;

    // Two pieces of local memory are filled one after the other.
    let (half, rest) = (7, u32::try_from(text.len())? - 7);
    let dst = [here.segment.sge(0, half), here.segment.sge(1024, rest)];
    let op = SendOp::Read { dst: &dst, src: remote.at(128) };
    here.jetty.post_send(&[SendWr::new(op, &target, 1)])?;
    let completion = here.done()?;
    println!("request {}: {}", completion.user_ctx, completion.status);

    let mut bytes = vec![0; text.len()];
    let (front, back) = bytes.split_at_mut(usize::try_from(half)?);
    here.memory.read(0, front)?;
    here.memory.read(1024, back)?;
    println!("{} gave: {}", there.context.eid(), String::from_utf8(bytes)?);
    Ok(())
}
