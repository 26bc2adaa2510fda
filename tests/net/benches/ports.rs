//! How long requests have no answer when a port is pulled under load and when it is taken back, beside the same
//! stream while no port changes.
//!
//! *Owns*: windows of equal length in one run: some without a change, on either port, before and after the ones around
//! the changes. *Gives*: the longest time between two completions in each window, as JSON. *Must not*: compare
//! windows of different runs.
//!
//! `cargo bench -p urma-net --bench ports -- [RUNS] [MTU]`.
#![expect(clippy::print_stdout, reason = "a bench talks to its user")]
#![expect(clippy::disallowed_methods, reason = "a bench reads the clock")]

use std::{
    error::Error,
    thread,
    time::{Duration, Instant},
};

use ubcore_sim::PortMode::ActiveBackup;
use udma_abi::counters::Counter;
use urma_net::{Lab, LabPlan};
use urma_tests::world::Outcome;

#[path = "../tests/hosts/ends.rs"]
mod ends;
#[path = "../tests/hosts/stream.rs"]
mod stream;

use stream::{Stream, node};

/// Half of a window.
const HALF: Duration = Duration::from_millis(5);
/// Windows without a change, before the port is pulled and after it was taken back.
const CONTROLS: u32 = 50;
/// A port that was left is asked after a second, or as soon as the other one is in doubt. Then a pause came first, and the
/// change ended it: the window begins with the change.
const ASKED_AFTER: Duration = Duration::from_millis(990);
/// Between a change and the look at its counter, which follows the next completion.
const DETECTED: Duration = Duration::from_micros(20);
/// Between a change and the next window without one.
const APART: Duration = Duration::from_millis(100);

/// When things happened in one run.
struct Times {
    begun: Instant,
    pulled: Instant,
    /// When each node left the port, and took it back.
    failed: [Instant; 2],
    plugged: Instant,
    returned: [Instant; 2],
    over: Instant,
    ends: Vec<Instant>,
}

/// Longest pauses in milliseconds.
#[derive(Default)]
struct Pauses {
    failover: Vec<f64>,
    failback: Vec<f64>,
    /// Where the port was taken back since the other one was in doubt.
    early: Vec<f64>,
    control: Vec<f64>,
}

fn main() -> Result<(), Box<dyn Error>> {
    let mut args = std::env::args().skip(1).filter(|arg| arg != "--bench");
    let runs = args.next().map_or(Ok(3_u32), |text| text.parse())?;
    let mtu = args.next().map_or(Ok(1500_u32), |text| text.parse())?;
    let mut pauses = Pauses::default();
    for _ in 0..runs {
        let lab = Lab::new(LabPlan::cable(mtu).ports(2)).map_err(|refused| refused.to_string())?;
        run(&lab).map_err(|failure| failure.to_string())?.add_to(&mut pauses);
    }
    println!(
        "{{\"runs\": {runs}, \"mtu\": {mtu}, \"failover_ms\": {:.3?}, \"failback_ms\": {:.3?}, \
         \"failback_in_doubt_ms\": {:.3?}, \"control_ms\": {:.3?}}}",
        pauses.failover, pauses.failback, pauses.early, pauses.control
    );
    Ok(())
}

/// A stream, during which port 0 of host 0 is pulled and joined again.
fn run(lab: &Lab) -> Outcome<Times> {
    let [a, b] = [node(lab.host(0), ActiveBackup)?, node(lab.host(1), ActiveBackup)?];
    let mut stream = Stream::new(&a, &b)?;
    stream.more(5000)?;
    stream.ends = Some(Vec::new());
    let begun = Instant::now();
    let both = |counter, stream: &mut Stream| {
        let mut at = [None; 2];
        stream.run(|_| {
            for (at, host) in at.iter_mut().zip([&a, &b]) {
                if at.is_none() && host.node().device().counter(counter) > 0 {
                    *at = Some(Instant::now());
                }
            }
            at.iter().all(Option::is_some)
        })?;
        Outcome::Ok(at.map(|at| at.expect("both")))
    };
    stream.run(|_| begun.elapsed() > 2 * HALF * (CONTROLS + 1))?;
    let pulled = Instant::now();
    let failed = thread::scope(|scope| {
        scope.spawn(|| lab.pull(0, 0));
        both(Counter::PortFailed, &mut stream)
    })?;
    stream.run(|_| failed[0].max(failed[1]).elapsed() > APART)?;
    let plugged = Instant::now();
    let returned = thread::scope(|scope| {
        scope.spawn(|| lab.plug(0, 0));
        both(Counter::PortReturned, &mut stream)
    })?;
    stream.run(|_| returned[0].max(returned[1]).elapsed() > APART + 2 * HALF * CONTROLS)?;
    let (over, ends) = (Instant::now(), stream.ends.take().unwrap_or_default());
    stream.end()?;
    Ok(Times { begun, pulled, failed, plugged, returned, over, ends })
}

impl Times {
    /// Longest pause between completions that overlaps an interval, in ms.
    fn longest(&self, from: Instant, to: Instant) -> f64 {
        self.longest_of(|pair| pair[1] > from && pair[0] < to).unwrap_or(to - from).as_secs_f64()
            * 1e3
    }

    /// The same of pauses that begin between them.
    fn longest_in(&self, from: Instant, to: Instant) -> f64 {
        self.longest_of(|pair| pair[0] >= from && pair[0] < to).unwrap_or(to - from).as_secs_f64()
            * 1e3
    }

    fn longest_of(&self, is_inside: impl Fn(&[Instant]) -> bool) -> Option<Duration> {
        self.ends.windows(2).filter(|pair| is_inside(pair)).map(|pair| pair[1] - pair[0]).max()
    }

    /// Windows side by side in this time, none of which has a change.
    fn controls(&self, from: Instant, to: Instant, pauses: &mut Pauses) {
        let mut at = from;
        while at + 2 * HALF <= to {
            pauses.control.push(self.longest_in(at, at + 2 * HALF));
            at += 2 * HALF;
        }
    }

    fn add_to(&self, pauses: &mut Pauses) {
        let left = self.failed[0].max(self.failed[1]);
        let back = [self.returned[0].min(self.returned[1]), self.returned[0].max(self.returned[1])];
        self.controls(self.begun, self.pulled - APART, pauses);
        pauses.failover.push(self.longest(self.pulled, left));
        // A program that sets the port up takes a processor for some milliseconds.
        self.controls(self.plugged + APART, back[0] - APART, pauses);
        for (failed, at) in self.failed.into_iter().zip(self.returned) {
            let is_early = at - failed < ASKED_AFTER;
            let from = if is_early { at - DETECTED } else { at - HALF };
            let longest = self.longest_in(from, from + 2 * HALF);
            if is_early { &mut pauses.early } else { &mut pauses.failback }.push(longest);
        }
        self.controls(back[1] + APART, self.over, pauses);
    }
}
