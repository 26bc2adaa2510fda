//! The command line.
//!
//! *Owns*: verbs, options, help texts; those of UMDK release 26.06 where it has them. *Must not*:
//! judge what a software device can mean; `refused.rs` does.

use std::{ffi::OsString, path::PathBuf};

use clap::{Args, Parser, Subcommand, ValueEnum};

/// Shows the nodes of this host: devices, queues, segments, ways, counters, packets.
///
/// A node lives in the process that opened it; it is asked there. Only nodes of the same user answer.
#[derive(Clone, Debug, Parser)]
#[command(name = "urma_admin", version, max_term_width = 100)]
pub(crate) struct AdminCli {
    /// Print one JSON document
    #[arg(long, global = true)]
    pub(crate) json: bool,

    /// What to do
    #[command(subcommand)]
    pub(crate) verb: AdminVerb,
}

/// Verbs of the command line.
#[derive(Clone, Debug, Subcommand)]
pub(crate) enum AdminVerb {
    /// Show nodes, or the objects of one
    Show(ShowArgs),
    /// Show the counters of a node again and again
    Monitor(Monitor),
    /// Write the packets of a node to a file (pcapng); needs no privileges
    Capture(Capture),
    /// For which release of the C API a program was built
    Abi(ProgramArgs),
    /// Start a program that looks for its device in /sys/class/ubcore
    Run(RunArgs),
    /// EIDs: list shows them; the other verbs need the kernel modules
    Eid(RefusedWords),
    /// As show
    #[command(name = "show_res", hide = true)]
    ShowRes(ShowArgs),
    /// As show
    #[command(name = "list_res", hide = true)]
    ListRes(ShowArgs),
    /// As monitor, once
    #[command(name = "show_stats", hide = true)]
    ShowStats(NodeArgs),
    /// Aggregated devices (refused)
    Agg(RefusedWords),
    /// Settings of a device (refused)
    Dev(RefusedWords),
    /// Map of main user entities (refused)
    #[command(name = "main_ue_eid")]
    MainUeEid(RefusedWords),
    /// Performance records of the library (refused)
    Perf(RefusedWords),
    /// Settings of the system (refused)
    System(RefusedWords),
    /// Refused
    #[command(name = "add_eid", hide = true)]
    AddEid(RefusedWords),
    /// Refused
    #[command(name = "del_eid", hide = true)]
    DelEid(RefusedWords),
    /// Refused
    #[command(name = "set_eid_mode", hide = true)]
    SetEidMode(RefusedWords),
    /// Refused
    #[command(name = "set_ns_mode", hide = true)]
    SetNsMode(RefusedWords),
    /// Refused
    #[command(name = "set_dev_ns", hide = true)]
    SetDevNs(RefusedWords),
}

/// Arguments of the verb `show`.
#[derive(Clone, Debug, Args)]
pub(crate) struct ShowArgs {
    /// `topo`, or `dev`; nothing: all nodes
    #[arg(value_enum)]
    pub(crate) what: Option<ShownView>,

    /// The device (with dev), the node (with topo): name, EID or process id
    #[arg(value_name = "DEV")]
    pub(crate) device: Option<String>,

    /// Which objects of the device
    #[arg(value_enum, value_name = "KIND")]
    pub(crate) kind: Option<ObjectKind>,

    /// Which one of them
    #[arg(value_name = "ID", value_parser = number)]
    pub(crate) id: Option<u64>,

    /// Only nodes with this device name, EID or process id
    #[arg(short = 'd', long = "dev", value_name = "DEV")]
    pub(crate) only: Option<String>,

    /// One line each
    #[arg(long, conflicts_with_all = ["all", "whole"])]
    pub(crate) brief: bool,

    /// Capabilities and counters too
    #[arg(short = 'a', long)]
    pub(crate) all: bool,

    /// As --all, and all objects
    #[arg(long)]
    pub(crate) whole: bool,
}

/// Kinds of objects that `show` can list.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
pub(crate) enum ShownView {
    /// Which node reaches which, and how
    Topo,
    /// One device
    Dev,
}

/// Objects of a device.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
#[value(rename_all = "snake_case")]
pub(crate) enum ObjectKind {
    /// Completion queues
    Jfc,
    /// Send queues
    Jfs,
    /// Receive queues
    Jfr,
    /// Jetties
    Jetty,
    /// Jetty groups
    JettyGroup,
    /// Jetties of the mode RC, with what they are bound to
    Rc,
    /// Segments
    Seg,
    /// Transport paths
    Tp,
    /// Transport paths with how often they are used
    Tpreuse,
}

/// Arguments that choose a node.
#[derive(Clone, Debug, Args)]
pub(crate) struct NodeArgs {
    /// Device name, EID or process id; not needed when there is one node
    #[arg(value_name = "NODE")]
    pub(crate) node: Option<String>,
}

/// Arguments of the verb `monitor`.
#[derive(Clone, Debug, Args)]
pub(crate) struct Monitor {
    #[command(flatten)]
    pub(crate) node: NodeArgs,

    /// Seconds between two looks
    #[arg(short = 'i', long, value_name = "SECONDS", default_value_t = 1.0)]
    pub(crate) interval: f64,

    /// Looks; 0: until interrupted
    #[arg(short = 'c', long, value_name = "COUNT", default_value_t = 0)]
    pub(crate) count: u64,
}

/// Arguments of the verb `capture`.
#[derive(Clone, Debug, Args)]
pub(crate) struct Capture {
    #[command(flatten)]
    pub(crate) node: NodeArgs,

    /// File to write (pcapng)
    #[arg(short = 'w', long, value_name = "FILE")]
    pub(crate) write: PathBuf,

    /// Packets; 0: until interrupted
    #[arg(short = 'c', long, value_name = "COUNT", default_value_t = 0)]
    pub(crate) count: u64,

    /// Seconds after which it ends; 0: never
    #[arg(short = 'D', long, value_name = "SECONDS", default_value_t = 0.0)]
    pub(crate) duration: f64,
}

/// Arguments that name a program.
#[derive(Clone, Debug, Args)]
pub(crate) struct ProgramArgs {
    /// The program or library
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

    /// One more name of the device (URMA_DEVICE_ALIAS)
    #[arg(long, value_name = "NAME")]
    pub(crate) alias: Option<String>,

    /// The program and its arguments
    #[arg(last = true, required = true, value_name = "PROGRAM")]
    pub(crate) command: Vec<OsString>,
}

/// Words of a verb that is refused.
#[derive(Clone, Debug, Args)]
pub(crate) struct RefusedWords {
    /// Its words
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
