//! `cargo xtask bench-inc`: allreduces through a switch beside those of Open MPI over TCP, in turn in the same namespaces.
//!
//! *Owns*: a namespace for the controller, the switch and each rank; rounds in which both are measured.
//! *Gives*: medians of medians with their range, bytes of a rank by its interface's counters, processor time, ratios; JSON.
//! *Must not*: compare runs of different namespaces or times.

use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::{fs, iter};

use clap::Args;
use comfy_table::presets::UTF8_FULL_CONDENSED;
use comfy_table::{Cell, CellAlignment, Table};
use serde::Serialize;
use serde_json::{Value, json};
use urma_net::{Host, Lab};

use super::{middle, ucx};
use crate::cargo;
use crate::child::output;
use crate::child::{Places, Stations, result, start};
use crate::say::{Failure, TaskResult, say, say_part};

const MPI: &str = "mpirun";
const MPI_COMPILER: &str = "mpicc";
const MPI_PROGRAM: &str = include_str!("allreduce.c");
/// Elements of 4 bytes, and allreduces of a run.
const SIZES: [(u32, u32); 6] =
    [(1, 3000), (256, 3000), (1024, 2000), (16 << 10, 500), (256 << 10, 60), (4 << 20, 6)];
/// From this size on what starts a run is little beside what it moves.
const BYTES_FROM: u32 = 1 << 20;
/// The stations: the controller, the switch, the ranks.
const CONTROLLER: u8 = 0;
const SWITCH: u8 = 1;
const FIRST_RANK: u8 = 2;

/// What a run of the bench does.
#[derive(Debug, Args)]
pub(crate) struct IncBenchPlan {
    /// Rounds of measurements
    #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..=100))]
    rounds: u32,
    /// Ranks
    #[arg(long, value_delimiter = ',', default_values_t = [2, 4, 8], value_parser = clap::value_parser!(u8).range(2..=14))]
    ranks: Vec<u8>,
    /// Bytes of a vector at most
    #[arg(long, default_value_t = u32::MAX)]
    bytes: u32,
    /// Also with so many of a million datagrams lost at each rank, beside the same without loss
    #[arg(long)]
    loss: Option<u32>,
    /// Also with each rank at the socket of a URMA node of its own
    #[arg(long)]
    node: bool,
    /// Without a switch: the ranks' own programs reduce
    #[arg(long)]
    members: bool,
    /// More arguments of inc-host
    #[arg(long, allow_hyphen_values = true, value_delimiter = ' ')]
    host_args: Vec<String>,
    /// More arguments of inc-switch
    #[arg(long, allow_hyphen_values = true, value_delimiter = ' ')]
    switch_args: Vec<String>,
}

/// What one run of a program showed.
#[derive(Debug, Clone, Copy, Serialize)]
struct IncRun {
    median_us: f64,
    /// Processor time of all stations for one allreduce.
    cpu_us: f64,
    /// Bytes that rank 0 sent and received, for one allreduce.
    bytes: [f64; 2],
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum IncProgram {
    Ours,
    OursWithLoss(u32),
    OursAtNode,
    OpenMpi,
}

#[derive(Debug, Clone, Copy)]
struct IncLine {
    ranks: u8,
    elements: u32,
    times: u32,
}

struct IncBench<'a> {
    plan: &'a IncBenchPlan,
    bin: PathBuf,
    folder: PathBuf,
}

/// Measures all sizes with all numbers of ranks.
pub(crate) fn run(plan: &IncBenchPlan) -> TaskResult {
    for program in [MPI, MPI_COMPILER, "nsenter"] {
        if !ucx::is_installed(program) {
            return Err(Failure(format!(
                "{program} is not installed: Debian's packages openmpi-bin, libopenmpi-dev and util-linux have what is needed"
            )));
        }
    }
    say("Building for release...");
    let bin = cargo::build_release(&["inc-controller", "inc-tools"])?;
    let folder = cargo::target_dir()?.join("bench-inc");
    fs::create_dir_all(&folder).map_err(Failure::system("making a folder"))?;
    let bench = IncBench { plan, bin, folder };
    bench.compile()?;
    let mut rows = Vec::new();
    for &ranks in &plan.ranks {
        rows.extend(bench.measure(ranks)?);
    }
    say_part(&format!("\r{:60}\r", ""));
    say(&table(&rows).to_string());
    say(&format!(
        "{} rounds in turn; medians of medians (smallest to largest), microseconds; bytes of rank 0 by its interface's \
         counters, sent/received, in lengths of the vector; processor time of all stations. The switch is {}.",
        plan.rounds,
        if plan.members {
            "in a rank's own program"
        } else {
            "one process in a namespace of its own"
        },
    ));
    let file = Path::new("bench-results").join("inc.json");
    fs::create_dir_all("bench-results").map_err(Failure::system("making bench-results"))?;
    let rows: Vec<_> = rows.iter().map(IncRow::json).collect();
    fs::write(&file, format!("{:#}\n", json!(rows))).map_err(Failure::system("writing the results"))
}

impl IncBench<'_> {
    fn compile(&self) -> TaskResult {
        let source = self.folder.join("allreduce.c");
        fs::write(&source, MPI_PROGRAM).map_err(Failure::system("writing the MPI program"))?;
        let mut command = Command::new(MPI_COMPILER);
        command.arg("-O2").arg("-o").arg(self.folder.join("allreduce")).arg(&source);
        output(&mut command).map(drop)
    }

    fn measure(&self, ranks: u8) -> Result<Vec<IncRow>, Failure> {
        let places = Places::new(FIRST_RANK + ranks);
        let Places::Namespaces(lab) = &places else {
            return Err(Failure("it compares in network namespaces alone: run it as root".into()));
        };
        let map = self.folder.join("map.yaml");
        fs::write(&map, topology(&places, ranks)).map_err(Failure::system("writing the map"))?;
        let controller = places.address(CONTROLLER).to_string();
        let mut stations = Stations::default();
        let mut command = Command::new(self.bin.join("inc-controller"));
        command.args(["--listen", &controller, "--insecure", "--silence", "5000", "--topology"]);
        start(&places, &mut stations, CONTROLLER, command.arg(&map))?;
        if !self.plan.members {
            let mut command = Command::new(self.bin.join("inc-switch"));
            command.args([&controller, "--address", &places.address(SWITCH).to_string()]);
            command.args(&self.plan.switch_args);
            start(&places, &mut stations, SWITCH, &mut command)?;
        }
        let is_wanted = |(elements, _): &(u32, u32)| 4 * elements <= self.plan.bytes;
        let lines = SIZES.into_iter().filter(is_wanted);
        let lines = lines.map(|(elements, times)| IncLine { ranks, elements, times });
        let loss = self.plan.loss.map(IncProgram::OursWithLoss);
        let further: Vec<_> =
            self.plan.node.then_some(IncProgram::OursAtNode).into_iter().chain(loss).collect();
        let mut rows: Vec<_> = lines.map(|line| IncRow { line, programs: Vec::new() }).collect();
        for row in &mut rows {
            let all = [IncProgram::Ours, IncProgram::OpenMpi].into_iter().chain(further.clone());
            row.programs = all.map(|program| (program, Vec::new())).collect();
        }
        for round in 1..=self.plan.rounds {
            for row in &mut rows {
                let IncLine { elements, .. } = row.line;
                say_part(&format!("\r{ranks} ranks, round {round}, {:10} bytes ", 4 * elements));
                for (program, runs) in &mut row.programs {
                    let before = counters(lab.host(FIRST_RANK.into()))?;
                    let mut run = match program {
                        IncProgram::OpenMpi => self.open_mpi(lab, row.line)?,
                        IncProgram::Ours => self.ours(&places, &stations, row.line, &[])?,
                        IncProgram::OursAtNode => {
                            self.ours(&places, &stations, row.line, &["--node"])?
                        }
                        IncProgram::OursWithLoss(ppm) => {
                            let loss = ppm.to_string();
                            self.ours(&places, &stations, row.line, &["--loss", &loss])?
                        }
                    };
                    let after = counters(lab.host(FIRST_RANK.into()))?;
                    for (bytes, (after, before)) in
                        run.bytes.iter_mut().zip(iter::zip(after, before))
                    {
                        *bytes = (after - before) / f64::from(row.line.times);
                    }
                    runs.push(run);
                }
            }
        }
        Ok(rows)
    }

    fn ours(
        &self,
        places: &Places,
        stations: &Stations,
        line: IncLine,
        arguments: &[&str],
    ) -> Result<IncRun, Failure> {
        let before = switch_cpu(stations)?;
        let hosts = (0..line.ranks).map(|rank| {
            let mut command = Command::new(self.bin.join("inc-host"));
            let own = places.address(FIRST_RANK + rank).to_string();
            let controller = places.address(CONTROLLER).to_string();
            command.args([line.ranks.to_string(), controller, rank.to_string()]);
            command.args(["--address", &own, "--path-mtu", "4096", "--json"]);
            command.args(["--count", &line.elements.to_string(), "--times"]);
            command.args([&line.times.to_string(), "--loss-seed", &rank.to_string()]);
            command.args(arguments).args(&self.plan.host_args);
            places.start(FIRST_RANK + rank, &mut command)
        });
        let hosts: Vec<_> = hosts.collect::<Result<_, _>>()?;
        let results: Vec<Value> = hosts.into_iter().map(result).collect::<Result<_, _>>()?;
        let number = |of: &Value, key: &str| {
            of.pointer(&format!("/results/0/{key}")).and_then(Value::as_f64).unwrap_or(f64::NAN)
        };
        let by = results[0].pointer("/results/0/reduced_by").and_then(Value::as_str);
        let wanted = if self.plan.members { "members" } else { "switches" };
        if by != Some(wanted) {
            return Err(Failure(format!("reduced by {by:?}, not by {wanted}")));
        }
        let of_hosts: f64 = results.iter().map(|of| number(of, "cpu_us")).sum();
        let cpu_us = of_hosts + 1e6 * (switch_cpu(stations)? - before);
        let cpu_us = cpu_us / f64::from(line.times);
        Ok(IncRun { median_us: number(&results[0], "median_us"), cpu_us, bytes: [0.0; 2] })
    }

    fn open_mpi(&self, lab: &Lab, line: IncLine) -> Result<IncRun, Failure> {
        // Each rank enters its namespace before it starts; mpirun stays at the controller's.
        let rank = |rank: u8| {
            let host = lab.host((FIRST_RANK + rank).into());
            format!("  {rank}) net={} ip={} ;;\n", host.path(), host.address())
        };
        let cases: String = (0..line.ranks).map(rank).collect();
        let program = self.folder.join("allreduce");
        let script = format!(
            "#!/bin/sh\ncase $OMPI_COMM_WORLD_RANK in\n{cases}esac\n\
             export OMPI_MCA_btl_tcp_if_include=$ip/24\nexec nsenter --net=$net {} {} {}\n",
            program.display(),
            line.elements,
            line.times
        );
        let enter = self.folder.join("enter.sh");
        fs::write(&enter, script).map_err(Failure::system("writing a script"))?;
        fs::set_permissions(&enter, fs::Permissions::from_mode(0o755))
            .map_err(Failure::system("writing a script"))?;
        let own = format!("{}/24", lab.host(CONTROLLER.into()).address());
        let mut command = Command::new(MPI);
        command.args(["--allow-run-as-root", "--oversubscribe", "-np", &line.ranks.to_string()]);
        for (key, value) in [
            ("pml", "ob1"),
            ("btl", "tcp,self"),
            ("mpi_yield_when_idle", "1"),
            ("oob_tcp_if_include", &own),
        ] {
            command.args(["--mca", key, value]);
        }
        command.env("PMIX_MCA_ptl_tcp_if_include", &own).env("PMIX_MCA_gds", "hash").arg(enter);
        let text = lab.host(CONTROLLER.into()).run(|| output(&mut command))?;
        let numbers: Vec<f64> = text.split_whitespace().filter_map(|n| n.parse().ok()).collect();
        let &[median_us, cpu_us] = &numbers[..] else {
            return Err(Failure(format!("{MPI} wrote: {text}")));
        };
        Ok(IncRun { median_us, cpu_us, bytes: [0.0; 2] })
    }
}

/// A size with a number of ranks.
struct IncRow {
    line: IncLine,
    programs: Vec<(IncProgram, Vec<IncRun>)>,
}

impl IncRow {
    fn runs(&self, of: impl Fn(IncProgram) -> bool) -> Option<&[IncRun]> {
        let found = self.programs.iter().find(|(program, _)| of(*program));
        found.map(|(_, runs)| &runs[..])
    }

    fn json(&self) -> Value {
        let IncLine { ranks, elements, times } = self.line;
        let programs: serde_json::Map<_, _> = self
            .programs
            .iter()
            .map(|(program, runs)| (format!("{program:?}"), json!(runs)))
            .collect();
        json!({ "ranks": ranks, "bytes": 4 * elements, "times": times, "programs": programs })
    }
}

fn median(runs: &[IncRun]) -> f64 {
    middle(&runs.iter().map(|run| run.median_us).collect::<Vec<_>>()).unwrap_or(f64::NAN)
}

fn table(rows: &[IncRow]) -> Table {
    let mut table = Table::new();
    table.load_style(UTF8_FULL_CONDENSED);
    table.set_header([
        "ranks",
        "bytes",
        "ours",
        "Open MPI",
        "ratio",
        "at a node",
        "with loss",
        "bytes of ours",
        "of MPI",
        "s/GB ours",
        "MPI",
    ]);
    let shown = |runs: Option<&[IncRun]>| {
        let Some(runs) = runs else { return String::new() };
        let all = || runs.iter().map(|run| run.median_us);
        let (least, most) = (all().fold(f64::MAX, f64::min), all().fold(0.0, f64::max));
        format!("{:.1} ({least:.1} to {most:.1})", median(runs))
    };
    for row in rows {
        let len = 4 * row.line.elements;
        let ours = row.runs(|of| of == IncProgram::Ours);
        let mpi = row.runs(|of| of == IncProgram::OpenMpi);
        let at_node = row.runs(|of| of == IncProgram::OursAtNode);
        let lossy = row.runs(|of| matches!(of, IncProgram::OursWithLoss(_)));
        let ratio = ours.zip(mpi).map(|(ours, mpi)| median(ours) / median(mpi));
        let bytes = |runs: Option<&[IncRun]>| {
            let Some(runs) = runs.filter(|_| len >= BYTES_FROM) else { return String::new() };
            let part = |at: usize| {
                let all: Vec<_> = runs.iter().map(|run| run.bytes[at] / f64::from(len)).collect();
                middle(&all).unwrap_or(f64::NAN)
            };
            format!("{:.3}/{:.3}", part(0), part(1))
        };
        let cpu = |runs: Option<&[IncRun]>| {
            let all: Vec<_> = runs.into_iter().flatten().map(|run| run.cpu_us).collect();
            // Of all vectors together.
            let gigabytes = f64::from(len) * f64::from(row.line.ranks) / 1e9;
            middle(&all).map_or(String::new(), |cpu| format!("{:.2}", cpu / 1e6 / gigabytes))
        };
        let number = |text: String| Cell::new(text).set_alignment(CellAlignment::Right);
        table.add_row([
            number(row.line.ranks.to_string()),
            number(len.to_string()),
            number(shown(ours)),
            number(shown(mpi)),
            number(ratio.map_or(String::new(), |ratio| format!("{ratio:.2}"))),
            number(shown(at_node)),
            number(shown(lossy)),
            number(bytes(ours)),
            number(bytes(mpi)),
            number(cpu(ours)),
            number(cpu(mpi)),
        ]);
    }
    table
}

/// One switch with all ranks below.
fn topology(places: &Places, ranks: u8) -> String {
    let mut nodes = String::from("nodes:\n");
    let mut links = String::from("links:\n");
    let mut node = |name: &str, kind: &str, station: u8| {
        let address = places.address(station);
        nodes += &format!("  - {{name: {name}, kind: {kind}, address: \"{address}\"}}\n");
    };
    node("switch", "switch", SWITCH);
    for rank in 0..ranks {
        node(&format!("host{rank}"), "host", FIRST_RANK + rank);
        links += &format!("  - ends: [switch, host{rank}]\n");
    }
    nodes + &links
}

/// Bytes that a station's interface sent and received.
fn counters(host: &Host) -> Result<[f64; 2], Failure> {
    let mut command = Command::new("ip");
    let text = host.run(|| output(command.args(["-s", "-j", "link", "show"])))?;
    let links: Vec<Value> = serde_json::from_str(&text)
        .map_err(|error| Failure(format!("ip wrote no JSON: {error}")))?;
    let is_loopback = |link: &&Value| link["link_type"] == "loopback";
    let own = links.iter().find(|link| !is_loopback(link));
    let own = own.ok_or_else(|| Failure("a namespace has no interface".into()))?;
    let of = |way: &str| {
        let bytes = own.pointer(&format!("/stats64/{way}/bytes")).and_then(Value::as_f64);
        bytes.ok_or_else(|| Failure("ip wrote no counters".into()))
    };
    Ok([of("tx")?, of("rx")?])
}

/// Seconds of processor time of the switch so far.
fn switch_cpu(stations: &Stations) -> Result<f64, Failure> {
    let Some(switch) = stations.0.get(usize::from(SWITCH)) else { return Ok(0.0) };
    let text = fs::read_to_string(format!("/proc/{}/stat", switch.id()))
        .map_err(Failure::system("reading the switch's processor time"))?;
    // Behind the name in parentheses: fields 3 and on; 14 and 15 are user and system time in ticks of 10 ms.
    let fields = text.rsplit_once(')').map_or("", |(_, rest)| rest).split_whitespace();
    let ticks: f64 = fields.skip(11).take(2).filter_map(|ticks| ticks.parse::<f64>().ok()).sum();
    Ok(ticks / 100.0)
}
