//! The reading and the writing end of a ring between two processes.
//!
//! Neither end believes what the other one wrote: the consumer reads a header once, not beyond the ring, and stops
//! at a lie; the producer overwrites nothing that the consumer has not given back. The place of the header at the
//! tail is always 0.

use super::{
    BadLayout, Corrupt, ENTRY_ALIGN, HEADER_LEN, KIND_WRAP, NEXT_LEN, ReserveError, check_layout,
    entry_size, header_word, index, len_max,
};
use crate::{
    region::{OutOfBounds, Region},
    words::Words,
};

/// Reading end of a ring between two processes; one thread at a time.
#[derive(Debug)]
pub struct Consumer<W = Region> {
    own: W,
    peer: W,
    capacity: u64,
    head: u64,
    corrupt: Option<Corrupt>,
}

/// Where a ring gets its next entry: a look at many rings takes a word of each, and not its reading end.
#[derive(Debug)]
pub struct NextPlace {
    peer: Region,
    at: usize,
}

impl NextPlace {
    /// The place that [`Consumer::next_place`] gave.
    #[must_use]
    pub fn new((peer, at): (&Region, usize)) -> Self {
        Self { peer: peer.clone(), at }
    }

    /// Another place, of the same ring as a rule.
    pub fn move_to(&mut self, (peer, at): (&Region, usize)) {
        // This one keeps its memory mapped, so that no other memory has the address.
        if (peer.addr(), peer.len()) != (self.peer.addr(), self.peer.len()) {
            self.peer = peer.clone();
        }
        self.at = at;
    }

    /// The ring, and where in it.
    #[inline]
    #[must_use]
    pub fn place(&self) -> (&Region, usize) {
        (&self.peer, self.at)
    }

    /// Whether the producer has written there: as [`Consumer::is_waiting`] while nothing was taken since.
    #[inline]
    #[must_use]
    pub fn is_written(&self) -> bool {
        self.peer.load_u64(self.at).is_ok_and(|header| header != 0)
    }
}

impl Consumer<Region> {
    /// Where the next entry comes; `None`: none is taken any more.
    #[must_use]
    pub fn next_place(&self) -> Option<(&Region, usize)> {
        let at = index(self.head & (self.capacity - 1));
        self.corrupt.is_none().then_some((&self.peer, at))
    }
}

impl<W: Words> Consumer<W> {
    /// The reading end: `own` holds the head line written here, `peer` is the producer's half.
    ///
    /// # Errors
    /// As [`Producer::new`](super::Producer::new).
    pub fn new(own: W, peer: W, capacity: usize) -> Result<Self, BadLayout> {
        let refused = BadLayout { capacity, own: own.len_bytes(), peer: peer.len_bytes() };
        check_layout(capacity, &peer, &own).ok_or(refused)?;
        own.store_release(0, 0).map_err(|_| refused)?;
        let capacity = capacity as u64;
        Ok(Self { own, peer, capacity, head: 0, corrupt: None })
    }

    /// The next entry, if one is published. The same entry comes again until [`Entry::done`].
    ///
    /// # Errors
    /// [`Corrupt`] when the producer's half contains an impossible value; from then on always.
    #[inline]
    pub fn next_entry(&mut self) -> Result<Option<Entry<'_, W>>, Corrupt> {
        if let Some(corrupt) = self.corrupt {
            return Err(corrupt);
        }
        match self.look() {
            Ok(Some((kind, len))) => Ok(Some(Entry { kind, len, ring: self })),
            Ok(None) => Ok(None),
            Err(corrupt) => {
                self.corrupt = Some(corrupt);
                Err(corrupt)
            }
        }
    }

    /// Whether something may be there: reads one word, for polling many rings.
    #[inline]
    pub fn is_waiting(&self) -> bool {
        let at = index(self.head & (self.capacity - 1));
        self.corrupt.is_none() && self.peer.load(at).is_ok_and(|header| header != 0)
    }

    /// Kind and length of the entry at the head, checked; steps over a wrap marker.
    #[inline]
    fn look(&mut self) -> Result<Option<(u32, usize)>, Corrupt> {
        let Some((kind, len)) = self.header(self.head)? else { return Ok(None) };
        if kind != KIND_WRAP {
            return self.checked(kind, len).map(Some);
        }
        let to_end = self.capacity - (self.head & (self.capacity - 1));
        // A marker fills the ring up to its end, and never the whole ring.
        if u64::from(len) + HEADER_LEN != to_end || to_end == self.capacity {
            return Err(Corrupt::Wrap { len });
        }
        // An entry is published together with the marker before it.
        let next = self.header(self.head + to_end)?.filter(|(kind, _)| *kind != KIND_WRAP);
        let Some((kind, len)) = next else { return Err(Corrupt::Wrap { len }) };
        self.head += to_end;
        self.checked(kind, len).map(Some)
    }

    /// Kind and length at a position, read once as one word; `None`: no header is there yet.
    #[inline]
    fn header(&self, position: u64) -> Result<Option<(u32, u32)>, Corrupt> {
        let header = self.peer.load_acquire(index(position & (self.capacity - 1)))?;
        #[expect(clippy::cast_possible_truncation, reason = "both halves are meant")]
        let (kind, len) = ((header >> 32) as u32, header as u32);
        Ok((header != 0).then_some((kind, len)))
    }

    #[inline]
    fn checked(&self, kind: u32, len: u32) -> Result<(u32, usize), Corrupt> {
        let to_end = self.capacity - (self.head & (self.capacity - 1));
        let size = entry_size(u64::from(len));
        if u64::from(len) > len_max(self.capacity) || size > to_end {
            return Err(Corrupt::Length { len });
        }
        // The producer stored 0 there just before: the line comes while this entry is worked on.
        self.peer.prefetch(index((self.head + size) & (self.capacity - 1)));
        Ok((kind, len as usize))
    }
}

/// A published entry. Its kind and length were read once and checked; its payload may still be
/// changed by a lying producer, so every field is to be copied once and checked by its reader.
#[derive(Debug)]
pub struct Entry<'a, W = Region> {
    kind: u32,
    len: usize,
    ring: &'a mut Consumer<W>,
}

impl<W: Words> Entry<'_, W> {
    /// The kind its producer gave.
    #[inline]
    pub fn kind(&self) -> u32 {
        self.kind
    }

    /// Length of the payload in bytes.
    #[inline]
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether there is no payload.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Copies payload out.
    ///
    /// # Errors
    /// [`OutOfBounds`] when the range is outside the payload.
    #[inline]
    pub fn read(&self, offset: usize, bytes: &mut [u8]) -> Result<(), OutOfBounds> {
        let at = self.at(offset, bytes.len())?;
        self.ring.peer.read_bytes(at, bytes)
    }

    /// Gives the entry's room back to the producer.
    #[inline]
    pub fn done(self) {
        let ring = self.ring;
        ring.head += entry_size(self.len as u64);
        // The window was written at construction; it cannot have become shorter.
        let stored = ring.own.store_release(0, ring.head);
        debug_assert!(stored.is_ok());
    }

    #[inline]
    fn at(&self, offset: usize, len: usize) -> Result<usize, OutOfBounds> {
        if offset > self.len || len > self.len - offset {
            return Err(OutOfBounds { offset, len, limit: self.len });
        }
        let start = self.ring.head & (self.ring.capacity - 1);
        Ok(index(start + HEADER_LEN) + offset)
    }
}

/// Words of payload in the cache line of an entry's header.
pub const FRONT_WORDS: usize = (ENTRY_ALIGN - 8) / 8;

impl Entry<'_, Region> {
    /// The payload in the cache line of the header; behind its end lies anything.
    ///
    /// # Errors
    /// As [`Entry::copy_to`].
    #[inline(always)]
    pub fn front<const N: usize>(&self) -> Result<[u64; N], OutOfBounds> {
        const { assert!(N <= FRONT_WORDS, "the rest of a line") };
        self.ring.peer.load_block(self.at(0, 0)?)
    }

    /// Copies payload into a region, the last 8 bytes after all others.
    ///
    /// # Errors
    /// [`OutOfBounds`] when either range is outside.
    #[inline]
    pub fn copy_to(
        &self,
        offset: usize,
        target: &Region,
        target_offset: usize,
        len: usize,
    ) -> Result<(), OutOfBounds> {
        let at = self.at(offset, len)?;
        self.ring.peer.copy_to_ordered(at, target, target_offset, len)
    }
}

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
