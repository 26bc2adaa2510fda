//! The ring against a queue, and against a lying peer.

use std::collections::VecDeque;

use proptest::prelude::*;

use crate::region::{MapAccess, Pages, Region};
use crate::spsc::{Consumer, Corrupt, KIND_WRAP, LINE_LEN, Producer, ReserveError, half_len};

fn halves(capacity: usize) -> (Region, Region) {
    let halves = |len| Region::shared(len, Pages::Base).expect("memory for a test");
    (halves(half_len(capacity)), halves(LINE_LEN))
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
    assert!(Producer::new(entries.clone(), heads.clone(), 32).is_err());
    let (fd, _) = entries.fd().unwrap();
    let read_only =
        Region::map_fd(fd.try_clone_to_owned().unwrap(), 0, 4096, MapAccess::ReadOnly).unwrap();
    assert!(Producer::new(read_only, heads.clone(), 256).is_err());
    let mut producer = Producer::new(entries, heads, 256).unwrap();
    assert_eq!(producer.len_max(), 120);
    assert_eq!(producer.reserve(121).unwrap_err(), ReserveError::TooLong);
    assert!(producer.reserve(120).unwrap().stage(KIND_WRAP).is_err());
}

#[test]
fn a_consumer_that_claims_more_than_was_sent_is_named() {
    let (mut producer, _consumer, _, heads) = ring(64);
    send(&mut producer, 1, &[1; 24]).unwrap();
    send(&mut producer, 1, &[1; 24]).unwrap();
    heads.store_u64_release(0, 72).unwrap();
    let lie = Corrupt::Position { position: 72 };
    assert_eq!(producer.reserve(24).unwrap_err(), ReserveError::Corrupt(lie));
    heads.store_u64_release(0, 64).unwrap();
    assert_eq!(producer.reserve(24).unwrap_err(), ReserveError::Corrupt(lie), "for good");
}

#[test]
fn each_lie_of_a_producer_has_its_name() {
    let lies: [(u64, u64, Corrupt); 6] = [
        (72, 0, Corrupt::Position { position: 72 }),
        (12, 0, Corrupt::Position { position: 12 }),
        (16, 9, Corrupt::Length { len: 9 }),
        (64, u64::from(u32::MAX), Corrupt::Length { len: u32::MAX }),
        (64, (u64::from(KIND_WRAP) << 32) | 56, Corrupt::Wrap { len: 56 }),
        (16, (u64::from(KIND_WRAP) << 32) | 8, Corrupt::Wrap { len: 8 }),
    ];
    for (tail, header, name) in lies {
        let (_, mut consumer, entries, _) = ring(64);
        entries.store_u64(LINE_LEN, header).unwrap();
        entries.store_u64_release(0, tail).unwrap();
        assert_eq!(consumer.next_entry().unwrap_err(), name, "tail {tail} header {header:x}");
        entries.store_u64_release(0, 0).unwrap();
        assert!(consumer.next_entry().is_err(), "for good");
        assert!(!consumer.is_waiting());
    }
}

#[test]
fn a_wrap_marker_is_published_together_with_what_follows_it() {
    // Published up to the middle of the marker, up to its end, and with an entry behind it.
    for (tail, follows) in [(24, false), (56, false), (64, false), (80, true)] {
        let (mut producer, mut consumer, entries, _) = ring(64);
        send(&mut producer, 1, &[1; 8]).unwrap();
        assert_eq!(receive(&mut consumer), Some((1, vec![1; 8])));
        let marker = u64::from(KIND_WRAP) << 32 | 40;
        entries.store_u64(LINE_LEN + 16, marker).unwrap();
        entries.store_u64(LINE_LEN, 2 << 32 | 8).unwrap();
        entries.store_u64_release(0, tail).unwrap();
        if follows {
            assert_eq!(receive(&mut consumer), Some((2, vec![1; 8])));
        } else {
            let found = consumer.next_entry().unwrap_err();
            assert_eq!(found, Corrupt::Wrap { len: 40 }, "tail {tail}");
        }
    }
}

#[test]
fn two_threads_move_entries_of_all_lengths() {
    let (mut producer, mut consumer, ..) = ring(1024);
    std::thread::scope(|scope| {
        scope.spawn(move || {
            for round in 0..50_000_u32 {
                let bytes = vec![round.to_le_bytes()[0]; (round % 300) as usize];
                while send(&mut producer, round, &bytes).is_err() {
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
            assert_eq!((kind, bytes.len()), (round, (round % 300) as usize));
            assert!(bytes.iter().all(|byte| *byte == round.to_le_bytes()[0]));
        }
    });
}

proptest! {
    #[test]
    fn the_ring_is_a_queue(steps in proptest::collection::vec((any::<bool>(), 0_usize..140), 1..400)) {
        let (mut producer, mut consumer, ..) = ring(256);
        let mut model = VecDeque::new();
        for (number, (is_send, len)) in (0_u32..).zip(steps) {
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
        steps in proptest::collection::vec((0_usize..24, any::<u64>(), any::<bool>()), 1..60)
    ) {
        let (_, mut consumer, entries, heads) = ring(64);
        for (word, value, is_small) in steps {
            let value = if is_small { value % 128 } else { value };
            let _ = entries.store_u64(word * 8, value);
            if let Ok(Some(entry)) = consumer.next_entry() {
                prop_assert!(entry.len() <= 56);
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
        let (mut producer, _, entries, heads) = ring(64);
        for head in heads_said {
            let _ = heads.store_u64(0, head % 256);
            let sent = send(&mut producer, 1, &[1; 8]);
            let tail = entries.load_u64(0).unwrap_or(0);
            prop_assert!(sent.is_err() || tail >= 16);
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
