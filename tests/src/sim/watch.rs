//! What the driver complains about while a world runs.
//!
//! *Owns*: the first warning of the driver. *Takes*: trace events of this thread. *Gives*: a text.
//! *Must not*: print. A driver drops what a wrong device tells it (a doubled completion, say) and
//! says so; in a world whose devices are right it has nothing to say.

use std::fmt::{Debug, Write};
use std::sync::{Arc, Mutex, PoisonError};

use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Level, Metadata, Subscriber};

/// Target of the driver's events.
const DRIVER: &str = "udma_provider";

/// Listens to the driver.
#[derive(Clone, Debug, Default)]
pub(super) struct Watch(Arc<Mutex<Option<String>>>);

impl Watch {
    /// Runs `f`; its result, unless the driver complained.
    pub(super) fn run<T>(f: impl FnOnce() -> Result<T, String>) -> Result<T, String> {
        let watch = Self::default();
        let outcome = tracing::subscriber::with_default(watch.clone(), f);
        match watch.take() {
            Some(complaint) if outcome.is_ok() => Err(format!("the driver says: {complaint}")),
            _ => outcome,
        }
    }

    fn take(&self) -> Option<String> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).take()
    }
}

impl Subscriber for Watch {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        *metadata.level() <= Level::WARN && metadata.target().starts_with(DRIVER)
    }

    fn event(&self, event: &Event<'_>) {
        let mut text = Text(String::new());
        event.record(&mut text);
        let mut first = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        first.get_or_insert(text.0);
    }

    fn new_span(&self, _: &Attributes<'_>) -> Id {
        Id::from_u64(1)
    }

    fn record(&self, _: &Id, _: &Record<'_>) {}
    fn record_follows_from(&self, _: &Id, _: &Id) {}
    fn enter(&self, _: &Id) {}
    fn exit(&self, _: &Id) {}
}

/// The fields of an event, one after the other.
struct Text(String);

impl Visit for Text {
    fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
        // Writing to a String cannot fail.
        let _ = write!(self.0, "{field}={value:?} ");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn says(f: impl FnOnce() -> Result<(), String>) -> String {
        Watch::run(f).expect_err("a complaint")
    }

    #[test]
    fn a_warning_of_the_driver_is_refused_and_nothing_else() {
        let warning = says(|| {
            tracing::warn!(target: "udma_provider::jfc", id = 3, "dropped");
            tracing::warn!(target: "udma_provider::jfc", id = 4, "dropped again");
            Ok(())
        });
        assert!(warning.starts_with("the driver says: "), "{warning}");
        assert!(warning.contains("id=3") && !warning.contains("id=4"), "{warning}");
        let error = says(|| {
            tracing::error!(target: "udma_provider", "worse");
            Ok(())
        });
        assert!(error.contains("worse"), "{error}");
        let harmless = Watch::run(|| {
            tracing::info!(target: "udma_provider", "it goes on");
            tracing::warn!(target: "ubcore_sim", "another line");
            Ok(7)
        });
        assert_eq!(harmless, Ok(7));
    }

    #[test]
    fn what_went_wrong_is_reported_before_what_the_driver_says_of_it() {
        let both = says(|| {
            tracing::warn!(target: "udma_provider", "later");
            Err("first".to_owned())
        });
        assert_eq!(both, "first");
    }
}
