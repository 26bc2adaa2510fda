//! `urma_perftest`: latency and bandwidth of URMA operations between two processes.
//!
//! *Owns*: the process: arguments, output, exit code. *Takes*: a command line. *Gives*: a table,
//! or one JSON document. *Must not*: measure.
#![forbid(unsafe_code)]

mod bw;
mod channel;
mod cli;
mod clock;
mod error;
mod lat;
mod layout;
mod oob;
mod open;
mod pass;
mod pattern;
mod plan;
mod receive;
mod report;
mod requests;
mod run;
mod session;
mod stats;
mod verify;

use std::{
    io::{self, Write},
    process::ExitCode,
};

use clap::Parser;
use serde_json::{Value, json};
use urma_core::PathKind;

use crate::{
    cli::Cli,
    plan::Plan,
    run::{Audience, SizeResult, run},
};

fn main() -> ExitCode {
    let cli = Cli::parse();
    log_to_stderr();
    let plan = match Plan::of(&cli) {
        Ok(plan) => plan,
        Err(refusal) => return fail(&refusal.to_string(), 2),
    };
    let mut output = Output { plan: &plan, path: None, results: Vec::new(), is_broken: false };
    let result = run(&plan, &mut output);
    output.end(result.is_ok());
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => fail(&error.to_string(), 1),
    }
}

/// What the stack has to say goes to standard error, as `URMA_LOG` asks for.
fn log_to_stderr() {
    let filter = tracing_subscriber::EnvFilter::try_from_env("URMA_LOG")
        .unwrap_or_else(|_| tracing_subscriber::EnvFilter::new("off"));
    let subscriber = tracing_subscriber::fmt().with_env_filter(filter).with_writer(io::stderr);
    // Nobody else sets one in this process; without it there is no log.
    let _ = subscriber.try_init();
}

fn fail(why: &str, code: u8) -> ExitCode {
    let _ = writeln!(io::stderr(), "urma_perftest: {why}");
    ExitCode::from(code)
}

/// Prints what the run tells.
struct Output<'a> {
    plan: &'a Plan,
    path: Option<PathKind>,
    results: Vec<Value>,
    /// Standard output is closed: say no more.
    is_broken: bool,
}

impl Output<'_> {
    fn print(&mut self, text: &str) {
        if self.is_broken || self.plan.json {
            return;
        }
        let mut out = io::stdout();
        self.is_broken = out.write_all(text.as_bytes()).and_then(|()| out.flush()).is_err();
    }

    fn end(&mut self, is_complete: bool) {
        if self.plan.json {
            let document = self.document(is_complete);
            let _ = writeln!(io::stdout(), "{document:#}");
        } else if self.path.is_some() {
            self.print(&format!("{}\n", report::RULE));
        }
    }

    fn document(&self, is_complete: bool) -> Value {
        json!({
            "command": self.plan.test.command,
            "role": if self.plan.is_client() { "client" } else { "server" },
            "path": self.path.map(report::path_name),
            "complete": is_complete,
            "verified": self.plan.test.verify && is_complete,
            "clock_cost[ns]": clock::Clock::start().cost_ns(),
            "parameters": self.plan.test,
            "results": self.results,
        })
    }
}

impl Audience for Output<'_> {
    fn on_waiting(&mut self) {
        self.print(&report::waiting());
    }

    fn on_connected(&mut self, path: PathKind) {
        self.path = Some(path);
        self.print(&report::parameters(self.plan));
        if self.plan.is_client() {
            self.print(&format!("{}\n", report::header(&self.plan.test)));
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
        self.results.push(Value::Object(map));
    }
}
