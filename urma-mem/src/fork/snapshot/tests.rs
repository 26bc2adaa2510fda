//! Forked children, while parents and peers go on.
#![expect(clippy::unwrap_used, reason = "a test may stop")]

use std::io::{PipeReader, PipeWriter, Read, Write, pipe};

use nix::sys::wait::{WaitStatus, waitpid};
use nix::unistd::Pid;

use super::*;
use crate::fork::in_child;
use crate::{Adoption, Arena, ArenaCfg, HugePages, Region, WordAtomic};

const PAGES: usize = 1500;

/// A program's pages in an arena, and the arena as a peer has it. Every page has a word of content, but for each third one.
struct Program {
    arena: Arena,
    peer: Region,
    memory: Region,
    adoption: Adoption,
}

fn program(huge_pages: HugePages) -> Program {
    let _ = crate::writer_hold();
    let arena = Arena::with(ArenaCfg { huge_pages, ..ArenaCfg::default() }).unwrap();
    let peer = Arena::map_peer(arena.fd().try_clone_to_owned().unwrap()).unwrap();
    let memory = Region::private(PAGES * page_len()).unwrap();
    for page in (0..PAGES).filter(|page| page % 3 != 2) {
        memory.store_u64(page * page_len(), page as u64 + 1).unwrap();
    }
    let adoption = arena.adopt(&memory).unwrap();
    Program { arena, peer, memory, adoption }
}

impl Program {
    /// Offset of a page in the arena.
    fn in_arena(&self, page: usize) -> usize {
        let addr = self.memory.addr() + page * page_len();
        usize::try_from(self.adoption.arena_offset(addr, page_len()).unwrap()).unwrap()
    }

    /// The program, its peer's writes and its peer's atomics change all pages.
    fn change(&self) {
        for page in 0..PAGES {
            let (here, there) = (page * page_len(), self.in_arena(page));
            self.memory.store_u64(here + 8, 99).unwrap();
            match page % 2 {
                0 => self.peer.write(there, &[0xEE; 8]).unwrap(),
                _ => drop(self.peer.atomic_u64(there, WordAtomic::Add(1000)).unwrap()),
            }
        }
    }

    /// Pages that are not as at the fork.
    fn changed(&self) -> usize {
        (0..PAGES).filter(|page| !self.is_as_before(*page)).count()
    }

    fn is_as_before(&self, page: usize) -> bool {
        let at = page * page_len();
        let word = if page % 3 == 2 { 0 } else { page as u64 + 1 };
        self.memory.load_u64(at) == Ok(word) && self.memory.load_u64(at + 8) == Ok(0)
    }
}

fn succeeded(child: u32) -> bool {
    let pid = Pid::from_raw(i32::try_from(child).unwrap());
    waitpid(pid, None).unwrap() == WaitStatus::Exited(pid, 0)
}

/// A child waits for a byte.
fn gate() -> (PipeReader, PipeWriter) {
    pipe().unwrap()
}

fn wait(gate: &(PipeReader, PipeWriter)) {
    (&gate.0).read_exact(&mut [0]).unwrap();
}

fn open(gate: &(PipeReader, PipeWriter)) {
    (&gate.1).write_all(&[1]).unwrap();
}

/// What a child sees after its parent and a peer changed everything.
fn sees_the_bytes_as_at_the_fork(huge_pages: HugePages) {
    let program = program(huge_pages);
    let later = gate();
    let child = in_child(|| {
        program.memory.store_u64(16, 5).unwrap();
        wait(&later);
        program.changed() == 0 && program.memory.load_u64(16) == Ok(5)
    })
    .unwrap();
    program.change();
    open(&later);
    assert!(succeeded(child), "the child sees what was stored later");
    // Parent and peer go on in the same memory, and nothing of the child's is there.
    assert_eq!(program.memory.load_u64(16), Ok(0));
    program.memory.store_u64(0, 77).unwrap();
    assert_eq!(program.peer.load_u64(program.in_arena(0)), Ok(77));
    assert!(!program.arena.is_empty());
    program.adoption.release().unwrap();
    assert_eq!(program.memory.load_u64(0), Ok(77));
}

#[test]
fn a_child_sees_the_bytes_as_at_the_fork() {
    sees_the_bytes_as_at_the_fork(HugePages::Off);
}

#[test]
fn a_child_sees_the_bytes_as_at_the_fork_of_huge_pages() {
    sees_the_bytes_as_at_the_fork(HugePages::Joined);
}

/// A child that forks at once: its own child has the bytes of the first fork, and what the one in between stored.
#[test]
fn a_child_of_a_child_sees_the_bytes_as_at_the_first_fork() {
    let program = program(HugePages::Off);
    let later = gate();
    let child = in_child(|| {
        program.memory.store_u64(page_len() + 16, 6).unwrap();
        let grandchild = in_child(|| {
            wait(&later);
            program.changed() == 0 && program.memory.load_u64(page_len() + 16) == Ok(6)
        });
        succeeded(grandchild.unwrap())
    })
    .unwrap();
    program.change();
    open(&later);
    assert!(succeeded(child));
}

/// Pages that the program does not want in its children are not there, and the others are.
#[test]
fn pages_that_are_not_for_children_are_not_there() {
    let program = program(HugePages::Off);
    let apart = program.memory.sub(3 * page_len(), 600 * page_len()).unwrap();
    let at = core::ptr::without_provenance_mut(apart.addr());
    // SAFETY: advice about this test's own pages, which changes nothing here.
    assert_eq!(unsafe { libc::madvise(at, apart.len(), libc::MADV_DONTFORK) }, 0);
    let child = in_child(|| {
        let around = (0..PAGES).filter(|page| !(3..603).contains(page));
        let page_is_there = |page| apart.sub(page * page_len(), page_len()).unwrap().is_mapped();
        !(0..600).any(page_is_there) && around.into_iter().all(|page| program.is_as_before(page))
    });
    assert!(succeeded(child.unwrap()));
    assert_eq!(program.changed(), 0);
}

/// A child that executes something else, and one that ends at once, with the copies unfinished.
#[test]
fn a_child_that_executes_or_ends_lets_its_parent_go_on() {
    let program = program(HugePages::Off);
    for executes in [true, false] {
        let child = in_child(|| {
            if executes {
                use std::os::unix::process::CommandExt;
                panic!("{}", std::process::Command::new("true").exec());
            }
            true
        });
        assert!(succeeded(child.unwrap()));
        assert_eq!(program.changed(), 0);
    }
}

/// Of a page that is registered in part no byte changes in the child, neither of the part nor of the rest.
#[test]
fn bytes_beside_registered_ones_are_as_at_the_fork_too() {
    let _ = crate::writer_hold();
    let arena = Arena::new().unwrap();
    let all = Region::private(4 * page_len()).unwrap();
    all.write(0, &vec![1; 4 * page_len()]).unwrap();
    // From the middle of the first page to the middle of the last one.
    let part = all.sub(page_len() / 2, 3 * page_len()).unwrap();
    let adoption = arena.adopt(&part).unwrap();
    let later = gate();
    let child = in_child(|| {
        wait(&later);
        let mut seen = vec![0; 4 * page_len()];
        all.read(0, &mut seen).is_ok() && seen.iter().all(|byte| *byte == 1)
    });
    all.write(0, &vec![2; 4 * page_len()]).unwrap();
    open(&later);
    assert!(succeeded(child.unwrap()));
    adoption.release().unwrap();
    assert_eq!(all.load_u8(page_len() / 2), Ok(2));
}

/// What was asked for before registering holds for pages that move, for those that do not, and for all of them when they have
/// moved back. What is zero in children does not move.
#[test]
fn advice_from_before_registering_outlives_both_moves() {
    let _ = crate::writer_hold();
    if !crate::maps::can_be_asked() {
        return urma_skip::skip("the kernel tells of mappings as a list only: advice is lost");
    }
    for advice in [libc::MADV_WIPEONFORK, libc::MADV_DONTFORK, libc::MADV_NORMAL] {
        let arena = Arena::new().unwrap();
        let all = Region::private(8 * page_len()).unwrap();
        all.write(0, &vec![1; 8 * page_len()]).unwrap();
        let [start, advised] =
            [0, 1].map(|page| all.sub(page * page_len(), 6 * page_len()).unwrap());
        let at = core::ptr::without_provenance_mut(advised.addr());
        // SAFETY: advice about this test's own pages, which changes nothing here.
        assert_eq!(unsafe { libc::madvise(at, advised.len(), advice) }, 0);
        let pages: Vec<_> =
            (0..8).map(|page| all.sub(page * page_len(), page_len()).unwrap()).collect();
        let is_as_asked = || {
            succeeded(
                in_child(|| {
                    (0..).zip(&pages).all(|(number, page)| match advice {
                        libc::MADV_WIPEONFORK if (1..7).contains(&number) => {
                            page.load_u8(0) == Ok(0)
                        }
                        libc::MADV_DONTFORK if (1..7).contains(&number) => !page.is_mapped(),
                        _ => page.load_u8(0) == Ok(1),
                    })
                })
                .unwrap(),
            )
        };
        assert!(is_as_asked(), "{advice}: before");
        let adoption = arena.adopt(&start).unwrap();
        let moved: usize = adoption.extents().iter().map(|extent| extent.len).sum();
        let expected = if advice == libc::MADV_WIPEONFORK { 1 } else { 6 };
        assert_eq!(moved, expected * page_len(), "{advice}");
        assert!(is_as_asked(), "{advice}: moved");
        adoption.release().unwrap();
        assert!(is_as_asked(), "{advice}: moved back");
    }
}

/// What is started to execute something else waits for no copies and makes none: no handler runs, while a fork would wait
/// for the registry, which this test holds. (The standard library starts programs by `posix_spawn`.)
#[test]
fn posix_spawn_does_not_pay() {
    let program = program(HugePages::Off);
    let before = crate::fork::generation();
    crate::fork::REGISTRY.acquire();
    let (starter, results) = std::sync::mpsc::channel();
    let starts = std::thread::spawn(move || {
        let spawned = std::process::Command::new("true").status().unwrap().success();
        starter.send(spawned).unwrap();
    });
    let came = results.recv_timeout(std::time::Duration::from_secs(20));
    crate::fork::REGISTRY.release();
    starts.join().unwrap();
    assert_eq!(came, Ok(true));
    assert_eq!((crate::fork::generation(), program.changed()), (before, 0));
}

/// Without copies a fork does not wait, and a child sees later stores.
#[test]
fn copies_can_be_turned_off() {
    // In a process of its own: the choice is of the whole process.
    let alone = in_child(|| {
        crate::fork::copy_at_forks(crate::fork::ForkCopies::Off);
        let program = program(HugePages::Off);
        let (stored, later) = (gate(), gate());
        let child = in_child(|| {
            program.memory.store_u64(16, 5).unwrap();
            open(&stored);
            wait(&later);
            // The page that the child stored to is its own; others have what came later.
            program.is_as_before(0) && program.memory.load_u64(page_len() + 8) == Ok(99)
        });
        wait(&stored);
        program.change();
        open(&later);
        succeeded(child.unwrap()) && program.memory.load_u64(16) == Ok(0)
    });
    assert!(succeeded(alone.unwrap()));
}

/// Other threads register, unregister and store all the time.
#[test]
fn forks_of_a_program_with_busy_threads_end() {
    use crate::sync::{AtomicBool, Ordering};
    let program = program(HugePages::Off);
    let (program, stop) = (&program, &AtomicBool::new(false));
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !stop.load(Ordering::Relaxed) {
                let other = Region::private(64 * page_len()).unwrap();
                other.store_u64(0, 1).unwrap();
                program.arena.adopt(&other).unwrap().release().unwrap();
                program.memory.store_u64(24, 3).unwrap();
            }
        });
        let children = [(); 5].map(|()| succeeded(in_child(|| program.changed() == 0).unwrap()));
        // First: a failure must not leave the thread running.
        stop.store(true, Ordering::Relaxed);
        assert_eq!(children, [true; 5]);
    });
}

#[test]
#[ignore = "measures; run with --release --ignored --nocapture"]
#[expect(clippy::disallowed_methods, reason = "a measurement owns its clock")]
fn measure() {
    use std::time::Instant;
    let arena = Arena::new().unwrap();
    let memory = Region::private(1 << 30).unwrap();
    memory.zero(0, 1 << 30).unwrap();
    for registered in [false, true] {
        let _adoption = registered.then(|| arena.adopt(&memory).unwrap());
        for executes in [false, true] {
            for _ in 0..3 {
                let start = Instant::now();
                let child = in_child(|| {
                    if executes {
                        use std::os::unix::process::CommandExt;
                        panic!("{}", std::process::Command::new("true").exec());
                    }
                    std::thread::sleep(std::time::Duration::from_secs(15));
                    true
                });
                let took = start.elapsed();
                println!("1 GiB, registered {registered}, executes {executes}: fork took {took:?}");
                assert!(succeeded(child.unwrap()));
            }
        }
    }
}
