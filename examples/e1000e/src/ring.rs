//! A ring of descriptors in memory, with a buffer for each.
//!
//! *Owns*: which descriptors the card has. *Takes*: frames. *Gives*: tails, which the caller writes to the card.
//! *Must not*: trust what the card wrote.
//!
//! Both directions have descriptors of 16 bytes (sections 7.1.4 and 7.2.10): the buffer's address, then a word with the
//! length in bits 0 to 15 and, at other places in each, command, status and errors.

use std::marker::PhantomData;

use udma_vfio::DmaBuffer;
use urma_mem::{OutOfBounds, barrier};

use crate::CardError;

/// Descriptors of a ring.
pub(crate) const ENTRIES: u32 = 64;
/// Bytes of a descriptor.
const STRIDE: u64 = 16;
/// Bytes of the descriptors of a ring.
pub(crate) const BYTES: u64 = 64 * STRIDE;
/// Bytes of a buffer, as `RCTL` says.
const BUFFER: u64 = 2048;
/// Where the buffers begin: behind the page of the descriptors.
const BUFFERS: u64 = 4096;
/// Bytes of a ring with its buffers.
pub(crate) const MEMORY: usize = 4096 + 64 * 2048;

/// Marks a ring of receive descriptors.
#[derive(Debug)]
pub(crate) enum RxDescriptor {}
/// Marks a ring of transmit descriptors.
#[derive(Debug)]
pub(crate) enum TxDescriptor {}

/// Of both: the descriptor is done.
const DONE: u64 = 1 << 32;
/// Of a receive descriptor: the frame ends here.
const END: u64 = 1 << 33;
/// Of a receive descriptor: errors.
const ERRORS: u64 = 0xFF << 40;
/// Of a transmit descriptor: the frame ends here; add the check sequence; report when done.
const COMMAND: u64 = (1 | 1 << 1 | 1 << 3) << 24;

/// A ring. Indices run freely; a descriptor's place is its index modulo [`ENTRIES`].
#[derive(Debug)]
pub(crate) struct DescriptorRing<D> {
    memory: DmaBuffer,
    /// First descriptor that the card has not given back.
    head: u32,
    /// First descriptor that the card does not have.
    tail: u32,
    direction: PhantomData<D>,
}

impl From<OutOfBounds> for CardError {
    fn from(_: OutOfBounds) -> Self {
        Self::Nonsense("a length that leaves its buffer")
    }
}

/// Place of descriptor `index`, and of its buffer.
fn places(index: u32) -> (usize, usize) {
    let slot = (index % ENTRIES) as usize;
    (slot * 16, 4096 + slot * 2048)
}

impl<D> DescriptorRing<D> {
    pub(crate) fn new(memory: DmaBuffer) -> Result<Self, CardError> {
        let ring = Self { memory, head: 0, tail: 0, direction: PhantomData };
        for index in 0..ENTRIES {
            let slot = u64::from(index);
            let address = ring.memory.device_address(BUFFERS + slot * BUFFER);
            ring.memory.region().store_u64(places(index).0, address)?;
        }
        Ok(ring)
    }

    /// Device address of the descriptors.
    pub(crate) const fn iova(&self) -> u64 {
        self.memory.device_address(0)
    }

    /// What the card wrote into descriptor `index`, if it is done.
    fn done(&self, index: u32) -> Result<Option<u64>, CardError> {
        let word = self.memory.region().load_u64_acquire(places(index).0 + 8)?;
        // The frame's bytes are read after the word that says they are there.
        barrier::from_device();
        Ok((word & DONE != 0).then_some(word))
    }

    fn store(&self, index: u32, word: u64) -> Result<(), CardError> {
        Ok(self.memory.region().store_u64_release(places(index).0 + 8, word)?)
    }

    const fn tail_slot(&self) -> u32 {
        self.tail % ENTRIES
    }
}

impl DescriptorRing<RxDescriptor> {
    /// Gives the card all descriptors but one: a tail that meets the head would say that it has none. Returns the tail.
    pub(crate) fn fill(&mut self) -> Result<u32, CardError> {
        for index in 0..ENTRIES {
            self.store(index, 0)?;
        }
        self.tail = self.head.wrapping_add(ENTRIES - 1);
        Ok(self.tail_slot())
    }

    /// The next frame; `Some(None)` for one that is not whole or has errors. [`DescriptorRing::give_back`] must follow.
    pub(crate) fn take(&self) -> Result<Option<Option<Vec<u8>>>, CardError> {
        let Some(word) = self.done(self.head)? else { return Ok(None) };
        if word & END == 0 || word & ERRORS != 0 {
            return Ok(Some(None));
        }
        let len = (word & 0xFFFF).min(BUFFER + 1);
        if len > BUFFER {
            return Err(CardError::Nonsense("a frame that is longer than its buffer"));
        }
        let mut frame = vec![0; usize::try_from(len).unwrap_or(0)];
        self.memory.region().read(places(self.head).1, &mut frame)?;
        Ok(Some(Some(frame)))
    }

    /// Gives the descriptor that was taken to the card again. Returns the tail.
    pub(crate) fn give_back(&mut self) -> Result<u32, CardError> {
        self.store(self.head, 0)?;
        self.head = self.head.wrapping_add(1);
        self.tail = self.tail.wrapping_add(1);
        Ok(self.tail_slot())
    }
}

impl DescriptorRing<TxDescriptor> {
    /// Puts a frame into the next descriptor. Returns the tail.
    pub(crate) fn post(&mut self, frame: &[u8]) -> Result<u32, CardError> {
        if self.tail.wrapping_sub(self.head) >= ENTRIES - 1 {
            return Err(CardError::Full);
        }
        self.memory.region().write(places(self.tail).1, frame)?;
        self.store(self.tail, COMMAND | frame.len() as u64)?;
        self.tail = self.tail.wrapping_add(1);
        Ok(self.tail_slot())
    }

    /// Takes finished descriptors back; returns their number.
    pub(crate) fn reap(&mut self) -> Result<u32, CardError> {
        let before = self.head;
        while self.head != self.tail && self.done(self.head)?.is_some() {
            self.head = self.head.wrapping_add(1);
        }
        Ok(self.head.wrapping_sub(before))
    }
}
