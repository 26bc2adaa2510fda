//! Statuses that a right program and a right driver cannot cause by themselves: entries that the
//! driver would not write, and a peer that does not answer.
//!
//! *Owns*: a backing that changes one entry before the device fetches it; cut links in virtual time.
//! *Takes*: unchanged API, driver and devices. *Gives*: the status as the program polls it, and the
//! state of the queue afterwards as docs/device-spec.md, section 10, has it.
//! *Must not*: read a real clock.
#![expect(clippy::unwrap_used, reason = "a test ends where its world cannot be made")]

use std::ops::{Range, RangeInclusive};
use std::os::fd::OwnedFd;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use ubcore_sim::link::{Cut, Outage};
use ubcore_sim::sim::{Fabric, FabricCfg, HostSharing};
use udma_abi::sqe::{BLOCK_WORDS, SQE_WORDS_MAX};
use udma_abi::{
    BackingError, DeviceBacking, DeviceInfo, DmaSpace, Nanos, Opcode, RegisterRegion, Sqe,
};
use udma_provider::device_on;
use urma_core::{
    AsyncKind, Completion, Context, CrStatus, ImportedSegment, Jetty, JettyCfg, JettyRecv,
    JettyState, Jfc, JfcCfg, JfrCfg, JfsCfg, LocalSge, Mapping, RemoteAddr, Segment, SegmentAccess,
    SegmentCfg, SendOp, SendWr, TargetJetty, TransportMode, WrFlags,
};
use urma_mem::Region;

type Words = [u64; BLOCK_WORDS];
/// What happens to an entry.
type Change = fn(&mut Words);

/// A device whose next direct entry is changed by the traffic.
#[derive(Clone, Debug)]
struct Meddler {
    inner: Arc<dyn DeviceBacking>,
    next: Arc<Mutex<Option<Change>>>,
}

impl Meddler {
    fn new(inner: Arc<dyn DeviceBacking>) -> Self {
        Self { inner, next: Arc::default() }
    }

    fn change_next(&self, change: Change) {
        *self.next.lock().unwrap_or_else(PoisonError::into_inner) = Some(change);
    }

    fn is_spent(&self) -> bool {
        self.next.lock().unwrap_or_else(PoisonError::into_inner).is_none()
    }
}

impl DeviceBacking for Meddler {
    fn info(&self) -> DeviceInfo {
        self.inner.info()
    }

    fn registers(&self) -> Arc<dyn RegisterRegion> {
        Arc::new(Registers { inner: self.inner.registers(), next: Arc::clone(&self.next) })
    }

    fn dma(&self) -> Arc<dyn DmaSpace> {
        self.inner.dma()
    }

    fn interrupt(&self, vector: u16) -> Result<OwnedFd, BackingError> {
        self.inner.interrupt(vector)
    }

    fn reset(&self) -> Result<(), BackingError> {
        self.inner.reset()
    }

    fn now(&self) -> Nanos {
        self.inner.now()
    }

    fn progress(&self) {
        self.inner.progress();
    }
}

#[derive(Debug)]
struct Registers {
    inner: Arc<dyn RegisterRegion>,
    next: Arc<Mutex<Option<Change>>>,
}

impl RegisterRegion for Registers {
    fn len(&self) -> u64 {
        self.inner.len()
    }

    fn read(&self, offset: u64) -> u64 {
        self.inner.read(offset)
    }

    fn write32(&self, offset: u64, value: u32) {
        self.inner.write32(offset, value);
    }

    fn write64(&self, offset: u64, value: u64) {
        self.inner.write64(offset, value);
    }

    fn write_block(&self, offset: u64, words: &Words) {
        let mut words = *words;
        let change = self.next.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(change) = change {
            change(&mut words);
        }
        self.inner.write_block(offset, &words);
    }
}

/// One end: its objects; the context last, so that all of them go first.
#[derive(Debug)]
struct End {
    jetty: Jetty,
    jfc: Jfc,
    _recv_jfc: Jfc,
    seg: Segment,
    context: Context,
}

const LEN: usize = 64 << 10;

impl End {
    fn open(backing: Arc<dyn DeviceBacking>, send: JfsCfg) -> Self {
        let context = device_on(backing).open(0).unwrap();
        let jfc = context.create_jfc(&JfcCfg::new(send.depth.max(64)), None).unwrap();
        let recv_jfc = context.create_jfc(&JfcCfg::new(64), None).unwrap();
        let recv = JettyRecv::Own { cfg: JfrCfg::new(send.mode, 16), jfc: &recv_jfc };
        let jetty = context.create_jetty(&JettyCfg::new(send, &jfc, recv)).unwrap();
        let mem = Region::private(LEN).unwrap();
        let seg = context.register(&mem, &SegmentCfg::new(SegmentAccess::REMOTE_ALL), None);
        Self { jetty, jfc, _recv_jfc: recv_jfc, seg: seg.unwrap(), context }
    }
}

/// Two ends on the fabric; what goes wrong goes wrong at `a`.
#[derive(Debug)]
pub(super) struct Pair {
    target: TargetJetty,
    remote: ImportedSegment,
    a: End,
    _b: End,
    meddler: Meddler,
    pub(super) fabric: Arc<Fabric>,
}

#[derive(Clone, Copy, Debug)]
pub(super) enum Kind {
    Write,
    /// Of the whole segment.
    LongWrite,
    Read,
    Send,
    FetchAdd,
}

impl Pair {
    pub(super) fn new(cfg: FabricCfg, send: JfsCfg) -> Self {
        let fabric = Fabric::new(cfg).unwrap();
        let meddler = Meddler::new(fabric.backing(0));
        let a = End::open(Arc::new(meddler.clone()), send);
        let b = End::open(fabric.backing(1), send);
        let target = a.context.import_jetty(&b.jetty.remote()).unwrap();
        let access = SegmentAccess::REMOTE_ALL;
        let remote = a.context.import_segment(&b.seg.remote(), access, Mapping::None).unwrap();
        let mut pair = Self { target, remote, a, _b: b, meddler, fabric };
        if send.mode == TransportMode::Rc {
            pair.a.jetty.bind(&pair.target).unwrap();
        }
        pair
    }

    fn post(&mut self, kind: Kind, user_ctx: u64) {
        self.post_list(kind, user_ctx..=user_ctx);
    }

    /// Posts a list, a request for each context.
    pub(super) fn post_list(&mut self, kind: Kind, user_ctxs: RangeInclusive<u64>) {
        let (seg, va) = (&self.a.seg, self.a.seg.va());
        let len = if matches!(kind, Kind::LongWrite) { u32::try_from(LEN).unwrap() } else { 8 };
        let sge = LocalSge { segment: seg, addr: va, len };
        let at = RemoteAddr { segment: &self.remote, addr: self.remote.va() };
        let sges = [sge];
        let op = match kind {
            Kind::Write | Kind::LongWrite => SendOp::Write { src: &sges, dst: at },
            Kind::Read => SendOp::Read { dst: &sges, src: at },
            Kind::Send => SendOp::Send { src: &sges },
            Kind::FetchAdd => SendOp::FetchAdd { result: sge, target: at, value: 1 },
        };
        let wr = |user_ctx| {
            let wr = SendWr::new(op, &self.target, user_ctx);
            SendWr { flags: WrFlags::COMPLETE, ..wr }
        };
        let list: Vec<_> = user_ctxs.map(wr).collect();
        self.a.jetty.post_send(&list).unwrap();
    }

    /// The next completion of `a`.
    pub(super) fn done(&mut self) -> Completion {
        let (fabric, jfc) = (&self.fabric, &mut self.a.jfc);
        let mut done = None;
        fabric.run_until(BOUND_NS, || {
            done = jfc.poll_one().unwrap();
            done.is_some()
        });
        done.expect("a completion within the bound")
    }

    /// The next `count` completions of `a`.
    pub(super) fn all_done(&mut self, count: usize) -> Vec<Completion> {
        let (fabric, jfc) = (&self.fabric, &mut self.a.jfc);
        let mut done = vec![Completion::default(); count];
        let mut len = 0;
        fabric.run_until(BOUND_NS, || {
            // One poll for all: each takes virtual time.
            len += jfc.poll(&mut done[len..]).unwrap();
            len == count
        });
        done.truncate(len);
        done
    }

    fn state(&self) -> JettyState {
        self.a.jetty.query().unwrap().state
    }

    /// The queue went to the error state: a flush that is done, an event, later requests flushed.
    fn is_in_error(&mut self) {
        assert_eq!(self.done().status, CrStatus::WrFlushDone);
        assert_eq!(self.state(), JettyState::Error);
        let event = self.a.context.next_async(Some(Duration::ZERO)).unwrap();
        let id = self.a.jetty.id().id;
        assert_eq!(event.map(|e| (e.kind, e.id)), Some((AsyncKind::JettyError, id)));
        self.post(Kind::Send, 1000);
        let done = self.done();
        assert_eq!((done.status, done.user_ctx), (CrStatus::WrFlush, 1000));
    }
}

/// Virtual time in which everything here must be over, in ns.
const BOUND_NS: Nanos = 10_000_000_000;

/// Posts an entry that `change` changes; it ends with `status` and leaves the queue in error.
fn changed(mode: TransportMode, kind: Kind, change: Change, status: CrStatus) {
    let mut pair = Pair::new(FabricCfg::new(7, 2, HostSharing::Packets), JfsCfg::new(mode, 16));
    pair.post(Kind::Send, 1);
    if mode == TransportMode::Um {
        let done = pair.done();
        assert_eq!((done.status, done.user_ctx), (CrStatus::Success, 1), "unchanged, it is fine");
    } else {
        let done = pair.done();
        assert_eq!((done.status, done.user_ctx), (CrStatus::RnrRetryExceeded, 1), "no receive");
    }
    pair.meddler.change_next(change);
    pair.post(kind, 2);
    assert!(pair.meddler.is_spent(), "the entry went directly");
    let done = pair.done();
    assert_eq!((done.status, done.user_ctx), (status, 2), "{mode:?} {kind:?}");
    pair.is_in_error();
}

/// The entry with another control part.
fn rewrite(words: &mut Words, change: impl FnOnce(&mut Sqe)) {
    let mut all = [0; SQE_WORDS_MAX];
    all[..BLOCK_WORDS].copy_from_slice(words);
    let mut sqe = Sqe::decode(&all).unwrap();
    change(&mut sqe);
    sqe.encode(&mut all);
    words.copy_from_slice(&all[..BLOCK_WORDS]);
}

#[test]
fn an_operation_that_um_does_not_carry_is_an_unsupported_opcode() {
    let opcodes: [Change; 3] = [
        |words| rewrite(words, |sqe| sqe.opcode = Opcode::Write),
        |words| rewrite(words, |sqe| sqe.opcode = Opcode::Read),
        |words| rewrite(words, |sqe| sqe.opcode = Opcode::SendInvalidate),
    ];
    for change in opcodes {
        changed(TransportMode::Um, Kind::Send, change, CrStatus::UnsupportedOpcode);
    }
}

#[test]
fn a_malformed_entry_is_a_local_operation_error() {
    let malformed: [(&str, Change); 5] = [
        ("owner", |words| rewrite(words, |sqe| sqe.owner = !sqe.owner)),
        ("count of SGEs", |words| rewrite(words, |sqe| sqe.sge_num = u8::MAX)),
        ("more blocks than posted", |words| rewrite(words, |sqe| sqe.sge_num = 5)),
        ("opcode", |words| words[0] |= 0xff << 40),
        ("target kind", |words| words[0] |= 3 << 29),
    ];
    for (what, change) in malformed {
        for kind in [Kind::Write, Kind::Send] {
            eprintln!("{what} of {kind:?}");
            changed(TransportMode::Rm, kind, change, CrStatus::LocOperation);
        }
    }
}

#[test]
fn an_unknown_way_is_a_local_operation_error() {
    let change: Change = |words| rewrite(words, |sqe| sqe.tpn = 0xff_fffe);
    changed(TransportMode::Rm, Kind::Read, change, CrStatus::LocOperation);
}

/// When nothing passes any more.
const CUT_NS: Nanos = 1_000_000_000;
/// When it does again.
const HEALED_NS: Nanos = 3 * CUT_NS;
/// 4096 ns << 15: about 134 ms, just above the shortest there is.
const ERR_TIMEOUT: u8 = 15;

/// A pair that talked and is cut off from each other now.
fn cut(mode: TransportMode, seed: u64) -> Pair {
    let mut cfg = FabricCfg::new(seed, 2, HostSharing::Packets);
    cfg.faults.outages = vec![Outage::of(Cut::All, CUT_NS, HEALED_NS)];
    let mut pair = Pair::new(cfg, JfsCfg { err_timeout: ERR_TIMEOUT, ..JfsCfg::new(mode, 16) });
    pair.post(Kind::Write, 1);
    let done = pair.done();
    assert_eq!((done.status, done.user_ctx), (CrStatus::Success, 1));
    let fabric = &pair.fabric;
    assert!(fabric.now() < CUT_NS, "set up before the cut");
    assert!(fabric.run_until(2 * CUT_NS, || fabric.now() >= CUT_NS));
    pair
}

/// The error timeout alone, at most a tick late: there is no TP.
const OWN_NS: Range<u64> = (4096 << ERR_TIMEOUT)..(5120 << ERR_TIMEOUT);
/// While a TP stands, until it gives up: nine waits that double from 2 ms on or more, the longest
/// of 500 ms.
const OF_TP_NS: Range<u64> = 1_000_000_000..1_700_000_000;

/// A request that is not answered ends within its bound, and not before it.
fn times_out(pair: &mut Pair, kind: Kind, user_ctx: u64, within: Range<u64>) {
    let posted = pair.fabric.now();
    pair.post(kind, user_ctx);
    let done = pair.done();
    assert_eq!((done.status, done.user_ctx), (CrStatus::AckTimeout, user_ctx), "{kind:?}");
    let took = pair.fabric.now() - posted;
    assert!(within.contains(&took), "{kind:?} took {took} ns");
}

#[test]
fn no_answer_is_an_ack_timeout_and_leaves_rm_ready() {
    for (seed, kind) in
        [Kind::Write, Kind::Read, Kind::Send, Kind::FetchAdd].into_iter().enumerate()
    {
        let mut pair = cut(TransportMode::Rm, seed as u64);
        times_out(&mut pair, kind, 2, OF_TP_NS);
        assert_eq!(pair.state(), JettyState::Ready);
        times_out(&mut pair, kind, 3, OWN_NS);
        let fabric = Arc::clone(&pair.fabric);
        assert!(fabric.run_until(HEALED_NS, || fabric.now() >= HEALED_NS));
        pair.post(Kind::Write, 4);
        let done = pair.done();
        assert_eq!((done.status, done.user_ctx), (CrStatus::Success, 4), "{kind:?}, healed");
    }
}

#[test]
fn no_answer_is_an_ack_timeout_and_moves_rc_to_error() {
    for (seed, kind) in [Kind::Write, Kind::Read, Kind::FetchAdd].into_iter().enumerate() {
        let mut pair = cut(TransportMode::Rc, seed as u64);
        times_out(&mut pair, kind, 2, OF_TP_NS);
        pair.is_in_error();
    }
}

#[test]
fn a_killed_peer_is_an_ack_timeout() {
    let send = JfsCfg { err_timeout: ERR_TIMEOUT, ..JfsCfg::new(TransportMode::Rm, 16) };
    for paths in [HostSharing::SameHost, HostSharing::Packets] {
        let mut pair = Pair::new(FabricCfg::new(3, 2, paths), send);
        pair.fabric.kill(1);
        pair.post(Kind::Send, 1);
        let done = pair.done();
        assert_eq!((done.status, done.user_ctx), (CrStatus::AckTimeout, 1), "{paths:?}");
        assert_eq!(pair.state(), JettyState::Ready);
    }
}
