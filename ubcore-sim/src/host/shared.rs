//! State that pollers, posters and the background thread of one node share.
//!
//! *Owns*: the device, the presence, the eventfds by which peers and threads of the node wake it, the UDP port, the
//! end of it all. *Takes*: polls and posts of any thread. *Gives*: steps. *Must not*: wait; make a system call for a
//! post while there is no packet peer and no thread to wake.

use std::{
    collections::VecDeque,
    os::fd::{AsFd, BorrowedFd},
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use rustix::event::{EventfdFlags, eventfd};
use udma_abi::{GiveWay, Nanos, PollOfOne, doorbell::JfcDoorbell, regs};
use urma_mem::{
    doorbells::RungSlot,
    fork::{self, FlagWatch},
    idle::{IdleSnapshot, RaisedCount},
    sleep::SleepAlarm,
    sync::{AtomicBool, AtomicU32, Ordering},
};

use super::{
    clock::Clock,
    descriptor::ForkGuarded,
    interrupt::{signal, take},
    port::PacketPort,
    scheduler::presence::Presence,
};
use crate::{
    device::{DeviceFunction, SoftwareDevice},
    exchange::PlainStep,
    ports::{Deadline, HostRequest, LinkVisitor},
};

/// One node, as all its threads see it.
#[derive(Debug)]
pub struct SharedNode {
    device: Arc<SoftwareDevice>,
    presence: Presence,
    clock: Clock,
    /// Written by peers: any thread of this node may answer.
    wakeup: Arc<ForkGuarded>,
    /// Written by threads of this node: the background thread has something to do.
    own_wakeup: ForkGuarded,
    port: PacketPort,
    requests: Mutex<VecDeque<HostRequest>>,
    /// Number of polls that will still check for requests of the core after a command.
    polls_after_command: AtomicU32,
    /// Polls in a row that found the port held by another thread.
    polls_held: AtomicU32,
    /// The deadline of the sleeping background thread.
    alarm: SleepAlarm,
    /// Set by [`SharedNode::stop`], and in a forked child before it runs any code.
    dead: Arc<AtomicBool>,
    _forked: FlagWatch,
    generation: u64,
}

/// Creates the eventfd that wakes a background thread.
///
/// # Errors
/// The process is out of descriptors.
pub fn new_wakeup() -> std::io::Result<Arc<ForkGuarded>> {
    new_eventfd().map(Arc::new)
}

fn new_eventfd() -> std::io::Result<ForkGuarded> {
    ForkGuarded::new(eventfd(0, EventfdFlags::NONBLOCK | EventfdFlags::CLOEXEC)?)
}

impl SharedNode {
    /// Creates a node that no thread serves yet.
    ///
    /// # Errors
    /// Out of descriptors, or of memory for the handlers around `fork`.
    pub fn new(
        device: Arc<SoftwareDevice>,
        wakeup: Arc<ForkGuarded>,
        port: PacketPort,
    ) -> std::io::Result<Self> {
        let dead = Arc::new(AtomicBool::new(false));
        Ok(Self {
            presence: Presence::new(Arc::clone(device.sign())),
            device,
            clock: Clock::default(),
            wakeup,
            own_wakeup: new_eventfd()?,
            port,
            requests: Mutex::default(),
            polls_after_command: AtomicU32::new(0),
            polls_held: AtomicU32::new(0),
            alarm: SleepAlarm::default(),
            _forked: fork::watch_flag(Arc::clone(&dead))?,
            dead,
            generation: fork::generation(),
        })
    }

    /// Clears the wake-up of a thread that waited for an event and was woken by a peer, and makes a step.
    pub fn on_wakeup(&self) {
        self.clear_wakeup();
        if self.is_dead() {
            return;
        }
        // What is left would wait for the next wake-up.
        let is_left = (0..STEPS_WOKEN).all(|_| self.drive(self.clock.now(), LinkVisitor::Thread));
        if is_left {
            self.ring();
        }
        self.leave();
    }

    /// Notes that threads that polled wait from now on: the background thread serves the node, and peers send
    /// wake-ups.
    pub fn rest(&self) {
        if !self.is_dead() && self.presence.on_arm() {
            self.ring();
        }
    }

    /// Makes one bounded step for a driver that polls or waits. Takes the snapshot `idle` if the next poll would find
    /// nothing and the background thread knows that the program polls.
    pub fn on_poll(&self, idle: &mut IdleSnapshot) {
        idle.end();
        if self.is_dead() {
            return;
        }
        let raised = self.device.sign().raised();
        let must_tell = self.presence.on_poll();
        self.step_for_poll((raised, idle));
        if self.polls_after_command.load(Ordering::Relaxed) != 0 {
            idle.end();
            self.look_for_requests();
        }
        if self.presence.counts_polls() {
            idle.end();
        }
        if must_tell {
            self.ring();
        }
        self.leave();
    }

    /// Takes the peer's entry that invalidated a poll's idle snapshot, if it is a single message. Returns whether it
    /// did.
    #[inline]
    pub fn take_entry(&self, poll: &mut PollOfOne) -> bool {
        !self.is_dead() && self.device.take_entry(|| self.clock.now_coarse(), poll)
    }

    /// Makes the step of a poll, unless it would find nothing, as most polls of a spinning program do.
    fn step_for_poll(&self, idle: (RaisedCount, &mut IdleSnapshot)) {
        let is_active = self.port.is_active();
        // What is runnable or listed is found without the time.
        let is_untimed = self.device.timer().is_none() && self.port.poll_deadline().is_none();
        if !is_active && is_untimed {
            self.device.step_or_begin(|| self.clock.now_coarse(), (self.step_kind(), idle));
            return;
        }
        self.step_timed(is_active, idle);
    }

    /// Makes the step of a poll when timers may be due.
    #[inline(never)]
    fn step_timed(&self, is_active: bool, idle: (RaisedCount, &mut IdleSnapshot)) {
        let deadline = self.device.poll_deadline();
        // The exact clock would cost a poller more than the poll.
        let coarse = self.clock.now_coarse();
        let is_timed = is_active || deadline.is_some_and(|at| at <= coarse + COARSE_NS);
        if is_timed {
            let now = self.clock.now();
            self.presence.on_polled_at(now);
            if !is_active && deadline.is_some_and(|at| at > now) {
                // Due soon, but not yet.
                self.device.step_found(|| now, self.step_kind());
                return;
            }
            self.drive_for_poll(now);
            self.give_way_to_holder();
        } else if self.port.is_due(coarse) {
            self.drive(coarse, self.visitor());
        } else if deadline.is_none_or(|at| at > coarse + LULL_NS) {
            // The background thread invalidates the idle snapshot before that is due.
            self.device.step_or_begin(|| coarse, (self.step_kind(), idle));
        } else {
            self.device.step_found(|| coarse, self.step_kind());
        }
    }

    /// Does what [`SharedNode::drive`] does, except what would find nothing: most polls find the socket empty and no
    /// timer due.
    fn drive_for_poll(&self, now: Nanos) {
        if self.device.is_due(now) {
            self.device.step(now);
        } else {
            self.device.step_found(|| now, self.step_kind());
        }
        if self.port.is_due(now) {
            self.port.exchange(&self.device, now, self.visitor());
        }
        if !self.presence.is_awake() && self.device.is_due(now) {
            // The program may wait for an event after this poll: nothing is left for the next one.
            self.device.step(now);
            let _ = self.port.send(&self.device, now);
        }
    }

    /// Yields the processor, which a spinning program shares with other threads. A wait ends with the next datagram,
    /// if packets are in use. Threads that post meanwhile send what they post.
    #[cold]
    pub fn give_way(&self, how: GiveWay) {
        match how {
            GiveWay::Wait if self.port.is_active() => self.port.wait(WAIT),
            // Polls make no system call in this case: the thread sees by lost slices that it has to yield.
            GiveWay::Probe if !self.port.is_active() => {}
            GiveWay::Wait | GiveWay::Yield | GiveWay::Probe => how.give(),
        }
    }

    /// Yields the processor after some polls that found the port held: the thread that holds it may have lost this
    /// processor in the middle of a step.
    fn give_way_to_holder(&self) {
        if !self.port.is_marked() {
            return self.polls_held.store(0, Ordering::Relaxed);
        }
        if self.polls_held.fetch_add(1, Ordering::Relaxed) >= POLLS_HELD_MAX {
            self.polls_held.store(0, Ordering::Relaxed);
            std::thread::yield_now();
        }
    }

    /// Reads a register of a function.
    #[must_use]
    pub fn read(&self, function: &DeviceFunction, offset: u64) -> u64 {
        if self.is_dead() { u64::MAX } else { self.device.read(function, offset) }
    }

    /// Writes a 32-bit register of a function.
    pub fn write32(&self, function: &Arc<DeviceFunction>, (offset, value): (u64, u32)) {
        if self.is_dead() {
            return;
        }
        if offset == regs::CMD_PI && self.port.is_active() {
            // An import must not rely on a peer whose CLOSE has arrived.
            self.port.exchange(&self.device, self.clock.now(), LinkVisitor::Thread);
        }
        self.device.write32(|| self.post_time(), function, (offset, value));
        if offset == regs::CMD_PI || offset == regs::CONTROL {
            self.after_command();
        }
        self.after_post();
    }

    /// Writes a 64-bit register of a function.
    pub fn write64(&self, function: &DeviceFunction, (offset, value): (u64, u64)) {
        if self.is_dead() {
            return;
        }
        self.device.write64(|| self.post_time(), function, (offset, value));
        if offset == regs::JFC_DB && JfcDoorbell::decode(value).arm.is_some() {
            self.on_arm();
        }
        self.after_post();
    }

    /// Notes that a thread is about to wait: from now on the background thread serves the node.
    fn on_arm(&self) {
        if self.presence.on_arm() {
            self.ring();
        }
    }

    /// Takes a doorbell from a slot of a function's doorbell memory.
    pub fn ring_slot(&self, function: &DeviceFunction, rung: RungSlot) {
        if self.is_dead() {
            return;
        }
        self.device.ring_slot(|| self.post_time(), function, rung);
        if rung.detail.is_some() {
            self.on_arm();
        }
        self.after_post();
    }

    /// Takes a direct entry: 64 bytes that a function's driver wrote at once.
    pub fn write_block(&self, function: &DeviceFunction, (offset, words): (u64, &[u64; 8])) {
        if self.is_dead() {
            return;
        }
        // A request that is done has sent no packet and set no deadline.
        if self.device.write_block(|| self.post_time(), function, (offset, words)) {
            self.after_post();
        }
    }

    /// Makes one bounded step of everything. Returns whether anything was done.
    pub fn drive(&self, now: Nanos, by: LinkVisitor) -> bool {
        let stepped = self.device.step(now);
        let exchanged = self.port.is_due(now) && self.port.exchange(&self.device, now, by);
        stepped || exchanged
    }

    /// Exchanges datagrams now, for an endpoint of the standard opcodes.
    pub fn exchange(&self) {
        if !self.is_dead() {
            self.port.exchange(&self.device, self.clock.now(), LinkVisitor::Thread);
            // It may have created work and timers of the device.
            self.leave();
        }
    }

    /// Takes the next request of the core, whichever thread found it.
    pub fn next_request(&self) -> Option<HostRequest> {
        let found = self.requests.lock().unwrap_or_else(PoisonError::into_inner).pop_front();
        found.or_else(|| self.device.poll_host_request())
    }

    /// Sets the deadline until which the background thread sleeps.
    pub fn set_alarm(&self, deadline: Deadline) {
        self.alarm.set(deadline.unwrap_or(u64::MAX));
        // A thread may have left work before that, and gone to wait.
        self.leave();
    }

    /// Wakes the background thread.
    pub fn ring(&self) {
        signal(self.own_wakeup.as_fd());
    }

    /// Clears the eventfd, so that the next wake-up is seen.
    pub fn clear_wakeup(&self) {
        take(self.wakeup.as_fd());
    }

    /// Clears the eventfd that threads of this node write, so that the next wake-up is seen.
    pub fn clear_own_wakeup(&self) {
        take(self.own_wakeup.as_fd());
    }

    /// The eventfd by which threads of this node reach the background thread.
    #[must_use]
    pub fn own_wakeup(&self) -> BorrowedFd<'_> {
        self.own_wakeup.as_fd()
    }

    /// The eventfd that peers write to wake this node.
    #[must_use]
    pub fn wakeup(&self) -> BorrowedFd<'_> {
        self.wakeup.as_fd()
    }

    /// Stops everything: the background thread returns, and accesses are answered like those to an unplugged device.
    pub fn stop(&self) {
        self.dead.store(true, Ordering::Release);
        self.ring();
    }

    /// Sends packet peers what they wait for, and then that this node closes. To be called after
    /// [`SharedNode::stop`], when no thread steps the node any more.
    pub fn close_peers(&self) {
        if self.device.has_packet_peers() {
            self.linger(LINGER_NS);
            self.device.close_peers();
            self.port.send_last(&self.device, self.clock.now(), CLOSES_MAX);
        }
    }

    /// Closes the peers of a process that ends, while threads may still use the node: no packets are exchanged after
    /// it.
    pub fn leave_peers(&self, linger: Nanos) {
        if self.device.has_packet_peers() {
            self.linger(linger);
            self.device.leave_peers();
            self.port.send_last(&self.device, self.clock.now(), CLOSES_MAX);
            self.port.close();
        }
    }

    /// Steps until the peers have received everything, for at most `most` ns.
    fn linger(&self, most: Nanos) {
        let end = self.clock.now() + most;
        loop {
            let now = self.clock.now();
            let is_busy = self.drive(now, LinkVisitor::Thread);
            if self.device.is_answered() || now >= end {
                break;
            }
            if !is_busy {
                self.port.wait(TICK);
            }
        }
    }

    /// Whether [`SharedNode::stop`] was called, or this process is a fork.
    #[must_use]
    pub fn is_stopped(&self) -> bool {
        self.dead.load(Ordering::Acquire)
    }

    /// Whether this process is a fork of the one that opened the node.
    #[must_use]
    pub fn is_forked(&self) -> bool {
        fork::forked_since(self.generation)
    }

    /// Whether nothing works any more.
    #[inline]
    #[must_use]
    pub fn is_dead(&self) -> bool {
        self.dead.load(Ordering::Relaxed)
    }

    /// Returns the device of the node.
    #[must_use]
    pub fn device(&self) -> &Arc<SoftwareDevice> {
        &self.device
    }

    /// Removes a function whose driver is gone.
    pub fn remove_function(&self, function: &Arc<DeviceFunction>) {
        self.device.remove_function(self.clock.now(), function);
        self.after_command();
        self.after_post();
    }

    /// Returns whether the program or the background thread serves the node.
    #[must_use]
    pub fn presence(&self) -> &Presence {
        &self.presence
    }

    /// Returns the clock of the node.
    #[must_use]
    pub fn clock(&self) -> &Clock {
        &self.clock
    }

    /// Returns the port through which packets are exchanged.
    #[must_use]
    pub fn port(&self) -> &PacketPort {
        &self.port
    }

    /// Time of a post. Packets start timers that should not fire early, and cost microseconds anyway.
    #[inline]
    #[must_use]
    pub fn post_time(&self) -> Nanos {
        if self.port.is_active() { self.clock.now() } else { self.clock.now_coarse() }
    }

    /// Sends what a post left for the port, and leaves the device.
    #[inline]
    pub fn after_post(&self) {
        if self.port.is_active() {
            let _ = self.port.send(&self.device, self.clock.now());
        }
        self.leave();
    }

    /// A thread leaves the device, and may sleep on a descriptor until it is woken: if no thread polls, the background
    /// thread must know everything that is left to do.
    #[inline]
    fn leave(&self) {
        if !self.presence.is_awake() && !self.alarm.is_woken() {
            self.leave_to_thread();
        }
    }

    #[inline(never)]
    fn leave_to_thread(&self) {
        let mut left = self.work_left();
        if left == Some(0) {
            // A step is cheaper than a change of threads, for example for a request to this node itself.
            self.drive(self.clock.now(), LinkVisitor::Thread);
            left = self.work_left();
        }
        if left.is_some_and(|at| self.alarm.is_before(at)) {
            self.ring();
        }
    }

    /// Time when the earliest work is due that no input announces; 0: at once.
    fn work_left(&self) -> Deadline {
        if self.port.is_marked() || self.device.is_work_left() {
            return Some(0);
        }
        [self.device.poll_deadline(), self.port.poll_deadline()].into_iter().flatten().min()
    }

    /// Kind of visitor that a poll is. While each of them may be the last one before the program sleeps, nothing is
    /// left for the next.
    fn visitor(&self) -> LinkVisitor {
        match self.presence.counts_polls() {
            true => LinkVisitor::Thread,
            false => LinkVisitor::Poll,
        }
    }

    fn step_kind(&self) -> PlainStep {
        match self.visitor() {
            LinkVisitor::Thread => PlainStep::Post,
            LinkVisitor::Poll => PlainStep::Poll,
        }
    }

    /// Notes that a command may ask for a peer, now or in a later step of another thread.
    #[cold]
    fn after_command(&self) {
        self.polls_after_command.store(POLLS_AFTER_COMMAND, Ordering::Relaxed);
        self.ring();
    }

    #[cold]
    fn look_for_requests(&self) {
        let left = self.polls_after_command.load(Ordering::Relaxed);
        self.polls_after_command.store(left.saturating_sub(1), Ordering::Relaxed);
        if let Some(request) = self.device.poll_host_request() {
            self.requests.lock().unwrap_or_else(PoisonError::into_inner).push_back(request);
            self.ring();
        }
    }
}

/// Longest time in ns that a closing node waits until its peers have received everything: enough to send a lost
/// packet again several times. A peer that is gone does not hold up the end of a program for longer.
const LINGER_NS: Nanos = 100_000_000;
/// Longest time that a closing node waits for a datagram before it steps again.
const TICK: Duration = Duration::from_millis(1);
/// Longest time that a poll waits for a datagram if the processor is shared.
const WAIT: Duration = Duration::from_micros(100);
/// Most send calls for the last packets.
const CLOSES_MAX: usize = 64;
/// Steps of a thread that a peer woke, before it leaves the rest to the background thread.
const STEPS_WOKEN: u32 = 16;
/// How far the cheap clock may be behind, at most, in ns: two ticks of a kernel with 100 per second.
const COARSE_NS: Nanos = 20_000_000;
/// A poll that skips the device until the background thread checks again is not late for what is due after this time,
/// in ns: [`COARSE_NS`] and the longest tick, twice.
const LULL_NS: Nanos = 100_000_000;
/// Polls in a row that may find the port held: a step of another thread on its own processor takes a few hundred at
/// most.
const POLLS_HELD_MAX: u32 = 64;
/// Polls that check for requests of the core after a command was rung; a longer command is stepped by the background
/// thread, which checks by itself.
const POLLS_AFTER_COMMAND: u32 = 1024;

#[cfg(test)]
mod tests {
    use udma_abi::cmd::{Command, Mode};

    use super::*;
    use crate::host::{claim::Claim, port::PortLinkCfg};
    use crate::tests::{Bench, Sharing};

    #[test]
    fn an_exchange_wakes_the_thread_that_sleeps_past_a_new_timer() {
        let [claim, other] = [Claim::random().unwrap(), Claim::random().unwrap()];
        let port = PacketPort::bind(claim.eid(), &[], PortLinkCfg::default());
        let mut bench = Bench::new(1, Sharing::Whole, &|cfg| cfg.eid = claim.eid());
        let wakeup = new_wakeup().unwrap();
        let shared = SharedNode::new(Arc::clone(&bench.dev), wakeup, port).unwrap();
        shared.set_alarm(None);
        shared.exchange();
        assert!(!take(shared.own_wakeup()), "nothing is due");
        bench.submit(Command::Connect { eid: other.eid(), mode: Mode::Rm });
        bench.dev.step(1000);
        bench.dev.on_packet_peer(1000, other.eid());
        bench.dev.step(1000);
        shared.exchange();
        assert_eq!(shared.port().counts().unwrap().sent, 1, "the request for a TP");
        assert!(take(shared.own_wakeup()), "it may have to be sent again");
    }
}
