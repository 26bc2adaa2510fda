//! READ: fetches bytes from another node's memory; the other side takes no part.
#![forbid(unsafe_code)]
#![expect(clippy::print_stdout, reason = "an example talks to its user")]

use urma_core::{LocalSge, Mapping, RemoteAddr, SegmentAccess, SendOp, SendWr};
use urma_examples::{End, Outcome, wait};

fn main() -> Outcome<()> {
    let (mut here, there) = (End::open("here")?, End::open("there")?);
    let text = b"read from afar";
    there.memory.write(128, text)?;

    let target = here.context.import_jetty(&there.jetty.remote())?;
    let told = there.segment.remote();
    let remote = here.context.import_segment(&told, SegmentAccess::READ, Mapping::None)?;

    // Two pieces of local memory are filled one after the other.
    let (va, half) = (here.segment.va(), 7);
    let rest = u32::try_from(text.len())? - half;
    let dst = [
        LocalSge { segment: &here.segment, addr: va, len: half },
        LocalSge { segment: &here.segment, addr: va + 1024, len: rest },
    ];
    let src = RemoteAddr { segment: &remote, addr: remote.va() + 128 };
    here.jetty.post_send(&[SendWr::new(SendOp::Read { dst: &dst, src }, &target, 1)])?;
    let completion = wait(&mut here.jfc)?;
    println!("request {}: {}", completion.user_ctx, completion.status);

    let mut bytes = vec![0; text.len()];
    let (front, back) = bytes.split_at_mut(usize::try_from(half)?);
    here.memory.read(0, front)?;
    here.memory.read(1024, back)?;
    println!("{} gave: {}", there.context.eid(), String::from_utf8(bytes)?);
    Ok(())
}
