//! The background thread: what a NIC does by itself.
//!
//! Has the poll set and the peers, and steps the device while no thread polls. Must not spin against the
//! application, wait without a bound of the core's choosing, or step a device that pollers serve.

use std::{num::NonZeroU64, sync::Arc, thread::JoinHandle, time::Duration};

use udma_abi::{CmdStatus, Nanos, counters::Counter};

use crate::host::{
    inquiry::Inquiry,
    inspect,
    peer::{CLAIM_KEY, PeerEvent, Peers},
    port::Watch,
    scheduler::poll::{Interest, Poll, ReadyList},
    scheduler::vain_wakeups::{ArrivalWatch, NextCheck},
    scheduler::wakeup_policy::{GIVE_WAY, LOOK, NextAction, PassFindings, WakeupPolicy},
    shared::SharedNode,
    tap::ContextTap,
};
use crate::ports::{HostRequest, LinkVisitor};

/// The running thread. Dropping it without [`SharedNode::stop`] leaves it running.
#[derive(Debug)]
pub struct Background {
    handle: JoinHandle<Peers>,
}

impl Background {
    /// Starts the thread of a node.
    ///
    /// # Errors
    /// No thread, no descriptor.
    pub fn start(
        shared: Arc<SharedNode>,
        peers: Peers,
        poll: Arc<Poll>,
        device_name: String,
    ) -> std::io::Result<Self> {
        poll.add(shared.wakeup(), WAKEUP_KEY, Interest::Read)?;
        poll.add(shared.own_wakeup(), OWN_WAKEUP_KEY, Interest::Read)?;
        let mut watch = Watch::Off;
        shared.port().watch(&poll, PORT_KEY, Watch::On, &mut watch);
        let worker = Worker {
            shared,
            peers,
            poll,
            watch,
            tick: TICK,
            said_asleep: false,
            rang: false,
            wakeups: WakeupPolicy::default(),
            gave_way: false,
            arrivals: ArrivalWatch::default(),
            arrived: false,
            is_look: false,
            is_unrung: false,
            stays: 0,
            counted: [0; 2],
            device_name,
            inquiry: Inquiry::default(),
        };
        let name = "urma-node".to_owned();
        let started = std::thread::Builder::new().name(name).spawn(move || worker.run_passes());
        let handle = started.map_err(|error| urma_mem::room::thread_refused("a node", &error))?;
        Ok(Self { handle })
    }

    /// Waits until the thread has ended; [`SharedNode::stop`] must have been called. Bounded by one
    /// pass of its loop. With the peers that it gives back, the EID becomes free.
    #[must_use]
    pub fn join(self) -> Option<Peers> {
        let ended = self.handle.join();
        if ended.is_err() {
            tracing::error!("the background thread of a node panicked");
        }
        ended.ok()
    }
}

/// State of the thread. What peers see of the node, and what the thread does:
///
/// ```text
/// asleep:  peers see "asleep" and send a wake-up; waits for wake-ups, sockets, earliest deadline
/// serving: drains in bounded steps, then publishes "asleep", checks once more, sleeps
/// polled:  peers see "awake"; checks once a tick whether a thread still polls
/// bursts:  as asleep, although the program polls at times (`wakeup_policy.rs`)
/// ```
///
/// A check is a system call, and a thread that has polled for long will likely go on: the tick doubles with each
/// check that finds it polling, up to [`TICK_MAX`]. So no request waits longer for the takeover than the polling
/// lasted, and a process that polls on makes about 30 calls a second for it. Arming, hang-ups and connections need no
/// tick. Datagrams have senders with timers: with a packet peer the tick stays short.
///
/// A program may poll for a while and then spin on its memory, until a datagram changes it. So once a tick finds a
/// pause of the pollers, each arrival wakes the thread, until several in a row find that they poll
/// (`vain_wakeups.rs`). Watching for arrivals all the time cost a pair that only polls a third of its mean latency on
/// two processors, because each wake-up takes a processor from a poller.
struct Worker {
    shared: Arc<SharedNode>,
    peers: Peers,
    poll: Arc<Poll>,
    watch: Watch,
    /// Time until the next check whether a thread polls.
    tick: Duration,
    said_asleep: bool,
    /// A wake-up came since the last pass.
    rang: bool,
    wakeups: WakeupPolicy,
    /// The last pass rested to see whether the program polls.
    gave_way: bool,
    arrivals: ArrivalWatch,
    /// Datagrams arrived since the last pass, while the program polled.
    arrived: bool,
    /// The next wait is the interval of a check.
    is_look: bool,
    /// The last wait was bounded by a tick or more, and no wake-up ended it.
    is_unrung: bool,
    /// Times in a row that the last check found work and the step after it none.
    stays: u32,
    /// How many protocol violations of peers, and how many shortages, the device's counters include.
    counted: [u64; 2],
    /// Name of the device for programs.
    device_name: String,
    inquiry: Inquiry,
}

impl Worker {
    fn run_passes(mut self) -> Peers {
        // By default a wait may end 50 us late, longer than the interval of a check. If this is refused, checks are
        // later.
        let _ = rustix::thread::set_current_timer_slack(Some(TIMER_SLACK));
        let mut ready = ReadyList::default();
        let mut wait = Some(Duration::ZERO);
        loop {
            self.is_unrung = wait.is_none_or(|wait| wait >= TICK);
            let waited = match (std::mem::take(&mut self.is_look), wait) {
                (true, Some(distance)) => self.poll.wait_briefly(&mut ready, distance),
                _ => self.poll.wait(&mut ready, wait),
            };
            if let Err(error) = waited {
                tracing::error!(%error, "the background thread of a node cannot wait and ends");
                return self.peers;
            }
            if std::mem::take(&mut self.said_asleep) {
                self.shared.device().announce_awake();
            }
            let now = self.shared.clock().now();
            self.on_ready(now, &ready);
            // Only now: the wake-up for the end may have been cleared.
            if self.shared.is_stopped() {
                return self.peers;
            }
            self.peers.on_tick(now);
            self.count_peers();
            self.serve_requests(now);
            wait = self.pass(now);
        }
    }

    fn count_peers(&mut self) {
        let counts = [
            (Counter::PeerLied, self.peers.lies()),
            (Counter::OutOfResources, self.peers.shortages()),
        ];
        for ((counter, count), counted) in counts.into_iter().zip(&mut self.counted) {
            for _ in *counted..count {
                self.shared.device().count(counter);
            }
            *counted = count;
        }
    }

    fn on_ready(&mut self, now: Nanos, ready: &ReadyList) {
        for key in ready.keys() {
            match key {
                WAKEUP_KEY => {
                    self.shared.clear_wakeup();
                    self.on_wakeup();
                }
                OWN_WAKEUP_KEY => {
                    self.shared.clear_own_wakeup();
                    self.on_wakeup();
                }
                PORT_KEY => self.on_arrival(now),
                CLAIM_KEY => self.peers.on_claim_ready(now),
                key => self.peers.on_ready(key),
            }
        }
    }

    fn on_wakeup(&mut self) {
        (self.rang, self.is_unrung) = (true, false);
    }

    /// Takes datagrams, unless polls do. While arrivals are watched, the program may have stopped polling after its
    /// latest poll: then this thread takes them too.
    fn on_arrival(&mut self, now: Nanos) {
        let port = self.shared.port();
        self.arrived = port.is_active() && self.is_polled(now);
        let takes = !self.arrived || self.arrivals.is_on();
        if takes && port.exchange(self.shared.device(), now, LinkVisitor::Thread) {
            self.arrivals.on_taken();
        }
    }

    /// Whether a thread polled since the last pass, or, with packets, within a tick: then passes may
    /// follow each other closely.
    fn has_polled(&self, now: Nanos) -> bool {
        let presence = self.shared.presence();
        presence.take_polled() || (self.shared.port().is_active() && !presence.is_idle(now))
    }

    /// Whether the program polls right now, as far as the presence shows.
    fn is_polled(&self, now: Nanos) -> bool {
        let presence = self.shared.presence();
        presence.is_awake() && !(self.shared.port().is_active() && presence.is_pause(now))
    }

    /// Works if no other thread does; returns how long to wait.
    fn pass(&mut self, now: Nanos) -> Option<Duration> {
        let has_polled = self.has_polled(now);
        let was_awake = self.shared.presence().is_awake();
        let helps = was_awake && has_polled;
        let arrived = std::mem::take(&mut self.arrived);
        if helps && self.is_polled(now) {
            let next = match arrived {
                true => self.arrivals.on_vain_wakeup(),
                false => self.arrivals.on_polled(),
            };
            return Some(self.leave_to_pollers(now, next));
        }
        if was_awake && !helps {
            self.shared.presence().on_idle();
        }
        let gave_way = std::mem::take(&mut self.gave_way);
        if has_polled && !gave_way && self.doubts_burst() {
            (self.gave_way, self.is_look) = (true, true);
            return Some(GIVE_WAY);
        }
        let mut found =
            PassFindings { work: false, rang: std::mem::take(&mut self.rang), polls: has_polled };
        if has_polled && gave_way {
            // What waits now has just arrived: the next poll takes it.
            return self.rest(was_awake, found);
        }
        self.tick = TICK;
        self.watch_port(if helps { Watch::Arrivals } else { Watch::On });
        self.shared.device().count(Counter::BackgroundRuns);
        for _ in 0..STEPS_PER_TURN {
            let is_busy = self.shared.drive(self.shared.clock().now(), LinkVisitor::Thread);
            let asked = self.serve_requests(now);
            found.work |= is_busy;
            if !is_busy && !asked {
                return match (self.is_held(now), helps) {
                    (true, _) => Some(self.rest_for_holder()),
                    (false, true) => Some(self.pause(now, found)),
                    (false, false) => self.rest(was_awake, found),
                };
            }
            self.stays = 0;
            if is_busy && let Some(rest) = self.give_way() {
                return Some(rest);
            }
        }
        // Other threads may want this processor.
        std::thread::yield_now();
        Some(Duration::ZERO)
    }

    /// Whether the program may be a steady poller that lost its processor to this thread.
    fn doubts_burst(&self) -> bool {
        self.shared.presence().is_in_bursts() && self.wakeups.gives_way()
    }

    /// Yields after a step of packets, which takes up to a millisecond: a polling program may have lost this
    /// processor to the step. Returns how long to rest, if it is back.
    fn give_way(&mut self) -> Option<Duration> {
        if !self.shared.port().is_active() {
            return None;
        }
        std::thread::yield_now();
        let now = self.shared.clock().now();
        if self.shared.port().is_marked() {
            return Some(self.rest_for_holder());
        }
        let is_back = self.is_polled(now) && self.has_polled(now);
        is_back.then(|| {
            let next = self.arrivals.on_polled();
            self.leave_to_pollers(now, next)
        })
    }

    /// Whether work waits that another thread holds, which may have lost its processor to this one in
    /// the middle of a poll or a post.
    fn is_held(&self, now: Nanos) -> bool {
        let port = self.shared.port();
        let is_due = || self.shared.device().poll_deadline().is_some_and(|at| at <= now);
        port.is_active() && (port.is_marked() || is_due())
    }

    /// Yields the processor to the thread that holds the work; returns how long until the next check.
    fn rest_for_holder(&mut self) -> Duration {
        // What waits in the socket would end the rest at once.
        self.watch_port(Watch::Off);
        self.is_look = true;
        let distance = HELD_LOOK * (1 << self.stays.min(STAYS_MAX));
        self.stays += 1;
        distance.min(TICK)
    }

    /// Leaves the device to the pollers; returns how long until the next check.
    fn leave_to_pollers(&mut self, now: Nanos, next: NextCheck) -> Duration {
        self.stays = 0;
        self.watch_port(if next == NextCheck::Tick { Watch::Off } else { Watch::Arrivals });
        let tick = self.next_tick();
        let most = match next {
            NextCheck::Look(distance) => {
                self.is_look = true;
                distance
            }
            NextCheck::Tick | NextCheck::Arrival => tick,
        };
        self.until_deadline(self.peers.poll_deadline(now), now, most)
    }

    /// Between two polls of the program: returns how long until the next check.
    fn pause(&mut self, now: Nanos, found: PassFindings) -> Duration {
        if found.work {
            self.arrivals.on_taken();
        }
        self.arrivals.on_pause();
        self.stays = 0;
        let deadline = [self.shared.device().poll_deadline(), self.peers.poll_deadline(now)];
        self.until_deadline(deadline.into_iter().flatten().min(), now, TICK)
    }

    /// There is no work left: sleeps, unless the program polls and peers need not ring.
    fn rest(&mut self, took_over: bool, found: PassFindings) -> Option<Duration> {
        let presence = self.shared.presence();
        if found.work && self.is_unrung {
            self.shared.device().count(Counter::FoundLate);
        }
        if self.shared.port().is_active() {
            // Arrivals of datagrams have their own rule.
            if presence.is_in_bursts() {
                presence.on_idle();
            }
        } else if took_over && found.work {
            presence.on_left_waiting();
        }
        if presence.is_in_bursts() {
            let now = self.shared.clock().now();
            match self.wakeups.on_pass(found) {
                NextAction::Rest => {}
                NextAction::Look(distance) => {
                    self.is_look = true;
                    let deadline = self.shared.device().poll_deadline();
                    return Some(self.until_deadline(deadline, now, distance));
                }
                NextAction::Leave => {
                    presence.on_steady();
                    return Some(self.leave_to_pollers(now, NextCheck::Tick));
                }
            }
            if found.polls {
                // Bounded, and announced so: a request that the program posts has a later deadline, for which it need
                // not ring.
                return self.sleep(now + BURST_REST_NS);
            }
        } else {
            self.wakeups = WakeupPolicy::default();
        }
        self.sleep(Nanos::MAX)
    }

    /// Publishes "asleep" unless a last check finds work. Rests until `limit` at most.
    fn sleep(&mut self, limit: Nanos) -> Option<Duration> {
        let now = self.shared.clock().now();
        if !self.shared.device().announce_sleep(now) {
            // Work that no step can do yet must not make this thread spin against the application.
            self.stays += 1;
            // A poller may have lost its processor while it is inside of the device, or before it.
            self.is_look = self.shared.presence().is_in_bursts();
            return Some(match (self.is_look, self.stays) {
                (true, 0..=STAYS_MAX) => GIVE_WAY,
                (true, _) => LOOK,
                (false, 0..=STAYS_MAX) => Duration::ZERO,
                (false, _) => TICK,
            });
        }
        self.said_asleep = true;
        self.stays = 0;
        let limit = (limit != Nanos::MAX).then_some(limit);
        let due = [self.shared.device().poll_deadline(), self.shared.port().poll_deadline(), limit];
        let deadline = due.into_iter().flatten().min();
        self.shared.set_alarm(deadline);
        let earliest = self.peers.poll_deadline(now).into_iter().chain(deadline).min()?;
        Some(Duration::from_nanos(earliest.saturating_sub(now)))
    }

    /// Returns how long until the next check, after a thread polled since the last one.
    fn next_tick(&mut self) -> Duration {
        let longer =
            if self.shared.port().is_active() { TICK } else { TICK_MAX.min(2 * self.tick) };
        std::mem::replace(&mut self.tick, longer)
    }

    fn until_deadline(&self, deadline: Option<Nanos>, now: Nanos, most: Duration) -> Duration {
        deadline.map_or(most, |at| most.min(Duration::from_nanos(at.saturating_sub(now))))
    }

    /// Passes requests of the core to the peers and their events back; returns whether there were any.
    fn serve_requests(&mut self, now: Nanos) -> bool {
        let mut any = false;
        for _ in 0..REQUESTS_PER_TURN {
            if let Some(request) = self.shared.next_request() {
                any = true;
                match request {
                    HostRequest::FindPeer { eid } => self.peers.find(now, eid),
                    HostRequest::Forget { eid } => self.peers.forget(eid),
                    HostRequest::AskWhy { eid, is_packets } => {
                        let own = self.shared.device().cfg().eid;
                        self.inquiry.ask(now, (own, eid), is_packets);
                    }
                }
            } else if let Some(event) = self.peers.poll_event() {
                any = true;
                self.on_peer(now, event);
            } else {
                break;
            }
        }
        any
    }

    fn on_peer(&mut self, now: Nanos, event: PeerEvent) {
        let device = Arc::clone(self.shared.device());
        match event {
            PeerEvent::SameHost { eid, parts } => {
                tracing::info!(?eid, "memory is shared with a node on this host");
                device.on_same_host_peer(now, eid, *parts);
            }
            PeerEvent::NoPeer { eid, status } => device.on_no_peer(now, eid, status),
            PeerEvent::Gone { eid } => {
                tracing::info!(?eid, "a node on this host is gone");
                device.on_peer_gone(now, eid);
            }
            PeerEvent::Inspect { socket } => {
                inspect::answer(&self.shared, &self.device_name, &self.peers.look(), &socket);
                // Other threads may have left work meanwhile.
                device.step(now);
            }
            PeerEvent::Capture { socket } => self.shared.port().tap().open(socket),
            PeerEvent::Contexts { socket } => {
                // Without a model the socket is closed, which the asking process sees.
                device.record_lookups(Arc::new(ContextTap::new(socket)));
            }
            PeerEvent::Packets { eid } => match self.shared.port().ready_for_peer() {
                Ok(()) => {
                    // The socket may be new.
                    self.watch = Watch::Off;
                    self.watch_port(Watch::On);
                    tracing::info!(?eid, "requests to this node go as packets");
                    device.on_packet_peer(now, eid);
                }
                Err(error) => {
                    tracing::error!(?eid, %error, "no packets can be exchanged");
                    device.on_no_peer(now, eid, CmdStatus::Unreachable);
                }
            },
        }
    }

    fn watch_port(&mut self, wanted: Watch) {
        // Without a packet peer the pollers do not read the socket; then this thread always does.
        let wanted = if self.shared.port().is_active() { wanted } else { Watch::On };
        if wanted != self.watch {
            self.shared.port().watch(&self.poll, PORT_KEY, wanted, &mut self.watch);
        }
    }
}

const OWN_WAKEUP_KEY: u64 = 0;
const WAKEUP_KEY: u64 = 1;
const PORT_KEY: u64 = 2;
/// Time between two checks whether a thread polls, at first and with a packet peer.
pub const TICK: Duration = Duration::from_millis(1);
/// The same after a thread has polled for long: the longest time until this thread takes over.
pub const TICK_MAX: Duration = Duration::from_millis(32);
/// Longest rest while the program polls in bursts, in ns.
const BURST_REST_NS: Nanos = 32_000_000;
/// Steps of the device before checking the descriptors again.
const STEPS_PER_TURN: usize = 32;
/// Fruitless attempts to sleep before waiting for a tick instead.
const STAYS_MAX: u32 = 8;
/// How late waits may end, so that the kernel can join timers, in ns: the least possible.
const TIMER_SLACK: NonZeroU64 = NonZeroU64::MIN;
/// First rest for a thread that holds the work; each further one is twice as long.
const HELD_LOOK: Duration = Duration::from_micros(20);
/// Requests and events passed on before checking the descriptors again.
const REQUESTS_PER_TURN: usize = 64;
