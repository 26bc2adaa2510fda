//! C programs for the families beside the thin path: paths, notifiers, device calls, counters.

use crate::{build, run};

/// One device under two names: its own, and that of a bonding device.
const ALIAS: &[(&str, &str)] = &[("URMA_DEVICE_ALIAS", "bonding_dev_0")];

#[test]
fn paths() {
    run(&build("paths", "paths", &[]), ALIAS);
}

#[test]
fn psns() {
    run(&build("psns", "psns", &[]), &[("URMA_RC", "roce")]);
}

#[test]
fn family() {
    run(&build("family", "family", &[]), &[]);
}

#[test]
fn commands() {
    run(&build("commands", "commands", &[]), &[]);
}

#[test]
fn describe() {
    run(&build("describe", "describe", &[]), ALIAS);
}

#[test]
fn states() {
    run(&build("states", "states", &[]), ALIAS);
}
