//! The end of everything that a function has, when it is reset or its driver dies.
//!
//! *Owns*: the order of it. *Takes*: a function. *Gives*: its numbers back, errors to the peers of its queues. *Must
//! not*: wait for the driver, which may be gone; touch what other functions have.

use std::sync::Arc;

use udma_abi::{Nanos, cmd::QueueState};

use super::state::{Around, Commands};
use crate::context::function::DeviceFunction;
use crate::context::objects::Objects;
use crate::engine::core::DeviceCore;
use crate::exchange::Exchange;

impl Commands {
    /// Destroys all objects of a function. Requests of others that are on their way to it end with an error when they
    /// are next handled; its own end without completions.
    pub(crate) fn clear(
        &mut self,
        (exchange, core): (&mut Exchange, &DeviceCore),
        now: Nanos,
        function: &Arc<DeviceFunction>,
    ) {
        // A reset does not wait: a late copy goes to pages that are no longer read.
        let at = &mut Around { core, exchange, now, function: Arc::clone(function) };
        if let Some(source) = self.source_of(function.id) {
            // Commands are no longer answered.
            source.ring = None;
            source.waiting.clear();
        }
        self.clear_queues(at);
        self.clear_segments(at);
        for id in self.objects.ids.all_of(function.id) {
            self.forget_group(at, id);
        }
        for jfcn in self.objects.jfcs.all_of(function.id) {
            if let Some(jfc) = core.tables.jfcs.get(jfcn) {
                self.forget_jfc(&core.tables, jfc);
            }
        }
        for eqn in self.objects.eqs.all_of(function.id) {
            self.forget_eq(&core.tables, eqn);
        }
        let paths = self.source_of(function.id).map(|source| std::mem::take(&mut source.paths));
        for (tpn, users) in paths.unwrap_or_default() {
            for _ in 0..users {
                at.exchange.disconnect(core, now, tpn);
            }
        }
        function.restart();
        if !self.is_shared() {
            // Numbers start anew.
            self.objects = Objects::default();
        }
    }

    /// Whether there is a function besides this one.
    pub(crate) fn is_shared(&self) -> bool {
        self.sources.len() > 1
    }

    fn clear_queues(&mut self, at: &mut Around<'_>) {
        let owner = at.function.id;
        let of_it = self.objects.queues.iter().filter(|(_, record)| record.owner == owner);
        let ids: Vec<u32> = of_it.map(|(id, _)| *id).collect();
        for id in ids {
            let Some(queue) = at.core.queues.get(id) else { continue };
            queue.sends.end();
            let _ = queue.send.with_blocking(|place| *place.engine() = None);
            // Partly received messages end for their senders; whole ones find no target from now on.
            at.exchange.set_recv_state(at.core, id, QueueState::Error);
            self.forget_queue(at, queue);
        }
    }

    fn clear_segments(&mut self, at: &mut Around<'_>) {
        let tids = self.objects.tids.all_of(at.function.id);
        let kill = |tid: &u32| at.core.tables.segments.kill(tid << 8);
        let ended: Vec<_> = tids.iter().filter_map(kill).collect();
        self.quiesce(at);
        for segment in ended {
            self.forget_segment(at, &segment);
        }
        for tid in tids {
            self.objects.tids.give_back(tid);
        }
    }
}
