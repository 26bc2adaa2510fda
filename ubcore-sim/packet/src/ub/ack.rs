//! Acknowledgements of a TP: TPAETH and the selective bitmap.
//!
//! - owns: the layout; BTH.PSN is the next PSN expected. takes: bytes or an [`Ack`].
//! - gives: the other. must not: keep a window.

use zerocopy::byteorder::network_endian::{U16, U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use crate::codec::{Reader, Writer, reserved};
use crate::{PacketError, Psn};

/// Largest bitmap, in 64-bit words.
pub const SACK_WORDS_MAX: usize = 4;

/// Which packets after the next expected one were received.
///
/// Bit i stands for PSN next + 1 + i: `next` itself is missing by definition.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct SackBitmap {
    words: [u64; SACK_WORDS_MAX],
    len: usize,
}

impl SackBitmap {
    /// PSNs after the next expected one that a bitmap covers.
    pub const BITS_MAX: u32 = 256;

    /// A bitmap of the words given, lowest PSNs first; `None` for more than four.
    #[must_use]
    pub fn from_words(words: &[u64]) -> Option<Self> {
        let mut all = [0; SACK_WORDS_MAX];
        all.get_mut(..words.len())?.copy_from_slice(words);
        Some(Self { words: all, len: words.len() })
    }

    /// The words that travel, lowest PSNs first.
    #[must_use]
    pub fn words(&self) -> &[u64] {
        &self.words[..self.len]
    }

    /// Marks PSN next + 1 + `bit` as received, growing the bitmap to the word needed.
    ///
    /// # Errors
    /// [`PacketError::Field`] for a bit beyond [`SackBitmap::BITS_MAX`].
    pub fn set(&mut self, bit: u32) -> Result<(), PacketError> {
        let index = (bit / 64) as usize;
        let beyond = PacketError::field("bitmap bit", u64::from(bit));
        *self.words.get_mut(index).ok_or(beyond)? |= 1 << (bit % 64);
        self.len = self.len.max(index + 1);
        Ok(())
    }

    /// True when PSN next + 1 + `bit` is marked.
    #[must_use]
    pub fn contains(&self, bit: u32) -> bool {
        self.words().get((bit / 64) as usize).is_some_and(|word| word >> (bit % 64) & 1 != 0)
    }

    /// The marked bits, lowest first.
    pub fn iter(&self) -> impl Iterator<Item = u32> + '_ {
        (0..Self::BITS_MAX).filter(|&bit| self.contains(bit))
    }

    /// True when nothing is marked.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.words().iter().all(|&word| word == 0)
    }
}

/// TPAETH: what a receiver reports to the sender of a TP. The next PSN expected is BTH.PSN.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Ack {
    /// Packets from the next expected one on that the receiver has room for.
    pub window: u16,
    /// Some packet since the last acknowledgement carried a congestion mark.
    pub congestion: bool,
    /// PSN of the packet that caused this acknowledgement (for round-trip times).
    pub trigger: Psn,
    /// What else was received; empty in a NAK.
    pub received: SackBitmap,
}

#[derive(FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
struct AckWire {
    words: u8,
    flags: u8,
    window: U16,
    trigger: U32,
}

const CONGESTION: u8 = 0x80;
const _: () = assert!(SackBitmap::BITS_MAX as usize == 64 * SACK_WORDS_MAX);

impl Ack {
    /// Bytes of this TPAETH with its bitmap.
    #[must_use]
    pub const fn wire_len(&self) -> usize {
        size_of::<AckWire>() + size_of::<U64>() * self.received.len
    }

    pub(crate) fn take(reader: &mut Reader<'_>) -> Result<Self, PacketError> {
        let wire: &AckWire = reader.take()?;
        let len = usize::from(wire.words);
        if len > SACK_WORDS_MAX {
            return Err(PacketError::field("bitmap words", wire.words.into()));
        }
        reserved("TPAETH", u32::from(wire.flags & !CONGESTION))?;
        let trigger = wire.trigger.get();
        reserved("TPAETH", trigger >> 24)?;
        let mut received = SackBitmap { words: [0; SACK_WORDS_MAX], len };
        for word in &mut received.words[..len] {
            *word = reader.take::<U64>()?.get();
        }
        Ok(Self {
            window: wire.window.get(),
            congestion: wire.flags & CONGESTION != 0,
            trigger: Psn::new(trigger),
            received,
        })
    }

    pub(crate) fn put(&self, writer: &mut Writer<'_>) -> Result<(), PacketError> {
        let words = u8::try_from(self.received.len).unwrap_or(u8::MAX);
        writer.put(&AckWire {
            words,
            flags: if self.congestion { CONGESTION } else { 0 },
            window: U16::new(self.window),
            trigger: U32::new(self.trigger.value()),
        })?;
        self.received.words().iter().try_for_each(|&word| writer.put(&U64::new(word)))
    }
}
