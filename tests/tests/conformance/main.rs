//! The conformance suite: every behaviour in every setup, one listed test each.
//!
//! *Owns*: the list of trials `behaviour::setup`. *Takes*: the behaviours. *Gives*: a test binary
//! with the usual options (filter, `--list`, `--exact`). *Must not*: know what a behaviour does.
#![forbid(unsafe_code)]

mod behaviours;
mod c_face;
mod doc;
mod missing;

use behaviours::{Behaviour, Flow};
use libtest_mimic::{Arguments, Completion, Trial};
use urma_c_adapter::take_answers;
use urma_tests::world::{Face, Setup};

fn main() {
    let mut arguments = Arguments::from_args();
    // Trials that wait for a timer rest meanwhile; more than this only take each other's core.
    arguments.test_threads.get_or_insert(4);
    let mut trials: Vec<Trial> = doc::checks();
    for behaviour in behaviours::all() {
        trials.extend(setups(behaviour).map(|setup| trial(behaviour, setup)));
    }
    let is_whole = arguments.filter.is_none() && arguments.skip.is_empty() && !arguments.list;
    let conclusion = libtest_mimic::run(&arguments, trials);
    if is_whole && !conclusion.has_failed() {
        c_face::ensure_enough_is_refused();
    }
    conclusion.exit();
}

fn setups(behaviour: &'static Behaviour) -> impl Iterator<Item = Setup> {
    let rust = Setup::all().into_iter();
    let all = rust.chain(Setup::all_through_c());
    all.filter(|setup| c_face::applies(behaviour.name, *setup) && (behaviour.applies)(*setup))
}

fn trial(behaviour: &'static Behaviour, setup: Setup) -> Trial {
    let name = format!("{}::{setup}", behaviour.name);
    Trial::ignorable_test(name.clone(), move || {
        if let Some(reason) = missing::for_setup(setup) {
            urma_skip::skip_named(&name, reason);
            return Ok(Completion::ignored_with(reason));
        }
        let _ = take_answers();
        let outcome = (behaviour.run)(setup).map_err(|failure| failure.to_string());
        if behaviour.flow == Flow::Bad && setup.face == Face::C {
            c_face::note(behaviour.name, take_answers());
        }
        outcome?;
        Ok(Completion::Completed)
    })
}
