//! Checks of the transaction layer: each has a test that fails without it.

use udma_abi::{
    CqeStatus, Opcode, Sqe,
    cmd::{Access, Mode, QueueState},
    counters::Counter,
    sqe::SqeTargetKind,
};
use urma_mem::spsc::{LINE_LEN, Producer};
use urma_mem::sync::Ordering;
use urma_packet::{
    HEADERS_MAX, InitiatorKind, JettyId, RequestFlags, RequestHeader, ResponseStatus,
    TransactionHeader,
};

use super::hostile::{header, piece};
use super::world::{self, Kind, SENDER, TOKEN, World, on_both};
use crate::carrier::piece::PIECE_MAX;
use crate::engine::names::NamedBytes;
use crate::exchange::{Connecting, SharedSide};
use crate::ports::HostRequest;
use crate::share::{HALF_HEAD, HALF_RING};

const RW: Access = Access::READ.union(Access::WRITE).union(Access::ATOMIC);

fn scene(w: &mut World) {
    let _here = w.segment(0, 1, 4096, RW);
    let _there = w.segment(1, 2, 4096, RW);
}

#[test]
fn a_connection_to_another_node_takes_no_message_of_the_same_jetty_number() {
    on_both(|w| {
        scene(w);
        w.receiver_of(1, 2000, Mode::Rc);
        w.sender_of(0, Mode::Rc);
        w.post(1, 2000, 2, 0, 64);
        let send = w.to_jetty(Opcode::Send, 2000, 0);
        let (this, other) = (w.eid(0), w.eid(1));
        for (node, wanted) in [(other, CqeStatus::RemOperation), (this, CqeStatus::Success)] {
            assert!(w.nodes[1].exchange.receives.bind(2000, Some((node, SENDER))));
            let seq = w.send(0, &send, &[(1, 0, 64)]);
            assert_eq!(w.end_of(0, seq).map(|end| end.0), Some(wanted), "{node:?}");
        }
    });
}

#[test]
fn a_message_whose_target_fails_in_between_is_answered() {
    let mut w = World::new(Kind::Ring);
    scene(&mut w);
    w.receiver(1, 2000);
    w.post(1, 2000, 2, 0, 64);
    let whole = header(&w, Opcode::Send, 64, 0);
    let mut first = whole;
    first.flags = RequestFlags::FIRST;
    assert_eq!(piece(&mut w, &first, &[1; 32]), []);
    w.fail_receiver(1, 2000);
    let answers = &w.nodes[1].exchange.peers.values().next().unwrap().responder.answers;
    let found: Vec<_> =
        answers.iter().map(|a| (a.tassn, a.initiator, a.target, a.status)).collect();
    assert_eq!(found, [(0, first.initiator, first.target, ResponseStatus::TargetReset)]);
    assert_eq!(w.received(1).unwrap().status, CqeStatus::WrFlushErr);
    assert!(w.received(1).is_none(), "once");
    // The rest of it has its answer, and a duplicate gets the same one.
    let rest = RequestHeader { flags: RequestFlags::LAST, ..first };
    assert_eq!(piece(&mut w, &rest, &[1; 32]), []);
    // Its number is used.
    let next = RequestHeader { tassn: 1, ..whole };
    assert_eq!(piece(&mut w, &next, &[1; 64]), [ResponseStatus::TargetReset]);
    assert_eq!(piece(&mut w, &whole, &[1; 64]), [ResponseStatus::TargetReset]);
}

/// Node 1 with a shared receive queue 2000 of two receives, and jetties 2001 and 2002 on it.
fn with_shared() -> World {
    let mut w = World::new(Kind::Ring);
    scene(&mut w);
    w.receiver(1, 2000);
    for id in [2001, 2002] {
        let port = Some(w.port(1));
        let side =
            SharedSide { id, mode: Mode::Rm, cookie: 0, jfr: 2000, port, token: Some(TOKEN) };
        w.nodes[1].exchange.receives.add_shared(side);
        w.post(1, 2000, 2, 0, 64);
    }
    w
}

fn send_to(w: &World, id: u32) -> RequestHeader {
    let mut send = header(w, Opcode::Send, 64, 0);
    send.target.as_mut().unwrap().id = JettyId::from_low_bits(id);
    send
}

#[test]
fn a_message_ends_with_its_jetty_or_with_the_receives_it_takes_from() {
    for (failing, ended) in [(2001, true), (2000, true), (2002, false)] {
        let mut w = with_shared();
        let first = RequestHeader { flags: RequestFlags::FIRST, ..send_to(&w, 2001) };
        assert_eq!(piece(&mut w, &first, &[1; 32]), []);
        w.fail_receiver(1, failing);
        let answers =
            w.nodes[1].exchange.peers.values().map(|p| p.responder.answers.len()).sum::<usize>();
        assert_eq!(answers, usize::from(ended), "{failing} failed");
    }
}

#[test]
fn a_jetty_takes_messages_only_while_it_and_its_receives_are_ready() {
    let cases = [
        (2001, QueueState::Error, ResponseStatus::TargetReset),
        (2001, QueueState::Reset, ResponseStatus::TargetReset),
        (2000, QueueState::Error, ResponseStatus::TargetReset),
        (2000, QueueState::Suspended, ResponseStatus::ReceiverNotReady { timer: 12 }),
        (2002, QueueState::Error, ResponseStatus::Ack),
    ];
    for (id, state, answer) in cases {
        let mut w = with_shared();
        let node = &mut w.nodes[1];
        node.exchange.set_recv_state(&node.core, id, state);
        let send = send_to(&w, 2001);
        assert_eq!(piece(&mut w, &send, &[1; 64]), [answer], "{id} {state:?}");
    }
}

#[test]
fn pieces_bring_as_many_bytes_as_their_message_said_at_first() {
    for opcode in [Opcode::Send, Opcode::Write] {
        // Bytes of the second piece, and the length that it claims for the message.
        for (len, length) in [(400, 600), (344, 9999), (100, 600)] {
            let mut w = World::new(Kind::Ring);
            scene(&mut w);
            w.receiver(1, 2000);
            w.post(1, 2000, 2, 0, 4096);
            let whole = header(&w, opcode, 600, 0);
            let first = RequestHeader { flags: RequestFlags::FIRST, ..whole };
            assert_eq!(piece(&mut w, &first, &[0; 256]), []);
            let mut second = RequestHeader { flags: RequestFlags::LAST, ..whole };
            second.access.address += 256;
            second.access.length = length;
            let answers = piece(&mut w, &second, &vec![7; len]);
            assert_eq!(answers, [ResponseStatus::Length], "{opcode:?} {len} of {length}");
            let there = w.nodes[1].core.tables.segments.find(2 << 8).unwrap().region.clone();
            assert_eq!(world::sum(&there), 0, "{opcode:?} {len} of {length}");
        }
    }
}

#[test]
fn a_piece_of_another_number_does_not_go_on_with_a_message() {
    let mut w = World::new(Kind::Ring);
    scene(&mut w);
    w.receiver(1, 2000);
    w.post(1, 2000, 2, 0, 64);
    let whole = header(&w, Opcode::Send, 64, 0);
    let first = RequestHeader { flags: RequestFlags::FIRST, ..whole };
    assert_eq!(piece(&mut w, &first, &[1; 32]), []);
    let mut last = RequestHeader { flags: RequestFlags::LAST, tassn: 5, ..whole };
    last.access.address += 32;
    assert_eq!(piece(&mut w, &last, &[2; 32]), [], "of nothing");
    assert!(w.received(1).is_none());
    assert_eq!(piece(&mut w, &RequestHeader { tassn: 0, ..last }, &[3; 32]), [ResponseStatus::Ack]);
    assert_eq!(w.received(1).unwrap().byte_cnt, 64);
}

#[test]
fn a_connection_takes_no_message_of_a_send_queue_with_its_number() {
    let mut w = World::new(Kind::Ring);
    scene(&mut w);
    w.receiver_of(1, 2000, Mode::Rc);
    w.post(1, 2000, 2, 0, 64);
    let from = w.eid(0);
    assert!(w.nodes[1].exchange.receives.bind(2000, Some((from, SENDER))));
    let jetty = header(&w, Opcode::Send, 64, 0);
    let mut jfs = jetty;
    jfs.initiator.kind = InitiatorKind::Jfs;
    assert_eq!(piece(&mut w, &jfs, &[1; 64]), [ResponseStatus::NoTarget]);
    assert_eq!(piece(&mut w, &jetty, &[1; 64]), [ResponseStatus::Ack]);
}

#[test]
fn a_datagram_is_one_whole_message() {
    let mut w = World::new(Kind::Ring);
    scene(&mut w);
    w.receiver_of(1, 2000, Mode::Um);
    w.post(1, 2000, 2, 0, 64);
    let mut send = header(&w, Opcode::Send, 64, 0);
    send.flags |= RequestFlags::DATAGRAM | RequestFlags::NO_TAACK;
    let part = |without| RequestHeader { flags: send.flags - without, ..send };
    let cases = [(part(RequestFlags::FIRST), 64), (part(RequestFlags::LAST), 64), (send, 63)];
    for (header, len) in cases {
        assert_eq!(piece(&mut w, &header, &vec![1; len]), []);
        assert!(w.received(1).is_none(), "{header:?} of {len}");
    }
    assert_eq!(w.counter(1, Counter::DropMalformed), 3);
    assert_eq!(piece(&mut w, &send, &[1; 64]), []);
    assert_eq!(w.received(1).unwrap().byte_cnt, 64);
}

#[test]
fn a_group_passes_over_members_without_receives() {
    on_both(|w| {
        scene(w);
        for (id, receives) in [(2000, 3), (2001, 0), (2002, 2)] {
            w.receiver(1, id);
            for _ in 0..receives {
                w.post(1, id, 2, 0, 64);
            }
        }
        w.nodes[1].exchange.receives.add_group(3000, false, Some(TOKEN));
        for id in [2000, 2001, 2002] {
            w.nodes[1].exchange.receives.join(3000, id);
        }
        let group = Sqe { target_kind: SqeTargetKind::Group, ..w.to_jetty(Opcode::Send, 3000, 0) };
        let mut picked = Vec::new();
        for _ in 0..5 {
            let seq = w.send(0, &group, &[(1, 0, 64)]);
            assert_eq!(w.end_now(0, seq), Some((CqeStatus::Success, 64)), "at once: {picked:?}");
            picked.push(w.received(1).unwrap().local_id);
        }
        assert_eq!(picked, [2000, 2002, 2000, 2002, 2000]);
    });
}

#[test]
fn a_request_goes_again_as_often_as_its_queue_asks_for() {
    for retries in [0, 1, 3, 6] {
        on_both(|w| {
            scene(w);
            w.receiver(1, 2000);
            w.retries(0, retries);
            let before = w.counter(0, Counter::RnrReceived);
            let seq = w.send(0, &w.to_jetty(Opcode::Send, 2000, 0), &[(1, 0, 64)]);
            assert_eq!(w.end_of(0, seq), Some((CqeStatus::RnrRetryExceeded, 0)));
            let refusals = w.counter(0, Counter::RnrReceived) - before;
            assert_eq!(refusals, u64::from(retries) + 1, "of {retries} retries and one try");
        });
    }
}

#[test]
fn an_import_seeks_a_peer_that_hung_up_anew() {
    let mut w = World::new(Kind::Ring);
    scene(&mut w);
    let peer = w.eid(1);
    let node = &mut w.nodes[0];
    while node.core.tables.requests.pop().is_some() {}
    assert!(matches!(
        node.exchange.connect(&node.core, w.now, peer, Mode::Rm),
        Connecting::Ready { .. }
    ));
    assert_eq!(node.core.tables.requests.pop(), None);
    w.line.0.store(true, Ordering::Release);
    assert_eq!(node.exchange.connect(&node.core, w.now, peer, Mode::Rm), Connecting::Pending);
    assert_eq!(node.core.tables.requests.pop(), Some(HostRequest::FindPeer { eid: peer }));
    // The host tells of the end later; the search goes on.
    node.exchange.on_peer_gone(&node.core, w.now, peer);
    assert_eq!(node.exchange.connect(&node.core, w.now, peer, Mode::Rm), Connecting::Pending);
    assert_eq!(w.counter(0, Counter::PeerDied), 1);
}

/// The producer's end of what node 1 reads, in place of node 0.
fn forger(w: &World) -> Producer {
    let from = w.eid(0);
    let exchange = &w.nodes[1].exchange;
    let theirs = exchange.peer_halves.get(&from).unwrap();
    let mine = &exchange.peers.get(&from).unwrap().direct.as_ref().unwrap().half;
    let entries = theirs.sub(HALF_RING, world::RING_LEN).unwrap();
    Producer::new(entries, mine.sub(HALF_HEAD, LINE_LEN).unwrap(), world::RING_LEN).unwrap()
}

#[test]
fn a_ring_entry_is_checked_before_it_is_used() {
    let w = World::new(Kind::Ring);
    let send = |opcode, len| {
        let mut bytes = vec![0; HEADERS_MAX];
        let header = TransactionHeader::Request(header(&w, opcode, len, 0));
        let at = header.emit(&mut bytes).unwrap();
        bytes.truncate(at);
        bytes
    };
    let with = |mut bytes: Vec<u8>, payload: usize| {
        bytes.resize(bytes.len() + payload, 7);
        bytes
    };
    let name_of =
        |len| NamedBytes { token_id: 1 << 8, len, va: 0, life: 1, epoch: 0 }.encode().to_vec();
    let (whole, placed, named) = (1, 2, 3);
    let cases = [
        ("longer than any piece", whole, vec![0; HEADERS_MAX + PIECE_MAX + 1]),
        ("no header", whole, vec![0xff; 40]),
        ("a header cut off", whole, send(Opcode::Send, 64)[..8].to_vec()),
        ("a message longer than it says", whole, with(send(Opcode::Send, 64), 72)),
        ("a message shorter than it says", whole, with(send(Opcode::Send, 64), 56)),
        ("a write longer than it says", whole, with(send(Opcode::Write, 64), 72)),
        ("a read with bytes", whole, with(send(Opcode::Read, 64), 64)),
        ("placed, with bytes", placed, with(send(Opcode::Write, 64), 64)),
        ("no name", named, with(send(Opcode::Send, 64), 31)),
        ("a name of other bytes", named, with(send(Opcode::Send, 64), 32)),
        ("a name of a read", named, [send(Opcode::Read, 64), name_of(64)].concat()),
        ("a name of no bytes of a read", named, [send(Opcode::Read, 64), name_of(0)].concat()),
        (
            "a name of other bytes of a write",
            named,
            [send(Opcode::Write, 64), name_of(72)].concat(),
        ),
        ("an unknown kind", 4, with(send(Opcode::Send, 64), 64)),
    ];
    for (name, kind, bytes) in cases {
        let mut w = World::new(Kind::Ring);
        scene(&mut w);
        w.receiver(1, 2000);
        w.post(1, 2000, 2, 0, 4096);
        w.stop(0);
        let mut forger = forger(&w);
        let mut slot = forger.reserve(bytes.len()).unwrap();
        slot.write(0, &bytes).unwrap();
        slot.publish(kind).unwrap();
        w.run_for(10_000);
        assert_eq!(w.counter(1, Counter::PeerLied), 1, "{name}");
        assert!(w.nodes[1].exchange.peers.is_empty(), "{name}: cut off");
        assert!(w.received(1).is_none(), "{name}");
    }
}

#[test]
fn every_bit_of_a_token_counts_at_the_target() {
    let mut w = World::new(Kind::Ring);
    let _here = w.segment(0, 1, 4096, RW);
    let there = w.segment(1, 2, 4096, RW);
    w.receiver(1, 2000);
    w.post(1, 2000, 2, 2048, 64);
    let memory = [Opcode::Write, Opcode::Read, Opcode::Cas, Opcode::Swap, Opcode::FetchAdd];
    for bit in 0..32 {
        let wrong = TOKEN ^ 1 << bit;
        let notify = Sqe {
            notify_va: world::va(2) + 64,
            notify_token_id: 2 << 8,
            seg_token_value: wrong,
            ..w.to_memory(Opcode::WriteNotify, 2, 0)
        };
        let with_imm = Sqe {
            remote_va: world::va(2),
            seg_token_id: 2 << 8,
            seg_token_value: TOKEN,
            ..w.to_jetty(Opcode::WriteImm, 2000, 9)
        };
        let mut requests: Vec<Sqe> =
            memory.iter().map(|op| Sqe { token_value: wrong, ..w.to_memory(*op, 2, 0) }).collect();
        requests.extend([
            notify,
            Sqe { opcode: Opcode::WriteAtomic, ..notify },
            Sqe { seg_token_value: wrong, ..with_imm },
            Sqe { token_value: wrong, ..with_imm },
            Sqe { token_value: wrong, ..w.to_jetty(Opcode::Send, 2000, 0) },
        ]);
        for sqe in requests {
            let seq = w.send(0, &Sqe { operand: 1, ..sqe }, &[(1, 0, 8)]);
            let end = w.end_of(0, seq);
            assert_eq!(end, Some((CqeStatus::RemAccessAbort, 0)), "{:?}, bit {bit}", sqe.opcode);
        }
    }
    assert_eq!(world::sum(&there), 0);
    assert!(w.received(1).is_none());
}

#[test]
fn a_read_does_not_go_on_in_another_registration() {
    on_both(|w| {
        let _here = w.segment(0, 1, 4 << 20, RW);
        let _old = w.segment(1, 2, 4 << 20, RW);
        let seq = w.hand(0, &w.to_memory(Opcode::Read, 2, 0), &[(1, 0, 4 << 20)]);
        let is_begun =
            |w: &World| w.nodes[1].exchange.peers.values().any(|p| !p.responder.reads.is_empty());
        for _ in 0..100 {
            if !is_begun(w) {
                w.run_for(500);
            }
        }
        assert!(is_begun(w));
        w.nodes[1].core.tables.segments.kill(2 << 8).unwrap();
        let _new = w.segment(1, 2, 4 << 20, RW);
        assert_eq!(w.end_of(0, seq), Some((CqeStatus::RemAccessAbort, 0)));
    });
}

/// A WRITE_IMM of three packets: what refuses its message keeps its payload away.
#[test]
fn a_write_with_immediate_that_is_refused_places_nothing() {
    type Change = fn(&mut World, &mut Sqe);
    let cases: [(&str, Change, CqeStatus); 5] = [
        ("failed", |w, _| w.fail_receiver(1, 2000), CqeStatus::RemOperation),
        ("no such jetty", |_, sqe| sqe.target_id = 2001, CqeStatus::RemOperation),
        ("token of the jetty", |_, sqe| sqe.token_value ^= 1, CqeStatus::RemAccessAbort),
        ("token of the segment", |_, sqe| sqe.seg_token_value ^= 1, CqeStatus::RemAccessAbort),
        ("no receive", |w, _| w.retries(0, 0), CqeStatus::RnrRetryExceeded),
    ];
    for (name, change, status) in cases {
        on_both(|w| {
            let here = w.segment(0, 1, 3 * 4096, RW);
            let there = w.segment(1, 2, 3 * 4096, RW);
            world::fill(&here);
            w.receiver(1, 2000);
            let sqe = Sqe {
                remote_va: world::va(2),
                seg_token_id: 2 << 8,
                seg_token_value: TOKEN,
                ..w.to_jetty(Opcode::WriteImm, 2000, 9)
            };
            w.post(1, 2000, 2, 0, 64);
            let seq = w.send(0, &sqe, &[(1, 0, 3 * 4096)]);
            assert_eq!(w.end_of(0, seq), Some((CqeStatus::Success, 3 * 4096)), "{name}");
            world::assert_filled(&there, 3 * 4096);
            assert_eq!(w.received(1).unwrap().status, CqeStatus::Success);
            there.zero(0, 3 * 4096).unwrap();
            let mut refused = sqe;
            change(w, &mut refused);
            for _ in 0..2 {
                let seq = w.send(0, &refused, &[(1, 0, 3 * 4096)]);
                assert_eq!(w.end_of(0, seq), Some((status, 0)), "{name}");
                assert_eq!(world::sum(&there), 0, "{name}");
            }
        });
    }
}
