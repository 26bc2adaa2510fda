//! Atomics: fetch-and-add and compare-and-swap on another node's memory.
#![forbid(unsafe_code)]
#![expect(clippy::print_stdout, reason = "an example talks to its user")]

use urma::{Mapping, SegmentAccess, SendOp, SendWr};
use urma_examples::{NodeJetty, Outcome};

fn main() -> Outcome<()> {
    let (mut here, there) = (NodeJetty::open("here")?, NodeJetty::open("there")?);
    there.memory.store_u64(0, 100)?;

    let target = here.context.import_jetty(&there.jetty.remote())?;
    let exported = there.segment.remote();
    let remote =
        here.context.import_segment(&exported, SegmentAccess::REMOTE_ALL, Mapping::None)?;
    let counter = remote.at(0);

    for round in 0..3 {
        // The old value lands in the first 8 bytes of the local memory.
        let result = here.segment.sge(0, 8);
        let op = SendOp::FetchAdd { result, target: counter, value: 5 };
        here.jetty.post_send(&[SendWr::new(op, &target, round)])?;
        here.done()?;
        println!("add 5: it was {}", here.memory.load_u64(0)?);
    }

    for compare in [7, 115] {
        let result = here.segment.sge(0, 8);
        let op = SendOp::Cas { result, target: counter, compare, swap: 1 };
        here.jetty.post_send(&[SendWr::new(op, &target, compare)])?;
        here.done()?;
        let old = here.memory.load_u64(0)?;
        let outcome = if old == compare { "swapped" } else { "not swapped" };
        println!("swap {compare} for 1: it was {old}, {outcome}");
    }
    println!("the counter is {}", there.memory.load_u64(0)?);
    Ok(())
}
