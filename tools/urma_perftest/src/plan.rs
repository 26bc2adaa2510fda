//! The plan of a run: what both sides do, with every default filled in.
//!
//! *Owns*: the rules of what goes with what. *Takes*: [`Cli`], later the device's limits.
//! *Gives*: a [`Plan`], or a [`Refusal`] that says why. *Must not*: open or connect anything.

use serde::{Deserialize, Serialize};
use urma_core::{Eid, TransportMode};

use crate::cli::{AtomicKind, Cli, Command, Spin, Way};

mod limits;

/// Why a run is refused; for people.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("{0}")]
pub(crate) struct Refusal(pub(crate) String);

/// Fails with a reason unless a condition holds.
macro_rules! ensure {
    ($condition:expr, $($why:tt)*) => {
        if !$condition {
            return Err($crate::plan::Refusal(format!($($why)*)));
        }
    };
}
use ensure;

/// Which operation is measured.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Verb {
    /// One-sided read.
    Read,
    /// One-sided write.
    Write,
    /// Message.
    Send,
    /// One-sided atomic.
    Atomic,
}

impl Command {
    /// Its operation.
    pub(crate) const fn verb(self) -> Verb {
        match self {
            Self::ReadLat | Self::ReadBw => Verb::Read,
            Self::WriteLat | Self::WriteBw => Verb::Write,
            Self::SendLat | Self::SendBw => Verb::Send,
            Self::AtomicLat | Self::AtomicBw => Verb::Atomic,
        }
    }

    /// Whether it measures latency (else bandwidth).
    pub(crate) const fn is_latency(self) -> bool {
        matches!(self, Self::ReadLat | Self::WriteLat | Self::SendLat | Self::AtomicLat)
    }
}

/// Transport mode, as the two sides compare it.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(crate) enum Mode {
    /// Reliable message.
    Rm,
    /// Reliable connection.
    Rc,
    /// Unreliable message.
    Um,
}

impl Mode {
    /// As the API has it.
    pub(crate) const fn to_api(self) -> TransportMode {
        match self {
            Self::Rm => TransportMode::Rm,
            Self::Rc => TransportMode::Rc,
            Self::Um => TransportMode::Um,
        }
    }

    /// As the report prints it.
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Rm => "URMA_TM_RM",
            Self::Rc => "URMA_TM_RC",
            Self::Um => "URMA_TM_UM",
        }
    }
}

/// How long a size is run.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(crate) enum Extent {
    /// So many iterations.
    Iterations(u64),
    /// So many seconds.
    Seconds(u32),
}

/// What both sides must agree on, field by field.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(crate) struct Test {
    /// The test.
    pub(crate) command: Command,
    /// Message sizes in bytes, ascending.
    pub(crate) sizes: Vec<u32>,
    /// How long each size is run.
    pub(crate) extent: Extent,
    /// Transport mode.
    pub(crate) mode: Mode,
    /// Which atomic.
    pub(crate) atomic: AtomicKind,
    /// Number of jetties.
    pub(crate) jettys: u32,
    /// JFS and JFR instead of jetties.
    pub(crate) simplex: bool,
    /// All jetties receive through one JFR.
    pub(crate) share_jfr: bool,
    /// Both directions at once.
    pub(crate) bidirection: bool,
    /// Sleep on events.
    pub(crate) events: bool,
    /// Requests per completion.
    pub(crate) cq_mod: u32,
    /// Requests per post.
    pub(crate) post_list: u32,
    /// Receives per post.
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
    /// Check every byte.
    pub(crate) verify: bool,
    /// Seed of the pattern.
    pub(crate) seed: u64,
    /// Bytes to walk through; 0 = one message's place.
    pub(crate) span: u64,
    /// Which way requests may take.
    pub(crate) way: Way,
}

/// A run, as one side sees it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Plan {
    /// What both sides agree on.
    pub(crate) test: Test,
    /// The server's address; `None` on the server itself.
    pub(crate) server: Option<String>,
    /// TCP port of the exchange.
    pub(crate) port: u16,
    /// Name of the device.
    pub(crate) dev: String,
    /// EID of this node; `None` = the device picks one.
    pub(crate) eid: Option<Eid>,
    /// Index of the EID on the device.
    pub(crate) eid_index: u32,
    /// Core of this process.
    pub(crate) cpu: Option<usize>,
    /// Core of the server.
    pub(crate) peer_cpu: Option<usize>,
    /// How a latency test waits; `None` = by the path.
    pub(crate) spin: Option<Spin>,
    /// Leave the peak out.
    pub(crate) no_peak: bool,
    /// JSON instead of a table.
    pub(crate) json: bool,
    /// Longest silence of the peer, seconds.
    pub(crate) wait_timeout_s: u32,
}

impl Plan {
    /// Checks a command line and fills in its defaults.
    ///
    /// # Errors
    /// The first combination that cannot be.
    pub(crate) fn of(cli: &Cli) -> Result<Self, Refusal> {
        limits::ranges(cli)?;
        limits::combinations(cli)?;
        let eid = cli.eid.as_deref().map(str::parse::<Eid>).transpose();
        let eid = eid.map_err(|error| Refusal(format!("--eid: {error}")))?;
        ensure!(
            cli.peer_cpu.is_none() || cli.server.is_some(),
            "--peer-cpu is the client's to give: a server takes --cpu"
        );
        Ok(Self {
            test: Test::of(cli)?,
            server: cli.server.clone(),
            port: cli.port,
            dev: cli.dev.clone(),
            eid,
            eid_index: cli.eid_idx,
            cpu: cli.cpu,
            peer_cpu: cli.peer_cpu,
            spin: cli.spin,
            no_peak: cli.no_peak,
            json: cli.json,
            wait_timeout_s: cli.wait_timeout,
        })
    }

    /// Whether this side starts the test.
    pub(crate) fn is_client(&self) -> bool {
        self.server.is_some()
    }

    /// Whether this side posts requests of the measured kind.
    pub(crate) fn is_active(&self) -> bool {
        self.is_client()
            || self.test.bidirection
            || matches!(self.test.command, Command::WriteLat | Command::SendLat)
    }
}

impl Test {
    fn of(cli: &Cli) -> Result<Self, Refusal> {
        let is_latency = cli.command.is_latency();
        let verb = cli.command.verb();
        let is_received = matches!(verb, Verb::Send | Verb::Write);
        Ok(Self {
            command: cli.command,
            extent: match (cli.duration, cli.iters) {
                (Some(seconds), _) => Extent::Seconds(seconds),
                (None, Some(count)) => Extent::Iterations(count),
                (None, None) => Extent::Iterations(if is_latency { 10_000 } else { 50_000 }),
            },
            mode: [Mode::Rm, Mode::Rc, Mode::Um][usize::from(cli.trans_mode.min(2))],
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
            jfs_depth: cli.jfs_depth.unwrap_or(if is_latency { 1 } else { 128 }),
            jfr_depth: cli.jfr_depth.unwrap_or(if is_received { 512 } else { 1 }),
            jfc_depth: cli.jfc_depth.unwrap_or(if is_latency { 512 } else { 4096 }),
            inline: cli.inline_size,
            err_timeout: cli.err_timeout,
            priority: cli.priority,
            token: cli.token_policy != 0,
            warm_up: cli.warm_up,
            verify: cli.verify,
            seed: cli.seed,
            span: cli.span,
            way: cli.path,
            sizes: sizes(cli)?,
        })
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

/// The sizes to run.
fn sizes(cli: &Cli) -> Result<Vec<u32>, Refusal> {
    let (verb, is_latency) = (cli.command.verb(), cli.command.is_latency());
    let Some(order) = cli.all else {
        let default = match verb {
            Verb::Atomic => 8,
            _ if is_latency => 2,
            _ => 65536,
        };
        return Ok(vec![cli.size.unwrap_or(default)]);
    };
    let default = if verb == Verb::Send { 12 } else { 16 };
    let order = if order == 0 { default } else { order };
    ensure!(order <= limits::ORDER_MAX, "-a {order}: at most 2^{} bytes", limits::ORDER_MAX);
    Ok((1..=order).map(|exponent| 1 << exponent).collect())
}

#[cfg(test)]
mod tests;
