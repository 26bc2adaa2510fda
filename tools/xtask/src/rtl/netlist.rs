//! The netlist of a design as yosys writes it, and what each scheme costs in hardware by it.
//!
//! Cells are those of a generic library: their count must not be taken for an area.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    path::Path,
    process::Command,
};

use serde::Deserialize;
use serde_json::Value;

use super::{
    design::{self, Scheme},
    golden,
};
use crate::say::Failure;

/// A wire: a number, or a constant.
type WireNumber = u64;

#[derive(Debug, Deserialize)]
struct NetlistFile {
    modules: BTreeMap<String, NetlistModule>,
}

#[derive(Debug, Deserialize)]
struct NetlistModule {
    cells: BTreeMap<String, NetlistCell>,
    netnames: BTreeMap<String, NetName>,
}

#[derive(Debug, Deserialize)]
struct NetName {
    bits: Vec<Value>,
}

#[derive(Debug, Deserialize)]
struct NetlistCell {
    #[serde(rename = "type")]
    kind: String,
    parameters: BTreeMap<String, String>,
    port_directions: BTreeMap<String, String>,
    connections: BTreeMap<String, Vec<Value>>,
}

/// Registers and memories of one design.
#[derive(Debug, Default)]
pub(super) struct Netlist {
    /// Each register by name: its bits.
    pub(super) registers: BTreeMap<String, usize>,
    /// Each register by name: registers that its next value is made from.
    pub(super) sources: BTreeMap<String, BTreeSet<String>>,
    /// Registers that an address of a memory is made from.
    pub(super) addresses: BTreeSet<String>,
    /// Bits of all memories.
    pub(super) memory_bits: u64,
}

impl Netlist {
    /// Reads the netlist of the flat module `top`.
    pub(super) fn read(text: &str, top: &str) -> Result<Self, Failure> {
        let document: NetlistFile =
            serde_json::from_str(text).map_err(|error| Failure(format!("netlist: {error}")))?;
        // yosys puts the parameters before or behind the name of a module that it made.
        let module = document.modules.iter().find(|(name, _)| name.contains(top));
        let (_, module) = module.ok_or_else(|| Failure(format!("netlist: no module {top}")))?;
        let graph = WireGraph::new(module);
        let mut netlist = Self::default();
        for cell in module.cells.values() {
            if is_memory(cell) {
                netlist.memory_bits += number(cell, "SIZE") * number(cell, "WIDTH");
                let ports = ["RD_ADDR", "WR_ADDR", "RD_EN", "WR_EN"];
                netlist.addresses.extend(graph.registers_of(&wires(cell, &ports)));
            } else if is_register(cell) {
                netlist.register(cell, &graph);
            }
        }
        Ok(netlist)
    }

    /// A register, which yosys may hold in several cells.
    fn register(&mut self, cell: &NetlistCell, graph: &WireGraph<'_>) {
        let inputs = graph.registers_of(&inputs(cell));
        for wire in wires(cell, &["Q"]) {
            let Some(name) = graph.names.get(&wire) else { continue };
            *self.registers.entry(name.clone()).or_default() += 1;
            self.sources.entry(name.clone()).or_default().extend(inputs.iter().cloned());
        }
    }
}

/// Who drives each wire.
#[derive(Debug)]
struct WireGraph<'a> {
    drivers: BTreeMap<WireNumber, &'a NetlistCell>,
    /// Names of the wires of registers.
    names: BTreeMap<WireNumber, String>,
}

impl<'a> WireGraph<'a> {
    fn new(module: &'a NetlistModule) -> Self {
        let mut drivers = BTreeMap::new();
        let mut names: BTreeMap<WireNumber, String> = BTreeMap::new();
        for cell in module.cells.values() {
            let out = cell.port_directions.iter().filter(|(_, direction)| *direction == "output");
            let out = out.filter_map(|(port, _)| cell.connections.get(port)).flatten();
            drivers.extend(out.filter_map(Value::as_u64).map(|wire| (wire, cell)));
        }
        for (name, net) in &module.netnames {
            for wire in net.bits.iter().filter_map(Value::as_u64) {
                let is_q = drivers.get(&wire).is_some_and(|cell| is_register(cell));
                // Of several names, a register is declared with the longest path.
                if is_q && names.get(&wire).is_none_or(|known| rank(name) > rank(known)) {
                    names.insert(wire, name.clone());
                }
            }
        }
        Self { drivers, names }
    }

    /// Registers that `wires` are made from, through gates alone.
    fn registers_of(&self, wires: &[WireNumber]) -> BTreeSet<String> {
        let (mut waiting, mut seen) = (wires.to_vec(), BTreeSet::new());
        let mut found = BTreeSet::new();
        while let Some(wire) = waiting.pop() {
            if !seen.insert(wire) {
                continue;
            }
            match self.drivers.get(&wire) {
                Some(cell) if is_register(cell) => found.extend(self.names.get(&wire).cloned()),
                // What a memory holds is no control.
                Some(cell) if !is_memory(cell) => waiting.extend(inputs(cell)),
                _ => {}
            }
        }
        found
    }
}

/// Declared names before made ones, deep ones before shallow ones.
fn rank(name: &str) -> (bool, usize) {
    (!name.contains('$'), name.matches('.').count())
}

fn is_register(cell: &NetlistCell) -> bool {
    ["$dff", "$sdff", "$dffe", "$sdffe", "$sdffce"].contains(&cell.kind.as_str())
}

fn is_memory(cell: &NetlistCell) -> bool {
    cell.kind.starts_with("$mem")
}

fn wires(cell: &NetlistCell, ports: &[&str]) -> Vec<WireNumber> {
    let bits = ports.iter().filter_map(|port| cell.connections.get(*port)).flatten();
    bits.filter_map(Value::as_u64).collect()
}

/// Wires of all inputs but the clock.
fn inputs(cell: &NetlistCell) -> Vec<WireNumber> {
    let ports = cell.port_directions.iter();
    let ports = ports.filter(|(port, direction)| *direction == "input" && *port != "CLK");
    let ports: Vec<&str> = ports.map(|(port, _)| port.as_str()).collect();
    wires(cell, &ports)
}

/// A parameter, which yosys writes in binary digits.
fn number(cell: &NetlistCell, name: &str) -> u64 {
    let text = cell.parameters.get(name).map_or("", String::as_str);
    u64::from_str_radix(text, 2).unwrap_or(0)
}

/// Bytes of data memory that each scheme is built with: those of the figures of the models.
const BYTES: [(Scheme, u32); 3] =
    [(Scheme::Fifo, 8 << 10), (Scheme::Pingpong, 128 << 10), (Scheme::Single, 128 << 10)];
/// Bytes per beat of the table.
const WIDTH: u32 = 64;
/// States of a message in schemes 1 and 2.
const BUFFER_STATES: usize = 4;

/// Costs of one scheme.
#[derive(Debug)]
struct Costs {
    scheme: Scheme,
    bytes: u32,
    cells: usize,
    control_cells: usize,
    netlist: Netlist,
}

/// The table of all schemes.
pub(super) fn table() -> Result<String, Failure> {
    let work = design::work("area")?;
    let costs = BYTES.map(|(scheme, bytes)| costs(scheme, bytes, &work));
    let costs = costs.into_iter().collect::<Result<Vec<Costs>, Failure>>()?;
    let title = |cost: &Costs| format!("{}, {} KiB", cost.scheme.name(), cost.bytes >> 10);
    let mut lines = vec![row("at 64 bytes per beat", &costs, title), "|---".repeat(4) + "|"];
    lines.push(row("cells without memories", &costs, |cost| cost.cells.to_string()));
    lines.push(row("of these behind splice", &costs, |cost| cost.control_cells.to_string()));
    lines.push(row("register bits", &costs, |cost| {
        cost.netlist.registers.values().sum::<usize>().to_string()
    }));
    lines.push(row("memory bits", &costs, |cost| cost.netlist.memory_bits.to_string()));
    lines.push(row("states of message control", &costs, |cost| states(cost).to_string()));
    lines.push(row("registers with a next value from both messages", &costs, |cost| {
        let both = both(cost);
        let bits: usize = both.iter().filter_map(|name| cost.netlist.registers.get(*name)).sum();
        format!("{} ({bits} bits)", both.len())
    }));
    lines.push(row("registers that feed memory addresses", &costs, |cost| {
        let feeding = &cost.netlist.addresses;
        let bits: usize = feeding.iter().filter_map(|name| cost.netlist.registers.get(name)).sum();
        format!("{} ({bits} bits)", feeding.len())
    }));
    Ok(lines.join("\n"))
}

fn row(name: &str, costs: &[Costs], value: impl Fn(&Costs) -> String) -> String {
    let values: Vec<String> = costs.iter().map(value).collect();
    format!("| {name} | {} |", values.join(" | "))
}

fn costs(scheme: Scheme, bytes: u32, work: &Path) -> Result<Costs, Failure> {
    let (top, depth) = (scheme.top(), bytes / WIDTH);
    let set = format!("chparam -set W {WIDTH} -set D {depth} {top}");
    let json = work.join(scheme.name()).with_extension("json");
    yosys(
        work,
        &format!(
            "{set}; hierarchy -top {top}; proc; flatten; opt -full; memory -nomap; opt_clean; write_json {}",
            json.display()
        ),
    )?;
    let text = fs::read_to_string(&json).map_err(Failure::system("reading a netlist"))?;
    let cells = |boxes: &str| -> Result<usize, Failure> {
        let found = yosys(
            work,
            &format!(
                "{set}; blackbox {boxes}; hierarchy -top {top}; synth -flatten -noabc -noshare; tee -a /dev/stdout stat"
            ),
        )?;
        let mut lines =
            found.lines().filter_map(|line| line.trim().strip_prefix("Number of cells:"));
        let count = lines.next_back().and_then(|count| count.trim().parse().ok());
        count.ok_or_else(|| Failure("yosys printed no number of cells".to_owned()))
    };
    Ok(Costs {
        scheme,
        bytes,
        cells: cells("urma_ram")?,
        control_cells: cells("urma_ram urma_splice")?,
        netlist: Netlist::read(&text, &top)?,
    })
}

fn yosys(work: &Path, script: &str) -> Result<String, Failure> {
    let mut command = Command::new("yosys");
    command.args(["-q", "-f", "verilog -sv", "-p", script]);
    command.args(design::sources(&design::folder())?);
    golden::of(command, work)
}

/// Registers whose next value is made from registers of both messages.
fn both(cost: &Costs) -> Vec<&str> {
    let sources = cost.netlist.sources.iter();
    let is_of = |made_from: &BTreeSet<String>, part: &[&str]| {
        made_from.iter().any(|name| part.iter().any(|own| name.contains(own)))
    };
    let (one, other) = messages(cost.scheme);
    let both = sources.filter(|(_, made_from)| is_of(made_from, one) && is_of(made_from, other));
    both.map(|(name, _)| name.as_str()).collect()
}

/// Parts of the names of the registers that belong to either message: in scheme 3 those of the message that is
/// written and of the one that is read, in the others those of both controls.
const fn messages(scheme: Scheme) -> (&'static [&'static str], &'static [&'static str]) {
    match scheme {
        Scheme::Fifo => (&["splice.", "store.cut", "store.index"], &["store.reader."]),
        Scheme::Pingpong => (&["ctrl[0]."], &["ctrl[1]."]),
        Scheme::Single => {
            (&["ctrl[0].", "start_0", "length_0"], &["ctrl[1].", "start_1", "length_1"])
        }
    }
}

/// Combinations of the state registers that say what happens to the messages: in scheme 3 a packet is read or
/// not; in the others the states of both controls, which is written, which is read, whether one is open.
const fn states(cost: &Costs) -> usize {
    match cost.scheme {
        Scheme::Fifo => 2,
        Scheme::Pingpong | Scheme::Single => BUFFER_STATES * BUFFER_STATES * 2 * 2 * 2,
    }
}
