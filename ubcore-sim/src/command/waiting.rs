//! Commands that are answered by a later step (connects, drains, destructions), and timed events.
//!
//! *Owns*: when each is checked. *Takes*: steps. *Gives*: answers, events of moderated JFCs. *Must not*: wait.

use std::sync::Arc;

use udma_abi::{CmdStatus, Nanos, cmd::RSP_WORDS};

use super::answer::{AnswerWords, CmdAnswer, PendingCommand};
use super::state::{Around, Commands};
use crate::context::function::QuotaKind;
use crate::context::tables::Tables;
use crate::engine::core::DeviceCore;
use crate::exchange::{Connecting, Exchange};
use crate::ports::Deadline;

impl Commands {
    /// Whether a command or a moderated JFC has to be checked: an idle step calls nothing else here.
    pub(crate) fn is_waiting(&self) -> bool {
        let has_waiting = self.sources.iter().any(|source| !source.waiting.is_empty());
        has_waiting || !self.moderated.is_empty()
    }

    /// Checks every waiting command once.
    pub(crate) fn step_waiting(
        &mut self,
        exchange: &mut Exchange,
        core: &DeviceCore,
        now: Nanos,
    ) -> bool {
        let mut busy = false;
        for source in 0..self.sources.len() {
            let function = Arc::clone(&self.sources[source].function);
            let at = &mut Around { core, exchange, now, function };
            busy |= self.step_waiting_of(at, source);
        }
        busy
    }

    fn step_waiting_of(&mut self, at: &mut Around<'_>, source: usize) -> bool {
        let mut busy = false;
        let mut index = 0;
        while index < self.sources[source].waiting.len() {
            let (sequence, waiting) = self.sources[source].waiting[index].clone();
            let answer = self.look_at(at, &waiting);
            let source = &mut self.sources[source];
            match answer {
                CmdAnswer::Now(status, results) => {
                    source.waiting.remove(index);
                    source.respond(sequence, status, results);
                    busy = true;
                }
                CmdAnswer::Later(waiting) => {
                    source.waiting[index].1 = waiting;
                    index += 1;
                }
            }
        }
        busy
    }

    fn look_at(&mut self, at: &mut Around<'_>, waiting: &PendingCommand) -> CmdAnswer {
        let later = || CmdAnswer::Later(waiting.clone());
        match waiting {
            PendingCommand::Connect { eid, mode } => {
                match at.exchange.connect(at.core, at.now, *eid, *mode) {
                    Connecting::Pending => later(),
                    Connecting::Failed(status) => {
                        at.function.release(QuotaKind::Paths, 1);
                        CmdAnswer::status(status)
                    }
                    Connecting::Ready { tpn, path } => {
                        let mut results: AnswerWords = [0; RSP_WORDS - 1];
                        results[0] = u64::from(tpn);
                        if let Some(source) = self.source_of(at.function.id) {
                            let users = source.paths.entry(tpn).or_default();
                            *users += 1;
                            if *users > 1 {
                                // It counts once.
                                at.function.release(QuotaKind::Paths, 1);
                            }
                        }
                        results[1] = path as u64;
                        CmdAnswer::Now(CmdStatus::Ok, results)
                    }
                }
            }
            PendingCommand::Drain { segment, until } => {
                self.drained(at, segment, *until).unwrap_or_else(later)
            }
            PendingCommand::Destroy(leaving) => self.destroyed(at, *leaving),
        }
    }

    /// When a command has to be checked, at the latest. One that connects is checked in every step.
    pub(crate) fn poll_deadline(&self) -> Deadline {
        if !self.is_waiting() {
            return None;
        }
        let waiting = self.sources.iter().flat_map(|source| &source.waiting);
        let waiting = waiting.filter_map(|(_, waiting)| waiting.deadline()).min();
        let moderated = self.moderated.values().flatten().min().copied();
        [waiting, moderated].into_iter().flatten().min()
    }

    /// Fires armed JFCs whose period is over.
    pub(crate) fn step_moderated(&mut self, tables: &Tables, now: Nanos) {
        for (jfcn, due) in &mut self.moderated {
            let Some(jfc) = tables.jfcs.get(*jfcn) else { continue };
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
