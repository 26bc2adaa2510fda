//! Moving pages: content, sharing, refusals, overlap, fork.
#![expect(unsafe_code, reason = "user memory, fork and mlock are what is tested")]
#![expect(clippy::unwrap_used, reason = "a test may stop")]

use std::os::fd::AsFd;

use proptest::prelude::*;

use super::{AdoptRefusal, Adoption};
use crate::arena::{Arena, ArenaCfg, HugePages};
use crate::fork;
use crate::maps::{self, Unmovable};
use crate::region::{Pages, Region, page_len};
use crate::sync::{AtomicBool, AtomicU64, Ordering};
use crate::writers::{WriterHold, Writers};

fn peer(arena: &Arena) -> Region {
    Arena::map_peer(arena.fd().try_clone_to_owned().unwrap()).unwrap()
}

fn patterned(pages: usize) -> Region {
    let region = Region::private(pages * page_len()).unwrap();
    for page in 0..pages {
        region.store_u64(page * page_len() + 8, page as u64 + 1).unwrap();
    }
    region
}

fn word(region: &Region, page: usize) -> u64 {
    region.load_u64(page * page_len() + 8).unwrap()
}

fn is_private(region: &Region) -> bool {
    let pieces = maps::pieces(region.addr(), region.len(), 0).unwrap();
    pieces.iter().all(|piece| piece.movable.is_ok())
}

fn first_offset(adoption: &Adoption) -> usize {
    usize::try_from(adoption.extents()[0].arena_offset).unwrap()
}

#[test]
fn the_last_page_of_an_arena_is_no_ranges_and_not_mapped() {
    let arena = Arena::new().unwrap();
    let file_len = u64::try_from(nix::sys::stat::fstat(arena.fd()).unwrap().st_size).unwrap();
    assert_eq!(arena.len(), file_len - page_len() as u64);
    assert_eq!(peer(&arena).len() as u64, arena.len());
    let mut ledger = arena.shared.ledger();
    let len = usize::try_from(arena.len()).unwrap();
    assert_eq!(ledger.take_offset(0, len + 1, arena.len()), None);
    assert_eq!(ledger.take_offset(0, len, arena.len()), Some(0));
}

#[test]
fn content_stays_and_is_seen_on_both_sides() {
    let arena = Arena::new().unwrap();
    let theirs = peer(&arena);
    let region = patterned(1100);
    let adoption = arena.adopt(&region).unwrap();
    assert_eq!(adoption.extents().len(), 1);
    assert_eq!(adoption.extents()[0].len, region.len());
    let base = first_offset(&adoption);
    assert_eq!(base % (2 << 20), region.addr() % (2 << 20));
    for page in 0..1100 {
        assert_eq!(word(&region, page), page as u64 + 1);
        assert_eq!(theirs.load_u64(base + page * page_len() + 8), Ok(page as u64 + 1));
    }
    region.store_u64(0, 77).unwrap();
    assert_eq!(theirs.load_u64(base), Ok(77));
    theirs.store_u64(base + 16, 78).unwrap();
    assert_eq!(region.load_u64(16), Ok(78));
    assert_eq!(adoption.arena_offset(region.addr() + 5, 10), Some(base as u64 + 5));
    assert_eq!(adoption.arena_offset(region.addr() + region.len() - 4, 8), None);
    assert_eq!(adoption.arena_offset(region.addr() - 4, 8), None);
    adoption.release().unwrap();
    assert!(is_private(&region) && arena.is_empty());
    assert_eq!((region.load_u64(0), region.load_u64(16)), (Ok(77), Ok(78)));
    for page in 0..1100 {
        assert_eq!(word(&region, page), page as u64 + 1);
    }
    assert_eq!(arena.shared.occupied().unwrap(), 0, "the hole was punched");
    theirs.store_u64(base, 99).unwrap();
    assert_eq!(region.load_u64(0), Ok(77), "a late store lands where no thread reads");
}

#[test]
fn pages_without_content_stay_without() {
    let arena = Arena::new().unwrap();
    let region = Region::private(64 << 20).unwrap();
    region.store_u64(40 << 20, 5).unwrap();
    let adoption = arena.adopt(&region).unwrap();
    assert!(arena.shared.occupied().unwrap() <= 2 << 20);
    assert_eq!(region.load_u64(40 << 20), Ok(5));
    let before = maps::present_runs(region.addr(), region.len()).len();
    adoption.release().unwrap();
    assert_eq!(region.load_u64(40 << 20), Ok(5));
    let after = maps::present_runs(region.addr(), region.len());
    assert!(before <= 1 && after.len() <= 1);
    assert!(after.iter().all(|(_, len)| *len <= 2 << 20), "{after:?}");
}

/// Runs of content anywhere in a chunk, with and without the system's help to fill new pages.
#[test]
fn scattered_pages_come_back_where_they_were() {
    const CONTENT: [usize; 8] = [3, 4, 5, 300, 511, 512, 700, 1199];
    for writers in [Writers::Held, Writers::Trusted] {
        let arena = Arena::with(ArenaCfg { writers, ..ArenaCfg::default() }).unwrap();
        let region = Region::private(1200 * page_len()).unwrap();
        for page in CONTENT {
            region.store_u64(page * page_len() + 8, page as u64 + 1).unwrap();
        }
        arena.adopt(&region).unwrap().release().unwrap();
        for page in 0..1200 {
            let content = if CONTENT.contains(&page) { page as u64 + 1 } else { 0 };
            assert_eq!(word(&region, page), content, "{writers:?}, page {page}");
        }
    }
}

#[test]
fn a_range_comes_back_as_one_mapping() {
    let arena = Arena::new().unwrap();
    let region = patterned(2048);
    arena.adopt(&region).unwrap().release().unwrap();
    assert!(maps::pieces(region.addr(), region.len(), 0).unwrap().len() <= 2);
}

#[test]
fn offsets_are_never_handed_out_twice() {
    let arena = Arena::new().unwrap();
    let region = patterned(2);
    let mut last = 0;
    for _ in 0..20 {
        let adoption = arena.adopt(&region).unwrap();
        let offset = adoption.extents()[0].arena_offset;
        assert!(last == 0 || offset >= last, "{offset} after {last}");
        last = offset + region.len() as u64;
    }
}

#[test]
fn only_whole_pages_move() {
    let arena = Arena::new().unwrap();
    let region = patterned(4);
    let page = page_len();
    let adoption = arena.adopt(&region.sub(100, page * 3).unwrap()).unwrap();
    assert_eq!(adoption.extents()[0].addr, region.addr() + page);
    assert_eq!(adoption.extents()[0].len, page * 2);
    let small = region.sub(8, page - 8).unwrap();
    assert!(matches!(arena.adopt(&small), Err(AdoptRefusal::NoWholePage)));
}

#[test]
fn what_must_not_move_is_refused_by_name() {
    let arena = Arena::new().unwrap();
    let shared = Region::shared(8192, Pages::Base).unwrap();
    let refusal = |region: &Region| match arena.adopt(region) {
        Err(AdoptRefusal::Unmovable(reason)) => reason,
        other => panic!("moved: {other:?}"),
    };
    assert_eq!(refusal(&shared), Unmovable::Shared);
    let mut frame = [0_u8; 16384];
    // SAFETY: the frame outlives the region and nothing else touches it meanwhile.
    let stack = unsafe { Region::from_user(frame.as_mut_ptr(), frame.len()) }.unwrap();
    assert_eq!(refusal(&stack), Unmovable::Stack, "this thread's stack");
    let maps = std::fs::read_to_string("/proc/self/maps").unwrap();
    let line = maps.lines().find(|line| line.contains("[stack]")).unwrap();
    let start = usize::from_str_radix(line.split('-').next().unwrap(), 16).unwrap();
    // SAFETY: the range is mapped; a refusal touches no byte of it.
    let main_stack =
        unsafe { Region::from_user(core::ptr::with_exposed_provenance_mut(start), 4096) }.unwrap();
    assert_eq!(refusal(&main_stack), Unmovable::Stack, "the first thread's stack");
    let line = maps.lines().find(|line| line.contains(".so") && line.contains("rw-p"));
    let start = line.and_then(|line| line.split('-').next()).unwrap();
    let start = usize::from_str_radix(start, 16).unwrap();
    // SAFETY: /proc/self/maps lists the range as mapped; a refusal touches no byte of it.
    let file =
        unsafe { Region::from_user(core::ptr::with_exposed_provenance_mut(start), 4096) }.unwrap();
    assert_eq!(refusal(&file), Unmovable::File);
    let read_only = patterned(1);
    let at = core::ptr::NonNull::new(core::ptr::with_exposed_provenance_mut(read_only.addr()));
    // SAFETY: the page is this test's own mapping.
    unsafe { nix::sys::mman::mprotect(at.unwrap(), 4096, nix::sys::mman::ProtFlags::PROT_READ) }
        .unwrap();
    assert_eq!(refusal(&read_only), Unmovable::Protection);
    assert!(arena.is_empty());
}

#[test]
fn a_mixed_range_moves_what_it_can() {
    let arena = Arena::new().unwrap();
    let region = patterned(5);
    let middle = region.addr() + 2 * page_len();
    let at = core::ptr::NonNull::new(core::ptr::with_exposed_provenance_mut(middle)).unwrap();
    // SAFETY: the page is this test's own mapping.
    unsafe { nix::sys::mman::mprotect(at, page_len(), nix::sys::mman::ProtFlags::PROT_READ) }
        .unwrap();
    let adoption = arena.adopt(&region).unwrap();
    assert_eq!(adoption.extents().len(), 2);
    assert_eq!(adoption.arena_offset(middle, 8), None);
    drop(adoption);
    assert_eq!((word(&region, 1), word(&region, 2), word(&region, 3)), (2, 3, 4));
}

#[test]
fn heap_memory_moves_and_the_heap_goes_on() {
    let arena = Arena::new().unwrap();
    for len in [40_000_usize, 4 << 20] {
        let mut bytes: Vec<u8> = (0..len).map(|at| at.to_le_bytes()[0]).collect();
        let (addr, model) = (bytes.as_mut_ptr(), bytes.clone());
        // SAFETY: the vector is not touched but through the region until it is dropped below.
        let region = unsafe { Region::from_user(addr, len) }.unwrap();
        let adoption = arena.adopt(&region).unwrap();
        let mut seen = vec![0; len];
        region.read(0, &mut seen).unwrap();
        assert_eq!(seen, model);
        let churn: Vec<Vec<u8>> = (1..2000).map(|size| vec![1; size]).collect();
        drop(churn);
        drop(adoption);
        drop(region);
        assert_eq!(bytes, model);
    }
}

#[test]
fn locked_pages_are_locked_again() {
    let arena = Arena::new().unwrap();
    let region = patterned(2);
    let at = core::ptr::with_exposed_provenance(region.addr());
    // SAFETY: the pages are this test's own.
    assert_eq!(unsafe { libc::mlock(at, region.len()) }, 0);
    let locked = || {
        let pieces = maps::pieces(region.addr(), region.len(), 0).unwrap();
        pieces.iter().all(|piece| piece.is_locked)
    };
    assert!(locked());
    let adoption = arena.adopt(&region).unwrap();
    assert!(locked());
    drop(adoption);
    assert!(locked() && is_private(&region));
    assert_eq!(word(&region, 1), 2);
}

/// A child's stores do not reach the parent, its descriptors are gone, and it knows that it is a fork.
#[test]
fn a_forked_child_is_alone() {
    let arena = Arena::new().unwrap();
    let region = patterned(4);
    let adoption = arena.adopt(&region).unwrap();
    let wakeup = nix::sys::eventfd::EventFd::new().unwrap();
    let _watch = fork::watch_fd(wakeup.as_fd()).unwrap();
    let born = fork::generation();
    // SAFETY: the child only makes system calls and touches memory it has, then exits.
    match unsafe { nix::unistd::fork() }.unwrap() {
        nix::unistd::ForkResult::Child => {
            let sees_content = word(&region, 3) == 4;
            let stored = region.store_u64(8, 666).is_ok();
            let knows = fork::forked_since(born);
            let is_silent = wakeup.write(1).is_ok_and(|len| len == 8);
            let refused = matches!(arena.adopt(&region), Err(AdoptRefusal::Forked));
            let all = sees_content && stored && knows && is_silent && refused;
            // SAFETY: ends the child without running the parent's destructors.
            unsafe { libc::_exit(i32::from(!all)) }
        }
        nix::unistd::ForkResult::Parent { child } => {
            let status = nix::sys::wait::waitpid(child, None).unwrap();
            assert_eq!(status, nix::sys::wait::WaitStatus::Exited(child, 0));
            assert_eq!(word(&region, 0), 1, "the child's store stayed the child's");
            let mut polled = [nix::poll::PollFd::new(wakeup.as_fd(), nix::poll::PollFlags::POLLIN)];
            assert_eq!(nix::poll::poll(&mut polled, 0_u8).unwrap(), 0, "the child rang /dev/null");
            assert!(!fork::forked_since(born));
            drop(adoption);
            assert_eq!(word(&region, 3), 4);
        }
    }
}

/// After a part of an overlap was released, a child still gets the right pages, private.
#[test]
fn a_fork_after_a_partial_release_sees_the_right_pages() {
    let arena = Arena::new().unwrap();
    let region = patterned(1200);
    let page = page_len();
    let whole = arena.adopt(&region).unwrap();
    let part = arena.adopt(&region.sub(100 * page, 600 * page).unwrap()).unwrap();
    whole.release().unwrap();
    for at in 0..1200 {
        region.store_u64(at * page + 8, 5000 + at as u64).unwrap();
    }
    // SAFETY: the child only touches memory it has, then exits.
    match unsafe { nix::unistd::fork() }.unwrap() {
        nix::unistd::ForkResult::Child => {
            let mut is_right = true;
            for at in 0..1200 {
                is_right &= word(&region, at) == 5000 + at as u64;
                is_right &= region.store_u64(at * page + 8, 0).is_ok();
            }
            // SAFETY: ends the child without running the parent's destructors.
            unsafe { libc::_exit(i32::from(!is_right)) }
        }
        nix::unistd::ForkResult::Parent { child } => {
            let status = nix::sys::wait::waitpid(child, None).unwrap();
            assert_eq!(status, nix::sys::wait::WaitStatus::Exited(child, 0));
            for at in 0..1200 {
                assert_eq!(word(&region, at), 5000 + at as u64);
            }
            part.revoke().unwrap();
            assert!(is_private(&region) && arena.is_empty());
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]
    /// Random overlapping adoptions and releases: content as in a plain array, every adopted page
    /// reachable by the peer at its offset, every other page private.
    #[test]
    fn overlapping_adoptions_agree_with_an_array(
        steps in proptest::collection::vec((0_usize..3, 0_usize..12, 1_usize..12), 1..24)
    ) {
        let arena = Arena::new().unwrap();
        let theirs = peer(&arena);
        let region = patterned(16);
        let mut model: Vec<u64> = (1..=16).collect();
        let mut adoptions: Vec<Adoption> = Vec::new();
        for (number, (step, first, count)) in steps.into_iter().enumerate() {
            match step {
                0 => {
                    let count = count.min(16 - first);
                    let part = region.sub(first * page_len(), count * page_len()).unwrap();
                    adoptions.push(arena.adopt(&part).unwrap());
                }
                1 if !adoptions.is_empty() => {
                    let at = first % adoptions.len();
                    adoptions.swap_remove(at).release().unwrap();
                }
                _ => {
                    model[first] = 1000 + number as u64;
                    region.store_u64(first * page_len() + 8, model[first]).unwrap();
                }
            }
            let mut reachable = [false; 16];
            for extent in adoptions.iter().flat_map(Adoption::extents) {
                for skip in (0..extent.len).step_by(page_len()) {
                    let page = (extent.addr + skip - region.addr()) / page_len();
                    let at = usize::try_from(extent.arena_offset).unwrap() + skip + 8;
                    prop_assert_eq!(theirs.load_u64(at), Ok(model[page]));
                    reachable[page] = true;
                }
            }
            for page in 0..16 {
                prop_assert_eq!(word(&region, page), model[page]);
                let window = region.sub(page * page_len(), page_len()).unwrap();
                prop_assert_eq!(is_private(&window), !reachable[page], "page {}", page);
            }
        }
    }
}

/// Threads that store and look whether the store is still there, while pages move in and out.
fn stores_lost(writers: Writers, rounds: u64) -> u64 {
    let arena = Arena::with(ArenaCfg { writers, ..ArenaCfg::default() }).unwrap();
    let region = Region::private(64 * page_len()).unwrap();
    let (stop, lost) = (AtomicBool::new(false), AtomicU64::new(0));
    let done = [AtomicU64::new(0), AtomicU64::new(0)];
    std::thread::scope(|scope| {
        for (half, done) in done.iter().enumerate() {
            let (region, stop, lost) = (&region, &stop, &lost);
            scope.spawn(move || {
                while !stop.load(Ordering::Relaxed) {
                    let number = done.fetch_add(1, Ordering::Relaxed);
                    for page in 0..64 {
                        region.store_u64(page * page_len() + half * 8, number).unwrap();
                    }
                    for page in 0..64 {
                        let seen = region.load_u64(page * page_len() + half * 8);
                        lost.fetch_add(u64::from(seen != Ok(number)), Ordering::Relaxed);
                    }
                }
            });
        }
        for _ in 0..rounds {
            let before = done.each_ref().map(|count| count.load(Ordering::Relaxed));
            // Both are somewhere in the middle.
            while done.iter().zip(before).any(|(count, then)| count.load(Ordering::Relaxed) == then)
            {
                std::thread::yield_now();
            }
            arena.adopt(&region).unwrap().release().unwrap();
        }
        stop.store(true, Ordering::Relaxed);
    });
    lost.into_inner()
}

#[test]
fn no_store_is_lost_while_pages_move() {
    if crate::writer_hold() == WriterHold::None {
        return urma_skip::skip("no userfaultfd: writers are not held while pages move");
    }
    assert_eq!(stores_lost(Writers::Held, 50), 0);
}

/// That the test above can fail; not in every run that it must.
#[test]
#[ignore = "shows lost stores: run with --ignored"]
fn stores_are_lost_when_the_writers_are_not_held() {
    assert_ne!(stores_lost(Writers::Trusted, 50), 0);
}

/// A system call that stores into the range while it moves is held like any other writer.
#[test]
fn system_calls_that_store_are_held() {
    if crate::writer_hold() != WriterHold::Full {
        return urma_skip::skip("userfaultfd does not hold system calls");
    }
    let arena = Arena::new().unwrap();
    let region = Region::private(64 * page_len()).unwrap();
    let stop = AtomicBool::new(false);
    let zeros = std::fs::File::open("/dev/zero").unwrap();
    std::thread::scope(|scope| {
        scope.spawn(|| {
            use std::os::fd::AsRawFd;
            let to = core::ptr::without_provenance_mut(region.addr());
            while !stop.load(Ordering::Relaxed) {
                // SAFETY: the kernel stores into the mapped region, of which no references exist.
                let got = unsafe { libc::read(zeros.as_raw_fd(), to, 64 * page_len()) };
                assert_eq!(usize::try_from(got), Ok(64 * page_len()));
            }
        });
        for _ in 0..50 {
            arena.adopt(&region).unwrap().release().unwrap();
        }
        stop.store(true, Ordering::Relaxed);
    });
}

#[test]
fn moved_pages_are_joined_to_huge_ones_when_asked_for() {
    let arena = Arena::with(ArenaCfg { huge_pages: HugePages::Joined, ..ArenaCfg::default() });
    let arena = arena.unwrap();
    let region = patterned(3 * 512);
    let adoption = arena.adopt(&region).unwrap();
    let smaps = std::fs::read_to_string("/proc/self/smaps").unwrap();
    let start = format!("{:x}-", region.addr());
    let joined = smaps.lines().skip_while(|line| !line.starts_with(&start));
    let joined = joined.skip(1).find(|line| line.starts_with("ShmemPmdMapped:")).unwrap();
    if joined.split_whitespace().nth(1) == Some("0") {
        urma_skip::skip(format_args!("the kernel joined no pages: {joined}"));
    }
    for page in 0..3 * 512 {
        assert_eq!(word(&region, page), page as u64 + 1);
    }
    adoption.release().unwrap();
    assert_eq!(word(&region, 700), 701);
}

/// Bytes that this thread has read by system calls; `None`: the kernel does not count them.
fn bytes_read() -> Option<u64> {
    let text = std::fs::read_to_string("/proc/thread-self/io").ok()?;
    text.lines().find_map(|line| line.strip_prefix("rchar:"))?.trim().parse().ok()
}

#[test]
fn a_registration_reads_no_more_of_a_process_with_many_mappings() {
    if bytes_read().is_none() {
        return urma_skip::skip("the kernel counts no bytes per thread");
    }
    let arena = Arena::new().unwrap();
    let cost = || {
        let region = patterned(1);
        let before = bytes_read().unwrap();
        let adoption = arena.adopt(&region).unwrap();
        adoption.release().unwrap();
        bytes_read().unwrap() - before
    };
    let (_, few) = (cost(), cost());
    // Pages of different protection do not join.
    let many = patterned(4000);
    for page in (0..4000).step_by(2) {
        let at = many.addr() + page * page_len();
        let at = core::ptr::NonNull::new(core::ptr::with_exposed_provenance_mut(at)).unwrap();
        // SAFETY: the page is this test's own mapping.
        unsafe { nix::sys::mman::mprotect(at, page_len(), nix::sys::mman::ProtFlags::PROT_READ) }
            .unwrap();
    }
    let more = cost();
    if !maps::can_be_asked() {
        return urma_skip::skip("a kernel before 6.11 lists all mappings");
    }
    assert!(more < few + 4096, "{more} bytes with 4,000 mappings, {few} before");
}

#[test]
#[ignore = "measures; run with --release --ignored --nocapture"]
#[expect(clippy::disallowed_methods, reason = "a measurement owns its clock")]
fn measure() {
    use std::time::Instant;
    let timed = |name: &str, task: &mut dyn FnMut()| {
        let start = Instant::now();
        task();
        println!("{name:44} {:7.3} s", start.elapsed().as_secs_f64());
    };
    let touched = |region: Region| {
        region.zero(0, region.len()).unwrap();
        region
    };
    for round in 0..3 {
        println!("round {round}: 1 GiB");
        timed("limit: first touch of shared memory", &mut || {
            drop(touched(Region::shared(1 << 30, Pages::Base).unwrap()));
        });
        timed("limit: first touch of private memory", &mut || {
            drop(touched(Region::private(1 << 30).unwrap()));
        });
        let (arena, region) = (Arena::new().unwrap(), touched(Region::private(1 << 30).unwrap()));
        let mut adoption = None;
        timed("register", &mut || adoption = Some(arena.adopt(&region).unwrap()));
        timed("unregister", &mut || adoption.take().unwrap().release().unwrap());
    }
    let arena = Arena::new().unwrap();
    let region = patterned(20_000);
    let mut adoptions = Vec::new();
    timed("10,000 pages registered, one by one", &mut || {
        for page in (0..20_000).step_by(2) {
            let part = region.sub(page * page_len(), page_len()).unwrap();
            adoptions.push(arena.adopt(&part).unwrap());
        }
    });
    timed("and unregistered", &mut || adoptions.clear());
}
