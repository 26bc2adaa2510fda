//! The netlist of a design as yosys writes it.
//!
//! *Owns*: registers, memories, which register each next value is made from. *Takes*: JSON. *Gives*: names and
//! sizes. *Must not*: know a scheme.

use std::collections::{BTreeMap, BTreeSet};

use serde::Deserialize;
use serde_json::Value;

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
