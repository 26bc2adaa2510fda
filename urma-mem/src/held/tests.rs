//! Memory that its program unmaps, and what lies there then.
#![expect(clippy::unwrap_used, reason = "a test may stop")]

use core::ptr::without_provenance_mut;

use super::*;
use crate::Pages;
use crate::region::page_len;

/// Pages of the test's own, as a program maps them.
fn mapped(at: usize, pages: usize, shared: Option<&Region>) -> usize {
    use std::os::fd::AsRawFd;
    let fixed = if at == 0 { 0 } else { libc::MAP_FIXED };
    let (kind, fd) = match shared.and_then(Region::fd) {
        Some((fd, _)) => (libc::MAP_SHARED, fd.as_raw_fd()),
        None => (libc::MAP_PRIVATE | libc::MAP_ANONYMOUS, -1),
    };
    let prot = libc::PROT_READ | libc::PROT_WRITE;
    // SAFETY: a new mapping, or one over pages that this test mapped.
    let got = unsafe {
        libc::mmap(without_provenance_mut(at), pages * page_len(), prot, kind | fixed, fd, 0)
    };
    assert_ne!(got, libc::MAP_FAILED);
    got.expose_provenance()
}

fn unmap(at: usize, pages: usize) {
    // SAFETY: pages that this test mapped, and of which no reference exists.
    assert_eq!(unsafe { libc::munmap(without_provenance_mut(at), pages * page_len()) }, 0);
}

fn region(at: usize, len: usize) -> Region {
    // SAFETY: mapped by this test; that it is unmapped while it is a region is what is tested, and nothing but
    // HeldMemory touches it then.
    unsafe { Region::from_user(core::ptr::with_exposed_provenance_mut(at), len) }.unwrap()
}

fn bytes_at(at: usize, len: usize) -> Vec<u8> {
    let mut bytes = vec![0; len];
    region(at, len).read(0, &mut bytes).unwrap();
    bytes
}

fn can_look() -> bool {
    let can = Origins::new().is_ok();
    if !can {
        urma_skip::skip("the kernel cannot be asked for mappings (before Linux 6.11)");
    }
    can
}

/// Runs the task in a process without other threads, which might map something at addresses that it unmaps.
fn alone(task: impl FnOnce()) {
    // What others initialize once must not be half done in the child.
    let _ = crate::writer_hold();
    let run = || {
        task();
        true
    };
    let pid = crate::fork::in_child(run).unwrap();
    let pid = nix::unistd::Pid::from_raw(i32::try_from(pid).unwrap());
    let end = nix::sys::wait::waitpid(pid, None).unwrap();
    assert_eq!(end, nix::sys::wait::WaitStatus::Exited(pid, 0), "see its panic above");
}

#[test]
fn moved_memory_that_is_unmapped_is_refused_and_what_comes_later_stays() {
    alone(|| {
        let arena = Arena::new().unwrap();
        let holder = MemoryHolder::new(&arena);
        // Head and tail are on pages that do not move.
        let at = mapped(0, 4, None);
        let memory = region(at + 100, 4 * page_len() - 200);
        let adoption = arena.adopt(&memory).unwrap();
        let held = holder.hold(&memory, adoption.extents());
        let len = memory.len();
        assert!(held.is_there((0, len), 1));
        held.write_ordered(0, &vec![7; len]).unwrap();
        assert!(bytes_at(at + 100, len).iter().all(|byte| *byte == 7));
        let mut seen = vec![0; len];
        held.read(0, &mut seen).unwrap();
        assert!(seen.iter().all(|byte| *byte == 7));
        assert_eq!(
            held.atomic_u64(page_len() - 100, WordAtomic::Add(1)),
            Ok(0x0707_0707_0707_0707)
        );

        unmap(at, 4);
        assert!(held.is_there((0, len), 1), "a look is believed for a while");
        let later = 1 + LOOK_NS;
        assert!(!held.is_there((0, len), later));
        // Before the look is old, and for a holder that cannot look: what did not move is stored to by the kernel.
        assert_eq!(held.write(0, &vec![9; len]), Err(MemoryGone));
        held.write(page_len(), &[9; 100]).unwrap();
        let again = mapped(at, 4, None);
        assert_eq!(again, at);
        if can_look() {
            for part in [(0, 8), (0, len), (len - 8, 8), (page_len(), 8)] {
                assert!(!held.is_there(part, later), "{part:?} is other memory now");
            }
        }
        held.write(page_len(), &[9; 100]).unwrap();
        assert!(bytes_at(at, 4 * page_len()).iter().all(|byte| *byte == 0));
        // Moving back what is not there any more must not touch it either.
        let file = Region::shared(4 * page_len(), Pages::Base).unwrap();
        mapped(at, 4, Some(&file));
        adoption.release().unwrap();
        file.store_u8(2 * page_len(), 5).unwrap();
        assert_eq!(bytes_at(at + 2 * page_len(), 1), [5], "the file is mapped there still");
        assert_eq!(bytes_at(at + page_len(), 1), [0]);
        unmap(at, 4);
    });
}

#[test]
fn memory_that_did_not_move_ends_no_process() {
    alone(|| {
        let holder = MemoryHolder::new(&Arena::new().unwrap());
        let at = mapped(0, 2, None);
        let memory = region(at, 2 * page_len());
        let held = holder.hold(&memory, &[]);
        held.write_ordered(3, &[5; 100]).unwrap();
        assert_eq!(bytes_at(at, 104)[2..104], [&[0][..], &[5; 100], &[0]].concat());
        unmap(at, 2);
        assert!(!held.is_there((0, 8), 1));
        assert_eq!(held.write_ordered(3, &[5; 100]), Err(MemoryGone));
        assert_eq!(held.read(0, &mut [0; 8]), Err(MemoryGone));
    });
}

#[test]
fn a_file_differs_from_another_and_from_another_place_in_it() {
    alone(|| {
        if !can_look() {
            return;
        }
        let holder = MemoryHolder::new(&Arena::new().unwrap());
        let [one, other] = [(); 2].map(|()| Region::shared(2 * page_len(), Pages::Base).unwrap());
        let at = mapped(0, 2, Some(&one));
        let held = holder.hold(&region(at, 2 * page_len()), &[]);
        assert!(held.is_there((0, 2 * page_len()), 1));
        mapped(at, 2, Some(&other));
        assert!(!held.is_there((0, 8), 1 + LOOK_NS));
        mapped(at, 2, Some(&one));
        assert!(held.is_there((0, 8), 1 + LOOK_NS));
        // The first page where the second one was.
        mapped(at + page_len(), 1, Some(&one));
        assert!(held.is_there((0, 8), 1 + 2 * LOOK_NS));
        assert!(!held.is_there((page_len(), 8), 1 + 2 * LOOK_NS));
        unmap(at, 2);
    });
}

#[test]
fn pages_that_move_with_another_registration_stay_believed() {
    alone(|| {
        let arena = Arena::new().unwrap();
        let holder = MemoryHolder::new(&arena);
        let at = mapped(0, 3, None);
        let small = region(at + page_len() + 64, 128);
        let held = holder.hold(&small, &[]);
        let adoption = arena.adopt(&region(at, 3 * page_len())).unwrap();
        let while_moved = holder.hold(&small, &[]);
        for held in [&held, &while_moved] {
            assert!(held.is_there((0, 128), 1));
            held.write(0, &[3; 128]).unwrap();
        }
        adoption.release().unwrap();
        for held in [&held, &while_moved] {
            assert!(held.is_there((0, 128), 1 + LOOK_NS));
            held.write(0, &[4; 128]).unwrap();
        }
        assert_eq!(bytes_at(small.addr(), 128), [4; 128]);
        unmap(at, 3);
    });
}

/// Bytes of another window and of another process, to memory that moved in part and to memory that is gone.
#[test]
fn bytes_of_others_come_to_any_place_and_to_none_that_is_gone() {
    alone(|| {
        let arena = Arena::new().unwrap();
        let holder = MemoryHolder::new(&arena);
        let at = mapped(0, 4, None);
        let memory = region(at + 100, 4 * page_len() - 200);
        let adoption = arena.adopt(&memory).unwrap();
        let (len, held) = (memory.len(), holder.hold(&memory, adoption.extents()));
        let from = Region::private(4 * page_len()).unwrap();
        let addr = from.addr() as u64;
        from.write(0, b"witness!").unwrap();
        let witness = from.sub(0, 8).unwrap();
        let process = ProcessMemory::open(std::process::id(), addr, witness).unwrap();
        for order in [CopyOrder::Any, CopyOrder::EndLast] {
            for (offset, part) in
                [(0, len), (1, 7), (3, 8), (page_len() - 50, 17), (len - 9, 9), (5, 0)]
            {
                for by_kernel in [false, true] {
                    held.write(0, &vec![1; len]).unwrap();
                    from.write(8, &vec![7; len]).unwrap();
                    if by_kernel {
                        held.pull(offset, (&process, addr + 8), (part, order)).unwrap();
                    } else {
                        held.copy_in(offset, (&from, 8), (part, order)).unwrap();
                    }
                    let wanted = [vec![1; offset], vec![7; part], vec![1; len - offset - part]];
                    assert!(bytes_at(at + 100, len) == wanted.concat(), "{offset} {part}");
                }
            }
        }
        assert!(held.copy_in(0, (&from, from.len()), (1, CopyOrder::Any)).is_err());
        assert!(held.pull(0, (&process, 8), (100, CopyOrder::Any)).is_err());
        unmap(at, 4);
        assert_eq!(held.copy_in(0, (&from, 0), (8, CopyOrder::Any)), Err(MemoryGone));
        assert!(held.pull(0, (&process, addr), (64, CopyOrder::EndLast)).is_err());
    });
}

/// The end comes after everything else: where the rest is not as it should be, it does not come.
#[test]
fn the_end_comes_after_the_rest() {
    alone(|| {
        let holder = MemoryHolder::new(&Arena::new().unwrap());
        let at = mapped(0, 3, None);
        let memory = region(at, 3 * page_len());
        let held = holder.hold(&memory, &[]);
        let from = Region::private(4 * page_len()).unwrap();
        from.write(0, &vec![7; 4 * page_len()]).unwrap();
        let (addr, witness) = (from.addr() as u64, Region::private(8).unwrap());
        witness.write(0, &[7; 8]).unwrap();
        let process = ProcessMemory::open(std::process::id(), addr, witness.clone()).unwrap();
        // As if the number were another process's now.
        witness.write(0, &[8; 8]).unwrap();
        let all = (3 * page_len(), CopyOrder::EndLast);
        assert!(held.pull(0, (&process, addr), all).is_err());
        assert_eq!(bytes_at(at, 1), [7]);
        assert_eq!(bytes_at(at + 3 * page_len() - 8, 8), [0; 8]);
        unmap(at + page_len(), 1);
        assert!(held.copy_in(0, (&from, 0), all).is_err());
        assert_eq!(bytes_at(at + 3 * page_len() - 8, 8), [0; 8]);
        unmap(at, 3);
    });
}
