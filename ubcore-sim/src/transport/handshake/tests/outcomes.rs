//! How an attempt ends: what is agreed on, refused, closed, or not answered.

use super::*;

#[test]
fn a_silent_peer_fails_within_the_bound() {
    let dead = Outage::of(Cut::All, 0, Nanos::MAX);
    let mut pair = Pair::new(1, &FaultCfg { outages: vec![dead], ..FaultCfg::default() });
    pair.nodes[0].open(0);
    pair.drive();
    assert_eq!(pair.nodes[0].machine.state(), HandshakeState::Failed(TpOpenError::Timeout));
    // 3 x (5 + 10 + .. + 160) + 200 ms, less a quarter on average and half at most.
    assert!((572 * MS..=1_145 * MS).contains(&pair.now), "{}", pair.now);
    // It may be tried again.
    pair.nodes[0].open(pair.now);
    assert_eq!(pair.nodes[0].machine.state(), HandshakeState::Connecting);
}

#[test]
fn the_minimum_of_both_offers_is_agreed_on() {
    for simultaneous in [0, 1] {
        let mut pair = Pair::new(1, &FaultCfg { delay_ns: MS, ..FaultCfg::default() });
        let mut cfg = OpenCfg::new(A.0, B.0, 1);
        (cfg.mtu, cfg.window_packets) = (Mtu::B8192, 64);
        pair.nodes[0].machine = Handshake::new(cfg);
        let mut cfg = OpenCfg::new(B.0, A.0, 1);
        (cfg.mtu, cfg.window_packets) = (Mtu::B512, 1000);
        cfg.strategies = StrategyCaps::GO_BACK_N;
        pair.nodes[1].machine = Handshake::new(cfg);
        pair.nodes[0].open(0);
        if simultaneous == 1 {
            pair.nodes[1].open(0);
        }
        pair.drive();
        pair.assert_mirrored(0);
        let agreed = pair.nodes[0].agreed().expect("open");
        assert_eq!(
            (agreed.mtu, agreed.window_packets, agreed.strategy),
            (Mtu::B512, 64, Strategy::GoBackN)
        );
    }
}

#[test]
fn both_ends_hold_the_best_strategy_that_both_settings_allow() {
    use Strategy::{GoBackN, Irn, Knitting, Seed, SelectiveRepeat};
    for a in Strategy::ALL {
        for b in Strategy::ALL {
            let best = match (a, b) {
                (GoBackN, _) | (_, GoBackN) => GoBackN,
                (Knitting, Knitting) => Knitting,
                (Irn, Irn) => Irn,
                (Seed, Seed) => Seed,
                _ => SelectiveRepeat,
            };
            for simultaneous in [false, true] {
                let mut pair = Pair::new(1, &FaultCfg { delay_ns: MS, ..FaultCfg::default() });
                for (node, (own, peer, strategy)) in [(A, B, a), (B, A, b)].into_iter().enumerate()
                {
                    let strategies = strategy.offered();
                    let cfg = OpenCfg { strategies, ..OpenCfg::new(own.0, peer.0, 1) };
                    pair.nodes[node].machine = Handshake::new(cfg);
                }
                pair.nodes[0].open(0);
                if simultaneous {
                    pair.nodes[1].open(0);
                }
                pair.drive();
                pair.assert_mirrored(0);
                let agreed = pair.nodes[0].agreed().expect("open");
                assert_eq!(agreed.strategy, best, "{a:?} {b:?} {simultaneous}");
            }
        }
    }
}

#[test]
fn nothing_in_common_is_refused_at_once() {
    let mut pair = Pair::new(1, &FaultCfg::default());
    let mut cfg = OpenCfg::new(B.0, A.0, 1);
    cfg.strategies = StrategyCaps::KNITTING;
    pair.nodes[1].machine = Handshake::new(cfg);
    pair.nodes[0].open(0);
    pair.drive();
    let refused = TpOpenError::Refused(RefuseReason::Parameters);
    assert_eq!(pair.nodes[0].machine.state(), HandshakeState::Failed(refused));
    assert_eq!(pair.nodes[1].machine.state(), HandshakeState::Idle);
}

#[test]
fn closing_tells_the_peer_and_a_late_connect_does_not_bring_it_back() {
    let mut pair = Pair::new(1, &FaultCfg::default());
    pair.nodes[0].open(0);
    let mut buf = [0; 256];
    let len = pair.nodes[0].machine.poll_transmit(0, &mut buf).expect("CONNECT");
    flow().seal(&mut buf[..len]).expect("long enough");
    pair.nodes[1].receive(0, &buf[..len]);
    pair.drive();
    assert!(pair.nodes[1].agreed().is_some());
    pair.nodes[0].machine.close(CloseReason::Shutdown);
    pair.drive();
    let closed = HandshakeEvent::Closed(CloseReason::Shutdown);
    assert_eq!(pair.nodes[1].events.last(), Some(&closed));
    pair.nodes[1].receive(0, &buf[..len]);
    assert_eq!(pair.nodes[1].machine.state(), HandshakeState::Closed);
}

#[test]
fn a_packet_for_an_unknown_tp_closes_it_at_the_sender() {
    let mut pair = Pair::new(1, &FaultCfg::default());
    pair.nodes[0].open(0);
    pair.drive();
    pair.restart(1, 2);
    // The restarted node gets data for a TPN that it does not have.
    let tp = pair.nodes[0].agreed().expect("open");
    pair.nodes[0].take(pair.now, &Handshake::unknown_tp(tp.peer_tpn));
    pair.drive();
    // It has another state of the pair by now, or none.
    let closed = |event| matches!(event, HandshakeEvent::Closed(_));
    assert!(pair.nodes[0].events.iter().copied().any(closed), "{:?}", pair.nodes[0].events);
    pair.nodes[0].open(pair.now);
    pair.drive();
    pair.assert_mirrored(0);
}
