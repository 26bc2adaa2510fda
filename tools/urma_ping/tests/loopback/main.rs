//! The built program: one process answers, another pings it.
#![expect(clippy::unwrap_used, reason = "a test fails by it")]

mod hosts;
mod run;

use std::{
    io::{BufRead, BufReader},
    process::{Child, Command, Output, Stdio},
};

use serde_json::Value;

const PROGRAM: &str = env!("CARGO_BIN_EXE_urma_ping");

/// A node that answers; ends with this.
struct Node {
    child: Child,
    eid: String,
}

impl Node {
    fn start() -> Self {
        let mut command = Command::new(PROGRAM);
        command.arg("--serve").env("URMA_EID", "random").stdout(Stdio::piped());
        let mut child = command.spawn().unwrap();
        let mut line = String::new();
        BufReader::new(child.stdout.as_mut().unwrap()).read_line(&mut line).unwrap();
        let eid = line.trim().rsplit(' ').next().unwrap().to_owned();
        Self { child, eid }
    }
}

impl Drop for Node {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn ping(words: &[&str], path: &str) -> Output {
    Command::new(PROGRAM)
        .args(words)
        .env("URMA_EID", "random")
        .env("URMA_PATH", path)
        .output()
        .unwrap()
}

#[test]
fn an_answering_node_answers_on_every_path() {
    let node = Node::start();
    for path in ["same-host", "packets"] {
        let output = ping(&["-c", "3", "-i", "0.01", "-W", "20", "-s", "64", &node.eid], path);
        let text = String::from_utf8(output.stdout).unwrap();
        assert!(output.status.success(), "{path}: {text}");
        assert!(text.starts_with("URMA_PING 0000:0000:0000:0000:0000:ffff:7f"), "{text}");
        assert!(text.contains("64 bytes from ") && text.contains(": seq=3 time="), "{text}");
        assert!(text.contains("3 packets transmitted, 3 received, 0.0% packet loss"), "{text}");
        assert!(text.contains("rtt min/avg/max/mdev = "), "{text}");
    }
}

/// A sender that starts again has the same EID and the same jetty id, but is another process.
#[test]
fn a_sender_that_starts_again_is_answered_at_once() {
    let node = Node::start();
    for path in ["same-host", "packets"] {
        for run in 0..3 {
            let words = ["-c", "1", "-W", "20", "-I", "127.77.7.9", &node.eid];
            let output = ping(&words, path);
            let text = String::from_utf8(output.stdout).unwrap();
            assert!(text.contains(": seq=1 time="), "{path}, run {run}: {text}");
        }
    }
}

#[test]
fn large_pings_and_json() {
    let node = Node::start();
    let words = ["-c", "2", "-i", "0", "-W", "20", "-s", "4096", "--json", &node.eid];
    let output = ping(&words, "auto");
    assert!(output.status.success());
    let value: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(value["received"], 2);
    assert_eq!(value["replies"][1]["seq"], 2);
    assert!(value["rtt[ms]"]["avg"].as_f64().unwrap() > 0.0, "{value:#}");
}

#[test]
fn no_node_is_exit_code_1() {
    let output = ping(&["-c", "1", "127.250.250.250"], "same-host");
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    let said = String::from_utf8(output.stderr).unwrap();
    assert!(said.contains("no path to node 127.250.250.250"), "{said}");
}

#[test]
fn wrong_words_are_exit_code_2() {
    for words in [&["not an eid"][..], &["-s", "5000", "127.1.2.3"], &["-c", "0", "127.1.2.3"], &[]]
    {
        assert_eq!(ping(words, "auto").status.code(), Some(2), "{words:?}");
    }
}
