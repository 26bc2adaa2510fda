//! Programs whose devices are served by the daemon, and the ends of both.
#![forbid(unsafe_code)]
#![cfg_attr(test, expect(clippy::disallowed_methods, reason = "tests of processes in real time"))]

#[cfg(test)]
mod tests {
    use std::{
        path::PathBuf,
        process::{Child, Command},
        time::{Duration, Instant},
    };

    use urma::{
        Completions, Context, Jetty, JettyCfg, JettyRecv, JfcCfg, JfrCfg, JfsCfg, Mapping, NodeCfg,
        RecvWr, Region, Segment, SegmentAccess, SegmentCfg, SendOp, SendWr, Status, Token,
        TransportMode,
    };

    /// A running daemon; it is killed and its socket removed at the end.
    struct Daemon {
        child: Child,
        socket: PathBuf,
    }

    impl Daemon {
        fn start(name: &str) -> Self {
            let file = format!("ubcored-{}-{name}", std::process::id());
            let socket = std::env::temp_dir().join(file);
            let program = env!("CARGO_BIN_EXE_ubcored");
            let child = Command::new(program).arg("--socket").arg(&socket).spawn().unwrap();
            let deadline = Instant::now() + Duration::from_secs(10);
            while !socket.exists() && Instant::now() < deadline {
                std::thread::sleep(Duration::from_millis(5));
            }
            Self { child, socket }
        }

        fn kill(&mut self) {
            self.child.kill().unwrap();
            self.child.wait().unwrap();
        }

        /// Descriptors that the daemon has open.
        fn descriptors(&self) -> usize {
            std::fs::read_dir(format!("/proc/{}/fd", self.child.id())).unwrap().count()
        }
    }

    impl Drop for Daemon {
        fn drop(&mut self) {
            let _ = self.child.kill();
            let _ = self.child.wait();
            let _ = std::fs::remove_file(&self.socket);
        }
    }

    struct End {
        jetty: Jetty,
        completions: Completions,
        segment: Segment,
        memory: Region,
        context: Context,
    }

    impl End {
        fn open(daemon: &Daemon) -> Self {
            let cfg = NodeCfg { ubcored: Some(daemon.socket.clone()), ..NodeCfg::default() };
            let context = urma::open_device(cfg).unwrap().open(0).unwrap();
            let completions = context.create_completions(&JfcCfg::new(64)).unwrap();
            let (jfc, mode) = (completions.jfc(), TransportMode::Rm);
            let recv = JettyRecv::Own { cfg: JfrCfg::new(mode, 16), jfc };
            let cfg = JettyCfg::new(JfsCfg::new(mode, 16), jfc, recv);
            let jetty = context.create_jetty(&cfg).unwrap();
            let memory = Region::private(LEN).unwrap();
            let cfg = SegmentCfg::new(SegmentAccess::REMOTE_ALL).with_token(Token::new(0x5eed));
            let segment = context.register(&memory, &cfg, None).unwrap();
            Self { jetty, completions, segment, memory, context }
        }

        fn done(&mut self) {
            let completion = self.completions.wait(Some(Duration::from_secs(10))).unwrap();
            completion.expect("a completion").success().unwrap();
        }
    }

    const LEN: usize = 1 << 20;
    const BULK: u32 = 300_000;

    #[test]
    fn two_programs_write_read_send_and_do_atomics() {
        let daemon = Daemon::start("ops");
        let (mut here, mut there) = (End::open(&daemon), End::open(&daemon));
        assert_ne!(here.context.eid(), there.context.eid());
        let target = here.context.import_jetty(&there.jetty.remote()).unwrap();
        let access = SegmentAccess::REMOTE_ALL;
        let exported = there.segment.remote();
        let remote = here.context.import_segment(&exported, access, Mapping::None).unwrap();

        let bytes: Vec<u8> =
            (0..BULK).map(|at| at.to_le_bytes()[0] ^ at.to_le_bytes()[1]).collect();
        here.memory.write(0, &bytes).unwrap();
        let src = [here.segment.sge(0, BULK)];
        let op = SendOp::Write { src: &src, dst: remote.at(64) };
        here.jetty.post_send(&[SendWr::new(op, &target, 1)]).unwrap();
        here.done();
        let mut seen = vec![0; bytes.len()];
        there.memory.read(64, &mut seen).unwrap();
        assert!(seen == bytes);

        here.memory.zero(0, LEN).unwrap();
        let dst = [here.segment.sge(0, BULK)];
        let op = SendOp::Read { dst: &dst, src: remote.at(64) };
        here.jetty.post_send(&[SendWr::new(op, &target, 2)]).unwrap();
        here.done();
        here.memory.read(0, &mut seen).unwrap();
        assert!(seen == bytes);

        there.memory.store_u64(0, 100).unwrap();
        let op =
            SendOp::FetchAdd { result: here.segment.sge(0, 8), target: remote.at(0), value: 5 };
        here.jetty.post_send(&[SendWr::new(op, &target, 3)]).unwrap();
        here.done();
        assert_eq!((here.memory.load_u64(0), there.memory.load_u64(0)), (Ok(100), Ok(105)));

        let dst = [there.segment.sge(4096, 64)];
        there.jetty.post_recv(&[RecvWr { dst: &dst, user_ctx: 9 }]).unwrap();
        here.memory.write(0, b"hello").unwrap();
        let src = [here.segment.sge(0, 5)];
        here.jetty.post_send(&[SendWr::new(SendOp::Send { src: &src }, &target, 4)]).unwrap();
        here.done();
        there.done();
        let mut hello = [0; 5];
        there.memory.read(4096, &mut hello).unwrap();
        assert_eq!(&hello, b"hello");
    }

    #[test]
    fn memory_that_the_daemon_cannot_reach_is_refused_at_registration() {
        let daemon = Daemon::start("unreachable");
        let end = End::open(&daemon);
        let memory = Region::private(8192).unwrap();
        let cfg = SegmentCfg::new(SegmentAccess::REMOTE_ALL).with_token(Token::new(1));
        let part = memory.sub(100, 4096).unwrap();
        let refused = end.context.register(&part, &cfg, None).map(|_| ());
        assert_eq!(refused.unwrap_err(), Status::Invalid);
        end.context.register(&memory, &cfg, None).unwrap();
    }

    #[test]
    fn a_killed_daemon_is_an_error_at_once() {
        let mut daemon = Daemon::start("killed");
        let mut end = End::open(&daemon);
        daemon.kill();
        let begun = Instant::now();
        let waited = end.completions.wait(Some(Duration::from_secs(10)));
        assert!(begun.elapsed() < Duration::from_secs(2), "{waited:?}");
        let cfg = SegmentCfg::new(SegmentAccess::REMOTE_ALL).with_token(Token::new(1));
        let memory = Region::private(8192).unwrap();
        assert!(end.context.register(&memory, &cfg, None).is_err());
        assert!(begun.elapsed() < Duration::from_secs(2));
    }

    #[test]
    fn clients_that_left_leave_no_descriptor_in_the_daemon() {
        let daemon = Daemon::start("left");
        let before = daemon.descriptors();
        for _ in 0..3 {
            drop((End::open(&daemon), End::open(&daemon)));
        }
        let deadline = Instant::now() + Duration::from_secs(5);
        while daemon.descriptors() > before && Instant::now() < deadline {
            std::thread::sleep(Duration::from_millis(10));
        }
        assert_eq!(daemon.descriptors(), before);
    }
}
