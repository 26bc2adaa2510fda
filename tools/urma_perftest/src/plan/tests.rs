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

/// Each rule of combinations: a line that breaks it alone, and what the refusal says.
const BROKEN: &[(&str, &str)] = &[
    ("write_bw -K 2", "not supported on a software device"),
    ("atomic_lat -a", "4 or 8"),
    ("write_bw -r 2", "consume receives"),
    ("write_bw -c", "can come in a completion"),
    ("write_bw -f", "flat calls"),
    ("atomic_bw -b -f", "flat calls"),
    ("write_bw -b -f -l 2", "flat calls"),
    ("write_bw -b -j false", "no JFR of its own"),
    ("write_lat -N", "have no peak"),
    ("write_lat --span 8192", "for bandwidth tests"),
    ("send_bw -w", "warm up"),
    ("write_lat -w", "warm up"),
    ("write_lat -n 67108865", "keeps every sample"),
    ("send_bw -r 8 -R 4", "receive queue holds"),
    ("write_bw --inf_period_ms 50", "is for -y"),
    ("write_bw -y 2 --inf_period_ms 0", "a multiple of 50"),
    ("write_bw -y 2 --inf_period_ms 60", "a multiple of 50"),
    ("write_lat -y 2", "only bandwidth tests run without end"),
    ("write_bw -y 2 -n 100", "or no end"),
    ("write_bw -y 2 -a", "a run without end is for one size"),
    ("write_bw -y 2 -D 2", "longer than the period"),
    ("send_bw -y 2 -B", "how much will come"),
    ("write_bw -y 2 -B --enable_imm", "how much will come"),
    ("write_bw --histogram", "under --rate_limit only"),
    ("write_bw --rate_limit 0", "--rate_limit 0: from"),
    ("write_bw --rate_limit 1000001", "to 1000000"),
    ("write_bw --rate_limit 0.0005 --rate_units P", "--rate_limit 0.0005: from 0.001 to"),
    ("write_bw --rate_limit 0.0000005", "--rate_limit 0.0000005: from 0.000001 to"),
    ("send_lat --rate_limit 1", "ping-pong"),
    ("write_lat --rate_limit 1", "ping-pong"),
    ("send_bw -B --rate_limit 1", "would not receive"),
    ("send_bw -e --rate_limit 1", "would start late"),
    ("read_lat --rate_limit 1 --burst_size 2", "one at a time"),
    ("write_bw --enable_credit", "only send_bw"),
    ("send_bw -p 2 --enable_credit", "may be lost, and so credit"),
    ("send_bw --enable_credit --credit_threshold 513", "--credit_threshold 513"),
    ("send_bw -l 4 --enable_credit --credit_threshold 3", "--credit_threshold 3"),
    ("send_bw --enable_credit --credit_threshold 8 --credit_notify_cnt 9", "--credit_notify_cnt 9"),
    (
        "send_bw -l 4 --enable_credit --credit_threshold 8 --credit_notify_cnt 6",
        "--credit_notify_cnt 6",
    ),
    ("send_bw --enable_credit --credit_notify_cnt 0", "--credit_notify_cnt 0"),
    ("read_bw --enable_imm", "carry immediate data"),
    ("send_bw --enable_notify", "notifies"),
    ("write_bw --enable_imm --enable_notify", "notifies"),
    ("write_lat --enable_err_continue", "go on after an error"),
    ("atomic_bw --sge_num 2", "one place for its answer"),
    ("send_bw --wait_jfc_timeout 5", "without -e"),
    ("send_bw -e --wait_jfc_timeout -2", "at least -1"),
    ("send_bw -p 2 --ctp", "unreliable path"),
    ("send_bw --order_type 1", "--order_type 1 with -p 0"),
    ("send_bw --order_type 3", "--order_type 3 with -p 0"),
    ("send_bw --order_type 4", "--order_type 4 with -p 0"),
    ("send_bw -p 1 --order_type 2", "--order_type 2 with -p 1"),
    ("write_bw -J 4 -p 1 --jettys_pre_jfr 2", "receives of its own"),
    ("write_bw -J 4 -j false --jettys_pre_jfr 2", "receives of its own"),
    ("write_bw -J 4 --jettys_pre_jfr 3", "a multiple of it"),
    ("write_bw -J 4 --jettys_pre_jfr 8", "a multiple of it"),
    ("write_bw -J 2 --jetty_id 1048575", "20 bits"),
    ("write_bw -s 8 --min_size 8", "a range or one size"),
    ("write_bw -D 2 --max_size 8", "a duration is for one size"),
    ("write_bw -y 2 --max_size 8", "give -s"),
    ("atomic_bw --max_size 8", "4 or 8"),
    ("write_bw --max_size 7", "powers of two"),
    ("write_bw --min_size 3", "powers of two"),
    ("write_bw --sge_num 3 -s 64", "equal pieces"),
    ("write_bw --sge_num 4 -a", "equal pieces"),
    ("write_bw --mgmt ub", "--mgmt ub"),
    ("write_bw --bond_mode balance", "nothing to bond"),
    ("write_bw --page_size 8192", "--page_size 8192"),
    ("write_bw --sip 127.0.0.1 --eid 127.0.0.1", "both name this node"),
    ("write_bw --verify -n 1048577", "at most 1048576"),
    ("write_bw --verify -w", "a warm-up is not checked"),
    ("write_bw --verify -y 2", "--verify with -y"),
    ("write_bw --verify --rate_limit 1", "no measurement"),
    ("write_bw --verify --enable_write_dirty 50", "while they are sent"),
    ("write_bw --verify --enable_err_continue", "contradiction"),
    ("write_bw --verify --enable_imm", "numbers the messages itself"),
    ("write_bw --verify --span 8192", "a place of its own already"),
    ("send_bw -p 2 -B --verify", "taken for wrong ones"),
];

#[test]
fn each_rule_refuses_what_breaks_it() {
    for (line, why) in BROKEN {
        let refusal = plan(line).expect_err(line);
        assert!(refusal.0.contains(why), "{line}: {refusal}");
    }
}

/// The last values that the rules allow.
#[test]
fn no_rule_refuses_more_than_it_says() {
    for line in [
        "write_bw -K 1",
        "send_bw -c",
        "write_bw -b -f",
        "write_bw -w",
        "read_lat -n 67108864",
        "send_bw -r 4 -R 4",
        "write_bw -l 128",
        "write_bw -y 2 -D 3",
        "write_bw -y 2 --inf_period_ms 100",
        "read_bw -y 2 -B",
        "write_bw --rate_limit 1000000 --histogram",
        "write_bw --rate_limit 0.000001",
        "write_bw --rate_limit 0.001 --rate_units P",
        "write_lat --histogram",
        "read_lat --rate_limit 1 --burst_size 1",
        "send_bw -l 4 --enable_credit --credit_threshold 8 --credit_notify_cnt 5",
        "send_bw --enable_credit --credit_threshold 512",
        "send_bw -l 4 --enable_credit --credit_threshold 4 --credit_notify_cnt 1",
        "write_bw --enable_notify",
        "send_bw -e --wait_jfc_timeout -1",
        "send_bw -p 1 --order_type 1",
        "send_bw -p 1 --order_type 3",
        "send_bw --order_type 2",
        "send_bw -p 1 --order_type 4",
        "send_bw -p 2 -s 64 --order_type 4",
        "write_bw -J 4 --jettys_pre_jfr 2",
        "write_bw -J 4 --jettys_pre_jfr 4",
        "write_bw -J 2 --jetty_id 1048574",
        "write_bw --min_size 8 --max_size 64",
        "write_bw --sge_num 4 -s 64",
        "write_bw --bond_mode standalone",
        "write_bw --verify -n 1048576",
        "write_bw -E 31 -O 15 -Q 65536 -R 65536 -T 65536 -C 1048576 -n 5",
        "write_bw -J 1024 --span 4294967296 --wait-timeout 86400",
        "write_bw -D 3600 --enable_write_dirty 1048576",
        "write_bw -y 3600 --rate_limit 1 --burst_size 65536",
        "write_bw --sge_num 64 -s 2147483648",
    ] {
        plan(line).unwrap_or_else(|why| panic!("{line}: {why}"));
    }
}

#[test]
fn each_range_has_an_end() {
    for (option, beyond, range) in [
        ("-K", 4_u64, "0 and 3"),
        ("-O", 16, "0 and 15"),
        ("-J", 1025, "1 and 1024"),
        ("-Q", 0, "1 and 65536"),
        ("-Q", 65_537, "1 and 65536"),
        ("-l", 4097, "1 and 4096"),
        ("-l", 0, "1 and 4096"),
        ("-r", 4097, "1 and 4096"),
        ("-R", 65_537, "1 and 65536"),
        ("-T", 65_537, "1 and 65536"),
        ("-T", 0, "1 and 65536"),
        ("-C", 1_048_577, "1 and 1048576"),
        ("-s", 2_147_483_649, "1 and 2147483648"),
        ("-D", 0, "1 and 3600"),
        ("-D", 3601, "1 and 3600"),
        ("-y", 3601, "1 and 3600"),
        ("--order_type", 5, "0 and 4"),
        ("--sge_num", 0, "1 and 64"),
        ("--sge_num", 65, "1 and 64"),
        ("--jettys_pre_jfr", 0, "1 and 1024"),
        ("--jettys_pre_jfr", 1025, "1 and 1024"),
        ("--jetty_id", 1_048_576, "0 and 1048575"),
        ("--rate_limit 1 --burst_size", 65_537, "1 and 65536"),
        ("--enable_write_dirty", 49, "50 and 1048576"),
        ("--enable_write_dirty", 1_048_577, "50 and 1048576"),
        ("--span", 4_294_967_297, "0 and 4294967296"),
        ("--wait-timeout", 0, "1 and 86400"),
        ("--wait-timeout", 86_401, "1 and 86400"),
    ] {
        let refusal = plan(&format!("write_bw {option} {beyond}")).expect_err(option);
        let last = option.rsplit(' ').next().unwrap();
        assert!(refusal.0.starts_with(&format!("{last} {beyond}: ")), "{option}: {refusal}");
        assert!(refusal.0.ends_with(&format!("must be between {range}")), "{option}: {refusal}");
    }
}
