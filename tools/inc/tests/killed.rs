//! Switches and hosts as processes, of which some are killed or stopped in mid-operation.
#![forbid(unsafe_code)]

use std::process::Command;
use std::thread;
use std::time::Duration;

use inc_control::ControllerServer;
use inc_world::{Network, Program, RANKS, SWITCHES};
use nix::sys::signal::Signal;

/// Rounds of each kind: every switch is lost some times.
const ROUNDS: u8 = 20;
const SILENCE: Duration = Duration::from_secs(1);

fn switch(network: Network, index: u8, controller: &ControllerServer) -> Program {
    let mut command = Command::new(env!("CARGO_BIN_EXE_inc-switch"));
    let address = network.switch(index).ip().to_string();
    command
        .args(["127.0.0.1", "--address", &address])
        .args(["--controller-port", &controller.switches().port().to_string()]);
    Program::spawn_ready(&mut command, &address)
}

fn switches(network: Network, controller: &ControllerServer) -> Vec<Option<Program>> {
    (0..SWITCHES).map(|index| Some(switch(network, index, controller))).collect()
}

fn hosts(
    network: Network,
    controller: &ControllerServer,
    round: u8,
    arguments: &[&str],
) -> Vec<Program> {
    let host = |rank: u8| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_inc-host"));
        command
            .args([RANKS.to_string(), "127.0.0.1".into(), rank.to_string()])
            .args(["--address", &network.host(rank).to_string()])
            .args(["--controller-port", &controller.hosts().port().to_string()])
            .args(["--group", &format!("round{round}")])
            .args(arguments);
        Program::spawn(&mut command)
    };
    (0..RANKS).map(host).collect()
}

/// Long enough for several operations, short enough that none of the hosts is done.
fn mid_operation() {
    thread::park_timeout(Duration::from_millis(150));
}

const WORK: [&str; 6] = ["--count", "20000", "--times", "150", "--type", "f32"];

#[test]
fn a_switch_that_is_killed_or_stopped_changes_no_result() {
    let network = Network(47, 1);
    let controller = network.start_controller(SILENCE);
    let mut switches = switches(network, &controller);
    for round in 0..ROUNDS {
        let hosts = hosts(network, &controller, round, &WORK);
        mid_operation();
        let lost = round % SWITCHES;
        let place = &mut switches[usize::from(lost)];
        // A stopped switch keeps its connections: its silence ends them.
        let signal = if round % 2 == 0 { Signal::SIGKILL } else { Signal::SIGSTOP };
        place.as_ref().unwrap().signal(signal);
        for (rank, host) in hosts.into_iter().enumerate() {
            let output = host.output();
            let (text, errors) =
                (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
            assert!(output.status.success(), "round {round}, rank {rank}: {errors}");
            assert!(text.contains("150 times: right"), "round {round}, rank {rank}: {text}");
        }
        drop(place.take());
        *place = Some(switch(network, lost, &controller));
        // Two switches have to be in service when the next one is lost.
        thread::park_timeout(Duration::from_millis(300));
    }
}

#[test]
fn a_host_that_is_killed_ends_the_operations_of_the_others_by_name() {
    let network = Network(47, 2);
    let controller = network.start_controller(SILENCE);
    let _switches = switches(network, &controller);
    for round in 0..ROUNDS / 2 {
        let arguments = ["--count", "20000", "--times", "1000000"];
        let mut hosts = hosts(network, &controller, round, &arguments);
        mid_operation();
        let lost = round % RANKS;
        let signal = if round % 2 == 0 { Signal::SIGKILL } else { Signal::SIGSTOP };
        let gone = hosts.remove(lost.into());
        gone.signal(signal);
        for host in hosts {
            let output = host.output();
            let errors = String::from_utf8_lossy(&output.stderr);
            assert_eq!(output.status.code(), Some(2), "round {round}: {errors}");
            assert!(errors.contains(&format!("rank {lost}")), "round {round}: {errors}");
        }
    }
}
