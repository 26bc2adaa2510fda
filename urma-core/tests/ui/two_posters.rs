//! Two threads that post to one queue at once: a post needs the queue for itself.
use std::thread;

use urma_core::Jetty;

fn post(jetty: &mut Jetty) {
    let (one, two) = (&mut *jetty, &mut *jetty);
    thread::scope(|scope| {
        scope.spawn(move || one.post_send(&[]));
        scope.spawn(move || two.post_send(&[]));
    });
}

fn main() {}
