//! Checks a journal: prints OK, or every violation of a rule.
//!
//! *Owns*: the exit codes: 0 right, 1 wrong, 2 no journal. *Must not*: talk to a worker.
#![forbid(unsafe_code)]
#![expect(clippy::print_stdout, clippy::print_stderr, reason = "it talks to its user")]

use std::{
    path::{Path, PathBuf},
    process::ExitCode,
};

use clap::Parser;
use urma_kill::{
    journal::{self, Record},
    judge::{Demand, Judgement, judge},
};

/// Judges a kill journal.
#[derive(Debug, Parser)]
struct Args {
    /// Journal of the process that is judged.
    journal: PathBuf,
    /// Its writer was killed: open requests and a missing end are right.
    #[arg(long)]
    dead: bool,
    /// Its peer lived when it ended: the two may still be connected.
    #[arg(long)]
    peer_lives: bool,
    /// From this round on no send may fail.
    #[arg(long)]
    clean_from: Option<u32>,
    /// Journal of the peer of the first round: its completions are compared with what came.
    #[arg(long)]
    peer: Option<PathBuf>,
    /// Prints the judgement as JSON.
    #[arg(long)]
    json: bool,
}

fn main() -> ExitCode {
    let args = Args::parse();
    let Some(records) = read(&args.journal) else { return ExitCode::from(2) };
    let peer = match args.peer.as_deref().map(read) {
        Some(None) => return ExitCode::from(2),
        peer => peer.flatten(),
    };
    let peer = peer.as_deref().map(|records| (records, 1));
    let demand =
        Demand { dead: args.dead, peer_lives: args.peer_lives, clean_from: args.clean_from };
    let judgement = judge(&records, demand, peer);
    if args.json {
        match serde_json::to_string(&judgement) {
            Ok(text) => println!("{text}"),
            Err(error) => eprintln!("{error}"),
        }
    } else {
        tell(&judgement);
    }
    ExitCode::from(u8::from(!judgement.violations.is_empty()))
}

fn read(path: &Path) -> Option<Vec<Record>> {
    journal::read(path).inspect_err(|error| eprintln!("{}: {error}", path.display())).ok()
}

fn tell(judgement: &Judgement) {
    let Judgement { posted, completed, succeeded, messages, violations } = judgement;
    println!("{posted} posted, {completed} completed, {succeeded} well, {messages} messages");
    for violation in violations {
        println!("{violation:?}");
    }
    if violations.is_empty() {
        println!("OK");
    }
}
