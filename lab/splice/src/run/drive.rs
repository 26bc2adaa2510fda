//! One run: beats offered with bubbles, an output with back-pressure, until everything is out.
//!
//! - owns: the input side, the schedule, the end. takes: messages, an engine. gives: packets with their cycles.
//! - must not: change what an engine does.
#![expect(
    clippy::cast_possible_truncation,
    reason = "counts are bounded by 65536 beats and packets of 8 KiB"
)]

use std::collections::VecDeque;

use urma_packet::packetizer::Sideband;

use super::messages::PieceMessage;
use crate::config::{EngineConfigError, EngineScheme};
use crate::engine::Engine;
use crate::engine::{EngineOutput, InputBeat};
use crate::random::Chance;

/// Disturbance of a run. The default has none.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
pub struct Disturbance {
    /// Part of the beats that are offered one cycle late, and its seed.
    pub bubble: (f64, u64),
    /// Part of the cycles in which the output takes nothing, and its seed.
    pub backpressure: (f64, u64),
    /// Cycles between the issue of a read and its bytes where room is reserved on issue; `None`: on arrival.
    pub reserve_issue: Option<u64>,
}

/// A packet of a run.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ScheduledPacket {
    /// Its sideband; the tag is the number of the message.
    pub sideband: Sideband,
    /// Cycle in which its first byte was accepted.
    pub accepted: u64,
    /// Cycle of its header.
    pub header: u64,
    /// Cycle of its last beat, or of its header where it has none.
    pub end: u64,
}

/// How a run ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum RunEnd {
    /// Everything is out after so many cycles.
    Done(u64),
    /// No progress from this cycle on, for ever.
    Stopped(u64),
}

/// Beats of all messages in order.
#[derive(Clone, Debug)]
struct BeatSource<'a> {
    messages: &'a [PieceMessage],
    at: usize,
    beats: Vec<u16>,
    beat: usize,
    width: u32,
}

impl<'a> BeatSource<'a> {
    fn new(messages: &'a [PieceMessage], width: u32) -> Self {
        let beats = messages.first().map_or_else(Vec::new, |first| first.beats(width));
        Self { messages, at: 0, beats, beat: 0, width }
    }

    fn offered(&self) -> Option<InputBeat<'static>> {
        let message = self.messages.get(self.at)?;
        Some(InputBeat {
            len: self.beats[self.beat],
            first: self.beat == 0,
            last: self.beat + 1 == self.beats.len(),
            tag: self.at as u32,
            mtu_log2: message.mtu_log2,
            bytes: &[],
        })
    }

    fn advance(&mut self) {
        self.beat += 1;
        if self.beat == self.beats.len() {
            self.at += 1;
            self.beat = 0;
            if let Some(message) = self.messages.get(self.at) {
                self.beats = message.beats(self.width);
            }
        }
    }
}

/// Reservation of room when a read is issued.
#[derive(Debug)]
struct ReadIssue<'a> {
    latency: u64,
    messages: std::slice::Iter<'a, PieceMessage>,
    /// Beats of the reads of the current message that are not issued.
    reads: VecDeque<u32>,
    /// Issued reads: when their bytes are there, and the beats that were not accepted.
    on_way: VecDeque<(u64, u32)>,
    beats_on_way: u32,
}

impl<'a> ReadIssue<'a> {
    fn new(latency: u64, messages: &'a [PieceMessage]) -> Self {
        Self {
            latency,
            messages: messages.iter(),
            reads: VecDeque::new(),
            on_way: VecDeque::new(),
            beats_on_way: 0,
        }
    }

    /// Issues one read when its beats fit in what is neither held nor on its way.
    fn issue(&mut self, now: u64, engine: &Engine) {
        if self.reads.is_empty()
            && let Some(message) = self.messages.next()
        {
            self.reads = message.reads(engine.config().beat_bytes);
        }
        let taken = engine.occupancy() + self.beats_on_way;
        if let Some(&beats) = self.reads.front()
            && taken + beats <= engine.config().data_beats
        {
            self.reads.pop_front();
            self.on_way.push_back((now + self.latency, beats));
            self.beats_on_way += beats;
        }
    }

    fn is_there(&self, now: u64) -> bool {
        self.on_way.front().is_some_and(|(from, _)| *from <= now)
    }

    fn accepted(&mut self) {
        self.beats_on_way -= 1;
        if let Some((_, beats)) = self.on_way.front_mut() {
            *beats -= 1;
            if *beats == 0 {
                self.on_way.pop_front();
            }
        }
    }
}

/// A run in progress.
#[derive(Debug)]
pub struct EngineRun<'a> {
    engine: Engine,
    source: BeatSource<'a>,
    issue: Option<ReadIssue<'a>>,
    bubble: Chance,
    backpressure: Chance,
    /// The next beat is offered from this cycle on.
    from: u64,
    now: u64,
    open: Option<Sideband>,
}

/// One cycle of a run.
#[derive(Clone, Copy, Debug)]
pub struct RunCycle {
    /// A beat was offered.
    pub offered: Option<InputBeat<'static>>,
    /// The output took what there was.
    pub out_ready: bool,
    /// What the engine did.
    pub output: EngineOutput,
    /// A packet that ended.
    pub packet: Option<ScheduledPacket>,
}

impl<'a> EngineRun<'a> {
    /// A run of `messages` through `engine`.
    ///
    /// # Errors
    ///
    /// Room reserved on issue wants scheme 3 and memory for two packets of the MTU.
    pub fn new(
        engine: Engine,
        messages: &'a [PieceMessage],
        disturbance: Disturbance,
    ) -> Result<Self, EngineConfigError> {
        let issue = match disturbance.reserve_issue {
            None => None,
            Some(latency) => {
                check_issue(&engine)?;
                Some(ReadIssue::new(latency, messages))
            }
        };
        let mut bubble = Chance::new(disturbance.bubble.1, disturbance.bubble.0);
        let from = u64::from(bubble.draw());
        Ok(Self {
            source: BeatSource::new(messages, engine.config().beat_bytes),
            engine,
            issue,
            bubble,
            backpressure: Chance::new(disturbance.backpressure.1, disturbance.backpressure.0),
            from,
            now: 0,
            open: None,
        })
    }

    /// The engine, with its counters.
    #[must_use]
    pub const fn engine(&self) -> &Engine {
        &self.engine
    }

    /// One cycle.
    ///
    /// # Errors
    ///
    /// How the run ended.
    pub fn step(&mut self) -> Result<RunCycle, RunEnd> {
        let offered = self.source.offered();
        if offered.is_none() && self.engine.is_empty() {
            return Err(RunEnd::Done(self.now));
        }
        let now = self.now;
        if let Some(issue) = &mut self.issue {
            issue.issue(now, &self.engine);
        }
        let there = self.issue.as_ref().is_none_or(|issue| issue.is_there(now));
        let offered = offered.filter(|_| now >= self.from && there);
        let out_ready = !self.backpressure.draw();
        let output = self.engine.tick(now, offered, out_ready);
        if output.in_ready {
            self.source.advance();
            self.from = now + 1 + u64::from(self.bubble.draw());
            if let Some(issue) = &mut self.issue {
                issue.accepted();
            }
        }
        self.now += 1;
        // A bubble or a read that is on its way will change something; nothing else does.
        let waits = offered.is_none() && self.source.offered().is_some();
        if !output.moved && !waits && out_ready {
            return Err(RunEnd::Stopped(now));
        }
        if let Some(sideband) = output.header {
            self.open = Some(sideband);
        }
        let packet = output.ended.zip(self.open).map(|((accepted, header), sideband)| {
            ScheduledPacket { sideband, accepted, header, end: now }
        });
        Ok(RunCycle { offered, out_ready, output, packet })
    }

    /// Runs to the end and gives every packet to `on_packet`.
    pub fn finish(&mut self, mut on_packet: impl FnMut(&ScheduledPacket)) -> RunEnd {
        loop {
            match self.step() {
                Ok(RunCycle { packet: Some(packet), .. }) => on_packet(&packet),
                Ok(_) => {}
                Err(end) => return end,
            }
        }
    }
}

fn check_issue(engine: &Engine) -> Result<(), EngineConfigError> {
    let config = engine.config();
    let error = |field, value, rule| Err(EngineConfigError { field, value, rule });
    if config.scheme != EngineScheme::Fifo {
        let rule = "scheme fifo: banks reserve by message, on arrival".to_owned();
        return error("reserve_issue", 1, rule);
    }
    let least = 2_u32 << config.mtu_log2_max;
    if config.data_beats * config.beat_bytes < least {
        let rule = format!(
            "data_beats * beat_bytes >= {least} bytes, two packets of the MTU: one that is not complete, one read"
        );
        return error("data_beats", u64::from(config.data_beats), rule);
    }
    Ok(())
}
