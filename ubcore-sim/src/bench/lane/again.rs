//! Requests like one before are checked for all that may have changed since.

use udma_abi::sqe::BLOCK_WORDS;
use udma_abi::{CqeStatus, Opcode, Sqe};

use super::super::scene::{Scene, scene, scene_of};
use super::super::{on_seg, pair_with};
use super::{ATOMICS, GOOD, REFUSED, STOPPED, TRANSFERS, both, direct, each, ends, send};
use crate::cfg::ExpressLane;
use crate::context::segment::{entry_offset, tid_of};

/// So many requests alike, and the last of them is kept in any case.
const MANY: usize = 16;

/// A WRITE of 8 bytes in the ring; its block.
fn put(s: &mut Scene, at: u64) -> [u64; BLOCK_WORDS] {
    let sqe = Sqe { sge_num: 1, ..on_seg(Opcode::Write, s.tpn, &s.remote, at) };
    s.a.put(&mut s.jetty, sqe, &s.local.sge(at, 8).to_words())
}

#[test]
fn bad_memory_is_not_read_again() {
    let seen = both(|s, _| {
        s.a.dev.poison(s.a.now, s.local.mem.addr(), 64);
        for _ in 0..MANY {
            direct(s, Opcode::Write, 4096, |_| {});
            assert_eq!(s.a.poll(&mut s.jfc).map(|cqe| cqe.status), Some(GOOD));
        }
        direct(s, Opcode::Write, 0, |_| {});
    });
    ends(&seen, &[CqeStatus::LocDataPoison, CqeStatus::WrFlushErrDone]);
}

/// Requests to a segment of this node, which `change` changes before the last one, that ends so for each of
/// `opcodes`.
fn to_own(opcodes: &[Opcode], change: impl Fn(&Scene, u32, usize), last: &[CqeStatus]) {
    let seen = each(opcodes, |s, opcode| {
        let other = s.a.seg(8192);
        let tpn = s.a.connect(s.a.eid());
        let sge = s.local.sge(0, 8);
        for at in [4096; MANY] {
            send(s, on_seg(opcode, tpn, &other, at), sge);
            assert_eq!(s.a.poll(&mut s.jfc).map(|cqe| cqe.status), Some(GOOD));
        }
        change(s, other.token_id, other.mem.addr());
        for at in [4096; MANY] {
            send(s, on_seg(opcode, tpn, &other, at), sge);
            s.a.poll(&mut s.jfc);
        }
        send(s, on_seg(opcode, tpn, &other, 0), sge);
    });
    for (seen, last) in seen.chunks(1).zip(last.chunks(1)) {
        ends(seen, last);
    }
}

#[test]
fn bad_memory_of_this_node_is_written_to_and_not_read() {
    let poison = |s: &Scene, _, addr| s.a.dev.poison(s.a.now, addr, 64);
    to_own(&TRANSFERS, poison, &[GOOD, CqeStatus::RemDataPoison]);
    to_own(&ATOMICS, poison, &[CqeStatus::RemDataPoison; ATOMICS.len()]);
}

/// What a first block names in the place for a piece is no piece of an atomic.
#[test]
fn the_first_block_of_an_atomic_alone_is_malformed() {
    let seen = each(&ATOMICS, |s, opcode| {
        let mut segments = std::iter::repeat_with(|| s.a.seg(4096));
        // The number of the segment counts for the place where the request is kept.
        let local = segments.find(|seg| tid_of(seg.token_id).unwrap().is_multiple_of(8));
        let local = local.unwrap();
        let mut sqe = on_seg(opcode, s.tpn, &s.remote, 64);
        for _ in 0..MANY {
            send(s, sqe, local.sge(0, 8));
            assert_eq!(s.a.poll(&mut s.jfc).map(|cqe| cqe.status), Some(GOOD));
        }
        sqe.sge_num = 1;
        let piece = local.sge(0, 8).to_words();
        let mut block = s.a.put(&mut s.jetty, sqe, &piece);
        block[6..].copy_from_slice(&piece);
        s.jetty.pi -= 1;
        s.a.write_direct(&s.jetty, &block);
    });
    ends(&seen, &STOPPED);
}

#[test]
fn an_invalidated_segment_of_this_node_is_refused() {
    let seen = each(&TRANSFERS, |s, opcode| {
        let other = s.a.seg(8192);
        let sqe = on_seg(opcode, s.a.connect(s.a.eid()), &other, 0);
        let sge = s.local.sge(0, 8);
        for _ in 0..MANY {
            send(s, sqe, sge);
            assert_eq!(s.a.poll(&mut s.jfc).map(|cqe| cqe.status), Some(GOOD));
        }
        assert!(s.a.dev.base.tables.segments.invalidate(other.token_id, sqe.token_value));
        send(s, sqe, sge);
    });
    ends(&seen, &[REFUSED]);
}

/// What lies in an extent and not in the segment is refused.
#[test]
fn a_request_stays_inside_of_the_segment() {
    let bounds: [(usize, u64, u64); 2] = [(2, 4096, 4096), (1, 4096, 0)];
    for (word, by, at) in bounds {
        let seen = both(|s, opcode| {
            let node = s.b.dev.node_region().clone();
            let entry = entry_offset(tid_of(s.remote.token_id).unwrap());
            let [life, value] = [0, word].map(|word| node.load_u64(entry + 8 * word).unwrap());
            node.store_u64(entry, life + 2).unwrap();
            node.store_u64(entry + 8 * word, if word == 1 { value + by } else { by }).unwrap();
            for _ in 0..MANY {
                direct(s, opcode, 4096 - 128 + 128 * u64::from(word == 1), |_| {});
                assert_eq!(s.a.poll(&mut s.jfc).map(|cqe| cqe.status), Some(GOOD));
            }
            direct(s, opcode, at, |_| {});
        });
        ends(&seen, &[REFUSED]);
    }
}

#[test]
fn a_list_ends_where_what_was_posted_ends() {
    let mut s = scene();
    let found = s.a.dev.find_queue(s.jetty.id).unwrap();
    for _ in 0..MANY {
        put(&mut s, 0);
        s.a.ring(&s.jetty);
        assert_eq!(s.a.poll(&mut s.jfc).map(|cqe| cqe.status), Some(GOOD));
    }
    for at in [8, 16, 24] {
        put(&mut s, at);
    }
    s.a.dev.ring_queue(&found, || 0, s.jetty.pi - 1);
    let taken = std::iter::from_fn(|| s.a.poll(&mut s.jfc)).count();
    assert_eq!(taken, 2, "the third is not posted");
    s.a.ring(&s.jetty);
    assert_eq!(s.a.poll(&mut s.jfc).map(|cqe| cqe.status), Some(GOOD));
}

#[test]
fn without_the_lane_nothing_is_carried() {
    for (lane, carried) in [(ExpressLane::On, Some(false)), (ExpressLane::Off, None)] {
        let mut s = scene_of(pair_with(|cfg| cfg.lane = lane), 4, 4);
        let found = s.a.dev.find_queue(s.jetty.id).unwrap();
        put(&mut s, 0);
        s.a.ring(&s.jetty);
        let block = put(&mut s, 0);
        assert_eq!(s.a.dev.carry(&found, || 0, &block), carried);
        s.a.ring(&s.jetty);
        let atomic = on_seg(Opcode::FetchAdd, s.tpn, &s.remote, 0);
        s.a.post(&mut s.jetty, atomic, &[s.local.sge(0, 8)]);
        let sqe = Sqe { sge_num: 1, ..atomic };
        let front = s.a.put(&mut s.jetty, sqe, &s.local.sge(0, 8).to_words());
        let back = s.jetty.ring.load_block(((s.jetty.pi as usize - 1) & 15) * 64).unwrap();
        assert_eq!(s.a.dev.carry_atomic(&found, || 0, &[front, back]), carried);
    }
}
