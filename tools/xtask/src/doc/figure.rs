//! Drawings: text of box-drawing characters in, SVG out.
//!
//! *Owns*: which character is which stroke; sizes. *Takes*: the lines of a figure. *Gives*: one
//! `<svg>` element; its colours are those of the page (`docs/figures.css`). *Must not*: take a
//! letter or sign of a text for a stroke: only the characters of `strokes` draw.

use std::fmt::Write;

/// Width and height of a character cell in px, at a font size of 14 px.
const CELL: (f64, f64) = (8.4, 19.0);
/// Radius of the corners of boxes, in px.
const RADIUS: f64 = 5.0;
/// Half the width of an arrow head, in px.
const HEAD: f64 = 4.5;

const UP: u8 = 1;
const DOWN: u8 = 2;
const LEFT: u8 = 4;
const RIGHT: u8 = 8;
const DASHED: u8 = 16;
const HEADED: u8 = 32;

/// The strokes of a character, from the middle of its cell to the edges; 0 for text.
fn strokes(sign: char) -> u8 {
    match sign {
        '─' => LEFT | RIGHT,
        '│' => UP | DOWN,
        '┌' | '╭' => DOWN | RIGHT,
        '┐' | '╮' => DOWN | LEFT,
        '└' | '╰' => UP | RIGHT,
        '┘' | '╯' => UP | LEFT,
        '├' => UP | DOWN | RIGHT,
        '┤' => UP | DOWN | LEFT,
        '┬' => DOWN | LEFT | RIGHT,
        '┴' => UP | LEFT | RIGHT,
        '┼' => UP | DOWN | LEFT | RIGHT,
        '┄' => LEFT | RIGHT | DASHED,
        '┆' => UP | DOWN | DASHED,
        '►' | '◄' | '▲' | '▼' => HEADED,
        _ => 0,
    }
}

/// Where an arrow head points: cells to the right, cells down.
fn direction(sign: char) -> Option<(isize, isize)> {
    match sign {
        '►' => Some((1, 0)),
        '◄' => Some((-1, 0)),
        '▲' => Some((0, -1)),
        '▼' => Some((0, 1)),
        _ => None,
    }
}

/// A closed box, in cells; both corners belong to it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct FigureFrame {
    left: usize,
    top: usize,
    right: usize,
    bottom: usize,
}

impl FigureFrame {
    fn holds(&self, x: usize, y: usize) -> bool {
        (self.left + 1..self.right).contains(&x) && (self.top + 1..self.bottom).contains(&y)
    }
}

/// A run of text.
#[derive(Clone, PartialEq, Eq, Debug)]
struct FigureWords {
    x: usize,
    y: usize,
    text: String,
}

/// The cells of a figure.
#[derive(Debug)]
struct Grid {
    signs: Vec<Vec<char>>,
    strokes: Vec<Vec<u8>>,
}

impl Grid {
    fn of(text: &str) -> Self {
        let signs: Vec<Vec<char>> = text.trim_end().lines().map(|l| l.chars().collect()).collect();
        let strokes = signs.iter().map(|row| row.iter().map(|sign| strokes(*sign)).collect());
        let mut grid = Self { strokes: strokes.collect(), signs };
        // A head in a border: the border goes on below it.
        let heads: Vec<_> = grid.cells().filter(|(.., cell)| *cell == HEADED).collect();
        for (x, y, _) in heads {
            let beside = |dx, dy| step(x, y, (dx, dy)).map_or(0, |(x, y)| grid.at(x, y));
            let across = beside(-1, 0) & RIGHT != 0 && beside(1, 0) & LEFT != 0;
            let down = beside(0, -1) & DOWN != 0 && beside(0, 1) & UP != 0;
            match grid.direction(x, y) {
                Some((0, _)) if across => grid.strokes[y][x] |= LEFT | RIGHT,
                Some((_, 0)) if down => grid.strokes[y][x] |= UP | DOWN,
                _ => {}
            }
        }
        grid
    }

    fn direction(&self, x: usize, y: usize) -> Option<(isize, isize)> {
        direction(*self.signs.get(y)?.get(x)?)
    }

    fn at(&self, x: usize, y: usize) -> u8 {
        self.strokes.get(y).and_then(|row| row.get(x)).copied().unwrap_or(0)
    }

    fn width(&self) -> usize {
        self.signs.iter().map(Vec::len).max().unwrap_or(0)
    }

    fn cells(&self) -> impl Iterator<Item = (usize, usize, u8)> {
        let rows = self.strokes.iter().enumerate();
        rows.flat_map(|(y, row)| row.iter().enumerate().map(move |(x, cell)| (x, y, *cell)))
    }

    /// Closed boxes, those that hold others first.
    fn frames(&self) -> Vec<FigureFrame> {
        let corners = self.cells().filter(|(.., cell)| cell & 15 == DOWN | RIGHT);
        let mut frames: Vec<FigureFrame> =
            corners.filter_map(|(x, y, _)| self.frame(x, y)).collect();
        let area = |frame: &FigureFrame| (frame.right - frame.left) * (frame.bottom - frame.top);
        frames.sort_by_key(|frame| std::cmp::Reverse(area(frame)));
        frames
    }

    fn frame(&self, left: usize, top: usize) -> Option<FigureFrame> {
        let is_corner = |x, y, both| self.at(x, y) & 15 == both;
        let right = (left + 1..).take_while(|x| self.at(x - 1, top) & RIGHT != 0);
        let right = right.take_while(|x| self.at(*x, top) & LEFT != 0);
        let right = right.into_iter().find(|x| is_corner(*x, top, DOWN | LEFT))?;
        let bottom = (top + 1..).take_while(|y| self.at(left, y - 1) & DOWN != 0);
        let bottom = bottom.take_while(|y| self.at(left, *y) & UP != 0);
        let bottom = bottom.into_iter().find(|y| is_corner(left, *y, UP | RIGHT))?;
        let is_closed = is_corner(right, bottom, UP | LEFT)
            && (left + 1..right)
                .all(|x| self.at(x, bottom) & LEFT != 0 && self.at(x, bottom) & RIGHT != 0)
            && (top + 1..bottom)
                .all(|y| self.at(right, y) & UP != 0 && self.at(right, y) & DOWN != 0);
        is_closed.then_some(FigureFrame { left, top, right, bottom })
    }

    /// Takes the outline of a box away: it is drawn as one rectangle.
    fn clear(&mut self, frame: &FigureFrame) {
        let mut take = |x: usize, y: usize, strokes: u8| self.strokes[y][x] &= !strokes;
        for x in frame.left..=frame.right {
            for y in [frame.top, frame.bottom] {
                take(x, y, if x > frame.left { LEFT } else { 0 });
                take(x, y, if x < frame.right { RIGHT } else { 0 });
            }
        }
        for y in frame.top..=frame.bottom {
            for x in [frame.left, frame.right] {
                take(x, y, if y > frame.top { UP } else { 0 });
                take(x, y, if y < frame.bottom { DOWN } else { 0 });
            }
        }
    }

    /// Runs of text; two blanks end one.
    fn words(&self) -> Vec<FigureWords> {
        let mut all = Vec::new();
        for (y, row) in self.signs.iter().enumerate() {
            let is_text = |x: usize| row.get(x).is_some_and(|s| *s != ' ' && strokes(*s) == 0);
            let mut x = 0;
            while x < row.len() {
                if !is_text(x) {
                    x += 1;
                    continue;
                }
                let end = (x..).find(|at| !is_text(*at) && !is_text(at + 1)).unwrap_or(x);
                let end = (x..=end)
                    .find(|at| row.get(*at).is_none_or(|s| strokes(*s) != 0))
                    .unwrap_or(end);
                let text: String = row[x..end].iter().collect();
                all.push(FigureWords { x, y, text: text.trim_end().to_owned() });
                x = end;
            }
        }
        all
    }
}

/// Draws `text`; `title` says in words what it shows.
pub(super) fn svg(title: &str, text: &str) -> String {
    let mut grid = Grid::of(text);
    let (frames, words) = (grid.frames(), grid.words());
    let mut arrows = String::new();
    heads(&mut arrows, &grid);
    let (width, height) = (across(grid.width()), down(grid.signs.len()));
    let title = escaped(title);
    let mut out = format!(
        "<svg class=\"figure\" xmlns=\"http://www.w3.org/2000/svg\" role=\"img\" \
         aria-label=\"{title}\" viewBox=\"0 0 {width:.1} {height:.1}\" width=\"{width:.0}\">\n"
    );
    for frame in &frames {
        let (x, y) = (middle_x(frame.left), middle_y(frame.top));
        let (w, h) = (middle_x(frame.right) - x, middle_y(frame.bottom) - y);
        let depth = frames.iter().filter(|f| f.holds(frame.left, frame.top)).count();
        let dashed = grid.at(frame.left + 1, frame.top) & DASHED != 0;
        let class = match depth % 2 {
            _ if dashed => "planned",
            0 => "outer",
            _ => "inner",
        };
        line(
            &mut out,
            &format!(
                "<rect class=\"{class}\" x=\"{x:.1}\" y=\"{y:.1}\" width=\"{w:.1}\" \
             height=\"{h:.1}\" rx=\"{RADIUS}\"/>"
            ),
        );
        grid.clear(frame);
    }
    lines(&mut out, &grid);
    out.push_str(&arrows);
    for run in &words {
        let (x, y) = (across(run.x), middle_y(run.y) + 4.8);
        let length = across(run.text.chars().count());
        let class = if is_title(run, &words, &frames) { " class=\"title\"" } else { "" };
        let text = escaped(&run.text);
        line(
            &mut out,
            &format!(
                "<text{class} x=\"{x:.1}\" y=\"{y:.1}\" textLength=\"{length:.1}\">{text}</text>"
            ),
        );
    }
    out.push_str("</svg>");
    out
}

/// Whether a run is the first line of a box that has more lines.
fn is_title(run: &FigureWords, words: &[FigureWords], frames: &[FigureFrame]) -> bool {
    let inmost = |words: &FigureWords| frames.iter().rev().find(|f| f.holds(words.x, words.y));
    let Some(frame) = inmost(run) else { return false };
    run.y == frame.top + 1 && words.iter().any(|w| w.y > run.y && inmost(w) == Some(frame))
}

/// Straight strokes, as long as they go, and rounded corners.
fn lines(out: &mut String, grid: &Grid) {
    for dashed in [0, DASHED] {
        let class = if dashed == 0 { "line" } else { "dashed" };
        let has = |x, y, stroke| grid.at(x, y) & (stroke | DASHED) == stroke | dashed;
        for y in 0..grid.signs.len() {
            let halves = (0..2 * grid.width()).map(|half| {
                let stroke = if half % 2 == 0 { LEFT } else { RIGHT };
                has(half / 2, y, stroke)
            });
            for (from, to) in runs(halves) {
                let (a, b, at) = (half(from, CELL.0), half(to, CELL.0), middle_y(y));
                line(out, &format!("<path class=\"{class}\" d=\"M{a:.1} {at:.1}H{b:.1}\"/>"));
            }
        }
        for x in 0..grid.width() {
            let halves = (0..2 * grid.signs.len()).map(|half| {
                let stroke = if half % 2 == 0 { UP } else { DOWN };
                has(x, half / 2, stroke)
            });
            for (from, to) in runs(halves) {
                let (a, b, at) = (half(from, CELL.1), half(to, CELL.1), middle_x(x));
                line(out, &format!("<path class=\"{class}\" d=\"M{at:.1} {a:.1}V{b:.1}\"/>"));
            }
        }
    }
}

/// Runs of `true`: first, and one behind the last.
fn runs(halves: impl Iterator<Item = bool>) -> Vec<(usize, usize)> {
    let mut runs: Vec<(usize, usize)> = Vec::new();
    for at in halves.enumerate().filter_map(|(at, is)| is.then_some(at)) {
        match runs.last_mut() {
            Some((_, end)) if *end == at => *end += 1,
            _ => runs.push((at, at + 1)),
        }
    }
    runs
}

/// Arrow heads. The tip lies on the line that it points at: one in its own cell, or else one in the
/// next cell.
fn heads(out: &mut String, text: &Grid) {
    for (x, y, cell) in text.cells().filter(|(.., cell)| cell & HEADED != 0) {
        let Some((dx, dy)) = text.direction(x, y) else { continue };
        let next = step(x, y, (dx, dy)).map_or(0, |(x, y)| text.at(x, y));
        let reach = match (cell & 15, next & 15) {
            (0, 0) => 0.5,
            (0, _) => 1.0,
            _ => 0.0,
        };
        let (dx, dy) = (sign(dx), sign(dy));
        let (cx, cy) = (middle_x(x), middle_y(y));
        let (sx, sy) = (cx - dx * CELL.0 / 2.0, cy - dy * CELL.1 / 2.0);
        let (tx, ty) = (cx + dx * CELL.0 * reach, cy + dy * CELL.1 * reach);
        let (bx, by) = (tx - dx * 2.0 * HEAD, ty - dy * 2.0 * HEAD);
        if reach > 0.0 {
            line(out, &format!("<path class=\"line\" d=\"M{sx:.1} {sy:.1}L{bx:.1} {by:.1}\"/>"));
        }
        let (lx, ly) = (bx - dy * HEAD, by - dx * HEAD);
        let (rx, ry) = (bx + dy * HEAD, by + dx * HEAD);
        line(
            out,
            &format!(
                "<path class=\"head\" d=\"M{tx:.1} {ty:.1}L{lx:.1} {ly:.1}L{rx:.1} {ry:.1}Z\"/>"
            ),
        );
    }
}

/// The cell in that direction; `None` outside.
fn step(x: usize, y: usize, (dx, dy): (isize, isize)) -> Option<(usize, usize)> {
    Some((x.checked_add_signed(dx)?, y.checked_add_signed(dy)?))
}

fn sign(step: isize) -> f64 {
    if step < 0 {
        -1.0
    } else if step > 0 {
        1.0
    } else {
        0.0
    }
}

fn line(out: &mut String, text: &str) {
    // Writing to a string does not fail.
    let _ = writeln!(out, "{text}");
}

fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}

#[expect(clippy::cast_precision_loss, reason = "a figure has at most some hundred cells")]
fn scaled(count: usize, size: f64) -> f64 {
    count as f64 * size
}

fn across(cells: usize) -> f64 {
    scaled(cells, CELL.0)
}

fn down(cells: usize) -> f64 {
    scaled(cells, CELL.1)
}

fn half(halves: usize, size: f64) -> f64 {
    scaled(halves, size / 2.0)
}

fn middle_x(x: usize) -> f64 {
    across(x) + CELL.0 / 2.0
}

fn middle_y(y: usize) -> f64 {
    down(y) + CELL.1 / 2.0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn boxes_arrows_and_words_are_reported_apart() {
        let text = "┌───────┐    ┌──┐\n│ a-b/c ├───►│ d│\n│ x < y │    └──┘\n└───────┘\n";
        let grid = Grid::of(text);
        let left = FigureFrame { left: 0, top: 0, right: 8, bottom: 3 };
        let right = FigureFrame { left: 13, top: 0, right: 16, bottom: 2 };
        assert_eq!(grid.frames(), [left, right]);
        let words: Vec<_> = grid.words().into_iter().map(|w| (w.x, w.y, w.text)).collect();
        let expected = [(2, 1, "a-b/c"), (15, 1, "d"), (2, 2, "x < y")];
        assert_eq!(words, expected.map(|(x, y, text)| (x, y, text.to_owned())));
        let svg = svg("One & two", text);
        assert_eq!(svg.matches("<rect").count(), 2);
        assert_eq!(svg.matches("class=\"head\"").count(), 1);
        assert!(svg.contains("aria-label=\"One &amp; two\""), "{svg}");
        assert!(svg.contains("class=\"title\" x=\"16.8\""), "{svg}");
        assert!(svg.contains(">x &lt; y</text>"), "{svg}");
    }

    #[test]
    fn a_head_in_a_border_leaves_the_box_whole() {
        let down = svg("", "  │\n┌─▼─┐\n│ a │\n└───┘\n");
        assert_eq!(down.matches("<rect").count(), 1, "{down}");
        assert!(down.contains("class=\"head\" d=\"M21.0 28.5L"), "{down}");
        let right = svg("", "   ┌──┐\n───►a │\n   └──┘\n");
        assert_eq!(right.matches("<rect").count(), 1, "{right}");
    }

    #[test]
    fn a_line_of_many_cells_is_one_stroke_and_an_open_box_is_none() {
        let open = svg("", "┌───┐\n│   │\n└── ┘\n");
        assert_eq!(open.matches("<rect").count(), 0);
        assert_eq!(open.matches("class=\"line\"").count(), 5, "{open}");
        let dashed = svg("", "┄┄┄┄ a  b\n");
        assert_eq!(dashed.matches("class=\"dashed\"").count(), 1);
        assert_eq!(dashed.matches("<text").count(), 2);
    }
}
