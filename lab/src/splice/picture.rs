//! The first cycles of engines, one above the other, as text and as SVG.
//!
//! - owns: signs, colours, places. takes: cells. gives: text. must not: leave out that it is a model.

use std::fmt::Write as _;

use super::cells::SpliceCell;
use crate::units::GridError;

/// Cycles that are shown.
pub const CYCLES: usize = 200;
/// Width and height of a cycle in px.
const CYCLE: (usize, usize) = (5, 16);
/// What the signs say.
const LEGEND: &str =
    "in: # accepted, . waits, space nothing offered; out: H header, = beat, space idle";

/// What one engine did: a sign per cycle for its input and its output.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct CycleRow {
    /// Scheme, mix and memory.
    pub name: String,
    /// Input: `#`, `.` or space.
    pub input: String,
    /// Output: `H`, `=` or space.
    pub output: String,
}

/// The first cycles of each cell.
pub fn rows(cells: &[SpliceCell]) -> Result<Vec<CycleRow>, GridError> {
    cells.iter().map(row).collect()
}

fn row(cell: &SpliceCell) -> Result<CycleRow, GridError> {
    let messages = cell.draw();
    let mut run = cell.start(&messages)?;
    let (mut input, mut output) = (String::new(), String::new());
    for _ in 0..CYCLES {
        let Ok(cycle) = run.step() else { break };
        input.push(match (cycle.offered.is_some(), cycle.output.in_ready) {
            (_, true) => '#',
            (true, false) => '.',
            (false, false) => ' ',
        });
        let transfer = (cycle.output.header.is_some(), cycle.output.beat.is_some());
        output.push(if transfer.0 {
            'H'
        } else if transfer.1 {
            '='
        } else {
            ' '
        });
    }
    let config = &cell.config;
    let ram = config.data_beats * config.beat_bytes;
    let name = format!("{} {} W {} RAM {ram}", config.scheme.name(), cell.mix, config.beat_bytes);
    Ok(CycleRow { name, input, output })
}

/// The picture as text.
#[must_use]
pub fn text(rows: &[CycleRow]) -> String {
    let mut text = format!("model: the first {CYCLES} cycles; {LEGEND}\n");
    for row in rows {
        let _ = write!(text, "{}\n in |{}|\nout |{}|\n", row.name, row.input, row.output);
    }
    text
}

/// The picture as SVG.
#[must_use]
pub fn svg(rows: &[CycleRow]) -> String {
    let (wide, high) = CYCLE;
    let (left, block) = (40, 3 * high + 14);
    let size = (left + CYCLES * wide + 10, 40 + rows.len() * block);
    let mut svg = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{}\" height=\"{}\" font-family=\"sans-serif\" font-size=\"12\">\n\
         <text x=\"8\" y=\"18\">model: the first {CYCLES} cycles; input: blue accepted, red waits; output: dark header, green beat</text>\n",
        size.0, size.1
    );
    for (number, row) in rows.iter().enumerate() {
        let top = 30 + number * block;
        let _ = writeln!(svg, "<text x=\"8\" y=\"{}\">{}</text>", top + 12, row.name);
        for (line, (label, signs)) in [("in", &row.input), ("out", &row.output)].iter().enumerate()
        {
            let y = top + 18 + line * (high + 2);
            let _ = writeln!(svg, "<text x=\"8\" y=\"{}\">{label}</text>", y + 12);
            for (cycle, sign) in signs.chars().enumerate() {
                let Some(colour) = colour(sign) else { continue };
                let x = left + cycle * wide;
                let _ = writeln!(
                    svg,
                    "<rect x=\"{x}\" y=\"{y}\" width=\"{}\" height=\"{high}\" fill=\"{colour}\"/>",
                    wide - 1
                );
            }
        }
    }
    svg.push_str("</svg>\n");
    svg
}

const fn colour(sign: char) -> Option<&'static str> {
    match sign {
        '#' => Some("#1f77b4"),
        '.' => Some("#d62728"),
        'H' => Some("#333333"),
        '=' => Some("#2ca02c"),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::super::cells::tests::grid;
    use super::*;

    #[test]
    fn the_picture_shows_what_banks_wait_for() {
        let mut grid = grid();
        grid.schemes = vec!["fifo".to_owned(), "pingpong".to_owned()];
        grid.mixes = vec!["256".to_owned()];
        let rows = rows(&grid.cells().expect("cells")).expect("rows");
        let idle = |row: &CycleRow| row.output.chars().filter(|sign| *sign == ' ').count();
        assert_eq!(rows[1].input.len(), CYCLES);
        assert!(idle(&rows[1]) > 2 * idle(&rows[0]), "{}", text(&rows));
        assert!(svg(&rows).contains("model") && text(&rows).contains("model"));
    }
}
