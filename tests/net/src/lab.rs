//! Hosts and what joins them: threads and processes on a host, and interfaces that change while they are used.
//!
//! Names and addresses of interfaces are chosen here. One host can answer as a node of a later wire version.

use std::{
    ffi::OsStr,
    net::{IpAddr, Ipv4Addr, Ipv6Addr, UdpSocket},
    process::Command,
};

use urma_packet::{Body, IcrcFlow, Packet, PacketHeader, Psn, RefuseBody, RefuseReason};

use crate::{
    namespace::{Namespace, Refused, ip},
    process::Process,
};

/// Protocol of the hosts' addresses; there are none of the other one.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Family {
    /// IPv4 addresses: 10.80.x.y, the second port 10.81.x.y.
    V4,
    /// IPv6 addresses: fd80::y, the second port fd80:1::y.
    V6,
}

/// What joins the hosts.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Shape {
    /// A cable from each port of one to the same port of the other; two hosts.
    Cable,
    /// A bridge for each port. It drops packets that are too large for where they go, and sends no message
    /// about it.
    Bridge,
    /// A router, which answers packets that are too large; each host is in a network of its own.
    Router,
}

/// Hosts to be made.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct LabPlan {
    /// Number of hosts, 2 to 16.
    pub hosts: u8,
    /// Cable, bridge or router between the hosts.
    pub shape: Shape,
    /// Protocol of their addresses.
    pub family: Family,
    /// Interfaces of each, with an address each.
    pub ports: u8,
    /// MTU of all interfaces at the start.
    pub mtu: u32,
}

impl LabPlan {
    /// Two hosts, a cable, IPv4, one port each.
    #[must_use]
    pub const fn cable(mtu: u32) -> Self {
        Self { hosts: 2, shape: Shape::Cable, family: Family::V4, ports: 1, mtu }
    }

    /// Hosts at a bridge, or at one for each port.
    #[must_use]
    pub const fn bridge(hosts: u8, mtu: u32) -> Self {
        Self { hosts, shape: Shape::Bridge, ..Self::cable(mtu) }
    }

    /// Hosts with a router between them.
    #[must_use]
    pub const fn router(hosts: u8, mtu: u32) -> Self {
        Self { hosts, shape: Shape::Router, ..Self::cable(mtu) }
    }

    /// The same with IPv6 addresses alone.
    #[must_use]
    pub const fn v6(self) -> Self {
        Self { family: Family::V6, ..self }
    }

    /// The same with IPv4 addresses alone.
    #[must_use]
    pub const fn v4(self) -> Self {
        Self { family: Family::V4, ..self }
    }

    /// The same with more ports a host.
    #[must_use]
    pub const fn ports(self, ports: u8) -> Self {
        Self { ports, ..self }
    }

    /// An address in the network that a port of `host` belongs to; hosts count from 0.
    fn address(&self, host: u8, port: u8, own: u8) -> IpAddr {
        let net = if self.shape == Shape::Router { host + 1 } else { 0 };
        match self.family {
            Family::V4 => Ipv4Addr::new(10, 80 + port, net, own).into(),
            Family::V6 => {
                let net = [0xfd80, port.into(), net.into(), 0, 0, 0, 0, own.into()];
                Ipv6Addr::from(net).into()
            }
        }
    }

    fn prefix(&self) -> u8 {
        match self.family {
            Family::V4 => 24,
            Family::V6 => 64,
        }
    }
}

/// A host: a network namespace with addresses.
#[derive(Debug)]
pub struct Host {
    namespace: Namespace,
    addresses: Vec<IpAddr>,
}

impl Host {
    /// The address of its first port.
    #[must_use]
    pub fn address(&self) -> IpAddr {
        self.addresses[0]
    }

    /// The addresses of its ports.
    #[must_use]
    pub fn addresses(&self) -> &[IpAddr] {
        &self.addresses
    }

    /// Calls `what` in a thread of the host: nodes and sockets that it opens, and threads and processes
    /// that it starts, are the host's.
    pub fn run<T: Send>(&self, what: impl FnOnce() -> T + Send) -> T {
        self.namespace.run(what)
    }

    /// As [`Host::run`], for processes that look for interfaces in `/sys`.
    ///
    /// # Errors
    /// [`Namespace::run_with_sys`].
    pub fn run_with_sys<T: Send>(&self, what: impl FnOnce() -> T + Send) -> Result<T, Refused> {
        self.namespace.run_with_sys(what)
    }

    /// The file by which `nsenter --net=` of this user finds it while this process lives.
    #[must_use]
    pub fn path(&self) -> String {
        self.namespace.path()
    }

    /// A command without settings of the test's own environment.
    #[must_use]
    pub fn command(&self, program: impl AsRef<OsStr>) -> Command {
        let mut command = Command::new(program);
        for (name, _) in std::env::vars_os() {
            if name.to_string_lossy().starts_with("URMA_") {
                command.env_remove(name);
            }
        }
        command
    }

    /// Starts a process on the host.
    ///
    /// # Panics
    /// When it does not start.
    #[must_use]
    pub fn start(&self, command: &mut Command) -> Process {
        let started = self.run(|| Process::start(command));
        started.unwrap_or_else(|error| panic!("{command:?} does not start: {error}"))
    }

    /// Runs `ip` commands on the host.
    ///
    /// # Panics
    /// When a command fails.
    pub fn ip(&self, commands: &[&str]) {
        let commands: Vec<String> = commands.iter().map(|text| (*text).to_owned()).collect();
        ip(&self.namespace, &commands).unwrap_or_else(|refused| panic!("{refused}"));
    }
}

/// Hosts that are joined. They end with this value.
#[derive(Debug)]
pub struct Lab {
    plan: LabPlan,
    hosts: Vec<Host>,
    /// Where the bridges or the router are.
    middle: Option<Namespace>,
}

impl Lab {
    /// The hosts, or `None` after the calling test was counted as skipped.
    ///
    /// # Panics
    /// For a plan that is not possible.
    #[must_use]
    pub fn or_skip(plan: LabPlan) -> Option<Self> {
        Self::new(plan).map_err(urma_skip::skip).ok()
    }

    /// Makes the hosts and joins them.
    ///
    /// # Errors
    /// There is no `ip`, or the kernel refuses namespaces or such interfaces.
    ///
    /// # Panics
    /// For a plan that is not possible; when another command of `ip` fails.
    pub fn new(plan: LabPlan) -> Result<Self, Refused> {
        assert!((2..=16).contains(&plan.hosts) && plan.ports > 0, "not possible: {plan:?}");
        assert!(plan.shape != Shape::Cable || plan.hosts == 2, "a cable has two ends");
        let host = |number| {
            let of = |port| plan.address(number, port, number + 1);
            let addresses = (0..plan.ports).map(of).collect();
            Ok(Host { namespace: Namespace::new()?, addresses })
        };
        let hosts = (0..plan.hosts).map(host).collect::<Result<_, _>>()?;
        let middle = (plan.shape != Shape::Cable).then(Namespace::new).transpose()?;
        let lab = Self { plan, hosts, middle };
        lab.join()?;
        Ok(lab)
    }

    /// The host with this number, from 0 on.
    #[must_use]
    pub fn host(&self, number: usize) -> &Host {
        &self.hosts[number]
    }

    /// All hosts, in the order of their numbers.
    #[must_use]
    pub fn hosts(&self) -> &[Host] {
        &self.hosts
    }

    /// Changes the MTU of a host's port, and of what it is joined to.
    ///
    /// # Panics
    /// When the kernel refuses.
    pub fn set_mtu(&self, host: usize, port: u8, mtu: u32) {
        self.host(host).ip(&[&format!("link set port{port} mtu {mtu}")]);
        self.change_far_end(host, port, &format!("mtu {mtu}"));
    }

    /// Changes the MTU of the far end of a host's port alone: of the bridge's or router's, or of the
    /// other host's.
    ///
    /// The hosts cut runs of packets (GSO) themselves from then on: Linux passes a run that is not cut yet
    /// whatever the size of its packets is (`is_skb_forwardable`), and no cable carries such a run.
    ///
    /// # Panics
    /// When the kernel refuses.
    pub fn set_far_mtu(&self, host: usize, port: u8, mtu: u32) {
        for host in &self.hosts {
            host.ip(&[&format!("link set port{port} gso_max_segs 1")]);
        }
        self.change_far_end(host, port, &format!("mtu {mtu}"));
    }

    /// Pulls a host's port: packets of and to it are lost, and no end of the cable has a carrier.
    ///
    /// # Panics
    /// When the kernel refuses.
    pub fn pull(&self, host: usize, port: u8) {
        self.change_far_end(host, port, "down");
    }

    /// Joins a port again.
    ///
    /// # Panics
    /// When the kernel refuses.
    pub fn plug(&self, host: usize, port: u8) {
        self.change_far_end(host, port, "up");
    }

    fn change_far_end(&self, host: usize, port: u8, how: &str) {
        match &self.middle {
            None => self.hosts[1 - host].ip(&[&format!("link set port{port} {how}")]),
            Some(middle) => {
                let command = format!("link set {} {how}", far_name(host, port));
                ip(middle, &[command]).unwrap_or_else(|refused| panic!("{refused}"));
            }
        }
    }

    fn join(&self) -> Result<(), Refused> {
        if let Some(middle) = &self.middle {
            ip(middle, &self.middle_commands())?;
            if self.plan.shape == Shape::Router {
                middle.run(forward)?;
            }
        } else {
            let far = self.hosts[1].namespace.path();
            let cable = |port| {
                let plan = self.plan;
                format!(
                    "link add port{port} mtu {0} type veth peer name port{port} mtu {0} netns {far}",
                    plan.mtu
                )
            };
            ip(&self.hosts[0].namespace, &(0..self.plan.ports).map(cable).collect::<Vec<_>>())?;
        }
        (0..)
            .zip(&self.hosts)
            .try_for_each(|(number, host)| ip(&host.namespace, &self.host_commands(number, host)))
    }

    /// What makes the bridges, or the router's ends, and the cables to the hosts.
    fn middle_commands(&self) -> Vec<String> {
        let LabPlan { ports, mtu, shape, .. } = self.plan;
        let mut commands = vec!["link set lo up".to_owned()];
        if shape == Shape::Bridge {
            // No bridge waits before it forwards: forward_delay is for spanning trees.
            let bridge = |port| {
                format!("link add bridge{port} type bridge forward_delay 0 mcast_snooping 0")
            };
            commands.extend((0..ports).map(bridge));
            commands.extend((0..ports).map(|port| format!("link set bridge{port} up")));
        }
        for (number, host) in (0..).zip(&self.hosts) {
            for port in 0..ports {
                let (far, netns) = (far_name(number.into(), port), host.namespace.path());
                commands.push(format!(
                    "link add {far} mtu {mtu} type veth peer name port{port} mtu {mtu} netns {netns}"
                ));
                match shape {
                    Shape::Router => {
                        let own = self.plan.address(number, port, ROUTER);
                        commands.push(self.address_command(own, &far));
                    }
                    Shape::Bridge => commands.push(format!("link set {far} master bridge{port}")),
                    Shape::Cable => {}
                }
                commands.push(format!("link set {far} up"));
            }
        }
        commands
    }

    fn host_commands(&self, number: u8, host: &Host) -> Vec<String> {
        let mut commands = vec!["link set lo up".to_owned()];
        for (port, address) in (0..).zip(&host.addresses) {
            commands.push(self.address_command(*address, &format!("port{port}")));
            commands.push(format!("link set port{port} up"));
            if self.plan.shape == Shape::Router {
                let gateway = self.plan.address(number, port, ROUTER);
                let metric = 100 + u32::from(port);
                commands.push(format!("route add default via {gateway} metric {metric}"));
            }
        }
        commands
    }

    fn address_command(&self, address: IpAddr, device: &str) -> String {
        // No other host has the address: the kernel need not look for one first.
        let at_once = if self.plan.family == Family::V6 { " nodad" } else { "" };
        format!("address add {address}/{} dev {device}{at_once}", self.plan.prefix())
    }
}

/// Last number of a router's addresses.
const ROUTER: u8 = 254;

/// Lets the namespace of this thread forward.
fn forward() -> Result<(), Refused> {
    let files = ["/proc/sys/net/ipv4/ip_forward", "/proc/sys/net/ipv6/conf/all/forwarding"];
    files.iter().try_for_each(|file| {
        std::fs::write(file, "1").map_err(|error| Refused(format!("{file}: {error}")))
    })
}

/// The name of the far end of a host's port, at a bridge or router.
fn far_name(host: usize, port: u8) -> String {
    format!("to{host}-{port}")
}

/// Answers the first CONNECT at `socket` as a node of a later wire version does. `false`: none came.
///
/// # Panics
/// When the socket has no address.
#[must_use]
pub fn refuse_version(socket: &UdpSocket) -> bool {
    let own = socket.local_addr().expect("it is bound");
    let mut bytes = [0; 2048];
    while let Ok((len, from)) = socket.recv_from(&mut bytes) {
        let Ok(packet) = Packet::open(&bytes[..len], &IcrcFlow::new(from, own)) else { continue };
        let Body::Connect(offer) = packet.header.body else { continue };
        let refusal = RefuseBody {
            reason: RefuseReason::Version,
            version_min: 2,
            version_max: 3,
            state: 0,
            nonce: offer.nonce,
        };
        let header = PacketHeader::new(offer.source_tpn, Psn::new(0), Body::Refuse(refusal));
        let mut answer = [0; 256];
        let len = header.emit(&[], &IcrcFlow::new(own, from), &mut answer);
        let Ok(len) = len else { return false };
        return socket.send_to(&answer[..len], from).is_ok();
    }
    false
}
