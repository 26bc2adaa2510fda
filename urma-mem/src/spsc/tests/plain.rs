//! The ring against a queue, and against a lying peer.

use std::collections::VecDeque;

use proptest::prelude::*;

use crate::region::{MapAccess, Pages, Region};
use crate::spsc::{
    CAPACITY_MIN, Consumer, Corrupt, KIND_WRAP, LINE_LEN, NextPlace, Producer, ReserveError,
};

fn halves(capacity: usize) -> (Region, Region) {
    let halves = |len| Region::shared(len, Pages::Base).expect("memory for a test");
    (halves(capacity), halves(LINE_LEN))
}

fn ring(capacity: usize) -> (Producer, Consumer, Region, Region) {
    let (entries, heads) = halves(capacity);
    let producer = Producer::new(entries.clone(), heads.clone(), capacity).unwrap();
    let consumer = Consumer::new(heads.clone(), entries.clone(), capacity).unwrap();
    (producer, consumer, entries, heads)
}

fn send(producer: &mut Producer, kind: u32, bytes: &[u8]) -> Result<(), ReserveError> {
    let mut slot = producer.reserve(bytes.len())?;
    slot.write(0, bytes).unwrap();
    slot.publish(kind).unwrap();
    Ok(())
}

fn receive(consumer: &mut Consumer) -> Option<(u32, Vec<u8>)> {
    let entry = consumer.next_entry().expect("an honest producer")?;
    let mut bytes = vec![0; entry.len()];
    entry.read(0, &mut bytes).unwrap();
    let kind = entry.kind();
    entry.done();
    Some((kind, bytes))
}

#[test]
fn the_next_place_is_written_when_an_entry_is_published_there() {
    let (mut producer, mut consumer, ..) = ring(256);
    let mut place = NextPlace::new(consumer.next_place().unwrap());
    for round in 0..20_u8 {
        assert!(!place.is_written() && !consumer.is_waiting(), "round {round}");
        send(&mut producer, 1, &[round; 40]).unwrap();
        assert!(place.is_written() && consumer.is_waiting(), "round {round}");
        assert_eq!(receive(&mut consumer), Some((1, vec![round; 40])));
        assert!(place.is_written(), "what was there is not taken back");
        place.move_to(consumer.next_place().unwrap());
    }
    let (mut other, reader, entries, _) = ring(256);
    place.move_to(reader.next_place().unwrap());
    send(&mut other, 1, &[1; 8]).unwrap();
    assert!(place.is_written(), "of another ring");
    entries.store_u64(0, u64::MAX).unwrap();
    let mut reader = reader;
    assert!(reader.next_entry().is_err() && reader.next_place().is_none());
}

#[test]
fn an_entry_is_invisible_until_published_and_stays_until_done() {
    let (mut producer, mut consumer, ..) = ring(256);
    let mut slot = producer.reserve(3).unwrap();
    slot.write(0, b"abc").unwrap();
    assert!(slot.write(1, b"abc").is_err());
    assert!(consumer.next_entry().unwrap().is_none());
    let _ = slot; // a producer that dies here leaves nothing
    assert!(!consumer.is_waiting());
    let mut slot = producer.reserve(3).unwrap();
    slot.write(0, b"xyz").unwrap();
    slot.stage(7).unwrap();
    assert!(consumer.next_entry().unwrap().is_none());
    producer.publish_staged();
    assert!(consumer.is_waiting());
    assert_eq!(consumer.next_entry().unwrap().unwrap().kind(), 7);
    assert!(!producer.is_drained().unwrap());
    assert_eq!(receive(&mut consumer), Some((7, b"xyz".to_vec())));
    assert!(producer.is_drained().unwrap());
}

#[test]
fn impossible_layouts_and_entries_are_refused() {
    let (entries, heads) = halves(256);
    assert!(Producer::new(entries.clone(), heads.clone(), 100).is_err());
    assert!(Producer::new(entries.clone(), heads.clone(), 1 << 20).is_err());
    assert!(Producer::new(entries.clone(), heads.clone(), 128).is_err());
    let (fd, _) = entries.fd().unwrap();
    let read_only =
        Region::map_fd(fd.try_clone_to_owned().unwrap(), 0, 4096, MapAccess::ReadOnly).unwrap();
    assert!(Producer::new(read_only, heads.clone(), 256).is_err());
    let mut producer = Producer::new(entries, heads, 256).unwrap();
    assert_eq!(producer.len_max(), 120);
    assert_eq!(producer.reserve(121).unwrap_err(), ReserveError::TooLong);
    for reserved in [0, KIND_WRAP] {
        assert!(producer.reserve(120).unwrap().stage(reserved).is_err());
    }
}

#[test]
fn a_consumer_that_claims_more_than_was_sent_is_named() {
    for position in [192, 72] {
        let (mut producer, _consumer, _, heads) = ring(CAPACITY_MIN);
        send(&mut producer, 1, &[1; 24]).unwrap();
        send(&mut producer, 1, &[1; 24]).unwrap();
        heads.store_u64_release(0, position).unwrap();
        let lie = ReserveError::Corrupt(Corrupt::Position { position });
        assert_eq!(producer.reserve(120).unwrap_err(), lie);
        heads.store_u64_release(0, 64).unwrap();
        assert_eq!(producer.reserve(120).unwrap_err(), lie, "for good");
    }
}

#[test]
fn a_consumer_that_claims_what_is_only_staged_is_named() {
    let (mut producer, _consumer, _, heads) = ring(CAPACITY_MIN);
    producer.reserve(24).unwrap().stage(1).unwrap();
    heads.store_u64_release(0, 64).unwrap();
    let lie = Corrupt::Position { position: 64 };
    assert_eq!(producer.is_drained(), Err(lie));
}

#[test]
fn each_lie_of_a_producer_has_its_name() {
    let wrap = |len: u64| (u64::from(KIND_WRAP) << 32) | len;
    let lies: [(u64, Corrupt); 5] = [
        (1 << 32 | 121, Corrupt::Length { len: 121 }),
        (u64::from(u32::MAX), Corrupt::Length { len: u32::MAX }),
        // A marker of the whole ring, and one that ends before the ring does.
        (wrap(248), Corrupt::Wrap { len: 248 }),
        (wrap(56), Corrupt::Wrap { len: 56 }),
        (wrap(u64::from(u32::MAX)), Corrupt::Wrap { len: u32::MAX }),
    ];
    for (header, name) in lies {
        let (_, mut consumer, entries, _) = ring(CAPACITY_MIN);
        entries.store_u64_release(0, header).unwrap();
        assert_eq!(consumer.next_entry().unwrap_err(), name, "header {header:x}");
        entries.store_u64_release(0, 0).unwrap();
        assert!(consumer.next_entry().is_err(), "for good");
        assert!(!consumer.is_waiting());
    }
}

#[test]
fn an_entry_ends_inside_the_ring() {
    let (mut producer, mut consumer, entries, _) = ring(CAPACITY_MIN);
    for _ in 0..3 {
        send(&mut producer, 1, &[1; 8]).unwrap();
        assert!(receive(&mut consumer).is_some());
    }
    entries.store_u64_release(192, 1 << 32 | 57).unwrap();
    assert_eq!(consumer.next_entry().unwrap_err(), Corrupt::Length { len: 57 });
}

#[test]
fn a_wrap_marker_is_published_together_with_what_follows_it() {
    let marker = u64::from(KIND_WRAP) << 32 | 184;
    // Nothing behind it, a second marker, and an entry.
    for (next, follows) in
        [(0, false), (u64::from(KIND_WRAP) << 32 | 248, false), (2 << 32 | 8, true)]
    {
        let (mut producer, mut consumer, entries, _) = ring(CAPACITY_MIN);
        send(&mut producer, 1, &[1; 8]).unwrap();
        assert_eq!(receive(&mut consumer), Some((1, vec![1; 8])));
        entries.store_u64(0, next).unwrap();
        entries.store_u64_release(64, marker).unwrap();
        if follows {
            assert_eq!(receive(&mut consumer), Some((2, vec![1; 8])));
        } else {
            let found = consumer.next_entry().unwrap_err();
            assert_eq!(found, Corrupt::Wrap { len: 184 }, "next {next:x}");
        }
    }
}

/// Payload of an earlier pass looks like the header of an entry.
#[test]
fn bytes_of_an_earlier_pass_are_no_header() {
    let (mut producer, mut consumer, ..) = ring(512);
    let forged = (1_u64 << 32 | 8).to_le_bytes().repeat(23);
    for round in 0..64 {
        let bytes = if round % 2 == 0 { &forged[..] } else { &forged[..8 * (round % 20)] };
        send(&mut producer, 9, bytes).unwrap();
        assert_eq!(receive(&mut consumer), Some((9, bytes.to_vec())), "round {round}");
        assert_eq!(receive(&mut consumer), None, "round {round}");
        assert!(!consumer.is_waiting());
    }
}

#[test]
fn two_threads_move_entries_of_all_lengths() {
    let (mut producer, mut consumer, ..) = ring(1024);
    std::thread::scope(|scope| {
        scope.spawn(move || {
            for round in 0..50_000_u32 {
                let bytes = vec![round.to_le_bytes()[0]; (round % 300) as usize];
                while send(&mut producer, round + 1, &bytes).is_err() {
                    std::thread::yield_now();
                }
            }
        });
        for round in 0..50_000_u32 {
            let (kind, bytes) = loop {
                if let Some(entry) = receive(&mut consumer) {
                    break entry;
                }
                std::thread::yield_now();
            };
            assert_eq!((kind, bytes.len()), (round + 1, (round % 300) as usize));
            assert!(bytes.iter().all(|byte| *byte == round.to_le_bytes()[0]));
        }
    });
}

proptest! {
    #[test]
    fn the_ring_is_a_queue(steps in proptest::collection::vec((any::<bool>(), 0_usize..140), 1..400)) {
        let (mut producer, mut consumer, ..) = ring(256);
        let mut model = VecDeque::new();
        for (number, (is_send, len)) in (1_u32..).zip(steps) {
            if is_send {
                let bytes = vec![number.to_le_bytes()[0]; len];
                match send(&mut producer, number, &bytes) {
                    Ok(()) => model.push_back((number, bytes)),
                    Err(ReserveError::TooLong) => prop_assert!(len > 120),
                    Err(ReserveError::Full) => prop_assert!(!model.is_empty()),
                    Err(ReserveError::Corrupt(_)) => prop_assert!(false),
                }
            } else {
                prop_assert_eq!(receive(&mut consumer), model.pop_front());
            }
        }
    }

    /// Random words everywhere in the producer's half: an entry or a named lie, never a panic, and no
    /// byte of the reader's own half but the head changes.
    #[test]
    fn random_bytes_never_break_the_reader(
        steps in proptest::collection::vec((0_usize..32, any::<u64>(), any::<bool>()), 1..60)
    ) {
        let (_, mut consumer, entries, heads) = ring(CAPACITY_MIN);
        for (word, value, is_small) in steps {
            let value = if is_small { (1 << 32) | (value % 128) } else { value };
            let _ = entries.store_u64(word * 8, value);
            if let Ok(Some(entry)) = consumer.next_entry() {
                prop_assert!(entry.len() <= 120);
                let mut bytes = vec![0; entry.len()];
                prop_assert!(entry.read(0, &mut bytes).is_ok());
                entry.done();
            }
            prop_assert_eq!(heads.load_u64(8), Ok(0));
        }
    }

    /// Random words in the consumer's head: room or a named lie, never more outstanding than fits.
    #[test]
    fn random_heads_never_break_the_writer(heads_said in proptest::collection::vec(any::<u64>(), 1..60)) {
        let (mut producer, _, _, heads) = ring(CAPACITY_MIN);
        let (mut sent, mut freed) = (0, 0);
        for head in heads_said {
            let head = head % 512;
            let _ = heads.store_u64(0, head);
            if (freed..=sent).contains(&head) && head.is_multiple_of(64) {
                freed = head;
            }
            if send(&mut producer, 1, &[1; 8]).is_ok() {
                sent += 64;
            }
            prop_assert!(sent - freed < CAPACITY_MIN as u64);
        }
    }
}

#[test]
#[ignore = "measures; run with --release --ignored --nocapture"]
#[expect(clippy::disallowed_methods, reason = "a measurement owns its clock")]
fn measure() {
    const ROUNDS: u32 = 10_000_000;
    for len in [8_usize, 64, 1024] {
        let (mut producer, mut consumer, ..) = ring(1 << 16);
        let mut bytes = vec![1; len];
        let start = std::time::Instant::now();
        for _ in 0..ROUNDS {
            send(&mut producer, 1, &bytes).expect("room");
            let entry = consumer.next_entry().expect("an honest producer").expect("published");
            entry.read(0, &mut bytes).expect("inside");
            entry.done();
        }
        println!("{len:5} {:5.1} ns per entry", start.elapsed().as_secs_f64() * 1e9 / 1e7);
    }
}
