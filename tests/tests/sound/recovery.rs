//! Lost packets are sent again as both nodes are set to; what was lost, doubled and changed on a bad link shows, and
//! nothing else does.
//!
//! Bounds of packets on the path are each node's own. Must not judge times.

use ubcore_sim::{
    CongestionChoice, Strategy,
    link::{LinkFaults, LinkFaultsError},
    node::NodeCfg,
};
use udma_abi::counters::Counter;
use urma_core::TransportMode;
use urma_tests::world::{Host, Link, Moving, Outcome, Plan, Setup, World, cfg, check};

/// What the TP between two nodes with these settings says at both ends, after 64 KiB over it.
fn agreed(set: [Strategy; 2]) -> Outcome<[Option<&'static str>; 2]> {
    let setup = Setup::new(Link::Packets, Moving::On, TransportMode::Rm);
    let open = |strategy| Host::open_as(setup, cfg(setup.recovered_by(strategy)));
    let hosts = [open(set[0])?, open(set[1])?];
    let plan = Plan { len: 1 << 16, ..Plan::new(setup.mode) };
    let mut world = World::between(setup, &plan, &hosts[0], &hosts[1])?;
    world.a.mem().put(0, &[0x5a; 1 << 16])?;
    let ctx = world.a.write(0, 0, 1 << 16)?;
    world.a.sent_ok(ctx)?;
    let shown =
        |host: &Host| host.node().device().look().paths.iter().find_map(|path| path.recovery);
    Ok([shown(&hosts[0]), shown(&hosts[1])])
}

#[test]
fn a_tp_uses_the_strategy_that_both_nodes_are_set_to() -> Outcome {
    for strategy in Strategy::ALL {
        let shown = agreed([strategy; 2])?;
        check(shown == [Some(strategy.name()); 2], format!("{shown:?} of {strategy:?}"))?;
    }
    Ok(())
}

#[test]
fn nodes_that_are_set_differently_use_what_both_can() -> Outcome {
    for (set, wanted) in [
        ([Strategy::Knitting, Strategy::Irn], Strategy::SelectiveRepeat),
        ([Strategy::SelectiveRepeat, Strategy::Knitting], Strategy::SelectiveRepeat),
        ([Strategy::Knitting, Strategy::GoBackN], Strategy::GoBackN),
        ([Strategy::Knitting, Strategy::Seed], Strategy::SelectiveRepeat),
    ] {
        let shown = agreed(set)?;
        check(shown == [Some(wanted.name()); 2], format!("{shown:?} of {set:?}"))?;
    }
    Ok(())
}

#[test]
fn a_tp_bounds_what_it_sends_as_its_own_node_is_set_to() -> Outcome {
    let setup = Setup::new(Link::Packets, Moving::On, TransportMode::Rm);
    let set = [CongestionChoice::Delay, CongestionChoice::None];
    let open = |congestion| Host::open_as(setup, cfg(setup.bounded_by(congestion)));
    let hosts = [open(set[0])?, open(set[1])?];
    let plan = Plan { len: 1 << 16, ..Plan::new(setup.mode) };
    let mut world = World::between(setup, &plan, &hosts[0], &hosts[1])?;
    world.a.mem().put(0, &[0x5a; 1 << 16])?;
    let ctx = world.a.write(0, 0, 1 << 16)?;
    world.a.sent_ok(ctx)?;
    for (host, congestion) in hosts.iter().zip(set) {
        let paths = host.node().device().look().paths;
        let shown = paths.iter().find_map(|path| path.congestion);
        check(shown == Some(congestion.name()), format!("{shown:?} of {congestion:?}"))?;
        let window = paths.iter().find_map(|path| path.congestion_window);
        let is_bounded = congestion != CongestionChoice::None;
        check(window.is_some() == is_bounded, format!("{window:?} of {congestion:?}"))?;
    }
    Ok(())
}

const LEN: usize = 1 << 20;

/// Writes and reads 1 MiB between nodes whose links are `faults`; packets sent again, and those with a wrong ICRC.
fn counts(faults: &str) -> Outcome<[u64; 2]> {
    let setup = Setup::new(Link::Packets, Moving::On, TransportMode::Rm);
    let link_faults: LinkFaults =
        faults.parse().map_err(|error: LinkFaultsError| error.to_string())?;
    let open = || {
        let link_faults = Some(link_faults.clone());
        Host::open_as(setup, NodeCfg { link_faults, ..cfg(setup) })
    };
    let plan = Plan { len: LEN, ..Plan::new(setup.mode) };
    let hosts = [open()?, open()?];
    let mut world = World::between(setup, &plan, &hosts[0], &hosts[1])?;
    world.a.mem().put(0, &vec![0x5a; LEN])?;
    let ctx = world.a.write(0, 0, LEN)?;
    world.a.sent_ok(ctx)?;
    world.b.mem().placed(0, &vec![0x5a; LEN])?;
    let sum = |counter| hosts.iter().map(|host| host.node().device().counter(counter)).sum();
    Ok([sum(Counter::Retransmits), sum(Counter::DropIcrc)])
}

#[test]
fn what_is_lost_is_sent_again() -> Outcome {
    let [again, changed] = counts("loss=5%,seed=3")?;
    check(again > 0 && changed == 0, format!("{again} sent again, {changed} changed"))
}

#[test]
fn what_is_changed_is_dropped_by_its_icrc() -> Outcome {
    let [again, changed] = counts("corrupt=5%,seed=3")?;
    check(again > 0 && changed > 0, format!("{again} sent again, {changed} changed"))
}
