//! A request to a target that was forgotten.
use urma_core::{Jetty, PostError, SendOp, SendWr, TargetJetty};

fn late(jetty: &mut Jetty, target: TargetJetty) -> Result<(), PostError> {
    let request = SendWr::new(SendOp::Nop, &target, 1);
    target.unimport();
    jetty.post_send(&[request])
}

fn main() {}
