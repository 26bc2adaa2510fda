//! A host that many threads share.
//!
//! Who waits for a result drives the host: it looks for datagrams itself, so no thread has to be woken in between. While
//! none waits, a thread of the host's own looks after it: others may still need a repeat, and the controller an answer.

use std::collections::{HashMap, HashSet};
use std::io;
use std::net::SocketAddr;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker as TaskWaker};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use inc::control::{HostCommand, HostReport};
use inc::edge::EdgeEnd;
use inc::host::{Host, HostMemberCfg, HostMemberError, MemberId, Reducers};
use inc::member::{Finished, OperationError, OperationId, SubmitError};
use inc::port::PortCounts;
use inc::slots::IncTime;
use inc::wire::Collective;

use crate::clock;
use crate::drive::{LinkAccess, LinkLoss, Sleeper, StationDriver, Waker, system_random};
use crate::udp::UdpCounts;

/// How long the host's own thread stays away while another one drives.
const STAY_AWAY: Duration = Duration::from_millis(1);

/// What the controller says of an abort is waited for so long, by who awaits a future.
const WORDS_WAIT: IncTime = 1_000_000_000;

/// Threads that sleep for a host look at it so often, whatever its timers said: operations that began since have timers, too.
const LOOK: Duration = Duration::from_millis(20);

/// What an operation ended with.
pub type OperationResult = Result<Arc<Vec<u8>>, OperationError>;

/// Takes what a member has to say to the controller. It is called with the host locked, and must not wait.
pub type OnReport = Box<dyn FnMut(HostReport) + Send>;

/// A host behind one address.
#[derive(Debug)]
pub struct LocalHost {
    shared: Arc<HostShared>,
    address: SocketAddr,
    waker: Waker,
    thread: Option<JoinHandle<()>>,
}

#[derive(Debug)]
struct HostShared {
    state: Mutex<HostState>,
    presence: Mutex<HostPresence>,
    /// The host is over.
    over: Condvar,
}

/// Who looks after the host.
#[derive(Debug, Default)]
struct HostPresence {
    /// Threads that wait for a result, and so drive.
    waiting: usize,
    /// Of threads that waited before.
    sleepers: Vec<Sleeper>,
    is_over: bool,
}

struct HostState {
    driver: StationDriver<Host>,
    members: HashMap<MemberId, OnReport>,
    finished: HashMap<OperationOf, Finished>,
    /// Who is to be woken when an operation is over.
    tasks: HashMap<OperationOf, TaskWaker>,
    /// Operations that were aborted before the controller said why, and until when its words are waited for.
    unexplained: HashMap<OperationOf, IncTime>,
    /// Operations that were refused because the communicator had been aborted, and have a number all the same.
    refused: u64,
    /// Operations under way whose result has no taker any more.
    abandoned: HashSet<OperationOf>,
    /// Who is to be woken when the host is not locked any more.
    due: Vec<TaskWaker>,
    /// Operations have ended since a waiting thread looked.
    has_new_results: bool,
}

type OperationOf = (MemberId, OperationId);

impl LocalHost {
    /// A host on an address of this machine; port 0 means any.
    ///
    /// # Errors
    /// Those of the system.
    pub fn bind(address: SocketAddr, access: LinkAccess) -> io::Result<Self> {
        let host = Host::new([system_random()?, system_random()?]);
        let driver = StationDriver::new(host, address, access)?;
        let (address, waker, sleeper) = (driver.address(), driver.waker(), driver.sleeper());
        let state = HostState {
            driver,
            members: HashMap::new(),
            finished: HashMap::new(),
            tasks: HashMap::new(),
            unexplained: HashMap::new(),
            refused: 0,
            abandoned: HashSet::new(),
            due: Vec::new(),
            has_new_results: false,
        };
        let shared = Arc::new(HostShared {
            state: Mutex::new(state),
            presence: Mutex::default(),
            over: Condvar::new(),
        });
        let of_thread = Arc::clone(&shared);
        let thread = thread::Builder::new()
            .name("inc-host".into())
            .spawn(move || of_thread.look_after(sleeper))?;
        Ok(Self { shared, address, waker, thread: Some(thread) })
    }

    /// Address and port of the host.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// A new member, and its end of the edge to a switch.
    ///
    /// # Errors
    /// [`HostMemberError`].
    pub fn join(
        &self,
        cfg: HostMemberCfg,
        on_report: OnReport,
    ) -> Result<(MemberId, EdgeEnd), HostMemberError> {
        let mut state = self.shared.lock();
        let now = state.driver.now();
        let (id, end) = state.driver.station.join(now, cfg)?;
        state.members.insert(id, on_report);
        Ok((id, end))
    }

    /// Loses received datagrams from now on.
    pub fn set_loss(&self, loss: LinkLoss) {
        self.shared.lock().driver.set_loss(loss);
    }

    /// Forgets a member, its operations and their results.
    pub fn leave(&self, id: MemberId) {
        let mut state = self.shared.lock();
        let now = state.driver.now();
        state.driver.station.leave(now, id);
        state.members.remove(&id);
        state.finished.retain(|(member, _), _| *member != id);
        state.unexplained.retain(|(member, _), _| *member != id);
        state.abandoned.retain(|(member, _)| *member != id);
        let tasks = state.tasks.extract_if(|(member, _), _| *member == id);
        let mut due: Vec<_> = tasks.map(|(_, task)| task).collect();
        due.append(&mut state.due);
        drop(state);
        due.into_iter().for_each(TaskWaker::wake);
    }

    /// Does what the controller says about a member's communicator.
    pub fn on_command(&self, id: MemberId, command: HostCommand) {
        let mut state = self.shared.lock();
        let now = state.driver.now();
        state.driver.station.on_command(now, id, command);
        state.turn();
        unlock(state);
        self.waker.wake();
    }

    /// Begins an operation.
    ///
    /// # Errors
    /// [`SubmitError`].
    pub fn submit(
        &self,
        id: MemberId,
        collective: Collective,
        input: &[u8],
    ) -> Result<OperationId, SubmitError> {
        let mut state = self.shared.lock();
        let now = state.driver.now();
        let operation = state.driver.station.submit(now, id, collective, input)?;
        state.turn();
        unlock(state);
        Ok(operation)
    }

    /// As [`Self::submit`], for who cannot wait: where the communicator has just been aborted, the operation ends with that when the
    /// controller has said why, soon at the latest.
    ///
    /// # Errors
    /// [`SubmitError`].
    pub fn submit_for_task(
        &self,
        id: MemberId,
        collective: Collective,
        input: &[u8],
    ) -> Result<OperationId, SubmitError> {
        let error = match self.submit(id, collective, input) {
            Err(SubmitError::Over(error @ OperationError::Aborted(_))) => error,
            other => return other,
        };
        let mut state = self.shared.lock();
        // Numbers of operations that were begun count from the other end.
        state.refused += 1;
        let operation = OperationId(u64::MAX - state.refused);
        state.finish(id, Finished { id: operation, result: Err(error) });
        Ok(operation)
    }

    /// Waits for the result of an operation, so long at most; `None`: it is under way. Each result is given once; of an
    /// operation that was never begun, or whose result was given, there is [`OperationError::Unknown`].
    ///
    /// # Errors
    /// [`OperationError`].
    #[must_use]
    pub fn wait(
        &self,
        id: MemberId,
        operation: OperationId,
        most: Duration,
    ) -> Option<OperationResult> {
        let mut presence = self.shared.presence();
        presence.waiting += 1;
        let mut sleeper = presence.sleepers.pop();
        drop(presence);
        let result = self.wait_driving((id, operation), most, &mut sleeper);
        let mut presence = self.shared.presence();
        presence.waiting -= 1;
        presence.sleepers.extend(sleeper);
        if presence.waiting != 0 {
            drop(presence);
            // One of the others drives from now on.
            self.waker.wake();
        }
        result
    }

    /// The result of an operation for a task, which is woken when there is one. As [`LocalHost::wait`], each is given once.
    pub fn poll_result(
        &self,
        id: MemberId,
        operation: OperationId,
        context: &Context<'_>,
    ) -> Poll<OperationResult> {
        let of = (id, operation);
        let mut state = self.shared.lock();
        state.turn();
        let is_explained = !state.unexplained.contains_key(&of);
        let finished = if is_explained { state.finished.remove(&of) } else { None };
        let is_known = !is_explained || state.driver.station.is_under_way(id, operation);
        let (poll, is_new) = match finished {
            Some(finished) => (Poll::Ready(finished.result), false),
            None if !is_known => (Poll::Ready(Err(OperationError::Unknown)), false),
            None => {
                let old = state.tasks.insert(of, context.waker().clone());
                (Poll::Pending, old.is_none())
            }
        };
        if poll.is_ready() {
            state.tasks.remove(&of);
        }
        unlock(state);
        if is_new {
            // The host's own thread may sleep for longer than this operation's timers allow.
            self.waker.wake();
        }
        poll
    }

    /// No one takes the result of an operation: it goes when it comes, and the operation itself goes on.
    pub fn forget(&self, id: MemberId, operation: OperationId) {
        let of = (id, operation);
        let mut state = self.shared.lock();
        state.tasks.remove(&of);
        state.unexplained.remove(&of);
        if state.finished.remove(&of).is_none() && state.driver.station.is_under_way(id, operation)
        {
            state.abandoned.insert(of);
        }
    }

    /// Results, tasks and operations without a taker that the host keeps now.
    #[must_use]
    pub fn kept(&self) -> usize {
        let state = self.shared.lock();
        let tasks = state.tasks.len() + state.unexplained.len();
        state.finished.len() + state.abandoned.len() + tasks
    }

    /// Chunks that a member sent again so far.
    #[must_use]
    pub fn repeated(&self, id: MemberId) -> u64 {
        self.shared.lock().driver.station.repeated(id)
    }

    /// What reduces for a member's communicator.
    #[must_use]
    pub fn reducers(&self, id: MemberId) -> Reducers {
        self.shared.lock().driver.station.reducers(id)
    }

    /// Why no switch of the topology reduces for a member or its communicator is over, as the controller says it.
    #[must_use]
    pub fn why(&self, id: MemberId) -> Option<String> {
        self.shared.lock().driver.station.why(id).map(str::to_owned)
    }

    /// What the host's edges and its socket did so far.
    #[must_use]
    pub fn counts(&self) -> (PortCounts, UdpCounts) {
        let state = self.shared.lock();
        (state.driver.station.port_counts(), state.driver.counts())
    }

    fn wait_driving(
        &self,
        (id, operation): OperationOf,
        most: Duration,
        sleeper: &mut Option<Sleeper>,
    ) -> Option<OperationResult> {
        let start = clock();
        loop {
            let mut state = self.shared.lock();
            let is_busy = state.turn();
            if std::mem::take(&mut state.has_new_results) && self.shared.presence().waiting > 1 {
                // They may be what other threads wait for.
                self.waker.wake();
            }
            if let Some(finished) = state.finished.remove(&(id, operation)) {
                state.unexplained.remove(&(id, operation));
                unlock(state);
                return Some(finished.result);
            }
            if !state.driver.station.is_under_way(id, operation) {
                unlock(state);
                return Some(Err(OperationError::Unknown));
            }
            if is_busy {
                unlock(state);
                sleeper.iter_mut().for_each(Sleeper::on_busy);
                continue;
            }
            let left = most.saturating_sub(start.elapsed());
            if left.is_zero() {
                unlock(state);
                return None;
            }
            let left = left.min(state.time_left());
            let sleeper = sleeper.get_or_insert_with(|| state.driver.sleeper());
            unlock(state);
            sleeper.on_idle(left);
        }
    }
}

impl Drop for LocalHost {
    fn drop(&mut self) {
        self.shared.presence().is_over = true;
        self.shared.over.notify_all();
        self.waker.wake();
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

impl HostShared {
    fn lock(&self) -> MutexGuard<'_, HostState> {
        // A panic of another thread leaves the host as it was between two packets.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn presence(&self) -> MutexGuard<'_, HostPresence> {
        self.presence.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether the host's own thread is to look after it now; `None`: the host is over. Another thread that drives is left
    /// alone.
    fn is_needed(&self) -> Option<bool> {
        let presence = self.presence();
        if !presence.is_over && presence.waiting != 0 {
            // It is not woken when the last one has its result: soon there may be another.
            drop(self.over.wait_timeout(presence, STAY_AWAY));
            return Some(false);
        }
        (!presence.is_over).then_some(true)
    }

    /// The host's own thread.
    fn look_after(&self, mut sleeper: Sleeper) {
        while let Some(is_needed) = self.is_needed() {
            if !is_needed {
                continue;
            }
            let mut state = self.lock();
            let is_busy = state.turn();
            let left = state.time_left();
            unlock(state);
            if is_busy {
                sleeper.on_busy();
            } else {
                sleeper.on_idle(left);
            }
        }
    }
}

/// Gives the host free, and wakes those that wait for what was found: an executor may call the host at once.
fn unlock(mut state: MutexGuard<'_, HostState>) {
    let due = std::mem::take(&mut state.due);
    drop(state);
    due.into_iter().for_each(TaskWaker::wake);
}

impl HostState {
    /// One look of the driver; reports and results go where they belong.
    fn turn(&mut self) -> bool {
        let is_busy = self.driver.turn();
        while let Some((id, report)) = self.driver.station.poll_report() {
            if let Some(on_report) = self.members.get_mut(&id) {
                on_report(report);
            }
        }
        while let Some((id, finished)) = self.poll_finished() {
            if !self.abandoned.remove(&(id, finished.id)) {
                self.finish(id, finished);
                self.has_new_results = true;
            }
        }
        if !self.unexplained.is_empty() {
            let (now, station) = (self.driver.now(), &self.driver.station);
            let is_over = |of: &OperationOf, until: &mut IncTime| {
                station.why(of.0).is_some() || *until <= now
            };
            let explained = self.unexplained.extract_if(is_over);
            let tasks = &mut self.tasks;
            self.due.extend(explained.filter_map(|(of, _)| tasks.remove(&of)));
        }
        is_busy
    }

    fn poll_finished(&mut self) -> Option<(MemberId, Finished)> {
        let station = &mut self.driver.station;
        self.members.keys().find_map(|id| Some((*id, station.poll_finished(*id)?)))
    }

    /// Keeps the result of an operation for its taker.
    fn finish(&mut self, id: MemberId, finished: Finished) {
        let of = (id, finished.id);
        let is_abort = matches!(finished.result, Err(OperationError::Aborted(_)));
        if is_abort && self.driver.station.why(id).is_none() {
            // A switch's packet is here before the controller's words, which name ranks.
            let until = self.driver.now().saturating_add(WORDS_WAIT);
            self.unexplained.insert(of, until);
        } else {
            self.due.extend(self.tasks.remove(&of));
        }
        self.finished.insert(of, finished);
    }

    /// Time until the host is to be looked at, at the latest.
    fn time_left(&self) -> Duration {
        let left = self.driver.time_left().min(LOOK);
        let Some(&until) = self.unexplained.values().min() else { return left };
        left.min(Duration::from_nanos(until.saturating_sub(self.driver.now())))
    }
}

impl std::fmt::Debug for HostState {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("HostState").field("driver", &self.driver).finish_non_exhaustive()
    }
}
