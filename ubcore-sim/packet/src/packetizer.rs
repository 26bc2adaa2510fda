//! The packetizer of a node: the pieces of a message are joined without gaps, and cut into packets.
//!
//! It knows lengths and positions alone. The bytes go straight from where they lie into the store of the packet, and
//! what the packetizer says of them goes beside it: the two rings, data and sideband, of `lab/splice`'s third scheme.

/// Control data of one packet.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Sideband {
    /// Name of the request.
    pub tag: u32,
    /// Number of the packet in its message, from 0.
    pub index: u32,
    /// Payload bytes, at most the MTU.
    pub len: u32,
    /// The first packet of its message.
    pub first: bool,
    /// The last packet of its message.
    pub last: bool,
}

/// How far a message is cut. A message that is sent again begins with a new one.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Packetizer {
    done: u32,
    index: u32,
}

impl Packetizer {
    /// Begins behind `index` packets of `size` bytes, to repeat the packets from there.
    #[must_use]
    pub const fn at(index: u32, size: u32) -> Self {
        Self { done: size.saturating_mul(index), index }
    }

    /// Number of bytes in the packets that were taken.
    #[inline(always)]
    #[must_use]
    pub const fn done(&self) -> u32 {
        self.done
    }

    /// Whether a packet was taken.
    #[inline(always)]
    #[must_use]
    pub const fn has_begun(&self) -> bool {
        self.index != 0
    }

    /// The next packet of request `tag`, a message of `len` bytes, with at most `size` of them. A message without bytes
    /// is one packet.
    #[inline]
    #[must_use]
    pub fn next_packet(&self, (tag, len): (u32, u32), size: usize) -> Sideband {
        let left = len.saturating_sub(self.done);
        let len = u32::try_from(size).map_or(left, |size| left.min(size));
        Sideband { tag, index: self.index, len, first: self.index == 0, last: len == left }
    }

    /// Takes the packet: it is stored beside its bytes.
    #[inline]
    pub const fn take(&mut self, packet: &Sideband) {
        self.done += packet.len;
        self.index += 1;
    }
}

/// Calls `read(piece, from, to, n)` for each piece, given with its length, that has bytes of the `len` ones at `at` in
/// the message which the pieces are joined to: `n` bytes of the piece at `from` are those at `to`. Returns how many bytes
/// there are; fewer than `len` if the pieces end.
///
/// # Errors
/// The first one of `read`.
#[inline]
pub fn splice<P, E>(
    pieces: impl IntoIterator<Item = (P, u32)>,
    (at, len): (u64, usize),
    mut read: impl FnMut(P, usize, usize, usize) -> Result<(), E>,
) -> Result<usize, E> {
    let (mut skip, mut done) = (at, 0);
    for (piece, size) in pieces {
        if done == len {
            break;
        }
        match u32::try_from(skip) {
            Ok(from) if from < size => {
                let n = ((size - from) as usize).min(len - done);
                read(piece, from as usize, done, n)?;
                done += n;
                skip = 0;
            }
            _ => skip -= u64::from(size),
        }
    }
    Ok(done)
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;

    use proptest::prelude::*;

    use super::*;

    /// Payload of the next packet, read from `pieces`.
    fn spliced(pieces: &[Vec<u8>], at: u32, len: usize) -> Vec<u8> {
        let mut bytes = vec![0; len];
        let sizes = pieces.iter().map(|piece| (piece, u32::try_from(piece.len()).expect("short")));
        let joined = splice(sizes, (at.into(), len), |piece, from, to, n| {
            bytes[to..to + n].copy_from_slice(&piece[from..from + n]);
            Ok::<(), Infallible>(())
        });
        bytes.truncate(joined.expect("nothing fails"));
        bytes
    }

    proptest! {
        #[test]
        fn packets_are_the_chunks_of_the_pieces_joined(
            pieces in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..1500), 0..9),
            mtu_log2 in 8_u32..=13,
            repeated in 0_u32..40,
        ) {
            let mtu = 1_usize << mtu_log2;
            let joined = pieces.concat();
            let mut chunks: Vec<&[u8]> = joined.chunks(mtu).collect();
            if chunks.is_empty() {
                chunks.push(&[]);
            }
            let len = u32::try_from(joined.len()).expect("short");
            let mut packetizer = Packetizer::default();
            for (index, chunk) in (0..).zip(&chunks) {
                let packet = packetizer.next_packet((7, len), mtu);
                let last = index as usize + 1 == chunks.len();
                let len_of = u32::try_from(chunk.len()).expect("short");
                prop_assert_eq!(
                    packet,
                    Sideband { tag: 7, index, len: len_of, first: index == 0, last }
                );
                prop_assert_eq!(spliced(&pieces, packetizer.done(), chunk.len()), *chunk);
                if index == repeated {
                    let again = Packetizer::at(index, 1 << mtu_log2);
                    prop_assert_eq!(again, packetizer);
                }
                packetizer.take(&packet);
                prop_assert!(packetizer.has_begun());
            }
            prop_assert_eq!(packetizer.done(), len);
        }
    }

    #[test]
    fn pieces_that_end_too_early_give_what_they_have() {
        let pieces = [vec![1; 5], vec![], vec![2; 5]];
        assert_eq!(spliced(&pieces, 3, 10), [1, 1, 2, 2, 2, 2, 2]);
        assert_eq!(spliced(&pieces, 10, 1), [0; 0]);
        assert_eq!(spliced(&pieces, 100, 1), [0; 0]);
        assert_eq!(spliced(&pieces, 2, 0), [0; 0]);
    }

    #[test]
    fn the_first_error_of_a_piece_ends_the_splice() {
        let mut seen = 0;
        let result = splice([(0, 4), (1, 4), (2, 4)], (2, 8), |piece, _, _, _| {
            seen += 1;
            if piece == 1 { Err("withdrawn") } else { Ok(()) }
        });
        assert_eq!((result, seen), (Err("withdrawn"), 2));
    }

    #[test]
    fn a_path_that_changes_its_mtu_changes_the_next_packet() {
        let mut packetizer = Packetizer::default();
        let mut ends = Vec::new();
        for size in [4096, 1024, 1024, 4096] {
            let packet = packetizer.next_packet((1, 7000), size);
            packetizer.take(&packet);
            ends.push((packet.len, packet.last));
        }
        assert_eq!(ends, [(4096, false), (1024, false), (1024, false), (856, true)]);
    }
}
