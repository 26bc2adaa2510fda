//! Conditions on results: `t_avg[us] > 5 && bytes == 8`.
//!
//! *Owns*: their grammar. *Takes*: text; values by name. *Gives*: whether it holds, and a sentence.
//!
//! Comparisons joined by `&&`, those joined by `||`; no parentheses. A name may contain brackets,
//! per cent signs and single blanks, as column names do.

use std::{fmt, str::FromStr};

use crate::plan::PlanRefusal;

/// How a value is compared.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Relation {
    Less,
    AtMost,
    More,
    AtLeast,
    Equal,
    Differs,
}

/// Longer ones first: `<` begins `<=`.
const RELATIONS: [(&str, Relation); 6] = [
    ("<=", Relation::AtMost),
    (">=", Relation::AtLeast),
    ("==", Relation::Equal),
    ("!=", Relation::Differs),
    ("<", Relation::Less),
    (">", Relation::More),
];

/// Comparison of one number with a bound.
#[derive(Clone, PartialEq, Debug)]
struct ConditionTest {
    column: String,
    relation: Relation,
    value: f64,
}

/// Condition of `--fail-if`, as the command line gives it.
#[derive(Clone, PartialEq, Debug)]
pub(crate) struct Condition {
    text: String,
    /// One of these holds when all of its comparisons do.
    choices: Vec<Vec<ConditionTest>>,
}

/// Why a text is no condition.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub(crate) enum ConditionError {
    /// There is no comparison.
    #[error("{0:?} is no comparison such as \"t_avg[us] > 5\"")]
    Relation(String),
    /// The right side is no number.
    #[error("{0:?} is not a number")]
    Number(String),
}

impl FromStr for Condition {
    type Err = ConditionError;

    fn from_str(text: &str) -> Result<Self, ConditionError> {
        let choices = text.split("||").map(|choice| choice.split("&&").map(comparison).collect());
        Ok(Self { text: text.trim().to_owned(), choices: choices.collect::<Result<_, _>>()? })
    }
}

fn comparison(text: &str) -> Result<ConditionTest, ConditionError> {
    let text = text.trim();
    let found = RELATIONS.iter().filter_map(|(sign, relation)| {
        let at = text.find(sign)?;
        Some((at, *sign, *relation))
    });
    // The first sign counts; of two that start at one place the longer.
    let first = found.min_by_key(|(at, sign, _)| (*at, 2 - sign.len()));
    let (at, sign, relation) = first.ok_or_else(|| ConditionError::Relation(text.to_owned()))?;
    let (column, value) = (text[..at].trim(), text[at + sign.len()..].trim());
    if column.is_empty() {
        return Err(ConditionError::Relation(text.to_owned()));
    }
    let value: f64 = value.parse().map_err(|_| ConditionError::Number(value.to_owned()))?;
    Ok(ConditionTest { column: column.to_owned(), relation, value })
}

impl ConditionTest {
    #[expect(clippy::float_cmp, reason = "== and != are what the user wrote")]
    fn holds(&self, value: f64) -> bool {
        match self.relation {
            Relation::Less => value < self.value,
            Relation::AtMost => value <= self.value,
            Relation::More => value > self.value,
            Relation::AtLeast => value >= self.value,
            Relation::Equal => value == self.value,
            Relation::Differs => value != self.value,
        }
    }
}

impl Condition {
    /// The columns that it is about.
    pub(crate) fn columns(&self) -> impl Iterator<Item = &str> {
        self.choices.iter().flatten().map(|comparison| comparison.column.as_str())
    }

    /// The values that make it hold, as a sentence; `None` when it does not hold. A column that
    /// `value` does not have counts as 0: a counter that nothing was counted in.
    pub(crate) fn held_by(&self, value: &dyn Fn(&str) -> Option<f64>) -> Option<String> {
        let of = |comparison: &ConditionTest| value(&comparison.column).unwrap_or(0.0);
        let choice = self
            .choices
            .iter()
            .find(|choice| choice.iter().all(|comparison| comparison.holds(of(comparison))))?;
        let values = choice.iter().map(|each| format!("{} is {}", each.column, of(each)));
        Some(format!("{}: {self} holds", values.collect::<Vec<_>>().join(", ")))
    }
}

impl fmt::Display for Condition {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

/// A condition of `--fail-if`.
///
/// # Errors
/// Why it is refused.
pub(crate) fn parse(text: &str) -> Result<Condition, PlanRefusal> {
    text.parse().map_err(|why: ConditionError| PlanRefusal(format!("--fail-if {text:?}: {why}")))
}

/// The conditions of `--fail-if` for a test that has these columns.
///
/// # Errors
/// Why a condition is refused.
pub(crate) fn conditions(
    texts: &[String],
    columns: &[String],
) -> Result<Vec<Condition>, PlanRefusal> {
    let is_known = |name: &str| {
        let groups = ["counters.", "peer_counters.", "open_loop."];
        columns.iter().any(|column| column == name)
            || groups.iter().any(|group| name.starts_with(group))
    };
    let parsed = texts.iter().map(|text| {
        let condition = parse(text)?;
        if let Some(name) = condition.columns().find(|name| !is_known(name)) {
            let there = columns.join(", ");
            let why = format!("there is no column {name}; there are: {there}");
            return Err(PlanRefusal(format!("--fail-if {text:?}: {why}")));
        }
        Ok(condition)
    });
    parsed.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn held(text: &str) -> Option<String> {
        let values = [("t_avg[us]", 7.5), ("BW peak[MB/sec]", 100.0), ("99.99%[us]", 9.0)];
        let condition: Condition = text.parse().unwrap();
        condition.held_by(&|name| {
            values.iter().find(|(known, _)| *known == name).map(|(_, value)| *value)
        })
    }

    #[test]
    fn each_relation_compares() {
        for (text, holds) in [
            ("t_avg[us] > 5", true),
            ("t_avg[us]>=7.5", true),
            ("t_avg[us] < 7.5", false),
            ("t_avg[us] <= 7.5", true),
            ("t_avg[us] == 7.5", true),
            ("t_avg[us] != 7.5", false),
            ("BW peak[MB/sec] < 1e3", true),
            ("99.99%[us] > 8", true),
            ("unknown > 0", false),
        ] {
            assert_eq!(held(text).is_some(), holds, "{text}");
        }
    }

    #[test]
    fn and_binds_tighter_than_or() {
        assert!(held("t_avg[us] > 9 && 99.99%[us] > 8 || BW peak[MB/sec] > 50").is_some());
        assert!(held("t_avg[us] > 9 || 99.99%[us] > 8 && BW peak[MB/sec] > 500").is_none());
    }

    #[test]
    fn the_sentence_names_values_and_condition() {
        assert_eq!(
            held("t_avg[us] > 5 && 99.99%[us] > 8").unwrap(),
            "t_avg[us] is 7.5, 99.99%[us] is 9: t_avg[us] > 5 && 99.99%[us] > 8 holds"
        );
    }

    #[test]
    fn nonsense_is_named() {
        for text in ["", "t_avg", "> 5", "t_avg[us] > five", "t_avg[us] > 5 &&"] {
            assert!(text.parse::<Condition>().is_err(), "{text}");
        }
    }
}
