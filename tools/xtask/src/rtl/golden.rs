//! The golden vectors, and wrong input, on Icarus Verilog.
//!
//! Messages of a case become beats in the file that the test bench reads; the packets that it prints are compared.
//! Wrong input is counted, its message is dropped, the messages around it pass. Must not know how a design works.

use std::{
    fmt::Write,
    fs,
    path::{Path, PathBuf},
    process::Command,
    time::Duration,
};

use serde::Deserialize;

use super::design::{self, Parameters, Scheme};
use crate::{
    cargo, child,
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
    fn accepted(&self, run: &SeenRun, beats: &[Beat], packet: &SeenPacket) -> Result<u64, Failure> {
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
    pub(super) fn run(&self, parameters: &Parameters, beats: &[Beat]) -> Result<SeenRun, Failure> {
        let program = self.work.join(parameters.name()).with_extension("vvp");
        if !program.is_file() {
            let mut command = Command::new("iverilog");
            command.args(["-g2012", "-Wall", "-s", "urma_golden", "-o"]).arg(&program);
            command.arg(format!("-DENGINE={}", parameters.scheme.top()));
            let set =
                parameters.values().map(|(name, value)| format!("-Purma_golden.{name}={value}"));
            command.args(set).args(&self.sources);
            let printed = of(command, &self.work)?;
            if !printed.is_empty() {
                return Err(Failure(printed));
            }
        }
        let file = self.work.join("beats");
        write(&file, beats, parameters.width)?;
        let mut command = Command::new("vvp");
        command.arg("-n").arg(&program).arg(format!("+beats={}", file.display()));
        parse(&of(command, &self.work)?)
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

/// Time that one call of a tool may take.
const BOUND: Duration = Duration::from_secs(120);

/// Everything that a run gave.
#[derive(Debug, Default)]
pub(super) struct SeenRun {
    /// Cycles of the accepted beats, in order.
    pub(super) accepted: Vec<u64>,
    /// Packets in the order of their headers.
    pub(super) packets: Vec<SeenPacket>,
    /// Cycles until nothing happened any more.
    pub(super) cycles: u64,
    /// Input errors that the design counted.
    pub(super) errors: u64,
    /// Messages beyond the memory that the design counted.
    pub(super) too_long: u64,
}

/// A packet on the output.
#[derive(Debug)]
pub(super) struct SeenPacket {
    /// Name of its message.
    pub(super) tag: u32,
    /// Number of packets before it in the message.
    pub(super) index: u32,
    /// Length in bytes that the header says.
    pub(super) len: usize,
    /// Whether it is the first of its message.
    pub(super) first: bool,
    /// Whether it is the last of its message.
    pub(super) last: bool,
    /// Cycle of the header.
    pub(super) header: u64,
    /// Cycle of the last beat.
    pub(super) end: u64,
    /// Payload bytes of its beats.
    pub(super) bytes: Vec<u8>,
    /// Lengths of its beats, each with the flag of the last one.
    beats: Vec<(usize, bool)>,
}

impl SeenPacket {
    /// Whether its beats fit its header: all full but the last, which alone has the flag.
    pub(super) fn check(&self, width: u32) -> TaskResult {
        let width = width as usize;
        let count = self.len.div_ceil(width);
        let beat = |at: usize| (width.min(self.len - at * width), at + 1 == count);
        let right: Vec<(usize, bool)> = (0..count).map(beat).collect();
        if self.beats == right {
            return Ok(());
        }
        Err(Failure(format!("beats of {} bytes: {:?}, not {right:?}", self.len, self.beats)))
    }
}

/// Runs `command` below `work`; its whole output.
pub(super) fn of(command: Command, work: &Path) -> Result<String, Failure> {
    let name = format!("{command:?}");
    let ended = child::run(command, &work.join("output.log"), BOUND)?;
    if ended.is_success() {
        return Ok(ended.text);
    }
    Err(Failure(format!("{name} failed: {}", ended.text)))
}

/// Reads the lines of a run, which must have come to its end.
pub(super) fn parse(text: &str) -> Result<SeenRun, Failure> {
    let mut run = SeenRun::default();
    let mut has_ended = false;
    for line in text.lines() {
        has_ended = line.starts_with("E ");
        run.line(line).ok_or_else(|| Failure(format!("a line that means nothing: {line}")))?;
    }
    if has_ended { Ok(run) } else { Err(Failure("the run has no end".to_owned())) }
}

impl SeenRun {
    fn line(&mut self, line: &str) -> Option<()> {
        let fields: Vec<&str> = line.split(' ').collect();
        match fields[..] {
            ["A", cycle, _] => self.accepted.push(cycle.parse().ok()?),
            ["H", cycle, tag, index, len, first, last] => self.packets.push(SeenPacket {
                tag: tag.parse().ok()?,
                index: index.parse().ok()?,
                len: len.parse().ok()?,
                first: first == "1",
                last: last == "1",
                header: cycle.parse().ok()?,
                end: cycle.parse().ok()?,
                bytes: Vec::new(),
                beats: Vec::new(),
            }),
            ["B", cycle, len, end, data] => {
                let packet = self.packets.last_mut()?;
                let len: usize = len.parse().ok()?;
                // Byte 0 is the last pair of digits.
                for at in 1..=len {
                    let pair = data.get(data.len().checked_sub(2 * at)?..)?.get(..2)?;
                    packet.bytes.push(u8::from_str_radix(pair, 16).ok()?);
                }
                packet.beats.push((len, end == "1"));
                packet.end = cycle.parse().ok()?;
            }
            ["E", cycles, errors, too_long] => {
                // The last thing of all happened in the cycle before.
                self.cycles = cycles.parse::<u64>().ok()?;
                self.errors = errors.parse().ok()?;
                self.too_long = too_long.parse().ok()?;
            }
            _ => return None,
        }
        Some(())
    }
}

/// Value of the bytes of a beat beyond its length, which must reach no packet.
const BEYOND: u8 = 0xAA;

/// A message in pieces of host memory.
#[derive(Debug, Deserialize)]
pub(super) struct GoldenMessage {
    /// Path MTU in bytes.
    pub(super) mtu: usize,
    pieces: Vec<GoldenPiece>,
}

#[derive(Debug, Deserialize)]
struct GoldenPiece {
    offset: usize,
    len: usize,
}

impl GoldenMessage {
    /// A message in one piece of `len` bytes.
    pub(super) fn of(mtu: usize, len: usize) -> Self {
        Self { mtu, pieces: vec![GoldenPiece { offset: 0, len }] }
    }
}

/// A beat that is offered.
#[derive(Debug)]
pub(super) struct Beat {
    /// Number of its message.
    pub(super) tag: u32,
    /// Whether it is the first of its message.
    pub(super) first: bool,
    /// Whether it is the last of its message.
    pub(super) last: bool,
    /// Binary logarithm of the path MTU.
    pub(super) mtu: u32,
    /// Bytes that it carries, at most one beat.
    pub(super) bytes: Vec<u8>,
    /// Bytes that it says beyond those.
    pub(super) len_over: usize,
}

/// Beats of `messages`, as DMA delivers them in beats of `width` bytes.
pub(super) fn beats_of(messages: &[GoldenMessage], width: u32) -> Result<Vec<Beat>, Failure> {
    let mut beats = Vec::new();
    let width = width as usize;
    for (tag, message) in (0_u32..).zip(messages) {
        let mtu = message.mtu.checked_ilog2();
        let mtu = mtu.ok_or_else(|| Failure(format!("message {tag}: an MTU of 0 bytes")))?;
        let (mut chunks, mut done) = (Vec::new(), 0);
        for piece in &message.pieces {
            let (mut at, mut rest) = (piece.offset, piece.len);
            while rest > 0 {
                let len = rest.min(width - at % width);
                chunks.push((done..done + len).map(|byte| payload(tag, byte)).collect());
                (at, rest, done) = (at + len, rest - len, done + len);
            }
        }
        if chunks.is_empty() {
            chunks.push(Vec::new());
        }
        let count = chunks.len();
        let beat = |(at, bytes)| Beat {
            tag,
            first: at == 0,
            last: at + 1 == count,
            mtu,
            bytes,
            len_over: 0,
        };
        beats.extend(chunks.into_iter().enumerate().map(beat));
    }
    Ok(beats)
}

/// Byte `at` of message `tag`, as the golden file defines it.
pub(super) fn payload(tag: u32, at: usize) -> u8 {
    let sum = 131 * tag as usize + 7 * at + (at >> 8);
    sum.to_le_bytes()[0]
}

/// Writes the file of `beats` that the test bench reads.
pub(super) fn write(path: &Path, beats: &[Beat], width: u32) -> TaskResult {
    let mut text = String::new();
    for beat in beats {
        let (first, last) = (u8::from(beat.first), u8::from(beat.last));
        // Writing to a string does not fail.
        let _ = write!(
            text,
            "{:x} {first} {last} {:x} {:x} ",
            beat.bytes.len() + beat.len_over,
            beat.tag,
            beat.mtu
        );
        for at in (0..width as usize).rev() {
            let _ = write!(text, "{:02x}", beat.bytes.get(at).unwrap_or(&BEYOND));
        }
        text.push('\n');
    }
    fs::write(path, text).map_err(Failure::system("writing beats"))
}

/// Beginning of the names of these checks.
pub(super) const INPUTS_PREFIX: &str = "wrong input";
/// Bytes per beat of all cases.
const WIDTH: u32 = 64;
/// Beats of memory of all cases.
const DEPTH: u32 = 64;
/// Path MTU of all messages.
const MTU: usize = 256;
/// Bytes of the messages before and after the wrong one.
const AROUND: usize = 300;
/// Bytes of the wrong message: ten beats.
const WRONG: usize = 600;
/// The beat of it that is wrong in most cases: a packet and two beats are stored by then.
const LATE: usize = 6;
/// Bytes beyond the memory of schemes 1 and 2.
const TOO_LONG: usize = 5000;

/// What is wrong: a name, the number of the beat, the change of that beat.
type WrongBeat = (&'static str, usize, fn(&mut Beat));

const CASES: [WrongBeat; 8] = [
    ("a beat without bytes", LATE, |beat| beat.bytes.clear()),
    ("a length above the width", LATE, |beat| beat.len_over = 1),
    ("another MTU", LATE, |beat| beat.mtu = 9),
    ("another tag", LATE, |beat| beat.tag = 7),
    ("an MTU out of range later", LATE, |beat| beat.mtu = 14),
    ("an MTU out of range at first", 0, |beat| beat.mtu = 7),
    ("a message without its first beat", 0, |beat| beat.first = false),
    ("a first beat inside of a message", LATE, |beat| beat.first = true),
];

/// Those cases of one scheme whose name begins with `begin`, by name.
pub(super) fn check(
    simulator: &Simulator,
    scheme: Scheme,
    begin: &str,
) -> Vec<(String, TaskResult)> {
    let named = |name: &str| format!("{INPUTS_PREFIX}, {}: {name}", scheme.name());
    let all = CASES.iter().map(|case| (named(case.0), Some(case)));
    let all = all.chain([(named("a message beyond the memory"), None)]);
    let chosen = all.filter(|(name, _)| name.starts_with(begin));
    let found = |case: Option<&WrongBeat>| match case {
        Some(case) => wrong(simulator, scheme, case),
        None => beyond(simulator, scheme),
    };
    chosen.map(|(name, case)| (name, found(case))).collect()
}

fn wrong(simulator: &Simulator, scheme: Scheme, (_, at, change): &WrongBeat) -> TaskResult {
    let mut beats = beats_of(&messages(WRONG), WIDTH)?;
    let first = beats.iter().position(|beat| beat.tag == 1).unwrap_or(0);
    let beat = beats.get_mut(first + at);
    change(beat.ok_or_else(|| Failure(format!("the message has no beat {at}")))?);
    let run = simulator.run(&parameters(scheme), &beats)?;
    equal("input errors and messages too long", &(1, 0), &(run.errors, run.too_long))?;
    // Scheme 3 gives packets of a message that is not complete; those stay.
    let complete = if scheme == Scheme::Fifo { at * WIDTH as usize / MTU } else { 0 };
    packets(&run, &[(0, AROUND), (1, complete * MTU), (2, AROUND)], complete > 0)
}

fn beyond(simulator: &Simulator, scheme: Scheme) -> TaskResult {
    let beats = beats_of(&messages(TOO_LONG), WIDTH)?;
    let run = simulator.run(&parameters(scheme), &beats)?;
    let (too_long, bytes) = if scheme == Scheme::Fifo { (0, TOO_LONG) } else { (1, 0) };
    equal("input errors and messages too long", &(0, too_long), &(run.errors, run.too_long))?;
    packets(&run, &[(0, AROUND), (1, bytes), (2, AROUND)], false)
}

/// Whether `run` has exactly the packets of messages with these tags and lengths. If `is_cut`, message 1
/// has no last packet.
fn packets(run: &SeenRun, right: &[(u32, usize)], is_cut: bool) -> TaskResult {
    let mut found = run.packets.iter();
    for (tag, bytes) in right {
        for (index, at) in (0_u32..).zip((0..*bytes).step_by(MTU)) {
            let packet = found.next();
            let packet =
                packet.ok_or_else(|| Failure(format!("message {tag}: packet {index} missing")))?;
            let end = bytes.min(&(at + MTU)).to_owned();
            let last = end == *bytes && !(*tag == 1 && is_cut);
            let right = (*tag, index, end - at, index == 0, last);
            let header = (packet.tag, packet.index, packet.len, packet.first, packet.last);
            equal("header", &right, &header)?;
            packet.check(WIDTH)?;
            let payload: Vec<u8> = (at..end).map(|byte| payload(*tag, byte)).collect();
            equal("payload", &payload, &packet.bytes)?;
        }
    }
    equal("packets beyond the right ones", &0, &found.count())
}

fn messages(wrong: usize) -> [GoldenMessage; 3] {
    [GoldenMessage::of(MTU, AROUND), GoldenMessage::of(MTU, wrong), GoldenMessage::of(MTU, AROUND)]
}

const fn parameters(scheme: Scheme) -> Parameters {
    Parameters { scheme, width: WIDTH, depth: DEPTH, entries: 8, hand: 3, stop: 0 }
}

#[cfg(test)]
mod tests {
    use super::*;

    const RUN: &str = "A 0 7\nH 1 7 0 3 1 1\nB 2 3 1 aa030201\nE 3 0 0\n";

    #[test]
    fn a_beat_begins_with_the_last_digits() {
        let run = parse(RUN).unwrap();
        let packet = &run.packets[0];
        assert_eq!((packet.header, packet.end, &packet.bytes[..]), (1, 2, &[1, 2, 3][..]));
        assert_eq!(packet.check(4), Ok(()));
    }

    #[test]
    fn beats_that_do_not_fit_the_header_are_refused() {
        for wrong in [RUN.replace("B 2 3", "B 2 2"), RUN.replace("3 1 aa", "3 0 aa")] {
            assert!(parse(&wrong).unwrap().packets[0].check(4).is_err(), "{wrong}");
        }
    }

    #[test]
    fn a_run_without_its_end_or_with_unknown_bits_is_refused() {
        assert!(parse(RUN.trim_end_matches("E 3 0 0\n")).is_err());
        assert!(parse(&RUN.replace("0302", "xx02")).is_err());
    }
}
