//! Memory with guards: what was placed, and that nothing else was.
//!
//! *Owns*: the pattern and the guard bytes. *Must not*: touch bytes beyond the window it prepares.

use urma_mem::{Pages, Region};

use super::{Failure, Outcome};

/// Bytes around a placement that must stay as they were.
pub const GUARD: usize = 72;
const POISON: u8 = 0xa5;

/// Bytes that depend on `seed` and position, so that shifts and mixes show.
#[must_use]
pub fn pattern(seed: u64, len: usize) -> Vec<u8> {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let mut bytes = Vec::with_capacity(len + 8);
    while bytes.len() < len {
        // xorshift64: cheap and without short cycles.
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        bytes.extend_from_slice(&state.to_le_bytes());
    }
    bytes.truncate(len);
    bytes
}

/// Private memory of an end.
#[derive(Clone, Debug)]
pub struct Memory {
    region: Region,
}

impl Memory {
    /// `len` zeroed bytes, page aligned.
    ///
    /// # Errors
    /// Out of memory.
    pub fn new(len: usize) -> Outcome<Self> {
        Ok(Self { region: Region::private(len)? })
    }

    /// `len` zeroed bytes of a file, mapped shared.
    ///
    /// # Errors
    /// Out of memory.
    pub fn in_file(len: usize) -> Outcome<Self> {
        Ok(Self { region: Region::shared(len, Pages::Base)? })
    }

    /// Returns the region itself.
    #[must_use]
    pub fn region(&self) -> &Region {
        &self.region
    }

    /// Stores `bytes`.
    ///
    /// # Errors
    /// Outside the window.
    #[track_caller]
    pub fn put(&self, offset: usize, bytes: &[u8]) -> Outcome {
        Ok(self.region.write(offset, bytes)?)
    }

    /// Loads `len` bytes.
    ///
    /// # Errors
    /// Outside the window.
    #[track_caller]
    pub fn take(&self, offset: usize, len: usize) -> Outcome<Vec<u8>> {
        let mut bytes = vec![0; len];
        self.region.read(offset, &mut bytes)?;
        Ok(bytes)
    }

    /// The 8 bytes at an aligned offset.
    ///
    /// # Errors
    /// Outside the window.
    #[track_caller]
    pub fn word(&self, offset: usize) -> Outcome<u64> {
        Ok(self.region.load_u64_acquire(offset)?)
    }

    /// Stores the 8 bytes at an aligned offset.
    ///
    /// # Errors
    /// Outside the window.
    #[track_caller]
    pub fn set_word(&self, offset: usize, value: u64) -> Outcome {
        Ok(self.region.store_u64_release(offset, value)?)
    }

    /// Poisons `len` bytes and [`GUARD`] on both sides, as far as the window goes.
    ///
    /// # Errors
    /// Outside the window.
    #[track_caller]
    pub fn poison(&self, offset: usize, len: usize) -> Outcome {
        let (first, end) = self.guarded(offset, len);
        self.put(first, &vec![POISON; end - first])
    }

    /// The bytes are `wanted` and the guards are untouched.
    ///
    /// # Errors
    /// The first byte that differs.
    #[track_caller]
    pub fn placed(&self, offset: usize, wanted: &[u8]) -> Outcome {
        let (first, end) = self.guarded(offset, wanted.len());
        let seen = self.take(first, end - first)?;
        for (index, byte) in seen.iter().enumerate() {
            let at = (first + index).wrapping_sub(offset);
            let (due, what) = match wanted.get(at) {
                Some(due) => (*due, "payload"),
                None => (POISON, "guard"),
            };
            if *byte != due {
                let at = at.cast_signed();
                let text = format!(
                    "{what} byte {at} of a placement of {} bytes at offset {offset} is {byte:#04x} \
                     and should be {due:#04x}",
                    wanted.len()
                );
                return Err(Failure::new(text));
            }
        }
        Ok(())
    }

    /// Nothing was placed where [`Memory::poison`] was.
    ///
    /// # Errors
    /// The first byte that differs.
    #[track_caller]
    pub fn untouched(&self, offset: usize, len: usize) -> Outcome {
        self.placed(offset, &vec![POISON; len])
    }

    fn guarded(&self, offset: usize, len: usize) -> (usize, usize) {
        (offset.saturating_sub(GUARD), (offset + len + GUARD).min(self.region.len()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What is said of a placement of 100 bytes at 1000 after `change`.
    fn says(change: impl FnOnce(&Memory, &[u8])) -> String {
        let memory = Memory::new(4096).expect("memory");
        let bytes = pattern(3, 100);
        memory.poison(1000, 100).expect("inside");
        change(&memory, &bytes);
        memory.placed(1000, &bytes).map_or_else(|failure| failure.to_string(), |()| String::new())
    }

    #[test]
    fn a_placement_is_checked_to_its_last_byte_and_around() {
        let put = |at: usize, bytes: &[u8], memory: &Memory| {
            memory.put(at, bytes).expect("inside");
        };
        assert_eq!(says(|memory, bytes| put(1000, bytes, memory)), "");
        let cases: [(usize, &str); 5] = [
            (1000, "payload byte 0"),
            (1099, "payload byte 99"),
            (1100, "guard byte 100"),
            (999, "guard byte -1"),
            (1000 - GUARD, "guard byte -72"),
        ];
        for (at, words) in cases {
            let text = says(|memory, bytes| {
                put(1000, bytes, memory);
                let old = memory.take(at, 1).expect("inside");
                put(at, &[!old[0]], memory);
            });
            assert!(text.starts_with(words), "{at}: {text}");
        }
        assert!(says(|_, _| ()).starts_with("payload byte 0"), "nothing was placed");
    }

    #[test]
    fn what_was_touched_is_seen() {
        let memory = Memory::new(4096).expect("memory");
        memory.poison(0, 100).expect("inside");
        assert!(memory.untouched(0, 100).is_ok());
        memory.put(99, &[0]).expect("inside");
        assert!(memory.untouched(0, 100).is_err());
    }
}
