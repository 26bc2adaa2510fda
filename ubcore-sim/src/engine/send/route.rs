//! How a request is executed: directly, by the shared part, or not yet.
//!
//! *Owns*: order and fence rules, the paths that a queue uses. *Takes*: the request at the front. *Gives*: its next
//! step. *Must not*: let a request overtake one that it must follow.

use udma_abi::{
    CqeStatus, Opcode, Sqe,
    cmd::Mode,
    sqe::{SqeFlags, SqeTargetKind},
};

use super::{FrontResult, SendEngine, Visit};
use crate::context::link::Reach;
use crate::engine::direct::{By, Job, Progress, shown_to};
use crate::engine::gather::{Segments, Store};
use crate::engine::mail::Handed;
use crate::engine::remote::PathState;
use crate::limits::MESSAGE_MAX;

/// The outstanding requests of a path have different targets.
pub(super) const MIXED: u32 = u32::MAX;

impl SendEngine {
    /// Makes the next step of the request at the front.
    #[inline]
    pub(super) fn execute_front(&mut self, visit: &Visit<'_>, budget: &mut usize) -> FrontResult {
        if !self.under_way {
            return FrontResult::Wait;
        }
        if self.sqe.opcode == Opcode::Nop {
            return FrontResult::End(CqeStatus::Success, 0);
        }
        let Some(index) = self.path_state_of(visit, self.sqe.tpn) else {
            return FrontResult::End(CqeStatus::LocOperation, 0);
        };
        if !self.current.checked {
            if let Err(status) = self.check(visit, index) {
                return FrontResult::End(status, 0);
            }
            self.current.checked = true;
        }
        if !self.path_states[index].link.is_alive() {
            return FrontResult::End(CqeStatus::AckTimeout, 0);
        }
        let is_fenced =
            self.sqe.flags.contains(SqeFlags::FENCE) && !visit.tables.faults.fence_ignored();
        if is_fenced && self.retire.fence_pending() {
            return FrontResult::Wait;
        }
        if self.sqe.opcode.is_send() {
            return self.hand_over(index, Placed::No);
        }
        self.try_direct(visit, index, budget)
    }

    #[inline]
    fn try_direct(&mut self, visit: &Visit<'_>, index: usize, budget: &mut usize) -> FrontResult {
        let path_state = &mut self.path_states[index];
        let direct = !matches!(path_state.link.reach, Reach::Messages | Reach::Standard);
        if direct && path_state.outstanding != 0 && self.current.cursor.life == 0 {
            // Earlier requests of this path may not be placed yet. A request that follows them in the same sequence
            // keeps its order there or waits; one of another sequence may overtake them.
            let same = path_state.target == key(&self.sqe);
            if same && self.sqe.opcode == Opcode::WriteImm {
                return self.hand_over(index, Placed::No);
            }
            let strong = self.sqe.flags.contains(SqeFlags::ORDER_STRONG);
            if same || strong || path_state.target == MIXED {
                return FrontResult::Wait;
            }
        }
        let unproven = self.sqe.opcode == Opcode::WriteImm
            && !self.path_states[index].admission.is_proven(shown_to(&self.sqe));
        if unproven {
            return self.hand_over(index, Placed::No);
        }
        if self.sqe.opcode == Opcode::FlushDma {
            let done = FrontResult::End(CqeStatus::Success, 0);
            return if direct { done } else { self.hand_over(index, Placed::No) };
        }
        if visit.tables.faults.is_planted()
            && let Some(step) = self.defer(visit, index)
        {
            return step;
        }
        let path_state = &mut self.path_states[index];
        let job = Job {
            sqe: &self.sqe,
            words: &self.words,
            local: &self.current.local,
            len: self.current.len,
            segments: Segments { cache: &mut self.segments, table: &visit.tables.segments },
            chunk: visit.tables.cfg.direct_chunk,
            cache: visit.tables.cfg.cache_bytes,
            faults: visit.tables.faults,
        };
        let mut cursor = self.current.cursor;
        let progress = job.execute(path_state, &mut cursor, budget);
        match progress {
            Ok(Progress::Done(bytes)) => {
                match cursor.by {
                    By::Memory | By::PastCaches => visit.queue.fast.direct(u64::from(bytes)),
                    By::Kernel => visit.queue.fast.fetched(u64::from(bytes)),
                }
                if self.sqe.opcode == Opcode::WriteImm {
                    return self.hand_over(index, Placed::Yes);
                }
                FrontResult::End(CqeStatus::Success, bytes)
            }
            Ok(Progress::More) => {
                self.current.cursor = cursor;
                FrontResult::More
            }
            Ok(Progress::NotDirect) => self.hand_over(index, Placed::No),
            Err(status) => FrontResult::End(status, 0),
        }
    }

    fn hand_over(&mut self, index: usize, placed: Placed) -> FrontResult {
        let path_state = &mut self.path_states[index];
        let key = key(&self.sqe);
        let strong = self.sqe.flags.contains(SqeFlags::ORDER_STRONG);
        if strong && path_state.outstanding != 0 && path_state.target != key {
            return FrontResult::Wait;
        }
        let seq = self.retire.next_seq();
        let handed = Handed {
            seq,
            words: self.words,
            // Lengths were checked against MESSAGE_MAX.
            len: u32::try_from(self.current.len).unwrap_or(u32::MAX),
            placed: placed == Placed::Yes,
        };
        let outstanding: u32 = self.path_states.iter().map(|s| s.outstanding).sum();
        let room = (outstanding as usize) < crate::engine::mail::HANDED_OVER_MAX;
        if !room || self.mail.handed.push(handed).is_err() {
            // A payload that is placed already is simply placed once more at the next step.
            return FrontResult::Wait;
        }
        let path_state = &mut self.path_states[index];
        if self.sqe.opcode.consumes_receive() {
            path_state.admission.on_asked(seq, shown_to(&self.sqe));
        }
        path_state.target =
            if path_state.outstanding == 0 || path_state.target == key { key } else { MIXED };
        path_state.outstanding += 1;
        FrontResult::Handed { tpn: path_state.link.tpn }
    }

    /// Index of the state of the path `tpn`.
    #[inline]
    fn path_state_of(&mut self, visit: &Visit<'_>, tpn: u32) -> Option<usize> {
        self.path_states.index_of(tpn).or_else(|| self.add_path_state(visit, tpn))
    }

    #[cold]
    fn add_path_state(&mut self, visit: &Visit<'_>, tpn: u32) -> Option<usize> {
        let link = visit.tables.links.find(tpn)?;
        let guard = self.guesses.clone().map(|guesses| (self.segments.owner(), guesses));
        Some(self.path_states.add(PathState::new(link, self.slot).guarded(guard)))
    }

    /// Makes all checks that need no peer, before anything starts.
    #[inline]
    fn check(&mut self, visit: &Visit<'_>, index: usize) -> Result<(), CqeStatus> {
        let sqe = &self.sqe;
        let link = &self.path_states[index].link;
        let is_standard = matches!(link.reach, Reach::Standard);
        if link.unreliable != (self.mode == Mode::Um) || is_standard && self.mode != Mode::Rc {
            return Err(CqeStatus::LocOperation);
        }
        match self.mode {
            Mode::Rm => {}
            Mode::Rc => self.check_bound()?,
            Mode::Um => check_um(sqe, self.current.len, u64::from(visit.tables.cfg.mtu))?,
        }
        let atomic = sqe.opcode.is_atomic();
        if self.current.len > MESSAGE_MAX || (atomic && !matches!(self.current.len, 4 | 8)) {
            return Err(CqeStatus::LocLen);
        }
        let store = if sqe.opcode.fetches() { Store::Yes } else { Store::No };
        let mut segments = Segments { cache: &mut self.segments, table: &visit.tables.segments };
        self.current.local.check(&self.words, &mut segments, store)
    }

    fn check_bound(&self) -> Result<(), CqeStatus> {
        let sqe = &self.sqe;
        let (tpn, remote) = self.bound.ok_or(CqeStatus::LocOperation)?;
        let names = sqe.opcode.consumes_receive();
        let other = names && (sqe.target_id != remote || sqe.target_kind != SqeTargetKind::Jetty);
        if sqe.tpn != tpn || other { Err(CqeStatus::LocOperation) } else { Ok(()) }
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Placed {
    Yes,
    No,
}

/// UM carries only SENDs of one packet.
fn check_um(sqe: &Sqe, len: u64, mtu: u64) -> Result<(), CqeStatus> {
    if !matches!(sqe.opcode, Opcode::Send | Opcode::SendImm) {
        return Err(CqeStatus::UnsupportedOpcode);
    }
    if len > mtu { Err(CqeStatus::LocLen) } else { Ok(()) }
}

/// Key of the sequence that a request belongs to: that of its target.
fn key(sqe: &Sqe) -> u32 {
    target_key(sqe.target_kind, sqe.target_id)
}

/// Key of the sequence for a target given by kind and id.
pub(super) const fn target_key(kind: SqeTargetKind, id: u32) -> u32 {
    (kind as u32) << 20 | id
}
