//! RC jetties against Linux rxe, through the URMA API: a node on a socket, IPv4, both directions.
#![forbid(unsafe_code)]

use std::{error::Error, net::IpAddr, path::Path, process::Command, time::Duration};

use ubcore_sim::{RcWire, link::LinkFaults};
use urma::{
    Completion, Completions, Context, CrStatus, Eid, ImportedSegment, Jetty, JettyCfg, JettyId,
    JettyRecv, JfcCfg, JfrCfg, JfsCfg, Mapping, NodeCfg, Opened, RecvWr, Region, RemoteSegment,
    Segment, SegmentAccess, SegmentCfg, SendOp, SendWr, StartPsns, TargetJetty, Token, TokenId,
    TokenPolicy, TransportMode, Ubva,
};
use urma_interop::{Guest, GuestCompletion, Image};
use urma_net::Namespace;

type Outcome<T = ()> = Result<T, Box<dyn Error>>;

/// Status of a guest's completion, as verbs number them.
const SUCCESS: u32 = 0;
const REMOTE_ACCESS: u32 = 10;
const RETRY_EXCEEDED: u32 = 12;
const OURS: &str = "10.0.0.1";
const THEIRS: &str = "10.0.0.2";
const TOKEN: u32 = 0x9abc_def1;
const LEN: usize = 65_536;
/// Lengths of messages: empty, short, one path MTU, several packets.
const LENGTHS: [u32; 5] = [1, 5, 1024, 1025, 9_000];
/// PSNs of both sides wrap soon.
const PSNS: [u32; 2] = [0x00ff_fff0, 0x00ff_fff8];

/// A request, with its address in the guest's region.
enum What {
    /// Has this immediate behind it.
    Send(u64),
    Write(u64),
    WriteImm(u64, u64),
    Read(u64),
    Add(u64, u64),
    /// Compared with, swapped for.
    Cas(u64, [u64; 2]),
}

/// A jetty of this node bound to a queue pair of the guest.
struct Pair<'a> {
    jetty: Jetty,
    completions: Completions,
    segment: Segment,
    memory: Region,
    target: TargetJetty,
    remote: ImportedSegment,
    guest: &'a mut Guest,
    next: u64,
}

impl<'a> Pair<'a> {
    fn open(context: &Context, guest: &'a mut Guest, retry: u32) -> Outcome<Self> {
        let completions = context.create_completions(&JfcCfg::new(64))?;
        let (jfc, mode) = (completions.jfc(), TransportMode::Rc);
        let recv = JettyRecv::Own { cfg: JfrCfg::new(mode, 16), jfc };
        let mut jetty = context.create_jetty(&JettyCfg::new(JfsCfg::new(mode, 16), jfc, recv))?;
        let memory = Region::private(LEN)?;
        let cfg = SegmentCfg::new(SegmentAccess::REMOTE_ALL).with_token(Token::new(TOKEN));
        let segment = context.register(&memory, &cfg, None)?;
        let own = jetty.remote();
        let [ours, theirs] = PSNS;
        let open = format!("open {OURS} {} {theirs} {ours} 1024 14 {retry} 7 12", own.id.id);
        let answer = guest.ask(&open, &mut || {})?;
        let words: Vec<u64> =
            answer.split_whitespace().filter_map(|word| word.parse().ok()).collect();
        let [qpn, va, rkey] = words[..] else { return Err(answer.into()) };
        let eid = Eid::from(THEIRS.parse::<IpAddr>()?);
        let id = JettyId { eid, uasid: own.id.uasid, id: u32::try_from(qpn)? };
        let target =
            context.import_jetty(&urma::RemoteJetty { id, policy: TokenPolicy::None, ..own })?;
        let region = RemoteSegment {
            ubva: Ubva { eid, va, ..segment.remote().ubva },
            len: LEN as u64,
            token_id: TokenId::new(0),
            policy: TokenPolicy::PlainText(Token::new(u32::try_from(rkey)?)),
            ..segment.remote()
        };
        let remote = context.import_segment(&region, SegmentAccess::REMOTE_ALL, Mapping::None)?;
        jetty.bind_with(&target, StartPsns { send: ours, receive: theirs })?;
        Ok(Self { jetty, completions, segment, memory, target, remote, guest, next: 100 })
    }

    fn ask(&mut self, command: &str) -> Outcome<String> {
        Ok(self.guest.ask(command, &mut || {})?)
    }

    /// Posts a request on `len` local bytes at `at`; its completion.
    fn run(&mut self, (at, len): (u64, u32), what: What) -> Outcome<Completion> {
        let pieces = [self.segment.sge(at, len)];
        let (local, to) = (&pieces[..], &self.remote);
        let op = match what {
            What::Send(imm) => SendOp::SendImm { src: local, imm },
            What::Write(at) => SendOp::Write { src: local, dst: to.at(at) },
            What::WriteImm(at, imm) => SendOp::WriteImm { src: local, dst: to.at(at), imm },
            What::Read(at) => SendOp::Read { dst: local, src: to.at(at) },
            What::Add(at, value) => {
                SendOp::FetchAdd { result: pieces[0], target: to.at(at), value }
            }
            What::Cas(at, [compare, swap]) => {
                SendOp::Cas { result: pieces[0], target: to.at(at), compare, swap }
            }
        };
        self.jetty.post_send(&[SendWr::new(op, &self.target, 7)])?;
        let done = self.completions.wait(Some(Duration::from_secs(10)))?;
        Ok(done.ok_or("no completion came")?)
    }

    /// Posts at the guest; its completion.
    fn guest_run(
        &mut self,
        kind: &str,
        (offset, len): (u64, u32),
        at: u64,
        [a, b]: [u64; 2],
    ) -> Outcome<GuestCompletion> {
        let va = self.segment.va() + at;
        let rkey = self.segment.token_id().value().wrapping_add(TOKEN);
        self.next += 1;
        let command = format!("{kind} {} {offset} {len} {va} {rkey} {a} {b}", self.next);
        let posted = self.ask(&command)?;
        assert_eq!(posted, "posted 0", "{command}");
        let done = self.guest_completion()?;
        assert_eq!(done.id, self.next, "{command}");
        Ok(done)
    }

    fn guest_completion(&mut self) -> Outcome<GuestCompletion> {
        Ok(self.guest.poll(15_000, &mut || {})?.ok_or("the guest has no completion")?)
    }

    fn receive(&mut self, at: u64, len: u32) -> Outcome {
        let dst = [self.segment.sge(at, len)];
        Ok(self.jetty.post_recv(&[RecvWr { dst: &dst, user_ctx: 9 }])?)
    }

    fn received(&mut self) -> Outcome<Completion> {
        let done = self.completions.wait(Some(Duration::from_secs(10)))?;
        Ok(done.ok_or("no message came")?)
    }

    fn own(&self, at: usize, len: usize) -> Outcome<Vec<u8>> {
        let mut bytes = vec![0; len];
        self.memory.read(at, &mut bytes)?;
        Ok(bytes)
    }

    fn fill(&self, len: u32) -> Outcome<Vec<u8>> {
        let bytes: Vec<u8> = (0..len).map(|at| (at * 7 + len).to_le_bytes()[0]).collect();
        self.memory.write(0, &bytes)?;
        Ok(bytes)
    }

    /// The guest's bytes equal these.
    fn guest_holds(&mut self, offset: u64, bytes: &[u8]) -> Outcome {
        let hash = bytes.iter().fold(14_695_981_039_346_656_037_u64, |hash, byte| {
            (hash ^ u64::from(*byte)).wrapping_mul(1_099_511_628_211)
        });
        let answer = self.ask(&format!("sum {offset} {}", bytes.len()))?;
        assert!(answer.starts_with(&format!("sum {hash} ")), "{answer}");
        Ok(())
    }
}

/// SEND, WRITE, READ and atomics of this node.
fn to_the_guest(pair: &mut Pair<'_>) -> Outcome {
    for len in LENGTHS {
        let size = usize::try_from(len)?;
        let bytes = pair.fill(len)?;
        pair.ask(&format!("recv 7 0 {}", len.max(8)))?;
        let sent = pair.run((0, len), What::Send(77))?;
        assert_eq!((sent.status, sent.user_ctx), (CrStatus::Success, 7), "SEND of {len}");
        let received = pair.guest_completion()?;
        assert_eq!(received, GuestCompletion { id: 7, status: SUCCESS, len, imm: 77 });
        pair.guest_holds(0, &bytes)?;
        let write = pair.run((0, len), What::Write(16_384))?;
        assert_eq!(write.status, CrStatus::Success, "WRITE of {len}");
        pair.guest_holds(16_384, &bytes)?;
        let read = pair.run((32_768, len), What::Read(16_384))?;
        assert_eq!((read.status, read.len), (CrStatus::Success, len), "READ of {len}");
        assert_eq!(pair.own(32_768, size)?, bytes, "bytes of a READ of {len}");
    }
    pair.ask("recv 8 0 8")?;
    let sent = pair.run((0, 2_000), What::WriteImm(16_384, 99))?;
    assert_eq!(sent.status, CrStatus::Success);
    assert_eq!(pair.guest_completion()?.imm, 99);
    pair.memory.store_u64(0, 40)?;
    pair.run((0, 8), What::Write(8))?;
    let add = pair.run((64, 8), What::Add(8, 2))?;
    assert_eq!((add.status, pair.memory.load_u64(64)?), (CrStatus::Success, 40));
    for found in [42, 7] {
        let cas = pair.run((64, 8), What::Cas(8, [42, 7]))?;
        assert_eq!((cas.status, pair.memory.load_u64(64)?), (CrStatus::Success, found));
    }
    assert!(pair.ask("sum 8 8")?.ends_with(" 7"));
    Ok(())
}

/// SEND, WRITE, READ and atomics of the guest.
fn from_the_guest(pair: &mut Pair<'_>) -> Outcome {
    for len in LENGTHS {
        let size = usize::try_from(len)?;
        pair.ask(&format!("fill 0 {len} {}", len % 200))?;
        let bytes: Vec<u8> = (0..size).map(|at| (at + size % 200).to_le_bytes()[0]).collect();
        pair.receive(0, 16_384)?;
        let sent = pair.guest_run("sendimm", (0, len), 0, [u64::from(len) + 1, 0])?;
        assert_eq!(sent.status, SUCCESS, "SEND of {len}");
        let received = pair.received()?;
        let (ctx, imm) = (received.user_ctx, received.imm);
        assert_eq!((ctx, received.len, imm), (9, len, u64::from(len) + 1));
        assert_eq!(received.remote.eid.to_ip(), THEIRS.parse::<IpAddr>()?);
        assert_eq!(pair.own(0, size)?, bytes, "bytes of a SEND of {len}");
        assert_eq!(pair.guest_run("write", (0, len), 16_384, [0, 0])?.status, SUCCESS);
        assert_eq!(pair.own(16_384, size)?, bytes, "bytes of a WRITE of {len}");
        assert_eq!(pair.guest_run("read", (32_768, len), 16_384, [0, 0])?.status, SUCCESS);
        pair.guest_holds(32_768, &bytes)?;
    }
    pair.receive(0, 8)?;
    assert_eq!(pair.guest_run("writeimm", (0, 3_000), 16_384, [55, 0])?.status, SUCCESS);
    assert_eq!(pair.received()?.imm, 55);
    pair.memory.store_u64(64, 100)?;
    assert_eq!(pair.guest_run("fadd", (0, 8), 64, [11, 0])?.status, SUCCESS);
    assert!(pair.ask("sum 0 8")?.ends_with(" 100"));
    assert_eq!(pair.guest_run("cas", (0, 8), 64, [111, 5])?.status, SUCCESS);
    assert!(pair.ask("sum 0 8")?.ends_with(" 111"));
    assert_eq!(pair.memory.load_u64(64)?, 5);
    Ok(())
}

/// No receive: the sender waits for one, in either direction.
fn missing_receives(pair: &mut Pair<'_>) -> Outcome {
    let src = [pair.segment.sge(0, 8)];
    pair.jetty.post_send(&[SendWr::new(SendOp::Send { src: &src }, &pair.target, 1)])?;
    assert!(pair.completions.wait(Some(Duration::from_millis(20)))?.is_none());
    pair.ask("recv 3 0 64")?;
    assert_eq!(pair.received()?.status, CrStatus::Success);
    assert_eq!(pair.guest_completion()?.id, 3);
    let va = pair.segment.va();
    assert_eq!(pair.ask(&format!("send 4 0 8 {va} 0 0 0"))?, "posted 0");
    assert_eq!(pair.ask("poll 20")?, "none");
    pair.receive(0, 8)?;
    assert_eq!(pair.received()?.len, 8);
    assert_eq!(pair.guest_completion()?.status, SUCCESS);
    Ok(())
}

/// A range outside ends the connection at both sides, in either direction.
fn wrong_ranges(context: &Context, guest: &mut Guest) -> Outcome {
    let mut pair = Pair::open(context, guest, 7)?;
    let rkey = pair.segment.token_id().value().wrapping_add(TOKEN);
    let before = pair.own(0, LEN)?;
    let va = pair.segment.va();
    for (va, rkey) in [(va + 65_530, rkey), (va, rkey ^ 0x40)] {
        let posted = pair.ask(&format!("write 5 0 5000 {va} {rkey} 0 0"))?;
        assert_eq!(posted, "posted 0");
        assert_eq!(pair.guest_completion()?.status, REMOTE_ACCESS);
        assert_eq!(pair.own(0, LEN)?, before);
        pair = reopened(context, pair)?;
    }
    // The guest's region is shorter than its import says: refused by the guest.
    let Pair { guest, .. } = pair;
    let mut pair = Pair::open(context, guest, 7)?;
    pair.remote = longer(context, &pair)?;
    let refused = pair.run((0, 8), What::Write(65_532))?;
    assert_eq!(refused.status, CrStatus::RemAccessAbort);
    assert_eq!(pair.received()?.status, CrStatus::WrFlushDone);
    let later = pair.run((0, 8), What::Write(0))?;
    assert_eq!(later.status, CrStatus::WrFlush);
    Ok(())
}

fn reopened<'a>(context: &Context, pair: Pair<'a>) -> Outcome<Pair<'a>> {
    let Pair { guest, .. } = pair;
    Pair::open(context, guest, 7)
}

/// The guest's region as an import that is a page too long.
fn longer(context: &Context, pair: &Pair<'_>) -> Outcome<ImportedSegment> {
    let policy = pair.remote.token().map_or(TokenPolicy::None, TokenPolicy::PlainText);
    let region = RemoteSegment {
        ubva: pair.remote.ubva(),
        len: LEN as u64 + 4096,
        token_id: pair.remote.token_id(),
        policy,
        ..pair.segment.remote()
    };
    Ok(context.import_segment(&region, SegmentAccess::REMOTE_ALL, Mapping::None)?)
}

/// A jetty that is not there any more is silent: the guest gives up.
fn silence(context: &Context, guest: &mut Guest) -> Outcome {
    let mut pair = Pair::open(context, guest, 1)?;
    pair.jetty.unbind()?;
    assert_eq!(pair.guest_run("write", (0, 8), 0, [0, 0])?.status, RETRY_EXCEEDED);
    Ok(())
}

/// What this node sends is lost, doubled and overtaken: everything is done once.
fn losses(context: &Context, guest: &mut Guest) -> Outcome {
    let mut pair = Pair::open(context, guest, 7)?;
    pair.ask("fill 0 64 0")?;
    pair.memory.store_u64(0, 0)?;
    pair.run((0, 8), What::Write(8))?;
    for round in 0..12 {
        let bytes = pair.fill(9_000 + round)?;
        let done = pair.run((0, 9_000 + round), What::Write(16_384))?;
        assert_eq!(done.status, CrStatus::Success);
        pair.guest_holds(16_384, &bytes)?;
        let add = pair.run((60_000, 8), What::Add(8, 2))?;
        assert_eq!(add.status, CrStatus::Success);
        let found = pair.memory.load_u64(60_000)?;
        assert_eq!(found, 2 * u64::from(round), "an atomic is executed once");
        let read = pair.guest_run("read", (30_000, 9_000), 0, [0, 0])?;
        assert_eq!(read.status, SUCCESS);
        pair.guest_holds(30_000, &bytes[..9_000])?;
        assert_eq!(pair.guest_run("fadd", (50_000, 8), 61_000, [1, 0])?.status, SUCCESS);
    }
    assert_eq!(pair.memory.load_u64(61_000)?, 12);
    Ok(())
}

fn node(faults: Option<&str>) -> Outcome<Opened> {
    let faults: Option<LinkFaults> = faults.map(str::parse).transpose()?;
    let eid = Some(ubcore_sim::host::ip_eid(OURS.parse()?));
    let cfg = NodeCfg { eid, rc: RcWire::Roce, link_faults: faults, ..NodeCfg::default() };
    Ok(urma::open_node(cfg)?)
}

fn ip(words: &[&str]) -> Outcome {
    let output = Command::new("ip").args(words).output()?;
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    if output.status.success() { Ok(()) } else { Err(format!("ip {words:?}: {said}").into()) }
}

/// In a network namespace, whose interface `tap0` leads to the guest.
fn run(image: &Image) -> Outcome {
    ip(&["link", "set", "lo", "up"])?;
    let mut guest = Guest::boot_beside(image, "tap0")?;
    // The guest has this one as its neighbour.
    ip(&["link", "set", "tap0", "address", "02:00:00:00:00:01", "up"])?;
    ip(&["address", "add", &format!("{OURS}/24"), "dev", "tap0"])?;
    let opened = node(None)?;
    let mut pair = Pair::open(&opened.context, &mut guest, 7)?;
    to_the_guest(&mut pair)?;
    from_the_guest(&mut pair)?;
    missing_receives(&mut pair)?;
    drop(pair);
    wrong_ranges(&opened.context, &mut guest)?;
    silence(&opened.context, &mut guest)?;
    drop(opened);
    let opened = node(Some("loss=6%,duplicate=3%,reorder=3%,seed=7"))?;
    losses(&opened.context, &mut guest)?;
    let repeated = opened.node.device().counter(udma_abi::counters::Counter::Retransmits);
    assert!(repeated > 5, "{repeated} packets were sent again");
    Ok(())
}

#[test]
fn rc_jetties_and_linux_rxe_agree() {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("rxe-jetties");
    let image = match Image::make(&folder) {
        Ok(image) => image,
        Err(missing) => return urma_skip::skip(missing),
    };
    let Some(namespace) = Namespace::with_taps_or_skip() else { return };
    namespace.run(|| run(&image).map_err(|error| error.to_string())).expect("no error");
}
