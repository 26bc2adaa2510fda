//! A tree of switches as a YAML document (`switches`): each switch with its connections, both ends of each.
//!
//! A fault is named with its line and column: an unknown key, a doubled number, two roots, a cycle, a host that is not
//! below the root, a bad address.

use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, SocketAddr};

use serde::{Deserialize, Serialize};
use serde_saphyr::{Location, Spanned};

use crate::controller::CommunicatorState;
use crate::document::{DocumentError, ROCE_PORT, check_hosts, read_map, read_text, write_text};
use crate::edge::{MessageMode, Reliability};
use crate::slots::Child;
use crate::topology::{MapLink, MapNode, NodeKind, PhysicalMap};

/// Numbers of QPs and packets have 24 bits.
const NUMBER_MAX: u32 = 0x00ff_ffff;
const NO_MAC: &str = "00:00:00:00:00:00";

/// A tree: its switches with their connections.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize)]
pub struct TreeDocument {
    /// All switches of the tree.
    pub switches: Vec<DocumentSwitch>,
}

/// A switch of a tree, and its connections.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct DocumentSwitch {
    /// A number that no other switch has.
    pub id: u32,
    /// Whether it has no switch above.
    pub root: bool,
    /// To the switch above, and to all that is below.
    pub connections: Vec<TreeConnection>,
}

/// A connection of a switch, as this end sees it. Names are those of the document.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize)]
pub struct TreeConnection {
    /// It leads to the switch above.
    pub up: bool,
    /// The rank of the host that it leads to.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub host_id: Option<u16>,
    /// The number of the switch below that it leads to.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub child: Option<u32>,
    /// Address of this end.
    pub my_ip: String,
    /// Hardware address of this end.
    pub my_mac: String,
    /// UDP port of this end.
    pub my_port: u16,
    /// QPN of this end.
    pub my_qp: u32,
    /// Address of the other end.
    pub peer_ip: String,
    /// Hardware address of the other end.
    pub peer_mac: String,
    /// UDP port of the other end.
    pub peer_port: u16,
    /// QPN of the other end.
    pub peer_qp: u32,
    /// First PSN that this end sends.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub my_psn: Option<u32>,
    /// First PSN that the other end sends.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub peer_psn: Option<u32>,
    /// The communicator whose tree this is.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub communicator: Option<u64>,
    /// Life of the tree.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub epoch: Option<u16>,
    /// Payload of a packet in bytes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pmtu: Option<u16>,
    /// Chunks of a window.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub slots: Option<u32>,
    /// What repairs a loss: `rc` or `uc`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub edge: Option<String>,
    /// How messages are moved: `send` or `write`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub mode: Option<String>,
    /// Key of this end's memory for WRITEs.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub key: Option<u32>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct TreesText {
    switches: Vec<SwitchText>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct SwitchText {
    id: Spanned<u32>,
    #[serde(default)]
    root: bool,
    connections: Vec<ConnectionText>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct ConnectionText {
    up: Spanned<bool>,
    host_id: Option<Spanned<u16>>,
    child: Option<Spanned<u32>>,
    my_ip: Spanned<String>,
    my_mac: Option<Spanned<String>>,
    my_port: Option<u16>,
    my_qp: Spanned<u32>,
    peer_ip: Spanned<String>,
    peer_mac: Option<Spanned<String>>,
    peer_port: Option<u16>,
    peer_qp: Spanned<u32>,
    my_psn: Option<Spanned<u32>>,
    peer_psn: Option<Spanned<u32>>,
    communicator: Option<u64>,
    epoch: Option<u16>,
    pmtu: Option<u16>,
    slots: Option<u32>,
    edge: Option<Spanned<String>>,
    mode: Option<Spanned<String>>,
    key: Option<u32>,
}

/// A switch, and the end of the connection to it at the switch above: that one, and one of its connections.
type Above = (usize, (usize, usize));

/// Where the parts of a document stand in its text.
struct DocumentPlaces {
    ids: Vec<Location>,
    /// By switch and connection.
    connections: Vec<Vec<Location>>,
}

/// Reads a document of either kind.
///
/// # Errors
/// [`DocumentError`].
pub fn read_topology(text: &str) -> Result<PhysicalMap, DocumentError> {
    let is_tree = text.lines().any(|line| line.starts_with("switches:"));
    if !is_tree {
        return read_map(text);
    }
    let (tree, places) = read_placed(text)?;
    let (map, names) = tree.to_map(&places);
    check_hosts(&map, &names)?;
    Ok(map)
}

/// Reads a tree.
///
/// # Errors
/// [`DocumentError`].
pub fn read_tree(text: &str) -> Result<TreeDocument, DocumentError> {
    Ok(read_placed(text)?.0)
}

fn read_placed(text: &str) -> Result<(TreeDocument, DocumentPlaces), DocumentError> {
    let read: TreesText = read_text(text)?;
    let mut document = TreeDocument::default();
    let mut places = DocumentPlaces { ids: Vec::new(), connections: Vec::new() };
    for switch in read.switches {
        places.ids.push(switch.id.referenced);
        places.connections.push(switch.connections.iter().map(|of| of.up.referenced).collect());
        let connections = switch.connections.into_iter().map(connection);
        document.switches.push(DocumentSwitch {
            id: switch.id.value,
            root: switch.root,
            connections: connections.collect::<Result<_, _>>()?,
        });
    }
    let parents = document.check(&places)?;
    // What a switch has below is known by the connection up of the other one.
    for (below, above) in parents {
        let id = document.switches[below].id;
        let (switch, connection) = above;
        document.switches[switch].connections[connection].child = Some(id);
    }
    document.check_ranks(&places)?;
    Ok((document, places))
}

fn connection(of: ConnectionText) -> Result<TreeConnection, DocumentError> {
    let number = |of: &Spanned<u32>, what: &str| {
        let fault = || format!("{what} {} is more than 24 bits", of.value);
        let fits = of.value <= NUMBER_MAX;
        fits.then_some(of.value).ok_or_else(|| DocumentError::at(of.referenced, fault()))
    };
    let psn = |of: Option<Spanned<u32>>| of.map(|of| number(&of, "PSN")).transpose();
    let word = |of: Option<Spanned<String>>, words: [&str; 2]| match of {
        Some(of) if !words.contains(&of.value.as_str()) => {
            let fault = format!("{:?} is not {} or {}", of.value, words[0], words[1]);
            Err(DocumentError::at(of.referenced, fault))
        }
        of => Ok(of.map(|of| of.value)),
    };
    if let (true, Some(host)) = (of.up.value, &of.host_id) {
        let fault = "a connection up leads to a switch, and has no host_id";
        return Err(DocumentError::at(host.referenced, fault));
    }
    Ok(TreeConnection {
        up: of.up.value,
        host_id: of.host_id.map(|host| host.value),
        child: of.child.map(|child| child.value),
        my_ip: ip(&of.my_ip)?,
        my_mac: mac(of.my_mac)?,
        my_port: of.my_port.unwrap_or(ROCE_PORT),
        my_qp: number(&of.my_qp, "QPN")?,
        peer_ip: ip(&of.peer_ip)?,
        peer_mac: mac(of.peer_mac)?,
        peer_port: of.peer_port.unwrap_or(ROCE_PORT),
        peer_qp: number(&of.peer_qp, "QPN")?,
        my_psn: psn(of.my_psn)?,
        peer_psn: psn(of.peer_psn)?,
        communicator: of.communicator,
        epoch: of.epoch,
        pmtu: of.pmtu,
        slots: of.slots,
        edge: word(of.edge, ["rc", "uc"])?,
        mode: word(of.mode, ["send", "write"])?,
        key: of.key,
    })
}

fn ip(text: &Spanned<String>) -> Result<String, DocumentError> {
    let ip = text.value.parse::<IpAddr>();
    ip.map(|ip| ip.to_string()).map_err(|_| {
        DocumentError::at(text.referenced, format!("{:?} is no IP address", text.value))
    })
}

fn mac(text: Option<Spanned<String>>) -> Result<String, DocumentError> {
    let Some(text) = text else { return Ok(NO_MAC.to_owned()) };
    let parts: Vec<_> = text.value.split(':').collect();
    let is_byte = |part: &&str| part.len() == 2 && u8::from_str_radix(part, 16).is_ok();
    if parts.len() == 6 && parts.iter().all(is_byte) {
        return Ok(text.value.to_lowercase());
    }
    let fault = format!("{:?} is no hardware address", text.value);
    Err(DocumentError::at(text.referenced, fault))
}

impl TreeDocument {
    /// The other end of each switch's connection up: a switch and one of its connections.
    fn check(&self, places: &DocumentPlaces) -> Result<Vec<Above>, DocumentError> {
        let mut ids = BTreeSet::new();
        let mut root = None;
        for (at, switch) in self.switches.iter().enumerate() {
            let fault = |fault: String| Err(DocumentError::at(places.ids[at], fault));
            if !ids.insert(switch.id) {
                return fault(format!("a switch with the id {} was there before", switch.id));
            }
            let ups = switch.connections.iter().filter(|of| of.up).count();
            if switch.root && root.replace(switch.id).is_some() {
                return fault(format!("switch {} is a second root", switch.id));
            }
            if switch.root && ups > 0 {
                return fault(format!("switch {} is the root, and has a connection up", switch.id));
            }
            if !switch.root && ups == 0 {
                let host = switch.connections.iter().find_map(|of| of.host_id);
                let host =
                    host.map_or_else(String::new, |host| format!("; host {host} is unreachable"));
                return fault(format!("switch {} has no connection up{host}", switch.id));
            }
            if ups > 1 {
                return fault(format!("switch {} has {ups} connections up", switch.id));
            }
        }
        if root.is_none() {
            let at = places.ids.first().copied().unwrap_or(Location::UNKNOWN);
            return Err(DocumentError::at(at, "no switch is the root, or all are in a cycle"));
        }
        let mut parents = Vec::new();
        for (below, switch) in self.switches.iter().enumerate() {
            let up = switch.connections.iter().enumerate().find(|(_, of)| of.up);
            let Some((nth, up)) = up else { continue };
            let Some(above) = self.other_end(up) else {
                let fault = format!(
                    "no switch has the other end of this connection: {} with QPN {}",
                    up.peer_ip, up.peer_qp
                );
                return Err(DocumentError::at(places.connections[below][nth], fault));
            };
            parents.push((below, above));
        }
        self.check_cycles(&parents, places)?;
        Ok(parents)
    }

    fn other_end(&self, up: &TreeConnection) -> Option<(usize, usize)> {
        self.switches.iter().enumerate().find_map(|(at, switch)| {
            let is_it = |of: &TreeConnection| {
                !of.up
                    && (&of.my_ip, of.my_port, of.my_qp) == (&up.peer_ip, up.peer_port, up.peer_qp)
                    && (&of.peer_ip, of.peer_port, of.peer_qp) == (&up.my_ip, up.my_port, up.my_qp)
            };
            Some((at, switch.connections.iter().position(is_it)?))
        })
    }

    fn check_cycles(
        &self,
        parents: &[Above],
        places: &DocumentPlaces,
    ) -> Result<(), DocumentError> {
        let above: BTreeMap<_, _> = parents.iter().map(|(below, (at, _))| (*below, *at)).collect();
        for &(start, _) in parents {
            let mut at = start;
            for _ in 0..=self.switches.len() {
                match above.get(&at) {
                    Some(&next) => at = next,
                    None => break,
                }
            }
            if above.contains_key(&at) {
                let fault = format!(
                    "switch {} is in a cycle, or below one: all below are unreachable",
                    self.switches[start].id
                );
                return Err(DocumentError::at(places.ids[start], fault));
            }
        }
        Ok(())
    }

    /// Each connection down leads to a host or a switch of the document, and no rank is there twice.
    fn check_ranks(&self, places: &DocumentPlaces) -> Result<(), DocumentError> {
        let ids: BTreeSet<_> = self.switches.iter().map(|switch| switch.id).collect();
        let mut ranks = BTreeSet::new();
        for (at, switch) in self.switches.iter().enumerate() {
            for (nth, of) in switch.connections.iter().enumerate().filter(|(_, of)| !of.up) {
                let fault =
                    |fault: String| Err(DocumentError::at(places.connections[at][nth], fault));
                match (of.host_id, of.child) {
                    (Some(rank), None) if !ranks.insert(rank) => {
                        return fault(format!("host {rank} is there twice"));
                    }
                    (Some(_), None) => {}
                    (None, Some(child)) if !ids.contains(&child) => {
                        return fault(format!("no switch has the id {child}"));
                    }
                    (None, Some(_)) => {}
                    (None, None) => {
                        return fault("it leads to no host, and to no switch".to_owned());
                    }
                    (Some(rank), Some(child)) => {
                        return fault(format!("it leads to host {rank} and to switch {child}"));
                    }
                }
            }
        }
        Ok(())
    }

    /// The tree of a communicator that runs; `None`: it has none.
    #[must_use]
    pub fn of(communicator: &CommunicatorState) -> Option<Self> {
        let tree = communicator.tree.as_ref()?;
        let attributes = communicator.attributes;
        let edge = match attributes.reliability {
            Reliability::Reliable => "rc",
            Reliability::Unreliable => "uc",
        };
        let mode = match attributes.mode {
            MessageMode::Send => "send",
            MessageMode::Write => "write",
        };
        let id = |at: usize| u32::try_from(at).unwrap_or(u32::MAX);
        let mut switches = Vec::new();
        for (at, switch) in tree.iter().enumerate() {
            let (own, other) = (switch.ends.as_ref()?, communicator.other_ends(tree, at)?);
            let children = switch.children.iter().zip(own.children.iter().zip(&other.children));
            let children = children.map(|(child, ends)| (Some(child), ends));
            let parent = own.parent.as_ref().zip(other.parent.as_ref());
            let all = children.chain(parent.map(|ends| (None, ends)));
            let connections = all.map(|(child, (mine, peers))| TreeConnection {
                up: child.is_none(),
                host_id: child.and_then(|child| match &child.child {
                    Child::Host(rank) => Some(rank.0),
                    Child::Switch(_) => None,
                }),
                child: child.and_then(|child| child.switch).map(id),
                my_ip: mine.address.ip().to_string(),
                my_mac: NO_MAC.to_owned(),
                my_port: mine.address.port(),
                my_qp: mine.qpn.value(),
                peer_ip: peers.address.ip().to_string(),
                peer_mac: NO_MAC.to_owned(),
                peer_port: peers.address.port(),
                peer_qp: peers.qpn.value(),
                my_psn: Some(mine.first_psn.value()),
                peer_psn: Some(peers.first_psn.value()),
                communicator: Some(communicator.id.0),
                epoch: Some(communicator.epoch.0),
                pmtu: Some(attributes.path_mtu),
                slots: Some(attributes.window),
                edge: Some(edge.to_owned()),
                mode: Some(mode.to_owned()),
                key: Some(mine.window.key),
            });
            let (id, root) = (id(at), switch.parent.is_none());
            switches.push(DocumentSwitch { id, root, connections: connections.collect() });
        }
        Some(Self { switches })
    }

    /// The text of the document, as [`read_tree`] reads it.
    ///
    /// # Errors
    /// [`DocumentError`]; none is known.
    pub fn write(&self) -> Result<String, DocumentError> {
        write_text(self)
    }

    /// The switches, hosts and links that the tree consists of, and the place of each node in the text. Ranks with one
    /// address are on one host.
    fn to_map(&self, places: &DocumentPlaces) -> (PhysicalMap, Vec<Location>) {
        let node = |name, kind| MapNode { name, kind, address: None };
        let switches = self.switches.iter();
        let switches = switches.map(|of| node(format!("switch{}", of.id), NodeKind::Switch));
        let mut map = PhysicalMap { nodes: switches.collect(), links: Vec::new() };
        let mut names = places.ids.clone();
        let mut hosts = BTreeMap::new();
        for (at, switch) in self.switches.iter().enumerate() {
            for (nth, of) in switch.connections.iter().enumerate().filter(|(_, of)| !of.up) {
                let below = match (of.child, of.host_id) {
                    (Some(child), _) => self.switches.iter().position(|of| of.id == child),
                    (None, Some(rank)) => Some(*hosts.entry(&of.peer_ip).or_insert_with(|| {
                        map.nodes.push(node(format!("host{rank}"), NodeKind::Host));
                        names.push(places.connections[at][nth]);
                        map.nodes.len() - 1
                    })),
                    (None, None) => None,
                };
                let address = |ip: &str, port| Some(SocketAddr::new(ip.parse().ok()?, port));
                let addresses =
                    [address(&of.my_ip, of.my_port), address(&of.peer_ip, of.peer_port)];
                let link = below.map(|below| MapLink { ends: [at, below], addresses });
                map.links.extend(link.filter(|link| !map.links.contains(link)));
            }
        }
        (map, names)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::document::write_map;

    const TREE: &str = r#"switches:
  - id: 0
    root: true
    connections:
      - {up: false, host_id: 0, my_ip: "192.168.1.1", my_mac: "00:11:22:33:44:55", my_port: 4791, my_qp: 100,
         peer_ip: "192.168.1.10", peer_mac: "00:11:22:33:44:66", peer_port: 4791, peer_qp: 200}
      - {up: false, my_ip: "192.168.1.1", my_qp: 101, peer_ip: "192.168.1.2", peer_qp: 110}
  - id: 1
    root: false
    connections:
      - {up: true, my_ip: "192.168.1.2", my_qp: 110, peer_ip: "192.168.1.1", peer_qp: 101, my_psn: 5}
      - {up: false, host_id: 1, my_ip: "192.168.1.2", my_qp: 111, peer_ip: "192.168.1.11", peer_qp: 201, edge: uc}
"#;

    #[test]
    fn a_tree_is_read_and_written_and_is_a_topology() {
        let tree = read_tree(TREE).unwrap();
        assert_eq!(tree.switches[0].connections[1].child, Some(1));
        assert_eq!(tree.switches[0].connections[0].my_mac, "00:11:22:33:44:55");
        assert_eq!(tree.switches[1].connections[0].my_psn, Some(5));
        assert_eq!(read_tree(&tree.write().unwrap()).unwrap(), tree);
        let map = read_topology(TREE).unwrap();
        let names: Vec<_> = map.nodes.iter().map(|node| node.name.as_str()).collect();
        assert_eq!(names, ["switch0", "switch1", "host0", "host1"]);
        assert_eq!(map.host_at("192.168.1.11".parse().unwrap()), Some(3));
        assert_eq!(map.switch_at("192.168.1.2".parse().unwrap()), Some(1));
        assert_eq!(map.links.len(), 3);
        // Two ranks on one host, with a port for both or one for each.
        let shared = TREE.replace("192.168.1.11", "192.168.1.10");
        for text in [shared.clone(), shared.replace("peer_qp: 201", "peer_qp: 201, peer_port: 9")] {
            let map = read_topology(&text).unwrap();
            assert_eq!(map.nodes.len(), 3);
            assert_eq!(read_map(&write_map(&map).unwrap()).unwrap(), map);
        }
        // The other kind of document is read by the same function.
        let map = read_topology("nodes: []\nlinks: []\n").unwrap();
        assert_eq!(map, PhysicalMap::default());
    }

    #[test]
    fn an_address_of_a_tree_belongs_to_one_node() {
        for (from, to, line, fault) in [
            ("192.168.1.10\"", "192.168.1.1\"", 5, "address 192.168.1.1 of node \"switch0\""),
            ("192.168.1.11", "192.168.1.1", 12, "address 192.168.1.1 of node \"switch0\""),
            ("192.168.1.2\"", "192.168.1.1\"", 8, "address 192.168.1.1 of node \"switch0\""),
        ] {
            let text = TREE.replace(from, to);
            assert!(read_tree(&text).is_ok(), "{to}");
            let error = read_topology(&text).unwrap_err();
            assert!(error.fault.contains(fault), "{to}: {error}");
            assert_eq!(error.line, line, "{error}");
        }
    }

    #[test]
    fn faults_of_a_tree_are_named_with_line_and_column() {
        for (from, to, line, column, fault) in [
            ("edge: uc", "edges: uc", 12, 106, "edges"),
            ("edge: uc", "edge: ud", 12, 112, "\"ud\" is not rc or uc"),
            ("id: 1\n", "id: 0\n", 8, 9, "id 0 was there before"),
            ("root: false", "root: true", 8, 9, "second root"),
            (
                "root: true",
                "root: false",
                2,
                9,
                "switch 0 has no connection up; host 0 is unreachable",
            ),
            ("peer_qp: 101", "peer_qp: 102", 11, 14, "no switch has the other end"),
            ("192.168.1.11", "192.168.1.1111", 12, 76, "is no IP address"),
            ("44:66", "44:6", 6, 45, "is no hardware address"),
            ("my_qp: 111", "my_qp: 16777216", 12, 62, "QPN 16777216 is more than 24 bits"),
            ("my_psn: 5", "my_psn: 16777216", 11, 100, "PSN 16777216"),
            ("up: false, host_id: 1", "up: true, host_id: 1", 12, 29, "has no host_id"),
            ("host_id: 1,", "host_id: 0,", 12, 14, "host 0 is there twice"),
            (
                "up: false, my_ip",
                "up: false, child: 7, host_id: 3, my_ip",
                7,
                14,
                "host 3 and to switch",
            ),
            ("up: false, host_id: 1,", "up: false,", 12, 14, "no host, and to no switch"),
            ("host_id: 1,", "host_id: 65536,", 12, 30, ""),
        ] {
            assert!(TREE.contains(from), "{from}");
            let error = read_tree(&TREE.replacen(from, to, 1)).unwrap_err();
            assert!(error.fault.contains(fault), "{to}: {error}");
            assert_eq!((error.line, error.column), (line, column), "{to}: {error}");
        }
        // Two switches that are above each other, beside a root.
        let cycle = "switches:
  - {id: 9, root: true, connections: []}
  - id: 0
    connections:
      - {up: true, my_ip: 10.0.0.1, my_qp: 1, peer_ip: 10.0.0.2, peer_qp: 2}
      - {up: false, my_ip: 10.0.0.1, my_qp: 3, peer_ip: 10.0.0.2, peer_qp: 4}
  - id: 1
    connections:
      - {up: true, my_ip: 10.0.0.2, my_qp: 4, peer_ip: 10.0.0.1, peer_qp: 3}
      - {up: false, my_ip: 10.0.0.2, my_qp: 2, peer_ip: 10.0.0.1, peer_qp: 1}
";
        let error = read_tree(cycle).unwrap_err();
        assert!(error.fault.contains("switch 0 is in a cycle"), "{error}");
        assert_eq!((error.line, error.column), (3, 9));
    }
}
