//! Two `urma_perftest` processes, pinned to two cores.
//!
//! *Owns*: both processes and a bound on their time. *Takes*: a command line. *Gives*: the
//! client's JSON. *Must not*: leave a process behind.

use std::{
    net::TcpListener,
    path::Path,
    process::{Child, Command, Output, Stdio},
    thread,
    time::Duration,
};

use serde_json::Value;

use crate::{
    clock::{now, pause},
    say::Failure,
};

/// Longest time of one run.
const BOUND: Duration = Duration::from_secs(60);
/// Core of the server.
pub(crate) const SERVER_CORE: usize = 0;
/// Core of the client.
pub(crate) const CLIENT_CORE: usize = 1;

/// Runs `urma_perftest` with `args` on both sides; the client's document.
pub(crate) fn run(bin: &Path, args: &[&str]) -> Result<Value, Failure> {
    let port = free_port()?.to_string();
    let binary = bin.join("urma_perftest");
    let start = |more: &[&str]| {
        let mut command = Command::new(&binary);
        command.args(args).args(["--json", "-P", &port, "--wait-timeout", "20"]).args(more);
        spawn(command)
    };
    let server = start(&["--cpu", &SERVER_CORE.to_string()])?;
    let client = start(&["-S", "127.0.0.1", "--cpu", &CLIENT_CORE.to_string()])?;
    let server = thread::spawn(move || finish(server));
    let client = finish(client);
    let server = server.join().map_err(|_| Failure("a thread failed".to_owned()))?;
    let (client, server) = (client?, server?);
    for (name, output) in [("client", &client), ("server", &server)] {
        if !output.status.success() {
            let why = String::from_utf8_lossy(&output.stderr);
            return Err(Failure(format!("{name} of {}: {}", args.join(" "), why.trim())));
        }
    }
    serde_json::from_slice(&client.stdout)
        .map_err(|error| Failure(format!("{}: {error}", args.join(" "))))
}

/// Starts a process whose output is kept.
pub(crate) fn spawn(mut command: Command) -> Result<Child, Failure> {
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    command.spawn().map_err(Failure::system("starting a process"))
}

/// Waits for a process, at most [`BOUND`]; then it is killed.
pub(crate) fn finish(mut child: Child) -> Result<Output, Failure> {
    let start = now();
    loop {
        match child.try_wait().map_err(Failure::system("waiting for a process"))? {
            Some(_) => return child.wait_with_output().map_err(Failure::system("its output")),
            None if start.elapsed() < BOUND => pause(Duration::from_millis(2)),
            None => {
                let _ = child.kill();
                let _ = child.wait();
                return Err(Failure(format!("a process took more than {} s", BOUND.as_secs())));
            }
        }
    }
}

/// A TCP port that is free now.
pub(crate) fn free_port() -> Result<u16, Failure> {
    let listener = TcpListener::bind("127.0.0.1:0").map_err(Failure::system("a free port"))?;
    let address = listener.local_addr().map_err(Failure::system("a free port"))?;
    Ok(address.port())
}

/// What carried the requests of a run, by the device's own counters: the name of the counter that
/// grew most, and by how much.
pub(crate) fn proof(result: &Value) -> Option<(String, u64)> {
    let carriers = ["direct_requests", "ring_requests", "packet_requests", "kernel_requests"];
    let counters = result.get("counters")?;
    let count = |name: &&str| counters.get(*name).and_then(Value::as_u64).unwrap_or(0);
    let most = carriers.iter().max_by_key(|name| count(name))?;
    (count(most) > 0).then(|| ((*most).to_owned(), count(most)))
}
