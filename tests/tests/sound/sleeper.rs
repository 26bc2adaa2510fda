//! Programs that sleep on the descriptor of an event channel, or spin on their memory, and call nothing meanwhile.
//!
//! Times are not judged, but for a sleep that would be a hang. `URMA_ROUNDS=1000000 cargo test -p urma-tests --test
//! sound sleeper -- --nocapture` runs many rounds and prints the longest sleeps.
#![expect(
    clippy::disallowed_methods,
    clippy::print_stdout,
    reason = "the longest sleep is measured and printed"
)]

use std::{
    hint,
    os::fd::{AsFd, BorrowedFd, OwnedFd},
    time::{Duration, Instant},
};

use rustix::event::{PollFd, PollFlags, Timespec, epoll, poll};
use urma_core::{Arm, Completion, Jfc, Jfce, SendOp, TransportMode, WrFlags};
use urma_mem::sync::{AtomicU64, Ordering};
use urma_tests::world::{
    End, Failure, Host, Link, Moving, Outcome, Plan, Setup, World, check, fail, same,
};

/// A descriptor that is not readable for so long will not be.
const HANG: Timespec = Timespec { tv_sec: 5, tv_nsec: 0 };
/// Receives that are posted at once.
const RECEIVES: usize = 8;

/// How the program sleeps.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Sleep {
    Poll,
    Level,
    Edge,
}

/// Descriptor of a channel, in the set that the program sleeps on.
struct Bed<'a> {
    fd: BorrowedFd<'a>,
    set: Option<OwnedFd>,
    longest_us: &'a AtomicU64,
}

/// Longest sleep of a loop; printed when the loop is over, if the rounds were asked for.
struct Longest<'a>(&'a str, AtomicU64);

impl<'a> Longest<'a> {
    fn of(name: &'a str) -> Self {
        Self(name, AtomicU64::new(0))
    }
}

impl Drop for Longest<'_> {
    fn drop(&mut self) {
        if std::env::var_os("URMA_ROUNDS").is_some() {
            println!("{}: longest sleep {} us", self.0, self.1.load(Ordering::Relaxed));
        }
    }
}

impl<'a> Bed<'a> {
    fn new(jfce: &'a Jfce, sleep: Sleep, longest_us: &'a AtomicU64) -> Outcome<Self> {
        let fd = jfce.fd();
        let flags = match sleep {
            Sleep::Poll => return Ok(Self { fd, set: None, longest_us }),
            Sleep::Level => epoll::EventFlags::IN,
            Sleep::Edge => epoll::EventFlags::IN | epoll::EventFlags::ET,
        };
        let set = epoll::create(epoll::CreateFlags::CLOEXEC).map_err(std::io::Error::from)?;
        epoll::add(&set, fd, epoll::EventData::new_u64(1), flags).map_err(std::io::Error::from)?;
        Ok(Self { fd, set: Some(set), longest_us })
    }

    /// Sleeps until the descriptor is readable.
    #[track_caller]
    fn sleep(&self) -> Outcome {
        let start = Instant::now();
        let fd = self.set.as_ref().map_or(self.fd, AsFd::as_fd);
        let ready = poll(&mut [PollFd::new(&fd, PollFlags::IN)], Some(&HANG));
        check(ready.map_err(std::io::Error::from)? == 1, "nothing woke the program")?;
        let took = u64::try_from(start.elapsed().as_micros()).unwrap_or(u64::MAX);
        self.longest_us.fetch_max(took, Ordering::Relaxed);
        if let Some(set) = &self.set {
            // Also tells an edge-triggered set that it was seen.
            let mut events = Vec::with_capacity(1);
            epoll::wait(set, rustix::buffer::spare_capacity(&mut events), None)
                .map_err(std::io::Error::from)?;
        }
        Ok(())
    }
}

/// Sleeps until the event of `jfc` comes, takes it and the completion, and arms again.
#[track_caller]
fn next(bed: &Bed<'_>, jfce: &Jfce, jfc: &mut Jfc) -> Outcome {
    bed.sleep()?;
    let mut out = [0; 2];
    let count = jfce.wait(&mut out, Some(Duration::ZERO))?;
    same("events", &out[..count], &[jfc.id()][..])?;
    jfc.ack_events(1)?;
    let done =
        jfc.poll_one()?.ok_or_else(|| Failure::new("an event, and no completion".to_owned()))?;
    check(done.status.is_success(), format!("{done:?}"))?;
    Ok(jfc.arm(Arm::Any)?)
}

/// What the program posts.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Message {
    Send,
    WriteImm,
}

fn post(end: &mut End, message: Message) -> Outcome {
    match message {
        Message::Send => end.send(0, 8)?,
        Message::WriteImm => {
            let ctx = end.fresh_ctx();
            let (jetty, kit) = end.parts();
            let src = [kit.sge(0, 8)];
            let op = SendOp::WriteImm { src: &src, dst: kit.at(64), imm: 7 };
            jetty.post_send(&[kit.wr(op, ctx)])?;
            ctx
        }
    };
    Ok(())
}

/// One end that has imported itself.
fn alone(link: Link) -> Outcome<End> {
    let setup = Setup::new(link, Moving::On, TransportMode::Rm);
    let plan = Plan::new(setup.mode);
    let half = plan.half(&Host::open(setup)?)?;
    let (name, segment) = (half.jetty.remote(), half.seg.remote());
    End::new(half, &name, &segment, plan.access)
}

fn rounds(usual: usize) -> usize {
    std::env::var("URMA_ROUNDS").ok().and_then(|text| text.parse().ok()).unwrap_or(usual)
}

/// Sends from `end` to `peer`, or to itself, and sleeps for each completion.
fn send_and_sleep(
    (end, mut peer): (&mut End, Option<&mut End>),
    (message, sleep): (Message, Sleep),
    longest: &Longest<'_>,
) -> Outcome {
    end.half.jfc.arm(Arm::Any)?;
    for _ in 0..rounds(64) / RECEIVES {
        let receiver = peer.as_deref_mut().unwrap_or(end);
        for _ in 0..RECEIVES {
            receiver.recv(128, 64)?;
        }
        for _ in 0..RECEIVES {
            post(end, message)?;
            let bed = Bed::new(&end.half.jfce, sleep, &longest.1)?;
            next(&bed, &end.half.jfce, &mut end.half.jfc)?;
        }
        let receiver = peer.as_deref_mut().unwrap_or(end);
        for _ in 0..RECEIVES {
            check(receiver.received()?.status.is_success(), "a receive failed")?;
        }
    }
    Ok(())
}

const MESSAGES: [Message; 2] = [Message::Send, Message::WriteImm];
const SLEEPS: [Sleep; 3] = [Sleep::Poll, Sleep::Level, Sleep::Edge];

#[test]
fn a_jetty_that_sends_to_itself_wakes_its_program() -> Outcome {
    for link in [Link::Own, Link::Host, Link::Packets] {
        for message in MESSAGES {
            for sleep in SLEEPS {
                let name = format!("to itself, {link:?} {message:?} {sleep:?}");
                let longest = Longest::of(&name);
                let named = |f: Failure| Failure::new(format!("{name}: {f}"));
                send_and_sleep((&mut alone(link)?, None), (message, sleep), &longest)
                    .map_err(named)?;
            }
        }
    }
    Ok(())
}

#[test]
fn another_jetty_or_node_of_the_process_wakes_it() -> Outcome {
    for link in [Link::Own, Link::Host, Link::Packets] {
        for message in MESSAGES {
            let mut w = World::new(Setup::new(link, Moving::On, TransportMode::Rm))?;
            let name = format!("to another, {link:?} {message:?}");
            let longest = Longest::of(&name);
            let named = |f: Failure| Failure::new(format!("{name}: {f}"));
            let ends = (&mut w.a, Some(&mut w.b));
            send_and_sleep(ends, (message, Sleep::Level), &longest).map_err(named)?;
        }
    }
    Ok(())
}

/// One side of a ping-pong: its send and receive JFCs are on one channel.
fn play(
    end: &mut End,
    (serves, sleep, rounds): (bool, Sleep, usize),
    longest: &Longest<'_>,
) -> Outcome {
    end.half.jfc.arm(Arm::Any)?;
    end.half.recv_jfc.arm(Arm::Any)?;
    let (mut sent, mut received, mut posted) = (0, 0, 0);
    if serves {
        end.send(0, 8)?;
        posted += 1;
    }
    while sent < rounds || received < rounds {
        let events = {
            let bed = Bed::new(&end.half.jfce, sleep, &longest.1)?;
            if let Err(failure) = bed.sleep() {
                let late = [end.half.jfc.poll_one()?, end.half.recv_jfc.poll_one()?];
                let found = end.half.jfce.wait(&mut [0; 2], Some(Duration::ZERO))?;
                return fail(format!(
                    "{failure}; sent {sent}, received {received}; polls find {late:?}, {found} events"
                ));
            }
            let mut out = [0; 2];
            let count = end.half.jfce.wait(&mut out, Some(Duration::ZERO))?;
            out[..count].to_vec()
        };
        for id in events {
            let of_send = id == end.half.jfc.id();
            let jfc = if of_send { &mut end.half.jfc } else { &mut end.half.recv_jfc };
            jfc.ack_events(1)?;
            jfc.arm(Arm::Any)?;
            let mut come = 0;
            while let Some(done) = jfc.poll_one()? {
                check(done.status.is_success(), format!("{done:?}"))?;
                come += 1;
            }
            if of_send {
                sent += come;
                continue;
            }
            received += come;
            for _ in 0..come {
                end.recv(128, 64)?;
                if posted < rounds {
                    end.send(0, 8)?;
                    posted += 1;
                }
            }
        }
    }
    Ok(())
}

#[test]
fn two_queues_on_one_channel_lose_no_event() -> Outcome {
    for link in [Link::Packets, Link::Host] {
        for sleep in [Sleep::Level, Sleep::Poll, Sleep::Edge] {
            let mut w = World::new(Setup::new(link, Moving::On, TransportMode::Rm))?;
            for end in [&mut w.a, &mut w.b] {
                for _ in 0..RECEIVES {
                    end.recv(128, 64)?;
                }
            }
            let (a, b, rounds) = (&mut w.a, &mut w.b, rounds(500));
            let name = format!("ping-pong, {link:?} {sleep:?}");
            let longest = &Longest::of(&name);
            let named = |f: Failure| Failure::new(format!("{name}: {f}"));
            std::thread::scope(|scope| -> Outcome {
                let answers = scope.spawn(move || play(b, (false, sleep, rounds), longest));
                let asks = play(a, (true, sleep, rounds), longest);
                let answers = answers.join().map_err(|_| Failure::new("a panic".to_owned()))?;
                asks.map_err(named)?;
                answers.map_err(named)
            })?;
        }
    }
    Ok(())
}

const ROUNDS: u64 = 64;
/// Polls before each message: more than make a poller.
const POLLS: usize = 100;
/// A message that takes longer never comes.
const BOUND: Duration = Duration::from_secs(10);
const WORD: usize = 4096;

/// Polls as a program does for its own requests, then spins until WRITE_NOTIFY `number` is there.
fn one_message(a: &mut End, b: &mut End, number: u64) -> Outcome {
    let mut room = [Completion::default(); 1];
    for _ in 0..POLLS {
        b.half.jfc.poll(&mut room)?;
    }
    #[expect(clippy::disallowed_methods, reason = "it measures real threads")]
    let start = Instant::now();
    let ctx = a.fresh_ctx();
    let (jetty, kit) = a.parts();
    let (src, dst, notify) = (&[kit.sge(0, 8)], kit.at(0), kit.at(WORD));
    let op = SendOp::WriteNotify { src, dst, notify, data: number };
    jetty.post_send(&[kit.flagged(op, WrFlags::COMPLETE, ctx)])?;
    while b.mem().word(WORD)? != number {
        check(start.elapsed() < BOUND, "a message never came")?;
        hint::spin_loop();
    }
    a.sent_ok(ctx)?;
    Ok(())
}

/// On one host without moved pages, only the node's own thread can place what its peer writes, and is rung for it.
#[test]
fn a_program_that_polls_in_bursts_is_rung_for_its_messages() -> Outcome {
    let setup = Setup::new(Link::Host, Moving::Off, TransportMode::Rm);
    let mut world = World::new(setup)?;
    for number in 1..=ROUNDS {
        one_message(&mut world.a, &mut world.b, number)?;
    }
    // A thread that has not slept yet, or looks at short intervals, is not rung. What comes without a wake-up waits a
    // tick of the node's thread: 1 to 32 ms. Bursts that pass for steady polls cost one such rest until the next.
    let late = world.b.counter("found_late")?;
    check(late <= ROUNDS / 4, format!("{late} of {ROUNDS} messages waited for a tick"))
}
