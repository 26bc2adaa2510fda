//! The slow corners of requests between nodes of one host.
//!
//! *Owns*: the runs of the bench `corners` of the crate `urma`. *Gives*: one number for each line, with the
//! counter that proves the path. *Must not*: take a number without that proof.

use std::process::Command;

use serde_json::Value;

use super::built;
use crate::{pair, say::Failure};

/// One value, and the counter that proves its path.
pub(super) fn measure(of: &str) -> Result<(f64, Option<String>), Failure> {
    let mut command = Command::new(built("urma", "corners")?);
    command.arg(of);
    let output = pair::finish(pair::spawn(command)?)?;
    let text = String::from_utf8_lossy(&output.stdout);
    value(&text).ok_or_else(|| {
        let why = String::from_utf8_lossy(&output.stderr).into_owned();
        Failure(format!("corners {of}: {}", why.trim()))
    })
}

/// Of a line of JSON, the value and its proof.
fn value(text: &str) -> Option<(f64, Option<String>)> {
    let document: Value = serde_json::from_str(text).ok()?;
    let count = document.get("direct_requests")?.as_u64().filter(|count| *count != 0)?;
    let value = document.get("value")?.as_f64()?;
    Some((value, Some(format!("direct_requests +{count}"))))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_value_needs_the_counter_that_proves_it() {
        let proof = Some("direct_requests +9".to_owned());
        assert_eq!(value(r#"{"value": 1.5, "direct_requests": 9}"#), Some((1.5, proof)));
        assert_eq!(value(r#"{"value": 1.5, "direct_requests": 0}"#), None);
        assert_eq!(value(r#"{"value": 1.5}"#), None);
        assert_eq!(value(""), None);
    }
}
