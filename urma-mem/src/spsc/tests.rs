//! Tests of the ring. The model: `RUSTFLAGS="--cfg loom" cargo test -p urma-mem --release loom_`.

#[cfg(not(loom))]
mod plain;

#[cfg(loom)]
mod model {
    use crate::spsc::{Consumer, KIND_WRAP, Producer, half_len};
    use crate::words::model::{Fault, ModelWords};

    /// Two entries, the second behind a wrap marker, through a ring of 64 bytes.
    fn publish_and_consume(fault: Fault) {
        loom::model(move || {
            let producer_half = ModelWords::new(half_len(64) / 8, fault);
            let consumer_half = ModelWords::new(1, fault);
            let mut producer =
                Producer::new(producer_half.clone(), consumer_half.clone(), 64).unwrap();
            let mut consumer = Consumer::new(consumer_half, producer_half, 64).unwrap();
            let writer = loom::thread::spawn(move || {
                let mut sent = 0_u8;
                for _ in 0..4 {
                    if let Ok(mut slot) = producer.reserve(16) {
                        slot.write(0, &[sent + 1; 16]).unwrap();
                        slot.publish(u32::from(sent)).unwrap();
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
                    let mut bytes = [0; 16];
                    assert_eq!(entry.len(), 16, "a header before its publication");
                    assert_eq!(entry.kind(), u32::from(seen));
                    assert_ne!(entry.kind(), KIND_WRAP);
                    entry.read(0, &mut bytes).unwrap();
                    assert_eq!(bytes, [seen + 1; 16], "payload before its publication");
                    seen += 1;
                    entry.done();
                }
                loom::thread::yield_now();
            }
            let sent = writer.join().unwrap();
            while let Some(entry) = consumer.next_entry().expect("an honest producer") {
                assert_eq!(entry.kind(), u32::from(seen));
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
    fn loom_catches_an_unreleased_tail() {
        publish_and_consume(Fault::StoreNotReleased);
    }
}
