//! A random run of one engine, a record per cycle on stdout: what a design of the same scheme is compared with.
//!
//! - owns: random messages, the record. takes: scheme, sizes, a seed, a number of input beats. gives: records.
//! - must not: know a simulator.
//!
//! Each record has 48 bytes, all numbers little-endian:
//!
//! | offset | type | what |
//! |---|---|---|
//! | 0 | u8 | inputs: bit 0 a beat is offered, 1 `last`, 2 `out_ready`, 3 `first` (of its message) |
//! | 1 | u8 | log2 of the MTU of the offered beat |
//! | 2 | u16 | valid bytes of it, 0 to W |
//! | 4 | u32 | tag of it |
//! | 8 | u32 | payload seed of its message |
//! | 12 | u32 | index in the message's byte stream of its byte 0 |
//! | 16 | u8 | outputs: bit 0 `in_ready`, 1 a header, 2 its `first`, 3 its `last`, 4 a beat, 5 it is the packet's last |
//! | 17 | u8 | counted in this cycle: bits 0 to 4 an input error, in the order of `InputError::ALL`, 5 `too_long` |
//! | 18 | u16 | valid bytes of the output beat |
//! | 20 | u32 | header: tag |
//! | 24 | u32 | header: index |
//! | 28 | u32 | header: payload bytes |
//! | 32 | u32 | CRC-32 (zlib) of the valid bytes of the output beat |
//! | 36 | u32 | payload seed of the message of the output beat |
//! | 40 | u32 | index in the message's byte stream of the output beat's byte 0 |
//! | 44 | u32 | cycle, modulo 2^32 |
//!
//! Fields of what is not there are 0. Byte `k` of a message with payload seed `s` is
//! `((s + k) * 0x9E3779B1 mod 2^32) >> 24`. An offered beat stays offered, unchanged, until it is accepted. `in_ready`
//! says that the offered beat is accepted in this cycle; it is 0, and says nothing, where none is offered. Header and beat
//! are transfers: each needs `out_ready` in the same cycle. Cycle 0 is the first one after reset. The last records drain
//! the engine with nothing offered. The example itself checks each output byte against the formula.
//!
//! Messages have 0 to 16 pieces of {0, 1, W-1, W, W+1, 2W-1, 1 to 4 MTU} bytes at any address; MTU (up to
//! `--mtu-log2-max`), bubbles and back-pressure (0 to 50 %) are drawn per message. Schemes 1 and 2 drop what does not
//! fit and pass the next message: a message that cannot fit is found at the first push beyond its memory, whose beat is
//! accepted and dropped, as is the rest up to `last`; its bank is empty in the next cycle, without a hand-over. With
//! `--fitting` no message is longer than its memory.
#![expect(clippy::cast_possible_truncation, reason = "fields of a record are narrow by its format")]

use std::io::{BufWriter, Write};
use std::process::ExitCode;

use clap::Parser;
use urma_splice::random::EngineRandom;
use urma_splice::run::messages::{HostPiece, PieceMessage};
use urma_splice::{Engine, EngineConfig, EngineOutput, EngineScheme, InputBeat, Sideband, TooLong};

/// Writes the records of a random run.
#[derive(Parser, Debug)]
struct LockstepArgs {
    /// Design: fifo, pingpong or single.
    #[arg(long, default_value = "fifo")]
    scheme: String,
    /// Bytes of a beat.
    #[arg(long, default_value_t = 64)]
    width: u32,
    /// Beats of data memory.
    #[arg(long, default_value_t = 128)]
    depth: u32,
    /// Entries of the sideband FIFO.
    #[arg(long, default_value_t = 8)]
    entries: u32,
    /// Cycles of a hand-over.
    #[arg(long, default_value_t = 3)]
    handover: u32,
    /// Largest MTU as a power of two.
    #[arg(long, default_value_t = 12)]
    mtu_log2_max: u8,
    /// Seed of all draws.
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Input beats after which no new message begins.
    #[arg(long, default_value_t = 1_000_000)]
    beats: u64,
    /// Messages of a hundred with one wrong beat: empty, too long, another or impossible MTU, another tag, `first`
    /// where it is not or not where it is.
    #[arg(long, default_value_t = 0)]
    wrong: u64,
    /// Only messages that fit in the memory of the scheme.
    #[arg(long)]
    fitting: bool,
    /// Only the cycles and the rate, without records.
    #[arg(long)]
    quiet: bool,
}

/// A message with what its bytes are made from.
struct SeededMessage {
    mtu_log2: u8,
    beats: Vec<u16>,
    seed: u32,
    bubbles: u64,
    backpressure: u64,
    tag: u32,
    bytes: Vec<u8>,
}

const fn byte_of(seed: u32, at: u32) -> u8 {
    (seed.wrapping_add(at).wrapping_mul(0x9e37_79b1) >> 24) as u8
}

fn draw(random: &mut EngineRandom, args: &LockstepArgs, tag: u32) -> SeededMessage {
    let mtu_log2 = 8 + random.below(u64::from(args.mtu_log2_max) - 7) as u8;
    let (width, mtu) = (u64::from(args.width), 1_u64 << mtu_log2);
    let half = if args.scheme == "pingpong" { 2 } else { 1 };
    let most = width * u64::from(args.depth / half);
    let mut pieces = Vec::new();
    let mut total = 0;
    for _ in 0..random.below(17) {
        let len = match random.below(7) {
            0 => 0,
            1 => 1,
            2 => width - 1,
            3 => width,
            4 => width + 1,
            5 => 2 * width - 1,
            _ => 1 + random.below(4 * mtu),
        };
        if args.fitting && args.scheme != "fifo" && total + len > most {
            continue;
        }
        total += len;
        pieces.push(HostPiece { offset: random.below(width) as u32, len: len as u32 });
    }
    let seed = random.next() as u32;
    let beats = PieceMessage { mtu_log2, pieces }.beats(args.width);
    let bytes = (0..total as u32).map(|at| byte_of(seed, at)).collect();
    let (bubbles, backpressure) = (random.below(51), random.below(51));
    SeededMessage { mtu_log2, beats, seed, bubbles, backpressure, tag, bytes }
}

/// The message whose packet is open, with its seed: what the bytes of the output are compared with.
struct OpenOutput {
    seed: u32,
    at: u32,
}

struct LockstepRun<W: Write> {
    engine: Engine,
    out: BufWriter<W>,
    quiet: bool,
    now: u64,
    /// Input errors and messages beyond the memory up to the cycle before.
    counted: [u64; 6],
    /// Tags and seeds of messages that are not out.
    seeds: std::collections::VecDeque<(u32, u32)>,
    open: OpenOutput,
}

impl<W: Write> LockstepRun<W> {
    fn cycle(
        &mut self,
        offered: Option<(InputBeat<'_>, u32, u32)>,
        out_ready: bool,
    ) -> Result<bool, String> {
        let output = self.engine.tick(self.now, offered.map(|(beat, ..)| beat), out_ready);
        self.check(&output)?;
        if !self.quiet {
            self.write(offered, out_ready, &output).map_err(|error| error.to_string())?;
        }
        if output.beat.is_some() {
            self.open.at += self.engine.beat_bytes().len() as u32;
        }
        self.now += 1;
        Ok(output.in_ready)
    }

    /// The model's own bytes are those of the formula.
    fn check(&mut self, output: &EngineOutput) -> Result<(), String> {
        if let Some(header) = output.header
            && header.first
        {
            while self.seeds.front().is_some_and(|(tag, _)| *tag != header.tag) {
                self.seeds.pop_front();
            }
            let (_, seed) = self.seeds.pop_front().ok_or("a header of no message")?;
            self.open = OpenOutput { seed, at: 0 };
        }
        let OpenOutput { seed, at } = self.open;
        let wrong = output.beat.is_some()
            && (at..).zip(self.engine.beat_bytes()).any(|(at, byte)| *byte != byte_of(seed, at));
        if wrong { Err(format!("cycle {}: a wrong byte leaves", self.now)) } else { Ok(()) }
    }

    /// Bits of the errors that this cycle counted.
    fn newly_counted(&mut self) -> u8 {
        let counters = self.engine.counters();
        let mut now = [counters.too_long; 6];
        now[..5].copy_from_slice(&counters.input_errors);
        let before = std::mem::replace(&mut self.counted, now);
        (0..6).fold(0, |bits, at| bits | u8::from(now[at] != before[at]) << at)
    }

    fn write(
        &mut self,
        offered: Option<(InputBeat<'_>, u32, u32)>,
        out_ready: bool,
        output: &EngineOutput,
    ) -> std::io::Result<()> {
        let mut record = [0_u8; 48];
        let counted = self.newly_counted();
        let mut put = |at: usize, bytes: &[u8]| record[at..at + bytes.len()].copy_from_slice(bytes);
        let mut flags = u8::from(out_ready) << 2;
        if let Some((beat, seed, index)) = offered {
            flags |= 1 | u8::from(beat.last) << 1 | u8::from(beat.first) << 3;
            put(1, &[beat.mtu_log2]);
            put(2, &beat.len.to_le_bytes());
            put(4, &beat.tag.to_le_bytes());
            put(8, &seed.to_le_bytes());
            put(12, &index.to_le_bytes());
        }
        put(0, &[flags]);
        let mut flags = u8::from(output.in_ready);
        if let Some(Sideband { tag, index, len, first, last }) = output.header {
            flags |= 2 | u8::from(first) << 2 | u8::from(last) << 3;
            put(20, &tag.to_le_bytes());
            put(24, &index.to_le_bytes());
            put(28, &len.to_le_bytes());
        }
        if let Some(beat) = output.beat {
            flags |= 16 | u8::from(beat.last) << 5;
            put(18, &beat.len.to_le_bytes());
            put(32, &crc32fast::hash(self.engine.beat_bytes()).to_le_bytes());
            put(36, &self.open.seed.to_le_bytes());
            put(40, &self.open.at.to_le_bytes());
        }
        put(16, &[flags, counted]);
        put(44, &(self.now as u32).to_le_bytes());
        self.out.write_all(&record)
    }
}

fn run(args: &LockstepArgs) -> Result<(), String> {
    let scheme = EngineScheme::parse(&args.scheme)
        .ok_or_else(|| format!("scheme {:?}: want fifo, pingpong or single", args.scheme))?;
    let config = EngineConfig {
        beat_bytes: args.width,
        data_beats: args.depth,
        sideband_entries: args.entries,
        handover: args.handover,
        mtu_log2_max: args.mtu_log2_max,
        too_long: TooLong::Drop,
        payload: true,
        ..EngineConfig::new(scheme)
    };
    let engine = Engine::open(config).map_err(|error| error.to_string())?;
    if args.width < 32 {
        return Err(format!("width {}: want 32 to 256", args.width));
    }
    let mut run = LockstepRun {
        engine,
        out: BufWriter::with_capacity(1 << 16, std::io::stdout().lock()),
        quiet: args.quiet,
        now: 0,
        counted: [0; 6],
        seeds: std::collections::VecDeque::new(),
        open: OpenOutput { seed: 0, at: 0 },
    };
    let mut random = EngineRandom::new(args.seed);
    let mut beats = 0;
    for tag in 0.. {
        if beats >= args.beats {
            break;
        }
        let message = draw(&mut random, args, tag);
        beats += message.beats.len() as u64;
        run.seeds.push_back((message.tag, message.seed));
        // Without wrong beats nothing is drawn for them.
        let is_wrong = args.wrong > 0 && random.below(100) < args.wrong;
        let wrong = is_wrong.then(|| (random.below(message.beats.len() as u64), random.below(6)));
        offer(&mut run, &message, wrong, &mut random)?;
    }
    while !run.engine.is_empty() {
        run.cycle(None, true)?;
    }
    run.out.flush().map_err(|error| error.to_string())?;
    let mismatch = run.engine.counters().mismatch;
    if mismatch == 0 { Ok(()) } else { Err(format!("{mismatch} beats of a wrong packet")) }
}

/// Offers the beats of one message until each is accepted.
fn offer<W: Write>(
    run: &mut LockstepRun<W>,
    message: &SeededMessage,
    wrong: Option<(u64, u64)>,
    random: &mut EngineRandom,
) -> Result<(), String> {
    let width = run.engine.config().beat_bytes as u16;
    let mut index = 0;
    for (number, len) in message.beats.iter().enumerate() {
        let bytes = &message.bytes[index..index + usize::from(*len)];
        let mut beat = InputBeat {
            len: *len,
            first: number == 0,
            last: number + 1 == message.beats.len(),
            tag: message.tag,
            mtu_log2: message.mtu_log2,
            bytes,
        };
        if let Some((at, kind)) = wrong
            && at == number as u64
        {
            spoil(&mut beat, kind, width);
        }
        while random.below(100) < message.bubbles {
            run.cycle(None, random.below(100) >= message.backpressure)?;
        }
        let offered = Some((beat, message.seed, index as u32));
        while !run.cycle(offered, random.below(100) >= message.backpressure)? {}
        index += usize::from(*len);
    }
    Ok(())
}

/// Makes a beat wrong in one of six ways. The first beat of a message decides tag and MTU, so these stay.
const fn spoil(beat: &mut InputBeat<'_>, kind: u64, width: u16) {
    match kind {
        0 => (beat.len, beat.bytes) = (0, &[]),
        1 => beat.len = width + 1,
        2 if !beat.first => beat.mtu_log2 += 1,
        3 if !beat.first => beat.tag = !beat.tag,
        4 => beat.mtu_log2 = 14,
        5 => beat.first = !beat.first,
        _ => {}
    }
}

fn main() -> ExitCode {
    match run(&LockstepArgs::parse()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            let _ = writeln!(std::io::stderr(), "lockstep: {error}");
            ExitCode::from(2)
        }
    }
}
