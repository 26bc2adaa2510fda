//! Whether the process may have more memory or one more thread: looked at before, and said by name when it may not.
//!
//! Owns: the limits of the process (`RLIMIT_AS`) and of its control group (`memory.max`) as far as mappings meet them, and
//! what is kept free for the rest of the program. Takes: the length of a mapping that is about to be made. Gives: ENOMEM, with a line
//! that names the limit. Must not: be asked on the data path; refuse what the kernel would give and keep.
//!
//! Two things end a program without an error to handle: the heap of a Rust program that gets no memory aborts it, and the
//! kernel kills a process of a control group that has no memory left when a page is touched. So a mapping leaves
//! 8 MiB to the heap, and one that cannot be filled within the group is not made. What others take afterwards, and
//! what the program itself allocates, is not known here.

use std::fmt;
use std::fs;
use std::io;

use nix::sys::resource::{RLIM_INFINITY, Resource, getrlimit};

use crate::maps::page_len;

/// Bytes that a mapping leaves for the heap and for stacks.
const RESERVE: u64 = 8 << 20;
/// Shorter mappings are not compared with the control group's memory: to look takes longer than to make them.
const GROUP_MIN: usize = 1 << 20;

/// Why a mapping is not made.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct NoRoom {
    limit: &'static str,
    value: u64,
    used: u64,
    needed: u64,
}

impl fmt::Display for NoRoom {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { limit, value, used, needed } = self;
        write!(
            f,
            "{limit} is {value} bytes, of which {used} are used; {needed} more are needed and {RESERVE} stay free: raise it"
        )
    }
}

/// Looks whether a mapping of `len` bytes fits.
///
/// # Errors
/// `ENOMEM`, with a line that names the limit.
pub(crate) fn check(len: usize) -> io::Result<()> {
    let found = no_address_space(len).or_else(|| no_group_memory(len));
    found.map_or(Ok(()), |why| {
        tracing::error!(len, "memory cannot be had: {why}");
        Err(io::Error::from_raw_os_error(libc::ENOMEM))
    })
}

/// Whether `len` bytes of address space can be had, without a line in the log: for the file of a peer, for which there is
/// another way.
///
/// # Errors
/// `ENOMEM`.
pub(crate) fn check_address_space(len: usize) -> io::Result<()> {
    match no_address_space(len) {
        Some(_) => Err(io::Error::from_raw_os_error(libc::ENOMEM)),
        None => Ok(()),
    }
}

fn no_address_space(len: usize) -> Option<NoRoom> {
    let (value, _) =
        getrlimit(Resource::RLIMIT_AS).ok().filter(|(now, _)| *now != RLIM_INFINITY)?;
    let pages = fs::read_to_string("/proc/self/statm").ok()?;
    let pages: u64 = pages.split(' ').next()?.parse().ok()?;
    let limit = "RLIMIT_AS (`ulimit -v`, LimitAS=)";
    over(NoRoom { limit, value, used: pages * page_len() as u64, needed: len as u64 })
}

fn no_group_memory(len: usize) -> Option<NoRoom> {
    if len < GROUP_MIN {
        return None;
    }
    let group = fs::read_to_string("/proc/self/cgroup").ok()?;
    let (value, used) = group_memory(&group)?;
    let limit = "the memory limit of the control group (memory.max, MemoryMax=)";
    over(NoRoom { limit, value, used, needed: len as u64 })
}

/// Whether the control group has at least `len` bytes left, as far as it shows.
pub(crate) fn group_has(len: usize) -> bool {
    let room = fs::read_to_string("/proc/self/cgroup").ok().and_then(|group| group_memory(&group));
    room.is_none_or(|(value, used)| used.saturating_add(len as u64) <= value)
}

fn over(room: NoRoom) -> Option<NoRoom> {
    let NoRoom { value, used, needed, .. } = room;
    (used.saturating_add(needed).saturating_add(RESERVE) > value).then_some(room)
}

/// Limit of the memory of the group that `/proc/self/cgroup` names, and what of it is used for good: pages of files can go,
/// and where there is swap, others too, so nothing is said then. `None`: there is no limit, or it is not shown.
fn group_memory(lines: &str) -> Option<(u64, u64)> {
    let number =
        |path: String| -> Option<u64> { fs::read_to_string(path).ok()?.trim().parse().ok() };
    let field = |text: &str, name: &str| -> u64 {
        let value = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
        value.and_then(|value| value.trim().parse().ok()).unwrap_or(0)
    };
    for line in lines.lines() {
        let mut parts = line.splitn(3, ':');
        let (_, kinds, path) = (parts.next()?, parts.next()?, parts.next()?);
        let (folder, limit, fields) = if kinds.is_empty() {
            (format!("/sys/fs/cgroup{path}"), "memory.max", ["anon", "shmem"])
        } else if kinds.split(',').any(|kind| kind == "memory") {
            (format!("/sys/fs/cgroup/memory{path}"), "memory.limit_in_bytes", ["rss", "shmem"])
        } else {
            continue;
        };
        // The value without a limit is no number, or longer than any memory.
        let value = number(format!("{folder}/{limit}")).filter(|value| *value < 1 << 60);
        let Some(value) = value else { continue };
        let has_swap =
            fs::read_to_string("/proc/swaps").is_ok_and(|swaps| swaps.lines().count() > 1);
        let stat = fs::read_to_string(format!("{folder}/memory.stat")).ok()?;
        return (!has_swap).then(|| (value, fields.iter().map(|name| field(&stat, name)).sum()));
    }
    None
}

/// `error` of a thread that was not started, with the limits that it may have met.
#[must_use]
pub fn thread_refused(what: &str, error: &io::Error) -> io::Error {
    let limit = |limit: u64| {
        if limit == RLIM_INFINITY { "none".to_owned() } else { limit.to_string() }
    };
    let of =
        |resource| getrlimit(resource).map_or_else(|_| "unknown".to_owned(), |(now, _)| limit(now));
    let (threads, space) = (of(Resource::RLIMIT_NPROC), of(Resource::RLIMIT_AS));
    let group =
        fs::read_to_string("/proc/self/cgroup").ok().and_then(|lines| group_threads(&lines));
    let group = group.unwrap_or_else(|| "none".to_owned());
    let text = format!(
        "{what} needs a thread, which is refused ({error}): the limits are RLIMIT_NPROC {threads} (`ulimit -u`, of all \
         threads of the user), pids.max of the control group {group} (TasksMax=), RLIMIT_AS {space} bytes (`ulimit -v`)"
    );
    io::Error::new(error.kind(), text)
}

/// `pids.max` of the group that `/proc/self/cgroup` names, and how many it has.
fn group_threads(lines: &str) -> Option<String> {
    lines.lines().find_map(|line| {
        let mut parts = line.splitn(3, ':');
        let (_, kinds, path) = (parts.next()?, parts.next()?, parts.next()?);
        let folder = match kinds {
            "" => format!("/sys/fs/cgroup{path}"),
            "pids" => format!("/sys/fs/cgroup/pids{path}"),
            _ => return None,
        };
        let read = |name: &str| fs::read_to_string(format!("{folder}/{name}")).ok();
        let (most, now) = (read("pids.max")?, read("pids.current")?);
        Some(format!("{}, of which {} run", most.trim(), now.trim()))
    })
}

#[cfg(all(test, not(loom)))]
mod tests;
