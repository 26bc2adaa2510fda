//! To which setups a behaviour applies.
//!
//! *Owns*: predicates on [`Setup`].

use urma_core::TransportMode;
use urma_tests::world::{Link, Moving, Setup};

pub(crate) fn any(_: Setup) -> bool {
    true
}

pub(crate) fn reliable(setup: Setup) -> bool {
    setup.mode != TransportMode::Um
}

pub(crate) fn rm(setup: Setup) -> bool {
    setup.mode == TransportMode::Rm
}

pub(crate) fn rc(setup: Setup) -> bool {
    setup.mode == TransportMode::Rc
}

pub(crate) fn um(setup: Setup) -> bool {
    setup.mode == TransportMode::Um
}

/// RM between two nodes.
pub(crate) fn rm_two_nodes(setup: Setup) -> bool {
    rm(setup) && setup.link != Link::Own
}

/// Reliable between two nodes.
pub(crate) fn reliable_two_nodes(setup: Setup) -> bool {
    reliable(setup) && setup.link != Link::Own
}

/// RM on one host, memory moved: what load and store need.
pub(crate) fn rm_shared_memory(setup: Setup) -> bool {
    rm(setup) && setup.link == Link::Host && setup.moving == Moving::On
}

/// RM where memory cannot be mapped by the peer.
pub(crate) fn rm_packets(setup: Setup) -> bool {
    rm(setup) && setup.link == Link::Packets
}
