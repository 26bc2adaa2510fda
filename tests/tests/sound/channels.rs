//! Event channels: by the thousand, in a process without descriptors, waited on, and as a stream.

use std::{
    pin::pin,
    process::Command,
    sync::Arc,
    task::{Context, Poll, Wake, Waker},
    thread,
    time::Duration,
};

use async_io::{Timer, block_on};
use futures_lite::{StreamExt, future};
use nix::sys::resource::{Resource, getrlimit, setrlimit};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use urma_core::{
    Arm, CompletionStream, JfcCfg, Jfce, JfsCfg, SendOp, SendWr, Status, TransportMode,
};
use urma_mem::sync::{AtomicU32, Ordering};
use urma_tests::world::{Host, Link, Moving, Outcome, Setup, World, check, limit, same};

use crate::{LIMIT, ends, pause, receive, send, target};

/// Many times as many as the device has interrupt vectors.
const CHANNELS: usize = 2500;
/// Set in a process of its own that may have few descriptors.
const FEW: &str = "URMA_TEST_FEW_DESCRIPTORS";

const SETUP: Setup = Setup::new(Link::Own, Moving::On, TransportMode::Rm);

fn is_readable(jfce: &Jfce, left: Timespec) -> Outcome<bool> {
    let ready = poll(&mut [PollFd::new(&jfce.fd(), PollFlags::IN)], Some(&left));
    Ok(ready.map_err(std::io::Error::from)? == 1)
}

#[test]
fn thousands_of_channels_get_their_own_events() -> Outcome {
    let (_, most) = getrlimit(Resource::RLIMIT_NOFILE).map_err(std::io::Error::from)?;
    setrlimit(Resource::RLIMIT_NOFILE, most, most).map_err(std::io::Error::from)?;
    let w = World::new(SETUP)?;
    let ctx = &w.a.half.ctx;
    let all = (0..CHANNELS).map(|_| ctx.create_jfce()).collect::<Result<Vec<_>, _>>()?;
    for at in [0, 1, 50, 61, 62, 63, 64, 255, 1000, CHANNELS - 1] {
        let mut jfc = ctx.create_jfc(&JfcCfg::new(8), Some(&all[at]))?;
        let mut jfs = ctx.create_jfs(&JfsCfg::new(TransportMode::Rm, 4), &jfc)?;
        for _ in 0..3 {
            jfc.arm(Arm::Any)?;
            jfs.post_send(&[SendWr::new(SendOp::Nop, &w.a.target, 7)])?;
            let left = Timespec::try_from(limit()).unwrap();
            check(is_readable(&all[at], left)?, format!("no event of channel {at}"))?;
            let mut out = [0; 4];
            same("events", all[at].wait(&mut out, Some(Duration::ZERO))?, 1)?;
            same("JFC", out[0], jfc.id())?;
            jfc.ack_events(1)?;
            let done = jfc.poll_one()?.map(|done| (done.user_ctx, done.status.is_success()));
            same("completion", done, Some((7, true)))?;
            for (other, jfce) in all.iter().enumerate() {
                let is_due = is_readable(jfce, Timespec::default())?;
                check(!is_due, format!("channel {other} has an event of channel {at}"))?;
            }
        }
    }
    Ok(())
}

/// Runs in a process of its own: others of this one need descriptors.
#[test]
fn a_process_without_descriptors_is_refused_channels_until_it_has_some() -> Outcome {
    if std::env::var_os(FEW).is_none() {
        let me = std::env::current_exe()?;
        let name = "channels::a_process_without_descriptors_is_refused_channels_until_it_has_some";
        let done = Command::new(me).args(["--exact", name]).env(FEW, "1").output()?;
        return check(done.status.success(), String::from_utf8_lossy(&done.stdout));
    }
    let host = Host::open(SETUP)?;
    let (_, most) = getrlimit(Resource::RLIMIT_NOFILE).map_err(std::io::Error::from)?;
    setrlimit(Resource::RLIMIT_NOFILE, 200, most).map_err(std::io::Error::from)?;
    let mut all = Vec::new();
    let refused = loop {
        match host.ctx.create_jfce() {
            Ok(jfce) => all.push(jfce),
            Err(status) => break status,
        }
        check(all.len() < 200, "more channels than descriptors")?;
    };
    same("status", refused, Status::NoMemory)?;
    all.truncate(all.len() / 2);
    let again = host.ctx.create_jfce()?;
    drop((again, all));
    Ok(())
}

#[test]
fn a_wait_sleeps_until_a_message_comes() {
    let (mut here, mut there) = ends();
    let to_there = target(&here, &there);
    for user_ctx in 0..3 {
        receive(&mut there, user_ctx);
    }
    let sleeper = thread::spawn(move || {
        let mut waits = || there.completions.wait(LIMIT).unwrap().unwrap().user_ctx;
        [waits(), waits(), waits()]
    });
    for user_ctx in 0..3 {
        pause(&mut here);
        send(&mut here, &to_there, 8, user_ctx);
        assert!(here.completions.wait(LIMIT).unwrap().unwrap().status.is_success());
    }
    assert_eq!(sleeper.join().unwrap(), [0, 1, 2]);
}

#[test]
fn a_wait_ends_with_its_timeout() {
    let (mut here, _there) = ends();
    for timeout in [Duration::ZERO, Duration::from_millis(3)] {
        assert_eq!(here.completions.wait(Some(timeout)).unwrap(), None);
    }
}

#[test]
fn an_event_of_what_was_polled_meanwhile_ends_no_wait() {
    let (mut here, mut there) = ends();
    let to_there = target(&here, &there);
    for round in 0..20 {
        receive(&mut there, round);
        // Armed, and then polled: the event that follows has no new completion.
        assert_eq!(there.completions.wait(Some(Duration::ZERO)).unwrap(), None);
        send(&mut here, &to_there, 8, round);
        let polled = (0..100_000_000).find_map(|_| there.completions.drain().next());
        assert_eq!(polled.unwrap().unwrap().user_ctx, round);

        receive(&mut there, 100 + round);
        send(&mut here, &to_there, 8, round);
        assert_eq!(there.completions.wait(LIMIT).unwrap().unwrap().user_ctx, 100 + round);
        here.completions.drain().for_each(|sent| assert!(sent.unwrap().status.is_success()));
    }
}

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
