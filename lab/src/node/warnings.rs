//! Warnings of the driver: it drops what a wrong device tells it, such as a second completion, and says so.
//!
//! - owns: the first warning of a thread's run. takes: trace events. gives: a text. must not: print.

use std::fmt::{Debug, Write as _};
use std::sync::{Arc, Mutex, PoisonError};

use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Level, Metadata, Subscriber};

/// Target of the driver's events.
const DRIVER: &str = "udma_provider";

/// Keeps the first warning.
#[derive(Clone, Debug, Default)]
struct FirstWarning(Arc<Mutex<Option<String>>>);

/// Runs `run`; a warning of the driver is a failure of it, unless it failed otherwise.
///
/// # Errors
/// What went wrong.
pub fn refused<T>(run: impl FnOnce() -> Result<T, String>) -> Result<T, String> {
    let first = FirstWarning::default();
    let outcome = tracing::subscriber::with_default(first.clone(), run)?;
    let warning = first.0.lock().unwrap_or_else(PoisonError::into_inner).take();
    warning.map_or(Ok(outcome), |warning| Err(format!("the driver warns: {}", warning.trim_end())))
}

impl Subscriber for FirstWarning {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        *metadata.level() <= Level::WARN && metadata.target().starts_with(DRIVER)
    }

    fn event(&self, event: &Event<'_>) {
        let mut fields = EventText(String::new());
        event.record(&mut fields);
        self.0.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert(fields.0);
    }

    fn new_span(&self, _: &Attributes<'_>) -> Id {
        Id::from_u64(1)
    }

    fn record(&self, _: &Id, _: &Record<'_>) {}
    fn record_follows_from(&self, _: &Id, _: &Id) {}
    fn enter(&self, _: &Id) {}
    fn exit(&self, _: &Id) {}
}

/// Fields of an event, one behind the other.
struct EventText(String);

impl Visit for EventText {
    fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
        let _ = match field.name() {
            "message" => write!(self.0, "{value:?} "),
            name => write!(self.0, "{name}={value:?} "),
        };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_warning_of_the_driver_fails_a_run() {
        let warns = || {
            tracing::info!(target: "udma_provider", "nothing");
            tracing::warn!(target: "ubcore_sim", "of another");
            tracing::warn!(target: "udma_provider::jfc", id = 3, "dropped");
            tracing::error!(target: "udma_provider", "worse");
            Ok(())
        };
        assert_eq!(refused(warns), Err("the driver warns: dropped id=3".to_owned()));
        let fails = || warns().and_then(|()| Err::<(), _>("first".to_owned()));
        assert_eq!(refused(fails), Err("first".to_owned()));
        assert_eq!(refused(|| Ok(7)), Ok(7));
    }
}
