//! The stream on the real event channel.

use std::{
    pin::pin,
    sync::Arc,
    task::{Context, Poll, Wake, Waker},
    thread,
    time::Duration,
};

use async_io::{Timer, block_on};
use futures_lite::{StreamExt, future};
use urma_core::{CompletionStream, SendOp, SendWr};
use urma_mem::sync::{AtomicU32, Ordering};

use crate::{LIMIT, ends, pause, receive, send, target};

#[test]
fn a_task_is_woken_by_each_message() {
    let (mut here, mut there) = ends();
    let to_there = target(&here, &there);
    for user_ctx in 0..10 {
        receive(&mut there, user_ctx);
    }
    let arrivals = CompletionStream::new(there.completions).unwrap();
    let sender = thread::spawn(move || {
        for user_ctx in 0..10 {
            pause(&mut here);
            send(&mut here, &to_there, 8, user_ctx);
            assert!(here.completions.wait(LIMIT).unwrap().unwrap().status.is_success());
        }
    });
    let came: Vec<_> = block_on(arrivals.take(10).map(|come| come.unwrap().user_ctx).collect());
    assert_eq!(came, (0..10).collect::<Vec<_>>());
    sender.join().unwrap();
}

#[test]
fn a_cancelled_wait_loses_no_completion() {
    let (mut here, mut there) = ends();
    let to_there = target(&here, &there);
    let mut arrivals = CompletionStream::new(there.completions).unwrap();
    for user_ctx in 0..5 {
        let short = async {
            Timer::after(Duration::from_millis(1)).await;
            None
        };
        let come = block_on(future::or(async { Some(arrivals.next().await) }, short));
        assert!(come.is_none());
        let dst = [there.segment.sge(0, 64)];
        there.jetty.post_recv(&[urma_core::RecvWr { dst: &dst, user_ctx }]).unwrap();
        send(&mut here, &to_there, 8, user_ctx);
        assert_eq!(block_on(arrivals.next()).unwrap().user_ctx, user_ctx);
    }
}

struct Count(AtomicU32);

impl Wake for Count {
    fn wake(self: Arc<Self>) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }
}

#[test]
fn a_stream_that_never_runs_dry_gives_way() {
    let (mut here, there) = ends();
    let to_there = target(&here, &there);
    let count = Arc::new(Count(AtomicU32::new(0)));
    let waker = Waker::from(Arc::clone(&count));
    let mut cx = Context::from_waker(&waker);
    let mut stream = pin!(CompletionStream::new(here.completions).unwrap());
    let (mut given, mut in_a_row) = (0, 0);
    for user_ctx in 0..10_000 {
        here.jetty.post_send(&[SendWr::new(SendOp::Nop, &to_there, user_ctx)]).unwrap();
        // Usually it is done by now; while another thread serves the device, a moment later.
        while given <= user_ctx {
            let woken = count.0.load(Ordering::Relaxed);
            match stream.as_mut().poll_next(&mut cx) {
                Poll::Ready(done) => {
                    assert_eq!(done.unwrap().unwrap().user_ctx, given);
                    (given, in_a_row) = (given + 1, in_a_row + 1);
                }
                // The task was woken again, and nothing was lost by yielding.
                Poll::Pending if in_a_row == 64 => {
                    assert!(count.0.load(Ordering::Relaxed) > woken);
                    drop(there);
                    return;
                }
                Poll::Pending => in_a_row = 0,
            }
            assert!(in_a_row <= 64, "other tasks starve");
        }
    }
    panic!("never 64 in a row");
}
