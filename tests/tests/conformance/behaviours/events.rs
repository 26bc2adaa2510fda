//! Events: JFCE and asynchronous, their descriptors, arming.

use std::{os::fd::AsFd, time::Duration};

use rustix::event::{self, PollFd, PollFlags, Timespec, epoll};
use urma_core::{
    Arm, AsyncKind, CrStatus, JettyState, JfcCfg, SendOp, Status, TransportMode, WrFlags,
};
use urma_tests::world::{Outcome, Pause, Setup, World, check, fail, limit, pause, refused, same};

super::behaviours! {
    Good any event_comes_for_a_completion: "An armed JFC gives one event when a completion comes.";
    Good any descriptor_is_readable_while_unconsumed: "The JFCE descriptor is readable exactly while an event is unconsumed, of one and of several.";
    Good rm descriptor_works_with_epoll_level: "Level-triggered epoll reports the JFCE until its event is taken.";
    Good rm descriptor_works_with_epoll_edge: "Edge-triggered epoll reports the JFCE once for each event.";
    Good any one_event_per_arm: "One arm gives one event, however many completions come.";
    Good any arm_with_waiting_completions_fires: "Arming with completions waiting fires at once.";
    Good any unarmed_jfc_gives_no_event: "Without an arm no event comes.";
    Good rm wait_zero_looks: "A wait with a limit of 0 returns at once, with nothing when there is no event.";
    Good rm wait_has_a_limit: "A wait with a limit returns nothing when no event comes within it.";
    Good rm wait_wakes_up: "A wait without limit wakes up when a completion comes.";
    Good rm wait_ends_when_deleted: "A wait without limit ends when the JFCE is deleted.";
    Good any solicited_only_ignores_others: "Armed for solicited ones, a JFC gives no event for an unsolicited message.";
    Good any solicited_send_fires: "Armed for solicited ones, a JFC gives an event for a solicited SEND.";
    Good reliable solicited_write_imm_fires: "Armed for solicited ones, a JFC gives an event for a solicited WRITE_IMM.";
    Good rm one_jfce_serves_many_jfcs: "An event of a JFCE names the JFC that it is for.";
    Good rm moderation_counts: "With moderation by count the event comes only after that many completions.";
    Good any rx_limit_event: "One limit event comes when fewer receives than the threshold are left.";
    Bad reliable solicited_only_fires_on_errors: "Armed for solicited ones, a JFC gives an event for every error.";
    Bad reliable jetty_error_event: "A jetty that goes to the error state by itself gives an asynchronous event.";
    Bad reliable async_descriptor_is_readable_while_unconsumed: "The asynchronous descriptor is readable exactly while an event is unconsumed, of one and of several.";
    Bad reliable async_descriptor_works_with_epoll: "Epoll reports an asynchronous event until it is taken (level) or once (edge).";
    Bad rm arm_without_jfce_is_refused: "Arming a JFC that has no JFCE is refused.";
    Bad rm ack_of_more_than_open_is_refused: "Acknowledging more events than were taken is refused.";
}

/// Whether the descriptor is readable, after at most `timeout`.
fn readable(fd: impl AsFd, timeout: Duration) -> Outcome<bool> {
    let mut fds = [PollFd::new(&fd, PollFlags::IN)];
    let timeout = timespec(timeout);
    let count = event::poll(&mut fds, Some(&timeout)).map_err(std::io::Error::from)?;
    Ok(count == 1 && fds[0].revents().contains(PollFlags::IN))
}

fn timespec(time: Duration) -> Timespec {
    Timespec {
        tv_sec: i64::try_from(time.as_secs()).unwrap_or(0),
        tv_nsec: i64::from(time.subsec_nanos()),
    }
}

const SHORT: Duration = Duration::from_millis(15);

/// Takes the one event that is due on A's JFCE, for its send-side JFC.
fn take_event(w: &World) -> Outcome {
    let mut out = [0; 4];
    let count = w.a.half.jfce.wait(&mut out, Some(limit()))?;
    same("events", &out[..count], &[w.a.half.jfc.id()][..])?;
    Ok(w.a.half.jfc.ack_events(1)?)
}

fn no_event(w: &World) -> Outcome {
    same("events", w.a.half.jfce.wait(&mut [0; 4], Some(SHORT))?, 0)
}

fn nop(w: &mut World) -> Outcome<u64> {
    w.a.post(|_| SendOp::Nop)
}

fn event_comes_for_a_completion(setup: Setup) -> Outcome {
    let mut w = World::new(setup)?;
    for _ in 0..5 {
        w.a.half.jfc.arm(Arm::Any)?;
        let ctx = nop(&mut w)?;
        take_event(&w)?;
        w.a.sent_ok(ctx)?;
    }
    no_event(&w)
}

fn descriptor_is_readable_while_unconsumed(setup: Setup) -> Outcome {
    let mut w = World::new(setup)?;
    for _ in 0..3 {
        check(!readable(w.a.half.jfce.fd(), Duration::ZERO)?, "readable without an event")?;
        w.a.half.jfc.arm(Arm::Any)?;
        let ctx = nop(&mut w)?;
        check(readable(w.a.half.jfce.fd(), limit())?, "not readable with an event")?;
        check(readable(w.a.half.jfce.fd(), Duration::ZERO)?, "readable only once")?;
        w.a.sent_ok(ctx)?;
        check(readable(w.a.half.jfce.fd(), Duration::ZERO)?, "polling took the event")?;
        take_event(&w)?;
        check(!readable(w.a.half.jfce.fd(), Duration::ZERO)?, "readable after the event")?;
    }
    // Two events: of the send side and of the receive side.
    let (there, back) = (w.b.recv(0, 64)?, w.a.recv(0, 64)?);
    w.a.half.jfc.arm(Arm::Any)?;
    w.a.half.recv_jfc.arm(Arm::Any)?;
    let (to_b, to_a) = (w.a.send(0, 8)?, w.b.send(0, 8)?);
    w.a.sent_ok(to_b)?;
    w.a.received_ok(back)?;
    w.b.sent_ok(to_a)?;
    w.b.received_ok(there)?;
    for left in [1, 0] {
        let mut out = [0];
        same("events", w.a.half.jfce.wait(&mut out, Some(limit()))?, 1)?;
        let jfc = if out[0] == w.a.half.jfc.id() { &w.a.half.jfc } else { &w.a.half.recv_jfc };
        jfc.ack_events(1)?;
        let within = if left == 1 { limit() } else { SHORT };
        let mut is_readable = readable(w.a.half.jfce.fd(), within)?;
        if setup.is_vfio && left == 0 && is_readable {
            // An interrupt may come after its event was taken with an earlier one: a wait finds nothing, and takes it.
            same("events", w.a.half.jfce.wait(&mut out, Some(Duration::ZERO))?, 0)?;
            is_readable = readable(w.a.half.jfce.fd(), SHORT)?;
        }
        same("readable with events left", is_readable, left == 1)?;
    }
    Ok(())
}

/// Waits on an epoll instance; how many descriptors it reports.
fn epoll_wait(set: &impl AsFd, timeout: Duration) -> Outcome<usize> {
    let mut events = Vec::with_capacity(4);
    let timeout = timespec(timeout);
    epoll::wait(set, rustix::buffer::spare_capacity(&mut events), Some(&timeout))
        .map_err(std::io::Error::from)?;
    Ok(events.len())
}

fn epoll_of(w: &World, flags: epoll::EventFlags) -> Outcome<std::os::fd::OwnedFd> {
    let set = epoll::create(epoll::CreateFlags::CLOEXEC).map_err(std::io::Error::from)?;
    let data = epoll::EventData::new_u64(1);
    epoll::add(&set, w.a.half.jfce.fd(), data, flags).map_err(std::io::Error::from)?;
    Ok(set)
}

fn descriptor_works_with_epoll_level(setup: Setup) -> Outcome {
    let mut w = World::new(setup)?;
    let set = epoll_of(&w, epoll::EventFlags::IN)?;
    for _ in 0..3 {
        same("reports before", epoll_wait(&set, Duration::ZERO)?, 0)?;
        w.a.half.jfc.arm(Arm::Any)?;
        let ctx = nop(&mut w)?;
        same("reports", epoll_wait(&set, limit())?, 1)?;
        same("reports again", epoll_wait(&set, Duration::ZERO)?, 1)?;
        take_event(&w)?;
        w.a.sent_ok(ctx)?;
    }
    same("reports at the end", epoll_wait(&set, SHORT)?, 0)
}

fn descriptor_works_with_epoll_edge(setup: Setup) -> Outcome {
    let mut w = World::new(setup)?;
    let set = epoll_of(&w, epoll::EventFlags::IN | epoll::EventFlags::ET)?;
    for _ in 0..5 {
        w.a.half.jfc.arm(Arm::Any)?;
        let ctx = nop(&mut w)?;
        same("reports", epoll_wait(&set, limit())?, 1)?;
        take_event(&w)?;
        w.a.sent_ok(ctx)?;
    }
    same("reports at the end", epoll_wait(&set, SHORT)?, 0)
}

fn one_event_per_arm(setup: Setup) -> Outcome {
    let mut w = World::new(setup)?;
    w.a.half.jfc.arm(Arm::Any)?;
    let mut order = Vec::new();
    for _ in 0..10 {
        order.push(nop(&mut w)?);
    }
    take_event(&w)?;
    for ctx in order {
        w.a.sent_ok(ctx)?;
    }
    no_event(&w)
}

fn arm_with_waiting_completions_fires(setup: Setup) -> Outcome {
    let mut w = World::new(setup)?;
    let first = nop(&mut w)?;
    let second = nop(&mut w)?;
    w.a.sent_ok(first)?;
    // The second may still be in transit; wait until it is there, without taking it.
    pause(Pause::Ticks);
    w.a.half.jfc.arm(Arm::Any)?;
    take_event(&w)?;
    w.a.sent_ok(second).map(|_| ())
}

fn unarmed_jfc_gives_no_event(setup: Setup) -> Outcome {
    let mut w = World::new(setup)?;
    let ctx = nop(&mut w)?;
    no_event(&w)?;
    check(!readable(w.a.half.jfce.fd(), Duration::ZERO)?, "readable without an event")?;
    w.a.sent_ok(ctx).map(|_| ())
}

fn wait_zero_looks(setup: Setup) -> Outcome {
    let mut w = World::new(setup)?;
    same("events", w.a.half.jfce.wait(&mut [0; 4], Some(Duration::ZERO))?, 0)?;
    w.a.half.jfc.arm(Arm::Any)?;
    let ctx = nop(&mut w)?;
    check(readable(w.a.half.jfce.fd(), limit())?, "no event")?;
    same("events", w.a.half.jfce.wait(&mut [0; 4], Some(Duration::ZERO))?, 1)?;
    w.a.half.jfc.ack_events(1)?;
    w.a.sent_ok(ctx).map(|_| ())
}

fn wait_has_a_limit(setup: Setup) -> Outcome {
    let mut w = World::new(setup)?;
    w.a.half.jfc.arm(Arm::Any)?;
    no_event(&w)
}

fn wait_wakes_up(setup: Setup) -> Outcome {
    let mut w = World::new(setup)?;
    for _ in 0..5 {
        w.b.half.recv_jfc.arm(Arm::Any)?;
        let recv = w.b.recv(0, 64)?;
        let (a, jfce) = (&mut w.a, &w.b.half.jfce);
        std::thread::scope(|scope| -> Outcome {
            let waiter = scope.spawn(|| jfce.wait(&mut [0; 4], None));
            pause(Pause::Ticks);
            let ctx = a.send(0, 8)?;
            let count = waiter.join().map_err(|_| "the waiter panicked".to_owned())??;
            same("events", count, 1)?;
            a.sent_ok(ctx).map(|_| ())
        })?;
        w.b.half.recv_jfc.ack_events(1)?;
        w.b.received_ok(recv)?;
    }
    Ok(())
}

fn wait_ends_when_deleted(setup: Setup) -> Outcome {
    let w = World::new(setup)?;
    let jfce = w.a.half.ctx.create_jfce()?;
    std::thread::scope(|scope| -> Outcome {
        let waiter = scope.spawn(|| jfce.wait(&mut [0; 4], None));
        pause(Pause::Ticks);
        jfce.delete()?;
        match waiter.join().map_err(|_| "the waiter panicked".to_owned())? {
            Ok(0) | Err(_) => Ok(()),
            Ok(count) => fail(format!("{count} events of a deleted JFCE")),
        }
    })
}

/// Sends one message from A to B with `flags`, B's JFC armed for solicited ones.
fn send_to_armed(w: &mut World, flags: WrFlags) -> Outcome<usize> {
    w.b.half.recv_jfc.arm(Arm::SolicitedOnly)?;
    let recv = w.b.recv(0, 64)?;
    let ctx = w.a.try_send(WrFlags::COMPLETE | flags, 0, 8)?;
    w.a.sent_ok(ctx)?;
    let timeout = if flags.contains(WrFlags::SOLICITED) { limit() } else { SHORT };
    let count = w.b.half.jfce.wait(&mut [0; 4], Some(timeout))?;
    w.b.received_ok(recv)?;
    Ok(count)
}

fn solicited_only_ignores_others(setup: Setup) -> Outcome {
    let mut w = World::new(setup)?;
    for _ in 0..2 {
        same("events", send_to_armed(&mut w, WrFlags::empty())?, 0)?;
    }
    Ok(())
}

fn solicited_send_fires(setup: Setup) -> Outcome {
    let mut w = World::new(setup)?;
    for _ in 0..3 {
        same("events", send_to_armed(&mut w, WrFlags::SOLICITED)?, 1)?;
        w.b.half.recv_jfc.ack_events(1)?;
    }
    Ok(())
}

fn solicited_write_imm_fires(setup: Setup) -> Outcome {
    let mut w = World::new(setup)?;
    for (flags, wanted) in [(WrFlags::empty(), 0), (WrFlags::SOLICITED, 1)] {
        w.b.half.recv_jfc.arm(Arm::SolicitedOnly)?;
        let recv = w.b.recv(0, 64)?;
        let ctx = w.a.fresh_ctx();
        let (jetty, kit) = w.a.parts();
        let src = [kit.sge(0, 8)];
        let op = SendOp::WriteImm { src: &src, dst: kit.at(0), imm: 1 };
        jetty.post_send(&[kit.flagged(op, WrFlags::COMPLETE | flags, ctx)])?;
        w.a.sent_ok(ctx)?;
        let timeout = if wanted == 1 { limit() } else { SHORT };
        same("events", w.b.half.jfce.wait(&mut [0; 4], Some(timeout))?, wanted)?;
        w.b.received_ok(recv)?;
    }
    Ok(w.b.half.recv_jfc.ack_events(1)?)
}

fn one_jfce_serves_many_jfcs(setup: Setup) -> Outcome {
    let w = World::new(setup)?;
    let ctx = &w.a.half.ctx;
    let jfce = ctx.create_jfce()?;
    let mut queues = Vec::new();
    for _ in 0..4 {
        let mut jfc = ctx.create_jfc(&JfcCfg::new(16), Some(&jfce))?;
        jfc.arm(Arm::Any)?;
        let jfs = ctx.create_jfs(&urma_core::JfsCfg::new(setup.mode, 4), &jfc)?;
        queues.push((jfs, jfc));
    }
    for (jfs, jfc) in &mut queues {
        jfs.post_send(&[urma_core::SendWr::new(SendOp::Nop, &w.a.target, 1)])?;
        let mut out = [0; 4];
        same("events", jfce.wait(&mut out, Some(limit()))?, 1)?;
        same("JFC", out[0], jfc.id())?;
        jfc.ack_events(1)?;
    }
    // All at once.
    for (jfs, jfc) in &mut queues {
        jfc.arm(Arm::Any)?;
        jfs.post_send(&[urma_core::SendWr::new(SendOp::Nop, &w.a.target, 1)])?;
    }
    let mut seen = Vec::new();
    while seen.len() < queues.len() {
        let mut out = [0; 4];
        let count = jfce.wait(&mut out, Some(limit()))?;
        check(count != 0, format!("events of {seen:?} only"))?;
        seen.extend_from_slice(&out[..count]);
    }
    seen.sort_unstable();
    let mut due: Vec<_> = queues.iter().map(|(_, jfc)| jfc.id()).collect();
    due.sort_unstable();
    same("JFCs", seen, due)?;
    for (_, jfc) in &queues {
        jfc.ack_events(1)?;
    }
    Ok(())
}

fn moderation_counts(setup: Setup) -> Outcome {
    let mut w = World::new(setup)?;
    for count in [4, 2] {
        w.a.half.jfc.moderate(count, 0)?;
        w.a.half.jfc.arm(Arm::Any)?;
        let mut order = Vec::new();
        for _ in 1..count {
            order.push(nop(&mut w)?);
        }
        no_event(&w)?;
        order.push(nop(&mut w)?);
        take_event(&w)?;
        for ctx in order {
            w.a.sent_ok(ctx)?;
        }
    }
    Ok(())
}

fn rx_limit_event(setup: Setup) -> Outcome {
    let mut w = World::new(setup)?;
    for _ in 0..5 {
        w.b.recv(0, 64)?;
    }
    w.b.half.jetty.set_rx_threshold(4)?;
    same("events", w.b.half.ctx.next_async(Some(Duration::ZERO))?, None)?;
    for left in [4, 3, 2] {
        let ctx = w.a.send(0, 8)?;
        w.a.sent_ok(ctx)?;
        w.b.received_as(CrStatus::Success)?;
        if left == 4 {
            same("events with 4 left", w.b.half.ctx.next_async(Some(SHORT))?, None)?;
        }
    }
    let event = w.b.half.ctx.next_async(Some(limit()))?;
    let Some(event) = event else { return fail("no limit event") };
    check(
        matches!(event.kind, AsyncKind::JettyLimit | AsyncKind::JfrLimit),
        format!("event {:?}", event.kind),
    )?;
    same("queue", event.id, w.b.half.jetty.id().id)?;
    same("events", w.b.half.ctx.next_async(Some(SHORT))?, None)
}

/// Makes a request fail that moves its jetty to the error state; its status.
fn fail_hard(w: &mut World) -> Outcome<CrStatus> {
    if w.setup.mode == TransportMode::Rc {
        super::states::bad_write(w)?;
        return Ok(CrStatus::RemAccessAbort);
    }
    super::states::sourceless_write(w)?;
    Ok(CrStatus::LocAccess)
}

fn solicited_only_fires_on_errors(setup: Setup) -> Outcome {
    let mut w = World::new(setup)?;
    // An RC jetty is in the error state after the first.
    let errors = if setup.mode == TransportMode::Rc { 1 } else { 3 };
    for _ in 0..errors {
        w.a.half.jfc.arm(Arm::SolicitedOnly)?;
        super::states::bad_write(&mut w)?;
        take_event(&w)?;
        w.a.sent_as(CrStatus::RemAccessAbort)?;
    }
    Ok(())
}

fn jetty_error_event(setup: Setup) -> Outcome {
    let mut w = World::new(setup)?;
    let status = fail_hard(&mut w)?;
    w.a.sent_as(status)?;
    let event = w.a.half.ctx.next_async(Some(limit()))?;
    let seen = event.map(|event| (event.kind, event.id));
    same("event", seen, Some((AsyncKind::JettyError, w.a.half.jetty.id().id)))?;
    same("state", w.a.half.jetty.query()?.state, JettyState::Error)?;
    same("events", w.a.half.ctx.next_async(Some(SHORT))?, None)
}

fn async_descriptor_is_readable_while_unconsumed(setup: Setup) -> Outcome {
    let mut w = World::new(setup)?;
    let fd = w.a.half.ctx.dup_async_fd()?;
    for events in [1, 2] {
        check(!readable(&fd, Duration::ZERO)?, "readable without an event")?;
        limit_event(&mut w, 3 - events)?;
        if events == 2 {
            fail_hard(&mut w)?;
            w.a.sent()?;
        }
        for left in (0..events).rev() {
            check(readable(&fd, limit())?, "not readable with an event")?;
            check(readable(&fd, Duration::ZERO)?, "readable only once")?;
            let event = w.a.half.ctx.next_async(Some(limit()))?;
            check(event.is_some(), format!("no event with {left} left"))?;
        }
        check(!readable(&fd, SHORT)?, "readable after the events")?;
    }
    Ok(())
}

/// Makes a limit event at A: with `more` receives there are two, of which one is left.
fn limit_event(w: &mut World, more: usize) -> Outcome {
    for _ in 0..more {
        w.a.recv(0, 64)?;
    }
    w.a.half.jetty.set_rx_threshold(2)?;
    let ctx = w.b.send(0, 8)?;
    w.b.sent_ok(ctx)?;
    w.a.received_as(CrStatus::Success).map(|_| ())
}

fn async_descriptor_works_with_epoll(setup: Setup) -> Outcome {
    for (flags, again) in
        [(epoll::EventFlags::IN, 1), (epoll::EventFlags::IN | epoll::EventFlags::ET, 0)]
    {
        let mut w = World::new(setup)?;
        let fd = w.a.half.ctx.dup_async_fd()?;
        let set = epoll::create(epoll::CreateFlags::CLOEXEC).map_err(std::io::Error::from)?;
        let data = epoll::EventData::new_u64(1);
        epoll::add(&set, &fd, data, flags).map_err(std::io::Error::from)?;
        same("reports before", epoll_wait(&set, Duration::ZERO)?, 0)?;
        fail_hard(&mut w)?;
        same("reports", epoll_wait(&set, limit())?, 1)?;
        same("reports again", epoll_wait(&set, Duration::ZERO)?, again)?;
        check(w.a.half.ctx.next_async(Some(limit()))?.is_some(), "no event")?;
        same("reports at the end", epoll_wait(&set, SHORT)?, 0)?;
    }
    Ok(())
}

fn arm_without_jfce_is_refused(setup: Setup) -> Outcome {
    let w = World::new(setup)?;
    let mut jfc = w.a.half.ctx.create_jfc(&JfcCfg::new(16), None)?;
    refused("an arm", jfc.arm(Arm::Any), Status::Invalid)
}

fn ack_of_more_than_open_is_refused(setup: Setup) -> Outcome {
    let mut w = World::new(setup)?;
    refused("an acknowledgement", w.a.half.jfc.ack_events(1), Status::Invalid)?;
    w.a.half.jfc.arm(Arm::Any)?;
    nop(&mut w)?;
    same("events", w.a.half.jfce.wait(&mut [0; 4], Some(limit()))?, 1)?;
    refused("two of one", w.a.half.jfc.ack_events(2), Status::Invalid)?;
    w.a.half.jfc.ack_events(1)?;
    // Of three taken two, then one.
    for _ in 0..3 {
        w.a.half.jfc.arm(Arm::Any)?;
        nop(&mut w)?;
        same("events", w.a.half.jfce.wait(&mut [0; 4], Some(limit()))?, 1)?;
    }
    w.a.half.jfc.ack_events(2)?;
    refused("two of one", w.a.half.jfc.ack_events(2), Status::Invalid)?;
    w.a.half.jfc.ack_events(1)?;
    refused("one of none", w.a.half.jfc.ack_events(1), Status::Invalid)
}
