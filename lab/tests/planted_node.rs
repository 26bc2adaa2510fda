//! Devices that err on purpose: `node` says what is wrong.

use lab::node::grid::{NodeCell, NodeCommon, NodeGrid};
use lab::node::run::run_on;
use ubcore_sim::fault::PlantedFault;

fn cell(mix: &str, hosts: &str, loss: &str) -> NodeCell {
    let one = |text: &str| vec![text.to_owned()];
    let grid = NodeGrid {
        nodes: vec![3],
        hosts: one(hosts),
        mixes: one(mix),
        losses: one(loss),
        bursts: one("0"),
        duplicates: one("5%"),
        reorders: one("5%"),
        corrupts: one("1%"),
        delays: one("10us"),
        strategies: one("knitting"),
        congestions: one("none"),
        restarts: vec![0],
        common: NodeCommon {
            burst_length: 10,
            reorder_by: "100us".to_owned(),
            jitter: "0us".to_owned(),
            rate: None,
            requests: 100,
            depth: 8,
            size: 3000,
            mtu: 1024,
            down: "5ms".to_owned(),
            bound: "20s".to_owned(),
        },
    };
    grid.cells().expect("a grid that makes sense").remove(0)
}

/// What the first of some seeds says that finds something wrong with devices with this fault.
fn found(cell: &NodeCell, fault: Option<PlantedFault>) -> Option<String> {
    let broken = |seed| {
        let mut fabric = cell.fabric(seed, 0);
        fabric.devices.iter_mut().for_each(|device| device.fault = fault);
        run_on(cell, fabric).0.broken
    };
    (1..=8).find_map(broken)
}

#[test]
fn each_planted_fault_is_found_and_named() {
    for hosts in ["own", "one"] {
        let right = found(&cell("all", hosts, "5%"), None);
        assert_eq!(right, None, "{hosts}");
    }
    for (fault, mix, hosts, words) in [
        (PlantedFault::CompletionDoubled, "all", "own", "the driver warns"),
        (PlantedFault::CompletionDropped, "write", "own", "has no completion"),
        (PlantedFault::CompletionDropped, "send", "one", "has no completion"),
        (PlantedFault::AckBeforePlacement, "write", "own", "ended well, and byte"),
        (PlantedFault::AckBeforePlacement, "write", "one", "ended well, and byte"),
        (PlantedFault::IcrcUnchecked, "write", "own", "ended well, and byte"),
        (PlantedFault::LossIgnored, "read", "own", "has no completion"),
        (PlantedFault::HolesDenied, "write", "own", "has no completion"),
        (PlantedFault::WrongValueAnswered, "add", "own", "where the sum is"),
        (PlantedFault::LengthShort, "send", "own", "bytes of message"),
    ] {
        let wrong = found(&cell(mix, hosts, "5%"), Some(fault));
        let is_named = wrong.as_ref().is_some_and(|broken| broken.contains(words));
        assert!(is_named, "{fault:?}: {wrong:?}");
    }
}
