//! A queue that was deleted is gone; one that refused comes back in the error.
use urma_core::{Jetty, PostError};

fn late(mut jetty: Jetty) -> Result<(), PostError> {
    let _ = jetty.delete();
    jetty.post_send(&[])
}

fn main() {}
