//! Tests of the ring. The model: `RUSTFLAGS="--cfg loom" cargo test -p urma-mem --release loom_`.

#[cfg(not(loom))]
mod plain;

#[cfg(loom)]
mod model {
    use crate::spsc::{CAPACITY_MIN, Consumer, KIND_WRAP, Producer};
    use crate::words::model::{Fault, ModelWords};

    /// Lengths of the entries: the last one comes behind a wrap marker, over both others.
    const LENS: [usize; 3] = [16, 72, 72];

    /// Three entries through the smallest ring.
    fn publish_and_consume(fault: Fault) {
        loom::model(move || {
            let producer_half = ModelWords::new(CAPACITY_MIN / 8, fault);
            let consumer_half = ModelWords::new(1, fault);
            let mut producer =
                Producer::new(producer_half.clone(), consumer_half.clone(), CAPACITY_MIN).unwrap();
            let mut consumer = Consumer::new(consumer_half, producer_half, CAPACITY_MIN).unwrap();
            let writer = loom::thread::spawn(move || {
                let mut sent = 0_u8;
                for _ in 0..4 {
                    let len = LENS[usize::from(sent)];
                    if let Ok(mut slot) = producer.reserve(len) {
                        slot.write(0, &[sent + 1; 72][..len]).unwrap();
                        slot.publish(u32::from(sent) + 1).unwrap();
                        sent += 1;
                    }
                    if sent == 3 {
                        break;
                    }
                    loom::thread::yield_now();
                }
                sent
            });
            let mut seen = 0_u8;
            for _ in 0..4 {
                if let Some(entry) = consumer.next_entry().expect("an honest producer") {
                    let mut bytes = vec![0; entry.len()];
                    assert_eq!(
                        entry.len(),
                        LENS[usize::from(seen)],
                        "a header before its publication"
                    );
                    assert_eq!(entry.kind(), u32::from(seen) + 1);
                    assert_ne!(entry.kind(), KIND_WRAP);
                    entry.read(0, &mut bytes).unwrap();
                    assert_eq!(
                        bytes,
                        vec![seen + 1; bytes.len()],
                        "payload before its publication"
                    );
                    seen += 1;
                    entry.done();
                }
                loom::thread::yield_now();
            }
            let sent = writer.join().unwrap();
            while let Some(entry) = consumer.next_entry().expect("an honest producer") {
                assert_eq!(entry.kind(), u32::from(seen) + 1);
                seen += 1;
                entry.done();
            }
            assert_eq!(seen, sent, "every published entry arrives once");
        });
    }

    #[test]
    fn loom_entries_arrive_whole_and_in_order() {
        publish_and_consume(Fault::None);
    }

    #[test]
    #[should_panic(expected = "before its publication")]
    fn loom_catches_an_unreleased_header() {
        publish_and_consume(Fault::StoreNotReleased);
    }
}
