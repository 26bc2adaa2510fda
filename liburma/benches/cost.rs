//! What the C face costs per post and per poll over the Rust path, in one process on one device.
//!
//! *Owns*: loops of the same work, one through urma-core, one through the exported functions: a
//! post of one signalled 8-byte write (which the device executes in the posting thread), a poll that
//! takes one completion, a poll of an empty queue, and a write, read or atomic with the polls until it completes.
//! *Gives*: nanoseconds of each, alternating, the least of several rounds, and whether what C adds
//! is within its limit.
//!
//! A name of [`LOOPS`] behind `rust-` or `c-` runs one loop only, and a number says how many calls.
//! Instructions of that loop alone are counted by
//! `valgrind --tool=callgrind --toggle-collect='cost::loops::*'`.
#![expect(unsafe_code, reason = "calls C functions as a C program does")]
#![expect(
    clippy::undocumented_unsafe_blocks,
    reason = "all calls are alike: live objects of this file, and places on its stack"
)]
#![expect(clippy::print_stdout, reason = "a bench talks to its user")]
#![expect(clippy::disallowed_methods, reason = "a bench reads the clock")]

use std::{
    error::Error,
    ffi::c_int,
    mem::MaybeUninit,
    ptr::null_mut,
    time::{Duration, Instant},
};

use liburma::{
    abi::*,
    face::{context::*, device::*, jetty::*, lifecycle::*, queue::*, segment::*, target::*},
};
use urma_core::{
    CompletionFlags, Context, ImportedSegment, Jetty, JettyCfg, JettyRecv, Jfc, JfcCfg, JfrCfg,
    JfsCfg, LocalSge, Mapping, RecvWr, RemoteAddr, Segment, SegmentAccess, SegmentCfg, SendOp,
    SendWr, TargetJetty, TransportMode,
};
use urma_mem::Region;

unsafe extern "C" {
    // The symbols that C programs call, with the jump behind them.
    fn urma_post_jetty_send_wr(
        jetty: *mut urma_jetty_t,
        wr: *mut urma_jfs_wr_t,
        bad_wr: *mut *mut urma_jfs_wr_t,
    ) -> urma_status_t;
    fn urma_poll_jfc(jfc: *mut urma_jfc_t, cr_cnt: c_int, cr: *mut urma_cr_t) -> c_int;
}

type Outcome<T> = Result<T, Box<dyn Error>>;

/// Calls of a round, unless an argument says another number: then there is one round.
const POSTS: u32 = 8_000;
const ROUNDS: u32 = 250;

/// Depth of the send queues, and posts in a row.
const DEPTH: u32 = 16;

/// One end: what is measured through it.
trait End {
    /// What arguments call it.
    const NAME: &'static str;
    /// Posts one signalled write of 8 bytes.
    fn post(&mut self);
    /// As `post`, of a read.
    fn read(&mut self);
    /// As `post`, of a fetch-and-add.
    fn add(&mut self);
    /// As `post`, of a compare-and-swap.
    fn swap(&mut self);
    /// Polls until one completion is there.
    fn take(&mut self);
    /// Polls when there is none.
    fn empty(&mut self);
}

/// One end over urma-core, which writes to itself.
struct Rust {
    jetty: Jetty,
    jfc: Jfc,
    local: Segment,
    there: ImportedSegment,
    target: TargetJetty,
    _context: Context,
}

impl Rust {
    fn open() -> Outcome<Self> {
        Self::on(urma::open()?)
    }

    fn on(context: Context) -> Outcome<Self> {
        let jfc = context.create_jfc(&JfcCfg::new(64), None)?;
        let mode = TransportMode::Rm;
        let recv = JettyRecv::Own { cfg: JfrCfg::new(mode, 16), jfc: &jfc };
        let jetty = context.create_jetty(&JettyCfg::new(JfsCfg::new(mode, DEPTH), &jfc, recv))?;
        let memory = Region::private(4096)?;
        let cfg = SegmentCfg::new(SegmentAccess::REMOTE_ALL);
        let local = context.register(&memory, &cfg, None)?;
        let there =
            context.import_segment(&local.remote(), SegmentAccess::REMOTE_ALL, Mapping::None)?;
        let target = context.import_jetty(&jetty.remote())?;
        Ok(Self { jetty, jfc, local, there, target, _context: context })
    }

    /// Posts one receive of 64 bytes.
    fn receive(&mut self) {
        let dst = [LocalSge { segment: &self.local, addr: self.local.va() + 2048, len: 64 }];
        self.jetty.post_recv(&[RecvWr { dst: &dst, user_ctx: 2 }]).expect("room");
    }
}

impl End for Rust {
    const NAME: &'static str = "rust";

    #[inline(always)]
    fn post(&mut self) {
        let src = [LocalSge { segment: &self.local, addr: self.local.va(), len: 8 }];
        let dst = RemoteAddr { segment: &self.there, addr: self.there.va() + 64 };
        let wr = SendWr::new(SendOp::Write { src: &src, dst }, &self.target, 1);
        self.jetty.post_send(&[wr]).expect("room");
    }

    #[inline(always)]
    fn read(&mut self) {
        let dst = [LocalSge { segment: &self.local, addr: self.local.va(), len: 8 }];
        let src = RemoteAddr { segment: &self.there, addr: self.there.va() + 64 };
        let wr = SendWr::new(SendOp::Read { dst: &dst, src }, &self.target, 1);
        self.jetty.post_send(&[wr]).expect("room");
    }

    #[inline(always)]
    fn add(&mut self) {
        let result = LocalSge { segment: &self.local, addr: self.local.va(), len: 8 };
        let target = RemoteAddr { segment: &self.there, addr: self.there.va() + 64 };
        let op = SendOp::FetchAdd { result, target, value: 1 };
        self.jetty.post_send(&[SendWr::new(op, &self.target, 1)]).expect("room");
    }

    #[inline(always)]
    fn swap(&mut self) {
        let result = LocalSge { segment: &self.local, addr: self.local.va(), len: 8 };
        let target = RemoteAddr { segment: &self.there, addr: self.there.va() + 64 };
        let op = SendOp::Cas { result, target, compare: 0, swap: 0 };
        self.jetty.post_send(&[SendWr::new(op, &self.target, 1)]).expect("room");
    }

    #[inline(always)]
    fn take(&mut self) {
        let mut one = [urma_core::Completion::default()];
        while self.jfc.poll(&mut one).expect("a device") == 0 {}
        assert!(one[0].status.is_success());
    }

    #[inline(always)]
    fn empty(&mut self) {
        let mut one = [urma_core::Completion::default()];
        assert_eq!(self.jfc.poll(&mut one).expect("a device"), 0);
    }
}

/// Two nodes over urma-core that send each other messages.
struct Pair {
    ends: [Correspondent; 2],
}

/// A node of a [`Pair`].
struct Correspondent {
    end: Rust,
    target: Option<TargetJetty>,
}

impl Correspondent {
    fn open(name: &str) -> Outcome<Self> {
        let path = urma::PathChoice::SameHost;
        let cfg = urma::NodeCfg { name: name.to_owned(), path, ..urma::NodeCfg::from_env()? };
        let mut end = Rust::on(urma::open_node(cfg)?.context)?;
        end.receive();
        Ok(Self { end, target: None })
    }

    /// Sends a message of 8 bytes to the other node.
    fn send(&mut self) {
        let local = &self.end.local;
        let src = [LocalSge { segment: local, addr: local.va(), len: 8 }];
        let target = self.target.as_ref().expect("imported");
        let wr = SendWr::new(SendOp::Send { src: &src }, target, 1);
        self.end.jetty.post_send(&[wr]).expect("room");
    }

    /// Polls once. Whether a message came, whose receive is posted again.
    fn poll(&mut self) -> bool {
        let mut done = [urma_core::Completion::default(); 2];
        let count = self.end.jfc.poll(&mut done).expect("a device");
        assert!(done[..count].iter().all(|one| one.status.is_success()));
        let is_there = done[..count].iter().any(|one| one.flags.contains(CompletionFlags::RECV));
        if is_there {
            self.end.receive();
        }
        is_there
    }
}

impl Pair {
    fn open() -> Outcome<Self> {
        let mut ends = [Correspondent::open("one")?, Correspondent::open("two")?];
        for at in 0..2 {
            let there = ends[1 - at].end.jetty.remote();
            ends[at].target = Some(ends[at].end._context.import_jetty(&there)?);
        }
        Ok(Self { ends })
    }

    /// A message in each direction.
    #[inline(always)]
    fn round(&mut self) {
        for at in 0..2 {
            self.ends[at].send();
            while !self.ends[1 - at].poll() {}
        }
    }
}

/// The same through the exported functions.
struct C {
    jetty: *mut urma_jetty_t,
    jfc: *mut urma_jfc_t,
    local: *mut urma_target_seg_t,
    there: *mut urma_target_seg_t,
    target: *mut urma_target_jetty_t,
}

/// A C struct of zero bytes.
fn zeroed<T>() -> T {
    // SAFETY: used for structs of integers and pointers only.
    unsafe { MaybeUninit::zeroed().assume_init() }
}

impl C {
    /// # Safety
    /// None beyond what each function says: the arguments are its own.
    unsafe fn open() -> Self {
        assert_eq!(unsafe { urma_init(null_mut()) }, 0);
        let device = unsafe { urma_get_device_by_name(c"udma0".as_ptr().cast_mut()) };
        let ctx = unsafe { urma_create_context(device, 0) };
        let mut jfc_cfg: urma_jfc_cfg_t = zeroed();
        jfc_cfg.depth = 64;
        let jfc = unsafe { urma_create_jfc(ctx, &raw mut jfc_cfg) };
        let mut jfr_cfg: urma_jfr_cfg_t = zeroed();
        (jfr_cfg.depth, jfr_cfg.trans_mode, jfr_cfg.max_sge) = (16, URMA_TM_RM, 1);
        jfr_cfg.jfc = jfc;
        let jfr = unsafe { urma_create_jfr(ctx, &raw mut jfr_cfg) };
        let mut cfg: urma_jetty_cfg_t = zeroed();
        cfg.flag.set_share_jfr(1);
        (cfg.jfs_cfg.depth, cfg.jfs_cfg.trans_mode) = (DEPTH, URMA_TM_RM);
        (cfg.jfs_cfg.max_sge, cfg.jfs_cfg.max_rsge, cfg.jfs_cfg.jfc) = (1, 1, jfc);
        (cfg.jfs_cfg.rnr_retry, cfg.jfs_cfg.err_timeout) = (7, 17);
        cfg.u.shared.jfr = jfr;
        let jetty = unsafe { urma_create_jetty(ctx, &raw mut cfg) };
        let memory = Region::private(4096).expect("memory");
        let mut seg: urma_seg_cfg_t = zeroed();
        (seg.va, seg.len) = (memory.addr() as u64, 4096);
        seg.flag.set_access(URMA_ACCESS_READ | URMA_ACCESS_WRITE | URMA_ACCESS_ATOMIC);
        let local = unsafe { urma_register_seg(ctx, &raw mut seg) };
        std::mem::forget(memory);
        let mut remote = unsafe { (*local).seg };
        let flag = urma_import_seg_flag_t::default();
        let there = unsafe { urma_import_seg(ctx, &raw mut remote, null_mut(), 0, flag) };
        let (mut rjetty, mut len) = (null_mut(), 0);
        assert_eq!(unsafe { urma_get_rjetty(jetty, &raw mut rjetty, &raw mut len) }, 0);
        let target = unsafe { urma_import_jetty(ctx, rjetty, null_mut()) };
        assert!(![there.is_null(), target.is_null(), jetty.is_null()].contains(&true));
        Self { jetty, jfc, local, there, target }
    }
}

impl C {
    /// The local piece and the remote one.
    #[inline(always)]
    fn pieces(&self) -> (urma_sge_t, urma_sge_t) {
        let va = unsafe { (*self.local).seg.ubva.va };
        let mut here: urma_sge_t = zeroed();
        (here.addr, here.len, here.tseg) = (va, 8, self.local);
        let mut there = here;
        (there.addr, there.tseg) = (va + 64, self.there);
        (here, there)
    }

    /// A signalled request without operands.
    #[inline(always)]
    fn request(&self, opcode: urma_opcode_t) -> urma_jfs_wr_t {
        let mut wr: urma_jfs_wr_t = zeroed();
        (wr.opcode, wr.tjetty, wr.user_ctx) = (opcode, self.target, 1);
        wr.flag.set_complete_enable(1);
        wr
    }

    #[inline(always)]
    fn post_one(&mut self, wr: &mut urma_jfs_wr_t) {
        let mut bad = null_mut();
        let status = unsafe { urma_post_jetty_send_wr(self.jetty, wr, &raw mut bad) };
        assert_eq!(status, 0);
    }
}

impl End for C {
    const NAME: &'static str = "c";

    #[inline(always)]
    fn post(&mut self) {
        let (mut src, mut dst) = self.pieces();
        let mut wr = self.request(URMA_OPC_WRITE);
        wr.u.rw.src = urma_sg_t { sge: &raw mut src, num_sge: 1 };
        wr.u.rw.dst = urma_sg_t { sge: &raw mut dst, num_sge: 1 };
        self.post_one(&mut wr);
    }

    #[inline(always)]
    fn read(&mut self) {
        let (mut dst, mut src) = self.pieces();
        let mut wr = self.request(URMA_OPC_READ);
        wr.u.rw.src = urma_sg_t { sge: &raw mut src, num_sge: 1 };
        wr.u.rw.dst = urma_sg_t { sge: &raw mut dst, num_sge: 1 };
        self.post_one(&mut wr);
    }

    #[inline(always)]
    fn add(&mut self) {
        let (mut src, mut dst) = self.pieces();
        let mut wr = self.request(URMA_OPC_FADD);
        wr.u.faa = urma_faa_wr_t { dst: &raw mut dst, src: &raw mut src, operand: 1 };
        self.post_one(&mut wr);
    }

    #[inline(always)]
    fn swap(&mut self) {
        let (mut src, mut dst) = self.pieces();
        let mut wr = self.request(URMA_OPC_CAS);
        let (src, dst) = (&raw mut src, &raw mut dst);
        wr.u.cas = urma_cas_wr_t { dst, src, cmp_data: 0, swap_data: 0 };
        self.post_one(&mut wr);
    }

    #[inline(always)]
    fn take(&mut self) {
        let mut one: MaybeUninit<urma_cr_t> = MaybeUninit::uninit();
        while unsafe { urma_poll_jfc(self.jfc, 1, one.as_mut_ptr()) } == 0 {}
        assert_eq!(unsafe { (*one.as_ptr()).status }, 0);
    }

    #[inline(always)]
    fn empty(&mut self) {
        let mut one: MaybeUninit<urma_cr_t> = MaybeUninit::uninit();
        assert_eq!(unsafe { urma_poll_jfc(self.jfc, 1, one.as_mut_ptr()) }, 0);
    }
}

/// The loops that are measured: each is one function for each end, so that a profiler can tell
/// them apart.
mod loops {
    use super::{End, Pair};

    #[inline(never)]
    pub(super) fn messages(pair: &mut Pair, count: u32) {
        for _ in 0..count {
            pair.round();
        }
    }

    #[inline(never)]
    pub(super) fn writes<E: End>(end: &mut E, count: u32) {
        for _ in 0..count {
            end.post();
            end.take();
        }
    }

    #[inline(never)]
    pub(super) fn reads<E: End>(end: &mut E, count: u32) {
        for _ in 0..count {
            end.read();
            end.take();
        }
    }

    #[inline(never)]
    pub(super) fn adds<E: End>(end: &mut E, count: u32) {
        for _ in 0..count {
            end.add();
            end.take();
        }
    }

    #[inline(never)]
    pub(super) fn swaps<E: End>(end: &mut E, count: u32) {
        for _ in 0..count {
            end.swap();
            end.take();
        }
    }

    #[inline(never)]
    pub(super) fn posts<E: End>(end: &mut E, count: u32) {
        for _ in 0..count {
            end.post();
        }
    }

    #[inline(never)]
    pub(super) fn takes<E: End>(end: &mut E, count: u32) {
        for _ in 0..count {
            end.take();
        }
    }

    #[inline(never)]
    pub(super) fn empties<E: End>(end: &mut E, count: u32) {
        for _ in 0..count {
            end.empty();
        }
    }
}

/// What each loop is called, and how many calls of one kind it makes in a row.
const LOOPS: [(&str, u32); 7] = [
    ("write", POSTS),
    ("post", DEPTH),
    ("take", DEPTH),
    ("poll", POSTS),
    ("read", POSTS),
    ("add", POSTS),
    ("swap", POSTS),
];

/// Nanoseconds of one of [`LOOPS`] per call.
fn time<E: End>(end: &mut E, name: &str, calls: u32) -> f64 {
    let mut spent = Duration::ZERO;
    let mut timed = |of: fn(&mut E, u32), end: &mut E, count| {
        let start = Instant::now();
        of(end, count);
        spent += start.elapsed();
    };
    let batch = LOOPS.iter().find(|(other, _)| *other == name).map_or(1, |(_, batch)| *batch);
    let mut left = calls;
    while left > 0 {
        let count = left.min(batch);
        match name {
            "write" => timed(loops::writes, end, count),
            "poll" => timed(loops::empties, end, count),
            "read" => timed(loops::reads, end, count),
            "add" => timed(loops::adds, end, count),
            "swap" => timed(loops::swaps, end, count),
            "post" => {
                timed(loops::posts, end, count);
                drain(end, count);
            }
            _ => {
                fill(end, count);
                timed(loops::takes, end, count);
            }
        }
        left -= count;
    }
    spent.as_secs_f64() * 1e9 / f64::from(calls)
}

/// [`loops::posts`] and [`loops::takes`] where no test looks.
#[inline(never)]
fn fill<E: End>(end: &mut E, count: u32) {
    (0..count).for_each(|_| end.post());
}

#[inline(never)]
fn drain<E: End>(end: &mut E, count: u32) {
    (0..count).for_each(|_| end.take());
}

fn main() -> Outcome<()> {
    let (mut rust, mut c) = (Rust::open()?, unsafe { C::open() });
    let counted = std::env::args().find_map(|arg| arg.parse::<u32>().ok());
    if let Some(calls) = counted {
        // One loop only.
        if std::env::args().any(|arg| arg == "rust-message") {
            loops::messages(&mut Pair::open()?, calls);
        }
        for (name, _) in LOOPS {
            let is_meant = |end: &str| std::env::args().any(|arg| arg == format!("{end}-{name}"));
            if is_meant(Rust::NAME) {
                time(&mut rust, name, calls);
            }
            if is_meant(C::NAME) {
                time(&mut c, name, calls);
            }
        }
        return Ok(());
    }
    let mut least = [[f64::MAX; 2]; LOOPS.len()];
    for _ in 0..ROUNDS {
        for (least, (name, _)) in least.iter_mut().zip(LOOPS) {
            least[0] = least[0].min(time(&mut rust, name, POSTS));
            least[1] = least[1].min(time(&mut c, name, POSTS));
        }
    }
    let lines = [
        ("write and poll:", 30.0),
        ("post:", 15.0),
        ("taking poll:", 15.0),
        ("empty poll:", 15.0),
        ("read and poll:", 30.0),
        ("add and poll:", 60.0),
        ("swap and poll:", 60.0),
    ];
    for ((line, limit), [rust, c]) in lines.iter().zip(least) {
        let place = if c - rust <= *limit { "within" } else { "over" };
        let added = c - rust;
        println!("{line:<15} rust {rust:.1} ns, C {c:.1} ns; {added:+.1} is {place} {limit}");
    }
    Ok(())
}
