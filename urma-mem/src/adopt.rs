//! Moving pages: registered memory changes its pages under its addresses, into the arena and back.
//!
//! Owns: the moves, chunk by chunk, and what they undo when one fails.
//! Takes: regions on private anonymous memory.
//! Gives: `Adoption`, whose extents peers reach through the arena, until it is released or dropped.
//! Must not: move a page that is not whole, private, anonymous and writable; lose content.
//!
//! Where userfaultfd is to be had, threads that store into a range while it moves wait for its end; else
//! the caller keeps writers away during `adopt` and `release` (see `Region::from_user`). Readers may go
//! on, they see the same content before, during and after. Pages that the kernel holds for transfers in
//! flight (direct I/O, fixed buffers, vmsplice) keep their old home and must not be moved.

mod pages;

use std::io;
use std::sync::Arc;

use crate::arena::{Arena, ArenaShared, CHUNK_LEN, Ledger, Moved};
use crate::fork;
use crate::maps::{self, RangePart, Unmovable};
use crate::region::{Region, page_ceil, page_floor};
use crate::room;

/// Why nothing of a region was moved.
#[derive(Debug, thiserror::Error)]
pub enum AdoptRefusal {
    /// The range does not contain a whole page.
    #[error("no whole page in the range")]
    NoWholePage,
    /// All its pages are of a kind that is never moved; the first piece's reason.
    #[error("the range is not movable: {0}")]
    Unmovable(Unmovable),
    /// All offsets of the arena were handed out.
    #[error("the arena is used up")]
    ArenaFull,
    /// This process is a fork of the arena's; it has no arena.
    #[error("the arena belongs to the parent process")]
    Forked,
    /// The system refused; everything is where it was.
    #[error("pages could not be moved: {0}")]
    System(#[from] io::Error),
}

/// A run of pages that peers can reach.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Extent {
    /// First byte's address in this process.
    pub addr: usize,
    /// Bytes; a multiple of the page size.
    pub len: usize,
    /// First byte's offset in the arena.
    pub arena_offset: u64,
}

/// Moved pages of one registration. Dropping it moves them back, unless another adoption includes them.
#[derive(Debug)]
pub struct Adoption {
    shared: Arc<ArenaShared>,
    extents: Vec<Extent>,
    /// Keeps the memory mapped while its pages are the arena's.
    _region: Region,
}

impl Arena {
    /// Moves the whole private anonymous writable pages of the region into the arena. Pages that another
    /// adoption moved already are shared with it. Pages without content stay without.
    ///
    /// Costs 0.6-1.0 ms per MiB (base pages).
    ///
    /// # Errors
    /// [`AdoptRefusal`]; the memory is as before then.
    pub fn adopt(&self, region: &Region) -> Result<Adoption, AdoptRefusal> {
        if fork::forked_since(self.shared.generation) {
            return Err(AdoptRefusal::Forked);
        }
        let end = page_floor(region.addr() + region.len());
        let start = page_ceil(region.addr()).filter(|start| *start < end);
        let start = start.ok_or(AdoptRefusal::NoWholePage)?;
        // Reading files of the system allocates: before the ledger is locked and pages are in motion.
        let step = step(end - start);
        let on_stack = 0_u8;
        let mut pieces = maps::pieces(start, end - start, core::ptr::from_ref(&on_stack).addr())?;
        maps::ask_for_advice(&mut pieces, fork::hold);
        let mut ledger = self.shared.ledger();
        let mut extents = Vec::new();
        let taken = take((&self.shared, step), &mut ledger, &pieces, &mut extents);
        if let Err(refusal) = taken {
            if let Err(error) = give_back((&self.shared, step), &mut ledger, &extents) {
                tracing::error!(%error, "pages of a refused adoption stay shared");
            }
            return Err(refusal);
        }
        if extents.is_empty() {
            let first = pieces.iter().find_map(|piece| piece.movable.err());
            return Err(AdoptRefusal::Unmovable(first.unwrap_or(Unmovable::Absent)));
        }
        drop(ledger);
        Ok(Adoption { shared: Arc::clone(&self.shared), extents, _region: region.clone() })
    }
}

impl Adoption {
    /// The runs of pages that peers can reach, in order of addresses.
    pub fn extents(&self) -> &[Extent] {
        &self.extents
    }

    /// The arena offset of `len` bytes at `addr`, if they lie in one extent.
    pub fn arena_offset(&self, addr: usize, len: usize) -> Option<u64> {
        let at = self.extents.partition_point(|extent| extent.addr <= addr).checked_sub(1)?;
        let extent = self.extents.get(at)?;
        let skip = addr - extent.addr;
        (skip <= extent.len && len <= extent.len - skip).then(|| extent.arena_offset + skip as u64)
    }

    /// Moves the pages back to private memory, with their content, and frees the arena's. Pages that
    /// another adoption includes stay. A store that a peer makes later, through a mapping it still has,
    /// lands where no thread reads.
    ///
    /// Costs 0.2-0.9 ms per MiB.
    ///
    /// # Errors
    /// The system's (no memory for the private pages): some pages stay shared, with their content, and
    /// a peer that ignores the segment's death can still reach them.
    pub fn release(mut self) -> io::Result<()> {
        self.put_back()
    }

    /// The hard revocation: the same as [`Adoption::release`], for a peer that did not end its copies in
    /// time (stopped, hung or lying). No cooperation of the peer is used.
    ///
    /// # Errors
    /// As [`Adoption::release`].
    pub fn revoke(self) -> io::Result<()> {
        self.release()
    }

    /// Gives all extents back, once.
    fn put_back(&mut self) -> io::Result<()> {
        let extents = core::mem::take(&mut self.extents);
        // In a forked child the pages are private already and the file is not there.
        if extents.is_empty() || fork::forked_since(self.shared.generation) {
            return Ok(());
        }
        let step = step(extents.iter().map(|extent| extent.len).sum());
        give_back((&self.shared, step), &mut self.shared.ledger(), &extents)
    }
}

impl Drop for Adoption {
    fn drop(&mut self) {
        if let Err(error) = self.put_back() {
            tracing::error!(%error, "pages of a dropped adoption stay shared");
        }
    }
}

/// Counts and moves all movable pieces; what was done so far is in `extents` also on failure.
fn take(
    (shared, step): (&ArenaShared, usize),
    ledger: &mut Ledger,
    pieces: &[RangePart],
    extents: &mut Vec<Extent>,
) -> Result<(), AdoptRefusal> {
    for piece in pieces {
        let end = piece.addr + piece.len;
        ledger.split_at(piece.addr);
        ledger.split_at(end);
        let mut at = piece.addr;
        while at < end {
            let next = ledger.moved.range(at..end).next().map(|(start, moved)| (*start, *moved));
            let (gap_end, known) = next.map_or((end, None), |(start, m)| (start, Some(m)));
            if at < gap_end {
                if piece.movable.is_ok() {
                    let range = (at, gap_end - at);
                    let kept = (piece.is_locked, piece.is_dontfork);
                    let extent = move_in((shared, step), ledger, range, kept)?;
                    push(extents, extent);
                }
                at = gap_end;
            } else if let Some(moved) = known {
                ledger.moved.insert(at, Moved { holders: moved.holders + 1, ..moved });
                push(extents, Extent { addr: at, len: moved.len, arena_offset: moved.offset });
                at += moved.len;
            }
        }
    }
    Ok(())
}

/// Moves one range that is not in the arena yet.
fn move_in(
    (shared, step): (&ArenaShared, usize),
    ledger: &mut Ledger,
    (addr, len): (usize, usize),
    (is_locked, is_dontfork): (bool, bool),
) -> Result<Extent, AdoptRefusal> {
    let offset = ledger.take_offset(addr, len, shared.len()).ok_or(AdoptRefusal::ArenaFull)?;
    for (at, chunk) in chunks(addr, len, step) {
        let to = offset + (at - addr) as u64;
        if let Err(error) = pages::move_in(shared, (at, chunk), to, is_dontfork) {
            let done = Moved { len: at - addr, offset, holders: 1, is_locked, is_dontfork };
            if done.len != 0 {
                move_out((shared, step), addr, done)?;
            }
            return Err(error.into());
        }
    }
    pages::join(shared, addr, len);
    if is_locked {
        pages::lock(addr, len);
    }
    ledger.moved.insert(addr, Moved { len, offset, holders: 1, is_locked, is_dontfork });
    Ok(Extent { addr, len, arena_offset: offset })
}

/// Appends an extent, or lengthens the last one when it goes on in memory and in the arena.
fn push(extents: &mut Vec<Extent>, extent: Extent) {
    match extents.last_mut() {
        Some(last)
            if last.addr + last.len == extent.addr
                && last.arena_offset + last.len as u64 == extent.arena_offset =>
        {
            last.len += extent.len;
        }
        _ => extents.push(extent),
    }
}

/// Uncounts the extents' ranges and moves those back that no extent counts any more. All are tried;
/// the first error is the answer.
fn give_back(
    (shared, step): (&ArenaShared, usize),
    ledger: &mut Ledger,
    extents: &[Extent],
) -> io::Result<()> {
    let mut answer = Ok(());
    for extent in extents {
        let end = extent.addr + extent.len;
        ledger.split_at(extent.addr);
        ledger.split_at(end);
        let inside: Vec<_> = ledger.moved.range(extent.addr..end).map(|(a, m)| (*a, *m)).collect();
        for (addr, moved) in inside {
            if moved.holders > 1 {
                ledger.moved.insert(addr, Moved { holders: moved.holders - 1, ..moved });
            } else {
                // Also after a failure: the owner may unmap the range now, and then the ledger would lie
                // about whatever comes to its addresses.
                ledger.moved.remove(&addr);
                let moved_out = move_out((shared, step), addr, moved);
                answer = answer.and(moved_out);
            }
        }
    }
    answer
}

/// Moves one range back.
fn move_out((shared, step): (&ArenaShared, usize), addr: usize, moved: Moved) -> io::Result<()> {
    pages::move_out((shared, step), addr, moved)?;
    if moved.is_locked {
        pages::lock(addr, moved.len);
    }
    Ok(())
}

/// Bytes of a range that move at a time. For a moment they are there twice, and the kernel ends a program whose control
/// group has no room for them: where that is nearly full, few move at a time.
fn step(len: usize) -> usize {
    if len < GROUP_MIN || room::group_has(2 * CHUNK_LEN) { CHUNK_LEN } else { SMALL_STEP }
}

/// Shorter ranges move as they are: to look at the control group takes a good part of the time that the move does.
const GROUP_MIN: usize = 256 << 10;
/// Bytes that a control group has left in any program that is not about to end.
const SMALL_STEP: usize = 64 << 10;

/// A range in pieces that end at multiples of `step`.
fn chunks(addr: usize, len: usize, step: usize) -> impl Iterator<Item = (usize, usize)> {
    let end = addr + len;
    let mut at = addr;
    core::iter::from_fn(move || {
        let next = end.min((at / step + 1) * step);
        let piece = (at < end).then_some((at, next - at));
        at = next;
        piece
    })
}

#[cfg(all(test, not(loom)))]
mod tests;
