//! Plots: a table of numbers in, SVG out.
//!
//! *Owns*: the form of the table, both logarithmic axes. *Takes*: the lines of a `plot` block. *Gives*:
//! one `<svg>` element with a curve for each column. *Must not*: draw a table that lacks a number.
//!
//! The first line is the unit of the values; the second names the columns, of which the first holds
//! bytes; each further line is a row. Columns are separated by `|`. `-` stands for a value that was not
//! measured.

use plotters::{
    chart::{ChartBuilder, SeriesLabelPosition},
    coord::combinators::IntoLogRange,
    element::{Circle, PathElement},
    prelude::{Color, IntoDrawingArea, RGBColor, SVGBackend},
    series::LineSeries,
};

use crate::say::Failure;

/// Width and height of a plot in px.
const SIZE: (u32, u32) = (760, 420);
/// Colours of the curves; a plot has no more columns. They keep apart on light and dark pages.
const COLOURS: [RGBColor; 5] = [
    RGBColor(31, 119, 180),
    RGBColor(255, 127, 14),
    RGBColor(44, 160, 44),
    RGBColor(214, 39, 40),
    RGBColor(148, 103, 189),
];
/// What plotters draws text and axes in; the page's own colour takes its place.
const INK: &str = "#000000";

/// A column of a plot: its name, and its values with their bytes.
#[derive(Clone, PartialEq, Debug)]
struct Curve {
    name: String,
    points: Vec<(f64, f64)>,
}

/// A plot, as it is written in a document.
#[derive(Clone, PartialEq, Debug)]
pub(crate) struct Plot {
    unit: String,
    curves: Vec<Curve>,
}

impl Plot {
    /// Reads the lines of a block.
    pub(crate) fn of(body: &str) -> Result<Self, Failure> {
        let mut lines = body.lines().map(str::trim).filter(|line| !line.is_empty());
        let mut line =
            |what: &str| lines.next().ok_or_else(|| Failure(format!("no line with {what}")));
        let unit = line("the unit")?.to_owned();
        let names = cells(line("the columns")?);
        if !(2..=COLOURS.len() + 1).contains(&names.len()) {
            let most = COLOURS.len();
            return Err(Failure(format!("a plot has bytes and 1 to {most} columns more")));
        }
        let curve = |name: &&str| Curve { name: (*name).to_owned(), points: Vec::new() };
        let mut curves: Vec<Curve> = names[1..].iter().map(curve).collect();
        for row in lines {
            let cells = cells(row);
            if cells.len() != names.len() {
                return Err(Failure(format!("{row:?} has not {} columns", names.len())));
            }
            let bytes = number(cells[0])?;
            for (cell, curve) in cells[1..].iter().zip(&mut curves) {
                if *cell != "-" {
                    curve.points.push((bytes, number(cell)?));
                }
            }
        }
        match curves.iter().find(|curve| curve.points.len() < 2) {
            Some(curve) => Err(Failure(format!("{:?} has fewer than two points", curve.name))),
            None => Ok(Self { unit, curves }),
        }
    }

    /// Draws it; the text and the axes have the colour of the page.
    pub(crate) fn svg(&self) -> Result<String, Failure> {
        let mut svg = String::new();
        self.draw(&mut svg).map_err(|why| Failure(format!("drawing a plot: {why}")))?;
        let svg = svg.replace(INK, "currentColor");
        // An element of a page has no declaration in front.
        let start = svg.find("<svg").unwrap_or(0);
        Ok(svg[start..].replacen("<svg ", "<svg class=\"plot\" ", 1).trim_end().to_owned())
    }

    fn draw(&self, svg: &mut String) -> Result<(), Box<dyn std::error::Error + '_>> {
        let all = || self.curves.iter().flat_map(|curve| &curve.points);
        let ((left, right), (low, high)) =
            (range(all().map(|point| point.0)), range(all().map(|point| point.1)));
        let root = SVGBackend::with_string(svg, SIZE).into_drawing_area();
        let mut chart = ChartBuilder::on(&root)
            .margin(12)
            .x_label_area_size(40)
            .y_label_area_size(64)
            .build_cartesian_2d(
                (left..right * 1.2).log_scale().base(2.0),
                (low / 1.3..high * 1.3).log_scale(),
            )?;
        chart
            .configure_mesh()
            .disable_mesh()
            .x_desc("bytes")
            .y_desc(&self.unit)
            .x_label_formatter(&|bytes| short(*bytes))
            .y_label_formatter(&|value| format!("{value}"))
            .draw()?;
        for (curve, colour) in self.curves.iter().zip(COLOURS) {
            let points = curve.points.iter().copied();
            chart
                .draw_series(LineSeries::new(points.clone(), colour.stroke_width(2)))?
                .label(&curve.name)
                .legend(move |(x, y)| PathElement::new([(x, y), (x + 18, y)], colour));
            chart.draw_series(points.map(|point| Circle::new(point, 3, colour.filled())))?;
        }
        chart.configure_series_labels().position(SeriesLabelPosition::UpperLeft).draw()?;
        root.present()?;
        Ok(())
    }
}

fn cells(line: &str) -> Vec<&str> {
    line.split('|').map(str::trim).collect()
}

fn number(cell: &str) -> Result<f64, Failure> {
    let value = cell.parse::<f64>().ok().filter(|value| value.is_finite() && *value > 0.0);
    value.ok_or_else(|| Failure(format!("{cell:?} is not a number above 0")))
}

fn range(values: impl Iterator<Item = f64>) -> (f64, f64) {
    values.fold((f64::INFINITY, 0.0), |(low, high), value| (value.min(low), value.max(high)))
}

/// Bytes as a label: 8, 4 K, 1 M.
fn short(bytes: f64) -> String {
    let (value, unit) = match bytes {
        b if b >= 1_048_576.0 => (b / 1_048_576.0, " M"),
        b if b >= 1024.0 => (b / 1024.0, " K"),
        b => (b, ""),
    };
    format!("{value:.0}{unit}")
}

#[cfg(test)]
mod tests {
    use super::*;

    const BODY: &str =
        "us\nbytes | write | UCX put\n8 | 0.18 | 0.15\n4096 | 0.2 | -\n65536 | 3 | 3.5\n";

    #[test]
    fn a_table_becomes_curves_in_the_colour_of_the_page() {
        let plot = Plot::of(BODY).expect("a plot");
        assert_eq!(plot.unit, "us");
        assert_eq!(plot.curves[0].points, [(8.0, 0.18), (4096.0, 0.2), (65536.0, 3.0)]);
        assert_eq!(plot.curves[1].points, [(8.0, 0.15), (65536.0, 3.5)]);
        let svg = plot.svg().expect("a drawing");
        assert!(svg.starts_with("<svg class=\"plot\" ") && svg.ends_with("</svg>"), "{svg}");
        // Two curves, and five points; text in the page's colour.
        assert_eq!(svg.matches("<circle").count(), 5);
        assert!(svg.contains("UCX put") && svg.contains("currentColor") && !svg.contains(INK));
    }

    #[test]
    fn what_is_no_table_is_named() {
        let cases = [
            ("", "no line with the unit"),
            ("us\n", "no line with the columns"),
            ("us\nbytes\n", "1 to 5 columns"),
            ("us\nbytes | a\n8 | 1 | 2\n", "has not 2 columns"),
            ("us\nbytes | a\n8 | fast\n", "\"fast\" is not a number"),
            ("us\nbytes | a\n8 | 0\n16 | 1\n", "\"0\" is not a number above 0"),
            ("us\nbytes | a\n8 | 1\n", "fewer than two points"),
        ];
        for (body, why) in cases {
            let Failure(said) = Plot::of(body).expect_err(body);
            assert!(said.contains(why), "{said}");
        }
    }
}
