//! Atomics: fetch-and-add and compare-and-swap on another node's memory.
#![forbid(unsafe_code)]
#![expect(clippy::print_stdout, reason = "an example talks to its user")]

use urma_core::{LocalSge, Mapping, RemoteAddr, SegmentAccess, SendOp, SendWr};
use urma_examples::{End, Outcome, wait};

fn main() -> Outcome<()> {
    let (mut here, there) = (End::open("here")?, End::open("there")?);
    there.memory.store_u64(0, 100)?;

    let target = here.context.import_jetty(&there.jetty.remote())?;
    let access = SegmentAccess::REMOTE_ALL;
    let remote = here.context.import_segment(&there.segment.remote(), access, Mapping::None)?;
    let counter = RemoteAddr { segment: &remote, addr: remote.va() };

    // The old values land in the first 8 bytes of the local memory.
    let result = LocalSge { segment: &here.segment, addr: here.segment.va(), len: 8 };
    for round in 0..3 {
        let op = SendOp::FetchAdd { result, target: counter, value: 5 };
        here.jetty.post_send(&[SendWr::new(op, &target, round)])?;
        wait(&mut here.jfc)?;
        println!("add 5: it was {}", here.memory.load_u64(0)?);
    }

    for compare in [7, 115] {
        let op = SendOp::Cas { result, target: counter, compare, swap: 1 };
        here.jetty.post_send(&[SendWr::new(op, &target, compare)])?;
        wait(&mut here.jfc)?;
        let old = here.memory.load_u64(0)?;
        let outcome = if old == compare { "swapped" } else { "not swapped" };
        println!("swap {compare} for 1: it was {old}, {outcome}");
    }
    println!("the counter is {}", there.memory.load_u64(0)?);
    Ok(())
}
