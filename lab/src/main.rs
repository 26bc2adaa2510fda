//! `urma-lab`: runs experiments.
//!
//! - owns: which experiments there are. takes: the command line. gives: an exit code. must not: know what one prints.
#![forbid(unsafe_code)]

mod bottleneck_command;
mod cache_command;
mod calibrate_command;
mod command;
mod node_command;
mod splice_command;
mod sweep_command;
mod wan_command;

use std::process::ExitCode;

use clap::{Parser, Subcommand};

use self::command::{MergeArgs, SweepArgs, refuse, say};
use self::sweep_command::SweepFileArgs;

/// Experiments on the code of the stack, in virtual time.
#[derive(Parser, Debug)]
#[command(name = "urma-lab", version)]
struct LabCli {
    #[command(subcommand)]
    experiment: Experiment,
}

#[derive(Subcommand, Debug)]
enum Experiment {
    /// Prints the names of all experiments.
    List,
    /// Loss recovery on long and lossy paths: every combination of the lists, times the seeds.
    Wan(Box<wan_command::WanArgs>),
    /// Replacement policies of a NIC's context cache: every combination of traces, capacities and policies.
    Cache(Box<cache_command::CacheArgs>),
    /// Packet engines: how three designs join and cut messages, cycle by cycle.
    Splice(Box<splice_command::SpliceArgs>),
    /// Nodes of the whole stack over a network with faults: the same seed, the same events.
    Node(Box<node_command::FabricArgs>),
    /// Measures what packets cost this machine, and prints what `wan --cpu` takes.
    Calibrate(calibrate_command::CalibrateArgs),
    /// A sweep that a file describes, here or by Slurm.
    Sweep(SweepFileArgs),
    /// Joins the shards of a sweep, each of which ran in a folder of its own.
    Merge(MergeArgs),
}

fn main() -> ExitCode {
    match LabCli::parse().experiment {
        Experiment::List => say("wan\tloss recovery on long and lossy paths\n\
             cache\treplacement policies of a NIC's context cache\n\
             splice\tpacket engines, cycle by cycle\n\
             node\tnodes of the whole stack over a network with faults"),
        Experiment::Sweep(args) => sweep(&args),
        Experiment::Merge(args) => merge(args),
        Experiment::Calibrate(args) => calibrate_command::run(&args),
        experiment => run(&experiment),
    }
}

fn run(experiment: &Experiment) -> ExitCode {
    match experiment {
        Experiment::Wan(args) => wan_command::run(args),
        Experiment::Cache(args) => cache_command::run(args),
        Experiment::Splice(args) => splice_command::run(args),
        Experiment::Node(args) => node_command::run(args),
        Experiment::List
        | Experiment::Calibrate(_)
        | Experiment::Sweep(_)
        | Experiment::Merge(_) => ExitCode::SUCCESS,
    }
}

/// Runs the sweep whose shards are joined, of which every run is known.
fn merge(args: MergeArgs) -> ExitCode {
    let arguments = match args.arguments() {
        Ok(arguments) => arguments,
        Err(error) => return args.refuse(&error),
    };
    let mut experiment = experiment(arguments);
    let sweep: &mut SweepArgs = match &mut experiment {
        Experiment::Wan(args) => &mut args.sweep,
        Experiment::Cache(args) => &mut args.sweep,
        Experiment::Splice(args) => &mut args.sweep,
        Experiment::Node(args) => &mut args.sweep,
        Experiment::List
        | Experiment::Calibrate(_)
        | Experiment::Sweep(_)
        | Experiment::Merge(_) => {
            return args.refuse(&MergeArgs::no_sweep());
        }
    };
    args.join(sweep);
    run(&experiment)
}

/// The experiment of these arguments; what they say wrong ends the program, as on the command line.
fn experiment(arguments: Vec<String>) -> Experiment {
    let words = ["urma-lab".to_owned()].into_iter().chain(arguments);
    match LabCli::try_parse_from(words) {
        Ok(cli) => cli.experiment,
        Err(error) => error.exit(),
    }
}

/// Runs what a file describes, or gives it to others.
fn sweep(args: &SweepFileArgs) -> ExitCode {
    let refused = |error| refuse(args.json, &error);
    let arguments = match args.arguments() {
        Ok(arguments) => arguments,
        Err(error) => return refused(error),
    };
    // What a job would refuse is refused here.
    let experiment = experiment([arguments.clone(), args.place()].concat());
    if !args.is_submitted() {
        return run(&experiment);
    }
    args.submit(&arguments).map_or_else(refused, |text| say(&text))
}
