//! A world to test in: two ends with everything they need to exchange requests.
//!
//! *Owns*: [`World`], [`End`], [`Plan`]. *Takes*: a [`Setup`] (which path, page moving, transport
//! mode) and what the test wants to be different. *Gives*: ends that are imported at each other.
//! *Must not*: decide what is right; behaviours do.

mod end;
mod failure;
mod memory;
mod node;
mod setup;
mod wait;

use std::sync::Arc;

use urma_core::{
    Context, Device, JettyCfg, JettyRecv, Jfc, JfcCfg, JfcFlags, JfrCfg, JfsCfg, Mapping,
    SegmentAccess, SegmentCfg, TokenPolicy, TransportMode,
};
use urma_mem::Region;

pub use end::{End, Half, Kit, next, nothing, reached};
pub use failure::{Failure, Outcome, check, fail, refused, same};
pub use memory::{GUARD, Memory, pattern};
pub use node::{DeviceOrigin, Host, cfg, faced, node_as};
pub use setup::{Face, Link, Moving, Setup};
pub use wait::{Pause, limit, pause, quiet, until};

/// Configuration of the two ends; the same for both.
#[derive(Clone, Debug)]
pub struct Plan {
    /// Send half of the jetties.
    pub send: JfsCfg,
    /// Receive half of the jetties.
    pub recv: JfrCfg,
    /// Completions that the send side holds.
    pub jfc_depth: u32,
    /// Completions that the receive side holds.
    pub recv_jfc_depth: u32,
    /// Flags of the receive side's JFC.
    pub recv_jfc_flags: JfcFlags,
    /// Bytes of each end's segment.
    pub len: usize,
    /// What peers may do to the segments.
    pub access: SegmentAccess,
    /// How the segments are guarded.
    pub policy: TokenPolicy,
    /// The segments are files that are mapped shared.
    pub is_file: bool,
}

impl Plan {
    /// Roomy queues, a segment of 256 KiB that peers may do anything to.
    #[must_use]
    pub fn new(mode: TransportMode) -> Self {
        // Long waits (8.6 s for an answer, 7 times 82 ms for a receive): a thread that gets no core
        // for a while must not use them up. Behaviours about the bounds set shorter ones.
        let send = JfsCfg { max_sge: 4, err_timeout: 21, ..JfsCfg::new(mode, 64) };
        let recv = JfrCfg { max_sge: 4, min_rnr_timer: 26, ..JfrCfg::new(mode, 64) };
        Self {
            send,
            recv,
            jfc_depth: 256,
            recv_jfc_depth: 256,
            recv_jfc_flags: JfcFlags::empty(),
            len: 256 << 10,
            access: SegmentAccess::REMOTE_ALL,
            policy: TokenPolicy::None,
            is_file: false,
        }
    }

    /// Makes one half on `host`.
    ///
    /// # Errors
    /// What the API refused.
    pub fn half(&self, host: &Host) -> Outcome<Half> {
        let ctx = Arc::clone(&host.ctx);
        let mem = if self.is_file { Memory::in_file } else { Memory::new }(self.len)?;
        let jfce = ctx.create_jfce()?;
        let jfc = ctx.create_jfc(&JfcCfg::new(self.jfc_depth), Some(&jfce))?;
        let cfg = JfcCfg { flags: self.recv_jfc_flags, ..JfcCfg::new(self.recv_jfc_depth) };
        let recv_jfc = ctx.create_jfc(&cfg, Some(&jfce))?;
        let recv = JettyRecv::Own { cfg: self.recv, jfc: &recv_jfc };
        let jetty = ctx.create_jetty(&JettyCfg::new(self.send, &jfc, recv))?;
        let cfg = SegmentCfg { policy: self.policy, ..SegmentCfg::new(self.access) };
        let seg = ctx.register(mem.region(), &cfg, None)?;
        Ok(Half { jetty, jfc, recv_jfc, jfce, seg, mem, ctx, origin: host.origin.clone() })
    }
}

/// Two ends that have imported each other.
#[derive(Debug)]
pub struct World {
    /// Setup of the world: mode, path, interface, page moving.
    pub setup: Setup,
    /// The one that usually starts.
    pub a: End,
    /// The other; on the own-node link of the same node and context.
    pub b: End,
}

impl World {
    /// Two ends as [`Plan::new`] makes them.
    ///
    /// # Errors
    /// What could not be made.
    #[track_caller]
    pub fn new(setup: Setup) -> Outcome<Self> {
        Self::with(setup, |_| {})
    }

    /// Two ends as `change` wants them.
    ///
    /// # Errors
    /// What could not be made.
    #[track_caller]
    pub fn with(setup: Setup, change: impl FnOnce(&mut Plan)) -> Outcome<Self> {
        let mut plan = Plan::new(setup.mode);
        plan.is_file = setup.moving == Moving::Files;
        change(&mut plan);
        let (host_a, host_b) = Host::pair(setup)?;
        Self::between(setup, &plan, &host_a, &host_b)
    }

    /// Two ends as planned, on given hosts.
    ///
    /// # Errors
    /// What could not be made.
    pub fn between(setup: Setup, plan: &Plan, host_a: &Host, host_b: &Host) -> Outcome<Self> {
        let (a, b) = (plan.half(host_a)?, plan.half(host_b)?);
        let (a_name, b_name) = (a.jetty.remote(), b.jetty.remote());
        let (a_seg, b_seg) = (a.seg.remote(), b.seg.remote());
        let mut a = End::new(a, &b_name, &b_seg, plan.access)?;
        let mut b = End::new(b, &a_name, &a_seg, plan.access)?;
        if setup.mode == TransportMode::Rc {
            a.half.jetty.bind(&a.target)?;
            b.half.jetty.bind(&b.target)?;
        }
        if setup.sleeps {
            a.sleep()?;
            b.sleep()?;
        }
        Ok(Self { setup, a, b })
    }
}

/// A context on a node of its own.
///
/// # Errors
/// What could not be opened.
pub fn open(device: &Device) -> Outcome<Context> {
    Ok(device.open(0)?)
}

/// A JFC without events.
///
/// # Errors
/// What the API refused.
pub fn plain_jfc(ctx: &Context, depth: u32) -> Outcome<Jfc> {
    Ok(ctx.create_jfc(&JfcCfg::new(depth), None)?)
}

/// Private memory as a program has it.
///
/// # Errors
/// Out of memory.
pub fn private(len: usize) -> Outcome<Region> {
    Ok(Region::private(len)?)
}

/// How the ends import each other's memory.
pub const NO_MAPPING: Mapping = Mapping::None;
