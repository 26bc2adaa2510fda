//! Makes the SVG of a plot much shorter, for pages that show it.
//!
//! - owns: which attributes say nothing, and what is drawn as one path. takes: what plotters writes, an element a line.
//!   gives: the same picture.
//! - must not: move anything by more than half a pixel.

use std::fmt::Write as _;
use std::mem;

/// Attributes that are the default, or that the root has for all, and shorter names of colours.
const SPARE: [(&str, &str); 7] = [
    (" opacity=\"1\"", ""),
    (" stroke=\"none\"", ""),
    (" stroke-width=\"1\"", ""),
    (" font-family=\"sans-serif\"", ""),
    (" fill=\"#000000\"", ""),
    ("#000000", "#000"),
    ("#FFFFFF", "#fff"),
];
/// Size of texts without one of their own, in px.
const TEXT_SIZE: i64 = 9;
/// What plotters puts below a text's place, in hundredths of the size: the height of letters is 52 of them.
const BELOW: [(&str, i64); 3] = [("0.76em", 76), ("0.5ex", 26), ("-0.5ex", -26)];

/// Class of dots, and their usual width in px.
const DOT: (&str, i64) = ("d", 6);

/// A place in px.
type PlotPlace = (i64, i64);

/// Attributes and content of elements of one kind that follow each other.
#[derive(Default)]
struct ElementRun {
    style: String,
    content: String,
}

/// Elements that wait for others of their kind.
#[derive(Default)]
struct CompactSvg {
    done: String,
    /// Lines of one style: a path.
    strokes: ElementRun,
    /// Where the path is.
    pen: PlotPlace,
    /// Texts of one anchor.
    texts: ElementRun,
}

/// The same picture on white ground, in fewer bytes.
#[must_use]
pub fn compact(svg: &str) -> String {
    let mut out = CompactSvg::default();
    let mut rest = svg;
    while let Some(line) = rest.lines().next() {
        rest = rest.get(line.len() + 1..).unwrap_or_default();
        if let Some((style, places)) = stroke(line) {
            out.stroke(&style, &places);
        } else if line.starts_with("<text ") {
            let (content, after) = rest.split_once("\n</text>\n").unwrap_or((rest, ""));
            out.text(line, content);
            rest = after;
        } else {
            out.end_runs();
            if line.starts_with("<svg ") {
                let root = format!(
                    "<svg font-family=\"sans-serif\" font-size=\"{TEXT_SIZE}\" style=\"background:#fff\" "
                );
                out.done += &line.replacen("<svg ", &root, 1);
                let (dot, width) = DOT;
                let _ = write!(
                    out.done,
                    "\n<style>path{{fill:none}}.{dot}{{stroke-width:{width};stroke-linecap:round}}</style>"
                );
            } else {
                out.done += &shorter(line);
            }
            out.done.push('\n');
        }
    }
    out.end_runs();
    out.done
}

impl CompactSvg {
    /// Adds a line through `places` to the path.
    fn stroke(&mut self, style: &str, places: &[PlotPlace]) {
        if self.strokes.style == style {
            self.move_by('m', places[0]);
        } else {
            self.end_strokes();
            style.clone_into(&mut self.strokes.style);
            self.pen = (0, 0);
            self.move_by('M', places[0]);
        }
        for place in &places[1..] {
            self.move_by('l', *place);
        }
    }

    /// Moves or draws to `place`: `h` and `v` have one number, of several `l` the first has the letter.
    fn move_by(&mut self, letter: char, place: PlotPlace) {
        let path = &mut self.strokes.content;
        let (right, down) = (place.0 - self.pen.0, place.1 - self.pen.1);
        self.pen = place;
        let _ = match (letter, right, down) {
            ('l', _, 0) => write!(path, "h{right}"),
            ('l', 0, _) => write!(path, "v{down}"),
            (_, _, ..0) => write!(path, "{letter}{right}{down}"),
            _ => write!(path, "{letter}{right} {down}"),
        };
    }

    /// Adds a text to those of the same anchor.
    fn text(&mut self, line: &str, content: &str) {
        let anchor = value(line, "text-anchor").unwrap_or("start");
        if self.texts.style != anchor {
            self.end_texts();
            anchor.clone_into(&mut self.texts.style);
        }
        let element = shorter(&placed(line).unwrap_or_else(|| line.to_owned()));
        let element = element.replace(&format!(" text-anchor=\"{anchor}\""), "");
        let _ = writeln!(self.texts.content, "{element}{content}</text>");
    }

    fn end_strokes(&mut self) {
        let ElementRun { style, content } = mem::take(&mut self.strokes);
        if !content.is_empty() {
            let _ = writeln!(self.done, "<path{style} d=\"{content}\"/>");
        }
    }

    fn end_texts(&mut self) {
        let ElementRun { style, content } = mem::take(&mut self.texts);
        if !content.is_empty() {
            let _ = writeln!(self.done, "<g text-anchor=\"{style}\">\n{content}</g>");
        }
    }

    fn end_runs(&mut self) {
        self.end_strokes();
        self.end_texts();
    }
}

fn shorter(line: &str) -> String {
    SPARE.iter().fold(line.to_owned(), |line, (spare, short)| line.replace(spare, short))
}

/// The text element with a size in whole px, and with what `dy` adds in its place.
fn placed(line: &str) -> Option<String> {
    let (size, y, dy) = (value(line, "font-size")?, value(line, "y")?, value(line, "dy")?);
    let whole: i64 = size.split('.').next()?.parse().ok()?;
    let (_, hundredths) = BELOW.iter().find(|(known, _)| *known == dy)?;
    let below = y.parse::<i64>().ok()? + (whole * hundredths + 50).div_euclid(100);
    let size_of = |size| format!(" font-size=\"{size}\"");
    let new = if whole == TEXT_SIZE { String::new() } else { size_of(whole.to_string()) };
    let line = line.replace(&format!(" y=\"{y}\" dy=\"{dy}\""), &format!(" y=\"{below}\""));
    Some(line.replace(&size_of(size.to_owned()), &new))
}

fn value<'l>(line: &'l str, name: &str) -> Option<&'l str> {
    let (_, rest) = line.split_once(&format!(" {name}=\""))?;
    rest.split_once('"').map(|(value, _)| value)
}

/// Style and places of a line, polyline or dot, which is a line without length and with round ends; `None`: it is
/// another element.
fn stroke(line: &str) -> Option<(String, Vec<PlotPlace>)> {
    let number = |name: &str| value(line, name)?.parse::<i64>().ok();
    let mut style = String::new();
    let places = if line.starts_with("<line ") {
        vec![(number("x1")?, number("y1")?), (number("x2")?, number("y2")?)]
    } else if line.starts_with("<polyline fill=\"none\" ") {
        let pair = |pair: &str| {
            let (x, y) = pair.split_once(',')?;
            Some((x.parse().ok()?, y.parse().ok()?))
        };
        value(line, "points")?.split_whitespace().map(pair).collect::<Option<Vec<_>>>()?
    } else if line.starts_with("<circle ") && value(line, "stroke")? == "none" {
        let (colour, place) = (value(line, "fill")?, (number("cx")?, number("cy")?));
        let (class, width) = (DOT.0, 2 * number("r")?);
        let wide =
            if width == DOT.1 { String::new() } else { format!(" style=\"stroke-width:{width}\"") };
        let _ = write!(style, " class=\"{class}\"{wide} stroke=\"{colour}\"");
        return (value(line, "opacity")? == "1").then(|| (style, vec![place, place]));
    } else {
        return None;
    };
    for (name, default) in [("opacity", "1"), ("stroke", ""), ("stroke-width", "1")] {
        let value = value(line, name)?;
        if value != default {
            let _ = write!(style, " {name}=\"{value}\"");
        }
    }
    let style = shorter(&style);
    (places.len() > 1).then_some((style, places))
}

#[cfg(test)]
mod tests {
    use super::*;

    const PLOT: &str = "<svg width=\"9\" viewBox=\"0 0 9 9\">\n\
        <text x=\"1\" y=\"20\" dy=\"0.76em\" text-anchor=\"start\" font-family=\"sans-serif\" font-size=\"9.677\" opacity=\"1\" fill=\"#000000\">\n\
        opacity=\"1\" &amp; more\n</text>\n\
        <line opacity=\"0.1\" stroke=\"#000000\" stroke-width=\"1\" x1=\"1\" y1=\"2\" x2=\"3\" y2=\"4\"/>\n\
        <text x=\"1\" y=\"20\" dy=\"-0.5ex\" text-anchor=\"start\" font-family=\"sans-serif\" font-size=\"12.9\" opacity=\"1\" fill=\"#FF0000\">\n\
        a\n</text>\n\
        <line opacity=\"0.1\" stroke=\"#000000\" stroke-width=\"1\" x1=\"1\" y1=\"4\" x2=\"1\" y2=\"1\"/>\n\
        <text x=\"1\" y=\"20\" dy=\"0.5ex\" text-anchor=\"end\" font-family=\"sans-serif\" font-size=\"9.677\" opacity=\"1\" fill=\"#000000\">\n\
        b\n</text>\n\
        <polyline fill=\"none\" opacity=\"1\" stroke=\"#FF0000\" stroke-width=\"2\" points=\"5,6 7,8 \"/>\n\
        <polyline fill=\"none\" opacity=\"1\" stroke=\"#FF0000\" stroke-width=\"2\" points=\"8,8 9,7 1,7 \"/>\n\
        <circle cx=\"1\" cy=\"2\" r=\"3\" opacity=\"1\" fill=\"#FF0000\" stroke=\"none\" stroke-width=\"1\"/>\n\
        <circle cx=\"4\" cy=\"2\" r=\"3\" opacity=\"1\" fill=\"#FF0000\" stroke=\"none\" stroke-width=\"1\"/>\n\
        <rect x=\"1\" opacity=\"0.8\" fill=\"#FFFFFF\" stroke=\"none\"/>\n</svg>\n";

    #[test]
    fn strokes_of_a_style_are_one_path_and_texts_stay() {
        let wanted = "<svg font-family=\"sans-serif\" font-size=\"9\" style=\"background:#fff\" width=\"9\" viewBox=\"0 0 9 9\">\n\
            <style>path{fill:none}.d{stroke-width:6;stroke-linecap:round}</style>\n\
            <g text-anchor=\"start\">\n\
            <text x=\"1\" y=\"27\">opacity=\"1\" &amp; more</text>\n\
            <text x=\"1\" y=\"17\" font-size=\"12\" fill=\"#FF0000\">a</text>\n</g>\n\
            <path opacity=\"0.1\" stroke=\"#000\" d=\"M1 2l2 2m-2 0v-3\"/>\n\
            <path stroke=\"#FF0000\" stroke-width=\"2\" d=\"M5 6l2 2m1 0l1-1h-8\"/>\n\
            <path class=\"d\" stroke=\"#FF0000\" d=\"M1 2h0m3 0h0\"/>\n\
            <g text-anchor=\"end\">\n<text x=\"1\" y=\"22\">b</text>\n</g>\n\
            <rect x=\"1\" opacity=\"0.8\" fill=\"#fff\"/>\n</svg>\n";
        assert_eq!(compact(PLOT), wanted);
    }
}
