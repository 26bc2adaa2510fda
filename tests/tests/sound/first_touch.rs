//! The first WRITE to a segment of a peer on this host: importing it has mapped its pages.
//!
//! *Owns*: the count of page faults. *Takes*: two nodes of this process. *Must not*: judge times.

use std::io;

use nix::sys::resource::{UsageWho, getrusage};
use ubcore_sim::node::NodeCfg;
use urma_core::TransportMode;
use urma_tests::world::{Host, Link, Moving, Outcome, Plan, Setup, World, cfg, check};

const PAGES: i64 = 256;
const LEN: usize = 256 * 4096;

/// Page faults of this thread while it writes `LEN` bytes to memory that it never wrote to.
fn faults(prepared_max: u64) -> Outcome<i64> {
    let setup = Setup::new(Link::Host, Moving::On, TransportMode::Rm);
    let open = || Host::open_as(setup, NodeCfg { prepared_max, ..cfg(setup) });
    let plan = Plan { len: LEN, ..Plan::new(setup.mode) };
    let mut world = World::between(setup, &plan, &open()?, &open()?)?;
    world.a.mem().put(0, &vec![0x5a; LEN])?;
    let so_far = || getrusage(UsageWho::RUSAGE_THREAD).map(|usage| usage.minor_page_faults());
    let before = so_far().map_err(io::Error::from)?;
    let ctx = world.a.write(0, 0, LEN)?;
    world.a.sent_ok(ctx)?;
    let faults = so_far().map_err(io::Error::from)? - before;
    world.b.mem().placed(0, &vec![0x5a; LEN])?;
    Ok(faults)
}

#[test]
fn a_segment_is_mapped_when_it_is_imported() -> Outcome {
    let mapped = faults(LEN as u64)?;
    check(mapped < PAGES / 8, format!("{mapped} page faults on {PAGES} pages that were mapped"))
}

/// The bound holds, and the count above would show what it forbids.
#[test]
fn more_than_the_bound_is_mapped_as_it_is_used() -> Outcome {
    for (prepared_max, wanted) in [(0, PAGES), (LEN as u64 / 2, PAGES / 2)] {
        let seen = faults(prepared_max)?;
        check(seen >= wanted - PAGES / 8, format!("{seen} page faults, at least {wanted} wanted"))?;
    }
    Ok(())
}
