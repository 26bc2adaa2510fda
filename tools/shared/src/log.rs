//! What the stack has to say.
//!
//! *Owns*: where it goes and how much of it. *Takes*: the environment variable `URMA_LOG`.

use std::io;

use tracing_subscriber::EnvFilter;
use urma_mem::environment::{ignored, variable};

use crate::shown::{LogLines, say_error};

/// Where the log goes and how much is said without `URMA_LOG`.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct LogSetup {
    /// To standard output instead of standard error.
    pub stdout: bool,
    /// How much of it.
    pub level: LogLevel,
}

/// How much is said without `URMA_LOG`.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum LogLevel {
    /// Nothing: the tool's own answer says what matters.
    #[default]
    Nothing,
    /// What its user may have to do something about.
    Warnings,
    /// What the stack does.
    Everything,
}

/// Sends the log of the stack to the output that `log` names; `URMA_LOG` filters it. Variables that are ignored are
/// named on standard error in any case.
pub fn log(log: LogSetup) {
    if let Some(line) = ignored() {
        // No terminal reads it: the tool's own answer shows that, too.
        say_error(&line);
    }
    let level = match log.level {
        LogLevel::Nothing => "off",
        LogLevel::Warnings => "warn",
        LogLevel::Everything => "debug",
    };
    let filter = variable("URMA_LOG").and_then(|text| EnvFilter::try_new(text.to_str()?).ok());
    let filter = filter.unwrap_or_else(|| EnvFilter::new(level));
    // Colors would be escaped, too.
    let subscriber = tracing_subscriber::fmt().with_env_filter(filter).with_ansi(false);
    // This is the only subscriber of the process; without it there is no log.
    let _ = if log.stdout {
        subscriber.with_writer(|| LogLines(io::stdout())).try_init()
    } else {
        subscriber.with_writer(|| LogLines(io::stderr())).try_init()
    };
}
