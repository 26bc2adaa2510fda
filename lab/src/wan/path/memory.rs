//! The knitting pool of a run: it grows and shrinks by what the TPs hold of it.
//!
//! - owns: pieces of memory. takes: how much of the pool is in use. gives: the pool.
//! - must not: decide what a block holds.

use urma_mem::Region;
use urma_recovery::{DmaCfg, DmaModel, KnittingPool};

/// Blocks in a piece.
const PIECE_BLOCKS: u32 = 1 << 14;
/// Binary logarithm of the bytes of a block.
const BLOCK_LOG2: u8 = 6;

/// A pool and the names of its pieces.
#[derive(Debug)]
pub(in crate::wan) struct RunMemory {
    pub(in crate::wan) pool: KnittingPool,
    /// Names of the pieces, the newest last.
    pieces: Vec<u64>,
    next: u64,
    blocks_max: u64,
}

impl RunMemory {
    /// A pool of one piece behind an engine with these costs, and a NIC with so many lines.
    pub(in crate::wan) fn new(dma: DmaCfg, nic_lines: usize) -> Self {
        let mut pool = KnittingPool::new();
        pool.set_nic_lines(nic_lines);
        *pool.dma_mut() = DmaModel::new(dma);
        let mut memory = Self { pool, pieces: Vec::new(), next: 1, blocks_max: 0 };
        memory.grow();
        memory
    }

    /// Most blocks that the pool had.
    pub(super) const fn blocks_max(&self) -> u64 {
        self.blocks_max
    }

    /// Keeps at least half a piece free.
    pub(in crate::wan) fn refill(&mut self) {
        if self.pool.usage().free < u64::from(PIECE_BLOCKS / 2) {
            self.grow();
        }
    }

    /// Gives a piece back if more than two are free; called now and then.
    pub(super) fn trim(&mut self) {
        if self.pool.usage().free > u64::from(PIECE_BLOCKS / 2 * 5) {
            self.shrink();
        }
    }

    fn grow(&mut self) {
        let Ok(region) = Region::private((PIECE_BLOCKS as usize) << BLOCK_LOG2) else { return };
        let base = self.next << 32;
        // A pool with all the pieces that it can have stays as it is.
        if self.pool.grow(base, region, BLOCK_LOG2, PIECE_BLOCKS).is_ok() {
            self.pieces.push(base);
            self.next += 1;
            self.blocks_max = self.blocks_max.max(self.pool.usage().blocks);
        }
    }

    /// Of pieces in use none is taken.
    fn shrink(&mut self) {
        let pool = &mut self.pool;
        if let Some(at) = self.pieces.iter().rposition(|base| pool.shrink(*base).is_ok()) {
            self.pieces.remove(at);
        }
    }
}

#[cfg(test)]
mod tests {
    use urma_recovery::{DataMark, KnittingRecord, LossRecord as _};

    use super::*;

    #[test]
    fn the_pool_follows_its_use() {
        let mut memory = RunMemory::new(DmaCfg::default(), 64);
        let mut records: Vec<KnittingRecord> = (0..400).map(KnittingRecord::new).collect();
        for record in &mut records {
            record.record(&mut memory.pool, 0, 50_000, DataMark::default()).expect("a block");
            memory.refill();
        }
        let most = memory.pool.usage().blocks;
        assert!(most > 40_000, "{most}");
        for record in &mut records {
            record.release(&mut memory.pool);
            memory.trim();
        }
        assert!(memory.pool.usage().blocks <= most / 2 && memory.blocks_max() >= most);
    }
}
