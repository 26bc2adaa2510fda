//! A queue that two threads look at: it belongs to one thread at a time.
use std::thread;

use urma_core::Jetty;

fn look(jetty: &Jetty) {
    thread::scope(|scope| {
        scope.spawn(|| jetty.query());
    });
}

fn main() {}
