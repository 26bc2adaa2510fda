//! Tests of the copies against slices, and their speed (`--ignored --nocapture`, release).
#![expect(unsafe_code, reason = "the functions under test take raw ranges")]

use super::{body_len, imp, words};
use proptest::prelude::*;

type Raw = unsafe fn(*mut u8, *const u8, usize);

const FRAME: usize = 64;

/// Copies `len` bytes between two buffers at the given misalignments; checks the frame around.
fn check(copy: Raw, to_shift: usize, from_shift: usize, len: usize) {
    let source: Vec<u8> = (0..len + FRAME * 2).map(|i| (i * 7 % 251).to_le_bytes()[0]).collect();
    let mut target = vec![0xEE_u8; len + FRAME * 2];
    let to_at = target.as_ptr().align_offset(32) + to_shift;
    let from_at = source.as_ptr().align_offset(32) + from_shift;
    // SAFETY: both shifts are below 32 and the buffers have 128 bytes more than len.
    let to = unsafe { target.as_mut_ptr().add(to_at) };
    // SAFETY: `len` bytes follow both places: the buffers have 128 bytes more than len.
    unsafe { copy(to, source[from_at..].as_ptr(), len) };
    assert_eq!(&target[to_at..to_at + len], &source[from_at..from_at + len]);
    assert!(target[..to_at].iter().chain(&target[to_at + len..]).all(|byte| *byte == 0xEE));
}

#[test]
fn every_short_length_and_misalignment_arrives_whole() {
    for copy in [super::copy as Raw, super::copy_ordered, super::copy_streaming, words::copy] {
        for len in (0..80).chain([127, 128, 129, 255, 256, 257, 300, 511, 513]) {
            for shift in 0..16 {
                check(copy, shift, 0, len);
                check(copy, 0, shift, len);
                check(copy, shift, shift, len);
            }
        }
    }
}

#[test]
fn the_ordered_tail_starts_on_a_word_and_covers_the_last_eight_bytes() {
    for to in 0..16_usize {
        for len in 0..64 {
            let body = body_len(to, len);
            assert!(body + 8 <= len || body == 0, "tail covers 8 bytes: {to} {len}");
            assert!(len - body < 16, "tail is short: {to} {len}");
            assert!(body == 0 || (to + body).is_multiple_of(8), "no word straddles: {to} {len}");
        }
    }
}

/// One thread rewrites a word, copies move it, and no reader of the copy ever sees a mix.
#[test]
fn aligned_words_are_never_torn() {
    use crate::sync::{AtomicBool, AtomicU64, Ordering};
    for (len, at) in [(8_usize, 0_usize), (24, 2), (64, 5), (12, 0), (1024, 77)] {
        let source: Vec<AtomicU64> = (0..128).map(|_| AtomicU64::new(0)).collect();
        let target: Vec<AtomicU64> = (0..128).map(|_| AtomicU64::new(0)).collect();
        let stop = AtomicBool::new(false);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                let mut value = 0_u64;
                while !stop.load(Ordering::Relaxed) {
                    value = !value;
                    source[at].store(value, Ordering::Relaxed);
                }
            });
            for _ in 0..20_000 {
                let to = target[0].as_ptr().cast::<u8>();
                // SAFETY: both vectors have 1024 bytes; their words are atomics.
                unsafe { super::copy_ordered(to, source[0].as_ptr().cast(), len) };
                let seen = target[at.min(len / 8 - 1)].load(Ordering::Relaxed);
                assert!(seen == 0 || seen == u64::MAX, "torn: {seen:x}");
            }
            stop.store(true, Ordering::Relaxed);
        });
    }
}

/// A copy faults at its first page, which may not be written: nothing of its tail, in the next page, is
/// stored by then.
#[test]
fn the_tail_is_stored_after_the_body() {
    for copy in [super::copy_ordered as Raw, super::copy_streaming] {
        for (before, after) in [(512, 8), (512, 64), (8, 8), (61, 15), (4096, 4096)] {
            let stored = stored_before_fault(copy, ClosedPage::First, (before, after));
            assert_eq!(stored[after - 8..], [0; 8], "{before} bytes in front of {after}");
        }
    }
}

/// A word that is not aligned is stored in ascending parts: after a fault in its second page, its bytes in the first
/// one are stored. One store of all 8 bytes would store none of them, and across cache lines the processor promises
/// no order for its halves.
#[test]
fn a_word_that_is_not_aligned_is_stored_in_ascending_parts() {
    for before in 1..8 {
        let stored =
            stored_before_fault(super::copy_ordered, ClosedPage::Second, (before, 8 - before));
        assert_eq!(stored, vec![7; before]);
    }
}

/// Which of two pages may not be written.
enum ClosedPage {
    First,
    Second,
}

/// Bytes in the open one of two pages after a copy that faults in the `closed` one; the destination has `before` bytes in
/// the first page and `after` bytes in the second one.
fn stored_before_fault(copy: Raw, closed: ClosedPage, (before, after): (usize, usize)) -> Vec<u8> {
    const PAGE: usize = 4096;
    let pages = shared_pages(2 * PAGE);
    let source = vec![7_u8; before + after];
    let to = pages.wrapping_add(PAGE - before);
    let (protected, open, len) = match closed {
        ClosedPage::First => (pages, pages.wrapping_add(PAGE), after),
        ClosedPage::Second => (pages.wrapping_add(PAGE), to, before),
    };
    // SAFETY: the page is this function's own; nothing refers to it.
    assert_eq!(unsafe { libc::mprotect(protected.cast(), PAGE, libc::PROT_NONE) }, 0);
    let faults = || {
        // SAFETY: one page of the destination is not writable: the process ends there, by the default action of
        // the signal.
        unsafe { libc::signal(libc::SIGSEGV, libc::SIG_DFL) };
        // SAFETY: the source has that length, and no store of the call does harm.
        unsafe { copy(to, source.as_ptr(), before + after) };
    };
    assert_eq!(signal_of_child(faults), Some(libc::SIGSEGV));
    // SAFETY: the open page is mapped, and the only process that wrote it has ended.
    let stored = unsafe { std::slice::from_raw_parts(open, len) }.to_vec();
    // SAFETY: both pages are this function's own; nothing refers to them.
    unsafe { libc::munmap(pages.cast(), 2 * PAGE) };
    stored
}

/// Zeroed pages that stay shared with forked children.
fn shared_pages(len: usize) -> *mut u8 {
    let (access, kind) =
        (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_SHARED | libc::MAP_ANONYMOUS);
    // SAFETY: asks for new pages at an address of the kernel's choice.
    let pages = unsafe { libc::mmap(std::ptr::null_mut(), len, access, kind, -1, 0) };
    assert_ne!(pages, libc::MAP_FAILED);
    pages.cast()
}

/// The signal that ends a child which calls `work`.
fn signal_of_child(work: impl FnOnce()) -> Option<i32> {
    // SAFETY: the child stores to memory, and ends; it takes no lock and allocates nothing.
    let child = unsafe { libc::fork() };
    if child == 0 {
        work();
        // SAFETY: ends the child without the handlers of the parent.
        unsafe { libc::_exit(0) };
    }
    let mut status = 0;
    // SAFETY: `status` is a local that outlives the call; the child is this process's own.
    assert_eq!(unsafe { libc::waitpid(child, &raw mut status, 0) }, child);
    libc::WIFSIGNALED(status).then(|| libc::WTERMSIG(status))
}

/// A reader that sees the last word of a message sees all of it. Each round starts with the reader
/// at the last word, and copying the body takes long enough that the reader looks meanwhile.
#[test]
fn the_last_word_is_visible_last() {
    use crate::sync::{AtomicU64, Ordering};
    const WORDS: usize = 16_384;
    const ROUNDS: u64 = 500;
    let target: Vec<AtomicU64> = (0..WORDS).map(|_| AtomicU64::new(0)).collect();
    let (waits_for, last) = (AtomicU64::new(0), &target[WORDS - 1]);
    let until = |word: &AtomicU64, round: u64| {
        let mut looks = 0_u32;
        while word.load(Ordering::Acquire) < round {
            looks += 1;
            if looks.is_multiple_of(1_000) {
                std::thread::yield_now()
            } else {
                std::hint::spin_loop()
            }
        }
    };
    let missing = std::thread::scope(|scope| {
        let reader = scope.spawn(|| {
            let missing = |round| {
                waits_for.store(round, Ordering::Release);
                until(last, round);
                // Copies may go up or down: both ends of the body, and its middle.
                let places = [WORDS - 2, 0, WORDS / 2, WORDS - 3, 1];
                places.iter().filter(|at| target[**at].load(Ordering::Relaxed) < round).count()
            };
            (1..=ROUNDS).map(missing).sum::<usize>()
        });
        for round in 1..=ROUNDS {
            let source = vec![round; WORDS];
            until(&waits_for, round);
            let to = target[0].as_ptr().cast::<u8>();
            // SAFETY: both hold WORDS words; the target's are atomics.
            unsafe { super::copy_ordered(to, source.as_ptr().cast(), WORDS * 8) };
        }
        reader.join().expect("the reader ends after its rounds")
    });
    assert_eq!(missing, 0, "words that came after the last one");
}

proptest! {
    #[test]
    fn long_copies_agree_with_slices(len in 0_usize..6000, to in 0_usize..32, from in 0_usize..32) {
        check(super::copy, to, from, len);
        check(super::copy_ordered, to, from, len);
        check(super::copy_streaming, to, from, len);
    }
}

#[test]
#[ignore = "measures; run with --release --ignored --nocapture"]
#[expect(clippy::disallowed_methods, reason = "a measurement owns its clock")]
fn measure() {
    use std::time::Instant;
    let all: [(&str, Raw); 4] = [
        ("copy", super::copy),
        ("ordered", super::copy_ordered),
        ("streaming", super::copy_streaming),
        ("words", words::copy),
    ];
    for len in [8_usize, 16, 32, 64, 256, 1024, 4096, 65_536, 1 << 20] {
        for (name, copy) in all {
            let (source, mut target) = (vec![1_u8; len + 64], vec![0_u8; len + 64]);
            let to = target.as_ptr().align_offset(64);
            let from = source.as_ptr().align_offset(64);
            let rounds = (1 << 28) / len.max(32);
            let best = (0..3)
                .map(|_| {
                    let start = Instant::now();
                    for _ in 0..rounds {
                        // SAFETY: both vectors have 64 bytes more than len.
                        unsafe { copy(target[to..].as_mut_ptr(), source[from..].as_ptr(), len) };
                    }
                    start.elapsed().as_secs_f64() / rounds as f64
                })
                .fold(f64::MAX, f64::min);
            println!(
                "{len:8} {name:10} {:8.1} ns {:6.1} GB/s",
                best * 1e9,
                len as f64 / best / 1e9
            );
        }
    }
    let _ = imp::copy;
}
