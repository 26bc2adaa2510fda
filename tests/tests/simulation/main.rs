//! The whole stack in virtual time under many seeds; statuses that only a fault brings.
//!
//! `URMA_SEEDS=5000` runs more of them, from `URMA_FROM` on, `URMA_SEED=17` one;
//! `URMA_PLAN=nodes=2,requests=7` makes their worlds smaller, as a failure prints it.
#![forbid(unsafe_code)]
#![expect(clippy::print_stdout, reason = "hashes, totals and progress are what a run is asked for")]

mod long_paths;
mod statuses;

use std::process::Command;
use std::sync::Arc;

use ubcore_sim::nic::ModelMode;
use ubcore_sim::sim::FabricCfg;
use ubcore_sim::{ExpressLane, PingPongs};
use urma_nic::NicCfg;
use urma_tests::sim::{Report, SimPlan, Weather, Work, run, shrink};

/// Seeds of each suite when nothing else is asked for.
const SEEDS: u64 = 50;
/// Seeds between two lines of progress.
const PROGRESS: u64 = 10_000;

fn seeds() -> Vec<u64> {
    let number = |name| std::env::var(name).ok().and_then(|text| text.parse::<u64>().ok());
    match number("URMA_SEED") {
        Some(seed) => vec![seed],
        None => {
            let from = number("URMA_FROM").unwrap_or(0);
            (from..from + number("URMA_SEEDS").unwrap_or(SEEDS)).collect()
        }
    }
}

/// Runs a plan of suite `name`. A failure is made smaller first, and names the command that repeats it.
fn check(name: &str, mut plan: SimPlan) -> Report {
    plan.change(&std::env::var("URMA_PLAN").unwrap_or_default()).expect("URMA_PLAN");
    set_models(&mut plan.fabric);
    let first = match run(&plan) {
        Ok(report) => return report,
        Err(failure) => failure,
    };
    let (seed, what) = (plan.seed, first.what.clone());
    let smaller = shrink(&plan, first);
    let given = std::env::var("URMA_PLAN").unwrap_or_default();
    let changes = [given, smaller.changes].join(",");
    panic!(
        "{name}, seed {seed}: {what}\nsmaller: {:?}\nto repeat: URMA_SEED={seed} \
         URMA_PLAN={} cargo test -p urma-tests --release --test simulation {name} -- --exact",
        smaller.failure,
        changes.trim_matches(','),
    );
}

/// The models of the NIC as `URMA_MODELS` says: `off`, `count` or `time`; without it the world keeps what it has.
fn set_models(fabric: &mut FabricCfg) {
    let mode = match std::env::var("URMA_MODELS").as_deref() {
        Ok("off") => ModelMode::Off,
        Ok("count") => ModelMode::Count,
        Ok("time") => ModelMode::Time,
        Ok(other) => panic!("URMA_MODELS is {other:?}; it must be off, count or time"),
        Err(_) => return,
    };
    fabric.models =
        Some(Arc::new(NicCfg { contexts: mode, packet_engine: mode, ..NicCfg::default() }));
}

/// Runs all seeds of suite `name`, which is a test here.
fn all_of(name: &str, plan: impl Fn(u64) -> SimPlan) -> Report {
    let mut sum = Report::default();
    let seeds = seeds();
    for (done, &seed) in (1..).zip(&seeds) {
        sum += check(name, plan(seed));
        if done % PROGRESS == 0 {
            println!("{name}: {done} of {} seeds", seeds.len());
        }
    }
    println!("{name}: {} seeds: {sum:?}", seeds.len());
    sum
}

fn all_in(name: &str, weather: Weather, work: Work) {
    let sum = all_of(name, |seed| SimPlan::new(seed, weather, work));
    assert!(sum.requests > 0 && (sum.messages > 0 || work == Work::OneSided));
}

/// A world with kills, half of them with an attacker; seeds alternate two weathers.
fn killing(seed: u64, weathers: [Weather; 2]) -> SimPlan {
    let weather = if seed.is_multiple_of(2) { weathers[0] } else { weathers[1] };
    let plan = SimPlan::new(seed, weather, Work::All).with_kills();
    if seed % 4 < 2 { plan } else { plan.with_attacker() }
}

fn with_kills(name: &str, weathers: [Weather; 2]) {
    let sum = all_of(name, |seed| killing(seed, weathers));
    assert!(sum.messages > 0);
}

#[test]
fn one_sided_work_is_exact_on_one_host() {
    all_in("one_sided_work_is_exact_on_one_host", Weather::SameHost, Work::OneSided);
}

#[test]
fn all_work_is_exact_on_one_host() {
    all_in("all_work_is_exact_on_one_host", Weather::SameHost, Work::All);
}

#[test]
fn all_work_is_exact_over_fair_links() {
    all_in("all_work_is_exact_over_fair_links", Weather::Fair, Work::All);
}

#[test]
fn all_work_is_exact_over_foul_links() {
    all_in("all_work_is_exact_over_foul_links", Weather::Foul, Work::All);
}

#[test]
fn all_work_is_exact_in_wild_weather() {
    all_in("all_work_is_exact_in_wild_weather", Weather::Wild, Work::All);
}

#[test]
fn all_work_is_exact_on_mixed_paths() {
    all_in("all_work_is_exact_on_mixed_paths", Weather::Mixed, Work::All);
}

/// Whatever is sent from whatever address, no import is refused and no request fails.
#[test]
fn an_attacker_that_receives_nothing_moves_nothing() {
    let weathers = [Weather::Fair, Weather::Foul, Weather::Mixed];
    let plan = |seed: u64| {
        let weather = weathers[usize::try_from(seed % 3).unwrap_or(0)];
        SimPlan::new(seed, weather, Work::All).with_attacker()
    };
    let sum = all_of("an_attacker_that_receives_nothing_moves_nothing", plan);
    assert!(sum.messages > 0);
}

/// While packets of others come as fast as a socket sends them, all the time, no import is refused and
/// no request fails. A tenth of the seeds: such a world takes ten times as long.
#[test]
fn all_work_is_exact_in_a_flood() {
    let mut sum = Report::default();
    for seed in seeds().into_iter().step_by(10) {
        let plan = SimPlan::new(seed, Weather::Fair, Work::All).with_flood();
        sum += check("all_work_is_exact_in_a_flood", plan);
    }
    println!("all_work_is_exact_in_a_flood: {sum:?}");
    assert!(sum.messages > 0);
}

/// Routers of different MTUs, which change in mid-run.
fn routed(seed: u64) -> SimPlan {
    let weather = if seed.is_multiple_of(3) { Weather::Foul } else { Weather::Fair };
    SimPlan::new(seed, weather, Work::All).with_routers()
}

/// Nothing is lost or doubled, and no request fails, however narrow a path becomes while it is used.
#[test]
fn all_work_is_exact_through_routers_whose_mtu_changes() {
    let sum = all_of("all_work_is_exact_through_routers_whose_mtu_changes", routed);
    assert!(sum.messages > 0);
    assert!(sum.narrowed > 0 || seeds().len() < 10, "no path became narrower in mid-run: {sum:?}");
}

/// Long paths that lose packets, half of them bad in every other way, too.
fn long(seed: u64) -> SimPlan {
    let weather = if seed.is_multiple_of(2) { Weather::Foul } else { Weather::Fair };
    SimPlan::new(seed, weather, Work::All).over_long_paths()
}

/// Packets that repair packets bring are those that were lost, in their place, once.
#[test]
fn all_work_is_exact_over_long_paths() {
    let sum = all_of("all_work_is_exact_over_long_paths", long);
    assert!(sum.messages > 0);
    assert!(sum.repaired > 0 || seeds().len() < 10, "no packet was repaired: {sum:?}");
}

/// The model of the context cache decides nothing: the same world with it and without has the same log, to the byte, and all
/// work in it is exact.
#[test]
fn a_counted_context_cache_changes_nothing() {
    for weather in [Weather::SameHost, Weather::Fair, Weather::Foul] {
        for seed in seeds().into_iter().step_by(10) {
            let plan = killing(seed, [weather; 2]);
            let of = |change: fn(&mut FabricCfg)| {
                let mut plan = plan.clone();
                change(&mut plan.fabric);
                check("a_counted_context_cache_changes_nothing", plan).hash
            };
            let long_way = of(|fabric| {
                for device in &mut fabric.devices {
                    (device.lane, device.ping_pongs) = (ExpressLane::Off, PingPongs::Never);
                }
            });
            let counted = of(|fabric| {
                let contexts = ModelMode::Count;
                fabric.models = Some(Arc::new(NicCfg { contexts, ..NicCfg::default() }));
            });
            assert_eq!(long_way, counted, "{weather:?}, seed {seed}");
        }
    }
}

/// Whole campaigns of faults while requests wait for their contexts and packets for their cycles. A tenth of the seeds, of
/// each kind of world in turn; `URMA_MODELS=time` runs every suite so.
#[test]
fn all_work_is_exact_with_the_models_in_virtual_time() {
    let mut sum = Report::default();
    for (turn, seed) in seeds().into_iter().step_by(10).enumerate() {
        let mut plan = match turn % 5 {
            0 => SimPlan::new(seed, Weather::SameHost, Work::All),
            1 => killing(seed, [Weather::Foul, Weather::Mixed]),
            2 => SimPlan::new(seed, Weather::Wild, Work::All),
            3 => stopping(seed),
            _ => routed(seed),
        };
        let (contexts, packet_engine) = (ModelMode::Time, ModelMode::Time);
        plan.fabric.models =
            Some(Arc::new(NicCfg { contexts, packet_engine, ..NicCfg::default() }));
        sum += check("all_work_is_exact_with_the_models_in_virtual_time", plan);
    }
    println!("all_work_is_exact_with_the_models_in_virtual_time: {sum:?}");
    assert!(sum.messages > 0);
}

#[test]
fn survivors_are_exact_on_one_host() {
    with_kills("survivors_are_exact_on_one_host", [Weather::SameHost, Weather::Mixed]);
}

#[test]
fn survivors_are_exact_over_links() {
    with_kills("survivors_are_exact_over_links", [Weather::Foul, Weather::Mixed]);
}

/// Nodes that close say so, maybe before their last responses.
#[test]
fn survivors_are_exact_in_wild_weather() {
    with_kills("survivors_are_exact_in_wild_weather", [Weather::Wild, Weather::Wild]);
}

#[test]
fn survivors_are_exact_around_nodes_that_close() {
    let plan = |seed: u64| {
        let weathers = [Weather::Fair, Weather::Foul, Weather::Mixed];
        let weather = weathers[usize::try_from(seed % 3).unwrap_or(0)];
        SimPlan::new(seed, weather, Work::All).with_closes()
    };
    assert!(all_of("survivors_are_exact_around_nodes_that_close", plan).messages > 0);
}

/// Seeds that failed once, with the suites of kills and of stops.
#[test]
fn seeds_that_failed_pass() {
    for seed in [95, 500, 734, 1007, 1159, 1198, 1265, 1811, 3111, 3412, 4529, 5270, 5793, 30_043] {
        for (name, weathers) in [
            ("survivors_are_exact_on_one_host", [Weather::SameHost, Weather::Mixed]),
            ("survivors_are_exact_over_links", [Weather::Foul, Weather::Mixed]),
        ] {
            let _ = check(name, killing(seed, weathers));
        }
    }
    let wild = [Weather::Wild, Weather::Wild];
    for seed in [80, 21_624, 31_237] {
        let _ = check("survivors_are_exact_in_wild_weather", killing(seed, wild));
    }
    for seed in [2337, 3007, 4561, 6591, 12115, 38_811] {
        let _ = check("all_work_is_exact_around_stopped_nodes", stopping(seed));
    }
    for seed in [80, 31_504] {
        let wild = SimPlan::new(seed, Weather::Wild, Work::All);
        let _ = check("all_work_is_exact_in_wild_weather", wild);
    }
    for seed in [476, 27_767] {
        let _ = check("all_work_is_exact_while_ports_are_pulled", pulling(seed));
    }
    for seed in [165, 20_130, 11_002_749] {
        let _ = check("all_work_is_exact_through_routers_whose_mtu_changes", routed(seed));
    }
}

/// A world with nodes that are stopped and go on; the weather changes from seed to seed.
fn stopping(seed: u64) -> SimPlan {
    let weathers = [Weather::Fair, Weather::Foul, Weather::SameHost, Weather::Mixed];
    let weather = weathers[usize::try_from(seed % 4).unwrap_or(0)];
    SimPlan::new(seed, weather, Work::All).with_stops()
}

/// Nothing fails, on either side.
#[test]
fn all_work_is_exact_around_stopped_nodes() {
    assert!(all_of("all_work_is_exact_around_stopped_nodes", stopping).messages > 0);
}

/// A world with two ports a node, which are pulled and joined again.
fn pulling(seed: u64) -> SimPlan {
    let weather = [Weather::Fair, Weather::Foul][usize::from(seed % 4 == 3)];
    SimPlan::new(seed, weather, Work::All).with_ports()
}

/// Nothing is lost, and nothing is executed twice.
#[test]
fn all_work_is_exact_while_ports_are_pulled() {
    assert!(all_of("all_work_is_exact_while_ports_are_pulled", pulling).messages > 0);
}

/// The hash of one world, for the tests below, which run this one in processes of their own.
#[test]
#[ignore = "run by the tests of hashes"]
fn print_hashes() {
    let only = std::env::var("URMA_SIM_WORLD").unwrap_or_default();
    let worlds = [
        (Weather::SameHost, Work::OneSided),
        (Weather::SameHost, Work::All),
        (Weather::Foul, Work::All),
        (Weather::Mixed, Work::All),
    ];
    for (weather, work) in worlds {
        let name = format!("{weather:?}-{work:?}");
        if name != only {
            continue;
        }
        match run(&SimPlan::new(3, weather, work)) {
            Ok(report) => println!("hash {:016x}", report.hash),
            Err(failure) => panic!("{failure:?}"),
        }
    }
}

/// Runs a world in a process of its own.
fn hash_of(world: &str) -> String {
    let exe = std::env::current_exe().expect("this test");
    let args = ["--exact", "print_hashes", "--ignored", "--nocapture"];
    let output = Command::new(exe).args(args).env("URMA_SIM_WORLD", world).output();
    let text = String::from_utf8_lossy(&output.expect("it starts").stdout).into_owned();
    let hash = text.lines().find_map(|line| line.split("hash ").nth(1));
    hash.unwrap_or_else(|| panic!("{world} printed no hash: {text}")).to_owned()
}

#[test]
fn two_processes_print_the_same_hash_for_direct_requests() {
    assert_eq!(hash_of("SameHost-OneSided"), hash_of("SameHost-OneSided"));
}

#[test]
fn two_processes_print_the_same_hash_for_all_work() {
    for world in ["SameHost-All", "Foul-All", "Mixed-All"] {
        assert_eq!(hash_of(world), hash_of(world), "{world}");
    }
}

/// Mistakes of the device on purpose.
#[cfg(feature = "planted-faults")]
mod planted {
    use ubcore_sim::fault::PlantedFault;

    use super::*;

    /// Worlds of every kind in turn: nothing says where a mistake shows.
    fn any_world(seed: u64) -> SimPlan {
        let all = |weather| SimPlan::new(seed, weather, Work::All);
        match seed % 10 {
            0 => SimPlan::new(seed, Weather::SameHost, Work::OneSided),
            1 => all(Weather::SameHost),
            2 => all(Weather::Foul).with_attacker(),
            3 => all(Weather::Mixed),
            4 => all(Weather::Wild),
            // Without jetties that stop, every receive has to come back.
            5 => SimPlan { trouble_ppm: 0, ..killing(seed, [Weather::Wild, Weather::Mixed]) },
            6 => routed(seed),
            7 => stopping(seed),
            8 => long(seed),
            _ => pulling(seed),
        }
    }

    fn with_fault(mut plan: SimPlan, fault: PlantedFault) -> SimPlan {
        for device in &mut plan.fabric.devices {
            device.fault = Some(fault);
        }
        plan
    }

    /// Seeds in which a fault must show. `URMA_SEEDS` gives another number.
    const FOUND_WITHIN: u64 = 1_000;

    /// Checks that cannot fail prove nothing: each mistake turns a run red, wherever it shows.
    #[test]
    fn every_mistake_is_found() {
        let number = std::env::var("URMA_SEEDS").ok().and_then(|text| text.parse().ok());
        let seeds = number.unwrap_or(FOUND_WITHIN);
        let mut missed = Vec::new();
        for &fault in PlantedFault::ALL {
            let of = |seed| {
                run(&with_fault(any_world(seed), fault)).err().map(|failure| (seed, failure))
            };
            match (0..seeds).find_map(of) {
                Some((seed, failure)) => println!("{fault:?}: seed {seed}: {}", failure.what),
                None => missed.push(fault),
            }
        }
        assert!(missed.is_empty(), "not found in {seeds} seeds: {missed:?}");
    }

    /// The search for a smaller world keeps the failure and gives what brings it back.
    #[test]
    fn a_failure_shrinks_to_a_few_requests() {
        for fault in [PlantedFault::TokenNotChecked, PlantedFault::CompletionDoubled] {
            let plan = |seed| {
                let plan = SimPlan::new(seed, Weather::Mixed, Work::All).with_kills();
                with_fault(plan, fault)
            };
            let failing = (0..20).find_map(|seed| Some((seed, run(&plan(seed)).err()?)));
            let (seed, failure) = failing.expect("a seed that fails");
            let smaller = shrink(&plan(seed), failure);
            assert!(smaller.plan.requests <= 15, "{}", smaller.changes);
            let mut again = plan(seed);
            again.change(&smaller.changes).expect("words of a search");
            let again = run(&again).expect_err("it fails again");
            assert_eq!(again, smaller.failure, "step for step");
        }
    }
}
