//! The journal: fixed-size records in a file mapping, which outlives its writer.
//!
//! *Owns*: the form. *Takes*: records, in the order in which things happened. *Gives*: them back,
//! also to another process after the writer was killed. *Must not*: judge.
//!
//! ```text
//! 0    MAGIC                                        64-byte header
//! 64   word 0: kind | op << 8 | status << 16 | flags << 24 | round << 32     written last
//!      word 1: id    word 2: a    word 3: b         32 bytes each, up to the first kind 0
//! ```

use std::{fs::File, io, os::fd::OwnedFd, path::Path};

use urma_mem::{MapAccess, Region};

/// "URMAKILL" read as little-endian bytes.
pub const MAGIC: u64 = u64::from_le_bytes(*b"URMAKILL");
/// Bytes of the header.
pub const HEADER_LEN: usize = 64;
/// Bytes of a record.
pub const RECORD_LEN: usize = 32;
/// Bytes of a journal: some 500,000 records. Pages that are never written take no memory.
pub const JOURNAL_LEN: usize = 16 << 20;
/// Ids of receives have this bit.
pub const RECV_BIT: u64 = 1 << 63;

/// Kind of a record, with the meaning of its fields.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub enum Kind {
    /// About to post `id`; `a`: bytes, `b`: number of the message if it is one.
    Posting = 1,
    /// The post of `id` was refused.
    Refused = 2,
    /// A poll gave the completion of `id` with `status`; `a`: number of the message that came in;
    /// flag 1: its bytes are wrong.
    Completed = 3,
    /// A poll gave the last completion of a flush or suspend, which belongs to no request.
    Marker = 4,
    /// A round begins; `a`: open descriptors, `b`: mapped files; `op`: transport mode
    /// ([`crate::plan::Mode`]).
    Began = 5,
    /// Memory that the peer wrote into was looked at; `a`: words, `b`: wrong ones.
    Memory = 6,
    /// The peer could not be imported.
    NoPeer = 7,
    /// The round is over; `a`: open descriptors, `b`: requests without completion.
    Ended = 8,
    /// All peers are gone; `a`: open descriptors, `b`: mapped files.
    Rested = 9,
    /// `a`: completions that the device counted in the round.
    Counted = 10,
}

impl Kind {
    fn from_code(code: u8) -> Option<Self> {
        let all = [
            Self::Posting,
            Self::Refused,
            Self::Completed,
            Self::Marker,
            Self::Began,
            Self::Memory,
            Self::NoPeer,
            Self::Ended,
            Self::Rested,
            Self::Counted,
        ];
        all.into_iter().find(|kind| *kind as u8 == code)
    }
}

/// One record; which fields mean something depends on the kind.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Record {
    /// Kind of the record.
    pub kind: Kind,
    /// Number of the operation ([`crate::plan::Op`]).
    pub op: u8,
    /// Number of the completion status.
    pub status: u8,
    /// Flag bits, such as [`Record::WRONG_BYTES`].
    pub flags: u8,
    /// The round, from 1.
    pub round: u32,
    /// Number of the request that the record is about.
    pub id: u64,
    /// Depends on the kind.
    pub a: u64,
    /// Depends on the kind.
    pub b: u64,
}

impl Record {
    /// Flag: the bytes that came were not those that should have.
    pub const WRONG_BYTES: u8 = 1;

    /// A record with all else zero.
    #[must_use]
    pub const fn new(kind: Kind, round: u32, id: u64) -> Self {
        Self { kind, op: 0, status: 0, flags: 0, round, id, a: 0, b: 0 }
    }

    fn to_words(self) -> [u64; 4] {
        let word = u64::from(self.kind as u8)
            | u64::from(self.op) << 8
            | u64::from(self.status) << 16
            | u64::from(self.flags) << 24
            | u64::from(self.round) << 32;
        [word, self.id, self.a, self.b]
    }

    fn from_words(words: [u64; 4]) -> Option<Self> {
        let [kind, op, status, flags, r0, r1, r2, r3] = words[0].to_le_bytes();
        let round = u32::from_le_bytes([r0, r1, r2, r3]);
        let [_, id, a, b] = words;
        Some(Self { kind: Kind::from_code(kind)?, op, status, flags, round, id, a, b })
    }
}

/// Writer of a journal: appends records to a file.
#[derive(Debug)]
pub struct Journal {
    region: Region,
    next: usize,
}

impl Journal {
    /// Over a fresh, zeroed file of [`JOURNAL_LEN`] bytes that is sealed against shrinking.
    ///
    /// # Errors
    /// It cannot be mapped.
    pub fn create(file: OwnedFd) -> io::Result<Self> {
        Self::over(Region::map_fd(file, 0, JOURNAL_LEN, MapAccess::ReadWrite)?)
    }

    /// Over zeroed memory.
    ///
    /// # Errors
    /// It is too short.
    pub fn over(region: Region) -> io::Result<Self> {
        region.store_u64_release(0, MAGIC).map_err(io::Error::other)?;
        Ok(Self { region, next: HEADER_LEN })
    }

    /// Records that still fit.
    #[must_use]
    pub fn room(&self) -> usize {
        self.region.len().saturating_sub(self.next) / RECORD_LEN
    }

    /// Writes a record: all of it, or nothing that a reader sees.
    ///
    /// # Panics
    /// The journal is full: its owner did not look at [`Journal::room`].
    pub fn write(&mut self, record: Record) {
        let words = record.to_words();
        self.region.store_block_last(self.next, &words, 0).expect("room was looked at");
        self.next += RECORD_LEN;
    }
}

/// Why a journal could not be read.
#[derive(Debug)]
pub enum ReadError {
    /// The file cannot be read or written.
    Io(io::Error),
    /// It is no journal.
    Magic,
    /// A record of no known kind.
    Record(usize),
}

impl std::fmt::Display for ReadError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Io(error) => write!(f, "the journal cannot be read: {error}"),
            Self::Magic => f.write_str("the file is no journal"),
            Self::Record(index) => write!(f, "record {index} is of no known kind"),
        }
    }
}

impl std::error::Error for ReadError {}

/// Reads a journal.
///
/// # Errors
/// [`ReadError`].
pub fn read(path: &Path) -> Result<Vec<Record>, ReadError> {
    let mut reader = io::BufReader::new(File::open(path).map_err(ReadError::Io)?);
    read_from(&mut reader)
}

/// Reads a journal from its first byte on.
///
/// # Errors
/// [`ReadError`].
pub fn read_from(reader: &mut dyn io::Read) -> Result<Vec<Record>, ReadError> {
    let mut header = [0; HEADER_LEN];
    reader.read_exact(&mut header).map_err(ReadError::Io)?;
    if header.first_chunk::<8>() != Some(&MAGIC.to_le_bytes()) {
        return Err(ReadError::Magic);
    }
    let mut records = Vec::new();
    let mut bytes = [0; RECORD_LEN];
    loop {
        match reader.read_exact(&mut bytes) {
            Ok(()) => {}
            Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => return Ok(records),
            Err(error) => return Err(ReadError::Io(error)),
        }
        let mut words = [0; 4];
        for (word, chunk) in words.iter_mut().zip(bytes.as_chunks::<8>().0) {
            *word = u64::from_le_bytes(*chunk);
        }
        if words[0] == 0 {
            return Ok(records);
        }
        records.push(Record::from_words(words).ok_or(ReadError::Record(records.len()))?);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_written_is_read_and_nothing_else() {
        let region = Region::private(4096).unwrap();
        let mut journal = Journal::over(region.clone()).unwrap();
        let post = Record { op: 3, a: 4096, ..Record::new(Kind::Posting, 2, 77) };
        let done = Record { status: 9, flags: 1, ..Record::new(Kind::Completed, 2, RECV_BIT | 5) };
        journal.write(post);
        journal.write(done);
        assert_eq!(journal.room(), (4096 - 64) / 32 - 2);
        let mut bytes = vec![0; 4096];
        region.read(0, &mut bytes).unwrap();
        assert_eq!(read_from(&mut &bytes[..]).unwrap(), [post, done]);
        bytes[64] = 0xee;
        assert!(matches!(read_from(&mut &bytes[..]), Err(ReadError::Record(0))));
        bytes[0] = 0;
        assert!(matches!(read_from(&mut &bytes[..]), Err(ReadError::Magic)));
    }
}
