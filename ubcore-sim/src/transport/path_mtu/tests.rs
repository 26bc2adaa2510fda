//! Search, doubt and forged echoes, against a path that is a number.

use super::*;

const MS: Nanos = 1_000_000;

/// Both ends of a path that lets packets of at most `mtu` bytes pass, with the headers of IP.
struct Walk {
    path: PathMtu,
    now: Nanos,
    mtu: usize,
    /// The system of this host names its MTU, as one that has that link itself.
    is_own_link: bool,
    rtt: Nanos,
    echoes: Vec<(Nanos, PathProbe)>,
    nonce: u64,
    sent: Vec<usize>,
    /// Of this many probes one is lost; 0: none is.
    lose_every: usize,
}

impl Walk {
    fn new(limit: usize, mtu: usize) -> Self {
        let mut path = PathMtu::new(limit, true, MtuFaults::default());
        path.open(limit);
        Self {
            path,
            now: 1,
            mtu,
            is_own_link: false,
            rtt: MS,
            echoes: Vec::new(),
            nonce: 0,
            sent: Vec::new(),
            lose_every: 0,
        }
    }

    /// Lets time run until then.
    fn run_for(&mut self, ns: Nanos) {
        let end = self.now + ns;
        while self.now < end {
            self.path.on_time(self.now);
            while let Some(at) = self.echoes.iter().position(|(at, _)| *at <= self.now) {
                let (_, echo) = self.echoes.swap_remove(at);
                self.path.on_echo(self.now, &echo);
            }
            let Self { path, nonce, .. } = self;
            let mut random = || {
                *nonce += 1;
                *nonce
            };
            while let Some(probe) = path.poll(self.now, &mut random) {
                let size = usize::from(probe.size);
                self.sent.push(size - DATA_OVERHEAD);
                let is_lost =
                    self.lose_every != 0 && self.sent.len().is_multiple_of(self.lose_every);
                if size + IP_V4 > self.mtu {
                    if self.is_own_link {
                        path.on_too_long(self.now, self.mtu);
                    }
                } else if !is_lost {
                    self.echoes.push((self.now + self.rtt, probe));
                }
            }
            self.now += MS / 4;
        }
    }

    fn is_found(&self) -> bool {
        matches!(self.path.stage, MtuStage::Found { .. })
    }

    /// A TP in place of the one that ended.
    fn reopen(&mut self) {
        assert!(self.path.has_shrunk());
        self.path.close();
        self.path.open(self.path.limit);
    }
}

/// Payload that passes a link of IPv4.
fn fits(mtu: usize) -> usize {
    (mtu - IP_V4 - DATA_OVERHEAD) / 4 * 4
}

#[test]
fn nothing_is_proven_before_an_echo() {
    let mut walk = Walk::new(8192, 65536);
    assert_eq!((walk.path.payload(), walk.path.is_first()), (256, true));
    let probe = walk.path.poll(1, &mut || 7).expect("a probe at once");
    assert_eq!(probe, PathProbe { nonce: 7, size: 8276 });
    assert_eq!((walk.path.payload(), walk.path.is_first()), (256, true));
    assert!(walk.path.on_echo(2, &probe));
    assert_eq!((walk.path.payload(), walk.path.is_first()), (8192, false));
}

#[test]
fn the_top_takes_one_round_trip() {
    let mut walk = Walk::new(4096, 65536);
    walk.run_for(2 * MS);
    assert!(walk.is_found());
    assert_eq!((walk.path.payload(), walk.sent.len()), (4096, 1));
}

#[test]
fn the_own_link_takes_one_round_trip() {
    for mtu in [576, 1280, 1500, 4000, 9000] {
        let mut walk = Walk::new(8192, mtu);
        walk.is_own_link = true;
        walk.run_for(2 * MS);
        assert!(walk.is_found(), "{mtu}");
        assert_eq!(walk.path.payload(), fits(mtu).min(8192), "{mtu}");
        // What is longer than the system says is not sent.
        assert!(walk.sent.len() <= 3, "{mtu}: {:?}", walk.sent);
    }
}

#[test]
fn any_path_is_found_in_bounded_time() {
    for mtu in (576..9100).step_by(12).chain([1492, 1500, 1280]) {
        let mut walk = Walk::new(8192, mtu);
        walk.run_for(1_000 * MS - MS);
        assert!(walk.is_found(), "{mtu}: {:?}", walk.sent);
        let (found, most) = (walk.path.payload(), fits(mtu).min(8192));
        assert!(found <= most && most - found < STEP, "{mtu}: {found} of {most}");
        assert!(walk.sent.len() <= 40, "{mtu}: {:?}", walk.sent);
        assert!(walk.sent.iter().all(|size| Mtu::may_be(*size)), "{mtu}: {:?}", walk.sent);
    }
}

#[test]
fn a_common_link_is_the_second_question() {
    let mut walk = Walk::new(8192, 1500);
    walk.run_for(75 * MS);
    assert_eq!(walk.path.payload(), 1388);
    assert!(!walk.path.is_first());
}

#[test]
fn a_silent_peer_holds_data_back_for_70_ms() {
    let mut walk = Walk::new(8192, 0);
    walk.run_for(69 * MS);
    assert!(walk.path.is_first());
    walk.run_for(3 * MS);
    assert!(!walk.path.is_first());
    walk.run_for(5_000 * MS);
    assert!(walk.is_found());
    assert_eq!(walk.path.payload(), 256);
    assert!(walk.sent.len() < 60, "{} probes", walk.sent.len());
}

#[test]
fn lost_probes_are_repeated() {
    for lose_every in 2..6 {
        let mut walk = Walk::new(8192, 1500);
        walk.lose_every = lose_every;
        walk.run_for(1_500 * MS);
        assert!(walk.path.payload() >= 1024, "{}", walk.path.payload());
        assert!(walk.path.payload() <= 1388);
    }
}

#[test]
fn an_echo_that_comes_late_counts() {
    let mut walk = Walk::new(8192, 9000);
    walk.rtt = 150 * MS;
    walk.run_for(1_900 * MS);
    assert_eq!(walk.path.payload(), 8192);
}

#[test]
fn forged_replayed_and_spliced_echoes_prove_nothing() {
    let mut path = PathMtu::new(8192, true, MtuFaults::default());
    path.open(8192);
    let forged = |nonce, size| PathProbe { nonce, size };
    assert!(!path.on_echo(1, &forged(0, 8276)), "before any probe");
    let asked = path.poll(1, &mut || 0x1234_5678_9abc_def0).expect("a probe");
    for size in [0, 32, 80, 84, 340, 8272, 8280, u16::MAX] {
        assert!(
            !path.on_echo(1, &forged(asked.nonce, size)),
            "the nonce with another size: {size}"
        );
    }
    for nonce in [0, 1, asked.nonce ^ 1, asked.nonce.swap_bytes(), !asked.nonce] {
        assert!(!path.on_echo(1, &forged(nonce, asked.size)), "another nonce");
    }
    assert_eq!((path.payload(), path.is_first()), (256, true));
    assert!(path.on_echo(2, &asked));
    assert!(!path.on_echo(3, &asked), "again");
    // A new TP knows nothing of the probes of the old one.
    path.close();
    assert!(!path.on_echo(4, &asked));
    path.open(8192);
    assert!(!path.on_echo(5, &asked));
    assert_eq!(path.payload(), 256);
}

#[test]
fn a_path_that_becomes_narrower_without_a_word_is_found() {
    for (old, new) in [(9000, 1500), (1500, 576), (65536, 1280), (1500, 1400)] {
        let mut walk = Walk::new(8192, old);
        walk.run_for(900 * MS);
        let before = walk.path.payload();
        walk.mtu = new;
        walk.path.on_loss(walk.now);
        walk.run_for(100 * MS);
        walk.reopen();
        walk.run_for(800 * MS);
        let found = walk.path.payload();
        assert!(fits(new) - found < STEP, "{old} to {new}: {found}");
        assert_eq!(walk.path.take_change(), Some(MtuChange { old: before, new: found }));
        assert_eq!(walk.path.take_change(), None);
    }
}

/// A round in which no short probe returns says nothing: with one probe in each, four of six such rounds kept a TP
/// that lost some 14 % of them in doubt until it gave up.
#[test]
fn a_narrower_path_is_found_where_short_probes_are_lost_too() {
    for skip in 0..2 {
        let mut walk = Walk::new(8192, 9000);
        walk.run_for(900 * MS);
        walk.mtu = 1500;
        walk.lose_every = 2;
        // Of each two probes the first or the second is lost.
        walk.sent.resize(2 + skip, 0);
        walk.path.on_loss(walk.now);
        walk.run_for(100 * MS);
        assert!(walk.path.has_shrunk(), "{skip}");
    }
}

#[test]
fn loss_alone_narrows_nothing() {
    let mut walk = Walk::new(8192, 9000);
    walk.run_for(100 * MS);
    for lose_every in [0, 2, 3] {
        walk.lose_every = lose_every;
        walk.path.on_loss(walk.now);
        walk.run_for(700 * MS);
        assert!(!walk.path.has_shrunk(), "one of {lose_every} lost");
        assert_eq!(walk.path.payload(), 8192);
    }
    // A peer that is away: the timer of the TP decides.
    walk.mtu = 0;
    walk.path.on_loss(walk.now);
    walk.run_for(5_000 * MS);
    assert!(!walk.path.has_shrunk());
}

#[test]
fn forged_echoes_neither_start_nor_end_a_doubt() {
    let mut walk = Walk::new(8192, 9000);
    walk.run_for(100 * MS);
    let Some(PathProbe { .. }) = ({
        walk.path.on_loss(walk.now);
        walk.path.poll(walk.now, &mut || 41)
    }) else {
        panic!("no short probe")
    };
    let copy = walk.path.poll(walk.now, &mut || 42).expect("a copy of it");
    assert_eq!((copy.nonce, copy.size), (41, 340));
    let long = walk.path.poll(walk.now, &mut || 42).expect("a long probe");
    assert_eq!((long.nonce, long.size), (42, 8276));
    for (nonce, size) in [(42, 340), (41, 8276), (0, 340), (0, 8276), (40, 340)] {
        assert!(!walk.path.on_echo(walk.now, &PathProbe { nonce, size }), "{nonce} {size}");
    }
    assert!(matches!(walk.path.stage, MtuStage::Doubt(MtuDoubt { short_echoed: false, .. })));
}

#[test]
fn the_system_narrows_a_path_soon() {
    let mut walk = Walk::new(8192, 9000);
    walk.is_own_link = true;
    walk.run_for(100 * MS);
    walk.mtu = 1500;
    walk.path.on_too_long(walk.now, 1500);
    assert!(!walk.path.has_shrunk(), "a probe decides");
    walk.run_for(75 * MS);
    walk.reopen();
    walk.run_for(3 * MS);
    assert_eq!(walk.path.payload(), 1388);
    assert_eq!(walk.path.take_change(), Some(MtuChange { old: 8192, new: 1388 }));
    assert_eq!(walk.path.datagram_max(), 1364);
    // It is no news that what is shorter passes.
    walk.path.on_too_long(walk.now, 1500);
    assert!(!walk.path.has_shrunk());
}

#[test]
fn a_forged_word_about_the_route_narrows_nothing() {
    // The route takes 1500 bytes; the system believes that it takes 552, and says so of everything too long.
    let mut walk = Walk::new(8192, 1500);
    walk.run_for(990 * MS);
    assert_eq!((walk.path.payload(), walk.path.datagram_max()), (1388, 8192));
    for _ in 0..5 {
        // Of a packet as of a probe.
        walk.path.on_too_long(walk.now, 552);
        walk.run_for(500 * MS);
        assert!(!walk.path.has_shrunk());
        assert!(walk.path.datagram_max() >= 1364, "{}", walk.path.datagram_max());
        walk.run_for(1_500 * MS);
        walk.path.on_traffic(walk.now);
        walk.run_for(MS);
        walk.path.on_too_long(walk.now, 552);
        walk.run_for(2_000 * MS);
        assert!(!walk.path.has_shrunk());
        assert_eq!(walk.path.payload(), 1388);
    }
    // A TP that is made meanwhile finds the whole size, and says that the system was wrong.
    walk.path.close();
    walk.path.on_too_long(walk.now, 552);
    walk.path.open(8192);
    walk.run_for(900 * MS);
    assert_eq!(walk.path.payload(), 1388);
    assert_eq!(walk.path.take_disproved(), Some(fits(552)));
    assert_eq!(walk.path.take_disproved(), None);
    assert_eq!(walk.path.datagram_max(), 8192);
}

#[test]
fn a_path_that_becomes_wider_is_found_when_there_is_traffic() {
    let mut walk = Walk::new(8192, 1500);
    walk.run_for(990 * MS);
    assert_eq!(walk.path.payload(), 1388);
    walk.mtu = 9000;
    let sent = walk.sent.len();
    walk.run_for(3_000 * MS);
    assert_eq!(walk.sent.len(), sent, "an idle TP sends no probes");
    walk.path.on_traffic(walk.now);
    walk.run_for(5 * MS);
    assert_eq!(walk.path.payload(), 8192);
}

#[test]
fn losses_do_not_put_the_try_of_a_larger_size_off() {
    let mut walk = Walk::new(8192, 1500);
    walk.is_own_link = true;
    walk.run_for(100 * MS);
    assert_eq!(walk.path.payload(), 1388);
    walk.mtu = 9000;
    // A timer expires every 200 ms; the packet was lost for another reason than its length.
    for _ in 0..40 {
        walk.path.on_loss(walk.now);
        walk.run_for(200 * MS);
        walk.path.on_traffic(walk.now);
    }
    assert_eq!(walk.path.payload(), 8192);
}

#[test]
fn tries_of_a_larger_size_become_rare() {
    let mut walk = Walk::new(8192, 1500);
    walk.is_own_link = true;
    for _ in 0..100 {
        walk.run_for(100 * MS);
        walk.path.on_traffic(walk.now);
    }
    let after_10_s = walk.sent.len();
    assert!((4..20).contains(&after_10_s), "{after_10_s}");
    for _ in 0..100 {
        walk.run_for(100 * MS);
        walk.path.on_traffic(walk.now);
    }
    assert!(walk.sent.len() <= after_10_s + 4);
}

#[test]
fn planted_faults_are_what_they_say() {
    let faults = MtuFaults { no_echo: true, ..MtuFaults::default() };
    let mut path = PathMtu::new(8192, true, faults);
    path.open(8192);
    assert!(path.poll(1, &mut || 1).is_some());
    assert_eq!(path.payload(), 8192, "believed");
    let mut walk = Walk::new(8192, 9000);
    walk.run_for(100 * MS);
    walk.path.faults.never_shrinks = true;
    walk.mtu = 1500;
    walk.path.on_loss(walk.now);
    walk.run_for(500 * MS);
    walk.path.on_too_long(walk.now, 1500);
    assert!(!walk.path.has_shrunk());
}
