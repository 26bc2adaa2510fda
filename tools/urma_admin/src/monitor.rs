//! `monitor`: the counters of a node, again and again, as totals and change per second, until SIGINT or SIGTERM
//! comes.

use std::fmt::Write as _;

use nix::sys::{
    signal::{SigSet, Signal},
    signalfd::{SfdFlags, SignalFd},
};
use serde_json::{Value, json};

/// Counters of one look, not 0.
fn counters(document: &Value) -> Vec<(&str, u64)> {
    let counters = document["counters"].as_object().into_iter().flatten();
    let counters = counters.filter_map(|(name, value)| Some((name.as_str(), value.as_u64()?)));
    counters.filter(|(_, value)| *value != 0).collect()
}

/// The change per second since `before`, a time of `seconds` ago.
fn per_second(name: &str, value: u64, before: Option<&Value>, seconds: f64) -> f64 {
    let earlier = before.and_then(|before| before["counters"][name].as_u64());
    earlier.map_or(0.0, |earlier| value.saturating_sub(earlier) as f64 / seconds.max(1e-9))
}

/// One look for people.
pub(crate) fn text(document: &Value, before: Option<&Value>, seconds: f64) -> String {
    let mut text = format!(
        "node {} process {} ({})\ncounter                       total                per second\n",
        document["eid"].as_str().unwrap_or("?"),
        document["pid"],
        document["command"].as_str().unwrap_or("?"),
    );
    for (name, value) in counters(document) {
        let rate = per_second(name, value, before, seconds);
        let _ = writeln!(text, "{name:<28}  {value:<19}  {rate:.1}");
    }
    text
}

/// One look for programs.
pub(crate) fn json(document: &Value, before: Option<&Value>, seconds: f64) -> Value {
    let rows = counters(document).into_iter().map(|(name, value)| {
        let rate = per_second(name, value, before, seconds);
        (name.to_owned(), json!({ "total": value, "per_second": rate }))
    });
    json!({
        "eid": document["eid"],
        "pid": document["pid"],
        "counters": rows.collect::<serde_json::Map<_, _>>(),
    })
}

/// Interrupts of this process.
#[derive(Debug)]
pub(crate) struct InterruptFlag(SignalFd);

impl InterruptFlag {
    /// Takes both signals away from their default action.
    ///
    /// # Errors
    /// The system's.
    pub(crate) fn watch() -> std::io::Result<Self> {
        let mut set = SigSet::empty();
        set.add(Signal::SIGINT);
        set.add(Signal::SIGTERM);
        set.thread_block()?;
        let flags = SfdFlags::SFD_NONBLOCK | SfdFlags::SFD_CLOEXEC;
        Ok(Self(SignalFd::with_flags(&set, flags)?))
    }

    /// Whether a signal has interrupted the process.
    pub(crate) fn came(&self) -> bool {
        matches!(self.0.read_signal(), Ok(Some(_)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rates_are_changes_by_time() {
        let before = json!({ "counters": { "a": 10, "b": 0 } });
        let now = json!({ "eid": "127.1.2.3", "pid": 7, "counters": { "a": 30, "b": 0 } });
        let value = json(&now, Some(&before), 2.0);
        assert_eq!(value["counters"]["a"]["per_second"], 10.0);
        assert!(value["counters"].get("b").is_none());
        let text = text(&now, None, 1.0);
        assert!(text.contains("a                             30                   0.0"), "{text}");
    }

    #[test]
    fn a_look_is_a_table_of_what_is_not_0() {
        let before = json!({ "counters": { "sent": 100, "reset": 9, "new": null } });
        let now = json!({
            "eid": "127.1.2.3", "pid": 7, "command": "prog",
            "counters": { "sent": 101, "reset": 4, "new": 3, "none": 0, "word": "x" },
        });
        let table = "node 127.1.2.3 process 7 (prog)\n\
                     counter                       total                per second\n\
                     new                           3                    0.0\n\
                     reset                         4                    0.0\n\
                     sent                          101                  4.0\n";
        assert_eq!(text(&now, Some(&before), 0.25), table);
        let said = json!({
            "eid": "127.1.2.3", "pid": 7, "counters": {
                "new": { "total": 3, "per_second": 0.0 }, "reset": { "total": 4, "per_second": 0.0 },
                "sent": { "total": 101, "per_second": 4.0 },
            },
        });
        assert_eq!(json(&now, Some(&before), 0.25), said);
        // Two looks at the same time divide by no zero.
        let rate = json(&now, Some(&before), 0.0)["counters"]["sent"]["per_second"].as_f64();
        assert!(rate.is_some_and(|rate| (9e8..1.1e9).contains(&rate)), "{rate:?}");
        let unknown = text(&json!({ "pid": 7 }), None, 1.0);
        assert!(unknown.starts_with("node ? process 7 (?)\n") && unknown.lines().count() == 2);
    }
}
