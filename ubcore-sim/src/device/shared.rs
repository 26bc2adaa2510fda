//! The part of the device that one thread at a time works on: commands, objects, the exchange.
//!
//! *Owns*: what commands make; what waits for its answer. *Takes*: the command ring, time.
//! *Gives*: answers. *Must not*: be waited for by a poster.

use std::collections::BTreeMap;

use udma_abi::Nanos;

use super::{Device, DeviceCfg, running::RunningTime};
use crate::command::{ring::CommandRing, waiting::Waiting};
use crate::context::objects::Objects;
use crate::exchange::Exchange;
use crate::ports::Deadline;

/// Everything behind the device's one `Serial`.
#[derive(Debug)]
pub(crate) struct Shared {
    pub(crate) exchange: Exchange,
    pub(crate) objects: Objects,
    pub(crate) ring: Option<CommandRing>,
    /// Commands not answered yet, by sequence number.
    pub(crate) waiting: Vec<(u32, Waiting)>,
    /// JFCs whose events wait for at most a period; when that is over.
    pub(crate) moderated: BTreeMap<u32, Option<Nanos>>,
    /// Of all timers below.
    pub(crate) time: RunningTime,
}

impl Shared {
    pub(crate) fn new(cfg: &DeviceCfg) -> Self {
        Self {
            exchange: Exchange::new(cfg),
            objects: Objects::default(),
            ring: None,
            waiting: Vec::new(),
            moderated: BTreeMap::new(),
            time: RunningTime::default(),
        }
    }

    /// One bounded step.
    pub(crate) fn step(&mut self, dev: &Device, now: Nanos) -> bool {
        let mut busy = self.step_commands(dev, now);
        while let Some((id, state)) = dev.next_stopped() {
            self.exchange.set_recv_state(dev, id, state);
            busy = true;
        }
        if !self.moderated.is_empty() {
            self.step_moderated(dev, now);
        }
        busy |= self.exchange.step(dev, now);
        if !self.waiting.is_empty() {
            busy |= self.step_waiting(dev, now);
        }
        busy
    }

    pub(crate) fn poll_deadline(&self) -> Deadline {
        if self.waiting.is_empty() && self.moderated.is_empty() {
            return self.exchange.poll_deadline();
        }
        // A waiting command is looked at in every step; a drain is over within its patience.
        let waiting = self.waiting.iter().filter_map(|(_, w)| w.deadline()).min();
        let moderated = self.moderated.values().flatten().min().copied();
        [waiting, moderated, self.exchange.poll_deadline()].into_iter().flatten().min()
    }

    /// Fires armed JFCs whose period is over.
    fn step_moderated(&mut self, dev: &Device, now: Nanos) {
        for (jfcn, due) in &mut self.moderated {
            let Some(jfc) = dev.jfcs().get(*jfcn) else { continue };
            *due = match (jfc.period_us(), *due) {
                (None, _) => None,
                (Some(us), None) => Some(now.saturating_add(u64::from(us) * 1000)),
                (Some(_), Some(at)) if at <= now => {
                    jfc.on_period();
                    None
                }
                (Some(_), waits) => waits,
            };
        }
    }
}
