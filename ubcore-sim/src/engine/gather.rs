//! Local buffers of a request: checked as a whole, then copied piece by piece.
//!
//! *Owns*: the list of SGEs as fetched, and the order in which the bytes of a message are stored. *Takes*: entry
//! words, segment contexts. *Gives*: checks and copies of any sub-range. *Must not*: read rings in host memory; copy
//! a byte before the whole list is checked.

use udma_abi::{
    CqeStatus, Nanos, Sge, Sqe,
    rqe::SGE_MAX,
    sqe::{SQE_WORDS_MAX, SqeFlags, control_len},
};
use urma_mem::procvm::ProcessMemory;
use urma_mem::{CopyOrder, Region};
use urma_packet::packetizer::splice;

use crate::context::segment::{LocalSegment, SegmentCache, SegmentTable};

/// Bytes at the end of a message that are stored last. Two words, so that an unaligned last word is stored whole as
/// well.
pub(crate) const TAIL: usize = 16;

/// The local bytes of a request.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Local {
    /// In segments, named by pairs of words from `first` on.
    Sges {
        /// Index of the first word of the first pair.
        first: usize,
        /// Number of pieces, a pair of words each.
        num: usize,
    },
    /// Inline in the entry, from this byte on.
    Inline {
        /// Offset of the first byte in the entry.
        offset: usize,
        /// Length of the payload in bytes.
        len: usize,
    },
}

/// Segment cache and table, for one operation.
#[derive(Debug)]
pub(crate) struct Segments<'a> {
    pub(crate) cache: &'a mut SegmentCache,
    pub(crate) table: &'a SegmentTable,
}

impl Local {
    /// Reads the local part of a fetched entry, whose counts are checked.
    #[inline]
    pub(crate) fn of(sqe: &Sqe) -> Self {
        let offset = control_len(sqe.opcode);
        if sqe.flags.contains(SqeFlags::INLINE) {
            return Self::Inline { offset, len: usize::from(sqe.inline_len) };
        }
        Self::Sges { first: offset / 8, num: usize::from(sqe.sge_num) }
    }

    /// The words of the pieces; none for inline bytes.
    #[inline]
    pub(crate) fn pieces<'a>(&self, words: &'a EntryWords) -> &'a [u64] {
        match *self {
            Self::Sges { first, num } => words.get(first..first + 2 * num).unwrap_or(&[]),
            Self::Inline { .. } => &[],
        }
    }

    /// Returns the length of all pieces together, in bytes.
    #[inline]
    pub(crate) fn len(&self, words: &EntryWords) -> u64 {
        match self {
            Self::Sges { .. } => list(self.pieces(words)).map(|s| u64::from(s.len)).sum(),
            Self::Inline { len, .. } => *len as u64,
        }
    }

    /// Address and length in bytes of each piece; inline bytes are one piece at the offset in their entry.
    pub(crate) fn sizes<'a>(&self, words: &'a EntryWords) -> impl Iterator<Item = (u64, u32)> + 'a {
        let inline = match *self {
            Self::Inline { offset, len } => Some((offset as u64, u32::try_from(len).unwrap_or(0))),
            Self::Sges { .. } => None,
        };
        list(self.pieces(words)).map(|sge| (sge.va, sge.len)).chain(inline)
    }

    /// Checks that every piece lies in a live segment, one that may be stored to if `store` says so.
    #[inline]
    pub(crate) fn check(
        &self,
        words: &EntryWords,
        segments: &mut Segments<'_>,
        store: Store,
    ) -> Result<(), CqeStatus> {
        check(self.pieces(words), segments, store)
    }
}

/// The words of an entry: of a send queue, or of a receive queue with its 16 pieces.
pub(crate) type EntryWords = [u64; SQE_WORDS_MAX];

const _: () = assert!(SQE_WORDS_MAX == 2 * SGE_MAX, "a receive entry fits as well");

/// Decodes the pieces from pairs of words.
#[inline]
pub(crate) fn list(pieces: &[u64]) -> impl Iterator<Item = Sge> + '_ {
    pieces.chunks_exact(2).map(|pair| Sge::from_words([pair[0], pair[1]]))
}

/// Checks that every piece lies in a live segment, one that may be stored to if `store` says so.
#[inline]
pub(crate) fn check(
    pieces: &[u64],
    segments: &mut Segments<'_>,
    store: Store,
) -> Result<(), CqeStatus> {
    {
        for sge in list(pieces).filter(|s| s.len != 0) {
            let segment = segments
                .cache
                .find(segments.table, sge.token_id)
                .filter(|s| s.offset_of(sge.va, u64::from(sge.len)).is_some())
                .ok_or(CqeStatus::LocAccess)?;
            if store == Store::Yes && !segment.region.is_writable() {
                return Err(CqeStatus::LocAccess);
            }
            if store == Store::No && segment.is_poisoned(sge.va, u64::from(sge.len)) {
                return Err(CqeStatus::LocDataPoison);
            }
        }
        Ok(())
    }
}

/// Whether the program still has the memory of all pieces mapped; they were checked before.
pub(crate) fn are_there(pieces: &[u64], segments: &mut Segments<'_>, now: Nanos) -> bool {
    list(pieces).filter(|sge| sge.len != 0).all(|sge| {
        let segment = segments.cache.find(segments.table, sge.token_id);
        segment.is_some_and(|segment| {
            let offset = segment.offset_of(sge.va, u64::from(sge.len));
            offset.is_some_and(|at| segment.memory.is_there((at, sge.len as usize), now))
        })
    })
}

/// Whether a request stores into its local memory.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Store {
    /// Yes: READ, atomics and receives.
    Yes,
    /// No: SEND and WRITE.
    No,
}

/// A sub-range of a message.
#[derive(Clone, Copy, Debug)]
pub(crate) struct MessageSpan {
    /// Offset of its first byte in the message.
    pub(crate) at: u64,
    /// Its length in bytes.
    pub(crate) len: usize,
    /// The message ends with it: its last bytes are stored after everything else.
    pub(crate) last: bool,
}

/// Calls `f(segment, offset, bytes before, bytes)` for each local piece of a span, in order.
fn each(
    sges: &[u64],
    segments: &mut Segments<'_>,
    span: MessageSpan,
    mut f: impl FnMut(&LocalSegment, usize, usize, usize) -> Option<()>,
) -> Result<(), CqeStatus> {
    let pieces = list(sges).map(|sge| (sge, sge.len));
    let done = splice(pieces, (span.at, span.len), |sge, from, done, take| {
        let segment =
            segments.cache.find(segments.table, sge.token_id).ok_or(CqeStatus::LocAccess)?;
        let offset = segment.offset_of(sge.va, sge.len.into()).ok_or(CqeStatus::LocAccess)?;
        f(segment, offset + from, done, take).ok_or(CqeStatus::LocAccess)
    })?;
    if done == span.len { Ok(()) } else { Err(CqeStatus::LocLen) }
}

/// Segment and offset of a span of a one-piece message; unlike [`each`] it calls nothing. `None`: the span is empty.
#[inline]
fn only<'s>(
    sges: &[u64],
    segments: &'s mut Segments<'_>,
    span: MessageSpan,
) -> Result<Option<(&'s Region, usize)>, CqeStatus> {
    if span.len == 0 {
        return Ok(None);
    }
    let &[head, va] = sges else { return Err(CqeStatus::LocLen) };
    let sge = Sge::from_words([head, va]);
    if span.at.checked_add(span.len as u64).is_none_or(|end| end > u64::from(sge.len)) {
        return Err(CqeStatus::LocLen);
    }
    let segment = segments.cache.find(segments.table, sge.token_id).ok_or(CqeStatus::LocAccess)?;
    let offset = segment.offset_of(sge.va, u64::from(sge.len)).ok_or(CqeStatus::LocAccess)?;
    let skip = usize::try_from(span.at).map_err(|_| CqeStatus::LocLen)?;
    Ok(Some((&segment.region, offset + skip)))
}

/// Segment and offset of a span of a message; `None`: it has several pieces, or the span is empty.
pub(crate) fn place_of_only(
    sges: &[u64],
    segments: &mut Segments<'_>,
    span: MessageSpan,
) -> Result<Option<(Region, usize)>, CqeStatus> {
    if sges.len() != 2 {
        return Ok(None);
    }
    Ok(only(sges, segments, span)?.map(|(region, offset)| (region.clone(), offset)))
}

/// Copies a span of the local bytes to `to`, in message order. The last bytes of the message are stored last.
#[inline]
pub(crate) fn copy_out(
    local: &Local,
    words: &EntryWords,
    segments: &mut Segments<'_>,
    span: MessageSpan,
    (to, to_offset): (&Region, usize),
) -> Result<(), CqeStatus> {
    match local {
        Local::Inline { offset, .. } => {
            let bytes = inline_bytes(words);
            let at = offset + usize::try_from(span.at).map_err(|_| CqeStatus::LocLen)?;
            let bytes = bytes.get(at..at + span.len).ok_or(CqeStatus::LocLen)?;
            to.write_ordered(to_offset, bytes).map_err(|_| CqeStatus::RemAccessAbort)
        }
        Local::Sges { num: 1, .. } => {
            let Some((from, offset)) = only(local.pieces(words), segments, span)? else {
                return Ok(());
            };
            from.copy_to_ordered(offset, to, to_offset, span.len).map_err(|_| CqeStatus::LocAccess)
        }
        Local::Sges { .. } => scatter_out(local.pieces(words), segments, span, (to, to_offset)),
    }
}

/// Copies a span to `to` with stores that bypass the caches if the message is one piece, else by [`copy_out`].
#[cold]
pub(crate) fn stream_out(
    local: &Local,
    words: &EntryWords,
    segments: &mut Segments<'_>,
    span: MessageSpan,
    (to, to_offset): (&Region, usize),
) -> Result<(), CqeStatus> {
    if !matches!(local, Local::Sges { num: 1, .. }) {
        return copy_out(local, words, segments, span, (to, to_offset));
    }
    let Some((from, offset)) = only(local.pieces(words), segments, span)? else { return Ok(()) };
    from.copy_to_streaming(offset, to, to_offset, span.len).map_err(|_| CqeStatus::LocAccess)
}

/// Copies from several pieces. The last bytes of the message may lie in more than one of them, so they are joined
/// before they are stored.
fn scatter_out(
    sges: &[u64],
    segments: &mut Segments<'_>,
    span: MessageSpan,
    (to, to_offset): (&Region, usize),
) -> Result<(), CqeStatus> {
    let tail = if span.last { span.len.min(TAIL) } else { 0 };
    let body = span.len - tail;
    each(
        sges,
        segments,
        MessageSpan { len: body, last: false, ..span },
        |from, offset, done, len| from.region.copy_to(offset, to, to_offset + done, len).ok(),
    )?;
    let mut bytes = [0; TAIL];
    let end = MessageSpan { at: span.at + body as u64, len: tail, last: true };
    each(sges, segments, end, |from, offset, done, len| {
        from.region.read(offset, &mut bytes[done..done + len]).ok()
    })?;
    to.write_ordered(to_offset + body, &bytes[..tail]).map_err(|_| CqeStatus::RemAccessAbort)
}

/// Copies `span.len` bytes at `from` into a span of the local bytes, in message order. The end of each piece is
/// stored after the rest of it, so the end of the message is stored last.
#[inline]
pub(crate) fn copy_in(
    sges: &[u64],
    segments: &mut Segments<'_>,
    span: MessageSpan,
    (from, from_offset): (&Region, usize),
) -> Result<(), CqeStatus> {
    if sges.len() == 2 {
        let Some((to, offset)) = only(sges, segments, span)? else { return Ok(()) };
        let copied = from.copy_to_ordered(from_offset, to, offset, span.len);
        return copied.map_err(|_| CqeStatus::LocAccess);
    }
    each(sges, segments, span, |to, offset, done, len| {
        let (to, offset) = to.memory.window(offset, len);
        from.copy_to_ordered(from_offset + done, to, offset, len).ok()
    })
}

/// Copies a piece of a message from an address in another process into the receive's SGEs, in any order.
///
/// # Errors
/// The kernel refuses the copy.
pub(crate) fn pull_in(
    sges: &[u64],
    segments: &mut Segments<'_>,
    span: MessageSpan,
    (process, addr): (&ProcessMemory, u64),
) -> Result<(), CqeStatus> {
    each(sges, segments, span, |to, offset, done, len| {
        let from = addr.checked_add(done as u64)?;
        to.memory.pull(offset, (process, from), (len, CopyOrder::Any)).ok()
    })
}

/// Copies `bytes` into a span of the local bytes, in the order of [`copy_in`].
pub(crate) fn write_in(
    sges: &[u64],
    segments: &mut Segments<'_>,
    span: MessageSpan,
    bytes: &[u8],
) -> Result<(), CqeStatus> {
    each(sges, segments, span, |to, offset, done, len| {
        let (to, offset) = to.memory.window(offset, len);
        to.write_ordered(offset, &bytes[done..done + len]).ok()
    })
}

/// Copies a span of the local bytes into `bytes`.
pub(crate) fn read_out(
    local: &Local,
    words: &EntryWords,
    segments: &mut Segments<'_>,
    at: u64,
    bytes: &mut [u8],
) -> Result<(), CqeStatus> {
    match local {
        Local::Inline { offset, .. } => {
            let all = inline_bytes(words);
            let at = offset + usize::try_from(at).map_err(|_| CqeStatus::LocLen)?;
            let from = all.get(at..at + bytes.len()).ok_or(CqeStatus::LocLen)?;
            bytes.copy_from_slice(from);
            Ok(())
        }
        Local::Sges { .. } => {
            let span = MessageSpan { at, len: bytes.len(), last: false };
            each(local.pieces(words), segments, span, |from, offset, done, len| {
                from.region.read(offset, &mut bytes[done..done + len]).ok()
            })
        }
    }
}

/// The bytes of an entry's words, in memory order.
#[inline]
pub(crate) fn inline_bytes(words: &EntryWords) -> [u8; SQE_WORDS_MAX * 8] {
    let mut bytes = [0; SQE_WORDS_MAX * 8];
    for (chunk, word) in bytes.chunks_exact_mut(8).zip(words) {
        chunk.copy_from_slice(&word.to_le_bytes());
    }
    bytes
}
