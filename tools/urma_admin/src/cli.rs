//! The command line: verbs, options, help texts; those of UMDK release 26.06 where it has them.
//!
//! Verbs that need the kernel modules are refused, each with the reason why a software device does not support it.

use std::{ffi::OsString, path::PathBuf};

use clap::{Args, Parser, Subcommand, ValueEnum};
use udma_vfio::kernel::PciAddress;

/// Shows the nodes of this host: devices, queues, segments, paths, counters, packets.
///
/// A node lives in the process that opened it. It answers only processes of the same user.
#[derive(Clone, Debug, Parser)]
#[command(name = "urma_admin", version, max_term_width = 100)]
pub(crate) struct AdminCli {
    /// Print one JSON document instead of text
    #[arg(long, global = true)]
    pub(crate) json: bool,

    /// What to show or do
    #[command(subcommand)]
    pub(crate) verb: AdminVerb,
}

/// Verbs of the command line.
#[derive(Clone, Debug, Subcommand)]
pub(crate) enum AdminVerb {
    /// Show nodes, or the objects of one
    Show(ShowArgs),
    /// Show the counters of a node at intervals
    Monitor(Monitor),
    /// Write the packets of a node to a file (pcapng); needs no privileges
    Capture(Capture),
    /// Print for which release of the C API a program was built
    Abi(ProgramArgs),
    /// Show the settings of a node that a program of this user opens, and where each was set
    Config,
    /// Start a program that looks for its device in /sys/class/ubcore
    Run(RunArgs),
    /// Show the clients, quotas and counters of ubcored
    Daemon(DaemonArgs),
    /// EIDs: list shows them; the other verbs need the kernel modules
    Eid(RefusedWords),
    /// Older name of show
    #[command(name = "show_res", hide = true)]
    ShowRes(ShowArgs),
    /// Older name of show, too
    #[command(name = "list_res", hide = true)]
    ListRes(ShowArgs),
    /// Older name of monitor -c 1
    #[command(name = "show_stats", hide = true)]
    ShowStats(NodeArgs),
    /// Settings of aggregated devices (refused)
    Agg(RefusedWords),
    /// Settings of a device (refused)
    Dev(RefusedWords),
    /// Map of main user entities (refused)
    #[command(name = "main_ue_eid")]
    MainUeEid(RefusedWords),
    /// Performance records of the library (refused)
    Perf(RefusedWords),
    /// Give a PCI function to programs: bind it to vfio-pci
    Bind(FunctionArgs),
    /// Give a PCI function back to the kernel's drivers
    Unbind(FunctionArgs),
    /// Settings of the system (refused)
    System(RefusedWords),
    /// Add an EID (refused)
    #[command(name = "add_eid", hide = true)]
    AddEid(RefusedWords),
    /// Delete an EID (refused)
    #[command(name = "del_eid", hide = true)]
    DelEid(RefusedWords),
    /// Choose static or dynamic EIDs (refused)
    #[command(name = "set_eid_mode", hide = true)]
    SetEidMode(RefusedWords),
    /// Share devices between namespaces, or not (refused)
    #[command(name = "set_ns_mode", hide = true)]
    SetNsMode(RefusedWords),
    /// Move a device to a namespace (refused)
    #[command(name = "set_dev_ns", hide = true)]
    SetDevNs(RefusedWords),
}

/// Arguments of the verb `show`.
#[derive(Clone, Debug, Args)]
pub(crate) struct ShowArgs {
    /// `topo` or `dev`; without it all nodes are shown
    #[arg(value_enum)]
    pub(crate) what: Option<ShownView>,

    /// The device (with dev), the node (with topo): name, EID or process id
    #[arg(value_name = "DEV")]
    pub(crate) device: Option<String>,

    /// Kind of the objects to show [default: the number of each kind]
    #[arg(value_enum, value_name = "KIND")]
    pub(crate) kind: Option<ObjectKind>,

    /// Number of the one object to show, decimal or with 0x
    #[arg(value_name = "ID", value_parser = number)]
    pub(crate) id: Option<u64>,

    /// Only nodes with this device name, EID or process id
    #[arg(short = 'd', long = "dev", value_name = "DEV")]
    pub(crate) only: Option<String>,

    /// One line for each node
    #[arg(long, conflicts_with_all = ["all", "whole"])]
    pub(crate) brief: bool,

    /// Show capabilities and counters, too
    #[arg(short = 'a', long)]
    pub(crate) all: bool,

    /// Show what --all shows, and all objects
    #[arg(long)]
    pub(crate) whole: bool,
}

/// Kinds of objects that `show` can list.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
pub(crate) enum ShownView {
    /// Which node reaches which, and by which path
    Topo,
    /// One device and its objects
    Dev,
}

/// Objects of a device.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
#[value(rename_all = "snake_case")]
pub(crate) enum ObjectKind {
    /// Queues for completions (JFC)
    Jfc,
    /// Queues that only send (JFS)
    Jfs,
    /// Queues that only receive (JFR)
    Jfr,
    /// Jetties, that is queue pairs
    Jetty,
    /// Jetty groups with their members
    JettyGroup,
    /// Jetties of the mode RC, with what they are bound to
    Rc,
    /// Segments, that is registered memory
    Seg,
    /// Transport paths to other nodes
    Tp,
    /// Transport paths with their number of users
    Tpreuse,
}

/// Arguments that choose a node.
#[derive(Clone, Debug, Args)]
pub(crate) struct NodeArgs {
    /// Device name, EID or process id; not needed when there is one node
    #[arg(value_name = "NODE")]
    pub(crate) node: Option<String>,
}

/// Arguments of the verb `daemon`.
#[derive(Clone, Debug, Args)]
pub(crate) struct DaemonArgs {
    /// What to show
    #[arg(value_enum, default_value = "status")]
    pub(crate) what: DaemonView,

    /// Its status socket [default: the socket of URMA_UBCORED or the settings file with .status]
    #[arg(long, value_name = "PATH")]
    pub(crate) status: Option<PathBuf>,
}

/// What `daemon` can show.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
pub(crate) enum DaemonView {
    /// Clients, use of their quotas, refusals
    Status,
    /// The same and all counters as text for Prometheus
    Metrics,
}

/// Arguments of the verb `monitor`.
#[derive(Clone, Debug, Args)]
pub(crate) struct Monitor {
    #[command(flatten)]
    pub(crate) node: NodeArgs,

    /// Seconds between two readings of the counters
    #[arg(short = 'i', long, value_name = "SECONDS", default_value_t = 1.0)]
    pub(crate) interval: f64,

    /// Number of readings; 0: until interrupted
    #[arg(short = 'c', long, value_name = "COUNT", default_value_t = 0)]
    pub(crate) count: u64,
}

/// Arguments of the verb `capture`.
#[derive(Clone, Debug, Args)]
pub(crate) struct Capture {
    #[command(flatten)]
    pub(crate) node: NodeArgs,

    /// File to write packets to, in the format pcapng
    #[arg(short = 'w', long, value_name = "FILE", required_unless_present = "contexts")]
    pub(crate) write: Option<PathBuf>,

    /// File to write looked-up contexts to, as handles of 32 bits (format u32 of urma-lab cache)
    #[arg(long, value_name = "FILE", conflicts_with = "write")]
    pub(crate) contexts: Option<PathBuf>,

    /// End after this number of packets or lookups; 0: never
    #[arg(short = 'c', long, value_name = "COUNT", default_value_t = 0)]
    pub(crate) count: u64,

    /// End after this number of seconds; 0: never
    #[arg(short = 'D', long, value_name = "SECONDS", default_value_t = 0.0)]
    pub(crate) duration: f64,
}

/// Arguments that name a program.
#[derive(Clone, Debug, Args)]
pub(crate) struct ProgramArgs {
    /// The file of the program or library
    #[arg(value_name = "PROGRAM")]
    pub(crate) program: PathBuf,
}

/// A program to start.
#[derive(Clone, Debug, Args)]
pub(crate) struct RunArgs {
    /// Release of the C API whose library the program gets
    /// [default: that of the program, else the installed one]
    #[arg(long, value_name = "RELEASE", value_parser = crate::abi::RELEASES)]
    pub(crate) release: Option<String>,

    /// Second name of the device; sets URMA_DEVICE_ALIAS; "" for none
    /// [default: that of the environment, else bonding_dev_0]
    #[arg(long, value_name = "NAME")]
    pub(crate) alias: Option<String>,

    /// The program and its arguments
    #[arg(last = true, required = true, value_name = "PROGRAM")]
    pub(crate) command: Vec<OsString>,
}

/// Arguments that name a PCI function.
#[derive(Clone, Copy, Debug, Args)]
pub(crate) struct FunctionArgs {
    /// Its address, such as 0000:00:03.0
    #[arg(value_name = "ADDRESS")]
    pub(crate) address: PciAddress,
}

/// Words of a verb that is refused.
#[derive(Clone, Debug, Args)]
pub(crate) struct RefusedWords {
    /// The remaining words of the command
    #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
    pub(crate) words: Vec<String>,
}

/// A number, decimal or with 0x.
fn number(text: &str) -> Result<u64, std::num::ParseIntError> {
    match text.strip_prefix("0x") {
        Some(digits) => u64::from_str_radix(digits, 16),
        None => text.parse(),
    }
}

/// Why a verb is refused; `None`: it is not.
pub(crate) fn why(verb: &AdminVerb) -> Option<&'static str> {
    Some(match verb {
        AdminVerb::Show(_)
        | AdminVerb::ShowRes(_)
        | AdminVerb::ListRes(_)
        | AdminVerb::ShowStats(_)
        | AdminVerb::Monitor(_)
        | AdminVerb::Abi(_)
        | AdminVerb::Config
        | AdminVerb::Daemon(_)
        | AdminVerb::Run(_)
        | AdminVerb::Bind(_)
        | AdminVerb::Unbind(_)
        | AdminVerb::Capture(_) => return None,
        AdminVerb::Eid(words) if words.words.is_empty() || words.words[0] == "list" => return None,
        AdminVerb::Eid(_) | AdminVerb::AddEid(_) | AdminVerb::DelEid(_) => {
            "a node has the one EID that its process claims; set URMA_EID before it starts"
        }
        AdminVerb::SetEidMode(_) => "EIDs are claimed by processes; there is no mode",
        AdminVerb::Agg(_) => "a node is one device; there is nothing to aggregate",
        AdminVerb::Dev(_) | AdminVerb::SetNsMode(_) | AdminVerb::SetDevNs(_) => {
            "a node lives in the network namespace of its process, and its device is seen by that \
             process alone"
        }
        AdminVerb::MainUeEid(_) => "there are no user entities; a process is its own",
        AdminVerb::Perf(_) => {
            "performance records belong to the process that runs; its counters: urma_admin monitor"
        }
        AdminVerb::System(_) => {
            "devices and EIDs are not shared between processes; each opens its own"
        }
    })
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;
    use crate::cli::AdminCli;

    /// What is done, and why what is not done is refused: what each word says is for its own reason.
    #[test]
    fn each_verb_is_done_or_refused_for_its_own_reason() {
        for (line, reason) in [
            ("show", None),
            ("show_res dev x jfc", None),
            ("list_res", None),
            ("show_stats", None),
            ("monitor", None),
            ("abi x", None),
            ("config", None),
            ("daemon", None),
            ("run -- x", None),
            ("bind 0000:00:03.0", None),
            ("unbind 0000:00:03.0", None),
            ("capture -w x", None),
            ("eid", None),
            ("eid list", None),
            ("eid list --json", None),
            ("eid add 1", Some("one EID that its process claims")),
            ("eid del list", Some("one EID that its process claims")),
            ("add_eid 1", Some("one EID that its process claims")),
            ("del_eid 1", Some("one EID that its process claims")),
            ("set_eid_mode x", Some("there is no mode")),
            ("agg add", Some("nothing to aggregate")),
            ("dev set", Some("in the network namespace of its process")),
            ("set_ns_mode -m 1", Some("in the network namespace of its process")),
            ("set_dev_ns x", Some("in the network namespace of its process")),
            ("main_ue_eid flush", Some("no user entities")),
            ("perf start", Some("urma_admin monitor")),
            ("system show", Some("each opens its own")),
        ] {
            let words = std::iter::once("urma_admin").chain(line.split(' '));
            let cli = AdminCli::try_parse_from(words).unwrap_or_else(|error| panic!("{error}"));
            match (why(&cli.verb), reason) {
                (None, None) => {}
                (Some(why), Some(reason)) => assert!(why.contains(reason), "{line}: {why}"),
                (why, _) => panic!("{line}: {why:?}"),
            }
        }
    }
}
