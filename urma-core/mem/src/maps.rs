//! What lies under an address range of this process: `/proc/self/maps`, `smaps`, `pagemap`.
//!
//! Owns: reading and parsing these files.
//! Takes: address ranges.
//! Gives: pieces with the reason why their pages may not be moved; runs of present pages, without
//! touching the allocator.
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

/// Which pages of a chunk have content: looked at before their writers are held, and again while they
/// are. Nothing of it touches the allocator after [`Present::before`].
///
/// Two looks, because the protection of a page without content looks like a page in the swap. What was
/// empty at the first look and is not in memory at the second is taken as empty.
#[derive(Debug)]
pub(crate) struct Present {
    /// Without `pagemap` (not mounted, not allowed) all pages count as present: dearer, not wrong.
    map: Option<File>,
    /// A bit for each page that had content at the first look.
    had: [u64; PAGES_MAX / 64],
    first: usize,
    pages: usize,
}

/// Pages of the longest range looked at: 2 MiB in base pages of 4 KiB.
const PAGES_MAX: usize = 512;
/// Bits of an entry of `pagemap`.
const IN_MEMORY: u64 = 1 << 63;
const IN_SWAP: u64 = 1 << 62;

impl Present {
    /// The first look at the pages of `[addr, addr + len)`, at most 2 MiB.
    pub(crate) fn before(addr: usize, len: usize) -> Self {
        let map = File::open("/proc/self/pagemap").ok();
        let (first, pages) = (addr / page_len(), len / page_len());
        debug_assert!(pages <= PAGES_MAX, "a chunk is not longer");
        let mut present = Self { map, had: [u64::MAX; PAGES_MAX / 64], first, pages };
        let mut had = [0; PAGES_MAX / 64];
        present.each_entry(|page, entry| {
            let has = entry & (IN_MEMORY | IN_SWAP) != 0;
            had[page / 64] |= u64::from(has) << (page % 64);
        });
        present.had = had;
        present
    }

    /// The second look: calls `f(address, length)` for each run of pages that have content.
    ///
    /// # Errors
    /// The first of `f`.
    pub(crate) fn each_run(
        &self,
        mut f: impl FnMut(usize, usize) -> io::Result<()>,
    ) -> io::Result<()> {
        let mut has = [0_u64; PAGES_MAX / 64];
        self.each_entry(|page, entry| {
            let had = self.had[page / 64] >> (page % 64) & 1 == 1;
            let is_there = entry & IN_MEMORY != 0 || (had && entry & IN_SWAP != 0);
            has[page / 64] |= u64::from(is_there) << (page % 64);
        });
        let is_there = |page: usize| has[page / 64] >> (page % 64) & 1 == 1;
        let mut page = 0;
        while page < self.pages {
            let start = page;
            while page < self.pages && is_there(page) {
                page += 1;
            }
            if page > start {
                f((self.first + start) * page_len(), (page - start) * page_len())?;
            }
            page += 1;
        }
        Ok(())
    }

    /// Calls `f(page of the range, entry)`; a page that cannot be looked at counts as in memory.
    fn each_entry(&self, mut f: impl FnMut(usize, u64)) {
        let mut entries = [0xFF; PAGES_MAX * 8];
        let room = &mut entries[..self.pages.min(PAGES_MAX) * 8];
        let read = self.map.as_ref().map(|map| map.read_exact_at(room, self.first as u64 * 8));
        if !matches!(read, Some(Ok(()))) {
            room.fill(0xFF);
        }
        for (page, entry) in room.chunks_exact(8).enumerate() {
            f(page, word(entry));
        }
    }
}

/// The kernel writes its own words; the byte order is this machine's.
fn word(entry: &[u8]) -> u64 {
    entry.try_into().map_or(u64::MAX, u64::from_ne_bytes)
}

/// The runs of [`Present::each_run`] as a list, for ranges of any length.
#[cfg(all(test, not(loom)))]
pub(crate) fn present_runs(addr: usize, len: usize) -> Vec<(usize, usize)> {
    let mut runs: Vec<(usize, usize)> = Vec::new();
    let chunk = PAGES_MAX * page_len();
    for at in (0..len).step_by(chunk) {
        let each = |from, run| {
            match runs.last_mut() {
                Some((last, length)) if *last + *length == from => *length += run,
                _ => runs.push((from, run)),
            }
            Ok(())
        };
        let present = Present::before(addr + at, chunk.min(len - at));
        present.each_run(each).expect("a list takes every run");
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
