//! Makes the SVG of a plot a third as long or shorter, for pages that show it.
//!
//! - owns: which attributes say nothing. takes: what plotters writes, an element a line. gives: the same picture.
//! - must not: move anything.

use std::fmt::Write as _;

/// Attributes that are the default, or that the root has for all.
const SPARE: [&str; 6] = [
    " opacity=\"1\"",
    " stroke=\"none\"",
    " stroke-width=\"1\"",
    " font-family=\"sans-serif\"",
    " text-anchor=\"start\"",
    " fill=\"#000000\"",
];

/// Lines of one style that follow each other: the attributes, and the path.
type StrokePath = (String, String);

/// The same picture on white ground, in fewer bytes.
#[must_use]
pub fn compact(svg: &str) -> String {
    let mut text = String::with_capacity(svg.len() / 4);
    let mut path: Option<StrokePath> = None;
    let end_path = |text: &mut String, path: &mut Option<StrokePath>| {
        if let Some((style, strokes)) = path.take() {
            let _ = writeln!(text, "<path fill=\"none\"{style} d=\"{strokes}\"/>");
        }
    };
    for line in svg.lines() {
        if let Some((style, stroke)) = stroke(line) {
            match &mut path {
                Some((known, strokes)) if *known == style => strokes.push_str(&stroke),
                _ => {
                    end_path(&mut text, &mut path);
                    path = Some((style, stroke));
                }
            }
            continue;
        }
        end_path(&mut text, &mut path);
        if line.starts_with("<svg ") {
            let root = "<svg font-family=\"sans-serif\" style=\"background:#fff\" ";
            text.push_str(&line.replacen("<svg ", root, 1));
        } else {
            text.push_str(&shorter(line));
        }
        // Texts stand between the lines of their element.
        if line.ends_with("/>") || line == "</text>" || line.starts_with("<svg ") {
            text.push('\n');
        }
    }
    end_path(&mut text, &mut path);
    text
}

fn shorter(line: &str) -> String {
    let mut line = line.to_owned();
    if line.starts_with('<') {
        SPARE.iter().for_each(|spare| line = line.replace(spare, ""));
        if let Some((before, size)) = line.split_once(" font-size=\"")
            && let Some((size, after)) = size.split_once('"')
        {
            let whole = size.split('.').next().unwrap_or(size);
            line = format!("{before} font-size=\"{whole}\"{after}");
        }
    }
    line
}

/// Style and path of a line or polyline; `None`: it is another element.
fn stroke(line: &str) -> Option<StrokePath> {
    let value = |name: &str| {
        let (_, rest) = line.split_once(&format!(" {name}=\""))?;
        rest.split_once('"').map(|(value, _)| value)
    };
    let path = if line.starts_with("<line ") {
        format!("M{} {}L{} {}", value("x1")?, value("y1")?, value("x2")?, value("y2")?)
    } else if line.starts_with("<polyline fill=\"none\" ") {
        let points = value("points")?.trim().replace(',', " ");
        let (numbers, mut path) = (points.split(' ').collect::<Vec<_>>(), String::new());
        for (number, point) in numbers.chunks(2).enumerate() {
            path.push(if number == 0 { 'M' } else { 'L' });
            path.push_str(&point.join(" "));
        }
        path
    } else {
        return None;
    };
    let mut style = String::new();
    for (name, default) in [("opacity", "1"), ("stroke", ""), ("stroke-width", "1")] {
        let value = value(name)?;
        if value != default {
            let _ = write!(style, " {name}=\"{value}\"");
        }
    }
    Some((style, path))
}

#[cfg(test)]
mod tests {
    use super::*;

    const PLOT: &str = "<svg width=\"9\" viewBox=\"0 0 9 9\">\n\
        <text x=\"1\" text-anchor=\"start\" font-family=\"sans-serif\" font-size=\"9.677\" opacity=\"1\" fill=\"#000000\">\n\
        opacity=\"1\" &amp; more\n</text>\n\
        <line opacity=\"0.1\" stroke=\"#000000\" stroke-width=\"1\" x1=\"1\" y1=\"2\" x2=\"3\" y2=\"4\"/>\n\
        <polyline fill=\"none\" opacity=\"1\" stroke=\"#FF0000\" stroke-width=\"2\" points=\"5,6 7,8 \"/>\n\
        <polyline fill=\"none\" opacity=\"1\" stroke=\"#FF0000\" stroke-width=\"2\" points=\"8,8 9,9 1,1 \"/>\n\
        <circle cx=\"1\" r=\"3\" opacity=\"1\" fill=\"#FF0000\" stroke=\"none\" stroke-width=\"1\"/>\n</svg>\n";

    #[test]
    fn strokes_of_a_style_are_one_path_and_texts_stay() {
        let wanted = "<svg font-family=\"sans-serif\" style=\"background:#fff\" width=\"9\" viewBox=\"0 0 9 9\">\n\
            <text x=\"1\" font-size=\"9\">opacity=\"1\" &amp; more</text>\n\
            <path fill=\"none\" opacity=\"0.1\" stroke=\"#000000\" d=\"M1 2L3 4\"/>\n\
            <path fill=\"none\" stroke=\"#FF0000\" stroke-width=\"2\" d=\"M5 6L7 8M8 8L9 9L1 1\"/>\n\
            <circle cx=\"1\" r=\"3\" fill=\"#FF0000\"/>\n</svg>";
        assert_eq!(compact(PLOT), wanted);
    }
}
