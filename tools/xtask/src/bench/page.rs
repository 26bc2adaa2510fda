//! The page of docs that shows a run.
//!
//! *Owns*: the part of `docs/performance.md` between its two marks. *Takes*: a run's results. *Must
//! not*: touch a word outside the marks.

use std::{fmt::Write, fs};

use serde_json::Value;

use super::{Series, SizePlot};
use crate::{
    cargo,
    say::{Failure, TaskResult, say},
};

const PAGE: &str = "docs/performance.md";
const BEGIN: &str = "<!-- results: written by `cargo xtask bench --sizes --page` -->\n";
const END: &str = "<!-- end of the results -->\n";

/// Replaces the results on the page.
pub(super) fn write(document: &Value, series: &[Series], plots: &[SizePlot]) -> TaskResult {
    let path = cargo::root().join(PAGE);
    let page = fs::read_to_string(&path).map_err(Failure::system(PAGE))?;
    let page = with_results(&page, &results(document, series, plots))?;
    fs::write(&path, page).map_err(Failure::system(PAGE))?;
    say(&format!("written: {PAGE}"));
    Ok(())
}

fn with_results(page: &str, results: &str) -> Result<String, Failure> {
    let marks = page.split_once(BEGIN).and_then(|(before, rest)| {
        let (_, after) = rest.split_once(END)?;
        Some((before, after))
    });
    let (before, after) = marks.ok_or_else(|| {
        Failure(format!("{PAGE} lacks a line {:?} or {:?}", BEGIN.trim(), END.trim()))
    })?;
    Ok(format!("{before}{BEGIN}\n{results}\n{END}{after}"))
}

fn results(document: &Value, series: &[Series], plots: &[SizePlot]) -> String {
    let text = |key: &str| document.get(key).and_then(Value::as_str).unwrap_or("not installed");
    let rounds = series.iter().map(|line| line.values.len()).max().unwrap_or(0);
    let mut page = format!(
        "{}, {} cores; Linux {}; UCX {}; {rounds} rounds.\n\n| what | median | smallest to largest | times better than |\n|---|---:|---:|---|\n",
        text("machine"),
        document.get("cores").unwrap_or(&Value::Null),
        text("kernel"),
        text("ucx"),
    );
    for line in series {
        let (Some(median), Some(min), Some(max)) = (line.median, line.min, line.max) else {
            let _ = writeln!(page, "| {} | failed | | |", line.name);
            continue;
        };
        let ratios: Vec<String> =
            line.ratios.iter().map(|ratio| format!("{:.2} x {}", ratio.times, ratio.to)).collect();
        let cpu = line.cpu().map_or_else(String::new, |cpu| format!(", {cpu}"));
        let _ = writeln!(
            page,
            "| {} | {} {}{cpu} | {} to {} | {} |",
            line.name,
            three_digits(median),
            line.unit,
            three_digits(min),
            three_digits(max),
            ratios.join(", ")
        );
    }
    for plot in plots {
        let _ = write!(page, "\n{}\n", plot.block());
    }
    page
}

/// A number with three digits that mean something, and no zeros behind the point's last one.
pub(super) fn three_digits(value: f64) -> String {
    let decimals = [100.0, 10.0, 1.0].iter().filter(|limit| value.abs() < **limit).count();
    let text = format!("{value:.decimals$}");
    match text.contains('.') {
        true => text.trim_end_matches('0').trim_end_matches('.').to_owned(),
        false => text,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_have_three_digits() {
        for (value, text) in [
            (0.2051, "0.205"),
            (1.074, "1.07"),
            (28.52, "28.5"),
            (125.0, "125"),
            (12.0, "12"),
            (1027.4, "1027"),
        ] {
            assert_eq!(three_digits(value), text);
        }
    }

    #[test]
    fn results_stand_between_the_marks() {
        let page = format!("# A\n\n{BEGIN}old\n{END}\nB\n");
        let new = with_results(&page, "new\n").expect("marks");
        assert_eq!(new, format!("# A\n\n{BEGIN}\nnew\n\n{END}\nB\n"));
        assert_eq!(with_results(&new, "new\n").expect("marks"), new, "again");
        let Failure(why) = with_results("# A\n", "new").expect_err("no marks");
        assert!(why.contains("lacks a line"), "{why}");
    }

    #[test]
    fn the_page_has_the_marks() {
        let page = fs::read_to_string(cargo::root().join(PAGE)).expect("the page");
        with_results(&page, "").expect("both marks");
    }
}
