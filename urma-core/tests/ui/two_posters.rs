//! Two threads that post to one queue at once: a post needs the queue for itself.
use std::thread;

use urma_core::{Jetty, SendWr};

fn post(jetty: &mut Jetty, request: SendWr<'_>) {
    thread::scope(|scope| {
        scope.spawn(|| jetty.post_send(&[request]));
        scope.spawn(|| jetty.post_send(&[request]));
    });
}

fn main() {}
