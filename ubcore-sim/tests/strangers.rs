//! Processes of other users, namespaces and names: what they get from a node on the same host.
//!
//! *Owns*: child processes (this same binary, started under another user or in another user
//! namespace). *Takes*: `unshare` and `nsenter` of util-linux. *Must not*: assert a time below a hang
//! limit.
#![forbid(unsafe_code)]

#[cfg(test)]
mod tests {
    use std::{
        io::{BufRead, BufReader, Write},
        os::{fd::AsFd, unix::fs::PermissionsExt, unix::process::CommandExt},
        path::Path,
        process::{Child, ChildStdout, Command, Stdio},
        sync::{Arc, mpsc},
        time::Duration,
    };

    use rustix::event::{PollFd, PollFlags, poll};
    use rustix::process::DumpableBehavior;
    use ubcore_sim::{
        Node, NodeCfg,
        host::{
            claim::{self, Claim, Connect},
            clock::Clock,
            eid_ip, ip_eid,
            peer::hello::{self, Hello, HelloKind, ReceivedHello},
            peer::trust::ShareWith,
            peer::{CLAIM_KEY, KernelReads, LocalShare, PathChoice, PeerEvent, Peers},
            scheduler::poll::{Poll, ReadyList},
            shared::new_wakeup,
        },
    };
    use udma_abi::RawEid;
    use urma_mem::{Arena, MapAccess, Pages, Region};

    const CHILD: &str = "URMA_TEST_CHILD";
    /// Nothing here takes longer, however loaded the machine is.
    const HANG: Duration = Duration::from_secs(60);
    /// Two users, neither this process's nor each other.
    const USERS: [u32; 2] = [61_234, 61_235];

    fn share(eid: RawEid) -> LocalShare {
        let node_region = Region::shared(8192, Pages::Base).unwrap();
        LocalShare {
            eid,
            incarnation: 1,
            node_region,
            arena: Arena::new().unwrap(),
            half_len: 8192,
            wake: new_wakeup().unwrap(),
            kernel_reads: KernelReads::Probe,
            file_sharing: Default::default(),
        }
    }

    /// The message that `socket` receives; `None`: the other side hung up.
    fn receive(socket: impl AsFd) -> Option<ReceivedHello> {
        let mut fds = [PollFd::new(&socket, PollFlags::IN)];
        let bound = HANG.try_into().unwrap();
        assert_eq!(poll(&mut fds, Some(&bound)).unwrap(), 1, "no answer");
        hello::receive(&socket).ok()
    }

    /// The answer of node `to` to an offer in the name of `from`; nothing is checked before it is sent.
    fn offer(from: RawEid, to: RawEid) -> Option<ReceivedHello> {
        let Connect::Connected(socket) = claim::connect(to).unwrap() else { panic!("no node") };
        let (share, half) = (share(from), Region::shared(8192, Pages::Base).unwrap());
        let hello = Hello {
            kind: HelloKind::Offer,
            incarnation: 1,
            eid: from,
            to,
            node_len: share.node_region.len() as u64,
            arena_len: share.arena.len(),
            half_len: 8192,
            probe: 0,
        };
        let fds = [
            share.node_region.fd().unwrap().0,
            share.arena.fd(),
            half.fd().unwrap().0,
            share.wake.as_fd(),
        ];
        // A refusal may have closed the connection already; it is still to be read.
        let _ = hello::send(&socket, &hello, &fds);
        receive(&socket)
    }

    /// What the other process does: the commands of its input, `find`, `offer` and `accept`. Started
    /// with a node, it answers connections meanwhile.
    #[test]
    #[ignore = "started by the other tests"]
    fn child() {
        let role = std::env::var_os(CHILD).expect("a role");
        if role.as_encoded_bytes().starts_with(b"whole") {
            return be_whole(role == "whole-guarded");
        }
        let claim = Claim::random().unwrap();
        let eid = claim.eid();
        println!("eid={}", eid_ip(eid));
        let (sender, commands) = mpsc::channel();
        std::thread::spawn(move || {
            let lines = std::io::stdin().lines().map_while(Result::ok);
            lines.for_each(|line| sender.send(line).unwrap_or_default());
        });
        if role.as_encoded_bytes().ends_with(b"guarded") {
            rustix::process::set_dumpable_behavior(DumpableBehavior::NotDumpable).unwrap();
        }
        if role != "stranger" {
            let is_open = role.as_encoded_bytes().starts_with(b"open");
            let with = if is_open { ShareWith::User } else { ShareWith::Tracers };
            return serve(claim, with, &commands);
        }
        while let Ok(line) = commands.recv_timeout(HANG) {
            let got = match line.strip_prefix("offer ") {
                Some(to) => offer(eid, ip_eid(to.parse().unwrap())),
                None => {
                    let mut fds = [PollFd::new(&claim, PollFlags::IN)];
                    poll(&mut fds, Some(&HANG.try_into().unwrap())).unwrap();
                    receive(claim.accept().unwrap().unwrap())
                }
            };
            println!("descriptors={}", got.map_or(0, |got| got.fds.len()));
        }
    }

    /// A node as a program opens it that has no settings, until the test is over.
    fn be_whole(is_guarded: bool) {
        if is_guarded {
            rustix::process::set_dumpable_behavior(DumpableBehavior::NotDumpable).unwrap();
        }
        let node = Node::open(NodeCfg::default()).unwrap();
        println!("eid={}", eid_ip(node.eid()));
        std::io::stdin().lines().for_each(drop);
    }

    fn serve(claim: Claim, with: ShareWith, commands: &mpsc::Receiver<String>) {
        let (poll, clock) = (Arc::new(Poll::new().unwrap()), Clock::default());
        let share = share(claim.eid());
        let mut peers = Peers::new(share, claim, PathChoice::Auto, Arc::clone(&poll)).unwrap();
        peers.share_with(with);
        let mut ready = ReadyList::default();
        let end = u128::from(clock.now()) + HANG.as_nanos();
        while u128::from(clock.now()) < end {
            poll.wait(&mut ready, Some(Duration::from_millis(5))).unwrap();
            for key in ready.keys() {
                match key {
                    CLAIM_KEY => peers.on_claim_ready(clock.now()),
                    key => peers.on_ready(key),
                }
            }
            peers.on_tick(clock.now());
            match commands.try_recv() {
                Ok(line) => peers.find(clock.now(), ip_eid(line.parse().unwrap())),
                Err(mpsc::TryRecvError::Empty) => {}
                Err(mpsc::TryRecvError::Disconnected) => return,
            }
            while let Some(event) = peers.poll_event() {
                match event {
                    PeerEvent::SameHost { .. } => println!("path=same-host"),
                    PeerEvent::Packets { .. } => println!("path=packets"),
                    other => println!("path={other:?}"),
                }
            }
        }
    }

    /// The user namespace of another process.
    #[derive(Clone, Copy, Debug)]
    enum Namespace {
        Same,
        /// A new one without any user.
        Unmapped,
        /// A new one that has its user only, under the same number.
        Mapped,
        /// That of a process.
        Of(u32),
        /// That of this process, without any capability.
        Powerless,
    }

    /// The other process; it is killed when the value goes.
    struct Other {
        child: Child,
        lines: std::io::Lines<BufReader<ChildStdout>>,
        eid: String,
    }

    impl Other {
        fn start(role: &str, user: Option<u32>, namespace: Namespace) -> Self {
            let exe = std::env::current_exe().unwrap();
            let mut command = match namespace {
                Namespace::Same => Command::new(&exe),
                Namespace::Unmapped => tool("unshare", &["--user"], &exe),
                Namespace::Mapped => tool("unshare", &["--user", "--map-current-user"], &exe),
                Namespace::Powerless => {
                    tool("setpriv", &["--bounding-set=-all", "--inh-caps=-all"], &exe)
                }
                Namespace::Of(pid) => {
                    let pid = pid.to_string();
                    tool("nsenter", &["--user", "--preserve-credentials", "-t", &pid], &exe)
                }
            };
            command.args([
                "--ignored",
                "--exact",
                "tests::child",
                "--nocapture",
                "--test-threads=1",
            ]);
            command.env(CHILD, role).current_dir("/").stdin(Stdio::piped()).stdout(Stdio::piped());
            if let Some(user) = user {
                command.uid(user);
            }
            let mut child = command.spawn().unwrap();
            let lines = BufReader::new(child.stdout.take().unwrap()).lines();
            let mut other = Self { child, lines, eid: String::new() };
            other.eid = other.answer("eid=");
            other
        }

        fn answer(&mut self, name: &str) -> String {
            let mut lines = self.lines.by_ref().map_while(Result::ok);
            let answer = lines.find_map(|line| Some(line.split_once(name)?.1.to_owned()));
            answer.expect("the other process goes on")
        }

        fn command(&mut self, line: &str) {
            writeln!(self.child.stdin.as_mut().unwrap(), "{line}").unwrap();
        }
    }

    impl Drop for Other {
        fn drop(&mut self) {
            let _ = self.child.kill();
            let _ = self.child.wait();
        }
    }

    fn tool(name: &str, args: &[&str], exe: &Path) -> Command {
        let mut command = Command::new(name);
        command.args(args).arg(exe);
        command
    }

    /// Users of `count` processes: different ones where this process may choose.
    fn users(count: usize) -> Vec<Option<u32>> {
        let exe = std::env::current_exe().unwrap();
        let is_open = |path: &Path| {
            path.metadata().is_ok_and(|found| found.permissions().mode() & 0o001 == 0o001)
        };
        let may_choose = rustix::process::geteuid().is_root() && exe.ancestors().all(is_open);
        USERS[..count].iter().map(|user| may_choose.then_some(*user)).collect()
    }

    /// Whether user namespaces can be made here; if not, the test is skipped.
    fn namespaces() -> bool {
        let args = ["--user", "--map-current-user", "true"];
        let made = Command::new("unshare").args(args).output();
        let why = match made {
            Ok(output) if output.status.success() => return true,
            Ok(output) => String::from_utf8_lossy(&output.stderr).trim().to_owned(),
            Err(error) => format!("unshare: {error}"),
        };
        urma_skip::skip(format_args!("no user namespaces: {why}"));
        false
    }

    /// Descriptors that the stranger gets from the node, and the node's path to the stranger.
    fn meet(node: &mut Other, stranger: &mut Other) -> ([String; 2], String) {
        stranger.command(&format!("offer {}", node.eid));
        let by_offering = stranger.answer("descriptors=");
        if by_offering != "0" {
            assert_eq!(node.answer("path="), "same-host");
        }
        stranger.command("accept");
        node.command(&stranger.eid);
        let path = if by_offering == "0" { node.answer("path=") } else { "same-host".to_owned() };
        ([by_offering, stranger.answer("descriptors=")], path)
    }

    fn refused() -> ([String; 2], String) {
        (["0".to_owned(), "0".to_owned()], "packets".to_owned())
    }

    #[test]
    fn users_without_a_number_get_nothing_from_each_other() {
        if !namespaces() {
            return;
        }
        let users = users(2);
        let mut node = Other::start("node", users[0], Namespace::Unmapped);
        let mut stranger = Other::start("stranger", users[1], Namespace::Unmapped);
        assert_eq!(meet(&mut node, &mut stranger), refused());
        // The same user in the same namespace: nothing there tells it from others.
        let inside = Namespace::Of(node.child.id());
        let mut friend = Other::start("stranger", users[0], inside);
        assert_eq!(meet(&mut node, &mut friend), refused());
    }

    #[test]
    fn a_user_gets_nothing_from_another_namespace() {
        if !namespaces() {
            return;
        }
        let user = users(1)[0];
        for namespaces in
            [[Namespace::Mapped, Namespace::Same], [Namespace::Same, Namespace::Mapped]]
        {
            let mut node = Other::start("node", user, namespaces[0]);
            let mut stranger = Other::start("stranger", user, namespaces[1]);
            assert_eq!(meet(&mut node, &mut stranger), refused(), "{namespaces:?}");
        }
    }

    #[test]
    fn a_user_shares_memory_inside_one_namespace() {
        if !namespaces() {
            return;
        }
        let user = users(1)[0];
        let node = Other::start("node", user, Namespace::Mapped);
        let inside = Namespace::Of(node.child.id());
        let mut friend = Other::start("stranger", user, inside);
        friend.command(&format!("offer {}", node.eid));
        assert_eq!(friend.answer("descriptors="), "4");
    }

    #[test]
    fn another_user_gets_nothing() {
        let [Some(mine), Some(other)] = users(2)[..] else {
            return urma_skip::skip("processes of other users need root, and a path open to all");
        };
        // Root may read everything of the other one.
        for users in [[None, Some(other)], [Some(mine), Some(other)], [Some(mine), None]] {
            let mut node = Other::start("node", users[0], Namespace::Same);
            let mut stranger = Other::start("stranger", users[1], Namespace::Same);
            assert_eq!(meet(&mut node, &mut stranger), refused(), "{users:?}");
        }
    }

    #[test]
    fn who_may_not_trace_a_process_gets_nothing_of_it() {
        let [Some(mine)] = users(1)[..] else {
            return urma_skip::skip(
                "who has other rights is started by root, on a path open to all",
            );
        };
        // Not dumpable; with capabilities that another process of its user has not.
        let guarded =
            [("guarded", Some(mine), Namespace::Same), ("node", None, Namespace::Powerless)];
        for (role, user, of_stranger) in guarded {
            let mut node = Other::start(role, user, Namespace::Same);
            let mut stranger = Other::start("stranger", user, of_stranger);
            assert_eq!(meet(&mut node, &mut stranger), refused(), "{role}");
            // Who asks for it shares with all of its user.
            let open = Other::start(&format!("open-{role}"), user, Namespace::Same);
            stranger.command(&format!("offer {}", open.eid));
            assert_eq!(stranger.answer("descriptors="), "4", "{role}");
        }
        // A process with as many rights may trace, and so may one that may trace any process.
        for role in ["node", "guarded"] {
            let node = Other::start(role, None, Namespace::Same);
            let mut tracer = Other::start("stranger", None, Namespace::Same);
            tracer.command(&format!("offer {}", node.eid));
            assert_eq!(tracer.answer("descriptors="), "4", "{role}");
        }
    }

    #[test]
    fn a_node_without_settings_is_guarded_too() {
        let [Some(mine)] = users(1)[..] else {
            return urma_skip::skip("another user is started by root, on a path open to all");
        };
        let mut stranger = Other::start("stranger", Some(mine), Namespace::Same);
        for (role, descriptors) in [("whole-guarded", "0"), ("whole", "4")] {
            let node = Other::start(role, Some(mine), Namespace::Same);
            stranger.command(&format!("offer {}", node.eid));
            assert_eq!(stranger.answer("descriptors="), descriptors, "{role}");
        }
    }

    #[test]
    fn the_name_of_another_process_is_not_taken() {
        let mut node = Other::start("node", None, Namespace::Same);
        let held_by_another = Other::start("stranger", None, Namespace::Same);
        let to = ip_eid(node.eid.parse().unwrap());
        let answer = offer(ip_eid(held_by_another.eid.parse().unwrap()), to).unwrap();
        assert_eq!(
            (answer.hello.kind, answer.fds.len()),
            (HelloKind::Refuse(hello::SharingRefusal::Lied), 0)
        );
        let own = Claim::random().unwrap();
        assert_eq!(offer(own.eid(), to).unwrap().fds.len(), 4);
        assert_eq!(node.answer("path="), "same-host");
    }

    #[test]
    fn node_region_and_half_cannot_be_changed_by_a_peer() {
        let node = Node::open(NodeCfg::default()).unwrap();
        let own = Claim::random().unwrap();
        let accepted = offer(own.eid(), node.eid()).unwrap();
        let lens = [accepted.hello.node_len, accepted.hello.arena_len, accepted.hello.half_len];
        let mut fds = accepted.fds.into_iter();
        let mut may_write = lens.map(|len| {
            let (fd, len) = (fds.next().unwrap(), usize::try_from(len).unwrap());
            assert!(rustix::fs::ftruncate(&fd, 0).is_err(), "the file may shrink");
            let copy = fd.try_clone().unwrap();
            assert!(Region::map_fd(copy, 0, len, MapAccess::ReadOnly).is_ok());
            let is_written = rustix::io::pwrite(&fd, b"peer", 0).is_ok();
            is_written | Region::map_fd(fd, 0, len, MapAccess::ReadWrite).is_ok()
        });
        // The arena is what peers are to write.
        assert!(std::mem::replace(&mut may_write[1], false));
        assert_eq!(may_write, [false; 3]);
    }
}
