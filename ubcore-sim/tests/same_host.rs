//! Two processes on one host: the exchange, a killed peer, a stopped peer.
//!
//! *Owns*: the child process (this same binary, chosen by the environment). *Must not*: assert times
//! below a generous hang limit, except the bound that the design promises for a stopped peer.
#![forbid(unsafe_code)]

#[cfg(test)]
mod tests {
    use std::{
        io::{BufRead, BufReader, Read},
        process::{Child, Command, Stdio},
        sync::Arc,
        time::Duration,
    };

    use rustix::process::{Pid, Signal, WaitOptions, kill_process, waitpid};
    use ubcore_sim::{
        host::{
            claim::Claim,
            clock::Clock,
            ip_eid,
            peer::{ANSWER_NS, CLAIM_KEY, KernelReads, LocalShare, PathChoice, PeerEvent, Peers},
            scheduler::poll::{Poll, ReadyList},
            shared::new_wakeup,
        },
        ports::SameHostParts,
    };
    use udma_abi::{CmdStatus, RawEid};
    use urma_mem::{Arena, Pages, Region};

    const ROLE: &str = "URMA_TEST_CHILD";
    /// Nothing here takes longer, however loaded the machine is.
    const HANG: Duration = Duration::from_secs(20);

    /// A node without a device.
    struct Side {
        peers: Peers,
        poll: Arc<Poll>,
        ready: ReadyList,
        clock: Clock,
        eid: RawEid,
        node_region: Region,
    }

    impl Side {
        fn new() -> Self {
            let claim = Claim::random().unwrap();
            let eid = claim.eid();
            let node_region = Region::shared(8192, Pages::Base).unwrap();
            node_region.write(0, &eid.0).unwrap();
            node_region.seal_future_write().unwrap();
            let share = LocalShare {
                eid,
                incarnation: 1,
                node_region: node_region.clone(),
                arena: Arena::new().unwrap(),
                half_len: 8192,
                wake: new_wakeup().unwrap(),
                kernel_reads: KernelReads::Probe,
                file_sharing: Default::default(),
            };
            let poll = Arc::new(Poll::new().unwrap());
            let peers = Peers::new(share, claim, PathChoice::SameHost, Arc::clone(&poll)).unwrap();
            let clock = Clock::default();
            Self { peers, poll, ready: ReadyList::default(), clock, eid, node_region }
        }

        fn find(&mut self, eid: RawEid) {
            self.peers.find(self.clock.now(), eid);
        }

        /// The next event; `None` at the hang limit.
        fn next_event(&mut self) -> Option<PeerEvent> {
            let end = self.clock.now() + u64::try_from(HANG.as_nanos()).unwrap();
            loop {
                if let Some(event) = self.peers.poll_event() {
                    return Some(event);
                }
                let now = self.clock.now();
                let until = self.peers.poll_deadline(now).unwrap_or(end).min(end);
                if now >= end {
                    return None;
                }
                let wait = Duration::from_nanos(until.saturating_sub(now));
                self.poll.wait(&mut self.ready, Some(wait)).unwrap();
                let now = self.clock.now();
                for key in self.ready.keys() {
                    match key {
                        CLAIM_KEY => self.peers.on_claim_ready(now),
                        key => self.peers.on_ready(key),
                    }
                }
                self.peers.on_tick(now);
            }
        }

        fn next_parts(&mut self) -> SameHostParts {
            match self.next_event() {
                Some(PeerEvent::SameHost { parts, .. }) => *parts,
                other => panic!("{other:?}"),
            }
        }
    }

    /// The other process; it is killed when the value goes.
    struct Other {
        child: Child,
        eid: RawEid,
    }

    impl Other {
        fn start() -> Self {
            let mut child = Command::new(std::env::current_exe().unwrap())
                .args(["--exact", "tests::child", "--ignored", "--nocapture", "--test-threads=1"])
                .env(ROLE, "1")
                .stdin(Stdio::piped())
                .stdout(Stdio::piped())
                .spawn()
                .unwrap();
            let lines = BufReader::new(child.stdout.take().unwrap()).lines();
            let text = lines
                .map_while(Result::ok)
                .find_map(|line| line.split_once("eid=").map(|(_, eid)| eid.to_owned()))
                .expect("the child says its EID");
            Self { child, eid: ip_eid(text.parse().unwrap()) }
        }

        fn signal(&self, signal: Signal) {
            let pid = Pid::from_child(&self.child);
            kill_process(pid, signal).unwrap();
            if signal == Signal::STOP {
                // It stops a moment after the call.
                waitpid(Some(pid), WaitOptions::UNTRACED).unwrap();
            }
        }
    }

    impl Drop for Other {
        fn drop(&mut self) {
            let _ = self.child.kill();
            let _ = self.child.wait();
        }
    }

    /// What the other process does: answers, and echoes the first word of each peer's half.
    #[test]
    #[ignore = "started by the tests of two processes"]
    fn child() {
        assert!(std::env::var_os(ROLE).is_some(), "the other tests start it");
        let mut side = Side::new();
        println!("eid={}", ubcore_sim::host::eid_ip(side.eid));
        std::thread::spawn(|| {
            let _ = std::io::stdin().read(&mut [0]);
            std::process::exit(0);
        });
        let mut open = Vec::new();
        loop {
            match side.next_event() {
                Some(PeerEvent::SameHost { parts, .. }) => {
                    let word = loop {
                        match parts.peer_half.load_u64(0).unwrap() {
                            0 => std::thread::yield_now(),
                            word => break word,
                        }
                    };
                    parts.my_half.store_u64(0, word + 1).unwrap();
                    open.push(parts);
                }
                Some(_) => {}
                None => return,
            }
        }
    }

    #[test]
    fn two_processes_share_halves_and_may_copy_through_the_kernel() {
        let other = Other::start();
        let mut side = Side::new();
        side.find(other.eid);
        let parts = side.next_parts();
        let mut eid = [0; 16];
        parts.peer_node.read(0, &mut eid).unwrap();
        assert_eq!(eid, other.eid.0);
        parts.my_half.store_u64(0, 41).unwrap();
        let end = side.clock.now() + u64::try_from(HANG.as_nanos()).unwrap();
        while parts.peer_half.load_u64(0).unwrap() != 42 {
            assert!(side.clock.now() < end, "the other process does not answer");
            std::thread::yield_now();
        }
        match &parts.process {
            Some(process) => assert_eq!(process.pid(), other.child.id()),
            None => urma_skip::skip("the kernel lets no process read another one"),
        }
        assert!(side.node_region.is_writable());
    }

    #[test]
    fn a_killed_process_is_noticed_and_its_eid_free() {
        let mut other = Other::start();
        let mut side = Side::new();
        side.find(other.eid);
        let parts = side.next_parts();
        parts.my_half.store_u64(0, 1).unwrap();
        other.signal(Signal::KILL);
        match side.next_event() {
            Some(PeerEvent::Gone { eid }) => assert_eq!(eid, other.eid),
            event => panic!("{event:?}"),
        }
        // Its descriptors go one by one; all are gone when it is.
        other.child.wait().unwrap();
        assert!(Claim::of(other.eid).is_ok());
        // What it shared stays readable: nothing faults.
        assert!(parts.peer_node.load_u64(0).is_ok());
    }

    #[test]
    fn a_stopped_process_costs_a_bounded_wait_and_none_once_connected() {
        let other = Other::start();
        let mut connected = Side::new();
        connected.find(other.eid);
        let parts = connected.next_parts();
        parts.my_half.store_u64(0, 1).unwrap();
        other.signal(Signal::STOP);
        let mut late = Side::new();
        let start = late.clock.now();
        late.find(other.eid);
        match late.next_event() {
            Some(PeerEvent::NoPeer { status: CmdStatus::Timeout, .. }) => {}
            event => panic!("{event:?}"),
        }
        let waited = late.clock.now() - start;
        assert!(waited >= ANSWER_NS && u128::from(waited) < HANG.as_nanos(), "{waited} ns");
        // Sending a wake-up of a stopped process never waits.
        for _ in 0..10_000 {
            parts.wake.wake();
        }
        other.signal(Signal::CONT);
        late.find(other.eid);
        assert!(matches!(late.next_event(), Some(PeerEvent::SameHost { .. })));
    }

    #[test]
    fn a_thousand_opens_leave_no_descriptor() {
        let count = || std::fs::read_dir("/proc/self/fd").unwrap().count();
        let other = Side::new();
        let eid = other.eid;
        let handle = std::thread::spawn(move || {
            let mut other = other;
            let mut gone = 0;
            while gone < 200 {
                match other.next_event() {
                    Some(PeerEvent::Gone { .. }) => gone += 1,
                    Some(_) => {}
                    None => panic!("hang"),
                }
            }
        });
        let mut counts = Vec::new();
        for _ in 0..200 {
            let mut side = Side::new();
            side.find(eid);
            drop(side.next_parts());
            drop(side);
            counts.push(count());
        }
        handle.join().unwrap();
        // Other tests of this process open descriptors, too; a leak would grow with the rounds.
        let (first, last) = (counts[..100].iter().max(), counts[100..].iter().min());
        assert!(last <= first, "{counts:?}");
    }
}
