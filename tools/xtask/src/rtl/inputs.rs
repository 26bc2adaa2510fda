//! Wrong input on Icarus Verilog: it is counted, its message is dropped, the messages around it pass.
//!
//! *Owns*: the cases. *Takes*: a simulator. *Gives*: one check per scheme and case.

use super::{
    design::{Parameters, Scheme},
    golden::{Simulator, equal},
    output::SeenRun,
    stimulus::{Beat, GoldenMessage, beats_of, payload},
};
use crate::say::{Failure, TaskResult};

/// Beginning of the names of these checks.
pub(super) const PREFIX: &str = "wrong input";
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
const BEYOND: usize = 5000;

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
    let named = |name: &str| format!("{PREFIX}, {}: {name}", scheme.name());
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
    let beats = beats_of(&messages(BEYOND), WIDTH)?;
    let run = simulator.run(&parameters(scheme), &beats)?;
    let (too_long, bytes) = if scheme == Scheme::Fifo { (0, BEYOND) } else { (1, 0) };
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
