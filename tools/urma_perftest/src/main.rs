//! `urma_perftest`: latency and bandwidth of URMA operations between two processes.
//!
//! *Owns*: the process: arguments, output, exit code. *Takes*: a command line. *Gives*: a table,
//! or one JSON document. *Must not*: measure.
#![forbid(unsafe_code)]

mod bw;
mod channel;
mod cli;
mod clock;
mod compare;
mod condition;
mod dirty;
mod error;
mod lat;
mod layout;
mod oob;
mod pass;
mod pattern;
mod plan;
mod receive;
mod report;
mod requests;
mod rounds;
mod run;
mod session;
mod stats;
mod verify;

use std::{ffi::OsString, process::ExitCode};

use clap::{CommandFactory, Parser};
use serde_json::{Map, Value, json};
use urma::PathKind;
use urma_tools::{LogLevel, LogSetup};

use crate::{
    cli::{CompareCli, PerftestCli},
    condition::{Condition, conditions},
    plan::Plan,
    run::{Audience, SizeResult, run},
};
use pass::Periods;

fn main() -> ExitCode {
    match urma_tools::generate_if_asked(vec![PerftestCli::command(), CompareCli::command()]) {
        Ok(false) => {}
        Ok(true) => return ExitCode::SUCCESS,
        Err(error) => return fail(&format!("--generate: {error}"), 1),
    }
    let mut args = std::env::args_os();
    let name = args.next().unwrap_or_default();
    if std::env::args_os().nth(1) == Some(OsString::from("compare")) {
        return compare(&CompareCli::parse_from(std::iter::once(name).chain(args.skip(1))));
    }
    let cli = PerftestCli::parse();
    let is_verbose = cli.verbose || cli.extra.stdout;
    let level = if is_verbose { LogLevel::Everything } else { LogLevel::Nothing };
    urma_tools::log(LogSetup { stdout: cli.extra.stdout, level });
    let wanted = Plan::of(&cli).and_then(|plan| {
        let columns = report::columns(&plan.test, cli.extra.bw_unit);
        Ok((conditions(&cli.fail_if, &columns)?, plan))
    });
    match wanted {
        Ok((conditions, plan)) => measure(&plan, conditions),
        Err(refusal) => fail(&refusal.to_string(), 2),
    }
}

fn measure(plan: &Plan, conditions: Vec<Condition>) -> ExitCode {
    let mut output = Output::new(plan, conditions);
    let before = plan.cpu_freq.then(run::spread);
    let result = run(plan, &mut output);
    if let Some(warning) = before.and_then(|before| run::warning(before, run::spread())) {
        urma_tools::say_error(&format!("urma_perftest: warning: {warning}"));
    }
    output.end(result.is_ok());
    match result {
        Err(error) => fail(&error.to_string(), 1),
        Ok(()) => exit_code(&output.failures),
    }
}

fn compare(cli: &CompareCli) -> ExitCode {
    match compare::compare(cli) {
        Err(refusal) => fail(&refusal.to_string(), 2),
        Ok(said) => {
            let _ = urma_tools::say(&said.text);
            exit_code(&said.failures)
        }
    }
}

/// The end of a run that did what it should: conditions that hold make it a failure.
fn exit_code(failures: &[String]) -> ExitCode {
    for failure in failures {
        urma_tools::say_error(&format!("urma_perftest: {failure}"));
    }
    if failures.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

fn fail(why: &str, code: u8) -> ExitCode {
    urma_tools::say_error(&format!("urma_perftest: {why}"));
    ExitCode::from(code)
}

/// Prints the events of the run.
struct Output<'a> {
    plan: &'a Plan,
    /// Conditions of `--fail-if`: the program fails if one holds.
    conditions: Vec<Condition>,
    path: Option<PathKind>,
    results: Vec<Value>,
    /// Conditions of `--fail-if` that hold.
    failures: Vec<String>,
    /// Standard output is closed: say no more.
    is_broken: bool,
}

impl<'a> Output<'a> {
    fn new(plan: &'a Plan, conditions: Vec<Condition>) -> Self {
        Self {
            plan,
            conditions,
            path: None,
            results: Vec::new(),
            failures: Vec::new(),
            is_broken: false,
        }
    }

    /// Judges one size by `--fail-if`.
    fn judge(&mut self, size: &Map<String, Value>) {
        let value = |name: &str| {
            let direct = size.get(name).and_then(Value::as_f64);
            let nested = || {
                let (group, name) = name.split_once('.')?;
                size.get(group)?.get(name)?.as_f64()
            };
            direct.or_else(nested)
        };
        let bytes = size.get("bytes").unwrap_or(&Value::Null);
        let held = self.conditions.iter().filter_map(|condition| condition.held_by(&value));
        let held: Vec<String> = held.map(|why| format!("{bytes} bytes: {why}")).collect();
        self.failures.extend(held);
    }

    fn print(&mut self, text: &str) {
        if self.is_broken || self.plan.json {
            return;
        }
        self.is_broken = urma_tools::say(text).is_err();
    }

    fn end(&mut self, is_complete: bool) {
        if self.plan.json {
            let document = self.document(is_complete);
            let _ = urma_tools::say(&format!("{document:#}\n"));
        }
    }

    fn document(&self, is_complete: bool) -> Value {
        json!({
            "command": self.plan.test.command,
            "role": if self.plan.is_client() { "client" } else { "server" },
            "path": self.path.map(report::path_name),
            "complete": is_complete,
            "verified": self.plan.test.verify && is_complete,
            "clock_cost[ns]": clock::RunningClock::start().cost_ns(),
            "parameters": self.plan.test,
            "failures": self.failures,
            "results": self.results,
        })
    }
}

impl Periods for Output<'_> {
    fn on_period(&mut self, bytes: u64, messages: u64, nanos: u64) {
        if self.plan.is_client() {
            self.print(&report::period_row(self.plan.bw_unit, bytes, messages, nanos));
        }
    }
}

impl Audience for Output<'_> {
    fn on_waiting(&mut self) {
        self.print(&report::waiting());
    }

    fn on_connected(&mut self, path: PathKind) {
        self.path = Some(path);
        self.print(&report::parameters(self.plan));
        if self.plan.is_measuring() {
            self.print(&format!("{}\n", report::header(&self.plan.test, self.plan.bw_unit)));
        }
    }

    fn on_result(&mut self, size: SizeResult) {
        if let Some(result) = &size.result {
            self.print(&result.rows());
        }
        let mut map = size.result.as_ref().map(report::Result::json).unwrap_or_default();
        let counters = [("counters", &size.mine), ("peer_counters", &size.peer)];
        for (name, outcome) in counters {
            map.insert(name.to_owned(), report::counters_json(&outcome.counters));
        }
        map.insert("received".to_owned(), json!(size.mine.received.max(size.peer.received)));
        if size.result.is_some() {
            self.judge(&map);
        }
        self.results.push(Value::Object(map));
    }
}
