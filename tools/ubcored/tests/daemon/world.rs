//! A daemon, and programs that use its device.

use std::{
    io::{Read as _, Write as _},
    os::unix::net::UnixStream,
    path::PathBuf,
    process::{Child, Command, Stdio},
    thread::JoinHandle,
    time::{Duration, Instant},
};

use serde_json::Value;
use urma::{
    Completions, Context, ImportedSegment, Jetty, JettyCfg, JettyRecv, JfcCfg, JfrCfg, JfsCfg,
    Mapping, NodeCfg, RecvWr, Region, Segment, SegmentAccess, SegmentCfg, SendOp, SendWr,
    TargetJetty, Token, TransportMode,
};

/// A running daemon; it is killed and its sockets removed at the end.
pub(crate) struct Daemon {
    child: Child,
    pub(crate) socket: PathBuf,
    args: Vec<String>,
    env: Vec<(&'static str, &'static str)>,
}

impl Daemon {
    pub(crate) fn start(name: &str) -> Self {
        Self::with(name, &[], &[])
    }

    pub(crate) fn with(name: &str, args: &[&str], env: &[(&'static str, &'static str)]) -> Self {
        let file = format!("ubcored-{}-{name}", std::process::id());
        let socket = std::env::temp_dir().join(file);
        let args: Vec<String> = args.iter().map(|arg| (*arg).to_owned()).collect();
        let env = env.to_vec();
        let child = spawn(program(), &socket, (&args, &env));
        let daemon = Self { child, socket, args, env };
        daemon.wait();
        daemon
    }

    /// A daemon that may have `files` descriptors.
    pub(crate) fn with_files(name: &str, args: &[&str], files: u32) -> Self {
        let file = format!("ubcored-{}-{name}", std::process::id());
        let socket = std::env::temp_dir().join(file);
        let limit = format!("ulimit -n {files} && exec \"$0\" \"$@\"");
        let mut command = Command::new("sh");
        command.args(["-c", &limit, env!("CARGO_BIN_EXE_ubcored")]);
        let args: Vec<String> = args.iter().map(|arg| (*arg).to_owned()).collect();
        let child = spawn(command, &socket, (&args, &[]));
        let daemon = Self { child, socket, args, env: Vec::new() };
        daemon.wait();
        daemon
    }

    /// Returns the id of its process.
    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Until it answers: both sockets are there, and the node behind them.
    fn wait(&self) {
        until("the daemon answers", || self.get("/status").is_some());
    }

    pub(crate) fn kill(&mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }

    /// The same daemon again, after [`Daemon::kill`].
    pub(crate) fn start_again(&mut self) {
        self.child = spawn(program(), &self.socket, (&self.args, &self.env));
        self.wait();
    }

    /// Descriptors that the daemon has open, and mappings of memory files: what clients can leave behind.
    pub(crate) fn held(&self) -> (usize, usize) {
        let pid = self.child.id();
        let files = std::fs::read_dir(format!("/proc/{pid}/fd")).unwrap().count();
        let maps = std::fs::read_to_string(format!("/proc/{pid}/maps")).unwrap();
        (files, maps.lines().filter(|line| line.contains("memfd:")).count())
    }

    /// What its status socket answers; `None`: it does not.
    pub(crate) fn get(&self, path: &str) -> Option<String> {
        let mut socket = UnixStream::connect(self.status_socket()).ok()?;
        socket.write_all(format!("GET {path} HTTP/1.0\r\n\r\n").as_bytes()).ok()?;
        let mut answer = String::new();
        socket.read_to_string(&mut answer).ok()?;
        let (head, body) = answer.split_once("\r\n\r\n")?;
        head.starts_with("HTTP/1.0 200 ").then(|| body.to_owned())
    }

    pub(crate) fn status_socket(&self) -> PathBuf {
        self.socket.with_added_extension("status")
    }

    pub(crate) fn status(&self) -> Value {
        serde_json::from_str(&self.get("/status").unwrap()).unwrap()
    }

    pub(crate) fn clients(&self) -> Vec<Value> {
        self.status()["clients"].as_array().unwrap().clone()
    }

    pub(crate) fn cfg(&self) -> NodeCfg {
        NodeCfg { ubcored: Some(self.socket.clone()), ..NodeCfg::default() }
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
        let _ = std::fs::remove_file(&self.socket);
        let _ = std::fs::remove_file(self.status_socket());
    }
}

fn program() -> Command {
    Command::new(env!("CARGO_BIN_EXE_ubcored"))
}

fn spawn(
    mut command: Command,
    socket: &PathBuf,
    (args, env): (&[String], &[(&'static str, &'static str)]),
) -> Child {
    command.env("URMA_EID", "random").arg("--socket").arg(socket).args(args);
    for (name, value) in env {
        command.env(name, value);
    }
    command.stdin(Stdio::null()).spawn().unwrap()
}

/// Runs `task` in a thread of user `uid`: its connections are that user's. `None`: this process may not be another user.
pub(crate) fn as_user<T: Send + 'static>(
    uid: u32,
    task: impl FnOnce() -> T + Send + 'static,
) -> Option<JoinHandle<T>> {
    if !rustix::process::getuid().is_root() {
        urma_skip::skip("connecting as another user wants root");
        return None;
    }
    Some(std::thread::spawn(move || {
        rustix::thread::set_thread_res_uid(None, rustix::process::Uid::from_raw(uid), None)
            .unwrap();
        task()
    }))
}

/// Waits, for 20 seconds at most: machines that run other things are slow.
pub(crate) fn until(what: &str, mut is_so: impl FnMut() -> bool) {
    let deadline = Instant::now() + Duration::from_secs(20);
    while !is_so() {
        assert!(Instant::now() < deadline, "not within 20 s: {what}");
        std::thread::sleep(Duration::from_millis(2));
    }
}

/// A program with one object of each kind.
pub(crate) struct End {
    pub(crate) jetty: Jetty,
    pub(crate) completions: Completions,
    pub(crate) segment: Segment,
    pub(crate) memory: Region,
    pub(crate) context: Context,
}

/// What a program was given of another one.
pub(crate) struct Peer {
    pub(crate) target: TargetJetty,
    pub(crate) remote: ImportedSegment,
}

impl End {
    pub(crate) fn open(daemon: &Daemon) -> Self {
        Self::of(urma::open_device(daemon.cfg()).unwrap().open(0).unwrap())
    }

    pub(crate) fn of(context: Context) -> Self {
        let completions = context.create_completions(&JfcCfg::new(64)).unwrap();
        let (jfc, mode) = (completions.jfc(), TransportMode::Rm);
        let recv = JettyRecv::Own { cfg: JfrCfg::new(mode, 16), jfc };
        let cfg = JettyCfg::new(JfsCfg::new(mode, 16), jfc, recv);
        let jetty = context.create_jetty(&cfg).unwrap();
        let memory = Region::private(LEN).unwrap();
        let segment = context.register(&memory, &segment_cfg(), None).unwrap();
        Self { jetty, completions, segment, memory, context }
    }

    pub(crate) fn peer(&self, other: &Self) -> Peer {
        let target = self.context.import_jetty(&other.jetty.remote()).unwrap();
        let exported = other.segment.remote();
        let access = SegmentAccess::REMOTE_ALL;
        let remote = self.context.import_segment(&exported, access, Mapping::None).unwrap();
        Peer { target, remote }
    }

    pub(crate) fn done(&mut self) {
        let completion = self.completions.wait(Some(Duration::from_secs(10))).unwrap();
        completion.expect("a completion").success().unwrap();
    }

    pub(crate) fn write(&mut self, peer: &Peer, (offset, len): (u64, u32), ctx: u64) {
        let src = [self.segment.sge(0, len)];
        let op = SendOp::Write { src: &src, dst: peer.remote.at(offset) };
        self.jetty.post_send(&[SendWr::new(op, &peer.target, ctx)]).unwrap();
    }

    pub(crate) fn send(&mut self, peer: &Peer, len: u32, ctx: u64) {
        let src = [self.segment.sge(0, len)];
        let op = SendOp::Send { src: &src };
        self.jetty.post_send(&[SendWr::new(op, &peer.target, ctx)]).unwrap();
    }

    pub(crate) fn receive(&mut self, (offset, len): (u64, u32), ctx: u64) {
        let dst = [self.segment.sge(offset, len)];
        self.jetty.post_recv(&[RecvWr { dst: &dst, user_ctx: ctx }]).unwrap();
    }
}

pub(crate) fn segment_cfg() -> SegmentCfg {
    SegmentCfg::new(SegmentAccess::REMOTE_ALL).with_token(Token::new(0x5eed))
}

pub(crate) const LEN: usize = 1 << 20;
