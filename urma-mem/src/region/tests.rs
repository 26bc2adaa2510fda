//! Tests of regions: bounds, kinds, seals, atomics against plain arithmetic.

#![expect(unsafe_code, reason = "memory of the test's own, with a hole")]

use std::os::fd::AsFd;

use super::{MapAccess, OutOfBounds, Pages, Region, WordAtomic, page_len};
use nix::sys::mman::{MapFlags, ProtFlags, mmap_anonymous, munmap};
use proptest::prelude::*;

fn dup(region: &Region) -> std::os::fd::OwnedFd {
    let (fd, _) = region.fd().expect("a shared region has a file");
    fd.try_clone_to_owned().expect("a descriptor can be copied")
}

#[test]
#[cfg_attr(miri, ignore = "miri knows no msync")]
fn memory_with_a_hole_is_no_region() {
    // Another thread may map the page of the hole at any time.
    assert!((0..8).any(|_| hole_is_refused()), "the hole was filled each time, or is not seen");
}

/// Whether memory with a hole was refused; `false`: another thread has filled it.
fn hole_is_refused() -> bool {
    let page = page_len();
    // SAFETY: a new mapping, refused or not, touches no existing mapping.
    let start =
        unsafe { mmap_anonymous(None, (3 * page).try_into().expect("not 0"), rw(), private()) };
    let start = start.expect("memory").cast::<u8>();
    let unmap = |offset: usize| {
        let first = start.map_addr(|addr| addr.checked_add(offset).expect("not 0"));
        // SAFETY: the pages are this test's, and nothing refers to them.
        unsafe { munmap(first.cast(), page) }.expect("mapped");
    };
    unmap(page);
    let over = |offset: usize, len: usize| {
        // SAFETY: nothing is accessed through the region, which is dropped at once.
        unsafe { Region::from_user(start.as_ptr().wrapping_add(offset), len) }.map(drop)
    };
    over(0, page).expect("mapped");
    over(2 * page + 5, page - 5).expect("mapped");
    let parts = [(0, page + 1), (page - 1, 2), (page, page), (5, 3 * page - 9)];
    let answers = parts.map(|(offset, len)| over(offset, len));
    let is_filled = over(page, page).is_ok();
    unmap(0);
    unmap(2 * page);
    for (answer, part) in answers.into_iter().zip(parts).filter(|_| !is_filled) {
        let refused = answer.expect_err("a hole");
        assert_eq!(refused.raw_os_error(), Some(libc::EFAULT), "{part:?}");
    }
    !is_filled
}

const fn rw() -> ProtFlags {
    ProtFlags::PROT_READ.union(ProtFlags::PROT_WRITE)
}

const fn private() -> MapFlags {
    MapFlags::MAP_PRIVATE
}

#[test]
fn bytes_written_through_one_mapping_appear_in_another() {
    let owner = Region::shared(8192, Pages::Base).unwrap();
    let peer = Region::map_fd(dup(&owner), 4096, 4096, MapAccess::ReadWrite).unwrap();
    owner.write(4100, b"hello").unwrap();
    let mut seen = [0; 5];
    peer.read(4, &mut seen).unwrap();
    assert_eq!(&seen, b"hello");
    peer.store_u64_release(8, 77).unwrap();
    assert_eq!(owner.load_u64_acquire(4104).unwrap(), 77);
    assert_eq!(owner.sub(4100, 8).unwrap().fd().unwrap().1, 4100);
}

/// A store through a window, from another one where it needs a source.
type Store = fn(&Region, &Region) -> Result<(), OutOfBounds>;

/// Every way to store 8 bytes or less at the start of a window.
const STORES: [Store; 18] = [
    |to, _| to.store_u8(0, 1),
    |to, _| to.store_u8_release(0, 1),
    |to, _| to.store_u32(0, 1),
    |to, _| to.store_u32_release(0, 1),
    |to, _| to.store_u64(0, 1),
    |to, _| to.store_u64_release(0, 1),
    |to, _| to.store_block(0, &[1]),
    |to, _| to.store_block_last(0, &[1], 0),
    |to, _| to.atomic_u32(0, WordAtomic::Add(1)).map(drop),
    |to, _| to.atomic_u64(0, WordAtomic::Add(1)).map(drop),
    |to, _| to.swap_u64(0, 1).map(drop),
    |to, _| to.compare_exchange(0, 0, 1).map(drop),
    |to, _| to.write(0, &[1; 8]),
    |to, _| to.write_ordered(0, &[1; 8]),
    |to, from| from.copy_to(0, to, 0, 8),
    |to, from| from.copy_to_ordered(0, to, 0, 8),
    |to, from| from.copy_to_streaming(0, to, 0, 8),
    |to, from| from.copy_word_ordered(0, to, 0).ok_or(OutOfBounds { offset: 0, len: 8, limit: 0 }),
];

#[test]
fn a_read_only_window_refuses_every_store() {
    let from = Region::private(4096).unwrap();
    from.write(0, &[1; 8]).unwrap();
    for (at, store) in STORES.into_iter().enumerate() {
        let owner = Region::shared(4096, Pages::Base).unwrap();
        let of_peer = Region::map_fd(dup(&owner), 0, 4096, MapAccess::ReadOnly).unwrap();
        let plain = owner.read_only();
        let part = plain.sub(0, 64).unwrap().sub(0, 8).unwrap();
        for window in [plain, part, of_peer] {
            assert!(!window.is_writable());
            assert!(store(&window, &from).is_err(), "store {at}");
            assert!(window.zero(0, 1).is_err());
            assert_eq!(window.load_u64(0), Ok(0), "store {at}");
        }
        store(&owner, &from).unwrap();
        assert_ne!(owner.load_u64(0), Ok(0), "store {at}");
    }
}

#[test]
fn a_file_sealed_for_the_future_can_only_be_mapped_for_reading() {
    let owner = Region::shared(4096, Pages::Base).unwrap();
    owner.seal_future_write().unwrap();
    assert!(Region::map_fd(dup(&owner), 0, 4096, MapAccess::ReadWrite).is_err());
    let peer = Region::map_fd(dup(&owner), 0, 4096, MapAccess::ReadOnly).unwrap();
    owner.store_u64(0, 5).unwrap();
    assert_eq!(peer.load_u64(0), Ok(5));
}

#[test]
fn a_file_that_may_shrink_or_is_too_short_is_refused() {
    use nix::sys::memfd::{MFdFlags, memfd_create};
    let loose = memfd_create("loose", MFdFlags::MFD_ALLOW_SEALING).unwrap();
    nix::unistd::ftruncate(&loose, 4096).unwrap();
    assert!(Region::map_fd(loose, 0, 4096, MapAccess::ReadOnly).is_err());
    let owner = Region::shared(4096, Pages::Base).unwrap();
    assert!(Region::map_fd(dup(&owner), 0, 8192, MapAccess::ReadOnly).is_err());
    assert!(Region::map_fd(dup(&owner), 4096, 4096, MapAccess::ReadOnly).is_err());
    assert!(Region::map_fd(dup(&owner), u64::MAX, 4096, MapAccess::ReadOnly).is_err());
    assert!(Region::map_fd(dup(&owner), 8, 8, MapAccess::ReadOnly).is_err());
    let plain = std::fs::File::open("/proc/self/exe").unwrap();
    assert!(
        Region::map_fd(plain.as_fd().try_clone_to_owned().unwrap(), 0, 1, MapAccess::ReadOnly)
            .is_err()
    );
    assert!(nix::unistd::ftruncate(dup(&owner), 0).is_err(), "the owner cannot shrink it either");
}

#[test]
fn misaligned_and_outside_words_are_refused() {
    let region = Region::private(4096).unwrap();
    assert_eq!(region.load_u64(4089), Err(OutOfBounds { offset: 4089, len: 8, limit: 4096 }));
    assert!(region.load_u64(4).is_err() && region.load_u32(2).is_err());
    assert!(region.load_u8(4096).is_err() && region.load_u8(usize::MAX).is_err());
    assert!(region.load_block::<8>(4096 - 56).is_err() && region.load_block::<8>(4).is_err());
    assert!(region.read(usize::MAX, &mut [0; 2]).is_err());
    assert!(region.store_block_last(0, &[0; 8], 8).is_err());
    assert!(region.sub(4096, 0).unwrap().is_empty());
    assert!(region.sub(1, 4096).is_err());
}

/// A word is moved at once to an aligned place only, inside of both windows; otherwise nothing is stored.
#[test]
fn a_word_is_moved_at_once_to_an_aligned_place_only() {
    const LEN: usize = 32;
    let source = Region::private(LEN).unwrap();
    let bytes: [u8; LEN] = std::array::from_fn(|at| u8::try_from(at).unwrap() + 1);
    source.write(0, &bytes).unwrap();
    for (to, from) in (0..=LEN).flat_map(|to| (0..=LEN).map(move |from| (to, from))) {
        let target = Region::private(LEN).unwrap();
        let is_moved = source.copy_word_ordered(from, &target, to).is_some();
        let [mut seen, mut expected] = [[0; LEN]; 2];
        target.read(0, &mut seen).unwrap();
        if is_moved {
            expected[to..to + 8].copy_from_slice(&bytes[from..from + 8]);
        }
        assert_eq!(seen, expected, "from {from} to {to}");
        let is_inside = to.max(from) + 8 <= LEN;
        // A source that is not aligned can be loaded at once by some processors.
        if !is_inside || to % 8 != 0 || from % 8 == 0 {
            assert_eq!(is_moved, is_inside && to % 8 == 0, "from {from} to {to}");
        }
    }
}

#[test]
fn lengths_that_cannot_be_are_refused() {
    assert!(Region::shared(0, Pages::Base).is_err());
    assert!(Region::private(0).is_err());
    assert!(Region::private(usize::MAX).is_err());
    assert!(Region::shared(usize::MAX, Pages::Huge2M).is_err());
}

#[test]
fn a_block_comes_back_as_it_was_stored() {
    let region = Region::private(4096).unwrap();
    let words = [1, 2, 3, 4, 5, 6, 7, 8];
    region.store_block_last(64, &words, 0).unwrap();
    assert_eq!(region.load_block::<8>(64), Ok(words));
    region.zero(60, 72).unwrap();
    assert_eq!(region.load_block::<8>(64), Ok([0; 8]));
}

#[test]
fn a_window_outlives_the_region_it_was_cut_from() {
    let window = Region::private(4096).unwrap().sub(100, 28).unwrap();
    window.write(0, &[9; 28]).unwrap();
    assert_eq!(window.load_u32(0), Ok(0x0909_0909));
    assert!(window.contains(window.addr(), 28) && !window.contains(window.addr() - 1, 2));
}

fn apply(op: WordAtomic<u64>, old: u64) -> u64 {
    match op {
        WordAtomic::Cas { cmp, swap } => {
            if old == cmp {
                swap
            } else {
                old
            }
        }
        WordAtomic::Swap(value) => value,
        WordAtomic::Add(value) => old.wrapping_add(value),
        WordAtomic::Sub(value) => old.wrapping_sub(value),
        WordAtomic::And(value) => old & value,
        WordAtomic::Or(value) => old | value,
        WordAtomic::Xor(value) => old ^ value,
    }
}

fn any_op() -> impl Strategy<Value = WordAtomic<u64>> {
    (0..7, 0..4_u64, any::<u64>()).prop_map(|(kind, cmp, value)| match kind {
        0 => WordAtomic::Cas { cmp, swap: value % 4 },
        1 => WordAtomic::Swap(value),
        2 => WordAtomic::Add(value),
        3 => WordAtomic::Sub(value),
        4 => WordAtomic::And(value),
        5 => WordAtomic::Or(value),
        _ => WordAtomic::Xor(value),
    })
}

proptest! {
    #[test]
    fn atomics_agree_with_arithmetic(ops in proptest::collection::vec(any_op(), 1..40)) {
        let region = Region::private(16).unwrap();
        let mut model = 0;
        for op in ops {
            prop_assert_eq!(region.atomic_u64(8, op), Ok(model));
            model = apply(op, model);
            prop_assert_eq!(region.load_u64(8), Ok(model));
        }
    }

    #[test]
    fn any_access_agrees_with_a_slice(at in 0_usize..300, len in 0_usize..300) {
        let region = Region::private(256).unwrap();
        let model: Vec<u8> = (0..=255).collect();
        region.write(0, &model).unwrap();
        let mut seen = vec![0; len];
        match model.get(at..at + len) {
            Some(bytes) => {
                region.read(at, &mut seen).unwrap();
                prop_assert_eq!(bytes, &seen[..]);
            }
            None => prop_assert!(region.read(at, &mut seen).is_err()),
        }
        prop_assert_eq!(region.write(at, &seen).is_ok(), at + len <= 256);
    }
}

/// Whether the region's file is mapped at `addr`, by its inode: addresses are used again.
#[expect(clippy::unwrap_used, reason = "a test may stop")]
fn is_mapped(region: &Region, addr: usize) -> bool {
    let inode = nix::sys::stat::fstat(region.fd().unwrap().0).unwrap().st_ino.to_string();
    let maps = std::fs::read_to_string("/proc/self/maps").unwrap();
    maps.lines().any(|line| {
        let (range, rest) = line.split_once(' ').unwrap();
        let (start, end) = range.split_once('-').unwrap();
        let [start, end] = [start, end].map(|hex| usize::from_str_radix(hex, 16).unwrap());
        (start..end).contains(&addr) && rest.split_whitespace().nth(3) == Some(&inode)
    })
}

#[test]
fn a_window_apart_has_the_same_bytes_and_goes_alone() {
    let region = Region::shared(5 * page_len(), Pages::Base).unwrap();
    let part = region.sub(page_len() + 24, 2 * page_len()).unwrap();
    let apart = part.apart().unwrap().unwrap();
    assert_eq!((apart.len(), apart.addr() % page_len()), (part.len(), part.addr() % page_len()));
    apart.store_u64(0, 7).unwrap();
    assert_eq!(region.load_u64(page_len() + 24), Ok(7));
    let addr = apart.addr();
    assert!(addr != part.addr() && is_mapped(&region, addr));
    drop(apart);
    assert!(!is_mapped(&region, addr) && is_mapped(&region, region.addr()));
    assert!(Region::private(8).unwrap().apart().is_none());
}

#[test]
fn a_read_only_window_is_mapped_without_stores() {
    let region = Region::shared(page_len(), Pages::Base).unwrap();
    let looks = region.read_only().apart().unwrap().unwrap();
    region.store_u64(8, 3).unwrap();
    assert_eq!(looks.load_u64(8), Ok(3));
    assert!(looks.store_u64(8, 4).is_err());
    assert!(!region.read_only().is_writable() && region.is_writable());
    let maps = std::fs::read_to_string("/proc/self/maps").unwrap();
    let start = format!("{:x}-", looks.addr());
    let line = maps.lines().find(|line| line.starts_with(&start)).unwrap();
    assert!(line.contains("r--s"), "{line}");
}

/// A limit on the length of files would end the process by a signal; it is an error instead.
#[test]
fn a_limit_on_the_length_of_files_is_an_error() {
    use nix::sys::resource::{Resource, setrlimit};
    let _ = (crate::writer_hold(), page_len());
    let child = crate::fork::in_child(|| {
        setrlimit(Resource::RLIMIT_FSIZE, 1 << 20, 1 << 20).unwrap();
        let refused = Region::shared(2 << 20, Pages::Base).unwrap_err();
        let arena = crate::Arena::new().unwrap();
        let memory = Region::private(4 << 20).unwrap();
        memory.store_u64(0, 7).unwrap();
        let moved = arena.adopt(&memory);
        refused.raw_os_error() == Some(libc::ENOMEM)
            && matches!(moved, Err(crate::AdoptRefusal::ArenaFull))
            && memory.load_u64(0) == Ok(7)
            && Region::shared(1 << 20, Pages::Base).is_ok()
    });
    let pid = nix::unistd::Pid::from_raw(i32::try_from(child.unwrap()).unwrap());
    let end = nix::sys::wait::waitpid(pid, None).unwrap();
    assert_eq!(end, nix::sys::wait::WaitStatus::Exited(pid, 0));
}
