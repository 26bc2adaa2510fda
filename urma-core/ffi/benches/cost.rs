//! What the C face costs per post and per poll over the Rust path, in one process on one device.
//!
//! *Owns*: two loops of the same work (one 8-byte write, polled until it completes; polls of an empty
//! queue), one through urma-core, one through the exported functions. *Gives*: nanoseconds of each,
//! alternating, the least of several rounds. `rust`, `c`, `rust-poll` or `c-poll` runs one loop
//! only, and a number says how many calls: instructions are counted as the difference of two runs
//! under `valgrind --tool=callgrind`.
#![expect(unsafe_code, reason = "calls C functions as a C program does")]
#![expect(
    clippy::undocumented_unsafe_blocks,
    reason = "all calls are alike: live objects of this file, and places on its stack"
)]
#![expect(clippy::print_stdout, reason = "a bench talks to its user")]
#![expect(clippy::disallowed_methods, reason = "a bench reads the clock")]

use std::{error::Error, mem::MaybeUninit, ptr::null_mut, time::Instant};

use udma_provider::UdmaProvider;
use urma::{
    abi::*,
    face::{
        context::*, data::*, device::*, jetty::*, jfc::*, jfr::*, lifecycle::*, segment::*,
        target::*,
    },
};
use urma_core::{
    Context, DeviceId, ImportedSegment, Jetty, JettyCfg, JettyRecv, Jfc, JfcCfg, JfrCfg, JfsCfg,
    LocalSge, Mapping, Registry, RemoteAddr, Segment, SegmentAccess, SegmentCfg, SendOp, SendWr,
    TargetJetty, TransportMode,
};
use urma_mem::Region;

type Outcome<T> = Result<T, Box<dyn Error>>;

/// Calls of a round, unless an argument says another number: then there is one round.
const POSTS: u32 = 200_000;
const ROUNDS: u32 = 15;

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
        let node = ubcore_sim::node::Node::open(ubcore_sim::node::NodeCfg::from_env()?)?;
        let backing: std::sync::Arc<dyn udma_abi::DeviceBacking> = node;
        let info = backing.info();
        let (vendor, device) = (info.vendor_id, info.device_id);
        let id = DeviceId { name: info.name, driver: info.driver_name, vendor, device };
        let mut registry = Registry::new();
        registry.add_provider(std::sync::Arc::new(UdmaProvider::default()))?;
        let context = registry.add_device(&id, Box::new(backing))?.open(0)?;
        let jfc = context.create_jfc(&JfcCfg::new(64), None)?;
        let mode = TransportMode::Rm;
        let recv = JettyRecv::Own { cfg: JfrCfg::new(mode, 16), jfc: &jfc };
        let jetty = context.create_jetty(&JettyCfg::new(JfsCfg::new(mode, 16), &jfc, recv))?;
        let memory = Region::private(4096)?;
        let cfg = SegmentCfg::new(SegmentAccess::REMOTE_ALL);
        let local = context.register(&memory, &cfg, None)?;
        let there =
            context.import_segment(&local.remote(), SegmentAccess::REMOTE_ALL, Mapping::None)?;
        let target = context.import_jetty(&jetty.remote())?;
        Ok(Self { jetty, jfc, local, there, target, _context: context })
    }

    fn write(&mut self) {
        let src = [LocalSge { segment: &self.local, addr: self.local.va(), len: 8 }];
        let dst = RemoteAddr { segment: &self.there, addr: self.there.va() + 64 };
        let wr = SendWr::new(SendOp::Write { src: &src, dst }, &self.target, 1);
        self.jetty.post_send(&[wr]).expect("room");
        let mut one = [urma_core::Completion::default()];
        while self.jfc.poll(&mut one).expect("a device") == 0 {}
        assert!(one[0].status.is_success());
    }

    fn poll(&mut self) {
        let mut one = [urma_core::Completion::default()];
        assert_eq!(self.jfc.poll(&mut one).expect("a device"), 0);
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
        (cfg.jfs_cfg.depth, cfg.jfs_cfg.trans_mode) = (16, URMA_TM_RM);
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

    fn write(&mut self) {
        let va = unsafe { (*self.local).seg.ubva.va };
        let mut src: urma_sge_t = zeroed();
        (src.addr, src.len, src.tseg) = (va, 8, self.local);
        let mut dst = src;
        (dst.addr, dst.tseg) = (va + 64, self.there);
        let mut wr: urma_jfs_wr_t = zeroed();
        (wr.opcode, wr.tjetty, wr.user_ctx) = (URMA_OPC_WRITE, self.target, 1);
        wr.flag.set_complete_enable(1);
        wr.u.rw.src = urma_sg_t { sge: &raw mut src, num_sge: 1 };
        wr.u.rw.dst = urma_sg_t { sge: &raw mut dst, num_sge: 1 };
        let mut bad = null_mut();
        let status = unsafe { urma_post_jetty_send_wr(self.jetty, &raw mut wr, &raw mut bad) };
        assert_eq!(status, 0);
        let mut one: MaybeUninit<urma_cr_t> = MaybeUninit::uninit();
        while unsafe { urma_poll_jfc(self.jfc, 1, one.as_mut_ptr()) } == 0 {}
        assert_eq!(unsafe { one.assume_init() }.status, 0);
    }

    fn poll(&mut self) {
        let mut one: MaybeUninit<urma_cr_t> = MaybeUninit::uninit();
        assert_eq!(unsafe { urma_poll_jfc(self.jfc, 1, one.as_mut_ptr()) }, 0);
    }
}

fn nanos(posts: u32, mut f: impl FnMut()) -> f64 {
    let start = Instant::now();
    for _ in 0..posts {
        f();
    }
    start.elapsed().as_secs_f64() * 1e9 / f64::from(posts)
}

fn main() -> Outcome<()> {
    let only = std::env::args().find(|arg| ["rust", "c", "rust-poll", "c-poll"].contains(&&**arg));
    let mut rust = Rust::open()?;
    let mut c = unsafe { C::open() };
    let counted = std::env::args().find_map(|arg| arg.parse::<u32>().ok());
    let (posts, rounds) = counted.map_or((POSTS, ROUNDS), |posts| (posts, 1));
    let (mut least, all) = ([f64::MAX; 4], only.is_none());
    for _ in 0..rounds {
        let wanted = |name: &str| all || only.as_deref() == Some(name);
        let mut run = |index: usize, name: &str, f: &mut dyn FnMut() -> f64| {
            if wanted(name) {
                least[index] = least[index].min(f());
            }
        };
        run(0, "rust", &mut || nanos(posts, || rust.write()));
        run(1, "c", &mut || nanos(posts, || c.write()));
        run(2, "rust-poll", &mut || nanos(posts, || rust.poll()));
        run(3, "c-poll", &mut || nanos(posts, || c.poll()));
    }
    let [rust_write, c_write, rust_poll, c_poll] = least;
    println!("write and poll: rust {rust_write:.1} ns, C {c_write:.1} ns");
    println!("empty poll:     rust {rust_poll:.1} ns, C {c_poll:.1} ns");
    Ok(())
}
