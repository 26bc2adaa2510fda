//! What each scheme costs in hardware, by yosys.
//!
//! *Owns*: the rows of the table. *Takes*: the designs. *Gives*: the table as Markdown. *Must not*: take a cell
//! count for an area: cells are those of a generic library.

use std::{fs, path::Path, process::Command};

use super::{
    design::{self, Scheme},
    netlist::Netlist,
    output,
};
use crate::say::Failure;

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
    output::of(command, work)
}

/// Registers whose next value is made from registers of both messages.
fn both(cost: &Costs) -> Vec<&str> {
    let sources = cost.netlist.sources.iter();
    let is_of = |made_from: &std::collections::BTreeSet<String>, part: &[&str]| {
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
