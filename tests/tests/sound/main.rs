//! What a right program may rely on, on the real device: handles dropped in every order leave no
//! request behind and touch no memory that was given back; waits end; a program that spins is
//! served.
#![expect(clippy::unwrap_used, reason = "a test that cannot continue fails by panicking")]

mod channels;
mod first_touch;
mod life;
mod recovery;
mod sleeper;
use std::time::Duration;

use urma_core::{RecvWr, SendOp, SendWr, TargetJetty};
use urma_examples::NodeJetty;

/// Longer than any machine needs; a wait this long is a hang.
const LIMIT: Option<Duration> = Some(Duration::from_secs(60));

fn ends() -> (NodeJetty, NodeJetty) {
    (NodeJetty::open("here").unwrap(), NodeJetty::open("there").unwrap())
}

fn target(from: &NodeJetty, to: &NodeJetty) -> TargetJetty {
    from.context.import_jetty(&to.jetty.remote()).unwrap()
}

/// Posts a message of the first `len` bytes.
fn send(from: &mut NodeJetty, to: &TargetJetty, len: u32, user_ctx: u64) {
    let src = [from.segment.sge(0, len)];
    from.jetty.post_send(&[SendWr::new(SendOp::Send { src: &src }, to, user_ctx)]).unwrap();
}

/// Posts a receive into the first 64 bytes.
fn receive(at: &mut NodeJetty, user_ctx: u64) {
    let dst = [at.segment.sge(0, 64)];
    at.jetty.post_recv(&[RecvWr { dst: &dst, user_ctx }]).unwrap();
}

/// Sleeps a little on a channel on which nothing comes, so that others fall asleep too.
fn pause(end: &mut NodeJetty) {
    assert_eq!(end.completions.wait(Some(Duration::from_millis(3))).unwrap(), None);
}
