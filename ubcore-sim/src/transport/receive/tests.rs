//! The window where its loss record, which lies in memory of others, contradicts what it stored.

use urma_mem::Region;
use urma_packet::{
    Initiator, InitiatorKind, JettyId, ResponseBody, ResponseHeader, ResponseStatus,
};

use urma_recovery::{AckPolicy, Recovery};

use super::*;

struct Bench {
    window: ReceiveWindow,
    pool: KnittingPool,
    /// Bits of packets beyond the gap; bit 0 is packet 0.
    region: Region,
}

impl Bench {
    /// A window that received these packets, of which none is packet 0.
    fn with(received: &[i64]) -> Self {
        let region = Region::private(4 << 6).expect("memory");
        let mut pool = KnittingPool::new();
        pool.grow(0, region.clone(), 6, 4).expect("fresh piece");
        let policy = AckPolicy { every: 16, delay_ns: 0 };
        let receiver = TpReceiver::new(Recovery::SelectiveRepeat.record(1), policy);
        let mut bench = Self { window: ReceiveWindow::new(32, receiver), pool, region };
        for seq in received {
            assert_eq!(bench.accept(*seq), Ok(WindowResult::BeyondGap));
        }
        bench
    }

    fn accept(&mut self, distance: i64) -> Result<WindowResult, LossError> {
        let id = JettyId::from_low_bits(1);
        let header = ResponseHeader {
            tassn: 0,
            initiator: Initiator { kind: InitiatorKind::Jetty, id },
            target: None,
            status: ResponseStatus::Ack,
            body: ResponseBody::None,
        };
        let content = Content::One(TransactionHeader::Response(header));
        self.window.accept(&mut self.pool, (0, distance, DataMark::default()), content, &[1])
    }

    fn change(&self, bits: impl FnOnce(u64) -> u64) {
        let now = self.region.load_u64(0).expect("inside");
        self.region.store_u64(0, bits(now)).expect("inside");
    }
}

#[test]
fn what_the_record_says_came_and_is_not_stored_is_not_passed_over() {
    let mut bench = Bench::with(&[2, 5, 6]);
    bench.change(|bits| bits | 1 << 1);
    assert_eq!(bench.accept(0), Err(LossError::Corrupt), "packet 1 never came");
}

#[test]
fn what_is_stored_and_the_record_says_did_not_come_is_noticed() {
    let mut bench = Bench::with(&[1, 2, 5]);
    bench.change(|bits| bits & !(1 << 2));
    assert_eq!(bench.accept(0), Err(LossError::Corrupt), "packet 2 is stored");
}

#[test]
fn a_packet_is_new_or_known_to_both_the_record_and_the_store() {
    let mut bench = Bench::with(&[5]);
    bench.change(|bits| bits | 1 << 3);
    assert_eq!(bench.accept(3), Err(LossError::Corrupt), "known to the record alone");
    let mut bench = Bench::with(&[3, 5]);
    bench.change(|bits| bits & !(1 << 3));
    assert_eq!(bench.accept(3), Err(LossError::Corrupt), "known to the store alone");
    assert_eq!(Bench::with(&[3]).accept(3), Ok(WindowResult::Duplicate));
}
