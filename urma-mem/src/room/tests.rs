//! What the kernel has no room for is refused before, in children with limits of their own.

#[expect(clippy::unwrap_used, reason = "a test may stop")]
mod groups;

use nix::sys::resource::setrlimit;
use nix::sys::wait::{WaitStatus, waitpid};

use super::*;
use crate::{Arena, Pages, Region};

fn ends_well(task: impl FnOnce() -> bool) {
    let _ = (crate::writer_hold(), page_len());
    let child = crate::fork::in_child(task).expect("a child");
    let pid = nix::unistd::Pid::from_raw(i32::try_from(child).expect("a process id"));
    assert_eq!(waitpid(pid, None).expect("its end"), WaitStatus::Exited(pid, 0));
}

/// Bytes of address space that the process has.
fn space() -> u64 {
    let pages = fs::read_to_string("/proc/self/statm").expect("it is always there");
    let pages = pages.split(' ').next().expect("a word");
    pages.parse::<u64>().expect("a number") * page_len() as u64
}

/// A limit on address space leaves the heap its part, whatever is mapped: a mapping is an error before the heap ends
/// the process. (A heap may have taken its address space before, so it is the space that counts.)
#[test]
fn a_limit_on_address_space_is_an_error_before_the_heap_meets_it() {
    const LEN: usize = 1 << 20;
    let file = Region::shared(LEN, Pages::Base).unwrap();
    let again = || {
        let (fd, offset) = file.fd().unwrap();
        Region::map_fd(fd.try_clone_to_owned()?, offset, LEN, crate::MapAccess::ReadWrite)
    };
    let guarded = || {
        let fd = file.fd().map(|(fd, _)| fd.try_clone_to_owned());
        Region::map_guarded(fd.ok_or(io::ErrorKind::InvalidInput)??, LEN)
    };
    let makers: [(&str, &dyn Fn() -> io::Result<Region>); 5] = [
        ("shared", &|| Region::shared(LEN, Pages::Base)),
        ("private", &|| Region::private(LEN)),
        ("of a descriptor", &again),
        ("guarded", &guarded),
        ("joined", &|| Ok(Region::joined(std::slice::from_ref(&file), 1)?.0)),
    ];
    for (what, make) in makers {
        ends_well(|| {
            let limit = space() + (40 << 20);
            setrlimit(Resource::RLIMIT_AS, limit, limit).unwrap();
            let mut kept = Vec::new();
            let refused = loop {
                match make() {
                    Ok(region) => kept.push(region),
                    Err(error) => break error.raw_os_error(),
                }
            };
            let left = limit - space();
            eprintln!("{what}: {refused:?} after {}, {left} bytes are left", kept.len());
            refused == Some(libc::ENOMEM)
                && kept.len() >= 16
                && (RESERVE..RESERVE + 2 * LEN as u64).contains(&left)
                && Arena::new().is_ok()
        });
    }
}

#[test]
fn a_line_names_the_limit_its_value_and_what_is_needed() {
    let full = NoRoom { limit: "RLIMIT_AS", value: 100 << 20, used: 91 << 20, needed: 2 << 20 };
    let text = over(full).unwrap().to_string();
    for part in ["RLIMIT_AS is 104857600", "95420416 are used", "2097152 more", "8388608 stay free"]
    {
        assert!(text.contains(part), "{text}");
    }
    assert_eq!(over(NoRoom { used: 90 << 20, ..full }), None);
    assert!(over(NoRoom { needed: u64::MAX, ..full }).is_some());
}

#[test]
fn groups_are_found_by_either_version_of_the_list() {
    assert_eq!(group_memory("4:cpu:/a\n0::/there/is/no/such/group\n"), None);
    assert_eq!(group_memory("3:memory:/there/is/no/such/group\n"), None);
    assert_eq!(group_memory("nonsense"), None);
    assert_eq!(group_threads("9:pids:/there/is/no/such/group\n"), None);
}

#[test]
fn a_refused_thread_names_every_limit_it_may_have_met() {
    let error = io::Error::from_raw_os_error(libc::EAGAIN);
    let text = thread_refused("a node", &error).to_string();
    for part in ["a node needs a thread", "RLIMIT_NPROC", "pids.max", "RLIMIT_AS"] {
        assert!(text.contains(part), "{text}");
    }
}
