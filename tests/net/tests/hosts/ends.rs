//! Nodes on two hosts, and a pair of ends between them.

use ubcore_sim::node::NodeCfg;
use urma_core::TransportMode;
use urma_net::Host as LabHost;
use urma_tests::world::{Host, Link, Moving, Outcome, Plan, Setup, World};

/// Nodes on two hosts exchange packets only, whatever path they may use.
pub(crate) const SETUP: Setup = Setup::new(Link::Host, Moving::On, TransportMode::Rm);

/// A node on a host, as configured.
pub(crate) fn opened(host: &LabHost, cfg: NodeCfg) -> Outcome<Host> {
    host.run(|| Host::open_as(SETUP, cfg))
}

/// Ends on two nodes, with segments of `len` bytes.
pub(crate) fn between(a: &Host, b: &Host, len: usize) -> Outcome<World> {
    World::between(SETUP, &Plan { len, ..Plan::new(SETUP.mode) }, a, b)
}
