//! Trace files: u32 handles, CSV, libCacheSim's oracleGeneral.
//!
//! - owns: the three formats. takes: the bytes of a file. gives: a trace, or what is wrong where.
//! - must not: guess a format, or take one file for another.

use std::collections::HashMap;
use std::hash::BuildHasherDefault;

use super::{ACCESSES_MAX, HandleTrace, TraceError};
use crate::handle::HandleHasher;

/// Bytes of a record of oracleGeneral: u32 time, u64 id, u32 size, i64 next access.
const ORACLE_BYTES: usize = 24;
/// Records that are looked at for whether a file of handles is oracleGeneral.
const LOOK: usize = 64;
/// Numbers of accesses are below this one.
const NEXT_MOST: i64 = 1 << 32;
const CSV_COLUMNS: [&str; 2] = ["handle", "time,handle,size"];

/// Format of a trace file.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum TraceFormat {
    /// Handles of 32 bits, little-endian.
    U32,
    /// Lines of `handle` or `time,handle,size`, decimal or with 0x; the first line may name the columns.
    Csv,
    /// libCacheSim's binary format of 24 bytes per access.
    OracleGeneral,
}

impl TraceFormat {
    /// All formats of trace files.
    pub const ALL: [Self; 3] = [Self::U32, Self::Csv, Self::OracleGeneral];

    /// Name on the command line.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::U32 => "u32",
            Self::Csv => "csv",
            Self::OracleGeneral => "oracleGeneral",
        }
    }

    /// The format of a name.
    pub fn named(name: &str) -> Result<Self, TraceError> {
        let names = Self::ALL.map(Self::name).join(", ");
        let found = Self::ALL.into_iter().find(|format| format.name() == name);
        found.ok_or_else(|| refused("format", &format!("{name:?}"), &format!("one of {names}")))
    }

    /// Whether a file of so many bytes can be a trace.
    pub fn check_len(self, bytes: u64) -> Result<(), TraceError> {
        if bytes == 0 {
            return Err(refused("file", "empty", "at least one access"));
        }
        let most = ACCESSES_MAX.saturating_mul(self.least_bytes());
        if bytes > most as u64 {
            let want = format!("at most {most} bytes ({ACCESSES_MAX} accesses)");
            return Err(refused("file", &format!("{bytes} bytes"), &want));
        }
        Ok(())
    }

    /// Reads a whole file. Ids above 32 bits are numbered by first appearance.
    pub fn read(self, bytes: &[u8]) -> Result<HandleTrace, TraceError> {
        self.check_len(bytes.len() as u64)?;
        let ids = match self {
            Self::U32 => handles(bytes)?,
            Self::Csv => lines(bytes)?,
            Self::OracleGeneral => records(bytes)?,
        };
        HandleTrace::new(narrow(&ids))
    }

    /// Fewest bytes of an access.
    const fn least_bytes(self) -> usize {
        match self {
            Self::U32 => 4,
            Self::Csv => 2,
            Self::OracleGeneral => ORACLE_BYTES,
        }
    }
}

fn refused(field: &str, value: &str, want: &str) -> TraceError {
    TraceError { field: field.to_owned(), value: value.to_owned(), want: want.to_owned() }
}

/// Ids as handles: themselves where all fit into 32 bits, else by first appearance.
fn narrow(ids: &[u64]) -> Vec<u32> {
    let fitting: Result<Vec<u32>, _> = ids.iter().map(|id| u32::try_from(*id)).collect();
    fitting.unwrap_or_else(|_| {
        let mut known: HashMap<u64, u32, BuildHasherDefault<HandleHasher>> = HashMap::default();
        let mut next = 0;
        let mut number = |id: &u64| {
            *known.entry(*id).or_insert_with(|| {
                next += 1;
                next - 1
            })
        };
        ids.iter().map(&mut number).collect()
    })
}

/// Refuses a file whose last record is not whole.
fn check_whole(bytes: &[u8], record: usize) -> Result<(), TraceError> {
    match bytes.len() % record {
        0 => Ok(()),
        rest => {
            let value = format!("{} bytes, cut {rest} bytes into a record", bytes.len());
            Err(refused("file", &value, &format!("a multiple of {record} bytes")))
        }
    }
}

fn is_text(bytes: &[u8]) -> bool {
    bytes.iter().all(|byte| byte.is_ascii_graphic() || byte.is_ascii_whitespace())
}

fn handles(bytes: &[u8]) -> Result<Vec<u64>, TraceError> {
    if is_text(bytes) {
        return Err(refused("format", "u32, but the file is text", "csv for this file"));
    }
    check_whole(bytes, 4)?;
    let look = bytes.len().min(LOOK * ORACLE_BYTES);
    if bytes.len().is_multiple_of(ORACLE_BYTES)
        && look > ORACLE_BYTES
        && records(&bytes[..look]).is_ok()
    {
        let value = "u32, but the file has records of oracleGeneral";
        return Err(refused("format", value, "oracleGeneral for this file"));
    }
    let words = bytes.chunks_exact(4).map(|word| u32::from_le_bytes(field(word)));
    Ok(words.map(u64::from).collect())
}

/// The first bytes of a record's part as an array.
fn field<const N: usize>(bytes: &[u8]) -> [u8; N] {
    let mut field = [0; N];
    field.copy_from_slice(&bytes[..N]);
    field
}

fn records(bytes: &[u8]) -> Result<Vec<u64>, TraceError> {
    if is_text(bytes) {
        return Err(refused("format", "oracleGeneral, but the file is text", "csv for this file"));
    }
    check_whole(bytes, ORACLE_BYTES)?;
    let (mut ids, mut last) = (Vec::with_capacity(bytes.len() / ORACLE_BYTES), 0);
    for (number, record) in (1_i64..).zip(bytes.chunks_exact(ORACLE_BYTES)) {
        let time = u32::from_le_bytes(field(record));
        let next = i64::from_le_bytes(field(&record[16..]));
        if time < last {
            let want = format!("at least the time before it, {last} (is this oracleGeneral?)");
            return Err(refused(&format!("record {number}, time"), &time.to_string(), &want));
        }
        if next != -1 && next != i64::MAX && !(number..NEXT_MOST).contains(&next) {
            let want = "-1 or the number of a later access (is this oracleGeneral?)";
            return Err(refused(&format!("record {number}, next access"), &next.to_string(), want));
        }
        last = time;
        ids.push(u64::from_le_bytes(field(&record[4..])));
    }
    Ok(ids)
}

fn lines(bytes: &[u8]) -> Result<Vec<u64>, TraceError> {
    if !is_text(bytes) {
        let at = bytes.iter().position(|byte| !is_text(&[*byte])).unwrap_or(0);
        let value = format!("csv, but byte {at} is {:#04x}", bytes[at]);
        return Err(refused("format", &value, "u32 or oracleGeneral for a binary file"));
    }
    let text = String::from_utf8_lossy(bytes);
    let mut rows =
        (1_usize..).zip(text.lines()).filter(|(_, row)| !row.trim().is_empty()).peekable();
    rows.next_if(|(_, row)| CSV_COLUMNS.contains(&row.trim()));
    let columns = rows.peek().map_or(0, |(_, row)| row.split(',').count());
    if columns != 1 && columns != 3 {
        let value =
            if columns == 0 { "without rows".to_owned() } else { format!("{columns} columns") };
        return Err(refused("file", &value, "rows of handle or time,handle,size"));
    }
    rows.map(|(line, row)| id_of(line, row, columns)).collect()
}

fn id_of(line: usize, row: &str, columns: usize) -> Result<u64, TraceError> {
    let fields: Vec<&str> = row.split(',').map(str::trim).collect();
    if fields.len() != columns {
        let value = format!("{row:?} with {} fields", fields.len());
        let want = format!("{columns} fields, as the first row (is the file cut?)");
        return Err(refused(&format!("line {line}"), &value, &want));
    }
    let number = |name: &str, text: &str| {
        let read = match text.strip_prefix("0x") {
            Some(digits) => u64::from_str_radix(digits, 16),
            None => text.parse(),
        };
        let want = "a number of 64 bits, decimal or with 0x";
        read.map_err(|_| refused(&format!("line {line}, {name}"), &format!("{text:?}"), want))
    };
    if columns == 1 {
        return number("handle", fields[0]);
    }
    number("time", fields[0])?;
    number("size", fields[2])?;
    number("handle", fields[1])
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record(time: u32, id: u64, next: i64) -> Vec<u8> {
        let parts =
            [&time.to_le_bytes()[..], &id.to_le_bytes(), &1_u32.to_le_bytes(), &next.to_le_bytes()];
        parts.concat()
    }

    #[test]
    fn three_formats_give_the_same_trace() {
        let oracle = [record(1, 7, 3), record(1, 500, -1), record(2, 7, -1)].concat();
        let words: Vec<u8> = [7_u32, 500, 7].iter().flat_map(|id| id.to_le_bytes()).collect();
        let files: [(TraceFormat, &[u8]); 5] = [
            (TraceFormat::OracleGeneral, &oracle),
            (TraceFormat::U32, &words),
            (TraceFormat::Csv, b"7\n500\n7"),
            (TraceFormat::Csv, b"handle\n7\n0x1f4\n\n7\n"),
            (TraceFormat::Csv, b"time,handle,size\r\n1, 7, 1\r\n1,500,1\r\n2,7,1\r\n"),
        ];
        for (format, bytes) in files {
            let trace = format.read(bytes).expect("a trace");
            assert_eq!(trace.handles(), [7, 500, 7], "{format:?}");
            assert_eq!((trace.numbers(), trace.distinct()), (&[0, 1, 0][..], 2));
            assert_eq!(*trace.next_uses(), [2, u64::MAX, u64::MAX]);
        }
    }

    /// The bytes are zeros that no one looks at: no memory is taken for them.
    #[test]
    fn a_file_of_more_accesses_than_a_trace_has_is_refused_by_its_length() {
        for (format, most) in [
            (TraceFormat::U32, 1 << 30),
            (TraceFormat::Csv, 1 << 29),
            (TraceFormat::OracleGeneral, 6 << 30),
        ] {
            let bytes = vec![0; most + 1];
            let error = format.read(&bytes).expect_err("too long").to_string();
            let wanted = format!(
                "file is {} bytes, which has to be at most {most} bytes (268435456 accesses)",
                most + 1
            );
            assert_eq!(error, wanted);
            if format == TraceFormat::Csv {
                let error = format.read(&bytes[..most]).expect_err("no text");
                assert_eq!(error.field, "format", "its content is looked at");
            }
        }
    }

    #[test]
    fn ids_above_32_bits_are_numbered() {
        let trace = TraceFormat::Csv.read(b"4294967296\n9\n4294967296\n").expect("a trace");
        assert_eq!(trace.handles(), [0, 1, 0]);
    }

    #[test]
    fn files_that_are_cut_empty_or_of_another_format_are_refused() {
        let oracle = [record(1, 7 << 40, 3), record(1, 500, -1), record(2, 7 << 40, -1)].concat();
        let late = [record(2, 7, -1), record(1, 500, -1)].concat();
        let past = [record(1, 7, -1), record(2, 500, 1)].concat();
        let cases: [(TraceFormat, &[u8], &str, &str); 13] = [
            (TraceFormat::U32, b"", "file", "empty"),
            (TraceFormat::Csv, b"", "file", "empty"),
            (TraceFormat::Csv, b"handle\n", "file", "without rows"),
            (TraceFormat::U32, &[1, 0, 0, 0, 2], "file", "5 bytes, cut 1 bytes"),
            (TraceFormat::OracleGeneral, &oracle[..50], "file", "50 bytes, cut 2 bytes"),
            (TraceFormat::U32, b"7\n500\n7\n", "format", "text"),
            (TraceFormat::U32, &oracle, "format", "oracleGeneral"),
            (TraceFormat::OracleGeneral, b"time,handle,size\n1,2,3\n", "format", "text"),
            (TraceFormat::Csv, &oracle, "format", "byte 0 is 0x01"),
            (TraceFormat::OracleGeneral, &late, "record 2, time", "1"),
            (TraceFormat::OracleGeneral, &past, "record 2, next access", "1"),
            (TraceFormat::Csv, b"1,7,1\n1,50", "line 2", "2 fields"),
            (TraceFormat::Csv, b"7\nseven\n", "line 2, handle", "seven"),
        ];
        for (format, bytes, field, value) in cases {
            let error = format.read(bytes).expect_err(value);
            assert_eq!(error.field, field, "{error}");
            assert!(error.value.contains(value) && !error.want.is_empty(), "{error}");
        }
        assert_eq!(TraceFormat::named("pcap").expect_err("unknown").field, "format");
    }
}
