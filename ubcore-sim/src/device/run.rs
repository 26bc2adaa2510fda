//! Steps and inputs of the device: posters step their queue, every caller the shared part.
//!
//! *Owns*: the deadline, sleep. *Takes*: time. *Gives*: bounded steps. *Must not*: wait for a value that another
//! thread holds (it will see the mark).

use std::cell::{Cell, OnceCell};
use std::sync::Arc;

use udma_abi::{CmdStatus, Nanos, PollOfOne, RawEid, counters::Counter, sqe::BLOCK_WORDS};
use urma_mem::sync::Ordering;
use urma_mem::{
    RunResult,
    idle::{IdleSnapshot, RaisedCount},
    sleep::SleepResult,
};

use super::SoftwareDevice;
use super::running::RunningTime;
use super::shared::{SharedPart, SharedPlace};
use crate::cfg::PortMode;
use crate::context::plugged::PluggedModel;
use crate::endpoint::Reception;
use crate::engine::queue::DeviceSendQueue;
use crate::engine::send::StepOutcome;
use crate::exchange::{Exchange, PlainStep};
use crate::nic::LookupSink;
use crate::ports::{
    ArrivedDatagram, Backlog, Deadline, HostRequest, LinkVisitor, NodeAddr, Route, SameHostParts,
    Transmit,
};

/// Queues that one step of the device runs.
const QUEUES_PER_STEP: usize = 64;

impl SoftwareDevice {
    /// Does one bounded step of everything runnable. Returns whether anything was done.
    pub fn step(&self, now: Nanos) -> bool {
        if let Some(nic) = &self.core.tables.nic {
            self.wake_ready(nic);
        }
        let busy = self.core.has_runnable() && self.step_runnable(now);
        busy | self.run_shared(now)
    }

    /// Sets the virtual time, by which requests and packets wait for a model
    /// ([`ModelMode::Time`](crate::nic::ModelMode::Time)).
    pub fn set_virtual_time(&self, now: Nanos) {
        if let Some(nic) = &self.core.tables.nic {
            nic.set_clock(now);
        }
    }

    /// Sends copies of all context lookups to `sink`. `false`: the device does not model contexts.
    pub fn record_lookups(&self, sink: Arc<dyn LookupSink>) -> bool {
        self.core.tables.nic.as_ref().is_some_and(|nic| nic.record(sink))
    }

    /// Makes the queues runnable whose requests' contexts are loaded.
    #[cold]
    fn wake_ready(&self, nic: &PluggedModel) {
        nic.take_due(|id| {
            if let Some(queue) = self.core.queues.get(id) {
                self.core.make_runnable(queue);
            }
        });
    }

    /// Does one bounded step unless it would find nothing: no queue is listed, and nothing waits in the shared part or in
    /// a peer's ring. What is due by time is not looked for; [`SoftwareDevice::poll_deadline`] says when that is. Returns
    /// whether there was a step.
    pub(crate) fn step_found(&self, now: impl FnOnce() -> Nanos, kind: PlainStep) -> bool {
        self.step_found_or(now, kind, |_| {})
    }

    /// Does what [`SoftwareDevice::step_found`] does; calls `quiet` if the shared part has nothing to do.
    #[inline]
    fn step_found_or(
        &self,
        now: impl FnOnce() -> Nanos,
        kind: PlainStep,
        quiet: impl FnOnce(&SharedPlace),
    ) -> bool {
        if self.core.has_runnable() {
            self.step(now());
            return true;
        }
        // Read at most once, and only for a step.
        let (clock, now) = (OnceCell::new(), Cell::new(Some(now)));
        let read = || *clock.get_or_init(|| now.take().map_or(0, |now| now()));
        let run = self.shared.run_if(
            |place| {
                if place.is_quiet() && !self.core.has_listed() {
                    quiet(place);
                    return false;
                }
                self.sign().count_visit();
                // An acknowledgement that waits for the next poll stays waiting.
                let is_alone = kind == PlainStep::Poll
                    && place.take_alone(&self.core, read(), &mut PollOfOne::default());
                !is_alone && !self.step_plain(place.part(), read(), kind)
            },
            |shared| {
                self.step_shared(shared, read());
            },
        );
        // Another thread that holds the shared part steps it.
        let at = clock.get().copied();
        self.after_run(run, at.unwrap_or(0));
        at.is_some() || run != RunResult::Done
    }

    /// Steps the shared part for what a thread just posted; if another thread holds it, that one does so.
    pub(super) fn step_after_post(&self, now: Nanos) {
        let run = self.shared.run_if(
            |place| {
                self.sign().count_visit();
                let shared = place.part();
                !self.step_plain(shared, now, PlainStep::Post) && !self.step_prompt(shared, now)
            },
            |shared| {
                self.step_shared(shared, now);
            },
        );
        self.after_run(run, now);
    }

    /// Steps the shared part for what a poll took from the socket; if another thread holds it, that one does so.
    fn step_after_arrival(&self, now: Nanos) {
        let run = self.shared.run_if(
            |place| {
                self.sign().count_visit();
                !self.step_prompt(place.part(), now)
            },
            |shared| {
                self.step_shared(shared, now);
            },
        );
        self.after_run(run, now);
    }

    /// Sends the message of a direct entry, in one visit of shared part and queue. `None`: another thread holds the
    /// shared part.
    #[inline]
    pub(super) fn send_short(
        &self,
        now: impl Fn() -> Nanos,
        queue: &Arc<DeviceSendQueue>,
        block: &[u64; BLOCK_WORDS],
    ) -> Option<()> {
        let run = self.shared.try_run(
            |place| {
                let Some(left) = place.send_piggybacked(&self.core, &now, (queue, block)) else {
                    return self.send_message(place, &now, (queue, block));
                };
                if self.is_left(left) {
                    self.step_plain(place.part(), now(), PlainStep::Post);
                }
            },
            |shared| {
                self.step_shared(shared, now());
            },
        );
        let (run, ()) = run?;
        if run == RunResult::WorkLeft {
            self.after_run(run, now());
        }
        Some(())
    }

    /// Sends the message of a direct entry outside of ping-pong mode, or enters that mode with it.
    #[inline(never)]
    fn send_message(
        &self,
        place: &mut SharedPlace,
        now: impl Fn() -> Nanos,
        (queue, block): (&Arc<DeviceSendQueue>, &[u64; BLOCK_WORDS]),
    ) {
        let shared = place.part();
        if !shared.is_plain(&self.core) {
            let left = self.core.step_queue(queue, Some(block));
            if self.is_left(left) {
                self.step_shared(shared, now());
            }
            return;
        }
        if place.begin_ping_pong(&self.core, queue, block)
            && let Some(left) = place.send_piggybacked(&self.core, &now, (queue, block))
        {
            // The lane sent the messages before, and there was no step since.
            debug_assert!(
                !place.is_before_due(),
                "a step is due when the message wants to be looked at"
            );
            if self.is_left(left) {
                self.step_plain(place.part(), now(), PlainStep::Post);
            }
            return;
        }
        let shared = place.part();
        let (left, timer) = shared.send_short(&self.core, &now, (queue, block));
        if self.is_left(left) {
            self.step_plain(shared, now(), PlainStep::Post);
        } else if shared.time.is_before_due(timer) {
            self.set_deadline(shared);
        }
    }

    /// Does what [`SoftwareDevice::step_found`] does; if there was nothing to do, takes the snapshot `idle`, which
    /// stays valid as long as there is none. `raised` was read before anything that this poll looks at.
    pub(crate) fn step_or_begin(
        &self,
        now: impl FnOnce() -> Nanos,
        (kind, (raised, idle)): (PlainStep, (RaisedCount, &mut IdleSnapshot)),
    ) -> bool {
        let mut is_quiet = false;
        let note = |place: &SharedPlace| is_quiet = place.note_idle(self.sign(), idle);
        let is_found = self.step_found_or(now, kind, note);
        if is_quiet && !is_found {
            idle.begin(self.sign(), raised);
        }
        is_found
    }

    /// Takes the ring entry that invalidated a poll's idle snapshot, if it is a single message. Returns whether it
    /// did; if not, a step is due.
    #[inline]
    pub(crate) fn take_entry(&self, now: impl Fn() -> Nanos, poll: &mut PollOfOne) -> bool {
        if self.core.has_runnable() {
            return false;
        }
        let run = self.shared.try_run(
            |place| place.take_alone(&self.core, now(), poll),
            |shared| {
                self.step_shared(shared, now());
            },
        );
        let Some((run, is_taken)) = run else { return false };
        if run == RunResult::WorkLeft {
            self.after_run(run, now());
        }
        is_taken
    }

    /// Steps only mail and pieces, in a shared part that this thread holds and that has nothing else to do. `false`:
    /// it has, and a full step is due.
    fn step_plain(&self, shared: &mut SharedPart, now: Nanos, by: PlainStep) -> bool {
        if !shared.is_plain(&self.core) {
            return false;
        }
        let at = shared.time.at(now);
        // A timer that was put off is seen when it would have been due.
        if shared.step_plain(&self.core, at, by) {
            self.set_deadline(shared);
        }
        true
    }

    /// Steps what programs wait for, mail and pieces, in a shared part that this thread holds. The rest of a step is
    /// due at once: the next poll or another thread does it, while packets are on their way. `false`: a full step is
    /// due.
    fn step_prompt(&self, shared: &mut SharedPart, now: Nanos) -> bool {
        if !shared.exchange.has_packet_peers() {
            return false;
        }
        let at = shared.time.at(now);
        shared.step_prompt(&self.core, at);
        self.set_timers(&mut shared.time, Some(0));
        true
    }

    fn step_runnable(&self, now: Nanos) -> bool {
        let mut busy = false;
        let mut entries = [(0, 0); QUEUES_PER_STEP];
        for &(_, id) in self.core.take_runnable(&mut entries) {
            if let Some(queue) = self.core.queues.get(id) {
                queue.unmark_runnable();
                busy |= self.step_queue_and_shared(queue, now);
            }
        }
        busy
    }

    /// Steps a queue's engine, then the shared part if it has something to do. Returns whether anything was done
    /// here.
    #[inline]
    pub(super) fn step_queue_and_shared(&self, queue: &Arc<DeviceSendQueue>, now: Nanos) -> bool {
        let left = self.core.step_queue(queue, None);
        if self.is_left(left) {
            self.run_shared(now);
        }
        left.has(StepOutcome::BUSY)
    }

    /// Whether the step of a queue left something for the shared part.
    #[inline]
    pub(super) fn is_left(&self, left: StepOutcome) -> bool {
        if left.has(StepOutcome::GATHERED) {
            // The next poll has to look.
            self.sign().raise();
        }
        left.has(StepOutcome::SHARED)
            || left.has(StepOutcome::BUSY) && self.core.tables.moderation.load(Ordering::Relaxed)
    }

    /// Restarts the queues that stopped for want of a completion slot.
    pub(super) fn restart_stopped(&self, now: Nanos) {
        for queue in self.core.queues.iter().filter(|q| q.stopped.load(Ordering::SeqCst)) {
            queue.stopped.store(false, Ordering::SeqCst);
            self.step_queue_and_shared(queue, now);
        }
    }

    /// Steps the shared part; if another thread holds it, that one does so.
    pub(crate) fn run_shared(&self, now: Nanos) -> bool {
        let mut busy = false;
        let run = self.shared.run(|shared| busy |= self.step_shared(shared, now));
        self.after_run(run, now);
        busy
    }

    /// Steps the shared part, which this thread holds. Returns whether anything was done.
    fn step_shared(&self, shared: &mut SharedPart, now: Nanos) -> bool {
        let at = shared.time.at(now);
        let busy = shared.step(&self.core, at);
        self.set_deadline(shared);
        busy
    }

    /// Sets the deadline from the timers of the shared part, which this thread holds.
    fn set_deadline(&self, shared: &mut SharedPart) {
        let timers = shared.poll_deadline();
        self.set_timers(&mut shared.time, timers);
    }

    fn set_timers(&self, time: &mut RunningTime, timers: Deadline) {
        let due = match self.faults().stopped_time_counts() {
            true => timers,
            false => time.set_due(timers),
        };
        let deadline = due.unwrap_or(u64::MAX);
        // A store with this ordering costs more than the load.
        if self.deadline.load(Ordering::SeqCst) != deadline {
            self.deadline.store(deadline, Ordering::SeqCst);
        }
    }

    /// Makes work that a run left due at once.
    fn after_run(&self, run: RunResult, now: Nanos) {
        if run == RunResult::WorkLeft {
            self.deadline.fetch_min(now, Ordering::SeqCst);
            self.sign().raise();
        }
    }

    /// Time at which [`SoftwareDevice::step`] has to be called at the latest.
    #[must_use]
    pub fn poll_deadline(&self) -> Deadline {
        if self.core.has_runnable() || self.core.has_listed() {
            return Some(0);
        }
        let waits = self.core.tables.nic.as_ref().and_then(|nic| nic.deadline());
        waits.into_iter().chain(self.timer()).min()
    }

    /// Deadline of the timers alone, without queues that could be stepped now.
    #[inline]
    pub(crate) fn timer(&self) -> Deadline {
        let at = self.deadline.load(Ordering::SeqCst);
        (at != u64::MAX).then_some(at)
    }

    /// Whether [`SoftwareDevice::step`] or [`SoftwareDevice::poll_transmit`] has to be called at `now`.
    #[must_use]
    pub fn is_due(&self, now: Nanos) -> bool {
        self.poll_deadline().is_some_and(|at| at <= now)
    }

    /// Takes the next request to the host about a peer.
    pub fn poll_host_request(&self) -> Option<HostRequest> {
        self.core.tables.requests.pop()
    }

    /// Takes the next datagram to send; its bytes (BTH to ICRC) are in `buf`.
    pub fn poll_transmit(&self, now: Nanos, buf: &mut [u8]) -> Option<Transmit> {
        let held = self.shared.try_with(|shared| {
            let at = shared.time.at(now);
            let sent = shared.exchange.poll_transmit(&self.core, at, buf);
            shared.wake(&self.core);
            sent
        })?;
        if held.marked {
            self.run_shared(now);
        }
        held.value
    }

    /// Takes the next datagram like [`SoftwareDevice::poll_transmit`], and says whether another one is ready.
    pub(crate) fn poll_transmit_more(
        &self,
        now: Nanos,
        buf: &mut [u8],
    ) -> Option<(Transmit, bool)> {
        let sent = self.poll_transmit(now, buf)?;
        Some((sent, self.has_transmit()))
    }

    /// Whether a packet waits to be sent.
    pub(crate) fn has_transmit(&self) -> bool {
        let held = self.shared.try_with(|shared| shared.exchange.has_transmit());
        held.is_none_or(|held| held.value || held.marked)
    }

    /// Reports that the peer is on this host, with what it shares. Also called when the peer connected first.
    pub fn on_same_host_peer(&self, now: Nanos, eid: RawEid, parts: SameHostParts) {
        self.pass_input(now, |exchange, at| exchange.on_same_host_peer(&self.core, at, eid, parts));
    }

    /// Reports that the peer is not on this host: packets go to its address.
    pub fn on_packet_peer(&self, now: Nanos, eid: RawEid) {
        self.pass_input(now, |exchange, _| exchange.on_packet_peer(eid));
    }

    /// Reports that there is no path to the peer.
    pub fn on_no_peer(&self, now: Nanos, eid: RawEid, why: CmdStatus) {
        self.pass_input(now, |exchange, _| exchange.on_no_peer(eid, why));
    }

    /// Reports that a peer on this host hung up or died.
    pub fn on_peer_gone(&self, now: Nanos, eid: RawEid) {
        self.pass_input(now, |exchange, at| exchange.on_peer_gone(&self.core, at, eid));
    }

    /// Reports that the system refused a datagram to the node as too long: at most `ip_mtu` bytes pass, including the
    /// IP and UDP headers.
    pub fn on_too_long(&self, now: Nanos, to: NodeAddr, ip_mtu: usize) {
        self.pass_input(now, |exchange, at| exchange.endpoint.on_too_long(at, to, ip_mtu));
    }

    /// Reports that the system sends nothing from this port to this address: the interface is down, or there is no
    /// route.
    pub fn on_cut(&self, now: Nanos, route: Route) {
        self.pass_input(now, |exchange, at| exchange.endpoint.on_cut(at, route));
    }

    /// Changes how packets use several ports, for all peers.
    pub fn set_port_mode(&self, now: Nanos, mode: PortMode) {
        self.pass_input(now, |exchange, at| exchange.endpoint.set_port_mode(at, mode));
    }

    /// Takes a datagram (BTH to ICRC) from a node.
    pub fn on_datagram(&self, now: Nanos, from: NodeAddr, bytes: &[u8]) {
        let _ = self.on_datagrams(
            now,
            Backlog::Empty,
            std::iter::once(ArrivedDatagram::of_node(from, bytes)),
        );
    }

    /// Takes datagrams from nodes. One step follows them all, which costs more than most of them do; none if they
    /// were only counted and answered. Returns whether there was one.
    pub fn on_datagrams<'a, D>(&self, now: Nanos, backlog: Backlog, datagrams: D) -> bool
    where
        D: Iterator<Item = ArrivedDatagram<'a>>,
    {
        self.on_datagrams_at(now, (0, backlog, LinkVisitor::Thread), datagrams)
    }

    /// Takes datagrams as [`SoftwareDevice::on_datagrams`] does, at a port of this node; 0 is the one whose address
    /// is its EID.
    pub fn on_datagrams_at<'a, D>(
        &self,
        now: Nanos,
        (port, backlog, visitor): (u8, Backlog, LinkVisitor),
        datagrams: D,
    ) -> bool
    where
        D: Iterator<Item = ArrivedDatagram<'a>>,
    {
        let run = self.shared.with_blocking(|shared| {
            let at = shared.time.at(now);
            shared.exchange.endpoint.on_backlog(at, backlog);
            let is_due = datagrams.fold(false, |is_due, datagram| {
                let route = Route { port, to: datagram.from };
                let by = Reception::new(&self.core.tables, at, route);
                shared.on_datagram(&self.core, by, &datagram) | is_due
            });
            if is_due {
                shared.exchange.on_packets(visitor);
            }
            shared.wake(&self.core);
            is_due
        });
        match (run.marked, run.value, visitor) {
            (false, false, _) => return false,
            (false, true, LinkVisitor::Poll) => self.step_after_arrival(now),
            (true, ..) | (.., LinkVisitor::Thread) => {
                self.run_shared(now);
            }
        }
        true
    }

    /// Passes an input at `now` to the exchange, then steps.
    fn pass_input(&self, now: Nanos, input: impl FnOnce(&mut Exchange, Nanos)) {
        let _ = self.shared.with_blocking(|shared| {
            let at = shared.time.at(now);
            input(&mut shared.exchange, at);
            shared.wake(&self.core);
        });
        self.run_shared(now);
    }

    /// Whether a step that took datagrams left queues to step or pieces to take: a step is bounded.
    pub(crate) fn has_left(&self) -> bool {
        let of_peers = |shared: &mut SharedPart| shared.exchange.endpoint.has_pieces();
        self.core.has_runnable()
            || self.core.has_listed()
            || self.shared.try_with(of_peers).is_none_or(|held| held.value || held.marked)
    }

    /// Whether a step would find work that no input announces, such as entries in a peer's ring, or the thread that steps
    /// right now may leave some.
    pub(crate) fn is_work_left(&self) -> bool {
        let has_work = |shared: &mut SharedPart| shared.exchange.has_work();
        self.shared.try_with(has_work).is_none_or(|held| held.value || held.marked)
    }

    /// Lists the TPNs of this node with the peers at their other ends.
    pub(crate) fn tpns(&self) -> Vec<(u32, NodeAddr)> {
        self.shared.with_blocking(|s| s.exchange.endpoint.tpns().collect()).value
    }

    /// Whether a node has proven that it receives at its address, or sent a datagram for a queue here.
    pub(crate) fn has_packet_peers(&self) -> bool {
        self.shared.with_blocking(|s| s.exchange.endpoint.has_peers()).value
    }

    /// Packets dropped because they prove nothing, fit no TP, or are none.
    pub(crate) fn dropped(&self) -> u64 {
        let reasons = [
            Counter::DropUnproven,
            Counter::DropUnknownTp,
            Counter::DropMalformed,
            Counter::DropIcrc,
        ];
        reasons.into_iter().map(|reason| self.core.tables.counts.value(reason)).sum()
    }

    /// Whether each node that is reached by packets has acknowledged everything, and is owed nothing.
    pub(crate) fn is_answered(&self) -> bool {
        self.shared.with_blocking(|shared| shared.exchange.is_answered()).value
    }

    /// Sends CLOSE to all packet peers of a device that ends ([`SoftwareDevice::poll_transmit`] gives them). It is
    /// not stepped any more.
    pub(crate) fn close_peers(&self) {
        let _ = self.shared.with_blocking(|shared| shared.exchange.close_peers());
    }

    /// Sends CLOSE to all packet peers of a device that threads still step.
    pub(crate) fn leave_peers(&self) {
        let close = |shared: &mut SharedPart| {
            shared.exchange.endpoint.close_all(urma_packet::CloseReason::Shutdown);
        };
        let _ = self.shared.with_blocking(close);
    }

    /// Announces to peers that the caller sleeps, unless a last check finds work. `true`: the caller may wait on its
    /// descriptors until a peer wakes it, or until [`SoftwareDevice::poll_deadline`].
    #[must_use]
    pub fn announce_sleep(&self, now: Nanos) -> bool {
        let Some(sleep) = &self.core.tables.sleep else { return false };
        let rest = sleep.announce_sleep(|| {
            let due = self.poll_deadline().is_some_and(|at| at <= now);
            // The holder of the shared part is awake and will check for itself.
            due || self
                .shared
                .try_with(|s| s.exchange.has_work())
                .is_none_or(|h| h.value || h.marked)
        });
        rest == SleepResult::Sleep
    }

    /// Announces to peers that the caller is awake; to be called as soon as the wait returns.
    pub fn announce_awake(&self) {
        if let Some(sleep) = &self.core.tables.sleep {
            sleep.announce_awake();
        }
    }
}
