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
mod probe;
mod progress;
mod report;
mod say;
mod step;
mod suite;
mod tidy;

use std::{path::PathBuf, process::ExitCode};

use clap::{Parser, Subcommand};

use crate::say::{Failure, say};

/// Tasks of the project.
#[derive(Debug, Parser)]
#[command(name = "cargo xtask", max_term_width = 100)]
struct Cli {
    #[command(subcommand)]
    task: Task,
}

#[derive(Debug, Subcommand)]
enum Task {
    /// Everything that CI checks
    Test {
        /// Only the steps whose name contains this
        #[arg(long, default_value = "")]
        only: String,
    },
    /// Two processes exchange data through every layer; prints one table
    Demo,
    /// Speed beside TCP, memcpy and the machine's limits; writes bench-results/
    Bench {
        /// Alternating rounds, at least 5
        #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u32).range(5..=100))]
        rounds: u32,
        /// Only lines whose name contains this
        #[arg(long)]
        only: Option<String>,
    },
    /// Libraries, headers and tools for C programs, under a prefix
    Install {
        /// The folder that gets lib, include, bin and share
        #[arg(long)]
        prefix: PathBuf,
        #[command(flatten)]
        what: install::InstallPlan,
    },
    /// Takes back what `install` put under a prefix
    Uninstall {
        /// The same folder
        #[arg(long)]
        prefix: PathBuf,
    },
    /// The same as a Debian package
    Deb {
        #[command(flatten)]
        what: install::InstallPlan,
    },
    /// The book and the pages of the API, in the build folder; every link checked
    Doc {
        /// Only the book
        #[arg(long)]
        book: bool,
    },
    /// The Rust mirror of the C API, from its table and the golden layouts
    Mirror,
    /// The house rules
    Tidy,
    /// Format everything
    Fmt,
    /// Fuzz targets, each for a while
    Fuzz {
        /// Seconds per target
        #[arg(long, visible_alias = "time", default_value_t = 60)]
        seconds: u32,
    },
    /// The deterministic simulation
    Sim {
        /// Seeds of each suite
        #[arg(long, default_value_t = 500)]
        seeds: u32,
        /// The first seed of each suite: a long run may be done in parts.
        #[arg(long, default_value_t = 0)]
        from: u32,
    },
    /// Plants faults, one at a time, each of which a test must find
    Mutants(mutants::MutantsPlan),
    /// The loom models
    Loom,
    /// The libraries for aarch64: build, layouts, tests and examples under an emulator
    Cross,
    /// One measurement of the machine itself, as JSON (used by demo and bench)
    #[command(hide = true)]
    Probe {
        /// What to measure
        #[arg(value_enum)]
        what: probe::ProbeKind,
        /// Bytes of a block
        #[arg(long, default_value_t = 65536)]
        size: usize,
        /// Bytes of the buffers walked through; 0 = one block
        #[arg(long, default_value_t = 0)]
        span: usize,
        /// Be the other end of a TCP measurement: print the port, answer once
        #[arg(long)]
        serve: bool,
    },
}

fn main() -> ExitCode {
    let result = match Cli::parse().task {
        Task::Test { only } => check::test(&only),
        Task::Demo => demo::run(),
        Task::Bench { rounds, only } => bench::run(rounds, only.as_deref()),
        Task::Install { prefix, what } => install::run(&prefix, &what),
        Task::Uninstall { prefix } => install::uninstall(&prefix),
        Task::Deb { what } => install::deb(&what),
        Task::Doc { book } => doc::run(book),
        Task::Mirror => mirror::run(&cargo::root()),
        Task::Tidy => check::tidy(),
        Task::Fmt => cargo::run(&["fmt", "--all"]),
        Task::Fuzz { seconds } => check::fuzz(seconds),
        Task::Sim { seeds, from } => check::sim(from, seeds),
        Task::Mutants(what) => mutants::run(&what),
        Task::Loom => check::loom(),
        Task::Cross => cross::run(),
        Task::Probe { what, size, serve: true, .. } => probe::serve(what, size),
        Task::Probe { what, size, span, .. } => probe::run(what, size, span),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(Failure(why)) => {
            say(&format!("xtask: {why}"));
            ExitCode::FAILURE
        }
    }
}
