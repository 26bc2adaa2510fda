//! JFC: the queue that completions come by. JFCE: the channel that completion events come by.
//!
//! *Owns*: the handle of a JFC and its two halves: control (shared) and polling (`&mut`), which do not wait; the count of
//! events that were taken and not acknowledged.

use std::{
    collections::BTreeMap,
    os::fd::BorrowedFd,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use crate::{
    Arm, Completion, Context, JfcCfg, Refused, Status,
    context::ContextShared,
    ops::{CompletingQueue, CompletionQueue, DoneLook, JfcControl, JfceControl},
    rules::{self, ensure, refuse, unused},
};

/// Jetty for completion: a completion queue.
#[derive(Debug)]
pub struct Jfc {
    shared: Arc<JfcShared>,
    queue: Box<dyn CompletionQueue>,
    sender: CompletingQueue,
    cfg: JfcCfg,
}

/// What the queues that complete here hold on to.
#[derive(Debug)]
pub(crate) struct JfcShared {
    pub(crate) id: u32,
    control: Arc<dyn JfcControl>,
    jfce: Option<Arc<JfceShared>>,
    pub(crate) home: Arc<ContextShared>,
}

impl Context {
    /// A completion queue; its events go to `jfce`.
    ///
    /// # Errors
    /// `Invalid`: depth not in 1 to `max_jfc_depth`, no such event vector. `Unsupported`: a flag
    /// without its feature. `NoMemory`: the device has no room.
    pub fn create_jfc(&self, cfg: &JfcCfg, jfce: Option<&Jfce>) -> Result<Jfc, Status> {
        let home = Arc::clone(self.shared());
        rules::jfc(&home.attr, cfg)?;
        let jfce = jfce.map(|jfce| Arc::clone(jfce.shared()));
        let parts = home.ops.create_jfc(cfg, jfce.as_ref().map(|jfce| &jfce.control))?;
        if let Some(jfce) = &jfce {
            jfce.begin(parts.id);
        }
        let shared = JfcShared { id: parts.id, control: parts.control, jfce, home };
        Ok(Jfc {
            queue: parts.queue,
            sender: CompletingQueue::default(),
            cfg: *cfg,
            shared: Arc::new(shared),
        })
    }
}

impl Jfc {
    /// Number of the JFC on its device.
    #[must_use]
    pub fn id(&self) -> u32 {
        self.shared.id
    }

    /// As it was created.
    #[must_use]
    pub fn cfg(&self) -> &JfcCfg {
        &self.cfg
    }

    /// Fills the front of `out` with what has completed; returns how many. Never waits.
    ///
    /// # Errors
    /// `NoDevice`: the device failed.
    #[inline]
    pub fn poll(&mut self, out: &mut [Completion]) -> Result<usize, Status> {
        self.queue.poll(out)
    }

    /// Takes the oldest completion if it is that of a successful send request, or says that the queue is empty. Anything
    /// else is for [`Jfc::poll`].
    #[inline(always)]
    pub fn take_done(&mut self) -> DoneLook {
        self.queue.take_done(&mut self.sender)
    }

    /// The queue of the completion that [`Jfc::take_done`] took last.
    #[inline(always)]
    #[must_use]
    pub fn sender(&self) -> &CompletingQueue {
        &self.sender
    }

    /// The next completion, if there is one.
    ///
    /// # Errors
    /// `NoDevice`: the device failed.
    #[inline]
    pub fn poll_one(&mut self) -> Result<Option<Completion>, Status> {
        let mut one = [Completion::default()];
        Ok((self.queue.poll(&mut one)? == 1).then_some(one[0]))
    }

    /// What has completed, at most as many as the queue is deep, one by one. Never waits.
    #[inline]
    pub fn drain(&mut self) -> Drain<'_> {
        Drain::new(self)
    }

    /// Asks for one event; with matching completions waiting it fires at once.
    ///
    /// # Errors
    /// `Invalid`: the JFC has no JFCE.
    pub fn arm(&mut self, what: Arm) -> Result<(), Status> {
        ensure(
            self.shared.jfce.is_some(),
            format_args!("the JFC was created without a JFCE, so it raises no events"),
        )?;
        self.queue.arm(what)
    }

    /// An event only after `count` completions or `period_us` microseconds; 0 and 0 turn it off.
    ///
    /// # Errors
    /// The device failed.
    pub fn moderate(&self, count: u16, period_us: u16) -> Result<(), Status> {
        self.shared.control.moderate(count, period_us)
    }

    /// Acknowledges `count` events that [`Jfce::wait`] gave for this JFC.
    ///
    /// # Errors
    /// `Invalid`: fewer are open.
    pub fn ack_events(&self, count: u32) -> Result<(), Status> {
        match &self.shared.jfce {
            Some(jfce) if jfce.ack(self.id(), count) => Ok(()),
            _ => Err(refuse(
                Status::Invalid,
                format_args!("{count} events are acknowledged, but fewer are open"),
            )),
        }
    }

    /// Deletes; completions not polled are lost.
    ///
    /// # Errors
    /// `Again`: a queue completes here, or an event is not acknowledged.
    pub fn delete(self) -> Result<(), Refused<Self>> {
        match self.try_delete() {
            Ok(()) => Ok(()),
            Err(status) => Err(Refused::new(self, status)),
        }
    }

    fn try_delete(&self) -> Result<(), Status> {
        unused(&self.shared, Status::Again, "queues complete here")?;
        let jfce = self.shared.jfce.as_ref();
        let open = jfce.map_or(0, |jfce| jfce.unacked_of(self.id()));
        if open != 0 {
            return Err(refuse(
                Status::Again,
                format_args!(
                    "{open} events of the JFC are not acknowledged; acknowledge them first"
                ),
            ));
        }
        self.shared.control.delete()
    }

    pub(crate) fn shared(&self) -> &Arc<JfcShared> {
        &self.shared
    }
}

/// What [`Jfc::drain`] gives: what has completed, at most as many as the JFC is deep.
///
/// It ends at the first empty poll, and after an error. Each step polls once for one completion;
/// `for_each`, `fold`, `count` and other methods that consume the whole iterator poll in batches.
#[derive(Debug)]
#[must_use = "an iterator polls nothing until it is asked"]
pub struct Drain<'a> {
    jfc: &'a mut Jfc,
    left: usize,
}

impl<'a> Drain<'a> {
    pub(crate) fn new(jfc: &'a mut Jfc) -> Self {
        let left = usize::try_from(jfc.cfg().depth).unwrap_or(usize::MAX);
        Self { jfc, left }
    }
}

impl Iterator for Drain<'_> {
    type Item = Result<Completion, Status>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.left == 0 {
            return None;
        }
        let polled = self.jfc.poll_one();
        self.left = if matches!(polled, Ok(Some(_))) { self.left - 1 } else { 0 };
        polled.transpose()
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        // With the error that may follow the last completion.
        (0, self.left.checked_add(1))
    }

    fn fold<B, F: FnMut(B, Self::Item) -> B>(self, init: B, mut give: F) -> B {
        let (mut sum, mut left) = (init, self.left);
        let mut batch = [Completion::default(); BATCH];
        while left > 0 {
            let room = left.min(BATCH);
            match self.jfc.poll(&mut batch[..room]) {
                Ok(0) => break,
                Ok(count) => {
                    let come = batch.iter().take(count);
                    sum = come.fold(sum, |sum, completion| give(sum, Ok(*completion)));
                    left -= count.min(left);
                }
                Err(status) => return give(sum, Err(status)),
            }
        }
        sum
    }
}

impl std::iter::FusedIterator for Drain<'_> {}

/// Completions per poll; of some 100 bytes each, on the stack.
const BATCH: usize = 16;

/// Jetty for completion events: an event channel. One thread may wait while another deletes it.
#[derive(Debug)]
pub struct Jfce {
    shared: Arc<JfceShared>,
}

#[derive(Debug)]
pub(crate) struct JfceShared {
    pub(crate) control: Arc<dyn JfceControl>,
    /// Events taken and not acknowledged, by JFC number.
    unacked: Mutex<BTreeMap<u32, u32>>,
    _home: Arc<ContextShared>,
}

impl JfceShared {
    fn unacked(&self) -> MutexGuard<'_, BTreeMap<u32, u32>> {
        self.unacked.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn unacked_of(&self, jfc: u32) -> u32 {
        self.unacked().get(&jfc).copied().unwrap_or(0)
    }

    /// Takes `count` events of `jfc` as done; `false` when fewer are open.
    pub(crate) fn ack(&self, jfc: u32, count: u32) -> bool {
        let mut unacked = self.unacked();
        let open = unacked.get(&jfc).copied().unwrap_or(0);
        let Some(left) = open.checked_sub(count) else { return false };
        unacked.insert(jfc, left);
        true
    }

    /// Drops the count of unacknowledged events: the number now belongs to a new JFC.
    pub(crate) fn begin(&self, jfc: u32) {
        self.unacked().remove(&jfc);
    }
}

impl Context {
    /// An event channel.
    ///
    /// # Errors
    /// `NoMemory`: no event queue or descriptor is left.
    pub fn create_jfce(&self) -> Result<Jfce, Status> {
        let home = Arc::clone(self.shared());
        let control = home.ops.create_jfce()?;
        let unacked = Mutex::new(BTreeMap::new());
        Ok(Jfce { shared: Arc::new(JfceShared { control, unacked, _home: home }) })
    }
}

impl Jfce {
    /// Readable exactly while an event is unconsumed; for poll and epoll.
    #[must_use]
    pub fn fd(&self) -> BorrowedFd<'_> {
        self.shared.control.fd()
    }

    /// Takes events: the front of `out` gets the numbers of the JFCs ([`crate::Jfc::id`]).
    /// Waits at most `timeout` for the first one; `Some(ZERO)` looks, `None` waits until the
    /// channel is deleted or the device fails. A signal ends the wait with what is ready. Each
    /// event is to be acknowledged with [`crate::Jfc::ack_events`].
    ///
    /// # Errors
    /// The channel was deleted; the device failed.
    pub fn wait(&self, out: &mut [u32], timeout: Option<Duration>) -> Result<usize, Status> {
        let count = self.shared.control.wait(out, timeout)?;
        let mut unacked = self.shared.unacked();
        for jfc in out.iter().take(count) {
            *unacked.entry(*jfc).or_default() += 1;
        }
        Ok(count)
    }

    /// Deletes the channel; waits on it return.
    ///
    /// # Errors
    /// `Fail`: a JFC uses it.
    pub fn delete(&self) -> Result<(), Status> {
        unused(&self.shared, Status::Fail, "JFCs use the JFCE")?;
        self.shared.control.delete()
    }

    pub(crate) fn shared(&self) -> &Arc<JfceShared> {
        &self.shared
    }
}
