//! The engine of one queue number, behind the grant or the ping-pong of its newest requests.
//!
//! *Owns*: which of the three carries the next request. *Takes*: requests, in the order of the queue. *Gives*: what the
//! one in charge answers. *Must not*: let any request reach the engine while a grant or a ping-pong stands.

use udma_abi::{MovedWord, sqe::BLOCK_WORDS};

use super::grant::{FastPathGrant, MovedPlace, Unreported};
use super::known::{MovedEntry, WORD_LEN};
use super::ping_pong::PingPongSends;
use super::send::{SaidTo, SendEngine, StepOutcome, Visit};
use super::short::ShortBody;
use crate::context::queue::Queue;

/// A grant counts references, which few requests alike are not worth.
const ROW: u32 = 4;
/// Blocks under one grant after which its queue gets a lease: what takes the lease back costs as much as some hundred
/// exchanges.
const LEASE_AFTER: u32 = 256;
/// A lease that was taken back doubles that, at most so often.
const LEASE_DOUBLINGS: u32 = 8;

/// The engine of a queue number, if it has one, and the grant or the ping-pong of its newest requests.
#[derive(Debug, Default)]
pub(crate) struct EnginePlace {
    grant: Option<FastPathGrant>,
    ping_pong: Option<Box<(PingPongSends, SaidTo)>>,
    /// Requests in a row that a grant would have covered.
    in_row: u32,
    engine: Option<Box<SendEngine>>,
}

/// When a queue that was found is leased.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Leases {
    /// After many requests in a row, twice as many each time that the lease was taken.
    Seldom,
    /// After few requests in a row.
    Soon,
    /// Each entry is an exchange.
    Never,
}

impl EnginePlace {
    /// The engine, for anything else than a request under the grant, which ends.
    #[inline(always)]
    pub(crate) fn engine(&mut self) -> &mut Option<Box<SendEngine>> {
        self.in_row = 0;
        if self.grant.is_some() {
            self.end_grant();
        }
        if self.ping_pong.is_some() {
            self.end_ping_pong();
        }
        &mut self.engine
    }

    #[cold]
    #[inline(never)]
    fn end_ping_pong(&mut self) {
        if let (Some(ping_pong), Some(engine)) = (self.ping_pong.take(), &mut self.engine) {
            engine.take_back(ping_pong.0.said(), ping_pong.1);
        }
    }

    /// Begins a ping-pong with the direct entry `block`, which is next. Returns the number of that request.
    #[cold]
    pub(crate) fn begin_ping_pong(
        &mut self,
        visit: &Visit<'_>,
        block: &[u64; BLOCK_WORDS],
    ) -> Option<u32> {
        let (sends, to, seq) = self.engine().as_mut()?.begin_ping_pong(visit, block)?;
        self.ping_pong = Some(Box::new((sends, to)));
        Some(seq)
    }

    /// Says the message of a direct entry in the ping-pong, if there is one ([`PingPongSends::send_piggybacked`]).
    #[inline(always)]
    pub(crate) fn send_piggybacked(
        &mut self,
        queue: &Queue,
        block: &[u64; BLOCK_WORDS],
        push: impl FnOnce(&ShortBody<'_>) -> bool,
    ) -> Option<()> {
        self.ping_pong.as_mut()?.0.send_piggybacked(queue, block, push)
    }

    /// The open message of the ping-pong was acknowledged; `false`: there is none.
    #[inline(always)]
    pub(crate) fn on_answered(&mut self, queue: &Queue) -> bool {
        self.ping_pong.as_mut().is_some_and(|ping_pong| ping_pong.0.on_answered(queue))
    }

    #[cold]
    #[inline(never)]
    fn end_grant(&mut self) {
        if let (Some(grant), Some(engine)) = (self.grant.take(), &mut self.engine) {
            engine.count_carried(grant.requests(), grant.blocks());
        }
    }

    /// As [`SendEngine::execute_local`], under the grant if there is one.
    #[inline(always)]
    pub(crate) fn execute_local(&mut self, queue: &Queue, moved: &MovedEntry) -> Option<u32> {
        if let Some(index) = self.grant.as_mut().and_then(|grant| grant.carry(queue, moved)) {
            return Some(index);
        }
        // A copy, so that the request itself need not lie in memory above.
        let moved = *moved;
        self.carry_by_engine(queue, &moved)
    }

    /// As [`SendEngine::carry_moved`], under the grant if there is one, which goes on behind it.
    #[inline(always)]
    pub(crate) fn carry_reported(
        &mut self,
        queue: &Queue,
        moved: &MovedEntry,
    ) -> Option<StepOutcome> {
        match self.grant.as_mut().map(|grant| grant.report(queue, moved)) {
            Some(Ok(())) => Some(StepOutcome::BUSY),
            Some(Err(why)) => self.report_again(queue, moved, why),
            None => self.report_by_engine(queue, moved),
        }
    }

    /// As [`EnginePlace::carry_reported`], of a request that the grant did not carry out.
    #[cold]
    #[inline(never)]
    fn report_again(
        &mut self,
        queue: &Queue,
        moved: &MovedEntry,
        why: Unreported,
    ) -> Option<StepOutcome> {
        let engine = self.engine().as_mut()?;
        if why == Unreported::SlotLeft {
            engine.keep_slot();
        }
        engine.carry_moved(queue, moved)
    }

    #[inline(never)]
    fn report_by_engine(&mut self, queue: &Queue, moved: &MovedEntry) -> Option<StepOutcome> {
        let in_row = self.in_row + 1;
        let engine = self.engine().as_mut()?;
        let left = engine.carry_moved(queue, moved)?;
        if in_row < ROW {
            self.in_row = in_row;
        } else {
            self.grant = engine.grant();
        }
        Some(left)
    }

    /// As [`EnginePlace::execute_local`], of 8 bytes between segments of this node, if there is a grant and that is
    /// one move.
    #[inline(always)]
    pub(crate) fn move_word(&mut self, queue: &Queue, moved: MovedPlace) -> Option<u32> {
        self.grant.as_mut()?.move_word(queue, moved)
    }

    /// As [`EnginePlace::execute_local`], of 8 bytes.
    #[inline(always)]
    pub(crate) fn carry_word(&mut self, queue: &Queue, moved: MovedPlace) -> Option<u32> {
        let by_grant = self.grant.as_mut().and_then(|grant| grant.move_word_of_any(queue, moved));
        by_grant.or_else(|| self.carry_word_by_engine(queue, moved))
    }

    /// As [`EnginePlace::execute_local`], of 8 bytes without a completion.
    #[inline(always)]
    pub(crate) fn carry_word_silently(&mut self, queue: &Queue, moved: MovedPlace) -> Option<u32> {
        let by_grant = self.grant.as_mut().and_then(|grant| grant.move_word_silently(queue, moved));
        by_grant.or_else(|| self.carry_silently_by_engine(queue, moved))
    }

    #[inline(never)]
    fn carry_silently_by_engine(&mut self, queue: &Queue, moved: MovedPlace) -> Option<u32> {
        let (pi, remote_va, local_va) = moved;
        let moved = MovedEntry { pi, is_signalled: false, remote_va, local_va, len: WORD_LEN };
        self.execute_local(queue, &moved)
    }

    #[inline(never)]
    fn carry_word_by_engine(&mut self, queue: &Queue, moved: MovedPlace) -> Option<u32> {
        let (pi, remote_va, local_va) = moved;
        let moved = MovedEntry { pi, is_signalled: true, remote_va, local_va, len: WORD_LEN };
        self.execute_local(queue, &moved)
    }

    /// Whether the queue is to be leased, the next time after so many leases: its requests went under one grant for long.
    #[inline(always)]
    pub(crate) fn wants_lease(&self, leases: Leases, had: u32) -> bool {
        let Some(grant) = &self.grant else { return false };
        match leases {
            Leases::Seldom => grant.blocks() >= LEASE_AFTER << had.min(LEASE_DOUBLINGS),
            Leases::Soon => true,
            Leases::Never => false,
        }
    }

    /// As [`EnginePlace::execute_local`], of an atomic.
    #[inline(always)]
    pub(crate) fn change_unreported(&mut self, queue: &Queue, moved: &MovedWord) -> Option<u32> {
        match self.grant.as_mut().and_then(|grant| grant.change(queue, moved)) {
            Some(Ok(index)) => Some(index),
            Some(Err(status)) => {
                self.engine().as_mut()?.spoil_next(status);
                None
            }
            None => self.change_by_engine(queue, moved),
        }
    }

    #[inline(never)]
    fn change_by_engine(&mut self, queue: &Queue, moved: &MovedWord) -> Option<u32> {
        let in_row = self.in_row + 1;
        let engine = self.engine().as_mut()?;
        let index = engine.change_unreported(queue, moved)?;
        if in_row < ROW {
            self.in_row = in_row;
        } else {
            self.grant = engine.grant_of_words();
        }
        Some(index)
    }

    #[inline(never)]
    fn carry_by_engine(&mut self, queue: &Queue, moved: &MovedEntry) -> Option<u32> {
        let in_row = self.in_row + 1;
        let engine = self.engine().as_mut()?;
        let index = engine.execute_local(queue, moved)?;
        if in_row < ROW {
            self.in_row = in_row;
        } else {
            self.grant = engine.grant();
        }
        Some(index)
    }
}
