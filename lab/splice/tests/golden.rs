//! The golden vectors: functional cases, schedules and totals, every one exactly.
//!
//! - owns: reading of the golden file. takes: the file. gives: pass or the entry that differs.
//! - must not: leave out an entry.
#![expect(clippy::cast_possible_truncation, reason = "numbers of the golden file are small")]
#![expect(clippy::tests_outside_test_module, reason = "an integration test")]

use std::convert::Infallible;

use serde_json::Value;
use urma_packet::packetizer::{Packetizer, splice};
use urma_splice::run::drive::{Disturbance, EngineRun, RunEnd, ScheduledPacket};
use urma_splice::run::messages::{HostPiece, LengthMix, PieceMessage};
use urma_splice::{Engine, EngineConfig, EngineScheme, InputBeat, TooLong};

fn golden() -> Value {
    serde_json::from_str(include_str!("golden/packet_engine.json")).expect("JSON")
}

fn num(value: &Value) -> u64 {
    value.as_u64().unwrap_or_else(|| panic!("a number: {value}"))
}

fn list(value: &Value) -> &[Value] {
    value.as_array().expect("a list")
}

fn messages(value: &Value) -> Vec<PieceMessage> {
    let piece = |piece: &Value| HostPiece {
        offset: num(&piece["offset"]) as u32,
        len: num(&piece["len"]) as u32,
    };
    let message = |message: &Value| PieceMessage {
        mtu_log2: num(&message["mtu"]).ilog2() as u8,
        pieces: list(&message["pieces"]).iter().map(piece).collect(),
    };
    list(value).iter().map(message).collect()
}

fn config(scheme: &Value, of: &Value) -> EngineConfig {
    EngineConfig {
        beat_bytes: num(&of["beat_bytes"]) as u32,
        data_beats: num(&of["data_beats"]) as u32,
        sideband_entries: num(&of["sideband_entries"]) as u32,
        handover: num(&of["handover"]) as u32,
        mtu_log2_max: 13,
        too_long: TooLong::Stop,
        ..EngineConfig::new(EngineScheme::parse(scheme.as_str().expect("a name")).expect("known"))
    }
}

fn payload(message: usize, len: u64) -> Vec<u8> {
    (0..len).map(|j| (131 * message as u64 + 7 * j + (j >> 8)) as u8).collect()
}

/// Runs a case and returns its lines, the delivered packets and its end.
fn run(
    config: EngineConfig,
    messages: &[PieceMessage],
    disturbance: Disturbance,
) -> (Vec<ScheduledPacket>, RunEnd, Engine) {
    let engine = Engine::open(config).expect("a configuration");
    let mut run = EngineRun::new(engine, messages, disturbance).expect("a run");
    let mut packets = Vec::new();
    let end = run.finish(|packet| packets.push(*packet));
    (packets, end, run.engine().clone())
}

fn line(packet: &ScheduledPacket) -> [u64; 7] {
    let sideband = packet.sideband;
    [
        u64::from(sideband.tag),
        u64::from(sideband.len),
        u64::from(sideband.first),
        u64::from(sideband.last),
        packet.accepted,
        packet.header,
        packet.end,
    ]
}

fn check_stalls(name: &str, engine: &Engine, want: &Value) {
    let stalls = engine.counters().stalls;
    let have = [stalls.data, stalls.sideband, stalls.bank, stalls.handover, stalls.flush];
    let want = ["data", "sbd", "bank", "hand", "flush"].map(|cause| num(&want[cause]));
    assert_eq!(have, want, "{name}: stalls");
    assert_eq!(engine.counters().mismatch, 0, "{name}: mismatch");
}

fn check_deadlock(name: &str, packets: &[ScheduledPacket], end: RunEnd, want: &Value) {
    assert_eq!(end, RunEnd::Stopped(num(&want["last_progress"])), "{name}");
    assert_eq!(packets.len() as u64, num(&want["delivered"]), "{name}");
}

#[test]
fn functional_cases_by_packetizer_and_by_every_scheme() {
    let golden = golden();
    let cases = list(&golden["functional"]);
    assert_eq!(cases.len(), 15);
    for case in cases {
        let name = case["name"].as_str().expect("a name");
        let messages = messages(&case["messages"]);
        let want: Vec<(u64, u64, bool, bool, String)> = list(&case["packets"])
            .iter()
            .map(|p| {
                let flag = |of: &str| p[of].as_bool().expect("a flag");
                let crc = p["crc32"].as_str().expect("a CRC").to_owned();
                (num(&p["message"]), num(&p["len"]), flag("first"), flag("last"), crc)
            })
            .collect();
        assert_eq!(packetized(&messages), want, "{name}: packetizer");
        let width = num(&case["beat_bytes"]) as u32;
        let beats: usize = messages.iter().map(|m| m.beats(width).len()).sum();
        assert_eq!(beats as u64, num(&case["beats_in"]), "{name}: beats");
        for (scheme, _) in EngineScheme::ALL {
            assert_eq!(through(scheme, width, &messages), want, "{name}: {scheme:?}");
        }
    }
}

fn packetized(messages: &[PieceMessage]) -> Vec<(u64, u64, bool, bool, String)> {
    let mut packets = Vec::new();
    for (number, message) in messages.iter().enumerate() {
        let bytes = payload(number, message.len());
        let mut rest = &bytes[..];
        let mut pieces = Vec::new();
        for piece in &message.pieces {
            let (now, later) = rest.split_at(piece.len as usize);
            pieces.push(now);
            rest = later;
        }
        let (mut packetizer, len) = (Packetizer::default(), bytes.len() as u32);
        loop {
            let s = packetizer.next_packet((number as u32, len), 1 << message.mtu_log2);
            let mut buf = vec![0; s.len as usize];
            let sizes = pieces.iter().map(|piece| (*piece, piece.len() as u32));
            let joined =
                splice(sizes, (packetizer.done().into(), buf.len()), |piece, at, to, n| {
                    buf[to..to + n].copy_from_slice(&piece[at..at + n]);
                    Ok::<(), Infallible>(())
                });
            assert_eq!(joined, Ok(buf.len()), "the pieces have all bytes");
            let crc = format!("{:08x}", crc32fast::hash(&buf));
            packets.push((u64::from(s.tag), u64::from(s.len), s.first, s.last, crc));
            packetizer.take(&s);
            if s.last {
                break;
            }
        }
    }
    packets
}

fn through(
    scheme: EngineScheme,
    width: u32,
    messages: &[PieceMessage],
) -> Vec<(u64, u64, bool, bool, String)> {
    let config = EngineConfig {
        beat_bytes: width,
        data_beats: 8192,
        mtu_log2_max: 13,
        payload: true,
        ..EngineConfig::new(scheme)
    };
    let mut engine = Engine::open(config).expect("a configuration");
    let mut beats = Vec::new();
    let all: Vec<Vec<u8>> = messages.iter().enumerate().map(|(n, m)| payload(n, m.len())).collect();
    for (number, message) in messages.iter().enumerate() {
        let lens = message.beats(width);
        let mut at = 0;
        for (k, len) in lens.iter().enumerate() {
            let bytes = &all[number][at..at + usize::from(*len)];
            at += usize::from(*len);
            beats.push(InputBeat {
                len: *len,
                first: k == 0,
                last: k + 1 == lens.len(),
                tag: number as u32,
                mtu_log2: message.mtu_log2,
                bytes,
            });
        }
    }
    let (mut packets, mut bytes, mut open) = (Vec::new(), Vec::new(), None);
    let mut next = 0;
    for now in 0..100_000 {
        let output = engine.tick(now, beats.get(next).copied(), true);
        next += usize::from(output.in_ready);
        open = output.header.or(open);
        if output.beat.is_some() {
            bytes.extend_from_slice(engine.beat_bytes());
        }
        if output.ended.is_some() {
            let s = open.expect("a header");
            assert_eq!(bytes.len(), s.len as usize);
            let crc = format!("{:08x}", crc32fast::hash(&bytes));
            packets.push((u64::from(s.tag), u64::from(s.len), s.first, s.last, crc));
            bytes.clear();
        }
        if next == beats.len() && engine.is_empty() {
            break;
        }
    }
    assert_eq!(engine.counters().mismatch, 0);
    packets
}

#[test]
fn schedules() {
    let golden = golden();
    let cases = list(&golden["schedules"]);
    assert_eq!(cases.len(), 9);
    for case in cases {
        let name = format!("{} {}", case["name"], case["scheme"]);
        let config = config(&case["scheme"], &case["config"]);
        let messages = messages(&case["messages"]);
        let (packets, end, engine) = run(config, &messages, Disturbance::default());
        if let Some(deadlock) = case.get("deadlock") {
            check_deadlock(&name, &packets, end, deadlock);
            continue;
        }
        let have: Vec<[u64; 7]> = packets.iter().map(line).collect();
        let want: Vec<[u64; 7]> = list(&case["schedule"])
            .iter()
            .map(|line| std::array::from_fn(|at| num(&line[at])))
            .collect();
        assert_eq!(have, want, "{name}");
        assert_eq!(end, RunEnd::Done(num(&case["cycles"])), "{name}");
        let occupancy = u64::from(engine.counters().occupancy_max);
        assert_eq!(occupancy, num(&case["occupancy_max"]), "{name}: occupancy");
        check_stalls(&name, &engine, &case["stalls"]);
    }
}

#[test]
fn totals() {
    let golden = golden();
    let cases = list(&golden["totals"]);
    assert_eq!(cases.len(), 46);
    for case in cases {
        check_total(case);
    }
}

fn check_total(case: &Value) {
    let name = format!("{case}");
    let config = config(&case["scheme"], case);
    let mix = match case["mix"].as_u64() {
        Some(len) => LengthMix::Fixed(len as u32),
        None => LengthMix::Rpc,
    };
    let mtu_log2 = num(&case["mtu"]).ilog2() as u8;
    let messages = mix.messages(num(&case["messages"]) as usize, num(&case["mix_seed"]), mtu_log2);
    let part = |of: &str| case[of].as_f64().expect("a part");
    let disturbance = Disturbance {
        bubble: (part("bubble"), num(&case["bubble_seed"])),
        backpressure: (part("backpressure"), num(&case["backpressure_seed"])),
        reserve_issue: None,
    };
    let (packets, end, engine) = run(config, &messages, disturbance);
    if let Some(deadlock) = case.get("deadlock") {
        return check_deadlock(&name, &packets, end, deadlock);
    }
    let cycles = num(&case["cycles"]);
    assert_eq!(end, RunEnd::Done(cycles), "{name}");
    let counters = engine.counters();
    assert_eq!((counters.packets, counters.bytes), (num(&case["packets"]), num(&case["bytes"])));
    check_stalls(&name, &engine, &case["stalls"]);
    assert_eq!(u64::from(counters.occupancy_max), num(&case["occ_max"]), "{name}: occ_max");
    assert_eq!(counters.header_latency.quantile(990), num(&case["lat_p99"]), "{name}: lat_p99");
    let text: Vec<String> =
        packets.iter().map(|p| line(p).map(|n| n.to_string()).join(" ")).collect();
    let crc = crc32fast::hash(text.join("\n").as_bytes());
    assert_eq!(format!("{crc:08x}"), case["schedule_crc32"].as_str().expect("a CRC"), "{name}");
    let ceiling = num(&case["output_cycles"]);
    assert_eq!(counters.packets + counters.beats_out, ceiling, "{name}: ceiling");
    let width = num(&case["beat_bytes"]) as f64;
    let close = |have: f64, of: &str, digits: i32| {
        let want = case[of].as_f64().expect("a number");
        let step = 10_f64.powi(-digits);
        assert!((have - want).abs() <= step * 0.5001, "{name}: {of} {have}, not {want}");
    };
    close(counters.bytes as f64 / (cycles as f64 * width) * 100.0, "throughput", 2);
    close(counters.occupancy_mean(), "occ_mean", 2);
    close(counters.header_latency.mean(), "lat_mean", 1);
    close(ceiling as f64 / cycles as f64 * 100.0, "of_ceiling", 2);
}
