//! `show`: nodes and their objects as tables.
//!
//! *Owns*: columns. *Takes*: documents of nodes. *Gives*: text, or a part of the document.

use std::{fmt::Write as _, net::IpAddr};

use serde_json::{Value, json};
use ubcore_sim::host::{
    ip_eid,
    obstacle::{self, FailedAttempt, Obstacle},
};

use crate::{
    cli::{ObjectKind, ShowArgs, ShownView},
    nodes::{self, AskedNode, SelectError},
};

/// The table of devices, as in UMDK release 26.06.
const DEVICES: &str =
    "num  ubep_dev            tp_type     eid                                             link";

/// What `show` prints.
///
/// # Errors
/// No such node, no answer.
pub(crate) fn show(show: &ShowArgs, json: bool) -> Result<String, SelectError> {
    let value = match (show.what, show.kind) {
        (Some(ShownView::Dev), Some(kind)) => {
            let (_, document) = nodes::one(show.device.as_deref())?;
            let list = objects(&document, kind, show.id);
            if !json {
                return Ok(table(kind, &list));
            }
            json!({ "device": document["device"], "eid": document["eid"], "objects": list })
        }
        (Some(ShownView::Topo), _) => {
            let nodes = nodes::all(show.device.as_deref())?;
            if !json {
                return Ok(topo(&nodes));
            }
            nodes.iter().map(edges).collect()
        }
        _ => {
            let device = show.device.as_deref().or(show.only.as_deref());
            let nodes = nodes::all(device)?;
            if !json {
                return Ok(devices(&nodes, is_detailed(show), show.whole));
            }
            nodes.iter().map(whole).collect()
        }
    };
    Ok(format!("{value:#}\n"))
}

/// Whether more than a line of each node is asked for.
const fn is_detailed(show: &ShowArgs) -> bool {
    show.all || show.whole || (show.what.is_some() && !show.brief)
}

/// The EIDs of this host.
///
/// # Errors
/// The list cannot be had.
pub(crate) fn eids(json: bool) -> Result<String, SelectError> {
    let nodes = nodes::all(None)?;
    if json {
        let list: Value = nodes.iter().map(|node| json!(node.name())).collect();
        return Ok(format!("{list:#}\n"));
    }
    Ok(nodes.iter().map(|node| format!("{}\n", node.name())).collect())
}

fn whole(node: &AskedNode) -> Value {
    match (&node.document, &node.silent) {
        (Some(document), _) => document.clone(),
        (None, why) => json!({ "eid": node.name(), "silent": why }),
    }
}

fn devices(nodes: &[AskedNode], is_detailed: bool, is_whole: bool) -> String {
    let mut text = format!("{DEVICES}\n");
    for (index, node) in nodes.iter().enumerate() {
        let device = node.document.as_ref().map_or("?", |document| word(&document["device"]));
        let link = if node.document.is_some() { "ACTIVE" } else { "UNKNOWN" };
        let eid = node.name();
        let line = format!("{index:<3}  {device:<18}  {:<10}  {eid:<46}  {link}", "URMA_UB");
        let _ = writeln!(text, "{line}");
        if let Some(why) = &node.silent {
            let _ = writeln!(text, "     {why}");
        }
        if let Some(document) = node.document.as_ref().filter(|_| is_detailed) {
            details(&mut text, document, is_whole);
        }
    }
    text
}

fn details(text: &mut String, document: &Value, is_whole: bool) {
    let line = |text: &mut String, name: &str, value: String| {
        let _ = writeln!(text, "     {name:<20}: {value}");
    };
    let process = format!("{} ({})", document["pid"], word(&document["command"]));
    line(text, "process", process);
    for name in
        ["incarnation", "uasid", "mtu", "window_packets", "strategy", "congestion", "features"]
    {
        line(text, name, plain(&document[name]));
    }
    if let Some(why) = document["packets_refused"].as_str() {
        line(text, "packets", format!("none: {why}"));
    }
    for name in ["queues", "jfcs", "jetty_groups", "segments", "tps"] {
        line(text, name, document[name].as_array().map_or(0, Vec::len).to_string());
    }
    for (title, group) in [("capability", "capabilities"), ("counter", "counters")] {
        for (name, value) in document[group].as_object().into_iter().flatten() {
            if group == "capabilities" || value != 0 {
                let _ = writeln!(text, "     {title:<10} {name:<28}: {value}");
            }
        }
    }
    if is_whole {
        for kind in [ObjectKind::Jetty, ObjectKind::Jfs, ObjectKind::Jfr, ObjectKind::Jfc] {
            text.push_str(&table(kind, &objects(document, kind, None)));
        }
        for kind in [ObjectKind::JettyGroup, ObjectKind::Seg, ObjectKind::Tp] {
            text.push_str(&table(kind, &objects(document, kind, None)));
        }
    }
}

/// The objects of a kind, or the one with that number.
fn objects(document: &Value, kind: ObjectKind, id: Option<u64>) -> Vec<Value> {
    let (list, number) = match kind {
        ObjectKind::Jfc => ("jfcs", "id"),
        ObjectKind::JettyGroup => ("jetty_groups", "id"),
        ObjectKind::Seg => ("segments", "token_id"),
        ObjectKind::Tp | ObjectKind::Tpreuse => ("tps", "reliable"),
        ObjectKind::Jfs | ObjectKind::Jfr | ObjectKind::Jetty | ObjectKind::Rc => ("queues", "id"),
    };
    let is_kind = |object: &Value| match kind {
        ObjectKind::Jfs => object["kind"] == "jfs",
        ObjectKind::Jfr => object["kind"] == "jfr",
        ObjectKind::Jetty => object["kind"] == "jetty",
        ObjectKind::Rc => object["kind"] == "jetty" && object["mode"] == "rc",
        ObjectKind::Jfc
        | ObjectKind::JettyGroup
        | ObjectKind::Seg
        | ObjectKind::Tp
        | ObjectKind::Tpreuse => true,
    };
    let is_meant = |object: &Value| {
        id.is_none_or(|id| {
            object[number] == id || (number == "reliable" && object["unreliable"] == id)
        })
    };
    let objects = document[list].as_array().into_iter().flatten();
    let objects = objects.filter(|object| is_kind(object) && is_meant(object)).cloned();
    let mut objects: Vec<Value> = objects.collect();
    for object in &mut objects {
        if let Some(pid) = object["owner_pid"].as_u64().and_then(|pid| u32::try_from(pid).ok()) {
            object["owner"] = Value::from(nodes::command(pid));
        }
    }
    objects
}

/// The columns of a kind, and their widths.
fn columns(kind: ObjectKind) -> &'static [(&'static str, usize)] {
    match kind {
        ObjectKind::Jfc => &[("id", 8)],
        ObjectKind::JettyGroup => &[("id", 8), ("members", 40)],
        ObjectKind::Jfs => &[("id", 8), ("mode", 5), ("send_state", 10), ("jfcs", 12)],
        ObjectKind::Jfr => {
            &[("id", 8), ("mode", 5), ("recv_state", 10), ("receives", 8), ("jfcs", 12)]
        }
        ObjectKind::Jetty => &[
            ("id", 8),
            ("mode", 5),
            ("send_state", 10),
            ("recv_state", 10),
            ("receives", 8),
            ("jfcs", 12),
            ("shared_jfr", 10),
            ("group", 8),
        ],
        ObjectKind::Rc => &[("id", 8), ("send_state", 10), ("recv_state", 10), ("bound", 24)],
        ObjectKind::Seg => &[
            ("token_id", 10),
            ("va", 18),
            ("len", 12),
            ("access", 22),
            ("has_token", 9),
            ("shared", 6),
            ("why_not_direct", 16),
        ],
        ObjectKind::Tp => &[
            ("eid", 18),
            ("path", 10),
            ("reliable", 9),
            ("unreliable", 10),
            ("tpns", 16),
            ("mtu", 5),
            ("congestion", 10),
            ("owner_pid", 9),
            ("owner", 16),
            ("why_not_faster", 16),
        ],
        ObjectKind::Tpreuse => &[("eid", 18), ("path", 10), ("users", 6), ("in_flight", 9)],
    }
}

fn table(kind: ObjectKind, objects: &[Value]) -> String {
    let mut text = String::new();
    let mut row = |cells: Vec<String>| {
        let cells = cells.iter().zip(columns(kind));
        let cells: Vec<String> =
            cells.map(|(cell, (_, width))| format!("{cell:<width$}", width = *width)).collect();
        let _ = writeln!(text, "{}", cells.join("  ").trim_end());
    };
    row(columns(kind).iter().map(|(name, _)| (*name).to_owned()).collect());
    for object in objects {
        let cell = |name: &str| match name {
            "va" => object[name].as_u64().map_or_else(|| "-".to_owned(), |va| format!("{va:#x}")),
            _ => plain(&object[name]),
        };
        row(columns(kind).iter().map(|(name, _)| cell(name)).collect());
    }
    text
}

/// Formats which node reaches which, and over which path.
fn topo(nodes: &[AskedNode]) -> String {
    let mut text = String::from(
        "node               process  device      peer               path        why not faster\n",
    );
    for node in nodes {
        let Some(document) = &node.document else {
            let why = node.silent.as_deref().unwrap_or("?");
            let _ = writeln!(text, "{:<18} {:<8} {why}", node.name(), "-");
            continue;
        };
        let (pid, device) = (plain(&document["pid"]), word(&document["device"]));
        let mut line = |peer: &str, path: &str, why: &str, below: &str| {
            let head = format!("{:<18} {pid:<8} {device:<11}", node.name());
            let line = format!("{head} {peer:<18} {path:<11} {why}");
            let _ = writeln!(text, "{}", line.trim_end());
            text.push_str(below);
        };
        let paths = document["tps"].as_array().filter(|paths| !paths.is_empty());
        match paths {
            None => line("-", "-", &no_packets(document), ""),
            Some(paths) => {
                for path in paths {
                    let why =
                        match (obstacle(node, document, path), path["why_not_faster"].as_str()) {
                            (Some(obstacle), _) => format!("not reached: {obstacle}"),
                            (None, Some(why)) => why.to_owned(),
                            (None, None) => peers_reason(nodes, node, path).unwrap_or_default(),
                        };
                    line(word(&path["eid"]), word(&path["path"]), &why, &routes(path));
                }
            }
        }
    }
    text
}

/// The routes of a path between nodes with several ports, a line each; empty if there is one.
fn routes(path: &Value) -> String {
    let mut text = String::new();
    for route in path["routes"].as_array().into_iter().flatten() {
        let (from, to, state) = (word(&route["from"]), word(&route["to"]), word(&route["state"]));
        let (port, sent) = (plain(&route["port"]), plain(&route["sent_bytes"]));
        let received = plain(&route["received_bytes"]);
        let of_tp = match state {
            "used" => {
                let rtt = path["rtt_ns"]
                    .as_u64()
                    .map_or_else(|| "-".to_owned(), |ns| (ns / 1000).to_string());
                format!(", mtu {}, rtt {rtt} us", plain(&path["mtu"]))
            }
            _ => String::new(),
        };
        let failures = plain(&route["failures"]);
        let _ = writeln!(
            text,
            "    port {port} {from} to {to}: {state}{of_tp}, {sent} bytes sent, {received} received, failed {failures} times"
        );
    }
    text
}

/// Why a node exchanges no packets; empty if it does.
fn no_packets(document: &Value) -> String {
    document["packets_refused"].as_str().map_or_else(String::new, |why| format!("port: {why}"))
}

/// What stands between a node and a peer that it uses and has no connection to.
fn obstacle(node: &AskedNode, document: &Value, path: &Value) -> Option<Obstacle> {
    let has_tp = path["tpns"].as_array().is_some_and(|tpns| !tpns.is_empty());
    let is_lost = match path["path"].as_str()? {
        "packets" => path["users"] != 0 && !has_tp,
        "none" => true,
        _ => false,
    };
    let eid = |text: &str| text.parse::<IpAddr>().ok().map(ip_eid);
    let (own, peer) = (eid(&node.name())?, eid(path["eid"].as_str()?)?);
    let pid = u32::try_from(document["pid"].as_u64()?).ok()?;
    is_lost.then(|| obstacle::find(own, pid, peer, FailedAttempt::Silence))
}

/// Why the path of `node` is not faster, if only its peer has the reason: that of the opposite
/// path.
fn peers_reason(nodes: &[AskedNode], node: &AskedNode, path: &Value) -> Option<String> {
    let peer = nodes.iter().find(|peer| path["eid"] == peer.name().as_str())?;
    let paths = peer.document.as_ref()?["tps"].as_array()?;
    let back = paths.iter().find(|back| back["eid"] == node.name().as_str())?;
    let why = back["why_not_faster"].as_str().filter(|_| back["path"] == path["path"])?;
    Some(format!("the peer says: {why}"))
}

fn edges(node: &AskedNode) -> Value {
    match &node.document {
        Some(document) => json!({
            "eid": node.name(),
            "pid": document["pid"],
            "device": document["device"],
            "peers": document["tps"],
        }),
        None => whole(node),
    }
}

fn word(value: &Value) -> &str {
    value.as_str().unwrap_or("?")
}

/// A value in a table.
fn plain(value: &Value) -> String {
    match value {
        Value::Null => "-".to_owned(),
        Value::String(text) => text.clone(),
        Value::Array(list) => list.iter().map(plain).collect::<Vec<_>>().join(","),
        Value::Object(map) => {
            let fields = map.iter().map(|(name, value)| format!("{name}={}", plain(value)));
            fields.collect::<Vec<_>>().join(",")
        }
        other => other.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn routes_are_shown_with_what_went_by_each() {
        let path = json!({
            "mtu": 1392, "rtt_ns": 42_700,
            "routes": [
                { "port": 0, "from": "10.80.0.1", "to": "10.80.0.2", "state": "idle",
                  "sent_bytes": 10, "received_bytes": 3, "failures": 1 },
                { "port": 1, "from": "10.81.0.1", "to": "10.81.0.2", "state": "used",
                  "sent_bytes": 7, "received_bytes": 5, "failures": 0 },
            ],
        });
        let lines = "    port 0 10.80.0.1 to 10.80.0.2: idle, 10 bytes sent, 3 received, failed 1 times\n    \
                     port 1 10.81.0.1 to 10.81.0.2: used, mtu 1392, rtt 42 us, 7 bytes sent, 5 received, failed 0 times\n";
        assert_eq!(routes(&path), lines);
        assert_eq!(routes(&json!({ "mtu": 1392 })), "");
    }

    #[test]
    fn objects_are_distinguished_by_kind_and_number() {
        let document = json!({
            "queues": [
                { "id": 1024, "kind": "jetty", "mode": "rc", "bound": { "tpn": 3, "id": 9 } },
                { "id": 1025, "kind": "jfr", "mode": "rm", "receives": 7, "jfcs": [1, 2] },
            ],
            "segments": [{ "token_id": 256, "va": 4096, "len": 8, "access": ["read"],
                "shared": false, "why_not_direct": "already shared memory" }],
        });
        assert_eq!(objects(&document, ObjectKind::Rc, None).len(), 1);
        assert_eq!(objects(&document, ObjectKind::Jetty, Some(7)).len(), 0);
        let text = table(ObjectKind::Jfr, &objects(&document, ObjectKind::Jfr, Some(1025)));
        assert!(text.starts_with("id        mode   recv_state  receives  jfcs\n1025"), "{text}");
        assert!(text.contains("1,2"), "{text}");
        let text = table(ObjectKind::Seg, &objects(&document, ObjectKind::Seg, None));
        assert!(text.contains("0x1000"), "{text}");
        assert!(text.contains("already shared memory"), "{text}");
        let text = table(ObjectKind::Rc, &objects(&document, ObjectKind::Rc, None));
        assert!(text.contains("id=9,tpn=3") || text.contains("tpn=3,id=9"), "{text}");
    }

    /// A node at 10.0.0.1, with objects of each kind.
    fn document() -> Value {
        json!({
            "device": "udma0", "pid": 7, "command": "prog", "mtu": 4096,
            "queues": [
                { "id": 1024, "kind": "jetty", "mode": "rc" },
                { "id": 1025, "kind": "jfr", "mode": "rm" },
                { "id": 1026, "kind": "jetty", "mode": "rm" },
                { "id": 1027, "kind": "jfs", "mode": "rm" },
            ],
            "jfcs": [{ "id": 1 }, { "id": 2 }],
            "jetty_groups": [{ "id": 3, "members": [1026] }],
            "segments": [{ "token_id": 256 }],
            "tps": [
                { "eid": "10.0.0.2", "path": "packets", "reliable": 9, "unreliable": 11 },
                { "eid": "10.0.0.3", "path": "memory", "reliable": 12, "unreliable": null },
            ],
            "capabilities": { "max_jfc": 0 },
            "counters": { "packets_sent": 3, "packets_lost": 0 },
        })
    }

    #[test]
    fn each_kind_has_its_objects_and_its_number() {
        let found = |kind, id| -> Vec<u64> {
            let number = |object: &Value| {
                ["id", "token_id", "reliable"].iter().find_map(|name| object[*name].as_u64())
            };
            objects(&document(), kind, id).iter().filter_map(number).collect()
        };
        assert_eq!(found(ObjectKind::Jetty, None), [1024, 1026]);
        assert_eq!(found(ObjectKind::Rc, None), [1024]);
        assert_eq!(found(ObjectKind::Jfr, None), [1025]);
        assert_eq!(found(ObjectKind::Jfs, None), [1027]);
        assert_eq!(found(ObjectKind::Jfc, Some(2)), [2]);
        assert_eq!(found(ObjectKind::JettyGroup, Some(3)), [3]);
        assert_eq!(found(ObjectKind::Seg, Some(256)), [256]);
        assert!(found(ObjectKind::Jetty, Some(1025)).is_empty(), "it is no jetty");
        for kind in [ObjectKind::Tp, ObjectKind::Tpreuse] {
            assert_eq!(found(kind, None), [9, 12]);
            // By either of its two numbers.
            assert_eq!((found(kind, Some(9)), found(kind, Some(11))), (vec![9], vec![9]));
            assert!(found(kind, Some(10)).is_empty());
        }
    }

    #[test]
    fn nodes_are_lines_and_details_have_what_is_there() {
        let eid = ip_eid(std::net::Ipv4Addr::new(10, 0, 0, 1).into());
        let nodes = [
            AskedNode { eid, document: Some(document()), silent: None },
            AskedNode { eid, document: None, silent: Some("no answer".to_owned()) },
        ];
        let brief = devices(&nodes, false, false);
        let lines: Vec<Vec<&str>> =
            brief.lines().map(|line| line.split_whitespace().collect()).collect();
        assert_eq!(lines.len(), 4, "{brief}");
        assert_eq!(lines[1], ["0", "udma0", "URMA_UB", "10.0.0.1", "ACTIVE"]);
        assert_eq!(lines[2], ["1", "?", "URMA_UB", "10.0.0.1", "UNKNOWN"]);
        assert_eq!(lines[3], ["no", "answer"]);
        let detailed = devices(&nodes, true, false);
        for line in [
            "     process             : 7 (prog)\n",
            "     mtu                 : 4096\n",
            "     queues              : 4\n",
            "     tps                 : 2\n",
            "     capability max_jfc                     : 0\n",
            "     counter    packets_sent                : 3\n",
        ] {
            assert!(detailed.contains(line), "{line}: {detailed}");
        }
        assert!(!detailed.contains(": none: "), "it has packets: {detailed}");
        let mut without = document();
        without["packets_refused"] = "taken".into();
        let without = [AskedNode { eid, document: Some(without), silent: None }];
        let text = devices(&without, true, false);
        assert!(text.contains("     packets             : none: taken\n"), "{text}");
        assert!(!detailed.contains("packets_lost"), "a counter of 0 says nothing: {detailed}");
        assert!(!detailed.contains("1024") && devices(&nodes, true, true).contains("\n1024 "));
    }

    /// Six nodes of this host, at loopback addresses.
    fn neighbours() -> [AskedNode; 6] {
        let eid = |last| ip_eid(std::net::Ipv4Addr::new(127, 9, 0, last).into());
        let node = |last, document: Value| AskedNode {
            eid: eid(last),
            document: Some(document),
            silent: None,
        };
        [
            node(
                1,
                json!({ "device": "udma0", "pid": 7, "tps": [
                { "eid": "127.9.0.2", "path": "packets", "users": 2, "tpns": [5], "why_not_faster": null },
                { "eid": "127.9.0.3", "path": "packets", "users": 1, "tpns": [6], "why_not_faster": null },
                { "eid": "127.9.0.5", "path": "same-host", "users": 1, "tpns": [], "why_not_faster": null },
                { "eid": "10.99.0.9", "path": "packets", "users": 1, "tpns": [] },
                { "eid": "10.99.0.9", "path": "packets", "users": 0, "tpns": [] },
                { "eid": "10.99.0.8", "path": "none", "users": 0, "tpns": [3] },
            ] }),
            ),
            node(
                2,
                json!({ "device": "udma1", "pid": 8, "tps": [
                { "eid": "127.9.0.1", "path": "packets", "users": 1, "tpns": [9], "why_not_faster": "packets only",
                  "routes": [{ "port": 0, "from": "a", "to": "b", "state": "idle", "sent_bytes": 1,
                               "received_bytes": 2, "failures": 0 }] },
            ] }),
            ),
            // Its path to the first one is another one now.
            node(
                3,
                json!({ "device": "udma2", "pid": 9, "tps": [
                { "eid": "127.9.0.1", "path": "same-host", "why_not_faster": "no reason of packets" },
                { "eid": "127.9.0.2", "path": "packets", "users": 1, "tpns": [9], "why_not_faster": "of another" },
            ] }),
            ),
            node(4, json!({ "device": "udma3", "pid": 10, "tps": [], "packets_refused": "taken" })),
            node(5, json!({ "device": "udma4", "pid": 11 })),
            AskedNode { eid: eid(6), document: None, silent: Some("it is gone".to_owned()) },
        ]
    }

    /// None of these paths is looked into but those that are lost.
    #[test]
    fn who_reaches_whom_is_a_line_for_each_path() {
        let nodes = neighbours();
        let text = topo(&nodes);
        let rows: Vec<Vec<&str>> =
            text.lines().map(|line| line.split_whitespace().collect()).collect();
        let joined: Vec<String> = rows.iter().map(|row| row.join(" ")).collect();
        for (at, wanted) in [
            "node process device peer path why not faster",
            "127.9.0.1 7 udma0 127.9.0.2 packets the peer says: packets only",
            "127.9.0.1 7 udma0 127.9.0.3 packets",
            "127.9.0.1 7 udma0 127.9.0.5 same-host",
            "127.9.0.1 7 udma0 10.99.0.9 packets not reached: address: this node's EID 127.9.0.1 is a loopback address,",
            "127.9.0.1 7 udma0 10.99.0.9 packets",
            "127.9.0.1 7 udma0 10.99.0.8 none not reached: address: this node's EID 127.9.0.1 is a loopback address,",
            "127.9.0.2 8 udma1 127.9.0.1 packets packets only",
            "port 0 a to b: idle, 1 bytes sent, 2 received, failed 0 times",
            "127.9.0.3 9 udma2 127.9.0.1 same-host no reason of packets",
            "127.9.0.3 9 udma2 127.9.0.2 packets of another",
            "127.9.0.4 10 udma3 - - port: taken",
            "127.9.0.5 11 udma4 - -",
            "127.9.0.6 - it is gone",
        ]
        .into_iter()
        .enumerate()
        {
            let is_it = if wanted.ends_with(',') {
                joined[at].starts_with(wanted)
            } else {
                joined[at] == wanted
            };
            assert!(is_it, "{wanted}: {text}");
        }
        assert_eq!(joined.len(), 14);
        let edges: Vec<Value> = nodes.iter().map(edges).collect();
        assert_eq!(edges[1]["peers"].as_array().map(Vec::len), Some(1));
        assert_eq!((&edges[1]["eid"], &edges[1]["pid"]), (&"127.9.0.2".into(), &8.into()));
        assert_eq!(edges[1]["device"], "udma1");
        assert_eq!(edges[5], json!({ "eid": "127.9.0.6", "silent": "it is gone" }));
    }

    #[test]
    fn tables_have_a_cell_for_each_kind_of_value() {
        let segments =
            [json!({ "token_id": 256, "va": 4096, "len": 8, "access": ["read", "write"],
            "shared": true, "has_token": false })];
        let text = table(ObjectKind::Seg, &segments);
        let mut rows = text.lines();
        assert_eq!(
            rows.next().map(str::split_whitespace).map(Iterator::collect::<Vec<_>>),
            Some(vec!["token_id", "va", "len", "access", "has_token", "shared", "why_not_direct"])
        );
        assert_eq!(
            rows.next(),
            Some(
                "256         0x1000              8             read,write              false      true    -"
            )
        );
        let rc = [json!({ "id": 7, "bound": { "id": 9, "tpn": 3 } })];
        assert!(table(ObjectKind::Rc, &rc).contains("id=9,tpn=3"));
        for (kind, first, last) in [
            (ObjectKind::Jfc, "id", "id"),
            (ObjectKind::JettyGroup, "id", "members"),
            (ObjectKind::Jfs, "id", "jfcs"),
            (ObjectKind::Jfr, "id", "jfcs"),
            (ObjectKind::Jetty, "id", "group"),
            (ObjectKind::Rc, "id", "bound"),
            (ObjectKind::Tp, "eid", "why_not_faster"),
            (ObjectKind::Tpreuse, "eid", "in_flight"),
        ] {
            let text = table(kind, &[]);
            let words: Vec<&str> = text.split_whitespace().collect();
            assert_eq!((words[0], words[words.len() - 1]), (first, last), "{kind:?}");
        }
    }

    #[test]
    fn the_columns_of_a_kind_begin_where_they_stay() {
        for (kind, wanted) in [
            (ObjectKind::Jfc, &[0][..]),
            (ObjectKind::JettyGroup, &[0, 10]),
            (ObjectKind::Jfs, &[0, 10, 17, 29]),
            (ObjectKind::Jfr, &[0, 10, 17, 29, 39]),
            (ObjectKind::Jetty, &[0, 10, 17, 29, 41, 51, 65, 77]),
            (ObjectKind::Rc, &[0, 10, 22, 34]),
            (ObjectKind::Seg, &[0, 12, 32, 46, 70, 81, 89]),
            (ObjectKind::Tp, &[0, 20, 32, 43, 55, 73, 80, 92, 103, 121]),
            (ObjectKind::Tpreuse, &[0, 20, 32, 40]),
        ] {
            let text = table(kind, &[]);
            let begins = |at: &usize| !text[*at..].starts_with(' ') && text[..*at].ends_with(' ');
            let found: Vec<usize> =
                (0..text.len() - 1).filter(|at| *at == 0 || begins(at)).collect();
            assert_eq!(found, wanted, "{text}");
        }
    }

    #[test]
    fn the_whole_of_a_node_has_its_objects_of_each_kind() {
        let document = document();
        let mut text = String::new();
        details(&mut text, &document, true);
        for kind in [
            ObjectKind::Jetty,
            ObjectKind::Jfs,
            ObjectKind::Jfr,
            ObjectKind::Jfc,
            ObjectKind::JettyGroup,
            ObjectKind::Seg,
            ObjectKind::Tp,
        ] {
            let table = table(kind, &objects(&document, kind, None));
            assert!(table.lines().count() > 1 && text.contains(&table), "{kind:?}: {text}");
        }
    }

    #[test]
    fn details_are_shown_where_they_are_asked_for() {
        use clap::Parser;

        #[derive(Parser)]
        struct Line {
            #[command(flatten)]
            show: ShowArgs,
        }
        let shown = |line: &str| {
            let line = Line::try_parse_from(line.split(' ')).unwrap_or_else(|e| panic!("{e}"));
            is_detailed(&line.show)
        };
        assert!(!shown("show") && !shown("show -d udma0") && !shown("show dev udma0 --brief"));
        assert!(shown("show -a") && shown("show --whole") && shown("show dev udma0"));
    }
}
