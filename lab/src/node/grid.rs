//! The grid of the experiment `node`: every combination of its lists, checked before the first one runs.
//!
//! - owns: parsing, ranges, the fabric of a cell. takes: text. gives: cells, or the field that is wrong. must not: run anything.

use ubcore_sim::link::FaultCfg;
use ubcore_sim::node::{self, NodeCfg};
use ubcore_sim::sim::{FabricCfg, HostSharing};
use ubcore_sim::{CongestionChoice, Strategy};

use crate::units::{self, GridError, UnitError};

/// Most cells of a grid.
const CELLS_MAX: usize = 10_000;
/// Most nodes of a fabric.
const NODES_MAX: u32 = 16;
/// Most requests of a node.
const REQUESTS_MAX: u32 = 1_000_000;
/// Most requests of a node that are under way.
const DEPTH_MAX: u32 = 256;
/// Fewest and most bytes of a request.
const SIZES: std::ops::RangeInclusive<u32> = 8..=1 << 20;
/// Most bytes of memory that all nodes of a run register.
const MEMORY_MAX: u64 = 1 << 30;
/// Most restarts of a run.
const RESTARTS_MAX: u32 = 100;
/// Longest delay of a link, and longest time that a datagram is held back, in ns.
const DELAY_MAX_NS: u64 = 1_000_000_000;
/// Longest bound of a run, in ns.
const BOUND_MAX_NS: u64 = 86_400_000_000_000;
/// Queue in front of a rate limit, as the time to drain it in ms.
const QUEUE_MS: u64 = 50;

/// The lists of a grid, as text.
#[derive(Clone, PartialEq, Debug)]
pub struct NodeGrid {
    /// How many nodes there are.
    pub nodes: Vec<u32>,
    /// Which nodes share a host: `own`, `pairs` or `one`.
    pub hosts: Vec<String>,
    /// What requests do: `all`, or one of `write`, `read`, `send` and `add`.
    pub mixes: Vec<String>,
    /// Chances that a datagram is lost.
    pub losses: Vec<String>,
    /// Chances that a datagram begins a burst of losses.
    pub bursts: Vec<String>,
    /// Chances that a datagram comes twice.
    pub duplicates: Vec<String>,
    /// Chances that a datagram is held back.
    pub reorders: Vec<String>,
    /// Chances that a bit of a datagram flips.
    pub corrupts: Vec<String>,
    /// One-way delays of the network.
    pub delays: Vec<String>,
    /// Loss recovery of the nodes.
    pub strategies: Vec<String>,
    /// Congestion control of the nodes.
    pub congestions: Vec<String>,
    /// How often a node dies and comes back.
    pub restarts: Vec<u32>,
    /// What all cells have in common.
    pub common: NodeCommon,
}

/// Options that are no lists.
#[derive(Clone, PartialEq, Debug)]
pub struct NodeCommon {
    /// Mean length of a burst of losses in datagrams.
    pub burst_length: u32,
    /// Longest time that a datagram is held back.
    pub reorder_by: String,
    /// Largest extra delay that keeps the order.
    pub jitter: String,
    /// Rate of each direction; `None`: no limit.
    pub rate: Option<String>,
    /// Requests of each node.
    pub requests: u32,
    /// Requests of a node that are under way.
    pub depth: u32,
    /// Most bytes of a request.
    pub size: u32,
    /// Path MTU in bytes.
    pub mtu: u32,
    /// Longest time that a node is dead.
    pub down: String,
    /// Virtual time in which all requests must end.
    pub bound: String,
}

/// What the requests of a run do.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum NodeMix {
    /// Each kind, a quarter of the requests.
    All,
    /// Writes to a peer.
    Write,
    /// Reads from a peer.
    Read,
    /// Messages to a peer.
    Send,
    /// Atomic additions at a peer.
    Add,
}

impl NodeMix {
    const ALL: [(&str, Self); 5] = [
        ("all", Self::All),
        ("write", Self::Write),
        ("read", Self::Read),
        ("send", Self::Send),
        ("add", Self::Add),
    ];

    /// Its name in options.
    #[must_use]
    pub fn name(self) -> &'static str {
        Self::ALL.iter().find(|(_, mix)| *mix == self).map_or("", |(name, _)| name)
    }
}

/// Names of [`HostSharing`] in options.
const HOSTS: [(&str, HostSharing); 3] =
    [("own", HostSharing::Packets), ("pairs", HostSharing::Mixed), ("one", HostSharing::SameHost)];

/// One combination of all lists.
#[derive(Clone, PartialEq, Debug)]
pub struct NodeCell {
    /// How many nodes it has.
    pub nodes: u8,
    /// Which of them share a host.
    pub hosts: HostSharing,
    /// What its requests do.
    pub mix: NodeMix,
    /// Faults of the network.
    pub faults: FaultCfg,
    /// Loss recovery of the nodes.
    pub strategy: Strategy,
    /// Congestion control of the nodes.
    pub congestion: CongestionChoice,
    /// How often a node dies and comes back.
    pub restarts: u32,
    /// Requests of each node.
    pub requests: u32,
    /// Requests of a node that are under way.
    pub depth: u32,
    /// Most bytes of a request.
    pub size: u32,
    /// Path MTU in bytes.
    pub mtu: u32,
    /// Longest time that a node is dead, in ns.
    pub down_ns: u64,
    /// Virtual time in which all requests must end, in ns.
    pub bound_ns: u64,
}

fn wrong(field: &'static str, value: impl ToString, want: impl ToString) -> GridError {
    GridError { field, value: value.to_string(), want: want.to_string() }
}

/// Reads a chance in parts per million: `0.01` or `1%`.
fn chance(field: &'static str, text: &str) -> Result<u32, GridError> {
    let (digits, scale) = text.strip_suffix('%').map_or((text, 1e6), |digits| (digits, 1e4));
    let ppm = digits.parse::<f64>().ok().map(|number| number * scale);
    let ppm = ppm.filter(|ppm| (0.0..=500_000.0).contains(ppm));
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "at most 500,000")]
    ppm.map(|ppm| ppm.round() as u32)
        .ok_or_else(|| wrong(field, text, "0 to 0.5, or 0% to 50%, of the datagrams"))
}

/// Reads a time in ns.
fn time(field: &'static str, text: &str, most_ns: u64) -> Result<u64, GridError> {
    let ps = units::time(text).map_err(|UnitError { wanted, .. }| wrong(field, text, wanted))?;
    let ns = (ps / 1e3).round();
    if !(0.0..=most_ns as f64).contains(&ns) {
        let want = format!("0ns to {}ms", most_ns / 1_000_000);
        return Err(wrong(field, text, want));
    }
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "it is in range")]
    Ok(ns as u64)
}

/// The value with this name.
fn named<T: Copy>(field: &'static str, text: &str, all: &[(&str, T)]) -> Result<T, GridError> {
    let found = all.iter().find(|(name, _)| *name == text).map(|(_, value)| *value);
    found.ok_or_else(|| {
        let names: Vec<&str> = all.iter().map(|(name, _)| *name).collect();
        wrong(field, text, names.join(", "))
    })
}

fn within(
    field: &'static str,
    value: u32,
    range: std::ops::RangeInclusive<u32>,
) -> Result<u32, GridError> {
    let want = || format!("{} to {}", range.start(), range.end());
    if range.contains(&value) { Ok(value) } else { Err(wrong(field, value, want())) }
}

/// Crosses what there is so far with another list.
fn crossed<A: Clone, B: Copy>(
    so_far: Vec<A>,
    list: &[B],
    with: impl Fn(&mut A, B),
) -> Result<Vec<A>, GridError> {
    let count = so_far.len().saturating_mul(list.len());
    if !(1..=CELLS_MAX).contains(&count) {
        return Err(wrong("grid", format!("{count} cells"), format!("1 to {CELLS_MAX} cells")));
    }
    let each = |cell: A| {
        let with = &with;
        list.iter().map(move |value| {
            let mut cell = cell.clone();
            with(&mut cell, *value);
            cell
        })
    };
    Ok(so_far.into_iter().flat_map(each).collect())
}

/// Values of a list of texts.
fn all<T>(
    texts: &[String],
    of: impl Fn(&str) -> Result<T, GridError>,
) -> Result<Vec<T>, GridError> {
    texts.iter().map(|text| of(text)).collect()
}

impl NodeGrid {
    /// All cells, the last list fastest; every one is checked.
    pub fn cells(&self) -> Result<Vec<NodeCell>, GridError> {
        let base = self.common.base()?;
        let nodes: Vec<u8> = self
            .nodes
            .iter()
            .map(|nodes| Ok(u8::try_from(within("nodes", *nodes, 2..=NODES_MAX)?).unwrap_or(2)))
            .collect::<Result<_, GridError>>()?;
        let hosts = all(&self.hosts, |text| named("hosts", text, &HOSTS))?;
        let mixes = all(&self.mixes, |text| named("mix", text, &NodeMix::ALL))?;
        let ppm = |field, texts: &[String]| all(texts, |text| chance(field, text));
        let delays = all(&self.delays, |text| time("delay", text, DELAY_MAX_NS))?;
        let strategies = Strategy::ALL.map(|strategy| (strategy.name(), strategy));
        let strategies = all(&self.strategies, |text| named("strategy", text, &strategies))?;
        let controls = CongestionChoice::ALL.map(|control| (control.name(), control));
        let controls = all(&self.congestions, |text| named("congestion", text, &controls))?;
        for restarts in &self.restarts {
            within("restarts", *restarts, 0..=RESTARTS_MAX)?;
        }
        let cells = crossed(vec![base], &nodes, |cell, nodes| cell.nodes = nodes)?;
        let cells = crossed(cells, &hosts, |cell, hosts| cell.hosts = hosts)?;
        let cells = crossed(cells, &mixes, |cell, mix| cell.mix = mix)?;
        let cells = crossed(cells, &delays, |cell, ns| cell.faults.delay_ns = ns)?;
        let list = ppm("duplicate", &self.duplicates)?;
        let cells = crossed(cells, &list, |cell, ppm| cell.faults.duplicate_ppm = ppm)?;
        let list = ppm("reorder", &self.reorders)?;
        let cells = crossed(cells, &list, |cell, ppm| cell.faults.reorder_ppm = ppm)?;
        let list = ppm("corrupt", &self.corrupts)?;
        let cells = crossed(cells, &list, |cell, ppm| cell.faults.corrupt_ppm = ppm)?;
        let list = ppm("burst", &self.bursts)?;
        let cells = crossed(cells, &list, |cell, ppm| cell.faults.burst_ppm = ppm)?;
        let list = ppm("loss", &self.losses)?;
        let cells = crossed(cells, &list, |cell, ppm| cell.faults.loss_ppm = ppm)?;
        let cells = crossed(cells, &self.restarts, |cell, restarts| cell.restarts = restarts)?;
        let cells = crossed(cells, &controls, |cell, choice| cell.congestion = choice)?;
        let cells = crossed(cells, &strategies, |cell, strategy| cell.strategy = strategy)?;
        cells.into_iter().map(NodeCell::checked).collect()
    }
}

impl NodeCommon {
    /// A cell of two nodes without faults, with what all cells have in common.
    fn base(&self) -> Result<NodeCell, GridError> {
        if !self.mtu.is_power_of_two() || !(256..=8192).contains(&self.mtu) {
            return Err(wrong("mtu", self.mtu, "a power of two, 256 to 8192"));
        }
        let rate = self.rate.as_deref().map(|text| {
            let bits = units::rate(text);
            let bits = bits.map_err(|UnitError { wanted, .. }| wrong("rate", text, wanted))?;
            let is_one = (1e6..=1e12).contains(&bits);
            if is_one { Ok(bits) } else { Err(wrong("rate", text, "1M to 1T")) }
        });
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "at most 1T")]
        let bytes_per_second = rate.transpose()?.map_or(0, |bits| (bits / 8.0) as u64);
        let faults = FaultCfg {
            jitter_ns: time("jitter", &self.jitter, DELAY_MAX_NS)?,
            reorder_ns: time("reorder-by", &self.reorder_by, DELAY_MAX_NS)?,
            burst_len: within("burst-length", self.burst_length, 1..=1_000_000)?,
            bytes_per_second,
            queue_bytes: bytes_per_second * QUEUE_MS / 1000,
            ..FaultCfg::default()
        };
        let bound_ns = time("bound", &self.bound, BOUND_MAX_NS)?;
        Ok(NodeCell {
            nodes: 2,
            hosts: HostSharing::Packets,
            mix: NodeMix::All,
            faults,
            strategy: Strategy::default(),
            congestion: CongestionChoice::default(),
            restarts: 0,
            requests: within("requests", self.requests, 1..=REQUESTS_MAX)?,
            depth: within("depth", self.depth, 1..=DEPTH_MAX)?,
            size: within("size", self.size, SIZES)?,
            mtu: self.mtu,
            down_ns: time("down", &self.down, BOUND_MAX_NS)?,
            bound_ns,
        })
    }
}

impl NodeCell {
    /// Its memory is that of a run.
    fn checked(self) -> Result<Self, GridError> {
        let nodes = u64::from(self.nodes);
        let slots = nodes * u64::from(self.depth) + u64::from(self.depth) + RECEIVES as u64;
        let bytes = nodes * slots * self.slot_len() as u64;
        if bytes > MEMORY_MAX {
            let Self { nodes, depth, size, .. } = self;
            let value = format!("{size} with {nodes} nodes and {depth} requests under way");
            let want = format!("nodes * (nodes + 1) * depth * size of at most {MEMORY_MAX} bytes");
            return Err(wrong("size", value, want));
        }
        Ok(self)
    }

    /// Bytes of a slot of memory, for one request.
    #[must_use]
    pub fn slot_len(&self) -> usize {
        (self.size as usize).next_multiple_of(64)
    }

    /// Which nodes share a host, as in options.
    #[must_use]
    pub fn hosts_name(&self) -> &'static str {
        HOSTS.iter().find(|(_, hosts)| *hosts == self.hosts).map_or("", |(name, _)| name)
    }

    /// The fabric of a run that keeps so many lines of its log.
    #[must_use]
    pub fn fabric(&self, seed: u64, log_lines: usize) -> FabricCfg {
        let mut fabric = FabricCfg::new(seed, self.nodes, self.hosts);
        fabric.faults = self.faults.clone();
        fabric.log_lines = log_lines;
        let congestion = self.congestion;
        let windows = node::windows(&NodeCfg { congestion, ..NodeCfg::default() }, None);
        for device in &mut fabric.devices {
            (device.mtu, device.strategy) = (self.mtu, self.strategy);
            device.congestion = congestion;
            (device.window_packets, device.path_packets) = windows;
        }
        fabric
    }
}

/// Receives that a node has posted.
pub const RECEIVES: usize = 128;

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    pub(crate) fn grid() -> NodeGrid {
        let one = |text: &str| vec![text.to_owned()];
        NodeGrid {
            nodes: vec![3],
            hosts: one("own"),
            mixes: one("all"),
            losses: one("0.02"),
            bursts: one("0"),
            duplicates: one("1%"),
            reorders: one("1%"),
            corrupts: one("0"),
            delays: one("10us"),
            strategies: one("knitting"),
            congestions: one("none"),
            restarts: vec![0],
            common: NodeCommon {
                burst_length: 10,
                reorder_by: "100us".to_owned(),
                jitter: "0us".to_owned(),
                rate: None,
                requests: 60,
                depth: 8,
                size: 3000,
                mtu: 1024,
                down: "5ms".to_owned(),
                bound: "60s".to_owned(),
            },
        }
    }

    #[test]
    fn options_are_those_of_the_fabric() {
        let common = NodeCommon { rate: Some("8G".to_owned()), ..grid().common };
        let text = |list: &[&str]| list.iter().map(|text| (*text).to_owned()).collect::<Vec<_>>();
        let losses = text(&["0", "0.5", "2.5%"]);
        let strategies = text(&["go-back-n", "irn"]);
        let grid = NodeGrid { losses, strategies, restarts: vec![0, 2], common, ..grid() };
        let cells = grid.cells().expect("a grid that makes sense");
        assert_eq!(cells.len(), 12);
        let ends: Vec<_> = cells
            .iter()
            .map(|cell| (cell.faults.loss_ppm, cell.restarts, cell.strategy.name()))
            .collect();
        assert_eq!(ends[..3], [(0, 0, "go-back-n"), (0, 0, "irn"), (0, 2, "go-back-n")]);
        assert_eq!((ends[4].0, ends[11]), (500_000, (25_000, 2, "irn")));
        let fabric = cells[11].fabric(7, 0);
        let wanted = FaultCfg {
            delay_ns: 10_000,
            loss_ppm: 25_000,
            duplicate_ppm: 10_000,
            reorder_ppm: 10_000,
            reorder_ns: 100_000,
            bytes_per_second: 1_000_000_000,
            queue_bytes: 50_000_000,
            burst_len: 10,
            ..FaultCfg::default()
        };
        assert_eq!((fabric.seed, fabric.faults), (7, wanted));
        let device = &fabric.devices[2];
        assert_eq!((fabric.devices.len(), device.mtu, device.strategy), (3, 1024, Strategy::Irn));
        let congestion = device.congestion;
        let of_a_node = node::windows(&NodeCfg { congestion, ..NodeCfg::default() }, None);
        assert_eq!((device.window_packets, device.path_packets), of_a_node);
        assert!(node::windows(&NodeCfg::default(), None).0 > 10_000, "enough for a long path");
    }

    #[test]
    fn a_wrong_field_is_named_with_value_and_range() {
        let one = |text: &str| vec![text.to_owned()];
        let common = |change: &dyn Fn(&mut NodeCommon)| {
            let mut grid = grid();
            change(&mut grid.common);
            grid
        };
        let wrong = [
            (NodeGrid { nodes: vec![1], ..grid() }, "nodes \"1\": want 2 to 16"),
            (NodeGrid { nodes: vec![2, 17], ..grid() }, "nodes \"17\": want 2 to 16"),
            (NodeGrid { hosts: one("two"), ..grid() }, "hosts \"two\": want own, pairs, one"),
            (NodeGrid { mixes: one("swap"), ..grid() }, "mix \"swap\": want all, write, read"),
            (
                NodeGrid { losses: one("0.6"), ..grid() },
                "loss \"0.6\": want 0 to 0.5, or 0% to 50%",
            ),
            (NodeGrid { losses: one("-1%"), ..grid() }, "loss \"-1%\": want 0 to 0.5"),
            (NodeGrid { bursts: one("NaN"), ..grid() }, "burst \"NaN\": want 0 to 0.5"),
            (NodeGrid { duplicates: one("x"), ..grid() }, "duplicate \"x\": want 0 to 0.5"),
            (NodeGrid { reorders: one(""), ..grid() }, "reorder \"\": want 0 to 0.5"),
            (NodeGrid { corrupts: one("51%"), ..grid() }, "corrupt \"51%\": want 0 to 0.5"),
            (NodeGrid { delays: one("10"), ..grid() }, "delay \"10\": want a time with its unit"),
            (NodeGrid { delays: one("2s"), ..grid() }, "delay \"2s\": want 0ns to 1000ms"),
            (
                NodeGrid { strategies: one("ours"), ..grid() },
                "strategy \"ours\": want knitting, seed, irn",
            ),
            (
                NodeGrid { congestions: one("bbr"), ..grid() },
                "congestion \"bbr\": want delay, cubic, none",
            ),
            (NodeGrid { restarts: vec![101], ..grid() }, "restarts \"101\": want 0 to 100"),
            (NodeGrid { restarts: vec![], ..grid() }, "grid \"0 cells\": want 1 to 10000 cells"),
            (NodeGrid { restarts: vec![1; 10_001], ..grid() }, "grid \"10001 cells\": want 1"),
            (common(&|c| c.jitter = "1".to_owned()), "jitter \"1\": want a time"),
            (common(&|c| c.reorder_by = "-1us".to_owned()), "reorder-by \"-1us\": want 0ns"),
            (common(&|c| c.burst_length = 0), "burst-length \"0\": want 1 to 1000000"),
            (common(&|c| c.rate = Some("10".to_owned())), "rate \"10\": want a rate"),
            (common(&|c| c.rate = Some("2T".to_owned())), "rate \"2T\": want 1M to 1T"),
            (common(&|c| c.requests = 0), "requests \"0\": want 1 to 1000000"),
            (common(&|c| c.depth = 257), "depth \"257\": want 1 to 256"),
            (common(&|c| c.size = 7), "size \"7\": want 8 to 1048576"),
            (common(&|c| c.mtu = 1000), "mtu \"1000\": want a power of two, 256 to 8192"),
            (common(&|c| c.down = "1".to_owned()), "down \"1\": want a time"),
            (common(&|c| c.bound = "2h".to_owned()), "bound \"2h\": want a time"),
            (
                common(&|c| (c.size, c.depth) = (1 << 20, 256)),
                "size \"1048576 with 3 nodes and 256 requests under way\": want nodes * (nodes + 1)",
            ),
        ];
        for (grid, text) in wrong {
            let error = grid.cells().expect_err("refused").to_string();
            assert!(error.starts_with(text), "{error}, not {text}");
        }
    }
}
