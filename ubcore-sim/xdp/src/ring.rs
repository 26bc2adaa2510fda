//! One ring between this process and the kernel: entries, and two counters that only grow.
//!
//! One side produces, one consumes; each has one counter that it alone stores, and keeps the last value it saw of the other, so that
//! the shared line is touched once a batch. Counters wrap at 2^32, the ring's length is a power of two.

use std::io;
use std::os::fd::BorrowedFd;

use rustix::net::xdp::{XdpRingFlags, XdpRingOffset};
use urma_mem::{OutOfBounds, Region};

/// Layout of a ring.
#[derive(Debug, Clone, Copy)]
pub(crate) struct RingLayout {
    /// Where the kernel maps it.
    pub(crate) place: u64,
    /// Where its counters and entries lie.
    pub(crate) offsets: XdpRingOffset,
    /// Entries, a power of two.
    pub(crate) entries: u32,
    /// Bytes of one entry.
    pub(crate) entry_len: usize,
}

/// One side of a ring.
#[derive(Debug)]
struct RingSide {
    region: Region,
    entries: u32,
    entry_len: usize,
    /// Offset of the first entry.
    first: usize,
    /// Offset of the counter that this side stores.
    own_at: usize,
    /// Offset of the other side's.
    other_at: usize,
    flags_at: Option<usize>,
    /// The own counter, which may be ahead of what the other side can see.
    own: u32,
    /// The other side's counter when it was last looked at.
    other: u32,
}

impl RingSide {
    fn map(socket: BorrowedFd<'_>, layout: RingLayout, is_producer: bool) -> io::Result<Self> {
        let RingLayout { place, offsets, entries, entry_len } = layout;
        let at = |offset: u64| usize::try_from(offset).map_err(io::Error::other);
        let (producer, consumer) = (at(offsets.producer)?, at(offsets.consumer)?);
        let (own_at, other_at) =
            if is_producer { (producer, consumer) } else { (consumer, producer) };
        let first = at(offsets.desc)?;
        let flags_at = offsets.flags.map(at).transpose()?;
        let len = first + usize::try_from(entries).unwrap_or(usize::MAX).saturating_mul(entry_len);
        let region = Region::map_ring(socket, place, len)?;
        let own = region.load_u32(own_at).map_err(io::Error::other)?;
        let other = region.load_u32(other_at).map_err(io::Error::other)?;
        Ok(Self { region, entries, entry_len, first, own_at, other_at, flags_at, own, other })
    }

    /// Where the entry behind a counter lies.
    fn entry(&self, counter: u32) -> usize {
        let index = usize::try_from(counter & (self.entries - 1)).unwrap_or(0);
        self.first + index * self.entry_len
    }

    fn look(&mut self) -> Result<(), OutOfBounds> {
        self.other = self.region.load_u32_acquire(self.other_at)?;
        Ok(())
    }

    fn publish(&self) -> Result<(), OutOfBounds> {
        self.region.store_u32_release(self.own_at, self.own)
    }
}

/// The side that puts entries in.
#[derive(Debug)]
pub(crate) struct RingProducer(RingSide);

impl RingProducer {
    pub(crate) fn map(socket: BorrowedFd<'_>, layout: RingLayout) -> io::Result<Self> {
        RingSide::map(socket, layout, true).map(Self)
    }

    /// Whether so many entries have room.
    pub(crate) fn has_room(&mut self, wanted: u32) -> Result<bool, OutOfBounds> {
        let room = |side: &RingSide| side.entries - side.own.wrapping_sub(side.other);
        if room(&self.0) < wanted {
            self.0.look()?;
        }
        Ok(room(&self.0) >= wanted)
    }

    /// Puts an entry of words in, which the other side does not see yet. The caller has asked for room.
    pub(crate) fn put<const WORDS: usize>(
        &mut self,
        entry: [u64; WORDS],
    ) -> Result<(), OutOfBounds> {
        let at = self.0.entry(self.0.own);
        for (index, word) in entry.into_iter().enumerate() {
            self.0.region.store_u64(at + index * 8, word)?;
        }
        self.0.own = self.0.own.wrapping_add(1);
        Ok(())
    }

    /// The other side sees what was put in.
    pub(crate) fn publish(&self) -> Result<(), OutOfBounds> {
        self.0.publish()
    }

    /// Whether the other side has taken everything.
    pub(crate) fn is_empty(&mut self) -> Result<bool, OutOfBounds> {
        self.0.look()?;
        Ok(self.0.own == self.0.other)
    }

    /// Whether the other side sleeps until it is called.
    pub(crate) fn wants_wakeup(&self) -> bool {
        let flags = self.0.flags_at.and_then(|at| self.0.region.load_u32_acquire(at).ok());
        flags.is_none_or(|flags| flags & XdpRingFlags::XDP_RING_NEED_WAKEUP.bits() != 0)
    }
}

/// The side that takes entries out.
#[derive(Debug)]
pub(crate) struct RingConsumer(RingSide);

impl RingConsumer {
    pub(crate) fn map(socket: BorrowedFd<'_>, layout: RingLayout) -> io::Result<Self> {
        RingSide::map(socket, layout, false).map(Self)
    }

    /// Entries that may be taken; looks at the other side when there are no more than `known`.
    pub(crate) fn waiting(&mut self, known: u32) -> Result<u32, OutOfBounds> {
        let count = |side: &RingSide| side.other.wrapping_sub(side.own);
        if count(&self.0) <= known {
            self.0.look()?;
        }
        Ok(count(&self.0))
    }

    /// The entry `ahead` places behind the next one.
    pub(crate) fn entry<const WORDS: usize>(
        &self,
        ahead: u32,
    ) -> Result<[u64; WORDS], OutOfBounds> {
        let at = self.0.entry(self.0.own.wrapping_add(ahead));
        let mut entry = [0; WORDS];
        for (index, word) in entry.iter_mut().enumerate() {
            *word = self.0.region.load_u64(at + index * 8)?;
        }
        Ok(entry)
    }

    /// Gives places of entries back to the other side.
    pub(crate) fn release(&mut self, count: u32) -> Result<(), OutOfBounds> {
        self.0.own = self.0.own.wrapping_add(count);
        self.0.publish()
    }
}
