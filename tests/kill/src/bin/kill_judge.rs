//! Reads a journal and says OK, or names everything that must not be.
//!
//! *Owns*: the exit codes: 0 right, 1 wrong, 2 no journal. *Must not*: talk to a worker.
#![forbid(unsafe_code)]
#![expect(clippy::print_stdout, clippy::print_stderr, reason = "it talks to its user")]

use std::{path::PathBuf, process::ExitCode};

use clap::Parser;
use urma_kill::{
    journal,
    judge::{Demand, Verdict, judge},
};

/// Judges a kill journal.
#[derive(Debug, Parser)]
struct Args {
    /// The journal.
    journal: PathBuf,
    /// Its writer was killed: open requests and a missing end are right.
    #[arg(long)]
    dead: bool,
    /// From this round on no send may fail.
    #[arg(long)]
    clean_from: Option<u32>,
    /// Prints JSON.
    #[arg(long)]
    json: bool,
}

fn main() -> ExitCode {
    let args = Args::parse();
    let records = match journal::read(&args.journal) {
        Ok(records) => records,
        Err(error) => {
            eprintln!("{}: {error}", args.journal.display());
            return ExitCode::from(2);
        }
    };
    let verdict = judge(&records, Demand { dead: args.dead, clean_from: args.clean_from });
    if args.json {
        match serde_json::to_string(&verdict) {
            Ok(text) => println!("{text}"),
            Err(error) => eprintln!("{error}"),
        }
    } else {
        tell(&verdict);
    }
    ExitCode::from(u8::from(!verdict.violations.is_empty()))
}

fn tell(verdict: &Verdict) {
    let Verdict { posted, completed, succeeded, messages, violations } = verdict;
    println!("{posted} posted, {completed} completed, {succeeded} well, {messages} messages");
    for violation in violations {
        println!("{violation:?}");
    }
    if violations.is_empty() {
        println!("OK");
    }
}
