//! The path of each request on one host: shared extents, the kernel, the ring.

use udma_abi::{CqeStatus, Opcode, Sge, cmd::Command, counters::Counter};

use super::scene::{Scene, scene_of};
use super::{Sharing, on_seg, pair_sharing};
use crate::context::segment::{entry_offset, tid_of};
use crate::host::peer::KernelReads;
use crate::share::EXTENTS;

const PAGE: u64 = 4096;
/// A private page at the head, two shared runs without a gap, a private page, a shared one.
const RUNS: &[(u64, u64)] = &[(PAGE, 2 * PAGE), (3 * PAGE, 8 * PAGE), (12 * PAGE, PAGE)];

fn scene(runs: &'static [(u64, u64)], kernel_reads: KernelReads) -> Scene {
    scene_of(pair_sharing(Sharing::Pieces(runs), kernel_reads, |_| {}), 4, 6)
}

/// Requests by path: directly, by the kernel, by the ring.
fn paths(s: &Scene) -> [u64; 3] {
    [Counter::DirectRequests, Counter::KernelRequests, Counter::RingRequests]
        .map(|counter| s.a.dev.counter(counter))
}

/// Which path a request of `len` bytes at `offset` takes.
fn path_of(s: &mut Scene, opcode: Opcode, (offset, len): (u64, u32)) -> [u64; 3] {
    let before = paths(s);
    let sqe = on_seg(opcode, s.tpn, &s.remote, offset);
    let cqe = s.complete(sqe, &[s.local.sge(0, len)]);
    assert_eq!((cqe.status, cqe.byte_cnt), (CqeStatus::Success, len), "{opcode:?} {offset}");
    let after = paths(s);
    [0, 1, 2].map(|path| after[path] - before[path])
}

const DIRECT: [u64; 3] = [1, 0, 0];
const KERNEL: [u64; 3] = [0, 1, 0];
const RING: [u64; 3] = [0, 0, 1];

#[test]
fn a_write_is_direct_where_one_extent_covers_it() {
    let mut s = scene(RUNS, KernelReads::Off);
    let bytes = s.fill();
    for (range, path) in [
        ((PAGE, 100), DIRECT),
        ((PAGE, 8192), DIRECT),
        ((3 * PAGE, 8 * 4096), DIRECT),
        ((12 * PAGE + 4095, 1), DIRECT),
        ((PAGE - 1, 2), RING),
        ((2 * PAGE, 4097), RING),
        ((11 * PAGE - 1, 2), RING),
        ((13 * PAGE - 1, 2), RING),
        ((0, 8), RING),
    ] {
        assert_eq!(path_of(&mut s, Opcode::Write, range), path, "{range:?}");
        let at = usize::try_from(range.0).unwrap();
        let len = usize::try_from(range.1).unwrap();
        assert_eq!(s.remote.bytes(at, len), bytes[..len], "{range:?}");
    }
}

#[test]
fn extents_beyond_the_table_go_by_the_ring() {
    const MANY: usize = EXTENTS + 3;
    const fn many() -> [(u64, u64); MANY] {
        let mut runs = [(0, 0); MANY];
        let mut n = 0;
        while n < MANY {
            // Shorter and shorter, so that the table keeps the first ones.
            runs[n] = (2 * n as u64 * PAGE, PAGE - n as u64 * 8);
            n += 1;
        }
        runs
    }
    static RUNS: [(u64, u64); MANY] = many();
    let mut s = scene(&RUNS, KernelReads::Off);
    for (n, run) in RUNS.iter().enumerate() {
        let expected = if n <= EXTENTS { DIRECT } else { RING };
        assert_eq!(path_of(&mut s, Opcode::Write, (run.0, 64)), expected, "{n}");
    }
    // What the owner says it shares is what peers can reach directly.
    let published: u64 = RUNS[..=EXTENTS].iter().map(|run| run.1).sum();
    let (_, iova) = s.b.map(1 << 20);
    let token_id = s.b.ok32(Command::AllocTid);
    let mem = s.b.alloc(1 << 20);
    let again = s.b.map_region(&mem);
    assert_ne!(iova, again);
    let access = udma_abi::cmd::Access::READ;
    let va = mem.addr() as u64;
    let len = mem.len() as u64;
    let args =
        udma_abi::cmd::RegisterSeg { token_id, iova: again, va, len, access, token_value: None };
    assert_eq!(s.b.ok(Command::RegisterSeg(args)), published);
}

#[test]
fn reads_of_what_is_not_shared_go_through_the_kernel_and_nothing_else_does() {
    let mut s = scene(RUNS, KernelReads::Probe);
    s.fill();
    let shown: Vec<u8> = (0..1 << 20).map(|n: u32| n.to_le_bytes()[1] ^ 0x5a).collect();
    s.remote.mem.write(0, &shown).unwrap();
    for (range, path) in [
        ((PAGE, 100), DIRECT),
        ((PAGE - 1, 100), KERNEL),
        ((0, 1 << 20), KERNEL),
        ((14 * PAGE + 3, 9), KERNEL),
        // A word is never torn; what the kernel copies may be.
        ((14 * PAGE, 8), RING),
    ] {
        assert_eq!(path_of(&mut s, Opcode::Read, range), path, "{range:?}");
        let (at, len) = (usize::try_from(range.0).unwrap(), usize::try_from(range.1).unwrap());
        assert!(s.local.bytes(0, len) == shown[at..at + len], "{range:?}");
    }
    assert_eq!(s.a.dev.counter(Counter::KernelBytes), 100 + (1 << 20) + 9);
    // A write that came late could not be kept out.
    assert_eq!(path_of(&mut s, Opcode::Write, (14 * PAGE, 4096)), RING);
    let sqe = udma_abi::Sqe { operand: 5, ..on_seg(Opcode::FetchAdd, s.tpn, &s.remote, 0) };
    let before = paths(&s);
    assert_eq!(s.complete(sqe, &[s.local.sge(0, 8)]).status, CqeStatus::Success);
    assert_eq!(paths(&s)[1], before[1], "atomics never");
}

#[test]
fn a_read_through_the_kernel_scatters() {
    let mut s = scene(&[], KernelReads::Probe);
    let bytes = s.fill();
    s.remote.mem.write(0, &bytes[500..900]).unwrap();
    let sqe = on_seg(Opcode::Read, s.tpn, &s.remote, 10);
    let pieces: [Sge; 3] = [s.local.sge(0, 7), s.local.sge(100, 0), s.local.sge(50, 90)];
    assert_eq!(s.complete(sqe, &pieces).status, CqeStatus::Success);
    assert_eq!(s.local.bytes(0, 7), bytes[510..517]);
    assert_eq!(s.local.bytes(50, 90), bytes[517..607]);
    assert_eq!(paths(&s), KERNEL);
}

#[test]
fn the_kernel_is_asked_only_after_every_check() {
    let mut s = scene(&[], KernelReads::Probe);
    let before = s.fill();
    let refused = CqeStatus::RemAccessAbort;
    let mut sqe = on_seg(Opcode::Read, s.tpn, &s.remote, 0);
    sqe.token_value ^= 1;
    assert_eq!(s.complete(sqe, &[s.local.sge(0, 100)]).status, refused, "token");
    assert_eq!(s.local.bytes(0, 100), before[..100]);
    assert_eq!(paths(&s), [0; 3]);
}

#[test]
fn a_read_beyond_the_end_or_after_unregistering_is_refused() {
    for withdrawn in [false, true] {
        let mut s = scene(&[], KernelReads::Probe);
        let before = s.fill();
        assert_eq!(path_of(&mut s, Opcode::Read, (0, 64)), KERNEL);
        let len = s.remote.mem.len() as u64;
        let offset = if withdrawn { 0 } else { len - 50 };
        if withdrawn {
            s.b.ok(Command::UnregisterSeg { token_id: s.remote.token_id });
        }
        let sqe = on_seg(Opcode::Read, s.tpn, &s.remote, offset);
        let cqe = s.complete(sqe, &[s.local.sge(200, 51)]);
        assert_eq!(cqe.status, CqeStatus::RemAccessAbort);
        assert_eq!(s.local.bytes(200, 51), before[200..251]);
        assert_eq!(paths(&s), KERNEL);
    }
}

#[test]
fn long_walks_go_past_the_caches_and_place_every_byte() {
    // The second pass, and the end of the first, are cold.
    let change = |cfg: &mut crate::DeviceCfg| {
        cfg.cache_bytes = 256 << 10;
        cfg.direct_chunk = 40_000;
    };
    let mut s = scene_of(pair_sharing(Sharing::Whole, KernelReads::Off, change), 4, 6);
    let bytes = s.fill();
    let len = 65_537_usize;
    for pass in 0..2 {
        for n in 0..15 {
            let (from, to) = (n * 4097 + pass, n * (len + 3) + 1);
            let sqe = on_seg(Opcode::Write, s.tpn, &s.remote, to as u64);
            let cqe = s.complete(sqe, &[s.local.sge(from as u64, 65_537)]);
            assert_eq!(cqe.status, CqeStatus::Success);
            assert!(s.remote.bytes(to, len) == bytes[from..from + len], "{pass} {n}");
            assert_eq!(s.remote.bytes(to + len, 3), [0; 3]);
            assert_eq!(s.remote.bytes(to - 1, 1), [0]);
        }
    }
    // Of several pieces as well.
    let pieces = [s.local.sge(5, 30_000), s.local.sge(40_000, 20_001)];
    let sqe = on_seg(Opcode::Write, s.tpn, &s.remote, 7);
    assert_eq!(s.complete(sqe, &pieces).byte_cnt, 50_001);
    assert!(s.remote.bytes(7, 30_000) == bytes[5..30_005]);
    assert!(s.remote.bytes(30_007, 20_001) == bytes[40_000..60_001]);
    assert_eq!(paths(&s), [31, 0, 0]);
}

#[test]
fn memory_that_its_owner_does_not_show_is_not_read_by_its_address() {
    // A page with a fault: the target's node ends the read.
    let mut s = scene(&[], KernelReads::Probe);
    s.fill();
    s.b.dev.poison(0, s.remote.mem.addr(), 64);
    let sqe = on_seg(Opcode::Read, s.tpn, &s.remote, 0);
    assert_eq!(s.complete(sqe, &[s.local.sge(0, 100)]).status, CqeStatus::RemDataPoison);
    assert_eq!(paths(&s), RING);
    // An entry without an address, whose offsets are addresses.
    let mut s = scene(&[], KernelReads::Probe);
    s.fill();
    let entry = entry_offset(tid_of(s.remote.token_id).unwrap());
    for (word, value) in [(1, 0), (2, u64::MAX / 2), (7, 0)] {
        s.b.dev.node_region().store_u64(entry + word * 8, value).unwrap();
    }
    assert_eq!(path_of(&mut s, Opcode::Read, (0, 100)), RING);
}

/// Not a test of speed: prints what long writes over more memory than the caches hold reach.
#[test]
#[ignore = "measures; run with --release --ignored --nocapture"]
#[expect(clippy::disallowed_methods, reason = "a measurement needs a clock")]
fn measure_cold_writes() {
    for _ in 0..3 {
        for (name, cache_bytes) in [("through the caches", u64::MAX), ("past them", 1 << 20)] {
            let change = |cfg: &mut crate::DeviceCfg| cfg.cache_bytes = cache_bytes;
            let (a, mut b) = pair_sharing(Sharing::Whole, KernelReads::Off, change);
            let big = b.seg(56 << 20);
            let mut s = scene_of((a, b), 4, 6);
            s.remote = big;
            let mut best = std::time::Duration::MAX;
            for _ in 0..6 {
                let start = std::time::Instant::now();
                for at in (0..56 << 20).step_by(64 << 10) {
                    let sqe = on_seg(Opcode::Write, s.tpn, &s.remote, at);
                    s.complete(sqe, &[s.local.sge(0, 64 << 10)]);
                }
                best = best.min(start.elapsed());
            }
            println!(
                "64 KiB writes over 56 MiB, {name}: {:.1} GB/s",
                0.058_720 / best.as_secs_f64()
            );
        }
    }
}
