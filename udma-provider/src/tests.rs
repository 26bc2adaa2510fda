//! The driver against a scripted device: honest first, then lying, then silent.
#![expect(clippy::cast_possible_truncation, reason = "tests cut numbers they chose themselves")]

mod again;
mod hostile;
mod idle;
mod local_completion;
mod queues;
mod room;
mod toy;

use std::sync::Arc;

use urma_core::{
    Completion, JfcCfg, JfcFlags, QueueCfg, QueueKind, RecvCfg, SendCfg, SendFlags, SendOp, SendWr,
    TransportMode, WrFlags,
    ops::{ContextOps, DeviceOps, JfcParts, QueueParts},
};

use crate::{DriverCfg, UdmaDevice};
use toy::Toy;

/// A device that is up, and a context on it.
struct Bench {
    toy: Arc<Toy>,
    device: Arc<UdmaDevice>,
    context: Arc<dyn ContextOps>,
}

impl Bench {
    fn new() -> Self {
        Self::with(DriverCfg { command_depth: 4, ..DriverCfg::default() })
    }

    fn with(cfg: DriverCfg) -> Self {
        Self::on(Toy::new(), cfg)
    }

    fn on(toy: Arc<Toy>, cfg: DriverCfg) -> Self {
        let device = Arc::new(UdmaDevice::new(toy.backing(), cfg));
        let context = device.open(0).unwrap();
        Self { toy, device, context }
    }

    /// The device makes a step of its own.
    fn device_work(&self) {
        self.toy.backing().progress();
    }

    fn jfc(&self, depth: u32) -> JfcParts {
        self.context.create_jfc(&jfc_cfg(depth), None).unwrap()
    }

    fn jfs(&self, jfc: u32, depth: u32) -> QueueParts {
        self.context.create_queue(&jfs_cfg(jfc, depth)).unwrap()
    }
}

fn jfc_cfg(depth: u32) -> JfcCfg {
    JfcCfg { depth, flags: JfcFlags::empty(), ceqn: 0, user_ctx: 0 }
}

fn jfs_cfg(jfc: u32, depth: u32) -> QueueCfg {
    QueueCfg {
        kind: QueueKind::Jfs,
        id: 0,
        mode: TransportMode::Rm,
        order: urma_core::OrderType::Oi,
        token: None,
        send: Some(SendCfg {
            jfc,
            depth,
            max_sge: 1,
            max_rsge: 1,
            max_inline: 0,
            priority: 0,
            rnr_retry: 7,
            err_timeout: 17,
            flags: SendFlags::empty(),
        }),
        recv: None,
        shared: None,
        group: None,
        user_ctx: 0xC0,
    }
}

fn jfr_cfg(jfc: u32, depth: u32) -> QueueCfg {
    QueueCfg {
        kind: QueueKind::Jfr,
        send: None,
        recv: Some(RecvCfg { jfc, depth, max_sge: 2, min_rnr_timer: 12 }),
        ..jfs_cfg(jfc, depth)
    }
}

/// A one-block request that needs no target.
fn nop(user_ctx: u64, flags: WrFlags) -> SendWr<'static> {
    SendWr { op: SendOp::Nop, flags, target: None, target_hint: 0, user_ctx }
}

fn signalled(user_ctx: u64) -> SendWr<'static> {
    nop(user_ctx, WrFlags::COMPLETE)
}

/// Everything that a poll gives now.
fn poll_all(jfc: &mut JfcParts) -> Vec<Completion> {
    let mut all = Vec::new();
    let mut out = [Completion::default(); 8];
    loop {
        match jfc.queue.poll(&mut out).unwrap() {
            0 => return all,
            found => all.extend_from_slice(&out[..found]),
        }
    }
}

fn contexts(completions: &[Completion]) -> Vec<u64> {
    completions.iter().map(|completion| completion.user_ctx).collect()
}
