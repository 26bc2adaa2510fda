//! Selective repeat by a bitmap of what was received beyond the gap.
//!
//! - owns: how far holes were examined. takes: acknowledgements. gives: marks on holes that later
//!   packets overtook.
//! - must not: examine the window for an acknowledgement that proves nothing new.

use crate::ledger::{Fate, SendLedger};
use crate::strategy::{AckNews, Retransmission};

/// Packets that may overtake another before it counts as lost.
const REORDER_PACKETS: u64 = 3;

/// Sends again only what is missing.
#[derive(Debug, Default)]
pub struct SelectiveRepeat {
    /// Holes before this were examined when `order_seen` was the same.
    order_done: u64,
}

impl Retransmission for SelectiveRepeat {
    fn on_ack(&mut self, news: &AckNews, ledger: &mut SendLedger) -> bool {
        if news.gap {
            // The peer keeps nothing beyond the gap (its pool is exhausted): only the gap is sure.
            ledger.mark_lost(news.edge);
        }
        if news.order_seen <= self.order_done {
            return false;
        }
        self.order_done = news.order_seen;
        let (in_use, mut examined) = (ledger.routes_in_flight(), 0);
        for seq in news.edge..ledger.unsent() {
            let slot = ledger.slot(seq);
            if slot.fate() != Fate::InFlight {
                continue;
            }
            if ledger.is_overtaken(seq, REORDER_PACKETS) {
                ledger.mark_lost(seq);
            } else if slot.sent_once_at().is_some() {
                // Of this route, all that follow were sent later.
                examined |= 1 << slot.transmission().0;
                if in_use & !examined == 0 {
                    break;
                }
            }
        }
        false
    }

    fn on_timeout(&mut self, ledger: &mut SendLedger) {
        // One packet asks the peer what it has; its acknowledgement names the holes.
        ledger.mark_lost(ledger.una());
    }
}

#[cfg(test)]
mod tests {
    use crate::congestion::CongestionChoice;
    use crate::ledger::Fate;
    use crate::report::AckFeedback;
    use crate::sender::{SenderCfg, TpSender};
    use crate::strategy::Recovery;
    use crate::timer::RtoCfg;

    const PACKETS: u64 = 20;

    /// A sender that sent all packets by these routes.
    fn sent_by(routes: u8) -> TpSender {
        let (recovery, rto) = (Recovery::SelectiveRepeat, RtoCfg::default());
        let congestion = CongestionChoice::None;
        let mut sender =
            TpSender::new(&SenderCfg { window_packets: 64, recovery, rto, congestion });
        sender.set_routes(routes, 1);
        for _ in 0..PACKETS {
            sender.push();
            sender.poll(1).expect("there is room");
        }
        sender
    }

    /// The peer has these, and lacks packet 0.
    fn acknowledge(sender: &mut TpSender, received: impl Iterator<Item = u64>) {
        let word = received.fold(0, |word, seq| word | 1 << (seq - 1));
        let ack = AckFeedback { edge: 0, gap: false, trigger: None, received: [word, 0, 0, 0] };
        sender.on_ack(1000, &ack).expect("all were sent");
    }

    fn lost(sender: &TpSender) -> Vec<u64> {
        let ledger = sender.ledger();
        (0..PACKETS).filter(|seq| ledger.slot(*seq).fate() == Fate::Lost).collect()
    }

    #[test]
    fn a_packet_sent_again_hides_no_later_loss() {
        let mut sender = sent_by(1);
        acknowledge(&mut sender, 3..=6);
        assert_eq!(lost(&sender), [0, 1, 2]);
        for seq in 0..3 {
            assert_eq!(sender.poll(1001).map(|sending| sending.seq), Some(seq));
        }
        acknowledge(&mut sender, (3..=6).chain(11..=14));
        assert_eq!(lost(&sender), [7, 8, 9, 10]);
    }

    #[test]
    fn a_packet_of_another_route_hides_no_loss() {
        let mut sender = sent_by(0b11);
        let route = |seq| sender.ledger().slot(seq).transmission().0;
        let others: Vec<u64> = (1..PACKETS).filter(|seq| route(*seq) != route(0)).collect();
        let (missing, received) = others.split_first().expect("two routes");
        let received = received.to_vec();
        acknowledge(&mut sender, received.into_iter());
        assert_eq!(lost(&sender), [*missing]);
    }
}
