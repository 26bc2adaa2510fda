//! Stream: tasks of an async program that sleep until messages come and go.
#![forbid(unsafe_code)]
#![expect(clippy::print_stdout, reason = "an example talks to its user")]

use async_io::block_on;
use futures_lite::future::try_zip;
use urma::{CompletionStream, RecvWr, RemoteJetty, SendOp, SendWr};
use urma_examples::{NodeJetty, Outcome};

const TEXTS: [&str; 3] = ["one", "two", "three"];

fn main() -> Outcome<()> {
    let (here, there) = (NodeJetty::open("here")?, NodeJetty::open("there")?);
    let peer = there.jetty.remote();
    block_on(try_zip(listen(there), send(here, peer)))?;
    Ok(())
}

/// Posts a receive, sleeps until it is filled, posts the next.
async fn listen(mut end: NodeJetty) -> Outcome<()> {
    let mut arrivals = CompletionStream::new(end.completions)?;
    for message in 0..TEXTS.len() as u64 {
        let dst = [end.segment.sge(0, 256)];
        end.jetty.post_recv(&[RecvWr { dst: &dst, user_ctx: message }])?;
        let come = arrivals.next().await?.success()?;
        let mut bytes = vec![0; usize::try_from(come.len)?];
        end.memory.read(0, &mut bytes)?;
        println!("message {}: {}", come.user_ctx, String::from_utf8(bytes)?);
    }
    Ok(())
}

/// A message without a receive waits; the task sleeps until the listener has posted one.
async fn send(mut end: NodeJetty, peer: RemoteJetty) -> Outcome<()> {
    let target = end.context.import_jetty(&peer)?;
    let mut sent = CompletionStream::new(end.completions)?;
    for text in TEXTS {
        end.memory.write(0, text.as_bytes())?;
        let src = [end.segment.sge(0, u32::try_from(text.len())?)];
        end.jetty.post_send(&[SendWr::new(SendOp::Send { src: &src }, &target, 1)])?;
        sent.next().await?.success()?;
    }
    Ok(())
}
