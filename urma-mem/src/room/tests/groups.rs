//! Limits that the kernel really sets: of control groups, and of a user's threads. A child meets them, and lives.
//!
//! Owns: a control group below this process's own, for each test. Takes: files below `/sys/fs/cgroup`, as either version of
//! groups has them. Gives: tests, skipped where no group can be made. Must not: limit this process.

use std::path::{Path, PathBuf};
use std::thread::Builder;

use nix::sys::resource::{Resource, setrlimit};
use nix::sys::wait::{WaitStatus, waitpid};
use nix::unistd::{Pid, Uid, getpid, setuid};

use super::*;
use crate::{Arena, Pages, Region};

/// A control group below this process's own.
struct ControlGroup {
    folder: PathBuf,
}

impl ControlGroup {
    /// With `value` in the file `limit`; each file has two names, for both versions of control groups. `None`: the system does
    /// not let this process make one, which is said.
    fn new(kind: &str, name: &str, limit: [&str; 2], value: u64) -> Option<Self> {
        let made = Self::below(kind, name).and_then(|folder| {
            fs::create_dir(&folder)?;
            let group = Self { folder };
            fs::write(group.file(limit), value.to_string()).map(|()| group)
        });
        made.inspect_err(|error| urma_skip::skip(format!("no control group for {kind}: {error}")))
            .ok()
    }

    fn below(kind: &str, name: &str) -> io::Result<PathBuf> {
        let own = fs::read_to_string("/proc/self/cgroup")?;
        let name = format!("urma-test-{}-{name}", getpid());
        for line in own.lines() {
            let parts: Vec<&str> = line.splitn(3, ':').collect();
            let [_, kinds, path] = parts[..] else { continue };
            let path = path.trim_start_matches('/');
            if kinds.split(',').any(|found| found == kind) {
                return Ok(Path::new("/sys/fs/cgroup").join(kind).join(path).join(name));
            }
            let folder = Path::new("/sys/fs/cgroup").join(path);
            if kinds.is_empty() && folder.join("cgroup.controllers").exists() {
                fs::write(folder.join("cgroup.subtree_control"), format!("+{kind}"))?;
                return Ok(folder.join(name));
            }
        }
        Err(io::ErrorKind::NotFound.into())
    }

    /// The file of this group that has one of these names.
    fn file(&self, names: [&str; 2]) -> PathBuf {
        let [first, second] = names.map(|name| self.folder.join(name));
        if first.exists() { first } else { second }
    }

    fn number(&self, names: [&str; 2]) -> usize {
        fs::read_to_string(self.file(names)).unwrap().trim().parse().unwrap()
    }

    /// This process is of the group from now on.
    fn join(&self) {
        fs::write(self.folder.join("cgroup.procs"), getpid().to_string()).unwrap();
    }
}

impl Drop for ControlGroup {
    fn drop(&mut self) {
        let _ = fs::remove_dir(&self.folder);
    }
}

/// Whether a child that does `task` ends well; a signal of the kernel is no good end.
fn lives(task: impl FnOnce() -> bool) {
    let _ = (crate::writer_hold(), page_len());
    let child = crate::fork::in_child(task).expect("a child");
    let pid = Pid::from_raw(i32::try_from(child).expect("a process id"));
    assert_eq!(waitpid(pid, None).expect("its end"), WaitStatus::Exited(pid, 0));
}

/// What a thread that is refused says.
fn refusal() -> String {
    let refused = Builder::new().spawn(|| ()).expect_err("a thread");
    thread_refused("a node", &refused).to_string()
}

const MEMORY: [&str; 2] = ["memory.limit_in_bytes", "memory.max"];
const MEMORY_USED: [&str; 2] = ["memory.usage_in_bytes", "memory.current"];
const MIB: usize = 1 << 20;

#[test]
fn a_mapping_that_its_control_group_cannot_fill_is_refused() {
    let Some(group) = ControlGroup::new("memory", "map", MEMORY, 48 << 20) else { return };
    lives(|| {
        group.join();
        let refused = Region::shared(64 * MIB, Pages::Base).unwrap_err();
        let fits = Region::shared(8 * MIB, Pages::Base).unwrap();
        fits.write(0, &vec![1; 8 * MIB]).unwrap();
        refused.raw_os_error() == Some(libc::ENOMEM)
    });
}

/// Pages that move are there twice for a moment; for as many as move at a time usually, the kernel would end the process.
#[test]
fn memory_of_a_nearly_full_control_group_moves_and_comes_back() {
    let Some(group) = ControlGroup::new("memory", "move", MEMORY, 64 << 20) else { return };
    let most = group.number(MEMORY);
    for spare in [8 * MIB, MIB, MIB / 2] {
        lives(|| {
            // Mapped before: a group of that size could not fill it.
            let memory = Region::private(most).unwrap();
            group.join();
            let arena = Arena::new().unwrap();
            let mut len = 0;
            while group.number(MEMORY_USED) + spare < most && len < memory.len() {
                memory.write(len, &[7; 64 << 10]).unwrap();
                len += 64 << 10;
            }
            let adoption = arena.adopt(&memory.sub(0, len).unwrap()).unwrap();
            let is_moved = adoption.extents().iter().map(|extent| extent.len).sum::<usize>() == len;
            adoption.release().unwrap();
            let is_whole = (0..len).step_by(page_len()).all(|at| memory.load_u8(at) == Ok(7));
            is_moved && is_whole
        });
    }
}

#[test]
fn a_control_group_without_threads_is_named() {
    let Some(group) = ControlGroup::new("pids", "pids", ["pids.max"; 2], 1) else { return };
    lives(|| {
        group.join();
        refusal().contains("pids.max of the control group 1, of which 1 run")
    });
}

#[test]
fn a_user_without_threads_is_named() {
    if !Uid::effective().is_root() {
        return urma_skip::skip("to be another user wants root");
    }
    lives(|| {
        setrlimit(Resource::RLIMIT_NPROC, 1, 1).unwrap();
        setuid(Uid::from_raw(61_278)).unwrap();
        refusal().contains("RLIMIT_NPROC 1 ")
    });
}
