//! The functional half: pieces joined and cut, one packet a call.
//!
//! - owns: the position in the pieces. takes: pieces, MTU, tag. gives: packets with their sideband.
//! - must not: allocate, model time.

use crate::engine::Sideband;

/// A message that is not begun.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum BeginError {
    /// The MTU is out of range.
    #[error("mtu {0}: want a power of two, 256 to 8192")]
    Mtu(u32),
    /// The message is longer than its packets can be numbered.
    #[error("length {0}: want less than 2^32 packets of the MTU")]
    Length(u64),
}

/// Joins the pieces of one message and cuts the result by the MTU. It allocates nothing.
#[derive(Clone, Debug)]
pub struct Packetizer<'a> {
    /// Pieces that are not used up; `skip` bytes of the first one are.
    pieces: &'a [&'a [u8]],
    skip: usize,
    left: u64,
    mtu: u32,
    tag: u32,
    /// Number of the next packet; `None` when all are out.
    index: Option<u32>,
}

impl<'a> Packetizer<'a> {
    /// Begins a message of `pieces`, which are cut by `mtu` bytes.
    ///
    /// # Errors
    ///
    /// `mtu` is no power of two from 256 to 8192, or the message has too many packets.
    pub fn begin(pieces: &'a [&'a [u8]], mtu: u32, tag: u32) -> Result<Self, BeginError> {
        if !mtu.is_power_of_two() || !(256..=8192).contains(&mtu) {
            return Err(BeginError::Mtu(mtu));
        }
        let left: u64 = pieces.iter().map(|piece| piece.len() as u64).sum();
        if left.div_ceil(u64::from(mtu)) > u64::from(u32::MAX) {
            return Err(BeginError::Length(left));
        }
        Ok(Self { pieces, skip: 0, left, mtu, tag, index: Some(0) })
    }

    /// Writes the payload of the next packet to the beginning of `buf`. `None` when all packets are out; a buffer
    /// shorter than the packet gets nothing, and the packet stays.
    pub fn next(&mut self, buf: &mut [u8]) -> Option<Sideband> {
        let index = self.index?;
        let len = u32::try_from(self.left).map_or(self.mtu, |left| left.min(self.mtu));
        let mut to = buf.get_mut(..len as usize)?;
        while !to.is_empty() {
            let (piece, rest) = self.pieces.split_first()?;
            let from = &piece[self.skip..];
            let n = from.len().min(to.len());
            let (now, later) = to.split_at_mut(n);
            now.copy_from_slice(&from[..n]);
            to = later;
            self.skip += n;
            if self.skip == piece.len() {
                (self.pieces, self.skip) = (rest, 0);
            }
        }
        self.left -= u64::from(len);
        let last = self.left == 0;
        self.index = if last { None } else { Some(index + 1) };
        Some(Sideband { tag: self.tag, index, len, first: index == 0, last })
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn packets_are_the_chunks_of_the_pieces_joined(
            pieces in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..1500), 0..9),
            mtu_log2 in 8_u32..=13,
        ) {
            let mtu = 1_u32 << mtu_log2;
            let slices: Vec<&[u8]> = pieces.iter().map(Vec::as_slice).collect();
            let joined = pieces.concat();
            let mut chunks: Vec<&[u8]> = joined.chunks(mtu as usize).collect();
            if chunks.is_empty() {
                chunks.push(&[]);
            }
            let mut packetizer = Packetizer::begin(&slices, mtu, 7).expect("an MTU in range");
            let mut buf = vec![0; mtu as usize];
            for (index, chunk) in chunks.iter().enumerate() {
                let sideband = packetizer.next(&mut buf).expect("a packet");
                let last = index + 1 == chunks.len();
                let want = Sideband {
                    tag: 7,
                    index: u32::try_from(index).expect("few"),
                    len: u32::try_from(chunk.len()).expect("short"),
                    first: index == 0,
                    last,
                };
                prop_assert_eq!(sideband, want);
                prop_assert_eq!(&buf[..chunk.len()], *chunk);
            }
            prop_assert_eq!(packetizer.next(&mut buf), None);
        }
    }

    #[test]
    fn a_short_buffer_gets_nothing_and_loses_nothing() {
        let pieces: [&[u8]; 1] = [&[5; 300]];
        let mut packetizer = Packetizer::begin(&pieces, 256, 0).expect("an MTU in range");
        assert_eq!(packetizer.next(&mut [0; 255]), None);
        let mut buf = [0; 256];
        assert_eq!(packetizer.next(&mut buf).map(|sideband| sideband.len), Some(256));
        assert_eq!(
            packetizer.next(&mut buf).map(|sideband| (sideband.len, sideband.last)),
            Some((44, true))
        );
    }

    #[test]
    fn an_mtu_out_of_range_is_refused_with_its_rule() {
        for mtu in [0, 128, 300, 16_384] {
            let error = Packetizer::begin(&[], mtu, 0).expect_err("refused");
            assert_eq!(error.to_string(), format!("mtu {mtu}: want a power of two, 256 to 8192"));
        }
    }
}
