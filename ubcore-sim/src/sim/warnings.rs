//! What drivers over the fabric complain of. A driver drops what a wrong device tells it, such as a second completion, and
//! says so; over devices that are right it has nothing to say.

use std::{
    fmt::{Debug, Write as _},
    sync::{Arc, Mutex, PoisonError},
};

use tracing::{
    Event, Level, Metadata, Subscriber,
    field::{Field, Visit},
    span::{Attributes, Id, Record},
};

/// Target of the driver's events.
const DRIVER: &str = "udma_provider";

/// Runs `run`; a warning of the driver is a failure of it, unless it failed otherwise.
///
/// # Errors
/// What went wrong.
pub fn refuse_warnings<T>(run: impl FnOnce() -> Result<T, String>) -> Result<T, String> {
    let first = FirstWarning::default();
    let outcome = tracing::subscriber::with_default(first.clone(), run)?;
    let warning = first.0.lock().unwrap_or_else(PoisonError::into_inner).take();
    warning.map_or(Ok(outcome), |warning| Err(format!("the driver warns: {}", warning.trim_end())))
}

/// Keeps the first warning of the driver.
#[derive(Clone, Debug, Default)]
struct FirstWarning(Arc<Mutex<Option<String>>>);

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
        // Writing to a String cannot fail.
        let _ = match field.name() {
            "message" => write!(self.0, "{value:?} "),
            name => write!(self.0, "{name}={value:?} "),
        };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn says(run: impl FnOnce() -> Result<(), String>) -> String {
        refuse_warnings(run).expect_err("a complaint")
    }

    #[test]
    fn a_warning_of_the_driver_is_refused_and_nothing_else() {
        let warning = says(|| {
            tracing::warn!(target: "udma_provider::jfc", id = 3, "dropped");
            tracing::warn!(target: "udma_provider::jfc", id = 4, "dropped again");
            Ok(())
        });
        assert!(warning.starts_with("the driver warns: "), "{warning}");
        assert!(warning.contains("id=3") && !warning.contains("id=4"), "{warning}");
        let error = says(|| {
            tracing::error!(target: "udma_provider", "worse");
            Ok(())
        });
        assert!(error.contains("worse"), "{error}");
        let harmless = refuse_warnings(|| {
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
