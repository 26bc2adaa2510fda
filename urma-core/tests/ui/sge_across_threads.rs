//! Sending a request to a thread that may outlive the segment.
use std::thread;

use urma_core::{Jetty, RecvWr, Segment};

fn detach(mut jetty: Jetty, segment: &Segment) {
    let piece = segment.sge(0, 8);
    thread::spawn(move || jetty.post_recv(&[RecvWr { dst: &[piece], user_ctx: 1 }]));
}

fn main() {}
