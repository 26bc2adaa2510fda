//! The conformance suite: every behaviour in every setup, one listed test each.
//!
//! *Owns*: the list of trials `behaviour::setup`. *Takes*: the behaviours. *Gives*: a test binary
//! with the usual options (filter, `--list`, `--exact`). *Must not*: depend on what a behaviour
//! does.
#![forbid(unsafe_code)]

mod behaviours;
mod doc;
mod left_out;

use std::io::IoSliceMut;
use std::sync::OnceLock;

use behaviours::Behaviour;
use libtest_mimic::{Arguments, Completion, Trial};
use nix::sys::resource::{Resource, getrlimit, setrlimit};
use nix::sys::uio::{RemoteIoVec, process_vm_readv};
use nix::unistd::getpid;
use ubcore_sim::{CongestionChoice, Strategy};
use urma_net::{Lab, LabPlan};
use urma_tests::world::{Face, Link, Moving, Setup};

fn main() {
    // As many channels as a device has have each a descriptor. Where the process may not have so many, those trials fail.
    if let Ok((_, most)) = getrlimit(Resource::RLIMIT_NOFILE) {
        let _ = setrlimit(Resource::RLIMIT_NOFILE, most, most);
    }
    let mut arguments = Arguments::from_args();
    // Trials that wait for a timer rest meanwhile; more than this only take each other's core.
    arguments.test_threads.get_or_insert(4);
    let mut trials: Vec<Trial> = doc::checks();
    for (number, behaviour) in behaviours::all().enumerate() {
        let setups = setups(behaviour).filter(|setup| is_turn(number, *setup));
        trials.extend(setups.map(|setup| trial(behaviour, setup)));
    }
    libtest_mimic::run(&arguments, trials).exit();
}

/// Each behaviour has its turn with one strategy beside the default one and one kind of congestion control;
/// `URMA_EVERY_STRATEGY=1`: with all of them. On devices that count, one behaviour of twelve is tried, `URMA_EVERY_COUNTED=1`: all;
/// in a virtual machine, which is slow, one of eight, `URMA_EVERY_VFIO=1`: all. Ends that sleep on descriptors are tried with
/// every behaviour between two nodes, with one of four within one and through C, `URMA_EVERY_ASLEEP=1`: all.
fn is_turn(number: usize, setup: Setup) -> bool {
    let is_set = |name: &str| std::env::var_os(name).is_some_and(|value| value == "1");
    if setup.is_vfio {
        return number % 8 == 3 || is_set("URMA_EVERY_VFIO");
    }
    if setup.sleeps && (setup.link == Link::Own || setup.face == Face::C) {
        let turn = match setup.face {
            Face::Rust if setup.is_served => 1,
            Face::Rust => 3,
            Face::C => 0,
        };
        return number % 4 == turn || is_set("URMA_EVERY_ASLEEP");
    }
    if setup.is_counted {
        return number % 12 == 5 || is_set("URMA_EVERY_COUNTED");
    }
    let place = match setup.recovery {
        Strategy::Knitting => return true,
        Strategy::GoBackN => 0,
        Strategy::Irn => 1,
        Strategy::SelectiveRepeat => 2,
        Strategy::Seed => 3,
    };
    let bound = match setup.congestion {
        CongestionChoice::None => 0,
        CongestionChoice::Cubic => 1,
        CongestionChoice::Delay => 2,
    };
    number % 12 == 4 * bound + place || is_set("URMA_EVERY_STRATEGY")
}

fn setups(behaviour: &'static Behaviour) -> impl Iterator<Item = Setup> {
    let rust = Setup::all().into_iter();
    let all = rust.chain(Setup::all_through_c());
    all.filter(|setup| {
        let name = behaviour.name;
        let is_had =
            left_out::c_face_applies(name, *setup) && left_out::standard_applies(name, *setup);
        let is_had = is_had && (!setup.sleeps || behaviours::can_sleep(name));
        is_had && left_out::served_applies(name, *setup) && (behaviour.applies)(*setup)
    })
}

fn trial(behaviour: &'static Behaviour, setup: Setup) -> Trial {
    let name = format!("{}::{setup}", behaviour.name);
    Trial::ignorable_test(name.clone(), move || {
        if let Some(reason) = missing_for(setup) {
            urma_skip::skip_named(&name, reason);
            return Ok(Completion::ignored_with(reason));
        }
        (behaviour.run)(setup).map_err(|failure| format!("{failure}\n{}", behaviour.says))?;
        Ok(Completion::Completed)
    })
}

/// Why `setup` cannot be tried on this machine, if it cannot. Looks at the machine, not at the product: what that fails to
/// use would be taken for missing.
fn missing_for(setup: Setup) -> Option<&'static str> {
    if setup.has_hosts && !has_hosts() {
        return Some("the kernel refuses hosts in network namespaces");
    }
    (setup.moving == Moving::Kernel && !kernel_reads())
        .then_some("the kernel refuses process_vm_readv")
}

/// Whether hosts can be made and joined.
fn has_hosts() -> bool {
    static MADE: OnceLock<bool> = OnceLock::new();
    *MADE.get_or_init(|| Lab::new(LabPlan::bridge(2, 1500)).is_ok())
}

/// Whether the kernel reads memory of a process, of this one, on request.
fn kernel_reads() -> bool {
    static READS: OnceLock<bool> = OnceLock::new();
    *READS.get_or_init(|| {
        let (from, mut to) = ([7_u8; 8], [0_u8; 8]);
        let remote = [RemoteIoVec { base: from.as_ptr().addr(), len: from.len() }];
        let read = process_vm_readv(getpid(), &mut [IoSliceMut::new(&mut to)], &remote);
        read == Ok(8) && to == from
    })
}
