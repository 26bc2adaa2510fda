//! What lies under an address range of this process: its mappings, and which pages have content.
//!
//! The kernel is asked for the mappings of the range only, one at a time (`PROCMAP_QUERY` on `/proc/self/maps`,
//! Linux 6.11), so a registration costs the same however many mappings the process has. Older kernels have nothing
//! of the kind: there the list of all mappings is read up to the end of the range. Must not change anything but the
//! age of a page; runs of present pages are found without the allocator.
#![expect(unsafe_code, reason = "madvise")]

use std::{
    fs::File,
    io::{self, BufRead, BufReader},
    os::{fd::AsRawFd, unix::fs::FileExt},
    sync::OnceLock,
};

use nix::unistd::{SysconfVar, sysconf};

/// The system's base page size in bytes.
pub(crate) fn page_len() -> usize {
    static PAGE_LEN: OnceLock<usize> = OnceLock::new();
    *PAGE_LEN.get_or_init(|| {
        let answer = sysconf(SysconfVar::PAGE_SIZE).ok().flatten();
        // Every system answers; 4096 is the size both supported architectures use by default.
        answer.and_then(|len| usize::try_from(len).ok()).unwrap_or(4096)
    })
}

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
    /// Zero in forked children (`MADV_WIPEONFORK`), which the kernel does for private memory alone.
    #[error("wiped in forked children")]
    Wiped,
    /// Nothing is mapped there.
    #[error("not mapped")]
    Absent,
}

/// A part of an address range under one mapping.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct RangePart {
    pub(crate) addr: usize,
    pub(crate) len: usize,
    pub(crate) movable: Result<(), Unmovable>,
    /// Locked in memory (`mlock`).
    pub(crate) is_locked: bool,
    /// Not there in forked children (`MADV_DONTFORK`).
    pub(crate) is_dontfork: bool,
}

/// A mapping that an address lies in, or the next one after it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct FoundMapping {
    start: usize,
    end: usize,
    movable: Result<(), Unmovable>,
    origin: Origin,
    is_writable: bool,
}

/// Where the bytes of a mapping come from: what tells it from one that came to its addresses later.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Origin {
    /// Device and inode of the file; zeros for anonymous memory.
    pub(crate) file: (u32, u32, u64),
    /// Offset in the file of the mapping's first byte; 0 for anonymous memory.
    pub(crate) offset: u64,
    pub(crate) is_shared: bool,
}

impl Origin {
    /// Of private memory without a file.
    pub(crate) const ANONYMOUS: Self = Self { file: (0, 0, 0), offset: 0, is_shared: false };

    /// The origin of the part that begins `skip` bytes later.
    fn skip(self, skip: usize) -> Self {
        let skip = if self.has_file() { skip as u64 } else { 0 };
        Self { offset: self.offset.wrapping_add(skip), ..self }
    }

    pub(crate) fn has_file(&self) -> bool {
        self.file.2 != 0
    }
}

/// A part of an address range of one origin.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct OriginRun {
    pub(crate) start: usize,
    pub(crate) end: usize,
    pub(crate) origin: Origin,
    /// Each byte may be stored to.
    pub(crate) is_writable: bool,
}

impl OriginRun {
    /// The part from `at` on.
    pub(crate) fn from(&self, at: usize) -> Self {
        Self { start: at, origin: self.origin.skip(at.saturating_sub(self.start)), ..*self }
    }
}

/// The mappings of this process, asked for one at a time, as often as needed. Nothing is locked or allocated: a child
/// that was just forked uses it, too. One that was made before a fork shows the parent's.
#[derive(Debug)]
pub(crate) struct Origins {
    query: Query,
}

impl Origins {
    /// # Errors
    /// The kernel cannot be asked (before Linux 6.11, or filtered).
    pub(crate) fn new() -> io::Result<Self> {
        let query = Query::new()?;
        query.origin_at(0)?;
        Ok(Self { query })
    }

    /// The mapping of the byte at `addr`; `None`: there is none, or the kernel does not say.
    pub(crate) fn at(&self, addr: usize) -> Option<OriginRun> {
        self.at_or_after(addr).filter(|run| run.start <= addr)
    }

    /// The mapping at an address, or the next one behind it.
    pub(crate) fn at_or_after(&self, addr: usize) -> Option<OriginRun> {
        self.query.origin_at(addr).ok().flatten()
    }

    /// The runs of `[start, end)`; `None`: something is not mapped.
    pub(crate) fn runs(&self, start: usize, end: usize) -> Option<Vec<OriginRun>> {
        let mut runs: Vec<OriginRun> = Vec::new();
        let mut at = start;
        while at < end {
            let found = self.at(at)?.from(at);
            let found = OriginRun { end: found.end.min(end), ..found };
            at = found.end;
            match runs.last_mut() {
                Some(last) if last.from(found.start).origin == found.origin => {
                    last.end = found.end;
                    last.is_writable &= found.is_writable;
                }
                _ => runs.push(found),
            }
        }
        Some(runs)
    }
}

/// What decides whether a mapping's pages are moved.
#[derive(Debug, Clone, Copy)]
struct Traits<'a> {
    is_shared: bool,
    is_rw: bool,
    has_file: bool,
    name: &'a str,
}

impl Traits<'_> {
    fn movable(&self) -> Result<(), Unmovable> {
        if self.name.starts_with("[stack") || self.name.contains("pthread") && !self.has_file {
            return Err(Unmovable::Stack);
        }
        if self.is_shared {
            return Err(Unmovable::Shared);
        }
        let has_plain_name =
            self.name.is_empty() || self.name == "[heap]" || self.name.starts_with("[anon");
        if self.has_file || !has_plain_name {
            return Err(Unmovable::File);
        }
        if self.is_rw { Ok(()) } else { Err(Unmovable::Protection) }
    }
}

/// The mappings under `[addr, addr + len)`, in order, gaps included.
pub(crate) fn pieces(addr: usize, len: usize, stack_addr: usize) -> io::Result<Vec<RangePart>> {
    let query = Query::new()?;
    let cut_up = cut((addr, len), stack_addr, |at| query.at_or_after(at));
    match cut_up {
        // Before Linux 6.11, or filtered.
        Err(_) => pieces_of_text(addr, len, stack_addr),
        pieces => pieces,
    }
}

/// Asks what becomes of movable pieces in forked children; `hold` keeps forks away. Of kernels that cannot be asked for a mapping
/// nothing is learned.
pub(crate) fn ask_for_advice<H>(pieces: &mut [RangePart], hold: impl Fn() -> H) {
    let Ok(query) = Query::new() else { return };
    for piece in pieces.iter_mut().filter(|piece| piece.movable.is_ok()) {
        let advice = {
            let _no_fork = hold();
            fork_advice(&query, piece.addr)
        };
        match advice {
            ForkAdvice::Inherit => {}
            ForkAdvice::DontFork => piece.is_dontfork = true,
            ForkAdvice::Wipe => piece.movable = Err(Unmovable::Wiped),
        }
    }
}

/// Whether this kernel can be asked for a mapping.
#[cfg(all(test, not(loom)))]
pub(crate) fn can_be_asked() -> bool {
    Query::new().and_then(|query| query.at_or_after(0)).is_ok()
}

/// As [`pieces`], for kernels that cannot be asked.
fn pieces_of_text(addr: usize, len: usize, stack_addr: usize) -> io::Result<Vec<RangePart>> {
    let mut text = Text::new()?;
    cut((addr, len), stack_addr, |at| text.at_or_after(at))
}

/// Cuts the range along the mappings that `at_or_after` gives for ascending addresses.
fn cut(
    (addr, len): (usize, usize),
    stack_addr: usize,
    mut at_or_after: impl FnMut(usize) -> io::Result<Option<FoundMapping>>,
) -> io::Result<Vec<RangePart>> {
    let end = addr.saturating_add(len);
    let mut pieces: Vec<RangePart> = Vec::new();
    let mut at = addr;
    while at < end {
        let Some(mapped) = at_or_after(at)?.filter(|mapped| mapped.start < end) else { break };
        if mapped.start > at {
            pieces.push(absent(at, mapped.start));
            at = mapped.start;
        }
        let has_stack = (mapped.start..mapped.end).contains(&stack_addr);
        let movable = if has_stack { Err(Unmovable::Stack) } else { mapped.movable };
        let stop = mapped.end.min(end);
        let is_locked = is_locked(at);
        pieces.push(RangePart { addr: at, len: stop - at, movable, is_locked, is_dontfork: false });
        at = stop;
    }
    if at < end {
        pieces.push(absent(at, end));
    }
    Ok(pieces)
}

fn absent(start: usize, end: usize) -> RangePart {
    let movable = Err(Unmovable::Absent);
    RangePart { addr: start, len: end - start, movable, is_locked: false, is_dontfork: false }
}

/// Whether the mapping of the page at `addr` is locked in memory. Only such mappings refuse to let
/// a page age; one that agrees has a page that the kernel evicts a little earlier. `smaps` shows
/// the same, for all mappings at once, and walks each page.
fn is_locked(addr: usize) -> bool {
    let age = |len| {
        // SAFETY: the advice changes neither content nor access, whatever lies there.
        unsafe { libc::madvise(core::ptr::without_provenance_mut(addr), len, libc::MADV_COLD) == 0 }
    };
    // No bytes: whether the kernel takes this advice at all (Linux 5.4).
    age(0) && !age(page_len())
}

/// Which pages of a chunk have content: read before their writers are held, and again while they
/// are. Nothing allocates after [`Present::before`].
///
/// It is read twice, because a protected page without content looks like a page in the swap. A page
/// that was empty at first and is not in memory the second time counts as empty.
#[derive(Debug)]
pub(crate) struct Present {
    /// Without `pagemap` (not mounted, not allowed) all pages count as present: dearer, not wrong.
    map: Option<File>,
    /// A bit for each page that had content when it was first read.
    had: [u64; PAGES_MAX / 64],
    first: usize,
    pages: usize,
}

/// Pages of the longest range that is read: 2 MiB in base pages of 4 KiB.
const PAGES_MAX: usize = 512;
/// Bits of an entry of `pagemap`.
const IN_MEMORY: u64 = 1 << 63;
const IN_SWAP: u64 = 1 << 62;

impl Present {
    /// Reads the pages of `[addr, addr + len)`, at most 2 MiB, for the first time.
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

    /// Reads them again: calls `f(address, length)` for each run of pages that have content.
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

    /// Calls `f(page of the range, entry)`; a page that cannot be read counts as in memory.
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

// The kernel shows advice in `smaps` alone, which walks the pages of all mappings. So an advice is given to one page of the
// mapping: if the mapping is cut up by that, it did not have it, and the page loses it again; if not, it had. Of a mapping of
// one page this tells nothing, and nothing is tried.

/// What becomes of pages in a forked child.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) enum ForkAdvice {
    /// The child has them.
    #[default]
    Inherit,
    /// They are not mapped in the child.
    DontFork,
    /// They are zero in the child.
    Wipe,
}

/// The advice of the private anonymous mapping of the page at `addr`, as far as it shows. The caller keeps forks away: a child
/// would have of the page what is only tried.
fn fork_advice(query: &Query, addr: usize) -> ForkAdvice {
    let has = |advice, undo| has_advice(query, addr, advice, undo).unwrap_or(false);
    if has(libc::MADV_DONTFORK, libc::MADV_DOFORK) {
        ForkAdvice::DontFork
    } else if has(libc::MADV_WIPEONFORK, libc::MADV_KEEPONFORK) {
        ForkAdvice::Wipe
    } else {
        ForkAdvice::Inherit
    }
}

/// `None`: it does not show.
fn has_advice(query: &Query, addr: usize, advice: libc::c_int, undo: libc::c_int) -> Option<bool> {
    let end = addr + page_len();
    let before = query.at_or_after(addr).ok()??;
    let (begins_before, goes_on) = (before.start < addr, before.end > end);
    if before.start > addr || !begins_before && !goes_on {
        return None;
    }
    give(addr, advice)?;
    let after = query.at_or_after(addr).ok().flatten();
    // Boundaries that other threads move meanwhile are others than those of the page.
    let is_cut = after
        .is_none_or(|after| begins_before && after.start == addr || goes_on && after.end == end);
    if is_cut {
        give(addr, undo)?;
    }
    Some(!is_cut)
}

/// `None`: the kernel refuses.
fn give(addr: usize, advice: libc::c_int) -> Option<()> {
    let at = core::ptr::without_provenance_mut(addr);
    // SAFETY: the advice says what a forked child has, and changes nothing here; no fork happens meanwhile, as the caller keeps
    // forks away, so a child has what the program asked for.
    let refused = unsafe { libc::madvise(at, page_len(), advice) };
    (refused == 0).then_some(())
}

/// The mappings of this process, read as far as needed.
#[derive(Debug)]
struct Text {
    maps: BufReader<File>,
    line: String,
    last: Option<FoundMapping>,
}

impl Text {
    /// # Errors
    /// No `/proc`.
    fn new() -> io::Result<Self> {
        let maps = BufReader::new(File::open("/proc/self/maps")?);
        Ok(Self { maps, line: String::new(), last: None })
    }

    /// The mapping that `addr` lies in, or the next one after it. `addr` is not below the one before.
    ///
    /// # Errors
    /// The system's.
    fn at_or_after(&mut self, addr: usize) -> io::Result<Option<FoundMapping>> {
        loop {
            if self.last.is_some_and(|last| last.end > addr) {
                return Ok(self.last);
            }
            self.line.clear();
            if self.maps.read_line(&mut self.line)? == 0 {
                return Ok(None);
            }
            self.last = parse(self.line.trim_end_matches('\n')).or(self.last);
        }
    }
}

/// A line of `maps`; `None`: it has another form.
fn parse(line: &str) -> Option<FoundMapping> {
    let (range, rest) = line.split_once(' ')?;
    let (start, end) = range.split_once('-')?;
    let (permissions, rest) = rest.split_once(' ')?;
    let (offset, rest) = rest.split_once(' ')?;
    let (device, rest) = rest.split_once(' ')?;
    let (inode, name) = rest.split_once(' ').unwrap_or((rest, ""));
    let traits = Traits {
        is_shared: permissions.ends_with('s'),
        is_rw: permissions.starts_with("rw-"),
        has_file: inode != "0",
        name: name.trim_start(),
    };
    let (major, minor) = device.split_once(':')?;
    let number = |hex| u32::from_str_radix(hex, 16).ok();
    let origin = Origin {
        file: (number(major)?, number(minor)?, inode.parse().ok()?),
        offset: u64::from_str_radix(offset, 16).ok()?,
        is_shared: traits.is_shared,
    };
    Some(FoundMapping {
        start: usize::from_str_radix(start, 16).ok()?,
        end: usize::from_str_radix(end, 16).ok()?,
        movable: traits.movable(),
        origin,
        is_writable: permissions.as_bytes().get(1) == Some(&b'w'),
    })
}

/// The mappings of this process.
#[derive(Debug)]
struct Query {
    maps: File,
}

impl Query {
    /// # Errors
    /// No `/proc`.
    fn new() -> io::Result<Self> {
        Ok(Self { maps: File::open("/proc/self/maps")? })
    }

    /// The mapping that `addr` lies in, or the next one after it.
    ///
    /// # Errors
    /// The kernel does not know the call.
    fn at_or_after(&self, addr: usize) -> io::Result<Option<FoundMapping>> {
        let mut name = [0_u8; NAME_MAX];
        match self.ask(addr, &mut name) {
            // Such a name is a file's.
            Err(error) if error.raw_os_error() == Some(libc::ENAMETOOLONG) => {
                self.ask(addr, &mut [])
            }
            Err(error) if error.raw_os_error() == Some(libc::ENOENT) => Ok(None),
            mapped => mapped,
        }
    }

    /// Origin of the mapping that `addr` lies in, or of the next one.
    ///
    /// # Errors
    /// The kernel does not know the call.
    #[inline]
    fn origin_at(&self, addr: usize) -> io::Result<Option<OriginRun>> {
        match self.ask(addr, &mut []) {
            Err(error) if error.raw_os_error() == Some(libc::ENOENT) => Ok(None),
            found => {
                let run = |found: FoundMapping| OriginRun {
                    start: found.start,
                    end: found.end,
                    origin: found.origin,
                    is_writable: found.is_writable,
                };
                found.map(|found| found.map(run))
            }
        }
    }

    fn ask(&self, addr: usize, name: &mut [u8]) -> io::Result<Option<FoundMapping>> {
        let mut call = Call {
            size: size_of::<Call>() as u64,
            query_flags: COVERING_OR_NEXT,
            query_addr: addr as u64,
            vma_name_size: u32::try_from(name.len()).unwrap_or(0),
            vma_name_addr: if name.is_empty() {
                0
            } else {
                name.as_mut_ptr().expose_provenance() as u64
            },
            ..Call::default()
        };
        // SAFETY: `call` is the structure that the number names, and says where `name` lies and how long
        // it is; both outlive the call, and the kernel writes nothing else.
        let answer = unsafe { libc::ioctl(self.maps.as_raw_fd(), PROCMAP_QUERY, &raw mut call) };
        if answer != 0 {
            return Err(io::Error::last_os_error());
        }
        let place = |addr: u64| usize::try_from(addr).map_err(io::Error::other);
        let rights = READABLE | WRITABLE | EXECUTABLE;
        let len = usize::try_from(call.vma_name_size).unwrap_or(0).saturating_sub(1);
        let traits = Traits {
            is_shared: call.vma_flags & SHARED != 0,
            is_rw: call.vma_flags & rights == READABLE | WRITABLE,
            has_file: call.inode != 0,
            name: core::str::from_utf8(name.get(..len).unwrap_or_default()).unwrap_or("?"),
        };
        let movable = match traits.movable() {
            // A name was left out.
            Ok(()) if name.is_empty() => Err(Unmovable::File),
            movable => movable,
        };
        let origin = Origin {
            file: (call.dev_major, call.dev_minor, call.inode),
            offset: call.vma_offset,
            is_shared: traits.is_shared,
        };
        let (start, end) = (place(call.vma_start)?, place(call.vma_end)?);
        let is_writable = call.vma_flags & WRITABLE != 0;
        Ok(Some(FoundMapping { start, end, movable, origin, is_writable }))
    }
}

/// Argument of the ioctl PROCMAP_QUERY: `struct procmap_query` of linux/fs.h.
#[repr(C)]
#[derive(Default)]
struct Call {
    size: u64,
    query_flags: u64,
    query_addr: u64,
    vma_start: u64,
    vma_end: u64,
    vma_flags: u64,
    vma_page_size: u64,
    vma_offset: u64,
    inode: u64,
    dev_major: u32,
    dev_minor: u32,
    vma_name_size: u32,
    build_id_size: u32,
    vma_name_addr: u64,
    build_id_addr: u64,
}

const _: () = assert!(size_of::<Call>() == 104);

const READABLE: u64 = 1;
const WRITABLE: u64 = 2;
const EXECUTABLE: u64 = 4;
const SHARED: u64 = 8;
const COVERING_OR_NEXT: u64 = 16;
/// Longest name taken: the kernel's longest name of anonymous memory has 88 bytes.
const NAME_MAX: usize = 128;
/// `_IOWR('f', 17, struct procmap_query)` (asm-generic/ioctl.h).
const PROCMAP_QUERY: libc::Ioctl =
    3 << 30 | (size_of::<Call>() as libc::Ioctl) << 16 | (b'f' as libc::Ioctl) << 8 | 17;

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    use std::os::fd::AsFd;

    use nix::sys::mman::{MapFlags, ProtFlags, mmap, mmap_anonymous, mprotect, munmap};

    /// Fourteen pages: private, read-only, shared, of a file, executable, unmapped, and private
    /// again.
    #[expect(clippy::unwrap_used, reason = "a test may stop")]
    #[expect(clippy::multiple_unsafe_ops_per_block, reason = "all on pages of this function's own")]
    fn every_kind() -> usize {
        let page = page_len();
        let (rw, private) = (ProtFlags::PROT_READ | ProtFlags::PROT_WRITE, MapFlags::MAP_PRIVATE);
        let len = |pages: usize| (pages * page).try_into().unwrap();
        // SAFETY: a new mapping at an address of the kernel's choice.
        let start = unsafe { mmap_anonymous(None, len(14), rw, private) }.unwrap();
        let addr = start.addr().get();
        let at = |pages: usize| start.map_addr(|addr| addr.saturating_add(pages * page));
        let fixed = MapFlags::MAP_FIXED;
        let exe = File::open("/proc/self/exe").unwrap();
        // SAFETY: every range is this function's own.
        unsafe {
            mprotect(at(2), page, ProtFlags::PROT_READ).unwrap();
            let over = Some(at(4).addr());
            mmap_anonymous(over, len(1), rw, fixed | MapFlags::MAP_SHARED).unwrap();
            mmap(Some(at(6).addr()), len(1), rw, fixed | private, exe.as_fd(), 0).unwrap();
            mprotect(at(8), page, rw | ProtFlags::PROT_EXEC).unwrap();
            munmap(at(10), page).unwrap();
            assert_eq!(libc::mlock(at(12).as_ptr(), page), 0);
        }
        addr
    }

    #[test]
    fn every_kind_of_mapping_has_its_answer_from_both_sources() {
        let (addr, page) = (every_kind(), page_len());
        let (range, on_stack) = ((addr, 14 * page), addr + 13 * page);
        let asked = pieces(range.0, range.1, on_stack).unwrap();
        assert_eq!(asked, pieces_of_text(range.0, range.1, on_stack).unwrap());
        let answers: Vec<_> =
            asked.iter().map(|p| ((p.addr - addr) / page, p.movable, p.is_locked)).collect();
        assert_eq!(
            answers,
            [
                (0, Ok(()), false),
                (2, Err(Unmovable::Protection), false),
                (3, Ok(()), false),
                (4, Err(Unmovable::Shared), false),
                (5, Ok(()), false),
                (6, Err(Unmovable::File), false),
                (7, Ok(()), false),
                (8, Err(Unmovable::Protection), false),
                (9, Ok(()), false),
                (10, Err(Unmovable::Absent), false),
                (11, Ok(()), false),
                (12, Ok(()), true),
                (13, Err(Unmovable::Stack), false),
            ]
        );
        // Parts of mappings, and a start in a gap.
        for (from, pages) in [(1, 1), (1, 4), (10, 1), (10, 4), (12, 1)] {
            let (from, len) = (addr + from * page, pages * page);
            assert_eq!(pieces(from, len, 0).unwrap(), pieces_of_text(from, len, 0).unwrap());
        }
    }

    #[test]
    fn both_sources_agree_on_stacks_the_heap_and_libraries() {
        let maps = std::fs::read_to_string("/proc/self/maps").unwrap();
        let mut seen = 0;
        let named = |line: &&str| {
            line.contains(".so") || line.contains("[heap]") || line.contains("[stack]")
        };
        for line in maps.lines().filter(named) {
            let (start, rest) = line.split_once('-').unwrap();
            let end = rest.split_once(' ').unwrap().0;
            let [start, end] = [start, end].map(|hex| usize::from_str_radix(hex, 16).unwrap());
            // Other threads of this process may lengthen the heap or the stack meanwhile.
            let of = |pieces: Vec<RangePart>| pieces[0].movable;
            let page = end - page_len();
            let asked = of(pieces(page, page_len(), 0).unwrap());
            assert_eq!(asked, of(pieces_of_text(page, page_len(), 0).unwrap()), "{line}");
            let expected = match () {
                () if line.contains("[stack]") => Err(Unmovable::Stack),
                () if line.contains(".so") => Err(Unmovable::File),
                () => Ok(()),
            };
            assert_eq!(asked, expected, "{line}");
            assert!(start < end);
            seen += 1;
        }
        assert!(seen > 3, "{maps}");
    }

    #[test]
    fn present_runs_follow_the_touched_pages() {
        let page = page_len();
        let len = (page * 8).try_into().unwrap();
        let (rw, private) = (ProtFlags::PROT_READ | ProtFlags::PROT_WRITE, MapFlags::MAP_PRIVATE);
        // SAFETY: a new mapping at an address of the kernel's choice.
        let start = unsafe { mmap_anonymous(None, len, rw, private) }.unwrap();
        for touched in [1, 2, 5] {
            let at = start.map_addr(|addr| addr.saturating_add(touched * page)).cast::<u8>();
            // SAFETY: a byte of this function's own mapping.
            unsafe { at.write(1) };
        }
        let addr = start.addr().get();
        assert_eq!(
            present_runs(addr, page * 8),
            [(addr + page, page * 2), (addr + 5 * page, page)]
        );
    }

    #[test]
    fn a_line_is_read_whatever_its_name() {
        let line = |text| parse(text).map(|mapped| (mapped.start, mapped.end, mapped.movable));
        let plain = line("1000-3000 rw-p 00000000 00:00 0 ");
        assert_eq!(plain, Some((0x1000, 0x3000, Ok(()))));
        let heap = line("3000-4000 rw-p 00000000 00:00 0                          [heap]");
        assert_eq!(heap, Some((0x3000, 0x4000, Ok(()))));
        let memfd = line("5000-6000 rw-s 00000000 00:01 77    /memfd:x (deleted)");
        assert_eq!(memfd, Some((0x5000, 0x6000, Err(Unmovable::Shared))));
        let named = line("5000-6000 rw-p 00000000 00:00 0    [anon:pthread stack]");
        assert_eq!(named, Some((0x5000, 0x6000, Err(Unmovable::Stack))));
        assert_eq!(line("Rss:    4 kB"), None);
    }
}
