//! The test: what both sides do, field by field.
//!
//! *Owns*: the parameters that both sides compare, their defaults. *Takes*: [`PerftestCli`].
//! *Gives*: a [`Test`], or a [`PlanRefusal`]. *Must not*: judge combinations; `limits.rs` does.

use serde::{Deserialize, Serialize};
use urma::OrderType;

use super::{PlanRefusal, TestMode, Verb, ensure};
use crate::cli::{AtomicKind, Extra, HugePage, PathArg, PerftestCli, RateUnit, TestCommand};

/// Largest exponent of `-a`.
const ORDER_MAX: u32 = 23;

/// How long a size is run.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(crate) enum RunLength {
    /// Ends after this number of iterations.
    Iterations(u64),
    /// Ends after this number of seconds.
    Seconds(u32),
    /// Until it is interrupted (SIGINT).
    Endless,
}

/// How fast requests are posted at most.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(crate) enum Speed {
    /// Payload bytes per second, of all jetties.
    BytesPerSecond(u64),
    /// Messages per second, of all jetties.
    MessagesPerSecond(u64),
}

/// Open loop: when requests shall start.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(crate) struct OpenLoopRate {
    /// Rate of all jetties together.
    pub(crate) speed: Speed,
    /// Messages of a jetty that start together.
    pub(crate) burst: u32,
}

/// How far a sender may be ahead of its receiver.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(crate) struct Credit {
    /// Most messages outstanding, per jetty.
    pub(crate) threshold: u32,
    /// Messages after which the receiver reports.
    pub(crate) notify: u32,
}

impl Credit {
    /// The values of the command line, or three quarters and one quarter of the receives.
    pub(super) fn of(extra: &Extra, jfr_depth: u32) -> Self {
        let quarter = (jfr_depth / 4).max(1);
        Self {
            threshold: extra.credit_threshold.unwrap_or(jfr_depth - jfr_depth / 4),
            notify: extra.credit_notify_cnt.unwrap_or(quarter),
        }
    }
}

/// What both sides must agree on, field by field.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(crate) struct Test {
    /// Test that is run.
    pub(crate) command: TestCommand,
    /// Message sizes in bytes, ascending.
    pub(crate) sizes: Vec<u32>,
    /// How long each size is run.
    pub(crate) extent: RunLength,
    /// Transport mode of all queues.
    pub(crate) mode: TestMode,
    /// Operation of the atomic tests.
    pub(crate) atomic: AtomicKind,
    /// Number of jetties of each side.
    pub(crate) jettys: u32,
    /// JFS and JFR instead of jetties.
    pub(crate) simplex: bool,
    /// All jetties receive through one JFR.
    pub(crate) share_jfr: bool,
    /// Both directions at once.
    pub(crate) bidirection: bool,
    /// Whether waits sleep on events instead of polling.
    pub(crate) events: bool,
    /// Requests per completion: every so many requests one is signalled.
    pub(crate) cq_mod: u32,
    /// Requests that one call posts.
    pub(crate) post_list: u32,
    /// Receives that one call posts.
    pub(crate) recv_post_list: u32,
    /// Depth of a send queue.
    pub(crate) jfs_depth: u32,
    /// Depth of a receive queue.
    pub(crate) jfr_depth: u32,
    /// Depth of a completion queue.
    pub(crate) jfc_depth: u32,
    /// Largest message that goes inline, bytes.
    pub(crate) inline: u32,
    /// Code of the acknowledgement timeout.
    pub(crate) err_timeout: u8,
    /// Priority of send queues.
    pub(crate) priority: u8,
    /// Segments and queues are guarded by a token.
    pub(crate) token: bool,
    /// Untimed round before the timed one.
    pub(crate) warm_up: bool,
    /// Whether every byte that comes is compared with what was sent.
    pub(crate) verify: bool,
    /// Seed of the pattern.
    pub(crate) seed: u64,
    /// Bytes to walk through; 0 = one message's place.
    pub(crate) span: u64,
    /// Which path requests may take.
    pub(crate) path: PathArg,
    /// Milliseconds between two rows of an endless run.
    pub(crate) period_ms: Option<u32>,
    /// Planned rate of requests; `None` for the closed loop.
    pub(crate) rate: Option<OpenLoopRate>,
    /// Order type, as in the API.
    pub(crate) order: u8,
    /// Flow control of SEND.
    pub(crate) credit: Option<Credit>,
    /// Jetties that share one JFR.
    pub(crate) lanes_per_jfr: u32,
    /// A segment for each jetty.
    pub(crate) lane_segments: bool,
    /// Whether requests carry immediate data.
    pub(crate) imm: bool,
    /// Whether WRITEs are followed by a notification word.
    pub(crate) notify: bool,
    /// Failed requests are counted.
    pub(crate) err_continue: bool,
    /// Pieces of local memory per request.
    pub(crate) sges: u32,
    /// Milliseconds between two writes to the source memory.
    pub(crate) dirty_ms: Option<u32>,
    /// Whether compact transport paths are asked for.
    pub(crate) ctp: bool,
    /// Requests are made at the moment they are posted.
    pub(crate) flat: bool,
    /// Small receives come in the completion.
    pub(crate) jfc_inline: bool,
    /// The buffer is made of huge pages.
    pub(crate) huge: bool,
}

impl Test {
    pub(super) fn of(cli: &PerftestCli) -> Result<Self, PlanRefusal> {
        let is_latency = cli.command.is_latency();
        let verb = cli.command.verb();
        let is_received = matches!(verb, Verb::Send | Verb::Write);
        let extra = &cli.extra;
        let jfs_depth = cli.jfs_depth.unwrap_or(if is_latency { 1 } else { 128 });
        let jfr_depth = cli.jfr_depth.unwrap_or(if is_received { 512 } else { 1 });
        Ok(Self {
            command: cli.command,
            extent: match (cli.duration, cli.iters, cli.infinite) {
                (Some(seconds), ..) => RunLength::Seconds(seconds),
                (None, _, Some(_)) => RunLength::Endless,
                (None, Some(count), None) => RunLength::Iterations(count),
                (None, None, None) => {
                    RunLength::Iterations(if is_latency { 10_000 } else { 50_000 })
                }
            },
            mode: [TestMode::Rm, TestMode::Rc, TestMode::Um][usize::from(cli.trans_mode.min(2))],
            atomic: cli.atomic_type.unwrap_or(AtomicKind::Cas),
            jettys: cli.jettys,
            simplex: cli.simplex,
            // An RC jetty has receives of its own.
            share_jfr: cli.share_jfr && cli.trans_mode != 1,
            bidirection: cli.bidirection,
            events: cli.use_jfce,
            cq_mod: cli.cq_mod,
            post_list: cli.jfs_post_list,
            recv_post_list: cli.jfr_post_list,
            jfs_depth,
            jfr_depth,
            jfc_depth: cli.jfc_depth.unwrap_or(if is_latency { 512 } else { 4096 }),
            inline: cli.inline_size,
            err_timeout: cli.err_timeout,
            priority: cli.priority,
            token: cli.token_policy != 0,
            warm_up: cli.warm_up,
            verify: cli.verify,
            seed: cli.seed,
            span: cli.span,
            path: cli.path,
            period_ms: cli
                .infinite
                .map(|seconds| extra.inf_period_ms.unwrap_or_else(|| seconds.saturating_mul(1000))),
            rate: rate(cli, if is_latency { 1 } else { jfs_depth }),
            order: extra.order_type,
            credit: extra.enable_credit.then(|| Credit::of(extra, jfr_depth)),
            lanes_per_jfr: extra.jettys_pre_jfr.unwrap_or(cli.jettys),
            lane_segments: extra.seg_pre_jetty,
            imm: extra.enable_imm,
            notify: extra.enable_notify,
            err_continue: extra.enable_err_continue,
            sges: extra.sge_num,
            dirty_ms: extra.enable_write_dirty,
            ctp: extra.ctp,
            flat: cli.use_flat_api,
            jfc_inline: cli.jfc_inline,
            huge: extra.hugepage_size == Some(HugePage::Two),
            sizes: sizes(cli)?,
        })
    }

    /// Whether the target of a request needs receives.
    pub(crate) fn has_receives(&self) -> bool {
        match self.command.verb() {
            Verb::Send => true,
            Verb::Write => self.imm,
            Verb::Read | Verb::Atomic => false,
        }
    }

    /// Receive queues of one side.
    pub(crate) fn jfrs(&self) -> u32 {
        if self.simplex || self.share_jfr {
            self.jettys.div_ceil(self.lanes_per_jfr.max(1))
        } else {
            self.jettys
        }
    }

    /// The order type, as the API has it.
    pub(crate) const fn order(&self) -> OrderType {
        match self.order {
            1 => OrderType::Ot,
            2 => OrderType::Oi,
            3 => OrderType::Ol,
            4 => OrderType::No,
            _ => OrderType::Default,
        }
    }

    /// Names of the fields in which the peer's test differs, with both values.
    pub(crate) fn differences(&self, peer: &Self) -> Vec<String> {
        let (mine, theirs) = (serde_json::to_value(self), serde_json::to_value(peer));
        let (Ok(mine), Ok(theirs)) = (mine, theirs) else {
            return vec!["parameters that cannot be written down".to_owned()];
        };
        let fields = mine.as_object().into_iter().flatten();
        fields
            .filter(|(name, value)| theirs.get(name) != Some(value))
            .map(|(name, value)| {
                let theirs = theirs.get(name).unwrap_or(&serde_json::Value::Null);
                format!("{name}: {value} here, {theirs} there")
            })
            .collect()
    }
}

/// The rate to post at; `burst` unless the command line has another.
#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "limits.rs checks it")]
fn rate(cli: &PerftestCli, burst: u32) -> Option<OpenLoopRate> {
    const MEBI: f64 = 1_048_576.0;
    let limit = cli.extra.rate_limit?;
    let speed = match cli.extra.rate_units.unwrap_or(RateUnit::Gigabits) {
        RateUnit::Megabytes => Speed::BytesPerSecond((limit * MEBI) as u64),
        RateUnit::Gigabits => Speed::BytesPerSecond((limit * 1e9 / 8.0) as u64),
        RateUnit::Messages => Speed::MessagesPerSecond((limit * 1000.0) as u64),
    };
    Some(OpenLoopRate { speed, burst: cli.extra.burst_size.unwrap_or(burst) })
}

/// The sizes to run.
fn sizes(cli: &PerftestCli) -> Result<Vec<u32>, PlanRefusal> {
    let (verb, is_latency) = (cli.command.verb(), cli.command.is_latency());
    let (least, most) = (cli.extra.min_size, cli.extra.max_size);
    let is_range = least.is_some() || most.is_some();
    let Some(order) = cli.all.or_else(|| is_range.then_some(ORDER_MAX)) else {
        let default = match verb {
            Verb::Atomic => 8,
            Verb::Write | Verb::Send | Verb::Read => {
                if is_latency {
                    2
                } else {
                    65536
                }
            }
        };
        return Ok(vec![cli.size.unwrap_or(default)]);
    };
    let default = if verb == Verb::Send { 12 } else { 16 };
    let order = if order == 0 { default } else { order };
    ensure!(order <= ORDER_MAX, "-a {order}: at most 2^{} bytes", ORDER_MAX);
    let default = if cli.all.is_none() && most.is_none() { default } else { order };
    let (least, most) = (least.unwrap_or(2), most.unwrap_or(1 << default));
    let sizes = (0..=order).map(|exponent| 1 << exponent);
    let sizes: Vec<u32> = sizes.filter(|size| (least..=most).contains(size)).collect();
    ensure!(!sizes.is_empty(), "--min_size {least} and --max_size {most} leave no size");
    Ok(sizes)
}
