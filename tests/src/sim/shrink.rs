//! Smaller worlds with the same failure, and the words that bring one back.
//!
//! *Owns*: what a plan can have less of. *Takes*: a plan that fails. *Gives*: a smaller one, and its
//! difference as text. *Must not*: decide what a failure is.

use super::plan::SimPlan;
use super::run::{Report, SimFailure, run};

/// Runs that a search makes at most.
const RUNS_MAX: u32 = 600;
/// Random choices that are tried for each smaller plan: with fewer steps the same choices lead elsewhere.
const SALTS: u64 = 4;

/// A number of a plan that a search makes smaller.
#[derive(Debug)]
struct Knob {
    name: &'static str,
    least: u64,
    get: fn(&SimPlan) -> u64,
    set: fn(&mut SimPlan, u64),
}

/// A knob that is a field.
macro_rules! field {
    ($name:literal, $least:literal, $($path:ident).+) => {
        Knob {
            name: $name,
            least: $least,
            get: |plan| u64::from(plan.$($path).+),
            set: |plan, value| plan.$($path).+ = value.try_into().unwrap_or(plan.$($path).+),
        }
    };
}

/// In the order in which they are tried: what makes a run short comes first.
const KNOBS: [Knob; 22] = [
    Knob {
        name: "nodes",
        least: 2,
        get: |plan| plan.fabric.devices.len() as u64,
        set: |plan, value| {
            let count = usize::try_from(value).unwrap_or(usize::MAX).max(2);
            plan.fabric.devices.truncate(count);
            plan.fabric.hosts.truncate(count);
        },
    },
    field!("requests", 1, requests),
    field!("kills", 0, kills),
    field!("stops", 0, stops),
    field!("trouble", 0, trouble_ppm),
    field!("dry", 0, dry_ppm),
    field!("take-back", 0, take_back_ppm),
    field!("attack", 0, fabric.attack_ppm),
    field!("flood", 0, fabric.flood_per_ms),
    Knob {
        name: "outages",
        least: 0,
        get: |plan| plan.fabric.faults.outages.len() as u64,
        set: |plan, value| {
            plan.fabric.faults.outages.truncate(usize::try_from(value).unwrap_or(usize::MAX));
        },
    },
    Knob {
        name: "routers",
        least: 0,
        get: |plan| plan.fabric.faults.routers.len() as u64,
        set: |plan, value| {
            plan.fabric.faults.routers.truncate(usize::try_from(value).unwrap_or(usize::MAX));
        },
    },
    field!("loss", 0, fabric.faults.loss_ppm),
    field!("bursts", 0, fabric.faults.burst_ppm),
    field!("truncated", 0, fabric.faults.truncate_ppm),
    field!("tail", 0, fabric.faults.tail_ppm),
    field!("duplicates", 0, fabric.faults.duplicate_ppm),
    field!("reorder", 0, fabric.faults.reorder_ppm),
    field!("corrupt", 0, fabric.faults.corrupt_ppm),
    field!("stall", 0, fabric.stall_ppm),
    field!("sleep", 0, fabric.sleep_ppm),
    field!("lazy", 0, lazy_ppm),
    field!("len", 1, len_max),
];

/// The random choices of the programs; not smaller or larger, but other ones.
const SALT: Knob = field!("salt", 0, salt);

/// What a search found.
#[derive(Debug)]
pub struct Shrunk {
    /// The smallest plan that fails alike.
    pub plan: SimPlan,
    /// Failure of the shrunken plan.
    pub failure: Box<SimFailure>,
    /// What differs from the plan that the search began with, for [`SimPlan::change`].
    pub changes: String,
}

/// Searches for a smaller plan with a failure of the same class as `failure`.
#[must_use]
pub fn shrink(plan: &SimPlan, failure: Box<SimFailure>) -> Shrunk {
    shrink_with(plan, failure, run)
}

fn shrink_with(
    plan: &SimPlan,
    failure: Box<SimFailure>,
    run: impl Fn(&SimPlan) -> Result<Report, Box<SimFailure>>,
) -> Shrunk {
    let class = class(&failure.what);
    let mut best = Shrunk { plan: plan.clone(), failure, changes: String::new() };
    let mut left = RUNS_MAX;
    let mut is_smaller = true;
    while std::mem::take(&mut is_smaller) {
        for knob in &KNOBS {
            let mut low = knob.least;
            // Bisects: everything below `low` was tried.
            while low < (knob.get)(&best.plan) {
                let now = (knob.get)(&best.plan);
                let value = low + (now - low) / 2;
                let found = (0..SALTS).find_map(|salt| {
                    left = left.checked_sub(1)?;
                    let mut plan = best.plan.clone();
                    (knob.set)(&mut plan, value);
                    (SALT.set)(&mut plan, (best.plan.salt + salt) % SALTS);
                    let failure = run(&plan).err()?;
                    (self::class(&failure.what) == class).then_some((plan, failure))
                });
                match found {
                    Some((plan, failure)) => {
                        (best.plan, best.failure) = (plan, failure);
                        is_smaller = true;
                    }
                    None => low = value + 1,
                }
            }
        }
    }
    best.changes = difference(plan, &best.plan);
    best
}

/// What went wrong, without the numbers of this run.
fn class(what: &str) -> String {
    let words = what.split_whitespace().take_while(|word| *word != "Completion");
    let is_kept = |word: &&str| !word.contains(|c: char| c.is_ascii_digit());
    words.filter(is_kept).take(12).collect::<Vec<_>>().join(" ")
}

fn difference(from: &SimPlan, to: &SimPlan) -> String {
    let changed = |knob: &&Knob| (knob.get)(from) != (knob.get)(to);
    let text = |knob: &Knob| format!("{}={}", knob.name, (knob.get)(to));
    let all: Vec<_> = KNOBS.iter().chain([&SALT]).filter(changed).map(text).collect();
    all.join(",")
}

impl SimPlan {
    /// Applies changes as [`Shrunk::changes`] has them: `nodes=2,requests=7`.
    ///
    /// # Errors
    /// A word that no change has.
    pub fn change(&mut self, changes: &str) -> Result<(), String> {
        for change in changes.split(',').filter(|change| !change.is_empty()) {
            let (name, value) =
                change.split_once('=').ok_or_else(|| format!("{change} has no ="))?;
            let mut knobs = KNOBS.iter().chain([&SALT]);
            let knob = knobs.find(|knob| knob.name == name);
            let value = value.parse().map_err(|error| format!("{change}: {error}"))?;
            (knob.ok_or_else(|| format!("a plan has no {name}"))?.set)(self, value);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::super::{Weather, Work};
    use super::*;

    fn failed(what: &str) -> Box<SimFailure> {
        Box::new(SimFailure { seed: 1, what: what.to_owned(), log: String::new() })
    }

    #[test]
    fn only_what_the_failure_needs_is_left() {
        let plan = SimPlan::new(9, Weather::Mixed, Work::All).with_kills();
        // Fails with 7 requests and a kill, and otherwise when there is nothing at all.
        let run = |plan: &SimPlan| match (plan.requests, plan.kills) {
            (7.., 1..) => Err(failed(&format!("request {} was lost", plan.requests))),
            (1, 0) => Err(failed("another failure")),
            _ => Ok(Report::default()),
        };
        let shrunk = shrink_with(&plan, failed("request 60 was lost"), run);
        assert_eq!((shrunk.plan.requests, shrunk.plan.kills), (7, 1));
        assert_eq!(shrunk.failure.what, "request 7 was lost");
        let is_least = |knob: &&Knob| (knob.get)(&shrunk.plan) == knob.least;
        assert_eq!(KNOBS.iter().filter(is_least).count(), KNOBS.len() - 2, "{shrunk:?}");
        let mut again = plan.clone();
        again.change(&shrunk.changes).expect("words of a search");
        assert_eq!(difference(&again, &shrunk.plan), "");
    }

    #[test]
    fn unknown_changes_are_refused() {
        let mut plan = SimPlan::new(9, Weather::Fair, Work::All);
        for changes in ["nodes", "cats=1", "requests=x"] {
            assert!(plan.change(changes).is_err(), "{changes}");
        }
    }
}
