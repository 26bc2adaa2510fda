//! Peers of one host: found, refused, lost; and processes short of descriptors or memory, for which no peer is
//! blamed.
//!
//! Limits hold for a whole process, so tests of shortage run in a process of their own.

use std::{
    os::fd::{AsFd, BorrowedFd},
    process::Command,
    time::Duration,
};

use rustix::{
    event::{EventfdFlags, eventfd},
    process::{Resource, Rlimit, getrlimit, setrlimit},
};
use urma_mem::{Arena, Pages, Region, procvm::ProcessMemory};

use super::*;
use crate::host::{
    interrupt::take,
    memory::FileSharing,
    peer::hello::{FDS, Hello},
    scheduler::poll::ReadyList,
    shared::new_wakeup,
};

/// A node without a device.
struct Side {
    peers: Peers,
    poll: Arc<Poll>,
    ready: ReadyList,
    seen: Vec<PeerEvent>,
}

impl Side {
    fn new(claim: Claim, path: PathChoice) -> Self {
        let poll = Arc::new(Poll::new().unwrap());
        let share = share(claim.eid(), 7);
        let peers = Peers::new(share, claim, path, Arc::clone(&poll)).unwrap();
        Self { peers, poll, ready: ReadyList::default(), seen: Vec::new() }
    }

    fn auto() -> Self {
        Self::new(Claim::random().unwrap(), PathChoice::Auto)
    }

    /// Two sides, the first with the lower EID.
    fn pair() -> [Self; 2] {
        let mut claims = [Claim::random().unwrap(), Claim::random().unwrap()];
        claims.sort_by_key(Claim::eid);
        claims.map(|claim| Self::new(claim, PathChoice::Auto))
    }

    fn eid(&self) -> RawEid {
        self.peers.share.eid
    }

    /// One round of what the background thread does.
    fn turn(&mut self, now: Nanos) {
        self.poll.wait(&mut self.ready, Some(Duration::ZERO)).unwrap();
        for key in self.ready.keys() {
            match key {
                CLAIM_KEY => self.peers.on_claim_ready(now),
                key => self.peers.on_ready(key),
            }
        }
        self.peers.on_tick(now);
        self.seen.extend(std::iter::from_fn(|| self.peers.poll_event()));
    }

    /// The parts of the last event, which must be that of a same-host peer.
    fn parts(&mut self) -> (RawEid, SameHostParts) {
        match self.seen.pop() {
            Some(PeerEvent::SameHost { eid, parts }) => (eid, *parts),
            other => panic!("{other:?}"),
        }
    }

    fn links(&self) -> usize {
        self.peers.links.len()
    }
}

fn share(eid: RawEid, incarnation: u64) -> LocalShare {
    let node_region = Region::shared(8192, Pages::Base).unwrap();
    node_region.write(0, &eid.0).unwrap();
    node_region.seal_future_write().unwrap();
    LocalShare {
        eid,
        incarnation,
        node_region,
        arena: Arena::new().unwrap(),
        half_len: 16384,
        wake: new_wakeup().unwrap(),
        kernel_reads: KernelReads::Probe,
        file_sharing: FileSharing::On,
    }
}

/// Turns all sides until nothing more is expected; virtual time starts at 0 and moves by
/// a millisecond a round.
fn step_all(sides: &mut [&mut Side], rounds: u64) {
    for round in 0..rounds {
        for side in sides.iter_mut() {
            side.turn(round * 1_000_000);
        }
    }
}

/// What `look` finds at last: a process that another test starts has this one's descriptors until it
/// runs its program, and keeps open what is closed here.
#[expect(clippy::disallowed_methods, reason = "another process ends what is waited for")]
fn in_time<T>(mut look: impl FnMut() -> Option<T>) -> T {
    let found = (0..10_000).find_map(|_| {
        look().or_else(|| {
            std::thread::sleep(Duration::from_millis(1));
            None
        })
    });
    found.expect("something within ten seconds")
}

/// The name of a node that closed.
fn claim_again(eid: RawEid) -> Claim {
    in_time(|| Claim::of(eid).ok())
}

#[test]
fn a_pair_shares_all_it_shows_and_nothing_more() {
    let (mut a, mut b) = (Side::auto(), Side::auto());
    a.peers.find(0, b.eid());
    step_all(&mut [&mut a, &mut b], 10);
    let (of_b, b_parts) = a.parts();
    let (of_a, a_parts) = b.parts();
    assert_eq!((of_a, of_b), (a.eid(), b.eid()));
    let mut eid = [0; 16];
    b_parts.peer_node.read(0, &mut eid).unwrap();
    assert_eq!(eid, b.eid().0);
    assert!(!b_parts.peer_node.is_writable() && !b_parts.peer_half.is_writable());
    b_parts.my_half.write(100, b"ring").unwrap();
    let mut ring = [0; 4];
    a_parts.peer_half.read(100, &mut ring).unwrap();
    assert_eq!(&ring, b"ring");
    assert_eq!(b_parts.peer_arena.len() as u64, b.peers.share.arena.len());
    assert!(b_parts.peer_arena.is_writable());
    b_parts.wake.wake();
    assert!(take(b.peers.share.wake.as_fd()));
    let pid = b_parts.process.as_ref().map(ProcessMemory::pid);
    assert_eq!(pid, Some(std::process::id()));
    assert_eq!((a.links(), b.links()), (1, 1));
}

#[test]
fn simultaneous_connects_make_one_connection() {
    for order in 0..4 {
        let [mut a, mut b] = Side::pair();
        let (a_eid, b_eid) = (a.eid(), b.eid());
        a.peers.find(0, b_eid);
        b.peers.find(0, a_eid);
        match order {
            0 => step_all(&mut [&mut a, &mut b], 40),
            1 => step_all(&mut [&mut b, &mut a], 40),
            2 => {
                step_all(&mut [&mut a], 3);
                step_all(&mut [&mut b, &mut a], 40);
            }
            _ => {
                step_all(&mut [&mut b], 3);
                step_all(&mut [&mut a, &mut b], 40);
            }
        }
        assert_eq!((a.seen.len(), b.seen.len()), (1, 1), "order {order}: {:?}", a.seen);
        assert_eq!((a.links(), b.links()), (1, 1));
        let (_, b_parts) = a.parts();
        let (_, a_parts) = b.parts();
        a_parts.my_half.write(0, b"x").unwrap();
        let mut byte = [0];
        b_parts.peer_half.read(0, &mut byte).unwrap();
        assert_eq!(&byte, b"x", "both must hold parts of the same connection");
    }
}

#[test]
fn no_node_here_means_packets_or_nothing() {
    let unclaimed = Claim::random().unwrap().eid();
    let mut auto = Side::auto();
    auto.peers.find(0, unclaimed);
    step_all(&mut [&mut auto], 2);
    assert!(matches!(auto.seen[..], [PeerEvent::Packets { .. }]));
    let mut strict = Side::new(Claim::random().unwrap(), PathChoice::SameHost);
    strict.peers.find(0, unclaimed);
    step_all(&mut [&mut strict], 2);
    assert!(matches!(strict.seen[..], [PeerEvent::NoPeer { status: CmdStatus::Unreachable, .. }]));
}

#[test]
fn a_node_for_packets_only_refuses_and_the_other_goes_by_packets() {
    let mut a = Side::auto();
    let mut b = Side::new(Claim::random().unwrap(), PathChoice::Packets);
    a.peers.find(0, b.eid());
    b.peers.find(0, a.eid());
    step_all(&mut [&mut a, &mut b], 10);
    assert!(matches!(a.seen[..], [PeerEvent::Packets { .. }]));
    assert!(matches!(b.seen[..], [PeerEvent::Packets { .. }]));
    assert_eq!((a.links(), b.links()), (0, 0));
}

#[test]
fn a_stopped_peer_costs_a_bounded_wait() {
    let (mut a, b) = (Side::auto(), Side::auto());
    a.peers.find(0, b.eid());
    let mut now = 0;
    a.turn(now);
    assert!(a.seen.is_empty());
    while a.seen.is_empty() {
        now = a.peers.poll_deadline(now).expect("a wait has a bound");
        a.turn(now);
    }
    assert!(matches!(a.seen[..], [PeerEvent::NoPeer { status: CmdStatus::Timeout, .. }]));
    assert!(now <= ANSWER_NS);
    assert_eq!(a.links(), 0);
}

#[test]
fn a_full_queue_is_tried_again_until_there_is_room() {
    let (mut a, mut b) = (Side::auto(), Side::auto());
    let mut waiting = Vec::new();
    while let Connect::Connected(socket) = claim::connect(b.eid()).unwrap() {
        waiting.push(socket);
    }
    a.peers.find(0, b.eid());
    step_all(&mut [&mut a], 3);
    assert!(a.seen.is_empty());
    drop(waiting);
    step_all(&mut [&mut a, &mut b], 100);
    assert!(matches!(a.seen[..], [PeerEvent::SameHost { .. }]));
}

#[test]
fn a_death_is_reported_once_and_a_new_life_is_a_new_peer() {
    let (mut a, mut b) = (Side::auto(), Side::auto());
    let b_eid = b.eid();
    a.peers.find(0, b_eid);
    step_all(&mut [&mut a, &mut b], 10);
    assert!(matches!(a.seen[..], [PeerEvent::SameHost { .. }]));
    drop(b);
    let mut b = Side::new(claim_again(b_eid), PathChoice::Auto);
    in_time(|| {
        step_all(&mut [&mut a], 3);
        (a.seen.len() > 1).then_some(())
    });
    assert!(matches!(a.seen[1..], [PeerEvent::Gone { .. }]));
    b.peers.share.incarnation = 8;
    b.peers.find(0, a.eid());
    step_all(&mut [&mut b, &mut a], 10);
    assert!(matches!(a.seen[2..], [PeerEvent::SameHost { .. }]));
    assert_eq!(a.links(), 1);
}

#[test]
fn who_seeks_a_peer_that_came_again_finds_its_new_life() {
    let (mut a, mut b) = (Side::auto(), Side::auto());
    let b_eid = b.eid();
    a.peers.find(0, b_eid);
    step_all(&mut [&mut a, &mut b], 10);
    let (_, parts) = a.parts();
    assert!(!parts.wake.is_gone());
    drop(b);
    let mut b = Side::new(claim_again(b_eid), PathChoice::Auto);
    // The connection was not looked at yet.
    in_time(|| parts.wake.is_gone().then_some(()));
    a.peers.find(0, b_eid);
    step_all(&mut [&mut a, &mut b], 10);
    assert!(matches!(a.seen[..], [PeerEvent::Gone { .. }, PeerEvent::SameHost { .. }]));
    // A side that closed the pair itself has no peer either.
    let (_, parts) = a.parts();
    assert!(!parts.wake.is_gone());
    a.peers.forget(b_eid);
    assert!(parts.wake.is_gone());
}

#[test]
fn forgetting_hangs_up() {
    let (mut a, mut b) = (Side::auto(), Side::auto());
    a.peers.find(0, b.eid());
    step_all(&mut [&mut a, &mut b], 10);
    a.peers.forget(b.eid());
    step_all(&mut [&mut a, &mut b], 3);
    assert!(matches!(b.seen[1..], [PeerEvent::Gone { .. }]));
    assert!(matches!(a.seen[..], [PeerEvent::SameHost { .. }]));
    a.peers.find(0, b.eid());
    step_all(&mut [&mut a, &mut b], 10);
    assert_eq!((a.links(), b.links()), (1, 1));
}

/// A peer of which every part can be wrong.
struct Liar {
    claim: Claim,
    share: LocalShare,
    half: Region,
    socket: OwnedFd,
}

impl Liar {
    fn connect(to: &Side) -> Self {
        let claim = Claim::random().unwrap();
        let share = share(claim.eid(), 1);
        let half = Region::shared(16384, Pages::Base).unwrap();
        let Connect::Connected(socket) = claim::connect(to.eid()).unwrap() else { panic!() };
        Self { claim, share, half, socket }
    }

    fn hello(&self, to: &Side) -> Hello {
        Hello {
            kind: HelloKind::Offer,
            incarnation: 1,
            eid: self.claim.eid(),
            to: to.eid(),
            node_len: 8192,
            arena_len: self.share.arena.len(),
            half_len: 16384,
            probe: 0,
        }
    }

    fn fds(&self) -> [BorrowedFd<'_>; FDS] {
        [
            self.share.node_region.fd().unwrap().0,
            self.share.arena.fd(),
            self.half.fd().unwrap().0,
            self.share.wake.as_fd(),
        ]
    }

    /// What `to` answers to a message with descriptors.
    fn say(&self, to: &mut Side, hello: &Hello, fds: &[BorrowedFd<'_>]) -> Option<HelloKind> {
        hello::send(&self.socket, hello, fds).unwrap();
        step_all(&mut [to], 3);
        hello::receive(&self.socket).ok().map(|received| received.hello.kind)
    }
}

fn refused(kind: Option<HelloKind>) -> bool {
    matches!(kind, None | Some(HelloKind::Refuse(_)))
}

#[test]
fn an_honest_liar_is_accepted() {
    let mut a = Side::auto();
    let liar = Liar::connect(&a);
    let hello = liar.hello(&a);
    assert_eq!(liar.say(&mut a, &hello, &liar.fds()), Some(HelloKind::Accept));
    assert_eq!((a.links(), a.peers.lies()), (1, 0));
}

#[test]
fn lying_lengths_are_refused() {
    let lies: [fn(&mut Hello); 9] = [
        |h| h.node_len = 8193 + 4096,
        |h| h.node_len = 0,
        |h| h.node_len = u64::MAX,
        |h| h.arena_len += 4096,
        |h| h.arena_len = 0,
        |h| h.half_len = 1 << 20,
        |h| h.half_len = 0,
        |h| h.half_len = u64::MAX - 4095,
        |h| h.half_len = 1 << 40,
    ];
    for (i, lie) in lies.into_iter().enumerate() {
        let mut a = Side::auto();
        let liar = Liar::connect(&a);
        let mut hello = liar.hello(&a);
        lie(&mut hello);
        assert!(refused(liar.say(&mut a, &hello, &liar.fds())), "lie {i}");
        assert_eq!((a.links(), a.peers.lies()), (0, 1), "lie {i}");
        assert!(a.seen.is_empty());
    }
}

#[test]
fn lying_names_are_refused() {
    let other = Claim::random().unwrap();
    for lie in 0..4 {
        let mut a = Side::auto();
        let liar = Liar::connect(&a);
        let mut hello = liar.hello(&a);
        match lie {
            0 => hello.eid = a.eid(),
            1 => hello.to = other.eid(),
            2 => hello.kind = HelloKind::Accept,
            // No node holds this one.
            _ => hello.eid = RawEid([9; 16]),
        }
        assert!(refused(liar.say(&mut a, &hello, &liar.fds())), "lie {lie}");
        assert_eq!(a.links(), 0, "lie {lie}");
    }
}

#[test]
fn missing_surplus_and_wrong_descriptors_are_refused() {
    let (null, blocking) =
        (std::fs::File::open("/dev/null").unwrap(), eventfd(0, EventfdFlags::CLOEXEC).unwrap());
    let shrinkable = rustix::fs::memfd_create("x", rustix::fs::MemfdFlags::ALLOW_SEALING).unwrap();
    rustix::fs::ftruncate(&shrinkable, 1 << 20).unwrap();
    for at in 0..FDS {
        for wrong in [null.as_fd(), blocking.as_fd(), shrinkable.as_fd()] {
            let mut a = Side::auto();
            let liar = Liar::connect(&a);
            let mut fds = liar.fds();
            fds[at] = wrong;
            let hello = liar.hello(&a);
            assert!(refused(liar.say(&mut a, &hello, &fds)), "descriptor {at}");
            assert_eq!((a.links(), a.peers.lies()), (0, 1), "descriptor {at}");
        }
    }
    for count in 0..FDS {
        let mut a = Side::auto();
        let liar = Liar::connect(&a);
        let hello = liar.hello(&a);
        assert!(refused(liar.say(&mut a, &hello, &liar.fds()[..count])), "{count} descriptors");
        assert_eq!(a.links(), 0);
    }
}

#[test]
fn garbage_and_silence_are_cut() {
    use rustix::net::{SendFlags, send};
    let hello_len = hello::LEN;
    for len in [1, 8, hello_len - 1, hello_len, hello_len + 1, 4096] {
        let mut a = Side::auto();
        let liar = Liar::connect(&a);
        send(&liar.socket, &vec![0xa5; len], SendFlags::empty()).unwrap();
        step_all(&mut [&mut a], 3);
        assert_eq!((a.links(), a.peers.lies()), (0, 1), "{len} bytes");
    }
    let mut a = Side::auto();
    let _silent: Vec<_> = (0..10).map(|_| Liar::connect(&a)).collect();
    step_all(&mut [&mut a], 3);
    assert_eq!(a.links(), 10);
    step_all(&mut [&mut a], 1 + ANSWER_NS / 1_000_000);
    assert_eq!((a.links(), a.seen.len()), (0, 0));
}

/// Counts the warnings of its thread.
#[derive(Clone, Default)]
struct Warnings(Arc<std::sync::Mutex<usize>>);

impl tracing::Subscriber for Warnings {
    fn enabled(&self, of: &tracing::Metadata<'_>) -> bool {
        *of.level() <= tracing::Level::WARN
    }
    fn new_span(&self, _of: &tracing::span::Attributes<'_>) -> tracing::span::Id {
        tracing::span::Id::from_u64(1)
    }
    fn record(&self, _span: &tracing::span::Id, _values: &tracing::span::Record<'_>) {}
    fn record_follows_from(&self, _span: &tracing::span::Id, _follows: &tracing::span::Id) {}
    fn event(&self, _event: &tracing::Event<'_>) {
        *self.0.lock().unwrap() += 1;
    }
    fn enter(&self, _span: &tracing::span::Id) {}
    fn exit(&self, _span: &tracing::span::Id) {}
}

#[test]
fn bad_connections_are_counted_and_seldom_said() {
    use rustix::net::{SendFlags, send};
    let warnings = Warnings::default();
    let mut a = Side::auto();
    tracing::subscriber::with_default(warnings.clone(), || {
        for _ in 0..500 {
            let Connect::Connected(socket) = claim::connect(a.eid()).unwrap() else { panic!() };
            send(&socket, &[0xa5; 8], SendFlags::empty()).unwrap();
            step_all(&mut [&mut a], 2);
        }
    });
    assert_eq!((a.links(), a.peers.lies()), (0, 500));
    assert_eq!(*warnings.0.lock().unwrap(), 9, "at 1, 2, 4 and so on up to 256");
}

#[test]
fn connections_that_say_nothing_are_bounded() {
    let mut a = Side::auto();
    let mut silent = Vec::new();
    while silent.len() < STRANGERS_MAX + 40 {
        for _ in 0..ACCEPTS_PER_CALL {
            let Connect::Connected(socket) = claim::connect(a.eid()).unwrap() else { panic!() };
            silent.push(socket);
        }
        step_all(&mut [&mut a], 3);
    }
    assert_eq!(a.links(), STRANGERS_MAX);
    // They make room after a second.
    step_all(&mut [&mut a], 2 + ANSWER_NS / 1_000_000);
    assert_eq!(a.links(), 0);
    let liar = Liar::connect(&a);
    let hello = liar.hello(&a);
    assert_eq!(liar.say(&mut a, &hello, &liar.fds()), Some(HelloKind::Accept));
}

#[test]
fn speaking_out_of_turn_ends_the_pair() {
    let mut a = Side::auto();
    let liar = Liar::connect(&a);
    let hello = liar.hello(&a);
    assert_eq!(liar.say(&mut a, &hello, &liar.fds()), Some(HelloKind::Accept));
    assert!(refused(liar.say(&mut a, &hello, &liar.fds())));
    assert!(matches!(a.seen[..], [PeerEvent::SameHost { .. }, PeerEvent::Gone { .. }]));
    assert_eq!((a.links(), a.peers.lies()), (0, 1));
}

#[test]
fn a_lying_answer_is_not_taken() {
    for lie in 0..4 {
        let mut a = Side::auto();
        let liar_claim = Claim::random().unwrap();
        a.peers.find(0, liar_claim.eid());
        let socket = liar_claim.accept().unwrap().unwrap();
        let offer = hello::receive(&socket).unwrap();
        let mut answer =
            Hello { kind: HelloKind::Accept, eid: liar_claim.eid(), to: a.eid(), ..offer.hello };
        let mut fds: Vec<_> = offer.fds.iter().map(AsFd::as_fd).collect();
        match lie {
            0 => answer.kind = HelloKind::Offer,
            1 => answer.eid = a.eid(),
            2 => answer.half_len = 1 << 30,
            _ => fds.swap(0, 3),
        }
        hello::send(&socket, &answer, &fds).unwrap();
        step_all(&mut [&mut a], 3);
        assert!(matches!(a.seen[..], [PeerEvent::Packets { .. }]), "lie {lie}: {:?}", a.seen);
        assert_eq!((a.links(), a.peers.lies()), (0, 1), "lie {lie}");
    }
}

const ALONE: &str = "URMA_TEST_ALONE";

/// Runs `body` in a process of its own: this test, started again.
fn alone(test: &str, body: impl FnOnce()) {
    if std::env::var(ALONE).is_ok_and(|name| name == test) {
        return body();
    }
    let name = format!("host::peer::tests::{test}");
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["--exact", &name, "--nocapture"]).env(ALONE, test);
    let output = command.output().unwrap();
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success() && text.contains("1 passed"), "{text}{output:?}");
}

/// Takes all descriptors but `left`.
fn fill(left: usize) -> Vec<OwnedFd> {
    let limit = getrlimit(Resource::Nofile);
    setrlimit(Resource::Nofile, Rlimit { current: Some(200), ..limit }).unwrap();
    let open = || std::fs::File::open("/dev/null").ok().map(OwnedFd::from);
    let mut files: Vec<_> = std::iter::from_fn(open).take(1000).collect();
    files.truncate(files.len() - left);
    files
}

#[test]
fn connections_wait_without_work_until_there_are_descriptors() {
    alone("connections_wait_without_work_until_there_are_descriptors", || {
        let mut a = Side::auto();
        let liar = Liar::connect(&a);
        let full = fill(0);
        let (mut now, mut wakeups) = (0, 0);
        while now < 10_000_000_000 && wakeups < 1000 {
            a.poll.wait(&mut a.ready, Some(Duration::ZERO)).unwrap();
            if a.ready.keys().count() == 0 {
                now = a.peers.poll_deadline(now).expect("a pause ends");
            }
            a.turn(now);
            wakeups += 1;
        }
        assert!((10..60).contains(&wakeups), "{wakeups} in 10 s");
        assert!((10..60).contains(&a.peers.shortages()), "{}", a.peers.shortages());
        drop(full);
        a.turn(a.peers.poll_deadline(now).unwrap());
        let hello = liar.hello(&a);
        assert_eq!(liar.say(&mut a, &hello, &liar.fds()), Some(HelloKind::Accept));
        // The next connection does not have to wait.
        let second = Liar::connect(&a);
        let hello = second.hello(&a);
        assert_eq!(second.say(&mut a, &hello, &second.fds()), Some(HelloKind::Accept));
        assert_eq!(a.peers.lies(), 0);
    });
}

#[test]
fn an_offer_without_room_for_its_descriptors_is_no_lie() {
    alone("an_offer_without_room_for_its_descriptors_is_no_lie", || {
        // Few descriptors end in the receiving call, more of them in what is made or mapped later.
        for left in 0..FDS + 3 {
            let mut a = Side::auto();
            let liar = Liar::connect(&a);
            a.turn(0);
            let hello = liar.hello(&a);
            hello::send(&liar.socket, &hello, &liar.fds()).unwrap();
            let full = fill(left);
            a.turn(0);
            drop(full);
            let answer = hello::receive(&liar.socket).unwrap().hello.kind;
            let expected = if a.links() == 1 {
                HelloKind::Accept
            } else {
                HelloKind::Refuse(SharingRefusal::NoResources)
            };
            assert_eq!((answer, a.peers.lies()), (expected, 0), "{left} descriptors left");
            assert_eq!(a.peers.shortages(), u64::from(a.links() == 0), "{left} descriptors left");
            assert!(left > 2 || a.links() == 0, "{left} descriptors left");
        }
    });
}

#[test]
fn an_answer_without_room_for_its_descriptors_is_no_lie() {
    alone("an_answer_without_room_for_its_descriptors_is_no_lie", || {
        for left in 0..FDS {
            let (mut a, mut b) = (Side::auto(), Side::auto());
            a.peers.find(0, b.eid());
            b.turn(0);
            b.turn(0);
            let full = fill(left);
            a.turn(0);
            drop(full);
            assert!(matches!(a.seen[..], [PeerEvent::Packets { .. }]), "{:?}", a.seen);
            // One in the receiving call; one in accepting the connection that looks up this node's owner.
            assert!(a.peers.lies() == 0 && (1..=2).contains(&a.peers.shortages()));
            let look = a.peers.look();
            assert!(look[0].why_not_faster.unwrap().contains("out of descriptors"), "{look:?}");
        }
    });
}

#[test]
fn without_descriptors_packets_are_used_and_the_reason_is_kept() {
    alone("without_descriptors_packets_are_used_and_the_reason_is_kept", || {
        for left in 0..3 {
            let (mut a, b) = (Side::auto(), Side::auto());
            let full = fill(left);
            a.peers.find(0, b.eid());
            drop(full);
            step_all(&mut [&mut a], 1);
            assert!(matches!(a.seen[..], [PeerEvent::Packets { .. }]), "{left}: {:?}", a.seen);
            assert_eq!((a.peers.lies(), a.peers.shortages()), (0, 1), "{left}");
            let look = a.peers.look();
            assert!(look[0].why_not_faster.unwrap().contains("out of descriptors"), "{look:?}");
        }
    });
}

#[test]
fn memory_that_cannot_be_mapped_is_no_lie() {
    alone("memory_that_cannot_be_mapped_is_no_lie", || {
        let mut a = Side::auto();
        let liar = Liar::connect(&a);
        let hello = liar.hello(&a);
        let limit = getrlimit(Resource::As);
        // An arena is a mapping of 1 TiB.
        setrlimit(Resource::As, Rlimit { current: Some(64 << 30), ..limit }).unwrap();
        let answer = liar.say(&mut a, &hello, &liar.fds());
        setrlimit(Resource::As, limit).unwrap();
        assert_eq!(answer, Some(HelloKind::Refuse(SharingRefusal::NoResources)));
        assert_eq!((a.peers.lies(), a.peers.shortages(), a.links()), (0, 1, 0));
    });
}

#[test]
fn a_peer_that_is_short_is_reached_by_packets() {
    let mut a = Side::auto();
    let claim = Claim::random().unwrap();
    a.peers.find(0, claim.eid());
    let socket = claim.accept().unwrap().unwrap();
    let offer = hello::receive(&socket).unwrap();
    let kind = HelloKind::Refuse(SharingRefusal::NoResources);
    hello::send(&socket, &Hello { kind, ..offer.hello }, &[]).unwrap();
    step_all(&mut [&mut a], 3);
    assert!(matches!(a.seen[..], [PeerEvent::Packets { .. }]));
    let look = a.peers.look();
    assert!(look[0].why_not_faster.unwrap().contains("other process was out of"), "{look:?}");
}
