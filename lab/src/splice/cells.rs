//! The grid of the experiment `splice`: every combination of its lists, checked before the first one runs.
//!
//! - owns: parsing, rules of a cell, one run. takes: text. gives: cells and their results, or the field that is wrong.
//! - must not: print.

use urma_splice::run::drive::{Disturbance, EngineRun};
use urma_splice::run::messages::{LengthMix, PieceMessage};
use urma_splice::{Engine, EngineConfig, EngineConfigError, EngineScheme, TooLong};

use crate::units::GridError;

/// Most cells of a grid.
const CELLS_MAX: usize = 10_000;
/// Most messages of a run.
const MESSAGES_MAX: usize = 1_000_000;

/// The lists of a grid, as text.
#[derive(Clone, PartialEq, Debug)]
pub struct SpliceGrid {
    /// Names of the schemes.
    pub schemes: Vec<String>,
    /// Mixes: `rpc`, or a length in bytes such as `256` or `64K`.
    pub mixes: Vec<String>,
    /// Bytes of a beat.
    pub widths: Vec<u32>,
    /// Data memory in bytes: `8K`.
    pub rams: Vec<String>,
    /// Cycles of a hand-over.
    pub handovers: Vec<u32>,
    /// Parts of the beats that are late by a cycle.
    pub bubbles: Vec<f64>,
    /// Parts of the cycles in which the output takes nothing.
    pub backpressures: Vec<f64>,
    /// Entries of the sideband FIFO.
    pub entries: Vec<u32>,
    /// Path MTU in bytes.
    pub mtu: u32,
    /// Messages of a run.
    pub messages: usize,
    /// Seed of the messages; bubbles and back-pressure have the next two.
    pub seed: u64,
    /// `drop` or `stop`: what happens to a message that cannot fit.
    pub too_long: String,
    /// Cycles between a read and its bytes, where room is reserved when a read is issued.
    pub reserve_issue: Option<u64>,
}

/// One combination of all lists.
#[derive(Clone, PartialEq, Debug)]
pub struct SpliceCell {
    /// Mix, as the option gives it.
    pub mix: String,
    /// The engine that runs the cell.
    pub config: EngineConfig,
    /// Bubbles at the input and back-pressure at the output.
    pub disturbance: Disturbance,
    /// Lengths of the messages.
    lengths: LengthMix,
    /// Messages of the run.
    pub messages: usize,
    /// Seed of the messages that are drawn.
    pub seed: u64,
    /// Path MTU as a power of two.
    pub mtu_log2: u8,
}

fn wrong(field: &'static str, value: impl ToString, want: impl ToString) -> GridError {
    GridError { field, value: value.to_string(), want: want.to_string() }
}

/// A parameter of an engine as the option that gave it; the memory in bytes, as it was given.
fn refused(config: &EngineConfig, error: EngineConfigError) -> GridError {
    let bytes = u64::from(config.data_beats) * u64::from(config.beat_bytes);
    let rule = error.rule.to_string();
    let value = match error.field {
        "data_beats" => format!("{bytes} bytes"),
        _ => error.value.to_string(),
    };
    let rule = rule.replace("data_beats * beat_bytes >= ", "at least ");
    let field = match error.field {
        "data_beats" => "ram",
        "beat_bytes" => "width",
        "sideband_entries" => "entries",
        "mtu_log2_max" => "mtu",
        "reserve_issue" => "reserve-issue",
        field => field,
    };
    wrong(field, value, rule)
}

/// Bytes with an optional K or M of 1024.
fn size(text: &str) -> Option<u32> {
    let (digits, unit) = match text.strip_suffix('K') {
        Some(digits) => (digits, 1 << 10),
        None => text.strip_suffix('M').map_or((text, 1), |digits| (digits, 1 << 20)),
    };
    digits.parse::<u32>().ok()?.checked_mul(unit)
}

impl SpliceGrid {
    /// All cells, the last list fastest; every one is checked.
    pub fn cells(&self) -> Result<Vec<SpliceCell>, GridError> {
        if !self.mtu.is_power_of_two() || !(256..=8192).contains(&self.mtu) {
            return Err(wrong("mtu", self.mtu, "a power of two, 256 to 8192"));
        }
        if !(1..=MESSAGES_MAX).contains(&self.messages) {
            return Err(wrong("messages", self.messages, format!("1 to {MESSAGES_MAX}")));
        }
        for (field, parts) in [("bubble", &self.bubbles), ("backpressure", &self.backpressures)] {
            if let Some(part) = parts.iter().find(|part| !(0.0..=0.9).contains(*part)) {
                return Err(wrong(field, part, "0 to 0.9"));
            }
        }
        let engines = self.engines()?;
        let lists = [engines.len(), self.mixes.len(), self.bubbles.len(), self.backpressures.len()];
        let count = lists.iter().product::<usize>();
        if !(1..=CELLS_MAX).contains(&count) {
            return Err(wrong(
                "grid",
                count,
                format!("1 to {CELLS_MAX} combinations of all lists"),
            ));
        }
        let mut cells = Vec::new();
        for mix in &self.mixes {
            let lengths = mix_of(mix)?;
            for config in &engines {
                for &bubble in &self.bubbles {
                    for &backpressure in &self.backpressures {
                        let part = (bubble, backpressure);
                        cells.push(self.cell((mix, lengths), *config, part)?);
                    }
                }
            }
        }
        Ok(cells)
    }

    /// At most 13, by the rule of the MTU.
    fn mtu_log2(&self) -> u8 {
        u8::try_from(self.mtu.ilog2()).unwrap_or(u8::MAX)
    }

    /// Every engine of the lists.
    fn engines(&self) -> Result<Vec<EngineConfig>, GridError> {
        let too_long = match self.too_long.as_str() {
            "drop" => TooLong::Drop,
            "stop" => TooLong::Stop,
            other => return Err(wrong("too-long", other, "drop or stop")),
        };
        let mut engines = Vec::new();
        for scheme in &self.schemes {
            let name = EngineScheme::parse(scheme)
                .ok_or_else(|| wrong("scheme", scheme, "fifo, pingpong or single"))?;
            for &width in &self.widths {
                if !width.is_power_of_two() || !(32..=256).contains(&width) {
                    return Err(wrong("width", width, "32, 64, 128 or 256"));
                }
                for ram in &self.rams {
                    let whole = size(ram).filter(|ram| *ram > 0 && *ram % width == 0);
                    let rule = format!("bytes such as 8K, a multiple of the width {width}");
                    let ram = whole.ok_or_else(|| wrong("ram", ram, rule))?;
                    for &handover in &self.handovers {
                        for &sideband_entries in &self.entries {
                            engines.push(EngineConfig {
                                beat_bytes: width,
                                data_beats: ram / width,
                                sideband_entries,
                                handover,
                                mtu_log2_max: self.mtu_log2(),
                                too_long,
                                ..EngineConfig::new(name)
                            });
                        }
                    }
                }
            }
        }
        Ok(engines)
    }

    fn cell(
        &self,
        (mix, lengths): (&str, LengthMix),
        config: EngineConfig,
        (bubble, backpressure): (f64, f64),
    ) -> Result<SpliceCell, GridError> {
        let disturbance = Disturbance {
            bubble: (bubble, self.seed.wrapping_add(1)),
            backpressure: (backpressure, self.seed.wrapping_add(2)),
            reserve_issue: self.reserve_issue,
        };
        let refused = |error| refused(&config, error);
        let engine = Engine::open(config).map_err(refused)?;
        EngineRun::new(engine, &[], disturbance).map_err(refused)?;
        Ok(SpliceCell {
            mix: mix.to_owned(),
            config,
            disturbance,
            lengths,
            messages: self.messages,
            seed: self.seed,
            mtu_log2: self.mtu_log2(),
        })
    }
}

fn mix_of(text: &str) -> Result<LengthMix, GridError> {
    if text == "rpc" {
        return Ok(LengthMix::Rpc);
    }
    let len = size(text).filter(|len| (1..=1 << 24).contains(len));
    len.map(LengthMix::Fixed)
        .ok_or_else(|| wrong("mix", text, "rpc, or 1 to 16M bytes such as 256"))
}

impl SpliceCell {
    /// Bytes of every message; `None`: they differ.
    #[must_use]
    pub fn message_bytes(&self) -> Option<u32> {
        match self.lengths {
            LengthMix::Fixed(bytes) => Some(bytes),
            LengthMix::Rpc => None,
        }
    }

    /// The messages that it draws.
    #[must_use]
    pub fn draw(&self) -> Vec<PieceMessage> {
        self.lengths.messages(self.messages, self.seed, self.mtu_log2)
    }

    /// A run of it, which `cells` checked.
    pub fn start<'a>(&self, messages: &'a [PieceMessage]) -> Result<EngineRun<'a>, GridError> {
        let refused = |error| refused(&self.config, error);
        let engine = Engine::open(self.config).map_err(refused)?;
        EngineRun::new(engine, messages, self.disturbance).map_err(refused)
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    pub(crate) fn grid() -> SpliceGrid {
        SpliceGrid {
            schemes: vec!["fifo".to_owned()],
            mixes: vec!["rpc".to_owned()],
            widths: vec![64],
            rams: vec!["8K".to_owned()],
            handovers: vec![3],
            bubbles: vec![0.0],
            backpressures: vec![0.0],
            entries: vec![8],
            mtu: 4096,
            messages: 2000,
            seed: 11,
            too_long: "drop".to_owned(),
            reserve_issue: None,
        }
    }

    #[test]
    fn a_wrong_field_is_named_with_value_and_rule() {
        let one = |text: &str| vec![text.to_owned()];
        let wrong = [
            (
                SpliceGrid { rams: one("4032"), ..grid() },
                "ram \"4032 bytes\": want at least 4096 bytes",
            ),
            (SpliceGrid { rams: one("100"), ..grid() }, "ram \"100\": want bytes such as 8K"),
            (SpliceGrid { schemes: one("ring"), ..grid() }, "scheme \"ring\": want fifo"),
            (SpliceGrid { widths: vec![48], ..grid() }, "width \"48\": want 32, 64"),
            (SpliceGrid { mixes: one("many"), ..grid() }, "mix \"many\": want rpc"),
            (SpliceGrid { bubbles: vec![1.0], ..grid() }, "bubble \"1\": want 0 to 0.9"),
            (SpliceGrid { entries: vec![0], ..grid() }, "entries \"0\": want 1 to 65536"),
            (SpliceGrid { mtu: 1000, ..grid() }, "mtu \"1000\": want a power of two"),
            (SpliceGrid { messages: 0, ..grid() }, "messages \"0\": want 1 to"),
            (
                SpliceGrid { too_long: "wait".to_owned(), ..grid() },
                "too-long \"wait\": want drop or stop",
            ),
            (
                SpliceGrid { rams: one("4K"), reserve_issue: Some(9), ..grid() },
                "ram \"4096 bytes\": want",
            ),
        ];
        for (grid, text) in wrong {
            let error = grid.cells().expect_err("refused").to_string();
            assert!(error.starts_with(text), "{error}");
        }
    }

    #[test]
    fn room_reserved_on_issue_bounds_the_rate_by_latency() {
        let rate = |reserve_issue| {
            let cells = SpliceGrid { reserve_issue, ..grid() }.cells().expect("cells");
            let messages = cells[0].draw();
            let mut run = cells[0].start(&messages).expect("checked");
            run.finish(|_| {});
            let counters = run.engine().counters();
            counters.bytes as f64 / counters.cycles as f64
        };
        let (near, far) = (rate(Some(1)), rate(Some(512)));
        assert!(
            far <= 8192.0 / 512.0,
            "{far} bytes a cycle are more than the room over the latency"
        );
        assert!(near > 3.0 * far, "{near} {far}");
        assert!(rate(None) > 61.9);
    }
}
