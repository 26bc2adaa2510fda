//! Local pieces of a request, looked up before the first byte is moved.
//!
//! *Owns*: a list for the length of one request. *Takes*: the words of an entry, segments that were used before.
//! *Gives*: copies between the pieces and one range of memory, in the order of [`gather`](super::gather). *Must not*:
//! look up a segment while bytes are moved.

use udma_abi::{CqeStatus, Opcode, Sge, sqe::sge_max};
use urma_mem::Region;

use super::gather::{Store, TAIL, list};
use crate::context::segment::{LocalSegment, SegmentCache};

/// Most pieces of a WRITE or READ.
const PIECES_MAX: usize = sge_max(Opcode::Write);

/// The pieces of one request.
#[derive(Debug)]
pub(crate) struct FoundPieces<'s> {
    list: [FoundPiece<'s>; PIECES_MAX],
    num: usize,
}

#[derive(Clone, Copy, Debug)]
struct FoundPiece<'s> {
    /// `None` in unused elements of the list.
    region: Option<&'s Region>,
    at: usize,
    len: usize,
}

/// Length of all pieces together, in bytes.
#[inline]
pub(crate) fn len_of(words: &[u64]) -> u64 {
    list(words).map(|sge| u64::from(sge.len)).sum()
}

/// Looks up a local piece in the cache of segments used before. `None`: not there, or it must not be read, or stored
/// to.
#[inline(always)]
pub(crate) fn local_of(
    segments: &SegmentCache,
    piece: Sge,
    store: Store,
) -> Option<(&LocalSegment, usize)> {
    let local = segments.known(piece.token_id)?;
    Some((local, place_in(local, piece, store)?))
}

/// Offset of a piece in its segment; `None`: out of bounds, or it must not be read, or stored to.
#[inline(always)]
fn place_in(local: &LocalSegment, piece: Sge, store: Store) -> Option<usize> {
    let len = u64::from(piece.len);
    let is_fit = match store {
        Store::No => !local.is_poisoned(piece.va, len),
        Store::Yes => local.region.is_writable(),
    };
    local.offset_of(piece.va, len).filter(|_| is_fit)
}

impl<'s> FoundPieces<'s> {
    pub(crate) const NONE: Self =
        Self { list: [FoundPiece { region: None, at: 0, len: 0 }; PIECES_MAX], num: 0 };

    /// Looks up all pieces. `None`: a segment is not cached, or a piece does not fit in it.
    #[inline]
    pub(crate) fn find(
        &mut self,
        segments: &'s SegmentCache,
        words: &[u64],
        store: Store,
    ) -> Option<()> {
        let first = list(words).next()?;
        let mut local = segments.known(first.token_id)?;
        for (sge, piece) in list(words).zip(&mut self.list) {
            if sge.token_id != local.token_id {
                local = segments.known(sge.token_id)?;
            }
            let at = place_in(local, sge, store)?;
            *piece = FoundPiece { region: Some(&local.region), at, len: sge.len as usize };
            self.num += 1;
        }
        Some(())
    }

    /// Copies all pieces to one range, in message order. The last bytes may lie in more than one piece: they are
    /// joined, and stored after everything else.
    #[inline]
    pub(crate) fn write_to(&self, (to, offset): (&Region, usize)) -> Result<(), CqeStatus> {
        let len: usize = self.list().map(|piece| piece.len).sum();
        let body = len - len.min(TAIL);
        let mut tail = [0; TAIL];
        let mut done = 0;
        for piece in self.list() {
            let from = piece.region.ok_or(CqeStatus::LocLen)?;
            let front = piece.len.min(body.saturating_sub(done));
            if front != 0 {
                let copied = from.copy_to(piece.at, to, offset + done, front);
                copied.map_err(|_| CqeStatus::LocAccess)?;
            }
            if front != piece.len {
                let at = done + front - body;
                let bytes = tail.get_mut(at..at + piece.len - front).ok_or(CqeStatus::LocLen)?;
                from.read(piece.at + front, bytes).map_err(|_| CqeStatus::LocAccess)?;
            }
            done += piece.len;
        }
        let tail = tail.get(..len - body).ok_or(CqeStatus::LocLen)?;
        to.write_ordered(offset + body, tail).map_err(|_| CqeStatus::RemAccessAbort)
    }

    /// Copies one range to all pieces, in message order. The end of each piece is stored after the rest of it.
    #[inline]
    pub(crate) fn read_from(&self, (from, offset): (&Region, usize)) -> Result<(), CqeStatus> {
        let mut done = 0;
        for piece in self.list() {
            let to = piece.region.ok_or(CqeStatus::LocLen)?;
            let copied = from.copy_to_ordered(offset + done, to, piece.at, piece.len);
            copied.map_err(|_| CqeStatus::LocAccess)?;
            done += piece.len;
        }
        Ok(())
    }

    #[inline]
    fn list(&self) -> impl Iterator<Item = &FoundPiece<'s>> {
        self.list.iter().take(self.num)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Copies pieces of these lengths to memory of `room` bytes; what arrived there.
    fn written(lens: &[usize], room: usize) -> (Result<(), CqeStatus>, Vec<u8>) {
        let source = Region::private(4096).unwrap();
        source.write(0, &(1..=255).collect::<Vec<u8>>()).unwrap();
        let mut at = 0;
        let mut pieces = FoundPieces { num: lens.len(), ..FoundPieces::NONE };
        for (piece, len) in pieces.list.iter_mut().zip(lens) {
            *piece = FoundPiece { region: Some(&source), at, len: *len };
            at += len;
        }
        let memory = Region::private(4096).unwrap();
        let result = pieces.write_to((&memory.sub(0, room).unwrap(), 0));
        let mut bytes = vec![0; room];
        memory.read(0, &mut bytes).unwrap();
        (result, bytes)
    }

    #[test]
    fn the_end_of_a_message_is_stored_after_the_rest_of_it() {
        for lens in
            [&[40, 7, 20][..], &[40, 20, 7], &[40, 9, 9, 9], &[40, 0, 27, 0], &[67], &[3, 64]]
        {
            let all: Vec<u8> = (1..=67).collect();
            assert_eq!(written(lens, 67), (Ok(()), all.clone()), "{lens:?}");
            // Memory without room for the last byte of the end: all that comes before was stored.
            let before = [&all[..51], &[0; 15]].concat();
            assert_eq!(written(lens, 66), (Err(CqeStatus::RemAccessAbort), before), "{lens:?}");
            assert_eq!(written(lens, 50).0, Err(CqeStatus::LocAccess), "{lens:?}");
        }
        for (lens, all) in [(&[8, 8][..], 16), (&[1, 2, 3], 6), (&[0, 1], 1)] {
            assert_eq!(written(lens, all), (Ok(()), (1..).take(all).collect()), "{lens:?}");
        }
    }
}
