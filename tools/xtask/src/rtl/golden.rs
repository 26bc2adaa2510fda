//! The golden vectors on Icarus Verilog.
//!
//! *Owns*: the beats of a case, the comparison. *Takes*: a folder of designs, the golden file. *Gives*: one
//! check per case. *Must not*: know how a design works.

use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
};

use serde::Deserialize;

use super::{
    design::{self, Parameters, Scheme},
    output::{self, SeenPacket, SeenRun},
    stimulus::{self, GoldenMessage, beats_of},
};
use crate::{
    cargo,
    say::{Failure, TaskResult},
};

/// The golden file, from the workspace's folder.
const GOLDEN: &str = "lab/splice/tests/golden/packet_engine.json";
/// Beginning of the names of these checks.
pub(super) const PREFIX: &str = "golden";
/// Beats of memory for the functional cases: a ring that wraps at no power of two, banks that hold the longest message.
const DEPTHS: [(Scheme, u32); 3] =
    [(Scheme::Fifo, 128), (Scheme::Pingpong, 256), (Scheme::Single, 100)];

/// The parts of the golden file that a simulator has time for.
#[derive(Debug, Deserialize)]
pub(super) struct GoldenFile {
    functional: Vec<GoldenBytes>,
    schedules: Vec<GoldenSchedule>,
}

#[derive(Debug, Deserialize)]
struct GoldenBytes {
    name: String,
    beat_bytes: u32,
    messages: Vec<GoldenMessage>,
    beats_in: usize,
    packets: Vec<GoldenPacket>,
}

#[derive(Debug, Deserialize)]
struct GoldenPacket {
    message: u32,
    len: usize,
    first: bool,
    last: bool,
    crc32: String,
}

#[derive(Debug, Deserialize)]
struct GoldenSchedule {
    name: String,
    scheme: Scheme,
    config: ScheduleConfig,
    messages: Vec<GoldenMessage>,
    #[serde(default)]
    cycles: u64,
    #[serde(default)]
    schedule: Vec<[u64; 7]>,
    deadlock: Option<Deadlock>,
}

#[derive(Debug, Deserialize)]
struct ScheduleConfig {
    beat_bytes: u32,
    data_beats: u32,
    sideband_entries: u32,
    handover: u32,
}

#[derive(Debug, Deserialize)]
struct Deadlock {
    last_progress: u64,
    delivered: usize,
}

/// Path of the golden file.
pub(super) fn path() -> PathBuf {
    cargo::root().join(GOLDEN)
}

/// A simulator with the designs of one folder.
#[derive(Debug)]
pub(super) struct Simulator {
    sources: Vec<PathBuf>,
    work: PathBuf,
}

impl GoldenFile {
    /// Reads the golden file.
    pub(super) fn read() -> Result<Self, Failure> {
        let text = fs::read_to_string(path());
        let text = text.map_err(Failure::system(GOLDEN))?;
        serde_json::from_str(&text).map_err(|error| Failure(format!("{GOLDEN}: {error}")))
    }

    /// Those cases of one scheme whose name begins with `begin`, by name.
    pub(super) fn check(
        &self,
        simulator: &Simulator,
        scheme: Scheme,
        begin: &str,
    ) -> Vec<(String, TaskResult)> {
        let named = |what: &str, name: &str| format!("{PREFIX} {what}, {}: {name}", scheme.name());
        let bytes = self.functional.iter().map(|case| (named("bytes", &case.name), case));
        let bytes = bytes.filter(|(name, _)| name.starts_with(begin));
        let bytes = bytes.map(|(name, case)| (name, case.check(simulator, scheme)));
        let cycles = self.schedules.iter().filter(|case| case.scheme == scheme);
        let cycles = cycles.map(|case| (named("cycles", &case.name), case));
        let cycles = cycles.filter(|(name, _)| name.starts_with(begin));
        bytes.chain(cycles.map(|(name, case)| (name, case.check(simulator)))).collect()
    }
}

impl GoldenBytes {
    fn check(&self, simulator: &Simulator, scheme: Scheme) -> TaskResult {
        let depth =
            DEPTHS.into_iter().find(|(of, _)| *of == scheme).map_or(128, |(_, depth)| depth);
        let width = self.beat_bytes;
        let parameters = Parameters { scheme, width, depth, entries: 8, hand: 3, stop: 0 };
        let beats = beats_of(&self.messages, width)?;
        equal("beats in", &self.beats_in, &beats.len())?;
        let run = simulator.run(&parameters, &beats)?;
        let mut found = run.packets.iter();
        for (number, golden) in self.packets.iter().enumerate() {
            let packet =
                found.next().ok_or_else(|| Failure(format!("packet {number} is missing")))?;
            let what = |name: &str| format!("packet {number}: {name}");
            equal(&what("tag"), &golden.message, &packet.tag)?;
            equal(&what("length"), &golden.len, &packet.len)?;
            equal(&what("first"), &golden.first, &packet.first)?;
            equal(&what("last"), &golden.last, &packet.last)?;
            packet
                .check(width)
                .map_err(|Failure(why)| Failure(format!("packet {number}: {why}")))?;
            equal(
                &what("CRC-32"),
                &golden.crc32,
                &format!("{:08x}", crc32fast::hash(&packet.bytes)),
            )?;
        }
        equal("packets", &self.packets.len(), &run.packets.len())?;
        equal("input errors and messages too long", &(0, 0), &(run.errors, run.too_long))
    }
}

impl GoldenSchedule {
    fn check(&self, simulator: &Simulator) -> TaskResult {
        let config = &self.config;
        let parameters = Parameters {
            scheme: self.scheme,
            width: config.beat_bytes,
            depth: config.data_beats,
            entries: config.sideband_entries,
            hand: config.handover,
            stop: 1,
        };
        let beats = beats_of(&self.messages, parameters.width)?;
        let run = simulator.run(&parameters, &beats)?;
        if let Some(deadlock) = &self.deadlock {
            equal("first cycle without progress", &deadlock.last_progress, &run.cycles)?;
            return equal("packets delivered", &deadlock.delivered, &run.packets.len());
        }
        for (number, golden) in self.schedule.iter().enumerate() {
            let packet = run.packets.get(number);
            let packet = packet.ok_or_else(|| Failure(format!("packet {number} is missing")))?;
            let accepted = self.accepted(&run, &beats, packet)?;
            equal(&format!("packet {number}"), golden, &row(packet, accepted))?;
        }
        equal("packets", &self.schedule.len(), &run.packets.len())?;
        equal("cycles", &self.cycles, &run.cycles)
    }

    /// The cycle in which the packet's first byte was accepted.
    fn accepted(
        &self,
        run: &SeenRun,
        beats: &[stimulus::Beat],
        packet: &SeenPacket,
    ) -> Result<u64, Failure> {
        let mtu = usize::try_from(packet.tag).ok().and_then(|tag| self.messages.get(tag));
        let offset = mtu.map_or(0, |message| message.mtu) * packet.index as usize;
        let mut seen = 0;
        for (beat, cycle) in beats.iter().zip(&run.accepted) {
            if beat.tag == packet.tag {
                seen += beat.bytes.len();
                if seen > offset || beat.last {
                    return Ok(*cycle);
                }
            }
        }
        Err(Failure(format!("byte {offset} of message {} was never accepted", packet.tag)))
    }
}

impl Simulator {
    /// With the designs of `folder`; builds below `work`.
    pub(super) fn new(folder: &Path, work: PathBuf) -> Result<Self, Failure> {
        let mut sources = design::sources(folder)?;
        sources.push(design::folder().join("test/urma_golden.sv"));
        Ok(Self { sources, work })
    }

    /// Runs the design with `parameters`, built if it is not there yet.
    pub(super) fn run(
        &self,
        parameters: &Parameters,
        beats: &[stimulus::Beat],
    ) -> Result<SeenRun, Failure> {
        let program = self.work.join(parameters.name()).with_extension("vvp");
        if !program.is_file() {
            let mut command = Command::new("iverilog");
            command.args(["-g2012", "-Wall", "-s", "urma_golden", "-o"]).arg(&program);
            command.arg(format!("-DENGINE={}", parameters.scheme.top()));
            let set =
                parameters.values().map(|(name, value)| format!("-Purma_golden.{name}={value}"));
            command.args(set).args(&self.sources);
            let printed = output::of(command, &self.work)?;
            if !printed.is_empty() {
                return Err(Failure(printed));
            }
        }
        let file = self.work.join("beats");
        stimulus::write(&file, beats, parameters.width)?;
        let mut command = Command::new("vvp");
        command.arg("-n").arg(&program).arg(format!("+beats={}", file.display()));
        output::parse(&output::of(command, &self.work)?)
    }
}

fn row(packet: &SeenPacket, accepted: u64) -> [u64; 7] {
    let (first, last) = (u64::from(packet.first), u64::from(packet.last));
    let len = packet.len as u64;
    [u64::from(packet.tag), len, first, last, accepted, packet.header, packet.end]
}

/// Fails with both values where they differ.
pub(super) fn equal<T: PartialEq + std::fmt::Debug>(
    what: &str,
    golden: &T,
    found: &T,
) -> TaskResult {
    if golden == found {
        return Ok(());
    }
    Err(Failure(format!("{what}: right {golden:?}, design {found:?}")))
}
