//! Mappings from the text of `/proc/self/maps`, for kernels that cannot be asked for one.
//!
//! Owns: reading and parsing lines, in order of addresses.
//! Takes: ascending addresses.
//! Gives: the mapping there, or the next one.
//! Must not: read beyond the mapping that was asked for.

use std::fs::File;
use std::io::{self, BufRead, BufReader};

use super::{FoundMapping, Origin, Traits};

/// The mappings of this process, read as far as needed.
#[derive(Debug)]
pub(super) struct Text {
    maps: BufReader<File>,
    line: String,
    last: Option<FoundMapping>,
}

impl Text {
    /// # Errors
    /// No `/proc`.
    pub(super) fn new() -> io::Result<Self> {
        let maps = BufReader::new(File::open("/proc/self/maps")?);
        Ok(Self { maps, line: String::new(), last: None })
    }

    /// The mapping that `addr` lies in, or the next one after it. `addr` is not below the one before.
    ///
    /// # Errors
    /// The system's.
    pub(super) fn at_or_after(&mut self, addr: usize) -> io::Result<Option<FoundMapping>> {
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

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use crate::maps::Unmovable;

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
