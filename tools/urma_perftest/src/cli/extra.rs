//! Options that have only a long name, with the names and help texts of UMDK release 26.06.
//!
//! Those that a software device does not support are refused with a reason, none is ignored silently.

use clap::{Args, ValueEnum};
use serde::{Deserialize, Serialize};

/// Unit of the number behind `--rate_limit`.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
pub(crate) enum RateUnit {
    /// 2^20 bytes per second
    #[value(name = "M")]
    Megabytes,
    /// 10^9 bits per second
    #[value(name = "G")]
    Gigabits,
    /// 1000 messages per second
    #[value(name = "P")]
    Messages,
}

/// What carries the exchange of parameters before the test.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
pub(crate) enum Management {
    /// A TCP connection between the two processes
    Tcp,
    /// Messages over URMA (refused)
    Ub,
}

/// Size of the huge pages behind the memory.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
pub(crate) enum HugePage {
    /// Pages of 2 MiB
    #[value(name = "2MB")]
    Two,
    /// Pages of 1 GiB (refused)
    #[value(name = "1GB")]
    Giant,
}

/// Unit of bandwidth columns.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum, Serialize, Deserialize)]
pub(crate) enum BwUnit {
    /// 2^10 bytes per second
    #[value(name = "KB")]
    Kb,
    /// 2^20 bytes per second
    #[value(name = "MB")]
    Mb,
    /// 2^30 bytes per second
    #[value(name = "GB")]
    Gb,
}

/// How a bonded device uses its member devices.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
#[value(rename_all = "snake_case")]
pub(crate) enum BondMode {
    /// One device, as a software node always is
    Standalone,
    /// One member at a time (refused)
    ActiveBackup,
    /// All members at once (refused)
    Balance,
}

/// Options that have only a long name.
#[derive(Clone, Debug, Args)]
pub(crate) struct Extra {
    /// Milliseconds between two rows of -y, a multiple of 50
    #[arg(long = "inf_period_ms", value_name = "MS")]
    pub(crate) inf_period_ms: Option<u32>,

    /// Post at most at this rate; latency then counts from the intended post (open loop)
    #[arg(long = "rate_limit", value_name = "RATE")]
    pub(crate) rate_limit: Option<f64>,

    /// Unit of --rate_limit: M = 2^20 bytes/s, G = Gbit/s, P = 1000 messages/s [default: G]
    #[arg(long = "rate_units", value_enum, value_name = "UNIT", requires = "rate_limit")]
    pub(crate) rate_units: Option<RateUnit>,

    /// Messages posted together under --rate_limit [default: 1 (latency), the JFS depth (bandwidth)]
    #[arg(long = "burst_size", value_name = "COUNT", requires = "rate_limit")]
    pub(crate) burst_size: Option<u32>,

    /// Order type: 0 default, 1 OT, 2 OI, 3 OL, 4 NO
    #[arg(long = "order_type", value_name = "ORDER", default_value_t = 0)]
    pub(crate) order_type: u8,

    /// What carries the exchange of parameters
    #[arg(long, value_enum, default_value = "tcp")]
    pub(crate) mgmt: Management,

    /// Exchange parameters over IPv6
    #[arg(long = "enable_ipv6")]
    pub(crate) enable_ipv6: bool,

    /// Local address of the exchange of parameters
    #[arg(long = "bind_ip", value_name = "ADDRESS")]
    pub(crate) bind_ip: Option<String>,

    /// Limit messages to the receives that the receiver reports (send_bw)
    #[arg(long = "enable_credit")]
    pub(crate) enable_credit: bool,

    /// Most messages beyond the last report under --enable_credit [default: 3/4 of the JFR depth]
    #[arg(long = "credit_threshold", value_name = "COUNT", requires = "enable_credit")]
    pub(crate) credit_threshold: Option<u32>,

    /// The receiver reports after so many messages [default: 1/4 of the JFR depth]
    #[arg(long = "credit_notify_cnt", value_name = "COUNT", requires = "enable_credit")]
    pub(crate) credit_notify_cnt: Option<u32>,

    /// Jetties that share one JFR [default: all]
    #[arg(long = "jettys_pre_jfr", value_name = "COUNT")]
    pub(crate) jettys_pre_jfr: Option<u32>,

    /// Register a segment for each jetty, all on the same memory
    #[arg(long = "seg_pre_jetty")]
    pub(crate) seg_pre_jetty: bool,

    /// Send 64 bits of immediate data with each request (WRITE, SEND)
    #[arg(long = "enable_imm")]
    pub(crate) enable_imm: bool,

    /// Count failed requests and go on (bandwidth)
    #[arg(long = "enable_err_continue")]
    pub(crate) enable_err_continue: bool,

    /// Each WRITE stores 8 bytes more at the target when it is placed
    #[arg(long = "enable_notify")]
    pub(crate) enable_notify: bool,

    /// Pieces of local memory per request
    #[arg(long = "sge_num", value_name = "COUNT", default_value_t = 1)]
    pub(crate) sge_num: u32,

    /// Write to the source memory every so many milliseconds during the test
    #[arg(long = "enable_write_dirty", value_name = "MS")]
    pub(crate) enable_write_dirty: Option<u32>,

    /// Address of this node: its EID, as --eid
    #[arg(long, value_name = "ADDRESS")]
    pub(crate) sip: Option<String>,

    /// Address that the peer's node must have
    #[arg(long, value_name = "ADDRESS")]
    pub(crate) dip: Option<String>,

    /// One path between two nodes; there is never more than one
    #[arg(long = "single_path")]
    pub(crate) single_path: bool,

    /// Use a compact transport path (CTP), where the device has them
    #[arg(long)]
    pub(crate) ctp: bool,

    /// Number of the first jetty; the others follow [default: any]
    #[arg(long = "jetty_id", value_name = "ID", default_value_t = 0)]
    pub(crate) jetty_id: u32,

    /// Longest wait for one event under -e in milliseconds; -1: as long as --wait-timeout
    #[arg(long = "wait_jfc_timeout", value_name = "MS", allow_negative_numbers = true)]
    pub(crate) wait_jfc_timeout: Option<i32>,

    /// Page size of the buffer in bytes
    #[arg(long = "page_size", value_name = "BYTES", default_value_t = 4096)]
    pub(crate) page_size: u64,

    /// Use huge pages of this size for the buffer
    #[arg(long = "hugepage_size", value_enum, value_name = "SIZE")]
    pub(crate) hugepage_size: Option<HugePage>,

    /// Unit of the bandwidth columns
    #[arg(long = "bw_unit", value_enum, default_value = "MB")]
    pub(crate) bw_unit: BwUnit,

    /// All sizes from this one (a power of two)
    #[arg(long = "min_size", value_name = "BYTES")]
    pub(crate) min_size: Option<u32>,

    /// All sizes up to this one (a power of two)
    #[arg(long = "max_size", value_name = "BYTES")]
    pub(crate) max_size: Option<u32>,

    /// How a bonded device uses its members
    #[arg(long = "bond_mode", alias = "aggr_mode", value_enum, value_name = "MODE")]
    pub(crate) bond_mode: Option<BondMode>,

    /// Write the log of the stack to standard output instead of standard error
    #[arg(long)]
    pub(crate) stdout: bool,
}

const HEADING: &str = "Refused: not supported on a software device";

/// Options that are parsed only to be refused with a reason.
#[derive(Clone, Debug, Default, Args)]
#[command(next_help_heading = HEADING)]
pub(crate) struct RefusedArgs {
    /// Several paths between two nodes
    #[arg(short = 'u', long = "multi_path")]
    multi_path: bool,
    /// Use a bonded device
    #[arg(short = 'z', long = "use_bonding")]
    use_bonding: bool,
    /// Level at which devices are bonded
    #[arg(long = "bond_level", value_name = "LEVEL")]
    bond_level: Option<String>,
    /// Transport path made by the program
    #[arg(long = "enable_user_tp")]
    enable_user_tp: bool,
    /// Out-of-order reception of a user TP
    #[arg(long = "oor_en")]
    oor_en: bool,
    /// Packet spraying of a user TP
    #[arg(long = "spray_en")]
    spray_en: bool,
    /// Congestion control of a user TP
    #[arg(long = "cc_en")]
    cc_en: bool,
    /// Congestion control algorithm of a user TP
    #[arg(long = "cc_alg", value_name = "ALG")]
    cc_alg: Option<String>,
    /// Retries of a user TP
    #[arg(long = "retry_num", value_name = "COUNT")]
    retry_num: Option<String>,
    /// Acknowledgement timeout of a user TP
    #[arg(long = "ack_timeout", value_name = "CODE")]
    ack_timeout: Option<String>,
    /// Transport path chosen by the program
    #[arg(long = "tp_aware")]
    tp_aware: bool,
    /// Transport path used again
    #[arg(long = "tp_reuse")]
    tp_reuse: bool,
    /// One server for several clients
    #[arg(long = "pair_num", value_name = "COUNT")]
    pair_num: Option<String>,
    /// Import targets without waiting
    #[arg(long = "async_import")]
    async_import: bool,
    /// DSCP of the packets
    #[arg(long, value_name = "DSCP")]
    dscp: Option<String>,
    /// VLAN of the packets
    #[arg(long, value_name = "VLAN")]
    vlan: Option<String>,
    /// Service level of the packets
    #[arg(long, value_name = "LEVEL")]
    sl: Option<String>,
    /// Order of accelerator streams
    #[arg(long = "enable_sync_stream")]
    enable_sync_stream: bool,
    /// Address of the buffer
    #[arg(long, value_name = "ADDRESS", num_args = 0..=1, default_missing_value = "")]
    va: Option<String>,
    /// Jetties that share one JFS
    #[arg(long = "share_jfs", value_name = "BOOL", num_args = 0..=1, default_missing_value = "true")]
    share_jfs: Option<String>,
}

/// Why an option of a user TP is refused.
const USER_TP: &str = "the device makes one TP between two nodes, which all their jetties use; a \
                       program cannot bring or shape its own";
/// Why an option of bonding is refused.
const BONDING: &str = "a software node is one device with one path to each other node: there is \
                       nothing to bond";

impl RefusedArgs {
    /// The first refused option that was given, with the reason.
    pub(crate) fn first(&self) -> Option<(&'static str, &'static str)> {
        self.list().into_iter().find(|(given, ..)| *given).map(|(_, name, why)| (name, why))
    }

    /// All of them: given or not, name, reason.
    fn list(&self) -> [(bool, &'static str, &'static str); 20] {
        let share =
            "each jetty of the test has a send queue; for several senders of one queue use -J 1";
        let stream = "there is no accelerator whose streams could be ordered";
        let system = "packets are UDP datagrams of the host: its network interface decides";
        [
            (self.multi_path, "-u", BONDING),
            (self.use_bonding, "-z", BONDING),
            (self.bond_level.is_some(), "--bond_level", BONDING),
            (self.enable_user_tp, "--enable_user_tp", USER_TP),
            (self.oor_en, "--oor_en", USER_TP),
            (self.spray_en, "--spray_en", USER_TP),
            (self.cc_en, "--cc_en", USER_TP),
            (self.cc_alg.is_some(), "--cc_alg", USER_TP),
            (self.retry_num.is_some(), "--retry_num", USER_TP),
            (self.ack_timeout.is_some(), "--ack_timeout", USER_TP),
            (self.tp_aware, "--tp_aware", USER_TP),
            (self.tp_reuse, "--tp_reuse", "jetties of two nodes always use the same TP"),
            (
                self.pair_num.is_some(),
                "--pair_num",
                "a node is a process: start one pair of processes per pair, each with its own -P",
            ),
            (
                self.async_import,
                "--async_import",
                "the Rust API has one import, which returns when the path to the node is found",
            ),
            (self.dscp.is_some(), "--dscp", system),
            (self.vlan.is_some(), "--vlan", system),
            (
                self.sl.is_some(),
                "--sl",
                "there is no network with service levels; -O sets priority",
            ),
            (self.enable_sync_stream, "--enable_sync_stream", stream),
            (
                self.va.is_some(),
                "--va",
                "memory is registered where the system puts it, and named by that address",
            ),
            (self.share_jfs.is_some(), "--share_jfs", share),
        ]
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use crate::cli::PerftestCli;

    #[test]
    fn each_of_them_says_why() {
        for option in [
            "-u",
            "-z",
            "--bond_level=port",
            "--enable_user_tp",
            "--oor_en",
            "--spray_en",
            "--cc_en",
            "--cc_alg=1",
            "--retry_num=7",
            "--ack_timeout=15",
            "--tp_aware",
            "--tp_reuse",
            "--pair_num=2",
            "--async_import",
            "--dscp=3",
            "--vlan=3",
            "--sl=3",
            "--enable_sync_stream",
            "--va=4096",
            "--share_jfs=true",
        ] {
            let cli = PerftestCli::try_parse_from(["urma_perftest", "write_bw", option]).unwrap();
            let (name, why) = cli.refused.first().expect(option);
            assert!(option.starts_with(name) && why.len() > 20, "{option}: {name}: {why}");
        }
        let cli = PerftestCli::try_parse_from(["urma_perftest", "write_bw"]).unwrap();
        assert_eq!(cli.refused.first(), None);
    }
}
