//! Stations of in-network computing as processes: controllers, switches, hosts.
//!
//! *Owns*: a network namespace for each of them, or, without the right to make some, addresses of the loopback interface.
//! *Takes*: commands. *Gives*: what they write. *Must not*: wait without bound.

use std::io::{BufRead, BufReader};
use std::net::{IpAddr, Ipv4Addr};
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::Duration;

use serde_json::Value;
use urma_net::{Lab, LabPlan};

use crate::say::{Failure, TaskResult, say};

/// A packet of 4096 bytes and its headers fit.
const MTU: u32 = 9000;
/// No station is waited for longer.
pub(crate) const HANG: Duration = Duration::from_secs(120);

/// Where the stations are.
pub(crate) enum Places {
    Namespaces(Lab),
    Loopback,
}

/// Processes that end with this value.
#[derive(Default)]
pub(crate) struct Stations(pub(crate) Vec<Child>);

impl Stations {
    /// Whether one of them has not ended.
    pub(crate) fn are_running(&mut self) -> Result<bool, Failure> {
        for child in &mut self.0 {
            if child.try_wait().map_err(Failure::system("waiting for a program"))?.is_none() {
                return Ok(true);
            }
        }
        Ok(false)
    }
}

impl Drop for Stations {
    fn drop(&mut self) {
        for child in &mut self.0 {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

impl Places {
    pub(crate) fn new(stations: u8) -> Self {
        match Lab::new(LabPlan::bridge(stations, MTU)) {
            Ok(lab) => Self::Namespaces(lab),
            Err(refused) => {
                say(&format!("No network namespaces ({refused}): all on loopback addresses."));
                Self::Loopback
            }
        }
    }

    pub(crate) fn address(&self, station: u8) -> IpAddr {
        match self {
            Self::Namespaces(lab) => lab.host(station.into()).address(),
            Self::Loopback if station == 0 => Ipv4Addr::LOCALHOST.into(),
            Self::Loopback => Ipv4Addr::new(127, 46, 0, station).into(),
        }
    }

    pub(crate) fn start(&self, station: u8, command: &mut Command) -> Result<Child, Failure> {
        let what = command.get_program().to_string_lossy().into_owned();
        command.stdout(Stdio::piped());
        let started = match self {
            Self::Namespaces(lab) => lab.host(station.into()).run(|| command.spawn()),
            Self::Loopback => command.spawn(),
        };
        started.map_err(|error| Failure(format!("{what}: {error}")))
    }

    /// What a program that soon ends wrote.
    pub(crate) fn output(&self, station: u8, command: &mut Command) -> Result<String, Failure> {
        let child = self.start(station, command)?;
        let output = child.wait_with_output().map_err(Failure::system("waiting for a program"))?;
        Ok(String::from_utf8_lossy(&output.stdout).into_owned())
    }
}

/// Starts a program that says a line when it is ready.
pub(crate) fn start(
    places: &Places,
    stations: &mut Stations,
    station: u8,
    command: &mut Command,
) -> TaskResult {
    let mut child = places.start(station, command)?;
    let output = child.stdout.take();
    stations.0.push(child);
    let mut line = String::new();
    let read = output.map(|output| BufReader::new(output).read_line(&mut line));
    match read {
        Some(Ok(len)) if len != 0 => Ok(()),
        _ => Err(Failure(format!("{} ended at once", command.get_program().to_string_lossy()))),
    }
}

/// What a host has to say at its end.
pub(crate) fn result(mut child: Child) -> Result<Value, Failure> {
    let mut waited = Duration::ZERO;
    let step = Duration::from_millis(20);
    while child.try_wait().map_err(Failure::system("waiting for a host"))?.is_none() {
        if waited > HANG {
            let _ = child.kill();
            let _ = child.wait();
            return Err(Failure(format!("a host did not end within {} s", HANG.as_secs())));
        }
        thread::park_timeout(step);
        waited += step;
    }
    let output = child.wait_with_output().map_err(Failure::system("waiting for a host"))?;
    if !output.status.success() {
        return Err(Failure(format!("a host ended with {}", output.status)));
    }
    serde_json::from_slice(&output.stdout)
        .map_err(|error| Failure(format!("a host wrote no JSON: {error}")))
}
