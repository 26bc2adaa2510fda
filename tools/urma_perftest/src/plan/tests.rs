//! What goes together, what does not, and that the reason is given.

use clap::Parser;

use super::*;

fn plan(line: &str) -> Result<Plan, PlanRefusal> {
    let words = std::iter::once("urma_perftest").chain(line.split_whitespace());
    Plan::of(&PerftestCli::try_parse_from(words).unwrap_or_else(|error| panic!("{line}: {error}")))
}

#[test]
fn defaults_are_those_of_umdk() {
    let lat = plan("write_lat").unwrap().test;
    assert_eq!((lat.sizes, lat.extent), (vec![2], RunLength::Iterations(10_000)));
    assert_eq!((lat.jfs_depth, lat.jfr_depth, lat.jfc_depth), (1, 512, 512));
    let bw = plan("read_bw -S 127.0.0.1").unwrap().test;
    assert_eq!((bw.sizes, bw.extent), (vec![65536], RunLength::Iterations(50_000)));
    assert_eq!((bw.jfs_depth, bw.jfr_depth, bw.jfc_depth, bw.cq_mod), (128, 1, 4096, 100));
    assert_eq!(plan("atomic_lat").unwrap().test.sizes, vec![8]);
}

#[test]
fn every_command_parses() {
    for command in [
        "read_lat",
        "write_lat",
        "send_lat",
        "atomic_lat",
        "read_bw",
        "write_bw",
        "send_bw",
        "atomic_bw",
    ] {
        plan(command).unwrap_or_else(|why| panic!("{command}: {why}"));
    }
}

#[test]
fn all_sizes_run_to_the_order() {
    assert_eq!(plan("send_lat -a").unwrap().test.sizes.last(), Some(&4096));
    assert_eq!(plan("write_bw -a").unwrap().test.sizes.last(), Some(&65536));
    assert_eq!(plan("write_bw -a 3").unwrap().test.sizes, vec![2, 4, 8]);
    assert_eq!(plan("write_bw -a3 -n 9").unwrap().test.sizes, vec![2, 4, 8]);
}

#[test]
fn roles_follow_from_the_address() {
    assert!(!plan("read_lat").unwrap().is_client());
    assert!(!plan("read_lat").unwrap().is_active());
    assert!(plan("write_lat").unwrap().is_active());
    assert!(plan("read_bw -B").unwrap().is_active());
    assert!(plan("send_lat").unwrap().is_measuring());
    assert!(!plan("read_bw -B").unwrap().is_measuring());
    assert!(!plan("atomic_lat").unwrap().is_measuring());
    assert!(plan("read_lat -S 10.0.0.1").unwrap().is_client());
}

#[test]
fn impossible_combinations_say_why() {
    for (line, why) in [
        ("write_lat -p 2", "SEND only"),
        ("read_bw -p 2", "SEND only"),
        ("read_lat -A cas", "not an atomic"),
        ("atomic_lat -s 16", "4 or 8"),
        ("atomic_bw -a", "4 or 8"),
        ("write_lat -e", "no event"),
        ("read_lat -I 8", "inline"),
        ("write_lat -B", "both directions"),
        ("write_lat -J 2", "several jetties"),
        ("write_lat -l 2", "one at a time"),
        ("write_bw -D 2 -n 100", "choose"),
        ("write_bw -D 2 -a", "one size"),
        ("write_bw -s 2 -a", "choose"),
        ("write_bw -l 8 -T 4", "more than the send queue holds"),
        ("send_bw -b -p 1", "RC binds"),
        ("send_bw --verify -D 1", "number of messages"),
        ("write_lat --verify -s 1", "counter"),
        ("write_bw -n 4", "between 5"),
        ("write_bw -p 3", "between 0 and 2"),
        ("write_bw -E 32", "between 0 and 31"),
        ("write_bw -J 0", "between 1"),
        ("write_bw -s 0", "between 1"),
        ("write_bw --eid nonsense", "not an EID"),
        ("write_bw --peer-cpu 1", "client"),
        ("read_lat --spin memory", "write_lat"),
    ] {
        let refusal = plan(line).expect_err(line);
        assert!(refusal.0.contains(why), "{line}: {refusal}");
    }
}

#[test]
fn limits_of_the_device_are_named() {
    let caps = urma::DeviceCaps {
        modes: urma::ModeSet::all(),
        max_jfs_depth: 64,
        max_jfr_depth: 1024,
        max_jfc_depth: 8192,
        max_jetty: 8,
        max_jfs_inline: 32,
        max_jfs_sge: 11,
        max_write_size: 65536,
        ..Default::default()
    };
    let fits = |line: &str| plan(line).unwrap().test.fits(&caps);
    assert_eq!(fits("write_bw -T 64"), Ok(()));
    for (line, why) in [
        ("write_bw", "JFS depth 128"),
        ("write_bw -T 64 -s 65537", "message size 65537"),
        ("write_bw -T 64 -I 33", "inline size 33"),
        ("write_bw -T 64 -J 9", "jetties 9"),
        ("read_lat", "message size 2"),
    ] {
        let refusal = fits(line).expect_err(line);
        assert!(refusal.0.contains(why), "{line}: {refusal}");
    }
}

#[test]
fn differences_name_both_values() {
    let mine = plan("write_bw -s 64").unwrap().test;
    assert!(mine.differences(&plan("write_bw -s 64 -S x").unwrap().test).is_empty());
    let theirs = plan("write_bw -s 128 -J 2").unwrap().test;
    let differences = mine.differences(&theirs);
    assert!(differences.contains(&"jettys: 1 here, 2 there".to_owned()), "{differences:?}");
    assert!(differences.contains(&"sizes: [64] here, [128] there".to_owned()), "{differences:?}");
}
