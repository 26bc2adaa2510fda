//! Options of UMDK that a software device does not support.
//!
//! *Owns*: their names, and why each is refused. *Gives*: the first that was given, with the
//! reason. *Must not*: ignore one silently.

use clap::Args;

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
