//! WRITE: puts bytes into another node's memory; the other side takes no part.
#![forbid(unsafe_code)]
#![expect(clippy::print_stdout, reason = "an example talks to its user")]

use urma_core::{LocalSge, Mapping, RemoteAddr, SegmentAccess, SendOp, SendWr};
use urma_examples::{End, Outcome, wait};

fn main() -> Outcome<()> {
    let (mut here, there) = (End::open("here")?, End::open("there")?);

    // What a real program gets from its peer over a socket: names, addresses, the token.
    let target = here.context.import_jetty(&there.jetty.remote())?;
    let access = SegmentAccess::REMOTE_ALL;
    let remote = here.context.import_segment(&there.segment.remote(), access, Mapping::None)?;

    let text = b"written from afar";
    here.memory.write(0, text)?;
    let len = u32::try_from(text.len())?;
    let src = [LocalSge { segment: &here.segment, addr: here.segment.va(), len }];
    let dst = RemoteAddr { segment: &remote, addr: remote.va() + 64 };
    here.jetty.post_send(&[SendWr::new(SendOp::Write { src: &src, dst }, &target, 1)])?;
    let completion = wait(&mut here.jfc)?;
    println!("request {}: {}", completion.user_ctx, completion.status);

    let mut bytes = vec![0; text.len()];
    there.memory.read(64, &mut bytes)?;
    println!("{} now holds: {}", there.context.eid(), String::from_utf8(bytes)?);
    Ok(())
}
