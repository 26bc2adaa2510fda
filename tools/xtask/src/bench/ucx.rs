//! UCX beside us, where it is installed.
//!
//! *Owns*: two `ucx_perftest` processes and the reading of their answer.

use std::{env, process::Command, time::Duration};

use crate::{
    clock::{now, pause},
    pair,
    say::Failure,
};

pub(super) const NAME: &str = "ucx_perftest";

/// Whether a program is in the path.
pub(super) fn is_installed(name: &str) -> bool {
    let path = env::var_os("PATH").unwrap_or_default();
    env::split_paths(&path).any(|dir| dir.join(name).is_file())
}

/// A number of UCX's answer.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Pick {
    /// Median latency in microseconds.
    Median,
    /// Mean latency in microseconds.
    Latency,
    /// Mean bandwidth in GB/s.
    Bandwidth,
    /// Mean rate, millions per second.
    Rate,
}

/// Whether it is installed.
pub(super) fn is_here() -> bool {
    is_installed(NAME)
}

/// Its version, as `ucx_info` of the same package says; `None`: it does not.
pub(super) fn version() -> Option<String> {
    let output = Command::new("ucx_info").arg("-v").output().ok()?;
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    version_in(&text)
}

/// UCX writes `# Version 1.13.1`, and from 1.15 on `# Library version: 1.15.0`.
fn version_in(text: &str) -> Option<String> {
    text.lines().find_map(|line| {
        let line = line.trim_start_matches("# ");
        let version =
            line.strip_prefix("Library version: ").or_else(|| line.strip_prefix("Version "));
        version.map(|version| version.trim().to_owned())
    })
}

/// Runs one test and picks a number of its answer.
pub(super) fn measure(test: &str, size: u32, tls: &str, pick: Pick) -> Result<f64, Failure> {
    let port = pair::free_port()?.to_string();
    let start = |core: usize, more: &[&str]| {
        let mut command = Command::new(NAME);
        command.env("UCX_TLS", tls).args(["-p", &port, "-c", &core.to_string()]).args(more);
        pair::spawn(command)
    };
    let mut server = start(pair::SERVER_CORE, &[])?;
    // It does not say when it listens.
    pause(Duration::from_millis(300));
    let (size, count) = (size.to_string(), if size > 65536 { "20000" } else { "500000" });
    let asked = now();
    let client = start(
        pair::CLIENT_CORE,
        &["127.0.0.1", "-t", test, "-s", &size, "-n", count, "-w", "10000"],
    )?;
    let output = pair::finish(client);
    if output.is_err() || asked.elapsed() < Duration::from_millis(1) {
        let _ = server.kill();
    }
    let _ = pair::finish(server);
    let output = output?;
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    answer(&text, pick).ok_or_else(|| Failure(format!("{NAME} -t {test}: no final line")))
}

/// The final line: iterations; latency typical, average, overall (us); bandwidth average, overall
/// (MB/s of 2^20 bytes); rate average, overall (messages per second).
pub(super) fn answer(text: &str, pick: Pick) -> Option<f64> {
    let line = text.lines().rev().find(|line| line.trim_start().starts_with("Final:"))?;
    let numbers: Vec<f64> = line.split_whitespace().filter_map(|word| word.parse().ok()).collect();
    Some(match pick {
        Pick::Median => *numbers.get(1)?,
        Pick::Latency => *numbers.get(3)?,
        Pick::Bandwidth => numbers.get(5)? * 1.048_576e-3,
        Pick::Rate => numbers.get(7)? / 1e6,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_final_line_is_read() {
        let text = "| Stage |\nFinal:      1000000   0.259   0.260   0.262   29.36   29.40   \
                    3848424   3848425\n";
        assert_eq!(answer(text, Pick::Median), Some(0.259));
        assert_eq!(answer(text, Pick::Latency), Some(0.262));
        assert_eq!(answer(text, Pick::Rate), Some(3.848_425));
        assert!(answer(text, Pick::Bandwidth).is_some_and(|gbs| (gbs - 0.0308).abs() < 0.001));
        assert_eq!(answer("nothing", Pick::Latency), None);
    }

    #[test]
    fn both_forms_of_a_version_are_read() {
        for (text, version) in [
            ("# Version 1.13.1\n# Git branch", Some("1.13.1")),
            ("# Library version: 1.15.0\n# Library path", Some("1.15.0")),
            ("", None),
        ] {
            assert_eq!(version_in(text).as_deref(), version);
        }
    }
}
