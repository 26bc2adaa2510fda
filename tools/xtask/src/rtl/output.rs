//! What the test bench prints.
//!
//! *Owns*: its lines. *Takes*: the output of a simulator. *Gives*: packets with their cycles.

use std::{path::Path, process::Command, time::Duration};

use crate::{
    child,
    say::{Failure, TaskResult},
};

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
