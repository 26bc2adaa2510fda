//! A request that names a segment after it was withdrawn.
use urma_core::{Jetty, PostError, RecvWr, Segment};

fn late(jetty: &mut Jetty, segment: Segment) -> Result<(), PostError> {
    let dst = [segment.sge(0, 8)];
    let _ = segment.unregister();
    jetty.post_recv(&[RecvWr { dst: &dst, user_ctx: 1 }])
}

fn main() {}
