//! C programs that find the daemon by a setting.

use std::{path::PathBuf, process::Command};

use urma_c_tests::{GCC, Prefix, finish, root, start};

use super::world::Daemon;

fn example(name: &str) -> PathBuf {
    root().join("examples/c").join(name).with_extension("c")
}

#[test]
fn the_examples_use_functions_of_the_daemon_that_the_settings_file_names() {
    let tree = Prefix::install("ubcored", &[]);
    let daemon = Daemon::start("c");
    let file = daemon.socket.with_added_extension("toml");
    std::fs::write(&file, format!("ubcored = {:?}\n", daemon.socket)).unwrap();
    let run = |program: &PathBuf, args: &[&str]| {
        let mut command = Command::new(program);
        command.args(args).env("URMA_CONFIG", &file);
        command
    };
    for (name, says) in [
        ("write", "the other side now holds: written from afar"),
        ("send_recv", "14 bytes"),
        ("atomics", "compared with 30, was 30, is 7"),
        ("events", "woken by: wake up"),
    ] {
        let program = GCC.build(&tree, &example(name), &[]);
        let said = finish(&run(&program, &[]));
        assert!(said.out.contains(says), "{name}: {}", said.out);
    }
    // Two processes with one EID.
    let program = GCC.build(&tree, &example("sample"), &[]);
    let mut server = start(&run(&program, &["-m", "rm", "-p", "0"]));
    let line = server.line();
    let (_, port) = line.trim().rsplit_once(' ').unwrap();
    let args = ["-m", "rm", "-p", port, "-i", "127.0.0.1"];
    let client = start(&run(&program, &args)).end();
    let server = server.end();
    assert!(client.status.success() && server.status.success(), "{}{}", client.err, server.err);
    assert!(client.out.contains("wrote and read back: put here by the client"), "{}", client.out);
    let status = daemon.status();
    assert!(status["served"].as_u64().unwrap() >= 6, "{status}");
    let _ = std::fs::remove_file(file);
}

#[test]
fn a_quota_is_an_errno_of_its_own() {
    let tree = Prefix::install("ubcored-quota", &[]);
    let daemon = Daemon::with("c-quota", &["--segments", "0"], &[]);
    let program = GCC.build(&tree, &example("write"), &[]);
    let mut command = Command::new(&program);
    command.env("URMA_UBCORED", &daemon.socket).env("URMA_LOG", "warn");
    let output = command.output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(!output.status.success() && said.contains("Disk quota exceeded"), "{said}");
    assert_ne!(daemon.status()["served"], 0);
}
