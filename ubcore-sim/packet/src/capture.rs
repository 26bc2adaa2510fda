//! Capture files in the classic pcap format, Ethernet link type.
//!
//! - owns: the file header, the record header, both byte orders and both time units on reading.
//! - takes: frames and their time. gives: a file any analyser opens, or its frames.
//! - must not: ask a clock; the caller gives the time.

use std::io::{self, Read, Write};

/// Nanosecond timestamps; the microsecond format differs in this number alone.
const MAGIC_NS: u32 = 0xa1b2_3c4d;
const MAGIC_US: u32 = 0xa1b2_c3d4;
const LINKTYPE_ETHERNET: u32 = 1;
const VERSION: [u16; 2] = [2, 4];
/// Longest record written or accepted, in bytes: the usual limit of capture tools.
pub const RECORD_MAX: usize = 262_144;

const NS_PER_S: u64 = 1_000_000_000;
const NS_PER_US: u64 = 1_000;

/// Writes frames to a capture file, little-endian, nanoseconds.
#[derive(Debug)]
pub struct CaptureWriter<W> {
    output: W,
}

impl<W: Write> CaptureWriter<W> {
    /// Writes the file header.
    ///
    /// # Errors
    /// Those of `output`.
    pub fn new(mut output: W) -> io::Result<Self> {
        let [major, minor] = VERSION;
        let snap_len = u32::try_from(RECORD_MAX).unwrap_or(u32::MAX);
        output.write_all(&MAGIC_NS.to_le_bytes())?;
        output.write_all(&major.to_le_bytes())?;
        output.write_all(&minor.to_le_bytes())?;
        output.write_all(&[0; 8])?;
        output.write_all(&snap_len.to_le_bytes())?;
        output.write_all(&LINKTYPE_ETHERNET.to_le_bytes())?;
        Ok(Self { output })
    }

    /// Writes one frame (Ethernet header first, no FCS) seen `time_ns` after the epoch.
    ///
    /// # Errors
    /// `InvalidInput` for frames beyond [`RECORD_MAX`] and times beyond the year 2106; those of
    /// the output.
    pub fn write(&mut self, time_ns: u64, frame: &[u8]) -> io::Result<()> {
        let invalid = || io::Error::from(io::ErrorKind::InvalidInput);
        let len = u32::try_from(frame.len()).map_err(|_| invalid())?;
        if frame.len() > RECORD_MAX {
            return Err(invalid());
        }
        let seconds = u32::try_from(time_ns / NS_PER_S).map_err(|_| invalid())?;
        let nanos = u32::try_from(time_ns % NS_PER_S).map_err(|_| invalid())?;
        let mut record = [0; 16];
        for (field, value) in record.chunks_exact_mut(4).zip([seconds, nanos, len, len]) {
            field.copy_from_slice(&value.to_le_bytes());
        }
        self.output.write_all(&record)?;
        self.output.write_all(frame)
    }

    /// Flushes and gives the output back.
    ///
    /// # Errors
    /// Those of the output.
    pub fn finish(mut self) -> io::Result<W> {
        self.output.flush()?;
        Ok(self.output)
    }
}

/// A frame of a capture.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Captured {
    /// Nanoseconds since the epoch.
    pub time_ns: u64,
    /// Ethernet header first, no FCS; cut if the capture was.
    pub frame: Vec<u8>,
}

/// Reads the frames of a capture file.
#[derive(Debug)]
pub struct CaptureReader<R> {
    input: R,
    big_endian: bool,
    ns_per_tick: u64,
}

impl<R: Read> CaptureReader<R> {
    /// Reads the file header.
    ///
    /// # Errors
    /// `InvalidData` when it is not a classic pcap file of Ethernet frames; those of `input`.
    pub fn new(mut input: R) -> io::Result<Self> {
        let mut header = [0; 24];
        input.read_exact(&mut header)?;
        let magic = word(&header, 0, false);
        let (big_endian, ns_per_tick) = match (magic, magic.swap_bytes()) {
            (MAGIC_NS, _) => (false, 1),
            (MAGIC_US, _) => (false, NS_PER_US),
            (_, MAGIC_NS) => (true, 1),
            (_, MAGIC_US) => (true, NS_PER_US),
            _ => return Err(invalid("not a pcap file")),
        };
        if word(&header, 20, big_endian) != LINKTYPE_ETHERNET {
            return Err(invalid("not a capture of Ethernet frames"));
        }
        Ok(Self { input, big_endian, ns_per_tick })
    }

    /// The next frame; `None` at the end.
    ///
    /// # Errors
    /// `InvalidData` for records beyond [`RECORD_MAX`], `UnexpectedEof` for a cut file; those of
    /// the input.
    pub fn read(&mut self) -> io::Result<Option<Captured>> {
        let mut header = [0; 16];
        if self.input.read(&mut header[..1])? == 0 {
            return Ok(None);
        }
        self.input.read_exact(&mut header[1..])?;
        let field = |at| word(&header, at, self.big_endian);
        let len = usize::try_from(field(8)).unwrap_or(usize::MAX);
        if len > RECORD_MAX {
            return Err(invalid("record too long"));
        }
        let mut frame = vec![0; len];
        self.input.read_exact(&mut frame)?;
        let time_ns = u64::from(field(0)) * NS_PER_S + u64::from(field(4)) * self.ns_per_tick;
        Ok(Some(Captured { time_ns, frame }))
    }
}

fn word(bytes: &[u8], at: usize, big_endian: bool) -> u32 {
    let mut four = [0; 4];
    four.copy_from_slice(&bytes[at..at + 4]);
    if big_endian { u32::from_be_bytes(four) } else { u32::from_le_bytes(four) }
}

fn invalid(what: &'static str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, what)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn frames_come_back_with_their_times() {
        let mut writer = CaptureWriter::new(Vec::new()).expect("header");
        let frames: [(u64, &[u8]); 3] =
            [(1, b"a"), (4_000_000_007, b""), (5_000_000_000, &[7; 99])];
        for (time, frame) in frames {
            writer.write(time, frame).expect("written");
        }
        let file = writer.finish().expect("flushed");
        // The second record, as other tools read it: seconds, nanoseconds, both lengths.
        assert_eq!(file[41..57], [4, 0, 0, 0, 7, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0]);
        let mut reader = CaptureReader::new(&file[..]).expect("header");
        for (time_ns, frame) in frames {
            let captured = reader.read().expect("readable").expect("present");
            assert_eq!(captured, Captured { time_ns, frame: frame.to_vec() });
        }
        assert_eq!(reader.read().expect("end"), None);
    }

    #[test]
    fn a_cut_or_lying_file_is_an_error() {
        let mut writer = CaptureWriter::new(Vec::new()).expect("header");
        writer.write(0, &[1; 50]).expect("written");
        let mut file = writer.finish().expect("flushed");
        let mut cut = CaptureReader::new(&file[..file.len() - 1]).expect("header");
        assert_eq!(cut.read().map_err(|e| e.kind()), Err(io::ErrorKind::UnexpectedEof));
        file[24 + 11] = 0xff;
        let mut lying = CaptureReader::new(&file[..]).expect("header");
        assert_eq!(lying.read().map_err(|e| e.kind()), Err(io::ErrorKind::InvalidData));
        assert!(CaptureReader::new(&file[1..]).is_err());
    }

    #[test]
    fn frames_beyond_the_limit_are_refused() {
        let mut writer = CaptureWriter::new(Vec::new()).expect("header");
        assert!(writer.write(0, &vec![0; RECORD_MAX]).is_ok());
        assert!(writer.write(0, &vec![0; RECORD_MAX + 1]).is_err());
        let file = writer.finish().expect("flushed");
        let longest = CaptureReader::new(&file[..]).expect("header").read().expect("readable");
        assert_eq!(longest.map(|captured| captured.frame.len()), Some(RECORD_MAX));
    }

    #[test]
    fn files_of_others_count_microseconds_or_have_the_other_byte_order() {
        let file = |words: [u32; 10], bytes: fn(u32) -> [u8; 4]| {
            words.into_iter().flat_map(bytes).collect::<Vec<u8>>()
        };
        let words = |magic| [magic, 0x0004_0002, 0, 0, 65535, LINKTYPE_ETHERNET, 3, 7, 0, 0];
        for (magic, time_ns) in [(MAGIC_US, 3_000_007_000), (MAGIC_NS, 3_000_000_007)] {
            for bytes in [u32::to_le_bytes as fn(u32) -> [u8; 4], u32::to_be_bytes] {
                let file = file(words(magic), bytes);
                let read = CaptureReader::new(&file[..]).expect("header").read();
                let expected = Captured { time_ns, frame: Vec::new() };
                assert_eq!(read.expect("readable"), Some(expected), "{magic:#x}");
            }
        }
    }
}
