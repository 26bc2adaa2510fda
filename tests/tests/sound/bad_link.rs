//! A link that is made worse on purpose: what was lost, doubled and changed shows, and nothing else does.
//!
//! *Owns*: the counts of both devices. *Takes*: two nodes of this process. *Must not*: judge times.

use ubcore_sim::link::{LinkFaults, LinkFaultsError};
use ubcore_sim::node::NodeCfg;
use udma_abi::counters::Counter;
use urma_core::TransportMode;
use urma_tests::world::{Host, Link, Moving, Outcome, Plan, Setup, World, cfg, check};

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
