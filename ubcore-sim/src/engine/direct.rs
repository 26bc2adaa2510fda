//! The direct path: WRITE, READ, atomics and notifications executed by the initiator.
//!
//! The position in a transfer is kept, so that a step can stop between chunks. Must not move a byte before all
//! checks, nor more than a chunk without checking the generation again.

use udma_abi::{CqeStatus, FetchKind, NotifyKind, OpKind, Opcode, Sqe, cmd::Access};
use urma_mem::{Region, WordAtomic};

use super::{
    gather::{self, EntryWords, Local, MessageSpan, Segments},
    pass_length::STREAM_MIN,
    remote::{AccessResult, Landed, PathState, Want},
};
use crate::{
    fault::Faults,
    hooks::{self, Hook},
};

/// How far a request got.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Progress {
    /// All of it; the number of bytes.
    Done(u32),
    /// The byte budget of the step is used up: continue later.
    More,
    /// The peer is needed; nothing was moved.
    NotDirect,
}

/// Position of a transfer.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct Cursor {
    /// Number of bytes moved so far.
    pub(crate) at: u64,
    /// Generation of the target under which they were moved.
    pub(crate) life: u64,
    /// What has moved the bytes so far.
    pub(crate) by: By,
}

/// What moves the bytes of a direct request.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) enum By {
    /// Loads and stores in shared memory.
    #[default]
    Memory,
    /// Stores in shared memory that bypass the caches.
    PastCaches,
    /// The kernel, out of the peer's process.
    Kernel,
}

/// Arguments of one call.
#[derive(Debug)]
pub(crate) struct Job<'a> {
    pub(crate) sqe: &'a Sqe,
    pub(crate) words: &'a EntryWords,
    pub(crate) local: &'a Local,
    /// Bytes of the request.
    pub(crate) len: u64,
    pub(crate) segments: Segments<'a>,
    pub(crate) chunk: usize,
    /// Cache size in bytes above which long writes bypass the caches.
    pub(crate) cache: u64,
    pub(crate) faults: Faults,
}

impl Job<'_> {
    /// Continues the request from `cursor`, for at most `budget` bytes.
    #[inline]
    pub(crate) fn execute(
        mut self,
        path_state: &mut PathState,
        cursor: &mut Cursor,
        budget: &mut usize,
    ) -> Result<Progress, CqeStatus> {
        match self.sqe.opcode.kind() {
            OpKind::Write | OpKind::Read | OpKind::WriteImm => {
                self.transfer(path_state, cursor, budget)
            }
            OpKind::WriteNotify(kind) => self.notify(kind, path_state, cursor, budget),
            OpKind::Atomic(kind) => self.atomic(kind, path_state),
            OpKind::Send
            | OpKind::SendImm
            | OpKind::SendInvalidate
            | OpKind::Nop
            | OpKind::FlushDma => Ok(Progress::NotDirect),
        }
    }

    #[inline]
    fn transfer(
        &mut self,
        path_state: &mut PathState,
        cursor: &mut Cursor,
        budget: &mut usize,
    ) -> Result<Progress, CqeStatus> {
        let write = self.sqe.opcode.is_write();
        if self.len >= STREAM_MIN && write && cursor.at == 0 {
            let place = (self.sqe.seg_token_id, self.sqe.remote_va);
            if path_state.pass_length.is_cold(place, self.len, self.cache) {
                cursor.by = By::PastCaches;
            }
        }
        loop {
            let left = self.len - cursor.at;
            let len = left.min(self.chunk.min(*budget).max(1) as u64);
            let Ok(len) = usize::try_from(len) else { return Err(CqeStatus::LocLen) };
            let span = MessageSpan { at: cursor.at, len, last: len as u64 == left };
            match self.chunk_of(path_state, span, cursor, write)? {
                AccessResult::NotDirect => return Ok(Progress::NotDirect),
                AccessResult::Yes((), life) => cursor.life = life,
            }
            cursor.at += len as u64;
            *budget = budget.saturating_sub(len);
            if span.last {
                return Ok(Progress::Done(u32::try_from(self.len).unwrap_or(u32::MAX)));
            }
            hooks::pass(Hook::MidCopy);
            if *budget == 0 {
                return Ok(Progress::More);
            }
        }
    }

    #[inline]
    fn chunk_of(
        &mut self,
        path_state: &mut PathState,
        span: MessageSpan,
        cursor: &mut Cursor,
        write: bool,
    ) -> Result<AccessResult<()>, CqeStatus> {
        let sqe = self.sqe;
        let (life, by) = (cursor.life, cursor.by);
        let want = Want {
            token_id: sqe.seg_token_id,
            token: segment_token(sqe),
            va: sqe.remote_va,
            len: self.len,
            right: if write { Access::WRITE } else { Access::READ },
            life,
        };
        // The check covers the whole request each time; only this span is accessed.
        let at = usize::try_from(span.at).map_err(|_| CqeStatus::LocLen)?;
        let Self { words, local, segments, faults, len, .. } = self;
        let (words, faults, len) = (*words, *faults, *len);
        let table = segments.table;
        let mut touch = |memory: &Region, offset: usize| {
            if write {
                if faults.last_byte_early() && span.at == 0 {
                    store_end_first(local, words, segments, len, (memory, offset));
                }
                let to = (memory, offset + at);
                match by {
                    By::PastCaches => gather::stream_out(local, words, segments, span, to),
                    By::Memory | By::Kernel => gather::copy_out(local, words, segments, span, to),
                }
            } else {
                gather::copy_in(local.pieces(words), segments, span, (memory, offset + at))
            }
        };
        let mut reached = path_state.reach(table, faults, &want, &mut touch)?;
        if matches!(reached, AccessResult::NotDirect) {
            reached = path_state.reach_file(faults, &want, touch)?;
        }
        // READ only: a write that is late could not be stopped.
        if write || matches!(reached, AccessResult::Yes(..)) {
            return Ok(reached);
        }
        let pieces = self.local.pieces(words);
        let into = gather::place_of_only(pieces, &mut self.segments, span)?;
        let into = into.as_ref().map(|(region, offset)| (region, *offset));
        match path_state.fetch(faults, &want, (span.at, span.len), into)? {
            AccessResult::NotDirect => Ok(AccessResult::NotDirect),
            AccessResult::Yes(landed, life) => {
                cursor.by = By::Kernel;
                if let Landed::At(landing) = landed {
                    gather::copy_in(pieces, &mut self.segments, span, (landing, 0))?;
                }
                Ok(AccessResult::Yes((), life))
            }
        }
    }

    fn atomic(
        &mut self,
        kind: FetchKind,
        path_state: &mut PathState,
    ) -> Result<Progress, CqeStatus> {
        let sqe = self.sqe;
        let want = Want {
            token_id: sqe.seg_token_id,
            token: segment_token(sqe),
            va: sqe.remote_va,
            len: self.len,
            right: Access::ATOMIC,
            life: 0,
        };
        let len = self.len;
        let reached =
            path_state.reach(self.segments.table, self.faults, &want, |memory, offset| {
                let operands = (sqe.operand, sqe.compare);
                atomic_at((memory, offset), len, kind, operands)
            })?;
        let AccessResult::Yes(old, _) = reached else { return Ok(Progress::NotDirect) };
        let bytes = old.to_le_bytes();
        let len = usize::try_from(self.len).unwrap_or(8).min(8);
        let span = MessageSpan { at: 0, len, last: true };
        gather::write_in(self.local.pieces(self.words), &mut self.segments, span, &bytes[..len])?;
        Ok(Progress::Done(u32::try_from(self.len).unwrap_or(8)))
    }

    /// Writes the payload, then the 8 bytes elsewhere; both targets are checked before the first byte.
    fn notify(
        &mut self,
        kind: NotifyKind,
        path_state: &mut PathState,
        cursor: &mut Cursor,
        budget: &mut usize,
    ) -> Result<Progress, CqeStatus> {
        let sqe = self.sqe;
        let want = Want {
            token_id: sqe.notify_token_id,
            token: Some(sqe.seg_token_value),
            va: sqe.notify_va,
            len: 8,
            right: kind.right(),
            life: 0,
        };
        let table = self.segments.table;
        if cursor.life == 0 {
            let reached = path_state.reach(table, self.faults, &want, |memory, offset| {
                if memory.addr().wrapping_add(offset) % 8 == 0 {
                    Ok(())
                } else {
                    Err(CqeStatus::RemUnsupportedReq)
                }
            })?;
            if matches!(reached, AccessResult::NotDirect) {
                return Ok(Progress::NotDirect);
            }
        }
        let done = match self.transfer(path_state, cursor, budget)? {
            Progress::Done(bytes) => bytes,
            unfinished @ (Progress::More | Progress::NotDirect) => return Ok(unfinished),
        };
        let reached = path_state.reach(table, self.faults, &want, |memory, offset| {
            notify_at(memory, offset, kind, sqe.imm).ok_or(CqeStatus::RemAccessAbort)
        })?;
        // It was direct just before; a segment that lost its shared pages since then is another one.
        match reached {
            AccessResult::Yes((), _) => Ok(Progress::Done(done)),
            AccessResult::NotDirect => Err(CqeStatus::RemAccessAbort),
        }
    }
}

/// The token that a request shows for its target segment.
#[inline]
pub(crate) fn segment_token(sqe: &Sqe) -> Option<u32> {
    let value = if sqe.opcode == Opcode::WriteImm { sqe.seg_token_value } else { sqe.token_value };
    sqe.token_en.then_some(value)
}

/// What a request that takes a receive shows to its target: two that show the same are accepted or refused alike.
pub(crate) fn shown_to(sqe: &Sqe) -> u64 {
    let target = u64::from(sqe.target_kind as u8) << 20 | u64::from(sqe.target_id);
    let value = if sqe.token_en { sqe.token_value } else { 0 };
    u64::from(sqe.token_en) << 63 | target << 32 | u64::from(value)
}

/// Stores the 8 bytes of a notification; `None` if their address is not aligned.
pub(crate) fn notify_at(
    memory: &Region,
    offset: usize,
    kind: NotifyKind,
    value: u64,
) -> Option<()> {
    match kind {
        NotifyKind::Store => memory.store_u64_release(offset, value).ok(),
        NotifyKind::Add => memory.atomic_u64(offset, WordAtomic::Add(value)).ok().map(|_| ()),
    }
}

/// Number of yields of the planted fault below, so that a test sees it each time: some 20 us.
const YIELDS: usize = 64;

/// Planted fault: the end of the message becomes visible before the rest.
#[cold]
fn store_end_first(
    local: &Local,
    words: &EntryWords,
    segments: &mut Segments<'_>,
    len: u64,
    (memory, offset): (&Region, usize),
) {
    let Some(last) = len.checked_sub(1) else { return };
    let Ok(at) = usize::try_from(last) else { return };
    let mut byte = [0];
    if gather::read_out(local, words, segments, last, &mut byte).is_ok() {
        let _ = memory.write(offset + at, &byte);
        // A program that watches that byte gets to run, even on one processor.
        for _ in 0..YIELDS {
            std::thread::yield_now();
        }
        hooks::pass(Hook::MidCopy);
    }
}

/// Executes the atomic of an entry on `len` bytes; refused if the address is not aligned to them. Returns the old
/// value.
///
/// The callers have checked the rights.
#[inline(always)]
pub(crate) fn atomic_at(
    (memory, offset): (&Region, usize),
    len: u64,
    kind: FetchKind,
    (operand, compare): (u64, u64),
) -> Result<u64, CqeStatus> {
    let before = match len {
        4 => {
            let op = operation(kind, low32(operand), low32(compare));
            memory.atomic_u32(offset, op).ok().map(u64::from)
        }
        8 => memory.atomic_u64(offset, operation(kind, operand, compare)).ok(),
        _ => None,
    };
    before.ok_or(CqeStatus::RemUnsupportedReq)
}

/// The memory operation of an atomic.
#[inline(always)]
pub(crate) fn operation<T>(kind: FetchKind, operand: T, compare: T) -> WordAtomic<T> {
    match kind {
        FetchKind::Cas => WordAtomic::Cas { cmp: compare, swap: operand },
        FetchKind::Swap => WordAtomic::Swap(operand),
        FetchKind::FetchAdd => WordAtomic::Add(operand),
        FetchKind::FetchSub => WordAtomic::Sub(operand),
        FetchKind::FetchAnd => WordAtomic::And(operand),
        FetchKind::FetchOr => WordAtomic::Or(operand),
        FetchKind::FetchXor => WordAtomic::Xor(operand),
    }
}

#[expect(clippy::cast_possible_truncation, reason = "4-byte operands lie in the low half")]
pub(crate) const fn low32(word: u64) -> u32 {
    word as u32
}
