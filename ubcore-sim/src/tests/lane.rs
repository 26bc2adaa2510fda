//! The express lane ends every request as the long path does.

mod again;
mod alone;
mod leases;
mod messages;
mod ping_pongs;
mod tails;
mod talk;
mod words;

use udma_abi::cmd::{Access, Command, Mode, QueueState};
use udma_abi::counters::Counter;
use udma_abi::sqe::{SqeFlags, SqeTargetKind};
use udma_abi::{Cqe, CqeStatus, Opcode, Sge, Sqe, rqe};

use super::scene::{Scene, scene_of};
use super::{on_seg, pair_with};
use crate::cfg::ExpressLane;
use crate::context::segment::{entry_offset, tid_of};
use crate::hooks::{self, Hook};

/// Everything that a driver and a peer can see of what a scene did.
#[derive(PartialEq, Eq, Debug)]
struct Seen {
    completions: Vec<Cqe>,
    remote: Vec<u8>,
    local: Vec<u8>,
    counts: [u64; 5],
    retired: u32,
}

/// Bytes of both segments that requests of these tests touch.
const AREA: usize = 8192;

const TRANSFERS: [Opcode; 2] = [Opcode::Write, Opcode::Read];
const ALL: [Opcode; 4] = [Opcode::Write, Opcode::Read, Opcode::FetchAdd, Opcode::Cas];
const ATOMICS: [Opcode; 3] = [Opcode::FetchAdd, Opcode::Cas, Opcode::Swap];

/// Runs [`each`] for WRITE and READ.
fn both(act: impl Fn(&mut Scene, Opcode)) -> Vec<Seen> {
    each(&TRANSFERS, act)
}

/// Runs `act` with the lane, by doorbells that were found and by registers, and without it: on a queue whose path
/// and segments were used before. Returns what was seen, which is the same.
fn each(opcodes: &[Opcode], act: impl Fn(&mut Scene, Opcode)) -> Vec<Seen> {
    let alike = |opcode: &Opcode| {
        let setups = [(ExpressLane::On, true), (ExpressLane::On, false), (ExpressLane::Off, true)];
        let [carried, on, off] = setups.map(|setup| seen_by(setup, *opcode, &act));
        assert_eq!(on, off, "{opcode:?}");
        assert_eq!(carried, on, "{opcode:?}");
        on
    };
    opcodes.iter().map(alike).collect()
}

fn seen_by(
    (lane, carries): (ExpressLane, bool),
    opcode: Opcode,
    act: &impl Fn(&mut Scene, Opcode),
) -> Seen {
    let change = |cfg: &mut crate::DeviceCfg| {
        (cfg.lane, cfg.direct_chunk, cfg.step_bytes) = (lane, 1024, 1024);
    };
    let mut s = scene_of(pair_with(change), 4, 4);
    s.a.carries = carries;
    s.fill();
    let shown: Vec<u8> = s.local.bytes(100, AREA);
    s.remote.mem.write(0, &shown).unwrap();
    for _ in 0..3 {
        direct(&mut s, opcode, 0, |_| {});
        assert_eq!(s.a.poll(&mut s.jfc).map(|cqe| cqe.status), Some(CqeStatus::Success));
    }
    act(&mut s, opcode);
    let mut completions = Vec::new();
    for _ in 0..20 {
        completions.extend(std::iter::from_fn(|| s.a.poll(&mut s.jfc)));
        s.a.now += 1000;
        s.a.dev.step(s.a.now);
        s.b.dev.step(s.a.now);
    }
    let counters = [
        Counter::DirectRequests,
        Counter::DirectBytes,
        Counter::Completions,
        Counter::RingRequests,
        Counter::AccessDenied,
    ];
    Seen {
        completions,
        remote: s.remote.bytes(0, AREA),
        local: s.local.bytes(0, AREA),
        counts: counters.map(|counter| s.a.dev.counter(counter)),
        retired: s.jetty.record.load_u32(rqe::record::SQ_CI).unwrap(),
    }
}

/// Posts 8 bytes between `at` here and `at + 64` there.
fn direct(s: &mut Scene, opcode: Opcode, at: u64, change: impl FnOnce(&mut Sqe)) {
    let mut sqe = on_seg(opcode, s.tpn, &s.remote, at + 64);
    change(&mut sqe);
    let sge = s.local.sge(at, 8);
    send(s, sqe, sge);
}

fn direct_from(s: &mut Scene, opcode: Opcode, sge: Sge) {
    let sqe = on_seg(opcode, s.tpn, &s.remote, 64);
    send(s, sqe, sge);
}

/// What atomics are sent with.
const OPERAND: u64 = 0x1234_5678_9abc;
const COMPARE: u64 = 77;

/// Posts a request: directly if it has one block.
fn send(s: &mut Scene, sqe: Sqe, sge: Sge) {
    if sqe.opcode.is_atomic() {
        let sqe = Sqe { operand: OPERAND, compare: COMPARE, ..sqe };
        s.a.post(&mut s.jetty, sqe, &[sge]);
    } else {
        s.a.post_direct(&mut s.jetty, sqe, &[sge]);
    }
}

/// What was done ended with these statuses, for WRITE and for READ.
fn ends(seen: &[Seen], statuses: &[CqeStatus]) {
    for seen in seen {
        let found: Vec<_> = seen.completions.iter().map(|cqe| cqe.status).collect();
        assert_eq!(found, statuses);
    }
}

const GOOD: CqeStatus = CqeStatus::Success;
const REFUSED: CqeStatus = CqeStatus::RemAccessAbort;
/// An entry that stops its queue.
const STOPPED: [CqeStatus; 2] = [CqeStatus::LocOperation, CqeStatus::WrFlushErrDone];

#[test]
fn a_short_request_is_done_and_counted_alike() {
    let seen = both(|s, opcode| {
        for at in [0, 8, 3000] {
            direct(s, opcode, at, |_| {});
        }
        direct(s, opcode, 16, |sqe| sqe.flags = SqeFlags::FENCE | SqeFlags::ORDER_STRONG);
        direct_from(s, opcode, s.local.sge(200, 1));
        direct_from(s, opcode, s.local.sge(201, 1024));
        direct_from(s, opcode, s.local.sge(202, 1025));
        direct_from(s, opcode, s.local.sge(203, 0));
    });
    ends(&seen, &[GOOD; 7]);
    assert_eq!(seen[0].counts[0], 11);
}

#[test]
fn a_list_is_done_in_order_and_one_that_fails_stops_no_other() {
    let seen = both(|s, opcode| {
        for (at, token) in [(0, 0), (8, 1), (16, 0), (24, 0)] {
            let mut sqe = on_seg(opcode, s.tpn, &s.remote, at + 64);
            sqe.token_value ^= token;
            sqe.sge_num = 1;
            s.a.put(&mut s.jetty, sqe, &s.local.sge(at, 8).to_words());
        }
        s.a.ring(&s.jetty);
    });
    ends(&seen, &[GOOD, REFUSED, GOOD, GOOD]);
}

#[test]
fn what_the_target_does_not_allow_is_refused() {
    let cases: [fn(&mut Sqe); 5] = [
        |sqe| sqe.token_value ^= 1,
        |sqe| sqe.token_en = false,
        |sqe| sqe.remote_va += (1 << 20) - 64 - 7,
        |sqe| sqe.remote_va -= 65,
        |sqe| sqe.seg_token_id += 1 << 8,
    ];
    for change in cases {
        let seen = each(&ALL, |s, opcode| direct(s, opcode, 0, change));
        ends(&seen, &[REFUSED]);
    }
    let seen = each(&ALL, |s, opcode| {
        let (mem, other) = match opcode {
            Opcode::Write => (s.b.alloc(AREA), Access::READ),
            Opcode::Read => (s.b.alloc(AREA), Access::LOCAL_ONLY),
            _ => (s.b.alloc(AREA), Access::READ | Access::WRITE),
        };
        s.remote = s.b.seg_of(mem, other);
        direct(s, opcode, 0, |_| {});
        direct(s, opcode, 0, |_| {});
    });
    ends(&seen, &[REFUSED; 2]);
}

#[test]
fn a_segment_that_was_withdrawn_is_refused() {
    let seen = each(&ALL, |s, opcode| {
        s.b.ok(Command::UnregisterSeg { token_id: s.remote.token_id });
        direct(s, opcode, 0, |_| {});
    });
    ends(&seen, &[REFUSED]);
}

/// The generation is looked at after the announcement, and once more after the bytes.
#[test]
fn a_segment_that_is_withdrawn_meanwhile_ends_the_request_with_an_error() {
    for hook in [Hook::SlotAnnounced, Hook::CopyUnchecked] {
        let seen = each(&ALL, |s, opcode| {
            let node = s.b.dev.node_region().clone();
            let entry = entry_offset(tid_of(s.remote.token_id).unwrap());
            hooks::at(hook, move || {
                let life = node.load_u64(entry).unwrap();
                node.store_u64(entry, life + 1).unwrap();
            });
            direct(s, opcode, 0, |_| {});
        });
        ends(&seen, &[REFUSED]);
    }
}

#[test]
fn segments_of_this_node_are_checked_each_time() {
    let seen = each(&ALL, |s, opcode| {
        let other = s.a.seg(4096);
        let mut sqe = on_seg(opcode, s.a.connect(s.a.eid()), &other, 0);
        let sge = s.local.sge(0, 8);
        for token in [0, 0, 1] {
            sqe.token_value ^= token;
            send(s, sqe, sge);
        }
        sqe.token_value ^= 1;
        s.a.ok(Command::UnregisterSeg { token_id: other.token_id });
        send(s, sqe, sge);
    });
    ends(&seen, &[GOOD, GOOD, REFUSED, REFUSED]);
}

#[test]
fn local_pieces_are_checked_each_time() {
    let denied = CqeStatus::LocAccess;
    let cases: [fn(&Scene) -> Sge; 3] = [
        |s| s.local.sge((1 << 20) - 7, 8),
        |s| Sge { va: s.local.va - 1, ..s.local.sge(0, 8) },
        |s| Sge { token_id: s.local.token_id + (8 << 8), ..s.local.sge(0, 8) },
    ];
    for piece in cases {
        ends(
            &each(&ALL, |s, opcode| direct_from(s, opcode, piece(s))),
            &[denied, CqeStatus::WrFlushErrDone],
        );
    }
    let seen = each(&ALL, |s, opcode| {
        s.a.ok(Command::UnregisterSeg { token_id: s.local.token_id });
        direct(s, opcode, 0, |_| {});
    });
    ends(&seen, &[denied, CqeStatus::WrFlushErrDone]);
}

#[test]
fn bad_memory_is_not_read() {
    let seen = both(|s, _| {
        s.a.dev.poison(s.a.now, s.local.mem.addr(), 64);
        // The segment has a new life: the first request finds it, the second one knows it.
        direct(s, Opcode::Write, 4096, |_| {});
        direct(s, Opcode::Write, 0, |_| {});
    });
    ends(&seen, &[GOOD, CqeStatus::LocDataPoison, CqeStatus::WrFlushErrDone]);
}

#[test]
fn nothing_is_read_into_memory_that_is_not_writable() {
    let seen = both(|s, _| {
        let mem = s.a.alloc(4096).read_only();
        let pinned = s.a.seg_of(mem, Access::READ);
        let sge = pinned.sge(0, 8);
        direct_from(s, Opcode::Write, sge);
        direct_from(s, Opcode::Read, sge);
    });
    ends(&seen, &[GOOD, CqeStatus::LocAccess, CqeStatus::WrFlushErrDone]);
    let seen = each(&ATOMICS, |s, opcode| {
        let mem = s.a.alloc(4096).read_only();
        let pinned = s.a.seg_of(mem, Access::READ);
        let before = s.remote.bytes(0, AREA);
        direct_from(s, Opcode::Write, pinned.sge(0, 8));
        direct_from(s, opcode, pinned.sge(0, 8));
        assert_eq!(s.remote.bytes(72, AREA - 72), &before[72..]);
    });
    ends(&seen, &[GOOD, CqeStatus::LocAccess, CqeStatus::WrFlushErrDone]);
}

#[test]
fn a_queue_that_is_not_ready_starts_nothing() {
    for (state, ends_with) in [
        (QueueState::Suspended, vec![CqeStatus::WrSuspendDone]),
        (QueueState::Error, vec![CqeStatus::WrFlushErrDone, CqeStatus::WrFlushErr]),
        (QueueState::Reset, vec![CqeStatus::WrUnhandled]),
    ] {
        let seen = each(&ALL, |s, opcode| {
            s.a.ok(Command::ModifyState { id: s.jetty.id, state });
            direct(s, opcode, 0, |_| {});
        });
        ends(&seen, &ends_with);
    }
}

#[test]
fn a_request_behind_a_message_waits_for_it() {
    let seen = each(&ALL, |s, opcode| {
        let jfc = s.b.jfc(4);
        let target = s.b.jetty(4, &jfc, |_| {});
        let to = |sqe: &mut Sqe| {
            (sqe.target_kind, sqe.target_id) = (SqeTargetKind::Jetty, target.id);
        };
        direct(s, Opcode::Send, 0, |sqe| {
            to(sqe);
            sqe.token_value = 0x77;
        });
        let bytes = |s: &Scene| (s.remote.bytes(0, AREA), s.local.bytes(0, AREA));
        let before = bytes(s);
        direct(s, opcode, 512, to);
        assert_eq!(bytes(s), before);
    });
    for seen in seen {
        assert!(seen.completions.is_empty(), "the message has no receive");
    }
}

/// The first bytes of the long request are moved, and the next step goes on with it.
#[test]
fn a_request_behind_one_in_the_middle_waits_for_it() {
    let seen = each(&ALL, |s, opcode| {
        let long = if opcode.is_atomic() { Opcode::Write } else { opcode };
        direct_from(s, long, s.local.sge(0, 5000));
        let bytes = |s: &Scene| (s.remote.bytes(6000, 100), s.local.bytes(6000, 100));
        let before = bytes(s);
        direct(s, opcode, 6000, |_| {});
        assert_eq!(bytes(s), before);
    });
    ends(&seen, &[GOOD; 2]);
}

#[test]
fn a_long_request_is_stepped_in_chunks() {
    let seen = both(|s, opcode| {
        let bytes = |s: &Scene| (s.remote.bytes(64, 5000), s.local.bytes(0, 5000));
        let before = bytes(s);
        direct_from(s, opcode, s.local.sge(0, 5000));
        let after = bytes(s);
        assert_eq!((&before.0[1024..], &before.1[1024..]), (&after.0[1024..], &after.1[1024..]));
        assert_ne!(before, after);
    });
    ends(&seen, &[GOOD]);
}

#[test]
fn a_path_that_ended_carries_nothing() {
    let seen = each(&ALL, |s, opcode| {
        s.a.dev.on_peer_gone(s.a.now, s.b.eid());
        direct(s, opcode, 0, |_| {});
    });
    ends(&seen, &[CqeStatus::AckTimeout]);
}

/// Both directions of the mistake: a reliable queue over the path for datagrams, and the other way round.
#[test]
fn mode_and_path_fit_together() {
    let twice = |s: &mut Scene, sqe: Sqe| {
        for _ in 0..2 {
            let sge = s.local.sge(0, 8);
            s.a.post_direct(&mut s.jetty, sqe, &[sge]);
            s.a.ok(Command::ModifyState { id: s.jetty.id, state: QueueState::Reset });
            s.a.ok(Command::ModifyState { id: s.jetty.id, state: QueueState::Ready });
        }
    };
    let seen = both(|s, opcode| {
        let tpn = s.a.ok32(Command::Connect { eid: s.b.eid(), mode: Mode::Um });
        twice(s, on_seg(opcode, tpn, &s.remote, 64));
    });
    ends(&seen, &[STOPPED, STOPPED].concat());
    let seen = both(|s, opcode| {
        s.jetty = s.a.jetty(4, &s.jfc, |args| args.mode = Mode::Um);
        // A datagram, so that the queue has used the segment.
        let tpn = s.a.ok32(Command::Connect { eid: s.b.eid(), mode: Mode::Um });
        direct(s, Opcode::Send, 0, |sqe| sqe.tpn = tpn);
        s.a.dev.step(s.a.now);
        twice(s, on_seg(opcode, s.tpn, &s.remote, 64));
    });
    ends(&seen, &[&[GOOD], &STOPPED[..], &STOPPED].concat());
}

#[test]
fn a_connection_reaches_the_node_that_it_is_bound_to() {
    let seen = each(&ALL, |s, opcode| {
        s.jetty = s.a.jetty(4, &s.jfc, |args| args.mode = Mode::Rc);
        let id = s.jetty.id;
        s.a.ok(Command::Bind { id, tpn: s.tpn, remote_id: 5, psns: None });
        direct(s, opcode, 0, |_| {});
        direct(s, opcode, 8, |_| {});
        s.a.ok(Command::Unbind { id });
        direct(s, opcode, 16, |_| {});
    });
    ends(&seen, &[GOOD, GOOD, CqeStatus::LocOperation, CqeStatus::WrFlushErrDone]);
}

#[test]
fn an_entry_of_another_pass_is_malformed() {
    let seen = both(|s, opcode| {
        let mut sqe = on_seg(opcode, s.tpn, &s.remote, 64);
        sqe.sge_num = 1;
        let mut block = s.a.put(&mut s.jetty, sqe, &s.local.sge(0, 8).to_words());
        block[0] ^= 1 << 31;
        s.a.write_direct(&s.jetty, &block);
    });
    ends(&seen, &STOPPED);
}

#[test]
fn a_full_completion_queue_stops_the_queue() {
    let seen = both(|s, opcode| {
        s.jetty = s.a.jetty(5, &s.jfc, |_| {});
        for n in 0..20 {
            direct(s, opcode, n * 8, |_| {});
        }
        assert_eq!(s.a.dev.counter(Counter::DirectRequests), 19);
    });
    ends(&seen, &[GOOD; 20]);
}

#[test]
fn atomics_of_both_sizes_are_done_and_refused_alike() {
    let seen = each(&ATOMICS, |s, opcode| {
        s.remote.mem.store_u64(64, 77).unwrap();
        for (at, len) in [(0, 8), (8, 8), (16, 4), (20, 4), (4, 8), (2, 4)] {
            let sqe = on_seg(opcode, s.tpn, &s.remote, 64 + at);
            let sge = s.local.sge(at, len);
            send(s, sqe, sge);
        }
    });
    let unsupported = CqeStatus::RemUnsupportedReq;
    ends(&seen, &[GOOD, GOOD, GOOD, GOOD, unsupported, unsupported]);
    assert_eq!(seen[0].counts[0], 7);
    for len in [0, 2, 16] {
        let seen = each(&ATOMICS, |s, opcode| direct_from(s, opcode, s.local.sge(0, len)));
        ends(&seen, &[CqeStatus::LocLen, CqeStatus::WrFlushErrDone]);
    }
}

/// The second block is taken only when it was posted.
#[test]
fn half_an_atomic_is_malformed() {
    let seen = each(&ATOMICS, |s, opcode| {
        let mut sqe = on_seg(opcode, s.tpn, &s.remote, 64);
        sqe.sge_num = 1;
        let piece = s.local.sge(0, 8).to_words();
        let block = s.a.put(&mut s.jetty, sqe, &piece);
        s.jetty.pi -= 1;
        s.a.ring(&s.jetty);
        // A direct entry is one block.
        s.a.write_direct(&s.jetty, &block);
    });
    ends(&seen, &STOPPED);
    for (change, named) in [(1 << 31, "pass"), (1, "index")] {
        let seen = each(&ATOMICS, |s, opcode| {
            let mut sqe = on_seg(opcode, s.tpn, &s.remote, 64);
            sqe.sge_num = 1;
            let at = s.jetty.pi as usize & 15;
            let piece = s.local.sge(0, 8).to_words();
            let block = s.a.put(&mut s.jetty, sqe, &piece);
            s.jetty.ring.store_u64(at * 64, block[0] ^ change).unwrap();
            s.a.ring(&s.jetty);
        });
        assert_eq!(seen[0].counts[0], 3, "{named}");
    }
}

#[test]
fn a_full_completion_queue_stops_atomics() {
    let seen = each(&ATOMICS, |s, opcode| {
        s.jetty = s.a.jetty(6, &s.jfc, |_| {});
        for n in 0..20 {
            direct(s, opcode, n * 8, |_| {});
        }
        assert_eq!(s.a.dev.counter(Counter::DirectRequests), 19);
    });
    ends(&seen, &[GOOD; 20]);
}

#[test]
fn atomics_and_transfers_of_a_list_are_done_in_order() {
    let seen = each(&ATOMICS, |s, opcode| {
        for (n, opcode) in [Opcode::Write, opcode, Opcode::Read, opcode].into_iter().enumerate() {
            let mut sqe = on_seg(opcode, s.tpn, &s.remote, 64);
            (sqe.sge_num, sqe.operand) = (1, n as u64);
            s.a.put(&mut s.jetty, sqe, &s.local.sge(n as u64 * 8, 8).to_words());
        }
        s.a.ring(&s.jetty);
    });
    ends(&seen, &[GOOD; 4]);
    assert_eq!(seen[0].counts[0], 7);
}
