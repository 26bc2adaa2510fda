//! Messages of a run, and the beats of their pieces.
//!
//! - owns: mixes, how a piece becomes beats. takes: a mix and a seed. gives: messages. must not: know an engine.
#![expect(
    clippy::cast_possible_truncation,
    reason = "counts are bounded by 65536 beats and packets of 8 KiB"
)]

use std::collections::VecDeque;

use crate::random::EngineRandom;

/// A piece in host memory.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct HostPiece {
    /// Address modulo the width of a beat.
    pub offset: u32,
    /// Length in bytes, 0 for none.
    pub len: u32,
}

/// A message in pieces.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct PieceMessage {
    /// Path MTU as a power of two.
    pub mtu_log2: u8,
    /// Pieces in the order in which they are joined.
    pub pieces: Vec<HostPiece>,
}

impl PieceMessage {
    /// Bytes of all pieces together.
    #[must_use]
    pub fn len(&self) -> u64 {
        self.pieces.iter().map(|piece| u64::from(piece.len)).sum()
    }

    /// The message has no byte.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Byte counts of the beats, as the DMA side offers them.
    #[must_use]
    pub fn beats(&self, width: u32) -> Vec<u16> {
        let mut beats = Vec::new();
        for piece in &self.pieces {
            let mut left = piece.len;
            let mut room = width - piece.offset % width;
            while left > 0 {
                let len = left.min(room);
                beats.push(len as u16);
                left -= len;
                room = width;
            }
        }
        if beats.is_empty() {
            beats.push(0);
        }
        beats
    }

    /// Beats of each DMA read: a read is of one piece and at most as many full beats as the MTU has.
    #[must_use]
    pub fn reads(&self, width: u32) -> VecDeque<u32> {
        let most = (1 << self.mtu_log2) / width;
        let mut reads = VecDeque::new();
        for piece in self.pieces.iter().filter(|piece| piece.len > 0) {
            let mut beats = (piece.offset % width + piece.len).div_ceil(width);
            while beats > 0 {
                let read = beats.min(most);
                reads.push_back(read);
                beats -= read;
            }
        }
        if reads.is_empty() {
            reads.push_back(1);
        }
        reads
    }
}

/// How long the messages of a run are.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum LengthMix {
    /// Half 64 to 256 bytes, 30 % 512 to 2048, 15 % 4096 to 16384, 5 % 65536.
    Rpc,
    /// All of this many bytes.
    Fixed(u32),
}

impl LengthMix {
    fn draw(self, random: &mut EngineRandom) -> u64 {
        match self {
            Self::Fixed(len) => u64::from(len),
            Self::Rpc => match random.below(100) {
                0..50 => 64 + random.below(193),
                50..80 => 512 + random.below(1537),
                80..95 => 4096 + random.below(12_289),
                _ => 65_536,
            },
        }
    }

    /// `count` messages of one to four pieces from a seed.
    #[must_use]
    pub fn messages(self, count: usize, seed: u64, mtu_log2: u8) -> Vec<PieceMessage> {
        let mut random = EngineRandom::new(seed);
        (0..count)
            .map(|_| {
                let mut rest = self.draw(&mut random);
                let n = (1 + random.below(4)).min(rest);
                let mut pieces = Vec::new();
                for k in (2..=n).rev() {
                    let len = 1 + random.below(rest - k + 1);
                    pieces.push(HostPiece { offset: 0, len: len as u32 });
                    rest -= len;
                }
                pieces.push(HostPiece { offset: 0, len: rest as u32 });
                PieceMessage { mtu_log2, pieces }
            })
            .collect()
    }
}
