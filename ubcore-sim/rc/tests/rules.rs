//! One rule of the transport per test, packet by packet.
#![forbid(unsafe_code)]

mod support;

use support::{BASE, Pair, READ_ONLY, RKEY, flow, header, receive, remote, request};
use urma_packet::roce::rc;
use urma_packet::{Bth, Psn};
use urma_rc::{RcAtomic, RcOperation, RcPostError, RcRemote, RcRequest, RcSource, RcStatus};

const SEND: RcOperation = RcOperation::Send;

fn write(offset: u64) -> RcOperation {
    RcOperation::Write(remote(offset))
}

fn add(offset: u64, add: u64) -> RcOperation {
    RcOperation::Atomic(remote(offset), RcAtomic::FetchAdd { add })
}

/// Acknowledgements among packets: PSN and syndrome.
fn answers(packets: &[Vec<u8>]) -> Vec<(u32, u8)> {
    let headers = packets.iter().map(|packet| header(packet));
    headers.filter_map(|h| Some((h.bth.psn.value(), h.ext.aeth?.syndrome.code()))).collect()
}

fn psns(packets: &[Vec<u8>]) -> Vec<u32> {
    packets.iter().map(|packet| header(packet).bth.psn.value()).collect()
}

fn statuses(side: &mut support::Side) -> Vec<(u64, RcStatus)> {
    side.completions().into_iter().map(|done| (done.id, done.status)).collect()
}

/// The packet with another header.
fn changed(packet: &[u8], change: impl Fn(&mut Bth)) -> Vec<u8> {
    let parsed = urma_packet::roce::RocePacket::parse(packet).expect("well-formed");
    let mut header = parsed.header;
    change(&mut header.bth);
    let mut buf = vec![0; packet.len() + 64];
    let len = header.emit(parsed.payload, &flow(1, 2), &mut buf).expect("emits");
    buf.truncate(len);
    buf
}

#[test]
fn a_duplicate_is_acknowledged_again_and_placed_once() {
    let mut pair = Pair::new(5, |_| ());
    pair.b.rc.post_receive(receive(1, 0, 64)).expect("room");
    pair.b.rc.post_receive(receive(2, 64, 64)).expect("room");
    pair.a.rc.post(request(9, SEND, 128, 8)).expect("room");
    let sent = pair.a.transmit(0);
    for _ in 0..2 {
        pair.deliver_b(0, &sent);
        assert_eq!(answers(&pair.b.transmit(0)), [(5, 0x1f)]);
    }
    assert_eq!(statuses(&mut pair.b), [(1, RcStatus::Success)]);
    assert_eq!((pair.b.ram.stored, pair.b.rc.counts().duplicates), (8, 1));
}

#[test]
fn a_gap_gets_one_nak_with_the_expected_psn() {
    let mut pair = Pair::new(0x00ff_ffff, |_| ());
    (0..4).for_each(|id| pair.a.rc.post(request(id, write(id * 8), 0, 8)).expect("room"));
    let sent = pair.a.transmit(0);
    assert_eq!(psns(&sent), [0x00ff_ffff, 0, 1, 2]);
    pair.deliver_b(0, &sent[1..]);
    let naks = pair.b.transmit(0);
    assert_eq!(answers(&naks), [(0x00ff_ffff, 0x60)]);
    pair.deliver_a(0, &naks);
    let again = pair.a.transmit(0);
    assert_eq!(psns(&again), psns(&sent));
    // The expected one allows the next NAK.
    pair.deliver_b(0, &again[..1]);
    pair.deliver_b(0, &again[2..3]);
    assert_eq!(answers(&pair.b.transmit(0)), [(0x00ff_ffff, 0x1f), (0, 0x60)]);
}

#[test]
fn a_nak_that_comes_twice_repeats_nothing_more() {
    let mut pair = Pair::new(5, |cfg| cfg.retry_count = 1);
    (0..3).for_each(|id| pair.a.rc.post(request(id, write(id * 8), 0, 8)).expect("room"));
    let sent = pair.a.transmit(0);
    pair.deliver_b(0, &sent[1..]);
    let naks = pair.b.transmit(0);
    pair.deliver_a(0, &naks);
    assert_eq!(pair.a.transmit(0).len(), 3);
    pair.deliver_a(0, &naks);
    pair.deliver_a(0, &naks);
    assert_eq!(pair.a.transmit(0).len(), 0);
    assert_eq!(pair.a.rc.counts().repeated, 3);
    assert_eq!(pair.a.rc.failed(), None);
}

#[test]
fn after_a_timeout_a_nak_counts_again() {
    let mut pair = Pair::new(5, |_| ());
    (0..2).for_each(|id| pair.a.rc.post(request(id, write(id * 8), 0, 8)).expect("room"));
    pair.a.transmit(0);
    let again = pair.a.transmit(1_000_000);
    pair.deliver_b(1_000_000, &again[1..]);
    let naks = pair.b.transmit(1_000_000);
    pair.deliver_a(1_000_000, &naks);
    assert_eq!(pair.a.transmit(1_000_000).len(), 2);
}

/// A request that is refused: the NAK's syndrome, the status at `a`; nothing was stored.
fn refused(requests: &[RcRequest]) -> (u8, RcStatus) {
    let mut pair = Pair::new(5, |_| ());
    pair.b.rc.post_receive(receive(1, 0, 64)).expect("room");
    requests.iter().for_each(|request| pair.a.rc.post(*request).expect("room"));
    let sent = pair.a.transmit(0);
    pair.deliver_b(0, &sent);
    let naks = pair.b.transmit(0);
    pair.deliver_a(0, &naks);
    assert_eq!((pair.b.ram.stored, pair.b.ram.updates), (0, 0), "{requests:?}");
    assert!(pair.b.rc.failed().is_some() && pair.b.transmit(0).is_empty());
    let statuses = statuses(&mut pair.a);
    assert!(statuses[1..].iter().all(|(_, status)| *status == RcStatus::Flushed));
    assert_eq!((statuses.len(), naks.len()), (requests.len(), 1));
    (answers(&naks)[0].1, statuses[0].1)
}

#[test]
fn key_bounds_and_rights_are_checked_before_a_byte_moves() {
    let at = |va, rkey| RcRemote { va, rkey };
    let end = BASE + (1 << 16);
    let wrong = [
        RcOperation::Write(at(BASE, 99)),
        RcOperation::Write(at(end - 4095, RKEY)),
        RcOperation::Write(at(BASE - 1, RKEY)),
        RcOperation::Write(at(u64::MAX - 7, RKEY)),
        RcOperation::Write(at(BASE, READ_ONLY)),
        RcOperation::WriteImm(at(BASE, READ_ONLY), 1),
        RcOperation::Read(at(BASE, 99)),
        RcOperation::Read(at(end - 4095, RKEY)),
        RcOperation::Atomic(at(BASE, READ_ONLY), RcAtomic::FetchAdd { add: 1 }),
        RcOperation::Atomic(at(end, RKEY), RcAtomic::CompareSwap { compare: 0, swap: 1 }),
    ];
    for operation in wrong {
        let requests = [request(1, operation, 0, 4096), request(2, write(0), 0, 8)];
        assert_eq!(refused(&requests), (0x62, RcStatus::RemoteAccess), "{operation:?}");
    }
}

#[test]
fn invalid_requests_are_named_so() {
    assert_eq!(refused(&[request(1, add(4, 1), 0, 8)]), (0x61, RcStatus::RemoteInvalidRequest));
    // Longer than the receive.
    assert_eq!(refused(&[request(1, SEND, 0, 65)]), (0x61, RcStatus::RemoteInvalidRequest));
}

#[test]
fn a_message_that_does_not_fit_completes_its_receive() {
    let mut pair = Pair::new(5, |_| ());
    (0..2).for_each(|id| pair.b.rc.post_receive(receive(id, 0, 10)).expect("room"));
    pair.a.rc.post(request(1, SEND, 0, 11)).expect("room");
    pair.drive(0);
    let expected = [(0, RcStatus::LocalLength), (1, RcStatus::Flushed)];
    assert_eq!(statuses(&mut pair.b), expected);
    assert_eq!(pair.b.rc.post_receive(receive(3, 0, 1)), Err(RcPostError::Failed));
    assert_eq!(pair.a.rc.post(request(3, SEND, 0, 1)), Err(RcPostError::Failed));
}

#[test]
fn opcodes_and_lengths_out_of_order_are_invalid() {
    let mut sent = Pair::new(5, |_| ());
    sent.a.rc.post(request(1, write(0), 0, 2500)).expect("room");
    let [first, middle, last] = &sent.a.transmit(0)[..] else { panic!("three packets") };
    let psn = |packet: &[u8], psn| changed(packet, |bth| bth.psn = Psn::new(psn));
    let op = |packet: &[u8], opcode| changed(packet, |bth| bth.opcode = opcode);
    let cases = [
        vec![psn(middle, 5)],
        vec![psn(last, 5)],
        vec![first.clone(), psn(first, 6)],
        // A SEND in a WRITE.
        vec![first.clone(), op(middle, rc::SEND_MIDDLE)],
        // Ends early, and not at all.
        vec![first.clone(), psn(last, 6)],
        vec![first.clone(), middle.clone(), psn(middle, 7)],
        vec![changed(first, |bth| bth.opcode = rc::WRITE_ONLY)],
    ];
    for packets in cases {
        let mut pair = Pair::new(5, |_| ());
        pair.deliver_b(0, &packets);
        let answers = answers(&pair.b.transmit(0));
        assert_eq!(answers.last().map(|(_, code)| *code), Some(0x61), "{:?}", psns(&packets));
        assert_eq!(pair.b.rc.failed(), Some(RcStatus::RemoteInvalidRequest));
    }
    // Packets of another path MTU.
    let mut pair = Pair::new(5, |cfg| cfg.path_mtu = 512);
    pair.deliver_b(0, std::slice::from_ref(first));
    assert_eq!(answers(&pair.b.transmit(0)), [(5, 0x61)]);
}

#[test]
fn without_receive_the_sender_waits_and_tries_again() {
    let mut pair = Pair::new(5, |cfg| cfg.min_rnr_timer = 12);
    pair.a.rc.post(request(1, SEND, 0, 8)).expect("room");
    pair.a.rc.post(request(2, SEND, 0, 8)).expect("room");
    let sent = pair.a.transmit(0);
    pair.deliver_b(0, &sent);
    // One answer: the second message came too early.
    let naks = pair.b.transmit(0);
    assert_eq!(answers(&naks), [(5, 0x2c)]);
    pair.deliver_a(0, &naks);
    assert_eq!(pair.a.rc.deadline(), Some(640_000));
    assert!(pair.a.transmit(639_999).is_empty());
    (0..2).for_each(|id| pair.b.rc.post_receive(receive(id, 0, 8)).expect("room"));
    pair.drive(640_000);
    assert_eq!(statuses(&mut pair.a), [(1, RcStatus::Success), (2, RcStatus::Success)]);
}

#[test]
fn tries_without_receive_are_limited() {
    let mut pair = Pair::new(5, |cfg| (cfg.rnr_retry, cfg.min_rnr_timer) = (2, 1));
    pair.a.rc.post(request(1, SEND, 0, 8)).expect("room");
    for round in 0..4 {
        pair.drive(round * 10_000);
    }
    assert_eq!(statuses(&mut pair.a), [(1, RcStatus::RnrRetryExceeded)]);
    assert_eq!(pair.a.rc.counts().requests_sent, 3);
}

#[test]
fn a_write_with_immediate_waits_for_its_receive_before_it_ends() {
    let mut pair = Pair::new(5, |cfg| cfg.min_rnr_timer = 1);
    pair.a.ram.bytes.fill(7);
    pair.a.rc.post(request(1, RcOperation::WriteImm(remote(0), 77), 0, 1030)).expect("room");
    pair.drive(0);
    assert_eq!(pair.b.ram.stored, 1024);
    pair.b.rc.post_receive(receive(4, 0, 0)).expect("room");
    pair.drive(10_000);
    let done = pair.b.completions();
    assert_eq!(done.len(), 1);
    assert_eq!((done[0].source, done[0].imm), (RcSource::ReceiveWrite, Some(77)));
    assert_eq!((done[0].id, done[0].len, pair.b.ram.stored), (4, 1030, 1030));
}

#[test]
fn silence_ends_after_the_retries() {
    let mut pair = Pair::new(5, |cfg| cfg.retry_count = 3);
    pair.a.rc.post(request(1, write(0), 0, 8)).expect("room");
    pair.a.rc.post(request(2, write(0), 0, 8)).expect("room");
    let mut sent = 0;
    let mut now = 0;
    for _ in 0..10 {
        sent += pair.a.transmit(now).len();
        now = pair.a.rc.deadline().unwrap_or(now);
    }
    assert_eq!((sent, now), (2 * 4, 4 * 1_000_000));
    let expected = [(1, RcStatus::RetryExceeded), (2, RcStatus::Flushed)];
    assert_eq!(statuses(&mut pair.a), expected);
}

#[test]
fn an_atomic_is_executed_once_and_answered_from_its_result() {
    let mut pair = Pair::new(5, |cfg| (cfg.max_rd_atomic, cfg.max_dest_rd_atomic) = (2, 2));
    (0..3).for_each(|id| pair.a.rc.post(request(id, add(8, 10), 0, 8)).expect("room"));
    let sent = pair.a.transmit(0);
    assert_eq!(sent.len(), 2, "max_rd_atomic");
    pair.deliver_b(0, &sent);
    let first = pair.b.transmit(0);
    pair.deliver_b(0, &sent);
    let second = pair.b.transmit(0);
    let originals = |packets: &[Vec<u8>]| -> Vec<u64> {
        packets.iter().map(|p| header(p).ext.atomic_ack.expect("has it").original).collect()
    };
    assert_eq!((originals(&first), originals(&second)), (vec![0, 10], vec![0, 10]));
    assert_eq!((pair.b.ram.word(8), pair.b.ram.updates), (20, 2));
    pair.deliver_a(0, &first);
    pair.drive(0);
    let done = pair.a.completions();
    assert_eq!(done.iter().map(|done| done.original).collect::<Vec<_>>(), [0, 10, 20].map(Some));
    // The first one's result gave way to the third one's: no answer, and no second execution.
    pair.deliver_b(0, &sent[..1]);
    assert!(pair.b.transmit(0).is_empty());
    assert_eq!((pair.b.rc.counts().forgotten, pair.b.ram.word(8)), (1, 30));
}

#[test]
fn a_read_goes_on_where_its_response_ended() {
    let mut pair = Pair::new(5, |_| ());
    pair.b.ram.bytes.iter_mut().zip(0_u8..=250).for_each(|(byte, value)| *byte = value);
    pair.a.rc.post(request(1, RcOperation::Read(remote(0)), 4096, 3000)).expect("room");
    let sent = pair.a.transmit(0);
    pair.deliver_b(0, &sent);
    let responses = pair.b.transmit(0);
    let opcodes = |packets: &[Vec<u8>]| -> Vec<u8> {
        packets.iter().map(|packet| header(packet).bth.opcode).collect()
    };
    assert_eq!(opcodes(&responses), [0x0d, 0x0e, 0x0f]);
    pair.deliver_a(0, &[responses[0].clone(), responses[2].clone()]);
    let again = pair.a.transmit(0);
    let reth = header(&again[0]).ext.reth.expect("has it");
    assert_eq!((psns(&again), reth.va, reth.dma_len), (vec![6], BASE + 1024, 3000 - 1024));
    pair.deliver_b(0, &again);
    let rest = pair.b.transmit(0);
    assert_eq!((opcodes(&rest), psns(&rest)), (vec![0x0d, 0x0f], vec![6, 7]));
    pair.deliver_a(0, &rest);
    assert_eq!(statuses(&mut pair.a), [(1, RcStatus::Success)]);
    assert_eq!(pair.a.ram.bytes[4096..7096], pair.b.ram.bytes[..3000]);
}

#[test]
fn a_repeated_read_of_another_range_is_not_answered() {
    let mut pair = Pair::new(5, |_| ());
    pair.a.rc.post(request(1, RcOperation::Read(remote(0)), 0, 2000)).expect("room");
    let sent = pair.a.transmit(0);
    pair.deliver_b(0, &sent);
    assert_eq!(pair.b.transmit(0).len(), 2);
    let mut other = Pair::new(5, |_| ());
    other.a.rc.post(request(1, RcOperation::Read(remote(64)), 0, 2000)).expect("room");
    pair.deliver_b(0, &other.a.transmit(0));
    assert!(pair.b.transmit(0).is_empty());
    assert_eq!(pair.b.rc.counts().malformed, 1);
    pair.deliver_b(0, &sent);
    assert_eq!(pair.b.transmit(0).len(), 2);
}

#[test]
fn a_region_withdrawn_during_a_read_gives_no_more_bytes() {
    let mut pair = Pair::new(5, |_| ());
    pair.a.rc.post(request(1, RcOperation::Read(remote(0)), 0, 2000)).expect("room");
    let sent = pair.a.transmit(0);
    pair.deliver_b(0, &sent);
    pair.b.ram.keys.clear();
    let naks = pair.b.transmit(0);
    assert_eq!(answers(&naks), [(5, 0x62)]);
    pair.deliver_a(0, &naks);
    assert_eq!(statuses(&mut pair.a), [(1, RcStatus::RemoteAccess)]);
}

#[test]
fn responses_to_what_was_never_sent_or_is_complete_change_nothing() {
    let mut pair = Pair::new(5, |_| ());
    pair.a.rc.post(request(1, write(0), 0, 8)).expect("room");
    let sent = pair.a.transmit(0);
    pair.deliver_b(0, &sent);
    let acks = pair.b.transmit(0);
    let ahead = changed(&acks[0], |bth| bth.psn = Psn::new(6));
    assert!(pair.a.receive(0, &ahead, &flow(1, 2)));
    assert_eq!((pair.a.rc.counts().never_sent, pair.a.completions().len()), (1, 0));
    pair.deliver_a(0, &acks);
    pair.deliver_a(0, &acks);
    assert_eq!((pair.a.rc.counts().stale, pair.a.completions().len()), (1, 1));
}

#[test]
fn an_acknowledgement_past_a_read_without_data_repeats_the_read() {
    let mut pair = Pair::new(5, |_| ());
    pair.a.rc.post(request(1, write(0), 0, 8)).expect("room");
    pair.a.rc.post(request(2, RcOperation::Read(remote(0)), 64, 8)).expect("room");
    pair.a.rc.post(request(3, write(0), 0, 8)).expect("room");
    let sent = pair.a.transmit(0);
    pair.deliver_b(0, &sent);
    let [_, _, last] = &pair.b.transmit(0)[..] else { panic!("three answers") };
    pair.deliver_a(0, std::slice::from_ref(last));
    assert_eq!(statuses(&mut pair.a), [(1, RcStatus::Success)]);
    assert_eq!(psns(&pair.a.transmit(0)), [6, 7]);
}

#[test]
fn several_packets_are_acknowledged_at_once() {
    let mut pair = Pair::new(5, |cfg| cfg.ack_interval = 4);
    pair.a.rc.post(request(1, write(0), 0, 6 * 1024)).expect("room");
    pair.a.rc.post(request(2, write(0), 0, 8)).expect("room");
    let sent = pair.a.transmit(0);
    let asked: Vec<bool> = sent.iter().map(|packet| header(packet).bth.ack_req).collect();
    assert_eq!(asked, [false, false, false, true, false, true, true]);
    pair.deliver_b(0, &sent);
    let acks = pair.b.transmit(0);
    assert_eq!(answers(&acks), [(11, 0x1f)]);
    assert_eq!(header(&acks[0]).ext.aeth.expect("has it").msn, 2);
    pair.deliver_a(0, &acks);
    assert_eq!(statuses(&mut pair.a).len(), 2);
}

#[test]
fn a_fence_waits_for_reads() {
    let mut pair = Pair::new(5, |_| ());
    pair.a.rc.post(request(1, RcOperation::Read(remote(0)), 64, 8)).expect("room");
    pair.a.rc.post(RcRequest { fence: true, ..request(2, write(0), 0, 8) }).expect("room");
    assert_eq!(pair.a.transmit(0).len(), 1);
    pair.a.rc.close();
    assert_eq!(statuses(&mut pair.a), [(1, RcStatus::Flushed), (2, RcStatus::Flushed)]);
}

#[test]
fn a_message_withdraws_a_key() {
    let mut pair = Pair::new(5, |_| ());
    pair.b.rc.post_receive(receive(1, 0, 8)).expect("room");
    pair.b.rc.post_receive(receive(2, 0, 8)).expect("room");
    let invalidate = RcOperation::SendInvalidate(READ_ONLY);
    pair.a.rc.post(RcRequest { solicited: true, ..request(1, invalidate, 0, 8) }).expect("room");
    pair.drive(0);
    let done = pair.b.completions();
    assert_eq!((done[0].invalidated, done[0].solicited), (Some(READ_ONLY), true));
    assert_eq!(pair.b.ram.keys, [(RKEY, true)]);
    pair.a.rc.post(request(2, invalidate, 0, 8)).expect("room");
    pair.drive(0);
    let expected = [(1, RcStatus::Success), (2, RcStatus::RemoteAccess)];
    assert_eq!(statuses(&mut pair.a), expected);
}

#[test]
fn packets_of_another_connection_are_dropped() {
    let mut pair = Pair::new(5, |_| ());
    pair.a.rc.post(request(1, write(0), 0, 8)).expect("room");
    let sent = pair.a.transmit(0);
    let other = [
        changed(&sent[0], |bth| bth.dest = urma_packet::Tpn::from_low_bits(0xc)),
        changed(&sent[0], |bth| bth.pkey = 0x8001),
        changed(&sent[0], |bth| bth.opcode = 0x20 | rc::WRITE_ONLY),
    ];
    pair.deliver_b(0, &other);
    assert!(pair.b.transmit(0).is_empty());
    assert_eq!((pair.b.rc.counts().malformed, pair.b.ram.stored), (3, 0));
    // A limited member of the same partition.
    pair.deliver_b(0, &[changed(&sent[0], |bth| bth.pkey = 0x7fff)]);
    assert_eq!(pair.b.ram.stored, 8);
}

#[test]
fn answers_that_wait_are_bounded() {
    let mut pair = Pair::new(5, |_| ());
    pair.a.rc.post(request(1, add(0, 1), 0, 8)).expect("room");
    let sent = pair.a.transmit(0);
    (0..1000).for_each(|_| pair.deliver_b(0, &sent));
    assert!(pair.b.transmit(0).len() <= 64);
    assert_eq!((pair.b.ram.word(0), pair.b.rc.counts().overloaded > 900), (1, true));
}

#[test]
fn memory_that_fails_ends_the_connection() {
    let mut pair = Pair::new(5, |_| ());
    pair.a.rc.post(request(1, write(0), 0, 8)).expect("room");
    pair.a.rc.post(request(2, write(0), 1 << 20, 8)).expect("room");
    assert_eq!(pair.a.transmit(0).len(), 1);
    let expected = [(1, RcStatus::Flushed), (2, RcStatus::LocalProtection)];
    assert_eq!(statuses(&mut pair.a), expected);
    // A receive whose place is gone: the peer gets NAK 0x63.
    let mut pair = Pair::new(5, |_| ());
    pair.b.rc.post_receive(receive(1, 1 << 20, 8)).expect("room");
    pair.a.rc.post(request(1, SEND, 0, 8)).expect("room");
    pair.drive(0);
    assert_eq!(statuses(&mut pair.a), [(1, RcStatus::RemoteOperation)]);
}

#[test]
fn queues_are_bounded() {
    let mut pair = Pair::new(5, |cfg| cfg.queue_depth = 1);
    pair.a.rc.post(request(1, write(0), 0, 8)).expect("room");
    assert_eq!(pair.a.rc.post(request(2, write(0), 0, 8)), Err(RcPostError::Full));
    pair.b.rc.post_receive(receive(1, 0, 1)).expect("room");
    assert_eq!(pair.b.rc.post_receive(receive(2, 0, 1)), Err(RcPostError::Full));
    let long = request(3, write(0), 0, u32::MAX);
    assert_eq!(pair.a.rc.post(long), Err(RcPostError::TooLong));
}
