//! Receive queue entries: a fixed stride of SGEs per queue.
//!
//! *Owns*: the layout: `max_sge` (rounded up to a power of two) SGEs of 16 bytes. An SGE of
//! length 0 ends the list. The producer index is a 32-bit word in host memory (the software
//! doorbell record); the device reads it when it needs a receive, so posting rings nothing.

use crate::sqe::Sge;

/// Most SGEs of a receive entry.
pub const SGE_MAX: usize = 16;
/// Words of the longest receive entry.
pub const RQE_WORDS_MAX: usize = SGE_MAX * 2;

/// Bytes between entries of a queue whose requests have at most `max_sge` SGEs.
#[inline]
#[must_use]
pub const fn stride(max_sge: usize) -> usize {
    let n = if max_sge == 0 { 1 } else { max_sge };
    n.next_power_of_two() * crate::sqe::SGE_LEN
}

/// One receive entry, decoded.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Rqe {
    /// Pieces in order; unused ones have length 0.
    pub sges: [Sge; SGE_MAX],
    /// Number of pieces in use, 0 to 16.
    pub num: usize,
}

impl Rqe {
    /// The entry of `sges`; pieces of length 0 are left out, pieces beyond [`SGE_MAX`] too.
    #[must_use]
    pub fn new(sges: &[Sge]) -> Self {
        let mut rqe = Self { sges: [Sge::default(); SGE_MAX], num: 0 };
        for sge in sges.iter().filter(|s| s.len != 0).take(SGE_MAX) {
            rqe.sges[rqe.num] = *sge;
            rqe.num += 1;
        }
        rqe
    }

    /// Words of the longest entry; a queue's stride takes its front.
    #[must_use]
    pub fn encode(&self) -> [u64; RQE_WORDS_MAX] {
        let mut words = [0; RQE_WORDS_MAX];
        for (pair, sge) in words.chunks_exact_mut(2).zip(&self.sges) {
            pair.copy_from_slice(&sge.to_words());
        }
        words
    }

    /// Reads an entry from the words of one stride; never fails, a list ends at length 0.
    #[must_use]
    pub fn decode(words: &[u64]) -> Self {
        let mut rqe = Self { sges: [Sge::default(); SGE_MAX], num: 0 };
        for pair in words.chunks_exact(2).take(SGE_MAX) {
            let sge = Sge::from_words([pair[0], pair[1]]);
            if sge.len == 0 {
                break;
            }
            rqe.sges[rqe.num] = sge;
            rqe.num += 1;
        }
        rqe
    }

    /// Bytes that the entry can take.
    #[inline]
    #[must_use]
    pub fn capacity(&self) -> u64 {
        self.sges.iter().take(self.num).map(|s| u64::from(s.len)).sum()
    }
}

/// Offsets, in bytes, in the doorbell record that accompanies a queue (SQ: `CI`, RQ: `PI`).
/// Producer and consumer words lie on cache lines of their own.
pub mod record {
    /// Bytes of the whole record.
    pub const LEN: usize = 256;
    /// Receive producer index (driver writes, free running, counts entries).
    pub const RQ_PI: usize = 0;
    /// Receive consumer index (device writes, free running).
    pub const RQ_CI: usize = 128;
    /// Send consumer index (device writes, free running, counts blocks): all before it retired.
    pub const SQ_CI: usize = 192;
}
