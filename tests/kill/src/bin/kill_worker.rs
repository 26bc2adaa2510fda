//! One of the two processes: runs rounds on command and keeps the journal.
//!
//! *Owns*: the order of its life. *Takes*: the journal's path, commands over the socket that is its
//! standard input, `URMA_*` variables for its node. *Gives*: the journal. *Must not*: outlive the
//! process that started it.
#![forbid(unsafe_code)]

use std::{
    fs::File,
    os::fd::{AsFd, OwnedFd},
    os::unix::net::UnixStream,
    path::PathBuf,
    time::Duration,
};

use clap::Parser;
use ubcore_sim::node::NodeCfg;
use urma_kill::{
    channel::{Channel, Word},
    journal::Journal,
    round::{self, Orders, open_count},
    side::{Outcome, Side},
};

#[derive(Debug, Parser)]
struct Args {
    /// The journal: a file sealed against shrinking, of 16 MiB.
    #[arg(long)]
    journal: PathBuf,
    /// Milliseconds for which open requests are waited for at the end of a round.
    #[arg(long, default_value_t = 20_000)]
    bound_ms: u64,
    /// A mistake that the device makes on purpose.
    #[cfg(feature = "planted-faults")]
    #[arg(long)]
    fault: Option<String>,
}

fn main() -> Outcome<()> {
    let args = Args::parse();
    let file = File::options().read(true).write(true).open(&args.journal)?;
    let mut journal = Journal::create(OwnedFd::from(file))?;
    let stream = std::io::stdin().as_fd().try_clone_to_owned()?;
    let mut channel = Channel::new(UnixStream::from(stream));
    let side = Side::open(cfg(&args)?)?;
    channel.say(&Word::Ready { eid: side.eid() })?;
    let baseline = open_count();
    loop {
        match channel.wait(Duration::from_secs(60))? {
            Word::Prepare { round, own, peer, receives, err_timeout } => {
                let bound = Duration::from_millis(args.bound_ms);
                let orders = Orders { round, own, peer, receives, err_timeout, bound };
                round::run(&side, &mut journal, &mut channel, orders)?;
            }
            Word::Rest => round::rested(&mut journal, &mut channel, baseline)?,
            Word::Quit => return Ok(()),
            other => return Err(format!("{other:?} is not due").into()),
        }
    }
}

#[cfg(not(feature = "planted-faults"))]
fn cfg(_args: &Args) -> Outcome<NodeCfg> {
    Ok(NodeCfg::from_env()?)
}

#[cfg(feature = "planted-faults")]
fn cfg(args: &Args) -> Outcome<NodeCfg> {
    use ubcore_sim::fault::PlantedFault;
    let fault = match args.fault.as_deref() {
        None => None,
        Some("CompletionDropped") => Some(PlantedFault::CompletionDropped),
        Some("CompletionDoubled") => Some(PlantedFault::CompletionDoubled),
        Some("TokenNotChecked") => Some(PlantedFault::TokenNotChecked),
        Some("BoundOffByOne") => Some(PlantedFault::BoundOffByOne),
        Some("LastByteEarly") => Some(PlantedFault::LastByteEarly),
        Some("OrderSwapped") => Some(PlantedFault::OrderSwapped),
        Some("AckBeforePlacement") => Some(PlantedFault::AckBeforePlacement),
        Some("StoppedTimeCounts") => Some(PlantedFault::StoppedTimeCounts),
        Some("SenderUnproven") => Some(PlantedFault::SenderUnproven),
        Some(other) => return Err(format!("no fault is called {other}").into()),
    };
    Ok(NodeCfg { fault, ..NodeCfg::from_env()? })
}
