//! The document about a node, for processes of the same user.
//!
//! *Owns*: the document (JSON), how it is asked for and handed over, how nodes are found. *Takes*:
//! a device, its peers. *Gives*: text. *Must not*: change anything, or show a token.
//!
//! Asked over the claim's socket: one message of kind 4 without descriptors; the answer is one of
//! the same kind whose only descriptor is a sealed file with the text, `node_len` bytes of it.

use std::{
    fmt::Write as _,
    io,
    os::fd::{AsFd, OwnedFd},
    time::Duration,
};

use rustix::event::{PollFd, PollFlags, poll};
use udma_abi::{
    RawEid,
    caps::{Caps, Features},
};
use urma_mem::{MapAccess, Pages, Region};

use super::{
    claim::{Connect, connect},
    descriptor::ForkGuarded,
    eid_ip,
    peer::PeerLook,
    peer::hello::{self, Hello, HelloKind},
    peer::trust::{self, ShareWith},
    shared::SharedNode,
};
use crate::device::look::{DeviceSnapshot, PathLook, QueueLook, RouteLook, SegmentLook};

/// Longest wait for a node's answer.
const ANSWER: Duration = Duration::from_secs(2);
/// Longest document taken, bytes.
const DOCUMENT_MAX: u64 = 64 << 20;

// ---- the node's side ----------------------------------------------------------------------------

/// Sends the document to the process at the other end of `socket`.
pub(super) fn answer(shared: &SharedNode, name: &str, peers: &[PeerLook], socket: &ForkGuarded) {
    let text = document(shared, name, peers);
    let sent = Region::shared(text.len(), Pages::Base).and_then(|region| {
        region.write(0, text.as_bytes()).map_err(io::Error::other)?;
        let (file, _) = region.fd().ok_or(io::ErrorKind::Unsupported)?;
        let cfg = shared.device().cfg();
        let hello = plain(HelloKind::Inspect, (cfg.eid, cfg.incarnation), text.len() as u64);
        hello::send(socket, &hello, &[file])
    });
    if let Err(error) = sent {
        tracing::debug!(%error, "an inspection could not be answered");
    }
}

fn plain(kind: HelloKind, (eid, incarnation): (RawEid, u64), node_len: u64) -> Hello {
    let to = RawEid::default();
    Hello { kind, incarnation, eid, to, node_len, arena_len: 0, half_len: 0, probe: 0 }
}

/// The node as JSON.
fn document(shared: &SharedNode, name: &str, peers: &[PeerLook]) -> String {
    let device = shared.device();
    let (cfg, look) = (device.cfg(), device.look());
    let mut text = String::from("{");
    let _ = write!(text, "\"device\":{},\"eid\":\"{}\",", quoted(name), eid_ip(cfg.eid));
    let _ = write!(text, "\"pid\":{},\"incarnation\":{},", std::process::id(), cfg.incarnation);
    let _ = write!(text, "\"uasid\":{},\"mtu\":{},", cfg.uasid, cfg.mtu);
    let strategy = cfg.strategy.name().to_owned();
    let _ = write!(
        text,
        "\"window_packets\":{},\"strategy\":{},\"congestion\":{},",
        cfg.window_packets,
        quoted(&strategy),
        quoted(cfg.congestion.name())
    );
    let refused = shared.port().refused();
    let _ = write!(text, "\"packets_refused\":{},", optional(refused.as_deref().map(quoted)));
    let features = Features::from_bits_truncate(device.caps().features);
    let features: Vec<String> =
        features.iter_names().map(|(name, _)| quoted(&name.to_lowercase())).collect();
    let _ = write!(text, "\"features\":[{}],", features.join(","));
    let caps = Caps::NAMES.iter().zip(device.caps().to_words());
    let _ = write!(text, "\"capabilities\":{},", numbers(caps.map(|(name, value)| (*name, value))));
    let _ = write!(text, "\"counters\":{},", numbers(device.counters().into_iter()));
    objects(&mut text, &look, peers);
    text.push_str("}\n");
    text
}

fn objects(text: &mut String, look: &DeviceSnapshot, peers: &[PeerLook]) {
    let jfcs: Vec<String> = look.jfcs.iter().map(|id| format!("{{\"id\":{id}}}")).collect();
    let groups = look.groups.iter();
    let groups: Vec<String> =
        groups.map(|(id, members)| format!("{{\"id\":{id},\"members\":{members:?}}}")).collect();
    let queues: Vec<String> = look.queues.iter().map(queue).collect();
    let segments: Vec<String> = look.segments.iter().map(segment).collect();
    let paths: Vec<String> = look.paths.iter().map(|path| self::path(path, peers)).collect();
    for (name, list) in
        [("jfcs", jfcs), ("jetty_groups", groups), ("queues", queues), ("segments", segments)]
    {
        let _ = write!(text, "\"{name}\":[{}],", list.join(","));
    }
    let _ = write!(text, "\"tps\":[{}]", paths.join(","));
}

fn queue(queue: &QueueLook) -> String {
    let word = |value: &dyn std::fmt::Debug| quoted(&format!("{value:?}").to_lowercase());
    let bound = queue.bound.map(|(tpn, id)| format!("{{\"tpn\":{tpn},\"id\":{id}}}"));
    format!(
        "{{\"id\":{},\"kind\":{},\"mode\":{},\"send_state\":{},\"recv_state\":{},\"receives\":{},\
         \"jfcs\":{:?},\"shared_jfr\":{},\"group\":{},\"bound\":{}}}",
        queue.id,
        word(&queue.kind),
        word(&queue.mode),
        optional(queue.send_state.map(|state| word(&state))),
        optional(queue.recv_state.map(|state| word(&state))),
        optional(queue.receives),
        queue.jfcs,
        optional(queue.shared_jfr),
        optional(queue.group),
        optional(bound),
    )
}

fn segment(segment: &SegmentLook) -> String {
    let access: Vec<String> =
        segment.access.iter_names().map(|(name, _)| quoted(&name.to_lowercase())).collect();
    format!(
        "{{\"token_id\":{},\"va\":{},\"len\":{},\"access\":[{}],\"has_token\":{},\"shared\":{},\
         \"why_not_direct\":{}}}",
        segment.token_id,
        segment.va,
        segment.len,
        access.join(","),
        segment.has_token,
        segment.is_shared,
        optional(segment.why_not_direct.as_deref().map(quoted))
    )
}

fn path(path: &PathLook, peers: &[PeerLook]) -> String {
    let peer = peers.iter().find(|peer| peer.eid == path.eid);
    let why = peer.and_then(|peer| peer.why_not_faster).filter(|_| path.carrier == "packets");
    let routes: Vec<String> = path.routes.iter().map(route).collect();
    format!(
        "{{\"eid\":\"{}\",\"path\":{},\"why_not_faster\":{},\"owner_pid\":{},\"reliable\":{},\
         \"unreliable\":{},\"users\":{},\"tpns\":{:?},\"mtu\":{},\"rtt_ns\":{},\"recovery\":{},\
         \"congestion\":{},\"congestion_window\":{},\"routes\":[{}],\"in_flight\":{},\"cut_off\":{}}}",
        eid_ip(path.eid),
        quoted(path.carrier),
        optional(why.map(quoted)),
        optional(peer.and_then(|peer| peer.pid)),
        optional(path.reliable),
        optional(path.unreliable),
        path.users,
        path.tps,
        optional(path.mtu),
        optional(path.rtt_ns),
        optional(path.recovery.map(quoted)),
        optional(path.congestion.map(quoted)),
        optional(path.congestion_window),
        routes.join(","),
        path.in_flight,
        path.is_cut_off
    )
}

fn route(route: &RouteLook) -> String {
    format!(
        "{{\"port\":{},\"from\":\"{}\",\"to\":\"{}\",\"state\":{},\"sent_bytes\":{},\"received_bytes\":{},\"failures\":{}}}",
        route.port,
        eid_ip(route.from),
        eid_ip(route.to),
        quoted(route.state),
        route.sent_bytes,
        route.received_bytes,
        route.failures
    )
}

fn numbers(values: impl Iterator<Item = (&'static str, u64)>) -> String {
    let values: Vec<String> = values.map(|(name, value)| format!("\"{name}\":{value}")).collect();
    format!("{{{}}}", values.join(","))
}

fn optional(value: Option<impl std::fmt::Display>) -> String {
    value.map_or_else(|| "null".to_owned(), |value| value.to_string())
}

/// Formats a text as a JSON string, with escapes.
fn quoted(text: &str) -> String {
    let mut quoted = String::from("\"");
    for letter in text.chars() {
        match letter {
            '"' | '\\' => quoted.extend(['\\', letter]),
            letter if letter.is_control() => {
                let _ = write!(quoted, "\\u{:04x}", u32::from(letter));
            }
            letter => quoted.push(letter),
        }
    }
    quoted.push('"');
    quoted
}

// ---- the asker's side ---------------------------------------------------------------------------

/// Lists the nodes of this host (network namespace), of all users.
///
/// # Errors
/// `/proc/net/unix` cannot be read.
pub fn nodes() -> io::Result<Vec<RawEid>> {
    let table = std::fs::read_to_string("/proc/net/unix")?;
    let names = table.lines().filter_map(|line| line.rsplit(' ').next()?.strip_prefix("@urma/"));
    let eids = names.filter_map(|name| name.parse().ok()).map(super::ip_eid);
    let mut nodes: Vec<RawEid> = eids.collect();
    // A connected socket shows the name of its claim too.
    nodes.sort_unstable();
    nodes.dedup();
    Ok(nodes)
}

/// Returns the document about node `eid`, as JSON text, and its process.
///
/// # Errors
/// `NotFound`: no such node on this host. `PermissionDenied`: another user's ([`trust::Distrust`]).
/// `TimedOut`: it is stopped. Else the system's error.
pub fn ask(eid: RawEid) -> io::Result<(u32, String)> {
    let (pid, socket) = speak(eid, HelloKind::Inspect)?;
    let mut fds = [PollFd::new(&socket, PollFlags::IN)];
    let bound = ANSWER.try_into().map_err(io::Error::other)?;
    if poll(&mut fds, Some(&bound))? == 0 {
        return Err(io::ErrorKind::TimedOut.into());
    }
    let received = hello::receive(&socket).map_err(io::Error::other)?;
    let [file] = <[OwnedFd; 1]>::try_from(received.fds)
        .map_err(|_| io::Error::from(io::ErrorKind::PermissionDenied))?;
    let len = received.hello.node_len;
    if len == 0 || len > DOCUMENT_MAX {
        return Err(io::ErrorKind::InvalidData.into());
    }
    let len = usize::try_from(len).map_err(io::Error::other)?;
    let mut bytes = vec![0; len];
    let region = Region::map_fd(file, 0, len, MapAccess::ReadOnly)?;
    region.read(0, &mut bytes).map_err(io::Error::other)?;
    Ok((pid, String::from_utf8(bytes).map_err(io::Error::other)?))
}

/// Opens a connection on which node `eid` sends a copy of each packet, as described in [`super::tap`].
///
/// # Errors
/// The same as those of [`ask`].
pub fn capture(eid: RawEid) -> io::Result<OwnedFd> {
    speak(eid, HelloKind::Capture).map(|(_, socket)| socket)
}

/// Opens a connection on which node `eid` sends a copy of each context lookup, as described in [`super::tap`]; it
/// ends at once if the node does not model contexts.
///
/// # Errors
/// The same as those of [`ask`].
pub fn capture_contexts(eid: RawEid) -> io::Result<OwnedFd> {
    speak(eid, HelloKind::Contexts).map(|(_, socket)| socket)
}

/// Connects to `eid` and sends a message of `kind`.
fn speak(eid: RawEid, kind: HelloKind) -> io::Result<(u32, OwnedFd)> {
    let socket = match connect(eid)? {
        Connect::Connected(socket) => socket,
        Connect::NotHere => return Err(io::ErrorKind::NotFound.into()),
        Connect::Busy => return Err(io::ErrorKind::TimedOut.into()),
    };
    let refused = |why| io::Error::new(io::ErrorKind::PermissionDenied, why);
    let credentials = trust::check(&socket, ShareWith::User).map_err(refused)?;
    hello::send(socket.as_fd(), &plain(kind, (RawEid::default(), 0), 0), &[])?;
    Ok((credentials.pid, socket))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Node, NodeCfg};

    #[test]
    fn a_node_is_found_and_tells_of_itself() {
        let cfg = NodeCfg { name: "ud\"ma".to_owned(), ..NodeCfg::default() };
        let node = Node::open(cfg).unwrap();
        assert!(nodes().unwrap().contains(&node.eid()));
        let (pid, text) = ask(node.eid()).unwrap();
        assert_eq!(pid, std::process::id());
        assert!(text.starts_with("{\"device\":\"ud\\\"ma\",\"eid\":\"127."), "{text}");
        assert!(text.contains("\"max_jetty\":") && text.contains("\"queues\":[]"), "{text}");
        assert!(ask(super::super::ip_eid([127, 255, 255, 254].into())).is_err());
    }
}
