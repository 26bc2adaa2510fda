//! Numbers with units: `100G`, `10ms`, `200MB`; what is wrong with an option.
//!
//! - owns: suffixes. takes: text. gives: numbers in bits a second, ps, bytes.
//! - must not: guess a missing unit.

/// What was read and what would be right.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("{given:?} is not {wanted}")]
pub struct UnitError {
    given: String,
    /// What would be right.
    pub wanted: &'static str,
}

/// A field of a grid that makes no sense.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("{field} {value:?}: want {want}")]
pub struct GridError {
    /// Name of the option.
    pub field: &'static str,
    /// The value that was given.
    pub value: String,
    /// The rule that it breaks.
    pub want: String,
}

/// Reads a rate into bits a second: `100G`, `2.5G`, `10M`.
pub fn rate(text: &str) -> Result<f64, UnitError> {
    let units = [("T", 1e12), ("G", 1e9), ("M", 1e6), ("k", 1e3)];
    scaled(text, &units, "a rate in bits a second, such as 100G")
}

/// Reads a time into picoseconds: `10ms`, `250us`.
pub fn time(text: &str) -> Result<f64, UnitError> {
    let units = [("ms", 1e9), ("us", 1e6), ("ns", 1e3), ("ps", 1.0), ("s", 1e12)];
    scaled(text, &units, "a time with its unit, such as 10ms")
}

/// Reads a size into bytes: `200MB`, `1GB`, `4096B`.
pub fn bytes(text: &str) -> Result<f64, UnitError> {
    let units = [("GB", 1e9), ("MB", 1e6), ("kB", 1e3), ("B", 1.0)];
    scaled(text, &units, "a size in bytes with its unit, such as 200MB")
}

/// Reads how often something happens in a second: `120M`, `2.5k`.
pub fn events(text: &str) -> Result<f64, UnitError> {
    let units = [("G", 1e9), ("M", 1e6), ("k", 1e3)];
    scaled(text, &units, "a number a second with its unit, such as 120M")
}

/// Reads bytes with a unit of 1024 or without one: `256K`, `64MiB`, `4096`. `None`: it is no such size.
#[must_use]
pub fn binary(text: &str) -> Option<f64> {
    let units = [("GiB", 30), ("MiB", 20), ("KiB", 10), ("G", 30), ("M", 20), ("K", 10)];
    let found = units.iter().find_map(|(unit, power)| Some((text.strip_suffix(unit)?, power)));
    let (number, power) = found.unwrap_or((text, &0));
    let number: f64 = number.parse().ok()?;
    number.is_finite().then(|| number * f64::from(1_u32 << power))
}

fn scaled(text: &str, units: &[(&str, f64)], wanted: &'static str) -> Result<f64, UnitError> {
    let error = || UnitError { given: text.to_owned(), wanted };
    let found = units.iter().find_map(|(unit, scale)| Some((text.strip_suffix(unit)?, scale)));
    let (number, scale) = found.ok_or_else(error)?;
    let number: f64 = number.trim().parse().map_err(|_| error())?;
    if number.is_finite() { Ok(number * scale) } else { Err(error()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn units_are_wanted_and_read() {
        assert_eq!(rate("100G"), Ok(1e11));
        assert_eq!(time("10ms"), Ok(1e10));
        assert_eq!(bytes("1.5MB"), Ok(1.5e6));
        assert_eq!(events("120M"), Ok(1.2e8));
        for text in ["10", "", "G", "tenG", "1e999G"] {
            assert!(rate(text).is_err(), "{text}");
        }
        assert!(time("10").is_err());
        assert!(bytes("10").is_err());
        for (text, wanted) in [
            ("256K", Some(262_144.0)),
            ("1.5MiB", Some(1_572_864.0)),
            ("1G", Some(1_073_741_824.0)),
            ("7", Some(7.0)),
            ("K", None),
            ("1e999", None),
            ("1KB", None),
        ] {
            assert_eq!(binary(text), wanted, "{text}");
        }
    }
}
