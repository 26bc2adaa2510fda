//! The topology of a controller as a YAML document: the physical map (`nodes`, `links`).
//!
//! A fault is named with its line and column. What a reader has to know of the text is checked here, so that a
//! [`PhysicalMap`] has no doubled name, no link to nowhere, and an address wherever one is needed.

use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_saphyr::{Location, Spanned};

use crate::topology::{MapLink, MapNode, NodeKind, PhysicalMap};

/// UDP port of RoCEv2, where an address names none.
pub const ROCE_PORT: u16 = 4791;

/// What is wrong with a document, and where.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("line {line}, column {column}: {fault}")]
pub struct DocumentError {
    /// Line of the fault, from 1; 0: of the whole document.
    pub line: u64,
    /// Column of the fault, from 1.
    pub column: u64,
    /// What is wrong there.
    pub fault: String,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct MapText {
    nodes: Vec<NodeText>,
    links: Vec<LinkText>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct NodeText {
    name: Spanned<String>,
    kind: Spanned<String>,
    address: Option<Spanned<String>>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct LinkText {
    ends: Spanned<Vec<Spanned<String>>>,
    addresses: Option<Spanned<Vec<Spanned<String>>>>,
}

#[derive(Serialize)]
struct MapOut {
    nodes: Vec<NodeOut>,
    links: Vec<LinkOut>,
}

#[derive(Serialize)]
struct NodeOut {
    name: String,
    kind: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    address: Option<String>,
}

#[derive(Serialize)]
struct LinkOut {
    ends: [String; 2],
    #[serde(skip_serializing_if = "Option::is_none")]
    addresses: Option<[String; 2]>,
}

impl DocumentError {
    pub(crate) fn at(location: Location, fault: impl Into<String>) -> Self {
        Self { line: location.line(), column: location.column(), fault: fault.into() }
    }
}

impl From<serde_saphyr::Error> for DocumentError {
    fn from(error: serde_saphyr::Error) -> Self {
        let location = error.location().unwrap_or(Location::UNKNOWN);
        let text = error.without_snippet().to_string();
        // The place is said once.
        let fault = text.split(" at line ").next().unwrap_or_default();
        Self::at(location, fault)
    }
}

/// Reads a document whose faults have places.
pub(crate) fn read_text<T: DeserializeOwned>(text: &str) -> Result<T, DocumentError> {
    let options = serde_saphyr::options! { with_snippet: false };
    Ok(serde_saphyr::from_str_with_options(text, options)?)
}

/// Writes a document of either kind.
pub(crate) fn write_text(of: &impl Serialize) -> Result<String, DocumentError> {
    serde_saphyr::to_string(of)
        .map_err(|error| DocumentError::at(Location::UNKNOWN, error.to_string()))
}

/// Reads a physical map.
///
/// # Errors
/// [`DocumentError`].
pub fn read_map(text: &str) -> Result<PhysicalMap, DocumentError> {
    let read: MapText = read_text(text)?;
    let mut map = PhysicalMap::default();
    let mut places = BTreeMap::new();
    let mut names = Vec::new();
    for node in read.nodes {
        let kind = match node.kind.value.as_str() {
            "switch" => NodeKind::Switch,
            "host" => NodeKind::Host,
            other => {
                let fault = format!("a node is a switch or a host, not {other:?}");
                return Err(DocumentError::at(node.kind.referenced, fault));
            }
        };
        let address = node.address.as_ref().map(address).transpose()?;
        let name = node.name.value;
        if places.insert(name.clone(), map.nodes.len()).is_some() {
            let fault = format!("a node with the name {name:?} was there before");
            return Err(DocumentError::at(node.name.referenced, fault));
        }
        names.push(node.name.referenced);
        map.nodes.push(MapNode { name, kind, address });
    }
    for link in read.links {
        map.links.push(link_of(link, &places, &map)?);
    }
    check_hosts(&map, &names)?;
    Ok(map)
}

/// Writes a physical map, as [`read_map`] reads it.
///
/// # Errors
/// [`DocumentError`]; none is known.
pub fn write_map(map: &PhysicalMap) -> Result<String, DocumentError> {
    let nodes = map.nodes.iter().map(|node| NodeOut {
        name: node.name.clone(),
        kind: match node.kind {
            NodeKind::Switch => "switch",
            NodeKind::Host => "host",
        },
        address: node.address.map(|address| address.to_string()),
    });
    let links = map.links.iter().map(|link| {
        let address = |end: usize| {
            let own = link.addresses[end].or(map.nodes[link.ends[end]].address);
            own.map_or_else(String::new, |address| address.to_string())
        };
        let has_own = link.addresses.iter().any(Option::is_some);
        LinkOut {
            ends: link.ends.map(|end| map.nodes[end].name.clone()),
            addresses: has_own.then(|| [address(0), address(1)]),
        }
    });
    write_text(&MapOut { nodes: nodes.collect(), links: links.collect() })
}

fn link_of(
    link: LinkText,
    places: &BTreeMap<String, usize>,
    map: &PhysicalMap,
) -> Result<MapLink, DocumentError> {
    let place = |name: &Spanned<String>| {
        places.get(&name.value).copied().ok_or_else(|| {
            DocumentError::at(name.referenced, format!("no node has the name {:?}", name.value))
        })
    };
    let at = link.ends.referenced;
    let [a, b] = &link.ends.value[..] else {
        let fault = format!("a link has two ends, not {}", link.ends.value.len());
        return Err(DocumentError::at(at, fault));
    };
    let ends = [place(a)?, place(b)?];
    if ends[0] == ends[1] {
        return Err(DocumentError::at(at, "a link joins two nodes, not one with itself"));
    }
    let addresses = match &link.addresses {
        None => [None, None],
        Some(texts) => match &texts.value[..] {
            [a, b] => [Some(address(a)?), Some(address(b)?)],
            other => {
                let fault = format!("a link has two addresses, not {}", other.len());
                return Err(DocumentError::at(texts.referenced, fault));
            }
        },
    };
    for (end, text) in [(0, a), (1, b)] {
        let node = &map.nodes[ends[end]];
        if node.address.or(addresses[end]).is_none() {
            let fault = format!(
                "node {:?} has no address: give it one, or both ends of this link",
                node.name
            );
            return Err(DocumentError::at(text.referenced, fault));
        }
    }
    if ends.iter().all(|&end| map.nodes[end].kind == NodeKind::Host) {
        return Err(DocumentError::at(at, "a link joins two hosts: one of them must be a switch"));
    }
    Ok(MapLink { ends, addresses })
}

/// A host is linked to a switch, and no two nodes have one address. `names` are the nodes' places in the text.
pub(crate) fn check_hosts(map: &PhysicalMap, names: &[Location]) -> Result<(), DocumentError> {
    let mut owners: BTreeMap<IpAddr, usize> = BTreeMap::new();
    for (node, of) in map.nodes.iter().enumerate() {
        let links = map.links.iter().filter(|link| link.ends.contains(&node));
        if of.kind == NodeKind::Host && links.clone().next().is_none() {
            let fault = format!("host {:?} is unreachable: no link has it as an end", of.name);
            return Err(DocumentError::at(names[node], fault));
        }
        let by_link = links.flat_map(|link| {
            (0..2).filter(|&end| link.ends[end] == node).filter_map(|end| link.addresses[end])
        });
        for address in by_link.chain(of.address) {
            let owner = *owners.entry(address.ip()).or_insert(node);
            if owner != node {
                let fault = format!(
                    "node {:?} has the address {} of node {:?}",
                    of.name,
                    address.ip(),
                    map.nodes[owner].name
                );
                return Err(DocumentError::at(names[node], fault));
            }
        }
    }
    Ok(())
}

/// An address with or without a port.
fn address(text: &Spanned<String>) -> Result<SocketAddr, DocumentError> {
    let value = &text.value;
    let plain = || value.parse::<IpAddr>().map(|ip| SocketAddr::new(ip, ROCE_PORT));
    value.parse().or_else(|_| plain()).map_err(|_| {
        let fault = format!("{value:?} is no IPv4 or IPv6 address, with or without a port");
        DocumentError::at(text.referenced, fault)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const MAP: &str = "nodes:
  - {name: s, kind: switch}
  - {name: t, kind: switch, address: \"127.1.0.2:5000\"}
  - {name: a, kind: host, address: 127.2.0.1}
  - {name: b, kind: host}
links:
  - {ends: [s, t], addresses: [\"127.1.0.1:5001\", \"127.1.0.2:5002\"]}
  - {ends: [s, a], addresses: [127.1.1.1, 127.2.0.1]}
  - {ends: [t, b], addresses: [127.1.1.2, \"[fd00::1]\"]}
";

    #[test]
    fn addresses_are_those_of_the_link_or_else_of_the_node() {
        let text = MAP.replace("\"[fd00::1]\"", "\"fd00::1\"");
        let map = read_map(&text).unwrap();
        let at = |node: &str, link| {
            map.address_at(map.node_named(node).unwrap(), link).unwrap().to_string()
        };
        assert_eq!(at("s", 0), "127.1.0.1:5001");
        assert_eq!(at("t", 0), "127.1.0.2:5002");
        assert_eq!(at("s", 1), "127.1.1.1:4791");
        assert_eq!(at("b", 2), "[fd00::1]:4791");
        assert_eq!(map.host_at("fd00::1".parse().unwrap()), map.node_named("b"));
        assert_eq!(map.switch_at("127.1.1.1".parse().unwrap()), map.node_named("s"));
        assert_eq!(map.host_at("127.1.1.1".parse().unwrap()), None);
    }

    #[test]
    fn a_map_that_is_written_is_read_as_the_same() {
        let map = read_map(&MAP.replace("\"[fd00::1]\"", "\"fd00::1\"")).unwrap();
        assert_eq!(read_map(&write_map(&map).unwrap()).unwrap(), map);
    }

    #[test]
    fn faults_of_a_map_are_named_with_line_and_column() {
        let good = MAP.replace("\"[fd00::1]\"", "\"fd00::1\"");
        for (from, to, line, column, fault) in [
            ("kind: host}", "kind: host, colour: red}", 5, 27, "colour"),
            ("name: t", "name: s", 3, 12, "name \"s\" was there before"),
            ("kind: host, ", "kind: router, ", 4, 21, "not \"router\""),
            ("[t, b]", "[t, c]", 9, 16, "no node has the name \"c\""),
            ("[t, b]", "[t]", 9, 12, "two ends, not 1"),
            ("[t, b]", "[t, t]", 9, 12, "not one with itself"),
            ("[t, b]", "[a, b]", 9, 12, "joins two hosts"),
            ("127.1.1.1, ", "127.1.1.300, ", 8, 32, "\"127.1.1.300\" is no IPv4"),
            ("[t, b]", "[t, a]", 5, 12, "host \"b\" is unreachable"),
            (", addresses: [127.1.1.1, 127.2.0.1]", "", 8, 13, "\"s\" has no address"),
            ("127.1.1.2, ", "127.1.1.2, \"::2\", ", 9, 31, "two addresses, not 3"),
            ("127.1.1.2,", "127.1.1.1,", 3, 12, "the address 127.1.1.1 of node \"s\""),
            ("links:", "nodes:", 6, 1, "nodes"),
            ("links:", "links: {", 0, 0, ""),
        ] {
            assert!(good.contains(from), "{from}");
            let error = read_map(&good.replacen(from, to, 1)).unwrap_err();
            assert!(error.fault.contains(fault), "{to}: {error}");
            assert!(!error.fault.contains("line"), "{error}");
            if line != 0 {
                assert_eq!((error.line, error.column), (line, column), "{to}: {error}");
            }
        }
    }

    #[test]
    fn ten_megabytes_of_nesting_are_refused_where_they_become_too_deep() {
        for text in ["[".repeat(10 << 20), "nodes:\n".to_owned() + &"- ".repeat(5 << 20)] {
            let error = read_map(&text).unwrap_err();
            assert!(error.line <= 2 && error.column < 10_000, "{error}");
        }
    }
}
