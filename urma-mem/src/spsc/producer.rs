//! The writing end of a ring.
//!
//! Owns: the tail, its own half's bytes. The place of the header at the tail is always 0.
//! Takes: payload.
//! Gives: `Producer::reserve` -> `EntrySlot` -> `publish`.
//! Must not: overwrite what the consumer has not given back; believe an impossible head.

use super::consumer::FRONT_WORDS;
use super::{BadLayout, Corrupt, ENTRY_ALIGN, HEADER_LEN, KIND_WRAP, NEXT_LEN, ReserveError};
use super::{check_layout, entry_size, header_word, index, len_max};
use crate::region::{OutOfBounds, Region};
use crate::words::Words;

/// Writing end of a ring between two processes; one thread at a time.
#[derive(Debug)]
pub struct Producer<W = Region> {
    own: W,
    peer: W,
    capacity: u64,
    tail: u64,
    /// Position and header of the first entry that is staged: stored last.
    first_staged: Option<(u64, u64)>,
    head_seen: u64,
    corrupt: Option<Corrupt>,
}

impl<W: Words> Producer<W> {
    /// The writing end of an empty ring: `own` is the half written here, `peer` holds the head
    /// line. Both must still be 0 (a ring is never taken over from a former producer).
    ///
    /// # Errors
    /// [`BadLayout`] when the capacity is no power of two within the limits, a window is too short,
    /// or the own window cannot be written.
    pub fn new(own: W, peer: W, capacity: usize) -> Result<Self, BadLayout> {
        let refused = BadLayout { capacity, own: own.len_bytes(), peer: peer.len_bytes() };
        check_layout(capacity, &own, &peer).ok_or(refused)?;
        own.store_release(0, 0).map_err(|_| refused)?;
        let capacity = capacity as u64;
        Ok(Self { own, peer, capacity, tail: 0, first_staged: None, head_seen: 0, corrupt: None })
    }

    /// Room for an entry with `len` bytes of payload. Dropping the slot gives the room back.
    ///
    /// # Errors
    /// [`ReserveError`].
    #[inline(always)]
    pub fn reserve(&mut self, len: usize) -> Result<EntrySlot<'_, W>, ReserveError> {
        if let Some(corrupt) = self.corrupt {
            return Err(corrupt.into());
        }
        if len > self.len_max() {
            return Err(ReserveError::TooLong);
        }
        let size = entry_size(len as u64);
        let at = self.tail & (self.capacity - 1);
        let to_end = self.capacity - at;
        let skip = if size <= to_end { 0 } else { to_end };
        if !self.has_room(skip + size) {
            self.refresh_head()?;
            if !self.has_room(skip + size) {
                return Err(ReserveError::Full);
            }
        }
        Ok(EntrySlot { ring: self, skip, size, len })
    }

    /// Longest payload an entry may have, in bytes: half the ring with its header.
    pub fn len_max(&self) -> usize {
        usize::try_from(len_max(self.capacity)).unwrap_or(0)
    }

    /// Makes all staged entries visible to the consumer.
    #[inline]
    pub fn publish_staged(&mut self) {
        if let Some((position, header)) = self.first_staged.take() {
            self.store(position, header);
            // The next entry stores there before its header, which would wait for the line.
            let ahead = self.tail + ENTRY_ALIGN as u64;
            self.own.prefetch_to_store(index(ahead & (self.capacity - 1)));
        }
    }

    /// Whether the consumer has taken everything that was published.
    ///
    /// # Errors
    /// [`Corrupt`] when the consumer's half contains an impossible value.
    pub fn is_drained(&mut self) -> Result<bool, Corrupt> {
        self.refresh_head()?;
        Ok(self.head_seen == self.published())
    }

    /// Position behind what the consumer may have taken.
    fn published(&self) -> u64 {
        self.first_staged.map_or(self.tail, |(position, _)| position)
    }

    /// Stores a header; all that was written before is visible to who sees it.
    #[inline]
    fn store(&self, position: u64, header: u64) {
        // The window was measured at construction; it cannot have become shorter.
        let stored = self.own.store_release(index(position & (self.capacity - 1)), header);
        debug_assert!(stored.is_ok());
    }

    /// Stores a header, or keeps it back if it is the first one since the last publication.
    #[inline]
    fn stage_header(&mut self, position: u64, header: u64) {
        if self.first_staged.is_none() {
            self.first_staged = Some((position, header));
        } else {
            self.store(position, header);
        }
    }

    #[inline]
    fn has_room(&self, size: u64) -> bool {
        self.tail - self.head_seen + size + NEXT_LEN <= self.capacity
    }

    #[inline(never)]
    fn refresh_head(&mut self) -> Result<(), Corrupt> {
        let head = self.peer.load_acquire(0)?;
        // Also checked: the consumer cannot have taken what was not published.
        let is_aligned = head.is_multiple_of(ENTRY_ALIGN as u64);
        if head < self.head_seen || head > self.published() || !is_aligned {
            let corrupt = Corrupt::Position { position: head };
            self.corrupt = Some(corrupt);
            return Err(corrupt);
        }
        self.head_seen = head;
        Ok(())
    }
}

/// Room in the ring for one entry, not yet visible to the consumer.
#[derive(Debug)]
pub struct EntrySlot<'a, W = Region> {
    ring: &'a mut Producer<W>,
    skip: u64,
    size: u64,
    len: usize,
}

impl<W: Words> EntrySlot<'_, W> {
    /// Writes bytes of the payload.
    ///
    /// # Errors
    /// [`OutOfBounds`] when they reach beyond the reserved length.
    #[inline]
    pub fn write(&mut self, offset: usize, bytes: &[u8]) -> Result<(), OutOfBounds> {
        let at = self.at(offset, bytes.len())?;
        self.ring.own.write_bytes(at, bytes)
    }

    /// Makes the entry complete but not yet visible; see [`Producer::publish_staged`].
    /// A `kind` of 0 or [`KIND_WRAP`] is the caller's mistake and is answered by [`OutOfBounds`].
    ///
    /// # Errors
    /// [`OutOfBounds`] for a reserved kind; nothing was staged then.
    #[inline(always)]
    pub fn stage(self, kind: u32) -> Result<(), OutOfBounds> {
        if kind == 0 || kind == KIND_WRAP {
            let offset = kind as usize;
            return Err(OutOfBounds { offset, len: 0, limit: KIND_WRAP as usize });
        }
        let Self { ring, skip, size, len } = self;
        let start = ring.tail + skip;
        // What lies there is of an earlier pass: it must not be read as a header behind this entry.
        ring.store(start + size, 0);
        if skip != 0 {
            ring.stage_header(ring.tail, header_word(KIND_WRAP, skip - HEADER_LEN));
        }
        ring.stage_header(start, header_word(kind, len as u64));
        ring.tail = start + size;
        Ok(())
    }

    /// Makes the entry, and all staged before it, visible to the consumer.
    ///
    /// # Errors
    /// As [`EntrySlot::stage`].
    #[inline]
    pub fn publish(self, kind: u32) -> Result<(), OutOfBounds> {
        let Self { ring, skip, size, len } = self;
        EntrySlot { ring: &mut *ring, skip, size, len }.stage(kind)?;
        ring.publish_staged();
        Ok(())
    }

    /// Length of the payload in bytes.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether the entry has no payload.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Offset in the half of `len` payload bytes at `offset`.
    #[inline(always)]
    fn at(&self, offset: usize, len: usize) -> Result<usize, OutOfBounds> {
        if offset > self.len || len > self.len - offset {
            return Err(OutOfBounds { offset, len, limit: self.len });
        }
        let start = (self.ring.tail + self.skip) & (self.ring.capacity - 1);
        Ok(index(start + HEADER_LEN) + offset)
    }
}

impl EntrySlot<'_, Region> {
    /// Writes the front of the payload, in the cache line of the header. What reaches beyond the reserved
    /// length is not read.
    ///
    /// # Errors
    /// As [`EntrySlot::copy_from`].
    #[inline(always)]
    pub fn write_front<const N: usize>(&mut self, words: &[u64; N]) -> Result<(), OutOfBounds> {
        // An entry takes whole lines.
        const { assert!(N <= FRONT_WORDS, "the rest of a line") };
        let at = self.at(0, 0)?;
        self.ring.own.store_block(at, words)
    }

    /// Copies payload from a region into the entry.
    ///
    /// # Errors
    /// [`OutOfBounds`] when either range is outside.
    #[inline]
    pub fn copy_from(
        &mut self,
        offset: usize,
        source: &Region,
        source_offset: usize,
        len: usize,
    ) -> Result<(), OutOfBounds> {
        let at = self.at(offset, len)?;
        source.copy_to(source_offset, &self.ring.own, at, len)
    }
}
