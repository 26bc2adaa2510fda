//! C programs on an installed libinccl, each rank a process, with a controller and switches on loopback.
#![forbid(unsafe_code)]
#![expect(clippy::unwrap_used, reason = "a test fails by it")]

use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::LazyLock;
use std::time::Duration;

use inc_world::{Network, Program, RANKS, each_rank, ping_nodes};
use urma_c_tests::{Prefix, built};

/// The library that was built with this test, as `cargo xtask install` installs it.
static INSTALLED: LazyLock<Prefix> = LazyLock::new(|| {
    let built = built().to_string_lossy().into_owned();
    Prefix::install_with("inccl", &["--parts", "inccl", "--built", &built], &[])
});

fn good(output: &Output) -> String {
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8_lossy(&output.stdout).into_owned()
}

/// What pkg-config says of the installed library.
fn flags() -> Vec<String> {
    let mut command = Command::new("pkg-config");
    command.args(["--cflags", "--libs", "inccl"]);
    command.env("PKG_CONFIG_PATH", INSTALLED.lib().join("pkgconfig"));
    let text = good(&command.output().expect("pkg-config is needed: apt-get install pkg-config"));
    text.split_whitespace().map(str::to_owned).collect()
}

fn compiled(source: &str) -> PathBuf {
    let program = INSTALLED.path.join(source.trim_end_matches(".c"));
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/c").join(source);
    let mut command = Command::new("cc");
    command
        .args(["-std=c11", "-Wall", "-Wextra", "-Wno-unused-parameter", "-Werror", "-O1", "-o"])
        .arg(&program)
        .arg(source)
        .args(flags());
    good(&command.output().unwrap());
    program
}

/// Runs a program in all ranks below some switches; what each printed.
fn run(net: u8, source: &str) -> Vec<String> {
    run_with(Network(45, net), source, |command, _, port| {
        command.env("INCCL_PORT", port).env("INCCL_GROUP", source);
    })
}

/// The same, with variables that tell a rank where the controller's port and the others are.
fn run_with(
    network: Network,
    source: &str,
    variables: impl Fn(&mut Command, u8, String),
) -> Vec<String> {
    let controller = network.start_controller(Duration::from_secs(5));
    let _switches = network.start_switches(controller.switches());
    let program = compiled(source);
    let rank = |rank: u8| {
        let mut command = command(&program, network, rank);
        variables(&mut command, rank, controller.hosts().port().to_string());
        Program::spawn(&mut command)
    };
    let ranks: Vec<_> = (0..RANKS).map(rank).collect();
    ranks.into_iter().map(printed).collect()
}

/// A rank of a program, which knows where the controller is and its own address.
fn command(program: &Path, network: Network, rank: u8) -> Command {
    let mut command = Command::new(program);
    command
        .args([RANKS.to_string(), "127.0.0.1".into(), rank.to_string()])
        .env("LD_LIBRARY_PATH", INSTALLED.lib())
        .env("INCCL_ADDRESS", network.host(rank).to_string())
        .env_remove("INCCL_PORT")
        .env_remove("INCCL_GROUP")
        .env_remove("INCCL_MASTER");
    command
}

/// What a rank printed, which ended well.
fn printed(rank: Program) -> String {
    let output = rank.output();
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{}: {errors}", output.status);
    assert_eq!(errors, "");
    String::from_utf8(output.stdout).unwrap()
}

#[test]
fn the_example_of_the_design_notes_runs_unchanged() {
    assert_eq!(run(1, "example.c"), vec![""; usize::from(RANKS)]);
}

#[test]
fn ranks_that_know_rank_0_alone_find_the_group() {
    let network = Network(45, 3);
    let printed = run_with(network, "bootstrap.c", |command, rank, port| {
        match rank {
            0 => command.env("INCCL_PORT", port),
            _ => command.env("INCCL_MASTER", network.host(0).to_string()),
        };
    });
    assert_eq!(printed, vec!["10\n"; usize::from(RANKS)]);
}

#[test]
fn every_call_gives_its_result_or_its_reason() {
    let wanted = |rank| format!("rank {rank}: all right\n");
    assert_eq!(run(2, "collectives.c"), (0..RANKS).map(wanted).collect::<Vec<_>>());
}

#[test]
fn ranks_reduce_by_the_sockets_of_nodes_that_answer_pings() {
    let network = Network(45, 4);
    let controller = network.start_controller(Duration::from_secs(5));
    let _switches = network.start_switches(controller.switches());
    let program = compiled("node.c");
    let mut ranks = each_rank(|rank| {
        let mut command = command(&program, network, rank);
        command
            .env("INCCL_PORT", controller.hosts().port().to_string())
            .env("INCCL_NODE", if rank < 2 { "1" } else { "0" })
            .env("URMA_PATH", "packets");
        Program::spawn_asking(&mut command, "one group is over")
    });
    ping_nodes(network, (0..2).map(|rank| network.host(rank)));
    ranks.iter_mut().for_each(Program::go_on);
    let wanted = |rank| format!("rank {rank}: all right\n");
    let all: Vec<_> = ranks.into_iter().map(printed).collect();
    assert_eq!(all, (0..RANKS).map(wanted).collect::<Vec<_>>());
}

#[test]
fn the_manual_page_names_every_function_and_has_no_fault() {
    let page = INSTALLED.path.join("share/man/man3/inccl.3");
    // A word that groff does not know, and a table or font that is not there, is a warning.
    let output =
        Command::new("groff").args(["-man", "-Tascii", "-P-cbou", "-ww"]).arg(&page).output();
    let output = output.expect("groff is needed: apt-get install groff");
    assert_eq!(String::from_utf8_lossy(&output.stderr), "");
    let text = good(&output);
    let header = std::fs::read_to_string(INSTALLED.path.join("include/inccl.h")).unwrap();
    let functions: Vec<_> = header
        .split(['(', ' ', '*', '\n'])
        .filter(|word| word.starts_with("inccl_") && header.contains(&format!("{word}(")))
        .collect();
    assert!(functions.len() > 20, "{functions:?}");
    for function in functions {
        assert!(text.contains(&format!("{function}(")), "{function} is not in the page");
    }
}
