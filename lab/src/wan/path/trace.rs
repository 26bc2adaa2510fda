//! Events of a run, as they happen.
//!
//! - owns: what an event says. takes: events. gives: lines of JSON, or nothing. must not: change a run.

use std::io::{self, Write};

use urma_recovery::Arrival;

/// Something that happened to a packet or message of a TP.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum TraceEvent {
    /// A data packet was put on the link.
    Sent {
        /// Sequence of the packet.
        seq: u64,
        /// Which transmission of it this is.
        attempt: u16,
        /// Tier of the report that it answers; 0 for a first transmission.
        tier: u8,
        /// The path loses it.
        lost: bool,
    },
    /// A data packet took effect at the receiver.
    Arrived {
        /// Sequence of the packet.
        seq: u64,
        /// Which transmission of it this is.
        attempt: u16,
        /// What it meant to the record.
        arrival: Arrival,
    },
    /// A repair packet was put on the link.
    Repair {
        /// Group that it repairs.
        group: u32,
        /// The path loses it.
        lost: bool,
    },
    /// A tail mark was put on the link.
    Tail {
        /// End of what was sent.
        end: u64,
        /// The path loses it.
        lost: bool,
    },
    /// A report was put on the way back.
    Report {
        /// Transmission that was lost.
        tier: u8,
        /// Packets that it names.
        packets: u64,
        /// The path loses it.
        lost: bool,
    },
    /// An acknowledgement was put on the way back.
    Ack {
        /// First packet that the receiver lacks.
        edge: u64,
        /// The path loses it.
        lost: bool,
    },
    /// The timer of the sender expired.
    Timeout,
}

/// Takes the events of a run.
pub trait PathTrace {
    /// Takes an event of a TP at a time in ps.
    fn note(&mut self, at_ps: u64, tp: u32, event: TraceEvent);
}

/// Leaves every event out.
#[derive(Clone, Copy, Debug)]
pub struct NoTrace;

impl PathTrace for NoTrace {
    fn note(&mut self, _at_ps: u64, _tp: u32, _event: TraceEvent) {}
}

/// Writes a line of JSON per event: `at_ns`, `tp`, `event` and what it says.
#[derive(Debug)]
pub struct JsonTrace<W: Write> {
    to: W,
    events: u64,
    result: io::Result<()>,
}

impl<W: Write> JsonTrace<W> {
    /// A trace that is written there, best through a buffer.
    pub const fn new(to: W) -> Self {
        Self { to, events: 0, result: Ok(()) }
    }

    /// Number of events, if all could be written.
    pub fn finish(mut self) -> io::Result<u64> {
        self.result?;
        self.to.flush()?;
        Ok(self.events)
    }

    fn write(&mut self, at_ps: u64, tp: u32, event: TraceEvent) -> io::Result<()> {
        let (ns, ps) = (at_ps / 1000, at_ps % 1000);
        write!(self.to, "{{\"at_ns\":{ns}.{ps:03},\"tp\":{tp},\"event\":")?;
        match event {
            TraceEvent::Sent { seq, attempt, tier, lost } => write!(
                self.to,
                "\"sent\",\"seq\":{seq},\"attempt\":{attempt},\"tier\":{tier},\"lost\":{lost}"
            ),
            TraceEvent::Arrived { seq, attempt, arrival } => {
                let (name, edge) = match arrival {
                    Arrival::Advanced(edge) => ("in order", Some(edge)),
                    Arrival::Kept => ("kept", None),
                    Arrival::Duplicate => ("duplicate", None),
                    Arrival::Dropped => ("dropped", None),
                    Arrival::Unmatched => ("unmatched", None),
                };
                write!(
                    self.to,
                    "\"arrived\",\"seq\":{seq},\"attempt\":{attempt},\"as\":\"{name}\""
                )?;
                edge.map_or(Ok(()), |edge| write!(self.to, ",\"edge\":{edge}"))
            }
            TraceEvent::Repair { group, lost } => {
                write!(self.to, "\"repair\",\"group\":{group},\"lost\":{lost}")
            }
            TraceEvent::Tail { end, lost } => {
                write!(self.to, "\"tail\",\"end\":{end},\"lost\":{lost}")
            }
            TraceEvent::Report { tier, packets, lost } => {
                write!(self.to, "\"report\",\"tier\":{tier},\"packets\":{packets},\"lost\":{lost}")
            }
            TraceEvent::Ack { edge, lost } => {
                write!(self.to, "\"ack\",\"edge\":{edge},\"lost\":{lost}")
            }
            TraceEvent::Timeout => write!(self.to, "\"timeout\""),
        }?;
        self.to.write_all(b"}\n")
    }
}

impl<W: Write> PathTrace for JsonTrace<W> {
    fn note(&mut self, at_ps: u64, tp: u32, event: TraceEvent) {
        if self.result.is_ok() {
            self.result = self.write(at_ps, tp, event);
            self.events += 1;
        }
    }
}
