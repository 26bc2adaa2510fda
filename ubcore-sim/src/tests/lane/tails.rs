//! Lists of pieces, and payloads in entries, end on the express lane as on the long path.

use udma_abi::cmd::Access;
use udma_abi::counters::Counter;
use udma_abi::sqe::SqeFlags;
use udma_abi::{CqeStatus, Opcode, Sge, Sqe};

use super::super::on_seg;
use super::super::scene::Scene;
use super::{AREA, GOOD, REFUSED, STOPPED, both, direct_from, ends};

/// Posts a request of several pieces: offsets and lengths in the local segment.
fn listed(s: &mut Scene, opcode: Opcode, pieces: &[(u64, u32)]) {
    let sqe = on_seg(opcode, s.tpn, &s.remote, 64);
    let sges: Vec<Sge> = pieces.iter().map(|&(at, len)| s.local.sge(at, len)).collect();
    s.a.post(&mut s.jetty, sqe, &sges);
}

/// Posts a WRITE with `len` bytes in its entry: directly if it has one block.
fn carried(s: &mut Scene, len: u16, change: impl FnOnce(&mut Sqe)) {
    let mut sqe = on_seg(Opcode::Write, s.tpn, &s.remote, 64);
    (sqe.flags, sqe.inline_len) = (SqeFlags::INLINE | SqeFlags::COMPLETE, len);
    change(&mut sqe);
    let words: Vec<u64> = (1..=26).map(|n| n * 0x0101_0305_0709_0b0d).collect();
    let block = s.a.put(&mut s.jetty, sqe, &words[..usize::from(len).div_ceil(8)]);
    if sqe.blocks() == 1 {
        s.a.write_direct(&s.jetty, &block);
    } else {
        s.a.ring(&s.jetty);
    }
}

#[test]
fn requests_of_several_pieces_are_done_and_counted_alike() {
    let lists: [&[(u64, u32)]; 9] = [
        &[(200, 1), (300, 2)],
        &[(200, 100), (400, 0), (500, 7), (600, 5)],
        &[(200, 8), (300, 8)],
        &[(201, 511), (1001, 513)],
        &[(201, 512), (1001, 513)],
        &[(200, 3); 13],
        &[(200, 0), (300, 0)],
        &[],
        &[(203, 374), (1000, 374), (2003, 17)],
    ];
    let seen = both(|s, opcode| lists.iter().for_each(|list| listed(s, opcode, list)));
    ends(&seen, &[GOOD; 9]);
    assert_eq!(seen[0].counts[0], 12);
    // Pieces of two segments, with one that was not used before.
    let seen = both(|s, opcode| {
        let other = s.a.seg(4096);
        other.mem.write(0, &[0x5a; 4096]).unwrap();
        for _ in 0..2 {
            let sqe = on_seg(opcode, s.tpn, &s.remote, 64);
            let sges = [s.local.sge(0, 9), other.sge(1, 30), s.local.sge(20, 8), other.sge(99, 3)];
            s.a.post(&mut s.jetty, sqe, &sges);
        }
        s.local.mem.write(4096, &other.bytes(0, 200)).unwrap();
    });
    ends(&seen, &[GOOD; 2]);
}

#[test]
fn payloads_in_entries_are_done_and_counted_alike() {
    let seen = both(|s, _| {
        for len in [1, 8, 16, 17, 100, 208, 0] {
            carried(s, len, |sqe| sqe.remote_va += u64::from(len) * 10);
        }
        carried(s, 8, |sqe| sqe.flags |= SqeFlags::FENCE);
    });
    ends(&seen, &[GOOD; 8]);
    assert_eq!(seen[0].counts[0], 11);
}

#[test]
fn what_the_target_does_not_allow_is_refused_to_lists_and_payloads_too() {
    let cases: [fn(&mut Sqe); 3] = [
        |sqe| sqe.token_value ^= 1,
        |sqe| sqe.remote_va += (1 << 20) - 64 - 15,
        |sqe| sqe.seg_token_id += 1 << 8,
    ];
    for change in cases {
        ends(&both(|s, _| carried(s, 16, change)), &[REFUSED]);
        let seen = both(|s, opcode| {
            let mut sqe = on_seg(opcode, s.tpn, &s.remote, 64);
            change(&mut sqe);
            let sges = [s.local.sge(0, 8), s.local.sge(100, 8)];
            s.a.post(&mut s.jetty, sqe, &sges);
        });
        ends(&seen, &[REFUSED]);
    }
    let seen = both(|s, opcode| {
        let right = if opcode == Opcode::Write { Access::READ } else { Access::LOCAL_ONLY };
        let mem = s.b.alloc(AREA);
        s.remote = s.b.seg_of(mem, right);
        carried(s, 16, |_| {});
        carried(s, 40, |_| {});
        listed(s, opcode, &[(0, 8), (100, 8)]);
    });
    ends(&seen, &[REFUSED; 3]);
}

/// All pieces are judged before the first byte is moved.
#[test]
fn each_piece_of_a_list_is_checked() {
    let denied = [CqeStatus::LocAccess, CqeStatus::WrFlushErrDone];
    for piece in [((1 << 20) - 7, 8), (1 << 20, 1)] {
        let seen = both(|s, opcode| listed(s, opcode, &[(0, 500), piece]));
        ends(&seen, &denied);
    }
    let seen = both(|s, opcode| {
        let sqe = on_seg(opcode, s.tpn, &s.remote, 3000);
        let piece = s.local.sge(0, 8);
        let other = Sge { token_id: piece.token_id + (8 << 8), ..piece };
        s.a.post(&mut s.jetty, sqe, &[piece, other]);
    });
    ends(&seen, &denied);
    let seen = both(|s, opcode| {
        let mem = s.a.alloc(4096).read_only();
        let pinned = s.a.seg_of(mem, Access::READ);
        direct_from(s, Opcode::Write, pinned.sge(0, 8));
        let sqe = on_seg(opcode, s.tpn, &s.remote, 3000);
        let sges = [s.local.sge(0, 500), pinned.sge(0, 8)];
        s.a.post(&mut s.jetty, sqe, &sges);
    });
    ends(&seen[..1], &[GOOD; 2]);
    ends(&seen[1..], &[&[GOOD], &denied[..]].concat());
    let seen = both(|s, _| {
        s.a.dev.poison(s.a.now, s.local.mem.addr(), 64);
        listed(s, Opcode::Write, &[(4096, 8), (5000, 8)]);
        listed(s, Opcode::Write, &[(4096, 8), (0, 8)]);
    });
    ends(&seen, &[GOOD, CqeStatus::LocDataPoison, CqeStatus::WrFlushErrDone]);
}

/// The blocks behind the first are taken only when they were posted.
#[test]
fn half_a_list_is_malformed() {
    for missing in [1, 2] {
        let seen = both(|s, opcode| {
            let mut sqe = on_seg(opcode, s.tpn, &s.remote, 64);
            sqe.sge_num = 6;
            let piece = s.local.sge(0, 8).to_words();
            s.a.put(&mut s.jetty, sqe, &piece.repeat(6));
            s.jetty.pi -= missing;
            s.a.ring(&s.jetty);
        });
        ends(&seen, &STOPPED);
        assert_eq!(seen[0].counts[0], 3);
        let seen = both(|s, _| {
            let mut sqe = on_seg(Opcode::Write, s.tpn, &s.remote, 64);
            (sqe.flags, sqe.inline_len) = (SqeFlags::INLINE, 100);
            s.a.put(&mut s.jetty, sqe, &[7; 13]);
            s.jetty.pi -= missing;
            s.a.ring(&s.jetty);
        });
        ends(&seen, &STOPPED);
    }
}

#[test]
fn tails_that_no_entry_has_are_malformed() {
    let seen = both(|s, opcode| {
        let mut sqe = on_seg(opcode, s.tpn, &s.remote, 64);
        (sqe.sge_num, sqe.flags) = (14, SqeFlags::COMPLETE);
        let at = s.jetty.pi as usize & 15;
        let piece = s.local.sge(0, 8).to_words();
        s.a.put(&mut s.jetty, Sqe { sge_num: 13, ..sqe }, &piece.repeat(13));
        let word = s.jetty.ring.load_u64(at * 64 + 8).unwrap();
        s.jetty.ring.store_u64(at * 64 + 8, word + (1 << 24)).unwrap();
        s.jetty.pi += 1;
        s.a.ring(&s.jetty);
    });
    assert_eq!(seen[0].counts[0], 3);
    let seen = both(|s, opcode| {
        let mut sqe = on_seg(opcode, s.tpn, &s.remote, 64);
        (sqe.flags, sqe.inline_len) = (SqeFlags::INLINE, 209);
        s.a.put(&mut s.jetty, Sqe { inline_len: 208, ..sqe }, &[7; 26]);
        let at = (s.jetty.pi as usize - 4) & 15;
        let word = s.jetty.ring.load_u64(at * 64).unwrap();
        s.jetty.ring.store_u64(at * 64, word + (1 << 54)).unwrap();
        s.jetty.pi += 1;
        s.a.ring(&s.jetty);
    });
    assert_eq!(seen[0].counts[0], 3);
}

#[test]
fn lists_wait_for_what_is_before_them_and_for_a_completion_slot() {
    let seen = both(|s, opcode| {
        direct_from(s, opcode, s.local.sge(0, 5000));
        let bytes = |s: &Scene| (s.remote.bytes(64, 16), s.local.bytes(6000, 100));
        let before = bytes(s);
        listed(s, opcode, &[(6000, 8), (6050, 8)]);
        assert_eq!(bytes(s), before);
    });
    ends(&seen, &[GOOD; 2]);
    let seen = both(|s, opcode| {
        s.jetty = s.a.jetty(7, &s.jfc, |_| {});
        for _ in 0..20 {
            listed(s, opcode, &[(6000, 8), (6050, 8)]);
        }
        assert_eq!(s.a.dev.counter(Counter::DirectRequests), 19);
    });
    ends(&seen, &[GOOD; 20]);
}
