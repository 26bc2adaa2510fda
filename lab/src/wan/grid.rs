//! The grid of an experiment: every combination of its lists, checked before the first one runs.
//!
//! - owns: parsing of lists, rules of a cell. takes: text. gives: cells, or the field that is wrong.
//! - must not: run anything.

use urma_recovery::{AdamapCfg, AdamapSizeError, AdamapSizes, CongestionChoice, DmaCfg, Recovery};

use super::cpu::CpuCosts;
use super::formula::PathNumbers;
use super::loss::LossCfg;
use super::path::RunCfg;
use crate::units::{self, GridError};

/// Bytes that the windows of a run may take.
const WINDOW_BYTES_MAX: f64 = 6e9;
/// Bytes of a slot in a send window, with those of the queues beside it.
const SLOT_BYTES: f64 = 48.0;
/// Cells of a grid.
const CELLS_MAX: usize = 100_000;

/// A strategy by its name.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct NamedStrategy {
    /// Name in options and results.
    pub name: &'static str,
    /// Both halves of the strategy.
    pub recovery: Recovery,
    /// Window in bandwidth-delay products; `None`: as the option says.
    pub bdps: Option<f64>,
}

/// All strategies with their names.
pub const STRATEGIES: [NamedStrategy; 4] = [
    NamedStrategy { name: "gbn", recovery: Recovery::GoBackN, bdps: Some(1.0) },
    NamedStrategy {
        name: "irn",
        recovery: Recovery::Irn { timeout_permille: 1200 },
        bdps: Some(1.0),
    },
    NamedStrategy { name: "seed", recovery: Recovery::Adamap(ADAMAP), bdps: None },
    NamedStrategy { name: "ours", recovery: Recovery::Knitting { tail_copies: 3 }, bdps: None },
];

/// Sizes of the Adamap design; its times follow from the path.
const ADAMAP: AdamapCfg = AdamapCfg {
    sizes: AdamapSizes { bits: 32, list_nodes: 3, watermark: 2, table_nodes: 2 },
    entry_timeout_ns: 0,
    entry_timeout_permille: 0,
    sender_timeout_ns: 0,
};

/// Most messages of a run.
const MESSAGES_MAX: u32 = 100_000;

/// The lists of a grid, as text.
#[derive(Clone, PartialEq, Debug)]
pub struct GridText {
    /// Rates of the link.
    pub rates: Vec<String>,
    /// Round-trip times without queues.
    pub rtts: Vec<String>,
    /// Loss models with their means.
    pub losses: Vec<String>,
    /// Bytes of payload that all TPs together send.
    pub sizes: Vec<String>,
    /// Numbers of TPs that share the link.
    pub tps: Vec<u32>,
    /// Names of the strategies.
    pub strategies: Vec<String>,
    /// Window in bandwidth-delay products, of strategies that have none of their own.
    pub window_bdps: Option<f64>,
    /// The same in packets, instead.
    pub window_packets: Option<u32>,
    /// Round trips before the first packet.
    pub setup: f64,
    /// Name of the senders' congestion control.
    pub congestion: String,
    /// What packets cost the ends, as [`CpuCosts`] are written; none: they take no time.
    pub cpu: Option<String>,
    /// Payload and header bytes of a packet.
    pub packet: (u64, u64),
    /// Part of the feedback that is lost.
    pub feedback_loss: f64,
    /// Part of the packets that is late, and by up to how many.
    pub late: (f64, u64),
    /// Latency of a DMA read.
    pub dma_latency: String,
    /// Messages of a run, one after the other.
    pub messages: u32,
    /// What senders expect of the path's loss: `learnt`, `learnt:P`, `oracle` or `off`.
    pub tail: String,
    /// DMA reads that may be under way.
    pub dma_reads: usize,
    /// One of so many DMA reads has no answer; 0: each has one.
    pub dma_silent: u64,
    /// Lines that the NIC holds for all TPs.
    pub nic_lines: usize,
    /// What the NIC holds of a TP in the Adamap design, as [`AdamapSizes`] are written.
    pub adamap: String,
    /// Transmissions after which a run ends.
    pub budget: u64,
}

impl Default for GridText {
    /// One cell, as `urma-lab wan` has it without options.
    fn default() -> Self {
        let list = |text: &str| vec![text.to_owned()];
        Self {
            rates: list("100G"),
            rtts: list("10ms"),
            losses: list("iid:0.01"),
            sizes: list("200MB"),
            tps: vec![1],
            strategies: list("ours"),
            window_bdps: None,
            window_packets: None,
            setup: 0.0,
            congestion: "none".to_owned(),
            cpu: None,
            packet: (4096, 82),
            feedback_loss: 0.0,
            late: (0.0, 64),
            dma_latency: "1us".to_owned(),
            messages: 1,
            tail: "learnt".to_owned(),
            dma_reads: 64,
            dma_silent: 0,
            nic_lines: 4096,
            adamap: "bits=32,list=3,watermark=2,table=2".to_owned(),
            budget: 20_000_000,
        }
    }
}

/// One combination of all lists.
#[derive(Clone, PartialEq, Debug)]
pub struct GridCell {
    /// Name of the strategy.
    pub strategy: &'static str,
    /// Loss model as text.
    pub loss: String,
    /// Payload in all, as the option gives it.
    pub size: String,
    /// The same in bytes.
    pub size_bytes: f64,
    /// Window in bandwidth-delay products.
    pub window_bdps: f64,
    /// The path for formulas.
    pub numbers: PathNumbers,
    /// What a run is made from.
    pub run: RunCfg,
}

pub(super) fn wrong(field: &'static str, value: impl ToString, want: impl ToString) -> GridError {
    GridError { field, value: value.to_string(), want: want.to_string() }
}

/// A number between two bounds.
pub(super) fn within(
    field: &'static str,
    text: &str,
    value: Result<f64, units::UnitError>,
    (least, most): (f64, f64),
    want: &str,
) -> Result<f64, GridError> {
    let value = value.map_err(|error| wrong(field, text, error.wanted))?;
    if (least..=most).contains(&value) { Ok(value) } else { Err(wrong(field, text, want)) }
}

/// A loss model with its mean.
pub(super) fn read_loss(text: &str) -> Result<LossCfg, GridError> {
    let want = "none, or one of iid, amazon, google, microsoft, ge with its mean: iid:0.01";
    let loss = LossCfg::parse(text).ok_or_else(|| wrong("loss", text, want))?;
    if (0.0..=0.5).contains(&loss.mean) {
        Ok(loss)
    } else {
        Err(wrong("loss", text, "a mean of 0 to 0.5"))
    }
}

/// Loss that senders expect of the path before they measured any, if they protect the tail.
pub(super) fn read_tail(tail: &str, loss: LossCfg) -> Result<Option<f64>, GridError> {
    Ok(match tail {
        "oracle" => Some(loss.mean),
        "learnt" => Some(0.0),
        "off" => None,
        other => {
            let given = other.strip_prefix("learnt:").and_then(|part| part.parse().ok());
            let given = given.filter(|part| (0.0..=0.5).contains(part));
            let want =
                "learnt, learnt:P with an estimate P of 0 to 0.5 to begin with, oracle or off";
            Some(given.ok_or_else(|| wrong("tail", other, want))?)
        }
    })
}

impl GridText {
    /// All cells, the last list fastest; every one is checked.
    pub fn cells(&self) -> Result<Vec<GridCell>, GridError> {
        let lists = [
            self.rates.len(),
            self.rtts.len(),
            self.losses.len(),
            self.sizes.len(),
            self.tps.len(),
            self.strategies.len(),
        ];
        let count = lists.iter().try_fold(1_usize, |all, len| all.checked_mul(*len));
        if count.is_none_or(|count| count == 0 || count > CELLS_MAX) {
            let want = format!("1 to {CELLS_MAX} combinations of all lists");
            return Err(wrong("grid", format!("{lists:?}"), want));
        }
        self.check_packet()?;
        if !(1..=MESSAGES_MAX).contains(&self.messages) {
            return Err(wrong("messages", self.messages, format!("1 to {MESSAGES_MAX}")));
        }
        let mut cells = Vec::new();
        for rate in &self.rates {
            let rate_bps = within("rate", rate, units::rate(rate), (1e6, 1e13), "1M to 10T")?;
            for rtt in &self.rtts {
                let rtt_ps = within("rtt", rtt, units::time(rtt), (1e6, 1e13), "1us to 10s")?;
                for loss in &self.losses {
                    let loss = read_loss(loss)?;
                    for size in &self.sizes {
                        let bytes = self.size(size, (rate_bps, rtt_ps), loss.mean)?;
                        for &tps in &self.tps {
                            for strategy in &self.strategies {
                                let path = (rate_bps, rtt_ps, loss);
                                cells.push(self.cell(path, (size, bytes), tps, strategy)?);
                            }
                        }
                    }
                }
            }
        }
        Ok(cells)
    }

    fn check_packet(&self) -> Result<(), GridError> {
        let (payload, overhead) = self.packet;
        if !(64..=65_536).contains(&payload) {
            return Err(wrong("payload", payload, "64 to 65536 bytes"));
        }
        if !(1..=1024).contains(&overhead) {
            return Err(wrong("overhead", overhead, "1 to 1024 bytes"));
        }
        for (field, part) in [("feedback-loss", self.feedback_loss), ("late", self.late.0)] {
            if !(0.0..=0.5).contains(&part) {
                return Err(wrong(field, part, "0 to 0.5"));
            }
        }
        if self.late.1 > 100_000 {
            return Err(wrong("late-by", self.late.1, "at most 100000 packets"));
        }
        if !(1..=4096).contains(&self.dma_reads) {
            return Err(wrong("dma-reads", self.dma_reads, "1 to 4096"));
        }
        if !(8..=1 << 20).contains(&self.nic_lines) {
            return Err(wrong("nic-lines", self.nic_lines, "8 to 1048576"));
        }
        self.adamap_sizes()?;
        if !(0.0..=100.0).contains(&self.setup) {
            return Err(wrong("setup", self.setup, "0 to 100 round trips"));
        }
        self.congestion()?;
        self.cpu()?;
        if self.budget == 0 {
            return Err(wrong("budget", self.budget, "at least 1 transmission"));
        }
        Ok(())
    }

    /// Bytes, as such, in bandwidth-delay products: `12bdp`, or so many that as many packets are lost: `100losses`.
    fn size(
        &self,
        text: &str,
        (rate_bps, rtt_ps): (f64, f64),
        loss: f64,
    ) -> Result<f64, GridError> {
        let (payload, overhead) = self.packet;
        let bdp = rate_bps * rtt_ps / 8e12 * payload as f64 / (payload + overhead) as f64;
        let count = |suffix: &str| text.strip_suffix(suffix).and_then(|n| n.parse::<f64>().ok());
        let bytes = match (count("bdp"), count("losses")) {
            (Some(count), _) => Ok(count * bdp),
            (None, Some(count)) => Ok(count / loss * payload as f64),
            (None, None) => units::bytes(text),
        };
        let want = "1B to 1000000GB, or such as 12bdp, or 100losses of a path that loses";
        within("size", text, bytes, (1.0, 1e15), want)
    }

    fn cell(
        &self,
        (rate_bps, rtt_ps, loss): (f64, f64, LossCfg),
        (size, size_bytes): (&str, f64),
        tps: u32,
        strategy: &str,
    ) -> Result<GridCell, GridError> {
        let (payload, overhead) = self.packet;
        let numbers = PathNumbers {
            rate_bps,
            rtt_s: rtt_ps / 1e12,
            loss: loss.mean,
            payload: payload as f64,
            wire: (payload + overhead) as f64,
        };
        let packets = (size_bytes / payload as f64).ceil();
        if !(1..=1_000_000).contains(&tps) {
            return Err(wrong("tps", tps, "1 to 1000000"));
        }
        if packets < f64::from(tps) {
            return Err(wrong("size", size, format!("at least a packet for each of {tps} TPs")));
        }
        let known: Vec<&str> = STRATEGIES.iter().map(|known| known.name).collect();
        let found = STRATEGIES.iter().find(|known| known.name == strategy);
        let named = found.ok_or_else(|| wrong("strategy", strategy, known.join(", ")))?;
        let (window_bdps, window) = self.window(named, &numbers, (packets, tps))?;
        let latency = within(
            "dma-latency",
            &self.dma_latency,
            units::time(&self.dma_latency),
            (0.0, 1e12),
            "0ns to 1s",
        )?;
        let latency_ns = whole(latency / 1000.0);
        let dma = DmaCfg {
            latency_ns,
            line_ps: 5500,
            outstanding_max: self.dma_reads,
            silent_every: self.dma_silent,
            ..DmaCfg::default()
        };
        Ok(GridCell {
            strategy: named.name,
            loss: loss.name(),
            size: size.to_owned(),
            size_bytes,
            window_bdps,
            numbers,
            run: RunCfg {
                rate_bps,
                rtt_ps: whole(rtt_ps),
                loss,
                feedback_loss: self.feedback_loss,
                late: self.late,
                payload,
                overhead,
                packets: whole(packets),
                messages: self.messages,
                tps,
                window_packets: window,
                expected_loss: read_tail(&self.tail, loss)?
                    .filter(|_| matches!(named.recovery, Recovery::Knitting { .. })),
                recovery: self.recovery(named.recovery, whole(rtt_ps / 1000.0)),
                setup_ps: whole(self.setup * rtt_ps),
                congestion: self.congestion()?,
                cpu: self.cpu()?,
                dma,
                nic_lines: self.nic_lines,
                budget: self.budget,
            },
        })
    }

    fn congestion(&self) -> Result<CongestionChoice, GridError> {
        let all = CongestionChoice::ALL;
        let found = all.into_iter().find(|choice| choice.name() == self.congestion);
        let names = all.map(CongestionChoice::name).join(", ");
        found.ok_or_else(|| wrong("congestion", &self.congestion, names))
    }

    fn cpu(&self) -> Result<Option<CpuCosts>, GridError> {
        let read = |text: &String| {
            let want = |error| format!("such as send=700ns,receive=650ns,repair=40ns; {error}");
            CpuCosts::parse(text).map_err(|error| wrong("cpu", text, want(error)))
        };
        self.cpu.as_ref().map(read).transpose()
    }

    fn adamap_sizes(&self) -> Result<AdamapSizes, GridError> {
        let want = "such as bits=32,list=3,watermark=2,table=2";
        self.adamap.parse().map_err(|error: AdamapSizeError| {
            wrong("adamap", &self.adamap, format!("{want}; {error}"))
        })
    }

    /// The strategy with its times for this path.
    fn recovery(&self, recovery: Recovery, rtt_ns: u64) -> Recovery {
        let Recovery::Adamap(cfg) = recovery else { return recovery };
        // The grid was checked before.
        let sizes = self.adamap_sizes().unwrap_or_default();
        Recovery::Adamap(AdamapCfg {
            sizes,
            entry_timeout_ns: rtt_ns + 500_000,
            sender_timeout_ns: (rtt_ns + 1_000_000).max(4_000_000),
            ..cfg
        })
    }

    /// Window of each TP, in bandwidth-delay products of the link and in packets.
    fn window(
        &self,
        named: &NamedStrategy,
        numbers: &PathNumbers,
        (packets, tps): (f64, u32),
    ) -> Result<(f64, u32), GridError> {
        if self.window_packets.is_some() && self.window_bdps.is_some() {
            let want = "either --window-packets or --window-bdps";
            return Err(wrong("window-packets", "both", want));
        }
        if self.window_packets == Some(0) {
            return Err(wrong("window-packets", 0, "at least 1 packet"));
        }
        let given = self.window_packets.map(|packets| f64::from(packets) / numbers.bdp_packets());
        let bdps = given.or(named.bdps).or(self.window_bdps);
        let bdps = bdps.unwrap_or_else(|| numbers.rounds(4.0 * numbers.bdp_packets()) + 4.0);
        if !(0.001..=1000.0).contains(&bdps) {
            return Err(wrong("window-bdps", bdps, "0.001 to 1000"));
        }
        // A packet on the link at either end, and acknowledgements that wait for 16 packets.
        let slack = if named.recovery == Recovery::GoBackN { 18.0 } else { 2.0 };
        let window = (bdps * numbers.bdp_packets()).ceil() + slack;
        let window = self.window_packets.map_or(window, f64::from);
        let most = (packets / f64::from(tps)).ceil().min(window);
        if most * f64::from(tps) * SLOT_BYTES > WINDOW_BYTES_MAX || most > f64::from(u32::MAX) {
            let want = format!("windows of at most {} GB in all", WINDOW_BYTES_MAX / 1e9);
            return Err(wrong("window-bdps", bdps, want));
        }
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "checked to be positive and below 2^32"
        )]
        let window = window.min(f64::from(u32::MAX)) as u32;
        Ok((bdps, window))
    }
}

#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "values were checked to be positive and below 2^53"
)]
pub(super) const fn whole(value: f64) -> u64 {
    value as u64
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    pub(crate) fn grid() -> GridText {
        GridText {
            tail: "oracle".to_owned(),
            adamap: String::new(),
            budget: 1000,
            ..GridText::default()
        }
    }

    #[test]
    fn every_combination_is_a_cell() {
        let mut grid = grid();
        grid.rates.push("400G".to_owned());
        grid.strategies.push("irn".to_owned());
        let cells = grid.cells().expect("a grid that makes sense");
        assert_eq!(cells.len(), 4);
        assert_eq!(cells[1].strategy, "irn");
        assert_eq!(cells[1].run.window_packets, 29_920 + 1);
    }

    /// A round trip and half a millisecond, a round trip and a millisecond, 4 ms at least.
    #[test]
    fn the_times_of_the_adamap_design_follow_the_path() {
        for (rtt, entry_ns, sender_ns) in [
            ("100us", 600_000, 4_000_000),
            ("3ms", 3_500_000, 4_000_000),
            ("4ms", 4_500_000, 5_000_000),
            ("10ms", 10_500_000, 11_000_000),
        ] {
            let rtts = vec![rtt.to_owned()];
            let (strategies, adamap) = (vec!["seed".to_owned()], "bits=16,list=2".to_owned());
            let grid = GridText { rtts, strategies, adamap, ..grid() };
            let cell = grid.cells().expect("a grid that makes sense").remove(0);
            let wanted = AdamapCfg {
                sizes: AdamapSizes { bits: 16, list_nodes: 2, watermark: 1, table_nodes: 2 },
                entry_timeout_ns: entry_ns,
                entry_timeout_permille: 0,
                sender_timeout_ns: sender_ns,
            };
            assert_eq!(cell.run.recovery, Recovery::Adamap(wanted), "{rtt}");
            assert_eq!(cell.run.expected_loss, None, "it protects no tail");
        }
    }

    #[test]
    fn a_size_may_be_bytes_products_or_losses() {
        let size = |size: &str, loss: &str| {
            let mut grid = grid();
            (grid.sizes[0], grid.losses[0]) = (size.to_owned(), loss.to_owned());
            grid.packet = (1000, 250);
            let cell = grid.cells().expect("a grid that makes sense").remove(0);
            (cell.size_bytes.round(), cell.run.packets)
        };
        // The last packet is a part of one.
        assert_eq!(size("2500B", "none"), (2500.0, 3));
        // 100 Gb/s for 10 ms are 125 MB on the wire, four fifths of them payload.
        assert_eq!(size("2bdp", "none"), (2e8, 200_000));
        // Of 5,000 packets 2 % are 100.
        assert_eq!(size("100losses", "iid:0.02"), (5e6, 5000));
    }

    #[test]
    fn what_makes_no_sense_is_refused_by_field_value_and_rule() {
        let refused = |change: &dyn Fn(&mut GridText)| {
            let mut grid = grid();
            change(&mut grid);
            grid.cells().expect_err("refused").field
        };
        assert_eq!(refused(&|grid| grid.rates[0] = "0G".to_owned()), "rate");
        assert_eq!(refused(&|grid| grid.rates[0] = "10".to_owned()), "rate");
        assert_eq!(refused(&|grid| grid.rtts[0] = "10".to_owned()), "rtt");
        assert_eq!(refused(&|grid| grid.losses[0] = "iid:2".to_owned()), "loss");
        assert_eq!(refused(&|grid| grid.losses[0] = "iid:NaN".to_owned()), "loss");
        assert_eq!(refused(&|grid| grid.sizes[0] = "0B".to_owned()), "size");
        assert_eq!(refused(&|grid| grid.sizes[0] = "NaNbdp".to_owned()), "size");
        assert_eq!(refused(&|grid| grid.sizes[0] = "0losses".to_owned()), "size");
        let lossless = |grid: &mut GridText| {
            grid.losses[0] = "none".to_owned();
            grid.sizes[0] = "9losses".to_owned();
        };
        assert_eq!(refused(&lossless), "size");
        assert_eq!(refused(&|grid| grid.rtts[0] = "0ms".to_owned()), "rtt");
        assert_eq!(refused(&|grid| grid.losses[0] = "iid:-0.1".to_owned()), "loss");
        assert_eq!(refused(&|grid| grid.nic_lines = 7), "nic-lines");
        assert_eq!(refused(&|grid| grid.tps[0] = 0), "tps");
        assert_eq!(refused(&|grid| grid.tps[0] = 100_000), "size");
        assert_eq!(refused(&|grid| grid.strategies[0] = "magic".to_owned()), "strategy");
        assert_eq!(refused(&|grid| grid.packet.0 = 1), "payload");
        assert_eq!(refused(&|grid| grid.packet.1 = 0), "overhead");
        assert_eq!(refused(&|grid| grid.feedback_loss = 1.5), "feedback-loss");
        assert_eq!(refused(&|grid| grid.late = (2.0, 1)), "late");
        assert_eq!(refused(&|grid| grid.late = (0.1, 1 << 40)), "late-by");
        assert_eq!(refused(&|grid| grid.window_bdps = Some(0.0)), "window-bdps");
        assert_eq!(refused(&|grid| grid.dma_latency = "1".to_owned()), "dma-latency");
        for tail in ["on", "known", "learnt:", "learnt:0.6", "learnt:-1", "learnt:NaN"] {
            assert_eq!(refused(&|grid| grid.tail = tail.to_owned()), "tail");
        }
        assert_eq!(refused(&|grid| grid.messages = 0), "messages");
        assert_eq!(refused(&|grid| grid.dma_reads = 0), "dma-reads");
        for adamap in ["bits=65", "list=0", "table=0", "list=3,watermark=3", "bits", "nodes=3"] {
            assert_eq!(refused(&|grid| grid.adamap = adamap.to_owned()), "adamap");
        }
        assert_eq!(refused(&|grid| grid.setup = -1.0), "setup");
        assert_eq!(refused(&|grid| grid.congestion = "fast".to_owned()), "congestion");
        assert_eq!(refused(&|grid| grid.cpu = Some("send=1".to_owned())), "cpu");
        assert_eq!(refused(&|grid| grid.window_packets = Some(0)), "window-packets");
        let both = |grid: &mut GridText| {
            (grid.window_packets, grid.window_bdps) = (Some(1), Some(1.0));
        };
        assert_eq!(refused(&both), "window-packets");
        assert_eq!(refused(&|grid| grid.budget = 0), "budget");
        assert_eq!(refused(&|grid| grid.losses.clear()), "grid");
        let beyond = |grid: &mut GridText| {
            grid.rates[0] = "400G".to_owned();
            grid.rtts[0] = "1s".to_owned();
            grid.sizes[0] = "1000000GB".to_owned();
            grid.window_bdps = Some(1000.0);
        };
        assert_eq!(refused(&beyond), "window-bdps");
    }

    /// A window takes as much as it can have packets in it, 48 bytes for each, and 6 GB in all.
    #[test]
    fn windows_take_no_more_memory_than_their_packets() {
        let window = |size: &str, tps: u32| {
            let mut grid = grid();
            (grid.rates[0], grid.rtts[0]) = ("400G".to_owned(), "1s".to_owned());
            (grid.sizes[0], grid.tps[0]) = (size.to_owned(), tps);
            grid.window_bdps = Some(1000.0);
            let cells = grid.cells().map_err(|error| error.field);
            cells.map(|cells| cells[0].run.window_packets)
        };
        // A thousand products are 12 billion packets: as many as a window counts.
        assert_eq!(window("4096B", 1), Ok(u32::MAX));
        // 125 million packets of 4,096 bytes.
        assert_eq!(window("512GB", 1), Ok(u32::MAX));
        assert_eq!(window("512.001GB", 1), Err("window-bdps"));
        assert_eq!(window("512GB", 1000), Ok(u32::MAX));
        // Each of a thousand has a part of a packet more.
        assert_eq!(window("512.001GB", 1000), Err("window-bdps"));
    }
}
