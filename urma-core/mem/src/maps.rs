//! What lies under an address range of this process: `/proc/self/maps`, `smaps`, `pagemap`.
//!
//! Owns: reading and parsing these files.
//! Takes: address ranges.
//! Gives: pieces with the reason why their pages may not be moved; runs of present pages.
//! Must not: change anything.

use std::fs::{self, File};
use std::io;
use std::os::unix::fs::FileExt;

use crate::region::page_len;

/// Why a mapping's pages are not moved.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Unmovable {
    /// A thread's stack: a forked child would share the parent's frames.
    #[error("a stack")]
    Stack,
    /// A file or device, also a private view of one.
    #[error("a file's or device's pages")]
    File,
    /// Shared with others already: they would go on with the old pages.
    #[error("already shared memory")]
    Shared,
    /// Not plainly readable and writable.
    #[error("not readable and writable")]
    Protection,
    /// Nothing is mapped there.
    #[error("not mapped")]
    Absent,
}

/// A part of an address range under one mapping.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Piece {
    pub(crate) addr: usize,
    pub(crate) len: usize,
    pub(crate) movable: Result<(), Unmovable>,
    /// Locked in memory (`mlock`).
    pub(crate) is_locked: bool,
}

/// The mappings under `[addr, addr + len)`, in order, gaps included.
pub(crate) fn pieces(addr: usize, len: usize, stack_addr: usize) -> io::Result<Vec<Piece>> {
    let text = if any_locked()? {
        fs::read_to_string("/proc/self/smaps")?
    } else {
        fs::read_to_string("/proc/self/maps")?
    };
    Ok(cut(&text, addr, len, stack_addr))
}

/// Whether any page of the process is locked; only then is the dear `smaps` read.
fn any_locked() -> io::Result<bool> {
    let status = fs::read_to_string("/proc/self/status")?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmLck:"));
    Ok(line.is_some_and(|line| !line.trim().starts_with("0 ")))
}

/// Cuts the range along the mappings that `text` (maps or smaps) lists.
fn cut(text: &str, addr: usize, len: usize, stack_addr: usize) -> Vec<Piece> {
    let end = addr.saturating_add(len);
    let mut pieces: Vec<Piece> = Vec::new();
    let mut at = addr;
    let mut is_last_inside = false;
    for line in text.lines() {
        if let Some(flags) = line.strip_prefix("VmFlags:") {
            if let (true, Some(piece)) = (is_last_inside, pieces.last_mut()) {
                piece.is_locked = flags.split_whitespace().any(|flag| flag == "lo");
            }
            continue;
        }
        let Some(mapping) = parse(line) else { continue };
        let (start, stop) = (mapping.start.max(at), mapping.end.min(end));
        is_last_inside = start < stop;
        if !is_last_inside {
            continue;
        }
        if start > at {
            pieces.push(absent(at, start));
        }
        let movable = mapping.movable(stack_addr);
        pieces.push(Piece { addr: start, len: stop - start, movable, is_locked: false });
        at = stop;
    }
    if at < end {
        pieces.push(absent(at, end));
    }
    pieces
}

fn absent(start: usize, end: usize) -> Piece {
    let movable = Err(Unmovable::Absent);
    Piece { addr: start, len: end - start, movable, is_locked: false }
}

/// One line of `maps`.
struct Mapped<'a> {
    start: usize,
    end: usize,
    permissions: &'a str,
    inode: &'a str,
    name: &'a str,
}

/// Parses a mapping's line; `None` for the detail lines of `smaps`.
fn parse(line: &str) -> Option<Mapped<'_>> {
    let (range, rest) = line.split_once(' ')?;
    let (start, end) = range.split_once('-')?;
    let (permissions, rest) = rest.split_once(' ')?;
    let (_offset, rest) = rest.split_once(' ')?;
    let (_device, rest) = rest.split_once(' ')?;
    let (inode, name) = rest.split_once(' ').unwrap_or((rest, ""));
    Some(Mapped {
        start: usize::from_str_radix(start, 16).ok()?,
        end: usize::from_str_radix(end, 16).ok()?,
        permissions,
        inode,
        name: name.trim_start(),
    })
}

impl Mapped<'_> {
    fn movable(&self, stack_addr: usize) -> Result<(), Unmovable> {
        let is_stack_name =
            self.name.starts_with("[stack") || self.name.contains("pthread") && self.inode == "0";
        if is_stack_name || (self.start..self.end).contains(&stack_addr) {
            return Err(Unmovable::Stack);
        }
        if self.permissions.ends_with('s') {
            return Err(Unmovable::Shared);
        }
        let is_anonymous = self.inode == "0"
            && (self.name.is_empty() || self.name == "[heap]" || self.name.starts_with("[anon"));
        if !is_anonymous {
            return Err(Unmovable::File);
        }
        if self.permissions == "rw-p" { Ok(()) } else { Err(Unmovable::Protection) }
    }
}

/// Runs of pages inside `[addr, addr + len)` that have content (in memory or swapped out), as (address,
/// length). Without `pagemap` (not mounted, not allowed) the whole range is one run: dearer, not wrong.
pub(crate) fn present_runs(addr: usize, len: usize) -> Vec<(usize, usize)> {
    const PRESENT_OR_SWAPPED: u64 = 0b11 << 62;
    let page = page_len();
    let mut entries = vec![0; len / page * 8];
    let offset = (addr / page * 8) as u64;
    let read = File::open("/proc/self/pagemap")
        .and_then(|pagemap| pagemap.read_exact_at(&mut entries, offset));
    if read.is_err() {
        return vec![(addr, len)];
    }
    let mut runs: Vec<(usize, usize)> = Vec::new();
    for (index, entry) in entries.chunks_exact(8).enumerate() {
        // The kernel writes its own words; the byte order is this machine's.
        #[expect(clippy::host_endian_bytes, reason = "pagemap holds words of this machine")]
        let entry = u64::from_ne_bytes(entry.try_into().unwrap_or([0xFF; 8]));
        if entry & PRESENT_OR_SWAPPED == 0 {
            continue;
        }
        let start = addr + index * page;
        match runs.last_mut() {
            Some((last, length)) if *last + *length == start => *length += page,
            _ => runs.push((start, page)),
        }
    }
    runs
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    const TEXT: &str = "\
1000-3000 rw-p 00000000 00:00 0 \n\
Rss: 4 kB\n\
VmFlags: rd wr mr lo ac \n\
3000-4000 rw-p 00000000 00:00 0                          [heap]\n\
VmFlags: rd wr mr ac \n\
5000-6000 rw-s 00000000 00:01 77                         /memfd:x (deleted)\n\
6000-7000 r--p 00000000 00:00 0 \n\
7000-8000 rw-p 00001000 08:01 99                         /lib/libc.so.6\n\
8000-9000 rw-p 00000000 00:00 0                          [stack]\n\
9000-a000 rwxp 00000000 00:00 0 \n\
a000-b000 rw-p 00000000 00:00 0 \n";

    #[test]
    fn every_kind_of_mapping_has_its_answer() {
        let pieces = cut(TEXT, 0x2000, 0xA000, 0xA800);
        let answers: Vec<_> = pieces.iter().map(|piece| (piece.addr, piece.movable)).collect();
        assert_eq!(
            answers,
            [
                (0x2000, Ok(())),
                (0x3000, Ok(())),
                (0x4000, Err(Unmovable::Absent)),
                (0x5000, Err(Unmovable::Shared)),
                (0x6000, Err(Unmovable::Protection)),
                (0x7000, Err(Unmovable::File)),
                (0x8000, Err(Unmovable::Stack)),
                (0x9000, Err(Unmovable::Protection)),
                (0xA000, Err(Unmovable::Stack)),
                (0xB000, Err(Unmovable::Absent)),
            ]
        );
        assert!(pieces[0].is_locked && !pieces[1].is_locked);
    }

    #[test]
    fn present_runs_follow_the_touched_pages() {
        let page = page_len();
        let region = crate::region::Region::private(page * 8).unwrap();
        for touched in [1, 2, 5] {
            region.store_u8(touched * page, 1).unwrap();
        }
        let addr = region.addr();
        assert_eq!(
            present_runs(addr, page * 8),
            [(addr + page, page * 2), (addr + 5 * page, page)]
        );
    }
}
