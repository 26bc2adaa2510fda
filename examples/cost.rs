//! Cost: WRITEs, each with its completion, beside plain copies of as many bytes. The argument is how many.
#![forbid(unsafe_code)]
#![expect(clippy::print_stdout, reason = "an example talks to its user")]

use std::{hint::black_box, time::Instant};

use urma::{Completion, Mapping, SegmentAccess, SendOp, SendWr};
use urma_examples::{NodeJetty, Outcome};

/// Requests of one post, where there are lists.
const LIST: usize = 8;

fn main() -> Outcome<()> {
    let count = std::env::args().nth(1).map_or(Ok(10_000), |count| count.parse::<u32>())?;
    let (mut here, there) = (NodeJetty::open("here")?, NodeJetty::open("there")?);
    let target = here.context.import_jetty(&there.jetty.remote())?;
    let exported = there.segment.remote();
    let remote =
        here.context.import_segment(&exported, SegmentAccess::REMOTE_ALL, Mapping::None)?;

    for size in [8, 64, 4096] {
        let (from, mut to) = (vec![7_u8; size], vec![0_u8; size]);
        let copy = nanoseconds(count, || {
            black_box(&mut to[..]).copy_from_slice(black_box(&from));
            Ok(())
        })?;

        let src = [here.segment.sge(0, u32::try_from(size)?)];
        let wr = SendWr::new(SendOp::Write { src: &src, dst: remote.at(0) }, &target, 1);
        let mut done = [Completion::default(); LIST];
        let mut write = |wrs: &[SendWr<'_>]| {
            here.jetty.post_send(wrs)?;
            let mut left = wrs.len();
            while left > 0 {
                let came = here.completions.poll(&mut done)?;
                done[..came].iter().try_for_each(|one| one.success().map(|_| ()))?;
                left -= came;
            }
            Ok(())
        };
        let one = nanoseconds(count, || write(&[wr]))?;
        let list = [wr; LIST];
        let each = nanoseconds(count.div_ceil(8), || write(&list))? / 8.0;
        println!(
            "{size:5} bytes: copy {copy:6.1} ns, WRITE {one:6.1} ns, in lists of 8 {each:6.1} ns"
        );
    }
    Ok(())
}

/// What a call of `work` takes on average.
#[expect(clippy::disallowed_methods, reason = "a program that measures has a clock")]
fn nanoseconds(count: u32, mut work: impl FnMut() -> Outcome<()>) -> Outcome<f64> {
    let start = Instant::now();
    for _ in 0..count {
        work()?;
    }
    Ok(start.elapsed().as_secs_f64() * 1e9 / f64::from(count))
}
