//! `inc-switch`: a switch that reduces, on an address of this machine.
//!
//! It says to the controller that it is there, and does what the controller says until it is ended by a signal. When the
//! controller is gone, running communicators go on.
#![forbid(unsafe_code)]

use std::net::{IpAddr, SocketAddr};
use std::process::ExitCode;
use std::time::Duration;

use clap::{CommandFactory, Parser};
use inc::switch::SwitchLimits;
use inc_control::SWITCHES_PORT;
use inc_net::drive::LinkLoss;
use inc_net::switch::{ControlledSwitch, ControlledSwitchCfg};
use inc_net::udp::source_of;
use inc_tools::LinkArgs;
use urma_tools::{Ends, LogLevel, LogSetup, say};

/// How often counters go to the controller, for its metrics.
const COUNTS_EVERY: Duration = Duration::from_secs(1);

/// A switch that adds up the vectors of many hosts on their way, and sends the sum back.
#[derive(Debug, Parser)]
#[command(name = "inc-switch", version)]
struct SwitchCli {
    /// Address of the controller; of several that replace each other all, with commas between
    #[arg(value_delimiter = ',', num_args = 1, required = true)]
    controller: Vec<IpAddr>,
    /// Address of this machine that hosts and switches send to [default: the one from which the controller is reached]
    #[arg(long, value_name = "IP")]
    address: Option<IpAddr>,
    /// UDP port; other ports than RoCEv2's are for several switches on one address
    #[arg(long, default_value_t = 4791)]
    port: u16,
    /// Name in the topology [default: it is found by its address]
    #[arg(long)]
    name: Option<String>,
    /// TCP port of the controller for switches
    #[arg(long, default_value_t = SWITCHES_PORT)]
    controller_port: u16,
    /// MiB of all slots at most
    #[arg(long, default_value_t = 1024)]
    memory: u64,
    /// Communicators at one time
    #[arg(long, default_value_t = 4096)]
    communicators: u32,
    #[command(flatten)]
    link: LinkArgs,
    /// Throws away so many of a million datagrams that arrive or leave, as a bad link does
    #[arg(long, value_name = "PPM", default_value_t = 0)]
    loss: u32,
    /// What the choice of those begins with
    #[arg(long, default_value_t = 0)]
    loss_seed: u64,
    /// Says more about what happens
    #[arg(short, long, action = clap::ArgAction::Count)]
    verbose: u8,
}

fn main() -> ExitCode {
    match urma_tools::generate_if_asked(vec![SwitchCli::command()]) {
        Ok(false) => {}
        Ok(true) => return ExitCode::SUCCESS,
        Err(error) => return fail(&format!("--generate: {error}")),
    }
    let cli = SwitchCli::parse();
    // Before any thread starts, so that all of them inherit the mask.
    let ends = match Ends::watch() {
        Ok(ends) => ends,
        Err(error) => return fail(&format!("watching for a signal: {error}")),
    };
    let level = if cli.verbose > 0 { LogLevel::Everything } else { LogLevel::Warnings };
    urma_tools::log(LogSetup { stdout: false, level });
    match serve(&cli, &ends) {
        Ok(()) => ExitCode::SUCCESS,
        Err(why) => fail(&why),
    }
}

fn fail(why: &str) -> ExitCode {
    urma_tools::say_error(&format!("inc-switch: {why}"));
    ExitCode::from(2)
}

fn serve(cli: &SwitchCli, ends: &Ends) -> Result<(), String> {
    let at = |&ip: &IpAddr| SocketAddr::new(ip, cli.controller_port);
    let controllers: Vec<_> = cli.controller.iter().map(at).collect();
    let [controller, ref others @ ..] = controllers[..] else {
        return Err("no controller is named".to_owned());
    };
    let address = match cli.address {
        Some(address) => address,
        None => {
            source_of(controller).map_err(|error| format!("no route to {controller}: {error}"))?
        }
    };
    let address = SocketAddr::new(address, cli.port);
    let memory = cli.memory.saturating_mul(1 << 20);
    let communicators = usize::try_from(cli.communicators).unwrap_or(usize::MAX);
    let limits = SwitchLimits { memory, communicators };
    let switch = ControlledSwitch::start(ControlledSwitchCfg {
        address,
        limits,
        controller,
        others: others.to_vec(),
        name: cli.name.clone(),
        tls: None,
        access: cli.link.access(),
    });
    let switch = switch.map_err(|error| format!("{address}: {error}"))?;
    switch.switch().set_loss(LinkLoss { ppm: cli.loss, seed: cli.loss_seed });
    say(&format!("inc-switch {address}: controller {controller}\n")).map_err(|e| e.to_string())?;
    while !ends.within(COUNTS_EVERY) {
        switch.report_counts();
    }
    Ok(())
}
