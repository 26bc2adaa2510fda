//! Both directions against Linux rxe: SEND, WRITE, READ, atomics, errors, missing receives, lost packets.
#![forbid(unsafe_code)]

use std::{io::Write, path::Path};

use urma_interop::{Bench, Cable, Guest, GuestCompletion, Image};
use urma_packet::{Psn, Tpn};
use urma_rc::{
    RcAtomic, RcCfg, RcCompletion, RcOperation, RcReceive, RcRemote, RcRequest, RcSource, RcStatus,
};

/// Status of a guest's completion, as verbs number them.
const SUCCESS: u32 = 0;
const FLUSHED: u32 = 5;
const REMOTE_ACCESS: u32 = 10;
const RETRY_EXCEEDED: u32 = 12;
const RNR_RETRY_EXCEEDED: u32 = 13;

/// A connection: the guest, this side, the guest's region.
struct Pair {
    guest: Guest,
    bench: Option<Bench>,
    cable: Option<Cable>,
    region: RcRemote,
    qpn: u32,
    next: u64,
}

impl Pair {
    /// Opens a connection in place of the one before; `change` applies to this side.
    fn open(&mut self, retries: [u32; 2], change: impl Fn(&mut RcCfg)) {
        let cable = match self.bench.take() {
            Some(bench) => bench.cable,
            None => self.cable.take().expect("a cable"),
        };
        self.qpn += 1;
        // PSNs of both sides wrap soon.
        let [ours, theirs] = [0x00ff_fff0 + (self.qpn & 7), 0x00ff_fff8];
        let [retry, rnr_retry] = retries;
        let command =
            format!("open 10.0.0.1 {} {theirs} {ours} 1024 14 {retry} {rnr_retry} 12", self.qpn);
        let answer = self.guest.ask(&command, &mut || {}).expect("an answer");
        let words: Vec<u64> =
            answer.split_whitespace().filter_map(|word| word.parse().ok()).collect();
        let [qpn, va, rkey] = words[..] else { panic!("{answer}") };
        let narrow = |word: u64| u32::try_from(word).expect("32 bits");
        self.region = RcRemote { va, rkey: narrow(rkey) };
        let qpns = [self.qpn, narrow(qpn)].map(Tpn::from_low_bits);
        let mut cfg = RcCfg::new(qpns, [Psn::new(ours), Psn::new(theirs)]);
        cfg.ack_timeout = 100_000_000;
        change(&mut cfg);
        self.bench = Some(Bench::new(cfg, cable).expect("in range"));
    }

    fn bench(&mut self) -> &mut Bench {
        self.bench.as_mut().expect("open")
    }

    fn ask(&mut self, command: &str) -> String {
        let bench = self.bench.as_mut().expect("open");
        let mut exchange = || bench.exchange().expect("the cable");
        self.guest.ask(command, &mut exchange).expect("an answer")
    }

    /// Posts at this side; the completion.
    fn run(&mut self, operation: RcOperation, place: u64, len: u32) -> RcCompletion {
        self.next += 1;
        let id = self.next;
        let request = RcRequest { id, operation, place, len, fence: false, solicited: false };
        self.bench().rc.post(request).expect("room");
        let done = self.bench().completion().expect("a completion");
        assert_eq!((done.id, done.source), (id, RcSource::Request));
        done
    }

    /// Posts at the guest; its completion.
    fn guest_run(
        &mut self,
        kind: &str,
        (offset, len): (u64, u32),
        at: u64,
        operands: [u64; 2],
    ) -> GuestCompletion {
        let [a, b] = operands;
        let (va, rkey) = self.bench().memory.va();
        self.next += 1;
        let command = format!("{kind} {} {offset} {len} {} {rkey} {a} {b}", self.next, va + at);
        assert_eq!(self.ask(&command), "posted 0", "{command}");
        let done = self.guest_completion();
        assert_eq!(done.id, self.next, "{command}");
        done
    }

    fn guest_completion(&mut self) -> GuestCompletion {
        let bench = self.bench.as_mut().expect("open");
        let mut exchange = || bench.exchange().expect("the cable");
        self.guest.poll(15_000, &mut exchange).expect("an answer").expect("a completion")
    }

    fn remote(&self, offset: u64) -> RcRemote {
        RcRemote { va: self.region.va + offset, ..self.region }
    }

    /// The guest's bytes equal these.
    fn guest_holds(&mut self, offset: u64, bytes: &[u8]) {
        let hash = bytes.iter().fold(14_695_981_039_346_656_037_u64, |hash, byte| {
            (hash ^ u64::from(*byte)).wrapping_mul(1_099_511_628_211)
        });
        let answer = self.ask(&format!("sum {offset} {}", bytes.len()));
        assert!(answer.starts_with(&format!("sum {hash} ")), "{answer}");
    }

    fn fill(&mut self, offset: usize, len: usize, first: usize) {
        let bytes = &mut self.bench().memory.bytes[offset..offset + len];
        bytes
            .iter_mut()
            .enumerate()
            .for_each(|(at, byte)| *byte = (at * 7 + first).to_le_bytes()[0]);
    }

    fn own(&mut self, offset: usize, len: usize) -> Vec<u8> {
        self.bench().memory.bytes[offset..offset + len].to_vec()
    }
}

/// Lengths of messages: empty, short, one path MTU, several packets.
const LENGTHS: [u32; 5] = [0, 5, 1024, 1025, 9_000];

fn messages_to_the_guest(pair: &mut Pair) {
    for len in LENGTHS {
        let size = usize::try_from(len).expect("small");
        pair.fill(0, size, size + 3);
        let bytes = pair.own(0, size);
        pair.ask(&format!("recv 7 0 {}", len.max(8)));
        let done = pair.run(RcOperation::SendImm(0x1234_0000 + len), 0, len);
        assert_eq!(done.status, RcStatus::Success, "SEND of {len}");
        let received = pair.guest_completion();
        let wanted = GuestCompletion { id: 7, status: SUCCESS, len, imm: 0x1234_0000 + len };
        assert_eq!(received, wanted);
        pair.guest_holds(0, &bytes);
        let remote = pair.remote(16_384);
        assert_eq!(pair.run(RcOperation::Write(remote), 0, len).status, RcStatus::Success);
        pair.guest_holds(16_384, &bytes);
        let back = pair.run(RcOperation::Read(remote), 32_768, len);
        assert_eq!(back.status, RcStatus::Success, "READ of {len}");
        assert_eq!(pair.own(32_768, size), bytes, "bytes of a READ of {len}");
    }
    pair.ask("recv 8 0 8");
    let remote = pair.remote(16_384);
    pair.run(RcOperation::WriteImm(remote, 99), 0, 2_000);
    assert_eq!(pair.guest_completion().imm, 99);
}

fn atomics_at_the_guest(pair: &mut Pair) {
    pair.bench().memory.bytes[..8].copy_from_slice(&40_u64.to_le_bytes());
    let remote = pair.remote(8);
    pair.run(RcOperation::Write(remote), 0, 8);
    let add = RcAtomic::FetchAdd { add: 2 };
    assert_eq!(pair.run(RcOperation::Atomic(remote, add), 0, 8).original, Some(40));
    let swap = RcAtomic::CompareSwap { compare: 42, swap: 7 };
    assert_eq!(pair.run(RcOperation::Atomic(remote, swap), 0, 8).original, Some(42));
    assert_eq!(pair.run(RcOperation::Atomic(remote, swap), 0, 8).original, Some(7));
    let answer = pair.ask("sum 8 8");
    assert!(answer.ends_with(" 7"), "{answer}");
}

fn messages_from_the_guest(pair: &mut Pair) {
    for len in LENGTHS {
        let size = usize::try_from(len).expect("small");
        pair.ask(&format!("fill 0 {} {}", len.max(1), len % 200));
        let bytes: Vec<u8> = (0..size).map(|at| (at + size % 200).to_le_bytes()[0]).collect();
        pair.bench().rc.post_receive(RcReceive { id: 9, place: 0, len: 16_384 }).expect("room");
        let sent = pair.guest_run("sendimm", (0, len), 0, [u64::from(len) + 1, 0]);
        assert_eq!(sent.status, SUCCESS, "SEND of {len}");
        let received = pair.bench().completion().expect("a message");
        assert_eq!((received.id, received.len, received.imm), (9, len, Some(len + 1)));
        assert_eq!(pair.own(0, size), bytes, "bytes of a SEND of {len}");
        assert_eq!(pair.guest_run("write", (0, len), 16_384, [0, 0]).status, SUCCESS);
        assert_eq!(pair.own(16_384, size), bytes, "bytes of a WRITE of {len}");
        assert_eq!(pair.guest_run("read", (32_768, len), 16_384, [0, 0]).status, SUCCESS);
        pair.guest_holds(32_768, &bytes);
    }
    pair.bench().rc.post_receive(RcReceive { id: 10, place: 0, len: 0 }).expect("room");
    assert_eq!(pair.guest_run("writeimm", (0, 3_000), 16_384, [55, 0]).status, SUCCESS);
    let received = pair.bench().completion().expect("a message");
    assert_eq!((received.source, received.imm), (RcSource::ReceiveWrite, Some(55)));
}

fn atomics_from_the_guest(pair: &mut Pair) {
    pair.bench().memory.bytes[64..72].copy_from_slice(&100_u64.to_le_bytes());
    assert_eq!(pair.guest_run("fadd", (0, 8), 64, [11, 0]).status, SUCCESS);
    assert!(pair.ask("sum 0 8").ends_with(" 100"));
    assert_eq!(pair.guest_run("cas", (0, 8), 64, [111, 5]).status, SUCCESS);
    assert!(pair.ask("sum 0 8").ends_with(" 111"));
    assert_eq!(pair.own(64, 8), 5_u64.to_le_bytes());
}

/// A wrong key ends the connection at both sides, in either direction.
fn wrong_keys(pair: &mut Pair) {
    pair.open([7, 7], |_| ());
    let wrong = RcRemote { rkey: pair.region.rkey ^ 0x40, ..pair.region };
    assert_eq!(pair.run(RcOperation::Write(wrong), 0, 8).status, RcStatus::RemoteAccess);
    pair.open([7, 7], |_| ());
    let beyond = pair.remote(65_530);
    assert_eq!(pair.run(RcOperation::Read(beyond), 0, 8).status, RcStatus::RemoteAccess);
    pair.open([7, 7], |_| ());
    let before = pair.own(0, 65_536);
    let refused = pair.guest_run("write", (0, 5_000), 65_530, [0, 0]);
    assert_eq!(refused.status, REMOTE_ACCESS);
    assert_eq!(pair.own(0, 65_536), before);
    assert_eq!(pair.bench().rc.failed(), Some(RcStatus::RemoteAccess));
}

/// No receive: the sender waits and tries again, and gives up when it may not.
fn missing_receives(pair: &mut Pair) {
    pair.open([7, 7], |_| ());
    pair.next += 1;
    let id = pair.next;
    let operation = RcOperation::Send;
    let request = RcRequest { id, operation, place: 0, len: 8, fence: false, solicited: false };
    pair.bench().rc.post(request).expect("room");
    for _ in 0..20 {
        pair.ask("poll 1");
    }
    assert!(pair.bench().rc.counts().rnr_naks_received > 0, "{:?}", pair.bench().rc.counts());
    pair.ask("recv 3 0 64");
    assert_eq!(pair.bench().completion().expect("sent").status, RcStatus::Success);
    assert_eq!(pair.guest_completion().id, 3);
    // The guest's side of the same.
    let (va, rkey) = pair.bench().memory.va();
    assert_eq!(pair.ask(&format!("send 4 0 8 {va} {rkey} 0 0")), "posted 0");
    for _ in 0..20 {
        pair.ask("poll 1");
    }
    assert!(pair.bench().rc.counts().naks_sent > 0);
    pair.bench().rc.post_receive(RcReceive { id: 5, place: 0, len: 8 }).expect("room");
    assert_eq!(pair.bench().completion().expect("received").id, 5);
    assert_eq!(pair.guest_completion().status, SUCCESS);
    pair.open([7, 1], |cfg| cfg.rnr_retry = 1);
    assert_eq!(pair.run(RcOperation::Send, 0, 8).status, RcStatus::RnrRetryExceeded);
    pair.open([7, 1], |_| ());
    assert_eq!(pair.guest_run("send", (0, 8), 0, [0, 0]).status, RNR_RETRY_EXCEEDED);
}

/// Lost packets and PSNs out of order: everything arrives once.
fn losses(pair: &mut Pair) {
    pair.open([7, 7], |cfg| cfg.ack_timeout = 20_000_000);
    pair.bench().cable.loss = 8;
    for round in 0..12_usize {
        let len = 9_000;
        pair.fill(0, len, round);
        let bytes = pair.own(0, len);
        let (write, length) = (pair.remote(16_384), u32::try_from(len).expect("small"));
        assert_eq!(pair.run(RcOperation::Write(write), 0, length).status, RcStatus::Success);
        assert_eq!(pair.run(RcOperation::Read(write), 32_768, length).status, RcStatus::Success);
        assert_eq!(pair.own(32_768, len), bytes);
        let add = RcAtomic::FetchAdd { add: 1 };
        let word = pair.remote(60_000);
        let original = pair.run(RcOperation::Atomic(word, add), 0, 8).original;
        assert_eq!(original, Some(round as u64), "an atomic is executed once");
        assert_eq!(pair.guest_run("read", (0, 9_000), 0, [0, 0]).status, SUCCESS);
        pair.guest_holds(0, &bytes);
        assert_eq!(pair.guest_run("write", (0, 9_000), 40_000, [0, 0]).status, SUCCESS);
        assert_eq!(pair.own(40_000, len), bytes, "bytes of a WRITE with losses");
        assert_eq!(pair.guest_run("fadd", (60_008, 8), 60_000, [1, 0]).status, SUCCESS);
    }
    assert_eq!(pair.own(60_000, 8), 12_u64.to_le_bytes());
    let counts = pair.bench().rc.counts();
    let lost = pair.bench().cable.lost;
    pair.bench().cable.loss = 0;
    assert!(lost > 20 && counts.repeated > 0 && counts.naks_received > 0, "{lost}: {counts:?}");
    assert!(counts.duplicates > 0 && counts.ahead > 0, "{counts:?}");
    say(&format!("losses: {lost} packets lost, {counts:?}"));
}

/// A peer that is silent: the guest gives up, and so does this side.
fn silence(pair: &mut Pair) {
    pair.open([1, 7], |cfg| (cfg.retry_count, cfg.ack_timeout) = (2, 10_000_000));
    pair.bench().cable.loss = 100;
    assert_eq!(pair.run(RcOperation::Write(pair.region), 0, 8).status, RcStatus::RetryExceeded);
    let done = pair.guest_run("write", (0, 8), 0, [0, 0]);
    assert!([RETRY_EXCEEDED, FLUSHED].contains(&done.status), "{done:?}");
    pair.bench().cable.loss = 0;
}

type Step = fn(&mut Pair);

/// A line of the test's output.
fn say(line: &str) {
    // A line that is lost changes no result.
    let _ = writeln!(std::io::stdout(), "{line}");
}

#[test]
fn this_endpoint_and_linux_rxe_agree() {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("rxe");
    let image = match Image::make(&folder) {
        Ok(image) => image,
        Err(missing) => return urma_skip::skip(missing),
    };
    let start = urma_interop::now();
    let step = |name: &str| say(&format!("{:6.2} s  {name}", start.elapsed().as_secs_f64()));
    let cable = Cable::new().expect("sockets");
    let here = cable.here().expect("bound");
    let guest = Guest::boot(&image, here, cable.there).expect("the guest boots");
    let region = RcRemote { va: 0, rkey: 0 };
    let cable = Some(cable);
    let mut pair = Pair { guest, bench: None, cable, region, qpn: 0x51, next: 100 };
    step("booted");
    let steps: [(&str, Step); 8] = [
        ("SEND, WRITE, READ to rxe, PSNs wrap", messages_to_the_guest),
        ("CAS, FADD at rxe", atomics_at_the_guest),
        ("SEND, WRITE, READ from rxe", messages_from_the_guest),
        ("CAS, FADD from rxe", atomics_from_the_guest),
        ("wrong key, wrong bounds, both directions", wrong_keys),
        ("no receive, both directions", missing_receives),
        ("8 % of all packets lost", losses),
        ("silence", silence),
    ];
    pair.open([7, 7], |_| ());
    for (name, run) in steps {
        run(&mut pair);
        assert_eq!(pair.bench().refused, 0, "{name}: packets of Linux that were refused");
        step(name);
    }
}
