//! The data memory: beats at addresses.
//!
//! - owns: bytes, byte count and packet number of each beat. takes, gives: beats. must not: choose an address.

/// A beat in the memory.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub(super) struct RamBeat {
    /// Valid bytes, from byte 0 on.
    pub(super) len: u16,
    /// Number of its packet, for the count of mismatches; hardware has no such field.
    pub(super) serial: u32,
}

#[derive(Clone, Debug)]
pub(super) struct BeatRam {
    beats: Vec<RamBeat>,
    /// Empty where only time is modelled.
    bytes: Vec<u8>,
    width: usize,
}

impl BeatRam {
    pub(super) fn new(beats: u32, width: u32, payload: bool) -> Self {
        let (beats, width) = (beats as usize, width as usize);
        let bytes = if payload { vec![0; beats * width] } else { Vec::new() };
        Self { beats: vec![RamBeat::default(); beats], bytes, width }
    }

    pub(super) fn write(&mut self, at: u32, beat: RamBeat, bytes: &[u8]) {
        let at = at as usize;
        self.beats[at] = beat;
        if !self.bytes.is_empty() {
            self.bytes[at * self.width..(at + 1) * self.width]
                .copy_from_slice(&bytes[..self.width]);
        }
    }

    /// The beat at an address and, with payload, all bytes of its place.
    pub(super) fn read(&self, at: u32) -> (RamBeat, &[u8]) {
        let at = at as usize;
        let bytes = self.bytes.get(at * self.width..(at + 1) * self.width).unwrap_or(&[]);
        (self.beats[at], bytes)
    }
}
