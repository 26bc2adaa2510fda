//! `cargo xtask`: the tasks of the project.
//!
//! *Owns*: the command line and the exit code. *Takes*: a task's name. *Gives*: its result.
//! *Must not*: know how a task works.
#![forbid(unsafe_code)]

mod bench;
mod cargo;
mod check;
mod child;
mod clock;
mod cross;
mod demo;
mod doc;
mod install;
mod markdown;
mod mirror;
mod mutants;
mod pair;
mod plot;
mod probe;
mod report;
mod rtl;
mod say;
mod step;
mod suite;
mod tidy;
mod vm;

use std::{path::PathBuf, process::ExitCode};

use clap::{Parser, Subcommand, ValueEnum};

use crate::say::{Failure, say};

/// Tasks of the project.
#[derive(Debug, Parser)]
#[command(name = "cargo xtask", max_term_width = 100)]
struct Cli {
    #[command(subcommand)]
    task: Task,
}

/// What a demonstration shows.
#[derive(Debug, Clone, Copy, ValueEnum)]
enum DemoKind {
    /// Two processes exchange data through every layer
    Urma,
    /// Switches add up the vectors of eight hosts
    Inc,
}

#[derive(Debug, Subcommand)]
enum Task {
    /// Run everything that CI checks
    Test {
        /// Run only the steps whose name contains this
        #[arg(long, default_value = "")]
        only: String,
    },
    /// Let two processes exchange data through every layer, and print one table
    Demo {
        /// What is shown: URMA, or in-network computing
        #[arg(value_enum, default_value_t = DemoKind::Urma)]
        what: DemoKind,
    },
    /// Measure speed beside UCX, TCP, memcpy and the machine's limits; writes bench-results/
    Bench(bench::BenchPlan),
    /// Measure in-network computing beside Open MPI over TCP, in namespaces
    BenchInc(bench::IncBenchPlan),
    /// Measure paths with delay and loss between two namespaces beside the model of `urma-lab wan --cpu`
    BenchWan(bench::WanBenchPlan),
    /// Install libraries, headers and tools for C programs under a prefix
    Install {
        /// The folder that gets lib, include, bin and share
        #[arg(long)]
        prefix: PathBuf,
        #[command(flatten)]
        what: install::InstallPlan,
    },
    /// Remove what `install` put under a prefix
    Uninstall {
        /// The folder that was given to `install`
        #[arg(long)]
        prefix: PathBuf,
    },
    /// Build a Debian package with what `install` installs
    Deb {
        #[command(flatten)]
        what: install::InstallPlan,
    },
    /// Build the book and the pages of the API in the build folder; check every link
    Doc {
        /// Build the book alone
        #[arg(long)]
        book: bool,
    },
    /// Write the tables of documents that are made from the code: crates, conformance
    Docs,
    /// Generate the Rust mirror of the C API from its table and the golden layouts
    Mirror,
    /// Check the rules of CONTRIBUTING.md: sizes, crates, words, documents
    Tidy,
    /// Format all Rust files
    Fmt,
    /// Run each fuzz target for some time
    Fuzz {
        /// Seconds for each target
        #[arg(long, visible_alias = "time", default_value_t = 60)]
        seconds: u32,
    },
    /// Run the deterministic simulation
    Sim {
        /// Number of seeds of each suite
        #[arg(long, default_value_t = 500)]
        seeds: u32,
        /// First seed of each suite, so that a long run can be done in parts
        #[arg(long, default_value_t = 0)]
        from: u32,
    },
    /// Plant faults, one at a time, each of which a test must find
    Mutants(mutants::MutantsPlan),
    /// Check the packet engine's SystemVerilog, compare it with the Rust models, print its complexity
    Rtl(rtl::RtlPlan),
    /// Run the loom models
    Loom,
    /// Run drivers over the kernel's real VFIO, in a virtual machine
    Vm {
        #[command(subcommand)]
        what: VmTask,
    },
    /// Build and test the libraries for aarch64 under an emulator
    Cross,
    /// Print one measurement of the machine itself as JSON (used by demo and bench)
    #[command(hide = true)]
    Probe {
        /// The measurement to make
        #[arg(value_enum)]
        what: probe::ProbeKind,
        /// Bytes of one block
        #[arg(long, default_value_t = 65536)]
        size: usize,
        /// Bytes of the buffer through which the blocks move on; 0: one block
        #[arg(long, default_value_t = 0)]
        span: usize,
        /// Act as the other end of a TCP measurement: print the port, answer once
        #[arg(long)]
        serve: bool,
        /// Address and port of the other end of a TCP measurement, or of this one with --serve
        #[arg(long)]
        address: Option<std::net::SocketAddr>,
    },
}

/// What to do in a virtual machine.
#[derive(Clone, Copy, Debug, Subcommand)]
enum VmTask {
    /// Run the checks; part of `test`
    Test,
    /// Start a shell in it
    Shell,
    /// Kill machines at random moments while their device has requests under way
    Kill {
        /// Machines, one after the other
        #[arg(long, default_value_t = 20)]
        rounds: u32,
    },
    /// Verbs programs of Linux rxe in two machines reduce with a switch
    Inc,
    /// Become a machine that is killed
    #[command(hide = true)]
    Victim,
}

fn main() -> ExitCode {
    let result = match Cli::parse().task {
        Task::Test { only } => check::test(&only),
        Task::Demo { what: DemoKind::Urma } => demo::run(),
        Task::Demo { what: DemoKind::Inc } => demo::run_inc(),
        Task::Bench(plan) => bench::run(&plan),
        Task::BenchInc(plan) => bench::run_inc(&plan),
        Task::BenchWan(plan) => bench::run_wan(&plan),
        Task::Install { prefix, what } => install::run(&prefix, &what),
        Task::Uninstall { prefix } => install::uninstall(&prefix),
        Task::Deb { what } => install::deb(&what),
        Task::Doc { book } => doc::run(book),
        Task::Docs => doc::write_parts(&cargo::root()),
        Task::Mirror => mirror::run(&cargo::root()),
        Task::Tidy => check::tidy(),
        Task::Fmt => cargo::run(&["fmt", "--all"]),
        Task::Fuzz { seconds } => check::fuzz(seconds),
        Task::Sim { seeds, from } => check::sim(from, seeds),
        Task::Mutants(what) => mutants::run(&what),
        Task::Rtl(plan) => rtl::run(&plan),
        Task::Loom => check::loom(),
        Task::Vm { what: VmTask::Test } => vm::test(),
        Task::Vm { what: VmTask::Shell } => vm::shell(),
        Task::Vm { what: VmTask::Kill { rounds } } => vm::kill(rounds),
        Task::Vm { what: VmTask::Inc } => vm::inc(),
        Task::Vm { what: VmTask::Victim } => vm::victim(),
        Task::Cross => cross::run(),
        Task::Probe { what, size, serve: true, address, .. } => probe::serve(what, size, address),
        Task::Probe { what, size, span, address, .. } => probe::run(what, size, span, address),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(Failure(why)) => {
            say(&format!("xtask: {why}"));
            ExitCode::FAILURE
        }
    }
}
