//! The command line.
//!
//! *Owns*: names, defaults, help texts; those of UMDK release 26.06 where it has them.

use clap::Parser;
use urma::Eid;

/// Pings a node by its EID, through well-known jetty 5.
///
/// Exit code 0: an answer came (with -c and -w: all of them). 1: none did. 2: something else failed.
#[derive(Clone, Debug, Parser)]
#[command(name = "urma_ping", version, max_term_width = 100)]
pub(crate) struct PingCli {
    /// EID of the node to ping: dotted IPv4 or IPv6
    #[arg(value_name = "EID", required_unless_present = "serve")]
    pub(crate) destination: Option<Eid>,

    /// Pings to send [default: until interrupted]
    #[arg(short = 'c', value_name = "COUNT", value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) count: Option<u32>,

    /// EID of this node [default: as URMA_EID says, else the address of this host]
    #[arg(short = 'I', value_name = "EID")]
    pub(crate) source: Option<Eid>,

    /// Seconds between two pings
    #[arg(short = 'i', value_name = "SECONDS", default_value = "1", value_parser = seconds)]
    pub(crate) interval: f64,

    /// Bytes of a ping, 1 to 4096
    #[arg(short = 's', value_name = "BYTES", default_value_t = 4,
          value_parser = clap::value_parser!(u32).range(1..=4096))]
    pub(crate) size: u32,

    /// Seconds after which to end, whatever was answered [default: never]
    #[arg(short = 'w', value_name = "SECONDS", value_parser = seconds)]
    pub(crate) deadline: Option<f64>,

    /// Seconds to wait for an answer; 0: for ever
    #[arg(short = 'W', value_name = "SECONDS", default_value = "1", value_parser = seconds)]
    pub(crate) timeout: f64,

    /// Print the first and the last lines only
    #[arg(short = 'q')]
    pub(crate) quiet: bool,

    /// Print more; given twice: the log of the stack, too
    #[arg(short = 'v', long, action = clap::ArgAction::Count)]
    pub(crate) verbose: u8,

    /// Name of the device to open
    #[arg(short = 'd', long = "dev", value_name = "NAME", default_value = "udma0")]
    pub(crate) dev: String,

    /// Print one JSON document instead of text
    #[arg(long)]
    pub(crate) json: bool,

    /// Be a node that answers pings, until interrupted
    #[arg(long, conflicts_with_all = ["destination", "count", "deadline"])]
    pub(crate) serve: bool,
}

/// Most seconds of any option.
const SECONDS_MAX: f64 = 1e6;

fn seconds(text: &str) -> Result<f64, String> {
    match text.parse::<f64>() {
        Ok(seconds) if (0.0..=SECONDS_MAX).contains(&seconds) => Ok(seconds),
        Ok(_) => Err(format!("from 0 to {SECONDS_MAX}")),
        Err(error) => Err(error.to_string()),
    }
}
