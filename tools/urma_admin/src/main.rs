//! `urma_admin`: what the nodes of this host hold and do.
//!
//! *Owns*: the process: arguments, output, exit code. *Takes*: the documents of nodes. *Gives*:
//! tables, JSON, captures; programs with a device folder. *Must not*: change a node.
#![forbid(unsafe_code)]

mod abi;
mod bind;
mod capture;
mod cli;
mod daemon;
mod monitor;
mod nodes;
mod run;
mod show;

use std::{fmt::Write as _, process::ExitCode, time::Duration};

use clap::{CommandFactory, Parser};
use serde_json::json;
use ubcore_sim::{
    NodeCfg,
    node::{ConfigError, Setting, settings},
};
use udma_vfio::kernel::PciSysfs;

use crate::cli::{AdminCli, AdminVerb, Monitor};
use monitor::InterruptFlag;

fn main() -> ExitCode {
    match urma_tools::generate_if_asked(vec![AdminCli::command()]) {
        Ok(false) => {}
        Ok(true) => return ExitCode::SUCCESS,
        Err(error) => return fail(&format!("--generate: {error}"), 1),
    }
    let cli = AdminCli::parse();
    if let Some(line) = urma_tools::ignored() {
        urma_tools::say_error(&format!("urma_admin: {line}"));
    }
    if let AdminVerb::Run(cfg) = &cli.verb {
        let refusal = run::run(cfg);
        return fail(&refusal.why, refusal.code);
    }
    if let Some(why) = cli::why(&cli.verb) {
        return fail(&format!("not supported on a software device: {why}"), 2);
    }
    match run(&cli) {
        Ok(()) => ExitCode::SUCCESS,
        Err(why) => fail(&why, 1),
    }
}

fn fail(why: &str, code: u8) -> ExitCode {
    urma_tools::say_error(&format!("urma_admin: {why}"));
    ExitCode::from(code)
}

fn run(cli: &AdminCli) -> Result<(), String> {
    let words = |error: nodes::SelectError| error.to_string();
    match &cli.verb {
        AdminVerb::Show(show) | AdminVerb::ShowRes(show) | AdminVerb::ListRes(show) => {
            say(&show::show(show, cli.json).map_err(words)?);
            Ok(())
        }
        AdminVerb::Eid(rest) => {
            // An option behind `list` is one of its words.
            let json = cli.json || rest.words.iter().any(|word| word == "--json");
            say(&show::eids(json).map_err(words)?);
            Ok(())
        }
        AdminVerb::ShowStats(node) => {
            monitor(&Monitor { node: node.clone(), interval: 1.0, count: 1 }, cli.json)
        }
        AdminVerb::Monitor(cfg) => monitor(cfg, cli.json),
        AdminVerb::Capture(cfg) => capture(cfg, cli.json),
        AdminVerb::Abi(cfg) => abi(cfg, cli.json),
        AdminVerb::Config => config(cli.json),
        AdminVerb::Daemon(args) => {
            say(&daemon::daemon(args, cli.json)?);
            Ok(())
        }
        AdminVerb::Bind(function) => {
            say(&bind::bind(&PciSysfs::default(), function.address).map_err(|e| e.to_string())?);
            Ok(())
        }
        AdminVerb::Unbind(function) => {
            say(&bind::unbind(&PciSysfs::default(), function.address).map_err(|e| e.to_string())?);
            Ok(())
        }
        _ => Err("this verb is not built".to_owned()),
    }
}

/// Shows the settings; a wrong one is an error, as it is for a node.
fn config(json: bool) -> Result<(), String> {
    let words = |error: ConfigError| error.to_string();
    let cfg = NodeCfg::from_env().map_err(words)?;
    urma_nic::model_of(&cfg.models, cfg.mtu).map_err(words)?;
    let all = settings().map_err(words)?;
    if json {
        let document = all.iter().map(|setting| {
            let value = json!({ "value": setting.value, "origin": setting.origin.to_string() });
            (setting.key.to_owned(), value)
        });
        say(&format!("{:#}\n", serde_json::Value::Object(document.collect())));
        return Ok(());
    }
    let mut text = format!("{:<13} {:<20} {:<46} origin\n", "key", "variable", "value");
    for Setting { variable, key, value, origin } in &all {
        let _ = writeln!(text, "{key:<13} {variable:<20} {value:<46} {origin}");
    }
    say(&text);
    Ok(())
}

fn capture(cfg: &cli::Capture, json: bool) -> Result<(), String> {
    let interrupt = InterruptFlag::watch().map_err(|error| error.to_string())?;
    let (node, _) = nodes::one(cfg.node.node.as_deref()).map_err(|error| error.to_string())?;
    let captured = capture::capture(node.eid, cfg, &interrupt)
        .map_err(|error| format!("capturing from {}: {error}", node.name()))?;
    let what = if cfg.contexts.is_some() { "lookups" } else { "packets" };
    if json {
        let file = cfg.contexts.as_deref().or(cfg.write.as_deref());
        say(&format!("{:#}\n", captured.json(&node.name(), what, file)));
    } else {
        say(&captured.text(what));
    }
    if captured.count == 0 && cfg.contexts.is_none() {
        urma_tools::say_error(
            "urma_admin: only packets can be captured; nodes of one host share memory unless \
             URMA_PATH=packets",
        );
    }
    Ok(())
}

fn abi(cfg: &cli::ProgramArgs, json: bool) -> Result<(), String> {
    let name = cfg.program.display().to_string();
    let abi = abi::of(&cfg.program).map_err(|error| format!("{name}: {error}"))?;
    if json {
        let document = json!({
            "program": name,
            "release": abi.release,
            "because": abi.because,
            "environment": abi.environment,
        });
        say(&format!("{document:#}\n"));
        return Ok(());
    }
    match abi.release {
        Some(release) => say(&format!("{name}: built for {release}: {}\n", abi.because)),
        None => say(&format!("{name}: release unknown: {}\n", abi.because)),
    }
    if let Some(environment) = abi.environment {
        say(&format!(
            "where a library of another release comes first, start it with {environment}\n"
        ));
    }
    Ok(())
}

fn monitor(cfg: &Monitor, json: bool) -> Result<(), String> {
    if !(0.01..=86_400.0).contains(&cfg.interval) {
        return Err("-i: from 0.01 to 86400 seconds".to_owned());
    }
    let interrupt = InterruptFlag::watch().map_err(|error| error.to_string())?;
    let (node, mut document) =
        nodes::one(cfg.node.node.as_deref()).map_err(|error| error.to_string())?;
    let name = node.name();
    let (mut before, mut looks) = (None, 0);
    loop {
        if json {
            say(&format!("{}\n", monitor::json(&document, before.as_ref(), cfg.interval)));
        } else {
            // A terminal is cleared, so that the look stands still.
            urma_tools::clear();
            say(&monitor::text(&document, before.as_ref(), cfg.interval));
        }
        looks += 1;
        if looks == cfg.count || is_interrupted(&interrupt, cfg.interval) {
            return Ok(());
        }
        let next = match nodes::one(Some(&name)) {
            Ok((_, next)) => next,
            Err(error) => return Err(error.to_string()),
        };
        before = Some(std::mem::replace(&mut document, next));
    }
}

/// Waits for the next look; whether the user ends it.
fn is_interrupted(interrupt: &InterruptFlag, seconds: f64) -> bool {
    naps(Duration::from_secs_f64(seconds)).any(|nap| {
        let came = interrupt.came();
        if !came {
            pause(nap);
        }
        came
    }) || interrupt.came()
}

/// Parts of a wait, between which other things are looked at.
fn naps(mut left: Duration) -> impl Iterator<Item = Duration> {
    const NAP: Duration = Duration::from_millis(50);
    std::iter::from_fn(move || {
        let nap = left.min(NAP);
        left -= nap;
        (!nap.is_zero()).then_some(nap)
    })
}

#[expect(clippy::disallowed_methods, reason = "a refreshing view waits between looks")]
fn pause(bound: Duration) {
    std::thread::sleep(bound);
}

fn say(text: &str) {
    // To a closed output there is nothing to say.
    let _ = urma_tools::say(text);
}

#[cfg(test)]
mod tests {
    use std::time::Instant;

    use nix::sys::signal::{Signal, raise};

    use super::*;

    #[test]
    fn a_wait_has_parts_of_50_ms_and_what_is_left() {
        let ms =
            |ms| naps(Duration::from_millis(ms)).map(|nap| nap.as_millis()).collect::<Vec<_>>();
        assert!(ms(0).is_empty());
        assert_eq!((ms(10), ms(50), ms(51)), (vec![10], vec![50], vec![50, 1]));
        assert_eq!(ms(120), [50, 50, 20]);
        assert_eq!(naps(Duration::from_secs(86_400)).count(), 20 * 86_400);
    }

    #[test]
    #[expect(clippy::disallowed_methods, reason = "a wait takes its time at least")]
    fn a_wait_ends_by_its_time_or_a_signal() {
        let interrupt = InterruptFlag::watch().unwrap();
        for seconds in [0.0, 0.01, 0.06] {
            let begun = Instant::now();
            assert!(!is_interrupted(&interrupt, seconds), "{seconds}");
            assert!(begun.elapsed() >= Duration::from_secs_f64(seconds), "{seconds}");
        }
        // Each of both, also where nothing is waited for; once.
        for (signal, seconds) in [(Signal::SIGINT, 86_400.0), (Signal::SIGTERM, 0.0)] {
            raise(signal).unwrap();
            assert!(is_interrupted(&interrupt, seconds), "{signal}");
            assert!(!is_interrupted(&interrupt, 0.0), "{signal} was taken");
        }
    }
}
