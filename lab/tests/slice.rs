//! A slice of the grid: strategies against their formulas, and results that depend on the seed alone.

use lab::sweep::Sweep;
use lab::wan::cell::{self, Seeds};
use lab::wan::grid::GridCell;
use lab::wan::grid::GridText;
use lab::wan::results::{CellResult, hash};

fn grid(strategies: &[&str], losses: &[&str]) -> GridText {
    let list = |texts: &[&str]| texts.iter().map(|text| (*text).to_owned()).collect();
    GridText {
        rates: list(&["100G"]),
        rtts: list(&["1ms"]),
        losses: list(losses),
        sizes: list(&["60bdp"]),
        strategies: list(strategies),
        tail: "oracle".to_owned(),
        adamap: String::new(),
        budget: 400_000,
        ..GridText::default()
    }
}

fn run(grid: &GridText, workers: usize) -> Vec<CellResult> {
    let cells = grid.cells().expect("a grid that makes sense");
    run_grid(&cells, Seeds { first: 1, count: 5 }, workers)
}

fn run_grid(cells: &[GridCell], seeds: Seeds, workers: usize) -> Vec<CellResult> {
    let mut results = Vec::new();
    cell::run_grid(cells, seeds, &mut Sweep::plain(workers), || {}, |result| results.push(result))
        .expect("nothing is kept");
    results
}

#[test]
fn strategies_stay_near_their_formulas() {
    for result in run(&grid(&["gbn", "irn", "ours"], &["iid:0.001", "iid:0.01", "iid:0.05"]), 2) {
        let (name, loss) = (result.cell.strategy, &result.cell.loss);
        let goodput = result.metrics.goodput_over_limit.expect("every run delivers").median;
        let ratio = goodput / result.formula;
        let (least, most) = match name {
            "gbn" => (0.95, 1.05),
            "irn" => (0.85, 1.15),
            _ => (0.99, 1.01),
        };
        assert!(
            (least..=most).contains(&ratio),
            "{name} {loss}: {goodput}, formula {}",
            result.formula
        );
    }
}

/// With few losses a round trip hardly varies; a timeout that is no loss would cost more than all of them.
#[test]
fn go_back_n_has_no_timeouts_of_its_own() {
    let sizes = vec!["100losses".to_owned()];
    let grid = GridText { sizes, budget: 4_000_000, ..grid(&["gbn"], &["iid:1e-4"]) };
    for result in run(&grid, 2) {
        let goodput = result.metrics.goodput_over_limit.expect("every run delivers").median;
        let ratio = goodput / result.formula;
        assert!((0.95..=1.05).contains(&ratio), "{goodput}, formula {}", result.formula);
        assert_eq!(result.metrics.timeouts.expect("every run ends").p99, 0.0);
    }
}

/// Goodput over the rate of a window of one product, where each packet is acknowledged by itself at once: a simulation
/// in slots of one packet, 12,000 packets to the product.
#[test]
fn irn_is_near_a_simulation_in_slots() {
    let rows = [("iid:1e-4", 0.64), ("iid:0.001", 0.53), ("iid:0.01", 0.42), ("iid:0.05", 0.30)];
    for (loss, slots) in rows {
        let grid = GridText { packet: (1000, 42), budget: 4_000_000, ..grid(&["irn"], &[loss]) };
        for result in run(&grid, 2) {
            let goodput = result.metrics.goodput_over_limit.expect("every run delivers").median;
            let over_rate = goodput * (1.0 - result.cell.numbers.loss);
            let (ratio, formula) = (over_rate / slots, goodput / result.formula);
            assert!((0.9..=1.1).contains(&ratio), "{loss}: {over_rate}, in slots {slots}");
            assert!((0.85..=1.15).contains(&formula), "{loss}: {formula} of the formula");
        }
    }
}

/// Memory of the NIC, accesses of the pool and hits as the issue names them; with fewer lines packets wait.
#[test]
fn ten_thousand_tps_need_few_lines() {
    let many = |lines: usize| GridText {
        rates: vec!["400G".to_owned()],
        rtts: vec!["10ms".to_owned()],
        sizes: vec!["3bdp".to_owned()],
        tps: vec![10_000],
        nic_lines: lines,
        budget: 20_000_000,
        ..grid(&["ours"], &["iid:0.01"])
    };
    for (lines, is_enough) in [(4096, true), (16, false)] {
        let cells = many(lines).cells().expect("a grid that makes sense");
        for result in run_grid(&cells, Seeds { first: 1, count: 1 }, 1) {
            let metrics = &result.metrics;
            let median = |value: Option<lab::stats::Summary>| value.expect("every run ends").median;
            assert!(median(metrics.nic_bytes_per_tp) <= 64.0);
            let peak = median(metrics.nic_cache_lines_peak);
            assert!(peak <= lines as f64 && median(metrics.nic_cache_bytes) > 64.0 * lines as f64);
            let hits = median(metrics.list_hit_ratio);
            let dma = median(metrics.dma_ops_per_lost_packet);
            assert_eq!(hits >= 0.999 && dma <= 0.10, is_enough, "{lines}: {hits}, {dma}");
        }
    }
}

#[test]
fn tps_share_the_link_and_late_packets_cost_little() {
    let shared = GridText { tps: vec![16], ..grid(&["ours"], &["amazon:0.01"]) };
    let late = GridText { late: (0.05, 64), feedback_loss: 0.01, ..grid(&["ours"], &["none"]) };
    for grid in [shared, late] {
        for result in run(&grid, 2) {
            let goodput = result.metrics.goodput_over_limit.expect("every run delivers").median;
            assert!(goodput >= 0.95, "{:?}: {goodput}", result.cell);
        }
    }
}

#[test]
fn a_run_without_a_steady_part_has_no_goodput() {
    let short = GridText { sizes: vec!["100kB".to_owned()], ..grid(&["ours"], &["iid:0.01"]) };
    for result in run(&short, 1) {
        assert_eq!(result.metrics.goodput_over_limit, None);
        assert!(result.metrics.fct_over_bound.is_some());
    }
}

/// Completion times over their bounds and extra bytes, as issue and page name them.
#[test]
fn the_tail_costs_no_round_trip() {
    let at = |size: &str, loss: &str| GridText {
        rtts: vec!["10ms".to_owned()],
        sizes: vec![size.to_owned()],
        ..grid(&["ours"], &[loss])
    };
    let cells = [(at("200MB", "iid:0.01"), 1.10, 0.08), (at("1MB", "iid:0.05"), 1.25, 0.18)];
    for (grid, most, extra) in cells {
        for result in run(&grid, 2) {
            let fct = result.metrics.fct_over_bound.expect("every run ends").p99;
            let bytes = result.metrics.extra_bytes_ratio.expect("every run ends").p99;
            assert!(fct <= most && bytes <= extra, "{fct} {bytes}: {:?}", result.cell);
        }
    }
}

#[test]
fn the_adamap_design_takes_the_times_of_its_authors() {
    let at = |rtt: &str, loss: &str| GridText {
        rtts: vec![rtt.to_owned()],
        sizes: vec!["200MB".to_owned()],
        packet: (1000, 48),
        dma_latency: "250ns".to_owned(),
        ..grid(&["seed"], &[loss])
    };
    let cells = [("100us", 0.001, 16.93), ("100us", 0.01, 17.19), ("1ms", 0.001, 18.31)];
    for (rtt, loss, authors_ms) in cells {
        for result in run(&at(rtt, &format!("amazon@link:{loss}")), 2) {
            let ms = result.metrics.fct_s.expect("every run ends").median * 1e3;
            assert!((ms / authors_ms - 1.0).abs() < 0.03, "{ms} ms: {:?}", result.cell);
        }
    }
}

#[test]
fn the_hash_of_results_does_not_depend_on_workers() {
    let grid = grid(&["irn", "ours"], &["ge:0.01"]);
    let hashes: Vec<String> = [1, 3].map(|workers| hash(&run(&grid, workers))).to_vec();
    assert_eq!(hashes[0], hashes[1]);
    let cells = grid.cells().expect("a grid that makes sense");
    let other = run_grid(&cells, Seeds { first: 2, count: 5 }, 2);
    assert_ne!(hashes[0], hash(&other), "another seed, another result");
}

/// Reads of the pool that get no answer are made again; an engine that never answers ends the run, and says so.
#[test]
fn dma_reads_that_never_return_are_survived_or_named() {
    for strategy in ["ours", "seed"] {
        let silent = |every| GridText {
            dma_silent: every,
            nic_lines: 8,
            ..grid(&[strategy], &["iid:0.05"])
        };
        let median = |result: &CellResult, name| {
            let found = result.metrics.named().into_iter().find(|(named, _)| *named == name);
            found.and_then(|(_, summary)| summary).map(|summary| summary.median)
        };
        let [plain, some, all] = [0, 7, 1].map(|every| run(&silent(every), 2).remove(0));
        assert_eq!(median(&plain, "dma_timeouts"), Some(0.0), "{strategy}");
        assert!(median(&some, "dma_timeouts") > Some(10.0), "{strategy}: {some:?}");
        assert_eq!(median(&some, "dma_failed"), Some(0.0), "{strategy}");
        // Lines read in advance hide most of it.
        let slowed = median(&some, "fct_s").zip(median(&plain, "fct_s")).map(|(a, b)| a / b);
        assert!(slowed.is_some_and(|slowed| slowed < 1.5), "{strategy}: {some:?}");
        assert_eq!((median(&all, "dma_failed"), median(&all, "fct_s")), (Some(1.0), None));
    }
}
