//! Between two hosts: network namespaces that a cable joins; ours, beside what others do over TCP.
//!
//! *Owns*: the hosts of one measurement, both processes on them, the threads that keep both cores busy.
//! *Takes*: a line. *Gives*: its value, and the processor time of both processes. *Must not*: set anything
//! of what is measured; leave a process or a namespace behind.

use std::{
    process::{Child, Command, Output},
    sync::{Mutex, PoisonError},
    thread,
    time::Duration,
};

use nix::sys::resource::{UsageWho, getrusage};
use serde_json::Value;
use urma_mem::sync::{AtomicBool, Ordering};
use urma_net::{Host, Lab, LabPlan};

use super::{
    Measured,
    ucx::{self, Pick},
};
use crate::{child, clock::pause, pair, probe, say::Failure};

/// What runs on both hosts.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(super) enum HostsProgram {
    /// `urma_perftest` without any setting.
    Urma {
        /// Options of both sides.
        args: &'static str,
        /// Key of the result.
        key: &'static str,
        /// Factor from the key's unit to the line's.
        factor: f64,
        /// How both links are made worse (`URMA_LINK_FAULTS`); empty: they are not.
        faults: &'static str,
    },
    /// `iperf3` with writes of this size.
    Iperf(u32),
    /// `xtask probe tcp-lat` with messages of this size.
    PingPong(u32),
    /// `ucx_perftest` with TCP as its only transport.
    Ucx {
        /// Name of the test.
        test: &'static str,
        /// Message size in bytes.
        size: u32,
        /// Which number of its answer.
        pick: Pick,
    },
    /// `fi_pingpong` over TCP with messages of this size, one at a time.
    Fabric(u32),
    /// The bench `ports` of `urma-net`: a port is pulled under load and joined again.
    Ports(PortsPause),
}

/// The longest time without a completion, which of them.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum PortsPause {
    /// After a port was pulled.
    Failover,
    /// Around the time when it is taken back.
    Failback,
    /// In as long a time without a change.
    Control,
}

/// A measurement between two hosts.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(super) struct HostsRun {
    pub(super) program: HostsProgram,
    /// MTU of the cable.
    pub(super) mtu: u32,
    /// A thread that never waits runs on each of both cores meanwhile.
    pub(super) busy: bool,
}

/// What both processes left.
struct Ran {
    server: Output,
    client: Output,
    /// Processor time of both, in seconds.
    cpu: f64,
}

/// Why no line between hosts can be measured here; `None`: they can.
pub(super) fn refused() -> Option<String> {
    Lab::new(LabPlan::cable(1500)).err().map(|refused| refused.to_string())
}

impl HostsProgram {
    /// The program that must be installed.
    pub(super) fn needs(&self) -> Option<&'static str> {
        match self {
            Self::Urma { .. } | Self::PingPong(_) | Self::Ports(_) => None,
            Self::Iperf(_) => Some("iperf3"),
            Self::Ucx { .. } => Some(ucx::NAME),
            Self::Fabric(_) => Some("fi_pingpong"),
        }
    }
}

/// Makes two hosts and measures on them.
pub(super) fn measure(bin: &std::path::Path, of: &HostsRun) -> Result<Measured, Failure> {
    if let HostsProgram::Ports(pause) = of.program {
        return ports(pause, of.mtu);
    }
    let lab = Lab::new(LabPlan::cable(of.mtu)).map_err(|refused| Failure(refused.to_string()))?;
    lab.hosts().iter().try_for_each(wait_until_up)?;
    let stop = AtomicBool::new(false);
    thread::scope(|scope| {
        for core in [pair::SERVER_CORE, pair::CLIENT_CORE].into_iter().filter(|_| of.busy) {
            let stop = &stop;
            scope.spawn(move || {
                probe::pin(core);
                while !stop.load(Ordering::Relaxed) {
                    std::hint::spin_loop();
                }
            });
        }
        let measured = run(bin, &lab, of.program);
        stop.store(true, Ordering::Relaxed);
        measured
    })
}

/// Longest time until the kernel calls a new interface operational.
const UP_LOOKS: u32 = 500;

/// Waits until the interface of a host counts as operational. The kernel says so up to a second after it was set up, and UCX
/// and libfabric leave out interfaces of which it did not.
fn wait_until_up(host: &Host) -> Result<(), Failure> {
    let is_up = || {
        let state = std::fs::read_to_string("/sys/class/net/port0/operstate");
        state.is_ok_and(|state| state.trim() == "up")
    };
    let wait = || {
        (0..UP_LOOKS).any(|_| {
            let is_over = is_up();
            if !is_over {
                pause(Duration::from_millis(10));
            }
            is_over
        })
    };
    match host.run_with_sys(wait) {
        Ok(true) => Ok(()),
        Ok(false) => Err(Failure("port0 does not come up".to_owned())),
        Err(refused) => Err(Failure(refused.to_string())),
    }
}

fn run(bin: &std::path::Path, lab: &Lab, program: HostsProgram) -> Result<Measured, Failure> {
    match program {
        HostsProgram::Urma { args, key, factor, faults } => {
            urma(bin, lab, (args, faults)).and_then(|(ran, port)| of_urma(&ran, key, factor, port))
        }
        HostsProgram::Iperf(size) => iperf(lab, size),
        HostsProgram::PingPong(size) => ping_pong(bin, lab, size),
        HostsProgram::Ucx { test, size, pick } => ucx_between(lab, test, size, pick),
        HostsProgram::Fabric(size) => fabric(lab, size),
        HostsProgram::Ports(pause) => ports(pause, 1500),
    }
}

/// Runs a server on one host and a client on the other; the client starts after `delay`.
fn run_both(lab: &Lab, server: Command, client: Command, delay: Duration) -> Result<Ran, Failure> {
    let before = children_cpu()?;
    let [mut server, client] = {
        let server = spawn_on(lab.host(1), server)?;
        pause(delay);
        match spawn_on(lab.host(0), client) {
            Ok(client) => [server, client],
            Err(error) => {
                let mut server = server;
                let _ = server.kill();
                let _ = server.wait();
                return Err(error);
            }
        }
    };
    let client = pair::finish(client);
    if !matches!(&client, Ok(output) if output.status.success()) {
        let _ = server.kill();
    }
    let server = pair::finish(server);
    let (client, server) = (client?, server?);
    Ok(Ran { server, client, cpu: children_cpu()? - before })
}

/// Starts a process on a host. UCX and libfabric look for interfaces in `/sys`.
fn spawn_on(host: &Host, command: Command) -> Result<Child, Failure> {
    let started = host.run_with_sys(|| pair::spawn(command));
    started.map_err(|refused| Failure(refused.to_string()))?
}

/// Processor time of the processes that this one waited for, in seconds.
fn children_cpu() -> Result<f64, Failure> {
    let usage = getrusage(UsageWho::RUSAGE_CHILDREN).map_err(|error| Failure(error.to_string()))?;
    let seconds =
        |time: nix::sys::time::TimeVal| time.tv_sec() as f64 + time.tv_usec() as f64 / 1e6;
    Ok(seconds(usage.user_time()) + seconds(usage.system_time()))
}

impl Ran {
    /// Standard output of the client, if both ended with success.
    fn text(&self, name: &str) -> Result<String, Failure> {
        for output in [&self.client, &self.server] {
            if !output.status.success() {
                let said =
                    [&output.stderr, &output.stdout].map(|text| String::from_utf8_lossy(text));
                return Err(Failure(format!("{name}: {} {}", said[0].trim(), said[1].trim())));
            }
        }
        Ok(String::from_utf8_lossy(&self.client.stdout).into_owned())
    }

    fn measured(&self, value: f64, bytes: Option<f64>) -> Measured {
        let cpu = bytes.map(|bytes| self.cpu / (bytes / 1e9));
        Measured { value, carried_by: None, cpu }
    }
}

fn core(core: usize) -> String {
    core.to_string()
}

/// The port of a server on a host of its own, where none is taken.
const PORT: &str = "21115";

fn urma(
    bin: &std::path::Path,
    lab: &Lab,
    (args, faults): (&str, &str),
) -> Result<(Ran, String), Failure> {
    let command = |host: &Host, more: &[&str]| {
        let mut command = host.command(bin.join("urma_perftest"));
        command.args(args.split_whitespace()).args(["--json", "-P", PORT]).args(more);
        if !faults.is_empty() {
            command.env("URMA_LINK_FAULTS", faults);
        }
        command
    };
    let address = lab.host(1).address().to_string();
    let server = command(lab.host(1), &["--cpu", &core(pair::SERVER_CORE)]);
    let client = command(
        lab.host(0),
        &["-S", &address, "--cpu", &core(pair::CLIENT_CORE), "--wait-timeout", "20"],
    );
    Ok((run_both(lab, server, client, Duration::ZERO)?, args.to_owned()))
}

fn of_urma(ran: &Ran, key: &str, factor: f64, args: String) -> Result<Measured, Failure> {
    let text = ran.text(&format!("urma_perftest {args}"))?;
    let document: Value =
        serde_json::from_str(&text).map_err(|error| Failure(error.to_string()))?;
    let result = document.pointer("/results/0");
    let number = |key: &str| result.and_then(|result| result.get(key)).and_then(Value::as_f64);
    let value = number(key).ok_or_else(|| Failure(format!("{args}: no {key} in the answer")))?;
    let (counter, count) = result.and_then(pair::proof).unwrap_or_default();
    if counter != "packet_requests" {
        return Err(Failure(format!("{args}: carried by {counter:?}, not by packets")));
    }
    let bytes = number("bytes").zip(number("iterations")).map(|(size, count)| size * count);
    let bytes = bytes.filter(|_| key.starts_with("BW"));
    let carried_by = Some(format!("{counter} +{count}"));
    Ok(Measured { carried_by, ..ran.measured(value * factor, bytes) })
}

/// Bytes that iperf3 sends.
const STREAMED: &str = "2G";

fn iperf(lab: &Lab, size: u32) -> Result<Measured, Failure> {
    let mut server = lab.host(1).command("iperf3");
    server.args(["-s", "-1", "-A", &core(pair::SERVER_CORE)]);
    let mut client = lab.host(0).command("iperf3");
    let address = lab.host(1).address().to_string();
    client.args(["-c", &address, "-l", &size.to_string(), "-n", STREAMED, "-J"]);
    client.args(["-A", &core(pair::CLIENT_CORE)]);
    let ran = run_both(lab, server, client, LISTENS)?;
    let document: Value = serde_json::from_str(&ran.text("iperf3")?)
        .map_err(|error| Failure(format!("iperf3: {error}")))?;
    let number = |key: &str| {
        let value = document.pointer(&format!("/end/sum_received/{key}")).and_then(Value::as_f64);
        value.ok_or_else(|| Failure(format!("iperf3: no {key}")))
    };
    Ok(ran.measured(number("bits_per_second")? / 8e9, Some(number("bytes")?)))
}

/// Until a server of others listens, which it does not say.
const LISTENS: Duration = Duration::from_millis(400);

fn ping_pong(bin: &std::path::Path, lab: &Lab, size: u32) -> Result<Measured, Failure> {
    let to = format!("{}:{PORT}", lab.host(1).address());
    let command = |host: &Host, more: &[&str]| {
        let mut command = host.command(bin.join("xtask"));
        command
            .args(["probe", "tcp-lat", "--size", &size.to_string(), "--address", &to])
            .args(more);
        command
    };
    let server = command(lab.host(1), &["--serve"]);
    let ran = run_both(lab, server, command(lab.host(0), &[]), LISTENS)?;
    let document: Option<Value> = serde_json::from_str(&ran.text("probe")?).ok();
    let value = document.as_ref().and_then(|document| document.get("value")?.as_f64());
    Ok(ran.measured(value.ok_or_else(|| Failure("probe: no value".to_owned()))?, None))
}

fn ucx_between(lab: &Lab, test: &str, size: u32, pick: Pick) -> Result<Measured, Failure> {
    let command = |host: &Host, at: usize| {
        let mut command = host.command(ucx::NAME);
        command.env("UCX_TLS", "tcp").args(["-p", PORT, "-c", &core(at)]);
        command
    };
    let count = match pick {
        Pick::Rate => 500_000,
        _ if size >= 1 << 20 => 1000,
        _ => 20_000,
    };
    let mut client = command(lab.host(0), pair::CLIENT_CORE);
    let address = lab.host(1).address().to_string();
    client.args([&address, "-t", test, "-s", &size.to_string()]);
    client.args(["-n", &count.to_string(), "-w", "100"]);
    let ran = run_both(lab, command(lab.host(1), pair::SERVER_CORE), client, LISTENS)?;
    let value = ucx::answer(&ran.text(ucx::NAME)?, pick);
    let value = value.ok_or_else(|| Failure(format!("{} -t {test}: no final line", ucx::NAME)))?;
    let bytes = (pick == Pick::Bandwidth).then(|| f64::from(size) * f64::from(count));
    Ok(ran.measured(value, bytes))
}

/// Starts of `fi_pingpong` before its failure is one.
const FABRIC_STARTS: u32 = 20;

/// The client of `fi_pingpong` connects without a sign that its server listens (seen with 1.17): on a busy machine it is
/// refused now and then, and both end before anything was measured.
fn fabric(lab: &Lab, size: u32) -> Result<Measured, Failure> {
    let mut last = fabric_once(lab, size);
    for _ in 1..FABRIC_STARTS {
        match &last {
            Err(Failure(why)) if why.contains(FABRIC_TOO_EARLY) => last = fabric_once(lab, size),
            _ => break,
        }
    }
    last
}

/// What its client says when the connection was refused.
const FABRIC_TOO_EARLY: &str = "eq_readerr";

fn fabric_once(lab: &Lab, size: u32) -> Result<Measured, Failure> {
    let count: u32 = match size {
        0..65_536 => 10_000,
        65_536..1_048_576 => 2000,
        _ => 300,
    };
    let command = |host: &Host, at: usize| {
        let mut command = host.command("taskset");
        command.args(["-c", &core(at), "fi_pingpong", "-p", "tcp", "-e", "msg"]);
        command.args(["-I", &count.to_string(), "-S", &size.to_string()]);
        command
    };
    let mut client = command(lab.host(0), pair::CLIENT_CORE);
    client.arg(lab.host(1).address().to_string());
    let mut server = command(lab.host(1), pair::SERVER_CORE);
    // The server looks for one provider only, and is ready earlier.
    server.env("FI_PROVIDER", "tcp");
    let ran = run_both(lab, server, client, LISTENS)?;
    let us = us_of_fabric(&ran.text("fi_pingpong")?);
    let us = us.ok_or_else(|| Failure("fi_pingpong: no result".to_owned()))?;
    if size <= 64 {
        return Ok(ran.measured(us, None));
    }
    let bytes = f64::from(size) * f64::from(count) * 2.0;
    Ok(ran.measured(f64::from(size) / us / 1e3, Some(bytes)))
}

/// Runs of the bench `ports` at a time.
const PORTS_RUNS: &str = "3";

/// A pause of the newest run, each of which gives all three.
fn ports(pause: PortsPause, mtu: u32) -> Result<Measured, Failure> {
    static NEWEST: Mutex<Option<(u32, Vec<PortsPause>, Value)>> = Mutex::new(None);
    let mut newest = NEWEST.lock().unwrap_or_else(PoisonError::into_inner);
    let is_fresh = matches!(&*newest, Some((of, used, _)) if *of == mtu && !used.contains(&pause));
    if !is_fresh {
        let output = child::output(&mut ports_command(mtu)?)?;
        let document = serde_json::from_str(&output).map_err(|error| Failure(error.to_string()))?;
        *newest = Some((mtu, Vec::new(), document));
    }
    let Some((_, used, document)) = &mut *newest else { return Err(no_pause(pause)) };
    used.push(pause);
    longest_of(document, pause).map(Measured::from).ok_or_else(|| no_pause(pause))
}

fn no_pause(pause: PortsPause) -> Failure {
    Failure(format!("bench ports: no value for {pause:?}"))
}

fn ports_command(mtu: u32) -> Result<Command, Failure> {
    let mut command = Command::new(super::built("urma-net", "ports")?);
    command.args([PORTS_RUNS, &mtu.to_string()]);
    Ok(command)
}

/// The longest failover; of failback and of the windows without a change the median, since there are more of those.
fn longest_of(document: &Value, pause: PortsPause) -> Option<f64> {
    let all = |key: &str| {
        let values = document.get(key)?.as_array()?.iter();
        values.map(Value::as_f64).collect::<Option<Vec<_>>>()
    };
    match pause {
        PortsPause::Failover => all("failover_ms")?.into_iter().reduce(f64::max),
        PortsPause::Failback => super::middle(&all("failback_ms")?),
        PortsPause::Control => super::middle(&all("control_ms")?),
    }
}

/// Microseconds of a message one way: the last line but one of `fi_pingpong`'s columns, `usec/xfer`.
fn us_of_fabric(text: &str) -> Option<f64> {
    let line = text.lines().rev().find(|line| line.contains('='))?;
    line.split_whitespace().rev().nth(1)?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_columns_of_fi_pingpong_are_read() {
        let text = "bytes   #sent   #ack     total       time     MB/sec    usec/xfer   Mxfers/sec\n\
                    8       2k      =2k      31k         0.57s      0.06     142.16       0.01\n";
        assert_eq!(us_of_fabric(text), Some(142.16));
        assert_eq!(us_of_fabric("nothing"), None);
    }

    #[test]
    fn pauses_are_read() {
        let text =
            r#"{"failover_ms": [5.0, 7.0], "failback_ms": [3.0, 1.0, 2.0], "control_ms": []}"#;
        let document: Value = serde_json::from_str(text).expect("JSON");
        assert_eq!(longest_of(&document, PortsPause::Failover), Some(7.0));
        assert_eq!(longest_of(&document, PortsPause::Failback), Some(2.0));
        assert_eq!(longest_of(&document, PortsPause::Control), None);
    }
}
