//! Signals that come while a thread waits: EINTR ends the wait with what is ready.

use nix::sys::pthread::{Pthread, pthread_kill, pthread_self};
use nix::sys::signal::Signal;
use std::sync::{Arc, OnceLock, mpsc};

use urma_core::{Arm, SendOp};
use urma_mem::sync::{AtomicBool, AtomicUsize, Ordering};
use urma_tests::world::{Outcome, Pause, Setup, World, limit, pause, same, until};

super::behaviours! {
    Good rm signal_ends_a_wait: "A signal with a handler ends a wait without limit with nothing, when nothing is ready.";
    Good rm signal_ends_an_async_wait: "A signal with a handler ends a wait for an asynchronous event with nothing.";
    Good rm signals_lose_no_event: "While signals come in all the time every event is still given once.";
}

/// A handler for SIGUSR1, for all trials. A handler is installed so that calls are taken up again
/// after it; poll never is.
fn handled() -> Outcome {
    static SEEN: OnceLock<Arc<AtomicBool>> = OnceLock::new();
    let seen = SEEN.get_or_init(Arc::default);
    signal_hook::flag::register(signal_hook::consts::SIGUSR1, Arc::clone(seen))?;
    Ok(())
}

fn interrupt(thread: Pthread) -> Outcome {
    Ok(pthread_kill(thread, Signal::SIGUSR1).map_err(std::io::Error::from)?)
}

/// Runs `wait` in a thread of its own and interrupts that until it ends; what it gave.
fn interrupted<T: Send>(wait: impl FnOnce() -> T + Send) -> Outcome<T> {
    handled()?;
    let (say, receiver) = mpsc::channel();
    std::thread::scope(|scope| {
        let waiter = scope.spawn(move || {
            // The receiver is gone only when the trial failed already.
            let _ = say.send(pthread_self());
            wait()
        });
        let thread = receiver.recv_timeout(limit()).map_err(|error| error.to_string())?;
        until("the end of the wait", || {
            if waiter.is_finished() {
                return Ok(Some(()));
            }
            pause(Pause::Ticks);
            // The thread is not joined: its number is still its own.
            interrupt(thread).map(|()| None)
        })?;
        waiter.join().map_err(|_| "the waiter panicked".to_owned().into())
    })
}

fn signal_ends_a_wait(setup: Setup) -> Outcome {
    let w = World::new(setup)?;
    let jfce = &w.a.half.jfce;
    for _ in 0..3 {
        same("events", interrupted(|| jfce.wait(&mut [0; 4], None))??, 0)?;
    }
    Ok(())
}

fn signal_ends_an_async_wait(setup: Setup) -> Outcome {
    let w = World::new(setup)?;
    let ctx = &w.a.half.ctx;
    for _ in 0..3 {
        same("event", interrupted(|| ctx.next_async(None))??, None)?;
    }
    Ok(())
}

fn signals_lose_no_event(setup: Setup) -> Outcome {
    const EVENTS: usize = 30;
    let mut w = World::new(setup)?;
    let taken = AtomicUsize::new(0);
    handled()?;
    let (say, receiver) = mpsc::channel();
    std::thread::scope(|scope| -> Outcome {
        let (a, taken) = (&mut w.a, &taken);
        let half = &mut a.half;
        let jfce = &half.jfce;
        let waiter = scope.spawn(move || {
            let _ = say.send(pthread_self());
            while taken.load(Ordering::Acquire) < EVENTS {
                let count = jfce.wait(&mut [0; 4], Some(limit()))?;
                taken.fetch_add(count, Ordering::AcqRel);
            }
            Ok::<_, urma_core::Status>(())
        });
        let thread = receiver.recv_timeout(limit()).map_err(|error| error.to_string())?;
        for number in 0..EVENTS {
            half.jfc.arm(Arm::Any)?;
            let nop = urma_core::SendWr::new(SendOp::Nop, &a.target, number as u64);
            half.jetty.post_send(&[nop])?;
            until("the event", || {
                if taken.load(Ordering::Acquire) == number + 1 {
                    return Ok(Some(()));
                }
                interrupt(thread).map(|()| None)
            })?;
            half.jfc.ack_events(1)?;
            let done = urma_tests::world::next(&mut half.jfc, "completion")?;
            same("user context", done.user_ctx, number as u64)?;
        }
        Ok(waiter.join().map_err(|_| "the waiter panicked".to_owned())??)
    })?;
    same("events", taken.load(Ordering::Acquire), EVENTS)
}
