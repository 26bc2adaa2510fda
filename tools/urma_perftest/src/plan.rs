//! The plan of a run: what both sides do, with every default filled in.
//!
//! *Owns*: the rules of what goes with what. *Takes*: [`PerftestCli`], later the device's limits.
//! *Gives*: a [`Plan`], or a [`PlanRefusal`] with the reason. *Must not*: open or connect anything.

use serde::{Deserialize, Serialize};
use urma::{Eid, TransportMode};

use crate::cli::{BwUnit, PerftestCli, Spin, TestCommand};

mod limits;
mod test;

pub(crate) use test::{Credit, OpenLoopRate, RunLength, Speed, Test};

/// Why a run is refused; for people.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("{0}")]
pub(crate) struct PlanRefusal(pub(crate) String);

/// Fails with a reason unless a condition holds.
macro_rules! ensure {
    ($condition:expr, $($why:tt)*) => {
        if !$condition {
            return Err($crate::plan::PlanRefusal(format!($($why)*)));
        }
    };
}
use ensure;

/// Which operation is measured.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Verb {
    /// READ: reads the server's memory.
    Read,
    /// WRITE: writes the server's memory.
    Write,
    /// SEND: sends messages that consume receives.
    Send,
    /// Atomic: changes words of the server's memory.
    Atomic,
}

impl TestCommand {
    /// Returns the operation that the test measures.
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
pub(crate) enum TestMode {
    /// Reliable message: one queue, many targets.
    Rm,
    /// Reliable connection: one queue, one target.
    Rc,
    /// Unreliable message: SEND only, not acknowledged.
    Um,
}

impl TestMode {
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

/// A run, as one side sees it.
#[derive(Clone, PartialEq, Debug)]
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
    /// Local address of the exchange.
    pub(crate) bind_ip: Option<String>,
    /// The exchange goes over IPv6.
    pub(crate) ipv6: bool,
    /// EID that the peer must have.
    pub(crate) peer_eid: Option<Eid>,
    /// Number of the first jetty; 0 = any.
    pub(crate) jetty_id: u32,
    /// Longest wait for one event, milliseconds.
    pub(crate) event_wait_ms: u32,
    /// Unit of bandwidth columns.
    pub(crate) bw_unit: BwUnit,
    /// Print the distribution of latencies.
    pub(crate) histogram: bool,
    /// Warn when the frequencies of the cores drift.
    pub(crate) cpu_freq: bool,
}

impl Plan {
    /// Checks a command line and fills in its defaults.
    ///
    /// # Errors
    /// The first combination that cannot be.
    pub(crate) fn of(cli: &PerftestCli) -> Result<Self, PlanRefusal> {
        if let Some((option, why)) = cli.refused.first() {
            return Err(PlanRefusal(format!(
                "{option}: not supported on a software device: {why}"
            )));
        }
        limits::ranges(cli)?;
        limits::combinations(cli)?;
        let extra = &cli.extra;
        let test = Test::of(cli)?;
        let wait_timeout_ms = cli.wait_timeout.saturating_mul(1000);
        Ok(Self {
            bind_ip: extra.bind_ip.clone(),
            ipv6: extra.enable_ipv6,
            peer_eid: eid("--dip", extra.dip.as_deref())?,
            jetty_id: extra.jetty_id,
            event_wait_ms: match extra.wait_jfc_timeout {
                None => EVENT_WAIT_MS,
                Some(bound) => u32::try_from(bound).unwrap_or(wait_timeout_ms),
            },
            bw_unit: extra.bw_unit,
            histogram: cli.histogram,
            cpu_freq: cli.cpu_freq,
            test,
            server: cli.server.clone(),
            port: cli.port,
            dev: cli.dev.clone(),
            eid: eid("--eid", cli.eid.as_deref().or(extra.sip.as_deref()))?,
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
            || matches!(self.test.command, TestCommand::WriteLat | TestCommand::SendLat)
    }

    /// Whether this side has results: in a ping-pong both have, as in UMDK.
    pub(crate) fn is_measuring(&self) -> bool {
        self.is_client() || (self.test.command.is_latency() && self.is_active())
    }
}

/// How long one event is waited for, as in UMDK.
const EVENT_WAIT_MS: u32 = 1000;

/// The EID that an option gives.
fn eid(option: &str, text: Option<&str>) -> Result<Option<Eid>, PlanRefusal> {
    let eid = text.map(str::parse::<Eid>).transpose();
    eid.map_err(|error| PlanRefusal(format!("{option}: {error}")))
}

#[cfg(test)]
mod tests;
