//! Blocks of the knitting pool and their free list.
//!
//! - owns: pieces of host memory cut into blocks, who holds which block, the free list, the
//!   high-water mark.
//! - takes: regions from the pool commands. gives: blocks to loss records, words of a block.
//! - must not: follow a link or hand out a block that its own table of holders contradicts.
//!
//! A block of `1 << block_log2` bytes: bitmap words, then 8 bytes that name the next block of the
//! list it is in (a TP's list, or the free list). Links and words lie in memory that the driver can
//! scribble on; the table of holders does not.
#![expect(
    clippy::cast_possible_truncation,
    reason = "usize has 64 bits on supported targets; block numbers have 32"
)]

use urma_mem::Region;

use super::dma::DmaModel;
use super::nic::NicLines;
use super::{BlockId, Holder};

const FREE: u32 = 0;
/// Link of the last block of a list.
const END: u64 = 0;
const WORD: usize = size_of::<u64>();

/// Smallest block: a cache line, seven bitmap words and the link.
pub(crate) const BLOCK_LOG2_MIN: u8 = 6;
/// Largest block: a page.
pub(crate) const BLOCK_LOG2_MAX: u8 = 12;
/// Pieces that the pool can be made of; bounds the table a driver can make us keep.
const PIECES_MAX: usize = 256;

/// One piece of host memory given by a grow command.
#[derive(Debug)]
struct GrownMemory {
    base: u64,
    region: Region,
    /// Holder of each block.
    holders: Vec<u32>,
    /// Blocks from here on were never taken: they are in no list and their memory is untouched, so
    /// that a pool costs memory only as far as it was used.
    fresh: usize,
}

/// Why a pool command was refused.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum PoolError {
    /// The block size is not supported or differs from that of the blocks there are.
    #[error("block size 2^{0} is not supported or differs from the pool's")]
    BlockSize(u8),
    /// No block fits, the memory is misaligned for its blocks, or there are too many pieces.
    #[error("the memory does not hold blocks of the asked number and alignment")]
    Memory,
    /// A piece with this base is in the pool already.
    #[error("a piece at {0:#x} is in the pool already")]
    Exists(u64),
    /// No piece has this base.
    #[error("no piece of the pool starts at {0:#x}")]
    NotFound(u64),
    /// TPs hold blocks of the piece.
    #[error("TPs hold blocks of the piece")]
    InUse,
}

/// Answer to a pool query.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct PoolUsage {
    /// Bytes of a block; 0 while the pool is empty.
    pub block_bytes: u64,
    /// Number of blocks in the pool, free or not.
    pub blocks: u64,
    /// Blocks that no TP holds.
    pub free: u64,
    /// Most blocks that were held at one time.
    pub used_max: u64,
    /// Times the free list was found scribbled on and made anew.
    pub repairs: u64,
}

/// Blocks that were moved since a pool was made.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct PoolTraffic {
    /// Blocks that TPs took.
    pub taken: u64,
    /// Blocks that they gave back.
    pub given: u64,
    /// Blocks added to the pool.
    pub grown: u64,
    /// Blocks taken out of it.
    pub shrunk: u64,
}

/// The pool shared by all TPs of a device.
#[derive(Debug, Default)]
pub struct KnittingPool {
    /// Position is a block's `piece`; a shrunk piece leaves a hole that the next grow fills.
    pieces: Vec<Option<GrownMemory>>,
    block_log2: u8,
    free_head: u64,
    /// Blocks in the free list.
    linked: u64,
    /// Blocks that no TP holds: those of the list and the fresh ones.
    free: u64,
    blocks: u64,
    used_max: u64,
    repairs: u64,
    traffic: PoolTraffic,
    dma: DmaModel,
    pub(super) nic: NicLines,
}

/// A link or a word that cannot be: something wrote to the pool that must not.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Scribbled;

impl KnittingPool {
    /// A pool without blocks: every packet beyond a gap is treated as lost.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds `blocks` blocks of `1 << block_log2` bytes that lie in `region` from its start on.
    /// `base` names the piece in [`KnittingPool::shrink`].
    /// After a [`PoolError`] nothing changed.
    pub fn grow(
        &mut self,
        base: u64,
        region: Region,
        block_log2: u8,
        blocks: u32,
    ) -> Result<(), PoolError> {
        self.check_geometry(base, &region, block_log2, blocks)?;
        let slot = match self.pieces.iter().position(Option::is_none) {
            Some(slot) => slot,
            None if self.pieces.len() == PIECES_MAX => return Err(PoolError::Memory),
            None => {
                self.pieces.push(None);
                self.pieces.len() - 1
            }
        };
        let holders = vec![FREE; blocks as usize];
        self.pieces[slot] = Some(GrownMemory { base, region, holders, fresh: 0 });
        self.block_log2 = block_log2;
        self.blocks += u64::from(blocks);
        self.free += u64::from(blocks);
        self.traffic.grown += u64::from(blocks);
        Ok(())
    }

    /// Takes the piece at `base` out of the pool.
    pub fn shrink(&mut self, base: u64) -> Result<(), PoolError> {
        let found = |p: &Option<GrownMemory>| p.as_ref().is_some_and(|p| p.base == base);
        let slot = self.pieces.iter().position(found).ok_or(PoolError::NotFound(base))?;
        let piece = self.pieces[slot].as_ref().ok_or(PoolError::NotFound(base))?;
        if piece.holders.iter().any(|&holder| holder != FREE) {
            return Err(PoolError::InUse);
        }
        let blocks = piece.holders.len() as u64;
        self.blocks -= blocks;
        self.free -= blocks;
        self.traffic.shrunk += blocks;
        self.pieces[slot] = None;
        self.rebuild_free_list();
        Ok(())
    }

    /// Returns block size, number of blocks, free ones and the most ever used.
    pub fn usage(&self) -> PoolUsage {
        let block_bytes = if self.blocks == 0 { 0 } else { 1 << self.block_log2 };
        PoolUsage {
            block_bytes,
            blocks: self.blocks,
            free: self.free,
            used_max: self.used_max,
            repairs: self.repairs,
        }
    }

    /// Blocks that were taken and given back, and that came and went.
    #[must_use]
    pub const fn traffic(&self) -> PoolTraffic {
        self.traffic
    }

    /// The engine by which a NIC reaches it.
    #[must_use]
    pub const fn dma(&self) -> &DmaModel {
        &self.dma
    }

    /// As [`KnittingPool::dma`], to change it.
    pub const fn dma_mut(&mut self) -> &mut DmaModel {
        &mut self.dma
    }

    /// Bitmap words of a block.
    pub(crate) const fn words(&self) -> usize {
        ((1 << self.block_log2) / WORD).saturating_sub(1)
    }

    /// Blocks that no TP holds.
    pub(crate) const fn free(&self) -> u64 {
        self.free
    }

    /// A block with a zero bitmap and no successor, held by `holder`; `None` when there is none.
    pub(crate) fn take(&mut self, holder: Holder) -> Option<BlockId> {
        if self.free == 0 {
            return None;
        }
        let block = self.next_free()?;
        for word in 0..self.words() {
            self.store(block, word, 0).ok()?;
        }
        self.link(block, None).ok()?;
        *self.holder_mut(block)? = holder.0;
        self.free -= 1;
        self.traffic.taken += 1;
        self.used_max = self.used_max.max(self.blocks - self.free);
        Some(block)
    }

    /// Gives a block back.
    pub(crate) fn give(&mut self, block: BlockId, holder: Holder) -> Result<(), Scribbled> {
        self.held(block, holder)?;
        let head = self.free_head;
        self.store(block, self.words(), head)?;
        *self.holder_mut(block).ok_or(Scribbled)? = FREE;
        self.free_head = Self::encode(block);
        self.linked += 1;
        self.free += 1;
        self.traffic.given += 1;
        Ok(())
    }

    /// Gives back whatever `holder` holds, without following a link.
    pub(crate) fn give_all(&mut self, holder: Holder) {
        for piece in self.pieces.iter_mut().flatten() {
            let taken_once = piece.holders.iter_mut().take(piece.fresh);
            for slot in taken_once.filter(|slot| **slot == holder.0) {
                *slot = FREE;
                self.free += 1;
                self.traffic.given += 1;
            }
        }
        self.rebuild_free_list();
    }

    /// The block after `block` in the holder's list.
    pub(crate) fn next(
        &self,
        block: BlockId,
        holder: Holder,
    ) -> Result<Option<BlockId>, Scribbled> {
        let link = self.load(block, self.words(), holder)?;
        if link == END {
            return Ok(None);
        }
        let next = Self::decode(link)?;
        self.held(next, holder)?;
        Ok(Some(next))
    }

    /// Makes `next` the successor of `block`.
    pub(crate) fn link(&self, block: BlockId, next: Option<BlockId>) -> Result<(), Scribbled> {
        self.store(block, self.words(), next.map_or(END, Self::encode))
    }

    /// Bitmap word `word` of a block of `holder`.
    pub(crate) fn load(
        &self,
        block: BlockId,
        word: usize,
        holder: Holder,
    ) -> Result<u64, Scribbled> {
        self.held(block, holder)?;
        self.load_raw(block, word)
    }

    /// Stores a bitmap word.
    pub(crate) fn store(&self, block: BlockId, word: usize, value: u64) -> Result<(), Scribbled> {
        let piece = self.piece(block)?;
        piece.region.store_u64(self.offset(block, word), value).map_err(|_| Scribbled)
    }

    fn check_geometry(
        &self,
        base: u64,
        region: &Region,
        block_log2: u8,
        blocks: u32,
    ) -> Result<(), PoolError> {
        let known = self.blocks == 0 || self.block_log2 == block_log2;
        if !known || !(BLOCK_LOG2_MIN..=BLOCK_LOG2_MAX).contains(&block_log2) {
            return Err(PoolError::BlockSize(block_log2));
        }
        let bytes = (blocks as usize) << block_log2;
        let aligned = base.trailing_zeros() >= u32::from(block_log2)
            && region.addr().trailing_zeros() >= WORD.trailing_zeros();
        if blocks == 0 || bytes > region.len() || !aligned || !region.is_writable() {
            return Err(PoolError::Memory);
        }
        if self.pieces.iter().flatten().any(|piece| piece.base == base) {
            return Err(PoolError::Exists(base));
        }
        Ok(())
    }

    /// Links every block that was taken once and that no TP holds, in order; the table of holders is
    /// the truth.
    fn rebuild_free_list(&mut self) {
        let mut head = END;
        let mut linked = 0;
        for (number, piece) in self.pieces.iter().enumerate().rev() {
            let Some(piece) = piece else { continue };
            for index in (0..piece.fresh).rev().filter(|&index| piece.holders[index] == FREE) {
                let block = BlockId { piece: number as u32, index: index as u32 };
                // A store can fail only outside the region, which grow() has checked.
                if self.store(block, self.words(), head).is_ok() {
                    head = Self::encode(block);
                    linked += 1;
                }
            }
        }
        self.free_head = head;
        self.linked = linked;
    }

    /// A block of the free list, repaired where needed, or a fresh one.
    fn next_free(&mut self) -> Option<BlockId> {
        if self.linked == 0 {
            return self.take_fresh();
        }
        self.pop_free().ok().or_else(|| {
            self.repairs += 1;
            self.rebuild_free_list();
            self.pop_free().ok()
        })
    }

    fn take_fresh(&mut self) -> Option<BlockId> {
        let mut pieces = (0..).zip(&mut self.pieces);
        pieces.find_map(|(number, piece)| {
            let piece = piece.as_mut().filter(|piece| piece.fresh < piece.holders.len())?;
            let block = BlockId { piece: number, index: piece.fresh as u32 };
            piece.fresh += 1;
            Some(block)
        })
    }

    fn pop_free(&mut self) -> Result<BlockId, Scribbled> {
        let block = Self::decode(self.free_head)?;
        if self.holder(block) != Some(FREE) {
            return Err(Scribbled);
        }
        let next = self.load_raw(block, self.words())?;
        let next_is_free = match Self::decode(next) {
            Ok(next) => self.holder(next) == Some(FREE) && next != block,
            Err(Scribbled) => next == END && self.linked == 1,
        };
        if !next_is_free {
            return Err(Scribbled);
        }
        self.free_head = next;
        self.linked -= 1;
        Ok(block)
    }

    fn load_raw(&self, block: BlockId, word: usize) -> Result<u64, Scribbled> {
        self.piece(block)?.region.load_u64(self.offset(block, word)).map_err(|_| Scribbled)
    }

    fn held(&self, block: BlockId, holder: Holder) -> Result<(), Scribbled> {
        if self.holder(block) == Some(holder.0) { Ok(()) } else { Err(Scribbled) }
    }

    fn holder(&self, block: BlockId) -> Option<u32> {
        self.piece(block).ok()?.holders.get(block.index as usize).copied()
    }

    fn holder_mut(&mut self, block: BlockId) -> Option<&mut u32> {
        let piece = self.pieces.get_mut(block.piece as usize)?.as_mut()?;
        piece.holders.get_mut(block.index as usize)
    }

    fn piece(&self, block: BlockId) -> Result<&GrownMemory, Scribbled> {
        self.pieces.get(block.piece as usize).and_then(Option::as_ref).ok_or(Scribbled)
    }

    const fn offset(&self, block: BlockId, word: usize) -> usize {
        ((block.index as usize) << self.block_log2) + word * WORD
    }

    const fn encode(block: BlockId) -> u64 {
        (block.piece as u64 + 1) << 32 | block.index as u64
    }

    fn decode(link: u64) -> Result<BlockId, Scribbled> {
        let piece = u32::try_from(link >> 32).ok().and_then(|p| p.checked_sub(1));
        let piece = piece.ok_or(Scribbled)?;
        Ok(BlockId { piece, index: link as u32 })
    }
}
