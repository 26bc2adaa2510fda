//! Configuration of a fabric.
//!
//! - owns: the shape of a simulation: nodes, hosts, links, how time advances.
//! - takes: a seed. gives: a configuration for `Fabric::new`. must not: run anything.

use std::{fmt::Debug, io, net::Ipv4Addr, sync::Arc};

use udma_abi::{Nanos, RawEid};
use urma_packet::FurtherPorts;

use crate::cfg::DeviceCfg;
use crate::link::FaultCfg;
use crate::nic::NicModel;

/// Which nodes share a host.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum HostSharing {
    /// All nodes on one host: direct path and rings.
    #[default]
    SameHost,
    /// Every node on its own host: packets.
    Packets,
    /// Two nodes per host.
    Mixed,
}

/// Makes the models of a simulation's devices.
pub trait ModelSource: Send + Sync + Debug {
    /// A new model for a device with this path MTU; `None`: it has none.
    ///
    /// # Errors
    /// It is not possible.
    fn model(&self, mtu: u32) -> io::Result<Option<Arc<dyn NicModel>>>;
}

/// Configuration of a simulation.
#[derive(Clone, Debug)]
pub struct FabricCfg {
    /// Seed of every random choice: the same seed gives the same event log.
    pub seed: u64,
    /// Configuration of each device, indexed by node number.
    pub devices: Vec<DeviceCfg>,
    /// Host number of each device.
    pub hosts: Vec<u32>,
    /// The link between hosts.
    pub faults: FaultCfg,
    /// Longest duration of a round of steps, in ns; at least 1.
    pub tick_ns: Nanos,
    /// Longest jump over idle time, in ns.
    pub jump_ns: Nanos,
    /// Chance that a device skips a round, in parts per million.
    pub stall_ppm: u32,
    /// Chance that an idle device goes to sleep, in parts per million.
    pub sleep_ppm: u32,
    /// Chance that the attacker sends in a round, in parts per million.
    pub attack_ppm: u32,
    /// Packets per millisecond that the attacker also sends to each node, all the time.
    pub flood_per_ms: u32,
    /// Longest time until a hang-up on the same host is noticed, in ns.
    pub hang_up_ns: Nanos,
    /// Whether registered pages move to shared memory.
    pub page_moving: crate::host::memory::PageMoving,
    /// Models of NICs: each life of a device has a new one; `None`: there are none.
    pub models: Option<Arc<dyn ModelSource>>,
    /// Number of log lines to keep.
    pub log_lines: usize,
}

impl FabricCfg {
    /// `nodes` nodes on hosts as `paths` says, with a link of 5 us without faults.
    #[must_use]
    pub fn new(seed: u64, nodes: u8, paths: HostSharing) -> Self {
        let device = |number: u8| {
            let number_wide = u64::from(number);
            DeviceCfg::new(eid(number), 1, seed.wrapping_mul(31).wrapping_add(number_wide))
        };
        let host = |number: u8| match paths {
            HostSharing::SameHost => 0,
            HostSharing::Packets => u32::from(number),
            HostSharing::Mixed => u32::from(number / 2),
        };
        Self {
            seed,
            devices: (0..nodes).map(device).collect(),
            hosts: (0..nodes).map(host).collect(),
            faults: FaultCfg { delay_ns: 5_000, ..FaultCfg::default() },
            tick_ns: 500,
            jump_ns: 1_000_000,
            stall_ppm: 0,
            sleep_ppm: 0,
            attack_ppm: 0,
            flood_per_ms: 0,
            hang_up_ns: 10_000_000,
            page_moving: crate::host::memory::PageMoving::On,
            models: None,
            log_lines: 2000,
        }
    }

    /// A new model for a device.
    pub(super) fn model(&self, device: &DeviceCfg) -> io::Result<Option<Arc<dyn NicModel>>> {
        self.models.as_ref().map_or(Ok(None), |models| models.model(device.mtu))
    }

    /// Gives each node `ports` ports, the EID's included.
    ///
    /// # Panics
    /// For more than 4.
    #[must_use]
    pub fn with_ports(mut self, ports: u8) -> Self {
        for (number, device) in (0..).zip(&mut self.devices) {
            let further: Vec<_> = (1..ports).map(|port| port_address(number, port).0).collect();
            device.ports = FurtherPorts::new(&further).expect("at most 4 ports");
        }
        self
    }
}

/// Returns the EID of node `number`: the IPv4-mapped address 127.1.0.(number + 1).
#[must_use]
pub fn eid(number: u8) -> RawEid {
    port_address(number, 0)
}

/// Returns the address of a port of node `number`: 127.(port + 1).0.(number + 1); port 0 has the EID.
#[must_use]
pub fn port_address(number: u8, port: u8) -> RawEid {
    let octets = [127, port.wrapping_add(1), 0, number.wrapping_add(1)];
    RawEid(Ipv4Addr::from(octets).to_ipv6_mapped().octets())
}
