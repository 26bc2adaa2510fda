//! `-F`: do the frequencies of the cores drift?
//!
//! *Takes*: `/proc/cpuinfo`. *Gives*: a warning. The clock of this program does not depend on the
//! frequency, but what it measures does.

/// Ratio of two frequencies from which on it is worth a warning.
const DRIFT: f64 = 1.02;

/// The slowest and the fastest core now, MHz; `None` when the system does not say.
pub(crate) fn spread() -> Option<(f64, f64)> {
    spread_of(&std::fs::read_to_string("/proc/cpuinfo").ok()?)
}

fn spread_of(text: &str) -> Option<(f64, f64)> {
    let lines = text.lines().filter(|line| line.starts_with("cpu MHz"));
    let values = lines.filter_map(|line| line.split(':').nth(1)?.trim().parse::<f64>().ok());
    values.fold(None, |spread, mhz| {
        let (low, high) = spread.unwrap_or((mhz, mhz));
        Some((f64::min(low, mhz), f64::max(high, mhz)))
    })
}

/// What to say about frequencies before and after a run.
pub(crate) fn warning(before: Option<(f64, f64)>, after: Option<(f64, f64)>) -> Option<String> {
    let (Some(before), Some(after)) = (before, after) else {
        return Some("the system does not show the frequencies of its cores".to_owned());
    };
    let (low, high) = (before.0.min(after.0), before.1.max(after.1));
    (high > low * DRIFT).then(|| {
        format!("the frequencies of the cores drift: {low:.0} to {high:.0} MHz during the run")
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_drift_is_worth_a_word() {
        let text = "processor: 0\ncpu MHz\t\t: 2000.5\nprocessor: 1\ncpu MHz\t\t: 3000.0\n";
        assert_eq!(spread_of(text), Some((2000.5, 3000.0)));
        assert_eq!(warning(Some((2000.0, 2010.0)), Some((2001.0, 2020.0))), None);
        let said = warning(Some((2000.0, 2000.0)), Some((3000.0, 3000.0))).unwrap();
        assert!(said.contains("2000 to 3000 MHz"), "{said}");
        assert!(warning(None, None).is_some());
    }
}
