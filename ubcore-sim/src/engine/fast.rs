//! The engine of one queue number, behind its grant or its ping-pong mode.
//!
//! *Owns*: which of the three executes the next request. *Takes*: requests, in the order of the queue. *Gives*: the
//! results of the one in charge. *Must not*: let a request reach the engine while a grant or ping-pong mode is in
//! force.

mod grant;
pub(crate) mod known;
pub(super) mod lane;
mod repeat;

use udma_abi::{CompletionBy, MovedWord, sqe::BLOCK_WORDS};

use self::grant::{FastPathGrant, MovedPlace, Unrepeated};
use self::known::MovedEntry;
use super::ping_pong::PingPongSends;
use super::send::{SaidTo, SendEngine, StepOutcome, Visit};
use super::short::ShortBody;
use crate::context::queue::Queue;

/// Requests alike in a row before a grant is made: it counts references, which fewer requests do not repay.
const ROW: u32 = 4;
/// Blocks under one grant before the queue gets a lease: taking a lease back costs about some hundred exchanges.
const LEASE_AFTER: u32 = 256;
/// Each lease that was taken back doubles that, at most so often.
const LEASE_DOUBLINGS: u32 = 8;

/// Engine of a queue number, if it has one, and the grant or the ping-pong mode of its newest requests.
#[derive(Debug, Default)]
pub(crate) struct EnginePlace {
    grant: Option<FastPathGrant>,
    ping_pong: Option<Box<(PingPongSends, SaidTo)>>,
    /// Requests in a row that a grant would have covered.
    in_row: u32,
    engine: Option<Box<SendEngine>>,
}

/// When a queue behind a handle gets a lease.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Leases {
    /// After many requests in a row, and twice as many each time that the lease was taken back.
    Seldom,
    /// After few requests in a row.
    Soon,
    /// Never: each entry uses an atomic exchange.
    Never,
}

impl EnginePlace {
    /// Returns the engine, for anything that is not a request under the grant; ends the grant and ping-pong mode.
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

    /// Enters ping-pong mode with the direct entry `block`, which is next. Returns the request's sequence number.
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

    /// Sends the message of a direct entry in ping-pong mode, if that is on ([`PingPongSends::send_piggybacked`]).
    #[inline(always)]
    pub(crate) fn send_piggybacked(
        &mut self,
        queue: &Queue,
        block: &[u64; BLOCK_WORDS],
        push: impl FnOnce(&ShortBody<'_>) -> bool,
    ) -> Option<()> {
        self.ping_pong.as_mut()?.0.send_piggybacked(queue, block, push)
    }

    /// Completes the open message of ping-pong mode, which was acknowledged; `false`: there is none.
    #[inline(always)]
    pub(crate) fn on_answered(&mut self, queue: &Queue) -> bool {
        self.ping_pong.as_mut().is_some_and(|ping_pong| ping_pong.0.on_answered(queue))
    }

    #[cold]
    #[inline(never)]
    fn end_grant(&mut self) {
        if let (Some(grant), Some(engine)) = (self.grant.take(), &mut self.engine) {
            engine.count_unreported(grant.requests(), grant.blocks());
        }
    }

    /// Executes a WRITE or READ like the last one: under the grant, which then stays in force, else by
    /// [`SendEngine::repeat`]. Returns the index of the JFC's next entry, and what the engine left to do.
    #[inline(always)]
    pub(crate) fn repeat(
        &mut self,
        queue: &Queue,
        moved: &MovedEntry,
    ) -> Option<(u32, StepOutcome)> {
        let why = match self.grant.as_mut().map(|grant| grant.repeat(queue, moved)) {
            Some(Ok(index)) => {
                let is_reported = moved.by == CompletionBy::Device;
                return Some((index, StepOutcome::BUSY.when(is_reported)));
            }
            Some(Err(why)) => why,
            None => Unrepeated::Refused,
        };
        // A copy, so that the caller's request can stay in registers.
        let moved = *moved;
        self.repeat_by_engine(queue, &moved, why)
    }

    #[inline(never)]
    fn repeat_by_engine(
        &mut self,
        queue: &Queue,
        moved: &MovedEntry,
        why: Unrepeated,
    ) -> Option<(u32, StepOutcome)> {
        let in_row = self.in_row + 1;
        let engine = self.engine().as_mut()?;
        if why == Unrepeated::SlotLeft {
            engine.keep_slot();
        }
        let repeated = engine.repeat(queue, moved)?;
        if in_row < ROW {
            self.in_row = in_row;
        } else {
            self.grant = engine.grant();
        }
        Some(repeated)
    }

    /// Executes 8 bytes between segments of this node, only under a grant and as a single move. Returns the index of
    /// the JFC's next entry.
    #[inline(always)]
    pub(crate) fn move_word(&mut self, queue: &Queue, moved: MovedPlace) -> Option<u32> {
        self.grant.as_mut()?.move_word(queue, moved)
    }

    /// Whether to lease the queue: one grant has covered many blocks. `had` leases were given before, each of which
    /// doubles the number.
    #[inline(always)]
    pub(crate) fn wants_lease(&self, leases: Leases, had: u32) -> bool {
        let Some(grant) = &self.grant else { return false };
        match leases {
            Leases::Seldom => grant.blocks() >= LEASE_AFTER << had.min(LEASE_DOUBLINGS),
            Leases::Soon => true,
            Leases::Never => false,
        }
    }

    /// Executes an atomic whose completion the driver makes, under the grant if there is one, else by
    /// [`SendEngine::repeat_atomic`].
    #[inline(always)]
    pub(crate) fn repeat_atomic(&mut self, queue: &Queue, moved: &MovedWord) -> Option<u32> {
        match self.grant.as_mut().and_then(|grant| grant.change(queue, moved)) {
            Some(Ok(index)) => Some(index),
            Some(Err(status)) => {
                self.engine().as_mut()?.spoil_next(status);
                None
            }
            None => self.repeat_atomic_by_engine(queue, moved),
        }
    }

    #[inline(never)]
    fn repeat_atomic_by_engine(&mut self, queue: &Queue, moved: &MovedWord) -> Option<u32> {
        let in_row = self.in_row + 1;
        let engine = self.engine().as_mut()?;
        let index = engine.repeat_atomic(queue, moved)?;
        if in_row < ROW {
            self.in_row = in_row;
        } else {
            self.grant = engine.grant_of_words();
        }
        Some(index)
    }
}
