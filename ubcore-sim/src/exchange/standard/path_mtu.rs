//! Path MTU of a connection of the standard opcodes.
//!
//! *Owns*: the rule. *Takes*: the MTU of the route. *Gives*: bytes of payload.
//!
//! Both ends must have the same path MTU: it determines how many PSNs a message takes, and no packet of the standard
//! carries it. So it is not searched for while the connection lasts, but chosen when the jetty is bound, by the rule
//! of Linux rxe: ends whose routes have the same MTU agree.

use udma_abi::RawEid;

use crate::context::tables::Tables;

/// Room that Linux rxe leaves for headers, in bytes.
const HEADERS: u32 = 80;
/// Path MTU if nothing is known about the route, in bytes.
const UNKNOWN: u32 = 1024;
/// Largest and smallest path MTU of the standard, in bytes.
const LARGEST: u32 = 4096;
const SMALLEST: u32 = 256;

/// Path MTU of a connection to `peer`, in bytes of payload: the configured one, or the largest that the route carries
/// now.
pub(super) fn path_mtu(tables: &Tables, peer: RawEid) -> usize {
    let cfg = &tables.cfg;
    let of_route = || {
        if peer == cfg.eid {
            return LARGEST;
        }
        let mtu = tables.ports.routes.as_ref().and_then(|routes| routes.mtu_to(peer));
        mtu.map_or(UNKNOWN, largest_in)
    };
    usize::try_from(cfg.rc_mtu.unwrap_or_else(of_route)).unwrap_or(usize::MAX)
}

/// The largest payload that fits in packets of an MTU.
fn largest_in(mtu: u32) -> u32 {
    let all = std::iter::successors(Some(LARGEST), |bytes| Some(bytes / 2));
    let mut possible = all.take_while(|bytes| *bytes >= SMALLEST);
    possible.find(|bytes| bytes + HEADERS <= mtu).unwrap_or(SMALLEST)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_rule_is_that_of_linux() {
        let chosen =
            [0, 336, 576, 1280, 1500, 2127, 2128, 4175, 4176, 9000, 65_536].map(largest_in);
        assert_eq!(chosen, [256, 256, 256, 1024, 1024, 1024, 2048, 2048, 4096, 4096, 4096]);
    }
}
