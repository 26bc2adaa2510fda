//! `urma_perftest` by a daemon that is killed.

use std::{
    net::TcpListener,
    path::Path,
    process::{Child, Command, Stdio},
};

use super::world::{Daemon, until};

/// A side of a test that goes on for minutes.
struct Side(Child);

impl Side {
    fn start(program: &Path, daemon: &Daemon, words: &[&str]) -> Self {
        let mut command = Command::new(program);
        command.args(["write_lat", "--spin", "memory", "-D", "300", "--wait-timeout", "300"]);
        command.args(words).env("URMA_UBCORED", &daemon.socket);
        Self(command.stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap())
    }

    fn has_ended(&mut self) -> bool {
        self.0.try_wait().unwrap().is_some()
    }

    fn said(&mut self) -> String {
        let mut said = String::new();
        std::io::Read::read_to_string(&mut self.0.stderr.take().unwrap(), &mut said).unwrap();
        said
    }
}

impl Drop for Side {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Both sides wait on memory, which does not say that its writer is gone.
#[test]
fn a_test_that_waits_on_memory_ends_with_its_daemon_and_names_the_device() {
    // Built with all programs of the workspace.
    let program = Path::new(env!("CARGO_BIN_EXE_ubcored")).with_file_name("urma_perftest");
    if !program.exists() {
        return urma_skip::skip("urma_perftest is not built: cargo build -p urma_perftest");
    }
    let mut daemon = Daemon::start("perftest");
    let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port().to_string();
    let mut server = Side::start(&program, &daemon, &["-P", &port]);
    let mut client = Side::start(&program, &daemon, &["-P", &port, "-S", "127.0.0.1"]);
    // Both write, each only after the other: neither is opening its device any more.
    let writes = |daemon: &Daemon| daemon.status()["counters"]["direct_requests"].as_u64().unwrap();
    until("both sides write", || writes(&daemon) > 2);
    assert!(!server.has_ended() && !client.has_ended());
    daemon.kill();
    // Of the two, the one that learns it first may tell the other.
    until("both sides end", || server.has_ended() && client.has_ended());
    let said = [server.said(), client.said()].concat();
    assert!(said.contains("not operational") || said.contains("the device is lost"), "{said}");
    assert!(!said.contains("nothing happened"), "{said}");
}
