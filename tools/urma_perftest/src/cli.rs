//! The command line: what a user may write.
//!
//! *Owns*: names, defaults as documented, help texts. *Takes*: arguments. *Gives*: [`PerftestCli`],
//! raw. *Must not*: judge combinations; `plan.rs` does.

use clap::{Parser, ValueEnum};
use serde::{Deserialize, Serialize};

mod extra;
pub(crate) use extra::RefusedArgs;
pub(crate) use extra::{BondMode, BwUnit, Extra, HugePage, Management, RateUnit};

/// Tests: bandwidth and latency of four operations.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum, Serialize, Deserialize)]
#[value(rename_all = "snake_case")]
pub(crate) enum TestCommand {
    /// Latency of READ: round trip
    ReadLat,
    /// Latency of WRITE: half a round trip, the sides write alternately
    WriteLat,
    /// Latency of SEND: half a round trip, the sides send alternately
    SendLat,
    /// Latency of an atomic: round trip
    AtomicLat,
    /// Bandwidth of READ: from first post to last completion
    ReadBw,
    /// Bandwidth of WRITE: from first post to last completion
    WriteBw,
    /// Bandwidth of SEND: from first post to last completion
    SendBw,
    /// Rate of atomics: from first post to last completion
    AtomicBw,
}

/// Atomic operation of the atomic tests.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum, Serialize, Deserialize)]
pub(crate) enum AtomicKind {
    /// Compare and swap of 4 or 8 bytes
    Cas,
    /// Fetch and add of 4 or 8 bytes
    Faa,
}

/// Which path requests may take.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum, Serialize, Deserialize)]
pub(crate) enum PathArg {
    /// The device's choice: shared memory when both are on one host, else packets
    Auto,
    /// Shared memory; the test is refused if there is none
    SameHost,
    /// UDP packets, also between two processes of one host
    Packets,
}

/// How a latency test waits for the peer's write.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
pub(crate) enum Spin {
    /// Read the memory and call nothing
    Memory,
    /// Read the memory and poll the JFC between reads
    Poll,
    /// Poll the JFC until the own write is complete, then read the memory and call nothing
    Completion,
}

/// Latency and bandwidth of URMA operations between two processes.
///
/// Without -S this side is the server and waits; with -S ADDRESS it is the client. Give both sides
/// the same test options: they are compared before the device is opened.
#[derive(Clone, Debug, Parser)]
#[command(
    name = "urma_perftest",
    version,
    max_term_width = 100,
    after_help = "Two results of --json are compared by: urma_perftest compare A.json B.json"
)]
pub(crate) struct PerftestCli {
    /// The test to run
    #[arg(value_enum)]
    pub(crate) command: TestCommand,

    /// Name of the device to open
    #[arg(short = 'd', long = "dev", value_name = "NAME", default_value = "udma0")]
    pub(crate) dev: String,

    /// Address of the server; makes this side the client
    #[arg(short = 'S', long, value_name = "ADDRESS")]
    pub(crate) server: Option<String>,

    /// TCP port of the exchange of parameters
    #[arg(short = 'P', long, value_name = "PORT", default_value_t = 21115)]
    pub(crate) port: u16,

    /// Bytes of a message [default: 2 for latency, 65536 for bandwidth, 8 for atomics]
    #[arg(short = 's', long, value_name = "BYTES")]
    pub(crate) size: Option<u32>,

    /// All sizes from 2 to 2^ORDER [default ORDER: 12 for SEND, 16 for others]
    #[arg(short = 'a', long, value_name = "ORDER", num_args = 0..=1, default_missing_value = "0")]
    pub(crate) all: Option<u32>,

    /// Iterations, at least 5 [default: 10000 for latency, 50000 for bandwidth]
    #[arg(short = 'n', long, value_name = "COUNT")]
    pub(crate) iters: Option<u64>,

    /// Run for so many seconds instead of a number of iterations
    #[arg(short = 'D', long, value_name = "SECONDS")]
    pub(crate) duration: Option<u32>,

    /// Both directions at once (bandwidth tests)
    #[arg(short = 'B', long)]
    pub(crate) bidirection: bool,

    /// Simplex: a JFS and a JFR instead of a jetty
    #[arg(short = 'b', long = "simplex_mode")]
    pub(crate) simplex: bool,

    /// Receives of at most 12 bytes come in the completion itself (SEND)
    #[arg(short = 'c', long = "jfc_inline")]
    pub(crate) jfc_inline: bool,

    /// Sleep on completion events instead of polling (not for WRITE)
    #[arg(short = 'e', long = "use_jfce")]
    pub(crate) use_jfce: bool,

    /// Acknowledgement timeout: 4.096 us * 2^CODE, 0 to 31
    #[arg(short = 'E', long = "err_timeout", value_name = "CODE", default_value_t = 17)]
    pub(crate) err_timeout: u8,

    /// Build every request when it is posted, as the flat calls do (with -b)
    #[arg(short = 'f', long = "use_flat_api")]
    pub(crate) use_flat_api: bool,

    /// Warn when the frequencies of the cores drift
    #[arg(short = 'F', long = "cpu_freq_f")]
    pub(crate) cpu_freq: bool,

    /// Messages of at most so many bytes go inline; 0 = none (WRITE and SEND)
    #[arg(short = 'I', long = "inline_size", value_name = "BYTES", default_value_t = 0)]
    pub(crate) inline_size: u32,

    /// Share one JFR between all jetties
    #[arg(short = 'j', long = "share_jfr", value_name = "BOOL", default_value_t = true,
          action = clap::ArgAction::Set)]
    pub(crate) share_jfr: bool,

    /// Number of jetties (bandwidth tests)
    #[arg(short = 'J', long, value_name = "COUNT", default_value_t = 1)]
    pub(crate) jettys: u32,

    /// Token policy: 0 none, 1 plain text (2 signed and 3 encrypted are refused)
    #[arg(short = 'K', long = "token_policy", value_name = "POLICY", default_value_t = 0)]
    pub(crate) token_policy: u8,

    /// Requests posted by one call (bandwidth tests)
    #[arg(short = 'l', long = "jfs_post_list", value_name = "COUNT", default_value_t = 1)]
    pub(crate) jfs_post_list: u32,

    /// Queues without a lock inside; those of this device never have one
    #[arg(short = 'L', long = "lock_free")]
    pub(crate) lock_free: bool,

    /// Do not compute the peak bandwidth; reads the clock only at the ends
    #[arg(short = 'N', long = "no_peak")]
    pub(crate) no_peak: bool,

    /// Priority of the send queue, 0 to 15
    #[arg(short = 'O', long, value_name = "PRIORITY", default_value_t = 0)]
    pub(crate) priority: u8,

    /// Transport mode: 0 RM, 1 RC, 2 UM
    #[arg(short = 'p', long = "trans_mode", value_name = "MODE", default_value_t = 0)]
    pub(crate) trans_mode: u8,

    /// One completion for so many requests (bandwidth tests)
    #[arg(short = 'Q', long = "cq_mod", value_name = "COUNT", default_value_t = 100)]
    pub(crate) cq_mod: u32,

    /// Receives posted by one call (SEND)
    #[arg(short = 'r', long = "jfr_post_list", value_name = "COUNT", default_value_t = 1)]
    pub(crate) jfr_post_list: u32,

    /// Depth of a JFR [default: 512 for SEND and WRITE, 1 for others]
    #[arg(short = 'R', long = "jfr_depth", value_name = "DEPTH")]
    pub(crate) jfr_depth: Option<u32>,

    /// Depth of a JFS [default: 1 for latency, 128 for bandwidth]
    #[arg(short = 'T', long = "jfs_depth", value_name = "DEPTH")]
    pub(crate) jfs_depth: Option<u32>,

    /// Depth of a JFC [default: 512 for latency, 4096 for bandwidth]
    #[arg(short = 'C', long = "jfc_depth", value_name = "DEPTH")]
    pub(crate) jfc_depth: Option<u32>,

    /// Which atomic operation to test [default: cas]
    #[arg(short = 'A', long = "atomic_type", value_enum, value_name = "KIND")]
    pub(crate) atomic_type: Option<AtomicKind>,

    /// Warm up before the measurement (READ, WRITE and atomic bandwidth)
    #[arg(short = 'w', long = "warm_up")]
    pub(crate) warm_up: bool,

    /// Run until interrupted, or for -D; a row every so many seconds (bandwidth) [default: 2]
    #[arg(short = 'y', long, value_name = "SECONDS", num_args = 0..=1, default_missing_value = "2")]
    pub(crate) infinite: Option<u32>,

    /// Write the log of the stack to standard error
    #[arg(short = 'v', long)]
    pub(crate) verbose: bool,

    /// Index of the EID on the device
    #[arg(long = "eid_idx", value_name = "INDEX", default_value_t = 0)]
    pub(crate) eid_idx: u32,

    /// EID of this node: dotted IPv4 or IPv6 [default: the host's address, or one of 127.0.0.0/8 if another process has it]
    #[arg(long, value_name = "EID")]
    pub(crate) eid: Option<String>,

    /// Which path requests may take
    #[arg(long, value_enum, default_value = "auto")]
    pub(crate) path: PathArg,

    /// Check every byte at the receiver (numbers are then not a measurement)
    #[arg(long)]
    pub(crate) verify: bool,

    /// Seed of the pattern that --verify writes
    #[arg(long, value_name = "SEED", default_value_t = 1)]
    pub(crate) seed: u64,

    /// Walk through a buffer of so many bytes instead of one message's place (bandwidth tests)
    #[arg(long, value_name = "BYTES", default_value_t = 0)]
    pub(crate) span: u64,

    /// How write_lat waits [default: memory on one host, poll over packets]
    #[arg(long, value_enum)]
    pub(crate) spin: Option<Spin>,

    /// Pin this process to a core
    #[arg(long, value_name = "CORE")]
    pub(crate) cpu: Option<usize>,

    /// Pin the server to a core (given to the client)
    #[arg(long = "peer-cpu", value_name = "CORE")]
    pub(crate) peer_cpu: Option<usize>,

    /// Print one JSON document instead of the table
    #[arg(long)]
    pub(crate) json: bool,

    /// Print the distribution of latencies too (bandwidth tests: with --rate_limit)
    #[arg(long)]
    pub(crate) histogram: bool,

    /// Fail (exit code 1) when this holds for a result, e.g. `t_avg[us] > 5 && bytes == 8`
    #[arg(long = "fail-if", value_name = "EXPR")]
    pub(crate) fail_if: Vec<String>,

    /// Seconds without progress or message of the peer after which the test fails
    #[arg(long = "wait-timeout", value_name = "SECONDS", default_value_t = 60)]
    pub(crate) wait_timeout: u32,

    #[command(flatten)]
    pub(crate) extra: Extra,

    #[command(flatten)]
    pub(crate) refused: RefusedArgs,
}

/// Compares two results of `--json`: the ratio of each column.
#[derive(Clone, Debug, Parser)]
#[command(name = "urma_perftest-compare", bin_name = "urma_perftest compare", version)]
pub(crate) struct CompareCli {
    /// The result that the other one is divided by
    #[arg(value_name = "A.json")]
    pub(crate) base: std::path::PathBuf,

    /// The result that is compared with it
    #[arg(value_name = "B.json")]
    pub(crate) other: std::path::PathBuf,

    /// Print one JSON document instead of the table
    #[arg(long)]
    pub(crate) json: bool,

    /// Fail (exit code 1) when this holds for a row of ratios, e.g. `t_avg[us] > 1.2`
    #[arg(long = "fail-if", value_name = "EXPR")]
    pub(crate) fail_if: Vec<String>,
}
